//! Reuse distances and miss-ratio curves in one pass and bounded memory.
//!
//! The reuse distance of an access is how many distinct items came since the item's last one. A
//! cache of LRU that holds more than that has it. Of few items every one is followed; of more a
//! sample by hash, whose rate falls such that its size stays: SHARDS (Waldspurger et al.,
//! "Efficient MRC construction with SHARDS", FAST 2015), with its adjustment of the first bucket.

use std::collections::BinaryHeap;

use crate::sketch::HashedMap;

/// Buckets of each doubling of distances.
const SUB: u64 = 16;
const MODULUS: u64 = 1 << 24;

/// Follows reuse distances, in items and in bytes.
#[derive(Clone, Debug)]
pub struct Reuse {
    items_max: usize,
    /// Items below it are followed: their hash modulo 2²⁴.
    threshold: u64,
    items: HashedMap<u64, Followed>,
    /// Followed items with the greatest place in the sample first.
    order: BinaryHeap<(u64, u64)>,
    count_tree: Fenwick,
    byte_tree: Fenwick,
    /// The next free slot of time.
    now: usize,
    histogram: Distances,
    accesses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    slot: usize,
    bytes: u64,
}

/// Distances by bucket, of a sample and in the scale of the whole.
#[derive(Clone, Debug, Default)]
struct Distances {
    items: Vec<f64>,
    bytes: Vec<f64>,
    cold: f64,
    counted: f64,
}

/// A point of a miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissRatio {
    /// Size of the cache, in items or bytes.
    pub size: u64,
    /// Misses by accesses.
    pub ratio: f64,
}

impl Reuse {
    /// Follows at most so many items; at least 16.
    #[must_use]
    pub fn new(items_max: usize) -> Reuse {
        let items_max = items_max.max(16);
        let slots = items_max * 4;
        Reuse {
            items_max,
            threshold: MODULUS,
            items: HashedMap::default(),
            order: BinaryHeap::new(),
            count_tree: Fenwick::new(slots),
            byte_tree: Fenwick::new(slots),
            now: 0,
            histogram: Distances::default(),
            accesses: 0,
        }
    }

    /// The share of items that are followed: 1 is exact.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "at most 2^24")]
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / MODULUS as f64
    }

    /// About the mean error of a miss ratio: none when every item is followed, else what the paper
    /// measured for samples of a size (its section 5.2), a straight line in the logarithms.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "sizes of samples")]
    pub fn error(&self) -> f64 {
        if self.threshold == MODULUS { 0.0 } else { 0.5 / (self.items.len().max(1) as f64).sqrt() }
    }

    /// Accesses so far.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Takes an access of an item by its hash; says at which distance in items the last one was,
    /// where it is followed and not new.
    pub fn access(&mut self, hash: u64, bytes: u64) -> Option<u64> {
        self.accesses += 1;
        let place = hash & (MODULUS - 1);
        if place >= self.threshold {
            return None;
        }
        if self.now == self.count_tree.len() {
            self.renumber();
        }
        let slot = self.now;
        self.now += 1;
        let bytes = bytes.max(1);
        let mut distance = None;
        match self.items.insert(hash, Followed { slot, bytes }) {
            Some(before) => {
                let rate = self.rate();
                let items = self.count_tree.sum_after(before.slot) + 1;
                let size = self.byte_tree.sum_after(before.slot) + bytes;
                self.count_tree.subtract(before.slot, 1);
                self.byte_tree.subtract(before.slot, before.bytes);
                self.histogram.add(scaled(items, rate), scaled(size, rate));
                distance = Some(scaled(items, rate));
            }
            None => {
                self.histogram.cold += 1.0;
                self.histogram.counted += 1.0;
                self.order.push((place, hash));
            }
        }
        self.count_tree.add(slot, 1);
        self.byte_tree.add(slot, bytes);
        while self.items.len() > self.items_max {
            self.shrink();
        }
        distance
    }

    /// Follows fewer items: the last places go.
    fn shrink(&mut self) {
        let Some((last, _)) = self.order.peek().copied() else { return };
        let before = self.rate();
        self.threshold = last;
        while let Some((place, hash)) = self.order.peek().copied() {
            if place < last {
                break;
            }
            self.order.pop();
            if let Some(gone) = self.items.remove(&hash) {
                self.count_tree.subtract(gone.slot, 1);
                self.byte_tree.subtract(gone.slot, gone.bytes);
            }
        }
        self.histogram.scale(self.rate() / before);
    }

    /// Slots of time are used up: items keep their order in the first ones.
    fn renumber(&mut self) {
        let mut items: Vec<(usize, u64)> =
            self.items.iter().map(|(hash, followed)| (followed.slot, *hash)).collect();
        items.sort_unstable();
        self.count_tree.clear();
        self.byte_tree.clear();
        for (slot, (_, hash)) in items.iter().enumerate() {
            if let Some(followed) = self.items.get_mut(hash) {
                followed.slot = slot;
                self.count_tree.add(slot, 1);
                self.byte_tree.add(slot, followed.bytes);
            }
        }
        self.now = items.len();
    }

    /// Miss ratios of an LRU cache by the number of items that it holds.
    #[must_use]
    pub fn by_items(&self) -> Vec<MissRatio> {
        self.curve(&self.histogram.items)
    }

    /// Miss ratios of an LRU cache by its bytes.
    #[must_use]
    pub fn by_bytes(&self) -> Vec<MissRatio> {
        self.curve(&self.histogram.bytes)
    }

    /// How often distances lay in which bucket, in shares of all accesses: the bucket's upper end,
    /// and the share. The rest are first accesses.
    #[must_use]
    pub fn distances(&self) -> Vec<(u64, f64)> {
        let expected = self.expected();
        let share = |(bucket, count): (usize, &f64)| (upper_end(bucket), count / expected);
        self.histogram.items.iter().enumerate().map(share).filter(|(_, share)| *share > 0.0).collect()
    }

    /// The accesses that a sample of this rate should have.
    #[allow(clippy::cast_precision_loss, reason = "statistics")]
    fn expected(&self) -> f64 {
        (self.accesses as f64 * self.rate()).max(1.0)
    }

    fn curve(&self, histogram: &[f64]) -> Vec<MissRatio> {
        let expected = self.expected();
        // What the sample has too much or too little is of hot items: distance 0.
        let mut hits = if self.threshold == MODULUS { 0.0 } else { expected - self.histogram.counted };
        let mut points = vec![MissRatio { size: 0, ratio: 1.0 }];
        for (bucket, count) in histogram.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            hits += count;
            let ratio = (1.0 - hits / expected).clamp(0.0, 1.0);
            points.push(MissRatio { size: upper_end(bucket), ratio });
        }
        points
    }
}

/// The miss ratio of a curve at a size.
#[must_use]
pub fn miss_ratio_at(curve: &[MissRatio], size: u64) -> f64 {
    curve.iter().take_while(|point| point.size <= size).last().map_or(1.0, |point| point.ratio)
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a distance that is estimated"
)]
fn scaled(distance: u64, rate: f64) -> u64 {
    (distance as f64 / rate) as u64
}

impl Distances {
    fn add(&mut self, items: u64, bytes: u64) {
        for (histogram, distance) in [(&mut self.items, items), (&mut self.bytes, bytes)] {
            let bucket = bucket(distance);
            if histogram.len() <= bucket {
                histogram.resize(bucket + 1, 0.0);
            }
            histogram[bucket] += 1.0;
        }
        self.counted += 1.0;
    }

    fn scale(&mut self, factor: f64) {
        for count in self.items.iter_mut().chain(&mut self.bytes) {
            *count *= factor;
        }
        self.cold *= factor;
        self.counted *= factor;
    }
}

/// The bucket of a distance of at least 1: exact up to 32, then 16 to each doubling.
fn bucket(distance: u64) -> usize {
    let distance = distance.max(1);
    if distance <= 2 * SUB {
        return usize::try_from(distance).unwrap_or(0);
    }
    // The upper end is in the bucket: one more than a multiple begins the next.
    let before = distance - 1;
    let cut = 59 - u64::from(before.leading_zeros());
    let index = (before >> cut) - SUB;
    usize::try_from(2 * SUB + 1 + (cut - 1) * SUB + index).unwrap_or(usize::MAX)
}

/// The greatest distance of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket <= 2 * SUB {
        return bucket;
    }
    let (cut, index) = ((bucket - 2 * SUB - 1) / SUB + 1, (bucket - 2 * SUB - 1) % SUB);
    (SUB + index + 1) << cut
}

/// Sums of a prefix, and changes, in logarithmic time (Fenwick, 1994).
#[derive(Clone, Debug)]
struct Fenwick {
    sums: Vec<u64>,
    whole: u64,
}

impl Fenwick {
    fn new(slots: usize) -> Fenwick {
        Fenwick { sums: vec![0; slots], whole: 0 }
    }

    fn len(&self) -> usize {
        self.sums.len()
    }

    fn clear(&mut self) {
        self.sums.fill(0);
        self.whole = 0;
    }

    fn add(&mut self, slot: usize, amount: u64) {
        self.whole += amount;
        let mut at = slot;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum += amount;
            at |= at + 1;
        }
    }

    fn subtract(&mut self, slot: usize, amount: u64) {
        self.whole -= amount;
        let mut at = slot;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum -= amount;
            at |= at + 1;
        }
    }

    /// The sum of all slots after one.
    fn sum_after(&self, slot: usize) -> u64 {
        let (mut sum, mut at) = (0, slot + 1);
        while at > 0 {
            sum += self.sums[at - 1];
            at &= at - 1;
        }
        self.whole - sum
    }
}

#[cfg(test)]
mod tests;
