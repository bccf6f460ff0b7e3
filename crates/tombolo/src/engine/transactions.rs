//! The open transactions of a database: how many, how old, what they hold, and their locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo_env::Instant;

use crate::locks::Locks;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    pub(crate) locks: Arc<Locks>,
    /// When each began.
    open: Mutex<BTreeMap<u64, Instant>>,
    next: AtomicU64,
    pub(crate) committed: AtomicU64,
    /// Those that ended with `Conflict`.
    pub(crate) conflicts: AtomicU64,
}

impl Transactions {
    /// The number of a transaction that begins now; it is never given again in this process.
    pub(crate) fn begin(&self, now: Instant) -> u64 {
        let number = self.number();
        self.open.lock().insert(number, now);
        number
    }

    /// A number under which locks are held.
    pub(crate) fn number(&self) -> u64 {
        1 + self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// It has ended, and holds no locks any more.
    pub(crate) fn end(&self, number: u64) {
        self.locks.release(number);
        self.open.lock().remove(&number);
    }

    /// It goes on as a prepared one, which keeps its locks, and wants no others.
    pub(crate) fn end_keeping_locks(&self, number: u64) {
        self.locks.stop_waiting(number);
        self.open.lock().remove(&number);
    }

    /// How many are open, and the age of the oldest in nanoseconds; 0 when there is none.
    pub(crate) fn ages(&self, now: Instant) -> (u64, u64) {
        let open = self.open.lock();
        // Numbers and times are given apart, so that the first need not be the oldest.
        let oldest = open.values().map(|since| now.since(*since)).max().unwrap_or_default();
        (open.len() as u64, u64::try_from(oldest.as_nanos()).unwrap_or(u64::MAX))
    }
}
