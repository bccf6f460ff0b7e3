//! Memory for big structures that are read at random, advised for huge pages.
//!
//! Random loads over 128 MiB cost 140–180 ns on huge pages and 170–330 ns on 4 KiB pages. The host
//! decides (`madvise` must be allowed in `/sys/kernel/mm/transparent_hugepage/enabled`); without it
//! everything works, slower.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size and alignment of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A zeroed, private region of memory, given back when dropped. Pages are taken on first touch.
///
/// This only owns the memory: who may touch which byte is up to the arena built on it.
#[derive(Debug)]
pub struct Region {
    /// Invariant: start of a mapping of `length` readable and writable bytes, page-aligned, that
    /// lives until this value is dropped.
    base: NonNull<u8>,
    /// Invariant: a multiple of the page size, 0 < length <= isize::MAX.
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread; the value hands out
// nothing but its address and length.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives no access to the bytes by itself.
unsafe impl Sync for Region {}

impl Region {
    /// A region of at least `length` bytes, rounded up to whole pages. From 2 MiB on it is rounded
    /// and aligned to huge pages.
    ///
    /// # Errors
    /// `InvalidInput` for a length of zero or beyond the address space; `OutOfMemory` when the
    /// kernel refuses.
    pub fn new(length: usize) -> io::Result<Region> {
        let page = if length >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { page_bytes() };
        let rounded = length
            .checked_next_multiple_of(page)
            .filter(|rounded| *rounded > 0 && isize::try_from(rounded + page).is_ok());
        let length = rounded.ok_or(io::ErrorKind::InvalidInput)?;
        let base = pages::map(length)?;
        MAPPED_BYTES.fetch_add(length, Ordering::Relaxed);
        Ok(Region { base, length })
    }

    /// The first byte. Valid for reads and writes of [`Region::length`] bytes until the region is
    /// dropped; zeroed at first.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Takes all its pages now: 2 MiB are cleared in some hundred microseconds. Where the kernel
    /// can't, they are taken on first touch as ever.
    pub fn populate(&self) {
        pages::populate(self.base, self.length);
    }
}

/// Bytes of their own in a [`Region`]: a buffer for so many of them that touching its pages one by
/// one would take as long as filling it.
#[derive(Debug)]
pub struct Buffer {
    /// `None` for no bytes.
    region: Option<Region>,
    /// Invariant: no more than the region has.
    length: usize,
}

impl Buffer {
    /// `length` zeros.
    ///
    /// # Errors
    /// `OutOfMemory` when the kernel refuses.
    pub fn zeroed(length: usize) -> io::Result<Buffer> {
        let region = if length == 0 { None } else { Some(Region::new(length)?) };
        Ok(Buffer { region, length })
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.region {
            // SAFETY: the region has `length` bytes and more, initialised, which live as long as
            // this value; only `&mut self` changes them.
            Some(region) => unsafe { std::slice::from_raw_parts(region.base().as_ptr(), self.length) },
            None => &[],
        }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.region {
            // SAFETY: as above, and nobody else has a reference to them.
            Some(region) => unsafe { std::slice::from_raw_parts_mut(region.base().as_ptr(), self.length) },
            None => &mut [],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` and `length` are of the mapping that `new` made, which is this value's
        // own; holders of an address know that it ends here.
        unsafe { pages::unmap(self.base, self.length) };
        MAPPED_BYTES.fetch_sub(self.length, Ordering::Relaxed);
    }
}

static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of all regions that this process has: what no allocator counts.
pub fn mapped_bytes() -> usize {
    MAPPED_BYTES.load(Ordering::Relaxed)
}

/// Bytes that the program holds of the system's allocator, modulo 4 GiB: memory that was freed and
/// is kept for later is no part of it. `None` where the allocator does not say. It takes each of
/// the allocator's locks: nothing for a hot path.
pub fn heap_bytes() -> Option<u64> {
    heap::held_bytes()
}

/// Size of an ordinary page.
pub fn page_bytes() -> usize {
    if cfg!(miri) { 4096 } else { rustix::param::page_size() }
}

#[cfg(all(target_env = "gnu", not(miri)))]
mod heap {
    pub(super) fn held_bytes() -> Option<u64> {
        // `mallinfo2`, whose numbers are wide, is missing from C libraries that are still in use.
        // SAFETY: the call takes nothing and answers by value; it may be made from any thread.
        let info = unsafe { libc::mallinfo() };
        Some(u64::from(info.uordblks.cast_unsigned().wrapping_add(info.hblkhd.cast_unsigned())))
    }
}

#[cfg(not(all(target_env = "gnu", not(miri))))]
mod heap {
    pub(super) fn held_bytes() -> Option<u64> {
        None
    }
}

#[cfg(not(miri))]
mod pages {
    use std::io;
    use std::ptr::NonNull;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::HUGE_PAGE_BYTES;

    /// Maps `length` zeroed bytes, whole pages; whole huge pages are aligned to such, and advised.
    pub(super) fn map(length: usize) -> io::Result<NonNull<u8>> {
        let huge = length >= HUGE_PAGE_BYTES;
        // What comes before the first huge page and after the last goes back at once.
        let slack = if huge { HUGE_PAGE_BYTES } else { 0 };
        // SAFETY: a null hint lets the kernel choose the place, so no existing mapping is touched;
        // the length is not zero.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length + slack,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let before = if huge { start.cast::<u8>().align_offset(HUGE_PAGE_BYTES) } else { 0 };
        let base = start.cast::<u8>().wrapping_add(before);
        let after = slack - before;
        if before > 0 {
            // SAFETY: the first `before` bytes of the fresh mapping, to which nobody has a pointer
            // but this function.
            unsafe { munmap(start, before)? };
        }
        if after > 0 {
            // SAFETY: the last `after` bytes of the fresh mapping, as above.
            unsafe { munmap(base.wrapping_add(length).cast(), after)? };
        }
        if huge {
            // Refused where the kernel is built without huge pages: nothing but speed depends on
            // it. SAFETY: the range is the mapping of this function's own; the advice changes no
            // content.
            let _ = unsafe { madvise(base.cast(), length, Advice::LinuxHugepage) };
        }
        NonNull::new(base).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Takes the pages of a mapping. Best effort: kernels before 5.14 do not know it.
    pub(super) fn populate(base: NonNull<u8>, length: usize) {
        // SAFETY: the advice changes no content; a range that is not mapped is refused.
        let _ = unsafe { madvise(base.as_ptr().cast(), length, Advice::LinuxPopulateWrite) };
    }

    /// Gives a mapping back.
    ///
    /// # Safety
    /// [`map`] gave `base` for `length`, and nobody uses it any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>, length: usize) {
        // SAFETY: the caller's promise.
        let unmapped = unsafe { munmap(base.as_ptr().cast(), length) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The checker knows no mappings: there a region is plain memory.
#[cfg(miri)]
mod pages {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    fn layout(length: usize) -> Option<Layout> {
        Layout::from_size_align(length, super::page_bytes()).ok()
    }

    pub(super) fn map(length: usize) -> io::Result<NonNull<u8>> {
        let layout = layout(length).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the length is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    /// As of mappings.
    pub(super) unsafe fn unmap(base: NonNull<u8>, length: usize) {
        if let Some(layout) = layout(length) {
            // SAFETY: `map` allocated it with this layout, and the caller promises that nobody uses
            // it.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests;
