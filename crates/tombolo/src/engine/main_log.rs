//! The log that the main stream is appended to, and what happens when it ends.
//!
//! A log of this epoch may end for good while the database need not: its disk fails, its directory
//! is gone, its nodes are. Then
//! `no commit passes → all memtables go to tables → the record of the last of them un-names the log → another lane is named → commits pass again`;
//! `flush::renewal` does it, and `docs/decisions/2026-11-24-a-log-that-ends.md` has the histories.
//!
//! Invariants:
//! 1. A commit appends to the log that the commit section holds, and to none that has ended.
//! 2. A log takes the place of another only once everything of that one is in tables that the
//!    manifest names, and the manifest does not name it any more: so a wait for an offset of an
//!    earlier log is over.
//! 3. Whatever ends a log but a fence leaves the handle as it is. The first reason stays.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use tombolo_env::Completion;
use tombolo_storage::{Error, ErrorKind, Log, LogId, LogOffset, Pressure, Result};

/// The lane of the main stream with which an epoch begins.
pub(crate) const MAIN_LANE: u32 = 0;
/// Lanes that are begun later have numbers from here on; those between are the application's. What
/// a lane is for its record says, and not its number.
const LATER_LANES: u32 = 1 << 16;

/// Numbers of lanes that this epoch has never tried to begin.
#[derive(Debug)]
pub(crate) struct LaneNumbers(AtomicU32);

impl Default for LaneNumbers {
    fn default() -> LaneNumbers {
        LaneNumbers(AtomicU32::new(LATER_LANES))
    }
}

impl LaneNumbers {
    /// The next one.
    ///
    /// # Errors
    /// `Unsupported` after the last.
    pub(crate) fn next(&self) -> Result<u32> {
        let next = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        next.map_err(|_| Error::new(ErrorKind::Unsupported, "the epoch has no more lanes"))
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct MainLog {
    log: Arc<dyn Log>,
    pub(crate) id: LogId,
    ended: OnceLock<Error>,
    /// Nobody was told yet that it has ended.
    untold: AtomicBool,
}

impl MainLog {
    /// The first lane of `log`, under the name that the manifest has for it.
    pub(crate) fn new(log: Arc<dyn Log>, id: LogId) -> Arc<MainLog> {
        Arc::new(MainLog { log, id, ended: OnceLock::new(), untold: AtomicBool::new(false) })
    }

    /// What it is a lane of.
    pub(crate) fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// Why it takes no more writes, if it does not.
    #[inline]
    pub(crate) fn ended(&self) -> Option<&Error> {
        self.ended.get()
    }

    pub(crate) fn wants_gathered(&self) -> bool {
        self.log.wants_gathered(MAIN_LANE)
    }

    pub(crate) fn durable(&self, end: LogOffset) -> Completion<Result<()>> {
        self.log.durable(MAIN_LANE, end)
    }

    pub(crate) fn durable_through(&self) -> LogOffset {
        self.log.durable_through(MAIN_LANE)
    }

    pub(crate) fn pressure(&self) -> Pressure {
        self.log.pressure(MAIN_LANE)
    }

    /// Ends it, for this reason. In the commit section too: the writer that leaves it calls
    /// [`super::Background::tell_of_log`].
    pub(crate) fn end(&self, error: &Error) {
        if self.ended.set(error.clone()).is_ok() {
            self.untold.store(true, Ordering::Release);
        }
    }

    /// Whether its end is still to be told, which the caller does.
    pub(super) fn take_untold(&self) -> bool {
        self.untold.swap(false, Ordering::AcqRel)
    }
}

/// Whether an append that failed so has taken no effect, and the log goes on.
pub(crate) fn took_no_effect(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Retry
            | ErrorKind::OutOfSpace
            | ErrorKind::Invalid
            | ErrorKind::Busy
            | ErrorKind::PermissionDenied
            | ErrorKind::Unsupported
    )
}

/// The error of a write that comes while there is no log.
#[cold]
pub(crate) fn no_log(cause: &Error) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!(
            "the log has ended, and writes wait until what is in memory is in tables and another log \
            stands: {cause}"
        ),
    )
    .source(cause.clone())
    .advice(
        "nothing need be done: writes go on by themselves; what holds it up is among the background \
        errors",
    )
}
