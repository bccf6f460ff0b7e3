//! Reads of single keys, and the snapshots that they may look from.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use tombolo::{Keyspace, Op, Result, Snapshot, Value};

use crate::boundary::{copy_bytes, handle, invalid};
use crate::database::Database;
use crate::keyspace::KeyspaceHandle;
use crate::{bytes, give, guarded};

/// A state of all keyspaces, which stays as it is. Any number of threads may use it at once.
pub struct SnapshotHandle(pub(crate) Snapshot);

/// A value, or a key, that lies in the memory in which it was found.
pub struct ValueHandle(pub(crate) Value);

/// Is given bytes that are lent for the call.
pub type UseBytes = Option<unsafe extern "C" fn(state: *mut c_void, bytes: *const c_char, length: usize)>;

pub(crate) fn get(keyspace: &Keyspace, snapshot: Option<&SnapshotHandle>, key: &[u8]) -> Op<Option<Value>> {
    match snapshot {
        Some(snapshot) => snapshot.0.get(keyspace, key),
        None => keyspace.get(key),
    }
}

/// The same, waiting here.
fn get_now(
    keyspace: Option<&KeyspaceHandle>,
    snapshot: Option<&SnapshotHandle>,
    key: &[u8],
) -> Result<Option<Value>> {
    let keyspace = handle(keyspace, "keyspace")?;
    match snapshot {
        Some(snapshot) => snapshot.0.get(keyspace.keyspace(), key).wait(),
        None => keyspace.blocking.get(key),
    }
}

/// All keyspaces as they are now. What it sees is kept until it is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_snapshot(
    database: Option<&Database>,
    error: *mut *mut c_char,
) -> Option<Box<SnapshotHandle>> {
    guarded!(error, None, || {
        Ok(Some(Box::new(SnapshotHandle(handle(database, "database")?.db.snapshot()))))
    })
}

/// Lets go of what the snapshot keeps.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_snapshot_release(snapshot: Option<Box<SnapshotHandle>>) {
    drop(snapshot);
}

/// The value of a key, copied: null when there is none, and after an error. To be freed. A null
/// snapshot is now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_get(
    keyspace: Option<&KeyspaceHandle>,
    snapshot: Option<&SnapshotHandle>,
    key: *const c_char,
    key_bytes: usize,
    value_bytes: *mut usize,
    error: *mut *mut c_char,
) -> *mut c_char {
    give!(value_bytes, 0);
    guarded!(error, null_mut(), || {
        let value = get_now(keyspace, snapshot, bytes!(key, key_bytes)?)?;
        let Some(value) = value else { return Ok(null_mut()) };
        give!(value_bytes, value.len());
        Ok(copy_bytes(&value))
    })
}

/// The value of a key, not copied: null when there is none, and after an error. It keeps memory of
/// the database until it is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_get_value(
    keyspace: Option<&KeyspaceHandle>,
    snapshot: Option<&SnapshotHandle>,
    key: *const c_char,
    key_bytes: usize,
    error: *mut *mut c_char,
) -> Option<Box<ValueHandle>> {
    guarded!(error, None, || {
        let value = get_now(keyspace, snapshot, bytes!(key, key_bytes)?)?;
        Ok(value.map(|value| Box::new(ValueHandle(value))))
    })
}

/// The bytes of a value, until it is released; null of a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_value_bytes(
    value: Option<&ValueHandle>,
    length: *mut usize,
) -> *const c_char {
    give!(length, value.map_or(0, |value| value.0.len()));
    value.map_or(std::ptr::null(), |value| value.0.as_ptr().cast())
}

/// Lets go of a value.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_value_release(value: Option<Box<ValueHandle>>) {
    drop(value);
}

/// Lends the value of a key to `use_bytes`, which is called before this ends, if there is one;
/// says 1 then, and else 0. Nothing is copied and nothing has to be freed. `use_bytes` must not
/// call this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_get_with(
    keyspace: Option<&KeyspaceHandle>,
    key: *const c_char,
    key_bytes: usize,
    use_bytes: UseBytes,
    state: *mut c_void,
    error: *mut *mut c_char,
) -> c_int {
    guarded!(error, 0, || {
        let keyspace = &handle(keyspace, "keyspace")?.blocking;
        let use_bytes = use_bytes.ok_or_else(|| invalid("the callback is a null pointer"))?;
        let lend = |value: &[u8]| {
            // SAFETY: the caller's function, called as its type says, with bytes that live longer.
            unsafe { use_bytes(state, value.as_ptr().cast(), value.len()) };
        };
        let found = keyspace.get_with(bytes!(key, key_bytes)?, lend)?;
        Ok(c_int::from(found.is_some()))
    })
}

/// The values of several keys at one moment. Key `i` is `keys[i]` of `key_lengths[i]` bytes. Of
/// each, `values[i]` and `value_lengths[i]` become a copy to be freed, or null and 0. After an
/// error all are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_multi_get(
    keyspace: Option<&KeyspaceHandle>,
    snapshot: Option<&SnapshotHandle>,
    count: usize,
    keys: *const *const c_char,
    key_lengths: *const usize,
    values: *mut *mut c_char,
    value_lengths: *mut usize,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        let arrays = [keys.is_null(), key_lengths.is_null(), values.is_null(), value_lengths.is_null()];
        if count > 0 && arrays.contains(&true) {
            return Err(invalid("an array is a null pointer"));
        }
        for index in 0..count {
            // SAFETY: the caller's arrays have `count` places each, and none is null.
            unsafe {
                values.add(index).write(null_mut());
                value_lengths.add(index).write(0);
            }
        }
        let keyspace = handle(keyspace, "keyspace")?.keyspace();
        // SAFETY: as above.
        let key = |index: usize| unsafe { (*keys.add(index), *key_lengths.add(index)) };
        let keys: Vec<&[u8]> = (0..count)
            .map(|index| {
                let (key, length) = key(index);
                bytes!(key, length)
            })
            .collect::<Result<_>>()?;
        let found = match snapshot {
            Some(snapshot) => snapshot.0.multi_get(keyspace, &keys),
            None => keyspace.multi_get(&keys),
        };
        for (index, value) in found.wait()?.into_iter().enumerate() {
            let Some(value) = value else { continue };
            // SAFETY: as above; there are as many values as keys.
            unsafe {
                values.add(index).write(copy_bytes(&value));
                value_lengths.add(index).write(value.len());
            }
        }
        Ok(())
    });
}
