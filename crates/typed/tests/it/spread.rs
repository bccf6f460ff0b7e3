//! Counts, parts, samples and sorted batches by types; values that end.

use std::time::Duration;

use tombolo::{Batch, Db, KeyspaceOptions, OperatorName};
use tombolo_typed::TypedKeyspace;

type Readings = TypedKeyspace<(u32, String), u64>;

fn open(name: &str) -> (Db, Readings) {
    let db = Db::builder(crate::fresh(name)).open().wait().unwrap();
    let readings = Readings::open(&db, "readings").wait().unwrap();
    (db, readings)
}

fn fill(db: &Db, readings: &Readings) {
    let mut batch = db.sorted_batch();
    for place in 0..40_u32 {
        for number in 0..50_u64 {
            let key = (place, format!("sensor {number:03}"));
            readings.put_sorted(&mut batch, &key, &number).wait().unwrap();
        }
    }
    assert_eq!(batch.publish().wait().unwrap().entries, 2_000);
}

#[test]
fn ranges_and_prefixes_are_counted() {
    let (db, readings) = open("typed-counts");
    fill(&db, &readings);
    let count = |db: &Db| {
        assert_eq!(readings.count::<(u32,)>(..).wait().unwrap(), 2_000);
        assert_eq!(readings.count((3,)..(5,)).wait().unwrap(), 100);
        assert_eq!(readings.count((3,)..=(5,)).wait().unwrap(), 150);
        assert_eq!(readings.count_prefix(&(7,)).wait().unwrap(), 50);
        // The rank of a key.
        assert_eq!(readings.count(..(2, "sensor 010".to_owned())).wait().unwrap(), 110);
        let snapshot = db.snapshot();
        assert_eq!(readings.at(&snapshot).count::<(u32,)>((39,)..).wait().unwrap(), 50);
    };
    count(&db);
    db.flush().wait().unwrap();
    count(&db);
}

#[test]
fn parts_are_all_keys_once_and_samples_are_typed() {
    let (db, readings) = open("typed-parts");
    fill(&db, &readings);
    db.flush().wait().unwrap();
    let snapshot = db.snapshot();
    readings.put(&(99, "later".to_owned()), &1).wait().unwrap();
    let mut keys = Vec::new();
    for mut part in readings.parts(&snapshot, 4).wait().unwrap() {
        while part.next().unwrap() {
            keys.push(part.key().unwrap());
        }
    }
    assert_eq!(keys.len(), 2_000);
    assert!(keys.is_sorted());
    let sample = readings.sample(30).wait().unwrap();
    assert_eq!(sample.len(), 30);
    for ((place, name), number) in sample {
        assert!(place < 40 || place == 99);
        assert!(name == "later" || name == format!("sensor {:03}", number.view()), "{name}");
    }
}

#[test]
fn sorted_weights_are_added_and_deletes_taken() {
    let db = Db::builder(crate::fresh("typed-sorted")).open().wait().unwrap();
    let operator = Some(OperatorName::parse("weights").unwrap());
    let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
    let weights = TypedKeyspace::<u32, i64>::open_with(&db, "weights", options).wait().unwrap();
    let names = TypedKeyspace::<String, u64>::open(&db, "names").wait().unwrap();
    names.put(&"gone".to_owned(), &1).wait().unwrap();
    for _ in 0..2 {
        let mut batch = db.sorted_batch();
        for key in 0..10 {
            weights.merge_sorted(&mut batch, &key, &i64::from(key)).wait().unwrap();
        }
        names.delete_sorted(&mut batch, &"gone".to_owned()).wait().unwrap();
        batch.publish().wait().unwrap();
    }
    let found: Vec<_> = (0..10).map(|key| weights.read(&key, |weight| weight).unwrap()).collect();
    let wanted: Vec<_> = (0..10).map(|key| (key != 0).then_some(2 * key)).collect();
    assert_eq!(found, wanted);
    assert_eq!(names.count::<String>(..).wait().unwrap(), 0);
}

#[test]
fn values_end() {
    let (db, readings) = open("typed-ttl");
    let key = |number: u32| (number, "a".to_owned());
    readings.put_ttl(&key(1), &7, Duration::from_secs(3600)).wait().unwrap();
    let mut batch = Batch::new();
    readings.put_ttl_in(&mut batch, &key(2), &8, Duration::from_secs(3600)).unwrap();
    db.write(batch).wait().unwrap();
    assert_eq!(readings.read(&key(2), |value| value).unwrap(), Some(8));
    let mut cursor = readings.keyspace().cursor::<&[u8]>(..);
    while cursor.next().unwrap() {
        assert!(cursor.expires_ms().is_some());
    }
}
