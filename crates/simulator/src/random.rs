//! The chance of scenarios: one small generator whose sequence never changes, so that seeds replay
//! for ever.
//!
//! All that a scenario draws is on the tape of the thread while a history is played
//! ([`tape`](tombolo_env::simulated::tape)): a number below a bound is a choice, of which 0 should
//! be the one with which least happens; 64 bits seed another generator, or tell something apart.

use tombolo_env::simulated::tape::Stream;

/// `SplitMix64` (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub struct Random {
    state: u64,
    stream: Stream,
}

impl Random {
    /// The generator of `seed`; `stream` tells generators of one seed apart.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random { stream: Stream::open(seed, stream), ..Random::fixed(seed, stream) }
    }

    /// As [`Random::new`], of numbers that are no choices: they are on no tape.
    pub fn fixed(seed: u64, stream: u64) -> Random {
        let mut random =
            Random { state: seed ^ stream.wrapping_mul(0xA24B_AED4_963E_E407), stream: Stream::default() };
        random.draw();
        random
    }

    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// 64 random bits.
    #[allow(
        clippy::should_implement_trait,
        reason = "an endless sequence of numbers is no iterator to anybody here"
    )]
    pub fn next(&mut self) -> u64 {
        let drawn = self.draw();
        self.stream.value(drawn)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let drawn = self.draw() % bound.max(1);
        self.stream.choose(bound, drawn)
    }

    /// An index below `length`.
    #[allow(clippy::cast_possible_truncation, reason = "below a usize")]
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        let drawn = self.draw() % 100 < percent;
        self.stream.happens(drawn)
    }
}
