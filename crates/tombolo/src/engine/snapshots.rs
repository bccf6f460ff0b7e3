//! Which sequence numbers readers still look from, so that flush and compaction keep what they see.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tombolo_format::key::SequenceNumber;

/// The open snapshots.
///
/// Invariant: a snapshot reads the visible sequence number under this lock, so that a job which lists the snapshots either finds it or
/// has read a visible number that is no greater.
#[derive(Debug, Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<SequenceNumber, usize>>);

impl Snapshots {
    /// Opens one at what `visible` says.
    pub(crate) fn open(&self, visible: impl FnOnce() -> SequenceNumber) -> SequenceNumber {
        let mut open = self.0.lock();
        let sequence = visible();
        *open.entry(sequence).or_insert(0) += 1;
        sequence
    }

    /// Closes one.
    pub(crate) fn close(&self, sequence: SequenceNumber) {
        let mut open = self.0.lock();
        if let Some(count) = open.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                open.remove(&sequence);
            }
        }
    }

    /// The sequence numbers that are looked from, ascending.
    pub(crate) fn list(&self) -> Vec<SequenceNumber> {
        self.0.lock().keys().copied().collect()
    }
}
