//! Value objects: values that lie apart from the tables whose entries refer to them.
//!
//! | part | content |
//! |---|---|
//! | header | see below |
//! | records | one after another, in the order of their keys |
//! | footer | see below |
//!
//! **Header**, the first 40 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOVAL` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | keyspace |
//! | 16 | 8 | identity of the object |
//! | 24 | 8 | incompatible feature bits |
//! | 32 | 4 | reserved (0) |
//! | 36 | 4 | CRC-32C of bytes 0–35 |
//!
//! **Record:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | bytes of the whole record |
//! | 4 | 4 | bytes of the value |
//! | 8 | 8 | hash of the user key ([`key_hash`]) |
//! | 16 | | the value, compressed as the next byte says ([`crate::compression`]) |
//! | −5 | 1 | compression |
//! | −4 | 4 | CRC-32C of all before it, mixed with (identity of the object, offset in it) |
//!
//! **Footer**, the last 56 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | identity of the object |
//! | 8 | 8 | bytes of the object, footer included |
//! | 16 | 8 | number of records |
//! | 24 | 8 | bytes of the values |
//! | 32 | 8 | incompatible feature bits |
//! | 40 | 4 | version (1) |
//! | 44 | 4 | CRC-32C of bytes 0–43 |
//! | 48 | 8 | magic `TMBLOVAE` |
//!
//! **Reference**, the value of an entry of kind 6, and that of kind 11 but for its end:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | identity of the object |
//! | 8 | 8 | offset of the record in the object |
//! | 16 | 4 | bytes of the record |
//! | 20 | 4 | bytes of the value |
//! | 24 | 4 | the record's checksum |
//!
//! References name an object by its identity, and not by its name: so they stay as they are where
//! an object is copied, or named by another database.
//!
//! **What a table refers to** is property 5 of its description ([`crate::manifest`]): {identity
//! u64, bytes of the records u64} of each object, by identity, ascending, at most
//! [`REFERRED_OBJECTS_MAX`].

use bytes::Bytes;

use crate::aligned;
use crate::checksum::{crc32c, key_hash, stamp};
use crate::codec::Reader;
use crate::compression::{Compression, Compressor, decompress_into, decompressed_bytes};
use crate::error::{FormatError, Result, check_features, check_version};
use crate::key::VALUE_BYTES_MAX;

/// First bytes of a value object.
pub const VALUE_OBJECT_MAGIC: [u8; 8] = *b"TMBLOVAL";
/// Its last bytes.
pub const VALUE_OBJECT_END_MAGIC: [u8; 8] = *b"TMBLOVAE";
/// The version written, and the newest read.
pub const VALUE_OBJECT_VERSION: u32 = 1;
/// Incompatible feature bits that this program knows.
pub const VALUE_OBJECT_FEATURES_KNOWN: u64 = 0;
/// Bytes before the first record.
pub const VALUE_OBJECT_HEADER_BYTES: usize = 40;
/// Bytes after the last record.
pub const VALUE_OBJECT_FOOTER_BYTES: usize = 56;
/// Bytes of a record before its value.
pub const RECORD_HEADER_BYTES: usize = 16;
/// Bytes of a record beside its value.
pub const RECORD_OVERHEAD_BYTES: usize = RECORD_HEADER_BYTES + 5;
/// Most bytes of a record.
pub const RECORD_BYTES_MAX: usize = VALUE_BYTES_MAX + RECORD_OVERHEAD_BYTES;
/// Bytes of a reference.
pub const REFERENCE_BYTES: usize = 28;
/// Most objects to which one table refers.
pub const REFERRED_OBJECTS_MAX: usize = 2048;
/// Id of the property of a description that says to what its table refers.
pub const PROPERTY_VALUE_OBJECTS: u16 = 5;

/// Bytes of one object in the property.
const REFERRED_BYTES: usize = 16;
/// Compressed values are kept only if they save at least one part in so many: who reads the others
/// copies nothing.
const COMPRESSION_SAVES_MIN: usize = 8;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The object's identity.
    pub object: u64,
    /// Where its record begins, in bytes from the object's start.
    pub offset: u64,
    /// Bytes of the record.
    pub record_bytes: u32,
    /// Bytes of the value.
    pub value_bytes: u32,
    /// The record's checksum.
    pub checksum: u32,
}

impl Reference {
    /// Its bytes.
    pub fn encode(&self) -> [u8; REFERENCE_BYTES] {
        let mut out = [0; REFERENCE_BYTES];
        out[0..8].copy_from_slice(&self.object.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.record_bytes.to_le_bytes());
        out[20..24].copy_from_slice(&self.value_bytes.to_le_bytes());
        out[24..28].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// Reads a reference.
    ///
    /// # Errors
    /// `Damaged`, with the offset in the reference.
    pub fn decode(bytes: &[u8]) -> Result<Reference> {
        let mut reader = Reader::new(bytes);
        let reference = Reference {
            object: reader.u64()?,
            offset: reader.u64()?,
            record_bytes: reader.u32()?,
            value_bytes: reader.u32()?,
            checksum: reader.u32()?,
        };
        reader.end()?;
        let sound = (RECORD_OVERHEAD_BYTES..=RECORD_BYTES_MAX).contains(&(reference.record_bytes as usize))
            && reference.value_bytes as usize <= VALUE_BYTES_MAX
            && reference.offset >= VALUE_OBJECT_HEADER_BYTES as u64
            && reference.offset.checked_add(u64::from(reference.record_bytes)).is_some();
        if !sound {
            return Err(FormatError::damaged(8, "a record within an object", format!("{reference:?}")));
        }
        Ok(reference)
    }

    /// The byte after the record.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.record_bytes))
    }

    /// The value, from just the bytes of its record; in memory that begins at a multiple of
    /// `alignment`. A value that is not compressed is not copied where it lies right.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the object: when the record is another one than
    /// that the reference was made for.
    pub fn open(&self, record: &Bytes, user_key: &[u8], alignment: usize) -> Result<Bytes> {
        let opened = self.check(record, key_hash(user_key));
        let value = opened.and_then(|payload| payload.value(record, alignment));
        value.map_err(|error| error.shifted(self.offset))
    }

    /// As [`Reference::open`], into memory that `memory` gives for so many bytes.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// When the memory has another length.
    pub fn open_into<M: AsMut<[u8]>>(
        &self,
        record: &[u8],
        user_key: &[u8],
        memory: impl FnOnce(usize) -> M,
    ) -> Result<M> {
        let opened = self.check(record, key_hash(user_key)).and_then(|payload| {
            let bytes = payload.value_bytes as usize;
            let mut memory = memory(bytes);
            assert_eq!(memory.as_mut().len(), bytes, "memory of another length");
            decompress_into(payload.compression, payload.bytes, memory.as_mut())
                .map_err(|error| error.shifted(RECORD_HEADER_BYTES as u64))?;
            Ok(memory)
        });
        opened.map_err(|error| error.shifted(self.offset))
    }

    /// A reference to the same record that says of it what it says itself: what would be believed
    /// if nobody compared them.
    #[doc(hidden)]
    #[must_use]
    pub fn believing(&self, record: &[u8]) -> Reference {
        let word = |bytes: Option<&[u8; 4]>| bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let value_bytes = word(record.get(4..8).and_then(|bytes| bytes.first_chunk()));
        Reference { checksum: word(record.last_chunk()), value_bytes, ..*self }
    }

    fn check<'a>(&self, record: &'a [u8], hash: u64) -> Result<Payload<'a>> {
        if record.len() != self.record_bytes as usize {
            let expected = format!("a record of {} bytes", self.record_bytes);
            return Err(FormatError::damaged(0, expected, format!("{} bytes", record.len())));
        }
        let payload = Payload::check(record, self.object, self.offset)?;
        if payload.checksum != self.checksum {
            return Err(FormatError::checksum(record.len() - 4, self.checksum, payload.checksum));
        }
        if payload.value_bytes != self.value_bytes {
            let expected = format!("a value of {} bytes", self.value_bytes);
            return Err(FormatError::damaged(4, expected, format!("{} bytes", payload.value_bytes)));
        }
        if payload.key_hash != hash {
            let expected = format!("the value of a key with hash {hash:#018x}");
            return Err(FormatError::damaged(8, expected, format!("{:#018x}", payload.key_hash)));
        }
        Ok(payload)
    }
}

/// A record whose checksum was found right.
#[derive(Clone, Copy, Debug)]
struct Payload<'a> {
    key_hash: u64,
    value_bytes: u32,
    checksum: u32,
    compression: Compression,
    bytes: &'a [u8],
}

impl<'a> Payload<'a> {
    /// Checks the bytes of a record, which lies at `offset` of the object.
    fn check(record: &'a [u8], object: u64, offset: u64) -> Result<Payload<'a>> {
        let Some((hashed, checksum)) =
            record.split_last_chunk::<4>().filter(|_| record.len() >= RECORD_OVERHEAD_BYTES)
        else {
            let expected = format!("a record of at least {RECORD_OVERHEAD_BYTES} bytes");
            return Err(FormatError::damaged(0, expected, format!("{} bytes", record.len())));
        };
        let (expected, found) = (stamp(crc32c(hashed), object, offset), u32::from_le_bytes(*checksum));
        if expected != found {
            return Err(FormatError::checksum(hashed.len(), expected, found));
        }
        let mut reader = Reader::new(hashed);
        let (record_bytes, value_bytes, key_hash) = (reader.u32()?, reader.u32()?, reader.u64()?);
        if record_bytes as usize != record.len() || value_bytes as usize > VALUE_BYTES_MAX {
            let expected = format!("a record of {} bytes", record.len());
            return Err(FormatError::damaged(0, expected, format!("{record_bytes} of {value_bytes}")));
        }
        let bytes = reader.take(hashed.len() - RECORD_HEADER_BYTES - 1)?;
        let byte = reader.u8()?;
        let Some(compression) = Compression::from_byte(byte) else {
            return Err(FormatError::newer(hashed.len() - 1, format!("compression {byte}")));
        };
        let raw = decompressed_bytes(compression, bytes, VALUE_BYTES_MAX)
            .map_err(|error| error.shifted(RECORD_HEADER_BYTES as u64))?;
        if raw != value_bytes as usize {
            return Err(FormatError::damaged(4, format!("a value of {raw} bytes"), value_bytes.to_string()));
        }
        Ok(Payload { key_hash, value_bytes, checksum: found, compression, bytes })
    }

    fn value(&self, record: &Bytes, alignment: usize) -> Result<Bytes> {
        if self.compression == Compression::None {
            let value = record.slice(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + self.bytes.len());
            let lies_right = aligned::is_aligned(&value, alignment);
            return Ok(if lies_right { value } else { aligned::copy(&value, alignment) });
        }
        let mut raw = vec![0; self.value_bytes as usize];
        decompress_into(self.compression, self.bytes, &mut raw)
            .map_err(|error| error.shifted(RECORD_HEADER_BYTES as u64))?;
        Ok(if aligned::is_aligned(&raw, alignment) { raw.into() } else { aligned::copy(&raw, alignment) })
    }
}

/// What an object's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueObjectHeader {
    /// The keyspace whose values are in it.
    pub keyspace: u32,
    /// Its identity.
    pub identity: u64,
}

impl ValueObjectHeader {
    /// Its bytes.
    pub fn encode(&self) -> [u8; VALUE_OBJECT_HEADER_BYTES] {
        let mut out = [0; VALUE_OBJECT_HEADER_BYTES];
        out[0..8].copy_from_slice(&VALUE_OBJECT_MAGIC);
        out[8..12].copy_from_slice(&VALUE_OBJECT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.keyspace.to_le_bytes());
        out[16..24].copy_from_slice(&self.identity.to_le_bytes());
        let checksum = crc32c(&out[..36]);
        out[36..40].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header with which `bytes` begin.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset.
    pub fn decode(bytes: &[u8]) -> Result<ValueObjectHeader> {
        let mut reader = Reader::new(bytes);
        let magic = reader.array::<8>()?;
        if magic != VALUE_OBJECT_MAGIC {
            let expected = format!("the magic of a value object ({})", VALUE_OBJECT_MAGIC.escape_ascii());
            return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
        }
        let (version, keyspace, identity, features) =
            (reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?);
        let _reserved = reader.u32()?;
        let stored = reader.u32()?;
        let computed = crc32c(&bytes[..36]);
        if computed != stored {
            return Err(FormatError::checksum(36, computed, stored));
        }
        check_version(8, version, VALUE_OBJECT_VERSION)?;
        check_features(24, features, VALUE_OBJECT_FEATURES_KNOWN)?;
        Ok(ValueObjectHeader { keyspace, identity })
    }
}

/// What an object's footer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueObjectFooter {
    /// Its identity.
    pub identity: u64,
    /// Bytes of the object, footer included.
    pub object_bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Bytes of the values.
    pub value_bytes: u64,
}

impl ValueObjectFooter {
    /// Its bytes.
    pub fn encode(&self) -> [u8; VALUE_OBJECT_FOOTER_BYTES] {
        let mut out = [0; VALUE_OBJECT_FOOTER_BYTES];
        out[0..8].copy_from_slice(&self.identity.to_le_bytes());
        out[8..16].copy_from_slice(&self.object_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.records.to_le_bytes());
        out[24..32].copy_from_slice(&self.value_bytes.to_le_bytes());
        out[40..44].copy_from_slice(&VALUE_OBJECT_VERSION.to_le_bytes());
        let checksum = crc32c(&out[..44]);
        out[44..48].copy_from_slice(&checksum.to_le_bytes());
        out[48..].copy_from_slice(&VALUE_OBJECT_END_MAGIC);
        out
    }

    /// Reads the footer at the end of `bytes`, which end where the object does.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<ValueObjectFooter> {
        let Some((before, footer)) = bytes.split_last_chunk::<VALUE_OBJECT_FOOTER_BYTES>() else {
            let expected = format!("a footer of {VALUE_OBJECT_FOOTER_BYTES} bytes");
            return Err(FormatError::damaged(0, expected, format!("{} bytes", bytes.len())));
        };
        ValueObjectFooter::decode_exact(footer).map_err(|error| error.shifted(before.len() as u64))
    }

    fn decode_exact(bytes: &[u8; VALUE_OBJECT_FOOTER_BYTES]) -> Result<ValueObjectFooter> {
        if bytes[48..] != VALUE_OBJECT_END_MAGIC {
            let expected =
                format!("the magic at a value object's end ({})", VALUE_OBJECT_END_MAGIC.escape_ascii());
            return Err(FormatError::damaged(48, expected, bytes[48..].escape_ascii().to_string()));
        }
        let mut reader = Reader::new(bytes);
        let footer = ValueObjectFooter {
            identity: reader.u64()?,
            object_bytes: reader.u64()?,
            records: reader.u64()?,
            value_bytes: reader.u64()?,
        };
        let (features, version, stored) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let computed = crc32c(&bytes[..44]);
        if computed != stored {
            return Err(FormatError::checksum(44, computed, stored));
        }
        check_version(40, version, VALUE_OBJECT_VERSION)?;
        check_features(32, features, VALUE_OBJECT_FEATURES_KNOWN)?;
        Ok(footer)
    }
}

/// Builds an object, record by record; the bytes that it hands out, in order, are the object.
#[derive(Debug)]
pub struct ValueObjectBuilder {
    identity: u64,
    compression: Compression,
    compressor: Compressor,
    out: Vec<u8>,
    /// Bytes handed out.
    taken: u64,
    records: u64,
    value_bytes: u64,
}

impl ValueObjectBuilder {
    /// Begins an object. The identity is random and mixed into every record's checksum.
    pub fn new(keyspace: u32, identity: u64, compression: Compression) -> ValueObjectBuilder {
        ValueObjectBuilder {
            identity,
            compression,
            compressor: Compressor::new(),
            out: ValueObjectHeader { keyspace, identity }.encode().to_vec(),
            taken: 0,
            records: 0,
            value_bytes: 0,
        }
    }

    /// Adds a value; says where it lies.
    ///
    /// # Errors
    /// `Limit` for a value of more than [`VALUE_BYTES_MAX`].
    pub fn add(&mut self, user_key: &[u8], value: &[u8]) -> Result<Reference> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(FormatError::limit(format!(
                "a value of {} bytes; at most {VALUE_BYTES_MAX}",
                value.len()
            )));
        }
        let (start, offset) = (self.out.len(), self.object_bytes());
        self.out.extend_from_slice(&0u32.to_le_bytes());
        self.out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.out.extend_from_slice(&key_hash(user_key).to_le_bytes());
        let payload = self.out.len();
        let mut used = self.compressor.compress(self.compression, value, &mut self.out);
        let saved = value.len().saturating_sub(self.out.len() - payload);
        if used != Compression::None && saved < value.len() / COMPRESSION_SAVES_MIN {
            self.out.truncate(payload);
            self.out.extend_from_slice(value);
            used = Compression::None;
        }
        self.out.push(used as u8);
        let record_bytes = (self.out.len() - start + 4) as u32;
        self.out[start..start + 4].copy_from_slice(&record_bytes.to_le_bytes());
        let checksum = stamp(crc32c(&self.out[start..]), self.identity, offset);
        self.out.extend_from_slice(&checksum.to_le_bytes());
        self.records += 1;
        self.value_bytes += value.len() as u64;
        Ok(Reference {
            object: self.identity,
            offset,
            record_bytes,
            value_bytes: value.len() as u32,
            checksum,
        })
    }

    /// Bytes of the object so far.
    pub fn object_bytes(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    /// Number of records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes that wait to be taken.
    pub fn output_bytes(&self) -> usize {
        self.out.len()
    }

    /// The bytes since the last call.
    pub fn take_output(&mut self) -> Bytes {
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out).into()
    }

    /// The last bytes, and what the footer says.
    pub fn finish(mut self) -> (Bytes, ValueObjectFooter) {
        let footer = ValueObjectFooter {
            identity: self.identity,
            object_bytes: self.object_bytes() + VALUE_OBJECT_FOOTER_BYTES as u64,
            records: self.records,
            value_bytes: self.value_bytes,
        };
        self.out.extend_from_slice(&footer.encode());
        (self.out.into(), footer)
    }
}

/// Checks a whole object as its bytes come, record by record.
#[derive(Debug)]
pub struct ValueObjectChecker {
    identity: u64,
    at: u64,
    records: u64,
    value_bytes: u64,
}

/// What an object's next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A record of so many bytes.
    Record(u32),
    /// The footer, with which the object ends.
    Footer,
}

impl ValueObjectChecker {
    /// Checks the header with which an object of this identity begins.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the object.
    pub fn begin(header: &[u8], keyspace: u32, identity: u64) -> Result<ValueObjectChecker> {
        let found = ValueObjectHeader::decode(header)?;
        if found != (ValueObjectHeader { keyspace, identity }) {
            let expected = format!("object {identity:#018x} of keyspace {keyspace}");
            return Err(FormatError::damaged(12, expected, format!("{found:?}")));
        }
        Ok(ValueObjectChecker { identity, at: VALUE_OBJECT_HEADER_BYTES as u64, records: 0, value_bytes: 0 })
    }

    /// Where the next record or the footer begins.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// What comes next of an object of `object_bytes`. `head` holds the next bytes: of a record at
    /// least its first four.
    ///
    /// # Errors
    /// `Damaged`, with the offset in the object.
    pub fn next(&self, head: &[u8], object_bytes: u64) -> Result<Next> {
        let left = object_bytes.saturating_sub(self.at);
        if left == VALUE_OBJECT_FOOTER_BYTES as u64 {
            return Ok(Next::Footer);
        }
        let bytes = Reader::new(head).u32().map_err(|error| error.shifted(self.at))?;
        let fits = (RECORD_OVERHEAD_BYTES..=RECORD_BYTES_MAX).contains(&(bytes as usize))
            && u64::from(bytes) + VALUE_OBJECT_FOOTER_BYTES as u64 <= left;
        if !fits {
            let error = FormatError::damaged(0, "a record within the object", format!("{bytes} bytes"));
            return Err(error.shifted(self.at));
        }
        Ok(Next::Record(bytes))
    }

    /// Checks the next record.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the object.
    pub fn record(&mut self, record: &Bytes) -> Result<()> {
        let payload = Payload::check(record, self.identity, self.at);
        let payload = payload.and_then(|payload| payload.value(record, 1).map(|_| payload));
        let payload = payload.map_err(|error| error.shifted(self.at))?;
        self.at += record.len() as u64;
        self.records += 1;
        self.value_bytes += u64::from(payload.value_bytes);
        Ok(())
    }

    /// Passes a record of so many bytes, which is damaged.
    pub fn pass(&mut self, record_bytes: u32) {
        self.at += u64::from(record_bytes);
        self.records += 1;
    }

    /// Checks the footer, and with it that nothing is missing.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the object.
    pub fn end(&self, footer: &[u8]) -> Result<ValueObjectFooter> {
        let found = ValueObjectFooter::decode(footer).map_err(|error| error.shifted(self.at))?;
        let expected = ValueObjectFooter {
            identity: self.identity,
            object_bytes: self.at + VALUE_OBJECT_FOOTER_BYTES as u64,
            records: self.records,
            value_bytes: self.value_bytes,
        };
        if found != expected {
            let error = FormatError::damaged(0, format!("{expected:?}"), format!("{found:?}"));
            return Err(error.shifted(self.at));
        }
        Ok(found)
    }
}

/// What a table refers to of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Referred {
    /// The object's identity.
    pub object: u64,
    /// Bytes of the records to which the table refers, each counted as often as that.
    pub bytes: u64,
}

/// The value of the property: of objects by identity, ascending.
///
/// # Panics
/// When there are more than [`REFERRED_OBJECTS_MAX`]: who writes a table keeps to it.
pub fn encode_referred(referred: &[Referred]) -> Vec<u8> {
    assert!(referred.len() <= REFERRED_OBJECTS_MAX, "{} objects", referred.len());
    let mut out = Vec::with_capacity(REFERRED_BYTES * referred.len());
    for Referred { object, bytes } in referred {
        out.extend_from_slice(&object.to_le_bytes());
        out.extend_from_slice(&bytes.to_le_bytes());
    }
    out
}

/// Reads what [`encode_referred`] wrote.
///
/// # Errors
/// `Damaged`, with the offset.
pub fn decode_referred(bytes: &[u8]) -> Result<Vec<Referred>> {
    let count = bytes.len() / REFERRED_BYTES;
    if count * REFERRED_BYTES != bytes.len() || !(1..=REFERRED_OBJECTS_MAX).contains(&count) {
        let expected = format!("1 to {REFERRED_OBJECTS_MAX} value objects");
        return Err(FormatError::damaged(0, expected, format!("{} bytes", bytes.len())));
    }
    let mut reader = Reader::new(bytes);
    let mut referred: Vec<Referred> = Vec::with_capacity(count);
    for _ in 0..count {
        let at = reader.position();
        let next = Referred { object: reader.u64()?, bytes: reader.u64()? };
        if referred.last().is_some_and(|last| last.object >= next.object) {
            return Err(FormatError::damaged(at, "objects by identity", format!("{:#018x}", next.object)));
        }
        referred.push(next);
    }
    Ok(referred)
}

#[cfg(test)]
mod tests;
