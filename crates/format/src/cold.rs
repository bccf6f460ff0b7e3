//! Tables in a cold store: what their descriptions say, and the object by which a database knows
//! its part of such a store again.
//!
//! **Marker**, the object `cold` at the root of a database's part:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOCLD` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes of the whole marker (52) |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | id: random, never used again |
//! | 40 | 8 | the random number of the database's life |
//! | 48 | 4 | CRC-32C of bytes 0–47 |

use crate::checksum::crc32c;
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features, check_version};

/// First bytes of a marker.
pub const MARKER_MAGIC: [u8; 8] = *b"TMBLOCLD";
/// The version written, and the newest read.
pub const MARKER_VERSION: u32 = 1;
/// Incompatible feature bits that this program knows.
pub const MARKER_FEATURES_KNOWN: u64 = 0;
/// Bytes of a marker.
pub const MARKER_BYTES: usize = 52;

/// Id of the property of a description whose object lies in a cold store: the store's id, u64.
pub const PROPERTY_COLD: u16 = 4;
/// Id of the property of a description that says how old its entries are, by sequence numbers:
/// seven u64 that ascend, and cut its entries into eight parts of about equal size.
pub const PROPERTY_EIGHTHS: u16 = 11;
/// Numbers that cut entries into parts.
pub const EIGHTHS: usize = 7;

/// A part of another store, in which cold tables of one database lie.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColdStore {
    /// Of its marker.
    pub id: u64,
    /// The random number of the life of the database whose tables lie there; names its folder.
    pub database: u64,
    /// The store's URI, without secrets.
    pub place: String,
    /// The database that names it writes there; else it only reads, as a clone does.
    pub is_own: bool,
}

/// By when everything up to a sequence number was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aged {
    /// Inclusive.
    pub sequence: u64,
    /// In seconds since the Unix epoch.
    pub unix_seconds: u64,
}

/// What a marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// Random.
    pub id: u64,
    /// The random number of the database's life.
    pub database: u64,
}

/// The bytes of a marker.
pub fn encode_marker(marker: Marker) -> Vec<u8> {
    let mut out = Vec::with_capacity(MARKER_BYTES);
    out.extend_from_slice(&MARKER_MAGIC);
    out.extend_from_slice(&MARKER_VERSION.to_le_bytes());
    out.extend_from_slice(&(MARKER_BYTES as u32).to_le_bytes());
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&marker.id.to_le_bytes());
    out.extend_from_slice(&marker.database.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

/// Reads a marker.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset.
pub fn decode_marker(bytes: &[u8]) -> Result<Marker> {
    let mut reader = Reader::new(bytes);
    let magic = reader.array::<8>()?;
    if magic != MARKER_MAGIC {
        let expected = format!("the magic of a cold store's marker ({})", MARKER_MAGIC.escape_ascii());
        return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
    }
    let (version, length) = (reader.u32()?, reader.u32()?);
    if bytes.len() != MARKER_BYTES || length as usize != bytes.len() {
        let found = format!("{length} of {}", bytes.len());
        return Err(FormatError::damaged(12, format!("{MARKER_BYTES} bytes"), found));
    }
    let (incompatible, _compatible) = (reader.u64()?, reader.u64()?);
    let marker = Marker { id: reader.u64()?, database: reader.u64()? };
    let at = reader.position();
    let (computed, stored) = (crc32c(&bytes[..at]), reader.u32()?);
    if computed != stored {
        return Err(FormatError::checksum(at, computed, stored));
    }
    check_version(8, version, MARKER_VERSION)?;
    check_features(16, incompatible, MARKER_FEATURES_KNOWN)?;
    Ok(marker)
}

/// The id of the cold store that a property says.
pub(crate) fn decode_cold(value: &[u8]) -> Result<u64> {
    let mut reader = Reader::new(value);
    let id = reader.u64()?;
    reader.end()?;
    Ok(id)
}

/// The value of [`PROPERTY_EIGHTHS`].
pub fn encode_eighths(eighths: [u64; EIGHTHS]) -> [u8; 8 * EIGHTHS] {
    let mut value = [0; 8 * EIGHTHS];
    for (place, number) in value.chunks_exact_mut(8).zip(eighths) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    value
}

/// Reads the value of [`PROPERTY_EIGHTHS`].
///
/// # Errors
/// `Damaged`.
pub fn decode_eighths(value: &[u8]) -> Result<[u64; EIGHTHS]> {
    let mut reader = Reader::new(value);
    let mut eighths = [0; EIGHTHS];
    for number in &mut eighths {
        *number = reader.u64()?;
    }
    reader.end()?;
    if !eighths.is_sorted() {
        return Err(FormatError::damaged(0, "sequence numbers that ascend", format!("{eighths:?}")));
    }
    Ok(eighths)
}

#[cfg(test)]
mod tests;
