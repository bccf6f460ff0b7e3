//! Credentials that expire while a database is open, whose log lies in the bucket too: work waits
//! for a while, and what was acknowledged is there.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Db, Env, ErrorKind, Options};
use tombolo_env::simulated::World;
use tombolo_storage::ObjectStore;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};

struct Bucket {
    env: Env,
    plan: FaultPlan,
    objects: Arc<dyn ObjectStore>,
}

impl Bucket {
    async fn open(&self) -> Db {
        let log = Arc::new(ObjectLogStore::new(&self.env, Arc::clone(&self.objects), true));
        let builder = Db::builder("mem://bucket")
            .env(self.env.clone())
            .options(Options::parse(["memory_bytes=1048576"]).unwrap());
        builder.stores(Arc::clone(&self.objects), log).open().await.unwrap()
    }

    /// Everything is refused from here on.
    fn expire(&self) {
        self.plan.inject(Rule::new(|_: &Asked<'_>| true, Fault::Error(ErrorKind::PermissionDenied)));
    }

    fn renew(&self) {
        self.plan.clear();
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Bucket) -> F) {
    let world = World::new(1);
    let process = world.process("writer");
    let (env, plan) = (process.env(), FaultPlan::scripted());
    let objects =
        Arc::new(FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan.clone()));
    process.run(test(Bucket { env, plan, objects })).unwrap();
}

#[test]
fn writes_and_flushes_wait_for_credentials_that_are_renewed_soon() {
    run(|bucket| async move {
        let db = bucket.open().await;
        let keys = db.default_keyspace();
        keys.put("before", "1").await.unwrap();
        bucket.expire();
        let (flushed, written) = (db.flush(), keys.put("meanwhile", "2"));
        bucket.env.sleep(Duration::from_secs(10)).await;
        let told = db.background_errors();
        assert!(told.iter().any(|told| told.error.kind() == ErrorKind::PermissionDenied), "{told:?}");
        // The caller that waits for the flush is told at once; it is made again by itself.
        assert_eq!(flushed.await.unwrap_err().kind(), ErrorKind::PermissionDenied);
        bucket.renew();
        written.await.unwrap();
        bucket.env.sleep(Duration::from_secs(10)).await;
        assert!(db.failure().is_none() && db.background_errors().is_empty(), "{:?}", db.background_errors());
        drop((db, keys));
        let keys = bucket.open().await.default_keyspace();
        assert_eq!(keys.get("before").await.unwrap().unwrap(), b"1");
        assert_eq!(keys.get("meanwhile").await.unwrap().unwrap(), b"2");
    });
}

#[test]
fn credentials_that_stay_expired_for_minutes_end_no_log_and_lose_nothing() {
    run(|bucket| async move {
        let db = bucket.open().await;
        let keys = db.default_keyspace();
        keys.put("before", "1").await.unwrap();
        bucket.expire();
        let error = keys.put("meanwhile", "2").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert!(error.to_string().contains("PermissionDenied"), "{error}");
        for _ in 0..300 {
            let error = keys.put("refused", "3").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            bucket.env.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(keys.get("before").await.unwrap().unwrap(), b"1", "what memory holds is read");
        bucket.renew();
        bucket.env.sleep(Duration::from_secs(10)).await;
        keys.put("after", "4").await.unwrap();
        assert!(db.failure().is_none(), "{:?}", db.failure());
        drop((db, keys));
        let keys = bucket.open().await.default_keyspace();
        for (key, value) in
            [("before", Some("1")), ("meanwhile", Some("2")), ("refused", None), ("after", Some("4"))]
        {
            let found = keys.get(key).await.unwrap();
            assert_eq!(found.as_deref(), value.map(str::as_bytes), "{key}");
        }
    });
}

#[test]
fn a_database_whose_log_is_refused_can_be_closed() {
    run(|bucket| async move {
        let db = bucket.open().await;
        let keys = db.default_keyspace();
        bucket.expire();
        keys.put("meanwhile", "2").await.unwrap_err();
        let error = db.close().await.unwrap_err();
        assert!(error.to_string().contains("PermissionDenied"), "{error}");
        bucket.renew();
        drop((db, keys));
        bucket.open().await.default_keyspace().put("after", "3").await.unwrap();
    });
}
