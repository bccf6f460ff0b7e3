//! Caches simulated over a stream of accesses: how many of them each policy would have missed.
//!
//! All caches hold a number of items, whatever their sizes. Items are 64-bit hashes.

mod arc;
mod belady;
mod fifo;
mod frequency;
mod list;
mod lru;
mod tiny;

pub use belady::belady_misses;

use self::arc::Arc;
use self::fifo::{Clock, S3Fifo, Sieve};
use self::frequency::Lfu;
use self::lru::{Ghosted, Lru};
use self::tiny::TinyLfu;

/// A policy of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The item goes whose last access is longest ago.
    Lru,
    /// In turn; an item that was accessed since the hand last passed stays once more.
    Clock,
    /// As `Clock`: what Tombolo's block cache does. A new item is not marked.
    Tombolo,
    /// The item goes that was accessed least often; of several, the one longest so.
    Lfu,
    /// Adaptive Replacement Cache (Megiddo and Modha, FAST 2003).
    Arc,
    /// S3-FIFO (Yang et al., SOSP 2023): a small queue before a large one.
    S3Fifo,
    /// SIEVE (Zhang et al., NSDI 2024).
    Sieve,
    /// W-TinyLFU (Einziger et al., 2017): a window of 1 % before a segmented LRU.
    TinyLfu,
    /// As `Lru`, and an item is taken in at its second access within a while.
    GhostLru,
    /// As `Clock`, and an item is taken in at its second access within a while.
    GhostClock,
    /// The item goes whose next access is farthest: no cache does better. It knows the future, and
    /// is simulated by [`belady_misses`].
    Belady,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 11] = [
        Policy::Lru,
        Policy::Clock,
        Policy::Tombolo,
        Policy::Lfu,
        Policy::Arc,
        Policy::S3Fifo,
        Policy::Sieve,
        Policy::TinyLfu,
        Policy::GhostLru,
        Policy::GhostClock,
        Policy::Belady,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::Lru => "lru",
            Policy::Clock => "clock",
            Policy::Tombolo => "tombolo",
            Policy::Lfu => "lfu",
            Policy::Arc => "arc",
            Policy::S3Fifo => "s3-fifo",
            Policy::Sieve => "sieve",
            Policy::TinyLfu => "w-tinylfu",
            Policy::GhostLru => "ghost-lru",
            Policy::GhostClock => "ghost-clock",
            Policy::Belady => "belady",
        }
    }

    /// The policy of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// A cache that is simulated.
pub trait Cache: Send {
    /// Takes an access; says whether the item was there.
    fn access(&mut self, item: u64) -> bool;
}

/// A cache that can be asked without an access.
trait Holds: Cache {
    fn holds(&self, item: u64) -> bool;
}

/// A cache of `policy` that holds so many items, at least 1; `None` for one that knows the future.
#[must_use]
pub fn simulated(policy: Policy, items_max: usize) -> Option<Box<dyn Cache>> {
    let items = items_max.max(1);
    Some(match policy {
        Policy::Lru => Box::new(Lru::new(items)),
        Policy::Clock | Policy::Tombolo => Box::new(Clock::new(items)),
        Policy::Lfu => Box::new(Lfu::new(items)),
        Policy::Arc => Box::new(Arc::new(items)),
        Policy::S3Fifo => Box::new(S3Fifo::new(items)),
        Policy::Sieve => Box::new(Sieve::new(items)),
        Policy::TinyLfu => Box::new(TinyLfu::new(items)),
        Policy::GhostLru => Box::new(Ghosted::new(Lru::new(items), items)),
        Policy::GhostClock => Box::new(Ghosted::new(Clock::new(items), items)),
        Policy::Belady => return None,
    })
}

#[cfg(test)]
mod tests;
