//! Garbage of values that lie apart: how much of it there is, how it goes, and what never goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tombolo::{Builder, Compression, Db, Env, ErrorKind, Keyspace, KeyspaceOptions, Options, TakeOver};
use tombolo_env::simulated::{Crash, Host, World};
use tombolo_format::value_object::RECORD_OVERHEAD_BYTES;
use tombolo_storage::Purpose;

use crate::bucket::{self, Bucket};

/// Values from 1 KiB on lie apart, as they are.
fn apart() -> KeyspaceOptions {
    KeyspaceOptions { compression: Compression::None, separate_bytes: 1024, ..KeyspaceOptions::default() }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Bucket) -> F) {
    bucket::run(&["memory_bytes=16777216", "memtable_bytes=1048576"], test);
}

async fn open(bucket: &Bucket, name: &str) -> Db {
    let db = bucket.open(name).await;
    db.set_options([("automatic_compaction", "true")]).unwrap();
    db
}

fn value(number: u32, round: u32, bytes: usize) -> Vec<u8> {
    let first = number.wrapping_mul(31).wrapping_add(round.wrapping_mul(1009));
    (0..bytes as u32).map(|at| (at.wrapping_mul(17) ^ first ^ first >> 8) as u8).collect()
}

/// A number that looks random.
fn chance(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

fn count(db: &Db, name: &str) -> u64 {
    db.property(name).unwrap().value.number().unwrap()
}

/// Bytes that flush and compaction have written.
fn written(db: &Db) -> u64 {
    let counted = db.requests().counted;
    let by = |purpose| matches!(purpose, Purpose::Flush | Purpose::Compaction);
    counted.iter().filter(|one| by(one.purpose)).map(|one| one.bytes_sent).sum()
}

type Model = BTreeMap<u32, Vec<u8>>;

async fn check(keyspace: &Keyspace, model: &Model) {
    for (number, value) in model {
        let found = keyspace.get(number.to_be_bytes()).await.unwrap();
        assert!(found.as_deref() == Some(&value[..]), "{number}");
    }
    let mut scan = keyspace.scan::<&[u8]>(..);
    for (number, value) in model {
        let (key, found) = scan.next_async().await.unwrap().unwrap();
        assert!(key == number.to_be_bytes()[..] && found == value[..], "{number}");
    }
    assert!(scan.next_async().await.unwrap().is_none());
}

async fn settle(bucket: &Bucket) {
    for _ in 0..5 {
        bucket.settle().await;
    }
}

/// Random overwrites: garbage stays below its part of all, and nothing that somebody sees goes.
/// Counts are exact, and a takeover counts the same.
fn overwrites_collect_garbage() {
    run(|bucket| async move {
        let db = open(&bucket, "db").await;
        let keyspace = db.create_keyspace("apart", apart()).await.unwrap();
        let (mut state, mut model, mut put) = (1, Model::new(), 0);
        let mut before: Option<(tombolo::Snapshot, Model)> = None;
        for round in 0..40 {
            for _ in 0..30 {
                let number = chance(&mut state) % 60;
                let value = value(number, round, 3000 + number as usize);
                keyspace.put(number.to_be_bytes(), &value).await.unwrap();
                // A value that is overwritten before the flush is not written.
                if model.insert(number, value.clone()).is_none_or(|old| old[..4] != value[..4]) {
                    put += value.len() as u64;
                }
            }
            db.flush().await.unwrap();
            settle(&bucket).await;
            match round {
                10 => before = Some((db.snapshot(), model.clone())),
                30 => {
                    let (snapshot, model) = before.take().unwrap();
                    for (number, value) in &model {
                        let found = snapshot.get(&keyspace, number.to_be_bytes()).await.unwrap().unwrap();
                        assert!(found == value[..], "{number}");
                    }
                    // No object was given up that the snapshot needs, and each of its values stays.
                    drop(snapshot);
                }
                _ => {}
            }
        }
        check(&keyspace, &model).await;
        db.compact().await.unwrap();
        settle(&bucket).await;
        check(&keyspace, &model).await;
        let live: u64 = model.values().map(|value| (value.len() + RECORD_OVERHEAD_BYTES) as u64).sum();
        let counts = |db: &Db| (count(db, "value-bytes"), count(db, "value-bytes-garbage"));
        let (all, garbage) = counts(&db);
        let around = 96 * count(&db, "value-objects");
        assert_eq!(all - around - garbage, live, "what is not garbage is what keys have");
        assert!(garbage * 5 <= all * 2, "{garbage} of {all} bytes are garbage");
        let spent = written(&db);
        assert!(spent > put * 11 / 10 && spent < put * 18 / 10, "{spent} bytes written for {put}");
        assert!(db.verify().await.unwrap().damage.is_empty());
        drop((keyspace, db));
        let db = bucket.open("db").await;
        assert_eq!(counts(&db), (all, garbage), "after a takeover");
        check(&db.keyspace("apart").unwrap(), &model).await;
    });
}

#[test]
fn garbage_of_overwrites_is_collected_and_counted() {
    overwrites_collect_garbage();
}

/// Large values in random order, each key once, and as many random keys as there are: each value is
/// written once beside the log.
#[test]
fn a_load_writes_each_value_once() {
    for once in [true, false] {
        run(move |bucket| async move {
            let db = open(&bucket, "db").await;
            let options = KeyspaceOptions { separate_bytes: 16 << 10, ..apart() };
            let keyspace = db.create_keyspace("apart", options).await.unwrap();
            let (mut state, mut model, mut put) = (7, Model::new(), 0);
            let count = 512u32;
            for at in 0..count {
                // An odd factor makes all numbers come, each once.
                let number = if once { at.wrapping_mul(331) % count } else { chance(&mut state) % count };
                let value = value(number, at, 64 << 10);
                keyspace.put(number.to_be_bytes(), &value).await.unwrap();
                put += value.len() as u64;
                model.insert(number, value);
            }
            db.flush().await.unwrap();
            db.compact().await.unwrap();
            settle(&bucket).await;
            assert_eq!(model.len() == count as usize, once);
            check(&keyspace, &model).await;
            let spent = written(&db);
            assert!(spent * 100 <= put * 105, "{spent} bytes written for {put}, once: {once}");
        });
    }
}

/// A value that cannot be read when it should move stays an error: no older one comes back, and all
/// others move.
fn damage_stays_an_error() {
    run(|bucket| async move {
        let db = bucket.open("db").await;
        let keyspace = db.create_keyspace("apart", apart()).await.unwrap();
        for round in 0..2 {
            for number in 0..20u32 {
                let value = value(number, round, 3000);
                keyspace.put(number.to_be_bytes(), value).await.unwrap();
            }
            db.flush().await.unwrap();
            db.compact().await.unwrap();
        }
        settle(&bucket).await;
        // The first of the only object that is left.
        let objects = bucket.listed("db", "/table/").await;
        let object = objects.iter().max_by_key(|object| object.length).unwrap().name.clone();
        let mut bytes = bucket.bytes("db", &object).await;
        bytes[1000] ^= 1;
        bucket.replace("db", &object, bytes).await;
        for number in 5..20u32 {
            keyspace.put(number.to_be_bytes(), value(number, 2, 3000)).await.unwrap();
        }
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        db.set_options([("automatic_compaction", "true")]).unwrap();
        settle(&bucket).await;
        let lost = keyspace.get(0u32.to_be_bytes()).await;
        assert_eq!(lost.expect_err("the value is damaged").kind(), ErrorKind::Corrupt);
        for number in 1..20u32 {
            let round = if number < 5 { 1 } else { 2 };
            let found = keyspace.get(number.to_be_bytes()).await.unwrap().unwrap();
            assert!(found == value(number, round, 3000)[..], "{number}");
        }
        assert!(!db.background_errors().is_empty(), "it is told");
        // All but one record of the damaged object is garbage now, and it is not tried again.
        assert_eq!(count(&db, "value-objects"), 3);
        let spent = written(&db);
        settle(&bucket).await;
        assert_eq!(written(&db), spent, "nothing is done again");
        keyspace.put(0u32.to_be_bytes(), "whole").await.unwrap();
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        settle(&bucket).await;
        assert!(db.verify().await.unwrap().damage.is_empty());
    });
}

#[test]
fn a_value_that_cannot_move_stays_an_error() {
    damage_stays_an_error();
}

fn on_disk(env: &Env) -> Builder {
    let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=262144"]);
    Db::builder("file:///db").env(env.clone()).options(options.unwrap()).take_over(TakeOver::Always)
}

/// Rounds that each leave a key of the one before, so that its object is collected.
async fn rounds(env: Env, told: Arc<AtomicU8>) -> tombolo::Result<()> {
    let db = on_disk(&env).open().await?;
    let keyspace = db.create_keyspace("apart", apart()).await?;
    for round in 1..=4u8 {
        for number in u32::from(round) - 1..8 {
            keyspace.put(number.to_be_bytes(), value(number, u32::from(round), 2000)).await?;
        }
        told.store(round, Ordering::Relaxed);
        db.flush().await?;
        db.compact().await?;
        env.sleep(Duration::from_secs(1)).await;
    }
    db.close().await
}

/// What was written by the end of a round is there; of the one that was under way some is. Says how
/// many objects are named, and how much of them is garbage.
async fn check_rounds(env: Env, told: u8) -> (u64, u64) {
    let db = on_disk(&env).open().await.unwrap();
    let Ok(keyspace) = db.keyspace("apart") else {
        assert_eq!(told, 0);
        return (0, 0);
    };
    for _ in 0..2 {
        for number in 0..8u32 {
            let found = keyspace.get(number.to_be_bytes()).await.unwrap().map(|value| value.to_vec());
            let of = |last: u8| u32::from(last).min(number + 1);
            let is = |round| found == (round > 0).then(|| value(number, round, 2000));
            assert!(is(of(told)) || is(of(told + 1)), "{number} in round {told}");
        }
        db.compact().await.unwrap();
        env.sleep(Duration::from_secs(2)).await;
    }
    let report = db.verify().await.unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    (report.tables + report.value_objects, count(&db, "value-bytes-garbage"))
}

#[test]
fn a_crash_at_any_step_of_collecting_loses_no_value_and_leaves_no_object() {
    let mut whole = 0;
    for step in (1..).step_by(if crate::is_deep() { 1 } else { 7 }) {
        let world = World::new(step);
        let process = world.process("writer");
        process.crash_at_mutation(step, if step % 2 == 0 { Crash::Kill } else { Crash::PowerLoss });
        let told = Arc::new(AtomicU8::new(0));
        let ended = process.run(rounds(process.env(), Arc::clone(&told)));
        let objects = |host: &Host| {
            let files = host.all_files().into_iter();
            files.filter(|(path, _)| path.to_string_lossy().contains("/table/")).count() as u64
        };
        let next = process.host().process("next");
        let (named, _) = next.run(check_rounds(next.env(), told.load(Ordering::Relaxed))).unwrap();
        assert_eq!(objects(&process.host()), named, "step {step}");
        if ended.is_some_and(|ended| ended.is_ok()) {
            whole = step;
            break;
        }
    }
    assert!(whole > 40, "only {whole} steps");
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, enable};

    fn notices(mutant: Mutant, test: fn()) {
        let _out = enable(mutant);
        assert!(std::panic::catch_unwind(test).is_err(), "{mutant:?}");
    }

    #[test]
    fn references_that_move_uncounted_are_noticed() {
        notices(Mutant::MovedReferencesUncounted, super::overwrites_collect_garbage);
    }

    #[test]
    fn a_value_that_cannot_move_and_is_dropped_is_noticed() {
        notices(Mutant::UnreadableValueDropped, super::damage_stays_an_error);
    }
}
