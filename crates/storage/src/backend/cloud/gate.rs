//! How many requests are on their way at once, and who goes first.
//!
//! Invariant: at most [`IN_FLIGHT_MAX`] have a place; a place that is given back goes to the most urgent who waits, the oldest of these first.
//! The last quarter of the places is not for what nobody waits for.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completer, completion};

use super::rank;
use crate::Priority;

/// Requests on their way at once, of one store.
pub(super) const IN_FLIGHT_MAX: usize = 128;

/// Of these, at most so many of low priority.
const LOW_IN_FLIGHT_MAX: usize = IN_FLIGHT_MAX / 4 * 3;

#[derive(Debug, Default)]
struct Inner {
    in_flight: usize,
    /// By rank.
    waiting: [VecDeque<Completer<Place>>; 3],
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<Inner>);

/// A place on the way, given back when dropped.
#[derive(Debug)]
pub(super) struct Place(Option<Arc<Gate>>);

impl Gate {
    /// Waits for a place.
    pub(super) async fn enter(self: &Arc<Gate>, priority: Priority) -> Place {
        let waiting = {
            let mut inner = self.0.lock();
            let before = inner.waiting.iter().take(rank(priority) + 1).all(VecDeque::is_empty);
            if before && inner.in_flight < limit(rank(priority)) {
                inner.in_flight += 1;
                return Place(Some(Arc::clone(self)));
            }
            let (completer, waiting) = completion();
            inner.waiting[rank(priority)].push_back(completer);
            waiting
        };
        match waiting.await {
            Some(place) => place,
            // Nobody drops a completer without a word while the gate is held.
            None => Place(None),
        }
    }

    fn leave(self: &Arc<Gate>) {
        let next = {
            let mut inner = self.0.lock();
            inner.in_flight -= 1;
            let in_flight = inner.in_flight;
            let rank = (0..inner.waiting.len()).find(|rank| !inner.waiting[*rank].is_empty() && in_flight < limit(*rank));
            let next = rank.and_then(|rank| inner.waiting[rank].pop_front());
            inner.in_flight += usize::from(next.is_some());
            next
        };
        // Outside the lock. Whoever waits no more drops the place, which leaves again.
        if let Some(next) = next {
            next.complete(Place(Some(Arc::clone(self))));
        }
    }
}

const fn limit(rank: usize) -> usize {
    if rank == 2 { LOW_IN_FLIGHT_MAX } else { IN_FLIGHT_MAX }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(gate) = self.0.take() {
            gate.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_urgent_go_first_and_places_come_back() {
        let gate = Arc::<Gate>::default();
        let mut places: Vec<Place> =
            (0..IN_FLIGHT_MAX).map(|_| poll(std::pin::pin!(gate.enter(Priority::High))).expect("a place")).collect();
        let mut low = Box::pin(gate.enter(Priority::Low));
        let mut normal = Box::pin(gate.enter(Priority::Normal));
        let mut high = Box::pin(gate.enter(Priority::High));
        assert!(poll(low.as_mut()).is_none() && poll(normal.as_mut()).is_none() && poll(high.as_mut()).is_none());
        drop(places.pop());
        assert!(poll(low.as_mut()).is_none() && poll(normal.as_mut()).is_none());
        let held = poll(high.as_mut()).expect("the most urgent has it");
        drop(held);
        drop(poll(normal.as_mut()).expect("then the next"));
        assert!(poll(low.as_mut()).is_none(), "the last quarter is not for what nobody waits for");
        places.truncate(LOW_IN_FLIGHT_MAX - 1);
        drop(poll(low.as_mut()).expect("then the last"));
        assert_eq!(gate.0.lock().in_flight, LOW_IN_FLIGHT_MAX - 1);
    }

    #[test]
    fn who_gives_up_waiting_keeps_no_place() {
        let gate = Arc::<Gate>::default();
        let mut places: Vec<Place> =
            (0..IN_FLIGHT_MAX).map(|_| poll(std::pin::pin!(gate.enter(Priority::High))).expect("a place")).collect();
        let mut given_up = Box::pin(gate.enter(Priority::High));
        let mut next = Box::pin(gate.enter(Priority::High));
        assert!(poll(given_up.as_mut()).is_none() && poll(next.as_mut()).is_none());
        drop(given_up);
        drop(places.pop());
        drop(poll(next.as_mut()).expect("the place of who gave up"));
        places.clear();
        assert_eq!(gate.0.lock().in_flight, 0);
    }
}
