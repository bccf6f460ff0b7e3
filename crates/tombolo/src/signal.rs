//! Tells waiting tasks and threads that something has changed.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tombolo_env::{Completer, Completion, completion};

/// A change that many may wait for. To miss none: [`Signal::subscribe`], then look, then wait.
#[derive(Debug, Default)]
pub(crate) struct Signal(Mutex<Vec<Completer<()>>>);

impl Signal {
    /// Resolves at the next [`Signal::raise`] that begins after this call.
    pub(crate) fn subscribe(&self) -> Completion<()> {
        let (completer, completion) = completion();
        self.0.lock().push(completer);
        completion
    }

    /// Wakes all who subscribed; outside the lock.
    pub(crate) fn raise(&self) {
        let waiting = std::mem::take(&mut *self.0.lock());
        for completer in waiting {
            completer.complete(());
        }
    }
}

/// Lets one task at a time do something.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    taken: AtomicBool,
    ended: Signal,
}

/// Somebody's turn, until dropped.
#[derive(Debug)]
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Waits for the turn.
    pub(crate) async fn take(&self) -> Taken<'_> {
        loop {
            let ended = self.ended.subscribe();
            if !self.taken.swap(true, Ordering::AcqRel) {
                return Taken(self);
            }
            let _woken = ended.await;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
        self.0.ended.raise();
    }
}
