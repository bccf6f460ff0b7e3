//! The books of what a log keeps in memory until it is durable.

use std::sync::Arc;

use tombolo_storage::LogMemory;

use super::{Category, MemoryBudget};

/// A lane may hold this part of the budget.
const PART: u64 = 8;

/// A lane may hold so much in any case: a few entries, so that syncs are shared.
const LANE_BYTES_MIN: u64 = 128 << 10;

/// The budget as the log sees it.
#[derive(Debug)]
pub(crate) struct LogBooks {
    budget: Arc<MemoryBudget>,
    /// So many share what a lane may hold.
    sharers: u64,
}

impl LogBooks {
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> LogBooks {
        LogBooks::shared(budget, 1)
    }

    /// The books of `sharers` lanes that hold no more than one may, all together.
    pub(crate) fn shared(budget: &Arc<MemoryBudget>, sharers: usize) -> LogBooks {
        LogBooks { budget: Arc::clone(budget), sharers: (sharers as u64).max(1) }
    }

    /// The books of lanes that hold as little as can be.
    pub(crate) fn least(budget: &Arc<MemoryBudget>) -> LogBooks {
        LogBooks { budget: Arc::clone(budget), sharers: u64::MAX }
    }
}

impl LogMemory for LogBooks {
    fn lane_bytes_max(&self) -> usize {
        usize::try_from((self.budget.bytes() / PART / self.sharers).max(LANE_BYTES_MIN)).unwrap_or(usize::MAX)
    }

    fn grow(&self, bytes: usize) {
        self.budget.add_firm(Category::Log, bytes as u64);
    }

    fn shrink(&self, bytes: usize) {
        self.budget.subtract(Category::Log, bytes as u64);
    }
}
