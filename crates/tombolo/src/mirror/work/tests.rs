use tombolo_env::simulated::World;
use tombolo_storage::LogStore;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};

use super::*;
use crate::{Db, Durability};

/// A database whose store fails as the plan says.
fn builder(env: &Env) -> (Builder, FaultPlan) {
    let plan = FaultPlan::scripted();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
    let objects = Arc::new(FaultObjectStore::new(env, objects, plan.clone()));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(env));
    let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=16384"]).unwrap();
    (Db::builder("mem://work").env(env.clone()).stores(objects, log).options(options), plan)
}

/// Rounds that fail one after the other keep each memtable once, and none that the source has no
/// more.
#[test]
fn rounds_that_fail_keep_each_memtable_once() {
    let process = World::new(1).process("process");
    let env = process.env();
    let ((source, near), (target, far)) = (builder(&env), builder(&env));
    let is_table = |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/table/");
    let rounds = async move {
        let db = source.clone().open().await.unwrap();
        // Its memtables stay.
        near.inject(Rule::new(is_table, Fault::Error(ErrorKind::Retry)));
        for number in 0..40_u32 {
            let put = db.default_keyspace().put_with(number.to_be_bytes(), [7; 500], Durability::Accepted);
            put.await.unwrap();
        }
        db.sync().await.unwrap();
        let mut work =
            Work::begin(&env, source, target, MirrorOptions::default(), Arc::default()).await.unwrap();
        far.inject(Rule::new(is_table, Fault::Error(ErrorKind::PermissionDenied)).skip(1));
        for round in 0..4 {
            work.round().await.unwrap_err();
            assert_eq!(work.private.len(), 1, "round {round}");
        }
        near.clear();
        db.flush().await.unwrap();
        far.clear();
        work.round().await.unwrap();
        assert_eq!(work.private.len(), 0);
        work.close().await;
        db.close().await.unwrap();
    };
    process.run(rounds).unwrap();
}
