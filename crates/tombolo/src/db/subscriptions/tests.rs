//! Remains of subscriptions that have ended, which users do not see.

use std::sync::Barrier;

use tombolo_env::Env;
use tombolo_env::simulated::World;
use tombolo_storage::LogStore;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultLogStore, FaultPlan, Rule};

use super::*;
use crate::Builder;

const KEPT: u64 = 1 << 20;

/// A database, on a log that fails as the plan says.
fn builder(env: &Env) -> (Builder, FaultPlan) {
    let plan = FaultPlan::scripted();
    let objects = Arc::new(MemoryObjectStore::unnamed(env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(env));
    let log = Arc::new(FaultLogStore::new(env, log, plan.clone()));
    (Db::builder("mem://subscriptions").env(env.clone()).stores(objects, log), plan)
}

/// The keys that are there of all subjects: the first byte of each.
async fn kept(db: &Db) -> String {
    let kept_in = Followed::all(db).kept_in().unwrap();
    let mut all = kept_in.scan::<&[u8]>(..);
    let mut kept = String::new();
    while let Some((key, _)) = all.next_async().await.unwrap() {
        kept.push(key[0].into());
    }
    kept
}

/// One that failed halfway can be ended, at once or after an opening, and leaves nothing behind.
#[test]
fn a_subscription_that_failed_can_be_ended() {
    for reopens in [false, true] {
        let process = World::new(1).process("process");
        let (builder, plan) = builder(&process.env());
        let test = async move {
            let builder = builder.take_over(crate::TakeOver::Always);
            let mut db = builder.clone().open().await.unwrap();
            let mut keys = db.default_keyspace();
            // The first makes the keyspace that keeps changes.
            let failing = Rule::of_kind(RequestKind::LogAppend, Fault::Error(ErrorKind::Retry));
            plan.inject(failing.skip(1).times(1));
            keys.subscribe("follower", KEPT).await.expect_err("the log took nothing");
            keys.put("k", "1").await.unwrap();
            let unlogged = keys.put_with("k", "2", Durability::Unlogged).await;
            assert_eq!(unlogged.unwrap_err().kind(), ErrorKind::Invalid, "it may be there");
            assert_eq!(kept(&db).await, "c");
            if reopens {
                db = builder.open().await.unwrap();
                keys = db.default_keyspace();
            } else {
                keys.unsubscribe("follower").await.unwrap();
            }
            assert_eq!(keys.unsubscribe("follower").await.unwrap_err().kind(), ErrorKind::NotFound);
            keys.put_with("k", "2", Durability::Unlogged).await.expect("nobody follows");
            assert_eq!(kept(&db).await, "");
            // Of two that failed, each ends by itself.
            let failing = Rule::of_kind(RequestKind::LogAppend, Fault::Error(ErrorKind::Retry));
            keys.subscribe("one", KEPT).await.unwrap();
            plan.inject(failing.times(1));
            keys.subscribe("two", KEPT).await.expect_err("the log took nothing");
            keys.unsubscribe("two").await.unwrap();
            keys.put("k", "3").await.unwrap();
            assert_eq!(kept(&db).await, "cst");
            keys.unsubscribe("one").await.unwrap();
            assert_eq!(kept(&db).await, "");
        };
        process.run(test).unwrap();
    }
}

/// A change that is being committed while the last subscription ends is forgotten as well.
#[test]
fn an_end_waits_for_the_commit_that_notes_a_change() {
    let env = Env::real();
    let (builder, plan) = builder(&env);
    let db = builder.open().wait().unwrap();
    let keys = db.default_keyspace();
    keys.subscribe("follower", KEPT).wait().unwrap();
    let (written, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let barriers = (Arc::clone(&written), Arc::clone(&goes_on));
    let waits = Fault::After(Arc::new(move || {
        barriers.0.wait();
        barriers.1.wait();
    }));
    plan.inject(Rule::of_kind(RequestKind::LogSync, waits).times(1));
    let ending = std::thread::spawn({
        let keys = keys.clone();
        move || keys.unsubscribe("follower").wait()
    });
    written.wait();
    let engine = db.engine();
    {
        // As a commit does it that has looked who follows.
        let _commit = engine.stream.commit.lock();
        goes_on.wait();
        (0..10_000).for_each(|_| std::thread::yield_now());
        let is_counted = engine.feed.change(|feed| {
            let followed = feed.followed.get_mut(&keys.id());
            followed.map(|followed| followed.took(100, 1 << 40, None)).is_some()
        });
        assert!(is_counted, "it ended while a change was being committed");
    }
    ending.join().unwrap().unwrap();
    assert!(!engine.feed.is_on());
    db.close().wait().unwrap();
}
