//! The world of the model: a store of which nothing is certain, and processes that run the real
//! machines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, RecordKind, TableDescription, TableName, decode_record, record_hash};
use tombolo_format::pin::{Pin, decode_pin};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Incarnation};

use super::orphans::Orphans;
use crate::collection::machine::{self as collection, Collect, ListedPin, Machine as _, PutPin};
use crate::manifest::chain::append::Append;
use crate::manifest::chain::follow::Follow;
use crate::manifest::chain::load::Load;
use crate::manifest::chain::open::Open;
use crate::manifest::chain::truncate::Truncate;
use crate::manifest::chain::{Answer, Effect, Machine as _, PutAnswer, SnapshotName, Tip};

mod steps;

const INCARNATION: Incarnation = Incarnation(1);

/// What must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

fn violated<T>(what: impl Into<String>) -> std::result::Result<T, Violation> {
    Err(Violation(what.into()))
}

type Checked = std::result::Result<(), Violation>;

/// A name in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// A record.
    Slot(u64),
    /// A pin.
    Pin(u128),
    /// A heartbeat of a leased pin.
    Beat(u128),
    /// A table's object.
    Table(u64, u64),
}

impl From<TableName> for Name {
    fn from(name: TableName) -> Name {
        Name::Table(name.epoch, name.random)
    }
}

/// What a process does next, once the task before is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Open and claim.
    Open,
    /// Load and prove, as a reader does.
    Load,
    /// Bring the loaded state up to date, as a reader does.
    Follow,
    /// Append an edit.
    Edit,
    /// Write a snapshot, append the record that names it, and truncate below it.
    Snapshot,
    /// Put a table's object and name the table: the given number among this process's.
    Table(u64),
    /// Put a table's object without naming it: a job's output.
    Output(u64),
    /// Name a table whose object a job of an earlier epoch left, if the object is there.
    Install(TableName),
    /// Take a table out of the version.
    Obsolete(TableName),
    /// Delete what left the version.
    Collect,
    /// Pin a table, if it is named.
    Pin(TableName),
    /// The same with a lease, which has run out for lists of the pins before a heartbeat.
    Lease(TableName),
    /// Put a heartbeat of the leased pin, and prove that it is kept.
    Renew,
    /// Delete what no proven state names.
    Orphans,
}

/// What a pin is put or proven for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pinning {
    Lasting,
    Leased,
    Renewed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Activity {
    Idle,
    Open(Open),
    Load(Load),
    Follow(Follow),
    Append(Append),
    SnapshotRecord(Append, u64),
    Truncate(Truncate),
    PutTable(TableName, bool),
    FindOutput(TableName),
    Collect(Collect),
    CollectCommit(Collect, Append),
    /// Pins that are left to be deleted.
    DeletePins(Vec<u128>),
    Pin(PutPin, Pinning),
    PutBeat,
    Orphans(Orphans),
    Ended,
}

/// What a process waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Pending {
    Nothing,
    Chain(Effect),
    Collection(collection::Effect),
    /// An object without content.
    Put(Name),
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    tasks: Vec<Task>,
    next_task: usize,
    tip: Option<Tip>,
    epoch: u64,
    activity: Activity,
    pending: Pending,
    /// The leased pin that this process put and proved.
    leased: Option<Pin>,
    /// Of a read of several slots: the slots read so far.
    read: Vec<Option<Bytes>>,
    /// Of a list that is not atomic (a mutant): everything above was passed.
    passed: Option<u64>,
    /// Length of the true chain when the load or claim under way made its first request.
    begun: Option<u64>,
    randoms: u64,
}

impl Process {
    /// A process with these tasks.
    pub fn new(tasks: &[Task]) -> Process {
        Process {
            tasks: tasks.to_vec(),
            next_task: 0,
            tip: None,
            epoch: 0,
            activity: Activity::Idle,
            pending: Pending::Nothing,
            leased: None,
            read: Vec::new(),
            passed: None,
            begun: None,
            randoms: 0,
        }
    }
}

/// What may happen.
#[derive(Clone, Debug)]
pub enum Move {
    /// A process's request is performed and answered.
    Perform(usize),
    /// A process's put or delete is sent, and may land later; a put's outcome is unknown to it, a
    /// delete is taken for done.
    Lose(usize),
    /// A process's put is refused: it never lands.
    Refuse(usize),
    /// A put that was sent lands.
    Land(Name, Bytes),
    /// A delete that was sent lands.
    Delete(Name),
}

impl fmt::Display for Move {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Move::Perform(process) => write!(formatter, "process {process} goes on"),
            Move::Lose(process) => write!(formatter, "process {process} goes on, its request is under way"),
            Move::Refuse(process) => write!(formatter, "process {process} goes on, its put is refused"),
            Move::Land(name, _) => write!(formatter, "a put of {name:?} lands"),
            Move::Delete(name) => write!(formatter, "a delete of {name:?} lands"),
        }
    }
}

/// Everything.
#[derive(Clone, Debug)]
pub struct World {
    held: BTreeMap<Name, Bytes>,
    /// Every put ever sent: each may land, again too, while its name is free.
    puts: BTreeSet<(Name, Bytes)>,
    /// Every delete ever sent.
    deletes: BTreeSet<Name>,
    snapshots: BTreeMap<(u64, u64), Arc<Vec<Edit>>>,
    processes: Vec<Process>,
    /// Whether the store refuses puts now and then.
    refusals: bool,
    /// The true chain: its end, and the hash of each record.
    truth: Tip,
    hashes: Vec<u128>,
    /// Hashes of records that were reported to have failed.
    failed: BTreeSet<u128>,
    /// Tables of effective pins.
    pinned: BTreeSet<TableName>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.held.hash(hasher);
        self.puts.hash(hasher);
        self.deletes.hash(hasher);
        self.processes.hash(hasher);
        self.hashes.hash(hasher);
        self.failed.hash(hasher);
        self.pinned.hash(hasher);
    }
}

fn description(name: TableName) -> TableDescription {
    TableDescription {
        name,
        offset: 0,
        length: 1,
        identity: 0,
        keyspace: 0,
        level: 0,
        first_key: Bytes::new(),
        last_key: Bytes::new(),
        first_sequence: SequenceNumber(0),
        last_sequence: SequenceNumber(0),
        entries: 0,
        deletes: 0,
        tail_bytes: 0,
        oldest_unix_seconds: 0,
        features: 0,
        properties: tombolo_format::property::PropertyList::default(),
        source: None,
    }
}

impl World {
    /// A world with these processes, of which the first has done its first `done` tasks without
    /// disturbance.
    pub fn new(processes: Vec<Process>, done: usize) -> World {
        let mut world = World {
            held: BTreeMap::new(),
            puts: BTreeSet::new(),
            deletes: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            processes,
            refusals: false,
            truth: Tip::empty(INCARNATION),
            hashes: Vec::new(),
            failed: BTreeSet::new(),
            pinned: BTreeSet::new(),
        };
        for process in 0..world.processes.len() {
            world.next_task(process).expect("nothing is wrong before the first step");
            while process == 0
                && world.processes[0].next_task <= done
                && world.processes[0].pending != Pending::Nothing
            {
                world.apply(&Move::Perform(0)).expect("nothing is wrong in an undisturbed history");
            }
        }
        world
    }

    /// The same world, with a store that refuses puts now and then.
    pub fn with_refusals(self) -> World {
        World { refusals: true, ..self }
    }

    /// Everything that may happen now.
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            if process.pending == Pending::Nothing {
                continue;
            }
            moves.push(Move::Perform(index));
            if process.pending.is_change() {
                moves.push(Move::Lose(index));
                if self.refusals && matches!(process.pending, Pending::Chain(Effect::PutRecord(..))) {
                    moves.push(Move::Refuse(index));
                }
            }
        }
        let free = self.puts.iter().filter(|(name, _)| !self.held.contains_key(name));
        moves.extend(free.map(|(name, bytes)| Move::Land(*name, bytes.clone())));
        moves.extend(
            self.deletes.iter().filter(|name| self.held.contains_key(name)).map(|name| Move::Delete(*name)),
        );
        moves
    }

    /// Makes something happen.
    pub fn apply(&mut self, choice: &Move) -> Checked {
        match choice {
            Move::Land(name, bytes) => self.land(*name, bytes)?,
            Move::Delete(name) => {
                self.held.remove(name);
            }
            Move::Perform(process) => self.perform(*process, true)?,
            Move::Lose(process) => self.perform(*process, false)?,
            Move::Refuse(process) => {
                let error = Error::new(ErrorKind::Retry, "refused");
                self.answer_chain(*process, Answer::Put(PutAnswer::Refused(error)))?;
            }
        }
        self.check()
    }

    fn check(&self) -> Checked {
        for table in self.truth.state.tables() {
            let name = table.description.name;
            if !self.held.contains_key(&Name::from(name)) {
                return violated(format!("table {name:?} is named, and its object is gone"));
            }
        }
        match self.pinned.iter().find(|name| !self.held.contains_key(&Name::from(**name))) {
            Some(name) => violated(format!("table {name:?} is pinned, and its object is gone")),
            None => Ok(()),
        }
    }

    /// A put lands on a free name.
    fn land(&mut self, name: Name, bytes: &Bytes) -> Checked {
        self.held.insert(name, bytes.clone());
        let Name::Slot(slot) = name else { return Ok(()) };
        if slot <= self.truth.slot {
            return Ok(());
        }
        if slot > self.truth.slot + 1 {
            return violated(format!("record {slot} is put after record {}", self.truth.slot));
        }
        let record = decode_record(bytes).expect("the model damages nothing");
        let epoch = if matches!(record.kind, RecordKind::Claim(_)) { slot } else { self.truth.epoch().0 };
        if record.epoch != epoch {
            return violated(format!(
                "a record of epoch {} in slot {slot}, where epoch {epoch} writes",
                record.epoch
            ));
        }
        let hash = record_hash(bytes);
        if self.failed.contains(&hash) {
            return violated(format!(
                "the edit in slot {slot} took effect after it was reported to have failed"
            ));
        }
        match self.truth.follow(bytes) {
            Ok(tip) => self.truth = tip,
            Err(error) => return violated(format!("record {slot} does not follow the chain: {error}")),
        }
        self.hashes.push(hash);
        Ok(())
    }

    fn put(
        &mut self,
        name: Name,
        bytes: &Bytes,
        answered: bool,
    ) -> std::result::Result<PutAnswer, Violation> {
        self.puts.insert((name, bytes.clone()));
        if !answered {
            return Ok(PutAnswer::Unknown);
        }
        if self.held.contains_key(&name) {
            return Ok(PutAnswer::Exists);
        }
        self.land(name, bytes)?;
        Ok(PutAnswer::Created)
    }

    fn delete(&mut self, name: Name, answered: bool) {
        self.deletes.insert(name);
        if answered {
            self.held.remove(&name);
        }
    }

    fn newest(&self) -> Option<u64> {
        self.held
            .keys()
            .filter_map(|name| if let Name::Slot(slot) = name { Some(*slot) } else { None })
            .next_back()
    }

    /// A list of one name. The mutant scans from the newest on, and takes two moments for it.
    fn list(&mut self, process: usize) -> Option<Option<u64>> {
        let newest = self.newest();
        let length = self.truth.slot;
        let state = &mut self.processes[process];
        state.begun.get_or_insert(length);
        if !is_enabled(Mutant::ManifestNewestFirstScan) {
            return Some(newest);
        }
        match state.passed.take() {
            None => {
                state.passed = Some(newest.unwrap_or(0));
                None
            }
            Some(passed) => Some((1..=passed).rev().find(|slot| self.held.contains_key(&Name::Slot(*slot)))),
        }
    }

    /// Performs a chain effect; `None` while it needs more moments.
    fn chain(
        &mut self,
        process: usize,
        effect: &Effect,
        answered: bool,
    ) -> std::result::Result<Option<Answer>, Violation> {
        Ok(Some(match effect {
            Effect::NewestIncarnation => Answer::Newest(Some(INCARNATION.0)),
            Effect::PutIncarnation(_) => Answer::Put(PutAnswer::Exists),
            Effect::NewestRecord(_) => match self.list(process) {
                Some(newest) => Answer::Newest(newest),
                None => return Ok(None),
            },
            Effect::ReadRecords(_, slots) => {
                let done = self.processes[process].read.len() as u64;
                let bytes = self.held.get(&Name::Slot(slots.start() + done)).cloned();
                self.processes[process].read.push(bytes);
                if slots.start() + done < *slots.end() {
                    return Ok(None);
                }
                Answer::Records(std::mem::take(&mut self.processes[process].read))
            }
            Effect::ReadSnapshot(_, SnapshotName { slot, random, .. }) => {
                Answer::Snapshot(self.snapshots.get(&(*slot, *random)).map(|edits| (**edits).clone()))
            }
            Effect::PutRecord(_, slot, bytes) => Answer::Put(self.put(Name::Slot(*slot), bytes, answered)?),
            Effect::DeleteRecord(_, slot) => {
                self.delete(Name::Slot(*slot), answered);
                Answer::Deleted
            }
            Effect::Random => {
                let state = &mut self.processes[process];
                state.randoms += 1;
                Answer::Random(((process as u128 + 1) << 64) | u128::from(state.randoms))
            }
        }))
    }

    fn collection(
        &mut self,
        process: usize,
        effect: &collection::Effect,
        answered: bool,
    ) -> std::result::Result<Option<collection::Answer>, Violation> {
        Ok(Some(match effect {
            collection::Effect::Chain(effect) => {
                return Ok(self.chain(process, effect, answered)?.map(collection::Answer::Chain));
            }
            collection::Effect::ListPins => {
                let pins = self.held.iter().filter(|(name, _)| matches!(name, Name::Pin(_)));
                let pins = pins.map(|(_, bytes)| decode_pin(bytes).expect("the model damages nothing"));
                let state = self.processes[process].tip.as_ref().map(|tip| &tip.state);
                let is_named = |name: &TableName| state.is_some_and(|state| state.table(*name).is_some());
                let listed = pins.map(|pin| ListedPin {
                    id: pin.id,
                    expired: pin.lease_ms > 0 && !self.held.contains_key(&Name::Beat(pin.id)),
                    are_all_named: pin.tables.iter().all(is_named),
                    tables: pin.tables,
                });
                collection::Answer::Pins(listed.collect())
            }
            collection::Effect::PutPin(id, bytes) => {
                collection::Answer::Put(self.put(Name::Pin(*id), bytes, answered)?)
            }
            collection::Effect::ReadPin(id) => {
                collection::Answer::Bytes(self.held.get(&Name::Pin(*id)).cloned())
            }
            collection::Effect::DeletePin(id) => {
                self.delete(Name::Pin(*id), answered);
                collection::Answer::Deleted
            }
            collection::Effect::ListTables(_) => {
                let table = |name: &Name| match name {
                    Name::Table(epoch, random) => Some(TableName { epoch: *epoch, random: *random }),
                    _ => None,
                };
                collection::Answer::Tables(self.held.keys().filter_map(table).collect())
            }
            collection::Effect::DeleteTable(name) => {
                self.delete(Name::from(*name), answered);
                collection::Answer::Deleted
            }
            collection::Effect::Commit(_) => unreachable!("commits are appended"),
        }))
    }

    /// Performs a process's pending effect and steps its machine.
    fn perform(&mut self, process: usize, answered: bool) -> Checked {
        match self.processes[process].pending.clone() {
            Pending::Nothing => Ok(()),
            Pending::Put(name) => {
                let answer = self.put(name, &Bytes::new(), answered)?;
                self.answer_collection(process, collection::Answer::Put(answer))
            }
            Pending::Chain(effect) => match self.chain(process, &effect, answered)? {
                Some(answer) => self.answer_chain(process, answer),
                None => Ok(()),
            },
            Pending::Collection(effect) => match self.collection(process, &effect, answered)? {
                Some(answer) => self.answer_collection(process, answer),
                None => Ok(()),
            },
        }
    }

    /// Notes what a machine wants next. Randomness, and which incarnation it is, are no steps of
    /// their own.
    fn want(&mut self, process: usize, effect: Effect) -> Checked {
        if matches!(effect, Effect::Random | Effect::NewestIncarnation) {
            return match self.chain(process, &effect, true)? {
                Some(answer) => self.answer_chain(process, answer),
                None => Ok(()),
            };
        }
        self.processes[process].pending = Pending::Chain(effect);
        Ok(())
    }

    fn take(&mut self, process: usize) -> Activity {
        let state = &mut self.processes[process];
        state.pending = Pending::Nothing;
        std::mem::replace(&mut state.activity, Activity::Idle)
    }

    fn answer_chain(&mut self, process: usize, answer: Answer) -> Checked {
        match self.take(process) {
            Activity::Open(mut open) => {
                let step = open.step(answer);
                self.opening(process, open, step)
            }
            Activity::Load(mut load) => {
                let step = load.step(answer);
                self.loading(process, load, step)
            }
            Activity::Follow(mut follow) => {
                let step = follow.step(answer);
                self.following(process, follow, step)
            }
            Activity::Append(mut append) => {
                let step = append.step(answer);
                self.appending(process, append, step)
            }
            Activity::SnapshotRecord(mut append, slot) => {
                let step = append.step(answer);
                self.naming_snapshot(process, append, slot, step)
            }
            Activity::Truncate(mut truncate) => {
                let step = truncate.step(answer);
                self.truncating(process, truncate, step)
            }
            Activity::CollectCommit(collect, mut append) => {
                let step = append.step(answer);
                self.committing(process, collect, append, step)
            }
            other => unreachable!("{other:?} asked for nothing of the chain"),
        }
    }

    fn answer_collection(&mut self, process: usize, answer: collection::Answer) -> Checked {
        match self.take(process) {
            Activity::Collect(mut collect) => {
                let step = collect.step(answer);
                self.collecting(process, collect, step)
            }
            Activity::DeletePins(left) => self.delete_pins(process, left),
            Activity::Pin(mut pin, what) => {
                let step = pin.step(answer);
                self.pinning(process, pin, what, step)
            }
            Activity::PutBeat => match answer {
                // It is tried again with the next number, of which nothing here depends.
                collection::Answer::Put(PutAnswer::Unknown) => self.next_task(process),
                _ => self.renew(process),
            },
            Activity::Orphans(mut orphans) => {
                let step = orphans.step(answer);
                self.finding_orphans(process, orphans, step)
            }
            Activity::PutTable(name, named) => match answer {
                collection::Answer::Put(PutAnswer::Unknown) => self.put_table(process, name, named),
                _ if named => self.append(process, vec![Edit::TableAdded(description(name))]),
                _ => self.next_task(process),
            },
            Activity::FindOutput(name) => match answer {
                collection::Answer::Tables(tables) if tables.contains(&name) => {
                    self.append(process, vec![Edit::TableAdded(description(name))])
                }
                _ => self.next_task(process),
            },
            other => unreachable!("{other:?} asked for nothing of collection"),
        }
    }

    fn end(&mut self, process: usize) -> Checked {
        self.processes[process].activity = Activity::Ended;
        Ok(())
    }

    /// A machine ended with an error: in a world without damage there is no reason for one but a
    /// refusal.
    fn failed(&mut self, process: usize, error: &Error) -> Checked {
        if self.refusals && error.kind() == ErrorKind::Retry {
            return self.end(process);
        }
        violated(format!("process {process} fails: {error}"))
    }

    /// A process believes in this tip.
    fn believe(&mut self, process: usize, what: &str, tip: &Tip) -> Checked {
        let index = usize::try_from(tip.slot).unwrap_or(usize::MAX);
        if index == 0 || self.hashes.get(index - 1) != Some(&tip.hash) {
            return violated(format!("process {process}: {what} in slot {} is not in the chain", tip.slot));
        }
        if self.processes[process].begun.take().is_some_and(|begun| tip.slot < begun) {
            return violated(format!(
                "process {process}: {what} in slot {} lacks what was in the chain when it began",
                tip.slot
            ));
        }
        Ok(())
    }
}

impl Pending {
    /// Whether it is a put or a delete.
    fn is_change(&self) -> bool {
        use collection::Effect as Other;
        match self {
            Pending::Nothing => false,
            Pending::Put(_) => true,
            Pending::Chain(effect) | Pending::Collection(Other::Chain(effect)) => {
                matches!(effect, Effect::PutRecord(..) | Effect::DeleteRecord(..))
            }
            Pending::Collection(effect) => {
                matches!(effect, Other::PutPin(..) | Other::DeletePin(_) | Other::DeleteTable(_))
            }
        }
    }
}
