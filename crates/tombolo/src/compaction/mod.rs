//! Compaction: `pick (pure) → run (anywhere) → install (writer only)`.
//!
//! - `pick`: which tables to merge next, and why.
//! - `job`: runs a job in parts by key range, in a `world` of its own; `merge`: its inner loop.
//! - `away`: has a worker on another machine run it; `again`: a part of it, to compare.
//! - this module: workers that share what runs, and install what they made.
//!
//! Invariants:
//! 1. A job's result is installed only by the epoch that began it, in one record with the end of
//!    its inputs, and only if all inputs are still live.
//! 2. Jobs that run at once share no input and write no common range of a level (see `pick`).
//! 3. A table that cannot be read is reported once and set aside; everything else goes on.

mod again;
mod away;
mod garbage;
mod job;
mod merge;
mod pick;
mod read_back;
mod relocation;
mod world;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::Completion;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_storage::location::is_elsewhere;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, ObjectName, Result};
use tracing::Instrument;

pub use away::{CompactionRun, CompactionWorker};
pub(crate) use garbage::collect;

use crate::collection::release_before_recorded;
use crate::engine::{
    Background, CompactionRequest, Engine, KeyspaceInfo, Sight, Store, View, Work, count_of_level,
};
use crate::event::Event;
use crate::flush::{Retries, count, delete_unnamed, never_named, tell_of_tables};
use crate::manifest::{Collected, State, TableStatus, names};
use crate::resolve::operands_ms;
use crate::slow::work_span;
use crate::version::{Levels, TableHandle, Version};
use crate::write;
use away::Away;
use job::Run;
use merge::{Failure, Merged};
use pick::{Asked, Busy, Cursors, Job, Means, Picking, Reason, Settings, Turn};
use world::{JobWorld, Terms};

/// A database is idle that nobody has written to for so long.
const REST: Duration = Duration::from_secs(2);
/// Jobs at once. How many of them run side by side the pool of the background class says.
pub(crate) const WORKERS: usize = 3;

/// What the workers share.
#[derive(Debug, Default)]
pub(crate) struct Compactor(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    busy: Busy,
    cursors: Cursors,
    /// Keyspaces dropped when `cursors` was last looked through.
    drops: u64,
    /// In the order in which they were asked for.
    asked: Vec<(Asked, CompactionRequest)>,
}

/// A job that was taken, and what it needs to be given back.
struct Begun {
    number: u64,
    job: Arc<Job>,
    keyspace: Arc<KeyspaceInfo>,
}

/// Compacts what needs it, until the database stops. Several workers share a compactor.
pub(crate) async fn run(engine: Arc<Engine>, compactor: Arc<Compactor>) {
    let mut retries = Retries::default();
    let mut is_idle = false;
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let work = engine.work.subscribe();
        if engine.is_stopping() {
            return;
        }
        let Some(begun) = compactor.begin(&engine, is_idle) else {
            is_idle = false;
            if !compactor.waits_for_rest(&engine) {
                wait(&engine, work, engine.cold_again()).await;
                continue;
            }
            let writes = engine.stream.writes();
            is_idle = is_left_alone(&engine, work).await && engine.stream.writes() == writes;
            continue;
        };
        is_idle = false;
        let result = compact(&engine, &compactor, &begun).instrument(work_span("compaction")).await;
        let result = compactor.judge(&engine, &begun, result).await;
        // What fails is kept through the pause: the other workers go on with what does not, instead
        // of failing with the same.
        let attempt = retries.after(&engine, Work::compaction(begun.job.keyspace), result).await;
        compactor.give_back(begun);
        // Others may have waited for its inputs; and by now nothing of it keeps their tables.
        engine.work.raise();
        engine.progress.raise();
        write::look_again(&engine);
        match attempt {
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// Waits until there may be work, or so long.
async fn wait(engine: &Store, mut work: Completion<()>, again: Option<Duration>) {
    let mut sleep = again.map(|again| engine.env.sleep(again));
    std::future::poll_fn(|context| {
        let rings = sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready());
        if rings { Poll::Ready(()) } else { Pin::new(&mut work).poll(context).map(drop) }
    })
    .await;
}

/// Waits a while; `false` when there may be work before that is over.
async fn is_left_alone(engine: &Store, mut work: Completion<()>) -> bool {
    let mut rest = engine.env.sleep(REST);
    std::future::poll_fn(|context| {
        if rest.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        Pin::new(&mut work).poll(context).map(|_| false)
    })
    .await
}

impl Compactor {
    /// Whether there is a job that waits for nobody to write.
    fn waits_for_rest(&self, engine: &Sight) -> bool {
        let view = engine.view_owned();
        view.version.keyspaces().any(|(_, levels)| pick::may_want_rest(levels))
            && self.0.lock().next_needed(engine, &view, true).is_some()
    }

    /// Takes the next job: what somebody asked for comes first, and what only an idle database does
    /// comes last.
    fn begin(&self, engine: &Sight, is_idle: bool) -> Option<Begun> {
        let mut shared = self.0.lock();
        let requests = std::mem::take(&mut *engine.compaction_requests.lock());
        shared.asked.extend(requests.into_iter().map(|request| {
            let asked = Asked::new(request.keyspace, request.first.clone(), request.last.clone());
            (asked.dropping(request.dropped), request)
        }));
        // Loaded under the lock: what a job that was given back has installed is in it.
        let view = engine.view_owned();
        shared.forget_what_is_gone(engine);
        let job = shared.next_asked(engine, &view).or_else(|| shared.next_needed(engine, &view, is_idle));
        let Some((job, keyspace)) = job else {
            // What failed last, and nobody is at, is not wanted any more.
            for keyspace in
                engine.troubles.compactions().into_iter().filter(|keyspace| !shared.busy.is_at(*keyspace))
            {
                engine.work_ended(Work::compaction(keyspace));
            }
            shared.await_snapshots(engine, &view);
            return None;
        };
        if job.from > 0
            && let Some(last) = job.upper.last()
        {
            shared.cursors.insert((job.keyspace, job.from), last.description().last_key.clone());
        }
        let number = shared.busy.take(&job);
        engine.counters.compactions_running.fetch_add(1, Ordering::Relaxed);
        engine.stalls.compaction_begins(engine.env.now());
        engine.events.tell(|| Event::CompactionBegan {
            keyspace: job.keyspace,
            reason: job.reason.name(),
            from: job.from,
            to: job.to,
            inputs: job.inputs().count() as u64,
            bytes: job.bytes(),
        });
        Some(Begun { number, job: Arc::new(job), keyspace })
    }

    /// What a job came to, which does no more from here on; sets a damaged table aside.
    async fn judge(&self, background: &Background, begun: &Begun, result: Merged<()>) -> Result<()> {
        background.counters.compactions_running.fetch_sub(1, Ordering::Relaxed);
        let left = if result.is_ok() { begun.job.runs_left() } else { 0 };
        let upper_bytes = begun.job.upper.iter().map(|table| table.description().length).sum();
        background.stalls.compaction_ended(left, upper_bytes, background.env.now());
        let Err(Failure { error, table }) = result else { return Ok(()) };
        let error = background.judge(error).await;
        match table {
            Some(table) if error.kind() == ErrorKind::Corrupt => {
                let mut shared = self.0.lock();
                if shared.busy.set_aside(begun.keyspace.id, table) {
                    report_damage(background, begun.keyspace.id, table, &error);
                }
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Gives back what a job took.
    fn give_back(&self, begun: Begun) {
        let Begun { number, job, .. } = begun;
        self.0.lock().busy.give_back(number, &job);
    }
}

impl Shared {
    /// Forgets tables and keyspaces that are gone.
    fn forget_what_is_gone(&mut self, background: &Background) {
        if self.busy.knows_tables() {
            let state = background.manifest.state();
            for keyspace in self
                .busy
                .retain(|name| state.table(name).is_some_and(|table| table.status == TableStatus::Live))
            {
                background.work_ended(Work::damage(keyspace));
            }
        }
        let is_gone = |keyspace: &u32| background.catalog.by_id(*keyspace).is_none();
        background
            .troubles
            .compactions()
            .iter()
            .filter(|keyspace| is_gone(keyspace))
            .for_each(|id| background.work_ended(Work::compaction(*id)));
        if self.drops != background.catalog.drops() {
            self.drops = background.catalog.drops();
            self.cursors.retain(|(keyspace, _), _| !is_gone(keyspace));
        }
    }

    fn picking<'a>(
        busy: &'a Busy,
        cursors: &'a Cursors,
        (background, view): (&Background, &View),
        (keyspace, levels): (&KeyspaceInfo, &Levels),
    ) -> Picking<'a> {
        let settings = settings_of(background, keyspace, levels);
        // Before the snapshots are listed: one that is opened meanwhile judges by no earlier time.
        let settled_ms = background.time.settled();
        let snapshots = background.snapshots.moments();
        Picking {
            keyspace: keyspace.id,
            is_filtered: keyspace.is_filtered(),
            settings,
            busy,
            cursors,
            oldest_snapshot: snapshots.first().map_or(SequenceNumber::MAX, |(number, _)| *number),
            snapshots: snapshots.iter().map(|(number, _)| *number).collect(),
            newest_snapshot: snapshots.last().map(|(number, _)| *number),
            settled_ms,
            snapshots_judged_ms: snapshots.iter().map(|(_, judged_ms)| *judged_ms).min().unwrap_or(u64::MAX),
            operands_ms: operands_ms(view.memtables().map(|memtable| memtable.ends())),
            collected: collected(background, keyspace.id),
            far: far_sources(&background.manifest.state()),
            cold_up_to: background.cold_up_to(keyspace),
            is_idle: false,
        }
    }

    /// A job for what somebody asked for. Answers requests that are done.
    fn next_asked(&mut self, background: &Background, view: &View) -> Option<(Job, Arc<KeyspaceInfo>)> {
        let Shared { busy, cursors, asked, .. } = self;
        let (mut found, mut ended) = (None, false);
        asked.retain_mut(|(asked, request)| {
            if found.is_some() {
                return true;
            }
            let keyspace = background.catalog.by_id(asked.keyspace);
            let turn = match (&keyspace, view.version.levels(asked.keyspace)) {
                (Some(keyspace), Some(levels)) => asked
                    .next(levels, &Shared::picking(busy, cursors, (background, view), (keyspace, levels))),
                // Dropped or empty.
                _ => Turn::Done,
            };
            match turn {
                Turn::Do(job) => {
                    found = keyspace.map(|keyspace| (*job, keyspace));
                    true
                }
                Turn::Wait => true,
                Turn::Done => {
                    request.end(asked.met_damage.map_or(Ok(()), |table| Err(stayed(background, table))));
                    ended = true;
                    false
                }
            }
        });
        if ended {
            background.progress.raise();
        }
        found
    }

    /// Nothing is to be done: has it looked again when the snapshots close that keep deletes at the
    /// bottom.
    fn await_snapshots(&self, background: &Background, view: &View) {
        if !background.options.load().automatic_compaction || background.snapshots.list().is_empty() {
            return;
        }
        let held = view.version.keyspaces().filter_map(|(id, levels)| {
            let keyspace = background.catalog.by_id(id)?;
            pick::held_by_snapshots(
                levels,
                &Shared::picking(&self.busy, &self.cursors, (background, view), (&keyspace, levels)),
            )
        });
        // They may have closed since they were listed.
        if background.snapshots.wake_at(held.min()) {
            background.work.raise();
        }
    }

    /// A job for the keyspace that needs it most: the one with the most runs is read and written
    /// slowest.
    fn next_needed(
        &self,
        background: &Background,
        view: &View,
        is_idle: bool,
    ) -> Option<(Job, Arc<KeyspaceInfo>)> {
        if !background.options.load().automatic_compaction {
            return None;
        }
        let mut keyspaces: Vec<_> = view.version.keyspaces().collect();
        keyspaces.sort_by_key(|(_, levels)| std::cmp::Reverse(levels.runs.len()));
        keyspaces.into_iter().find_map(|(id, levels)| {
            let keyspace = background.catalog.by_id(id)?;
            let picking = Shared::picking(&self.busy, &self.cursors, (background, view), (&keyspace, levels));
            let job = pick::pick(levels, &Picking { is_idle, ..picking })?;
            Some((job, keyspace))
        })
    }
}

/// The sources on other stores, by number.
fn far_sources(state: &State) -> BTreeSet<u32> {
    state.sources().filter(|source| is_elsewhere(&source.place)).map(|source| source.number).collect()
}

/// The value objects of a keyspace that are to be collected: those that lie on another store, too.
fn collected(background: &Background, keyspace: u32) -> Collected {
    let state = background.manifest.state();
    let Some(keyspace) = state.keyspace(keyspace) else { return Collected::default() };
    let (mut collected, far) = (keyspace.values.collected(), far_sources(&state));
    if !far.is_empty() {
        let is_far =
            |object: &&Arc<TableDescription>| object.source.is_some_and(|of| far.contains(&of.source));
        let known: BTreeSet<u64> = collected.objects.iter().map(|(identity, _)| *identity).collect();
        let more = keyspace.values.objects().filter(is_far).map(|object| (object.identity, object.name));
        collected.objects.extend(more.filter(|(identity, _)| !known.contains(identity)));
    }
    collected
}

/// What picking in a keyspace goes by. Whether its last level is kept the levels say, and not the
/// settings: those may have changed since the levels were looked at.
fn settings_of(background: &Background, keyspace: &KeyspaceInfo, levels: &Levels) -> Settings {
    let options = keyspace.options();
    let same_compression = options.compression_of_lowest() == options.compression;
    let settings = Settings::new(background.options.memtable_bytes(), same_compression);
    let settings = settings.shaped(options.shape, options.fifo_bytes).keeping_last(levels.keeps_last);
    // Where the last level is kept, nothing goes there.
    Settings { is_cold: background.is_cold(keyspace) && !levels.keeps_last, ..settings }
}

/// Bytes that wait to be merged, of all keyspaces.
pub(crate) fn bytes_pending(background: &Background, version: &Version) -> u64 {
    let pending = |(id, levels): (u32, &Arc<Levels>)| {
        let keyspace = background.catalog.by_id(id)?;
        Some(pick::bytes_pending(levels, &settings_of(background, &keyspace, levels)))
    };
    version.keyspaces().filter_map(pending).sum()
}

/// The object of a table that the manifest names, or did.
fn object_of(store: &Store, table: TableName) -> ObjectName {
    let state = store.manifest.state();
    let named = state.table(table).map(|table| store.versions.tables().locate(&table.description).1);
    named.unwrap_or_else(|| names::table(store.context.incarnation, table))
}

/// Why what was asked for is not wholly done.
fn stayed(store: &Store, table: TableName) -> Error {
    let object = object_of(store, table);
    let error = Error::new(ErrorKind::Corrupt, "a damaged table was left where it is").object(object);
    error.advice("verify the database, and restore the table's keyspace from a checkpoint or a backup")
}

fn report_damage(background: &Background, keyspace: u32, table: TableName, error: &Error) {
    let object = object_of(background, table);
    tracing::error!(%error, %object, "a table cannot be compacted: it is set aside, and everything else \
        goes on");
    let advice = "verify the database, and restore the table's keyspace from a checkpoint or a backup";
    background.work_failed(
        Work::damage(keyspace),
        error.clone().context(format!("compacting {object}")).advice(advice),
    );
}

async fn compact(engine: &Arc<Engine>, compactor: &Compactor, begun: &Begun) -> Merged<()> {
    let job = &begun.job;
    match job.means {
        Means::Merge => {}
        Means::Move => {
            let moved =
                |table: &Arc<TableHandle>| Edit::TableMoved { name: table.description().name, level: job.to };
            return Ok(install(engine, job, job.upper.iter().map(moved).collect(), Vec::new()).await?);
        }
        Means::Drop => {
            let gone = |table: &Arc<TableHandle>| Edit::TableObsolete { name: table.description().name };
            return Ok(install(engine, job, job.inputs().map(gone).collect(), Vec::new()).await?);
        }
    }
    let (terms, _filtering) = Terms::now(engine, &begun.keyspace, job);
    // A worker goes by the settings alone.
    let is_said = job.keeps_last == terms.options.ingest_behind;
    if is_said && let Some(away) = away::run(engine, job, &begun.keyspace, &terms).await? {
        return install_away(engine, compactor, job, away).await;
    }
    let world: Arc<dyn JobWorld> = Arc::<Engine>::clone(engine);
    let run = Run::new(world, job, terms);
    let merged = run.run().await;
    for (object, error) in run.take_unreadable() {
        // The references stay, and reads tell of them.
        if compactor.0.lock().busy.set_aside(job.keyspace, object) {
            report_damage(engine, job.keyspace, object, &error);
        }
    }
    engine.note_filtered(job.keyspace, &run.take_filtered());
    if merged.is_ok() {
        engine.note_misused(job.keyspace, run.misused());
    }
    if let Some(error) = run.take_trouble() {
        engine.merge_failed(job.keyspace, &error);
    }
    let outputs = run.take_outputs();
    if let Err(Failure { error, table }) = merged {
        delete_unnamed(engine, &outputs).await;
        return Err(Failure { error: never_named(error), table });
    }
    replace(engine, job, outputs).await?;
    compactor.0.lock().busy.note_older(run.take_older());
    Ok(())
}

/// Installs what a worker made.
async fn install_away(engine: &Arc<Engine>, compactor: &Compactor, job: &Job, away: Away) -> Merged<()> {
    engine.note_filtered(job.keyspace, &away.filtered());
    engine.note_misused(job.keyspace, away.result.misused);
    if let Some(error) = away.operator_trouble() {
        engine.merge_failed(job.keyspace, &error);
    }
    let Away { result, attempt, attempts } = away;
    let has_more = u64::from(result.names) > result.outputs.len() as u64;
    let installed = replace(engine, job, result.outputs).await;
    // What a record may come to name is not looked for.
    let is_named = installed.is_ok() && !has_more;
    let may_be_named = installed.is_err() || is_named;
    away::sweep_later(engine, if may_be_named { attempts.beside(&attempt) } else { attempts });
    installed?;
    compactor.0.lock().busy.note_older(result.older);
    Ok(())
}

/// Counts what a job has moved, and puts its outputs in the place of its inputs.
async fn replace(engine: &Arc<Engine>, job: &Job, outputs: Vec<TableDescription>) -> Result<()> {
    // Outputs first: what the inputs alone refer to goes with them.
    let mut edits: Vec<_> = outputs.iter().cloned().map(Edit::TableAdded).collect();
    edits.extend(job.inputs().map(|table| Edit::TableObsolete { name: table.description().name }));
    engine.counters.compacted_bytes_read.fetch_add(job.bytes(), Ordering::Relaxed);
    let written: u64 = outputs.iter().map(|table| table.length).sum();
    engine.counters.compacted_bytes_written.fetch_add(written, Ordering::Relaxed);
    let counters = &engine.counters;
    let levels = [(job.from, &job.upper), (job.to, &job.lower)].into_iter();
    for (level, tables) in levels.chain(job.passed.iter().map(|(level, tables)| (*level, tables))) {
        let bytes = tables.iter().map(|table| table.description().length).sum();
        count_of_level(&counters.level_bytes_read, level, bytes);
    }
    let cold: u64 = outputs.iter().filter(|table| table.cold().is_some()).map(|table| table.length).sum();
    engine.counters.cold_bytes_written.fetch_add(cold, Ordering::Relaxed);
    for output in outputs.iter().filter(|output| !output.is_values()) {
        count_of_level(&counters.level_bytes_written, output.level, output.length);
    }
    if let Err(error) = read_back::read_back(engine, &outputs, job.reason == Reason::Pulled).await {
        delete_unnamed(engine, &outputs).await;
        return Err(error);
    }
    install(engine, job, edits, outputs).await
}

/// Puts the outputs in the place of the inputs.
async fn install(engine: &Engine, job: &Job, edits: Vec<Edit>, outputs: Vec<TableDescription>) -> Result<()> {
    let state = engine.manifest.state();
    let is_live = |name: TableName| state.table(name).is_some_and(|table| table.status == TableStatus::Live);
    let inputs: BTreeSet<_> = job.inputs().map(|table| table.description().name).collect();
    // The keyspace may have been dropped meanwhile; its tables are obsolete then.
    if !inputs.into_iter().all(is_live) && !is_enabled(Mutant::DeadInputsReplaced) {
        delete_unnamed(engine, &outputs).await;
        return Ok(());
    }
    if is_enabled(Mutant::CloneReleasedBeforeRecorded) {
        release_before_recorded(
            &engine.manifest,
            &job.inputs().map(|table| table.description().name).collect(),
        )
        .await;
    }
    if let Err(error) = engine.manifest.committed(edits).await {
        use tombolo_storage::ErrorKind::{Closed, Fenced, OutcomeUnknown};
        if !matches!(error.kind(), Fenced | OutcomeUnknown | Closed)
            || is_enabled(Mutant::UnknownEditTablesDeleted)
        {
            delete_unnamed(engine, &outputs).await;
            // A flush that drops the keyspace was queued between the look above and these edits:
            // the job is moot, and nothing is wrong.
            if engine.catalog.by_id(job.keyspace).is_none() {
                return Ok(());
            }
        }
        return Err(error);
    }
    engine.install(None);
    tell_of_tables(engine, &outputs);
    engine.counters.compactions.fetch_add(1, Ordering::Relaxed);
    engine.events.tell(|| Event::Compacted {
        keyspace: job.keyspace,
        from: job.from,
        to: job.to,
        is_move: job.means == Means::Move,
        inputs: job.inputs().count() as u64,
        outputs: count(&outputs),
        bytes: outputs.iter().map(|table| table.length).sum(),
    });
    tracing::debug!(
        keyspace = job.keyspace,
        reason = ?job.reason,
        from = job.from,
        to = job.to,
        inputs = job.inputs().count(),
        outputs = outputs.len(),
        means = ?job.means,
        "compacted"
    );
    Ok(())
}

#[cfg(test)]
mod tests;
