//! Sleeping: one thread per world that wakes each sleeper at its time.
//!
//! It needs no file descriptors, so that a process that has none left can still pause and try
//! again. The thread starts with the first sleep, and ends when the world's last handle has gone
//! and nobody sleeps any more.
//!
//! Invariant: a sleep that was polled and is neither over nor dropped is in `State::sleeping`,
//! under its moment and number.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::reads::waits_for_a_moment;

/// The sleepers of one world.
#[derive(Debug, Default)]
pub(super) struct Timer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The first moment has changed, or the world has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Those of one moment by number.
    sleeping: BTreeMap<(Instant, u64), Waker>,
    next_number: u64,
    /// The thread runs.
    running: bool,
    closed: bool,
}

impl Timer {
    /// A sleep until `moment`; over at the first poll when that has passed.
    pub(super) fn sleep_until(&self, moment: Instant) -> Sleep {
        Sleep { shared: Arc::clone(&self.0), moment, number: None }
    }

    #[cfg(test)]
    pub(super) fn sleeping(&self) -> usize {
        self.0.state.lock().sleeping.len()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    /// Starts the thread unless it runs; `false` when the system refuses one.
    fn start(self: &Arc<Shared>, state: &mut State) -> bool {
        if !state.running {
            let shared = Arc::clone(self);
            let started = super::threads::start("tombolo-timer", move || shared.run());
            state.running = started.is_ok();
        }
        state.running
    }

    /// The thread's life.
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let mut due = Vec::new();
            while let Some(first) = state.sleeping.first_entry()
                && first.key().0 <= now
            {
                due.push(first.remove());
            }
            if !due.is_empty() {
                drop(state);
                for waker in due {
                    // The panic hook has reported it; others sleep on.
                    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                }
                state = self.state.lock();
                continue;
            }
            match state.sleeping.first_key_value().map(|((moment, _), _)| *moment) {
                Some(moment) => drop(self.changed.wait_until(&mut state, moment)),
                None if state.closed => {
                    state.running = false;
                    return;
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

/// A future that is ready from its moment on.
#[derive(Debug)]
pub(super) struct Sleep {
    shared: Arc<Shared>,
    moment: Instant,
    /// Its number among the sleepers, once it was polled.
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.moment {
            return Poll::Ready(());
        }
        waits_for_a_moment();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        if !shared.start(&mut state) {
            drop(state);
            // Without a thread the sleeper looks at the clock itself, again and again, until the
            // system gives one.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let number = match self.number {
            Some(number) => number,
            None => {
                state.next_number += 1;
                state.next_number
            }
        };
        let before = state.sleeping.insert((self.moment, number), context.waker().clone());
        let is_first = state.sleeping.first_key_value().is_some_and(|(key, _)| *key == (self.moment, number));
        drop(state);
        if is_first && before.is_none() {
            shared.changed.notify_one();
        }
        // Outside the lock: dropping a waker may end a task, whose destructors may sleep or wake.
        drop(before);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.shared.state.lock().sleeping.remove(&(self.moment, number));
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests;
