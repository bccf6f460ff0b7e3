//! A stored block: how every block of a table lies in its object.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | n − 5 | payload, compressed as the next byte says ([`crate::compression`]) |
//! | n − 5 | 1 | compression |
//! | n − 4 | 4 | CRC-32C of all before it, mixed with (table identity, offset in the table) |
//!
//! n is the length in the block's handle. Nothing is decompressed or parsed before the checksum was found right.

use bytes::Bytes;

use crate::checksum::{crc32c, stamp};
use crate::compression::{Compression, Compressor, decompress, decompress_into, decompressed_bytes};
use crate::error::{FormatError, Result};
use crate::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Bytes of a stored block after its payload.
pub const STORED_TRAILER_BYTES: usize = 5;
/// Most bytes of a block when decompressed: the greatest entry, and room for a block's own bytes.
pub const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX + (2 << 20);

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

/// Appends a block to `out`, where it becomes the bytes at `offset` of the table. Returns its handle.
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
    assert!(raw.len() <= BLOCK_BYTES_MAX, "a block of {} bytes", raw.len());
    let start = out.len();
    let used = compressor.compress(compression, raw, out);
    out.push(used as u8);
    let checksum = stamp(crc32c(&out[start..]), identity, offset);
    out.extend_from_slice(&checksum.to_le_bytes());
    let length = u32::try_from(out.len() - start).expect("a block is bounded by BLOCK_BYTES_MAX");
    BlockHandle { offset, length }
}

/// Checks a stored block and decompresses it. What is not compressed is not copied.
///
/// # Errors
/// `Damaged`, or `Newer` for an unknown compression, with the offset in the block.
pub fn open(stored: &Bytes, identity: u64, offset: u64) -> Result<Bytes> {
    match check(stored, identity, offset)? {
        (Compression::None, payload) => Ok(stored.slice(..payload.len())),
        (compression, payload) => Ok(decompress(compression, payload, BLOCK_BYTES_MAX)?.into()),
    }
}

/// Checks a stored block and decompresses it into memory that `memory` gives for so many bytes; what is not compressed is copied there.
///
/// # Errors
/// As [`open`].
///
/// # Panics
/// When the memory has another length.
pub fn open_into<M: AsMut<[u8]>>(stored: &[u8], identity: u64, offset: u64, memory: impl FnOnce(usize) -> M) -> Result<M> {
    let (compression, payload) = check(stored, identity, offset)?;
    let bytes = decompressed_bytes(compression, payload, BLOCK_BYTES_MAX)?;
    let mut memory = memory(bytes);
    assert_eq!(memory.as_mut().len(), bytes, "memory of another length");
    decompress_into(compression, payload, memory.as_mut())?;
    Ok(memory)
}

/// How long a stored block says to be when decompressed, if it says so. Nothing was checked: a hint.
pub fn raw_bytes(stored: &[u8]) -> Option<usize> {
    let payload = stored.get(..stored.len().checked_sub(STORED_TRAILER_BYTES)?)?;
    let compression = Compression::from_byte(*stored.get(payload.len())?)?;
    decompressed_bytes(compression, payload, BLOCK_BYTES_MAX).ok()
}

/// Checks a stored block; its payload, and how that is compressed.
fn check(stored: &[u8], identity: u64, offset: u64) -> Result<(Compression, &[u8])> {
    let Some((hashed, checksum)) = stored.split_last_chunk::<4>() else {
        return Err(FormatError::damaged(0, "a block of at least 5 bytes", format!("{} bytes", stored.len())));
    };
    let expected = stamp(crc32c(hashed), identity, offset);
    let found = u32::from_le_bytes(*checksum);
    if expected != found {
        return Err(FormatError::checksum(hashed.len(), expected, found));
    }
    let Some((compression, payload)) = hashed.split_last() else {
        return Err(FormatError::damaged(0, "a block of at least 5 bytes", "4 bytes"));
    };
    match Compression::from_byte(*compression) {
        Some(Compression::None) if payload.len() > BLOCK_BYTES_MAX => {
            Err(FormatError::damaged(0, format!("a block of at most {BLOCK_BYTES_MAX} bytes"), payload.len().to_string()))
        }
        Some(compression) => Ok((compression, payload)),
        None => Err(FormatError::newer(payload.len(), format!("compression {compression}"))),
    }
}

#[cfg(test)]
mod tests;
