//! Flush: `sealed memtable → one table for each keyspace → one manifest record → trim the log`.
//!
//! Invariants:
//! 1. Memtables are flushed in the order in which they were sealed, one at a time, all their
//!    keyspaces with one commit: so a batch that spans keyspaces is in tables whole or not at all,
//!    and the log's replay point is one offset. The tables of the next one may be written meanwhile
//!    (`ahead`), and are named in its turn.
//! 2. The log is durable up to the memtable's end before its tables are named: no table holds what
//!    a crash of the host takes from the log. Of a log that has ended, the replay point stays where
//!    it is until the record of the last memtable that it was for un-names it.
//! 3. The log is trimmed, and old logs are freed, only after the record that says so is durable.
//! 4. The memtable of a stream beside the main one is flushed once the manifest knows the keyspaces
//!    in it, and by what the manifest says of them (`streams`).
//! 5. An attempt's tables have fresh names; those of a failed attempt are deleted, unless the
//!    outcome of naming them is unknown.

mod ahead;
mod buried;
mod elsewhere;
mod renewal;
mod streams;
mod tables;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tombolo_env::Instant;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogId, LogOffset, Purpose, Result};
use tracing::Instrument;

use ahead::Ahead;
pub(crate) use elsewhere::{Elsewhere, write_elsewhere};
pub(crate) use tables::finish;
use tables::{living, write_tables};
use world::FlushWorld;
pub(crate) use world::OutputWorld;

use crate::engine::{Background, Engine, Health, MAIN_LANE, Sealed, Sight, Store, Work, count_of_level};
use crate::event::Event;
use crate::manifest::{State, names};
use crate::slow::work_span;
use crate::version::Ingested;
use crate::write;

/// Pauses between attempts: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// The last pause of collection where somebody has to do something first: nobody waits for it, and
/// an idle database stays idle.
const LASTING_PAUSE: Duration = Duration::from_secs(300);
/// A flush that ended with a bug so often in a row is not made again: two seconds after the first.
const BUGS_MAX: u32 = 8;
/// The flush of a memtable of so much, or an eighth of the largest, tells how fast flushes go; that
/// of a smaller one, what a request takes.
const FULL_BYTES: u64 = 4 << 20;

/// Flushes sealed memtables, until the database stops.
pub(crate) async fn run(engine: Arc<Engine>) {
    let mut renewal = renewal::Renewal::default();
    let (mut ahead, mut last_ended) = (None, engine.env.now());
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let work = engine.work.subscribe();
        if engine.is_stopping() {
            return;
        }
        let has_ended = write::seal_ended_log(&engine);
        // The view itself is let go: it would keep tables from being deleted, and a full store from
        // getting room, while a flush fails.
        let oldest = engine.view().waiting.last().cloned();
        if oldest.as_ref().is_some_and(|sealed| engine.stream.holds_back(sealed.last_sequence)) {
            let _woken = work.await;
            continue;
        }
        match oldest {
            Some(sealed) => {
                let mut retries = Retries::default();
                loop {
                    let next = Ahead::begin(&engine, &sealed);
                    let flushing = flush(&engine, &sealed, ahead.take(), last_ended);
                    let flushed = flushing.instrument(work_span("flush")).await;
                    match (next, &flushed) {
                        (Some(next), Ok(())) => ahead = next.if_begun(),
                        // Nobody flushes it any more, here: what it has written is garbage, as
                        // after a crash.
                        (Some(_), Err(error)) if is_last(error) => {}
                        (Some(next), Err(_)) => next.discard(&engine).await,
                        (None, _) => {}
                    }
                    match retries.after(&engine, Work::FLUSH, flushed).await {
                        Ok(true) => break,
                        Ok(false) => {}
                        Err(_) => return,
                    }
                }
                last_ended = engine.env.now();
                engine.progress.raise();
                write::advance_line(&engine);
                write::look_again(&engine);
                buried::walk_over(&engine, &sealed).await;
            }
            None if has_ended => {
                if renewal::run(&engine, &mut renewal).await.is_err() {
                    return;
                }
            }
            None => {
                if engine.stream.has_drops.swap(false, Ordering::AcqRel) || log_wants_flush(&engine) {
                    write::seal(&engine);
                    continue;
                }
                let _woken = work.await;
            }
        }
    }
}

/// Whether the handle ends with this error: nothing is asked of its store any more.
fn is_last(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Closed | ErrorKind::OutcomeUnknown)
}

/// Whether the log asks for its oldest data to be flushed, and something in memory keeps it.
fn log_wants_flush(engine: &Sight) -> bool {
    let pressure = engine.main_log().pressure();
    pressure.live_bytes > pressure.wanted_bytes_max && !engine.view().active.is_empty()
}

/// Goes on with background work that fails for a passing reason.
#[derive(Debug)]
pub(crate) struct Retries {
    pause: Duration,
    /// Attempts in a row that ended with a bug.
    bugs: u32,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { pause: FIRST_PAUSE, bugs: 0 }
    }
}

impl Retries {
    /// What an attempt at `work` came to: `true` when it is done, `false` when it should be made
    /// again, after a pause.
    ///
    /// # Errors
    /// When the task must end: the database has stopped or the handle is finished.
    pub(crate) async fn after(
        &mut self,
        background: &Background,
        work: Work,
        attempt: Result<()>,
    ) -> Result<bool> {
        let Err(error) = attempt else {
            background.work_ended(work);
            *self = Retries::default();
            return Ok(true);
        };
        let error = background.judge(error).await;
        let keyspace = work.keyspace.and_then(|id| background.catalog.by_id(id));
        let what = keyspace.map_or_else(
            || work.name.to_owned(),
            |keyspace| format!("{} of keyspace {:?}", work.name, keyspace.name),
        );
        tracing::warn!(error = %error, "{what} failed");
        background.note(&error);
        match error.kind() {
            // What this one works with has ended, and nobody ended it: writers would wait for ever.
            ErrorKind::Closed if !background.is_stopping() && !background.is_closed() => {
                let ended = Error::new(
                    ErrorKind::OutcomeUnknown,
                    format!("{what} cannot go on: what it works with has ended"),
                );
                background.fail(&ended.source(error.clone()).advice("open the database again"));
                return Err(error);
            }
            ErrorKind::Fenced | ErrorKind::Closed => return Err(error),
            // Nothing may be tried again that could name other tables for the same writes.
            ErrorKind::OutcomeUnknown => {
                background.fail(&error);
                return Err(error);
            }
            // No time heals it, and writers would wait for ever for room that no flush makes.
            ErrorKind::Bug if work == Work::FLUSH => {
                self.bugs += 1;
                if self.bugs >= BUGS_MAX {
                    background.fail(&error);
                    return Err(error);
                }
            }
            _ => {}
        }
        background.work_failed(work, error.clone().context(what));
        background.progress.raise();
        let stop = background.work.subscribe();
        if background.is_stopping() || !sleep(background, self.pause, work, stop).await {
            return Err(error);
        }
        let no_pause_heals =
            matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::PermissionDenied | ErrorKind::Unsupported);
        let last = if work == Work::COLLECTION && no_pause_heals { LASTING_PAUSE } else { LAST_PAUSE };
        self.pause = (self.pause * 2).min(last);
        Ok(false)
    }
}

/// Sleeps for `pause`, or until somebody asks for `work`; `false` when the database stops.
async fn sleep(
    background: &Background,
    pause: Duration,
    work: Work,
    mut woken: tombolo_env::Completion<()>,
) -> bool {
    let mut sleep = background.env.sleep(pause);
    std::future::poll_fn(|context| {
        if sleep.as_mut().poll(context).is_ready() {
            return std::task::Poll::Ready(true);
        }
        while std::pin::Pin::new(&mut woken).poll(context).is_ready() {
            // Subscribed before it looks: what comes in between is not missed.
            woken = background.work.subscribe();
            if background.is_stopping() {
                return std::task::Poll::Ready(false);
            }
            if background.troubles.is_hurried(work) {
                return std::task::Poll::Ready(true);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// Flushes one sealed memtable, of which tables may have been written ahead. The flush before it
/// ended at `last_ended`.
async fn flush(
    engine: &Arc<Engine>,
    sealed: &Arc<Sealed>,
    ahead: Option<Ahead>,
    last_ended: Instant,
) -> Result<()> {
    let memtable_bytes = sealed.memtable.used_bytes();
    engine.events.tell(|| Event::FlushBegan { bytes: memtable_bytes });
    let (mut began, mut tables) = (engine.env.now(), Vec::new());
    let ahead = match ahead {
        Some(ahead) => ahead.take(engine, sealed, &mut tables).await,
        None => None,
    };
    let (written, filtering) = match ahead {
        Some((since, filtering, written)) => {
            began = since;
            (written, filtering)
        }
        None => {
            streams::wait_until_known(engine, sealed).await?;
            let world = FlushWorld::now(engine, sealed);
            let filtering = world.filtering.clone();
            (write_tables(world, sealed, &mut tables).await, filtering)
        }
    };
    if let Err(error) = written {
        delete_unnamed(engine, &tables).await;
        return Err(never_named(error));
    }
    let replay_point = match logged(engine, sealed).await {
        Ok(replay_point) => replay_point,
        Err(error) => {
            if !matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Closed) {
                delete_unnamed(engine, &tables).await;
            }
            return Err(error);
        }
    };
    if is_enabled(Mutant::LogFreeBeforeReplayPointDurable) {
        free_logs(engine, sealed).await;
    }
    loop {
        let state = engine.manifest.state();
        streams::leave_dropped(engine, &state, &mut tables).await;
        let mut edits = edits(engine, &state, sealed, &tables, replay_point);
        edits.extend(engine.age_samples(sealed.last_sequence));
        let Err(error) = engine.manifest.committed(edits).await else { break };
        if error.kind() == ErrorKind::Bug && streams::drops_meanwhile(engine, &state, sealed) {
            continue;
        }
        let may_be_named =
            matches!(error.kind(), ErrorKind::Fenced | ErrorKind::OutcomeUnknown | ErrorKind::Closed);
        if !may_be_named || is_enabled(Mutant::UnknownEditTablesDeleted) {
            delete_unnamed(engine, &tables).await;
        }
        return Err(error);
    }
    // First, so that who waits for the flush waits for that as well.
    buried::announce(engine, sealed);
    engine.install(Some(sealed));
    streams::let_dropped_go(engine, sealed);
    drop(filtering);
    engine.counters.flushes.fetch_add(1, Ordering::Relaxed);
    let bytes = tables.iter().map(|table| table.length).sum();
    engine.counters.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
    count_of_level(&engine.counters.level_bytes_written, 0, bytes);
    let is_full = memtable_bytes >= (engine.options.memtable_bytes() / 8).min(FULL_BYTES);
    // Two that go on at once take no longer than both together.
    let took = engine.env.now().since(began.max(last_ended));
    engine.stalls.flushed(memtable_bytes, count(&tables), is_full, took);
    told(engine, &tables, began);
    engine.counters.flushed.fetch_max(sealed.last_sequence.0, Ordering::AcqRel);
    engine.work.raise();
    free_logs(engine, sealed).await;
    Ok(())
}

/// Has the log durable up to the end of a memtable, which is the replay point then. `None`: there
/// is none to state, as the log has ended.
async fn logged(background: &Background, sealed: &Sealed) -> Result<Option<(LogId, LogOffset)>> {
    let Some(end) = sealed.log_end else { return Ok(None) };
    // Another takes its place only when nothing waits to be flushed.
    let log = background.main_log();
    let replay_point = Some((log.id, end));
    if log.durable_through() >= end || is_enabled(Mutant::FlushNamesBeforeLogDurable) {
        return Ok(replay_point);
    }
    let durable = log.durable(end).await;
    match durable.unwrap_or_else(|| Err(Error::new(ErrorKind::OutcomeUnknown, "the log ended"))) {
        Ok(()) => Ok(replay_point),
        Err(error) => {
            background.sync_failed(log.id.lane, &error);
            if log.ended().is_some() { Ok(None) } else { Err(error) }
        }
    }
}

/// Tells of tables and value objects that are part of the database now.
pub(crate) fn tell_of_tables(health: &Health, tables: &[TableDescription]) {
    for table in tables {
        health.events.tell(|| Event::TableMade {
            keyspace: table.keyspace,
            level: table.level,
            object: names::table(health.context.incarnation, table.name).to_string(),
            bytes: table.length,
            entries: table.entries,
        });
    }
}

/// Tells of a flush.
fn told(health: &Health, tables: &[TableDescription], began: Instant) {
    tell_of_tables(health, tables);
    let bytes = tables.iter().map(|table| table.length).sum();
    let nanos = u64::try_from(health.env.now().since(began).as_nanos()).unwrap_or(u64::MAX);
    tracing::info!(tables = count(tables), bytes, nanos, "flushed");
    health.events.tell(|| Event::Flushed { tables: count(tables), bytes, nanos });
}

/// Number of tables, value objects apart.
pub(crate) fn count(tables: &[TableDescription]) -> u64 {
    tables.iter().filter(|table| !table.is_values()).count() as u64
}

/// What the manifest is told of a flush: all at once.
fn edits(
    store: &Store,
    state: &State,
    sealed: &Sealed,
    tables: &[TableDescription],
    replay_point: Option<(LogId, LogOffset)>,
) -> Vec<Edit> {
    let mut edits = sealed.keyspace_edits.clone();
    // A keyspace may have no table of it, where all came to nothing.
    let has_table = |id: &u32| tables.iter().any(|table| table.keyspace == *id);
    let flushed = living(state, sealed).into_iter().map(|(id, ..)| id);
    let flushed = flushed.filter(|id| !is_enabled(Mutant::FlushToNothingUnsaid) || has_table(id));
    edits.extend(flushed.map(|id| Edit::KeyspaceFlushed { id, sequence: sealed.last_sequence }));
    edits.extend(tables.iter().cloned().map(Edit::TableAdded));
    if let Some(ingested) = &sealed.ingested {
        edits.extend(ingested_edits(state, ingested, sealed.last_sequence));
    }
    if let Some((log, end)) = replay_point {
        edits.push(Edit::LogReplayPoint { epoch: log.epoch.0, lane: log.lane, offset: end.0 });
    }
    for log in &sealed.old_logs {
        edits.push(Edit::LogUnnamed { epoch: log.id.epoch.0, lane: log.id.lane });
    }
    let reached = state.streams().get(&store.stream_id()).copied().unwrap_or(SequenceNumber::ZERO);
    if sealed.last_sequence > reached {
        edits.push(Edit::StreamReached { stream: store.stream_id(), sequence: sealed.last_sequence });
    }
    edits
}

/// What was ingested goes live, over all that the memtable held. Of a keyspace that the manifest
/// has dropped before, which happens to other streams than the main one, nothing does.
fn ingested_edits(state: &State, ingested: &Ingested, last: SequenceNumber) -> Vec<Edit> {
    let lives = |id: &u32| state.keyspace(*id).is_some();
    let exchanged = ingested.exchanged.iter().copied().filter(lives);
    let mut edits: Vec<_> = exchanged.map(|id| Edit::KeyspaceEmptied { id }).collect();
    let tables = ingested.tables.iter().filter(|table| lives(&table.keyspace));
    edits.extend(tables.map(|table| Edit::StagedTableLive {
        name: table.name,
        level: table.level,
        sequence: table.last_sequence,
    }));
    let flushed = |id| Edit::KeyspaceFlushed { id, sequence: last };
    edits.extend(ingested.keyspaces().into_iter().filter(lives).map(flushed));
    edits
}

/// Frees what the log holds no longer for anyone. What fails here is garbage for collection, and
/// harmless.
async fn free_logs(health: &Health, sealed: &Sealed) {
    let log = health.main_log();
    if let Some(end) = sealed.log_end
        && log.ended().is_none()
        && let Err(error) = log.log().trim(MAIN_LANE, end)
    {
        health.note(&error);
        tracing::warn!(error = %error, "trimming the log failed");
    }
    for log in &sealed.old_logs {
        if let Err(error) = health.log_store.free(&health.context, log).await {
            tracing::warn!(error = %error, "freeing an old log failed");
        }
    }
}

/// What writing tables failed with, before any record named them. One of unknown outcome is
/// garbage, wherever it is: another attempt writes another one, so the handle need not end.
pub(crate) fn never_named(error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutcomeUnknown => {
            Error::new(ErrorKind::Retry, format!("a table may or may not have been written: {error}"))
                .source(error)
        }
        _ => error,
    }
}

/// Deletes tables of this epoch that no record names or will name.
pub(crate) async fn delete_unnamed(store: &Store, tables: &[TableDescription]) {
    let (cold, home): (Vec<_>, Vec<_>) = tables.iter().partition(|table| table.cold().is_some());
    // Nobody waits for a store that may be out of reach: collection deletes them.
    cold.into_iter().for_each(|table| store.left_behind.add_cold(table.name));
    delete_unnamed_by_name(store, home.into_iter().map(|table| table.name)).await;
}

/// As [`delete_unnamed`], of tables that may not be there.
pub(crate) async fn delete_unnamed_by_name(store: &Store, tables: impl Iterator<Item = TableName>) {
    for table in tables {
        let name = names::table(store.context.incarnation, table);
        if let Err(error) = store.objects.delete(store.request(Purpose::Collection), &name).await {
            tracing::warn!(error = %error, "deleting an unused table failed; it is tried again");
            store.left_behind.add(table);
        }
    }
}
