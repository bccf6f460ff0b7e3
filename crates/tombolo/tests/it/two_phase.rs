//! Prepared transactions: through crashes, takeovers, flushes and clones; and what became of
//! transactions, by their ids.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    Builder, Db, Env, ErrorKind, InDoubt, KeyspaceOptions, OperatorName, Options, TakeOver,
    TransactionOptions, TransactionOutcome,
};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

#[derive(Clone)]
struct Stores {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    fn new(env: &Env) -> Stores {
        let objects = Arc::new(MemoryObjectStore::unnamed(env));
        Stores { env: env.clone(), objects, log: Arc::new(MemoryLogStore::unnamed(env)) }
    }

    fn builder(&self) -> Builder {
        let options = Options::parse(["memory_bytes=2097152", "memtable_bytes=65536"]).unwrap();
        let builder = Db::builder("mem://two-phase").env(self.env.clone()).take_over(TakeOver::Always);
        builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).options(options)
    }

    async fn open(&self) -> Db {
        self.builder().open().await.unwrap()
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F + Send + 'static) {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    process.run(async move { test(Stores::new(&env)).await }).unwrap();
}

async fn ids(db: &Db) -> Vec<String> {
    let all = db.in_doubt().await.unwrap();
    all.into_iter().map(|one| String::from_utf8(one.id).unwrap()).collect()
}

/// Prepares one that writes `a`, has read `r` for update, and deletes from `x` on up to `z`.
async fn prepare(db: &Db, id: &str) -> tombolo::Result<()> {
    let keys = db.default_keyspace();
    let transaction = db.transaction();
    transaction.get_for_update(&keys, "r").await?;
    transaction.put(&keys, "a", format!("by {id}")).await?;
    transaction.delete_range(&keys, "x", "z").await?;
    let prepared = transaction.prepare(id).await?;
    assert_eq!(prepared.id(), id.as_bytes());
    Ok(())
}

/// Nobody writes what it writes or rests on, in any way to write; elsewhere they do.
async fn is_held(db: &Db) {
    let keys = db.default_keyspace();
    for key in ["a", "r", "x", "y"] {
        let error = keys.put(key, "other").await.expect_err(key);
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("held by the prepared transaction \"one\""), "{error}");
        assert_eq!(keys.delete_range(key, "zz").await.unwrap_err().kind(), ErrorKind::Conflict);
        let mut batch = tombolo::Batch::new();
        batch.put(&keys, "free", "1").delete(&keys, key);
        assert_eq!(db.write(batch).await.unwrap_err().kind(), ErrorKind::Conflict);
        let absent = tombolo::Condition::Unchanged(None);
        assert_eq!(keys.put_if("r", "2", absent).await.unwrap_err().kind(), ErrorKind::Conflict);
        let other = db.transaction();
        other.put(&keys, key, "other").await.unwrap();
        assert_eq!(other.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
        let other = db.transaction();
        other.put(&keys, key, "other").await.unwrap();
        assert_eq!(other.prepare("other").await.unwrap_err().kind(), ErrorKind::Conflict);
    }
    for key in ["b", "z", "q"] {
        keys.put(key, "free").await.unwrap();
    }
}

fn a_prepared_transaction_holds_its_keys() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put("y", "before").await.unwrap();
        assert!(db.in_doubt().await.unwrap().is_empty());
        prepare(&db, "one").await.unwrap();
        let [InDoubt { id, writes: 2, is_own: true, .. }] = &db.in_doubt().await.unwrap()[..] else {
            panic!("one is in doubt");
        };
        assert_eq!(id, b"one");
        is_held(&db).await;
        assert_eq!(keys.get("a").await.unwrap(), None, "it is not applied");
        assert_eq!(db.transaction_outcome("one").await.unwrap(), Some(TransactionOutcome::InDoubt));
        db.decide("one", true).await.unwrap();
        assert_eq!(keys.get("a").await.unwrap().unwrap(), b"by one");
        assert_eq!(keys.get("y").await.unwrap(), None);
        for key in ["a", "r", "x"] {
            keys.put(key, "free again").await.unwrap();
        }
        db.decide("one", true).await.expect("the same again");
        assert_eq!(keys.get("a").await.unwrap().unwrap(), b"free again", "it is applied once");
        assert_eq!(db.decide("one", false).await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(db.decide("none", true).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(prepare(&db, "one").await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(prepare(&db, "").await.unwrap_err().kind(), ErrorKind::Invalid);
        assert!(ids(&db).await.is_empty());
        assert_eq!(db.stats().transactions_open, 0);
    });
}

#[test]
fn between_prepare_and_decision_nobody_else_writes_there() {
    a_prepared_transaction_holds_its_keys();
}

/// Through a takeover, with the record in the log or in tables, decided either way.
fn a_prepared_transaction_after_a_takeover() {
    run(|stores| async move {
        let mut db = stores.open().await;
        for (number, (is_flushed, commits)) in
            [(false, true), (true, true), (false, false), (true, false)].into_iter().enumerate()
        {
            let keys = db.default_keyspace();
            keys.delete("a").await.unwrap();
            prepare(&db, "one").await.unwrap_or_else(|error| panic!("{number}: {error}"));
            if is_flushed {
                db.compact().await.unwrap();
            }
            db = stores.open().await;
            assert_eq!(ids(&db).await, ["one"]);
            is_held(&db).await;
            db = stores.open().await;
            db.decide("one", commits).await.unwrap();
            let applied = db.default_keyspace().get("a").await.unwrap();
            assert_eq!(applied.is_some(), commits, "{number}");
            db = stores.open().await;
            assert!(ids(&db).await.is_empty());
            let wanted = if commits { TransactionOutcome::Committed } else { TransactionOutcome::RolledBack };
            assert_eq!(db.transaction_outcome("one").await.unwrap(), Some(wanted));
            db.default_keyspace().put("a", "free").await.unwrap();
            // The id may be used again once its outcome is forgotten, a day later.
            stores.env.sleep(Duration::from_secs(90_000)).await;
            assert_eq!(db.transaction_outcome("one").await.unwrap(), None);
            db.compact().await.unwrap();
        }
    });
}

#[test]
fn a_prepared_transaction_outlives_its_writer() {
    a_prepared_transaction_after_a_takeover();
}

/// However long it is prepared: an operand that ends counts as written when it is shown.
#[test]
fn a_prepared_operand_that_ends_is_decided_after_hours() {
    run(|stores| async move {
        let db = stores.open().await;
        let options = KeyspaceOptions {
            operator: Some(OperatorName::parse("add_u64").unwrap()),
            ttl: Some(Duration::from_secs(6 * 3600)),
            ..KeyspaceOptions::default()
        };
        let visits = db.create_keyspace("visits", options).await.unwrap();
        for (key, ttl) in [("ended", 1), ("lives", 5)] {
            visits.merge_ttl(key, 1_u64.to_le_bytes(), Duration::from_secs(ttl * 3600)).await.unwrap();
        }
        let transaction = db.transaction();
        for key in ["ended", "lives"] {
            transaction.merge(&visits, key, 2_u64.to_le_bytes()).await.unwrap();
        }
        let _prepared = transaction.prepare("one").await.unwrap();
        stores.env.sleep(Duration::from_secs(3 * 3600)).await;
        db.decide("one", true).await.expect("it was prepared");
        for _ in 0..2 {
            for (key, sum) in [("ended", 2), ("lives", 3)] {
                assert_eq!(visits.get(key).await.unwrap().unwrap()[0], sum, "{key}");
            }
            db.flush().await.unwrap();
            visits.compact_range::<&[u8]>(..).await.unwrap();
        }
        stores.env.sleep(Duration::from_secs(3 * 3600)).await;
        for key in ["ended", "lives"] {
            assert!(visits.get(key).await.unwrap().is_none(), "{key}");
        }
        db.close().await.unwrap();
    });
}

/// What changed since the snapshot is a conflict of the prepare, and leaves nothing.
#[test]
fn a_prepare_that_conflicts_leaves_nothing() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let transaction = db.transaction_with(TransactionOptions::serializable());
        transaction.get(&keys, "b").await.unwrap();
        transaction.put(&keys, "a", "1").await.unwrap();
        keys.put("b", "2").await.unwrap();
        assert_eq!(transaction.prepare("one").await.unwrap_err().kind(), ErrorKind::Conflict);
        assert!(ids(&db).await.is_empty());
        keys.put("a", "free").await.unwrap();
        assert_eq!(db.stats().transactions_open, 0);
    });
}

/// It may hold what a pessimistic transaction has locked: that one cannot commit.
#[test]
fn a_prepared_transaction_goes_before_a_lock() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let locks = db.transaction_with(TransactionOptions::pessimistic());
        locks.put(&keys, "a", "locked").await.unwrap();
        prepare(&db, "one").await.unwrap();
        assert_eq!(locks.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
        is_held(&db).await;
        let waits = db.transaction_with(TransactionOptions::pessimistic());
        let waiting = waits.put(&keys, "a", "after it").try_take().unwrap_err();
        db.decide("one", true).await.unwrap();
        waiting.await.unwrap();
        waits.commit().await.unwrap();
        assert_eq!(keys.get("a").await.unwrap().unwrap(), b"after it");
    });
}

/// A clone lists what it has brought along, and may only roll it back.
fn a_clone_with_a_prepared_transaction() {
    run(|stores| async move {
        let db = stores.open().await;
        prepare(&db, "one").await.unwrap();
        db.checkpoint("now").await.unwrap();
        let target = Stores::new(&stores.env);
        stores.builder().at_checkpoint("now").restore_to(target.builder()).await.unwrap();
        let restored = target.open().await;
        let all = restored.in_doubt().await.unwrap();
        assert!(all.len() == 1 && !all[0].is_own, "{all:?}");
        is_held(&restored).await;
        let error = restored.decide("one", true).await.expect_err("it was decided elsewhere");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        restored.decide("one", false).await.unwrap();
        restored.default_keyspace().put("a", "free").await.unwrap();
        db.decide("one", true).await.unwrap();
    });
}

#[test]
fn a_restored_database_only_rolls_back_what_it_finds_prepared() {
    a_clone_with_a_prepared_transaction();
}

/// By its id it is known whether a transaction was committed, and it is committed once.
fn outcomes_by_id() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        assert_eq!(db.transaction_outcome("7").await.unwrap(), None);
        let options = TransactionOptions { id: Some(b"7".to_vec()), ..Default::default() };
        let transaction = db.transaction_with(options.clone());
        transaction.put(&keys, "a", "1").await.unwrap();
        transaction.commit().await.unwrap();
        let (first, second) = (db.transaction_with(options.clone()), db.transaction_with(options.clone()));
        first.put(&keys, "a", "twice").await.unwrap();
        assert_eq!(first.commit().await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(second);
        let next = stores.open().await;
        assert_eq!(next.transaction_outcome("7").await.unwrap(), Some(TransactionOutcome::Committed));
        assert_eq!(next.transaction_outcome("8").await.unwrap(), None);
        assert_eq!(next.default_keyspace().get("a").await.unwrap().unwrap(), b"1");
        let error = db.transaction_outcome("7").await.expect_err("it is the writer no more");
        assert_eq!(error.kind(), ErrorKind::Fenced);
        // Of two at once, one.
        let keys = next.default_keyspace();
        let options = TransactionOptions { id: Some(b"9".to_vec()), ..Default::default() };
        let (one, two) = (next.transaction_with(options.clone()), next.transaction_with(options));
        one.put(&keys, "b", "1").await.unwrap();
        two.put(&keys, "c", "2").await.unwrap();
        one.commit().await.unwrap();
        assert_eq!(two.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
    });
}

#[test]
fn a_transaction_is_known_by_its_id() {
    outcomes_by_id();
}

#[test]
fn the_keyspace_of_transactions_is_the_databases_own() {
    run(|stores| async move {
        let db = stores.open().await;
        prepare(&db, "one").await.unwrap();
        let name = "tombolo.transactions";
        assert_eq!(db.keyspaces().len(), 1, "only default");
        assert_eq!(db.keyspace(name).unwrap_err().kind(), ErrorKind::Invalid);
        let create = db.create_keyspace(name, KeyspaceOptions::default()).await;
        assert_eq!(create.unwrap_err().kind(), ErrorKind::Invalid);
        let open = db.open_or_create_keyspace(name, KeyspaceOptions::default()).await;
        assert_eq!(open.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(db.drop_keyspace(name).await.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

/// A lock that was waited for when its transaction was prepared is given up, and the keys that
/// are held stay so, whether that lock comes before or after.
fn a_prepared_transaction_that_waited_for_a_lock() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        db.transaction().prepare("the first").await.unwrap().roll_back().await.unwrap();
        for comes_before in [true, false] {
            let holder = db.transaction_with(TransactionOptions::pessimistic());
            holder.put(&keys, "wanted", "1").await.unwrap();
            let id = format!("before {comes_before}");
            let one = db.transaction_with(TransactionOptions::pessimistic());
            one.put(&keys, "a", "prepared").await.unwrap();
            let waits = one.put(&keys, "wanted", "2").try_take().unwrap_err();
            if comes_before {
                holder.roll_back();
                let preparing = one.prepare(&id);
                waits.await.expect_err("its transaction has ended");
                let _prepared = preparing.await.unwrap();
            } else {
                let _prepared = one.prepare(&id).await.unwrap();
                holder.roll_back();
                waits.await.expect_err("its transaction has ended");
                keys.put("wanted", "free").await.unwrap();
            }
            let error = keys.put("a", "other").await.expect_err("it is prepared");
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert_eq!(db.stats().transaction_locks_waiting, 0);
            db.decide(&id, true).await.unwrap();
            assert_eq!(keys.get("a").await.unwrap().unwrap(), b"prepared");
            keys.put("a", "free").await.unwrap();
            keys.put("wanted", "free").await.unwrap();
        }
    });
}

#[test]
fn a_lock_that_comes_late_does_not_end_what_is_prepared() {
    a_prepared_transaction_that_waited_for_a_lock();
}

/// It can be committed whenever it is decided, and its operand lies over the value of then.
fn an_operand_that_is_decided_late() {
    run(|stores| async move {
        let db = stores.open().await;
        let operator = Some(OperatorName::parse("append").unwrap());
        let ttl = Some(Duration::from_secs(7200));
        let counts = db
            .create_keyspace("counts", KeyspaceOptions { operator, ttl, ..Default::default() })
            .await
            .unwrap();
        counts.put_ttl("ended", "old", Duration::from_secs(1800)).await.unwrap();
        counts.put_ttl("there", "old", Duration::from_secs(100_000)).await.unwrap();
        let transaction = db.transaction();
        for key in ["ended", "there"] {
            transaction.merge(&counts, key, "+").await.unwrap();
        }
        let _prepared = transaction.prepare("one").await.unwrap();
        stores.env.sleep(Duration::from_secs(3600)).await;
        let db = stores.open().await;
        db.decide("one", true).await.unwrap();
        let counts = db.keyspace("counts").unwrap();
        assert_eq!(counts.get("ended").await.unwrap().unwrap(), b"+");
        assert_eq!(counts.get("there").await.unwrap().unwrap(), b"old+");
        stores.env.sleep(Duration::from_secs(3700)).await;
        assert_eq!(counts.get("there").await.unwrap(), None, "its end is that of the merge");
    });
}

#[test]
fn an_operand_that_ends_can_be_committed_long_after_it_was_prepared() {
    an_operand_that_is_decided_late();
}

/// What could not be read back is not prepared.
#[test]
fn a_key_that_is_too_long_to_be_one_is_not_prepared() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let transaction = db.transaction();
        transaction.get_for_update(&keys, vec![b'k'; 70_000]).await.unwrap();
        transaction.put(&keys, "a", "1").await.unwrap();
        let error = transaction.prepare("one").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("a key of 70000 bytes"), "{error}");
        let db = stores.open().await;
        assert!(ids(&db).await.is_empty());
        db.default_keyspace().put("a", "free").await.unwrap();
    });
}

#[test]
fn a_decision_of_what_was_never_prepared_makes_nothing() {
    run(|stores| async move {
        let db = stores.open().await;
        let before = db.create_keyspace("before", KeyspaceOptions::default()).await.unwrap();
        for commits in [true, false] {
            assert_eq!(db.decide("none", commits).await.unwrap_err().kind(), ErrorKind::NotFound);
        }
        let after = db.create_keyspace("after", KeyspaceOptions::default()).await.unwrap();
        assert_eq!(after.id(), before.id() + 1);
    });
}

#[cfg(feature = "mutants")]
#[test]
fn prepared_transactions_that_are_kept_wrongly_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::WriteIgnoresPrepared, a_prepared_transaction_holds_its_keys);
    notices(Mutant::PrepareKeepsNoLocks, a_prepared_transaction_holds_its_keys);
    notices(Mutant::DecideLeavesPrepared, a_prepared_transaction_holds_its_keys);
    notices(Mutant::PreparedNotHeldAgain, a_prepared_transaction_after_a_takeover);
    notices(Mutant::CloneCommitsPrepared, a_clone_with_a_prepared_transaction);
    notices(Mutant::OutcomeIdUnchecked, outcomes_by_id);
    notices(Mutant::DecidedOperandKeepsItsTime, an_operand_that_is_decided_late);
    notices(Mutant::LateLockEndsPrepared, a_prepared_transaction_that_waited_for_a_lock);
}
