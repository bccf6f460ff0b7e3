//! Closing where the log is lost sooner than the store: what was closed needs that log no more.

use std::sync::Arc;

use tombolo::{Builder, Db, Env, ErrorKind};
use tombolo_env::simulated::World;
use tombolo_storage::backend::local::{LocalObjectStore, LocalOptions};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore};

/// Objects on a disk, and a log in memory.
fn on_disk(env: &Env) -> Arc<dyn ObjectStore> {
    Arc::new(LocalObjectStore::new(env, "/objects", LocalOptions::default()).unwrap())
}

fn in_memory(env: &Env) -> Arc<dyn LogStore> {
    Arc::new(MemoryLogStore::unnamed(env))
}

fn builder(env: &Env, objects: &Arc<dyn ObjectStore>, log: &Arc<dyn LogStore>) -> Builder {
    Db::builder("mem://closing").env(env.clone()).stores(Arc::clone(objects), Arc::clone(log))
}

async fn logs_named(env: &Env, objects: &Arc<dyn ObjectStore>) -> usize {
    tombolo::internals::load(env, objects).await.unwrap().state.logs().len()
}

fn run<F: Future<Output = ()> + Send + 'static>(work: impl FnOnce(Env) -> F) {
    let world = World::new(7);
    let process = world.process("process");
    let env = process.env();
    process.run(work(env)).unwrap();
}

#[test]
fn what_was_closed_needs_no_log_that_is_lost_sooner_than_the_store() {
    run(|env| async move {
        let objects = on_disk(&env);
        for round in 0u8..3 {
            // What the one before held is gone each time.
            let db = builder(&env, &objects, &in_memory(&env)).open().await.unwrap();
            let keys = db.default_keyspace();
            for earlier in 0..round {
                assert_eq!(keys.get([earlier]).await.unwrap().as_deref(), Some(&[earlier][..]), "{round}");
            }
            keys.put([round], [round]).await.unwrap();
            db.close().await.unwrap();
            assert_eq!(logs_named(&env, &objects).await, 0, "{round}");
        }
        // Nothing was written: its log is not needed either.
        builder(&env, &objects, &in_memory(&env)).open().await.unwrap().close().await.unwrap();
        assert_eq!(logs_named(&env, &objects).await, 0);
    });
}

#[test]
fn a_closing_that_cannot_write_to_the_store_says_so_and_the_log_has_it_still() {
    run(|env| async move {
        let (objects, log) = (on_disk(&env), in_memory(&env));
        let plan = FaultPlan::scripted();
        let failing: Arc<dyn ObjectStore> =
            Arc::new(FaultObjectStore::new(&env, Arc::clone(&objects), plan.clone()));
        let db = builder(&env, &failing, &log).open().await.unwrap();
        db.default_keyspace().put(b"a", b"1").await.unwrap();
        let is_write = |asked: &Asked<'_>| {
            matches!(asked.kind, RequestKind::Create | RequestKind::Put | RequestKind::Append)
        };
        plan.inject(Rule::new(is_write, Fault::Error(ErrorKind::OutOfSpace)));
        let error = db.close().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
        let told = error.to_string();
        assert!(told.contains("closing could not write everything") && told.contains("keep that"), "{told}");
        assert_eq!(logs_named(&env, &objects).await, 1);
        let again = builder(&env, &objects, &log).open().await.unwrap();
        assert_eq!(again.default_keyspace().get(b"a").await.unwrap().as_deref(), Some(&b"1"[..]));
    });
}

#[test]
fn a_log_that_lasts_as_long_as_the_store_stays_and_no_table_is_written() {
    run(|env| async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log = in_memory(&env);
        let db = builder(&env, &objects, &log).open().await.unwrap();
        db.default_keyspace().put(b"a", b"1").await.unwrap();
        db.close().await.unwrap();
        let loaded = tombolo::internals::load(&env, &objects).await.unwrap();
        assert_eq!((loaded.state.logs().len(), loaded.state.tables().count()), (1, 0));
        let again = builder(&env, &objects, &log).open().await.unwrap();
        assert_eq!(again.default_keyspace().get(b"a").await.unwrap().as_deref(), Some(&b"1"[..]));
    });
}

/// An application's own logs go with the others once they hold nothing; what they hold stays.
#[test]
fn own_logs_stay_for_what_they_hold_and_no_longer() {
    run(|env| async move {
        let (objects, log) = (on_disk(&env), in_memory(&env));
        let open = || builder(&env, &objects, &log).application_logs(3).open();
        let db = open().await.unwrap();
        let (trimmed, kept) = (db.application_log(0).unwrap(), db.application_log(1).unwrap());
        trimmed.append("a").await.unwrap();
        let last = trimmed.append("b").await.unwrap();
        trimmed.trim(last).await.unwrap();
        kept.trim(kept.append("a").await.unwrap()).await.unwrap();
        kept.append("b").await.unwrap();
        db.close().await.unwrap();
        drop((db, trimmed, kept));
        assert_eq!(logs_named(&env, &objects).await, 1, "one holds an entry");
        // Another epoch that does nothing leaves its own, and keeps that one.
        let db = builder(&env, &objects, &log).open().await.unwrap();
        db.close().await.unwrap();
        drop(db);
        assert_eq!(logs_named(&env, &objects).await, 1);
        let db = open().await.unwrap();
        let kept = db.application_log(1).unwrap();
        let mut earlier = kept.earlier();
        assert_eq!(&earlier.next_async().await.unwrap().unwrap().payload[..], b"b");
        assert!(earlier.next_async().await.unwrap().is_none());
        kept.release_earlier().await.unwrap();
        db.close().await.unwrap();
        drop((db, kept, earlier));
        assert_eq!(logs_named(&env, &objects).await, 0);
    });
}
