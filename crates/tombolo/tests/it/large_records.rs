//! What a manifest record cannot hold.

use std::sync::Arc;

use tombolo::{Batch, Db, Durability, Env, Options};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};

/// As many keyspaces with a key of the greatest length as no record can describe the tables of.
const KEYSPACES: usize = 130;

fn key() -> Vec<u8> {
    vec![7; 65_535]
}

async fn check(db: &Db) {
    for keyspace in db.keyspaces() {
        let found = keyspace.get(key()).await.unwrap();
        assert_eq!(found.as_deref(), (keyspace.name() != "default").then_some(keyspace.name().as_bytes()));
    }
    assert_eq!(db.keyspaces().len(), 1 + KEYSPACES);
    assert!(db.verify().await.unwrap().damage.is_empty());
}

async fn run(env: Env) {
    let stores = || (Arc::new(MemoryObjectStore::unnamed(&env)), Arc::new(MemoryLogStore::unnamed(&env)));
    let (objects, log) = stores();
    let options = Options::parse(["memory_bytes=268435456"]).unwrap();
    let builder = || {
        Db::builder("mem://x").env(env.clone()).stores(objects.clone(), log.clone()).options(options.clone())
    };
    let db = builder().open().await.unwrap();
    let mut batch = Batch::new();
    for number in 0..KEYSPACES {
        let name = format!("keyspace {number}");
        batch.put(
            &db.create_keyspace(&name, tombolo::KeyspaceOptions::default()).await.unwrap(),
            key(),
            name.as_bytes(),
        );
    }
    db.write_with(batch, Durability::Durable).await.unwrap();
    db.flush().await.unwrap();
    check(&db).await;
    db.checkpoint("c").await.unwrap();
    drop(db);
    check(&builder().open().await.unwrap()).await;
    let (objects, log) = stores();
    let target = || {
        Db::builder("mem://y").env(env.clone()).stores(objects.clone(), log.clone()).options(options.clone())
    };
    builder().at_checkpoint("c").restore_to(target()).await.unwrap();
    check(&target().open().await.unwrap()).await;
}

#[test]
fn a_flush_and_a_restore_may_name_more_than_a_record_holds() {
    let world = World::new(1);
    let process = world.process("writer");
    process.run(run(process.env())).unwrap();
}
