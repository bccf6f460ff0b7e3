//! What logs hold beyond a state's tables, as far as they can be read, and their copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::BoxFuture;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, LogRole};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    ConfigurationChain, Error, ErrorKind, LogContext, LogEntry, LogId, LogOffset, LogReader, LogRecord,
    LogStore, Result,
};

use super::history::is_damage;
use crate::budget::{LogBooks, MemoryBudget};
use crate::engine::MAIN_LANE;
use crate::manifest::{Manifest, State};
use crate::recovery::Replay;

/// A log, and how much of it is taken.
#[derive(Clone, Debug)]
struct Part {
    record: LogRecord,
    from: LogOffset,
    /// Where it ends, if a record says so.
    sealed: Option<LogOffset>,
    /// Entries that can be read.
    entries: u64,
}

/// What the logs of a state hold.
#[derive(Debug)]
pub(super) struct Found {
    /// Oldest first.
    parts: Vec<Part>,
    /// The last sequence number in tables and logs.
    pub(super) last_sequence: SequenceNumber,
    /// What could not be read; nothing behind it is taken.
    pub(super) stopped: Option<Error>,
}

impl Found {
    /// Nothing beyond tables, which end with this number.
    pub(super) fn none(last_sequence: SequenceNumber) -> Found {
        Found { parts: Vec::new(), last_sequence, stopped: None }
    }

    pub(super) fn entries(&self) -> u64 {
        self.parts.iter().map(|part| part.entries).sum()
    }
}

async fn reader(context: &LogContext, log_store: &dyn LogStore, part: &Part) -> Result<Box<dyn LogReader>> {
    match part.sealed {
        Some(sealed) => log_store.read(context, &part.record, part.from, sealed).await,
        // Nobody has fenced it, as far as is known: its durable part.
        None => log_store.tail(context, &part.record, part.from).await,
    }
}

/// Reads the logs that a state names, oldest first, up to the first entry that cannot be read or
/// does not follow.
///
/// # Errors
/// Those of the log store that say nothing about the logs.
pub(super) async fn survey(
    context: &LogContext,
    log_store: &dyn LogStore,
    (state, newest): (&State, Option<&State>),
    budget: &Arc<MemoryBudget>,
    memtable_bytes: u64,
) -> Result<Found> {
    // Their names are other ones where all is copied to: what shows them cannot be.
    let mut replay = Replay::new(state, budget, memtable_bytes)?.without_staged();
    let (mut parts, mut stopped) = (Vec::new(), None);
    for (id, log) in state.logs().iter().filter(|(_, log)| log.role == LogRole::Main) {
        // The newest state knows best where the log lies, and how far it goes.
        let named = newest.and_then(|newest| newest.logs().get(id));
        let is_freed = newest.is_some() && named.is_none();
        let sealed = log.sealed.or_else(|| named?.sealed);
        if sealed.is_some_and(|sealed| sealed <= log.replay_point) {
            continue;
        }
        let record = LogRecord { id: *id, configuration: named.unwrap_or(log).configuration.clone() };
        let mut part = Part { record, from: log.replay_point, sealed, entries: 0 };
        let read = read_part(context, log_store, &mut part, &mut replay).await;
        parts.push(part);
        match read {
            Ok(None) => {}
            Ok(Some(lacks)) => {
                stopped.get_or_insert(
                    lacks.context(format!("the log of epoch {} may have held more", id.epoch)),
                );
                break;
            }
            Err(error) if is_damage(&error) || is_freed && error.kind() == ErrorKind::Retry => {
                let what = format!(
                    "the log of epoch {}: what follows sequence number {} is lost",
                    id.epoch,
                    replay.last_sequence(state).0
                );
                stopped.get_or_insert(error.context(what));
                if !is_enabled(Mutant::SalvageReadsPastDamage) {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    if !replay.streams().is_empty() {
        // The record that names its lane cannot be read.
        let what = "a log begins a stream, of which no record that can be read says where its log is";
        return Err(Error::new(ErrorKind::Unsupported, what)
            .advice("put the objects back from a copy, or restore a backup or a checkpoint"));
    }
    Ok(Found { parts, last_sequence: replay.last_sequence(state), stopped })
}

/// Reads one; why there may be more of it, which nobody can read.
async fn read_part(
    context: &LogContext,
    log_store: &dyn LogStore,
    part: &mut Part,
    replay: &mut Replay,
) -> Result<Option<Error>> {
    replay.begin_log();
    let mut reader = match reader(context, log_store, part).await {
        // Only its own process can read it before it is sealed.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(Some(error)),
        reader => reader?,
    };
    while let Some((entry, _)) = reader.next().await? {
        replay.entry(&entry)?;
        part.entries += 1;
        // Only looked at: a full memtable would otherwise wait for a flush that never comes.
        drop(replay.take_full());
    }
    Ok(reader.lacks())
}

/// Keeps what a log store publishes until everything is named at once.
#[derive(Debug)]
struct Later {
    manifest: Manifest,
    records: Mutex<BTreeMap<LogId, LogRecord>>,
}

impl ConfigurationChain for Later {
    fn publish(&self, record: LogRecord) -> BoxFuture<'_, Result<()>> {
        self.records.lock().insert(record.id, record);
        Box::pin(std::future::ready(Ok(())))
    }

    fn named(&self) -> Vec<LogRecord> {
        let mut named = self.manifest.named();
        named.extend(self.records.lock().values().cloned());
        named
    }
}

/// Copies the entries found into the log of the claimed epoch, durably; gives the edits that name
/// it.
///
/// # Errors
/// Those of both log stores; `Corrupt` when a log does not give again what it gave before.
pub(super) async fn copy(
    from: &LogContext,
    source: &dyn LogStore,
    found: &Found,
    manifest: &Manifest,
    target: &dyn LogStore,
    budget: &Arc<MemoryBudget>,
) -> Result<Vec<Edit>> {
    if found.entries() == 0 {
        return Ok(Vec::new());
    }
    let later = Arc::new(Later { manifest: manifest.clone(), records: Mutex::default() });
    let context = manifest
        .log_context(Arc::clone(&later) as Arc<dyn ConfigurationChain>, Arc::new(LogBooks::new(budget)));
    let log = target.open(&context, 1).await?;
    let (mut next, mut end) = (None, LogOffset::ZERO);
    for part in found.parts.iter().filter(|part| part.entries > 0) {
        let mut reader = reader(from, source, part).await?;
        for _ in 0..part.entries {
            let Some((entry, _)) = reader.next().await? else {
                return Err(Error::corrupt(
                    format!("the log of epoch {}", part.record.id.epoch),
                    0,
                    "as many entries as before",
                    "fewer",
                ));
            };
            let entry = joined(entry, next)?;
            next = Some(entry.first_sequence + u64::from(entry.count));
            let appended = match log.append(MAIN_LANE, &entry) {
                Err(error) if error.kind() == ErrorKind::Busy => {
                    log.durable(MAIN_LANE, end).await.unwrap_or_else(|| Err(ended()))?;
                    log.append(MAIN_LANE, &entry)?
                }
                appended => appended?,
            };
            // Every durable entry was accepted.
            end = appended.end;
        }
    }
    log.durable(MAIN_LANE, end).await.unwrap_or_else(|| Err(ended()))?;
    log.close().await?;
    let records = std::mem::take(&mut *later.records.lock());
    let named = |(id, record): (LogId, LogRecord)| Edit::LogNamed {
        epoch: id.epoch.0,
        lane: id.lane,
        role: LogRole::Main,
        configuration: record.configuration,
    };
    Ok(records.into_iter().map(named).collect())
}

fn ended() -> Error {
    Error::new(ErrorKind::Closed, "the log has ended")
}

/// An entry as it follows what came before it in one log. Between two logs there may be numbers
/// that no log holds, of unlogged writes: an entry takes such before its own.
fn joined(entry: LogEntry, next: Option<u64>) -> Result<LogEntry> {
    let Some(gap) = next.and_then(|next| entry.first_sequence.checked_sub(next)) else { return Ok(entry) };
    let count = u32::try_from(gap).ok().and_then(|gap| entry.count.checked_add(gap));
    let Some(count) = count else {
        return Err(Error::new(ErrorKind::Unsupported, format!("{gap} sequence numbers are in no log"))
            .advice("restore the checkpoint that the survey tells of"));
    };
    Ok(LogEntry { first_sequence: entry.first_sequence - gap, count, ..entry })
}
