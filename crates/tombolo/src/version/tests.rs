use std::sync::atomic::Ordering;

use bytes::Bytes;
use tombolo_env::simulated::World;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, KeyspaceOptions};
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::{Epoch, Incarnation, ObjectStore};

use super::*;
use crate::cache::BlockCache;
use crate::manifest::Places;
use crate::manifest::state::Origin;

fn table(number: u64, level: u8) -> TableDescription {
    let key = |place: u64| Bytes::from(format!("key-{place:012}"));
    TableDescription {
        name: TableName { epoch: 0, random: number },
        offset: 0,
        length: 1000,
        identity: 1,
        keyspace: 1,
        level,
        first_key: key(number * 10),
        last_key: key(number * 10 + 5),
        first_sequence: SequenceNumber(1),
        last_sequence: SequenceNumber(number + 1),
        entries: 10,
        deletes: 0,
        tail_bytes: 100,
        oldest_unix_seconds: 0,
        features: 0,
        properties: tombolo_format::property::PropertyList::default(),
        source: None,
    }
}

fn versions() -> (World, Versions) {
    let world = World::new(1);
    let env = world.process("process").env();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let places = Arc::new(Mutex::new(Places::own(&objects, Incarnation(1))));
    let tables = Tables {
        env,
        objects,
        cache: BlockCache::new(1 << 20),
        flash: crate::flash::FlashUse::None,
        incarnation: Incarnation(1),
        epoch: Epoch(1),
        places,
        silence: Arc::default(),
        naming: crate::version::Naming::default(),
        left_behind: Arc::default(),
        cold: None,
        collectors: Arc::default(),
    };
    (world, Versions::new(tables))
}

fn state(tables: u64) -> State {
    let mut edits: Vec<_> = [1, 2]
        .map(|id| Edit::KeyspaceCreated {
            id,
            name: format!("{id}"),
            stream: 0,
            options: KeyspaceOptions::default(),
        })
        .into();
    edits.extend((0..tables).map(|number| Edit::TableAdded(table(number, 3))));
    edits.push(Edit::TableAdded(TableDescription { keyspace: 2, ..table(1 << 40, 1) }));
    State::from_snapshot(1, Epoch(0), &edits).unwrap()
}

fn looked_up(versions: &Versions) -> usize {
    versions.handles.looked_up.swap(0, Ordering::Relaxed)
}

/// What an edit costs a new version does not grow with the number of tables.
#[test]
fn a_version_costs_what_changed() {
    for tables in [100, 10_000, 100_000] {
        let (_world, versions) = versions();
        let mut state = state(tables);
        let old = versions.build(&state, &Version::default(), &[]);
        assert_eq!(looked_up(&versions) as u64, tables + 1);
        let edits = [
            Edit::TableObsolete { name: table(tables / 2, 3).name },
            Edit::TableAdded(TableDescription {
                name: TableName { epoch: 0, random: 1 << 41 },
                ..table(tables / 2, 3)
            }),
            Edit::TableAdded(table(1 << 42, 0)),
        ];
        state.apply_edits(&edits, Origin::Snapshot).unwrap();
        let new = versions.build(&state, &old, &[]);
        assert!(looked_up(&versions) <= 1025, "a chunk or two");
        assert!(
            Arc::ptr_eq(new.levels(2).unwrap(), old.levels(2).unwrap()),
            "the other keyspace did not change"
        );
        let (new, old) = (new.levels(1).unwrap(), old.levels(1).unwrap());
        assert_eq!((new.runs.len(), old.runs.len()), (1, 0));
        let (new, old) = (new.level(3).unwrap(), old.level(3).unwrap());
        assert_eq!(new.len() as u64, tables);
        let differ = (0..new.len()).filter(|at| !Arc::ptr_eq(&new[*at], &old[*at])).collect::<Vec<_>>();
        assert_eq!(differ, [usize::try_from(tables).unwrap() / 2]);
    }
}

/// A run finds by key what a plain list of its tables finds.
#[test]
fn a_run_is_searched_as_a_list() {
    for tables in [1, 2, 511, 512, 513, 3000] {
        let (_world, versions) = versions();
        let version = versions.build(&state(tables), &Version::default(), &[]);
        let run = version.levels(1).unwrap().level(3).unwrap();
        let list: Vec<_> = run.iter().cloned().collect();
        assert_eq!((list.len(), run.bytes()), (run.len(), tables * 1000));
        let steps = (0..tables * 10 + 20).step_by(if tables > 100 { 7 } else { 1 });
        let keys = steps.map(|place| format!("key-{place:012}")).chain(["".into(), "key".into(), "z".into()]);
        for key in keys {
            let key = key.as_bytes();
            let before = list.partition_point(|table| &table.description().last_key[..] < key);
            let begun = list.partition_point(|table| &table.description().first_key[..] <= key);
            assert_eq!((run.before(key), run.begun(key)), (before, begun));
            let holds = list.get(before).filter(|table| &table.description().first_key[..] <= key);
            assert_eq!(
                run.table_for(key).map(|table| table.description().name),
                holds.map(|table| table.description().name)
            );
            assert_eq!(run.overlapping(key, key).len(), usize::from(holds.is_some()));
        }
        for (at, table) in list.iter().enumerate() {
            assert!(Arc::ptr_eq(&run[at], table));
        }
        assert!(run.get(list.len()).is_none());
    }
}

/// A table is in use while a version or a reader holds it, and no longer; its handle is shared
/// meanwhile.
#[test]
fn a_table_is_used_while_somebody_holds_it() {
    let (_world, versions) = versions();
    let mut state = state(2);
    let old = versions.build(&state, &Version::default(), &[]);
    let (name, reader) = (table(0, 3).name, Arc::clone(&old.levels(1).unwrap().level(3).unwrap()[0]));
    state.apply_edits(&[Edit::TableObsolete { name }], Origin::Snapshot).unwrap();
    let new = versions.build(&state, &old, &[]);
    assert_eq!(new.levels(1).unwrap().level(3).unwrap().len(), 1);
    drop(old);
    assert!(versions.is_used(name));
    drop(reader);
    assert!(!versions.is_used(name));
    assert_eq!(versions.handles.by_name.lock().len(), 2, "the other table's and the other keyspace's");
}
