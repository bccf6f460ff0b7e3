//! A database that is opened briefly again and again: what it costs, and what it leaves.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Db, Env, ErrorKind, KeyspaceOptions, Options, Result};
use tombolo_env::simulated::{Crash, World};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{Epoch, LogStore, ObjectStore, Purpose, Request};

const FORMS: [&str; 2] = ["mapped", "written"];

async fn open(env: &Env, form: &str) -> Result<Db> {
    let options =
        Options::parse(["memory_bytes=1048576", "memtable_bytes=65536", "automatic_compaction=false"])?;
    Db::builder("file:///db")
        .log(format!("file:///db?form={form}"))
        .env(env.clone())
        .options(options)
        .open()
        .await
}

fn key(number: u32) -> Vec<u8> {
    format!("key-{number:03}").into_bytes()
}

/// One brief life: everything that was written before is there, and one thing more is written.
async fn live(env: Env, form: &'static str, number: u32, close: bool) -> Result<tombolo::Stats> {
    let db = open(&env, form).await?;
    let keys = db.default_keyspace();
    for before in 0..number {
        assert_eq!(
            keys.get(key(before)).await?.as_deref(),
            Some(&before.to_le_bytes()[..]),
            "life {number}, key {before}"
        );
    }
    if number == 2 {
        db.create_keyspace("made in life 2", KeyspaceOptions::default()).await?.put(b"k", b"v").await?;
    }
    if number > 2 {
        assert_eq!(db.keyspace("made in life 2")?.get(b"k").await?.as_deref(), Some(&b"v"[..]));
    }
    keys.put(key(number), number.to_le_bytes()).await?;
    let stats = db.stats();
    if close {
        db.close().await?;
    }
    Ok(stats)
}

/// Directories of logs that are on the disk.
fn logs(world: &World) -> usize {
    let files = world.host(0).all_files();
    files.iter().filter(|(path, _)| path.file_name().is_some_and(|name| name == "control")).count()
}

#[test]
fn brief_lives_leave_few_tables_and_few_logs() {
    for form in FORMS {
        for end in [None, Some(Crash::Kill), Some(Crash::PowerLoss)] {
            let world = World::new(7);
            let mut tables = 0;
            for number in 0..40 {
                let process = world.process("brief");
                let stats = process.run(live(process.env(), form, number, end.is_none())).unwrap().unwrap();
                tables = stats.tables;
                match end {
                    Some(Crash::PowerLoss) => world.host(0).power_loss(),
                    _ => process.kill(),
                }
                assert!(logs(&world) <= 18, "{form} {end:?}: {} logs after life {number}", logs(&world));
            }
            assert!(tables <= 12, "{form} {end:?}: {tables} tables after 40 lives");
        }
    }
}

/// Logs so large that other threads put parts of them into the memtable, at the end into more
/// memtables than one.
#[test]
fn large_logs_of_several_lives_are_replayed_whole() {
    const EACH: u32 = 9000;
    for form in FORMS {
        let world = World::new(11);
        for (life, memtable_bytes) in [(0, 4 << 20), (1, 4 << 20), (2, 8 << 20), (3, 1 << 20)] {
            let process = world.process("life");
            let env = process.env();
            let lived = process.run(async move {
                let options = Options::parse([
                    "memory_bytes=67108864",
                    &format!("memtable_bytes={memtable_bytes}"),
                    "automatic_compaction=false",
                ])?;
                let db = Db::builder("file:///db")
                    .log(format!("file:///db?form={form}"))
                    .env(env.clone())
                    .options(options)
                    .open()
                    .await?;
                let keys = db.default_keyspace();
                // Of the newest life, at each key that several wrote.
                for number in 0..EACH + life * 1000 {
                    let newest =
                        (0..life).rev().find(|life| (life * 1000..life * 1000 + EACH).contains(&number));
                    let found = keys.get(number.to_be_bytes()).await?;
                    assert_eq!(
                        found.map(|value| value[0]),
                        newest.map(|life| life.to_le_bytes()[0]),
                        "life {life}, key {number}"
                    );
                }
                for number in life * 1000..life * 1000 + EACH {
                    keys.put(number.to_be_bytes(), [life.to_le_bytes()[0]; 100]).await?;
                }
                Result::Ok(())
            });
            lived.expect("alive").expect("it opens");
            process.kill();
        }
    }
}

#[test]
fn lives_without_a_write_leave_nothing() {
    let world = World::new(8);
    for number in 0..20 {
        let process = world.process("idle");
        let env = process.env();
        let stats = process
            .run(async move { Ok::<_, tombolo::Error>(open(&env, "written").await?.stats()) })
            .unwrap()
            .unwrap();
        assert_eq!((stats.tables, stats.replayed_bytes), (0, 0), "life {number}");
        process.kill();
        assert!(logs(&world) <= 2, "{} logs after life {number}", logs(&world));
    }
}

/// What replay left in memory ends its logs with an ordinary flush.
#[test]
fn a_flush_ends_the_logs_that_were_replayed() {
    let world = World::new(9);
    for number in 0..3 {
        let process = world.process("brief");
        process.run(live(process.env(), "mapped", number, true)).unwrap().unwrap();
        process.kill();
    }
    assert_eq!(logs(&world), 3);
    let process = world.process("flusher");
    let env = process.env();
    let stats = process.run(async move {
        let db = open(&env, "mapped").await?;
        assert_eq!(db.stats().tables, 0, "what is small waits for an ordinary flush");
        db.flush().await?;
        Ok::<_, tombolo::Error>(db.stats())
    });
    assert_eq!(stats.unwrap().unwrap().tables, 2, "one of each keyspace");
    assert_eq!(logs(&world), 1, "its own");
}

/// No claim is ever deleted; an opening must not read them.
#[test]
fn an_opening_costs_no_more_for_the_claims_before_it() {
    let world = World::new(10);
    let process = world.process("opener");
    let env = process.env();
    let objects = Arc::new(MemoryObjectStore::unnamed(&env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
    let requests = process.run(async move {
        let mut requests = Vec::new();
        for number in 0..600u32 {
            let tracer = Tracer::new(&env);
            let traced = Arc::new(TraceObjectStore::new(objects.clone(), tracer.clone()));
            let options = Options::parse(["memory_bytes=1048576", "automatic_compaction=false"]).unwrap();
            let builder = Db::builder("mem://opened")
                .env(env.clone())
                .options(options)
                .stores(traced, Arc::clone(&log));
            let db = builder.open().await.unwrap();
            if number % 3 == 0 {
                db.default_keyspace().put(key(number), b"value").await.unwrap();
            }
            db.close().await.unwrap();
            requests.push(tracer.counters().values().map(|counters| counters.requests).sum::<u64>());
        }
        requests
    });
    let requests = requests.unwrap();
    let (first, last): (u64, u64) = (requests[..200].iter().sum(), requests[400..].iter().sum());
    assert!(last * 10 <= first * 11, "200 openings made {first} requests, the same after 400 others {last}");
}

/// Many small writes make many small log objects, each a request of the next opening: they are
/// flushed long before the memtable is full.
#[test]
fn a_log_of_many_small_objects_is_flushed() {
    let world = World::new(9);
    let process = world.process("writer");
    let env = process.env();
    let written = process.run(async move {
        let db = Db::builder("mem://small-objects").log("objects://").env(env.clone()).open().await?;
        let keys = db.default_keyspace();
        for number in 0..2000u32 {
            keys.put(key(number), [7; 40]).await?;
        }
        env.sleep(std::time::Duration::from_secs(5)).await;
        let stats = db.stats();
        db.close().await?;
        Ok::<_, tombolo::Error>((stats.flushes, stats.log_bytes))
    });
    let (flushes, log_bytes) = written.unwrap().unwrap();
    assert!((1..=4).contains(&flushes), "{flushes} flushes of 2000 small writes");
    assert!(log_bytes < 2000 * 150, "{log_bytes} bytes of log are left");
}

/// Opens, shows what was written before, writes one thing more, and lets go without closing or
/// flushing.
async fn live_with_log(env: Env, store: &'static str, log: &'static str, number: u32) -> Result<()> {
    let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=65536"])?;
    let db = Db::builder(store).log(log).env(env).options(options).open().await?;
    let keys = db.default_keyspace();
    for before in 0..number {
        assert_eq!(
            keys.get(key(before)).await?.as_deref(),
            Some(store.as_bytes()),
            "{store}, life {number}, key {before}"
        );
    }
    keys.put(key(number), store).await
}

#[test]
fn databases_may_keep_their_logs_in_one_place() {
    for log in ["file:///logs", "file:///logs?form=written"] {
        let world = World::new(7);
        let mut lives = [0; 2];
        // Their epochs overtake one another.
        for database in [0, 1, 1, 1, 0, 0, 0, 0, 1] {
            let store = ["file:///a", "file:///b"][database];
            let process = world.process("brief");
            process.run(live_with_log(process.env(), store, log, lives[database])).unwrap().unwrap();
            world.host(0).power_loss();
            lives[database] += 1;
        }
    }
}

/// With many logs an opening waits for its first flush; who does not wait that long leaves nobody
/// who writes.
#[test]
fn an_opening_that_is_given_up_leaves_no_writer() {
    let world = World::new(3);
    let process = world.process("impatient");
    let env = process.env();
    let plan = FaultPlan::scripted();
    let objects: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan.clone()));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
    let flushes = |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.purpose == Purpose::Flush;
    plan.inject(Rule::new(flushes, Fault::Delay(Duration::from_secs(3600))));
    let given_up = process.run(async move {
        let mut given_up = 0;
        for _ in 0..40 {
            let builder = Db::builder("mem://impatient")
                .env(env.clone())
                .stores(Arc::clone(&objects), Arc::clone(&log));
            match builder.deadline(Duration::from_secs(5)).open().await {
                Ok(db) => db.default_keyspace().put(b"k", b"v").await.unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
                    given_up += 1;
                }
            }
        }
        env.sleep(Duration::from_secs(7200)).await;
        let all =
            objects.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 1000).await.unwrap().objects;
        let tables = all.iter().filter(|object| object.name.as_str().contains("/table/")).count();
        assert_eq!(tables, 0, "somebody went on");
        given_up
    });
    assert!(given_up.unwrap() > 0, "no opening waited");
}
