//! How many requests are on their way at once, and who goes first.
//!
//! Invariant: as many have a place as the limit says, at most, but for those that had one when it
//! fell; a place that is given back goes to the most urgent who waits, the oldest of these first.
//! The last quarter of the places is not for what nobody waits for.
//!
//! A caller that gives up waiting is passed over, and taken out now and then before its turn: of
//! `n` that wait, at most `n` and a few more are kept besides.

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

/// So many may have given up waiting before they are looked for; more, when more than that still
/// waited at the last look.
const GIVEN_UP_MAX: usize = 64;

#[derive(Debug)]
struct Inner {
    limit: usize,
    in_flight: usize,
    /// By rank.
    waiting: [VecDeque<Completer<Place>>; RANKS],
    /// When as many wait, those who gave up are looked for.
    look_at: usize,
}

/// Who gave up waiting. Dropped outside the lock: what they would have woken may go with them, and
/// give places back.
type GivenUp = Vec<Completer<Place>>;

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

    fn waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// The caller that may go now, which takes a place. Before it those who gave up are taken out.
    fn next(&mut self) -> (Option<Completer<Place>>, GivenUp) {
        let mut given_up = GivenUp::new();
        for waiting in &mut self.waiting {
            while waiting.front().is_some_and(Completer::is_abandoned) {
                given_up.extend(waiting.pop_front());
            }
        }
        let rank =
            (0..RANKS).find(|rank| !self.waiting[*rank].is_empty() && self.in_flight < self.limit_of(*rank));
        let next = rank.and_then(|rank| self.waiting[rank].pop_front());
        self.in_flight += usize::from(next.is_some());
        (next, given_up)
    }

    /// Those who gave up, wherever they stand, once as many wait that it costs each of them no more
    /// than a look.
    fn take_given_up(&mut self) -> GivenUp {
        let mut given_up = GivenUp::new();
        if self.waiting() < self.look_at {
            return given_up;
        }
        for waiting in &mut self.waiting {
            for completer in std::mem::take(waiting) {
                if completer.is_abandoned() { given_up.push(completer) } else { waiting.push_back(completer) }
            }
        }
        self.look_at = 2 * self.waiting() + GIVEN_UP_MAX;
        given_up
    }
}

const fn rank_of_low() -> usize {
    rank(Priority::Low)
}

impl Gate {
    pub(crate) fn new(limit: usize) -> Gate {
        Gate(Mutex::new(Inner {
            limit: limit.max(1),
            in_flight: 0,
            waiting: Default::default(),
            look_at: GIVEN_UP_MAX,
        }))
    }

    /// Waits for a place.
    pub(crate) async fn enter(self: &Arc<Gate>, priority: Priority) -> Place {
        let (waiting, given_up) = {
            let mut inner = self.0.lock();
            let rank = rank(priority);
            let before = inner.waiting.iter().take(rank + 1).all(VecDeque::is_empty);
            if before && inner.in_flight < inner.limit_of(rank) {
                inner.in_flight += 1;
                return Place(Some(Arc::clone(self)));
            }
            let given_up = inner.take_given_up();
            let (completer, waiting) = completion();
            inner.waiting[rank].push_back(completer);
            (waiting, given_up)
        };
        drop(given_up);
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
        (inner.in_flight, inner.waiting())
    }

    fn leave(self: &Arc<Gate>) {
        self.0.lock().in_flight -= 1;
        self.admit();
    }

    fn admit(self: &Arc<Gate>) {
        loop {
            let (next, given_up) = self.0.lock().next();
            // Outside the lock. A caller that gives up at this moment drops the place, which leaves
            // again.
            drop(given_up);
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
        assert!(
            poll(low.as_mut()).is_none() && poll(normal.as_mut()).is_none() && poll(high.as_mut()).is_none()
        );
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

    /// Of many who gave up, each is passed over, and none hands its place to the next from within:
    /// their number is no depth of a stack.
    #[test]
    fn a_place_passes_over_any_number_who_gave_up() {
        const GAVE_UP: usize = 200_000;
        let pass = || {
            let gate = Arc::new(Gate::new(1));
            let place = poll(std::pin::pin!(gate.enter(Priority::Normal))).expect("a place");
            // All are there before the first gives up: nobody is taken out before.
            let mut waiting: Vec<_> = (0..GAVE_UP).map(|_| Box::pin(gate.enter(Priority::Normal))).collect();
            assert!(waiting.iter_mut().all(|entering| poll(entering.as_mut()).is_none()));
            let mut last = waiting.pop().expect("one of many");
            drop(waiting);
            drop(place);
            drop(poll(last.as_mut()).expect("the place of all who gave up"));
            assert_eq!(gate.load(), (0, 0));
        };
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(pass)
            .expect("a thread")
            .join()
            .expect("no panic");
    }

    /// A store that is silent gives no place back; a caller that gives up waiting is not kept until
    /// it does.
    #[test]
    fn who_gave_up_takes_no_room_for_long() {
        let gate = Arc::new(Gate::new(1));
        let place = poll(std::pin::pin!(gate.enter(Priority::High))).expect("a place");
        let mut staying: Vec<_> = (0..10).map(|_| Box::pin(gate.enter(Priority::Low))).collect();
        assert!(staying.iter_mut().all(|entering| poll(entering.as_mut()).is_none()));
        for _ in 0..10_000 {
            assert!(poll(Box::pin(gate.enter(Priority::Normal)).as_mut()).is_none());
            let (_, waiting) = gate.load();
            assert!(waiting <= 2 * staying.len() + GIVEN_UP_MAX, "{waiting} wait");
        }
        drop(place);
        for mut entering in staying {
            drop(poll(entering.as_mut()).expect("each has its turn"));
        }
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
