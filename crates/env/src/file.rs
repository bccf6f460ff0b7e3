//! Files, directories and shared mappings, as the local backend and the local log need them.
//!
//! Calls are synchronous: callers run them on a pool thread, or knowingly on their own. In a
//! simulated world every call is a place where another process may run, where the disk may fail,
//! and where the power may go.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::{BoxFuture, FileSystemFacts, ZoneControl};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
    /// Reading past the page cache.
    ReadDirect,
    /// Reading and writing past the page cache: offsets and lengths of writes must be aligned, see
    /// [`File::direct_alignment`].
    ReadWriteDirect,
}

/// What a file system is backed by, as far as a local log must know: one of a network cannot carry
/// its fences, and one that copies on write may need room for mere overwrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// A disk or memory of this host. Overwritten data stays in its place.
    Local,
    /// A disk of this host, by the file system's name (`btrfs`, `zfs`, …): overwritten data goes
    /// to a new place. On a full disk a store through a mapping then kills the process (SIGBUS),
    /// where a write is an error.
    CopyOnWrite(String),
    /// A network or cluster file system, by name (`nfs`, `smb`, `ceph`, …).
    Network(String),
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// The name, without its directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length in bytes.
    pub length: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// Space of the file system that holds a path, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What this process may still use.
    pub available: u64,
    /// The whole.
    pub total: u64,
}

/// Names and files of one world. Errors are `std::io::Error` with their usual kinds (`NotFound`,
/// `AlreadyExists`, `StorageFull`, `ReadOnlyFilesystem`, `PermissionDenied`, …).
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Opens an existing file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;
    /// Creates a file for reading and writing; `AlreadyExists` when the name is taken. The name is
    /// durable after [`FileSystem::sync_directory`].
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Creates a directory with its missing parents, and makes the new names durable.
    fn create_directories(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name; `AlreadyExists` when that is taken. Atomic: this is
    /// put-if-absent.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames within one file system, replacing `to`. Atomic.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name; open files and mappings of it stay usable.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// All names of a directory in one atomic answer (one `getdents` call whose buffer holds them
    /// all), in no order, without `.` and `..`.
    fn list_atomically(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;
    /// Makes the names of a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// What a path names.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;
    /// Space of the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// What the file system that holds `path` is backed by.
    fn kind(&self, path: &Path) -> io::Result<FileSystemKind>;
    /// How many files this process may have open at once.
    fn open_files_max(&self) -> usize;
    /// Whether reads that the page cache does not hold go through io_uring, or why not.
    fn io_uring(&self) -> Result<(), String>;
    /// What the file system that holds `path` offers.
    fn facts(&self, path: &Path) -> io::Result<FileSystemFacts>;
    /// Bytes that the device of `path` has written since boot, where the kernel tells
    /// (`/sys/dev/block/…/stat`); for reports only.
    fn device_bytes_written(&self, path: &Path) -> Option<u64>;
    /// The zones of the block device `path`.
    ///
    /// # Errors
    /// `Unsupported` when it has none.
    fn zones(&self, path: &Path) -> io::Result<Arc<dyn ZoneControl>>;
}

/// An open file. Safe to use from many threads.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads ranges of (offset, length) as one batch. What the page cache holds is there at once;
    /// for the rest no thread is held. Results come in the order of the ranges, each shorter than
    /// asked only at the end of the file. Dropping the future gives the results up. A batch begins
    /// at the latest when its future was polled and the thread that polled it has nothing else to
    /// do.
    fn read_many(self: Arc<Self>, ranges: Vec<(u64, usize)>) -> BoxFuture<'static, Vec<io::Result<Vec<u8>>>>;
    /// Shows a range that the page cache holds whole, on the calling thread and without waiting;
    /// `false` when it cannot, and nothing was shown. Who reads past the page cache is never shown
    /// anything.
    fn with_held(&self, offset: u64, length: usize, show: &mut dyn FnMut(&[u8])) -> bool;
    /// What offsets and lengths of writes must be multiples of, when the page cache is passed by.
    /// Reads need not be aligned.
    fn direct_alignment(&self) -> Option<usize>;
    /// Writes all of `bytes` at `offset`. After an error any part of it may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts or extends (with a hole) to `length`.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Takes the disk's space for the first `length` bytes, which must not be below the file's
    /// length, and makes that its length. Unwritten bytes read as zeros.
    ///
    /// # Errors
    /// `StorageFull` when there is no room: nothing was taken. `Unsupported` where the file system
    /// cannot.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Begins to write a range back to the device and waits until everything before it is there, so
    /// that what a later sync has left to do is bounded. Makes nothing durable. After an error
    /// treat the file as poisoned, as after [`File::sync_data`].
    fn write_out(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Says that the file will be read in order and once: the page cache reads ahead, and gives its
    /// pages up before others.
    fn read_once(&self);
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Makes content and length durable (`fdatasync`). After an error, unsynced data may
    /// never become so, even if a later call succeeds: treat the file as poisoned.
    fn sync_data(&self) -> io::Result<()>;
    /// Takes the file's exclusive advisory lock (`flock`), held until this open file is dropped or
    /// its process ends, however it ends; `false` when another open file holds it. The next holder
    /// knows that the former holder is gone.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no locks.
    fn try_lock(&self) -> io::Result<bool>;
    /// Maps the first `length` bytes, shared between processes, for reading and writing. The file
    /// must be that long.
    fn map(&self, length: usize) -> io::Result<Arc<dyn Mapping>>;
}

/// A shared mapping of a file. Bytes stored here survive the process, and become durable with
/// [`File::sync_data`].
///
/// Offsets are in bytes from the start of the file.
///
/// # Panics
/// All methods panic when the range lies outside the mapping, or a word is not 8-byte aligned: both
/// are bugs of the caller.
pub trait Mapping: Send + Sync + fmt::Debug {
    /// Length in bytes.
    fn length(&self) -> usize;
    /// Stores `bytes` at `offset`. The caller makes sure that no two threads store to one range at
    /// once.
    fn write(&self, offset: usize, bytes: &[u8]);
    /// Loads `buffer.len()` bytes from `offset`. Bytes that another process stores meanwhile may
    /// come torn: check them.
    fn read(&self, offset: usize, buffer: &mut [u8]);
    /// Loads a word, sequentially consistent with other words of all processes.
    fn load_u64(&self, offset: usize) -> u64;
    /// Stores a word, sequentially consistent.
    fn store_u64(&self, offset: usize, value: u64);
    /// Raises a word to `value` if it is lower; returns the word before.
    fn fetch_max_u64(&self, offset: usize, value: u64) -> u64;
    /// A full fence between the stores before it and the loads after it.
    fn full_fence(&self);
    /// Makes the pages of a range present ahead of use, each by itself where the kernel lets us: a
    /// store dirties no more than its page. They stay clean: untouched pages need not be
    /// written again.
    fn populate(&self, offset: usize, length: usize) -> io::Result<()>;
    /// Says that nobody will soon store to a range, whose content stays: what a sync of it costs
    /// comes once for all its pages, not for each. A later use is a page fault.
    fn let_go(&self, offset: usize, length: usize);
}

/// Reads exactly `buffer.len()` bytes at `offset`.
///
/// # Errors
/// `UnexpectedEof` when the file ends before.
pub fn read_exact_at(file: &dyn File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        let count = file.read_at(buffer, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[count..];
        offset += count as u64;
    }
    Ok(())
}

/// Refuses a write that is not aligned.
pub(crate) fn check_alignment(align: usize, length: usize, offset: u64) -> io::Result<()> {
    if length.is_multiple_of(align) && offset.is_multiple_of(align as u64) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{length} bytes at {offset} are not aligned to {align}"),
    ))
}
