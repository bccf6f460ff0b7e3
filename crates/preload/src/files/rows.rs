//! The rows in which files are kept, in three keyspaces of the database.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `preload-names` | the file's path: absolute, 1 to 4095 bytes | 1 byte: version, 1; 8 bytes: id, little-endian |
//! | `preload-extents` | 8 bytes: id; 8 bytes: offset in the file; both big-endian, so that a scan goes through the file | 1 to 16,384 bytes of the file, from there |
//! | `preload-extents` | 8 bytes: id; 8 bytes: `FF` | 8 bytes: the size that the file has at least, little-endian |
//! | `preload-unlinked` | 8 bytes: the id of a file without a name, big-endian, whose extents are still to be deleted | empty |
//!
//! Invariants:
//! 1. No extent crosses a multiple of 16,384, and no two extents of a file overlap.
//! 2. A file's size is the larger of its size row and the end of its last extent. What no extent
//!    holds reads as zero.
//! 3. An id with rows is named by exactly one row of `preload-names` or `preload-unlinked`.

use tombolo::{Error, ErrorKind, Result};

/// Bytes of a block: no extent crosses a multiple of it.
pub const BLOCK_BYTES: u64 = 16_384;
/// Most bytes of a path, as the operating system has it.
pub const PATH_BYTES_MAX: usize = 4095;
/// Most bytes of a file: what an `off_t` can say.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Keyspace of the paths.
pub const NAMES: &str = "preload-names";
/// Keyspace of the contents.
pub const EXTENTS: &str = "preload-extents";
/// Keyspace of files that are to be deleted.
pub const UNLINKED: &str = "preload-unlinked";

const NAME_VERSION: u8 = 1;
const SIZE_ROW_OFFSET: u64 = u64::MAX;

/// Number of a file's content; its names may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// What a row of `preload-extents` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Bytes from an offset on.
    Extent {
        /// Where they begin.
        offset: u64,
        /// 1 to [`BLOCK_BYTES`] of them.
        bytes: &'a [u8],
    },
    /// The size that the file has at least.
    Size(u64),
}

/// The value of a name.
pub fn name_value(id: FileId) -> [u8; 9] {
    let mut value = [NAME_VERSION; 9];
    value[1..].copy_from_slice(&id.0.to_le_bytes());
    value
}

/// The id in the value of a name.
///
/// # Errors
/// `Unsupported` of a later version; `Corrupt`.
pub fn name_id(path: &[u8], value: &[u8]) -> Result<FileId> {
    match value {
        [NAME_VERSION, id @ ..] => {
            let id = id
                .try_into()
                .map_err(|_| corrupt(NAMES, path, "9 bytes", format!("{} bytes", value.len())))?;
            Ok(FileId(u64::from_le_bytes(id)))
        }
        [version, ..] => {
            let error = Error::new(
                ErrorKind::Unsupported,
                format!("the file {} has row version {version}", path.escape_ascii()),
            );
            Err(error.advice("use a newer libtombolo_preload.so"))
        }
        [] => Err(corrupt(NAMES, path, "9 bytes", "0 bytes".to_owned())),
    }
}

/// The prefix of all rows of a file in `preload-extents`, and its key in `preload-unlinked`.
pub fn id_key(id: FileId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// The id that a key of `preload-unlinked` says.
///
/// # Errors
/// `Corrupt`.
pub fn key_id(key: &[u8]) -> Result<FileId> {
    let id = key.try_into().map_err(|_| corrupt(UNLINKED, key, "8 bytes", format!("{} bytes", key.len())))?;
    Ok(FileId(u64::from_be_bytes(id)))
}

/// The key of the extent at `offset`.
pub fn extent_key(id: FileId, offset: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&id.0.to_be_bytes());
    key[8..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// The key of the size row.
pub fn size_key(id: FileId) -> [u8; 16] {
    extent_key(id, SIZE_ROW_OFFSET)
}

/// What a row of `preload-extents` says.
///
/// # Errors
/// `Corrupt` for what no writer writes.
pub fn content<'a>(id: FileId, key: &[u8], value: &'a [u8]) -> Result<Content<'a>> {
    let found =
        key.strip_prefix(&id_key(id)).and_then(|offset| offset.try_into().ok()).map(u64::from_be_bytes);
    let offset = found
        .ok_or_else(|| corrupt(EXTENTS, key, "the file's id and 8 bytes", format!("{} bytes", key.len())))?;
    if offset == SIZE_ROW_OFFSET {
        let size = value.try_into().ok().map(u64::from_le_bytes).filter(|size| *size <= FILE_BYTES_MAX);
        return size
            .map(Content::Size)
            .ok_or_else(|| corrupt(EXTENTS, key, "a size in 8 bytes", format!("{} bytes", value.len())));
    }
    let end = offset.checked_add(value.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
    match end {
        Some(end) if end > offset && offset / BLOCK_BYTES == (end - 1) / BLOCK_BYTES => {
            Ok(Content::Extent { offset, bytes: value })
        }
        _ => Err(corrupt(
            EXTENTS,
            key,
            "1 to 16384 bytes within one block",
            format!("{} bytes at {offset}", value.len()),
        )),
    }
}

fn corrupt(keyspace: &str, key: &[u8], expected: &str, found: String) -> Error {
    let error = Error::new(
        ErrorKind::Corrupt,
        format!("a row of keyspace {keyspace} is not what this library writes"),
    );
    error.object(key.escape_ascii().to_string()).expected(expected).found(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_others_are_refused() {
        let id = FileId(7);
        assert_eq!(name_id(b"/a", &name_value(id)).unwrap(), id);
        assert_eq!(name_id(b"/a", &[2; 9]).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(name_id(b"/a", &name_value(id)[..8]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(key_id(&id_key(id)).unwrap(), id);
        assert_eq!(key_id(b"short").unwrap_err().kind(), ErrorKind::Corrupt);
        let last = BLOCK_BYTES - 1;
        assert_eq!(
            content(id, &extent_key(id, last), b"x").unwrap(),
            Content::Extent { offset: last, bytes: b"x" }
        );
        assert_eq!(content(id, &size_key(id), &9_u64.to_le_bytes()).unwrap(), Content::Size(9));
        for (key, value) in [
            (extent_key(id, last), &b"xy"[..]),
            (extent_key(id, 0), b""),
            (extent_key(FileId(8), 0), b"x"),
            (extent_key(id, FILE_BYTES_MAX), b"x"),
            (size_key(id), &u64::MAX.to_le_bytes()),
        ] {
            assert_eq!(content(id, &key, value).unwrap_err().kind(), ErrorKind::Corrupt, "{key:?}");
        }
    }
}
