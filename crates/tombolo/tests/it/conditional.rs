//! Writes with conditions: how they are judged, how they answer, and that of several writers
//! exactly one wins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tombolo::{
    Batch, Condition, Db, Durability, Env, ErrorKind, Keyspace, KeyspaceOptions, Options, Versioned,
};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::{LogStore, ObjectStore};

fn open(name: &str, options: &[&str]) -> Db {
    Db::builder(format!("mem://{name}"))
        .env(Env::real())
        .options(Options::parse(options.iter().copied()).unwrap())
        .open()
        .wait()
        .unwrap()
}

const SMALL: [&str; 2] = ["memory_bytes=1048576", "memtable_bytes=65536"];

fn value(found: Option<&Versioned>) -> Option<&[u8]> {
    found.map(|found| &found.value[..])
}

/// Each condition on a key that has a value and on one that has none, with the data where `settle`
/// puts it.
fn each_condition(db: &Db, keys: &Keyspace, durability: Durability, settle: impl Fn(&Db)) {
    let put = |condition: Condition, value: &str| {
        keys.put_if_with(b"k", value, condition, durability).wait().unwrap()
    };
    keys.delete(b"k").wait().unwrap();
    settle(db);
    for condition in [Condition::Present, Condition::equal(""), Condition::Unchanged(Some(1))] {
        let decision = put(condition.clone(), "never");
        assert_eq!((decision.is_met(), &decision.unmet[..]), (false, &[0][..]), "{condition:?}");
        assert_eq!(decision.found, [None], "{condition:?}");
    }
    assert_eq!(keys.get_versioned(b"k").wait().unwrap(), None);
    let first = put(Condition::Absent, "one");
    assert_eq!((&first.unmet[..], &first.found[..]), (&[][..], &[None][..]));
    settle(db);
    let read = keys.get_versioned(b"k").wait().unwrap().unwrap();
    assert_eq!((Some(read.sequence), &read.value[..]), (first.sequence, &b"one"[..]));
    for condition in [
        Condition::Absent,
        Condition::equal("One"),
        Condition::Unchanged(None),
        Condition::Unchanged(Some(read.sequence + 1)),
    ] {
        let decision = put(condition.clone(), "never");
        assert_eq!(decision.sequence, None, "{condition:?}");
        assert_eq!(decision.found, [Some(read.clone())], "{condition:?}: what is in the way is said");
    }
    let unchanged = put(Condition::unchanged(Some(&read)), "two");
    assert!(unchanged.is_met() && unchanged.found == [Some(read.clone())]);
    settle(db);
    // The same bytes again are another version.
    assert!(put(Condition::equal("two"), "one").is_met());
    assert!(!put(Condition::unchanged(Some(&read)), "never").is_met());
    assert!(put(Condition::Present, "three").is_met());
    settle(db);
    assert!(!keys.delete_if_with(b"k", Condition::equal("two"), durability).wait().unwrap().is_met());
    let deleted = keys.delete_if_with(b"k", Condition::equal("three"), durability).wait().unwrap();
    assert_eq!(value(deleted.found[0].as_ref()), Some(&b"three"[..]));
    settle(db);
    assert_eq!(keys.get(b"k").wait().unwrap(), None);
    let absent = keys.delete_if_with(b"k", Condition::Absent, durability).wait().unwrap();
    assert!(absent.is_met(), "deleting what is absent is a write as well");
}

#[test]
fn each_condition_says_what_was_found_wherever_the_data_lies() {
    let db = open("each", &SMALL);
    let other = db.create_keyspace("other", KeyspaceOptions::default()).wait().unwrap();
    for keys in [db.default_keyspace(), other] {
        for durability in [Durability::Durable, Durability::Accepted, Durability::Unlogged] {
            each_condition(&db, &keys, durability, |_| {});
            each_condition(&db, &keys, durability, |db| db.flush().wait().unwrap());
            each_condition(&db, &keys, durability, |db| db.compact().wait().unwrap());
        }
    }
}

#[test]
fn a_batch_takes_effect_if_all_its_conditions_hold() {
    let db = open("batch", &SMALL);
    let (left, right) =
        (db.default_keyspace(), db.create_keyspace("right", KeyspaceOptions::default()).wait().unwrap());
    left.put(b"a", b"10").wait().unwrap();
    let moved = |from: &str| {
        let mut batch = Batch::new();
        batch.require(&left, b"a", Condition::equal(from)).require(&right, b"a", Condition::Absent);
        batch.put(&left, b"a", b"4").put(&right, b"a", b"6").delete(&right, b"b");
        db.write_if(batch).wait().unwrap()
    };
    let refused = moved("11");
    assert_eq!((refused.sequence, &refused.unmet[..]), (None, &[0][..]));
    assert_eq!(value(refused.found[0].as_ref()), Some(&b"10"[..]));
    assert_eq!(right.get(b"a").wait().unwrap(), None, "nothing of it was written");
    let done = moved("10");
    assert_eq!(done.sequence, Some(db.stats().last_sequence), "the number of its last operation");
    assert_eq!((left.get(b"a").wait().unwrap().unwrap(), right.get(b"a").wait().unwrap().unwrap()), {
        (tombolo::Value::from(bytes::Bytes::from("4")), tombolo::Value::from(bytes::Bytes::from("6")))
    });
    assert_eq!(moved("10").unmet, [0, 1]);

    // Conditions alone write nothing, and say how it is.
    let last = db.stats().last_sequence;
    let mut batch = Batch::new();
    batch.require(&left, b"a", Condition::Present).require(&right, b"b", Condition::Absent);
    assert!(batch.is_empty());
    assert_eq!(db.write_if(batch).wait().unwrap().sequence, Some(last));
    assert_eq!(db.stats().last_sequence, last);

    // The version that a snapshot saw is compared later.
    let snapshot = db.snapshot();
    let before = snapshot.get_versioned(&left, b"a").wait().unwrap();
    left.put(b"a", b"5").wait().unwrap();
    assert_eq!(snapshot.get_versioned(&left, b"a").wait().unwrap(), before);
    assert!(!left.put_if(b"a", b"7", Condition::unchanged(before.as_ref())).wait().unwrap().is_met());
    let blocking = db.blocking();
    let keys = blocking.default_keyspace();
    let now = keys.get_versioned(b"a").unwrap();
    assert!(keys.put_if(b"a", b"7", Condition::unchanged(now.as_ref())).unwrap().is_met());
    assert!(keys.delete_if(b"a", Condition::Present).unwrap().is_met());
}

#[test]
fn what_cannot_be_asked_is_refused_and_nothing_is_written() {
    let db = open("refused", &SMALL);
    let keys = db.default_keyspace();
    let gone = db.create_keyspace("gone", KeyspaceOptions::default()).wait().unwrap();
    db.drop_keyspace("gone").wait().unwrap();
    let kind = |op: tombolo::Op<tombolo::Decision>| op.wait().unwrap_err().kind();
    assert_eq!(kind(gone.put_if(b"k", b"v", Condition::Absent)), ErrorKind::NotFound);
    let mut batch = Batch::new();
    batch.require(&gone, b"k", Condition::Absent).put(&keys, b"k", b"v");
    assert_eq!(kind(db.write_if(batch)), ErrorKind::NotFound);
    let mut batch = Batch::new();
    batch.put(&keys, b"k", b"v");
    assert_eq!(kind(db.write_if(batch)), ErrorKind::Invalid, "a batch without conditions");
    let conditional = || {
        let mut batch = Batch::new();
        batch.require(&keys, b"k", Condition::Absent).put(&keys, b"k", b"v");
        batch
    };
    let error = db.write(conditional()).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.next_step().unwrap().contains("write_if"), "{error}");
    let tried = db.try_write(conditional(), Durability::Durable).unwrap();
    assert_eq!(tried.wait().unwrap_err().kind(), ErrorKind::Invalid);
    let elsewhere = open("elsewhere", &SMALL);
    assert_eq!(kind(elsewhere.write_if(conditional())), ErrorKind::Invalid);
    assert_eq!(kind(keys.put_if(vec![0; 1 << 16], b"v", Condition::Absent)), ErrorKind::Invalid);
    assert_eq!(kind(keys.put_if(b"k", vec![0; (64 << 20) + 1], Condition::Absent)), ErrorKind::Invalid);
    let mut batch = Batch::new();
    for number in 0..=4096_u32 {
        batch.require(&keys, number.to_be_bytes(), Condition::Absent);
    }
    assert_eq!(kind(db.write_if(batch)), ErrorKind::Invalid, "too many conditions");
    assert_eq!(keys.get(b"k").wait().unwrap(), None);
    db.close().wait().unwrap();
    assert_eq!(kind(keys.put_if(b"k", b"v", Condition::Absent)), ErrorKind::Closed);
}

/// Far more than fits, all begun before the first is waited for: they stand in line, and their
/// conditions are judged at their turn.
#[test]
fn a_write_that_finds_no_room_is_judged_at_its_turn() {
    let db = open("line", &SMALL);
    let keys = db.default_keyspace();
    let mut writes = Vec::new();
    for round in 0..4_u8 {
        for number in 0..60_u8 {
            let condition = if round == 0 { Condition::Absent } else { Condition::equal([round; 4000]) };
            let key = [number];
            writes.push((
                round,
                number,
                keys.put_if_with(key, [round + 1; 4000], condition, Durability::Accepted),
            ));
        }
    }
    let mut met = [0_u32; 60];
    for (_, number, write) in writes {
        met[usize::from(number)] += u32::from(write.wait().unwrap().is_met());
    }
    for number in 0..60_u8 {
        let stored = keys.get([number]).wait().unwrap().unwrap();
        assert_eq!(u32::from(stored[0]), met[usize::from(number)], "each that was met has raised it by one");
    }
}

const THREADS: u32 = 4;
const ROUNDS: u64 = 150;

fn counted(found: Option<&Versioned>) -> u64 {
    found.map_or(0, |found| u64::from_be_bytes(found.value[..].try_into().unwrap()))
}

/// Threads that count by compare-and-set, while all is flushed and compacted.
#[test]
fn a_counter_counts_each_write_that_was_met_once() {
    let db = open("counter", &SMALL);
    let keys = db.default_keyspace();
    let counting = AtomicBool::new(true);
    let mut seen: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let keys = keys.clone();
                scope.spawn(move || {
                    let (mut mine, mut now) = (Vec::new(), keys.get_versioned(b"counter").wait().unwrap());
                    while (mine.len() as u64) < ROUNDS {
                        let next = counted(now.as_ref()) + 1;
                        let condition = match (thread % 2, &now) {
                            (0, _) | (_, None) => Condition::unchanged(now.as_ref()),
                            (_, Some(found)) => Condition::equal(&found.value),
                        };
                        let durability = [Durability::Durable, Durability::Accepted][(next % 2) as usize];
                        let write = keys.put_if_with(b"counter", next.to_be_bytes(), condition, durability);
                        match write.wait() {
                            Ok(decision) if decision.is_met() => {
                                mine.push(next);
                                now = keys.get_versioned(b"counter").wait().unwrap();
                            }
                            // What was found spares the read.
                            Ok(decision) => now = decision.found.into_iter().next().unwrap(),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                        }
                    }
                    mine
                })
            })
            .collect();
        let (db, counting) = (db.clone(), &counting);
        scope.spawn(move || {
            let mut round = 0_u32;
            while counting.load(Ordering::Relaxed) {
                round += 1;
                db.default_keyspace().put(round.to_be_bytes(), [7; 2000]).wait().unwrap();
                if round.is_multiple_of(8) {
                    db.flush().wait().unwrap();
                }
                if round.is_multiple_of(64) {
                    db.compact().wait().unwrap();
                }
            }
        });
        let seen = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        counting.store(false, Ordering::Relaxed);
        seen
    });
    seen.sort_unstable();
    let all: Vec<u64> = (1..=u64::from(THREADS) * ROUNDS).collect();
    assert!(seen == all, "each number was counted by exactly one");
    assert_eq!(counted(keys.get_versioned(b"counter").wait().unwrap().as_ref()), all.len() as u64);
}

/// A lock that threads take and give back: nobody else has it meanwhile.
#[test]
fn a_key_put_if_absent_is_a_lock() {
    let db = open("lock", &SMALL);
    let keys = db.default_keyspace();
    let held = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (keys, held, db) = (keys.clone(), &held, db.clone());
            scope.spawn(move || {
                let mut taken = 0;
                while taken < 50 {
                    let lock = keys.put_if_with(
                        b"lock",
                        thread.to_be_bytes(),
                        Condition::Absent,
                        Durability::Accepted,
                    );
                    if !lock.wait().unwrap().is_met() {
                        std::thread::yield_now();
                        continue;
                    }
                    assert!(!held.swap(true, Ordering::AcqRel), "two have it");
                    taken += 1;
                    if taken % 10 == 0 {
                        db.flush().wait().unwrap();
                    }
                    held.store(false, Ordering::Release);
                    let mine = Condition::equal(thread.to_be_bytes());
                    let given_back = keys.delete_if_with(b"lock", mine, Durability::Accepted);
                    assert!(given_back.wait().unwrap().is_met(), "it was ours");
                }
            });
        }
    });
}

/// Where a log is made of objects, a write is accepted later than it is made.
#[test]
fn conditions_hold_on_a_log_of_objects_and_after_it_was_replayed() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let work = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let open = || {
            let log: Arc<dyn LogStore> = Arc::new(ObjectLogStore::new(&env, Arc::clone(&objects), true));
            Db::builder("mem://x").env(env.clone()).stores(Arc::clone(&objects), log).open()
        };
        let db = open().await.unwrap();
        let keys = db.default_keyspace();
        let first = keys.put_if(b"k", b"1", Condition::Absent).await.unwrap();
        let (one, other) =
            (keys.put_if(b"k", b"2", Condition::equal("1")), keys.put_if(b"k", b"3", Condition::equal("1")));
        let (one, other) = (one.await.unwrap(), other.await.unwrap());
        assert!(first.is_met() && one.is_met() && !other.is_met(), "of two begun together one is met");
        assert_eq!(other.found[0].as_ref().map(|found| found.sequence), one.sequence);
        drop((db, keys));
        let db = open().await.unwrap();
        let keys = db.default_keyspace();
        let found = keys.get_versioned(b"k").await.unwrap().unwrap();
        assert_eq!((Some(found.sequence), &found.value[..]), (one.sequence, &b"2"[..]));
        assert!(keys.delete_if(b"k", Condition::unchanged(Some(&found))).await.unwrap().is_met());
    };
    process.run(work).unwrap();
}
