use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Wake, Waker};

use tombolo_env::simulated::World;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Fault, FaultLogStore, FaultPlan, Rule};
use tombolo_storage::{LogStore, ObjectStore};

use super::*;
use crate::memtable::MemtableWriter;
use crate::{Db, Durability, KeyspaceOptions, Options};

/// As if so many more unlogged writes had been made and flushed.
fn pretend_unlogged(db: &Db, writes: u64) {
    let engine = db.engine();
    let mut commit = engine.stream.commit.lock();
    commit.last += writes;
    commit.unlogged = commit.last;
    engine.stream.visible.store(commit.last, Ordering::Release);
}

#[test]
fn any_number_of_unlogged_writes_may_lie_between_logged_ones() {
    let world = World::new(1);
    let process = world.process("writer");
    let env = process.env();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(&env));
    process
        .run(async move {
            let open = || {
                Db::builder("mem://gap")
                    .env(env.clone())
                    .stores(Arc::clone(&objects), Arc::clone(&log))
                    .open()
            };
            let db = open().await.unwrap();
            let keys = db.default_keyspace();
            keys.put(b"1", b"one").await.unwrap();
            pretend_unlogged(&db, (1 << 33) + 5);
            keys.put_with(b"2", b"unlogged", Durability::Unlogged).await.unwrap();
            keys.put(b"2", b"two").await.unwrap();
            keys.put(b"3", b"three").await.unwrap();
            let last = db.stats().last_sequence;
            drop((db, keys));
            let db = open().await.unwrap();
            let keys = db.default_keyspace();
            for (key, value) in [(b"1", "one"), (b"2", "two"), (b"3", "three")] {
                assert_eq!(keys.get(key).await.unwrap().unwrap(), value.as_bytes());
            }
            assert_eq!(db.stats().last_sequence, last, "no number is given out twice");
        })
        .unwrap();
}

#[test]
fn the_log_of_a_memtable_is_bounded_by_how_fast_it_is_replayed() {
    let options = Options::parse(["memory_bytes=17179869184"]).unwrap();
    let at_rate =
        |mebibytes: u64| log_bytes_max(&options, replay_rate(mebibytes << 20, Duration::from_secs(1))) >> 20;
    assert_eq!((at_rate(80), at_rate(800)), (10, 100), "an eighth of a second each");
    assert_eq!((at_rate(5), at_rate(1 << 20)), (8, 256), "within bounds");
    assert_eq!(replay_rate(1000, Duration::from_secs(1)), REPLAY_BYTES_PER_SECOND, "too short to tell");
    assert_eq!(replay_rate(1 << 30, Duration::ZERO), REPLAY_BYTES_PER_SECOND, "nor without a clock");
    let given = Options::parse(["memtable_bytes=67108864"]).unwrap();
    assert_eq!(
        log_bytes_max(&given, REPLAY_BYTES_PER_SECOND),
        4 * 67_108_864,
        "a memtable of a given size may be filled"
    );
}

/// A database in a world of its own.
async fn open_alone(env: &tombolo_env::Env, options: &[&str]) -> Db {
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
    let log: Arc<dyn LogStore> = Arc::new(MemoryLogStore::unnamed(env));
    let builder =
        Db::builder("mem://alone").env(env.clone()).options(Options::parse(options.iter().copied()).unwrap());
    builder.stores(objects, log).open().await.unwrap()
}

#[test]
fn a_memtable_whose_log_would_take_long_to_replay_is_flushed_before_it_is_full() {
    let world = World::new(2);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let db = open_alone(&env, &["memory_bytes=1073741824"]).await;
            db.engine().log_bytes_max.store(100_000, Ordering::Relaxed);
            let keys = db.default_keyspace();
            for number in 0..2000u32 {
                keys.put_with(number.to_be_bytes(), [7; 200], Durability::Accepted).await.unwrap();
            }
            db.flush().await.unwrap();
            let flushes = db.stats().flushes;
            assert!((5..=7).contains(&flushes), "{flushes} flushes of 100,000 bytes of log each");
        })
        .unwrap();
}

/// A larger memtable, given while the database runs, is filled as one that was given at opening.
#[test]
fn the_bound_of_the_log_follows_the_settings() {
    let world = World::new(2);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let db = open_alone(&env, &["memory_bytes=1073741824"]).await;
            let bound = || db.engine().log_bytes_max.load(Ordering::Relaxed);
            assert_eq!(bound(), REPLAY_BYTES_PER_SECOND / 8);
            db.set_options([("memtable_bytes", "67108864")]).unwrap();
            assert_eq!(bound(), 4 * 67_108_864);
            assert!(
                db.set_options([("memtable_bytes", "1")]).is_err() && bound() == 4 * 67_108_864,
                "what was refused changes nothing"
            );
        })
        .unwrap();
}

/// Entries of a few bytes take far more in memory than in a batch: a batch is bounded by both, and
/// a refused one holds nobody up.
#[test]
fn a_batch_of_very_many_short_entries_is_refused() {
    run(|stores| async move {
        let db = stores.open(&["memory_bytes=67108864"]).await;
        let keys = db.default_keyspace();
        let mut batch = crate::Batch::new();
        batch.put(&keys, b"1", b"");
        // As if there were two million before it.
        batch.prepared.memtable_bytes = 2 * BATCH_BYTES_MAX;
        batch.put(&keys, b"2", b"");
        let error = db.write_with(batch, Durability::Accepted).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        keys.put(b"1", b"one").await.unwrap();
        // Many take what they need, and not what the dearest insert might.
        let mut batch = crate::Batch::new();
        for number in 0..50_000u32 {
            batch.put(&keys, number.wrapping_mul(0x9e37_79b9).to_be_bytes(), b"");
        }
        db.write_with(batch, Durability::Accepted).await.unwrap();
        let memory = db.stats().memtable_bytes;
        assert!(memory < 50_000 * 200, "{memory} bytes");
        let (mut scan, mut found) = (keys.scan::<&[u8]>(..), 0);
        while scan.next_async().await.unwrap().is_some() {
            found += 1;
        }
        assert_eq!(found, 50_001);
    });
}

#[test]
fn memtables_are_sealed_early_while_the_memory_budget_is_short() {
    let world = World::new(3);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let db = open_alone(&env, &["memory_bytes=16777216", "memtable_bytes=1048576"]).await;
            let keys = db.default_keyspace();
            let others = db.engine().budget().charge(crate::budget::Category::Pinned, 14 << 20);
            for number in 0..4000u32 {
                keys.put_with(number.to_be_bytes(), [7; 200], Durability::Accepted).await.unwrap();
            }
            drop(others);
            db.flush().await.unwrap();
            let flushes = db.stats().flushes;
            assert!((3..=6).contains(&flushes), "{flushes} flushes of a quarter of a memtable each");
        })
        .unwrap();
}

/// Stores in memory, whose log refuses what it is told to.
struct Stores {
    env: tombolo_env::Env,
    plan: FaultPlan,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
}

impl Stores {
    async fn open(&self, options: &[&str]) -> Db {
        let builder = Db::builder("mem://refusing")
            .env(self.env.clone())
            .options(Options::parse(options.iter().copied()).unwrap());
        builder.stores(Arc::clone(&self.objects), Arc::clone(&self.log)).open().await.unwrap()
    }

    fn refuse(&self, kind: ErrorKind, times: u64) {
        self.plan.inject(Rule::of_kind(RequestKind::LogAppend, Fault::Error(kind)).times(times));
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Stores) -> F) {
    let world = World::new(4);
    let process = world.process("writer");
    let (env, plan) = (process.env(), FaultPlan::scripted());
    let objects = Arc::new(MemoryObjectStore::unnamed(&env));
    let log = Arc::new(FaultLogStore::new(&env, Arc::new(MemoryLogStore::unnamed(&env)), plan.clone()));
    process.run(test(Stores { env, plan, objects, log })).unwrap();
}

#[test]
fn a_memtable_that_was_sealed_for_a_write_that_failed_is_flushed() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        // Background tasks have looked for work, and wait for more.
        stores.env.sleep(Duration::from_secs(60)).await;
        db.engine().log_bytes_max.store(10_000, Ordering::Relaxed);
        let keys = db.default_keyspace();
        keys.put_with(b"1", [7; 20_000], Durability::Accepted).await.unwrap();
        stores.refuse(ErrorKind::OutOfSpace, 1);
        let refused = keys.put_with(b"2", b"two", Durability::Accepted).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
        assert_eq!(db.engine().view().waiting.len(), 1, "it sealed the full memtable");
        stores.env.sleep(Duration::from_secs(60)).await;
        assert_eq!(db.stats().flushes, 1, "its flush may be what makes room");
    });
}

#[test]
fn a_memtable_that_was_sealed_for_a_write_in_line_is_flushed() {
    run(|stores| async move {
        let db = stores.open(&["writes_in_flight_max=1"]).await;
        stores.env.sleep(Duration::from_secs(60)).await;
        db.engine().log_bytes_max.store(10_000, Ordering::Relaxed);
        let keys = db.default_keyspace();
        let in_flight = keys.put(b"1", b"one");
        keys.put_with(b"2", [7; 20_000], Durability::Accepted).await.unwrap();
        // It stands in line for the one in flight; its first turn seals the full memtable, and the
        // log refuses it.
        stores.refuse(ErrorKind::Busy, 1);
        keys.put(b"3", b"three").await.unwrap();
        assert_eq!((stores.plan.injected(), db.engine().view().waiting.len()), (1, 1));
        in_flight.await.unwrap();
        stores.env.sleep(Duration::from_secs(60)).await;
        assert_eq!(db.stats().flushes, 1);
    });
}

/// Others are at their reads, as many as may be.
#[test]
fn a_write_with_a_condition_that_a_log_may_have_is_not_called_busy() {
    run(|stores| async move {
        let db = stores.open(&["writes_in_flight_max=2"]).await;
        db.engine().stream.conditional.store(2, Ordering::Relaxed);
        stores.refuse(ErrorKind::OutcomeUnknown, 1);
        let write = db.default_keyspace().put_if(b"1", b"one", crate::Condition::Absent);
        assert_eq!(write.await.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    });
}

/// A waker that counts, and looks whether it is run inside the commit section.
struct Looking {
    engine: Arc<Engine>,
    woken: AtomicU64,
    inside: AtomicU64,
}

impl Wake for Looking {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        self.inside.fetch_add(u64::from(self.engine.stream.commit.is_locked()), Ordering::Relaxed);
    }
}

impl Looking {
    fn new(db: &Db) -> Arc<Looking> {
        Arc::new(Looking {
            engine: Arc::clone(db.engine()),
            woken: AtomicU64::new(0),
            inside: AtomicU64::new(0),
        })
    }

    fn poll(self: &Arc<Self>, mut future: impl Future + Unpin) {
        let waker = Waker::from(Arc::clone(self));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
    }

    fn assert_woken_outside(&self) {
        let counts = (self.woken.load(Ordering::Relaxed), self.inside.load(Ordering::Relaxed));
        assert!(
            counts.0 > 0 && counts.1 == 0,
            "woken {} times, {} of them inside the commit section",
            counts.0,
            counts.1
        );
    }
}

#[test]
fn no_waker_runs_inside_the_commit_section() {
    run(|stores| async move {
        let db = stores.open(&["memtable_bytes=1048576"]).await;
        let keys = db.default_keyspace();
        stores.refuse(ErrorKind::Busy, 1000);
        let large = vec![7; 900_000];
        let first = keys.put_with(b"1", &large, Durability::Accepted);
        let mut beyond = keys.put_with(b"2", &large, Durability::Accepted);
        let looking = Looking::new(&db);
        looking.poll(&mut beyond);
        drop(beyond);
        looking.assert_woken_outside();
        drop(first);
    });
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let looking = Looking::new(&db);
        let mut progress = db.engine().progress.subscribe();
        looking.poll(&mut progress);
        stores.refuse(ErrorKind::OutcomeUnknown, 1);
        db.default_keyspace().put(b"1", b"one").await.unwrap();
        looking.assert_woken_outside();
    });
}

/// Changes of keyspaces that find no room stand in line with writes: each is judged at its turn,
/// by what was called before it, and none is refused for want of room.
#[test]
fn keyspaces_are_created_and_dropped_in_their_turn() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let options = KeyspaceOptions::default;
        let gone = db.create_keyspace("gone", options()).await.unwrap();
        // The log has no room for the first ten attempts.
        stores.refuse(ErrorKind::Busy, 10);
        let first = db.create_keyspace("first", options());
        let again = db.create_keyspace("first", options());
        let dropped = db.drop_keyspace("gone");
        let put = gone.put(b"k", b"too late");
        let opened = db.open_or_create_keyspace("gone", options());
        let opened_again = db.open_or_create_keyspace("gone", options());
        let missing = db.drop_keyspace("never");
        let synced = db.sync();
        assert_eq!(db.keyspace("first").unwrap_err().kind(), ErrorKind::NotFound, "not yet");
        assert_eq!(missing.await.unwrap_err().kind(), ErrorKind::NotFound);
        let (opened, opened_again) = (opened.await.unwrap(), opened_again.await.unwrap());
        assert_eq!(opened.id(), opened_again.id());
        assert!(opened.id() > gone.id(), "another keyspace of the name");
        assert_eq!(put.await.unwrap_err().kind(), ErrorKind::NotFound);
        dropped.await.unwrap();
        assert_eq!(again.await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let first = first.await.unwrap();
        assert!(first.id() < opened.id(), "in the order of the calls");
        synced.await.unwrap();
        first.put(b"k", b"v").await.unwrap();
        opened.put(b"k", b"w").await.unwrap();
        drop((db, first, opened, opened_again, gone));
        let db = stores.open(&[]).await;
        let names: Vec<_> = db.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect();
        assert_eq!(names, ["default", "first", "gone"]);
        for (name, value) in [("first", b"v"), ("gone", b"w")] {
            let keyspace = db.open_or_create_keyspace(name, options()).await.unwrap();
            assert_eq!(keyspace.get(b"k").await.unwrap().as_deref(), Some(&value[..]), "{name}");
        }
    });
}

/// As many as may be in flight are: who syncs, or changes a keyspace, waits and is not refused.
#[test]
fn a_limit_of_writes_in_flight_makes_others_wait() {
    run(|stores| async move {
        let db = stores.open(&["writes_in_flight_max=2"]).await;
        let keys = db.default_keyspace();
        let puts = [keys.put(b"1", b"one"), keys.put(b"2", b"two")];
        let (synced, made) = (db.sync(), db.create_keyspace("made", KeyspaceOptions::default()));
        let dropped = db.drop_keyspace("made");
        synced.await.unwrap();
        made.await.unwrap();
        dropped.await.unwrap();
        for put in puts {
            put.await.unwrap();
        }
    });
}

/// The first append ends the log, and nobody knows whether it is there: what was called after it is
/// never there without it.
#[test]
fn a_write_whose_append_ended_the_log_is_appended_again_before_those_that_were_called_after_it() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        keys.put(b"0", b"zero").await.unwrap();
        stores.refuse(ErrorKind::OutcomeUnknown, 1);
        let first = keys.put_with(b"1", b"one", Durability::Durable);
        let mut batch = crate::Batch::new();
        batch.put(&keys, b"1", b"later").put(&keys, b"2", b"two");
        let (second, third) = (db.write(batch), keys.put_with(b"3", b"three", Durability::Accepted));
        third.await.unwrap();
        second.await.unwrap();
        first.await.unwrap();
        for (key, value) in [(b"0", &b"zero"[..]), (b"1", b"later"), (b"2", b"two"), (b"3", b"three")] {
            assert_eq!(keys.get(key).await.unwrap().as_deref(), Some(value), "{key:?}");
        }
    });
}

#[test]
fn a_write_in_line_is_told_why_the_handle_ended() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        stores.refuse(ErrorKind::Busy, 1000);
        let waits = db.default_keyspace().put_with(b"1", b"one", Durability::Accepted);
        db.engine().fail(&Error::new(ErrorKind::Fenced, "taken over"));
        assert_eq!(waits.await.unwrap_err().kind(), ErrorKind::Fenced);
    });
}

/// Writes that wait for room are memory that the budget knows of, whatever holds them.
#[test]
fn writes_in_line_are_charged_to_the_budget() {
    run(|stores| async move {
        let db = stores.open(&["memtable_bytes=1048576"]).await;
        let queued = || db.engine().budget().used(crate::budget::Category::Queues);
        let keys = db.default_keyspace();
        stores.refuse(ErrorKind::Busy, 1000);
        let large = vec![7; 900_000];
        let first = keys.put_with(b"1", &large, Durability::Accepted);
        assert!((900_000..910_000).contains(&queued()), "{}", queued());
        let beyond = keys.put_with(b"2", &large, Durability::Accepted);
        assert!((1_800_000..1_820_000).contains(&queued()), "{}", queued());
        drop(beyond);
        assert!((900_000..910_000).contains(&queued()), "{} after one was given up", queued());
        stores.plan.clear();
        first.await.unwrap();
        assert_eq!(queued(), 0);
    });
}

/// A local log keeps a copy of what no sync has covered: at most an eighth of the budget, and in
/// it.
#[test]
fn what_the_log_keeps_until_a_sync_is_charged_to_the_budget() {
    let world = World::new(8);
    let process = world.process("writer");
    let env = process.env();
    process
        .run(async move {
            let options = Options::parse(["memory_bytes=16777216"]).unwrap();
            let db = Db::builder("file:///data").env(env.clone()).options(options).open().await.unwrap();
            let budget = Arc::clone(db.engine().budget());
            let logged = || budget.used(crate::budget::Category::Log);
            let keys = db.default_keyspace();
            let mut most = 0;
            for number in 0..20_000u32 {
                keys.put_with(number.to_be_bytes(), [7; 1000], Durability::Accepted).await.unwrap();
                most = most.max(logged());
            }
            assert!((200_000..=(2 << 20) + (256 << 10)).contains(&most), "{most} bytes of log in memory");
            keys.put_with(b"last", b"", Durability::Durable).await.unwrap();
            // A sixteenth of those two MiB is kept for the copies to come, beside one piece.
            assert!(logged() <= 192 << 10, "{} bytes of log in memory with nothing to sync", logged());
            db.close().await.unwrap();
            drop((keys, db));
            env.sleep(Duration::from_secs(1)).await;
            assert_eq!(logged(), 0);
        })
        .unwrap();
}

#[test]
fn a_commit_that_panics_finishes_the_handle() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        keys.put(b"1", b"one").await.unwrap();
        // Room is made for much less than it takes: the log has it when the memtable panics.
        let keyspace = db.engine().catalog.by_id(0).unwrap();
        let mut prepared = Prepared::default();
        prepared.push(&keyspace, EntryKind::Put, b"2", &[7; 100_000]);
        prepared.memtable_bytes = MemtableWriter::entry_bytes(1, 1);
        let panicked = catch_unwind(AssertUnwindSafe(|| write(db.engine(), prepared, Durability::Accepted)));
        assert!(panicked.is_err());
        let after = keys.put(b"3", b"three").await;
        drop((db, keys));
        let keys = stores.open(&[]).await.default_keyspace();
        assert_eq!(keys.get(b"1").await.unwrap().unwrap(), b"one", "the log can be replayed");
        assert_eq!(after.unwrap_err().kind(), ErrorKind::Bug, "no number is given out twice");
    });
}

#[test]
fn what_opening_flushes_does_not_count_for_the_next_memtable() {
    run(|stores| async move {
        let options = ["memtable_bytes=1048576"];
        for (bytes, is_kept) in [(100, true), (900_000, false)] {
            let db = stores.open(&options).await;
            db.default_keyspace().put_with(b"k", vec![7; bytes], Durability::Accepted).await.unwrap();
            drop(db);
            let db = stores.open(&options).await;
            assert_eq!(
                !db.engine().view().active.is_empty(),
                is_kept,
                "what is small waits for an ordinary flush"
            );
            let log_bytes = db.engine().stream.commit.lock().log_bytes;
            assert_eq!(log_bytes > 0, is_kept, "{log_bytes} bytes of log count for the next flush");
        }
    });
}

/// A put of a value of so many bytes.
type Put<'a> = (&'a Arc<KeyspaceInfo>, &'a [u8], usize, Durability);

/// Leaves puts at the commit queue, as writers do that find the section taken, and serves them: how
/// each went, and how many requests that made to the log.
fn put_together(stores: &Stores, db: &Db, puts: &[Put<'_>]) -> (Vec<Result<Committed>>, u64) {
    let engine = db.engine();
    let mut commit = engine.stream.commit.lock();
    let leave = |(keyspace, key, value, durability): &Put<'_>| {
        let value = vec![7; *value];
        let one = One::new(keyspace, EntryKind::Put, key, &value).unwrap();
        engine.stream.commit_queue.post(|posted| one.leave(posted, *durability)).unwrap()
    };
    let places: Vec<usize> = puts.iter().map(leave).collect();
    let before = stores.plan.requests();
    serve_commit_queue(engine, &mut commit);
    let requests = stores.plan.requests() - before;
    (places.into_iter().map(|place| engine.stream.commit_queue.take(place)).collect(), requests)
}

#[test]
fn what_several_leave_is_one_entry_of_the_log() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        let keyspace = &db.engine().catalog.by_id(0).unwrap();
        keys.put(b"0", b"zero").await.unwrap();
        let (writes, last) = (db.engine().stream.writes(), db.stats().last_sequence);
        let durabilities = [Durability::Durable, Durability::Accepted, Durability::Durable];
        let puts: Vec<Put<'_>> = [&b"1"[..], b"22", b"333"]
            .into_iter()
            .zip(durabilities)
            .map(|(key, durability)| (keyspace, key, 100, durability))
            .collect();
        let (committed, requests) = put_together(&stores, &db, &puts);
        assert_eq!(requests, 1);
        for (committed, durability) in committed.into_iter().zip(durabilities) {
            acknowledge(db.engine(), committed.unwrap(), durability).await.unwrap();
        }
        assert_eq!(db.engine().stream.writes() - writes, 3);
        assert_eq!(db.stats().last_sequence - last, 3, "a number each");
        let (_, requests) = put_together(&stores, &db, &puts[..1]);
        assert_eq!(requests, 1, "one alone is an entry of one");
        // Unlogged ones are no part of an entry, and neither is what stands beside them.
        let (committed, requests) =
            put_together(&stores, &db, &[(keyspace, b"4", 100, Durability::Unlogged), puts[0], puts[1]]);
        assert!(committed.iter().all(Result::is_ok));
        assert_eq!(requests, 2);
        keys.put(b"5", b"five").await.unwrap();
        let last = db.stats().last_sequence;
        drop((db, keys));
        let db = stores.open(&[]).await;
        let keys = db.default_keyspace();
        for key in [&b"1"[..], b"22", b"333"] {
            assert_eq!(keys.get(key).await.unwrap().unwrap(), [7; 100]);
        }
        assert_eq!(keys.get(b"4").await.unwrap(), None);
        assert_eq!(keys.get(b"5").await.unwrap().unwrap(), b"five");
        assert_eq!(db.stats().last_sequence, last);
    });
}

/// An entry of several is short: longer rows of them are several entries, and an operation that is
/// long by itself is one.
#[test]
fn what_several_leave_is_as_many_entries_as_it_is_long() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keyspace = &db.engine().catalog.by_id(0).unwrap();
        for (values, expected) in [
            (&[1600; 10][..], 1),
            (&[2000; 10], 2),
            (&[4000; 10], 3),
            (&[20_000; 3], 3),
            (&[100, 20_000, 100, 100], 3),
        ] {
            let puts: Vec<Put<'_>> =
                values.iter().map(|value| (keyspace, &b"k"[..], *value, Durability::Accepted)).collect();
            let (committed, requests) = put_together(&stores, &db, &puts);
            assert!(committed.iter().all(Result::is_ok));
            assert_eq!(requests, expected, "{values:?}");
        }
    });
}

#[test]
fn what_one_of_several_cannot_have_the_others_get() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let dropped = db.create_keyspace("gone", KeyspaceOptions::default()).await.unwrap();
        let (gone, keyspace) =
            (&db.engine().catalog.by_name("gone").unwrap(), &db.engine().catalog.by_id(0).unwrap());
        drop(dropped);
        db.drop_keyspace("gone").await.unwrap();
        let durable = Durability::Durable;
        let puts: [Put<'_>; 3] =
            [(keyspace, b"1", 100, durable), (gone, b"2", 100, durable), (keyspace, b"3", 100, durable)];
        let (committed, requests) = put_together(&stores, &db, &puts);
        let kinds: Vec<_> =
            committed.iter().map(|committed| committed.as_ref().err().map(Error::kind)).collect();
        assert_eq!(kinds, [None, Some(ErrorKind::NotFound), None]);
        assert_eq!(requests, 2);
        // What the log refuses as a whole it takes one by one.
        stores.refuse(ErrorKind::OutOfSpace, 1);
        let puts: [Put<'_>; 3] = [
            (keyspace, b"4", 100, durable),
            (keyspace, b"5", 100, Durability::Accepted),
            (keyspace, b"6", 100, durable),
        ];
        let (committed, requests) = put_together(&stores, &db, &puts);
        assert!(committed.iter().all(Result::is_ok));
        assert_eq!(requests, 1 + 3);
        let keys = db.default_keyspace();
        for key in [b"1", b"3", b"4", b"5", b"6"] {
            assert_eq!(keys.get(key).await.unwrap().unwrap(), [7; 100]);
        }
        assert_eq!(keys.get(b"2").await.unwrap(), None);
    });
}

/// A memtable was sealed to make room for several that the log then refused, and takes one by one:
/// its flush is told of.
#[test]
fn a_memtable_that_was_sealed_for_several_is_flushed() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        stores.env.sleep(Duration::from_secs(60)).await;
        db.engine().log_bytes_max.store(10_000, Ordering::Relaxed);
        db.default_keyspace().put_with(b"1", [7; 20_000], Durability::Accepted).await.unwrap();
        stores.refuse(ErrorKind::OutOfSpace, 1);
        let keyspace = &db.engine().catalog.by_id(0).unwrap();
        let puts: [Put<'_>; 2] =
            [(keyspace, b"2", 100, Durability::Accepted), (keyspace, b"3", 100, Durability::Accepted)];
        let (committed, requests) = put_together(&stores, &db, &puts);
        assert_eq!((requests, db.engine().view().waiting.len()), (3, 1));
        for committed in committed {
            finish_commit(db.engine(), committed).unwrap();
        }
        stores.env.sleep(Duration::from_secs(60)).await;
        assert_eq!(db.stats().flushes, 1);
    });
}

/// Nobody is told that a write is accepted before all that it shares an entry with is.
#[test]
fn several_are_accepted_when_their_entry_is() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keyspace = &db.engine().catalog.by_id(0).unwrap();
        let second = Duration::from_secs(1);
        for kind in [RequestKind::LogAppend, RequestKind::LogSync] {
            stores.plan.inject(Rule::of_kind(kind, Fault::Delay(second)).times(2));
        }
        let accepted = Durability::Accepted;
        let puts: [Put<'_>; 3] = [
            (keyspace, b"1", 100, accepted),
            (keyspace, b"2", 100, accepted),
            (keyspace, b"3", 100, accepted),
        ];
        let began = stores.env.now();
        let (committed, requests) = put_together(&stores, &db, &puts);
        assert_eq!(requests, 1 + 2, "an append, and two questions when it is durable");
        let waits: Vec<_> = committed
            .into_iter()
            .map(|committed| acknowledge(db.engine(), committed.unwrap(), accepted))
            .collect();
        for (number, wait) in waits.into_iter().enumerate().rev() {
            wait.await.unwrap();
            assert!(stores.env.now().since(began) >= second, "{number}");
        }
    });
}

#[test]
fn several_whose_entry_may_be_in_the_log_are_all_told_so() {
    run(|stores| async move {
        let db = stores.open(&[]).await;
        let keyspace = &db.engine().catalog.by_id(0).unwrap();
        stores.plan.inject(Rule::of_kind(RequestKind::LogAppend, Fault::Unknown { landed: true }).times(1));
        let durable = Durability::Durable;
        let puts: [Put<'_>; 3] =
            [(keyspace, b"1", 100, durable), (keyspace, b"2", 100, durable), (keyspace, b"3", 100, durable)];
        let (committed, requests) = put_together(&stores, &db, &puts);
        for committed in committed {
            assert_eq!(committed.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        }
        assert_eq!(requests, 1, "nothing was appended behind it");
        assert_eq!(db.default_keyspace().get(b"1").await.unwrap(), None);
    });
}
