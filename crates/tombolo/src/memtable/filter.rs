//! Which user keys a memtable may hold: a read of another key goes on to the tables after one cache
//! line instead of a search.
//!
//! A Bloom filter of 64-bit blocks, one for each key: about 3 % of absent keys pass when the
//! memtable is full.
//!
//! Thread safety: one writer, any number of readers. A reader that sees a sequence number as
//! visible also sees the bits of its key, which were stored before that number was published.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a memtable for each block: with entries of about 160 bytes ten bits a key.
const MEMTABLE_BYTES_PER_BLOCK: u64 = 1024;
/// In smaller memtables a search is short.
const MEMTABLE_BYTES_MIN: u64 = 256 << 10;
/// Larger filters would miss the cache for nothing: 4 MiB.
const BLOCKS_MAX: u64 = 512 << 10;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct KeyFilter(Box<[AtomicU64]>);

impl KeyFilter {
    /// For a memtable of about `memtable_bytes`; one that lets everything pass when it is small.
    pub(super) fn new(memtable_bytes: u64) -> KeyFilter {
        let blocks = if memtable_bytes < MEMTABLE_BYTES_MIN {
            0
        } else {
            (memtable_bytes / MEMTABLE_BYTES_PER_BLOCK).min(BLOCKS_MAX)
        };
        KeyFilter((0..blocks).map(|_| AtomicU64::new(0)).collect())
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// Whether it knows keys at all.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    fn block(&self, hash: u64) -> Option<(&AtomicU64, u64)> {
        let index = ((hash >> 32) * self.0.len() as u64) >> 32;
        let bit = |shift: u32| 1u64 << ((hash >> shift) & 63);
        self.0.get(usize::try_from(index).ok()?).map(|block| (block, bit(0) | bit(6) | bit(12) | bit(18)))
    }

    /// Takes a key in. Only the memtable's one writer calls this.
    #[inline]
    pub(super) fn insert(&self, hash: u64) {
        if let Some((block, bits)) = self.block(hash) {
            block.store(block.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
        }
    }

    /// Whether a key may have been taken in; never `false` for one that was.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.block(hash).is_none_or(|(block, bits)| block.load(Ordering::Relaxed) & bits == bits)
    }
}

#[cfg(test)]
mod tests;
