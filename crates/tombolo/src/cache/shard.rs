//! A part of the cache: buckets of slots, and a hand that goes round them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::{CacheKey, CacheStats, Resident};
use crate::budget::MemoryBudget;

/// An entry of the cache.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: CacheKey,
    pub resident: Resident,
}

/// Slots that a key may be in: they share two cache lines of tags.
const BUCKET_SLOTS: usize = 8;

/// Memory of a slot.
pub(super) const SLOT_BYTES: usize = size_of::<Slot>() + size_of::<u64>();

#[derive(Debug, Default)]
struct Slot {
    /// The entry's hash, never 0 while there is one. A hint: the entry's key decides.
    tag: AtomicU64,
    /// Whether it was used since the hand passed.
    used: AtomicBool,
    entry: ArcSwapOption<Entry>,
}

pub(super) struct Shard {
    /// Invariant: a power of two of buckets, `BUCKET_SLOTS` each.
    slots: Box<[Slot]>,
    state: Mutex<State>,
    misses: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Invariant: sum of `charges`, and never above the maximum that the last insertion was told.
    used_bytes: u64,
    /// What each slot's entry is charged; 0 when it has none.
    charges: Box<[u64]>,
    hand: usize,
    insertions: u64,
    evictions: u64,
}

impl Shard {
    pub fn new(slots: usize) -> Shard {
        let slots = slots.next_multiple_of(BUCKET_SLOTS).next_power_of_two();
        Shard {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            state: Mutex::new(State { used_bytes: 0, charges: vec![0; slots].into(), hand: 0, insertions: 0, evictions: 0 }),
            misses: AtomicU64::new(0),
        }
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        let buckets = self.slots.len() / BUCKET_SLOTS;
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let low = hash as usize;
        (low & (buckets - 1)) * BUCKET_SLOTS
    }

    #[inline]
    pub fn get(&self, key: &CacheKey, hash: u64) -> Option<Guard<Option<Arc<Entry>>>> {
        let bucket = self.bucket(hash);
        let tag = hash | 1;
        for slot in &self.slots[bucket..bucket + BUCKET_SLOTS] {
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
        let bucket = self.bucket(hash);
        let slots = &self.slots[bucket..bucket + BUCKET_SLOTS];
        let of_tag = |slot: &&Slot| slot.tag.load(Ordering::Acquire) == hash | 1;
        slots.iter().filter(of_tag).any(|slot| slot.entry.load().as_ref().is_some_and(|entry| entry.key == *key))
    }

    pub fn insert(&self, entry: Arc<Entry>, hash: u64, charge: u64, bytes_max: impl Fn() -> u64, budget: &MemoryBudget) -> Arc<Entry> {
        let mut state = self.state.lock();
        // Asked under the lock: whoever grows meanwhile makes this shard shrink after.
        let bytes_max = bytes_max();
        if charge > bytes_max {
            return entry;
        }
        let bucket = self.bucket(hash);
        let tag = hash | 1;
        let mut free = None;
        for index in bucket..bucket + BUCKET_SLOTS {
            let slot = &self.slots[index];
            match slot.entry.load_full() {
                Some(resident) if slot.tag.load(Ordering::Relaxed) == tag && resident.key == entry.key => return resident,
                Some(_) => {}
                None => free = Some(index),
            }
        }
        let index = free.unwrap_or_else(|| self.victim(bucket));
        self.evict(&mut state, index, budget);
        self.make_room(&mut state, bytes_max - charge, budget);
        let slot = &self.slots[index];
        slot.used.store(false, Ordering::Relaxed);
        slot.entry.store(Some(Arc::clone(&entry)));
        // After the entry: whoever sees the tag finds this entry or a later one.
        slot.tag.store(tag, Ordering::Release);
        state.charges[index] = charge;
        state.used_bytes += charge;
        budget.add_cached(charge);
        state.insertions += 1;
        entry
    }

    /// A slot of a full bucket: one that was not used, and all are unmarked if each was.
    fn victim(&self, bucket: usize) -> usize {
        let unused = (bucket..bucket + BUCKET_SLOTS).find(|index| !self.slots[*index].used.load(Ordering::Relaxed));
        unused.unwrap_or_else(|| {
            for slot in &self.slots[bucket..bucket + BUCKET_SLOTS] {
                slot.used.store(false, Ordering::Relaxed);
            }
            bucket
        })
    }

    pub fn shrink(&self, bytes_max: u64, budget: &MemoryBudget) {
        self.make_room(&mut self.state.lock(), bytes_max, budget);
    }

    /// Evicts until at most `bytes_max` are in use. Two rounds at most: the first unmarks every slot.
    fn make_room(&self, state: &mut State, bytes_max: u64, budget: &MemoryBudget) {
        let mut steps = 0;
        while state.used_bytes > bytes_max && steps <= 2 * self.slots.len() {
            let index = state.hand;
            state.hand = (index + 1) & (self.slots.len() - 1);
            steps += 1;
            if state.charges[index] == 0 {
                continue;
            }
            // A reader may mark the slot all the time: in the second round that does not help any more.
            if !self.slots[index].used.swap(false, Ordering::Relaxed) || steps > self.slots.len() {
                self.evict(state, index, budget);
            }
        }
    }

    fn evict(&self, state: &mut State, index: usize, budget: &MemoryBudget) {
        let charge = std::mem::take(&mut state.charges[index]);
        if charge == 0 {
            return;
        }
        self.slots[index].tag.store(0, Ordering::Release);
        self.slots[index].entry.store(None);
        state.used_bytes -= charge;
        budget.subtract_cached(charge);
        state.evictions += 1;
    }

    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes
    }

    pub fn add_stats(&self, stats: &mut CacheStats) {
        let state = self.state.lock();
        stats.insertions += state.insertions;
        stats.evictions += state.evictions;
        stats.misses += self.misses.load(Ordering::Relaxed);
    }
}
