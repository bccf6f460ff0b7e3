//! Bytes of a record.

use bytes::Bytes;

use super::edit::{decode_writer, encode_writer};
use super::{
    Edit, FEATURE_COLD, FEATURE_MARKED, FEATURE_SOURCES, FEATURE_STREAMS, Part, Record, RecordKind,
    decode_edit, encode_edit,
};
use crate::checksum::{crc32c, hash128};
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features, check_version};

/// First bytes of a record.
pub const RECORD_MAGIC: [u8; 8] = *b"TMBLOREC";
/// The version written, and the newest read.
pub const RECORD_VERSION: u32 = 1;
/// Incompatible feature bits that this program knows: those of which every path takes account.
pub const RECORD_FEATURES_KNOWN: u64 = FEATURE_SOURCES | FEATURE_STREAMS | FEATURE_COLD | FEATURE_MARKED;
/// Bytes before the edits.
pub const RECORD_HEADER_BYTES: usize = 104;
/// Most bytes of a record.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

const CLAIM: u32 = 1;
const EDITS: u32 = 2;
const SNAPSHOT: u32 = 3;
const DESTROYED: u32 = 4;
const FIRST_PART: u32 = 5;
const FURTHER_PART: u32 = 6;
const LAST_PART: u32 = 7;
const KIND_MAX: u32 = LAST_PART;
const CHECKSUM_BYTES: usize = 4;
const KIND_OFFSET: usize = 96;

/// The bytes of a record.
///
/// # Errors
/// `Limit` when it is larger than [`RECORD_BYTES_MAX`] or an edit is beyond its limits.
pub fn encode_record(record: &Record) -> Result<Bytes> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(&RECORD_MAGIC);
    out.extend_from_slice(&RECORD_VERSION.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&Edit::features_of(edits_of(&record.kind)).to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&record.incarnation.to_le_bytes());
    out.extend_from_slice(&record.slot.to_le_bytes());
    out.extend_from_slice(&record.epoch.to_le_bytes());
    out.extend_from_slice(&record.attempt.to_le_bytes());
    out.extend_from_slice(&record.predecessor_hash.to_le_bytes());
    out.extend_from_slice(&record.snapshot_slot.to_le_bytes());
    let (kind, count) = match &record.kind {
        RecordKind::Claim(_) => (CLAIM, 0),
        RecordKind::Edits(edits) => (EDITS, u32::try_from(edits.len()).unwrap_or(u32::MAX)),
        RecordKind::Part(part, edits) => {
            let kind = match part {
                Part::First => FIRST_PART,
                Part::Further => FURTHER_PART,
                Part::Last => LAST_PART,
            };
            (kind, u32::try_from(edits.len()).unwrap_or(u32::MAX))
        }
        RecordKind::Snapshot { .. } => (SNAPSHOT, 0),
        RecordKind::Destroyed => (DESTROYED, 0),
    };
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    match &record.kind {
        RecordKind::Edits(edits) | RecordKind::Part(_, edits) => {
            for edit in edits {
                encode_edit(edit, &mut out)?;
            }
        }
        RecordKind::Snapshot { slot, epoch, record_hash, random, length, checksum } => {
            out.extend_from_slice(&slot.to_le_bytes());
            out.extend_from_slice(&epoch.to_le_bytes());
            out.extend_from_slice(&record_hash.to_le_bytes());
            for word in [random, length, checksum] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        RecordKind::Claim(writer) => encode_writer(writer, &mut out)?,
        RecordKind::Destroyed => {}
    }
    let length = out.len() + CHECKSUM_BYTES;
    if length > RECORD_BYTES_MAX {
        return Err(FormatError::limit(format!(
            "a manifest record of {length} bytes; at most {RECORD_BYTES_MAX}"
        )));
    }
    out[12..16].copy_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    Ok(out.into())
}

fn edits_of(kind: &RecordKind) -> &[Edit] {
    match kind {
        RecordKind::Edits(edits) | RecordKind::Part(_, edits) => edits,
        _ => &[],
    }
}

/// The hash by which a record's successor names it.
pub fn record_hash(bytes: &[u8]) -> u128 {
    hash128(bytes)
}

/// Reads a record from the bytes of its object.
///
/// The checksum is checked before anything else but magic and length, so that `Newer` is only said
/// of sound bytes.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset.
pub fn decode_record(bytes: &[u8]) -> Result<Record> {
    let mut reader = Reader::new(bytes);
    let magic = reader.array::<8>()?;
    if magic != RECORD_MAGIC {
        let expected = format!("the magic of a manifest record ({})", RECORD_MAGIC.escape_ascii());
        return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
    }
    let version = reader.u32()?;
    let length = reader.u32()? as usize;
    if length != bytes.len() || !(RECORD_HEADER_BYTES + CHECKSUM_BYTES..=RECORD_BYTES_MAX).contains(&length) {
        return Err(FormatError::damaged(
            12,
            format!("a record of {} bytes", bytes.len()),
            format!("{length}"),
        ));
    }
    let (body, stored) = bytes.split_at(length - CHECKSUM_BYTES);
    let stored = Reader::new(stored).u32()?;
    if crc32c(body) != stored {
        return Err(FormatError::checksum(body.len(), crc32c(body), stored));
    }
    check_version(8, version, RECORD_VERSION)?;
    let features = reader.u64()?;
    check_features(16, features, RECORD_FEATURES_KNOWN)?;
    reader.u64()?;
    let record = Record {
        incarnation: reader.u64()?,
        slot: reader.u64()?,
        epoch: reader.u64()?,
        attempt: reader.u128()?,
        predecessor_hash: reader.u128()?,
        snapshot_slot: reader.u64()?,
        kind: RecordKind::Destroyed,
    };
    let (kind, count) = (reader.u32()?, reader.u32()?);
    if kind == 0 {
        return Err(FormatError::damaged(KIND_OFFSET, "a kind of record", "kind 0"));
    }
    if kind > KIND_MAX {
        return Err(FormatError::newer(KIND_OFFSET, format!("manifest record of kind {kind}")));
    }
    let mut reader = Reader::new(&body[RECORD_HEADER_BYTES..]);
    let kind =
        decode_kind(&mut reader, kind, count).map_err(|error| error.shifted(RECORD_HEADER_BYTES as u64))?;
    let wanted = Edit::features_of(edits_of(&kind));
    if wanted & !features != 0 {
        return Err(FormatError::damaged(16, format!("feature bits {wanted:#x}"), format!("{features:#x}")));
    }
    Ok(Record { kind, ..record })
}

fn decode_kind(reader: &mut Reader<'_>, kind: u32, count: u32) -> Result<RecordKind> {
    let kind = match kind {
        CLAIM => RecordKind::Claim(decode_writer(reader)?),
        EDITS => RecordKind::Edits(decode_edits(reader, count)?),
        FIRST_PART => RecordKind::Part(Part::First, decode_edits(reader, count)?),
        FURTHER_PART => RecordKind::Part(Part::Further, decode_edits(reader, count)?),
        LAST_PART => RecordKind::Part(Part::Last, decode_edits(reader, count)?),
        SNAPSHOT => RecordKind::Snapshot {
            slot: reader.u64()?,
            epoch: reader.u64()?,
            record_hash: reader.u128()?,
            random: reader.u64()?,
            length: reader.u64()?,
            checksum: reader.u64()?,
        },
        _ => RecordKind::Destroyed,
    };
    reader.end()?;
    Ok(kind)
}

fn decode_edits(reader: &mut Reader<'_>, count: u32) -> Result<Vec<Edit>> {
    // Grows with the bytes present, not with the claimed count.
    let mut edits = Vec::new();
    for _ in 0..count {
        edits.push(decode_edit(reader)?);
    }
    Ok(edits)
}
