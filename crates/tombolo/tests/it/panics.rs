//! A background task that panics: those who wait for it are told, and nothing that was acknowledged
//! is lost.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tombolo::{
    Builder, Db, Durability, Env, ErrorKind, Event, KeyspaceOptions, Listener, Op, Options, ReaderOptions,
};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore, Purpose};

struct Stores {
    env: Env,
    plan: FaultPlan,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    fn builder(&self) -> Builder {
        let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=262144"]).unwrap();
        Db::builder("mem://panics")
            .env(self.env.clone())
            .options(options)
            .stores(Arc::clone(&self.objects), Arc::clone(&self.log))
    }

    /// Has the task that makes the next such request panic.
    fn panic_at(&self, when: impl FnMut(&Asked<'_>) -> bool + Send + 'static) {
        self.plan.inject(Rule::new(when, Fault::Before(Arc::new(|| panic!("on purpose")))).times(1));
    }

    /// What an operation ended with, a minute later.
    async fn told<T: Debug>(&self, operation: Op<T>) -> ErrorKind {
        self.env.sleep(Duration::from_secs(60)).await;
        match operation.try_take() {
            Ok(result) => result.unwrap_err().kind(),
            Err(waits) => panic!("{waits:?} after a minute"),
        }
    }

    /// What was acknowledged is there once the database is opened again.
    async fn assert_nothing_lost(&self, keys: u64) {
        let db = self.builder().open().await.unwrap();
        for number in 0..keys {
            let value = db.default_keyspace().get(number.to_be_bytes()).await.unwrap().unwrap();
            assert_eq!(value, number.to_be_bytes());
        }
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        db.close().await.unwrap();
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    world.set_panics_propagate(false);
    let process = world.process("writer");
    let (env, plan) = (process.env(), FaultPlan::scripted());
    let objects =
        Arc::new(FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan.clone()));
    let log = Arc::new(MemoryLogStore::unnamed(&env));
    process.run(test(Stores { env, plan, objects, log })).unwrap();
}

async fn put(db: &Db, number: u64) {
    db.default_keyspace().put(number.to_be_bytes(), number.to_be_bytes()).await.unwrap();
}

#[test]
fn writers_are_told_of_a_flush_that_panicked() {
    run(|stores| async move {
        let db = stores.builder().open().await.unwrap();
        put(&db, 0).await;
        stores.panic_at(|asked| asked.kind == RequestKind::Create && asked.purpose == Purpose::Flush);
        assert_eq!(stores.told(db.flush()).await, ErrorKind::Bug);
        assert_eq!(db.failure().unwrap().kind(), ErrorKind::Bug);
        let keys = db.default_keyspace();
        assert_eq!(stores.told(keys.put_with(b"k", b"v", Durability::Accepted)).await, ErrorKind::Bug);
        assert_eq!(keys.get(0u64.to_be_bytes()).await.unwrap().unwrap(), 0u64.to_be_bytes(), "reads go on");
        assert_eq!(stores.told(db.close()).await, ErrorKind::Bug);
        stores.assert_nothing_lost(1).await;
    });
}

/// A flush of several small tables writes them side by side, in tasks of its own. What such a part
/// has written is never named: it is told, as any failure is, and made again.
#[test]
fn a_part_of_a_flush_that_panicked_is_made_again() {
    run(|stores| async move {
        let db = stores.builder().open().await.unwrap();
        put(&db, 0).await;
        for number in 0..4 {
            let keys =
                db.create_keyspace(&format!("keyspace-{number}"), KeyspaceOptions::default()).await.unwrap();
            keys.put(b"k", b"v").await.unwrap();
        }
        let creates =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.purpose == Purpose::Flush;
        stores.plan.inject(Rule::new(creates, Fault::Delay(Duration::from_millis(10))));
        // The first is the flush's own.
        stores
            .plan
            .inject(Rule::new(creates, Fault::Before(Arc::new(|| panic!("on purpose")))).skip(1).times(2));
        let flushed = db.flush();
        stores.env.sleep(Duration::from_millis(15)).await;
        let told = db.background_errors();
        assert!(
            told.len() == 1 && told[0].work == "flush" && told[0].error.kind() == ErrorKind::Bug,
            "{told:?}"
        );
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(flushed.try_take().is_ok(), "whoever waits is told");
        assert!(db.failure().is_none() && db.background_errors().is_empty());
        put(&db, 1).await;
        db.close().await.unwrap();
        stores.assert_nothing_lost(2).await;
    });
}

/// One that panics whenever it is made is not made for ever: the handle ends, and says why.
#[test]
fn a_part_of_a_flush_that_always_panics_ends_the_handle() {
    run(|stores| async move {
        let db = stores.builder().open().await.unwrap();
        put(&db, 0).await;
        let keys = db.create_keyspace("other", KeyspaceOptions::default()).await.unwrap();
        keys.put(b"k", b"v").await.unwrap();
        let creates =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.purpose == Purpose::Flush;
        // Both parts begin; the first is the flush's own.
        let mut begun = 0;
        let second = move |asked: &Asked<'_>| {
            begun += u32::from(creates(asked));
            creates(asked) && begun.is_multiple_of(2)
        };
        stores.plan.inject(Rule::new(second, Fault::Before(Arc::new(|| panic!("on purpose")))));
        let flushed = db.flush();
        stores.env.sleep(Duration::from_secs(3600)).await;
        assert_eq!(flushed.try_take().unwrap().unwrap_err().kind(), ErrorKind::Bug);
        assert_eq!(db.failure().unwrap().kind(), ErrorKind::Bug);
        assert_eq!(db.default_keyspace().put(b"k", b"v").await.unwrap_err().kind(), ErrorKind::Bug);
        stores.plan.clear();
        drop(db);
        stores.assert_nothing_lost(1).await;
    });
}

#[test]
fn writers_are_told_of_a_compaction_that_panicked() {
    run(|stores| async move {
        let db = stores.builder().open().await.unwrap();
        for number in 0..3 {
            put(&db, number).await;
            db.flush().await.unwrap();
        }
        stores.panic_at(|asked| asked.kind == RequestKind::Create && asked.purpose == Purpose::Compaction);
        assert_eq!(stores.told(db.compact()).await, ErrorKind::Bug);
        assert_eq!(stores.told(db.default_keyspace().put(b"k", b"v")).await, ErrorKind::Bug);
        assert_eq!(stores.told(db.close()).await, ErrorKind::Bug);
        stores.assert_nothing_lost(3).await;
    });
}

#[test]
fn writers_are_told_of_a_manifest_whose_task_panicked() {
    run(|stores| async move {
        let db = stores.builder().open().await.unwrap();
        put(&db, 0).await;
        stores.panic_at(|asked| asked.kind == RequestKind::Put && asked.purpose == Purpose::Manifest);
        assert_eq!(stores.told(db.flush()).await, ErrorKind::OutcomeUnknown);
        assert_eq!(stores.told(db.flush()).await, ErrorKind::OutcomeUnknown);
        assert_eq!(stores.told(db.close()).await, ErrorKind::OutcomeUnknown);
        stores.assert_nothing_lost(1).await;
    });
}

#[test]
fn whoever_refreshes_a_reader_is_told_of_a_round_that_panicked() {
    run(|stores| async move {
        let plan = FaultPlan::scripted();
        let objects = Arc::new(FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), plan.clone()));
        let db = stores.builder().open().await.unwrap();
        put(&db, 0).await;
        let reader = stores
            .builder()
            .stores(objects, Arc::clone(&stores.log))
            .open_reader(ReaderOptions::default())
            .await
            .unwrap();
        let keys = reader.default_keyspace();
        plan.inject(
            Rule::of_kind(RequestKind::List, Fault::Before(Arc::new(|| panic!("on purpose")))).times(1),
        );
        for _ in 0..2 {
            assert_eq!(stores.told(reader.refresh()).await, ErrorKind::Bug);
            assert_eq!(
                keys.get(0u64.to_be_bytes()).await.unwrap_err().kind(),
                ErrorKind::Retry,
                "it is too far behind"
            );
            let error = reader.error().unwrap();
            assert!(error.kind() == ErrorKind::Bug && error.to_string().contains("panicked"), "{error}");
        }
        stores.env.sleep(Duration::from_secs(1)).await;
        let closed = reader.close();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(closed.try_take().is_ok(), "it can be closed");
    });
}

/// Panics when it is first told of something.
#[derive(Debug, Default)]
struct Clumsy(AtomicU64);

impl Listener for Clumsy {
    fn event(&self, _event: &Event) {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "on purpose");
    }
}

#[test]
fn a_listener_that_panics_is_told_of_what_follows() {
    run(|stores| async move {
        let clumsy = Arc::new(Clumsy::default());
        let db = stores.builder().listener(Arc::clone(&clumsy) as Arc<dyn Listener>).open().await.unwrap();
        for number in 0..3 {
            put(&db, number).await;
            db.flush().await.unwrap();
            stores.env.sleep(Duration::from_secs(1)).await;
        }
        let told = clumsy.0.load(Ordering::Relaxed);
        assert!(told >= 6, "{told} events of three flushes");
        db.close().await.unwrap();
    });
}

#[test]
fn durable_writes_are_told_of_a_log_whose_put_panicked() {
    run(|stores| async move {
        let log = Arc::new(ObjectLogStore::new(&stores.env, Arc::clone(&stores.objects), true));
        let builder =
            || stores.builder().stores(Arc::clone(&stores.objects), Arc::clone(&log) as Arc<dyn LogStore>);
        let db = builder().open().await.unwrap();
        put(&db, 0).await;
        stores.panic_at(|asked| asked.kind == RequestKind::Put && asked.purpose == Purpose::Log);
        let keys = db.default_keyspace();
        let (first, second) = (keys.put(b"a", b"1"), keys.put(b"b", b"2"));
        assert_eq!([stores.told(first).await, stores.told(second).await], [ErrorKind::Bug; 2]);
        stores.env.sleep(Duration::from_secs(60)).await;
        let closed = db.close();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert!(closed.try_take().is_ok(), "closing ends");
        let db = builder().open().await.unwrap();
        assert_eq!(db.default_keyspace().get(0u64.to_be_bytes()).await.unwrap().unwrap(), 0u64.to_be_bytes());
        db.close().await.unwrap();
    });
}
