//! A cursor over the keys of a range.

use tombolo_storage::Result;

use crate::db::unsupported;
use crate::value::Value;

/// A cursor between the entries of a range, at one moment of the database.
///
/// It stands in a gap: `next` gives the entry after the gap and steps over it, `prev` the entry before it. As an iterator it blocks
/// the calling thread on a miss; the `_async` verbs do not. After an error it stays where it was.
#[derive(Debug)]
pub struct Scan {}

impl Scan {
    /// The entry before the cursor, which steps back over it; `None` at the range's start. Blocks on a miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn prev(&mut self) -> Option<Result<(Value, Value)>> {
        Some(unsupported())
    }

    /// Moves the cursor before the first key at or after `key`, within the range.
    pub fn seek(&mut self, _key: impl AsRef<[u8]>) {}

    /// Moves the cursor before the first entry.
    pub fn seek_to_first(&mut self) {}

    /// Moves the cursor after the last entry.
    pub fn seek_to_last(&mut self) {}

    /// As the iterator's `next`, without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn next_async(&mut self) -> Result<Option<(Value, Value)>> {
        unsupported()
    }

    /// As [`Scan::prev`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn prev_async(&mut self) -> Result<Option<(Value, Value)>> {
        unsupported()
    }
}

impl Iterator for Scan {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Result<(Value, Value)>> {
        Some(unsupported())
    }
}
