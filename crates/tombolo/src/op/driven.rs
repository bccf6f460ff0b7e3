//! A read that goes on where it is polled or waited for, on no thread of its own.
//!
//! Where requests are short, a task of the pool costs more than the read: a thread is woken to ask,
//! and again for the answer, and wakes the caller in the end. Here the caller's own poll, or its
//! wait, asks and takes the answer. What several reads share goes on with any of them that is
//! polled, so one that nobody polls holds up no other.
//!
//! It begins when it is first polled or waited for, or when the thread makes another one: several
//! that are made in a row are on their way together, and one that is waited for at once is read on
//! that thread.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env};
use tombolo_storage::Result;

use super::ended_without_result;
use crate::{blocks, deadline};

/// A read that can begin.
trait Begin: Send + Sync {
    fn begin(&self);
}

thread_local! {
    /// The read that this thread has made last, until it makes another.
    static LAST: RefCell<Option<Weak<dyn Begin>>> = const { RefCell::new(None) };
}

/// See the module's documentation.
pub(super) struct Driven<T> {
    pub(super) env: Env,
    work: Arc<Work<T>>,
}

struct Work<T>(Mutex<State<T>>);

enum State<T> {
    New(BoxFuture<'static, Result<T>>),
    Begun(BoxFuture<'static, Result<T>>),
    Ended(Result<T>),
    Taken,
}

impl<T: Send + 'static> Begin for Work<T> {
    fn begin(&self) {
        // Who holds it polls it.
        let Some(mut state) = self.0.try_lock() else { return };
        if matches!(*state, State::New(_))
            && let Poll::Ready(result) = state.poll(&mut Context::from_waker(Waker::noop()))
        {
            *state = State::Ended(result);
        }
    }
}

impl<T> State<T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        match std::mem::replace(self, State::Taken) {
            State::New(mut work) | State::Begun(mut work) => {
                let polled = work.as_mut().poll(context);
                if polled.is_pending() {
                    *self = State::Begun(work);
                }
                polled
            }
            State::Ended(result) => Poll::Ready(result),
            State::Taken => Poll::Ready(ended_without_result()),
        }
    }
}

impl<T: Send + 'static> Driven<T> {
    /// Has the read begin that the thread made before, if nobody has waited for that.
    pub(super) fn new(env: &Env, work: BoxFuture<'static, Result<T>>) -> Driven<T> {
        let work = Arc::new(Work(Mutex::new(State::New(work))));
        let shared: Arc<dyn Begin> = Arc::<Work<T>>::clone(&work);
        // The thread's place is free again before anything begins, which may make reads of its own.
        let before = LAST.with_borrow_mut(|last| last.replace(Arc::downgrade(&shared)));
        if let Some(before) = before.and_then(|before| before.upgrade()) {
            // It has its own deadline, or none, and its own count.
            blocks::outside(|| deadline::outside(|| before.begin()));
        }
        Driven { env: env.clone(), work }
    }

    pub(super) fn wait(self) -> Result<T> {
        let state = std::mem::replace(&mut *self.work.0.lock(), State::Taken);
        match state {
            State::New(work) | State::Begun(work) => self.env.block_on(work),
            State::Ended(result) => result,
            State::Taken => ended_without_result(),
        }
    }
}

impl<T> Driven<T> {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.work.0.lock().poll(context)
    }

    /// The result, if it is there: the read goes on as far as it can.
    pub(super) fn try_take(&mut self) -> Option<Result<T>> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }
}

#[cfg(test)]
mod tests;
