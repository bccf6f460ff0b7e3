use std::collections::BTreeSet;

use parking_lot::Mutex;
use tombolo_env::simulated::World;
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber};
use tombolo_format::manifest::{Edit, KeyspaceOptions, TableName};
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{Epoch, Incarnation, ObjectStore, Request};

use super::*;
use crate::cache::BlockCache;
use crate::manifest::{Places, State, names};
use crate::table::{NewTable, TableOptions, TableWriter};
use crate::version::{Tables, Version, Versions};

const TABLES: u64 = 6;
const KEYS: u64 = 10;

/// A run of tables, of ten keys each, with gaps between them.
struct Fixture {
    world: World,
    tracer: Tracer,
    run: Arc<SortedRun>,
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

/// The first key of table `table`.
fn start(table: u64) -> u64 {
    100 * table + 50
}

impl Fixture {
    fn new() -> Fixture {
        let world = World::new(7);
        let env = world.process("run").env();
        let tracer = Tracer::new(&env);
        let inner = Arc::new(MemoryObjectStore::unnamed(&env));
        let objects: Arc<dyn ObjectStore> = Arc::new(TraceObjectStore::new(inner, tracer.clone()));
        let mut edits = vec![Edit::KeyspaceCreated {
            id: 1,
            name: "run".into(),
            stream: 0,
            options: KeyspaceOptions::default(),
        }];
        for table in 0..TABLES {
            let name = TableName { epoch: 0, random: table };
            let options = TableOptions { keyspace: 1, block_bytes: 64, ..TableOptions::default() };
            let object = names::table(Incarnation(1), name);
            let new = NewTable { name, object, identity: table, level: 2, options };
            let description = world.run_until(async {
                let mut writer = TableWriter::create(&*objects, Request::new(Purpose::Flush, Epoch(1)), new)
                    .await
                    .unwrap();
                for number in start(table)..start(table) + KEYS {
                    let trailer = Trailer::new(SequenceNumber(1), EntryKind::Put);
                    writer.add(InternalKey::new(&key(number), trailer), &number.to_le_bytes()).unwrap();
                }
                writer.finish().await.unwrap().unwrap()
            });
            edits.push(Edit::TableAdded(description));
        }
        let state = State::from_snapshot(1, Epoch(0), &edits).unwrap();
        let places = Arc::new(Mutex::new(Places::own(&objects, Incarnation(1))));
        let versions = Versions::new(Tables {
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
        });
        let version = versions.build(&state, &Version::default(), &[]);
        let run = Arc::clone(version.levels(1).unwrap().level(2).unwrap());
        tracer.reset();
        Fixture { world, tracer, run }
    }

    fn done(&self, cursor: &mut RunCursor, step: Result<Step>) -> Option<u64> {
        if step.unwrap() == Step::Blocked {
            self.world.run_until(cursor.load()).unwrap();
        }
        cursor.entry()?;
        Some(u64::from_le_bytes(cursor.value().try_into().unwrap()))
    }

    /// How many objects were read since the last time.
    fn touched(&self) -> usize {
        let names: BTreeSet<_> =
            self.tracer.events().into_iter().map(|event| event.name.to_string()).collect();
        self.tracer.reset();
        names.len()
    }
}

fn seek(cursor: &mut RunCursor, key: &[u8], backward: bool) -> Result<Step> {
    cursor.approach(key, Trailer::FIRST, backward)?;
    cursor.arrive()
}

#[test]
fn tables_outside_the_range_are_not_touched() {
    use Bound::{Excluded, Included, Unbounded};
    let last = |table| start(table) + KEYS - 1;
    let cases = [
        (Unbounded, Unbounded, 0..6),
        (Included(start(2)), Included(start(3)), 2..4),
        (Included(last(2)), Excluded(start(3)), 2..3),
        (Excluded(last(2)), Unbounded, 3..6),
        (Unbounded, Excluded(start(0)), 0..0),
        (Unbounded, Included(start(0)), 0..1),
        (Excluded(last(5)), Unbounded, 6..6),
        (Included(last(1) + 1), Included(start(2) - 1), 2..2),
        (Included(start(4)), Included(start(2)), 0..0),
    ];
    for (lower, upper, tables) in cases {
        let fixture = Fixture::new();
        let range = Arc::new(KeyRange { lower: lower.map(key), upper: upper.map(key) });
        let expected: Vec<_> = tables.clone().flat_map(|table| start(table)..start(table) + KEYS).collect();
        let Some(mut cursor) = RunCursor::new(&fixture.run, Some(&range), Purpose::Scan) else {
            assert!(expected.is_empty(), "{range:?}");
            continue;
        };
        let step = cursor.first();
        let mut found: Vec<_> = fixture.done(&mut cursor, step).into_iter().collect();
        while cursor.entry().is_some() {
            let step = cursor.next();
            found.extend(fixture.done(&mut cursor, step));
        }
        assert_eq!(found, expected, "{range:?}");
        let step = cursor.last();
        let mut found: Vec<_> = fixture.done(&mut cursor, step).into_iter().collect();
        while cursor.entry().is_some() {
            let step = cursor.prev();
            found.extend(fixture.done(&mut cursor, step));
        }
        found.reverse();
        assert_eq!(found, expected, "{range:?}");
        assert_eq!(fixture.touched() as u64, tables.end - tables.start, "{range:?}");
        assert!(tables.clone().all(|table| meets(&fixture.run[usize::try_from(table).unwrap()], &range)));
    }
}

#[test]
fn seeks_find_the_next_and_the_last_key_of_any_table() {
    let fixture = Fixture::new();
    let all: Vec<_> = (0..TABLES).flat_map(|table| start(table)..start(table) + KEYS).collect();
    let mut cursor = RunCursor::new(&fixture.run, None, Purpose::Scan).unwrap();
    for number in (0..start(TABLES)).step_by(3) {
        let at = all.partition_point(|found| *found < number);
        let step = seek(&mut cursor, &key(number), false);
        assert_eq!(fixture.done(&mut cursor, step), all.get(at).copied(), "{number}");
        let step = cursor.next();
        assert_eq!(fixture.done(&mut cursor, step), all.get(at + 1).copied(), "after {number}");
        let step = seek(&mut cursor, &key(number), true);
        let before = at.checked_sub(1);
        assert_eq!(fixture.done(&mut cursor, step), before.map(|at| all[at]), "{number}");
        let step = cursor.prev();
        assert_eq!(
            fixture.done(&mut cursor, step),
            before.and_then(|at| at.checked_sub(1)).map(|at| all[at]),
            "before {number}"
        );
    }
    fixture.touched();
    let step = seek(&mut cursor, &key(start(3)), false);
    fixture.done(&mut cursor, step);
    assert!(fixture.touched() <= 1, "a seek looks into one table");
}
