//! Compaction: `pick (pure) → run (anywhere) → install (writer only)`.
//!
//! A simple strategy: once a keyspace has several runs in level 0, all of them are merged with what they overlap in level 1.
//!
//! Invariants:
//! 1. A job's inputs are all runs of level 0, the oldest included, so that level 0 stays newer than level 1.
//! 2. A job's result is installed only by the epoch that began it, in one record with the end of its inputs, and only if all inputs are
//!    still live.
//! 3. What a snapshot sees is kept: snapshots are listed after the inputs were chosen.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_format::manifest::{Edit, TableDescription};
use tombolo_storage::{Purpose, Result};

use crate::collection::Collector;
use crate::engine::{COMPACTION, Engine, KeyspaceInfo};
use crate::flush::{Retention, Retries, delete_unnamed, never_named};
use crate::manifest::TableStatus;
use crate::read::{Merge, Source};
use crate::version::{Levels, TableHandle, TableWriter};

/// Runs of level 0 that start a compaction.
const RUNS_MAX: usize = 4;

/// Size at which an output ends.
const OUTPUT_BYTES: u64 = 64 << 20;

/// What to merge.
#[derive(Debug)]
pub(crate) struct Job {
    keyspace: u32,
    /// Newest first.
    runs: Vec<Arc<TableHandle>>,
    /// Tables of level 1 that the runs overlap, in order.
    sorted: Arc<Vec<Arc<TableHandle>>>,
}

impl Job {
    fn inputs(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.runs.iter().chain(self.sorted.iter())
    }
}

/// Deletes what left the version, once nothing of this process reads it and no pin keeps it; until the database stops. A pass follows
/// background work, so that an idle database makes no request.
pub(crate) async fn collect(engine: Arc<Engine>) {
    let collector = Collector::new(engine.manifest.clone());
    if let Err(error) = collector.collect_orphans().await {
        engine.note(&error);
        tracing::warn!(error = %error, "collecting orphans failed");
    }
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let work = engine.work.subscribe();
        if engine.is_stopping() {
            return;
        }
        if engine.manifest.state().unneeded().next().is_some()
            && let Err(error) = collector.collect(|table| engine.versions.is_used(table)).await
        {
            engine.note(&error);
            tracing::warn!(error = %error, "collection failed");
        }
        let _woken = work.await;
    }
}

/// Chooses a job for a keyspace with at least `runs_min` runs in level 0. Pure.
pub(crate) fn pick(keyspace: u32, levels: &Levels, runs_min: usize) -> Option<Job> {
    if levels.runs.is_empty() || levels.runs.len() < runs_min {
        return None;
    }
    let first = levels.runs.iter().map(|table| &table.description().first_key).min()?;
    let last = levels.runs.iter().map(|table| &table.description().last_key).max()?;
    let overlapping = levels.level(1).map_or_else(Vec::new, |run| run.range(run.overlapping(first, last)).cloned().collect());
    Some(Job { keyspace, runs: levels.runs.clone(), sorted: Arc::new(overlapping) })
}

/// Compacts what needs it, until the database stops.
pub(crate) async fn run(engine: Arc<Engine>) {
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let work = engine.work.subscribe();
        if engine.is_stopping() {
            return;
        }
        let wanted = engine.counters.compact_wanted.load(Ordering::Acquire);
        let everything = wanted > engine.counters.compact_done.load(Ordering::Acquire);
        let runs_min = if everything { 1 } else { RUNS_MAX };
        let job = (everything || engine.options.load().automatic_compaction).then(|| next_job(&engine, runs_min)).flatten();
        match job {
            Some((job, keyspace)) => {
                let mut retries = Retries::new(COMPACTION);
                while !match retries.after(&engine, compact(&engine, &job, &keyspace).await).await {
                    Ok(done) => done,
                    Err(_) => return,
                } {}
                engine.progress.raise();
            }
            None if everything => {
                engine.counters.compact_done.store(wanted, Ordering::Release);
                engine.progress.raise();
            }
            None => {
                let _woken = work.await;
            }
        }
    }
}

fn next_job(engine: &Engine, runs_min: usize) -> Option<(Job, Arc<KeyspaceInfo>)> {
    let view = engine.view_owned();
    let jobs = view.version.keyspaces().filter_map(|(id, levels)| pick(id, levels, runs_min));
    // The keyspace with the most runs is read and written slowest.
    let job = jobs.filter(|job| engine.catalog.by_id(job.keyspace).is_some()).max_by_key(|job| job.runs.len())?;
    let keyspace = engine.catalog.by_id(job.keyspace)?;
    Some((job, keyspace))
}

async fn compact(engine: &Arc<Engine>, job: &Job, keyspace: &KeyspaceInfo) -> Result<()> {
    let mut outputs = Vec::new();
    let merged = merge(engine, job, keyspace, &mut outputs).await;
    if let Err(error) = merged {
        delete_unnamed(engine, &outputs).await;
        return Err(never_named(error));
    }
    install(engine, job, outputs).await
}

/// Merges the inputs into tables of level 1 with fresh names.
async fn merge(engine: &Arc<Engine>, job: &Job, keyspace: &KeyspaceInfo, outputs: &mut Vec<TableDescription>) -> Result<()> {
    let sources = job.inputs().map(|table| Source::Table(table.cursor(Purpose::Compaction))).collect();
    let mut merge = Merge::new(sources);
    merge.first().await?;
    let mut retention = Retention::bottom(engine.snapshots.list());
    let mut output: Option<TableWriter> = None;
    let mut since_yield = 0;
    while let Some((key, trailer)) = merge.entry() {
        // All versions of a key stay in one table: level 1 must not overlap.
        let full = output.as_ref().is_some_and(|writer| writer.written_bytes() >= OUTPUT_BYTES) && retention.is_new(key);
        if retention.keeps(key, trailer) {
            if full && let Some(writer) = output.take() {
                outputs.extend(writer.finish().await?);
            }
            let writer = match &mut output {
                Some(writer) => writer,
                None => output.insert(begin_output(engine, job, keyspace).await?),
            };
            let value = merge.source().map_or(&[][..], Source::value);
            writer.add(key, trailer, value).await?;
        }
        merge.next().await?;
        since_yield += 1;
        if since_yield == 4096 {
            since_yield = 0;
            if engine.is_stopping() {
                return Err(tombolo_storage::Error::new(tombolo_storage::ErrorKind::Closed, "the database is stopping"));
            }
            engine.env.yield_now().await;
        }
    }
    if let Some(writer) = output {
        outputs.extend(writer.finish().await?);
    }
    Ok(())
}

async fn begin_output(engine: &Engine, job: &Job, keyspace: &KeyspaceInfo) -> Result<TableWriter> {
    let name = engine.manifest.fresh_table_name();
    TableWriter::create(engine.versions.tables(), name, job.keyspace, 1, &keyspace.options(), Purpose::Compaction).await
}

/// Puts the outputs in the place of the inputs.
async fn install(engine: &Arc<Engine>, job: &Job, outputs: Vec<TableDescription>) -> Result<()> {
    let state = engine.manifest.state();
    let live: BTreeSet<_> = job
        .inputs()
        .map(|table| table.description().name)
        .filter(|name| state.table(*name).is_some_and(|table| table.status == TableStatus::Live))
        .collect();
    // The keyspace may have been dropped meanwhile; its tables are obsolete then.
    if live.len() != job.inputs().count() {
        delete_unnamed(engine, &outputs).await;
        return Ok(());
    }
    let mut edits: Vec<_> = live.into_iter().map(|name| Edit::TableObsolete { name }).collect();
    edits.extend(outputs.iter().cloned().map(Edit::TableAdded));
    if let Err(error) = engine.manifest.commit_until(edits, None).await {
        use tombolo_storage::ErrorKind::{Closed, Fenced, OutcomeUnknown};
        if !matches!(error.kind(), Fenced | OutcomeUnknown | Closed) {
            delete_unnamed(engine, &outputs).await;
            // A flush that drops the keyspace was queued between the look above and these edits: the job is moot, and nothing is wrong.
            if engine.catalog.by_id(job.keyspace).is_none() {
                return Ok(());
            }
        }
        return Err(error);
    }
    engine.install(None);
    engine.counters.compactions.fetch_add(1, Ordering::Relaxed);
    engine.work.raise();
    Ok(())
}
