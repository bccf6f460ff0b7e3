//! Bytes of files: appending, syncing, reading, cutting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tombolo::{
    ApplicationObject, ApplicationObjectWriter, Batch, Error, ErrorKind, Life, LogPosition, Op, Result,
};
use tombolo_storage::Priority;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::content::{File, Growing, Piece, State, Tail, check_size};
use crate::files::{BUSY_TRIES_MAX, Files};
use crate::kind::FileKind;
use crate::rows::{self, Entry, PARTS_MAX, Part, Tag};

/// Most bytes of an entry of a lane.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Appends to a file that may be on their way before the next one waits for the oldest.
const PENDING_MAX: usize = 64;
/// A record that grows beyond it goes on as an object.
const RECORD_BYTES_MAX: usize = 64 << 10;
/// Bytes that are given to an object at once while a file is copied into it.
const COPY_BYTES: usize = 4 << 20;
/// A file of fewer bytes is not copied into an object for the sake of memory.
const SPILL_BYTES_MIN: usize = 1 << 20;

impl Files {
    /// Appends to a file. An entry of the lane, or bytes for the object that is written; a record
    /// is written with the next flush.
    ///
    /// # Errors
    /// `Fenced` when another process has taken over; `Retry`, `OutOfSpace` and others of the store:
    /// an object is lost then, as the file's next sync says too.
    pub async fn append(&self, file: &Arc<File>, bytes: &[u8]) -> Result<()> {
        self.writing()?;
        check_size(file.size().saturating_add(bytes.len() as u64))?;
        self.counters.written(file.kind, bytes.len());
        if file.kind.lane().is_some() {
            for chunk in bytes.chunks(ENTRY_BYTES_MAX) {
                self.append_to_lane(file, Some(chunk), 0).await?;
            }
            return self.spill_if_large(file).await;
        }
        {
            let mut state = file.state.lock();
            state.modified_ms = self.unix_ms();
            if let Tail::Record { bytes: held, is_dirty } = &mut state.tail
                && held.len() + bytes.len() <= RECORD_BYTES_MAX
            {
                held.extend_from_slice(bytes);
                *is_dirty = true;
                return Ok(());
            }
        }
        self.append_to_object(file, Bytes::copy_from_slice(bytes)).await
    }

    /// An entry that appends `bytes`, or without them one that cuts the file to `size`.
    async fn append_to_lane(&self, file: &Arc<File>, bytes: Option<&[u8]>, size: u64) -> Result<()> {
        let lane = self.lane_of(file)?;
        for _ in 0..BUSY_TRIES_MAX {
            match self.begin_entry(file, bytes, size) {
                Ok(None) => return Ok(()),
                Ok(Some(oldest)) => {
                    lane.accepted(self.noted(oldest.await)?);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Busy => self.noted(lane.log.sync().await)?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Busy, "there is no room in the log").advice("append again"))
    }

    fn lane_of(&self, file: &File) -> Result<&crate::lanes::Lane> {
        let lane = file.kind.lane().ok_or_else(|| Error::new(ErrorKind::Bug, "a file of no lane"))?;
        Ok(&self.writing()?.lanes[lane])
    }

    /// The append to be waited for before more is appended, if there is one.
    fn begin_entry(&self, file: &File, bytes: Option<&[u8]>, size: u64) -> Result<Option<Op<LogPosition>>> {
        let lane = self.lane_of(file)?;
        let mut state = file.state.lock();
        let base = state.parts_bytes();
        let (is_named, now) = (state.links > 0, self.unix_ms());
        let Tail::Lane(tail) = &mut state.tail else {
            return Err(Error::new(ErrorKind::Bug, "a file of a lane without it"));
        };
        let end = base + tail.bytes.get().len() as u64;
        let entry = match bytes {
            Some(bytes) => Entry::Append { tag: tail.tag, at: end, bytes },
            None => Entry::Cut { tag: tail.tag, at: size },
        };
        let op = if is_named { lane.append(&entry, &mut tail.place)? } else { None };
        match bytes {
            Some(bytes) => tail.bytes.append(bytes),
            None => tail.bytes.cut(usize::try_from(size - base).unwrap_or(usize::MAX)),
        }
        tail.pending.extend(op);
        let oldest = if tail.pending.len() > PENDING_MAX { tail.pending.pop_front() } else { None };
        state.modified_ms = now;
        state.cuts += u64::from(bytes.is_none());
        Ok(oldest)
    }

    async fn append_to_object(&self, file: &Arc<File>, bytes: Bytes) -> Result<()> {
        let (growing, before, hints) = {
            let mut state = file.state.lock();
            let hints = state.hints;
            let before = match &mut state.tail {
                Tail::Record { bytes, .. } => Bytes::from(std::mem::take(bytes)),
                Tail::Object(_) => Bytes::new(),
                Tail::Lane(_) => return Err(Error::new(ErrorKind::Bug, "a file of a lane as an object")),
            };
            if matches!(state.tail, Tail::Record { .. }) {
                state.tail = Tail::Object(Growing::No);
            }
            (take_growing(&mut state)?, before, hints)
        };
        let grown = async {
            let (mut writer, mut length) = match growing {
                Some(growing) => growing,
                None => {
                    let objects = self.objects.clone().with_priority(hints.priority);
                    (Box::new(objects.create(hints.life).await?), 0)
                }
            };
            for bytes in [before, bytes].into_iter().filter(|bytes| !bytes.is_empty()) {
                length += bytes.len() as u64;
                writer.append(bytes).await?;
            }
            Ok((writer, length))
        };
        let grown = grown.await;
        end_growing(file, &grown);
        match grown {
            Ok((writer, length)) => {
                set_growing(file, Growing::Writing(writer, length));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until everything that was appended to a log is accepted, and writes the row of a
    /// record. Of an object nothing can be kept before it is finished, which a sync does.
    ///
    /// # Errors
    /// As [`Files::append`].
    pub async fn flush(&self, file: &Arc<File>) -> Result<()> {
        if file.kind.lane().is_some() {
            let pending = match &mut file.state.lock().tail {
                Tail::Lane(tail) => std::mem::take(&mut tail.pending),
                Tail::Record { .. } | Tail::Object(_) => return Ok(()),
            };
            let lane = self.lane_of(file)?;
            for op in pending {
                lane.accepted(self.noted(op.await)?);
            }
            return Ok(());
        }
        let is_dirty = matches!(&file.state.lock().tail, Tail::Record { is_dirty: true, .. });
        if !is_dirty {
            return Ok(());
        }
        self.change(|_| {
            let mut state = file.state.lock();
            let op = self.begin_row(file, &state)?;
            if let Tail::Record { is_dirty, .. } = &mut state.tail {
                *is_dirty = false;
            }
            Ok(((), op))
        })
        .await
    }

    /// Begins the row of a file, unless it has no name any more.
    fn begin_row(&self, file: &File, state: &State) -> Result<Op<()>> {
        if state.links == 0 {
            return Ok(Op::ready(Ok(())));
        }
        let mut batch = Batch::new();
        let row = state.inode(file.kind).encode();
        batch.put(&self.writing()?.inodes, rows::inode_key(file.number), row);
        self.begin(batch)
    }

    /// Makes the file durable as it is, and every earlier change of any name.
    ///
    /// # Errors
    /// As [`Files::append`]; nothing is known of what was not synced before.
    pub async fn sync(&self, file: &Arc<File>) -> Result<()> {
        self.counters.synced(file.kind);
        self.finish(file).await?;
        if file.kind.lane().is_some() {
            self.noted(self.lane_of(file)?.log.sync().await)?;
        }
        self.sync_names().await
    }

    /// Ends a piece of writing: an object is finished, and named in its row; the rest is flushed.
    ///
    /// # Errors
    /// As [`Files::append`].
    pub async fn finish(&self, file: &Arc<File>) -> Result<()> {
        if file.kind.lane().is_some() {
            return self.flush(file).await;
        }
        self.flush(file).await?;
        let Some((writer, length)) = take_growing(&mut file.state.lock())? else { return Ok(()) };
        let early = is_enabled(Mutant::FilesObjectNamedUnfinished);
        if early {
            self.name_part(file, Part { object: writer.object(), bytes: length }).await?;
        }
        let finished = writer.finish().await;
        end_growing(file, &finished);
        let (object, found) = finished?;
        if found != length {
            return Err(Error::corrupt(object, 0, format!("{length} bytes"), format!("{found} bytes")));
        }
        if early { Ok(()) } else { self.name_part(file, Part { object, bytes: length }).await }
    }

    async fn name_part(&self, file: &Arc<File>, part: Part) -> Result<()> {
        self.change(|_| {
            let mut state = file.state.lock();
            if state.parts.len() >= PARTS_MAX {
                return Err(Error::new(ErrorKind::OutOfSpace, "a file of too many parts")
                    .advice("sync it less often: each sync of a table that grows makes a part"));
            }
            state.parts.push(part.clone());
            match self.begin_row(file, &state) {
                Ok(op) => {
                    self.forget_if_unnamed(file, &state, part.object)?;
                    Ok(((), op))
                }
                Err(error) => {
                    state.parts.pop();
                    Err(error)
                }
            }
        })
        .await
    }

    /// A file without a name goes with its last handle, and so does an object that it got since.
    fn forget_if_unnamed(&self, file: &Arc<File>, state: &State, object: ApplicationObject) -> Result<()> {
        if state.links > 0 {
            return Ok(());
        }
        self.forget_objects([object], &Arc::downgrade(file))
    }

    /// Gives the file the size `size`: cuts it, or adds zeros.
    ///
    /// # Errors
    /// As [`Files::append`]; `Invalid` beyond the largest file.
    pub async fn truncate(&self, file: &Arc<File>, size: u64) -> Result<()> {
        check_size(size)?;
        self.finish(file).await?;
        let present = file.size();
        if size > present {
            let mut left = size - present;
            while left > 0 {
                let zeros = left.min(ENTRY_BYTES_MAX as u64);
                self.append(file, &vec![0; usize::try_from(zeros).unwrap_or(ENTRY_BYTES_MAX)]).await?;
                left -= zeros;
            }
            return self.finish(file).await;
        }
        if size == present {
            return Ok(());
        }
        let base = file.state.lock().parts_bytes();
        if file.kind.lane().is_some() && size >= base {
            return self.append_to_lane(file, None, size).await;
        }
        let tag = self.fresh_tag()?;
        self.change(|_| self.begin_cut(file, size, tag)).await?;
        self.tidy().await
    }

    /// Shortens the list of parts.
    fn begin_cut(&self, file: &Arc<File>, size: u64, fresh: Tag) -> Result<((), Op<()>)> {
        let mut state = file.state.lock();
        let (kept, dropped) = state.parts_to(size);
        let held = match &state.tail {
            Tail::Record { bytes, .. } => {
                bytes[..usize::try_from(size).unwrap_or(usize::MAX).min(bytes.len())].to_vec()
            }
            Tail::Lane(_) | Tail::Object(_) => Vec::new(),
        };
        let mut row = state.inode(file.kind);
        row.parts.clone_from(&kept);
        row.record.clone_from(&held);
        if file.kind.lane().is_some() {
            row.tag = fresh;
        }
        row.modified_ms = self.unix_ms();
        let mut batch = Batch::new();
        batch.put(&self.writing()?.inodes, rows::inode_key(file.number), row.encode());
        let op = if state.links > 0 { self.begin(batch)? } else { Op::ready(Ok(())) };
        (state.parts, state.modified_ms) = (kept, row.modified_ms);
        state.cuts += 1;
        match &mut state.tail {
            Tail::Record { bytes, is_dirty } => (*bytes, *is_dirty) = (held, false),
            Tail::Lane(tail) => {
                tail.tag = fresh;
                tail.bytes.cut(0);
                self.lane_of(file)?.leave(&mut tail.place, &mut tail.is_of_earlier);
            }
            Tail::Object(_) => {}
        }
        self.forget_objects(dropped, &Arc::downgrade(file))?;
        Ok(((), op))
    }

    async fn spill_if_large(&self, file: &Arc<File>) -> Result<()> {
        let held = match &file.state.lock().tail {
            Tail::Lane(tail) => tail.bytes.get().len(),
            Tail::Record { .. } | Tail::Object(_) => 0,
        };
        let all = self.lane_memory.load(Ordering::Relaxed);
        let is_large = (file.kind == FileKind::Manifest && held as u64 >= self.options.manifest_bytes)
            || (all > self.options.lane_memory_bytes && held >= SPILL_BYTES_MIN);
        if is_large { self.spill(file).await } else { Ok(()) }
    }

    /// Copies what the lane holds of a file into an object, so that the lane and memory are free of
    /// it. One object; nothing of the file changes.
    ///
    /// # Errors
    /// As [`Files::append`].
    pub async fn spill(&self, file: &Arc<File>) -> Result<()> {
        let mut writer = self.objects.create(Life::Short).await?;
        let mut length = 0;
        loop {
            let chunk = match &file.state.lock().tail {
                Tail::Lane(tail) => {
                    let held = tail.bytes.get();
                    held[length..held.len().min(length + COPY_BYTES)].to_vec()
                }
                Tail::Record { .. } | Tail::Object(_) => return Ok(()),
            };
            if chunk.is_empty() {
                break;
            }
            length += chunk.len();
            writer.append(chunk).await?;
        }
        if length == 0 {
            return Ok(());
        }
        let (object, _) = writer.finish().await?;
        let (tag, part) = (self.fresh_tag()?, Part { object, bytes: length as u64 });
        self.flush(file).await?;
        self.change(|_| {
            let mut state = file.state.lock();
            let state = &mut *state;
            let mut row = state.inode(file.kind);
            row.parts.push(part.clone());
            if !is_enabled(Mutant::FilesSpilledTagKept) {
                row.tag = tag;
            }
            let tag = row.tag;
            let Tail::Lane(tail) = &mut state.tail else {
                return Err(Error::new(ErrorKind::Bug, "a file of a lane without it"));
            };
            if tail.bytes.get().len() != length {
                // It was written meanwhile: the next append does it.
                self.forget_objects([object], &std::sync::Weak::new())?;
                return Ok(((), Op::ready(Ok(()))));
            }
            let mut batch = Batch::new();
            batch.put(&self.writing()?.inodes, rows::inode_key(file.number), row.encode());
            let op = if state.links > 0 { self.begin(batch)? } else { Op::ready(Ok(())) };
            tail.tag = tag;
            tail.bytes.take_front(length);
            self.lane_of(file)?.leave(&mut tail.place, &mut tail.is_of_earlier);
            state.parts.push(part.clone());
            self.forget_if_unnamed(file, state, object)?;
            Ok(((), op))
        })
        .await?;
        self.tidy().await
    }

    /// Reads `length` bytes at `at`, fewer at the file's end. A request for each object that has
    /// some of them; none where memory has them.
    ///
    /// # Errors
    /// `NotFound` of a follower when the file has gone and its lease has passed; `Corrupt`; those
    /// of the store.
    pub async fn read(&self, file: &File, at: u64, length: u64) -> Result<Bytes> {
        self.begin_read(file, at, length).end().await
    }

    /// As [`Files::read`], begun: several may be on their way.
    pub fn begin_read(&self, file: &File, at: u64, length: u64) -> Reading {
        self.begin_read_as(file, at, length, Ask::default())
    }

    /// As [`Files::begin_read`], asked for in a certain way.
    pub fn begin_read_as(&self, file: &File, at: u64, length: u64, ask: Ask) -> Reading {
        let pieces = file.state.lock().pieces(at, length);
        let mut objects = None;
        let begun: Vec<Begun> = pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Held(bytes) => Begun::Held(bytes.into()),
                Piece::Object(object, range) => {
                    let length = range.end - range.start;
                    let objects = objects.get_or_insert_with(|| {
                        let objects = self.objects.clone().with_priority(ask.priority);
                        ask.within.map_or(objects.clone(), |limit| objects.within(limit))
                    });
                    Begun::Object(objects.read(object, range), length)
                }
            })
            .collect();
        let bytes = begun.iter().map(Begun::length).sum::<u64>();
        self.counters.read(file.kind, usize::try_from(bytes).unwrap_or(usize::MAX));
        Reading { begun }
    }
}

/// How a read is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How long it may take. One that takes longer ends with `DeadlineExceeded`.
    pub within: Option<Duration>,
    /// Which of waiting requests go first.
    pub priority: Priority,
}

impl Default for Ask {
    fn default() -> Ask {
        Ask { within: None, priority: Priority::Normal }
    }
}

/// Takes the object that is written, if one is; the caller gives it back or ends it.
fn take_growing(state: &mut State) -> Result<Option<(Box<ApplicationObjectWriter>, u64)>> {
    let Tail::Object(growing) = &mut state.tail else { return Ok(None) };
    match std::mem::take(growing) {
        Growing::No => Ok(None),
        Growing::Writing(writer, length) => {
            *growing = Growing::Taken;
            Ok(Some((writer, length)))
        }
        Growing::Taken => {
            *growing = Growing::Taken;
            Err(Error::new(ErrorKind::Busy, "two calls write a file at once").advice("write it by one"))
        }
        Growing::Failed(error) => {
            *growing = Growing::Failed(error.clone());
            Err(error)
        }
    }
}

/// No object is written any more: it was finished, or lost.
fn end_growing<T>(file: &File, ended: &Result<T>) {
    set_growing(file, ended.as_ref().err().map_or(Growing::No, |error| Growing::Failed(error.clone())));
}

fn set_growing(file: &File, to: Growing) {
    if let Tail::Object(growing) = &mut file.state.lock().tail {
        *growing = to;
    }
}

/// A read that has begun; dropped, it is given up.
#[derive(Debug)]
#[must_use = "what it reads is told by its end"]
pub struct Reading {
    begun: Vec<Begun>,
}

#[derive(Debug)]
enum Begun {
    Held(Bytes),
    Object(Op<Bytes>, u64),
}

impl Begun {
    fn length(&self) -> u64 {
        match self {
            Begun::Held(bytes) => bytes.len() as u64,
            Begun::Object(_, length) => *length,
        }
    }

    async fn end(self) -> Result<Bytes> {
        match self {
            Begun::Held(bytes) => Ok(bytes),
            Begun::Object(op, length) => {
                let bytes = op.await?;
                if bytes.len() as u64 == length {
                    return Ok(bytes);
                }
                Err(Error::new(ErrorKind::Corrupt, "an object of a file is shorter than its row says")
                    .expected(format!("{length} bytes"))
                    .found(format!("{} bytes", bytes.len())))
            }
        }
    }
}

impl Reading {
    /// How many requests of the store it makes.
    pub fn requests(&self) -> usize {
        self.begun.iter().filter(|begun| matches!(begun, Begun::Object(..))).count()
    }

    /// What was read.
    ///
    /// # Errors
    /// As [`Files::read`].
    pub async fn end(self) -> Result<Bytes> {
        let mut pieces = Vec::with_capacity(self.begun.len());
        for begun in self.begun {
            pieces.push(begun.end().await?);
        }
        Ok(match &pieces[..] {
            [] => Bytes::new(),
            [piece] => piece.clone(),
            pieces => pieces.concat().into(),
        })
    }
}
