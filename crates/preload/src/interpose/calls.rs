//! Calls on descriptors that stand for files of the database.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::descriptors::{self, OpenFile};
use super::mount::{self, Mounted};
use super::{Errno, Outcome, report};
use crate::files::{At, File};

/// Size and times in the place of a placeholder's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Bytes.
    pub size: u64,
    /// Seconds and nanoseconds since 1970, if the content has changed since the process opened it.
    pub modified: Option<(i64, i64)>,
}

/// A file open in this process, and the files it is one of.
pub struct Target {
    mounted: &'static Mounted,
    open: Arc<OpenFile>,
}

impl Target {
    /// The file that `descriptor` stands for.
    ///
    /// # Errors
    /// `EBADF`; `EIO` in a forked child.
    pub fn of(descriptor: c_int) -> Outcome<Target> {
        let mounted = mount::mounted()?;
        Ok(Target { mounted, open: descriptors::get(descriptor)? })
    }

    /// `read(2)`.
    ///
    /// # Errors
    /// As the call, as all below.
    pub fn read(&self, buffer: &mut [u8]) -> Outcome<usize> {
        self.check_readable()?;
        let mut offset = self.open.offset.lock();
        let read = self.open.file.read(*offset, buffer)?;
        *offset += read as u64;
        Ok(read)
    }

    /// `pread(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn read_at(&self, buffer: &mut [u8], offset: i64) -> Outcome<usize> {
        self.check_readable()?;
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
        Ok(self.open.file.read(offset, buffer)?)
    }

    /// `write(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn write(&self, data: &[u8]) -> Outcome<usize> {
        self.check_writable()?;
        let mut offset = self.open.offset.lock();
        let at = if self.open.appends.load(Ordering::Relaxed) { At::End } else { At::Offset(*offset) };
        let (began, written) = self.write_parts(at, data)?;
        // Nothing written moves nothing, not even to the end.
        if written > 0 {
            *offset = began + written as u64;
        }
        Ok(written)
    }

    /// `pwrite(2)`: at the end, whatever the offset, when the file was opened with `O_APPEND`.
    ///
    /// # Errors
    /// As the call.
    pub fn write_at(&self, data: &[u8], offset: i64) -> Outcome<usize> {
        self.check_writable()?;
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
        let at = if self.open.appends.load(Ordering::Relaxed) { At::End } else { At::Offset(offset) };
        Ok(self.write_parts(at, data)?.1)
    }

    /// Writes in parts that are whole or absent; says where it began and how much was written. An
    /// error counts only when nothing was.
    fn write_parts(&self, mut at: At, data: &[u8]) -> Outcome<(u64, usize)> {
        let files = &self.mounted.files;
        let (mut began, mut done) = (None, 0);
        loop {
            let part = files.begun(|| files.begin_write(&self.open.file, at, &data[done..]));
            let settled = part.and_then(|(offset, written, op)| files.settle(op).map(|()| (offset, written)));
            match settled {
                Ok((offset, written)) => {
                    began.get_or_insert(offset);
                    done += written;
                    if matches!(at, At::Offset(_)) {
                        at = At::Offset(offset + written as u64);
                    }
                }
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
            if done == data.len() {
                break;
            }
        }
        if self.open.synchronous {
            files.sync()?;
        }
        Ok((began.unwrap_or(0), done))
    }

    /// `lseek(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn seek(&self, offset: i64, whence: c_int) -> Outcome<i64> {
        let size = self.open.file.size()?;
        let mut position = self.open.offset.lock();
        let within = |offset: i64| {
            u64::try_from(offset).ok().filter(|offset| *offset < size).ok_or(Errno(libc::ENXIO))
        };
        let target = match whence {
            libc::SEEK_SET => Some(offset),
            libc::SEEK_CUR => i64::try_from(*position).ok().and_then(|position| position.checked_add(offset)),
            libc::SEEK_END => i64::try_from(size).ok().and_then(|size| size.checked_add(offset)),
            // Holes are not told from zeros: all of it is data, as a file system may say.
            libc::SEEK_DATA => within(offset).map(|_| Some(offset))?,
            libc::SEEK_HOLE => within(offset).map(|_| i64::try_from(size).ok())?,
            _ => None,
        };
        let target = target.filter(|target| *target >= 0).ok_or(Errno(libc::EINVAL))?;
        *position = u64::try_from(target).map_err(|_| Errno(libc::EINVAL))?;
        Ok(target)
    }

    /// Bytes from where it is read next to its end.
    ///
    /// # Errors
    /// Those of the files.
    pub fn bytes_ahead(&self) -> Outcome<u64> {
        let offset = *self.open.offset.lock();
        Ok(self.open.file.size()?.saturating_sub(offset))
    }

    /// `ftruncate(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn truncate(&self, size: i64) -> Outcome<()> {
        self.check_writable().map_err(|_| Errno(libc::EINVAL))?;
        let size = u64::try_from(size).map_err(|_| Errno(libc::EINVAL))?;
        Ok(self.mounted.files.truncate(&self.open.file, size)?)
    }

    /// `fallocate(2)`: the size it asks for. Space is not kept free for the file: a full store is
    /// told when it is written.
    ///
    /// # Errors
    /// As the call: `EOPNOTSUPP` for modes that change what the file holds.
    pub fn allocate(&self, mode: c_int, offset: i64, length: i64) -> Outcome<()> {
        self.check_writable()?;
        let end = match (u64::try_from(offset), u64::try_from(length)) {
            (Ok(offset), Ok(length @ 1..)) => offset.checked_add(length).ok_or(Errno(libc::EFBIG))?,
            _ => return Err(Errno(libc::EINVAL)),
        };
        match mode {
            0 => Ok(self.mounted.files.extend(&self.open.file, end)?),
            libc::FALLOC_FL_KEEP_SIZE => Ok(()),
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    }

    /// `fsync(2)`, `fdatasync(2)`, `sync_file_range(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn sync(&self) -> Outcome<()> {
        Ok(self.mounted.files.sync()?)
    }

    /// What to put into the answer of `fstat(2)` about the placeholder.
    ///
    /// # Errors
    /// As the call.
    pub fn stat(&self) -> Outcome<Patch> {
        patch(self.mounted, &self.open.file)
    }

    /// Whether it may be read.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn check_readable(&self) -> Outcome<()> {
        if self.open.readable { Ok(()) } else { Err(Errno(libc::EBADF)) }
    }

    fn check_writable(&self) -> Outcome<()> {
        if self.open.writable { Ok(()) } else { Err(Errno(libc::EBADF)) }
    }

    /// The placeholder's own descriptor, for locks and for answers about its inode; valid while
    /// this lives.
    pub fn placeholder(&self) -> c_int {
        self.open.placeholder.as_raw_fd()
    }

    /// After `F_SETFL` on the placeholder's descriptor: what of it is the file's.
    pub fn set_flags(&self, flags: c_int) {
        self.open.appends.store(flags & libc::O_APPEND != 0, Ordering::Relaxed);
    }

    /// Flags of the file, and how it may be used, in the place of those that its placeholder's
    /// descriptor has: `told`.
    pub fn flags(&self, told: c_int) -> c_int {
        let access = match (self.open.readable, self.open.writable) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            _ => libc::O_RDONLY,
        };
        let appends = if self.open.appends.load(Ordering::Relaxed) { libc::O_APPEND } else { 0 };
        let synchronous = if self.open.synchronous { libc::O_SYNC } else { 0 };
        told & !libc::O_ACCMODE | access | appends | synchronous
    }

    /// Lets `duplicate`, a real duplicate of the placeholder's descriptor, stand for the same open
    /// file.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn duplicate_to(&self, duplicate: c_int) -> Outcome<()> {
        descriptors::check(duplicate)?;
        descriptors::set_file(duplicate, Arc::clone(&self.open));
        Ok(())
    }
}

/// Size and time of a file.
///
/// # Errors
/// Those of the files.
pub fn patch(mounted: &Mounted, file: &File) -> Outcome<Patch> {
    Ok(Patch { size: file.size()?, modified: mounted.modified(file).map(mount::unix_time) })
}

/// Makes durable what the files were given, beside the real sync of a directory or of everything.
///
/// # Errors
/// Those of the files.
pub fn sync_all() -> Outcome<()> {
    match mount::already() {
        Some(mounted) => Ok(mounted.files.sync()?),
        None => Ok(()),
    }
}

/// A call that cannot be done on a file of the database: says so, and which number the program
/// gets.
pub fn refuse(call: &str, number: c_int) -> Errno {
    report(&format!(
        "{call} is not supported on files that are kept in a database: it fails, and nothing was done"
    ));
    Errno(number)
}
