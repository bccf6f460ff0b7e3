//! What messages begin and end with: magic, version, length and feature bits; a checksum.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 4 | version |
//! | 12 | 4 | bytes of the whole message |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | | the rest of the header, and the body |
//! | −4 | 4 | CRC-32C of all before it |

use crate::checksum::crc32c;
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features, check_version};

/// Where the length stands.
const LENGTH_AT: usize = 12;
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;

/// A kind of messages.
pub(crate) struct Message {
    pub(crate) magic: [u8; 8],
    /// The version written, and the newest read.
    pub(crate) version: u32,
    /// Bytes before the body.
    pub(crate) header_bytes: usize,
    pub(crate) bytes_max: usize,
}

impl Message {
    /// As far as offset 32.
    pub(crate) fn begin(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&self.version.to_le_bytes());
        // The length, later, and no feature bits.
        out.extend_from_slice(&[0; 20]);
        out
    }

    /// Its length and checksum.
    ///
    /// # Errors
    /// `Limit` when it is too long.
    pub(crate) fn finish(&self, mut out: Vec<u8>) -> Result<Vec<u8>> {
        let length = out.len() + CHECKSUM_BYTES;
        let stored = u32::try_from(length).ok().filter(|_| length <= self.bytes_max);
        let stored = stored.ok_or_else(|| {
            let magic = self.magic.escape_ascii();
            FormatError::limit(format!("a message {magic} of {length} bytes; at most {}", self.bytes_max))
        })?;
        out[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&stored.to_le_bytes());
        let checksum = crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        Ok(out)
    }

    /// The header from offset 32 on, and the body.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset.
    pub(crate) fn open<'a>(&self, bytes: &'a [u8]) -> Result<(Reader<'a>, Reader<'a>)> {
        let mut reader = Reader::new(bytes);
        let found = reader.array::<8>()?;
        if found != self.magic {
            let expected = format!("the magic {}", self.magic.escape_ascii());
            return Err(FormatError::damaged(0, expected, found.escape_ascii().to_string()));
        }
        let (version, length) = (reader.u32()?, reader.u32()? as usize);
        if length != bytes.len() || !(self.header_bytes + CHECKSUM_BYTES..=self.bytes_max).contains(&length) {
            return Err(FormatError::damaged(
                LENGTH_AT,
                format!("{} bytes", bytes.len()),
                length.to_string(),
            ));
        }
        let (message, stored) = bytes.split_at(length - CHECKSUM_BYTES);
        let (computed, stored) = (crc32c(message), Reader::new(stored).u32()?);
        if computed != stored {
            return Err(FormatError::checksum(message.len(), computed, stored));
        }
        check_version(8, version, self.version)?;
        check_features(16, reader.u64()?, 0)?;
        reader.u64()?;
        Ok((reader, Reader::new(&message[self.header_bytes..])))
    }
}
