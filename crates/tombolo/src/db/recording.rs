//! Recording a database: the handle, and events that the other handles tell it.

use std::sync::Arc;

use tombolo_env::Instant;
use tombolo_format::expiry::{split_expiring, split_operand};
use tombolo_format::key::EntryKind;
use tombolo_format::trace::{Asked, Event, Found};
use tombolo_storage::Result;

use super::{Batch, Db, Handle, Keyspace};
use crate::blocks::Count;
use crate::db::noting::Noted;
use crate::op::Op;
use crate::recording::{RecordOptions, RecordReport, Recorder};
use crate::value::Value;

/// A running recording. It ends when this is dropped.
#[derive(Debug)]
pub struct Recording {
    handle: Arc<Handle>,
    recorder: Arc<Recorder>,
    is_ended: bool,
}

impl Recording {
    /// What it has done so far. Events that wait to be written are not counted.
    pub fn report(&self) -> RecordReport {
        self.recorder.report()
    }

    /// Ends it: writes events that wait, and closes the file. Newer ones may be missing. The
    /// report says whether it had ended before, by an error of the file or by its bounds: what was
    /// written until then can be read.
    pub fn stop(mut self) -> RecordReport {
        self.is_ended = true;
        self.end()
    }

    fn end(&self) -> RecordReport {
        let engine = &self.handle.engine;
        let report = engine.recording.end(&self.recorder);
        engine.streams.all().iter().for_each(|stream| stream.recording.follow(&engine.recording));
        report
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_ended {
            self.end();
        }
    }
}

impl Db {
    /// Records operations of this database, by whichever handle, until [`Recording::stop`]: keys,
    /// sizes, entries of scans, whether something was found, latencies. `tombolo workload` makes
    /// reports, models and benchmarks of the file.
    ///
    /// It costs some hundred instructions for an operation that is recorded, and some tens for one
    /// whose key is not sampled. Blocks are made and written in the background. No operation waits
    /// for the file: where it is too slow, events are dropped and counted.
    ///
    /// A multi-get is one event for each key, and so is a batch for each write. A scan is recorded
    /// when its cursor goes elsewhere, or is dropped; its latency is the time between. An operation
    /// whose [`Op`] is dropped before it has ended is not recorded.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("orders.trace");
    /// let db = tombolo::Db::builder("mem://recorded").open().wait()?;
    /// let recording = db.record(tombolo::RecordOptions::new(&path))?;
    /// db.default_keyspace().put(b"1", b"two books").wait()?;
    /// assert_eq!(recording.stop().events, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` when the file is there, or another recording runs; `Invalid` for options
    /// that contradict each other; those of making a file.
    pub fn record(&self, options: RecordOptions) -> Result<Recording> {
        let engine = self.engine();
        engine.check_open()?;
        let weak = Arc::downgrade(engine);
        let names = move |id| {
            let info = weak.upgrade()?.catalog.by_id(id)?;
            Some(info.name.to_string())
        };
        let recorder = engine.recording.begin(|| Recorder::begin(&engine.env, options, Box::new(names)))?;
        engine.streams.all().iter().for_each(|stream| stream.recording.follow(&engine.recording));
        Ok(Recording { handle: Arc::clone(&self.handle), recorder, is_ended: false })
    }

    /// A write of a batch, recorded if it took effect.
    #[cold]
    pub(super) fn recorded_write<T: Send + 'static>(
        &self,
        batch: Batch,
        write: impl FnOnce(Batch) -> Op<T>,
        is_met: impl Fn(&T) -> bool + Send + 'static,
    ) -> Op<T> {
        let write = |batch: Batch| {
            let asked: (&[u8], usize) = (&[], batch.len());
            Noted::later(Noted::begin(self.engine(), "write", None, asked), || write(batch))
        };
        let Some(recorder) = self.engine().recording.any() else { return write(batch) };
        let entries = batch_entries(&recorder, &batch);
        let begun = recorder.now();
        let told = Told::of_write(recorder, begun, entries);
        write(batch).told(move |ended| {
            if ended.as_ref().is_ok_and(&is_met) {
                told.ended(ended, |_, _| None);
            }
        })
    }
}

/// An event of an operation that has not ended, with bytes of its own.
struct Pending {
    asked: Asked,
    keyspace: u32,
    key: Vec<u8>,
    end: Vec<u8>,
    value_bytes: u32,
    /// Empty where only the size is recorded.
    value: Vec<u8>,
    ttl_ms: u64,
}

impl Pending {
    fn read(asked: Asked, keyspace: u32, key: &[u8]) -> Pending {
        let (key, end, value) = (key.to_vec(), Vec::new(), Vec::new());
        Pending { asked, keyspace, key, end, value_bytes: 0, value, ttl_ms: 0 }
    }
}

/// The operation of an entry that is written, its value, and the moment at which that ends.
fn written(kind: EntryKind, value: &[u8]) -> Option<(Asked, &[u8], Option<u64>)> {
    Some(match kind {
        EntryKind::Put => (Asked::Put, value, None),
        EntryKind::ExpiringPut => {
            let (value, expires_ms) = split_expiring(value).ok()?;
            (Asked::Put, value, Some(expires_ms))
        }
        EntryKind::Delete => (Asked::Delete, value, None),
        EntryKind::SingleDelete => (Asked::SingleDelete, value, None),
        EntryKind::Merge => (Asked::Merge, value, None),
        EntryKind::ExpiringMerge => {
            let (operand, times) = split_operand(value).ok()?;
            (Asked::Merge, operand, Some(times.expires_ms))
        }
        EntryKind::RangeDelete => (Asked::RangeDelete, value, None),
        _ => return None,
    })
}

fn pending(recorder: &Recorder, keyspace: u32, kind: EntryKind, key: &[u8], value: &[u8]) -> Option<Pending> {
    if !recorder.samples(key) {
        return None;
    }
    let (asked, value, expires_ms) = written(kind, value)?;
    let (end, value) = if asked == Asked::RangeDelete { (value, &[][..]) } else { (&[][..], value) };
    let ttl_ms = expires_ms.map_or(0, |at| at.saturating_sub(recorder.unix_ms()).max(1));
    let value_bytes = bytes_of(value.len());
    let value = if recorder.keeps(value) { value } else { &[] };
    let (key, end, value) = (key.to_vec(), end.to_vec(), value.to_vec());
    Some(Pending { asked, keyspace, key, end, value_bytes, value, ttl_ms })
}

fn batch_entries(recorder: &Recorder, batch: &Batch) -> Vec<Pending> {
    let operations = batch.prepared.batch.operations();
    let entry = |operation| match operation {
        Ok(tombolo_format::batch::Operation::Entry { kind, keyspace, key, value }) => {
            pending(recorder, keyspace, kind, key, value)
        }
        _ => None,
    };
    operations.filter_map(entry).collect()
}

/// Entries that are told of when their operation ends.
struct Told {
    recorder: Arc<Recorder>,
    begun: Instant,
    entries: Vec<Pending>,
    /// Of a read: blocks that it asked for.
    blocks: Arc<Count>,
}

impl Told {
    fn of_write(recorder: Arc<Recorder>, begun: Instant, entries: Vec<Pending>) -> Told {
        Told { recorder, begun, entries, blocks: Arc::default() }
    }

    /// The operation has ended: of a read, each of its entries with a value of so many bytes, or
    /// with none. One that failed is not told of.
    fn ended<T>(&self, result: &Result<T>, found: impl Fn(&T, usize) -> Option<(bool, usize)>) {
        let Ok(value) = result else { return };
        let latency = self.recorder.now().since(self.begun);
        for (index, entry) in self.entries.iter().enumerate() {
            let mut event = Event::new(0, entry.asked, entry.keyspace, &entry.key);
            event.end = &entry.end;
            event.value = &entry.value;
            event.value_bytes = entry.value_bytes;
            event.ttl_ms = entry.ttl_ms;
            event.joined = index > 0;
            if index == 0 {
                let asked = self.blocks.get();
                (event.blocks_read, event.blocks_hit) = (asked.read, asked.hit);
            }
            if let Some((found, bytes)) = found(value, index) {
                event.found = Found::from(found);
                event.value_bytes = bytes_of(bytes);
            }
            self.recorder.add_with(self.begun, latency, &event);
        }
    }
}

fn bytes_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl Keyspace {
    /// An operation of this keyspace that begins now, if somebody wants to know of it.
    #[cold]
    pub(super) fn noted(&self, operation: &'static str, key: &[u8], entries: usize) -> Option<Noted> {
        Noted::begin(&self.handle().engine, operation, Some(&self.info().name), (key, entries))
    }

    /// A write of one entry, recorded if it took effect.
    #[cold]
    pub(super) fn recorded_one<T: Send + 'static>(
        &self,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
        write: impl FnOnce() -> Op<T>,
        is_met: impl Fn(&T) -> bool + Send + 'static,
    ) -> Op<T> {
        let operation = written(kind, value).map_or("write", |(asked, _, _)| asked.name());
        let write = || Noted::later(self.noted(operation, key, 1), write);
        let Some(recorder) = self.handle().engine.recording.of(key) else { return write() };
        let Some(entry) = pending(&recorder, self.id(), kind, key, value) else { return write() };
        let begun = recorder.now();
        let told = Told::of_write(recorder, begun, vec![entry]);
        write().told(move |ended| {
            if ended.as_ref().is_ok_and(&is_met) {
                told.ended(ended, |_, _| None);
            }
        })
    }

    /// A read of one key, recorded; it waits here.
    #[cold]
    pub(super) fn recorded_here<T>(
        &self,
        key: &[u8],
        read: impl FnOnce() -> Result<Option<T>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<Option<T>> {
        let read = || Noted::here(self.noted("get", key, 1), read);
        let Some(recorder) = self.handle().engine.recording.of(key) else { return read() };
        let (begun, blocks) = (recorder.now(), Arc::new(Count::default()));
        let value = blocks.within(read)?;
        let mut event = Event::new(0, Asked::Get, self.id(), key);
        event.found = Found::from(value.is_some());
        event.value_bytes = value.as_ref().map_or(0, |value| bytes_of(bytes(value)));
        (event.blocks_read, event.blocks_hit) = (blocks.get().read, blocks.get().hit);
        recorder.add(begun, &event);
        Ok(value)
    }

    /// A read of one key, recorded when it has ended.
    #[cold]
    pub(super) fn recorded_get<T: Send + 'static>(
        &self,
        key: &[u8],
        read: impl FnOnce() -> Op<Option<T>>,
        bytes: impl Fn(&T) -> usize + Send + 'static,
    ) -> Op<Option<T>> {
        let read = || Noted::later(self.noted("get", key, 1), read);
        let Some(recorder) = self.handle().engine.recording.of(key) else { return read() };
        let entry = Pending::read(Asked::Get, self.id(), key);
        let begun = recorder.now();
        let blocks = Arc::<Count>::default();
        let told = Told { recorder, begun, entries: vec![entry], blocks: Arc::clone(&blocks) };
        let found = move |value: &Option<T>, _| Some((value.is_some(), value.as_ref().map_or(0, &bytes)));
        blocks.within(read).told(move |ended| told.ended(ended, &found))
    }

    /// A multi-get that waits here, recorded.
    #[cold]
    pub(super) fn recorded_several<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        read: impl FnOnce() -> Result<Vec<Option<Value>>>,
    ) -> Result<Vec<Option<Value>>> {
        let read = || Noted::here(self.noted("multi_get", &[], keys.len()), read);
        let Some(recorder) = self.handle().engine.recording.any() else { return read() };
        let (begun, blocks) = (recorder.now(), Arc::new(Count::default()));
        let values = blocks.within(read)?;
        let latency = recorder.now().since(begun);
        let mut joined = false;
        for (key, value) in keys.iter().zip(&values).filter(|(key, _)| recorder.samples(key.as_ref())) {
            let mut event = Event::new(0, Asked::MultiGet, self.id(), key.as_ref());
            event.found = Found::from(value.is_some());
            event.value_bytes = value.as_ref().map_or(0, |value| bytes_of(value.len()));
            event.joined = std::mem::replace(&mut joined, true);
            if !event.joined {
                (event.blocks_read, event.blocks_hit) = (blocks.get().read, blocks.get().hit);
            }
            recorder.add_with(begun, latency, &event);
        }
        Ok(values)
    }

    /// A multi-get, recorded when it has ended.
    #[cold]
    pub(super) fn recorded_several_later<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        read: impl FnOnce() -> Op<Vec<Option<Value>>>,
    ) -> Op<Vec<Option<Value>>> {
        let read = || Noted::later(self.noted("multi_get", &[], keys.len()), read);
        let Some(recorder) = self.handle().engine.recording.any() else { return read() };
        let entry = |key: &[u8]| Pending::read(Asked::MultiGet, self.id(), key);
        let sampled = keys.iter().map(AsRef::as_ref).enumerate().filter(|(_, key)| recorder.samples(key));
        let (places, entries): (Vec<usize>, _) = sampled.map(|(place, key)| (place, entry(key))).unzip();
        let begun = recorder.now();
        let blocks = Arc::<Count>::default();
        let told = Told { recorder, begun, entries, blocks: Arc::clone(&blocks) };
        let found = move |values: &Vec<Option<Value>>, index: usize| {
            let value = values.get(*places.get(index)?)?.as_ref();
            Some((value.is_some(), value.map_or(0, |value| value.len())))
        };
        blocks.within(read).told(move |ended| told.ended(ended, &found))
    }
}

/// A walk of a cursor that is recorded when it ends.
pub(super) struct Walk {
    recorder: Arc<Recorder>,
    keyspace: u32,
    asked: Asked,
    key: Vec<u8>,
    begun: Instant,
    entries: u32,
    value_bytes: u64,
    is_sampled: bool,
    /// Whether there is something to tell.
    has_moved: bool,
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Walk").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl Walk {
    /// Of a cursor that stands before the first entry from `from` on.
    #[cold]
    pub(super) fn begin(keyspace: &Keyspace, from: &[u8]) -> Option<Box<Walk>> {
        let recorder = keyspace.handle().engine.recording.any()?;
        let (begun, is_sampled) = (recorder.now(), recorder.samples(from));
        let (keyspace, key) = (keyspace.id(), from.to_vec());
        let asked = Asked::Scan;
        let (entries, value_bytes, has_moved) = (0, 0, false);
        let walk =
            Walk { recorder, keyspace, asked, key, begun, entries, value_bytes, is_sampled, has_moved };
        Some(Box::new(walk))
    }

    /// It goes elsewhere: what it walked until now is told.
    #[cold]
    pub(super) fn turn(&mut self, asked: Asked, from: &[u8]) {
        self.tell();
        (self.asked, self.entries, self.value_bytes) = (asked, 0, 0);
        (self.begun, self.is_sampled) = (self.recorder.now(), self.recorder.samples(from));
        self.key.clear();
        self.key.extend_from_slice(from);
        // A seek that finds nothing is a walk, too.
        self.has_moved = true;
    }

    /// It stands at an entry, or at none.
    #[cold]
    pub(super) fn stood(&mut self, value: Option<usize>) {
        self.has_moved = true;
        if let Some(bytes) = value {
            self.entries += 1;
            self.value_bytes += bytes as u64;
        }
    }

    fn tell(&mut self) {
        if !self.has_moved || !self.is_sampled {
            return;
        }
        let mut event = Event::new(0, self.asked, self.keyspace, &self.key);
        event.entries = self.entries;
        event.found = Found::from(self.entries > 0);
        event.value_bytes = u32::try_from(self.value_bytes).unwrap_or(u32::MAX);
        self.recorder.add(self.begun, &event);
        self.has_moved = false;
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.tell();
    }
}
