//! A file: its parts, and what was written since.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo::{ApplicationObject, ApplicationObjectWriter, Error, ErrorKind, Life, LogPosition, Op, Result};
use tombolo_storage::Priority;

use crate::kind::FileKind;
use crate::rows::{FILE_BYTES_MAX, Inode, Part, Tag};

/// A file of [`crate::Files`]. It outlives its name.
#[derive(Debug)]
pub struct File {
    pub(crate) number: u64,
    pub(crate) kind: FileKind,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// Names that lead to it; what none leads to is written no more.
    pub(crate) links: u64,
    /// Where its bytes lie, in their order.
    pub(crate) parts: Vec<Part>,
    pub(crate) modified_ms: u64,
    pub(crate) tail: Tail,
    pub(crate) hints: Hints,
    /// How often it was cut: bytes that were fetched before count no more.
    pub(crate) cuts: u64,
}

/// What a writer knows of a file before its first byte. Hints place its objects, and order their
/// requests; they change no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    /// How long it is expected to stay.
    pub life: Life,
    /// Which of the requests that write it go first.
    pub priority: Priority,
}

impl Default for Hints {
    fn default() -> Hints {
        Hints { life: Life::Long, priority: Priority::Normal }
    }
}

/// What follows the parts.
#[derive(Debug)]
pub(crate) enum Tail {
    /// A small file: there are no parts, and a row holds it.
    Record {
        bytes: Vec<u8>,
        /// Whether the row lacks something of it.
        is_dirty: bool,
    },
    /// Entries of a lane.
    Lane(LaneTail),
    /// Objects, of which one may be written.
    Object(Growing),
}

/// What entries of a lane hold of a file: in memory until it is copied into an object.
#[derive(Debug)]
pub(crate) struct LaneTail {
    pub(crate) tag: Tag,
    pub(crate) bytes: Counted,
    /// Appends that the log has not accepted yet, oldest first.
    pub(crate) pending: VecDeque<Op<LogPosition>>,
    /// Its place among the files that need this epoch's lane.
    pub(crate) place: Option<u64>,
    /// Whether it needs what earlier epochs left in the lane.
    pub(crate) is_of_earlier: bool,
}

/// The object that is written.
#[derive(Debug, Default)]
pub(crate) enum Growing {
    /// None is.
    #[default]
    No,
    /// So many bytes were given to it.
    Writing(Box<ApplicationObjectWriter>, u64),
    /// A call has it.
    Taken,
    /// It was lost, and what was written with it.
    Failed(Error),
}

/// Bytes in memory, counted together with those of other files.
#[derive(Debug)]
pub(crate) struct Counted {
    bytes: Vec<u8>,
    total: Arc<AtomicU64>,
}

impl Counted {
    pub(crate) fn new(bytes: Vec<u8>, total: &Arc<AtomicU64>) -> Counted {
        total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Counted { bytes, total: Arc::clone(total) }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    pub(crate) fn cut(&mut self, length: usize) {
        let freed = self.bytes.len().saturating_sub(length);
        self.bytes.truncate(length);
        self.total.fetch_sub(freed as u64, Ordering::Relaxed);
    }

    /// Takes `bytes` away from its front.
    pub(crate) fn take_front(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes.len());
        self.bytes = self.bytes.split_off(bytes);
        self.total.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.cut(0);
    }
}

impl File {
    pub(crate) fn new(number: u64, kind: FileKind, state: State) -> File {
        File { number, kind, state: Mutex::new(state) }
    }

    /// What tells it from other files here, whatever its names.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its kind.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Bytes that a read finds: of an object that is written, those before the last sync.
    pub fn size(&self) -> u64 {
        self.state.lock().size()
    }

    /// What the objects are told that are begun from now on.
    pub fn hint(&self, hints: Hints) {
        self.state.lock().hints = hints;
    }

    /// When it was changed last, in milliseconds since 1970.
    pub fn modified_ms(&self) -> u64 {
        self.state.lock().modified_ms
    }

    /// How many names lead to it.
    pub fn links(&self) -> u64 {
        self.state.lock().links
    }
}

impl State {
    pub(crate) fn new(links: u64, parts: Vec<Part>, modified_ms: u64, tail: Tail) -> State {
        State { links, parts, modified_ms, tail, hints: Hints::default(), cuts: 0 }
    }

    pub(crate) fn parts_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    pub(crate) fn size(&self) -> u64 {
        let tail = match &self.tail {
            Tail::Record { bytes, .. } => bytes.len(),
            Tail::Lane(lane) => lane.bytes.get().len(),
            Tail::Object(_) => 0,
        };
        self.parts_bytes() + tail as u64
    }

    /// Its row.
    pub(crate) fn inode(&self, kind: FileKind) -> Inode {
        let (tag, record) = match &self.tail {
            Tail::Record { bytes, .. } => (Tag::default(), bytes.clone()),
            Tail::Lane(lane) => (lane.tag, Vec::new()),
            Tail::Object(_) => (Tag::default(), Vec::new()),
        };
        Inode { kind, modified_ms: self.modified_ms, tag, parts: self.parts.clone(), record }
    }

    /// Parts for the first `size` bytes of those that there are, and the objects that none of them
    /// is in.
    pub(crate) fn parts_to(&self, size: u64) -> (Vec<Part>, Vec<ApplicationObject>) {
        let (mut kept, mut dropped, mut left) = (Vec::new(), Vec::new(), size);
        for part in &self.parts {
            if left == 0 {
                dropped.push(part.object);
            } else {
                kept.push(Part { object: part.object, bytes: part.bytes.min(left) });
                left = left.saturating_sub(part.bytes);
            }
        }
        (kept, dropped)
    }

    /// Where the bytes `at..at + length` lie, cut at the end.
    pub(crate) fn pieces(&self, at: u64, length: u64) -> Vec<Piece> {
        let end = at.saturating_add(length).min(self.size());
        let (mut pieces, mut start) = (Vec::new(), 0);
        for part in &self.parts {
            let (from, to) = (at.max(start), end.min(start + part.bytes));
            if from < to {
                pieces.push(Piece::Object(part.object, from - start..to - start));
            }
            start += part.bytes;
        }
        let held = match &self.tail {
            Tail::Record { bytes, .. } => &bytes[..],
            Tail::Lane(lane) => lane.bytes.get(),
            Tail::Object(_) => &[],
        };
        let place = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX).min(held.len());
        let (from, to) = (place(at), place(end));
        if from < to {
            pieces.push(Piece::Held(held[from..to].to_vec()));
        }
        pieces
    }
}

/// Where some bytes of a file lie.
#[derive(Debug)]
pub(crate) enum Piece {
    Object(ApplicationObject, std::ops::Range<u64>),
    Held(Vec<u8>),
}

/// # Errors
/// `Invalid` beyond the largest file.
pub(crate) fn check_size(size: u64) -> Result<()> {
    if size <= FILE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "a size beyond that of the largest file").found(size))
}
