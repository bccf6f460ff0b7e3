//! The state of an open database that all steps share.
//!
//! Invariants:
//! 1. A [`View`] never changes; a new one replaces it under `view_lock`. Readers load the view
//!    first and the visible sequence number after: all that is visible by then in the view's tables
//!    and memtables is a consistent cut.
//! 2. `failure` is set once: the handle is finished from then on, and reads may be stale.
//! 3. Locks, from outer to inner: `commit`, `view_lock`, all others; none is held across an await.

mod catalog;
mod commit_queue;
mod following;
mod kept;
mod lanes;
mod main_log;
mod opened;
mod questions;
mod readers;
mod snapshots;
mod stream;
mod trouble;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{Env, Instant, Task};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, TableDescription};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Error, ErrorKind, Log, LogContext, LogOffset, LogRecord, LogStore, ObjectStore, Request, Result,
};

pub(crate) use catalog::{Catalog, KeyspaceInfo};
pub(crate) use commit_queue::{CommitQueue, Committed, POSTED_BYTES_MAX, Posted};
pub(crate) use following::Following;
pub(crate) use kept::Kept;
pub(crate) use lanes::OwnLane;
pub(crate) use main_log::{MAIN_LANE, MainLog, is_main, lane_after, no_log, took_no_effect};
pub(crate) use opened::{note_opened, opened_here};
pub(crate) use questions::Questions;
pub(crate) use readers::Readers;
pub(crate) use snapshots::Snapshots;
pub(crate) use stream::{Commit, InLine, Stream};
pub use trouble::BackgroundError;
pub(crate) use trouble::{Troubles, Work};

use crate::budget::{Membership, MemoryBudget};
use crate::checkpoint::Checkpoints;
use crate::collection::Pinned;
use crate::event::{Event, Events, Listener};
use crate::manifest::{self, Manifest};
use crate::memtable::Memtable;
use crate::options::{LiveOptions, Options};
use crate::pace::{BackgroundRate, Paces};
use crate::signal::{Signal, Turn};
use crate::stalls::Stalls;
use crate::version::{LeftBehind, Version, Versions};

/// The stream that orders all keyspaces.
pub(crate) const MAIN_STREAM: u32 = 0;

/// What a read sees: memtables and tables.
#[derive(Debug)]
pub(crate) struct View {
    /// Takes the writes.
    pub(crate) active: Arc<Memtable>,
    /// Wait for their flush, newest first.
    pub(crate) waiting: Vec<Arc<Sealed>>,
    /// The tables.
    pub(crate) version: Arc<Version>,
    /// What keeps the tables from being deleted, where this process is not the one that deletes.
    pub(crate) kept_by: Option<Arc<Pinned>>,
}

impl View {
    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.waiting.iter().map(|sealed| &sealed.memtable))
    }
}

/// A memtable that takes no more writes, and what its flush tells the manifest.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// The writes.
    pub(crate) memtable: Arc<Memtable>,
    /// Sequence numbers up to here were given out when it was sealed.
    pub(crate) last_sequence: SequenceNumber,
    /// The end of the main log when it was sealed; `None` for what recovery replayed.
    pub(crate) log_end: Option<LogOffset>,
    /// Keyspaces created and dropped by its writes, in their order.
    pub(crate) keyspace_edits: Vec<Edit>,
    /// Logs that are needed no more once it is flushed: of older epochs, and the main log that has
    /// ended.
    pub(crate) old_logs: Vec<LogRecord>,
}

/// See the module's documentation.
pub(crate) struct Engine {
    pub(crate) env: Env,
    /// When it was put together, with all of its opening but this behind it.
    pub(crate) assembled: Instant,
    /// Settings, which [`crate::Db::set_options`] changes.
    pub(crate) options: LiveOptions,
    /// The database, as a person would name it.
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) log_store: Arc<dyn LogStore>,
    pub(crate) context: LogContext,
    pub(crate) manifest: Manifest,
    /// What the main stream is appended to. Changed in the commit section.
    main: ArcSwap<MainLog>,
    /// The log with which the epoch began, if it has lanes beside the main one: they are the
    /// application's.
    pub(crate) application_log: Option<Arc<dyn Log>>,
    pub(crate) own_lanes: Vec<OwnLane>,
    pub(crate) versions: Versions,
    pub(crate) stream: Stream,
    pub(crate) catalog: Catalog,
    pub(crate) snapshots: Snapshots,
    pub(crate) readers: Readers,
    view: ArcSwap<View>,
    view_lock: Mutex<()>,
    /// There may be background work.
    pub(crate) work: Arc<Signal>,
    /// Background work has come on, or will never again.
    pub(crate) progress: Signal,
    /// Background tasks end at their next look.
    stopping: AtomicBool,
    /// Verbs answer `Closed`.
    closed: AtomicBool,
    /// Verbs look closer: it is closed, or follows a writer.
    guarded: AtomicBool,
    /// How closing ended, once it has; `progress` tells.
    pub(crate) closed_with: Mutex<Option<Result<()>>>,
    /// Set after `failure`: what every write looks at.
    failed: AtomicBool,
    failure: ArcSwapOption<Error>,
    /// Set with `failure`, until it was told.
    untold: AtomicBool,
    /// What background work fails with and retries.
    pub(crate) troubles: Troubles,
    pub(crate) tasks: Mutex<Vec<Task>>,
    pub(crate) counters: Counters,
    /// Compactions that were asked for and that nobody has taken up.
    pub(crate) compaction_requests: Mutex<Vec<CompactionRequest>>,
    /// Bounds what background work moves.
    pub(crate) pace: Paces,
    /// How fast background work goes, and how writers are slowed by it.
    pub(crate) stalls: Stalls,
    membership: Membership,
    /// What it reads without a claim; not set of a writer.
    read_only: OnceLock<ReadOnly>,
    /// Whose turn it is to change settings of a keyspace.
    pub(crate) configuring: Turn,
    /// Bytes of log that a second of replay takes, as opening has found.
    pub(crate) replay_rate: u64,
    /// Whose turn it is to make, delete or sweep checkpoints.
    pub(crate) checkpointing: Turn,
    /// What somebody at the prompt asks of this process.
    pub(crate) questions: Questions,
    /// Tables of this epoch that nothing names, and that could not be deleted yet.
    pub(crate) left_behind: Arc<LeftBehind>,
    /// An event for a listener.
    pub(crate) events: Events,
}

/// What a reader without a claim reads.
#[derive(Clone, Debug)]
pub(crate) enum ReadOnly {
    /// What a writer does, as it goes; its tables are pinned.
    Following(Arc<Following>),
    /// What was durable at one moment; its tables are pinned where that is possible.
    Look {
        /// Says how old it is. There are no rounds.
        following: Arc<Following>,
        /// What logs hold is not shown.
        tables_only: bool,
    },
    /// A checkpoint, whose pin has this id.
    Checkpoint { id: u128 },
}

/// A compaction of a range of a keyspace that somebody asked for.
#[derive(Clone, Debug)]
pub(crate) struct CompactionRequest {
    pub(crate) keyspace: u32,
    /// Inclusive; `None` without bound.
    pub(crate) first: Option<Bytes>,
    /// Inclusive; `None` without bound.
    pub(crate) last: Option<Bytes>,
    ended: Arc<Mutex<Option<Result<()>>>>,
}

impl CompactionRequest {
    pub(crate) fn new(keyspace: u32, first: Option<Bytes>, last: Option<Bytes>) -> CompactionRequest {
        CompactionRequest { keyspace, first, last, ended: Arc::default() }
    }

    /// Says how it went; the engine's `progress` tells.
    pub(crate) fn end(&self, result: Result<()>) {
        *self.ended.lock() = Some(result);
    }

    /// How it went, once it has ended.
    pub(crate) fn ended(&self) -> Option<Result<()>> {
        self.ended.lock().clone()
    }
}

/// Levels of a keyspace.
pub(crate) const LEVELS: usize = 7;

/// Counts bytes of a level.
pub(crate) fn count_of_level(counts: &[AtomicU64; LEVELS], level: u8, bytes: u64) {
    if let Some(count) = counts.get(usize::from(level)) {
        count.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Counts since opening.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) flushes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) replayed_bytes: AtomicU64,
    pub(crate) open_nanos: AtomicU64,
    /// The newest sequence number whose tables are installed.
    pub(crate) flushed: AtomicU64,
    /// Bytes of the tables that flushes made.
    pub(crate) flushed_bytes: AtomicU64,
    /// Bytes of the tables that compactions merged, and of those that they made.
    pub(crate) compacted_bytes_read: AtomicU64,
    pub(crate) compacted_bytes_written: AtomicU64,
    pub(crate) compactions_running: AtomicU64,
    /// Bytes of the tables of each level that compactions merged, and of those that flushes and
    /// compactions made.
    pub(crate) level_bytes_read: [AtomicU64; LEVELS],
    pub(crate) level_bytes_written: [AtomicU64; LEVELS],
}

/// What an engine is made of, once recovery has it together.
pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) log_store: Arc<dyn LogStore>,
    pub(crate) context: LogContext,
    pub(crate) manifest: Manifest,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) main: Arc<MainLog>,
    pub(crate) versions: Versions,
    pub(crate) stream: Stream,
    pub(crate) catalog: Catalog,
    pub(crate) view: View,
    pub(crate) membership: Membership,
    pub(crate) replay_rate: u64,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) rate: Option<Arc<BackgroundRate>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Engine")
            .field("place", &self.place)
            .field("epoch", &self.context.epoch)
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Arc<Engine> {
        let pace = Paces::new(parts.options.background_bytes_per_second_max, parts.rate);
        let left_behind = Arc::clone(&parts.versions.tables().left_behind);
        Arc::new(Engine {
            assembled: parts.env.now(),
            env: parts.env,
            options: LiveOptions::new(parts.options),
            place: parts.place,
            objects: parts.objects,
            log_store: parts.log_store,
            context: parts.context,
            manifest: parts.manifest,
            own_lanes: lanes::beside_main(parts.log.lanes()),
            application_log: (parts.log.lanes() > 1).then_some(parts.log),
            main: ArcSwap::new(parts.main),
            stream: parts.stream,
            catalog: parts.catalog,
            snapshots: Snapshots::default(),
            readers: Readers::new(parts.membership.budget()),
            view: ArcSwap::from_pointee(parts.view),
            view_lock: Mutex::default(),
            work: Arc::clone(parts.versions.work()),
            versions: parts.versions,
            progress: Signal::default(),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            guarded: AtomicBool::new(false),
            closed_with: Mutex::default(),
            failed: AtomicBool::new(false),
            failure: ArcSwapOption::empty(),
            untold: AtomicBool::new(false),
            troubles: Troubles::default(),
            tasks: Mutex::default(),
            counters: Counters::default(),
            compaction_requests: Mutex::default(),
            pace,
            stalls: Stalls::default(),
            membership: parts.membership,
            read_only: OnceLock::new(),
            configuring: Turn::default(),
            replay_rate: parts.replay_rate,
            checkpointing: Turn::default(),
            questions: Questions::default(),
            left_behind,
            events: Events::new(parts.listener),
        })
    }

    /// The memory budget, which other databases may share.
    pub(crate) fn budget(&self) -> &Arc<MemoryBudget> {
        self.membership.budget()
    }

    /// Changes settings, and what follows from them: all, or nothing. `log_bytes_max` says what a
    /// memtable's log may take then.
    ///
    /// # Errors
    /// `Invalid` of the change, or when the memory would be too small.
    pub(crate) fn change_options(
        &self,
        change: impl FnOnce(&mut Options) -> Result<()>,
        log_bytes_max: impl FnOnce(&Options) -> u64,
    ) -> Result<()> {
        self.options.change(change, |options| {
            self.membership.change(options.memtable_bytes(), options.memory_bytes)?;
            self.stream.log_bytes_max.store(log_bytes_max(options), Ordering::Relaxed);
            self.readers.settle();
            self.pace.set(options.background_bytes_per_second_max);
            Ok(())
        })
    }

    /// What reads see now.
    #[inline]
    pub(crate) fn view(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// Bytes of all tables that reads see now.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.view.load().version.keyspaces().map(|(_, levels)| levels.bytes()).sum()
    }

    /// What reads see now, to keep.
    pub(crate) fn view_owned(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Replaces the view by what `change` makes of it.
    pub(crate) fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _guard = self.view_lock.lock();
        let changed = change(&self.view.load());
        self.put_view(changed);
    }

    /// Puts a view in the place of the one before; under `view_lock`.
    fn put_view(&self, view: View) {
        let old = self.view.swap(Arc::new(view));
        self.readers.replaced(&old, self.env.now());
    }

    /// Puts the tables of the manifest's newest state into the view, and takes `flushed` out of it.
    pub(crate) fn install(&self, flushed: Option<&Arc<Sealed>>) {
        let _guard = self.view_lock.lock();
        let old = self.view.load();
        let version = self.versions.build(&self.manifest.state(), &old.version);
        let stays = |sealed: &&Arc<Sealed>| flushed.is_none_or(|flushed| !Arc::ptr_eq(sealed, flushed));
        let waiting = old.waiting.iter().filter(stays).cloned().collect();
        self.put_view(View {
            active: Arc::clone(&old.active),
            waiting,
            version,
            kept_by: old.kept_by.clone(),
        });
    }

    /// A request of this epoch.
    pub(crate) fn request(&self, purpose: tombolo_storage::Purpose) -> Request {
        Request::new(purpose, self.context.epoch)
    }

    /// Whether verbs may go on.
    ///
    /// # Errors
    /// `Closed`; `Retry` of a reader that is too far behind.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.guarded.load(Ordering::Acquire) { self.look_closer() } else { Ok(()) }
    }

    #[cold]
    fn look_closer(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the database was closed").object(&self.place));
        }
        self.following().map_or(Ok(()), |following| following.check(self.env.now()))
    }

    /// Whether writes may go on.
    ///
    /// # Errors
    /// As [`Engine::check_open`]; `Fenced` for ever once another process has taken over.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.failed.load(Ordering::Acquire) { self.failure_error() } else { Ok(()) }
    }

    #[cold]
    fn failure_error(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// What finished this handle, if anything did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.load().as_deref().cloned()
    }

    /// Finishes this handle for writing: the first reason stays.
    pub(crate) fn fail(&self, error: &Error) {
        self.fail_silently(error);
        self.tell_failure();
    }

    /// As [`Engine::fail`], in the commit section, where no waker may run: the writer that leaves
    /// it calls [`Engine::tell_failure`].
    pub(crate) fn fail_silently(&self, error: &Error) {
        if error.kind() == ErrorKind::Fenced && is_enabled(Mutant::FencedHandleGoesOn) {
            return;
        }
        let before = self.failure.rcu(|old| old.clone().or_else(|| Some(Arc::new(error.clone()))));
        if before.is_none() {
            self.untold.store(true, Ordering::Release);
        }
        self.failed.store(true, Ordering::Release);
    }

    /// Tells of a failure, if there is one, and wakes all whom it concerns.
    pub(crate) fn tell_failure(&self) {
        let Some(error) = self.failure() else { return };
        if self.untold.swap(false, Ordering::AcqRel) {
            tracing::warn!(error = %error, "the handle is finished for writing");
            self.events.tell(|| Event::Finished { error: error.clone() });
        }
        self.work.raise();
        self.progress.raise();
    }

    /// Makes this the engine of a reader: whatever would write ends with `refusal`.
    pub(crate) fn set_read_only(&self, reads: ReadOnly, refusal: &Error) {
        let follows = matches!(reads, ReadOnly::Following(_));
        let _first = self.read_only.set(reads);
        self.guarded.store(follows, Ordering::Release);
        self.fail(refusal);
    }

    /// Whether this reads without a claim.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.get().is_some()
    }

    /// How it follows a writer, if it does.
    pub(crate) fn following(&self) -> Option<&Arc<Following>> {
        match self.read_only.get() {
            Some(ReadOnly::Following(following) | ReadOnly::Look { following, .. }) => Some(following),
            _ => None,
        }
    }

    /// Whether it shows, without a claim, what logs hold beyond tables.
    pub(crate) fn shows_logs(&self) -> bool {
        matches!(
            self.read_only.get(),
            Some(ReadOnly::Following(_) | ReadOnly::Look { tables_only: false, .. })
        )
    }

    /// The database's checkpoints.
    pub(crate) fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(&self.env, &self.objects, self.context.incarnation, self.context.epoch)
    }

    /// What the error of a reader without a claim means: tables that nobody keeps for it any more
    /// are no damage.
    async fn judge_read_only(&self, reads: &ReadOnly, error: Error) -> Error {
        let (lost, what) = match reads {
            // Its views know their pins: see `judge_read`.
            ReadOnly::Following(_) => return error,
            ReadOnly::Look { .. } => {
                (self.is_unnamed_by_now(&error).await, "a table was deleted while it was looked at")
            }
            ReadOnly::Checkpoint { id } => {
                let kept = self.checkpoints().is_kept(*id).await;
                (kept.is_ok_and(|kept| !kept), "the checkpoint was deleted while it was read")
            }
        };
        if !lost {
            return error;
        }
        Error::new(ErrorKind::PinLost, what).source(error).advice(
            "look again, or read a checkpoint, which keeps what it holds (`--checkpoint` at the prompt); \
            a look keeps its tables by itself where it may write to the store",
        )
    }

    /// Whether the table whose object an error is about is named no more: only then was it deleted.
    async fn is_unnamed_by_now(&self, error: &Error) -> bool {
        let tables = self.versions.tables();
        let state = self.manifest.state();
        let shown = |table: &TableDescription| tables.locate(table).1.to_string();
        let table = state
            .keyspaces()
            .flat_map(|keyspace| keyspace.objects())
            .find(|table| error.object_name().is_some_and(|name| name.ends_with(&shown(table))));
        let Some(table) = table else { return false };
        match manifest::load(&self.env, &self.objects).await {
            Ok(newest) => newest.state.table(table.name).is_none(),
            // The database was destroyed.
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// As [`Engine::judge`], of a read of `view`: what a lost pin no longer keeps is no damage.
    pub(crate) async fn judge_read(&self, view: &View, error: Error) -> Error {
        let Some(pin) = view
            .kept_by
            .as_ref()
            .filter(|_| matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound))
        else {
            return self.judge(error).await;
        };
        match pin.confirm().await {
            Ok(()) => self.judge(error).await,
            Err(lost) if lost.kind() == ErrorKind::PinLost => lost.source(error),
            Err(silent) => {
                self.judge(
                    error.context(format!(
                        "whether its tables are kept for the reader is not known: {silent}"
                    )),
                )
                .await
            }
        }
    }

    /// What the error of a read means. A successor frees logs and tables that this process still
    /// names: a missing one is then no damage, but the sign of the takeover.
    pub(crate) async fn judge(&self, error: Error) -> Error {
        let is_about_objects = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound);
        if let Some(reads) = self.read_only.get().filter(|_| is_about_objects) {
            return self.judge_read_only(reads, error).await;
        }
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let fenced = match self.confirm().await {
            Ok(()) => return error,
            Err(fenced) if fenced.kind() == ErrorKind::Fenced => fenced,
            // The log cannot be asked: its nodes may be out of reach while the store is not. A
            // successor deletes nothing before its claim is there.
            Err(unknown) => match manifest::load(&self.env, &self.objects).await {
                Ok(newest)
                    if (newest.incarnation, newest.state.epoch())
                        == (self.context.incarnation, self.context.epoch) =>
                {
                    return error;
                }
                // The store cannot be asked just now either; or it can, and what it says is no
                // takeover.
                Err(silent)
                    if matches!(
                        silent.kind(),
                        ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded
                    ) =>
                {
                    return unknown
                        .context(format!("nor does the store tell who holds the database: {silent}"))
                        .source(error);
                }
                Err(other) if other.kind() != ErrorKind::NotFound => {
                    return error.context(format!(
                        "whether another process holds the database is not known: {other}"
                    ));
                }
                // Claimed by another, or destroyed.
                _ => manifest::fenced_error(),
            },
        };
        self.note(&fenced);
        fenced.source(error)
    }

    /// Finishes the handle if `error` says that it must be.
    pub(crate) fn note(&self, error: &Error) {
        if error.kind() == ErrorKind::Fenced {
            self.manifest.fence();
            self.fail(error);
        }
    }

    /// A background work failed, and will be tried again.
    pub(crate) fn work_failed(&self, work: Work, error: Error) {
        if let Some(event) = self.troubles.failed(work, error, self.env.now()) {
            self.events.tell(|| event);
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

    /// Whether background tasks must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.failure.load().is_some()
    }

    /// Verbs answer `Closed` from here on; returns whether they did already.
    pub(crate) fn set_closed(&self) -> bool {
        let before = self.closed.swap(true, Ordering::AcqRel);
        self.guarded.store(true, Ordering::Release);
        before
    }

    /// Whether verbs answer `Closed`.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether this handle was closed or dropped; a reader goes on reading after its first failure
    /// to write.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
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
}
