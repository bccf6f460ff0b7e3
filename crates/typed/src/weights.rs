//! Several cursors as one, whose weights are added.

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
    parts: Vec<Part<K>>,
}

/// A cursor with its factor.
struct Part<K> {
    cursor: TypedCursor<K, i64>,
    factor: i64,
    /// Whether it moves before it is looked at: a move that fails is made again.
    moves: bool,
}

impl<K: Key> Part<K> {
    fn is_at(&self, key: &[u8]) -> bool {
        self.cursor.valid() && self.cursor.key_bytes() == key
    }
}

impl<K> fmt::Debug for WeightMerge<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WeightMerge").field("cursors", &self.parts.len()).finish_non_exhaustive()
    }
}

impl<K: Key> WeightMerge<K> {
    /// Of these cursors, from where they stand: each with its factor.
    pub fn new(cursors: impl IntoIterator<Item = (TypedCursor<K, i64>, i64)>) -> WeightMerge<K> {
        let parts = cursors.into_iter().map(|(cursor, factor)| Part { cursor, factor, moves: true });
        WeightMerge { parts: parts.collect() }
    }

    /// The next key whose weights do not add up to zero, with their sum. After an error it may be
    /// asked again: nothing was passed over.
    ///
    /// # Errors
    /// Those of the cursors; `Corrupt` for bytes that are no weight.
    #[allow(clippy::should_implement_trait, reason = "it fails, and an iterator would go on after that")]
    pub fn next(&mut self) -> Result<Option<(K, i64)>> {
        loop {
            for part in self.parts.iter_mut().filter(|part| part.moves) {
                part.cursor.next()?;
                part.moves = false;
            }
            let Some(smallest) = self.smallest() else { return Ok(None) };
            let (bytes, key) = (smallest.key_bytes().to_vec(), smallest.key()?);
            let mut sum = 0_i64;
            for part in self.parts.iter().filter(|part| part.is_at(&bytes)) {
                sum = sum.wrapping_add(part.cursor.value()?.wrapping_mul(part.factor));
            }
            self.parts.iter_mut().for_each(|part| part.moves = part.is_at(&bytes));
            if sum != 0 {
                return Ok(Some((key, sum)));
            }
        }
    }

    /// The one that stands at the smallest key.
    fn smallest(&self) -> Option<&TypedCursor<K, i64>> {
        let cursors = self.parts.iter().map(|part| &part.cursor).filter(|cursor| cursor.valid());
        cursors.min_by_key(|cursor| cursor.key_bytes())
    }
}
