//! The entries of a range as an iterator.

use tombolo_storage::{Error, Result};

use crate::db::{Cursor, Keyspace};
use crate::value::Value;

/// The entries of a range at one moment of the database, as an iterator that also steps back.
/// Entries are given to keep; a [`Cursor`] lends them, and is faster.
///
/// It stands in a gap: `next` gives the entry after the gap and steps over it, `prev` the entry
/// before it. As an iterator it blocks the calling thread on a miss; the `_async` verbs do not.
/// After an error it stays where it was.
#[derive(Debug)]
pub struct Scan {
    cursor: Cursor,
    /// Of the entry at which the cursor stands, if it does, whether the gap is the one before it.
    before: bool,
}

impl Scan {
    pub(crate) fn new(cursor: Cursor) -> Scan {
        Scan { cursor, before: true }
    }

    /// One that answers every verb with `error`.
    pub(crate) fn refused(keyspace: &Keyspace, error: Error) -> Scan {
        Scan::new(Cursor::refused(keyspace, error))
    }

    /// Whether the cursor stands at the entry after the gap.
    fn stands_before(&self) -> bool {
        self.cursor.valid() && self.before
    }

    /// Whether the cursor stands at the entry before the gap.
    fn stands_after(&self) -> bool {
        self.cursor.valid() && !self.before
    }

    /// The entry before the gap, which moves before it; `None` at the range's start. Blocks on a
    /// miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn prev(&mut self) -> Option<Result<(Value, Value)>> {
        if !self.stands_after() {
            match self.cursor.prev() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.before = true;
        self.cursor.entry().map(Ok)
    }

    /// Moves the gap before the first key at or after `key`, within the range.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.cursor.stand_before(key.as_ref());
    }

    /// Moves the gap before the first entry.
    pub fn seek_to_first(&mut self) {
        self.cursor.stand_at_start();
    }

    /// Moves the gap after the last entry.
    pub fn seek_to_last(&mut self) {
        self.cursor.stand_at_end();
    }

    /// As the iterator's `next`, without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn next_async(&mut self) -> Result<Option<(Value, Value)>> {
        if !self.stands_before() && !self.cursor.next_async().await? {
            return Ok(None);
        }
        self.before = false;
        Ok(self.cursor.entry())
    }

    /// As [`Scan::prev`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn prev_async(&mut self) -> Result<Option<(Value, Value)>> {
        if !self.stands_after() && !self.cursor.prev_async().await? {
            return Ok(None);
        }
        self.before = true;
        Ok(self.cursor.entry())
    }
}

impl Iterator for Scan {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Result<(Value, Value)>> {
        if !self.stands_before() {
            match self.cursor.next() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.before = false;
        self.cursor.entry().map(Ok)
    }
}
