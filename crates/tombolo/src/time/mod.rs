//! The database's own time, by which entries expire.
//!
//! It follows the host's clock, never goes back, and outlives its hosts: a successor on a host
//! whose clock is behind goes on where the manifest says. All times are milliseconds since the Unix
//! epoch. Pure: the host's clocks are given.
//!
//! Invariants, each with a mutant:
//! 1. Nothing is judged by a time beyond what a durable manifest record says ([`Times::bound_ms`]).
//!    A successor begins there. So what has expired stays so.
//! 2. What has expired may be destroyed once the time has been beyond it for an hour by the clock
//!    that does not jump. So a clock that is wrong for less than that hides, and does not destroy.
//! 3. Time goes on at the pace of the host's clock; where it is ahead of it, at half of that, until
//!    the clock has caught up. It goes back only when somebody sets it back.
//!
//! Readers judge by the time that the state they follow has reached. A look, which decides for
//! nobody else, goes by its own host's clock as well.
//!
//! Thread safety: reads take no lock. The keeper's part is behind one that only it takes often.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo_format::expiry::{EXPIRY_MS_MAX, Expiry, Times};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::signal::Signal;

/// How long what has expired is kept, by the clock that does not jump.
const GRACE_MS: u64 = 3_600_000;
/// How far ahead of the time a record says that it may go.
const RESERVE_MS: u64 = 70_000;
/// A record is written so long before it is needed.
const LEAD_MS: u64 = 10_000;
/// The keeper sleeps at least so long.
const AGAIN_MS_MIN: u64 = 10;
/// Most moments that are remembered until they are an hour old: one a minute or so.
const SAMPLES_MAX: usize = 128;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct DatabaseTime {
    spans: Spans,
    /// How far it is ahead of the host's clock.
    lead: AtomicU64,
    /// The latest that anybody was told.
    last: AtomicU64,
    /// What a durable record says at least.
    bound: AtomicU64,
    /// What a record says that it has reached.
    reached: AtomicU64,
    /// The earliest end of an entry of which the keeper need not hear: it looks again before.
    planned: AtomicU64,
    kept: Mutex<Kept>,
    /// An entry ends sooner than the keeper looks again.
    pub(crate) wanted: Signal,
}

/// Lengths of time, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Spans {
    grace: u64,
    reserve: u64,
    lead: u64,
}

/// What the keeper knows.
#[derive(Debug, Default)]
struct Kept {
    /// The clock that does not jump, and the time, when it was last known without reckoning.
    steady: u64,
    at: u64,
    /// Of so many milliseconds since then one has passed: 2 while it is ahead of the host's clock.
    pace: u64,
    /// By that clock when it was, and by which time could be judged then; both ascend.
    samples: VecDeque<(u64, u64)>,
    settled: u64,
    /// It stays so.
    is_held: bool,
}

/// The work for entries that end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// A record is needed now.
    pub(crate) wants_record: bool,
    /// In so many milliseconds it is to be looked at again.
    pub(crate) again_ms: Option<u64>,
}

impl DatabaseTime {
    /// Of a database of which the manifest says `times`, on a host whose clock shows `host`.
    pub(crate) fn begin(times: Times, host: u64, steady: u64) -> DatabaseTime {
        let spans = Spans { grace: GRACE_MS, reserve: RESERVE_MS, lead: LEAD_MS };
        DatabaseTime::with(spans, times, host, steady)
    }

    fn with(spans: Spans, times: Times, host: u64, steady: u64) -> DatabaseTime {
        let begin = if is_enabled(Mutant::TimeBeginsAtHostClock) { host } else { host.max(times.bound_ms) };
        DatabaseTime {
            spans,
            lead: AtomicU64::new(begin - host),
            last: AtomicU64::new(begin),
            bound: AtomicU64::new(times.bound_ms),
            reached: AtomicU64::new(times.reached_ms),
            planned: AtomicU64::new(0),
            kept: Mutex::new(Kept {
                steady,
                at: begin,
                pace: if begin > host { 2 } else { 1 },
                samples: VecDeque::new(),
                settled: times.settled_ms,
                is_held: false,
            }),
            wanted: Signal::default(),
        }
    }

    /// The time when the host's clock shows `host`.
    pub(crate) fn now(&self, host: u64) -> u64 {
        let now = host.saturating_add(self.lead.load(Ordering::Relaxed)).min(EXPIRY_MS_MAX);
        // Most often it has not changed since somebody asked: then nothing is written.
        let last = self.last.load(Ordering::Acquire);
        if now <= last { last } else { self.last.fetch_max(now, Ordering::AcqRel).max(now) }
    }

    /// The time by which the writer judges what has expired.
    pub(crate) fn judged(&self, host: u64) -> u64 {
        let now = self.now(host);
        if is_enabled(Mutant::TimeJudgedUnbounded) {
            now
        } else {
            now.min(self.bound.load(Ordering::Acquire))
        }
    }

    /// The time by which readers judge.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// What a record says at least.
    pub(crate) fn bound(&self) -> u64 {
        self.bound.load(Ordering::Acquire)
    }

    /// When an entry ends that is written now and lives for `ttl_ms`.
    ///
    /// # Errors
    /// `Invalid` of 0, and of an end beyond all time.
    pub(crate) fn end_of(&self, ttl_ms: u64, host: u64) -> Result<u64> {
        if ttl_ms == 0 {
            let error = Error::new(ErrorKind::Invalid, "a value that has expired when it is written");
            return Err(error.expected("a time to live of at least a millisecond"));
        }
        let now = if is_enabled(Mutant::TtlByHostClock) { host } else { self.now(host) };
        let end = now.checked_add(ttl_ms).filter(|end| *end <= EXPIRY_MS_MAX);
        end.ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "a value that expires beyond all time")
                .found(format!("a time to live of {ttl_ms} ms"))
                .advice("write it without an end: such a value stays")
        })
    }

    /// Checks an end that somebody gives.
    ///
    /// # Errors
    /// `Invalid` when it has passed, or lies beyond all time.
    pub(crate) fn check_end(&self, expires_ms: u64, host: u64) -> Result<()> {
        let now = self.now(host);
        if expires_ms <= now {
            let error = Error::new(ErrorKind::Invalid, "a value that has expired when it is written");
            return Err(error
                .expected(format!("an end after {now} ms, the database's time"))
                .found(expires_ms));
        }
        if expires_ms > EXPIRY_MS_MAX {
            let error = Error::new(ErrorKind::Invalid, "a value that expires beyond all time");
            return Err(error.expected(format!("an end up to {EXPIRY_MS_MAX} ms")).found(expires_ms));
        }
        Ok(())
    }

    /// Checks when an operand that ends was written, which is about to be shown: what ended after
    /// that is under it, and must be there.
    ///
    /// # Errors
    /// `Conflict` when that was too long ago.
    pub(crate) fn check_written(&self, written_ms: u64, host: u64) -> Result<()> {
        let waited_ms = self.now(host).saturating_sub(written_ms);
        let (settled, is_held) = {
            let kept = self.kept.lock();
            (kept.settled, kept.is_held)
        };
        if (waited_ms < self.spans.grace / 4 || is_held) && written_ms >= settled {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Conflict, "an operand that ends waited too long to be written");
        Err(error
            .expected(format!("at most {} ms", self.spans.grace / 4))
            .found(format!("{waited_ms} ms"))
            .advice("write it again: merge it anew, or build the batch anew"))
    }

    /// Whether the keeper is to be told of an entry that ends then, which is in its memtable.
    #[inline]
    pub(crate) fn is_news(&self, expires_ms: u64) -> bool {
        expires_ms < self.planned.load(Ordering::Acquire)
    }

    /// The keeper looks: the time goes on from where it was.
    pub(crate) fn step(&self, host: u64, steady: u64) {
        // Until there is a plan, each entry is news: the plan may be made without it.
        self.planned.store(u64::MAX, Ordering::Release);
        let mut kept = self.kept.lock();
        // Reckoned from one beginning as long as the pace stays: rounding does not add
        // up so.
        let at = kept.at + steady.saturating_sub(kept.steady) / kept.pace.max(1);
        if at <= host {
            (kept.steady, kept.at, kept.pace) = (steady, host, 1);
        } else if kept.pace == 1 {
            (kept.steady, kept.at, kept.pace) = (steady, at, 2);
        }
        self.lead.store(at.max(host) - host, Ordering::Relaxed);
        if kept.is_held {
            return;
        }
        let judged = self.judged(host);
        let last = kept.samples.back().map_or(0, |(_, judged)| *judged);
        let is_far = judged >= last + self.spans.grace / (SAMPLES_MAX as u64 / 2);
        if judged > last && (is_far || kept.samples.len() < SAMPLES_MAX / 2) {
            kept.samples.push_back((steady, judged));
        }
        while let Some((since, judged)) = kept.samples.front().copied()
            && (since + self.spans.grace <= steady || is_enabled(Mutant::ExpiredDestroyedAtOnce))
        {
            kept.settled = kept.settled.max(judged);
            kept.samples.pop_front();
        }
    }

    /// From here on nothing more may be destroyed for having ended, so that operands may come
    /// however long after they were written.
    pub(crate) fn settle_nothing(&self) {
        self.kept.lock().is_held = true;
    }

    /// What ended up to then may be destroyed.
    pub(crate) fn settled(&self) -> u64 {
        self.kept.lock().settled
    }

    /// What a record would say now.
    pub(crate) fn to_record(&self, host: u64) -> Times {
        let reached_ms = self.now(host);
        let bound_ms = (reached_ms + self.spans.reserve).min(EXPIRY_MS_MAX).max(self.bound());
        Times { reached_ms, bound_ms, settled_ms: self.settled() }
    }

    /// What the last record says of a writer that closes: nothing is judged any more, so that the
    /// reserve is not needed. `None`: there is none.
    pub(crate) fn to_close(&self, host: u64) -> Option<Times> {
        let reached_ms = self.judged(host);
        (reached_ms < self.bound() && reached_ms >= self.reached()).then(|| Times {
            reached_ms,
            bound_ms: reached_ms,
            settled_ms: self.settled(),
        })
    }

    /// A record that says so is durable.
    pub(crate) fn recorded(&self, times: Times) {
        self.bound.fetch_max(times.bound_ms, Ordering::AcqRel);
        self.reached.fetch_max(times.reached_ms, Ordering::AcqRel);
    }

    /// The work for entries that end so.
    pub(crate) fn plan(&self, ends: impl Iterator<Item = Expiry>, host: u64, steady: u64) -> Plan {
        let (now, bound) = (self.now(host), self.bound());
        let kept = self.kept.lock();
        let sampled = kept.samples.back().map_or(0, |(_, judged)| *judged).max(kept.settled);
        // Held, it notes nothing of what has ended.
        let is_held = kept.is_held;
        // Readers judge by what a record says: one tells them that the last has ended, a minute
        // after the record of before at the earliest.
        let reached = self.reached();
        let told_from = reached.saturating_add(self.spans.reserve - self.spans.lead);
        // Where a record is needed next, and where what has ended is next to be noted.
        let (mut needed, mut due, mut told) = (u64::MAX, u64::MAX, u64::MAX);
        for end in ends {
            if end.latest_ms > reached && !is_enabled(Mutant::ReadersNotToldOfEnds) {
                told = told.min(end.latest_ms.max(told_from));
            }
            if end.latest_ms > bound {
                needed = needed.min(end.earliest_ms.max(bound));
            }
            for at in [middle(end), end.latest_ms] {
                if at > sampled && !is_held {
                    due = due.min(at);
                }
            }
        }
        let wants_record = needed <= now.saturating_add(self.spans.lead) || told <= now;
        let pace = kept.pace.max(1);
        let until =
            |at: u64| (at != u64::MAX).then(|| at.saturating_sub(now).saturating_mul(pace).max(AGAIN_MS_MIN));
        let oldest = kept.samples.front().filter(|_| !is_held);
        let settles = oldest.map(|(since, _)| (since + self.spans.grace).saturating_sub(steady));
        let again = [
            until(needed.saturating_sub(self.spans.lead)).filter(|_| needed != u64::MAX && !wants_record),
            until(due).filter(|_| !wants_record),
            until(told).filter(|_| !wants_record),
            settles.map(|settles| settles.max(AGAIN_MS_MIN)),
        ];
        self.planned.store(needed.max(now.saturating_add(self.spans.lead)), Ordering::Release);
        Plan { wants_record, again_ms: again.into_iter().flatten().min() }
    }

    /// Follows a state.
    pub(crate) fn follow(&self, times: Times) {
        self.reached.store(times.reached_ms, Ordering::Release);
    }

    /// Somebody sets it back, or on, to what the host's clock shows.
    pub(crate) fn to_reset(&self, host: u64) -> Times {
        Times { reached_ms: host, bound_ms: host, settled_ms: self.settled().min(host) }
    }

    /// A record that sets it so is durable.
    pub(crate) fn reset(&self, times: Times, steady: u64) {
        let mut kept = self.kept.lock();
        *kept = Kept {
            steady,
            at: times.reached_ms,
            pace: 1,
            samples: VecDeque::new(),
            settled: kept.settled.min(times.settled_ms),
            is_held: kept.is_held,
        };
        self.lead.store(0, Ordering::Relaxed);
        self.bound.store(times.bound_ms, Ordering::Release);
        self.last.store(times.reached_ms, Ordering::Release);
        self.reached.store(times.reached_ms, Ordering::Release);
        drop(kept);
        self.wanted.raise();
    }
}

/// When about half of entries have ended.
pub(crate) fn middle(expiry: Expiry) -> u64 {
    expiry.earliest_ms.midpoint(expiry.latest_ms)
}

#[cfg(test)]
mod tests;
