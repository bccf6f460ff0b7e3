//! `mixgraph`, the model of a production database by Cao et al. ("Characterizing, Modeling, and
//! Benchmarking RocksDB Key-Value Workloads at Facebook", FAST 2020), with the parameters published
//! for one of them (ZippyDB).
//!
//! The keys are cut into ranges of equal size. How often a range is accessed follows a two-term
//! exponential over its rank; how often a key within its range, a power law. 83 % of the operations
//! are gets, 14 % puts, 3 % scans; sizes of values and lengths of scans are generalised Pareto.
//!
//! What db_bench does and this does not: there, verb, key and length all derive from one random
//! number and are therefore correlated; here each is drawn on its own. There, lengths above the
//! maximum are wrapped by modulo, which makes short ones more frequent; here they are drawn again.
//! Its sine of the rate is left out: what a benchmark measures is the rate.

use std::sync::Arc;

use rand::Rng;
use rand::seq::SliceRandom;

use crate::{KeyEncoding, Operation, Random, Source, ValueSizes, Values, Verb};

/// Ranges of the key space.
pub const RANGES: u64 = 30;
/// Two-term exponential over the ranks of ranges, `a·e^(b·x) + c·e^(d·x)`.
const RANGE: [f64; 4] = [14.18, -2.917, 0.0164, -0.08082];
/// Power law within a range: the k-th key is drawn with the distribution function `a·k^b`.
const KEY: [f64; 2] = [0.002_312, 0.3467];
/// Shares of gets and puts; the rest are scans.
const SHARES: [f64; 2] = [0.83, 0.14];
/// Lengths of scans, in entries: as db_bench's, at most 10,000.
const SCANS: ValueSizes =
    ValueSizes::Pareto { location: 0.0, shape: 2.517, scale: 14.236, least: 1, most: 10_000 };
/// Sizes of values, in bytes: 10 to 1,024, with a mean of 34 to 38.
pub const VALUES: ValueSizes =
    ValueSizes::Pareto { location: 0.0, shape: 0.2615, scale: 25.45, least: 10, most: 1024 };

/// Where the accesses go: the same for all threads of a run.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// Upper ends of the ranges' shares, ascending; the last is 1.
    ends: Vec<f64>,
    /// Keys.
    count: u64,
}

impl Ranges {
    /// Ranges of `count` keys; which of them are popular is drawn from `random`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "ranks up to 30")]
    pub fn new(count: u64, random: &mut Random) -> Ranges {
        let [a, b, c, d] = RANGE;
        let weight = |rank: u64| a * (b * rank as f64).exp() + c * (d * rank as f64).exp();
        let mut weights: Vec<f64> = (1..=RANGES.min(count.max(1))).map(weight).collect();
        weights.shuffle(random);
        let whole: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let ends = weights.iter().map(|weight| {
            sum += weight / whole;
            sum
        });
        Ranges { ends: ends.collect(), count: count.max(1) }
    }

    /// The next key number.
    fn draw(&self, random: &mut Random) -> u64 {
        let drawn: f64 = random.random();
        let ranges = self.ends.len() as u64;
        let range = (self.ends.partition_point(|end| *end <= drawn) as u64).min(ranges - 1);
        let (begin, end) = (self.count * range / ranges, self.count * (range + 1) / ranges);
        let [a, b] = KEY;
        // In (0, 1]: never the rank 0.
        let place = ((1.0 - random.random::<f64>()) / a).powf(1.0 / b).ceil();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 1; beyond 2^64 it is 2^64 − 1"
        )]
        let rank = place as u64;
        begin + scatter(rank) % (end - begin).max(1)
    }
}

/// Moves popular ranks away from each other; several may meet, as in db_bench. The finaliser of
/// SplitMix64.
fn scatter(rank: u64) -> u64 {
    let mixed = (rank ^ (rank >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Makes the operations of one thread.
#[derive(Clone, Debug)]
pub struct Mixgraph {
    ranges: Arc<Ranges>,
    encoding: KeyEncoding,
    values: Arc<Values>,
    random: Random,
    key: Vec<u8>,
}

impl Mixgraph {
    /// A generator over `ranges`; `values` should be of the sizes [`VALUES`].
    #[must_use]
    pub fn new(ranges: Arc<Ranges>, encoding: KeyEncoding, values: Arc<Values>, random: Random) -> Mixgraph {
        Mixgraph { ranges, encoding, values, random, key: Vec::new() }
    }
}

impl Source for Mixgraph {
    fn draw(&mut self) -> Operation<'_> {
        let drawn: f64 = self.random.random();
        let [get, put] = SHARES;
        let verb = match drawn {
            _ if drawn < get => Verb::Get,
            _ if drawn < get + put => Verb::Put,
            _ => Verb::Scan,
        };
        self.encoding.encode(self.ranges.draw(&mut self.random), &mut self.key);
        let scan_entries = if verb == Verb::Scan { SCANS.draw(&mut self.random) } else { 0 };
        let value = if verb == Verb::Put { self.values.draw(&mut self.random) } else { &[] };
        Operation { verb, key: &self.key, value, scan_entries }
    }
}

#[cfg(test)]
mod tests;
