//! What the cache holds, with what it is charged to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{CacheKey, Resident};
use crate::budget::MemoryBudget;

/// Whom an entry is charged to.
const NOBODY: u8 = 0;
const CACHE: u8 = 1;
const PINNED: u8 = 2;

/// An entry of the cache, or one that never was or is no longer in it. Charged once, as long as
/// anybody holds it.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: CacheKey,
    pub resident: Resident,
    /// Its memory is a part of something that is charged as a whole.
    pub is_part: bool,
    bytes: u64,
    charged: AtomicU8,
    pub budget: Arc<MemoryBudget>,
}

impl Entry {
    /// One that is not charged yet. `held_bytes` is what it holds beside itself.
    pub fn new(key: CacheKey, resident: Resident, held_bytes: u64, budget: &Arc<MemoryBudget>) -> Entry {
        let bytes = held_bytes + (size_of::<Entry>() + 32) as u64;
        Entry {
            key,
            resident,
            is_part: false,
            bytes,
            charged: AtomicU8::new(NOBODY),
            budget: Arc::clone(budget),
        }
    }

    /// One whose memory is a part of something that is charged as a whole.
    pub fn part(key: CacheKey, resident: Resident, budget: &Arc<MemoryBudget>) -> Entry {
        Entry {
            key,
            resident,
            is_part: true,
            bytes: 0,
            charged: AtomicU8::new(NOBODY),
            budget: Arc::clone(budget),
        }
    }

    /// Its bytes, if it is a filter and an index.
    fn index_bytes(&self) -> u64 {
        if matches!(self.resident, Resident::Partition(_)) { self.bytes } else { 0 }
    }

    /// It is held outside the cache.
    pub fn pin(&self) {
        self.charge(PINNED);
    }

    /// It is resident.
    pub fn charge_to_cache(&self) {
        self.charge(CACHE);
    }

    /// Charges it anew. One thread at a time: its maker, or the holder of its shard.
    fn charge(&self, charged: u8) {
        match self.charged.swap(charged, Ordering::Relaxed) {
            CACHE => {
                self.budget.subtract_cached(self.bytes);
                self.budget.subtract_cached_index(self.index_bytes());
            }
            PINNED => self.budget.subtract_pinned(self.bytes),
            _ => {}
        }
        match charged {
            CACHE => {
                self.budget.add_cached(self.bytes);
                self.budget.add_cached_index(self.index_bytes());
            }
            PINNED => self.budget.add_pinned(self.bytes),
            _ => {}
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.charge(NOBODY);
    }
}
