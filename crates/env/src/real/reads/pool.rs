//! Threads that read where io_uring does not work.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::super::threads;
use super::job::Job;

/// Threads at most: what keeps a device busy, and no more.
const THREADS_MAX: usize = 32;

/// The pool of this process. Threads start when they are needed, and stay.
#[derive(Debug)]
pub(in crate::real) struct Pool {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// Invariant: idle <= threads <= THREADS_MAX.
    threads: usize,
    idle: usize,
}

impl Pool {
    pub(super) fn start() -> Arc<Pool> {
        Arc::new(Pool { state: Mutex::default(), ready: Condvar::new() })
    }

    pub(super) fn submit(self: &Arc<Pool>, jobs: Vec<Job>) {
        let (wake, start) = {
            let mut state = self.state.lock();
            let count = jobs.len();
            state.queue.extend(jobs);
            let start = state.queue.len().saturating_sub(state.idle).min(THREADS_MAX - state.threads);
            state.threads += start;
            (count.min(state.idle), start)
        };
        for _ in 0..wake {
            self.ready.notify_one();
        }
        for _ in 0..start {
            self.start_thread();
        }
    }

    fn start_thread(self: &Arc<Pool>) {
        let pool = Arc::clone(self);
        let started = threads::start("tombolo-read", move || pool.work());
        if let Err(error) = started {
            let orphaned = {
                let mut state = self.state.lock();
                state.threads -= 1;
                if state.threads == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() }
            };
            for job in orphaned {
                job.fail(io::Error::new(error.kind(), format!("no thread to read with: {error}")));
            }
        }
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            match state.queue.pop_front() {
                Some(job) => {
                    drop(state);
                    job.run();
                    state = self.state.lock();
                }
                None => {
                    state.idle += 1;
                    self.ready.wait(&mut state);
                    state.idle -= 1;
                }
            }
        }
    }
}
