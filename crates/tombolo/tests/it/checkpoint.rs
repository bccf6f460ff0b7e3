//! Checkpoints, reading without a claim, and databases made of checkpoints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Batch, Builder, Db, Durability, Env, ErrorKind, KeyspaceOptions, Options, Registry, Result, TakeOver,
};
use tombolo_env::simulated::{Crash, World};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{Epoch, LogStore, ObjectStore, Purpose, Request};

type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn options() -> Options {
    Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap()
}

async fn contents(db: &Db) -> Result<Contents> {
    let mut contents = Contents::new();
    for keyspace in db.keyspaces() {
        let mut scan = keyspace.scan::<&[u8]>(..);
        while let Some((key, value)) = scan.next_async().await? {
            assert_eq!(keyspace.get(&key).await?.as_ref(), Some(&value), "get and scan agree");
            contents.insert((keyspace.name().to_owned(), key.to_vec()), value.to_vec());
        }
    }
    Ok(contents)
}

/// Names of the objects under a directory of the store.
async fn objects(store: &dyn ObjectStore, part: &str) -> Vec<String> {
    let listed = store.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 100_000).await.unwrap();
    listed.objects.iter().map(|object| object.name.to_string()).filter(|name| name.contains(part)).collect()
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Env) -> F) {
    let world = World::new(1);
    let process = world.process("writer");
    process.run(test(process.env())).unwrap();
}

#[test]
fn a_checkpoint_keeps_a_cut_through_writes_drops_compaction_collection_and_takeover() {
    run(|env| async move {
        let objects_store: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let builder = || {
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(&objects_store), Arc::clone(&log))
                .options(options())
        };
        let db = builder().open().await.unwrap();
        let keys = db.default_keyspace();
        let other = db.create_keyspace("other", KeyspaceOptions::default()).await.unwrap();
        keys.put(b"durable", b"1").await.unwrap();
        keys.put_with(b"accepted", b"2", Durability::Accepted).await.unwrap();
        other.put_with(b"unlogged", b"3", Durability::Unlogged).await.unwrap();
        for index in 0..50u8 {
            other.put_with([index], [index; 300], Durability::Accepted).await.unwrap();
        }
        let before = contents(&db).await.unwrap();
        let made = db.checkpoint("monday").await.unwrap();
        assert_eq!((made.entries, made.last_sequence), (53, db.stats().last_sequence), "{made:?}");
        assert_eq!(db.checkpoint("monday").await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        for name in ["", "bell\u{7}", &"n".repeat(256)] {
            assert_eq!(db.checkpoint(name).await.unwrap_err().kind(), ErrorKind::Invalid);
        }
        keys.put(b"durable", b"changed").await.unwrap();
        keys.delete(b"accepted").await.unwrap();
        db.drop_keyspace("other").await.unwrap();
        db.create_keyspace("other", KeyspaceOptions::default())
            .await
            .unwrap()
            .put(b"new", b"4")
            .await
            .unwrap();
        db.compact().await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        drop((db, keys, other));
        // Another process takes over, and collects what it can.
        let db = builder().open().await.unwrap();
        db.default_keyspace().put(b"later", b"5").await.unwrap();
        db.compact().await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        let listed = [made];
        assert_eq!(db.checkpoints().await.unwrap(), listed);
        assert_eq!(builder().checkpoints().await.unwrap(), listed);
        let reader = builder().at_checkpoint("monday").open_read_only().await.unwrap();
        assert_eq!(contents(&reader).await.unwrap(), before);
        assert!(reader.verify().await.unwrap().damage.is_empty());
        let snapshot = reader.snapshot();
        assert_eq!(snapshot.get(&reader.default_keyspace(), b"durable").await.unwrap().unwrap(), b"1");
        // Deleting it gives the space back, and its readers learn it.
        let kept = objects(&*objects_store, "/table/").await.len();
        db.delete_checkpoint("monday").await.unwrap();
        assert_eq!(db.delete_checkpoint("monday").await.unwrap_err().kind(), ErrorKind::NotFound);
        env.sleep(Duration::from_secs(1)).await;
        let left = objects(&*objects_store, "/table/").await.len();
        assert!(left < kept, "{left} tables of {kept} are left");
        assert!(objects(&*objects_store, "/pin/").await.is_empty());
        let fresh = builder().at_checkpoint("monday").open_read_only().await;
        assert_eq!(fresh.unwrap_err().kind(), ErrorKind::NotFound);
        reader.close().await.unwrap();
        drop(reader);
    });
}

#[test]
fn a_reader_of_a_deleted_checkpoint_learns_that_its_pin_is_lost() {
    run(|env| async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let builder = || {
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(&objects), Arc::clone(&log))
                .options(options())
        };
        let db = builder().open().await.unwrap();
        db.default_keyspace().put(b"k", b"v").await.unwrap();
        db.checkpoint("c").await.unwrap();
        let at_checkpoint = builder().at_checkpoint("c").open_read_only().await.unwrap();
        db.default_keyspace().put(b"k", b"w").await.unwrap();
        db.delete_checkpoint("c").await.unwrap();
        db.compact().await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        let error = at_checkpoint.default_keyspace().get(b"k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PinLost, "{error}");
        let again = builder().open_read_only().await.unwrap();
        assert_eq!(again.default_keyspace().get(b"k").await.unwrap().unwrap(), b"w");
    });
}

#[test]
fn reading_a_checkpoint_writes_nothing_and_disturbs_no_writer() {
    run(|env| async move {
        let plan = FaultPlan::scripted();
        let memory = Arc::new(MemoryObjectStore::unnamed(&env));
        let objects: Arc<dyn ObjectStore> =
            Arc::new(FaultObjectStore::new(&env, memory.clone(), plan.clone()));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let writer =
            Db::builder("mem://x").env(env.clone()).stores(memory, Arc::clone(&log)).open().await.unwrap();
        let builder =
            || Db::builder("mem://x").env(env.clone()).stores(Arc::clone(&objects), Arc::clone(&log));
        writer.default_keyspace().put(b"flushed", b"1").await.unwrap();
        writer.checkpoint("kept").await.unwrap();
        writer.default_keyspace().put(b"later", b"2").await.unwrap();
        for kind in [
            RequestKind::Put,
            RequestKind::Create,
            RequestKind::Delete,
            RequestKind::Copy,
            RequestKind::Sweep,
        ] {
            plan.inject(Rule::of_kind(kind, Fault::Error(ErrorKind::Bug)));
        }
        let reader = builder().at_checkpoint("kept").open_read_only().await.unwrap();
        let keys = reader.default_keyspace();
        assert_eq!(keys.get(b"flushed").await.unwrap().unwrap(), b"1");
        assert_eq!(keys.get(b"later").await.unwrap(), None, "it came after");
        let mut batch = Batch::new();
        batch.put(&keys, b"k", b"v");
        let refused = [
            keys.put(b"k", b"v").await.unwrap_err(),
            keys.put_with(b"k", b"v", Durability::Unlogged).await.unwrap_err(),
            reader.write(batch).await.unwrap_err(),
            reader.flush().await.unwrap_err(),
            reader.compact().await.unwrap_err(),
            reader.checkpoint("c").await.unwrap_err(),
            reader.drop_keyspace("default").await.err().unwrap(),
            keys.set_options([("filter_bits", "0")]).await.unwrap_err(),
        ];
        let kinds: Vec<_> = refused.iter().map(tombolo::Error::kind).collect();
        assert!(
            kinds.iter().all(|kind| matches!(kind, ErrorKind::PermissionDenied | ErrorKind::Invalid)),
            "{kinds:?}"
        );
        assert!(reader.verify().await.unwrap().damage.is_empty());
        reader.close().await.unwrap();
        assert_eq!(plan.injected(), 0, "nothing was even tried");
        writer.default_keyspace().put(b"after", b"3").await.unwrap();
        let nowhere = Arc::new(MemoryObjectStore::unnamed(&env));
        let missing =
            Db::builder("mem://y").env(env.clone()).stores(nowhere, Arc::clone(&log)).open_read_only().await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(builder().at_checkpoint("c").open().await.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[test]
fn a_checkpoint_becomes_a_database_of_its_own_by_links() {
    let directory = tempfile::tempdir().unwrap();
    let uri = |name: &str| format!("file://{}/{name}", directory.path().display());
    let builder = |name: &str| -> Builder { Db::builder(uri(name)) };
    let db = builder("source").open().wait().unwrap();
    let keys = db.default_keyspace();
    let zstd = db.create_keyspace("zstd", KeyspaceOptions::default()).wait().unwrap();
    zstd.set_options([("compression", "zstd")]).wait().unwrap();
    for index in 0..1000u32 {
        keys.put_with(index.to_be_bytes(), [7; 100], Durability::Accepted).wait().unwrap();
        zstd.put_with(index.to_be_bytes(), [8; 100], Durability::Accepted).wait().unwrap();
    }
    db.drop_keyspace("zstd").wait().unwrap();
    db.create_keyspace("more", KeyspaceOptions::default()).wait().unwrap().put(b"k", b"v").wait().unwrap();
    db.checkpoint("c").wait().unwrap();
    keys.put(0u32.to_be_bytes(), b"changed").wait().unwrap();
    builder("source").at_checkpoint("c").restore_to(builder("target")).wait().unwrap();
    let links = |name: &str| -> Vec<u64> {
        let tables = directory.path().join(name).join("0000000000000001/table");
        let files = std::fs::read_dir(tables).unwrap().map(|file| file.unwrap().metadata().unwrap());
        files.map(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata)).collect()
    };
    assert!(
        !links("target").is_empty() && links("target").iter().all(|links| *links == 2),
        "no byte was copied"
    );
    let again = builder("source").at_checkpoint("c").restore_to(builder("target")).wait().unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let target = builder("target").open().wait().unwrap();
    assert_eq!(
        target.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect::<Vec<_>>(),
        ["default", "more"]
    );
    assert_eq!(target.default_keyspace().get(0u32.to_be_bytes()).wait().unwrap().unwrap(), [7; 100]);
    assert_eq!(target.default_keyspace().scan::<&[u8]>(..).count(), 1000);
    // They go their own ways.
    target.default_keyspace().put(b"only here", b"1").wait().unwrap();
    target.compact().wait().unwrap();
    assert_eq!(keys.get(b"only here").wait().unwrap(), None);
    drop((db, keys, zstd));
    let error = builder("source").destroy().wait().unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("checkpoints"), "{error}");
    builder("source").delete_checkpoint("c").wait().unwrap();
    builder("source").destroy().wait().unwrap();
    drop(target);
    let target = builder("target").mode(tombolo::OpenMode::Open).open().wait().unwrap();
    assert!(target.verify().wait().unwrap().damage.is_empty());
    assert_eq!(target.default_keyspace().scan::<&[u8]>(..).count(), 1001);
    // Between stores that know nothing of each other bytes are copied.
    target.checkpoint("d").wait().unwrap();
    let registry = Registry::with_defaults();
    builder("target")
        .at_checkpoint("d")
        .restore_to(Db::builder("mem://copy").registry(registry.clone()))
        .wait()
        .unwrap();
    let copy = Db::builder("mem://copy").registry(registry).open().wait().unwrap();
    assert_eq!(copy.default_keyspace().scan::<&[u8]>(..).count(), 1001);
    assert!(copy.verify().wait().unwrap().damage.is_empty());
}

#[test]
fn a_checkpoint_that_fails_while_it_is_proven_keeps_nothing() {
    run(|env| async move {
        let plan = FaultPlan::scripted();
        let memory: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let faulty: Arc<dyn ObjectStore> =
            Arc::new(FaultObjectStore::new(&env, Arc::clone(&memory), plan.clone()));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let db = Db::builder("mem://x")
            .env(env.clone())
            .stores(faulty, log)
            .options(options())
            .open()
            .await
            .unwrap();
        let keys = db.default_keyspace();
        keys.put(b"k", b"1").await.unwrap();
        // What opening sweeps is swept.
        env.sleep(Duration::from_secs(1)).await;
        for deletes_fail in [false, true] {
            let mut is_put = false;
            let lists_after = move |asked: &Asked<'_>| {
                is_put |= asked.kind == RequestKind::Put && asked.name.contains("/pin/");
                is_put && asked.kind == RequestKind::List
            };
            plan.inject(Rule::new(lists_after, Fault::Error(ErrorKind::PermissionDenied)).times(1));
            if deletes_fail {
                let pin =
                    |asked: &Asked<'_>| asked.kind == RequestKind::Delete && asked.name.contains("/pin/");
                plan.inject(Rule::new(pin, Fault::Error(ErrorKind::PermissionDenied)).times(1));
            }
            assert_eq!(db.checkpoint("c").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
            let pins = objects(&*memory, "/pin/").await;
            assert_eq!(pins.len(), usize::from(deletes_fail), "{pins:?}");
        }
        db.checkpoint("c").await.unwrap();
        assert_eq!(objects(&*memory, "/pin/").await.len(), 1, "what the attempt before left is swept");
        keys.put(b"k", b"2").await.unwrap();
        db.compact().await.unwrap();
        db.delete_checkpoint("c").await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        assert_eq!(
            (objects(&*memory, "/pin/").await.len(), objects(&*memory, "/table/").await.len()),
            (0, 1)
        );
    });
}

/// Puts other bytes in the place of an object.
async fn overwrite(store: &dyn ObjectStore, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let (request, name) =
        (Request::new(Purpose::Verify, Epoch::NONE), tombolo_storage::ObjectName::new(name).unwrap());
    let mut bytes = store.read(request, &name, 0..1 << 20).await.unwrap().to_vec();
    change(&mut bytes);
    store.delete(request, &name).await.unwrap();
    let placement =
        tombolo_storage::Placement::new(tombolo_storage::ObjectKind::Pin, tombolo_storage::Life::Long);
    store.put_if_absent(request, &name, placement, bytes.into()).await.unwrap();
}

#[test]
fn a_damaged_checkpoint_hides_no_other_and_is_deleted_by_its_id() {
    run(|env| async move {
        let store: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let builder = || {
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(&store), Arc::clone(&log))
                .options(options())
        };
        let db = builder().open().await.unwrap();
        let keys = db.default_keyspace();
        for name in ["sound", "damaged"] {
            keys.put(b"k", name.as_bytes()).await.unwrap();
            db.checkpoint(name).await.unwrap();
        }
        let id = format!("{:032x}", db.checkpoints().await.unwrap()[1].id);
        let object =
            objects(&*store, "/checkpoint/").await.into_iter().find(|name| name.ends_with(&id)).unwrap();
        overwrite(&*store, &object, |bytes| bytes[50] ^= 1).await;
        let listed = builder().checkpoints().await.unwrap();
        assert_eq!((listed.len(), &*listed[0].name, &listed[0].damage), (2, "sound", &None));
        assert!(
            format!("{:032x}", listed[1].id) == id && listed[1].damage.as_ref().unwrap().contains(&object),
            "{listed:?}"
        );
        let reader = builder().at_checkpoint("sound").open_read_only().await.unwrap();
        assert_eq!(reader.default_keyspace().get(b"k").await.unwrap().unwrap(), b"sound");
        let target = || {
            let (objects, log) =
                (Arc::new(MemoryObjectStore::unnamed(&env)), Arc::new(MemoryLogStore::unnamed(&env)));
            Db::builder("mem://y").env(env.clone()).stores(objects, log)
        };
        builder().at_checkpoint("sound").restore_to(target()).await.unwrap();
        let lost = builder().at_checkpoint("damaged").restore_to(target()).await.unwrap_err();
        assert!(lost.kind() == ErrorKind::Corrupt && lost.to_string().contains(&object), "{lost}");
        db.checkpoint("third").await.unwrap();
        db.delete_checkpoint("sound").await.unwrap();
        drop((db, keys, reader));
        let kept = builder().destroy().await.unwrap_err();
        assert!(kept.kind() == ErrorKind::Invalid && kept.to_string().contains(&id), "{kept}");
        assert_eq!(builder().delete_checkpoint("fourth").await.unwrap_err().kind(), ErrorKind::NotFound);
        builder().delete_checkpoint(&id).await.unwrap();
        let left: Vec<_> =
            builder().checkpoints().await.unwrap().into_iter().map(|checkpoint| checkpoint.name).collect();
        assert_eq!((left, objects(&*store, "/pin/").await.len()), (vec!["third".to_owned()], 1));
        builder().delete_checkpoint("third").await.unwrap();
        builder().destroy().await.unwrap();
    });
}

#[test]
fn a_writer_that_was_taken_over_sweeps_nothing_that_its_successor_is_making() {
    run(|env| async move {
        let memory: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let (stale_plan, plan) = (FaultPlan::scripted(), FaultPlan::scripted());
        let builder = |plan: &FaultPlan| {
            let store = Arc::new(FaultObjectStore::new(&env, Arc::clone(&memory), plan.clone()));
            Db::builder("mem://x").env(env.clone()).stores(store, Arc::clone(&log)).options(options())
        };
        // The one that is taken over looks for pins once the successor has put its own, and before
        // it has put the checkpoint.
        let pins = |asked: &Asked<'_>| asked.kind == RequestKind::List && asked.name.ends_with("/pin/");
        stale_plan.inject(Rule::new(pins, Fault::Delay(Duration::from_secs(5))).times(1));
        let checkpoint =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/checkpoint/");
        plan.inject(Rule::new(checkpoint, Fault::Delay(Duration::from_secs(10))).times(1));
        let stale = builder(&stale_plan).open().await.unwrap();
        let db = builder(&plan).take_over(TakeOver::Always).open().await.unwrap();
        let made = db.checkpoint("c").await.unwrap();
        assert_eq!((stale_plan.injected(), plan.injected()), (1, 1));
        assert_eq!(db.checkpoints().await.unwrap(), [made], "an acknowledged checkpoint is there");
        drop(stale);
    });
}

/// The one that is taken over goes on once the newest state is its successor's.
#[test]
fn a_writer_that_was_taken_over_makes_no_checkpoint_of_its_successors_state() {
    run(|env| async move {
        let memory: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let stale_plan = FaultPlan::scripted();
        let stale_store = Arc::new(FaultObjectStore::new(&env, Arc::clone(&memory), stale_plan.clone()));
        let builder = |store: Arc<dyn ObjectStore>| {
            Db::builder("mem://x").env(env.clone()).stores(store, Arc::clone(&log)).options(options())
        };
        // After opening has swept, and the name was found free.
        let looks =
            |asked: &Asked<'_>| asked.kind == RequestKind::List && asked.name.ends_with("/checkpoint/");
        stale_plan.inject(Rule::new(looks, Fault::Delay(Duration::from_secs(5))).skip(2).times(1));
        let stale = builder(stale_store).open().await.unwrap();
        let making = stale.checkpoint("x");
        env.sleep(Duration::from_secs(1)).await;
        let db = builder(Arc::clone(&memory)).take_over(TakeOver::Always).open().await.unwrap();
        let keys = db.default_keyspace();
        keys.put(b"k", b"1").await.unwrap();
        let made = db.checkpoint("x").await.unwrap();
        keys.put(b"k", b"2").await.unwrap();
        db.flush().await.unwrap();
        assert_eq!(making.await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(stale_plan.injected(), 1);
        assert_eq!(db.checkpoints().await.unwrap(), [made], "and no other of that name");
        drop(stale);
    });
}

#[test]
fn a_table_that_was_cut_is_not_restored() {
    run(|env| async move {
        let memory: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let builder = || {
            Db::builder("mem://x")
                .env(env.clone())
                .stores(Arc::clone(&memory), Arc::clone(&log))
                .options(options())
        };
        let db = builder().open().await.unwrap();
        db.default_keyspace().put(b"k", [7; 3000]).await.unwrap();
        db.checkpoint("c").await.unwrap();
        let table = objects(&*memory, "/table/").await.remove(0);
        overwrite(&*memory, &table, |bytes| bytes.truncate(bytes.len() - 1)).await;
        let other = || Db::builder("mem://other").env(env.clone()).options(options());
        let error = builder().at_checkpoint("c").restore_to(other()).await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::Corrupt
                && error.object_name().is_some_and(|name| table.ends_with(name)),
            "{error}"
        );
    });
}

/// What a script has made, told outside the world.
#[derive(Debug, Default)]
struct Told {
    made: BTreeMap<String, Contents>,
    begun: Option<(String, bool)>,
}

/// Makes and deletes checkpoints between writes.
async fn script(env: Env, told: Arc<Mutex<Told>>) -> Result<()> {
    let alive = || {
        !env.files()
            .metadata(std::path::Path::new("/db"))
            .is_err_and(|error| tombolo_env::simulated::is_crash(&error))
    };
    let db = Db::builder("file:///db").env(env.clone()).options(options()).open().await?;
    let keys = db.default_keyspace();
    for number in 0..5u8 {
        for key in 0..8u8 {
            keys.put_with([key], [number; 200], Durability::Accepted).await?;
        }
        let name = format!("c{number}");
        if !alive() {
            break;
        }
        told.lock().begun = Some((name.clone(), true));
        db.checkpoint(&name).await?;
        if alive() {
            let content = contents(&db).await?;
            told.lock().made.insert(name, content);
        }
        if number % 2 == 1 {
            let name = format!("c{}", number - 1);
            if !alive() {
                break;
            }
            {
                let mut told = told.lock();
                told.begun = Some((name.clone(), false));
                told.made.remove(&name);
            }
            db.delete_checkpoint(&name).await?;
        }
        if alive() {
            told.lock().begun = None;
        }
        db.compact().await?;
    }
    db.close().await
}

#[test]
fn a_crash_at_any_moment_leaves_every_acknowledged_checkpoint_and_nothing_half_made() {
    let total = {
        let world = World::new(3);
        let writer = world.process("writer");
        writer.run(script(writer.env(), Arc::default())).unwrap().unwrap();
        writer.mutations()
    };
    assert!(total > 100, "{total} mutations");
    for crash in [Crash::Kill, Crash::PowerLoss] {
        for number in (1..=total).step_by(if crate::is_deep() { 1 } else { 13 }) {
            let world = World::new(3);
            let writer = world.process("writer");
            writer.crash_at_mutation(number, crash);
            let told: Arc<Mutex<Told>> = Arc::default();
            let _ended = writer.run(script(writer.env(), Arc::clone(&told)));
            let told = std::mem::take(&mut *told.lock());
            let checker = world.process("checker");
            let env = checker.env();
            let check = async move {
                let builder = || Db::builder("file:///db").env(env.clone()).options(options());
                let db = builder().open().await?;
                env.sleep(Duration::from_secs(1)).await;
                db.compact().await?;
                env.sleep(Duration::from_secs(1)).await;
                let found: Vec<_> =
                    db.checkpoints().await?.into_iter().map(|checkpoint| checkpoint.name).collect();
                for (name, content) in &told.made {
                    assert!(found.contains(name), "{name} of {found:?} was acknowledged");
                    let reader = builder().at_checkpoint(name).open_read_only().await?;
                    assert_eq!(&contents(&reader).await?, content, "{name}");
                }
                for name in &found {
                    let began = told.begun.as_ref().is_some_and(|(begun, _)| begun == name);
                    assert!(
                        told.made.contains_key(name) || began,
                        "{name} was never made, or its deletion was acknowledged"
                    );
                    let reader = builder().at_checkpoint(name).open_read_only().await?;
                    assert!(reader.verify().await?.damage.is_empty());
                }
                let store = tombolo_storage::Registry::with_defaults()
                    .open_object_store(&env, &tombolo_storage::Uri::parse("file:///db")?)?;
                let (pins, whole) = (objects(&*store, "/pin/").await, objects(&*store, "/checkpoint/").await);
                assert_eq!(
                    (pins.len(), whole.len()),
                    (found.len(), found.len()),
                    "what was half made is swept: {pins:?}, {whole:?}"
                );
                db.close().await
            };
            let checked = checker.run(check).expect("nothing ends the checker");
            checked.unwrap_or_else(|error| panic!("{crash:?} at mutation {number} of {total}: {error}"));
        }
    }
}

#[test]
fn a_clone_is_a_database_of_its_own() {
    run(|env| async move {
        let open = |uri: &str| Db::builder(uri).env(env.clone()).options(options());
        let db = open("file:///data/a").open().await.unwrap();
        let keys = db.default_keyspace();
        let other = db.create_keyspace("other", KeyspaceOptions::default()).await.unwrap();
        for index in 0..60u8 {
            keys.put_with([index], [index; 300], Durability::Accepted).await.unwrap();
            other.put_with([index], b"unlogged", Durability::Unlogged).await.unwrap();
        }
        let before = contents(&db).await.unwrap();
        db.clone_to(open("file:///data/b")).await.unwrap();
        assert!(db.checkpoints().await.unwrap().is_empty(), "nothing of it is left");
        keys.put(b"later", b"1").await.unwrap();
        db.compact().await.unwrap();
        let clone = open("file:///data/b").open().await.unwrap();
        assert_eq!(contents(&clone).await.unwrap(), before);
        clone.default_keyspace().put(b"own", b"2").await.unwrap();
        clone.compact().await.unwrap();
        assert_eq!(keys.get(b"own").await.unwrap(), None);
        assert_eq!(clone.default_keyspace().get(b"later").await.unwrap(), None);
        // What cannot be is refused, and leaves nothing.
        assert_eq!(db.clone_to(open("file:///data/b")).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(db.clone_to(open("nonsense")).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert!(db.checkpoints().await.unwrap().is_empty());
        let (source, clone) = (db.verify().await.unwrap(), clone.verify().await.unwrap());
        assert!(source.damage.is_empty() && clone.damage.is_empty());
    });
}

#[test]
fn a_restore_onto_a_live_database_is_refused_and_its_writer_goes_on() {
    run(|env| async move {
        let registry = Registry::with_defaults();
        let builder = |name: &str| {
            Db::builder(format!("mem://{name}"))
                .env(env.clone())
                .registry(registry.clone())
                .options(options())
        };
        let source = builder("source").open().await.unwrap();
        source.default_keyspace().put(b"k", b"source").await.unwrap();
        source.checkpoint("c").await.unwrap();
        let live = builder("live").open().await.unwrap();
        let epoch = live.epoch();
        let refused = builder("source").at_checkpoint("c").restore_to(builder("live")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        live.default_keyspace().put(b"k", b"live").await.unwrap();
        live.flush().await.unwrap();
        assert_eq!(live.default_keyspace().get_confirmed(b"k").await.unwrap().unwrap(), b"live");
        assert_eq!((live.epoch(), live.failure().is_none()), (epoch, true));
    });
}

#[test]
fn a_checkpoint_after_another_says_what_came_and_is_not_made_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = tombolo::Options { automatic_compaction: false, ..tombolo::Options::default() };
    let uri = format!("file://{}/db", directory.path().display());
    let db = tombolo::Db::builder(uri).options(options).open().wait().unwrap();
    let keys = db.default_keyspace();
    for number in 0..2_000_u32 {
        keys.put_with(number.to_be_bytes(), [7; 40], tombolo::Durability::Accepted).wait().unwrap();
    }
    let first = db.checkpoint("first").wait().unwrap();
    keys.put("one", "more").wait().unwrap();
    let change = db.checkpoint_after("second", "first").wait().unwrap();
    assert_eq!((&change.parent, change.checkpoint.name.as_str()), (&first, "second"));
    assert_eq!((change.came, change.stayed, change.left), (1, 1, 0));
    assert_eq!(change.stayed_bytes, first.table_bytes);
    assert_eq!(change.came_bytes + change.stayed_bytes, change.checkpoint.table_bytes);
    db.compact().wait().unwrap();
    let change = db.checkpoint_after("third", "second").wait().unwrap();
    assert_eq!((change.came, change.stayed, change.left), (1, 0, 2));
    db.delete_checkpoint("first").wait().unwrap();
    let error = db.checkpoint_after("fourth", "first").wait().unwrap_err();
    assert_eq!(error.kind(), tombolo::ErrorKind::NotFound, "{error}");
    assert_eq!(db.checkpoints().wait().unwrap().len(), 2);
    db.close().wait().unwrap();
}
