//! Lanes of the epoch's log that are the application's own.

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_storage::Log;

use crate::signal::Turn;

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct OwnLane {
    /// Entries appended in this epoch; held while one is.
    pub(crate) appended: Mutex<u64>,
    /// Turns of those that trim it.
    pub(crate) trimming: Turn,
}

/// The lanes beside the main one of the log with which the epoch began.
pub(crate) struct ApplicationLogs {
    /// That log, if it has such lanes.
    pub(crate) log: Option<Arc<dyn Log>>,
    pub(crate) lanes: Vec<OwnLane>,
}

impl ApplicationLogs {
    /// Those of this log.
    pub(super) fn new(log: Arc<dyn Log>) -> ApplicationLogs {
        let lanes = (1..log.lanes()).map(|_| OwnLane::default()).collect();
        ApplicationLogs { log: (log.lanes() > 1).then_some(log), lanes }
    }
}
