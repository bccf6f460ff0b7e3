//! Readers that follow a writer: what they show, how far behind, and what they keep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Batch, Builder, Db, Durability, Env, ErrorKind, Keyspace, KeyspaceOptions, Options, Reader,
    ReaderOptions, Registry, Result, Snapshot, TakeOver,
};
use tombolo_env::TaskClass;
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{LogStore, ObjectStore};

pub(super) type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn options() -> Options {
    Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap()
}

const LAG: Duration = Duration::from_millis(100);

pub(super) fn following() -> ReaderOptions {
    ReaderOptions { lag: LAG, lag_max: Duration::from_secs(1), lease: Duration::from_secs(10) }
}

pub(super) fn builder(env: &Env, uri: &str) -> Builder {
    let (store, log) = uri.split_once(' ').unwrap_or((uri, uri));
    Db::builder(store).log(log).env(env.clone()).options(options())
}

pub(super) async fn contents(db: &Db) -> Result<Contents> {
    contents_at(db, &db.snapshot()).await
}

async fn contents_at(db: &Db, snapshot: &Snapshot) -> Result<Contents> {
    let mut contents = Contents::new();
    for keyspace in db.keyspaces() {
        let mut scan = snapshot.scan::<&[u8]>(&keyspace, ..);
        let mut keys = Vec::new();
        while let Some((key, value)) = scan.next_async().await? {
            assert_eq!(snapshot.get(&keyspace, &key).await?.as_ref(), Some(&value), "get and scan agree");
            keys.push(key.to_vec());
            contents.insert((keyspace.name().to_owned(), key.to_vec()), value.to_vec());
        }
        let values = snapshot.multi_get(&keyspace, &keys).await?;
        for (key, value) in keys.into_iter().zip(values) {
            assert_eq!(
                contents[&(keyspace.name().to_owned(), key)],
                value.unwrap().to_vec(),
                "multi-get and scan agree"
            );
        }
    }
    Ok(contents)
}

pub(super) fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Env) -> F) {
    let world = World::new(1);
    let process = world.process("both");
    process.run(test(process.env())).unwrap();
}

pub(super) struct Random(pub(super) u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// One step of a writer, which ends durable.
pub(super) async fn step(
    env: &Env,
    open: &(impl Fn() -> Builder + Sync),
    db: &mut Db,
    random: &mut Random,
    number: u64,
) {
    let keyspaces = db.keyspaces();
    let keyspace = &keyspaces[random.below(keyspaces.len() as u64) as usize];
    let mut batch = Batch::new();
    for _ in 0..1 + random.below(4) {
        let key = format!("key-{}", random.below(20));
        if random.below(4) == 0 {
            batch.delete(keyspace, &key);
        } else {
            batch.put(keyspace, &key, format!("{number}:{}", "x".repeat(random.below(400) as usize)));
        }
    }
    match random.below(12) {
        0 => {
            // A newer version that no log holds, below one that a log does: only a flush brings it.
            keyspace.put(b"mixed", b"logged").await.unwrap();
            keyspace.put_with(b"mixed", number.to_be_bytes(), Durability::Unlogged).await.unwrap();
            keyspace.put(b"after", b"logged").await.unwrap();
            db.flush().await.unwrap();
        }
        1 => db.flush().await.unwrap(),
        2 => db.compact().await.unwrap(),
        3 => {
            drop(
                db.create_keyspace(&format!("keyspace-{number}"), KeyspaceOptions::default()).await.unwrap(),
            );
        }
        4 if keyspace.name() != "default" => db.drop_keyspace(keyspace.name()).await.unwrap(),
        5 => *db = open().take_over(TakeOver::Always).open().await.unwrap(),
        6 => {
            db.close().await.unwrap();
            *db = open().open().await.unwrap();
        }
        _ => db.write(batch).await.unwrap(),
    }
    if random.below(3) == 0 {
        env.sleep(Duration::from_millis(random.below(2000))).await;
    }
}

#[test]
fn a_reader_shows_what_a_writer_acknowledged_over_flushes_compactions_keyspaces_and_takeovers() {
    let places = [
        (1, "file:///db file:///db?form=mapped"),
        (2, "file:///db file:///db?form=written"),
        (3, "mem://a"),
        (4, "file:///db objects://"),
        (5, "mem://a objects://"),
        (6, "mem://a objects://"),
    ];
    for (seed, uri) in places {
        run(move |env| async move {
            let mut random = Random(seed);
            let registry = Registry::with_defaults();
            let open = || builder(&env, uri).registry(registry.clone());
            let mut db = open().open().await.unwrap();
            let reader = open().open_reader(following()).await.unwrap();
            let mut kept: Option<(Snapshot, Contents)> = None;
            for number in 0..if crate::is_deep() { 150 } else { 60 } {
                step(&env, &open, &mut db, &mut random, number).await;
                reader.refresh().await.unwrap();
                assert_eq!(
                    contents(reader.db()).await.unwrap(),
                    contents(&db).await.unwrap(),
                    "step {number} on {uri}"
                );
                if let Some((snapshot, before)) = &kept {
                    for keyspace in reader.db().keyspaces() {
                        for ((_, key), value) in
                            before.iter().filter(|((name, _), _)| name == keyspace.name())
                        {
                            let found = snapshot.get(&keyspace, key).await.unwrap();
                            assert_eq!(found.as_deref(), Some(&value[..]), "a snapshot stays as it was");
                        }
                    }
                }
                if random.below(20) == 0 {
                    let snapshot = reader.snapshot();
                    let before = contents_at(reader.db(), &snapshot).await.unwrap();
                    kept = Some((snapshot, before));
                }
            }
            assert_eq!(
                reader.db().default_keyspace().put(b"k", b"v").await.unwrap_err().kind(),
                ErrorKind::PermissionDenied
            );
            drop(kept);
            reader.close().await.unwrap();
            assert_eq!(reader.default_keyspace().get(b"k").await.unwrap_err().kind(), ErrorKind::Closed);
        });
    }
}

/// The writer drops a keyspace and makes another one of the same name between two rounds of a
/// reader.
#[test]
fn a_keyspace_that_was_dropped_and_made_again_is_another_one_to_a_reader() {
    run(|env| async move {
        let db = builder(&env, "file:///db").open().await.unwrap();
        let made = db.create_keyspace("k", KeyspaceOptions::default()).await.unwrap();
        made.put(b"old", b"1").await.unwrap();
        let reader = builder(&env, "file:///db").open_reader(following()).await.unwrap();
        for flushed in [false, true] {
            let old = reader.keyspace("k").unwrap();
            db.drop_keyspace("k").await.unwrap();
            let made = db.create_keyspace("k", KeyspaceOptions::default()).await.unwrap();
            made.put(b"new", b"2").await.unwrap();
            if flushed {
                db.flush().await.unwrap();
            }
            reader.refresh().await.unwrap();
            let shown = reader.keyspace("k").unwrap();
            assert_eq!(shown.id(), made.id());
            assert_eq!(reader.db().keyspaces().iter().map(Keyspace::id).collect::<Vec<_>>(), [0, made.id()]);
            assert_eq!(shown.get(b"old").await.unwrap(), None);
            assert_eq!(shown.get(b"new").await.unwrap().unwrap(), b"2");
            assert_eq!(
                old.get(b"old").await.unwrap_err().kind(),
                ErrorKind::NotFound,
                "what was dropped stays dropped"
            );
        }
        db.drop_keyspace("k").await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(reader.keyspace("k").unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_reader_follows_changed_settings_of_a_keyspace() {
    run(|env| async move {
        let db = builder(&env, "file:///db").open().await.unwrap();
        let keys = db.create_keyspace("k", KeyspaceOptions::default()).await.unwrap();
        keys.put(b"k", b"value").await.unwrap();
        db.flush().await.unwrap();
        let reader = builder(&env, "file:///db").open_reader(following()).await.unwrap();
        let shown = reader.keyspace("k").unwrap();
        for alignment in [64u16, 256] {
            keys.set_options([("value_alignment", alignment.to_string().as_str())]).await.unwrap();
            reader.refresh().await.unwrap();
            assert_eq!(shown.options().value_alignment, alignment, "no flush is needed for that");
            let value = shown.get(b"k").await.unwrap().unwrap();
            assert_eq!(value.as_ptr().addr() % usize::from(alignment), 0);
        }
    });
}

#[test]
fn without_being_asked_a_reader_is_at_most_its_stated_lag_behind() {
    for uri in ["file:///db", "file:///db objects://"] {
        run(move |env| async move {
            let mut db = builder(&env, uri).open().await.unwrap();
            let reader = builder(&env, uri).open_reader(following()).await.unwrap();
            let shown = reader.default_keyspace();
            for number in 0u64..60 {
                db.default_keyspace().put(b"k", number.to_be_bytes()).await.unwrap();
                match number % 20 {
                    // A flush trims the log; a takeover seals it.
                    9 => db.flush().await.unwrap(),
                    14 => db = builder(&env, uri).take_over(TakeOver::Always).open().await.unwrap(),
                    19 => {
                        db.close().await.unwrap();
                        db = builder(&env, uri).open().await.unwrap();
                    }
                    _ => {}
                }
                env.sleep(LAG).await;
                assert!(reader.lag() <= LAG, "{uri}: {:?}", reader.lag());
                assert_eq!(shown.get(b"k").await.unwrap().unwrap(), number.to_be_bytes(), "{uri}");
                assert_eq!(reader.db().stats().reader_lag_nanos, Some(reader.lag().as_nanos() as u64));
            }
        });
    }
}

#[test]
fn a_write_that_is_not_durable_yet_is_not_shown() {
    run(|env| async move {
        let db = builder(&env, "file:///db").open().await.unwrap();
        let reader = builder(&env, "file:///db").open_reader(following()).await.unwrap();
        let (keys, shown) = (db.default_keyspace(), reader.default_keyspace());
        keys.put_with(b"accepted", b"1", Durability::Accepted).await.unwrap();
        keys.put_with(b"unlogged", b"1", Durability::Unlogged).await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(shown.get(b"accepted").await.unwrap(), None);
        keys.put(b"durable", b"1").await.unwrap();
        reader.refresh().await.unwrap();
        assert!(shown.get(b"accepted").await.unwrap().is_some());
        assert_eq!(shown.get(b"unlogged").await.unwrap(), None);
        db.flush().await.unwrap();
        reader.refresh().await.unwrap();
        assert!(shown.get(b"unlogged").await.unwrap().is_some());
    });
}

#[test]
fn a_flushed_write_that_no_log_holds_takes_the_place_of_an_older_one_that_a_log_held() {
    run(|env| async move {
        let db = builder(&env, "file:///db").open().await.unwrap();
        let reader = builder(&env, "file:///db").open_reader(following()).await.unwrap();
        let (keys, shown) = (db.default_keyspace(), reader.default_keyspace());
        keys.put(b"k", b"logged").await.unwrap();
        keys.put_with(b"k", b"unlogged", Durability::Unlogged).await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(shown.get(b"k").await.unwrap().unwrap(), b"logged");
        db.flush().await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(shown.get(b"k").await.unwrap().unwrap(), b"unlogged");
    });
}

#[test]
fn what_a_reader_looks_at_stays_until_it_lets_go() {
    // What there is when it is opened is pinned then; what comes later is pinned when it is shown.
    [false, true].into_iter().for_each(what_a_reader_looks_at_stays);
}

fn what_a_reader_looks_at_stays(was_there_before: bool) {
    run(move |env| async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        // Without a block cache worth the name, so that reads go to the store.
        let options = || Options::parse(["memory_bytes=1048576", "memtable_bytes=65536"]).unwrap();
        let open = || {
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(&objects), Arc::clone(&log))
                .options(options())
        };
        let db = open().open().await.unwrap();
        let keys = db.default_keyspace();
        let before =
            if was_there_before { Some(open().open_reader(following()).await.unwrap()) } else { None };
        for round in 0..4u8 {
            for key in 0..100u8 {
                keys.put([key], [round; 2000]).await.unwrap();
            }
        }
        db.flush().await.unwrap();
        let reader = match before {
            Some(reader) => reader,
            None => open().open_reader(following()).await.unwrap(),
        };
        reader.refresh().await.unwrap();
        let snapshot = reader.snapshot();
        let before = contents_at(reader.db(), &snapshot).await.unwrap();
        for key in 0..100u8 {
            keys.put([key], [9; 2000]).await.unwrap();
        }
        db.compact().await.unwrap();
        // Many leases later.
        env.sleep(Duration::from_secs(300)).await;
        db.compact().await.unwrap();
        assert_eq!(contents_at(reader.db(), &snapshot).await.unwrap(), before);
        assert_eq!(contents(reader.db()).await.unwrap(), contents(&db).await.unwrap());
        let tables = |pattern: &'static str| {
            let request =
                tombolo_storage::Request::new(tombolo_storage::Purpose::Verify, tombolo_storage::Epoch::NONE);
            let objects = Arc::clone(&objects);
            async move {
                let listed = objects.list(request, "", None, 10_000).await.unwrap().objects;
                listed.into_iter().filter(|object| object.name.as_str().contains(pattern)).count()
            }
        };
        let kept = tables("/table/").await;
        drop(snapshot);
        env.sleep(Duration::from_secs(60)).await;
        db.compact().await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        assert!(tables("/table/").await < kept, "what nothing looks at any more is deleted");
        reader.close().await.unwrap();
        assert_eq!(tables("/pin/").await, 0, "a reader that is closed leaves nothing");
    });
}

/// A table that it chose is deleted while its pin is on the way.
#[test]
fn a_pin_that_comes_too_late_keeps_nothing_and_another_is_made() {
    run(|env| async move {
        let plan = FaultPlan::scripted();
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let slow: Arc<dyn ObjectStore> =
            Arc::new(FaultObjectStore::new(&env, Arc::clone(&objects), plan.clone()));
        let options = Options::parse(["memory_bytes=1048576", "automatic_compaction=false"]).unwrap();
        let open = |objects: &Arc<dyn ObjectStore>| {
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(objects), Arc::clone(&log))
                .options(options.clone())
        };
        let db = open(&objects).open().await.unwrap();
        let keys = db.default_keyspace();
        let fill = async |round: u8| {
            for key in 0..50u8 {
                keys.put([key], [round; 300]).await.unwrap();
            }
            db.flush().await.unwrap();
        };
        fill(1).await;
        let reader = open(&slow)
            .open_reader(ReaderOptions { lag_max: Duration::from_secs(60), ..following() })
            .await
            .unwrap();
        // Looking takes a while as well: what a round shows is there for as long as the next one
        // lasts.
        plan.inject(Rule::of_kind(RequestKind::List, Fault::Delay(Duration::from_millis(20))));
        let is_pin = |asked: &Asked<'_>| {
            asked.kind == RequestKind::Put && asked.name.contains("/pin/") && !asked.name.contains('.')
        };
        plan.inject(Rule::new(is_pin, Fault::Delay(Duration::from_secs(5))).times(1));
        fill(2).await;
        env.sleep(Duration::from_secs(1)).await;
        // Nothing is flushed here, so that no log tells of it.
        db.compact().await.unwrap();
        let shown = reader.default_keyspace();
        for _ in 0..600 {
            let snapshot = reader.snapshot();
            for key in 0..50u8 {
                assert!(snapshot.get(&shown, [key]).await.unwrap().is_some());
            }
            env.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(shown.get([0]).await.unwrap().unwrap(), [2; 300]);
    });
}

#[test]
fn a_reader_that_stood_still_for_longer_than_its_lease_is_told_and_goes_on() {
    let world = World::new(3);
    let (writing, reading) = (world.process("writer"), world.process("reader"));
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let (env, tell) = (reading.env(), Arc::clone(&told));
    let writer_env = writing.env();
    let writer = writing.spawn(TaskClass::Foreground, "write", async move {
        let db = builder(&writer_env, "file:///db").open().await.unwrap();
        let keys = db.default_keyspace();
        for round in 0u64.. {
            for key in 0..40u8 {
                keys.put([key], [round as u8; 300]).await.unwrap();
            }
            db.compact().await.unwrap();
            writer_env.sleep(Duration::from_secs(1)).await;
        }
    });
    writer.detach();
    world.run_for(Duration::from_secs(3));
    let reader = reading.spawn(TaskClass::Foreground, "read", async move {
        let open =
            || builder(&env, "file:///db").memory_budget(&tombolo::MemoryBudget::new(1 << 20).unwrap());
        let reader: Reader = open().open_reader(following()).await.unwrap();
        let snapshot = reader.snapshot();
        let keys = reader.default_keyspace();
        tell.lock().push("opened".into());
        // Paused here, for longer than lease and margin.
        env.sleep(Duration::from_secs(5)).await;
        // Memory may still give values; those that lie in storage are gone.
        let mut lost = 0;
        for key in 0..40u8 {
            match snapshot.get(&keys, [key]).await {
                Ok(value) => assert!(value.is_some()),
                Err(error) => match error.kind() {
                    ErrorKind::PinLost => lost += 1,
                    ErrorKind::Retry => env.sleep(Duration::from_millis(10)).await,
                    _ => panic!("{error}"),
                },
            }
        }
        assert!(lost > 0, "nothing of the snapshot was deleted: the test shows nothing");
        reader.refresh().await.unwrap();
        for key in 0..40u8 {
            assert!(keys.get([key]).await.unwrap().is_some());
        }
        tell.lock().push("done".into());
    });
    reader.detach();
    world.run_for(Duration::from_secs(1));
    assert_eq!(*told.lock(), ["opened"]);
    reading.pause();
    world.run_for(Duration::from_secs(60));
    reading.resume();
    world.run_for(Duration::from_secs(30));
    assert_eq!(*told.lock(), ["opened", "done"]);
}

#[test]
fn a_reader_that_hears_nothing_refuses_to_read_once_it_is_too_far_behind() {
    run(|env| async move {
        let plan = FaultPlan::scripted();
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let faulty: Arc<dyn ObjectStore> =
            Arc::new(FaultObjectStore::new(&env, Arc::clone(&objects), plan.clone()));
        let open = |objects: &Arc<dyn ObjectStore>| {
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(objects), Arc::clone(&log))
                .options(options())
        };
        let db = open(&objects).open().await.unwrap();
        db.default_keyspace().put(b"k", b"1").await.unwrap();
        let reader = open(&faulty).open_reader(following()).await.unwrap();
        let keys = reader.default_keyspace();
        plan.inject(
            Rule::of_kind(RequestKind::List, Fault::Error(ErrorKind::PermissionDenied)).times(u64::MAX),
        );
        db.default_keyspace().put(b"k", b"2").await.unwrap();
        env.sleep(Duration::from_millis(700)).await;
        assert_eq!(keys.get(b"k").await.unwrap().unwrap(), b"1", "behind, but not too far");
        env.sleep(Duration::from_millis(700)).await;
        let error = keys.get(b"k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert_eq!(reader.error().unwrap().kind(), ErrorKind::PermissionDenied);
        assert_eq!(reader.refresh().await.unwrap_err().kind(), ErrorKind::PermissionDenied);
        plan.clear();
        env.sleep(LAG).await;
        assert_eq!(keys.get(b"k").await.unwrap().unwrap(), b"2");
        assert!(reader.error().is_none());
        builder(&env, "mem://nothing")
            .open_reader(following())
            .await
            .map(drop)
            .map_err(|error| error.kind())
            .unwrap_err();
    });
}

#[test]
fn an_idle_reader_makes_the_requests_that_its_lag_needs_and_no_more() {
    run(|env| async move {
        let tracer = Tracer::new(&env);
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let traced: Arc<dyn ObjectStore> =
            Arc::new(TraceObjectStore::new(Arc::clone(&objects), tracer.clone()));
        let open = |objects: &Arc<dyn ObjectStore>| {
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(objects), Arc::clone(&log))
                .options(options())
        };
        let db = open(&objects).open().await.unwrap();
        db.default_keyspace().put(b"k", b"1").await.unwrap();
        db.flush().await.unwrap();
        let reader = open(&traced).open_reader(following()).await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        tracer.reset();
        env.sleep(Duration::from_secs(60)).await;
        let of = |kind| tracer.of_kind(kind).requests;
        let rounds = 2 * Duration::from_secs(60).as_millis() as u64 / LAG.as_millis() as u64;
        // A heartbeat every third of ten seconds: a put, its proof, and the deletion of the one
        // before.
        let proven = rounds + 17 - 2..=rounds + 20 + 2;
        assert!(proven.contains(&of(RequestKind::List)), "{} lists", of(RequestKind::List));
        assert!(proven.contains(&of(RequestKind::Read)), "{} reads", of(RequestKind::Read));
        assert!((17..=20).contains(&of(RequestKind::Put)), "{} puts", of(RequestKind::Put));
        assert!(of(RequestKind::Delete) <= of(RequestKind::Put));
        drop(reader);
    });
}

/// Each rule taken out is noticed by the test that is for it.
#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, enable, notices};

    #[test]
    fn an_accepted_write_shown() {
        notices(Mutant::LogTailShowsAccepted, super::a_write_that_is_not_durable_yet_is_not_shown);
    }

    #[test]
    fn flushed_entries_kept_in_memory() {
        notices(
            Mutant::ReaderKeepsFlushedEntries,
            super::a_flushed_write_that_no_log_holds_takes_the_place_of_an_older_one_that_a_log_held,
        );
    }

    #[test]
    fn a_late_heartbeat_that_renews() {
        // The proof that a heartbeat makes stands in for the clock.
        let _unproven = enable(Mutant::LeaseRenewedUnproven);
        notices(
            Mutant::LeaseRenewedLate,
            super::a_reader_that_stood_still_for_longer_than_its_lease_is_told_and_goes_on,
        );
    }

    #[test]
    fn a_view_that_is_not_pinned() {
        notices(Mutant::ReaderViewNotPinned, super::what_a_reader_looks_at_stays_until_it_lets_go);
    }

    #[test]
    fn a_pin_released_while_something_looks_at_its_tables() {
        notices(Mutant::ReaderPinReleasedInUse, super::what_a_reader_looks_at_stays_until_it_lets_go);
    }

    #[test]
    fn a_pin_that_is_not_proven() {
        notices(
            Mutant::PinWithoutProvingTip,
            super::a_pin_that_comes_too_late_keeps_nothing_and_another_is_made,
        );
    }

    #[test]
    fn a_lease_that_never_runs_out() {
        // The proof that a heartbeat makes stands in for the clock.
        let _unproven = enable(Mutant::LeaseRenewedUnproven);
        notices(
            Mutant::LeaseNeverRunsOut,
            super::a_reader_that_stood_still_for_longer_than_its_lease_is_told_and_goes_on,
        );
    }
}
