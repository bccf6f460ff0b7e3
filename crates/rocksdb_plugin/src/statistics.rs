//! What the files of this process take, and what was done with them, by their kinds.

use std::fmt::Write;

use tombolo::{Error, ErrorKind, Result};
use tombolo_files::kind::FileKind;

use crate::{OPEN, PoisonError, TomboloPath, Weak};

/// An object of JSON for each kind of file. Reads, writes and syncs are those of this process since
/// it opened the files.
///
/// # Errors
/// `NotFound` where no file system of this URI is open here; those of looking.
pub(crate) fn statistics(uri: &[u8]) -> Result<String> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).get(uri).and_then(Weak::upgrade);
    let fs = open.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "this process has no file system of that URI open")
            .object(uri.escape_ascii())
            .advice("give the URI that RocksDB was given, byte by byte")
    })?;
    let usage = fs.look()?.map(|files| files.usage()).unwrap_or_default();
    let mut told = String::from("{");
    for kind in FileKind::ALL {
        let of = usage.of(kind);
        let comma = if told.len() > 1 { "," } else { "" };
        let _written = write!(
            told,
            "{comma}\"{}\":{{\"files\":{},\"bytes\":{},\"reads\":{},\"read_bytes\":{},\"written_bytes\":{},\
            \"syncs\":{}}}",
            kind.name(),
            of.files,
            of.bytes,
            of.reads,
            of.read_bytes,
            of.written_bytes,
            of.syncs
        );
    }
    told.push('}');
    Ok(told)
}

/// Writes the statistics of the file system that this process has open under this URI to `to`, as
/// JSON, and gives their length in bytes; cut where there is less room. 0 where there is none.
///
/// # Safety
/// `uri` points to `uri_bytes` bytes, and `to` to `room` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_rocksdb_statistics(
    uri: *const u8,
    uri_bytes: usize,
    to: *mut u8,
    room: usize,
) -> usize {
    // SAFETY: as the caller promises.
    let uri = unsafe { TomboloPath { bytes: uri, length: uri_bytes }.get() };
    let told = std::panic::catch_unwind(|| statistics(uri));
    let Ok(Ok(told)) = told else { return 0 };
    let fits = told.len().min(room);
    // SAFETY: there is room for so many, and they are of this process's own memory.
    unsafe { std::ptr::copy_nonoverlapping(told.as_ptr(), to, fits) };
    told.len()
}
