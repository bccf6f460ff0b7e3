//! Writing dirty pages back ahead of a sync.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{SYNC_FILE_RANGE_WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE};

/// Begins to write `length` bytes at `offset` back, and waits for everything before them.
pub(super) fn write_out(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if offset > 0 {
        sync_file_range(
            file,
            0,
            offset,
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER,
        )?;
    }
    if length > 0 {
        sync_file_range(file, offset, length, SYNC_FILE_RANGE_WRITE)?;
    }
    Ok(())
}

fn sync_file_range(file: &File, offset: u64, length: u64, flags: libc::c_uint) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (offset, length) = (i64::try_from(offset).map_err(invalid)?, i64::try_from(length).map_err(invalid)?);
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call takes numbers only.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // File systems without it write back when they like, or at the sync.
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE)) => {
                Ok(())
            }
            error => Err(error),
        },
    }
}
