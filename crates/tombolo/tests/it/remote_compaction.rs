//! Compaction on other machines, without the machines: a worker is given jobs as bytes and answers
//! in bytes. What it says wrong is refused, and the database is as it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo::{
    Builder, CompactionFilter, CompactionOffer, CompactionPlace, CompactionRun, CompactionWorker,
    CompactionWorkers, Compression, Db, ErrorKind, Event, FilterDecision, FilterEntry, FilterJob, FilterName,
    JobFilter, Keyspace, KeyspaceOptions, Listener, MemoryBudget, OperatorName, Options, PropertyValue,
    Registry, Scan, TakeOver,
};
use tombolo_env::simulated::World;
use tombolo_env::{BoxFuture, Env};
use tombolo_format::compaction::{
    CompactionJob, JobOutcome, JobResult, decode_job, decode_job_answer, encode_job, encode_job_answer,
};
use tombolo_format::manifest::Edit;
use tombolo_format::property::{PROPERTY_ONE_EACH, Property};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::mutant::Mutant;
use tombolo_storage::{Error, LogStore, ObjectStore, Purpose, Request};

/// How workers reach the store.
const PLACE: &str = "mem://remote-compaction";

/// What a worker does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lie {
    #[default]
    None,
    /// It loses an input, and counts its entries as read.
    LosesInput,
    /// It loses an input, and counts its entries as read, with their hashes.
    LosesInputAndItsHashes,
    /// It drops what a snapshot sees.
    DropsSeen,
    /// It has read other entries than those of the inputs.
    OtherHashes,
    /// It counts wrong.
    Miscounts,
    /// It says that a table ends where it does not.
    WrongBound,
    /// It says that tables overlap.
    WrongOrder,
    /// It says of a table with deletes that it holds a value of each key.
    SaysOneEach,
    /// It gives a table that is another's.
    ForeignTable,
    /// It says of a table that is no output of its that it holds older versions.
    StrangeName,
    /// It says another level.
    WrongLevel,
    /// It says that there is an output that is not.
    MissingOutput,
    /// It answers an attempt of before.
    OtherAttempt,
    /// It answers with something.
    Garbage,
    /// It answers nothing, after it has done all.
    DiesAtTheEnd,
    /// It cannot.
    Fails,
}

/// Workers of this process.
struct Inside {
    worker: CompactionWorker,
    lie: Mutex<Lie>,
    /// The answers to earlier attempts.
    earlier: Mutex<Vec<Bytes>>,
    jobs: AtomicUsize,
    refused: Mutex<Vec<String>>,
}

impl Inside {
    fn meddle_with_job(&self, job: Bytes) -> Bytes {
        let mut decoded: CompactionJob = decode_job(&job).unwrap();
        match *self.lie.lock() {
            Lie::LosesInput | Lie::LosesInputAndItsHashes => {
                let lost = decoded.inputs.remove(0).name;
                decoded.edits.retain(|edit| !matches!(edit, Edit::TableAdded(table) if table.name == lost));
            }
            Lie::DropsSeen => decoded.snapshots.clear(),
            _ => return job,
        }
        encode_job(&decoded).unwrap().into()
    }

    fn meddle_with_answer(&self, job: &[u8], answer: Bytes) -> Bytes {
        let lie = *self.lie.lock();
        let mut decoded = decode_job_answer(&answer).unwrap();
        let attempt = decoded.attempt;
        let JobOutcome::Done(result) = &mut decoded.outcome else { return answer };
        let JobResult { tally, outputs, names, older, .. } = &mut **result;
        let job = decode_job(job).unwrap();
        let inputs: Vec<_> = job
            .edits
            .iter()
            .filter_map(|edit| if let Edit::TableAdded(table) = edit { Some(table.clone()) } else { None })
            .collect();
        match lie {
            Lie::LosesInput | Lie::LosesInputAndItsHashes => {
                let lost = inputs.iter().find(|table| table.name == job.inputs[0].name).unwrap();
                tally.read += lost.entries;
                tally.superseded += lost.entries;
                if lie == Lie::LosesInputAndItsHashes {
                    tally.read_sum = tally.read_sum.wrapping_add(lost.entry_sum().unwrap());
                    tally.gone_sum = tally.gone_sum.wrapping_add(lost.entry_sum().unwrap());
                }
            }
            Lie::OtherHashes => {
                tally.read_sum = tally.read_sum.wrapping_add(1);
                tally.gone_sum = tally.gone_sum.wrapping_add(1);
            }
            Lie::Miscounts => tally.superseded += 1,
            Lie::WrongBound => outputs.last_mut().unwrap().last_key = Bytes::from_static(b"zzzz"),
            Lie::WrongOrder => {
                let first = outputs.iter().map(|table| table.first_key.clone()).min().unwrap();
                outputs.iter_mut().for_each(|table| table.first_key = first.clone());
            }
            Lie::SaysOneEach => {
                let one_each = Property { id: PROPERTY_ONE_EACH, is_critical: false, value: &[] };
                for table in outputs.iter_mut().filter(|table| table.deletes > 0) {
                    table.properties = table.properties.with(one_each);
                }
            }
            Lie::ForeignTable => outputs[0].name = inputs[0].name,
            Lie::StrangeName => older.push(inputs[0].name),
            Lie::WrongLevel => outputs[0].level = 1,
            Lie::MissingOutput => {
                let mut more = outputs[0].clone();
                more.name = attempt.name(*names);
                *names += 1;
                outputs[0] = more;
            }
            Lie::OtherAttempt => return self.earlier.lock().last().unwrap().clone(),
            Lie::Garbage => return Bytes::from_static(b"whatever"),
            _ => return answer,
        }
        encode_job_answer(&decoded).unwrap().into()
    }
}

/// Workers, and the URI that is said to them.
struct Shared(Arc<Inside>, &'static str);

impl CompactionWorkers for Shared {
    fn place(&self) -> Option<String> {
        Some(self.1.to_owned())
    }

    fn run(&self, offer: CompactionOffer) -> BoxFuture<'static, tombolo::Result<Bytes>> {
        let inside = Arc::clone(&self.0);
        Box::pin(async move {
            inside.jobs.fetch_add(1, Ordering::Relaxed);
            let lie = *inside.lie.lock();
            if lie == Lie::Fails {
                return Err(Error::new(ErrorKind::Retry, "no worker is there"));
            }
            let (_, bytes) = offer.begin()?;
            let job = inside.meddle_with_job(bytes.clone());
            let answer = inside.worker.run(&job, &CompactionRun::default()).await?;
            if lie == Lie::DiesAtTheEnd {
                inside.earlier.lock().push(answer);
                return Err(Error::new(ErrorKind::Retry, "the worker was lost"));
            }
            let said = inside.meddle_with_answer(&bytes, answer.clone());
            inside.earlier.lock().push(answer);
            Ok(said)
        })
    }

    fn refused(&self, _attempt: u128, error: &Error) {
        self.0.refused.lock().push(error.to_string());
    }
}

#[derive(Clone)]
struct Stores {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

#[derive(Default)]
struct Told(Mutex<Vec<(bool, bool)>>);

impl Listener for Told {
    fn event(&self, event: &Event) {
        if let Event::RemoteCompactionFailed { is_refused, is_done_here, .. } = event {
            self.0.lock().push((*is_refused, *is_done_here));
        }
    }
}

impl Stores {
    fn builder(&self, place: CompactionPlace) -> Builder {
        let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=65536"]).unwrap();
        let options = Options { compaction: place, automatic_compaction: false, ..options };
        let builder = Db::builder("mem://writer").env(self.env.clone()).take_over(TakeOver::Always);
        builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).options(options)
    }

    fn worker(&self) -> CompactionWorker {
        let budget = MemoryBudget::new(8 << 20).unwrap();
        let worker = CompactionWorker::new(&self.env, Registry::with_defaults(), &budget);
        worker.store(PLACE, Arc::clone(&self.objects))
    }

    fn inside(&self, worker: CompactionWorker) -> Arc<Inside> {
        Arc::new(Inside {
            worker,
            lie: Mutex::default(),
            earlier: Mutex::default(),
            jobs: AtomicUsize::new(0),
            refused: Mutex::default(),
        })
    }

    /// A worker, and a database whose compactions it has.
    async fn open(&self) -> (Arc<Inside>, Db) {
        let inside = self.inside(self.worker());
        let db = self.of(CompactionPlace::Remote, &inside).open().await.unwrap();
        (inside, db)
    }

    /// A database with a worker.
    fn of(&self, place: CompactionPlace, inside: &Arc<Inside>) -> Builder {
        self.builder(place).compaction_workers(Arc::new(Shared(Arc::clone(inside), PLACE)))
    }

    async fn objects_left(&self) -> usize {
        let request = Request::new(Purpose::Verify, tombolo::Epoch(1));
        let list = self.objects.list(request, "", None, 100_000).await.unwrap();
        list.objects.iter().filter(|object| object.name.as_str().contains("/table/")).count()
    }
}

fn simulate<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let objects = Arc::new(MemoryObjectStore::unnamed(&env));
    let log = Arc::new(MemoryLogStore::unnamed(&env));
    process.run(test(Stores { env, objects, log })).unwrap();
}

fn count(db: &Db, name: &str) -> u64 {
    match db.property(name).unwrap().value {
        PropertyValue::Number(number) => number,
        other => panic!("{other:?}"),
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

async fn read(mut scan: Scan) -> Entries {
    let mut entries = BTreeMap::new();
    while let Some((key, value)) = scan.next_async().await.unwrap() {
        entries.insert(key.to_vec(), value.to_vec());
    }
    entries
}

/// All entries of a keyspace.
async fn all(keys: &Keyspace) -> Entries {
    read(keys.scan::<&[u8]>(..)).await
}

async fn fill(db: &Db, keys: &Keyspace, salt: u64) {
    for number in 0..600 {
        if (number + salt).is_multiple_of(7) {
            keys.delete(key(number)).await.unwrap();
        } else if (number + salt) % 3 != 1 {
            keys.put(key(number), [salt as u8; 400]).await.unwrap();
        }
    }
    db.flush().await.unwrap();
}

fn one_function_here_and_there() {
    simulate(|stores| async move {
        let (inside, db) = stores.open().await;
        let far = db.create_keyspace("far", KeyspaceOptions::default()).await.unwrap();
        let here = KeyspaceOptions { compaction: Some(CompactionPlace::Local), ..KeyspaceOptions::default() };
        let near = db.create_keyspace("near", here).await.unwrap();
        let mut snapshots = Vec::new();
        for salt in 0..6 {
            fill(&db, &far, salt).await;
            fill(&db, &near, salt).await;
            if salt == 2 {
                snapshots.push(db.snapshot());
                far.delete_range(key(100), key(200)).await.unwrap();
                near.delete_range(key(100), key(200)).await.unwrap();
            }
            if salt % 2 == 1 {
                far.compact_range(key(salt * 50)..key(salt * 90)).await.unwrap();
                near.compact_range(key(salt * 50)..key(salt * 90)).await.unwrap();
            }
            assert!(all(&far).await == all(&near).await);
        }
        let seen = async |keys: &Keyspace| read(snapshots[0].scan::<&[u8]>(keys, ..)).await;
        db.compact().await.unwrap();
        assert!(all(&far).await == all(&near).await && seen(&far).await == seen(&near).await);
        let tables = |keys: &Keyspace| -> Vec<(u64, u64)> {
            keys.table_properties().unwrap().iter().map(|table| (table.entries, table.bytes)).collect()
        };
        assert_eq!(tables(&far), tables(&near), "the same tables");
        let jobs = inside.jobs.load(Ordering::Relaxed) as u64;
        assert!(jobs >= 3, "{jobs} jobs");
        assert_eq!(count(&db, "remote-compactions"), jobs);
        assert_eq!(count(&db, "remote-compactions-failed"), 0);
        db.close().await.unwrap();
    });
}

#[test]
fn a_worker_makes_the_same_tables() {
    one_function_here_and_there();
}

/// Values that end, apart and in place, operands that end, and range deletes over them come to the
/// same there as here, at each time and for each snapshot.
#[test]
fn what_ends_comes_to_the_same_there() {
    simulate(|stores| async move {
        let (inside, db) = stores.open().await;
        let options = KeyspaceOptions {
            operator: Some(OperatorName::parse("add_u64").unwrap()),
            separate_bytes: 512,
            ..KeyspaceOptions::default()
        };
        let here = KeyspaceOptions { compaction: Some(CompactionPlace::Local), ..options.clone() };
        let far = db.create_keyspace("far", options).await.unwrap();
        let near = db.create_keyspace("near", here).await.unwrap();
        let (mut seed, mut snapshots) = (1u64, Vec::new());
        let mut draw = move |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for round in 0..12 {
            for _ in 0..80 {
                let (number, what, life) = (draw(60), draw(7), Duration::from_secs(1 + draw(40)));
                let mut batch = tombolo::Batch::new();
                for keys in [&far, &near] {
                    match what {
                        0 => batch.put_ttl(keys, key(number), [8; 700], life),
                        1 => batch.put_ttl(keys, key(number), 3u64.to_le_bytes(), life),
                        2 => batch.merge_ttl(keys, key(100 + number), 1u64.to_le_bytes(), life),
                        3 => batch.put_ttl(keys, key(100 + number), 100u64.to_le_bytes(), life),
                        4 => batch.merge(keys, key(200 + number), 1u64.to_le_bytes()),
                        5 => batch.delete(keys, key(100 + number)),
                        _ => batch.put(keys, key(number), [9; 800]),
                    };
                }
                db.write(batch).await.unwrap();
            }
            if round % 4 == 1 {
                snapshots.push(db.snapshot());
                for keys in [&far, &near] {
                    keys.delete_range(key(round * 3), key(round * 3 + 20)).await.unwrap();
                    keys.delete_range(key(100 + round * 3), key(100 + round * 3 + 20)).await.unwrap();
                }
            }
            db.flush().await.unwrap();
            stores.env.sleep(Duration::from_secs(5)).await;
            match round % 3 {
                0 => db.compact().await.unwrap(),
                1 => {
                    far.compact_range(key(30)..key(130)).await.unwrap();
                    near.compact_range(key(30)..key(130)).await.unwrap();
                }
                _ => {}
            }
            assert!(all(&far).await == all(&near).await, "round {round}");
            for snapshot in &snapshots {
                let seen = async |keys: &Keyspace| read(snapshot.scan::<&[u8]>(keys, ..)).await;
                assert!(seen(&far).await == seen(&near).await, "round {round}");
            }
        }
        assert!(count(&db, "remote-compactions") >= 6);
        assert_eq!(count(&db, "remote-compactions-failed"), 0, "{:?}", inside.refused.lock());
        db.verify().await.unwrap();
        db.close().await.unwrap();
    });
}

/// Whether an answer with this lie is refused, with nothing lost: the job is done here.
fn is_refused(lie: Lie, is_told: bool) {
    simulate(move |stores| async move {
        let inside = stores.inside(stores.worker());
        let told = Arc::new(Told::default());
        let builder = stores.of(CompactionPlace::RemoteOrLocal, &inside);
        let db = builder.listener(Arc::<Told>::clone(&told)).open().await.unwrap();
        let plain = KeyspaceOptions { compression: Compression::None, ..KeyspaceOptions::default() };
        let keys = db.create_keyspace("keys", plain).await.unwrap();
        // Two sorted runs, of which a job of part of the range takes some.
        fill(&db, &keys, 1).await;
        db.compact().await.unwrap();
        let before = all(&keys).await;
        let snapshot = db.snapshot();
        fill(&db, &keys, 2).await;
        fill(&db, &keys, 3).await;
        let expected = all(&keys).await;
        *inside.lie.lock() = lie;
        db.compact().await.unwrap();
        assert!(all(&keys).await == expected, "{lie:?}");
        let seen = read(snapshot.scan::<&[u8]>(&keys, ..)).await;
        assert!(seen == before, "{lie:?}: the snapshot");
        assert_eq!(count(&db, "remote-compactions-here"), 1, "{lie:?}");
        assert_eq!(count(&db, "remote-compactions-refused"), u64::from(is_told), "{lie:?}");
        assert_eq!(inside.refused.lock().len(), usize::from(is_told), "{lie:?}");
        // What the worker left is found by its names.
        for seconds in [61, 601] {
            stores.env.sleep(Duration::from_secs(seconds)).await;
            keys.put("more", "").await.unwrap();
            db.flush().await.unwrap();
            *inside.lie.lock() = Lie::None;
            db.compact().await.unwrap();
        }
        stores.env.sleep(Duration::from_secs(1)).await;
        let named = keys.table_properties().unwrap().len();
        assert_eq!(stores.objects_left().await, named, "{lie:?}: nothing is left behind");
        assert_eq!(*told.0.lock(), [(is_told, true)]);
        db.verify().await.unwrap();
        db.close().await.unwrap();
    });
}

#[test]
fn answers_that_are_wrong_are_refused() {
    for lie in [
        Lie::LosesInput,
        Lie::LosesInputAndItsHashes,
        Lie::OtherHashes,
        Lie::DropsSeen,
        Lie::Miscounts,
        Lie::WrongBound,
        Lie::WrongOrder,
        Lie::SaysOneEach,
        Lie::ForeignTable,
        Lie::StrangeName,
        Lie::WrongLevel,
        Lie::MissingOutput,
        Lie::OtherAttempt,
    ] {
        is_refused(lie, true);
    }
}

#[test]
fn a_worker_that_fails_is_done_without() {
    for lie in [Lie::Garbage, Lie::DiesAtTheEnd, Lie::Fails] {
        is_refused(lie, false);
    }
}

/// Deletes stay for what lies below the output.
fn deletes_over_what_lies_below() {
    simulate(|stores| async move {
        let (inside, db) = stores.open().await;
        let tiered = KeyspaceOptions { shape: tombolo::Shape::Tiered, ..KeyspaceOptions::default() };
        let keys = db.create_keyspace("keys", tiered).await.unwrap();
        for number in 0..2000 {
            keys.put(key(number), [1; 400]).await.unwrap();
        }
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        for round in 0..6 {
            for number in (round * 30)..(round * 30 + 60) {
                keys.delete(key(number)).await.unwrap();
            }
            db.flush().await.unwrap();
        }
        let expected = all(&keys).await;
        let before = inside.jobs.load(Ordering::Relaxed);
        db.set_options([("automatic_compaction", "true")]).unwrap();
        for _ in 0..100 {
            stores.env.sleep(Duration::from_millis(100)).await;
        }
        assert!(inside.jobs.load(Ordering::Relaxed) > before, "no job");
        assert!(all(&keys).await == expected);
        assert_eq!(count(&db, "remote-compactions-failed"), 0);
        db.close().await.unwrap();
    });
}

#[test]
fn deletes_stay_for_what_lies_below() {
    deletes_over_what_lies_below();
}

struct Rules;

impl CompactionFilter for Rules {
    fn begin(&self, _job: &FilterJob) -> Option<Box<dyn JobFilter>> {
        Some(Box::new(|entry: &FilterEntry<'_>| {
            let is_odd = entry.key.last().is_some_and(|last| last % 2 == 1);
            Ok(if is_odd { FilterDecision::Drop } else { FilterDecision::Keep })
        }))
    }
}

/// A worker without the program's filter is done without, and one that has it filters.
fn needs_are_compared() {
    simulate(|stores| async move {
        let name = FilterName::new("rules", 1).unwrap();
        for has_filter in [false, true] {
            let worker = stores.worker();
            let worker = if has_filter { worker.compaction_filter(name.clone(), Rules) } else { worker };
            assert_eq!(worker.abilities().contains(&"filter rules@1".to_owned()), has_filter);
            let inside = stores.inside(worker);
            let builder = stores.of(CompactionPlace::RemoteOrLocal, &inside);
            let builder = builder.compaction_filter(name.clone(), Rules);
            let db = builder.open().await.unwrap();
            let options = KeyspaceOptions {
                compaction_filter: Some(name.clone()),
                operator: Some(OperatorName::parse("add_u64").unwrap()),
                separate_bytes: 512,
                ..KeyspaceOptions::default()
            };
            let keys = db.open_or_create_keyspace("keys", options).await.unwrap();
            for number in 0..100 {
                keys.put(key(number), [7; 600]).await.unwrap();
                keys.merge(b"total", 1u64.to_le_bytes()).await.unwrap();
                keys.put_ttl(key(1000 + number), "short", Duration::from_secs(1000)).await.unwrap();
            }
            db.flush().await.unwrap();
            db.compact().await.unwrap();
            assert_eq!(all(&keys).await.keys().filter(|key| key.starts_with(b"key")).count(), 100);
            assert_eq!(count(&db, "filter-dropped"), 100);
            assert_eq!(count(&db, "remote-compactions-here"), u64::from(!has_filter));
            assert_eq!(count(&db, "remote-compactions"), u64::from(has_filter));
            assert_eq!(count(&db, "remote-compactions-refused"), 0, "{:?}", inside.refused.lock());
            db.verify().await.unwrap();
            db.close().await.unwrap();
        }
    });
}

#[test]
fn what_a_job_needs_is_compared() {
    needs_are_compared();
}

/// A writer that was taken over installs nothing: what comes back for it is nobody's.
#[test]
fn an_answer_after_a_takeover_counts_for_nothing() {
    simulate(|stores| async move {
        let (_inside, old) = stores.open().await;
        let keys = old.create_keyspace("keys", KeyspaceOptions::default()).await.unwrap();
        fill(&old, &keys, 1).await;
        fill(&old, &keys, 2).await;
        let expected = all(&keys).await;
        let new = stores.builder(CompactionPlace::Local).open().await.unwrap();
        let error = old.compact().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        let keys = new.keyspace("keys").unwrap();
        assert!(all(&keys).await == expected);
        new.compact().await.unwrap();
        new.verify().await.unwrap();
        assert!(all(&keys).await == expected);
        new.close().await.unwrap();
    });
}

/// What an attempt has made that was given up is swept: its answer counts no more.
fn an_earlier_attempt_answers() {
    simulate(|stores| async move {
        let (inside, db) = stores.open().await;
        let keys = db.create_keyspace("keys", KeyspaceOptions::default()).await.unwrap();
        fill(&db, &keys, 1).await;
        fill(&db, &keys, 2).await;
        let expected = all(&keys).await;
        *inside.lie.lock() = Lie::DiesAtTheEnd;
        db.compact().await.unwrap_err();
        *inside.lie.lock() = Lie::OtherAttempt;
        db.compact().await.unwrap();
        assert_eq!(count(&db, "remote-compactions-refused"), 1);
        assert_eq!(count(&db, "remote-compactions-here"), 1, "it is done here, and not asked for again");
        assert!(all(&keys).await == expected);
        db.close().await.unwrap();
    });
}

#[test]
fn an_answer_to_an_earlier_attempt_is_refused() {
    an_earlier_attempt_answers();
}

/// Where compaction is for workers alone, it waits for one, and says so.
#[test]
fn compaction_for_workers_alone_waits_for_one() {
    simulate(|stores| async move {
        let (inside, db) = stores.open().await;
        *inside.lie.lock() = Lie::Fails;
        let keys = db.create_keyspace("keys", KeyspaceOptions::default()).await.unwrap();
        fill(&db, &keys, 1).await;
        fill(&db, &keys, 2).await;
        let error = db.compact().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(error.to_string().contains("no worker did a compaction"), "{error}");
        assert!(db.stats().background_error.is_some(), "it is told");
        assert_eq!(count(&db, "remote-compactions-here"), 0);
        *inside.lie.lock() = Lie::None;
        db.compact().await.unwrap();
        assert_eq!(count(&db, "remote-compactions"), 1);
        db.close().await.unwrap();
    });
}

/// The URI that is said for workers may hold no secret either.
#[test]
fn a_secret_is_not_sent_to_workers() {
    simulate(|stores| async move {
        for (place, kind) in [
            ("s3://bucket/orders?secret_access_key=hush", ErrorKind::Unsupported),
            ("s3://name:hush@bucket/orders", ErrorKind::Unsupported),
            ("nowhere", ErrorKind::Invalid),
        ] {
            let inside = stores.inside(stores.worker());
            let workers = Arc::new(Shared(Arc::clone(&inside), place));
            let builder = stores.builder(CompactionPlace::Remote).compaction_workers(workers);
            let db = builder.open().await.unwrap();
            let keys = db.open_or_create_keyspace("keys", KeyspaceOptions::default()).await.unwrap();
            fill(&db, &keys, 1).await;
            fill(&db, &keys, 2).await;
            let error = db.compact().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
            assert_eq!(inside.jobs.load(Ordering::Relaxed), 0, "nothing is offered");
            db.close().await.unwrap();
        }
    });
}

#[test]
fn without_workers_none_can_be_asked() {
    simulate(|stores| async move {
        let error = stores.builder(CompactionPlace::Remote).open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("compaction_workers"), "{error}");
    });
}

#[cfg(feature = "mutants")]
#[test]
fn workers_that_are_believed_too_much_are_noticed() {
    use tombolo_storage::mutant::notices;

    notices(Mutant::RemoteSumsUnchecked, || is_refused(Lie::OtherHashes, true));
    notices(Mutant::OneEachUnchecked, || is_refused(Lie::SaysOneEach, true));
    notices(Mutant::RemoteRangeUnchecked, || is_refused(Lie::DropsSeen, true));
    notices(Mutant::RemoteCountsUnchecked, || is_refused(Lie::Miscounts, true));
    notices(Mutant::RemoteBoundsUnchecked, || is_refused(Lie::WrongBound, true));
    notices(Mutant::RemoteNamesUnchecked, || is_refused(Lie::StrangeName, true));
    notices(Mutant::AnswerOfAnyAttempt, an_earlier_attempt_answers);
    notices(Mutant::VoidAttemptsKept, || is_refused(Lie::DiesAtTheEnd, false));
    notices(Mutant::RemoteJobForgetsSnapshots, one_function_here_and_there);
    notices(Mutant::RemoteJobForgetsBelow, deletes_over_what_lies_below);
    notices(Mutant::WorkerIgnoresNeeds, needs_are_compared);
}
