//! Writes of single keys, and of batches.

use std::ffi::c_char;

use tombolo::{Keyspace, Op, Result};
use tombolo_c::boundary::{handle, handle_mut};
use tombolo_c::bytes;

use crate::batch::WriteBatch;
use crate::guarded;
use crate::handles::{Database, Family, given};
use crate::options::WriteOptions;

fn write(
    db: Option<&Database>,
    family: Option<&Family>,
    start: impl FnOnce(&Keyspace) -> Result<Op<()>>,
) -> Result<()> {
    start(handle(db, "database")?.family(family).keyspace())?.wait()
}

/// Stores a value under a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_put(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(db, None, |keyspace| {
            let (key, value) = (bytes!(key, keylen)?, bytes!(val, vallen)?);
            Ok(keyspace.put_with(key, value, WriteOptions::durability(options)))
        })
    });
}

/// Stores a value under a key of a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_put_cf(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(db, given(column_family)?, |keyspace| {
            let (key, value) = (bytes!(key, keylen)?, bytes!(val, vallen)?);
            Ok(keyspace.put_with(key, value, WriteOptions::durability(options)))
        })
    });
}

/// Removes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_delete(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(db, None, |keyspace| {
            Ok(keyspace.delete_with(bytes!(key, keylen)?, WriteOptions::durability(options)))
        })
    });
}

/// Removes a key of a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_delete_cf(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(db, given(column_family)?, |keyspace| {
            Ok(keyspace.delete_with(bytes!(key, keylen)?, WriteOptions::durability(options)))
        })
    });
}

/// Removes a key that was put once since it was last removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_singledelete(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(db, None, |keyspace| {
            Ok(keyspace.single_delete_with(bytes!(key, keylen)?, WriteOptions::durability(options)))
        })
    });
}

/// Removes all keys from `start_key` on and before `end_key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_delete_range_cf(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    column_family: Option<&Family>,
    start_key: *const c_char,
    start_key_len: usize,
    end_key: *const c_char,
    end_key_len: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(db, given(column_family)?, |keyspace| {
            let (from, to) = (bytes!(start_key, start_key_len)?, bytes!(end_key, end_key_len)?);
            Ok(keyspace.delete_range_with(from, to, WriteOptions::durability(options)))
        })
    });
}

/// Merges an operand into the value of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_merge(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(db, None, |keyspace| {
            let (key, operand) = (bytes!(key, keylen)?, bytes!(val, vallen)?);
            Ok(keyspace.merge_with(key, operand, WriteOptions::durability(options)))
        })
    });
}

/// Merges an operand into the value of a key of a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_merge_cf(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        write(db, given(column_family)?, |keyspace| {
            let (key, operand) = (bytes!(key, keylen)?, bytes!(val, vallen)?);
            Ok(keyspace.merge_with(key, operand, WriteOptions::durability(options)))
        })
    });
}

/// Writes a batch, whole or not at all. It stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_write(
    db: Option<&Database>,
    options: Option<&WriteOptions>,
    batch: Option<&mut WriteBatch>,
    errptr: *mut *mut c_char,
) {
    guarded!(errptr, (), || {
        let database = handle(db, "database")?;
        let batch = handle_mut(batch, "batch")?.to_batch(database)?;
        database.db.write_with(batch, WriteOptions::durability(options)).wait()
    });
}
