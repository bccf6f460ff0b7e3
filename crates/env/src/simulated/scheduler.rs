//! One thread, virtual time, and tasks picked by chance.
//!
//! The scheduler nests: a process that reaches a preemption point in the middle of a poll stands
//! still there while a few polls of other processes' tasks run on top of it. Tasks of one process
//! never interleave within a poll: they share memory and locks.
//!
//! Time passes by itself: a little with each poll and each operation, and to the next timer when
//! nothing can run.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_task::Runnable;
use parking_lot::Mutex;

use super::fault::Crash;
use super::state::{FutureSlot, ProcessState, State};
use super::{HostId, Owner, ProcessId};
use crate::{BoxFuture, Instant, Task};

/// Virtual time of one poll.
const POLL_NANOS: u64 = 1_000;
/// Processes that may stand still in each other's operations.
const STANDING_MAX: usize = 6;
/// Most polls of others at one preemption point: 2 to this power.
const PREEMPTION_POLLS_LOG2: u64 = 6;

/// The world's inside, shared by all handles.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) owner: Weak<Owner>,
}

enum Choice {
    Task(ProcessId, Runnable),
    Driven,
    Nothing,
}

/// Marks the calling thread as the one that runs the world.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.runner = match state.runner {
            Some((thread, depth)) if depth > 1 => Some((thread, depth - 1)),
            _ => None,
        };
    }
}

/// Restores the depth of polls, also when a poll panics.
struct Polling<'a>(&'a Shared, u32);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.state.lock().in_task = self.1;
    }
}

/// Lets a process run again, also when another one panics on top of it.
struct Standing<'a>(&'a Shared);

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().standing.pop();
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Shared {
    fn enter(&self) -> Running<'_> {
        let current = std::thread::current().id();
        let mut state = self.state.lock();
        let depth = match state.runner {
            None => 0,
            Some((thread, depth)) => {
                assert_eq!(thread, current, "a simulated world is run by two threads at once");
                depth
            }
        };
        state.runner = Some((current, depth + 1));
        Running(self)
    }

    /// Fires due timers and picks what runs next.
    fn choose(&self, driven: Option<(&AtomicBool, Option<ProcessId>)>) -> Choice {
        let mut due = Vec::new();
        {
            let mut state = self.state.lock();
            while state.timers.first_key_value().is_some_and(|((deadline, _), _)| *deadline <= state.now) {
                due.extend(state.timers.pop_first().map(|(_, waker)| waker));
            }
        }
        due.into_iter().for_each(Waker::wake);
        let mut state = self.state.lock();
        state.trickle_stores();
        let eligible: Vec<usize> =
            (0..state.runnable.len()).filter(|index| state.may_run(state.runnable[*index].0)).collect();
        let driven = driven.is_some_and(|(woken, process)| {
            woken.load(Ordering::Acquire)
                && process.is_none_or(|process| !state.processes[process.0 as usize].paused)
        });
        let choices = eligible.len() + usize::from(driven);
        if choices == 0 {
            return Choice::Nothing;
        }
        let index = {
            let State { schedule, runnable, .. } = &mut *state;
            let by_age = || {
                let mut order: Vec<usize> = (0..choices).collect();
                order.sort_by_key(|index| eligible.get(*index).map_or(u64::MAX, |index| runnable[*index].2));
                order
            };
            schedule.index_by_age(choices, by_age)
        };
        let mixed = (choices as u64) << 32 | index as u64;
        state.trace.mix(mixed);
        state.now += POLL_NANOS;
        state.steps += 1;
        let (steps, steps_max) = (state.steps, state.steps_max);
        match eligible.get(index) {
            Some(index) => {
                let (process, runnable, _) = state.runnable.swap_remove(*index);
                drop(state);
                if steps > steps_max {
                    self.give_up(&format!("the world has run {steps_max} steps without an end"));
                }
                Choice::Task(process, runnable)
            }
            None => Choice::Driven,
        }
    }

    /// Polls one task. `false` when none may run now.
    fn step(&self) -> bool {
        match self.choose(None) {
            Choice::Task(process, runnable) => {
                self.poll_task(process, runnable);
                true
            }
            _ => false,
        }
    }

    fn poll_task(&self, process: ProcessId, runnable: Runnable) {
        let propagate = {
            let mut state = self.state.lock();
            let count = state.process(process).stores.len();
            state.drain_stores(process, count);
            state.panics_propagate
        };
        let outcome = {
            let _polling = self.polling(1);
            catch_unwind(AssertUnwindSafe(|| runnable.run()))
        };
        match outcome {
            Err(panic) if propagate => std::panic::resume_unwind(panic),
            _ => {}
        }
    }

    fn polling(&self, more: u32) -> Polling<'_> {
        let mut state = self.state.lock();
        let before = state.in_task;
        state.in_task = if more == 0 { 0 } else { before + more };
        Polling(self, before)
    }

    /// Moves time to the next timer, but not beyond `limit`. `false` when neither is there.
    fn advance(&self, limit: Option<u64>) -> bool {
        let mut state = self.state.lock();
        let timer = state.timers.keys().next().map(|(deadline, _)| *deadline);
        let Some(next) = timer.into_iter().chain(limit).min() else { return false };
        // No store is under way for that long.
        state.drain_all_stores(|_| true);
        state.now = state.now.max(next);
        true
    }

    /// Runs the world until `future` is ready (`true`) or `deadline` has passed (`false`).
    pub(super) fn drive(
        &self,
        process: Option<ProcessId>,
        mut future: Pin<&mut (dyn Future<Output = ()> + Send)>,
        deadline: Option<Instant>,
    ) -> bool {
        assert_eq!(self.state.lock().in_task, 0, "waiting inside a simulated task: use `.await`");
        let _running = self.enter();
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut context = Context::from_waker(&waker);
        let deadline = deadline.map(Instant::as_nanos);
        let mut polled = false;
        loop {
            match self.choose(Some((&flag.0, process))) {
                Choice::Task(process, runnable) => self.poll_task(process, runnable),
                Choice::Driven => {
                    flag.0.store(false, Ordering::Release);
                    polled = true;
                    if let Poll::Ready(()) = future.as_mut().poll(&mut context) {
                        return true;
                    }
                }
                Choice::Nothing => {
                    if !self.advance(deadline) {
                        self.give_up("nothing can run and no timer is set, but somebody waits");
                    }
                }
            }
            if polled && deadline.is_some_and(|deadline| self.state.lock().now >= deadline) {
                return false;
            }
        }
    }

    /// Polls tasks until none may run; time does not jump.
    pub(super) fn run_until_idle(&self) {
        assert_eq!(self.state.lock().in_task, 0, "running the world inside a simulated task");
        let _running = self.enter();
        while self.step() {}
    }

    /// Runs the world for some virtual time.
    pub(super) fn run_for(&self, duration: Duration) {
        assert_eq!(self.state.lock().in_task, 0, "running the world inside a simulated task");
        self.run_others_for(duration);
    }

    fn run_others_for(&self, duration: Duration) {
        let _running = self.enter();
        let deadline = (Instant::from_nanos(self.state.lock().now) + duration).as_nanos();
        while self.state.lock().now < deadline {
            if !self.step() {
                self.advance(Some(deadline));
            }
        }
    }

    /// Perhaps lets other processes run while `process` stands still.
    pub(super) fn preempt(&self, process: ProcessId) {
        let polls = {
            let mut state = self.state.lock();
            let probability = state.preemption;
            if state.standing.len() >= STANDING_MAX || !state.is_alive(process) || probability <= 0.0 {
                return;
            }
            let others = state.runnable.iter().any(|(other, ..)| *other != process && state.may_run(*other));
            let idle = !others && state.timers.is_empty();
            if idle || !state.schedule.chance(probability) {
                return;
            }
            let log2 = state.schedule.below(PREEMPTION_POLLS_LOG2 + 1);
            state.standing.push(process);
            state.schedule.below(1 << log2) + 1
        };
        let _standing = Standing(self);
        let _running = self.enter();
        for _ in 0..polls {
            if !self.step() {
                return;
            }
        }
    }

    /// Lets the rest of the world go on for `duration` while `process` stands still.
    pub(super) fn stall(&self, process: ProcessId, duration: Duration) {
        self.state.lock().standing.push(process);
        let _standing = Standing(self);
        self.run_others_for(duration);
    }

    /// Runs `hook` while `process` stands still; the hook may drive the world although a task is
    /// being polled below it.
    pub(super) fn call(&self, process: ProcessId, hook: &mut dyn FnMut(&super::World)) {
        let Some(owner) = self.owner.upgrade() else { return };
        self.state.lock().standing.push(process);
        let _standing = Standing(self);
        let _polling = self.polling(0);
        hook(&super::World(owner));
    }

    /// Ends the test with the recent history.
    fn give_up(&self, reason: &str) -> ! {
        let mut state = self.state.lock();
        let seed = state.seed;
        let processes: Vec<String> = state
            .processes
            .iter()
            .map(|process| {
                let ProcessState { name, alive, paused, tasks, .. } = process;
                format!("{name} (alive: {alive}, paused: {paused}, tasks: {})", tasks.len())
            })
            .collect();
        let lines = state.trace.lines();
        state.runner = None;
        drop(state);
        let recent = lines[lines.len().saturating_sub(40)..].join("\n");
        panic!(
            "simulation of seed {seed}: {reason}\nprocesses: {}\nlast events:\n{recent}",
            processes.join(", ")
        );
    }

    // Tasks.

    pub(super) fn spawn(self: &Arc<Shared>, process: ProcessId, future: BoxFuture<'static, ()>) -> Task {
        let slot: FutureSlot = Arc::new(Mutex::new(Some(future)));
        let id = self.state.lock().fresh_id();
        let future = ProcessFuture { shared: Arc::clone(self), process, id, slot: Arc::clone(&slot) };
        let shared = Arc::clone(self);
        let (runnable, task) = async_task::spawn(future, move |runnable| shared.schedule(process, runnable));
        let waker = runnable.waker();
        let mut state = self.state.lock();
        if state.is_alive(process) {
            state.process(process).tasks.insert(id, (slot, waker));
        }
        drop(state);
        runnable.schedule();
        Task::new(task)
    }

    fn schedule(&self, process: ProcessId, runnable: Runnable) {
        let mut state = self.state.lock();
        if state.is_alive(process) {
            state.woken += 1;
            let woken = state.woken;
            state.runnable.push((process, runnable, woken));
        } else {
            drop(state);
            // Cancels the task.
            drop(runnable);
        }
    }

    /// Ends a process: its tasks are dropped where they stand.
    pub(super) fn kill(&self, process: ProcessId) {
        let (tasks, runnable, wakers, bells) = {
            let mut state = self.state.lock();
            if !state.is_alive(process) {
                return;
            }
            // What the processor has stored reaches memory.
            let stores = state.process(process).stores.len();
            state.drain_stores(process, stores);
            let name = state.process(process).name.clone();
            state.note(format!("{name} is killed"));
            state.process(process).alive = false;
            state.host_of(process).disk.unlock_all(process);
            let tasks = std::mem::take(&mut state.process(process).tasks);
            let (dead, living) =
                std::mem::take(&mut state.runnable).into_iter().partition(|(other, ..)| *other == process);
            state.runnable = living;
            let dead: Vec<(ProcessId, Runnable, u64)> = dead;
            let now = state.now;
            let wakers = state.network.process_ended(process, now);
            // Their waiters are tasks of this world: kept in it, they would keep it alive.
            let bells = std::mem::take(&mut state.process(process).bells);
            (tasks, dead, wakers, bells)
        };
        // Dropping the runnables cancels their tasks; the others are woken once more, and find
        // their process dead.
        drop(runnable);
        drop(bells);
        for (slot, waker) in tasks.into_values() {
            let future = slot.lock().take();
            drop(future);
            waker.wake();
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends all processes of a host; its disk keeps synced data and some of the rest.
    pub(super) fn power_loss(&self, host: HostId) {
        let processes: Vec<ProcessId> = {
            let mut state = self.state.lock();
            let name = state.host(host).name.clone();
            state.note(format!("{name} loses power"));
            state.network.host_lost(host);
            let of_host = (0..state.processes.len()).filter(|index| state.processes[*index].host == host);
            of_host.filter_map(|index| u32::try_from(index).ok()).map(ProcessId).collect()
        };
        for process in processes {
            self.kill(process);
        }
        let mut state = self.state.lock();
        let boot_id = state.boot_id();
        let State { hosts, disk_chance, .. } = &mut *state;
        let host = &mut hosts[host.0 as usize];
        host.disk.power_loss(disk_chance);
        host.boot += 1;
        host.boot_id = boot_id;
    }

    pub(super) fn crash(&self, process: ProcessId, crash: Crash) {
        match crash {
            Crash::Kill => self.kill(process),
            Crash::PowerLoss => {
                let host = self.state.lock().process(process).host;
                self.power_loss(host);
            }
        }
    }

    /// Ends everything, so that nothing keeps the world in memory.
    pub(super) fn close(&self) {
        let count = self.state.lock().processes.len();
        for process in (0..count).filter_map(|index| u32::try_from(index).ok()) {
            self.kill(ProcessId(process));
        }
        let mut state = self.state.lock();
        let timers = std::mem::take(&mut state.timers);
        let faults = std::mem::take(&mut state.faults);
        let wakers = state.network.close();
        drop(state);
        drop((timers, faults, wakers));
    }
}

/// A task's future, which ends with its process.
struct ProcessFuture {
    shared: Arc<Shared>,
    process: ProcessId,
    id: u64,
    slot: FutureSlot,
}

impl Future for ProcessFuture {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(mut future) = self.slot.lock().take() else { return Poll::Pending };
        match future.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => {
                if self.shared.state.lock().is_alive(self.process) {
                    *self.slot.lock() = Some(future);
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for ProcessFuture {
    fn drop(&mut self) {
        let entry = self.shared.state.lock().process(self.process).tasks.remove(&self.id);
        drop(entry);
        let future = self.slot.lock().take();
        drop(future);
    }
}

/// Ready at a moment of virtual time.
pub(super) struct Sleep {
    shared: Arc<Shared>,
    deadline: u64,
    id: u64,
}

impl Sleep {
    pub(super) fn new(shared: Arc<Shared>, deadline: Instant) -> Sleep {
        let id = shared.state.lock().fresh_id();
        Sleep { shared, deadline: deadline.as_nanos(), id }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.state.lock();
        if state.now >= self.deadline {
            return Poll::Ready(());
        }
        let before = state.timers.insert((self.deadline, self.id), context.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.shared.state.lock().timers.remove(&(self.deadline, self.id));
        drop(waker);
    }
}

/// Goes to the back of the queue once.
pub(super) struct Yield(pub(super) bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
