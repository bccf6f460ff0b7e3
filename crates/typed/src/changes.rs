//! What changed between two moments of a keyspace.

use std::cmp::Ordering;
use std::fmt;

use tombolo::{Cursor, Result, Value};

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key's bytes.
    pub key: Value,
    /// Its value before; `None`: it had none.
    pub before: Option<Value>,
    /// Its value after; `None`: it has none.
    pub after: Option<Value>,
}

/// The changes between two moments, in the order of the keys: of two cursors over the same range,
/// by snapshots, or of a checkpoint ([`tombolo::Builder::at_checkpoint`]) and of the database that
/// went on from there.
///
/// It reads both whole: costs as two scans, and no memory.
pub struct Changes {
    before: Cursor,
    after: Cursor,
    has_begun: bool,
}

impl fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Changes").finish_non_exhaustive()
    }
}

impl Changes {
    /// From where these stand.
    pub fn between(before: Cursor, after: Cursor) -> Changes {
        Changes { before, after, has_begun: false }
    }

    /// The next change.
    ///
    /// # Errors
    /// Those of the cursors.
    #[allow(clippy::should_implement_trait, reason = "it fails, and an iterator would go on after that")]
    pub fn next(&mut self) -> Result<Option<Change>> {
        if !self.has_begun {
            self.before.next()?;
            self.after.next()?;
            self.has_begun = true;
        }
        loop {
            let order = match (self.before.valid(), self.after.valid()) {
                (false, false) => return Ok(None),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (true, true) => self.before.key().cmp(self.after.key()),
            };
            if order == Ordering::Equal && self.before.value() == self.after.value() {
                self.before.next()?;
                self.after.next()?;
                continue;
            }
            let (mut key, mut before, mut after) = (None, None, None);
            if order != Ordering::Greater {
                if let Some((found, value)) = self.before.entry() {
                    (key, before) = (Some(found), Some(value));
                }
                self.before.next()?;
            }
            if order != Ordering::Less {
                if let Some((found, value)) = self.after.entry() {
                    (key, after) = (Some(found), Some(value));
                }
                self.after.next()?;
            }
            let Some(key) = key else { return Ok(None) };
            return Ok(Some(Change { key, before, after }));
        }
    }
}
