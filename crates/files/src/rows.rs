//! The rows in which names and files are kept, and the entries of lanes.
//!
//! | keyspace | key | value |
//! |---|---|---|
//! | `files-names` | a path: absolute, normal, 1 to 4095 bytes | 1 byte: version, 1; 8 bytes: the file's number, 0 for a directory |
//! | `files-inodes` | 8 bytes: a file's number, big-endian | as below |
//!
//! A file:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | kind: 0 record, 1 log, 2 manifest, 3 object |
//! | 8 | when it was changed last, in milliseconds since 1970 |
//! | 16 | the tag of its entries in the lane: epoch, number; zeros where it has none |
//! | 4 | so many parts follow |
//! | 24 each | an object: epoch, random number, and the bytes of it that count |
//! | the rest | of a record without parts: its content |
//!
//! An entry of a lane:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | 1 bytes are appended; 2 the file is cut |
//! | 16 | the tag: epoch, number |
//! | 8 | where in the file: of an append its length before, of a cut its length after |
//! | the rest | of an append: the bytes |
//!
//! Numbers are little-endian. A tag is never used again: that of an epoch is counted within it.

use tombolo::{ApplicationObject, Error, ErrorKind, Result};

use crate::kind::FileKind;

/// Keyspace of the paths.
pub(crate) const NAMES: &str = "files-names";
/// Keyspace of the files.
pub(crate) const INODES: &str = "files-inodes";

const VERSION: u8 = 1;
const INODE_HEAD_BYTES: usize = 30;
const PART_BYTES: usize = 24;
const ENTRY_HEAD_BYTES: usize = 25;
/// Most parts of a file: each sync of a growing object makes one.
pub(crate) const PARTS_MAX: usize = 1 << 16;
/// Most bytes that a file may have.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Tells a file's entries in a lane from others'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
}

/// An object, and how much of it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) object: ApplicationObject,
    pub(crate) bytes: u64,
}

/// What the row of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) kind: FileKind,
    pub(crate) modified_ms: u64,
    pub(crate) tag: Tag,
    pub(crate) parts: Vec<Part>,
    pub(crate) record: Vec<u8>,
}

/// What an entry of a lane says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Append { tag: Tag, at: u64, bytes: &'a [u8] },
    Cut { tag: Tag, at: u64 },
}

fn corrupt(keyspace: &str, key: &[u8], expected: &str, found: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("a row of keyspace {keyspace} is not what this library writes"))
        .object(key.escape_ascii())
        .expected(expected)
        .found(found)
}

fn newer(what: &str, version: u8) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what} of version {version}"))
        .advice("use a newer version of Tombolo for these files")
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The value of a path's row: a file's number, or none for a directory.
pub(crate) fn name_value(number: Option<u64>) -> [u8; 9] {
    let mut value = [VERSION; 9];
    value[1..].copy_from_slice(&number.unwrap_or(0).to_le_bytes());
    value
}

/// # Errors
/// `Corrupt`, `Unsupported`.
pub(crate) fn name(path: &[u8], value: &[u8]) -> Result<Option<u64>> {
    if path == b"/" || crate::path::normal(path).ok().as_deref() != Some(path) {
        return Err(corrupt(NAMES, path, "a normal path", "another"));
    }
    match value {
        [VERSION, number @ ..] if number.len() == 8 => {
            Ok(Some(u64_at(value, 1)).filter(|number| *number > 0))
        }
        [version, ..] if *version > VERSION => Err(newer("the name of a file", *version)),
        _ => Err(corrupt(NAMES, path, "version 1 and 8 bytes", format!("{} bytes", value.len()))),
    }
}

/// The key of a file's row.
pub(crate) fn inode_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// # Errors
/// `Corrupt`.
pub(crate) fn inode_number(key: &[u8]) -> Result<u64> {
    key.try_into().map(u64::from_be_bytes).ok().filter(|number| (1..u64::MAX).contains(number)).ok_or_else(
        || {
            corrupt(
                INODES,
                key,
                "a number of 8 bytes, neither the least nor the largest",
                format!("{} bytes", key.len()),
            )
        },
    )
}

impl Inode {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row =
            Vec::with_capacity(INODE_HEAD_BYTES + self.parts.len() * PART_BYTES + self.record.len());
        row.push(VERSION);
        row.push(u8::try_from(self.kind.index()).unwrap_or(u8::MAX));
        row.extend_from_slice(&self.modified_ms.to_le_bytes());
        row.extend_from_slice(&self.tag.epoch.to_le_bytes());
        row.extend_from_slice(&self.tag.number.to_le_bytes());
        row.extend_from_slice(&u32::try_from(self.parts.len()).unwrap_or(u32::MAX).to_le_bytes());
        for part in &self.parts {
            let (epoch, random) = part.object.to_parts();
            row.extend_from_slice(&epoch.to_le_bytes());
            row.extend_from_slice(&random.to_le_bytes());
            row.extend_from_slice(&part.bytes.to_le_bytes());
        }
        row.extend_from_slice(&self.record);
        row
    }

    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub(crate) fn decode(key: &[u8], row: &[u8]) -> Result<Inode> {
        let wrong = |expected: &str| corrupt(INODES, key, expected, format!("{} bytes", row.len()));
        match row.first() {
            Some(&VERSION) => {}
            Some(version) if *version > VERSION => return Err(newer("a file", *version)),
            _ => return Err(wrong("version 1")),
        }
        if row.len() < INODE_HEAD_BYTES {
            return Err(wrong("30 bytes at least"));
        }
        let kind = FileKind::of_index(row[1])
            .ok_or_else(|| corrupt(INODES, key, "a kind of file, 0 to 3", row[1]))?;
        let count = u32::from_le_bytes([row[26], row[27], row[28], row[29]]) as usize;
        let (parts, record) = row[INODE_HEAD_BYTES..]
            .split_at_checked(count.saturating_mul(PART_BYTES))
            .filter(|_| count <= PARTS_MAX)
            .ok_or_else(|| wrong("its parts"))?;
        let is_record = kind == FileKind::Record && count == 0;
        if !is_record && !record.is_empty() {
            return Err(wrong("nothing behind its parts"));
        }
        let part = |part: &[u8]| Part {
            object: ApplicationObject::from_parts(u64_at(part, 0), u64_at(part, 8)),
            bytes: u64_at(part, 16),
        };
        let inode = Inode {
            kind,
            modified_ms: u64_at(row, 2),
            tag: Tag { epoch: u64_at(row, 10), number: u64_at(row, 18) },
            parts: parts.chunks_exact(PART_BYTES).map(part).collect(),
            record: record.to_vec(),
        };
        let bytes = inode.parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.bytes));
        if bytes.is_none_or(|bytes| bytes > FILE_BYTES_MAX) {
            return Err(corrupt(INODES, key, "parts of at most 2^63 bytes together", "more"));
        }
        if (inode.tag == Tag::default()) != kind.lane().is_none() {
            return Err(corrupt(INODES, key, "a tag of a file in a lane, and of no other", "another"));
        }
        Ok(inode)
    }
}

impl Entry<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, tag, at, bytes) = match self {
            Entry::Append { tag, at, bytes } => (1, tag, at, *bytes),
            Entry::Cut { tag, at } => (2, tag, at, &[][..]),
        };
        let mut entry = Vec::with_capacity(ENTRY_HEAD_BYTES + bytes.len());
        entry.push(kind);
        entry.extend_from_slice(&tag.epoch.to_le_bytes());
        entry.extend_from_slice(&tag.number.to_le_bytes());
        entry.extend_from_slice(&at.to_le_bytes());
        entry.extend_from_slice(bytes);
        entry
    }

    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub(crate) fn decode(entry: &[u8]) -> Result<Entry<'_>> {
        let wrong = |expected: &str| {
            Error::new(ErrorKind::Corrupt, "an entry of a lane is not what this library writes")
                .expected(expected)
                .found(format!("{} bytes", entry.len()))
        };
        if entry.len() < ENTRY_HEAD_BYTES {
            return Err(wrong("25 bytes at least"));
        }
        let tag = Tag { epoch: u64_at(entry, 1), number: u64_at(entry, 9) };
        let (at, bytes) = (u64_at(entry, 17), &entry[ENTRY_HEAD_BYTES..]);
        match entry[0] {
            1 if at.checked_add(bytes.len() as u64).is_some_and(|end| end <= FILE_BYTES_MAX) => {
                Ok(Entry::Append { tag, at, bytes })
            }
            2 if bytes.is_empty() => Ok(Entry::Cut { tag, at }),
            1 | 2 => Err(wrong("bytes within a file")),
            kind => Err(newer("an entry of a lane", kind)),
        }
    }

    pub(crate) fn tag(&self) -> Tag {
        match self {
            Entry::Append { tag, .. } | Entry::Cut { tag, .. } => *tag,
        }
    }
}
