//! What cursors keep alive: how much, and for how long.
//!
//! A cursor pins the view that it looks at. As long as that is the newest one, it keeps nothing
//! that the database would not keep. Once a newer view has replaced it, memtables that were flushed
//! and tables that were compacted away live on for the cursor alone: so the age that counts begins
//! there. It is told in the statistics, and once in the log when it passes a quarter of an hour.
//!
//! The blocks that open cursors stand in are charged to the memory budget, in steps, so that
//! opening a cursor is one addition. A step follows the budget and how many share it: one is kept
//! while no cursor is open.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::Instant;

use super::View;
use crate::budget::{Category, Charge, MemoryBudget};

/// A reader that keeps replaced tables for longer is warned of.
const AGE_WARNED: Duration = Duration::from_secs(15 * 60);

/// What a cursor holds of each table or run it walks: a block and a partition of the index, both of
/// usual size.
const PINNED_BYTES: u64 = 16 << 10;

/// The charge for pinned blocks changes in steps within these bounds: of one cursor at least.
const STEP_BYTES_MIN: u64 = PINNED_BYTES;
const STEP_BYTES_MAX: u64 = 1 << 20;
/// All databases of a budget together keep at most this part of it for cursors to come.
const STEP_SHARE: u64 = 256;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Readers {
    replaced: Mutex<Vec<Replaced>>,
    pinned_bytes: AtomicU64,
    /// What `charge` holds.
    charged_bytes: AtomicU64,
    /// Of the last change of `charge`.
    step_bytes: AtomicU64,
    charge: Mutex<Charge>,
    budget: Arc<MemoryBudget>,
}

/// A view that a newer one has replaced.
#[derive(Debug)]
struct Replaced {
    view: Weak<View>,
    at: Instant,
    warned: bool,
}

/// What readers keep that nothing else keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Views that were replaced and are read still.
    pub(crate) views: u64,
    /// How long ago the oldest of them was replaced, in nanoseconds.
    pub(crate) oldest_nanos: u64,
    /// Bytes of memtables that were flushed and are read still.
    pub(crate) memtable_bytes: u64,
}

impl Readers {
    /// Of a database that has charges to `budget`.
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> Readers {
        Readers {
            replaced: Mutex::default(),
            pinned_bytes: AtomicU64::new(0),
            charged_bytes: AtomicU64::new(0),
            step_bytes: AtomicU64::new(STEP_BYTES_MIN),
            charge: Mutex::new(budget.charge(Category::Scans, 0)),
            budget: Arc::clone(budget),
        }
    }

    /// A newer view takes the place of `old`.
    pub(crate) fn replaced(&self, old: &Arc<View>, now: Instant) {
        let mut replaced = self.replaced.lock();
        replaced.retain(|other| other.view.strong_count() > 0);
        for other in replaced.iter_mut().filter(|other| !other.warned && now.since(other.at) > AGE_WARNED) {
            other.warned = true;
            tracing::warn!(
                seconds = now.since(other.at).as_secs(),
                "a cursor or a snapshot keeps memtables and tables that are replaced; drop it, or refresh it now \
                    and then"
            );
        }
        replaced.push(Replaced { view: Arc::downgrade(old), at: now, warned: false });
    }

    /// What readers keep now that `newest` does not.
    pub(crate) fn behind(&self, newest: &View, now: Instant) -> Behind {
        let mut behind = Behind::default();
        let mut seen: HashSet<_> = newest.memtables().map(Arc::as_ptr).collect();
        for other in &*self.replaced.lock() {
            let Some(view) = other.view.upgrade() else { continue };
            behind.views += 1;
            behind.oldest_nanos =
                behind.oldest_nanos.max(u64::try_from(now.since(other.at).as_nanos()).unwrap_or(u64::MAX));
            let kept = view.memtables().filter(|memtable| seen.insert(Arc::as_ptr(memtable)));
            behind.memtable_bytes += kept.map(|memtable| memtable.memory_bytes()).sum::<u64>();
        }
        behind
    }

    /// A cursor over `tables` tables and runs opens. Gives the bytes to hand to [`Readers::unpin`].
    pub(crate) fn pin(&self, tables: usize) -> u64 {
        let bytes = tables as u64 * PINNED_BYTES;
        let pinned = self.pinned_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if pinned > self.charged_bytes.load(Ordering::Relaxed) {
            self.settle();
        }
        bytes
    }

    /// It closes.
    pub(crate) fn unpin(&self, bytes: u64) {
        let pinned = self.pinned_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        // One step is kept, so that cursors which come and go change nothing.
        if self.charged_bytes.load(Ordering::Relaxed) >= pinned + 2 * self.step_bytes.load(Ordering::Relaxed)
        {
            self.settle();
        }
    }

    /// Charges for pinned memory, with a step as of now.
    #[cold]
    pub(crate) fn settle(&self) {
        let step = (self.budget.bytes() / STEP_SHARE / self.budget.members().max(1))
            .clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
        self.step_bytes.store(step, Ordering::Relaxed);
        let mut charge = self.charge.lock();
        let wanted = self.pinned_bytes.load(Ordering::Relaxed).next_multiple_of(step);
        charge.set(wanted);
        self.charged_bytes.store(wanted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
