use std::sync::Arc;

use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{ErrorKind, LogStore, ObjectStore};

use super::ReaderOptions;
use crate::memtable::refusing::REFUSED;
use crate::{Batch, Db, Durability};

/// A round without memory fails and is made again: what it was to show comes then, each batch whole and once.
#[test]
fn a_reader_without_memory_goes_on_when_it_has_some_again() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let outcome = process.run(async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let builder = || Db::builder("mem://x").env(env.clone()).stores(Arc::clone(&objects), Arc::clone(&log));
        let db = builder().open().await.unwrap();
        let keys = db.default_keyspace();
        keys.put("before", "1").await.unwrap();
        let reader = builder().open_reader(ReaderOptions::default()).await.unwrap();
        let mut batch = Batch::new();
        for number in 0..100 {
            batch.put(&keys, format!("key {number:03}"), [7; 300]);
        }
        db.write_with(batch, Durability::Durable).await.unwrap();
        REFUSED.set(true);
        let error = reader.refresh().await.unwrap_err();
        REFUSED.set(false);
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert_eq!(reader.default_keyspace().get("key 000").await.unwrap(), None, "half a batch");
        reader.refresh().await.unwrap();
        let mut scan = reader.default_keyspace().scan::<&[u8]>(..);
        let mut entries = 0;
        while let Some((_, value)) = scan.next_async().await.unwrap() {
            entries += 1;
            assert!(value == b"1" || value == [7; 300]);
        }
        assert_eq!(entries, 101);
        assert!(reader.error().is_none());
    });
    outcome.unwrap();
}
