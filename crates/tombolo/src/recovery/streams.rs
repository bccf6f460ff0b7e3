//! The streams of a database beside the main one: found again when it is opened, and begun with
//! their first keyspace.
//!
//! Invariants:
//! 1. The logs of the main stream are replayed first: they say which keyspaces there are. Those of
//!    each other stream go into its own memtables.
//! 2. A stream's lane is named in the manifest before anybody can write to it.
//! 3. A stream without a keyspace needs nothing of its logs: the drops that say so are in the
//!    manifest, or in a sealed log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tombolo_env::{BoxFuture, TaskClass, all};
use tombolo_format::change::ALL_KEYSPACES;
use tombolo_format::manifest::{LogRole, MAIN_STREAM, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Log, LogContext, LogId, LogRecord, LogStore, Result};

use super::replay::Replayed;
use super::{OldLog, Replay, deliver, replay_log, spawn};
use crate::budget::{Membership, MemoryBudget};
use crate::engine::{Engine, MainLog, Stream, StreamParts, View, ingested_of};
use crate::manifest::State;
use crate::manifest::driver::io::either;
use crate::options::Options;
use crate::version::Version;
use crate::{compaction, flush, write};

/// Lanes that are opened at once.
const OPENED_AT_ONCE: usize = 16;

/// How often a cut is written while streams are: by so much followers are behind.
const CUT_EVERY: Duration = Duration::from_millis(250);

/// A stream has memtables of this part of the main one's, or less where there are many.
const MEMTABLE_PART: u64 = 4;
/// The smallest memtable of a stream.
const MEMTABLE_BYTES_MIN: u64 = 64 << 10;

/// The replay of a stream's logs, and those of them that hold nothing.
type Replaying<'a> = BoxFuture<'a, Result<(Found, Vec<LogRecord>)>>;

/// A stream that is about to be served.
pub(crate) struct Found {
    stream: u32,
    replay: Replay,
    /// Logs that hold something.
    pub(super) old_logs: Vec<LogRecord>,
    membership: Membership,
    memtable_bytes: u64,
}

impl Found {
    /// Whether an entry of its logs has made a staged table part of the database.
    pub(super) fn has_ingested(&self, table: TableName) -> bool {
        self.replay.has_ingested(table)
    }
}

/// Room for the memtables of another stream.
///
/// # Errors
/// `Invalid` when there is none.
fn join(budget: &Arc<MemoryBudget>, options: &Options) -> Result<(Membership, u64)> {
    let least = options.memtable_bytes().min(MEMTABLE_BYTES_MIN);
    let mut bytes = (options.memtable_bytes() / MEMTABLE_PART).max(least);
    loop {
        match budget.join(bytes) {
            Ok(membership) => return Ok((membership, bytes)),
            Err(error) if bytes / 2 < least => {
                return Err(error.context("making room for the memtables of another stream"));
            }
            Err(_) => bytes /= 2,
        }
    }
}

/// The streams that have keyspaces once the logs of the main one are replayed, with what their own
/// logs hold. Logs that hold nothing go to `empty`.
///
/// # Errors
/// `Corrupt`; those of the log.
pub(super) async fn replay(
    (options, budget): (&Options, &Arc<MemoryBudget>),
    state: &State,
    (log_store, context): (&dyn LogStore, &LogContext),
    (main, old_logs): (&Replay, Vec<(u32, OldLog)>),
    empty: &mut Vec<LogRecord>,
) -> Result<Vec<Found>> {
    let mut logs: BTreeMap<u32, Vec<OldLog>> = BTreeMap::new();
    for (stream, log) in old_logs {
        logs.entry(stream).or_default().push(log);
    }
    let mut replays: Vec<Replaying<'_>> = Vec::new();
    for stream in main.streams() {
        let logs = logs.remove(&stream).unwrap_or_default();
        let (membership, memtable_bytes) = join(budget, options)?;
        let mut replay = main.of_stream(stream, memtable_bytes);
        replays.push(Box::pin(async move {
            let (mut holding, mut empty) = (Vec::new(), Vec::new());
            let began = context.env.now();
            for log in logs {
                let before = replay.bytes();
                if !is_enabled(Mutant::StreamLanesNotReplayed) {
                    replay_log(&mut replay, state, (log_store, context), &log).await?;
                }
                if replay.bytes() > before { holding.push(log.record) } else { empty.push(log.record) }
            }
            replay.make_room()?;
            replay.settle()?;
            replay.took = context.env.now().since(began);
            Ok((Found { stream, replay, old_logs: holding, membership, memtable_bytes }, empty))
        }));
    }
    let at_once = replays.len().max(1);
    let mut found = Vec::new();
    for replayed in all(replays, at_once).await {
        let (stream, without) = replayed?;
        empty.extend(without);
        found.push(stream);
    }
    empty.extend(logs.into_values().flatten().map(|log| log.record));
    Ok(found)
}

/// Serves the streams that were found.
///
/// # Errors
/// Those of the log store and the manifest.
pub(super) async fn serve_found(main: &Arc<Engine>, found: Vec<Found>) -> Result<()> {
    let begun = found.into_iter().map(|found| Box::pin(begin(main, found)) as BoxFuture<'_, Result<()>>);
    all(begun.collect(), OPENED_AT_ONCE).await.into_iter().collect::<Result<()>>()?;
    // Also where logs are of streams that have no keyspace any more: their followers want cuts.
    if main.streams.is_any() || main.manifest.state().has_streams() {
        begin_marking(main);
    }
    Ok(())
}

/// Begins a stream unless it is there: its first keyspace is about to be made. One manifest record.
///
/// # Errors
/// `Invalid` without memory for it; `Unsupported` beside what does not know streams; those of the
/// log store and the manifest.
pub(crate) async fn ensure(main: &Arc<Engine>, stream: u32) -> Result<()> {
    let _turn = main.streams.beginning.take().await;
    main.check_writable()?;
    if stream == MAIN_STREAM || main.streams.get(stream).is_some() {
        return Ok(());
    }
    if main.feed.change(|feed| feed.followed.contains_key(&ALL_KEYSPACES)) {
        return Err(refused("while changes are followed", "end the subscriptions first"));
    }
    let options = Options::clone(&main.options.load());
    let (membership, memtable_bytes) = join(main.budget(), &options)?;
    let replay = Replay::none_of(stream, main.budget(), memtable_bytes);
    begin(main, Found { stream, replay, old_logs: Vec::new(), membership, memtable_bytes }).await?;
    begin_marking(main);
    Ok(())
}

fn refused(when: &str, advice: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("a stream cannot be begun {when}")).advice(advice)
}

/// Opens a lane for a stream, and serves it.
async fn begin(main: &Arc<Engine>, found: Found) -> Result<()> {
    let stream = found.stream;
    let lane = main.lanes.next()?;
    main.manifest.assign_lanes([(lane, LogRole::Stream(stream))]);
    let log = main.log_store.open_lane(&main.context, lane).await?;
    let log = MainLog::new(log, LogId { epoch: main.context.epoch, lane });
    let engine = put_together(main, found, log)?;
    serve(&engine);
    Ok(())
}

/// Has cuts of later writes written, if none are yet.
fn begin_marking(main: &Arc<Engine>) {
    if !main.streams.is_marking.swap(true, Ordering::AcqRel) {
        let marking = keep_marking(Arc::clone(main), write::Reached::now(main));
        let marking = spawn(main, TaskClass::Background, "cuts of streams", marking);
        main.tasks.lock().push(marking);
    }
}

/// Shows a stream without a keyspace, which a reader has met in a log.
///
/// # Errors
/// As [`show`].
pub(crate) fn show_another(main: &Arc<Engine>, stream: u32) -> Result<Arc<Engine>> {
    let (membership, memtable_bytes) = join(main.budget(), &main.options.load())?;
    let replay = Replay::none_of(stream, main.budget(), memtable_bytes);
    let found = Found { stream, replay, old_logs: Vec::new(), membership, memtable_bytes };
    let main_log = main.main_log();
    let log = Arc::clone(main_log.log());
    put_together(main, found, MainLog::new(log, LogId { epoch: main.context.epoch, lane: stream }))
}

/// Shows the streams of which a state, and what was replayed, has keyspaces. Nobody writes to them.
///
/// # Errors
/// `Invalid` without memory for their memtables.
pub(super) fn show(main: &Arc<Engine>, found: Vec<Found>, log: &Arc<dyn Log>) -> Result<()> {
    for found in found {
        let id = LogId { epoch: main.context.epoch, lane: found.stream };
        put_together(main, found, MainLog::new(Arc::clone(log), id))?;
    }
    Ok(())
}

/// What the tables of a state have of the streams in it.
///
/// # Errors
/// As [`show`].
pub(super) fn in_tables(options: &Options, budget: &Arc<MemoryBudget>, main: &Replay) -> Result<Vec<Found>> {
    let found = |stream| {
        let (membership, memtable_bytes) = join(budget, options)?;
        let replay = main.of_stream(stream, memtable_bytes);
        Ok(Found { stream, replay, old_logs: Vec::new(), membership, memtable_bytes })
    };
    main.streams().into_iter().map(found).collect()
}

/// Puts the engine of a stream together, and adds it to those of the database.
fn put_together(main: &Arc<Engine>, found: Found, log: Arc<MainLog>) -> Result<Arc<Engine>> {
    let Found { stream, replay, old_logs, membership, memtable_bytes } = found;
    let state = main.manifest.state();
    let (last, bytes) = (replay.last_sequence(&state), replay.bytes());
    let keyspaces = replay.keyspaces()?;
    let replay_rate = write::replay_rate(bytes, replay.took);
    let options = Options { memtable_bytes: Some(memtable_bytes), ..Options::clone(&main.options.load()) };
    let log_bytes_max = write::log_bytes_max(&options, replay_rate);
    let Replayed { memtable: active, writer, waiting, keyspace_edits, old_logs } =
        replay.finish(last, old_logs)?;
    debug_assert!(keyspace_edits.is_empty(), "keyspaces are made and dropped in the main stream");
    let versions = main.versions.of_stream(stream);
    let version = versions.build(&state, &Version::default(), &ingested_of(&waiting));
    let order = Stream::new(Arc::clone(&log), Arc::clone(&active), writer, last, 0);
    {
        let mut commit = order.commit.lock();
        // What was replayed, and is not about to be flushed, would be replayed again.
        commit.log_bytes = if old_logs.is_empty() { 0 } else { bytes };
        commit.old_logs = old_logs;
    }
    let catalog = main.catalog.of_stream();
    keyspaces.iter().for_each(|keyspace| catalog.insert(keyspace));
    let view = View { active, waiting, version, kept_by: None, generation: 0 };
    let parts = StreamParts { options, log, versions, stream: order, catalog, view, membership, replay_rate };
    let engine = Engine::beside(main, parts);
    engine.log_bytes_max.store(log_bytes_max, Ordering::Relaxed);
    engine.counters.replayed_bytes.store(bytes, Ordering::Relaxed);
    main.streams.add(&engine);
    engine.recording.follow(&main.recording);
    keyspaces.iter().for_each(|keyspace| main.catalog.insert(keyspace));
    Ok(engine)
}

/// Starts the background tasks of a stream.
fn serve(engine: &Arc<Engine>) {
    let flush = spawn(engine, TaskClass::Flush, "flush of a stream", flush::run(Arc::clone(engine)));
    let compactor = Arc::new(compaction::Compactor::default());
    let compact = || compaction::run(Arc::clone(engine), Arc::clone(&compactor));
    let workers = (0..compaction::WORKERS)
        .map(|_| spawn(engine, TaskClass::Background, "compaction of a stream", compact()));
    let work = spawn(engine, TaskClass::Background, "work of a stream", pass_work_on(Arc::clone(engine)));
    engine.tasks.lock().extend(workers.chain([flush, work]));
    if engine.events.has_listener() {
        let events = engine.env.spawn(TaskClass::Background, "events of a stream", {
            let engine = Arc::clone(engine);
            async move { deliver(&engine).await }
        });
        engine.tasks.lock().push(events);
    }
}

/// Writes cuts into the main log while streams are written to, so that who follows the logs can
/// show them as of one moment.
async fn keep_marking(engine: Arc<Engine>, mut last: write::Reached) {
    let mut next = engine.env.now() + CUT_EVERY;
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let work = engine.work.subscribe();
        if engine.is_stopping() {
            return;
        }
        if engine.env.now() < next {
            either(work, engine.env.sleep_until(next)).await;
            continue;
        }
        if !engine.streams.is_any() && !engine.manifest.state().has_streams() {
            // Those that were are gone by now.
            next = engine.env.now() + CUT_EVERY;
            continue;
        }
        let marked = match write::mark_cut(&engine, &mut last) {
            Ok(Some(marked)) => marked.await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = marked {
            tracing::debug!(%error, "a cut was not written; another one is");
        }
        next = engine.env.now() + CUT_EVERY;
    }
}

/// What a stream has done may be work for those that serve all of them: tables to delete, and times
/// to keep.
async fn pass_work_on(engine: Arc<Engine>) {
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let work = engine.work.subscribe();
        if engine.is_stopping() {
            return;
        }
        let main = engine.main_engine();
        if Arc::ptr_eq(&main, &engine) {
            return;
        }
        main.work.raise();
        drop(main);
        let _woken = work.await;
    }
}
