//! Calls of the C library for which the standard library has no safe face.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr::NonNull;

fn told(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `dup2`, or `dup3` with these flags. What `target` was before is closed when that succeeds: it has to be the caller's.
pub fn duplicate_onto(source: RawFd, target: RawFd, flags: Option<libc::c_int>) -> io::Result<RawFd> {
    // SAFETY: both calls take numbers, and no memory.
    told(unsafe {
        match flags {
            None => libc::dup2(source, target),
            Some(flags) => libc::dup3(source, target, flags),
        }
    })
}

/// A stream that was written to. Dropped, it stays open, as a program leaves it that ends without closing its streams.
pub struct UnclosedStream(NonNull<libc::FILE>);

impl UnclosedStream {
    /// Writes `text` through a stream over a duplicate of `file`.
    pub fn write(file: &File, mode: &str, text: &str) -> Self {
        let (mode, text) = (CString::new(mode).unwrap(), CString::new(text).unwrap());
        // SAFETY: takes a number.
        let duplicate = told(unsafe { libc::dup(file.as_raw_fd()) }).unwrap();
        // SAFETY: the mode ends with a zero; the stream owns the duplicate, which nobody else knows.
        let stream = NonNull::new(unsafe { libc::fdopen(duplicate, mode.as_ptr()) }).expect("a stream");
        // SAFETY: the text ends with a zero, and the stream is open.
        told(unsafe { libc::fputs(text.as_ptr(), stream.as_ptr()) }).unwrap();
        Self(stream)
    }

    /// `fclose`.
    pub fn close(self) -> io::Result<()> {
        // SAFETY: the stream is open, and gone with `self`.
        told(unsafe { libc::fclose(self.0.as_ptr()) }).map(drop)
    }
}
