//! Transactions in keyspaces of streams.

use std::time::Duration;

use tombolo::{
    Durability, Env, ErrorKind, Isolation, Keyspace, Locking, Result, Transaction, TransactionOptions,
};
use tombolo_env::TaskClass;

use crate::streams::{Stores, run, three, value};

fn pessimistic() -> TransactionOptions {
    TransactionOptions { locking: Locking::Pessimistic, ..TransactionOptions::default() }
}

fn serializable() -> TransactionOptions {
    TransactionOptions { isolation: Isolation::Serializable, ..TransactionOptions::default() }
}

async fn number(transaction: &Transaction, keys: &Keyspace, key: &[u8]) -> Result<u64> {
    let found = transaction.get_for_update(keys, key).await?;
    Ok(found.map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap())))
}

/// Adds one to two numbers, so often.
async fn count_on(env: Env, db: tombolo::Db, keys: Keyspace, options: TransactionOptions, times: u64) {
    for _ in 0..times {
        db.transact(options.clone(), async |transaction| {
            let one = number(&transaction, &keys, b"one").await?;
            env.sleep(Duration::from_micros(20)).await;
            let two = number(&transaction, &keys, b"two").await?;
            assert_eq!(one, two, "one state is seen");
            transaction.put(&keys, b"one", (one + 1).to_be_bytes()).await?;
            transaction.put(&keys, b"two", (two + 1).to_be_bytes()).await?;
            transaction.commit().await
        })
        .await
        .unwrap();
    }
}

/// Several that add to the same numbers at once, while others write to the other streams.
fn every_transaction_of_a_stream_counts() {
    for options in [TransactionOptions::default(), pessimistic(), serializable()] {
        run("memory", |stores| async move {
            let db = stores.open().await;
            let [main, one, two] = three(&db).await;
            let count = || {
                let counting = count_on(stores.env.clone(), db.clone(), one.clone(), options.clone(), 20);
                stores.env.spawn(TaskClass::Foreground, "counter", counting)
            };
            let tasks: Vec<_> = (0..4).map(|_| count()).collect();
            for at in 0..100u8 {
                main.put_with([at], vec![at; 2000], Durability::Accepted).await.unwrap();
                two.put_with([at], vec![at; 2000], Durability::Accepted).await.unwrap();
                // Memtables that are sealed, with what transactions rest on in them.
                one.put_with([at], vec![at; 2000], Durability::Accepted).await.unwrap();
            }
            for task in tasks {
                task.await;
            }
            let stats = db.stats();
            assert_eq!((stats.transactions_committed, stats.transactions_open), (80, 0));
            assert_eq!(stats.transaction_locks_waiting, 0);
            drop((db, one, main, two));
            let one = stores.open().await.keyspace("one").unwrap();
            for key in [b"one", b"two"] {
                assert_eq!(value(&one, key).await.unwrap(), 80u64.to_be_bytes());
            }
        });
    }
}

#[test]
fn of_a_stream_every_committed_transaction_counts_once() {
    every_transaction_of_a_stream_counts();
}

/// It sees the cut of its begin, also where its stream had not met that, and conflicts with what
/// came since.
#[test]
fn a_transaction_sees_its_begin_and_conflicts_with_what_came_since() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let [_, one, two] = three(&db).await;
        one.put(b"k", b"old").await.unwrap();
        let (early, late) = (db.transaction(), db.transaction_with(serializable()));
        one.put(b"k", b"new").await.unwrap();
        db.flush().await.unwrap();
        assert_eq!(early.get(&one, b"k").await.unwrap().unwrap(), b"old");
        early.put(&one, b"k", b"mine").await.unwrap();
        let error = early.commit().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("one"), "{error}");
        assert_eq!(late.get(&one, b"k").await.unwrap().unwrap(), b"old");
        late.put(&one, b"other", b"mine").await.unwrap();
        assert_eq!(late.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(value(&one, b"k").await.unwrap(), b"new");
        assert_eq!(value(&one, b"other").await, None);
        // Writes to other streams are no conflict.
        let transaction = db.transaction_with(serializable());
        assert_eq!(transaction.get(&one, b"k").await.unwrap().unwrap(), b"new");
        two.put(b"k", b"v").await.unwrap();
        db.default_keyspace().put(b"k", b"v").await.unwrap();
        transaction.put(&one, b"k", b"last").await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(value(&one, b"k").await.unwrap(), b"last");
        assert_eq!(db.stats().transaction_conflicts, 2);
        // One that began before there was the stream.
        let transaction = db.transaction();
        let four = db.create_keyspace("four", crate::streams::of_stream(4)).await.unwrap();
        four.put(b"k", b"v").await.unwrap();
        assert_eq!(transaction.get(&four, b"k").await.unwrap(), None);
        transaction.put(&four, b"k", b"w").await.unwrap();
        assert_eq!(transaction.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
        db.close().await.unwrap();
    });
}

/// Locks are of the stream, and are given back however a transaction ends.
#[test]
fn locks_of_a_stream_are_waited_for_and_given_back() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let [main, one, _] = three(&db).await;
        let first = db.transaction_with(pessimistic());
        assert_eq!(first.get_for_update(&one, b"k").await.unwrap(), None);
        let second = db.transaction_with(pessimistic());
        let waits = second.get_for_update(&one, b"k");
        stores.env.sleep(Duration::from_millis(1)).await;
        assert_eq!(db.stats().transaction_locks_waiting, 1);
        // The same key of another keyspace.
        let third = db.transaction_with(pessimistic());
        third.put(&main, b"k", b"v").await.unwrap();
        third.commit().await.unwrap();
        first.put(&one, b"k", b"first").await.unwrap();
        first.commit().await.unwrap();
        assert_eq!(waits.await.unwrap().unwrap(), b"first");
        second.put(&one, b"k", b"second").await.unwrap();
        second.commit().await.unwrap();
        for ending in 0..3 {
            let holds = db.transaction_with(pessimistic());
            holds.lock_range::<&[u8]>(&one, ..).await.unwrap();
            match ending {
                0 => drop(holds),
                1 => holds.roll_back(),
                _ => drop(holds.commit().await.unwrap()),
            }
            let next = TransactionOptions { lock_wait: Duration::ZERO, ..pessimistic() };
            let next = db.transaction_with(next);
            next.put(&one, b"k", b"next").await.unwrap();
            next.commit().await.unwrap();
        }
        assert_eq!(value(&one, b"k").await.unwrap(), b"next");
        assert_eq!(db.stats().transactions_open, 0);
    });
}

#[test]
fn a_transaction_is_of_one_stream() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let [main, one, two] = three(&db).await;
        for (first, second) in [(&one, &two), (&main, &one), (&one, &main)] {
            let transaction = db.transaction();
            transaction.put(first, b"k", b"v").await.unwrap();
            let refused = [
                transaction.put(second, b"k", b"v").await.unwrap_err(),
                transaction.get(second, b"k").await.unwrap_err(),
                transaction.get_for_update(second, b"k").await.unwrap_err(),
                transaction.lock_range::<&[u8]>(second, ..).await.unwrap_err(),
            ];
            for error in refused {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.to_string().contains("transaction over two streams"), "{error}");
            }
            transaction.put(first, b"l", b"v").await.unwrap();
            transaction.commit().await.unwrap();
            assert_eq!(value(first, b"l").await.unwrap(), b"v");
        }
        let elsewhere = Stores::new(&stores.env, "memory").open().await;
        let error = elsewhere.transaction().get(&one, b"k").await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains("another database"),
            "{error}"
        );
        let named = TransactionOptions { id: Some(b"id".to_vec()), ..TransactionOptions::default() };
        let named = db.transaction_with(named);
        let error = named.put(&one, b"k", b"w").await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("stream"), "{error}");
        let prepared = db.transaction();
        prepared.put(&one, b"k", b"w").await.unwrap();
        let error = prepared.prepare("id").await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("stream"), "{error}");
        assert_eq!(value(&one, b"k").await.unwrap(), b"v");
        assert_eq!(db.transaction_outcome("id").await.unwrap(), None);
    });
}

#[cfg(feature = "mutants")]
#[test]
fn transactions_of_a_stream_that_are_not_checked_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};
    notices(Mutant::TransactionUnchecked, every_transaction_of_a_stream_counts);
}
