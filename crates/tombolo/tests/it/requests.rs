//! How many requests things take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo::internals::{Manifest, ManifestOptions, OpenMode};
use tombolo::{Compression, Db, Durability, Env, KeyspaceOptions, Options, ReaderOptions};
use tombolo_env::simulated::World;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, TableDescription};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
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

/// Requests that opening takes, with so many tables: one after the other, and all of them by kind.
async fn requests_of_opening(env: &Env, tables: u64) -> (u128, BTreeMap<RequestKind, u64>) {
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(env));
    let db = Db::builder("mem://x")
        .env(env.clone())
        .stores(Arc::clone(&objects), Arc::clone(&log))
        .options(options())
        .open()
        .await
        .unwrap();
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
            features: 0,
            properties: tombolo_format::property::PropertyList::default(),
            source: None,
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
    let db = Db::builder("mem://x")
        .env(env.clone())
        .stores(slow, slow_log)
        .options(options())
        .open()
        .await
        .unwrap();
    let took = env.now().since(began);
    assert_eq!(db.stats().tables, tables);
    // Everything but requests takes microseconds of the simulated time.
    assert!(
        took.as_nanos() % LATENCY.as_nanos() < LATENCY.as_nanos() / 10,
        "{took:?} is no multiple of what a request takes"
    );
    let mut kinds = BTreeMap::new();
    for counted in db.requests().counted {
        *kinds.entry(counted.kind).or_default() += counted.requests;
    }
    (took.as_nanos() / LATENCY.as_nanos(), kinds)
}

#[test]
fn opening_takes_a_handful_of_sequential_requests_however_many_tables_there_are() {
    run(|env| async move {
        let (few, few_kinds) = requests_of_opening(&env, 10).await;
        let (many, _) = requests_of_opening(&env, 4_000).await;
        let (most, most_kinds) = requests_of_opening(&env, 10_000).await;
        for kinds in [&few_kinds, &most_kinds] {
            // The claim, what the log publishes, the sealed lengths, each believed with a list that
            // began after it; the records since the newest snapshot, many at once. No object is
            // asked for its length.
            let of = |kind| kinds.get(&kind).copied().unwrap_or(0);
            assert!(
                of(RequestKind::Put) <= 4 && of(RequestKind::List) <= 6 && of(RequestKind::Length) == 0,
                "{kinds:?}"
            );
            assert!(of(RequestKind::Read) <= 64, "{kinds:?}");
        }
        // One less when the newest record is the one that names the snapshot.
        assert!(most.abs_diff(many) <= 1, "{many} with 4,000 tables, {most} with 10,000");
        // Few need no snapshot: the record that names it, the object, and the records since.
        assert!((most - 3..=most).contains(&few), "{few} with 10 tables, {most} with 10,000");
        assert!(most <= 14, "{most}");
    });
}

/// Requests that opening takes one after the other, and the records that it adds to the manifest,
/// on a log of objects with so many logs of the application's own, all of which hold something.
async fn requests_of_opening_on_a_log_of_objects(env: &Env, application_logs: u32) -> (u128, u64) {
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
    let open = |objects: &Arc<dyn ObjectStore>| {
        let log: Arc<dyn LogStore> = Arc::new(ObjectLogStore::new(env, Arc::clone(objects), true));
        let builder = Db::builder("mem://x").env(env.clone()).stores(Arc::clone(objects), log);
        builder.options(options()).application_logs(application_logs).open()
    };
    let db = open(&objects).await.unwrap();
    db.default_keyspace().put(b"k", b"v").await.unwrap();
    for number in 0..application_logs {
        db.application_log(number).unwrap().append("an entry").await.unwrap();
    }
    db.close().await.unwrap();
    drop(db);
    let plan = FaultPlan::scripted();
    let slow: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(env, objects, plan.clone()));
    plan.inject(Rule::new(|_| true, Fault::Delay(LATENCY)).times(u64::MAX));
    let began = env.now();
    let db = open(&slow).await.unwrap();
    let took = env.now().since(began);
    // The log's own requests are not among these.
    let records = db
        .requests()
        .counted
        .iter()
        .filter(|counted| counted.kind == RequestKind::Put)
        .map(|counted| counted.requests)
        .sum();
    for number in 0..application_logs {
        assert!(db.application_log(number).unwrap().earlier().next_async().await.unwrap().is_some());
    }
    (took.as_nanos() / LATENCY.as_nanos(), records)
}

#[test]
fn opening_takes_no_longer_with_logs_of_the_application() {
    run(|env| async move {
        let (none, none_records) = requests_of_opening_on_a_log_of_objects(&env, 0).await;
        let (four, four_records) = requests_of_opening_on_a_log_of_objects(&env, 4).await;
        // The claim, all sealed lengths, and the names of all lanes.
        assert_eq!((none_records, four_records), (3, 3));
        assert!(four <= none && none <= 12, "{none} requests one after the other, {four} with four logs");
    });
}

/// What `docs/bucket.md` says of a reader's price: at a lag of a second, idle or not, two
/// rounds, each with a list and a read for the chain and two small reads for the log.
#[test]
fn a_reader_makes_two_lists_and_six_small_reads_a_second() {
    run(|env| async move {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let tracer = Tracer::new(&env);
        let traced: Arc<dyn ObjectStore> =
            Arc::new(TraceObjectStore::new(Arc::clone(&objects), tracer.clone()));
        let open = |objects: &Arc<dyn ObjectStore>| {
            let log: Arc<dyn LogStore> = Arc::new(ObjectLogStore::new(&env, Arc::clone(objects), true));
            Db::builder("mem://x").env(env.clone()).stores(Arc::clone(objects), log).options(options())
        };
        let db = open(&objects).open().await.unwrap();
        db.default_keyspace().put(b"k", [1; 50_000]).await.unwrap();
        let reader = open(&traced).open_reader(ReaderOptions::default()).await.unwrap();
        env.sleep(Duration::from_secs(2)).await;
        tracer.reset();
        env.sleep(Duration::from_secs(60)).await;
        let of = |kind| tracer.of_kind(kind).requests;
        // Two a second, and one to prove each heartbeat.
        assert!((120..=126).contains(&of(RequestKind::List)), "{:?}", tracer.counters());
        assert!((354..=366).contains(&of(RequestKind::Read)), "{:?}", tracer.counters());
        assert!(tracer.of_kind(RequestKind::Read).bytes <= 366 * 100, "{:?}", tracer.counters());
        // A heartbeat every third of the lease.
        assert!(of(RequestKind::Put) <= 4, "{:?}", tracer.counters());
        reader.close().await.unwrap();
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
        let options =
            Options::parse(["memory_bytes=1048576", "memtable_bytes=65536", "automatic_compaction=false"])
                .unwrap();
        let db = Db::builder("mem://x")
            .env(env.clone())
            .stores(traced, traced_log)
            .options(options)
            .open()
            .await
            .unwrap();
        let keys = db.default_keyspace();
        // A second after the opening the writer looks whether somebody stands by, and two seconds
        // after that once more.
        env.sleep(Duration::from_millis(1500)).await;
        tracer.reset();
        for round in 0..10u8 {
            for key in 0..200u64 {
                keys.put_with((key * 7 % 200).to_be_bytes(), [round; 2000], Durability::Accepted)
                    .await
                    .unwrap();
            }
            keys.put(b"durable", [round]).await.unwrap();
            for key in 0..200u64 {
                assert!(keys.get((key * 13 % 200).to_be_bytes()).await.unwrap().is_some());
            }
            let mut scan = keys.scan::<&[u8]>(..);
            while scan.next_async().await.unwrap().is_some() {}
        }
        let of = |kind| tracer.of_kind(kind).requests;
        assert!(
            of(RequestKind::Read) + of(RequestKind::ReadRanges) > 100 && of(RequestKind::Finish) > 10,
            "{:?}",
            tracer.counters()
        );
        for ((purpose, kind), counters) in tracer.counters() {
            // The manifest, when a snapshot of it was written: one list of the older ones, for more
            // than fifty flushes.
            let lists_max = if purpose == Purpose::Manifest { of(RequestKind::Finish) / 50 } else { 0 };
            let asks = matches!(kind, RequestKind::List | RequestKind::Length);
            assert!(
                !asks || counters.requests <= lists_max,
                "{} {kind:?} for {purpose:?}",
                counters.requests
            );
        }
    });
}

/// However many keys are asked for at once, the blocks that are held at a time are those of some
/// hundred.
#[test]
fn a_multi_get_of_very_many_keys_reads_them_piece_by_piece() {
    const KEYS: u64 = 8000;
    run(|env| async move {
        let plan = FaultPlan::scripted();
        let objects: Arc<dyn ObjectStore> =
            Arc::new(FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan.clone()));
        let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
        let options = Options::parse(["memory_bytes=2097152", "memtable_bytes=524288"]).unwrap();
        let db = Db::builder("mem://x")
            .env(env.clone())
            .stores(objects, log)
            .options(options)
            .open()
            .await
            .unwrap();
        let plain = KeyspaceOptions { compression: Compression::None, ..KeyspaceOptions::default() };
        let keys = db.create_keyspace("plain", plain).await.unwrap();
        let value =
            |number: u64| number.to_be_bytes().repeat(if number.is_multiple_of(100) { 1000 } else { 120 });
        for number in 0..KEYS {
            keys.put_with(number.to_be_bytes(), value(number), Durability::Accepted).await.unwrap();
        }
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        // Reads take a while, so that those that are asked for together come together.
        let at_once: Arc<Mutex<BTreeMap<u128, u64>>> = Arc::default();
        let (seen, world) = (Arc::clone(&at_once), env.clone());
        let notes = move |asked: &Asked<'_>| {
            let is_read = matches!(asked.kind, RequestKind::Read | RequestKind::ReadRanges)
                && asked.purpose == Purpose::Get;
            if is_read {
                *seen
                    .lock()
                    .entry(u128::from(world.now().as_nanos()) / (LATENCY.as_nanos() / 2))
                    .or_default() += asked.bytes;
            }
            is_read
        };
        plan.inject(Rule::new(notes, Fault::Delay(LATENCY)));
        // In no order, some twice, some that are not there.
        let asked: Vec<u64> = (0..KEYS + 500).map(|number| number * 7919 % (KEYS + 300)).collect();
        let names: Vec<_> = asked.iter().map(|number| number.to_be_bytes()).collect();
        let found = keys.multi_get(&names).await.unwrap();
        assert_eq!(found.len(), asked.len());
        for (number, found) in asked.into_iter().zip(found) {
            assert_eq!(found.map(|found| found.to_vec()), (number < KEYS).then(|| value(number)), "{number}");
        }
        let most = at_once.lock().values().copied().max().unwrap();
        assert!((1 << 18..3 << 20).contains(&most), "{most} bytes of blocks were asked for at once");
    });
}
