//! Cursors: entries in their order, both ways.

use std::ffi::{c_char, c_int};
use std::ops::Bound;
use std::ptr::null;

use tombolo::{Cursor, Result, TransactionCursor};

use crate::boundary::{handle, handle_mut};
use crate::keyspace::KeyspaceHandle;
use crate::reading::SnapshotHandle;
use crate::{bytes, give, guarded};

/// Stands at an entry, or at none. One thread uses it at a time.
pub struct CursorHandle(pub(crate) Entries);

/// Whose entries a handle of C walks over.
#[allow(clippy::large_enum_variant, reason = "it lies in the box of its handle")]
pub enum Entries {
    /// Those of a keyspace, at one moment.
    OfKeyspace(Cursor),
    /// Those that a transaction sees, its own writes among them.
    OfTransaction(Box<TransactionCursor>),
}

/// Calls a method that both have.
#[macro_export]
macro_rules! both {
    ($cursor:expr, $entries:ident => $call:expr) => {
        match $cursor {
            $crate::cursor::Entries::OfKeyspace($entries) => $call,
            $crate::cursor::Entries::OfTransaction($entries) => $call,
        }
    };
}

/// A cursor over the keys from `from` on and before `to`, of which a null pointer of length 0 is no
/// bound. A null snapshot is now. It stands at no entry yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor(
    keyspace: Option<&KeyspaceHandle>,
    snapshot: Option<&SnapshotHandle>,
    from: *const c_char,
    from_bytes: usize,
    to: *const c_char,
    to_bytes: usize,
    error: *mut *mut c_char,
) -> Option<Box<CursorHandle>> {
    guarded!(error, None, || {
        let keyspace = handle(keyspace, "keyspace")?.keyspace();
        let (first, last) = (bytes!(from, from_bytes)?, bytes!(to, to_bytes)?);
        let lower = if from.is_null() { Bound::Unbounded } else { Bound::Included(first) };
        let upper = if to.is_null() { Bound::Unbounded } else { Bound::Excluded(last) };
        let cursor = match snapshot {
            Some(snapshot) => snapshot.0.cursor::<&[u8]>(keyspace, (lower, upper)),
            None => keyspace.cursor::<&[u8]>((lower, upper)),
        };
        Ok(Some(Box::new(CursorHandle(Entries::OfKeyspace(cursor)))))
    })
}

/// Lets go of what the cursor keeps.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_cursor_destroy(cursor: Option<Box<CursorHandle>>) {
    drop(cursor);
}

/// Moves a cursor; says 1 when it stands at an entry then, and else 0.
///
/// # Safety
/// As of `guard`.
unsafe fn moved(
    cursor: Option<&mut CursorHandle>,
    error: *mut *mut c_char,
    go: impl FnOnce(&mut Entries) -> Result<bool>,
) -> c_int {
    guarded!(error, 0, || Ok(c_int::from(go(&mut handle_mut(cursor, "cursor")?.0)?)))
}

/// To the first entry; says 1 when it stands at one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_seek_to_first(
    cursor: Option<&mut CursorHandle>,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { moved(cursor, error, |cursor| both!(cursor, entries => entries.seek_to_first())) }
}

/// To the last entry; says 1 when it stands at one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_seek_to_last(
    cursor: Option<&mut CursorHandle>,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { moved(cursor, error, |cursor| both!(cursor, entries => entries.seek_to_last())) }
}

/// To the first entry at or after a key; says 1 when it stands at one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_seek(
    cursor: Option<&mut CursorHandle>,
    key: *const c_char,
    key_bytes: usize,
    error: *mut *mut c_char,
) -> c_int {
    let go = |cursor: &mut Entries| {
        let key = bytes!(key, key_bytes)?;
        both!(cursor, entries => entries.seek(key))
    };
    // SAFETY: the caller keeps it, as of every function.
    unsafe { moved(cursor, error, go) }
}

/// To the last entry at or before a key; says 1 when it stands at one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_seek_for_prev(
    cursor: Option<&mut CursorHandle>,
    key: *const c_char,
    key_bytes: usize,
    error: *mut *mut c_char,
) -> c_int {
    let go = |cursor: &mut Entries| {
        let key = bytes!(key, key_bytes)?;
        both!(cursor, entries => entries.seek_for_prev(key))
    };
    // SAFETY: the caller keeps it, as of every function.
    unsafe { moved(cursor, error, go) }
}

/// To the next entry, of a fresh cursor the first; says 1 when it stands at one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_next(
    cursor: Option<&mut CursorHandle>,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { moved(cursor, error, |cursor| both!(cursor, entries => entries.next())) }
}

/// To the entry before; says 1 when it stands at one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_prev(
    cursor: Option<&mut CursorHandle>,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller keeps it, as of every function.
    unsafe { moved(cursor, error, |cursor| both!(cursor, entries => entries.prev())) }
}

/// Whether it stands at an entry: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_cursor_valid(cursor: Option<&CursorHandle>) -> c_int {
    c_int::from(cursor.is_some_and(|cursor| both!(&cursor.0, entries => entries.valid())))
}

/// The key at which it stands, lent until it moves; null at none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_key(
    cursor: Option<&CursorHandle>,
    length: *mut usize,
) -> *const c_char {
    let key = cursor.and_then(|cursor| both!(&cursor.0, entries => entries.valid().then(|| entries.key())));
    give!(length, key.map_or(0, <[u8]>::len));
    key.map_or(null(), |key| key.as_ptr().cast())
}

/// The value at which it stands, lent until it moves; null at none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_value(
    cursor: Option<&CursorHandle>,
    length: *mut usize,
) -> *const c_char {
    let value =
        cursor.and_then(|cursor| both!(&cursor.0, entries => entries.valid().then(|| entries.value())));
    give!(length, value.map_or(0, <[u8]>::len));
    value.map_or(null(), |value| value.as_ptr().cast())
}

/// Looks at the database as it is now, in the gap before the entry where it stood.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_cursor_refresh(cursor: Option<&mut CursorHandle>, error: *mut *mut c_char) {
    guarded!(error, (), || both!(&mut handle_mut(cursor, "cursor")?.0, entries => entries.refresh()));
}
