//! Shared mappings of files.
//!
//! Every public method checks its range in safe code first (`Mapped::address`, `Mapped::word`); the
//! unsafe blocks rely on that and on the invariants of `Mapped` alone.
//!
//! Bytes are moved as [`words`] does: other processes may store to them meanwhile.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::words;
use crate::Mapping;

const WORD: usize = size_of::<u64>();

/// A file is read ahead of a population in pieces of this size, which the kernel reads into single
/// pages. Left to itself it reads into large folios, and a store dirties a whole one: 64 MiB of
/// frames stored in unwritten blocks, with a sync every 4 MiB, were then written 1.23 times (ext4,
/// kernel 6.18, read-ahead of 8 MiB), and 1.00 times with pieces of 64 to 512 KiB, for 20 ms more
/// of CPU.
const READ_AHEAD_BYTES: usize = 128 << 10;

/// A live mapping.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Invariant: start of a mapping of at least `length` readable and writable bytes,
    /// page-aligned, that lives until this value is dropped.
    base: NonNull<u8>,
    /// Invariant: 0 < length <= isize::MAX.
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Mapped {}
// SAFETY: all access through `&self` is atomic.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `length` bytes of `file`, which must be that long.
    pub(super) fn new(file: &File, length: usize) -> io::Result<Mapped> {
        if length == 0 || isize::try_from(length).is_err() || file.metadata()?.len() < length as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the file is shorter than the {length} bytes to map, or these are none"),
            ));
        }
        // SAFETY: a null hint lets the kernel choose the place, so no existing mapping is touched;
        // length is not zero.
        let base = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapped { base, length })
    }

    /// The address of `offset`, once the range is known to lie inside.
    fn address(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "range {offset}+{length} lies outside a mapping of {} bytes",
            self.length
        );
        // SAFETY: offset <= self.length <= isize::MAX, so the result lies in the mapping or one
        // past its end.
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn byte_at(&self, address: *mut u8) -> &AtomicU8 {
        // SAFETY: private; callers pass an address inside a range that `address` has checked, and
        // the mapping lives as long as `self`.
        unsafe { AtomicU8::from_ptr(address) }
    }

    fn word_at(&self, address: *mut u8) -> &AtomicU64 {
        debug_assert!(address.addr().is_multiple_of(WORD));
        // SAFETY: private; callers pass an 8-byte aligned address with eight bytes behind it inside
        // a range that `address` has checked. The mapping lives as long as `self`.
        unsafe { AtomicU64::from_ptr(address.cast()) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD), "word at {offset} is not 8-byte aligned");
        self.word_at(self.address(offset, WORD))
    }
}

impl Mapping for Mapped {
    fn length(&self) -> usize {
        self.length
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let address = self.address(offset, bytes.len());
        // SAFETY: the range was checked, and the mapping lives as long as `self`, through which all
        // access is atomic.
        unsafe { words::store(address, bytes) };
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        let address = self.address(offset, buffer.len());
        // SAFETY: as for `write`.
        unsafe { words::load(address, buffer) };
    }

    fn load_u64(&self, offset: usize) -> u64 {
        u64::from_le(self.word(offset).load(Ordering::SeqCst))
    }

    fn store_u64(&self, offset: usize, value: u64) {
        self.word(offset).store(value.to_le(), Ordering::SeqCst);
    }

    fn fetch_max_u64(&self, offset: usize, value: u64) -> u64 {
        let word = self.word(offset);
        if cfg!(target_endian = "little") {
            return word.fetch_max(value, Ordering::SeqCst);
        }
        let raise = |held: u64| (u64::from_le(held) < value).then_some(value.to_le());
        u64::from_le(word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, raise).unwrap_or_else(|held| held))
    }

    fn full_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn populate(&self, offset: usize, length: usize) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        let page = rustix::param::page_size();
        let address = self.address(offset, length);
        let before = offset % page;
        let start = address.wrapping_sub(before);
        let bytes = length + before;
        for piece in (0..bytes).step_by(READ_AHEAD_BYTES) {
            // SAFETY: as below, for a part of that range. A piece that the kernel does not read is
            // read below.
            let _ = unsafe {
                madvise(
                    start.wrapping_add(piece).cast(),
                    READ_AHEAD_BYTES.min(bytes - piece),
                    Advice::WillNeed,
                )
            };
        }
        // SAFETY: start is the page-aligned start of a checked range (base is page-aligned and
        // before <= offset). The advice changes no content and unmaps nothing.
        match unsafe { madvise(start.cast(), bytes, Advice::LinuxPopulateRead) } {
            Ok(()) => Ok(()),
            // Kernels before 5.14 do not know the advice: look at each page.
            Err(rustix::io::Errno::INVAL) => {
                self.byte_at(address).load(Ordering::Relaxed);
                for touched in (page - before..length).step_by(page) {
                    self.byte_at(address.wrapping_add(touched)).load(Ordering::Relaxed);
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A sync write-protects each dirty page that is mapped, and interrupts every other processor
    /// for each: for 4 MiB of log a thousand times. Taking the pages out of the tables before
    /// interrupts once.
    fn let_go(&self, offset: usize, length: usize) {
        let page = rustix::param::page_size();
        self.address(offset, length);
        let (start, end) = (offset.next_multiple_of(page), (offset + length) / page * page);
        if start < end {
            // SAFETY: start and end are multiples of the page size within a checked range, and base
            // is page-aligned. Of a shared mapping of a file the advice changes no content: what
            // was stored is the file's, whether a page table shows it or not, and the next access
            // brings it back. Nothing is unmapped.
            let _ = unsafe {
                madvise(self.address(start, end - start).cast(), end - start, Advice::LinuxDontNeed)
            };
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody can hold a reference into it any
        // more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}
