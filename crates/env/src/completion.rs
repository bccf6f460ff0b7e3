//! One result, handed from the thread that finishes the work to the one that waits for it.
//!
//! Wakers run outside the lock. A completer dropped without a word wakes its waiter with `None`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    /// Invariant: set once, by `complete` or by dropping the completer.
    closed: bool,
    waker: Option<Waker>,
}

/// The side that finishes.
#[derive(Debug)]
pub struct Completer<T>(Arc<Mutex<Slot<T>>>);

/// The side that waits: a future of `Some(result)`, or of `None` when the completer was dropped.
#[derive(Debug)]
pub struct Completion<T>(Arc<Mutex<Slot<T>>>);

/// A connected pair.
pub fn completion<T>() -> (Completer<T>, Completion<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, closed: false, waker: None }));
    (Completer(Arc::clone(&slot)), Completion(slot))
}

impl<T> Completer<T> {
    /// Hands `value` over and wakes the waiter.
    pub fn complete(self, value: T) {
        let waker = {
            let mut slot = self.0.lock();
            slot.value = Some(value);
            slot.closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether nobody waits for the result, or will: the other side was dropped.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if self.is_abandoned() {
            // What it would wake has gone on without it.
            return;
        }
        let waker = {
            let mut slot = self.0.lock();
            slot.closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Completion<T> {
    /// The result, if it is there already.
    pub fn try_take(&mut self) -> Option<T> {
        self.0.lock().value.take()
    }

    /// Whether a result, or the end of its completer, is there.
    pub fn is_ready(&self) -> bool {
        self.0.lock().closed
    }
}

impl<T> Future for Completion<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.lock();
        if slot.closed {
            return Poll::Ready(slot.value.take());
        }
        let before = match &slot.waker {
            Some(waker) if waker.will_wake(context.waker()) => None,
            _ => slot.waker.replace(context.waker().clone()),
        };
        drop(slot);
        // Dropping a waker may end a task, whose destructors may complete or drop something of
        // their own.
        drop(before);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
