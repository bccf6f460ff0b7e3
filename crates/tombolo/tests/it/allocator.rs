//! An allocator that counts, regions of memory included, for tests that bound memory. Counts the
//! whole process: such a test runs in a process of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tombolo_env::memory::mapped_bytes;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Begins to look for the peak; says how many bytes are allocated and mapped now.
pub fn begin() -> usize {
    let held = live();
    PEAK.store(held, Relaxed);
    held
}

/// The most bytes that were allocated and mapped at once since [`begin`], looked at with each
/// allocation.
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Bytes that were ever allocated.
pub fn total() -> usize {
    TOTAL.load(Relaxed)
}

/// Bytes that are allocated and mapped now.
pub fn live() -> usize {
    LIVE.load(Relaxed) + mapped_bytes()
}

fn count(bytes: usize) {
    TOTAL.fetch_add(bytes, Relaxed);
    let held = LIVE.fetch_add(bytes, Relaxed) + bytes + mapped_bytes();
    if held > PEAK.load(Relaxed) {
        PEAK.fetch_max(held, Relaxed);
    }
}

// SAFETY: every call goes on to the system's allocator with the arguments that came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Relaxed);
        count(bytes);
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}
