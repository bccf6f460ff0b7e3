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
        let layers = layers(brought, &given, IngestOptions::default()).unwrap();
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

/// What an operand lay over when it was written may be destroyed: from elsewhere none is taken.
#[test]
fn operands_that_end_are_not_taken_from_outside() {
    let process = World::new(1).process("writer");
    let env = process.env();
    let test = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let db = Db::builder("mem://operands").env(env.clone()).stores(Arc::clone(&objects), log);
        let db = db.open().await.unwrap();
        let engine = db.engine();
        let operator = Some(crate::OperatorName::parse("add_u64").unwrap());
        let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
        let visits = db.create_keyspace("visits", options).await.unwrap();
        let ttl = std::time::Duration::from_secs(60);
        let place = TablePlace::object(objects, "given").unwrap();
        let given = given(engine, &[(engine.catalog.by_name("visits").unwrap(), place)]).unwrap();
        for (key, is_operand) in [("value", false), ("operand", true)] {
            if is_operand {
                visits.merge_ttl(key, 1_u64.to_le_bytes(), ttl).await.unwrap();
            } else {
                visits.put_ttl(key, 1_u64.to_le_bytes(), ttl).await.unwrap();
            }
            db.flush().await.unwrap();
            let view = engine.view_owned();
            let levels = view.version.levels(given[0].keyspace.id).unwrap();
            let newest = levels.tables().max_by_key(|table| table.description().last_sequence).unwrap();
            let checked = check_features(engine, &given[0], newest.description());
            assert_eq!(checked.err().map(|error| error.kind()), is_operand.then_some(ErrorKind::Unsupported));
        }
    };
    process.run(test).unwrap();
}
