//! Random operations against an ordered map, with snapshots, scans both ways, flushes, compactions,
//! reopenings and takeovers between: in simulated worlds, and on a real store when one is named
//! (`cargo xtask real --stage model` does so).

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tombolo::{
    Batch, Compression, Db, Durability, Env, ErrorKind, KeyspaceOptions, Options, Registry, Snapshot,
    TakeOver,
};
use tombolo_env::simulated::World;
use tombolo_storage::Uri;

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u8, u16, Durability),
    Delete(usize, u8, Durability),
    Batch(Vec<(usize, u8, Option<u16>)>),
    Get(usize, u8),
    MultiGet(usize, Vec<u8>),
    Scan(usize, Bound<u8>, Bound<u8>),
    /// `Some(true)`: next, `Some(false)`: prev, `None`: seek to the key.
    Walk(usize, Vec<(Option<bool>, u8)>),
    Snapshot,
    DropSnapshot,
    ReadSnapshot,
    Flush,
    Compact,
    Close,
    TakeOver,
    Verify,
}

fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![Just(Durability::Unlogged), Just(Durability::Accepted), Just(Durability::Durable)]
}

fn bound() -> impl Strategy<Value = Bound<u8>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0..40u8).prop_map(Bound::Included),
        (0..40u8).prop_map(Bound::Excluded)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..40u8;
    prop_oneof![
        12 => (0..2usize, key.clone(), any::<u16>(), durability()).prop_map(
            |(k, key, value, durability)| Step::Put(k, key, value, durability)
        ),
        4 => (0..2usize, key.clone(), durability()).prop_map(
            |(k, key, durability)| Step::Delete(k, key, durability)
        ),
        4 => proptest::collection::vec(
            (0..2usize, key.clone(), any::<Option<u16>>()), 0..6
        ).prop_map(Step::Batch),
        4 => (0..2usize, key.clone()).prop_map(|(k, key)| Step::Get(k, key)),
        1 => (0..2usize, proptest::collection::vec(key.clone(), 0..8)).prop_map(
            |(k, keys)| Step::MultiGet(k, keys)
        ),
        2 => (0..2usize, bound(), bound()).prop_map(|(k, lower, upper)| Step::Scan(k, lower, upper)),
        2 => (
            0..2usize, proptest::collection::vec((any::<Option<bool>>(), key), 0..20)
        ).prop_map(|(k, moves)| Step::Walk(k, moves)),
        1 => Just(Step::Snapshot),
        1 => Just(Step::DropSnapshot),
        1 => Just(Step::ReadSnapshot),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Close),
        1 => Just(Step::TakeOver),
        1 => Just(Step::Verify),
    ]
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = [Map; 2];

fn key_of(key: u8) -> Vec<u8> {
    format!("key-{:0width$}", key, width = usize::from(key % 3) * 6 + 2).into_bytes()
}

/// Small and large values, so that blocks hold one or many.
fn value_of(value: u16) -> Vec<u8> {
    vec![value as u8; usize::from(value) % if value.is_multiple_of(16) { 9000 } else { 200 }]
}

const NAMES: [&str; 2] = ["default", "second"];

struct Run {
    env: Env,
    registry: Registry,
    uri: String,
    db: Option<Db>,
    model: Model,
    /// Whether unlogged writes wait for a flush: a takeover without one would lose them.
    unlogged: bool,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Run {
    fn open(&mut self) -> &Db {
        let mut options = Options::parse(["memory_bytes=1048576", "memtable_bytes=16384"]).unwrap();
        options.automatic_compaction = self.model[0].len().is_multiple_of(2);
        let builder =
            Db::builder(&self.uri).env(self.env.clone()).registry(self.registry.clone()).options(options);
        let db = self.db.insert(builder.take_over(TakeOver::Always).open().wait().unwrap());
        if db.keyspace(NAMES[1]).is_err() {
            let options = KeyspaceOptions {
                block_bytes: Some(1024),
                compression: Compression::Zstd,
                separate_bytes: 512,
                ..KeyspaceOptions::default()
            };
            db.create_keyspace(NAMES[1], options).wait().unwrap();
        }
        db
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn keyspace(&self, number: usize) -> tombolo::Keyspace {
        self.db().keyspace(NAMES[number]).unwrap()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(number, key, value, durability) => {
                self.keyspace(number).put_with(key_of(key), value_of(value), durability).wait().unwrap();
                self.model[number].insert(key_of(key), value_of(value));
                self.unlogged |= durability == Durability::Unlogged;
            }
            Step::Delete(number, key, durability) => {
                self.keyspace(number).delete_with(key_of(key), durability).wait().unwrap();
                self.model[number].remove(&key_of(key));
                self.unlogged |= durability == Durability::Unlogged;
            }
            Step::Batch(entries) => self.batch(entries),
            Step::Get(number, key) => {
                let found =
                    self.keyspace(number).get(key_of(key)).wait().unwrap().map(|value| value.to_vec());
                assert_eq!(found, self.model[number].get(&key_of(key)).cloned());
                let here = self.db().blocking().keyspace(NAMES[number]).unwrap();
                assert_eq!(here.get_with(key_of(key), <[u8]>::to_vec).unwrap(), found);
            }
            Step::MultiGet(number, keys) => {
                let keys: Vec<_> = keys.into_iter().map(key_of).collect();
                let found = self.keyspace(number).multi_get(&keys).wait().unwrap();
                let here = self.db().blocking().keyspace(NAMES[number]).unwrap().multi_get(&keys).unwrap();
                for ((key, found), here) in keys.iter().zip(found).zip(here) {
                    let expected = self.model[number].get(key).map(Vec::as_slice);
                    assert_eq!((found.as_deref(), here.as_deref()), (expected, expected));
                }
            }
            Step::Scan(number, lower, upper) => self.scan(number, lower, upper),
            Step::Walk(number, moves) => self.walk(number, moves),
            Step::Snapshot => self.snapshots.push((self.db().snapshot(), self.model.clone())),
            Step::DropSnapshot => drop(self.snapshots.pop()),
            Step::ReadSnapshot => self.check_snapshots(),
            Step::Flush => {
                self.db().flush().wait().unwrap();
                self.unlogged = false;
            }
            Step::Compact => {
                self.db().compact().wait().unwrap();
                self.unlogged = false;
            }
            Step::Close => {
                self.check_snapshots();
                self.snapshots.clear();
                self.db().close().wait().unwrap();
                self.open();
                self.unlogged = false;
                self.check_all();
            }
            Step::TakeOver => self.take_over(),
            Step::Verify => assert_eq!(self.db().verify().wait().unwrap().damage, Vec::<String>::new()),
        }
    }

    fn batch(&mut self, entries: Vec<(usize, u8, Option<u16>)>) {
        let mut batch = Batch::new();
        for (number, key, value) in entries {
            match value {
                Some(value) => {
                    batch.put(&self.keyspace(number), key_of(key), value_of(value));
                    self.model[number].insert(key_of(key), value_of(value));
                }
                None => {
                    batch.delete(&self.keyspace(number), key_of(key));
                    self.model[number].remove(&key_of(key));
                }
            }
        }
        self.db().write(batch).wait().unwrap();
    }

    fn scan(&self, number: usize, lower: Bound<u8>, upper: Bound<u8>) {
        let (lower, upper) = (lower.map(key_of), upper.map(key_of));
        let expected: Vec<_> = self.model[number]
            .iter()
            .filter(|(key, _)| (lower.clone(), upper.clone()).contains(*key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut scan = self.keyspace(number).scan((lower, upper));
        let forward: Vec<_> = scan
            .by_ref()
            .map(|entry| entry.unwrap())
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect();
        assert_eq!(forward, expected);
        let mut backward = Vec::new();
        while let Some(entry) = scan.prev() {
            let (key, value) = entry.unwrap();
            backward.push((key.to_vec(), value.to_vec()));
        }
        backward.reverse();
        assert_eq!(backward, expected);
    }

    fn walk(&self, number: usize, moves: Vec<(Option<bool>, u8)>) {
        let entries: Vec<_> = self.model[number].keys().cloned().collect();
        let mut scan = self.keyspace(number).scan::<&[u8]>(..);
        // The gap before `entries[gap]`.
        let mut gap = 0;
        for (direction, key) in moves {
            match direction {
                Some(true) => {
                    assert_eq!(scan.next().map(|entry| entry.unwrap().0.to_vec()), entries.get(gap).cloned());
                    gap = (gap + 1).min(entries.len());
                }
                Some(false) => {
                    let before = gap.checked_sub(1);
                    assert_eq!(
                        scan.prev().map(|entry| entry.unwrap().0.to_vec()),
                        before.map(|gap| entries[gap].clone())
                    );
                    gap = before.unwrap_or(0);
                }
                None => {
                    scan.seek(key_of(key));
                    gap = entries.partition_point(|entry| *entry < key_of(key));
                }
            }
        }
    }

    fn check_snapshots(&self) {
        for (snapshot, model) in &self.snapshots {
            for (number, map) in model.iter().enumerate() {
                let keyspace = self.keyspace(number);
                let found: Vec<_> =
                    snapshot.scan::<&[u8]>(&keyspace, ..).map(|entry| entry.unwrap()).collect();
                assert_eq!(found.len(), map.len(), "at {}", snapshot.sequence());
                for ((key, value), (expected_key, expected_value)) in found.iter().zip(map) {
                    assert_eq!((&key[..], &value[..]), (&expected_key[..], &expected_value[..]));
                    assert_eq!(snapshot.get(&keyspace, key).wait().unwrap().as_ref(), Some(value));
                }
            }
        }
    }

    fn take_over(&mut self) {
        self.check_snapshots();
        self.snapshots.clear();
        // What no log holds would be lost, rightly.
        if std::mem::take(&mut self.unlogged) {
            self.db().flush().wait().unwrap();
        }
        let old = self.db.take().unwrap();
        self.open();
        let stale = old.default_keyspace().put(b"stale", b"never").wait();
        assert_eq!(stale.unwrap_err().kind(), ErrorKind::Fenced);
        self.check_all();
    }

    fn check_all(&self) {
        for number in 0..NAMES.len() {
            self.scan(number, Bound::Unbounded, Bound::Unbounded);
        }
    }
}

fn run(env: Env, uri: &str, steps: Vec<Step>) {
    let model = Model::default();
    let registry = Registry::with_defaults();
    let mut run =
        Run { env, registry, uri: uri.to_owned(), db: None, model, unlogged: false, snapshots: Vec::new() };
    run.open();
    steps.into_iter().for_each(|step| run.step(step));
    run.check_snapshots();
    run.check_all();
}

fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { cases: count, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(if crate::is_deep() { 512 } else { 16 }))]
    #[test]
    fn a_database_in_memory_is_an_ordered_map(
        steps in proptest::collection::vec(step(), 0..120),
        seed in 0..u64::MAX
    ) {
        let world = World::new(seed);
        run(world.process("user").env(), "mem://model", steps);
    }

    #[test]
    fn a_database_on_a_disk_is_an_ordered_map(
        steps in proptest::collection::vec(step(), 0..120),
        seed in 0..u64::MAX
    ) {
        let world = World::new(seed);
        run(world.process("user").env(), "file:///db", steps);
    }
}

/// The URI below which databases are made on a real store, and for how many seconds.
const STORE: &str = "TOMBOLO_TEST_STORE";
const SECONDS: &str = "TOMBOLO_TEST_SECONDS";

/// Each case has a database of its own, which is destroyed when the case has passed.
#[test]
fn a_database_on_the_store_that_is_named_is_an_ordered_map() {
    let Ok(store) = std::env::var(STORE) else {
        eprintln!("skipped: {STORE} names no store");
        return;
    };
    let seconds = std::env::var(SECONDS).map_or(30, |text| text.parse().unwrap());
    let env = Env::real();
    let end = env.now() + std::time::Duration::from_secs(seconds);
    let databases = std::cell::Cell::new(0);
    while env.now() < end {
        let steps = proptest::collection::vec(step(), 0..120);
        // Each has chance of its own, and is done once it has seen as many cases as it is to see.
        let mut runner = TestRunner::new(ProptestConfig { max_shrink_iters: 100, ..cases(1) });
        let ran = runner.run(&steps, |steps| {
            databases.set(databases.get() + 1);
            let mut uri = Uri::parse(&store).unwrap();
            uri.rest = format!("{}-{:016x}", uri.rest, env.random_u64());
            run(env.clone(), &uri.to_string(), steps);
            Db::builder(uri.to_string()).env(env.clone()).destroy().wait().unwrap();
            Ok(())
        });
        ran.unwrap_or_else(|failure| panic!("on the store of {STORE}: {failure}"));
    }
    println!("{} databases on {} were ordered maps", databases.get(), Uri::parse(&store).unwrap().scheme);
    assert!(databases.get() > 0);
}
