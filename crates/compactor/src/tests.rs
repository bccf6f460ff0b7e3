//! Workers and a writer in a simulated world: processes that die, pause and know other secrets.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tombolo::{
    Builder, CompactionPlace, CompactionWorker, Db, FilterName, Keyspace, KeyspaceOptions, MemoryBudget,
    Options, PropertyValue, Registry, TakeOver,
};
use tombolo_env::Env;
use tombolo_env::simulated::{Process, World};
use tombolo_segment::announce::{Announcer, Place};
use tombolo_segment::wire::credentials::Credentials;
use tombolo_segment::wire::secret::Secret;
use tombolo_segment::wire::tls::Tls;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{Epoch, ErrorKind, LogStore, ObjectStore, Purpose, Request};

use super::*;

const PLACE: &str = "mem://orders";

fn secret(text: &str) -> Option<Credentials> {
    Some(Secret::new(text.as_bytes()).unwrap().into())
}

const RIGHT: &str = "a secret of more than sixteen bytes";

#[derive(Clone)]
struct Stores {
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    fn new(env: &Env) -> Stores {
        let objects = Arc::new(MemoryObjectStore::unnamed(env));
        Stores { objects, log: Arc::new(MemoryLogStore::unnamed(env)) }
    }

    async fn open(&self, env: &Env, place: CompactionPlace, workers: &Workers) -> (Db, Keyspace) {
        let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=65536"]).unwrap();
        let options = Options { compaction: place, automatic_compaction: false, ..options };
        let builder: Builder = Db::builder(PLACE).env(env.clone()).take_over(TakeOver::Always);
        let builder = builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).options(options);
        let db = builder.compaction_workers(Arc::new(workers.clone())).open().await.unwrap();
        let keys = db.open_or_create_keyspace("keys", KeyspaceOptions::default()).await.unwrap();
        (db, keys)
    }

    /// The same, where each request takes two milliseconds.
    fn slow(&self, env: &Env) -> Stores {
        let plan = FaultPlan::scripted();
        plan.inject(Rule::new(|_| true, Fault::Delay(Duration::from_millis(2))));
        let objects = Arc::new(FaultObjectStore::new(env, Arc::clone(&self.objects), plan));
        Stores { objects, ..self.clone() }
    }

    fn worker(&self, env: &Env) -> CompactionWorker {
        let budget = MemoryBudget::new(8 << 20).unwrap();
        CompactionWorker::new(env, Registry::with_defaults(), &budget).store(PLACE, Arc::clone(&self.objects))
    }
}

async fn serve(env: &Env, worker: CompactionWorker, credentials: Option<Credentials>) -> Compactor {
    let listen = "worker:7430".to_owned();
    let options = CompactorOptions { listen, credentials, jobs_max: 1, connections_max: 16 };
    Compactor::start(env, worker, options).await.unwrap()
}

fn workers(env: &Env, credentials: Option<Credentials>) -> Workers {
    Workers::new(env, Found::At(vec!["worker:7430".into()]), credentials, Some(PLACE.into()))
}

fn count(db: &Db, name: &str) -> u64 {
    match db.property(name).unwrap().value {
        PropertyValue::Number(number) => number,
        other => panic!("{other:?}"),
    }
}

async fn fill(db: &Db, keys: &Keyspace) {
    for salt in 0..3u8 {
        for number in 0..300 {
            keys.put(format!("key{number:04}"), [salt; 300]).await.unwrap();
        }
        db.flush().await.unwrap();
    }
}

/// A world with a process of a worker, on a host of its own, and one of a writer, and their stores.
fn processes(seed: u64) -> (Process, Process, Stores) {
    let world = World::new(seed);
    let (worker, writer) = (world.add_host("worker").process("worker"), world.process("writer"));
    let stores = Stores::new(&writer.env());
    (worker, writer, stores)
}

/// A worker in its process.
fn started(process: &Process, stores: &Stores, credentials: Option<Credentials>) -> Compactor {
    let (env, worker) = (process.env(), stores.worker(&process.env()));
    process.run(async move { serve(&env, worker, credentials).await }).unwrap()
}

#[test]
fn a_job_goes_over_the_network() {
    let (worker, writer, stores) = processes(1);
    let _compactor = started(&worker, &stores, secret(RIGHT));
    let env = writer.env();
    writer
        .run(async move {
            let workers = workers(&env, secret(RIGHT));
            let (db, keys) = stores.open(&env, CompactionPlace::Remote, &workers).await;
            fill(&db, &keys).await;
            db.compact().await.unwrap();
            assert_eq!(count(&db, "remote-compactions"), 1);
            assert_eq!(keys.get("key0007").await.unwrap().unwrap()[..], [2; 300]);
            let said = status(&env, "worker:7430", secret(RIGHT).as_ref()).await.unwrap();
            assert_eq!((said.done, said.running, said.jobs_max), (1, 0, 1));
            assert!(said.abilities.iter().any(|ability| ability == "operator add_u64@1"));
            db.close().await.unwrap();
        })
        .unwrap();
}

#[test]
fn who_has_another_secret_is_turned_away() {
    let (worker, writer, stores) = processes(2);
    let _compactor = started(&worker, &stores, secret(RIGHT));
    let env = writer.env();
    writer
        .run(async move {
            for wrong in [None, secret("another secret of sixteen bytes")] {
                let error = status(&env, "worker:7430", wrong.as_ref()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            }
            let workers = workers(&env, None);
            let (db, keys) = stores.open(&env, CompactionPlace::RemoteOrLocal, &workers).await;
            fill(&db, &keys).await;
            db.compact().await.unwrap();
            assert_eq!((count(&db, "remote-compactions"), count(&db, "remote-compactions-here")), (0, 1));
            db.close().await.unwrap();
        })
        .unwrap();
}

/// A worker that dies, wherever it is, costs time and nothing else.
#[test]
fn a_worker_that_dies_is_done_without() {
    for millis in [0u64, 1, 2, 3, 5, 8, 20, 40] {
        let (worker, writer, stores) = processes(10 + millis);
        let _compactor = started(&worker, &stores, None);
        let env = writer.env();
        let (killed, killing) = (worker.clone(), env.clone());
        writer
            .run(async move {
                let workers = workers(&env, None);
                let (db, keys) = stores.open(&env, CompactionPlace::RemoteOrLocal, &workers).await;
                fill(&db, &keys).await;
                let compacting = db.compact();
                killing.sleep(Duration::from_millis(millis)).await;
                killed.kill();
                compacting.await.unwrap();
                assert_eq!(count(&db, "remote-compactions") + count(&db, "remote-compactions-here"), 1);
                for number in 0..300 {
                    let value = keys.get(format!("key{number:04}")).await.unwrap().unwrap();
                    assert_eq!(value[..], [2; 300]);
                }
                db.verify().await.unwrap();
                db.close().await.unwrap();
            })
            .unwrap();
    }
}

#[test]
fn what_a_worker_lacks_is_told() {
    let (worker, writer, stores) = processes(3);
    let _compactor = started(&worker, &stores, None);
    let env = writer.env();
    writer
        .run(async move {
            let workers = Arc::new(workers(&env, None));
            let name = FilterName::new("absent", 3).unwrap();
            let builder = Db::builder(PLACE).env(env.clone());
            let builder = builder.stores(Arc::clone(&stores.objects), Arc::clone(&stores.log));
            let options = Options { compaction: CompactionPlace::Remote, ..Options::default() };
            let builder = builder.options(options).compaction_workers(workers);
            let builder = builder.compaction_filter(name.clone(), Nothing);
            let db = builder.open().await.unwrap();
            let options = KeyspaceOptions { compaction_filter: Some(name), ..KeyspaceOptions::default() };
            let keys = db.create_keyspace("keys", options).await.unwrap();
            fill(&db, &keys).await;
            let error = db.compact().await.unwrap_err();
            assert!(error.to_string().contains("filter absent@3"), "{error}");
            db.close().await.unwrap();
        })
        .unwrap();
}

struct Nothing;

impl tombolo::CompactionFilter for Nothing {
    fn begin(&self, _job: &tombolo::FilterJob) -> Option<Box<dyn tombolo::JobFilter>> {
        None
    }
}

/// Writer and worker show each other certificates of one authority; who has those of another is
/// turned away.
#[test]
fn a_job_goes_over_tls() {
    let (worker, writer, stores) = processes(4);
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let _compactor = started(&worker, &stores, Some(ours.credentials()));
    let env = writer.env();
    writer
        .run(async move {
            let error = status(&env, "worker:7430", Some(&theirs.credentials())).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            let workers = workers(&env, Some(ours.credentials()));
            let (db, keys) = stores.open(&env, CompactionPlace::Remote, &workers).await;
            fill(&db, &keys).await;
            db.compact().await.unwrap();
            assert_eq!(count(&db, "remote-compactions"), 1);
            assert_eq!(keys.get("key0007").await.unwrap().unwrap()[..], [2; 300]);
            db.close().await.unwrap();
        })
        .unwrap();
}

/// A certificate authority, and what it vouches for.
struct Authority {
    believed: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let believed = parameters.self_signed(&key).unwrap().pem();
        Authority { believed, issuer: Issuer::new(parameters, key) }
    }

    fn credentials(&self) -> Credentials {
        let parameters = CertificateParams::new(vec!["worker".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let chain = parameters.signed_by(&key, &self.issuer).unwrap().pem();
        let (believed, key) = (self.believed.as_bytes(), key.serialize_pem());
        Credentials::Tls(Tls::new(believed, chain.as_bytes(), key.as_bytes()).unwrap())
    }
}

/// Objects of tables in the store.
async fn tables(objects: &Arc<dyn ObjectStore>) -> usize {
    let request = Request::new(Purpose::Verify, Epoch::NONE);
    let listed = objects.list(request, "", None, 10_000).await.unwrap();
    listed.objects.iter().filter(|object| object.name.as_str().contains("/table/")).count()
}

/// A worker stands still in the midst of a job, its writer is replaced, and it wakes: what it
/// writes then, and answers, counts as nothing, and is swept.
#[test]
fn a_paused_worker_that_wakes_after_a_takeover_does_no_harm() {
    let mut in_jobs = 0;
    for millis in [1u64, 2, 4, 7, 11, 16, 30] {
        let world = World::new(40 + millis);
        let worker = world.add_host("worker").process("worker");
        let (first, second) = (world.process("first"), world.process("second"));
        let stores = Stores::new(&first.env());
        // Its requests take a while, so that it has jobs at several of these moments.
        let compactor = started(&worker, &stores.slow(&worker.env()), None);
        let (env, mine, paused) = (first.env(), stores.clone(), worker.clone());
        first
            .run(async move {
                let workers = workers(&env, None);
                let (db, keys) = mine.open(&env, CompactionPlace::Remote, &workers).await;
                fill(&db, &keys).await;
                drop(db.compact());
                env.sleep(Duration::from_millis(millis)).await;
                paused.pause();
            })
            .unwrap();
        in_jobs += compactor.status().running;
        first.kill();
        let (env, mine, woken) = (second.env(), stores.clone(), worker.clone());
        second
            .run(async move {
                let workers = workers(&env, None);
                let (db, keys) = mine.open(&env, CompactionPlace::Local, &workers).await;
                woken.resume();
                db.compact().await.unwrap();
                env.sleep(Duration::from_secs(120)).await;
                for number in 0..300 {
                    let value = keys.get(format!("key{number:04}")).await.unwrap().unwrap();
                    assert_eq!(value[..], [2; 300]);
                }
                assert!(db.verify().await.unwrap().damage.is_empty());
                db.close().await.unwrap();
                // The next opening finds what came late.
                let (db, _) = mine.open(&env, CompactionPlace::Local, &workers).await;
                env.sleep(Duration::from_secs(120)).await;
                let (left, named) = (tables(&mine.objects).await as u64, db.stats().tables);
                assert_eq!(left, named, "nothing is left that serves nobody");
                db.close().await.unwrap();
            })
            .unwrap();
    }
    assert!(in_jobs >= 2, "it was paused in {in_jobs} jobs");
}

/// Workers that are announced are found, and those that have withdrawn are not.
#[test]
fn workers_announce_themselves_like_nodes() {
    let (worker, writer, stores) = processes(5);
    let registry: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&writer.env()));
    let (env, served, place) = (worker.env(), stores.worker(&worker.env()), Arc::clone(&registry));
    let mut compactor = worker
        .run(async move {
            let mut compactor = serve(&env, served, None).await;
            let announcer = Announcer::new(&env, Place::Store(place), "compactors", "worker:7430").unwrap();
            compactor.announce(announcer);
            env.sleep(Duration::from_secs(1)).await;
            compactor
        })
        .unwrap();
    let (env, place) = (writer.env(), Arc::clone(&registry));
    writer
        .run(async move {
            let look = || {
                tombolo_segment::announce::Registry::new(&env, Place::Store(Arc::clone(&place)), "compactors")
            };
            let found = Found::Announced(Box::new(look().unwrap()));
            let workers = Workers::new(&env, found, None, Some(PLACE.into()));
            let (db, keys) = stores.open(&env, CompactionPlace::Remote, &workers).await;
            fill(&db, &keys).await;
            db.compact().await.unwrap();
            assert_eq!(count(&db, "remote-compactions"), 1);
            db.close().await.unwrap();
        })
        .unwrap();
    worker.run(async move { compactor.withdraw().await.unwrap() }).unwrap();
    let env = writer.env();
    let left = writer.run(async move {
        let place = Place::Store(registry);
        tombolo_segment::announce::Registry::new(&env, place, "compactors").unwrap().look().await.unwrap()
    });
    assert_eq!(left.unwrap(), []);
}
