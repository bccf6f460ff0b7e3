//! Temporary files whose names the C library makes: it would open them itself, past this library.
#![allow(clippy::missing_safety_doc, reason = "said once, in the module above")]

use std::ffi::{CString, c_char, c_int};
use std::hash::{BuildHasher, Hasher, RandomState};

use libc::AT_FDCWD;

use super::paths::{descriptor, openat64};
use super::{bytes, real, serve};
use crate::interpose::Errno;
use crate::interpose::paths::{self, Links};

const PLACE: &[u8] = b"XXXXXX";
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Names that are tried before the call fails.
const TRIES_MAX: u32 = 100;

/// The name of a try: `template` with other letters at `place`, and those letters.
fn named(template: &[u8], place: usize) -> Option<(CString, [u8; PLACE.len()])> {
    let mut random = RandomState::new().build_hasher().finish();
    let letters = std::array::from_fn(|_| {
        let letter = LETTERS[usize::try_from(random % LETTERS.len() as u64).unwrap_or(0)];
        random /= LETTERS.len() as u64;
        letter
    });
    let mut name = template.to_vec();
    name[place..place + PLACE.len()].copy_from_slice(&letters);
    Some((CString::new(name).ok()?, letters))
}

/// Makes the file, and writes its name into the template; `None` when it is the C library's.
///
/// # Safety
/// As `mkostemps`.
unsafe fn make(template: *mut c_char, suffix: c_int, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let text = unsafe { bytes(template) }?;
    let place = text.len().checked_sub(usize::try_from(suffix).ok()?)?.checked_sub(PLACE.len())?;
    if text.get(place..place + PLACE.len()) != Some(PLACE) {
        return None;
    }
    for _ in 0..TRIES_MAX {
        let (name, letters) = named(text, place)?;
        let is_ours = paths::may_be_ours(name.as_bytes())
            && serve(|| Ok(paths::ours(AT_FDCWD, name.as_bytes(), Links::Kept).is_some())) == Some(Ok(true));
        if !is_ours {
            return None;
        }
        let how = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | flags & !libc::O_ACCMODE;
        // SAFETY: the name ends with a zero.
        let opened = unsafe { openat64(AT_FDCWD, name.as_ptr(), how, 0o600) };
        if opened >= 0 {
            // SAFETY: the caller's promise: the template may be written, and these bytes lie within
            // it.
            unsafe {
                template.cast::<u8>().add(place).copy_from_nonoverlapping(letters.as_ptr(), letters.len());
            };
        }
        if opened >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EEXIST) {
            return Some(opened);
        }
    }
    Some(descriptor(Err(Errno(libc::EEXIST))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise, on both ways.
    unsafe { make(template, suffix, flags).unwrap_or_else(|| real::mkostemps64(template, suffix, flags)) }
}

macro_rules! twins {
    ($($name:ident($($suffix:ident)?; $($flags:ident)?) $given_suffix:expr, $given_flags:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            template: *mut c_char $(, $suffix: c_int)? $(, $flags: c_int)?
        ) -> c_int {
            // SAFETY: the caller's promise. The same function where offsets have 64 bits.
            unsafe { mkostemps64(template, $given_suffix, $given_flags) }
        }
    )*};
}

twins! {
    mkstemp(;) 0, 0;
    mkstemp64(;) 0, 0;
    mkostemp(; flags) 0, flags;
    mkostemp64(; flags) 0, flags;
    mkstemps(suffix;) suffix, 0;
    mkstemps64(suffix;) suffix, 0;
    mkostemps(suffix; flags) suffix, flags;
}
