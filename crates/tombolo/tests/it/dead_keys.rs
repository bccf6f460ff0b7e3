//! Keys that were deleted or have expired, many in a row: cursors go past them, and find every key
//! that lives. Against an ordered map, in a simulated world.

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo::{Cursor, Db, Durability, Keyspace, Options, Registry, Snapshot, TableFileBuilder, TakeOver};
use tombolo_env::simulated::{Process, World};

use crate::reader::{builder, following};

const KEYS: u64 = 400;
const LIFE: Duration = Duration::from_secs(600);

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:03}").into_bytes()
}

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The keys that live, and whether they end by themselves.
type Model = BTreeMap<Vec<u8>, bool>;

struct Run {
    world: World,
    process: Process,
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    /// Cursors that look from when they were opened.
    cursors: Vec<(Cursor, Model)>,
    files: u64,
}

impl Run {
    fn open(&mut self) -> &Db {
        (self.snapshots, self.cursors) = Default::default();
        drop(self.db.take());
        let options = Options::parse(["memory_bytes=2097152", "memtable_bytes=32768"]).unwrap();
        let builder = Db::builder("file:///db").env(self.process.env()).options(options);
        self.db.insert(builder.take_over(TakeOver::Always).open().wait().unwrap())
    }

    fn keys(&self) -> Keyspace {
        self.db.as_ref().unwrap().default_keyspace()
    }

    fn step(&mut self, random: &mut Random) {
        let keys = self.keys();
        let from = random.below(KEYS);
        let to = (from + 1 + random.below(120)).min(KEYS);
        match random.below(26) {
            0 => (from..to).for_each(|number| {
                keys.put(key(number), "value").wait().unwrap();
                self.model.insert(key(number), false);
            }),
            1 | 2 => {
                keys.put(key(from), "value").wait().unwrap();
                self.model.insert(key(from), false);
            }
            3..6 => (from..to).for_each(|number| {
                keys.delete(key(number)).wait().unwrap();
                self.model.remove(&key(number));
            }),
            6 => {
                keys.delete_range(key(from), key(to)).wait().unwrap();
                self.model.retain(|at, _| *at < key(from) || *at >= key(to));
            }
            7 => (from..to).for_each(|number| {
                keys.put_ttl(key(number), "value", LIFE).wait().unwrap();
                self.model.insert(key(number), true);
            }),
            8 => {
                let db = self.db.as_ref().unwrap();
                // Sometimes until it may be destroyed.
                let wait = LIFE * [1, 1, 1, 10][random.below(4) as usize];
                let until = db.time_ms() + wait.as_millis() as u64;
                while db.time_ms() < until {
                    self.world.run_for(Duration::from_secs(60));
                }
                self.model.retain(|_, ends| !*ends);
            }
            9 | 10 => self.pop(random.below(60)),
            11 => self.ingest(from),
            12 => self.db.as_ref().unwrap().flush().wait().unwrap(),
            13 if random.below(4) == 0 => self.db.as_ref().unwrap().compact().wait().unwrap(),
            // Nobody writes for a while.
            14 if random.below(4) == 0 => self.world.run_for(Duration::from_secs(10)),
            15 if random.below(8) == 0 => drop(self.open()),
            16 => {
                self.snapshots.truncate(1);
                self.snapshots.push((self.db.as_ref().unwrap().snapshot(), self.model.clone()));
            }
            17 => {
                self.cursors.truncate(1);
                self.cursors.push((keys.cursor::<&[u8]>(..), self.model.clone()));
            }
            18 | 19 if !self.snapshots.is_empty() => {
                let (snapshot, model) = &self.snapshots[0];
                check(&mut snapshot.cursor::<&[u8]>(&keys, ..), model, random);
            }
            20 | 21 if !self.cursors.is_empty() => {
                let (cursor, model) = &mut self.cursors[0];
                check(cursor, model, random);
            }
            _ => check(&mut keys.cursor::<&[u8]>(..), &self.model, random),
        }
    }

    /// As a queue does.
    fn pop(&mut self, times: u64) {
        let keys = self.keys();
        for _ in 0..times {
            let mut cursor = keys.cursor::<&[u8]>(..);
            let found = cursor.seek_to_first().unwrap().then(|| cursor.key().to_vec());
            assert_eq!(found.as_ref(), self.model.keys().next());
            let Some(first) = found else { return };
            keys.delete(&first).wait().unwrap();
            self.model.remove(&first);
        }
    }

    fn ingest(&mut self, number: u64) {
        self.files += 1;
        let place = std::path::PathBuf::from(format!("/outside/table-{}", self.files));
        let (env, registry) = (self.process.env(), Registry::with_defaults());
        let options = tombolo::KeyspaceOptions::default();
        let path = place.clone();
        let made = {
            let env = env.clone();
            env.clone().block_on(async move {
                let mut table = TableFileBuilder::create_with(env, registry, path, options).await?;
                table.put(key(number), "value").await?;
                table.finish().await
            })
        };
        made.unwrap();
        let db = self.db.as_ref().unwrap();
        db.default_keyspace().ingest([place]).wait().unwrap();
        self.model.insert(key(number), false);
    }
}

/// Seeks and steps both ways agree with the model.
fn check(cursor: &mut Cursor, model: &Model, random: &mut Random) {
    for _ in 0..4 {
        let from = key(random.below(KEYS + 1));
        let is_backward = random.below(2) == 0;
        let mut expected: Box<dyn Iterator<Item = &Vec<u8>>> = match (random.below(3), is_backward) {
            (0, false) => {
                cursor.seek_to_first().unwrap();
                Box::new(model.keys())
            }
            (0, true) => {
                cursor.seek_to_last().unwrap();
                Box::new(model.keys().rev())
            }
            (_, false) => {
                cursor.seek(&from).unwrap();
                Box::new(model.range(from..).map(|(key, _)| key))
            }
            (_, true) => {
                cursor.seek_for_prev(&from).unwrap();
                Box::new(model.range(..=from).rev().map(|(key, _)| key))
            }
        };
        for _ in 0..random.below(KEYS) {
            let expected = expected.next();
            assert_eq!(cursor.valid().then(|| cursor.key()), expected.map(|key| &key[..]));
            if expected.is_none() {
                break;
            }
            if is_backward { cursor.prev() } else { cursor.next() }.unwrap();
        }
    }
}

fn histories() {
    for seed in 1..=12 {
        let world = World::new(seed);
        let process = world.process("writer");
        let (model, snapshots, cursors) = Default::default();
        let mut run = Run { world, process, db: None, model, snapshots, cursors, files: 0 };
        run.open();
        let mut random = Random(seed);
        (0..150).for_each(|_| run.step(&mut random));
    }
}

#[test]
fn cursors_find_every_living_key_among_dead_ones() {
    histories();
}

/// Deletes many keys that are not there, each of which begins with these bytes.
async fn bury(keys: &Keyspace, first: &str) {
    for number in 0..40 {
        keys.delete(format!("{first}-{number:02}")).await.unwrap();
    }
}

async fn first_key(cursor: &mut Cursor, from: &str) -> Option<Vec<u8>> {
    cursor.seek_async(from).await.unwrap().then(|| cursor.key().to_vec())
}

fn what_a_range_delete_hides_a_snapshot_from_before_it_sees() {
    crate::stores::run(&[], |stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for first in ["a", "d"] {
            for number in 0..15 {
                keys.put(format!("{first}-{number:02}"), "value").await.unwrap();
            }
        }
        for key in ["b", "f"] {
            keys.put(key, "value").await.unwrap();
        }
        // What a range delete hides is passed at once where a table holds it.
        db.flush().await.unwrap();
        bury(&keys, "c").await;
        bury(&keys, "e").await;
        let snapshot = db.snapshot();
        keys.delete_range("a", "b").await.unwrap();
        keys.delete_range("d", "e").await.unwrap();
        let mut cursor = keys.cursor::<&[u8]>(..);
        assert_eq!(first_key(&mut cursor, "").await.unwrap(), b"b");
        assert!(cursor.next_async().await.unwrap());
        assert_eq!(cursor.key(), b"f");
        let mut cursor = snapshot.cursor::<&[u8]>(&keys, ..);
        assert_eq!(first_key(&mut cursor, "c").await.unwrap(), b"d-00");
    });
}

#[test]
fn a_run_over_what_a_range_delete_hides_is_not_for_a_snapshot_from_before_it() {
    what_a_range_delete_hides_a_snapshot_from_before_it_sees();
}

fn what_has_expired_and_gone_a_cursor_from_before_sees() {
    crate::stores::run(&[], |stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        keys.put_ttl("d", "value", LIFE).await.unwrap();
        db.flush().await.unwrap();
        bury(&keys, "c").await;
        bury(&keys, "e").await;
        let mut before = keys.cursor::<&[u8]>(..);
        let from = db.time_ms();
        while db.time_ms() < from + 3 * 3_600_000 {
            stores.env.sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(stores.tables().await.len(), 1, "the table has gone, but for the cursor");
        assert_eq!(first_key(&mut keys.cursor::<&[u8]>(..), "").await, None);
        assert_eq!(first_key(&mut before, "").await.unwrap(), b"d");
    });
}

#[test]
fn a_run_in_which_values_have_expired_and_gone_is_not_for_a_cursor_from_before() {
    what_has_expired_and_gone_a_cursor_from_before_sees();
}

fn readers_find_what_came_late() {
    crate::reader::run(|env| async move {
        let db = builder(&env, "file:///db").open().await.unwrap();
        let reader = builder(&env, "file:///db").open_reader(following()).await.unwrap();
        let (keys, shown) = (db.default_keyspace(), reader.default_keyspace());
        // Deletes under which nothing lies would go with the flush.
        for number in 0..40 {
            keys.put(format!("c-{number:02}"), "value").await.unwrap();
            keys.put(format!("e-{number:02}"), "value").await.unwrap();
        }
        db.flush().await.unwrap();
        let held = db.snapshot();
        bury(&keys, "c").await;
        keys.put_with("d", "value", Durability::Unlogged).await.unwrap();
        bury(&keys, "e").await;
        for _ in 0..2 {
            reader.refresh().await.unwrap();
            assert_eq!(first_key(&mut shown.cursor::<&[u8]>(..), "").await, None);
        }
        // Its number is no greater than those that the reader has looked from.
        db.flush().await.unwrap();
        reader.refresh().await.unwrap();
        let mut cursor = shown.cursor::<&[u8]>(..);
        assert_eq!(first_key(&mut cursor, "").await.unwrap(), b"d");
        assert!(!cursor.next_async().await.unwrap());
        assert!(cursor.prev_async().await.unwrap());
        assert_eq!(cursor.key(), b"d");
        // What it has walked over ends where something is put.
        keys.put("c-20", "value").await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(first_key(&mut shown.cursor::<&[u8]>(..), "").await.unwrap(), b"c-20");
        // A successor's numbers go on.
        drop((held, db));
        let db = builder(&env, "file:///db").take_over(TakeOver::Always).open().await.unwrap();
        let keys = db.default_keyspace();
        keys.put("c-10", "value").await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(first_key(&mut shown.cursor::<&[u8]>(..), "").await.unwrap(), b"c-10");
    });
}

#[test]
fn readers_walk_over_dead_keys_and_find_what_came_late() {
    readers_find_what_came_late();
}

#[test]
fn a_flush_that_leaves_nothing_of_a_keyspace_is_known_to_readers_and_successors() {
    a_flush_to_nothing_is_known();
}

fn a_flush_to_nothing_is_known() {
    crate::reader::run(|env| async move {
        let db = builder(&env, "file:///db").open().await.unwrap();
        let reader = builder(&env, "file:///db").open_reader(following()).await.unwrap();
        let (keys, shown) = (db.default_keyspace(), reader.default_keyspace());
        keys.put("k", "value").await.unwrap();
        reader.refresh().await.unwrap();
        assert!(shown.get("k").await.unwrap().is_some());
        keys.delete_with("k", Durability::Unlogged).await.unwrap();
        db.flush().await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(shown.get("k").await.unwrap(), None);
        drop(db);
        let db = builder(&env, "file:///db").take_over(TakeOver::Always).open().await.unwrap();
        assert_eq!(db.default_keyspace().get("k").await.unwrap(), None);
    });
}

#[cfg(feature = "mutants")]
#[test]
fn dead_keys_that_are_taken_wrongly_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    for mutant in [Mutant::DeadRunKeptOverPut, Mutant::DeadRunKeptOverIngest, Mutant::DeadRunHidesFromOlder] {
        notices(mutant, histories);
    }
    notices(Mutant::DeadRunOfAnotherView, readers_find_what_came_late);
    notices(Mutant::DeadRunForgetsWhatHides, what_a_range_delete_hides_a_snapshot_from_before_it_sees);
    notices(Mutant::DeadRunByAnotherTime, what_has_expired_and_gone_a_cursor_from_before_sees);
    notices(Mutant::FlushToNothingUnsaid, a_flush_to_nothing_is_known);
}

#[test]
fn an_idle_database_cleans_deletes_out_of_its_tables() {
    crate::stores::run(&["memory_bytes=2097152", "memtable_bytes=65536"], |stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for number in 0..200 {
            keys.put(key(number), "value").await.unwrap();
        }
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        let snapshot = db.snapshot();
        for number in 0..200 {
            keys.delete(key(number)).await.unwrap();
        }
        db.flush().await.unwrap();
        assert_eq!(stores.tables().await.len(), 2, "one of puts, and one of deletes");
        stores.env.sleep(Duration::from_secs(10)).await;
        assert_eq!(snapshot.get(&keys, key(7)).await.unwrap().unwrap(), b"value");
        drop(snapshot);
        stores.env.sleep(Duration::from_secs(10)).await;
        assert_eq!(stores.tables().await.len(), 0, "nobody sees anything of them");
    });
}
