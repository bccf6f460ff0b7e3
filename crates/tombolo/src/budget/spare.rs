//! Chunks of memtables that ended, kept for the next ones: the kernel clears each page that it
//! gives, which takes as long as filling it.
//!
//! They give way to everything, before the block cache does, and with the memtables in use take no
//! more than memtables were promised.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_env::memory::Region;

use super::{Category, Charge, MemoryBudget};

/// Bytes of a chunk that is kept: a huge page, as the larger chunks of a memtable have.
pub(crate) const SPARE_BYTES: usize = 2 << 20;

impl MemoryBudget {
    /// Keeps a chunk that nobody uses any more, or gives it back to the system.
    pub(crate) fn keep_spare(&self, chunk: Region) {
        let bytes = SPARE_BYTES as u64;
        if chunk.length() != SPARE_BYTES {
            return;
        }
        let mut spares = self.spares.lock();
        // Under the lock, so that of two who look at once the second sees the first's.
        let (has_promise, has_room) = (
            self.beyond_promise() + i128::from(bytes) <= 0,
            self.yielding_bytes() + bytes <= self.cache_bytes_max(),
        );
        if has_promise && has_room {
            self.add(Category::Spare, bytes);
            spares.push(chunk);
        }
    }

    /// A chunk that was kept: its content is what it was. It counts as a spare until the charge is
    /// dropped.
    pub(crate) fn take_spare(self: &Arc<Self>) -> Option<(Region, Charge)> {
        let chunk = self.spares.lock().pop()?;
        Some((
            chunk,
            Charge { budget: Arc::clone(self), category: Category::Spare, bytes: SPARE_BYTES as u64 },
        ))
    }

    /// Whether a chunk is kept.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spares.lock().is_empty()
    }

    /// Gives one back to the system; `false` when there is none.
    pub(super) fn give_spare_back(&self) -> bool {
        let Some(chunk) = self.spares.lock().pop() else { return false };
        self.subtract(Category::Spare, SPARE_BYTES as u64);
        drop(chunk);
        true
    }

    /// Bytes of memtables and spares that memtables were not promised: below zero, more may be
    /// kept.
    fn beyond_promise(&self) -> i128 {
        let held = self.used(Category::Memtables) + self.used(Category::Spare);
        i128::from(held) - i128::from(self.promised.load(Ordering::SeqCst))
    }

    /// Gives back what no memtable is promised any more.
    pub(super) fn trim_spares(&self) {
        while self.beyond_promise() > 0 && self.give_spare_back() {}
    }
}
