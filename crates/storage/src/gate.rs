//! How many requests are on their way at once, and who goes first.
//!
//! Invariant: as many have a place as the limit says, at most, but for those that had one when it fell; a place that is given back goes to the most
//! urgent who waits, the oldest of these first. The last quarter of the places is not for what nobody waits for.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completer, completion};

use crate::Priority;

/// Ranks of priorities.
const RANKS: usize = 3;

const fn rank(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    in_flight: usize,
    /// By rank.
    waiting: [VecDeque<Completer<Place>>; RANKS],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Inner>);

/// A place on the way, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place(Option<Arc<Gate>>);

impl Inner {
    fn limit_of(&self, rank: usize) -> usize {
        if rank == rank_of_low() { (self.limit / 4 * 3).max(1) } else { self.limit }
    }

    /// Whoever may go now, which takes a place.
    fn next(&mut self) -> Option<Completer<Place>> {
        let rank = (0..RANKS).find(|rank| !self.waiting[*rank].is_empty() && self.in_flight < self.limit_of(*rank))?;
        let next = self.waiting[rank].pop_front();
        self.in_flight += usize::from(next.is_some());
        next
    }
}

const fn rank_of_low() -> usize {
    rank(Priority::Low)
}

impl Gate {
    pub(crate) fn new(limit: usize) -> Gate {
        Gate(Mutex::new(Inner { limit: limit.max(1), in_flight: 0, waiting: Default::default() }))
    }

    /// Waits for a place.
    pub(crate) async fn enter(self: &Arc<Gate>, priority: Priority) -> Place {
        let waiting = {
            let mut inner = self.0.lock();
            let rank = rank(priority);
            let before = inner.waiting.iter().take(rank + 1).all(VecDeque::is_empty);
            if before && inner.in_flight < inner.limit_of(rank) {
                inner.in_flight += 1;
                return Place(Some(Arc::clone(self)));
            }
            let (completer, waiting) = completion();
            inner.waiting[rank].push_back(completer);
            waiting
        };
        match waiting.await {
            Some(place) => place,
            // Nobody drops a completer without a word while the gate is held.
            None => Place(None),
        }
    }

    /// Lets so many have a place from now on.
    pub(crate) fn set_limit(self: &Arc<Gate>, limit: usize) {
        self.0.lock().limit = limit.max(1);
        self.admit();
    }

    /// How many have a place, and how many wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        let inner = self.0.lock();
        (inner.in_flight, inner.waiting.iter().map(VecDeque::len).sum())
    }

    fn leave(self: &Arc<Gate>) {
        self.0.lock().in_flight -= 1;
        self.admit();
    }

    fn admit(self: &Arc<Gate>) {
        loop {
            let next = self.0.lock().next();
            // Outside the lock. Whoever waits no more drops the place, which leaves again.
            match next {
                Some(next) => next.complete(Place(Some(Arc::clone(self)))),
                None => return,
            }
        }
    }
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

    const LIMIT: usize = 128;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn full(gate: &Arc<Gate>) -> Vec<Place> {
        (0..LIMIT).map(|_| poll(std::pin::pin!(gate.enter(Priority::High))).expect("a place")).collect()
    }

    #[test]
    fn the_urgent_go_first_and_places_come_back() {
        let gate = Arc::new(Gate::new(LIMIT));
        let mut places = full(&gate);
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
        places.truncate(LIMIT / 4 * 3 - 1);
        drop(poll(low.as_mut()).expect("then the last"));
        assert_eq!(gate.load(), (LIMIT / 4 * 3 - 1, 0));
    }

    #[test]
    fn who_gives_up_waiting_keeps_no_place() {
        let gate = Arc::new(Gate::new(LIMIT));
        let mut places = full(&gate);
        let mut given_up = Box::pin(gate.enter(Priority::High));
        let mut next = Box::pin(gate.enter(Priority::High));
        assert!(poll(given_up.as_mut()).is_none() && poll(next.as_mut()).is_none());
        drop(given_up);
        drop(places.pop());
        drop(poll(next.as_mut()).expect("the place of who gave up"));
        places.clear();
        assert_eq!(gate.load(), (0, 0));
    }

    #[test]
    fn a_limit_that_rises_lets_in_who_waits_and_one_that_falls_takes_no_place_away() {
        let gate = Arc::new(Gate::new(LIMIT));
        let mut places = full(&gate);
        gate.set_limit(2);
        let mut waiting = Box::pin(gate.enter(Priority::High));
        places.truncate(2);
        assert!(poll(waiting.as_mut()).is_none(), "two have places still");
        gate.set_limit(3);
        let third = poll(waiting.as_mut()).expect("a place");
        assert_eq!(gate.load(), (3, 0));
        drop((third, places));
        gate.set_limit(0);
        assert!(poll(std::pin::pin!(gate.enter(Priority::Low))).is_some(), "one always goes");
    }
}
