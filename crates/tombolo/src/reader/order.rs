//! What a reader knows of one order of writes: the database's own stream, or another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_format::manifest::{LogRole, MAIN_STREAM};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Error, ErrorKind, LogContext, LogEntry, LogId, LogOffset, LogRecord, LogStore, Result,
};

use crate::collection::Pinned;
use crate::engine::{Engine, Sealed, View, ingested_of};
use crate::manifest::State;
use crate::memtable::Memtable;
use crate::recovery::Replay;

/// An entry that was read, and is not to be shown yet.
struct Held {
    log: LogId,
    entry: LogEntry,
    end: LogOffset,
    /// It is the first that is read of its log, or after what was trimmed.
    begins: bool,
}

impl Held {
    fn last(&self) -> u64 {
        last_of(&self.entry)
    }
}

/// What holding an entry takes.
fn bytes_of(entry: &LogEntry) -> u64 {
    (size_of::<Held>() + entry.payload.len()) as u64
}

fn last_of(entry: &LogEntry) -> u64 {
    entry.first_sequence.saturating_add(u64::from(entry.count)).saturating_sub(1)
}

/// What reading an order has come to.
#[derive(Default)]
pub(super) struct Looked {
    /// Entries that were not known before.
    pub(super) news: u64,
    /// What the last log lacks.
    pub(super) lacks: Option<Error>,
    /// The replay of an entry failed, and nothing heals that.
    pub(super) is_broken: bool,
}

/// See the module's documentation.
pub(super) struct Order {
    pub(super) engine: Arc<Engine>,
    /// What the logs hold beyond the state.
    pub(super) replay: Replay,
    /// Full memtables, oldest first.
    full: Vec<Arc<Sealed>>,
    /// How far each log was read.
    logs: BTreeMap<LogId, LogOffset>,
    /// The log that was read last.
    reading: Option<LogId>,
    /// Entries beyond what the round shows. Invariant: each was read after those before it.
    held: VecDeque<Held>,
    /// What they take. Invariant: at most `held_bytes_max`, and one entry, save of the main stream.
    held_bytes: u64,
    held_bytes_max: u64,
    /// How far each log was looked at where no more was to be held: the rest is read again.
    passed: BTreeMap<LogId, LogOffset>,
    /// The number of the last entry that was read.
    last_read: u64,
    /// The view that is shown lacks something.
    pub(super) is_behind: bool,
}

impl Order {
    pub(super) fn new(engine: Arc<Engine>, replay: Replay) -> Order {
        // The main log says where cuts are: all of it must be read.
        let held_bytes_max = match engine.stream_id() {
            MAIN_STREAM => u64::MAX,
            _ => engine.options.memtable_bytes(),
        };
        Order {
            engine,
            replay,
            full: Vec::new(),
            logs: BTreeMap::new(),
            reading: None,
            held: VecDeque::new(),
            held_bytes: 0,
            held_bytes_max,
            passed: BTreeMap::new(),
            last_read: 0,
            is_behind: true,
        }
    }

    pub(super) fn stream(&self) -> u32 {
        self.engine.stream_id()
    }

    fn role(&self) -> LogRole {
        match self.stream() {
            MAIN_STREAM => LogRole::Main,
            stream => LogRole::Stream(stream),
        }
    }

    /// How far it was read, or is in the tables of a state: the round must show that.
    pub(super) fn known(&self, state: &State) -> u64 {
        self.replay.last_sequence(state).0.max(self.last_read)
    }

    /// Reads on in all logs of it that the state names, oldest first. What ends beyond the number
    /// that `limit` gives for an entry is held back, save in a sealed log. Once that is much,
    /// the rest is only looked at, and read again by the next call.
    ///
    /// # Errors
    /// Those of the log, and of the replay: what was not replayed is held.
    pub(super) async fn read(
        &mut self,
        (log_store, context): (&dyn LogStore, &LogContext),
        state: &State,
        looked: &mut Looked,
        mut limit: impl FnMut(Option<(LogId, &LogEntry)>) -> u64,
    ) -> Result<()> {
        self.logs.retain(|id, _| state.logs().contains_key(id));
        self.passed.retain(|id, _| state.logs().contains_key(id));
        let mut passes = false;
        self.apply(state, limit(None), looked)?;
        let role = self.role();
        for (id, log) in state.logs().iter().filter(|(_, log)| log.role == role) {
            let known = self.logs.get(id).copied();
            let from = known.map_or(log.replay_point, |known| known.max(log.replay_point));
            let is_trimmed = known.is_none_or(|known| known < log.replay_point);
            if is_trimmed {
                // In tables, all of it.
                self.held.retain(|held| held.log != *id);
                self.held_bytes = self.held.iter().map(|held| bytes_of(&held.entry)).sum();
            }
            if log.sealed.is_some_and(|sealed| sealed <= from) {
                continue;
            }
            let mut begins = self.reading != Some(*id) || is_trimmed;
            let record = LogRecord { id: *id, configuration: log.configuration.clone() };
            let mut reader = match log.sealed {
                Some(sealed) => log_store.read(context, &record, from, sealed).await?,
                None => log_store.tail(context, &record, from).await?,
            };
            while let Some((entry, end)) = reader.next().await? {
                let is_news = self.passed.get(id).is_none_or(|passed| *passed < end);
                looked.news += u64::from(is_news);
                let limit = limit(Some((*id, &entry)));
                self.last_read = self.last_read.max(last_of(&entry));
                // What comes after it is passed too, also in the next log.
                passes |= self.held_bytes > self.held_bytes_max && !is_enabled(Mutant::ReaderHoldsAll);
                if passes {
                    if is_news {
                        self.passed.insert(*id, end);
                    }
                    continue;
                }
                let begins = std::mem::take(&mut begins);
                let bytes = bytes_of(&entry);
                assert!(self.held_bytes <= self.held_bytes_max, "more is held than may be");
                self.held_bytes = self.held_bytes.saturating_add(bytes);
                self.held.push_back(Held { log: *id, entry, end, begins });
                self.logs.insert(*id, end);
                self.reading = Some(*id);
                self.apply(state, limit, looked)?;
            }
            looked.lacks = reader.lacks();
            if looked.lacks.is_some() {
                // Later entries may build on those that are lacking.
                break;
            }
        }
        Ok(())
    }

    /// Replays what was read, up to a number or where a log that is sealed ends.
    ///
    /// # Errors
    /// Those of the replay: the entry stays, and is tried again.
    pub(super) fn apply(&mut self, state: &State, limit: u64, looked: &mut Looked) -> Result<()> {
        while let Some(held) = self.held.front() {
            let bytes = bytes_of(&held.entry);
            let Some(log) = state.logs().get(&held.log) else {
                // All that it held is in tables.
                self.held_bytes = self.held_bytes.saturating_sub(bytes);
                self.held.pop_front();
                continue;
            };
            if log.sealed.is_none() && held.last() > limit {
                return Ok(());
            }
            if held.begins {
                self.replay.begin_log();
            }
            if let Err(error) = self.replay.entry(&held.entry) {
                // Without memory nothing of it was replayed, nor without the state that names its
                // tables: the next round does.
                looked.is_broken = !matches!(error.kind(), ErrorKind::Busy | ErrorKind::NotFound);
                let (epoch, end) = (held.log.epoch, held.end);
                return Err(error.context(format!("replaying the log of epoch {epoch} up to {end}")));
            }
            self.held_bytes = self.held_bytes.saturating_sub(bytes);
            self.held.pop_front();
        }
        Ok(())
    }

    /// Replays all that calls of [`Order::read`] have found, where a look at it has found no more.
    ///
    /// # Errors
    /// As those.
    pub(super) async fn apply_all(
        &mut self,
        logs: (&dyn LogStore, &LogContext),
        state: &State,
        looked: &mut Looked,
    ) -> Result<()> {
        let has_passed = |id: &LogId, passed: &LogOffset| {
            self.logs.get(id).is_none_or(|read| read < passed) && state.logs().contains_key(id)
        };
        if !self.passed.iter().any(|(id, passed)| has_passed(id, passed)) {
            return self.apply(state, u64::MAX, looked);
        }
        if is_enabled(Mutant::ReaderForgetsPassed) {
            return self.apply(state, u64::MAX, looked);
        }
        // Entries that come meanwhile have greater numbers, and are held.
        let last = self.last_read;
        self.read(logs, state, looked, |_| last).await
    }

    /// Goes on from another state: `next` makes the replay that goes on of this one and the full
    /// memtables.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    pub(super) fn carry(
        &mut self,
        next: impl FnOnce(&mut Replay, &[Arc<Sealed>]) -> Result<Replay>,
    ) -> Result<()> {
        self.replay.memtable()?;
        self.full.extend(self.replay.take_full());
        self.replay = next(&mut self.replay, &self.full)?;
        self.full.clear();
        Ok(())
    }

    /// All that was replayed is in memtables; the active one.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    pub(super) fn settled(&mut self) -> Result<Arc<Memtable>> {
        let active = Arc::clone(self.replay.memtable()?);
        let more = self.replay.take_full();
        self.is_behind |= !more.is_empty();
        self.full.extend(more);
        Ok(active)
    }

    /// Shows what was replayed, with the tables of the state. The number first: see `follow`.
    pub(super) fn show(&mut self, state: &State, active: Arc<Memtable>, kept_by: Option<Arc<Pinned>>) {
        let engine = &self.engine;
        // A snapshot of before sees nothing of this, also of a stream that was met since.
        if let Some(cuts) = engine.snapshots.cuts().filter(|_| !is_enabled(Mutant::ReaderMeetsCutsLate)) {
            cuts.meet();
        }
        engine.stream.visible.fetch_max(self.replay.last_sequence(state).0, Ordering::AcqRel);
        if std::mem::take(&mut self.is_behind) {
            let waiting: Vec<_> = self.full.iter().rev().cloned().collect();
            engine.change_view(|old| {
                let version = engine.versions.build(state, &old.version, &ingested_of(&waiting));
                View { active, waiting, version, kept_by, generation: old.generation + 1 }
            });
        }
    }
}
