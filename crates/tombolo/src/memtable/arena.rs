//! Memory of a memtable: chunks that grow up to a huge page, filled from the front by one writer, given back all at once.
//!
//! Invariants:
//! 1. A chunk never moves and is freed only with its [`Arena`].
//! 2. A byte is handed out once.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Alignment of all that is handed out.
pub(super) const ALIGN: usize = 8;

/// First chunk; each following one is twice as large up to a huge page, so that a small database stays small.
const FIRST_CHUNK_BYTES: usize = 16 << 10;
const LARGEST_CHUNK_BYTES: usize = 2 << 20;

/// Owns the chunks.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Mutex<Vec<Chunk>>,
    /// Bytes of all chunks.
    bytes: AtomicU64,
}

impl Arena {
    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(not(miri))]
type Chunk = tombolo_env::memory::Region;

/// The checker knows no mappings: there a chunk is plain memory.
#[cfg(miri)]
#[derive(Debug)]
struct Chunk(NonNull<u64>, usize);

#[cfg(miri)]
impl Chunk {
    fn new(length: usize) -> io::Result<Chunk> {
        let words = length.div_ceil(8);
        let memory = Box::leak(vec![0u64; words].into_boxed_slice());
        Ok(Chunk(NonNull::from(memory).cast(), words))
    }

    fn base(&self) -> NonNull<u8> {
        self.0.cast()
    }

    fn length(&self) -> usize {
        self.1 * 8
    }
}

#[cfg(miri)]
impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the slice was leaked by `new` with this length, and is taken back once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.0.as_ptr(), self.1)) });
    }
}

// SAFETY: plain memory that belongs to the value alone.
#[cfg(miri)]
unsafe impl Send for Chunk {}

/// Hands out memory of an arena. There is one per arena, held by its writer.
#[derive(Debug)]
pub(super) struct Bump {
    arena: Arc<Arena>,
    /// Invariant: `next..next + left` lies in one chunk of `arena`, and none of it was handed out.
    next: NonNull<u8>,
    left: usize,
    chunk_bytes: usize,
}

// SAFETY: the pointer leads into memory that `arena` keeps alive and that only this value hands out.
unsafe impl Send for Bump {}

impl Bump {
    pub(super) fn new() -> Bump {
        Bump { arena: Arc::default(), next: NonNull::<u64>::dangling().cast(), left: 0, chunk_bytes: FIRST_CHUNK_BYTES }
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Makes sure that allocations of `bytes` in all, rounded up one by one, succeed.
    pub(super) fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        if bytes <= self.left {
            return Ok(());
        }
        let chunk = Chunk::new(bytes.max(self.chunk_bytes))?;
        self.next = chunk.base();
        self.left = chunk.length();
        self.chunk_bytes = (self.chunk_bytes * 2).min(LARGEST_CHUNK_BYTES);
        self.arena.bytes.fetch_add(chunk.length() as u64, Ordering::Relaxed);
        self.arena.chunks.lock().push(chunk);
        Ok(())
    }

    /// `bytes` of memory, aligned to [`ALIGN`], valid as long as the arena lives.
    ///
    /// # Panics
    /// When they were not reserved: a bug.
    pub(super) fn allocate(&mut self, bytes: usize) -> NonNull<u8> {
        let rounded = bytes.next_multiple_of(ALIGN);
        assert!(rounded <= self.left, "{rounded} bytes were not reserved");
        let allocated = self.next;
        // SAFETY: `rounded <= left`, so the sum lies in the chunk or one past its end.
        self.next = unsafe { self.next.add(rounded) };
        self.left -= rounded;
        allocated
    }
}
