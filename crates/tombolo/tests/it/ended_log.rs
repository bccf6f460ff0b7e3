//! A log that ends while its database goes on: memory goes to tables, another log takes
//! its place, writes go on.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Builder, Db, Durability, Env, ErrorKind, Event, Keyspace, Listener, Op, Options, ReaderOptions, TakeOver,
};
use tombolo_env::simulated::{Action, Crash, OperationKind, World};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultLogStore, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore, Registry, Uri};

/// Stores whose faults `plan` says, and the same without faults, for a successor.
#[derive(Clone)]
struct Stores {
    env: Env,
    plan: FaultPlan,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
    sound: (Arc<dyn ObjectStore>, Arc<dyn LogStore>),
}

const KINDS: [&str; 4] = ["memory", "objects", "mapped", "written"];

impl Stores {
    /// Of logs of a kind; the objects are in the memory of the world, whatever crashes.
    fn new(env: &Env, kind: &str) -> Stores {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
        Stores::over(env, kind, objects)
    }

    fn over(env: &Env, kind: &str, objects: Arc<dyn ObjectStore>) -> Stores {
        let plan = FaultPlan::scripted();
        let log: Arc<dyn LogStore> = match kind {
            "memory" => Arc::new(MemoryLogStore::unnamed(env)),
            "objects" => Arc::new(ObjectLogStore::new(env, Arc::clone(&objects), true)),
            form => {
                let uri = Uri::parse(&format!("file:///log?form={form}")).unwrap();
                Registry::with_defaults().open_log_store(env, &uri, None, &objects).unwrap()
            }
        };
        Stores {
            env: env.clone(),
            objects: Arc::new(FaultObjectStore::new(env, Arc::clone(&objects), plan.clone())),
            log: Arc::new(FaultLogStore::new(env, Arc::clone(&log), plan.clone())),
            sound: (objects, log),
            plan,
        }
    }

    fn builder(&self, objects: &Arc<dyn ObjectStore>, log: &Arc<dyn LogStore>) -> Builder {
        let options = Options::parse(["memory_bytes=67108864", "memtable_bytes=65536"]).unwrap();
        Db::builder("mem://ended")
            .env(self.env.clone())
            .options(options)
            .stores(Arc::clone(objects), Arc::clone(log))
    }

    async fn open(&self) -> Db {
        self.builder(&self.objects, &self.log).open().await.unwrap()
    }

    /// A successor, which meets no faults.
    async fn succeed(&self) -> Db {
        self.builder(&self.sound.0, &self.sound.1).take_over(TakeOver::Always).open().await.unwrap()
    }

    /// From here on appends to this lane of `db` fail, and its syncs.
    fn end_log(&self, db: &Db, lane: u32) {
        let name = format!("{}/{lane}", db.epoch());
        let of_lane = move |asked: &Asked<'_>| {
            matches!(asked.kind, RequestKind::LogAppend | RequestKind::LogSync) && asked.name == name
        };
        self.plan.inject(Rule::new(of_lane, Fault::Unknown { landed: false }));
    }

    /// Requests of a kind whose name has this part take `time` longer.
    fn hold(&self, kind: RequestKind, part: &'static str, skip: u64, time: Duration) {
        let held = move |asked: &Asked<'_>| asked.kind == kind && asked.name.contains(part);
        self.plan.inject(Rule::new(held, Fault::Delay(time)).skip(skip));
    }

    /// The lanes that the manifest names.
    async fn named(&self) -> Vec<u32> {
        let loaded = tombolo::internals::load(&self.env, &self.sound.0).await.unwrap();
        loaded.state.logs().keys().map(|id| id.lane).collect()
    }
}

const MINUTE: Duration = Duration::from_secs(60);
/// The lane that follows the first.
const SECOND: u32 = 1 << 16;

fn run<F: Future<Output = ()> + Send + 'static>(kind: &str, test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    let process = world.process("writer");
    process.run(test(Stores::new(&process.env(), kind))).unwrap();
}

async fn value(keys: &Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    keys.get(key).await.unwrap().map(|value| value.to_vec())
}

/// How an operation ended that had a while for it; `None` while it waits.
async fn after<T>(env: &Env, time: Duration, operation: Op<T>) -> Option<tombolo::Result<T>> {
    env.sleep(time).await;
    operation.try_take().ok()
}

#[test]
fn writes_go_on_when_the_log_ends() {
    for kind in KINDS {
        run(kind, |stores| async move {
            let db = stores.open().await;
            let keys = db.default_keyspace();
            keys.put(b"1", b"durable").await.unwrap();
            keys.put_with(b"2", b"accepted", Durability::Accepted).await.unwrap();
            keys.put_with(b"3", b"unlogged", Durability::Unlogged).await.unwrap();
            stores.end_log(&db, 0);
            keys.put(b"4", b"again").await.unwrap();
            for number in 0..50u8 {
                keys.put([5, number], [number; 2000]).await.unwrap();
            }
            assert!(db.failure().is_none() && db.background_errors().is_empty(), "{kind}");
            db.confirm().await.unwrap();
            drop((db, keys));
            assert_eq!(stores.named().await, [SECOND], "{kind}");
            let db = stores.open().await;
            let keys = db.default_keyspace();
            for (key, wanted) in [(b"1", "durable"), (b"2", "accepted"), (b"3", "unlogged"), (b"4", "again")]
            {
                assert_eq!(value(&keys, key).await.as_deref(), Some(wanted.as_bytes()), "{kind}");
            }
            for number in 0..50u8 {
                assert_eq!(value(&keys, &[5, number]).await.unwrap(), [number; 2000], "{kind}");
            }
            assert!(db.verify().await.unwrap().damage.is_empty(), "{kind}");
        });
    }
}

#[test]
fn log_after_log_may_end() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        for lane in [0, SECOND, SECOND + 1, SECOND + 2] {
            keys.put(lane.to_be_bytes(), b"before").await.unwrap();
            stores.end_log(&db, lane);
            keys.put(b"at", b"end").await.unwrap();
        }
        keys.put(b"last", b"value").await.unwrap();
        assert_eq!(stores.named().await, [SECOND + 3]);
        drop((db, keys));
        let keys = stores.open().await.default_keyspace();
        for lane in [0, SECOND, SECOND + 1, SECOND + 2] {
            assert!(value(&keys, &lane.to_be_bytes()).await.is_some());
        }
        assert!(value(&keys, b"last").await.is_some());
    });
}

/// A disk on which no sync of the lane's files succeeds any more; or whose directory somebody
/// removed.
#[test]
fn a_local_log_whose_disk_fails_for_good_is_replaced() {
    for form in ["mapped", "written"] {
        for is_removed in [false, true] {
            let world = World::new(7);
            let process = world.process("writer");
            let (stores, fails) = (Stores::new(&process.env(), form), world.clone());
            process
                .run(async move {
                    let db = stores.open().await;
                    let keys = db.default_keyspace();
                    keys.put(b"1", b"durable").await.unwrap();
                    keys.put_with(b"2", b"accepted", Durability::Accepted).await.unwrap();
                    if is_removed {
                        remove_lane(&stores.env).await;
                    } else {
                        let in_lane = |operation: &tombolo_env::simulated::Operation| {
                            let syncs =
                                matches!(operation.kind, OperationKind::Sync | OperationKind::SyncDirectory);
                            syncs && operation.path.to_string_lossy().contains("-0000/")
                        };
                        fails.inject(
                            tombolo_env::simulated::Fault::new(
                                Action::Fail(std::io::ErrorKind::Other),
                                in_lane,
                            )
                            .always(),
                        );
                    }
                    // Until the lane needs another segment.
                    let mut failed = 0;
                    for number in 0..100u8 {
                        failed += u32::from(keys.put([3, number], [number; 2000]).await.is_err());
                    }
                    assert!((1..=2).contains(&failed), "{form} {is_removed}: {failed} writes failed");
                    assert!(db.failure().is_none(), "{form} {is_removed}");
                    drop((db, keys));
                    assert_eq!(stores.named().await, [SECOND], "{form} {is_removed}");
                    fails.clear_faults();
                    let keys = stores.open().await.default_keyspace();
                    assert!(
                        value(&keys, b"1").await.is_some() && value(&keys, b"2").await.is_some(),
                        "{form} {is_removed}"
                    );
                    assert!(value(&keys, &[3, 99]).await.is_some(), "{form} {is_removed}");
                })
                .unwrap();
        }
    }
}

/// Removes all lanes' directories, as a careless person would.
async fn remove_lane(env: &Env) {
    let files = env.files();
    let mut directories = vec![std::path::PathBuf::from("/log")];
    while let Some(directory) = directories.pop() {
        for entry in files.list_atomically(&directory).unwrap() {
            let path = directory.join(&entry.name);
            if entry.is_directory {
                directories.push(path);
            } else {
                files.remove_file(&path).unwrap();
            }
        }
        if directory.to_string_lossy().contains("-0000") {
            files.remove_directory(&directory).unwrap();
        }
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn event(&self, event: &Event) {
        match event {
            Event::Failing { work, .. } => self.0.lock().push(format!("failing {work}")),
            Event::Recovered { work } => self.0.lock().push(format!("recovered {work}")),
            Event::Finished { .. } => self.0.lock().push("finished".into()),
            _ => {}
        }
    }
}

/// Neither the tables nor another log can be had for an hour: writes wait, say why, and go on in
/// their order after it.
#[test]
fn writes_wait_while_neither_tables_nor_another_log_can_be_had() {
    for refused in [RequestKind::Create, RequestKind::LogOpen] {
        run("mapped", move |stores| async move {
            let heard = Arc::new(Heard::default());
            let db = stores
                .builder(&stores.objects, &stores.log)
                .listener(Arc::clone(&heard) as Arc<dyn Listener>)
                .open()
                .await
                .unwrap();
            let keys = db.default_keyspace();
            keys.put_with(b"1", b"accepted", Durability::Accepted).await.unwrap();
            stores.plan.inject(Rule::of_kind(refused, Fault::Error(ErrorKind::PermissionDenied)).times(100));
            stores.end_log(&db, 0);
            assert_eq!(db.sync().await.unwrap_err().kind(), ErrorKind::OutcomeUnknown, "{refused}");
            let first = keys.put(b"2", b"first");
            let second = keys.put(b"2", b"second");
            let mut batch = tombolo::Batch::new();
            batch.put(&keys, b"3", b"refused");
            let rejected = db.try_write(batch, Durability::Durable).unwrap_err();
            assert_eq!((rejected.error.kind(), rejected.batch.len()), (ErrorKind::Busy, 1), "{refused}");
            stores.env.sleep(MINUTE).await;
            let told = db.background_errors();
            assert!(
                told.iter().any(|known| known.work == "log" && known.stops_writes()),
                "{refused}: {told:?}"
            );
            assert!(value(&keys, b"2").await.is_none(), "{refused}: nothing is taken meanwhile");
            assert_eq!(value(&keys, b"1").await.unwrap(), b"accepted", "{refused}: reads go on");
            first.await.unwrap();
            second.await.unwrap();
            assert_eq!(value(&keys, b"2").await.unwrap(), b"second", "{refused}");
            assert!(stores.plan.injected() > 100, "{refused}");
            assert!(db.background_errors().is_empty() && db.failure().is_none(), "{refused}");
            db.close().await.unwrap();
            let heard = heard.0.lock().clone();
            assert!(
                heard.contains(&"failing log".to_owned()) && heard.contains(&"recovered log".to_owned()),
                "{refused}: {heard:?}"
            );
        });
    }
}

/// An attempt that named its lane and failed after that leaves no lane behind.
#[test]
fn an_attempt_at_another_log_that_failed_late_stays_not_named() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put(b"1", b"durable").await.unwrap();
        stores.plan.inject(Rule::of_kind(RequestKind::LogOpen, Fault::Unknown { landed: true }).times(3));
        stores.end_log(&db, 0);
        keys.put(b"2", b"again").await.unwrap();
        keys.put(b"3", b"durable").await.unwrap();
        assert_eq!(stores.named().await, [SECOND + 3]);
    });
}

/// What was acknowledged through the first log is in it as long as it is in no table.
#[test]
fn the_ended_log_stays_named_until_tables_hold_what_it_does() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        db.default_keyspace().put(b"1", b"durable").await.unwrap();
        stores.hold(RequestKind::Create, "/table/", 0, MINUTE);
        stores.end_log(&db, 0);
        let _waits = db.default_keyspace().put(b"2", b"again");
        stores.env.sleep(Duration::from_secs(5)).await;
        let successor = stores.succeed().await;
        assert_eq!(value(&successor.default_keyspace(), b"1").await.unwrap(), b"durable");
    });
}

/// An entry of unknown outcome that landed has the numbers of the next write, which the other log
/// holds: a replay of both finds damage.
#[test]
fn no_log_is_named_beside_the_one_that_ended() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put(b"1", b"durable").await.unwrap();
        stores.plan.inject(Rule::of_kind(RequestKind::LogAppend, Fault::Unknown { landed: true }).times(1));
        keys.put(b"2", b"unknown").await.unwrap();
        keys.put(b"2", b"known").await.unwrap();
        drop((db, keys));
        let db = stores.succeed().await;
        assert_eq!(value(&db.default_keyspace(), b"2").await.unwrap(), b"known");
    });
}

/// The record that names the other log is late: nothing is acknowledged through it before, and a
/// successor that comes in between misses nothing.
#[test]
fn nothing_is_acknowledged_through_a_log_that_is_not_named() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put(b"1", b"durable").await.unwrap();
        // The first record that follows un-names the log that ended.
        stores.hold(RequestKind::Put, "/manifest/", 1, MINUTE);
        stores.end_log(&db, 0);
        let _waits = keys.put(b"2", b"again");
        let write = after(&stores.env, Duration::from_secs(5), keys.put(b"3", b"value")).await;
        let acknowledged = write.is_some_and(|ended| ended.is_ok());
        let successor = stores.succeed().await;
        let found = value(&successor.default_keyspace(), b"3").await.is_some();
        assert!(found || !acknowledged, "an acknowledged write is lost");
        stores.env.sleep(2 * MINUTE).await;
        assert_eq!(db.failure().unwrap().kind(), ErrorKind::Fenced, "the successor has it");
        assert_eq!(value(&successor.default_keyspace(), b"1").await.unwrap(), b"durable");
    });
}

/// Loses power in the middle, while objects stay; `meanwhile` runs before, `found` in the next
/// life.
fn over_a_loss_of_power<F, G>(meanwhile: impl FnOnce(Stores) -> F, found: impl FnOnce(Stores) -> G)
where
    F: Future<Output = ()> + Send + 'static,
    G: Future<Output = ()> + Send + 'static,
{
    let world = World::new(3);
    let keeper = world.add_host("keeper").process("keeper");
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&keeper.env()));
    let first = world.process("first");
    first.run(meanwhile(Stores::over(&first.env(), "written", Arc::clone(&objects)))).unwrap();
    world.host(0).power_loss();
    let second = world.process("second");
    second.run(found(Stores::over(&second.env(), "written", objects))).unwrap();
}

/// A caller that waits for a write of the ended log is told that it is there only once a table
/// holds it.
#[test]
fn nothing_that_the_ended_log_lost_is_acknowledged_before_tables_hold_it() {
    let acknowledged = Arc::new(Mutex::new(None));
    let said = Arc::clone(&acknowledged);
    over_a_loss_of_power(
        move |stores| async move {
            let db = stores.open().await;
            let keys = db.default_keyspace();
            keys.put_with(b"1", b"accepted", Durability::Accepted).await.unwrap();
            stores.hold(RequestKind::Create, "/table/", 0, MINUTE);
            stores.end_log(&db, 0);
            assert_eq!(db.sync().await.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
            *said.lock() = Some(db.sync().await.is_ok());
        },
        |stores| async move {
            let keys = stores.open().await.default_keyspace();
            assert!(
                value(&keys, b"1").await.is_some() || acknowledged.lock().is_some_and(|said| !said),
                "an acknowledged write is lost"
            );
        },
    );
}

/// A flush does not wait for a log that has ended. The older of two memtables is in tables, and
/// then the power goes: the log is replayed from where it was before, and holds less than the
/// tables do.
#[test]
fn a_loss_of_power_between_two_flushes_of_what_the_ended_log_was_for() {
    over_a_loss_of_power(
        |stores| async move {
            let db = stores.open().await;
            let keys = db.default_keyspace();
            keys.put(b"1", b"durable").await.unwrap();
            stores.end_log(&db, 0);
            // The second table waits for the power to go.
            stores.hold(RequestKind::Create, "/table/", 1, MINUTE);
            let flushes = db.stats().flushes;
            for number in 0..40u8 {
                // Enough for two memtables; the flush of the first finds that the log has ended.
                let _ended = keys.put_with([2, number], [number; 2000], Durability::Accepted).try_take();
            }
            stores.env.sleep(Duration::from_secs(5)).await;
            assert_eq!(
                db.stats().flushes,
                flushes + 1,
                "the first memtable is in tables, and the second is not"
            );
        },
        |stores| async move {
            let db = stores.open().await;
            let keys = db.default_keyspace();
            assert!(value(&keys, b"1").await.is_some());
            keys.put(b"3", b"value").await.unwrap();
            assert!(db.verify().await.unwrap().damage.is_empty());
        },
    );
}

#[test]
fn a_successor_fences_whoever_has_no_log() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        stores.plan.inject(Rule::of_kind(RequestKind::LogOpen, Fault::Error(ErrorKind::PermissionDenied)));
        stores.end_log(&db, 0);
        let first = keys.put(b"1", b"again");
        stores.env.sleep(Duration::from_secs(5)).await;
        assert_eq!(stores.named().await, [0; 0], "no log is named");
        db.confirm().await.unwrap();
        let waiting = keys.put(b"2", b"value");
        let successor = stores.succeed().await;
        assert_eq!(db.confirm().await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(first.await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(keys.put(b"3", b"value").await.unwrap_err().kind(), ErrorKind::Fenced);
        assert!(value(&successor.default_keyspace(), b"2").await.is_none());
    });
}

#[test]
fn closing_puts_into_tables_what_the_ended_log_held() {
    run("mapped", |stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put_with(b"1", b"accepted", Durability::Accepted).await.unwrap();
        stores.plan.inject(Rule::of_kind(RequestKind::LogOpen, Fault::Error(ErrorKind::PermissionDenied)));
        stores.end_log(&db, 0);
        db.sync().await.unwrap_err();
        db.close().await.unwrap();
        assert_eq!(stores.named().await, [0; 0]);
        assert!(value(&stores.succeed().await.default_keyspace(), b"1").await.is_some());
    });
}

#[test]
fn a_reader_follows_from_one_log_to_the_next() {
    run("memory", |stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put(b"1", b"durable").await.unwrap();
        let lag = Duration::from_millis(100);
        let options = ReaderOptions { lag, lag_max: Duration::from_secs(10), lease: Duration::from_secs(10) };
        let reader = stores.builder(&stores.sound.0, &stores.sound.1).open_reader(options).await.unwrap();
        let read = reader.default_keyspace();
        for lane in [0, SECOND] {
            stores.end_log(&db, lane);
            keys.put(b"2", b"again").await.unwrap();
            for number in 0..50u8 {
                keys.put([3, number], lane.to_be_bytes()).await.unwrap();
                stores.env.sleep(2 * lag).await;
                assert_eq!(read.get([3, number]).await.unwrap().unwrap(), lane.to_be_bytes());
            }
        }
    });
}

/// The application's lanes are the application's: they go on beside the database's other log, and
/// change hands with it.
#[test]
fn an_applications_log_outlives_the_main_one() {
    for kind in KINDS {
        run(kind, |stores| async move {
            let open = || stores.builder(&stores.objects, &stores.log).application_logs(1).open();
            let db = open().await.unwrap();
            let log = db.application_log(0).unwrap();
            log.append(b"before").await.unwrap();
            stores.end_log(&db, 0);
            db.default_keyspace().put(b"1", b"again").await.unwrap();
            db.default_keyspace().put(b"1", b"known").await.unwrap();
            log.append(b"after").await.unwrap();
            db.close().await.unwrap();
            drop((db, log));
            let db = open().await.unwrap();
            let mut earlier = db.application_log(0).unwrap().earlier();
            for wanted in ["before", "after"] {
                assert_eq!(earlier.next_async().await.unwrap().unwrap().payload, wanted.as_bytes(), "{kind}");
            }
            assert!(earlier.next_async().await.unwrap().is_none(), "{kind}");
            assert_eq!(value(&db.default_keyspace(), b"1").await.unwrap(), b"known", "{kind}");
        });
    }
}

/// A process that is killed anywhere between the end of a log and the first write after it loses
/// nothing, and opens again.
#[test]
fn a_kill_anywhere_on_the_way_loses_nothing() {
    let mut finished = false;
    for number in 1.. {
        let world = World::new(5);
        let keeper = world.add_host("keeper").process("keeper");
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&keeper.env()));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let first = world.process("first");
        let (stores, told) =
            (Stores::over(&first.env(), "written", Arc::clone(&objects)), Arc::clone(&acknowledged));
        let victim = first.clone();
        let ended = first.run(async move {
            let db = stores.open().await;
            let keys = db.default_keyspace();
            keys.put([0], b"durable").await.unwrap();
            told.lock().push(0);
            stores.end_log(&db, 0);
            victim.crash_at(victim.operations() + number, Crash::Kill);
            for key in 1..4 {
                if keys.put([key], b"durable").await.is_ok() {
                    told.lock().push(key);
                }
            }
        });
        let second = world.process("second");
        let stores = Stores::over(&second.env(), "written", objects);
        let told = acknowledged.lock().clone();
        second
            .run(async move {
                let keys = stores.open().await.default_keyspace();
                for key in told {
                    assert!(
                        value(&keys, &[key]).await.is_some(),
                        "killed in operation {number}: {key} is lost"
                    );
                }
            })
            .unwrap();
        if ended.is_some() {
            finished = true;
            assert!(number > 5, "the kills came too late");
            break;
        }
    }
    assert!(finished);
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn a_log_un_named_before_tables_hold_what_it_does() {
        notices(
            Mutant::EndedLogUnnamedBeforeTables,
            super::the_ended_log_stays_named_until_tables_hold_what_it_does,
        );
    }

    #[test]
    fn a_log_named_beside_the_one_that_ended() {
        notices(Mutant::EndedLogStaysNamed, super::no_log_is_named_beside_the_one_that_ended);
    }

    #[test]
    fn a_sync_that_the_end_of_the_log_makes_good() {
        notices(
            Mutant::EndedLogAcknowledges,
            super::nothing_that_the_ended_log_lost_is_acknowledged_before_tables_hold_it,
        );
    }

    #[test]
    fn writes_through_a_log_that_is_not_named() {
        notices(
            Mutant::RenewedLogServedBeforeNamed,
            super::nothing_is_acknowledged_through_a_log_that_is_not_named,
        );
    }
}
