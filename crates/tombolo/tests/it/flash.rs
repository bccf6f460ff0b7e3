//! The flash cache under a database whose store is far away: requests with it and without, after a
//! restart, on a disk that rots.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tombolo::{Db, Env, FlashCache, FlashCacheOptions, MemoryBudget, Options, PropertyValue, Registry};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{LogStore, ObjectStore, Purpose, Uri};

const KEYS: u64 = 20_000;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// 400 bytes that do not compress.
fn value(number: u64) -> Vec<u8> {
    let mut state = number + 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(400).collect()
}

/// Stores that outlive the processes of a test, with a count of requests.
#[derive(Clone)]
struct Far {
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
    tracer: Tracer,
}

impl Far {
    fn new(env: &Env) -> Far {
        let tracer = Tracer::with_sink(env, 0, None);
        tracer.set_on(true);
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
        let objects = Arc::new(TraceObjectStore::new(objects, tracer.clone()));
        Far { objects, log: Arc::new(MemoryLogStore::unnamed(env)), tracer }
    }

    /// Requests that users' reads made so far.
    fn requests(&self) -> u64 {
        self.tracer
            .counters()
            .iter()
            .filter(|((purpose, _), _)| *purpose == Purpose::Get)
            .map(|(_, counters)| counters.requests)
            .sum()
    }

    async fn open(&self, env: &Env, settings: &[&str]) -> Db {
        let options = Options::parse(["memory_bytes=2097152"].iter().chain(settings).copied()).unwrap();
        let stores = (Arc::clone(&self.objects), Arc::clone(&self.log));
        Db::builder("mem://far")
            .env(env.clone())
            .stores(stores.0, stores.1)
            .options(options)
            .open()
            .await
            .unwrap()
    }

    /// Fills the database, four times its memory.
    async fn filled(env: &Env) -> Far {
        let far = Far::new(env);
        let db = far.open(env, &[]).await;
        // Of one size, however much there is when each table is written.
        db.default_keyspace().set_options([("block_bytes", "8192")]).await.unwrap();
        for number in 0..KEYS {
            db.default_keyspace().put(key(number), value(number)).await.unwrap();
        }
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        db.close().await.unwrap();
        far
    }

    /// Reads at random, few keys often, and compares; how many requests that took.
    async fn read(&self, db: &Db, seed: u64, count: u64) -> u64 {
        let before = self.requests();
        let mut state = seed;
        for _ in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
            let number = (KEYS as f64 * uniform.powi(3)) as u64;
            let found = db.default_keyspace().get(key(number)).await.unwrap();
            assert_eq!(found.as_deref(), Some(&value(number)[..]), "key {number}");
        }
        self.requests() - before
    }
}

fn property(db: &Db, name: &str) -> u64 {
    db.property(name).unwrap().value.number().unwrap()
}

const FLASH: [&str; 2] = ["flash_cache_directory=/flash", "flash_cache_bytes=16777216"];

fn simulate<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Env) -> F) -> World {
    let world = World::new(1);
    let process = world.process("test");
    process.run(test(process.env())).unwrap();
    world
}

#[test]
fn reads_of_more_than_memory_holds_ask_the_store_a_third_as_often_and_less_after_a_restart() {
    simulate(|env| async move {
        let far = Far::filled(&env).await;
        let db = far.open(&env, &[]).await;
        far.read(&db, 1, 20_000).await;
        let without = far.read(&db, 2, 10_000).await;
        db.close().await.unwrap();
        let db = far.open(&env, &FLASH).await;
        far.read(&db, 1, 20_000).await;
        let with = far.read(&db, 2, 10_000).await;
        assert!(with * 100 <= without * 35, "{with} requests with a flash cache, {without} without");
        assert_eq!(property(&db, "flash-damaged") + property(&db, "flash-errors"), 0);
        assert!(property(&db, "flash-bytes") <= 16 << 20 && property(&db, "memory-flash") > 0);
        db.close().await.unwrap();

        let db = far.open(&env, &FLASH).await;
        // What was left is found by a task of the background.
        env.sleep(std::time::Duration::from_secs(1)).await;
        let restarted = far.read(&db, 3, 10_000).await;
        assert!(restarted * 100 <= without * 35, "{restarted} requests after a restart, {without} without");
        db.close().await.unwrap();
    });
}

#[test]
fn scans_of_everything_do_not_drive_out_what_is_read() {
    simulate(|env| async move {
        let far = Far::filled(&env).await;
        // Half of the data.
        let db = far.open(&env, &["flash_cache_directory=/flash", "flash_cache_bytes=4194304"]).await;
        // More than the block cache holds, and less than the flash cache does.
        let hot = async |seed: u64| {
            let before = far.requests();
            for number in 0..6000 {
                assert!(
                    db.default_keyspace().get(key((number * 7919 + seed) % 6000)).await.unwrap().is_some()
                );
            }
            far.requests() - before
        };
        for seed in 1..4 {
            hot(seed).await;
        }
        let insertions = property(&db, "flash-insertions");
        let before = hot(4).await;
        for _ in 0..3 {
            let mut cursor = db.default_keyspace().cursor::<&[u8]>(..);
            let mut entries = 0;
            let mut valid = cursor.seek_to_first_async().await.unwrap();
            while valid {
                entries += 1;
                valid = cursor.next_async().await.unwrap();
            }
            assert_eq!(entries, KEYS);
        }
        let scanned = property(&db, "flash-insertions") - insertions;
        let after = hot(5).await;
        assert!(
            after <= before + before / 4 + 50,
            "{after} requests after scans, {before} before; {scanned} pieces entered by scans"
        );
        db.close().await.unwrap();
    });
}

#[test]
fn databases_of_a_process_share_one_and_a_directory_in_use_is_done_without() {
    simulate(|env| async move {
        let (one, other) = (Far::filled(&env).await, Far::filled(&env).await);
        let budget = MemoryBudget::new(8 << 20).unwrap();
        let flash = FlashCache::open(&env, FlashCacheOptions::new("/flash", 32 << 20), &budget).unwrap();
        let open = async |far: &Far| {
            let stores = (Arc::clone(&far.objects), Arc::clone(&far.log));
            let options = Options::parse(["memory_bytes=2097152"]).unwrap();
            let builder =
                Db::builder("mem://far").env(env.clone()).stores(stores.0, stores.1).options(options);
            builder.memory_budget(&budget).flash_cache(&flash).open().await.unwrap()
        };
        let (first, second) = (open(&one).await, open(&other).await);
        for _ in 0..2 {
            one.read(&first, 1, 5000).await;
            other.read(&second, 1, 5000).await;
        }
        let third = Far::filled(&env).await;
        let without = third.open(&env, &FLASH).await;
        let trouble = without.property("flash-trouble").unwrap().value;
        assert!(
            matches!(&trouble, PropertyValue::Text(text) if text.contains("/flash") && text.contains("in \
                use")),
            "{trouble}"
        );
        third.read(&without, 1, 1000).await;
        assert!(flash.stats().hits > 100, "{:?}", flash.stats());
        // A database that goes leaves it to the others.
        first.close().await.unwrap();
        let hits = flash.stats().hits;
        other.read(&second, 2, 5000).await;
        assert!(flash.stats().hits > hits);
        flash.close();
        other.read(&second, 3, 1000).await;
        assert_eq!(flash.stats().trouble, "closed");
        let error = second.set_options([("flash_cache_bytes", "8388608")]).unwrap_err();
        assert!(error.to_string().contains("flash_cache_bytes"), "{error}");
    });
}

#[test]
fn a_disk_that_rots_costs_requests_and_no_answer() {
    let world = World::new(2);
    let process = world.process("test");
    let env = process.env();
    let host = world.host(0);
    let files = || -> Vec<(PathBuf, u64)> {
        host.all_files()
            .into_iter()
            .filter(|(path, bytes)| path.extension().is_some_and(|end| end == "region") && *bytes > 0)
            .collect()
    };
    process.env().block_on(async {
        let far = Far::filled(&env).await;
        let db = far.open(&env, &FLASH).await;
        far.read(&db, 1, 20_000).await;
        for round in 0..8u64 {
            for (path, bytes) in files() {
                for number in 0..50u64 {
                    let at = (round * 50 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) % bytes;
                    host.flip_bit(&path, at, (number % 8) as u8).unwrap();
                }
            }
            far.read(&db, round, 2000).await;
        }
        let damaged = property(&db, "flash-damaged");
        assert!(damaged > 50, "{damaged}");
        assert!(property(&db, "flash-hits") > 1000);
        db.close().await.unwrap();
        // The indexes rot as well, and are read at the next opening.
        let db = far.open(&env, &FLASH).await;
        env.sleep(std::time::Duration::from_secs(1)).await;
        far.read(&db, 50, 5000).await;
        db.close().await.unwrap();
    });
}

#[test]
fn what_was_read_often_is_near_after_a_compaction_too() {
    simulate(|env| async move {
        let far = Far::filled(&env).await;
        let db = far.open(&env, &FLASH).await;
        let hot = async || {
            let before = far.requests();
            for number in 0..6000 {
                assert!(db.default_keyspace().get(key(number * 7919 % 6000)).await.unwrap().is_some());
            }
            far.requests() - before
        };
        let cold = hot().await;
        for _ in 0..3 {
            hot().await;
        }
        // All tables are written anew.
        for number in (0..KEYS).step_by(100) {
            db.default_keyspace().put(key(number), value(number)).await.unwrap();
        }
        db.flush().await.unwrap();
        let insertions = property(&db, "flash-insertions");
        db.compact().await.unwrap();
        env.sleep(std::time::Duration::from_secs(1)).await;
        let entered = property(&db, "flash-insertions") - insertions;
        let after = hot().await;
        assert!(
            after * 10 < cold,
            "{after} requests after a compaction, {cold} at first; {entered} pieces entered"
        );
        // The rest of the data is twice as much, and did not enter.
        assert!(entered * 8000 < KEYS * 400 / 2, "{entered} pieces entered");
        db.close().await.unwrap();
    });
}

/// Where the process that is killed has its database.
const PLACE: &str = "TOMBOLO_FLASH_TEST_PLACE";

/// The process of the test below, which kills it: reads and compares, and says so after every
/// thousand reads. By itself it has no place to read from.
#[test]
fn a_process_that_reads_until_it_is_killed() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let env = Env::real();
    let (registry, uri) = (Registry::with_defaults(), Uri::parse(&format!("file://{place}/db")).unwrap());
    let plain = registry.open_object_store(&env, &uri).unwrap();
    let log = registry.open_log_store(&env, &uri, None, &plain).unwrap();
    // Behind it the page cache of the store's own disk is not seen.
    let slow =
        Throttle { latency: Latency::fixed(std::time::Duration::from_micros(100)), ..Throttle::default() };
    let objects = Arc::new(ThrottleObjectStore::new(&env, plain, slow));
    let flash = format!("flash_cache_directory={place}/flash");
    let options = Options::parse(["memory_bytes=2097152", &flash, "flash_cache_bytes=4194304"]).unwrap();
    let db =
        Db::builder(uri.to_string()).env(env).stores(objects, log).options(options).open().wait().unwrap();
    let keys = db.default_keyspace();
    if keys.get(key(KEYS - 1)).wait().unwrap().is_none() {
        for number in 0..KEYS {
            keys.put_with(key(number), value(number), tombolo::Durability::Accepted).wait().unwrap();
        }
        db.flush().wait().unwrap();
        db.compact().wait().unwrap();
    }
    let mut state = 7u64;
    loop {
        for _ in 0..1000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (state >> 33) % (KEYS / 2);
            assert_eq!(
                keys.get(key(number)).wait().unwrap().as_deref(),
                Some(&value(number)[..]),
                "key {number}"
            );
        }
        assert_eq!(db.property("flash-trouble").unwrap().value.to_string(), "");
        println!(
            "\nread {} {} {}",
            property(&db, "flash-pieces"),
            property(&db, "flash-hits"),
            property(&db, "flash-damaged")
        );
    }
}

#[test]
fn a_process_that_was_killed_leaves_a_cache_that_is_warm_and_right() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..if crate::is_deep() { 4 } else { 2 } {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["flash::a_process_that_reads_until_it_is_killed", "--exact", "--nocapture"])
            .env(PLACE, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(std::io::Result::ok);
        let mut said = lines.filter_map(|line| line.strip_prefix("read ").map(str::to_owned));
        let numbers = |line: Option<String>| -> Vec<u64> {
            line.expect("it reads until it is killed")
                .split(' ')
                .map(|number| number.parse().unwrap())
                .collect()
        };
        let first = numbers(said.next());
        if round > 0 {
            assert!(
                first[0] > 50 && first[1] > 50,
                "round {round}: pieces and hits after a thousand reads: {first:?}"
            );
        }
        let last = (0..10).map(|_| numbers(said.next())).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // The kernel lives: whatever was handed to it is there.
        assert_eq!(last[2], 0, "damaged pieces in round {round}");
    }
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn rules_taken_out_are_noticed() {
        notices(Mutant::FlashIgnoresHeat, super::what_was_read_often_is_near_after_a_compaction_too);
    }
}
