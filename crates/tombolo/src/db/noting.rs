//! Operations that somebody wants to know of beside a recording: spans of `tracing` around them,
//! and those that took long.
//!
//! Spans are at the level DEBUG of the target `tombolo::operation`, with the field names of
//! OpenTelemetry's conventions for databases. A subscriber that wants less costs a load and a
//! comparison for each operation.

use std::sync::Arc;

use tombolo_env::Instant;
use tombolo_storage::Result;
use tracing::Span;
use tracing::field::Empty;

use crate::db::Db;
use crate::engine::{Engine, unix_ms};
use crate::event::Event;
use crate::op::Op;
use crate::slow::{KEPT_MAX, KEY_BYTES_KEPT, SlowOperation};

/// An operation that has begun.
pub(super) struct Noted {
    engine: Arc<Engine>,
    operation: &'static str,
    keyspace: Option<Arc<str>>,
    key: Vec<u8>,
    entries: usize,
    begun: Instant,
    began_ms: u64,
    span: Span,
}

impl Noted {
    /// One that begins now, if somebody wants to know of it. `entries` are the keys that it asks
    /// for or writes.
    #[cold]
    pub(super) fn begin(
        engine: &Arc<Engine>,
        operation: &'static str,
        keyspace: Option<&Arc<str>>,
        (key, entries): (&[u8], usize),
    ) -> Option<Noted> {
        let span = tracing::debug_span!(
            target: "tombolo::operation",
            "operation",
            otel.name = operation,
            otel.kind = "internal",
            otel.status_code = Empty,
            db.system.name = "tombolo",
            db.operation.name = operation,
            db.operation.batch.size = entries,
            db.collection.name = keyspace.map(|name| &**name),
            error.r#type = Empty,
        );
        if span.is_disabled() && !engine.recording.slow().is_on() {
            return None;
        }
        Some(Noted {
            operation,
            keyspace: keyspace.map(Arc::clone),
            key: key[..key.len().min(KEY_BYTES_KEPT)].to_vec(),
            entries,
            begun: engine.env.now(),
            began_ms: unix_ms(&engine.env),
            span,
            engine: Arc::clone(engine),
        })
    }

    /// It has ended.
    pub(super) fn ended<T>(&self, result: &Result<T>) {
        let error = result.as_ref().err().map(tombolo_storage::Error::kind);
        if let Some(error) = error {
            self.span.record("otel.status_code", "ERROR");
            self.span.record("error.type", tracing::field::debug(error));
        }
        let took = self.engine.env.now().since(self.begun);
        let slow = self.engine.recording.slow();
        if !slow.is_slow(took) {
            return;
        }
        let operation = SlowOperation {
            operation: self.operation,
            keyspace: self.keyspace.as_deref().map(str::to_owned),
            key: self.key.clone(),
            entries: self.entries,
            began_ms: self.began_ms,
            took,
            error,
        };
        // Keys may be secret: a log has none.
        tracing::warn!(target: "tombolo::slow", parent: &self.span, "slow: {operation}");
        slow.note(operation.clone());
        self.engine.events.tell(|| Event::SlowOperation(operation));
    }

    /// A read or write that waits here.
    pub(super) fn here<T>(noted: Option<Noted>, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(noted) = noted else { return run() };
        let result = noted.span.in_scope(run);
        noted.ended(&result);
        result
    }

    /// One that ends later.
    pub(super) fn later<T: Send + 'static>(noted: Option<Noted>, start: impl FnOnce() -> Op<T>) -> Op<T> {
        let Some(noted) = noted else { return start() };
        let op = noted.span.in_scope(start);
        op.told(move |result| noted.ended(result))
    }
}

impl Db {
    /// The newest 128 operations that took as long as [`crate::Options::slow_operation`] says, or
    /// longer, oldest first; empty without that setting. Operations that are not waited for are
    /// noted when their end is seen.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// use std::time::Duration;
    /// use tombolo::{Db, Options};
    ///
    /// let slow_operation = Some(Duration::from_nanos(1));
    /// let options = Options { slow_operation, ..Options::default() };
    /// let db = Db::builder("mem://slow").options(options).open().wait()?;
    /// db.default_keyspace().put("a", "1").wait()?;
    /// assert_eq!(db.slow_operations()[0].operation, "put");
    /// # Ok(())
    /// # }
    /// ```
    pub fn slow_operations(&self) -> Vec<SlowOperation> {
        let mut all = self.engine().recording.slow().kept();
        let streams = self.engine().streams.all();
        if !streams.is_empty() {
            all.extend(streams.iter().flat_map(|stream| stream.recording.slow().kept()));
            all.sort_by_key(|slow| slow.began_ms);
            all.drain(..all.len().saturating_sub(KEPT_MAX));
        }
        all
    }
}
