//! The block cache: verified, decompressed blocks and partitions in memory, bounded in bytes.
//!
//! Read path, between filter and object store. A hit takes no lock and counts no reference that
//! other threads contend for: slots are found by an atomic tag, borrowed by a note that the thread
//! makes for itself (`hazard`), and marked as used only when they are not marked yet. Insertions
//! and evictions of a shard take its mutex.
//!
//! Eviction is CLOCK over the slots of a shard, of the fuller of two shards: an entry not used
//! since the hand last passed goes. A new block is not marked, so that a scan's blocks go before
//! those that were read twice. The memory is that of `frames`; `room` says how it is come by. Of
//! tables far away single `rows` are kept, too.
//!
//! Invariants:
//! 1. Keys are never used again (rule 6): an entry is never wrong, and nothing has to be
//!    invalidated.
//! 2. What it takes, slots and free frames included, is charged to the memory budget and never
//!    exceeds what the budget leaves it. When others of the budget grow, it gives way. Slots do
//!    not: at most a thirty-second of the largest number of bytes that the budget had.
//! 3. Every entry is charged once while anybody holds it: to the cache while it is resident, else
//!    as pinned. Cursors hold entries, and so do values that share a block instead of being copied
//!    out.

mod doorkeeper;
mod entry;
mod frames;
mod hazard;
mod room;
mod rows;
mod shard;

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tombolo_format::block::Block;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_format::manifest::TableName;
use tombolo_format::table::Partition;

use crate::blocks;
use crate::budget::{Category, MemoryBudget};
use doorkeeper::Doorkeeper;
use entry::Entry;
use frames::{BOOK_BYTES, FrameMut, Frames};
use hazard::Guard;
pub use rows::RowKey;
use rows::{Blocks, Rows};
use shard::{Shard, Spot};

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
        let mixed = (self.table.random ^ self.table.epoch.rotate_left(32) ^ self.offset.rotate_left(17))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
    /// A value that lies apart from its table.
    Value(ApartValue),
}

/// A value out of a value object.
#[derive(Clone, Debug)]
pub struct ApartValue {
    /// The value.
    pub bytes: Bytes,
    /// The checksum of its record: a reference to another one is none to it.
    pub checksum: u32,
    /// What its memory begins at a multiple of.
    pub alignment: usize,
}

/// Memory for a resident, to be filled.
#[derive(Debug)]
pub struct Memory(Place);

#[derive(Debug)]
enum Place {
    Frame(FrameMut),
    Elsewhere(Vec<u8>),
}

/// How memory is held that [`BlockCache::memory`] gave: the charge for its frame, if it is
/// one.
#[derive(Clone, Copy, Debug)]
pub struct Held(Option<u64>);

impl Memory {
    /// The bytes as they were filled.
    pub fn freeze(self) -> (Bytes, Held) {
        match self.0 {
            Place::Frame(frame) => {
                let held = Held(Some(frame.charged_bytes()));
                (frame.freeze(), held)
            }
            Place::Elsewhere(bytes) => (bytes.into(), Held(None)),
        }
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Place::Frame(frame) => frame,
            Place::Elsewhere(bytes) => bytes,
        }
    }
}

/// Bytes beside a frame that hold it: its books, and the count of those who share it.
const FRAME_OVERHEAD_BYTES: usize = BOOK_BYTES + 128;

impl Resident {
    /// Bytes of memory that it takes where it does not lie in a frame.
    fn memory_bytes(&self) -> u64 {
        let bytes = match self {
            Resident::Block(block) => block.memory_bytes(),
            Resident::Partition(partition) => partition.memory_bytes(),
            Resident::Value(value) => value.bytes.len(),
        };
        bytes as u64
    }

    /// Bytes that a frame for it needs.
    fn frame_bytes(&self) -> usize {
        match self {
            Resident::Block(block) => block.bytes().len(),
            Resident::Partition(partition) => {
                partition.filter.as_ref().map_or(0, |filter| filter.bytes().len())
                    + partition.index.bytes().len()
            }
            Resident::Value(value) => value.bytes.len(),
        }
    }

    /// The bytes with which its frame begins, if it lies in one.
    fn first_bytes(&self) -> &[u8] {
        match self {
            Resident::Block(block) => block.bytes(),
            Resident::Partition(partition) => {
                partition.filter.as_ref().map_or(partition.index.bytes(), |filter| filter.bytes())
            }
            Resident::Value(value) => &value.bytes,
        }
    }

    /// At multiples of what a frame for it begins. The lines of a filter, which comes first, lie in
    /// cache lines: all frames do.
    fn alignment(&self) -> usize {
        match self {
            Resident::Block(block) => block.alignment(),
            Resident::Partition(_) => 1,
            Resident::Value(value) => value.alignment,
        }
    }

    /// The same, in a frame of its own.
    fn in_frame(&self, mut frame: FrameMut) -> Resident {
        match self {
            Resident::Block(block) => {
                frame.copy_from_slice(block.bytes());
                Resident::Block(block.with_copy(frame.freeze()))
            }
            Resident::Partition(partition) => {
                let filter_bytes = partition.filter.as_ref().map_or(0, |filter| filter.bytes().len());
                let (first, second) = frame.split_at_mut(filter_bytes);
                if let Some(filter) = &partition.filter {
                    first.copy_from_slice(filter.bytes());
                }
                second.copy_from_slice(partition.index.bytes());
                let bytes = frame.freeze();
                let filter =
                    partition.filter.as_ref().map(|filter| filter.with_copy(bytes.slice(..filter_bytes)));
                Resident::Partition(Partition {
                    filter,
                    index: partition.index.with_copy(bytes.slice(filter_bytes..)),
                })
            }
            Resident::Value(value) => {
                frame.copy_from_slice(&value.bytes);
                Resident::Value(ApartValue { bytes: frame.freeze(), ..*value })
            }
        }
    }
}

/// A resident block, borrowed from the cache or held by itself. Hold it briefly: it keeps the
/// memory alive.
pub struct Pinned(Guard);

impl Pinned {
    /// One that the cache need not know.
    pub fn own(key: CacheKey, resident: Resident, budget: &Arc<MemoryBudget>) -> Pinned {
        let held_bytes = resident.memory_bytes();
        let entry = Entry::new(key, resident, held_bytes, budget);
        entry.pin();
        budget.make_way();
        Pinned(Arc::new(entry).into())
    }

    /// One whose memory is part of something larger, which is charged already: values are copied
    /// out of it.
    pub fn part(key: CacheKey, resident: Resident, budget: &Arc<MemoryBudget>) -> Pinned {
        Pinned(Arc::new(Entry::part(key, resident, budget)).into())
    }

    /// A value of the block, to keep: a small one is copied, so that it does not keep a block
    /// alive.
    ///
    /// # Panics
    /// When `value` is no slice of this block.
    pub fn keep_value(&self, value: &[u8]) -> Bytes {
        keep_value(&self.0, value, || self.0.to_arc())
    }

    /// The same, held by a count of its own: to keep it longer than a look-up.
    pub fn keep(self) -> Kept {
        Kept(self.0.into_arc())
    }

    /// The block, if it is one.
    #[inline]
    pub fn block(&self) -> Option<&Block> {
        block(&self.0)
    }

    /// The partition, if it is one.
    #[inline]
    pub fn partition(&self) -> Option<&Partition> {
        partition(&self.0)
    }

    /// The value that lies apart, to keep, if it is one whose record `is` right, by its checksum.
    /// It shares the cache's memory.
    pub fn apart_value(self, is: impl FnOnce(u32) -> bool) -> Option<Bytes> {
        match &self.0.resident {
            Resident::Value(value) if is(value.checksum) => {}
            _ => return None,
        }
        Some(Bytes::from_owner(KeptValue(self.keep())))
    }
}

/// A value that lies apart, in the cache's memory.
struct KeptValue(Kept);

impl AsRef<[u8]> for KeptValue {
    fn as_ref(&self) -> &[u8] {
        match &self.0.0.resident {
            Resident::Value(value) => &value.bytes,
            _ => &[],
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Pinned").field(&self.0.key).finish()
    }
}

/// A resident block that a reader keeps.
#[derive(Clone, Debug)]
pub struct Kept(Arc<Entry>);

impl Kept {
    /// As [`Pinned::keep_value`].
    ///
    /// # Panics
    /// As there.
    pub fn keep_value(&self, value: &[u8]) -> Bytes {
        keep_value(&self.0, value, || Arc::clone(&self.0))
    }

    /// Whether its memory is part of something larger, which is charged instead.
    pub fn is_part(&self) -> bool {
        self.0.is_part
    }

    /// A block with memory of its own, which outlives what it was a part of; of a partition `None`.
    pub fn apart(&self) -> Option<Kept> {
        let block = self.block()?;
        let own = block.with_copy(Bytes::copy_from_slice(block.bytes()));
        Some(Pinned::own(self.0.key, Resident::Block(own), &self.0.budget).keep())
    }

    /// The same, to read once.
    pub fn pin(self) -> Pinned {
        Pinned(self.0.into())
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

fn keep_value(entry: &Entry, value: &[u8], hold: impl FnOnce() -> Arc<Entry>) -> Bytes {
    match block(entry) {
        Some(block) if value.len() >= SHARE_BYTES_MIN && !entry.is_part => {
            Bytes::from_owner(SharedValue { kept: Kept(hold()), range: block.range_of(value) })
        }
        _ => Bytes::copy_from_slice(value),
    }
}

#[inline]
fn block(entry: &Entry) -> Option<&Block> {
    match &entry.resident {
        Resident::Block(block) => Some(block),
        Resident::Partition(_) | Resident::Value(_) => None,
    }
}

#[inline]
fn partition(entry: &Entry) -> Option<&Partition> {
    match &entry.resident {
        Resident::Partition(partition) => Some(partition),
        Resident::Block(_) | Resident::Value(_) => None,
    }
}

/// Where an entry was last found, kept by who asks for it often: a look-up goes there first, and is
/// spared the hash and the bucket. Never wrong, for an entry's key decides.
#[derive(Debug, Default)]
pub struct Hint(
    /// From the highest bit: whether there is one, 7 bits of the shard, 8 of the table, 32 of the
    /// slot. Relaxed: it leads to data synchronised by itself.
    AtomicU64,
);

impl Hint {
    const SET: u64 = 1 << 63;

    #[inline]
    fn get(&self) -> Option<(usize, Spot)> {
        let word = self.0.load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation, reason = "each is masked to fewer bits")]
        let part = |shift: u32, bits: u32| (word >> shift) as usize & ((1 << bits) - 1);
        (word & Hint::SET != 0).then(|| (part(56, 7), Spot { class: part(48, 8), index: part(0, 32) }))
    }

    fn set(&self, shard: usize, spot: Spot) {
        let parts = [(shard, 56, 7), (spot.class, 48, 8), (spot.index, 0, 32)];
        if parts.iter().all(|(part, _, bits)| (*part as u64) < 1 << bits) {
            let word = parts.iter().fold(Hint::SET, |word, (part, shift, _)| word | (*part as u64) << shift);
            self.0.store(word, Ordering::Relaxed);
        }
    }
}

/// The cache. Shared by all databases of a memory budget.
pub struct BlockCache {
    /// Invariant: a power of two, until it is dropped.
    shards: Box<[Shard]>,
    hits: Hits,
    frames: Arc<Frames>,
    /// Single rows of far tables.
    rows: Rows,
    /// Once it was full.
    doorkeeper: RwLock<Option<Doorkeeper>>,
    /// Counts evictions: which two shards the next is from.
    hand: AtomicUsize,
    /// Who makes the cache smaller: one at a time.
    giving_way: Mutex<()>,
    budget: Arc<MemoryBudget>,
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BlockCache")
            .field("used", &self.used_bytes())
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        // Entries give back what they took themselves.
        self.budget.subtract_cached(
            self.shards.iter().map(Shard::fixed_bytes).sum::<u64>()
                + self.doorkeeper.get_mut().as_ref().map_or(0, Doorkeeper::bytes),
        );
        self.shards = Box::default();
        self.frames.close();
    }
}

/// Stripes of [`Hits`]: more than the threads that look at once, as a rule.
const STRIPES: usize = 64;

/// A count that many threads raise at once and none waits for: threads that began one after the
/// other have stripes of their own. Those that share one may lose a count, and each look-up then
/// waits for a cache line of the other's, half as long again as a missing key takes.
#[derive(Debug)]
struct Hits([Stripe; STRIPES]);

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    /// By their keys: blocks, as a rule.
    blocks: AtomicU64,
    /// By hints: partitions.
    hinted: AtomicU64,
}

impl Default for Hits {
    fn default() -> Hits {
        Hits(std::array::from_fn(|_| Stripe::default()))
    }
}

thread_local! {
    /// This thread's stripe, in all caches; beyond them all before the first count.
    static STRIPE: Cell<usize> = const { Cell::new(STRIPES) };
}

/// Threads that have a stripe.
static STRIPES_TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Hits {
    #[inline]
    fn count(&self, of: impl Fn(&Stripe) -> &AtomicU64) {
        // A thread that ends counts no more.
        let number =
            STRIPE.try_with(|stripe| if stripe.get() < STRIPES { stripe.get() } else { Hits::take(stripe) });
        if let Some(stripe) = number.ok().and_then(|number| self.0.get(number)) {
            let count = of(stripe);
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn take(stripe: &Cell<usize>) -> usize {
        stripe.set(STRIPES_TAKEN.fetch_add(1, Ordering::Relaxed) % STRIPES);
        stripe.get()
    }

    fn of_blocks(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.blocks.load(Ordering::Relaxed)).sum()
    }

    fn get(&self) -> u64 {
        self.of_blocks() + self.0.iter().map(|stripe| stripe.hinted.load(Ordering::Relaxed)).sum::<u64>()
    }
}

/// What the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Look-ups that found what they sought, about: threads that count at the same moment may miss
    /// one another's.
    pub hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Entries taken in.
    pub insertions: u64,
    /// Entries put out.
    pub evictions: u64,
    /// Bytes in use, slots and rows included.
    pub used_bytes: u64,
    /// Single rows that it holds.
    pub rows: u64,
    /// Bytes that they take.
    pub row_bytes: u64,
    /// How often one was found.
    pub row_hits: u64,
}

impl BlockCache {
    /// A cache of at most `bytes`, with a budget of its own; 0 caches nothing.
    #[cfg(test)]
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
            let (hand, giving_way) = (AtomicUsize::new(0), Mutex::new(()));
            let (frames, hits, rows) = (Frames::new(budget), Hits::default(), Rows::new(budget));
            Arc::new(BlockCache {
                shards,
                frames,
                rows,
                doorkeeper: RwLock::default(),
                hand,
                giving_way,
                hits,
                budget: Arc::clone(budget),
            })
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
            self.hits.count(|stripe| &stripe.blocks);
            blocks::hit();
        }
        found
    }

    /// The same, by way of where it was last found.
    #[inline]
    pub fn get_by(&self, hint: &Hint, key: &CacheKey) -> Option<Pinned> {
        let hinted = hint.get().and_then(|(shard, spot)| self.shards.get(shard)?.get_at(spot, key));
        if let Some(entry) = hinted {
            self.hits.count(|stripe| &stripe.hinted);
            return Some(Pinned(entry));
        }
        self.get_anew(hint, key)
    }

    fn get_anew(&self, hint: &Hint, key: &CacheKey) -> Option<Pinned> {
        let hash = key.hash();
        let (entry, spot) = self.shard(hash).get_with_spot(key, hash)?;
        self.hits.count(|stripe| &stripe.hinted);
        hint.set(self.shard_number(hash), spot);
        Some(Pinned(entry))
    }

    /// Takes an entry in, if it fits, and gives it back. When the key is resident already, that one
    /// is given.
    pub fn insert(&self, key: CacheKey, resident: Resident) -> Pinned {
        match self.frame(key, resident.frame_bytes(), resident.alignment()) {
            Some(frame) => {
                let charged_bytes = frame.charged_bytes();
                self.insert_framed(key, resident.in_frame(frame), charged_bytes)
            }
            None => Pinned::own(key, resident, &self.budget),
        }
    }

    /// Memory for a resident of `bytes` whose values are aligned to `alignment`: a frame, for which
    /// others leave, or else memory of its own.
    pub fn memory(&self, key: CacheKey, bytes: usize, alignment: usize) -> Memory {
        self.frame(key, bytes, alignment)
            .map_or_else(|| BlockCache::memory_elsewhere(bytes), |frame| Memory(Place::Frame(frame)))
    }

    /// The same, of what costs little to miss again: when others would have to leave for it, a
    /// frame only if it is asked for often, and else none.
    pub fn memory_if_worth(&self, key: CacheKey, bytes: usize, alignment: usize) -> Option<Memory> {
        match self.free_frame(key, bytes, alignment) {
            Some(frame) => Some(Memory(Place::Frame(frame))),
            None if self.is_worth_a_place(key) => Some(self.memory(key, bytes, alignment)),
            None => None,
        }
    }

    /// Memory that the cache has no part in.
    pub fn memory_elsewhere(bytes: usize) -> Memory {
        Memory(Place::Elsewhere(vec![0; bytes]))
    }

    /// Whether a missed block is asked for so often that it is worth a place.
    fn is_worth_a_place(&self, key: CacheKey) -> bool {
        let residents =
            || (self.hits.of_blocks(), self.shards.iter().map(Shard::entries).sum::<usize>() as u64);
        if let Some(doorkeeper) = &*self.doorkeeper.read() {
            return doorkeeper.knows(key.hash(), residents);
        }
        let mut doorkeeper = self.doorkeeper.write();
        let doorkeeper = doorkeeper.get_or_insert_with(|| {
            let doorkeeper = Doorkeeper::new(self.budget.bytes());
            self.budget.add_cached(doorkeeper.bytes());
            doorkeeper
        });
        doorkeeper.knows(key.hash(), residents)
    }

    /// The next one is of the budget's size.
    fn forget_misses(&self) {
        if let Some(doorkeeper) = self.doorkeeper.write().take() {
            self.budget.subtract_cached(doorkeeper.bytes());
        }
    }

    /// As [`BlockCache::insert`], of what lies in memory that [`BlockCache::memory`] gave for the
    /// key.
    pub fn insert_held(&self, key: CacheKey, resident: Resident, held: Held) -> Pinned {
        match held.0 {
            Some(charged_bytes) => self.insert_framed(key, resident, charged_bytes),
            None => Pinned::own(key, resident, &self.budget),
        }
    }

    fn insert_framed(&self, key: CacheKey, resident: Resident, charged_bytes: u64) -> Pinned {
        let hash = key.hash();
        let entry = Arc::new(self.framed(key, resident, charged_bytes));
        let resident = self.shard(hash).insert(entry, hash, &self.budget);
        self.budget.make_way();
        Pinned(resident.into())
    }

    fn framed(&self, key: CacheKey, resident: Resident, charged_bytes: u64) -> Entry {
        Entry::new(key, resident, charged_bytes + FRAME_OVERHEAD_BYTES as u64, &self.budget)
    }

    /// The row of a key in a far table, if it is kept, and `snapshot` sees it.
    #[inline]
    pub fn row(&self, key: &RowKey<'_>, snapshot: SequenceNumber) -> Option<(Trailer, Bytes)> {
        self.rows.get(key, snapshot)
    }

    /// Keeps the row of a key that had to be asked for, if that is worth its place: the newest
    /// entry of the key in its table.
    pub fn insert_row(&self, key: &RowKey<'_>, trailer: Trailer, value: &[u8]) {
        self.rows.insert(key, trailer, value, || Blocks {
            hits: self.hits.of_blocks(),
            bytes: self.block_bytes(),
        });
    }

    /// Bytes of data blocks, with what finds them.
    fn block_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.budget.cached_index_bytes() + self.rows.bytes())
    }

    /// Puts an entry out, if it is resident.
    #[cfg(test)]
    pub fn evict(&self, key: &CacheKey) {
        let hash = key.hash();
        self.shard(hash).evict(key, hash);
    }

    /// Whether an entry is resident. Does not count as a use.
    pub fn has(&self, key: &CacheKey) -> bool {
        let hash = key.hash();
        self.shard(hash).has(key, hash)
    }

    /// What it did so far.
    pub fn stats(&self) -> CacheStats {
        let rows = &self.rows;
        let (row_bytes, row_hits) = (rows.bytes(), rows.hits());
        let (hits, used_bytes) = (self.hits.get(), self.used_bytes());
        let mut stats = CacheStats {
            hits,
            used_bytes,
            rows: rows.count() as u64,
            row_bytes,
            row_hits,
            ..CacheStats::default()
        };
        for shard in &self.shards {
            shard.add_stats(&mut stats);
        }
        stats
    }

    /// Bytes in use: slots, regions of frames, and what comes with entries.
    pub fn used_bytes(&self) -> u64 {
        self.budget.used(Category::Cache)
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[self.shard_number(hash)]
    }

    #[inline]
    fn shard_number(&self, hash: u64) -> usize {
        // The shard count is a power of two.
        (hash >> 56) as usize & (self.shards.len() - 1)
    }
}

/// Slots of each of so many shards: one for each 4 KiB of the budget, half a block, for buckets
/// fill unevenly.
fn slots_of(bytes: u64, shards: u64) -> usize {
    usize::try_from(bytes / shards / 4096).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
