//! Books for tests of logs.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::LogMemory;

/// Books with room for a MiB a lane.
#[derive(Debug, Default)]
pub(crate) struct Books {
    held: AtomicUsize,
}

impl Books {
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl LogMemory for Books {
    fn lane_bytes_max(&self) -> usize {
        1 << 20
    }

    fn grow(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        assert!(self.held.fetch_sub(bytes, Ordering::Relaxed) >= bytes, "more given back than was taken");
    }
}
