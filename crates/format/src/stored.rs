//! A stored block: how every block of a table lies in its object.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | n − 5 | payload, compressed as the next byte says ([`crate::compression`]) |
//! | n − 5 | 1 | compression |
//! | n − 4 | 4 | CRC-32C of all before it, mixed with (table identity, offset in the table) |
//!
//! Compression 3 is LZ4 in two parts (`stored/parts.rs`): data blocks have it, so that a look-up
//! can leave out most of the values. Compression 4 is ZSTD with the dictionary that the table has
//! in its properties: data blocks have it.
//!
//! n is the length in the block's handle. Nothing is decompressed or parsed before the checksum was
//! found right.

use std::ops::Range;

use bytes::Bytes;

pub use crate::block::BLOCK_BYTES_MAX;
use crate::block::Block;
use crate::checksum::{crc32c, stamp};
use crate::compression::{
    Compression, Compressor, Dictionary, LENGTH_BYTES, decompress, decompress_into, decompressed_bytes,
};
use crate::error::{FormatError, Result};
use crate::key::{InternalKey, Trailer};

mod parts;

use parts::Parts;

/// Bytes of a stored block after its payload.
pub const STORED_TRAILER_BYTES: usize = 5;
/// The compression byte of a payload in two parts.
const IN_PARTS: u8 = 3;

/// The compression byte of a payload that needs the table's dictionary.
const WITH_DICTIONARY: u8 = 4;

/// What the compression byte of a stored block says, in words.
pub fn compression_name(byte: u8) -> &'static str {
    match byte {
        IN_PARTS => "lz4 in two parts",
        WITH_DICTIONARY => "zstd with a dictionary",
        _ => Compression::from_byte(byte).map_or("unknown", Compression::name),
    }
}

/// Where a stored block lies in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockHandle {
    /// In bytes from the table's start.
    pub offset: u64,
    /// Its length, trailer included.
    pub length: u32,
}

impl BlockHandle {
    /// Bytes of an encoded handle.
    pub const BYTES: usize = 12;

    /// The handle's bytes: offset u64, length u32.
    pub fn encode(self) -> [u8; BlockHandle::BYTES] {
        let mut out = [0; BlockHandle::BYTES];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..].copy_from_slice(&self.length.to_le_bytes());
        out
    }

    /// The byte after the block.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// Appends a block to `out`, where it becomes the bytes at `offset` of the table. Returns its
/// handle.
///
/// # Panics
/// When the block is larger than [`BLOCK_BYTES_MAX`]: builders keep to it.
pub fn seal(
    compressor: &mut Compressor,
    compression: Compression,
    raw: &[u8],
    identity: u64,
    offset: u64,
    out: &mut Vec<u8>,
) -> BlockHandle {
    let start = begin(raw, out);
    let used = compressor.compress(compression, raw, out);
    end(used as u8, start, identity, offset, out)
}

/// As [`seal`], of a data block whose values end at `values_end`: one that is compressed with LZ4
/// can answer a [`Sealed::get`] without all of them.
///
/// # Panics
/// As there; when `values_end` is not within the block.
pub fn seal_data(
    compressor: &mut Compressor,
    compression: Compression,
    (raw, values_end): (&[u8], usize),
    identity: u64,
    offset: u64,
    out: &mut Vec<u8>,
) -> BlockHandle {
    if compression == Compression::Zstd {
        let start = begin(raw, out);
        if compressor.compress_with_dictionary(raw, out) {
            return end(WITH_DICTIONARY, start, identity, offset, out);
        }
    }
    if compression != Compression::Lz4 {
        return seal(compressor, compression, raw, identity, offset, out);
    }
    let start = begin(raw, out);
    if parts::compress(compressor, raw, values_end, out) {
        return end(IN_PARTS, start, identity, offset, out);
    }
    out.extend_from_slice(raw);
    end(Compression::None as u8, start, identity, offset, out)
}

fn begin(raw: &[u8], out: &[u8]) -> usize {
    assert!(raw.len() <= BLOCK_BYTES_MAX, "a block of {} bytes", raw.len());
    out.len()
}

fn end(compression: u8, start: usize, identity: u64, offset: u64, out: &mut Vec<u8>) -> BlockHandle {
    out.push(compression);
    let checksum = stamp(crc32c(&out[start..]), identity, offset);
    out.extend_from_slice(&checksum.to_le_bytes());
    let length = u32::try_from(out.len() - start).expect("a block is bounded by BLOCK_BYTES_MAX");
    BlockHandle { offset, length }
}

/// Checks a stored block and decompresses it. An uncompressed block is not copied.
///
/// # Errors
/// `Damaged`, or `Newer` for an unknown compression, with the offset in the block.
pub fn open(stored: &Bytes, identity: u64, offset: u64) -> Result<Bytes> {
    open_with(stored, identity, offset, None)
}

/// As [`open`], of a data block of a table that has a dictionary, or none.
///
/// # Errors
/// As there.
pub fn open_with(
    stored: &Bytes,
    identity: u64,
    offset: u64,
    dictionary: Option<&Dictionary>,
) -> Result<Bytes> {
    let sealed = Sealed::check(stored, identity, offset)?.with(dictionary);
    match sealed.payload {
        Payload::Whole(Compression::None, payload) => Ok(stored.slice(..payload.len())),
        Payload::Whole(compression, payload) => Ok(decompress(compression, payload, BLOCK_BYTES_MAX)?.into()),
        Payload::Parts(_) | Payload::WithDictionary(_) => {
            let mut raw = vec![0; sealed.raw_bytes()];
            sealed.decompress_into(&mut raw)?;
            Ok(raw.into())
        }
    }
}

/// How long a stored block says to be when decompressed, if it says so. Nothing was checked: a
/// hint.
pub fn raw_bytes(stored: &[u8]) -> Option<usize> {
    let payload = payload(stored.get(..stored.len().checked_sub(4)?)?).ok()?;
    Some(Sealed { payload, dictionary: None }.raw_bytes())
}

/// A stored block whose checksum was found right, and which is not decompressed yet.
#[derive(Clone, Copy, Debug)]
pub struct Sealed<'a> {
    payload: Payload<'a>,
    dictionary: Option<&'a Dictionary>,
}

#[derive(Clone, Copy, Debug)]
enum Payload<'a> {
    Whole(Compression, &'a [u8]),
    Parts(Parts<'a>),
    /// A decompressed length, and a ZSTD frame.
    WithDictionary(&'a [u8]),
}

impl<'a> Sealed<'a> {
    /// Checks a stored block.
    ///
    /// # Errors
    /// As [`open`].
    pub fn check(stored: &'a [u8], identity: u64, offset: u64) -> Result<Sealed<'a>> {
        let Some((hashed, checksum)) = stored.split_last_chunk::<4>() else {
            return Err(FormatError::damaged(
                0,
                "a block of at least 5 bytes",
                format!("{} bytes", stored.len()),
            ));
        };
        let expected = stamp(crc32c(hashed), identity, offset);
        let found = u32::from_le_bytes(*checksum);
        if expected != found {
            return Err(FormatError::checksum(hashed.len(), expected, found));
        }
        Ok(Sealed { payload: payload(hashed)?, dictionary: None })
    }

    /// The same block, of a table that has a dictionary, or none.
    #[must_use]
    pub fn with(self, dictionary: Option<&'a Dictionary>) -> Sealed<'a> {
        Sealed { dictionary, ..self }
    }

    /// Decompresses it into `raw`, which has its length.
    fn decompress_into(&self, raw: &mut [u8]) -> Result<()> {
        match &self.payload {
            Payload::Whole(compression, payload) => decompress_into(*compression, payload, raw),
            Payload::Parts(parts) => parts.decompress_into(raw),
            Payload::WithDictionary(payload) => {
                let Some(dictionary) = self.dictionary else {
                    return Err(FormatError::damaged(
                        0,
                        "a block that needs no dictionary, since the table has none",
                        "one that needs it",
                    ));
                };
                let frame = payload.get(LENGTH_BYTES..).unwrap_or_default();
                dictionary.decompress_into(frame, raw).map_err(|error| error.shifted(LENGTH_BYTES as u64))
            }
        }
    }

    /// Its length when decompressed, at most [`BLOCK_BYTES_MAX`].
    pub fn raw_bytes(&self) -> usize {
        // It was below the limit when it was checked.
        let stated = |compression, payload| decompressed_bytes(compression, payload, BLOCK_BYTES_MAX);
        match &self.payload {
            Payload::Whole(compression, payload) => stated(*compression, payload).unwrap_or(0),
            Payload::WithDictionary(payload) => stated(Compression::Zstd, payload).unwrap_or(0),
            Payload::Parts(parts) => parts.raw_bytes(),
        }
    }

    /// Decompresses it into memory that `memory` gives for so many bytes; an uncompressed block is
    /// copied there.
    ///
    /// # Errors
    /// As [`open`].
    ///
    /// # Panics
    /// When the memory has another length.
    pub fn open_into<M: AsMut<[u8]>>(&self, memory: impl FnOnce(usize) -> M) -> Result<M> {
        let bytes = self.raw_bytes();
        let mut memory = memory(bytes);
        assert_eq!(memory.as_mut().len(), bytes, "memory of another length");
        self.decompress_into(memory.as_mut())?;
        Ok(memory)
    }

    /// What [`Block::get`] would find in it, a data block: the entry's trailer, and where its value
    /// lies in `room`. Of a block in two parts, values after that one are not decompressed: `room`
    /// holds no block afterwards.
    ///
    /// # Errors
    /// As [`open`] and [`Block::get`].
    pub fn get(
        &self,
        target: InternalKey<'_>,
        room: &mut Vec<u8>,
    ) -> Result<Option<(Trailer, Range<usize>)>> {
        // The earlier content is overwritten, or not looked at.
        room.resize(self.raw_bytes(), 0);
        match &self.payload {
            Payload::Parts(parts) => parts.second_into(room)?,
            Payload::Whole(..) | Payload::WithDictionary(_) => self.decompress_into(room)?,
        }
        let block = Block::parse(&**room)?;
        let Some((trailer, value)) =
            block.get(target)?.map(|entry| (entry.trailer, block.range_of(entry.value)))
        else {
            return Ok(None);
        };
        if let Payload::Parts(parts) = &self.payload {
            parts.first_until(value.end, room)?;
        }
        Ok(Some((trailer, value)))
    }
}

/// The payload of a block without its checksum.
fn payload(hashed: &[u8]) -> Result<Payload<'_>> {
    let Some((compression, payload)) = hashed.split_last() else {
        return Err(FormatError::damaged(0, "a block of at least 5 bytes", "4 bytes"));
    };
    if *compression == IN_PARTS {
        return Parts::new(payload, BLOCK_BYTES_MAX).map(Payload::Parts);
    }
    if *compression == WITH_DICTIONARY {
        decompressed_bytes(Compression::Zstd, payload, BLOCK_BYTES_MAX)?;
        return Ok(Payload::WithDictionary(payload));
    }
    let Some(known) = Compression::from_byte(*compression) else {
        return Err(FormatError::newer(payload.len(), format!("compression {compression}")));
    };
    // That it is within the limit.
    decompressed_bytes(known, payload, BLOCK_BYTES_MAX)?;
    Ok(Payload::Whole(known, payload))
}

#[cfg(test)]
mod tests;
