//! A part of the cache: buckets of slots, and a hand that goes round them.
//!
//! Slots come in segments, each made when something is first put into it: a cache that holds little
//! costs little to make and to drop. When the budget grows, the entries move to a table of more
//! slots. Readers may still look into the old one, which is empty from then on, so it stays as long
//! as the cache: all old tables together are smaller than the newest.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::entry::Entry;
use super::hazard::{Guard, Place};
use super::{CacheKey, CacheStats};
use crate::budget::MemoryBudget;

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
    entry: Place,
}

impl Slot {
    /// Whether it has no entry. Exact under the shard's lock.
    fn is_free(&self) -> bool {
        self.tag.load(Ordering::Relaxed) == 0
    }

    fn fill(&self, entry: Arc<Entry>, hash: u64, used: bool) {
        self.used.store(used, Ordering::Relaxed);
        drop(self.entry.swap(Some(entry)));
        // After the entry: a reader that sees the tag finds this entry or a later one.
        self.tag.store(hash | 1, Ordering::Release);
    }

    /// Its entry, if it is of the key, which counts as a use.
    #[inline]
    fn of_key(&self, key: &CacheKey) -> Option<Guard> {
        let entry = self.entry.load().filter(|entry| entry.key == *key)?;
        // A store only when it changes something: a hot slot's line stays shared between cores.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(entry)
    }

    /// Empties it; gives its entry.
    fn clear(&self) -> Option<Arc<Entry>> {
        if self.is_free() {
            return None;
        }
        self.tag.store(0, Ordering::Release);
        self.entry.swap(None)
    }
}

/// Where an entry was found: a table, by the logarithm of its slots, and a slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub class: usize,
    pub index: usize,
}

#[derive(Debug)]
struct Segment([Slot; SEGMENT_SLOTS]);

/// The slots of a shard. Invariant: a power of two of segments.
#[derive(Debug)]
struct Table(Box<[OnceLock<Box<Segment>>]>);

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
        self.0[segment].get().map_or(&[], |segment| &segment.0[at..at + BUCKET_SLOTS])
    }

    /// A slot by its index, if it was made.
    fn slot(&self, index: usize) -> Option<&Slot> {
        Some(&self.0[index / SEGMENT_SLOTS].get()?.0[index % SEGMENT_SLOTS])
    }
}

impl Segment {
    fn new() -> Box<Segment> {
        Box::new(Segment(std::array::from_fn(|_| Slot::default())))
    }

    /// A slot of a bucket for a new entry: a free one, or one that was not used, and all are
    /// unmarked if each was.
    fn victim(&self, bucket: usize) -> &Slot {
        let all = &self.0[bucket..bucket + BUCKET_SLOTS];
        let free = all.iter().find(|slot| slot.is_free());
        free.or_else(|| all.iter().find(|slot| !slot.used.load(Ordering::Relaxed))).unwrap_or_else(|| {
            for slot in all {
                slot.used.store(false, Ordering::Relaxed);
            }
            &all[0]
        })
    }
}

pub(super) struct Shard {
    /// Those up to the newest one that were needed. Invariant: that of `table` is there.
    tables: [OnceLock<Table>; TABLES],
    /// The newest.
    table: AtomicUsize,
    state: Mutex<State>,
    /// Entries in it. Changed under the lock.
    entries: AtomicUsize,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of tables and segments.
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
        let tables = std::array::from_fn(|index| {
            if index == class { OnceLock::from(Table::new(slots)) } else { OnceLock::new() }
        });
        let shard = Shard {
            tables,
            table: AtomicUsize::new(class),
            state: Mutex::default(),
            entries: AtomicUsize::new(0),
            misses: AtomicU64::new(0),
        };
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
    pub fn get(&self, key: &CacheKey, hash: u64) -> Option<Guard> {
        self.find(key, hash).map(|(_, entry)| entry)
    }

    /// An entry, and its slot among those of its bucket.
    #[inline]
    fn find(&self, key: &CacheKey, hash: u64) -> Option<(usize, Guard)> {
        let tag = hash | 1;
        for (at, slot) in self.slots_of(hash).iter().enumerate() {
            if slot.tag.load(Ordering::Acquire) != tag {
                continue;
            }
            let Some(entry) = slot.of_key(key) else { continue };
            return Some((at, entry));
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// An entry, and where it lies now.
    pub fn get_with_spot(&self, key: &CacheKey, hash: u64) -> Option<(Guard, Spot)> {
        // Looked at before: if the entries move meanwhile, the spot is of a table that is empty.
        let class = self.table.load(Ordering::Acquire);
        let (segment, bucket) = self.tables[class].get()?.bucket(hash);
        let (at, entry) = self.find(key, hash)?;
        Some((entry, Spot { class, index: segment * SEGMENT_SLOTS + bucket + at }))
    }

    /// The entry of a key, if it still lies where it was found.
    #[inline]
    pub fn get_at(&self, spot: Spot, key: &CacheKey) -> Option<Guard> {
        let table = self.tables.get(spot.class)?.get()?;
        table.0.get(spot.index / SEGMENT_SLOTS)?.get()?.0[spot.index % SEGMENT_SLOTS].of_key(key)
    }

    pub fn has(&self, key: &CacheKey, hash: u64) -> bool {
        let of_tag = |slot: &&Slot| slot.tag.load(Ordering::Acquire) == hash | 1;
        self.slots_of(hash)
            .iter()
            .filter(of_tag)
            .any(|slot| slot.entry.load().is_some_and(|entry| entry.key == *key))
    }

    /// An entry and whether it was used since the hand passed. Does not count as a use.
    pub fn look(&self, key: &CacheKey, hash: u64) -> Option<(Arc<Entry>, bool)> {
        let of_tag = |slot: &&Slot| slot.tag.load(Ordering::Acquire) == hash | 1;
        self.slots_of(hash).iter().filter(of_tag).find_map(|slot| {
            let entry = slot.entry.load_full().filter(|entry| entry.key == *key)?;
            Some((entry, slot.used.load(Ordering::Relaxed)))
        })
    }

    /// Takes an entry in and gives it back, or the resident one of its key.
    pub fn insert(&self, entry: Arc<Entry>, hash: u64, budget: &MemoryBudget) -> Arc<Entry> {
        let mut state = self.state.lock();
        let Some(table) = self.table() else { return refused(entry) };
        if let Some((resident, _)) = self.look(&entry.key, hash) {
            return resident;
        }
        let (number, bucket) = table.bucket(hash);
        if table.0[number].get().is_none() {
            state.add_fixed(size_of::<Segment>() as u64, budget);
        }
        let slot = table.0[number].get_or_init(Segment::new).victim(bucket);
        self.put_out(&mut state, slot);
        slot.fill(Arc::clone(&entry), hash, false);
        self.entries.fetch_add(1, Ordering::Relaxed);
        entry.charge_to_cache();
        state.insertions += 1;
        entry
    }

    /// Puts an entry of the same key in the place of one, if that is still there; whether it was
    /// used stays.
    pub fn replace(&self, old: &Arc<Entry>, new: Arc<Entry>, hash: u64) {
        // Held until it is told from those who hold it longer.
        let replaced = {
            let _state = self.state.lock();
            let slot =
                self.slots_of(hash).iter().find(|slot| slot.entry.load().is_some_and(|entry| entry.is(old)));
            let Some(slot) = slot else { return };
            new.charge_to_cache();
            slot.entry.swap(Some(new))
        };
        // The caller holds it, too.
        if replaced.is_some_and(|replaced| Arc::strong_count(&replaced) > 2) {
            old.pin();
        }
    }

    /// Puts an entry out, if there is one of the key.
    pub fn evict(&self, key: &CacheKey, hash: u64) {
        let mut state = self.state.lock();
        let slot =
            self.slots_of(hash).iter().find(|slot| slot.entry.load().is_some_and(|entry| entry.key == *key));
        if let Some(slot) = slot {
            self.put_out(&mut state, slot);
        }
    }

    /// Moves to a table of `slots`, if that is more; the entries stay.
    pub fn grow(&self, slots: usize, budget: &MemoryBudget) {
        let slots = rounded(slots);
        let class = slots.ilog2() as usize;
        let mut state = self.state.lock();
        let Some(old) = self.table().filter(|old| old.slots() < slots) else { return };
        let new = self.tables[class].get_or_init(|| Table::new(slots));
        state.add_fixed(new.bytes(), budget);
        for slot in (0..old.slots()).filter_map(|index| old.slot(index)) {
            let Some(entry) = slot.entry.load_full() else { continue };
            let hash = entry.key.hash();
            let (number, bucket) = new.bucket(hash);
            if new.0[number].get().is_none() {
                state.add_fixed(size_of::<Segment>() as u64, budget);
            }
            // One bucket of the old table went into several here: there is a free slot.
            let target = new.0[number].get_or_init(Segment::new).victim(bucket);
            self.put_out(&mut state, target);
            target.fill(entry, hash, slot.used.load(Ordering::Relaxed));
        }
        self.table.store(class, Ordering::Release);
        state.hand = 0;
        for slot in (0..old.slots()).filter_map(|index| old.slot(index)) {
            // It was moved, and stays charged.
            let _moved = slot.clear();
        }
    }

    /// Puts the next entry out that was not used since the hand last passed; says whether there was
    /// any entry. Two rounds at most: the first unmarks every slot.
    pub fn evict_next(&self) -> bool {
        let mut state = self.state.lock();
        let Some(table) = self.table() else { return false };
        let slots = table.slots();
        let mut steps = 0;
        while steps <= 2 * slots {
            let index = state.hand;
            let slot = table.slot(index);
            let passed = if slot.is_some() { 1 } else { SEGMENT_SLOTS - index % SEGMENT_SLOTS };
            state.hand = (index + passed) & (slots - 1);
            steps += passed;
            let Some(slot) = slot.filter(|slot| !slot.is_free()) else { continue };
            // A reader may mark the slot all the time: in the second round that does not help any
            // more.
            if !slot.used.swap(false, Ordering::Relaxed) || steps > slots {
                self.put_out(&mut state, slot);
                return true;
            }
        }
        false
    }

    /// Puts an entry out. Who holds it keeps it, and it is charged as pinned from here on.
    fn put_out(&self, state: &mut State, slot: &Slot) {
        let Some(entry) = slot.clear() else { return };
        state.evictions += 1;
        self.entries.fetch_sub(1, Ordering::Relaxed);
        // Nobody can begin to hold it now: who does is counted.
        if Arc::strong_count(&entry) > 1 {
            entry.pin();
        }
    }

    /// Entries in it, about: some come and go meanwhile.
    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Bytes of tables and segments.
    pub fn fixed_bytes(&self) -> u64 {
        self.state.lock().fixed_bytes
    }

    pub fn add_stats(&self, stats: &mut CacheStats) {
        let state = self.state.lock();
        stats.insertions += state.insertions;
        stats.evictions += state.evictions;
        stats.misses += self.misses.load(Ordering::Relaxed);
    }
}

/// What the cache does not take.
fn refused(entry: Arc<Entry>) -> Arc<Entry> {
    entry.pin();
    entry
}
