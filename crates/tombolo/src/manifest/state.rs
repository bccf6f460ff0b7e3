//! The state that the edits of the chain build: which tables and logs make the database.
//!
//! Manifest, step 2 of 3: `chain → state → driver`. Pure: no IO. Every edit is checked against the
//! state before it changes anything, both when it is about to be written (a refusal is a bug of the
//! caller) and when it is read back (a refusal is corruption).
//!
//! Invariants:
//! 1. `fold(state.edits()) == state`: a snapshot holds all of it, but for parts of edits that are
//!    still to take effect.
//! 2. A table is staged, live, obsolete or condemned, or it is not named; it goes staged → live →
//!    obsolete ⇄ condemned → not named, or staged → obsolete, and never comes back.
//! 3. A sealed length, once recorded, does not change; replay points, flushed and reached sequence
//!    numbers only rise.
//! 4. A source is named before every table of it and un-named after the last. All are named before
//!    the first keyspace: so a number never comes back.
//! 5. A value object is live as long as a live table refers to it (`values`).
//! 6. Clones share everything but what changed since: a version costs the same at 100 and at
//!    100,000 tables, but for one short array.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::cold::{Aged, ColdStore};
use tombolo_format::expiry::Times;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::mark::{Mark, MarkKind};
use tombolo_format::manifest::{
    Edit, KeyspaceOptions, LogRole, Part, Record, RecordKind, Source, TableDescription, TableName, Writer,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, LogId, LogOffset, LogRecord};

use super::values::Values;
use crate::chunked::{Chunk, ChunkedMap};

mod elsewhere;
mod logs;

/// Levels of a keyspace: 0 to 63.
pub const LEVEL_MAX: u8 = 63;

/// Why an edit does not fit the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError(pub String);

impl fmt::Display for EditError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, EditError> {
    Err(EditError(why.into()))
}

/// What a database was created with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Random, of this life alone.
    pub id: u64,
    /// Identity of its log store.
    pub log_identity: String,
    /// When, in seconds since the Unix epoch.
    pub created_unix_seconds: u64,
}

/// Where a named table stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableStatus {
    /// Made outside, and not part of the database: a log entry may make it so.
    Staged,
    /// Part of the version, at the level of its description.
    Live,
    /// Left the version; pins may still count on it.
    Obsolete,
    /// About to be deleted; no pin made from here on may count on it.
    Condemned,
}

/// A table that the manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTable {
    /// All that opening it needs.
    pub description: Arc<TableDescription>,
    /// Where it stands.
    pub status: TableStatus,
}

/// Order of the tables of a level: level 0 newest first, the others by first key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LevelKey {
    first_key: Bytes,
    newest_first: u64,
    name: TableName,
}

impl LevelKey {
    fn of(table: &TableDescription) -> LevelKey {
        match table.level {
            0 => LevelKey { first_key: Bytes::new(), newest_first: !table.last_sequence.0, name: table.name },
            _ => LevelKey { first_key: table.first_key.clone(), newest_first: 0, name: table.name },
        }
    }
}

/// A shared piece of a level: the same allocation in every state that it did not change in.
pub type LevelChunk = Chunk<LevelKey, Arc<TableDescription>>;

/// The live tables of one level, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level(ChunkedMap<LevelKey, Arc<TableDescription>>);

impl Level {
    /// Number of tables.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tables: of level 0 newest first, of others by first key.
    pub fn tables(&self) -> impl DoubleEndedIterator<Item = &Arc<TableDescription>> {
        self.0.values()
    }

    /// The tables in the pieces in which states share them.
    pub fn chunks(&self) -> &[LevelChunk] {
        self.0.chunks()
    }
}

/// A keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceState {
    /// Its number; never used again.
    pub id: u32,
    /// Its name.
    pub name: Arc<str>,
    /// The stream that orders its writes.
    pub stream: u32,
    /// Its options.
    pub options: Arc<KeyspaceOptions>,
    /// Everything up to here is in tables; inclusive.
    pub flushed: SequenceNumber,
    /// Its live tables by level; no level is empty.
    pub levels: BTreeMap<u8, Level>,
    /// Its live value objects.
    pub values: Values,
    /// Dropped, and kept while it has tables that are named, or has the highest number.
    dropped: bool,
    /// Tables of it that are named, live or not.
    named: usize,
}

impl KeyspaceState {
    /// Its live tables: level by level, each in its order.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableDescription>> {
        self.levels.values().flat_map(Level::tables)
    }

    /// All that it keeps in the store: its live value objects and its live tables.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<TableDescription>> {
        self.values.objects().chain(self.tables())
    }
}

/// A log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    /// What it is for.
    pub role: LogRole,
    /// The log store's own encoding of where and how it is kept.
    pub configuration: Bytes,
    /// What fencing it has yielded.
    pub sealed: Option<LogOffset>,
    /// Everything before is needed no more.
    pub replay_point: LogOffset,
    /// The first entries of an application's log that it has given up, counted; some of them may
    /// lie behind the replay point.
    pub trimmed: u64,
}

/// A source, and how much of it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SourceState {
    source: Source,
    /// Tables of it that are named, live or not.
    named: u64,
    /// Their bytes.
    bytes: u64,
}

/// Who claimed the newest epoch. For liveness only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterState {
    /// Its epoch.
    pub epoch: Epoch,
    /// Who it is.
    pub writer: Writer,
    /// Whether it has told that it has closed the database.
    pub closed: bool,
}

impl WriterState {
    fn new(epoch: u64, writer: &Writer) -> WriterState {
        WriterState { epoch: Epoch(epoch), writer: writer.clone(), closed: false }
    }
}

/// See the module's documentation. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    slot: u64,
    epoch: u64,
    destroyed: bool,
    database: Option<Arc<Database>>,
    writer: Option<Arc<WriterState>>,
    keyspaces: ChunkedMap<u32, Arc<KeyspaceState>>,
    /// Invariant: the keyspaces that were not dropped.
    names: ChunkedMap<Arc<str>, u32>,
    tables: ChunkedMap<TableName, NamedTable>,
    /// Invariant: the names in `tables` that left the version, or are given up.
    unneeded: ChunkedMap<TableName, ()>,
    /// Invariant: the names in `tables` that are staged.
    staged: ChunkedMap<TableName, ()>,
    logs: Arc<BTreeMap<LogId, LogState>>,
    streams: Arc<BTreeMap<u32, SequenceNumber>>,
    times: Times,
    sources: Arc<BTreeMap<u32, SourceState>>,
    /// By id; one at most is its own.
    cold: Arc<BTreeMap<u64, ColdStore>>,
    /// By when what was written, of each stream; both numbers ascend.
    ages: Arc<BTreeMap<u32, Vec<Aged>>>,
    /// Why nobody may claim it, if so.
    mark: Option<Arc<Mark>>,
    /// Parts of edits that take effect with their last one; forgotten when something else comes
    /// before it.
    begun: Vec<Arc<Vec<Edit>>>,
}

/// Where edits come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A record of this epoch.
    Record(Epoch),
    /// A snapshot, whose edits tell of all epochs.
    Snapshot,
}

impl State {
    /// The slot of the last record in it; 0 before the first.
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// The epoch of the last record in it.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// Whether the incarnation has ended.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed
    }

    /// What the database was created with; `None` while its creation is not complete.
    pub fn database(&self) -> Option<&Database> {
        self.database.as_deref()
    }

    /// Who claimed the newest epoch; `None` before the first claim.
    pub fn writer(&self) -> Option<&WriterState> {
        self.writer.as_deref()
    }

    /// The keyspaces, by number.
    pub fn keyspaces(&self) -> impl Iterator<Item = &Arc<KeyspaceState>> {
        self.keyspaces.values().filter(|keyspace| !keyspace.dropped)
    }

    /// A keyspace by number.
    pub fn keyspace(&self, id: u32) -> Option<&Arc<KeyspaceState>> {
        self.keyspaces.get(&id).filter(|keyspace| !keyspace.dropped)
    }

    /// A keyspace by name.
    pub fn keyspace_by_name(&self, name: &str) -> Option<&Arc<KeyspaceState>> {
        self.names.get(&Arc::from(name)).and_then(|id| self.keyspace(*id))
    }

    /// The lowest number that no keyspace has had.
    pub fn next_keyspace_id(&self) -> u32 {
        self.keyspaces.last().map_or(0, |(id, _)| id.saturating_add(1))
    }

    /// All tables that are named, live or not, by name.
    pub fn tables(&self) -> impl Iterator<Item = &NamedTable> {
        self.tables.values()
    }

    /// The names of all live tables and value objects: what a pin of this state keeps.
    pub fn live_names(&self) -> impl Iterator<Item = TableName> {
        let pinned =
            |object: &&Arc<TableDescription>| !object.is_values() || !is_enabled(Mutant::ValuesUnpinned);
        self.keyspaces().flat_map(|keyspace| keyspace.objects()).filter(pinned).map(|object| object.name)
    }

    /// Number of tables that are named.
    pub fn table_count(&self) -> usize {
        self.tables.len()
    }

    /// A table by name, if it is named.
    pub fn table(&self, name: TableName) -> Option<&NamedTable> {
        self.tables.get(&name)
    }

    /// Tables that left the version and are still named, by name.
    pub fn unneeded(&self) -> impl Iterator<Item = &NamedTable> {
        self.unneeded.iter().filter_map(|(name, ())| self.tables.get(name))
    }

    /// Tables that are staged, by name.
    pub fn staged(&self) -> impl Iterator<Item = &NamedTable> {
        self.staged.iter().filter_map(|(name, ())| self.tables.get(name))
    }

    /// The logs by epoch and lane.
    pub fn logs(&self) -> &BTreeMap<LogId, LogState> {
        &self.logs
    }

    /// The logs as a log store wants them.
    pub fn log_records(&self) -> Vec<LogRecord> {
        self.logs
            .iter()
            .map(|(id, log)| LogRecord { id: *id, configuration: log.configuration.clone() })
            .collect()
    }

    /// How far each stream had come at some time, whatever its tables and logs hold.
    pub fn streams(&self) -> &BTreeMap<u32, SequenceNumber> {
        &self.streams
    }

    /// What it is to another database, while nobody may write to it.
    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_deref()
    }

    /// As [`State::mark`], if it is of this kind.
    pub fn mark_of(&self, kind: MarkKind) -> Option<&Mark> {
        self.mark().filter(|mark| mark.kind == kind)
    }

    /// All that is known of the database's time.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Databases of which tables are named, or were until a moment ago, by number.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.values().map(|state| &state.source)
    }

    /// How many tables are named that lie under sources, live or not, and their bytes.
    pub fn shared_tables(&self) -> (u64, u64) {
        self.sources
            .values()
            .fold((0, 0), |(tables, bytes), source| (tables + source.named, bytes + source.bytes))
    }

    /// Those of which no table is named any more, live or not: their pins can be given back (see
    /// [`crate::collection`]).
    pub fn unneeded_sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.values().filter(|state| state.named == 0).map(|state| &state.source)
    }

    /// Whether the last record is a part of edits that are still to take effect. No snapshot holds
    /// those.
    pub fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// The state of an incarnation that has ended, of which nothing else is known.
    pub fn destroyed(slot: u64, epoch: Epoch) -> State {
        State { slot, epoch: epoch.0, destroyed: true, ..State::default() }
    }

    /// Applies the record that follows.
    ///
    /// # Errors
    /// When the record does not fit; the state is then of no use.
    pub fn apply_record(&mut self, record: &Record) -> Result<(), EditError> {
        if record.slot != self.slot + 1 {
            return refuse(format!("slot {} follows slot {}", record.slot, self.slot));
        }
        if self.destroyed {
            return refuse("a record follows the one that ended the incarnation");
        }
        let is_claim = matches!(record.kind, RecordKind::Claim(_));
        let epoch = if is_claim { record.slot } else { self.epoch };
        if record.epoch != epoch && !is_enabled(Mutant::PutForeignRecordRetriedNext) {
            return refuse(format!("a record of epoch {} where epoch {epoch} writes", record.epoch));
        }
        let origin = Origin::Record(Epoch(record.epoch));
        let mut begun = std::mem::take(&mut self.begun);
        match &record.kind {
            RecordKind::Claim(writer) => self.writer = Some(Arc::new(WriterState::new(epoch, writer))),
            RecordKind::Snapshot { .. } => {}
            RecordKind::Edits(edits) => self.apply_edits(edits, origin)?,
            RecordKind::Destroyed => self.destroyed = true,
            RecordKind::Part(Part::First, edits) => self.begun = vec![Arc::new(edits.clone())],
            RecordKind::Part(_, _) if begun.is_empty() => {
                return refuse("a part of edits of which the first is missing");
            }
            RecordKind::Part(Part::Further, edits) => {
                begun.push(Arc::new(edits.clone()));
                self.begun = begun;
            }
            RecordKind::Part(Part::Last, edits) => {
                begun.iter().try_for_each(|edits| self.apply_edits(edits, origin))?;
                self.apply_edits(edits, origin)?;
            }
        }
        self.slot = record.slot;
        self.epoch = record.epoch;
        Ok(())
    }

    /// The state that a snapshot holds.
    ///
    /// # Errors
    /// When the edits do not fit each other.
    pub fn from_snapshot(slot: u64, epoch: Epoch, edits: &[Edit]) -> Result<State, EditError> {
        let mut state = State { slot, epoch: epoch.0, ..State::default() };
        state.apply_edits(edits, Origin::Snapshot)?;
        let missing = state.keyspaces().find_map(|keyspace| keyspace.values.missing());
        match missing {
            Some((object, needed)) => refuse(format!(
                "{} tables refer to value object {object:#018x}, which is not live",
                needed.tables
            )),
            None => Ok(state),
        }
    }

    /// Applies edits in order.
    ///
    /// # Errors
    /// When one does not fit; the state may then hold those before it.
    pub fn apply_edits(&mut self, edits: &[Edit], origin: Origin) -> Result<(), EditError> {
        edits.iter().try_for_each(|edit| self.apply_edit(edit, origin))
    }

    fn apply_edit(&mut self, edit: &Edit, origin: Origin) -> Result<(), EditError> {
        match edit {
            Edit::DatabaseCreated { id, log_identity, created_unix_seconds } => {
                if self.database.is_some() {
                    return refuse("the database is created twice");
                }
                let created = Database {
                    id: *id,
                    log_identity: log_identity.clone(),
                    created_unix_seconds: *created_unix_seconds,
                };
                self.database = Some(Arc::new(created));
                Ok(())
            }
            Edit::KeyspaceCreated { id, name, stream, options } => {
                self.create_keyspace(*id, name, *stream, options)
            }
            Edit::KeyspaceDropped { id } => self.drop_keyspace(*id),
            Edit::KeyspaceFlushed { id, sequence } => {
                let keyspace = self.live_keyspace(*id)?;
                if *sequence < keyspace.flushed {
                    return refuse(format!(
                        "keyspace {id} was flushed to {}, now to {}",
                        keyspace.flushed.0, sequence.0
                    ));
                }
                keyspace.flushed = *sequence;
                Ok(())
            }
            Edit::KeyspaceChanged { id, options } => {
                self.live_keyspace(*id)?.options = Arc::new(options.clone());
                Ok(())
            }
            Edit::TableAdded(table) => self.name_table(table, origin, TableStatus::Live),
            Edit::TableStaged(table) => self.name_table(table, origin, TableStatus::Staged),
            Edit::StagedTableLive { name, level, sequence } => {
                self.go_live((*name, *level, *sequence), origin)
            }
            Edit::KeyspaceEmptied { id } => {
                let keyspace = self.live_keyspace(*id)?;
                let (levels, values) =
                    (std::mem::take(&mut keyspace.levels), std::mem::take(&mut keyspace.values));
                for table in levels.values().flat_map(Level::tables).chain(values.objects()) {
                    self.set_status(table.name, TableStatus::Obsolete);
                }
                Ok(())
            }
            Edit::TableMoved { name, level } => self.move_table(*name, *level),
            Edit::TableObsolete { name } => match self.table_status(*name)? {
                TableStatus::Live => self.leave_version(*name, origin),
                TableStatus::Staged | TableStatus::Condemned => {
                    self.set_status(*name, TableStatus::Obsolete);
                    Ok(())
                }
                TableStatus::Obsolete if is_enabled(Mutant::DeadInputsReplaced) => Ok(()),
                TableStatus::Obsolete => refuse(format!("table {name:?} is obsolete already")),
            },
            Edit::TableCondemned { name } => match self.table_status(*name)? {
                TableStatus::Obsolete => {
                    self.set_status(*name, TableStatus::Condemned);
                    Ok(())
                }
                status => refuse(format!("table {name:?} is {status:?} and cannot be condemned")),
            },
            Edit::TableUnnamed { name } => self.unname_table(*name),
            Edit::SourceNamed(source) => self.name_source(source),
            Edit::SourceUnnamed { number } => self.unname_source(*number),
            Edit::LogNamed { .. }
            | Edit::LogSealed { .. }
            | Edit::LogReplayPoint { .. }
            | Edit::LogTrimmed { .. }
            | Edit::LogUnnamed { .. } => self.apply_log_edit(edit, origin),
            Edit::WriterNamed { epoch, writer } => {
                if origin != Origin::Snapshot || self.writer.is_some() {
                    return refuse("a writer is named by its claim");
                }
                self.writer = Some(Arc::new(WriterState::new(*epoch, writer)));
                Ok(())
            }
            Edit::WriterClosed => {
                let Some(writer) = &mut self.writer else { return refuse("no writer was named") };
                Arc::make_mut(writer).closed = true;
                Ok(())
            }
            Edit::StreamReached { stream, sequence } => {
                let reached = Arc::make_mut(&mut self.streams).entry(*stream).or_insert(SequenceNumber::ZERO);
                if *sequence < *reached {
                    return refuse(format!("stream {stream} had reached {}, now {}", reached.0, sequence.0));
                }
                *reached = *sequence;
                Ok(())
            }
            Edit::ColdStoreNamed(cold) => self.name_cold_store(cold),
            Edit::Aged { stream, aged } => self.add_age(*stream, *aged),
            Edit::Marked(mark) => {
                self.mark = mark.clone().map(Arc::new);
                Ok(())
            }
            Edit::Time { times, is_set } => {
                let goes_back =
                    times.reached_ms < self.times.reached_ms || times.settled_ms < self.times.settled_ms;
                if goes_back && !is_set && origin != Origin::Snapshot {
                    return refuse(format!("time goes back from {:?} to {times:?}", self.times));
                }
                self.times = *times;
                Ok(())
            }
        }
    }

    fn create_keyspace(
        &mut self,
        id: u32,
        name: &str,
        stream: u32,
        options: &KeyspaceOptions,
    ) -> Result<(), EditError> {
        if self.keyspaces.last().is_some_and(|(highest, _)| id <= *highest) {
            return refuse(format!("keyspace number {id} may have been used before"));
        }
        if self.keyspace_by_name(name).is_some() {
            return refuse(format!("keyspace {name:?} exists"));
        }
        let shared: Arc<str> = name.into();
        let keyspace = KeyspaceState {
            id,
            name: Arc::clone(&shared),
            stream,
            options: self.shared_options(options),
            flushed: SequenceNumber::ZERO,
            levels: BTreeMap::new(),
            values: Values::default(),
            dropped: false,
            named: 0,
        };
        let before = self.keyspaces.last().map(|(id, _)| *id);
        self.keyspaces.insert(id, Arc::new(keyspace));
        self.names.insert(shared, id);
        if let Some(before) = before {
            self.forget_if_gone(before);
        }
        Ok(())
    }

    /// Options are most often those of the keyspace before: one copy for all of them.
    fn shared_options(&self, options: &KeyspaceOptions) -> Arc<KeyspaceOptions> {
        let last = self.keyspaces.last().map(|(_, keyspace)| &keyspace.options);
        last.filter(|last| ***last == *options).map_or_else(|| Arc::new(options.clone()), Arc::clone)
    }

    fn drop_keyspace(&mut self, id: u32) -> Result<(), EditError> {
        let keyspace = self.live_keyspace(id)?;
        keyspace.dropped = true;
        let (name, levels) = (Arc::clone(&keyspace.name), std::mem::take(&mut keyspace.levels));
        let values = std::mem::take(&mut keyspace.values);
        self.names.remove(&name);
        for table in levels.values().flat_map(Level::tables).chain(values.objects()) {
            self.set_status(table.name, TableStatus::Obsolete);
        }
        let of_it = |table: &&NamedTable| table.description.keyspace == id;
        let staged: Vec<_> = self.staged().filter(of_it).map(|table| table.description.name).collect();
        staged.into_iter().for_each(|name| self.set_status(name, TableStatus::Obsolete));
        self.forget_if_gone(id);
        Ok(())
    }

    /// A dropped keyspace without named tables is forgotten, unless its number is the highest: that
    /// one keeps numbers from coming back.
    fn forget_if_gone(&mut self, id: u32) {
        let highest = self.keyspaces.last().map(|(id, _)| *id);
        if highest != Some(id)
            && self.keyspaces.get(&id).is_some_and(|keyspace| keyspace.dropped && keyspace.named == 0)
        {
            self.keyspaces.remove(&id);
        }
    }

    fn live_keyspace(&mut self, id: u32) -> Result<&mut KeyspaceState, EditError> {
        match self.keyspaces.get_mut(&id) {
            Some(keyspace) if !keyspace.dropped => Ok(Arc::make_mut(keyspace)),
            _ => refuse(format!("there is no keyspace {id}")),
        }
    }

    fn table_status(&self, name: TableName) -> Result<TableStatus, EditError> {
        match self.tables.get(&name) {
            Some(table) => Ok(table.status),
            None => refuse(format!("table {name:?} is not named")),
        }
    }

    fn set_status(&mut self, name: TableName, status: TableStatus) {
        let Some(table) = self.tables.get(&name) else { return };
        let description = Arc::clone(&table.description);
        self.tables.insert(name, NamedTable { description, status });
        self.sort_in(name, status);
    }

    /// Puts a table's name among those of its status.
    fn sort_in(&mut self, name: TableName, status: TableStatus) {
        self.staged.remove(&name);
        self.unneeded.remove(&name);
        match status {
            TableStatus::Live => {}
            TableStatus::Staged => drop(self.staged.insert(name, ())),
            TableStatus::Obsolete | TableStatus::Condemned => drop(self.unneeded.insert(name, ())),
        }
    }

    /// Names a table that is live, or staged.
    fn name_table(
        &mut self,
        table: &TableDescription,
        origin: Origin,
        status: TableStatus,
    ) -> Result<(), EditError> {
        if self.tables.contains(&table.name) {
            return refuse(format!("table {:?} is added twice", table.name));
        }
        let epoch_fits = match origin {
            Origin::Record(epoch) => table.name.epoch == epoch.0 || is_enabled(Mutant::StaleJobInstalled),
            Origin::Snapshot => table.name.epoch <= self.epoch,
        };
        if !epoch_fits {
            return refuse(format!(
                "table {:?} comes from another epoch than the record's, {origin:?}",
                table.name
            ));
        }
        let in_order = table.first_key <= table.last_key && table.first_sequence <= table.last_sequence;
        let number = table.properties.sequence_override();
        let is_of_number = |number| (number, number) == (table.first_sequence, table.last_sequence);
        // A staged copy has been part of another database.
        let is_new = status == TableStatus::Staged && table.copy_of().is_none();
        if !in_order
            || number.is_some_and(|number| !is_of_number(number) || is_new)
            || (is_new && (table.is_values() || !table.referred().is_empty()))
            || (table.level > LEVEL_MAX && !table.is_values())
            || u64::from(table.tail_bytes) > table.length
            || table.deletes > table.entries
        {
            return refuse(format!("table {:?} is described as what no table is", table.name));
        }
        if let Some(of) = table.source.filter(|of| !self.sources.contains_key(&of.source)) {
            return refuse(format!(
                "table {:?} lies under source {}, which is not named",
                table.name, of.source
            ));
        }
        if let Some(id) = table.cold().filter(|id| !self.cold.contains_key(id)) {
            return refuse(format!(
                "table {:?} lies in cold store {id:016x}, which is not named",
                table.name
            ));
        }
        let description = Arc::new(table.clone());
        // Staged, it is part of nothing yet.
        if status != TableStatus::Staged {
            self.enter(&description, origin)?;
        }
        self.live_keyspace(table.keyspace)?.named += 1;
        self.tables.insert(table.name, NamedTable { description, status });
        self.sort_in(table.name, status);
        self.count_of_source(table, 1);
        Ok(())
    }

    /// A table becomes part of the version.
    fn enter(&mut self, table: &Arc<TableDescription>, origin: Origin) -> Result<(), EditError> {
        let keyspace = self.live_keyspace(table.keyspace)?;
        if table.is_values() {
            if !keyspace.values.add(table) {
                return refuse(format!("value object {:?} has the identity of another", table.name));
            }
            return Ok(());
        }
        // A snapshot tells of tables that left the version before it tells of live ones.
        let lacks = keyspace.values.lacks(table).filter(|_| origin != Origin::Snapshot);
        if let Some(object) = lacks.filter(|_| !is_enabled(Mutant::ValuesObsoleteWhileReferred)) {
            return refuse(format!(
                "table {:?} refers to value object {object:#018x}, which is not live",
                table.name
            ));
        }
        keyspace.values.refer(table);
        let level = keyspace.levels.entry(table.level).or_default();
        level.0.insert(LevelKey::of(table), Arc::clone(table));
        Ok(())
    }

    /// A staged table enters the version: one that was made outside under the number given, a copy
    /// as it is.
    fn go_live(
        &mut self,
        (name, level, sequence): (TableName, u8, SequenceNumber),
        origin: Origin,
    ) -> Result<(), EditError> {
        let status = self.table_status(name)?;
        let Some(table) = self.tables.get(&name) else { return Ok(()) };
        let is_level = level <= LEVEL_MAX || table.description.is_values();
        if status != TableStatus::Staged || !is_level {
            return refuse(format!("table {name:?} is {status:?} and cannot enter level {level}"));
        }
        let staged = match table.description.copy_of() {
            Some(_) => (*table.description).clone(),
            None => table.description.at_sequence(sequence),
        };
        let live = Arc::new(TableDescription { level, ..staged });
        self.enter(&live, origin)?;
        self.tables.insert(name, NamedTable { description: live, status: TableStatus::Live });
        self.sort_in(name, TableStatus::Live);
        Ok(())
    }

    /// Counts a table that is named, or is so no more, for the source under which it lies.
    fn count_of_source(&mut self, table: &TableDescription, change: i64) {
        if let Some(of) = table.source
            && let Some(source) = Arc::make_mut(&mut self.sources).get_mut(&of.source)
        {
            source.named = source.named.saturating_add_signed(change);
            let bytes = i64::try_from(table.length).unwrap_or(i64::MAX);
            source.bytes = source.bytes.saturating_add_signed(change * bytes);
        }
    }

    /// Takes a live table out of its level.
    fn leave_level(&mut self, table: &TableDescription) -> Result<(), EditError> {
        let keyspace = self.live_keyspace(table.keyspace)?;
        if let Some(level) = keyspace.levels.get_mut(&table.level) {
            level.0.remove(&LevelKey::of(table));
            if level.is_empty() {
                keyspace.levels.remove(&table.level);
            }
        }
        Ok(())
    }

    fn leave_version(&mut self, name: TableName, origin: Origin) -> Result<(), EditError> {
        let Some(table) = self.tables.get(&name) else { return Ok(()) };
        let description = Arc::clone(&table.description);
        let values = &mut self.live_keyspace(description.keyspace)?.values;
        if description.is_values() {
            let needed = values.needed(description.identity);
            if needed.tables > 0 && origin != Origin::Snapshot {
                return refuse(format!("{} tables refer to value object {name:?}", needed.tables));
            }
            values.remove(description.identity);
        } else {
            let released = values.release(&description);
            // A snapshot says so by edits of their own.
            let released = if origin == Origin::Snapshot { Vec::new() } else { released };
            let left: Vec<_> = released.into_iter().filter_map(|object| values.remove(object)).collect();
            self.leave_level(&description)?;
            left.iter().for_each(|object| self.set_status(object.name, TableStatus::Obsolete));
        }
        self.set_status(name, TableStatus::Obsolete);
        Ok(())
    }

    fn move_table(&mut self, name: TableName, level: u8) -> Result<(), EditError> {
        let status = self.table_status(name)?;
        if status != TableStatus::Live || level > LEVEL_MAX {
            return refuse(format!("table {name:?} is {status:?} and cannot move to level {level}"));
        }
        let Some(table) = self.tables.get(&name) else { return Ok(()) };
        let old = Arc::clone(&table.description);
        if old.is_values() {
            return refuse(format!("value object {name:?} cannot move to level {level}"));
        }
        self.leave_level(&old)?;
        let new = Arc::new(TableDescription { level, ..(*old).clone() });
        let keyspace = self.live_keyspace(new.keyspace)?;
        keyspace.levels.entry(level).or_default().0.insert(LevelKey::of(&new), Arc::clone(&new));
        self.tables.insert(name, NamedTable { description: new, status: TableStatus::Live });
        Ok(())
    }

    fn unname_table(&mut self, name: TableName) -> Result<(), EditError> {
        let status = self.table_status(name)?;
        let uncondemned = is_enabled(Mutant::DeleteWithoutCondemning) && status == TableStatus::Obsolete;
        if status != TableStatus::Condemned && !uncondemned {
            return refuse(format!("table {name:?} is {status:?}: only a condemned one is un-named"));
        }
        self.unneeded.remove(&name);
        if let Some(table) = self.tables.remove(&name) {
            self.count_of_source(&table.description, -1);
            let id = table.description.keyspace;
            if let Some(keyspace) = self.keyspaces.get_mut(&id) {
                Arc::make_mut(keyspace).named -= 1;
            }
            self.forget_if_gone(id);
        }
        Ok(())
    }

    fn name_source(&mut self, source: &Source) -> Result<(), EditError> {
        if !self.keyspaces.is_empty() || self.sources.contains_key(&source.number) {
            return refuse(format!("source {} is named after the first keyspace, or twice", source.number));
        }
        Arc::make_mut(&mut self.sources)
            .insert(source.number, SourceState { source: source.clone(), named: 0, bytes: 0 });
        Ok(())
    }

    fn unname_source(&mut self, number: u32) -> Result<(), EditError> {
        match self.sources.get(&number) {
            Some(source) if source.named == 0 => {
                Arc::make_mut(&mut self.sources).remove(&number);
                Ok(())
            }
            Some(source) => refuse(format!("{} tables of source {number} are named", source.named)),
            None => refuse(format!("source {number} is not named")),
        }
    }

    /// The edits that build this state from nothing: what a snapshot holds.
    pub fn edits(&self) -> Vec<Edit> {
        let mut edits = Vec::with_capacity(self.tables.len() + 2 * self.unneeded.len() + 64);
        if let Some(database) = &self.database {
            let Database { id, log_identity, created_unix_seconds } = &**database;
            let (id, created_unix_seconds) = (*id, *created_unix_seconds);
            edits.push(Edit::DatabaseCreated {
                id,
                log_identity: log_identity.clone(),
                created_unix_seconds,
            });
        }
        if let Some(named) = &self.writer {
            edits.push(Edit::WriterNamed { epoch: named.epoch.0, writer: named.writer.clone() });
            edits.extend(named.closed.then_some(Edit::WriterClosed));
        }
        if self.times != Times::default() {
            edits.push(Edit::Time { times: self.times, is_set: false });
        }
        edits.extend(self.mark().map(|mark| Edit::Marked(Some(mark.clone()))));
        edits.extend(self.sources().cloned().map(Edit::SourceNamed));
        edits.extend(self.cold_stores().cloned().map(Edit::ColdStoreNamed));
        for (stream, samples) in &*self.ages {
            edits.extend(samples.iter().map(|aged| Edit::Aged { stream: *stream, aged: *aged }));
        }
        self.keyspace_edits(&mut edits);
        for (id, log) in &*self.logs {
            let (epoch, lane) = (id.epoch.0, id.lane);
            let (role, configuration) = (log.role, log.configuration.clone());
            edits.push(Edit::LogNamed { epoch, lane, role, configuration });
            edits.push(Edit::LogReplayPoint { epoch, lane, offset: log.replay_point.0 });
            if log.trimmed > 0 {
                edits.push(Edit::LogTrimmed { epoch, lane, entries: log.trimmed });
            }
            if let Some(sealed) = log.sealed {
                edits.push(Edit::LogSealed { epoch, lane, length: sealed.0 });
            }
        }
        edits.extend(
            self.streams
                .iter()
                .map(|(stream, sequence)| Edit::StreamReached { stream: *stream, sequence: *sequence }),
        );
        edits
    }

    /// Keyspaces and tables. A dropped keyspace is created, gets its tables and is dropped again
    /// before the next one is created, so that its name is free for that one, and its tables are
    /// obsolete.
    fn keyspace_edits(&self, edits: &mut Vec<Edit>) {
        let mut staged: BTreeMap<u32, Vec<&NamedTable>> = BTreeMap::new();
        for table in self.staged() {
            staged.entry(table.description.keyspace).or_default().push(table);
        }
        let mut left: BTreeMap<u32, Vec<&NamedTable>> = BTreeMap::new();
        for table in self.unneeded() {
            left.entry(table.description.keyspace).or_default().push(table);
        }
        for (id, keyspace) in self.keyspaces.iter() {
            edits.push(Edit::KeyspaceCreated {
                id: *id,
                name: keyspace.name.to_string(),
                stream: keyspace.stream,
                options: (*keyspace.options).clone(),
            });
            if keyspace.flushed > SequenceNumber::ZERO {
                edits.push(Edit::KeyspaceFlushed { id: *id, sequence: keyspace.flushed });
            }
            let left = left.remove(id).unwrap_or_default();
            edits.extend(left.iter().map(|table| Edit::TableAdded((*table.description).clone())));
            if keyspace.dropped {
                edits.push(Edit::KeyspaceDropped { id: *id });
            } else {
                edits.extend(left.iter().map(|table| Edit::TableObsolete { name: table.description.name }));
                edits.extend(keyspace.objects().map(|table| Edit::TableAdded((**table).clone())));
                let staged = staged.remove(id).unwrap_or_default();
                edits.extend(staged.iter().map(|table| Edit::TableStaged((*table.description).clone())));
            }
        }
        let condemned = self.unneeded().filter(|table| table.status == TableStatus::Condemned);
        edits.extend(condemned.map(|table| Edit::TableCondemned { name: table.description.name }));
    }
}

#[cfg(test)]
mod tests;
