//! Sorted batches: whole or absent in all keyspaces, small or large.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo::{Batch, Db, Durability, Env, ErrorKind, Keyspace, KeyspaceOptions, Options, Result};
use tombolo_env::simulated::{Crash, World};

use crate::reader::builder;

const PLACE: &str = "file:///db file:///db?form=written";
const NAMES: [&str; 2] = ["default", "second"];

/// Keys of a batch; beside them there is one that ordinary writes change.
fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..24_u32).map(|number| format!("key-{number:02}").into_bytes())
}

async fn open(env: &Env) -> Result<(Db, Vec<Keyspace>)> {
    let db = builder(env, PLACE).open().await?;
    let mut keyspaces = Vec::new();
    for name in NAMES {
        keyspaces.push(db.open_or_create_keyspace(name, KeyspaceOptions::default()).await?);
    }
    Ok((db, keyspaces))
}

/// Batch after batch, each of which says its number everywhere; `told` is the newest acknowledged.
async fn script(env: Env, batches: u64, told: Arc<AtomicU64>) -> Result<()> {
    let (db, keyspaces) = open(&env).await?;
    for number in 1..=batches {
        keyspaces[0].put_with("a", number.to_string(), Durability::Accepted).await?;
        let mut batch = db.sorted_batch();
        let value = format!("{number}:{}", "x".repeat(90));
        for key in keys() {
            for keyspace in &keyspaces {
                if number.is_multiple_of(4) {
                    batch.delete(keyspace, &key).await?;
                } else {
                    batch.put(keyspace, &key, &value).await?;
                }
            }
        }
        // A write between, which the batch lies over.
        keyspaces[1].put_with(keys().next().unwrap(), "between", Durability::Accepted).await?;
        let published = batch.publish().await?;
        assert_eq!(published.entries, 48);
        assert!(published.tables >= 2, "{published:?}");
        told.store(number, Ordering::SeqCst);
    }
    db.close().await
}

/// The number of the batch that all keys show, in all keyspaces; `None`: they have no value.
async fn shown(db: &Db, keyspaces: &[Keyspace]) -> Result<Option<u64>> {
    let snapshot = db.snapshot();
    let mut numbers = Vec::new();
    for keyspace in keyspaces {
        for (at, key) in keys().enumerate() {
            let value = snapshot.get(keyspace, &key).await?;
            let value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
            // What came between two batches.
            if at == 0 && value.as_deref() == Some("between") {
                continue;
            }
            numbers.push(value.map(|value| value.split_once(':').unwrap().0.parse().unwrap()));
        }
    }
    let first = numbers[0];
    assert!(numbers.iter().all(|number| *number == first), "a batch is there in part: {numbers:?}");
    Ok(first)
}

fn crash_at(crash: Crash, every: usize) {
    const BATCHES: u64 = 4;
    let run = |at: Option<u64>| {
        let world = World::new(3);
        let writer = world.process("writer");
        if let Some(at) = at {
            writer.crash_at_mutation(at, crash);
        }
        let told = Arc::new(AtomicU64::new(0));
        let _ended = writer.run(script(writer.env(), BATCHES, Arc::clone(&told)));
        let told = told.load(Ordering::SeqCst);
        let checker = world.process("checker");
        let env = checker.env();
        let found = checker.run(async move {
            let (db, keyspaces) = open(&env).await?;
            let found = shown(&db, &keyspaces).await?;
            db.flush().await?;
            assert_eq!(shown(&db, &keyspaces).await?, found, "after a flush");
            db.compact().await?;
            assert_eq!(shown(&db, &keyspaces).await?, found, "after a compaction");
            assert!(db.verify().await?.damage.is_empty());
            db.close().await.map(|()| found)
        });
        let found = found.unwrap().unwrap();
        let wanted = |number: u64| if number == 0 || number.is_multiple_of(4) { None } else { Some(number) };
        let fits = (told..=told + 1).any(|number| wanted(number) == found);
        assert!(fits, "{told} was acknowledged, {found:?} is found, {crash:?} at {at:?}");
        writer.mutations()
    };
    let mutations = run(None);
    for at in (1..=mutations).step_by(every) {
        run(Some(at));
    }
}

#[test]
fn a_sorted_batch_is_whole_or_absent() {
    let every = if crate::is_deep() { 1 } else { 101 };
    crash_at(Crash::Kill, every);
    crash_at(Crash::PowerLoss, every + 2);
}

#[cfg(feature = "mutants")]
#[test]
fn a_batch_that_is_shown_table_by_table_is_noticed() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tombolo_storage::mutant::{Mutant, enable};

    let _guard = enable(Mutant::SortedBatchInPieces);
    assert!(catch_unwind(AssertUnwindSafe(|| crash_at(Crash::Kill, 1))).is_err());
}

fn memory(uri: &str) -> Db {
    let options = Options::parse(["memory_bytes=16777216", "memtable_bytes=1048576"]).unwrap();
    Db::builder(uri).env(Env::real()).options(options).open().wait().unwrap()
}

#[test]
fn what_is_small_goes_through_the_log_and_what_is_large_does_not() {
    let db = memory("mem://sorted-sizes");
    let keys = db.default_keyspace();
    let mut batch = db.sorted_batch();
    for number in 0..100_u32 {
        batch.put(&keys, number.to_be_bytes(), b"small").wait().unwrap();
    }
    let small = batch.publish().wait().unwrap();
    assert_eq!((small.entries, small.tables, db.stats().tables), (100, 0, 0));
    let mut batch = db.sorted_batch();
    for number in 50..20_000_u32 {
        batch.put(&keys, number.to_be_bytes(), [7; 40]).wait().unwrap();
    }
    let large = batch.publish().wait().unwrap();
    assert_eq!((large.entries, large.tables), (19_950, 1));
    assert_eq!(keys.get(49_u32.to_be_bytes()).wait().unwrap().as_deref(), Some(&b"small"[..]));
    assert_eq!(keys.get(50_u32.to_be_bytes()).wait().unwrap().as_deref(), Some(&[7; 40][..]));
    assert_eq!(keys.count::<&[u8]>(..).wait().unwrap(), 20_000);
    // It lies under later writes.
    keys.put(60_u32.to_be_bytes(), "newer").wait().unwrap();
    assert_eq!(keys.get(60_u32.to_be_bytes()).wait().unwrap().as_deref(), Some(&b"newer"[..]));
}

#[test]
fn weights_are_merged_over_what_was_there() {
    let db = memory("mem://sorted-weights");
    let operator = Some(tombolo::OperatorName::parse("weights").unwrap());
    let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
    let keys = db.create_keyspace("weights", options).wait().unwrap();
    let weight = |number: u32| {
        let found = keys.get(number.to_be_bytes()).wait().unwrap();
        found.map_or(0, |value| i64::from_le_bytes(value[..].try_into().unwrap()))
    };
    let add = |from: u32, to: u32, operands: &[i64]| {
        let mut batch = db.sorted_batch();
        for number in from..to {
            let operands = operands.iter().map(|weight| weight.to_le_bytes());
            batch.merge(&keys, number.to_be_bytes(), operands).wait().unwrap();
        }
        batch.publish().wait().unwrap().tables
    };
    assert_eq!(add(0, 10, &[5]), 0);
    assert_eq!(add(5, 20_000, &[2, -1]), 1);
    assert_eq!((weight(4), weight(5), weight(10), weight(19_999)), (5, 6, 1, 1));
    assert_eq!(add(0, 20_000, &[-1]), 1);
    db.compact().wait().unwrap();
    assert_eq!((weight(4), weight(5), weight(10)), (4, 5, 0));
    assert_eq!(keys.count::<&[u8]>(..).wait().unwrap(), 10, "weights of zero are gone");
}

#[test]
fn a_wrong_entry_is_refused_and_a_dropped_batch_leaves_nothing() {
    let db = memory("mem://sorted-wrong");
    let other = memory("mem://sorted-other");
    let keys = db.default_keyspace();
    let mut batch = db.sorted_batch();
    batch.put(&keys, "b", "1").wait().unwrap();
    for key in ["b", "a"] {
        assert_eq!(batch.put(&keys, key, "2").wait().unwrap_err().kind(), ErrorKind::Invalid);
    }
    let foreign = batch.put(&other.default_keyspace(), "c", "2").wait().unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Invalid);
    assert_eq!(batch.merge(&keys, "c", ["2"]).wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(batch.publish().wait().unwrap().entries, 1);
    let mut dropped = db.sorted_batch();
    for number in 0..30_000_u32 {
        dropped.put(&keys, number.to_be_bytes(), [7; 40]).wait().unwrap();
    }
    drop(dropped);
    let gone = db.create_keyspace("gone", KeyspaceOptions::default()).wait().unwrap();
    let mut batch = db.sorted_batch();
    batch.put(&gone, "a", "1").wait().unwrap();
    db.drop_keyspace("gone").wait().unwrap();
    assert_eq!(batch.publish().wait().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(keys.count::<&[u8]>(..).wait().unwrap(), 1);
    let mut empty = Batch::new();
    empty.put(&keys, "z", "9");
    db.write(empty).wait().unwrap();
    assert_eq!(db.sorted_batch().publish().wait().unwrap().entries, 0);
}

/// Entries of many keyspaces, mixed: few tables are open at once, so that memory stays bounded.
#[test]
fn a_batch_over_many_keyspaces_has_few_tables_open() {
    const KEYSPACES: usize = 64;
    let db = Db::builder("mem://sorted-many").open().wait().unwrap();
    let made = |number: usize| db.create_keyspace(&number.to_string(), KeyspaceOptions::default()).wait();
    let keyspaces: Vec<_> = (0..KEYSPACES).map(|number| made(number).unwrap()).collect();
    let memory = || db.property("memory-compactions").unwrap().value.number().unwrap();
    let (before, mut most) = (memory(), 0);
    let mut batch = db.sorted_batch();
    for round in 0..60_u32 {
        for keyspace in &keyspaces {
            batch.put(keyspace, round.to_be_bytes(), [7; 2000]).wait().unwrap();
        }
        most = most.max(memory() - before);
    }
    let published = batch.publish().wait().unwrap();
    assert!(published.tables >= KEYSPACES as u64 && published.sequence > 0, "{published:?}");
    assert!((1 << 20..24 << 20).contains(&most), "{most} bytes for tables that are open");
    for keyspace in &keyspaces {
        assert_eq!(keyspace.count::<&[u8]>(..).wait().unwrap(), 60);
    }
}

/// Entries of very many keyspaces, mixed, make tables that are not tiny.
#[test]
fn tables_of_many_keyspaces_are_not_tiny() {
    const KEYSPACES: usize = 256;
    let db = Db::builder("mem://sorted-tiny").open().wait().unwrap();
    let made = |number: usize| db.create_keyspace(&number.to_string(), KeyspaceOptions::default()).wait();
    let keyspaces: Vec<_> = (0..KEYSPACES).map(|number| made(number).unwrap()).collect();
    let mut batch = db.sorted_batch();
    for round in 0..32_u32 {
        for keyspace in &keyspaces {
            batch.put(keyspace, round.to_be_bytes(), [7; 1000]).wait().unwrap();
        }
    }
    let published = batch.publish().wait().unwrap();
    assert!(published.tables <= 4 * KEYSPACES as u64, "{published:?}");
    assert_eq!(keyspaces[200].count::<&[u8]>(..).wait().unwrap(), 32);
}
