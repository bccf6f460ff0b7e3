//! Operations that took long, the newest of them kept; spans around what goes on behind them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_storage::ErrorKind;
use tracing::Span;

/// Operations that are kept; beyond it the oldest goes.
pub(crate) const KEPT_MAX: usize = 128;
/// Bytes of a key that are kept.
pub(crate) const KEY_BYTES_KEPT: usize = 64;

/// A span of `tracing` around a flush, a compaction, an opening or another work: at the level INFO
/// of the target `tombolo::work`, with OpenTelemetry's names.
pub(crate) fn work_span(work: &'static str) -> Span {
    tracing::info_span!(
        target: "tombolo::work",
        "work",
        otel.name = work,
        otel.kind = "internal",
        db.system.name = "tombolo",
        db.operation.name = work,
    )
}

/// An operation that took at least as long as the setting `slow_operation` says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowOperation {
    /// Which: `get`, `multi_get`, `put`, `write`, `cursor` (one move) or another.
    pub operation: &'static str,
    /// The keyspace's name; none of a batch.
    pub keyspace: Option<String>,
    /// The first 64 bytes of its key; of several keys and of batches none.
    pub key: Vec<u8>,
    /// Keys that it asks for or writes.
    pub entries: usize,
    /// When it began, in milliseconds since 1970 by this host's clock.
    pub began_ms: u64,
    /// How long it took, waiting for durability included where it was asked for.
    pub took: Duration,
    /// What it failed with, if it did.
    pub error: Option<ErrorKind>,
}

impl fmt::Display for SlowOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {:?}", self.operation, self.took)?;
        if let Some(keyspace) = &self.keyspace {
            write!(formatter, " in {keyspace}")?;
        }
        if self.entries != 1 {
            write!(formatter, ", {} entries", self.entries)?;
        }
        match self.error {
            Some(error) => write!(formatter, ", failed: {error:?}"),
            None => Ok(()),
        }
    }
}

/// The slow operations of an open database.
#[derive(Debug, Default)]
pub(crate) struct SlowOperations {
    /// From how many nanoseconds on an operation is slow; 0: none is.
    from_ns: AtomicU64,
    count: AtomicU64,
    kept: Mutex<VecDeque<SlowOperation>>,
}

impl SlowOperations {
    /// From when on an operation is slow from now on; `None`: none is.
    pub(crate) fn set_from(&self, from: Option<Duration>) {
        let nanos = from.map_or(0, |from| u64::try_from(from.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.from_ns.store(nanos, Ordering::Relaxed);
    }

    /// Whether any operation may be slow.
    pub(crate) fn is_on(&self) -> bool {
        self.from_ns.load(Ordering::Relaxed) != 0
    }

    /// Whether one that took so long is.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        let from = self.from_ns.load(Ordering::Relaxed);
        from != 0 && took.as_nanos() >= u128::from(from)
    }

    /// Keeps one.
    pub(crate) fn note(&self, operation: SlowOperation) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(operation);
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Those that are kept, oldest first.
    pub(crate) fn kept(&self) -> Vec<SlowOperation> {
        self.kept.lock().iter().cloned().collect()
    }
}
