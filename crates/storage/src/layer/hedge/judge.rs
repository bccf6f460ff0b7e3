//! When a second request is made, decided from what the first ones took. Does nothing itself.
//!
//! Invariants:
//! 1. Second requests are at most one for each [`READS_PER_HEDGE`] reads since the store was
//!    opened: each read earns that part of one.
//! 2. A second request is made only after the first took longer than [`DELAY_PERMILLE`] of the
//!    reads of its size did lately, or than [`DELAY_OF_MEDIAN_MAX`] times their median, be it of
//!    long or of the last ones.

use std::time::Duration;

use tombolo_env::Instant;

use super::latencies::Latencies;
use crate::mutant::{Mutant, is_enabled};
use crate::{ErrorKind, StorePerformance};

/// Reads for each second request, at least: 5 %.
pub(super) const READS_PER_HEDGE: u32 = 20;

/// Second requests that may be saved up for bad moments.
const HEDGES_SAVED_MAX: u32 = 16;

/// Of a thousand reads, so many were faster than the delay: somewhat fewer are late than may be
/// hedged, so that there is one for the worst.
const DELAY_PERMILLE: u32 = 955;

/// And at most so many times the median: where more than one read in twenty is far beyond it, each
/// of those is late.
const DELAY_OF_MEDIAN_MAX: u32 = 3;

/// Samples of a size before its median counts, so that what takes many times that is late, and
/// before it is known where the slowest of twenty begin.
const SAMPLES_MIN: u32 = 16;
const SAMPLES_FOR_DELAY: u32 = 64;

/// Samples after which the usual latency weighs half.
const USUAL_WINDOW: u32 = 2048;
/// Samples after which what was lately weighs half.
const RECENT_WINDOW: u32 = 64;

/// The store as a whole is slow when the recent median is so many times the usual one.
const SLOW_FACTOR: f64 = 1.6;

/// How many samples pass between two looks at the percentiles.
const LOOK_EVERY: u32 = 16;

/// After an error that passes (the store is busy, or refuses) no second request is made for so
/// long.
const QUIET_AFTER_ERROR: Duration = Duration::from_secs(1);

/// Second requests win where fewer than so many of a thousand do: then one of [`TRIED_ANYWAY`] is
/// made, to see when they win again.
const WINS_PERMILLE_MIN: u32 = 60;
const TRIED_ANYWAY: u32 = 16;
/// How many outcomes have a say in it.
const WINS_WINDOW: u32 = 16;

/// Sizes are told apart up to these, in bytes.
const SIZES: [u64; 4] = [32 << 10, 128 << 10, 512 << 10, 2 << 20];

/// A class of reads by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(usize);

impl Size {
    pub(super) fn of(bytes: u64) -> Size {
        Size(SIZES.iter().position(|max| bytes <= *max).unwrap_or(SIZES.len()))
    }
}

/// What we know of reads of a size.
#[derive(Debug)]
struct Known {
    usual: Latencies,
    recent: Latencies,
    /// Of all samples.
    bytes: u64,
    samples: u64,
    /// As of the last look.
    delay: Option<Duration>,
    p50: Duration,
    p99: Duration,
    is_slow: bool,
    until_look: u32,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            usual: Latencies::new(USUAL_WINDOW),
            recent: Latencies::new(RECENT_WINDOW),
            bytes: 0,
            samples: 0,
            delay: None,
            p50: Duration::ZERO,
            p99: Duration::ZERO,
            is_slow: false,
            until_look: 0,
        }
    }
}

impl Known {
    fn add(&mut self, bytes: u64, latency: Duration) {
        self.usual.add(latency);
        self.recent.add(latency);
        self.bytes = self.bytes.saturating_add(bytes);
        self.samples += 1;
        self.until_look = self.until_look.saturating_sub(1);
        if self.until_look == 0 && self.usual.total() >= SAMPLES_MIN {
            self.until_look = LOOK_EVERY;
            self.p50 = self.usual.permille(500);
            self.p99 = self.usual.permille(990);
            // What was usual under load is late once it is over.
            let recent = self.recent.permille(500);
            let far_beyond = self.p50.min(recent) * DELAY_OF_MEDIAN_MAX;
            let is_tail_known = self.usual.total() >= SAMPLES_FOR_DELAY;
            self.delay = Some(if is_tail_known {
                self.usual.permille(DELAY_PERMILLE).min(far_beyond)
            } else {
                far_beyond
            });
            self.is_slow = recent > self.p50.mul_f64(SLOW_FACTOR);
        }
    }

    fn mean_bytes(&self) -> u64 {
        self.bytes / self.samples.max(1)
    }
}

/// Decides. See the module.
#[derive(Debug)]
pub(super) struct Judge {
    sizes: [Known; SIZES.len() + 1],
    /// Each read earns one, a second request costs [`READS_PER_HEDGE`].
    saved: u32,
    quiet_until: Option<Instant>,
    /// Of a thousand second requests, so many won lately.
    wins_permille: u32,
    not_made: u32,
    reads: u64,
    hedges: u64,
    won: u64,
    suppressed: u64,
}

impl Default for Judge {
    fn default() -> Judge {
        Judge {
            sizes: Default::default(),
            saved: 0,
            quiet_until: None,
            wins_permille: 1000 / 2,
            not_made: 0,
            reads: 0,
            hedges: 0,
            won: 0,
            suppressed: 0,
        }
    }
}

impl Judge {
    /// A read begins that may be hedged: after which time, if it may at all.
    pub(super) fn begin(&mut self, size: Size) -> Option<Duration> {
        self.reads += 1;
        self.saved = (self.saved + 1).min(HEDGES_SAVED_MAX * READS_PER_HEDGE);
        self.sizes[size.0].delay
    }

    /// The first request of a read takes long: whether a second one is made now.
    pub(super) fn hedge(&mut self, size: Size, now: Instant) -> bool {
        let affordable = self.saved >= READS_PER_HEDGE || is_enabled(Mutant::HedgeShareUnbounded);
        let store_is_well = !self.sizes[size.0].is_slow && self.quiet_until.is_none_or(|until| until <= now);
        let store_is_well = store_is_well || is_enabled(Mutant::HedgeSlowStore);
        let mut made = affordable && store_is_well;
        if made && self.wins_permille < WINS_PERMILLE_MIN && !is_enabled(Mutant::HedgeLosing) {
            self.not_made += 1;
            made = self.not_made.is_multiple_of(TRIED_ANYWAY);
        }
        if made {
            self.saved = self.saved.saturating_sub(READS_PER_HEDGE);
            self.hedges += 1;
        } else {
            self.suppressed += 1;
        }
        made
    }

    /// A first request for so many bytes took so long; of one that was overtaken, at least so long.
    pub(super) fn took(&mut self, bytes: u64, latency: Duration) {
        self.sizes[Size::of(bytes).0].add(bytes, latency);
    }

    /// A second request ended before the first, or did not.
    pub(super) fn hedged(&mut self, won: bool) {
        self.won += u64::from(won);
        self.wins_permille =
            (self.wins_permille * (WINS_WINDOW - 1) + if won { 1000 } else { 0 }) / WINS_WINDOW;
    }

    /// A request failed.
    pub(super) fn failed(&mut self, kind: ErrorKind, now: Instant) {
        if matches!(kind, ErrorKind::Retry | ErrorKind::Busy) {
            self.quiet_until = Some(now + QUIET_AFTER_ERROR);
        }
    }

    pub(super) fn performance(&self) -> StorePerformance {
        let known = |known: &&Known| known.p50 > Duration::ZERO;
        let small = self.sizes.iter().find(known);
        StorePerformance {
            latency_p50: small.map_or(Duration::ZERO, |small| small.p50),
            latency_p99: small.map_or(Duration::ZERO, |small| small.p99),
            bytes_per_second: self.bytes_per_second(),
            is_slow: self.sizes.iter().any(|known| known.is_slow),
            reads: self.reads,
            hedges: self.hedges,
            hedges_won: self.won,
            hedges_suppressed: self.suppressed,
            ..StorePerformance::default()
        }
    }

    /// From how much longer the largest reads take than the smallest.
    fn bytes_per_second(&self) -> u64 {
        let mut known = self.sizes.iter().filter(|known| known.p50 > Duration::ZERO);
        let (Some(small), Some(large)) = (known.next(), known.next_back()) else { return 0 };
        let (bytes, longer) =
            (large.mean_bytes().saturating_sub(small.mean_bytes()), large.p50.saturating_sub(small.p50));
        match u64::try_from(longer.as_nanos()) {
            Ok(nanos @ 1..) => {
                u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(nanos)).unwrap_or(u64::MAX)
            }
            _ => 0,
        }
    }
}
