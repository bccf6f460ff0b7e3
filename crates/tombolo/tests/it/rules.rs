//! Rules of the whole engine that no other test is about, and what taking them out does.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Builder, Db, Durability, Env, ErrorKind, Options, TakeOver};
use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultLogStore, FaultPlan, Rule};
use tombolo_storage::layer::trace::{TraceLogStore, TraceObjectStore, Tracer};
use tombolo_storage::{LogStore, ObjectStore};

struct Stores {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    fn builder(&self, objects: &Arc<dyn ObjectStore>, log: &Arc<dyn LogStore>) -> Builder {
        let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=65536"]).unwrap();
        Db::builder("mem://rules")
            .env(self.env.clone())
            .stores(Arc::clone(objects), Arc::clone(log))
            .options(options)
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let (objects, log) =
        (Arc::new(MemoryObjectStore::unnamed(&env)), Arc::new(MemoryLogStore::unnamed(&env)));
    process.run(test(Stores { env, objects, log })).unwrap();
}

/// Rule 5: a handle that was told that it is fenced writes nothing more, whatever it would take,
/// and asks its stores for nothing.
#[test]
fn a_fenced_answer_ends_the_handle() {
    run(|stores| async move {
        let tracer = Tracer::new(&stores.env);
        let objects: Arc<dyn ObjectStore> =
            Arc::new(TraceObjectStore::new(Arc::clone(&stores.objects), tracer.clone()));
        let log: Arc<dyn LogStore> = Arc::new(TraceLogStore::new(Arc::clone(&stores.log), tracer.clone()));
        let first = stores.builder(&objects, &log).open().await.unwrap();
        let keys = first.default_keyspace();
        keys.put(b"k", b"1").await.unwrap();
        let second =
            stores.builder(&stores.objects, &stores.log).take_over(TakeOver::Always).open().await.unwrap();
        assert_eq!(keys.put(b"k", b"2").await.unwrap_err().kind(), ErrorKind::Fenced);
        tracer.reset();
        for durability in [Durability::Unlogged, Durability::Accepted, Durability::Durable] {
            assert_eq!(
                keys.put_with(b"k", b"3", durability).await.unwrap_err().kind(),
                ErrorKind::Fenced,
                "{durability:?}"
            );
        }
        assert_eq!(first.flush().await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(first.compact().await.unwrap_err().kind(), ErrorKind::Fenced);
        stores.env.sleep(Duration::from_secs(300)).await;
        assert_eq!(
            tracer.counters().values().map(|counters| counters.requests).sum::<u64>(),
            0,
            "{:?}",
            tracer.counters()
        );
        assert_eq!(second.default_keyspace().get(b"k").await.unwrap().unwrap(), b"1");
    });
}

/// What a successor deleted is no damage, also to who cannot ask its log whether there is one: the
/// store knows.
#[test]
fn a_deleted_table_is_no_damage_when_the_log_cannot_be_asked() {
    const KEYS: u8 = 200;
    run(|stores| async move {
        let plan = FaultPlan::scripted();
        let log: Arc<dyn LogStore> =
            Arc::new(FaultLogStore::new(&stores.env, Arc::clone(&stores.log), plan.clone()));
        let first = stores.builder(&stores.objects, &log).open().await.unwrap();
        let keys = first.default_keyspace();
        // More than the cache holds.
        for key in 0..KEYS {
            keys.put([key], [key; 20_000]).await.unwrap();
        }
        first.flush().await.unwrap();
        let second =
            stores.builder(&stores.objects, &stores.log).take_over(TakeOver::Always).open().await.unwrap();
        for key in 0..KEYS {
            second.default_keyspace().delete([key]).await.unwrap();
        }
        second.compact().await.unwrap();
        stores.env.sleep(Duration::from_secs(5)).await;
        plan.inject(Rule::of_kind(RequestKind::LogConfirm, Fault::Error(ErrorKind::Retry)).times(1000));
        let mut refused = 0;
        for key in 0..KEYS {
            if let Err(error) = keys.get([key]).await {
                assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
                refused += 1;
            }
        }
        assert!(refused > 0, "nothing was deleted");
    });
}

/// A cursor reads on in tables that compaction has replaced: of this process's own readers no pin
/// tells.
#[test]
fn a_table_that_a_cursor_reads_is_not_deleted() {
    run(|stores| async move {
        let db = stores.builder(&stores.objects, &stores.log).open().await.unwrap();
        let keys = db.default_keyspace();
        let fill = async |round: u8| {
            for key in 0..2000u16 {
                keys.put_with(key.to_be_bytes(), [round; 1000], Durability::Accepted).await.unwrap();
            }
            db.compact().await.unwrap();
        };
        fill(1).await;
        let snapshot = db.snapshot();
        let mut scan = snapshot.scan::<&[u8]>(&keys, ..);
        assert!(scan.next_async().await.unwrap().is_some());
        fill(2).await;
        stores.env.sleep(Duration::from_secs(60)).await;
        let mut seen = 1;
        while let Some((_, value)) = scan.next_async().await.unwrap() {
            assert_eq!(&value[..], [1; 1000]);
            seen += 1;
        }
        assert_eq!(seen, 2000);
    });
}

/// Each rule taken out is noticed by the test that is for it.
#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn a_handle_that_goes_on_after_it_was_fenced() {
        notices(Mutant::FencedHandleGoesOn, super::a_fenced_answer_ends_the_handle);
    }

    #[test]
    fn a_deletion_of_what_the_process_itself_reads() {
        notices(Mutant::DeleteIgnoresOwnReaders, super::a_table_that_a_cursor_reads_is_not_deleted);
    }

    #[test]
    fn a_flush_that_names_tables_before_the_log_is_durable() {
        notices(
            Mutant::FlushNamesBeforeLogDurable,
            crate::refused::a_flush_whose_log_is_not_durable_in_time_leaves_no_table_behind,
        );
    }

    #[test]
    fn tables_written_ahead_of_what_makes_their_keyspace() {
        notices(
            Mutant::FlushAheadOfKeyspaceChanges,
            crate::flush_ahead::keyspaces_made_and_dropped_between_memtables_are_seen_by_what_is_written_ahead,
        );
    }

    #[test]
    fn tables_deleted_that_an_edit_of_unknown_outcome_named() {
        notices(
            Mutant::UnknownEditTablesDeleted,
            crate::refused::what_a_record_of_unknown_outcome_names_is_kept,
        );
    }
}
