//! The payload of a log entry: the operations of one commit group of one stream, encoded once, by
//! the thread that writes them.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version (1) |
//! | 1 | 1 | flags (0): others are refused |
//! | 2 | 2 | reserved (0): others are refused |
//! | 4 | 4 | number of operations |
//! | 8 | | operations |
//!
//! **Operation:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind: an [`EntryKind`], or 64 create keyspace, 65 drop keyspace, 68 ingest, 69 exchange, 70 cut; 66 prepare, 67 decide reserved |
//! | 1 | 1 | flags (0; room for expiry per write) |
//! | 2 | 2 | key bytes |
//! | 4 | 4 | keyspace |
//! | 8 | 4 | value bytes |
//! | 12 | | key, then value |
//!
//! **A single entry**, which is what most writes are, has a shorter payload:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version (2) |
//! | 1 | 1 | kind: an [`EntryKind`] |
//! | 2 | 2 | key bytes |
//! | 4 | 4 | keyspace |
//! | 8 | | key, then value, up to the payload's end |
//!
//! Each operation takes one sequence number: the entry's first plus the operation's index. The
//! lengths are of fixed width, so that decoding branches on nothing and a memtable copies key and
//! value in one piece. Creating a keyspace: the key is its name, the value {stream u32, options}.
//! Ingest: key and keyspace are empty, the value is the staged tables, {epoch u64, random u64,
//! keyspace u32} each, at most [`INGESTED_TABLES_MAX`]; all in them has the operation's number.
//! Exchange: all that the keyspace held before has ended. Both stand in entries without others.
//! Cut: key and keyspace are empty, the value is {stream u32, sequence u64} for each stream beside
//! the main one: what they had come to when the main one had come to the operation before, at one
//! moment. It changes nothing; who follows the logs of several streams shows them up to there.
//!
//! The log's frame has the checksum; a decoder here still trusts no length.
//!
//! A kind of entry, or of operation, that this version does not know is refused as `Newer`: its own
//! byte is its mark in a log. That a keyspace may hold such entries is said before the first of
//! them, in the keyspace's options.
//!
//! **Options of a keyspace:**
//!
//! | bytes | field |
//! |---|---|
//! | 8 | incompatible feature bits: of settings that change what bytes mean, and of kinds of entries |
//! | 4 | number of settings |
//! | | name and value of each, each with its length (u32) before it |
//!
//! A setting that this version does not know may be ignored, unless a feature bit says otherwise.

use crate::codec::Reader;
use crate::error::{FormatError, Result};
use crate::expiry::expiry_of;
use crate::key::{
    EntryKind, KEY_BYTES_MAX, SequenceNumber, VALUE_BYTES_MAX, check_entry, check_range, kind_name,
};
pub use crate::keyspace::{KEYSPACE_NAME_BYTES_MAX, KEYSPACE_OPTION_BYTES_MAX, KEYSPACE_OPTIONS_MAX};
use crate::keyspace::{KeyspaceOptions, put_options, read_options};
use crate::manifest::TableName;

/// The version of a payload of operations.
pub const BATCH_VERSION: u8 = 1;
/// The version of a payload of a single entry, and the newest read.
pub const SINGLE_VERSION: u8 = 2;
/// Bytes before the first operation.
pub const BATCH_HEADER_BYTES: usize = 8;
/// Bytes of an operation before its key.
pub const OPERATION_HEADER_BYTES: usize = 12;
/// Bytes of the payload of a single entry before its key.
pub const SINGLE_HEAD_BYTES: usize = 8;
/// Most operations of one payload.
pub const OPERATIONS_MAX: u32 = 1 << 24;

const CREATE_KEYSPACE: u8 = 64;
const DROP_KEYSPACE: u8 = 65;
const PREPARE: u8 = 66;
const DECIDE: u8 = 67;
const INGEST: u8 = 68;
const EXCHANGE: u8 = 69;
const CUT: u8 = 70;

/// Most tables that one operation makes part of the database.
pub const INGESTED_TABLES_MAX: usize = 1 << 16;
/// Most streams that a cut goes through beside the main one.
pub const CUT_STREAMS_MAX: usize = 255;
/// Bytes of a stream's number and how far it had come.
const CUT_STREAM_BYTES: usize = 12;
/// Bytes of a table's name and its keyspace.
const INGESTED_TABLE_BYTES: usize = 20;

/// One operation, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// An entry of a keyspace.
    Entry {
        /// What it does.
        kind: EntryKind,
        /// In which keyspace.
        keyspace: u32,
        /// The user's key.
        key: &'a [u8],
        /// The value; empty for deletes; of range deletes, the key at which they end.
        value: &'a [u8],
    },
    /// A keyspace exists from here on.
    CreateKeyspace {
        /// Its number.
        keyspace: u32,
        /// Its name.
        name: &'a str,
        /// The stream that orders its writes.
        stream: u32,
        /// Its options.
        options: KeyspaceOptions,
    },
    /// A keyspace ends here.
    DropKeyspace {
        /// Its number.
        keyspace: u32,
    },
    /// Staged tables are part of the database from here on.
    Ingest {
        /// Which, each with its keyspace.
        tables: Vec<(TableName, u32)>,
    },
    /// What a keyspace held ends here.
    Exchange {
        /// Its number.
        keyspace: u32,
    },
    /// One moment of all streams; changes nothing.
    Cut {
        /// What the streams beside the main one had come to, when that had come to here.
        reached: Vec<(u32, SequenceNumber)>,
    },
}

/// Encodes operations, one after another, into one buffer.
///
/// ```
/// use tombolo_format::batch::{BatchBuilder, Operation, Operations};
/// use tombolo_format::key::EntryKind;
///
/// let mut batch = BatchBuilder::new();
/// batch.push(EntryKind::Put, 1, b"key", b"value")?;
/// let payload = batch.finish();
/// let operation = Operations::new(&payload)?.next().unwrap()?;
/// assert_eq!(operation, Operation::Entry { kind: EntryKind::Put, keyspace: 1, key: b"key", value: b"value" });
/// # Ok::<(), tombolo_format::FormatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    /// Invariant: a payload, complete after every call.
    bytes: Vec<u8>,
    count: u32,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new() -> BatchBuilder {
        BatchBuilder::with_capacity(BATCH_HEADER_BYTES)
    }

    /// An empty batch with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> BatchBuilder {
        let mut buffer = Vec::with_capacity(bytes.max(BATCH_HEADER_BYTES));
        buffer.extend_from_slice(&batch_header(0));
        BatchBuilder { bytes: buffer, count: 0 }
    }

    /// Number of operations.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the payload so far.
    pub fn payload_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `Limit` when key, value or count is beyond its limit, or a range holds no key; the batch is
    /// unchanged.
    #[inline]
    pub fn push(&mut self, kind: EntryKind, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        check_entry(kind, key, value)?;
        self.push_raw(kind as u8, keyspace, key, value)
    }

    /// Adds the creation of a keyspace.
    ///
    /// # Errors
    /// `Limit` when its name or options are beyond their limits; the batch is unchanged.
    pub fn push_create_keyspace(
        &mut self,
        keyspace: u32,
        name: &str,
        stream: u32,
        options: &KeyspaceOptions,
    ) -> Result<()> {
        if name.len() > KEYSPACE_NAME_BYTES_MAX {
            return Err(FormatError::limit(format!(
                "a keyspace name of {} bytes; at most {KEYSPACE_NAME_BYTES_MAX}",
                name.len()
            )));
        }
        let mut value = stream.to_le_bytes().to_vec();
        put_options(&mut value, options)?;
        self.push_raw(CREATE_KEYSPACE, keyspace, name.as_bytes(), &value)
    }

    /// Adds the end of a keyspace.
    ///
    /// # Errors
    /// `Limit` when there are too many operations.
    pub fn push_drop_keyspace(&mut self, keyspace: u32) -> Result<()> {
        self.push_raw(DROP_KEYSPACE, keyspace, &[], &[])
    }

    /// Adds that staged tables are part of the database.
    ///
    /// # Errors
    /// `Limit` when there are too many; the batch is unchanged.
    pub fn push_ingest(&mut self, tables: &[(TableName, u32)]) -> Result<()> {
        if tables.len() > INGESTED_TABLES_MAX {
            return Err(FormatError::limit(format!(
                "{} tables in one operation; at most {INGESTED_TABLES_MAX}",
                tables.len()
            )));
        }
        let mut value = Vec::with_capacity(tables.len() * INGESTED_TABLE_BYTES);
        for (table, keyspace) in tables {
            value.extend_from_slice(&table.epoch.to_le_bytes());
            value.extend_from_slice(&table.random.to_le_bytes());
            value.extend_from_slice(&keyspace.to_le_bytes());
        }
        self.push_raw(INGEST, 0, &[], &value)
    }

    /// Adds that all that a keyspace held has ended.
    ///
    /// # Errors
    /// `Limit` when there are too many operations.
    pub fn push_exchange(&mut self, keyspace: u32) -> Result<()> {
        self.push_raw(EXCHANGE, keyspace, &[], &[])
    }

    /// Adds what the streams beside the main one have come to.
    ///
    /// # Errors
    /// `Limit` when there are too many; the batch is unchanged.
    pub fn push_cut(&mut self, reached: &[(u32, SequenceNumber)]) -> Result<()> {
        if reached.len() > CUT_STREAMS_MAX {
            let what = format!("a cut through {} streams; at most {CUT_STREAMS_MAX}", reached.len());
            return Err(FormatError::limit(what));
        }
        let mut value = Vec::with_capacity(reached.len() * CUT_STREAM_BYTES);
        for (stream, sequence) in reached {
            value.extend_from_slice(&stream.to_le_bytes());
            value.extend_from_slice(&sequence.0.to_le_bytes());
        }
        self.push_raw(CUT, 0, &[], &value)
    }

    /// Adds all operations of another batch.
    ///
    /// # Errors
    /// `Limit` when there are too many operations; the batch is unchanged.
    pub fn append(&mut self, other: &BatchBuilder) -> Result<()> {
        let count = checked_count(self.count, other.count)?;
        self.bytes.extend_from_slice(&other.bytes[BATCH_HEADER_BYTES..]);
        self.set_count(count);
        Ok(())
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(BATCH_HEADER_BYTES);
        self.set_count(0);
    }

    /// The payload.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// The payload of all entries added so far.
    pub fn payload(&self) -> &[u8] {
        &self.bytes
    }

    /// Walks the operations added so far.
    pub fn operations(&self) -> Operations<'_> {
        let reader = Reader::new(&self.bytes[BATCH_HEADER_BYTES..]);
        Operations { reader, remaining: self.count, is_single: false, failed: false }
    }

    #[inline]
    fn push_raw(&mut self, kind: u8, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        let count = checked_count(self.count, 1)?;
        let header = operation_header(kind, keyspace, key, value);
        self.bytes.reserve(OPERATION_HEADER_BYTES + key.len() + value.len());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.set_count(count);
        Ok(())
    }

    #[inline]
    fn set_count(&mut self, count: u32) {
        self.count = count;
        self.bytes[4..8].copy_from_slice(&count.to_le_bytes());
    }
}

#[inline]
fn operation_header(kind: u8, keyspace: u32, key: &[u8], value: &[u8]) -> [u8; OPERATION_HEADER_BYTES] {
    let mut header = [0; OPERATION_HEADER_BYTES];
    header[0] = kind;
    header[2..4].copy_from_slice(&(key.len() as u16).to_le_bytes());
    header[4..8].copy_from_slice(&keyspace.to_le_bytes());
    header[8..12].copy_from_slice(&(value.len() as u32).to_le_bytes());
    header
}

/// What a payload of `count` operations begins with.
#[inline]
pub fn batch_header(count: u32) -> [u8; BATCH_HEADER_BYTES] {
    let mut header = [0; BATCH_HEADER_BYTES];
    header[0] = BATCH_VERSION;
    header[4..].copy_from_slice(&count.to_le_bytes());
    header
}

/// What comes before key and value in an operation that is an entry.
///
/// # Errors
/// `Limit` when key or value is beyond its limit.
#[inline]
pub fn entry_header(
    kind: EntryKind,
    keyspace: u32,
    key: &[u8],
    value: &[u8],
) -> Result<[u8; OPERATION_HEADER_BYTES]> {
    check_entry(kind, key, value)?;
    Ok(operation_header(kind as u8, keyspace, key, value))
}

/// What comes before key and value in the payload of a single entry, which reads back as a batch of
/// one.
///
/// # Errors
/// `Limit` when key or value is beyond its limit.
#[inline]
pub fn single_head(
    kind: EntryKind,
    keyspace: u32,
    key: &[u8],
    value: &[u8],
) -> Result<[u8; SINGLE_HEAD_BYTES]> {
    check_entry(kind, key, value)?;
    let mut head = [0; SINGLE_HEAD_BYTES];
    head[..2].copy_from_slice(&[SINGLE_VERSION, kind as u8]);
    head[2..4].copy_from_slice(&(key.len() as u16).to_le_bytes());
    head[4..].copy_from_slice(&keyspace.to_le_bytes());
    Ok(head)
}

fn checked_count(count: u32, more: u32) -> Result<u32> {
    match count.checked_add(more).filter(|sum| *sum <= OPERATIONS_MAX) {
        Some(sum) => Ok(sum),
        None => Err(FormatError::limit(format!("{count} + {more} operations; at most {OPERATIONS_MAX}"))),
    }
}

/// Walks the operations of a payload. After an error it ends.
#[derive(Clone, Debug)]
pub struct Operations<'a> {
    reader: Reader<'a>,
    remaining: u32,
    /// The payload of a single entry, behind its version.
    is_single: bool,
    failed: bool,
}

impl<'a> Operations<'a> {
    /// A walk over `payload`.
    ///
    /// # Errors
    /// `Damaged` or `Newer` when its header is no header of a batch that this version reads.
    pub fn new(payload: &'a [u8]) -> Result<Operations<'a>> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            BATCH_VERSION => {}
            SINGLE_VERSION => return Ok(Operations { reader, remaining: 1, is_single: true, failed: false }),
            0 => return Err(FormatError::damaged(0, "batch version 1 or 2", "0")),
            version => {
                return Err(FormatError::newer(
                    0,
                    format!("batch version {version}; this program reads up to {SINGLE_VERSION}"),
                ));
            }
        }
        let flags = reader.u8()?;
        let reserved = reader.u16()?;
        if flags != 0 || reserved != 0 {
            return Err(FormatError::newer(1, format!("unknown batch flags {flags:#x}, {reserved:#x}")));
        }
        let count = reader.u32()?;
        if count > OPERATIONS_MAX || count as usize > reader.remaining() / OPERATION_HEADER_BYTES {
            return Err(FormatError::damaged(
                4,
                "a count of operations that fits the payload",
                count.to_string(),
            ));
        }
        Ok(Operations { reader, remaining: count, is_single: false, failed: false })
    }

    /// Number of operations not yet walked.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    #[inline]
    fn decode_single(&mut self) -> Result<Operation<'a>> {
        let kind = self.reader.u8()?;
        let key_bytes = self.reader.u16()? as usize;
        let keyspace = self.reader.u32()?;
        let key = self.reader.take(key_bytes)?;
        let value_bytes = self.reader.remaining();
        if value_bytes > VALUE_BYTES_MAX {
            return Err(FormatError::damaged(
                0,
                format!("a value of at most {VALUE_BYTES_MAX} bytes"),
                value_bytes.to_string(),
            ));
        }
        let value = self.reader.take(value_bytes)?;
        match EntryKind::from_byte(kind).filter(|kind| kind.is_logged()) {
            Some(kind) => entry(kind, keyspace, key, value, 1),
            None if kind == 0 => Err(FormatError::damaged(1, "a kind of entry", "0")),
            None => Err(FormatError::newer(1, format!("an entry of kind {}", kind_name(kind)))),
        }
    }

    #[inline]
    fn decode(&mut self) -> Result<Operation<'a>> {
        let at = self.reader.position();
        let header: [u8; OPERATION_HEADER_BYTES] = self.reader.array()?;
        if header[1] != 0 {
            return Err(FormatError::newer(at + 1, format!("unknown operation flags {:#x}", header[1])));
        }
        let key_bytes = u16::from_le_bytes([header[2], header[3]]) as usize;
        let keyspace = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let value_bytes = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if value_bytes > VALUE_BYTES_MAX {
            return Err(FormatError::damaged(
                at + 8,
                format!("a value of at most {VALUE_BYTES_MAX} bytes"),
                value_bytes.to_string(),
            ));
        }
        let key = self.reader.take(key_bytes)?;
        let value = self.reader.take(value_bytes)?;
        if let Some(kind) = EntryKind::from_byte(header[0]).filter(|kind| kind.is_logged()) {
            return entry(kind, keyspace, key, value, at);
        }
        match header[0] {
            CREATE_KEYSPACE => decode_create(keyspace, key, value)
                .map_err(|error| error.shifted((at + OPERATION_HEADER_BYTES) as u64)),
            DROP_KEYSPACE => Ok(Operation::DropKeyspace { keyspace }),
            INGEST => decode_ingest(value)
                .map_err(|error| error.shifted((at + OPERATION_HEADER_BYTES + key_bytes) as u64)),
            EXCHANGE => Ok(Operation::Exchange { keyspace }),
            CUT => decode_cut(value)
                .map_err(|error| error.shifted((at + OPERATION_HEADER_BYTES + key_bytes) as u64)),
            PREPARE | DECIDE => Err(FormatError::newer(at, format!("transaction record {}", header[0]))),
            0 => Err(FormatError::damaged(at, "a kind of operation", "0")),
            kind => Err(FormatError::newer(at, format!("an entry of kind {}", kind_name(kind)))),
        }
    }
}

/// An entry whose kind was read `at`.
#[inline]
fn entry<'a>(
    kind: EntryKind,
    keyspace: u32,
    key: &'a [u8],
    value: &'a [u8],
    at: usize,
) -> Result<Operation<'a>> {
    if kind == EntryKind::RangeDelete
        && let Err(error) = check_range(key, value)
    {
        return Err(FormatError::damaged(at, "a range delete of some keys", error.to_string()));
    }
    expiry_of(kind, value)?;
    Ok(Operation::Entry { kind, keyspace, key, value })
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Operation<'a>>> {
        if self.failed {
            return None;
        }
        if self.remaining == 0 {
            let end = self.reader.end();
            self.failed = true;
            return end.err().map(Err);
        }
        self.remaining -= 1;
        let operation = if self.is_single { self.decode_single() } else { self.decode() };
        self.failed = operation.is_err();
        Some(operation)
    }
}

fn decode_ingest<'a>(value: &[u8]) -> Result<Operation<'a>> {
    if value.len() > INGESTED_TABLES_MAX * INGESTED_TABLE_BYTES {
        let expected = format!("at most {INGESTED_TABLES_MAX} tables");
        return Err(FormatError::damaged(0, expected, format!("{} bytes", value.len())));
    }
    let mut reader = Reader::new(value);
    let mut tables = Vec::with_capacity(value.len() / INGESTED_TABLE_BYTES);
    while reader.remaining() > 0 {
        let name = TableName { epoch: reader.u64()?, random: reader.u64()? };
        tables.push((name, reader.u32()?));
    }
    Ok(Operation::Ingest { tables })
}

fn decode_cut<'a>(value: &[u8]) -> Result<Operation<'a>> {
    if value.len() > CUT_STREAMS_MAX * CUT_STREAM_BYTES {
        let expected = format!("at most {CUT_STREAMS_MAX} streams");
        return Err(FormatError::damaged(0, expected, format!("{} bytes", value.len())));
    }
    let mut reader = Reader::new(value);
    let mut reached = Vec::with_capacity(value.len() / CUT_STREAM_BYTES);
    while reader.remaining() > 0 {
        reached.push((reader.u32()?, SequenceNumber(reader.u64()?)));
    }
    Ok(Operation::Cut { reached })
}

fn decode_create<'a>(keyspace: u32, key: &'a [u8], value: &[u8]) -> Result<Operation<'a>> {
    let name = std::str::from_utf8(key).ok().filter(|name| name.len() <= KEYSPACE_NAME_BYTES_MAX);
    let Some(name) = name else {
        return Err(FormatError::damaged(0, "a keyspace name in UTF-8 of at most 255 bytes", "other bytes"));
    };
    let mut reader = Reader::new(value);
    let stream = reader.u32()?;
    let options = read_options(&mut reader).map_err(|error| error.of(format_args!("keyspace {name:?}")))?;
    reader.end()?;
    Ok(Operation::CreateKeyspace { keyspace, name, stream, options })
}

#[allow(clippy::assertions_on_constants, reason = "the header's fields must hold the limits")]
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize && VALUE_BYTES_MAX <= u32::MAX as usize);

#[cfg(test)]
mod tests;
