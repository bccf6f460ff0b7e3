//! Open: `read manifest → claim → fence the logs → replay → serve`.
//!
//! 1. The manifest is read and claimed; where a store must prove its put-if-absent, that comes
//!    before anything is created.
//! 2. Every older log that the manifest names is fenced, unless its sealed length is recorded
//!    already. The sealed lengths are recorded in one manifest record, before anything that is
//!    replayed can be seen.
//! 3. The logs are replayed, oldest first, up to their recorded lengths, into memtables. One that
//!    holds nothing ends at once.
//! 4. This epoch's own log is opened, which publishes it in the manifest, before any write is
//!    acknowledged.
//! 5. The database is served. What was replayed is flushed at once when it is large; else it stays
//!    in the active memtable, and the old logs stay named, until an ordinary flush, whose record
//!    ends them. Their number and bytes are bounded.
//!
//! Invariants:
//! 1. The entries of a log follow each other without a gap (see `write`); damage within the
//!    recorded length is an error.
//! 2. An operation at or below its keyspace's flushed sequence number is in tables already, and
//!    skipped.

mod clone;
mod parts;
mod read_only;
mod replay;
mod restore;
mod streams;

pub(crate) use clone::{CloneRequest, share};
pub(crate) use parts::{Part, PartsRequest, Span, restore_parts};
pub(crate) use read_only::{CheckpointRequest, WithoutClaim, open_checkpoint, refused, without_claim};
pub(crate) use replay::Replay;
pub(crate) use restore::{Copy, HowToCopy, RestoreRequest, claim_empty, copy_tables, restore};
pub(crate) use streams::{ensure as ensure_stream, show_another as show_another_stream};

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, Task, TaskClass, all};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, LogRole};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    ConfigurationChain, Epoch, Error, ErrorKind, Log, LogContext, LogId, LogOffset, LogRecord, LogStore,
    ObjectStore, Purpose, Result, probe,
};

use crate::budget::{LogBooks, Membership, MemoryBudget};
use crate::cache::BlockCache;
use crate::checkpoint::Checkpoints;
use crate::collection::{Destroyed, Pinned, expire_pins, release_source};
use crate::engine::{
    Background, Catalog, Engine, Health, KeyspaceInfo, MAIN_LANE, MAIN_STREAM, MainLog, Parts, Sealed,
    Stream, View, Work, ingested_of, note_opened, opened_here,
};
use crate::event::Listener;
use crate::extensions::Extensions;
use crate::flash::{FlashCache, FlashUse};
use crate::guard::guarded;
use crate::liveness::presence::{self, Presence};
use crate::manifest::chain::Tip;
use crate::manifest::chain::open::check_log;
use crate::manifest::cold::{self, ColdObjects};
use crate::manifest::driver::follow::ChainFollower;
use crate::manifest::driver::housekeeping::{delete_chain, delete_named};
use crate::manifest::driver::io::Io;
use crate::manifest::driver::{Attempt, EndedLife};
use crate::manifest::{LogState, Manifest, ManifestOptions, NamedTable, Place, Places, State};
use crate::memtable::Memtable;
use crate::operator::Operators;
use crate::options::{KeyspaceOptions, OpenMode, Options, TakeOver};
use crate::pace::BackgroundRate;
use crate::version::{Naming, Tables, Version, Versions};
use crate::{clones, compaction, flush, liveness, manifest, timekeeper, write};
use replay::{OLD_LOGS_MAX, Replayed};

/// Old logs from which on opening waits until they are flushed.
const OLD_LOGS_WAIT: usize = 2 * OLD_LOGS_MAX;

/// Logs that are fenced at once.
const FENCED_AT_ONCE: usize = 16;

/// The keyspace that every database has.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

/// What to open.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) env: Env,
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) log_store: Arc<dyn LogStore>,
    pub(crate) mode: OpenMode,
    pub(crate) take_over: TakeOver,
    pub(crate) options: Options,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) flash: Option<Arc<FlashCache>>,
    pub(crate) rate: Option<Arc<BackgroundRate>>,
    pub(crate) operators: Operators,
    /// Logs of the application's own.
    pub(crate) application_logs: u32,
    pub(crate) extensions: Extensions,
    /// Where what has gone cold goes; `None`: as the manifest says.
    pub(crate) cold_store: Option<String>,
    /// A mark that keeps others from claiming it is passed.
    pub(crate) passes_mark: bool,
}

/// Opens a database, taking it over from others as far as the request says.
pub(crate) async fn open(request: Request) -> Result<Arc<Engine>> {
    open_on(request, None, &mut None).await
}

/// As [`open`]; on top of a tip that is known, it succeeds that tip's epoch, or ends with
/// `Conflict`. However it ends, `attempt` is the claim that was put.
pub(crate) async fn open_on(
    request: Request,
    known: Option<Tip>,
    attempt: &mut Option<Attempt>,
) -> Result<Arc<Engine>> {
    let Request {
        env,
        place,
        objects,
        log_store,
        mode,
        take_over,
        options,
        budget,
        listener,
        flash,
        rate,
        operators,
        application_logs,
        extensions,
        cold_store,
        passes_mark,
    } = request;
    let membership = budget.join(options.memtable_bytes())?;
    let began = env.now();
    let mode = match mode {
        OpenMode::Create => manifest::OpenMode::Create,
        OpenMode::Open if passes_mark => manifest::OpenMode::OpenMarked,
        OpenMode::Open => manifest::OpenMode::Open,
        OpenMode::CreateOrOpen => manifest::OpenMode::CreateOrOpen,
    };
    if matches!(mode, manifest::OpenMode::Create | manifest::OpenMode::CreateOrOpen) {
        probe::exclusive::prove(&env, &objects).await?;
    }
    let claiming = Claiming { env: &env, objects: &objects, log_store: &*log_store, mode, take_over };
    let manifest = claiming.claim(known, attempt).await?;
    let context = manifest.log_context(chain(&manifest), Arc::new(LogBooks::new(&budget)));
    if let Err(error) = clones::check_sources(manifest.io(), manifest.incarnation(), &manifest.state()).await
    {
        manifest.leave().await;
        return Err(judge(&context, error).await);
    }
    if let Some(place) = &cold_store
        && let Err(error) = name_cold_store(&manifest, place).await
    {
        manifest.leave().await;
        return Err(error);
    }
    let (Recovered { replayed, old_logs, streams }, log) =
        match recover(&options, &budget, &manifest, &*log_store, &context, 1 + application_logs).await {
            Ok(recovered) => recovered,
            Err(error) => {
                manifest.leave().await;
                return Err(judge(&context, error).await);
            }
        };
    let old_count = old_logs.len().max(streams.iter().map(|found| found.old_logs.len()).max().unwrap_or(0));
    let kept_by = None;
    let engine = assemble(Assembly {
        env,
        place,
        objects,
        log_store,
        log,
        options,
        context,
        manifest,
        budget,
        membership,
        replayed,
        old_logs,
        listener,
        kept_by,
        flash,
        rate,
        operators,
        extensions,
    })?;
    let nanos = u64::try_from(engine.env.now().since(began).as_nanos()).unwrap_or(u64::MAX);
    engine.counters.open_nanos.store(nanos, Ordering::Relaxed);
    note_opened(&engine);
    let mut unhandled = Unhandled(Some(Arc::clone(&engine)));
    if let Err(error) = streams::serve_found(&engine, streams).await {
        engine.abandon_all();
        engine.manifest.leave().await;
        return Err(judge(&engine.context, error).await);
    }
    // Its reads then judge by the time of now, and not by that of a writer before. What fails is
    // tried again by the keeper.
    if let Err(error) = timekeeper::look(&engine).await {
        tracing::warn!(%error, "the database's time could not be recorded; it is tried again");
    }
    serve(&engine);
    if old_count >= OLD_LOGS_WAIT {
        for engine in engine.with_streams() {
            first_flush(&engine).await;
        }
    }
    unhandled.0 = None;
    Ok(engine)
}

/// Has the manifest name the cold store at `place`, if it does not yet.
///
/// # Errors
/// `Invalid` for another store than the one that it names; those of both stores.
async fn name_cold_store(manifest: &Manifest, place: &str) -> Result<()> {
    let state = manifest.state();
    let named = state.own_cold_store();
    if named.is_some_and(|named| named.place == place) {
        return Ok(());
    }
    let database = state.database().map_or(0, |database| database.id);
    let (own, random) = (&manifest.io().store, manifest.io().env.random_u64());
    let cold = cold::prepare(own, place, database, named.map(|named| named.id), random).await?;
    manifest.committed_in_time(vec![Edit::ColdStoreNamed(cold)]).await.map(drop)
}

/// A claim, and from whom it may take the database.
pub(crate) struct Claiming<'a> {
    pub(crate) env: &'a Env,
    pub(crate) objects: &'a Arc<dyn ObjectStore>,
    pub(crate) log_store: &'a dyn LogStore,
    pub(crate) mode: manifest::OpenMode,
    pub(crate) take_over: TakeOver,
}

/// How often somebody may come first while it is looked whether anybody lives.
const LOOKS_MAX: u32 = 8;

impl Claiming<'_> {
    /// Claims on top of a tip that is known, or else of the newest.
    ///
    /// # Errors
    /// `InUse` when somebody has the database open who is not to be disturbed; those of
    /// [`Manifest::claim`].
    pub(crate) async fn claim(&self, known: Option<Tip>, attempt: &mut Option<Attempt>) -> Result<Manifest> {
        match self.take_over {
            TakeOver::Always => self.put(self.mode, known, Vec::new(), attempt).await,
            TakeOver::FromOthers => self.put(self.mode, known, opened_here(self.env), attempt).await,
            TakeOver::Never => self.claim_of_nobody(None, attempt).await,
            TakeOver::FromEpoch(epoch) => self.claim_of_nobody(Some(epoch), attempt).await,
        }
    }

    async fn put(
        &self,
        mode: manifest::OpenMode,
        known: Option<Tip>,
        opened: Vec<(u64, Epoch)>,
        attempt: &mut Option<Attempt>,
    ) -> Result<Manifest> {
        let options = ManifestOptions { mode, log_identity: self.log_store.identity() };
        let objects = Arc::clone(self.objects);
        Manifest::claim(self.env, objects, options, known, opened, attempt)
            .await
            .map(|(manifest, _)| manifest)
    }

    /// Claims exactly the state of which it was seen that nobody lives who writes to it, or whose
    /// writer is that of the epoch given.
    async fn claim_of_nobody(&self, gone: Option<Epoch>, attempt: &mut Option<Attempt>) -> Result<Manifest> {
        let mut looks = 0;
        loop {
            looks += 1;
            let opened = opened_here(self.env);
            let (mode, known) = match self.nobody(gone, &opened).await? {
                Some(tip) => (self.mode, Some(tip)),
                // Somebody who creates it meanwhile may live.
                None if self.mode == manifest::OpenMode::CreateOrOpen => (manifest::OpenMode::Create, None),
                None => (self.mode, None),
            };
            match self.put(mode, known, opened, attempt).await {
                Err(error) if looks < LOOKS_MAX && self.came_second(&error) => {}
                claimed => return claimed,
            }
        }
    }

    /// Whether another process claimed or created it in the meantime.
    fn came_second(&self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Conflict => true,
            ErrorKind::AlreadyExists => self.mode != manifest::OpenMode::Create,
            _ => false,
        }
    }

    /// The newest state, when nobody lives who writes to it; `None` when there is no database, or
    /// one that may not be there.
    async fn nobody(&self, gone: Option<Epoch>, opened: &[(u64, Epoch)]) -> Result<Option<Tip>> {
        if self.mode == manifest::OpenMode::Create {
            return Ok(None);
        }
        let mut chain = match ChainFollower::open(self.env, self.objects).await {
            Ok(chain) => chain,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        check_log(&chain.tip().state, &self.log_store.identity())?;
        let state = &chain.tip().state;
        let is_own = state.database().is_some_and(|there| opened.contains(&(there.id, state.epoch())));
        if !is_own && gone != Some(state.epoch()) {
            // A writer that came after that epoch is not waited for.
            let wait_max = if gone.is_some() { Duration::ZERO } else { Presence::WAIT_MAX };
            presence::look(&mut chain, self.log_store, wait_max).await?.check_free()?;
        }
        Ok(Some(chain.tip().clone()))
    }
}

/// An engine whose tasks run and that nobody has yet: an opening that is given up here leaves no
/// writer behind.
struct Unhandled(Option<Arc<Engine>>);

impl Drop for Unhandled {
    fn drop(&mut self) {
        if let Some(engine) = &self.0 {
            engine.abandon_all();
        }
    }
}

/// Waits until what replay sealed is flushed: openings that die before it would leave more and more
/// logs. Trouble with it is no trouble of opening, and is tried again in the background.
async fn first_flush(engine: &Engine) {
    loop {
        let progress = engine.progress.subscribe();
        let done = engine.view().waiting.is_empty() || engine.troubles.of(Work::FLUSH).is_some();
        if done || engine.is_stopping() {
            return;
        }
        let _woken = progress.await;
    }
}

/// Steps 2 to 4: fence, replay, open the own log.
async fn recover(
    options: &Options,
    budget: &Arc<MemoryBudget>,
    manifest: &Manifest,
    log_store: &dyn LogStore,
    context: &LogContext,
    lanes: u32,
) -> Result<(Recovered, Arc<dyn Log>)> {
    create_default_keyspace(manifest).await?;
    let old_logs = seal_logs(manifest, log_store, context, budget).await?;
    let state = manifest.state();
    let (recovered, empty) = replay_logs(options, budget, &state, log_store, context, old_logs).await?;
    end_logs(manifest, empty).await?;
    give_up_staged(manifest, &recovered).await?;
    let applications = (1..lanes).map(|lane| (lane, LogRole::Application));
    manifest.assign_lanes(applications.chain([(MAIN_LANE, LogRole::Main)]));
    let log = log_store.open(context, lanes).await?;
    Ok((recovered, log))
}

/// Gives up tables that were staged and that no log entry has made part of the database: all logs
/// of older epochs are sealed, so that none ever will.
async fn give_up_staged(manifest: &Manifest, recovered: &Recovered) -> Result<()> {
    let state = manifest.state();
    let replayed = &recovered.replayed;
    let has_ingested = |name| {
        let of_streams = || recovered.streams.iter().any(|found| found.has_ingested(name));
        replayed.has_ingested(name) || (of_streams() && !is_enabled(Mutant::StreamsStagedGivenUp))
    };
    let is_left = |table: &&NamedTable| {
        !has_ingested(table.description.name) || is_enabled(Mutant::IngestGivenUpWithEntry)
    };
    let left = state.staged().filter(is_left).map(|table| match is_enabled(Mutant::IngestShowsStaged) {
        true => Edit::StagedTableLive {
            name: table.description.name,
            level: 0,
            sequence: replayed.last_sequence(&state),
        },
        false => Edit::TableObsolete { name: table.description.name },
    });
    let edits: Vec<_> = left.collect();
    if edits.is_empty() { Ok(()) } else { manifest.committed_in_time(edits).await.map(drop) }
}

/// What an error of recovery, or of destroying, means: a log, or a pin at a clone's source, that is
/// missing because a successor has given it back meanwhile is no damage.
async fn judge(context: &LogContext, error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) {
        return error;
    }
    match manifest::load(&context.env, &context.objects).await {
        Ok(newest) if (newest.incarnation, newest.state.epoch()) != (context.incarnation, context.epoch) => {
            let message = format!("epoch {} took the database over meanwhile", newest.state.epoch());
            Error::new(ErrorKind::Fenced, message).source(error).advice("try again, which takes it back")
        }
        // It was destroyed meanwhile.
        Err(gone) if gone.kind() == ErrorKind::NotFound => gone.source(error),
        _ => error,
    }
}

/// Takes a database over, ends it, and deletes what it kept, unless somebody looks at it. Of one
/// that has ended already, deletes what was left then.
///
/// Refused while it has checkpoints: they would keep their tables, with nobody left who knows of
/// them.
pub(crate) async fn destroy(request: Request) -> Result<Destroyed> {
    let loaded = match manifest::load(&request.env, &request.objects).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return destroy_rest(&request).await?.ok_or(error);
        }
        loaded => loaded?,
    };
    let Request { env, objects, log_store, budget, .. } = request.clone();
    let checkpoints = Checkpoints::new(&env, &objects, loaded.incarnation, Epoch::NONE);
    let refuse = async || {
        refuse_with(&checkpoints).await?;
        refuse_with_clones(&clones::places(&env, &objects, loaded.incarnation).await?)
    };
    refuse().await?;
    let (mode, take_over) = (manifest::OpenMode::OpenMarked, request.take_over);
    let claiming = Claiming { env: &env, objects: &objects, log_store: &*log_store, mode, take_over };
    let manifest = claiming.claim(None, &mut None).await?;
    // Nobody has asked for that one's end, nor whether somebody needs it.
    if manifest.incarnation() != loaded.incarnation {
        manifest.leave().await;
        let error = Error::new(
            ErrorKind::Conflict,
            "the database was destroyed, and another one made in its place meanwhile",
        );
        return Err(error.advice("destroy it again if that one is meant as well"));
    }
    let context = manifest.log_context(chain(&manifest), Arc::new(LogBooks::new(&budget)));
    if let Err(error) = seal_logs(&manifest, &*log_store, &context, &budget).await {
        return Err(judge(&context, error).await);
    }
    // One may have been made until the logs were fenced.
    if let Err(error) = refuse().await {
        manifest.leave().await;
        return Err(error);
    }
    let state = manifest.state();
    let last = manifest.destroy().await?;
    let ended = EndedLife { incarnation: manifest.incarnation(), last, state: Some(state) };
    delete_ended(&request, &ended).await.map(Option::unwrap_or_default)
}

/// Deletes what a life has left that has ended, whose logs are sealed: logs, then what a pin may
/// keep, then its pins at sources, and the chain last, which says where the logs are and which the
/// sources. `None` when there is nothing. An end in between, or a failure, leaves the rest to the
/// next call. Takes as long as [`expire_pins`].
async fn delete_ended(request: &Request, ended: &EndedLife) -> Result<Option<Destroyed>> {
    let Request { env, objects, log_store, budget, .. } = request;
    let EndedLife { incarnation, last, state } = ended;
    // Nobody makes one any more: a half-made one stays so.
    Checkpoints::new(env, objects, *incarnation, Epoch::NONE).sweep(std::future::ready(Ok(()))).await?;
    let fixed = |state: &Arc<State>| {
        let refusal = Error::new(ErrorKind::NotFound, "the database was destroyed");
        Manifest::fixed(env, Arc::clone(objects), *incarnation, Arc::clone(state), refusal)
    };
    let manifest = state.as_ref().map(fixed);
    if let Some(manifest) = &manifest {
        check_log(&manifest.state(), &log_store.identity())?;
        let context = manifest.log_context(Arc::new(manifest.clone()), Arc::new(LogBooks::new(budget)));
        for log in manifest.state().log_records() {
            log_store.free(&context, &log).await?;
        }
        log_store.clear(&context).await?;
    }
    let io =
        Io { env: env.clone(), store: Arc::clone(objects), epoch: Epoch::NONE, purpose: Purpose::Collection };
    let (kept, expired) = expire_pins(&io, *incarnation).await?;
    if !kept.is_deleted() {
        return Ok(Some(kept));
    }
    // Nobody looks at what it named any more.
    let mut deleted = delete_named(&io, *incarnation).await?;
    if let Some(cold) = state.iter().find_map(|state| state.own_cold_store()) {
        let io = Io { store: Arc::new(ColdObjects::new(objects, cold)), ..io.clone() };
        deleted += cold::delete_all(&io, *incarnation).await?;
    }
    for source in state.iter().flat_map(|state| state.sources()) {
        release_source(&io, &Place::of(objects, source)?).await?;
    }
    deleted += delete_chain(&io, *incarnation, *last).await?;
    Ok((deleted > 0 || expired > 0).then_some(kept))
}

/// # Errors
/// `Invalid` when there are clones that share tables.
fn refuse_with_clones(places: &[String]) -> Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    let error =
        Error::new(ErrorKind::Invalid, "other databases share this one's tables").found(places.join(", "));
    Err(error.advice(
        "destroy them first, or compact them wholly; `tombolo gc` tells which of them are no more, \
            and gives back what they keep",
    ))
}

/// # Errors
/// `Invalid` when there are checkpoints.
async fn refuse_with(checkpoints: &Checkpoints) -> Result<()> {
    let left = checkpoints.list().await?;
    if left.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = left.iter().map(ToString::to_string).collect();
    let error = Error::new(ErrorKind::Invalid, "the database has checkpoints").found(names.join(", "));
    Err(error.advice("delete them first, or restore what is still needed elsewhere"))
}

/// Deletes what a database that was destroyed before has left; `None` when there is nothing.
async fn destroy_rest(request: &Request) -> Result<Option<Destroyed>> {
    match manifest::driver::ended_life(&request.env, &request.objects).await? {
        Some(ended) => delete_ended(request, &ended).await,
        None => Ok(None),
    }
}

async fn create_default_keyspace(manifest: &Manifest) -> Result<()> {
    if manifest.state().next_keyspace_id() > 0 {
        return Ok(());
    }
    let options = KeyspaceOptions::default().to_manifest();
    let edit = Edit::KeyspaceCreated { id: 0, name: DEFAULT_KEYSPACE.into(), stream: MAIN_STREAM, options };
    manifest.committed_in_time(vec![edit]).await?;
    Ok(())
}

/// A log of an older epoch, and where it ends.
#[derive(Clone, Debug)]
struct OldLog {
    record: LogRecord,
    sealed: LogOffset,
}

/// Fences the logs of older epochs, side by side, and records their sealed lengths, in one record.
/// Returns them, oldest first.
async fn seal_logs(
    manifest: &Manifest,
    log_store: &dyn LogStore,
    context: &LogContext,
    budget: &Arc<MemoryBudget>,
) -> Result<Vec<OldLog>> {
    let state = manifest.state();
    let is_known = |log: &LogState| log.sealed.is_some() && !is_enabled(Mutant::LogIgnoreRecordedSeal);
    let is_read = |log: &LogState| log.role != LogRole::Application;
    let replayed = state.logs().iter().filter(|(_, log)| is_read(log) && !is_known(log)).count();
    // What fences read of a log that is about to be replayed they keep, together as much as one
    // lane may hold; of the application's nothing.
    let keeping = LogContext { memory: Arc::new(LogBooks::shared(budget, replayed)), ..context.clone() };
    let looking = LogContext { memory: Arc::new(LogBooks::least(budget)), ..context.clone() };
    let fences = state.logs().iter().map(|(id, log)| -> BoxFuture<'_, Result<OldLog>> {
        let context = if is_read(log) { &keeping } else { &looking };
        let mut record = LogRecord { id: *id, configuration: log.configuration.clone() };
        Box::pin(async move {
            if let Some(sealed) = log.sealed.filter(|_| is_known(log)) {
                return Ok(OldLog { record, sealed });
            }
            let sealed = log_store.fence(context, &record, log.replay_point).await?;
            // A log that was copied elsewhere lies where the fence has published.
            if let Some(moved) = manifest.state().logs().get(id) {
                record.configuration = moved.configuration.clone();
            }
            Ok(OldLog { record, sealed })
        })
    });
    let old = all(fences.collect(), FENCED_AT_ONCE).await.into_iter().collect::<Result<Vec<_>>>()?;
    let is_new = |log: &&OldLog| state.logs().get(&log.record.id).is_some_and(|known| known.sealed.is_none());
    let sealed = |log: &OldLog| Edit::LogSealed {
        epoch: log.record.id.epoch.0,
        lane: log.record.id.lane,
        length: log.sealed.0,
    };
    let edits: Vec<_> = old.iter().filter(is_new).map(sealed).collect();
    if !edits.is_empty() && !is_enabled(Mutant::LogReplayBeforeSealRecorded) {
        manifest.committed_in_time(edits).await?;
    }
    Ok(old)
}

/// Ends logs that hold nothing, with a record. Opening the own log frees what nothing names any
/// more: nobody waits for that.
async fn end_logs(manifest: &Manifest, empty: Vec<LogRecord>) -> Result<()> {
    if empty.is_empty() {
        return Ok(());
    }
    let edits =
        empty.iter().map(|log| Edit::LogUnnamed { epoch: log.id.epoch.0, lane: log.id.lane }).collect();
    manifest.committed_in_time(edits).await.map(drop)
}

fn chain(manifest: &Manifest) -> Arc<dyn ConfigurationChain> {
    if is_enabled(Mutant::LogServeBeforeNamed) {
        manifest.without_waiting()
    } else {
        Arc::new(manifest.clone())
    }
}

/// Replays logs, oldest first: those of the main stream, then those of the others. Returns those
/// that hold nothing beyond their replay points beside.
async fn replay_logs(
    options: &Options,
    budget: &Arc<MemoryBudget>,
    state: &State,
    log_store: &dyn LogStore,
    context: &LogContext,
    old_logs: Vec<OldLog>,
) -> Result<(Recovered, Vec<LogRecord>)> {
    let mut replay = Replay::new(state, budget, options.memtable_bytes())?.helped_by(&context.env);
    let (mut holding, mut empty, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let began = context.env.now();
    for log in old_logs {
        match state.logs().get(&log.record.id).map(|known| known.role) {
            Some(LogRole::Main) => {
                let before = replay.bytes();
                replay_log(&mut replay, state, (log_store, context), &log).await?;
                if replay.bytes() > before { holding.push(log.record) } else { empty.push(log.record) }
            }
            Some(LogRole::Stream(stream)) => others.push((stream, log)),
            // The application's stay named until it releases them.
            Some(LogRole::Application) if is_enabled(Mutant::ApplicationLogEndedByOpening) => {
                empty.push(log.record);
            }
            Some(LogRole::Application) | None => {}
        }
    }
    replay.rejoin().await?;
    replay.make_room()?;
    replay.settle()?;
    replay.took = context.env.now().since(began);
    let (settings, logs) = ((options, budget), (&replay, others));
    let streams = streams::replay(settings, state, (log_store, context), logs, &mut empty).await?;
    Ok((Recovered { replayed: replay, old_logs: holding, streams }, empty))
}

/// What a claim has found.
struct Recovered {
    replayed: Replay,
    /// Logs of the main stream that hold something.
    old_logs: Vec<LogRecord>,
    /// The other streams.
    streams: Vec<streams::Found>,
}

/// Replays one log, from its replay point to its recorded length.
async fn replay_log(
    replay: &mut Replay,
    state: &State,
    (log_store, context): (&dyn LogStore, &LogContext),
    OldLog { record, sealed }: &OldLog,
) -> Result<()> {
    let Some(log) = state.logs().get(&record.id).filter(|log| log.replay_point < *sealed) else {
        return Ok(());
    };
    replay.begin_log();
    let mut reader = log_store.read(context, record, log.replay_point, *sealed).await?;
    while let Some(run) = reader.next_run().await? {
        let mut at = 0;
        while at < run.entries.len() {
            replay.make_way().await?;
            let (count, failed) = replay.some_of(&run, at);
            at += count;
            if let Some(error) = failed {
                // The state is the newest that will ever name what this log is about.
                let error = match error.kind() {
                    ErrorKind::NotFound => {
                        Error::new(ErrorKind::Corrupt, "a log entry has no tables").source(error)
                    }
                    _ => error,
                };
                let end = run.entries[at].end;
                return Err(error.context(format!(
                    "replaying lane {} of the log of epoch {} up to {end}",
                    record.id.lane, record.id.epoch
                )));
            }
        }
    }
    Ok(())
}

/// What an engine is put together from, with a claim or without.
struct Assembly {
    env: Env,
    place: String,
    objects: Arc<dyn ObjectStore>,
    log_store: Arc<dyn LogStore>,
    log: Arc<dyn Log>,
    options: Options,
    context: LogContext,
    manifest: Manifest,
    budget: Arc<MemoryBudget>,
    membership: Membership,
    /// What the old logs hold beyond the manifest's state, and those that hold something.
    replayed: Replay,
    old_logs: Vec<LogRecord>,
    listener: Option<Arc<dyn Listener>>,
    /// What keeps the tables of the first view.
    kept_by: Option<Arc<Pinned>>,
    flash: Option<Arc<FlashCache>>,
    rate: Option<Arc<BackgroundRate>>,
    operators: Operators,
    extensions: Extensions,
}

/// Puts an engine together, which shows the state and what was replayed.
fn assemble(assembly: Assembly) -> Result<Arc<Engine>> {
    let Assembly {
        env, place, objects, log_store, log, options, context, manifest, budget, membership, ..
    } = assembly;
    let Assembly { replayed, old_logs, listener, kept_by, flash, rate, operators, extensions, .. } = assembly;
    let Extensions { collectors, filters, workers } = extensions;
    let tables = Tables {
        env: env.clone(),
        objects: Arc::clone(&objects),
        cache: BlockCache::of(&budget),
        flash: FlashUse::begin(&env, flash, &options, &budget),
        incarnation: context.incarnation,
        epoch: context.epoch,
        places: Arc::new(Mutex::new(Places::of(&objects, context.incarnation, &manifest.state())?)),
        silence: Arc::default(),
        naming: if workers.is_some() { Naming::FreshWithSums } else { Naming::Fresh },
        left_behind: Arc::default(),
        cold: None,
        collectors: Arc::new(collectors),
    };
    let state = manifest.state();
    let last = replayed.last_sequence(&state);
    let catalog = Catalog::new(operators, filters);
    // Those of other streams come with their engines.
    for keyspace in replayed.keyspaces()?.into_iter().filter(|keyspace| keyspace.stream == MAIN_STREAM) {
        catalog.insert(&keyspace);
    }
    let next_keyspace = replayed.next_keyspace();
    let bytes = replayed.bytes();
    let replay_rate = write::replay_rate(bytes, replayed.took);
    let log_bytes_max = write::log_bytes_max(&options, replay_rate);
    let Replayed { memtable: active, writer, waiting, keyspace_edits, old_logs } =
        replayed.finish(last, old_logs)?;
    let versions = Versions::new(tables);
    let version = versions.build(&state, &Version::default(), &ingested_of(&waiting));
    let main = MainLog::new(Arc::clone(&log), LogId { epoch: context.epoch, lane: MAIN_LANE });
    let stream = Stream::new(Arc::clone(&main), Arc::clone(&active), writer, last, next_keyspace);
    {
        let mut commit = stream.commit.lock();
        // What was replayed, and is not about to be flushed, would be replayed again.
        commit.log_bytes = if old_logs.is_empty() { 0 } else { bytes };
        (commit.keyspace_edits, commit.old_logs) = (keyspace_edits, old_logs);
    }
    let view = View { active, waiting, version, kept_by, generation: 0 };
    let engine = Engine::new(Parts {
        env,
        options,
        place,
        objects,
        log_store,
        context,
        manifest,
        log,
        main,
        versions,
        stream,
        catalog,
        view,
        membership,
        replay_rate,
        listener,
        rate,
        workers,
    });
    engine.log_bytes_max.store(log_bytes_max, Ordering::Relaxed);
    engine.counters.replayed_bytes.store(bytes, Ordering::Relaxed);
    Ok(engine)
}

/// Starts a background task without which the database cannot go on. When it panics the handle is
/// finished, and those who wait learn why.
fn spawn(
    engine: &Arc<Engine>,
    class: TaskClass,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> Task {
    let watching = Arc::clone(engine);
    let on_panic = move || {
        watching.fail(&Error::new(ErrorKind::Bug, format!("the task of {name} panicked")).advice(
            "close the database and open it again: nothing that was acknowledged as durable is lost; \
                report what the panic said",
        ));
    };
    engine.env.spawn(class, name, guarded(work, on_panic))
}

/// Starts the background tasks.
fn serve(engine: &Arc<Engine>) {
    let weak = Arc::downgrade(engine);
    engine.manifest.on_fenced(move || {
        if let Some(engine) = weak.upgrade()
            && let Some(error) = engine.manifest.error()
        {
            engine.fail(&error);
        }
    });
    let flush = spawn(engine, TaskClass::Flush, "flush", flush::run(Arc::clone(engine)));
    let compactor = Arc::new(compaction::Compactor::default());
    let compact = || compaction::run(Arc::clone(engine), Arc::clone(&compactor));
    let workers =
        (0..compaction::WORKERS).map(|_| spawn(engine, TaskClass::Background, "compaction", compact()));
    let collection = spawn(engine, TaskClass::Background, "collection", {
        let engine = Arc::clone(engine);
        async move { compaction::collect(&engine).await }
    });
    let sweeping = Arc::clone(engine);
    let sweep = engine.env.spawn(TaskClass::Background, "sweep", async move {
        if let Err(error) = sweep_checkpoints(&sweeping).await {
            sweeping.note(&error);
            tracing::warn!(error = %error, "sweeping unfinished checkpoints failed; the next opening tries \
                again");
        }
    });
    let time = spawn(engine, TaskClass::Background, "time", timekeeper::keep(Arc::clone(engine)));
    let liveness = spawn(engine, TaskClass::Background, "liveness", {
        let engine = Arc::clone(engine);
        async move { liveness::beat(&engine).await }
    });
    engine.tasks.lock().extend(workers.chain([flush, collection, sweep, time, liveness]));
    if engine.events.has_listener() {
        let events = engine.env.spawn(TaskClass::Background, "events", {
            let engine = Arc::clone(engine);
            async move { deliver(&engine).await }
        });
        engine.tasks.lock().push(events);
    }
}

/// Tells the listener of events, until the database stops.
async fn deliver(health: &Health) {
    loop {
        // Subscribed before it looks: a stop in between is not missed.
        let arrived = health.events.arrived();
        let stopping = health.is_stopping();
        health.events.deliver();
        if stopping {
            return;
        }
        let _woken = arrived.await;
    }
}

/// Deletes what processes that ended left of checkpoints half made or half deleted.
async fn sweep_checkpoints(background: &Background) -> Result<()> {
    let _turn = background.checkpointing.take().await;
    let swept = background.checkpoints().sweep(background.confirm()).await?;
    if swept > 0 {
        tracing::info!(swept, "removed what was left of checkpoints that were never finished");
    }
    Ok(())
}

/// The sealed memtable that carries what replay found to its flush.
fn sealed(memtable: Arc<Memtable>, last_sequence: SequenceNumber, keyspace_edits: Vec<Edit>) -> Sealed {
    Sealed {
        memtable,
        last_sequence,
        log_end: None,
        keyspace_edits,
        ingested: None,
        old_logs: Vec::new(),
        buried: Mutex::default(),
    }
}

fn info(
    id: u32,
    name: &str,
    options: &tombolo_format::manifest::KeyspaceOptions,
    stream: u32,
) -> Result<Arc<KeyspaceInfo>> {
    Ok(KeyspaceInfo::new(id, name, KeyspaceOptions::of_stream(options, stream)?, options.features))
}
