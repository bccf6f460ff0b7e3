use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

use crate::{Db, Durability};

/// As if so many more unlogged writes had been made and flushed.
fn pretend_unlogged(db: &Db, writes: u64) {
    let engine = db.engine();
    let mut commit = engine.stream.commit.lock();
    commit.last += writes;
    commit.unlogged = commit.last;
    engine.stream.visible.store(commit.last, Ordering::Release);
}

#[test]
fn any_number_of_unlogged_writes_may_lie_between_logged_ones() {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
    process
        .run(async move {
            let open = || Db::builder("mem://gap").env(env.clone()).stores(Arc::clone(&objects), Arc::clone(&log)).open();
            let db = open().await.unwrap();
            let keys = db.default_keyspace();
            keys.put(b"1", b"one").await.unwrap();
            pretend_unlogged(&db, (1 << 33) + 5);
            keys.put_with(b"2", b"unlogged", Durability::Unlogged).await.unwrap();
            keys.put(b"2", b"two").await.unwrap();
            keys.put(b"3", b"three").await.unwrap();
            let last = db.stats().last_sequence;
            drop((db, keys));
            let db = open().await.unwrap();
            let keys = db.default_keyspace();
            for (key, value) in [(b"1", "one"), (b"2", "two"), (b"3", "three")] {
                assert_eq!(keys.get(key).await.unwrap().unwrap(), value.as_bytes());
            }
            assert_eq!(db.stats().last_sequence, last, "no number is given out twice");
        })
        .unwrap();
}
