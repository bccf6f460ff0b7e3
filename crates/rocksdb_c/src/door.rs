//! Errors in RocksDB's words, and results in memory of the C library.

use std::ffi::{c_char, c_void};

use tombolo::{Error, ErrorKind};

/// Does the work of a function, and tells its error in RocksDB's words; for one call of
/// [`tombolo_c::boundary::guard_in_words`].
#[macro_export]
macro_rules! guarded {
    ($error:expr, $absent:expr, $work:expr) => {{
        let (error, absent, work) = ($error, $absent, $work);
        // SAFETY: the caller of this library's functions says so: see the crate's documentation.
        unsafe { tombolo_c::boundary::guard_in_words(error, $crate::door::status, absent, work) }
    }};
}

/// A place of the caller's array; for one write.
#[macro_export]
macro_rules! place {
    ($array:expr, $index:expr) => {{
        let (array, index) = ($array, $index);
        // SAFETY: the caller's array has as many places as it says, and is not null.
        unsafe { *array.add(index) }
    }};
}

/// An error as RocksDB's statuses read: `Corruption: …`.
pub fn status(error: &Error) -> String {
    let name = match error.kind() {
        ErrorKind::NotFound => "NotFound: ",
        ErrorKind::Corrupt => "Corruption: ",
        ErrorKind::Invalid | ErrorKind::AlreadyExists => "Invalid argument: ",
        ErrorKind::Unsupported => "Not implemented: ",
        ErrorKind::Busy | ErrorKind::Conflict => "Resource busy: ",
        ErrorKind::DeadlineExceeded => "Operation timed out: ",
        ErrorKind::OutOfSpace => "IO error: No space left on device: ",
        ErrorKind::InUse => "IO error: While lock file: Resource temporarily unavailable: ",
        _ => "IO error: ",
    };
    format!("{name}{error}")
}

/// What Tombolo cannot do.
pub fn unsupported(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}

/// Frees what a function of this library gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_free(ptr: *mut c_void) {
    // SAFETY: of the C library, as all that callers have to free.
    unsafe { libc::free(ptr) };
}

/// Whether the caller's arrays are there, of so many places.
///
/// # Errors
/// `Invalid`.
pub fn check_arrays(count: usize, are_null: &[bool]) -> tombolo::Result<()> {
    if count > 0 && are_null.contains(&true) {
        return Err(tombolo_c::boundary::invalid("an array is a null pointer"));
    }
    Ok(())
}

/// A name that a program's function gives; empty when it gives none.
pub(crate) fn name_of(
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
    state: *mut c_void,
) -> String {
    let Some(name) = name else { return String::new() };
    // SAFETY: the caller's function, called as its type says.
    let text = unsafe { name(state) };
    tombolo_c::text!(text).unwrap_or_default().to_owned()
}
