//! Where writers that find the commit section taken leave their write for whoever is in it.
//!
//! The section's state (memtable, log) then stays in the caches of one core, and nobody is put to sleep and woken for a microsecond's work.
//! Who is in the section serves the desk before leaving, all that wait at once; who waits and is not served soon waits for the section, and serves as well.
//!
//! Invariants:
//! 1. A place is its poster's from [`Desk::post`] to [`Desk::take`].
//! 2. Only who is in the commit section serves; a place is served once, also when that ends by a panic.

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
pub(crate) struct Desk {
    /// One bit for each place that waits to be served.
    waiting: AtomicU32,
    places: [Place; PLACES],
}

impl Default for Desk {
    fn default() -> Desk {
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
        Desk { waiting: AtomicU32::new(0), places: std::array::from_fn(|_| place()) }
    }
}

impl Desk {
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

    /// Serves all that wait now, together. For whoever is in the commit section.
    #[inline]
    pub(crate) fn serve(&self, serve: impl FnOnce(&mut [MutexGuard<'_, Posted>])) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.serve_waiting(serve);
        }
    }

    fn serve_waiting(&self, serve: impl FnOnce(&mut [MutexGuard<'_, Posted>])) {
        let round = Round { desk: self, waiting: self.waiting.swap(0, Ordering::Acquire) };
        debug_assert!(round.places().all(|place| !place.is_served.load(Ordering::Relaxed)));
        // One alone is the most frequent, and takes no memory.
        if let Some(place) = round.places().next().filter(|_| round.waiting.is_power_of_two()) {
            serve(&mut [place.posted.lock()]);
        } else {
            let mut posted: Vec<_> = round.places().map(|place| place.posted.lock()).collect();
            serve(&mut posted);
        }
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
        committed.unwrap_or_else(|| Err(Error::new(ErrorKind::Bug, "whoever committed for others panicked at this write")))
    }
}

/// Places that are being served: they are once this is dropped, also by a panic, which finishes the handle.
struct Round<'a> {
    desk: &'a Desk,
    waiting: u32,
}

impl<'a> Round<'a> {
    /// The lowest first.
    fn places(&self) -> impl Iterator<Item = &'a Place> + use<'a> {
        let (desk, waiting) = (self.desk, self.waiting);
        desk.places.iter().enumerate().filter(move |(index, _)| waiting & 1 << index != 0).map(|(_, place)| place)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.places().for_each(|place| place.is_served.store(true, Ordering::Release));
    }
}

#[cfg(test)]
mod tests;
