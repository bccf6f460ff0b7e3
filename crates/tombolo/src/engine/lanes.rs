//! Lanes of the epoch's log that are the application's own.

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_storage::{Log, LogOffset};

use crate::signal::Turn;

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct OwnLane {
    /// What was appended in this epoch; held while an entry is.
    pub(crate) appended: Mutex<OwnAppended>,
    /// Turns of those that trim it.
    pub(crate) trimming: Turn,
}

/// What was appended to one of them.
#[derive(Debug, Default)]
pub(crate) struct OwnAppended {
    /// Entries.
    pub(crate) count: u64,
    /// Where the last one ended.
    pub(crate) end: LogOffset,
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

    /// None: of a stream's lane.
    pub(super) fn none() -> ApplicationLogs {
        ApplicationLogs { log: None, lanes: Vec::new() }
    }
}
