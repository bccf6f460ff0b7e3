//! The input of the demo: a real directory tree, walked again and again.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 48;

/// What the index says of a file. Little-endian on disk, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The writer that wrote the record.
    pub writer: u32,
    /// Permissions and type of the file.
    pub mode: u32,
    /// The writer's own count of its writes.
    pub sequence: u64,
    /// Length in bytes.
    pub size: u64,
    /// Last change of content, in nanoseconds since the Unix epoch.
    pub modified_nanos: i64,
    /// Last change of content or metadata, in nanoseconds since the Unix epoch.
    pub changed_nanos: i64,
    /// XXH3 of the content.
    pub checksum: u64,
}

impl Record {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.extend(self.writer.to_le_bytes());
        bytes.extend(self.mode.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(self.modified_nanos.to_le_bytes());
        bytes.extend(self.changed_nanos.to_le_bytes());
        bytes.extend(self.checksum.to_le_bytes());
        bytes
    }

    /// Reads a record; `None` when the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let half = |at: usize| {
            let mut half = [0; 4];
            half.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(half)
        };
        Some(Record {
            writer: half(0),
            mode: half(4),
            sequence: word(8),
            size: word(16),
            modified_nanos: word(24).cast_signed(),
            changed_nanos: word(32).cast_signed(),
            checksum: word(40),
        })
    }
}

/// The part of /usr that is indexed when no other source is named.
pub fn default_source() -> PathBuf {
    ["/usr/share", "/usr/lib", "/usr"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_dir())
        .unwrap_or_else(|| PathBuf::from("/"))
}

/// Whether the files of a directory are those of no disk: `/proc` and `/sys`, where reading one may
/// wait for ever.
pub fn is_made_up(folder: &Path) -> bool {
    const MAGICS: [u32; 4] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163];
    let magic = rustix::fs::statfs(folder).ok().and_then(|found| u32::try_from(found.f_type).ok());
    magic.is_some_and(|magic| MAGICS.contains(&magic))
}

/// Calls `found` with every regular file below `folder`, sorted in each folder, until it says to
/// stop; links are not followed, nor mounts below. Returns whether the walk came to its end, and
/// how many folders could not be read.
pub fn walk(folder: &Path, found: &mut impl FnMut(PathBuf) -> bool) -> (bool, u64) {
    let mut unreadable = 0;
    let mut waiting = vec![folder.to_path_buf()];
    let device = |folder: &Path| fs::metadata(folder).map(|metadata| metadata.dev()).ok();
    let of_root = device(folder);
    while let Some(folder) = waiting.pop() {
        // A mount below is another tree, and may be one that the kernel makes up.
        if device(&folder).is_some_and(|device| Some(device) != of_root) {
            continue;
        }
        let Ok(entries) = fs::read_dir(&folder) else {
            unreadable += 1;
            continue;
        };
        let mut entries: Vec<_> = entries
            .filter_map(|entry| entry.ok().and_then(|entry| Some((entry.path(), entry.file_type().ok()?))))
            .collect();
        entries.sort_by(|left, right| left.0.cmp(&right.0));
        for (path, kind) in entries {
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() && !found(path) {
                return (false, unreadable);
            }
        }
    }
    (true, unreadable)
}

/// Looks at a file. Its content is read only when `known` says nothing about this size and time;
/// `go_on` is asked between pieces.
pub fn look(
    path: &Path,
    known: Option<Record>,
    buffer: &mut [u8],
    go_on: &impl Fn() -> bool,
) -> io::Result<Record> {
    let metadata = fs::symlink_metadata(path)?;
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    let mut record = Record {
        writer: 0,
        mode: metadata.mode(),
        sequence: 0,
        size: metadata.size(),
        modified_nanos: nanos(metadata.mtime(), metadata.mtime_nsec()),
        changed_nanos: nanos(metadata.ctime(), metadata.ctime_nsec()),
        checksum: 0,
    };
    record.checksum = match known {
        Some(known) if known.size == record.size && known.changed_nanos == record.changed_nanos => {
            known.checksum
        }
        _ => checksum(path, buffer, go_on)?,
    };
    Ok(record)
}

fn checksum(path: &Path, buffer: &mut [u8], go_on: &impl Fn() -> bool) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut hash = Xxh3::new();
    loop {
        let count = file.read(buffer)?;
        if count == 0 {
            return Ok(hash.digest());
        }
        if !go_on() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        hash.update(&buffer[..count]);
    }
}

/// A path as a key.
pub fn key(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests;
