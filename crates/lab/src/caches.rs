//! Caches simulated on a trace: several policies and sizes in one pass.

use tombolo_format::checksum::{key_hash, mix64};
use tombolo_format::trace::{Asked, Event};
use tombolo_workload::cache::{Cache, Policy, belady_misses, simulated};

/// Misses of a policy at a size.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// The policy.
    pub policy: Policy,
    /// Items that the cache holds.
    pub items_max: usize,
    /// Accesses.
    pub accesses: u64,
    /// Those that missed.
    pub misses: u64,
}

impl Simulated {
    /// Misses by accesses.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.accesses.max(1) as f64
    }
}

/// Most accesses that are kept for a policy that knows the future: a gigabyte of them.
const KEPT_MAX: usize = 128 << 20;

/// Takes accesses of keys, or of blocks.
pub struct CacheSimulation {
    caches: Vec<(Simulated, Box<dyn Cache>)>,
    /// For policies that know the future.
    future: Vec<usize>,
    kept: Vec<u64>,
    /// Whether writes are accesses, too.
    counts_writes: bool,
}

impl std::fmt::Debug for CacheSimulation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CacheSimulation").field("caches", &self.caches.len()).finish_non_exhaustive()
    }
}

impl CacheSimulation {
    /// Each policy at each size, in items.
    #[must_use]
    pub fn new(policies: &[Policy], sizes: &[usize], counts_writes: bool) -> CacheSimulation {
        let (mut caches, mut future) = (Vec::new(), Vec::new());
        for policy in policies {
            for items_max in sizes {
                match simulated(*policy, *items_max) {
                    Some(cache) => {
                        let counted =
                            Simulated { policy: *policy, items_max: *items_max, accesses: 0, misses: 0 };
                        caches.push((counted, cache));
                    }
                    None => future.push(*items_max),
                }
            }
        }
        CacheSimulation { caches, future, kept: Vec::new(), counts_writes }
    }

    /// Takes an event.
    pub fn add(&mut self, event: &Event<'_>) {
        if event.asked == Asked::RangeDelete || event.asked.is_write() && !self.counts_writes {
            return;
        }
        self.access(mix64(key_hash(event.key) ^ u64::from(event.keyspace)));
    }

    /// Takes an access.
    pub fn access(&mut self, item: u64) {
        for (counted, cache) in &mut self.caches {
            counted.accesses += 1;
            counted.misses += u64::from(!cache.access(item));
        }
        if !self.future.is_empty() && self.kept.len() < KEPT_MAX {
            self.kept.push(item);
        }
    }

    /// What each of them missed.
    #[must_use]
    pub fn finish(self) -> Vec<Simulated> {
        let mut all: Vec<Simulated> = self.caches.into_iter().map(|(counted, _)| counted).collect();
        all.extend(self.future.iter().map(|items_max| Simulated {
            policy: Policy::Belady,
            items_max: *items_max,
            accesses: self.kept.len() as u64,
            misses: belady_misses(&self.kept, *items_max),
        }));
        all
    }
}
