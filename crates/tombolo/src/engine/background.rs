//! Background work: its settings and bounds, the keyspaces and snapshots that it goes by, its
//! tasks, how fast it goes, and its trouble.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo_env::Task;
use tombolo_format::cold::Aged;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind};

use super::{
    BackgroundError, Catalog, CompactionRequest, Counters, Health, Questions, ReadOnly, Snapshots, Troubles,
    Work, steady_ms, took_no_effect, unix_ms,
};
use crate::budget::{Membership, MemoryBudget};
use crate::event::Event;
use crate::extensions::Workers;
use crate::options::{LiveOptions, Options};
use crate::pace::{BackgroundRate, Paces};
use crate::recording::Switch;
use crate::resolve::Moments;
use crate::signal::Turn;
use crate::stalls::Stalls;
use crate::time::DatabaseTime;
use crate::workers::Void;

/// See the module's documentation.
pub(crate) struct Background {
    health: Health,
    /// Settings, which [`crate::Db::set_options`] changes.
    pub(crate) options: LiveOptions,
    /// Whose turn it is to change settings of a keyspace.
    pub(crate) configuring: Turn,
    /// Bytes of log that a second of replay takes, as opening has found.
    pub(super) replay_rate: u64,
    /// Bytes of log beyond which a memtable is sealed, full or not: they would take too long to
    /// replay.
    pub(crate) log_bytes_max: AtomicU64,
    pub(super) membership: Membership,
    pub(crate) catalog: Catalog,
    /// By which entries expire.
    pub(crate) time: Arc<DatabaseTime>,
    /// The host's clock, and the one that does not jump, when the database was opened; in
    /// milliseconds.
    pub(super) opened_at: (u64, u64),
    /// The greatest sequence number that was in tables then.
    pub(super) opened_with: u64,
    /// The last that was flushed, and by when.
    pub(super) last_aged: Mutex<Option<Aged>>,
    pub(crate) snapshots: Snapshots,
    /// Failures that are retried.
    pub(crate) troubles: Troubles,
    pub(crate) tasks: Mutex<Vec<Task>>,
    pub(crate) counters: Counters,
    /// Compactions that were asked for and that nobody has taken up.
    pub(crate) compaction_requests: Mutex<Vec<CompactionRequest>>,
    /// Bounds what background work moves.
    pub(crate) pace: Arc<Paces>,
    /// How fast background work goes, and how writers are slowed by it.
    pub(crate) stalls: Stalls,
    /// Whose turn it is to make, delete or sweep checkpoints.
    pub(crate) checkpointing: Turn,
    /// Questions that somebody at the prompt asks of this process.
    pub(crate) questions: Questions,
    /// Records operations, and notes slow ones, when that is wanted.
    pub(crate) recording: Switch,
    /// Who runs compactions elsewhere.
    pub(crate) workers: Option<Workers>,
    /// Numbers of jobs that were offered to them.
    pub(crate) offered: Arc<AtomicU64>,
    /// Attempts of theirs that came to nothing.
    pub(crate) void_attempts: Arc<Mutex<Vec<Void>>>,
}

impl Deref for Background {
    type Target = Health;

    #[inline]
    fn deref(&self) -> &Health {
        &self.health
    }
}

impl Background {
    /// Of a database that was just opened: no task runs yet.
    pub(super) fn new(
        health: Health,
        (options, replay_rate): (Options, u64),
        membership: Membership,
        catalog: Catalog,
        rate: Option<Arc<BackgroundRate>>,
    ) -> Background {
        let times = health.manifest.state().times();
        let time = DatabaseTime::begin(times, unix_ms(&health.env), steady_ms(&health.env));
        let stream = health.stream_id();
        Background {
            opened_at: (unix_ms(&health.env), steady_ms(&health.env)),
            opened_with: health.manifest.state().streams().get(&stream).map_or(0, |reached| reached.0),
            last_aged: Mutex::default(),
            health,
            time: Arc::new(time),
            pace: Arc::new(Paces::new(options.background_bytes_per_second_max, rate)),
            recording: Switch::new(options.slow_operation),
            options: LiveOptions::new(options),
            configuring: Turn::default(),
            replay_rate,
            log_bytes_max: AtomicU64::new(u64::MAX),
            membership,
            catalog,
            snapshots: Snapshots::default(),
            troubles: Troubles::default(),
            tasks: Mutex::default(),
            counters: Counters::default(),
            compaction_requests: Mutex::default(),
            stalls: Stalls::default(),
            checkpointing: Turn::default(),
            questions: Questions::default(),
            workers: None,
            offered: Arc::default(),
            void_attempts: Arc::default(),
        }
    }

    /// Of another stream of a database: what streams share is that of the main one.
    pub(super) fn share(&mut self, main: &Background) {
        self.time = Arc::clone(&main.time);
        self.pace = Arc::clone(&main.pace);
        self.offered = Arc::clone(&main.offered);
        self.void_attempts = Arc::clone(&main.void_attempts);
        self.workers.clone_from(&main.workers);
        self.opened_at = main.opened_at;
    }

    /// The time by which reads judge what has expired: of a reader that of the state that it shows.
    pub(crate) fn judged_ms(&self) -> u64 {
        match self.read_only.get() {
            None => self.time.judged(unix_ms(&self.env)),
            // It decides for nobody else.
            Some(ReadOnly::Look { .. }) => self.time.reached().max(unix_ms(&self.env)),
            Some(_) if is_enabled(Mutant::ReaderJudgesByHostClock) => unix_ms(&self.env),
            Some(_) => self.time.reached(),
        }
    }

    /// The time of a writer ([`crate::Db::time_ms`]); reads may judge by an earlier one.
    pub(crate) fn now_ms(&self) -> u64 {
        self.time.now(unix_ms(&self.env))
    }

    /// Whence somebody looks beside now, and what of the past is gone, for background work that
    /// begins now.
    pub(crate) fn moments(&self) -> Moments {
        // First, see `Moments`.
        let settled_ms = self.time.settled();
        Moments { snapshots: self.snapshots.moments(), settled_ms }
    }

    /// The memory budget, which other databases may share.
    pub(crate) fn budget(&self) -> &Arc<MemoryBudget> {
        self.membership.budget()
    }

    /// A background work failed, and will be tried again.
    pub(crate) fn work_failed(&self, work: Work, error: Error) {
        if let Some(event) = self.troubles.failed(work, error, self.env.now()) {
            self.events.tell(|| event);
        }
    }

    /// An operator failed on a keyspace in a flush or a compaction, which kept the operands. Said
    /// once.
    #[cold]
    pub(crate) fn merge_failed(&self, keyspace: u32, error: &Error) {
        if self.catalog.by_id(keyspace).is_some_and(|keyspace| keyspace.note_merge_failed()) {
            tracing::warn!(keyspace, %error, "operands of merges are kept as they are");
            self.events.tell(|| Event::MergeFailed { keyspace, error: error.clone() });
        }
    }

    /// A job found single deletes that met anything but one put.
    pub(crate) fn note_misused(&self, keyspace: u32, count: u64) {
        if count > 0 {
            self.counters.single_deletes_misused.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(keyspace, count, "single deletes of keys that were not put exactly once");
            self.events.tell(|| Event::SingleDeletesMisused { keyspace, count });
        }
    }

    /// A background work went well, or is not wanted any more.
    pub(crate) fn work_ended(&self, work: Work) {
        if let Some(event) = self.troubles.ended(work) {
            self.events.tell(|| event);
            // What has passed may have kept collection from going well, whose pauses are long.
            self.troubles.hurry(std::iter::once(Work::COLLECTION));
            self.work.raise();
        }
    }

    /// What background work fails with and retries: the flush first, which holds up writers.
    pub(crate) fn background_errors(&self) -> Vec<BackgroundError> {
        self.troubles.all(self.env.now())
    }

    /// Nobody has a handle any more: background tasks are cancelled, and what they were at is as
    /// after a crash.
    pub(crate) fn abandon(&self) {
        self.stop();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        drop(tasks);
    }

    /// Tells background tasks to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.pace.release();
        self.events.wake();
        if let Some(following) = self.following() {
            following.wanted.raise();
            following.ended.raise();
        }
        self.work.raise();
        self.progress.raise();
    }

    /// A sync of the log of this lane failed: ends it, unless it goes on by itself, or a successor
    /// has fenced it. Never in the commit section.
    pub(crate) fn sync_failed(&self, lane: u32, error: &Error) {
        if !took_no_effect(error) && error.kind() != ErrorKind::DeadlineExceeded {
            self.log_ended(lane, error);
        }
    }

    /// The log of this lane has ended, unless a successor has fenced it, or it was closed. Never in
    /// the commit section.
    pub(crate) fn log_ended(&self, lane: u32, error: &Error) {
        let is_closing = error.kind() == ErrorKind::Closed && (self.is_closed() || self.is_stopping());
        let main = self.main.load();
        if main.id.lane == lane && error.kind() != ErrorKind::Fenced && !is_closing {
            main.end(error);
            self.tell_of_log();
        }
    }

    /// Tells that the log has ended, if it has, and wakes the task that begins another.
    pub(crate) fn tell_of_log(&self) {
        let main = self.main.load();
        let Some(error) = main.ended() else { return };
        if main.take_untold() {
            tracing::warn!(error = %error, log = %main.id.lane, "the log has ended; another is begun once \
                what is in memory is in tables");
            self.work_failed(Work::LOG, error.clone());
            self.work.raise();
            self.progress.raise();
        }
    }
}
