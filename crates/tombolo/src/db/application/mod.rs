//! An application's own logs and objects, beside the keyspaces: in the database's stores, under its
//! epoch, its priorities and its takeover.
//!
//! A service that keeps a database often keeps more: the log of its replication, files of its own.
//! They belong to the same owner, and have to change hands with it, in the same moment. (So did the
//! service of the paper on disaggregated storage, section 6.1, which put its replication log behind
//! the engine's storage interface.)
//!
//! - [`ApplicationLog`]: a lane of its own in the epoch's log. Fenced, sealed and recorded by
//!   takeover as the database's own lane (rule 7), and never read by it: what earlier epochs left
//!   is the application's to read, and to release.
//! - [`ApplicationObjects`]: immutable objects under fresh names (rule 6). One counts once the
//!   application has written its name into a keyspace.
//!
//! Invariants:
//! 1. What an append acknowledged as durable is among what a successor reads; of what a stale
//!    process appends later nothing is.
//! 2. A lane of an earlier epoch stays named, and its bytes stay, until the application releases
//!    it; the database needs it for nothing.
//! 3. An object is deleted by the application only, or with the database: no collection of the
//!    database's own touches it while the database lives.
//!
//! Checkpoints, clones and salvage hold the database alone.

mod log;
mod objects;

pub use log::{ApplicationEntry, ApplicationLog, EarlierLogs, LogPosition};
pub use objects::{ApplicationObject, ApplicationObjectWriter, ApplicationObjects};

use tombolo_storage::{Error, ErrorKind, Result};

/// Most logs of an application: each may hold an eighth of the memory budget until it is durable.
pub(crate) const LOGS_MAX: u32 = 4;

/// # Errors
/// `Invalid` for more logs than there may be.
pub(crate) fn check_logs(logs: u32) -> Result<()> {
    if logs <= LOGS_MAX {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "more logs of an application than there may be")
        .expected(format!("at most {LOGS_MAX}"))
        .found(logs))
}
