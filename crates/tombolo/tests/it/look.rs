//! Looks: the durable state of one moment, beside a live writer, with and without the right to
//! write.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Builder, Db, Durability, Env, ErrorKind, Options, ReaderOptions, Registry};
use tombolo_env::TaskClass;
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{Epoch, LogStore, ObjectName, ObjectStore, Purpose, Request};

use super::reader::{Random, builder, contents, run, step};

const CHANGES: [RequestKind; 5] =
    [RequestKind::Put, RequestKind::Create, RequestKind::Delete, RequestKind::Copy, RequestKind::Sweep];

/// A store in memory that lets some do everything, and others only what a plan says.
struct Stores {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
    plan: FaultPlan,
}

impl Stores {
    fn new(env: &Env) -> Stores {
        let objects = Arc::new(MemoryObjectStore::unnamed(env));
        let log = Arc::new(MemoryLogStore::unnamed(env));
        Stores { env: env.clone(), objects, log, plan: FaultPlan::scripted() }
    }

    fn writer(&self) -> Builder {
        let options = Options::parse(["memory_bytes=1048576", "automatic_compaction=false"]).unwrap();
        Db::builder("mem://x")
            .env(self.env.clone())
            .stores(Arc::clone(&self.objects), Arc::clone(&self.log))
            .options(options)
    }

    /// Where the plan rules.
    fn other(&self) -> Builder {
        let objects = FaultObjectStore::new(&self.env, Arc::clone(&self.objects), self.plan.clone());
        let log = FaultLogStore::new(&self.env, Arc::clone(&self.log), self.plan.clone());
        // Nothing stays in a cache: each read goes to the store.
        let options = Options::parse(["memory_bytes=1048576"]).unwrap();
        Db::builder("mem://x").env(self.env.clone()).stores(Arc::new(objects), Arc::new(log)).options(options)
    }

    fn may_not_write(&self, kind: ErrorKind) {
        for change in CHANGES {
            self.plan.inject(Rule::of_kind(change, Fault::Error(kind)));
        }
    }

    async fn names(&self, pattern: &str) -> Vec<ObjectName> {
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let listed = self.objects.list(request, "", None, 10_000).await.unwrap().objects;
        let names = listed.into_iter().map(|object| object.name);
        names.filter(|name| name.as_str().contains(pattern)).collect()
    }
}

async fn fill(db: &Db, value: u8) {
    for number in 0..200 {
        db.default_keyspace().put(format!("key {number:04}"), [value; 1000]).await.unwrap();
    }
    db.flush().await.unwrap();
}

#[test]
fn a_look_shows_all_that_is_durable_whatever_the_writer_did_and_disturbs_nothing() {
    let places = [
        (1, "file:///db file:///db?form=mapped"),
        (2, "file:///db file:///db?form=written"),
        (3, "mem://a"),
        (4, "file:///db objects://"),
        (5, "mem://a objects://"),
    ];
    for (seed, uri) in places {
        run(move |env| async move {
            let mut random = Random(seed);
            let registry = Registry::with_defaults();
            let open = || builder(&env, uri).registry(registry.clone());
            let mut db = open().open().await.unwrap();
            for number in 0..if crate::is_deep() { 60 } else { 25 } {
                step(&env, &open, &mut db, &mut random, number).await;
                let epoch = db.epoch();
                let look = open().open_read_only().await.unwrap();
                assert_eq!(
                    contents(&look).await.unwrap(),
                    contents(&db).await.unwrap(),
                    "step {number} on {uri}"
                );
                assert_eq!(look.epoch(), epoch);
                let report = look.verify().await.unwrap();
                assert!(report.damage.is_empty(), "{report:?}");
                // The writer goes on in its epoch, and the look stays as it is.
                db.default_keyspace().put(b"beside", number.to_be_bytes()).await.unwrap();
                let before = contents(&look).await.unwrap();
                if number % 10 == 0 {
                    db.compact().await.unwrap();
                    env.sleep(Duration::from_secs(100)).await;
                    db.compact().await.unwrap();
                }
                assert_eq!(contents(&look).await.unwrap(), before);
                assert_eq!(db.epoch(), epoch);
                look.close().await.unwrap();
            }
            let error = open().open_read_only().await.unwrap().default_keyspace().put(b"k", b"v").await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::PermissionDenied);
        });
    }
}

#[test]
fn a_look_knows_its_age_and_what_it_pins_is_given_back() {
    run(|env| async move {
        let stores = Stores::new(&env);
        let db = stores.writer().open().await.unwrap();
        fill(&db, 1).await;
        db.default_keyspace().put("in the log", "2").await.unwrap();
        let look = stores.other().open_read_only().await.unwrap();
        assert_eq!(db.age(), None);
        let age = look.age().unwrap();
        assert!(age < Duration::from_secs(1), "{age:?}");
        env.sleep(Duration::from_secs(300)).await;
        assert!(look.age().unwrap() >= age + Duration::from_secs(300));
        assert_eq!(look.stats().reader_lag_nanos, Some(look.age().unwrap().as_nanos() as u64));
        let report = look.verify().await.unwrap();
        assert!(report.tables > 0 && report.log_entries == 1, "{report:?}");
        assert_eq!(stores.names("/pin/").await.len(), 2, "a pin and its heartbeat");
        look.close().await.unwrap();
        assert!(stores.names("/pin/").await.is_empty());
        db.default_keyspace().put("after", "3").await.unwrap();
    });
}

/// No right to write, or no room: nothing is even tried but the pin, and that once.
#[test]
fn a_look_goes_on_where_it_may_not_write() {
    for kind in [ErrorKind::PermissionDenied, ErrorKind::OutOfSpace] {
        run(move |env| async move {
            let stores = Stores::new(&env);
            let db = stores.writer().open().await.unwrap();
            fill(&db, 1).await;
            db.default_keyspace().put("in the log", "2").await.unwrap();
            stores.may_not_write(kind);
            let look = stores.other().open_read_only().await.unwrap();
            assert_eq!(contents(&look).await.unwrap(), contents(&db).await.unwrap());
            assert!(look.verify().await.unwrap().damage.is_empty());
            look.close().await.unwrap();
            assert_eq!(stores.plan.injected(), 1);
            // A reader says that it may keep what it shows, and so it needs the right.
            let reader = stores.other().open_reader(ReaderOptions::default()).await;
            assert_eq!(reader.unwrap_err().kind(), kind);
            db.default_keyspace().put("after", "3").await.unwrap();
        });
    }
}

#[test]
fn a_table_that_vanishes_under_a_look_without_a_pin_is_a_lost_pin_and_damage_is_damage() {
    run(|env| async move {
        let stores = Stores::new(&env);
        let db = stores.writer().open().await.unwrap();
        fill(&db, 1).await;
        stores.may_not_write(ErrorKind::PermissionDenied);
        let looks = [(); 3].map(|()| stores.other().open_read_only());
        let mut opened = Vec::new();
        for look in looks {
            opened.push(look.await.unwrap());
        }
        fill(&db, 2).await;
        db.compact().await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        assert_eq!(stores.names("/table/").await.len(), 1, "the first table is deleted");
        let read = opened[0].default_keyspace().get("key 0100").await.unwrap_err();
        let mut scan = opened[1].default_keyspace().scan::<&[u8]>(..);
        let scanned = scan.next_async().await.unwrap_err();
        let verified = opened[2].verify().await.unwrap_err();
        for error in [read, scanned, verified] {
            assert_eq!(error.kind(), ErrorKind::PinLost, "{error}");
            assert!(error.to_string().contains("--checkpoint"), "{error}");
        }
        // Looking again shows the newest.
        let again = stores.other().open_read_only().await.unwrap();
        assert_eq!(again.default_keyspace().get("key 0100").await.unwrap().unwrap(), [2; 1000]);
        // What the manifest names and is not there is damage, however busy the writer is.
        let fresh = stores.other().open_read_only().await.unwrap();
        for table in stores.names("/table/").await {
            stores.objects.delete(Request::new(Purpose::Verify, Epoch::NONE), &table).await.unwrap();
        }
        db.default_keyspace().put("more", "3").await.unwrap();
        db.flush().await.unwrap();
        let error = fresh.default_keyspace().get("key 0100").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(fresh.verify().await.unwrap().damage.len(), 1);
    });
}

#[test]
fn a_log_that_cannot_be_read_is_an_error_unless_tables_alone_are_asked_for() {
    for kind in [ErrorKind::PermissionDenied, ErrorKind::Corrupt, ErrorKind::Retry, ErrorKind::Unsupported] {
        run(move |env| async move {
            let stores = Stores::new(&env);
            let db = stores.writer().open().await.unwrap();
            fill(&db, 1).await;
            db.default_keyspace().put("in the log", "2").await.unwrap();
            stores.plan.inject(Rule::of_kind(RequestKind::LogRead, Fault::Error(kind)));
            let error = stores.other().open_read_only().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(stores.names("/pin/").await.is_empty(), "it leaves nothing");
            let tables = stores.other().tables_only().open_read_only().await.unwrap();
            let keys = tables.default_keyspace();
            assert_eq!(keys.get("key 0100").await.unwrap().unwrap(), [1; 1000]);
            assert_eq!(keys.get("in the log").await.unwrap(), None);
            let report = tables.verify().await.unwrap();
            assert!(report.tables > 0 && report.log_entries == 0, "{report:?}");
            tables.close().await.unwrap();
        });
    }
}

#[test]
fn tables_alone_are_for_looks_and_another_log_is_refused() {
    run(|env| async move {
        let stores = Stores::new(&env);
        let db = stores.writer().open().await.unwrap();
        let only = || stores.writer().tables_only();
        assert_eq!(only().open().await.unwrap_err().kind(), ErrorKind::Invalid);
        let reader = only().open_reader(ReaderOptions::default()).await;
        assert_eq!(reader.unwrap_err().kind(), ErrorKind::Invalid);
        let uri = |log: &str| builder(&env, &format!("file:///other {log}"));
        uri("file:///other").open().await.unwrap().close().await.unwrap();
        let wrong = uri("objects://").open_read_only().await;
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Invalid);
        let missing = builder(&env, "file:///nothing").open_read_only().await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(env.files().metadata(std::path::Path::new("/nothing")).is_err(), "looking made a directory");
        db.default_keyspace().put("after", "3").await.unwrap();
    });
}

/// The writer's process is dead, and its disk may only be read any more.
#[test]
fn what_a_dead_writer_left_on_a_disk_that_may_only_be_read_is_shown() {
    for form in ["mapped", "written"] {
        let world = World::new(1);
        let place = format!("file:///db file:///db?form={form}");
        let writing = world.process("writer");
        let (env, uri) = (writing.env(), place.clone());
        let written = writing.run(async move {
            let db = builder(&env, &uri).open().await.unwrap();
            fill(&db, 1).await;
            db.default_keyspace().put("durable", "2").await.unwrap();
            db.default_keyspace().put_with("accepted", "3", Durability::Accepted).await.unwrap();
            // Not closed.
            std::mem::forget(db);
        });
        written.unwrap();
        writing.kill();
        world.host(0).set_read_only(true);
        let looking = world.process("look");
        let env = looking.env();
        let looked = looking.run(async move {
            let look = builder(&env, &place).open_read_only().await.unwrap();
            let keys = look.default_keyspace();
            assert_eq!(keys.get("key 0100").await.unwrap().unwrap(), [1; 1000]);
            assert_eq!(keys.get("durable").await.unwrap().unwrap(), b"2");
            assert!(look.verify().await.unwrap().damage.is_empty());
            look.close().await.unwrap();
        });
        looked.unwrap();
    }
}

/// Looks all the time beside a writer of another process that goes on, over flushes, compactions
/// and trims of its log: each shows at least what was acknowledged before it began.
#[test]
fn looks_beside_a_busy_writer_lack_nothing_that_was_acknowledged_before() {
    for (seed, uri) in
        [(1, "file:///db"), (2, "file:///db file:///db?form=written"), (3, "file:///db objects://")]
    {
        let world = World::new(seed);
        let acknowledged = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (writing, looking) = (world.process("writer"), world.process("look"));
        let (env, told) = (writing.env(), Arc::clone(&acknowledged));
        let writer = writing.spawn(TaskClass::Foreground, "write", async move {
            let db = builder(&env, uri).open().await.unwrap();
            for number in 1u64.. {
                db.default_keyspace().put(b"n", number.to_be_bytes()).await.unwrap();
                told.store(number, std::sync::atomic::Ordering::Release);
                db.default_keyspace().put(number.to_be_bytes(), [7; 200]).await.unwrap();
                match number % 40 {
                    13 => db.flush().await.unwrap(),
                    31 => db.compact().await.unwrap(),
                    _ => env.sleep(Duration::from_millis(3)).await,
                }
            }
        });
        writer.detach();
        world.run_for(Duration::from_millis(200));
        let env = looking.env();
        let looked = looking.run(async move {
            let mut last = 0;
            for _ in 0..50 {
                let before = acknowledged.load(std::sync::atomic::Ordering::Acquire);
                let look = builder(&env, uri).open_read_only().await.unwrap();
                let found = look.default_keyspace().get(b"n").await.unwrap().unwrap();
                let found = u64::from_be_bytes(found[..].try_into().unwrap());
                assert!(found >= before && found >= last, "{found} is shown, {before} was acknowledged");
                for number in (1..found).step_by(17) {
                    let value = look.default_keyspace().get(number.to_be_bytes()).await.unwrap();
                    assert!(value.is_some(), "{number} of {found} is lacking");
                }
                last = found;
                look.close().await.unwrap();
            }
            assert!(last > 20, "the writer went on: {last}");
        });
        looked.unwrap();
    }
}
