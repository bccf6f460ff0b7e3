//! Readers and looks over the streams of a database: what they show is of one moment.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Db, Env, Keyspace, KeyspaceOptions, OperatorName, Options, ReaderOptions, TakeOver};
use tombolo_env::TaskClass;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, Rule};

use crate::streams::{KINDS, NAMES, Stores, at, of_stream, rounds, run, three, value};

/// Writes to streams in turn, each write after the one before is durable, until it is told to
/// end; says how many.
async fn write_on(env: Env, all: Vec<Keyspace>, written: Arc<Mutex<u64>>, ends: Arc<Mutex<bool>>) {
    let mut number = *written.lock();
    while !*ends.lock() {
        let keys = &all[number as usize % all.len()];
        keys.put(b"k", number.to_be_bytes()).await.unwrap();
        number += 1;
        *written.lock() = number;
        if number.is_multiple_of(20) {
            keys.put(number.to_be_bytes(), vec![7; 20_000]).await.unwrap();
        }
        env.sleep(Duration::from_millis(2)).await;
    }
}

/// That what a snapshot of a reader has of three streams is of one moment; the newest write in it.
async fn one_moment_of(reader: &Db) -> u64 {
    let snapshot = reader.snapshot();
    let mut found = Vec::new();
    for name in NAMES {
        let value = at(&snapshot, &reader.keyspace(name).unwrap(), b"k").await.expect("written before");
        found.push(u64::from_be_bytes(value.try_into().unwrap()));
    }
    let newest = *found.iter().max().unwrap();
    for (place, found) in found.iter().enumerate() {
        let place = place as u64;
        let wanted =
            if newest % 3 >= place { newest - newest % 3 + place } else { newest / 3 * 3 + place - 3 };
        assert_eq!(*found, wanted, "stream {place} beside write {newest}");
    }
    newest
}

/// A reader, whose looks at one log after another take a while, follows a writer that never rests.
fn a_reader_follows_streams(kind: &str) {
    run(kind, |stores| async move {
        let objects = FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), stores.plan.clone());
        let slow = Stores { objects: Arc::new(objects), ..stores.clone() };
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..1).await;
        let (written, ends) = (Arc::new(Mutex::new(3)), Arc::new(Mutex::new(false)));
        let writing = write_on(stores.env.clone(), all.to_vec(), Arc::clone(&written), Arc::clone(&ends));
        let writing = stores.env.spawn(TaskClass::Foreground, "writer", writing);
        let of_log = |asked: &Asked<'_>| {
            matches!(asked.kind, RequestKind::LogRead) || asked.name.contains("log-objects/")
        };
        stores.plan.inject(Rule::new(of_log, Fault::Delay(Duration::from_millis(5))));
        let options = ReaderOptions { lag: Duration::from_millis(100), ..ReaderOptions::default() };
        let reader = slow.builder().open_reader(options).await.unwrap();
        for round in 0..12 {
            let before = *written.lock() - 1;
            if round % 3 == 2 {
                stores.env.sleep(Duration::from_millis(170)).await;
                one_moment_of(reader.db()).await;
            } else {
                reader.refresh().await.unwrap();
                assert!(one_moment_of(reader.db()).await >= before);
            }
            if round == 5 {
                db.flush().await.unwrap();
            }
        }
        // A look, while writes go on: it holds all that was durable before.
        let before = *written.lock() - 1;
        let look = slow.builder().open_read_only().await.unwrap();
        assert!(one_moment_of(&look).await >= before);
        assert!(look.keyspace("one").unwrap().put(b"k", b"v").await.is_err());
        look.close().await.unwrap();
        *ends.lock() = true;
        writing.await;
        let last = *written.lock() - 1;
        reader.refresh().await.unwrap();
        assert_eq!(one_moment_of(reader.db()).await, last);
        // Streams, keyspaces and lanes that come and go.
        let more = db.create_keyspace("more", of_stream(9)).await.unwrap();
        more.put(b"k", b"v").await.unwrap();
        db.drop_keyspace("two").await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(value(&reader.keyspace("more").unwrap(), b"k").await.unwrap(), b"v");
        assert!(reader.keyspace("two").is_err());
        let held = reader.snapshot();
        more.put(b"k", b"w").await.unwrap();
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        reader.refresh().await.unwrap();
        let of_reader = reader.keyspace("more").unwrap();
        assert_eq!(value(&of_reader, b"k").await.unwrap(), b"w");
        assert_eq!(at(&held, &of_reader, b"k").await.unwrap(), b"v");
        // Another writer takes over, and is followed too.
        let next = stores.builder().take_over(TakeOver::Always).open().await.unwrap();
        next.keyspace("more").unwrap().put(b"k", b"x").await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(value(&of_reader, b"k").await.unwrap(), b"x");
        assert!(reader.db().verify().await.unwrap().damage.is_empty());
        reader.close().await.unwrap();
    });
}

fn a_reader_follows_streams_in_memory() {
    a_reader_follows_streams("memory");
}

#[test]
fn readers_and_looks_show_one_cut_of_all_streams() {
    let kinds = if crate::is_deep() { &KINDS[..] } else { &KINDS[1..3] };
    kinds.iter().for_each(|kind| a_reader_follows_streams(kind));
}

/// The flush of the drop of a stream's keyspace trims the log that has it.
#[test]
fn readers_see_drops_of_which_no_log_says_anything() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..1).await;
        db.flush().await.unwrap();
        let reader = stores.builder().open_reader(ReaderOptions::default()).await.unwrap();
        reader.refresh().await.unwrap();
        db.drop_keyspace("two").await.unwrap();
        db.flush().await.unwrap();
        reader.refresh().await.unwrap();
        assert!(reader.keyspace("two").is_err());
        all[0].put(b"k", b"v").await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(value(&reader.default_keyspace(), b"k").await.unwrap(), b"v");
    });
}

/// A stream without a keyspace is in no cut, and a writer that finds none may yet have logs of one.
#[test]
fn readers_follow_when_streams_are_gone() {
    run("memory", |stores| async move {
        let mut db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..1).await;
        drop(all);
        let reader = stores.builder().open_reader(ReaderOptions::default()).await.unwrap();
        let written = Arc::new(Mutex::new(3));
        for gone in ["two", "one"] {
            db.drop_keyspace(gone).await.unwrap();
            drop(db);
            db = stores.open().await;
            for flushes in [false, true] {
                if flushes {
                    db.flush().await.unwrap();
                }
                let all: Vec<_> = NAMES.iter().filter_map(|name| db.keyspace(name).ok()).collect();
                let ends = Arc::new(Mutex::new(false));
                let writing = write_on(stores.env.clone(), all, Arc::clone(&written), Arc::clone(&ends));
                let writing = stores.env.spawn(TaskClass::Foreground, "writer", writing);
                let of_log = |asked: &Asked<'_>| asked.kind == RequestKind::LogRead;
                stores.plan.inject(Rule::new(of_log, Fault::Delay(Duration::from_millis(5))));
                stores.env.sleep(Duration::from_millis(10)).await;
                let before = *written.lock() - 1;
                reader.refresh().await.unwrap();
                let look = stores.builder().open_read_only().await.unwrap();
                for shown in [reader.db(), &look] {
                    let mut newest = 0;
                    for keys in NAMES.iter().filter_map(|name| shown.keyspace(name).ok()) {
                        let found = value(&keys, b"k").await.unwrap();
                        newest = newest.max(u64::from_be_bytes(found.try_into().unwrap()));
                    }
                    assert!(newest >= before, "{newest} of {before}, without {gone}");
                    assert!(shown.keyspace(gone).is_err());
                }
                look.close().await.unwrap();
                *ends.lock() = true;
                writing.await;
                stores.plan.clear();
            }
        }
    });
}

/// A snapshot of a reader sees nothing of what a later round shows, also of a stream that it meets.
fn a_snapshot_of_before_a_stream() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..1).await;
        let reader = stores.builder().open_reader(ReaderOptions::default()).await.unwrap();
        let before = reader.snapshot();
        let more = db.create_keyspace("more", of_stream(9)).await.unwrap();
        more.put(b"k", b"v").await.unwrap();
        reader.refresh().await.unwrap();
        let more = reader.keyspace("more").unwrap();
        assert_eq!(value(&more, b"k").await.unwrap(), b"v");
        assert_eq!(at(&before, &more, b"k").await, None);
    });
}

#[test]
fn snapshots_of_readers_do_not_see_streams_that_are_met_after() {
    a_snapshot_of_before_a_stream();
}

/// Operands are counted once, whether they are in the log or in tables by now.
#[test]
fn a_reader_of_streams_counts_operands_once() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let operator = Some(OperatorName::new("add_u64", 1).unwrap());
        let sums = KeyspaceOptions { operator, ..of_stream(4) };
        let sums = db.create_keyspace("sums", sums).await.unwrap();
        let reader = stores.builder().open_reader(ReaderOptions::default()).await.unwrap();
        for number in 1..=30u64 {
            sums.merge(b"k", 1u64.to_le_bytes()).await.unwrap();
            if number.is_multiple_of(7) {
                db.flush().await.unwrap();
            }
            if number.is_multiple_of(2) {
                reader.refresh().await.unwrap();
                let found = value(&reader.keyspace("sums").unwrap(), b"k").await.unwrap();
                assert_eq!(found, number.to_le_bytes());
            }
        }
    });
}

/// A lane that ended: the one after it is in a newer state than the reader began with.
fn a_reader_follows_a_lane_that_ends() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..1).await;
        let reader = stores.builder().open_reader(ReaderOptions::default()).await.unwrap();
        let name = format!("{}/{}", db.epoch(), 1 << 16);
        let of_lane = move |asked: &Asked<'_>| {
            matches!(asked.kind, RequestKind::LogAppend | RequestKind::LogSync) && asked.name == name
        };
        stores.plan.inject(Rule::new(of_lane, Fault::Unknown { landed: false }));
        let of_main = |asked: &Asked<'_>| asked.kind == RequestKind::LogRead;
        stores.plan.inject(Rule::new(of_main, Fault::Delay(Duration::from_millis(200))));
        let refreshed = reader.refresh();
        stores.env.sleep(Duration::from_millis(50)).await;
        for (place, keys) in all.iter().enumerate().skip(1) {
            while keys.put(b"k", (3 + place as u64).to_be_bytes()).await.is_err() {
                stores.env.sleep(Duration::from_millis(1)).await;
            }
        }
        refreshed.await.unwrap();
        let two = value(&reader.keyspace("two").unwrap(), b"k").await.unwrap();
        let one = value(&reader.keyspace("one").unwrap(), b"k").await.unwrap();
        assert!(two == 2u64.to_be_bytes() || one == 4u64.to_be_bytes(), "{one:?} {two:?}");
        stores.plan.clear();
        reader.refresh().await.unwrap();
        let two = value(&reader.keyspace("two").unwrap(), b"k").await.unwrap();
        assert_eq!(two, 5u64.to_be_bytes());
    });
}

/// A stream that begins while a reader looks at the logs has one that its state does not name.
fn a_stream_begins_while_a_reader_looks() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let reader = stores.builder().open_reader(ReaderOptions::default()).await.unwrap();
        let of_log = |asked: &Asked<'_>| asked.kind == RequestKind::LogRead;
        stores.plan.inject(Rule::new(of_log, Fault::Delay(Duration::from_millis(200))));
        let refreshed = reader.refresh();
        stores.env.sleep(Duration::from_millis(50)).await;
        let nine = db.create_keyspace("nine", of_stream(9)).await.unwrap();
        nine.put(b"k", b"first").await.unwrap();
        db.default_keyspace().put(b"k", b"second").await.unwrap();
        refreshed.await.unwrap();
        if value(&reader.default_keyspace(), b"k").await.is_some() {
            let first = value(&reader.keyspace("nine").unwrap(), b"k").await;
            assert_eq!(first.as_deref(), Some(&b"first"[..]), "what came second is there alone");
        }
        reader.refresh().await.unwrap();
        assert!(value(&reader.default_keyspace(), b"k").await.is_some());
        assert!(value(&reader.keyspace("nine").unwrap(), b"k").await.is_some());
    });
}

#[test]
fn readers_meet_streams_that_begin() {
    a_stream_begins_while_a_reader_looks();
}

#[test]
fn readers_go_on_in_the_next_lane() {
    a_reader_follows_a_lane_that_ends();
}

/// Between two cuts more is written than a reader holds, and after the last one too: it looks at
/// that, goes on without holding it, and shows it once it may.
fn a_reader_holds_little_of_a_stream() {
    run("memory", |stores| async move {
        let large = Options::parse(["memory_bytes=268435456", "memtable_bytes=33554432"]).unwrap();
        let db = stores.builder().options(large).open().await.unwrap();
        let all = three(&db).await;
        rounds(&all, 0..1).await;
        // Its memtables of streams have 64 KiB.
        let reader = stores.builder().open_reader(ReaderOptions::default()).await.unwrap();
        let of_log = |asked: &Asked<'_>| asked.kind == RequestKind::LogRead;
        stores.plan.inject(Rule::new(of_log, Fault::Delay(Duration::from_millis(5))));
        let (written, ends) = (Arc::new(Mutex::new(3u64)), Arc::new(Mutex::new(false)));
        let (env, now, end) = (stores.env.clone(), Arc::clone(&written), Arc::clone(&ends));
        let of_all = all.clone();
        let writing = stores.env.spawn(TaskClass::Foreground, "writer", async move {
            let mut number = *now.lock();
            while !*end.lock() {
                let keys = &of_all[number as usize % of_all.len()];
                keys.put(b"large", vec![7; 12_000]).await.unwrap();
                keys.put(b"k", number.to_be_bytes()).await.unwrap();
                number += 1;
                *now.lock() = number;
                env.sleep(Duration::from_millis(3)).await;
            }
        });
        for _ in 0..3 {
            stores.env.sleep(Duration::from_millis(100)).await;
            let before = *written.lock() - 1;
            reader.refresh().await.unwrap();
            assert!(one_moment_of(reader.db()).await >= before);
        }
        *ends.lock() = true;
        writing.await;
        stores.plan.clear();
        let mut number = *written.lock();
        for _ in 0..2 {
            for _ in 0..60 {
                let keys = &all[number as usize % all.len()];
                keys.put(number.to_be_bytes(), vec![7; 12_000]).await.unwrap();
                keys.put(b"k", number.to_be_bytes()).await.unwrap();
                number += 1;
            }
            reader.refresh().await.unwrap();
            assert_eq!(one_moment_of(reader.db()).await, number - 1);
            for written in number - 60..number {
                let keys = reader.keyspace(NAMES[written as usize % NAMES.len()]).unwrap();
                assert!(value(&keys, &written.to_be_bytes()).await.is_some(), "write {written}");
            }
        }
    });
}

#[test]
fn readers_hold_little_of_a_stream_and_go_on() {
    a_reader_holds_little_of_a_stream();
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    use super::*;

    #[test]
    fn readers_that_miss_logs_named_meanwhile() {
        notices(Mutant::ReaderOfStreamsMissesLogs, a_stream_begins_while_a_reader_looks);
    }

    #[test]
    fn readers_whose_snapshots_meet_streams_late() {
        notices(Mutant::ReaderMeetsCutsLate, a_snapshot_of_before_a_stream);
    }

    #[test]
    fn readers_that_hold_all() {
        notices(Mutant::ReaderHoldsAll, a_reader_holds_little_of_a_stream);
    }

    #[test]
    fn readers_that_forget_what_they_passed_over() {
        notices(Mutant::ReaderForgetsPassed, a_reader_holds_little_of_a_stream);
    }

    #[test]
    fn readers_that_ignore_cuts() {
        notices(Mutant::ReaderIgnoresCuts, a_reader_follows_streams_in_memory);
    }
}
