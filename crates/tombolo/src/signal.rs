//! Tells waiting tasks and threads that something has changed.

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
