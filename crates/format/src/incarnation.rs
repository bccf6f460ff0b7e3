//! The record that begins an incarnation. Its name says the number; every process puts the same
//! bytes.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOINC` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes of the whole record (44) |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 4 | CRC-32C of bytes 0–39 |

use crate::checksum::crc32c;
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features, check_version};

/// First bytes of the record.
pub const INCARNATION_MAGIC: [u8; 8] = *b"TMBLOINC";
/// The version written, and the newest read.
pub const INCARNATION_VERSION: u32 = 1;
/// Incompatible feature bits that this program knows.
pub const INCARNATION_FEATURES_KNOWN: u64 = 0;
/// Bytes of the record.
pub const INCARNATION_BYTES: usize = 44;

/// The bytes of the record that begins an incarnation.
pub fn encode_incarnation(incarnation: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(INCARNATION_BYTES);
    out.extend_from_slice(&INCARNATION_MAGIC);
    out.extend_from_slice(&INCARNATION_VERSION.to_le_bytes());
    out.extend_from_slice(&(INCARNATION_BYTES as u32).to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&incarnation.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

/// The incarnation that a record begins.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset.
pub fn decode_incarnation(bytes: &[u8]) -> Result<u64> {
    let mut reader = Reader::new(bytes);
    let magic = reader.array::<8>()?;
    if magic != INCARNATION_MAGIC {
        let expected = format!("the magic of an incarnation record ({})", INCARNATION_MAGIC.escape_ascii());
        return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
    }
    let (version, length) = (reader.u32()?, reader.u32()?);
    if bytes.len() != INCARNATION_BYTES || length as usize != bytes.len() {
        return Err(FormatError::damaged(
            12,
            format!("{INCARNATION_BYTES} bytes"),
            format!("{length} of {}", bytes.len()),
        ));
    }
    let (incompatible, _compatible, incarnation) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let at = reader.position();
    let (computed, stored) = (crc32c(&bytes[..at]), reader.u32()?);
    if computed != stored {
        return Err(FormatError::checksum(at, computed, stored));
    }
    check_version(8, version, INCARNATION_VERSION)?;
    check_features(16, incompatible, INCARNATION_FEATURES_KNOWN)?;
    Ok(incarnation)
}

#[cfg(test)]
mod tests;
