//! Cases are text: levels, running jobs, and the jobs that are picked. `UPDATE=1` writes the picks
//! into the file.
//!
//! `level N NAME=FIRST-LAST*KIB[!DELETES%] …` (level 0 newest first), `running FROM TO NAME …`,
//! `damaged NAME …`, `snapshot N`, `memtable KIB`, `compressed lowest`, `shape NAME [KIB]`,
//! `kept` (the last level is for tables that are ingested behind); then
//! `pick` (and take what was picked), `finish` (the oldest job that runs; its outputs are put in
//! place) and `ask FIRST-LAST`, which does all jobs of an asked compaction, and with `through`
//! finishes those that it waits for; `drop FIRST-END AFTER BY` does so with what a range delete
//! covers, whose number lies between. With `filtered` a compaction filter is asked.

use std::fmt::Write as _;

use parking_lot::Mutex;
use tombolo_env::simulated::World;
use tombolo_format::expiry::{Expiry, PROPERTY_EXPIRY};
use tombolo_format::key::EntryKind;
use tombolo_format::manifest::{Edit, KeyspaceOptions, TableDescription};
use tombolo_format::property::{PROPERTY_RANGE_DELETES, Property, PropertyList, RangeDeletes};
use tombolo_storage::backend::memory::MemoryObjectStore;
#[cfg(feature = "mutants")]
use tombolo_storage::mutant::Mutant;
use tombolo_storage::{Epoch, Incarnation, ObjectStore};

use super::*;
use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::engine::DroppedRange;
use crate::manifest::{Places, State};
use crate::version::{Below, Tables, Version, Versions};

struct Case {
    versions: Versions,
    _world: World,
    tables: Vec<(String, TableDescription)>,
    settings: Settings,
    busy: Busy,
    cursors: Cursors,
    running: Vec<(u64, Job)>,
    snapshot: SequenceNumber,
    is_filtered: bool,
    made: u64,
    /// What reads have paid by the next pick.
    paid_nanos: u64,
    /// What ended up to then may be destroyed.
    settled_ms: u64,
}

impl Case {
    fn new() -> Case {
        let world = World::new(1);
        let env = world.process("process").env();
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let cache = BlockCache::of(&MemoryBudget::new(1 << 20).unwrap());
        let places = Arc::new(Mutex::new(Places::own(&objects, Incarnation(1))));
        let flash = crate::flash::FlashUse::None;
        let tables = Tables {
            env,
            objects,
            cache,
            flash,
            incarnation: Incarnation(1),
            epoch: Epoch(1),
            places,
            silence: Arc::default(),
            naming: crate::version::Naming::default(),
            left_behind: Arc::default(),
            cold: None,
            collectors: Arc::default(),
        };
        Case {
            versions: Versions::new(tables),
            _world: world,
            tables: Vec::new(),
            settings: Settings::new(16 << 10, true),
            busy: Busy::default(),
            cursors: Cursors::default(),
            running: Vec::new(),
            snapshot: SequenceNumber::MAX,
            is_filtered: false,
            made: 0,
            paid_nanos: 0,
            settled_ms: 0,
        }
    }

    fn version(&self) -> Arc<Version> {
        let mut edits = vec![Edit::KeyspaceCreated {
            id: 1,
            name: "k".into(),
            stream: 0,
            options: KeyspaceOptions::default(),
        }];
        edits.extend(self.tables.iter().map(|(_, table)| Edit::TableAdded(table.clone())));
        self.versions.build(&State::from_snapshot(1, Epoch(0), &edits).unwrap(), &Version::default(), &[])
    }

    /// `NAME=FIRST-LAST*KIB[!DELETES%][@ENTRIES:EARLIEST:LATEST[:WRITTEN]]`, the last of those that
    /// end, and when the first operand among them was written; of level 0 the first that is said is
    /// the newest.
    fn add(&mut self, level: u8, text: &str) {
        let (name, rest) = text.split_once('=').unwrap();
        let (keys, rest) = rest.split_once('*').unwrap();
        let (first, last) = keys.split_once('-').unwrap();
        let (rest, ends) = rest.split_once('@').unwrap_or((rest, ""));
        let mut ends = ends.split(':').map_while(|number| number.parse::<u64>().ok());
        let expiry = ends.next().map(|entries| Expiry {
            entries,
            earliest_ms: ends.next().unwrap(),
            latest_ms: ends.next().unwrap(),
            written_ms: ends.next().unwrap_or(u64::MAX),
        });
        let encoded = expiry.map(Expiry::encode);
        let (kib, deletes) = rest.split_once('!').unwrap_or((rest, "0"));
        self.made += 1;
        let sequence = SequenceNumber(if level == 0 { 1_000_000 - self.made * 10 } else { 10 });
        let table = TableDescription {
            name: TableName { epoch: 0, random: self.made },
            offset: 0,
            length: kib.parse::<u64>().unwrap() << 10,
            identity: 0,
            keyspace: 1,
            level,
            first_key: Bytes::copy_from_slice(first.as_bytes()),
            last_key: Bytes::copy_from_slice(last.as_bytes()),
            first_sequence: SequenceNumber(sequence.0 - 1),
            last_sequence: sequence,
            entries: 100,
            deletes: deletes.parse().unwrap(),
            tail_bytes: 100,
            oldest_unix_seconds: 0,
            features: expiry.map_or(0, |_| EntryKind::ExpiringPut.feature()),
            properties: PropertyList::of(encoded.as_ref().map(|value| Property {
                id: PROPERTY_EXPIRY,
                is_critical: true,
                value,
            })),
            source: None,
        };
        self.tables.push((name.to_owned(), table));
    }

    fn handle(&self, levels: &Levels, name: &str) -> Arc<TableHandle> {
        let table = &self
            .tables
            .iter()
            .find(|(other, _)| other == name)
            .unwrap_or_else(|| panic!("no table {name}"))
            .1;
        Arc::clone(levels.tables().find(|handle| handle.description().name == table.name).unwrap())
    }

    fn name(&self, table: &TableHandle) -> &str {
        &self.tables.iter().find(|(_, other)| other.name == table.description().name).unwrap().0
    }

    fn describe(&self, job: &Job) -> String {
        let names = |tables: &[Arc<TableHandle>]| {
            tables.iter().map(|table| self.name(table)).collect::<Vec<_>>().join(" ")
        };
        let mut text = format!("{:?}: level {} [{}]", job.reason, job.from, names(&job.upper));
        for (level, tables) in &job.passed {
            write!(text, " past level {level} [{}]", names(tables)).unwrap();
        }
        if !job.lower.is_empty() {
            write!(text, " with level {} [{}]", job.to, names(&job.lower)).unwrap();
        }
        match job.means {
            Means::Merge => write!(text, " to level {}", job.to).unwrap(),
            Means::Move => write!(text, " moves to level {}", job.to).unwrap(),
            Means::Drop => text.push_str(" goes"),
        }
        text
    }

    fn picking<'a>(&self, busy: &'a Busy, cursors: &'a Cursors) -> Picking<'a> {
        let newest_snapshot = Some(self.snapshot).filter(|snapshot| *snapshot < SequenceNumber::MAX);
        Picking {
            is_filtered: self.is_filtered,
            snapshots: newest_snapshot.into_iter().collect(),
            keyspace: 1,
            settings: self.settings,
            busy,
            cursors,
            oldest_snapshot: self.snapshot,
            newest_snapshot,
            settled_ms: self.settled_ms,
            snapshots_judged_ms: u64::MAX,
            operands_ms: u64::MAX,
            collected: Collected::default(),
            far: std::collections::BTreeSet::new(),
            cold_up_to: SequenceNumber::ZERO,
            is_idle: false,
        }
    }

    fn take(&mut self, job: Job) {
        self.check(&job);
        if job.from > 0 {
            let last = job.upper.last().unwrap().description().last_key.clone();
            self.cursors.insert((1, job.from), last);
        }
        self.running.push((self.busy.take(&job), job));
    }

    /// The invariants of a job against those that run.
    fn check(&self, job: &Job) {
        let (first, last) = job.range().unwrap();
        for (_, other) in &self.running {
            assert!(
                !job.inputs().any(|table| other.inputs().any(|taken| Arc::ptr_eq(table, taken))),
                "an input is shared"
            );
            let (from, to) = other.range().unwrap();
            assert!(
                job.to == 0 || other.to != job.to || to < first || last < from,
                "two jobs write one range of level {}",
                job.to
            );
        }
        let version = self.version();
        let levels = version.levels(1).unwrap();
        if job.means == Means::Drop {
            return;
        }
        for (level, run) in &levels.sorted {
            if job.from < *level && *level < job.to && !job.passed.is_empty() {
                let passed = job.passed.iter().find(|(passed, _)| passed == level);
                assert_eq!(passed.map_or(0, |(_, tables)| tables.len()), run.len(), "a part of a tier stays");
            }
        }
        if job.from != job.to {
            let (first, last) = range_of(job.upper.iter()).unwrap();
            let met = levels.level(job.to).map_or(0, |run| run.overlapping(&first, &last).len());
            assert!(job.lower.len() >= met, "a table of the output level is left out");
        }
        // A delete stays for everything older that is no input.
        let oldest = job.upper.last().unwrap().description().last_sequence;
        let older_runs =
            levels.runs.iter().filter(|run| job.from == 0 && run.description().last_sequence < oldest);
        let deeper =
            levels.sorted.iter().filter(|(level, _)| *level > job.to).flat_map(|(_, run)| run.iter());
        for table in
            older_runs.chain(deeper).filter(|table| !job.inputs().any(|taken| Arc::ptr_eq(table, taken)))
        {
            for key in [&table.description().first_key, &table.description().last_key] {
                assert!(
                    Below::new(job.older_runs.clone(), &job.deeper).kept(job.keeps_last).may_hold(key),
                    "{} lies below, and deletes of its keys would go",
                    self.name(table)
                );
            }
        }
        if job.from == 0 && job.to != 0 {
            for stays in
                levels.runs.iter().filter(|run| !job.upper.iter().any(|table| Arc::ptr_eq(run, table)))
            {
                let passes = |table: &Arc<TableHandle>| {
                    meets(table, stays)
                        && table.description().last_sequence > stays.description().last_sequence
                };
                assert!(!job.upper.iter().any(passes), "a run passes an older one");
            }
        }
    }

    /// Puts what a job would make in the place of its inputs: tables of the wanted size.
    fn finish(&mut self, number: u64, job: &Job) {
        self.busy.give_back(number, job);
        let names: BTreeSet<_> = job.inputs().map(|table| table.description().name).collect();
        if job.means == Means::Drop {
            self.tables.retain(|(_, table)| !names.contains(&table.name));
            return;
        }
        if job.means == Means::Move {
            for (_, table) in &mut self.tables {
                table.level = if names.contains(&table.name) { job.to } else { table.level };
            }
            return;
        }
        let (first, last) = job.range().unwrap();
        let newest = job.inputs().map(|table| table.description().last_sequence).max().unwrap();
        let oldest = job.inputs().map(|table| table.description().first_sequence).min().unwrap();
        self.tables.retain(|(_, table)| !names.contains(&table.name));
        let at_bottom = job.deeper.is_empty() && job.older_runs.is_empty();
        let deletes = if at_bottom { "0" } else { "10" };
        self.made += 1;
        let name = format!("m{}", self.made);
        let (first, last) =
            (String::from_utf8(first.to_vec()).unwrap(), String::from_utf8(last.to_vec()).unwrap());
        self.add(job.to, &format!("{name}={first}-{last}*{}!{deletes}", job.bytes() >> 10));
        let made = self.tables.last_mut().unwrap();
        (made.1.first_sequence, made.1.last_sequence) = (oldest, newest);
    }

    fn line(&mut self, line: &str, out: &mut String) {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap();
        let words: Vec<_> = words.collect();
        match command {
            "memtable" => self.settings = Settings::new(words[0].parse::<u64>().unwrap() << 10, true),
            "paid" => self.paid_nanos = words[0].parse::<u64>().unwrap() * 1000,
            "shape" => {
                let shape = Shape::from_name(words[0]).unwrap();
                let bytes = words.get(1).map(|kib| kib.parse::<u64>().unwrap() << 10);
                self.settings = self.settings.shaped(shape, bytes);
            }
            "compressed" => self.settings.same_compression = false,
            "kept" => self.settings = self.settings.keeping_last(true),
            "snapshot" => self.snapshot = SequenceNumber(words[0].parse().unwrap()),
            "filtered" => self.is_filtered = true,
            "settled" => self.settled_ms = words[0].parse().unwrap(),
            "level" => words[1..].iter().for_each(|table| self.add(words[0].parse().unwrap(), table)),
            "damaged" => {
                let version = self.version();
                for name in words {
                    let table = self.handle(version.levels(1).unwrap(), name);
                    assert!(self.busy.set_aside(1, table.description().name));
                }
            }
            "running" => {
                let version = self.version();
                let levels = version.levels(1).unwrap();
                let upper = words[2..].iter().map(|name| self.handle(levels, name)).collect();
                let (from, to) = (words[0].parse().unwrap(), words[1].parse().unwrap());
                let job = Job {
                    keyspace: 1,
                    reason: Reason::Size,
                    from,
                    upper,
                    to,
                    passed: Vec::new(),
                    lower: Vec::new(),
                    keeps_last: false,
                    means: Means::Merge,
                    table_bytes: 1,
                    tier: Tier::default(),
                    older_runs: Vec::new(),
                    deeper: Vec::new(),
                };
                self.running.push((self.busy.take(&job), job));
            }
            "pick" => {
                let version = self.version();
                version
                    .levels(1)
                    .inspect(|levels| levels.read_cost.pay(std::mem::take(&mut self.paid_nanos)));
                let job = version
                    .levels(1)
                    .and_then(|levels| pick(levels, &self.picking(&self.busy, &self.cursors)));
                match job {
                    None => out.push_str("nothing\n"),
                    Some(job) => {
                        writeln!(out, "{}", self.describe(&job)).unwrap();
                        self.take(job);
                    }
                }
            }
            "finish" => {
                if self.running.is_empty() {
                    out.push_str("nothing runs\n");
                    return;
                }
                let (number, job) = self.running.remove(0);
                self.finish(number, &job);
            }
            "targets" => {
                let version = self.version();
                let targets = Targets::new(version.levels(1).unwrap(), &self.settings);
                let bytes: Vec<_> = (targets.base..LEVEL_LAST)
                    .map(|level| format!("{}", targets.of(level).unwrap() >> 10))
                    .collect();
                writeln!(out, "base {} [{}]", targets.base, bytes.join(" ")).unwrap();
            }
            "ask" | "drop" => {
                let bound = |key: &str| (!key.is_empty()).then(|| Bytes::copy_from_slice(key.as_bytes()));
                let (first, last) = words[0].split_once('-').unwrap();
                let number = |at: usize| SequenceNumber(words[at].parse().unwrap());
                let dropped = (command == "drop").then(|| DroppedRange { after: number(1), by: number(2) });
                let mut asked = Asked::new(1, bound(first), bound(last)).dropping(dropped);
                loop {
                    let version = self.version();
                    let Some(levels) = version.levels(1) else {
                        out.push_str("done: nothing is left\n");
                        break;
                    };
                    match asked.next(levels, &self.picking(&self.busy, &self.cursors)) {
                        Turn::Do(job) => {
                            writeln!(out, "{}", self.describe(&job)).unwrap();
                            self.check(&job);
                            let number = self.busy.take(&job);
                            self.finish(number, &job);
                        }
                        Turn::Wait => {
                            out.push_str("waits\n");
                            if words.get(1) != Some(&"through") || self.running.is_empty() {
                                break;
                            }
                            let (number, job) = self.running.remove(0);
                            self.finish(number, &job);
                        }
                        Turn::Done => {
                            out.push_str(if asked.met_damage.is_some() {
                                "done, but for damage\n"
                            } else {
                                "done\n"
                            });
                            break;
                        }
                    }
                }
            }
            other => panic!("what is {other:?}?"),
        }
    }
}

#[test]
fn cases() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/compaction/pick/cases.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut actual = String::new();
    for (number, case) in text.split("\n== ").enumerate() {
        if number == 0 {
            actual.push_str(case);
            continue;
        }
        let (title, body) = case.split_once('\n').unwrap();
        write!(actual, "\n== {title}\n").unwrap();
        let mut state = Case::new();
        for line in body.lines().filter(|line| !line.is_empty() && !line.starts_with("  ")) {
            writeln!(actual, "{line}").unwrap();
            let mut out = String::new();
            state.line(line, &mut out);
            out.lines().for_each(|line| writeln!(actual, "  {line}").unwrap());
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &actual).unwrap();
    }
    assert_eq!(actual.trim_end(), text.trim_end(), "UPDATE=1 writes what was picked into {path}");
}

/// What a keyspace of [`Shape::Fifo`] may hold in the loads.
const FIFO_BYTES: u64 = 100 << 10;

/// A delete over one of several tables that were ingested together stays, when a job takes another
/// of them alone.
#[test]
fn what_was_ingested_together_is_older_than_a_delete_over_one() {
    let mut case = Case::new();
    for table in ["d=a-z*1", "one=a-b*1", "two=k-l*1"] {
        case.add(0, table);
    }
    let number = case.tables[1].1.last_sequence;
    (case.tables[2].1.first_sequence, case.tables[2].1.last_sequence) = (number, number);
    case.tables[1].1.first_sequence = number;
    let version = case.version();
    let levels = version.levels(1).unwrap();
    let picking = case.picking(&case.busy, &case.cursors);
    for one in ["one", "two"] {
        let upper = vec![case.handle(levels, "d"), case.handle(levels, one)];
        let job = assemble(levels, &picking, Reason::WithinLevel0, (0, upper), (0, Vec::new()), u64::MAX);
        let mut below = Below::new(job.older_runs.clone(), &job.deeper);
        assert_eq!((below.may_hold(b"a"), below.may_hold(b"k")), (one == "two", one == "one"));
    }
}

/// Runs of range deletes become one only as far as they fit one table, however they are cut.
fn no_run_has_more_range_deletes_than_a_table_takes() {
    const MIB: u32 = 1 << 20;
    let mut case = Case::new();
    let runs = [MIB, 0, 4 * MIB, 4 * MIB, MIB, 5 * MIB, 4 * MIB];
    for (number, bytes) in runs.into_iter().enumerate() {
        case.add(0, &format!("t{number}=a-z*1000"));
        let value = RangeDeletes { count: 1, bytes, ends_before_last: false }.encode();
        let property = Property { id: PROPERTY_RANGE_DELETES, is_critical: true, value: &value };
        case.tables[number].1.properties = PropertyList::of((bytes > 0).then_some(property));
    }
    let version = case.version();
    let levels = version.levels(1).unwrap();
    let picking = case.picking(&case.busy, &case.cursors);
    let targets = Targets::new(levels, &picking.settings);
    let job = within_level_0(levels, &picking, &targets, RUNS_TRIGGER, u64::MAX).unwrap();
    let names: Vec<_> = job.upper.iter().map(|table| case.name(table)).collect();
    assert_eq!(names, ["t0", "t1", "t2", "t3", "t4", "t5"], "15 MiB, and the last would make it 19");
    assert!(within_level_0(levels, &picking, &targets, 7, u64::MAX).is_none());
}

#[test]
fn runs_of_range_deletes_fit_one_table() {
    no_run_has_more_range_deletes_than_a_table_takes();
}

#[cfg(feature = "mutants")]
#[test]
fn runs_with_too_many_range_deletes_are_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::RangeDeletesUnbounded,
        no_run_has_more_range_deletes_than_a_table_takes,
    );
}

/// Whatever is written, jobs keep their invariants, level 0 stays short, and in the end nothing is
/// left to do.
#[test]
fn random_loads_come_to_rest() {
    let shapes = [(Shape::Leveled, 40), (Shape::Tiered, 15), (Shape::Auto, 10), (Shape::Fifo, 10)];
    let part = if std::env::var_os("TOMBOLO_DEEP").is_some() { 1 } else { 3 };
    for (shape, seeds) in shapes {
        (0..seeds / part).for_each(|seed| load_comes_to_rest(seed, shape));
    }
}

fn load_comes_to_rest(seed: u64, shape: Shape) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut case = Case::new();
    case.settings = case.settings.shaped(shape, Some(FIFO_BYTES));
    for step in 0..400u64 {
        if next(3) == 0 && step < 300 {
            // A flush; newer than all: sequence numbers of level 0 descend in the order of
            // `add`.
            let (one, other) = (next(1000), next(1000));
            case.made += 1;
            let text = format!(
                "f{step}={:04}-{:04}*{}!{}",
                one.min(other),
                one.max(other) + 1,
                1 + next(24),
                next(30)
            );
            case.add(0, &text);
            let table = case.tables.last_mut().unwrap();
            table.1.last_sequence = SequenceNumber(1_000_000 + step);
            table.1.first_sequence = table.1.last_sequence;
        }
        if case.running.len() < 3 {
            let version = case.version();
            let job =
                version.levels(1).and_then(|levels| pick(levels, &case.picking(&case.busy, &case.cursors)));
            if let Some(job) = job {
                case.take(job);
                continue;
            }
        }
        if !case.running.is_empty() {
            let at = usize::try_from(next(case.running.len() as u64)).unwrap();
            let (number, job) = case.running.remove(at);
            case.finish(number, &job);
        }
    }
    let mut jobs = 0;
    loop {
        while let Some((number, job)) = case.running.pop() {
            case.finish(number, &job);
        }
        let version = case.version();
        let levels = version.levels(1).unwrap();
        let Some(job) = pick(levels, &case.picking(&case.busy, &case.cursors)) else {
            if shape == Shape::Fifo {
                assert!(levels.bytes() <= FIFO_BYTES, "seed {seed}: {} bytes are left", levels.bytes());
            } else {
                let runs = levels.runs.len();
                assert!(runs < RUNS_TRIGGER, "seed {seed}, {shape:?}: {runs} runs are left");
            }
            break;
        };
        jobs += 1;
        assert!(jobs < 1000, "seed {seed}, {shape:?}: it never rests; now {}", case.describe(&job));
        case.take(job);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn what_drops_the_newest_or_what_snapshots_see_is_noticed() {
    tombolo_storage::mutant::notices(Mutant::ExpiredTableDroppedOverOlder, cases);
    tombolo_storage::mutant::notices(Mutant::FifoDropsNewest, cases);
    tombolo_storage::mutant::notices(Mutant::FifoForgetsSnapshots, cases);
}
