use tombolo_env::simulated::World;
use tombolo_format::batch::single_head;
use tombolo_format::key::EntryKind;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

use super::*;
use crate::read::Reach;
use crate::{Db, Keyspace, Options};

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Db) -> F + Send + 'static) {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let opened = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=524288"]).unwrap();
        let builder = Db::builder("mem://transactions").env(env).stores(objects, log).options(options);
        test(builder.open().await.unwrap()).await;
    };
    process.run(opened).unwrap();
}

/// One that puts `k`, and rests on it.
fn put(keys: &Keyspace, snapshot: &crate::Snapshot) -> Transactional {
    let mut prepared = Prepared::default();
    prepared.push(keys.info(), EntryKind::Put, b"k", b"mine");
    let what = Reach::Key(bytes::Bytes::from_static(b"k"));
    Transactional {
        prepared,
        rests_on: vec![Touched { keyspace: Arc::clone(keys.info()), what }],
        seen: snapshot.number(),
        durability: Durability::Accepted,
        ended: Box::new(|_| ()),
        prepares: None,
    }
}

fn word(verdict: Result<Verdict>) -> &'static str {
    match verdict.unwrap() {
        Verdict::Met(..) => "met",
        Verdict::NotMet(_) => "not met",
        Verdict::AskTables => "ask tables",
    }
}

fn a_write_since_the_snapshot() {
    run(|db| async move {
        let (keys, snapshot) = (db.default_keyspace(), db.snapshot());
        let transaction = put(&keys, &snapshot);
        keys.put(b"k", b"other").await.unwrap();
        assert_eq!(word(attempt(db.engine(), &transaction, (snapshot.number(), STEPS_MAX))), "not met");
    });
}

/// Somebody found the section taken and has left a write of the same key: it comes behind.
fn a_write_left_for_the_section() {
    run(|db| async move {
        let (keys, snapshot) = (db.default_keyspace(), db.snapshot());
        let transaction = put(&keys, &snapshot);
        let engine = db.engine();
        let place = engine.stream.commit_queue.post(|posted| {
            posted.keyspace = Some(Arc::clone(keys.info()));
            posted.kind = EntryKind::Put;
            posted.head = single_head(EntryKind::Put, keys.info().id, b"k", b"left").unwrap();
            posted.bytes.extend_from_slice(b"kleft");
            posted.key_bytes = 1;
            posted.durability = Durability::Accepted;
        });
        assert_eq!(word(attempt(engine, &transaction, (snapshot.number(), STEPS_MAX))), "met");
        engine.stream.commit_queue.take(place.unwrap()).unwrap();
        assert_eq!(keys.get(b"k").await.unwrap().unwrap(), b"left", "the key had no value before");
    });
}

/// The write is in a table by the time of the check, and in no memtable.
fn a_flush_before_the_check(is_warm: bool) {
    run(move |db| async move {
        let (keys, snapshot) = (db.default_keyspace(), db.snapshot());
        let transaction = put(&keys, &snapshot);
        keys.put(b"k", b"other").await.unwrap();
        db.flush().await.unwrap();
        let moment = (snapshot.number(), STEPS_MAX);
        if is_warm {
            keys.get(b"k").await.unwrap();
            assert_eq!(word(attempt(db.engine(), &transaction, moment)), "not met");
        } else {
            let first = attempt(db.engine(), &transaction, moment);
            assert!(matches!(first, Ok(Verdict::AskTables)), "{first:?}");
            let error = go_on(db.engine(), &mut Some(transaction), first).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert!(error.to_string().contains("key \"k\" of keyspace \"default\""), "{error}");
        }
        drop(snapshot);
        assert_eq!(db.engine().snapshots.list(), [], "no snapshot is left");
    });
}

#[test]
fn what_was_written_since_is_found_wherever_it_lies() {
    a_write_since_the_snapshot();
    a_write_left_for_the_section();
    a_flush_before_the_check(true);
    a_flush_before_the_check(false);
}

/// What was checked outside is not asked for again: a commit over a range that is large, in tables
/// and in memory, ends.
#[test]
fn a_large_range_is_checked_outside_the_section() {
    run(|db| async move {
        let keys = db.default_keyspace();
        for number in 0..600_u32 {
            keys.put(number.to_be_bytes(), [7; 20]).await.unwrap();
        }
        db.flush().await.unwrap();
        for number in 0..2000_u32 {
            let durability = Durability::Accepted;
            keys.put_with(number.to_be_bytes(), [8; 2], durability).await.unwrap();
        }
        let snapshot = db.snapshot();
        let range = crate::table::KeyRange {
            lower: std::ops::Bound::Unbounded,
            upper: std::ops::Bound::Excluded(b"k".to_vec()),
        };
        let mut transaction = put(&keys, &snapshot);
        let what = Reach::Range(Arc::new(range));
        transaction.rests_on.push(Touched { keyspace: Arc::clone(keys.info()), what });
        keys.put(b"l", b"beyond the range").await.unwrap();
        let moment = (snapshot.number(), STEPS_MAX);
        let first = attempt(db.engine(), &transaction, moment);
        assert!(matches!(first, Ok(Verdict::AskTables)), "{first:?}");
        let gone_on = go_on(db.engine(), &mut Some(transaction), first).await;
        assert!(gone_on.is_ok(), "{gone_on:?}");
        let mut transaction = put(&keys, &snapshot);
        transaction.rests_on.clear();
        transaction.rests_on.push(Touched {
            keyspace: Arc::clone(keys.info()),
            what: Reach::Range(Arc::new(crate::table::KeyRange {
                lower: std::ops::Bound::Included(b"a".to_vec()),
                upper: std::ops::Bound::Unbounded,
            })),
        });
        let first = attempt(db.engine(), &transaction, moment);
        assert_eq!(word(first), "not met");
    });
}

#[cfg(feature = "mutants")]
#[test]
fn commits_that_are_checked_wrongly_are_noticed() {
    use tombolo_storage::mutant::notices;

    notices(Mutant::TransactionUnchecked, a_write_since_the_snapshot);
    notices(Mutant::TransactionCheckedOutside, a_write_left_for_the_section);
    notices(Mutant::TransactionIgnoresTables, || a_flush_before_the_check(true));
    notices(Mutant::TransactionTakesUnknownForNothing, || a_flush_before_the_check(false));
}
