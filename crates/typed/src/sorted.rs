//! Entries of sorted batches, by types.

use tombolo::{Op, SortedBatch};

use crate::{Key, TypedKeyspace, Value, Written};

impl<K: Key, V: Value> TypedKeyspace<K, V> {
    /// Adds a put to a sorted batch: see [`SortedBatch::put`].
    ///
    /// # Errors
    /// As there, and as [`TypedKeyspace::put`].
    pub fn put_sorted(&self, batch: &mut SortedBatch, key: &K, value: &(impl Written<V> + ?Sized)) -> Op<()> {
        self.write(key, value, |key, value| batch.put(self.keyspace(), key, value))
    }

    /// Adds a merge of one operand to a sorted batch: see [`SortedBatch::merge`].
    ///
    /// # Errors
    /// As there, and as [`TypedKeyspace::put`].
    pub fn merge_sorted(
        &self,
        batch: &mut SortedBatch,
        key: &K,
        operand: &(impl Written<V> + ?Sized),
    ) -> Op<()> {
        self.write(key, operand, |key, operand| batch.merge(self.keyspace(), key, [operand]))
    }

    /// Adds a delete to a sorted batch: see [`SortedBatch::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_sorted(&self, batch: &mut SortedBatch, key: &K) -> Op<()> {
        match self.encoded(key) {
            Ok(key) => batch.delete(self.keyspace(), key.bytes()),
            Err(error) => Op::ready(Err(error)),
        }
    }
}
