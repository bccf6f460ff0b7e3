//! An ordered map whose clones share everything but what changed.
//!
//! Every manifest record makes a new version of the state, and every keyspace that is written to
//! another list of a memtable; readers keep the old ones for as long as they like. Two levels of
//! shared, sorted arrays: a change copies one chunk and the array of chunks, so that at 100,000
//! entries it copies about 300 pointers and 300 entries. An unshared map (a state that is being
//! folded) changes in place.

use std::sync::Arc;

/// Entries of a chunk before it splits. The square root of the sizes that we expect.
const CHUNK_ENTRIES_MAX: usize = 512;

/// A shared piece of a map: while somebody holds it, it does not change.
pub type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// See the module's documentation.
///
/// Invariant: chunks are not empty; entries ascend strictly within and across chunks.
#[derive(Debug)]
pub struct ChunkedMap<K, V> {
    chunks: Arc<Vec<Chunk<K, V>>>,
    length: usize,
}

impl<K, V> Clone for ChunkedMap<K, V> {
    fn clone(&self) -> Self {
        ChunkedMap { chunks: Arc::clone(&self.chunks), length: self.length }
    }
}

impl<K, V> Default for ChunkedMap<K, V> {
    fn default() -> Self {
        ChunkedMap { chunks: Arc::new(Vec::new()), length: 0 }
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> PartialEq for ChunkedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.iter().eq(other.iter())
    }
}

impl<K: Ord + Clone, V: Clone + Eq> Eq for ChunkedMap<K, V> {}

impl<K: Ord + Clone, V: Clone> ChunkedMap<K, V> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The shared pieces, in order. What two maps have in common is the same allocation.
    pub fn chunks(&self) -> &[Chunk<K, V>] {
        &self.chunks
    }

    /// The chunk that holds `key`, or would.
    fn chunk_of(&self, key: &K) -> usize {
        self.chunks.partition_point(|chunk| chunk.last().is_some_and(|(last, _)| last < key))
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let index = chunk.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        chunk.get(index).map(|(_, value)| value)
    }

    /// The first entry that `is_less` does not hold of. It holds of all entries before some place,
    /// and of none after it.
    pub fn first_from(&self, is_less: impl Fn(&K) -> bool) -> Option<(&K, &V)> {
        let at = self.chunks.partition_point(|chunk| chunk.last().is_some_and(|(last, _)| is_less(last)));
        let chunk = self.chunks.get(at)?;
        chunk.get(chunk.partition_point(|(key, _)| is_less(key))).map(|(key, value)| (key, value))
    }

    /// The last entry that `is_less` holds of: see [`ChunkedMap::first_from`].
    pub fn last_before(&self, is_less: impl Fn(&K) -> bool) -> Option<(&K, &V)> {
        let after =
            self.chunks.partition_point(|chunk| chunk.first().is_some_and(|(first, _)| is_less(first)));
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        let at = chunk.partition_point(|(key, _)| is_less(key)).checked_sub(1)?;
        chunk.get(at).map(|(key, value)| (key, value))
    }

    /// Whether `key` has a value.
    pub fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The value of `key`, to change in place. Nobody else sees the change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.chunk_of(key);
        let index = self.chunks.get(at)?.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        let entries = Arc::make_mut(&mut Arc::make_mut(&mut self.chunks)[at]);
        entries.get_mut(index).map(|(_, value)| value)
    }

    /// The last entry.
    pub fn last(&self) -> Option<(&K, &V)> {
        self.chunks.last()?.last().map(|(key, value)| (key, value))
    }

    /// Gives `key` a value; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let at = self.chunk_of(&key).min(self.chunks.len().saturating_sub(1));
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(at) else {
            chunks.push(Arc::new(vec![(key, value)]));
            self.length = 1;
            return None;
        };
        let entries = Arc::make_mut(chunk);
        match entries.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(index) => Some(std::mem::replace(&mut entries[index].1, value)),
            Err(index) => {
                entries.insert(index, (key, value));
                self.length += 1;
                if entries.len() > CHUNK_ENTRIES_MAX {
                    let upper = entries.split_off(CHUNK_ENTRIES_MAX / 2);
                    chunks.insert(at + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Takes `key` out; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.chunk_of(key);
        let index = self.chunks.get(at)?.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let entries = Arc::make_mut(&mut chunks[at]);
        let (_, value) = entries.remove(index);
        self.length -= 1;
        if entries.is_empty() {
            chunks.remove(at);
        }
        Some(value)
    }

    /// All entries in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(key, value)| (key, value)))
    }

    /// All values in ascending order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests;
