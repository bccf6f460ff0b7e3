//! Destroying a database that somebody reads.

use std::sync::Arc;
use std::time::Duration;

use tombolo::internals::sweep;
use tombolo::{
    Builder, CloneState, Db, Env, Error, ErrorKind, Op, OpenMode, Options, ReaderOptions, Registry,
};
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Process, World};
use tombolo_format::log_object::SEAL_BYTES;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, Rule};
use tombolo_storage::{Epoch, Life, ObjectKind, ObjectStore, Placement, Purpose, Request, Uri};

use crate::stores::{Stores, run, slow_registry};

const LEASE: Duration = Duration::from_secs(20);

fn builder(env: &Env) -> Builder {
    Db::builder("file:///db")
        .env(env.clone())
        .options(Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap())
}

fn reading() -> ReaderOptions {
    ReaderOptions { lease: LEASE, ..ReaderOptions::default() }
}

/// Objects of the database whose names have this part.
async fn count(env: &Env, part: &str) -> usize {
    let store = Registry::with_defaults().open_object_store(env, &Uri::parse("file:///db").unwrap()).unwrap();
    let listed = store.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 10_000).await.unwrap();
    listed.objects.iter().filter(|object| object.name.as_str().contains(part)).count()
}

async fn make(env: &Env) {
    let db = builder(env).open().await.unwrap();
    for number in 0..100u8 {
        db.default_keyspace().put([number], [number; 300]).await.unwrap();
    }
    db.close().await.unwrap();
}

/// Opens a reader in a process of its own, and keeps it.
fn start_reader(process: &Process, lease: Duration) {
    let env = process.env();
    let read = async move {
        let _reader = builder(&env).open_reader(ReaderOptions { lease, ..reading() }).await.unwrap();
        env.sleep(Duration::from_secs(10_000)).await;
    };
    process.spawn(TaskClass::Foreground, "read", read).detach();
}

#[test]
fn what_a_reader_that_lives_keeps_is_told_and_goes_when_it_is_destroyed_again() {
    let world = World::new(1);
    let process = world.process("p");
    let env = process.env();
    process
        .run(async move {
            make(&env).await;
            let reader = builder(&env).open_reader(reading()).await.unwrap();
            let snapshot = reader.snapshot();
            let tables = count(&env, "/table/").await;
            let left = builder(&env).destroy().await.unwrap();
            assert_eq!((left.is_deleted(), left.readers, left.lease_max, left.lasting), (false, 1, LEASE, 0));
            assert_eq!(count(&env, "/table/").await, tables);
            assert_eq!(
                builder(&env).mode(OpenMode::Open).open().await.unwrap_err().kind(),
                ErrorKind::NotFound
            );
            for number in 0..100u8 {
                let found = snapshot.get(&reader.default_keyspace(), [number]).await;
                assert!(
                    found.is_ok_and(|found| found.unwrap() == [number; 300])
                        || reader.lag() > reading().lag_max
                );
            }
            assert_eq!(builder(&env).destroy().await.unwrap(), left, "and again, while it lives");
            drop(snapshot);
            reader.close().await.unwrap();
            assert!(builder(&env).destroy().await.unwrap().is_deleted());
            assert_eq!((count(&env, "/table/").await, count(&env, "/pin/").await), (0, 0));
            assert_eq!(builder(&env).destroy().await.unwrap_err().kind(), ErrorKind::NotFound);
            make(&env).await;
            assert!(builder(&env).destroy().await.unwrap().is_deleted(), "another life of it");
        })
        .unwrap();
}

#[test]
fn what_a_reader_that_died_kept_is_deleted_after_its_lease() {
    let world = World::new(2);
    let (process, dead) = (world.process("p"), world.process("dead"));
    let env = process.env();
    process.run({
        let env = env.clone();
        async move { make(&env).await }
    });
    start_reader(&dead, LEASE);
    world.run_for(Duration::from_secs(5));
    dead.kill();
    process
        .run(async move {
            assert!(count(&env, "/pin/").await > 0);
            let began = env.now();
            assert!(builder(&env).destroy().await.unwrap().is_deleted());
            let took = env.now().since(began);
            assert!((LEASE..LEASE + Duration::from_secs(15)).contains(&took), "{took:?}");
            assert_eq!((count(&env, "/table/").await, count(&env, "/pin/").await), (0, 0));
        })
        .unwrap();
}

/// Of a database whose log lies among its objects: `begin` is called with a store in which requests
/// for names with this part take a minute, as those of the log that come behind its claim, and
/// stands still while `meanwhile` does what it does.
fn beside<A, B>(
    part: &'static str,
    begin: fn(Builder) -> Op<A>,
    meanwhile: impl FnOnce(Builder) -> B + Send + 'static,
) -> Error
where
    A: Send + std::fmt::Debug + 'static,
    B: Future<Output = ()> + Send,
{
    let process = World::new(1).process("p");
    let env = process.env();
    process
        .run(async move {
            let far = |registry| builder(&env).log("objects://").registry(registry);
            let db = far(Registry::with_defaults()).open().await.unwrap();
            db.default_keyspace().put([1], [1]).await.unwrap();
            drop(db);
            let stale = begin(far(slow_registry(&Registry::with_defaults(), "file", part)));
            env.sleep(Duration::from_secs(5)).await;
            meanwhile(far(Registry::with_defaults())).await;
            stale.await.unwrap_err()
        })
        .unwrap()
}

/// The logs that are gone when it goes on are no damage.
#[test]
fn whoever_opens_a_database_that_is_destroyed_meanwhile_is_told_that() {
    let error = beside("/log-objects/", Builder::open, async |other| {
        assert!(other.destroy().await.unwrap().is_deleted());
    });
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn whoever_destroys_a_database_that_is_taken_over_meanwhile_is_told_that() {
    let error = beside("/log-objects/", Builder::destroy, async |other| {
        let db = other.open().await.unwrap();
        db.flush().await.unwrap();
        assert_eq!(db.default_keyspace().get([1]).await.unwrap().unwrap(), [1]);
        db.close().await.unwrap();
    });
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}

/// It was asked for one life's end, and has looked for what needs that one.
#[test]
fn whoever_destroys_a_database_in_whose_place_another_was_made_leaves_that_one() {
    let error = beside("/checkpoint/", Builder::destroy, async |other| {
        assert!(other.clone().destroy().await.unwrap().is_deleted());
        let db = other.open().await.unwrap();
        db.default_keyspace().put([2], [2]).await.unwrap();
        db.checkpoint("of the next life").await.unwrap();
        db.close().await.unwrap();
    });
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[test]
fn a_lease_of_hours_is_told_and_not_waited_for() {
    let world = World::new(4);
    let (process, dead) = (world.process("p"), world.process("dead"));
    let env = process.env();
    process.run({
        let env = env.clone();
        async move { make(&env).await }
    });
    let lease = Duration::from_secs(6 * 60 * 60);
    start_reader(&dead, lease);
    world.run_for(Duration::from_secs(5));
    dead.kill();
    process
        .run(async move {
            let began = env.now();
            let left = builder(&env).destroy().await.unwrap();
            assert_eq!((left.readers, left.lease_max, left.lasting), (1, lease, 0));
            assert!(env.now().since(began) < Duration::from_secs(180));
            assert!(count(&env, "/table/").await > 0);
        })
        .unwrap();
}

/// A checkpoint that a process began and did not finish keeps nothing of a destroyed database.
#[test]
fn what_unfinished_checkpoints_have_left_keeps_nothing() {
    let world = World::new(3);
    let process = world.process("p");
    let env = process.env();
    process
        .run(async move {
            make(&env).await;
            let store = Registry::with_defaults()
                .open_object_store(&env, &Uri::parse("file:///db").unwrap())
                .unwrap();
            let options = tombolo::internals::PinOptions {
                kind: tombolo_format::pin::PinKind::Checkpoint,
                lease: None,
            };
            let all = |state: &tombolo::internals::State| {
                state.tables().map(|table| table.description.name).collect()
            };
            drop(tombolo::internals::pin(&env, &store, options, all).await.unwrap());
            assert!(builder(&env).destroy().await.unwrap().is_deleted());
            assert_eq!((count(&env, "/table/").await, count(&env, "/pin/").await), (0, 0));
        })
        .unwrap();
}

/// A destroy that fails while it frees the logs, and is made again: nothing of them is left but
/// their seals, wherever they lie.
#[test]
fn what_a_destroy_that_failed_left_of_the_logs_goes_when_it_is_destroyed_again() {
    for (is_paired, flushes) in [(true, true), (true, false), (false, true), (false, false)] {
        run(&["memory_bytes=1048576", "memtable_bytes=4096"], move |mut stores: Stores| async move {
            let at: Arc<dyn ObjectStore> = match is_paired {
                true => Arc::clone(&stores.objects),
                false => Arc::new(FaultObjectStore::new(
                    &stores.env,
                    Arc::new(MemoryObjectStore::unnamed(&stores.env)),
                    stores.plan.clone(),
                )),
            };
            stores.log = Arc::new(ObjectLogStore::new(&stores.env, Arc::clone(&at), is_paired));
            let db = stores.open(&[]).await;
            for number in 0..10u8 {
                db.default_keyspace().put([number], [number; 300]).await.unwrap();
            }
            if flushes {
                db.flush().await.unwrap();
                db.default_keyspace().put([10], [10]).await.unwrap();
            }
            drop(db);
            let of_log =
                |asked: &Asked<'_>| asked.kind == RequestKind::Delete && asked.name.contains("/log-objects/");
            stores.plan.inject(Rule::new(of_log, Fault::Error(ErrorKind::PermissionDenied)));
            let failed = stores.builder(&[]).destroy().await.unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::PermissionDenied, "{failed}");
            stores.plan.clear();
            assert!(stores.builder(&[]).destroy().await.unwrap().is_deleted());
            let listed = at.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 10_000).await.unwrap();
            let logs: Vec<_> = listed
                .objects
                .iter()
                .filter(|object| object.name.as_str().contains("/log-objects/"))
                .collect();
            assert!(
                !logs.is_empty() && logs.iter().all(|object| object.length == SEAL_BYTES as u64),
                "{is_paired} {flushes}: {logs:?}"
            );
            assert_eq!(stores.builder(&[]).destroy().await.unwrap_err().kind(), ErrorKind::NotFound);
        });
    }
}

/// What `tombolo gc --delete` does.
async fn collect_garbage(env: &Env) {
    let store = Registry::with_defaults().open_object_store(env, &Uri::parse("file:///db").unwrap()).unwrap();
    sweep::expire(env, &store).await.unwrap();
    let garbage = sweep::survey(env, &store).await.unwrap();
    sweep::delete(env, &store, &garbage).await.unwrap();
}

/// A reader of a life that has ended keeps its tables while it lives, another life or not; once it
/// has died, they are garbage.
#[test]
fn what_a_reader_of_an_earlier_life_kept_is_garbage_once_it_has_died() {
    let world = World::new(5);
    let (process, reader) = (world.process("p"), world.process("reader"));
    let env = process.env();
    process.run({
        let env = env.clone();
        async move { make(&env).await }
    });
    start_reader(&reader, LEASE);
    world.run_for(Duration::from_secs(5));
    process
        .run({
            let env = env.clone();
            async move {
                assert_eq!(builder(&env).destroy().await.unwrap().readers, 1);
                make(&env).await;
                let tables = count(&env, "0000000000000001/table/").await;
                collect_garbage(&env).await;
                assert!(
                    tables > 0 && count(&env, "0000000000000001/table/").await == tables,
                    "while it lives"
                );
            }
        })
        .unwrap();
    reader.kill();
    process
        .run(async move {
            let of_the_next = count(&env, "0000000000000002/").await;
            collect_garbage(&env).await;
            assert_eq!(
                (count(&env, "0000000000000001/table/").await, count(&env, "0000000000000001/pin/").await),
                (0, 0)
            );
            assert_eq!(count(&env, "0000000000000002/").await, of_the_next);
            let db = builder(&env).open().await.unwrap();
            assert_eq!(db.default_keyspace().get([7]).await.unwrap().unwrap(), [7; 300]);
        })
        .unwrap();
}

#[test]
fn an_earlier_life_that_cannot_be_read_hinders_no_collection() {
    let process = World::new(7).process("p");
    let env = process.env();
    process
        .run(async move {
            make(&env).await;
            builder(&env).destroy().await.unwrap();
            make(&env).await;
            let store = Registry::with_defaults()
                .open_object_store(&env, &Uri::parse("file:///db").unwrap())
                .unwrap();
            let request = Request::new(Purpose::Verify, Epoch::NONE);
            let left = store.list(request, "0000000000000001/manifest/", None, 1000).await.unwrap().objects;
            assert!(!left.is_empty());
            for object in left {
                store.delete(request, &object.name).await.unwrap();
                let placement = Placement::new(ObjectKind::Manifest, Life::Long);
                store
                    .put_if_absent(request, &object.name, placement, b"damaged".as_slice().into())
                    .await
                    .unwrap();
            }
            collect_garbage(&env).await;
            let db = builder(&env).open().await.unwrap();
            assert_eq!(db.default_keyspace().get([7]).await.unwrap().unwrap(), [7; 300]);
        })
        .unwrap();
}

/// The same of a clone: once nothing of its ended life is pinned, its source need not keep what it
/// shared.
#[test]
fn what_a_reader_of_an_earlier_life_of_a_clone_kept_at_its_source_is_not_needed_once_it_has_died() {
    let world = World::new(6);
    let (process, reader) = (world.process("p"), world.process("reader"));
    let env = process.env();
    let source = |env: &Env| Db::builder("file:///source").env(env.clone());
    process
        .run({
            let env = env.clone();
            async move {
                let db = source(&env).open().await.unwrap();
                db.default_keyspace().put(b"k", b"v").await.unwrap();
                db.share_to(builder(&env)).await.unwrap();
                db.close().await.unwrap();
            }
        })
        .unwrap();
    start_reader(&reader, LEASE);
    world.run_for(Duration::from_secs(5));
    process.run({
        let env = env.clone();
        async move {
            assert_eq!(builder(&env).destroy().await.unwrap().readers, 1);
            make(&env).await;
        }
    });
    reader.kill();
    process
        .run(async move {
            assert_eq!(source(&env).clones().await.unwrap()[0].state, CloneState::Needed);
            collect_garbage(&env).await;
            assert_eq!(source(&env).clones().await.unwrap()[0].state, CloneState::Unneeded);
        })
        .unwrap();
}
