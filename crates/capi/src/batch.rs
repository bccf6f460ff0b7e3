//! Batches: writes that take effect together.

use std::ffi::{c_char, c_int};
use std::mem::take;
use std::time::Duration;

use tombolo::Batch;

use crate::boundary::{durability, handle, handle_mut};
use crate::database::Database;
use crate::keyspace::KeyspaceHandle;
use crate::{bytes, guarded};

/// Writes that take effect whole or not at all. One thread uses it at a time.
#[derive(Default)]
pub struct BatchHandle(pub(crate) Batch);

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_batch_create() -> Option<Box<BatchHandle>> {
    Some(Box::default())
}

/// What was not written is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_batch_destroy(batch: Option<Box<BatchHandle>>) {
    drop(batch);
}

/// Forgets all writes in it.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_batch_clear(batch: Option<&mut BatchHandle>) {
    if let Some(batch) = batch {
        batch.0 = Batch::new();
    }
}

/// How many writes are in it; 0 of a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_batch_count(batch: Option<&BatchHandle>) -> usize {
    batch.map_or(0, |batch| batch.0.len())
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_batch_put(
    batch: Option<&mut BatchHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    value: *const c_char,
    value_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, value) = (bytes!(key, key_bytes)?, bytes!(value, value_bytes)?);
        handle_mut(batch, "batch")?.0.put(handle(keyspace, "keyspace")?.keyspace(), key, value);
        Ok(())
    });
}

/// Adds a put of a value that lives for so many milliseconds from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_batch_put_ttl(
    batch: Option<&mut BatchHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    value: *const c_char,
    value_bytes: usize,
    ttl_ms: u64,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, value) = (bytes!(key, key_bytes)?, bytes!(value, value_bytes)?);
        let (keyspace, ttl) = (handle(keyspace, "keyspace")?.keyspace(), Duration::from_millis(ttl_ms));
        handle_mut(batch, "batch")?.0.put_ttl(keyspace, key, value, ttl);
        Ok(())
    });
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_batch_delete(
    batch: Option<&mut BatchHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let key = bytes!(key, key_bytes)?;
        handle_mut(batch, "batch")?.0.delete(handle(keyspace, "keyspace")?.keyspace(), key);
        Ok(())
    });
}

/// Adds a delete of a key that was put once since it was last deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_batch_single_delete(
    batch: Option<&mut BatchHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let key = bytes!(key, key_bytes)?;
        handle_mut(batch, "batch")?.0.single_delete(handle(keyspace, "keyspace")?.keyspace(), key);
        Ok(())
    });
}

/// Adds a delete of all keys from `from` on and before `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_batch_delete_range(
    batch: Option<&mut BatchHandle>,
    keyspace: Option<&KeyspaceHandle>,
    from: *const c_char,
    from_bytes: usize,
    to: *const c_char,
    to_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (from, to) = (bytes!(from, from_bytes)?, bytes!(to, to_bytes)?);
        handle_mut(batch, "batch")?.0.delete_range(handle(keyspace, "keyspace")?.keyspace(), from, to);
        Ok(())
    });
}

/// Adds a merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_batch_merge(
    batch: Option<&mut BatchHandle>,
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    operand: *const c_char,
    operand_bytes: usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (key, operand) = (bytes!(key, key_bytes)?, bytes!(operand, operand_bytes)?);
        handle_mut(batch, "batch")?.0.merge(handle(keyspace, "keyspace")?.keyspace(), key, operand);
        Ok(())
    });
}

/// Writes the batch, whole or not at all, and empties it, also after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_write(
    database: Option<&Database>,
    batch: Option<&mut BatchHandle>,
    survives: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let (database, survives) = (handle(database, "database")?, durability(survives)?);
        database.db.write_with(take(&mut handle_mut(batch, "batch")?.0), survives).wait()
    });
}
