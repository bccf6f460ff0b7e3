//! What background work fails with, and is tried again, until it goes well.
//!
//! Each work has its own trouble, and what keyspaces have a part in has one for each: the success
//! of one says nothing of another.
//!
//! Thread safety: one lock, taken when something fails, goes well again or is asked for; whether
//! anything fails at all is one load.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::Instant;
use tombolo_storage::Error;

use crate::event::Event;

/// A background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Work {
    /// As messages name it.
    pub(crate) name: &'static str,
    /// Of which keyspace; `None` for work that is one for all.
    pub(crate) keyspace: Option<u32>,
}

impl Work {
    pub(crate) const FLUSH: Work = Work { name: "flush", keyspace: None };
    /// Another log in the place of one that has ended.
    pub(crate) const LOG: Work = Work { name: "log", keyspace: None };
    /// Records of the database's time.
    pub(crate) const TIME: Work = Work { name: "time", keyspace: None };
    pub(crate) const COLLECTION: Work = Work { name: "collection", keyspace: None };

    /// The compaction of a keyspace.
    pub(crate) const fn compaction(keyspace: u32) -> Work {
        Work { name: "compaction", keyspace: Some(keyspace) }
    }

    /// Damage that was found in a keyspace and is worked around.
    pub(crate) const fn damage(keyspace: u32) -> Work {
        Work { name: "damaged table", keyspace: Some(keyspace) }
    }

    /// Whether runs of its keyspace stay where they are as long as it fails.
    fn keeps_runs(self) -> bool {
        self.name == Work::compaction(0).name || self.name == Work::damage(0).name
    }
}

/// What background work fails with. It is tried again by itself, and this ends when it goes well.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackgroundError {
    /// `flush`, `compaction` or another.
    pub work: &'static str,
    /// What it last failed with.
    pub error: Error,
    /// Attempts that failed in a row.
    pub attempts: u64,
    /// For how long it has not gone well, as of the call that gave this.
    pub lasting: Duration,
    since: Instant,
    /// The number of the last failure, among those of all work.
    failure: u64,
    /// Somebody has asked for this work since: the next attempt need not wait.
    hurried: bool,
}

impl BackgroundError {
    /// Whether writes wait, or will, until this heals: when memory has no more room for what cannot
    /// be flushed, or there is no log.
    pub fn stops_writes(&self) -> bool {
        self.work == Work::FLUSH.name || self.work == Work::LOG.name
    }
}

impl fmt::Display for BackgroundError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({} attempts in {:?})", self.error, self.attempts, self.lasting)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    known: Mutex<BTreeMap<Work, BackgroundError>>,
    is_any: AtomicBool,
    /// Failures so far.
    failures: AtomicU64,
}

impl Troubles {
    /// Whether anything fails.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// A work has failed once more; the news to tell.
    pub(crate) fn failed(&self, work: Work, error: Error, now: Instant) -> Option<Event> {
        let mut known = self.known.lock();
        let told_before = known
            .iter()
            .any(|(other, trouble)| other.name == work.name && trouble.error.kind() == error.kind());
        let failure = self.failures.fetch_add(1, Ordering::AcqRel) + 1;
        let fresh = BackgroundError {
            work: work.name,
            error: error.clone(),
            attempts: 0,
            lasting: Duration::ZERO,
            since: now,
            failure,
            hurried: false,
        };
        let trouble = known.entry(work).or_insert(fresh);
        trouble.attempts += 1;
        (trouble.failure, trouble.hurried) = (failure, false);
        trouble.error = error.clone();
        self.is_any.store(true, Ordering::Release);
        (!told_before).then_some(Event::Failing { work: work.name, error })
    }

    /// A work goes well, or is not wanted any more; the news to tell.
    pub(crate) fn ended(&self, work: Work) -> Option<Event> {
        if !self.is_any() {
            return None;
        }
        let mut known = self.known.lock();
        let ended = known.remove(&work)?;
        self.is_any.store(!known.is_empty(), Ordering::Release);
        tracing::info!(
            work = work.name,
            keyspace = work.keyspace,
            attempts = ended.attempts,
            "goes well again"
        );
        let is_last = !known.keys().any(|other| other.name == work.name);
        is_last.then_some(Event::Recovered { work: work.name })
    }

    /// What a work last failed with.
    pub(crate) fn of(&self, work: Work) -> Option<Error> {
        if !self.is_any() {
            return None;
        }
        self.known.lock().get(&work).map(|trouble| trouble.error.clone())
    }

    /// Keyspaces of which nobody takes runs away: their compaction fails, or damage keeps them
    /// where they are.
    pub(crate) fn stuck(&self) -> BTreeSet<u32> {
        if !self.is_any() {
            return BTreeSet::new();
        }
        self.known.lock().keys().filter(|work| work.keeps_runs()).filter_map(|work| work.keyspace).collect()
    }

    /// The keyspaces whose compaction fails.
    pub(crate) fn compactions(&self) -> Vec<u32> {
        if !self.is_any() {
            return Vec::new();
        }
        let known = self.known.lock();
        known
            .keys()
            .filter(|work| work.name == Work::compaction(0).name)
            .filter_map(|work| work.keyspace)
            .collect()
    }

    /// All, the flush first: it holds up writers.
    pub(crate) fn all(&self, now: Instant) -> Vec<BackgroundError> {
        let mut all: Vec<_> = self.known.lock().values().cloned().collect();
        all.iter_mut().for_each(|trouble| trouble.lasting = now.since(trouble.since));
        all.sort_by_key(|trouble| !trouble.stops_writes());
        all
    }

    /// Somebody wants these works: what of them pauses before its next attempt makes it now. Gives
    /// the number of failures so far, for [`Troubles::since`]; a work that pauses looks when the
    /// engine's `work` is raised.
    pub(crate) fn hurry(&self, works: impl Iterator<Item = Work>) -> u64 {
        let mut known = self.known.lock();
        for work in works {
            if let Some(trouble) = known.get_mut(&work) {
                trouble.hurried = true;
            }
        }
        self.failures.load(Ordering::Acquire)
    }

    /// Whether somebody has asked for a work since it last failed.
    pub(crate) fn is_hurried(&self, work: Work) -> bool {
        self.known.lock().get(&work).is_some_and(|trouble| trouble.hurried)
    }

    /// What one of these works has failed with after so many failures of all work: what failed
    /// before, and was not tried since, says nothing to a caller that asks now.
    pub(crate) fn since(&self, failures: u64, mut works: impl Iterator<Item = Work>) -> Option<Error> {
        if !self.is_any() {
            return None;
        }
        let known = self.known.lock();
        works.find_map(|work| {
            known.get(&work).filter(|trouble| trouble.failure > failures).map(|trouble| trouble.error.clone())
        })
    }
}
