use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

use super::*;
use crate::{Db, Durability, Options};

/// As if so many more unlogged writes had been made and flushed.
fn pretend_unlogged(db: &Db, writes: u64) {
    let engine = db.engine();
    let mut commit = engine.stream.commit.lock();
    commit.last += writes;
    commit.unlogged = commit.last;
    engine.stream.visible.store(commit.last, Ordering::Release);
}

#[test]
fn any_number_of_unlogged_writes_may_lie_between_logged_ones() {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
    process
        .run(async move {
            let open = || Db::builder("mem://gap").env(env.clone()).stores(Arc::clone(&objects), Arc::clone(&log)).open();
            let db = open().await.unwrap();
            let keys = db.default_keyspace();
            keys.put(b"1", b"one").await.unwrap();
            pretend_unlogged(&db, (1 << 33) + 5);
            keys.put_with(b"2", b"unlogged", Durability::Unlogged).await.unwrap();
            keys.put(b"2", b"two").await.unwrap();
            keys.put(b"3", b"three").await.unwrap();
            let last = db.stats().last_sequence;
            drop((db, keys));
            let db = open().await.unwrap();
            let keys = db.default_keyspace();
            for (key, value) in [(b"1", "one"), (b"2", "two"), (b"3", "three")] {
                assert_eq!(keys.get(key).await.unwrap().unwrap(), value.as_bytes());
            }
            assert_eq!(db.stats().last_sequence, last, "no number is given out twice");
        })
        .unwrap();
}

#[test]
fn the_log_of_a_memtable_is_bounded_by_how_fast_it_is_replayed() {
    let options = Options::parse(["memory_bytes=17179869184"]).unwrap();
    let at_rate = |mebibytes: u64| log_bytes_max(&options, mebibytes << 20, Duration::from_secs(1)) >> 20;
    assert_eq!((at_rate(80), at_rate(800)), (10, 100), "an eighth of a second each");
    assert_eq!((at_rate(5), at_rate(1 << 20)), (8, 256), "within bounds");
    assert_eq!(log_bytes_max(&options, 1000, Duration::from_secs(1)), REPLAY_BYTES_PER_SECOND / 8, "too short to tell");
    assert_eq!(log_bytes_max(&options, 1 << 30, Duration::ZERO), REPLAY_BYTES_PER_SECOND / 8, "nor without a clock");
    let given = Options::parse(["memtable_bytes=67108864"]).unwrap();
    assert_eq!(log_bytes_max(&given, 0, Duration::ZERO), 4 * 67_108_864, "a memtable of a given size may be filled");
}

/// A database in a world of its own.
async fn open_alone(env: &tombolo_env::Env, options: &[&str]) -> Db {
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(env));
    let builder = Db::builder("mem://alone").env(env.clone()).options(Options::parse(options.iter().copied()).unwrap());
    builder.stores(objects, log).open().await.unwrap()
}

#[test]
fn a_memtable_whose_log_would_take_long_to_replay_is_flushed_before_it_is_full() {
    let world = World::new(2);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let db = open_alone(&env, &["memory_bytes=1073741824"]).await;
            db.engine().stream.log_bytes_max.store(100_000, Ordering::Relaxed);
            let keys = db.default_keyspace();
            for number in 0..2000u32 {
                keys.put_with(number.to_be_bytes(), [7; 200], Durability::Accepted).await.unwrap();
            }
            db.flush().await.unwrap();
            let flushes = db.stats().flushes;
            assert!((5..=7).contains(&flushes), "{flushes} flushes of 100,000 bytes of log each");
        })
        .unwrap();
}

#[test]
fn memtables_are_sealed_early_while_the_memory_budget_is_short() {
    let world = World::new(3);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let db = open_alone(&env, &["memory_bytes=16777216", "memtable_bytes=1048576"]).await;
            let keys = db.default_keyspace();
            let others = db.engine().budget().charge(crate::budget::Category::Pinned, 14 << 20);
            for number in 0..4000u32 {
                keys.put_with(number.to_be_bytes(), [7; 200], Durability::Accepted).await.unwrap();
            }
            drop(others);
            db.flush().await.unwrap();
            let flushes = db.stats().flushes;
            assert!((3..=6).contains(&flushes), "{flushes} flushes of a quarter of a memtable each");
        })
        .unwrap();
}
