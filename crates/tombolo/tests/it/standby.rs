//! Standing by: who takes over, when, and what it costs while nothing happens.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Builder, Db, Durability, Env, ErrorKind, Instant, OpenMode, Options, StandbyOptions};
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Process, World};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use tombolo_storage::layer::trace::{TraceLogStore, TraceObjectStore, Tracer};
use tombolo_storage::{LogStore, ObjectStore, Purpose};

const SILENCE: Duration = Duration::from_millis(400);

fn options() -> Options {
    Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap()
}

fn builder(env: &Env) -> Builder {
    Db::builder("file:///db").env(env.clone()).options(options())
}

/// What happened, in order.
#[derive(Clone, Debug, Default)]
struct Diary(Arc<Mutex<Vec<(Instant, String)>>>);

impl Diary {
    fn write(&self, env: &Env, what: impl Into<String>) {
        self.0.lock().push((env.now(), what.into()));
    }

    /// As `write`, of what happens over and over: the first time and the last stand.
    fn write_again(&self, env: &Env, what: &str) {
        let mut diary = self.0.lock();
        let later = diary.iter().enumerate().filter(|(_, (_, written))| written == what).nth(1);
        if let Some(later) = later.map(|(place, _)| place) {
            diary.remove(later);
        }
        diary.push((env.now(), what.to_owned()));
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().iter().map(|(_, what)| what.clone()).collect()
    }

    /// When the last of these words was written.
    fn last(&self, what: &str) -> Instant {
        self.0.lock().iter().rev().find(|(_, written)| written.starts_with(what)).unwrap().0
    }
}

/// Opens, then writes durably and without end; the diary has each acknowledged write.
fn start_writer(process: &Process, diary: &Diary, standing_by: bool) {
    let (env, diary, name) = (process.env(), diary.clone(), process.name());
    let write = async move {
        let db = if standing_by {
            let standby = builder(&env).stand_by(StandbyOptions { silence_max: SILENCE }).await.unwrap();
            diary.write(&env, format!("{name} stands by for {}", standby.epoch()));
            standby.take_over().await.unwrap()
        } else {
            builder(&env).open().await.unwrap()
        };
        diary.write(&env, format!("{name} opened"));
        let keys = db.default_keyspace();
        let found = keys
            .get(b"n")
            .await
            .unwrap()
            .map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()));
        for number in found + 1.. {
            match keys.put(b"n", number.to_be_bytes()).await {
                Ok(()) => diary.write_again(&env, &format!("{name} wrote after {found}")),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Closed), "{error}");
                    return;
                }
            }
            diary.0.lock().retain(|(_, what)| !what.starts_with("newest"));
            diary.write(&env, format!("newest {number}"));
            env.sleep(Duration::from_millis(20)).await;
        }
    };
    process.spawn(TaskClass::Foreground, "write", write).detach();
}

#[test]
fn a_standby_takes_the_place_of_a_writer_that_is_killed() {
    for seed in 0..6 {
        let world = World::new(seed);
        let diary = Diary::default();
        let mut writer = world.process("first");
        start_writer(&writer, &diary, false);
        world.run_for(Duration::from_millis(500));
        for round in 0..3 {
            let next = world.process(&format!("standby {round}"));
            start_writer(&next, &diary, true);
            world.run_for(Duration::from_secs(5) + Duration::from_millis(seed * 37));
            assert!(
                !diary.all().contains(&format!("standby {round} opened")),
                "a writer that lives is left alone"
            );
            writer.kill();
            let killed = world.now();
            let newest: u64 = diary.all().last().unwrap().strip_prefix("newest ").unwrap().parse().unwrap();
            world.run_for(Duration::from_secs(3));
            let took = diary.last(&format!("standby {round} wrote")).since(killed);
            let first = diary
                .0
                .lock()
                .iter()
                .find(|(_, what)| what.starts_with(&format!("standby {round} wrote")))
                .unwrap()
                .clone();
            assert!(
                first.0.since(killed) <= SILENCE * 3 / 2 + Duration::from_millis(100),
                "{:?} of {took:?}",
                first.0.since(killed)
            );
            let found: u64 = first.1.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(found >= newest, "{found} was found, {newest} was acknowledged");
            writer = next;
        }
    }
}

#[test]
fn a_writer_that_lives_is_never_replaced_idle_or_not() {
    let world = World::new(5);
    let diary = Diary::default();
    let (writer, standby) = (world.process("writer"), world.process("standby"));
    let (env, told) = (writer.env(), diary.clone());
    let idle = async move {
        let db = builder(&env).open().await.unwrap();
        db.default_keyspace().put(b"k", b"v").await.unwrap();
        env.sleep(Duration::from_secs(160)).await;
        db.default_keyspace().put(b"k", b"w").await.unwrap();
        told.write(&env, "still the writer");
        env.sleep(Duration::from_secs(600)).await;
        drop(db);
    };
    writer.spawn(TaskClass::Foreground, "idle", idle).detach();
    world.run_for(Duration::from_secs(100));
    start_writer(&standby, &diary, true);
    world.run_for(Duration::from_secs(61));
    assert_eq!(diary.all().last().unwrap(), "still the writer");
}

/// One request in a hundred takes half of the silence that is allowed, on both sides.
#[test]
fn a_writer_in_a_bucket_that_is_slow_at_times_is_not_replaced() {
    for seed in 0..if crate::is_deep() { 3 } else { 1 } {
        let world = World::new(seed);
        let process = world.process("both");
        let env = process.env();
        let work = async move {
            let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
            let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
            let open = || {
                let throttle = Throttle { latency: Latency::S3, ..Throttle::default() };
                let far = Arc::new(ThrottleObjectStore::new(&env, Arc::clone(&objects), throttle));
                Db::builder("mem://x").env(env.clone()).stores(far, Arc::clone(&log)).options(options())
            };
            let db = open().open().await.unwrap();
            let standby = open().stand_by(StandbyOptions::default()).await.unwrap();
            let watching = standby.take_over();
            for hour in 0..if crate::is_deep() { 6 } else { 2 } {
                env.sleep(Duration::from_secs(3600)).await;
                db.default_keyspace().put(b"hour", [hour]).await.unwrap();
            }
            drop(watching);
        };
        process.run(work).unwrap();
    }
}

#[test]
fn a_writer_that_died_before_anybody_stood_by_is_replaced_too() {
    let world = World::new(6);
    let diary = Diary::default();
    let writer = world.process("writer");
    start_writer(&writer, &diary, false);
    world.run_for(Duration::from_secs(1));
    writer.kill();
    start_writer(&world.process("standby"), &diary, true);
    world.run_for(Duration::from_secs(120));
    assert!(diary.all().contains(&"standby opened".to_owned()), "{:?}", diary.all());
}

#[test]
fn a_standby_that_the_writer_forgot_leaves_it_alone() {
    for stood_still in if crate::is_deep() { &[30, 60, 130][..] } else { &[130] } {
        let stood_still = *stood_still;
        let world = World::new(stood_still);
        let diary = Diary::default();
        let (writer, standby) = (world.process("writer"), world.process("standby"));
        start_writer(&writer, &diary, false);
        world.run_for(Duration::from_secs(1));
        start_writer(&standby, &diary, true);
        world.run_for(Duration::from_secs(5));
        standby.pause();
        world.run_for(Duration::from_secs(stood_still));
        standby.resume();
        world.run_for(Duration::from_secs(100));
        assert!(
            !diary.all().contains(&"standby opened".to_owned()),
            "it stood still for {stood_still} s, and replaced a live writer"
        );
        writer.kill();
        let killed = world.now();
        world.run_for(Duration::from_secs(3));
        assert!(diary.last("standby wrote") > killed, "and is there when it is needed");
    }
}

#[test]
fn a_standby_that_begins_to_watch_late_leaves_a_live_writer_alone() {
    let world = World::new(9);
    let diary = Diary::default();
    start_writer(&world.process("writer"), &diary, false);
    world.run_for(Duration::from_secs(1));
    let standby = world.process("standby");
    let (env, told) = (standby.env(), diary.clone());
    let late = async move {
        let standby = builder(&env).stand_by(StandbyOptions { silence_max: SILENCE }).await.unwrap();
        env.sleep(Duration::from_secs(150)).await;
        let _db = standby.take_over().await.unwrap();
        told.write(&env, "taken over");
    };
    standby.spawn(TaskClass::Foreground, "stand by", late).detach();
    world.run_for(Duration::from_secs(250));
    assert!(!diary.all().contains(&"taken over".to_owned()));
}

#[test]
fn of_several_who_stand_by_one_takes_over_and_the_others_stand_by_for_it() {
    for seed in 0..if crate::is_deep() { 4 } else { 2 } {
        let world = World::new(seed);
        world.set_preemption_probability(0.1);
        let diary = Diary::default();
        let writer = world.process("writer");
        start_writer(&writer, &diary, false);
        world.run_for(Duration::from_millis(500));
        let mut standing: Vec<Process> =
            (0..4).map(|number| world.process(&format!("standby {number}"))).collect();
        standing.iter().for_each(|process| start_writer(process, &diary, true));
        world.run_for(Duration::from_secs(5));
        writer.kill();
        for replaced in 1..=4 {
            world.run_for(Duration::from_secs(20));
            let opened: Vec<String> =
                diary.all().into_iter().filter(|what| what.ends_with(" opened")).collect();
            assert_eq!(
                opened.len(),
                1 + replaced,
                "one more writer than died, and nobody fences a live one: {opened:?}"
            );
            let newest = standing
                .iter()
                .position(|process| opened.last().unwrap().starts_with(&process.name()))
                .unwrap();
            standing.remove(newest).kill();
        }
    }
}

#[test]
fn a_writer_hands_over_without_losing_time() {
    let world = World::new(8);
    let diary = Diary::default();
    let (writer, standby) = (world.process("writer"), world.process("standby"));
    let (env, told) = (writer.env(), diary.clone());
    let work = async move {
        let db = builder(&env).open().await.unwrap();
        let keys = db.default_keyspace();
        assert_eq!(db.hand_over().await.unwrap_err().kind(), ErrorKind::NotFound, "nobody stands by");
        keys.put(b"n", 1u64.to_be_bytes()).await.unwrap();
        env.sleep(Duration::from_secs(5)).await;
        let (writing, env2, told2) = (keys.clone(), env.clone(), told.clone());
        let writes = env.spawn(TaskClass::Foreground, "write", async move {
            for number in 2u64.. {
                if let Err(error) = writing.put_with(b"n", number.to_be_bytes(), Durability::Durable).await {
                    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                    return;
                }
                told2.write(&env2, format!("wrote {number}"));
                env2.sleep(Duration::from_millis(1)).await;
            }
        });
        db.hand_over().await.unwrap();
        writes.await;
        assert_eq!(db.hand_over().await.unwrap_err().kind(), ErrorKind::Closed);
    };
    writer.spawn(TaskClass::Foreground, "work", work).detach();
    world.run_for(Duration::from_secs(1));
    start_writer(&standby, &diary, true);
    world.run_for(Duration::from_secs(10));
    let last = diary.last("wrote");
    let (first, what) =
        diary.0.lock().iter().find(|(_, what)| what.starts_with("standby wrote")).unwrap().clone();
    assert!(first.since(last) < Duration::from_millis(50), "{:?} without a writer", first.since(last));
    let written = diary.all().iter().filter(|what| what.starts_with("wrote")).count() as u64;
    assert!(written > 10, "writes go on while it hands over");
    assert_eq!(what, format!("standby wrote after {}", written + 1), "nothing is lost");
}

/// The record of a standby that died stays for a while: a writer that hands over asks for an answer
/// first.
#[test]
fn a_writer_does_not_hand_over_to_the_dead_and_stays_the_writer() {
    let world = World::new(9);
    let diary = Diary::default();
    let (writer, dead, later) = (world.process("writer"), world.process("dead"), world.process("later"));
    let (env, told) = (writer.env(), diary.clone());
    let work = async move {
        let db = builder(&env).open().await.unwrap();
        let keys = db.default_keyspace();
        keys.put(b"n", 1u64.to_be_bytes()).await.unwrap();
        env.sleep(Duration::from_secs(5)).await;
        told.write(&env, "handing over");
        assert_eq!(db.hand_over().await.unwrap_err().kind(), ErrorKind::NotFound);
        told.write(&env, "nobody answered");
        keys.put(b"n", 2u64.to_be_bytes()).await.unwrap();
        env.sleep(Duration::from_secs(200)).await;
        keys.put(b"n", 3u64.to_be_bytes()).await.unwrap();
        told.write(&env, "still the writer");
        env.sleep(Duration::from_secs(200)).await;
    };
    writer.spawn(TaskClass::Foreground, "work", work).detach();
    world.run_for(Duration::from_secs(1));
    start_writer(&dead, &diary, true);
    world.run_for(Duration::from_millis(3900));
    assert!(diary.all().iter().all(|what| what.starts_with("dead stands by")), "{:?}", diary.all());
    dead.kill();
    world.run_for(Duration::from_secs(5));
    assert!(diary.last("nobody answered").since(diary.last("handing over")) < Duration::from_secs(4));
    start_writer(&later, &diary, true);
    world.run_for(Duration::from_secs(200));
    assert_eq!(diary.all().last().unwrap(), "still the writer");
}

/// Of two who stand by, the one that is in a hurry is dead, and the other looks every fifteen
/// seconds.
#[test]
fn a_writer_hands_over_to_one_who_looks_seldom() {
    let world = World::new(12);
    let diary = Diary::default();
    let (writer, dead, seldom) = (world.process("writer"), world.process("dead"), world.process("seldom"));
    let (env, told) = (writer.env(), diary.clone());
    let work = async move {
        let db = builder(&env).open().await.unwrap();
        db.default_keyspace().put(b"n", 1u64.to_be_bytes()).await.unwrap();
        env.sleep(Duration::from_secs(5)).await;
        db.hand_over().await.unwrap();
        told.write(&env, "handed over");
    };
    writer.spawn(TaskClass::Foreground, "work", work).detach();
    world.run_for(Duration::from_secs(1));
    start_writer(&dead, &diary, true);
    let env = seldom.env();
    let stand_by = async move {
        let standby =
            builder(&env).stand_by(StandbyOptions { silence_max: Duration::from_secs(60) }).await.unwrap();
        let db = standby.take_over().await.unwrap();
        env.sleep(Duration::from_secs(1000)).await;
        drop(db);
    };
    seldom.spawn(TaskClass::Foreground, "stand by", stand_by).detach();
    world.run_for(Duration::from_secs(3));
    dead.kill();
    world.run_for(Duration::from_secs(40));
    assert!(diary.all().contains(&"handed over".to_owned()), "{:?}", diary.all());
}

/// What kept it from handing over is told, and is no hindrance once it is gone.
#[test]
fn a_writer_that_could_not_hand_over_stays_and_can_do_so_later() {
    let world = World::new(11);
    let process = world.process("p");
    let env = process.env();
    process
        .run(async move {
            let plan = FaultPlan::scripted();
            let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
            let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
            let open = || Db::builder("mem://x").env(env.clone()).options(options());
            let faulty: Arc<dyn ObjectStore> =
                Arc::new(FaultObjectStore::new(&env, Arc::clone(&objects), plan.clone()));
            let db = open().stores(faulty, Arc::clone(&log)).open().await.unwrap();
            let keys = db.default_keyspace();
            keys.put(b"k", b"v").await.unwrap();
            let standby =
                open().stores(objects, log).stand_by(StandbyOptions { silence_max: SILENCE }).await.unwrap();
            let watching = standby.take_over();
            env.sleep(Duration::from_secs(65)).await;
            let is_flush =
                |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.purpose == Purpose::Flush;
            plan.inject(Rule::new(is_flush, Fault::Error(ErrorKind::OutOfSpace)));
            assert_eq!(db.hand_over().await.unwrap_err().kind(), ErrorKind::OutOfSpace);
            plan.clear();
            env.sleep(Duration::from_secs(1)).await;
            keys.put(b"k", b"w").await.unwrap();
            db.hand_over().await.unwrap();
            let next = watching.await.unwrap();
            assert_eq!(next.default_keyspace().get(b"k").await.unwrap().unwrap(), b"w");
        })
        .unwrap();
}

/// A standby answers, and dies before it takes over.
#[test]
fn a_writer_is_told_when_nobody_takes_what_it_handed_over() {
    let world = World::new(10);
    let diary = Diary::default();
    let (writer, standby) = (world.process("writer"), world.process("standby"));
    let (env, told) = (writer.env(), diary.clone());
    let work = async move {
        let db = builder(&env).open().await.unwrap();
        let keys = db.default_keyspace();
        env.sleep(Duration::from_secs(5)).await;
        let (env2, told2) = (env.clone(), told.clone());
        let writes = env.spawn(TaskClass::Foreground, "write", async move {
            while keys.put(b"k", b"v").await.is_ok() {
                env2.sleep(Duration::from_micros(100)).await;
            }
            told2.write(&env2, "closed");
        });
        let error = db.hand_over().await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::DeadlineExceeded && error.to_string().contains("no writer"),
            "{error}"
        );
        writes.await;
        drop(db);
        let db = builder(&env).open().await.unwrap();
        assert_eq!(db.default_keyspace().get(b"k").await.unwrap().unwrap(), b"v");
        told.write(&env, "opened again");
    };
    writer.spawn(TaskClass::Foreground, "work", work).detach();
    world.run_for(Duration::from_secs(1));
    start_writer(&standby, &diary, true);
    while !diary.all().contains(&"closed".to_owned()) {
        world.run_for(Duration::from_micros(100));
    }
    standby.kill();
    world.run_for(Duration::from_secs(30));
    assert_eq!(diary.all().last().unwrap(), "opened again");
}

/// The first attempts to take over fail behind their claims, which make the failed process the
/// newest writer: nobody waits for its signs.
#[test]
fn a_takeover_that_failed_behind_its_claim_is_tried_again_at_once() {
    for (failures, took_max) in [(1, Duration::from_secs(2)), (4, Duration::from_secs(8))] {
        let world = World::new(13);
        let process = world.process("p");
        let env = process.env();
        let outcome = process.run(async move {
            let plan = FaultPlan::scripted();
            let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
            let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
            let open = || Db::builder("mem://x").env(env.clone()).options(options());
            let faulty: Arc<dyn ObjectStore> =
                Arc::new(FaultObjectStore::new(&env, Arc::clone(&objects), plan.clone()));
            let db = open().stores(objects, Arc::clone(&log)).open().await.unwrap();
            db.default_keyspace().put(b"k", b"v").await.unwrap();
            let standby =
                open().stores(faulty, log).stand_by(StandbyOptions { silence_max: SILENCE }).await.unwrap();
            let watching = standby.take_over();
            env.sleep(Duration::from_secs(65)).await;
            // Every second record of the standby: its claim is put, and what it puts behind it is
            // refused.
            let mut records = 0;
            let is_behind_a_claim = move |asked: &Asked<'_>| {
                let is_record = asked.kind == RequestKind::Put && asked.name.contains("/manifest/");
                records += u32::from(is_record);
                is_record && records % 2 == 0
            };
            plan.inject(Rule::new(is_behind_a_claim, Fault::Error(ErrorKind::OutOfSpace)).times(failures));
            drop(db);
            let killed = env.now();
            let next = watching.await.unwrap();
            let took = env.now().since(killed);
            assert_eq!(plan.injected(), failures);
            assert!(took < took_max, "{failures} attempts failed, and it took {took:?}");
            assert_eq!(next.default_keyspace().get(b"k").await.unwrap().unwrap(), b"v");
        });
        outcome.unwrap();
    }
}

#[test]
fn a_standby_of_nothing_and_one_of_nonsense_are_refused() {
    let world = World::new(1);
    let process = world.process("p");
    let env = process.env();
    process
        .run(async move {
            assert_eq!(
                builder(&env).stand_by(StandbyOptions::default()).await.unwrap_err().kind(),
                ErrorKind::NotFound
            );
            let db = builder(&env).open().await.unwrap();
            for silence_max in [Duration::ZERO, Duration::from_secs(1 << 20)] {
                assert_eq!(
                    builder(&env).stand_by(StandbyOptions { silence_max }).await.unwrap_err().kind(),
                    ErrorKind::Invalid
                );
            }
            let other = builder(&env).log("file:///elsewhere").stand_by(StandbyOptions::default()).await;
            assert_eq!(other.unwrap_err().kind(), ErrorKind::Invalid);
            // A database that is destroyed needs nobody.
            let standby = builder(&env).stand_by(StandbyOptions { silence_max: SILENCE }).await.unwrap();
            drop(db);
            builder(&env).destroy().await.unwrap();
            assert_eq!(standby.take_over().await.unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(
                builder(&env).mode(OpenMode::Open).open().await.unwrap_err().kind(),
                ErrorKind::NotFound
            );
        })
        .unwrap();
}

/// Which requests fail.
type Which = fn(&Asked<'_>) -> bool;

/// A standby of a writer that is killed, while the store fails all requests of which `which` is
/// true with `kind`, for 20 s. How the takeover ends, and how long after the store is well again.
fn takeover_while_the_store_fails(kind: ErrorKind, which: Which) -> (Result<u64, ErrorKind>, Duration) {
    let world = World::new(12);
    let (writer, standby, server) =
        (world.process("writer"), world.process("standby"), world.process("server"));
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&server.env()));
    let plan = FaultPlan::scripted();
    let open = |env: &Env, objects: &Arc<dyn ObjectStore>| {
        let log: Arc<dyn LogStore> = Arc::new(ObjectLogStore::new(env, Arc::clone(objects), true));
        Db::builder("mem://x").env(env.clone()).options(options()).stores(Arc::clone(objects), log)
    };
    let opening = open(&writer.env(), &objects).open();
    let env = writer.env();
    let write = async move {
        let db = opening.await.unwrap();
        for number in 1u64.. {
            db.default_keyspace().put(b"n", number.to_be_bytes()).await.unwrap();
            env.sleep(Duration::from_millis(100)).await;
        }
    };
    writer.spawn(TaskClass::Foreground, "write", write).detach();
    world.run_for(Duration::from_secs(1));
    let env = standby.env();
    let faulty: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, objects, plan.clone()));
    let opening = open(&env, &faulty);
    let ended = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&ended);
    let take_over = async move {
        let taken =
            opening.stand_by(StandbyOptions { silence_max: SILENCE }).await.unwrap().take_over().await;
        let found = match taken {
            Ok(db) => Ok(db
                .default_keyspace()
                .get(b"n")
                .await
                .unwrap()
                .map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))),
            Err(error) => Err(error.kind()),
        };
        *tell.lock() = Some((found, env.now()));
    };
    standby.spawn(TaskClass::Foreground, "take over", take_over).detach();
    world.run_for(Duration::from_secs(5));
    writer.kill();
    plan.inject(Rule::new(which, Fault::Error(kind)).times(u64::MAX));
    world.run_for(Duration::from_secs(20));
    let well = world.now();
    plan.clear();
    world.run_for(Duration::from_secs(100));
    let (found, at) = ended.lock().take().expect("it came to an end");
    (found, if at > well { at.since(well) } else { Duration::ZERO })
}

/// Rights and credentials are mended by people, and who stands by waits for that.
#[test]
fn a_standby_that_is_refused_takes_over_when_it_is_allowed_to_again() {
    let refused: [(&str, Which); 4] = [
        ("everything", |_| true),
        ("what writes", |asked| asked.kind == RequestKind::Put),
        ("the seal, with its claim in place", |asked| {
            asked.kind == RequestKind::Put && asked.purpose == Purpose::Log
        }),
        ("the log", |asked| asked.kind == RequestKind::Read && asked.name.contains("log-objects")),
    ];
    for (what, which) in refused {
        let (found, took) = takeover_while_the_store_fails(ErrorKind::PermissionDenied, which);
        assert!(found.is_ok_and(|found| found >= 40), "{what}: {found:?}");
        assert!(
            took > Duration::ZERO && took <= Duration::from_secs(6),
            "{what}: {took:?} after it was allowed"
        );
    }
    // What does not pass ends it.
    for kind in [ErrorKind::Invalid, ErrorKind::Unsupported, ErrorKind::Corrupt] {
        let (found, took) = takeover_while_the_store_fails(kind, |asked| {
            asked.kind == RequestKind::Put && asked.purpose == Purpose::Log
        });
        assert_eq!((found, took), (Err(kind), Duration::ZERO));
    }
}

#[test]
fn an_idle_database_makes_one_request_a_minute_and_with_a_standby_what_that_asks_for() {
    let world = World::new(2);
    let process = world.process("p");
    let env = process.env();
    process
        .run(async move {
            let tracer = Tracer::new(&env);
            let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
            let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
            let traced: Arc<dyn ObjectStore> =
                Arc::new(TraceObjectStore::new(Arc::clone(&objects), tracer.clone()));
            let traced_log: Arc<dyn LogStore> =
                Arc::new(TraceLogStore::new(Arc::clone(&log), tracer.clone()));
            let db = Db::builder("mem://x")
                .env(env.clone())
                .stores(traced, traced_log)
                .options(options())
                .open()
                .await
                .unwrap();
            let keys = db.default_keyspace();
            for number in 0..200u8 {
                keys.put([number], [number; 100]).await.unwrap();
            }
            db.compact().await.unwrap();
            env.sleep(Duration::from_secs(180)).await;
            tracer.reset();
            env.sleep(Duration::from_secs(600)).await;
            let requests = || tracer.counters().values().map(|counters| counters.requests).sum::<u64>();
            assert!(requests() <= 10, "{:?}", tracer.counters());
            let looks = Tracer::new(&env);
            let watched: Arc<dyn ObjectStore> =
                Arc::new(TraceObjectStore::new(Arc::clone(&objects), looks.clone()));
            let open = || {
                Db::builder("mem://x")
                    .env(env.clone())
                    .stores(Arc::clone(&watched), Arc::clone(&log))
                    .options(options())
            };
            let standby = open().stand_by(StandbyOptions { silence_max: SILENCE }).await.unwrap();
            let watching = standby.take_over();
            env.sleep(Duration::from_secs(65)).await;
            tracer.reset();
            looks.reset();
            env.sleep(Duration::from_secs(60)).await;
            // Who stands by: a list and a read for the chain in each silence allowed, four looks at
            // the writer's signs, of which one is a list and the others lengths, and its record
            // every ten seconds.
            let silences = 60 * 1000 / SILENCE.as_millis() as u64;
            let of = |kind| looks.of_kind(kind).requests;
            assert!(
                (2 * silences - 10..=2 * silences + 10).contains(&of(RequestKind::List)),
                "{} lists",
                of(RequestKind::List)
            );
            assert!(
                (3 * silences - 20..=3 * silences).contains(&of(RequestKind::Length)),
                "{} lengths",
                of(RequestKind::Length)
            );
            assert!(of(RequestKind::Read) <= silences && of(RequestKind::Put) <= 7, "{:?}", looks.counters());
            // A put and a deletion four times in the silence allowed, and a list every ten seconds.
            let beats = 60 * 4 * 1000 / SILENCE.as_millis() as u64;
            assert!(
                (2 * beats - 40..=2 * beats + 20).contains(&requests()),
                "{} for {beats} signs",
                requests()
            );
            drop(watching);
            // Nobody stands by any more: silence returns.
            env.sleep(Duration::from_secs(120)).await;
            tracer.reset();
            env.sleep(Duration::from_secs(600)).await;
            assert!(requests() <= 10 + 2, "{:?}", tracer.counters());
        })
        .unwrap();
}

/// Each rule taken out is noticed by the test that is for it.
#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn whoever_writes_replaced() {
        notices(
            Mutant::StandbyReplacesWhoever,
            super::of_several_who_stand_by_one_takes_over_and_the_others_stand_by_for_it,
        );
    }

    #[test]
    fn silence_towards_a_forgotten_standby_taken_for_death() {
        notices(
            Mutant::StandbyForgottenTakesSilenceForDeath,
            super::a_standby_that_the_writer_forgot_leaves_it_alone,
        );
        notices(
            Mutant::StandbyForgottenTakesSilenceForDeath,
            super::a_standby_that_begins_to_watch_late_leaves_a_live_writer_alone,
        );
    }
}
