//! Logs as objects of a store that is far away, in virtual time: how long a takeover takes, and how
//! far behind a reader is.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Builder, Db, Env, Instant, Options, ReaderOptions, TakeOver};
use tombolo_env::TaskClass;
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use tombolo_storage::{LogStore, ObjectStore};

/// What each request takes.
const LATENCY: Duration = Duration::from_millis(25);

fn far(env: &Env, objects: &Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    let throttle =
        Throttle { latency: Latency { p50: LATENCY, ..Latency::default() }, ..Throttle::default() };
    Arc::new(ThrottleObjectStore::new(env, Arc::clone(objects), throttle))
}

fn builder(env: &Env, objects: &Arc<dyn ObjectStore>, options: &[&str]) -> Builder {
    let log: Arc<dyn LogStore> = Arc::new(ObjectLogStore::new(env, Arc::clone(objects), true));
    Db::builder("mem://x")
        .env(env.clone())
        .stores(Arc::clone(objects), log)
        .options(Options::parse(options.iter().copied()).unwrap())
}

/// With a request at a time for each object, 328 of them took more than eight seconds.
#[test]
fn a_takeover_of_32_mb_of_log_takes_a_second_at_most() {
    const OBJECTS: u64 = 328;
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let work = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        for memory in ["memory_bytes=268435456", "memory_bytes=201326592"] {
            let options = [memory, "memtable_bytes=50331648", "automatic_compaction=false"];
            let writer = builder(&env, &objects, &options).open().await.unwrap();
            for number in 0..OBJECTS {
                writer.default_keyspace().put(number.to_be_bytes(), [number as u8; 100_000]).await.unwrap();
            }
            let began = env.now();
            let successor = builder(&env, &far(&env, &objects), &options).take_over(TakeOver::Always);
            let db = successor.open().await.unwrap();
            let took = env.now().since(began);
            assert!(took <= LATENCY * 40, "{took:?} with {memory}");
            for number in 0..OBJECTS {
                assert_eq!(
                    db.default_keyspace().get(number.to_be_bytes()).await.unwrap().unwrap(),
                    [number as u8; 100_000]
                );
            }
            assert!(db.stats().replayed_bytes >= OBJECTS * 100_000, "{}", db.stats().replayed_bytes);
            drop(writer);
            db.close().await.unwrap();
        }
    };
    process.run(work).unwrap();
}

/// Rounds that read one object after the other take longer than the lag allows, and each longer
/// than the one before.
#[test]
fn a_reader_keeps_its_lag_beside_a_writer_of_4_mb_a_second() {
    const LAG: Duration = Duration::from_secs(1);
    let world = World::new(2);
    let (writing, reading) = (world.process("writer"), world.process("reader"));
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&world.process("server").env()));
    let acknowledged: Arc<Mutex<Vec<(Instant, u64)>>> = Arc::default();
    let options = ["memory_bytes=67108864", "memtable_bytes=4194304"];
    let (env, told, store) = (writing.env(), Arc::clone(&acknowledged), far(&writing.env(), &objects));
    let write = async move {
        let db = builder(&env, &store, &options).open().await.unwrap();
        let keys = db.default_keyspace();
        for number in 0u64.. {
            let mut value = vec![7; 100_000];
            value[..8].copy_from_slice(&number.to_be_bytes());
            let put = keys.put(b"n", value);
            let (told, at) = (Arc::clone(&told), env.clone());
            let wait = async move {
                put.await.unwrap();
                told.lock().push((at.now(), number));
            };
            env.spawn(TaskClass::Foreground, "wait", wait).detach();
            env.sleep(LATENCY).await;
        }
    };
    writing.spawn(TaskClass::Foreground, "write", write).detach();
    world.run_for(Duration::from_secs(1));
    let (env, store) = (reading.env(), far(&reading.env(), &objects));
    let read = async move {
        let reader =
            ReaderOptions { lag: LAG, lag_max: Duration::from_secs(10), lease: Duration::from_secs(60) };
        let reader = builder(&env, &store, &options).open_reader(reader).await.unwrap();
        let mut longest = Duration::ZERO;
        for _ in 0..80 {
            env.sleep(Duration::from_millis(100)).await;
            let asked = env.now();
            let found = reader.default_keyspace().get(b"n").await.unwrap().unwrap();
            let found = u64::from_be_bytes(*found.first_chunk().unwrap());
            let first_missed = acknowledged.lock().iter().find(|(_, number)| *number > found).copied();
            longest = longest.max(first_missed.map_or(Duration::ZERO, |(at, _)| asked.since(at)));
        }
        let written = acknowledged.lock().len();
        assert!(written > 300, "{written} writes");
        assert!(longest <= LAG && longest > Duration::ZERO, "the reader was {longest:?} behind");
        reader.close().await.unwrap();
    };
    reading.run(read).unwrap();
}

/// A write is durable with its own append, whenever it comes: no timer gathers writes, and a log of
/// objects makes one request for each. (Others flush their log every 100 ms.)
#[test]
fn a_durable_write_waits_for_its_append_and_for_no_tick() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let work = async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let throttle = Throttle { latency: Latency::fixed(LATENCY), ..Throttle::default() };
        let far: Arc<dyn ObjectStore> = Arc::new(ThrottleObjectStore::new(&env, objects, throttle));
        let far = builder(&env, &far, &["memory_bytes=4194304"]).open().await.unwrap();
        let near = Db::builder("file:///near").env(env.clone()).open().await.unwrap();
        for (db, most) in [(&far, LATENCY * 2), (&near, Duration::from_millis(20))] {
            let keys = db.default_keyspace();
            for number in 0..30u64 {
                // At no multiple of anything.
                env.sleep(Duration::from_micros(1 + number * 3_701)).await;
                let began = env.now();
                keys.put(number.to_be_bytes(), b"value").await.unwrap();
                let took = env.now().since(began);
                assert!(took <= most, "write {number} took {took:?}");
            }
        }
    };
    process.run(work).unwrap();
}
