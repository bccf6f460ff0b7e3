//! The door: pointers of C programs become slices and texts for one call, and results become memory
//! of the C library.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tombolo::{Durability, Error, ErrorKind, Result};

/// The write survives what its log survives: a sync or a round trip, shared with others.
pub const TOMBOLO_DURABLE: c_int = 0;
/// The write survives the end of the process.
pub const TOMBOLO_ACCEPTED: c_int = 1;
/// The write survives nothing but a later flush.
pub const TOMBOLO_UNLOGGED: c_int = 2;

/// There is no error.
pub const TOMBOLO_OK: c_int = 0;
/// Passing trouble; nothing took effect.
pub const TOMBOLO_RETRY: c_int = 1;
/// A limit of work in flight or of memory.
pub const TOMBOLO_BUSY: c_int = 2;
/// A conditional write was overtaken.
pub const TOMBOLO_CONFLICT: c_int = 3;
/// Another process has the database.
pub const TOMBOLO_FENCED: c_int = 4;
/// Somebody has the database open.
pub const TOMBOLO_IN_USE: c_int = 5;
/// The write may have taken effect.
pub const TOMBOLO_OUTCOME_UNKNOWN: c_int = 6;
/// The deadline passed; a write may still take effect.
pub const TOMBOLO_DEADLINE_EXCEEDED: c_int = 7;
/// What was named does not exist.
pub const TOMBOLO_NOT_FOUND: c_int = 8;
/// What was to be created exists.
pub const TOMBOLO_ALREADY_EXISTS: c_int = 9;
/// The call is wrong.
pub const TOMBOLO_INVALID: c_int = 10;
/// This store or version cannot do it.
pub const TOMBOLO_UNSUPPORTED: c_int = 11;
/// The system or the store refuses access.
pub const TOMBOLO_PERMISSION_DENIED: c_int = 12;
/// The store is full.
pub const TOMBOLO_OUT_OF_SPACE: c_int = 13;
/// Bytes in storage are not what was written.
pub const TOMBOLO_CORRUPT: c_int = 14;
/// What a reader needs was deleted.
pub const TOMBOLO_PIN_LOST: c_int = 15;
/// The handle was closed.
pub const TOMBOLO_CLOSED: c_int = 16;
/// A bug of Tombolo.
pub const TOMBOLO_BUG: c_int = 17;

/// The kinds, with their numbers. One that is new, and has none yet, counts as a bug.
const KINDS: &[(ErrorKind, c_int)] = &[
    (ErrorKind::Retry, TOMBOLO_RETRY),
    (ErrorKind::Busy, TOMBOLO_BUSY),
    (ErrorKind::Conflict, TOMBOLO_CONFLICT),
    (ErrorKind::Fenced, TOMBOLO_FENCED),
    (ErrorKind::InUse, TOMBOLO_IN_USE),
    (ErrorKind::OutcomeUnknown, TOMBOLO_OUTCOME_UNKNOWN),
    (ErrorKind::DeadlineExceeded, TOMBOLO_DEADLINE_EXCEEDED),
    (ErrorKind::NotFound, TOMBOLO_NOT_FOUND),
    (ErrorKind::AlreadyExists, TOMBOLO_ALREADY_EXISTS),
    (ErrorKind::Invalid, TOMBOLO_INVALID),
    (ErrorKind::Unsupported, TOMBOLO_UNSUPPORTED),
    (ErrorKind::PermissionDenied, TOMBOLO_PERMISSION_DENIED),
    (ErrorKind::OutOfSpace, TOMBOLO_OUT_OF_SPACE),
    (ErrorKind::Corrupt, TOMBOLO_CORRUPT),
    (ErrorKind::PinLost, TOMBOLO_PIN_LOST),
    (ErrorKind::Closed, TOMBOLO_CLOSED),
    (ErrorKind::Bug, TOMBOLO_BUG),
];

/// The bytes at a pointer of the caller's; for one call of [`bytes`].
#[macro_export]
macro_rules! bytes {
    ($pointer:expr, $length:expr) => {{
        let (pointer, length) = ($pointer, $length);
        // SAFETY: the caller of this library's functions says so: see the crate's documentation.
        unsafe { $crate::boundary::bytes(pointer, length) }
    }};
}

/// The text at a pointer of the caller's; for one call of [`text`].
#[macro_export]
macro_rules! text {
    ($pointer:expr) => {{
        let pointer = $pointer;
        // SAFETY: the caller of this library's functions says so: see the crate's documentation.
        unsafe { $crate::boundary::text(pointer) }
    }};
}

/// Stores a value at a pointer of the caller's, if it is not null; for one call of [`give`].
#[macro_export]
macro_rules! give {
    ($pointer:expr, $value:expr) => {{
        let (pointer, value) = ($pointer, $value);
        // SAFETY: the caller of this library's functions says so: see the crate's documentation.
        unsafe { $crate::boundary::give(pointer, value) }
    }};
}

/// Does the work of a function, and tells its error where the caller wants it; for one call of
/// [`guard`].
#[macro_export]
macro_rules! guarded {
    ($error:expr, $absent:expr, $work:expr) => {{
        let (error, absent, work) = ($error, $absent, $work);
        // SAFETY: the caller of this library's functions says so: see the crate's documentation.
        unsafe { $crate::boundary::guard(error, absent, work) }
    }};
}

/// What a wrong call answers.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// The handle, unless it is null.
///
/// # Errors
/// `Invalid`.
pub fn handle<'a, T>(handle: Option<&'a T>, what: &str) -> Result<&'a T> {
    handle.ok_or_else(|| invalid(format!("the {what} is a null pointer")))
}

/// As [`handle`].
///
/// # Errors
/// `Invalid`.
pub fn handle_mut<'a, T>(handle: Option<&'a mut T>, what: &str) -> Result<&'a mut T> {
    handle.ok_or_else(|| invalid(format!("the {what} is a null pointer")))
}

/// The bytes at `pointer`.
///
/// # Errors
/// `Invalid` for a null pointer with a length, and for a length beyond all memory.
///
/// # Safety
/// `pointer` is null, or readable over `length` bytes, which nobody changes as long as the result
/// is used.
pub unsafe fn bytes<'a>(pointer: *const c_char, length: usize) -> Result<&'a [u8]> {
    if isize::try_from(length).is_err() {
        return Err(invalid("a length beyond all memory").found(format!("{length} bytes")));
    }
    if pointer.is_null() {
        if length == 0 {
            return Ok(&[]);
        }
        return Err(invalid("a null pointer with a length").found(format!("{length} bytes")));
    }
    // SAFETY: not null, and of a possible length; the rest is the caller's to keep.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
}

/// The text at `pointer`, which ends with a zero.
///
/// # Errors
/// `Invalid` for a null pointer, and for bytes that are not UTF-8.
///
/// # Safety
/// `pointer` is null, or a string of C that nobody changes as long as the result is used.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(invalid("a text is a null pointer"));
    }
    // SAFETY: not null; the rest is the caller's to keep.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| invalid("a text is not UTF-8").found(text.to_string_lossy()))
}

/// Stores `value` at `pointer`, unless that is null.
///
/// # Safety
/// `pointer` is null, or may be written to.
pub unsafe fn give<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: not null; the rest is the caller's to keep.
        unsafe { pointer.write(value) };
    }
}

/// Does the work of a function: gives what it gives, or `absent` after an error, which is told.
///
/// # Safety
/// `error` is null, or the place of a pointer that is null or an error of this library.
pub unsafe fn guard<T>(error: *mut *mut c_char, absent: T, work: impl FnOnce() -> Result<T>) -> T {
    // SAFETY: the caller keeps it.
    unsafe { guard_in_words(error, ToString::to_string, absent, work) }
}

/// As [`guard`], with errors told in other words.
///
/// # Safety
/// As of [`guard`].
pub unsafe fn guard_in_words<T>(
    error: *mut *mut c_char,
    words: impl FnOnce(&Error) -> String,
    absent: T,
    work: impl FnOnce() -> Result<T>,
) -> T {
    let failed = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failed)) => failed,
        Err(panic) => panicked(panic.as_ref()),
    };
    // SAFETY: the caller keeps it.
    unsafe { tell(error, &words(&failed)) };
    absent
}

/// A panic, as an error.
pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words");
    Error::new(ErrorKind::Bug, format!("a function of the C library panicked: {said}"))
}

/// Puts a message where an error belongs, in the place of an earlier one.
///
/// # Safety
/// As of [`guard`].
pub unsafe fn tell(error: *mut *mut c_char, message: &str) {
    if error.is_null() {
        return;
    }
    // SAFETY: the caller keeps it: an earlier error is memory of the C library, and nobody else's.
    unsafe {
        libc::free((*error).cast());
        *error = copy_text(message);
    }
}

/// A copy in memory of the C library. Without memory the process ends, as the engine's own
/// allocations end it: null would say that there is no value, or no error.
pub fn copy_bytes(bytes: &[u8]) -> *mut c_char {
    // SAFETY: at least one byte is asked for, so that null says that there is no memory.
    let memory = unsafe { libc::malloc(bytes.len().max(1)) };
    if memory.is_null() {
        handle_alloc_error(Layout::for_value(bytes));
    }
    // SAFETY: fresh memory of that many bytes, which nobody else has.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast::<u8>(), bytes.len()) };
    memory.cast()
}

/// A copy as a string of C, up to its first zero.
pub fn copy_text(text: &str) -> *mut c_char {
    let mut bytes = text.as_bytes().to_vec();
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    bytes.push(0);
    copy_bytes(&bytes)
}

/// A durability, as C says it.
///
/// # Errors
/// `Invalid`.
pub fn durability(number: c_int) -> Result<Durability> {
    match number {
        TOMBOLO_DURABLE => Ok(Durability::Durable),
        TOMBOLO_ACCEPTED => Ok(Durability::Accepted),
        TOMBOLO_UNLOGGED => Ok(Durability::Unlogged),
        _ => Err(invalid("there is no such durability").expected("0, 1 or 2").found(number)),
    }
}

/// The number of an error's kind.
pub fn kind_number(kind: ErrorKind) -> c_int {
    KINDS.iter().find(|(known, _)| *known == kind).map_or(TOMBOLO_BUG, |(_, number)| *number)
}

/// The kind of an error that a function told: `TOMBOLO_FENCED` and others; `TOMBOLO_OK` of a null
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_error_kind(error: *const c_char) -> c_int {
    if error.is_null() {
        return TOMBOLO_OK;
    }
    let Ok(error) = text!(error) else { return TOMBOLO_BUG };
    let name = error.split(':').next().unwrap_or_default();
    let named = KINDS.iter().find(|(kind, _)| format!("{kind:?}") == name);
    named.map_or(TOMBOLO_BUG, |(_, number)| *number)
}

/// Frees what a function of this library gave: errors, values, texts. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_free(memory: *mut c_void) {
    // SAFETY: of the C library, as all that callers have to free.
    unsafe { libc::free(memory) };
}

/// The version of the library. Stays, and is not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
