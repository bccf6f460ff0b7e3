//! One log in a simulated world, on a store with a bad day: a writer that keeps its
//! acknowledgements, successors that take over, and what must hold between them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::simulated::{Process, World};
use tombolo_env::{Completion, TaskClass};

use crate::backend::memory::MemoryObjectStore;
use crate::backend::object_log::ObjectLogStore;
use crate::conformance::log::{MemoryChain, entry};
use crate::layer::fault::{Chances, FaultObjectStore, FaultPlan};
use crate::log_memory::Uncounted;
use crate::{
    ConfigurationChain, Epoch, ErrorKind, Incarnation, LogContext, LogEntry, LogId, LogOffset, LogRecord,
    LogStore, ObjectStore, Result,
};

/// A day on which one put in ten meets something, and what was late comes within seconds.
pub(super) const BAD: Chances = Chances {
    error: 0.05,
    delay: 0.2,
    unknown: 0.15,
    duplicate: 0.1,
    torn_list: 0.3,
    delay_max: Duration::from_millis(60),
    lateness_max: Duration::from_secs(3),
};

/// Bytes of an object from which on it goes by itself: some entries.
const OBJECT_BYTES: usize = 1500;

/// Some entries fill an object, and some hardly.
fn payload_bytes(number: u64) -> usize {
    usize::try_from(20 + (number * 97) % 900).unwrap_or(20)
}

/// What everybody was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Entries 0 to this one, exclusive, were acknowledged.
    pub(super) acknowledged: u64,
    /// The replay point, and the first entry after it.
    pub(super) replay: (LogOffset, u64),
    /// What the first successor recorded: the sealed length, and the entries before it.
    pub(super) recovered: Option<(LogOffset, Vec<LogEntry>)>,
    /// A claim of a successor is in place: the manifest takes no replay point from the writer any
    /// more.
    pub(super) is_claimed: bool,
    /// A fence has returned.
    pub(super) is_fenced: bool,
    pub(super) wrong: Vec<String>,
}

/// One log in one world.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) world: World,
    pub(super) plan: FaultPlan,
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) chain: Arc<MemoryChain>,
    pub(super) told: Arc<Mutex<Told>>,
}

impl Case {
    pub(super) fn new(seed: u64, chances: Chances) -> Case {
        let world = World::new(seed);
        let server = world.process("server").env();
        let plan = FaultPlan::random(seed, chances);
        let objects = Arc::new(FaultObjectStore::new(
            &server,
            Arc::new(MemoryObjectStore::unnamed(&server)),
            plan.clone(),
        ));
        Case { world, plan, objects, chain: Arc::default(), told: Arc::default() }
    }

    pub(super) fn store(&self, process: &Process) -> ObjectLogStore {
        ObjectLogStore::new(&process.env(), Arc::clone(&self.objects), true).with_object_bytes(OBJECT_BYTES)
    }

    pub(super) fn context(&self, process: &Process, epoch: u64) -> LogContext {
        let chain: Arc<dyn ConfigurationChain> = Arc::<MemoryChain>::clone(&self.chain);
        LogContext {
            env: process.env(),
            incarnation: Incarnation(7),
            database: 7,
            epoch: Epoch(epoch),
            chain,
            objects: Arc::clone(&self.objects),
            memory: Arc::new(Uncounted),
        }
    }

    pub(super) fn record(&self) -> Option<LogRecord> {
        self.chain.named().into_iter().find(|record| record.id == LogId { epoch: Epoch(1), lane: 0 })
    }

    fn wrong(&self, what: impl Into<String>) {
        self.told.lock().wrong.push(what.into());
    }

    /// The writer's life as epoch 1: `entries` entries, some waited for, now and then a flush that
    /// trims.
    pub(super) async fn write(self, process: Process, entries: u64) {
        if let Err(error) = self.write_on(&process, entries).await
            && !matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Retry | ErrorKind::Busy)
        {
            self.wrong(format!("the writer: {error}"));
        }
    }

    async fn write_on(&self, process: &Process, entries: u64) -> Result<()> {
        let env = process.env();
        let (store, context) = (self.store(process), self.context(process, 1));
        let log = store.open(&context, 1).await?;
        let mut waiting: Vec<(u64, LogOffset, Completion<Result<()>>)> = Vec::new();
        for number in 0..entries {
            let appended = log.append(0, &entry(number, payload_bytes(number)))?;
            let accepted = appended.accepted.expect("an entry is accepted when it is in the store");
            waiting.push((number, appended.end, accepted));
            let chance = env.random_u64();
            if !chance.is_multiple_of(3) && number + 1 < entries {
                continue;
            }
            for (number, end, accepted) in std::mem::take(&mut waiting) {
                let Some(result) = accepted.await else { return Ok(()) };
                result?;
                self.acknowledge(number);
                if chance.is_multiple_of(5) && self.record_replay(end, number + 1) {
                    log.trim(0, end)?;
                }
            }
            if chance.is_multiple_of(4) {
                let was_fenced = self.told.lock().is_fenced;
                if log.confirm().await.is_ok() && was_fenced {
                    self.wrong("a log was confirmed that had been fenced before");
                }
            }
            env.sleep(Duration::from_millis(chance % 120)).await;
        }
        Ok(())
    }

    /// As the manifest does: no later than a successor's claim.
    fn record_replay(&self, end: LogOffset, first: u64) -> bool {
        let mut told = self.told.lock();
        if !told.is_claimed {
            told.replay = (end, first);
        }
        !told.is_claimed
    }

    fn acknowledge(&self, number: u64) {
        let mut told = self.told.lock();
        if let Some((_, recovered)) = &told.recovered
            && !recovered.iter().any(|entry| entry.first_sequence == number)
            && told.replay.1 <= number
        {
            let what = format!("entry {number} was acknowledged after a takeover that had not found it");
            told.wrong.push(what);
        }
        told.acknowledged = told.acknowledged.max(number + 1);
    }

    /// A successor: fences, records what it found, and perhaps frees the log.
    pub(super) async fn take_over(self, process: Process, epoch: u64, free: bool) {
        let Some(record) = self.record() else { return };
        let (store, context) = (self.store(&process), self.context(&process, epoch));
        match self.recover(&store, &context, &record).await {
            Ok(()) => {}
            // The other successor has freed it, once its record was there.
            Err(_) if self.record().is_none() => return,
            Err(error) if matches!(error.kind(), ErrorKind::Retry | ErrorKind::OutcomeUnknown) => return,
            Err(error) => return self.wrong(format!("epoch {epoch}: {error}")),
        }
        if free {
            process.env().sleep(Duration::from_millis(process.env().random_u64() % 500)).await;
            self.chain.unname(&record);
            if let Err(error) = store.free(&context, &record).await
                && !matches!(error.kind(), ErrorKind::Retry | ErrorKind::OutcomeUnknown)
            {
                self.wrong(format!("freeing: {error}"));
            }
        }
    }

    async fn recover(&self, store: &ObjectLogStore, context: &LogContext, record: &LogRecord) -> Result<()> {
        let from = {
            let mut told = self.told.lock();
            told.is_claimed = true;
            told.replay
        };
        let sealed = store.fence(context, record, from.0).await?;
        self.told.lock().is_fenced = true;
        let acknowledged = self.told.lock().acknowledged;
        let mut reader = store.read(context, record, from.0, sealed).await?;
        let mut entries = Vec::new();
        while let Some((entry, _)) = reader.next().await? {
            entries.push(entry);
        }
        for (number, found) in (from.1..).zip(&entries) {
            if *found != entry(number, payload_bytes(number)) {
                self.wrong(format!("entry {number} was read as {}", found.first_sequence));
            }
        }
        let end = from.1 + entries.len() as u64;
        if end < acknowledged {
            self.wrong(format!(
                "epoch {}: entries up to {end} were found, and {acknowledged} were acknowledged",
                context.epoch
            ));
        }
        let mut told = self.told.lock();
        match &told.recovered {
            None => told.recovered = Some((sealed, entries)),
            Some((first, _)) if *first != sealed => {
                let what = format!("the log was sealed at {first}, and later at {sealed}");
                told.wrong.push(what);
            }
            Some(_) => {}
        }
        Ok(())
    }
}

/// A writer and two successors in one world. Returns the first violation.
pub(super) fn contest(seed: u64) -> std::result::Result<(), String> {
    let case = Case::new(seed, BAD);
    let writer = case.world.process("writer");
    let chance = writer.env().random_u64();
    writer.spawn(TaskClass::Foreground, "write", case.clone().write(writer.clone(), 60)).detach();
    case.world.run_for(Duration::from_millis(chance % 3000));
    if chance.is_multiple_of(3) {
        writer.pause();
    }
    let successors = [case.world.process("second"), case.world.process("third")];
    for (epoch, process) in (2..).zip(&successors) {
        let free = epoch == 2 && chance.is_multiple_of(2);
        process
            .spawn(TaskClass::Foreground, "take over", case.clone().take_over(process.clone(), epoch, free))
            .detach();
        case.world.run_for(Duration::from_millis((chance >> 16) % 900));
    }
    case.world.run_for(Duration::from_secs(2));
    writer.resume();
    case.world.run_for(Duration::from_secs(20));
    let told = case.told.lock();
    match told.wrong.first() {
        Some(wrong) => Err(format!("seed {seed}: {wrong}")),
        None => Ok(()),
    }
}
