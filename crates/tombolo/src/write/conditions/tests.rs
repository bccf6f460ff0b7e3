use tombolo_env::simulated::World;
use tombolo_format::batch::single_head;
use tombolo_format::key::EntryKind;
use tombolo_format::manifest::Edit;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore};

use super::*;
use crate::engine::FilteringJob;
use crate::{Db, Keyspace, Options, TakeOver};

struct Stores {
    env: tombolo_env::Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    async fn open(&self) -> Db {
        self.open_with(&[]).await
    }

    async fn open_with(&self, settings: &[&str]) -> Db {
        let small = ["memory_bytes=1048576", "memtable_bytes=65536"];
        let options = Options::parse(small.iter().chain(settings).copied()).unwrap();
        let builder = Db::builder("mem://conditions").env(self.env.clone()).take_over(TakeOver::Always);
        let stores = builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log));
        stores.options(options).open().await.unwrap()
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let objects = Arc::new(MemoryObjectStore::unnamed(&env));
    let log = Arc::new(MemoryLogStore::unnamed(&env));
    process.run(test(Stores { env, objects, log })).unwrap();
}

fn put_if(keyspace: &Keyspace, value: &str, condition: Condition) -> Conditional {
    let (mut prepared, mut requirements) = (Prepared::default(), Requirements::default());
    prepared.push(keyspace.info(), EntryKind::Put, b"k", value.as_bytes());
    requirements.push(keyspace.info(), b"k", condition);
    Conditional { prepared, requirements, durability: Durability::Accepted }
}

/// What an attempt came to, in a word.
fn word(verdict: Result<Verdict>) -> &'static str {
    match verdict.unwrap() {
        Verdict::Met(..) => "met",
        Verdict::NotMet(..) => "not met",
        Verdict::ReadAgain => "read again",
    }
}

fn two_that_read_before_either_wrote() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let (one, other) = (put_if(&keys, "1", Condition::Absent), put_if(&keys, "2", Condition::Absent));
        let engine = db.engine();
        let first = look_in_memory(engine, &one).unwrap().unwrap();
        let second = look_in_memory(engine, &other).unwrap().unwrap();
        assert_eq!(word(attempt(engine, &one, &first)), "met");
        assert_eq!(word(attempt(engine, &other, &second)), "not met");
        assert_eq!(keys.get(b"k").await.unwrap().unwrap(), b"1");
    });
}

#[test]
fn of_two_that_read_before_either_wrote_one_wins() {
    two_that_read_before_either_wrote();
}

/// Somebody found the section taken and has left a write of the same key: it comes behind.
fn a_write_left_for_the_section() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let conditional = put_if(&keys, "conditional", Condition::Absent);
        let engine = db.engine();
        let looked = look_in_memory(engine, &conditional).unwrap().unwrap();
        let place = engine.stream.commit_queue.post(|posted| {
            posted.keyspace = Some(Arc::clone(keys.info()));
            posted.kind = EntryKind::Put;
            posted.head = single_head(EntryKind::Put, keys.info().id, b"k", b"left").unwrap();
            posted.bytes.extend_from_slice(b"kleft");
            posted.key_bytes = 1;
            posted.durability = Durability::Accepted;
        });
        assert_eq!(word(attempt(engine, &conditional, &looked)), "met");
        engine.stream.commit_queue.take(place.unwrap()).unwrap();
        assert_eq!(keys.get(b"k").await.unwrap().unwrap(), b"left", "the key had no value before");
    });
}

#[test]
fn nobody_commits_between_the_check_and_the_commit() {
    a_write_left_for_the_section();
}

/// The write is in a table by the time of the check, and in no memtable.
fn a_flush_between_read_and_check(is_warm: bool) {
    run(move |stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let conditional = put_if(&keys, "conditional", Condition::Absent);
        let engine = db.engine();
        let looked = look_in_memory(engine, &conditional).unwrap().unwrap();
        keys.put(b"k", b"other").await.unwrap();
        db.flush().await.unwrap();
        if is_warm {
            keys.get(b"k").await.unwrap();
            assert_eq!(word(attempt(engine, &conditional, &looked)), "not met");
        } else {
            assert_eq!(word(attempt(engine, &conditional, &looked)), "read again");
            let looked = look(engine, &conditional).await.unwrap();
            assert_eq!(word(attempt(engine, &conditional, &looked)), "not met");
        }
    });
}

#[test]
fn a_newer_table_is_asked() {
    a_flush_between_read_and_check(true);
}

#[test]
fn what_memory_does_not_know_is_read_again() {
    a_flush_between_read_and_check(false);
}

/// A delete goes through a compaction to the bottom between the read and the check.
fn a_delete_that_nobody_else_needs() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put(b"k", b"before").await.unwrap();
        let conditional = put_if(&keys, "conditional", Condition::Present);
        let engine = db.engine();
        let looked = look(engine, &conditional).await.unwrap();
        keys.delete(b"k").await.unwrap();
        db.compact().await.unwrap();
        assert_ne!(word(attempt(engine, &conditional, &looked)), "met", "the key was deleted");
    });
}

#[test]
fn a_delete_stays_as_long_as_somebody_read_before_it() {
    a_delete_that_nobody_else_needs();
}

/// A value expires between the read and the check.
fn an_end_between_read_and_check() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let engine = db.engine();
        let ttl = std::time::Duration::from_secs(10);
        for is_flushed in [false, true] {
            keys.put_ttl(b"k", b"before", ttl).await.unwrap();
            if is_flushed {
                db.flush().await.unwrap();
            }
            let [present, absent, more] = [Condition::Present, Condition::Absent, Condition::Present]
                .map(|condition| put_if(&keys, "conditional", condition));
            let looked = look(engine, &present).await.unwrap();
            let absent_looked = look(engine, &absent).await.unwrap();
            stores.env.sleep(ttl).await;
            assert_eq!(keys.get(b"k").await.unwrap(), None);
            let Ok(Verdict::NotMet(_, judged)) = attempt(engine, &present, &looked) else {
                panic!("it has expired")
            };
            assert_eq!(decide(&present, &looked, judged, false).found, [None]);
            assert_eq!(word(attempt(engine, &absent, &absent_looked)), "met");
            // A newer value that has not expired counts.
            assert_eq!(word(attempt(engine, &more, &looked)), "met");
        }
    });
}

#[test]
fn what_has_expired_by_the_commit_is_absent() {
    an_end_between_read_and_check();
}

/// Reads a condition's key when it is asked of its entry, and drops that.
#[derive(Clone, Default)]
struct Dropping {
    engine: Arc<std::sync::OnceLock<(Arc<Engine>, Conditional)>>,
    looked: Arc<parking_lot::Mutex<Option<Looked>>>,
}

impl crate::CompactionFilter for Dropping {
    fn begin(&self, _job: &crate::FilterJob) -> Option<Box<dyn crate::JobFilter>> {
        let dropping = self.clone();
        Some(Box::new(move |_: &crate::FilterEntry<'_>| {
            if let Some((engine, conditional)) = dropping.engine.get() {
                *dropping.looked.lock() = look_in_memory(engine, conditional)?;
            }
            Ok(crate::FilterDecision::Drop)
        }))
    }
}

/// A job takes away what was read since it began, and leaves nothing newer.
fn a_filter_between_read_and_check() {
    run(|stores| async move {
        let (name, dropping) = (crate::FilterName::new("drop", 1).unwrap(), Dropping::default());
        let builder = Db::builder("mem://conditions").env(stores.env.clone());
        let builder = builder.stores(Arc::clone(&stores.objects), Arc::clone(&stores.log));
        let db = builder.compaction_filter(name, dropping.clone()).open().await.unwrap();
        let keys = db.default_keyspace();
        keys.set_options([("compaction_filter", "drop@1")]).await.unwrap();
        keys.put(b"k", b"before").await.unwrap();
        db.flush().await.unwrap();
        // From here on its block is in memory.
        keys.get(b"k").await.unwrap();
        let engine = db.engine();
        let conditional = put_if(&keys, "conditional", Condition::Present);
        let at = (Arc::clone(engine), put_if(&keys, "conditional", Condition::Present));
        assert!(dropping.engine.set(at).is_ok());
        db.compact().await.unwrap();
        let looked = dropping.looked.lock().take().unwrap();
        assert_eq!(looked.found[0].as_ref().unwrap().value, "before");
        assert_eq!(keys.get(b"k").await.unwrap(), None);
        assert_eq!(word(attempt(engine, &conditional, &looked)), "read again");
        // Nor when the keyspace names it no more.
        keys.set_options([("compaction_filter", "none")]).await.unwrap();
        assert_eq!(word(attempt(engine, &conditional, &looked)), "read again");
        let looked = look(engine, &conditional).await.unwrap();
        assert_eq!(word(attempt(engine, &conditional, &looked)), "not met");
    });
}

#[test]
fn what_a_filter_took_away_is_read_again() {
    a_filter_between_read_and_check();
}

/// What a job has made that asks a filter comes into view with what another job made.
fn a_filter_whose_work_another_job_shows() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put(b"k", b"before").await.unwrap();
        db.flush().await.unwrap();
        let engine = db.engine();
        let (_moments, filtering) = FilteringJob::begin(engine);
        let before = engine.view_owned();
        let levels = before.version.levels(keys.info().id).unwrap();
        let gone = levels.runs.iter().map(|table| Edit::TableObsolete { name: table.description().name });
        engine.manifest.committed(gone.collect()).await.unwrap();
        engine.install(None);
        assert_eq!(keys.get(b"k").await.unwrap(), None);
        // What cursors learn there is not for those who hold the view of before.
        assert!(engine.view().generation > before.generation);
        drop(filtering);
        let now = engine.view_owned();
        engine.install(None);
        assert_eq!(engine.view().generation, now.generation);
    });
}

#[test]
fn what_a_filter_took_away_has_another_generation() {
    a_filter_whose_work_another_job_shows();
}

/// A value has expired at the read, and is there again at the check.
fn a_reset_of_the_time_between_read_and_check() {
    let world = World::new(1);
    let process = world.process("writer");
    let (env, host) = (process.env(), world.host(0));
    let objects = Arc::new(MemoryObjectStore::unnamed(&env));
    let log = Arc::new(MemoryLogStore::unnamed(&env));
    let stores = Stores { env, objects, log };
    let test = async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let engine = db.engine();
        let hour = std::time::Duration::from_secs(3600);
        keys.put_ttl(b"k", b"before", hour).await.unwrap();
        host.jump_unix_time(86_400);
        stores.env.sleep(std::time::Duration::from_secs(120)).await;
        assert_eq!(keys.get(b"k").await.unwrap(), None);
        let absent = put_if(&keys, "conditional", Condition::Absent);
        let looked = look(engine, &absent).await.unwrap();
        host.jump_unix_time(-86_400);
        db.reset_time().await.unwrap();
        assert_eq!(keys.get(b"k").await.unwrap().unwrap(), b"before");
        assert_eq!(word(attempt(engine, &absent, &looked)), "read again");
    };
    process.run(test).unwrap();
}

#[test]
fn what_was_read_by_a_later_time_is_read_again() {
    a_reset_of_the_time_between_read_and_check();
}

/// Another process took over and has changed what this one finds in its memory.
fn unmet_at_a_writer_that_lost_its_database() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        keys.put(b"k", b"held").await.unwrap();
        let next = stores.open().await;
        next.default_keyspace().delete(b"k").await.unwrap();
        let error = keys.put_if(b"k", b"mine", Condition::Absent).await.expect_err("it is not held any more");
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    });
}

#[test]
fn that_a_condition_does_not_hold_is_no_stale_answer_of_a_durable_write() {
    unmet_at_a_writer_that_lost_its_database();
}

/// Whether it is overtaken or not, a write leaves no snapshot behind.
#[test]
fn a_read_that_was_overtaken_is_made_again() {
    run(|stores| async move {
        let db = stores.open().await;
        let keys = db.default_keyspace();
        let conditional = Arc::new(put_if(&keys, "conditional", Condition::Present));
        let engine = db.engine();
        let looked = look(engine, &conditional).await.unwrap();
        keys.put(b"k", b"other").await.unwrap();
        db.flush().await.unwrap();
        let tried = attempt(engine, &conditional, &looked);
        let decision = go_on(engine, conditional, Some((looked, tried))).await.unwrap();
        assert!(decision.is_met());
        assert_eq!(decision.found[0].as_ref().unwrap().value, b"other");
        assert_eq!(engine.snapshots.list(), [], "no snapshot is left");
        assert_eq!(engine.stream.conditional.load(Ordering::Relaxed), 0);
    });
}

/// Each time that the key is read somebody has put and flushed it again before the check: after a
/// number of reads the write ends with an error that says so, and takes nothing.
#[test]
fn a_write_that_is_overtaken_again_and_again_ends_with_a_conflict() {
    run(|mut stores| async move {
        let plan = FaultPlan::scripted();
        let slow = FaultObjectStore::new(&stores.env, Arc::clone(&stores.objects), plan.clone());
        stores.objects = Arc::new(slow);
        let db = stores.open_with(&["automatic_compaction=false"]).await;
        let (engine, keys) = (db.engine(), db.default_keyspace());
        keys.put(b"k", b"0").await.unwrap();
        db.flush().await.unwrap();
        plan.inject(Rule::of_kind(RequestKind::Read, Fault::Delay(std::time::Duration::from_secs(1))));
        // Twice as often as the write reads, and for three times as long as it may.
        let puts = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (others, env) = (db.clone(), stores.env.clone());
        let (counted, ends) = (Arc::clone(&puts), Arc::clone(&is_over));
        let overtaking = stores.env.spawn(tombolo_env::TaskClass::Foreground, "others", async move {
            while !ends.load(Ordering::Relaxed) && counted.load(Ordering::Relaxed) < 6 * READS_MAX {
                let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
                others.default_keyspace().put(b"k", number.to_string()).await.unwrap();
                others.flush().await.unwrap();
                env.sleep(std::time::Duration::from_millis(400)).await;
            }
        });
        let error = keys.put_if(b"k", b"mine", Condition::Present).await.expect_err("it was overtaken");
        is_over.store(true, Ordering::Relaxed);
        overtaking.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("each of 16 times"), "{error}");
        let puts = puts.load(Ordering::Relaxed);
        assert!((READS_MAX..6 * READS_MAX).contains(&puts), "{puts} puts");
        let left = keys.get(b"k").await.unwrap().unwrap();
        assert_eq!(left.to_vec(), puts.to_string().into_bytes(), "nothing was written");
        assert_eq!(engine.snapshots.list(), [], "no snapshot is left");
        assert_eq!(engine.stream.conditional.load(Ordering::Relaxed), 0);
        // Once nobody is faster it goes through.
        assert!(keys.put_if(b"k", b"mine", Condition::Present).await.unwrap().is_met());
    });
}

#[cfg(feature = "mutants")]
#[test]
fn conditions_that_are_taken_wrongly_are_noticed() {
    use tombolo_storage::mutant::notices;

    notices(Mutant::ConditionCheckedAtTheReadAlone, two_that_read_before_either_wrote);
    notices(Mutant::ConditionCheckedBeforeItsGroup, a_write_left_for_the_section);
    notices(Mutant::ConditionIgnoresNewerTables, || a_flush_between_read_and_check(true));
    notices(Mutant::ConditionTakesMissForNothing, || a_flush_between_read_and_check(false));
    notices(Mutant::ConditionForgetsItsSnapshot, a_delete_that_nobody_else_needs);
    notices(Mutant::ConditionExpiresAtTheRead, an_end_between_read_and_check);
    notices(Mutant::ConditionIgnoresResets, a_reset_of_the_time_between_read_and_check);
    notices(Mutant::ConditionIgnoresFilters, a_filter_between_read_and_check);
    notices(Mutant::FilterShownByOthers, a_filter_whose_work_another_job_shows);
    notices(Mutant::ConditionUnmetBeforeDurable, unmet_at_a_writer_that_lost_its_database);
}
