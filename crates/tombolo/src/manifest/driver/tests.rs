use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Env;
use tombolo_env::simulated::World;
use tombolo_format::key::SequenceNumber;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::layer::retry::{RetryObjectStore, RetryPolicy};
use tombolo_storage::registry::REMOTE_RETRY_TIME_MAX;
use tombolo_storage::{LogId, LogOffset, Request};

use super::*;
use crate::manifest::names;

fn options(mode: OpenMode) -> ManifestOptions {
    ManifestOptions { mode, log_identity: "memory".into() }
}

fn reached(sequence: u64) -> Vec<Edit> {
    vec![Edit::StreamReached { stream: 0, sequence: SequenceNumber(sequence) }]
}

/// A simulated world with one process, and a store in its memory.
fn world() -> (World, Env, Arc<dyn ObjectStore>) {
    let world = World::new(1);
    let env = world.process("process").env();
    let store = Arc::new(MemoryObjectStore::unnamed(&env));
    (world, env, store)
}

/// Create, commit, open again: everything is there, the epoch is higher, and the first handle
/// learns that it is fenced.
#[test]
fn a_second_opener_takes_over() {
    let (_world, env, store) = world();
    env.block_on(async {
        let (first, state) =
            Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        assert_eq!(state.database().unwrap().log_identity, "memory");
        assert_eq!(first.epoch(), Epoch(1));
        let slot = first.commit(reached(7)).await.unwrap().unwrap();
        assert_eq!(first.state().slot(), slot);
        let (second, state) =
            Manifest::open(&env, Arc::clone(&store), options(OpenMode::Open)).await.unwrap();
        assert_eq!(second.epoch(), Epoch(slot + 1));
        assert_eq!(state.streams()[&0], SequenceNumber(7));
        let (called, fenced) = completion();
        first.on_fenced(move || called.complete(()));
        let error = first.commit(reached(8)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert_eq!(fenced.await, Some(()));
        assert!(first.is_fenced());
        assert_eq!(first.commit(reached(9)).await.unwrap().unwrap_err().kind(), ErrorKind::Fenced);
        second.commit(reached(10)).await.unwrap().unwrap();
        let loaded = load(&env, &store).await.unwrap();
        assert_eq!(*loaded.state, *second.state());
        second.close().await;
        assert_eq!(second.commit(reached(11)).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// What opening refuses, it refuses before it claims: the writer goes on.
#[test]
fn refusals_do_not_disturb_the_writer() {
    let (_world, env, store) = world();
    env.block_on(async {
        let missing = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Open)).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.next_step().is_some());
        assert_eq!(load(&env, &store).await.unwrap_err().kind(), ErrorKind::NotFound);
        let (writer, _) =
            Manifest::open(&env, Arc::clone(&store), options(OpenMode::CreateOrOpen)).await.unwrap();
        let exists = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap_err();
        assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
        let other = ManifestOptions { mode: OpenMode::Open, log_identity: "other".into() };
        let other = Manifest::open(&env, Arc::clone(&store), other).await.unwrap_err();
        assert_eq!(
            (other.kind(), other.expectation(), other.finding()),
            (ErrorKind::Invalid, Some("memory"), Some("other"))
        );
        writer.commit(reached(1)).await.unwrap().unwrap();
    });
}

/// An edit that does not fit fails alone, and the chain goes on.
#[test]
fn a_wrong_edit_fails_alone() {
    let (_world, env, store) = world();
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        let commits = [writer.commit(reached(5)), writer.commit(reached(4)), writer.commit(reached(6))];
        let mut results = Vec::new();
        for commit in commits {
            results.push(commit.await.unwrap());
        }
        assert!(results[0].is_ok() && results[2].is_ok());
        assert_eq!(results[1].as_ref().unwrap_err().kind(), ErrorKind::Bug);
        assert_eq!(writer.state().streams()[&0], SequenceNumber(6));
    });
}

/// After a put of unknown outcome, a store that refuses the next ones is asked again with pauses,
/// not in a loop without rest.
#[test]
fn a_put_of_unknown_outcome_is_made_again_with_pauses() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let store: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, store, plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: false }).times(1));
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::OutOfSpace)).skip(1).times(10));
        let began = env.now();
        writer.commit(reached(5)).await.unwrap().unwrap();
        assert_eq!(plan.injected(), 11);
        assert!(env.now().since(began) > Duration::from_secs(1), "virtual time");
    });
}

/// A store that says that a slot is taken, and shows nothing there, is asked again with pauses.
#[test]
fn a_slot_that_is_taken_and_empty_is_asked_again_with_pauses() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let faulty: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, store, plan.clone()));
    env.block_on(async {
        plan.inject(
            Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::AlreadyExists)).skip(1).times(10),
        );
        let began = env.now();
        let (writer, _) = Manifest::open(&env, faulty, options(OpenMode::Create)).await.unwrap();
        assert_eq!(
            (plan.injected(), env.now().since(began) > Duration::from_secs(1)),
            (10, true),
            "claiming"
        );
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::AlreadyExists)).times(10));
        let began = env.now();
        writer.commit(reached(5)).await.unwrap().unwrap();
        assert_eq!(
            (plan.injected(), env.now().since(began) > Duration::from_secs(1)),
            (20, true),
            "appending"
        );
    });
}

/// One that goes on so for long ends the handle, with an outcome that is unknown; the put itself is
/// not given up.
#[test]
fn a_slot_that_stays_taken_and_empty_ends_the_handle_and_not_the_put() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let faulty: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&env, Arc::clone(&store), plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&faulty), options(OpenMode::Create)).await.unwrap();
        let broken = || Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::AlreadyExists)).times(200);
        plan.inject(broken());
        let began = env.now();
        let commits = [writer.commit(reached(5)), writer.commit(reached(6))];
        for commit in commits {
            let error = commit.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        }
        assert!(env.now().since(began) < Duration::from_secs(30), "virtual time");
        assert!(plan.injected() < 30, "{} puts", plan.injected());
        assert_eq!(
            writer.commit(reached(7)).await.unwrap().unwrap_err().kind(),
            ErrorKind::OutcomeUnknown,
            "nothing is put behind it"
        );
        writer.close().await;
        assert!(env.now().since(began) < Duration::from_secs(30), "nobody waits for what may never end");
        env.sleep(Duration::from_secs(300)).await;
        assert_eq!(plan.injected(), 200);
        assert_eq!(
            load(&env, &store).await.unwrap().state.streams()[&0],
            SequenceNumber(6),
            "it has landed at last"
        );
        assert!(!writer.is_fenced());
        plan.inject(broken());
        let began = env.now();
        let error = Manifest::open(&env, faulty, options(OpenMode::Open)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert!(env.now().since(began) < Duration::from_secs(30), "virtual time");
    });
}

/// A writer that learns late that another's claim holds the slot is fenced.
#[test]
fn an_ended_handle_learns_that_it_is_fenced() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let faulty: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&env, Arc::clone(&store), plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, faulty, options(OpenMode::Create)).await.unwrap();
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::AlreadyExists)).times(100));
        assert_eq!(writer.commit(reached(5)).await.unwrap().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        let (second, _) = Manifest::open(&env, store, options(OpenMode::Open)).await.unwrap();
        env.sleep(Duration::from_secs(2)).await;
        assert!(writer.is_fenced());
        second.commit(reached(6)).await.unwrap().unwrap();
    });
}

/// A long history is kept short by snapshots, and loads to the same state.
#[test]
fn snapshots_bound_what_opening_reads() {
    let (_world, env, store) = world();
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        for sequence in 0..400 {
            writer.commit(reached(sequence)).await.unwrap().unwrap();
        }
        writer.close().await;
        let incarnation = writer.incarnation();
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let records =
            store.list(request, &names::record_prefix(incarnation), None, 1000).await.unwrap().objects.len();
        let snapshots = store
            .list(request, &names::snapshot_prefix(incarnation), None, 1000)
            .await
            .unwrap()
            .objects
            .len();
        assert!(records < 200, "{records} records left");
        assert_eq!(snapshots, 1);
        let first = store.read(request, &names::record(incarnation, 1), 0..1000).await;
        assert!(first.is_ok(), "the first claim is never deleted");
        assert_eq!(*load(&env, &store).await.unwrap().state, *writer.state());
        let (again, state) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Open)).await.unwrap();
        assert_eq!(state.streams()[&0], SequenceNumber(399));
        again.commit(reached(1000)).await.unwrap().unwrap();
    });
}

/// Where a list may be a walk, one that began while a record was the newest does not miss it
/// together with those that came after it, whatever is deleted meanwhile: it shows neither an older
/// claim nor nothing. Records of which no walk can be under way are deleted.
#[test]
fn a_walk_shows_what_was_the_newest_when_it_began() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    plan.set_lists_walk(true);
    let walking: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&env, Arc::clone(&store), plan.clone()));
    env.block_on(async {
        let (writer, _) =
            Manifest::open(&env, Arc::clone(&walking), options(OpenMode::Create)).await.unwrap();
        let incarnation = writer.incarnation();
        let mut sequences = 1..;
        for apart in [1, 20, 29, 31, 600] {
            writer.commit(reached(sequences.next().unwrap())).await.unwrap().unwrap();
            let begun_at = writer.state().slot();
            let apart = Duration::from_secs(apart);
            plan.inject(
                Rule::of_kind(RequestKind::List, Fault::TornList { earlier_first: true, apart }).times(1),
            );
            let io = writer.io().clone();
            let (shown, walk) = completion();
            let walker = async move {
                shown.complete(io.perform(Effect::NewestRecord(incarnation), RetryLimit::Bounded).await);
            };
            env.spawn(TaskClass::Foreground, "walk", walker).detach();
            env.sleep(Duration::from_millis(1)).await;
            // Two snapshots at least, each of which would take the newest record; and while the
            // walk goes on for long, after a minute two more, which may.
            let rounds = if apart > Duration::from_secs(60) { 2 } else { 1 };
            for _ in 0..rounds {
                for sequence in sequences.by_ref().take(300) {
                    writer.commit(reached(sequence)).await.unwrap().unwrap();
                }
                env.sleep(Duration::from_secs(if rounds > 1 { 61 } else { 0 })).await;
            }
            if rounds > 1 {
                let request = Request::new(Purpose::Verify, Epoch::NONE);
                let gone = store.length(request, &names::record(incarnation, begun_at)).await;
                assert_eq!(
                    gone.unwrap_err().kind(),
                    ErrorKind::NotFound,
                    "what was the newest a minute ago is deleted under the walk"
                );
            }
            let shown = walk.await.unwrap().unwrap();
            assert!(
                matches!(shown, Answer::Newest(Some(slot)) if slot >= begun_at),
                "{shown:?} is shown; {begun_at} was the newest"
            );
            assert_eq!(*load(&env, &walking).await.unwrap().state, *writer.state());
        }
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let records =
            store.list(request, &names::record_prefix(incarnation), None, 2000).await.unwrap().objects.len();
        assert!(records < 800, "{records} records are left of {}", writer.state().slot());
    });
}

/// A store that waits by itself before it gives up, as those of buckets do, is not asked a dozen
/// times more.
#[test]
fn a_store_that_is_away_for_good_is_waited_for_once() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::Retry)));
    let away = Arc::new(FaultObjectStore::new(&env, store, plan));
    let policy = RetryPolicy { time_max: REMOTE_RETRY_TIME_MAX, ..RetryPolicy::default() };
    let retrying: Arc<dyn ObjectStore> = Arc::new(RetryObjectStore::new(&env, away, policy));
    env.block_on(async {
        let began = env.now();
        let error = load(&env, &retrying).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert!(env.now().since(began) < Duration::from_secs(45), "virtual time");
    });
}

/// A request that nobody ever answers.
const NEVER: Fault = Fault::Delay(Duration::from_secs(365 * 24 * 3600));

/// A store that answers nothing at all is not waited for without end: who waits is told within a
/// minute and a quarter, and may go on with the handle. The record is put until the store answers.
#[test]
fn a_store_that_answers_nothing_is_told_of_while_its_record_is_put() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let silent: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, store, plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&silent), options(OpenMode::Create)).await.unwrap();
        plan.inject(Rule::new(|_| true, NEVER));
        let began = env.now();
        let error = writer.committed_in_time(reached(5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert!(error.next_step().is_some(), "{error}");
        let took = env.now().since(began);
        assert!((ANSWER_TIME_MAX..ANSWER_TIME_MAX / 4 * 5).contains(&took), "{took:?} of virtual time");
        // The next one waits behind it, and is told the same.
        let error = writer.committed_in_time(reached(6)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert!(writer.error().is_none(), "the handle goes on");
        plan.clear();
        // The lost request is made again when its time is over.
        assert_eq!(writer.committed(reached(7)).await.unwrap(), writer.state().slot());
        assert_eq!(writer.state().streams()[&0], SequenceNumber(7));
        assert_eq!(*load(&env, &silent).await.unwrap().state, *writer.state());
        writer.close().await;
    });
}

/// A store that takes longer than a minute for each put is slow, not silent: a request that was
/// lost has more time when it is made again.
#[test]
fn a_record_comes_into_place_however_slow_the_store_is() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let slow: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, store, plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, slow, options(OpenMode::Create)).await.unwrap();
        plan.inject(Rule::new(|_| true, Fault::Delay(ANSWER_TIME_MAX * 3)));
        writer.committed(reached(5)).await.unwrap();
        writer.committed(reached(6)).await.unwrap();
    });
}

/// Closing waits no longer than others, and the task goes on until it knows (rule 5).
#[test]
fn closing_does_not_wait_for_a_store_that_answers_nothing() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let silent: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, store, plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&silent), options(OpenMode::Create)).await.unwrap();
        plan.inject(Rule::of_kind(RequestKind::Put, NEVER));
        let committed = writer.commit(reached(5));
        let began = env.now();
        writer.close().await;
        assert!(env.now().since(began) < ANSWER_TIME_MAX * 3 / 2, "virtual time");
        drop(writer);
        plan.clear();
        committed.await.unwrap().unwrap();
        assert_eq!(load(&env, &silent).await.unwrap().state.streams()[&0], SequenceNumber(5));
    });
}

#[test]
fn opening_ends_where_the_store_answers_nothing() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let silent: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, store, plan.clone()));
    env.block_on(async {
        drop(Manifest::open(&env, Arc::clone(&silent), options(OpenMode::Create)).await.unwrap());
        for (kind, expected) in [
            (RequestKind::List, ErrorKind::DeadlineExceeded),
            (RequestKind::Read, ErrorKind::DeadlineExceeded),
            (RequestKind::Put, ErrorKind::OutcomeUnknown),
        ] {
            plan.inject(Rule::of_kind(kind, NEVER));
            let began = env.now();
            let error = Manifest::open(&env, Arc::clone(&silent), options(OpenMode::Open)).await.unwrap_err();
            assert_eq!(error.kind(), expected, "{kind:?}: {error}");
            assert!(error.next_step().is_some(), "{error}");
            let took = env.now().since(began);
            assert!(took < ANSWER_TIME_MAX * 3 / 2, "{kind:?}: {took:?} of virtual time");
            plan.clear();
        }
        let (again, _) = Manifest::open(&env, silent, options(OpenMode::Open)).await.unwrap();
        again.committed(reached(5)).await.unwrap();
    });
}

/// Destroying waits for no walk: a process whose walk shows less than it has read finds the end of
/// the database, not damage.
#[test]
fn a_walk_while_the_database_is_destroyed_shows_no_damage() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    plan.set_lists_walk(true);
    let walking: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&env, Arc::clone(&store), plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, store, options(OpenMode::Create)).await.unwrap();
        writer.commit(reached(5)).await.unwrap().unwrap();
        // The third list, which is to prove the records read.
        let torn = Fault::TornList { earlier_first: true, apart: Duration::from_secs(1) };
        plan.inject(Rule::of_kind(RequestKind::List, torn).skip(2).times(1));
        let (loaded, loading) = completion();
        let loader = env.clone();
        env.spawn(TaskClass::Foreground, "load", async move {
            loaded.complete(load(&loader, &walking).await.map(drop));
        })
        .detach();
        env.sleep(Duration::from_millis(100)).await;
        let last = writer.destroy().await.unwrap();
        housekeeping::delete_chain(writer.io(), writer.incarnation(), last).await.unwrap();
        assert_eq!(loading.await.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(plan.injected(), 1);
    });
}

#[cfg(feature = "mutants")]
#[test]
fn records_deleted_under_a_walk_are_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::ManifestTruncatesUnderWalks,
        a_walk_shows_what_was_the_newest_when_it_began,
    );
    tombolo_storage::mutant::notices(
        Mutant::ManifestBelievesLongWalks,
        a_walk_shows_what_was_the_newest_when_it_began,
    );
}

/// A writer that dies, or is refused, between a snapshot and the record that names it has lost
/// nothing: only below a named one is anything deleted.
#[test]
fn nothing_is_deleted_below_a_snapshot_that_is_not_named() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let faulty: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&env, Arc::clone(&store), plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, faulty, options(OpenMode::Create)).await.unwrap();
        let incarnation = writer.incarnation();
        let request = Request::new(Purpose::Verify, Epoch::NONE);
        let snapshots = async || {
            store.list(request, &names::snapshot_prefix(incarnation), None, 10).await.unwrap().objects.len()
        };
        // Once the snapshot's object is there, no record is taken any more.
        let mut has_snapshot = false;
        let behind_it = move |asked: &Asked<'_>| {
            has_snapshot |= asked.kind == RequestKind::Finish && asked.name.contains("/snapshot/");
            has_snapshot && asked.kind == RequestKind::Put && asked.name.contains("/manifest/")
        };
        plan.inject(Rule::new(behind_it, Fault::Error(ErrorKind::OutOfSpace)));
        let mut sequence = 0;
        while writer.commit(reached(sequence + 1)).await.unwrap().is_ok() {
            sequence += 1;
            env.yield_now().await;
        }
        env.sleep(Duration::from_secs(60)).await;
        assert!(plan.injected() > 0 && sequence > 10, "{sequence} records");
        drop(writer);
        let (_, state) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Open)).await.unwrap();
        assert_eq!(state.streams()[&0], SequenceNumber(sequence));
        assert!(snapshots().await <= 1);
    });
}

#[cfg(feature = "mutants")]
#[test]
fn a_truncation_before_its_snapshot_is_named_is_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::ManifestTruncatesBeforeNamed,
        nothing_is_deleted_below_a_snapshot_that_is_not_named,
    );
}

/// Destroying ends the incarnation, and creating again begins the next one, empty.
#[test]
fn destroyed_and_created_again() {
    let (_world, env, store) = world();
    env.block_on(async {
        let (first, _) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        first.commit(reached(5)).await.unwrap().unwrap();
        first.destroy().await.unwrap();
        assert_eq!(
            Manifest::open(&env, Arc::clone(&store), options(OpenMode::Open)).await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert_eq!(load(&env, &store).await.unwrap_err().kind(), ErrorKind::NotFound);
        let (second, state) =
            Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        assert_eq!(second.incarnation(), Incarnation(2));
        assert!(state.streams().is_empty());
    });
}

#[cfg(feature = "mutants")]
#[test]
fn a_life_that_goes_on_behind_its_end_is_noticed() {
    tombolo_storage::mutant::notices(Mutant::IncarnationReused, destroyed_and_created_again);
}

/// A log store publishes through the manifest, and finds what it published.
#[test]
fn publishes_log_configurations() {
    let (_world, env, store) = world();
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        let id = LogId { epoch: writer.epoch(), lane: 0 };
        let record = LogRecord { id, configuration: "here".into() };
        let unknown = writer.publish(record.clone()).await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Bug, "nothing says what the lane is for");
        writer.assign_lanes([(0, LogRole::Application)]);
        writer.publish(record.clone()).await.unwrap();
        assert_eq!(writer.state().logs()[&id].role, LogRole::Application);
        assert_eq!(writer.named(), [record]);
        let sealed = |length| vec![Edit::LogSealed { epoch: 1, lane: 0, length }];
        writer.commit(sealed(100)).await.unwrap().unwrap();
        assert!(writer.commit(sealed(101)).await.unwrap().is_err());
        assert_eq!(writer.state().logs()[&id].sealed, Some(LogOffset(100)));
    });
}

/// Several logs are named in one record, and none of them if one of them was given up.
#[test]
fn publishes_several_logs_in_one_record_or_none() {
    let (_world, env, store) = world();
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        let epoch = writer.epoch();
        let record = |lane| LogRecord { id: LogId { epoch, lane }, configuration: "here".into() };
        let before = writer.state().slot();
        writer.assign_lanes((0..4).map(|lane| (lane, LogRole::Main)));
        writer.publish_all(vec![record(0), record(1)]).await.unwrap();
        assert_eq!(writer.named(), [record(0), record(1)]);
        assert_eq!(writer.state().slot(), before + 1);
        writer.give_up_log(record(3).id);
        for lanes in [[2, 3], [3, 2]] {
            let refused = writer.publish_all(lanes.map(record).into()).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Closed);
        }
        writer.publish_all(Vec::new()).await.unwrap();
        assert_eq!(writer.named(), [record(0), record(1)]);
        assert_eq!(writer.state().slot(), before + 1);
    });
}

/// Tables of `manifest`'s epoch whose descriptions take about 128 KiB each.
fn large_tables(manifest: &Manifest, count: u64) -> Vec<Edit> {
    let key = bytes::Bytes::from(vec![7; 65_535]);
    let table = |_| {
        Edit::TableAdded(tombolo_format::manifest::TableDescription {
            name: manifest.fresh_table_name(),
            offset: 0,
            length: 1000,
            identity: 1,
            keyspace: 0,
            level: 0,
            first_key: key.clone(),
            last_key: key.clone(),
            first_sequence: SequenceNumber(1),
            last_sequence: SequenceNumber(1),
            entries: 1,
            deletes: 0,
            tail_bytes: 100,
            oldest_unix_seconds: 0,
            features: 0,
            properties: tombolo_format::property::PropertyList::default(),
            source: None,
        })
    };
    (0..count).map(table).collect()
}

fn keyspace() -> Vec<Edit> {
    vec![Edit::KeyspaceCreated {
        id: 0,
        name: "default".into(),
        stream: 0,
        options: tombolo_format::manifest::KeyspaceOptions::default(),
    }]
}

/// What no record can hold takes several, and takes effect as one.
#[test]
fn edits_of_any_size_take_effect_together() {
    let (_world, env, store) = world();
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        writer.commit(keyspace()).await.unwrap().unwrap();
        let before = writer.state().slot();
        let (large, small) = (writer.commit(large_tables(&writer, 200)), writer.commit(reached(7)));
        let slot = large.await.unwrap().unwrap();
        assert!((3..12).contains(&(slot - before)), "{} records", slot - before);
        small.await.unwrap().unwrap();
        assert_eq!((writer.state().table_count(), writer.state().has_begun()), (200, false));
        assert_eq!(*load(&env, &store).await.unwrap().state, *writer.state());
    });
}

/// A writer that fails, or ends, between two parts has changed nothing.
#[test]
fn parts_without_their_last_one_have_no_effect() {
    let (_world, env, store) = world();
    let plan = FaultPlan::scripted();
    let faulty: Arc<dyn ObjectStore> =
        Arc::new(FaultObjectStore::new(&env, Arc::clone(&store), plan.clone()));
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, faulty, options(OpenMode::Create)).await.unwrap();
        writer.commit(keyspace()).await.unwrap().unwrap();
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::OutOfSpace)).skip(2).times(1));
        let refused = writer.commit(large_tables(&writer, 200)).await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
        assert!(writer.state().has_begun() && writer.state().table_count() == 0);
        assert_eq!(*load(&env, &store).await.unwrap().state, *writer.state());
        writer.commit(reached(7)).await.unwrap().unwrap();
        assert!(!writer.state().has_begun() && writer.state().table_count() == 0);
        writer.commit(large_tables(&writer, 100)).await.unwrap().unwrap();
        assert_eq!(writer.state().table_count(), 100);
        plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::OutOfSpace)).skip(2).times(1));
        writer.commit(large_tables(&writer, 200)).await.unwrap().unwrap_err();
        let (second, state) =
            Manifest::open(&env, Arc::clone(&store), options(OpenMode::Open)).await.unwrap();
        assert_eq!((state.table_count(), state.has_begun(), &*state), (100, false, &*second.state()));
    });
}

/// Commits share a record only as far as it stays within its limit.
#[test]
fn a_large_commit_does_not_fail_the_small_one_before_it() {
    let (_world, env, store) = world();
    env.block_on(async {
        let (writer, _) = Manifest::open(&env, Arc::clone(&store), options(OpenMode::Create)).await.unwrap();
        writer.commit(keyspace()).await.unwrap().unwrap();
        let commits = [
            writer.commit(large_tables(&writer, 24)),
            writer.commit(large_tables(&writer, 110)),
            writer.commit(reached(7)),
        ];
        for commit in commits {
            commit.await.unwrap().unwrap();
        }
        assert_eq!((writer.state().table_count(), writer.state().streams()[&0]), (134, SequenceNumber(7)));
    });
}
