//! Streams beside the main one: their writes, logs, keyspaces, and snapshots over all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Backups, Batch, Bring, Builder, Condition, Db, Durability, Env, ErrorKind, Keyspace, KeyspaceOptions, Op,
    OperatorName, Options, RestorePart, RestorePoint, Result, Snapshot, TakeOver,
};
use tombolo_env::simulated::{Crash, World};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{Epoch, LogStore, ObjectStore, Purpose, Registry, Request, Uri};

use crate::bucket;
use crate::streams_large::{LARGE_KEYS, Large, make};

pub const KINDS: [&str; 4] = ["memory", "objects", "mapped", "written"];

#[derive(Clone)]
pub struct Stores {
    pub env: Env,
    pub plan: FaultPlan,
    pub objects: Arc<dyn ObjectStore>,
    pub log: Arc<dyn LogStore>,
}

impl Stores {
    pub fn new(env: &Env, kind: &str) -> Stores {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
        let plan = FaultPlan::scripted();
        let log: Arc<dyn LogStore> = match kind {
            "memory" => Arc::new(MemoryLogStore::unnamed(env)),
            "objects" => {
                let objects = FaultObjectStore::new(env, Arc::clone(&objects), plan.clone());
                Arc::new(ObjectLogStore::new(env, Arc::new(objects), true))
            }
            form => {
                let uri = Uri::parse(&format!("file:///log?form={form}")).unwrap();
                Registry::with_defaults().open_log_store(env, &uri, None, &objects).unwrap()
            }
        };
        let log = Arc::new(FaultLogStore::new(env, log, plan.clone()));
        Stores { env: env.clone(), plan, objects, log }
    }

    pub fn builder(&self) -> Builder {
        let options = Options::parse(["memory_bytes=67108864", "memtable_bytes=65536"]).unwrap();
        Db::builder("mem://streams")
            .env(self.env.clone())
            .options(options)
            .stores(Arc::clone(&self.objects), Arc::clone(&self.log))
    }

    pub async fn open(&self) -> Db {
        self.builder().open().await.unwrap()
    }

    /// The lanes that the manifest names, with what they are for.
    async fn lanes(&self) -> Vec<String> {
        let loaded = tombolo::internals::load(&self.env, &self.objects).await.unwrap();
        loaded.state.logs().iter().map(|(id, log)| format!("{}: {:?}", id.lane, log.role)).collect()
    }
}

pub fn run<F: Future<Output = ()> + Send + 'static>(kind: &str, test: impl FnOnce(Stores) -> F) {
    let process = World::new(1).process("writer");
    process.run(test(Stores::new(&process.env(), kind))).unwrap();
}

pub fn of_stream(stream: u32) -> KeyspaceOptions {
    KeyspaceOptions { stream, ..KeyspaceOptions::default() }
}

pub async fn value(keys: &Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    keys.get(key).await.unwrap().map(|value| value.to_vec())
}

pub async fn at(snapshot: &Snapshot, keys: &Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    snapshot.get(keys, key).await.unwrap().map(|value| value.to_vec())
}

#[test]
fn writes_of_streams_are_found_again_on_every_log() {
    for kind in KINDS {
        run(kind, |stores| async move {
            let mut db = stores.open().await;
            for (name, stream) in [("one", 1), ("two", 2), ("also one", 1)] {
                let keys = db.create_keyspace(name, of_stream(stream)).await.unwrap();
                assert_eq!(keys.options().stream, stream);
                keys.put(b"k", name).await.unwrap();
                keys.put_with(b"accepted", b"yes", Durability::Accepted).await.unwrap();
            }
            db.default_keyspace().put(b"k", b"main").await.unwrap();
            for round in 0..3u8 {
                for (name, stream) in [("one", 1), ("two", 2), ("also one", 1)] {
                    let keys = db.keyspace(name).unwrap();
                    assert_eq!(keys.options().stream, stream, "{kind}");
                    assert_eq!(value(&keys, b"k").await.as_deref(), Some(name.as_bytes()), "{kind}");
                    assert!(value(&keys, b"accepted").await.is_some(), "{kind}");
                    for before in 0..round {
                        for number in 0..40u8 {
                            let wanted = vec![number; 900];
                            assert_eq!(value(&keys, &[before, number]).await, Some(wanted), "{kind} {name}");
                        }
                    }
                    // Some of it is flushed, some is not.
                    for number in 0..40u8 {
                        keys.put([round, number], [number; 900]).await.unwrap();
                    }
                }
                assert_eq!(value(&db.default_keyspace(), b"k").await.as_deref(), Some(&b"main"[..]));
                assert!(db.verify().await.unwrap().damage.is_empty(), "{kind}");
                match round {
                    0 => drop(db),
                    1 => {
                        db.flush().await.unwrap();
                        db.compact().await.unwrap();
                        drop(db);
                    }
                    _ => db.close().await.unwrap(),
                }
                db = stores.open().await;
            }
            assert!(db.stats().tables > 0 && db.background_errors().is_empty(), "{kind}");
        });
    }
}

#[test]
fn a_stream_has_a_lane_of_its_own_until_it_has_no_keyspace() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let one = db.create_keyspace("one", of_stream(7)).await.unwrap();
        one.put(b"k", b"v").await.unwrap();
        assert_eq!(stores.lanes().await, ["0: Main", "65536: Stream(7)"]);
        db.drop_keyspace("one").await.unwrap();
        assert_eq!(one.put(b"k", b"w").await.unwrap_err().kind(), ErrorKind::NotFound);
        drop((db, one));
        for _ in 0..2 {
            let db = stores.open().await;
            assert!(db.keyspace("one").is_err());
            db.flush().await.unwrap();
            drop(db);
        }
        assert_eq!(stores.lanes().await, ["0: Main"]);
        // Its numbers go on, and nothing of before comes back.
        let db = stores.open().await;
        let one = db.create_keyspace("one", of_stream(7)).await.unwrap();
        assert_eq!(value(&one, b"k").await, None);
        one.put(b"k", b"new").await.unwrap();
        drop((db, one));
        let one = stores.open().await.keyspace("one").unwrap();
        assert_eq!(value(&one, b"k").await.unwrap(), b"new");
    });
}

#[test]
fn a_batch_is_of_one_stream() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let (one, other) = (of_stream(1), of_stream(1));
        let one = db.create_keyspace("one", one).await.unwrap();
        let other = db.create_keyspace("other", other).await.unwrap();
        let two = db.create_keyspace("two", of_stream(2)).await.unwrap();
        let mut batch = Batch::new();
        batch.put(&one, b"a", b"1").put(&other, b"a", b"1");
        db.write(batch).await.unwrap();
        assert!(value(&one, b"a").await.is_some() && value(&other, b"a").await.is_some());
        for foreign in [&two, &db.default_keyspace()] {
            let mut batch = Batch::new();
            batch.put(&one, b"b", b"2").put(foreign, b"b", b"2");
            let error = db.write(batch).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("two streams"), "{error}");
        }
        assert_eq!(value(&one, b"b").await, None);
        let again = one.set_options([("stream", "2")]).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Invalid);
        assert_eq!(db.create_keyspace("far", of_stream(256)).await.unwrap_err().kind(), ErrorKind::Invalid);
        // A write of several threads to one stream, with conditions, is as ever.
        let is_met = one.put_if(b"a", b"3", Condition::equal(b"1")).await.unwrap();
        assert!(is_met.is_met());
    });
}

/// If a write returned before another began, no snapshot has the second without the first; and what
/// a snapshot sees stays.
#[test]
fn a_snapshot_is_one_cut_over_all_streams() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let main = db.default_keyspace();
        let early = db.snapshot();
        let one = db.create_keyspace("one", of_stream(1)).await.unwrap();
        let two = db.create_keyspace("two", of_stream(2)).await.unwrap();
        let all = [&main, &one, &two];
        let mut held = Vec::new();
        for round in 0..60u64 {
            for (place, keys) in all.iter().enumerate() {
                keys.put_with(b"k", (3 * round + place as u64).to_be_bytes(), Durability::Accepted)
                    .await
                    .unwrap();
                if (round + place as u64).is_multiple_of(4) {
                    held.push((db.snapshot(), round, place));
                }
                if round % 16 == 15 {
                    keys.put([7, round as u8], vec![1; 30_000]).await.unwrap();
                }
            }
            if round % 20 == 7 {
                db.flush().await.unwrap();
            }
            if round % 20 == 17 {
                db.compact().await.unwrap();
            }
        }
        for again in 0..2 {
            for (snapshot, round, last) in &held {
                for (place, keys) in all.iter().enumerate() {
                    let rounds = if place <= *last { Some(*round) } else { round.checked_sub(1) };
                    let wanted = rounds.map(|round| (3 * round + place as u64).to_be_bytes().to_vec());
                    let what = format!("round {round}, after {last}, stream {place}, {again}");
                    assert_eq!(at(snapshot, keys, b"k").await, wanted, "{what}");
                    let mut cursor = snapshot.cursor::<&[u8]>(keys, ..);
                    assert_eq!(cursor.seek_async(b"k").await.unwrap(), wanted.is_some(), "{what}");
                    assert_eq!(wanted.is_some().then(|| cursor.value().to_vec()), wanted, "{what}");
                }
            }
            db.compact().await.unwrap();
        }
        for keys in [&one, &two] {
            assert_eq!(at(&early, keys, b"k").await, None);
        }
        drop(held);
        db.compact().await.unwrap();
        assert!(value(&two, b"k").await.is_some());
    });
}

/// A stream meets a cut once, in a commit, a read, or a job: that which comes first.
#[test]
fn what_a_snapshot_sees_of_a_stream_is_fixed_once() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let one = db.create_keyspace("one", of_stream(1)).await.unwrap();
        one.put(b"k", b"1").await.unwrap();
        let (by_commit, by_read, by_job) = (db.snapshot(), db.snapshot(), db.snapshot());
        assert_eq!(at(&by_read, &one, b"k").await.unwrap(), b"1");
        db.flush().await.unwrap();
        for number in 2..6u8 {
            one.put(b"k", [b'0' + number]).await.unwrap();
            db.compact().await.unwrap();
            for snapshot in [&by_commit, &by_read, &by_job] {
                assert_eq!(at(snapshot, &one, b"k").await.unwrap(), b"1");
            }
        }
    });
}

#[test]
fn values_of_streams_expire_by_the_time_of_the_database() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let one = db.create_keyspace("one", of_stream(1)).await.unwrap();
        one.put_ttl(b"k", b"v", Duration::from_secs(600)).await.unwrap();
        let snapshot = db.snapshot();
        assert!(value(&one, b"k").await.is_some());
        stores.env.sleep(Duration::from_secs(700)).await;
        assert!(value(&one, b"k").await.is_none());
        assert!(at(&snapshot, &one, b"k").await.is_some());
        drop(snapshot);
        stores.env.sleep(Duration::from_secs(2 * 3600)).await;
        db.compact().await.unwrap();
        assert!(value(&one, b"k").await.is_none());
        assert_eq!(db.stats().tables, 0);
    });
}

#[test]
fn what_does_not_know_streams_refuses_them() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let followed = db.subscribe("all", 1 << 20).await.unwrap();
        let begun = db.create_keyspace("one", of_stream(1)).await;
        assert_eq!(begun.unwrap_err().kind(), ErrorKind::Unsupported);
        drop(followed);
        db.unsubscribe("all").await.unwrap();
        let one = db.create_keyspace("one", of_stream(1)).await.unwrap();
        one.put(b"k", b"v").await.unwrap();
        let refused = |error: tombolo::Error| {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("stream"), "{error}");
        };
        refused(db.subscribe("all", 1 << 20).await.unwrap_err());
        refused(one.subscribe("one", 1 << 20).await.unwrap_err());
        db.default_keyspace().put(b"k", b"v").await.unwrap();
        db.close().await.unwrap();
    });
}

/// A successor finds what was durable; the writer before learns that it is fenced, in every
/// stream.
#[test]
fn a_takeover_fences_all_lanes() {
    for kind in KINDS {
        run(kind, |stores| async move {
            let before = stores.open().await;
            let one = before.create_keyspace("one", of_stream(1)).await.unwrap();
            one.put(b"k", b"v").await.unwrap();
            let db = stores.builder().take_over(TakeOver::Always).open().await.unwrap();
            assert_eq!(one.put(b"k", b"late").await.unwrap_err().kind(), ErrorKind::Fenced, "{kind}");
            let of_main = before.default_keyspace().put(b"k", b"late").await;
            assert_eq!(of_main.unwrap_err().kind(), ErrorKind::Fenced, "{kind}");
            assert_eq!(value(&db.keyspace("one").unwrap(), b"k").await.unwrap(), b"v", "{kind}");
        });
    }
}

#[test]
fn a_lane_that_ends_is_followed_by_another() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let one = db.create_keyspace("one", of_stream(1)).await.unwrap();
        one.put(b"1", b"durable").await.unwrap();
        one.put_with(b"2", b"unlogged", Durability::Unlogged).await.unwrap();
        let name = format!("{}/{}", db.epoch(), 1 << 16);
        let of_lane = move |asked: &Asked<'_>| {
            matches!(asked.kind, RequestKind::LogAppend | RequestKind::LogSync) && asked.name == name
        };
        stores.plan.inject(Rule::new(of_lane, Fault::Unknown { landed: false }));
        one.put(b"3", b"again").await.unwrap();
        db.default_keyspace().put(b"k", b"main").await.unwrap();
        assert_eq!(stores.lanes().await, ["0: Main", "65537: Stream(1)"]);
        assert!(db.background_errors().is_empty());
        drop((db, one));
        let db = stores.open().await;
        let one = db.keyspace("one").unwrap();
        for key in [b"1", b"2", b"3"] {
            assert!(value(&one, key).await.is_some());
        }
    });
}

/// What a stream has done and must hold, told outside the world.
#[derive(Clone, Debug, Default)]
struct Done {
    /// What it holds after each prefix of its writes.
    states: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    durable: usize,
    accepted: usize,
}

type All = Arc<Mutex<[Done; 3]>>;

pub const NAMES: [&str; 3] = ["default", "one", "two"];

/// The keyspace is there.
const THERE: &[u8] = b"there";

fn all() -> All {
    let none = |_| Done { states: vec![BTreeMap::new()], ..Done::default() };
    let all: [Done; 3] = std::array::from_fn(none);
    Arc::new(Mutex::new(all))
}

async fn open(env: &Env, uri: &str) -> Result<Db> {
    let (store, log) = uri.split_once(' ').unwrap();
    let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap();
    Db::builder(store).log(log).env(env.clone()).options(options).open().await
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Whether the process has not ended: see `simulation`.
fn alive(env: &Env) -> bool {
    !env.files().metadata(Path::new("/db")).is_err_and(|error| tombolo_env::simulated::is_crash(&error))
}

/// Makes the keyspaces that are not there.
async fn keyspaces(env: &Env, db: &Db, all: &All) -> Result<[Keyspace; 3]> {
    let mut places = [0; 3];
    for (done, place) in all.lock().iter_mut().zip(&mut places) {
        if done.states.last().is_some_and(BTreeMap::is_empty) {
            done.states.push([(THERE.to_vec(), Vec::new())].into());
            *place = done.states.len() - 1;
        }
    }
    let one = db.open_or_create_keyspace("one", of_stream(1)).await?;
    let two = db.open_or_create_keyspace("two", of_stream(2)).await?;
    if alive(env) {
        for (done, place) in all.lock().iter_mut().zip(places).filter(|(_, place)| *place > 0) {
            (done.accepted, done.durable) = (place, place);
        }
    }
    Ok([db.default_keyspace(), one, two])
}

/// Scripts of these seeds, and of greater ones, take tables as well.
const INGESTING: u64 = 100;

/// Writes to three streams, with flushes, compactions, drops and openings between.
async fn script(env: Env, uri: String, seed: u64, writes: usize, all: All) -> Result<()> {
    let mut db = open(&env, &uri).await?;
    let mut keys = keyspaces(&env, &db, &all).await?;
    let mut random = Random(seed);
    for number in 0..writes {
        let stream = random.below(3) as usize;
        let mut state = all.lock()[stream].states.last().cloned().unwrap_or_default();
        let (key, bytes) = (format!("key-{}", random.below(8)).into_bytes(), random.below(400) as usize);
        let value = format!("{number}:{}", "x".repeat(bytes)).into_bytes();
        let large = match if seed < INGESTING { 0 } else { random.below(12) } {
            1 => Some(Large::Table(Bring::Link)),
            2 => Some(Large::Table(Bring::Copy)),
            3 => Some(Large::Table(Bring::Move)),
            4 | 5 => Some(Large::Exchange),
            6 | 7 => Some(Large::Sorted),
            _ => None,
        };
        let value = if large.is_some() { value.repeat(1 + 1500 / value.len()) } else { value };
        if let Some(Large::Exchange) = large {
            state.clear();
            state.insert(THERE.to_vec(), Vec::new());
        }
        match large {
            Some(_) => state.extend(LARGE_KEYS.map(|key| (key.to_vec(), value.clone()))),
            None => drop(state.insert(key.clone(), value.clone())),
        }
        let place = {
            let mut all = all.lock();
            all[stream].states.push(state);
            all[stream].states.len() - 1
        };
        let accepted = large.is_none() && random.below(2) == 0;
        let durability = if accepted { Durability::Accepted } else { Durability::Durable };
        match large {
            Some(large) => make(&env, &db, &keys[stream], large, number, &value).await?,
            None => keys[stream].put_with(&key, &value, durability).await?,
        }
        if alive(&env) {
            let done = &mut all.lock()[stream];
            done.accepted = place;
            if durability == Durability::Durable {
                done.durable = place;
            }
        }
        match random.below(20) {
            0 => db.flush().await?,
            1 => db.compact().await?,
            2 => {
                db.sync().await?;
                if alive(&env) {
                    all.lock().iter_mut().for_each(|done| done.durable = done.accepted);
                }
            }
            3 => {
                drop((db, keys));
                db = open(&env, &uri).await?;
                keys = keyspaces(&env, &db, &all).await?;
            }
            4 => {
                let place = {
                    let mut all = all.lock();
                    all[2].states.push(BTreeMap::new());
                    all[2].states.len() - 1
                };
                let dropped = db.drop_keyspace("two");
                // The stream may be flushed before the drop is durable.
                if random.below(2) == 0 {
                    drop((dropped, db.flush()));
                    env.sleep(Duration::from_millis(1)).await;
                } else {
                    dropped.await?;
                    if alive(&env) {
                        let done = &mut all.lock()[2];
                        (done.accepted, done.durable) = (place, place);
                    }
                }
                keys = keyspaces(&env, &db, &all).await?;
            }
            _ => {}
        }
    }
    db.close().await
}

async fn contents(keys: &Keyspace) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut scan = keys.scan::<&[u8]>(..);
    let mut found = BTreeMap::new();
    while let Some((key, value)) = scan.next_async().await? {
        found.insert(key.to_vec(), value.to_vec());
    }
    Ok(found)
}

/// Opens what a crash left: each stream holds what it did after some prefix of its writes.
fn check_after(world: &World, uri: &str, all: &All, crash: Crash, what: &str) {
    for time in ["first", "second"] {
        let checker = world.process(time);
        let (env, place, what) = (checker.env(), uri.to_owned(), format!("{what}, {time} time"));
        let found = checker.run(async move {
            let db = open(&env, &place).await?;
            let mut found: [BTreeMap<Vec<u8>, Vec<u8>>; 3] = Default::default();
            for (name, found) in NAMES.iter().zip(&mut found) {
                if let Ok(keys) = db.keyspace(name) {
                    *found = contents(&keys).await?;
                    found.insert(THERE.to_vec(), Vec::new());
                }
            }
            assert!(db.verify().await?.damage.is_empty());
            Ok::<_, tombolo::Error>(found)
        });
        let found = found.unwrap().unwrap_or_else(|error| panic!("{what}: {error}"));
        for ((done, found), name) in all.lock().iter().zip(found).zip(NAMES) {
            let survived = if crash == Crash::PowerLoss { done.durable } else { done.accepted };
            let prefix = done.states.iter().rposition(|state| *state == found);
            // The default keyspace is there from the beginning on.
            let prefix = prefix.or((name == "default" && found.len() == 1).then_some(0));
            let Some(prefix) = prefix else { panic!("{what}: {name} holds no prefix: {found:?}") };
            assert!(prefix >= survived, "{what}: {name} lost {prefix} of {survived}");
        }
    }
}

fn crash_everywhere(uri: &str, seed: u64, writes: usize, crash: Crash, step: usize) {
    let total = {
        let (world, all) = (World::new(seed), all());
        let writer = world.process("writer");
        writer.run(script(writer.env(), uri.to_owned(), seed, writes, Arc::clone(&all))).unwrap().unwrap();
        check_after(&world, uri, &all, crash, "without a crash");
        writer.mutations()
    };
    for number in (1..=total).step_by(step) {
        let (world, all) = (World::new(seed), all());
        let writer = world.process("writer");
        writer.crash_at_mutation(number, crash);
        let ended = writer.run(script(writer.env(), uri.to_owned(), seed, writes, Arc::clone(&all)));
        if ended.is_some_and(|ended| ended.is_ok()) {
            continue;
        }
        let what = format!("{uri} seed {seed}, {crash:?} at mutation {number} of {total}");
        check_after(&world, uri, &all, crash, &what);
    }
}

const MAPPED: &str = "file:///db file:///db?form=mapped";
const WRITTEN: &str = "file:///db file:///db?form=written";

/// So many crashes are left out between two.
fn step() -> usize {
    if crate::is_deep() { 1 } else { 15 }
}

#[test]
fn power_loss_loses_nothing_durable_of_any_stream() {
    crash_everywhere(MAPPED, 1, 24, Crash::PowerLoss, step());
    crash_everywhere(WRITTEN, 2, 24, Crash::PowerLoss, step());
}

#[test]
fn a_kill_loses_nothing_accepted_of_any_stream() {
    crash_everywhere(MAPPED, 3, 24, Crash::Kill, step());
    crash_everywhere(WRITTEN, 4, 24, Crash::Kill, step());
}

#[test]
fn what_streams_ingest_is_whole_or_absent_and_stays_when_the_power_goes() {
    crash_everywhere(MAPPED, INGESTING + 1, 24, Crash::PowerLoss, 2 * step());
    crash_everywhere(WRITTEN, INGESTING + 2, 24, Crash::PowerLoss, 2 * step());
}

#[test]
fn what_streams_ingest_is_whole_or_absent_and_stays_after_a_kill() {
    crash_everywhere(MAPPED, INGESTING + 3, 24, Crash::Kill, 2 * step());
}

/// How an operation ended that had a while for it; `None` while it waits.
async fn after<T>(env: &Env, time: Duration, operation: Op<T>) -> Option<Result<T>> {
    env.sleep(time).await;
    operation.try_take().ok()
}

/// The log of a stream must hold nothing of a keyspace that the main log may lose: nobody has its
/// handle before its creation is durable.
#[test]
fn a_keyspace_of_a_stream_is_served_once_its_creation_is_durable() {
    run("objects", |stores| async move {
        let db = stores.open().await;
        db.create_keyspace("first", of_stream(1)).await.unwrap();
        let log = |asked: &Asked<'_>| asked.name.contains("log-objects/");
        stores.plan.inject(Rule::new(log, Fault::Delay(Duration::from_secs(60))));
        let made = db.create_keyspace("one", of_stream(1));
        stores.env.sleep(Duration::from_secs(1)).await;
        assert_eq!(db.keyspace("one").map(drop).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(db.keyspaces().len(), 2);
        let made = made.await.unwrap();
        made.put(b"k", b"v").await.unwrap();
        db.keyspace("one").unwrap();
        let other = db.open_or_create_keyspace("one", of_stream(1));
        assert!(after(&stores.env, Duration::from_secs(1), other).await.unwrap().is_ok());
    });
}

/// A name that is given up while a creation stands in line, which has begun no stream as the name
/// was taken.
fn dropped_before_the_creation() {
    run("memory", |stores| async move {
        let objects = FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), stores.plan.clone());
        let slow = Stores { objects: Arc::new(objects), ..stores.clone() };
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=16384"]).unwrap();
        let open = || slow.builder().options(options.clone()).open();
        let db = open().await.unwrap();
        db.create_keyspace("one", KeyspaceOptions::default()).await.unwrap();
        db.flush().await.unwrap();
        let is_table = |asked: &Asked<'_>| asked.kind == RequestKind::Create;
        stores.plan.inject(Rule::new(is_table, Fault::Delay(Duration::from_secs(20))));
        let mut waiting = Vec::new();
        while db.property("writes-waiting").unwrap().value.number().unwrap() == 0 {
            let key = (waiting.len() as u32).to_be_bytes();
            waiting.push(db.default_keyspace().put_with(key, [1; 4000], Durability::Accepted));
        }
        let dropped = db.drop_keyspace("one");
        let made = db.open_or_create_keyspace("one", of_stream(3));
        dropped.await.unwrap();
        let error = made.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        stores.plan.clear();
        for write in waiting {
            write.await.unwrap();
        }
        let one = db.open_or_create_keyspace("one", of_stream(3)).await.unwrap();
        one.put(b"k", b"v").await.unwrap();
        drop((db, one));
        let db = open().await.unwrap();
        assert_eq!(value(&db.keyspace("one").unwrap(), b"k").await.unwrap(), b"v");
    });
}

#[test]
fn a_keyspace_of_a_stream_that_was_not_begun_is_not_made() {
    dropped_before_the_creation();
}

#[test]
fn a_creation_that_fails_begins_no_stream() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let taken = db.create_keyspace("default", of_stream(3)).await;
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let operator = Some(OperatorName::new("nobodys", 1).unwrap());
        let unknown = KeyspaceOptions { operator, ..of_stream(3) };
        assert!(db.create_keyspace("one", unknown).await.is_err());
        assert_eq!(stores.lanes().await, ["0: Main"]);
        db.subscribe("all", 1 << 20).await.unwrap();
    });
}

/// Nobody writes to a stream any more whose keyspaces are dropped.
#[test]
fn an_idle_stream_gives_the_space_of_dropped_keyspaces_back() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let tables = async || {
            let listed = stores.objects.list(request, "", None, 10_000).await.unwrap();
            listed.objects.iter().filter(|object| object.name.as_str().contains("/table/")).count()
        };
        let one = db.create_keyspace("one", of_stream(1)).await.unwrap();
        let other = db.create_keyspace("other", of_stream(1)).await.unwrap();
        one.put(b"k", vec![1; 10_000]).await.unwrap();
        db.flush().await.unwrap();
        other.put(b"k", vec![1; 10_000]).await.unwrap();
        assert!(tables().await > 0);
        db.drop_keyspace("one").await.unwrap();
        db.drop_keyspace("other").await.unwrap();
        stores.env.sleep(Duration::from_secs(600)).await;
        assert_eq!(tables().await, 0);
    });
}

/// Writes before a checkpoint is asked for, while it is made, and after: to three streams
/// in turn, one write after another.
pub async fn rounds(all: &[Keyspace; 3], rounds: std::ops::Range<u64>) {
    for round in rounds {
        for (place, keys) in all.iter().enumerate() {
            keys.put_with(b"k", (3 * round + place as u64).to_be_bytes(), Durability::Accepted)
                .await
                .unwrap();
            keys.put_with((1 + round).to_be_bytes(), vec![1; 9000], Durability::Accepted).await.unwrap();
        }
    }
}

/// That three streams hold all up to one of those writes; its number.
pub async fn one_moment(db: &Db) -> u64 {
    let mut found = Vec::new();
    for name in NAMES {
        let keys = db.keyspace(name).unwrap();
        let value = value(&keys, b"k").await.expect("the first round was before");
        found.push(u64::from_be_bytes(value.try_into().unwrap()));
        let last = keys.scan::<&[u8]>(..).next_async().await.unwrap();
        assert!(last.is_some());
    }
    let newest = *found.iter().max().unwrap();
    for (place, found) in found.iter().enumerate() {
        let place = place as u64;
        let wanted =
            if newest % 3 >= place { newest - newest % 3 + place } else { newest / 3 * 3 + place - 3 };
        assert_eq!(*found, wanted, "stream {place} beside write {newest}");
    }
    newest
}

pub async fn three(db: &Db) -> [Keyspace; 3] {
    let one = db.create_keyspace("one", of_stream(1)).await.unwrap();
    let two = db.create_keyspace("two", of_stream(2)).await.unwrap();
    [db.default_keyspace(), one, two]
}

/// Flushes of one stream are slow, others have written and flushed more by then.
fn a_checkpoint_while_others_flush() {
    for slow in 0..3 {
        run("memory", move |stores| async move {
            let objects =
                FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), stores.plan.clone());
            let stores = Stores { objects: Arc::new(objects), ..stores };
            let db = stores.open().await;
            let all = three(&db).await;
            rounds(&all, 0..5).await;
            let is_table = |asked: &Asked<'_>| asked.kind == RequestKind::Create;
            stores
                .plan
                .inject(Rule::new(is_table, Fault::Delay(Duration::from_secs(20))).skip(slow).times(1));
            let made = db.checkpoint("now");
            for more in 5..60 {
                rounds(&all, more..more + 1).await;
                stores.env.sleep(Duration::from_secs(1)).await;
            }
            let made = made.await.unwrap();
            assert!(made.tables >= 3);
            let then = stores.builder().at_checkpoint("now").open_read_only().await.unwrap();
            // A round or two may have come before it was sealed.
            let last = one_moment(&then).await;
            assert!((14..23).contains(&last), "{last}");
            let snapshot = then.snapshot();
            for name in NAMES {
                let keys = then.keyspace(name).unwrap();
                assert!(at(&snapshot, &keys, b"k").await.is_some());
                assert_eq!(keys.put(b"k", b"v").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
            drop(snapshot);
            assert!(then.verify().await.unwrap().damage.is_empty());
            then.close().await.unwrap();
            // Flushes go on.
            db.flush().await.unwrap();
            assert_eq!(one_moment(&db).await, 3 * 60 - 1);
            assert!(db.background_errors().is_empty());
            db.close().await.unwrap();
        });
    }
}

#[test]
fn a_checkpoint_is_one_cut_over_all_streams() {
    a_checkpoint_while_others_flush();
}

/// Made of a checkpoint, a database has the streams that it had, and goes on.
#[test]
fn databases_are_made_of_checkpoints_with_streams() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..7).await;
        db.checkpoint("one").await.unwrap();
        rounds(&all, 7..9).await;
        let elsewhere = || Stores::new(&stores.env, "memory");
        let source = || stores.builder().at_checkpoint("one");
        let (restored, ended, parted) = (elsewhere(), elsewhere(), elsewhere());
        source().restore_to(restored.builder()).await.unwrap();
        db.clone_to(ended.builder()).await.unwrap();
        let parts = [RestorePart::of(source())];
        parted.builder().restore_parts(parts).await.unwrap();
        let backups = Backups::of(&stores.env, Arc::new(MemoryObjectStore::unnamed(&stores.env)));
        backups.create(source()).await.unwrap();
        let backed_up = elsewhere();
        backups.restore(RestorePoint::Newest, backed_up.builder()).await.unwrap();
        for (stores, last) in [(restored, 20), (ended, 26), (parted, 20), (backed_up, 20)] {
            for _ in 0..2 {
                let db = stores.open().await;
                assert_eq!(one_moment(&db).await, last);
                for name in NAMES {
                    let keys = db.keyspace(name).unwrap();
                    keys.put(b"more", b"v").await.unwrap();
                    assert_eq!(value(&keys, b"more").await.unwrap(), b"v");
                }
                assert_eq!(db.keyspace("two").unwrap().options().stream, 2);
                assert!(db.verify().await.unwrap().damage.is_empty());
                db.compact().await.unwrap();
            }
        }
    });
}

#[test]
fn clones_of_checkpoints_share_tables_of_streams() {
    bucket::run(&["memory_bytes=16777216", "memtable_bytes=65536"], |bucket| async move {
        let db = bucket.open("source").await;
        let all = three(&db).await;
        rounds(&all, 0..7).await;
        db.checkpoint("one").await.unwrap();
        rounds(&all, 7..9).await;
        let newest = bucket.builder("source").share_to(bucket.builder("newest")).await.unwrap_err();
        assert_eq!(newest.kind(), ErrorKind::Unsupported, "{newest}");
        bucket.builder("source").at_checkpoint("one").share_to(bucket.builder("then")).await.unwrap();
        db.share_to(bucket.builder("now")).await.unwrap();
        for (name, last) in [("then", 20), ("now", 26)] {
            for _ in 0..2 {
                let clone = bucket.open(name).await;
                assert_eq!(one_moment(&clone).await, last);
                clone.keyspace("two").unwrap().put(b"more", b"v").await.unwrap();
                assert!(clone.verify().await.unwrap().damage.is_empty());
            }
        }
    });
}

/// The numbers of a stream that nobody writes to any more stay in the manifest. It may begin again
/// while a checkpoint is made.
#[test]
fn a_checkpoint_beside_a_stream_that_was() {
    run("memory", |stores| async move {
        let objects = FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), stores.plan.clone());
        let stores = Stores { objects: Arc::new(objects), ..stores };
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..2).await;
        db.flush().await.unwrap();
        db.drop_keyspace("two").await.unwrap();
        db.flush().await.unwrap();
        drop((db, all));
        let db = stores.open().await;
        db.checkpoint("without").await.unwrap();
        db.keyspace("one").unwrap().put(b"k", b"v").await.unwrap();
        let is_table = |asked: &Asked<'_>| asked.kind == RequestKind::Create;
        stores.plan.inject(Rule::new(is_table, Fault::Delay(Duration::from_secs(20))).times(1));
        let made = db.checkpoint("begins again");
        stores.env.sleep(Duration::from_secs(1)).await;
        let two = db.create_keyspace("two", of_stream(2)).await.unwrap();
        for number in 0..20u8 {
            two.put([number], vec![number; 9000]).await.unwrap();
        }
        made.await.unwrap();
        let then = stores.builder().at_checkpoint("begins again").open_read_only().await.unwrap();
        assert_eq!(value(&then.keyspace("one").unwrap(), b"k").await.unwrap(), b"v");
        assert!(then.keyspace("two").is_err());
    });
}

/// Nothing is written where nothing changes.
#[test]
fn an_idle_opening_writes_no_cut() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let all = three(&db).await;
        rounds(&all, 0..2).await;
        drop((db, all));
        let db = stores.open().await;
        let opened = db.snapshot().sequence();
        stores.env.sleep(Duration::from_secs(2)).await;
        assert_eq!(db.snapshot().sequence(), opened);
        db.keyspace("one").unwrap().put(b"k", b"v").await.unwrap();
        stores.env.sleep(Duration::from_secs(2)).await;
        assert_eq!(db.snapshot().sequence(), opened + 1);
    });
}

/// Closing does not wait for what a checkpoint waits for, and none is made that is of no one
/// moment.
#[test]
fn a_checkpoint_ends_with_the_database() {
    run("memory", |stores| async move {
        let objects = FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), stores.plan.clone());
        let slow = Stores { objects: Arc::new(objects), ..stores.clone() };
        let db = slow.open().await;
        let all = three(&db).await;
        rounds(&all, 0..3).await;
        let is_pin = |asked: &Asked<'_>| asked.kind == RequestKind::Put && asked.name.contains("/pin/");
        stores.plan.inject(Rule::new(is_pin, Fault::Delay(Duration::from_secs(30))));
        let made = db.checkpoint("now");
        stores.env.sleep(Duration::from_secs(5)).await;
        for keys in &all {
            keys.put_with(b"late", b"v", Durability::Unlogged).await.unwrap();
        }
        db.close().await.unwrap();
        let made = made.await;
        let db = stores.open().await;
        for name in NAMES {
            assert!(value(&db.keyspace(name).unwrap(), b"late").await.is_some());
        }
        let kept = db.checkpoints().await.unwrap();
        assert!(made.is_err() || kept.len() == 1);
        for checkpoint in kept {
            let then = stores.builder().at_checkpoint(&checkpoint.name).open_read_only().await.unwrap();
            assert_eq!(one_moment(&then).await, 8);
            for name in NAMES {
                assert!(value(&then.keyspace(name).unwrap(), b"late").await.is_none());
            }
        }
    });
}

#[cfg(feature = "mutants")]
mod mutants {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tombolo_storage::mutant::{Mutant, enable, notices};

    use super::*;

    /// Whether some crash of the script shows that a rule was taken out.
    fn is_noticed(mutant: Mutant, crash: Crash, first: u64) -> bool {
        let _guard = enable(mutant);
        (first..=first + 11).any(|seed| {
            let test = || crash_everywhere(WRITTEN, seed, 24, crash, 1);
            catch_unwind(AssertUnwindSafe(test)).is_err()
        })
    }

    #[test]
    fn a_stream_that_was_never_begun() {
        notices(Mutant::StreamNeverBegun, dropped_before_the_creation);
    }

    #[test]
    fn lanes_that_are_not_replayed() {
        notices(Mutant::StreamLanesNotReplayed, a_kill_loses_nothing_accepted_of_any_stream);
    }

    #[test]
    fn a_stream_served_before_the_creation_of_its_keyspace_is_durable() {
        assert!(is_noticed(Mutant::StreamServedBeforeCreation, Crash::PowerLoss, 1));
    }

    #[test]
    fn tables_that_only_a_lane_shows_are_given_up() {
        assert!(is_noticed(Mutant::StreamsStagedGivenUp, Crash::Kill, INGESTING));
    }

    #[test]
    fn flushes_that_go_on_while_a_checkpoint_is_made() {
        notices(Mutant::CheckpointFlushesGoOn, a_checkpoint_while_others_flush);
    }

    #[test]
    fn a_cut_that_is_fixed_twice() {
        notices(Mutant::CutFixedTwice, what_a_snapshot_sees_of_a_stream_is_fixed_once);
    }
}
