//! Logs of older epochs become objects while this epoch writes: nobody repairs their regions any
//! more, so they must not depend on nodes that are started again one after the other for as long as
//! the new writer lives.
//!
//! Takeover, step 3, beside the writes of the new epoch: first the object, then a configuration
//! that names it, then the regions are given back (rule 6). A log that a flush or its application
//! gives up meanwhile is left alone.
//!
//! Invariants:
//! 1. A configuration is published on exactly the one that was read: of a log of an older epoch
//!    nobody publishes but this task, and the chain refuses what it names no more, or another
//!    epoch's (rule 1).
//! 2. A region is freed only after the configuration without it is known to be published.
//! 3. What the takeover has read stays in memory until then: so far this epoch needs no region of
//!    it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{Completer, completion, within};
use tombolo_format::near_log::{NearLane, NearSegment};
use tombolo_storage::log_memory::LaneMemory;
use tombolo_storage::logged::LoggedErrors;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogContext, LogId, LogRecord, Result};

use crate::configuration::{decode, encode};
use crate::destage::{delete_objects, put};
use crate::fence::{Kept, free, identity, narrow};
use crate::peers::Neighbours;
use crate::read::load;

/// A flush that comes at once, as after a large replay, saves the object.
const GRACE: Duration = Duration::from_secs(1);

/// Between two attempts, at first and after many.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Bytes that takeovers have read, by log.
#[derive(Debug)]
struct Held {
    logs: BTreeMap<LogId, Vec<Kept>>,
    memory: LaneMemory,
}

impl Held {
    fn count(&mut self) {
        self.memory.set(self.logs.values().flatten().map(|kept| kept.records.len()).sum());
    }

    fn keep_only(&mut self, is_needed: impl Fn(&LogId) -> bool) {
        self.logs.retain(|id, _| is_needed(id));
        self.count();
    }

    fn get(&self, log: LogId, segment: &NearSegment) -> Option<Bytes> {
        let kept = self.logs.get(&log)?.iter().find(|kept| kept.number == segment.number)?;
        segment
            .settled
            .filter(|(length, _)| narrow(kept.records.len()) == *length)
            .map(|_| kept.records.clone())
    }
}

/// The logs of older epochs that this one found.
#[derive(Debug)]
pub(crate) struct OldLogs {
    context: LogContext,
    neighbours: Arc<Neighbours>,
    held: Mutex<Held>,
    is_stopped: AtomicBool,
    /// The task that waits between attempts.
    pausing: Mutex<Option<Completer<()>>>,
}

impl OldLogs {
    /// Of these logs takeovers have read something.
    pub(crate) fn new(
        context: &LogContext,
        neighbours: &Arc<Neighbours>,
        kept: BTreeMap<LogId, Vec<Kept>>,
    ) -> OldLogs {
        let mut held = Held { logs: kept, memory: LaneMemory::new(&context.memory) };
        held.count();
        OldLogs {
            context: context.clone(),
            neighbours: Arc::clone(neighbours),
            held: Mutex::new(held),
            is_stopped: AtomicBool::new(false),
            pausing: Mutex::new(None),
        }
    }

    /// Ends [`OldLogs::move_all`] soon.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        if let Some(pausing) = self.pausing.lock().take() {
            pausing.complete(());
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    async fn pause(&self, time: Duration) {
        let (completer, stopped) = completion();
        *self.pausing.lock() = Some(completer);
        // What was said before it listened is seen now.
        if !self.is_stopped() {
            let _woken = within(&self.context.env, time, stopped).await;
        }
    }

    /// Moves all of them, however long their nodes or the store hold that up. Ends when it is
    /// stopped, or when this epoch is over.
    pub(crate) async fn move_all(self: Arc<OldLogs>) {
        self.pause(GRACE).await;
        let (mut logged, mut pause) = (LoggedErrors::default(), PAUSE_MIN);
        while !self.is_stopped() {
            let mut left = None;
            for log in self.named() {
                match self.move_one(&log).await {
                    Ok(None) => self.held.lock().keep_only(|id| *id != log.id),
                    Ok(Some(error)) => left = Some(error),
                    Err(error) => {
                        tracing::warn!(%error, "logs of older epochs stay on their nodes");
                        return self.held.lock().keep_only(|_| false);
                    }
                }
            }
            let Some(error) = left else { break };
            if logged.is_news(&error) {
                tracing::warn!(%error, "a log of an older epoch stays on its nodes for now");
            }
            self.pause(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
        self.held.lock().keep_only(|_| false);
    }

    /// Logs of older epochs, as the chain names them now. Memory held for others is let go.
    fn named(&self) -> Vec<LogRecord> {
        let mut named = self.context.chain.named();
        named.retain(|log| log.id.epoch < self.context.epoch);
        self.held.lock().keep_only(|id| named.iter().any(|log| log.id == *id));
        named
    }

    fn is_named(&self, log: LogId) -> bool {
        self.context.chain.named().iter().any(|record| record.id == log)
    }

    /// Moves the segments of a log that can be had. Why others stay, if some do.
    ///
    /// # Errors
    /// The chain's when it ends this epoch, or leaves the outcome open: nothing was freed.
    async fn move_one(&self, log: &LogRecord) -> Result<Option<Error>> {
        let mut lane = match decode(log) {
            Ok(lane) => lane,
            Err(error) => return Ok(Some(error)),
        };
        let (mut moved, mut left) = (Vec::new(), None);
        for segment in lane
            .segments
            .iter_mut()
            .filter(|segment| segment.settled.is_some() && !segment.regions.is_empty())
        {
            if self.is_stopped() || !self.is_named(log.id) {
                break;
            }
            match self.put(log, segment).await {
                Ok(()) => {
                    moved.push(segment.clone());
                    segment.regions.clear();
                }
                Err(error) => left = Some(error),
            }
        }
        if is_enabled(Mutant::OldLogFreedBeforeNamed) {
            free(&self.context, &self.neighbours, &moved);
        }
        if !moved.is_empty() {
            match self.publish(log, &lane).await {
                Ok(()) => free(&self.context, &self.neighbours, &moved),
                Err(error) if is_over(&error) => return Err(error),
                Err(error) => left = Some(error),
            }
        }
        Ok(left)
    }

    async fn put(&self, log: &LogRecord, segment: &NearSegment) -> Result<()> {
        let Some(settled) = segment.settled else { return Ok(()) };
        let held = self.held.lock().get(log.id, segment);
        let records = match held {
            Some(records) => records,
            None => load(&self.context, &self.neighbours, log, segment).await?,
        };
        put(&self.context, &identity(&self.context, log, segment.number), settled, records).await
    }

    /// Publishes that segments are objects. On return no configuration names their regions.
    async fn publish(&self, log: &LogRecord, lane: &NearLane) -> Result<()> {
        let published =
            self.context.chain.publish(LogRecord { id: log.id, configuration: encode(lane)? }).await;
        // Given up meanwhile: its objects may have come too late to be deleted with it, and are
        // garbage.
        let is_given_up = !self.is_named(log.id)
            && published.as_ref().map_or_else(|error| error.kind() == ErrorKind::Bug, |()| true);
        if !is_given_up {
            return published;
        }
        if let Err(error) = delete_objects(&self.context, |id| id == log.id).await {
            tracing::warn!(%error, "objects of a log that nothing names stay for now");
        }
        Ok(())
    }
}

/// Whether an error of the chain does not pass. What it leaves open, the next epoch finds.
fn is_over(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Fenced
            | ErrorKind::Closed
            | ErrorKind::OutcomeUnknown
            | ErrorKind::DeadlineExceeded
            | ErrorKind::Bug
            | ErrorKind::Invalid
    )
}
