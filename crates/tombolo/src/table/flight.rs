//! Requests that several readers wait for: a reader that misses a block which is being fetched
//! joins in.
//!
//! A flight is a future that all who wait for it drive together: the one that is polled goes on
//! with it, and when it can go on all are woken. There is no leader, so that a reader who goes
//! away, or whose task is not polled any more, does not hold up the others; when all have gone, the
//! request is given up.
//!
//! Invariants:
//! 1. A flight is known to [`Flights`] until its future has its outcome, and not longer: an error
//!    reaches who waited, and is not remembered.
//! 2. What a flight brings is in the cache before the flight is forgotten; who then begins a new
//!    one looks there once more.
//! 3. A waiter that is dropped wakes the others: one of them polls after the last poll of the one
//!    that went.
//! 4. One that comes while another polls is woken when that poll ends: what the future waited for
//!    may have come in between, which woke only those who waited already.
//! 5. A flight has the deadline of the one that began it. One that ends with another's deadline is
//!    no answer: who waits on begins again.
//! 6. Wakers are woken and dropped outside all locks.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::{Mutex, MutexGuard};
use tombolo_env::BoxFuture;

/// A future that several wait for. Each has its own.
pub(super) struct Waiter<T: Clone> {
    flight: Arc<Flight<T>>,
    number: u64,
}

struct Flight<T> {
    state: Mutex<State<T>>,
    /// Somebody found `state` taken.
    has_knocked: AtomicBool,
    wakers: Arc<Wakers>,
}

enum State<T> {
    Flying(BoxFuture<'static, T>),
    Landed(T),
}

/// Those who wait, by the numbers of their waiters.
#[derive(Default)]
struct Wakers(Mutex<(u64, BTreeMap<u64, Waker>)>);

impl Wakers {
    fn number(&self) -> u64 {
        let mut wakers = self.0.lock();
        wakers.0 += 1;
        wakers.0
    }

    fn wake_all(&self) {
        let wakers = std::mem::take(&mut self.0.lock().1);
        wakers.into_values().for_each(Waker::wake);
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

impl<T: Clone> Waiter<T> {
    /// The first who waits for `future`.
    pub(super) fn new(future: BoxFuture<'static, T>) -> Waiter<T> {
        Waiter::of(Arc::new(Flight {
            state: Mutex::new(State::Flying(future)),
            has_knocked: AtomicBool::new(false),
            wakers: Arc::default(),
        }))
    }

    fn of(flight: Arc<Flight<T>>) -> Waiter<T> {
        let number = flight.wakers.number();
        Waiter { flight, number }
    }

    /// Whether one of the flight's locks is taken.
    #[cfg(test)]
    pub(super) fn is_locked(&self) -> bool {
        self.flight.wakers.0.is_locked() || self.flight.state.is_locked()
    }
}

impl<T: Clone> Clone for Waiter<T> {
    fn clone(&self) -> Waiter<T> {
        Waiter::of(Arc::clone(&self.flight))
    }
}

impl<T: Clone> Drop for Waiter<T> {
    fn drop(&mut self) {
        let _own = self.flight.wakers.0.lock().1.remove(&self.number);
        self.flight.wakers.wake_all();
    }
}

impl<T: Clone> Future for Waiter<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let flight = &self.flight;
        // Before looking: what happens after the look wakes.
        let waker = context.waker().clone();
        let _before = flight.wakers.0.lock().1.insert(self.number, waker);
        // The one that polls now wakes all when it lands, or when it sees the knock; else the
        // future wakes all.
        let Some(mut state) = flight.state.try_lock().or_else(|| flight.knock()) else {
            return Poll::Pending;
        };
        let polled = match &mut *state {
            State::Landed(outcome) => Poll::Ready(outcome.clone()),
            State::Flying(future) => {
                let waker = Waker::from(Arc::clone(&flight.wakers));
                future.as_mut().poll(&mut Context::from_waker(&waker))
            }
        };
        let mut lands = false;
        if let (Poll::Ready(outcome), State::Flying(_)) = (&polled, &*state) {
            *state = State::Landed(outcome.clone());
            lands = true;
        }
        drop(state);
        if flight.takes_knock() || lands {
            flight.wakers.wake_all();
        }
        polled
    }
}

impl<T> Flight<T> {
    /// Asks the holder of the state to wake all after it; that one may just have let go of it.
    fn knock(&self) -> Option<MutexGuard<'_, State<T>>> {
        self.has_knocked.store(true, Ordering::Relaxed);
        // With the fence of `takes_knock`: the second look finds the state free, or its holder
        // finds the knock.
        fence(Ordering::SeqCst);
        self.state.try_lock()
    }

    /// Whether somebody has knocked; to be asked after the state was let go.
    fn takes_knock(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_knocked.swap(false, Ordering::Relaxed)
    }
}

/// Fetches of a table on their way, by offset.
pub(super) struct Flights<T>(Mutex<Known<T>>);

struct Known<T> {
    numbers: u64,
    flights: BTreeMap<u64, (u64, Weak<Flight<T>>)>,
}

impl<T> Default for Flights<T> {
    fn default() -> Flights<T> {
        Flights(Mutex::new(Known { numbers: 0, flights: BTreeMap::new() }))
    }
}

/// Makes a flight unknown when its future has ended, or is given up.
struct Landing<T> {
    flights: Arc<Flights<T>>,
    offset: u64,
    number: u64,
}

impl<T> Drop for Landing<T> {
    fn drop(&mut self) {
        let mut known = self.flights.0.lock();
        if known.flights.get(&self.offset).is_some_and(|(number, _)| *number == self.number) {
            known.flights.remove(&self.offset);
        }
    }
}

impl<T: Clone + Send + 'static> Flights<T> {
    /// Waits for the fetch at `offset`, if there is one.
    pub(super) fn join(&self, offset: u64) -> Option<Waiter<T>> {
        let flight = self.0.lock().flights.get(&offset).and_then(|(_, flight)| flight.upgrade());
        flight.map(Waiter::of)
    }

    /// Waits for the fetch at `offset`, or else for `fetch`, which then is the one there; says
    /// whether it is another's.
    pub(super) fn join_or(
        self: &Arc<Self>,
        offset: u64,
        fetch: impl Future<Output = T> + Send + 'static,
    ) -> (Waiter<T>, bool) {
        let mut known = self.0.lock();
        if let Some(flight) = known.flights.get(&offset).and_then(|(_, flight)| flight.upgrade()) {
            drop(known);
            return (Waiter::of(flight), true);
        }
        known.numbers += 1;
        let number = known.numbers;
        let landing = Landing { flights: Arc::clone(self), offset, number };
        let waiter = Waiter::new(Box::pin(async move {
            let _landing = landing;
            fetch.await
        }));
        known.flights.insert(offset, (number, Arc::downgrade(&waiter.flight)));
        (waiter, false)
    }
}
