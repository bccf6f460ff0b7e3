//! Memory for what is big and read at random, advised for huge pages.
//!
//! Random loads over 128 MiB cost 140–180 ns on huge pages and 170–330 ns on 4 KiB pages. The host decides (`madvise` must be allowed in
//! `/sys/kernel/mm/transparent_hugepage/enabled`); without it everything works, slower.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Size and alignment of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A zeroed, private region of memory, given back when dropped. Pages are taken on first touch.
///
/// This only owns the memory: who may touch which byte is up to whoever builds an arena on it.
#[derive(Debug)]
pub struct Region {
    /// Invariant: start of a mapping of `length` readable and writable bytes, page-aligned, that lives until this value is dropped.
    base: NonNull<u8>,
    /// Invariant: a multiple of the page size, 0 < length <= isize::MAX.
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread; the value hands out nothing but its address and length.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives no access to the bytes by itself.
unsafe impl Sync for Region {}

impl Region {
    /// A region of at least `length` bytes, rounded up to whole pages. From 2 MiB on it is rounded and aligned to huge pages.
    ///
    /// # Errors
    /// `InvalidInput` for a length of zero or beyond the address space; `OutOfMemory` when the kernel refuses.
    pub fn new(length: usize) -> io::Result<Region> {
        let huge = length >= HUGE_PAGE_BYTES;
        let page = if huge { HUGE_PAGE_BYTES } else { rustix::param::page_size() };
        let rounded = length.checked_next_multiple_of(page).filter(|rounded| *rounded > 0 && isize::try_from(rounded + page).is_ok());
        let length = rounded.ok_or(io::ErrorKind::InvalidInput)?;
        // What comes before the first huge page and after the last goes back at once.
        let slack = if huge { HUGE_PAGE_BYTES } else { 0 };
        // SAFETY: a null hint lets the kernel choose the place, so no existing mapping is touched; the length is not zero.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length + slack, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)? };
        let before = if huge { start.cast::<u8>().align_offset(HUGE_PAGE_BYTES) } else { 0 };
        let base = start.cast::<u8>().wrapping_add(before);
        let after = slack - before;
        if before > 0 {
            // SAFETY: the first `before` bytes of the fresh mapping, to which nobody has a pointer but this function.
            unsafe { munmap(start, before)? };
        }
        if after > 0 {
            // SAFETY: the last `after` bytes of the fresh mapping, as above.
            unsafe { munmap(base.wrapping_add(length).cast(), after)? };
        }
        if huge {
            // Refused where the kernel is built without huge pages: nothing but speed depends on it.
            // SAFETY: the range is the mapping of this function's own; the advice changes no content.
            let _ = unsafe { madvise(base.cast(), length, Advice::LinuxHugepage) };
        }
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { base, length })
    }

    /// The first byte. Valid for reads and writes of [`Region::length`] bytes until the region is dropped; zeroed at first.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; whoever kept an address was told that it ends here.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests;
