//! Traces: what was asked of a database, event by event, in frames that are checked one by one.
//!
//! A trace file is a row of frames. A [`Header`] comes first, blocks of events follow, with names
//! of keyspaces among them. An index by time and an [`End`] close a file that was ended properly.
//!
//! | offset | bytes | field of a frame |
//! |---|---|---|
//! | 0 | 4 | magic `TbTr` |
//! | 4 | 1 | kind: 1 header, 2 name of a keyspace, 3 events, 4 index, 5 end |
//! | 5 | 1 | version of the format: 1 |
//! | 6 | 2 | zero |
//! | 8 | 4 | bytes of the payload |
//! | 12 | 4 | events in it |
//! | 16 | 8 | time of its first event, in nanoseconds since the start of the trace |
//! | 24 | 8 | time of its newest event |
//! | 32 | 4 | CRC-32C of the payload |
//! | 36 | 4 | CRC-32C of bytes 0 to 36 |
//! | 40 | | payload |
//!
//! | offset | bytes | field of a header |
//! |---|---|---|
//! | 0 | 8 | start of the trace, in nanoseconds since the Unix epoch |
//! | 8 | 4 | of how many keys one is in the trace, by their hash: 1 is all |
//! | 12 | 1 | keys: 0 clear, 1 hashed, 2 anonymised in their order |
//! | 13 | 1 | 1 when values are in the trace, 0 when only their sizes are |
//! | 14 | 1 | events: 0 operations, 1 accesses of blocks |
//! | 15 | 1 | zero |
//! | 16 | 4 + n | where it comes from, as text |
//!
//! | offset | bytes | field of a name |
//! |---|---|---|
//! | 0 | 4 | number of the keyspace |
//! | 4 | 4 + n | its name |
//!
//! | offset | bytes | field of an index, for each block |
//! |---|---|---|
//! | 0 | 8 | byte of its frame in the file |
//! | 8 | 8 | time of its first event |
//! | 16 | 8 | time of its newest event |
//! | 24 | 4 | events |
//!
//! | offset | bytes | field of an end |
//! |---|---|---|
//! | 0 | 8 | byte of the index in the file |
//! | 8 | 8 | events in the file |
//! | 16 | 8 | events that were not recorded, since there was no room |
//!
//! A damaged frame is told by its checksums. The frames behind it are found by their magic, and a
//! reader that is asked to goes on there.

mod block;
mod mapping;
#[cfg(test)]
mod tests;

pub use block::{BlockBuilder, EventBlock};
pub use mapping::{HASHED_KEY_BYTES, KeyMapping};

use crate::checksum::crc32c;
use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result, check_version};

/// How each frame begins.
pub const TRACE_MAGIC: [u8; 4] = *b"TbTr";
/// Bytes of a frame before its payload.
pub const TRACE_FRAME_BYTES: usize = 40;
/// Bytes of the frame that ends a file.
pub const TRACE_END_BYTES: usize = TRACE_FRAME_BYTES + 24;
/// Most bytes of a payload.
pub const TRACE_PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Most events of a block.
pub const TRACE_BLOCK_EVENTS_MAX: usize = 1 << 16;
/// Most bytes of text in a trace: origins and names.
const TEXT_BYTES_MAX: usize = 4096;
const INDEX_ENTRY_BYTES: usize = 28;
const VERSION: u8 = 1;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Asked {
    /// The value of a key.
    Get = 1,
    /// The value of a key, as one of several.
    MultiGet = 2,
    /// A put.
    Put = 3,
    /// A delete.
    Delete = 4,
    /// A delete of a key that was put once.
    SingleDelete = 5,
    /// A merge.
    Merge = 6,
    /// A delete of all keys from `key` to `end`.
    RangeDelete = 7,
    /// A walk upwards from `key`.
    Scan = 8,
    /// A walk downwards from `key`.
    ScanBack = 9,
    /// An access of a block. Its key is the block's name.
    Block = 10,
}

impl Asked {
    /// All of them.
    pub const ALL: [Asked; 10] = [
        Asked::Get,
        Asked::MultiGet,
        Asked::Put,
        Asked::Delete,
        Asked::SingleDelete,
        Asked::Merge,
        Asked::RangeDelete,
        Asked::Scan,
        Asked::ScanBack,
        Asked::Block,
    ];

    /// The operation of a byte, if this version knows it.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Asked> {
        Asked::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Asked::Get => "get",
            Asked::MultiGet => "multi_get",
            Asked::Put => "put",
            Asked::Delete => "delete",
            Asked::SingleDelete => "single_delete",
            Asked::Merge => "merge",
            Asked::RangeDelete => "range_delete",
            Asked::Scan => "scan",
            Asked::ScanBack => "scan_back",
            Asked::Block => "block",
        }
    }

    /// The operation of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Asked> {
        Asked::ALL.into_iter().find(|asked| asked.name() == name)
    }

    /// Whether it changes the database.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(self, Asked::Put | Asked::Delete | Asked::SingleDelete | Asked::Merge | Asked::RangeDelete)
    }

    /// Whether it walks over entries.
    #[must_use]
    pub fn is_scan(self) -> bool {
        matches!(self, Asked::Scan | Asked::ScanBack)
    }
}

/// Whether something was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Found {
    /// Nobody said.
    #[default]
    Unknown = 0,
    /// It was there: a value, or a block in the cache.
    Yes = 1,
    /// It was not.
    No = 2,
}

impl From<bool> for Found {
    fn from(found: bool) -> Found {
        if found { Found::Yes } else { Found::No }
    }
}

/// How keys stand in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TracedKeys {
    /// As they are.
    #[default]
    Clear = 0,
    /// As hashes: neither order nor prefixes stay.
    Hashed = 1,
    /// Replaced, such that order and common prefixes stay.
    Anonymised = 2,
}

impl TracedKeys {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TracedKeys::Clear => "clear",
            TracedKeys::Hashed => "hashed",
            TracedKeys::Anonymised => "anonymised",
        }
    }
}

/// What happened, once. Fields that an operation does not have are zero or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// When it began, in nanoseconds since the start of the trace. Clocks may go back.
    pub time_ns: u64,
    /// What was asked.
    pub asked: Asked,
    /// Number of the keyspace.
    pub keyspace: u32,
    /// Number of the thread that asked.
    pub thread: u32,
    /// The key; where a walk begins, or a range.
    pub key: &'a [u8],
    /// The end of a range, exclusive.
    pub end: &'a [u8],
    /// Bytes of the value that was written or read; of a block, its bytes.
    pub value_bytes: u32,
    /// The value itself, where the trace has values.
    pub value: &'a [u8],
    /// Entries that a walk gave.
    pub entries: u32,
    /// Whether the key had a value.
    pub found: Found,
    /// Whether the event before it belongs to the same batch, or multi-get.
    pub joined: bool,
    /// Blocks that were read for it. Of a recording: those of gets, with those of a multi-get at
    /// its first event; of what several reads share, at the one that read it. Walks do not say.
    pub blocks_read: u32,
    /// Blocks that the cache had for it, likewise; one counts again where it is asked for again
    /// when others have come.
    pub blocks_hit: u32,
    /// How long it took, in nanoseconds.
    pub latency_ns: u64,
    /// For how long a value lives, in milliseconds; 0 is for ever.
    pub ttl_ms: u64,
}

impl<'a> Event<'a> {
    /// An event of which no more is known.
    #[must_use]
    pub fn new(time_ns: u64, asked: Asked, keyspace: u32, key: &'a [u8]) -> Event<'a> {
        Event {
            time_ns,
            asked,
            keyspace,
            thread: 0,
            key,
            end: &[],
            value_bytes: 0,
            value: &[],
            entries: 0,
            found: Found::Unknown,
            joined: false,
            blocks_read: 0,
            blocks_hit: 0,
            latency_ns: 0,
            ttl_ms: 0,
        }
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// What the trace is.
    Header = 1,
    /// The name of a keyspace.
    Name = 2,
    /// Events.
    Events = 3,
    /// Where blocks lie, and of which time they are.
    Index = 4,
    /// The end of a file that was ended properly.
    End = 5,
}

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFrame {
    /// What its payload is.
    pub kind: FrameKind,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// Events in it.
    pub events: u32,
    /// Time of its first event.
    pub first_ns: u64,
    /// Time of its newest event.
    pub last_ns: u64,
    /// CRC-32C of the payload.
    payload_crc: u32,
}

impl TraceFrame {
    /// Reads the beginning of a frame.
    ///
    /// # Errors
    /// `Damaged`; `Newer` for a version or kind that this version does not know.
    pub fn decode(bytes: &[u8]) -> Result<TraceFrame> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 4] = reader.array()?;
        if magic != TRACE_MAGIC {
            return Err(FormatError::damaged(0, "a frame of a trace (TbTr)", format!("{magic:02x?}")));
        }
        let (kind, version, zero) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let (payload_bytes, events) = (reader.u32()?, reader.u32()?);
        let (first_ns, last_ns) = (reader.u64()?, reader.u64()?);
        let payload_crc = reader.u32()?;
        let at = reader.position();
        let (crc, computed) = (reader.u32()?, crc32c(&bytes[..at]));
        if crc != computed {
            return Err(FormatError::checksum(at, crc, computed));
        }
        check_version(5, u32::from(version), u32::from(VERSION))?;
        if zero != 0 {
            return Err(FormatError::newer(6, format!("bits {zero:#x} of a frame")));
        }
        let kind = match kind {
            1 => FrameKind::Header,
            2 => FrameKind::Name,
            3 => FrameKind::Events,
            4 => FrameKind::Index,
            5 => FrameKind::End,
            other => return Err(FormatError::newer(4, format!("a frame of kind {other}"))),
        };
        if payload_bytes as usize > TRACE_PAYLOAD_BYTES_MAX {
            let expected = format!("a payload of at most {TRACE_PAYLOAD_BYTES_MAX} bytes");
            return Err(FormatError::damaged(8, expected, payload_bytes.to_string()));
        }
        Ok(TraceFrame { kind, payload_bytes, events, first_ns, last_ns, payload_crc })
    }

    /// Checks the payload that follows.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn check(&self, payload: &[u8]) -> Result<()> {
        let computed = crc32c(payload);
        if computed != self.payload_crc {
            return Err(FormatError::checksum(32, self.payload_crc, computed));
        }
        Ok(())
    }
}

/// A whole frame.
fn frame(kind: FrameKind, payload: &[u8], events: u32, first_ns: u64, last_ns: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(TRACE_FRAME_BYTES + payload.len());
    out.extend_from_slice(&TRACE_MAGIC);
    out.extend_from_slice(&[kind as u8, VERSION, 0, 0]);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&events.to_le_bytes());
    out.extend_from_slice(&first_ns.to_le_bytes());
    out.extend_from_slice(&last_ns.to_le_bytes());
    out.extend_from_slice(&crc32c(payload).to_le_bytes());
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(payload);
    out
}

/// What a trace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Start of the trace, in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Of how many keys one is in the trace: 1 is all. At least 1.
    pub sampled_one_in: u32,
    /// How keys stand in it.
    pub keys: TracedKeys,
    /// Whether values are in it, and not only their sizes.
    pub has_values: bool,
    /// Whether its events are accesses of blocks.
    pub is_of_blocks: bool,
    /// Where it comes from.
    pub origin: String,
}

impl Header {
    /// The frame that begins a file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.extend_from_slice(&self.start_unix_ns.to_le_bytes());
        payload.extend_from_slice(&self.sampled_one_in.to_le_bytes());
        let flags = [self.keys as u8, u8::from(self.has_values), u8::from(self.is_of_blocks), 0];
        payload.extend_from_slice(&flags);
        put_prefixed(&mut payload, cut(&self.origin).as_bytes());
        frame(FrameKind::Header, &payload, 0, 0, 0)
    }

    /// Reads the payload of a header.
    ///
    /// # Errors
    /// `Damaged`, `Newer`.
    pub fn decode(payload: &[u8]) -> Result<Header> {
        let mut reader = Reader::new(payload);
        let (start_unix_ns, sampled_one_in) = (reader.u64()?, reader.u32()?);
        let [keys, values, blocks, zero] = reader.array()?;
        let keys = match keys {
            0 => TracedKeys::Clear,
            1 => TracedKeys::Hashed,
            2 => TracedKeys::Anonymised,
            other => return Err(FormatError::newer(12, format!("keys of kind {other}"))),
        };
        if values > 1 || blocks > 1 || zero != 0 {
            return Err(FormatError::newer(13, "a property of a trace"));
        }
        if sampled_one_in == 0 {
            return Err(FormatError::damaged(8, "a sampling of 1 or more", "0"));
        }
        let origin = reader.text(TEXT_BYTES_MAX)?.to_owned();
        reader.end()?;
        let (has_values, is_of_blocks) = (values == 1, blocks == 1);
        Ok(Header { start_unix_ns, sampled_one_in, keys, has_values, is_of_blocks, origin })
    }
}

/// The longest beginning of `text` that a trace holds.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The frame that names a keyspace.
#[must_use]
pub fn encode_name(keyspace: u32, name: &str) -> Vec<u8> {
    let mut payload = keyspace.to_le_bytes().to_vec();
    put_prefixed(&mut payload, cut(name).as_bytes());
    frame(FrameKind::Name, &payload, 0, 0, 0)
}

/// Reads the payload of a name: number and name of a keyspace.
///
/// # Errors
/// `Damaged`.
pub fn decode_name(payload: &[u8]) -> Result<(u32, String)> {
    let mut reader = Reader::new(payload);
    let keyspace = reader.u32()?;
    let name = reader.text(TEXT_BYTES_MAX)?.to_owned();
    reader.end()?;
    Ok((keyspace, name))
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Byte of its frame in the file.
    pub offset: u64,
    /// Time of its first event.
    pub first_ns: u64,
    /// Time of its newest event.
    pub last_ns: u64,
    /// Events.
    pub events: u32,
}

/// Most entries of one index frame; a longer index is several frames in a row.
pub const TRACE_INDEX_ENTRIES_MAX: usize = 1 << 20;

/// The frame of an index.
///
/// # Panics
/// For more entries than a frame holds: a bug of the caller.
#[must_use]
pub fn encode_index(entries: &[IndexEntry]) -> Vec<u8> {
    assert!(entries.len() <= TRACE_INDEX_ENTRIES_MAX, "an index of {} entries", entries.len());
    let mut payload = Vec::with_capacity(entries.len() * INDEX_ENTRY_BYTES);
    for entry in entries {
        payload.extend_from_slice(&entry.offset.to_le_bytes());
        payload.extend_from_slice(&entry.first_ns.to_le_bytes());
        payload.extend_from_slice(&entry.last_ns.to_le_bytes());
        payload.extend_from_slice(&entry.events.to_le_bytes());
    }
    let first = entries.first().map_or(0, |entry| entry.first_ns);
    let last = entries.iter().map(|entry| entry.last_ns).max().unwrap_or(0);
    frame(FrameKind::Index, &payload, 0, first, last)
}

/// Reads the payload of an index.
///
/// # Errors
/// `Damaged`.
pub fn decode_index(payload: &[u8]) -> Result<Vec<IndexEntry>> {
    let mut reader = Reader::new(payload);
    let mut entries = Vec::with_capacity(payload.len() / INDEX_ENTRY_BYTES);
    while reader.remaining() > 0 {
        let (offset, first_ns, last_ns) = (reader.u64()?, reader.u64()?, reader.u64()?);
        entries.push(IndexEntry { offset, first_ns, last_ns, events: reader.u32()? });
    }
    Ok(entries)
}

/// How a file ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Byte of the index in the file.
    pub index_offset: u64,
    /// Events in the file.
    pub events: u64,
    /// Events that were not recorded, since there was no room.
    pub dropped: u64,
}

impl End {
    /// The frame that ends a file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(24);
        for word in [self.index_offset, self.events, self.dropped] {
            payload.extend_from_slice(&word.to_le_bytes());
        }
        frame(FrameKind::End, &payload, 0, 0, 0)
    }

    /// Reads the payload of an end.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(payload: &[u8]) -> Result<End> {
        let mut reader = Reader::new(payload);
        let end = End { index_offset: reader.u64()?, events: reader.u64()?, dropped: reader.u64()? };
        reader.end()?;
        Ok(end)
    }
}
