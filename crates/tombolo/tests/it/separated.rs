//! Values that lie apart from their tables, through the public interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Batch, Builder, Compression, Db, Env, ErrorKind, Event, KeyspaceOptions, Listener, OperatorName, Options,
    SalvageMode, TakeOver,
};
use tombolo_env::simulated::{Crash, Host, World};
use tombolo_storage::{ObjectName, Purpose};

use crate::bucket::{self, Bucket};

/// Values from 4 KiB on lie apart.
fn apart() -> KeyspaceOptions {
    KeyspaceOptions { compression: Compression::None, separate_bytes: 4096, ..KeyspaceOptions::default() }
}

impl Bucket {
    /// Tables and value objects, with their lengths.
    async fn tables(&self, name: &str) -> Vec<(ObjectName, u64)> {
        let tables = self.listed(name, "/table/").await.into_iter();
        tables.map(|object| (object.name, object.length)).collect()
    }

    /// The value objects.
    async fn value_objects(&self, name: &str) -> Vec<ObjectName> {
        let mut found = Vec::new();
        for (object, _) in self.tables(name).await {
            if self.bytes(name, &object).await.starts_with(b"TMBLOVAL") {
                found.push(object);
            }
        }
        found
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Bucket) -> F) {
    bucket::run(&["memory_bytes=4194304", "memtable_bytes=262144"], test);
}

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_769).to_be_bytes()
}

/// Large for most numbers, and of another content in each round.
fn value(number: u32, round: u8) -> Vec<u8> {
    let length = if number % 4 == 3 { 100 } else { 5000 + number as usize };
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ round ^ number as u8).collect()
}

async fn fill(db: &Db, numbers: std::ops::Range<u32>, round: u8) {
    let keyspace = db.keyspace("apart").unwrap();
    for number in numbers {
        keyspace.put(key(number), value(number, round)).await.unwrap();
    }
    db.flush().await.unwrap();
}

/// Every face reads what was written in `round`; says how many values a walk over keys left out.
async fn check(db: &Db, numbers: std::ops::Range<u32>, round: u8) -> usize {
    let keyspace = db.keyspace("apart").unwrap();
    let mut sorted: Vec<_> = numbers.map(|number| (key(number).to_vec(), value(number, round))).collect();
    sorted.sort();
    for (key, value) in &sorted {
        assert!(keyspace.get(key).await.unwrap().unwrap() == value[..], "{key:?}");
    }
    let keys: Vec<_> = sorted.iter().map(|(key, _)| key).collect();
    let several = keyspace.multi_get(&keys).await.unwrap();
    for ((_, value), found) in sorted.iter().zip(several) {
        assert!(found.unwrap() == value[..]);
    }
    let mut cursor = keyspace.cursor::<&[u8]>(..);
    for (key, value) in &sorted {
        assert!(cursor.next_async().await.unwrap());
        assert!((cursor.key(), cursor.value()) == (&key[..], &value[..]), "{key:?}");
    }
    assert!(!cursor.next_async().await.unwrap());
    for (key, value) in sorted.iter().rev() {
        assert!(cursor.prev_async().await.unwrap());
        assert!((cursor.key(), cursor.value()) == (&key[..], &value[..]), "{key:?}");
    }
    assert!(!cursor.prev_async().await.unwrap());
    assert!(cursor.seek_for_prev_async(&sorted[1].0).await.unwrap());
    assert_eq!(cursor.value(), &sorted[1].1[..]);
    let mut scan = keyspace.scan::<&[u8]>(..);
    for (key, value) in &sorted {
        let (found_key, found) = scan.next_async().await.unwrap().unwrap();
        assert!((&found_key[..], &found[..]) == (&key[..], &value[..]), "{key:?}");
    }
    let mut keys_only = keyspace.cursor::<&[u8]>(..).keys_only();
    let mut empty = 0;
    for (key, value) in &sorted {
        assert!(keys_only.next_async().await.unwrap());
        assert_eq!(keys_only.key(), key);
        assert!(keys_only.value().is_empty() || keys_only.value() == value);
        empty += usize::from(keys_only.value().is_empty());
    }
    empty
}

fn reads(db: &Db) -> u64 {
    let counted = db.requests().counted;
    counted
        .iter()
        .filter(|one| matches!(one.purpose, Purpose::Get | Purpose::Scan))
        .map(|one| one.requests)
        .sum()
}

#[test]
fn large_values_lie_apart_and_are_read_by_every_face() {
    run(|bucket| async move {
        let db = bucket.open("db").await;
        db.create_keyspace("apart", apart()).await.unwrap();
        fill(&db, 0..100, 1).await;
        assert!(!bucket.value_objects("db").await.is_empty());
        assert_eq!(check(&db, 0..100, 1).await, 75, "three of four values lie apart");
        let keyspace = db.keyspace("apart").unwrap();
        let all = keyspace.approximate_size::<&[u8]>(..).await.unwrap().value_bytes;
        let kept = db.property("value-bytes").unwrap().value.number().unwrap();
        assert!((kept * 9 / 10..=kept).contains(&all), "{all} of {kept} bytes");
        let none = keyspace.approximate_size(&[u8::MAX; 5][..]..).await.unwrap();
        assert_eq!((none.value_bytes, none.table_bytes), (0, 0));
        let snapshot = db.snapshot();
        fill(&db, 0..150, 2).await;
        db.compact().await.unwrap();
        check(&db, 0..150, 2).await;
        assert_eq!(snapshot.get(&keyspace, key(60)).await.unwrap().unwrap(), value(60, 1)[..]);
        let mut batch = Batch::new();
        for number in 0..150 {
            batch.delete(&keyspace, key(number));
        }
        db.write(batch).await.unwrap();
        fill(&db, 0..150, 3).await;
        assert_eq!(snapshot.get(&keyspace, key(61)).await.unwrap().unwrap(), value(61, 1)[..]);
        drop(snapshot);
        let report = db.verify().await.unwrap();
        assert!(report.damage.is_empty() && report.value_objects > 0, "{report:?}");
        drop((db, keyspace));
        let db = bucket.open("db").await;
        check(&db, 0..150, 3).await;
        // A walk over keys alone asks for no value.
        drop(db);
        let db = bucket.open("db").await;
        let keyspace = db.keyspace("apart").unwrap();
        let mut cursor = keyspace.cursor::<&[u8]>(..).keys_only();
        while cursor.next_async().await.unwrap() {}
        let without = reads(&db);
        let mut cursor = keyspace.cursor::<&[u8]>(..);
        while cursor.next_async().await.unwrap() {}
        assert!(reads(&db) > without);
    });
}

/// A walk over values that nobody holds reads those ahead together: in the order of their object
/// with few requests, and where they lie in several objects, of each as many as it can.
#[test]
fn a_walk_reads_values_ahead() {
    bucket::run(&["memory_bytes=67108864", "memtable_bytes=4194304"], |bucket| async move {
        let db = bucket.open("db").await;
        db.create_keyspace("apart", apart()).await.unwrap();
        fill(&db, 0..300, 1).await;
        db.close().await.unwrap();
        for backward in [false, true] {
            let db = bucket.open("db").await;
            let keyspace = db.keyspace("apart").unwrap();
            let mut keys = keyspace.cursor::<&[u8]>(..).keys_only();
            let mut found = Vec::new();
            while keys.next_async().await.unwrap() {
                found.push(keys.key().to_vec());
            }
            if backward {
                found.reverse();
            }
            let without = reads(&db);
            let mut cursor = keyspace.cursor::<&[u8]>(..);
            for (at, key) in found.iter().enumerate() {
                let came = match (backward, at) {
                    (true, 0) => cursor.seek_for_prev_async(key).await,
                    (true, _) => cursor.prev_async().await,
                    (false, _) => cursor.next_async().await,
                };
                assert!(came.unwrap() && cursor.key() == key);
                assert!(!cursor.value().is_empty());
            }
            let took = reads(&db) - without;
            assert!(took <= 12, "{took} requests for 225 values, backward: {backward}");
            // A seek wants one value, and reads one.
            db.close().await.unwrap();
            let db = bucket.open("db").await;
            let keyspace = db.keyspace("apart").unwrap();
            let bytes = |db: &Db| -> u64 { db.requests().counted.iter().map(|one| one.bytes_received).sum() };
            let mut cursor = keyspace.cursor::<&[u8]>(..);
            assert!(cursor.seek_async(key(8)).await.unwrap());
            let before = bytes(&db);
            assert!(cursor.seek_async(key(20)).await.unwrap());
            assert!(bytes(&db) - before < 7000);
            db.close().await.unwrap();
        }
        // In two objects in turn, and several keys at once: one request for each object.
        let db = bucket.open("db").await;
        let keyspace = db.keyspace("apart").unwrap();
        for number in (0..300).step_by(2) {
            keyspace.put(key(number), value(number, 2)).await.unwrap();
        }
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        db.close().await.unwrap();
        let db = bucket.open("db").await;
        let keyspace = db.keyspace("apart").unwrap();
        let mut keys = keyspace.cursor::<&[u8]>(..).keys_only();
        while keys.next_async().await.unwrap() {}
        let without = reads(&db);
        let mut cursor = keyspace.cursor::<&[u8]>(..);
        while cursor.next_async().await.unwrap() {}
        let took = reads(&db) - without;
        assert!(took <= 24, "{took} requests for 225 values in two objects");
    });
}

/// Each value is written once beside the log, where without separation every compaction writes it
/// again; objects to which nothing refers are deleted.
#[test]
fn compaction_writes_no_value_again() {
    let written = |separate_bytes: u32| {
        let total = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let sum = Arc::clone(&total);
        run(move |bucket| async move {
            let db = bucket.open("db").await;
            db.create_keyspace("apart", KeyspaceOptions { separate_bytes, ..apart() }).await.unwrap();
            for round in 0..6 {
                fill(&db, round * 50..(round + 1) * 50, 1).await;
                db.compact().await.unwrap();
            }
            bucket.settle().await;
            check(&db, 0..300, 1).await;
            let counted = db.requests().counted;
            let bytes = counted
                .iter()
                .filter(|one| matches!(one.purpose, Purpose::Flush | Purpose::Compaction))
                .map(|one| one.bytes_sent)
                .sum();
            sum.store(bytes, std::sync::atomic::Ordering::Relaxed);
        });
        total.load(std::sync::atomic::Ordering::Relaxed)
    };
    let user_bytes: u64 = (0..300).map(|number| value(number, 1).len() as u64).sum();
    let (apart, together) = (written(4096), written(0));
    assert!(apart < user_bytes * 115 / 100, "{apart} bytes written for {user_bytes}");
    assert!(together > apart * 2, "{together} bytes written without separation, {apart} with it");
}

#[test]
fn objects_go_with_the_last_table_that_refers_to_them() {
    run(|bucket| async move {
        let db = bucket.open("db").await;
        db.create_keyspace("apart", apart()).await.unwrap();
        for round in 0..5 {
            fill(&db, 0..60, round).await;
        }
        db.compact().await.unwrap();
        bucket.settle().await;
        let bytes: u64 = bucket.tables("db").await.iter().map(|(_, bytes)| bytes).sum();
        let needed: u64 = (0..60).map(|number| value(number, 1).len() as u64).sum();
        assert!(bytes < needed * 13 / 10, "{bytes} bytes for {needed}");
        check(&db, 0..60, 4).await;
        db.drop_keyspace("apart").await.unwrap();
        db.flush().await.unwrap();
        bucket.settle().await;
        assert!(bucket.tables("db").await.is_empty());
    });
}

/// A checkpoint and a reader keep the values of their tables, whatever the writer does.
fn checkpoints_keep_values() {
    run(|bucket| async move {
        let db = bucket.open("db").await;
        db.create_keyspace("apart", apart()).await.unwrap();
        fill(&db, 0..40, 1).await;
        db.checkpoint("monday").await.unwrap();
        let reader = bucket.builder("db").open_reader(tombolo::ReaderOptions::default()).await.unwrap();
        for round in 2..4 {
            fill(&db, 0..40, round).await;
            db.compact().await.unwrap();
            bucket.settle().await;
        }
        check(&db, 0..40, 3).await;
        bucket.builder("db").at_checkpoint("monday").restore_to(bucket.builder("restored")).await.unwrap();
        let restored = bucket.open("restored").await;
        check(&restored, 0..40, 1).await;
        assert!(restored.verify().await.unwrap().damage.is_empty());
        drop((reader, restored, db));
    });
}

#[test]
fn a_checkpoint_keeps_the_values_of_its_tables() {
    checkpoints_keep_values();
}

/// A clone shares value objects as it shares tables.
fn clones_share_values() {
    run(|bucket| async move {
        let source = bucket.open("source").await;
        source.create_keyspace("apart", apart()).await.unwrap();
        fill(&source, 0..40, 1).await;
        source.share_to(bucket.builder("clone")).await.unwrap();
        assert!(bucket.tables("clone").await.is_empty(), "nothing was copied");
        for round in 2..4 {
            fill(&source, 0..40, round).await;
            source.compact().await.unwrap();
            bucket.settle().await;
        }
        let clone = bucket.open("clone").await;
        check(&clone, 0..40, 1).await;
        // Compaction there moves references, and the values stay at the source.
        fill(&clone, 0..10, 5).await;
        clone.compact().await.unwrap();
        bucket.settle().await;
        assert!(clone.keyspace("apart").unwrap().get(key(9)).await.unwrap().unwrap() == value(9, 5)[..]);
        assert_eq!(clone.keyspace("apart").unwrap().get(key(20)).await.unwrap().unwrap(), value(20, 1)[..]);
        assert!(clone.verify().await.unwrap().damage.is_empty());
        drop(clone);
        let clone = bucket.open("clone").await;
        assert_eq!(clone.keyspace("apart").unwrap().get(key(20)).await.unwrap().unwrap(), value(20, 1)[..]);
        drop((source, clone));
    });
}

#[test]
fn a_clone_reads_the_values_of_its_source() {
    clones_share_values();
}

#[test]
fn damage_of_a_value_is_told_and_nothing_else_is_hidden() {
    run(|bucket| async move {
        let db = bucket.open("db").await;
        db.create_keyspace("apart", apart()).await.unwrap();
        fill(&db, 0..10, 1).await;
        let object = bucket.value_objects("db").await.remove(0);
        let mut bytes = bucket.bytes("db", &object).await;
        let last = bytes.len() - 200;
        bytes[1000] ^= 1;
        bytes[last] ^= 1;
        bucket.replace("db", &object, bytes).await;
        let keyspace = db.keyspace("apart").unwrap();
        let mut damaged = 0;
        for number in 0..10 {
            match keyspace.get(key(number)).await {
                Ok(found) => assert_eq!(found.unwrap(), value(number, 1)[..]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    assert!(error.object_name().unwrap().ends_with(object.as_str()), "{error}");
                    damaged += 1;
                }
            }
        }
        assert_eq!(damaged, 2);
        let report = db.verify().await.unwrap();
        assert_eq!(report.findings.len(), 2, "all are told: {report:?}");
    });
}

/// What a range delete covers is gone for all but the snapshot before it, and so are value objects
/// once nobody sees what they hold.
#[test]
fn a_range_delete_takes_values_that_lie_apart() {
    run(|bucket| async move {
        let db = bucket.open("db").await;
        let keyspace = db.create_keyspace("apart", apart()).await.unwrap();
        fill(&db, 0..60, 1).await;
        let before = db.snapshot();
        let middle = [128u8];
        keyspace.delete_range([0u8], middle).await.unwrap();
        let back = (0..60).find(|number| key(*number) < [127; 4] && *number % 4 != 3).unwrap();
        keyspace.put(key(back), value(back, 2)).await.unwrap();
        for work in ["nothing", "flush", "compact"] {
            match work {
                "flush" => db.flush().await.unwrap(),
                "compact" => db.compact().await.unwrap(),
                _ => {}
            }
            bucket.settle().await;
            for number in 0..60 {
                let expected = match number {
                    _ if number == back => Some(value(back, 2)),
                    _ if key(number)[..] < middle[..] => None,
                    _ => Some(value(number, 1)),
                };
                let found = keyspace.get(key(number)).await.unwrap();
                assert!(found.as_deref() == expected.as_deref(), "{number} after {work}");
                let found = before.get(&keyspace, key(number)).await.unwrap().unwrap();
                assert!(found == value(number, 1)[..], "{number} in the snapshot after {work}");
            }
            let (mut scan, mut seen) = (keyspace.scan::<&[u8]>(..), 0);
            while scan.next_async().await.unwrap().is_some() {
                seen += 1;
            }
            let stays = (0..60).filter(|number| key(*number)[..] >= middle[..]).count();
            assert_eq!(seen, stays + 1, "after {work}");
        }
        drop(before);
        // Nothing is left of one that is gone, once all of its object is.
        keyspace.delete_range([0u8], [255u8; 5]).await.unwrap();
        keyspace.put(key(1), value(1, 3)).await.unwrap();
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        bucket.settle().await;
        assert_eq!(bucket.value_objects("db").await.len(), 1, "that of the last put");
        assert!(keyspace.get(key(1)).await.unwrap().unwrap() == value(1, 3)[..]);
        assert!(db.verify().await.unwrap().damage.is_empty());
    });
}

/// Operands over a value that lies apart: every read folds them, and a compaction, which does not
/// read the value, makes one operand of them. A put over them starts anew.
#[test]
fn operands_lie_over_a_value_that_lies_apart() {
    run(|bucket| async move {
        let db = bucket.open("db").await;
        let operator = Some(OperatorName::parse("append_comma").unwrap());
        let keyspace = db.create_keyspace("apart", KeyspaceOptions { operator, ..apart() }).await.unwrap();
        let mut expected = value(0, 1);
        keyspace.put("key", &expected).await.unwrap();
        db.flush().await.unwrap();
        let (mut before, first) = (Some(db.snapshot()), expected.clone());
        let entries = || keyspace.table_properties().unwrap().iter().map(|table| table.entries).sum::<u64>();
        for round in 0..4u8 {
            for operand in [[b'a' + round; 3], [b'k' + round; 3]] {
                keyspace.merge("key", operand).await.unwrap();
                expected = [&expected[..], b",", &operand].concat();
                assert!(keyspace.get("key").await.unwrap().unwrap() == expected[..], "round {round}");
            }
            db.flush().await.unwrap();
            assert!(keyspace.get("key").await.unwrap().unwrap() == expected[..], "flushed {round}");
            db.compact().await.unwrap();
            bucket.settle().await;
            assert!(keyspace.get("key").await.unwrap().unwrap() == expected[..], "compacted {round}");
            let several = keyspace.multi_get(&["key", "none"]).await.unwrap();
            assert!(several[0].as_deref() == Some(&expected[..]) && several[1].is_none());
            let (_, scanned) = keyspace.scan::<&[u8]>(..).next_async().await.unwrap().unwrap();
            assert!(scanned == expected[..]);
            if let Some(before) = before.take() {
                assert!(before.get(&keyspace, "key").await.unwrap().unwrap() == first[..]);
            }
            assert_eq!(entries(), 2, "the value and what all operands come to");
        }
        drop((keyspace, db));
        let db = bucket.open("db").await;
        let keyspace = db.keyspace("apart").unwrap();
        assert!(keyspace.get("key").await.unwrap().unwrap() == expected[..]);
        keyspace.put("key", value(1, 2)).await.unwrap();
        keyspace.merge("key", "z").await.unwrap();
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        bucket.settle().await;
        assert!(keyspace.get("key").await.unwrap().unwrap() == [&value(1, 2)[..], b",z"].concat()[..]);
        // What the flush folded is large, and lies apart.
        assert!(!bucket.value_objects("db").await.is_empty());
    });
}

/// A value object that is damaged or gone is told by salvage. An older state is whole; with
/// holes all other values are right, and those that are lost are errors: no older one comes back.
fn salvage_tells_of_values() {
    run(|bucket| async move {
        let db = bucket.open("db").await;
        db.create_keyspace("apart", apart()).await.unwrap();
        fill(&db, 0..20, 1).await;
        let old = bucket.value_objects("db").await;
        fill(&db, 0..20, 2).await;
        db.close().await.unwrap();
        let new = bucket.value_objects("db").await.into_iter().find(|object| !old.contains(object)).unwrap();
        let mut bytes = bucket.bytes("db", &new).await;
        bytes[1000] ^= 1;
        bucket.replace("db", &new, bytes).await;
        let salvage = async |to: &str, mode| {
            let report = bucket.builder("db").salvage_to(bucket.builder(to), mode).await.unwrap();
            assert!(!report.is_whole(), "{report:?}");
            assert!(report.losses.iter().any(|loss| loss.what.contains(new.as_str())), "{report:?}");
            bucket.open(to).await
        };
        check(&salvage("whole", SalvageMode::Consistent).await, 0..20, 1).await;
        for (to, gone) in [("damaged", 1), ("gone", 15)] {
            if to == "gone" {
                bucket.delete("db", &new).await;
            }
            let saved = salvage(to, SalvageMode::WithHoles).await;
            let keyspace = saved.keyspace("apart").unwrap();
            let mut lost = 0;
            for number in 0..20 {
                match keyspace.get(key(number)).await {
                    Ok(found) => assert!(found.unwrap() == value(number, 2)[..], "{number}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt);
                        lost += 1;
                    }
                }
            }
            assert_eq!(lost, gone, "{to}");
            // Written again, they are whole, and the damaged object goes.
            fill(&saved, 0..20, 3).await;
            saved.compact().await.unwrap();
            bucket.settle().await;
            check(&saved, 0..20, 3).await;
            assert!(saved.verify().await.unwrap().damage.is_empty());
        }
    });
}

#[test]
fn salvage_tells_of_values_that_are_lost() {
    salvage_tells_of_values();
}

/// A value object that a checkpoint needs and that is lost fails the restore, by its name. One that
/// a restored database has lost, or a clone at its source, is told by reads, by verification and by
/// salvage, with the place where it should be: nothing is silent.
#[test]
fn restored_databases_and_clones_tell_of_a_value_object_that_is_lost() {
    run(|bucket| async move {
        let source = bucket.open("source").await;
        source.create_keyspace("apart", apart()).await.unwrap();
        fill(&source, 0..10, 1).await;
        source.checkpoint("monday").await.unwrap();
        source.share_to(bucket.builder("clone")).await.unwrap();
        source.close().await.unwrap();
        let restore = async |to: &str| {
            bucket.builder("source").at_checkpoint("monday").restore_to(bucket.builder(to)).await
        };
        restore("restored").await.unwrap();
        let at_source = bucket.value_objects("source").await.remove(0);
        let at_restored = bucket.value_objects("restored").await.remove(0);
        bucket.delete("source", &at_source).await;
        bucket.delete("restored", &at_restored).await;
        let error = restore("again").await.unwrap_err();
        assert!(error.to_string().contains(at_source.as_str()), "{error}");
        for (name, place, object) in [("restored", "", &at_restored), ("clone", "source", &at_source)] {
            let db = bucket.open(name).await;
            let keyspace = db.keyspace("apart").unwrap();
            let error = keyspace.get(key(0)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
            assert!(error.to_string().contains(object.as_str()), "{name}: {error}");
            assert_eq!(keyspace.get(key(3)).await.unwrap().unwrap(), value(3, 1)[..], "small ones are there");
            let damage = db.verify().await.unwrap().damage;
            assert!(damage.iter().any(|damage| damage.contains(object.as_str())), "{name}: {damage:?}");
            db.close().await.unwrap();
            let to = format!("{name} saved");
            let saved = bucket.builder(name).salvage_to(bucket.builder(&to), SalvageMode::WithHoles).await;
            let losses = saved.unwrap().losses;
            let told =
                |loss: &tombolo::Loss| loss.what.contains(object.as_str()) && loss.what.contains(place);
            assert!(losses.iter().any(told), "{name}: {losses:?}");
        }
    });
}

/// The setting may be changed: compaction then puts the values apart that lie in tables. Listeners
/// hear of one table and of one value object.
#[test]
fn compaction_puts_values_apart_and_tells_of_both() {
    #[derive(Default)]
    struct Heard(Mutex<Vec<Event>>);
    impl Listener for Heard {
        fn event(&self, event: &Event) {
            self.0.lock().push(event.clone());
        }
    }
    run(|bucket| async move {
        let heard = Arc::new(Heard::default());
        let db = bucket.builder("db").listener(Arc::clone(&heard) as Arc<dyn Listener>).open().await.unwrap();
        let keyspace =
            db.create_keyspace("apart", KeyspaceOptions { separate_bytes: 0, ..apart() }).await.unwrap();
        fill(&db, 0..20, 1).await;
        assert!(bucket.value_objects("db").await.is_empty());
        keyspace.set_options([("separate_bytes", "4KiB")]).await.unwrap();
        db.compact().await.unwrap();
        bucket.settle().await;
        assert_eq!(bucket.value_objects("db").await.len(), 1);
        check(&db, 0..20, 1).await;
        db.close().await.unwrap();
        let heard = heard.0.lock();
        let compacted = |event: &Event| matches!(event, Event::Compacted { is_move: false, outputs: 1, .. });
        assert!(heard.iter().any(compacted), "{heard:?}");
        let made = |event: &&Event| matches!(event, Event::TableMade { level: u8::MAX, entries: 15, .. });
        assert_eq!(heard.iter().filter(made).count(), 1, "{heard:?}");
    });
}

/// Three rounds, each of which writes one key fewer than the one before, so that compaction moves
/// references to what the others wrote.
async fn rounds(env: Env, told: Arc<AtomicU8>) -> tombolo::Result<()> {
    let db = on_disk(&env).open().await?;
    let keyspace = db.create_keyspace("apart", apart()).await?;
    for round in 1..=3u8 {
        let mut batch = Batch::new();
        for number in u32::from(round) - 1..8 {
            batch.put(&keyspace, key(number), value(number, round));
        }
        db.write(batch).await?;
        told.store(round, Ordering::Relaxed);
        db.flush().await?;
        if round > 1 {
            db.compact().await?;
        }
    }
    db.close().await
}

fn on_disk(env: &Env) -> Builder {
    let options =
        Options::parse(["memory_bytes=4194304", "memtable_bytes=262144", "automatic_compaction=false"]);
    Db::builder("file:///db").env(env.clone()).options(options.unwrap()).take_over(TakeOver::Always)
}

/// What was written by the end of a round, and nothing else, whatever is done to it.
async fn check_rounds(env: Env, told: u8) -> u64 {
    let db = on_disk(&env).open().await.unwrap();
    let Ok(keyspace) = db.keyspace("apart") else {
        assert_eq!(told, 0);
        return 0;
    };
    for work in ["open", "compact"] {
        let mut found = Vec::new();
        for number in 0..8 {
            found.push(keyspace.get(key(number)).await.unwrap().map(|value| value.to_vec()));
        }
        // The batch that the process wrote when it ended is there, or it is not.
        let holds = |last: u8| {
            (0..8).all(|number| {
                let round = last.min(number as u8 + 1);
                found[number as usize] == (round > 0).then(|| value(number, round))
            })
        };
        assert!(holds(told) || holds(told + 1), "round {told} after {work}");
        db.compact().await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
    }
    let report = db.verify().await.unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    report.tables + report.value_objects
}

/// A process that ends in any step of its flushes and compactions loses no value, and the next one
/// deletes what it left unnamed.
#[test]
fn a_crash_at_any_step_loses_no_value_and_leaves_no_object() {
    let mut with_objects = 0;
    let every = if crate::is_deep() { 1 } else { 3 };
    for step in (1..).step_by(every) {
        let world = World::new(step);
        let process = world.process("writer");
        process.crash_at_mutation(step, if step % 2 == 0 { Crash::Kill } else { Crash::PowerLoss });
        let told = Arc::new(AtomicU8::new(0));
        let ended = process.run(rounds(process.env(), Arc::clone(&told)));
        let is_whole = ended.is_some_and(|ended| ended.is_ok());
        let objects = |host: &Host| {
            let files = host.all_files().into_iter();
            files.filter(|(path, _)| path.to_string_lossy().contains("/table/")).count() as u64
        };
        let left = objects(&process.host());
        let next = process.host().process("next");
        let named = next.run(check_rounds(next.env(), told.load(Ordering::Relaxed))).unwrap();
        assert_eq!(objects(&process.host()), named, "step {step}");
        with_objects += every * usize::from(left > 0);
        if is_whole {
            assert!(with_objects > 20, "only {with_objects} of {step} steps left objects");
            return;
        }
    }
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, enable};

    fn notices(mutant: Mutant, test: fn()) {
        let _out = enable(mutant);
        assert!(std::panic::catch_unwind(test).is_err(), "{mutant:?}");
    }

    #[test]
    fn pins_without_values_are_noticed() {
        notices(Mutant::ValuesUnpinned, super::checkpoints_keep_values);
    }

    #[test]
    fn damaged_values_that_salvage_forgets_are_noticed() {
        notices(Mutant::SalvageForgetsDamagedValues, super::salvage_tells_of_values);
    }

    #[test]
    fn clones_without_values_are_noticed() {
        notices(Mutant::ValuesNotCloned, super::clones_share_values);
    }

    #[test]
    fn values_deleted_too_early_are_noticed() {
        notices(Mutant::ValuesObsoleteWhileReferred, super::clones_share_values);
    }
}
