use tombolo_env::simulated::World;
use tombolo_storage::LogStore;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};

use super::*;
use crate::outside::TableFileBuilder;
use crate::{Db, KeyspaceOptions, Registry};

/// The record of a drop comes between the look at the staged tables and the record that gives them
/// up.
#[test]
fn tables_beside_those_of_a_dropped_keyspace_are_given_up_too() {
    let process = World::new(1).process("writer");
    let env = process.env();
    let test = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let db = Db::builder("mem://given-up").env(env.clone()).stores(Arc::clone(&objects), log);
        let db = db.open().await.unwrap();
        let engine = db.engine();
        let place = TablePlace::object(objects, "part").unwrap();
        let (registry, options) = (Registry::with_defaults(), KeyspaceOptions::default());
        let mut part = TableFileBuilder::create_with(env, registry, place.clone(), options).await.unwrap();
        part.put(b"key", b"value").await.unwrap();
        part.finish().await.unwrap();
        let mut tables = Vec::new();
        for name in ["dropped", "kept"] {
            db.create_keyspace(name, KeyspaceOptions::default()).await.unwrap();
            tables.push((engine.catalog.by_name(name).unwrap(), place.clone()));
        }
        db.flush().await.unwrap();
        let given = given(engine, &tables).unwrap();
        let mut progress: Progress = Box::new(|_report| ());
        let telling = Mutex::new((IngestReport::default(), &mut progress));
        let brought = bring_all(engine, &given, IngestOptions::default(), &telling).await.unwrap();
        let layers = layers(brought, &given, false).unwrap();
        stage(engine, &layers).await.unwrap();
        assert_eq!(engine.manifest.state().staged().count(), 2);
        let dropped = engine.manifest.commit(vec![Edit::KeyspaceDropped { id: tables[0].0.id }]);
        let keyspaces = tables.iter().map(|(keyspace, _)| Arc::clone(keyspace)).collect();
        give_up(engine, &Ingestion::new(layers, keyspaces, Vec::new())).await;
        dropped.await.unwrap().unwrap();
        assert_eq!(engine.manifest.state().staged().count(), 0);
    };
    process.run(test).unwrap();
}
