//! Operands that end, and values that end and lie apart, against what the rules say: with a clock
//! that goes on, flushes, compactions, snapshots and reopenings between.
//!
//! The rules: of a key, the newest entry counts until it ends. An operand that ends lies over what
//! counted when it was written; one that does not, over what counts when it is read.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tombolo::{
    Batch, Db, ErrorKind, FullOperator, KeyspaceOptions, Operator, OperatorError, OperatorName, Options,
    Snapshot, TakeOver,
};
use tombolo_env::simulated::{Process, World};

const MINUTE: Duration = Duration::from_secs(60);
const KEYS: u8 = 6;
const NAMES: [&str; 2] = ["joined", "folded"];

/// Appends, and sees all operands at once.
struct Concat;

impl FullOperator for Concat {
    fn fold(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        value: &mut Vec<u8>,
    ) -> Result<bool, OperatorError> {
        value.extend_from_slice(base.unwrap_or_default());
        operands.iter().for_each(|operand| value.extend_from_slice(operand));
        Ok(true)
    }
}

fn open(process: &Process) -> Db {
    let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=16384"]).unwrap();
    let builder = Db::builder("file:///db").env(process.env()).options(options).take_over(TakeOver::Always);
    let db = builder.operator(OperatorName::new("concat", 1).unwrap(), Operator::full(Concat));
    let db = db.open().wait().unwrap();
    for (name, operator) in NAMES.into_iter().zip(["append", "concat"]) {
        if db.keyspace(name).is_err() {
            let operator = Some(OperatorName::parse(operator).unwrap());
            let options = KeyspaceOptions { operator, separate_bytes: 512, ..KeyspaceOptions::default() };
            db.create_keyspace(name, options).wait().unwrap();
        }
    }
    db
}

/// An entry; times are of the database.
#[derive(Clone, Debug)]
enum Entry {
    Put(Vec<u8>, Option<u64>),
    Delete,
    Merge(Vec<u8>, Option<(u64, u64)>),
}

/// Of each keyspace and key, the oldest entry first.
type Model = BTreeMap<(usize, u8), Vec<Entry>>;

/// What a key has by a time.
fn value_of(entries: &[Entry], time: u64) -> Option<Vec<u8>> {
    let (newest, older) = entries.split_last()?;
    match newest {
        Entry::Put(value, end) => end.is_none_or(|end| time < end).then(|| value.clone()),
        Entry::Delete => None,
        Entry::Merge(operand, times) => {
            let base = match times {
                Some((_, end)) if *end <= time => return None,
                Some((written, _)) => value_of(older, *written),
                None => value_of(older, time),
            };
            Some([base.unwrap_or_default(), operand.clone()].concat())
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// How long it lives in minutes, if it ends.
    Put(u8, u8, Option<u16>),
    Merge(u8, u8, Option<u16>),
    Delete(u8),
    /// Minutes.
    Pass(u16),
    Flush,
    Compact,
    Snapshot,
    DropSnapshot,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let life = || prop_oneof![1 => Just(None), 3 => (1..150_u16).prop_map(Some)];
    prop_oneof![
        6 => (0..KEYS, any::<u8>(), life()).prop_map(|(key, value, life)| Step::Put(key, value, life)),
        9 => (0..KEYS, any::<u8>(), life()).prop_map(|(key, value, life)| Step::Merge(key, value, life)),
        1 => (0..KEYS).prop_map(Step::Delete),
        4 => (1..100_u16).prop_map(Step::Pass),
        4 => Just(Step::Flush),
        2 => Just(Step::Compact),
        1 => Just(Step::Snapshot),
        1 => Just(Step::DropSnapshot),
        1 => Just(Step::Reopen),
    ]
}

/// Some lie apart, some do not.
fn bytes_of(value: u8) -> Vec<u8> {
    vec![value; if value.is_multiple_of(2) { 600 } else { 3 }]
}

fn life_of(minutes: u16) -> Duration {
    MINUTE * u32::from(minutes)
}

struct Run {
    world: World,
    process: Process,
    db: Db,
    model: Model,
    snapshots: Vec<(Snapshot, Model, u64)>,
}

impl Run {
    fn new() -> Run {
        let world = World::new(1);
        let process = world.process("writer");
        let db = open(&process);
        Run { world, process, db, model: Model::new(), snapshots: Vec::new() }
    }

    fn push(&mut self, keyspace: usize, key: u8, entry: Entry) {
        self.model.entry((keyspace, key)).or_default().push(entry);
    }

    fn step(&mut self, step: &Step) {
        let key = |key: u8| [b'k', key];
        match *step {
            Step::Put(to, value, life) => {
                for (number, name) in NAMES.into_iter().enumerate() {
                    let (keyspace, bytes, now) =
                        (self.db.keyspace(name).unwrap(), bytes_of(value), self.db.time_ms());
                    match life {
                        None => keyspace.put(key(to), &bytes).wait().unwrap(),
                        Some(life) => keyspace.put_ttl(key(to), &bytes, life_of(life)).wait().unwrap(),
                    }
                    let end = life.map(|life| now + u64::from(life) * 60_000);
                    self.push(number, to, Entry::Put(bytes, end));
                }
            }
            Step::Merge(to, value, life) => {
                for (number, name) in NAMES.into_iter().enumerate() {
                    let (keyspace, bytes, now) =
                        (self.db.keyspace(name).unwrap(), bytes_of(value), self.db.time_ms());
                    match life {
                        None => keyspace.merge(key(to), &bytes).wait().unwrap(),
                        Some(life) => {
                            let mut batch = Batch::new();
                            batch.merge_ttl(&keyspace, key(to), &bytes, life_of(life));
                            self.db.write(batch).wait().unwrap();
                        }
                    }
                    let times = life.map(|life| (now, now + u64::from(life) * 60_000));
                    self.push(number, to, Entry::Merge(bytes, times));
                }
            }
            Step::Delete(to) => {
                for (number, name) in NAMES.into_iter().enumerate() {
                    self.db.keyspace(name).unwrap().delete(key(to)).wait().unwrap();
                    self.push(number, to, Entry::Delete);
                }
            }
            Step::Pass(minutes) => self.world.run_for(life_of(minutes)),
            Step::Flush => self.db.flush().wait().unwrap(),
            Step::Compact => self.db.compact().wait().unwrap(),
            Step::Snapshot => {
                self.snapshots.push((self.db.snapshot(), self.model.clone(), self.db.time_ms()));
            }
            Step::DropSnapshot => drop(self.snapshots.pop()),
            Step::Reopen => {
                self.snapshots.clear();
                self.db.close().wait().unwrap();
                self.db = open(&self.process);
            }
        }
    }

    fn check(&self) {
        for (number, name) in NAMES.into_iter().enumerate() {
            let keyspace = self.db.keyspace(name).unwrap();
            let expected = expected(&self.model, number, self.db.time_ms());
            let found: Vec<_> = keyspace.scan::<&[u8]>(..).map(Result::unwrap).collect();
            let found: Vec<_> = found.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            assert_eq!(found, expected, "scan of {name}");
            let mut cursor = keyspace.cursor::<&[u8]>(..);
            let mut backward = Vec::new();
            let mut more = cursor.seek_to_last().unwrap();
            while more {
                backward.push((cursor.key().to_vec(), cursor.value().to_vec()));
                more = cursor.prev().unwrap();
            }
            backward.reverse();
            assert_eq!(backward, expected, "{name} backward");
            let keys: Vec<_> = (0..KEYS).map(|key| [b'k', key]).collect();
            let several = keyspace.multi_get(&keys).wait().unwrap();
            for (key, several) in keys.iter().zip(several) {
                let value = expected.iter().find(|(other, _)| other == key).map(|(_, value)| &value[..]);
                assert_eq!(keyspace.get(key).wait().unwrap().as_deref(), value, "{key:?} of {name}");
                assert_eq!(several.as_deref(), value, "{key:?} of {name}");
            }
            for (snapshot, model, time) in &self.snapshots {
                let entries = snapshot.scan::<&[u8]>(&keyspace, ..).map(Result::unwrap);
                let found: Vec<_> = entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                assert_eq!(found, self::expected(model, number, *time), "snapshot of {name}");
            }
        }
    }
}

fn expected(model: &Model, keyspace: usize, time: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of = model.iter().filter(|((other, _), _)| *other == keyspace);
    of.filter_map(|((_, key), entries)| Some((vec![b'k', *key], value_of(entries, time)?))).collect()
}

#[test]
fn a_random_history_reads_as_the_rules_say() {
    let config = ProptestConfig {
        cases: if crate::is_deep() { 256 } else { 12 },
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let steps = proptest::collection::vec(step(), 1..60);
    TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    )
    .run(&steps, |steps| {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
            run.check();
        }
        Ok(())
    })
    .unwrap();
}

/// What an operand lies over is needed as long as the operand, wherever both lie; once that has
/// ended, nothing of either is left.
#[test]
fn what_an_operand_lies_over_outlives_its_own_end() {
    let history = || {
        let mut run = Run::new();
        run.step(&Step::Put(1, 2, Some(10)));
        run.step(&Step::Flush);
        assert_eq!(run.db.property("value-objects").unwrap().value.number(), Some(2), "it lies apart");
        run.step(&Step::Compact);
        run.step(&Step::Pass(5));
        run.step(&Step::Merge(1, 3, Some(600)));
        run.step(&Step::Pass(200));
        run.check();
        run.step(&Step::Flush);
        run.check();
        run.step(&Step::Pass(100));
        run.step(&Step::Compact);
        run.check();
        let keyspace = run.db.keyspace(NAMES[0]).unwrap();
        let mut cursor = keyspace.cursor::<&[u8]>(..);
        assert!(cursor.next().unwrap() && cursor.expires_ms().is_some(), "it ends with the operand");
        drop(cursor);
        run.step(&Step::Pass(600));
        run.check();
        assert_eq!(run.db.property("entries").unwrap().value.number(), Some(0), "nothing is left");
    };
    history();
    #[cfg(feature = "mutants")]
    for mutant in [
        tombolo_storage::mutant::Mutant::OperandJudgedAtTheRead,
        tombolo_storage::mutant::Mutant::ExpiredForgetsOperandsAbove,
    ] {
        tombolo_storage::mutant::notices(mutant, history);
    }
}

#[test]
fn a_keyspace_with_a_time_to_live_gives_it_to_operands() {
    let world = World::new(1);
    let db = open(&world.process("writer"));
    let options = KeyspaceOptions {
        operator: Some(OperatorName::parse("add_u64").unwrap()),
        ttl: Some(10 * MINUTE),
        ..KeyspaceOptions::default()
    };
    let visits = db.create_keyspace("visits", options).wait().unwrap();
    let read = || visits.get("home").wait().unwrap().map(|value| value[0]);
    visits.merge("home", 1_u64.to_le_bytes()).wait().unwrap();
    world.run_for(6 * MINUTE);
    visits.merge("home", 2_u64.to_le_bytes()).wait().unwrap();
    world.run_for(6 * MINUTE);
    assert_eq!(read(), Some(3), "as long as somebody comes, all count");
    let mut batch = Batch::new();
    batch.merge(&visits, "home", 4_u64.to_le_bytes());
    db.write(batch).wait().unwrap();
    world.run_for(11 * MINUTE);
    assert_eq!(read(), None);
    db.blocking().keyspace("visits").unwrap().merge("home", 8_u64.to_le_bytes()).unwrap();
    assert_eq!(read(), Some(8));
    let ended = visits.merge_until_with("home", 1_u64.to_le_bytes(), 1, tombolo::Durability::Durable).wait();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Invalid);
    let mut batch = Batch::new();
    batch.merge_ttl(&visits, "home", 16_u64.to_le_bytes(), 100 * MINUTE);
    world.run_for(20 * MINUTE);
    let late = db.write(batch).wait().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    assert!(late.to_string().contains("build the batch anew"), "{late}");
}
