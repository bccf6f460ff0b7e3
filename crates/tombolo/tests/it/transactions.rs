//! Transactions through the public interface: what they read, what they write, and what they
//! conflict with.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tombolo::{
    Db, Durability, Env, ErrorKind, Ingest, Isolation, Keyspace, KeyspaceOptions, Locking, OperatorName,
    Options, Registry, TableFileBuilder, Transaction, TransactionCursor, TransactionOptions,
};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

const SMALL: [&str; 2] = ["memory_bytes=2097152", "memtable_bytes=65536"];

fn open(name: &str) -> Db {
    let env = Env::real();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
    let builder = Db::builder(format!("mem://{name}")).env(env).stores(objects, log);
    builder.options(Options::parse(SMALL).unwrap()).open().wait().unwrap()
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Db) -> F + Send + 'static) {
    run_in(|_, db| test(db));
}

fn run_in<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Env, Db) -> F + Send + 'static) {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let opened = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let builder = Db::builder("mem://transactions").env(env.clone()).stores(objects, log);
        test(env, builder.options(Options::parse(SMALL).unwrap()).open().await.unwrap()).await;
    };
    process.run(opened).unwrap();
}

fn with_appends(db: &Db, name: &str) -> Keyspace {
    let operator = Some(OperatorName::parse("append").unwrap());
    db.create_keyspace(name, KeyspaceOptions { operator, ..Default::default() }).wait().unwrap()
}

fn text(value: Option<tombolo::Value>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn walk(mut cursor: TransactionCursor) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    while cursor.next().unwrap() {
        let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        entries.push((string(cursor.key()), string(cursor.value())));
    }
    let mut back = Vec::new();
    while cursor.prev().unwrap() {
        let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        back.push((string(cursor.key()), string(cursor.value())));
    }
    back.reverse();
    assert_eq!(entries, back, "both ways");
    entries
}

#[test]
fn operands_that_end_are_part_of_transactions() {
    let db = open("ending operands");
    let keys = with_appends(&db, "keys");
    keys.put("a", "1").wait().unwrap();
    let transaction = db.transaction();
    transaction.merge_ttl(&keys, "a", "2", Duration::from_secs(100)).wait().unwrap();
    let end = db.time_ms() + 100_000;
    transaction.merge_until(&keys, "b", "3", end).wait().unwrap();
    let error = transaction.merge_until(&keys, "b", "4", 1).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "it has passed");
    let get = |key: &str| text(transaction.get(&keys, key).wait().unwrap());
    assert_eq!((get("a").as_deref(), get("b").as_deref()), (Some("12"), Some("3")));
    transaction.commit().wait().unwrap();
    let mut cursor = keys.cursor::<&str>(..);
    assert!(cursor.next().unwrap() && cursor.value() == b"12" && cursor.expires_ms().is_some());
    assert!(cursor.next().unwrap() && cursor.value() == b"3" && cursor.expires_ms() == Some(end));
    let blocking = db.blocking();
    let keys = blocking.keyspace("keys").unwrap();
    let transaction = blocking.transaction();
    transaction.merge_ttl(&keys, "b", "5", Duration::from_secs(100)).unwrap();
    transaction.merge_until(&keys, "b", "6", end).unwrap();
    transaction.commit().unwrap();
    assert_eq!(text(keys.get("b").unwrap()).as_deref(), Some("356"));
}

#[test]
fn a_transaction_reads_its_own_writes_and_nobody_else_does() {
    let db = open("own");
    let keys = with_appends(&db, "keys");
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3"), ("e", "5")] {
        keys.put(key, value).wait().unwrap();
    }
    let transaction = db.transaction();
    transaction.put(&keys, "b", "two").wait().unwrap();
    transaction.delete(&keys, "a").wait().unwrap();
    transaction.merge(&keys, "c", "+").wait().unwrap();
    transaction.merge(&keys, "d", "new").wait().unwrap();
    let savepoint = transaction.savepoint().unwrap();
    transaction.delete_range(&keys, "b", "d").wait().unwrap();
    transaction.merge(&keys, "c", "over nothing").wait().unwrap();
    transaction.put_ttl(&keys, "f", "soon", Duration::from_secs(100)).wait().unwrap();
    // Others write, which it does not see.
    keys.put("z", "unseen").wait().unwrap();
    let get = |key: &str| text(transaction.get(&keys, key).wait().unwrap());
    assert_eq!(get("b"), None);
    assert_eq!(get("c").as_deref(), Some("over nothing"));
    assert_eq!((get("f").as_deref(), get("z")), (Some("soon"), None));
    let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let all = walk(transaction.cursor::<&str>(&keys, ..));
    assert_eq!(all, pairs(&[("c", "over nothing"), ("d", "new"), ("e", "5"), ("f", "soon")]));
    transaction.roll_back_to(savepoint).unwrap();
    let all = walk(transaction.cursor::<&str>(&keys, ..));
    assert_eq!(all, pairs(&[("b", "two"), ("c", "3+"), ("d", "new"), ("e", "5")]));
    let several = transaction.multi_get(&keys, &["e", "d", "c", "b", "a", "f"]).wait().unwrap();
    let several: Vec<_> = several.into_iter().map(text).collect();
    let wanted = [Some("5"), Some("new"), Some("3+"), Some("two"), None, None];
    assert_eq!(several, wanted.map(|value| value.map(str::to_owned)));
    let mut cursor = transaction.cursor(&keys, "b".."e");
    assert!(cursor.seek("c\0").unwrap() && cursor.key() == b"d");
    assert!(cursor.seek_for_prev("b").unwrap() && cursor.value() == b"two");
    assert!(!cursor.prev().unwrap() && cursor.seek_to_last().unwrap() && cursor.key() == b"d");
    // A cursor sees what was written before it was opened, or refreshed.
    transaction.put(&keys, "bb", "later").wait().unwrap();
    assert!(cursor.seek_to_first().unwrap() && cursor.next().unwrap() && cursor.key() == b"c");
    cursor.refresh().unwrap();
    assert!(cursor.seek("b\0").unwrap() && cursor.key() == b"bb");
    assert_eq!(text(keys.get("b").wait().unwrap()).as_deref(), Some("2"), "nobody else sees it");
    assert_eq!(transaction.len(), 5);
    transaction.commit().wait().unwrap();
    assert!(cursor.next().unwrap_err().kind() == ErrorKind::Invalid, "it has ended");
    let (b, c) = (text(keys.get("b").wait().unwrap()), text(keys.get("c").wait().unwrap()));
    assert_eq!((b.as_deref(), c.as_deref()), (Some("two"), Some("3+")));
    let stats = db.stats();
    assert_eq!((stats.transactions_open, stats.transactions_committed), (0, 1));
}

#[test]
fn a_rolled_back_transaction_leaves_nothing() {
    let db = open("rolled-back");
    let keys = db.default_keyspace();
    let transaction = db.transaction_with(TransactionOptions::pessimistic());
    transaction.put(&keys, "a", "1").wait().unwrap();
    assert_eq!(db.stats().transactions_open, 1);
    let savepoint = transaction.savepoint().unwrap();
    let later = transaction.savepoint().unwrap();
    transaction.roll_back_to(savepoint).unwrap();
    assert_eq!(transaction.roll_back_to(later).unwrap_err().kind(), ErrorKind::Invalid);
    transaction.roll_back();
    assert_eq!((db.stats().transactions_open, keys.get("a").wait().unwrap()), (0, None));
    let other = db.transaction_with(TransactionOptions::pessimistic());
    assert_eq!(other.roll_back_to(savepoint).unwrap_err().kind(), ErrorKind::Invalid, "of another one");
    other.put(&keys, "a", "2").wait().unwrap();
    drop(other);
    assert_eq!(db.stats().transactions_open, 0);
}

/// One that reads and writes, and something else that happens between its reads and its commit.
fn between(
    db: &Db,
    options: TransactionOptions,
    read: impl Fn(&Transaction),
    other: impl Fn(),
) -> Result<u64, tombolo::Error> {
    let keys = db.default_keyspace();
    let transaction = db.transaction_with(options);
    read(&transaction);
    transaction.put(&keys, "mine", "x").wait().unwrap();
    other();
    transaction.commit().wait()
}

fn conflicts(db: &Db, options: TransactionOptions, read: impl Fn(&Transaction), other: impl Fn()) -> String {
    let error = between(db, options, read, other).expect_err("others have written");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    error.to_string()
}

#[test]
fn what_was_written_by_others_is_a_conflict_that_names_the_key() {
    let db = open("conflicts");
    {
        let keys = db.default_keyspace();
        for key in ["a", "m", "mine", "z"] {
            keys.put(key, "before").wait().unwrap();
        }
        let snapshot = TransactionOptions::default;
        let nothing = |_: &Transaction| ();
        // Each way to write, to memory, to tables, and by tables of others.
        let told = conflicts(&db, snapshot(), nothing, || keys.put("mine", "y").wait().unwrap());
        assert!(told.contains("key \"mine\" of keyspace \"default\" was written by another"), "{told}");
        conflicts(&db, snapshot(), nothing, || keys.delete("mine").wait().unwrap());
        conflicts(&db, snapshot(), nothing, || keys.delete_range("mi", "mj").wait().unwrap());
        conflicts(&db, snapshot(), nothing, || {
            keys.delete_range("mi", "mj").wait().unwrap();
            db.flush().wait().unwrap();
        });
        conflicts(&db, snapshot(), nothing, || {
            keys.put("mine", "y").wait().unwrap();
            keys.delete("mine").wait().unwrap();
            keys.put("mine", "z").wait().unwrap();
            db.compact().wait().unwrap();
        });
        // A delete that nobody else needs stays as long as the transaction looks from before it.
        conflicts(&db, snapshot(), nothing, || {
            keys.delete("mine").wait().unwrap();
            db.compact().wait().unwrap();
        });
        // What it has not written, and read without need, may change.
        let reads = |transaction: &Transaction| {
            transaction.get(&keys, "a").wait().unwrap();
        };
        between(&db, snapshot(), reads, || keys.put("a", "y").wait().unwrap()).unwrap();
        let updates = |transaction: &Transaction| {
            transaction.get_for_update(&keys, "a").wait().unwrap();
        };
        conflicts(&db, snapshot(), updates, || keys.put("a", "y").wait().unwrap());
        between(&db, snapshot(), updates, || keys.put("z", "y").wait().unwrap()).unwrap();
        let range = |transaction: &Transaction| {
            transaction.lock_range(&keys, "p".."r").wait().unwrap();
        };
        conflicts(&db, snapshot(), range, || keys.put("q", "new").wait().unwrap());
        between(&db, snapshot(), range, || keys.put("r", "the end").wait().unwrap()).unwrap();
        assert!(db.stats().transaction_conflicts >= 8);
    }
}

/// A range that was deleted rests on all keys in it.
#[test]
fn a_range_delete_conflicts_with_writes_in_its_range() {
    run(|db| async move {
        let keys = db.default_keyspace();
        for flushed in [false, true] {
            let transaction = db.transaction();
            transaction.delete_range(&keys, "b", "d").await.unwrap();
            keys.put("c", "new").await.unwrap();
            if flushed {
                db.flush().await.unwrap();
            }
            assert_eq!(transaction.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
            assert!(keys.get("c").await.unwrap().is_some());
            let transaction = db.transaction();
            transaction.delete_range(&keys, "b", "d").await.unwrap();
            keys.put("d", "the end is not in it").await.unwrap();
            if flushed {
                db.flush().await.unwrap();
            }
            transaction.commit().await.unwrap();
            assert_eq!(keys.get("c").await.unwrap(), None);
        }
    });
}

/// Two that each read what the other one writes: as one after the other, at most one commits.
fn write_skew_is_refused() {
    run(|db| async move {
        let keys = db.default_keyspace();
        let one = db.transaction_with(TransactionOptions::serializable());
        let two = db.transaction_with(TransactionOptions::serializable());
        assert_eq!(one.get(&keys, "b").await.unwrap(), None);
        assert_eq!(two.get(&keys, "a").await.unwrap(), None);
        one.put(&keys, "a", "1").await.unwrap();
        two.put(&keys, "b", "2").await.unwrap();
        one.commit().await.unwrap();
        assert_eq!(two.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
    });
}

/// The same of ranges without keys, walked both ways and sought.
fn phantoms_are_refused() {
    run(|db| async move {
        let keys = db.default_keyspace();
        for key in ["b", "d", "f"] {
            keys.put(key, "before").await.unwrap();
        }
        // What a walk has passed: (its steps, a key in it, a key out of it).
        for (way, within, without) in
            [(0, "c", "e"), (1, "e", "c"), (2, "g", "a"), (3, "a", "g"), (4, "d", "b"), (5, "dd", "bb")]
        {
            for (key, is_within) in [(within, true), (without, false)] {
                for flushed in [false, true] {
                    let transaction = db.transaction_with(TransactionOptions::serializable());
                    let mut cursor = transaction.cursor(&keys, .."z");
                    match way {
                        0 => {
                            cursor.next_async().await.unwrap();
                            cursor.next_async().await.unwrap();
                        }
                        1 => {
                            cursor.seek_to_last_async().await.unwrap();
                            cursor.prev_async().await.unwrap();
                        }
                        2 => assert!(!cursor.seek_async("ff").await.unwrap()),
                        3 => assert!(!cursor.seek_for_prev_async("aa").await.unwrap()),
                        4 => assert!(cursor.seek_async("c").await.unwrap()),
                        _ => assert!(cursor.seek_for_prev_async("e").await.unwrap()),
                    }
                    keys.put(key, "new").await.unwrap();
                    if flushed {
                        db.flush().await.unwrap();
                    }
                    transaction.put(&keys, "zz", "mine").await.unwrap();
                    let committed = transaction.commit().await;
                    assert_eq!(committed.is_err(), is_within, "{way} {key} {flushed} {committed:?}");
                    if ["a", "c", "e", "g", "bb", "dd"].contains(&key) {
                        keys.delete(key).await.unwrap();
                    }
                }
            }
        }
    });
}

/// What others do to a range that was read, and that is no write of a key.
#[derive(Clone, Copy, Debug)]
enum Other {
    DeleteRange(&'static str, &'static str),
    /// Tables with these keys.
    Ingest(&'static [&'static str]),
    /// All that the keyspace holds ends, and a table with these keys takes its place.
    Exchange(&'static [&'static str]),
}

async fn happens(env: &Env, keys: &Keyspace, db: &Db, other: Other, part: usize) {
    let (put, exchanges) = match other {
        Other::DeleteRange(from, to) => return keys.delete_range(from, to).await.unwrap(),
        Other::Ingest(put) => (put, false),
        Other::Exchange(put) => (put, true),
    };
    let uri = format!("file:///parts/{part}.table");
    let registry = Registry::with_defaults();
    let table = TableFileBuilder::create_with(env.clone(), registry, uri.as_str(), keys.options());
    let mut table = table.await.unwrap();
    for key in put {
        table.put(*key, "of a table").await.unwrap();
    }
    table.finish().await.unwrap();
    let ingest = Ingest::new().table(keys, uri.as_str());
    if !exchanges {
        db.ingest(ingest).await.unwrap();
        return;
    }
    // It would end what the transaction reads: of the two it is refused, and takes nothing.
    let error = db.ingest(ingest.exchange(keys)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

/// A range that was read meets range deletes and tables from outside, though none of them wrote a
/// key that was there; and none that lies beside it. An exchange waits for the transaction's end.
fn ranges_meet_what_is_no_write_of_a_key() {
    let within = [
        Other::DeleteRange("d", "e"),
        Other::DeleteRange("a", "c0"),
        Other::DeleteRange("f", "z"),
        Other::DeleteRange("d1", "d2"),
        Other::Ingest(&["e"]),
        Other::Ingest(&["a", "c", "h"]),
    ];
    let beside = [
        Other::DeleteRange("a", "c"),
        Other::DeleteRange("g", "z"),
        Other::Ingest(&["a", "h"]),
        Other::Ingest(&["b"]),
        Other::Exchange(&["a"]),
        Other::Exchange(&["d", "f"]),
    ];
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let test = async move {
        let builder = Db::builder("file:///db").env(env.clone()).options(Options::parse(SMALL).unwrap());
        let db = builder.open().await.unwrap();
        let keys = db.default_keyspace();
        let all = within.into_iter().map(|other| (other, true));
        let all: Vec<_> = all.chain(beside.into_iter().map(|other| (other, false))).collect();
        let ways = [(true, false), (false, false), (true, true), (false, true)];
        let mut part = 0;
        for (other, is_within) in all {
            for (walks, flushed) in ways {
                for key in ["b", "d", "f", "h"] {
                    keys.put(key, "before").await.unwrap();
                }
                let options =
                    if walks { TransactionOptions::serializable() } else { TransactionOptions::default() };
                let transaction = db.transaction_with(options);
                if walks {
                    let mut cursor = transaction.cursor(&keys, "c".."g");
                    while cursor.next_async().await.unwrap() {}
                } else {
                    transaction.lock_range(&keys, "c".."g").await.unwrap();
                }
                transaction.put(&keys, "zz", "mine").await.unwrap();
                part += 1;
                happens(&env, &keys, &db, other, part).await;
                if flushed {
                    db.flush().await.unwrap();
                }
                let committed = transaction.commit().await;
                if matches!(other, Other::Exchange(_)) {
                    assert_eq!(keys.get("h").await.unwrap().unwrap(), b"before");
                }
                assert_eq!(
                    committed.as_ref().map_err(tombolo::Error::kind).err(),
                    is_within.then_some(ErrorKind::Conflict),
                    "{other:?}, walks {walks}, flushed {flushed}: {committed:?}"
                );
            }
        }
    };
    process.run(test).unwrap();
}

#[test]
fn what_a_serializable_transaction_has_read_is_as_it_was() {
    write_skew_is_refused();
    phantoms_are_refused();
}

#[test]
fn a_range_that_was_read_meets_range_deletes_ingests_and_exchanges() {
    ranges_meet_what_is_no_write_of_a_key();
}

/// With snapshot isolation both commit, as it says.
#[test]
fn write_skew_is_allowed_by_snapshot_isolation() {
    run(|db| async move {
        let keys = db.default_keyspace();
        let (one, two) = (db.transaction(), db.transaction());
        one.get(&keys, "b").await.unwrap();
        two.get(&keys, "a").await.unwrap();
        one.put(&keys, "a", "1").await.unwrap();
        two.put(&keys, "b", "2").await.unwrap();
        one.commit().await.unwrap();
        two.commit().await.unwrap();
    });
}

/// A merge that ends lies over nothing if the value below had ended when it was made: the
/// transaction reads what its commit comes to.
fn own_operands_over_what_has_ended() {
    run_in(|env, db| async move {
        let operator = Some(OperatorName::parse("append").unwrap());
        let ttl = Some(Duration::from_secs(10_000));
        let options = KeyspaceOptions { operator, ttl, ..Default::default() };
        let keys = db.create_keyspace("ends", options).await.unwrap();
        keys.put_ttl("a", "old", Duration::from_secs(100)).await.unwrap();
        keys.put_ttl("b", "old", Duration::from_secs(100_000)).await.unwrap();
        let transaction = db.transaction();
        env.sleep(Duration::from_secs(200)).await;
        assert_eq!(text(transaction.get(&keys, "a").await.unwrap()).as_deref(), Some("old"), "its own time");
        for key in ["a", "b", "c"] {
            transaction.merge(&keys, key, "+").await.unwrap();
        }
        let wanted = [("a", "+"), ("b", "old+"), ("c", "+")];
        let all = transaction.multi_get(&keys, &["c", "b", "a", "none"]).await.unwrap();
        let all: Vec<_> = all.into_iter().map(text).collect();
        assert_eq!(all, [Some("+".into()), Some("old+".into()), Some("+".into()), None]);
        let mut cursor = transaction.cursor::<&str>(&keys, ..);
        for (key, value) in wanted {
            assert_eq!(text(transaction.get(&keys, key).await.unwrap()).as_deref(), Some(value), "{key}");
            assert!(cursor.next_async().await.unwrap());
            assert_eq!((cursor.key(), cursor.value()), (key.as_bytes(), value.as_bytes()));
        }
        for (key, value) in wanted.iter().rev().skip(1) {
            assert!(cursor.prev_async().await.unwrap());
            assert_eq!((cursor.key(), cursor.value()), (key.as_bytes(), value.as_bytes()));
        }
        transaction.commit().await.unwrap();
        for (key, value) in wanted {
            assert_eq!(text(keys.get(key).await.unwrap()).as_deref(), Some(value), "{key}");
        }
    });
}

#[test]
fn a_transaction_reads_its_merges_over_what_they_will_lie_over() {
    own_operands_over_what_has_ended();
}

#[test]
fn a_pessimistic_transaction_waits_for_its_locks() {
    run(|db| async move {
        let keys = db.default_keyspace();
        keys.put("a", "1").await.unwrap();
        let one = db.transaction_with(TransactionOptions::pessimistic());
        assert!(one.get_for_update(&keys, "a").await.unwrap().is_some());
        let two = db.transaction_with(TransactionOptions::pessimistic());
        let waiting = two.get_for_update(&keys, "a");
        let waiting = waiting.try_take().unwrap_err();
        assert_eq!(db.stats().transaction_locks_waiting, 1);
        one.put(&keys, "a", "2").await.unwrap();
        one.commit().await.unwrap();
        // It sees what was committed before it had the lock.
        assert_eq!(text(waiting.await.unwrap()).as_deref(), Some("2"));
        two.put(&keys, "a", "3").await.unwrap();
        two.commit().await.unwrap();
        assert_eq!(text(keys.get("a").await.unwrap()).as_deref(), Some("3"));
    });
}

#[test]
fn a_lock_that_does_not_come_in_time_is_an_error_that_names_its_holder() {
    run(|db| async move {
        let keys = db.default_keyspace();
        let one = db.transaction_with(TransactionOptions::pessimistic());
        one.lock_range(&keys, "a".."m").await.unwrap();
        let lock_wait = Duration::from_secs(5);
        let two = db.transaction_with(TransactionOptions { lock_wait, ..TransactionOptions::pessimistic() });
        let error = two.put(&keys, "b", "x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert_eq!(error.finding(), Some(&*format!("locked by transaction {}", one.number())));
        two.put(&keys, "m", "the end is free").await.unwrap();
        assert_eq!(two.len(), 1, "what had no lock is not written");
        two.commit().await.unwrap();
        one.put(&keys, "b", "y").await.unwrap();
        one.commit().await.unwrap();
    });
}

#[test]
fn of_two_in_a_deadlock_one_is_told_the_circle_and_the_other_goes_on() {
    run(|db| async move {
        let keys = db.default_keyspace();
        let one = db.transaction_with(TransactionOptions::pessimistic());
        let two = db.transaction_with(TransactionOptions::pessimistic());
        one.put(&keys, "a", "1").await.unwrap();
        two.put(&keys, "b", "2").await.unwrap();
        let waiting = one.put(&keys, "b", "1");
        let error = two.put(&keys, "a", "2").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("deadlock over key \"a\""), "{error}");
        two.roll_back();
        waiting.await.unwrap();
        one.commit().await.unwrap();
        assert_eq!(text(keys.get("b").await.unwrap()).as_deref(), Some("1"));
    });
}

/// A lock that comes late moves the transaction to a newer state, unless what it has read has
/// changed: it would have seen two states.
fn a_late_lock_after_a_read() {
    run(|db| async move {
        let keys = db.default_keyspace();
        for key in ["a", "b"] {
            keys.put(key, "1").await.unwrap();
        }
        for flushed in [false, true] {
            let one = db.transaction_with(TransactionOptions::pessimistic());
            assert!(one.get(&keys, "a").await.unwrap().is_some());
            let mut cursor = one.cursor(&keys, "x"..);
            assert!(!cursor.next_async().await.unwrap());
            keys.put("b", "2").await.unwrap();
            if flushed {
                db.flush().await.unwrap();
            }
            let before = one.sequence();
            assert_eq!(text(one.get_for_update(&keys, "b").await.unwrap()).as_deref(), Some("2"));
            assert!(one.sequence() > before, "it looks from a newer state");
            keys.put("a", "3").await.unwrap();
            keys.put("c", "4").await.unwrap();
            if flushed {
                db.flush().await.unwrap();
            }
            let error = one.get_for_update(&keys, "c").await.expect_err("a was read, and has changed");
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert!(error.to_string().contains("key \"a\""), "{error}");
            one.roll_back();
            let one = db.transaction_with(TransactionOptions::pessimistic());
            let mut cursor = one.cursor(&keys, "x"..);
            assert!(!cursor.next_async().await.unwrap());
            keys.put("y", "a phantom").await.unwrap();
            keys.put("c", "5").await.unwrap();
            assert!(one.get_for_update(&keys, "c").await.is_err(), "the range was read");
            keys.delete("y").await.unwrap();
        }
    });
}

#[test]
fn a_transaction_never_sees_two_states() {
    a_late_lock_after_a_read();
}

#[test]
fn a_cursor_goes_on_in_the_state_to_which_its_transaction_has_moved() {
    run(|db| async move {
        let keys = db.default_keyspace();
        for key in ["a", "b", "c"] {
            keys.put(key, "1").await.unwrap();
        }
        let one = db.transaction_with(TransactionOptions::pessimistic());
        let mut cursor = one.cursor::<&str>(&keys, ..);
        assert!(cursor.next_async().await.unwrap());
        keys.put("c", "2").await.unwrap();
        keys.put("d", "2").await.unwrap();
        one.get_for_update(&keys, "d").await.unwrap();
        let mut values = Vec::new();
        while cursor.next_async().await.unwrap() {
            values.push((cursor.key().to_vec(), cursor.value().to_vec()));
        }
        let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        assert_eq!(values, [pair("b", "1"), pair("c", "2"), pair("d", "2")]);
    });
}

/// A plain write takes no lock, and is found at the commit.
#[test]
fn locks_do_not_stand_in_for_the_check_of_versions() {
    run(|db| async move {
        let keys = db.default_keyspace();
        let one = db.transaction_with(TransactionOptions::pessimistic());
        one.put(&keys, "a", "1").await.unwrap();
        keys.put("a", "2").await.unwrap();
        assert_eq!(one.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(text(keys.get("a").await.unwrap()).as_deref(), Some("2"));
    });
}

#[test]
fn what_a_transaction_may_take_is_bounded() {
    let db = open("bounded");
    let keys = db.default_keyspace();
    let options = TransactionOptions { bytes_max: 4096, ..TransactionOptions::serializable() };
    let transaction = db.transaction_with(options);
    transaction.put(&keys, "a", [7; 2000]).wait().unwrap();
    let error = transaction.put(&keys, "b", [7; 2000]).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.next_step().is_some(), "{error}");
    let read = (0..100_u32).map(|key| transaction.get(&keys, key.to_be_bytes()).wait());
    let error = read.into_iter().find_map(Result::err).expect("what it has read counts");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(transaction.len(), 1);
    transaction.commit().wait().unwrap();
    // The budget of the database bounds all of them together.
    let all: Vec<_> = (0..64).map(|_| db.transaction()).collect();
    let put = |transaction: &Transaction| transaction.put(&keys, "c", [7; 100_000]).wait();
    let error = all.iter().find_map(|transaction| put(transaction).err()).expect("the budget is smaller");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(db.stats().transactions_open, 64);
    drop(all);
    db.transaction().put(&keys, "c", [7; 100_000]).wait().unwrap();
}

#[test]
fn wrong_keyspaces_and_dropped_ones_are_refused() {
    let (db, other) = (open("right"), open("wrong"));
    let dropped = db.create_keyspace("dropped", KeyspaceOptions::default()).wait().unwrap();
    let transaction = db.transaction();
    transaction.put(&dropped, "a", "1").wait().unwrap();
    let foreign = other.default_keyspace();
    assert_eq!(transaction.put(&foreign, "a", "1").wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(transaction.get(&foreign, "a").wait().unwrap_err().kind(), ErrorKind::Invalid);
    let mut cursor = transaction.cursor::<&str>(&foreign, ..);
    assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        transaction.merge(&db.default_keyspace(), "a", "1").wait().unwrap_err().kind(),
        ErrorKind::Invalid
    );
    db.drop_keyspace("dropped").wait().unwrap();
    assert_eq!(transaction.commit().wait().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_transaction_of_a_writer_that_lost_its_database_is_fenced() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let test = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let open = || {
            let builder = Db::builder("mem://x").env(env.clone()).take_over(tombolo::TakeOver::Always);
            builder.stores(Arc::clone(&objects), Arc::clone(&log)).open()
        };
        let db = open().await.unwrap();
        let keys = db.default_keyspace();
        let transaction = db.transaction();
        transaction.put(&keys, "a", "1").await.unwrap();
        transaction.put(&keys, "b", "2").await.unwrap();
        let next = open().await.unwrap();
        assert_eq!(transaction.commit().await.unwrap_err().kind(), ErrorKind::Fenced);
        let keys = next.default_keyspace();
        let both = (keys.get("a").await.unwrap(), keys.get("b").await.unwrap());
        assert!(both.0.is_some() == both.1.is_some(), "whole or absent");
    };
    process.run(test).unwrap();
}

/// The same by every way to count, from several threads, with flushes and compactions beside.
#[test]
fn counters_count_every_committed_transaction_once() {
    let db = open("counters");
    let keys = db.default_keyspace();
    let counting = AtomicBool::new(true);
    let ways = [
        TransactionOptions::default(),
        TransactionOptions::serializable(),
        TransactionOptions::pessimistic(),
        TransactionOptions { durability: Durability::Accepted, ..TransactionOptions::pessimistic() },
    ];
    let rounds = if crate::is_deep() { 2000 } else { 60 };
    std::thread::scope(|scope| {
        let threads: Vec<_> = ways
            .iter()
            .map(|options| {
                let (keys, db) = (db.clone().default_keyspace(), db.blocking());
                let (options, blocking) = (options.clone(), db.default_keyspace());
                scope.spawn(move || {
                    for round in 0..rounds {
                        let key = format!("{}", round % 3);
                        // The conflicts of one counter are many: the loop of the caller goes on.
                        let count = || {
                            db.transact(&options, |transaction| {
                                let value = transaction.get_for_update(&blocking, &key)?;
                                let count: u64 =
                                    value.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap());
                                transaction.put(&blocking, &key, (count + 1).to_string())?;
                                transaction.commit()
                            })
                        };
                        while let Err(error) = count() {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                        }
                    }
                    drop(keys);
                })
            })
            .collect();
        let (db, counting) = (db.clone(), &counting);
        scope.spawn(move || {
            let mut round = 0_u32;
            while counting.load(Ordering::Relaxed) {
                round += 1;
                db.default_keyspace().put([9, (round % 7) as u8], [7; 2000]).wait().unwrap();
                if round.is_multiple_of(8) {
                    db.flush().wait().unwrap();
                }
                if round.is_multiple_of(64) {
                    db.compact().wait().unwrap();
                }
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        counting.store(false, Ordering::Relaxed);
    });
    let counted = |key: &str| -> u64 { text(keys.get(key).wait().unwrap()).unwrap().parse().unwrap() };
    assert_eq!(counted("0") + counted("1") + counted("2"), 4 * rounds);
    assert_eq!(db.stats().transactions_open, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Merge(u8, u8),
    DeleteRange(u8, u8),
    Savepoint,
    RollBack,
    Seek(u8, bool),
    Move(bool),
    Get(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..24_u8;
    prop_oneof![
        4 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => key().prop_map(Step::Delete),
        3 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Merge(key, value)),
        2 => (key(), 1..8_u8).prop_map(|(key, keys)| Step::DeleteRange(key, keys)),
        1 => Just(Step::Savepoint),
        1 => Just(Step::RollBack),
        4 => (key(), any::<bool>()).prop_map(|(key, back)| Step::Seek(key, back)),
        12 => any::<bool>().prop_map(Step::Move),
        4 => key().prop_map(Step::Get),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key_of(key: u8) -> Vec<u8> {
    format!("key {key:03}").into_bytes()
}

/// A transaction over entries in memory and in tables, against a map.
fn against_a_map(before: &[(u8, u8, u8)], steps: &[Step], options: TransactionOptions) {
    let db = open("model");
    let keys = with_appends(&db, "keys");
    let mut model = Model::new();
    for (number, (kind, key, value)) in before.iter().enumerate() {
        let key = key_of(*key);
        match kind % 4 {
            0 => {
                keys.delete(&key).wait().unwrap();
                model.remove(&key);
            }
            1 => {
                keys.merge(&key, [*value]).wait().unwrap();
                model.entry(key).or_default().push(*value);
            }
            _ => {
                keys.put(&key, [*value]).wait().unwrap();
                model.insert(key, vec![*value]);
            }
        }
        if number == before.len() / 2 {
            db.flush().wait().unwrap();
        }
    }
    let transaction = db.transaction_with(options);
    let mut savepoints = Vec::new();
    let mut cursor = transaction.cursor::<&[u8]>(&keys, ..);
    // Where the cursor stands: at a key, or before all, or after all.
    let mut at: Result<Vec<u8>, bool> = Err(true);
    let mut seen = model.clone();
    for step in steps {
        match step {
            Step::Put(key, value) => {
                transaction.put(&keys, key_of(*key), [*value]).wait().unwrap();
                model.insert(key_of(*key), vec![*value]);
            }
            Step::Delete(key) => {
                transaction.delete(&keys, key_of(*key)).wait().unwrap();
                model.remove(&key_of(*key));
            }
            Step::Merge(key, value) => {
                transaction.merge(&keys, key_of(*key), [*value]).wait().unwrap();
                model.entry(key_of(*key)).or_default().push(*value);
            }
            Step::DeleteRange(key, many) => {
                let (from, to) = (key_of(*key), key_of(key + many));
                transaction.delete_range(&keys, &from, &to).wait().unwrap();
                model.retain(|key, _| *key < from || *key >= to);
            }
            Step::Savepoint => savepoints.push((transaction.savepoint().unwrap(), model.clone())),
            Step::RollBack => {
                if let Some((savepoint, before)) = savepoints.pop() {
                    transaction.roll_back_to(savepoint).unwrap();
                    model = before;
                }
            }
            Step::Get(key) => {
                let found = transaction.get(&keys, key_of(*key)).wait().unwrap();
                assert_eq!(found.as_deref(), model.get(&key_of(*key)).map(|value| &value[..]));
                let several = [key_of(*key), key_of(key + 1)];
                let found = transaction.multi_get(&keys, &several).wait().unwrap();
                for (key, found) in several.iter().zip(found) {
                    assert_eq!(found.as_deref(), model.get(key).map(|value| &value[..]));
                }
            }
            Step::Seek(key, back) => {
                cursor.refresh().unwrap();
                seen = model.clone();
                let (key, moved) = (key_of(*key), *back);
                let found = if moved { cursor.seek_for_prev(&key) } else { cursor.seek(&key) }.unwrap();
                let wanted = match moved {
                    true => seen.range(..=key).next_back(),
                    false => seen.range(key..).next(),
                };
                at = wanted.map(|(key, _)| key.clone()).ok_or(moved);
                assert_eq!(found, at.is_ok());
            }
            Step::Move(back) => {
                let found = if *back { cursor.prev() } else { cursor.next() }.unwrap();
                let bound = match (&at, back) {
                    (Ok(key), true) => (Bound::Unbounded, Bound::Excluded(key.clone())),
                    (Ok(key), false) => (Bound::Excluded(key.clone()), Bound::Unbounded),
                    (Err(is_before), _) if is_before == back => {
                        assert!(!found);
                        continue;
                    }
                    (Err(_), _) => (Bound::Unbounded, Bound::Unbounded),
                };
                let mut range = seen.range(bound);
                let wanted = if *back { range.next_back() } else { range.next() };
                at = wanted.map(|(key, _)| key.clone()).ok_or(*back);
                assert_eq!(found, at.is_ok(), "{at:?}");
            }
        }
        assert_eq!(cursor.valid(), at.is_ok());
        if let Ok(key) = &at {
            assert_eq!((cursor.key(), cursor.value()), (&key[..], &seen[key][..]));
        }
    }
    transaction.commit().wait().unwrap();
    let stored: Model = keys
        .scan::<&[u8]>(..)
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    assert_eq!(stored, model);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if crate::is_deep() { 3000 } else { 40 })
    })]

    #[test]
    fn a_transaction_is_a_map_over_the_database(
        before in prop::collection::vec((any::<u8>(), 0..24_u8, any::<u8>()), 0..40),
        steps in prop::collection::vec(step(), 1..60),
        way in 0..3_u8,
    ) {
        let isolation = if way == 1 { Isolation::Serializable } else { Isolation::Snapshot };
        let locking = if way == 2 { Locking::Pessimistic } else { Locking::Optimistic };
        against_a_map(&before, &steps, TransactionOptions { isolation, locking, ..Default::default() });
    }
}

#[cfg(feature = "mutants")]
#[test]
fn transactions_that_rest_on_too_little_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::SerializableForgetsReads, write_skew_is_refused);
    notices(Mutant::TransactionCursorUnnoted, phantoms_are_refused);
    notices(Mutant::TransactionIgnoresRanges, phantoms_are_refused);
    notices(Mutant::TransactionIgnoresRanges, ranges_meet_what_is_no_write_of_a_key);
    notices(Mutant::TransactionIgnoresTables, ranges_meet_what_is_no_write_of_a_key);
    notices(Mutant::TransactionMovesWithoutReads, a_late_lock_after_a_read);
    notices(Mutant::TransactionFoldsWhatHasEnded, own_operands_over_what_has_ended);
}
