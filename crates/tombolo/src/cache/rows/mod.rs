//! Single rows of tables far away: what a small cache holds of keys that are hot and lie apart.
//!
//! A block of 8 KiB is kept for one hot row of 400 B as for twenty. Where a miss costs a request of
//! 25 ms, the same memory holds twenty times as many hot keys if it holds rows. So a look-up that
//! had to ask a far store, while the cache is full, leaves its row here; the next one finds it
//! before it looks for the block.
//!
//! ```text
//! look-up → filter → row? → index → block? → store
//! ```
//!
//! Rows lie one behind the other in chunks, found by a hash; chunks are queues, as in Yang et al.,
//! "FIFO queues are all you need for cache eviction" (S3-FIFO, 2023): a row comes into the young
//! one, a tenth of all. Rows found again there go on to the main one, where used rows
//! go round; the others leave, and are remembered by 16 bits for a while: those that come back go
//! to the main queue at once.
//!
//! How much of the cache rows take is found by looking which of the two is found more often for its
//! bytes, rows or blocks: see [`Balance`].
//!
//! Invariants:
//! 1. A row is that of the newest entry of its key in its table, which never changes: it answers
//!    each look-up whose snapshot sees that entry, and no other.
//! 2. What they take is charged to the budget as the cache's, and within [`Rows::bytes_max`], save
//!    for a chunk of each shard for as long as it is moved.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_format::manifest::TableName;

use crate::budget::{Category, MemoryBudget};

/// Longest row, key and value, that is kept: beyond it a block holds few.
const ROW_BYTES_MAX: usize = 2048;
/// Before each row: hash, table, trailer, lengths of key and value.
const HEADER_BYTES: usize = 8 + 16 + 8 + 4 + 4;
/// Chunks that a shard's rows lie in when they take all that the budget has, about.
const CHUNKS: u64 = 64;
const CHUNK_BYTES_MIN: u64 = 8 << 10;
const CHUNK_BYTES_MAX: u64 = 256 << 10;
/// With fewer chunks a shard keeps no rows.
const CHUNKS_MIN: usize = 4;
const SHARDS_MAX: u64 = 8;
/// The young queue's part of all.
const YOUNG: usize = 10;
/// How often a row that is used goes round without being used again, at most.
const USES_MAX: u8 = 3;
/// Shares are told in so many parts.
const PARTS: u64 = 64;
const SHARE_MIN: u64 = 2;
const SHARE_FIRST: u64 = 16;
/// At least an eighth is left to blocks.
const SHARE_MAX: u64 = 56;

/// Which row is looked for.
#[derive(Clone, Copy, Debug)]
pub struct RowKey<'a> {
    /// The table, whose name is never used again.
    pub table: TableName,
    /// The user key.
    pub user_key: &'a [u8],
    /// Its hash.
    pub hash: u64,
}

impl RowKey<'_> {
    /// Of key and table.
    fn mixed(&self) -> u64 {
        let mixed = (self.hash ^ self.table.random.rotate_left(23) ^ self.table.epoch.rotate_left(41))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }
}

/// What the rest of the cache is like, when the balance is struck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// How often a block was found so far.
    pub hits: u64,
    /// Bytes of data blocks.
    pub bytes: u64,
}

/// All rows of a cache.
#[derive(Debug)]
pub(super) struct Rows {
    /// Invariant: a power of two.
    shards: Box<[Mutex<Shard>]>,
    /// Rows in all of them: 0 spares looking.
    count: AtomicUsize,
    hits: AtomicU64,
    /// What they take.
    bytes: AtomicU64,
    /// Of [`PARTS`], the share of rows in the memory that indexes leave.
    share: AtomicU64,
    balance: Mutex<Balance>,
    /// Which shard gives a chunk back next.
    hand: AtomicUsize,
    budget: Arc<MemoryBudget>,
}

/// Which of rows and blocks was found more often for its bytes since it was last struck: the share
/// goes that way, a step of a thirty-second. The average stands for what the next byte would bring;
/// where both find the same, the share does not matter.
#[derive(Debug, Default)]
struct Balance {
    row_hits: u64,
    block_hits: u64,
    /// Chunks that left since.
    turns: usize,
}

/// A queue's rows, one behind the other.
#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Spot {
    chunk: u32,
    offset: u32,
    uses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Young,
    Main,
}

#[derive(Debug)]
struct Shard {
    /// By mixed hash. Of two rows with the same one the later stays.
    index: HashMap<u64, Spot, BuildHasherDefault<AsItIs>>,
    /// By number.
    chunks: Vec<Chunk>,
    /// Numbers that are of no queue.
    free: Vec<u32>,
    young: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Those that left young, by their hashes' low bits: 16 high ones, of which the latest stays; 0
    /// is nobody.
    ghosts: Vec<u16>,
    /// The charged bytes.
    charged_bytes: u64,
    chunk_bytes: usize,
    /// Rows that are in it.
    rows: usize,
}

/// Hashes are hashed already.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A row as it lies in a chunk.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    mixed: u64,
    table: TableName,
    trailer: Trailer,
    user_key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Row<'a> {
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.user_key.len() + self.value.len()
    }

    fn write(&self, chunk: &mut Vec<u8>) {
        for word in [self.mixed, self.table.epoch, self.table.random, self.trailer.0] {
            chunk.extend_from_slice(&word.to_le_bytes());
        }
        for length in [self.user_key.len(), self.value.len()] {
            // At most ROW_BYTES_MAX.
            chunk.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_le_bytes());
        }
        chunk.extend_from_slice(self.user_key);
        chunk.extend_from_slice(self.value);
    }

    /// The row with which `bytes` begin.
    fn read(bytes: &'a [u8]) -> Option<Row<'a>> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let word = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let length = |at: usize| {
            header.get(at..at + 4)?.try_into().ok().map(|bytes| u32::from_le_bytes(bytes) as usize)
        };
        let (user_key, rest) = rest.split_at_checked(length(32)?)?;
        let value = rest.get(..length(36)?)?;
        let table = TableName { epoch: word(8)?, random: word(16)? };
        Some(Row { mixed: word(0)?, table, trailer: Trailer(word(24)?), user_key, value })
    }
}

impl Rows {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Rows {
        let shards = (budget.bytes() >> 20).clamp(1, SHARDS_MAX).next_power_of_two().min(SHARDS_MAX);
        let chunk_bytes = (budget.bytes() / shards / CHUNKS).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        #[allow(clippy::cast_possible_truncation, reason = "at most CHUNK_BYTES_MAX")]
        let shards = (0..shards).map(|_| Mutex::new(Shard::new(chunk_bytes as usize))).collect();
        Rows {
            shards,
            count: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            share: AtomicU64::new(SHARE_FIRST),
            balance: Mutex::default(),
            hand: AtomicUsize::new(0),
            budget: Arc::clone(budget),
        }
    }

    fn shard(&self, mixed: u64) -> &Mutex<Shard> {
        // The shard count is a power of two.
        &self.shards[(mixed >> 56) as usize & (self.shards.len() - 1)]
    }

    /// The row of a key in a table, if it is here and `snapshot` sees it.
    #[inline]
    pub(super) fn get(&self, key: &RowKey<'_>, snapshot: SequenceNumber) -> Option<(Trailer, Bytes)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.look_up(key, snapshot)
    }

    fn look_up(&self, key: &RowKey<'_>, snapshot: SequenceNumber) -> Option<(Trailer, Bytes)> {
        let mixed = key.mixed();
        let mut shard = self.shard(mixed).lock();
        let shard = &mut *shard;
        let spot = shard.index.get_mut(&mixed)?;
        let row = shard
            .chunks
            .get(spot.chunk as usize)
            .and_then(|chunk| Row::read(chunk.bytes.get(spot.offset as usize..)?))?;
        if row.table != key.table || row.user_key != key.user_key || row.trailer.sequence() > snapshot {
            return None;
        }
        spot.uses = (spot.uses + 1).min(USES_MAX);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some((row.trailer, Bytes::copy_from_slice(row.value)))
    }

    /// Takes a row in, while the cache is full: the newest entry of its key in its table.
    pub(super) fn insert(
        &self,
        key: &RowKey<'_>,
        trailer: Trailer,
        value: &[u8],
        blocks: impl FnOnce() -> Blocks,
    ) {
        if key.user_key.len() + value.len() > ROW_BYTES_MAX || !self.is_full() {
            return;
        }
        let mixed = key.mixed();
        let row = Row { mixed, table: key.table, trailer, user_key: key.user_key, value };
        let bytes_max = self.bytes_max() / self.shards.len() as u64;
        let left = self.change(self.shard(mixed), |shard| shard.insert(&row, bytes_max));
        self.budget.make_way();
        if left > 0 {
            self.strike(left, blocks);
        }
    }

    /// Changes a shard, and counts what it takes then.
    fn change<R>(&self, shard: &Mutex<Shard>, change: impl FnOnce(&mut Shard) -> R) -> R {
        let mut shard = shard.lock();
        let (bytes, rows) = (shard.charged_bytes, shard.rows);
        let result = change(&mut shard);
        shard.charged_bytes = shard.bytes();
        if shard.charged_bytes > bytes {
            self.budget.add_cached(shard.charged_bytes - bytes);
            self.bytes.fetch_add(shard.charged_bytes - bytes, Ordering::Relaxed);
        } else {
            self.budget.subtract_cached(bytes - shard.charged_bytes);
            self.bytes.fetch_sub(bytes - shard.charged_bytes, Ordering::Relaxed);
        }
        if shard.rows > rows {
            self.count.fetch_add(shard.rows - rows, Ordering::Relaxed);
        } else {
            self.count.fetch_sub(rows - shard.rows, Ordering::Relaxed);
        }
        result
    }

    /// Whether the cache takes about all that it may: before, blocks have room, and rows of them
    /// would take it twice.
    fn is_full(&self) -> bool {
        self.budget.used(Category::Cache) >= self.budget.cache_bytes_max() / 8 * 7
    }

    /// What rows may take now.
    pub(super) fn bytes_max(&self) -> u64 {
        self.budget.cache_bytes_max().saturating_sub(self.budget.cached_index_bytes())
            * self.share.load(Ordering::Relaxed)
            / PARTS
    }

    /// What they take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How often one was found so far.
    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Gives a chunk back, if they take more than they may; says whether there was one. When
    /// nothing is left to the cache, none is left to them.
    pub(super) fn give_way(&self) -> bool {
        if self.bytes() <= self.bytes_max() {
            return false;
        }
        let hand = self.hand.fetch_add(1, Ordering::Relaxed);
        let count = self.shards.len();
        (0..count).any(|step| {
            self.change(&self.shards[(hand + step) % count], |shard| {
                let before = shard.bytes();
                // Rows that are used go round, with one use less each time.
                let rounds = (usize::from(USES_MAX) + 1) * (shard.young.len() + shard.main.len() + 1);
                (0..rounds).any(|_| {
                    shard.leave();
                    shard.bytes() < before
                })
            })
        })
    }

    /// Some chunks left. When as many did as there are shards, twice, the share takes a step.
    fn strike(&self, left: usize, blocks: impl FnOnce() -> Blocks) {
        let Some(mut balance) = self.balance.try_lock() else { return };
        balance.turns += left;
        if balance.turns < 2 * self.shards.len() {
            return;
        }
        let (blocks, row_hits, row_bytes) = (blocks(), self.hits(), self.bytes());
        let of_rows = u128::from(row_hits - balance.row_hits) * u128::from(blocks.bytes.max(1));
        let of_blocks =
            u128::from(blocks.hits.saturating_sub(balance.block_hits)) * u128::from(row_bytes.max(1));
        *balance = Balance { row_hits, block_hits: blocks.hits, turns: 0 };
        let share = self.share.load(Ordering::Relaxed);
        let share = if of_rows >= of_blocks { share + PARTS / 32 } else { share.saturating_sub(PARTS / 32) };
        self.share.store(share.clamp(SHARE_MIN, SHARE_MAX), Ordering::Relaxed);
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.budget.subtract_cached(self.bytes());
    }
}

impl Shard {
    fn new(chunk_bytes: usize) -> Shard {
        Shard {
            index: HashMap::default(),
            chunks: Vec::new(),
            free: Vec::new(),
            young: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Vec::new(),
            charged_bytes: 0,
            chunk_bytes,
            rows: 0,
        }
    }

    /// What it takes: chunks, and what finds rows in them.
    fn bytes(&self) -> u64 {
        // A byte of control for each place, and an eighth of the places stays free.
        let index = self.index.capacity() * 8 / 7 * (size_of::<(u64, Spot)>() + 1);
        let chunks = (self.young.len() + self.main.len()) * self.chunk_bytes;
        (chunks + index + self.ghosts.capacity() * size_of::<u16>()) as u64
    }

    /// Takes a row in; says how many chunks left for it.
    fn insert(&mut self, row: &Row<'_>, bytes_max: u64) -> usize {
        let beside = self.bytes() - ((self.young.len() + self.main.len()) * self.chunk_bytes) as u64;
        let chunks_max =
            usize::try_from(bytes_max.saturating_sub(beside) / self.chunk_bytes as u64).unwrap_or(usize::MAX);
        let mut left = 0;
        while self.young.len() + self.main.len() >= chunks_max.max(1) {
            self.leave();
            left += 1;
            // Those that are used go round; each time they have one use less.
            if left > 4 * (chunks_max + CHUNKS_MIN) {
                return left;
            }
        }
        if chunks_max < CHUNKS_MIN {
            return left;
        }
        let queue = if self.is_ghost(row.mixed) { Queue::Main } else { Queue::Young };
        self.append(row, queue, 0);
        left
    }

    /// Puts a row at the end of a queue.
    fn append(&mut self, row: &Row<'_>, queue: Queue, uses: u8) {
        let chunks = if queue == Queue::Young { &self.young } else { &self.main };
        let room = |number: &u32| {
            self.chunks
                .get(*number as usize)
                .is_some_and(|chunk| chunk.bytes.len() + row.bytes() <= self.chunk_bytes)
        };
        let number = match chunks.back().copied().filter(room) {
            Some(number) => number,
            None => self.new_chunk(queue),
        };
        let Some(chunk) = self.chunks.get_mut(number as usize) else { return };
        // A chunk is at most CHUNK_BYTES_MAX.
        let offset = u32::try_from(chunk.bytes.len()).unwrap_or(u32::MAX);
        row.write(&mut chunk.bytes);
        let before = self.index.insert(row.mixed, Spot { chunk: number, offset, uses });
        self.rows += usize::from(before.is_none());
    }

    fn new_chunk(&mut self, queue: Queue) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk::default());
            u32::try_from(self.chunks.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(chunk) = self.chunks.get_mut(number as usize) {
            chunk.bytes = Vec::with_capacity(self.chunk_bytes);
        }
        match queue {
            Queue::Young => self.young.push_back(number),
            Queue::Main => self.main.push_back(number),
        }
        number
    }

    /// The oldest chunk of a queue leaves: of young, if it has more than its part.
    fn leave(&mut self) {
        let all = self.young.len() + self.main.len();
        let queue =
            if self.main.is_empty() || self.young.len() * YOUNG > all { Queue::Young } else { Queue::Main };
        let number = if queue == Queue::Young { self.young.pop_front() } else { self.main.pop_front() };
        let Some(number) = number else { return };
        let bytes = self
            .chunks
            .get_mut(number as usize)
            .map(|chunk| std::mem::take(&mut chunk.bytes))
            .unwrap_or_default();
        let mut rest = &bytes[..];
        while let Some(row) = Row::read(rest) {
            let offset = bytes.len() - rest.len();
            rest = &rest[row.bytes()..];
            let is_here = |spot: &&Spot| spot.chunk == number && spot.offset as usize == offset;
            let Some(spot) = self.index.get(&row.mixed).filter(is_here).copied() else { continue };
            match (queue, spot.uses) {
                (Queue::Young, 0) => {
                    self.forget(row.mixed);
                    self.haunt(row.mixed);
                }
                (Queue::Young, _) => self.append(&row, Queue::Main, 0),
                (Queue::Main, 0) => self.forget(row.mixed),
                (Queue::Main, uses) => self.append(&row, Queue::Main, uses - 1),
            }
        }
        self.free.push(number);
        if self.rows == 0 {
            // What found them goes with the last.
            (self.index, self.ghosts) = (HashMap::default(), Vec::new());
        }
    }

    fn forget(&mut self, mixed: u64) {
        self.rows -= usize::from(self.index.remove(&mixed).is_some());
    }

    /// Remembers who left young unused.
    fn haunt(&mut self, mixed: u64) {
        let wanted = self.rows.next_power_of_two();
        if self.ghosts.len() < wanted {
            self.ghosts = vec![0; wanted];
        }
        let (place, tag) = Shard::ghost(mixed, self.ghosts.len());
        if let Some(ghost) = self.ghosts.get_mut(place) {
            *ghost = tag;
        }
    }

    /// Whether it left young a while ago; it is forgotten then.
    fn is_ghost(&mut self, mixed: u64) -> bool {
        let (place, tag) = Shard::ghost(mixed, self.ghosts.len());
        self.ghosts.get_mut(place).is_some_and(|ghost| *ghost == tag && std::mem::take(ghost) == tag)
    }

    /// Its place among so many, and what tells it there.
    #[allow(clippy::cast_possible_truncation, reason = "only some of the bits count")]
    fn ghost(mixed: u64, places: usize) -> (usize, u16) {
        (mixed as usize & places.wrapping_sub(1), (mixed >> 36) as u16 | 1)
    }
}

#[cfg(test)]
mod tests;
