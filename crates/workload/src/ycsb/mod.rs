//! The six core workloads of YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB",
//! 2010).
//!
//! | | reads | updates | inserts | scans of 1 to 100 | read, then write | keys |
//! |---|---|---|---|---|---|---|
//! | A | 0.5 | 0.5 | | | | Zipf 0.99 |
//! | B | 0.95 | 0.05 | | | | Zipf 0.99 |
//! | C | 1 | | | | | Zipf 0.99 |
//! | D | 0.95 | | 0.05 | | | latest |
//! | E | | | 0.05 | 0.95 | | Zipf 0.99 |
//! | F | 0.5 | | | | 0.5 | Zipf 0.99 |
//!
//! Two things differ from the original, on purpose: popular keys are spread by a bijection, so that
//! every key is one of them exactly once (YCSB's hash leaves a third of the keys without a rank),
//! and keys are inserted in their order (YCSB's `insertorder=ordered`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::Rng;

use crate::distribution::InvalidDistribution;
use crate::{Distribution, KeyEncoding, Keys, Operation, Random, Source, Values, Verb};

/// Skew of YCSB's distributions.
pub const EXPONENT: f64 = 0.99;
/// Longest scan of E, in entries; lengths are uniform from 1 on.
pub const SCAN_ENTRIES_MAX: usize = 100;

/// Which of the six.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Core {
    /// Update heavy: a session store.
    A,
    /// Read mostly: tags of pictures.
    B,
    /// Read only: a cache of profiles.
    C,
    /// Read latest: status updates.
    D,
    /// Short ranges: threads of conversations.
    E,
    /// Read, then write: a user database.
    F,
}

impl Core {
    /// The share of each verb and whether its puts insert: gets, puts, scans, read-then-writes.
    fn shares(self) -> [(Verb, f64); 2] {
        match self {
            Core::A => [(Verb::Get, 0.5), (Verb::Put, 0.5)],
            Core::B | Core::D => [(Verb::Get, 0.95), (Verb::Put, 0.05)],
            Core::C => [(Verb::Get, 1.0), (Verb::Put, 0.0)],
            Core::E => [(Verb::Scan, 0.95), (Verb::Put, 0.05)],
            Core::F => [(Verb::Get, 0.5), (Verb::Modify, 0.5)],
        }
    }

    /// Whether its puts are of new keys.
    #[must_use]
    pub fn inserts(self) -> bool {
        matches!(self, Core::D | Core::E)
    }

    /// The distribution that the paper gives it.
    #[must_use]
    pub fn distribution(self) -> Distribution {
        match self {
            Core::D => Distribution::Latest { exponent: EXPONENT },
            _ => Distribution::Zipfian { exponent: EXPONENT },
        }
    }
}

/// Makes the operations of one thread.
#[derive(Clone, Debug)]
pub struct Ycsb {
    core: Core,
    distribution: Distribution,
    /// Over the keys that were there when it was made.
    keys: Keys,
    /// Keys inserted by all threads of the run: their numbers follow those of the loaded ones.
    inserted: Arc<AtomicU64>,
    /// Keys that were loaded.
    loaded: u64,
    encoding: KeyEncoding,
    values: Arc<Values>,
    random: Random,
    key: Vec<u8>,
}

impl Ycsb {
    /// The workload `core` on `loaded` keys. `distribution` takes the place of the paper's;
    /// `inserted` counts the insertions of all threads, from 0.
    ///
    /// # Errors
    /// When there are no keys, or the distribution's parameters are out of range.
    pub fn new(
        core: Core,
        distribution: Option<Distribution>,
        loaded: u64,
        inserted: Arc<AtomicU64>,
        encoding: KeyEncoding,
        values: Arc<Values>,
        random: Random,
    ) -> Result<Ycsb, InvalidDistribution> {
        let distribution = distribution.unwrap_or(core.distribution());
        let keys = Keys::new(distribution, loaded)?;
        Ok(Ycsb { core, distribution, keys, inserted, loaded, encoding, values, random, key: Vec::new() })
    }

    /// A key that is there. The newest are known to `Latest` only, as in YCSB: others were spread
    /// over the loaded keys.
    fn existing(&mut self) -> u64 {
        if matches!(self.distribution, Distribution::Latest { .. }) {
            let count = self.loaded + self.inserted.load(Ordering::Relaxed);
            if count > self.keys.count() {
                self.keys.grow(count);
            }
        }
        self.keys.draw(&mut self.random)
    }
}

impl Source for Ycsb {
    fn draw(&mut self) -> Operation<'_> {
        let [(first, share), (second, _)] = self.core.shares();
        let verb = if self.random.random::<f64>() < share { first } else { second };
        let number = match verb {
            Verb::Put if self.core.inserts() => self.loaded + self.inserted.fetch_add(1, Ordering::Relaxed),
            _ => self.existing(),
        };
        self.encoding.encode(number, &mut self.key);
        let scan_entries =
            if verb == Verb::Scan { self.random.random_range(1..=SCAN_ENTRIES_MAX) } else { 0 };
        let value =
            if matches!(verb, Verb::Put | Verb::Modify) { self.values.draw(&mut self.random) } else { &[] };
        Operation { verb, key: &self.key, value, scan_entries }
    }
}

#[cfg(test)]
mod tests;
