//! Keys by how recently they were accessed.

use tombolo_workload::sketch::HashedMap;

/// Remembers keys in the order of their last accesses, and finds the one at a distance.
#[derive(Debug)]
pub(super) struct Recent {
    keys_max: usize,
    /// Of each slot of time the key, if that was its last access.
    slots: Vec<Option<u64>>,
    /// Counts of used slots (Fenwick).
    sums: Vec<u32>,
    places: HashedMap<u64, usize>,
    now: usize,
}

impl Recent {
    pub(super) fn new(keys_max: usize) -> Recent {
        Recent { keys_max, slots: Vec::new(), sums: Vec::new(), places: HashedMap::default(), now: 0 }
    }

    fn add(&mut self, slot: usize, up: bool) {
        let mut at = slot;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum = if up { *sum + 1 } else { *sum - 1 };
            at |= at + 1;
        }
    }

    pub(super) fn access(&mut self, key: u64) {
        if self.now == self.slots.len() {
            self.renumber();
        }
        let slot = self.now;
        self.now += 1;
        self.slots[slot] = Some(key);
        self.add(slot, true);
        if let Some(before) = self.places.insert(key, slot) {
            self.slots[before] = None;
            self.add(before, false);
        }
    }

    /// The key that is the so-manieth most recent, from 1 on.
    pub(super) fn at_distance(&self, distance: u64) -> Option<u64> {
        let held = self.places.len();
        let from_oldest = held.checked_sub(usize::try_from(distance).ok()?)?;
        // The slot before which so many used ones lie.
        let mut left = u32::try_from(from_oldest).ok()?;
        let (mut at, mut step) = (0, self.sums.len().next_power_of_two());
        while step > 0 {
            if let Some(sum) = self.sums.get(at + step - 1).filter(|sum| **sum <= left) {
                left -= sum;
                at += step;
            }
            step /= 2;
        }
        self.slots.get(at).copied().flatten()
    }

    /// Slots are used up: the newest keys go on in the first ones.
    fn renumber(&mut self) {
        let held: Vec<u64> = self.slots.iter().copied().flatten().collect();
        let kept = &held[held.len().saturating_sub(self.keys_max)..];
        let room = (kept.len() * 2).max(1024);
        (self.slots, self.sums) = (vec![None; room], vec![0; room]);
        self.places.clear();
        self.now = kept.len();
        for (slot, key) in kept.iter().enumerate() {
            self.slots[slot] = Some(*key);
            self.places.insert(*key, slot);
            self.add(slot, true);
        }
    }
}
