//! Runs the tasks that wait for sockets, and waits for the sockets, on one thread at a time: whoever leads. What arrives is worked on by the thread
//! that the kernel woke, without a hand-over (2–9 µs each on a busy machine).
//!
//! A thread of the pool leads, unless threads wait in [`Env::block_on`](crate::Env::block_on) again and again: then they lead themselves while they wait,
//! so that an answer is worked on by the very thread that waits for it. One that leaves calls another that waits. When none does, the pool's thread
//! stands by: it leads again after [`STAND_BY`], or at once when a task is to run.
//!
//! Invariants: those of the [executor](super::executor), and
//! 1. One thread leads at a time. While nobody does, the pool's thread looks within [`STAND_BY`] or has been woken.
//! 2. Whoever leads and waits is woken by what is scheduled.
//! 3. A thread that waits runs nothing once it was woken.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_task::Runnable;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::epoll::Event;

use super::executor::IN_TASK;
use super::parker::Parker;
use super::reactor::Reactor;
use super::{reads, threads};
use crate::BoxFuture;

/// Tasks that run before the sockets are looked at again.
const RUN_MAX: usize = 64;
/// So long after a waiting thread has led the pool's own does not; and threads that wait more seldom than that do not lead.
const STAND_BY: Duration = Duration::from_micros(500);
/// The longest it stands by while another thread leads on and on.
const STAND_BY_MAX: Duration = Duration::from_millis(64);

#[derive(Debug, Default)]
pub(super) struct NetworkPool {
    state: Mutex<State>,
    /// For the pool's thread, unless it waits for sockets.
    changed: Condvar,
    reactor: OnceLock<Arc<Reactor>>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Runnable>,
    leader: Leader,
    /// A waiting thread wants to lead.
    is_wanted: bool,
    /// When a waiting thread last began to lead, or wanted to.
    asked: Option<Instant>,
    /// Counts those that led.
    turns: u64,
    /// Threads that wait and do not lead.
    followers: Vec<Arc<Parker>>,
    started: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leader {
    #[default]
    Nobody,
    /// It runs tasks.
    Running,
    /// It waits for sockets.
    Waiting,
}

/// Who leads.
#[derive(Clone, Copy)]
enum Who<'a> {
    Pool,
    Waiter(&'a Parker, Option<Instant>),
}

impl NetworkPool {
    /// What sockets are registered with.
    ///
    /// # Errors
    /// The system's, when it gives no descriptors.
    pub(super) fn reactor(&self) -> io::Result<&Arc<Reactor>> {
        if self.reactor.get().is_none() {
            let reactor = Reactor::new()?;
            // Another thread may have been first.
            let _ = self.reactor.set(reactor);
            // The pool's thread may wait for tasks only.
            let _state = self.state.lock();
            self.changed.notify_all();
        }
        Ok(self.reactor.get_or_init(|| unreachable!("it was made above")))
    }

    pub(super) fn spawn(self: &Arc<NetworkPool>, future: BoxFuture<'static, ()>) -> async_task::Task<()> {
        let (runnable, task) = {
            let pool = Arc::clone(self);
            async_task::spawn(future, move |runnable| pool.schedule(runnable))
        };
        runnable.schedule();
        task
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.wake(&mut state);
    }

    /// Wakes whoever leads and waits, or the pool's thread.
    fn wake(&self, state: &mut State) {
        match (state.leader, self.reactor.get()) {
            (Leader::Running, _) => {}
            (Leader::Waiting, Some(reactor)) => reactor.ring(),
            (Leader::Waiting | Leader::Nobody, _) => drop(self.changed.notify_all()),
        }
    }

    fn schedule(self: &Arc<NetworkPool>, runnable: Runnable) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            // Outside the lock: dropping cancels the task, and its destructors may wake others.
            drop(runnable);
            return;
        }
        state.queue.push_back(runnable);
        self.wake(&mut state);
        if !std::mem::replace(&mut state.started, true) {
            drop(state);
            let pool = Arc::clone(self);
            let started = threads::start("tombolo-net", move || pool.work());
            assert!(started.is_ok(), "the thread of the network did not start: {started:?}");
        }
    }

    /// The life of the pool's thread.
    fn work(&self) {
        IN_TASK.set(true);
        let (mut pause, mut seen) = (STAND_BY, 0);
        let mut state = self.state.lock();
        while !state.closed || !state.queue.is_empty() {
            let is_quiet = state.asked.is_none_or(|asked| asked.elapsed() >= STAND_BY);
            if state.leader == Leader::Nobody && (is_quiet || !state.queue.is_empty()) {
                self.lead(&mut state, Who::Pool);
                pause = STAND_BY;
                continue;
            }
            // Others lead on and on: there is no need to look so often.
            pause = if state.turns == seen && state.leader != Leader::Nobody { (pause * 2).min(STAND_BY_MAX) } else { STAND_BY };
            seen = state.turns;
            self.changed.wait_for(&mut state, pause);
        }
    }

    /// Waits on this thread until its parker is woken; `false` when `deadline` came first.
    pub(super) fn wait(&self, parker: &Arc<Parker>, deadline: Option<Instant>) -> bool {
        let has_sockets = self.reactor.get().is_some_and(|reactor| reactor.has_sockets());
        loop {
            if parker.was_notified() {
                return true;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return false;
            }
            if !has_sockets {
                parker.park(deadline);
                continue;
            }
            let mut state = self.state.lock();
            let now = Instant::now();
            let is_again = state.asked.replace(now).is_some_and(|before| now.duration_since(before) < STAND_BY);
            if state.leader == Leader::Nobody {
                self.lead(&mut state, Who::Waiter(parker, deadline));
                self.call_another(&mut state);
                continue;
            }
            if is_again && !state.is_wanted {
                state.is_wanted = true;
                self.wake(&mut state);
            }
            state.followers.push(Arc::clone(parker));
            drop(state);
            parker.park(deadline);
            self.state.lock().followers.retain(|other| !Arc::ptr_eq(other, parker));
        }
    }

    /// Nobody leads from here on: whoever waits is called to.
    fn call_another(&self, state: &mut State) {
        match state.followers.pop() {
            Some(follower) => follower.call(),
            None if !state.queue.is_empty() => drop(self.changed.notify_all()),
            None => {}
        }
    }

    /// Runs what can run and waits for sockets, until somebody else is to.
    fn lead(&self, state: &mut MutexGuard<'_, State>, who: Who<'_>) {
        state.turns += 1;
        let mut events: Vec<Event> = Vec::new();
        let mut ran = 0;
        while !self.is_over(state, who) {
            state.leader = Leader::Running;
            if ran < RUN_MAX
                && let Some(runnable) = state.queue.pop_front()
            {
                ran += 1;
                MutexGuard::unlocked(state, || run(runnable, who));
                continue;
            }
            ran = 0;
            self.look(state, who, &mut events);
        }
        state.leader = Leader::Nobody;
        if matches!(who, Who::Pool) && state.is_wanted {
            state.is_wanted = false;
            self.call_another(state);
        }
    }

    /// Whether it leads no longer.
    fn is_over(&self, state: &State, who: Who<'_>) -> bool {
        match who {
            Who::Pool => state.closed && state.queue.is_empty() || state.is_wanted && !state.followers.is_empty(),
            Who::Waiter(parker, deadline) => parker.is_notified() || deadline.is_some_and(|deadline| deadline <= Instant::now()),
        }
    }

    /// Looks at the sockets: waits for them when no task can run.
    fn look(&self, state: &mut MutexGuard<'_, State>, who: Who<'_>, events: &mut Vec<Event>) {
        let is_idle = state.queue.is_empty();
        let Some(reactor) = self.reactor.get() else {
            if is_idle {
                state.leader = Leader::Waiting;
                self.changed.wait(state);
            }
            return;
        };
        if is_idle {
            state.leader = Leader::Waiting;
        }
        MutexGuard::unlocked(state, || match who {
            _ if !is_idle => reactor.wait(Some(Duration::ZERO), events),
            Who::Pool => reactor.wait(None, events),
            Who::Waiter(parker, deadline) => {
                events.clear();
                if parker.enter(reactor) {
                    reactor.wait(deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())), events);
                }
                parker.leave();
            }
        });
        state.leader = Leader::Running;
        MutexGuard::unlocked(state, || reactor.hear(events));
    }
}

/// Runs a task.
fn run(runnable: Runnable, who: Who<'_>) {
    // The panic hook has reported it, and the task's owner sees `None`.
    let run = || drop(catch_unwind(AssertUnwindSafe(|| runnable.run())));
    match who {
        Who::Pool => run(),
        Who::Waiter(..) => {
            IN_TASK.set(true);
            reads::not_waiting(run);
            IN_TASK.set(false);
        }
    }
}
