//! Moves of cursors that joins and windows make: onwards to a key, to the next entry that somebody
//! wants, and past thousands of sorted keys in one pass.

use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::db::Cursor;

/// Steps that are taken before a move seeks. A step costs about a tenth of a seek.
const STEPS_MAX: usize = 8;

impl Cursor {
    /// To the first entry at or after `key`, from where it stands: it never goes back. Near targets
    /// are stepped to, others sought. For merge joins, whose targets rise.
    ///
    /// ```no_run
    /// # fn f(orders: &tombolo::Keyspace, customers: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// let (mut left, mut right) = (orders.cursor::<&[u8]>(..), customers.cursor::<&[u8]>(..));
    /// while left.next()? {
    ///     if right.advance_to(left.key())? && right.key() == left.key() {
    ///         println!("{:?}: {:?} of {:?}", left.key(), left.value(), right.value());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn advance_to(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        for _ in 0..STEPS_MAX {
            if !self.valid() {
                break;
            }
            if self.key() >= key {
                return Ok(true);
            }
            if !self.next()? {
                return Ok(false);
            }
        }
        // From a gap beyond the key a seek would go back.
        if !self.valid() && !self.is_before(key) && !is_enabled(Mutant::AdvanceGoesBack) {
            return self.next();
        }
        if self.valid() && self.key() >= key { Ok(true) } else { self.seek(key) }
    }

    /// To the next entry that is `wanted`, after where it stands; says whether there is one.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn find_next(&mut self, mut wanted: impl FnMut(&[u8], &[u8]) -> bool) -> Result<bool> {
        while self.next()? {
            if wanted(self.key(), self.value()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`Cursor::find_next`], back.
    ///
    /// # Errors
    /// As there.
    pub fn find_prev(&mut self, mut wanted: impl FnMut(&[u8], &[u8]) -> bool) -> Result<bool> {
        while self.prev()? {
            if wanted(self.key(), self.value()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks many keys up in one walk, all at the cursor's moment: `found` is given the number of
    /// each key and its value, in place. Keys rise; equal ones may follow each other. Of keys that
    /// lie near each other a block is looked into once. For keys that are mostly absent, or far
    /// apart, [`crate::Keyspace::multi_get`] asks filters first.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`]; `Invalid` for a key that is smaller than the one before it: all
    /// before that were given.
    pub fn look_up<K: AsRef<[u8]>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        mut found: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut last: Option<K> = None;
        for (number, key) in keys.into_iter().enumerate() {
            if last.as_ref().is_some_and(|last| last.as_ref() > key.as_ref()) {
                let message = format!("key {number} of a look-up is smaller than the one before it");
                return Err(Error::new(ErrorKind::Invalid, message).advice("sort the keys"));
            }
            // The first may lie before where it stands.
            let is_at_or_after = match last {
                None => self.seek(key.as_ref())?,
                Some(_) => self.advance_to(key.as_ref())?,
            };
            let is_there = is_at_or_after && self.key() == key.as_ref();
            found(number, is_there.then(|| self.value()));
            last = Some(key);
        }
        Ok(())
    }
}
