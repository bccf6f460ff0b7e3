//! Runs the chain's state machines against an object store.
//!
//! Manifest, step 3 of 3. One task per open manifest puts records, one at a time; edits queued
//! meanwhile share the next record. A second task writes a snapshot now and then, beside the edits,
//! and truncates the chain below it. An idle manifest makes no requests.
//!
//! Invariants:
//! 1. A commit is answered `Ok` only after its record was seen in its slot, and after
//!    [`Manifest::state`] shows it.
//! 2. Once fenced, nothing is put any more, and every commit fails with `Fenced`.
//!
//! Thread-safe; callbacks and wakers run outside all locks.

pub(crate) mod follow;
pub(crate) mod housekeeping;
pub(crate) mod io;
mod writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tombolo_env::{
    BoxFuture, Completer, Completion, Env, Instant, ProcessFacts, TaskClass, completion, within,
};
use tombolo_format::manifest::{Edit, LogRole, RecordKind, TableName, Writer, record_hash};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    ConfigurationChain, Epoch, Error, ErrorKind, Incarnation, LogContext, LogId, LogMemory, LogRecord,
    ObjectStore, Purpose, Result,
};

use super::chain::load::{Load, Proof};
use super::chain::open::{Open, Policy, not_found};
use super::chain::{Answer, Effect, Machine, Step, Tip};
use super::state::State;
use crate::guard::guarded;
use io::{ANSWER_TIME_MAX, Io, RetryLimit};

pub use super::chain::open::OpenMode;

/// Commits queued at once, beyond which a commit is `Busy`.
const QUEUE_MAX: usize = 4096;

/// How long a writer that closes waits for the record that says so.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// How a manifest is opened for writing.
#[derive(Clone, Debug)]
pub struct ManifestOptions {
    /// What opening may find and do.
    pub mode: OpenMode,
    /// `LogStore::identity` of the log store given: that of an existing database must be equal.
    pub log_identity: String,
}

/// A state that was proven to be the newest at a moment after the load began.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The database's life.
    pub incarnation: Incarnation,
    /// The state.
    pub state: Arc<State>,
}

/// What a queued item comes to.
type Committed = Result<u64>;

#[derive(Debug)]
struct Queued {
    kind: RecordKind,
    done: Completer<Committed>,
}

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    queue: VecDeque<Queued>,
    /// The writer's task, waiting for work.
    idle: Option<Completer<()>>,
    /// Why commits fail from here on.
    ended: Option<Error>,
    fenced: bool,
    on_fenced: Vec<Callback>,
    /// No new commits; the task ends when the queue is empty.
    closing: bool,
    /// The writer's task has ended.
    finished: bool,
    /// A snapshot is being written.
    snapshotting: bool,
    /// Waiting for the tasks to end.
    closers: Vec<Completer<()>>,
}

/// What the handle and the tasks share.
pub(crate) struct Inner {
    io: Io,
    incarnation: Incarnation,
    epoch: Epoch,
    state: ArcSwap<State>,
    shared: Mutex<Shared>,
    /// Since when the store has not said what became of a record that is being put.
    putting_since: Mutex<Option<Instant>>,
    /// Logs of which nothing is published any more.
    given_up: Mutex<BTreeSet<LogId>>,
    /// What lanes of this epoch are for, before anything is published of them.
    roles: Mutex<BTreeMap<u32, LogRole>>,
    /// Slots whose state a snapshot holds that a record names, and since when this process knows
    /// that: those below which records are still to be deleted.
    named: Mutex<VecDeque<(u64, Instant)>>,
}

/// Ends the tasks when the last handle goes.
struct Handle(Arc<Inner>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

/// The manifest of a database that this process has claimed. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Manifest(Arc<Handle>);

impl fmt::Debug for Manifest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner();
        formatter
            .debug_struct("Manifest")
            .field("incarnation", &inner.incarnation)
            .field("epoch", &inner.epoch)
            .finish()
    }
}

impl Manifest {
    fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }

    /// The store as this manifest uses it.
    pub(crate) fn io(&self) -> &Io {
        &self.inner().io
    }

    /// Opens the database under the store's root and claims it: on return the claim is effective,
    /// and the state is the claim's. An older writer's logs are not fenced yet.
    ///
    /// Costs a list and a read for the incarnation and the newest record each, the snapshot, the
    /// records since, a put and a list.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` by `mode`; `Invalid` when the database uses another log;
    /// `Unsupported` when a newer Tombolo wrote it; `Fenced` when another process created it at the
    /// same time.
    pub async fn open(
        env: &Env,
        store: Arc<dyn ObjectStore>,
        options: ManifestOptions,
    ) -> Result<(Manifest, Arc<State>)> {
        Manifest::claim(env, store, options, None, Vec::new(), &mut None).await
    }

    /// As [`Manifest::open`], on top of a tip that was proven before: costs a put and a list, and a
    /// read for each record since. However it ends, `attempt` is the claim that was put last.
    /// `opened` are databases, by their random number and epoch, that are not taken over.
    ///
    /// # Errors
    /// As [`Manifest::open`]; `Conflict` when the tip's epoch is not the newest any more; `InUse`
    /// for a database among those `opened`.
    pub(crate) async fn claim(
        env: &Env,
        store: Arc<dyn ObjectStore>,
        options: ManifestOptions,
        known: Option<Tip>,
        opened: Vec<(u64, Epoch)>,
        attempt: &mut Option<Attempt>,
    ) -> Result<(Manifest, Arc<State>)> {
        let io = Io { env: env.clone(), store, epoch: Epoch::NONE, purpose: Purpose::Open };
        let log_identity = Some(options.log_identity.clone());
        let policy = Policy { mode: options.mode, log_identity, writer: this_process(env), opened };
        let at = io.store.describe();
        let open = match known {
            Some(known) => Open::succeeding(policy, known),
            None => Open::new(policy),
        };
        let mut machine = Noting { open, attempt };
        let tip = io
            .run(&mut machine, RetryLimit::Bounded)
            .await
            .flatten()
            .map_err(|error| error.context(format!("opening {at}")))?;
        *attempt = Some(Attempt { slot: tip.slot, hash: tip.hash, is_effective: true });
        let manifest = Manifest::start(io, tip);
        if manifest.state().database().is_none() {
            let (id, created_unix_seconds) = (env.random_u64(), env.unix_time().as_secs());
            manifest
                .committed_in_time(vec![Edit::DatabaseCreated {
                    id,
                    log_identity: options.log_identity,
                    created_unix_seconds,
                }])
                .await?;
        }
        let state = manifest.state();
        Ok((manifest, state))
    }

    /// The manifest of a reader: a state that stays, without a claim. Commits fail with `refusal`.
    pub(crate) fn fixed(
        env: &Env,
        store: Arc<dyn ObjectStore>,
        incarnation: Incarnation,
        state: Arc<State>,
        refusal: Error,
    ) -> Manifest {
        let io = Io { env: env.clone(), store, epoch: Epoch::NONE, purpose: Purpose::Open };
        let shared = Shared { ended: Some(refusal), closing: true, finished: true, ..Shared::default() };
        let inner = Inner {
            incarnation,
            epoch: state.epoch(),
            state: ArcSwap::new(state),
            shared: Mutex::new(shared),
            putting_since: Mutex::default(),
            given_up: Mutex::default(),
            roles: Mutex::default(),
            named: Mutex::default(),
            io,
        };
        Manifest(Arc::new(Handle(Arc::new(inner))))
    }

    /// Shows another state from here on: of a reader's manifest, which follows that of a writer.
    pub(crate) fn show(&self, state: Arc<State>) {
        self.inner().state.store(state);
    }

    /// Starts the writer's task after an effective claim.
    fn start(io: Io, tip: Tip) -> Manifest {
        let epoch = Epoch(tip.slot);
        let io = Io { epoch, purpose: Purpose::Manifest, ..io };
        let named = tip.snapshot.map(|snapshot| (snapshot.slot, io.env.now())).into_iter().collect();
        let inner = Arc::new(Inner {
            incarnation: tip.incarnation,
            epoch,
            state: ArcSwap::new(Arc::clone(&tip.state)),
            shared: Mutex::default(),
            putting_since: Mutex::default(),
            given_up: Mutex::default(),
            roles: Mutex::default(),
            named: Mutex::new(named),
            io,
        });
        let watching = Arc::clone(&inner);
        let task = guarded(writer::run(Arc::clone(&inner), tip), move || {
            let error = Error::new(ErrorKind::OutcomeUnknown, "the manifest's task panicked");
            watching.end(
                error.advice("open the database again to see what holds; report what the panic said"),
                false,
            );
            watching.task_ended(|shared| shared.finished = true);
        });
        inner.io.env.spawn(TaskClass::Foreground, "manifest", task).detach();
        Manifest(Arc::new(Handle(inner)))
    }

    /// Queues edits; resolves with the slot that holds them once they are durable in the chain. All
    /// of one call take effect together: they share one record, or are parts in several that take
    /// effect with the last. Dropping the completion leaves the edits to take effect.
    ///
    /// # Errors
    /// `Fenced`: another process has claimed the database, outcome unknown: delete nothing that the
    /// edits named. `Bug`: an edit does not fit the state, nothing was written. `OutcomeUnknown`,
    /// `Closed`: the process is ending. Errors of the store that say that nothing took effect, such
    /// as `OutOfSpace`. `None` instead of a result: the executor was dropped, as `OutcomeUnknown`.
    pub fn commit(&self, edits: Vec<Edit>) -> Completion<Result<u64>> {
        self.inner().enqueue(RecordKind::Edits(edits))
    }

    /// As [`Manifest::committed`], for callers that learn of a store that is silent for long. The
    /// record is put until it does all the same.
    ///
    /// # Errors
    /// As [`Manifest::committed`]; `OutcomeUnknown` after a silence of [`ANSWER_TIME_MAX`].
    pub(crate) async fn committed_in_time(&self, edits: Vec<Edit>) -> Result<u64> {
        self.in_time(self.committed(edits)).await.flatten()
    }

    /// Waits for what depends on records of this manifest.
    ///
    /// # Errors
    /// `OutcomeUnknown` once the store has not said for [`ANSWER_TIME_MAX`] what became of one.
    pub(crate) async fn in_time<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        let mut wait = pin!(wait);
        let env = &self.inner().io.env;
        loop {
            if let Some(ended) = within(env, ANSWER_TIME_MAX / 4, wait.as_mut()).await {
                return Ok(ended);
            }
            self.check_answered()?;
        }
    }

    /// # Errors
    /// `OutcomeUnknown` once the store has not said for [`ANSWER_TIME_MAX`] what became of a
    /// record.
    pub(crate) fn check_answered(&self) -> Result<()> {
        let inner = self.inner();
        let Some(since) = *inner.putting_since.lock() else { return Ok(()) };
        let silence = inner.io.env.now().since(since);
        if silence < ANSWER_TIME_MAX {
            return Ok(());
        }
        let message = format!(
            "the store has not said for {} s whether a record of the manifest is in place",
            silence.as_secs()
        );
        Err(Error::new(ErrorKind::OutcomeUnknown, message).object(inner.io.store.describe()).advice(
            "the record is put until the store says, and what waits for it goes on by itself then: let \
                `tombolo doctor` look at the store, and look what came of it before it is done again",
        ))
    }

    /// As [`Manifest::commit`], waited for.
    ///
    /// # Errors
    /// As [`Manifest::commit`]; `OutcomeUnknown` when the executor was dropped.
    pub async fn committed(&self, edits: Vec<Edit>) -> Result<u64> {
        let ended = || {
            Error::new(ErrorKind::OutcomeUnknown, "the manifest's task ended")
                .advice("open the database again to see what holds")
        };
        self.commit(edits).await.unwrap_or_else(|| Err(ended()))
    }

    /// The state with everything in it that this process knows to be committed. Costs no lock.
    pub fn state(&self) -> Arc<State> {
        self.inner().state.load_full()
    }

    /// The epoch that this process has claimed.
    pub fn epoch(&self) -> Epoch {
        self.inner().epoch
    }

    /// The database's life.
    pub fn incarnation(&self) -> Incarnation {
        self.inner().incarnation
    }

    /// What the logs of this epoch are opened with; their configurations go through `chain`, and
    /// `memory` counts what they hold.
    pub fn log_context(&self, chain: Arc<dyn ConfigurationChain>, memory: Arc<dyn LogMemory>) -> LogContext {
        let database = self.state().database().map_or(0, |database| database.id);
        let Inner { io, incarnation, epoch, .. } = &**self.inner();
        LogContext {
            env: io.env.clone(),
            incarnation: *incarnation,
            database,
            epoch: *epoch,
            chain,
            objects: Arc::clone(&io.store),
            memory,
        }
    }

    /// A name for a new attempt at a table: never used before, never used again (rule 6).
    pub fn fresh_table_name(&self) -> TableName {
        let random = if is_enabled(Mutant::TableNameReused) { 0 } else { self.inner().io.env.random_u64() };
        TableName { epoch: self.inner().epoch.0, random }
    }

    /// Whether another process is known to have taken the database over.
    pub fn is_fenced(&self) -> bool {
        self.inner().shared.lock().fenced
    }

    /// Calls `callback` once, when it becomes known that another process has taken the database
    /// over (at once when it is known).
    pub fn on_fenced(&self, callback: impl FnOnce() + Send + 'static) {
        {
            let mut shared = self.inner().shared.lock();
            if !shared.fenced {
                shared.on_fenced.push(Box::new(callback));
                return;
            }
        }
        callback();
    }

    /// Tells the manifest that another process has taken the database over: commits fail from here
    /// on.
    pub fn fence(&self) {
        self.inner().end(fenced_error(), true);
    }

    /// This chain to publish logs in without the wait for a record, for mutants.
    pub(crate) fn without_waiting(&self) -> Arc<dyn ConfigurationChain> {
        Arc::new(Hasty(self.clone()))
    }

    /// What lanes of this epoch are for, which the record that names them says. Before anything is
    /// published of them.
    pub fn assign_lanes(&self, lanes: impl IntoIterator<Item = (u32, LogRole)>) {
        self.inner().roles.lock().extend(lanes);
    }

    /// The edit that names a log, or says that it lies elsewhere.
    ///
    /// # Errors
    /// `Bug` of a lane that is for nothing.
    fn named_log(&self, LogRecord { id, configuration }: LogRecord) -> Result<Edit> {
        let known = || self.state().logs().get(&id).map(|log| log.role);
        let assigned = || self.inner().roles.lock().get(&id.lane).copied();
        let own = id.epoch == self.inner().epoch;
        let role = known().or_else(|| if own { assigned() } else { None }).ok_or_else(|| {
            Error::new(ErrorKind::Bug, format!("lane {} of epoch {} is for nothing", id.lane, id.epoch))
        })?;
        Ok(Edit::LogNamed { epoch: id.epoch.0, lane: id.lane, role, configuration })
    }

    /// A log of this epoch is about to be un-named: what its store publishes of it from here on is
    /// refused.
    pub(crate) fn give_up_log(&self, log: LogId) {
        self.inner().given_up.lock().insert(log);
    }

    /// Why commits fail, once they do.
    pub fn error(&self) -> Option<Error> {
        self.inner().shared.lock().ended.clone()
    }

    /// Waits for queued commits, then ends the tasks. Commits fail with `Closed` from here on. A
    /// record of which the store says nothing for long is not waited for: its task goes on.
    pub async fn close(&self) {
        if let Some(closed) = self.inner().begin_close() {
            drop(self.in_time(closed).await);
        }
    }

    /// As [`Manifest::close`], and tells with a last record that nobody writes in this epoch any
    /// more, so that the next opening need not ask. A store that does not take it soon is not
    /// waited for.
    pub(crate) async fn leave(&self) {
        let told = self.commit(vec![Edit::WriterClosed]);
        match within(&self.inner().io.env, LEAVE_MAX, told).await {
            Some(Some(Ok(_))) => self.close().await,
            Some(ended) => {
                tracing::debug!(?ended, "the last record of this writer was not put");
                self.close().await;
            }
            None => {
                tracing::debug!("the last record of this writer is not put yet");
                drop(self.inner().begin_close());
            }
        }
    }

    /// Ends the incarnation: its last record is put, and nothing opens it any more; gives that
    /// record's slot. What it leaves is the caller's to delete, as far as no pin keeps it. Logs are
    /// the caller's to free: fence them first.
    ///
    /// # Errors
    /// As [`Manifest::commit`].
    pub async fn destroy(&self) -> Result<u64> {
        let committed = self.in_time(self.inner().enqueue(RecordKind::Destroyed)).await?;
        let slot = committed
            .unwrap_or_else(|| Err(Error::new(ErrorKind::OutcomeUnknown, "the manifest's task ended")))?;
        self.close().await;
        Ok(slot)
    }
}

/// This process, as its claims name it.
fn this_process(env: &Env) -> Writer {
    let ProcessFacts { host, program, process, namespace, start } = env.process_facts();
    Writer {
        host,
        program,
        boot_id: env.boot_id(),
        process_namespace: namespace,
        process,
        process_start: start,
        since_unix_seconds: env.unix_time().as_secs(),
    }
}

/// Another process has claimed the database.
pub(crate) fn fenced_error() -> Error {
    Error::new(ErrorKind::Fenced, "another process has taken the database over").advice(
        "close this handle; what was in flight is of unknown outcome; open the database again to \
            take it back",
    )
}

impl Inner {
    fn enqueue(&self, kind: RecordKind) -> Completion<Committed> {
        let (done, result) = completion();
        let refused = {
            let mut shared = self.shared.lock();
            let error = match &shared.ended {
                Some(error) => Some(error.clone()),
                None if shared.closing => Some(Error::new(ErrorKind::Closed, "the database was closed")),
                None if shared.queue.len() >= QUEUE_MAX => Some(
                    Error::new(ErrorKind::Busy, "too many manifest edits wait")
                        .advice("wait for some of them"),
                ),
                None => None,
            };
            match error {
                Some(error) => Some((done, error)),
                None => {
                    shared.queue.push_back(Queued { kind, done });
                    None
                }
            }
        };
        match refused {
            Some((done, error)) => done.complete(Err(error)),
            None => self.wake(),
        }
        result
    }

    fn wake(&self) {
        let idle = self.shared.lock().idle.take();
        if let Some(idle) = idle {
            idle.complete(());
        }
    }

    /// No commit succeeds from here on; queued ones fail with `error`.
    fn end(&self, error: Error, fenced: bool) {
        let (queue, callbacks, error) = {
            let mut shared = self.shared.lock();
            let error = shared.ended.get_or_insert(error).clone();
            let callbacks = if fenced {
                shared.fenced = true;
                std::mem::take(&mut shared.on_fenced)
            } else {
                Vec::new()
            };
            (std::mem::take(&mut shared.queue), callbacks, error)
        };
        for queued in queue {
            queued.done.complete(Err(error.clone()));
        }
        for callback in callbacks {
            callback();
        }
        self.wake();
    }

    /// Begins to close; the completion is ready once the tasks have ended, and `None` when they
    /// have.
    fn begin_close(&self) -> Option<Completion<()>> {
        let closed = {
            let mut shared = self.shared.lock();
            shared.closing = true;
            if shared.finished && !shared.snapshotting {
                None
            } else {
                let (closer, closed) = completion();
                shared.closers.push(closer);
                Some(closed)
            }
        };
        self.wake();
        closed
    }

    /// A task has ended: `change` says which.
    fn task_ended(&self, change: impl FnOnce(&mut Shared)) {
        let closers = {
            let mut shared = self.shared.lock();
            change(&mut shared);
            if shared.finished && !shared.snapshotting {
                std::mem::take(&mut shared.closers)
            } else {
                Vec::new()
            }
        };
        for closer in closers {
            closer.complete(());
        }
    }
}

impl ConfigurationChain for Manifest {
    fn publish(&self, record: LogRecord) -> BoxFuture<'_, Result<()>> {
        self.publish_all(vec![record])
    }

    fn publish_all(&self, records: Vec<LogRecord>) -> BoxFuture<'_, Result<()>> {
        if records.is_empty() {
            return Box::pin(async { Ok(()) });
        }
        // All are looked at and queued in one step: commits queued before a log is given up come
        // before the record that un-names it.
        let given_up = self.inner().given_up.lock();
        let refused = records.iter().map(|record| record.id).find(|id| given_up.contains(id));
        let queued = refused.map_or_else(
            || {
                let edits =
                    records.into_iter().map(|record| self.named_log(record)).collect::<Result<_>>()?;
                Ok(self.commit(edits))
            },
            |id| {
                Err(Error::new(
                    ErrorKind::Closed,
                    format!("lane {} of epoch {} was given up", id.lane, id.epoch),
                ))
            },
        );
        drop(given_up);
        Box::pin(async move {
            let ended = || Error::new(ErrorKind::OutcomeUnknown, "the manifest's task ended");
            queued?.await.unwrap_or_else(|| Err(ended())).map(drop)
        })
    }

    fn named(&self) -> Vec<LogRecord> {
        self.state().log_records()
    }
}

/// A claim that this process has put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    slot: u64,
    hash: u128,
    is_effective: bool,
}

impl Attempt {
    /// Whether it began the newest epoch, and nobody has claimed since. `tip` is a proven one.
    pub(crate) fn is_newest(&self, tip: &Tip) -> bool {
        self.is_effective && tip.epoch().0 == self.slot || tip.hash == self.hash
    }
}

/// Opens, and notes the claim that is put.
struct Noting<'a> {
    open: Open,
    attempt: &'a mut Option<Attempt>,
}

impl Noting<'_> {
    fn note(&mut self, step: Step<Result<Tip>>) -> Step<Result<Tip>> {
        if let Step::Do(Effect::PutRecord(_, slot, bytes)) = &step {
            *self.attempt = Some(Attempt { slot: *slot, hash: record_hash(bytes), is_effective: false });
        }
        step
    }
}

impl Machine for Noting<'_> {
    type Output = Result<Tip>;

    fn begin(&mut self) -> Step<Result<Tip>> {
        let step = self.open.begin();
        self.note(step)
    }

    fn step(&mut self, answer: Answer) -> Step<Result<Tip>> {
        let step = self.open.step(answer);
        self.note(step)
    }
}

/// The chain without the wait for a record: what rule 7 forbids, for the test that shows that it is
/// noticed.
#[derive(Debug)]
struct Hasty(Manifest);

impl ConfigurationChain for Hasty {
    fn publish(&self, record: LogRecord) -> BoxFuture<'_, Result<()>> {
        let named = self.0.named_log(record).map(|edit| drop(self.0.commit(vec![edit])));
        Box::pin(async { named })
    }

    fn named(&self) -> Vec<LogRecord> {
        self.0.named()
    }
}

/// Finds the newest incarnation that is not destroyed, loads it and proves it.
#[derive(Debug)]
struct LoadNewest {
    destroyed: Option<Incarnation>,
    load: Option<Load>,
}

impl LoadNewest {
    fn loaded(&mut self, loaded: Result<Option<Tip>>) -> Step<Result<Tip>> {
        match loaded {
            Ok(Some(tip)) if tip.state.is_destroyed() => {
                self.destroyed = Some(tip.incarnation);
                self.load = None;
                Step::Do(Effect::NewestIncarnation)
            }
            Ok(Some(tip)) if tip.state.database().is_none() => {
                Step::Done(Err(not_found("the creation of the database was never completed")))
            }
            Ok(Some(tip)) => Step::Done(Ok(tip)),
            Ok(None) => Step::Done(Err(not_found("the creation of the database was never completed"))),
            Err(error) => Step::Done(Err(error)),
        }
    }
}

impl Machine for LoadNewest {
    type Output = Result<Tip>;

    fn begin(&mut self) -> Step<Result<Tip>> {
        Step::Do(Effect::NewestIncarnation)
    }

    fn step(&mut self, answer: Answer) -> Step<Result<Tip>> {
        let step = match (&mut self.load, answer) {
            (Some(load), answer) => load.step(answer),
            (None, Answer::Newest(Some(newest)))
                if self.destroyed.is_none_or(|destroyed| destroyed.0 < newest) =>
            {
                self.load.insert(Load::new(Incarnation(newest), Proof::List)).begin()
            }
            (None, _) if self.destroyed.is_some() => {
                return Step::Done(Err(not_found("the database was destroyed")));
            }
            (None, _) => return Step::Done(Err(not_found("there is no database here"))),
        };
        step.map(|loaded| self.loaded(loaded))
    }
}

/// Loads the newest state without claiming: for readers and inspection. Proven to be the newest at
/// a moment after the call began.
///
/// # Errors
/// `NotFound` when there is no database; `Unsupported` when a newer Tombolo wrote it; `Corrupt`
/// with the object's name.
pub async fn load(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<Loaded> {
    let io = Io { env: env.clone(), store: Arc::clone(store), epoch: Epoch::NONE, purpose: Purpose::Open };
    let tip = load_tip(&io).await?;
    Ok(Loaded { incarnation: tip.incarnation, state: tip.state })
}

/// A life of a database that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedLife {
    pub(crate) incarnation: Incarnation,
    /// The slot of its last record.
    pub(crate) last: u64,
    /// The state that ended there; `None` once the chain below is gone, which is deleted after all
    /// that the state names.
    pub(crate) state: Option<Arc<State>>,
}

/// The newest life of a database if that has ended.
///
/// # Errors
/// As [`load`], but for `NotFound`.
pub(crate) async fn ended_life(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<Option<EndedLife>> {
    let io = Io { env: env.clone(), store: Arc::clone(store), epoch: Epoch::NONE, purpose: Purpose::Open };
    let tip = newest_life(&io).await?.and_then(|(_, tip)| tip);
    let Some(tip) = tip.filter(|tip| tip.state.is_destroyed()) else { return Ok(None) };
    let (incarnation, last) = (tip.incarnation, tip.slot);
    let before = io.run(&mut Load::of_slot(incarnation, last - 1), RetryLimit::Bounded).await.flatten()?;
    Ok(Some(EndedLife {
        incarnation,
        last,
        state: before.filter(|before| before.slot < last).map(|before| before.state),
    }))
}

/// The newest life of a database, and its proven tip; `None` for the tip when its chain has no
/// record, and for all when no life has begun.
///
/// # Errors
/// As [`load`], but for `NotFound`.
pub(crate) async fn newest_life(io: &Io) -> Result<Option<(Incarnation, Option<Tip>)>> {
    let Answer::Newest(Some(newest)) = io.perform(Effect::NewestIncarnation, RetryLimit::Bounded).await?
    else {
        return Ok(None);
    };
    let tip =
        io.run(&mut Load::new(Incarnation(newest), Proof::List), RetryLimit::Bounded).await.flatten()?;
    Ok(Some((Incarnation(newest), tip)))
}

/// As [`load`].
async fn load_tip(io: &Io) -> Result<Tip> {
    let mut machine = LoadNewest { destroyed: None, load: None };
    let loaded = io.run(&mut machine, RetryLimit::Bounded).await.flatten();
    loaded.map_err(|error| error.context(format!("loading {}", io.store.describe())))
}

#[cfg(test)]
mod tests;
