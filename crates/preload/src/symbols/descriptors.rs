//! Functions that take a descriptor.
#![allow(clippy::missing_safety_doc, reason = "said once, in the module above")]

use std::ffi::{c_int, c_uint, c_void};

use libc::{gid_t, iovec, mode_t, off_t, size_t, ssize_t, stat as stat_t, timespec, timeval, uid_t};

use super::{count, fail, number, on_file, patch_stat, paths, real, serve};
use crate::interpose::calls::{Target, refuse, sync_all};
use crate::interpose::descriptors::{Kind, forget, forget_range, kind};
use crate::interpose::{Errno, Outcome, mount};

/// Most parts of a `readv`, as Linux has it.
const PARTS_MAX: c_int = 1024;

/// # Safety
/// `buffer` is valid for writing `length` bytes, and nobody else uses it during the call.
unsafe fn buffer<'a>(buffer: *mut c_void, length: size_t) -> Outcome<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if buffer.is_null() || isize::try_from(length).is_err() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise; not null, and no longer than a slice may be. Bytes that were
    // never written are only written here.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) })
}

/// # Safety
/// `data` is valid for reading `length` bytes, and nobody changes it during the call.
unsafe fn data<'a>(data: *const c_void, length: size_t) -> Outcome<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() || isize::try_from(length).is_err() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise; not null, and no longer than a slice may be.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}

/// # Safety
/// `parts` is valid for `count` parts.
unsafe fn parts<'a>(parts: *const iovec, count: c_int) -> Outcome<&'a [iovec]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(length) if count <= PARTS_MAX && !parts.is_null() => {
            // SAFETY: the caller's promise; not null.
            Ok(unsafe { std::slice::from_raw_parts(parts, length) })
        }
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// One buffer of all parts, so that they are written at one stroke.
///
/// # Safety
/// As `writev`.
unsafe fn gathered(from: *const iovec, count: c_int) -> Outcome<Vec<u8>> {
    let mut all = Vec::new();
    // SAFETY: the caller's promise, for the parts and for what each of them says.
    for part in unsafe { parts(from, count) }? {
        // SAFETY: as above.
        all.extend_from_slice(unsafe { data(part.iov_base, part.iov_len) }?);
    }
    Ok(all)
}

/// Reads into the parts, one after the other, until one is not filled.
///
/// # Safety
/// As `readv`.
unsafe fn scattered(
    into: *const iovec,
    count: c_int,
    mut read: impl FnMut(&mut [u8], usize) -> Outcome<usize>,
) -> Outcome<usize> {
    let mut done = 0;
    // SAFETY: the caller's promise, for the parts and for what each of them says.
    for part in unsafe { parts(into, count) }? {
        // SAFETY: as above.
        let length = read(unsafe { buffer(part.iov_base, part.iov_len) }?, done)?;
        done += length;
        if length < part.iov_len {
            break;
        }
    }
    Ok(done)
}

fn behind(offset: off_t, done: usize) -> off_t {
    offset.saturating_add(off_t::try_from(done).unwrap_or(off_t::MAX))
}

/// Forgets what a descriptor stood for, before its number is given out again.
fn forget_here(descriptor: c_int) {
    if kind(descriptor) != Kind::Other {
        // Dropping the last handle of an unlinked file frees its memory; all of it is this
        // library's own.
        let _forgotten = serve(|| {
            forget(descriptor);
            Ok(())
        });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    if kind(descriptor) == Kind::Other && mount::is_own(descriptor) {
        fail(Errno(libc::EBADF));
        return -1;
    }
    forget_here(descriptor);
    // SAFETY: the caller's promise.
    unsafe { real::close(descriptor) }
}

/// Closes all descriptors from `first` to `last` but those that the database uses.
fn close_others(first: c_uint, last: c_uint) {
    let opened = serve(|| {
        let entries = std::fs::read_dir("/proc/self/fd")?;
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<c_int>().ok());
        Ok(numbers.collect::<Vec<_>>())
    });
    for descriptor in opened.and_then(Result::ok).unwrap_or_default() {
        if c_uint::try_from(descriptor).is_ok_and(|number| (first..=last).contains(&number)) {
            // SAFETY: it takes a number.
            unsafe { close(descriptor) };
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags == 0 && mount::already().is_some() {
        close_others(first, last);
        return 0;
    }
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        forget_range(first, last);
    }
    // SAFETY: the caller's promise.
    unsafe { real::close_range(first, last, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let from = c_uint::try_from(first).unwrap_or(0);
    if mount::already().is_some() {
        return close_others(from, c_uint::MAX);
    }
    forget_range(from, c_uint::MAX);
    // SAFETY: the caller's promise.
    unsafe { real::closefrom(first) }
}

/// Whether `target` may be replaced by a duplicate; it is forgotten then. Not where `descriptor` is
/// not open: the call fails, and leaves `target` open.
fn may_replace(descriptor: c_int, target: c_int) -> bool {
    if descriptor == target {
        return true;
    }
    // SAFETY: the command takes no argument.
    if unsafe { real::fcntl64(descriptor, libc::F_GETFD, std::ptr::null_mut()) } < 0 {
        return false;
    }
    if kind(target) == Kind::Other && mount::is_own(target) {
        fail(Errno(libc::EBUSY));
        return false;
    }
    forget_here(target);
    true
}

/// Lets a duplicate stand for the same file, or closes it and fails.
fn stand_for_same(descriptor: c_int, duplicate: c_int) -> c_int {
    if duplicate < 0 {
        return duplicate;
    }
    match on_file(descriptor, |target| target.duplicate_to(duplicate)) {
        Some(Err(errno)) => {
            // SAFETY: the duplicate was made for this call, and nobody has it.
            unsafe { real::close(duplicate) };
            fail(errno);
            -1
        }
        _ => duplicate,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(descriptor: c_int) -> c_int {
    if kind(descriptor) != Kind::File {
        // SAFETY: the caller's promise.
        return unsafe { real::dup(descriptor) };
    }
    // SAFETY: as above. Duplicates of a placeholder's descriptor are not for programs that this one
    // starts.
    stand_for_same(descriptor, unsafe {
        real::fcntl64(descriptor, libc::F_DUPFD_CLOEXEC, std::ptr::null_mut())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(descriptor: c_int, target: c_int) -> c_int {
    if !may_replace(descriptor, target) {
        return -1;
    }
    if kind(descriptor) != Kind::File || descriptor == target {
        // SAFETY: the caller's promise.
        return unsafe { real::dup2(descriptor, target) };
    }
    // SAFETY: as above.
    stand_for_same(descriptor, unsafe { real::dup3(descriptor, target, libc::O_CLOEXEC) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(descriptor: c_int, target: c_int, flags: c_int) -> c_int {
    if flags & !libc::O_CLOEXEC != 0 {
        fail(Errno(libc::EINVAL));
        return -1;
    }
    if !may_replace(descriptor, target) {
        return -1;
    }
    let own = if kind(descriptor) == Kind::File { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the caller's promise.
    stand_for_same(descriptor, unsafe { real::dup3(descriptor, target, flags | own) })
}

/// Asks the C library something about the placeholder instead, which knows of inode, locks and
/// flags; `None` when the descriptor is another's.
fn on_placeholder(descriptor: c_int, ask: impl FnOnce(c_int) -> c_int) -> Option<c_int> {
    let mut told = -1;
    let outcome = on_file(descriptor, |target| {
        told = ask(target.placeholder());
        if told == -1 { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
    })?;
    if let Err(errno) = outcome {
        fail(errno);
        return Some(-1);
    }
    Some(told)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int {
    if kind(descriptor) != Kind::File {
        // SAFETY: the caller's promise.
        return unsafe { real::fcntl64(descriptor, command, argument) };
    }
    // A number in the place of a pointer: the lower half of it.
    let flags = c_int::try_from(argument as usize & 0x7fff_ffff).unwrap_or(0);
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: the argument is a number.
            stand_for_same(descriptor, unsafe { real::fcntl64(descriptor, libc::F_DUPFD_CLOEXEC, argument) })
        }
        // SAFETY: it takes a number at most. A program that this one starts gets no descriptor: it
        // could do nothing with it.
        libc::F_GETFD | libc::F_SETFD => unsafe {
            real::fcntl64(descriptor, command, (flags | libc::FD_CLOEXEC) as usize as *mut c_void)
        },
        libc::F_SETFL => {
            let _set = on_file(descriptor, |target| {
                target.set_flags(flags);
                Ok(())
            });
            0
        }
        libc::F_GETFL => {
            let outcome = on_file(descriptor, |target| {
                // SAFETY: the call takes no argument.
                let told = unsafe { real::fcntl64(target.placeholder(), command, std::ptr::null_mut()) };
                if told == -1 { Err(std::io::Error::last_os_error().into()) } else { Ok(target.flags(told)) }
            });
            outcome.map_or(-1, paths::descriptor)
        }
        // Locks and the rest are the placeholder's, which is one inode to all who open the file.
        _ => on_placeholder(descriptor, |placeholder| {
            // SAFETY: the caller's promise.
            unsafe { real::fcntl64(placeholder, command, argument) }
        })
        .unwrap_or(-1),
    }
}

/// Functions that ask or change something of the inode.
macro_rules! of_the_placeholder {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(descriptor: c_int, $($argument: $kind),*) -> c_int {
            // SAFETY: the caller's promise, for either descriptor.
            let ask = |descriptor| unsafe { real::$name(descriptor, $($argument),*) };
            on_placeholder(descriptor, ask).unwrap_or_else(|| ask(descriptor))
        }
    )*};
}

of_the_placeholder! {
    fchmod(mode: mode_t);
    fchown(owner: uid_t, group: gid_t);
    flock(operation: c_int);
    futimens(times: *const timespec);
    futimes(times: *const timeval);
}

/// A hint, for which nothing has to be done in memory. It answers with the number of an error
/// itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise64(
    descriptor: c_int,
    offset: off_t,
    length: off_t,
    advice: c_int,
) -> c_int {
    if kind(descriptor) == Kind::File {
        0
    } else {
        // SAFETY: it takes numbers.
        unsafe { real::posix_fadvise64(descriptor, offset, length, advice) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fadvise(
    descriptor: c_int,
    offset: off_t,
    length: off_t,
    advice: c_int,
) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { posix_fadvise64(descriptor, offset, length, advice) }
}

/// A hint, for which nothing has to be done in memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readahead(descriptor: c_int, offset: off_t, length: size_t) -> ssize_t {
    // SAFETY: it takes numbers.
    if kind(descriptor) == Kind::File { 0 } else { unsafe { real::readahead(descriptor, offset, length) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { fcntl64(descriptor, command, argument) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    const FICLONE: libc::c_ulong = 0x4004_9409;
    const FICLONERANGE: libc::c_ulong = 0x4020_940d;
    let source = match request {
        FICLONE => c_int::try_from(argument as usize).unwrap_or(-1),
        FICLONERANGE if !argument.is_null() => {
            // SAFETY: the caller's promise: the argument is a `file_clone_range`, which begins with
            // the source's descriptor in 64 bits.
            c_int::try_from(unsafe { argument.cast::<i64>().read_unaligned() }).unwrap_or(-1)
        }
        _ => -1,
    };
    let is_clone = matches!(request, FICLONE | FICLONERANGE);
    if is_clone && (kind(descriptor) == Kind::File || kind(source) == Kind::File) {
        fail(refuse("FICLONE", libc::EOPNOTSUPP));
        return -1;
    }
    if kind(descriptor) != Kind::File {
        // SAFETY: the caller's promise.
        return unsafe { real::ioctl(descriptor, request, argument) };
    }
    // SAFETY: as above.
    unsafe { file_ioctl(descriptor, request, argument) }
}

/// What can be answered of a file of the database. Most requests are about where a file lies on a
/// disk, or change that: the placeholder's part in it is not the file's.
///
/// # Safety
/// As `ioctl`.
unsafe fn file_ioctl(descriptor: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int {
    /// Bytes of a block of the file system.
    const FIGETBSZ: libc::c_ulong = 2;
    const FS_IOC_GETFLAGS: libc::c_ulong = 0x8008_6601;
    match request {
        libc::FIOCLEX | libc::FIONCLEX => 0,
        libc::FIONREAD if argument.is_null() => number(Err(Errno(libc::EFAULT))),
        libc::FIONREAD => match on_file(descriptor, |target| target.bytes_ahead()) {
            Some(Ok(bytes)) => {
                // SAFETY: the caller's promise: the argument is the address of an `int`.
                unsafe {
                    argument.cast::<c_int>().write_unaligned(c_int::try_from(bytes).unwrap_or(c_int::MAX));
                };
                0
            }
            failed => number(failed.map_or(Err(Errno(libc::EIO)), |failed| failed.map(drop))),
        },
        FIGETBSZ | FS_IOC_GETFLAGS | libc::FIONBIO => {
            // SAFETY: the caller's promise.
            on_placeholder(descriptor, |placeholder| unsafe { real::ioctl(placeholder, request, argument) })
                .unwrap_or(-1)
        }
        // Requests of file systems have one of these letters, all others are of devices.
        _ if matches!(request >> 8 & 0xff, 0x58 | 0x66) => {
            number(Err(refuse("an ioctl of file systems", libc::EOPNOTSUPP)))
        }
        _ => number(Err(Errno(libc::ENOTTY))),
    }
}

/// Locks from where the file is read or written next: the placeholder's, at that place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf64(descriptor: c_int, command: c_int, length: off_t) -> c_int {
    if kind(descriptor) != Kind::File {
        // SAFETY: it takes numbers.
        return unsafe { real::lockf64(descriptor, command, length) };
    }
    let (how, what) = match command {
        libc::F_LOCK => (libc::F_SETLKW, libc::F_WRLCK),
        libc::F_TLOCK => (libc::F_SETLK, libc::F_WRLCK),
        libc::F_ULOCK => (libc::F_SETLK, libc::F_UNLCK),
        libc::F_TEST => (libc::F_GETLK, libc::F_WRLCK),
        _ => return number(Err(Errno(libc::EINVAL))),
    };
    // SAFETY: it takes numbers.
    let start = unsafe { lseek64(descriptor, 0, libc::SEEK_CUR) };
    if start < 0 {
        return -1;
    }
    let (kind, whence) =
        (libc::c_short::try_from(what).unwrap_or(0), libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0));
    let mut lock = libc::flock { l_type: kind, l_whence: whence, l_start: start, l_len: length, l_pid: 0 };
    // SAFETY: the commands take the address of a lock, which lives through the call.
    let told = unsafe { fcntl64(descriptor, how, (&raw mut lock).cast()) };
    if told == 0 && command == libc::F_TEST && c_int::from(lock.l_type) != libc::F_UNLCK {
        return number(Err(Errno(libc::EACCES)));
    }
    told
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf(descriptor: c_int, command: c_int, length: off_t) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { lockf64(descriptor, command, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(descriptor: c_int, into: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise, on both ways.
    match on_file(descriptor, |target| target.read(unsafe { buffer(into, length) }?)) {
        Some(outcome) => count(outcome),
        // SAFETY: as above.
        None => unsafe { real::read(descriptor, into, length) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    descriptor: c_int,
    into: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    if length > room {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { read(descriptor, into, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(
    descriptor: c_int,
    into: *mut c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise, on both ways.
    match on_file(descriptor, |target| target.read_at(unsafe { buffer(into, length) }?, offset)) {
        Some(outcome) => count(outcome),
        // SAFETY: as above.
        None => unsafe { real::pread64(descriptor, into, length, offset) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(
    descriptor: c_int,
    into: *mut c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { pread64(descriptor, into, length, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pread_chk(
    descriptor: c_int,
    into: *mut c_void,
    length: size_t,
    offset: off_t,
    room: size_t,
) -> ssize_t {
    if length > room {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { pread64(descriptor, into, length, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pread64_chk(
    descriptor: c_int,
    into: *mut c_void,
    length: size_t,
    offset: off_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { __pread_chk(descriptor, into, length, offset, room) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(descriptor: c_int, into: *const iovec, parts: c_int) -> ssize_t {
    // SAFETY: the caller's promise, on both ways.
    match on_file(descriptor, |target| unsafe { scattered(into, parts, |buffer, _| target.read(buffer)) }) {
        Some(outcome) => count(outcome),
        // SAFETY: as above.
        None => unsafe { real::readv(descriptor, into, parts) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64(
    descriptor: c_int,
    into: *const iovec,
    parts: c_int,
    offset: off_t,
) -> ssize_t {
    let read = |target: Target| {
        // SAFETY: the caller's promise.
        unsafe { scattered(into, parts, |buffer, done| target.read_at(buffer, behind(offset, done))) }
    };
    match on_file(descriptor, read) {
        Some(outcome) => count(outcome),
        // SAFETY: the caller's promise.
        None => unsafe { real::preadv64(descriptor, into, parts, offset) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv(
    descriptor: c_int,
    into: *const iovec,
    parts: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { preadv64(descriptor, into, parts, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64v2(
    descriptor: c_int,
    into: *const iovec,
    parts: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if kind(descriptor) == Kind::File {
        // What the flags ask for (how long to wait, priority) makes no difference in memory.
        // SAFETY: the caller's promise.
        return unsafe {
            if offset == -1 {
                readv(descriptor, into, parts)
            } else {
                preadv64(descriptor, into, parts, offset)
            }
        };
    }
    // SAFETY: as above.
    unsafe { real::preadv64v2(descriptor, into, parts, offset, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    descriptor: c_int,
    into: *const iovec,
    parts: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { preadv64v2(descriptor, into, parts, offset, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(descriptor: c_int, from: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise, on both ways.
    match on_file(descriptor, |target| target.write(unsafe { data(from, length) }?)) {
        Some(outcome) => count(outcome),
        // SAFETY: as above.
        None => unsafe { real::write(descriptor, from, length) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    descriptor: c_int,
    from: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise, on both ways.
    match on_file(descriptor, |target| target.write_at(unsafe { data(from, length) }?, offset)) {
        Some(outcome) => count(outcome),
        // SAFETY: as above.
        None => unsafe { real::pwrite64(descriptor, from, length, offset) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(
    descriptor: c_int,
    from: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { pwrite64(descriptor, from, length, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(descriptor: c_int, from: *const iovec, parts: c_int) -> ssize_t {
    // SAFETY: the caller's promise, on both ways.
    match on_file(descriptor, |target| target.write(&unsafe { gathered(from, parts) }?)) {
        Some(outcome) => count(outcome),
        // SAFETY: as above.
        None => unsafe { real::writev(descriptor, from, parts) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(
    descriptor: c_int,
    from: *const iovec,
    parts: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise, on both ways.
    match on_file(descriptor, |target| target.write_at(&unsafe { gathered(from, parts) }?, offset)) {
        Some(outcome) => count(outcome),
        // SAFETY: as above.
        None => unsafe { real::pwritev64(descriptor, from, parts, offset) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(
    descriptor: c_int,
    from: *const iovec,
    parts: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { pwritev64(descriptor, from, parts, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64v2(
    descriptor: c_int,
    from: *const iovec,
    parts: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if kind(descriptor) != Kind::File {
        // SAFETY: the caller's promise.
        return unsafe { real::pwritev64v2(descriptor, from, parts, offset, flags) };
    }
    // Others say where or how it is written, as RWF_APPEND does.
    if flags & !(libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT) != 0 {
        fail(refuse("pwritev2 with such flags", libc::EOPNOTSUPP));
        return -1;
    }
    // SAFETY: as above.
    let written = unsafe {
        if offset == -1 {
            writev(descriptor, from, parts)
        } else {
            pwritev64(descriptor, from, parts, offset)
        }
    };
    if written >= 0 && flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0 {
        // SAFETY: it takes a number.
        return if unsafe { fdatasync(descriptor) } == 0 { written } else { -1 };
    }
    written
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    descriptor: c_int,
    from: *const iovec,
    parts: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { pwritev64v2(descriptor, from, parts, offset, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek64(descriptor: c_int, offset: off_t, whence: c_int) -> off_t {
    match on_file(descriptor, |target| target.seek(offset, whence)) {
        Some(Ok(position)) => position,
        Some(Err(errno)) => {
            fail(errno);
            -1
        }
        // SAFETY: it takes numbers.
        None => unsafe { real::lseek64(descriptor, offset, whence) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek(descriptor: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { lseek64(descriptor, offset, whence) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(descriptor: c_int, size: off_t) -> c_int {
    match on_file(descriptor, |target| target.truncate(size)) {
        Some(outcome) => number(outcome),
        // SAFETY: it takes numbers.
        None => unsafe { real::ftruncate64(descriptor, size) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(descriptor: c_int, size: off_t) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { ftruncate64(descriptor, size) }
}

/// The sync of a file of the database, and that of a directory, which is real as well.
fn synced(descriptor: c_int, also: impl FnOnce() -> c_int) -> c_int {
    match kind(descriptor) {
        Kind::Other => also(),
        Kind::File => on_file(descriptor, |target| target.sync()).map_or_else(also, number),
        Kind::Directory => match serve(sync_all) {
            Some(Err(errno)) => number(Err(errno)),
            _ => also(),
        },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(descriptor: c_int) -> c_int {
    // SAFETY: it takes a number.
    synced(descriptor, || unsafe { real::fsync(descriptor) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    // SAFETY: it takes a number.
    synced(descriptor, || unsafe { real::fdatasync(descriptor) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncfs(descriptor: c_int) -> c_int {
    // SAFETY: it takes a number.
    synced(descriptor, || unsafe { real::syncfs(descriptor) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync() {
    // It tells no errors; the next sync of a file does.
    let _synced = serve(sync_all);
    // SAFETY: it takes nothing.
    unsafe { real::sync() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sync_file_range(
    descriptor: c_int,
    offset: off_t,
    length: off_t,
    flags: c_uint,
) -> c_int {
    if kind(descriptor) == Kind::File {
        // It begins to write pages back and promises nothing: here nothing waits in pages.
        return 0;
    }
    // SAFETY: it takes numbers.
    unsafe { real::sync_file_range(descriptor, offset, length, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate64(descriptor: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    match on_file(descriptor, |target| target.allocate(mode, offset, length)) {
        Some(outcome) => number(outcome),
        // SAFETY: it takes numbers.
        None => unsafe { real::fallocate64(descriptor, mode, offset, length) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate(descriptor: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { fallocate64(descriptor, mode, offset, length) }
}

/// It answers with the number itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate64(descriptor: c_int, offset: off_t, length: off_t) -> c_int {
    match on_file(descriptor, |target| target.allocate(0, offset, length)) {
        Some(outcome) => outcome.map_or_else(|errno| errno.0, |()| 0),
        // SAFETY: it takes numbers.
        None => unsafe { real::posix_fallocate64(descriptor, offset, length) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate(descriptor: c_int, offset: off_t, length: off_t) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { posix_fallocate64(descriptor, offset, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat64(descriptor: c_int, result: *mut stat_t) -> c_int {
    // SAFETY: the caller's promise.
    let told = unsafe { real::fstat64(descriptor, result) };
    match on_file(descriptor, |target| target.stat()) {
        Some(Ok(patch)) if told == 0 => {
            // SAFETY: the caller's promise: the call just wrote it.
            patch_stat(unsafe { &mut *result }, &patch);
            0
        }
        Some(Err(errno)) => number(Err(errno)),
        _ => told,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(descriptor: c_int, result: *mut stat_t) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { fstat64(descriptor, result) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstat64(_version: c_int, descriptor: c_int, result: *mut stat_t) -> c_int {
    // SAFETY: the same function, for programs of before glibc 2.33.
    unsafe { fstat64(descriptor, result) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstat(_version: c_int, descriptor: c_int, result: *mut stat_t) -> c_int {
    // SAFETY: the same function, for programs of before glibc 2.33.
    unsafe { fstat64(descriptor, result) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    target: c_int,
    source: c_int,
    offset: *mut off_t,
    length: size_t,
) -> ssize_t {
    if kind(target) == Kind::File || kind(source) == Kind::File {
        fail(refuse("sendfile", libc::EINVAL));
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { real::sendfile64(target, source, offset, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    target: c_int,
    source: c_int,
    offset: *mut off_t,
    length: size_t,
) -> ssize_t {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { sendfile64(target, source, offset, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    source: c_int,
    source_at: *mut off_t,
    target: c_int,
    target_at: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if kind(target) == Kind::File || kind(source) == Kind::File {
        // As between file systems: programs copy by reading and writing then.
        fail(refuse("copy_file_range", libc::EXDEV));
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { real::copy_file_range(source, source_at, target, target_at, length, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    source: c_int,
    source_at: *mut off_t,
    target: c_int,
    target_at: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    if kind(target) == Kind::File || kind(source) == Kind::File {
        fail(refuse("splice", libc::EINVAL));
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { real::splice(source, source_at, target, target_at, length, flags) }
}
