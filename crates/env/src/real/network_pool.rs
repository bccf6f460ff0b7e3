//! One thread that runs the tasks which wait for sockets, and waits for the sockets itself: what arrives is worked on by the thread that the
//! kernel woke, without a hand-over (2–9 µs each on a busy machine).
//!
//! Invariants: those of the [executor](super::executor).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_task::Runnable;
use parking_lot::Mutex;

use super::executor::IN_TASK;
use super::network::check_descriptors;
use crate::BoxFuture;

/// Tasks that run before the sockets are looked at again.
const RUN_MAX: usize = 64;
/// A process without descriptors waits so long for some, again and again.
const DESCRIPTORS_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct NetworkPool(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Runnable>,
    /// The thread, while it waits for sockets.
    waker: Option<Waker>,
    started: bool,
    closed: bool,
}

impl NetworkPool {
    pub(super) fn spawn(self: &Arc<NetworkPool>, future: BoxFuture<'static, ()>) -> async_task::Task<()> {
        let (runnable, task) = {
            let pool = Arc::clone(self);
            async_task::spawn(future, move |runnable| pool.schedule(runnable))
        };
        runnable.schedule();
        task
    }

    pub(super) fn close(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.closed = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn schedule(self: &Arc<NetworkPool>, runnable: Runnable) {
        let (waker, start) = {
            let mut state = self.0.lock();
            if state.closed {
                drop(state);
                // Outside the lock: dropping cancels the task, and its destructors may wake others.
                drop(runnable);
                return;
            }
            state.queue.push_back(runnable);
            (state.waker.take(), !std::mem::replace(&mut state.started, true))
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        if start {
            let pool = Arc::clone(self);
            let started = std::thread::Builder::new().name("tombolo-net".into()).spawn(move || {
                IN_TASK.set(true);
                while check_descriptors().is_err() {
                    std::thread::sleep(DESCRIPTORS_PAUSE);
                }
                async_io::block_on(poll_fn(|context| pool.work(context)));
            });
            assert!(started.is_ok(), "the thread of the network did not start: {started:?}");
        }
    }

    /// Runs what can run. Ready once the world has ended and nothing is left.
    fn work(&self, context: &Context<'_>) -> Poll<()> {
        for _ in 0..RUN_MAX {
            let runnable = {
                let mut state = self.0.lock();
                match state.queue.pop_front() {
                    Some(runnable) => runnable,
                    None if state.closed => return Poll::Ready(()),
                    None => {
                        state.waker = Some(context.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            // The panic hook has reported it, and the task's owner sees `None`.
            let _ = catch_unwind(AssertUnwindSafe(|| runnable.run()));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
