//! The state of an open database that all steps share.
//!
//! Its parts lie in each other, and each reaches only those within it. A signature names the
//! smallest one that does, and is given any larger one:
//!
//! | part | says |
//! |---|---|
//! | [`Store`] | where the database lies: stores, manifest, tables |
//! | [`Health`] | whether the handle may go on; what an error means; the main log |
//! | [`Background`] | all that background work goes by: settings, budget, keyspaces, snapshots, trouble |
//! | [`Sight`] | what reads see: the view, and what cursors keep of earlier ones |
//! | [`Engine`] | the order of writes |
//!
//! All of it is about one stream. Where a database has several, each has an engine, and [`Streams`]
//! says what they share.
//!
//! Invariants:
//! 1. A [`View`] never changes; a new one replaces it under `view_lock`. Readers load the view
//!    first and the visible sequence number after: all that is visible by then in the view's tables
//!    and memtables is a consistent cut.
//! 2. Locks, from outer to inner: `commit`, `view_lock`, all others; none is held across an await.

mod ages;
mod background;
mod catalog;
mod commit_queue;
mod cuts;
mod dead_runs;
mod feed;
mod filtering;
mod following;
mod health;
mod kept;
mod lanes;
mod main_log;
mod opened;
mod questions;
mod readers;
mod sight;
mod snapshots;
mod store;
mod stream;
mod streams;
mod transactions;
mod trouble;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::Edit;
pub(crate) use tombolo_format::manifest::MAIN_STREAM;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Log, LogContext, LogOffset, LogRecord, LogStore, ObjectStore, Result};

pub(crate) use background::Background;
pub(crate) use catalog::{Catalog, KeyspaceInfo, OWN_NAMES, is_own_name};
pub(crate) use commit_queue::{CommitQueue, Committed, POSTED_BYTES_MAX, Posted};
pub(crate) use cuts::{Cuts, Fixed, StreamCuts};
pub(crate) use dead_runs::{DeadRun, LooksFrom};
pub(crate) use feed::{Feed, FeedState};
pub(crate) use filtering::FilteringJob;
pub(crate) use following::Following;
pub(crate) use health::Health;
pub(crate) use kept::Kept;
pub(crate) use lanes::{ApplicationLogs, OwnLane};
pub(crate) use main_log::{LaneNumbers, MAIN_LANE, MainLog, no_log, took_no_effect};
pub(crate) use opened::{note_opened, opened_here};
pub(crate) use questions::Questions;
pub(crate) use readers::Readers;
pub(crate) use sight::{Sight, View, ingested_of};
pub(crate) use snapshots::{Opened, Snapshots};
pub(crate) use store::Store;
pub(crate) use stream::{Commit, InLine, Stream};
pub(crate) use streams::{Kin, Streams};
pub(crate) use transactions::Transactions;
pub use trouble::BackgroundError;
pub(crate) use trouble::{Troubles, Work};

use crate::budget::Membership;
use crate::event::Listener;
use crate::extensions::Workers;
use crate::manifest::{Manifest, State};
use crate::memtable::Memtable;
use crate::options::Options;
use crate::pace::BackgroundRate;
use crate::version::{Ingested, Versions};

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
    /// What was ingested when it was sealed: newer than all in it, and live with its flush.
    pub(crate) ingested: Option<Arc<Ingested>>,
    /// Logs that are needed no more once it is flushed: of older epochs, and the main log that has
    /// ended.
    pub(crate) old_logs: Vec<LogRecord>,
    /// Where its flush has found many deletes in a row.
    pub(crate) buried: Mutex<Vec<Buried>>,
}

/// Keys in a row of which a memtable says that they were deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buried {
    pub(crate) keyspace: u32,
    pub(crate) first: Bytes,
    /// The key before which they end; `None`: the memtable has none beyond.
    pub(crate) end: Option<Bytes>,
    pub(crate) keys: u64,
}

impl Sealed {
    /// Whether the tables of a state hold all that it does. One that holds nothing hides nothing,
    /// and waits until its flush ends.
    fn is_in_tables(&self, state: &State, stream: u32) -> bool {
        let reached = state.streams().get(&stream);
        !self.memtable.is_empty() && reached.is_some_and(|reached| self.last_sequence <= *reached)
    }
}

/// The whole: see the module's documentation.
pub(crate) struct Engine {
    sight: Sight,
    pub(crate) stream: Stream,
    pub(crate) transactions: Transactions,
    pub(crate) feed: Feed,
    /// The others; of another than the main one, which is that.
    pub(crate) streams: Streams,
}

impl Deref for Engine {
    type Target = Sight;

    #[inline]
    fn deref(&self) -> &Sight {
        &self.sight
    }
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

/// A range that a range delete covers, whose tables go unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DroppedRange {
    /// The range delete is newer than this.
    pub(crate) after: SequenceNumber,
    /// And no newer than this.
    pub(crate) by: SequenceNumber,
}

/// A compaction of a range of a keyspace that somebody asked for.
#[derive(Clone, Debug)]
pub(crate) struct CompactionRequest {
    pub(crate) keyspace: u32,
    /// Inclusive; `None` without bound.
    pub(crate) first: Option<Bytes>,
    /// Inclusive; `None` without bound.
    pub(crate) last: Option<Bytes>,
    /// Tables within the range are not merged, but go unread.
    pub(crate) dropped: Option<DroppedRange>,
    ended: Arc<Mutex<Option<Result<()>>>>,
}

impl CompactionRequest {
    pub(crate) fn new(keyspace: u32, first: Option<Bytes>, last: Option<Bytes>) -> CompactionRequest {
        CompactionRequest { keyspace, first, last, dropped: None, ended: Arc::default() }
    }

    /// One that drops the tables within a range whose end it is `to`, which it does not hold.
    pub(crate) fn dropping(
        keyspace: u32,
        (from, to): (Bytes, Bytes),
        dropped: DroppedRange,
    ) -> CompactionRequest {
        let request = CompactionRequest::new(keyspace, Some(from), Some(to));
        CompactionRequest { dropped: Some(dropped), ..request }
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
    /// Bytes of the tables that compactions put into the cold store.
    pub(crate) cold_bytes_written: AtomicU64,
    pub(crate) compactions_running: AtomicU64,
    /// Single deletes that met anything but one put.
    pub(crate) single_deletes_misused: AtomicU64,
    /// What compaction filters dropped, replaced, and kept as they did not decide; and jobs of
    /// keyspaces whose filter is not there.
    pub(crate) filter_dropped: AtomicU64,
    pub(crate) filter_replaced: AtomicU64,
    pub(crate) filter_failed: AtomicU64,
    pub(crate) filter_missing: AtomicU64,
    /// Compactions that workers did; attempts of others that came to nothing; answers refused;
    /// compactions that were meant for workers and were done here.
    pub(crate) remote_compactions: AtomicU64,
    pub(crate) remote_failed: AtomicU64,
    pub(crate) remote_refused: AtomicU64,
    pub(crate) remote_fallbacks: AtomicU64,
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
    pub(crate) workers: Option<Workers>,
}

/// What the engine of another stream is made of, beside what it shares with the main one's.
pub(crate) struct StreamParts {
    pub(crate) options: Options,
    pub(crate) log: Arc<MainLog>,
    pub(crate) versions: Versions,
    pub(crate) stream: Stream,
    pub(crate) catalog: Catalog,
    pub(crate) view: View,
    pub(crate) membership: Membership,
    pub(crate) replay_rate: u64,
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

/// What the host's clock shows, in milliseconds since the Unix epoch.
pub(crate) fn unix_ms(env: &Env) -> u64 {
    u64::try_from(env.unix_time().as_millis()).unwrap_or(u64::MAX)
}

/// The clock that does not jump, in milliseconds.
pub(crate) fn steady_ms(env: &Env) -> u64 {
    env.now().as_nanos() / 1_000_000
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Arc<Engine> {
        let store = Store {
            env: parts.env,
            place: parts.place,
            objects: parts.objects,
            log_store: parts.log_store,
            context: parts.context,
            manifest: parts.manifest,
            left_behind: Arc::clone(&parts.versions.tables().left_behind),
            versions: parts.versions,
            lanes: Arc::default(),
        };
        let health = Health::new(store, parts.main, ApplicationLogs::new(parts.log), parts.listener);
        let settings = (parts.options, parts.replay_rate);
        let mut background = Background::new(health, settings, parts.membership, parts.catalog, parts.rate);
        background.workers = parts.workers;
        let (sight, transactions) = (Sight::new(background, parts.view), Transactions::default());
        let (feed, streams) = (Feed::default(), Streams::default());
        Arc::new(Engine { sight, stream: parts.stream, transactions, feed, streams })
    }

    /// The engine of another stream of the database of `main`. [`Streams::add`] shows it.
    pub(crate) fn beside(main: &Arc<Engine>, parts: StreamParts) -> Arc<Engine> {
        let store = Store {
            env: main.env.clone(),
            place: main.place.clone(),
            objects: Arc::clone(&main.objects),
            log_store: Arc::clone(&main.log_store),
            context: main.context.clone(),
            manifest: main.manifest.clone(),
            left_behind: Arc::clone(&main.left_behind),
            versions: parts.versions,
            lanes: Arc::clone(&main.lanes),
        };
        let mut health = Health::new(store, parts.log, ApplicationLogs::none(), None);
        health.events = main.events.another();
        let kin = main.kin.get_or_init(|| {
            let kin = Arc::new(Kin::default());
            kin.add(main);
            kin
        });
        let _first = health.kin.set(Arc::clone(kin));
        let settings = (parts.options, parts.replay_rate);
        let mut background = Background::new(health, settings, parts.membership, parts.catalog, None);
        background.share(main);
        let (sight, transactions) = (Sight::new(background, parts.view), Transactions::default());
        let (feed, streams) = (Feed::default(), Streams::default());
        let _first = streams.main.set(Arc::downgrade(main));
        let engine = Arc::new(Engine { sight, stream: parts.stream, transactions, feed, streams });
        engine.snapshots.set_cuts(StreamCuts::new(&main.streams.cuts, &engine));
        kin.add(&engine);
        engine
    }

    /// Puts the tables of the manifest's newest state into the view, and takes `flushed` out of it.
    ///
    /// While a job is at work that asks a filter, that state may hold what it made, whichever job
    /// comes here first. What a filter took away goes between two commits, so that no condition
    /// holds for a value that is gone.
    pub(crate) fn install(&self, flushed: Option<&Arc<Sealed>>) {
        {
            let _guard = self.hold_view();
            let state = self.manifest.state();
            // Asked after the state was taken: a job whose work is in it began before, and ends
            // once the view has it.
            if !self.snapshots.is_filtering() || is_enabled(Mutant::FilterShownByOthers) {
                return self.put_tables(flushed, &state, 0);
            }
        }
        let commit = self.stream.commit.lock();
        let before = self.view().generation;
        {
            let _guard = self.hold_view();
            self.put_tables(flushed, &self.manifest.state(), 1);
        }
        // Nothing has come to where nothing was. Views of before hold keys that went: what cursors
        // learn from now on is not theirs.
        self.catalog.dead_runs().take_along(commit.last, (before, before + 1));
    }

    /// The time went back: what cursors have learned by the other one holds for nobody any more, as
    /// what had ended by it may be gone from tables.
    pub(crate) fn forget_dead_runs(&self) {
        let commit = self.stream.commit.lock();
        let before = self.view().generation;
        {
            let _guard = self.hold_view();
            self.put_tables(None, &self.manifest.state(), 1);
        }
        self.catalog.dead_runs().forget(commit.last, (before, before + 1));
    }
}
