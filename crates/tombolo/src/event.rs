//! What an open database tells its listener: of flushes, compactions, trouble that begins and ends,
//! checkpoints, takeover.
//!
//! Every event goes to `tracing` where it happens. A [`Listener`] is told by a task of its own, in
//! order, outside all locks and off every caller's path: it may be slow, and then misses the oldest
//! events rather than holding anything up.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::Completion;
use tombolo_storage::Error;

use crate::signal::Signal;
use crate::slow::SlowOperation;
use crate::stalls::StallReason;

/// Events that wait for a listener; beyond it the oldest is forgotten.
const EVENTS_MAX: usize = 1024;

/// Something that happened to an open database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The flush of a memtable begins, or is tried again.
    FlushBegan {
        /// Bytes of the memtable.
        bytes: u64,
    },
    /// A memtable is in tables.
    Flushed {
        /// Tables made: one for each keyspace written to.
        tables: u64,
        /// Their bytes.
        bytes: u64,
        /// How long it took.
        nanos: u64,
    },
    /// A compaction begins.
    CompactionBegan {
        /// The keyspace.
        keyspace: u32,
        /// Why: `runs`, `size`, `deletes`, `reads`, `asked` or another.
        reason: &'static str,
        /// The level that its tables come from.
        from: u8,
        /// The level that they go to, with those that they overlap there.
        to: u8,
        /// Tables to merge.
        inputs: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A compaction's result was installed.
    Compacted {
        /// The keyspace.
        keyspace: u32,
        /// The level that its tables came from.
        from: u8,
        /// The level that they went to.
        to: u8,
        /// The tables were moved as they are, and nothing was written.
        is_move: bool,
        /// Tables merged.
        inputs: u64,
        /// Tables made.
        outputs: u64,
        /// Bytes of the tables and value objects made.
        bytes: u64,
    },
    /// A compaction that was meant for workers came to nothing there, or its answer was refused.
    RemoteCompactionFailed {
        /// The keyspace.
        keyspace: u32,
        /// Why.
        error: Error,
        /// The answer was refused: the worker is not to be trusted.
        is_refused: bool,
        /// The writer does the compaction itself; else it is tried again.
        is_done_here: bool,
    },
    /// A table or a value object that a flush or a compaction wrote is part of the database.
    TableMade {
        /// The keyspace.
        keyspace: u32,
        /// Its level; 255 of a value object.
        level: u8,
        /// The object that holds it.
        object: String,
        /// Its bytes.
        bytes: u64,
        /// Its entries.
        entries: u64,
    },
    /// A table or a value object that is part of the database no more was deleted from its store.
    TableDeleted {
        /// The object that held it.
        object: String,
    },
    /// An operation took long: [`crate::Options::slow_operation`].
    SlowOperation(SlowOperation),
    /// Writers are slowed from here on, or for another reason than before:
    /// [`crate::Stats::write_stall`].
    StallBegan {
        /// Why.
        reason: StallReason,
    },
    /// Writers are not slowed any more.
    StallEnded,
    /// A background work fails, and is tried again until it goes well.
    Failing {
        /// `flush`, `compaction` or another.
        work: &'static str,
        /// What it last failed with. Told once for each kind of error in a row.
        error: Error,
    },
    /// A background work that failed goes well again.
    Recovered {
        /// Which.
        work: &'static str,
    },
    /// A keyspace's merge operator failed in a flush or a compaction, which kept the operands and
    /// went on. Told once for each keyspace.
    MergeFailed {
        /// The keyspace.
        keyspace: u32,
        /// What the operator failed with.
        error: Error,
    },
    /// A flush or a compaction found single deletes of keys that had not been put exactly once
    /// since they were last removed. They were taken for deletes. Told once for each job.
    SingleDeletesMisused {
        /// The keyspace.
        keyspace: u32,
        /// How many.
        count: u64,
    },
    /// A keyspace's compaction filter failed, or is not there: entries were kept, and the work went
    /// on. Told once for each keyspace.
    FilterFailed {
        /// The keyspace.
        keyspace: u32,
        /// What the filter failed with; `Unsupported` too when it is not there.
        error: Error,
    },
    /// Tables from outside are part of the database, which reads see from here on.
    Ingested {
        /// How many.
        tables: u64,
        /// Their bytes.
        bytes: u64,
        /// Their entries.
        entries: u64,
        /// The sequence number that they have.
        sequence: u64,
    },
    /// A keyspace was made.
    KeyspaceCreated {
        /// Its number.
        keyspace: u32,
        /// Its name.
        name: String,
    },
    /// A keyspace was dropped: no read sees it any more, and its tables are deleted from here on.
    KeyspaceDropped {
        /// Its number.
        keyspace: u32,
        /// Its name.
        name: String,
    },
    /// A checkpoint was made.
    CheckpointMade {
        /// Its name.
        name: String,
    },
    /// A checkpoint was deleted.
    CheckpointDeleted {
        /// Its name.
        name: String,
    },
    /// The handle is finished for writing: another process has taken the database over, or an
    /// outcome is unknown.
    Finished {
        /// Why.
        error: Error,
    },
}

/// Is told of events: [`crate::Builder::listener`].
pub trait Listener: Send + Sync {
    /// Told of one event. Must not wait for the database that tells it. After a panic it is told of
    /// the events that follow.
    fn event(&self, event: &Event);
}

/// The events of a database on their way to its listener.
#[derive(Default)]
pub(crate) struct Events {
    listener: Option<Arc<dyn Listener>>,
    waiting: Mutex<VecDeque<Event>>,
    arrived: Signal,
}

impl fmt::Debug for Events {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Events").field("listener", &self.listener.is_some()).finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) fn new(listener: Option<Arc<dyn Listener>>) -> Events {
        Events { listener, ..Events::default() }
    }

    /// Another queue for the same listener.
    pub(crate) fn another(&self) -> Events {
        Events::new(self.listener.clone())
    }

    /// Whether anybody listens.
    pub(crate) fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    /// Queues an event. Cheap, and free without a listener.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if self.listener.is_none() {
            return;
        }
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= EVENTS_MAX {
                waiting.pop_front();
                tracing::warn!("the listener is slow: an event was forgotten");
            }
            waiting.push_back(event());
        }
        self.arrived.raise();
    }

    /// Resolves when there may be something to deliver.
    pub(crate) fn arrived(&self) -> Completion<()> {
        self.arrived.subscribe()
    }

    /// Wakes the task that delivers.
    pub(crate) fn wake(&self) {
        self.arrived.raise();
    }

    /// Tells the listener of all that waits.
    pub(crate) fn deliver(&self) {
        let Some(listener) = &self.listener else { return };
        loop {
            let Some(event) = self.waiting.lock().pop_front() else { return };
            // Foreign code: a panic of it, which the panic hook has told of, ends one call and not
            // all that follow.
            if catch_unwind(AssertUnwindSafe(|| listener.event(&event))).is_err() {
                tracing::error!(?event, "the listener panicked at an event; it is told of the next ones");
            }
        }
    }
}
