//! The C library's own functions, behind those that take their place: the next of the name that the
//! dynamic linker finds.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io::{self, Write};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    DIR, FILE, aiocb, gid_t, iovec, mode_t, off_t, pthread_attr_t, pthread_t, sigevent, size_t, ssize_t,
    stat as stat_t, statx as statx_t, timespec, timeval, uid_t,
};

/// What a thread begins with.
pub type ThreadStart = extern "C" fn(*mut c_void) -> *mut c_void;

/// A function of the C library, looked up once.
struct Symbol {
    /// With a zero at its end.
    name: &'static str,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static str) -> Symbol {
        Symbol { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero. A successful look-up allocates nothing, so this may
        // run within an allocator.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) };
        if found.is_null() {
            missing(self.name);
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// A function that the program calls and its C library does not have: it could not have been
/// linked.
#[cold]
fn missing(name: &str) -> ! {
    let name = name.trim_end_matches('\0');
    // `eprintln!` would panic where standard error is closed or full, and unwind into C.
    let _told = writeln!(
        io::stderr(),
        "tombolo preload: the C library has no function {name}: it is too old or too new for this library"
    );
    std::process::abort()
}

macro_rules! real {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        /// The C library's.
        ///
        /// # Safety
        /// As the function of that name.
        pub unsafe fn $name($($argument: $kind),*) -> $result {
            static SYMBOL: Symbol = Symbol::new(concat!(stringify!($name), "\0"));
            // SAFETY: the address is that of the C library's function of this name, whose prototype
            // this is; where that takes a variable number of arguments, those after the named ones
            // lie in the same registers on the processors that Linux with glibc runs on here.
            let function: unsafe extern "C" fn($($kind),*) -> $result = unsafe {
                std::mem::transmute(SYMBOL.get())
            };
            // SAFETY: the caller keeps what the function asks for.
            unsafe { function($($argument),*) }
        }
    )*};
}

real! {
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn close(descriptor: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int) -> ();
    fn dup(descriptor: c_int) -> c_int;
    fn dup2(descriptor: c_int, target: c_int) -> c_int;
    fn dup3(descriptor: c_int, target: c_int, flags: c_int) -> c_int;
    fn fcntl64(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int;
    fn fchmod(descriptor: c_int, mode: mode_t) -> c_int;
    fn fchown(descriptor: c_int, owner: uid_t, group: gid_t) -> c_int;
    fn flock(descriptor: c_int, operation: c_int) -> c_int;
    fn futimens(descriptor: c_int, times: *const timespec) -> c_int;
    fn futimes(descriptor: c_int, times: *const timeval) -> c_int;
    fn posix_fadvise64(descriptor: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int;
    fn readahead(descriptor: c_int, offset: off_t, length: size_t) -> ssize_t;
    fn ioctl(descriptor: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int;
    fn read(descriptor: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    fn pread64(descriptor: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t;
    fn readv(descriptor: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn preadv64(descriptor: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv64v2(
        descriptor: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    fn write(descriptor: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    fn pwrite64(descriptor: c_int, buffer: *const c_void, count: size_t, offset: off_t) -> ssize_t;
    fn writev(descriptor: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn pwritev64(descriptor: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev64v2(
        descriptor: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    fn lseek64(descriptor: c_int, offset: off_t, whence: c_int) -> off_t;
    fn ftruncate64(descriptor: c_int, size: off_t) -> c_int;
    fn truncate64(path: *const c_char, size: off_t) -> c_int;
    fn fsync(descriptor: c_int) -> c_int;
    fn fdatasync(descriptor: c_int) -> c_int;
    fn syncfs(descriptor: c_int) -> c_int;
    fn sync() -> ();
    fn sync_file_range(descriptor: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int;
    fn fallocate64(descriptor: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int;
    fn posix_fallocate64(descriptor: c_int, offset: off_t, length: off_t) -> c_int;
    fn fstat64(descriptor: c_int, result: *mut stat_t) -> c_int;
    fn fstatat64(directory: c_int, path: *const c_char, result: *mut stat_t, flags: c_int) -> c_int;
    fn statx(
        directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, result: *mut statx_t
    ) -> c_int;
    fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    fn renameat(old_directory: c_int, old: *const c_char, directory: c_int, path: *const c_char) -> c_int;
    fn renameat2(
        old_directory: c_int, old: *const c_char, directory: c_int, path: *const c_char, flags: c_uint
    ) -> c_int;
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    fn remove(path: *const c_char) -> c_int;
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fn posix_spawn_file_actions_addopen(
        actions: *mut c_void, descriptor: c_int, path: *const c_char, flags: c_int, mode: mode_t
    ) -> c_int;
    fn lockf64(descriptor: c_int, command: c_int, length: off_t) -> c_int;
    fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int;
    fn chdir(path: *const c_char) -> c_int;
    fn opendir(path: *const c_char) -> *mut DIR;
    fn scandirat64(
        directory: c_int, path: *const c_char, list: *mut c_void, filter: *const c_void,
        compare: *const c_void
    ) -> c_int;
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char;
    fn realpath(path: *const c_char, result: *mut c_char) -> *mut c_char;
    fn linkat(
        old_directory: c_int, old: *const c_char, directory: c_int, path: *const c_char, flags: c_int
    ) -> c_int;
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE;
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn fileno(stream: *mut FILE) -> c_int;
    fn sendfile64(target: c_int, source: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn copy_file_range(
        source: c_int, source_at: *mut off_t, target: c_int, target_at: *mut off_t, count: size_t,
        flags: c_uint
    ) -> ssize_t;
    fn pthread_create(
        thread: *mut pthread_t, attributes: *const pthread_attr_t, start: ThreadStart, argument: *mut c_void
    ) -> c_int;
    fn aio_read64(request: *mut aiocb) -> c_int;
    fn aio_write64(request: *mut aiocb) -> c_int;
    fn aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int;
    fn lio_listio64(mode: c_int, requests: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int;
    fn splice(
        source: c_int, source_at: *mut off_t, target: c_int, target_at: *mut off_t, count: size_t,
        flags: c_uint
    ) -> ssize_t;
}

/// The kernel's `mmap`, without the C library: an allocator asks for memory before anything can be
/// looked up.
///
/// # Safety
/// As `mmap`.
pub unsafe fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller keeps what the call asks for; the C library's wrapper does no more than
    // this where an offset has 64 bits.
    let result =
        unsafe { libc::syscall(libc::SYS_mmap, address, length, protection, flags, descriptor, offset) };
    result as *mut c_void
}
