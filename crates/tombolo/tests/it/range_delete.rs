//! Range deletes: what they hide, from whom, and for how long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tombolo::{Batch, Db, ErrorKind, Keyspace, Options, Snapshot, TakeOver};
use tombolo_env::simulated;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

type Plain = BTreeMap<Vec<u8>, Vec<u8>>;

/// Opens databases in memory, again and again at one place.
struct World(String);

impl World {
    fn new() -> World {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        World(format!("mem://ranges-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
    }

    fn open(&self, options: Options) -> Db {
        Db::builder(&self.0).options(options).open().wait().unwrap()
    }
}

fn small() -> Options {
    Options { memory_bytes: 64 << 20, memtable_bytes: Some(16 << 10), ..Options::default() }
}

fn keys(keyspace: &Keyspace) -> Vec<String> {
    let text = |entry: tombolo::Result<(tombolo::Value, tombolo::Value)>| {
        String::from_utf8(entry.unwrap().0.to_vec()).unwrap()
    };
    let forward: Vec<_> = keyspace.scan::<&[u8]>(..).map(text).collect();
    let mut backward: Vec<_> = keyspace.scan::<&[u8]>(..).rev().map(text).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

#[test]
fn a_range_goes_and_what_is_written_after_it_stays() {
    let db = World::new().open(Options::default());
    let keyspace = db.default_keyspace();
    for key in ["a", "b", "c", "d"] {
        keyspace.put(key, "old").wait().unwrap();
    }
    let before = db.snapshot();
    keyspace.delete_range("b", "d").wait().unwrap();
    keyspace.put("c", "new").wait().unwrap();
    assert_eq!(keys(&keyspace), ["a", "c", "d"]);
    assert_eq!(keyspace.get("b").wait().unwrap(), None);
    assert_eq!(keyspace.get("c").wait().unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(before.get(&keyspace, "b").wait().unwrap().as_deref(), Some(&b"old"[..]));
    for work in ["flush", "compact", "close the snapshot and compact"] {
        match work {
            "flush" => db.flush().wait().unwrap(),
            _ => db.compact().wait().unwrap(),
        }
        assert_eq!(keys(&keyspace), ["a", "c", "d"], "{work}");
        let found = keyspace.multi_get(&["a", "b", "c", "d"]).wait().unwrap();
        assert_eq!(
            found.iter().map(Option::is_some).collect::<Vec<_>>(),
            [true, false, true, true],
            "{work}"
        );
        assert_eq!(before.get(&keyspace, "b").wait().unwrap().as_deref(), Some(&b"old"[..]), "{work}");
    }
}

#[test]
fn a_range_without_a_key_is_refused_and_nothing_is_taken() {
    let db = World::new().open(Options::default());
    let keyspace = db.default_keyspace();
    keyspace.put("b", "v").wait().unwrap();
    for (from, to) in [("b", "b"), ("c", "a"), ("", "")] {
        let error = keyspace.delete_range(from, to).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let mut batch = Batch::new();
        batch.put(&keyspace, "z", "v").delete_range(&keyspace, from, to);
        assert_eq!(db.write(batch).wait().unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(keys(&keyspace), ["b"]);
}

/// A batch: what comes before the range delete in it is hidden, what comes after is not.
#[test]
fn a_batch_is_in_its_order() {
    let db = World::new().open(Options::default());
    let keyspace = db.default_keyspace();
    let mut batch = Batch::new();
    batch
        .put(&keyspace, "a", "1")
        .put(&keyspace, "b", "1")
        .delete_range(&keyspace, "a", "c")
        .put(&keyspace, "b", "2");
    db.write(batch).wait().unwrap();
    assert_eq!(keys(&keyspace), ["b"]);
    db.flush().wait().unwrap();
    assert_eq!(keys(&keyspace), ["b"]);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    Range(u8, u8),
    Flush,
    Compact,
    CompactRange(u8, u8),
    Snapshot,
    Close,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any::<u8>().prop_map(Step::Put),
        2 => any::<u8>().prop_map(Step::Delete),
        4 => (any::<u8>(), 1..40_u8).prop_map(|(from, length)| Step::Range(from, length)),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => (any::<u8>(), 1..90_u8).prop_map(|(from, length)| Step::CompactRange(from, length)),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Close),
        1 => Just(Step::Reopen),
    ]
}

fn key(number: u8) -> Vec<u8> {
    format!("key-{number:03}").into_bytes()
}

fn listed(scan: tombolo::Scan) -> Plain {
    scan.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect::<tombolo::Result<_>>()
        .unwrap()
}

fn check(keyspace: &Keyspace, plain: &Plain, snapshots: &[(Snapshot, Plain)]) {
    assert_eq!(&listed(keyspace.scan::<&[u8]>(..)), plain);
    let mut backward: Vec<_> = plain.keys().cloned().collect();
    backward.reverse();
    let found: Vec<_> = keyspace.scan::<&[u8]>(..).rev().map(|entry| entry.unwrap().0.to_vec()).collect();
    assert_eq!(found, backward);
    let all: Vec<_> = (0..=255).map(key).collect();
    let several = keyspace.multi_get(&all).wait().unwrap();
    for (key, value) in all.iter().zip(several) {
        assert_eq!(value.as_deref(), plain.get(key).map(Vec::as_slice), "{key:?}");
        assert_eq!(
            keyspace.get(key).wait().unwrap().as_deref(),
            plain.get(key).map(Vec::as_slice),
            "{key:?}"
        );
    }
    for (snapshot, then) in snapshots {
        assert_eq!(&listed(snapshot.scan::<&[u8]>(keyspace, ..)), then);
        for key in &all {
            let value = snapshot.get(keyspace, key).wait().unwrap();
            assert_eq!(value.as_deref(), then.get(key).map(Vec::as_slice), "{key:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if crate::is_deep() { 256 } else { 12 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Any history reads as a plain ordered map does, through memtables, tables, levels, snapshots
    /// and openings.
    #[test]
    fn histories_read_as_a_plain_map(steps in prop::collection::vec(step(), 1..120)) {
        let world = World::new();
        let mut db = world.open(small());
        let mut keyspace = db.default_keyspace();
        let (mut plain, mut snapshots) = (Plain::new(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            match step {
                Step::Put(at) => {
                    let value = format!("{number}-{}", "v".repeat(usize::from(*at))).into_bytes();
                    keyspace.put(key(*at), &value).wait().unwrap();
                    plain.insert(key(*at), value);
                }
                Step::Delete(at) => {
                    keyspace.delete(key(*at)).wait().unwrap();
                    plain.remove(&key(*at));
                }
                Step::Range(from, length) => {
                    let (from, to) = (key(*from), key(from.saturating_add(*length)));
                    if from < to {
                        keyspace.delete_range(&from, &to).wait().unwrap();
                        plain.retain(|key, _| *key < from || *key >= to);
                    }
                }
                Step::Flush => db.flush().wait().unwrap(),
                Step::Compact => db.compact().wait().unwrap(),
                Step::CompactRange(from, length) => {
                    keyspace.compact_range(key(*from)..key(from.saturating_add(*length))).wait().unwrap();
                }
                Step::Snapshot => snapshots.push((db.snapshot(), plain.clone())),
                Step::Close => drop((!snapshots.is_empty()).then(|| snapshots.remove(0))),
                Step::Reopen => {
                    snapshots.clear();
                    db.close().wait().unwrap();
                    db = world.open(small());
                    keyspace = db.default_keyspace();
                }
            }
            if number % 8 == 7 {
                check(&keyspace, &plain, &snapshots);
            }
        }
        check(&keyspace, &plain, &snapshots);
        let report = db.verify().wait().unwrap();
        prop_assert!(report.damage.is_empty(), "{report:?}");
    }
}

/// A database on one thread, on which mutants are on.
fn simulated() -> (simulated::World, impl Fn() -> Db) {
    let world = simulated::World::new(1);
    let env = world.process("p").env();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
    let open = move || {
        let builder = Db::builder("mem://simulated").env(env.clone()).take_over(TakeOver::Always);
        let options = Options::parse(["memory_bytes=8388608", "automatic_compaction=false"]).unwrap();
        builder.stores(Arc::clone(&objects), Arc::clone(&log)).options(options).open().wait().unwrap()
    };
    (world, open)
}

/// The entry lies in an older table than the range delete, whose filter knows nothing of the key.
fn a_filter_hides_no_range_delete() {
    let (_world, open) = simulated();
    let db = open();
    let keys = db.default_keyspace();
    keys.put("k", "v").wait().unwrap();
    db.flush().wait().unwrap();
    // From here on its block is in memory.
    assert_eq!(keys.get("k").wait().unwrap().unwrap(), b"v");
    keys.delete_range("a", "z").wait().unwrap();
    db.flush().wait().unwrap();
    for _ in 0..2 {
        assert_eq!(keys.get("k").wait().unwrap(), None);
        assert_eq!(keys.multi_get(&["k"]).wait().unwrap(), [None]);
    }
    keys.put("k", "new").wait().unwrap();
    assert_eq!(keys.get("k").wait().unwrap().unwrap(), b"new");
}

fn a_range_delete_goes_down_with_what_it_covers() {
    let (_world, open) = simulated();
    let db = open();
    let keys = db.default_keyspace();
    keys.put("k", "v").wait().unwrap();
    db.compact().wait().unwrap();
    keys.delete_range("a", "z").wait().unwrap();
    db.compact().wait().unwrap();
    assert_eq!(keys.get("k").wait().unwrap(), None);
    assert!(db.verify().wait().unwrap().damage.is_empty());
}

fn a_range_delete_is_replayed() {
    let (_world, open) = simulated();
    let db = open();
    db.default_keyspace().put("k", "v").wait().unwrap();
    db.default_keyspace().delete_range("a", "z").wait().unwrap();
    drop(db);
    let db = open();
    assert_eq!(db.default_keyspace().get("k").wait().unwrap(), None);
    // Another opening finds it in a table.
    db.flush().wait().unwrap();
    drop(db);
    assert_eq!(open().default_keyspace().get("k").wait().unwrap(), None);
}

/// Range deletes that were read from the log answer as those that were written: a snapshot from
/// between them sees the newest of those before it.
fn replayed_range_deletes_are_in_their_order() {
    let (_world, open) = simulated();
    let db = open();
    db.default_keyspace().delete_range("m", "p").wait().unwrap();
    db.default_keyspace().put("n", "v").wait().unwrap();
    // From a lesser key, and newer.
    db.default_keyspace().delete_range("k", "z").wait().unwrap();
    drop(db);
    let db = open();
    let keys = db.default_keyspace();
    let snapshot = db.snapshot();
    keys.delete_range("a", "z").wait().unwrap();
    assert_eq!(snapshot.get(&keys, "n").wait().unwrap(), None);
    assert_eq!(keys.get("n").wait().unwrap(), None);
    assert!(snapshot.scan::<&[u8]>(&keys, ..).next().is_none());
}

/// A key of a table that goes has an older version in one that reaches beyond the range.
fn nothing_comes_back_from_under_files_that_go() {
    let (_world, open) = simulated();
    let db = open();
    let keys = db.default_keyspace();
    for key in ["a", "k", "z"] {
        keys.put(key, "older").wait().unwrap();
    }
    db.compact().wait().unwrap();
    keys.put("k", "newer").wait().unwrap();
    db.flush().wait().unwrap();
    keys.delete_files_in_range("b", "y").wait().unwrap();
    let check = |db: &Db| {
        let keys = db.default_keyspace();
        assert_eq!(keys.get("k").wait().unwrap(), None);
        assert_eq!(self::keys(&keys), ["a", "z"]);
    };
    check(&db);
    let of_puts = |keys: &Keyspace| {
        let all = keys.table_properties().unwrap();
        all.iter().map(|table| table.entries).filter(|entries| *entries > 0).collect::<Vec<_>>()
    };
    assert_eq!(of_puts(&keys), [3], "the other one went, unread");
    db.compact().wait().unwrap();
    check(&db);
    keys.put("k", "again").wait().unwrap();
    assert_eq!(keys.get("k").wait().unwrap().unwrap(), b"again");
    keys.delete("k").wait().unwrap();
    drop((db, keys));
    check(&open());
}

fn snapshots_keep_the_files_that_they_see() {
    let (_world, open) = simulated();
    let db = open();
    let keys = db.default_keyspace();
    keys.put("k", "v").wait().unwrap();
    db.compact().wait().unwrap();
    let snapshot = db.snapshot();
    keys.put("l", "later").wait().unwrap();
    db.flush().wait().unwrap();
    keys.delete_files_in_range("a", "z").wait().unwrap();
    let levels = |keys: &Keyspace| {
        let all = keys.table_properties().unwrap();
        all.iter().map(|table| (table.level, table.entries)).collect::<Vec<_>>()
    };
    assert_eq!(snapshot.get(&keys, "k").wait().unwrap().unwrap(), b"v");
    assert_eq!(levels(&keys), [(0, 0), (6, 1)], "the range delete, and what the snapshot sees");
    drop(snapshot);
    keys.delete_files_in_range("a", "z").wait().unwrap();
    assert_eq!(levels(&keys), [(0, 0)], "an older range delete goes too");
    db.compact().wait().unwrap();
    assert_eq!(levels(&keys), []);
}

#[test]
fn files_in_a_range_go_unread_and_nothing_comes_back() {
    nothing_comes_back_from_under_files_that_go();
    snapshots_keep_the_files_that_they_see();
    let (_world, open) = simulated();
    let db = open();
    let keys = db.default_keyspace();
    let error = keys.delete_files_in_range("b", "a").wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    keys.put("b", "v").wait().unwrap();
    db.blocking().default_keyspace().delete_files_in_range("a", "c").unwrap();
    assert_eq!(keys.get("b").wait().unwrap(), None);
}

#[test]
fn range_deletes_hide_what_is_older_wherever_it_lies() {
    a_filter_hides_no_range_delete();
    a_range_delete_goes_down_with_what_it_covers();
    a_range_delete_is_replayed();
    replayed_range_deletes_are_in_their_order();
}

#[cfg(feature = "mutants")]
#[test]
fn range_deletes_that_are_forgotten_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::FilterHidesRangeDelete, a_filter_hides_no_range_delete);
    notices(Mutant::RangeDeleteMovedBelow, a_range_delete_goes_down_with_what_it_covers);
    notices(Mutant::RangeDeleteLostInReplay, a_range_delete_is_replayed);
    notices(Mutant::ReplaySortsRangeDeletes, replayed_range_deletes_are_in_their_order);
    notices(Mutant::DroppedFilesUncovered, nothing_comes_back_from_under_files_that_go);
    notices(Mutant::DroppedFilesForgetSnapshots, snapshots_keep_the_files_that_they_see);
}
