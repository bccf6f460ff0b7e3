//! Readers who miss the same share one request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, TaskClass};
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};

use super::*;
use crate::table::flight::Waiter;

/// A table behind a store whose reads take time.
struct Slow {
    fixture: Fixture,
    table: Arc<Table>,
    plan: FaultPlan,
    entries: Vec<Owned>,
}

impl Slow {
    fn new(cache_bytes: u64) -> Slow {
        let fixture = Fixture::new();
        let entries = many(2000, 50);
        let description = fixture
            .write(&entries, TableOptions { compression: Compression::None, ..TableOptions::default() });
        let plan = FaultPlan::scripted();
        let env = fixture.world.process("reader").env();
        let store = Arc::new(FaultObjectStore::new(&env, Arc::clone(&fixture.store), plan.clone()));
        plan.inject(Rule::new(is_read, Fault::Delay(Duration::from_millis(5))));
        let table = Arc::new(Table::new(description, object(), store, BlockCache::new(cache_bytes)));
        fixture.tracer.reset();
        Slow { fixture, table, plan, entries }
    }

    /// Reads that reached the store since the last call: single and vectored.
    fn requests(&self) -> u64 {
        let requests = self.fixture.tracer.of_kind(RequestKind::ReadRanges).requests;
        requests + self.fixture.reads()
    }

    fn read(&self, number: usize) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        let (table, key) = (Arc::clone(&self.table), self.entries[number].0.clone());
        Box::pin(async move {
            let hit = table.get(request(), &Lookup::new(&key, SequenceNumber::MAX)).await?;
            Ok(hit.map(|hit| hit.value().to_vec()))
        })
    }

    fn read_several(&self, numbers: &[usize]) -> BoxFuture<'static, Result<Option<Vec<u8>>>> {
        let table = Arc::clone(&self.table);
        let keys: Vec<_> = numbers.iter().map(|number| self.entries[*number].0.clone()).collect();
        Box::pin(async move {
            let lookups: Vec<_> = keys.iter().map(|key| Lookup::new(key, SequenceNumber::MAX)).collect();
            let mut hits = table.get_several(request(), &lookups).await?;
            Ok(hits.swap_remove(0).map(|hit| hit.value().to_vec()))
        })
    }

    /// Runs all side by side.
    fn together(
        &self,
        reads: Vec<BoxFuture<'static, Result<Option<Vec<u8>>>>>,
    ) -> Vec<Result<Option<Vec<u8>>>> {
        let env = self.fixture.world.process("readers").env();
        let spawn = |read: BoxFuture<'static, Result<Option<Vec<u8>>>>| {
            let (completer, completion) = tombolo_env::completion();
            let task =
                env.spawn(TaskClass::Foreground, "read", async move { completer.complete(read.await) });
            (task, completion)
        };
        let tasks: Vec<_> = reads.into_iter().map(spawn).collect();
        self.fixture.run(async move {
            let mut results = Vec::new();
            for (_task, completion) in tasks {
                results.push(completion.await.unwrap());
            }
            results
        })
    }
}

fn is_read(asked: &tombolo_storage::layer::fault::Asked<'_>) -> bool {
    matches!(asked.kind, RequestKind::Read | RequestKind::ReadRanges)
}

#[test]
fn readers_who_miss_the_same_share_opening_and_block() {
    for cache_bytes in [0, 8 << 20] {
        let slow = Slow::new(cache_bytes);
        let results = slow.together((0..8).map(|_| slow.read(700)).collect());
        for result in results {
            assert_eq!(result.unwrap().as_ref(), Some(&slow.entries[700].2));
        }
        // The tail, and the block; the partition comes with the tail where there is a cache to keep
        // it.
        assert_eq!(slow.requests(), if cache_bytes == 0 { 3 } else { 2 });
        slow.together(vec![slow.read(700), slow.read(700)]);
        assert_eq!(
            slow.requests(),
            if cache_bytes == 0 { 2 } else { 0 },
            "nothing is remembered but what the cache has"
        );
    }
}

#[test]
fn single_reads_and_several_share_what_they_miss() {
    let slow = Slow::new(8 << 20);
    slow.fixture.run(slow.table.open(request())).unwrap();
    slow.requests();
    let reads = vec![
        slow.read(100),
        slow.read_several(&[100, 900, 1500]),
        slow.read(1500),
        slow.read_several(&[900, 1500]),
        slow.read(900),
    ];
    for (result, number) in slow.together(reads).into_iter().zip([100, 100, 1500, 900, 900]) {
        assert_eq!(result.unwrap().as_ref(), Some(&slow.entries[number].2));
    }
    // Five readers, three blocks: how many come together depends on who is first.
    let requests = slow.requests();
    assert!((2..=3).contains(&requests), "{requests} requests");
}

#[test]
fn who_goes_away_or_is_not_polled_any_more_does_not_hold_up_the_others() {
    let slow = Slow::new(8 << 20);
    slow.fixture.run(async {
        let poll_once = |read: &mut BoxFuture<'static, Result<Option<Vec<u8>>>>| {
            assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        };
        let (mut gone, mut idle) = (slow.read(700), slow.read(700));
        poll_once(&mut gone);
        poll_once(&mut idle);
        let mut late = slow.read(700);
        poll_once(&mut late);
        drop(gone);
        assert_eq!(late.await.unwrap().as_ref(), Some(&slow.entries[700].2));
        assert_eq!(idle.await.unwrap().as_ref(), Some(&slow.entries[700].2));
    });
    assert_eq!(slow.requests(), 2);
    // When all have gone, the next one asks anew.
    slow.fixture.run(async {
        let mut gone = slow.read(1900);
        assert!(gone.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(gone);
        assert_eq!(slow.read(1900).await.unwrap().as_ref(), Some(&slow.entries[1900].2));
    });
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counting(AtomicU64);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_comes_while_another_polls_is_woken_though_that_one_is_not_polled_any_more() {
    let late: Arc<Mutex<Option<Waiter<u32>>>> = Arc::default();
    let (woken, coming) = (Arc::new(Counting::default()), Arc::clone(&late));
    let wakes = Waker::from(Arc::clone(&woken));
    let mut polls = 0;
    let fetch = std::future::poll_fn(move |context| {
        polls += 1;
        if polls > 1 {
            return Poll::Ready(7);
        }
        // It is fetched before the poll ends, which wakes who waits by then; and then another
        // comes.
        context.waker().wake_by_ref();
        let mut coming = coming.lock();
        let Some(late) = &mut *coming else { return Poll::Ready(0) };
        assert!(std::pin::Pin::new(late).poll(&mut Context::from_waker(&wakes)).is_pending());
        Poll::Pending
    });
    let mut first = Waiter::new(Box::pin(fetch));
    *late.lock() = Some(first.clone());
    assert!(std::pin::Pin::new(&mut first).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let mut late = late.lock().take().unwrap();
    assert_eq!(std::pin::Pin::new(&mut late).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(7));
}

/// A waker that holds a waiter of the same flight, as the last reference to a task may: dropping it
/// takes the flight's lock of wakers.
struct Holds {
    waiter: Mutex<Option<Waiter<u32>>>,
    met_a_lock: Arc<AtomicBool>,
}

impl Wake for Holds {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Holds {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.get_mut().take() else { return };
        if waiter.is_locked() {
            // Dropping the waiter would wait for ever for the lock that this thread holds.
            self.met_a_lock.store(true, Ordering::Relaxed);
            std::mem::forget(waiter);
        }
    }
}

#[test]
fn wakers_are_dropped_outside_the_lock() {
    let met_a_lock = Arc::new(AtomicBool::new(false));
    let mut waiter = Waiter::new(Box::pin(std::future::pending()));
    for _ in 0..2 {
        let holds = Holds { waiter: Mutex::new(Some(waiter.clone())), met_a_lock: Arc::clone(&met_a_lock) };
        let waker = Waker::from(Arc::new(holds));
        assert!(std::pin::Pin::new(&mut waiter).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waiter);
    assert!(!met_a_lock.load(Ordering::Relaxed), "a waker was dropped under a lock");
}

#[test]
fn an_error_reaches_all_who_wait_and_is_not_remembered() {
    let slow = Slow::new(8 << 20);
    for opened in [false, true] {
        // The request that fails does so after the delay that all meet: all readers are waiting by
        // then.
        slow.plan.inject(Rule::new(is_read, Fault::Error(ErrorKind::Retry)).times(1));
        let before = slow.plan.requests();
        let reads = vec![slow.read(300), slow.read(300), slow.read_several(&[300]), slow.read(300)];
        for result in slow.together(reads) {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Retry, "opened: {opened}");
        }
        assert_eq!(slow.plan.requests() - before, 1);
        if !opened {
            slow.fixture.run(slow.table.open(request())).unwrap();
        }
    }
    assert_eq!(slow.fixture.run(slow.read(300)).unwrap().as_ref(), Some(&slow.entries[300].2));
}
