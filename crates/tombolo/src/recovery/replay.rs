//! Log entries back into memtables.
//!
//! `entry → checked, in the order of the log → waits ([`pending`]) → into the memtable, in the
//! order of keys`. Waiting entries are shown to nobody: a memtable is settled before it is shown.
//! Meanwhile other threads take the pages that it will fill and, of a large log, put in what has
//! waited ([`beside`]).

mod beside;
mod pending;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{Env, TaskClass};
use tombolo_format::batch::{Operation, Operations};
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogEntry, LogOffset, LogRecord, LogRun, Result, RunEntry};

use self::beside::Beside;
use self::pending::Pending;
use super::{info, sealed};
use crate::budget::MemoryBudget;
use crate::engine::{KeyspaceInfo, MAIN_STREAM, Sealed};
use crate::manifest::State;
use crate::memtable::{Memtable, MemtableWriter, ReadyChunks};
use crate::version::Ingested;

/// A keyspace while the logs are replayed.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    options: tombolo_format::manifest::KeyspaceOptions,
    stream: u32,
    flushed: SequenceNumber,
}

/// What was replayed so far.
#[derive(Debug)]
pub(crate) struct Replay {
    /// The stream of all entries. Those of the main one create and drop keyspaces of all.
    stream: u32,
    memtable: Arc<Memtable>,
    /// Of the active memtable, with what another thread puts into it.
    writer: Beside,
    /// Of the active memtable. Invariant: every entry of it is checked, newer than what another
    /// thread has of it, and older than all that comes.
    pending: Pending,
    helpers: Option<Helpers>,
    budget: Arc<MemoryBudget>,
    memtable_bytes: u64,
    /// Full memtables, oldest first.
    full: Vec<Sealed>,
    keyspaces: BTreeMap<u32, Known>,
    keyspace_edits: Vec<Edit>,
    /// What the entry before has made part of the database: the active memtable is to be sealed
    /// with it.
    ingested: Option<Arc<Ingested>>,
    /// Tables that the state has staged.
    staged: BTreeMap<TableName, Arc<TableDescription>>,
    /// Those of them that entries have made part of the database.
    used: BTreeSet<TableName>,
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

/// Bytes of memtable from which on what waits is worth another thread's while, whatever the
/// memtable's size, and those of which it need not wait for more.
const SHARE_BYTES_MIN: u64 = 64 << 10;
const SHARE_BYTES_MAX: u64 = 16 << 20;

/// The world whose other threads help with the active memtable.
#[derive(Debug)]
struct Helpers {
    env: Env,
    memory: ReadyChunks,
    /// Chunks that they were asked to make ready.
    asked: usize,
}

/// Old logs that stay named while what they hold waits in memory for an ordinary flush; at this
/// many it is flushed at once. Each costs an opening a few requests, and the disk a segment.
pub(super) const OLD_LOGS_MAX: usize = 8;

/// What replay found, ready to be served.
#[derive(Debug)]
pub(super) struct Replayed {
    /// The active memtable, with all of a small replay.
    pub(super) memtable: Arc<Memtable>,
    pub(super) writer: MemtableWriter,
    /// To be flushed at once, newest first.
    pub(super) waiting: Vec<Arc<Sealed>>,
    /// What the active memtable's flush tells the manifest of keyspaces.
    pub(super) keyspace_edits: Vec<Edit>,
    /// The logs that end with the active memtable's flush.
    pub(super) old_logs: Vec<LogRecord>,
}

fn staged_of(state: &State) -> BTreeMap<TableName, Arc<TableDescription>> {
    state.staged().map(|table| (table.description.name, Arc::clone(&table.description))).collect()
}

/// A log entry is about tables that the state does not name: a newer one does.
#[cold]
fn not_staged(name: TableName) -> Error {
    let name = format!("{:016x}-{:016x}", name.epoch, name.random);
    Error::new(ErrorKind::NotFound, "a log entry is about a table that was not staged").object(name)
}

#[allow(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn unreadable(error: tombolo_format::FormatError) -> Error {
    let message = format!("a log entry cannot be decoded: {error}");
    match error {
        tombolo_format::FormatError::Newer { .. } => Error::new(ErrorKind::Unsupported, message)
            .advice("use the version of Tombolo that wrote it, or a later one"),
        _ => Error::new(ErrorKind::Corrupt, message),
    }
}

fn damaged(what: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, what).expected(expected).found(found)
}

impl Replay {
    pub(crate) fn new(state: &State, budget: &Arc<MemoryBudget>, memtable_bytes: u64) -> Result<Replay> {
        let known = |keyspace: &Arc<crate::manifest::KeyspaceState>| {
            let known = Known {
                name: keyspace.name.to_string(),
                options: (*keyspace.options).clone(),
                stream: keyspace.stream,
                flushed: keyspace.flushed,
            };
            (keyspace.id, known)
        };
        Ok(Replay {
            keyspaces: state.keyspaces().map(known).collect(),
            staged: staged_of(state),
            next_keyspace: state.next_keyspace_id(),
            manifest_keyspaces: state.next_keyspace_id(),
            ..Replay::none_of(MAIN_STREAM, budget, memtable_bytes)
        })
    }

    /// That of another stream, whose keyspaces are those that the logs of the main one have left,
    /// all of which were replayed here.
    pub(crate) fn of_stream(&self, stream: u32, memtable_bytes: u64) -> Replay {
        let is_of_it = |(_, known): &(&u32, &Known)| known.stream == stream;
        let keyspaces = self.keyspaces.iter().filter(is_of_it).map(|(id, known)| (*id, known.clone()));
        Replay {
            keyspaces: keyspaces.collect(),
            staged: self.staged.clone(),
            next_keyspace: self.next_keyspace,
            manifest_keyspaces: self.next_keyspace,
            ..Replay::none_of(stream, &self.budget, memtable_bytes)
        }
    }

    /// Nothing of a stream that has no keyspace.
    pub(super) fn none_of(stream: u32, budget: &Arc<MemoryBudget>, memtable_bytes: u64) -> Replay {
        let (memtable, writer) = Memtable::create(budget, memtable_bytes);
        Replay {
            stream,
            memtable,
            writer: Beside::new(writer),
            pending: Pending::default(),
            helpers: None,
            budget: Arc::clone(budget),
            memtable_bytes,
            full: Vec::new(),
            keyspaces: BTreeMap::new(),
            keyspace_edits: Vec::new(),
            ingested: None,
            staged: BTreeMap::new(),
            used: BTreeSet::new(),
            next_keyspace: 0,
            manifest_keyspaces: 0,
            last: 0,
            contiguous: false,
            bytes: 0,
            took: std::time::Duration::ZERO,
        }
    }

    /// The other streams that have keyspaces.
    pub(crate) fn streams(&self) -> BTreeSet<u32> {
        self.keyspaces.values().map(|known| known.stream).filter(|stream| *stream != MAIN_STREAM).collect()
    }

    /// Of another stream: its keyspaces are those that the logs of the main one have left, and the
    /// staged tables those that it knows.
    pub(crate) fn follow_keyspaces(&mut self, main: &Replay) {
        let is_of_it = |(_, known): &(&u32, &Known)| known.stream == self.stream;
        self.keyspaces =
            main.keyspaces.iter().filter(is_of_it).map(|(id, known)| (*id, known.clone())).collect();
        (self.next_keyspace, self.manifest_keyspaces) = (main.next_keyspace, main.next_keyspace);
        self.staged.clone_from(&main.staged);
    }

    /// The same, with threads of `env` that make memory ready and put into it what waits, once
    /// [`Replay::make_way`] is called.
    pub(super) fn helped_by(self, env: &Env) -> Replay {
        let memory = self.writer.here().ready_chunks().clone();
        Replay { helpers: Some(Helpers { env: env.clone(), memory, asked: 0 }), ..self }
    }

    /// The same, which refuses entries that show staged tables.
    pub(crate) fn without_staged(self) -> Replay {
        Replay { staged: BTreeMap::new(), ..self }
    }

    /// Goes on from another state: what its tables do not hold of `older` memtables, oldest first,
    /// and of this replay, all of whose full memtables were taken, is kept in memory.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    pub(crate) fn carry(&mut self, state: &State, older: &[Arc<Sealed>]) -> Result<Replay> {
        let mut next = Replay::new(state, &self.budget, self.memtable_bytes)?;
        // What the log dropped stays dropped, though the state knows it still; what it created
        // lives, though the state does not know it yet.
        next.keyspaces.retain(|id, _| *id >= self.next_keyspace || self.keyspaces.contains_key(id));
        let created = self.keyspaces.iter().filter(|(id, _)| **id >= next.manifest_keyspaces);
        next.keyspaces.extend(created.map(|(id, known)| (*id, known.clone())));
        next.next_keyspace = next.next_keyspace.max(self.next_keyspace);
        self.carry_into(next, older)
    }

    /// The same, of another stream, of which the logs of the main one say what lives.
    ///
    /// # Errors
    /// As [`Replay::carry`].
    pub(crate) fn carry_of_stream(&mut self, main: &Replay, older: &[Arc<Sealed>]) -> Result<Replay> {
        self.carry_into(main.of_stream(self.stream, self.memtable_bytes), older)
    }

    fn carry_into(&mut self, mut next: Replay, older: &[Arc<Sealed>]) -> Result<Replay> {
        self.settle()?;
        (next.last, next.contiguous, next.bytes) = (self.last, self.contiguous, self.bytes);
        let older = older.iter().map(|sealed| (&sealed.memtable, sealed.ingested.as_ref()));
        for (memtable, ingested) in older.chain([(&self.memtable, None)]) {
            for (keyspace, list) in memtable.lists() {
                let Some(flushed) = next.keyspaces.get(&keyspace).map(|known| known.flushed) else {
                    continue;
                };
                if let Some(ranges) = list.ranges() {
                    for range in ranges.iter().filter(|range| range.number > flushed) {
                        let trailer = Trailer::new(range.number, EntryKind::RangeDelete);
                        next.writer.here_mut().insert(keyspace, range.from, trailer, range.to);
                    }
                }
                let mut cursor = list.cursor();
                cursor.first();
                while let Some(entry) = cursor.entry() {
                    if entry.trailer.sequence() > flushed || is_enabled(Mutant::ReaderKeepsFlushedEntries) {
                        let writer = next.writer.here_mut();
                        writer.reserve(MemtableWriter::entry_bytes(entry.key.len(), entry.value.len()), 1)?;
                        writer.insert(keyspace, entry.key, entry.trailer, entry.value);
                    }
                    cursor.next();
                }
            }
            next.ingested = ingested.filter(|ingested| next.lacks(ingested)).cloned();
            next.make_room()?;
        }
        Ok(next)
    }

    /// Whether the state's tables do not hold what was ingested.
    fn lacks(&self, ingested: &Ingested) -> bool {
        let lacks = |id: &u32| self.keyspaces.get(id).is_some_and(|known| known.flushed < ingested.last);
        ingested.keyspaces().iter().any(lacks)
    }

    /// Whether an entry has made a staged table part of the database.
    pub(super) fn has_ingested(&self, table: TableName) -> bool {
        self.used.contains(&table)
    }

    /// Settings of keyspaces, and the tables that are staged, are those of another state from here
    /// on.
    pub(crate) fn take_settings(&mut self, state: &State) {
        self.staged = staged_of(state);
        for keyspace in state.keyspaces() {
            let Some(known) = self.keyspaces.get_mut(&keyspace.id) else { continue };
            if known.options != *keyspace.options {
                known.options = (*keyspace.options).clone();
            }
            if known.stream != self.stream {
                // Here for their streams to ask.
                known.flushed = keyspace.flushed;
            }
        }
    }

    /// The active memtable, with all that was replayed into it.
    /// One that became full is sealed first: ask for the full ones after.
    ///
    /// # Errors
    /// `Busy` when the system has no memory: what was replayed waits.
    pub(crate) fn memtable(&mut self) -> Result<&Arc<Memtable>> {
        self.make_room()?;
        self.settle()?;
        Ok(&self.memtable)
    }

    /// Puts what waits into the active memtable.
    ///
    /// # Errors
    /// As [`Replay::memtable`].
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.pending.settle(self.writer.here_mut())
    }

    /// Waits until no other thread has anything of it: before the caller of [`Replay::make_way`]
    /// settles it.
    ///
    /// # Errors
    /// `Busy` when the system had no memory: the replay is over.
    pub(super) async fn rejoin(&mut self) -> Result<()> {
        self.writer.rejoin().await
    }

    /// Makes sure that the next entry has room, and that not too much waits: then another thread
    /// goes on with it.
    ///
    /// # Errors
    /// As [`Replay::rejoin`].
    pub(super) async fn make_way(&mut self) -> Result<()> {
        if self.is_full() {
            self.rejoin().await?;
            self.make_room()
        } else if let Some(Helpers { env, .. }) = self.helpers.as_ref().filter(|_| self.has_share()) {
            // While another thread may still have the part before it.
            self.pending.sort();
            self.writer.rejoin().await?;
            let part = std::mem::take(&mut self.pending);
            self.pending = self.writer.put_in(env, part, self.memtable.used_bytes());
            Ok(())
        } else {
            Ok(())
        }
    }

    /// Whether so much waits that another thread should go on with it: a part of the memtable, so
    /// that the last part, for which everybody waits, is small, and as many versions as have their
    /// keys near each other.
    fn has_share(&self) -> bool {
        self.helpers.is_some()
            && self.pending.bytes() as u64
                >= (self.memtable_bytes / 16).clamp(SHARE_BYTES_MIN, SHARE_BYTES_MAX)
    }

    /// Replays entries of a run, from that number on, until way must be made: how many; and the
    /// error of the next one, if it has one, as [`Replay::entry`] would say.
    pub(super) fn some_of(&mut self, run: &LogRun, from: usize) -> (usize, Option<Error>) {
        let mut count = 0;
        for entry in run.entries.iter().skip(from) {
            if self.is_full() || self.has_share() {
                break;
            }
            if let Err(error) = self.put(entry, &run.memory) {
                return (count, Some(error));
            }
            count += 1;
        }
        (count, None)
    }

    /// The memtables that became full since this was last asked, oldest first.
    pub(crate) fn take_full(&mut self) -> Vec<Arc<Sealed>> {
        std::mem::take(&mut self.full).into_iter().map(Arc::new).collect()
    }

    /// The next entry is the first of a log. Unlogged writes of its predecessors may have taken
    /// numbers that no log holds.
    pub(crate) fn begin_log(&mut self) {
        self.contiguous = false;
    }

    /// Replays an entry, whole or not at all.
    ///
    /// # Errors
    /// `Corrupt` and `Unsupported`; `Busy` when the system has no memory: the same entry may be
    /// replayed again.
    pub(crate) fn entry(&mut self, entry: &LogEntry) -> Result<()> {
        self.make_room()?;
        let LogEntry { stream, first_sequence, count, ref payload } = *entry;
        self.put(
            &RunEntry { stream, first_sequence, count, payload: 0..payload.len(), end: LogOffset::ZERO },
            payload,
        )
    }

    fn put(&mut self, entry: &RunEntry, memory: &Bytes) -> Result<()> {
        if entry.stream != self.stream && !is_enabled(Mutant::ForeignEntryReplayed) {
            return Err(damaged("a log entry of another stream than its lane's", self.stream, entry.stream));
        }
        let end = entry
            .first_sequence
            .checked_add(u64::from(entry.count))
            .filter(|end| *end <= SequenceNumber::MAX.0);
        let follows = if self.contiguous {
            entry.first_sequence == self.last + 1
        } else {
            entry.first_sequence > self.last
        };
        let Some(end) = end.filter(|_| follows && entry.first_sequence > 0) else {
            let expected = if self.contiguous {
                format!("{}", self.last + 1)
            } else {
                format!("more than {}", self.last)
            };
            return Err(damaged(
                "the sequence numbers of a log do not follow each other",
                expected,
                entry.first_sequence,
            ));
        };
        let operations = Operations::new(&memory[entry.payload.clone()]).map_err(unreadable)?;
        let count = operations.remaining();
        if count > entry.count {
            return Err(damaged("a log entry has more operations than numbers", entry.count, count));
        }
        // Unlogged writes before it took the first numbers.
        let first = end - u64::from(count);
        let mark = self.pending.mark();
        self.pending.begin(memory);
        let mut ingested =
            Ingested { tables: Vec::new(), exchanged: Vec::new(), last: SequenceNumber(end - 1) };
        for (sequence, operation) in (first..).zip(operations) {
            let replayed = operation
                .map_err(unreadable)
                .and_then(|operation| self.operation(SequenceNumber(sequence), operation, &mut ingested));
            if let Err(error) = replayed {
                self.pending.take_back(mark);
                return Err(error);
            }
        }
        self.pending.end(mark);
        if !ingested.tables.is_empty() || !ingested.exchanged.is_empty() {
            self.used.extend(ingested.tables.iter().map(|table| table.name));
            self.ingested = Some(Arc::new(ingested));
        }
        self.ask_for_memory();
        self.last = end - 1;
        self.contiguous = true;
        self.bytes += entry.payload.len() as u64;
        Ok(())
    }

    fn operation(
        &mut self,
        sequence: SequenceNumber,
        operation: Operation<'_>,
        ingested: &mut Ingested,
    ) -> Result<()> {
        match operation {
            Operation::Ingest { tables } => {
                for (name, keyspace) in tables {
                    if self.is_new(keyspace, sequence)? {
                        let Some(staged) = self.staged.get(&name) else { return Err(not_staged(name)) };
                        ingested.tables.push(Arc::new(staged.ingested_at(sequence)));
                    }
                }
            }
            Operation::Exchange { keyspace } => {
                if self.is_new(keyspace, sequence)? {
                    ingested.exchanged.push(keyspace);
                }
            }
            Operation::Entry { kind: EntryKind::RangeDelete, .. }
                if is_enabled(Mutant::RangeDeleteLostInReplay) => {}
            Operation::Entry { kind, keyspace, key, value } => match self.keyspaces.get(&keyspace) {
                Some(known) if known.stream != self.stream => {
                    let what = "a write to a keyspace of another stream than its lane's";
                    return Err(damaged(what, self.stream, known.stream));
                }
                Some(known) if sequence > known.flushed => {
                    self.pending.push(keyspace, key, Trailer::new(sequence, kind), value);
                }
                // In tables already, or of a keyspace that was dropped since.
                Some(_) => {}
                None if keyspace < self.next_keyspace => {}
                None => {
                    return Err(damaged(
                        "a write to a keyspace that was never created",
                        format!("below {}", self.next_keyspace),
                        keyspace,
                    ));
                }
            },
            Operation::Cut { .. } => {}
            Operation::CreateKeyspace { keyspace, .. } | Operation::DropKeyspace { keyspace }
                if self.stream != MAIN_STREAM =>
            {
                let what = format!("a keyspace is created or dropped in the lane of stream {}", self.stream);
                return Err(damaged(&what, "in the main log alone", keyspace));
            }
            // Those that the manifest knew by then were created, or dropped, before.
            Operation::CreateKeyspace { keyspace, .. } if keyspace < self.manifest_keyspaces => {}
            Operation::CreateKeyspace { keyspace, name, stream, options } => {
                if keyspace < self.next_keyspace {
                    return Err(damaged("a keyspace is created twice", self.next_keyspace, keyspace));
                }
                let flushed = SequenceNumber::ZERO;
                let known = Known { name: name.to_owned(), options: options.clone(), stream, flushed };
                self.keyspaces.insert(keyspace, known);
                self.next_keyspace = keyspace + 1;
                self.keyspace_edits.push(Edit::KeyspaceCreated {
                    id: keyspace,
                    name: name.to_owned(),
                    stream,
                    options,
                });
            }
            Operation::DropKeyspace { keyspace } => {
                if self.keyspaces.remove(&keyspace).is_some() {
                    self.keyspace_edits.push(Edit::KeyspaceDropped { id: keyspace });
                }
            }
        }
        Ok(())
    }

    /// Whether what an operation does to a keyspace is in no table yet, and the keyspace lives.
    fn is_new(&self, keyspace: u32, sequence: SequenceNumber) -> Result<bool> {
        match self.keyspaces.get(&keyspace) {
            Some(known) if known.stream != self.stream => {
                let what = "tables of a keyspace of another stream than its lane's";
                Err(damaged(what, self.stream, known.stream))
            }
            Some(known) => Ok(sequence > known.flushed),
            None if keyspace < self.next_keyspace => Ok(false),
            None => Err(damaged(
                "tables of a keyspace that was never created",
                format!("below {}", self.next_keyspace),
                keyspace,
            )),
        }
    }

    /// Asks for as many chunks as will be filled by what waits, and by what another thread has.
    fn ask_for_memory(&mut self) {
        let expected =
            usize::try_from(self.held()).unwrap_or(usize::MAX).saturating_add(self.pending.bytes());
        let Some(Helpers { env, memory, asked }) = &mut self.helpers else { return };
        let more = (expected / ReadyChunks::BYTES).saturating_sub(*asked);
        if more > 0 {
            *asked += more;
            if memory.ask(more) {
                let ready = memory.clone();
                env.spawn(TaskClass::Foreground, "memory for a replay", async move { ready.make() }).detach();
            }
        }
    }

    /// Bytes of the active memtable, once what another thread has is in it.
    fn held(&self) -> u64 {
        self.writer.bytes_away().unwrap_or_else(|| self.memtable.used_bytes())
    }

    /// Whether the active memtable is to be sealed: it is full, with what waits for it, or
    /// something was ingested.
    fn is_full(&self) -> bool {
        self.ingested.is_some() || self.held() + self.pending.bytes() as u64 >= self.memtable_bytes
    }

    /// Begins another memtable when this one is full, with what waits for it.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    pub(super) fn make_room(&mut self) -> Result<()> {
        if self.is_full() {
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
        if let Some(helpers) = &mut self.helpers {
            (helpers.memory, helpers.asked) = (writer.ready_chunks().clone(), 0);
        }
        self.writer = Beside::new(writer);
        let old = sealed(old, last, std::mem::take(&mut self.keyspace_edits));
        self.full.push(Sealed { ingested: self.ingested.take(), ..old });
    }

    /// The last sequence number that was ever given out, as far as anybody knows.
    pub(crate) fn last_sequence(&self, state: &State) -> SequenceNumber {
        let reached = state.streams().get(&self.stream).copied().unwrap_or(SequenceNumber::ZERO);
        let of_it = state.keyspaces().filter(|keyspace| keyspace.stream == self.stream);
        let flushed = of_it.map(|keyspace| keyspace.flushed).max().unwrap_or(SequenceNumber::ZERO);
        reached.max(flushed).max(SequenceNumber(self.last))
    }

    /// The keyspaces that live.
    pub(crate) fn keyspaces(&self) -> Result<Vec<Arc<KeyspaceInfo>>> {
        let info = |(id, known): (&u32, &Known)| info(*id, &known.name, &known.options, known.stream);
        self.keyspaces.iter().map(info).collect()
    }

    pub(crate) fn next_keyspace(&self) -> u32 {
        self.next_keyspace
    }

    /// Bytes of the entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memtables. A small replay stays in the active one and keeps its logs named until an
    /// ordinary flush, so that a database that is opened briefly again and again does not leave a
    /// small table each time.
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
        Ok(Replayed {
            memtable: self.memtable,
            writer: self.writer.into_here(),
            waiting,
            keyspace_edits: self.keyspace_edits,
            old_logs,
        })
    }
}

#[cfg(test)]
mod tests;
