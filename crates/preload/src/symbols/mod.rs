//! The functions that take the place of the C library's: each asks [`crate::interpose`] whether the
//! call is its own, and hands it on if not.
//!
//! # Safety
//! Every function here has the prototype and asks for what the C library's of its name asks for:
//! pointers that are valid for the lengths beside them, strings that end with a zero. Slices and
//! strings that are made of them here are used within the call only. On 64-bit Linux with glibc the
//! types of a function and of its `64` twin are the same, and a function that takes a variable
//! number of arguments takes the first ones in the same registers as one that does not; an argument
//! that the caller has not given is not used.
//!
//! A panic does not cross into C: it ends the process, as Rust has it for `extern "C"`.

mod descriptors;
mod memory;
mod paths;
mod real;
mod streams;
mod temporary;
mod threads;

use std::ffi::{CStr, c_char, c_int};
use std::io::{self, Write};

use libc::{off_t, ssize_t, stat as stat_t};

use crate::interpose::calls::{Patch, Target};
use crate::interpose::descriptors::{Kind, kind};
use crate::interpose::{Errno, Outcome, guard, mount};

/// Runs when the library is loaded, before the program.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    let _serving = guard::enter();
    if let Err(error) = mount::configure() {
        // `eprintln!` would panic where standard error is closed or full, and the exit code would
        // be another.
        let _told = writeln!(io::stderr(), "tombolo preload: {error}");
        // SAFETY: ends the process; nothing of the program has run yet.
        unsafe { libc::_exit(mount::CONFIGURATION_EXIT_CODE) }
    }
    // SAFETY: both take functions that live as long as the library, which is never unloaded: it was
    // loaded before the program.
    unsafe {
        libc::pthread_atfork(None, None, Some(forked));
        libc::atexit(ended);
    }
}

extern "C" fn forked() {
    if let Some(lock) = mount::forked() {
        // SAFETY: the child's own descriptor of the lock, which only the parent uses from here on.
        unsafe { real::close(lock) };
    }
}

extern "C" fn ended() {
    mount::ended(streams::flush_all);
}

/// Serves a call; `None` when the calling thread serves one already, whose own calls are the C
/// library's.
fn serve<T>(work: impl FnOnce() -> Outcome<T>) -> Option<Outcome<T>> {
    let _serving = guard::enter()?;
    // SAFETY: the address of the calling thread's own `errno`, which is always valid.
    let errno = unsafe { *libc::__errno_location() };
    let outcome = work();
    // SAFETY: as above. Programs may expect that what succeeds leaves it as it was.
    unsafe { *libc::__errno_location() = errno };
    Some(outcome)
}

/// Serves a call on a descriptor; `None` when it is the C library's.
fn on_file<T>(descriptor: c_int, work: impl FnOnce(Target) -> Outcome<T>) -> Option<Outcome<T>> {
    if kind(descriptor) != Kind::File {
        return None;
    }
    serve(|| Target::of(descriptor).and_then(work))
}

fn fail(errno: Errno) {
    // SAFETY: the address of the calling thread's own `errno`, which is always valid.
    unsafe { *libc::__errno_location() = errno.0 };
}

/// 0, or -1 with `errno`.
fn number(outcome: Outcome<()>) -> c_int {
    outcome.map_or_else(
        |errno| {
            fail(errno);
            -1
        },
        |()| 0,
    )
}

/// How many bytes, or -1 with `errno`.
fn count(outcome: Outcome<usize>) -> ssize_t {
    match outcome.map(ssize_t::try_from) {
        Ok(Ok(count)) => count,
        Ok(Err(_)) => {
            fail(Errno(libc::EOVERFLOW));
            -1
        }
        Err(errno) => {
            fail(errno);
            -1
        }
    }
}

/// Puts the file's size and time in the place of its placeholder's.
fn patch_stat(result: &mut stat_t, patch: &Patch) {
    result.st_size = off_t::try_from(patch.size).unwrap_or(off_t::MAX);
    result.st_blocks = off_t::try_from(patch.size.div_ceil(512)).unwrap_or(off_t::MAX);
    if let Some((seconds, nanoseconds)) = patch.modified {
        (result.st_mtime, result.st_mtime_nsec) = (seconds, nanoseconds);
        (result.st_ctime, result.st_ctime_nsec) = (seconds, nanoseconds);
    }
}

/// The bytes of a path; `None` for a null pointer, which the C library judges.
///
/// # Safety
/// `path` is null or ends with a zero, and is not changed while the result lives.
unsafe fn bytes<'a>(path: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes())
}
