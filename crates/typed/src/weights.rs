//! Several cursors as one, whose weights are added.

use std::cmp::Ordering;
use std::fmt;

use tombolo::Result;

use crate::{Key, TypedCursor};

/// Z-sets of several keyspaces, or of several moments, as one: entries of the same key are one
/// entry, whose weight is the sum; entries with the sum zero are not there. In the order of the
/// keys.
///
/// Each cursor comes with a factor: -1 subtracts, so that the merge of two moments is what changed
/// between them.
///
/// Sums wrap, as those of the merge operator `weights` do.
pub struct WeightMerge<K> {
    /// Each stands at an entry, or is at its end.
    cursors: Vec<(TypedCursor<K, i64>, i64)>,
    has_begun: bool,
}

impl<K> fmt::Debug for WeightMerge<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WeightMerge").field("cursors", &self.cursors.len()).finish_non_exhaustive()
    }
}

impl<K: Key> WeightMerge<K> {
    /// Of these cursors, from where they stand: each with its factor.
    pub fn new(cursors: impl IntoIterator<Item = (TypedCursor<K, i64>, i64)>) -> WeightMerge<K> {
        WeightMerge { cursors: cursors.into_iter().collect(), has_begun: false }
    }

    /// The next key whose weights do not add up to zero, with their sum.
    ///
    /// # Errors
    /// Those of the cursors; `Corrupt` for bytes that are no weight.
    #[allow(clippy::should_implement_trait, reason = "it fails, and an iterator would go on after that")]
    pub fn next(&mut self) -> Result<Option<(K, i64)>> {
        if !self.has_begun {
            for (cursor, _) in &mut self.cursors {
                cursor.next()?;
            }
            self.has_begun = true;
        }
        loop {
            let Some(at) = self.smallest() else { return Ok(None) };
            let key = self.cursors[at].0.key_bytes().to_vec();
            let mut sum = 0_i64;
            let mut found = None;
            for (cursor, factor) in &mut self.cursors {
                if cursor.valid() && cursor.key_bytes() == key {
                    sum = sum.wrapping_add(cursor.value()?.wrapping_mul(*factor));
                    if found.is_none() {
                        found = Some(cursor.key()?);
                    }
                }
            }
            for (cursor, _) in &mut self.cursors {
                if cursor.valid() && cursor.key_bytes() == key {
                    cursor.next()?;
                }
            }
            if let (Some(key), true) = (found, sum != 0) {
                return Ok(Some((key, sum)));
            }
        }
    }

    /// Which of them stands at the smallest key.
    fn smallest(&self) -> Option<usize> {
        let mut smallest: Option<usize> = None;
        for (at, (cursor, _)) in self.cursors.iter().enumerate() {
            let is_smaller =
                |than: usize| cursor.key_bytes().cmp(self.cursors[than].0.key_bytes()) == Ordering::Less;
            if cursor.valid() && smallest.is_none_or(is_smaller) {
                smallest = Some(at);
            }
        }
        smallest
    }
}
