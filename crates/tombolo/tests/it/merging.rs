//! Merges through the public interface: against an ordered map, and what an operator that fails, or
//! is not there, comes to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use tombolo::{
    AssociativeOperator, Batch, Builder, Compression, Db, Durability, Env, ErrorKind, Event, FullOperator,
    Keyspace, KeyspaceOptions, Listener, Operator, OperatorError, OperatorName, Options, Registry, Snapshot,
    TakeOver,
};
use tombolo_env::simulated::World;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A full operator whose result depends on the order.
struct Horner;

impl FullOperator for Horner {
    fn fold(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        value: &mut Vec<u8>,
    ) -> Result<bool, OperatorError> {
        let number = |bytes: &[u8]| Ok::<_, OperatorError>(u64::from_le_bytes(bytes.try_into()?));
        let mut folded = base.map_or(Ok(key.len() as u64), number)?;
        for operand in operands {
            folded = folded.wrapping_mul(31).wrapping_add(number(operand)?);
        }
        value.extend_from_slice(&folded.to_le_bytes());
        Ok(true)
    }
}

/// Joins nothing.
struct Failing;

impl AssociativeOperator for Failing {
    fn join(&self, _: &[u8], _: &mut Vec<u8>, _: &[u8]) -> Result<(), OperatorError> {
        panic!("on purpose")
    }
}

fn name(text: &str) -> OperatorName {
    OperatorName::parse(text).unwrap()
}

fn options(operator: &str) -> KeyspaceOptions {
    KeyspaceOptions { operator: Some(name(operator)), ..KeyspaceOptions::default() }
}

const OPERATORS: [&str; 4] = ["add_u64", "horner", "weights", "append_comma"];

/// What a key has after a merge.
fn merged(operator: usize, key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    match OPERATORS[operator] {
        "add_u64" => Some((value.map_or(0, number) + number(operand)).to_le_bytes().to_vec()),
        "horner" => {
            let base = value.map_or(key.len() as u64, number);
            Some(base.wrapping_mul(31).wrapping_add(number(operand)).to_le_bytes().to_vec())
        }
        "weights" => match value.map_or(0, number).wrapping_add(number(operand)) {
            0 => None,
            sum => Some(sum.to_le_bytes().to_vec()),
        },
        _ => Some(match value {
            Some(value) => [value, b",", operand].concat(),
            None => operand.to_vec(),
        }),
    }
}

#[derive(Clone, Debug)]
enum Write {
    Put(u8),
    Delete,
    Merge(i8),
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8, Write, Durability),
    Batch(Vec<(usize, u8, Write)>),
    Hammer(usize, u8, u8),
    Get(usize, u8),
    Snapshot,
    DropSnapshot,
    Check,
    Flush,
    Compact,
    Close,
    TakeOver,
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        2 => any::<u8>().prop_map(Write::Put),
        1 => Just(Write::Delete),
        6 => (-3..4i8).prop_map(Write::Merge),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..OPERATORS.len(), 0..6u8);
    let durability = prop_oneof![Just(Durability::Unlogged), Just(Durability::Durable)];
    prop_oneof![
        14 => (place(), write(), durability).prop_map(|((k, key), write, durability)| {
            Step::Write(k, key, write, durability)
        }),
        4 => proptest::collection::vec((place(), write()), 0..8).prop_map(|writes| {
            Step::Batch(writes.into_iter().map(|((k, key), write)| (k, key, write)).collect())
        }),
        1 => (place(), 20..120u8).prop_map(|((k, key), times)| Step::Hammer(k, key, times)),
        6 => place().prop_map(|(k, key)| Step::Get(k, key)),
        1 => Just(Step::Snapshot),
        1 => Just(Step::DropSnapshot),
        1 => Just(Step::Check),
        3 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Close),
        1 => Just(Step::TakeOver),
    ]
}

fn key_of(key: u8) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

fn operand(operator: usize, number: i8) -> Vec<u8> {
    match OPERATORS[operator] {
        "append_comma" => vec![b'a' + number.unsigned_abs(); usize::from(number.unsigned_abs()) * 3],
        "weights" => i64::from(number).to_le_bytes().to_vec(),
        _ => u64::from(number.unsigned_abs()).to_le_bytes().to_vec(),
    }
}

fn value(operator: usize, number: u8) -> Vec<u8> {
    match OPERATORS[operator] {
        "append_comma" => vec![b'A'; usize::from(number)],
        // A weight of zero that was put is a value.
        _ => u64::from(number).to_le_bytes().to_vec(),
    }
}

struct Run {
    env: Env,
    registry: Registry,
    db: Option<Db>,
    models: [Map; OPERATORS.len()],
    unlogged: bool,
    snapshots: Vec<(Snapshot, [Map; OPERATORS.len()])>,
}

impl Run {
    fn open(&mut self) {
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=8192"]).unwrap();
        let builder = Db::builder("file:///merging")
            .env(self.env.clone())
            .registry(self.registry.clone())
            .options(options)
            .operator(name("horner"), Operator::full(Horner));
        let db = self.db.insert(builder.take_over(TakeOver::Always).open().wait().unwrap());
        for operator in OPERATORS {
            db.open_or_create_keyspace(operator, self::options(operator)).wait().unwrap();
        }
    }

    fn keyspace(&self, number: usize) -> Keyspace {
        self.db.as_ref().unwrap().keyspace(OPERATORS[number]).unwrap()
    }

    fn model(&mut self, number: usize, key: u8, write: &Write) {
        let (key, model) = (key_of(key), &mut self.models[number]);
        let after = match write {
            Write::Put(put) => Some(value(number, *put)),
            Write::Delete => None,
            Write::Merge(by) => {
                merged(number, &key, model.get(&key).map(Vec::as_slice), &operand(number, *by))
            }
        };
        match after {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }

    fn write(&mut self, number: usize, key: u8, write: &Write, durability: Durability) {
        let (keyspace, bytes) = (self.keyspace(number), key_of(key));
        let op = match write {
            Write::Put(put) => keyspace.put_with(&bytes, value(number, *put), durability),
            Write::Delete => keyspace.delete_with(&bytes, durability),
            Write::Merge(by) => keyspace.merge_with(&bytes, operand(number, *by), durability),
        };
        op.wait().unwrap();
        self.model(number, key, write);
        self.unlogged |= durability == Durability::Unlogged;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write(number, key, write, durability) => self.write(number, key, &write, durability),
            Step::Batch(writes) => {
                let mut batch = Batch::new();
                for (number, key, write) in &writes {
                    let (keyspace, bytes) = (self.keyspace(*number), key_of(*key));
                    match write {
                        Write::Put(put) => batch.put(&keyspace, bytes, value(*number, *put)),
                        Write::Delete => batch.delete(&keyspace, bytes),
                        Write::Merge(by) => batch.merge(&keyspace, bytes, operand(*number, *by)),
                    };
                    self.model(*number, *key, write);
                }
                self.db.as_ref().unwrap().write(batch).wait().unwrap();
            }
            Step::Hammer(number, key, times) => {
                for _ in 0..times {
                    self.write(number, key, &Write::Merge(1), Durability::Accepted);
                }
            }
            Step::Get(number, key) => {
                let (keyspace, key) = (self.keyspace(number), key_of(key));
                let expected = self.models[number].get(&key).map(Vec::as_slice);
                assert_eq!(keyspace.get(&key).wait().unwrap().as_deref(), expected);
                assert_eq!(keyspace.get_with(&key, <[u8]>::to_vec).wait().unwrap().as_deref(), expected);
                let versioned = keyspace.get_versioned(&key).wait().unwrap();
                assert_eq!(versioned.as_ref().map(|found| &found.value[..]), expected);
            }
            Step::Snapshot => {
                self.snapshots.push((self.db.as_ref().unwrap().snapshot(), self.models.clone()));
            }
            Step::DropSnapshot => drop(self.snapshots.pop()),
            Step::Check => self.check(),
            Step::Flush => {
                self.db.as_ref().unwrap().flush().wait().unwrap();
                self.unlogged = false;
            }
            Step::Compact => {
                self.db.as_ref().unwrap().compact().wait().unwrap();
                self.unlogged = false;
            }
            Step::Close => {
                self.check();
                self.snapshots.clear();
                self.db.take().unwrap().close().wait().unwrap();
                (self.unlogged, _) = (false, self.open());
                self.check();
            }
            Step::TakeOver => {
                self.check();
                self.snapshots.clear();
                // What no log holds would be lost, rightly.
                if std::mem::take(&mut self.unlogged) {
                    self.db.as_ref().unwrap().flush().wait().unwrap();
                }
                let _old = self.db.take();
                self.open();
                self.check();
            }
        }
    }

    fn check(&self) {
        let keys: Vec<_> = (0..6).map(key_of).collect();
        for number in 0..OPERATORS.len() {
            let keyspace = self.keyspace(number);
            let model = &self.models[number];
            let mut scan = keyspace.scan::<&[u8]>(..);
            let forward: Map = scan
                .by_ref()
                .map(|entry| entry.unwrap())
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect();
            assert_eq!(forward, *model, "{} forward", OPERATORS[number]);
            let mut backward = Map::new();
            while let Some(entry) = scan.prev() {
                let (key, value) = entry.unwrap();
                backward.insert(key.to_vec(), value.to_vec());
            }
            assert_eq!(backward, *model, "{} backward", OPERATORS[number]);
            let several = keyspace.multi_get(&keys).wait().unwrap();
            for (key, found) in keys.iter().zip(several) {
                assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice), "{}", OPERATORS[number]);
            }
            for (snapshot, models) in &self.snapshots {
                let found: Map = snapshot
                    .scan::<&[u8]>(&keyspace, ..)
                    .map(|entry| entry.unwrap())
                    .map(|(key, value)| (key.to_vec(), value.to_vec()))
                    .collect();
                assert_eq!(found, models[number], "{} at a snapshot", OPERATORS[number]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if crate::is_deep() { 512 } else { 12 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn merges_are_folds_over_an_ordered_map(
        steps in proptest::collection::vec(step(), 0..150),
        seed in 0..u64::MAX
    ) {
        let world = World::new(seed);
        let mut run = Run {
            env: world.process("user").env(),
            registry: Registry::with_defaults(),
            db: None,
            models: Default::default(),
            unlogged: false,
            snapshots: Vec::new(),
        };
        run.open();
        steps.into_iter().for_each(|step| run.step(step));
        run.check();
    }
}

/// A database that is opened again and again.
struct Kept {
    uri: String,
    env: Env,
    registry: Registry,
}

impl Kept {
    fn new(name: &str) -> Kept {
        Kept { uri: format!("mem://merging-{name}"), env: Env::real(), registry: Registry::with_defaults() }
    }

    fn builder(&self) -> Builder {
        Db::builder(&self.uri).env(self.env.clone()).registry(self.registry.clone())
    }
}

fn number(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Without its operator, or with another version of it: what was never merged is read, merged keys
/// are refused by the operator's name, and nothing is lost on the way.
#[test]
fn a_keyspace_without_its_operator_loses_nothing() {
    let kept = Kept::new("missing");
    let with = || kept.builder().operator(name("horner@2"), Operator::full(Horner)).open().wait().unwrap();
    let db = with();
    let keys = db.create_keyspace("keys", options("horner@2")).wait().unwrap();
    keys.put("plain", number(1)).wait().unwrap();
    for round in 0..3 {
        keys.merge("merged", number(round)).wait().unwrap();
        db.flush().wait().unwrap();
    }
    let expected = keys.get("merged").wait().unwrap().unwrap().to_vec();
    drop((db, keys));
    for version in [None, Some("horner@1")] {
        let mut builder = kept.builder();
        if let Some(version) = version {
            builder = builder.operator(name(version), Operator::full(Horner));
        }
        let db = builder.open().wait().unwrap();
        let keys = db.keyspace("keys").unwrap();
        assert_eq!(keys.get("plain").wait().unwrap().unwrap(), number(1));
        for error in [
            keys.get("merged").wait().map(drop).unwrap_err(),
            keys.multi_get(&["plain", "merged"]).wait().map(drop).unwrap_err(),
            keys.scan::<&[u8]>(..).find_map(Result::err).unwrap(),
            keys.merge("merged", number(9)).wait().unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(
                error.kind() == ErrorKind::Unsupported && text.contains("\"horner\" of version 2"),
                "{text}"
            );
            assert_eq!(version.is_some(), text.contains("horner@1"), "{text}");
        }
        db.compact().wait().unwrap();
        assert_eq!(keys.get("plain").wait().unwrap().unwrap(), number(1));
        drop((db, keys));
    }
    let db = with();
    let keys = db.keyspace("keys").unwrap();
    assert_eq!(keys.get("merged").wait().unwrap().unwrap(), expected);
    db.compact().wait().unwrap();
    assert_eq!(keys.get("merged").wait().unwrap().unwrap(), expected);
}

#[derive(Default)]
struct Told(AtomicUsize);

impl Listener for Told {
    fn event(&self, event: &Event) {
        if matches!(event, Event::MergeFailed { error, .. } if error.to_string().contains("panicked")) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An operator that panics: reads of the keys that it is needed for fail, flushes and compactions
/// keep the operands and go on, which is told once.
#[test]
fn operands_survive_an_operator_that_panics() {
    let kept = Kept::new("failing");
    let told = Arc::new(Told::default());
    let open = || {
        kept.builder()
            .operator(name("failing"), Operator::associative(Failing))
            .listener(Arc::<Told>::clone(&told))
            .open()
            .wait()
            .unwrap()
    };
    let db = open();
    let keys = db.create_keyspace("keys", options("failing")).wait().unwrap();
    for _ in 0..3 {
        keys.merge("merged", b"x").wait().unwrap();
        keys.merge("merged", b"y").wait().unwrap();
        keys.put("plain", b"there").wait().unwrap();
        db.flush().wait().unwrap();
    }
    db.compact().wait().unwrap();
    let error = keys.get("merged").wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(keys.get("plain").wait().unwrap().unwrap(), b"there");
    db.close().wait().unwrap();
    assert_eq!(told.0.load(Ordering::Relaxed), 1, "told once");
    // One that is mended, of the same name, finds all operands.
    let mended = kept.builder().operator(name("failing"), Operator::append(b"")).open().wait().unwrap();
    let keys = mended.keyspace("keys").unwrap();
    assert_eq!(keys.get("merged").wait().unwrap().unwrap(), b"xyxyxy");
}

/// A refused one takes no effect, and says what to do.
#[test]
fn wrong_merges_are_refused() {
    let kept = Kept::new("wrong");
    let db = kept.builder().open().wait().unwrap();
    let plain = db.default_keyspace();
    let sums = db.create_keyspace("sums", options("add_u64")).wait().unwrap();
    let refused = |error: tombolo::Error, kind: ErrorKind, part: &str| {
        let text = error.to_string();
        assert!(error.kind() == kind && text.contains(part), "{text}");
    };
    refused(plain.merge("key", b"x").wait().unwrap_err(), ErrorKind::Invalid, "names no merge operator");
    refused(sums.merge("key", b"x").wait().unwrap_err(), ErrorKind::Invalid, "8 bytes");
    let mut batch = Batch::new();
    batch.put(&sums, "other", number(1)).merge(&sums, "key", b"x");
    refused(db.write(batch).wait().unwrap_err(), ErrorKind::Invalid, "8 bytes");
    assert_eq!(sums.get("other").wait().unwrap(), None);
    let unknown = db.create_keyspace("more", options("nobody@7")).wait().unwrap_err();
    refused(unknown, ErrorKind::Unsupported, "\"nobody\" of version 7");
    let changed = sums.set_options([("operator", "add_i64@1")]).wait().unwrap_err();
    refused(changed, ErrorKind::Invalid, "add_u64@1");
    refused(sums.set_options([("operator", "none")]).wait().unwrap_err(), ErrorKind::Invalid, "stays");
    // One that has no operator yet may get one.
    plain.set_options([("operator", "add_u64@1")]).wait().unwrap();
    plain.put("key", number(2)).wait().unwrap();
    plain.merge("key", number(3)).wait().unwrap();
    assert_eq!(plain.get("key").wait().unwrap().unwrap(), number(5));
    assert_eq!(plain.options().operator, Some(name("add_u64@1")));
}

/// A value that is no number, under a number that is added: reads of that key fail, and no others.
#[test]
fn a_value_that_the_operator_cannot_read_fails_alone() {
    let kept = Kept::new("unreadable");
    let db = kept.builder().open().wait().unwrap();
    let sums = db.create_keyspace("sums", options("add_u64")).wait().unwrap();
    sums.put("bad", b"no number").wait().unwrap();
    sums.merge("bad", number(1)).wait().unwrap();
    sums.merge("good", number(1)).wait().unwrap();
    for _ in 0..2 {
        let error = sums.get("bad").wait().unwrap_err();
        assert!(error.to_string().contains("add_u64@1"), "{error}");
        assert_eq!(sums.get("good").wait().unwrap().unwrap(), number(1));
        db.compact().wait().unwrap();
    }
    sums.put("bad", number(4)).wait().unwrap();
    assert_eq!(sums.get("bad").wait().unwrap().unwrap(), number(4));
}

/// A value that outgrows the limit stays unfolded, and its read says so; a put over it counts.
#[test]
fn a_value_beyond_the_limit_stays_unfolded() {
    let kept = Kept::new("large");
    let options = Options { memory_bytes: 1 << 30, ..Options::default() };
    let db = kept.builder().options(options).open().wait().unwrap();
    let keys = db.create_keyspace("keys", self::options("append")).wait().unwrap();
    let half = vec![b'x'; 33 << 20];
    for _ in 0..2 {
        keys.merge_with("large", &half, Durability::Unlogged).wait().unwrap();
        db.flush().wait().unwrap();
    }
    db.compact().wait().unwrap();
    let error = keys.get("large").wait().unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("too large"), "{error}");
    keys.put("large", b"small").wait().unwrap();
    keys.merge("large", b" again").wait().unwrap();
    assert_eq!(keys.get("large").wait().unwrap().unwrap(), b"small again");
}

/// Lists of many keys, over tables of several levels that are compacted in parts: none loses an
/// operand where a job is cut, nor where one of its tables ends.
fn operands_stay_where_a_compaction_is_cut() {
    let world = World::new(1);
    let env = world.process("p").env();
    let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=65536"]).unwrap();
    let db = Db::builder("mem://cut").env(env).registry(Registry::with_defaults()).options(options);
    let db = db.open().wait().unwrap();
    let settings = KeyspaceOptions { compression: Compression::None, ..self::options("append_comma") };
    let keys = db.create_keyspace("keys", settings).wait().unwrap();
    let mut lists = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    let mut snapshot = None;
    for round in 0..6_u64 {
        for key in 0..500_u64 {
            let place = (key * 7 + round) % 500;
            let (name, operand) = (place.to_be_bytes(), format!("{round:0250}"));
            keys.merge_with(name, &operand, Durability::Accepted).wait().unwrap();
            let value = lists.entry(name.to_vec()).or_default();
            if !value.is_empty() {
                value.push(b',');
            }
            value.extend_from_slice(operand.as_bytes());
        }
        if round == 2 {
            snapshot = Some((db.snapshot(), lists.clone()));
        }
        if round == 4 {
            db.compact().wait().unwrap();
        }
    }
    db.compact().wait().unwrap();
    assert!(keys.table_properties().unwrap().len() > 3, "nothing was cut");
    let found = |scan: tombolo::Scan| -> Map {
        scan.map(|entry| entry.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    let gets = |wanted: &Map| {
        wanted.iter().all(|(key, value)| keys.get(key).wait().unwrap().is_some_and(|got| *got == value[..]))
    };
    assert!(found(keys.scan::<&[u8]>(..)) == lists && gets(&lists));
    let (snapshot, then) = snapshot.unwrap();
    assert!(found(snapshot.scan::<&[u8]>(&keys, ..)) == then);
    drop(snapshot);
    db.compact().wait().unwrap();
    assert!(found(keys.scan::<&[u8]>(..)) == lists && gets(&lists));
    assert!(db.verify().wait().unwrap().damage.is_empty());
}

#[test]
fn no_operand_is_lost_where_a_compaction_is_cut() {
    operands_stay_where_a_compaction_is_cut();
}

#[cfg(feature = "mutants")]
#[test]
fn operands_lost_where_a_compaction_is_cut_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::OutputCutWithinKey, operands_stay_where_a_compaction_is_cut);
    notices(Mutant::PartForgetsWhatItHolds, operands_stay_where_a_compaction_is_cut);
}

/// Operands that a read has joined in memory, and what lies between the reads: range deletes,
/// values, snapshots of before, and a flush.
#[test]
fn joined_operands_give_way_to_what_came_between() {
    let world = World::new(1);
    let env = world.process("p").env();
    let db = Db::builder("mem://joined").env(env).registry(Registry::with_defaults()).open().wait().unwrap();
    let keyspace = db.create_keyspace("k", options("add_u64")).wait().unwrap();
    let get =
        || keyspace.get("key").wait().unwrap().map(|value| u64::from_le_bytes((*value).try_into().unwrap()));
    let (mut sum, mut older) = (0u64, Vec::new());
    for round in 0..300u64 {
        keyspace.merge("key", round.to_le_bytes()).wait().unwrap();
        sum += round;
        match round % 100 {
            40 => {
                keyspace.delete_range("a", "z").wait().unwrap();
                assert_eq!(get(), None);
                sum = 0;
            }
            70 => {
                keyspace.put("key", 5u64.to_le_bytes()).wait().unwrap();
                sum = 5;
            }
            95 => {
                keyspace.delete("key").wait().unwrap();
                sum = 0;
            }
            _ => {}
        }
        if round % 3 == 0 {
            older.push((db.snapshot(), get().unwrap_or(0)));
        }
        if round % 100 != 40 && round % 100 != 95 {
            assert_eq!(get(), Some(sum), "round {round}");
        }
        if round == 250 {
            db.flush().wait().unwrap();
        }
    }
    for (snapshot, expected) in older.iter().rev() {
        let found = snapshot.get(&keyspace, "key").wait().unwrap();
        let found = found.map_or(0, |value| u64::from_le_bytes((*value).try_into().unwrap()));
        assert_eq!(found, *expected);
    }
}
