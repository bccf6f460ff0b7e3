//! Questions that the writer has found and not answered yet.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tombolo_env::Completion;

use crate::signal::Signal;

/// Questions that wait at once, at most: those beyond are found again later.
const WAITING_MAX: usize = 16;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: Mutex<VecDeque<u128>>,
    found: Signal,
}

impl Questions {
    /// A question was found; `false` when too many wait.
    pub(crate) fn found(&self, id: u128) -> bool {
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= WAITING_MAX {
                return false;
            }
            waiting.push_back(id);
        }
        self.found.raise();
        true
    }

    /// Resolves when one is found after this call.
    pub(crate) fn subscribe(&self) -> Completion<()> {
        self.found.subscribe()
    }

    /// The one that waits longest.
    pub(crate) fn next(&self) -> Option<u128> {
        self.waiting.lock().pop_front()
    }

    /// Who looks for one waits until this is dropped.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.waiting.lock()
    }

    /// As if one had been found.
    #[cfg(test)]
    pub(crate) fn wake(&self) {
        self.found.raise();
    }

    /// Whether somebody has subscribed since the last one was found.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.found.is_awaited()
    }
}
