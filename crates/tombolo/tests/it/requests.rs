//! How many requests things take.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo::manifest::{Manifest, ManifestOptions, OpenMode};
use tombolo::{Db, Durability, Env, Options};
use tombolo_env::simulated::World;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, TableDescription};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::trace::{TraceLogStore, TraceObjectStore, Tracer};
use tombolo_storage::{LogStore, ObjectStore, Purpose};

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Env) -> F) {
    let world = World::new(1);
    let process = world.process("writer");
    process.run(test(process.env())).unwrap();
}

fn options() -> Options {
    Options::parse(["memory_bytes=16777216", "automatic_compaction=false"]).unwrap()
}

/// What a request takes.
const LATENCY: Duration = Duration::from_millis(10);

/// Requests one after the other that opening takes, with so many tables.
async fn sequential_requests_of_opening(env: &Env, tables: u64) -> u128 {
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(env));
    let db =
        Db::builder("mem://x").env(env.clone()).stores(Arc::clone(&objects), Arc::clone(&log)).options(options()).open().await.unwrap();
    db.default_keyspace().put(b"k", b"v").await.unwrap();
    db.close().await.unwrap();
    let manifest_options = ManifestOptions { mode: OpenMode::Open, log_identity: log.identity() };
    let (manifest, _) = Manifest::open(env, Arc::clone(&objects), manifest_options).await.unwrap();
    let described = |number: u64| {
        let key = Bytes::copy_from_slice(&number.to_be_bytes());
        Edit::TableAdded(TableDescription {
            name: manifest.fresh_table_name(),
            offset: 0,
            length: 1 << 20,
            identity: number,
            keyspace: 0,
            level: 6,
            first_key: key.clone(),
            last_key: key,
            first_sequence: SequenceNumber(1),
            last_sequence: SequenceNumber(1),
            entries: 1,
            deletes: 0,
            tail_bytes: 4096,
            oldest_unix_seconds: 0,
        })
    };
    for from in (0..tables).step_by(500) {
        let edits = (from..tables.min(from + 500)).map(described).collect();
        manifest.commit(edits).await.unwrap().unwrap();
    }
    // A snapshot that is due is written.
    env.sleep(Duration::from_secs(1)).await;
    manifest.close().await;
    let plan = FaultPlan::scripted();
    let slow: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(env, objects, plan.clone()));
    let slow_log: Arc<dyn LogStore> = Arc::new(FaultLogStore::new(env, log, plan.clone()));
    plan.inject(Rule::new(|_| true, Fault::Delay(LATENCY)).times(u64::MAX));
    let began = env.now();
    let db = Db::builder("mem://x").env(env.clone()).stores(slow, slow_log).options(options()).open().await.unwrap();
    let took = env.now().since(began);
    assert_eq!(db.stats().tables, tables);
    // What is not a request takes microseconds of the simulated time.
    assert!(took.as_nanos() % LATENCY.as_nanos() < LATENCY.as_nanos() / 10, "{took:?} is no multiple of what a request takes");
    took.as_nanos() / LATENCY.as_nanos()
}

#[test]
fn opening_takes_a_handful_of_sequential_requests_however_many_tables_there_are() {
    run(|env| async move {
        let few = sequential_requests_of_opening(&env, 10).await;
        let many = sequential_requests_of_opening(&env, 4_000).await;
        let most = sequential_requests_of_opening(&env, 10_000).await;
        // One less when the newest record is the one that names the snapshot.
        assert!(most.abs_diff(many) <= 1, "{many} with 4,000 tables, {most} with 10,000");
        // Few need no snapshot: the record that names it, the object, and the records since.
        assert!((most - 3..=most).contains(&few), "{few} with 10 tables, {most} with 10,000");
        assert!(most <= 14, "{most}");
    });
}

#[test]
fn reads_and_writes_make_no_list_or_stat_calls() {
    run(|env| async move {
        let tracer = Tracer::new(&env);
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let traced: Arc<dyn ObjectStore> = Arc::new(TraceObjectStore::new(objects, tracer.clone()));
        let traced_log: Arc<dyn LogStore> = Arc::new(TraceLogStore::new(log, tracer.clone()));
        // So little memory that reads go to the store.
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=65536", "automatic_compaction=false"]).unwrap();
        let db = Db::builder("mem://x").env(env.clone()).stores(traced, traced_log).options(options).open().await.unwrap();
        let keys = db.default_keyspace();
        env.sleep(Duration::from_secs(1)).await;
        tracer.reset();
        for round in 0..10u8 {
            for key in 0..200u64 {
                keys.put_with((key * 7 % 200).to_be_bytes(), [round; 2000], Durability::Accepted).await.unwrap();
            }
            keys.put(b"durable", [round]).await.unwrap();
            for key in 0..200u64 {
                assert!(keys.get((key * 13 % 200).to_be_bytes()).await.unwrap().is_some());
            }
            let mut scan = keys.scan::<&[u8]>(..);
            while scan.next_async().await.unwrap().is_some() {}
        }
        let of = |kind| tracer.of_kind(kind).requests;
        assert!(of(RequestKind::Read) + of(RequestKind::ReadRanges) > 100 && of(RequestKind::Finish) > 10, "{:?}", tracer.counters());
        for ((purpose, kind), counters) in tracer.counters() {
            // The manifest, when a snapshot of it was written: one list of the older ones, for more than fifty flushes.
            let lists_max = if purpose == Purpose::Manifest { of(RequestKind::Finish) / 50 } else { 0 };
            let asks = matches!(kind, RequestKind::List | RequestKind::Length);
            assert!(!asks || counters.requests <= lists_max, "{} {kind:?} for {purpose:?}", counters.requests);
        }
    });
}
