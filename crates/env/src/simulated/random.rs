//! The chance of a simulated world: one generator per concern, all from one seed.

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded generator with the few draws that the world needs.
#[derive(Clone, Debug)]
pub(super) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// A stream of its own for each `concern` of one seed.
    pub(super) fn new(seed: u64, concern: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed ^ concern.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing to draw from");
        // The bias of a remainder is below 2^-40 for the small bounds drawn here.
        self.next() % bound
    }

    /// Uniform index below `length`, which is not zero.
    pub(super) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// True with the given probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits fill a double's mantissa.
        #[expect(clippy::cast_precision_loss)]
        let drawn = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < probability
    }
}
