//! Counts a thread's operations and samples their latencies.

use std::time::Duration;

use super::{Outcome, Plan, Shared};
use crate::TargetError;

/// Calls whose latency is measured one by one before the meter decides how often to sample.
const CALLS_FIRST: u32 = 64;
/// Faster calls than this are sampled: two readings of the clock (60 to 150 ns) would be a percent
/// of them, or much more.
const NANOS_FAST: u64 = 10_000;
/// How often fast calls are sampled.
const EVERY_FAST: u32 = 8;
/// Who writes at a rate runs ahead by less than this: in bursts that are short beside the
/// measured time, and long beside a wake-up.
const PACE: Duration = Duration::from_millis(1);
/// Who waits for its turn looks this often whether the others have ended.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Failed operations of one thread after which it gives up, though trying again might help.
const ERRORS_MAX: u64 = 1000;

/// Measures one thread.
///
/// A sample is the latency of one call. What passes between two samples is measured too, with the
/// readings that there are: it counts as the latency of the slowest call in between when it is
/// longer than every sample, so that a stall shows in the maximum whichever call met it.
pub struct Meter<'a, C> {
    clock: &'a C,
    shared: &'a Shared,
    /// Whose progress this is.
    thread: usize,
    every: Option<u32>,
    /// Calls until the next sample.
    left: u32,
    /// Calls until the meter decides how often to sample.
    first: u32,
    end_at: Option<Duration>,
    last: Duration,
    gap_max: Duration,
    failed: bool,
    pub(super) outcome: Outcome,
}

impl<'a, C: Fn() -> Duration> Meter<'a, C> {
    pub(super) fn new(plan: &Plan, clock: &'a C, shared: &'a Shared, thread: usize) -> Meter<'a, C> {
        let now = clock();
        Meter {
            clock,
            shared,
            thread,
            every: plan.sample_every,
            left: 1,
            first: if plan.sample_every.is_some() { 0 } else { CALLS_FIRST },
            end_at: plan.duration.map(|duration| now + duration),
            last: now,
            gap_max: Duration::ZERO,
            failed: false,
            outcome: Outcome { begun: now, ended: now, sampled_every: 1, ..Outcome::default() },
        }
    }

    /// Measuring begins now: the thread has made ready what it works on.
    pub(super) fn begin_now(&mut self) {
        let now = (self.clock)();
        let late = now.saturating_sub(self.outcome.begun);
        self.end_at = self.end_at.map(|end| end + late);
        (self.last, self.outcome.begun, self.outcome.ended) = (now, now, now);
    }

    /// Waits until `since_begun` has passed, but for less than a millisecond, and no longer than
    /// the others are at work. Such waits count in no call's latency.
    pub(super) fn wait_until(&mut self, since_begun: Duration) {
        let due = self.outcome.begun + since_begun;
        let mut left = due.saturating_sub((self.clock)());
        while left >= PACE && !self.shared.is_done() {
            (self.shared.sleep)(left.min(PAUSE_MAX));
            self.last = (self.clock)();
            left = due.saturating_sub(self.last);
        }
    }

    /// Begins a call; gives the time when it is a sample.
    #[inline]
    pub fn begin(&mut self) -> Option<Duration> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let now = (self.clock)();
        self.gap_max = self.gap_max.max(now.saturating_sub(self.last));
        Some(now)
    }

    /// Ends a call of `operations` operations; returns whether to go on.
    #[inline]
    pub fn end(&mut self, begun: Option<Duration>, operations: u64, result: Result<(), TargetError>) -> bool {
        self.outcome.operations += operations;
        if let Err(error) = result {
            self.fail(error, operations);
        }
        match begun {
            None => !self.failed,
            Some(begun) => self.sample(begun),
        }
    }

    #[cold]
    fn fail(&mut self, error: TargetError, operations: u64) {
        self.outcome.operations -= operations;
        self.outcome.errors += operations.max(1);
        self.failed |= !error.retryable || self.outcome.errors >= ERRORS_MAX;
        self.outcome.first_error.get_or_insert(error.message);
    }

    fn sample(&mut self, begun: Duration) -> bool {
        let now = (self.clock)();
        self.last = now;
        self.outcome.latencies.record(now.saturating_sub(begun));
        self.shared.progress[self.thread]
            .0
            .store(self.outcome.operations, std::sync::atomic::Ordering::Relaxed);
        if self.first > 0 {
            self.first -= 1;
            if self.first == 0 {
                let fast = self.outcome.latencies.summary().p50.as_nanos() < u128::from(NANOS_FAST);
                self.every = Some(if fast { EVERY_FAST } else { 1 });
            }
        }
        self.left = self.every.unwrap_or(1);
        self.outcome.sampled_every = self.left;
        !self.failed && !self.shared.is_stopped() && self.end_at.is_none_or(|end| now < end)
    }

    /// The measurements of what could not begin.
    pub(super) fn failed(mut self, message: String) -> Outcome {
        self.end(None, 0, Err(TargetError { message, retryable: false }));
        self.finish()
    }

    /// The measurements.
    pub(super) fn finish(mut self) -> Outcome {
        let now = (self.clock)();
        self.gap_max = self.gap_max.max(now.saturating_sub(self.last));
        self.outcome.ended = now;
        // Samples of one in `every` stand for all; a stall between them is one call's.
        if self.outcome.sampled_every > 1 && self.gap_max > self.outcome.latencies.summary().max {
            self.outcome.latencies.record(self.gap_max);
        }
        self.shared.progress[self.thread]
            .0
            .store(self.outcome.operations, std::sync::atomic::Ordering::Relaxed);
        self.outcome
    }
}
