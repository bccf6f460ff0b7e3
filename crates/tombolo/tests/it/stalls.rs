//! Writers are slowed smoothly while background work falls behind, never for ever, and not for what
//! nobody works at. In virtual time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Compression, Db, Durability, Env, ErrorKind, Event, Keyspace, KeyspaceOptions, Listener, Options,
    StallReason,
};
use tombolo_env::TaskClass;
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore, Purpose};

const VALUE_BYTES: u64 = 1000;

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Event>>);

impl Listener for Heard {
    fn event(&self, event: &Event) {
        self.0.lock().push(event.clone());
    }
}

struct Stores {
    env: Env,
    plan: FaultPlan,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
    heard: Arc<Heard>,
}

impl Stores {
    /// A database of four memtables of 256 KiB, and a keyspace whose tables are as large as the
    /// data that is written.
    async fn open(&self, options: &[&str]) -> (Db, Keyspace) {
        let all =
            ["memory_bytes=4194304", "memtable_bytes=262144"].into_iter().chain(options.iter().copied());
        let builder = Db::builder("mem://stalls").env(self.env.clone()).options(Options::parse(all).unwrap());
        let builder = builder.listener(Arc::clone(&self.heard) as Arc<dyn Listener>);
        let db = builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).open().await.unwrap();
        let plain = KeyspaceOptions { compression: Compression::None, ..KeyspaceOptions::default() };
        let keys = db.create_keyspace("plain", plain).await.unwrap();
        (db, keys)
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let plan = FaultPlan::scripted();
    let objects =
        Arc::new(FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan.clone()));
    let log = Arc::new(MemoryLogStore::unnamed(&env));
    process.run(test(Stores { env, plan, objects, log, heard: Arc::default() })).unwrap();
}

/// Puts `count` keys in an order that looks random; how long each put took.
async fn load(env: &Env, keys: &Keyspace, writer: u64, count: u64) -> Vec<Duration> {
    let mut took = Vec::new();
    for number in 0..count {
        let began = env.now();
        let key = format!("{:08}-{writer}", number * 7919 % count);
        keys.put_with(key, [7; VALUE_BYTES as usize], Durability::Accepted).await.unwrap();
        took.push(env.now().since(began));
    }
    took
}

/// Makes so many runs of level 0.
async fn make_runs(env: &Env, db: &Db, keys: &Keyspace, count: u64) {
    for writer in 0..count {
        load(env, keys, writer, 10).await;
        db.flush().await.unwrap();
    }
}

fn runs(db: &Db) -> u64 {
    db.property("runs-max").unwrap().value.number().unwrap()
}

fn longest(took: &[Duration]) -> Duration {
    took.iter().copied().max().unwrap_or_default()
}

/// The most writes that were seen to stand in line since the rate of flushes is known, until the
/// database is dropped.
fn watch_line(env: &Env, db: &Db) -> (Arc<Mutex<u64>>, Arc<Mutex<bool>>) {
    let (most, stop) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(false)));
    let (seen, stopped, world, db) = (Arc::clone(&most), Arc::clone(&stop), env.clone(), db.clone());
    let watch = async move {
        while !*stopped.lock() {
            if db.stats().flushes >= 8 {
                let waiting = db.property("writes-waiting").unwrap().value.number().unwrap();
                let mut seen = seen.lock();
                *seen = waiting.max(*seen);
            }
            world.sleep(Duration::from_millis(10)).await;
        }
    };
    env.spawn(TaskClass::Foreground, "watch", watch).detach();
    (most, stop)
}

/// However many writers there are, all together go as fast as flushes do, in small steps, and never
/// stand still.
#[test]
fn writers_go_as_fast_as_flushes() {
    for writers in [1, 8] {
        run(move |stores| async move {
            let (db, keys) =
                stores.open(&["automatic_compaction=false", "background_bytes_per_second_max=2000000"]).await;
            let share = 16_000 / writers;
            let began = stores.env.now();
            let (in_line, stop) = watch_line(&stores.env, &db);
            let spawn = |writer| {
                let (env, keys) = (stores.env.clone(), keys.clone());
                let took = Arc::new(Mutex::new(Vec::new()));
                let result = Arc::clone(&took);
                let task = stores.env.spawn(TaskClass::Foreground, "writer", async move {
                    *result.lock() = load(&env, &keys, writer, share).await;
                });
                (task, took)
            };
            let mut most = Duration::ZERO;
            for (task, took) in (0..writers).map(spawn).collect::<Vec<_>>() {
                task.await;
                // The first two megabytes come before any flush has ended, and so before its rate
                // is known.
                most = most.max(longest(&took.lock()[2000 / writers as usize..]));
            }
            let seconds = stores.env.now().since(began).as_secs_f64();
            let rate = (share * writers * VALUE_BYTES) as f64 / seconds;
            assert!((1_700_000.0..2_300_000.0).contains(&rate), "{writers} writers: {rate} bytes per second");
            // A memtable takes 131 ms to flush: a writer that stands in line for one waits about
            // that long.
            let bound = Duration::from_millis(15 * writers + 15);
            assert!(most < bound, "{writers} writers: one waited {most:?}");
            *stop.lock() = true;
            // It is their delays that keep them at the rate: none comes so far that memory is full.
            assert_eq!(*in_line.lock(), 0, "{writers} writers: so many stood in line");
            assert!(db.stats().write_delay_nanos > 1_000_000_000);
        });
    }
}

/// Level 0 comes to rest before its runs slow writers most.
#[test]
fn writers_go_as_fast_as_compaction() {
    run(|stores| async move {
        let (db, keys) = stores.open(&["background_bytes_per_second_max=3000000"]).await;
        let (mut most, mut runs_most) = (Duration::ZERO, 0);
        for writer in 0..24 {
            most = most.max(longest(&load(&stores.env, &keys, writer, 1000).await));
            runs_most = runs_most.max(runs(&db));
        }
        assert!(runs_most <= 36, "{runs_most} runs");
        // No delay is as long as 0.3 s. Those that waited longest found no room, and stood in line
        // for a flush beside a compaction, which have one rate: 0.7 to 1.05 s, by the order of
        // tasks.
        assert!(most < Duration::from_millis(1200), "one waited {most:?}");
        let stats = db.stats();
        assert!(stats.compaction_bytes_pending > 0, "{stats:?}");
        stores.env.sleep(Duration::from_secs(120)).await;
        let stats = db.stats();
        assert_eq!(
            (stats.write_stall, stats.write_bytes_per_second_max, stats.compaction_bytes_pending),
            (None, 0, 0)
        );
    });
}

/// A bulk load without compaction goes at full speed however many runs it leaves.
#[test]
fn runs_slow_nobody_while_compaction_is_off() {
    run(|stores| async move {
        let (db, keys) = stores.open(&["automatic_compaction=false"]).await;
        make_runs(&stores.env, &db, &keys, 50).await;
        assert_eq!(runs(&db), 50);
        let before = db.stats();
        load(&stores.env, &keys, 0, 200).await;
        let stats = db.stats();
        assert_eq!((stats.write_stall, stats.write_delay_nanos), (None, before.write_delay_nanos));
        // They do once it is on, until it has done its work.
        db.set_options([("background_bytes_per_second_max", "50000"), ("automatic_compaction", "true")])
            .unwrap();
        assert_eq!(db.stats().write_stall, Some(StallReason::Compaction));
        assert!(
            db.stats().write_bytes_per_second_max > 0
                && db.property("write-stall").unwrap().value.to_string().contains("level 0")
        );
        load(&stores.env, &keys, 0, 100).await;
        assert!(db.stats().write_delay_nanos > before.write_delay_nanos);
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(db.stats().write_stall.is_none() && runs(&db) < 4, "{} runs", runs(&db));
        let heard: Vec<_> = stores
            .heard
            .0
            .lock()
            .iter()
            .filter_map(|event| match event {
                Event::StallBegan { reason } => Some(Some(*reason)),
                Event::StallEnded => Some(None),
                _ => None,
            })
            .collect();
        assert_eq!(heard, [Some(StallReason::Compaction), None], "though nobody wrote when it ended");
        let begun = stores
            .heard
            .0
            .lock()
            .iter()
            .filter(|event| matches!(event, Event::CompactionBegan { bytes: 1.., .. }))
            .count();
        assert!(begun > 0);
        assert!(stores.heard.0.lock().iter().any(|event| matches!(event, Event::FlushBegan { bytes: 1.. })));
    });
}

/// A store that refuses what compaction writes, for good: writers go on at full speed.
#[test]
fn runs_slow_nobody_while_compaction_fails() {
    run(|stores| async move {
        let (db, keys) = stores.open(&[]).await;
        let refused = |asked: &Asked<'_>| asked.purpose == Purpose::Compaction;
        stores.plan.inject(Rule::new(refused, Fault::Error(ErrorKind::OutOfSpace)));
        make_runs(&stores.env, &db, &keys, 40).await;
        assert!(runs(&db) >= 40 && db.stats().background_error.is_some());
        let before = db.stats();
        load(&stores.env, &keys, 0, 200).await;
        assert_eq!((db.stats().write_stall, db.stats().write_delay_nanos), (None, before.write_delay_nanos));
        stores.plan.clear();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(runs(&db) < 4);
    });
}

/// A memtable that was flushed and that a cursor still looks at is not one that waits.
#[test]
fn memtables_that_readers_keep_slow_nobody() {
    run(|stores| async move {
        let (db, keys) = stores.open(&["automatic_compaction=false"]).await;
        let mut cursors = Vec::new();
        for writer in 0..6 {
            load(&stores.env, &keys, writer, 100).await;
            let mut scan = keys.scan::<&[u8]>(..);
            scan.next_async().await.unwrap();
            cursors.push(scan);
            db.flush().await.unwrap();
        }
        assert!(db.stats().reader_memtable_bytes > 400_000, "{:?}", db.stats());
        load(&stores.env, &keys, 9, 100).await;
        assert_eq!((db.stats().write_stall, db.stats().write_delay_nanos), (None, 0));
    });
}

/// Deletes that a snapshot held back at the bottom go when it closes, though nothing else happens.
#[test]
fn closing_a_snapshot_lets_its_deletes_go() {
    run(|stores| async move {
        let (db, keys) = stores.open(&[]).await;
        load(&stores.env, &keys, 0, 500).await;
        let (first, second) = (db.snapshot(), db.snapshot());
        for number in 0..500 {
            keys.delete_with(format!("{number:08}-0"), Durability::Accepted).await.unwrap();
        }
        let third = db.snapshot();
        db.compact().await.unwrap();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(db.stats().table_bytes > 500 * VALUE_BYTES);
        drop((first, third));
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(db.stats().table_bytes > 500 * VALUE_BYTES, "one is still open");
        drop(second);
        stores.env.sleep(Duration::from_secs(60)).await;
        assert_eq!(db.stats().table_bytes, 0);
    });
}
