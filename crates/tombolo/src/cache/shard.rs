//! A part of the cache: buckets of slots, and a hand that goes round them.
//!
//! Slots come in segments, each made when something is first put into it: a cache that holds little costs little to make and to drop.
//! When the budget grows, the entries move to a table of more slots. Readers may still look into the old one, which is empty from then
//! on, so it stays as long as the cache: all old tables together are smaller than the newest.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::{CacheKey, CacheStats, Resident};
use crate::budget::MemoryBudget;

/// Whom an entry is charged to.
const NOBODY: u8 = 0;
const CACHE: u8 = 1;
const PINNED: u8 = 2;

/// An entry of the cache, or one that never was or is no longer in it. Charged once, as long as anybody holds it.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: CacheKey,
    pub resident: Resident,
    /// Its memory is a part of something that is charged as a whole.
    pub is_part: bool,
    bytes: u64,
    charged: AtomicU8,
    budget: Arc<MemoryBudget>,
}

impl Entry {
    /// One that is not charged yet.
    pub fn new(key: CacheKey, resident: Resident, is_part: bool, budget: &Arc<MemoryBudget>) -> Entry {
        let bytes = if is_part { 0 } else { resident.memory_bytes() };
        Entry { key, resident, is_part, bytes, charged: AtomicU8::new(NOBODY), budget: Arc::clone(budget) }
    }

    /// It is held outside the cache.
    pub fn pin(&self) {
        self.charge(PINNED);
    }

    /// Charges it anew. One thread at a time: whoever made it, or who has its shard.
    fn charge(&self, charged: u8) {
        match self.charged.swap(charged, Ordering::Relaxed) {
            CACHE => self.budget.subtract_cached(self.bytes),
            PINNED => self.budget.subtract_pinned(self.bytes),
            _ => {}
        }
        match charged {
            CACHE => self.budget.add_cached(self.bytes),
            PINNED => self.budget.add_pinned(self.bytes),
            _ => {}
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.charge(NOBODY);
    }
}

/// Slots that a key may be in: they share two cache lines of tags.
const BUCKET_SLOTS: usize = 8;
/// Slots that are made together.
const SEGMENT_SLOTS: usize = 8 * BUCKET_SLOTS;
/// Tables by the logarithm of their slots: more than there is memory for.
const TABLES: usize = 40;

#[derive(Debug, Default)]
struct Slot {
    /// The entry's hash, never 0 while there is one. A hint: the entry's key decides.
    tag: AtomicU64,
    /// Whether it was used since the hand passed.
    used: AtomicBool,
    entry: ArcSwapOption<Entry>,
}

#[derive(Debug)]
struct Segment {
    slots: [Slot; SEGMENT_SLOTS],
    /// What each slot's entry is charged; 0 when it has none. Read and changed under the shard's lock.
    charges: [AtomicU64; SEGMENT_SLOTS],
}

/// The slots of a shard. Invariant: a power of two of segments.
#[derive(Debug)]
struct Table(Box<[OnceLock<Box<Segment>>]>);

/// A slot that there is.
#[derive(Clone, Copy)]
struct Place<'a> {
    slot: &'a Slot,
    charge: &'a AtomicU64,
}

impl Table {
    fn new(slots: usize) -> Table {
        Table((0..slots / SEGMENT_SLOTS).map(|_| OnceLock::new()).collect())
    }

    /// Bytes of the table itself.
    fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    fn slots(&self) -> usize {
        self.0.len() * SEGMENT_SLOTS
    }

    /// Which segment a hash belongs to, and where its bucket begins there.
    #[inline]
    fn bucket(&self, hash: u64) -> (usize, usize) {
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let low = hash as usize;
        let index = (low & (self.slots() / BUCKET_SLOTS - 1)) * BUCKET_SLOTS;
        (index / SEGMENT_SLOTS, index % SEGMENT_SLOTS)
    }

    /// The bucket of a hash, if it was made.
    #[inline]
    fn slots_of(&self, hash: u64) -> &[Slot] {
        let (segment, at) = self.bucket(hash);
        self.0[segment].get().map_or(&[], |segment| &segment.slots[at..at + BUCKET_SLOTS])
    }

    fn place(&self, index: usize) -> Option<Place<'_>> {
        let segment = self.0[index / SEGMENT_SLOTS].get()?;
        let at = index % SEGMENT_SLOTS;
        Some(Place { slot: &segment.slots[at], charge: &segment.charges[at] })
    }
}

impl Segment {
    fn new() -> Box<Segment> {
        Box::new(Segment { slots: std::array::from_fn(|_| Slot::default()), charges: std::array::from_fn(|_| AtomicU64::new(0)) })
    }
}

impl Place<'_> {
    fn fill(&self, entry: Arc<Entry>, hash: u64, charge: u64) {
        self.slot.used.store(false, Ordering::Relaxed);
        self.slot.entry.store(Some(entry));
        // After the entry: whoever sees the tag finds this entry or a later one.
        self.slot.tag.store(hash | 1, Ordering::Release);
        self.charge.store(charge, Ordering::Relaxed);
    }

    /// Empties it; gives its entry.
    fn clear(&self) -> Option<Arc<Entry>> {
        if self.charge.swap(0, Ordering::Relaxed) == 0 {
            return None;
        }
        self.slot.tag.store(0, Ordering::Release);
        self.slot.entry.swap(None)
    }
}

pub(super) struct Shard {
    /// Those up to the newest one that were needed. Invariant: that of `table` is there.
    tables: [OnceLock<Table>; TABLES],
    /// The newest.
    table: AtomicUsize,
    state: Mutex<State>,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Invariant: sum of what entries are charged.
    used_bytes: u64,
    /// Bytes of tables and segments. Invariant: with `used_bytes` never above the maximum that the last insertion was told.
    fixed_bytes: u64,
    hand: usize,
    insertions: u64,
    evictions: u64,
}

impl State {
    fn add_fixed(&mut self, bytes: u64, budget: &MemoryBudget) {
        self.fixed_bytes += bytes;
        budget.add_cached(bytes);
    }
}

fn rounded(slots: usize) -> usize {
    slots.clamp(SEGMENT_SLOTS, 1 << (TABLES - 1)).next_power_of_two()
}

impl Shard {
    pub fn new(slots: usize, budget: &MemoryBudget) -> Shard {
        let slots = rounded(slots);
        let class = slots.ilog2() as usize;
        let tables = std::array::from_fn(|index| if index == class { OnceLock::from(Table::new(slots)) } else { OnceLock::new() });
        let shard = Shard { tables, table: AtomicUsize::new(class), state: Mutex::default(), misses: AtomicU64::new(0) };
        let bytes = shard.table().map_or(0, Table::bytes) + size_of::<Shard>() as u64;
        shard.state.lock().add_fixed(bytes, budget);
        shard
    }

    /// The newest table: there always is one.
    #[inline]
    fn table(&self) -> Option<&Table> {
        self.tables[self.table.load(Ordering::Acquire)].get()
    }

    #[inline]
    fn slots_of(&self, hash: u64) -> &[Slot] {
        self.table().map_or(&[], |table| table.slots_of(hash))
    }

    #[inline]
    pub fn get(&self, key: &CacheKey, hash: u64) -> Option<Guard<Option<Arc<Entry>>>> {
        let tag = hash | 1;
        for slot in self.slots_of(hash) {
            if slot.tag.load(Ordering::Acquire) != tag {
                continue;
            }
            let entry = slot.entry.load();
            if entry.as_ref().is_some_and(|entry| entry.key == *key) {
                // A store only when it changes something: a hot slot's line stays shared between cores.
                if !slot.used.load(Ordering::Relaxed) {
                    slot.used.store(true, Ordering::Relaxed);
                }
                return Some(entry);
            }
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        None
    }

    pub fn has(&self, key: &CacheKey, hash: u64) -> bool {
        let of_tag = |slot: &&Slot| slot.tag.load(Ordering::Acquire) == hash | 1;
        self.slots_of(hash).iter().filter(of_tag).any(|slot| slot.entry.load().as_ref().is_some_and(|entry| entry.key == *key))
    }

    pub fn insert(&self, entry: Arc<Entry>, hash: u64, bytes_max: impl Fn() -> u64, budget: &MemoryBudget) -> Arc<Entry> {
        let charge = entry.bytes;
        let mut state = self.state.lock();
        let Some(table) = self.table() else { return refused(entry) };
        let (number, bucket) = table.bucket(hash);
        let missing = if table.0[number].get().is_none() { size_of::<Segment>() as u64 } else { 0 };
        // Asked under the lock: whoever grows meanwhile makes this shard shrink after.
        let Some(room) = bytes_max().checked_sub(state.fixed_bytes + missing + charge) else { return refused(entry) };
        let is_entry = |slot: &Slot| {
            slot.tag.load(Ordering::Relaxed) == hash | 1 && slot.entry.load().as_ref().is_some_and(|resident| resident.key == entry.key)
        };
        if let Some(resident) = table.slots_of(hash).iter().find(|slot| is_entry(slot)).and_then(|slot| slot.entry.load_full()) {
            return resident;
        }
        if missing > 0 {
            self.make_room(&mut state, room);
            state.add_fixed(missing, budget);
        }
        let segment = table.0[number].get_or_init(Segment::new);
        let at = victim(segment, bucket);
        let place = Place { slot: &segment.slots[at], charge: &segment.charges[at] };
        evict(&mut state, place);
        self.make_room(&mut state, room);
        place.fill(Arc::clone(&entry), hash, charge);
        state.used_bytes += charge;
        entry.charge(CACHE);
        state.insertions += 1;
        entry
    }

    /// Makes room until entries, tables and segments take at most `bytes_max`.
    pub fn shrink(&self, bytes_max: u64) {
        let mut state = self.state.lock();
        let room = bytes_max.saturating_sub(state.fixed_bytes);
        self.make_room(&mut state, room);
    }

    /// Moves to a table of `slots`, if that is more; the entries stay.
    pub fn grow(&self, slots: usize, bytes_max: u64, budget: &MemoryBudget) {
        let slots = rounded(slots);
        let class = slots.ilog2() as usize;
        let mut state = self.state.lock();
        let Some(old) = self.table().filter(|old| old.slots() < slots) else { return };
        let new = self.tables[class].get_or_init(|| Table::new(slots));
        state.add_fixed(new.bytes(), budget);
        for place in (0..old.slots()).filter_map(|index| old.place(index)) {
            let Some(entry) = place.slot.entry.load_full() else { continue };
            let hash = entry.key.hash();
            let (number, bucket) = new.bucket(hash);
            if new.0[number].get().is_none() {
                state.add_fixed(size_of::<Segment>() as u64, budget);
            }
            let segment = new.0[number].get_or_init(Segment::new);
            // One bucket of the old table went into several here: there is a free slot.
            let at = victim(segment, bucket);
            let target = Place { slot: &segment.slots[at], charge: &segment.charges[at] };
            evict(&mut state, target);
            target.fill(entry, hash, place.charge.load(Ordering::Relaxed));
        }
        self.table.store(class, Ordering::Release);
        state.hand = 0;
        for place in (0..old.slots()).filter_map(|index| old.place(index)) {
            // It was moved, and stays charged.
            let _moved = place.clear();
        }
        let room = bytes_max.saturating_sub(state.fixed_bytes);
        self.make_room(&mut state, room);
    }

    /// Evicts until entries take at most `bytes_max`. Two rounds at most: the first unmarks every slot.
    fn make_room(&self, state: &mut State, bytes_max: u64) {
        let Some(table) = self.table() else { return };
        let slots = table.slots();
        let mut steps = 0;
        while state.used_bytes > bytes_max && steps <= 2 * slots {
            let index = state.hand;
            let place = table.place(index);
            let passed = if place.is_some() { 1 } else { SEGMENT_SLOTS - index % SEGMENT_SLOTS };
            state.hand = (index + passed) & (slots - 1);
            steps += passed;
            let Some(place) = place.filter(|place| place.charge.load(Ordering::Relaxed) > 0) else { continue };
            // A reader may mark the slot all the time: in the second round that does not help any more.
            if !place.slot.used.swap(false, Ordering::Relaxed) || steps > slots {
                evict(state, place);
            }
        }
    }

    /// Bytes of tables and segments.
    pub fn fixed_bytes(&self) -> u64 {
        self.state.lock().fixed_bytes
    }

    /// Bytes of entries, tables and segments.
    pub fn used_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.used_bytes + state.fixed_bytes
    }

    pub fn add_stats(&self, stats: &mut CacheStats) {
        let state = self.state.lock();
        stats.insertions += state.insertions;
        stats.evictions += state.evictions;
        stats.misses += self.misses.load(Ordering::Relaxed);
    }
}

/// A slot of a bucket for a new entry: a free one, or one that was not used, and all are unmarked if each was.
fn victim(segment: &Segment, bucket: usize) -> usize {
    let mut all = bucket..bucket + BUCKET_SLOTS;
    let free = all.clone().find(|at| segment.charges[*at].load(Ordering::Relaxed) == 0);
    free.or_else(|| all.find(|at| !segment.slots[*at].used.load(Ordering::Relaxed))).unwrap_or_else(|| {
        for slot in &segment.slots[bucket..bucket + BUCKET_SLOTS] {
            slot.used.store(false, Ordering::Relaxed);
        }
        bucket
    })
}

/// Puts an entry out. Who holds it keeps it, and it is charged as pinned from here on.
fn evict(state: &mut State, place: Place<'_>) {
    let Some(entry) = place.clear() else { return };
    state.used_bytes -= entry.bytes;
    state.evictions += 1;
    // Nobody can begin to hold it now: who does is counted.
    if Arc::strong_count(&entry) > 1 {
        entry.pin();
    }
}

/// What the cache does not take.
fn refused(entry: Arc<Entry>) -> Arc<Entry> {
    entry.pin();
    entry
}
