//! Errors of the database as `errno`, with what a number cannot say on standard error.

use std::collections::BTreeSet;
use std::io::{self, Write};

use parking_lot::Mutex;
use tombolo::{Error, ErrorKind};

/// A number of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// How a call went.
pub type Outcome<T> = Result<T, Errno>;

/// Most messages that are told apart; later ones are not printed.
const MESSAGES_MAX: usize = 256;

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Error> for Errno {
    /// Prints it unless programs expect it.
    fn from(error: Error) -> Errno {
        let number = match error.kind() {
            ErrorKind::NotFound => return Errno(libc::ENOENT),
            ErrorKind::AlreadyExists => return Errno(libc::EEXIST),
            ErrorKind::OutOfSpace => libc::ENOSPC,
            ErrorKind::PermissionDenied => libc::EACCES,
            ErrorKind::Invalid => libc::EINVAL,
            // Another process has taken the files over: what this one knows of them is old.
            ErrorKind::Fenced => libc::ESTALE,
            _ => libc::EIO,
        };
        report(&error.to_string());
        Errno(number)
    }
}

/// Prints `message` on standard error, once.
pub fn report(message: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // Not waited for: a forked child may have been given it locked.
    let is_new = PRINTED
        .try_lock()
        .is_none_or(|mut printed| printed.len() < MESSAGES_MAX && printed.insert(message.to_owned()));
    if is_new {
        // A program whose standard error is closed or full goes on: `eprintln!` would panic, and
        // end it.
        let _told = writeln!(io::stderr(), "tombolo preload: {message}");
    }
}
