//! Lanes of the epoch's log that are the application's own.

use parking_lot::Mutex;

use crate::signal::Turn;

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct OwnLane {
    /// Entries appended in this epoch; held while one is.
    pub(crate) appended: Mutex<u64>,
    /// Turns of those that trim it.
    pub(crate) trimming: Turn,
}

/// As many as a log of so many lanes has beside the main one.
pub(super) fn beside_main(lanes: u32) -> Vec<OwnLane> {
    (1..lanes).map(|_| OwnLane::default()).collect()
}
