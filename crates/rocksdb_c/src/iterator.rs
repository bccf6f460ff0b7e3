//! Iterators: cursors that keep their error.

use std::ffi::{c_char, c_uchar};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};

use tombolo::{Cursor, Error, Result};
use tombolo_c::boundary::{handle, panicked, tell};
use tombolo_c::cursor::Entries;
use tombolo_c::{both, bytes, give};

use crate::door::{status, unsupported};
use crate::guarded;
use crate::handles::{Database, Family, given};
use crate::options::ReadOptions;

/// Stands at an entry, or at none. One thread uses it at a time.
pub struct IteratorHandle {
    cursor: Option<Entries>,
    /// What it cannot do, or what the last move failed with.
    error: Option<Error>,
    /// Whether it looks from a snapshot.
    is_fixed: bool,
}

impl IteratorHandle {
    pub(crate) fn boxed(made: Result<Entries>, is_fixed: bool) -> Box<IteratorHandle> {
        let (cursor, error) = match made {
            Ok(cursor) => (Some(cursor), None),
            Err(error) => (None, Some(error)),
        };
        Box::new(IteratorHandle { cursor, error, is_fixed })
    }
}

fn create(db: Option<&Database>, options: &ReadOptions, family: Option<&Family>) -> Result<Cursor> {
    let keyspace = handle(db, "database")?.family(family).keyspace();
    options.check_iterator()?;
    let lower = options.lower.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let upper = options.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Ok(match &options.snapshot {
        Some(snapshot) => snapshot.cursor::<&[u8]>(keyspace, (lower, upper)),
        None => keyspace.cursor::<&[u8]>((lower, upper)),
    })
}

fn boxed(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    family: Result<Option<&Family>>,
) -> Option<Box<IteratorHandle>> {
    guarded!(null_mut(), None, || {
        let default = ReadOptions::default();
        let options = options.unwrap_or(&default);
        let is_fixed = options.snapshot.is_some();
        let made = family.and_then(|family| create(db, options, family));
        Ok(Some(IteratorHandle::boxed(made.map(Entries::OfKeyspace), is_fixed)))
    })
}

/// An iterator at one moment, which stands at no entry yet. What it cannot do is its error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_create_iterator(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
) -> Option<Box<IteratorHandle>> {
    boxed(db, options, Ok(None))
}

/// As `rocksdb_create_iterator`, over a column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_create_iterator_cf(
    db: Option<&Database>,
    options: Option<&ReadOptions>,
    column_family: Option<&Family>,
) -> Option<Box<IteratorHandle>> {
    boxed(db, options, given(column_family))
}

/// Lets go of what it keeps.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_iter_destroy(iter: Option<Box<IteratorHandle>>) {
    drop(iter);
}

/// Whether it stands at an entry.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_iter_valid(iter: Option<&IteratorHandle>) -> c_uchar {
    c_uchar::from(standing(iter).is_some())
}

/// Moves it; an error is kept, and it stands at no entry then.
fn go(iter: Option<&mut IteratorHandle>, way: impl FnOnce(&mut Entries) -> Result<bool>) {
    let Some(iter) = iter else { return };
    let Some(cursor) = &mut iter.cursor else { return };
    let gone = catch_unwind(AssertUnwindSafe(|| way(cursor)));
    iter.error = gone.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))).err();
}

/// To the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_iter_seek_to_first(iter: Option<&mut IteratorHandle>) {
    go(iter, |cursor| both!(cursor, entries => entries.seek_to_first()));
}

/// To the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_iter_seek_to_last(iter: Option<&mut IteratorHandle>) {
    go(iter, |cursor| both!(cursor, entries => entries.seek_to_last()));
}

/// To the first entry at or after a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_iter_seek(iter: Option<&mut IteratorHandle>, k: *const c_char, klen: usize) {
    go(iter, |cursor| {
        let key = bytes!(k, klen)?;
        both!(cursor, entries => entries.seek(key))
    });
}

/// To the last entry at or before a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_iter_seek_for_prev(
    iter: Option<&mut IteratorHandle>,
    k: *const c_char,
    klen: usize,
) {
    go(iter, |cursor| {
        let key = bytes!(k, klen)?;
        both!(cursor, entries => entries.seek_for_prev(key))
    });
}

/// Moves it by one. Where it stands at no entry it stays, and so does its error.
fn step(iter: Option<&mut IteratorHandle>, way: impl FnOnce(&mut Entries) -> Result<bool>) {
    if standing(iter.as_deref()).is_some() {
        go(iter, way);
    }
}

/// To the next entry; at none it stays there.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_iter_next(iter: Option<&mut IteratorHandle>) {
    step(iter, |cursor| both!(cursor, entries => entries.next()));
}

/// To the entry before; at none it stays there.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_iter_prev(iter: Option<&mut IteratorHandle>) {
    step(iter, |cursor| both!(cursor, entries => entries.prev()));
}

fn lent(bytes: Option<&[u8]>, length: *mut usize) -> *const c_char {
    give!(length, bytes.map_or(0, <[u8]>::len));
    bytes.map_or(null(), |bytes| bytes.as_ptr().cast())
}

fn standing(iter: Option<&IteratorHandle>) -> Option<&Entries> {
    let cursor = iter.filter(|iter| iter.error.is_none())?.cursor.as_ref();
    cursor.filter(|cursor| both!(cursor, entries => entries.valid()))
}

/// The key at which it stands, until it moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_iter_key(iter: Option<&IteratorHandle>, klen: *mut usize) -> *const c_char {
    lent(standing(iter).map(|cursor| both!(cursor, entries => entries.key())), klen)
}

/// The value at which it stands, until it moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_iter_value(
    iter: Option<&IteratorHandle>,
    vlen: *mut usize,
) -> *const c_char {
    lent(standing(iter).map(|cursor| both!(cursor, entries => entries.value())), vlen)
}

/// What the last move failed with, if it did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_iter_get_error(iter: Option<&IteratorHandle>, errptr: *mut *mut c_char) {
    if let Some(error) = iter.and_then(|iter| iter.error.as_ref()) {
        // SAFETY: the caller keeps it, as of every function.
        unsafe { tell(errptr, &status(error)) };
    }
}

/// Looks at the database as it is now, at no entry. Refused for one that looks from a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_iter_refresh(iter: Option<&mut IteratorHandle>, errptr: *mut *mut c_char) {
    guarded!(errptr, (), || {
        let Some(iter) = iter else { return Ok(()) };
        if iter.is_fixed {
            return Err(unsupported("an iterator of a snapshot cannot look at what came later"));
        }
        match &mut iter.cursor {
            Some(cursor) => both!(cursor, entries => entries.refresh()),
            None => Ok(()),
        }
    });
}
