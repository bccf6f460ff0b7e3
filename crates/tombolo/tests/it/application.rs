//! An application's own logs and objects: they change hands with the database, and nothing of the
//! database's touches them.

use std::sync::Arc;
use std::time::Duration;

use tombolo::internals::sweep;
use tombolo::{
    ApplicationLog, ApplicationObject, Builder, Db, Durability, Env, ErrorKind, LogPosition, Options,
    TakeOver,
};
use tombolo_env::simulated::{OperationKind, World};
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::{LogStore, ObjectStore};

struct Stores {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    fn new(env: &Env, has_objects_for_logs: bool) -> Stores {
        let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
        let log: Arc<dyn LogStore> = if has_objects_for_logs {
            Arc::new(ObjectLogStore::new(env, Arc::clone(&objects), true))
        } else {
            Arc::new(MemoryLogStore::unnamed(env))
        };
        Stores { env: env.clone(), objects, log }
    }

    fn builder(&self) -> Builder {
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap();
        let builder = Db::builder("mem://x").env(self.env.clone()).options(options);
        let builder = builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).application_logs(2);
        // Logs keep the database open, as handles do.
        builder.take_over(TakeOver::Always)
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl Fn(Stores) -> F) {
    for has_objects_for_logs in [false, true] {
        let world = World::new(1);
        let process = world.process("process");
        let stores = Stores::new(&process.env(), has_objects_for_logs);
        process.run(test(stores)).unwrap();
    }
}

async fn texts(log: &ApplicationLog) -> Vec<String> {
    let (mut earlier, mut texts) = (log.earlier(), Vec::new());
    while let Some(entry) = earlier.next_async().await.unwrap() {
        texts.push(String::from_utf8(entry.payload.to_vec()).unwrap());
    }
    texts
}

/// What one writer appended its successors read, in order, until they release it; trimmed entries
/// they do not read; a stale writer adds nothing.
#[test]
fn a_log_changes_hands_with_the_database() {
    run(|stores| async move {
        let first = stores.builder().open().await.unwrap();
        let keys = first.default_keyspace();
        let (log, other) = (first.application_log(0).unwrap(), first.application_log(1).unwrap());
        assert_eq!(first.application_log(2).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(texts(&log).await, Vec::<String>::new());
        log.append("trimmed").await.unwrap();
        let trimmed = log.append("trimmed too").await.unwrap();
        for number in 0..5 {
            log.append_with(format!("entry {number}"), Durability::Accepted).await.unwrap();
            keys.put(format!("key {number}"), "v").await.unwrap();
        }
        other.append("of the other").await.unwrap();
        let last = log.append("durable").await.unwrap();
        log.trim(trimmed).await.unwrap();
        log.trim(trimmed).await.unwrap();
        assert_eq!(log.append_with("x", Durability::Unlogged).await.unwrap_err().kind(), ErrorKind::Invalid);
        first.flush().await.unwrap();
        // Who does not ask for logs keeps them all the same, and so does who asks and does nothing.
        let second = stores.builder().application_logs(0).open().await.unwrap();
        assert_eq!(second.application_log(0).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(log.append("stale").await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(keys.put("stale", "v").await.unwrap_err().kind(), ErrorKind::Fenced);
        second.default_keyspace().put("key 5", "v").await.unwrap();
        second.flush().await.unwrap();
        drop(second);
        let third = stores.builder().open().await.unwrap();
        assert!(third.verify().await.unwrap().damage.is_empty());
        let (log, other) = (third.application_log(0).unwrap(), third.application_log(1).unwrap());
        let expected = ["entry 0", "entry 1", "entry 2", "entry 3", "entry 4", "durable"];
        assert_eq!(texts(&log).await, expected);
        assert_eq!(texts(&other).await, ["of the other"]);
        assert_eq!(log.trim(last).await.unwrap_err().kind(), ErrorKind::Invalid, "of another epoch");
        log.append("of the third").await.unwrap();
        drop(third);
        // Two earlier epochs, one after the other; released, one stays, and the other log is as it
        // was.
        let fourth = stores.builder().open().await.unwrap();
        let log = fourth.application_log(0).unwrap();
        assert_eq!(texts(&log).await.len(), 7);
        log.append("a summary").await.unwrap();
        log.release_earlier().await.unwrap();
        assert_eq!(texts(&log).await, Vec::<String>::new());
        fourth.close().await.unwrap();
        drop((fourth, log));
        let fifth = stores.builder().open().await.unwrap();
        assert_eq!(texts(&fifth.application_log(0).unwrap()).await, ["a summary"]);
        assert_eq!(texts(&fifth.application_log(1).unwrap()).await, ["of the other"]);
        let count = fifth.default_keyspace().approximate_size::<&[u8]>(..).await.unwrap();
        assert_eq!(count.table_entries + count.memory_entries, 6, "{count:?}");
    });
}

/// Acknowledged as durable, it is there after a crash; on the local log too, where entries can be
/// lost.
#[test]
fn a_durable_entry_outlives_the_loss_of_the_host() {
    for form in ["mapped", "written"] {
        let world = World::new(5);
        let open = move |env: &Env| {
            Db::builder("file:///db")
                .log(format!("file:///db?form={form}"))
                .env(env.clone())
                .application_logs(1)
                .open()
        };
        let writer = world.process("writer");
        let env = writer.env();
        writer
            .run(async move {
                let db = open(&env).await.unwrap();
                let log = db.application_log(0).unwrap();
                for number in 0..20 {
                    log.append(format!("entry {number}")).await.unwrap();
                }
                std::mem::forget((db, log));
            })
            .unwrap();
        world.host(0).power_loss();
        let successor = world.process("successor");
        let env = successor.env();
        successor
            .run(async move {
                let db = open(&env).await.unwrap();
                let found = texts(&db.application_log(0).unwrap()).await;
                assert_eq!(found, (0..20).map(|number| format!("entry {number}")).collect::<Vec<_>>());
            })
            .unwrap();
    }
}

/// A failed sync moves what was not durable to a new segment, and leaves the positions that were
/// told what they were: a trim gives up exactly the entries before its position.
#[test]
fn a_failed_sync_moves_no_position() {
    for form in ["mapped", "written"] {
        let world = World::new(6);
        let open = move |env: &Env| {
            Db::builder("file:///db")
                .log(format!("file:///db?form={form}"))
                .env(env.clone())
                .application_logs(1)
                .open()
        };
        let writer = world.process("writer");
        let (env, process) = (writer.env(), writer.clone());
        let told = writer
            .run(async move {
                let db = open(&env).await.unwrap();
                let log = db.application_log(0).unwrap();
                let mut told = vec![log.append("entry 0").await.unwrap()];
                for number in 1..5 {
                    told.push(
                        log.append_with(format!("entry {number}"), Durability::Accepted).await.unwrap(),
                    );
                }
                assert_eq!(log.trim(told[2]).await.unwrap_err().kind(), ErrorKind::Invalid, "not durable");
                process.fail_next(OperationKind::Sync, std::io::ErrorKind::Other, 1);
                told.push(log.append("entry 5").await.unwrap());
                log.trim(told[2]).await.unwrap();
                log.trim(told[1]).await.unwrap();
                told.push(log.append("entry 6").await.unwrap());
                std::mem::forget((db, log));
                told
            })
            .unwrap();
        assert!(told.is_sorted() && told.iter().map(LogPosition::number).eq(1..=7), "{told:?}");
        world.host(0).power_loss();
        // The second time from a snapshot of the manifest.
        for (number, epoch) in ["successor", "its successor"].into_iter().enumerate() {
            let (process, told) = (world.process(epoch), told.clone());
            let env = process.env();
            process
                .run(async move {
                    let db = open(&env).await.unwrap();
                    let mut earlier = db.application_log(0).unwrap().earlier();
                    for (number, position) in told.into_iter().enumerate().skip(3) {
                        let entry = earlier.next_async().await.unwrap().unwrap();
                        assert_eq!((entry.end, entry.payload), (position, format!("entry {number}").into()));
                    }
                    assert_eq!(earlier.next_async().await.unwrap(), None, "opened {} times", number + 2);
                    db.close().await.unwrap();
                })
                .unwrap();
        }
    }
}

/// Objects are found by their names, those of dead writers as well; only the owner deletes, and no
/// collection does.
#[test]
fn objects_are_the_applications_to_delete() {
    run(|stores| async move {
        let first = stores.builder().open().await.unwrap();
        let files = first.application_objects();
        let named = files.put("invoice").await.unwrap();
        first.default_keyspace().put("17", named.to_string()).await.unwrap();
        let lost = files.put("nobody names it").await.unwrap();
        assert_eq!(files.read(named, 2..5).await.unwrap(), "voi");
        assert_eq!(files.length(lost).await.unwrap(), 15);
        let second = stores.builder().open().await.unwrap();
        second.default_keyspace().put("18", "v").await.unwrap();
        second.compact().await.unwrap();
        stores.env.sleep(Duration::from_secs(300)).await;
        assert_eq!(files.delete(named).await.unwrap_err().kind(), ErrorKind::Fenced);
        let swept = sweep::survey(&stores.env, &stores.objects).await.unwrap();
        sweep::delete(&stores.env, &stores.objects, &swept).await.unwrap();
        assert_eq!(swept.foreign, 0, "{:?}", swept.foreign_names);
        let files = second.application_objects();
        let value = second.default_keyspace().get("17").await.unwrap().unwrap();
        let found: ApplicationObject = std::str::from_utf8(&value).unwrap().parse().unwrap();
        assert_eq!((found, files.read(found, 0..100).await.unwrap()), (named, "invoice".into()));
        for wrong in [
            "",
            "0000000000000001-000000000000000",
            "00000000000000010000000000000001",
            "g000000000000001-0000000000000001",
        ] {
            assert_eq!(wrong.parse::<ApplicationObject>().unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
        }
        let mut all = files.list().await.unwrap();
        all.retain(|object| object.epoch() < second.epoch() && *object != named);
        assert_eq!(all, [lost]);
        files.delete(lost).await.unwrap();
        files.delete(lost).await.unwrap();
        assert_eq!(files.read(lost, 0..1).await.unwrap_err().kind(), ErrorKind::NotFound);
        drop((first, second, files));
        // They go with the database.
        let kept = stores.builder().open_read_only().await.unwrap();
        assert_eq!(
            kept.application_objects().put("x").await.unwrap_err().kind(),
            ErrorKind::PermissionDenied
        );
        let read_only = kept.application_log(0).unwrap();
        assert_eq!(read_only.append("x").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(texts(&read_only).await, Vec::<String>::new());
        drop(read_only);
        assert_eq!(kept.application_objects().list().await.unwrap(), [named]);
        kept.close().await.unwrap();
        drop(kept);
        assert!(stores.builder().destroy().await.unwrap().is_deleted());
        let request = tombolo_storage::Request::new(tombolo_storage::Purpose::Verify, tombolo::Epoch::NONE);
        let left = stores.objects.list(request, "", None, 1000).await.unwrap().objects;
        assert!(!left.iter().any(|object| object.name.as_str().contains("/application/")), "{left:?}");
    });
}

/// A reader follows beside an application's log, of which it sees nothing; salvage and clones take
/// the database alone.
#[test]
fn readers_and_salvage_leave_the_logs_alone() {
    run(|stores| async move {
        let db = stores.builder().open().await.unwrap();
        let log = db.application_log(0).unwrap();
        log.append("mine").await.unwrap();
        db.default_keyspace().put("k", "v").await.unwrap();
        let reader = stores.builder().open_reader(tombolo::ReaderOptions::default()).await.unwrap();
        log.append("mine too").await.unwrap();
        db.default_keyspace().put("k", "w").await.unwrap();
        reader.refresh().await.unwrap();
        assert_eq!(reader.default_keyspace().get("k").await.unwrap().unwrap(), b"w");
        reader.close().await.unwrap();
        let report = stores.builder().survey_damage(tombolo::SalvageMode::Consistent).await.unwrap();
        assert!(!report.is_whole() && report.log_entries == 2, "{report:?}");
        let told: Vec<&str> = report.losses.iter().map(|loss| loss.what.as_str()).collect();
        assert!(!told.is_empty() && told.iter().all(|what| what.contains("of the application")), "{told:?}");
        let too_many = stores.builder().application_logs(5).open().await;
        assert_eq!(too_many.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

/// An object that is streamed has its bytes in their order, and is there once it is finished; a
/// sync makes durable what was only accepted; a reader reads the writer's log beside it.
#[test]
fn objects_are_streamed_and_logs_followed() {
    run(|stores| async move {
        let db = stores.builder().open().await.unwrap();
        let objects = db.application_objects();
        let mut writer = objects.create(tombolo::Life::Long).await.unwrap();
        let name = writer.object();
        for part in 0..5_u8 {
            writer.append(vec![part; 100_000]).await.unwrap();
        }
        assert_eq!(objects.list().await.unwrap(), []);
        assert_eq!(writer.finish().await.unwrap(), (name, 500_000));
        assert_eq!(objects.read(name, 199_999..200_001).await.unwrap()[..], [1, 2]);
        assert_eq!(ApplicationObject::from_parts(name.to_parts().0, name.to_parts().1), name);
        drop(objects.create(tombolo::Life::Short).await.unwrap());
        assert_eq!(objects.list().await.unwrap(), [name]);
        let log = db.application_log(0).unwrap();
        log.sync().await.unwrap();
        let reader = stores.builder().open_reader(tombolo::ReaderOptions::default()).await.unwrap();
        let followed = reader.db().application_log(0).unwrap();
        assert_eq!(followed.append("x").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(reader.db().application_log(4).unwrap_err().kind(), ErrorKind::Invalid);
        for number in 0..3 {
            log.append_with(format!("entry {number}"), Durability::Accepted).await.unwrap();
        }
        log.sync().await.unwrap();
        assert_eq!(texts(&followed).await, ["entry 0", "entry 1", "entry 2"]);
        reader.close().await.unwrap();
        let second = stores.builder().open().await.unwrap();
        assert_eq!(texts(&second.application_log(0).unwrap()).await.len(), 3);
    });
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn an_opening_must_not_end_an_applications_log() {
        notices(Mutant::ApplicationLogEndedByOpening, super::a_log_changes_hands_with_the_database);
    }

    #[test]
    fn an_entry_must_keep_its_number_when_it_moves() {
        notices(Mutant::ApplicationLogTrimmedByPlace, super::a_failed_sync_moves_no_position);
    }

    #[test]
    fn collection_must_leave_an_applications_objects_alone() {
        notices(Mutant::CollectApplicationObjects, super::objects_are_the_applications_to_delete);
    }
}
