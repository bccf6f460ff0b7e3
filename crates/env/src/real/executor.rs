//! Pools of threads, one per task class, and waiting by parking.
//!
//! A task may call the kernel and stay there (a sync, a read), so a pool adds a thread whenever all
//! of its threads are busy, up to its bound. Threads start on first use and end when the world's
//! last handle goes; queued tasks then still run, tasks scheduled later are cancelled.
//!
//! Invariants:
//! 1. A runnable task is in exactly one queue or on exactly one thread.
//! 2. A panicking task ends alone: its thread goes on.
//!
//! Tasks that wait for sockets run elsewhere ([`network_pool`](super::network_pool)).

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use async_task::Runnable;
use parking_lot::{Condvar, Mutex};

use super::in_task::IN_TASK;
use super::network_pool::NetworkPool;
use super::parker::Parker;
use super::reads::Waiting;
use super::threads;
use crate::{BoxFuture, Task, TaskClass};

/// Threads for work that somebody waits for: as many syncs and read misses at once.
const FOREGROUND_THREADS_MAX: usize = 8;
/// Threads that flush: what takes long is waiting for the disk, of many small tables above all.
const FLUSH_THREADS_MAX: usize = 8;
/// Threads that compact, at most; no more than the host has cores.
const BACKGROUND_THREADS_MAX: usize = 4;

/// The pools of one world.
#[derive(Debug)]
pub(super) struct Executor {
    pools: [Arc<Pool>; 3],
    network: Arc<NetworkPool>,
}

impl Executor {
    /// With a network, whose tasks it runs.
    pub(super) fn new() -> Executor {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = |name, threads_max| {
            Arc::new(Pool { name, threads_max, state: Mutex::default(), ready: Condvar::new() })
        };
        Executor {
            pools: [
                pool("tombolo-fore", FOREGROUND_THREADS_MAX),
                pool("tombolo-flush", FLUSH_THREADS_MAX),
                pool("tombolo-back", cores.min(BACKGROUND_THREADS_MAX)),
            ],
            network: Arc::default(),
        }
    }

    pub(super) fn network(&self) -> &Arc<NetworkPool> {
        &self.network
    }

    pub(super) fn spawn(&self, class: TaskClass, future: BoxFuture<'static, ()>) -> Task {
        let pool = match class {
            TaskClass::Foreground => &self.pools[0],
            TaskClass::Flush => &self.pools[1],
            TaskClass::Background => &self.pools[2],
            TaskClass::Network => return Task::new(self.network.spawn(future)),
        };
        let (runnable, task) = {
            let pool = Arc::clone(pool);
            async_task::spawn(future, move |runnable| pool.schedule(runnable))
        };
        runnable.schedule();
        Task::new(task)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Threads are not joined: the last handle may go inside one of them.
        for pool in &self.pools {
            pool.state.lock().closed = true;
            pool.ready.notify_all();
        }
        self.network.close();
    }
}

#[derive(Debug)]
struct Pool {
    name: &'static str,
    threads_max: usize,
    state: Mutex<PoolState>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    queue: VecDeque<Runnable>,
    /// Invariant: idle <= threads <= the pool's bound.
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    fn schedule(self: &Arc<Pool>, runnable: Runnable) {
        let start = {
            let mut state = self.state.lock();
            if state.closed {
                drop(state);
                // Outside the lock: dropping cancels the task, and its destructors may wake others.
                drop(runnable);
                return;
            }
            state.queue.push_back(runnable);
            let start = state.queue.len() > state.idle && state.threads < self.threads_max;
            if start {
                state.threads += 1;
            }
            start
        };
        if start {
            self.start_thread()
        } else {
            self.ready.notify_one()
        };
    }

    fn start_thread(self: &Arc<Pool>) -> bool {
        let pool = Arc::clone(self);
        let started = threads::start(self.name, move || pool.work());
        if let Err(error) = started {
            let mut state = self.state.lock();
            state.threads -= 1;
            assert!(state.threads > 0, "the first thread of pool {} did not start: {error}", self.name);
        }
        true
    }

    /// One thread's life.
    fn work(&self) {
        IN_TASK.set(true);
        let mut state = self.state.lock();
        loop {
            if let Some(runnable) = state.queue.pop_front() {
                drop(state);
                // The panic hook has reported it, and the task's owner sees `None`.
                let _ = catch_unwind(AssertUnwindSafe(|| runnable.run()));
                state = self.state.lock();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                self.ready.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

/// Polls `future` on this thread until it is ready (`true`), waiting in between, or until
/// `deadline` (`false`).
pub(super) fn drive(
    network: &NetworkPool,
    mut future: Pin<&mut (dyn Future<Output = ()> + Send)>,
    deadline: Option<Instant>,
) -> bool {
    assert!(
        !IN_TASK.get(),
        "waiting inside a task: use `.await`, a wait there would stop the pool that has to do the work"
    );
    let parker = Parker::take();
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    // Who must be back in time does not stay in a read of the device.
    let waiting = Waiting::enter(deadline.is_some());
    let ready = loop {
        if let Poll::Ready(()) = future.as_mut().poll(&mut context) {
            break true;
        }
        waiting.idle();
        if !network.wait(&parker, deadline) {
            break false;
        }
    };
    drop(waiting);
    parker.put_back();
    ready
}
