//! Errors as the shim is given them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tombolo::{Error, ErrorKind, Result};

/// A failure: a code of `shim/bridge.h`, and what happened, in UTF-8.
#[repr(C)]
pub struct TomboloStatus {
    code: i32,
    message: *const u8,
    message_bytes: usize,
    /// What `message` points to.
    text: String,
}

/// A status that the caller frees, or none.
pub type Given = *mut TomboloStatus;

const NOT_FOUND: i32 = 1;
const CORRUPT: i32 = 2;
const UNSUPPORTED: i32 = 3;
const INVALID: i32 = 4;
const NO_SPACE: i32 = 5;
const FENCED: i32 = 6;
const TIMED_OUT: i32 = 7;
const RETRY: i32 = 8;
const EXISTS: i32 = 9;
const IN_USE: i32 = 10;
const OTHER: i32 = 11;

/// What RocksDB is to do about an error of this kind.
pub(crate) fn code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::Corrupt => CORRUPT,
        ErrorKind::Unsupported => UNSUPPORTED,
        ErrorKind::Invalid => INVALID,
        ErrorKind::OutOfSpace => NO_SPACE,
        ErrorKind::Fenced => FENCED,
        ErrorKind::DeadlineExceeded => TIMED_OUT,
        ErrorKind::Retry | ErrorKind::Busy => RETRY,
        ErrorKind::AlreadyExists => EXISTS,
        ErrorKind::InUse => IN_USE,
        // Among them `OutcomeUnknown`: what may or may not be durable is not tried again, since the
        // bytes would be there twice.
        _ => OTHER,
    }
}

/// Runs a call of the shim; a panic is an error of it.
pub(crate) fn status_of(call: impl FnOnce() -> Result<()>) -> Given {
    let ended = catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Bug, "a call on files panicked")));
    match ended {
        Ok(()) => std::ptr::null_mut(),
        Err(error) => {
            let text = error.to_string();
            let status = TomboloStatus {
                code: code(error.kind()),
                message: text.as_ptr(),
                message_bytes: text.len(),
                text,
            };
            debug_assert_eq!(status.text.len(), status.message_bytes);
            Box::into_raw(Box::new(status))
        }
    }
}
