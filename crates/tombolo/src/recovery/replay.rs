//! Log entries back into memtables.
//!
//! `entry → checked, in the order of the log → waits ([`pending`]) → into the memtable, in the order of keys`. What waits is shown to nobody: whoever
//! shows a memtable settles first. Meanwhile another thread takes the pages that it will fill.

mod pending;

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_env::{Env, TaskClass};
use tombolo_format::batch::{Operation, Operations};
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_format::manifest::Edit;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogEntry, LogRecord, Result};

use self::pending::Pending;
use super::{info, sealed};
use crate::budget::MemoryBudget;
use crate::engine::{KeyspaceInfo, MAIN_STREAM, Sealed};
use crate::manifest::State;
use crate::memtable::{Memtable, MemtableWriter, ReadyChunks};

/// A keyspace while the logs are replayed.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    options: tombolo_format::manifest::KeyspaceOptions,
    flushed: SequenceNumber,
}

/// What was replayed so far.
#[derive(Debug)]
pub(crate) struct Replay {
    memtable: Arc<Memtable>,
    writer: MemtableWriter,
    /// Of the active memtable. Invariant: every entry of it is checked, and older than all that comes.
    pending: Pending,
    /// The world whose other threads make memory ready, and how many chunks of the active memtable they were asked for.
    helpers: Option<(Env, usize)>,
    budget: Arc<MemoryBudget>,
    memtable_bytes: u64,
    /// Full memtables, oldest first.
    full: Vec<Sealed>,
    keyspaces: BTreeMap<u32, Known>,
    keyspace_edits: Vec<Edit>,
    /// Numbers below were used.
    next_keyspace: u32,
    /// Numbers of keyspaces below are in the manifest, or were.
    manifest_keyspaces: u32,
    /// The last sequence number of the entries so far.
    last: u64,
    /// Whether the next entry must follow `last` without a gap.
    contiguous: bool,
    bytes: u64,
    /// How long replaying took.
    pub(crate) took: std::time::Duration,
}

/// Old logs that stay named while what they hold waits in memory for an ordinary flush; at this many it is flushed at once. Each costs an
/// opening a few requests, and the disk a segment.
pub(super) const OLD_LOGS_MAX: usize = 8;

/// What replay found, ready to be served.
#[derive(Debug)]
pub(super) struct Replayed {
    /// The active memtable, with what is small.
    pub(super) memtable: Arc<Memtable>,
    pub(super) writer: MemtableWriter,
    /// To be flushed at once, newest first.
    pub(super) waiting: Vec<Arc<Sealed>>,
    /// What the active memtable's flush tells the manifest of keyspaces.
    pub(super) keyspace_edits: Vec<Edit>,
    /// The logs that end with the active memtable's flush.
    pub(super) old_logs: Vec<LogRecord>,
}

#[allow(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn unreadable(error: tombolo_format::FormatError) -> Error {
    let kind = if matches!(error, tombolo_format::FormatError::Newer { .. }) { ErrorKind::Unsupported } else { ErrorKind::Corrupt };
    Error::new(kind, format!("a log entry cannot be decoded: {error}"))
}

fn damaged(what: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, what).expected(expected).found(found)
}

impl Replay {
    pub(crate) fn new(state: &State, budget: &Arc<MemoryBudget>, memtable_bytes: u64) -> Result<Replay> {
        let (memtable, writer) = Memtable::create(budget, memtable_bytes);
        let known = |keyspace: &Arc<crate::manifest::KeyspaceState>| {
            let known = Known { name: keyspace.name.to_string(), options: (*keyspace.options).clone(), flushed: keyspace.flushed };
            (keyspace.id, known)
        };
        Ok(Replay {
            memtable,
            writer,
            pending: Pending::default(),
            helpers: None,
            budget: Arc::clone(budget),
            memtable_bytes,
            full: Vec::new(),
            keyspaces: state.keyspaces().map(known).collect(),
            keyspace_edits: Vec::new(),
            next_keyspace: state.next_keyspace_id(),
            manifest_keyspaces: state.next_keyspace_id(),
            last: 0,
            contiguous: false,
            bytes: 0,
            took: std::time::Duration::ZERO,
        })
    }

    /// The same, with memory that other threads of `env` make ready.
    pub(super) fn helped_by(self, env: &Env) -> Replay {
        Replay { helpers: Some((env.clone(), 0)), ..self }
    }

    /// Goes on from another state: what its tables do not hold of `memtables`, oldest first, and of this replay, is kept in memory.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    pub(crate) fn carry(&mut self, state: &State, memtables: &[Arc<Memtable>]) -> Result<Replay> {
        self.settle()?;
        let mut next = Replay::new(state, &self.budget, self.memtable_bytes)?;
        // What the log dropped stays dropped, though the state knows it still; what it created lives, though the state does not know it yet.
        next.keyspaces.retain(|id, _| *id >= self.next_keyspace || self.keyspaces.contains_key(id));
        let created = self.keyspaces.iter().filter(|(id, _)| **id >= next.manifest_keyspaces);
        next.keyspaces.extend(created.map(|(id, known)| (*id, known.clone())));
        next.next_keyspace = next.next_keyspace.max(self.next_keyspace);
        (next.last, next.contiguous, next.bytes) = (self.last, self.contiguous, self.bytes);
        for memtable in memtables.iter().chain([&self.memtable]) {
            for (keyspace, list) in memtable.lists() {
                let Some(flushed) = next.keyspaces.get(&keyspace).map(|known| known.flushed) else { continue };
                let mut cursor = list.cursor();
                cursor.first();
                while let Some(entry) = cursor.entry() {
                    if entry.trailer.sequence() > flushed || is_enabled(Mutant::ReaderKeepsFlushedEntries) {
                        next.writer.reserve(MemtableWriter::entry_bytes(entry.key.len(), entry.value.len()), 1)?;
                        next.writer.insert(keyspace, entry.key, entry.trailer, entry.value);
                    }
                    cursor.next();
                }
            }
            next.make_room()?;
        }
        Ok(next)
    }

    /// Settings of keyspaces are those of another state from here on.
    pub(crate) fn take_settings(&mut self, state: &State) {
        for keyspace in state.keyspaces() {
            if let Some(known) = self.keyspaces.get_mut(&keyspace.id)
                && known.options != *keyspace.options
            {
                known.options = (*keyspace.options).clone();
            }
        }
    }

    /// The active memtable, with all that was replayed into it.
    ///
    /// # Errors
    /// `Busy` when the system has no memory: what was replayed waits.
    pub(crate) fn memtable(&mut self) -> Result<&Arc<Memtable>> {
        self.settle()?;
        Ok(&self.memtable)
    }

    /// Puts what waits into the active memtable.
    ///
    /// # Errors
    /// As [`Replay::memtable`].
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.pending.settle(&mut self.writer)
    }

    /// The memtables that became full since this was last asked, oldest first.
    pub(crate) fn take_full(&mut self) -> Vec<Arc<Sealed>> {
        std::mem::take(&mut self.full).into_iter().map(Arc::new).collect()
    }

    /// The next entry is the first of a log. Unlogged writes of its predecessors may have taken numbers that no log holds.
    pub(crate) fn begin_log(&mut self) {
        self.contiguous = false;
    }

    /// Replays an entry, whole or not at all.
    ///
    /// # Errors
    /// `Corrupt` and `Unsupported`; `Busy` when the system has no memory: the same entry may be replayed again.
    pub(crate) fn entry(&mut self, entry: &LogEntry) -> Result<()> {
        if entry.stream != MAIN_STREAM {
            return Err(Error::new(ErrorKind::Unsupported, format!("a log entry of stream {}", entry.stream)).advice("use a newer Tombolo"));
        }
        let end = entry.first_sequence.checked_add(u64::from(entry.count)).filter(|end| *end <= SequenceNumber::MAX.0);
        let follows = if self.contiguous { entry.first_sequence == self.last + 1 } else { entry.first_sequence > self.last };
        let Some(end) = end.filter(|_| follows && entry.first_sequence > 0) else {
            let expected = if self.contiguous { format!("{}", self.last + 1) } else { format!("more than {}", self.last) };
            return Err(damaged("the sequence numbers of a log do not follow each other", expected, entry.first_sequence));
        };
        let operations = Operations::new(&entry.payload).map_err(unreadable)?;
        let count = operations.remaining();
        if count > entry.count {
            return Err(damaged("a log entry has more operations than numbers", entry.count, count));
        }
        // Unlogged writes before it took the first numbers.
        let first = end - u64::from(count);
        self.make_room()?;
        let mark = self.pending.mark();
        self.pending.begin(&entry.payload);
        for (sequence, operation) in (first..).zip(operations) {
            let replayed = operation.map_err(unreadable).and_then(|operation| self.operation(SequenceNumber(sequence), operation));
            if let Err(error) = replayed {
                self.pending.take_back(mark);
                return Err(error);
            }
        }
        self.pending.end(mark);
        self.ask_for_memory();
        self.last = end - 1;
        self.contiguous = true;
        self.bytes += entry.payload.len() as u64;
        Ok(())
    }

    fn operation(&mut self, sequence: SequenceNumber, operation: Operation<'_>) -> Result<()> {
        match operation {
            Operation::Entry { kind, keyspace, key, value } => match self.keyspaces.get(&keyspace) {
                Some(known) if sequence > known.flushed => {
                    self.pending.push(keyspace, key, Trailer::new(sequence, kind), value);
                }
                // In tables already, or of a keyspace that was dropped since.
                Some(_) => {}
                None if keyspace < self.next_keyspace => {}
                None => {
                    return Err(damaged("a write to a keyspace that was never created", format!("below {}", self.next_keyspace), keyspace));
                }
            },
            // Those that the manifest knew by then were created, or dropped, before.
            Operation::CreateKeyspace { keyspace, .. } if keyspace < self.manifest_keyspaces => {}
            Operation::CreateKeyspace { keyspace, name, stream, options } => {
                if keyspace < self.next_keyspace {
                    return Err(damaged("a keyspace is created twice", self.next_keyspace, keyspace));
                }
                let known = Known { name: name.to_owned(), options: options.clone(), flushed: SequenceNumber::ZERO };
                self.keyspaces.insert(keyspace, known);
                self.next_keyspace = keyspace + 1;
                self.keyspace_edits.push(Edit::KeyspaceCreated { id: keyspace, name: name.to_owned(), stream, options });
            }
            Operation::DropKeyspace { keyspace } => {
                if self.keyspaces.remove(&keyspace).is_some() {
                    self.keyspace_edits.push(Edit::KeyspaceDropped { id: keyspace });
                }
            }
        }
        Ok(())
    }

    /// Asks for as many chunks as what waits will fill.
    fn ask_for_memory(&mut self) {
        let Some((env, asked)) = &mut self.helpers else { return };
        let wanted = self.pending.bytes() / ReadyChunks::BYTES;
        if wanted > *asked {
            *asked = wanted;
            let ready = self.writer.ready_chunks().clone();
            env.spawn(TaskClass::Foreground, "memory for a replay", async move { ready.add() }).detach();
        }
    }

    /// Begins another memtable when this one is full, with what waits for it.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    fn make_room(&mut self) -> Result<()> {
        if self.memtable.used_bytes() + self.pending.bytes() as u64 >= self.memtable_bytes {
            self.settle()?;
            self.seal(SequenceNumber(self.last));
        }
        Ok(())
    }

    /// Ends the active memtable, for which nothing waits any more.
    fn seal(&mut self, last: SequenceNumber) {
        let (memtable, writer) = Memtable::create(&self.budget, self.memtable_bytes);
        // What was acknowledged is replayed, room or not.
        if let Some(room) = self.budget.room(self.memtable_bytes).filter(|_| !self.full.is_empty()) {
            memtable.keep_room(room);
        }
        let old = std::mem::replace(&mut self.memtable, memtable);
        self.writer = writer;
        if let Some((_, asked)) = &mut self.helpers {
            *asked = 0;
        }
        self.full.push(sealed(old, last, std::mem::take(&mut self.keyspace_edits)));
    }

    /// The last sequence number that was ever given out, as far as anybody knows.
    pub(crate) fn last_sequence(&self, state: &State) -> SequenceNumber {
        let reached = state.streams().get(&MAIN_STREAM).copied().unwrap_or(SequenceNumber::ZERO);
        let flushed = state.keyspaces().map(|keyspace| keyspace.flushed).max().unwrap_or(SequenceNumber::ZERO);
        reached.max(flushed).max(SequenceNumber(self.last))
    }

    /// The keyspaces that live.
    pub(crate) fn keyspaces(&self) -> Result<Vec<Arc<KeyspaceInfo>>> {
        self.keyspaces.iter().map(|(id, known)| info(*id, &known.name, &known.options)).collect()
    }

    pub(crate) fn next_keyspace(&self) -> u32 {
        self.next_keyspace
    }

    /// Bytes of the entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memtables. What is small stays in the active one and keeps its logs named until an ordinary flush, so that a database that is
    /// opened briefly again and again does not leave a small table each time.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    pub(super) fn finish(mut self, last: SequenceNumber, mut old_logs: Vec<LogRecord>) -> Result<Replayed> {
        self.settle()?;
        let holds_nothing = self.memtable.is_empty() && self.keyspace_edits.is_empty();
        let large = self.bytes > self.memtable_bytes / 2 || old_logs.len() >= OLD_LOGS_MAX;
        if (holds_nothing || large) && !old_logs.is_empty() {
            self.seal(last);
            if let Some(newest) = self.full.last_mut() {
                newest.old_logs = std::mem::take(&mut old_logs);
            }
        }
        let waiting = self.full.into_iter().rev().map(Arc::new).collect();
        Ok(Replayed { memtable: self.memtable, writer: self.writer, waiting, keyspace_edits: self.keyspace_edits, old_logs })
    }
}
