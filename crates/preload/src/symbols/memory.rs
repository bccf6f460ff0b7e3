//! Mappings, and reads and writes in the background: what goes past `read` and `write`.
#![allow(clippy::missing_safety_doc, reason = "said once, in the module above")]

use std::ffi::{c_int, c_void};

use libc::{aiocb, off_t, sigevent, size_t};

use super::{fail, on_file, real};
use crate::interpose::calls::{Target, refuse};
use crate::interpose::descriptors::{Kind, kind};
use crate::interpose::{Errno, Outcome};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    // An allocator may ask for memory before anything of this library is ready: nothing is looked
    // at but the number.
    let is_ours = flags & libc::MAP_ANONYMOUS == 0 && kind(descriptor) == Kind::File;
    let served = if is_ours {
        // SAFETY: the caller's promise.
        on_file(descriptor, |target| unsafe { copy(&target, (address, length), protection, flags, offset) })
    } else {
        None
    };
    match served {
        Some(Ok(mapping)) => mapping,
        Some(Err(errno)) => {
            fail(errno);
            libc::MAP_FAILED
        }
        // SAFETY: the caller's promise.
        None => unsafe { real::mmap(address, length, protection, flags, descriptor, offset) },
    }
}

/// A private mapping, which need not show later writes to the file: a copy in anonymous
/// memory. A shared one would have to.
///
/// # Safety
/// As `mmap`.
unsafe fn copy(
    target: &Target,
    (address, length): (*mut c_void, size_t),
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Outcome<*mut c_void> {
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        return Err(refuse("a shared mmap", libc::ENODEV));
    }
    target.check_readable().map_err(|_| Errno(libc::EACCES))?;
    if offset < 0 || offset % 4096 != 0 || length == 0 || isize::try_from(length).is_err() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's promise about the address; the rest asks for new memory.
    let mapping = unsafe {
        real::mmap(address, length, libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_ANONYMOUS, -1, 0)
    };
    if mapping == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: new memory of this length, all zeros, that nobody else knows of yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.cast::<u8>(), length) };
    let read = target.read_at(bytes, offset);
    // SAFETY: the mapping made above.
    let protected = unsafe { libc::mprotect(mapping, length, protection) };
    if read.is_err() || protected != 0 {
        // SAFETY: the mapping made above, whose slice is not used any more.
        unsafe { libc::munmap(mapping, length) };
        return Err(read.err().unwrap_or(Errno(libc::ENOMEM)));
    }
    Ok(mapping)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { mmap64(address, length, protection, flags, descriptor, offset) }
}

/// Whether a request is about a file of the database: the C library would read and write its
/// placeholder, on threads of its own.
///
/// # Safety
/// `request` is null or valid.
unsafe fn is_refused(request: *const aiocb) -> bool {
    // SAFETY: the caller's promise.
    let refused = !request.is_null() && kind(unsafe { (*request).aio_fildes }) == Kind::File;
    if refused {
        fail(refuse("POSIX asynchronous IO", libc::ENOSYS));
    }
    refused
}

macro_rules! refused_here {
    ($($name:ident $twin:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $twin(request: *mut aiocb) -> c_int {
            // SAFETY: the caller's promise, for both.
            unsafe { if is_refused(request) { -1 } else { real::$twin(request) } }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(request: *mut aiocb) -> c_int {
            // SAFETY: the same function where offsets have 64 bits.
            unsafe { $twin(request) }
        }
    )*};
}

refused_here! { aio_read aio_read64 aio_write aio_write64 }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int {
    // SAFETY: the caller's promise, for both.
    unsafe { if is_refused(request) { -1 } else { real::aio_fsync64(operation, request) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_fsync(operation: c_int, request: *mut aiocb) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { aio_fsync64(operation, request) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio64(
    mode: c_int,
    requests: *const *mut aiocb,
    count: c_int,
    event: *mut sigevent,
) -> c_int {
    let length = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller's promise: so many pointers, each null or valid.
    let refused = !requests.is_null() && (0..length).any(|index| unsafe { is_refused(*requests.add(index)) });
    // SAFETY: as above.
    if refused { -1 } else { unsafe { real::lio_listio64(mode, requests, count, event) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio(
    mode: c_int,
    requests: *const *mut aiocb,
    count: c_int,
    event: *mut sigevent,
) -> c_int {
    // SAFETY: the same function where offsets have 64 bits.
    unsafe { lio_listio64(mode, requests, count, event) }
}
