//! Memory of a memtable: chunks that grow up to a huge page, filled from the front by one writer,
//! given back all at once.
//!
//! Nothing is taken before the first write, and chunks follow the memtable's size: together they
//! are no larger than it, unless a batch is.
//!
//! Invariants:
//! 1. A chunk never moves and is freed only with its [`Arena`], to the system or to the chunks that
//!    the budget keeps for the next memtables. So its content is anything at first.
//! 2. A byte is handed out once.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tombolo_env::memory::Region;

use crate::budget::{Category, Charge, MemoryBudget, Room, SPARE_BYTES};

/// Alignment of all that is handed out.
pub(super) const ALIGN: usize = 8;

/// First chunk: an eighth of the memtable within these bounds. Each following one is twice as large
/// up to a huge page, so that a small database stays small.
const FIRST_CHUNK_BYTES_MIN: usize = 4 << 10;
const FIRST_CHUNK_BYTES_MAX: usize = 16 << 10;
const LARGEST_CHUNK_BYTES: usize = SPARE_BYTES;

/// Owns the chunks, which are charged to the memory budget.
#[derive(Debug)]
pub(super) struct Arena {
    /// Each with its charge.
    chunks: Mutex<Vec<(Region, Charge)>>,
    budget: Arc<MemoryBudget>,
    /// Bytes of all chunks.
    bytes: AtomicU64,
    /// What the budget has promised, as often as it had to be asked.
    rooms: Mutex<Vec<Room>>,
}

impl Arena {
    /// Whether the budget has promised its bytes.
    pub(super) fn has_room(&self) -> bool {
        !self.rooms.lock().is_empty()
    }

    /// Keeps a promise as long as the memory.
    pub(super) fn keep_room(&self, room: Room) {
        self.rooms.lock().push(room);
    }

    /// What it is charged to.
    pub(super) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (chunk, charge) in self.chunks.get_mut().drain(..) {
            drop(charge);
            self.budget.keep_spare(chunk);
        }
    }
}

/// Chunks for one memtable whose pages another thread has taken before they are needed: clearing
/// them takes as long as filling them, and several times as long where a virtual machine's host has
/// to find the memory first.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadyChunks(Arc<Mutex<Chunks>>);

#[derive(Debug, Default)]
struct Chunks {
    ready: Vec<Region>,
    /// Chunks that were asked for and that nobody has begun with.
    wanted: usize,
    /// Whether a thread makes some ready: one alone, as others have to do with what they are for.
    is_being_made: bool,
}

impl ReadyChunks {
    /// Bytes of one.
    pub(crate) const BYTES: usize = LARGEST_CHUNK_BYTES;

    /// Asks for `count` more. `true`: nobody makes any; somebody is to call [`ReadyChunks::make`].
    pub(crate) fn ask(&self, count: usize) -> bool {
        let mut chunks = self.0.lock();
        chunks.wanted += count;
        !std::mem::replace(&mut chunks.is_being_made, true)
    }

    /// Makes a chunk that was asked for ready, on the calling thread. It is charged to the budget
    /// when it is used. Without memory it does nothing.
    pub(crate) fn make(&self) {
        loop {
            {
                let mut chunks = self.0.lock();
                let Some(left) = chunks.wanted.checked_sub(1) else {
                    chunks.is_being_made = false;
                    return;
                };
                chunks.wanted = left;
            }
            if let Ok(chunk) = Region::new(LARGEST_CHUNK_BYTES) {
                chunk.populate();
                self.0.lock().ready.push(chunk);
            }
        }
    }

    /// How many are ready.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().ready.len()
    }

    /// One that is ready. When there is none the user makes it himself: it is asked for no
    /// more.
    fn take(&self) -> Option<Region> {
        let mut chunks = self.0.lock();
        let taken = chunks.ready.pop();
        if taken.is_none() {
            chunks.wanted = chunks.wanted.saturating_sub(1);
        }
        taken
    }
}

/// Hands out memory of an arena. There is one per arena, held by its writer.
#[derive(Debug)]
pub(super) struct Bump {
    arena: Arc<Arena>,
    /// Invariant: `next..next + left` lies in one chunk of `arena`, and none of it was handed out.
    next: NonNull<u8>,
    left: usize,
    /// Filled when the current chunk is: until then it costs addresses only, or is one that was
    /// used before, with its charge.
    next_chunk: Option<(Region, Option<Charge>)>,
    ready: ReadyChunks,
    /// Of the next chunk, if the memtable still takes so many.
    chunk_bytes: usize,
    /// Bytes that the memtable is to take in all.
    capacity: usize,
    /// Bytes handed out, and those that were left at the ends of chunks.
    used: u64,
    /// The last reservation is a guess.
    may_take_more: bool,
    /// The current chunk has just been begun, and another one of its size will follow that nobody
    /// has at hand.
    wants_ready: bool,
}

// SAFETY: the pointer leads into memory that `arena` keeps alive and that only this value hands
// out.
unsafe impl Send for Bump {}
// SAFETY: `&Bump` gives no access to the memory.
unsafe impl Sync for Bump {}

impl Bump {
    pub(super) fn new(budget: &Arc<MemoryBudget>, capacity: u64) -> Bump {
        let next = NonNull::<u64>::dangling().cast();
        let arena = Arc::new(Arena {
            chunks: Mutex::default(),
            budget: Arc::clone(budget),
            bytes: AtomicU64::new(0),
            rooms: Mutex::default(),
        });
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        let chunk_bytes = (capacity / 8).clamp(FIRST_CHUNK_BYTES_MIN, FIRST_CHUNK_BYTES_MAX);
        Bump {
            arena,
            next,
            left: 0,
            next_chunk: None,
            ready: ReadyChunks::default(),
            chunk_bytes,
            capacity,
            used: 0,
            may_take_more: false,
            wants_ready: false,
        }
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Bytes handed out so far, and those that were left at the ends of chunks.
    #[inline]
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Makes sure that allocations of `bytes` in all, rounded up one by one, succeed;
    /// `may_take_more`: that is a guess, and there may be more.
    #[inline]
    pub(super) fn reserve(&mut self, bytes: usize, may_take_more: bool) -> io::Result<()> {
        self.may_take_more = may_take_more;
        #[cfg(test)]
        if refusing::REFUSED.get() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // Whatever does not fit into the current chunk, and all after it, goes into the next one.
        if bytes <= self.left || self.next_chunk.as_ref().is_some_and(|(next, _)| bytes <= next.length()) {
            return Ok(());
        }
        let held = usize::try_from(self.arena.bytes()).unwrap_or(usize::MAX);
        let chunk_bytes = self.chunk_bytes.min(self.capacity.saturating_sub(held)).max(FIRST_CHUNK_BYTES_MIN);
        let wanted = bytes.max(chunk_bytes);
        let at_hand = || match self.ready.take() {
            Some(ready) => Some((ready, None)),
            None => self.arena.budget.take_spare().map(|(chunk, charge)| (chunk, Some(charge))),
        };
        let at_hand = if wanted == LARGEST_CHUNK_BYTES { at_hand() } else { None };
        self.next_chunk = match at_hand {
            Some(chunk) => Some(chunk),
            None => Some((Region::new(wanted)?, None)),
        };
        Ok(())
    }

    /// Where chunks can be made ready.
    pub(super) fn ready(&self) -> &ReadyChunks {
        &self.ready
    }

    /// Whether one should be, by somebody else; says so once.
    #[inline]
    pub(super) fn wants_ready(&mut self) -> bool {
        self.wants_ready && std::mem::take(&mut self.wants_ready)
    }

    /// `bytes` of memory, aligned to [`ALIGN`], valid as long as the arena lives.
    ///
    /// # Panics
    /// When they were not reserved: a bug; or, of what may take more than that, when the system has
    /// no memory.
    #[inline]
    pub(super) fn allocate(&mut self, bytes: usize) -> NonNull<u8> {
        let rounded = bytes.next_multiple_of(ALIGN);
        if rounded > self.left {
            self.go_over(rounded);
        }
        let allocated = self.next;
        // SAFETY: `rounded <= left`, so the sum lies in the chunk or one past its end.
        self.next = unsafe { self.next.add(rounded) };
        self.left -= rounded;
        self.used += rounded as u64;
        allocated
    }

    /// As [`Bump::allocate`], aligned to a power of two from [`ALIGN`] on. Takes up to `align`
    /// bytes more.
    ///
    /// # Panics
    /// As [`Bump::allocate`].
    #[inline]
    pub(super) fn allocate_aligned(&mut self, bytes: usize, align: usize) -> NonNull<u8> {
        let room = bytes.next_multiple_of(ALIGN);
        if room + align > self.left {
            self.go_over(room + align);
        }
        let before = self.next.align_offset(align);
        self.allocate(before);
        self.allocate(room)
    }

    /// Goes over into the next chunk, which has room for `bytes`; or, if more than the
    /// reserved bytes may be taken, into a new one.
    fn go_over(&mut self, bytes: usize) {
        let next = self.next_chunk.take().filter(|(next, _)| bytes <= next.length());
        let more = || {
            if self.may_take_more {
                Region::new(bytes.max(self.chunk_bytes)).ok().map(|chunk| (chunk, None))
            } else {
                None
            }
        };
        let Some((chunk, spare)) = next.or_else(more) else { panic!("{bytes} bytes were not reserved") };
        self.used += self.left as u64;
        self.next = chunk.base();
        self.left = chunk.length();
        self.chunk_bytes = (self.chunk_bytes * 2).min(LARGEST_CHUNK_BYTES);
        let held = self.arena.bytes.fetch_add(chunk.length() as u64, Ordering::Relaxed);
        let with_another = held + (chunk.length() + LARGEST_CHUNK_BYTES) as u64;
        let follows = with_another <= self.capacity as u64;
        self.wants_ready = chunk.length() == LARGEST_CHUNK_BYTES && follows && !self.arena.budget.has_spare();
        drop(spare);
        let charge = self.arena.budget.charge(Category::Memtables, chunk.length() as u64);
        self.arena.chunks.lock().push((chunk, charge));
    }
}

/// A system without memory, for tests: on this thread, which is all of a simulated world.
#[cfg(test)]
pub(crate) mod refusing {
    std::thread_local! {
        /// Reservations fail.
        pub(crate) static REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
}
