//! Operations of an open database, written to a trace file while it goes on.
//!
//! `handle → buffer of the thread → block → file`. A thread puts its events into a buffer of its
//! own. A full buffer goes to a queue, and a background task makes blocks of it and writes them.
//!
//! Invariants:
//! 1. A database that is not recorded pays two loads and a branch for each operation.
//! 2. Memory is bounded: what finds the queue full is dropped and counted. No caller waits for the
//!    file.
//! 3. A file that cannot be written ends the recording, and the database goes on.

#[cfg(test)]
mod tests;
mod writer;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tombolo_env::{Env, Instant, TaskClass};
use tombolo_format::checksum::{key_hash, mix64};
use tombolo_format::trace::{Asked, Event, Found, TracedKeys};
use tombolo_storage::{Error, ErrorKind, Result};
use tracing::level_filters::LevelFilter;

use self::writer::Writer;
use crate::slow::SlowOperations;

/// Events of a thread's buffer.
const BUFFER_EVENTS: usize = 512;
/// Bytes of keys and values at which a buffer counts as full, too.
const BUFFER_BYTES: usize = 128 << 10;
/// Longest value that is recorded whole; of a longer one only the size.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Threads that are told apart.
const BUFFERS_KEPT: usize = 4;

/// How keys are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordKeys {
    /// As they are.
    #[default]
    Clear,
    /// As hashes of 16 bytes: neither order nor prefixes stay.
    Hashed,
    /// Replaced by keys of twice the bytes, such that order and common prefixes stay. It still
    /// shows how long keys are, how many bytes two keys share, and how often each is asked for.
    Anonymised,
}

/// The bounds of a recording, and its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// The file. It must not be there. With [`RecordOptions::file_bytes_max`] the second has `.2`
    /// behind its name, and so on.
    pub path: PathBuf,
    /// Of how many keys one is recorded, chosen by its hash: all that happens to it is. 1 is all.
    pub sampled_one_in: u32,
    /// How keys are recorded.
    pub keys: RecordKeys,
    /// The secret by which keys are hashed or anonymised; drawn at random when there is none. Two
    /// recordings with one secret have the same keys.
    pub secret: Option<u64>,
    /// Whether values are recorded, and not only their sizes.
    pub values: bool,
    /// Most bytes of a file, about: then the next one begins. `None` is one file.
    pub file_bytes_max: Option<u64>,
    /// Most files; the oldest goes when there is one too many. `None` keeps all.
    pub files_max: Option<u32>,
    /// Most bytes of all files that are kept: then the recording ends.
    pub bytes_max: u64,
    /// Most bytes of memory of events that wait to be written.
    pub memory_bytes_max: u64,
}

impl RecordOptions {
    /// Everything of all keys as they are, without values, into one file of at most 64 GiB.
    pub fn new(path: impl Into<PathBuf>) -> RecordOptions {
        RecordOptions {
            path: path.into(),
            sampled_one_in: 1,
            keys: RecordKeys::Clear,
            secret: None,
            values: false,
            file_bytes_max: None,
            files_max: None,
            bytes_max: 64 << 30,
            memory_bytes_max: 32 << 20,
        }
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::Invalid, format!("a recording {what}")));
        if self.sampled_one_in == 0 {
            return refuse("of one in 0 keys: 1 is all of them");
        }
        if self.files_max == Some(0) || self.files_max.is_some() && self.file_bytes_max.is_none() {
            return refuse("that keeps a number of files says how long one is, and keeps one at least");
        }
        if self.file_bytes_max.is_some_and(|bytes| bytes < 1 << 16) || self.bytes_max < 1 << 16 {
            return refuse("has at least 64 KiB in a file");
        }
        Ok(())
    }

    fn traced_keys(&self) -> TracedKeys {
        match self.keys {
            RecordKeys::Clear => TracedKeys::Clear,
            RecordKeys::Hashed => TracedKeys::Hashed,
            RecordKeys::Anonymised => TracedKeys::Anonymised,
        }
    }
}

/// What a recording has done so far.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecordReport {
    /// Events in the files, those of files that went included.
    pub events: u64,
    /// Events that were not recorded, since events came faster than they could be written.
    pub dropped: u64,
    /// Bytes written.
    pub bytes: u64,
    /// The files that are there, oldest first.
    pub files: Vec<PathBuf>,
    /// Why it ended by itself, if it did.
    pub ended: Option<Error>,
}

/// One event in a buffer. Its bytes lie in the buffer's arena.
#[derive(Clone, Copy, Debug)]
struct Entry {
    time_ns: u64,
    latency_ns: u64,
    ttl_ms: u64,
    keyspace: u32,
    value_bytes: u32,
    entries: u32,
    key_bytes: u32,
    end_bytes: u32,
    recorded_bytes: u32,
    blocks_read: u32,
    blocks_hit: u32,
    asked: Asked,
    found: Found,
    joined: bool,
}

/// What one thread recorded.
#[derive(Debug, Default)]
struct Buffer {
    thread: u32,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// The recording ended: nothing is taken any more.
    is_closed: bool,
}

impl Buffer {
    fn is_full(&self) -> bool {
        self.entries.len() >= BUFFER_EVENTS || self.bytes.len() >= BUFFER_BYTES
    }

    fn memory_bytes(&self) -> u64 {
        (self.entries.len() * size_of::<Entry>() + self.bytes.len()) as u64
    }

    /// Its content, with which it begins anew.
    fn take(&mut self) -> Buffer {
        let entries = std::mem::replace(&mut self.entries, Vec::with_capacity(BUFFER_EVENTS));
        Buffer { thread: self.thread, entries, bytes: std::mem::take(&mut self.bytes), is_closed: false }
    }

    fn events(&self) -> impl Iterator<Item = Event<'_>> {
        let mut rest = &self.bytes[..];
        let mut cut = move |bytes: u32| {
            let (taken, left) = rest.split_at(bytes as usize);
            rest = left;
            taken
        };
        self.entries.iter().map(move |entry| Event {
            time_ns: entry.time_ns,
            asked: entry.asked,
            keyspace: entry.keyspace,
            thread: self.thread,
            key: cut(entry.key_bytes),
            end: cut(entry.end_bytes),
            value_bytes: entry.value_bytes,
            value: cut(entry.recorded_bytes),
            entries: entry.entries,
            found: entry.found,
            joined: entry.joined,
            blocks_read: entry.blocks_read,
            blocks_hit: entry.blocks_hit,
            latency_ns: entry.latency_ns,
            ttl_ms: entry.ttl_ms,
        })
    }
}

thread_local! {
    /// The buffers of this thread, by the number of their recording.
    static BUFFERS: RefCell<Vec<(u64, Arc<Mutex<Buffer>>)>> = const { RefCell::new(Vec::new()) };
}

/// Numbers recordings of this process, so that a thread finds its buffer again.
static RECORDINGS: AtomicU64 = AtomicU64::new(1);

/// Says the name of a keyspace.
pub(crate) type NameOf = Box<dyn Fn(u32) -> Option<String> + Send + Sync>;

/// One recording. See the module's documentation.
pub(crate) struct Recorder {
    number: u64,
    env: Env,
    options: RecordOptions,
    started: Instant,
    /// Keys are sampled whose mixed hash does not exceed it.
    sampled_max: u64,
    threads: AtomicU32,
    buffers: Mutex<Vec<Arc<Mutex<Buffer>>>>,
    queue: Mutex<Queue>,
    writer: Mutex<Writer>,
    dropped: AtomicU64,
    has_failed: AtomicBool,
}

/// Buffers that wait to be written.
#[derive(Default)]
struct Queue {
    buffers: VecDeque<Buffer>,
    bytes: u64,
    /// A task is on its way to write them.
    is_served: bool,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Recorder").field("path", &self.options.path).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins a recording: makes its file.
    pub(crate) fn begin(env: &Env, options: RecordOptions, names: NameOf) -> Result<Arc<Recorder>> {
        options.check()?;
        let writer = Writer::begin(env, &options, names)?;
        Ok(Arc::new(Recorder {
            number: RECORDINGS.fetch_add(1, Ordering::Relaxed),
            env: env.clone(),
            started: env.now(),
            sampled_max: u64::MAX / u64::from(options.sampled_one_in),
            options,
            threads: AtomicU32::new(0),
            buffers: Mutex::default(),
            queue: Mutex::default(),
            writer: Mutex::new(writer),
            dropped: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        }))
    }

    /// Whether all that happens to `key` is recorded.
    #[inline]
    pub(crate) fn samples(&self, key: &[u8]) -> bool {
        self.sampled_max == u64::MAX || mix64(key_hash(key) ^ 0x7472_6163_6564) <= self.sampled_max
    }

    /// Whether a value is recorded, and not only its size.
    pub(crate) fn keeps(&self, value: &[u8]) -> bool {
        self.options.values && value.len() <= VALUE_BYTES_MAX
    }

    pub(crate) fn now(&self) -> Instant {
        self.env.now()
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        u64::try_from(self.env.unix_time().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records what began at `begun` and ends now. The event's own time and latency do not count.
    pub(crate) fn add(self: &Arc<Recorder>, begun: Instant, event: &Event<'_>) {
        let latency = self.env.now().since(begun);
        self.add_with(begun, latency, event);
    }

    /// As [`Recorder::add`], with the latency said.
    pub(crate) fn add_with(self: &Arc<Recorder>, begun: Instant, latency: Duration, event: &Event<'_>) {
        let entry = Entry {
            time_ns: nanos(begun.since(self.started)),
            latency_ns: nanos(latency),
            ttl_ms: event.ttl_ms,
            keyspace: event.keyspace,
            value_bytes: event.value_bytes,
            entries: event.entries,
            key_bytes: count(event.key.len()),
            end_bytes: count(event.end.len()),
            recorded_bytes: 0,
            blocks_read: event.blocks_read,
            blocks_hit: event.blocks_hit,
            asked: event.asked,
            found: event.found,
            joined: event.joined,
        };
        // A thread that records while it ends, or within this very function, goes without.
        let _ = BUFFERS.try_with(|buffers| {
            let Ok(mut buffers) = buffers.try_borrow_mut() else { return };
            let mine = match buffers.iter().find(|(number, _)| *number == self.number) {
                Some((_, mine)) => mine,
                None => {
                    buffers.truncate(BUFFERS_KEPT - 1);
                    buffers.insert(0, (self.number, self.new_buffer()));
                    &buffers[0].1
                }
            };
            let mut buffer = mine.lock();
            if buffer.is_closed {
                return;
            }
            let value = if self.keeps(event.value) { event.value } else { &[] };
            buffer.entries.push(Entry { recorded_bytes: count(value.len()), ..entry });
            for bytes in [event.key, event.end, value] {
                buffer.bytes.extend_from_slice(bytes);
            }
            if buffer.is_full() {
                let full = buffer.take();
                drop(buffer);
                self.hand_over(full);
            }
        });
    }

    #[cold]
    fn new_buffer(self: &Arc<Recorder>) -> Arc<Mutex<Buffer>> {
        let thread = self.threads.fetch_add(1, Ordering::Relaxed);
        let buffer = Arc::new(Mutex::new(Buffer { thread, ..Buffer::default() }));
        let mut buffers = self.buffers.lock();
        // Threads that have ended left theirs behind.
        let mut left = Vec::new();
        buffers.retain(|buffer| {
            let is_used = Arc::strong_count(buffer) > 1;
            if !is_used {
                left.push(buffer.lock().take());
            }
            is_used
        });
        buffers.push(Arc::clone(&buffer));
        drop(buffers);
        left.into_iter().filter(|left| !left.entries.is_empty()).for_each(|left| self.hand_over(left));
        buffer
    }

    /// A full buffer: it waits for the task, unless too much waits already.
    #[cold]
    fn hand_over(self: &Arc<Recorder>, full: Buffer) {
        let mut queue = self.queue.lock();
        let bytes = full.memory_bytes();
        if queue.bytes + bytes > self.options.memory_bytes_max {
            self.dropped.fetch_add(full.entries.len() as u64, Ordering::Relaxed);
            return;
        }
        queue.bytes += bytes;
        queue.buffers.push_back(full);
        if std::mem::replace(&mut queue.is_served, true) {
            return;
        }
        drop(queue);
        let recorder = Arc::clone(self);
        let task = async move { recorder.serve() };
        self.env.spawn(TaskClass::Background, "record", task).detach();
    }

    /// Writes what waits.
    fn serve(&self) {
        let mut writer = self.writer.lock();
        loop {
            let next = {
                let mut queue = self.queue.lock();
                let next = queue.buffers.pop_front();
                match &next {
                    Some(next) => queue.bytes -= next.memory_bytes(),
                    None => queue.is_served = false,
                }
                next
            };
            let Some(next) = next else { return };
            self.write(&mut writer, &next);
        }
    }

    fn write(&self, writer: &mut Writer, buffer: &Buffer) {
        if writer.write(buffer.entries.len() as u64, buffer.events()).is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Takes nothing any more, and writes what there is.
    pub(crate) fn end(&self) -> RecordReport {
        let buffers = std::mem::take(&mut *self.buffers.lock());
        let last: Vec<Buffer> = buffers
            .iter()
            .map(|buffer| {
                let mut buffer = buffer.lock();
                buffer.is_closed = true;
                buffer.take()
            })
            .collect();
        self.serve();
        let mut writer = self.writer.lock();
        for buffer in last.iter().filter(|buffer| !buffer.entries.is_empty()) {
            self.write(&mut writer, buffer);
        }
        writer.end(self.dropped.load(Ordering::Relaxed));
        self.report_of(&writer)
    }

    /// What it has done so far.
    pub(crate) fn report(&self) -> RecordReport {
        self.report_of(&self.writer.lock())
    }

    fn report_of(&self, writer: &Writer) -> RecordReport {
        let report = writer.report();
        RecordReport { dropped: report.dropped + self.dropped.load(Ordering::Relaxed), ..report }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Whether somebody wants to know of each operation: a recording, the log of slow ones, or a
/// subscriber of their spans.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    is_on: AtomicBool,
    recorder: ArcSwapOption<Recorder>,
    slow: SlowOperations,
    /// Held while a recording begins or ends, so that both fields change together. No operation of
    /// the database takes it.
    changes: Mutex<()>,
}

impl Switch {
    /// Of a database in which operations that take so long are slow.
    pub(crate) fn new(slow_from: Option<Duration>) -> Switch {
        let switch = Switch::default();
        switch.set_slow_from(slow_from);
        switch
    }

    /// Whether somebody wants to know of operations: two loads, and a branch for the caller.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed) | (LevelFilter::current() >= LevelFilter::DEBUG)
    }

    /// The operations that took long.
    pub(crate) fn slow(&self) -> &SlowOperations {
        &self.slow
    }

    /// Says from when on an operation is slow.
    pub(crate) fn set_slow_from(&self, from: Option<Duration>) {
        let _changes = self.changes.lock();
        self.slow.set_from(from);
        self.turn();
    }

    /// Turns it on or off; within `changes`.
    fn turn(&self) {
        let is_on = self.slow.is_on() || self.recorder.load().is_some();
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// The recorder, if it records `key`.
    #[cold]
    pub(crate) fn of(&self, key: &[u8]) -> Option<Arc<Recorder>> {
        self.any().filter(|recorder| recorder.samples(key))
    }

    /// The recorder.
    #[cold]
    pub(crate) fn any(&self) -> Option<Arc<Recorder>> {
        self.recorder.load_full().filter(|recorder| !recorder.has_failed())
    }

    /// Records from here on.
    ///
    /// # Errors
    /// `AlreadyExists` while another one records.
    pub(crate) fn begin(&self, begin: impl FnOnce() -> Result<Arc<Recorder>>) -> Result<Arc<Recorder>> {
        let _changes = self.changes.lock();
        if self.recorder.load().is_some() {
            let error = Error::new(ErrorKind::AlreadyExists, "this database is recorded already");
            return Err(error.advice("stop that recording first"));
        }
        let recorder = begin()?;
        self.recorder.store(Some(Arc::clone(&recorder)));
        self.turn();
        Ok(recorder)
    }

    /// Records from here on what the main stream's does: after that has changed, and once a stream
    /// is shown to those who change it.
    pub(crate) fn follow(&self, main: &Switch) {
        let _main_changes = main.changes.lock();
        let _changes = self.changes.lock();
        self.recorder.store(main.recorder.load_full());
        self.turn();
    }

    /// Ends that recording, if it is the one.
    pub(crate) fn end(&self, recorder: &Arc<Recorder>) -> RecordReport {
        let changes = self.changes.lock();
        if self.recorder.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, recorder)) {
            self.recorder.store(None);
            self.turn();
        }
        drop(changes);
        recorder.end()
    }
}
