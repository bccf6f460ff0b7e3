//! The block cache: verified, decompressed blocks and partitions in memory, bounded in bytes.
//!
//! Read path, between filter and object store. A hit takes no lock and counts no reference that other threads contend for: slots are
//! found by an atomic tag, read through [`arc_swap`], and marked as used only when they are not marked yet. Insertions and evictions of a
//! shard take its mutex.
//!
//! Eviction is CLOCK over the slots of a shard: what was not used since the hand last passed goes. A new block is not marked, so that a
//! scan's blocks go before those that were read twice.
//!
//! Invariants:
//! 1. Keys are never used again (rule 6): an entry is never wrong, and nothing has to be invalidated.
//! 2. What it takes, slots included, is charged to the memory budget and never exceeds what the budget leaves it. When others of the budget
//!    grow, it gives way. Slots do not: at most a thirty-second of the largest number of bytes that the budget had.
//! 3. Every entry is charged once while anybody holds it: to the cache while it is resident, else as pinned. Cursors hold entries, and so do
//!    values that share a block instead of being copied out.

mod shard;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::Guard;
use bytes::Bytes;
use tombolo_format::block::Block;
use tombolo_format::manifest::TableName;
use tombolo_format::table::Partition;

use crate::budget::{Category, GiveWay, MemoryBudget};
use shard::{Entry, Shard};

/// Which block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The table, whose name is never used again.
    pub table: TableName,
    /// Where the block begins in the table.
    pub offset: u64,
}

impl CacheKey {
    /// A hash of all bits; names are random already.
    fn hash(&self) -> u64 {
        let mixed =
            (self.table.random ^ self.table.epoch.rotate_left(32) ^ self.offset.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 29)
    }
}

/// What the cache holds.
#[derive(Clone, Debug)]
pub enum Resident {
    /// A data block.
    Block(Block),
    /// A partition of filter and index.
    Partition(Partition),
}

impl Resident {
    /// Bytes of memory that it takes.
    fn memory_bytes(&self) -> u64 {
        let bytes = match self {
            Resident::Block(block) => block.memory_bytes(),
            Resident::Partition(partition) => partition.memory_bytes(),
        };
        (bytes + size_of::<Entry>() + 32) as u64
    }
}

/// A resident block, borrowed from the cache or held by itself. Hold it briefly: it keeps the memory alive.
pub struct Pinned(
    /// Invariant: there is an entry.
    Guard<Option<Arc<Entry>>>,
);

impl Pinned {
    /// One that the cache need not know.
    pub fn own(key: CacheKey, resident: Resident, budget: &Arc<MemoryBudget>) -> Pinned {
        let entry = Entry::new(key, resident, false, budget);
        entry.pin();
        budget.make_way();
        Pinned(Guard::from_inner(Some(Arc::new(entry))))
    }

    /// One whose memory is part of something larger, which is charged already: values are copied out of it.
    pub fn part(key: CacheKey, resident: Resident, budget: &Arc<MemoryBudget>) -> Pinned {
        Pinned(Guard::from_inner(Some(Arc::new(Entry::new(key, resident, true, budget)))))
    }

    /// A value of the block, to keep: what is small is copied, so that it does not keep a block alive.
    ///
    /// # Panics
    /// When `value` is no slice of this block.
    pub fn keep_value(&self, value: &[u8]) -> Bytes {
        keep_value(&self.0, value)
    }

    /// The same, held by a count of its own: to keep it longer than a look-up.
    pub fn keep(self) -> Kept {
        Kept(Guard::into_inner(self.0))
    }

    /// The block, unless it is a partition.
    #[inline]
    pub fn block(&self) -> Option<&Block> {
        block(&self.0)
    }

    /// The partition, unless it is a block.
    #[inline]
    pub fn partition(&self) -> Option<&Partition> {
        partition(&self.0)
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Pinned").field(&self.0.as_ref().map(|entry| entry.key)).finish()
    }
}

/// A resident block that a reader keeps.
#[derive(Clone, Debug)]
pub struct Kept(
    /// Invariant: there is an entry.
    Option<Arc<Entry>>,
);

impl Kept {
    /// As [`Pinned::keep_value`].
    ///
    /// # Panics
    /// As there.
    pub fn keep_value(&self, value: &[u8]) -> Bytes {
        keep_value(&self.0, value)
    }

    /// The same, to read once.
    pub fn pin(self) -> Pinned {
        Pinned(Guard::from_inner(self.0))
    }

    /// The block, unless it is a partition.
    #[inline]
    pub fn block(&self) -> Option<&Block> {
        block(&self.0)
    }

    /// The partition, unless it is a block.
    #[inline]
    pub fn partition(&self) -> Option<&Partition> {
        partition(&self.0)
    }
}

/// Values from here on share the block's memory instead of being copied: half of a default block.
const SHARE_BYTES_MIN: usize = 4096;

/// A value that shares the memory of its block, and is charged with it.
struct SharedValue {
    kept: Kept,
    range: Range<usize>,
}

impl AsRef<[u8]> for SharedValue {
    fn as_ref(&self) -> &[u8] {
        self.kept.block().and_then(|block| block.bytes().get(self.range.clone())).unwrap_or_default()
    }
}

fn keep_value(entry: &Option<Arc<Entry>>, value: &[u8]) -> Bytes {
    match (block(entry), entry) {
        (Some(block), Some(held)) if value.len() >= SHARE_BYTES_MIN && !held.is_part => {
            Bytes::from_owner(SharedValue { kept: Kept(Some(Arc::clone(held))), range: block.range_of(value) })
        }
        _ => Bytes::copy_from_slice(value),
    }
}

#[inline]
fn block(entry: &Option<Arc<Entry>>) -> Option<&Block> {
    match &entry.as_ref()?.resident {
        Resident::Block(block) => Some(block),
        Resident::Partition(_) => None,
    }
}

#[inline]
fn partition(entry: &Option<Arc<Entry>>) -> Option<&Partition> {
    match &entry.as_ref()?.resident {
        Resident::Partition(partition) => Some(partition),
        Resident::Block(_) => None,
    }
}

/// The cache. Shared by all databases of a memory budget.
pub struct BlockCache {
    shards: Box<[Shard]>,
    hits: Hits,
    budget: Arc<MemoryBudget>,
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BlockCache").field("used", &self.used_bytes()).field("budget", &self.budget).finish_non_exhaustive()
    }
}

const ROUNDS_MAX: usize = 4;

impl GiveWay for BlockCache {
    fn resized(&self) {
        let (slots, bytes_max) = (slots_of(self.budget.bytes(), self.shards.len() as u64), self.shard_bytes_max());
        for shard in &self.shards {
            shard.grow(slots, bytes_max, &self.budget);
        }
    }

    fn give_way(&self) {
        // What leaves while somebody holds it is pinned from then on, which leaves the cache less: a few rounds.
        for _ in 0..ROUNDS_MAX {
            let bytes_max = self.shard_bytes_max();
            for shard in &self.shards {
                shard.shrink(bytes_max);
            }
            if self.budget.used(Category::Cache) <= self.budget.cache_bytes_max() {
                return;
            }
        }
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        // Entries give back what they took themselves.
        self.budget.subtract_cached(self.shards.iter().map(Shard::fixed_bytes).sum());
    }
}

/// Stripes of [`Hits`].
const STRIPES: usize = 16;

/// A count that many threads raise at once and none waits for: each has a stripe of its own, as a rule, told by where its stack lies. Threads
/// that share one may lose a count.
#[derive(Debug, Default)]
struct Hits([Stripe; STRIPES]);

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl Hits {
    #[inline]
    fn count(&self) {
        let here = 0u8;
        // Stacks lie at least some hundred KiB apart, and what calls this uses less of one.
        let stack = (std::ptr::from_ref(&here).addr() >> 17) as u64;
        let stripe = &self.0[(stack.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % STRIPES].0;
        stripe.store(stripe.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

/// What the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Look-ups that found what they sought, about: threads that count at the same moment may miss one another's.
    pub hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Entries taken in.
    pub insertions: u64,
    /// Entries put out.
    pub evictions: u64,
    /// Bytes in use, slots included.
    pub used_bytes: u64,
}

impl BlockCache {
    /// A cache of at most `bytes`, with a budget of its own; 0 caches nothing.
    pub fn new(bytes: u64) -> Arc<BlockCache> {
        // The budget keeps back a sixteenth.
        BlockCache::of(&MemoryBudget::of_any_size(bytes + bytes / 15))
    }

    /// The cache of a budget: one for all who ask.
    pub fn of(budget: &Arc<MemoryBudget>) -> Arc<BlockCache> {
        budget.cache_or(|| {
            let bytes = budget.bytes();
            // A shard of less than 1 MiB would refuse blocks that fit the cache.
            let shards = (bytes >> 20).clamp(1, 16).next_power_of_two().min(16);
            let slots = slots_of(bytes, shards);
            let shards = (0..shards).map(|_| Shard::new(slots, budget)).collect();
            Arc::new(BlockCache { shards, hits: Hits::default(), budget: Arc::clone(budget) })
        })
    }

    /// The budget that it is charged to.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// The entry of a key, if it is resident.
    #[inline]
    pub fn get(&self, key: &CacheKey) -> Option<Pinned> {
        let hash = key.hash();
        let found = self.shard(hash).get(key, hash).map(Pinned);
        if found.is_some() {
            self.hits.count();
        }
        found
    }

    /// Takes an entry in, if it fits, and gives it back. When the key is resident already, that one is given.
    pub fn insert(&self, key: CacheKey, resident: Resident) -> Pinned {
        let hash = key.hash();
        let entry = Arc::new(Entry::new(key, resident, false, &self.budget));
        let resident = self.shard(hash).insert(entry, hash, || self.shard_bytes_max(), &self.budget);
        self.budget.make_way();
        Pinned(Guard::from_inner(Some(resident)))
    }

    /// Whether an entry is resident. Does not count as a use.
    pub fn has(&self, key: &CacheKey) -> bool {
        let hash = key.hash();
        self.shard(hash).has(key, hash)
    }

    /// Whether an entry of `bytes` would fit without another one leaving for it.
    pub fn has_room(&self, key: &CacheKey, bytes: u64) -> bool {
        self.shard(key.hash()).used_bytes().saturating_add(bytes) <= self.shard_bytes_max()
    }

    /// What it did so far.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats { hits: self.hits.get(), used_bytes: self.used_bytes(), ..CacheStats::default() };
        for shard in &self.shards {
            shard.add_stats(&mut stats);
        }
        stats
    }

    /// Bytes in use, slots included.
    pub fn used_bytes(&self) -> u64 {
        self.shards.iter().map(Shard::used_bytes).sum()
    }

    fn shard_bytes_max(&self) -> u64 {
        self.budget.cache_bytes_max() / self.shards.len() as u64
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        // The shard count is a power of two.
        let mask = self.shards.len() - 1;
        &self.shards[(hash >> 56) as usize & mask]
    }
}

/// Slots of each of so many shards: one for each 4 KiB of the budget, half a block, for buckets fill unevenly.
fn slots_of(bytes: u64, shards: u64) -> usize {
    usize::try_from(bytes / shards / 4096).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
