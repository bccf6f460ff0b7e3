//! What changed between two moments of a keyspace.

use std::cmp::Ordering;
use std::fmt;

use tombolo::{Cursor, Differing, Result, Value};

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
/// Only what came since is read, and what left: writes in memory, tables that were made or merged
/// meanwhile ([`tombolo::Differing`]). The values before and after are looked up at those keys. It
/// takes no memory.
pub struct Changes {
    before: Cursor,
    after: Cursor,
    differing: Result<Differing>,
    /// All keys before it were compared.
    from: Vec<u8>,
    /// Whether the cursors stand where this has brought them.
    has_begun: bool,
}

impl fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Changes").finish_non_exhaustive()
    }
}

impl Changes {
    /// Between these, in all of their range, wherever they stand.
    pub fn between(before: Cursor, after: Cursor) -> Changes {
        let differing = before.differing(&after);
        Changes { before, after, differing, from: Vec::new(), has_begun: false }
    }

    /// The next change. After an error it may be asked again: nothing was passed over.
    ///
    /// # Errors
    /// Those of the cursors.
    #[allow(clippy::should_implement_trait, reason = "it fails, and an iterator would go on after that")]
    pub fn next(&mut self) -> Result<Option<Change>> {
        if self.differing.is_err() {
            self.differing = self.before.differing(&self.after);
        }
        let differing = self.differing.as_mut().map_err(|error| error.clone())?;
        loop {
            let Some(candidate) = differing.next(&self.from)? else { return Ok(None) };
            if self.has_begun {
                self.before.advance_to(&candidate)?;
                self.after.advance_to(&candidate)?;
            } else {
                self.before.seek(&candidate)?;
                self.after.seek(&candidate)?;
                self.has_begun = true;
            }
            let order = match (self.before.valid(), self.after.valid()) {
                (false, false) => return Ok(None),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (true, true) => self.before.key().cmp(self.after.key()),
            };
            let [before, after] = [order != Ordering::Greater, order != Ordering::Less];
            let key = if before { self.before.key() } else { self.after.key() };
            self.from.clear();
            self.from.extend_from_slice(key);
            // The least key after it.
            self.from.push(0);
            if order == Ordering::Equal && self.before.value() == self.after.value() {
                continue;
            }
            let before = before.then(|| self.before.entry()).flatten();
            let after = after.then(|| self.after.entry()).flatten();
            let Some((key, _)) = before.as_ref().or(after.as_ref()) else { return Ok(None) };
            let value = |entry: Option<(Value, Value)>| entry.map(|(_, value)| value);
            return Ok(Some(Change { key: key.clone(), before: value(before), after: value(after) }));
        }
    }
}
