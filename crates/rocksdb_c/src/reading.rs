//! Reads of keys.

use std::ffi::{c_char, c_uchar};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};

use tombolo::{Error, Result, Value};
use tombolo_c::boundary::{copy_bytes, copy_text, handle, panicked};
use tombolo_c::{bytes, give};

use crate::door::{check_arrays, status};
use crate::handles::{Database, Family, PinnableSlice, given};
use crate::options::ReadOptions;
use crate::{guarded, place};

fn get(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    key: &[u8],
) -> Result<Option<Value>> {
    let keyspace = handle(db, "database")?.family(family);
    options.map_or(Ok(()), ReadOptions::check)?;
    match options.and_then(|options| options.snapshot.as_ref()) {
        Some(snapshot) => snapshot.get(keyspace.keyspace(), key).wait(),
        None => keyspace.get(key),
    }
}

pub(crate) fn copied(value: Option<Value>, length: *mut usize) -> *mut c_char {
    let Some(value) = value else { return null_mut() };
    give!(length, value.len());
    copy_bytes(&value)
}

/// The value of a key, to be freed; null when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_get(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    give!(vallen, 0);
    guarded!(errptr, null_mut(), || Ok(copied(get(db, options, None, bytes!(key, keylen)?)?, vallen)))
}

/// The value of a key of a column family, to be freed; null when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_get_cf(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    give!(vallen, 0);
    guarded!(errptr, null_mut(), || {
        Ok(copied(get(db, options, given(column_family)?, bytes!(key, keylen)?)?, vallen))
    })
}

/// The value of a key, not copied; null when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_get_pinned(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) -> Option<Box<PinnableSlice>> {
    guarded!(errptr, None, || {
        Ok(get(db, options, None, bytes!(key, keylen)?)?.map(|value| Box::new(PinnableSlice(value))))
    })
}

/// The value of a key of a column family, not copied; null when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_get_pinned_cf(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) -> Option<Box<PinnableSlice>> {
    guarded!(errptr, None, || {
        let value = get(db, options, given(column_family)?, bytes!(key, keylen)?)?;
        Ok(value.map(|value| Box::new(PinnableSlice(value))))
    })
}

/// Lets go of a value.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_pinnableslice_destroy(v: Option<Box<PinnableSlice>>) {
    drop(v);
}

/// The bytes of a value, until it is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_pinnableslice_value(
    t: Option<&PinnableSlice>,
    vlen: *mut usize,
) -> *const c_char {
    give!(vlen, t.map_or(0, |value| value.0.len()));
    t.map_or(null(), |value| value.0.as_ptr().cast())
}

/// Whether a key may have a value. It always may: a value is never given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_key_may_exist(
    _db: Option<&Database>,
    _options: Option<&ReadOptions>,
    _key: *const c_char,
    _key_len: usize,
    _value: *mut *mut c_char,
    _val_len: *mut usize,
    _timestamp: *const c_char,
    _timestamp_len: usize,
    value_found: *mut c_uchar,
) -> c_uchar {
    give!(value_found, 0);
    1
}

/// The arrays of a multi-get.
pub(crate) struct Arrays {
    pub(crate) count: usize,
    pub(crate) keys: *const *const c_char,
    pub(crate) lengths: *const usize,
    pub(crate) values: *mut *mut c_char,
    pub(crate) value_lengths: *mut usize,
    pub(crate) errors: *mut *mut c_char,
}

impl Arrays {
    fn put(&self, index: usize, value: *mut c_char, length: usize, error: *mut c_char) {
        // SAFETY: the caller's arrays have `count` places each, and none is null.
        unsafe {
            self.values.add(index).write(value);
            self.value_lengths.add(index).write(length);
            self.errors.add(index).write(error);
        }
    }

    fn read(
        &self,
        db: Option<&Database>,
        options: Option<&ReadOptions>,
        family: impl Fn(usize) -> Result<Option<Family>>,
    ) -> Result<()> {
        self.check()?;
        // One moment for all: of the snapshot, or now.
        let looked = handle(db, "database").and_then(|database| {
            options.map_or(Ok(()), ReadOptions::check)?;
            let snapshot = options.and_then(|options| options.snapshot.clone());
            Ok((database, snapshot.unwrap_or_else(|| database.db.snapshot())))
        });
        self.each(|index, key| {
            let (database, snapshot) = looked.as_ref().map_err(Error::clone)?;
            let family = family(index)?;
            snapshot.get(database.family(family.as_ref()).keyspace(), key).wait()
        });
        Ok(())
    }

    /// Whether the caller's arrays are there.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<()> {
        let Arrays { count, keys, lengths, values, value_lengths, errors } = self;
        let are_null =
            [keys.is_null(), lengths.is_null(), values.is_null(), value_lengths.is_null(), errors.is_null()];
        check_arrays(*count, &are_null)
    }

    /// Reads each key, and puts its value or its error where they belong. Only after
    /// [`Arrays::check`].
    pub(crate) fn each(&self, mut read: impl FnMut(usize, &[u8]) -> Result<Option<Value>>) {
        for index in 0..self.count {
            let one = || read(index, bytes!(place!(self.keys, index), place!(self.lengths, index))?);
            // Each key has a place for its error: one that is not put there is lost.
            let found = catch_unwind(AssertUnwindSafe(one));
            match found.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
                Ok(None) => self.put(index, null_mut(), 0, null_mut()),
                Ok(Some(value)) => self.put(index, copy_bytes(&value), value.len(), null_mut()),
                Err(error) => self.put(index, null_mut(), 0, copy_text(&status(&error))),
            }
        }
    }
}

/// The values of several keys at one moment; each value and each error is to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_multi_get(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    num_keys: usize,
    keys_list: *const *const c_char,
    keys_list_sizes: *const usize,
    values_list: *mut *mut c_char,
    values_list_sizes: *mut usize,
    errs: *mut *mut c_char,
) {
    let arrays = Arrays {
        count: num_keys,
        keys: keys_list,
        lengths: keys_list_sizes,
        values: values_list,
        value_lengths: values_list_sizes,
        errors: errs,
    };
    guarded!(null_mut(), (), || arrays.read(db, options, |_| Ok(None)));
}

/// As `rocksdb_multi_get`, each key of its column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_multi_get_cf(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    column_families: *const *const Family,
    num_keys: usize,
    keys_list: *const *const c_char,
    keys_list_sizes: *const usize,
    values_list: *mut *mut c_char,
    values_list_sizes: *mut usize,
    errs: *mut *mut c_char,
) {
    let arrays = Arrays {
        count: num_keys,
        keys: keys_list,
        lengths: keys_list_sizes,
        values: values_list,
        value_lengths: values_list_sizes,
        errors: errs,
    };
    guarded!(null_mut(), (), || {
        check_arrays(num_keys, &[column_families.is_null()])?;
        arrays.read(db, options, |index| {
            let family = place!(column_families, index);
            // SAFETY: null, or a column family of this library, which lives as long as the call.
            let family = unsafe { family.as_ref() };
            Ok(Some(Family(handle(family, "column family")?.0.clone())))
        })
    });
}
