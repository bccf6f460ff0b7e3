//! Streams (`FILE`): the C library's, over descriptors that stand for files of the database.
//!
//! The C library reads and writes a stream's descriptor without asking anybody, so a stream of ours
//! is one with functions of its own (`fopencookie(3)`), which come back to this library. It has no
//! descriptor that `fileno` would know: that is kept here.
#![allow(clippy::missing_safety_doc, reason = "said once, in the module above")]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};

use libc::{AT_FDCWD, FILE, off_t, size_t, ssize_t};
use parking_lot::Mutex;

use super::paths::{on_path, open_ours};
use super::{bytes, descriptors, fail, on_file, real};
use crate::interpose::calls::refuse;
use crate::interpose::descriptors::{Kind, kind};
use crate::interpose::paths::Links;
use crate::interpose::{Errno, mount};

/// Descriptors of our streams, by the stream's address.
static STREAMS: Mutex<BTreeMap<usize, c_int>> = Mutex::new(BTreeMap::new());

/// `cookie_io_functions_t`.
#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
}

/// Writes what our streams still hold, when the process ends. Not `fflush(NULL)`: that would wait
/// for a thread that reads a terminal.
pub fn flush_all() {
    // Held to the end: a stream that another thread closes meanwhile stays until then.
    let streams = STREAMS.lock();
    for stream in streams.keys().map(|address| *address as *mut FILE) {
        // SAFETY: the stream is open, as it is among ours. One that another thread uses is left to
        // the C library.
        unsafe {
            if ftrylockfile(stream) == 0 {
                libc::fflush(stream);
                funlockfile(stream);
            }
        }
    }
}

/// The descriptor that a stream's cookie is.
fn descriptor_of(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie as usize).unwrap_or(-1)
}

/// The descriptor of a stream of ours. None is before the database is open; in a forked child,
/// which may have been given the lock locked, none is any more.
fn descriptor_under(stream: *mut FILE) -> Option<c_int> {
    mount::already()?;
    STREAMS.lock().get(&(stream as usize)).copied()
}

unsafe extern "C" fn read_cookie(cookie: *mut c_void, into: *mut c_char, length: size_t) -> ssize_t {
    // SAFETY: the C library's promise is that of `read`.
    unsafe { descriptors::read(descriptor_of(cookie), into.cast(), length) }
}

/// 0 on errors, as `fopencookie(3)` has it.
unsafe extern "C" fn write_cookie(cookie: *mut c_void, from: *const c_char, length: size_t) -> ssize_t {
    // SAFETY: the C library's promise is that of `write`.
    unsafe { descriptors::write(descriptor_of(cookie), from.cast(), length) }.max(0)
}

unsafe extern "C" fn seek_cookie(cookie: *mut c_void, position: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: the C library's promise: the position is valid.
    unsafe {
        match descriptors::lseek64(descriptor_of(cookie), *position, whence) {
            -1 => -1,
            reached => {
                *position = reached;
                0
            }
        }
    }
}

unsafe extern "C" fn close_cookie(cookie: *mut c_void) -> c_int {
    let descriptor = descriptor_of(cookie);
    if mount::already().is_some() {
        STREAMS.lock().retain(|_, of_stream| *of_stream != descriptor);
    }
    // SAFETY: the stream owns its descriptor, and this is its end.
    unsafe { descriptors::close(descriptor) }
}

/// A stream over a descriptor that stands for a file of the database.
///
/// # Safety
/// `mode` ends with a zero.
unsafe fn stream(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    let functions =
        CookieFunctions { read: read_cookie, write: write_cookie, seek: seek_cookie, close: close_cookie };
    let cookie = usize::try_from(descriptor).unwrap_or(usize::MAX) as *mut c_void;
    // SAFETY: the functions have the types of `cookie_io_functions_t`, and take the cookie for the
    // number that it is.
    let stream = unsafe { fopencookie(cookie, mode, functions) };
    if !stream.is_null() {
        STREAMS.lock().insert(stream as usize, descriptor);
    }
    stream
}

/// Flags of `open` for a mode of `fopen`.
fn flags(mode: &[u8]) -> Result<c_int, Errno> {
    let (first, rest) = mode.split_first().ok_or(Errno(libc::EINVAL))?;
    let updates = rest.contains(&b'+');
    let (one_way, more) = match first {
        b'r' => (libc::O_RDONLY, 0),
        b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
        b'a' => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        _ => return Err(Errno(libc::EINVAL)),
    };
    let exclusive = if rest.contains(&b'x') { libc::O_EXCL } else { 0 };
    Ok(if updates { libc::O_RDWR } else { one_way } | more | exclusive)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    let wanted = unsafe { bytes(mode) }.and_then(|mode| flags(mode).ok());
    // SAFETY: the caller's promise.
    match wanted.and_then(|flags| unsafe { open_ours(AT_FDCWD, path, flags, 0o666) }) {
        Some(Ok(descriptor)) => {
            // SAFETY: the caller's promise.
            let stream = unsafe { stream(descriptor, mode) };
            if stream.is_null() {
                // SAFETY: opened above, and nobody has it.
                unsafe { descriptors::close(descriptor) };
            }
            stream
        }
        Some(Err(errno)) => {
            fail(errno);
            std::ptr::null_mut()
        }
        // SAFETY: the caller's promise.
        None => unsafe { real::fopen64(path, mode) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { fopen64(path, mode) }
}

/// A name of it within the C library, which others may use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's promise.
    unsafe { fopen64(path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    if kind(descriptor) != Kind::File {
        // SAFETY: the caller's promise.
        return unsafe { real::fdopen(descriptor, mode) };
    }
    // SAFETY: the caller's promise.
    if unsafe { bytes(mode) }.is_some_and(|mode| mode.starts_with(b"a")) {
        // The descriptor appends from here on, as the C library has it.
        let _set = on_file(descriptor, |target| {
            target.set_flags(libc::O_APPEND);
            Ok(())
        });
    }
    // SAFETY: as above.
    unsafe { stream(descriptor, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    // SAFETY: the caller's promise.
    let becomes_ours = unsafe { on_path(AT_FDCWD, path, Links::Followed, |_| Ok(Some(()))) }.is_some();
    if descriptor_under(stream).is_some() || becomes_ours {
        fail(refuse("freopen", libc::EOPNOTSUPP));
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    unsafe { real::freopen64(path, mode, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { freopen64(path, mode, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    descriptor_under(stream).unwrap_or_else(|| unsafe { real::fileno(stream) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fileno(stream) }
}
