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
pub(crate) struct LogBooks(pub(crate) Arc<MemoryBudget>);

impl LogMemory for LogBooks {
    fn lane_bytes_max(&self) -> usize {
        usize::try_from((self.0.bytes() / PART).max(LANE_BYTES_MIN)).unwrap_or(usize::MAX)
    }

    fn grow(&self, bytes: usize) {
        self.0.add_firm(Category::Log, bytes as u64);
    }

    fn shrink(&self, bytes: usize) {
        self.0.subtract(Category::Log, bytes as u64);
    }
}
