//! Keyspaces: writes of single keys.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use tombolo::{BlockingKeyspace, Env, Keyspace};

use crate::boundary::{durability, handle};
use crate::{bytes, guarded, text};

/// A keyspace of an open database. Any number of threads may use it at once.
pub struct KeyspaceHandle {
    pub(crate) blocking: BlockingKeyspace,
    pub(crate) env: Env,
}

impl KeyspaceHandle {
    pub(crate) fn boxed(blocking: BlockingKeyspace, env: &Env) -> Box<KeyspaceHandle> {
        Box::new(KeyspaceHandle { blocking, env: env.clone() })
    }

    pub(crate) fn keyspace(&self) -> &Keyspace {
        self.blocking.keyspace()
    }
}

/// The keyspace itself stays.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_keyspace_destroy(keyspace: Option<Box<KeyspaceHandle>>) {
    drop(keyspace);
}

/// Changes a setting of the keyspace, such as `compression`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_keyspace_set_option(
    keyspace: Option<&KeyspaceHandle>,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        handle(keyspace, "keyspace")?.keyspace().set_options([(text!(name)?, text!(value)?)]).wait()
    });
}

/// Stores a value under a key. `survives` is `TOMBOLO_DURABLE` or another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_put(
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    value: *const c_char,
    value_bytes: usize,
    survives: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, value) = (bytes!(key, key_bytes)?, bytes!(value, value_bytes)?);
        handle(keyspace, "keyspace")?.keyspace().put_with(key, value, durability(survives)?).wait()
    });
}

/// As `tombolo_put`; the key has no value once `ttl_ms` milliseconds have passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_put_ttl(
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    value: *const c_char,
    value_bytes: usize,
    ttl_ms: u64,
    survives: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, value) = (bytes!(key, key_bytes)?, bytes!(value, value_bytes)?);
        let (keyspace, ttl) = (handle(keyspace, "keyspace")?.keyspace(), Duration::from_millis(ttl_ms));
        keyspace.put_ttl_with(key, value, ttl, durability(survives)?).wait()
    });
}

/// Removes a key, there or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_delete(
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    survives: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let key = bytes!(key, key_bytes)?;
        handle(keyspace, "keyspace")?.keyspace().delete_with(key, durability(survives)?).wait()
    });
}

/// Removes a key that was put once since it was last removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_single_delete(
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    survives: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let key = bytes!(key, key_bytes)?;
        handle(keyspace, "keyspace")?.keyspace().single_delete_with(key, durability(survives)?).wait()
    });
}

/// Removes all keys from `from` on and before `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_delete_range(
    keyspace: Option<&KeyspaceHandle>,
    from: *const c_char,
    from_bytes: usize,
    to: *const c_char,
    to_bytes: usize,
    survives: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (from, to) = (bytes!(from, from_bytes)?, bytes!(to, to_bytes)?);
        handle(keyspace, "keyspace")?.keyspace().delete_range_with(from, to, durability(survives)?).wait()
    });
}

/// Merges an operand into the value of a key, by the keyspace's operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_merge(
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    operand: *const c_char,
    operand_bytes: usize,
    survives: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, operand) = (bytes!(key, key_bytes)?, bytes!(operand, operand_bytes)?);
        handle(keyspace, "keyspace")?.keyspace().merge_with(key, operand, durability(survives)?).wait()
    });
}
