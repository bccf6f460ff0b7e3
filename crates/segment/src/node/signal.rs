//! Says to all connections that something has changed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct Signal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// By the number of the waiter.
    wakers: BTreeMap<u64, Waker>,
}

impl Signal {
    /// Wakes the waiters.
    pub(super) fn raise(&self) {
        let wakers = {
            let mut state = self.0.lock();
            state.version += 1;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// Waits until it was raised since version `seen`; gives the version then. One at a time waits
    /// under a number.
    pub(super) async fn changed(&self, number: u64, seen: u64) -> u64 {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.version != seen {
                return Poll::Ready(state.version);
            }
            let before = match state.wakers.get(&number) {
                Some(waker) if waker.will_wake(context.waker()) => None,
                _ => state.wakers.insert(number, context.waker().clone()),
            };
            drop(state);
            drop(before);
            Poll::Pending
        })
        .await
    }

    /// Nobody waits under a number any more.
    pub(super) fn forget(&self, number: u64) {
        let before = self.0.lock().wakers.remove(&number);
        drop(before);
    }
}
