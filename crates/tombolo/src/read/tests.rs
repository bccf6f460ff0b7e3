//! Which version wins, and which ones flush and compaction keep. Cases are text; `UPDATE=1` writes
//! the results into the file.
//!
//! `snapshots N@T …` are moments that somebody looks from, beside now, and judges what has expired
//! by a time; `time T` is that of now, `settled T` what may be destroyed; `KEY NUMBER until T` is a
//! put that ends then, `KEY NUMBER merge from T until T` an operand that was written and ends then.
//! `KEY NUMBER put`, `delete`, `single-delete` or `merge` is an entry, `KEY NUMBER kind N` one of a
//! kind that no version has;
//! `--` goes on to an older source, `below` to what lies below all that is compacted.
//! `operator NAME` is that of the keyspace: `add_u64`, `horner`, which is full and takes the
//! order into account,
//! `failing`, or one that is not there. `run` reads from each moment, and says what a flush of each
//! source keeps, and a compaction of all but the tables below.
//!
//! A read is each way to read: get, multi-get, a cursor forward and backward; of memtables, and of
//! tables with the same entries. All must agree with each other and with the plain rule, and reads
//! after flush and compaction with those before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Bound;

use parking_lot::Mutex;
use proptest::prelude::*;
use tombolo_env::simulated::{Process, World};
use tombolo_format::expiry::{
    Expiry, OperandTimes, join_expiring, join_operand, split_expiring, split_operand,
};
use tombolo_format::key::{EntryKind, InternalKey, Trailer, kind_name};
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, ObjectStore, Purpose};

use super::*;
use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::engine::{Catalog, MAIN_STREAM, Sealed};
use crate::filter::Filters;
use crate::manifest::{Places, State};
use crate::memtable::{Memtable, MemtableWriter};
use crate::operator::{AssociativeOperator, FullOperator, Operator, OperatorError, OperatorName, Operators};
use crate::options::KeyspaceOptions;
use crate::resolve::{Moments, Retention, Taken};
use crate::table::{KeyRange, Step};
use crate::version::{Output, TableWriter, Tables, Version, Versions};

const KEYSPACE: u32 = 1;
const NOW: u64 = SequenceNumber::MAX.0;

/// A version of a key. Its value is its number, until it is folded with others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    key: String,
    trailer: Trailer,
    value: Bytes,
}

impl Written {
    fn new(key: String, trailer: Trailer) -> Written {
        let value = Bytes::copy_from_slice(&trailer.sequence().0.to_le_bytes());
        Written {
            key,
            trailer,
            value: if trailer.kind().is_some_and(EntryKind::is_delete) { Bytes::new() } else { value },
        }
    }

    /// A put that ends.
    fn until(key: String, sequence: u64, expires_ms: u64) -> Written {
        let trailer = Trailer::new(SequenceNumber(sequence), EntryKind::ExpiringPut);
        let value = join_expiring(&sequence.to_le_bytes(), expires_ms).into();
        Written { key, trailer, value }
    }

    /// An operand that ends.
    fn operand_until(key: String, sequence: u64, written_ms: u64, expires_ms: u64) -> Written {
        let trailer = Trailer::new(SequenceNumber(sequence), EntryKind::ExpiringMerge);
        let times = OperandTimes { written_ms, expires_ms };
        Written { key, trailer, value: join_operand(&sequence.to_le_bytes(), times).into() }
    }

    /// When it ends, if it does.
    fn ends(&self) -> Option<Expiry> {
        Expiry::of_entry(self.trailer.kind()?, &self.value).expect("sound")
    }

    /// As results have it.
    fn shown(&self) -> String {
        let name = format!("{}{}", self.key, self.number());
        match self.trailer.kind() {
            Some(EntryKind::Put | EntryKind::SeparatedPut) if number(&self.value) == self.number() => name,
            Some(EntryKind::Put | EntryKind::SeparatedPut) => format!("{name}={}", number(&self.value)),
            Some(EntryKind::Merge) => format!("{name}+{}", number(&self.value)),
            Some(EntryKind::MergeList) => format!("{name}+{}", listed(&self.value)),
            Some(EntryKind::ExpiringMerge | EntryKind::ExpiringMergeList) => {
                let (operand, times) = split_operand(&self.value).expect("times");
                let is_one = self.trailer.kind() == Some(EntryKind::ExpiringMerge);
                let operand = if is_one { number(operand).to_string() } else { listed(operand) };
                format!("{name}+{operand}~{}-{}", times.written_ms, times.expires_ms)
            }
            Some(EntryKind::ExpiringPut) if self.ended_number() == self.number() => format!("{name}~"),
            Some(EntryKind::ExpiringPut) => format!("{name}={}~", self.ended_number()),
            Some(EntryKind::Delete) => format!("{name}!"),
            Some(EntryKind::SingleDelete) => format!("{name}!1"),
            None | Some(EntryKind::RangeDelete | EntryKind::SeparatedExpiringPut) => format!("{name}?"),
        }
    }

    /// The value of a put that ends.
    fn ended_number(&self) -> u64 {
        number(split_expiring(&self.value).expect("a value that ends").0)
    }

    fn number(&self) -> u64 {
        self.trailer.sequence().0
    }

    fn internal(&self) -> InternalKey<'_> {
        InternalKey::new(self.key.as_bytes(), self.trailer)
    }
}

/// What a key has at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Value(u64),
    Absent,
    /// Nobody knows the kind, of which this is said.
    Refused(String),
}

/// What all keys have at a moment; of those that have no value nothing.
type Values = BTreeMap<String, u64>;

/// The values; `None` when something is refused.
fn values(found: &BTreeMap<String, Found>) -> Option<Values> {
    let mut values = Values::new();
    for (key, found) in found {
        match found {
            Found::Value(number) => drop(values.insert(key.clone(), *number)),
            Found::Absent => {}
            Found::Refused(_) => return None,
        }
    }
    Some(values)
}

/// What a refusal says of the kind; it names a place, and says what to do.
fn refused(error: &Error) -> String {
    let text = error.to_string();
    if let Some(start) = text.find("merge operator ") {
        let name = text[start + "merge operator ".len()..].trim_start_matches('"');
        let end = name.find(['@', '"']).unwrap_or(name.len());
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
        return refused_operator(&name[..end]);
    }
    assert!(error.kind() == ErrorKind::Unsupported && text.contains("use the version"), "{text}");
    assert!(text.contains("a memtable") || text.contains("a table"), "no place: {text}");
    let start = text.find("kind ").expect("the kind is named");
    text[start..].split(',').next().unwrap_or_default().to_owned()
}

/// A full operator: what it makes depends on the order.
struct Horner;

fn horner(base: Option<u64>, operands: impl Iterator<Item = u64>) -> u64 {
    operands.fold(base.unwrap_or(0), |value, operand| (value * 31 + operand) % 1_000_007)
}

impl FullOperator for Horner {
    fn fold(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        value: &mut Vec<u8>,
    ) -> std::result::Result<bool, OperatorError> {
        let folded = horner(base.map(number), operands.iter().map(|operand| number(operand)));
        value.extend_from_slice(&folded.to_le_bytes());
        Ok(true)
    }
}

/// Fails or panics.
struct Failing;

impl AssociativeOperator for Failing {
    fn join(&self, _: &[u8], _: &mut Vec<u8>, newer: &[u8]) -> std::result::Result<(), OperatorError> {
        Err(format!("{} is too much", number(newer)).into())
    }

    fn is_nothing(&self, _: &[u8]) -> bool {
        panic!("a bug of the operator")
    }
}

fn refused_operator(operator: &str) -> String {
    format!("operator {operator}")
}

fn listed(list: &[u8]) -> String {
    let operands = tombolo_format::operands::operands(list).expect("a list");
    let numbers: Vec<_> = operands.iter().map(|operand| number(operand).to_string()).collect();
    numbers.join("+")
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("a number"))
}

/// Entries by source, newest first, and what lies below them.
#[derive(Clone, Debug)]
struct Case {
    /// With the times by which they judge.
    snapshots: BTreeMap<u64, u64>,
    /// The time by which now is judged.
    time: u64,
    settled: u64,
    operator: &'static str,
    sources: Vec<Vec<Written>>,
    below: Vec<Written>,
    is_below: bool,
}

impl Case {
    fn new() -> Case {
        Case {
            snapshots: BTreeMap::new(),
            time: 0,
            settled: 0,
            operator: "",
            sources: vec![Vec::new()],
            below: Vec::new(),
            is_below: false,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Written> {
        self.sources.iter().flatten().chain(&self.below)
    }

    fn keys(&self) -> BTreeSet<String> {
        self.all().map(|written| written.key.clone()).collect()
    }

    fn moments(&self) -> impl Iterator<Item = (u64, u64)> {
        self.snapshots.iter().map(|(number, time)| (*number, *time)).chain([(NOW, self.time)])
    }

    fn line(&mut self, bench: &Bench, line: &str, out: &mut String) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["snapshots", ref numbers @ ..] => {
                let snapshot = |text: &&str| {
                    let (number, time) = text.split_once('@').unwrap_or((text, "0"));
                    (number.parse().unwrap(), time.parse().unwrap())
                };
                self.snapshots = numbers.iter().map(snapshot).collect();
            }
            ["operator", name] => {
                let names = ["add_u64", "horner", "failing", "missing"];
                self.operator = names.into_iter().find(|known| *known == name).expect("a name");
            }
            ["time", time] => self.time = time.parse().unwrap(),
            ["settled", settled] => self.settled = settled.parse().unwrap(),
            ["--"] => self.sources.push(Vec::new()),
            ["below"] => self.is_below = true,
            ["run"] => self.run(bench, out),
            [key, number, "until", end] => {
                let source = if self.is_below { &mut self.below } else { self.sources.last_mut().unwrap() };
                source.push(Written::until(key.to_owned(), number.parse().unwrap(), end.parse().unwrap()));
            }
            [key, number, "merge", "from", written, "until", end] => {
                let source = if self.is_below { &mut self.below } else { self.sources.last_mut().unwrap() };
                let (number, written, end) =
                    (number.parse().unwrap(), written.parse().unwrap(), end.parse().unwrap());
                source.push(Written::operand_until(key.to_owned(), number, written, end));
            }
            [key, number, ref kind @ ..] => {
                let kind = match kind {
                    ["put"] => EntryKind::Put as u8,
                    ["delete"] => EntryKind::Delete as u8,
                    ["single-delete"] => EntryKind::SingleDelete as u8,
                    ["merge"] => EntryKind::Merge as u8,
                    ["kind", byte] => byte.parse().unwrap(),
                    _ => panic!("{line:?}"),
                };
                let trailer = Trailer(number.parse::<u64>().unwrap() << 8 | u64::from(kind));
                let source = if self.is_below { &mut self.below } else { self.sources.last_mut().unwrap() };
                source.push(Written::new(key.to_owned(), trailer));
            }
            _ => panic!("{line:?}"),
        }
    }

    /// The plain rule: the newest entry of a key that the moment sees, with those below it while
    /// they are operands.
    fn plain(&self, key: &str, moment: u64, time: u64) -> Found {
        let mut seen: Vec<_> =
            self.all().filter(|written| written.key == key && written.number() <= moment).collect();
        seen.sort_by_key(|written| std::cmp::Reverse(written.number()));
        let mut operands: Vec<u64> = Vec::new();
        let mut base = None;
        // What ended by then does not count.
        let mut time = time;
        for written in seen {
            if written.ends().is_some_and(|ends| ends.latest_ms <= time) {
                break;
            }
            match written.trailer.kind() {
                Some(EntryKind::Put | EntryKind::SeparatedPut) => base = Some(number(&written.value)),
                Some(EntryKind::Delete | EntryKind::SingleDelete) => {}
                Some(EntryKind::ExpiringPut) => {
                    base = Some(written.ended_number());
                }
                Some(EntryKind::ExpiringMerge | EntryKind::ExpiringMergeList) => {
                    let (stored, times) = split_operand(&written.value).expect("times");
                    time = times.written_ms;
                    if written.trailer.kind() == Some(EntryKind::ExpiringMerge) {
                        operands.push(number(stored));
                    } else {
                        let list = tombolo_format::operands::operands(stored).expect("a list");
                        operands.extend(list.iter().rev().map(|operand| number(operand)));
                    }
                    continue;
                }
                Some(EntryKind::Merge) => {
                    operands.push(number(&written.value));
                    continue;
                }
                Some(EntryKind::MergeList) => {
                    let list = tombolo_format::operands::operands(&written.value).expect("a list");
                    operands.extend(list.iter().rev().map(|operand| number(operand)));
                    continue;
                }
                None | Some(EntryKind::RangeDelete | EntryKind::SeparatedExpiringPut) => {
                    return Found::Refused(format!("kind {}", kind_name(written.trailer.kind_byte())));
                }
            }
            break;
        }
        if operands.is_empty() {
            return base.map_or(Found::Absent, Found::Value);
        }
        operands.reverse();
        match self.operator {
            "add_u64" => Found::Value(operands.iter().sum::<u64>() + base.unwrap_or(0)),
            "horner" => Found::Value(horner(base, operands.into_iter())),
            _ => Found::Refused(refused_operator(self.operator)),
        }
    }

    fn keyspace(&self) -> Arc<KeyspaceInfo> {
        let operator = (!self.operator.is_empty()).then(|| OperatorName::parse(self.operator).unwrap());
        let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
        let mut operators = Operators::default();
        operators.insert(OperatorName::parse("horner").unwrap(), Operator::full(Horner));
        operators.insert(OperatorName::parse("failing").unwrap(), Operator::associative(Failing));
        let keyspace = KeyspaceInfo::new(KEYSPACE, "k", options, 0);
        Catalog::new(operators, Filters::default()).insert(&keyspace);
        keyspace
    }

    /// What each of `keys` has at each moment, read in every way.
    fn reads(&self, bench: &Bench, keys: &BTreeSet<String>) -> BTreeMap<u64, BTreeMap<String, Found>> {
        let mut views = vec![("memtables", self.in_memtables())];
        // Nobody can write a table with what nobody knows.
        if self.all().all(|written| written.trailer.kind().is_some()) {
            views.push(("tables", bench.in_tables(self)));
            views.push(("both", bench.in_both(self)));
        }
        let keyspace = self.keyspace();
        let mut reads = BTreeMap::new();
        for (moment, time) in self.moments() {
            let found = keys.iter().map(|key| (key.clone(), self.plain(key, moment, time))).collect();
            for (place, view) in &views {
                let what = format!("{place} of {self:?} at {moment}");
                bench.read(view, &keyspace, (SequenceNumber(moment), time), &found, &what);
            }
            reads.insert(moment, found);
        }
        reads
    }

    /// Reads between the record of the flushes and their end, when somebody else shows a view.
    fn read_in_flight(
        &self,
        bench: &Bench,
        flushed: &Case,
        expected: &BTreeMap<u64, BTreeMap<String, Found>>,
    ) {
        let last = |written: &Vec<Written>| written.iter().map(Written::number).max().unwrap_or(0);
        let mut edits = bench.tables_of(flushed);
        let sequence = SequenceNumber(self.sources.iter().map(last).max().unwrap_or(0));
        edits.push(Edit::StreamReached { stream: MAIN_STREAM, sequence });
        let state = State::from_snapshot(1, Epoch(1), &edits).expect("a sound state");
        let waiting = self.sources.iter().map(|written| sealed(memtable(written), last(written))).collect();
        let version = Arc::new(Version::default());
        let before =
            View { active: memtable(&[]), waiting: Vec::new(), version, kept_by: None, generation: 0 };
        let view = Arc::new(before.with_tables(&bench.versions, &state, waiting));
        for (moment, time) in self.moments() {
            let what = format!("flushes of {self:?} in flight, at {moment}");
            bench.read(&view, &self.keyspace(), (SequenceNumber(moment), time), &expected[&moment], &what);
        }
    }

    fn in_memtables(&self) -> Arc<View> {
        let mut memtables = self.sources.iter().chain([&self.below]).map(|written| memtable(written));
        let active = memtables.next().expect("a source");
        let waiting = memtables.map(|memtable| sealed(memtable, 0)).collect();
        Arc::new(View {
            active,
            waiting,
            version: Arc::new(Version::default()),
            kept_by: None,
            generation: 0,
        })
    }

    /// The entries that are kept: with those that lie below, or where nothing is known of them.
    fn kept(&self, mut written: Vec<Written>, below: Option<&[Written]>) -> Result<Vec<Written>> {
        written.sort_by(|one, other| one.internal().cmp(&other.internal()));
        let snapshots = self.snapshots.iter().map(|(number, time)| (SequenceNumber(*number), *time));
        let mut moments = Moments { snapshots: snapshots.collect(), settled_ms: self.settled };
        let others = self.all().filter(|other| written.iter().all(|here| here != *other));
        moments.spare_operands(others.map(Written::ends));
        let mut retention = Retention::new(moments, self.keyspace().judge());
        let mut kept = Vec::new();
        let is_bottom =
            |key: &[u8]| below.is_some_and(|below| below.iter().all(|below| below.key.as_bytes() != key));
        for written in written.into_iter().map(Some).chain([None]) {
            let next = written.as_ref().map(|written| written.key.as_bytes());
            let is_due = |written: &Written| retention.is_due(written.key.as_bytes(), written.trailer);
            if retention.holds() && written.as_ref().is_none_or(is_due) {
                let released = retention.release(next, is_bottom);
                let key = String::from_utf8(retention.key().to_vec()).unwrap();
                kept.extend(released.into_iter().map(|(trailer, value)| Written {
                    key: key.clone(),
                    trailer,
                    value,
                }));
            }
            let Some(written) = written else { break };
            let value = || written.value.clone();
            let taken = retention.take(written.key.as_bytes(), written.trailer, value, is_bottom);
            if taken.map_err(|unresolved| unresolved.at("a table"))? == Taken::Kept {
                kept.push(written);
            }
        }
        let has_failed = retention.take_trouble().is_some();
        assert!(!has_failed || self.operator == "failing");
        Ok(kept)
    }

    fn flushed(&self) -> Result<Case> {
        let sources: Result<_> = self.sources.iter().map(|source| self.kept(source.clone(), None)).collect();
        Ok(Case { sources: sources?, ..self.clone() })
    }

    fn compacted(&self) -> Result<Case> {
        let all = self.sources.iter().flatten().cloned().collect();
        Ok(Case { sources: vec![self.kept(all, Some(&self.below))?], ..self.clone() })
    }

    /// Reads, flushes and compacts: nobody sees a difference. Says what was read, and what was
    /// kept.
    fn run(&self, bench: &Bench, out: &mut String) {
        let keys = self.keys();
        let before = self.reads(bench, &keys);
        for (moment, found) in &before {
            match *moment {
                NOW => write!(out, "now").unwrap(),
                moment => write!(out, "at {moment}").unwrap(),
            }
            for (key, found) in found {
                match found {
                    Found::Value(number) => write!(out, " {key}={number}").unwrap(),
                    Found::Absent => {}
                    Found::Refused(kind) => write!(out, " {key} is refused, {kind}").unwrap(),
                }
            }
            out.push('\n');
        }
        for (work, after) in [("flush", self.flushed()), ("compaction", self.compacted())] {
            let after = match after {
                Ok(after) => after,
                Err(error) => {
                    writeln!(out, "{work} is refused, {}", refused(&error)).unwrap();
                    continue;
                }
            };
            write!(out, "{work} keeps").unwrap();
            for written in after.sources.iter().flatten() {
                write!(out, " {}", written.shown()).unwrap();
            }
            out.push('\n');
            assert_eq!(after.reads(bench, &keys), before, "after {work} of {self:?}");
            if work == "flush" && self.all().all(|written| written.trailer.kind().is_some()) {
                self.read_in_flight(bench, &after, &before);
            }
        }
    }
}

fn sealed(memtable: Arc<Memtable>, last: u64) -> Arc<Sealed> {
    Arc::new(Sealed {
        memtable,
        last_sequence: SequenceNumber(last),
        log_end: None,
        keyspace_edits: Vec::new(),
        ingested: None,
        old_logs: Vec::new(),
        buried: Mutex::default(),
    })
}

fn memtable(written: &[Written]) -> Arc<Memtable> {
    let (memtable, mut writer) = Memtable::create(&MemoryBudget::of_any_size(1 << 30), 1 << 16);
    for Written { key, trailer, value } in written {
        writer.reserve(MemtableWriter::entry_bytes(key.len(), value.len()), 1).unwrap();
        writer.insert(KEYSPACE, key.as_bytes(), *trailer, value);
    }
    memtable
}

/// Where cases are read, and have their tables.
struct Bench {
    process: Process,
    versions: Versions,
    made: Mutex<u64>,
}

impl Bench {
    fn new(world: &World) -> Bench {
        let process = world.process("reader");
        let env = process.env();
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let tables = Tables {
            cache: BlockCache::of(&MemoryBudget::new(64 << 20).unwrap()),
            places: Arc::new(Mutex::new(Places::own(&objects, Incarnation(1)))),
            silence: Arc::default(),
            collectors: Arc::default(),
            flash: crate::flash::FlashUse::None,
            incarnation: Incarnation(1),
            epoch: Epoch(1),
            env,
            objects,
            naming: crate::version::Naming::default(),
            left_behind: Arc::default(),
            cold: None,
        };
        Bench { process, versions: Versions::new(tables), made: Mutex::new(0) }
    }

    /// Each source is a run of level 0, and entries from below lie in the last level.
    fn in_tables(&self, case: &Case) -> Arc<View> {
        let state = State::from_snapshot(1, Epoch(1), &self.tables_of(case)).expect("a sound state");
        let version = self.versions.build(&state, &Version::default(), &[]);
        Arc::new(View { active: memtable(&[]), waiting: Vec::new(), version, kept_by: None, generation: 0 })
    }

    fn tables_of(&self, case: &Case) -> Vec<Edit> {
        let options = tombolo_format::manifest::KeyspaceOptions::default();
        let mut edits = vec![Edit::KeyspaceCreated { id: KEYSPACE, name: "k".into(), stream: 0, options }];
        let sources = case.sources.iter().map(|written| (0, written));
        for (level, written) in sources.chain([(6, &case.below)]).filter(|(_, written)| !written.is_empty()) {
            edits.push(Edit::TableAdded(self.table(level, written.clone())));
        }
        edits
    }

    /// The newest source in a memtable, the others in tables, none of which is open yet.
    fn in_both(&self, case: &Case) -> Arc<View> {
        let (first, older) = case.sources.split_first().expect("a source");
        let tables = self.in_tables(&Case { sources: older.to_vec(), ..case.clone() });
        let version = Arc::clone(&tables.version);
        Arc::new(View { active: memtable(first), waiting: Vec::new(), version, kept_by: None, generation: 0 })
    }

    fn table(&self, level: u8, mut written: Vec<Written>) -> TableDescription {
        written.sort_by(|one, other| one.internal().cmp(&other.internal()));
        let tables = self.versions.tables().clone();
        let random = {
            let mut made = self.made.lock();
            *made += 1;
            *made
        };
        let output = Output {
            name: TableName { epoch: 1, random },
            keyspace: KEYSPACE,
            level,
            lowest: false,
            oldest_unix_seconds: Some(0),
            table_bytes: 0,
            purpose: Purpose::Flush,
        };
        let write = async move {
            let mut writer = TableWriter::create(&tables, output, &KeyspaceOptions::default()).await?;
            for written in &written {
                writer.add_now(written.internal(), &written.value)?;
            }
            writer.finish().await
        };
        self.process.run(write).expect("it lives").expect("written").expect("entries").table
    }

    /// Every way to read finds the expected entries.
    fn read(
        &self,
        view: &Arc<View>,
        keyspace: &Arc<KeyspaceInfo>,
        moment: (SequenceNumber, u64),
        expected: &BTreeMap<String, Found>,
        what: &str,
    ) {
        let keys: Vec<Bytes> = expected.keys().map(|key| Bytes::from(key.clone())).collect();
        let (from_tables, gets, all, forward, backward) = {
            let (view, keyspace, keys) = (Arc::clone(view), Arc::clone(keyspace), keys.clone());
            let reads = async move {
                let mut gets = Vec::new();
                for key in &keys {
                    gets.push(get(&view, &keyspace, key, moment).await);
                }
                let asked = Asked { keyspace: &keyspace, sequence: moment.0, judged: Judged::At(moment.1) };
                let several: Vec<_> = keys.iter().cloned().enumerate().collect();
                let from_tables = several::look_in_tables(&view, asked, &several).await;
                let forward = walk(&view, &keyspace, moment, false).await;
                let backward = walk(&view, &keyspace, moment, true).await;
                // By now memory has all.
                let all = get_several_in_memory(&view, asked, &keys);
                (from_tables, gets, all, forward, backward)
            };
            self.process.run(reads).expect("it lives")
        };
        for ((key, expected), found) in expected.iter().zip(gets) {
            let found = match found {
                Ok(Some(number)) => Found::Value(number),
                Ok(None) => Found::Absent,
                Err(error) => Found::Refused(refused(&error)),
            };
            assert_eq!(found, *expected, "get of {key} in {what}");
        }
        let expected = values(expected);
        let several = all.map(|all| {
            assert!(all.missing.is_empty(), "{what}");
            let found = keys.iter().zip(all.values);
            let found = found
                .filter_map(|(key, value)| Some((String::from_utf8(key.to_vec()).unwrap(), number(&value?))));
            found.collect::<Values>()
        });
        if view.version.levels(KEYSPACE).is_some() {
            let found = from_tables.map(|found| {
                let found = found.into_iter().filter_map(|(index, value)| {
                    Some((String::from_utf8(keys[index].to_vec()).unwrap(), number(&value?)))
                });
                found.collect::<Values>()
            });
            assert_eq!(
                found.map_err(|error| refused(&error)).ok(),
                expected,
                "multi-get of tables in {what}"
            );
        }
        for (way, found) in [("multi-get", several), ("forward", forward), ("backward", backward)] {
            let found = found.map_err(|error| refused(&error)).ok();
            assert_eq!(found, expected, "{way} in {what}");
        }
    }
}

async fn get(
    view: &View,
    keyspace: &KeyspaceInfo,
    key: &[u8],
    moment: (SequenceNumber, u64),
) -> Result<Option<u64>> {
    let mut read = Some(number);
    let asked = Asked { keyspace, sequence: moment.0, judged: Judged::At(moment.1) };
    match get_in_memory(view, asked, key, &mut read)? {
        InMemory::Answer(found) => Ok(found),
        InMemory::Miss => Ok(look_in_tables(view, asked, key).await?.map(|value| number(&value))),
    }
}

async fn walk(
    view: &Arc<View>,
    keyspace: &Arc<KeyspaceInfo>,
    moment: (SequenceNumber, u64),
    is_backward: bool,
) -> Result<Values> {
    let range = KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded };
    let mut cursor = RangeCursor::new(Arc::clone(view), Arc::clone(keyspace), moment, range);
    if is_backward {
        cursor.stand_at_end();
    }
    let mut values = Values::new();
    loop {
        let step = if is_backward { cursor.prev()? } else { cursor.next()? };
        if step == Step::Blocked {
            cursor.load().await?;
        }
        if !cursor.valid() {
            return Ok(values);
        }
        let key = String::from_utf8(cursor.key().to_vec()).unwrap();
        assert!(values.insert(key, number(cursor.value())).is_none(), "a key comes twice");
    }
}

#[test]
fn cases() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/read/cases.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let world = World::new(1);
    let bench = Bench::new(&world);
    let mut actual = String::new();
    for (index, case) in text.split("\n== ").enumerate() {
        if index == 0 {
            actual.push_str(case);
            continue;
        }
        let (title, body) = case.split_once('\n').unwrap();
        write!(actual, "\n== {title}\n").unwrap();
        let mut case = Case::new();
        for line in body.lines().filter(|line| !line.is_empty() && !line.starts_with("  ")) {
            writeln!(actual, "{line}").unwrap();
            let mut out = String::new();
            case.line(&bench, line, &mut out);
            out.lines().for_each(|line| writeln!(actual, "  {line}").unwrap());
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &actual).unwrap();
    }
    assert_eq!(actual.trim_end(), text.trim_end(), "UPDATE=1 writes what was found into {path}");
}

/// Entries of few keys, numbered from the oldest on, and in which source each lies: older sources
/// have lower numbers.
fn random_case() -> impl Strategy<Value = Case> {
    let entry = (0..4u8, 0..12u8, 0..6u8, 1..8u64);
    let times = (0..8u64, 0..8u64);
    let snapshots = prop::collection::btree_set(0..30u64, 0..5);
    let operator = prop::sample::select(vec!["add_u64", "horner", "failing", "missing"]);
    let parts = (prop::collection::vec(entry, 1..30), snapshots, 0..12usize, operator, times);
    parts.prop_map(|(entries, snapshots, below, operator, (time, settled))| {
        // Time goes on with the numbers, up to that of now.
        let snapshots = snapshots.into_iter().map(|number| (number, time * number / 30)).collect();
        let settled = settled.min(time);
        let mut case = Case { snapshots, operator, time, settled, ..Case::new() };
        for (index, (key, kind, goes_on, end)) in entries.into_iter().enumerate() {
            let kind = match kind {
                0 => EntryKind::Put,
                1 => EntryKind::Delete,
                2 => EntryKind::SingleDelete,
                3 | 4 => EntryKind::ExpiringPut,
                5..=7 => EntryKind::ExpiringMerge,
                _ => EntryKind::Merge,
            };
            let trailer = Trailer::new(SequenceNumber(index as u64 + 1), kind);
            let key = char::from(b'a' + key).to_string();
            let written = match kind {
                EntryKind::ExpiringPut => Written::until(key, index as u64 + 1, end),
                EntryKind::ExpiringMerge => {
                    let written = time * index as u64 / 30;
                    Written::operand_until(key, index as u64 + 1, written, written + end)
                }
                _ => Written::new(key, trailer),
            };
            if index < below {
                case.below.push(written);
                continue;
            }
            // The newest source is the first.
            if goes_on == 0 && !case.sources[0].is_empty() {
                case.sources.insert(0, Vec::new());
            }
            case.sources[0].push(written);
        }
        case
    })
}

/// A key that is merged over and over: a read leaves joined what it has walked over, and the next
/// one walks over what came since. Who looks from an older moment sees what was there.
fn reads_walk_over_new_operands_alone() {
    let world = World::new(1);
    let bench = Bench::new(&world);
    let merge = |number| Written::new("a".to_owned(), Trailer::new(SequenceNumber(number), EntryKind::Merge));
    let written: Vec<_> = (2..=300).rev().map(merge).collect();
    let mut case = Case { operator: "add_u64", ..Case::new() };
    case.sources[0] = written;
    let put = Trailer::new(SequenceNumber(1), EntryKind::Put);
    case.sources[0].push(Written::new("a".to_owned(), put));
    let (view, keyspace, keys) = (case.in_memtables(), case.keyspace(), case.keys());
    let walked = |moment: u64| {
        let found = keys.iter().map(|key| (key.clone(), case.plain(key, moment, 0))).collect();
        let before = view.active.walked.load(std::sync::atomic::Ordering::Relaxed);
        bench.read(&view, &keyspace, (SequenceNumber(moment), 0), &found, "a long chain");
        view.active.walked.load(std::sync::atomic::Ordering::Relaxed) - before
    };
    assert!(walked(200) >= 200, "the first walks over all");
    assert!(walked(200) <= 30, "the next one over none");
    let since = walked(300);
    assert!((100..140).contains(&since), "{since} entries instead of those that came since");
    assert!(walked(300) <= 30);
    for moment in [299, 201, 199, 100, 2, 1] {
        walked(moment);
    }
    assert!(walked(300) <= 30, "older moments leave what is newer");
}

#[test]
fn a_read_walks_over_new_operands_alone() {
    reads_walk_over_new_operands_alone();
}

/// Whether it may take long.
fn is_deep() -> bool {
    std::env::var_os("TOMBOLO_DEEP").is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_deep() { 256 } else { 12 }))]

    #[test]
    fn nobody_sees_a_flush_or_a_compaction(cases in prop::collection::vec(random_case(), 4)) {
        let world = World::new(1);
        let bench = Bench::new(&world);
        for case in cases {
            case.run(&bench, &mut String::new());
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn versions_that_are_taken_wrongly_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::UnknownKindTakenForPut, cases);
    notices(Mutant::DeleteDroppedOverOlder, cases);
    notices(Mutant::ExpiredDroppedOverOlder, cases);
    notices(Mutant::OperandJudgedAtTheRead, cases);
    notices(Mutant::ExpiredForgetsOperandsAbove, cases);
    notices(Mutant::SingleDeleteRevives, cases);
    for mutant in [
        Mutant::MergeFoldedWithoutProof,
        Mutant::MergeFoldedAcrossSnapshots,
        Mutant::MergeAnswersAlone,
        Mutant::MergeLostOnMiss,
        Mutant::MergeOrderReversed,
        Mutant::ViewKeepsFlushedMemtables,
    ] {
        notices(mutant, cases);
    }
    notices(Mutant::JoinedOperandsSeenBefore, reads_walk_over_new_operands_alone);
}
