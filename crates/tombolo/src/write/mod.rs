//! Write path: `batch → sequence → log append → memtable → accepted → durable`.
//!
//! 1. A batch is encoded once, by the thread that writes it; that encoding is the log's payload.
//! 2. The commit section gives it sequence numbers, appends it to the log and puts it into the memtable.
//! 3. The visible sequence number is raised when the whole batch is in the memtable.
//! 4. A durable write waits for a sync, which all that were appended before it share.
//!
//! Invariants:
//! 1. Sequence numbers have no holes: an append that took no effect takes no number. An append of unknown outcome finishes the handle.
//! 2. A log entry covers every number since the entry before; unlogged writes in between take the first numbers of its range, and its own
//!    operations the last. So recovery checks that entries follow each other without a gap. What is more than one entry's count can say is
//!    covered by entries without operations before it.
//! 3. The memtable holds nothing that was not appended first, unlogged writes apart.
//! 4. No waker runs inside the commit section.
//! 5. What finds no room stands in line, and nothing passes it: a thread's call order is sequence order.

mod line;
mod ticket;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Completion;
use tombolo_format::batch::{BatchBuilder, OPERATIONS_MAX, Operation, Operations};
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_format::manifest::Edit;
use tombolo_storage::{Error, ErrorKind, LogEntry, LogOffset, Result};

use crate::engine::{Commit, Engine, FLUSH, KeyspaceInfo, MAIN_LANE, MAIN_STREAM, Sealed, View};
use crate::memtable::{Memtable, MemtableWriter};
use crate::op::Op;
use crate::options::{Durability, KeyspaceOptions};
pub(crate) use line::advance_line;
use line::stand_in_line;
use ticket::WriteTicket;

/// Most bytes of a batch's encoding. A value of the largest size fits with room to spare.
pub(crate) const BATCH_BYTES_MAX: usize = 96 << 20;

/// At full pressure a write of a mebibyte is slowed by this much: 10 MiB/s is what a slow disk flushes.
const SLOWEST_NANOS_PER_BYTE: u64 = 100;
/// A delay shorter than this is saved up: sleeping costs more than it.
const DELAY_NANOS_MIN: u64 = 1_000_000;
/// Runs of level 0 beyond which writers are slowed, and at which they are slowed most.
const RUNS_SLOW: usize = 12;
const RUNS_SLOWEST: usize = 36;

/// A batch with what its commit needs to know, gathered while it was built.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) batch: BatchBuilder,
    /// Room that its entries take in a memtable, as a rule.
    pub(crate) memtable_bytes: usize,
    /// The keyspaces that it writes to.
    pub(crate) keyspaces: Vec<Arc<KeyspaceInfo>>,
    /// The first limit that an entry broke.
    pub(crate) invalid: Option<Error>,
}

impl Prepared {
    /// With room for one entry of `bytes` key and value bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Prepared {
        Prepared { batch: BatchBuilder::with_capacity(bytes + 32), ..Prepared::default() }
    }

    /// Adds an entry; a broken limit is remembered.
    pub(crate) fn push(&mut self, keyspace: &Arc<KeyspaceInfo>, kind: EntryKind, key: &[u8], value: &[u8]) {
        if self.invalid.is_some() {
            return;
        }
        if let Err(error) = self.batch.push(kind, keyspace.id, key, value) {
            self.invalid =
                Some(Error::new(ErrorKind::Invalid, error.to_string()).advice("use shorter keys and values, or smaller batches"));
            return;
        }
        if self.batch.payload_bytes() > BATCH_BYTES_MAX {
            let message = format!("a batch of {} bytes; at most {BATCH_BYTES_MAX}", self.batch.payload_bytes());
            self.invalid = Some(Error::new(ErrorKind::Invalid, message).advice("write smaller batches"));
            return;
        }
        self.memtable_bytes += MemtableWriter::entry_bytes(key.len(), value.len());
        if !self.keyspaces.last().is_some_and(|last| Arc::ptr_eq(last, keyspace))
            && !self.keyspaces.iter().any(|known| Arc::ptr_eq(known, keyspace))
        {
            self.keyspaces.push(Arc::clone(keyspace));
        }
    }

    fn check(&self) -> Result<()> {
        if let Some(error) = &self.invalid {
            return Err(error.clone());
        }
        self.keyspaces.iter().try_for_each(|keyspace| keyspace.check())
    }
}

/// How a commit went.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The lane's end after it; `None` when it was not logged.
    end: Option<LogOffset>,
    accepted: Option<Completion<Result<()>>>,
    /// How long the writer is asked to wait.
    delay: Duration,
    /// Background work came up.
    rotated: bool,
}

/// Commits a batch. On `Busy` the batch is left as it was.
///
/// # Errors
/// `Busy` when there is no room in memory, or others stand in line for it; `Invalid`, `NotFound` for what the batch asks; those of the log.
pub(crate) fn commit(engine: &Engine, prepared: &mut Prepared, durability: Durability) -> Result<Committed> {
    prepared.check()?;
    engine.check_writable()?;
    let committed = {
        let mut commit = engine.stream.commit.lock();
        check_line(&commit).and_then(|()| commit_locked(engine, &mut commit, prepared, durability))
    };
    finish_commit(engine, committed)
}

/// # Errors
/// `Busy` when as many durable writes as may be have not ended.
fn check_in_flight(engine: &Engine, durability: Durability) -> Result<()> {
    let limit = engine.options.writes_in_flight_max();
    if durability == Durability::Durable && engine.stream.in_flight.load(Ordering::Relaxed) >= limit {
        return Err(Error::new(ErrorKind::Busy, format!("{limit} writes are in flight, which is the setting writes_in_flight_max"))
            .advice("wait for some of them"));
    }
    Ok(())
}

/// # Errors
/// `Busy` while other writes stand in line: none may pass them.
fn check_line(commit: &Commit) -> Result<()> {
    match commit.line.len() {
        0 => Ok(()),
        waiting => {
            Err(Error::new(ErrorKind::Busy, format!("{waiting} earlier writes wait for room in memory")).advice("wait for the flush"))
        }
    }
}

/// What follows the commit section: wakers run outside it.
fn finish_commit(engine: &Engine, committed: Result<Committed>) -> Result<Committed> {
    match &committed {
        Ok(committed) if committed.rotated => engine.work.raise(),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Busy => engine.work.raise(),
        Err(error) => engine.note(error),
    }
    committed
}

fn commit_locked(engine: &Engine, commit: &mut Commit, prepared: &mut Prepared, durability: Durability) -> Result<Committed> {
    engine.check_writable()?;
    prepared.keyspaces.iter().try_for_each(|keyspace| keyspace.check())?;
    let bytes = prepared.memtable_bytes;
    let rotated = make_room(engine, commit, bytes)?;
    let count = prepared.batch.count();
    commit.writer.reserve(bytes, count as usize)?;
    let payload = Bytes::from(std::mem::take(&mut prepared.batch).finish());
    let (end, accepted) = match durability {
        Durability::Unlogged => (None, None),
        _ => match append(engine, commit, &payload, count) {
            Ok((end, accepted)) => (Some(end), accepted),
            Err(error) => {
                // Whoever tries again must find the batch whole.
                prepared.batch = BatchBuilder::resume(payload.into(), count);
                return Err(error);
            }
        },
    };
    let first = commit.last + 1;
    apply(engine, commit, &payload, first);
    commit.last += u64::from(count);
    match end {
        Some(_) => commit.logged = commit.last,
        None => commit.unlogged = commit.last,
    }
    engine.stream.visible.store(commit.last, Ordering::Release);
    engine.stream.writes.fetch_add(1, Ordering::Relaxed);
    let delay = delay(engine, commit, bytes);
    Ok(Committed { end, accepted, delay, rotated })
}

/// Appends a batch to the log. When that fails the batch took no number, or the handle is finished.
fn append(engine: &Engine, commit: &mut Commit, payload: &Bytes, count: u32) -> Result<(LogOffset, Option<Completion<Result<()>>>)> {
    // More unlogged writes than an entry's count can say: entries without operations cover them.
    while commit.last - commit.logged + u64::from(count) > u64::from(u32::MAX) {
        let nothing = Bytes::from(BatchBuilder::new().finish());
        append_entry(engine, commit, &nothing, u32::MAX - OPERATIONS_MAX)?;
        commit.logged += u64::from(u32::MAX - OPERATIONS_MAX);
    }
    let covered = commit.last - commit.logged + u64::from(count);
    append_entry(engine, commit, payload, u32::try_from(covered).unwrap_or(u32::MAX))
}

/// Appends an entry that covers the next `count` numbers.
fn append_entry(engine: &Engine, commit: &mut Commit, payload: &Bytes, count: u32) -> Result<(LogOffset, Option<Completion<Result<()>>>)> {
    let entry = LogEntry { stream: MAIN_STREAM, first_sequence: commit.logged + 1, count, payload: payload.clone() };
    match engine.log.append(MAIN_LANE, &entry) {
        Ok(appended) => {
            commit.log_end = appended.end;
            Ok((appended.end, appended.accepted))
        }
        Err(error) => {
            let nothing_happened = matches!(
                error.kind(),
                ErrorKind::Retry
                    | ErrorKind::OutOfSpace
                    | ErrorKind::Invalid
                    | ErrorKind::Busy
                    | ErrorKind::PermissionDenied
                    | ErrorKind::Unsupported
            );
            if !nothing_happened {
                engine.fail(&error);
            }
            Err(error)
        }
    }
}

/// Puts the operations of an encoded batch into the memtable and the catalog.
fn apply(engine: &Engine, commit: &mut Commit, payload: &Bytes, first: u64) {
    let Ok(operations) = Operations::new(payload) else { unreachable!("a batch reads back what it wrote") };
    for (index, operation) in operations.enumerate() {
        let Ok(operation) = operation else { unreachable!("a batch reads back what it wrote") };
        match operation {
            Operation::Entry { kind, keyspace, key, value } => {
                let trailer = Trailer::new(SequenceNumber(first + index as u64), kind);
                commit.writer.insert(keyspace, key, trailer, value);
            }
            Operation::CreateKeyspace { keyspace, name, stream, options } => {
                let settings = KeyspaceOptions::from_manifest(&options).unwrap_or_default();
                engine.catalog.insert(&KeyspaceInfo::new(keyspace, name, settings));
                commit.keyspace_edits.push(Edit::KeyspaceCreated { id: keyspace, name: name.to_owned(), stream, options });
            }
            Operation::DropKeyspace { keyspace } => {
                engine.catalog.remove(keyspace);
                commit.keyspace_edits.push(Edit::KeyspaceDropped { id: keyspace });
            }
        }
    }
}

/// Memtables that may wait for their flush: what the budget's quarter leaves beside the active one.
fn waiting_max(engine: &Engine) -> usize {
    let quarter = engine.options.load().memory_bytes / 4;
    usize::try_from((quarter / engine.options.memtable_bytes()).saturating_sub(1)).unwrap_or(1).clamp(1, 16)
}

/// Seals the active memtable when it is full; says whether it did.
fn make_room(engine: &Engine, commit: &mut Commit, bytes: usize) -> Result<bool> {
    let used = commit.memtable.used_bytes();
    if used == 0 || used + bytes as u64 <= engine.options.memtable_bytes() {
        return Ok(false);
    }
    let waiting = engine.view().waiting.len();
    if waiting >= waiting_max(engine) {
        let message = format!("{waiting} memtables wait for their flush");
        let busy = Error::new(ErrorKind::Busy, message).advice("wait for the flush, or give the database more memory");
        return Err(match engine.background_error_of(FLUSH) {
            Some(error) => busy.source(error),
            None => busy,
        });
    }
    rotate(engine, commit);
    Ok(true)
}

/// Seals the active memtable and begins the next.
fn rotate(engine: &Engine, commit: &mut Commit) {
    let (memtable, writer) = Memtable::create();
    let sealed = Arc::new(Sealed {
        memtable: std::mem::replace(&mut commit.memtable, Arc::clone(&memtable)),
        last_sequence: SequenceNumber(commit.last),
        log_end: Some(commit.log_end),
        keyspace_edits: std::mem::take(&mut commit.keyspace_edits),
        old_logs: std::mem::take(&mut commit.old_logs),
    });
    commit.writer = writer;
    engine.change_view(|view| {
        let mut waiting = Vec::with_capacity(view.waiting.len() + 1);
        waiting.push(Arc::clone(&sealed));
        waiting.extend(view.waiting.iter().cloned());
        View { active: memtable, waiting, version: Arc::clone(&view.version) }
    });
}

/// Seals the active memtable, full or not, and says up to which sequence number all must be flushed.
pub(crate) fn seal(engine: &Engine) -> SequenceNumber {
    let last = {
        let mut commit = engine.stream.commit.lock();
        if !commit.memtable.is_empty() || !commit.keyspace_edits.is_empty() || !commit.old_logs.is_empty() {
            rotate(engine, &mut commit);
        }
        SequenceNumber(commit.last)
    };
    engine.work.raise();
    last
}

/// Whether writes are in memory that no log holds.
pub(crate) fn has_unlogged(engine: &Engine) -> bool {
    engine.stream.commit.lock().unlogged > engine.counters.flushed.load(Ordering::Acquire)
}

/// How long this writer is asked to wait: nothing up to half of the pressure, and from there on in proportion to its bytes.
fn delay(engine: &Engine, commit: &mut Commit, bytes: usize) -> Duration {
    let view = engine.view();
    let runs = view.version.runs_max();
    if view.waiting.is_empty() && runs < RUNS_SLOW {
        return Duration::ZERO;
    }
    let room = (waiting_max(engine) as u64 + 1) * engine.options.memtable_bytes();
    let used = commit.memtable.used_bytes() + view.waiting.len() as u64 * engine.options.memtable_bytes();
    let by_memory = (1000 * used / room.max(1)).min(1000).saturating_sub(500) * 2;
    let by_runs = (1000 * runs.saturating_sub(RUNS_SLOW) / (RUNS_SLOWEST - RUNS_SLOW)).min(1000) as u64;
    commit.delay_nanos += bytes as u64 * SLOWEST_NANOS_PER_BYTE * by_memory.max(by_runs) / 1000;
    if commit.delay_nanos < DELAY_NANOS_MIN {
        return Duration::ZERO;
    }
    Duration::from_nanos(std::mem::take(&mut commit.delay_nanos))
}

/// Commits a batch and says how it will end.
pub(crate) fn write(engine: &Arc<Engine>, mut prepared: Prepared, durability: Durability) -> Op<()> {
    if prepared.batch.is_empty() && prepared.invalid.is_none() {
        return Op::ready(engine.check_writable());
    }
    match check_in_flight(engine, durability).and_then(|()| commit(engine, &mut prepared, durability)) {
        Ok(committed) => acknowledge(engine, committed, durability),
        Err(error) if error.kind() == ErrorKind::Busy => stand_in_line(engine, prepared, durability, error),
        Err(error) => Op::ready(Err(error)),
    }
}

/// As [`write`], but gives the batch back when there is no room.
pub(crate) fn try_write(
    engine: &Arc<Engine>,
    mut prepared: Prepared,
    durability: Durability,
) -> std::result::Result<Op<()>, (Error, Prepared)> {
    if prepared.batch.is_empty() && prepared.invalid.is_none() {
        return Ok(Op::ready(engine.check_writable()));
    }
    match check_in_flight(engine, durability).and_then(|()| commit(engine, &mut prepared, durability)) {
        Ok(committed) => Ok(acknowledge(engine, committed, durability)),
        Err(error) if error.kind() == ErrorKind::Busy => Err((error, prepared)),
        Err(error) => Ok(Op::ready(Err(error))),
    }
}

/// The operation of a write that was committed.
pub(crate) fn acknowledge(engine: &Arc<Engine>, committed: Committed, durability: Durability) -> Op<()> {
    acknowledge_with(engine, committed, durability, ())
}

/// The operation of a write that was committed, which gives `value`.
pub(crate) fn acknowledge_with<T>(engine: &Arc<Engine>, committed: Committed, durability: Durability, value: T) -> Op<T> {
    if durability != Durability::Durable && committed.accepted.is_none() && committed.delay.is_zero() {
        return Op::ready(Ok(value));
    }
    Op::ticket(Box::new(WriteTicket::new(Arc::clone(engine), committed, durability)), value)
}

/// Creates a keyspace: an operation in the main stream.
pub(crate) fn create_keyspace(engine: &Arc<Engine>, name: &str, options: &KeyspaceOptions) -> Result<(Arc<KeyspaceInfo>, Committed)> {
    let committed = {
        let mut commit = engine.stream.commit.lock();
        if engine.catalog.by_name(name).is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("keyspace {name:?} exists")));
        }
        check_line(&commit)?;
        let id = commit.next_keyspace;
        let mut prepared = Prepared::default();
        let pushed = prepared.batch.push_create_keyspace(id, name, MAIN_STREAM, &options.to_manifest());
        pushed.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        commit_locked(engine, &mut commit, &mut prepared, Durability::Durable).map(|committed| {
            commit.next_keyspace = id + 1;
            (id, committed)
        })
    };
    let (id, committed) = match committed {
        Ok((id, committed)) => (id, finish_commit(engine, Ok(committed))?),
        Err(error) => return Err(finish_commit(engine, Err(error)).map_or_else(|error| error, |_| unreachable!("it was an error"))),
    };
    let keyspace = engine.catalog.by_id(id);
    let keyspace = keyspace.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("keyspace {name:?} was dropped meanwhile")))?;
    Ok((keyspace, committed))
}

/// Drops a keyspace: an operation in the main stream.
pub(crate) fn drop_keyspace(engine: &Arc<Engine>, name: &str) -> Result<Committed> {
    let committed = {
        let mut commit = engine.stream.commit.lock();
        let Some(keyspace) = engine.catalog.by_name(name) else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}")));
        };
        check_line(&commit)?;
        let mut prepared = Prepared::default();
        let pushed = prepared.batch.push_drop_keyspace(keyspace.id);
        pushed.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        commit_locked(engine, &mut commit, &mut prepared, Durability::Durable)
    };
    finish_commit(engine, committed)
}

#[cfg(test)]
mod tests;
