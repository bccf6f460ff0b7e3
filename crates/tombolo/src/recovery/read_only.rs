//! Engines of processes without a claim, and opening at a checkpoint: `read manifest → read
//! checkpoint → serve reads`. Nothing is written, nobody is fenced, no log is read; the
//! checkpoint's pin keeps its tables. What follows a writer, or looks at the newest state, is
//! opened by `reader`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_env::{BoxFuture, Completion, Env, completion};
use tombolo_storage::{
    Appended, Epoch, Error, ErrorKind, FailureDomain, Incarnation, Log, LogAppend, LogContext, LogOffset,
    LogReader, LogRecord, LogStore, ObjectStore, Pressure, Result, Survival,
};

use super::{Assembly, Replay, assemble, streams};
use crate::budget::{LogBooks, Membership, MemoryBudget};
use crate::checkpoint::Checkpoints;
use crate::collection::Pinned;
use crate::engine::{Engine, ReadOnly};
use crate::extensions::Extensions;
use crate::flash::FlashCache;
use crate::manifest::{self, Manifest, State};
use crate::operator::Operators;
use crate::options::Options;

/// What to open.
pub(crate) struct CheckpointRequest {
    pub(crate) env: Env,
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) checkpoint: String,
    pub(crate) options: Options,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) flash: Option<Arc<FlashCache>>,
    pub(crate) operators: Operators,
}

/// Opens a checkpoint for reading.
pub(crate) async fn open_checkpoint(request: CheckpointRequest) -> Result<Arc<Engine>> {
    let CheckpointRequest { env, place, objects, checkpoint, options, budget, flash, operators } = request;
    let membership = budget.join(options.memtable_bytes())?;
    let began = env.now();
    let loaded = manifest::load(&env, &objects).await?;
    let incarnation = loaded.incarnation;
    let checkpoints = Checkpoints::new(&env, &objects, incarnation, Epoch::NONE);
    let header = checkpoints.find(&checkpoint).await?;
    let state = Arc::new(checkpoints.load(&header).await?);
    let parts = WithoutClaim {
        env,
        place,
        objects,
        log_store: None,
        incarnation,
        state,
        options,
        budget,
        membership,
        kept_by: None,
        flash,
        operators,
    };
    let engine = without_claim(parts)?;
    for engine in engine.with_streams() {
        engine.set_read_only(ReadOnly::Checkpoint { id: header.id }, &refused());
    }
    let nanos = u64::try_from(engine.env.now().since(began).as_nanos()).unwrap_or(u64::MAX);
    engine.counters.open_nanos.store(nanos, Ordering::Relaxed);
    Ok(engine)
}

/// What the engine of a process without a claim is made of.
pub(crate) struct WithoutClaim {
    pub(crate) env: Env,
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Where the logs lie that it reads, if it reads any.
    pub(crate) log_store: Option<Arc<dyn LogStore>>,
    pub(crate) incarnation: Incarnation,
    pub(crate) state: Arc<State>,
    pub(crate) options: Options,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) membership: Membership,
    pub(crate) kept_by: Option<Arc<Pinned>>,
    pub(crate) flash: Option<Arc<FlashCache>>,
    pub(crate) operators: Operators,
}

/// An engine that shows what the tables of a state hold.
pub(crate) fn without_claim(parts: WithoutClaim) -> Result<Arc<Engine>> {
    let WithoutClaim { env, place, objects, log_store, incarnation, state, options, .. } = parts;
    let WithoutClaim { budget, membership, kept_by, flash, operators, .. } = parts;
    let manifest = Manifest::fixed(&env, Arc::clone(&objects), incarnation, Arc::clone(&state), refused());
    let context = LogContext {
        epoch: Epoch::NONE,
        ..manifest.log_context(Arc::new(manifest.clone()), Arc::new(LogBooks::new(&budget)))
    };
    let replayed = Replay::new(&state, &budget, options.memtable_bytes())?;
    let log_store = log_store.unwrap_or_else(|| Arc::new(NoLog));
    let found = streams::in_tables(&options, &budget, &replayed)?;
    let log: Arc<dyn Log> = Arc::new(NoLog);
    let (of_streams, old_logs, listener) = (Arc::clone(&log), Vec::new(), None);
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
        rate: None,
        operators,
        extensions: Extensions::default(),
    })?;
    streams::show(&engine, found, &of_streams)?;
    Ok(engine)
}

/// What every attempt to write ends with.
pub(crate) fn refused() -> Error {
    Error::new(ErrorKind::PermissionDenied, "the database was opened for reading only")
        .advice("open it with `open` to write to it")
}

/// Stands where a log would be.
#[derive(Debug)]
struct NoLog;

fn refuse<T>() -> BoxFuture<'static, Result<T>> {
    Box::pin(async { Err(refused()) })
}

impl LogStore for NoLog {
    fn open<'a>(&'a self, _context: &'a LogContext, _lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        refuse()
    }

    fn open_lane<'a>(&'a self, _context: &'a LogContext, _lane: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>> {
        refuse()
    }

    fn fence<'a>(
        &'a self,
        _context: &'a LogContext,
        _log: &'a LogRecord,
        _from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>> {
        refuse()
    }

    fn read<'a>(
        &'a self,
        _context: &'a LogContext,
        _log: &'a LogRecord,
        _from: LogOffset,
        _to: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        refuse()
    }

    fn free<'a>(&'a self, _context: &'a LogContext, _log: &'a LogRecord) -> BoxFuture<'a, Result<()>> {
        refuse()
    }

    fn clear<'a>(&'a self, _context: &'a LogContext) -> BoxFuture<'a, Result<()>> {
        refuse()
    }

    fn survival(&self) -> Survival {
        let nothing = "nothing is written".to_owned();
        Survival {
            store: self.identity(),
            domain: FailureDomain::Service,
            accepted: nothing.clone(),
            durable: nothing,
            notes: Vec::new(),
        }
    }

    fn identity(&self) -> String {
        "no log".into()
    }
}

impl Log for NoLog {
    fn lanes(&self) -> u32 {
        1
    }

    fn append_parts(&self, _lane: u32, _entry: &LogAppend<'_>) -> Result<Appended> {
        Err(refused())
    }

    fn wants_gathered(&self, _lane: u32) -> bool {
        false
    }

    fn durable(&self, _lane: u32, _end: LogOffset) -> Completion<Result<()>> {
        let (completer, completion) = completion();
        completer.complete(Err(refused()));
        completion
    }

    fn sync(&self, _lane: u32, _end: LogOffset) -> Result<()> {
        Err(refused())
    }

    fn durable_through(&self, _lane: u32) -> LogOffset {
        LogOffset::ZERO
    }

    fn trim(&self, _lane: u32, _before: LogOffset) -> Result<()> {
        Err(refused())
    }

    fn pressure(&self, _lane: u32) -> Pressure {
        Pressure { live_bytes: 0, wanted_bytes_max: u64::MAX }
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        refuse()
    }

    fn give_up(&self, _lane: u32) {}

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
