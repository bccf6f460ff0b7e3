//! Counts over time, in a bounded number of slots that grow wider.

/// Counts by time: so many slots, each twice as wide as before whenever they no longer reach.
#[derive(Clone, Debug)]
pub struct Series {
    slot_ns: u64,
    slots_max: usize,
    slots: Vec<u64>,
}

impl Series {
    /// Slots of `slot_ns` to begin with, at most `slots_max`.
    #[must_use]
    pub fn new(slot_ns: u64, slots_max: usize) -> Series {
        Series { slot_ns: slot_ns.max(1), slots_max: slots_max.max(2), slots: Vec::new() }
    }

    /// Counts one at a time.
    #[inline]
    pub fn add(&mut self, time_ns: u64) {
        self.add_many(time_ns, 1);
    }

    /// Counts several at a time.
    pub fn add_many(&mut self, time_ns: u64, count: u64) {
        while time_ns / self.slot_ns >= self.slots_max as u64 {
            self.widen();
        }
        let slot = usize::try_from(time_ns / self.slot_ns).unwrap_or(0);
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] += count;
    }

    fn widen(&mut self) {
        self.slot_ns = self.slot_ns.saturating_mul(2);
        self.slots = self.slots.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// Width of a slot.
    #[must_use]
    pub fn slot_ns(&self) -> u64 {
        self.slot_ns
    }

    /// The counts, from time 0 on.
    #[must_use]
    pub fn slots(&self) -> &[u64] {
        &self.slots
    }

    /// The counts for a second of each slot that is whole, with its middle in seconds.
    #[allow(clippy::cast_precision_loss, reason = "statistics")]
    pub fn rates(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let seconds = self.slot_ns as f64 / 1e9;
        let whole = self.slots.len().saturating_sub(1).max(self.slots.len().min(1));
        let rate =
            move |(slot, count): (usize, &u64)| ((slot as f64 + 0.5) * seconds, *count as f64 / seconds);
        self.slots[..whole].iter().enumerate().map(rate)
    }
}
