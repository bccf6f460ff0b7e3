//! A database's logs in a simulated world: a writer that keeps its acknowledgements, and a
//! successor that checks them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::FileSystemKind;
use tombolo_env::simulated::{Crash, Process, World};

use super::super::{Form, LocalLogOptions, LocalLogStore};
use crate::backend::memory::MemoryObjectStore;
use crate::conformance::log::{MemoryChain, entry};
use crate::log_memory::Uncounted;
use crate::{
    ConfigurationChain, Epoch, ErrorKind, Incarnation, Log, LogContext, LogEntry, LogId, LogOffset,
    LogRecord, LogStore, Result,
};

pub(super) const FORMS: [Form; 2] = [Form::Mapped, Form::Written];

/// What a writer was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Acknowledged {
    /// Entries 0 to this one, exclusive, were accepted.
    pub accepted: u64,
    /// Entries 0 to this one, exclusive, are durable.
    pub durable: u64,
    /// The replay point of the manifest, and the first entry after it.
    pub replay: Option<(LogOffset, u64)>,
    /// How the writer's history ended, if by an error.
    pub error: Option<ErrorKind>,
}

/// One database in one world.
#[derive(Clone)]
pub(super) struct Case {
    pub world: World,
    pub options: LocalLogOptions,
    pub chain: Arc<MemoryChain>,
    pub told: Arc<Mutex<Acknowledged>>,
}

/// What a writer does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub entries: u64,
    pub payload_bytes: usize,
    /// Waits until it is durable after every so many entries; 0 for never.
    pub sync_every: u64,
    /// Trims after every so many entries; 0 for never.
    pub trim_every: u64,
    /// Closes at the end.
    pub close: bool,
    /// Writes nothing for two seconds after each trim.
    pub rests: bool,
}

pub(super) const SHORT: Plan =
    Plan { entries: 12, payload_bytes: 300, sync_every: 3, trim_every: 0, close: false, rests: false };
pub(super) const ROLLING: Plan =
    Plan { entries: 40, payload_bytes: 900, sync_every: 3, trim_every: 9, close: false, rests: false };
/// Fills a large segment, has all of it trimmed, and goes on after a rest, in which the lane goes
/// over into a small one.
pub(super) const RESTING: Plan =
    Plan { entries: 135, payload_bytes: 900, sync_every: 5, trim_every: 120, close: false, rests: true };

impl Case {
    /// With an odd seed no segment but the first is zeroed.
    pub(super) fn new(seed: u64, form: Form) -> Case {
        let mut options = LocalLogOptions {
            form,
            segment_bytes_min: 12 << 10,
            segment_bytes_max: 16 << 10,
            ..LocalLogOptions::default()
        };
        if !seed.is_multiple_of(2) {
            (options.small_segment_bytes, options.zeroed_sync_bytes) = (0, 0);
        }
        Case::with(seed, options)
    }

    /// A world that suits a plan.
    pub(super) fn of(seed: u64, form: Form, plan: Plan) -> Case {
        let mut case = Case::new(seed, form);
        if plan.rests {
            (case.options.segment_bytes_min, case.options.segment_bytes_max) = (8 << 10, 64 << 10);
            case.options.small_segment_bytes = 8 << 10;
        }
        case
    }

    pub(super) fn with(seed: u64, options: LocalLogOptions) -> Case {
        let world = World::new(seed);
        if options.form == Form::Written && seed / 2 % 2 == 1 {
            // The writer's words in the control page are written too.
            world.host(0).set_kind(FileSystemKind::CopyOnWrite("btrfs".into()));
        }
        Case { world, options, chain: Arc::default(), told: Arc::default() }
    }

    pub(super) fn store(&self, process: &Process) -> LocalLogStore {
        LocalLogStore::new(&process.env(), "/data", true, self.options.clone())
    }

    pub(super) fn context(&self, process: &Process, epoch: u64) -> LogContext {
        let env = process.env();
        let objects = Arc::new(MemoryObjectStore::unnamed(&env));
        LogContext {
            env,
            incarnation: Incarnation(7),
            database: 7,
            epoch: Epoch(epoch),
            chain: Arc::<MemoryChain>::clone(&self.chain),
            objects,
            memory: Arc::new(Uncounted),
        }
    }

    pub(super) fn record(&self, epoch: u64) -> Option<LogRecord> {
        self.chain.named().into_iter().find(|record| record.id == LogId { epoch: Epoch(epoch), lane: 0 })
    }

    pub(super) fn directory(epoch: u64) -> PathBuf {
        PathBuf::from(format!("/data/{:016x}/log/{epoch:016x}-0000", 7))
    }

    /// The writer's whole life as epoch 1.
    pub(super) async fn write(self, process: Process, plan: Plan) {
        let (store, context) = (self.store(&process), self.context(&process, 1));
        let outcome = match store.open(&context, 1).await {
            Ok(log) => self.write_to(&process, &*log, plan).await,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.told.lock().error = Some(error.kind());
        }
    }

    /// Appends by the plan, and notes what it was told while it lives.
    pub(super) async fn write_to(&self, process: &Process, log: &dyn Log, plan: Plan) -> Result<()> {
        let note = |change: &dyn Fn(&mut Acknowledged)| {
            if process.is_alive() {
                change(&mut self.told.lock());
            }
        };
        for number in 0..plan.entries {
            let end = match log.append(0, &entry(number, plan.payload_bytes)) {
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => return Err(error),
                appended => appended?.end,
            };
            note(&|told| told.accepted = number + 1);
            if plan.sync_every > 0 && number % plan.sync_every == plan.sync_every - 1 {
                match log.durable(0, end).await {
                    Some(result) => result?,
                    None => return Ok(()),
                }
                note(&|told| told.durable = number + 1);
            }
            if plan.trim_every > 0 && number % plan.trim_every == plan.trim_every - 1 {
                // The engine records the replay point before it trims.
                note(&|told| told.replay = Some((end, number + 1)));
                if process.is_alive() {
                    log.trim(0, end)?;
                }
                if plan.rests {
                    process.sleep(Duration::from_secs(2)).await;
                }
            }
            process.yield_now().await;
        }
        if plan.close {
            log.close().await?;
            note(&|told| told.durable = plan.entries);
        }
        Ok(())
    }

    /// A successor's takeover: fence, and read up to the sealed length. `None` when the log was
    /// never named.
    pub(super) async fn take_over(
        self,
        process: Process,
        epoch: u64,
    ) -> Option<Result<(LogOffset, Vec<LogEntry>)>> {
        let record = self.record(1)?;
        let (store, context) = (self.store(&process), self.context(&process, epoch));
        let from = self.told.lock().replay.map_or(LogOffset::ZERO, |(from, _)| from);
        let taken = async {
            let sealed = store.fence(&context, &record, from).await?;
            Ok((sealed, read(&store, &context, &record, from, sealed).await?))
        };
        Some(taken.await)
    }

    /// Bytes of the lane's segments, ascending.
    pub(super) fn segments(&self) -> Vec<u64> {
        let files = self.world.host(0).all_files().into_iter();
        let of_lane =
            files.filter(|(path, _)| path.starts_with(Case::directory(1)) && !path.ends_with("control"));
        let mut bytes: Vec<u64> = of_lane.map(|(_, length)| length).collect();
        bytes.sort_unstable();
        bytes
    }

    /// Takes over in a process of its own.
    pub(super) fn recover(&self, epoch: u64) -> Option<Result<(LogOffset, Vec<LogEntry>)>> {
        let process = self.world.process("successor");
        process.run(self.clone().take_over(process.clone(), epoch)).expect("nobody ends the successor")
    }

    /// What a follower is shown of the log that nobody has sealed; `None` when it is not named, or
    /// cannot be told yet.
    pub(super) fn follow(&self, crash: Crash) -> std::result::Result<Option<Vec<LogEntry>>, String> {
        let process = self.world.process("follower");
        let Some(record) = self.record(1) else { return Ok(None) };
        let (store, context) = (self.store(&process), self.context(&process, 0));
        let from = self.told.lock().replay.map_or(LogOffset::ZERO, |(from, _)| from);
        let followed = async move {
            let mut reader = store.tail(&context, &record, from).await?;
            let mut entries = Vec::new();
            while let Some((entry, _)) = reader.next().await? {
                entries.push(entry);
            }
            Ok(entries)
        };
        let followed: Result<Vec<LogEntry>> = process.run(followed).expect("nobody ends the follower");
        match followed {
            Ok(entries) => Ok(Some(entries)),
            // The writer may have died in the middle of telling how far its log is durable.
            Err(error) if error.kind() == ErrorKind::Retry && crash == Crash::Kill => Ok(None),
            Err(error) => Err(format!("a follower: {error}")),
        }
    }

    /// What recovery must hold: the entries in order, whole, without a gap, from the replay point
    /// at the latest to `bound` at the least.
    pub(super) fn check(
        &self,
        read: &[LogEntry],
        payload_bytes: usize,
        bound: u64,
    ) -> std::result::Result<(), String> {
        let first_wanted = self.told.lock().replay.map_or(0, |(_, first)| first);
        let first = read.first().map_or(first_wanted, |entry| entry.first_sequence);
        if first > first_wanted {
            return Err(format!(
                "the log begins with entry {first}; the replay point is before {first_wanted}"
            ));
        }
        for (index, found) in read.iter().enumerate() {
            let expected = entry(first + index as u64, payload_bytes);
            if *found != expected {
                return Err(format!("entry {} instead of {}", found.first_sequence, expected.first_sequence));
            }
        }
        let end = first + read.len() as u64;
        if end < bound {
            return Err(format!("entries up to {end} were found, and {bound} were acknowledged"));
        }
        Ok(())
    }
}

/// All entries of a log in `from..to`, in runs, as an opening reads them: once, as entries that
/// were read do not stay in memory.
pub(super) async fn read(
    store: &LocalLogStore,
    context: &LogContext,
    record: &LogRecord,
    from: LogOffset,
    to: LogOffset,
) -> Result<Vec<LogEntry>> {
    let mut reader = store.read(context, record, from, to).await?;
    let mut entries = Vec::new();
    while let Some(run) = reader.next_run().await? {
        entries.extend(run.entries.iter().map(|entry| run.entry(entry).0));
    }
    Ok(entries)
}
