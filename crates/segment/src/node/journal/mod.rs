//! A node's copy on a local disk: all requests that changed something, in their order, as frames of
//! log segments ([`tombolo_format::log_frame`]).
//!
//! A life of a node has a directory of its own, `life-{incarnation}-{disk|copy}`, with files
//! `journal-{number}`. A frame's payload is a request's kind (2 bytes), 6 zeros and its body as on
//! the wire ([`crate::wire::body`]); its stream is the number of the first file that is still
//! needed. A replay has the life's regions again ([`recover`]).
//!
//! 1. [`Journal::note`] takes a request, under the lock that it was carried out under.
//! 2. One task at a time writes the notes made meanwhile, and makes it durable with one `fdatasync`
//!    for all.
//! 3. Once files hold twice what lives, a copy of what lives is noted behind them
//!    ([`Journal::begin_cleaning`]), and they go.
//!
//! Invariants:
//! 1. A file's name and header are durable before a frame in it counts as durable; a file is full
//!    of durable frames before the next one is begun, whose header says where it ended. Its
//!    durable-through slot then says that there is a next one, and after a clean stop where the
//!    last one ends.
//! 2. After a failed write or sync nothing is durable any more: the node must end, and another life
//!    of it finds the data durable before.
//! 3. A file is deleted only once a durable frame says that it is not needed.

pub(super) mod recover;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Completer, Completion, Env, File, TaskClass, completion};
use tombolo_format::log_frame::{
    DURABLE_SLOT_OFFSET, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentIdentity,
    encode_durable_slot, frame_bytes_max,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::message::{Body, NodeIncarnation, Request};
use crate::wire::body::Message;

/// Bytes of a file beyond which the next is begun; few in tests, so that they come to see many
/// files.
const FILE_BYTES: u32 = if cfg!(test) { 128 << 10 } else { 64 << 20 };
/// Bytes of a payload before the request's body.
const KIND_BYTES: usize = 8;
/// Bytes after which frames are written and made durable before more are made.
const WRITE_BYTES: usize = 8 << 20;
/// Bytes in files that are not worth cleaning.
const CLEAN_BYTES_MIN: u64 = 128 << 20;

/// The notes to write next.
enum Item {
    Request(Request),
    /// The next file is begun.
    Roll,
    /// Files before this one are not needed.
    Needed(u32),
}

impl Item {
    fn bytes(&self) -> u64 {
        match self {
            Item::Request(Request { body: Body::Append { records, .. }, .. }) => records.len() as u64,
            _ => 0,
        }
    }
}

struct Queue {
    items: Vec<Item>,
    /// Bytes of records in them, and in the write under way.
    bytes: u64,
    /// Items that were noted, and that are durable.
    noted: u64,
    durable: u64,
    waiting: Vec<(u64, Completer<Result<()>>)>,
    is_writing: bool,
    failed: Option<Error>,
}

/// Where a journal ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    /// The file that is written next, unless one is.
    number: u32,
    /// Where the file before it ends, as an offset of the journal.
    offset: u64,
    /// The first file that is needed.
    needed: u32,
    /// Of the last frame.
    sequence: u64,
}

/// The file that is written.
struct Current {
    /// `None`: none yet.
    file: Option<Arc<dyn File>>,
    byte: u32,
    end: End,
    /// Bytes in all files.
    bytes: u64,
}

pub(super) struct Journal {
    env: Env,
    directory: PathBuf,
    life: NodeIncarnation,
    queue: Mutex<Queue>,
    /// Locked by the writer.
    current: Mutex<Current>,
}

/// The identity of a life's journal file.
fn identity(life: NodeIncarnation, number: u32) -> SegmentIdentity {
    SegmentIdentity { incarnation: life.0, epoch: 1, lane: 0, segment: number }
}

fn file_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("journal-{number:08}"))
}

impl Journal {
    /// The journal of a life, behind what its directory has. The first file is made when something
    /// is noted.
    pub(super) fn new(env: &Env, directory: PathBuf, life: NodeIncarnation, end: End) -> Arc<Journal> {
        let current = Current { file: None, byte: FILE_BYTES, end, bytes: 0 };
        let queue = Queue {
            items: Vec::new(),
            bytes: 0,
            noted: 0,
            durable: 0,
            waiting: Vec::new(),
            is_writing: false,
            failed: None,
        };
        Arc::new(Journal {
            env: env.clone(),
            directory,
            life,
            queue: Mutex::new(queue),
            current: Mutex::new(current),
        })
    }

    /// Takes a request that was carried out; gives the number to wait for.
    pub(super) fn note(self: &Arc<Journal>, request: Request) -> u64 {
        self.add(Item::Request(request))
    }

    fn add(self: &Arc<Journal>, item: Item) -> u64 {
        let mut queue = self.queue.lock();
        queue.bytes += item.bytes();
        queue.items.push(item);
        queue.noted += 1;
        let noted = queue.noted;
        if !queue.is_writing && queue.failed.is_none() {
            queue.is_writing = true;
            drop(queue);
            let journal = Arc::clone(self);
            self.env
                .spawn(TaskClass::Foreground, "journal of a node", async move { journal.write_all().await })
                .detach();
        }
        noted
    }

    /// Waits until the notes up to a number are durable.
    ///
    /// # Errors
    /// What the disk said: nothing becomes durable any more.
    pub(super) async fn durable(&self, noted: u64) -> Result<()> {
        match self.wait_for(noted) {
            Ok(None) => Ok(()),
            Ok(Some(done)) => {
                done.await.unwrap_or_else(|| Err(Error::new(ErrorKind::Closed, "the node ends")))
            }
            Err(error) => Err(error),
        }
    }

    fn wait_for(&self, noted: u64) -> Result<Option<Completion<Result<()>>>> {
        let mut queue = self.queue.lock();
        if let Some(error) = &queue.failed {
            return Err(error.clone());
        }
        if queue.durable >= noted || is_enabled(Mutant::NodeAnswersBeforeSync) {
            return Ok(None);
        }
        let (completer, done) = completion();
        queue.waiting.push((noted, completer));
        Ok(Some(done))
    }

    /// Bytes of records that were noted and are not durable.
    pub(super) fn behind_bytes(&self) -> u64 {
        self.queue.lock().bytes
    }

    /// What went wrong, if something did.
    pub(super) fn failure(&self) -> Option<Error> {
        self.queue.lock().failed.clone()
    }

    /// Whether all that was noted is durable, and nobody writes.
    pub(super) fn is_written(&self) -> bool {
        let queue = self.queue.lock();
        queue.durable >= queue.noted && !queue.is_writing
    }

    async fn write_all(&self) {
        while self.write_next() {
            self.env.yield_now().await;
        }
    }

    /// Writes the notes made meanwhile; `false`: there were none.
    fn write_next(&self) -> bool {
        let (items, noted) = {
            let mut queue = self.queue.lock();
            if queue.items.is_empty() || queue.failed.is_some() {
                queue.is_writing = false;
                return false;
            }
            (std::mem::take(&mut queue.items), queue.noted)
        };
        let written =
            self.write(&items).map_err(|error| {
                Error::io(error, "the node ends, for its disk failed: writing its \
                journal", self.directory.display()).advice(
                "mend the disk or free space, then start a node on that directory again: it answers for all \
                that was acknowledged there",
            )
            });
        let mut queue = self.queue.lock();
        match &written {
            Ok(()) => {
                queue.durable = noted;
                queue.bytes -= items.iter().map(Item::bytes).sum::<u64>();
            }
            Err(error) => {
                tracing::error!(%error, "the node's disk failed: it answers nothing any more");
                queue.failed = Some(error.clone());
            }
        }
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.waiting)
            .into_iter()
            .partition(|(number, _)| *number <= noted || written.is_err());
        queue.waiting = waiting;
        drop(queue);
        for (_, completer) in done {
            completer.complete(written.clone());
        }
        true
    }

    /// Writes items, and makes them durable.
    fn write(&self, items: &[Item]) -> io::Result<()> {
        let mut current = self.current.lock();
        let (mut buffer, mut payload) = (Vec::new(), Vec::new());
        let mut durable_through = self.offset(&current);
        for item in items {
            let message = match item {
                Item::Request(request) => Message::Request(request.clone()),
                Item::Roll => Message::Status,
                Item::Needed(number) => {
                    current.end.needed = *number;
                    Message::Status
                }
            };
            payload.clear();
            payload.extend_from_slice(&u64::from(message.kind() as u16).to_le_bytes());
            message.put(&mut payload);
            let bytes_max = u32::try_from(frame_bytes_max(payload.len())).unwrap_or(u32::MAX);
            let byte = current.byte.saturating_add(u32::try_from(buffer.len()).unwrap_or(u32::MAX));
            let is_full = byte.saturating_add(bytes_max) > FILE_BYTES && byte > header_bytes();
            if current.file.is_none() || is_full || matches!(item, Item::Roll) {
                make_durable(&mut current, &mut buffer)?;
                durable_through = self.roll(&mut current)?;
            }
            current.end.sequence += 1;
            let identity = identity(self.life, current.end.number);
            let (stream, first_sequence) = (current.end.needed, current.end.sequence);
            let byte = current.byte + u32::try_from(buffer.len()).unwrap_or(u32::MAX);
            let header = FrameHeader { identity, stream, first_sequence, count: 1, durable_through };
            header.append_to(&mut buffer, byte, &payload);
            current.bytes += header.frame_bytes(payload.len()) as u64;
            if buffer.len() > WRITE_BYTES {
                make_durable(&mut current, &mut buffer)?;
                durable_through = self.offset(&current);
            }
        }
        make_durable(&mut current, &mut buffer)
    }

    fn offset(&self, current: &Current) -> u64 {
        if current.file.is_none() {
            current.end.offset
        } else {
            identity(self.life, current.end.number).offset(current.byte)
        }
    }

    /// Begins the next file. Gives where the one before it ends: all up to there is durable.
    fn roll(&self, current: &mut Current) -> io::Result<u64> {
        let end = self.offset(current);
        let number = current.end.number + u32::from(current.file.is_some());
        let next = new_file(&self.env, &self.directory, self.life, number, end)?;
        if let Some(full) = current.file.replace(next) {
            // That the next one exists, so that its loss is noticed.
            let slot = encode_durable_slot(
                &identity(self.life, current.end.number),
                identity(self.life, number).offset(0),
            );
            full.write_all_at(&slot, DURABLE_SLOT_OFFSET as u64)?;
            full.sync_data()?;
        }
        (current.byte, current.end.number) = (header_bytes(), number);
        Ok(end)
    }

    /// Whether files hold so much more than `live` bytes that a copy of those is worth its writing.
    pub(super) fn wants_cleaning(&self, live: u64) -> bool {
        let current = self.current.try_lock();
        current.is_some_and(|current| current.bytes > 2 * live + CLEAN_BYTES_MIN)
    }

    /// Begins another file: what lives is to be noted from here on, then [`Journal::end_cleaning`]
    /// called with the file's number.
    pub(super) async fn begin_cleaning(self: &Arc<Journal>) -> Result<u32> {
        let noted = self.add(Item::Roll);
        self.durable(noted).await?;
        Ok(self.current.lock().end.number)
    }

    /// Deletes the files before `number`, once all that lives is in later ones.
    pub(super) async fn end_cleaning(self: &Arc<Journal>, number: u32, live: u64) -> Result<()> {
        let noted = self.add(Item::Needed(number));
        self.durable(noted).await?;
        self.current.lock().bytes = live;
        let gone = |error| Error::io(error, "deleting a node's old journal files", self.directory.display());
        for old in recover::files(&self.env, &self.directory).map_err(gone)? {
            if old < number {
                self.env.files().remove_file(&file_path(&self.directory, old)).map_err(gone)?;
                // Each before the next: were a later one gone and an earlier one still there, the
                // gap would be damage.
                self.env.files().sync_directory(&self.directory).map_err(gone)?;
            }
        }
        Ok(())
    }

    /// Says durably that all that was noted is durable: of a clean stop.
    pub(super) async fn close(self: &Arc<Journal>) -> Result<()> {
        let noted = self.queue.lock().noted;
        self.durable(noted).await?;
        let current = self.current.lock();
        let clean = || {
            if let Some(file) = &current.file {
                let identity = identity(self.life, current.end.number);
                file.write_all_at(
                    &encode_durable_slot(&identity, identity.offset(current.byte)),
                    DURABLE_SLOT_OFFSET as u64,
                )?;
                file.sync_data()?;
            }
            match self.env.files().create_new(&self.directory.join(recover::CLEAN)) {
                // A life that ended cleanly before, and was only read since.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
                file => file?.sync_data()?,
            }
            self.env.files().sync_directory(&self.directory)
        };
        clean().map_err(|error| Error::io(error, "closing a node's journal", self.directory.display()))
    }

    /// Deletes the journal of a life that is over.
    pub(super) fn remove(&self) -> io::Result<()> {
        recover::remove_life(&self.env, &self.directory)
    }
}

/// Writes frames behind the current file's end, and makes them durable.
fn make_durable(current: &mut Current, buffer: &mut Vec<u8>) -> io::Result<()> {
    if let Some(file) = current.file.as_ref().filter(|_| !buffer.is_empty()) {
        file.write_all_at(buffer, u64::from(current.byte))?;
        file.sync_data()?;
        current.byte += u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        buffer.clear();
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "a page")]
const fn header_bytes() -> u32 {
    SEGMENT_HEADER_BYTES as u32
}

/// Makes a file whose predecessor ends at `end`, with its name durable.
fn new_file(
    env: &Env,
    directory: &Path,
    life: NodeIncarnation,
    number: u32,
    end: u64,
) -> io::Result<Arc<dyn File>> {
    let file = env.files().create_new(&file_path(directory, number))?;
    match file.allocate(u64::from(FILE_BYTES)) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        allocated => allocated?,
    }
    let identity = identity(life, number);
    let header = SegmentHeader {
        identity,
        capacity: u64::from(FILE_BYTES),
        predecessor_end: end,
        boot_id: env.boot_id(),
    };
    file.write_all_at(&header.encode(0), 0)?;
    file.sync_data()?;
    env.files().sync_directory(directory)?;
    Ok(file)
}
