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
    /// Which of them move before they are looked at: a move that fails is made again.
    moves: [bool; 2],
}

impl fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Changes").finish_non_exhaustive()
    }
}

impl Changes {
    /// From where these stand.
    pub fn between(before: Cursor, after: Cursor) -> Changes {
        Changes { before, after, moves: [true; 2] }
    }

    /// The next change. After an error it may be asked again: nothing was passed over.
    ///
    /// # Errors
    /// Those of the cursors.
    #[allow(clippy::should_implement_trait, reason = "it fails, and an iterator would go on after that")]
    pub fn next(&mut self) -> Result<Option<Change>> {
        loop {
            for (cursor, moves) in [&mut self.before, &mut self.after].into_iter().zip(&mut self.moves) {
                if *moves {
                    cursor.next()?;
                    *moves = false;
                }
            }
            let order = match (self.before.valid(), self.after.valid()) {
                (false, false) => return Ok(None),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (true, true) => self.before.key().cmp(self.after.key()),
            };
            self.moves = [order != Ordering::Greater, order != Ordering::Less];
            if order == Ordering::Equal && self.before.value() == self.after.value() {
                continue;
            }
            let [before, after] = self.moves;
            let before = before.then(|| self.before.entry()).flatten();
            let after = after.then(|| self.after.entry()).flatten();
            let Some((key, _)) = before.as_ref().or(after.as_ref()) else { return Ok(None) };
            let value = |entry: Option<(Value, Value)>| entry.map(|(_, value)| value);
            return Ok(Some(Change { key: key.clone(), before: value(before), after: value(after) }));
        }
    }
}
