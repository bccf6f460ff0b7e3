//! Compaction filters through the public interface: what snapshots see stays, nothing older comes
//! back, and a filter that fails or is not there takes nothing away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use tombolo::{
    Builder, CompactionFilter, Db, Event, FilterDecision, FilterEntry, FilterJob, FilterName, JobFilter,
    Keyspace, KeyspaceOptions, Listener, OperatorName, Options, PropertyValue, Snapshot, TakeOver,
};
use tombolo_env::Env;
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::mutant::Mutant;
use tombolo_storage::{LogStore, ObjectStore};

/// Of an entry: its key, its number, its end, and whether its value was given.
type Entry = (String, u64, Option<u64>, bool);

/// What a filter is told of, and does.
#[derive(Clone, Default)]
struct Rules {
    flushes: bool,
    /// Opens a snapshot at its first entry.
    opens: Arc<Mutex<Option<Db>>>,
    opened: Arc<Mutex<Option<Snapshot>>>,
    /// Keys that it was asked of.
    offered: Arc<Mutex<Vec<String>>>,
    /// The jobs that it began with.
    jobs: Arc<Mutex<Vec<FilterJob>>>,
    told: Arc<Mutex<Vec<Entry>>>,
    is_idle: Arc<AtomicUsize>,
}

impl CompactionFilter for Rules {
    fn begin(&self, job: &FilterJob) -> Option<Box<dyn JobFilter>> {
        assert_eq!(job.is_flush, job.oldest_unix_seconds.is_none());
        let rules = self.clone();
        rules.jobs.lock().push(job.clone());
        Some(Box::new(move |entry: &FilterEntry<'_>| {
            let key = String::from_utf8(entry.key.to_vec())?;
            rules.told.lock().push((key, entry.sequence, entry.expires_ms, entry.value.is_some()));
            if let Some(db) = rules.opens.lock().take() {
                *rules.opened.lock() = Some(db.snapshot());
            }
            rules.offered.lock().push(String::from_utf8(entry.key.to_vec())?);
            if rules.is_idle.load(Ordering::Relaxed) > 0 {
                return Ok(FilterDecision::Keep);
            }
            Ok(match entry.value.and_then(<[u8]>::first) {
                Some(b'd') => FilterDecision::Drop,
                Some(b'r') => FilterDecision::Replace(b"new".to_vec()),
                Some(b'e') => return Err("on purpose".into()),
                Some(b'p') => panic!("on purpose"),
                _ if entry.key.starts_with(b"drop") => FilterDecision::Drop,
                None if entry.key.starts_with(b"ask") => FilterDecision::NeedsValue,
                _ => FilterDecision::Keep,
            })
        }))
    }

    fn filters_flushes(&self) -> bool {
        self.flushes
    }
}

#[derive(Clone)]
struct Stores {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

fn name() -> FilterName {
    FilterName::new("rules", 1).unwrap()
}

impl Stores {
    fn builder(&self) -> Builder {
        let options = Options::parse(["memory_bytes=4194304", "memtable_bytes=65536"]).unwrap();
        let builder = Db::builder("mem://filters").env(self.env.clone()).take_over(TakeOver::Always);
        builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).options(options)
    }

    async fn open(&self, rules: &Rules) -> (Db, Keyspace) {
        let db = self.builder().compaction_filter(name(), rules.clone()).open().await.unwrap();
        let options = KeyspaceOptions {
            compaction_filter: Some(name()),
            operator: Some(OperatorName::parse("append").unwrap()),
            separate_bytes: 512,
            ..KeyspaceOptions::default()
        };
        let keys = db.open_or_create_keyspace("keys", options).await.unwrap();
        (db, keys)
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let objects = Arc::new(MemoryObjectStore::unnamed(&env));
    let log = Arc::new(MemoryLogStore::unnamed(&env));
    process.run(test(Stores { env, objects, log })).unwrap();
}

async fn get(keys: &Keyspace, key: &str) -> Option<String> {
    let value = keys.get(key).await.unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn count(db: &Db, name: &str) -> u64 {
    match db.property(name).unwrap().value {
        PropertyValue::Number(number) => number,
        other => panic!("{other:?}"),
    }
}

fn snapshots_see_the_same() {
    run(|stores| async move {
        let rules = Rules::default();
        let (db, keys) = stores.open(&rules).await;
        for key in ["drop", "kept", "replaced"] {
            keys.put(key, "before").await.unwrap();
        }
        keys.put("replaced", "r").await.unwrap();
        let snapshot = db.snapshot();
        let seen = async |key| snapshot.get(&keys, key).await.unwrap().map(|value| value.to_vec());
        for _ in 0..2 {
            assert_eq!(seen("drop").await.unwrap(), b"before");
            assert_eq!(seen("replaced").await.unwrap(), b"r");
            assert_eq!(snapshot.scan::<&[u8]>(&keys, ..).count(), 3);
            db.compact().await.unwrap();
        }
        // Over what the snapshot sees.
        keys.put("drop", "after").await.unwrap();
        db.compact().await.unwrap();
        assert_eq!(seen("drop").await.unwrap(), b"before");
        assert_eq!(get(&keys, "drop").await, None, "what is older does not come back");
        drop(snapshot);
        db.compact().await.unwrap();
        assert_eq!(get(&keys, "replaced").await.unwrap(), "new");
        assert_eq!(get(&keys, "kept").await.unwrap(), "before");
        db.close().await.unwrap();
        let (_db, keys) = stores.open(&rules).await;
        assert_eq!((get(&keys, "drop").await, get(&keys, "replaced").await.unwrap()), (None, "new".into()));
    });
}

#[test]
fn what_a_snapshot_sees_is_not_offered() {
    snapshots_see_the_same();
}

/// A job that is at work knows nothing of a snapshot that is opened meanwhile, which may have read
/// what the job takes away.
fn a_snapshot_of_meanwhile() {
    run(|stores| async move {
        let rules = Rules::default();
        let (db, keys) = stores.open(&rules).await;
        keys.put("drop", "value").await.unwrap();
        keys.put("replaced", "r").await.unwrap();
        *rules.opens.lock() = Some(db.clone());
        db.compact().await.unwrap();
        let snapshot = rules.opened.lock().take().unwrap();
        for _ in 0..2 {
            assert_eq!(snapshot.get(&keys, "drop").await.unwrap().unwrap(), b"value");
            let entries: Vec<_> = snapshot.scan::<&[u8]>(&keys, ..).map(|entry| entry.unwrap().1).collect();
            assert_eq!(entries, [&b"value"[..], b"r"]);
            assert_eq!(
                (get(&keys, "drop").await, get(&keys, "replaced").await.unwrap()),
                (None, "new".into())
            );
            db.compact().await.unwrap();
        }
        assert_eq!(count(&db, "readers-behind"), 1, "it keeps what it sees");
        drop(snapshot);
        assert_eq!(count(&db, "readers-behind"), 0);
        // Those that are opened later do not.
        let _snapshot = db.snapshot();
        keys.put("more", "").await.unwrap();
        db.compact().await.unwrap();
        assert_eq!(count(&db, "readers-behind"), 0);
    });
}

#[test]
fn a_snapshot_that_is_opened_meanwhile_sees_the_same() {
    a_snapshot_of_meanwhile();
}

fn over_older_versions_below() {
    run(|stores| async move {
        let rules = Rules { flushes: true, ..Rules::default() };
        let (db, keys) = stores.open(&rules).await;
        keys.put("k", "older").await.unwrap();
        db.compact().await.unwrap();
        keys.put("k", "d").await.unwrap();
        db.flush().await.unwrap();
        assert_eq!(get(&keys, "k").await, None);
        assert_eq!(count(&db, "filter-dropped"), 1);
        db.compact().await.unwrap();
        assert_eq!(get(&keys, "k").await, None);
        assert!(keys.table_properties().unwrap().is_empty(), "nothing is left");
    });
}

#[test]
fn what_is_dropped_over_older_versions_leaves_a_delete() {
    over_older_versions_below();
}

/// A cursor from now walks over many keys that a filter took away; one of a snapshot that keeps
/// them goes past none.
fn a_walk_over_many_that_were_dropped() {
    run(|stores| async move {
        let rules = Rules { flushes: true, ..Rules::default() };
        let (db, keys) = stores.open(&rules).await;
        for value in ["value", "d"] {
            for number in 0..400 {
                keys.put(format!("k{number:03}"), value).await.unwrap();
            }
            keys.put("z", "kept").await.unwrap();
            if value == "value" {
                db.compact().await.unwrap();
            }
        }
        // Over older versions it leaves deletes, no newer than the snapshot.
        *rules.opens.lock() = Some(db.clone());
        db.flush().await.unwrap();
        let snapshot = rules.opened.lock().take().unwrap();
        for _ in 0..2 {
            let mut now = keys.cursor::<&[u8]>(..);
            assert!(now.seek_to_first_async().await.unwrap());
            assert_eq!(now.key(), b"z");
            let (mut then, mut count) = (snapshot.cursor::<&[u8]>(&keys, ..), 0);
            let mut valid = then.seek_to_first_async().await.unwrap();
            while valid {
                count += 1;
                valid = then.next_async().await.unwrap();
            }
            assert_eq!(count, 401);
        }
    });
}

#[test]
fn a_snapshot_of_meanwhile_walks_over_all_that_it_sees() {
    a_walk_over_many_that_were_dropped();
}

#[cfg(feature = "mutants")]
#[test]
fn filters_that_take_too_much_are_noticed() {
    use tombolo_storage::mutant::notices;

    notices(Mutant::FilterIgnoresSnapshots, snapshots_see_the_same);
    notices(Mutant::FilterForgetsNewSnapshots, a_snapshot_of_meanwhile);
    notices(Mutant::FilterDropsOverOlder, over_older_versions_below);
    notices(Mutant::FilterDropsOverOlder, snapshots_see_the_same);
}

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Listener for Told {
    fn event(&self, event: &Event) {
        if let Event::FilterFailed { error, .. } = event {
            self.0.lock().push(error.to_string());
        }
    }
}

/// Which keys of some have a value.
async fn left(keys: &Keyspace) -> Vec<&'static str> {
    let mut left = Vec::new();
    for key in ["a", "b", "c", "d", "drop", "e"] {
        if get(keys, key).await.is_some() {
            left.push(key);
        }
    }
    left
}

#[test]
fn a_filter_that_fails_or_is_not_there_takes_nothing_and_is_told_once() {
    run(|stores| async move {
        let rules = Rules::default();
        let told = Arc::new(Told::default());
        let (db, keys) = stores.open(&rules).await;
        rules.is_idle.store(1, Ordering::Relaxed);
        for (key, value) in [("a", "e"), ("b", "d"), ("c", "p"), ("d", "d"), ("drop", "z")] {
            keys.put(key, value).await.unwrap();
        }
        db.close().await.unwrap();
        let other = FilterName::new("rules", 2).unwrap();
        let builder = stores.builder().listener(Arc::<Told>::clone(&told));
        let db = builder.compaction_filter(other, rules.clone()).open().await.unwrap();
        let keys = db.keyspace("keys").unwrap();
        for _ in 0..2 {
            db.compact().await.unwrap();
            keys.put("e", "more").await.unwrap();
        }
        assert_eq!(left(&keys).await, ["a", "b", "c", "d", "drop", "e"]);
        assert!(count(&db, "filter-missing") >= 2);
        db.close().await.unwrap();
        {
            let told = std::mem::take(&mut *told.0.lock());
            assert!(told.len() == 1 && told[0].contains("rules@1 is not there"), "{told:?}");
        }
        // It fails at one entry, panics at another, and is not asked of those behind that one.
        rules.is_idle.store(0, Ordering::Relaxed);
        let builder = stores.builder().listener(Arc::<Told>::clone(&told));
        let db = builder.compaction_filter(name(), rules.clone()).open().await.unwrap();
        let keys = db.keyspace("keys").unwrap();
        for _ in 0..2 {
            db.compact().await.unwrap();
            assert_eq!(left(&keys).await, ["a", "c", "d", "drop", "e"]);
        }
        assert_eq!((count(&db, "filter-dropped"), count(&db, "filter-failed")), (1, 4));
        db.close().await.unwrap();
        let told = told.0.lock();
        assert!(told.len() == 1 && told[0].contains("on purpose"), "{told:?}");
    });
}

/// By hand every entry is offered, at the last level too, and once.
#[test]
fn a_compaction_that_is_asked_for_offers_every_entry_once() {
    run(|stores| async move {
        let rules = Rules::default();
        let (db, keys) = stores.open(&rules).await;
        let expected: Vec<_> = (0..200).map(|number| format!("key{number:03}")).collect();
        for key in &expected {
            keys.put(key, vec![b'v'; 400]).await.unwrap();
        }
        for _ in 0..2 {
            db.compact().await.unwrap();
            rules.offered.lock().clear();
        }
        keys.put("key100", "newer").await.unwrap();
        db.compact().await.unwrap();
        let offered = std::mem::take(&mut *rules.offered.lock());
        let all: BTreeSet<_> = offered.iter().collect();
        assert_eq!(all.len(), expected.len());
        assert_eq!(offered.len(), expected.len(), "once each");
        // A snapshot of all: nothing is offered, and nothing written again for that.
        let _snapshot = db.snapshot();
        let before = count(&db, "compactions");
        db.compact().await.unwrap();
        assert_eq!((rules.offered.lock().len(), count(&db, "compactions")), (0, before));
    });
}

#[test]
fn merges_ends_and_values_that_lie_apart_are_offered_as_what_a_key_has() {
    run(|stores| async move {
        let rules = Rules::default();
        let (db, keys) = stores.open(&rules).await;
        let large = |first: char| format!("{first}{}", "x".repeat(1000));
        keys.put("merged", "d").await.unwrap();
        keys.merge("merged", "operand").await.unwrap();
        keys.merge("operands", "d").await.unwrap();
        keys.merge("operands", "d").await.unwrap();
        keys.put_ttl("ending", "r", Duration::from_secs(60)).await.unwrap();
        keys.put("ask 1", large('d')).await.unwrap();
        keys.put("ask 2", large('k')).await.unwrap();
        keys.put("ask 3", large('r')).await.unwrap();
        keys.put("drop", large('k')).await.unwrap();
        keys.put("kept", large('d')).await.unwrap();
        keys.put("range", "value").await.unwrap();
        keys.delete_range("range", "rangf").await.unwrap();
        db.compact().await.unwrap();
        assert!(!rules.offered.lock().iter().any(|key| key == "range"), "it was deleted before");
        assert_eq!(get(&keys, "merged").await, None, "as doperand");
        assert_eq!(get(&keys, "operands").await, None, "folded over nothing, at the bottom");
        assert_eq!(get(&keys, "ending").await.unwrap(), "new");
        let cursor = keys.get_versioned("ending").await.unwrap();
        assert!(cursor.is_some());
        assert_eq!((get(&keys, "ask 1").await, get(&keys, "drop").await), (None, None));
        assert_eq!(get(&keys, "ask 2").await.unwrap(), large('k'));
        assert_eq!(get(&keys, "ask 3").await.unwrap(), "new");
        assert_eq!(get(&keys, "kept").await.unwrap(), large('d'), "it did not ask for the value");
        stores.env.sleep(Duration::from_secs(61)).await;
        assert_eq!(get(&keys, "ending").await, None, "a replaced value keeps its end");
        assert!(db.verify().await.unwrap().damage.is_empty());
    });
}

/// What a filter decides by: where the entries go, who wants it, how old they are, the database's
/// time, and of each entry its number and its end.
#[test]
fn a_filter_is_told_of_its_job_and_of_each_entry() {
    run(|stores| async move {
        let rules = Rules { flushes: true, ..Rules::default() };
        let (db, keys) = stores.open(&rules).await;
        let sleep = async |seconds| stores.env.sleep(Duration::from_secs(seconds)).await;
        let taken = || std::mem::take(&mut *rules.jobs.lock());
        sleep(10_000).await;
        keys.put("a", "kept").await.unwrap();
        keys.put_ttl("b", "kept", Duration::from_secs(86_400)).await.unwrap();
        keys.put("c", "kept".repeat(400)).await.unwrap();
        let (began, first) = (db.time_ms(), stores.env.unix_time().as_secs());
        db.flush().await.unwrap();
        let jobs = taken();
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        assert_eq!((jobs[0].keyspace, jobs[0].level, jobs[0].is_flush), (keys.id(), 0, true));
        assert_eq!((jobs[0].is_asked, jobs[0].oldest_unix_seconds), (false, None));
        assert!((began..=db.time_ms()).contains(&jobs[0].time_ms), "{jobs:?} began at {began}");
        let numbers = [keys.get_versioned("a").await.unwrap().unwrap().sequence];
        let told = std::mem::take(&mut *rules.told.lock());
        assert_eq!(told.iter().map(|(key, ..)| key.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(told.iter().map(|(_, number, ..)| number - numbers[0]).collect::<Vec<_>>(), [0, 1, 2]);
        let end = told[1].2.unwrap();
        assert!((began + 86_000_000..=began + 86_400_000).contains(&end), "{told:?}");
        assert_eq!((told[0].2, told[2].2), (None, None));
        assert!(told.iter().all(|(.., given)| *given), "all values are in memory");

        // A compaction knows how old the oldest is of what it takes.
        sleep(5000).await;
        keys.put("d", "kept").await.unwrap();
        db.flush().await.unwrap();
        taken();
        rules.told.lock().clear();
        sleep(700).await;
        let began = db.time_ms();
        db.compact().await.unwrap();
        let jobs = taken();
        assert!(!jobs.is_empty());
        for job in &jobs {
            assert_eq!((job.keyspace, job.level, job.is_flush, job.is_asked), (keys.id(), 6, false, true));
            let oldest = job.oldest_unix_seconds.unwrap();
            assert!((first..first + 60).contains(&oldest), "{oldest} and not {first}");
            assert!((began..=db.time_ms()).contains(&job.time_ms), "{} began at {began}", job.time_ms);
        }
        let told = std::mem::take(&mut *rules.told.lock());
        let told: Vec<_> = told.iter().map(|(key, _, end, given)| (&key[..], *end, *given)).collect();
        let expected = [("a", None, true), ("b", Some(end), true), ("c", None, false), ("d", None, true)];
        assert_eq!(told, expected, "a value that lies apart is not fetched");

        // Compactions for which nobody asks say so.
        for round in 0..60 {
            for number in 0..40 {
                keys.put(format!("more {round} {number}"), vec![b'k'; 400]).await.unwrap();
            }
        }
        sleep(100).await;
        let jobs = taken();
        let by_itself = jobs.iter().find(|job| !job.is_flush).expect("a compaction");
        assert!(!by_itself.is_asked && by_itself.level > 0, "{by_itself:?}");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Merge(u8),
    DeleteRange(u8, u8),
    Flush,
    Compact,
    Open,
    Close(u8),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..6_u8;
    let step = prop_oneof![
        8 => (key(), 0..4_u8).prop_map(|(key, kind)| Step::Put(key, kind)),
        2 => key().prop_map(Step::Delete),
        2 => key().prop_map(Step::Merge),
        1 => (key(), 1..4_u8).prop_map(|(from, keys)| Step::DeleteRange(from, keys)),
        3 => Just(Step::Flush),
        3 => Just(Step::Compact),
        2 => Just(Step::Open),
        2 => any::<u8>().prop_map(Step::Close),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

/// Everything that a filter may make of what a key has: itself, or that. Once it has been seen
/// filtered it stays so.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<String, Vec<Option<String>>>);

impl Model {
    fn has(value: String) -> Vec<Option<String>> {
        match value.as_bytes().first() {
            Some(b'd') => vec![Some(value), None],
            Some(b'r') => vec![Some(value), Some("new".into())],
            _ => vec![Some(value)],
        }
    }

    /// An operand over each of what it may have; each fold may be filtered once more.
    fn merge(&mut self, key: &str) {
        let may = self.0.remove(key).unwrap_or_else(|| vec![None]);
        let folded = may.into_iter().flat_map(|may| Model::has(may.unwrap_or_default() + "m"));
        self.0.insert(key.into(), folded.collect());
    }

    async fn check(&mut self, keys: &Keyspace) {
        for number in 0..6 {
            let key = format!("k{number}");
            let read = get(keys, &key).await;
            let may = self.0.entry(key.clone()).or_insert_with(|| vec![None]);
            let found = may.iter().position(|may| *may == read);
            let found = found.unwrap_or_else(|| panic!("{key} has {read:?}, and not one of {may:?}"));
            // Nothing of before comes back.
            may.drain(..found);
        }
    }
}

async fn of_snapshot(snapshot: &Snapshot, keys: &Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for number in 0..6 {
        let key = format!("k{number}");
        if let Some(value) = snapshot.get(keys, &key).await.unwrap() {
            all.push((key.into_bytes(), value.to_vec()));
        }
    }
    all
}

fn history(steps: Vec<Step>, flushes: bool) {
    run(move |stores| async move {
        let rules = Rules { flushes, ..Rules::default() };
        let (mut db, mut keys) = stores.open(&rules).await;
        let (mut model, mut snapshots) = (Model::default(), Vec::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(key, kind) => {
                    let value = format!("{}{number}", ["d", "r", "k", "x"][usize::from(kind)]);
                    keys.put(format!("k{key}"), &value).await.unwrap();
                    model.0.insert(format!("k{key}"), Model::has(value));
                }
                Step::Delete(key) => {
                    keys.delete(format!("k{key}")).await.unwrap();
                    model.0.remove(&format!("k{key}"));
                }
                Step::Merge(key) => {
                    keys.merge(format!("k{key}"), "m").await.unwrap();
                    model.merge(&format!("k{key}"));
                }
                Step::DeleteRange(from, count) => {
                    let (from, to) = (format!("k{from}"), format!("k{}", from + count));
                    keys.delete_range(&from, &to).await.unwrap();
                    model.0.retain(|key, _| *key < from || *key >= to);
                }
                Step::Flush => db.flush().await.unwrap(),
                Step::Compact => {
                    db.compact().await.unwrap();
                }
                Step::Open => {
                    let snapshot = db.snapshot();
                    let seen = of_snapshot(&snapshot, &keys).await;
                    snapshots.push((snapshot, seen));
                }
                Step::Close(which) if !snapshots.is_empty() => {
                    drop(snapshots.swap_remove(usize::from(which) % snapshots.len()));
                }
                Step::Close(_) => {}
                Step::Reopen => {
                    snapshots.clear();
                    drop((db, keys));
                    (db, keys) = stores.open(&rules).await;
                }
            }
            model.check(&keys).await;
            for (snapshot, seen) in &snapshots {
                assert_eq!(of_snapshot(snapshot, &keys).await, *seen, "at {}", snapshot.sequence());
            }
        }
        snapshots.clear();
        db.compact().await.unwrap();
        for number in 0..6 {
            let value = get(&keys, &format!("k{number}")).await.unwrap_or_default();
            assert!(!value.starts_with(['d', 'r']), "{value} was not filtered");
        }
        model.check(&keys).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if crate::is_deep() { 1000 } else { 40 }))]

    #[test]
    fn reads_agree_with_a_map_that_a_filter_may_change((steps, flushes) in (steps(), any::<bool>())) {
        history(steps, flushes);
    }
}
