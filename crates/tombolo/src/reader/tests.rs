use std::sync::Arc;
use std::time::Duration;

use tombolo_env::simulated::World;
use tombolo_format::manifest::Edit;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{ErrorKind, LogStore, ObjectStore, Purpose, Request};

use super::ReaderOptions;
use crate::manifest::names;
use crate::memtable::refusing::REFUSED;
use crate::{Batch, Db, Durability};

/// A round without memory fails and is made again: what it was to show comes then, each batch whole
/// and once.
#[test]
fn a_reader_without_memory_goes_on_when_it_has_some_again() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let outcome = process.run(async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let builder =
            || Db::builder("mem://x").env(env.clone()).stores(Arc::clone(&objects), Arc::clone(&log));
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

/// The tables of what a reader holds are deleted while its clock stood still, which says that the
/// lease holds: its reads end with a lost pin and not with damage, before a heartbeat as well, and
/// it goes on with the newest state.
#[test]
fn what_is_deleted_behind_a_lease_is_a_lost_pin() {
    let world = World::new(2);
    let process = world.process("process");
    let env = process.env();
    let outcome = process.run(async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let builder =
            || Db::builder("mem://x").env(env.clone()).stores(Arc::clone(&objects), Arc::clone(&log));
        let db = builder().open().await.unwrap();
        let keys = db.default_keyspace();
        let put_all = async |value: u8| {
            for number in 0..1000 {
                keys.put(format!("key {number:04}"), [value; 300]).await.unwrap();
            }
            db.flush().await.unwrap();
        };
        put_all(1).await;
        let reader = builder()
            .open_reader(ReaderOptions { lease: Duration::from_secs(3600), ..ReaderOptions::default() })
            .await
            .unwrap();
        let held = reader.snapshot();
        put_all(2).await;
        db.compact().await.unwrap();
        reader.refresh().await.unwrap();
        let manifest = &db.engine().manifest;
        let kept: Vec<_> = manifest.state().unneeded().map(|table| table.description.name).collect();
        assert!(!kept.is_empty(), "the reader's pin keeps them");
        manifest
            .committed(kept.iter().map(|name| Edit::TableCondemned { name: *name }).collect())
            .await
            .unwrap();
        manifest
            .committed(kept.iter().map(|name| Edit::TableUnnamed { name: *name }).collect())
            .await
            .unwrap();
        for name in kept {
            let object = names::table(manifest.incarnation(), name);
            objects.delete(Request::new(Purpose::Collection, manifest.epoch()), &object).await.unwrap();
        }
        let error = held.get(&reader.default_keyspace(), "key 0500").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PinLost, "{error}");
        assert_eq!(reader.default_keyspace().get("key 0500").await.unwrap().unwrap(), [2; 300]);
    });
    outcome.unwrap();
}
