//! Fenced append-only logs, and the chain through which their configurations are published.
//!
//! Rule numbers are those of the design's section on protocols. In short, per epoch:
//! `open (creates, publishes a record) → append … → fence by a successor → sealed length, recorded in the manifest → read → free`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Completion, Env};

use crate::facts::Fact;
use crate::{Epoch, Error, ErrorKind, Incarnation, LogMemory, ObjectStore, Result, Survival};

/// A position in a lane: segment number in the upper 32 bits, byte in the segment in the lower.
/// Ordered as the bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogOffset(pub u64);

impl LogOffset {
    /// The start of a lane.
    pub const ZERO: LogOffset = LogOffset(0);

    /// The position `byte` of segment `segment`.
    pub const fn new(segment: u32, byte: u32) -> LogOffset {
        LogOffset(((segment as u64) << 32) | byte as u64)
    }

    /// The segment number.
    pub const fn segment(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The byte in the segment.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is asked for")]
    pub const fn byte(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for LogOffset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.segment(), self.byte())
    }
}

/// A log as the manifest names it: one per epoch and lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// The epoch that appends to it; nobody else ever does.
    pub epoch: Epoch,
    /// The lane within the epoch.
    pub lane: u32,
}

/// What a log store publishes in the manifest about one of its logs, and is handed back by every
/// later epoch. Opaque to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Which log.
    pub id: LogId,
    /// Where and how it is kept, in the log store's own encoding; at most 64 KiB.
    pub configuration: Bytes,
}

/// Publishes opaque log records in the manifest, between the engine's own edits (rule 7).
pub trait ConfigurationChain: Send + Sync + fmt::Debug {
    /// Publishes the newest configuration of a log. Returns once the record is durable in the
    /// chain.
    ///
    /// # Errors
    /// `Fenced` when the chain holds another epoch's record: stop. `OutcomeUnknown` only when the
    /// process is closing.
    fn publish(&self, record: LogRecord) -> BoxFuture<'_, Result<()>>;

    /// As [`ConfigurationChain::publish`] of several logs. A chain that can takes them in one
    /// record, for the price of one.
    ///
    /// # Errors
    /// As there; those before the one that failed may be published.
    fn publish_all(&self, records: Vec<LogRecord>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for record in records {
                self.publish(record).await?;
            }
            Ok(())
        })
    }

    /// The logs that the manifest names now, for collection: whatever it does not name and belongs
    /// to an older epoch is garbage.
    fn named(&self) -> Vec<LogRecord>;
}

/// What a log store is opened with.
#[derive(Clone, Debug)]
pub struct LogContext {
    /// The world.
    pub env: Env,
    /// The database's life: unique among what its own object store has held.
    pub incarnation: Incarnation,
    /// A random number that the life was given when it began: unique among all databases.
    pub database: u64,
    /// This process's epoch; its claim is effective.
    pub epoch: Epoch,
    /// Where configurations are published.
    pub chain: Arc<dyn ConfigurationChain>,
    /// The object store of the same database.
    pub objects: Arc<dyn ObjectStore>,
    /// Who keeps the books of what the logs hold in memory.
    pub memory: Arc<dyn LogMemory>,
}

impl LogContext {
    /// What a log store keeps a database's logs under. Where it lies with the database's own
    /// objects that is the incarnation. A place of its own may be given to many databases, whose
    /// incarnations all count from 1: there it is the random number, so that none of them takes
    /// another's logs for garbage of its own.
    #[must_use]
    pub fn life(&self, is_paired: bool) -> Incarnation {
        if is_paired { self.incarnation } else { Incarnation(self.database) }
    }

    /// Refuses what only a later epoch may do to `log`, which lies at `place`; `what` says it as a
    /// verb.
    ///
    /// # Errors
    /// `Bug`, when the log is this epoch's, or a later one's.
    pub fn check_older(&self, log: &LogRecord, what: &str, place: impl fmt::Display) -> Result<()> {
        if log.id.epoch < self.epoch {
            return Ok(());
        }
        self.refuse(log, what, place)
    }

    /// Refuses to free `log`, which lies at `place`, while somebody may need it: a later epoch's,
    /// or one of this epoch that the chain names.
    ///
    /// # Errors
    /// `Bug`, when it is one of those.
    pub fn check_freed(&self, log: &LogRecord, place: impl fmt::Display) -> Result<()> {
        let given_up =
            || log.id.epoch == self.epoch && !self.chain.named().iter().any(|named| named.id == log.id);
        if log.id.epoch < self.epoch || given_up() { Ok(()) } else { self.refuse(log, "frees", place) }
    }

    fn refuse(&self, log: &LogRecord, what: &str, place: impl fmt::Display) -> Result<()> {
        Err(Error::new(
            ErrorKind::Bug,
            format!("epoch {} {what} the log of epoch {}", self.epoch, log.id.epoch),
        )
        .object(place))
    }
}

/// A store of fenced logs.
///
/// What every backend promises, and its conformance suite checks:
/// 1. After [`LogStore::fence`] returned a length, no append beyond it is ever acknowledged,
///    accepted or durable, and everything acknowledged as durable before lies within it; what was
///    accepted lies within it unless the host lost it.
/// 2. Fencing is idempotent, may be repeated by any later epoch, and never yields less than what an
///    earlier fence sealed and synced.
/// 3. Up to the sealed length the entries read back are those appended, in order, whole; damage in
///    between is `Corrupt`, never an end.
/// 4. No epoch appends to another's log.
/// 5. What [`LogStore::tail`] shows lies within every length that a fence returns, and holds
///    everything acknowledged as durable before it, unless [`LogReader::lacks`] says otherwise. An
///    entry whose append failed is not shown, as long as nobody has fenced the log.
pub trait LogStore: Send + Sync + fmt::Debug {
    /// Begins this epoch's log: makes its lanes, publishes one record for each through the chain,
    /// and returns when both are durable. What logs of older epochs that the chain does not name
    /// still keep is freed, in the background where that takes long.
    fn open<'a>(&'a self, context: &'a LogContext, lanes: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>>;

    /// Begins one more lane of this epoch, as a log of that lane alone, and returns when the record
    /// that names it is durable in the chain. `lane` is a number that this epoch has never tried to
    /// begin a lane with. After an error the chain may name it or not: un-name it before another is
    /// begun.
    fn open_lane<'a>(&'a self, context: &'a LogContext, lane: u32) -> BoxFuture<'a, Result<Arc<dyn Log>>>;

    /// Fences an older epoch's log: from its return on nothing beyond the returned length takes
    /// effect, and everything up to it is durable. `from` is the replay point that the manifest
    /// states: earlier bytes may be gone. The engine records the length in the manifest before it
    /// shows or serves anything (rule 7).
    fn fence<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<LogOffset>>;

    /// Reads the entries of a log in `from..to`, where `to` is its recorded sealed length.
    fn read<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
        to: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>>;

    /// Reads the entries of a log that nobody may have sealed yet, from `from` on: for followers,
    /// who fence nothing. Ends where the log is known to be durable at the call, so that no fence
    /// takes back what it shows; everything acknowledged as durable before the call is in it,
    /// unless [`LogReader::lacks`] says otherwise.
    ///
    /// The log may be trimmed or freed meanwhile: after an error, and before it is believed, look
    /// whether the manifest still names the log and states a replay point at or before `from`.
    ///
    /// # Errors
    /// As [`LogStore::read`]; `Unsupported` when only the log's own process can read it before it
    /// is sealed.
    fn tail<'a>(
        &'a self,
        context: &'a LogContext,
        log: &'a LogRecord,
        from: LogOffset,
    ) -> BoxFuture<'a, Result<Box<dyn LogReader>>> {
        let _ = (context, log, from);
        Box::pin(async move {
            Err(Error::new(ErrorKind::Unsupported, format!("{} cannot be followed", self.identity()))
                .advice("open the database for reading only, which shows what is in tables"))
        })
    }

    /// Deletes a whole log of an older epoch, or one of this epoch that was given up, once a
    /// durable manifest record no longer names it.
    fn free<'a>(&'a self, context: &'a LogContext, log: &'a LogRecord) -> BoxFuture<'a, Result<()>>;

    /// Deletes all that is left here of the context's database, which was destroyed: logs of older
    /// epochs that no record names too. Touches nothing of another database, however many share the
    /// place.
    fn clear<'a>(&'a self, context: &'a LogContext) -> BoxFuture<'a, Result<()>>;

    /// Whether all who open its logs run on one host, so that none of them has outlived the host's
    /// last start. For liveness only.
    fn is_of_one_host(&self) -> bool {
        false
    }

    /// What the log is found to be when it is asked, judged, for `tombolo doctor`: those that it
    /// needs are asked whether they are there. Changes nothing.
    fn facts(&self) -> BoxFuture<'_, Result<Vec<Fact>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// What accepted and durable writes survive here.
    fn survival(&self) -> Survival;

    /// A stable identity of kind and place, recorded in the manifest when the database is created:
    /// opening with another is refused.
    fn identity(&self) -> String;
}

/// How an append ended.
#[derive(Debug)]
#[must_use = "an append is acknowledged only when it was accepted"]
pub struct Appended {
    /// The lane's end after this entry: hand it to [`Log::durable`].
    pub end: LogOffset,
    /// `None`: accepted already. Otherwise it resolves when the entry is accepted; the completer
    /// gone means `Closed`. `DeadlineExceeded` is no end of the log: it could not take the entry
    /// for long, and goes on trying. Any other error ends it.
    pub accepted: Option<Completion<Result<()>>>,
}

/// How full a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Bytes not yet trimmed.
    pub live_bytes: u64,
    /// Bytes beyond which the log wants its oldest data flushed.
    pub wanted_bytes_max: u64,
}

/// This epoch's open log. Appends of one lane are ordered by the caller, who holds the lane's
/// commit section.
pub trait Log: Send + Sync + fmt::Debug {
    /// Number of lanes.
    fn lanes(&self) -> u32;

    /// Appends one entry to a lane: a commit group of one stream. Synchronous, in memory or one
    /// system call.
    ///
    /// # Errors
    /// As [`Log::append_parts`].
    fn append(&self, lane: u32, entry: &LogEntry) -> Result<Appended> {
        let LogEntry { stream, first_sequence, count, payload } = entry;
        let parts = [&payload[..]];
        self.append_parts(
            lane,
            &LogAppend { stream: *stream, first_sequence: *first_sequence, count: *count, parts: &parts },
        )
    }

    /// As [`Log::append`], of an entry whose payload comes in parts.
    ///
    /// Acknowledge nothing before it is accepted, which implies that every earlier byte of the lane
    /// is.
    ///
    /// # Errors
    /// `Fenced` when a successor has fenced the log: outcome unknown, stop. `OutOfSpace`, `Retry`:
    /// nothing took effect. `Invalid`: the entry is larger than a segment may be.
    fn append_parts(&self, lane: u32, entry: &LogAppend<'_>) -> Result<Appended>;

    /// Whether writes that several make at the same time had better come as one entry: an entry
    /// costs much beside its bytes, as one that is copied to several memories does, and nothing
    /// gathers entries that wait. May change from one append to the next.
    fn wants_gathered(&self, lane: u32) -> bool;

    /// Resolves when everything before `end` is durable. Concurrent calls share one sync.
    fn durable(&self, lane: u32, end: LogOffset) -> Completion<Result<()>>;

    /// As [`Log::durable`], on the calling thread, which does the sync itself when nobody else is
    /// at it: saves a hand-off.
    fn sync(&self, lane: u32, end: LogOffset) -> Result<()>;

    /// The offset up to which a lane is durable.
    fn durable_through(&self, lane: u32) -> LogOffset;

    /// Frees what lies before `before`, up to which a durable manifest record states the replay
    /// point.
    fn trim(&self, lane: u32, before: LogOffset) -> Result<()>;

    /// How full a lane is.
    fn pressure(&self, lane: u32) -> Pressure;

    /// Verifies that the log is not fenced: for reads that must not be stale.
    fn confirm(&self) -> BoxFuture<'_, Result<()>>;

    /// Gives a lane up whose entries are kept elsewhere, or are about to be: its appends fail from
    /// here on, nothing of it works on in the background, and it holds no memory any more. What of
    /// it was not acknowledged may be found again, or not, for as long as the chain names it.
    /// Closing and confirming leave it out. Synchronous, and never waits.
    fn give_up(&self, lane: u32);

    /// Makes all durable and writes down how far that is. Appends fail with `Closed` from here on.
    /// When it has come to its end, well or not, nothing of this log works on in the background.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}

/// One entry: the batches of one commit group of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The stream that orders it.
    pub stream: u32,
    /// Sequence number of its first operation.
    pub first_sequence: u64,
    /// Number of sequence numbers that it takes.
    pub count: u32,
    /// The operations, in the engine's encoding.
    pub payload: Bytes,
}

/// An entry to be appended. Its payload comes in parts, so that nobody need join them before the
/// log does.
#[derive(Clone, Copy, Debug)]
pub struct LogAppend<'a> {
    /// The stream that orders it.
    pub stream: u32,
    /// Sequence number of its first operation.
    pub first_sequence: u64,
    /// Number of sequence numbers that it takes.
    pub count: u32,
    /// The operations, in the engine's encoding: the payload is these one after another.
    pub parts: &'a [&'a [u8]],
}

impl LogAppend<'_> {
    /// Bytes of the payload.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// The entry, with a payload of its own.
    pub fn to_entry(&self) -> LogEntry {
        LogEntry {
            stream: self.stream,
            first_sequence: self.first_sequence,
            count: self.count,
            payload: self.parts.concat().into(),
        }
    }
}

/// Reads a log's entries in order.
pub trait LogReader: Send + fmt::Debug {
    /// Of a log that is followed: why more may have been acknowledged before [`LogStore::tail`] was
    /// called than it shows; `None` when it shows all of it. What it shows is true either way.
    fn lacks(&self) -> Option<Error>;

    /// The next entry with the offset after it, or `None` at the end asked for.
    ///
    /// # Errors
    /// `Corrupt` with the segment and byte: what was sealed must be there.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<(LogEntry, LogOffset)>>>;

    /// As [`LogReader::next`], of as many entries as are at hand, one at least.
    ///
    /// # Errors
    /// As [`LogReader::next`], once all before are read.
    fn next_run(&mut self) -> BoxFuture<'_, Result<Option<LogRun>>> {
        Box::pin(async move { Ok(self.next().await?.map(|(entry, end)| LogRun::of(entry, end))) })
    }
}

/// Most entries of a run.
pub const RUN_ENTRIES_MAX: usize = 1024;

/// Entries that follow each other and lie in one piece of memory: a caller that goes through many
/// is spared a wait and a counted reference for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRun {
    /// What their payloads lie in.
    pub memory: Bytes,
    /// In the log's order, at most [`RUN_ENTRIES_MAX`].
    pub entries: Vec<RunEntry>,
}

/// An entry of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEntry {
    /// The stream that orders it.
    pub stream: u32,
    /// Sequence number of its first operation.
    pub first_sequence: u64,
    /// Number of sequence numbers that it takes.
    pub count: u32,
    /// Where its payload lies in the run's memory.
    pub payload: Range<usize>,
    /// The offset after it.
    pub end: LogOffset,
}

impl LogRun {
    /// One entry, and the offset after it.
    pub fn of(entry: LogEntry, end: LogOffset) -> LogRun {
        let LogEntry { stream, first_sequence, count, payload } = entry;
        let entry = RunEntry { stream, first_sequence, count, payload: 0..payload.len(), end };
        LogRun { memory: payload, entries: vec![entry] }
    }

    /// An entry by itself, and the offset after it.
    pub fn entry(&self, entry: &RunEntry) -> (LogEntry, LogOffset) {
        let RunEntry { stream, first_sequence, count, ref payload, end } = *entry;
        (LogEntry { stream, first_sequence, count, payload: self.memory.slice(payload.clone()) }, end)
    }
}
