//! The chance of a simulated world: one generator per concern, all from one seed. Its choices are
//! on the tape of the thread, if there is one.

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::tape::Stream;

/// A seeded generator with the few draws that the world needs.
#[derive(Clone, Debug)]
pub(super) struct Random {
    bits: Xoshiro256PlusPlus,
    stream: Stream,
}

impl Random {
    /// A stream of its own for each `concern` of one seed.
    pub(super) fn new(seed: u64, concern: u64) -> Random {
        let bits = Xoshiro256PlusPlus::seed_from_u64(seed ^ concern.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Random { bits, stream: Stream::open(seed, concern) }
    }

    /// 64 bits that are no choice: what processes tell things apart by.
    pub(super) fn next(&mut self) -> u64 {
        self.bits.next_u64()
    }

    /// Uniform below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing to draw from");
        // The bias of a remainder is below 2^-40 for the small bounds drawn here.
        let drawn = self.next() % bound;
        self.stream.choose(bound, drawn)
    }

    /// Uniform index below `length`, which is not zero.
    pub(super) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Uniform index below `length`. `by_age` names the same places in an order in which the first
    /// has waited longest, so that always taking the first lets nobody wait for ever; it is
    /// asked for only when choices are on a tape.
    pub(super) fn index_by_age(&mut self, length: usize, by_age: impl FnOnce() -> Vec<usize>) -> usize {
        let drawn = usize::try_from(self.next() % length as u64).unwrap_or(0);
        if !self.stream.is_on_tape() {
            return drawn;
        }
        let by_age = by_age();
        let rank = by_age.iter().position(|index| *index == drawn).unwrap_or(0);
        let rank = usize::try_from(self.stream.choose(length as u64, rank as u64)).unwrap_or(0);
        by_age.get(rank).copied().unwrap_or(drawn)
    }

    /// True with the given probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits fill a double's mantissa.
        #[expect(clippy::cast_precision_loss)]
        let drawn = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        self.stream.happens(drawn < probability)
    }
}
