//! Objects of a log that is kept in an object store: a header, then frames as in a segment
//! ([`crate::log_frame`]); or a header that is a seal.
//!
//! **Header** (80 bytes):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOLOB` |
//! | 8 | 4 | version (3; 2, which has no compact frames, is read) |
//! | 12 | 4 | bytes of this header (80): the first frame's offset |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 8 | epoch: whose log it is |
//! | 48 | 4 | lane |
//! | 52 | 4 | slot: the object's number in the lane; 0 begins the lane and has no frames |
//! | 56 | 4 | kind: 1 data, 2 seal |
//! | 60 | 4 | bytes of the whole object |
//! | 64 | 8 | data: who wrote it, drawn at random when the log was opened; seal: the epoch that sealed |
//! | 72 | 4 | data: the slot up to which every object was known to be there when this was made; seal: 0 |
//! | 76 | 4 | checksum of bytes 0–75 |
//!
//! **Data**: frames follow, up to the end. Their segment number is the slot, their byte counts from
//! the object's start.
//!
//! **Seal** (96 bytes): it takes the slot behind the last object that counts.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 80 | 8 | sealed length: the lane's offset at which the log ends |
//! | 88 | 4 | 0 |
//! | 92 | 4 | checksum of bytes 80–91, mixed with the header's checksum |
//!
//! No data object is as long as a seal: 80 bytes without frames, at least 104 with one. A list
//! therefore tells them apart.

use crate::checksum::{crc32c, stamp};
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features};
use crate::log_frame::{FRAME_BYTES_MIN, SegmentIdentity, check_log_version};

/// First bytes of a log object.
pub const LOG_OBJECT_MAGIC: [u8; 8] = *b"TMBLOLOB";
/// The version written, and the newest read.
pub const LOG_OBJECT_VERSION: u32 = 3;
/// Incompatible feature bits that this program knows.
pub const LOG_OBJECT_FEATURES_KNOWN: u64 = 0;
/// Bytes of the header.
pub const LOG_OBJECT_HEADER_BYTES: usize = 80;
/// Where frames begin, as an offset in the object.
pub const LOG_OBJECT_FIRST_BYTE: u32 = LOG_OBJECT_HEADER_BYTES as u32;
/// Bytes of a seal.
pub const SEAL_BYTES: usize = 96;

const KIND_DATA: u32 = 1;
const KIND_SEAL: u32 = 2;

const _: () = assert!(
    LOG_OBJECT_HEADER_BYTES.is_multiple_of(8) && LOG_OBJECT_HEADER_BYTES + FRAME_BYTES_MIN > SEAL_BYTES
);

/// What the header of a log object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogObject {
    /// Frames follow.
    Data {
        /// Bytes of the whole object.
        bytes: u32,
        /// Who wrote it.
        writer: u64,
        /// The slot up to which every object was known to be there when this was made.
        known_through: u32,
    },
    /// The log ends before this slot.
    Seal {
        /// The epoch that sealed it.
        by: u64,
        /// The lane's offset at which it ends.
        sealed: u64,
    },
}

/// The header of a data object of `bytes` bytes in all.
pub fn encode_data_header(
    identity: &SegmentIdentity,
    bytes: u32,
    writer: u64,
    known_through: u32,
) -> [u8; LOG_OBJECT_HEADER_BYTES] {
    let mut header = [0; LOG_OBJECT_HEADER_BYTES];
    header.copy_from_slice(&encode_header(identity, KIND_DATA, bytes, writer, known_through));
    header
}

/// A seal of `by` in a slot.
pub fn encode_seal(identity: &SegmentIdentity, by: u64, sealed: u64) -> Vec<u8> {
    let mut out = encode_header(identity, KIND_SEAL, SEAL_BYTES as u32, by, 0);
    let header_checksum = crc32c(&out[..LOG_OBJECT_HEADER_BYTES - 4]);
    out.extend_from_slice(&sealed.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    let checksum = stamp(crc32c(&out[LOG_OBJECT_HEADER_BYTES..]), SEAL_PLACE, u64::from(header_checksum));
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// Stands for the table identity in the checksums of seals.
const SEAL_PLACE: u64 = 0x4c4f_4753_4541_4c21;

fn encode_header(identity: &SegmentIdentity, kind: u32, bytes: u32, who: u64, known_through: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(SEAL_BYTES);
    out.extend_from_slice(&LOG_OBJECT_MAGIC);
    out.extend_from_slice(&LOG_OBJECT_VERSION.to_le_bytes());
    out.extend_from_slice(&(LOG_OBJECT_HEADER_BYTES as u32).to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&identity.incarnation.to_le_bytes());
    out.extend_from_slice(&identity.epoch.to_le_bytes());
    out.extend_from_slice(&identity.lane.to_le_bytes());
    out.extend_from_slice(&identity.segment.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(&who.to_le_bytes());
    out.extend_from_slice(&known_through.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

impl LogObject {
    /// Reads the start of a log object: its header, and all of it when it is a seal. `identity`
    /// says which object it must be.
    ///
    /// # Errors
    /// `Damaged` with the offset, also for a sound object of another place; `Newer`.
    pub fn decode(object: &[u8], identity: &SegmentIdentity) -> Result<LogObject> {
        let mut reader = Reader::new(object);
        let magic = reader.array::<8>()?;
        if magic != LOG_OBJECT_MAGIC {
            let expected = format!("the magic of a log object ({})", LOG_OBJECT_MAGIC.escape_ascii());
            return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
        }
        let mut header = Reader::new(object);
        let hashed = header.take(LOG_OBJECT_HEADER_BYTES - 4)?;
        let (computed, stored) = (crc32c(hashed), header.u32()?);
        if computed != stored {
            return Err(FormatError::checksum(LOG_OBJECT_HEADER_BYTES - 4, computed, stored));
        }
        check_log_version(8, reader.u32()?, LOG_OBJECT_VERSION)?;
        let header_bytes = reader.u32()?;
        if header_bytes as usize != LOG_OBJECT_HEADER_BYTES {
            return Err(FormatError::damaged(
                12,
                format!("a header of {LOG_OBJECT_HEADER_BYTES} bytes"),
                header_bytes.to_string(),
            ));
        }
        check_features(16, reader.u64()?, LOG_OBJECT_FEATURES_KNOWN)?;
        reader.u64()?;
        let found = SegmentIdentity {
            incarnation: reader.u64()?,
            epoch: reader.u64()?,
            lane: reader.u32()?,
            segment: reader.u32()?,
        };
        if found != *identity {
            return Err(FormatError::damaged(32, format!("an object of {identity:?}"), format!("{found:?}")));
        }
        let (kind, bytes, who, known_through) = (reader.u32()?, reader.u32()?, reader.u64()?, reader.u32()?);
        match kind {
            KIND_DATA if bytes as usize >= LOG_OBJECT_HEADER_BYTES => {
                Ok(LogObject::Data { bytes, writer: who, known_through })
            }
            KIND_SEAL if bytes as usize == SEAL_BYTES => decode_seal(object, who, computed),
            KIND_DATA | KIND_SEAL => Err(FormatError::damaged(60, "a possible length", bytes.to_string())),
            _ => Err(FormatError::damaged(56, format!("kind {KIND_DATA} or {KIND_SEAL}"), kind.to_string())),
        }
    }
}

fn decode_seal(object: &[u8], by: u64, header_checksum: u32) -> Result<LogObject> {
    let mut reader = Reader::new(object);
    reader.take(LOG_OBJECT_HEADER_BYTES)?;
    let sealed = reader.u64()?;
    reader.u32()?;
    let computed = stamp(
        crc32c(&object[LOG_OBJECT_HEADER_BYTES..reader.position()]),
        SEAL_PLACE,
        u64::from(header_checksum),
    );
    let stored = reader.u32()?;
    if computed != stored {
        return Err(FormatError::checksum(SEAL_BYTES - 4, computed, stored));
    }
    reader.end()?;
    Ok(LogObject::Seal { by, sealed })
}

#[cfg(test)]
mod tests;
