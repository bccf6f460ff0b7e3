//! How much writers are slowed when background work falls behind: smoothly, by measured rates, and
//! never to a stop.
//!
//! Two things pile up before background work: memtables before flushes, and runs of level 0 before
//! compaction. Each has a range in which writers are slowed. Two thirds into it writers are let
//! through at just the rate at which that work was measured to go, so that the pile comes to rest
//! there; at its beginning they are not slowed at all, and at its end to two thirds of the rate, so
//! that the pile shrinks.
//!
//! What rates are measured by:
//! - a flush: the bytes of its memtable, by how long it took;
//! - level 0: what flushes brought as runs, by how long compaction was busy, with whatever, since
//!   runs last left: what deeper levels take is time that level 0 waits. Idle time does not count,
//!   or slowed writers would make compaction look slow.
//!
//! Invariant: nobody is slowed for runs that nobody takes away: see what `write` puts into
//! [`Pressure`].
//!
//! Thread safety: rates are read without a lock; what measures them takes one, some times a second.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::Instant;

/// The assumed rate before one was measured.
const RATE_UNMEASURED: u64 = 32 << 20;
/// No writer is slowed to less than two thirds of this, whatever was measured.
const RATE_MIN: u64 = 64 << 10;
/// Runs of level 0 beyond which writers are slowed, and at which they are slowed most: three and
/// nine times what starts a compaction.
pub(crate) const RUNS_SLOW: usize = 12;
const RUNS_SLOWEST: usize = 36;
/// One piece of work counts at most this many times as slow as was measured before: one bad moment
/// says little.
const OUTLIER: f64 = 4.0;

/// Why writers are slowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallReason {
    /// Flushes do not keep up: memtables wait for them.
    Flush,
    /// Compaction does not keep up: level 0 has many runs.
    Compaction,
}

impl fmt::Display for StallReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            StallReason::Flush => "flushes do not keep up: memtables wait for them",
            StallReason::Compaction => "compaction does not keep up: level 0 has many runs",
        })
    }
}

/// How writers are slowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slowed {
    pub(crate) reason: StallReason,
    /// All writers together are let through at this rate.
    pub(crate) bytes_per_second: u64,
}

impl Slowed {
    /// How long `bytes` take.
    pub(crate) fn time(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// What piles up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// Memtables in use, the active one by how full it is, in thousandths.
    pub(crate) filled: u64,
    /// Memtables that there may be; at least 2.
    pub(crate) memtables_max: u64,
    /// The most runs that level 0 of a keyspace has; 0 when nothing takes them away.
    pub(crate) runs: usize,
}

/// A rate whose measurements count less as they age.
#[derive(Debug, Default)]
struct Rate {
    /// Bytes and seconds.
    sums: Mutex<(f64, f64)>,
    /// 0 before the first measurement.
    bytes_per_second: AtomicU64,
}

impl Rate {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is an estimate"
    )]
    fn measured(&self, bytes: u64, took: Duration) {
        let (bytes, mut seconds) = (bytes as f64, took.as_secs_f64().max(1e-6));
        let mut sums = self.sums.lock();
        if sums.0 > 0.0 {
            seconds = seconds.min(bytes * sums.1 / sums.0 * OUTLIER);
        }
        *sums = (sums.0 * 0.75 + bytes, sums.1 * 0.75 + seconds);
        self.bytes_per_second.store(((sums.0 / sums.1) as u64).max(1), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        match self.bytes_per_second.load(Ordering::Relaxed) {
            0 => RATE_UNMEASURED,
            rate => rate.max(RATE_MIN),
        }
    }

    /// The rate of writers, so many thousandths into the range; `None` at its beginning.
    fn slowed(&self, thousandths: u64, reason: StallReason) -> Option<Slowed> {
        let rate = u128::from(self.get()) * 2000 / 3;
        let bytes_per_second = rate.checked_div(u128::from(thousandths))?;
        Some(Slowed { reason, bytes_per_second: u64::try_from(bytes_per_second).unwrap_or(u64::MAX) })
    }
}

/// For how long compaction was busy.
#[derive(Debug, Default)]
struct Busy {
    running: u32,
    since: Option<Instant>,
    time: Duration,
    /// What `time` was when runs last left level 0.
    counted: Duration,
}

impl Busy {
    /// Counts the time up to `now`.
    fn count(&mut self, now: Instant) {
        if self.running > 0
            && let Some(since) = self.since
        {
            self.time += now.since(since);
        }
        self.since = Some(now);
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    flush: Rate,
    level_0: Rate,
    /// Bytes of memtables that a run brings; 0 before the first flush.
    run_bytes: AtomicU64,
    busy: Mutex<Busy>,
    /// The reason why writers were last found to be slowed, as a number; 0 for none.
    reason: AtomicU8,
    /// The same, as listeners were last told.
    pub(crate) told: Mutex<Option<StallReason>>,
    /// Time that writers were asked to wait, in nanoseconds.
    pub(crate) delayed_nanos: AtomicU64,
}

impl Stalls {
    /// A memtable was flushed to `tables` tables. How long that took says nothing when it was no
    /// `full` one: then it was latency.
    pub(crate) fn flushed(&self, memtable_bytes: u64, tables: u64, full: bool, took: Duration) {
        if tables == 0 {
            return;
        }
        if full {
            self.flush.measured(memtable_bytes, took);
        }
        let (old, new) = (self.run_bytes.load(Ordering::Relaxed), memtable_bytes / tables);
        self.run_bytes.store(if old == 0 { new } else { old - old / 4 + new / 4 }, Ordering::Relaxed);
    }

    /// A compaction begins.
    pub(crate) fn compaction_begins(&self, now: Instant) {
        let mut busy = self.busy.lock();
        busy.count(now);
        busy.running += 1;
    }

    /// A compaction has ended, which took `runs` of `table_bytes` out of level 0.
    pub(crate) fn compaction_ended(&self, runs: u64, table_bytes: u64, now: Instant) {
        let took = {
            let mut busy = self.busy.lock();
            busy.count(now);
            busy.running = busy.running.saturating_sub(1);
            if runs == 0 {
                return;
            }
            let took = busy.time.saturating_sub(busy.counted);
            busy.counted = busy.time;
            took
        };
        let bytes = match self.run_bytes.load(Ordering::Relaxed) {
            0 => table_bytes,
            run_bytes => runs * run_bytes,
        };
        self.level_0.measured(bytes, took);
    }

    /// How writers are slowed under this pressure; `None` when they are not.
    pub(crate) fn slowed(&self, pressure: &Pressure) -> Option<Slowed> {
        let room = pressure.memtables_max * 1000;
        let by_memory = self.flush.slowed(thousandths(pressure.filled, room / 2, room), StallReason::Flush);
        let runs = thousandths(pressure.runs as u64, RUNS_SLOW as u64, RUNS_SLOWEST as u64);
        let by_runs = self.level_0.slowed(runs, StallReason::Compaction);
        by_memory.into_iter().chain(by_runs).min_by_key(|slowed| slowed.bytes_per_second)
    }

    /// Keeps the result; whether it differs from the last.
    pub(crate) fn found(&self, reason: Option<StallReason>) -> bool {
        let number = match reason {
            None => 0,
            Some(StallReason::Flush) => 1,
            Some(StallReason::Compaction) => 2,
        };
        self.reason.load(Ordering::Relaxed) != number && self.reason.swap(number, Ordering::Relaxed) != number
    }

    /// The last result.
    pub(crate) fn reason(&self) -> Option<StallReason> {
        match self.reason.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(StallReason::Flush),
            _ => Some(StallReason::Compaction),
        }
    }
}

/// How far into `from..to` a value lies, in thousandths.
fn thousandths(value: u64, from: u64, to: u64) -> u64 {
    (value.saturating_sub(from).saturating_mul(1000) / to.saturating_sub(from).max(1)).min(1000)
}

#[cfg(test)]
mod tests;
