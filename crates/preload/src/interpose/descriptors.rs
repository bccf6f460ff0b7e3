//! Which descriptors stand for files of the database.
//!
//! The descriptor that a program gets is one of the placeholder with `O_PATH`: it can be
//! duplicated, closed and asked for its inode, and whatever reads or writes it past this library,
//! as the C library does within its streams, fails with `EBADF`.
//!
//! Whether one does is a load of an atomic, so that calls on all others cost nothing more, and so
//! that a forked child can ask without a lock.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::{Mutex, RwLock};

use super::{Errno, Outcome};
use crate::files::File;

/// Descriptors of files of the database are below this.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// What a descriptor is to this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: the call is the C library's.
    Other,
    /// A file of the database.
    File,
    /// A real directory in which files of the database have placeholders.
    Directory,
}

const OTHER: u8 = 0;
const FILE: u8 = 1;
const DIRECTORY: u8 = 2;

static KINDS: [AtomicU8; DESCRIPTORS_MAX] = [const { AtomicU8::new(OTHER) }; DESCRIPTORS_MAX];
static OPEN: RwLock<BTreeMap<c_int, Arc<OpenFile>>> = RwLock::new(BTreeMap::new());

/// An open file description: what descriptors share that were duplicated from each other.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: Arc<File>,
    /// Where the next read or write without an offset begins.
    pub offset: Mutex<u64>,
    /// Whether it may be read.
    pub readable: bool,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether writes go to the end.
    pub appends: AtomicBool,
    /// Whether every write is made durable before it returns (`O_SYNC`, `O_DSYNC`).
    pub synchronous: bool,
    /// The placeholder, opened as the file was: for locks, its mode, its owner. Programs never see
    /// this descriptor.
    pub placeholder: OwnedFd,
}

fn kind_of(descriptor: c_int) -> Option<&'static AtomicU8> {
    usize::try_from(descriptor).ok().and_then(|index| KINDS.get(index))
}

/// What `descriptor` is.
#[inline]
pub fn kind(descriptor: c_int) -> Kind {
    match kind_of(descriptor).map(|kind| kind.load(Ordering::Acquire)) {
        Some(FILE) => Kind::File,
        Some(DIRECTORY) => Kind::Directory,
        _ => Kind::Other,
    }
}

/// The file that `descriptor` stands for.
///
/// # Errors
/// `EBADF` when it was closed meanwhile.
pub fn get(descriptor: c_int) -> Outcome<Arc<OpenFile>> {
    OPEN.read().get(&descriptor).cloned().ok_or(Errno(libc::EBADF))
}

/// Whether a new descriptor of that number can stand for a file.
///
/// # Errors
/// `EMFILE`.
pub fn check(descriptor: c_int) -> Outcome<()> {
    kind_of(descriptor).map(|_| ()).ok_or(Errno(libc::EMFILE))
}

/// Lets `descriptor`, which [`check`] has passed, stand for a file.
pub fn set_file(descriptor: c_int, open: Arc<OpenFile>) {
    if let Some(kind) = kind_of(descriptor) {
        OPEN.write().insert(descriptor, open);
        kind.store(FILE, Ordering::Release);
    }
}

/// Notes that `descriptor` is a directory in which files of the database have placeholders.
pub fn set_directory(descriptor: c_int) {
    if let Some(kind) = kind_of(descriptor) {
        kind.store(DIRECTORY, Ordering::Release);
    }
}

/// Forgets `descriptor`: before it is really closed, since its number may be given out again at
/// once.
pub fn forget(descriptor: c_int) {
    let Some(kind) = kind_of(descriptor) else { return };
    if super::mount::borrows_memory() {
        return;
    }
    if kind.swap(OTHER, Ordering::AcqRel) == FILE && !super::mount::is_in_fork() {
        let forgotten = OPEN.write().remove(&descriptor);
        drop(forgotten);
    }
}

/// Forgets all descriptors from `first` to `last`.
pub fn forget_range(first: c_uint, last: c_uint) {
    let end = last.min(c_uint::try_from(DESCRIPTORS_MAX).unwrap_or(c_uint::MAX));
    for descriptor in (first..=end).filter_map(|descriptor| c_int::try_from(descriptor).ok()) {
        if kind(descriptor) != Kind::Other {
            forget(descriptor);
        }
    }
}
