//! Garbage, found and deleted by a process without a claim.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo::internals::sweep::{self, GarbageKind};
use tombolo::{Db, ErrorKind, Options};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{
    Epoch, Life, LogStore, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Request,
};

#[test]
fn what_serves_nobody_is_found_and_deleted_and_nothing_else() {
    let world = World::new(1);
    let process = world.process("p");
    let env = process.env();
    process
        .run(async move {
            let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
            let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
            let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap();
            let open = || {
                Db::builder("mem://x")
                    .env(env.clone())
                    .stores(Arc::clone(&objects), Arc::clone(&log))
                    .options(options.clone())
            };
            assert_eq!(sweep::survey(&env, &objects).await.unwrap_err().kind(), ErrorKind::NotFound);
            // A life that ended.
            open().open().await.unwrap().default_keyspace().put(b"k", b"v").await.unwrap();
            open().destroy().await.unwrap();
            let db = open().open().await.unwrap();
            for number in 0..100u8 {
                db.default_keyspace().put([number], [number; 300]).await.unwrap();
            }
            db.checkpoint("kept").await.unwrap();
            // So many records that a snapshot of the manifest is named.
            for number in 0..80u8 {
                db.default_keyspace().put([number], [number; 30]).await.unwrap();
                db.flush().await.unwrap();
            }
            db.compact().await.unwrap();
            env.sleep(Duration::from_secs(1)).await;
            let put = async |name: &str| {
                let request = Request::new(Purpose::Verify, Epoch::NONE);
                let placement = Placement::new(ObjectKind::Table, Life::Long);
                let name = ObjectName::new(name).unwrap();
                objects.put_if_absent(request, &name, placement, Bytes::from_static(b"x")).await.unwrap();
            };
            // A log that is kept as objects.
            put("0000000000000002/log-objects/0000000000000001/0000/00000001").await;
            let clean = sweep::survey(&env, &objects).await.unwrap();
            assert!(clean.objects.is_empty() && clean.foreign == 0, "{clean:?}");
            let request = Request::new(Purpose::Verify, Epoch::NONE);
            let snapshots =
                objects.list(request, "0000000000000002/snapshot/", None, 10).await.unwrap().objects;
            assert!(!snapshots.is_empty());
            // Left by an older epoch, and by the writer's own, which may name it yet.
            put("0000000000000002/table/0000000000000000-00000000000000aa").await;
            put(&format!("0000000000000002/table/{:016x}-00000000000000bb", db.epoch().0)).await;
            put("0000000000000001/table/0000000000000001-00000000000000cc").await;
            put("0000000000000002/checkpoint/000000000000000000000000000000dd").await;
            put("0000000000000002/pin/000000000000000000000000000000ee.fffffffffffffffe").await;
            put("letters/to-a-friend").await;
            // What says that a store of the cloud was tried is the database's.
            put("probe/put-if-absent").await;
            let garbage = sweep::survey(&env, &objects).await.unwrap();
            let found: Vec<_> = garbage
                .objects
                .iter()
                .map(|object| (object.kind, object.name.as_str().rsplit('/').next().unwrap()))
                .collect();
            assert_eq!(
                found,
                [
                    (GarbageKind::EndedLife, "0000000000000001-00000000000000cc"),
                    (GarbageKind::Unpinned, "000000000000000000000000000000dd"),
                    (GarbageKind::Unpinned, "000000000000000000000000000000ee.fffffffffffffffe"),
                    (GarbageKind::Orphan, "0000000000000000-00000000000000aa"),
                ]
            );
            assert_eq!((garbage.foreign, garbage.foreign_names.len()), (1, 1));
            // What a pin of the ended life keeps is no garbage.
            let pin = "0000000000000001/pin/000000000000000000000000000000ff";
            put(pin).await;
            let pinned = sweep::survey(&env, &objects).await.unwrap();
            assert!(pinned.objects.iter().all(|object| object.kind != GarbageKind::EndedLife), "{pinned:?}");
            objects.delete(request, &ObjectName::new(pin).unwrap()).await.unwrap();
            sweep::delete(&env, &objects, &garbage).await.unwrap();
            let left = sweep::survey(&env, &objects).await.unwrap();
            assert!(left.objects.is_empty(), "{left:?}");
            assert_eq!((left.kept, left.foreign), (garbage.kept, 1));
            assert!(db.verify().await.unwrap().damage.is_empty());
            let kept = open().at_checkpoint("kept").open_read_only().await.unwrap();
            assert!(kept.verify().await.unwrap().damage.is_empty());
        })
        .unwrap();
}

/// Each rule taken out is noticed.
#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn a_sweep_that_takes_what_serves_somebody() {
        for mutant in [
            Mutant::SweepIgnoresPins,
            Mutant::SweepIgnoresPinnedLives,
            Mutant::SweepIgnoresNewestSnapshot,
            Mutant::SweepTakesForeign,
            Mutant::SweepTakesLogs,
            Mutant::CollectCurrentEpoch,
        ] {
            notices(mutant, super::what_serves_nobody_is_found_and_deleted_and_nothing_else);
        }
    }
}
