//! Functions that take a path.
#![allow(clippy::missing_safety_doc, reason = "said once, in the module above")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{AT_FDCWD, DIR, mode_t, off_t, size_t, stat as stat_t, statx as statx_t};

use super::{bytes, fail, number, on_file, patch_stat, real, serve};
use crate::interpose::calls::{Patch, refuse};
use crate::interpose::mount;
use crate::interpose::paths::{self, Asked, Links, Ours};
use crate::interpose::{Errno, Outcome};

/// Serves a call on a path; `None` when it is the C library's.
///
/// # Safety
/// `path` is null or ends with a zero.
pub(super) unsafe fn on_path<T>(
    directory: c_int,
    path: *const c_char,
    links: Links,
    work: impl FnOnce(&Ours) -> Outcome<Option<T>>,
) -> Option<Outcome<T>> {
    // SAFETY: the caller's promise.
    let path = unsafe { bytes(path) }?;
    if !paths::may_be_ours(path) {
        return None;
    }
    serve(|| paths::ours(directory, path, links).map_or(Ok(None), |ours| work(&ours)))?.transpose()
}

/// Before a call that asks the operating system for what may be a directory.
///
/// # Safety
/// As [`on_path`].
unsafe fn prepare(directory: c_int, path: *const c_char, asked: Asked) -> Outcome<()> {
    // SAFETY: the caller's promise.
    match unsafe { bytes(path) } {
        // SAFETY: as above.
        Some(name) if paths::may_be_directory(name) => unsafe { prepare_directory(directory, path, asked) },
        _ => Ok(()),
    }
}

/// Before a call that is always about a directory: these are rare, so that the name of a link does
/// not have to say where it leads.
///
/// # Safety
/// As [`on_path`].
unsafe fn prepare_directory(directory: c_int, path: *const c_char, asked: Asked) -> Outcome<()> {
    // SAFETY: the caller's promise.
    match unsafe { bytes(path) } {
        Some(path) if !path.is_empty() && mount::is_ahead() => {
            serve(|| paths::prepare(directory, path, asked)).unwrap_or(Ok(()))
        }
        _ => Ok(()),
    }
}

/// A number that is never negative, such as a descriptor, or -1 with `errno`.
pub(super) fn descriptor(outcome: Outcome<c_int>) -> c_int {
    outcome.unwrap_or_else(|errno| {
        fail(errno);
        -1
    })
}

/// Opens a file of the database; `None` when the path is another's.
///
/// # Safety
/// As `openat`.
pub(super) unsafe fn open_ours(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Option<Outcome<c_int>> {
    let is_new = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
    let links = if is_new || flags & libc::O_NOFOLLOW != 0 { Links::Kept } else { Links::Followed };
    // The mode is only given when a file may be made.
    let mode = if flags & libc::O_CREAT != 0 { mode } else { 0o644 };
    // SAFETY: the caller's promise.
    unsafe { on_path(directory, path, links, |ours| paths::open(ours, flags, mode)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(outcome) = unsafe { open_ours(directory, path, flags, mode) } {
        return descriptor(outcome);
    }
    let may_be_directory = flags & (libc::O_ACCMODE | libc::O_CREAT) == 0;
    let asked = if flags & libc::O_PATH == 0 { Asked::Entries } else { Asked::Existence };
    // SAFETY: the caller's promise.
    if may_be_directory && let Err(errno) = unsafe { prepare(directory, path, asked) } {
        return descriptor(Err(errno));
    }
    // SAFETY: the caller's promise.
    let opened = unsafe { real::openat64(directory, path, flags, mode) };
    let may_be_directory = may_be_directory && flags & libc::O_PATH == 0;
    if opened >= 0 && may_be_directory && mount::already().is_some() {
        let _noted = serve(|| {
            paths::note_directory(opened);
            Ok(())
        });
    }
    opened
}

macro_rules! open_functions {
    ($($name:ident($($directory:ident)?) $($mode:ident)?;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($directory: c_int,)? path: *const c_char, flags: c_int $(, $mode: mode_t)?
        ) -> c_int {
            // SAFETY: the caller's promise. Where offsets have 64 bits these are one function.
            unsafe {
                openat64(
                    open_functions!(@or $($directory)?, AT_FDCWD), path, flags,
                    open_functions!(@or $($mode)?, 0)
                )
            }
        }
    )*};
    (@or , $absent:expr) => { $absent };
    (@or $given:ident, $absent:expr) => { $given };
}

// With `__` before them: names within the C library, which others may use. With `_2` at their end:
// where the compiler knows that no mode is given.
open_functions! {
    open() mode;
    open64() mode;
    openat(directory) mode;
    __open() mode;
    __open64() mode;
    __open_2();
    __open64_2();
    __openat_2(directory);
    __openat64_2(directory);
}

/// What a program that is started begins with is opened by the C library, past this one. It answers
/// with the number of an error itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_addopen(
    actions: *mut c_void,
    descriptor: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    let refused = |_: &Ours| {
        Err::<Option<()>, _>(refuse("opening a file for a program that is started", libc::EOPNOTSUPP))
    };
    // SAFETY: the caller's promise.
    match unsafe { on_path(AT_FDCWD, path, Links::Followed, refused) } {
        Some(Err(errno)) => errno.0,
        // SAFETY: the caller's promise.
        _ => unsafe { real::posix_spawn_file_actions_addopen(actions, descriptor, path, flags, mode) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { openat64(AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { creat64(path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { prepare(directory, path, Asked::Existence) } {
        Err(errno) => number(Err(errno)),
        // SAFETY: the caller's promise.
        Ok(()) => unsafe { real::mkdirat(directory, path, mode) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { mkdirat(AT_FDCWD, path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { prepare_directory(AT_FDCWD, path, Asked::Existence) } {
        Err(errno) => number(Err(errno)),
        // SAFETY: the caller's promise.
        Ok(()) => unsafe { real::chdir(path) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: the caller's promise.
    if let Err(errno) = unsafe { prepare_directory(AT_FDCWD, path, Asked::Entries) } {
        fail(errno);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    unsafe { real::opendir(path) }
}

/// The list and the functions are the caller's and the C library's: they are handed on as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandirat64(
    directory: c_int,
    path: *const c_char,
    list: *mut c_void,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { prepare_directory(directory, path, Asked::Entries) } {
        Err(errno) => number(Err(errno)),
        // SAFETY: the caller's promise.
        Ok(()) => unsafe { real::scandirat64(directory, path, list, filter, compare) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandirat(
    directory: c_int,
    path: *const c_char,
    list: *mut c_void,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { scandirat64(directory, path, list, filter, compare) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandir64(
    path: *const c_char,
    list: *mut c_void,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { scandirat64(AT_FDCWD, path, list, filter, compare) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandir(
    path: *const c_char,
    list: *mut c_void,
    filter: *const c_void,
    compare: *const c_void,
) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { scandir64(path, list, filter, compare) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, result: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's promise. What it asks of files of the database is whether their
    // placeholders are there.
    let asked =
        unsafe { on_path(AT_FDCWD, path, Links::Followed, |ours| paths::access_check(ours).map(Some)) };
    // SAFETY: as above.
    let asked = asked.unwrap_or_else(|| unsafe { prepare(AT_FDCWD, path, Asked::Existence) });
    if let Err(errno) = asked {
        fail(errno);
        return std::ptr::null_mut();
    }
    // Without room for the answer another function, which makes it, and has one version only.
    // Before glibc 2.36 the next `realpath` is the older of two, which does not. SAFETY: the
    // caller's promise.
    unsafe {
        if result.is_null() { real::canonicalize_file_name(path) } else { real::realpath(path, result) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the same function without room for the answer.
    unsafe { realpath(path, std::ptr::null_mut()) }
}

/// As `realpath` where the compiler knows how much room there is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    result: *mut c_char,
    room: size_t,
) -> *mut c_char {
    if room < libc::PATH_MAX as size_t {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { realpath(path, result) }
}

/// The fields of a `stat` answer that come from us; `None` when it is the C library's alone.
///
/// # Safety
/// As `fstatat`.
unsafe fn stat_patch(directory: c_int, path: *const c_char, flags: c_int) -> Outcome<Option<Patch>> {
    // SAFETY: the caller's promise.
    let is_empty = unsafe { bytes(path) }.is_none_or(<[u8]>::is_empty);
    if is_empty && flags & libc::AT_EMPTY_PATH != 0 {
        return on_file(directory, |target| target.stat()).transpose();
    }
    let links = if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { Links::Followed } else { Links::Kept };
    // SAFETY: the caller's promise.
    let patch = unsafe { on_path(directory, path, links, paths::stat) };
    if patch.is_none() {
        // SAFETY: as above.
        unsafe { prepare(directory, path, Asked::Existence) }?;
    }
    patch.transpose()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat64(
    directory: c_int,
    path: *const c_char,
    result: *mut stat_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let patch = match unsafe { stat_patch(directory, path, flags) } {
        Err(errno) => return number(Err(errno)),
        Ok(patch) => patch,
    };
    // SAFETY: the caller's promise.
    let told = unsafe { real::fstatat64(directory, path, result, flags) };
    if let (0, Some(patch)) = (told, patch) {
        // SAFETY: the caller's promise: the call just wrote it.
        patch_stat(unsafe { &mut *result }, &patch);
    }
    told
}

macro_rules! stat_functions {
    ($($name:ident($($version:ident)?) $flags:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($version: c_int,)? path: *const c_char, result: *mut stat_t
        ) -> c_int {
            // SAFETY: the caller's promise. The versions of before glibc 2.33 are this one on
            // 64-bit Linux.
            unsafe { fstatat64(AT_FDCWD, path, result, $flags) }
        }
    )*};
}

stat_functions! {
    stat() 0;
    stat64() 0;
    lstat() libc::AT_SYMLINK_NOFOLLOW;
    lstat64() libc::AT_SYMLINK_NOFOLLOW;
    __xstat(_version) 0;
    __xstat64(_version) 0;
    __lxstat(_version) libc::AT_SYMLINK_NOFOLLOW;
    __lxstat64(_version) libc::AT_SYMLINK_NOFOLLOW;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat(
    directory: c_int,
    path: *const c_char,
    result: *mut stat_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { fstatat64(directory, path, result, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstatat64(
    _version: c_int,
    directory: c_int,
    path: *const c_char,
    result: *mut stat_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the same function, for programs of before glibc 2.33.
    unsafe { fstatat64(directory, path, result, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstatat(
    _version: c_int,
    directory: c_int,
    path: *const c_char,
    result: *mut stat_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the same function, for programs of before glibc 2.33.
    unsafe { fstatat64(directory, path, result, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    result: *mut statx_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let patch = match unsafe { stat_patch(directory, path, flags) } {
        Err(errno) => return number(Err(errno)),
        Ok(patch) => patch,
    };
    // SAFETY: the caller's promise.
    let told = unsafe { real::statx(directory, path, flags, mask, result) };
    if let (0, Some(patch)) = (told, patch) {
        // SAFETY: the caller's promise: the call just wrote it.
        let result = unsafe { &mut *result };
        (result.stx_size, result.stx_blocks) = (patch.size, patch.size.div_ceil(512));
        if let Some((seconds, nanoseconds)) = patch.modified {
            for time in [&mut result.stx_mtime, &mut result.stx_ctime] {
                (time.tv_sec, time.tv_nsec) = (seconds, u32::try_from(nanoseconds).unwrap_or(0));
            }
        }
    }
    told
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn faccessat(
    directory: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    let links = if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { Links::Followed } else { Links::Kept };
    // SAFETY: the caller's promise.
    let asked = unsafe { on_path(directory, path, links, |ours| paths::access_check(ours).map(Some)) };
    // SAFETY: as above.
    match asked.unwrap_or_else(|| unsafe { prepare(directory, path, Asked::Existence) }) {
        Err(errno) => number(Err(errno)),
        // SAFETY: the caller's promise.
        Ok(()) => unsafe { real::faccessat(directory, path, mode, flags) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { faccessat(AT_FDCWD, path, mode, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate64(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { on_path(AT_FDCWD, path, Links::Followed, |ours| paths::truncate(ours, size)) } {
        Some(outcome) => number(outcome),
        // SAFETY: the caller's promise.
        None => unsafe { real::truncate64(path, size) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { truncate64(path, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    if flags & libc::AT_REMOVEDIR == 0 {
        // SAFETY: the caller's promise.
        if let Some(outcome) = unsafe { on_path(directory, path, Links::Kept, paths::unlink) } {
            return number(outcome);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { real::unlinkat(directory, path, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { on_path(AT_FDCWD, path, Links::Kept, paths::unlink) } {
        Some(outcome) => number(outcome),
        // SAFETY: the caller's promise.
        None => unsafe { real::remove(path) },
    }
}

/// Serves a rename; `None` when it is the C library's.
fn rename_ours(from: (c_int, &[u8]), to: (c_int, &[u8]), flags: c_uint) -> Outcome<Option<()>> {
    let find = |(directory, path): (c_int, &[u8])| {
        if paths::may_be_ours(path) { paths::ours(directory, path, Links::Kept) } else { None }
    };
    let (source, target) = (find(from), find(to));
    if source.is_none() && target.is_none() {
        for ((directory, path), asked) in [(from, Asked::Contents), (to, Asked::Entries)] {
            if paths::may_be_directory(path) {
                paths::prepare(directory, path, asked)?;
            }
        }
        if paths::has_files_below(from.0, from.1) {
            return Err(refuse("renaming a directory", libc::EBUSY));
        }
        return Ok(None);
    }
    if flags & !libc::RENAME_NOREPLACE != 0 {
        return Err(refuse("exchanging two files", libc::EINVAL));
    }
    let absolute = |(directory, path)| paths::absolute(directory, path).ok_or(Errno(libc::ENOENT));
    let (from, to) = (absolute(from)?, absolute(to)?);
    if flags & libc::RENAME_NOREPLACE != 0 && paths::is_anything(&to, target.as_ref())? {
        return Err(Errno(libc::EEXIST));
    }
    paths::rename((&from, source.as_ref()), (&to, target.as_ref()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    old_directory: c_int,
    old: *const c_char,
    directory: c_int,
    path: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    if let (Some(from), Some(to)) = unsafe { (bytes(old), bytes(path)) } {
        let is_asked = |path| paths::may_be_ours(path) || paths::may_be_directory(path);
        let may_be_ours = is_asked(from) || is_asked(to) || mount::already().is_some();
        let served = if may_be_ours {
            serve(|| rename_ours((old_directory, from), (directory, to), flags))
        } else {
            None
        };
        if let Some(outcome) = served.and_then(Result::transpose) {
            return number(outcome);
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match flags {
            0 => real::renameat(old_directory, old, directory, path),
            _ => real::renameat2(old_directory, old, directory, path, flags),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    old_directory: c_int,
    old: *const c_char,
    directory: c_int,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { renameat2(old_directory, old, directory, path, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(old: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { renameat2(AT_FDCWD, old, AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    old_directory: c_int,
    old: *const c_char,
    directory: c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    // As between file systems: programs copy then.
    let refused = |_: &Ours| Err::<Option<()>, _>(refuse("a second name (link)", libc::EXDEV));
    // SAFETY: the caller's promise.
    let served = unsafe {
        on_path(old_directory, old, Links::Kept, refused)
            .or_else(|| on_path(directory, path, Links::Kept, refused))
    };
    match served {
        Some(outcome) => number(outcome),
        // SAFETY: the caller's promise.
        None => unsafe { real::linkat(old_directory, old, directory, path, flags) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(old: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { linkat(AT_FDCWD, old, AT_FDCWD, path, 0) }
}
