//! Calls of the C library for which the standard library has no safe face.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::ptr::NonNull;

fn told(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `dup2`, or `dup3` with these flags. What `target` was before is closed when that succeeds: it
/// has to be the caller's.
pub fn duplicate_onto(source: RawFd, target: RawFd, flags: Option<libc::c_int>) -> io::Result<RawFd> {
    // SAFETY: both calls take numbers, and no memory.
    told(unsafe {
        match flags {
            None => libc::dup2(source, target),
            Some(flags) => libc::dup3(source, target, flags),
        }
    })
}

/// `mkstemps`: the file, and its name.
pub fn temporary(template: &str, suffix: usize) -> io::Result<(File, String)> {
    let template = CString::new(template).unwrap().into_raw();
    // SAFETY: the template ends with a zero and may be written; it is taken back after.
    let (made, name) =
        unsafe { (libc::mkstemps(template, suffix as libc::c_int), CString::from_raw(template)) };
    // SAFETY: opened just now, and nobody else has it.
    told(made).map(|made| (unsafe { File::from_raw_fd(made) }, name.into_string().unwrap()))
}

/// The number that `posix_spawn_file_actions_addopen` answers with.
pub fn open_for_a_program(path: &str) -> libc::c_int {
    let path = CString::new(path).unwrap();
    let mut actions = std::mem::MaybeUninit::uninit();
    // SAFETY: the actions are initialised first and destroyed last; the path ends with a zero.
    unsafe {
        libc::posix_spawn_file_actions_init(actions.as_mut_ptr());
        let answer =
            libc::posix_spawn_file_actions_addopen(actions.as_mut_ptr(), 1, path.as_ptr(), libc::O_WRONLY, 0);
        libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
        answer
    }
}

unsafe extern "C" {
    fn canonicalize_file_name(path: *const libc::c_char) -> *mut libc::c_char;
    fn __realpath_chk(
        path: *const libc::c_char,
        result: *mut libc::c_char,
        room: libc::size_t,
    ) -> *mut libc::c_char;
}

/// `realpath` into the caller's memory.
pub fn real_path(path: &str) -> io::Result<String> {
    // SAFETY: the path ends with a zero, and there is room for the longest answer.
    into_room(path, |path, result, _| unsafe { libc::realpath(path, result) })
}

/// `realpath` as programs call it that are compiled with checks.
pub fn real_path_checked(path: &str) -> io::Result<String> {
    // SAFETY: as above, and `room` says how much.
    into_room(path, |path, result, room| unsafe { __realpath_chk(path, result, room) })
}

type Resolve = fn(*const libc::c_char, *mut libc::c_char, libc::size_t) -> *mut libc::c_char;

fn into_room(path: &str, resolve: Resolve) -> io::Result<String> {
    let path = CString::new(path).unwrap();
    let mut room = vec![0_u8; libc::PATH_MAX as usize];
    if resolve(path.as_ptr(), room.as_mut_ptr().cast(), room.len()).is_null() {
        return Err(io::Error::last_os_error());
    }
    Ok(CStr::from_bytes_until_nul(&room).unwrap().to_str().unwrap().to_owned())
}

/// `canonicalize_file_name`.
pub fn canonical_name(path: &str) -> io::Result<String> {
    let path = CString::new(path).unwrap();
    // SAFETY: the path ends with a zero.
    let found = unsafe { canonicalize_file_name(path.as_ptr()) };
    if found.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the answer ends with a zero, and is the caller's, who frees it.
    unsafe {
        let name = CStr::from_ptr(found).to_str().unwrap().to_owned();
        libc::free(found.cast());
        Ok(name)
    }
}

/// `ioctl` with a request that takes the address of an `int`, or of a larger structure that is all
/// zeros.
pub fn ask(file: &File, request: libc::c_ulong) -> io::Result<i32> {
    let mut answer = [0_i32; 64];
    // SAFETY: the descriptor is open, and the memory is larger than what these requests take.
    told(unsafe { libc::ioctl(file.as_raw_fd(), request, answer.as_mut_ptr()) }).map(|_| answer[0])
}

/// `lockf`.
pub fn lock(file: &File, command: libc::c_int, length: i64) -> io::Result<()> {
    // SAFETY: it takes numbers.
    told(unsafe { libc::lockf(file.as_raw_fd(), command, length) }).map(drop)
}

/// `pwritev2` of one part.
pub fn write_flagged(file: &File, text: &str, offset: i64, flags: libc::c_int) -> io::Result<usize> {
    let part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    // SAFETY: one part, which is only read.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, offset, flags) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// A stream that was written to. Dropped, it stays open, as a program leaves it that ends without
/// closing its streams.
pub struct UnclosedStream(NonNull<libc::FILE>);

impl UnclosedStream {
    /// Writes `text` through a stream over a duplicate of `file`.
    pub fn write(file: &File, mode: &str, text: &str) -> Self {
        let (mode, text) = (CString::new(mode).unwrap(), CString::new(text).unwrap());
        // SAFETY: takes a number.
        let duplicate = told(unsafe { libc::dup(file.as_raw_fd()) }).unwrap();
        // SAFETY: the mode ends with a zero; the stream owns the duplicate, which nobody else
        // knows.
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
