//! Opening without a claim: `read manifest → (read checkpoint) → serve reads`. Nothing is written,
//! nobody is fenced, no log is read.
//!
//! It serves the content of tables: at a checkpoint all that it holds, kept by its pin; else the
//! newest state of the manifest, whose tables nobody keeps for this reader: once a writer has
//! deleted one, reads that need it end with `PinLost`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_env::{BoxFuture, Completion, Env, completion};
use tombolo_storage::{
    Appended, Epoch, Error, ErrorKind, FailureDomain, Incarnation, Log, LogAppend, LogContext, LogOffset,
    LogReader, LogRecord, LogStore, ObjectStore, Pressure, Result, Survival,
};

use super::{Assembly, Replay, assemble};
use crate::budget::{LogBooks, Membership, MemoryBudget};
use crate::checkpoint::Checkpoints;
use crate::collection::Pinned;
use crate::engine::{Engine, ReadOnly};
use crate::flash::FlashCache;
use crate::manifest::{self, Manifest, State};
use crate::options::Options;

/// What to open.
pub(crate) struct ReadRequest {
    pub(crate) env: Env,
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) checkpoint: Option<String>,
    pub(crate) options: Options,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) flash: Option<Arc<FlashCache>>,
}

/// Opens a database for reading.
pub(crate) async fn open_read_only(request: ReadRequest) -> Result<Arc<Engine>> {
    let ReadRequest { env, place, objects, checkpoint, options, budget, flash } = request;
    let membership = budget.join(options.memtable_bytes())?;
    let began = env.now();
    let loaded = manifest::load(&env, &objects).await?;
    let (state, reads) = match checkpoint {
        None => {
            let slot = loaded.state.slot();
            (loaded.state, ReadOnly::Newest { slot })
        }
        Some(name) => {
            let checkpoints = Checkpoints::new(&env, &objects, loaded.incarnation, Epoch::NONE);
            let header = checkpoints.find(&name).await?;
            (Arc::new(checkpoints.load(&header).await?), ReadOnly::Checkpoint { id: header.id })
        }
    };
    let incarnation = loaded.incarnation;
    let parts = WithoutClaim {
        env,
        place,
        objects,
        incarnation,
        state,
        options,
        budget,
        membership,
        kept_by: None,
        flash,
    };
    let engine = without_claim(parts)?;
    engine.set_read_only(reads, &refused());
    let nanos = u64::try_from(engine.env.now().since(began).as_nanos()).unwrap_or(u64::MAX);
    engine.counters.open_nanos.store(nanos, Ordering::Relaxed);
    Ok(engine)
}

/// What the engine of a process without a claim is made of.
pub(crate) struct WithoutClaim {
    pub(crate) env: Env,
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) incarnation: Incarnation,
    pub(crate) state: Arc<State>,
    pub(crate) options: Options,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) membership: Membership,
    pub(crate) kept_by: Option<Arc<Pinned>>,
    pub(crate) flash: Option<Arc<FlashCache>>,
}

/// An engine that shows what the tables of a state hold.
pub(crate) fn without_claim(parts: WithoutClaim) -> Result<Arc<Engine>> {
    let WithoutClaim { env, place, objects, incarnation, state, options, budget, membership, kept_by, flash } =
        parts;
    let manifest = Manifest::fixed(&env, Arc::clone(&objects), incarnation, Arc::clone(&state), refused());
    let context = LogContext {
        epoch: Epoch::NONE,
        ..manifest.log_context(Arc::new(manifest.clone()), Arc::new(LogBooks::new(&budget)))
    };
    let replayed = Replay::new(&state, &budget, options.memtable_bytes())?;
    let (log_store, log, old_logs, listener) = (Arc::new(NoLog), Arc::new(NoLog), Vec::new(), None);
    assemble(Assembly {
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
    })
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
