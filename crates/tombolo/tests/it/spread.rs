//! Counts, equal parts and samples of ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tombolo::{Db, Durability, Env, ErrorKind, Keyspace, KeyspaceOptions, Options};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore};

/// A database on the caller's thread, where mutants are on, and its world.
fn simulated() -> (World, Db) {
    let world = World::new(1);
    let env = world.process("p").env();
    (world, open_in(env, "mem://counts"))
}

fn open(uri: &str) -> Db {
    open_in(Env::real(), uri)
}

fn open_in(env: Env, uri: &str) -> Db {
    let mut options = Options::parse(["memory_bytes=16777216", "memtable_bytes=4194304"]).unwrap();
    options.automatic_compaction = false;
    // Tests of mutants run the same beside it, and stores in memory are the process's.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let uri = format!("{uri}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    Db::builder(uri).env(env).options(options).open().wait().unwrap()
}

/// Of small blocks, so that a table has many, and several partitions.
fn create(db: &Db) -> Keyspace {
    let options = KeyspaceOptions { block_bytes: Some(1024), ..KeyspaceOptions::default() };
    db.create_keyspace("k", options).wait().unwrap()
}

struct Numbers {
    _world: World,
    db: Db,
    keys: Keyspace,
    there: BTreeSet<u32>,
    seed: u64,
}

impl Numbers {
    fn new() -> Numbers {
        let (world, db) = simulated();
        Numbers { keys: create(&db), _world: world, db, there: BTreeSet::new(), seed: 7 }
    }

    fn put(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            let value = [7; 40];
            self.keys.put_with(number.to_be_bytes(), value, Durability::Accepted).wait().unwrap();
            self.there.insert(number);
        }
    }

    fn delete(&mut self, number: u32) {
        self.keys.delete_with(number.to_be_bytes(), Durability::Accepted).wait().unwrap();
        self.there.remove(&number);
    }

    fn delete_range(&mut self, from: u32, to: u32) {
        self.keys.delete_range(from.to_be_bytes(), to.to_be_bytes()).wait().unwrap();
        self.there.retain(|number| !(from..to).contains(number));
    }

    fn random(&mut self, bound: u32) -> u32 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as u32 % bound
    }

    fn bound(&mut self) -> Bound<u32> {
        let at = self.random(12_000);
        match self.random(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(at),
            _ => Bound::Excluded(at),
        }
    }

    /// Counts of many ranges, and of all.
    fn check(&mut self) {
        assert_eq!(self.keys.count::<&[u8]>(..).wait().unwrap(), self.there.len() as u64);
        for _ in 0..40 {
            let (lower, upper) = (self.bound(), self.bound());
            let range = (lower, upper);
            let wanted = self.there.iter().filter(|number| range.contains(number)).count() as u64;
            let encoded = (lower.map(u32::to_be_bytes), upper.map(u32::to_be_bytes));
            assert_eq!(self.keys.count(encoded).wait().unwrap(), wanted, "{range:?}");
        }
    }
}

fn counts_are_exact() {
    let mut numbers = Numbers::new();
    numbers.check();
    numbers.put((0..8_000).map(|number| number * 3 / 2));
    numbers.check();
    numbers.db.flush().wait().unwrap();
    // From the table alone.
    numbers.check();
    // Over it, in memory: near and far from each other.
    numbers.put([1, 5_000, 5_001, 11_999, 12_500]);
    numbers.check();
    numbers.delete(1_500);
    numbers.delete_range(7_000, 7_100);
    numbers.check();
    let (snapshot, before) = (numbers.db.snapshot(), numbers.there.len() as u64);
    numbers.put(20_000..20_500);
    numbers.db.flush().wait().unwrap();
    // A table of keys of its own, all of them newer than the snapshot.
    assert_eq!(snapshot.count::<&[u8]>(&numbers.keys, ..).wait().unwrap(), before);
    numbers.check();
    numbers.db.compact().wait().unwrap();
    numbers.check();
    assert_eq!(snapshot.count::<&[u8]>(&numbers.keys, ..).wait().unwrap(), before);
    drop(snapshot);
    numbers.db.compact().wait().unwrap();
    numbers.check();
    // A second table, over some keys of the first.
    numbers.put(4_000..4_400);
    numbers.delete(4_500);
    numbers.db.flush().wait().unwrap();
    numbers.check();
}

#[test]
fn a_count_is_that_of_a_scan() {
    counts_are_exact();
}

#[cfg(feature = "mutants")]
#[test]
fn a_count_that_looks_at_less_is_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::CountIgnoresMemtables, counts_are_exact);
    notices(Mutant::CountIgnoresOtherTables, counts_are_exact);
    notices(Mutant::CountIgnoresMoment, counts_are_exact);
}

#[test]
fn keys_that_end_and_operands_are_counted_by_what_they_give() {
    let db = open("mem://counts-of-others");
    let operator = Some(tombolo::OperatorName::parse("append_comma").unwrap());
    let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
    let keys = db.create_keyspace("merged", options).wait().unwrap();
    for number in 0..100_u8 {
        keys.put([number], "x").wait().unwrap();
        keys.merge([number / 2], "y").wait().unwrap();
    }
    db.flush().wait().unwrap();
    assert_eq!(keys.count::<&[u8]>(..).wait().unwrap(), 100);
    db.compact().wait().unwrap();
    assert_eq!(keys.count([10_u8]..[20]).wait().unwrap(), 10);
}

#[test]
fn a_table_alone_is_counted_without_reading_it() {
    let mut numbers = Numbers::new();
    numbers.put(0..30_000);
    numbers.db.flush().wait().unwrap();
    numbers.db.compact().wait().unwrap();
    let reads = |db: &Db| db.requests().counted.iter().map(|counted| counted.requests).sum::<u64>();
    let before = reads(&numbers.db);
    assert_eq!(numbers.keys.count::<&[u8]>(..).wait().unwrap(), 30_000);
    let (from, to) = (10_001_u32.to_be_bytes(), 29_002_u32.to_be_bytes());
    assert_eq!(numbers.keys.count(from..to).wait().unwrap(), 19_001);
    let read = reads(&numbers.db) - before;
    assert!(read < 40, "{read} requests, of a table with some thousand blocks");
}

#[test]
fn parts_are_about_equal() {
    let mut numbers = Numbers::new();
    assert_eq!(numbers.keys.split_points::<&[u8]>(.., 4).wait().unwrap(), [] as [&[u8]; 0]);
    let check = |numbers: &Numbers, parts: usize| {
        let cuts = numbers.keys.split_points::<&[u8]>(.., parts).wait().unwrap();
        assert!(cuts.is_sorted() && cuts.len() < parts, "{cuts:?}");
        let mut rest: BTreeMap<&[u8], u64> = cuts.iter().map(|cut| (&cut[..], 0)).collect();
        let last = numbers.there.iter().filter(|number| {
            let key = number.to_be_bytes();
            let part = rest.range_mut::<[u8], _>((Bound::Excluded(&key[..]), Bound::Unbounded)).next();
            part.map(|(_, count)| *count += 1).is_none()
        });
        let last = last.count() as u64;
        let counts: Vec<u64> = rest.into_values().chain([last]).collect();
        let fair = numbers.there.len() as u64 / parts as u64;
        assert_eq!(counts.len(), parts, "{counts:?}");
        assert!(counts.iter().all(|count| (fair / 2..=fair * 2).contains(count)), "{counts:?} of {fair}");
    };
    numbers.put(0..3_000);
    check(&numbers, 4);
    numbers.db.flush().wait().unwrap();
    check(&numbers, 4);
    check(&numbers, 16);
    numbers.put(3_000..12_000);
    check(&numbers, 4);
    numbers.db.flush().wait().unwrap();
    numbers.db.compact().wait().unwrap();
    check(&numbers, 2);
    check(&numbers, 30);
    let within = numbers.keys.split_points(100_u32.to_be_bytes()..900_u32.to_be_bytes(), 3).wait().unwrap();
    assert!(within.iter().all(|cut| (100..900).contains(&u32::from_be_bytes(cut[..4].try_into().unwrap()))));
    numbers.keys.split_points::<&[u8]>(.., 0).wait().unwrap_err();
}

#[test]
fn samples_are_of_what_is_there() {
    let mut numbers = Numbers::new();
    numbers.put((0..20_000).map(|number| number * 2));
    numbers.db.flush().wait().unwrap();
    numbers.delete_range(1_000, 9_000);
    numbers.put(50_000..53_000);
    let number = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
    let sample = |keys: &Keyspace, wanted| -> Vec<u32> {
        let entries = keys.sample::<&[u8]>(.., wanted).wait().unwrap();
        entries.iter().map(|(key, value)| (number(key), assert_eq!(value[..], [7; 40])).0).collect()
    };
    let drawn = sample(&numbers.keys, 500);
    assert_eq!(drawn.len(), 500);
    assert!(drawn.windows(2).all(|two| two[0] < two[1]), "{drawn:?}");
    assert!(drawn.iter().all(|number| numbers.there.contains(number)), "{drawn:?}");
    // About as many as there are of each kind.
    let in_memory = drawn.iter().filter(|number| **number >= 50_000).count();
    assert!((30..200).contains(&in_memory), "{in_memory} of 500 from 3,000 of 19,000");
    // A walk gives all where there are no more.
    let few = numbers.keys.sample(40_u32.to_be_bytes()..60_u32.to_be_bytes(), 50).wait().unwrap();
    assert_eq!(
        few.iter().map(|(key, _)| number(key)).collect::<Vec<_>>(),
        (20..30).map(|n| n * 2).collect::<Vec<_>>()
    );
    assert_eq!(numbers.keys.sample::<&[u8]>(.., 0).wait().unwrap().len(), 0);
}

fn sampled(keys: &Keyspace, range: impl RangeBounds<[u8; 4]>, wanted: usize) -> Vec<u32> {
    let entries = keys.sample(range, wanted).wait().unwrap();
    entries.iter().map(|(key, _)| u32::from_be_bytes(key[..].try_into().unwrap())).collect()
}

/// Of several tables each has its part of a sample, and the first blocks of them no more than
/// others.
#[test]
fn each_table_has_its_part_of_a_sample() {
    const TABLES: u32 = 8;
    let (_world, db) = simulated();
    // Three blocks a table.
    let options = KeyspaceOptions { block_bytes: Some(16 << 10), ..KeyspaceOptions::default() };
    let keys = db.create_keyspace("k", options).wait().unwrap();
    for table in 0..TABLES {
        for number in 0..1000 {
            let key = (table * 1000 + number).to_be_bytes();
            keys.put_with(key, [7; 40], Durability::Accepted).wait().unwrap();
        }
        db.flush().wait().unwrap();
    }
    let drawn = sampled(&keys, .., 400);
    assert_eq!(drawn.len(), 400);
    for table in 0..TABLES {
        let of_table = drawn.iter().filter(|number| **number / 1000 == table).count();
        assert!((25..90).contains(&of_table), "{of_table} of 400 from table {table} of {TABLES}");
    }
}

/// A table that reaches beyond the range counts by what lies within it.
#[test]
fn a_sample_weighs_what_lies_in_the_range() {
    let mut numbers = Numbers::new();
    numbers.put(0..40_000);
    numbers.db.flush().wait().unwrap();
    numbers.put(50_000..53_000);
    numbers.db.flush().wait().unwrap();
    let drawn = sampled(&numbers.keys, 37_000_u32.to_be_bytes().., 400);
    assert_eq!(drawn.len(), 400);
    assert!(drawn.iter().all(|number| *number >= 37_000));
    let of_large = drawn.iter().filter(|number| **number < 40_000).count();
    assert!((140..260).contains(&of_large), "{of_large} of 400 from 3,000 of 6,000");
}

/// Only tables that are drawn from are opened.
#[test]
fn a_sample_opens_few_tables() {
    let world = World::new(3);
    let env = world.process("p").env();
    let plan = FaultPlan::scripted();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let objects: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, objects, plan.clone()));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
    let open = || {
        let mut options = Options::parse(["memory_bytes=2097152", "memtable_bytes=65536"]).unwrap();
        options.automatic_compaction = false;
        let builder = Db::builder("mem://few").env(env.clone()).options(options);
        builder.stores(Arc::clone(&objects), Arc::clone(&log)).open().wait().unwrap()
    };
    let db = open();
    let plain = KeyspaceOptions { compression: tombolo::Compression::None, ..KeyspaceOptions::default() };
    let keys = db.create_keyspace("k", plain).wait().unwrap();
    for number in 0..5000_u32 {
        keys.put_with(number.to_be_bytes(), [7; 300], Durability::Accepted).wait().unwrap();
    }
    db.compact().wait().unwrap();
    let tables = usize::try_from(db.stats().tables).unwrap();
    assert!(tables >= 6, "{tables} tables");
    db.close().wait().unwrap();
    let db = open();
    let read: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let noted = Arc::clone(&read);
    let notes = move |asked: &Asked<'_>| {
        if asked.kind == RequestKind::Read && asked.name.contains("/table/") {
            noted.lock().unwrap().insert(asked.name.to_string());
        }
        false
    };
    plan.inject(Rule::new(notes, Fault::Error(ErrorKind::Bug)));
    assert_eq!(sampled(&db.keyspace("k").unwrap(), .., 1).len(), 1);
    let read = read.lock().unwrap().len();
    assert!((1..=tables / 2).contains(&read), "{read} of {tables} tables were read");
}

/// All that differs between two cursors, and at how many keys it was looked.
fn differences(mut before: tombolo::Cursor, mut after: tombolo::Cursor) -> (Vec<Difference>, usize) {
    let mut differing = before.differing(&after).unwrap();
    let (mut found, mut looks, mut from) = (Vec::new(), 0, Vec::new());
    while let Some(candidate) = differing.next(&from).unwrap() {
        looks += 1;
        before.advance_to(&candidate).unwrap();
        after.advance_to(&candidate).unwrap();
        let at = |cursor: &tombolo::Cursor| cursor.valid().then(|| cursor.key().to_vec());
        let Some(key) = [at(&before), at(&after)].into_iter().flatten().min() else { break };
        let value =
            |cursor: &tombolo::Cursor| (at(cursor).as_ref() == Some(&key)).then(|| cursor.value().to_vec());
        if value(&before) != value(&after) {
            found.push((key.clone(), value(&before), value(&after)));
        }
        from = key;
        from.push(0);
    }
    (found, looks)
}

type Difference = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

fn plain_differences(before: tombolo::Cursor, after: tombolo::Cursor) -> Vec<Difference> {
    let all = |mut cursor: tombolo::Cursor| {
        let mut found = BTreeMap::new();
        while cursor.next().unwrap() {
            found.insert(cursor.key().to_vec(), cursor.value().to_vec());
        }
        found
    };
    let (before, after) = (all(before), all(after));
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).cloned().collect();
    let pairs = keys.into_iter().map(|key| (before.get(&key).cloned(), after.get(&key).cloned(), key));
    pairs
        .filter(|(before, after, _)| before != after)
        .map(|(before, after, key)| (key, before, after))
        .collect()
}

fn every_difference_is_found() {
    let mut numbers = Numbers::new();
    numbers.put(0..4_000);
    numbers.db.flush().wait().unwrap();
    numbers.db.compact().wait().unwrap();
    let snapshots = [numbers.db.snapshot()];
    let keys = numbers.keys.clone();
    let check = |numbers: &Numbers, looks_max: usize| {
        let old = || snapshots[0].cursor::<&[u8]>(&keys, ..);
        let (found, looks) = differences(old(), keys.cursor::<&[u8]>(..));
        assert_eq!(found, plain_differences(old(), keys.cursor::<&[u8]>(..)));
        assert!(looks <= looks_max, "{looks} looks for {} differences", found.len());
        let part = (Bound::Included(500_u32.to_be_bytes()), Bound::Excluded(3_000_u32.to_be_bytes()));
        let old = || snapshots[0].cursor(&numbers.keys, part);
        assert_eq!(differences(old(), keys.cursor(part)).0, plain_differences(old(), keys.cursor(part)));
    };
    check(&numbers, 0);
    numbers.keys.put(700_u32.to_be_bytes(), "changed").wait().unwrap();
    numbers.delete(800);
    numbers.put([5_000]);
    check(&numbers, 3);
    numbers.db.flush().wait().unwrap();
    check(&numbers, 3);
    numbers.delete_range(1_000, 1_050);
    check(&numbers, 60);
    numbers.db.flush().wait().unwrap();
    check(&numbers, 60);
    drop(snapshots);
}

/// Of two databases: a checkpoint, and what goes on from it.
fn every_difference_from_a_checkpoint_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || {
        let mut options = Options::parse(["memory_bytes=16777216", "memtable_bytes=4194304"]).unwrap();
        options.automatic_compaction = false;
        Db::builder(format!("file://{}/db", directory.path().display())).env(Env::real()).options(options)
    };
    let db = builder().open().wait().unwrap();
    let keys = create(&db);
    for number in 0..3_000_u32 {
        keys.put_with(number.to_be_bytes(), [7; 40], Durability::Accepted).wait().unwrap();
    }
    db.flush().wait().unwrap();
    db.compact().wait().unwrap();
    let before = db.checkpoint("before").wait().unwrap();
    let old = builder().at_checkpoint("before").open_read_only().wait().unwrap();
    let check = |looks_max: usize| {
        let old = || old.keyspace("k").unwrap().cursor::<&[u8]>(..);
        let (found, looks) = differences(old(), keys.cursor::<&[u8]>(..));
        assert_eq!(found, plain_differences(old(), keys.cursor::<&[u8]>(..)));
        assert!(looks <= looks_max, "{looks} looks for {} differences", found.len());
        found.len()
    };
    assert_eq!(check(0), 0);
    for number in [1_u32, 2_000, 9_000] {
        keys.put(number.to_be_bytes(), "changed").wait().unwrap();
    }
    keys.delete(2_500_u32.to_be_bytes()).wait().unwrap();
    assert_eq!(check(4), 4);
    db.flush().wait().unwrap();
    assert_eq!(check(4), 4);
    // Now the deleted key is in nothing but the table that left.
    db.compact().wait().unwrap();
    assert_eq!(check(usize::MAX), 4);
    drop(before);
    db.close().wait().unwrap();
}

#[test]
fn differences_of_two_moments_are_found_where_something_came_or_left() {
    every_difference_is_found();
    every_difference_from_a_checkpoint_is_found();
}

#[cfg(feature = "mutants")]
#[test]
fn a_search_for_differences_that_looks_at_less_is_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::DifferenceIgnoresMemtables, every_difference_is_found);
    notices(Mutant::DifferenceIgnoresGone, every_difference_from_a_checkpoint_is_found);
}
