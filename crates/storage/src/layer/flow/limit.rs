//! How many requests a store takes at once, found out by trying: one more for each round of
//! requests while all places were used, half as many when the store refuses, and a tenth fewer a
//! second while its median latency is high. Does nothing itself.

use std::time::Duration;

use tombolo_env::Instant;

use crate::ErrorKind;
use crate::mutant::{Mutant, is_enabled};

/// Requests at once to begin with.
pub(super) const LIMIT_FIRST: usize = 64;
/// The fewest: enough for a read, a flush and a compaction.
const LIMIT_MIN: usize = 4;
/// The fewest to which it falls for latency alone: a store that is slow by itself does not gain by
/// fewer.
const LIMIT_SLOW_MIN: usize = 32;
/// At most one fall for latency in so long: a machine that stalls for some milliseconds looks like
/// a slow store.
const SLOW_FALLS_APART: Duration = Duration::from_secs(1);
/// The most.
pub(super) const LIMIT_MAX: usize = 128;

/// Parts of a place that the limit is counted in, so that it rises by less than one.
const PARTS: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Limit {
    /// Invariant: from `LIMIT_MIN` to `LIMIT_MAX` places.
    parts: usize,
    /// When it fell last: requests that began before it say nothing about the limit of now.
    fell_at: Option<Instant>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) began: Instant,
    pub(super) now: Instant,
    pub(super) failed: Option<ErrorKind>,
    /// All places were taken.
    pub(super) was_full: bool,
    /// The store as a whole is slow.
    pub(super) is_slow: bool,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { parts: LIMIT_FIRST * PARTS, fell_at: None }
    }
}

impl Limit {
    pub(super) fn places(&self) -> usize {
        self.parts / PARTS
    }

    /// A request ended; gives the limit from now on when it changed.
    pub(super) fn step(&mut self, ended: Ended) -> Option<usize> {
        let before = self.places();
        let refused = matches!(ended.failed, Some(ErrorKind::Retry | ErrorKind::Busy))
            && !is_enabled(Mutant::FlowIgnoresRefusals);
        let told = self.fell_at.is_none_or(|fell_at| ended.began >= fell_at);
        let is_slow = ended.is_slow && ended.was_full && before > LIMIT_SLOW_MIN;
        if refused && told {
            self.parts /= 2;
            self.fell_at = Some(ended.now);
        } else if is_slow
            && told
            && self.fell_at.is_none_or(|fell_at| ended.now.since(fell_at) >= SLOW_FALLS_APART)
        {
            self.parts = (self.parts / 10 * 9).max(LIMIT_SLOW_MIN * PARTS);
            self.fell_at = Some(ended.now);
        } else if ended.failed.is_none() && ended.was_full && !ended.is_slow {
            self.parts += PARTS / before.max(1);
        }
        self.parts = self.parts.clamp(LIMIT_MIN * PARTS, LIMIT_MAX * PARTS);
        Some(self.places()).filter(|places| *places != before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(nanos: u64, failed: Option<ErrorKind>, was_full: bool, is_slow: bool) -> Ended {
        Ended {
            began: Instant::from_nanos(nanos),
            now: Instant::from_nanos(nanos + 10),
            failed,
            was_full,
            is_slow,
        }
    }

    #[test]
    fn it_rises_by_one_a_round_and_falls_once_for_all_that_were_on_their_way() {
        let mut limit = Limit::default();
        for _ in 0..=LIMIT_FIRST {
            limit.step(ended(0, None, true, false));
        }
        assert_eq!(limit.places(), LIMIT_FIRST + 1);
        assert_eq!(limit.step(ended(5, None, false, false)), None, "places that are not used say nothing");
        assert_eq!(limit.step(ended(100, Some(ErrorKind::Retry), true, false)), Some(LIMIT_FIRST / 2));
        for nanos in 60..110 {
            assert_eq!(
                limit.step(ended(nanos, Some(ErrorKind::Busy), true, false)),
                None,
                "began before it fell"
            );
        }
        assert_eq!(limit.step(ended(111, Some(ErrorKind::Busy), true, false)), Some(16));
        assert_eq!(limit.step(ended(2_000_000_000, None, true, true)), None, "few already");
        let mut slowed = Limit::default();
        assert_eq!(slowed.step(ended(200, None, true, true)), Some(57), "a store that slows down");
        assert_eq!(slowed.step(ended(900_000_000, None, true, true)), None, "soon after");
        assert_eq!(slowed.step(ended(1_100_000_000, None, true, true)), Some(51));
        for second in 3..20 {
            slowed.step(ended(second * 1_000_000_000, None, true, true));
        }
        assert_eq!(slowed.places(), LIMIT_SLOW_MIN);
        for nanos in 1..100 {
            limit.step(ended(nanos * 1000, Some(ErrorKind::Retry), true, false));
        }
        assert_eq!(limit.places(), LIMIT_MIN);
        for nanos in 0..1_000_000 {
            limit.step(ended(1_000_000 + nanos, None, true, false));
        }
        assert_eq!(limit.places(), LIMIT_MAX);
        limit.step(ended(3_000_000, Some(ErrorKind::NotFound), true, false));
        assert_eq!(limit.places(), LIMIT_MAX, "an answer is no refusal");
    }
}
