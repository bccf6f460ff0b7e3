//! A thread that waits: parked, or in the wait for sockets.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::Instant;

use parking_lot::Mutex;

use super::reactor::Reactor;

thread_local! {
    static PARKER: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
}

/// How a thread that waits is woken.
#[derive(Debug)]
pub(super) struct Parker {
    thread: Thread,
    notified: AtomicBool,
    /// It is wanted at the sockets.
    is_called: AtomicBool,
    /// While it waits for sockets there: what ends that.
    at: Mutex<Option<Arc<Reactor>>>,
}

impl Parker {
    /// This thread's; taken out of it until it is put back, so that a wait nested in a poll gets
    /// one of its own.
    pub(super) fn take() -> Arc<Parker> {
        PARKER.take().unwrap_or_else(|| {
            let (notified, is_called) = (AtomicBool::new(false), AtomicBool::new(false));
            Arc::new(Parker { thread: std::thread::current(), notified, is_called, at: Mutex::new(None) })
        })
    }

    /// For the next wait of this thread.
    pub(super) fn put_back(self: Arc<Parker>) {
        PARKER.set(Some(self));
    }

    /// Whether it was woken since it was last asked.
    pub(super) fn was_notified(&self) -> bool {
        self.notified.swap(false, Ordering::AcqRel)
    }

    /// Whether it was woken and not asked yet.
    pub(super) fn is_notified(&self) -> bool {
        self.notified.load(Ordering::Acquire)
    }

    /// Calls it to the sockets.
    pub(super) fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// The thread enters the wait for sockets; `false`: it was woken before.
    pub(super) fn enter(&self, reactor: &Arc<Reactor>) -> bool {
        *self.at.lock() = Some(Arc::clone(reactor));
        // A later waker finds that, or was seen here.
        !self.is_notified()
    }

    /// It has left that.
    pub(super) fn leave(&self) {
        *self.at.lock() = None;
    }

    /// Whether it was called since it was last asked.
    pub(super) fn was_called(&self) -> bool {
        self.is_called.swap(false, Ordering::AcqRel)
    }

    /// Parks until it is woken or called, or until `deadline`.
    pub(super) fn park(&self, deadline: Option<Instant>) {
        while !self.is_notified() && !self.is_called.load(Ordering::Acquire) {
            match deadline {
                None => std::thread::park(),
                Some(deadline) => {
                    let remaining = deadline.saturating_duration_since(Instant::now());
                    if remaining.is_zero() {
                        return;
                    }
                    std::thread::park_timeout(remaining);
                }
            }
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            match &*self.at.lock() {
                Some(reactor) => reactor.ring(),
                None => self.thread.unpark(),
            }
        }
    }
}
