//! What a database tells of its tables: properties that collectors found, and events as tables come
//! and go.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{
    CollectedProperty, Collector, Db, Event, Keyspace, Listener, Options, TableCollector, TableEntry,
};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

/// The first bytes of values that a table holds, and how many deletes.
struct Values;

#[derive(Default)]
struct OfTable {
    values: BTreeSet<u8>,
    deletes: u64,
}

impl Collector for Values {
    fn begin(&self, _keyspace: u32, _level: u8) -> Box<dyn TableCollector> {
        Box::new(OfTable::default())
    }
}

impl TableCollector for OfTable {
    fn add(&mut self, _key: &[u8], entry: TableEntry<'_>) {
        match entry {
            TableEntry::Put(value) => self.values.extend(value.first()),
            TableEntry::Delete => self.deletes += 1,
            _ => {}
        }
    }

    fn finish(self: Box<Self>) -> Vec<(String, Vec<u8>)> {
        vec![
            ("values".into(), self.values.iter().copied().collect()),
            ("deletes".into(), self.deletes.to_le_bytes().to_vec()),
        ]
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Listener for Heard {
    fn event(&self, event: &Event) {
        self.0.lock().push(event.clone());
    }
}

/// What the tables hold, level by level: (level, values, deletes).
fn said(keys: &Keyspace) -> Vec<(u8, Vec<u8>, u64)> {
    let of = |collected: &[CollectedProperty], name: &str| {
        let found = collected.iter().find(|one| one.collector == "values" && one.name == name);
        found.unwrap().value.clone()
    };
    let tables = keys.table_properties().unwrap();
    let told = tables.iter().map(|table| {
        let deletes = u64::from_le_bytes(of(&table.collected, "deletes").try_into().unwrap());
        assert_eq!(deletes, table.deletes);
        (table.level, of(&table.collected, "values"), deletes)
    });
    told.collect()
}

#[test]
fn properties_stay_with_their_tables_and_events_tell_of_both() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let work = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let heard = Arc::new(Heard::default());
        let builder = || {
            let options = Options::parse(["automatic_compaction=false"]).unwrap();
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(&objects), Arc::clone(&log))
                .options(options)
                .listener(Arc::clone(&heard) as Arc<dyn Listener>)
        };
        let open = || builder().collector("values", Arc::new(Values)).open();
        let db = open().await.unwrap();
        let keys = db.default_keyspace();
        assert_eq!(said(&keys), []);
        for (key, value) in [(b"a", [1]), (b"b", [2])] {
            keys.put(key, value).await.unwrap();
        }
        db.flush().await.unwrap();
        keys.put(b"b", [3]).await.unwrap();
        keys.delete(b"a").await.unwrap();
        db.flush().await.unwrap();
        assert_eq!(said(&keys), [(0, vec![3], 1), (0, vec![1, 2], 0)]);

        // They lie in the manifest, and are there without their collector.
        drop((db, keys));
        let db = builder().open().await.unwrap();
        assert_eq!(said(&db.default_keyspace()), [(0, vec![3], 1), (0, vec![1, 2], 0)]);
        drop(db);
        let db = open().await.unwrap();
        let keys = db.default_keyspace();
        let before: BTreeSet<_> =
            keys.table_properties().unwrap().into_iter().map(|table| table.object).collect();
        heard.0.lock().clear();
        db.compact().await.unwrap();
        let tables = keys.table_properties().unwrap();
        assert_eq!(said(&keys), [(tables[0].level, vec![3], 0)], "of the entries that are left");
        env.sleep(std::time::Duration::from_secs(1)).await;
        db.close().await.unwrap();
        let heard = heard.0.lock();
        let began = heard.iter().any(|event| {
            matches!(event, Event::CompactionBegan { reason: "asked", from: 0, to: 1.., inputs: 2, .. })
        });
        let ended =
            heard.iter().any(|event| matches!(event, Event::Compacted { is_move: false, outputs: 1, .. }));
        assert!(began && ended, "{heard:?}");
        let made: Vec<_> = heard
            .iter()
            .filter_map(|event| match event {
                Event::TableMade { object, level, entries, .. } => Some((object.as_str(), *level, *entries)),
                _ => None,
            })
            .collect();
        assert_eq!(made, [(tables[0].object.as_str(), tables[0].level, 1)]);
        let deleted: BTreeSet<_> = heard
            .iter()
            .filter_map(|event| match event {
                Event::TableDeleted { object } => Some(object.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(deleted, before);
    };
    process.run(work).unwrap();
}
