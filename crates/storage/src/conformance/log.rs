//! What every log store promises (see [`LogStore`]), as checks over any of them: backends, forms
//! and layers, real and simulated.
//!
//! The checks run outside tasks: they wait on the calling thread. Each uses an incarnation of its
//! own, drawn at random, so that one store can go through all of them, many times.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env};

use crate::log_memory::Uncounted;
use crate::{
    ConfigurationChain, Epoch, Error, ErrorKind, Incarnation, Log, LogContext, LogEntry, LogOffset,
    LogRecord, LogStore, ObjectStore, RUN_ENTRIES_MAX, Result,
};

/// A chain that keeps the records in memory.
#[derive(Debug)]
pub struct MemoryChain {
    records: Mutex<Vec<LogRecord>>,
    /// What the next publication answers instead of keeping the record.
    refusal: Mutex<Option<Error>>,
    /// The greatest epoch that has claimed: what older ones publish is refused.
    claimed: Mutex<Epoch>,
}

/// The chain as the process of one epoch sees it.
#[derive(Debug)]
struct EpochChain {
    chain: Arc<MemoryChain>,
    epoch: Epoch,
}

impl ConfigurationChain for EpochChain {
    fn publish(&self, record: LogRecord) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let claimed = *self.chain.claimed.lock();
            if claimed > self.epoch {
                return Err(Error::new(
                    ErrorKind::Fenced,
                    format!("the chain holds a claim of epoch {claimed}"),
                ));
            }
            // As a manifest: only an epoch itself begins its logs, and what a record has named no
            // more stays so.
            if record.id.epoch != self.epoch && !self.named().iter().any(|named| named.id == record.id) {
                return Err(Error::new(
                    ErrorKind::Bug,
                    format!("epoch {} names a log of epoch {}", self.epoch, record.id.epoch),
                ));
            }
            self.chain.publish(record).await
        })
    }

    fn named(&self) -> Vec<LogRecord> {
        self.chain.named()
    }
}

impl Default for MemoryChain {
    fn default() -> MemoryChain {
        MemoryChain { records: Mutex::default(), refusal: Mutex::default(), claimed: Mutex::new(Epoch::NONE) }
    }
}

impl MemoryChain {
    /// Has the next publication fail.
    pub fn refuse_next(&self, error: Error) {
        *self.refusal.lock() = Some(error);
    }

    /// Has none fail that did not come yet.
    pub fn accept(&self) {
        *self.refusal.lock() = None;
    }

    /// Names a log no more.
    pub fn unname(&self, record: &LogRecord) {
        self.records.lock().retain(|named| named.id != record.id);
    }
}

impl ConfigurationChain for MemoryChain {
    fn publish(&self, record: LogRecord) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if let Some(error) = self.refusal.lock().take() {
                return Err(error);
            }
            let mut records = self.records.lock();
            records.retain(|named| named.id != record.id);
            records.push(record);
            Ok(())
        })
    }

    fn named(&self) -> Vec<LogRecord> {
        self.records.lock().clone()
    }
}

/// A log store under test, in its world.
#[derive(Clone, Debug)]
pub struct LogSubject {
    /// The world.
    pub env: Env,
    /// The log that is tested.
    pub store: Arc<dyn LogStore>,
    /// The object store that it is paired with.
    pub objects: Arc<dyn ObjectStore>,
}

/// One database's logs on the store under test.
#[derive(Debug)]
pub struct LogHistory<'a> {
    subject: &'a LogSubject,
    incarnation: Incarnation,
    /// The manifest's part.
    pub chain: Arc<MemoryChain>,
}

impl LogHistory<'_> {
    /// A database of its own.
    pub fn new(subject: &LogSubject) -> LogHistory<'_> {
        LogHistory { subject, incarnation: Incarnation(subject.env.random_u64()), chain: Arc::default() }
    }

    /// What epoch `epoch` of this database opens logs with, and takes them over with: it has
    /// claimed from here on.
    pub fn context(&self, epoch: u64) -> LogContext {
        let mut claimed = self.chain.claimed.lock();
        *claimed = (*claimed).max(Epoch(epoch));
        drop(claimed);
        LogContext {
            env: self.subject.env.clone(),
            incarnation: self.incarnation,
            database: self.incarnation.0,
            epoch: Epoch(epoch),
            chain: Arc::new(EpochChain { chain: Arc::clone(&self.chain), epoch: Epoch(epoch) }),
            objects: Arc::clone(&self.subject.objects),
            memory: Arc::new(Uncounted),
        }
    }

    /// Opens the log of an epoch.
    ///
    /// # Errors
    /// The store's.
    pub fn open(&self, epoch: u64, lanes: u32) -> Result<Arc<dyn Log>> {
        let context = self.context(epoch);
        self.subject.env.block_on(self.subject.store.open(&context, lanes))
    }

    /// The published record of a lane.
    ///
    /// # Panics
    /// When there is none: a log was not published.
    pub fn record(&self, epoch: u64, lane: u32) -> LogRecord {
        let found = self
            .chain
            .named()
            .into_iter()
            .find(|record| record.id.epoch == Epoch(epoch) && record.id.lane == lane);
        found.expect("opening a log publishes its record")
    }

    /// Fences a lane of `old` as epoch `new`.
    ///
    /// # Errors
    /// The store's.
    pub fn fence(&self, old: u64, lane: u32, new: u64, from: LogOffset) -> Result<LogOffset> {
        let (context, record) = (self.context(new), self.record(old, lane));
        self.subject.env.block_on(self.subject.store.fence(&context, &record, from))
    }

    /// Reads what a lane holds in `from..to`, as [`read_both_ways`].
    ///
    /// # Errors
    /// The store's.
    pub fn read(
        &self,
        old: u64,
        lane: u32,
        new: u64,
        from: LogOffset,
        to: LogOffset,
    ) -> Result<Vec<(LogEntry, LogOffset)>> {
        let (context, record) = (self.context(new), self.record(old, lane));
        self.subject.env.block_on(read_both_ways(&*self.subject.store, &context, &record, from, to))
    }

    /// Follows a lane from `from`, as one who claims nothing.
    ///
    /// # Errors
    /// The store's.
    pub fn tail(&self, epoch: u64, lane: u32, from: LogOffset) -> Result<Vec<(LogEntry, LogOffset)>> {
        let (context, record) = (self.context(0), self.record(epoch, lane));
        self.subject.env.block_on(async {
            let mut reader = self.subject.store.tail(&context, &record, from).await?;
            let mut entries = Vec::new();
            while let Some(entry) = reader.next().await? {
                entries.push(entry);
            }
            // Where the writer lives, all of it.
            reader.lacks().map_or(Ok(entries), Err)
        })
    }

    /// Frees a lane's log.
    ///
    /// # Errors
    /// The store's.
    pub fn free(&self, record: &LogRecord, new: u64) -> Result<()> {
        let context = self.context(new);
        self.subject.env.block_on(self.subject.store.free(&context, record))
    }
}

/// Reads what a log holds in `from..to`: entry by entry, and again in runs, which hold the same and
/// end alike.
///
/// # Errors
/// The store's.
///
/// # Panics
/// When they differ.
pub async fn read_both_ways(
    store: &dyn LogStore,
    context: &LogContext,
    record: &LogRecord,
    from: LogOffset,
    to: LogOffset,
) -> Result<Vec<(LogEntry, LogOffset)>> {
    let mut reader = store.read(context, record, from, to).await?;
    let mut entries = Vec::new();
    let ended = loop {
        match reader.next().await {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let mut reader = store.read(context, record, from, to).await?;
    let mut in_runs = Vec::new();
    let runs_ended = loop {
        match reader.next_run().await {
            Ok(Some(run)) => {
                assert!(
                    (1..=RUN_ENTRIES_MAX).contains(&run.entries.len()),
                    "a run of {} entries",
                    run.entries.len()
                );
                in_runs.extend(run.entries.iter().map(|entry| run.entry(entry)));
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    assert_eq!(in_runs, entries);
    assert_eq!(runs_ended.as_ref().err().map(Error::to_string), ended.as_ref().err().map(Error::to_string));
    ended.map(|()| entries)
}

/// An entry whose bytes are told by its number and size.
pub fn entry(number: u64, payload_bytes: usize) -> LogEntry {
    let mut byte = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7];
    // They come again after 256.
    let cycle = [0_u8; 256].map(|_| {
        byte = byte.wrapping_mul(29).wrapping_add(113);
        byte
    });
    let mut payload = cycle.repeat(payload_bytes.div_ceil(cycle.len()));
    payload.truncate(payload_bytes);
    LogEntry {
        stream: (number % 3) as u32,
        first_sequence: number,
        count: 1 + (number % 5) as u32,
        payload: payload.into(),
    }
}

/// Appends and waits until it is accepted.
///
/// # Errors
/// The log's.
pub fn append(env: &Env, log: &dyn Log, lane: u32, entry: &LogEntry) -> Result<LogOffset> {
    let appended = log.append(lane, entry)?;
    match appended.accepted {
        None => Ok(appended.end),
        Some(accepted) => match env.block_on(accepted) {
            Some(result) => result.map(|()| appended.end),
            None => Err(Error::new(ErrorKind::Closed, "the log ended")),
        },
    }
}

/// A check of one promise.
pub type LogCheck = fn(&LogSubject);

/// All checks, by name.
pub const LOG_CHECKS: &[(&str, LogCheck)] = &[
    ("what was appended is read back whole and in order", reads_back),
    ("a log is published before it is open", publishes_first),
    ("a fence refuses what comes after and holds what came before", fence_seals),
    ("a fence may be repeated, by any later epoch", fence_repeats),
    ("another lane takes the place of one that was given up", another_lane),
    ("durable is what a sync or a ticket says", durable),
    ("tickets of one lane all resolve", tickets),
    ("a follower sees what is durable, and nothing that a fence could take back", follows),
    ("lanes are logs of their own", lanes),
    ("trimmed log is given back, the rest stays", trims),
    ("a closed log refuses appends and keeps all", closes),
    ("a freed log is gone, and freeing again succeeds", frees),
    ("what nothing names is freed when a later epoch opens its log", frees_unnamed),
    ("wrong calls get typed errors", wrong_calls),
    ("entries of all sizes, over many segments", sizes),
    ("more entries than a run has", many),
];

/// Runs all checks.
///
/// # Panics
/// When a promise is broken, with the name of the check in the output.
pub fn check_log_store(subject: &LogSubject) {
    for (name, check) in LOG_CHECKS {
        tracing::debug!(name, "log store conformance");
        check(subject);
    }
}

fn entries_only(read: Vec<(LogEntry, LogOffset)>) -> Vec<LogEntry> {
    read.into_iter().map(|(entry, _)| entry).collect()
}

fn fill(
    subject: &LogSubject,
    log: &dyn Log,
    lane: u32,
    numbers: std::ops::Range<u64>,
    payload_bytes: usize,
) -> (Vec<LogEntry>, Vec<LogOffset>) {
    let entries: Vec<LogEntry> = numbers.map(|number| entry(number, payload_bytes)).collect();
    let ends = entries
        .iter()
        .map(|entry| append(&subject.env, log, lane, entry).expect("an append to an open log"))
        .collect();
    (entries, ends)
}

fn another_lane(subject: &LogSubject) {
    const LATER: u32 = 1 << 16;
    let history = LogHistory::new(subject);
    let (env, store) = (&subject.env, &subject.store);
    let first = history.open(1, 2).expect("opening");
    append(env, &*first, 0, &entry(1, 100)).expect("appending");
    first.give_up(0);
    let refused = first.append(0, &entry(2, 100)).expect_err("given up");
    assert_eq!(refused.kind(), ErrorKind::OutcomeUnknown, "{refused}");
    env.block_on(first.confirm()).expect("of a lane that was given up nobody asks");
    append(env, &*first, 1, &entry(3, 50)).expect("the other lane goes on");
    let (context, given_up) = (history.context(1), history.record(1, 0));
    let kept = history.free(&given_up, 1).expect_err("the chain names it");
    assert_eq!(kept.kind(), ErrorKind::Bug, "{kept}");
    history.chain.unname(&given_up);
    history.free(&given_up, 1).expect("freeing what is not named");
    let second = env.block_on(store.open_lane(&context, LATER)).expect("another lane");
    assert_eq!(second.lanes(), 1);
    let end = append(env, &*second, 0, &entry(4, 200)).expect("appending");
    second.sync(0, end).expect("a sync");
    env.block_on(first.close()).expect("closing leaves out what was given up");
    let sealed = history.fence(1, LATER, 2, LogOffset::ZERO).expect("fencing");
    assert!(sealed >= end, "sealed at {sealed} below {end}");
    let found = history.read(1, LATER, 2, LogOffset::ZERO, sealed).expect("reading");
    assert_eq!(found.into_iter().map(|(entry, _)| entry).collect::<Vec<_>>(), [entry(4, 200)]);
    let fenced = append(env, &*second, 0, &entry(5, 200)).expect_err("fenced");
    assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
}

fn reads_back(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let (entries, ends) = fill(subject, &*log, 0, 0..50, 100);
    assert!(ends.is_sorted_by(|a, b| a < b), "ends ascend: {ends:?}");
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    let read = history.read(5, 0, 9, LogOffset::ZERO, sealed).expect("reading");
    assert_eq!(
        read.iter().map(|(_, end)| *end).collect::<Vec<_>>(),
        ends,
        "a reader tells the offsets that the append told"
    );
    assert_eq!(entries_only(read), entries);
    let rest = history.read(5, 0, 9, ends[19], sealed).expect("reading from the middle");
    assert_eq!(entries_only(rest), entries[20..]);
    let start = history.read(5, 0, 9, LogOffset::ZERO, ends[9]).expect("reading up to the middle");
    assert_eq!(entries_only(start), entries[..10]);
    assert_eq!(history.read(5, 0, 9, sealed, sealed).expect("reading nothing"), []);
}

fn publishes_first(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    history.chain.refuse_next(Error::new(ErrorKind::Fenced, "another's record"));
    let error = history.open(5, 1).expect_err("a log that could not be published is not open");
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    let history = LogHistory::new(subject);
    let log = history.open(5, 3).expect("opening");
    assert_eq!(log.lanes(), 3);
    for lane in 0..3 {
        assert!(history.record(5, lane).configuration.len() <= 64 << 10);
    }
}

fn fence_seals(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let (entries, ends) = fill(subject, &*log, 0, 0..7, 333);
    subject.env.block_on(log.confirm()).expect("not fenced yet");
    let ticket = log.durable(0, ends[6]);
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    assert!(sealed >= ends[6], "an accepted append lies within the sealed length: {sealed} and {}", ends[6]);
    for number in 7..10 {
        let error =
            append(&subject.env, &*log, 0, &entry(number, 10)).expect_err("a fenced log accepts nothing");
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    }
    assert_eq!(subject.env.block_on(log.confirm()).expect_err("fenced").kind(), ErrorKind::Fenced);
    // What was accepted before may be acknowledged late: it lies within.
    match subject.env.block_on(ticket) {
        Some(Ok(())) => {}
        Some(Err(error)) => assert_eq!(error.kind(), ErrorKind::Fenced, "{error}"),
        None => panic!("a ticket was dropped"),
    }
    let read = entries_only(history.read(5, 0, 9, LogOffset::ZERO, sealed).expect("reading"));
    assert_eq!(read, entries);
}

fn fence_repeats(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let (entries, _) = fill(subject, &*log, 0, 0..20, 64);
    let first = history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    drop(append(&subject.env, &*log, 0, &entry(20, 64)).expect_err("fenced"));
    for epoch in [9, 10, 12] {
        let again = history.fence(5, 0, epoch, LogOffset::ZERO).expect("fencing again");
        assert!(again >= first, "a later fence yields no less: {again} after {first}");
        let read = entries_only(history.read(5, 0, epoch, LogOffset::ZERO, again).expect("reading"));
        assert_eq!(read[..20], entries);
    }
    let empty = LogHistory::new(subject);
    let _log = empty.open(1, 1).expect("opening");
    let sealed = empty.fence(1, 0, 2, LogOffset::ZERO).expect("fencing an empty log");
    assert_eq!(empty.read(1, 0, 2, LogOffset::ZERO, sealed).expect("reading an empty log"), []);
}

fn durable(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let (_, ends) = fill(subject, &*log, 0, 0..10, 500);
    log.sync(0, ends[4]).expect("a sync");
    assert!(log.durable_through(0) >= ends[4]);
    let before = log.durable_through(0);
    let ticket = log.durable(0, ends[9]);
    subject.env.block_on(ticket).expect("a ticket resolves").expect("a sync");
    assert!(log.durable_through(0) >= ends[9].max(before));
    log.sync(0, ends[2]).expect("what is durable stays so");
    log.sync(0, LogOffset::ZERO).expect("nothing is durable at once");
}

fn tickets(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let mut waiting = Vec::new();
    for number in 0..30 {
        let end = append(&subject.env, &*log, 0, &entry(number, 77)).expect("appending");
        waiting.push(log.durable(0, end));
        if number % 7 == 0 {
            log.sync(0, end).expect("a sync between tickets");
        }
    }
    for ticket in waiting {
        subject.env.block_on(ticket).expect("a ticket resolves").expect("a sync");
    }
}

fn follows(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    assert_eq!(history.tail(5, 0, LogOffset::ZERO).expect("following an empty log"), []);
    let (mut from, mut seen) = (LogOffset::ZERO, Vec::new());
    let mut entries = Vec::new();
    for round in 0..12 {
        let (more, ends) = fill(subject, &*log, 0, round * 10..round * 10 + 10, 4000);
        entries.extend(more);
        log.sync(0, ends[5]).expect("a sync");
        let (durable_min, durable_max) = (ends[5], log.durable_through(0));
        let read = history.tail(5, 0, from).expect("following");
        from = read.last().map_or(from, |(_, end)| *end);
        seen.extend(entries_only(read));
        assert!(from >= durable_min, "what was acknowledged as durable is seen: {from} and {durable_min}");
        assert!(
            from <= durable_max.max(durable_min),
            "nothing is seen that is not durable: {from} and {durable_max}"
        );
        assert_eq!(seen, entries[..seen.len()]);
        // A flush has stated a replay point: the log goes on without what lies before.
        log.trim(0, ends[0]).expect("trimming");
    }
    let sealed = history.fence(5, 0, 9, from).expect("fencing");
    assert!(sealed >= from, "no fence takes back what a follower saw: {sealed} and {from}");
    let rest = entries_only(history.read(5, 0, 9, from, sealed).expect("reading the rest"));
    assert_eq!(rest, entries[seen.len()..]);
}

fn lanes(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 2).expect("opening");
    let (left, _) = fill(subject, &*log, 0, 0..10, 40);
    let (right, ends) = fill(subject, &*log, 1, 100..105, 4000);
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing lane 0");
    assert_eq!(entries_only(history.read(5, 0, 9, LogOffset::ZERO, sealed).expect("reading lane 0")), left);
    let sealed = history.fence(5, 1, 9, LogOffset::ZERO).expect("fencing lane 1");
    assert!(sealed >= ends[4]);
    assert_eq!(entries_only(history.read(5, 1, 9, LogOffset::ZERO, sealed).expect("reading lane 1")), right);
}

fn trims(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let mut live_bytes_max = 0;
    let (mut entries, mut ends) = (Vec::new(), Vec::new());
    for round in 0..40 {
        let (more, more_ends) = fill(subject, &*log, 0, round * 40..round * 40 + 40, 1500);
        entries.extend(more);
        ends.extend(more_ends);
        log.sync(0, ends[ends.len() - 1]).expect("a sync");
        live_bytes_max = live_bytes_max.max(log.pressure(0).live_bytes);
        log.trim(0, ends[ends.len() - 30]).expect("trimming");
    }
    assert!(live_bytes_max < 1600 * 1500 / 2, "trimming gives back: {live_bytes_max} bytes live at most");
    let from = ends[ends.len() - 30];
    let sealed = history.fence(5, 0, 9, from).expect("fencing from the replay point");
    let read = entries_only(history.read(5, 0, 9, from, sealed).expect("reading from the replay point"));
    assert_eq!(read, entries[entries.len() - 29..]);
}

fn closes(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let (entries, ends) = fill(subject, &*log, 0, 0..12, 900);
    subject.env.block_on(log.close()).expect("closing");
    assert!(log.durable_through(0) >= ends[11], "closing makes all durable");
    let error = append(&subject.env, &*log, 0, &entry(12, 9)).expect_err("a closed log accepts nothing");
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    drop(log);
    let sealed = history.fence(5, 0, 6, LogOffset::ZERO).expect("fencing");
    assert_eq!(entries_only(history.read(5, 0, 6, LogOffset::ZERO, sealed).expect("reading")), entries);
}

fn frees(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    fill(subject, &*log, 0, 0..5, 100);
    history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    let record = history.record(5, 0);
    history.free(&record, 9).expect("freeing");
    history.free(&record, 9).expect("freeing again");
    let error =
        history.fence(5, 0, 10, LogOffset::ZERO).expect_err("a log that is gone is damage, not an empty log");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

fn frees_unnamed(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    for epoch in [5, 6] {
        let log = history.open(epoch, 1).expect("opening");
        fill(subject, &*log, 0, 0..5, 100);
        history.fence(epoch, 0, epoch + 1, LogOffset::ZERO).expect("fencing");
    }
    let unnamed = history.record(5, 0);
    history.chain.unname(&unnamed);
    let _log = history.open(9, 1).expect("opening");
    let context = history.context(9);
    let fence = || subject.env.block_on(subject.store.fence(&context, &unnamed, LogOffset::ZERO));
    let waits = (0..500).find(|_| {
        // A look names nothing anew.
        history.chain.refuse_next(Error::new(ErrorKind::Retry, "nothing is published"));
        let is_gone = fence().is_err_and(|error| error.kind() == ErrorKind::Corrupt);
        history.chain.accept();
        if !is_gone {
            subject.env.block_on(subject.env.sleep(std::time::Duration::from_millis(10)));
        }
        is_gone
    });
    assert!(waits.is_some(), "a log that nothing names is still there");
    history.fence(6, 0, 10, LogOffset::ZERO).expect("what is named stays");
}

fn wrong_calls(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    assert_eq!(
        append(&subject.env, &*log, 1, &entry(0, 1)).expect_err("no such lane").kind(),
        ErrorKind::Invalid
    );
    let beyond = LogOffset::new(1 << 20, 4096);
    assert_eq!(log.sync(0, beyond).expect_err("beyond the end").kind(), ErrorKind::Bug);
    let zeros = Bytes::from(vec![0; 512 << 20]);
    let large = LogEntry { stream: 0, first_sequence: 1, count: 1, payload: zeros };
    assert_eq!(
        append(&subject.env, &*log, 0, &large).expect_err("an entry beyond the limit").kind(),
        ErrorKind::Invalid
    );
    let end = append(&subject.env, &*log, 0, &entry(1, 8)).expect("a refused entry changes nothing");
    history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    let mut foreign = history.record(5, 0);
    foreign.configuration = Bytes::from_static(b"\x01of another store");
    let context = history.context(9);
    let error = subject
        .env
        .block_on(subject.store.fence(&context, &foreign, LogOffset::ZERO))
        .expect_err("another store's record");
    assert!(
        matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Unsupported),
        "{error}"
    );
    let error = history
        .read(5, 0, 9, LogOffset::ZERO, LogOffset::new(end.segment() + 7, 1 << 16))
        .expect_err("beyond the sealed length");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

fn sizes(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let mut entries = Vec::new();
    let mut end = LogOffset::ZERO;
    for (number, payload_bytes) in
        [0, 1, 7, 8, 9, 4095, 4096, 5000, 20_000, 1, 300_000, 64, 1 << 21, 3, 0].into_iter().enumerate()
    {
        let entry = entry(number as u64, payload_bytes);
        end = append(&subject.env, &*log, 0, &entry).expect("appending");
        entries.push(entry);
    }
    log.sync(0, end).expect("a sync over many segments");
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    assert_eq!(entries_only(history.read(5, 0, 9, LogOffset::ZERO, sealed).expect("reading")), entries);
}

fn many(subject: &LogSubject) {
    let history = LogHistory::new(subject);
    let log = history.open(5, 1).expect("opening");
    let count = 2 * RUN_ENTRIES_MAX as u64 + 300;
    let (mut entries, mut ends) = (Vec::new(), Vec::new());
    for number in 1..=count {
        let entry = entry(number, 10);
        let end = log.append(0, &entry).expect("appending").end;
        if number.is_multiple_of(100) || number == count {
            log.sync(0, end).expect("a sync");
        }
        entries.push(entry);
        ends.push(end);
    }
    let sealed = history.fence(5, 0, 9, LogOffset::ZERO).expect("fencing");
    assert_eq!(entries_only(history.read(5, 0, 9, LogOffset::ZERO, sealed).expect("reading")), entries);
    // From and to the middle of what would be runs.
    let (from, to) = (700, RUN_ENTRIES_MAX + 900);
    assert_eq!(
        entries_only(history.read(5, 0, 9, ends[from], ends[to]).expect("reading")),
        entries[from + 1..=to]
    );
}
