//! What an operator sees and relies on: properties, events, trouble that heals, quiet when idle,
//! many databases in one process.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Db, Durability, Env, ErrorKind, Event, Listener, MemoryBudget, Options, PropertyValue, Registry, TakeOver,
};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore, Purpose};

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn event(&self, event: &Event) {
        let text = match event {
            Event::Failing { work, error } => format!("{work} fails: {:?}", error.kind()),
            Event::Recovered { work } => format!("{work} recovered"),
            Event::Flushed { tables, .. } => format!("flushed {tables}"),
            Event::CheckpointMade { name } => format!("checkpoint {name}"),
            Event::Finished { error } => format!("finished: {:?}", error.kind()),
            _ => return,
        };
        self.0.lock().push(text);
    }
}

impl Heard {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Stores in memory whose faults `plan` says.
struct Stores {
    env: Env,
    plan: FaultPlan,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
    heard: Arc<Heard>,
}

impl Stores {
    async fn open(&self, options: &[&str]) -> Db {
        let builder = Db::builder("mem://x")
            .env(self.env.clone())
            .options(Options::parse(options.iter().copied()).unwrap());
        let builder = builder.listener(Arc::clone(&self.heard) as Arc<dyn Listener>);
        builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).open().await.unwrap()
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let plan = FaultPlan::scripted();
    let objects =
        Arc::new(FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan.clone()));
    let log = Arc::new(FaultLogStore::new(&env, Arc::new(MemoryLogStore::unnamed(&env)), plan.clone()));
    process.run(test(Stores { env, plan, objects, log, heard: Arc::default() })).unwrap();
}

fn number(db: &Db, name: &str) -> u64 {
    db.property(name).unwrap().value.number().unwrap()
}

#[test]
fn properties_say_what_the_database_holds_and_does() {
    run(|stores| async move {
        let db = stores.open(&["memory_bytes=4194304"]).await;
        let keys = db.default_keyspace();
        let all = db.properties();
        let names: std::collections::BTreeSet<_> = all.iter().map(|property| property.name).collect();
        assert_eq!(names.len(), all.len(), "names differ");
        assert!(all.iter().all(|property| property.help.len() > 5));
        assert!(
            all.iter()
                .all(|property| (property.unit == tombolo::Unit::Text) == property.value.number().is_none())
        );
        let error = db.property("colour").unwrap_err();
        assert!(
            error.kind() == ErrorKind::Invalid && error.to_string().contains("snapshot-age-max"),
            "{error}"
        );
        for index in 0..100u8 {
            keys.put_with([index], [index; 100], Durability::Accepted).await.unwrap();
        }
        assert!(number(&db, "memory-memtables") > 0 || number(&db, "memory-budget") == 4 << 20);
        let (before, since) = (db.requests(), number(&db, "requests-class-a"));
        db.flush().await.unwrap();
        // A flush is told with its requests and bytes, by who made them.
        let after = db.requests();
        let flushed = |requests: &tombolo::Requests| {
            let of_flush = requests.counted.iter().filter(|one| one.purpose == Purpose::Flush);
            of_flush
                .map(|one| (one.requests, one.bytes_sent))
                .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        };
        assert_eq!((flushed(&before), flushed(&after).1), ((0, 0), number(&db, "flushed-bytes")));
        assert_eq!(
            (flushed(&after).0, after.space_bytes),
            (number(&db, "requests-flush"), number(&db, "table-bytes"))
        );
        assert!(
            number(&db, "requests-class-a") > since
                && number(&db, "request-bytes-sent") > number(&db, "flushed-bytes")
        );
        let told = db.property("requests-by-purpose-and-kind").unwrap().value.to_string();
        assert!(told.contains("flush finish 1") && told.contains("manifest put"), "{told}");
        assert!(!after.go_over_network && after.since_open > before.since_open);
        keys.delete([0]).await.unwrap();
        db.flush().await.unwrap();
        assert_eq!(
            (number(&db, "entries"), number(&db, "keys-estimated"), number(&db, "writes")),
            (101, 99, 101)
        );
        assert_eq!(db.property("tables").unwrap().value, PropertyValue::Levels(vec![2]));
        assert_eq!((number(&db, "snapshots"), number(&db, "snapshot-age-max")), (0, 0));
        // What a reader holds is told: tables that compaction replaced, kept by a scan of the
        // version before.
        let mut scan = keys.scan::<&[u8]>(..);
        scan.next_async().await.unwrap();
        assert_eq!(
            (number(&db, "readers-behind"), number(&db, "reader-age-max")),
            (0, 0),
            "what it looks at is the newest"
        );
        let snapshot = db.snapshot();
        stores.env.sleep(Duration::from_secs(7)).await;
        let second = db.snapshot();
        assert_eq!(number(&db, "snapshots"), 2);
        assert!((7_000_000_000..8_000_000_000).contains(&number(&db, "snapshot-age-max")));
        db.compact().await.unwrap();
        stores.env.sleep(Duration::from_secs(1)).await;
        assert!(number(&db, "readers-behind") == 1 && number(&db, "reader-age-max") >= 1_000_000_000);
        assert!(number(&db, "tables-unneeded") >= 2 && number(&db, "table-bytes-unneeded") > 0);
        let levels = |name: &str| match db.property(name).unwrap().value {
            PropertyValue::Levels(levels) => levels,
            other => panic!("{other:?}"),
        };
        let (read, written) = (levels("level-bytes-read"), levels("level-bytes-written"));
        assert_eq!((read.len(), written.len()), (1, 7), "from level 0 to the last: {read:?} {written:?}");
        assert_eq!(
            (read[0], written[0], written[6]),
            (written[0], number(&db, "flushed-bytes"), number(&db, "compacted-bytes-written"))
        );
        let before = (number(&db, "cache-hits"), number(&db, "cache-misses"));
        for _ in 0..10 {
            assert!(keys.get([7]).await.unwrap().is_some());
        }
        let after = (number(&db, "cache-hits"), number(&db, "cache-misses"));
        assert!(after.0 >= before.0 + 9 && after.1 <= before.1 + 3, "{before:?}, then {after:?}");
        drop((scan, snapshot, second));
        db.compact().await.unwrap();
        keys.put(b"k", b"v").await.unwrap();
        db.flush().await.unwrap();
        stores.env.sleep(Duration::from_secs(1)).await;
        assert_eq!(number(&db, "tables-unneeded"), 0);
    });
}

#[test]
fn a_store_that_fails_for_minutes_loses_no_write_and_needs_no_reopening() {
    for kind in [ErrorKind::Retry, ErrorKind::OutOfSpace, ErrorKind::PermissionDenied] {
        run(move |stores| async move {
            let db = stores.open(&["memory_bytes=1048576", "memtable_bytes=65536"]).await;
            let keys = db.default_keyspace();
            keys.put(b"before", b"1").await.unwrap();
            // The objects' store is away; the log's is not.
            let away = |asked: &Asked<'_>| {
                matches!(
                    asked.purpose,
                    Purpose::Flush | Purpose::Compaction | Purpose::Manifest | Purpose::Collection
                )
            };
            stores.plan.inject(Rule::new(away, Fault::Error(kind)));
            let began = stores.env.now();
            let mut written = 0u32;
            let mut in_line = None;
            while in_line.is_none() {
                let write = keys.put_with(written.to_be_bytes(), [7; 8 << 10], Durability::Accepted);
                match write.try_take() {
                    Ok(ended) => ended.unwrap(),
                    Err(waiting) => in_line = Some(waiting),
                }
                written += 1;
                assert!(written < 1000, "memory is bounded");
            }
            assert!(written > 8, "as long as there is room writes go on: {written}");
            stores.env.sleep(Duration::from_secs(600)).await;
            let errors = db.background_errors();
            assert_eq!(
                errors.first().map(|known| (known.work, known.error.kind())),
                Some(("flush", kind)),
                "{errors:?}"
            );
            assert!(
                errors[0].stops_writes()
                    && errors[0].attempts < 300
                    && errors[0].lasting > Duration::from_secs(500),
                "{}",
                errors[0]
            );
            assert_eq!(number(&db, "background-errors"), errors.len() as u64);
            assert_eq!(number(&db, "writes-waiting"), 1);
            assert!(db.failure().is_none(), "the handle stays");
            assert_eq!(keys.get(b"before").await.unwrap().unwrap(), b"1", "reads go on");
            stores.plan.clear();
            in_line.unwrap().await.unwrap();
            for index in written..written + 100 {
                keys.put(index.to_be_bytes(), [7; 8 << 10]).await.unwrap();
            }
            assert!(stores.env.now().since(began) < Duration::from_secs(630), "writes resume soon");
            db.flush().await.unwrap();
            stores.env.sleep(Duration::from_secs(10)).await;
            assert!(db.background_errors().is_empty());
            let heard = stores.heard.take();
            let fails = format!("flush fails: {kind:?}");
            assert_eq!(heard.iter().filter(|text| **text == fails).count(), 1, "told once: {heard:?}");
            assert!(heard.contains(&"flush recovered".to_owned()), "{heard:?}");
            drop((db, keys));
            let keys = stores.open(&[]).await.default_keyspace();
            for index in 0..written + 100 {
                assert_eq!(
                    keys.get(index.to_be_bytes()).await.unwrap().as_deref(),
                    Some(&[7; 8 << 10][..]),
                    "{index}"
                );
            }
        });
    }
}

#[test]
fn a_listener_is_told_of_flushes_checkpoints_and_takeover() {
    let world = World::new(2);
    let process = world.process("writer");
    let env = process.env();
    let heard = Arc::new(Heard::default());
    let listener = Arc::clone(&heard);
    let told = process.run(async move {
        let (objects, log) =
            (Arc::new(MemoryObjectStore::unnamed(&env)), Arc::new(MemoryLogStore::unnamed(&env)));
        let builder = || Db::builder("mem://x").env(env.clone()).stores(objects.clone(), log.clone());
        let first = builder().listener(listener).open().await.unwrap();
        first.default_keyspace().put(b"k", b"v").await.unwrap();
        first.checkpoint("c").await.unwrap();
        let _second = builder().take_over(TakeOver::Always).open().await.unwrap();
        first.default_keyspace().put(b"k", b"w").await.unwrap_err();
        env.sleep(Duration::from_secs(1)).await;
        heard.take()
    });
    assert_eq!(told.unwrap(), ["flushed 1", "checkpoint c", "finished: Fenced"]);
}

#[test]
fn an_idle_database_makes_a_request_a_minute_at_most() {
    run(|stores| async move {
        let db = stores.open(&["memory_bytes=1048576", "memtable_bytes=65536"]).await;
        let keys = db.default_keyspace();
        for index in 0..400u32 {
            keys.put_with(index.to_be_bytes(), [7; 4096], Durability::Accepted).await.unwrap();
        }
        db.checkpoint("kept").await.unwrap();
        db.compact().await.unwrap();
        let snapshot = db.snapshot();
        keys.put(b"in the log", b"1").await.unwrap();
        // What was begun ends.
        stores.env.sleep(Duration::from_secs(60)).await;
        let (requests, log) = (stores.plan.requests(), db.stats().log_bytes);
        stores.env.sleep(Duration::from_secs(3600)).await;
        // It looks whether a reader or a standby has come.
        let made = stores.plan.requests() - requests;
        assert!(made <= 60, "{made} requests in an hour");
        assert_eq!(db.stats().log_bytes, log);
        drop(snapshot);
        assert_eq!(keys.get(b"in the log").await.unwrap().unwrap(), b"1");
    });
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[test]
fn a_hundred_databases_share_one_budget_and_the_threads_of_one_world() {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let budget = MemoryBudget::new(64 << 20).unwrap();
    let open = |number: usize| {
        let builder = Db::builder(format!("mem://hundred-{number}"))
            .env(env.clone())
            .registry(registry.clone())
            .memory_budget(&budget);
        builder.options(Options::parse(["memtable_bytes=65536"]).unwrap()).open().wait()
    };
    let first = open(0).unwrap();
    first.default_keyspace().put(b"k", b"v").wait().unwrap();
    let before = threads();
    let mut databases = vec![first];
    databases.extend((1..100).map(|number| open(number).unwrap()));
    for round in 0..20u32 {
        for db in &databases {
            for index in 0..10u32 {
                let key = (round * 10 + index).to_be_bytes();
                db.default_keyspace().put_with(key, [7; 2000], Durability::Accepted).wait().unwrap();
            }
        }
        assert!(budget.used_bytes() <= budget.bytes(), "{budget:?}");
    }
    for db in &databases {
        assert_eq!(
            db.default_keyspace().scan::<&[u8]>(..).count(),
            200 + usize::from(std::ptr::eq(db, &databases[0]))
        );
    }
    assert!(budget.peak_bytes() <= budget.bytes(), "{} of {} bytes", budget.peak_bytes(), budget.bytes());
    assert_eq!(budget.members(), 100);
    // Other tests of this binary run beside this one, and have threads of their own: far fewer than
    // one for each database.
    assert!(threads() < before + 60, "{} threads, {before} before", threads());
    let error = (100..400).find_map(|number| match open(number) {
        Ok(db) => {
            databases.push(db);
            None
        }
        Err(error) => Some(error),
    });
    let error = error.expect("a budget is not for any number of databases");
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("budget"), "{error}");
}

/// A request that nobody ever answers.
const NEVER: Fault = Fault::Delay(Duration::from_secs(365 * 24 * 3600));

/// A store that does not answer for its manifest: every verb that waits for it ends with an error
/// that says what to do, nothing acknowledged is lost, and all goes on once the store answers.
#[test]
fn verbs_that_wait_for_a_silent_store_are_told() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.create_keyspace("keys", Default::default()).await.unwrap();
        keys.put(b"1", b"one").await.unwrap();
        db.flush().await.unwrap();
        stores.plan.inject(Rule::new(
            |asked: &Asked<'_>| asked.kind == RequestKind::Put && asked.purpose == Purpose::Manifest,
            NEVER,
        ));
        keys.put(b"2", b"two").await.unwrap();
        let began = stores.env.now();
        let (set, flushed) = (keys.set_options([("compression", "zstd")]), db.flush());
        let checkpoint = db.checkpoint("c");
        for error in [set.await.unwrap_err(), flushed.await.unwrap_err(), checkpoint.await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
            assert!(error.next_step().is_some(), "{error}");
        }
        let took = stores.env.now().since(began);
        assert!(took < Duration::from_secs(100), "{took:?} of virtual time");
        keys.put(b"3", b"three").await.unwrap();
        assert!(db.failure().is_none(), "the handle goes on");
        // Who comes later is told sooner.
        let began = stores.env.now();
        assert_eq!(db.flush().await.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        assert!(stores.env.now().since(began) < Duration::from_secs(20), "virtual time");
        stores.plan.clear();
        // The request that was lost is made again when its time is over.
        stores.env.sleep(Duration::from_secs(90)).await;
        db.flush().await.unwrap();
        db.checkpoint("d").await.unwrap();
        drop((keys, db));
        let db = stores.open(&[]).await;
        let keys = db.keyspace("keys").unwrap();
        assert_eq!(keys.options().compression, tombolo::Compression::Zstd, "it took effect");
        for (key, value) in [(b"1", &b"one"[..]), (b"2", b"two"), (b"3", b"three")] {
            assert_eq!(keys.get(key).await.unwrap().as_deref(), Some(value));
        }
        // Closing waits no longer, and loses nothing that was acknowledged.
        stores.plan.inject(Rule::new(|asked: &Asked<'_>| asked.kind == RequestKind::Put, NEVER));
        keys.put_with(b"4", b"four", Durability::Durable).await.unwrap();
        drop(keys.set_options([("compression", "none")]));
        stores.env.sleep(Duration::from_secs(1)).await;
        let began = stores.env.now();
        // All that was acknowledged is in the log: whether the record comes is nobody's to wait
        // for.
        db.close().await.unwrap();
        assert!(stores.env.now().since(began) < Duration::from_secs(100), "virtual time");
        stores.plan.clear();
        drop((keys, db));
        let keys = stores.open(&[]).await.keyspace("keys").unwrap();
        assert_eq!(keys.get(b"4").await.unwrap().as_deref(), Some(&b"four"[..]));
    });
}

/// A store that takes a table and never says what became of it: the flush gives that table up,
/// and writes another one.
#[test]
fn a_table_of_which_the_store_says_nothing_is_written_again() {
    for silent in [RequestKind::Create, RequestKind::Append, RequestKind::Finish] {
        run(move |stores| async move {
            let db = stores.open(&[]).await;
            let keys = db.default_keyspace();
            let flushes = move |asked: &Asked<'_>| asked.kind == silent && asked.purpose == Purpose::Flush;
            stores.plan.inject(Rule::new(flushes, NEVER));
            keys.put(b"1", b"one").await.unwrap();
            let began = stores.env.now();
            let flushed = db.flush();
            stores.env.sleep(Duration::from_secs(30)).await;
            // It answers again, and has forgotten what it was asked before.
            stores.plan.clear();
            while db.stats().flushes == 0 {
                stores.env.sleep(Duration::from_secs(1)).await;
                let waited = stores.env.now().since(began);
                assert!(waited < Duration::from_secs(120), "{silent:?}: {waited:?} of virtual time");
            }
            // Callers are told of the attempt that was lost, or wait for the next one.
            if let Err(error) = flushed.await {
                assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            }
            db.flush().await.unwrap();
            assert!(db.failure().is_none(), "the handle goes on");
            drop((keys, db));
            let keys = stores.open(&[]).await.default_keyspace();
            assert_eq!(keys.get(b"1").await.unwrap().as_deref(), Some(&b"one"[..]));
        });
    }
}

/// A store that is slow for each table: it has more time after each one that was lost, so that a
/// flush ends in the end.
#[test]
fn a_store_that_is_slow_for_tables_comes_to_answer() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let finishes =
            |asked: &Asked<'_>| asked.kind == RequestKind::Finish && asked.purpose == Purpose::Flush;
        stores.plan.inject(Rule::new(finishes, Fault::Delay(Duration::from_secs(200))));
        let keys = db.default_keyspace();
        keys.put(b"1", b"one").await.unwrap();
        let began = stores.env.now();
        while db.flush().await.is_err() {
            let waited = stores.env.now().since(began);
            assert!(waited < Duration::from_secs(1000), "{waited:?} of virtual time");
        }
        assert_eq!(keys.get(b"1").await.unwrap().as_deref(), Some(&b"one"[..]));
    });
}

/// Each rule taken out is noticed, where the engine asks for it.
#[cfg(feature = "mutants")]
#[test]
fn a_store_waited_for_without_end_or_never_longer_is_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};
    notices(Mutant::TableSilenceUnbounded, a_table_of_which_the_store_says_nothing_is_written_again);
    notices(Mutant::TableSilenceNeverLonger, a_store_that_is_slow_for_tables_comes_to_answer);
}
