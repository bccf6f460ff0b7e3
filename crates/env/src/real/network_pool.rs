//! Runs the tasks that wait for sockets, and waits for the sockets, on one thread at a time:
//! the leader. Arrivals are worked on by the thread that the kernel woke, without a hand-over
//! (2–9 µs each on a busy machine).
//!
//! A thread of the pool leads, unless threads wait in [`Env::block_on`](crate::Env::block_on) again
//! and again: then they lead themselves while they wait, so that an answer is worked on by the very
//! thread that waits for it. One that leaves calls another that waits. When none does, the pool's
//! thread stands by: it leads again after [`STAND_BY`], and runs scheduled tasks at once.
//!
//! Invariants: those of the [executor](super::executor), and
//! 1. One thread leads at a time. While nobody does, a thread that waits has been called and takes
//!    it or calls another, or the pool's thread looks within [`STAND_BY`].
//! 2. A leader that waits is woken by scheduled tasks.
//! 3. A thread that waits runs few tasks once it was woken: at most [`LEFT_MAX`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_task::Runnable;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::epoll::Event;

use super::in_task::IN_TASK;
use super::parker::Parker;
use super::reactor::Reactor;
use super::{reads, threads};
use crate::BoxFuture;

/// Tasks that run before the sockets are looked at again.
const RUN_MAX: usize = 64;
/// So long after a waiting thread has led the pool's own does not; and threads that wait more
/// seldom than that do not lead.
const STAND_BY: Duration = Duration::from_micros(500);
/// Tasks that a waiting thread runs after it was woken, before it goes.
const LEFT_MAX: usize = 8;
/// The longest it stands by while another thread leads on and on.
const STAND_BY_MAX: Duration = Duration::from_millis(64);

thread_local! {
    /// A buffer for when this thread leads.
    static EVENTS: Cell<Vec<Event>> = const { Cell::new(Vec::new()) };
}

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
    /// It is the pool's thread.
    is_pool_leading: bool,
    /// A waiting thread wants to lead in its place.
    is_wanted: bool,
    /// When a thread last began to wait.
    asked: Option<Instant>,
    /// When a waiting thread last led.
    led: Option<Instant>,
    /// Counts those that led.
    turns: u64,
    /// The pool's thread stands by for longer than [`STAND_BY`].
    is_far: bool,
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
    /// The system's, when it gives no descriptors, or no thread.
    pub(super) fn reactor(self: &Arc<NetworkPool>) -> io::Result<&Arc<Reactor>> {
        if self.reactor.get().is_none() {
            // Tasks of other pools may wait for sockets as well.
            self.start()?;
            // Another thread may have been first.
            let _ = self.reactor.set(Reactor::new()?);
            // Until now the thread may have waited for tasks only.
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

    /// Wakes the waiting leader, or the pool's thread.
    fn wake(&self, state: &mut State) {
        match (state.leader, self.reactor.get()) {
            (Leader::Running, _) => {}
            (Leader::Nobody, _) => drop(self.changed.notify_all()),
            (Leader::Waiting, reactor) => {
                // Once is enough.
                state.leader = Leader::Running;
                match reactor {
                    Some(reactor) => reactor.ring(),
                    None => drop(self.changed.notify_all()),
                }
            }
        }
    }

    /// Starts the pool's thread, unless it was.
    fn start(self: &Arc<NetworkPool>) -> io::Result<()> {
        // Held until there is one, so that nobody goes by one that is not: the thread waits for the
        // lock.
        let mut state = self.state.lock();
        if !state.started {
            let pool = Arc::clone(self);
            threads::start("tombolo-net", move || pool.work())?;
            state.started = true;
        }
        Ok(())
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
        let is_started = state.started;
        drop(state);
        if !is_started {
            let started = self.start();
            // The scheduled task would wait for ever, and so would its waiters.
            assert!(started.is_ok(), "the thread of the network did not start: {started:?}");
        }
    }

    /// The life of the pool's thread.
    fn work(&self) {
        IN_TASK.set(true);
        let (mut pause, mut seen) = (STAND_BY, 0);
        let mut state = self.state.lock();
        while !state.closed || !state.queue.is_empty() {
            if state.leader == Leader::Nobody && (state.is_quiet() || !state.queue.is_empty()) {
                self.lead(&mut state, Who::Pool);
                continue;
            }
            // One who leads on and on need not be looked at so often.
            let is_same = state.leader != Leader::Nobody && state.turns == seen;
            pause = if is_same { (pause * 2).min(STAND_BY_MAX) } else { STAND_BY };
            (seen, state.is_far) = (state.turns, pause > STAND_BY);
            self.changed.wait_for(&mut state, pause);
            state.is_far = false;
        }
    }

    /// Waits on this thread until its parker is woken; `false` when `deadline` came first.
    pub(super) fn wait(&self, parker: &Arc<Parker>, deadline: Option<Instant>) -> bool {
        let is_late = || deadline.is_some_and(|deadline| deadline <= Instant::now());
        if !self.reactor.get().is_some_and(|reactor| reactor.has_sockets()) {
            loop {
                parker.park(deadline);
                let (was_notified, _) = (parker.was_notified(), parker.was_called());
                if was_notified || is_late() {
                    return was_notified;
                }
            }
        }
        let mut state = self.state.lock();
        let mut was_called = false;
        loop {
            let was_notified = parker.was_notified();
            if was_notified || is_late() {
                if was_called && state.leader == Leader::Nobody {
                    self.call_another(&mut state);
                }
                return was_notified;
            }
            let now = Instant::now();
            let is_again =
                state.asked.replace(now).is_some_and(|before| now.duration_since(before) < STAND_BY);
            if state.leader == Leader::Nobody {
                was_called = false;
                self.lead(&mut state, Who::Waiter(parker, deadline));
                continue;
            }
            state.followers.push(Arc::clone(parker));
            if is_again && state.is_pool_leading && !state.is_wanted {
                state.is_wanted = true;
                self.wake(&mut state);
            }
            MutexGuard::unlocked(&mut state, || parker.park(deadline));
            state.followers.retain(|other| !Arc::ptr_eq(other, parker));
            was_called |= parker.was_called();
        }
    }

    /// Nobody leads from here on: a waiting thread is called to lead.
    fn call_another(&self, state: &mut State) {
        match state.followers.pop() {
            Some(follower) => follower.call(),
            None if state.is_far || !state.queue.is_empty() => drop(self.changed.notify_all()),
            None => {}
        }
    }

    /// Runs what can run and waits for sockets, until somebody else is to.
    fn lead(&self, state: &mut MutexGuard<'_, State>, who: Who<'_>) {
        state.turns += 1;
        state.is_pool_leading = matches!(who, Who::Pool);
        let mut events = EVENTS.take();
        let mut ran = 0;
        while !state.is_over(who) {
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
        EVENTS.set(events);
        let is_waiter = matches!(who, Who::Waiter(..));
        for _ in 0..LEFT_MAX {
            // To wake the pool's thread for these would cost more than they do.
            if !is_waiter {
                break;
            }
            let Some(runnable) = state.queue.pop_front() else { break };
            state.leader = Leader::Running;
            MutexGuard::unlocked(state, || run(runnable, who));
        }
        if is_waiter || state.is_wanted {
            // The called thread comes first: the pool's thread is nearer.
            state.led = Some(Instant::now());
        }
        (state.leader, state.is_wanted) = (Leader::Nobody, false);
        self.call_another(state);
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
                    reactor.wait(
                        deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
                        events,
                    );
                }
                parker.leave();
            }
        });
        state.leader = Leader::Running;
        MutexGuard::unlocked(state, || reactor.hear(events));
    }
}

impl State {
    /// Whether no waiting thread has led of late.
    fn is_quiet(&self) -> bool {
        self.led.is_none_or(|led| led.elapsed() >= STAND_BY)
    }

    /// Whether the leader has ended.
    fn is_over(&self, who: Who<'_>) -> bool {
        match who {
            Who::Pool => {
                let is_wanted = self.is_wanted && !self.followers.is_empty();
                is_wanted || self.queue.is_empty() && (self.closed || !self.is_quiet())
            }
            Who::Waiter(parker, deadline) => {
                parker.is_notified() || deadline.is_some_and(|deadline| deadline <= Instant::now())
            }
        }
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
