//! Tells waiting tasks and threads that something has changed.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tombolo_env::{Completer, Completion, completion};

/// Subscriptions from which on it is looked through for those that nobody waits for any more.
const KEPT_MIN: usize = 16;

/// A change that many may wait for. To miss none: [`Signal::subscribe`], then look, then wait.
///
/// A task that waits for something else as well drops its subscription when that comes first, and
/// subscribes again, perhaps for as long as the change does not come. Invariant: at most twice as
/// many subscriptions are held as somebody waits for, and [`KEPT_MIN`] more.
#[derive(Debug, Default)]
pub(crate) struct Signal(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    waiting: Vec<Completer<()>>,
    /// With so many they are looked through.
    look_at: usize,
}

impl Signal {
    /// Resolves at the next [`Signal::raise`] that begins after this call.
    pub(crate) fn subscribe(&self) -> Completion<()> {
        let (completer, completion) = completion();
        let mut subscribed = self.0.lock();
        let Waiting { waiting, look_at } = &mut *subscribed;
        let abandoned: Vec<_> = if waiting.len() >= (*look_at).max(KEPT_MIN) {
            let abandoned = waiting.extract_if(.., |completer| completer.is_abandoned()).collect();
            *look_at = 2 * waiting.len();
            abandoned
        } else {
            Vec::new()
        };
        waiting.push(completer);
        drop(subscribed);
        // Outside the lock: with each goes what waited last, whose destructors may do anything.
        drop(abandoned);
        completion
    }

    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        !self.0.lock().waiting.is_empty()
    }

    /// Wakes all who subscribed; outside the lock.
    pub(crate) fn raise(&self) {
        let Waiting { waiting, .. } = std::mem::take(&mut *self.0.lock());
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

#[cfg(test)]
mod tests;
