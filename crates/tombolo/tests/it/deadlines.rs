//! Verbs of handles with a limit: they end in time, say what they waited for, give up what nobody
//! else waits for, and disturb nobody.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tombolo::{Batch, Db, Durability, Env, Error, ErrorKind, Options, SalvageMode};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::backend::object_log::ObjectLogStore;
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
        let objects =
            Arc::new(FaultObjectStore::new(env, Arc::new(MemoryObjectStore::unnamed(env)), plan.clone()));
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
        let reads = |asked: &Asked<'_>| {
            matches!(asked.kind, RequestKind::Read | RequestKind::ReadRanges)
                && asked.name.contains("/table/")
        };
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

/// The request that several wait for is that of the first, with its deadline, which the store
/// heeds. Who has longer is not disturbed by it.
#[test]
fn whoever_waits_for_the_same_block_longer_gets_it() {
    run(|stores| async move {
        let db = stores.cold().await;
        let keys = db.default_keyspace();
        stores.hold_read(5 * SECOND);
        let (began, mut short) = (stores.env.now(), keys.within(SECOND).get([1]));
        // A read from near begins when it is polled.
        let first = poll_fn(|context| Poll::Ready(Pin::new(&mut short).poll(context)));
        assert!(first.await.is_pending());
        stores.env.sleep(SECOND / 10).await;
        let (longer, unlimited) = (keys.within(10 * SECOND).get([1]), keys.get([1]));
        stores.assert_late(began, &short.await.unwrap_err(), "/table/");
        assert_eq!(longer.await.unwrap().unwrap(), [1; 100]);
        assert_eq!(unlimited.await.unwrap().unwrap(), [1; 100]);
        assert_took(stores.env.now().since(began), 5 * SECOND);
        let reads = stores.reads();
        assert_eq!(
            reads[0],
            Outcome::Error(ErrorKind::DeadlineExceeded),
            "the first request had the deadline of the first: {reads:?}"
        );
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
        stores.assert_late(
            began,
            &db.within(SECOND).flush().await.unwrap_err(),
            "the flush waited for tables",
        );
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
        let error =
            keys.within(SECOND).put_with(b"late", vec![7; 40 << 10], Durability::Accepted).await.unwrap_err();
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

/// What puts several things into a store goes on when its caller is let go, and nothing of it is
/// left half made.
#[test]
fn checkpoints_clones_and_closing_go_on() {
    for kind in 0..5 {
        run(move |stores| async move {
            let db = stores.cold().await;
            let late = db.within(SECOND);
            let names = async |db: &Db| {
                db.checkpoints()
                    .await
                    .unwrap()
                    .into_iter()
                    .map(|checkpoint| checkpoint.name)
                    .collect::<Vec<_>>()
            };
            if kind == 1 {
                db.checkpoint("there").await.unwrap();
            }
            let other = Stores::new(&stores.env);
            let target = || {
                Db::builder("mem://other")
                    .env(other.env.clone())
                    .stores(Arc::clone(&other.objects), Arc::clone(&other.log))
            };
            // Closing writes it to a table.
            db.default_keyspace().put_with("k", "v", Durability::Unlogged).await.unwrap();
            let plan = if kind == 3 { &other.plan } else { &stores.plan };
            let held = if kind == 1 { RequestKind::Delete } else { RequestKind::Create };
            plan.inject(Rule::of_kind(held, Fault::Delay(5 * SECOND)).times(1));
            let began = stores.env.now();
            let (error, what) = match kind {
                0 => (late.checkpoint("made").await.unwrap_err(), "checkpoint"),
                1 => (late.delete_checkpoint("there").await.unwrap_err(), "deletion of a checkpoint"),
                2 | 3 => (late.clone_to(target()).await.unwrap_err(), "clone"),
                _ => (late.close().await.unwrap_err(), "closing"),
            };
            stores.assert_late(began, &error, &format!("the {what} waited for its steps, which go on"));
            stores.env.sleep(10 * SECOND).await;
            match kind {
                0 => assert_eq!(names(&db).await, ["made"]),
                1 => assert_eq!(names(&db).await, Vec::<String>::new()),
                2 | 3 => {
                    assert_eq!(names(&db).await, Vec::<String>::new());
                    let keys = target().open().await.unwrap().default_keyspace();
                    assert_eq!(keys.get([1]).await.unwrap().unwrap(), [1; 100]);
                }
                _ => {
                    db.close().await.unwrap();
                    assert_eq!(
                        db.default_keyspace().put("k", "v").await.unwrap_err().kind(),
                        ErrorKind::Closed
                    );
                    assert_eq!(stores.open().await.default_keyspace().get("k").await.unwrap().unwrap(), b"v");
                }
            }
        });
    }
}

#[test]
fn an_applications_objects_and_logs_end_in_time() {
    run(|stores| async move {
        let open = async || {
            let builder = Db::builder("mem://deadlines").env(stores.env.clone()).application_logs(1);
            builder.stores(Arc::clone(&stores.objects), Arc::clone(&stores.log)).open().await.unwrap()
        };
        let db = open().await;
        let (objects, late) = (db.application_objects(), db.within(SECOND).application_objects());
        let object = objects.put("bytes").await.unwrap();
        let hold =
            |kind, times| stores.plan.inject(Rule::of_kind(kind, Fault::Delay(5 * SECOND)).times(times));
        for kind in 0..5 {
            let held = [
                RequestKind::Read,
                RequestKind::Length,
                RequestKind::List,
                RequestKind::Put,
                RequestKind::Delete,
            ][kind];
            hold(held, 1);
            let began = stores.env.now();
            let (error, what) = match kind {
                0 => (late.read(object, 0..5).await.unwrap_err(), "read of an object"),
                1 => (late.length(object).await.unwrap_err(), "length of an object"),
                2 => (late.list().await.unwrap_err(), "list of objects"),
                3 => (objects.clone().within(SECOND).put("more").await.unwrap_err(), "put of an object"),
                _ => (late.delete(object).await.unwrap_err(), "deletion of an object"),
            };
            stores.assert_late(began, &error, &format!("the {what} waited"));
        }
        stores.env.sleep(10 * SECOND).await;
        assert_eq!(
            objects.list().await.unwrap(),
            [object],
            "requests had the deadline, and the store heeds it"
        );
        let log = db.application_log(0).unwrap();
        let first = log.append("first").await.unwrap();
        hold(RequestKind::LogSync, 1);
        let began = stores.env.now();
        let error = log.clone().within(SECOND).append("second").await.unwrap_err();
        stores.assert_late(began, &error, "the append to an application's log waited");
        stores.env.sleep(10 * SECOND).await;
        hold(RequestKind::Put, 1);
        let began = stores.env.now();
        stores.assert_late(
            began,
            &log.clone().within(SECOND).trim(first).await.unwrap_err(),
            "the trim of an application's log waited",
        );
        stores.env.sleep(10 * SECOND).await;
        drop((db, log, objects, late));
        let db = open().await.within(SECOND);
        let log = db.application_log(0).unwrap();
        let mut earlier = log.earlier();
        hold(RequestKind::LogRead, 1);
        let began = stores.env.now();
        stores.assert_late(
            began,
            &earlier.next_async().await.unwrap_err(),
            "the read of an application's log waited for the log's store",
        );
        let entry = earlier.next_async().await.unwrap().unwrap();
        assert_eq!(
            entry.payload, "second",
            "the log went on with the append, and the manifest with the trim"
        );
        assert!(earlier.next_async().await.unwrap().is_none());
        hold(RequestKind::Put, 1);
        let began = stores.env.now();
        stores.assert_late(
            began,
            &log.release_earlier().await.unwrap_err(),
            "the release of an application's logs waited",
        );
        stores.env.sleep(10 * SECOND).await;
        assert!(log.earlier().next_async().await.unwrap().is_none());
    });
}

/// A read that was given up midway is made again: no entry is skipped, and none comes twice.
#[test]
fn a_log_of_objects_that_hangs_skips_nothing() {
    run(|stores| async move {
        let log_store: Arc<dyn LogStore> =
            Arc::new(ObjectLogStore::new(&stores.env, Arc::clone(&stores.objects), true));
        let open = async || {
            let builder = Db::builder("mem://deadlines").env(stores.env.clone()).application_logs(1);
            builder.stores(Arc::clone(&stores.objects), Arc::clone(&log_store)).open().await.unwrap()
        };
        let db = open().await;
        for number in 0..200 {
            db.application_log(0).unwrap().append(format!("{number}")).await.unwrap();
        }
        drop(db);
        let db = open().await;
        let mut earlier = db.within(SECOND).application_log(0).unwrap().earlier();
        let reads = |asked: &Asked<'_>| matches!(asked.kind, RequestKind::Read | RequestKind::ReadRanges);
        stores.plan.inject(Rule::new(reads, Fault::Delay(HOUR)).skip(3).times(40));
        let (mut texts, mut late) = (Vec::new(), 0);
        loop {
            match earlier.next_async().await {
                Ok(Some(entry)) => texts.push(String::from_utf8(entry.payload.to_vec()).unwrap()),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
                    late += 1;
                }
            }
        }
        assert!(late > 0);
        assert_eq!(texts, (0..200).map(|number| format!("{number}")).collect::<Vec<_>>());
    });
}

#[test]
fn every_verb_of_a_builder_with_a_deadline_ends_in_time() {
    for kind in 0..8 {
        run(move |stores| async move {
            let db = stores.cold().await;
            db.checkpoint("there").await.unwrap();
            db.close().await.unwrap();
            let other = Stores::new(&stores.env);
            let at = |stores: &Stores| {
                Db::builder("mem://x")
                    .env(stores.env.clone())
                    .stores(Arc::clone(&stores.objects), Arc::clone(&stores.log))
            };
            let builder = at(&stores).deadline(SECOND);
            stores.plan.inject(Rule::new(|_| true, Fault::Delay(HOUR)).times(1));
            let began = stores.env.now();
            let error = match kind {
                0 => builder.open().await.map(drop),
                1 => builder.open_read_only().await.map(drop),
                2 => builder.checkpoints().await.map(drop),
                3 => builder.delete_checkpoint("there").await,
                4 => builder.at_checkpoint("there").restore_to(at(&other)).await,
                5 => builder.survey_damage(SalvageMode::Consistent).await.map(drop),
                6 => builder.clones().await.map(drop),
                _ => builder.destroy().await.map(drop),
            };
            stores.assert_late(began, &error.unwrap_err(), "the deadline passed");
        });
    }
}

/// The last record of a restore may be on its way when the deadline passes: a caller that is told
/// to look finds it.
#[test]
fn a_restore_that_is_too_late_says_that_the_target_may_hold_it() {
    run(|stores| async move {
        let db = stores.cold().await;
        db.checkpoint("there").await.unwrap();
        db.close().await.unwrap();
        let other = Stores::new(&stores.env);
        let at = |stores: &Stores| {
            Db::builder("mem://x")
                .env(stores.env.clone())
                .stores(Arc::clone(&stores.objects), Arc::clone(&stores.log))
        };
        // The first records claim the target; the one that names its tables comes after a table was
        // made there.
        let mut has_table = false;
        let record = move |asked: &Asked<'_>| {
            has_table |= asked.name.contains("/table/");
            has_table && asked.kind == RequestKind::Put && asked.name.contains("/manifest/")
        };
        other.plan.inject(Rule::new(record, Fault::Delay(5 * SECOND)).times(1));
        let began = stores.env.now();
        let error =
            at(&stores).deadline(SECOND).at_checkpoint("there").restore_to(at(&other)).await.unwrap_err();
        stores.assert_late(began, &error, "the target may hold it already");
        stores.env.sleep(10 * SECOND).await;
        let keys = at(&other).open().await.unwrap().default_keyspace();
        assert_eq!(keys.get([1]).await.unwrap().unwrap(), [1; 100]);
    });
}
