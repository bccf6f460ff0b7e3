use bytes::Bytes;
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

use super::*;
use crate::{Db, KeyspaceOptions};

/// Dropped keyspaces are forgotten, and no others.
#[test]
fn nothing_is_kept_of_dropped_keyspaces() {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
            let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
            let db = Db::builder("mem://dropped").env(env.clone()).stores(objects, log).open().await.unwrap();
            let engine = db.engine();
            let compactor = Compactor::default();
            for number in 0..100u32 {
                let keyspace =
                    db.create_keyspace(&format!("{number}"), KeyspaceOptions::default()).await.unwrap();
                compactor.0.lock().cursors.insert((keyspace.info().id, 5), Bytes::from_static(b"k"));
            }
            compactor.0.lock().forget_what_is_gone(engine);
            assert_eq!(compactor.0.lock().cursors.len(), 100);
            let (kept, dropped) = (db.keyspace("42").unwrap().info().id, db.keyspace("7").unwrap().info().id);
            for number in (0..100u32).filter(|number| *number != 42) {
                db.drop_keyspace(&format!("{number}")).await.unwrap();
            }
            for keyspace in [kept, dropped] {
                engine.work_failed(Work::compaction(keyspace), Error::new(ErrorKind::Retry, "away"));
            }
            compactor.0.lock().forget_what_is_gone(engine);
            assert_eq!(compactor.0.lock().cursors.keys().copied().collect::<Vec<_>>(), [(kept, 5)]);
            assert!(
                engine.troubles.of(Work::compaction(kept)).is_some()
                    && engine.troubles.of(Work::compaction(dropped)).is_none()
            );
        })
        .unwrap();
}

/// Parts that run side by side hold a block of every run each: of large values, fewer do.
#[test]
fn a_job_of_large_values_has_fewer_parts() {
    const MIB: u64 = 1 << 20;
    let parts = |value_bytes: u64, runs: u64, budget_bytes: u64| {
        super::job::parts_of(1024 * MIB, 64 * MIB, value_bytes * runs, budget_bytes)
    };
    assert_eq!(parts(100, 12, 64 * MIB), 4);
    assert_eq!(parts(64 * MIB, 12, 256 * MIB), 1);
    assert_eq!(parts(MIB, 8, 256 * MIB), 4);
    assert_eq!(parts(2 * MIB, 8, 256 * MIB), 2);
    assert_eq!(super::job::parts_of(64 * MIB, 64 * MIB, 100, 256 * MIB), 0, "too small to be cut");
}
