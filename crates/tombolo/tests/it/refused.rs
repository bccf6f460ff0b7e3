//! Writes that are refused for want of room, and what stores refuse: nothing is acknowledged that
//! is not there, and no operation hangs.
//!
//! A world in which nothing can run any more panics, so an operation that never ends fails its
//! test.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Batch, Db, Durability, ErrorKind};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultLogStore, Rule};
use tombolo_storage::{Epoch, Life, ObjectKind, ObjectName, Placement, Purpose, Registry, Request, Uri};

use crate::stores::{Stores, run as run_with};

/// Runs a test of stores of which the log has faults as well.
fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    run_with(&[], |mut stores| {
        stores.log = Arc::new(FaultLogStore::new(&stores.env, Arc::clone(&stores.log), stores.plan.clone()));
        test(stores)
    });
}

#[test]
fn a_write_that_the_log_refuses_is_whole_when_it_is_tried_again() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        keys.put(b"0", b"zero").await.unwrap();
        let busy = |times| {
            stores
                .plan
                .inject(Rule::of_kind(RequestKind::LogAppend, Fault::Error(ErrorKind::Busy)).times(times));
        };
        busy(2);
        keys.put_with(b"1", b"one", Durability::Accepted).await.unwrap();
        assert_eq!(keys.get(b"1").await.unwrap().unwrap(), b"one", "an acknowledged write is there");
        busy(1);
        let mut batch = Batch::new();
        batch.put(&keys, b"2", b"two");
        let mut rejected = db.try_write(batch, Durability::Durable).unwrap_err();
        assert_eq!((rejected.error.kind(), rejected.batch.len()), (ErrorKind::Busy, 1));
        rejected.batch.put(&keys, b"3", b"three");
        db.try_write(rejected.batch, Durability::Durable).unwrap().await.unwrap();
        drop((db, keys));
        let keys = stores.open(&[]).await.default_keyspace();
        for (key, value) in [(b"1", "one"), (b"2", "two"), (b"3", "three")] {
            assert_eq!(
                keys.get(key).await.unwrap().unwrap(),
                value.as_bytes(),
                "an acknowledged write is found again"
            );
        }
    });
}

#[test]
fn a_later_write_does_not_pass_one_that_was_refused() {
    run(|stores| async move {
        let keys = stores.open(&[]).await.default_keyspace();
        // The first call finds no room, nor does it at once after.
        stores.plan.inject(Rule::of_kind(RequestKind::LogAppend, Fault::Error(ErrorKind::Busy)).times(2));
        let first = keys.put_with(b"k", b"first", Durability::Accepted);
        let second = keys.put_with(b"k", b"second", Durability::Accepted);
        second.await.unwrap();
        first.await.unwrap();
        assert_eq!(keys.get(b"k").await.unwrap().unwrap(), b"second", "call order is sequence order");
    });
}

#[test]
fn a_write_beyond_the_limit_in_flight_ends_though_nobody_takes_the_results_before_it() {
    run(|stores| async move {
        let keys = stores.open(&["writes_in_flight_max=2"]).await.default_keyspace();
        let before = [keys.put(b"1", b"one"), keys.put(b"2", b"two")];
        keys.put(b"3", b"three").await.unwrap();
        for write in before {
            write.await.unwrap();
        }
        assert_eq!(keys.get(b"3").await.unwrap().unwrap(), b"three");
    });
}

#[test]
fn a_refused_write_ends_when_the_database_does() {
    run(|stores| async move {
        let db = stores.open(&["memory_bytes=1048576", "memtable_bytes=65536"]).await;
        let keys = db.default_keyspace();
        stores.plan.inject(Rule::of_kind(RequestKind::Create, Fault::Error(ErrorKind::OutOfSpace)));
        let fill = |index: u32| keys.put_with(index.to_be_bytes(), vec![7; 8 << 10], Durability::Accepted);
        let mut in_line = None;
        let refused = (0..1000).find_map(|index| match fill(index).try_take() {
            Ok(ended) => ended.err(),
            Err(waiting) => {
                in_line.get_or_insert(waiting);
                None
            }
        });
        assert_eq!(refused.unwrap().kind(), ErrorKind::Busy, "the line is bounded");
        drop((db, keys));
        assert_eq!(in_line.unwrap().await.unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_write_beyond_what_the_line_may_hold_waits_while_somebody_waits_for_it() {
    run(|stores| async move {
        let db = stores.open(&["memory_bytes=1048576", "memtable_bytes=65536"]).await;
        let keys = db.default_keyspace();
        stores.plan.inject(Rule::of_kind(RequestKind::Create, Fault::Error(ErrorKind::OutOfSpace)).times(3));
        let fill = |index: u32| keys.put_with(index.to_be_bytes(), vec![7; 8 << 10], Durability::Accepted);
        let mut in_line = Vec::new();
        let refused = (0..1000).find_map(|index| match fill(index).try_take() {
            Ok(ended) => ended.err().map(|_| index),
            Err(waiting) => {
                in_line.push(waiting);
                None
            }
        });
        let refused = refused.unwrap();
        // The same key is in line already: the later call wins.
        let late = keys.put_with((refused - 1).to_be_bytes(), b"late", Durability::Accepted);
        drop(keys.put_with(b"dropped", vec![7; 8 << 10], Durability::Accepted));
        late.await.unwrap();
        for write in in_line {
            write.await.unwrap();
        }
        assert_eq!(keys.get((refused - 1).to_be_bytes()).await.unwrap().unwrap(), b"late");
        assert!(
            keys.get(refused.to_be_bytes()).await.unwrap().is_none(),
            "of what was refused nothing was taken"
        );
        assert!(keys.get(b"dropped").await.unwrap().is_none(), "nor of what nobody waited for");
    });
}

#[test]
fn a_table_of_unknown_outcome_is_written_again_under_another_name() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for (round, landed) in [false, true].into_iter().enumerate() {
            for purpose in [Purpose::Flush, Purpose::Compaction] {
                let rule = Rule::new(
                    move |asked| asked.kind == RequestKind::Finish && asked.purpose == purpose,
                    Fault::Unknown { landed },
                );
                stores.plan.inject(rule.times(1));
            }
            keys.put([round as u8], b"value").await.unwrap();
            while let Err(error) = db.compact().await {
                assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                stores.env.sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(keys.get([round as u8]).await.unwrap().unwrap(), b"value");
        }
        assert_eq!(stores.plan.injected(), 4);
        assert!(db.verify().await.unwrap().damage.is_empty());
    });
}

#[test]
fn closing_twice_waits_for_the_first() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        db.default_keyspace().put_with(b"1", b"one", Durability::Unlogged).await.unwrap();
        stores.plan.inject(Rule::of_kind(RequestKind::Finish, Fault::Delay(Duration::from_secs(1))).times(1));
        let first = db.close();
        stores.env.sleep(Duration::from_millis(10)).await;
        db.close().await.unwrap();
        assert_eq!(db.stats().flushes, 1, "what was unlogged is flushed when closing ends");
        first.await.unwrap();
    });
}

#[test]
fn a_compaction_that_fails_keeps_no_flush_from_going_well() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        let refused = |asked: &Asked<'_>| asked.purpose == Purpose::Compaction;
        stores.plan.inject(Rule::new(refused, Fault::Error(ErrorKind::PermissionDenied)));
        for index in 0..8u8 {
            keys.put([index], b"value").await.unwrap();
            stores.env.sleep(Duration::from_millis(100)).await;
            db.flush().await.unwrap();
        }
        assert!(
            db.stats().background_error.unwrap().contains("compaction"),
            "and it is told though flushes go well"
        );
        keys.put_with(b"unlogged", b"value", Durability::Unlogged).await.unwrap();
        db.close().await.unwrap();
        drop((db, keys));
        assert!(stores.open(&[]).await.default_keyspace().get(b"unlogged").await.unwrap().is_some());
    });
}

#[test]
pub(crate) fn a_flush_whose_log_is_not_durable_in_time_leaves_no_table_behind() {
    run(|mut stores| async move {
        // What a log in memory accepts is durable at once.
        let uri = Uri::parse("file:///log").unwrap();
        let local =
            Registry::with_defaults().open_log_store(&stores.env, &uri, None, &stores.objects).unwrap();
        stores.log = Arc::new(FaultLogStore::new(&stores.env, local, stores.plan.clone()));
        let db = stores.open(&[]).await;
        db.default_keyspace().put_with(b"k", b"v", Durability::Accepted).await.unwrap();
        stores.plan.inject(Rule::of_kind(RequestKind::LogSync, Fault::Error(ErrorKind::Retry)).times(3));
        while let Err(error) = db.flush().await {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            stores.env.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(stores.plan.injected(), 3);
        assert_eq!(stores.tables().await.len(), 1, "only the table that is named");
    });
}

#[test]
fn tables_that_could_not_be_deleted_are_deleted_once_they_can_be() {
    for kind in [RequestKind::Delete, RequestKind::List] {
        run(move |stores| async move {
            let db = stores.open(&[]).await;
            let keys = db.default_keyspace();
            for value in [b"1", b"2"] {
                keys.put(b"k", value).await.unwrap();
                db.flush().await.unwrap();
            }
            stores.env.sleep(Duration::from_secs(1)).await;
            let refused = move |asked: &Asked<'_>| asked.kind == kind && asked.purpose == Purpose::Collection;
            stores.plan.inject(Rule::new(refused, Fault::Error(ErrorKind::PermissionDenied)).times(3));
            db.compact().await.unwrap();
            stores.env.sleep(Duration::from_millis(5)).await;
            let told = db.stats().background_error.unwrap_or_default();
            assert!(told.contains("collection"), "{kind}: {told:?}");
            stores.env.sleep(Duration::from_secs(60)).await;
            assert_eq!(
                (stores.plan.injected(), stores.tables().await.len()),
                (3, 1),
                "{kind}: an idle database tries it again"
            );
            assert_eq!(db.stats().background_error, None);
        });
    }
}

/// A database with a table that is not needed any more, and a pin that cannot be read.
async fn with_a_damaged_pin(stores: &Stores) -> (Db, ObjectName) {
    let db = stores.open(&[]).await;
    let keys = db.default_keyspace();
    keys.put(b"k", b"1").await.unwrap();
    db.checkpoint("c").await.unwrap();
    let request = Request::new(Purpose::Verify, Epoch::NONE);
    let listed = stores.objects.list(request, "", None, 100_000).await.unwrap();
    let pin = listed
        .objects
        .iter()
        .map(|object| &object.name)
        .find(|name| name.as_str().contains("/pin/"))
        .unwrap()
        .clone();
    stores.objects.delete(request, &pin).await.unwrap();
    let placement = Placement::new(ObjectKind::Pin, Life::Medium);
    stores.objects.put_if_absent(request, &pin, placement, vec![7; 100].into()).await.unwrap();
    keys.put(b"k", b"2").await.unwrap();
    db.compact().await.unwrap();
    (db, pin)
}

/// What no pause heals is tried again ever more rarely: an idle database stays idle.
#[test]
fn a_lasting_error_of_collection_keeps_no_idle_database_busy() {
    run(|stores| async move {
        let (db, _) = with_a_damaged_pin(&stores).await;
        stores.env.sleep(Duration::from_secs(600)).await;
        let before = stores.plan.requests();
        stores.env.sleep(Duration::from_secs(600)).await;
        let requests = stores.plan.requests() - before;
        // One a minute looks whether somebody stands by.
        assert!(requests <= 20, "{requests} requests in ten minutes");
        assert!(db.stats().background_error.is_some_and(|told| told.contains("collection")));
    });
}

#[test]
fn a_damaged_pin_keeps_all_tables_and_is_told_of() {
    run(|stores| async move {
        let (db, pin) = with_a_damaged_pin(&stores).await;
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        stores.env.sleep(Duration::from_secs(60)).await;
        let told = db.stats().background_error.unwrap_or_default();
        assert!(told.contains("collection") && told.contains(pin.as_str()), "{told:?}");
        assert_eq!(stores.tables().await.len(), 3);
        stores.objects.delete(request, &pin).await.unwrap();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert_eq!((db.stats().background_error, stores.tables().await.len()), (None, 1));
    });
}

#[test]
fn tables_that_a_verification_kept_are_deleted_after_it() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for value in [b"1", b"2"] {
            keys.put(b"k", value).await.unwrap();
            db.flush().await.unwrap();
        }
        stores.env.sleep(Duration::from_secs(1)).await;
        let minute = Fault::Delay(Duration::from_secs(60));
        let read = |asked: &Asked<'_>| {
            asked.kind == RequestKind::Read
                && asked.name.contains("/table/")
                && asked.purpose == Purpose::Verify
        };
        stores.plan.inject(Rule::new(read, minute).times(1));
        let verifying = db.verify();
        stores.env.sleep(Duration::from_secs(1)).await;
        db.compact().await.unwrap();
        stores.env.sleep(Duration::from_secs(10)).await;
        assert_eq!(stores.tables().await.len(), 3, "what it reads is kept");
        assert!(verifying.await.unwrap().damage.is_empty());
        stores.env.sleep(Duration::from_secs(1)).await;
        assert_eq!((stores.plan.injected(), stores.tables().await.len()), (1, 1));
    });
}

/// A record of the manifest lands, its writer learns of neither that nor anything after: what the
/// record names must be there.
#[test]
pub(crate) fn what_a_record_of_unknown_outcome_names_is_kept() {
    for purpose in [Purpose::Flush, Purpose::Compaction] {
        run(move |stores| async move {
            let db = stores.open(&["automatic_compaction=false"]).await;
            let keys = db.default_keyspace();
            for key in [b"1", b"2"] {
                keys.put(key, b"value").await.unwrap();
                if purpose == Purpose::Compaction {
                    db.flush().await.unwrap();
                }
            }
            let in_manifest =
                |kind| move |asked: &Asked<'_>| asked.kind == kind && asked.name.contains("/manifest/");
            stores
                .plan
                .inject(Rule::new(in_manifest(RequestKind::Put), Fault::Unknown { landed: true }).times(1));
            stores.plan.inject(
                Rule::new(in_manifest(RequestKind::Read), Fault::Error(ErrorKind::PermissionDenied)).times(1),
            );
            let work = if purpose == Purpose::Flush { db.flush() } else { db.compact() };
            assert_eq!(work.await.unwrap_err().kind(), ErrorKind::OutcomeUnknown, "{purpose:?}");
            assert_eq!(stores.plan.injected(), 2, "{purpose:?}");
            drop((db, keys));
            let db = stores.open(&[]).await;
            for key in [b"1", b"2"] {
                assert_eq!(db.default_keyspace().get(key).await.unwrap().unwrap(), b"value", "{purpose:?}");
            }
            assert_eq!(
                db.stats().tables,
                1,
                "{purpose:?}: the record did not land, and the test tests nothing"
            );
            assert!(db.verify().await.unwrap().damage.is_empty(), "{purpose:?}");
        });
    }
}
