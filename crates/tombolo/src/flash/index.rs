//! Which pieces the flash cache has, and where: 16 bytes a slot, four fifths of them in use, so
//! about 20 bytes of memory for each piece.
//!
//! A piece is known by 64 bits of a hash. Two that share them hide one another: a reader looks
//! at the record's own key.
//!
//! Invariants:
//! 1. At most one entry for a fingerprint.
//! 2. Slots are charged to the memory budget before they are made, and never take more than
//!    `bytes_max`.
#![allow(
    clippy::cast_possible_truncation,
    reason = "places are packed into words, and a slot is below their number"
)]

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::budget::Charge;

const SHARDS: usize = 64;
const SLOT_BYTES: u64 = size_of::<Slot>() as u64;
/// Slots that a shard begins with.
const SLOTS_MIN: usize = 16;

/// Where a piece lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Slot of the region.
    pub(super) region: u16,
    /// Where its record begins in the region.
    pub(super) at: u32,
    /// How often it was read since it was written, up to [`Place::USES_MAX`].
    pub(super) uses: u8,
}

impl Place {
    /// Counted no further.
    pub(super) const USES_MAX: u8 = 3;

    fn pack(self) -> u64 {
        u64::from(self.region) << 48 | u64::from(self.uses) << 32 | u64::from(self.at)
    }

    fn unpack(packed: u64) -> Place {
        Place { region: (packed >> 48) as u16, at: packed as u32, uses: (packed >> 32) as u8 }
    }
}

/// Empty while `fingerprint` is 0.
#[derive(Clone, Copy, Default)]
struct Slot {
    fingerprint: u64,
    place: u64,
}

/// Open addressing with linear probing; no tombstones.
#[derive(Default)]
struct Shard {
    slots: Vec<Slot>,
    used: usize,
}

impl Shard {
    /// Where a fingerprint's search begins. The low bits chose the shard.
    fn home(&self, fingerprint: u64) -> usize {
        ((u128::from(fingerprint) * self.slots.len() as u128) >> 64) as usize
    }

    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// The slot of a fingerprint, or else the empty one where it belongs; `None` without slots.
    fn probe(&self, fingerprint: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.home(fingerprint);
        while self.slots[slot].fingerprint != 0 && self.slots[slot].fingerprint != fingerprint {
            slot = self.after(slot);
        }
        Some(slot)
    }

    fn find(&self, fingerprint: u64) -> Option<usize> {
        self.probe(fingerprint).filter(|slot| self.slots[*slot].fingerprint != 0)
    }

    /// Closes the gap at `slot`: entries behind it that would not be found any more move up.
    fn remove(&mut self, mut slot: usize) {
        let mut next = slot;
        loop {
            next = self.after(next);
            let entry = self.slots[next];
            if entry.fingerprint == 0 {
                break;
            }
            let home = self.home(entry.fingerprint);
            let stays = if slot <= next { slot < home && home <= next } else { slot < home || home <= next };
            if !stays {
                self.slots[slot] = entry;
                slot = next;
            }
        }
        self.slots[slot] = Slot::default();
        self.used -= 1;
    }

    /// Slots to have before another entry comes in; `None`: there are enough.
    fn wanted(&self) -> Option<usize> {
        let length = self.slots.len();
        ((self.used + 1) * 20 > length * 17).then(|| (length + length / 4).max(SLOTS_MIN))
    }

    fn resize(&mut self, length: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); length]);
        for entry in old.into_iter().filter(|entry| entry.fingerprint != 0) {
            if let Some(slot) = self.probe(entry.fingerprint) {
                self.slots[slot] = entry;
            }
        }
    }
}

/// See the module's documentation.
pub(super) struct Index {
    shards: Box<[Mutex<Shard>]>,
    memory: Mutex<Charge>,
    bytes_max: u64,
    entries: AtomicU64,
}

impl Index {
    /// An empty index, charged to `memory`, of at most `bytes_max`.
    pub(super) fn new(memory: Charge, bytes_max: u64) -> Index {
        Index {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            memory: Mutex::new(memory),
            bytes_max,
            entries: AtomicU64::new(0),
        }
    }

    fn shard(&self, fingerprint: u64) -> &Mutex<Shard> {
        &self.shards[fingerprint as usize % SHARDS]
    }

    /// Pieces that it knows.
    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Where a piece lies. Does not count as a use.
    pub(super) fn peek(&self, fingerprint: u64) -> Option<Place> {
        let shard = self.shard(fingerprint).lock();
        shard.find(fingerprint).map(|slot| Place::unpack(shard.slots[slot].place))
    }

    /// Where a piece lies that is about to be read.
    pub(super) fn take_use(&self, fingerprint: u64) -> Option<Place> {
        let mut shard = self.shard(fingerprint).lock();
        let slot = shard.find(fingerprint)?;
        let place = Place::unpack(shard.slots[slot].place);
        if place.uses < Place::USES_MAX {
            shard.slots[slot].place = Place { uses: place.uses + 1, ..place }.pack();
        }
        Some(place)
    }

    /// Takes note of a piece, in place of the earlier note of it; `false` when there is no memory
    /// for it.
    pub(super) fn insert(&self, fingerprint: u64, place: Place) -> bool {
        self.insert_or(fingerprint, place, |known| *known = place.pack())
    }

    /// Takes note of a piece unless a newer place of it is known; `false` when there is no memory
    /// for it.
    pub(super) fn insert_older(&self, fingerprint: u64, place: Place) -> bool {
        self.insert_or(fingerprint, place, |_| {})
    }

    fn insert_or(&self, fingerprint: u64, place: Place, known: impl FnOnce(&mut u64)) -> bool {
        let mut shard = self.shard(fingerprint).lock();
        if let Some(slot) = shard.find(fingerprint) {
            known(&mut shard.slots[slot].place);
            return true;
        }
        if let Some(wanted) = shard.wanted() {
            let more = (wanted - shard.slots.len()) as u64 * SLOT_BYTES;
            let mut memory = self.memory.lock();
            if memory.bytes() + more > self.bytes_max || memory.try_grow(more).is_err() {
                return false;
            }
            drop(memory);
            shard.resize(wanted);
        }
        if let Some(slot) = shard.probe(fingerprint) {
            shard.slots[slot] = Slot { fingerprint, place: place.pack() };
            shard.used += 1;
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Forgets a piece, if it lies in that place still.
    pub(super) fn remove(&self, fingerprint: u64, place: Place) {
        let mut shard = self.shard(fingerprint).lock();
        let Some(slot) = shard.find(fingerprint) else { return };
        let found = Place::unpack(shard.slots[slot].place);
        if (found.region, found.at) == (place.region, place.at) {
            shard.remove(slot);
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets all pieces of a region, and gives the places of those that were used. Costs a look
    /// at every slot.
    pub(super) fn remove_region(&self, region: u16) -> Vec<Place> {
        let mut used = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let of_region =
                |slot: &&Slot| slot.fingerprint != 0 && Place::unpack(slot.place).region == region;
            let all: Vec<Slot> = shard.slots.iter().filter(of_region).copied().collect();
            for entry in all {
                let place = Place::unpack(entry.place);
                if place.uses > 0 {
                    used.push(place);
                }
                if let Some(slot) = shard.find(entry.fingerprint) {
                    shard.remove(slot);
                    self.entries.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::budget::{Category, MemoryBudget};

    fn index(bytes_max: u64) -> Index {
        Index::new(MemoryBudget::new(16 << 20).unwrap().charge(Category::Flash, 0), bytes_max)
    }

    fn place(region: u16, at: u32) -> Place {
        Place { region, at, uses: 0 }
    }

    proptest! {
        #[test]
        fn it_answers_as_a_map_does(
            steps in proptest::collection::vec((0..4u8, 1..200u64, 0..4u16), 1..600)
        ) {
            let (index, mut map) = (index(1 << 20), BTreeMap::new());
            for (number, (step, fingerprint, region)) in steps.into_iter().enumerate() {
                // All in few shards, near one another.
                let fingerprint = fingerprint * 64 + (fingerprint << 60);
                let new = place(region, number as u32);
                match step {
                    0 => {
                        prop_assert!(index.insert(fingerprint, new));
                        map.insert(fingerprint, new);
                    }
                    1 => {
                        prop_assert!(index.insert_older(fingerprint, new));
                        map.entry(fingerprint).or_insert(new);
                    }
                    2 => {
                        if let Some(known) = map.remove(&fingerprint) {
                            index.remove(fingerprint, place(known.region, known.at + 1));
                            prop_assert!(index.peek(fingerprint).is_some());
                            index.remove(fingerprint, known);
                        }
                    }
                    _ => {
                        index.remove_region(region);
                        map.retain(|_, known| known.region != region);
                    }
                }
                prop_assert_eq!(index.peek(fingerprint), map.get(&fingerprint).copied());
                prop_assert_eq!(index.entries(), map.len() as u64);
            }
            for (fingerprint, known) in map {
                prop_assert_eq!(index.peek(fingerprint), Some(known));
            }
        }
    }

    #[test]
    fn uses_are_counted_up_to_three_and_told_when_the_region_goes() {
        let index = index(1 << 20);
        index.insert(64, place(7, 1));
        index.insert(128, place(7, 2));
        index.insert(192, place(8, 3));
        for _ in 0..9 {
            index.take_use(64);
            index.take_use(192);
        }
        assert_eq!(index.remove_region(7), [Place { region: 7, at: 1, uses: 3 }]);
        assert_eq!((index.peek(64), index.peek(128), index.entries()), (None, None, 1));
    }

    #[test]
    fn a_piece_takes_less_than_24_bytes_and_never_more_than_was_given() {
        let index = index(2 << 20);
        let hash = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63;
        for number in 0..50_000 {
            assert!(index.insert(hash(number), place(0, number as u32)));
        }
        let bytes = index.memory.lock().bytes();
        assert!(bytes <= 24 * 50_000, "{bytes} bytes");
        let mut number = 50_000;
        while index.insert(hash(number), place(0, number as u32)) {
            number += 1;
        }
        assert!(index.memory.lock().bytes() <= 2 << 20);
        assert_eq!(index.entries(), number);
    }
}
