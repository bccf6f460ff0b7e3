//! Tiers by age: what goes into the cold store, what stays, and what happens while it is away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tombolo::{
    Builder, Db, Env, ErrorKind, Event, Keyspace, KeyspaceOptions, Listener, Options, Registry, TakeOver,
};
use tombolo_env::simulated::World;
use tombolo_env::{Completer, Either, completion, either};
use tombolo_storage::layer::fault::{Fault, FaultPlan, Rule};
use tombolo_storage::{Epoch, ObjectName, Purpose, Request, Uri};

use crate::stores::faulty_registry;

const HOUR: Duration = Duration::from_secs(3600);
const COLD: &str = "file:///cold";

/// Databases on one store, and a cold store whose requests are counted and may fail.
#[derive(Clone)]
struct Stores {
    env: Env,
    registry: Registry,
    plan: FaultPlan,
    /// Counted where they may go on without an end.
    jobs: Option<Arc<Jobs>>,
}

/// Counts compactions. More than a test needs go on without an end.
struct Jobs(Mutex<(u32, Option<Completer<()>>)>);

impl Listener for Jobs {
    fn event(&self, event: &Event) {
        if let Event::Compacted { .. } = event {
            let mut jobs = self.0.lock().unwrap();
            jobs.0 += 1;
            if jobs.0 > 3000
                && let Some(endless) = jobs.1.take()
            {
                endless.complete(());
            }
        }
    }
}

impl Stores {
    fn builder(&self, name: &str) -> Builder {
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=8192"]).unwrap();
        let builder = Db::builder(format!("mem://bucket/{name}"))
            .registry(self.registry.clone())
            .env(self.env.clone())
            .options(options)
            .take_over(TakeOver::Always);
        match &self.jobs {
            Some(jobs) => builder.listener(Arc::<Jobs>::clone(jobs)),
            None => builder,
        }
    }

    /// A database with a cold store, and a keyspace of which data goes there after an hour.
    async fn open(&self) -> (Db, Keyspace) {
        let db = self.builder("db").cold_store(COLD).open().await.unwrap();
        let keys = match db.keyspace("events") {
            Ok(keys) => keys,
            Err(_) => db.create_keyspace("events", options(HOUR)).await.unwrap(),
        };
        (db, keys)
    }

    /// The objects of the cold store with `part` in their names.
    async fn cold(&self, part: &str) -> Vec<ObjectName> {
        let store = self.registry.open_object_store(&self.env, &Uri::parse(COLD).unwrap()).unwrap();
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let listed = store.list(request, "", None, 10_000).await.unwrap();
        let names = listed.objects.into_iter().map(|object| object.name);
        names.filter(|name| name.as_str().contains(part)).collect()
    }

    async fn delete_cold(&self, name: &ObjectName) {
        let store = self.registry.open_object_store(&self.env, &Uri::parse(COLD).unwrap()).unwrap();
        store.delete(Request::new(Purpose::Collection, Epoch::NONE), name).await.unwrap();
    }

    async fn settle(&self) {
        self.env.sleep(Duration::from_secs(200)).await;
    }
}

fn options(age: Duration) -> KeyspaceOptions {
    KeyspaceOptions { cold_after: Some(age), ..KeyspaceOptions::default() }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let process = World::new(1).process("writer");
    let plan = FaultPlan::scripted();
    let registry = faulty_registry(&Registry::with_defaults(), "file", &plan);
    process.run(test(Stores { env: process.env(), registry, plan, jobs: None })).unwrap();
}

/// As [`run`], where compaction may go on without an end, which is a failure.
fn run_bounded<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F + Send + 'static) {
    run(|stores| async move {
        let (endless, seen) = completion();
        let jobs = Some(Arc::new(Jobs(Mutex::new((0, Some(endless))))));
        let ended = either(test(Stores { jobs, ..stores }), seen).await;
        assert!(matches!(ended, Either::First(())), "compaction goes on without an end");
    });
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

async fn fill(db: &Db, keys: &Keyspace, numbers: impl Iterator<Item = u32>, what: u8) {
    for number in numbers {
        keys.put(key(number), vec![what; 100]).await.unwrap();
    }
    db.flush().await.unwrap();
}

fn count(db: &Db, name: &str) -> u64 {
    db.property(name).unwrap().value.number().unwrap()
}

async fn contents(keys: &Keyspace) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut scan = keys.scan::<&[u8]>(..);
    let mut contents = BTreeMap::new();
    while let Some((key, value)) = scan.next_async().await.unwrap() {
        contents.insert(key.to_vec(), value.to_vec());
    }
    contents
}

/// Old keys and newer ones, of which the old ones have gone cold.
async fn aged(stores: &Stores) -> (Db, Keyspace) {
    let (db, keys) = stores.open().await;
    fill(&db, &keys, 0..1000, 1).await;
    stores.env.sleep(2 * HOUR).await;
    // Among them, so that they share tables.
    fill(&db, &keys, (0..1000).step_by(20), 2).await;
    db.compact().await.unwrap();
    (db, keys)
}

fn what_is_old_goes_and_what_is_new_stays() {
    run(|stores| async move {
        let (db, keys) = aged(&stores).await;
        let (all, cold) = (count(&db, "table-bytes"), count(&db, "cold-table-bytes"));
        assert!(cold > all / 2 && cold < all, "{cold} of {all} bytes are cold");
        assert!(!stores.cold("/table/").await.is_empty());
        // New keys, of which each has old ones on both sides, ask nothing of the cold store.
        drop((db, keys));
        let (db, keys) = stores.open().await;
        let before = stores.plan.requests();
        for number in (0..1000).step_by(20) {
            assert_eq!(keys.get(key(number)).await.unwrap().unwrap()[0], 2);
        }
        assert_eq!(stores.plan.requests(), before, "a read of what is hot asked the cold store");
        assert_eq!(keys.get(key(7)).await.unwrap().unwrap()[0], 1);
        assert!(stores.plan.requests() > before && count(&db, "cold-reads") > 0);
        assert_eq!(contents(&keys).await.len(), 1000);
        assert!(db.verify().await.unwrap().damage.is_empty());
        // Written over, and old: what lies below goes.
        fill(&db, &keys, 0..1000, 3).await;
        stores.env.sleep(2 * HOUR).await;
        fill(&db, &keys, 0..1, 4).await;
        db.compact().await.unwrap();
        stores.settle().await;
        let live = count(&db, "cold-tables");
        assert_eq!(stores.cold("/table/").await.len() as u64, live, "what nobody needs is deleted");
        let all = contents(&keys).await;
        assert_eq!((all[&key(0)][0], all[&key(1)][0], all.len()), (4, 3, 1000));
        assert!(db.verify().await.unwrap().damage.is_empty());
        drop(keys);
        db.close().await.unwrap();
        drop(db);
        stores.builder("db").destroy().await.unwrap();
        assert!(stores.cold("").await.is_empty(), "{:?}", stores.cold("").await);
    });
}

#[test]
fn old_data_goes_into_the_cold_store_and_new_data_stays() {
    what_is_old_goes_and_what_is_new_stays();
}

/// Without anybody's asking, once about half of a table has gone cold, and not before.
fn tables_go_when_enough_has_gone_cold() {
    run(|stores| async move {
        let (db, keys) = stores.open().await;
        for round in 0..8 {
            fill(&db, &keys, round * 100..round * 100 + 100, 1).await;
        }
        stores.settle().await;
        assert_eq!(count(&db, "cold-tables"), 0, "nothing is old");
        stores.env.sleep(HOUR / 2).await;
        // Three in four are new.
        fill(&db, &keys, (0..800).filter(|number| number % 4 != 0), 2).await;
        db.compact().await.unwrap();
        stores.settle().await;
        let before = count(&db, "compactions");
        stores.env.sleep(HOUR * 3 / 5).await;
        let done = (count(&db, "cold-tables"), count(&db, "compactions"));
        assert_eq!(done, (0, before), "one in four is old");
        stores.env.sleep(HOUR).await;
        assert!(count(&db, "cold-tables") > 0);
        let done = count(&db, "compactions");
        stores.env.sleep(24 * HOUR).await;
        assert_eq!(count(&db, "compactions"), done, "nothing is done again and again");
        assert_eq!(contents(&keys).await.len(), 800);
    });
}

#[test]
fn tables_go_by_themselves_when_enough_of_them_has_gone_cold() {
    tables_go_when_enough_has_gone_cold();
}

/// Range deletes that a snapshot needs: they stay, and no job is done for them again and again.
#[test]
fn range_deletes_that_a_snapshot_keeps_wait_for_it() {
    run_bounded(|stores| async move {
        let (db, keys) = stores.open().await;
        fill(&db, &keys, 0..1000, 1).await;
        db.compact().await.unwrap();
        let snapshot = db.snapshot();
        keys.delete_range(key(0), key(900)).await.unwrap();
        db.flush().await.unwrap();
        stores.env.sleep(3 * HOUR).await;
        let done = count(&db, "compactions");
        stores.env.sleep(48 * HOUR).await;
        assert_eq!(count(&db, "compactions"), done, "nothing is done again and again");
        assert!(snapshot.get(&keys, key(7)).await.unwrap().is_some());
        drop(snapshot);
        db.compact().await.unwrap();
        assert_eq!(contents(&keys).await.len(), 100);
    });
}

/// Deletes of keys whose values have gone cold: they stay until they are cold themselves, and no
/// job writes them again and again before that.
#[test]
fn deletes_over_cold_data_wait_until_they_are_cold() {
    run_bounded(|stores| async move {
        let (db, keys) = aged(&stores).await;
        for number in 0..900 {
            keys.delete(key(number)).await.unwrap();
        }
        let left = contents(&keys).await;
        db.flush().await.unwrap();
        // Younger than what goes cold.
        stores.env.sleep(HOUR / 2).await;
        let done = count(&db, "compactions");
        stores.env.sleep(HOUR / 4).await;
        assert_eq!(count(&db, "compactions"), done, "nothing is done again and again");
        stores.env.sleep(48 * HOUR).await;
        db.compact().await.unwrap();
        assert!(!left.is_empty() && contents(&keys).await == left);
    });
}

/// While the cold store is out of reach, the database opens, is written, and is read where it is
/// hot; reads of cold data say what has gone wrong.
#[test]
fn a_cold_store_out_of_reach_holds_up_what_is_cold_alone() {
    run(|stores| async move {
        let (db, keys) = aged(&stores).await;
        drop((db, keys));
        stores.plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::Retry)));
        let (db, keys) = stores.open().await;
        fill(&db, &keys, 2000..2100, 5).await;
        assert_eq!(keys.get(key(20)).await.unwrap().unwrap()[0], 2);
        assert_eq!(keys.get(key(2050)).await.unwrap().unwrap()[0], 5);
        let error = keys.get(key(7)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(error.to_string().contains("in the cold store file:///cold"), "{error}");
        let report = db.verify().await.unwrap_err();
        assert_eq!(report.kind(), ErrorKind::Retry, "unreachable is not damaged: {report}");
        // A compaction that needs it is tried again; hot data goes on.
        stores.env.sleep(2 * HOUR).await;
        fill(&db, &keys, 3000..3100, 6).await;
        assert_eq!(keys.get(key(3050)).await.unwrap().unwrap()[0], 6);
        stores.plan.clear();
        stores.env.sleep(HOUR).await;
        assert_eq!(contents(&keys).await.len(), 1200);
        assert!(db.verify().await.unwrap().damage.is_empty());
        assert!(db.stats().background_error.is_none());
    });
}

/// An empty folder where the cold store was mounted is not taken for tables that are gone.
fn another_store_is_refused() {
    run(|stores| async move {
        let (db, keys) = aged(&stores).await;
        drop((db, keys));
        let markers = stores.cold("/cold").await;
        assert_eq!(markers.len(), 1);
        stores.delete_cold(&markers[0]).await;
        for table in stores.cold("/table/").await {
            stores.delete_cold(&table).await;
        }
        let (db, keys) = stores.open().await;
        let error = keys.get(key(7)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("holds no cold tables of this database"), "{error}");
        assert_eq!(keys.get(key(20)).await.unwrap().unwrap()[0], 2);
        let error = db.verify().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "nothing is told as lost: {error}");
        drop((db, keys));
        let refused = stores.builder("db").cold_store("file:///other").open().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        let secret = stores.builder("new").cold_store("s3://key:word@bucket").open().await.unwrap_err();
        assert_eq!(secret.kind(), ErrorKind::Invalid, "{secret}");
    });
}

#[test]
fn another_store_in_the_place_of_the_cold_one_is_refused() {
    another_store_is_refused();
}

/// Unlike a store that is another one: this is damage, told with the names of those tables.
#[test]
fn cold_tables_that_are_gone_are_damage_told_by_their_names() {
    run(|stores| async move {
        let (db, keys) = aged(&stores).await;
        drop((db, keys));
        let tables = stores.cold("/table/").await;
        for table in &tables {
            stores.delete_cold(table).await;
        }
        let gone: Vec<&str> = tables.iter().filter_map(|table| table.as_str().rsplit('/').next()).collect();
        assert!(!gone.is_empty());
        let (db, keys) = stores.open().await;
        let error = keys.get(key(7)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let text = error.to_string();
        assert!(text.contains("no such object in the cold store"), "{text}");
        assert!(gone.iter().any(|table| text.contains(table)), "{text}");
        assert_eq!(keys.get(key(20)).await.unwrap().unwrap()[0], 2);
        fill(&db, &keys, 2000..2100, 5).await;
        assert_eq!(keys.get(key(2050)).await.unwrap().unwrap()[0], 5);
        let damage = db.verify().await.unwrap().damage;
        assert!(!damage.is_empty());
        for text in damage.iter().map(ToString::to_string) {
            assert!(gone.iter().any(|table| text.contains(table)), "{text}");
        }
    });
}

/// Readers, checkpoints, restores and clones find cold data.
fn pins_and_clones_reach_over_both() {
    run(|stores| async move {
        let (db, keys) = aged(&stores).await;
        let before = contents(&keys).await;
        db.checkpoint("monday").await.unwrap();
        db.share_to(stores.builder("clone")).await.unwrap();
        let reader = stores.builder("db").open_reader(tombolo::ReaderOptions::default()).await.unwrap();
        assert_eq!(contents(&reader.keyspace("events").unwrap()).await, before);
        drop(reader);
        // All is written again, and what was cold is wanted by the checkpoint and the clone alone.
        fill(&db, &keys, 0..1000, 7).await;
        stores.env.sleep(2 * HOUR).await;
        fill(&db, &keys, 0..1, 7).await;
        db.compact().await.unwrap();
        stores.settle().await;
        let look = stores.builder("db").at_checkpoint("monday").open_read_only().await.unwrap();
        assert_eq!(contents(&look.keyspace("events").unwrap()).await, before);
        drop(look);
        stores.builder("db").at_checkpoint("monday").restore_to(stores.builder("restored")).await.unwrap();
        let restored = stores.builder("restored").open().await.unwrap();
        assert_eq!(contents(&restored.keyspace("events").unwrap()).await, before);
        assert_eq!(count(&restored, "cold-tables"), 0, "a restored database stands by itself");
        drop((restored, keys, db));
        let clone = stores.builder("clone").open().await.unwrap();
        let of_clone = clone.keyspace("events").unwrap();
        assert_eq!(contents(&of_clone).await, before);
        let cold = stores.cold("/table/").await;
        fill(&clone, &of_clone, 0..1000, 9).await;
        stores.env.sleep(2 * HOUR).await;
        fill(&clone, &of_clone, 0..1, 9).await;
        clone.compact().await.unwrap();
        assert_eq!(stores.cold("/table/").await, cold, "a clone leaves its source's cold store alone");
        assert!(contents(&of_clone).await.values().all(|value| value[0] == 9));
        // The source's next writer takes nothing of what the clone needs.
        let (db, keys) = stores.open().await;
        stores.settle().await;
        assert!(contents(&keys).await.values().all(|value| value[0] == 7));
        assert!(db.verify().await.unwrap().damage.is_empty());
        assert!(clone.verify().await.unwrap().damage.is_empty());
        // With one of its own, it has cold tables of its own.
        drop((of_clone, clone));
        let clone = stores.builder("clone").cold_store(COLD).open().await.unwrap();
        let of_clone = clone.keyspace("events").unwrap();
        fill(&clone, &of_clone, 0..1000, 8).await;
        stores.env.sleep(2 * HOUR).await;
        fill(&clone, &of_clone, 0..1, 8).await;
        clone.compact().await.unwrap();
        assert!(count(&clone, "cold-tables") > 0);
        assert_eq!(stores.cold("/cold").await.len(), 2, "each has its folder, and its marker");
        assert!(contents(&of_clone).await.values().all(|value| value[0] == 8));
    });
}

#[test]
fn readers_checkpoints_and_clones_reach_over_both_stores() {
    pins_and_clones_reach_over_both();
}

/// Of a keyspace that drops its oldest, runs go where bytes cost less until they are dropped.
#[test]
fn a_keyspace_that_drops_its_oldest_drops_from_either() {
    run(|stores| async move {
        let db = stores.builder("db").cold_store(COLD).open().await.unwrap();
        let settings =
            [("shape", "fifo"), ("fifo_bytes", "1MiB"), ("cold_after", "1h"), ("compression", "none")];
        let mut options = KeyspaceOptions::default();
        settings.iter().for_each(|(name, value)| options.set(name, value).unwrap());
        let keys = db.create_keyspace("events", options).await.unwrap();
        for round in 0..30u32 {
            fill(&db, &keys, round * 500..round * 500 + 500, 1).await;
            stores.env.sleep(HOUR / 10).await;
        }
        stores.settle().await;
        let (all, cold) = (count(&db, "table-bytes"), count(&db, "cold-table-bytes"));
        assert!(cold > 0 && cold < all, "{cold} of {all} bytes are cold");
        assert!(all <= 1 << 20, "{all} bytes are kept");
        assert_eq!(stores.cold("/table/").await.len() as u64, count(&db, "cold-tables"));
        let kept = contents(&keys).await;
        assert!(kept.contains_key(&key(14_999)) && !kept.contains_key(&key(0)));
    });
}

#[test]
fn ages_are_for_shapes_that_have_them() {
    let mut options = KeyspaceOptions::default();
    assert!(options.set("cold_after", "10ms").is_err());
    assert!(options.set("cold_after", "soon").is_err());
    options.set("cold_after", "30d").unwrap();
    assert_eq!(options.cold_after, Some(Duration::from_secs(30 * 86_400)));
    run(|stores| async move {
        let (db, _keys) = stores.open().await;
        let mut tiered = options.clone();
        tiered.set("shape", "tiered").unwrap();
        let error = db.create_keyspace("tiered", tiered).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    });
}

/// One step of a history.
fn history(seed: u64) {
    run_bounded(move |stores| async move {
        let mut random = Chance(seed);
        let (mut db, mut keys) = stores.open().await;
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut seen = None;
        for step in 0..40u32 {
            let at = random.below(300);
            match random.below(12) {
                0..=4 => {
                    for number in at..at + 1 + random.below(60) {
                        keys.put(key(number), step.to_le_bytes().repeat(20)).await.unwrap();
                        model.insert(key(number), step.to_le_bytes().repeat(20));
                    }
                }
                5 => {
                    for number in at..at + random.below(40) {
                        keys.delete(key(number)).await.unwrap();
                        model.remove(&key(number));
                    }
                }
                6 => {
                    let (from, to) = (key(at), key(at + 1 + random.below(80)));
                    keys.delete_range(&from, &to).await.unwrap();
                    model.retain(|key, _| *key < from || *key >= to);
                }
                7 => db.flush().await.unwrap(),
                8 => stores.env.sleep(HOUR * random.below(3)).await,
                9 => db.compact().await.unwrap(),
                10 => {
                    let age = HOUR * [1, 4, 100][random.below(3) as usize];
                    let age = format!("{}s", age.as_secs());
                    keys.set_options([("cold_after", age.as_str())]).await.unwrap();
                    seen = Some((db.snapshot(), model.clone()));
                }
                _ => {
                    seen = None;
                    drop((db, keys));
                    (db, keys) = stores.open().await;
                }
            }
            if step % 4 != 3 {
                continue;
            }
            assert_eq!(contents(&keys).await, model, "seed {seed}, step {step}");
            if let Some((snapshot, before)) = &seen {
                let mut scan = snapshot.scan::<&[u8]>(&keys, ..);
                let mut shown = BTreeMap::new();
                while let Some((key, value)) = scan.next_async().await.unwrap() {
                    shown.insert(key.to_vec(), value.to_vec());
                }
                assert_eq!(shown, *before, "a snapshot of seed {seed}, step {step}");
            }
        }
        let report = db.verify().await.unwrap();
        assert!(report.damage.is_empty(), "seed {seed}: {:?}", report.damage);
    });
}

/// A small generator: what comes of a seed stays the same.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }
}

#[test]
fn histories_over_two_stores_show_what_was_written() {
    let seeds = if crate::is_deep() { 400 } else { 6 };
    (1..=seeds).for_each(history);
}

/// Of 30 days, one tenth is read by nearly all: what the tiers are for.
#[test]
fn the_newest_tenth_is_hot_and_reads_of_it_ask_nothing_of_the_cold_store() {
    run(|stores| async move {
        let (db, keys) = stores.open().await;
        // Ten hours, by the minute: of each hour's writes a tenth of all.
        for minute in 0..600u32 {
            for number in 0..20 {
                keys.put(key(minute * 20 + number), vec![1; 100]).await.unwrap();
            }
            stores.env.sleep(Duration::from_secs(60)).await;
        }
        db.flush().await.unwrap();
        stores.settle().await;
        let (all, cold) = (count(&db, "table-bytes"), count(&db, "cold-table-bytes"));
        let hot = (all - cold) * 100 / all;
        let (mut random, before) = (Chance(1), count(&db, "cold-reads"));
        for _ in 0..2000 {
            // 99.5 % of the reads go to the newest tenth.
            let number =
                if random.below(1000) < 995 { 10_800 + random.below(1200) } else { random.below(10_800) };
            assert!(keys.get(key(number)).await.unwrap().is_some());
        }
        let reads = (count(&db, "cold-reads") - before) as f64 / 2000.0;
        let written = count(&db, "compacted-bytes-written") + count(&db, "flushed-bytes");
        println!("hot {hot} % of {all} bytes, {:.2} % cold reads, {written} bytes written", reads * 100.0);
        assert!(hot <= 25, "{hot} % of {all} bytes are hot");
        // A read of cold data is two requests at first: the table's end, and a block.
        assert!(reads <= 0.02, "{reads}");
    });
}

#[cfg(feature = "mutants")]
#[test]
fn rules_of_tiers_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::HotGoesCold, what_is_old_goes_and_what_is_new_stays);
    notices(Mutant::ColdTableUnsaid, what_is_old_goes_and_what_is_new_stays);
    notices(Mutant::ColdTablesLeft, what_is_old_goes_and_what_is_new_stays);
    notices(Mutant::ColdJobForAgeAlone, tables_go_when_enough_has_gone_cold);
    notices(Mutant::UnknownAgeIsCold, tables_go_when_enough_has_gone_cold);
    notices(Mutant::ColdStoreUnmarked, another_store_is_refused);
    notices(Mutant::CloneWritesToColdStoreOfSource, pins_and_clones_reach_over_both);
}
