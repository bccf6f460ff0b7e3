//! Futures that one thread has on their way, each polled only when it says so.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Those that are to be polled, and who waits for one to end.
#[derive(Debug, Default)]
struct Awake {
    slots: Vec<usize>,
    waiting: Option<Waker>,
}

#[derive(Debug)]
struct SlotWaker {
    slot: usize,
    awake: Arc<Mutex<Awake>>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        let waiting = {
            let mut awake = self.awake.lock().unwrap_or_else(PoisonError::into_inner);
            awake.slots.push(self.slot);
            awake.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

#[derive(Debug)]
struct Slot<F> {
    number: u64,
    /// `None`: free.
    future: Option<F>,
    waker: Waker,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct InFlight<F> {
    slots: Vec<Slot<F>>,
    free: Vec<usize>,
    awake: Arc<Mutex<Awake>>,
}

impl<F> Default for InFlight<F> {
    fn default() -> Self {
        InFlight { slots: Vec::new(), free: Vec::new(), awake: Arc::default() }
    }
}

impl<F: Future + Unpin> InFlight<F> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds one, which is told by `number` when it ends. It begins with the next poll.
    pub fn push(&mut self, number: u64, future: F) {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.slots.len();
            let waker = Waker::from(Arc::new(SlotWaker { slot, awake: Arc::clone(&self.awake) }));
            self.slots.push(Slot { number, future: None, waker });
            slot
        });
        (self.slots[slot].number, self.slots[slot].future) = (number, Some(future));
        self.awake.lock().unwrap_or_else(PoisonError::into_inner).slots.push(slot);
    }

    /// Those that have ended, one at least, unless there is none at all.
    pub fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<Vec<(u64, F::Output)>> {
        let mut ended = Vec::new();
        let slots = {
            let mut awake = self.awake.lock().unwrap_or_else(PoisonError::into_inner);
            awake.waiting = Some(context.waker().clone());
            std::mem::take(&mut awake.slots)
        };
        for index in slots {
            let Slot { number, future, waker } = &mut self.slots[index];
            let Some(polled) = future else { continue };
            if let Poll::Ready(output) = Pin::new(polled).poll(&mut Context::from_waker(waker)) {
                *future = None;
                ended.push((*number, output));
                self.free.push(index);
            }
        }
        if ended.is_empty() && !self.is_empty() { Poll::Pending } else { Poll::Ready(ended) }
    }
}

#[cfg(test)]
mod tests;
