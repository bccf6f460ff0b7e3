//! The memory that a lane holds of appended entries, in the books of the budget that pays for it.

use std::fmt;
use std::sync::Arc;

#[cfg(test)]
pub(crate) mod books;

/// Bytes are counted in steps of this size, so that an append is seldom more than a comparison.
const STEP_BYTES: usize = 64 << 10;

/// Keeps the books of the memory of logs.
pub trait LogMemory: Send + Sync + fmt::Debug {
    /// The most bytes that a lane should hold now, beside one entry that it must take. May change.
    fn lane_bytes_max(&self) -> usize;

    /// A lane holds `bytes` more. Called within its commit section: it may not append.
    fn grow(&self, bytes: usize);

    /// A lane holds `bytes` less, which `grow` was told of.
    fn shrink(&self, bytes: usize);
}

/// No books, and no bound but the log's own: for tests and measurements without an engine.
#[derive(Clone, Copy, Debug)]
pub struct Uncounted;

impl LogMemory for Uncounted {
    fn lane_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn grow(&self, _bytes: usize) {}

    fn shrink(&self, _bytes: usize) {}
}

/// A lane's share, given back when it is dropped.
///
/// Invariant: `counted` is what `memory` was told of: a multiple of `STEP_BYTES`, or 0.
#[derive(Debug)]
pub struct LaneMemory {
    memory: Arc<dyn LogMemory>,
    counted: usize,
    bytes_max: usize,
}

impl LaneMemory {
    /// Nothing is held yet.
    pub fn new(memory: &Arc<dyn LogMemory>) -> LaneMemory {
        LaneMemory { memory: Arc::clone(memory), counted: 0, bytes_max: memory.lane_bytes_max() }
    }

    /// The most bytes to hold, as of the last step.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The lane holds `bytes` from here on.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes.next_multiple_of(STEP_BYTES) != self.counted {
            self.step_to(bytes.next_multiple_of(STEP_BYTES));
        }
    }

    #[cold]
    fn step_to(&mut self, bytes: usize) {
        match bytes.checked_sub(self.counted) {
            Some(more) => self.memory.grow(more),
            None => self.memory.shrink(self.counted - bytes),
        }
        self.counted = bytes;
        self.bytes_max = self.memory.lane_bytes_max();
    }
}

impl Drop for LaneMemory {
    fn drop(&mut self) {
        self.memory.shrink(self.counted);
    }
}
