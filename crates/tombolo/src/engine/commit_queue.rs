//! Where writers that find the commit section taken leave their write for the writer in it.
//!
//! The section's state (memtable, log) then stays in the caches of one core, and nobody is put to
//! sleep and woken for a microsecond's work. Who is in the section serves the commit queue before
//! leaving, one after the other or all together; who waits and is not served soon waits for the
//! section, and serves as well.
//!
//! Invariants:
//! 1. A place is its poster's from [`CommitQueue::post`] to [`CommitQueue::take`].
//! 2. Only who is in the commit section serves; a place is served once, also when that ends by a
//!    panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tombolo_env::Completion;
use tombolo_format::batch::SINGLE_HEAD_BYTES;
use tombolo_format::key::EntryKind;
use tombolo_storage::{Error, ErrorKind, LogOffset, Result};

use super::KeyspaceInfo;
use crate::options::Durability;

/// Writers that can be served at once; more wait for the section.
const PLACES: usize = 32;
const _: () = assert!(PLACES <= u32::BITS as usize, "a bit for each");

/// Larger writes are not left here: copying them would cost what waiting does.
pub(crate) const POSTED_BYTES_MAX: usize = 4 << 10;

/// How a commit went.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The lane's end after it; `None` when it was not logged.
    pub(crate) end: Option<LogOffset>,
    /// The number of that lane.
    pub(crate) lane: u32,
    pub(crate) accepted: Option<Completion<Result<()>>>,
    /// How long the writer is asked to wait.
    pub(crate) delay: Duration,
    /// Background work came up.
    pub(crate) rotated: bool,
    /// Slowing writers has begun or ended.
    pub(crate) stall_changed: bool,
    /// An entry of it ends before the keeper of the time looks again.
    pub(crate) wants_time: bool,
}

/// A write of one entry, left to be committed.
#[derive(Debug)]
pub(crate) struct Posted {
    /// `None` while the place is free.
    pub(crate) keyspace: Option<Arc<KeyspaceInfo>>,
    pub(crate) kind: EntryKind,
    pub(crate) head: [u8; SINGLE_HEAD_BYTES],
    /// Key, then value.
    pub(crate) bytes: Vec<u8>,
    pub(crate) key_bytes: usize,
    pub(crate) durability: Durability,
    pub(crate) committed: Option<Result<Committed>>,
}

/// On cache lines of its own: its poster looks at it while others work.
#[derive(Debug)]
#[repr(align(128))]
struct Place {
    is_taken: AtomicBool,
    is_served: AtomicBool,
    posted: Mutex<Posted>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    /// One bit for each place that waits to be served.
    waiting: AtomicU32,
    places: [Place; PLACES],
}

impl Default for CommitQueue {
    fn default() -> CommitQueue {
        let place = || Place {
            is_taken: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            posted: Mutex::new(Posted {
                keyspace: None,
                kind: EntryKind::Put,
                head: [0; SINGLE_HEAD_BYTES],
                bytes: Vec::new(),
                key_bytes: 0,
                durability: Durability::Durable,
                committed: None,
            }),
        };
        CommitQueue { waiting: AtomicU32::new(0), places: std::array::from_fn(|_| place()) }
    }
}

impl CommitQueue {
    /// Leaves what `fill` says, if there is a free place; returns which.
    pub(crate) fn post(&self, fill: impl FnOnce(&mut Posted)) -> Option<usize> {
        let index = self.places.iter().position(|place| {
            !place.is_taken.load(Ordering::Relaxed)
                && place.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        let place = &self.places[index];
        place.is_served.store(false, Ordering::Relaxed);
        fill(&mut place.posted.lock());
        self.waiting.fetch_or(1 << index, Ordering::Release);
        Some(index)
    }

    /// Whether somebody waits to be served.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Serves all that wait now: together, or one after the other, each of which is told as soon as
    /// it was served. For the writer in the commit section.
    pub(crate) fn serve(&self, are_together: bool, mut serve: impl FnMut(&mut [MutexGuard<'_, Posted>])) {
        let mut round =
            Round { commit_queue: self, waiting: self.waiting.swap(0, Ordering::Acquire), served: 0 };
        while round.waiting != 0 {
            let lowest = round.waiting & round.waiting.wrapping_neg();
            let next = if are_together { round.waiting } else { lowest };
            (round.waiting, round.served) = (round.waiting & !next, next);
            debug_assert!(self.of(next).all(|place| !place.is_served.load(Ordering::Relaxed)));
            if next == lowest {
                serve(&mut [self.places[lowest.trailing_zeros() as usize].posted.lock()]);
            } else {
                serve(&mut self.of(next).map(|place| place.posted.lock()).collect::<Vec<_>>());
            }
            round.tell();
        }
    }

    /// The places of these bits, the lowest first.
    fn of(&self, bits: u32) -> impl Iterator<Item = &Place> {
        self.places
            .iter()
            .enumerate()
            .filter(move |(index, _)| bits & 1 << index != 0)
            .map(|(_, place)| place)
    }

    /// Whether a place was served.
    #[inline]
    pub(crate) fn is_served(&self, index: usize) -> bool {
        self.places[index].is_served.load(Ordering::Acquire)
    }

    /// What came of a served place, which is free from here on.
    pub(crate) fn take(&self, index: usize) -> Result<Committed> {
        let place = &self.places[index];
        let committed = {
            let mut posted = place.posted.lock();
            posted.keyspace = None;
            posted.bytes.clear();
            posted.committed.take()
        };
        place.is_taken.store(false, Ordering::Release);
        committed.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Bug, "whoever committed for others panicked at this write"))
        })
    }
}

/// Places that are being served. A panic ends the wait of those that were served together, and
/// leaves the others to the next writer.
struct Round<'a> {
    commit_queue: &'a CommitQueue,
    waiting: u32,
    /// Those that are at it, or were, and have not been told.
    served: u32,
}

impl Round<'_> {
    fn tell(&mut self) {
        let served = std::mem::take(&mut self.served);
        self.commit_queue.of(served).for_each(|place| place.is_served.store(true, Ordering::Release));
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.tell();
        if self.waiting != 0 {
            self.commit_queue.waiting.fetch_or(self.waiting, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
