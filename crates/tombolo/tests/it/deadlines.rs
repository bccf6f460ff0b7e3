//! Verbs of handles with a limit: they end in time, say what they waited for, give up what nobody else waits for, and disturb nobody.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Batch, Db, Durability, Env, Error, ErrorKind, Options};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::trace::{Outcome, TraceObjectStore, Tracer};
use tombolo_storage::{LogStore, ObjectStore};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

struct Stores {
    env: Env,
    plan: FaultPlan,
    tracer: Tracer,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    fn new(env: &Env) -> Stores {
        let (plan, tracer) = (FaultPlan::scripted(), Tracer::new(env));
        let objects = Arc::new(FaultObjectStore::new(env, Arc::new(MemoryObjectStore::unnamed(env)), plan.clone()));
        let objects = Arc::new(TraceObjectStore::new(objects, tracer.clone()));
        let log = Arc::new(FaultLogStore::new(env, Arc::new(MemoryLogStore::unnamed(env)), plan.clone()));
        Stores { env: env.clone(), plan, tracer, objects, log }
    }

    async fn open(&self) -> Db {
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=65536"]).unwrap();
        let builder = Db::builder("mem://deadlines").env(self.env.clone()).options(options);
        builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).open().await.unwrap()
    }

    /// A database whose keys `0` to `9` are in a table, of which nothing is in memory.
    async fn cold(&self) -> Db {
        let db = self.open().await;
        for key in 0..10u8 {
            db.default_keyspace().put([key], [key; 100]).await.unwrap();
        }
        db.flush().await.unwrap();
        db.close().await.unwrap();
        drop(db);
        let db = self.open().await;
        self.env.sleep(SECOND).await;
        self.tracer.reset();
        db
    }

    /// The next read of a table begins so much later.
    fn hold_read(&self, time: Duration) {
        let reads = |asked: &Asked<'_>| matches!(asked.kind, RequestKind::Read | RequestKind::ReadRanges) && asked.name.contains("/table/");
        self.plan.inject(Rule::new(reads, Fault::Delay(time)).times(1));
    }

    /// How reads of tables ended, in their order.
    fn reads(&self) -> Vec<Outcome> {
        let reads = self.tracer.events().into_iter().filter(|event| event.name.contains("/table/"));
        reads.map(|event| event.outcome).collect()
    }

    /// Lets tasks that were given up end.
    async fn settle(&self) {
        self.env.sleep(Duration::from_millis(1)).await;
    }

    /// What took so long from `began` ended with a deadline, and says that it waited for `what`.
    fn assert_late(&self, began: tombolo_env::Instant, error: &Error, what: &str) {
        assert!(error.kind() == ErrorKind::DeadlineExceeded && error.to_string().contains(what), "{error}");
        assert_took(self.env.now().since(began), SECOND);
    }
}

/// The world's clock goes on by a little with every step.
fn assert_took(took: Duration, expected: Duration) {
    assert!((expected..expected + Duration::from_millis(1)).contains(&took), "{took:?}");
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    let process = world.process("process");
    process.run(test(Stores::new(&process.env()))).unwrap();
}

#[test]
fn a_read_of_a_store_that_hangs_ends_in_time_and_gives_its_request_up() {
    run(|stores| async move {
        let db = stores.cold().await;
        let keys = db.default_keyspace().within(SECOND);
        stores.hold_read(HOUR);
        let began = stores.env.now();
        let error = keys.get([1]).await.unwrap_err();
        stores.assert_late(began, &error, "/table/");
        assert!(error.to_string().contains("the get waited for"), "{error}");
        stores.settle().await;
        assert_eq!(stores.reads(), [Outcome::Dropped]);
        assert_eq!(keys.get([1]).await.unwrap().unwrap(), [1; 100], "it hung once");
        // What memory answers is there at the call.
        stores.hold_read(HOUR);
        assert_eq!(keys.get([1]).try_take().unwrap().unwrap().unwrap(), [1; 100]);
    });
}

#[test]
fn every_read_of_a_limited_handle_ends_in_time() {
    for kind in 0..5 {
        run(move |stores| async move {
            let db = stores.cold().await.within(SECOND);
            let keys = db.default_keyspace();
            stores.hold_read(HOUR);
            let began = stores.env.now();
            let (error, what) = match kind {
                0 => (keys.multi_get(&[[1], [2]]).await.unwrap_err(), "multi-get"),
                1 => (keys.get_with([1], <[u8]>::to_vec).await.unwrap_err(), "get"),
                2 => (keys.approximate_size([2_u8]..[5_u8]).await.unwrap_err(), "approximate size"),
                3 => (db.snapshot().get(&keys, [1]).await.unwrap_err(), "get"),
                _ => {
                    let mut cursor = keys.cursor::<&[u8]>(..);
                    let error = cursor.seek_async([3]).await.unwrap_err();
                    assert!(cursor.seek_async([3]).await.unwrap(), "it hung once, and the cursor goes on");
                    assert_eq!(cursor.value(), [3; 100]);
                    (error, "move of a cursor")
                }
            };
            stores.assert_late(began, &error, what);
            assert!(error.to_string().contains("/table/"), "{error}");
            stores.settle().await;
            assert_eq!(stores.reads()[0], Outcome::Dropped, "{kind}");
        });
    }
}

#[test]
fn a_verification_that_a_store_holds_up_ends_in_time() {
    run(|stores| async move {
        let db = stores.cold().await.within(SECOND);
        stores.hold_read(HOUR);
        let began = stores.env.now();
        let error = db.verify().await.unwrap_err();
        stores.assert_late(began, &error, "the verification waited for");
        assert!(db.verify().await.unwrap().damage.is_empty(), "it hung once");
    });
}

/// The request that several wait for is that of the first, with its deadline, which the store heeds. Who has longer is not disturbed by it.
#[test]
fn whoever_waits_for_the_same_block_longer_gets_it() {
    run(|stores| async move {
        let db = stores.cold().await;
        let keys = db.default_keyspace();
        stores.hold_read(5 * SECOND);
        let (began, short) = (stores.env.now(), keys.within(SECOND).get([1]));
        stores.env.sleep(SECOND / 10).await;
        let (longer, unlimited) = (keys.within(10 * SECOND).get([1]), keys.get([1]));
        stores.assert_late(began, &short.await.unwrap_err(), "/table/");
        assert_eq!(longer.await.unwrap().unwrap(), [1; 100]);
        assert_eq!(unlimited.await.unwrap().unwrap(), [1; 100]);
        assert_took(stores.env.now().since(began), 5 * SECOND);
        let reads = stores.reads();
        assert_eq!(reads[0], Outcome::Error(ErrorKind::DeadlineExceeded), "the first request had the deadline of the first: {reads:?}");
        assert!(reads[1..].iter().all(|outcome| *outcome != reads[0]), "{reads:?}");
    });
}

#[test]
fn a_write_that_the_log_holds_up_ends_in_time_and_takes_effect() {
    for kind in 0..3 {
        run(move |stores| async move {
            let db = stores.open().await;
            let late = db.within(SECOND);
            let what = if kind == 2 { RequestKind::LogAppend } else { RequestKind::LogSync };
            stores.plan.inject(Rule::of_kind(what, Fault::Delay(5 * SECOND)).times(1));
            let began = stores.env.now();
            let mut batch = Batch::new();
            batch.put(&late.default_keyspace(), b"k", b"v");
            let write = match kind {
                0 => late.default_keyspace().put(b"k", b"v"),
                1 => late.write(batch),
                _ => late.default_keyspace().put_with(b"k", b"v", Durability::Accepted),
            };
            let error = write.await.unwrap_err();
            stores.assert_late(began, &error, "the write waited for the log");
            assert!(db.failure().is_none());
            let keys = db.default_keyspace();
            keys.put(b"l", b"w").await.unwrap();
            drop((db, late, keys));
            let keys = stores.open().await.default_keyspace();
            assert_eq!(keys.get(b"k").await.unwrap().unwrap(), b"v", "the log went on with it");
            assert_eq!(keys.get(b"l").await.unwrap().unwrap(), b"w");
        });
    }
}

#[test]
fn what_goes_on_in_the_background_goes_on() {
    run(|stores| async move {
        let db = stores.open().await;
        db.default_keyspace().put(b"k", b"v").await.unwrap();
        stores.plan.inject(Rule::of_kind(RequestKind::Create, Fault::Delay(5 * SECOND)).times(1));
        let began = stores.env.now();
        stores.assert_late(began, &db.within(SECOND).flush().await.unwrap_err(), "the flush waited for tables");
        db.flush().await.unwrap();
        assert_took(stores.env.now().since(began), 5 * SECOND);
        assert_eq!(db.stats().flushes, 1, "it is the same flush");
    });
}

#[test]
fn a_write_that_finds_no_room_ends_in_time() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        stores.plan.inject(Rule::of_kind(RequestKind::Create, Fault::Delay(HOUR)).times(1));
        let mut waiting = Vec::new();
        for index in 0..1000u32 {
            match keys.put_with(index.to_be_bytes(), vec![7; 8 << 10], Durability::Accepted).try_take() {
                Ok(ended) => ended.unwrap(),
                Err(op) => {
                    waiting.push(op);
                    break;
                }
            }
        }
        // Writers are slowed first; then they wait for room.
        while db.stats().memtables_waiting < 3 && waiting.len() < 100 {
            waiting.push(keys.put_with([waiting.len() as u8], vec![7; 8 << 10], Durability::Unlogged));
            stores.env.sleep(SECOND).await;
        }
        let began = stores.env.now();
        let error = keys.within(SECOND).put_with(b"late", vec![7; 40 << 10], Durability::Accepted).await.unwrap_err();
        stores.assert_late(began, &error, "room in memory");
    });
}

/// Threads that wait take the work over; that ends in time as well.
#[test]
fn a_thread_that_waits_is_let_go_in_time() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let stores = Stores::new(&env);
    let db = env.block_on(stores.cold());
    let limited = db.within(SECOND);
    for kind in 0..4 {
        stores.hold_read(HOUR);
        let began = env.now();
        let error = match kind {
            0 => limited.blocking().default_keyspace().get([1]).map(drop),
            1 => limited.blocking().default_keyspace().multi_get(&[[1], [2]]).map(drop),
            2 => limited.default_keyspace().get([1]).wait().map(drop),
            _ => limited.default_keyspace().cursor::<&[u8]>(..).seek([1]).map(drop),
        };
        stores.assert_late(began, &error.unwrap_err(), "/table/");
        env.block_on(stores.settle());
        assert_eq!(stores.reads(), vec![Outcome::Dropped; kind + 1]);
    }
    assert_eq!(limited.blocking().default_keyspace().get([1]).unwrap().unwrap(), [1; 100]);
}
