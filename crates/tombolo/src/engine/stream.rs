//! The state of a stream: what the commit section guards, and what reads and writers see of it
//! without the lock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo_env::Instant;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::Edit;
use tombolo_storage::{LogOffset, LogRecord};

use super::{CommitQueue, Engine, MainLog};
use crate::memtable::{Memtable, MemtableWriter};

/// The order of the writes of the keyspaces bound to it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) commit: Mutex<Commit>,
    /// For those who find `commit` taken.
    pub(crate) commit_queue: CommitQueue,
    /// Reads see up to here.
    pub(crate) visible: AtomicU64,
    /// Durable writes whose sync nobody has begun.
    pub(crate) unstarted: AtomicU64,
    /// Durable writes that have not ended.
    pub(crate) in_flight: AtomicU64,
    /// Writes with conditions that go on beside their callers.
    pub(crate) conditional: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// The last number of the memtable over whose buried keys its flush walks; `u64::MAX`: of none.
    pub(crate) walking: AtomicU64,
    /// Memtables that end beyond this number wait for their flush, while a checkpoint chooses what
    /// it is of; `u64::MAX`: none do.
    pub(crate) flush_up_to: AtomicU64,
    /// A keyspace was dropped: the flush that tells the manifest, and gives the space back, should
    /// come soon.
    pub(crate) has_drops: AtomicBool,
}

/// What the commit section guards.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) writer: MemtableWriter,
    /// Bytes of the active memtable that its flush will free.
    pub(crate) memtable: Arc<Memtable>,
    /// The number given out last.
    pub(crate) last: u64,
    /// The last number that a log entry covers.
    pub(crate) logged: u64,
    /// The lane of appends.
    pub(crate) log: Arc<MainLog>,
    pub(crate) log_end: LogOffset,
    /// The log has ended, and the memtables that it was for are sealed.
    pub(crate) is_log_given_up: bool,
    /// The last number of an unlogged write; 0 before the first.
    pub(crate) unlogged: u64,
    /// What the active memtable's flush tells the manifest of keyspaces.
    pub(crate) keyspace_edits: Vec<Edit>,
    /// Logs that end with the active memtable's flush: what they held is in it, or in those before.
    pub(crate) old_logs: Vec<LogRecord>,
    pub(crate) next_keyspace: u32,
    /// Bytes of log that hold what the active memtable does.
    pub(crate) log_bytes: u64,
    /// Bytes that the active memtable may take beyond `memtable_bytes`: see `write::grow`.
    pub(crate) grown_bytes: u64,
    /// Bytes since it was last looked whether writers must be slowed.
    pub(crate) unjudged_bytes: usize,
    /// Whether the memory budget was short then.
    pub(crate) is_short: bool,
    /// Until when what was written keeps the rate that writers are slowed to; `None` while they are
    /// not.
    pub(crate) delayed_until: Option<Instant>,
    /// Writes that found no room, in the order of their calls.
    pub(crate) line: VecDeque<Box<dyn InLine>>,
    /// Invariant: the sum of their bytes.
    pub(crate) line_bytes: usize,
}

/// A write that found no room and stands in line for it.
pub(crate) trait InLine: Send + fmt::Debug {
    /// Room that it needs in a memtable; the same before and after it took its place. Nothing for
    /// one that its caller's operation holds.
    fn bytes(&self) -> usize;
    /// Whether its caller took it back.
    fn is_given_up(&self) -> bool;
    /// Commits it, or finds out that it cannot be or was given up; `false` when there is still no
    /// room.
    fn advance(&mut self, engine: &Engine, commit: &mut Commit) -> bool;
    /// Tells the waiter how it went. Outside the commit section.
    fn tell(self: Box<Self>, engine: &Arc<Engine>);
}

impl Stream {
    /// A stream that goes on after `last`, with the active memtable and its writer.
    pub(crate) fn new(
        log: Arc<MainLog>,
        memtable: Arc<Memtable>,
        writer: MemtableWriter,
        last: SequenceNumber,
        next_keyspace: u32,
    ) -> Stream {
        Stream {
            commit: Mutex::new(Commit {
                writer,
                memtable,
                last: last.0,
                logged: last.0,
                log,
                log_end: LogOffset::ZERO,
                is_log_given_up: false,
                unlogged: 0,
                keyspace_edits: Vec::new(),
                old_logs: Vec::new(),
                next_keyspace,
                log_bytes: 0,
                grown_bytes: 0,
                unjudged_bytes: 0,
                is_short: false,
                delayed_until: None,
                line: VecDeque::new(),
                line_bytes: 0,
            }),
            commit_queue: CommitQueue::default(),
            visible: AtomicU64::new(last.0),
            unstarted: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            conditional: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            walking: AtomicU64::new(u64::MAX),
            flush_up_to: AtomicU64::new(u64::MAX),
            has_drops: AtomicBool::new(false),
        }
    }

    /// The newest sequence number that reads see.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        SequenceNumber(self.visible.load(Ordering::Acquire))
    }

    /// Whether the flush of what ends with this number waits for a checkpoint.
    pub(crate) fn holds_back(&self, last: SequenceNumber) -> bool {
        last.0 > self.flush_up_to.load(Ordering::Acquire)
    }

    /// Writes committed since opening.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}
