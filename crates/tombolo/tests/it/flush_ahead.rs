//! The tables of the next memtable are written while the one before is flushed, and named after it.
//! In virtual time.

use std::time::Duration;

use tombolo::{Durability, ErrorKind, Keyspace, KeyspaceOptions};
use tombolo_storage::Purpose;
use tombolo_storage::layer::fault::{Asked, Fault, Rule};

use crate::stores::{Stores, run as run_with};

/// Runs a test of a database of four memtables of 256 KiB that does not compact.
fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    run_with(&["memory_bytes=4194304", "memtable_bytes=262144", "automatic_compaction=false"], test);
}

/// Puts a megabyte: four memtables.
async fn load(keys: &Keyspace, round: u8) {
    for number in 0..1000_u32 {
        keys.put_with(number.to_be_bytes(), [round; 1000], Durability::Accepted).await.unwrap();
    }
}

async fn holds(keys: &Keyspace, round: u8) {
    for number in 0..1000_u32 {
        let found = keys.get(number.to_be_bytes()).await.unwrap().unwrap();
        assert!(
            found.len() == 1000 && found.iter().all(|byte| *byte == round),
            "{number} has {:?}, not {round}",
            found.first()
        );
    }
}

fn of(purpose: Purpose) -> impl Fn(&Asked<'_>) -> bool {
    move |asked| asked.purpose == purpose
}

#[test]
fn tables_are_written_while_the_memtable_before_is_named() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for purpose in [Purpose::Flush, Purpose::Manifest] {
            stores.plan.inject(Rule::new(of(purpose), Fault::Delay(Duration::from_secs(1))));
        }
        keys.put("one", "1").await.unwrap();
        let began = stores.env.now();
        db.flush().await.unwrap();
        let one = stores.env.now().since(began);
        let (began, before) = (stores.env.now(), db.stats().flushes);
        for round in 1..=4 {
            load(&keys, round).await;
        }
        db.flush().await.unwrap();
        let (count, all) = ((db.stats().flushes - before) as u32, stores.env.now().since(began));
        assert!(count >= 12, "{count} flushes");
        assert!(all < one * count * 3 / 4, "{count} flushes took {all:?}, one alone {one:?}");
        holds(&keys, 4).await;
        drop((db, keys));
        stores.plan.clear();
        holds(&stores.open(&[]).await.default_keyspace(), 4).await;
    });
}

#[test]
fn what_was_written_ahead_of_a_flush_that_failed_is_deleted_and_written_again() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        // The first is not named for a while, and the next ones must not be before it, nor take
        // room meanwhile.
        stores.plan.inject(Rule::new(of(Purpose::Manifest), Fault::Error(ErrorKind::PermissionDenied)));
        let loading = {
            let keys = keys.clone();
            stores.env.spawn(tombolo_env::TaskClass::Foreground, "load", async move { load(&keys, 1).await })
        };
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(
            db.stats().flushes == 0
                && db.background_errors().iter().any(|told| told.error.kind() == ErrorKind::PermissionDenied)
        );
        assert_eq!(stores.tables().await.len(), 0, "no table is kept while none can be named");
        stores.plan.clear();
        loading.await;
        db.flush().await.unwrap();
        holds(&keys, 1).await;
        assert_eq!(
            stores.tables().await.len() as u64,
            db.stats().flushes,
            "each flush has one table, and no other was left"
        );
    });
}

#[test]
pub(crate) fn keyspaces_made_and_dropped_between_memtables_are_seen_by_what_is_written_ahead() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for purpose in [Purpose::Flush, Purpose::Manifest] {
            stores.plan.inject(Rule::new(of(purpose), Fault::Delay(Duration::from_secs(1))));
        }
        load(&keys, 1).await;
        // Created and written to while others wait for their flush; and one that is dropped before
        // its own.
        let made = db.create_keyspace("made", KeyspaceOptions::default()).await.unwrap();
        load(&made, 2).await;
        let dropped = db.create_keyspace("dropped", KeyspaceOptions::default()).await.unwrap();
        load(&dropped, 3).await;
        drop(dropped);
        db.drop_keyspace("dropped").await.unwrap();
        db.flush().await.unwrap();
        holds(&keys, 1).await;
        holds(&made, 2).await;
        drop((db, keys, made));
        let db = stores.open(&[]).await;
        holds(&db.default_keyspace(), 1).await;
        holds(&db.keyspace("made").unwrap(), 2).await;
        assert!(db.keyspace("dropped").is_err());
    });
}

/// Puts are in a memtable that is being flushed when the tables of their deletes are written.
fn deletes_are_kept_over_a_memtable_that_is_in_no_table_yet() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for purpose in [Purpose::Flush, Purpose::Manifest] {
            stores.plan.inject(Rule::new(of(purpose), Fault::Delay(Duration::from_secs(1))));
        }
        load(&keys, 1).await;
        for number in 0..1000_u32 {
            keys.delete_with(number.to_be_bytes(), Durability::Accepted).await.unwrap();
        }
        // Until the memtable of the deletes is sealed as well.
        let other = db.create_keyspace("other", KeyspaceOptions::default()).await.unwrap();
        load(&other, 2).await;
        db.flush().await.unwrap();
        for number in 0..1000_u32 {
            assert_eq!(keys.get(number.to_be_bytes()).await.unwrap(), None, "{number}");
        }
        holds(&other, 2).await;
    });
}

#[test]
fn deletes_written_ahead_are_kept() {
    deletes_are_kept_over_a_memtable_that_is_in_no_table_yet();
}

#[cfg(feature = "mutants")]
#[test]
fn deletes_written_ahead_that_are_lost_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::FlushAheadTakenForBottom, deletes_are_kept_over_a_memtable_that_is_in_no_table_yet);
}

#[test]
fn a_queue_leaves_no_deletes_in_tables() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for round in 0..3_u32 {
            for number in 0..100_u32 {
                let key = (round * 100 + number).to_be_bytes();
                keys.put(key, "value").await.unwrap();
                keys.delete(key).await.unwrap();
            }
            db.flush().await.unwrap();
        }
        assert_eq!(stores.tables().await.len(), 0, "nothing older lies under what was put and deleted");
        keys.put("a", "value").await.unwrap();
        db.flush().await.unwrap();
        keys.delete("a").await.unwrap();
        db.flush().await.unwrap();
        assert_eq!(stores.tables().await.len(), 2, "a delete of what a table holds is kept");
        assert_eq!(keys.get("a").await.unwrap(), None);
    });
}
