//! The flash cache's files: read when it is opened, written by its task, one step of some hundred
//! KiB at a time.
//!
//! ```text
//! oldest region ... newest sealed region | open region <- the kept part of the last one that went, offered pieces
//! ```
//!
//! Invariants:
//! 1. The index names a piece only after the bytes were handed to the file system.
//! 2. `fifo` has the sealed regions, by ascending numbers; the open one has a greater number than
//!    all.
//! 3. An error leaves no half-written region that is named: the open one is given up with what it
//!    has.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tombolo_env::{Access, File, file::read_exact_at};
use tombolo_format::flash::{
    FLASH_RECORD_BYTES, FlashKey, FlashRecord, REGION_FOOTER_BYTES, REGION_HEADER_BYTES, RegionFooter,
    RegionHeader, encode_region_end, region_end_bytes,
};
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::admission::Bucket;
use super::index::Place;
use super::{Counters, Inner, Offered, Region, fingerprint};
use crate::budget::Charge;

/// Bytes written in one step.
const STEP_BYTES: usize = 256 << 10;
/// Bytes read at a time where records are walked.
const WALK_BYTES: usize = 1 << 20;
const SUFFIX: &str = ".region";

/// The region that is written.
struct Open {
    region: Arc<Region>,
    /// Where the next record begins, `buffer` included.
    end: u64,
    buffer: Vec<u8>,
    records: Vec<FlashRecord>,
    /// Of `records`, those that the index names.
    named: usize,
}

/// A piece that was read, of a region that went.
struct Kept {
    region: Arc<Region>,
    at: u32,
}

/// What the task works on.
pub(super) struct Writer {
    /// `None`: the directory is another's.
    lock: Option<Arc<dyn File>>,
    fifo: VecDeque<Arc<Region>>,
    open: Option<Open>,
    /// Bytes of the files in `fifo`.
    sealed_bytes: u64,
    next_number: u64,
    kept: VecDeque<Kept>,
    /// How much more may be kept of the region that went last.
    kept_bytes_left: u64,
    /// What the disk has room for, as far as is known; at most the cache's bytes.
    room_bytes: u64,
    /// The index has no memory for more.
    is_short: bool,
    /// Of `open`.
    memory: Charge,
}

impl Writer {
    pub(super) fn new(lock: Arc<dyn File>, memory: Charge) -> Writer {
        Writer {
            lock: Some(lock),
            fifo: VecDeque::new(),
            open: None,
            sealed_bytes: 0,
            next_number: 1,
            kept: VecDeque::new(),
            kept_bytes_left: 0,
            room_bytes: u64::MAX,
            is_short: false,
            memory,
        }
    }

    /// Lets another process use the directory; nothing is written or removed from here on.
    pub(super) fn let_go(&mut self) {
        (self.lock, self.open) = (None, None);
        self.kept.clear();
    }
}

/// The number in a region's name.
pub(super) fn region_number(name: &str) -> Option<u64> {
    let digits = name
        .strip_suffix(SUFFIX)
        .filter(|digits| digits.len() == 16 && !digits.contains(|digit: char| !digit.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok()
}

fn region_name(number: u64) -> String {
    format!("{number:016x}{SUFFIX}")
}

/// The cache's task.
pub(super) async fn run(inner: Arc<Inner>) {
    inner.load().await;
    loop {
        let offered = inner.offered.subscribe();
        let more = inner.step();
        if inner.is_closed() {
            return inner.writer.lock().let_go();
        }
        if more {
            let_others_run().await;
            continue;
        }
        if inner.rests_idle() {
            inner.progress.raise();
            let _woken = offered.await;
        }
    }
}

async fn let_others_run() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Inner {
    /// Takes note that there is nothing to do, if so.
    fn rests_idle(&self) -> bool {
        let queue = self.queue.lock();
        let idle = queue.offered.is_empty();
        self.idle.store(idle, Ordering::Release);
        idle
    }

    /// Finds the regions there, newest first. Unsound ones, and those beyond the size, are removed.
    async fn load(&self) {
        let numbers = self.env.files().list_atomically(&self.directory).map(|entries| {
            let mut numbers: Vec<u64> =
                entries.iter().filter_map(|entry| region_number(&entry.name)).collect();
            numbers.sort_unstable_by(|one, other| other.cmp(one));
            numbers
        });
        let numbers = match numbers {
            Ok(numbers) => numbers,
            Err(error) => {
                self.writes.begin(self, "listing the directory", &error);
                Vec::new()
            }
        };
        let room = self.bytes.saturating_sub(self.region_bytes);
        for number in numbers {
            {
                let mut writer = self.writer.lock();
                if writer.lock.is_none() {
                    return;
                }
                writer.next_number = writer.next_number.max(number.saturating_add(1));
                let path = self.directory.join(region_name(number));
                let room = room.saturating_sub(writer.sealed_bytes);
                let slot = writer.fifo.len();
                match u16::try_from(slot)
                    .map_err(|_| io::ErrorKind::OutOfMemory.into())
                    .and_then(|slot| self.recover(&path, number, slot, room))
                {
                    Ok(Some((region, records))) if !writer.is_short => {
                        let region = Arc::new(region);
                        writer.sealed_bytes += region.bytes;
                        writer.fifo.push_front(Arc::clone(&region));
                        self.regions.write().push(Some(Arc::clone(&region)));
                        for record in records {
                            let place = Place { region: region.slot, at: record.at, uses: 0 };
                            writer.is_short |= !self.index.insert_older(fingerprint(record.key), place);
                        }
                    }
                    Ok(_) => self.remove(&path),
                    Err(error) => {
                        Counters::one(&self.counters.errors);
                        tracing::debug!(path = %path.display(), %error, "a region of the flash cache could \
                            not be read");
                        self.remove(&path);
                    }
                }
            }
            let_others_run().await;
        }
        let sealed_bytes = self.writer.lock().sealed_bytes;
        self.counters.file_bytes.store(sealed_bytes, Ordering::Relaxed);
        // Free space may be filled at once.
        *self.bucket.lock() =
            Bucket::new(self.env.now(), self.bytes.saturating_sub(sealed_bytes), self.bytes, self.per_second);
    }

    /// Removes a file that is of no use.
    fn remove(&self, path: &Path) {
        if let Err(error) = self.env.files().remove_file(path) {
            Counters::one(&self.counters.errors);
            tracing::debug!(path = %path.display(), %error, "a region of the flash cache could not be \
                removed");
        }
    }

    /// What a region holds: by its index, or else by a walk through its records, after which it is
    /// sealed. `None` when it holds nothing of use.
    fn recover(
        &self,
        path: &Path,
        number: u64,
        slot: u16,
        bytes_max: u64,
    ) -> io::Result<Option<(Region, Vec<FlashRecord>)>> {
        let file = self.env.files().open(path, Access::ReadWrite)?;
        let bytes = file.length()?;
        if bytes > bytes_max || bytes < REGION_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut header = [0; REGION_HEADER_BYTES];
        read_exact_at(&*file, &mut header, 0)?;
        let Ok(RegionHeader { id, .. }) = RegionHeader::decode(&header)
            .map_err(drop)
            .and_then(|header| if header.number == number { Ok(header) } else { Err(()) })
        else {
            return Ok(None);
        };
        if let Some(records) = read_index(&*file, id, bytes)? {
            return Ok(Some((Region { id, number, slot, path: path.to_owned(), file, bytes }, records)));
        }
        let records = walk(&*file, id, bytes)?;
        let Some(last) = records.last() else { return Ok(None) };
        let end = encode_region_end(id, last.end(), &records);
        let sealed_bytes = last.end() + end.len() as u64;
        if sealed_bytes > bytes_max {
            return Ok(None);
        }
        file.set_length(last.end())?;
        file.write_all_at(&end, last.end())?;
        Ok(Some((Region { id, number, slot, path: path.to_owned(), file, bytes: sealed_bytes }, records)))
    }

    /// Writes some of what waits; whether more does.
    fn step(&self) -> bool {
        let mut writer = self.writer.lock();
        if writer.lock.is_none() {
            return false;
        }
        let result = self.step_of(&mut writer);
        let bytes = writer.sealed_bytes + writer.open.as_ref().map_or(0, |open| open.end);
        self.counters.file_bytes.store(bytes, Ordering::Relaxed);
        match result {
            Ok(more) => more,
            Err(error) => {
                self.give_up(&mut writer, &error);
                false
            }
        }
    }

    fn step_of(&self, writer: &mut Writer) -> io::Result<bool> {
        if std::mem::take(&mut writer.is_short) {
            // The oldest makes way in the index.
            if let Some(oldest) = self.pop_oldest(writer)? {
                self.index.remove_region(oldest.slot);
            }
        }
        let mut bytes = 0;
        while bytes < STEP_BYTES
            && let Some(kept) = writer.kept.pop_front()
        {
            bytes += self.keep(writer, &kept)?;
        }
        while bytes < STEP_BYTES {
            let Some(Offered { key, piece }) = self.queue.lock().offered.pop_front() else { break };
            let appended = self.append(writer, key, &piece);
            {
                let mut queue = self.queue.lock();
                queue.bytes -= piece.len() as u64;
                queue.pending.remove(&fingerprint(key));
            }
            self.queue_memory.lock().shrink(piece.len() as u64);
            appended?;
            Counters::one(&self.counters.insertions);
            bytes += piece.len();
        }
        self.flush(writer)?;
        if bytes > 0 {
            self.writes.end(self);
        }
        Ok(!writer.kept.is_empty()
            || !self.queue.lock().offered.is_empty()
            || writer.is_short && !writer.fifo.is_empty())
    }

    /// Takes a piece over from a region that went; how many bytes it has.
    fn keep(&self, writer: &mut Writer, kept: &Kept) -> io::Result<usize> {
        let mut header = [0; FLASH_RECORD_BYTES];
        // What cannot be read is not kept.
        if read_exact_at(&*kept.region.file, &mut header, u64::from(kept.at)).is_err() {
            return Ok(FLASH_RECORD_BYTES);
        }
        let Ok(record) = FlashRecord::decode(&header, kept.region.id, kept.at) else {
            return Ok(FLASH_RECORD_BYTES);
        };
        let length = u64::from(record.length);
        if length > writer.kept_bytes_left
            || length > self.region_bytes / 4
            || !self.bucket.lock().take(self.env.now(), length)
        {
            return Ok(FLASH_RECORD_BYTES);
        }
        let mut piece = vec![0; record.length as usize];
        if read_exact_at(&*kept.region.file, &mut piece, u64::from(kept.at) + FLASH_RECORD_BYTES as u64)
            .is_err()
        {
            return Ok(FLASH_RECORD_BYTES);
        }
        writer.kept_bytes_left -= length;
        self.append(writer, record.key, &piece)?;
        self.counters.kept_bytes.fetch_add(length, Ordering::Relaxed);
        Ok(piece.len())
    }

    /// Puts a piece behind what the open region has, or into a new one.
    fn append(&self, writer: &mut Writer, key: FlashKey, piece: &[u8]) -> io::Result<()> {
        let record_bytes = (FLASH_RECORD_BYTES + piece.len()) as u64;
        let is_full = |open: &Open| {
            open.end + record_bytes + region_end_bytes(open.records.len() + 1) as u64 > self.region_bytes
        };
        if writer.open.as_ref().is_some_and(is_full) {
            self.seal(writer)?;
        }
        if writer.open.is_none() {
            self.begin_region(writer)?;
        }
        let Some(open) = &mut writer.open else { return Ok(()) };
        let at = u32::try_from(open.end).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let length = u32::try_from(piece.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let record = FlashRecord { at, length, key };
        open.buffer.extend_from_slice(&record.encode(open.region.id));
        open.buffer.extend_from_slice(piece);
        open.end = record.end();
        open.records.push(record);
        if open.buffer.len() >= STEP_BYTES { self.flush(writer) } else { Ok(()) }
    }

    /// Hands appended records to the file system, and names them in the index.
    fn flush(&self, writer: &mut Writer) -> io::Result<()> {
        let Some(open) = &mut writer.open else { return Ok(()) };
        if open.buffer.is_empty() {
            return Ok(());
        }
        open.region.file.write_all_at(&open.buffer, open.end - open.buffer.len() as u64)?;
        self.counters.written_bytes.fetch_add(open.buffer.len() as u64, Ordering::Relaxed);
        open.buffer.clear();
        for record in &open.records[open.named..] {
            if !self
                .index
                .insert(fingerprint(record.key), Place { region: open.region.slot, at: record.at, uses: 0 })
            {
                writer.is_short = true;
                Counters::one(&self.counters.dropped_by_room);
            }
        }
        open.named = open.records.len();
        writer
            .memory
            .set((open.buffer.capacity() + open.records.capacity() * size_of::<FlashRecord>()) as u64);
        Ok(())
    }

    /// Ends the open region, if there is one.
    pub(super) fn seal(&self, writer: &mut Writer) -> io::Result<()> {
        self.flush(writer)?;
        let Some(open) = writer.open.take() else { return Ok(()) };
        let Open { region, end, records, .. } = &open;
        let tail = encode_region_end(region.id, *end, records);
        if let Err(error) = region.file.write_all_at(&tail, *end) {
            writer.open = Some(open);
            return Err(error);
        }
        self.counters.written_bytes.fetch_add(tail.len() as u64, Ordering::Relaxed);
        let bytes = *end + tail.len() as u64;
        let Region { id, number, slot, ref path, ref file, .. } = **region;
        writer.fifo.push_back(Arc::new(Region {
            id,
            number,
            slot,
            path: path.clone(),
            file: Arc::clone(file),
            bytes,
        }));
        writer.sealed_bytes += bytes;
        // After a full disk it is tried with one region more for every eight that went well.
        writer.room_bytes = writer.room_bytes.saturating_add(self.region_bytes / 8);
        writer.memory.set(0);
        Ok(())
    }

    /// Makes room, and begins a region.
    fn begin_region(&self, writer: &mut Writer) -> io::Result<()> {
        while writer.sealed_bytes + self.region_bytes > self.bytes.min(writer.room_bytes)
            && let Some(oldest) = self.pop_oldest(writer)?
        {
            let mut used = self.index.remove_region(oldest.slot);
            // The most used first, and those in the order in which they lie.
            used.sort_unstable_by_key(|place| (std::cmp::Reverse(place.uses), place.at));
            // The kept part holds the removed file's space until it is read: a full disk needs it
            // now.
            if writer.room_bytes < self.bytes || is_enabled(Mutant::FlashForgetsUsed) {
                continue;
            }
            writer.kept.extend(used.iter().map(|place| Kept { region: Arc::clone(&oldest), at: place.at }));
            writer.kept_bytes_left = self.region_bytes / 2;
        }
        let (number, id) = (writer.next_number, self.env.random_u64());
        writer.next_number += 1;
        let path = self.directory.join(region_name(number));
        let file = self.env.files().create_new(&path)?;
        let mut regions = self.regions.write();
        let slot = regions.iter().position(Option::is_none).unwrap_or(regions.len());
        let slot = u16::try_from(slot).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let region = Arc::new(Region { id, number, slot, path, file, bytes: 0 });
        match regions.get_mut(usize::from(slot)) {
            Some(free) => *free = Some(Arc::clone(&region)),
            None => regions.push(Some(Arc::clone(&region))),
        }
        drop(regions);
        let buffer = RegionHeader { id, number }.encode().to_vec();
        writer.open = Some(Open { region, end: buffer.len() as u64, buffer, records: Vec::new(), named: 0 });
        Ok(())
    }

    /// Takes the oldest region away, file and all; its pieces are still in the index.
    fn pop_oldest(&self, writer: &mut Writer) -> io::Result<Option<Arc<Region>>> {
        let Some(oldest) = writer.fifo.front() else { return Ok(None) };
        match self.env.files().remove_file(&oldest.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if writer.room_bytes < self.bytes {
            // A full disk may have the space only once the name is gone for good.
            self.env.files().sync_directory(&self.directory)?;
        }
        let Some(oldest) = writer.fifo.pop_front() else { return Ok(None) };
        writer.sealed_bytes -= oldest.bytes;
        self.regions.write()[usize::from(oldest.slot)] = None;
        Ok(Some(oldest))
    }

    /// After an error: the open region goes with what it has, what waits is dropped, and the disk
    /// is left alone for a while.
    #[cold]
    fn give_up(&self, writer: &mut Writer, error: &io::Error) {
        self.writes.begin(self, "writing", error);
        if let Some(open) = writer.open.take() {
            self.regions.write()[usize::from(open.region.slot)] = None;
            self.index.remove_region(open.region.slot);
            self.remove(&open.region.path);
        }
        if error.kind() == io::ErrorKind::StorageFull {
            // Others use the disk: at least one region makes way for the next.
            writer.room_bytes = writer.sealed_bytes.max(self.region_bytes);
        }
        writer.kept.clear();
        writer.memory.set(0);
        let mut queue = self.queue.lock();
        let dropped = std::mem::take(&mut *queue);
        self.counters.dropped_by_room.fetch_add(dropped.offered.len() as u64, Ordering::Relaxed);
        self.queue_memory.lock().shrink(dropped.bytes);
    }
}

/// The index of a sealed region; `None` when it is not sealed, or not all of that survived.
fn read_index(file: &dyn File, id: u64, bytes: u64) -> io::Result<Option<Vec<FlashRecord>>> {
    let Some(footer_at) = bytes.checked_sub(REGION_FOOTER_BYTES as u64) else { return Ok(None) };
    let mut footer = [0; REGION_FOOTER_BYTES];
    read_exact_at(file, &mut footer, footer_at)?;
    let Ok(footer) = RegionFooter::decode(&footer, id, bytes) else { return Ok(None) };
    let mut index = vec![0; usize::try_from(footer_at - footer.index_offset).unwrap_or(0)];
    read_exact_at(file, &mut index, footer.index_offset)?;
    Ok(footer.records(&index, id).ok())
}

/// The records of a region without an index, up to the first that is not sound.
fn walk(file: &dyn File, id: u64, bytes: u64) -> io::Result<Vec<FlashRecord>> {
    let mut records = Vec::new();
    let mut at = REGION_HEADER_BYTES as u64;
    let (mut piece, mut piece_at) = (Vec::new(), at);
    while let Ok(begin) = u32::try_from(at)
        && at + FLASH_RECORD_BYTES as u64 <= bytes
    {
        if at + FLASH_RECORD_BYTES as u64 > piece_at + piece.len() as u64 {
            let length = usize::try_from((bytes - at).min(WALK_BYTES as u64)).unwrap_or(WALK_BYTES);
            piece.resize(length, 0);
            piece_at = at;
            read_exact_at(file, &mut piece, at)?;
        }
        let start = usize::try_from(at - piece_at).unwrap_or(usize::MAX);
        let Some(header) = piece.get(start..) else { break };
        let Ok(record) = FlashRecord::decode(header, id, begin) else { break };
        if record.end() > bytes {
            break;
        }
        at = record.end();
        records.push(record);
    }
    Ok(records)
}
