//! Closing: `memtables → the log, or tables → background ends → the log un-named`.
//!
//! A log may be lost sooner than the store: the memory of nodes, beside a disk; a disk of this
//! host, beside a service. A database that was closed must not depend on it, so all goes to tables
//! then, and the manifest names that log no more: the next opening asks none of its nodes for
//! anything. Only an application's own logs stay while they hold entries, which no table can.
//!
//! Invariant: the log is un-named only after tables hold all of it (rule 7), and after the last
//! task has ended that could write to it.

use std::sync::Arc;

use tombolo_format::manifest::{Edit, LogRole};
use tombolo_storage::{Error, LogId, LogRecord, Result};

use super::flushed;
use crate::engine::{Background, Engine, Health, MAIN_LANE};
use crate::manifest::LogState;
use crate::{timekeeper, write};

/// Makes what was accepted durable, flushes what no log holds or only one that is lost sooner than
/// the store, and ends background work. Who comes second waits for the first.
pub(crate) async fn close(engine: &Arc<Engine>) -> Result<()> {
    if engine.set_closed() {
        return closed(engine).await;
    }
    // A checkpoint that is being made would keep what must be written from its flush.
    engine.let_flushes_go();
    // Nobody begins another stream meanwhile, or again.
    let _turn = engine.streams.beginning.take().await;
    for stream in engine.streams.all() {
        stream.set_closed();
    }
    let result = shut(engine).await;
    *engine.closed_with.lock() = Some(result.clone());
    engine.progress.raise();
    result
}

/// How another's closing ended, once it has.
async fn closed(background: &Background) -> Result<()> {
    loop {
        let progress = background.progress.subscribe();
        let ended = background.closed_with.lock().clone();
        if let Some(result) = ended {
            return result;
        }
        let _woken = progress.await;
    }
}

async fn shut(engine: &Arc<Engine>) -> Result<()> {
    let streams = engine.streams.all();
    let leaves_log = is_log_lost_sooner(engine);
    let mut result = match engine.failure() {
        Some(_) if engine.is_read_only() => Ok(()),
        Some(error) => Err(error),
        None => write_rest(engine, &streams, leaves_log).await,
    };
    let main = engine.main_log();
    // One that has ended, and could not be put into tables, is among what went wrong already.
    if main.ended().is_none() {
        result = result.and(main.log().close().await);
    }
    if let Some(log) =
        engine.application.log.as_ref().filter(|log| !Arc::ptr_eq(log, main.log()) || main.ended().is_some())
    {
        result = result.and(log.close().await);
    }
    for stream in &streams {
        let lane = stream.main_log();
        if lane.ended().is_none() {
            result = result.and(lane.log().close().await);
        }
    }
    streams.iter().for_each(|stream| stream.stop());
    engine.stop();
    let mut tasks = std::mem::take(&mut *engine.tasks.lock());
    streams.iter().for_each(|stream| tasks.append(&mut stream.tasks.lock()));
    let ended = async {
        for task in tasks {
            task.await;
        }
    };
    // What has no answer goes on, and nobody waits for it: what was acknowledged is in the log.
    result = result.and(engine.manifest.in_time(ended).await);
    if leaves_log && result.is_ok() {
        result = leave_log(engine, &streams).await.map_err(|error| not_written(engine, error));
    }
    if result.is_ok() && !engine.is_read_only() {
        result = timekeeper::close(engine).await;
    }
    // A damaged file may have to be looked at, and its writer is part of that.
    match &result {
        Ok(()) if !engine.is_read_only() => engine.manifest.leave().await,
        _ => engine.manifest.close().await,
    }
    result = result.and(engine.manifest.check_answered());
    engine.versions.tables().flash.end();
    result
}

/// Flushes the streams that hold what no log does, or only one that is lost sooner than the store.
async fn write_rest(engine: &Arc<Engine>, streams: &[Arc<Engine>], leaves_log: bool) -> Result<()> {
    let mut sealed = Vec::new();
    for stream in std::iter::once(engine).chain(streams) {
        if leaves_log || write::has_unlogged(stream) {
            write::seal_ended_log(stream);
            sealed.push((stream, write::seal(stream)));
        }
    }
    for (stream, last) in sealed {
        flushed(stream, last).await.map_err(|error| not_written(stream, error))?;
    }
    Ok(())
}

/// Whether durable writes in the log are lost with less than those in the store.
fn is_log_lost_sooner(health: &Health) -> bool {
    !health.is_read_only() && health.log_store.survival().domain < health.objects.survival().domain
}

/// What closing says of writes that are in the log alone, or without any.
fn not_written(health: &Health, error: Error) -> Error {
    let advice = match health.main_log().ended() {
        None => format!(
            "what was acknowledged is in {}: keep that until the database was opened and closed again",
            health.log_store.survival().store
        ),
        Some(_) => "writes since the last flush may be lost".to_owned(),
    };
    Error::new(error.kind(), format!("closing could not write everything to the store: {}", error.message()))
        .source(error)
        .advice(advice)
}

/// Un-names the log of this epoch, of which tables hold everything, and those of the application
/// that hold nothing, and frees them. What the application has in its logs is in no table: they
/// stay.
async fn leave_log(health: &Health, streams: &[Arc<Engine>]) -> Result<()> {
    let mut own: Vec<LogId> = streams.iter().map(|stream| stream.main_log().id).collect();
    own.push(health.main_log().id);
    let state = health.manifest.state();
    let (mut left, mut stay) = (Vec::new(), 0);
    for (id, log) in state.logs() {
        let is_application = log.role == LogRole::Application;
        if own.contains(id) || (is_application && holds_nothing(health, id, log)) {
            left.push(LogRecord { id: *id, configuration: log.configuration.clone() });
        } else if is_application {
            stay += 1;
        }
    }
    if stay > 0 {
        tracing::warn!(
            logs = stay,
            "logs of the application hold entries, and are needed until it has released or trimmed them"
        );
    }
    if left.is_empty() {
        return Ok(());
    }
    left.iter().for_each(|log| health.manifest.give_up_log(log.id));
    let unnamed = left.iter().map(|log| Edit::LogUnnamed { epoch: log.id.epoch.0, lane: log.id.lane });
    health.manifest.committed_in_time(unnamed.collect()).await?;
    for log in &left {
        if let Err(error) = health.log_store.free(&health.context, log).await {
            tracing::warn!(%error, log = %log.id.lane, "freeing a log failed; the next epoch frees it");
        }
    }
    Ok(())
}

/// Whether a log of the application holds no entry that counts.
fn holds_nothing(health: &Health, id: &LogId, log: &LogState) -> bool {
    if id.epoch < health.context.epoch {
        return log.sealed.is_some_and(|end| log.replay_point >= end);
    }
    let number = id.lane.checked_sub(MAIN_LANE + 1).and_then(|number| usize::try_from(number).ok());
    let lane = number.and_then(|number| health.application.lanes.get(number));
    lane.is_some_and(|lane| lane.appended.lock().count <= log.trimmed)
}
