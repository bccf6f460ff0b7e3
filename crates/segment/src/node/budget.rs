//! Memory of long frames, which all connections of a node share.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completer, completion};

/// Bytes that may be taken. A taker that wants more than there is waits, in order.
#[derive(Debug)]
pub(super) struct Budget(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<(usize, Completer<Hold>)>,
}

/// Bytes that were taken, until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Arc<Budget> {
        Arc::new(Budget(Mutex::new(State { free: bytes, waiting: VecDeque::new() })))
    }

    /// Takes bytes, of which there must be that many in all.
    pub(super) async fn take(self: &Arc<Budget>, bytes: usize) -> Option<Hold> {
        let (completer, hold) = completion();
        {
            let mut state = self.0.lock();
            if state.waiting.is_empty() && state.free >= bytes {
                state.free -= bytes;
                return Some(Hold { budget: Arc::clone(self), bytes });
            }
            state.waiting.push_back((bytes, completer));
        }
        hold.await
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut served = Vec::new();
        {
            let mut state = self.budget.0.lock();
            state.free += self.bytes;
            while let Some((bytes, completer)) = state.waiting.pop_front() {
                if completer.is_abandoned() {
                    continue;
                }
                if state.free < bytes {
                    state.waiting.push_front((bytes, completer));
                    break;
                }
                state.free -= bytes;
                served.push((completer, Hold { budget: Arc::clone(&self.budget), bytes }));
            }
        }
        // Outside the lock: a hold that nobody takes any more is dropped there.
        for (completer, hold) in served {
            completer.complete(hold);
        }
    }
}
