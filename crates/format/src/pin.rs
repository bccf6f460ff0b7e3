//! Pins: records that keep tables from deletion.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOPIN` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes of the whole pin |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 16 | id, as in its name |
//! | 56 | 4 | kind: 1 reader, 2 checkpoint, 3 clone, 4 backup, 5 job |
//! | 60 | 4 | number of tables |
//! | 64 | 8 | lease in milliseconds; 0 of a lasting pin |
//! | 72 | 8 | created, seconds since the Unix epoch |
//! | 80 | 16 each | tables {epoch u64, random u64} |
//! | | | with the incompatible bit 0, which pins of kind 3 have and no others: the clone's {incarnation u64, database u64, epoch u64, seen from u64, place} |
//! | −4 | 4 | CRC-32C of all before it |
//!
//! A place has its length (u32) before it. A leased pin's heartbeats are empty objects beside it,
//! named by the pin's id and a number that rises.

use crate::checksum::crc32c;
use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result, check_features, check_version};
use crate::manifest::{PLACE_BYTES_MAX, TableName};

/// First bytes of a pin.
pub const PIN_MAGIC: [u8; 8] = *b"TMBLOPIN";
/// The version written, and the newest read.
pub const PIN_VERSION: u32 = 1;
/// Incompatible feature bits that this program knows.
pub const PIN_FEATURES_KNOWN: u64 = FEATURE_CLONE;
/// Incompatible feature bit: a clone is named.
const FEATURE_CLONE: u64 = 1;
/// Bytes before the tables.
pub const PIN_HEADER_BYTES: usize = 80;
/// Most tables of a pin.
pub const PIN_TABLES_MAX: usize = 1 << 20;
/// Most bytes of a pin.
pub const PIN_BYTES_MAX: usize = PIN_HEADER_BYTES + 16 * PIN_TABLES_MAX + CLONE_BYTES_MAX + 4;
/// Most bytes that name a clone.
const CLONE_BYTES_MAX: usize = 32 + 4 + PLACE_BYTES_MAX;

/// What a pin is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PinKind {
    /// A reader of another process. The only kind that is leased.
    Reader = 1,
    /// A checkpoint.
    Checkpoint = 2,
    /// A clone that shares tables.
    Clone = 3,
    /// A backup that is being copied.
    Backup = 4,
    /// A compaction job elsewhere.
    Job = 5,
}

impl PinKind {
    const fn from_u32(kind: u32) -> Option<PinKind> {
        Some(match kind {
            1 => PinKind::Reader,
            2 => PinKind::Checkpoint,
            3 => PinKind::Clone,
            4 => PinKind::Backup,
            5 => PinKind::Job,
            _ => return None,
        })
    }
}

/// A pin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    /// The database's life.
    pub incarnation: u64,
    /// Fresh randomness; also its name.
    pub id: u128,
    /// What it is for.
    pub kind: PinKind,
    /// How long a heartbeat holds, in milliseconds; 0 of a lasting pin.
    pub lease_ms: u64,
    /// Seconds since the Unix epoch.
    pub created_unix_seconds: u64,
    /// What it keeps.
    pub tables: Vec<TableName>,
    /// Of kind `Clone`, and of no other: who names the tables.
    pub clone: Option<PinnedFor>,
}

/// The clone for which tables are pinned: the finder of the pin can ask there whether it is needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PinnedFor {
    /// Where the clone lies, from the pinned database's place on (`../orders-for-tests`).
    pub place: String,
    /// The clone's life.
    pub incarnation: u64,
    /// The random number of that life.
    pub database: u64,
    /// The epoch that pinned: no later one will name the pin.
    pub epoch: u64,
    /// A hash of the path by which the pinned database was reached: from another one, `place` may
    /// lead elsewhere.
    pub seen_from: u64,
}

/// The bytes of a pin.
///
/// # Errors
/// `Limit` beyond [`PIN_TABLES_MAX`], of a place that is too long, and of a clone where none
/// belongs or where one is missing.
pub fn encode_pin(pin: &Pin) -> Result<Vec<u8>> {
    let count = pin.tables.len();
    if count > PIN_TABLES_MAX {
        return Err(FormatError::limit(format!("a pin of {count} tables; at most {PIN_TABLES_MAX}")));
    }
    if pin.clone.is_some() != (pin.kind == PinKind::Clone) {
        return Err(FormatError::limit("pins of clones name the clone, and no others"));
    }
    let clone_bytes = pin.clone.as_ref().map_or(0, |clone| 32 + 4 + clone.place.len());
    if clone_bytes > CLONE_BYTES_MAX {
        return Err(FormatError::limit(format!("a place of more than {PLACE_BYTES_MAX} bytes")));
    }
    let length = PIN_HEADER_BYTES + 16 * count + clone_bytes + 4;
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(&PIN_MAGIC);
    out.extend_from_slice(&PIN_VERSION.to_le_bytes());
    out.extend_from_slice(&(length as u32).to_le_bytes());
    let features = if pin.clone.is_some() { FEATURE_CLONE } else { 0 };
    out.extend_from_slice(&features.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&pin.incarnation.to_le_bytes());
    out.extend_from_slice(&pin.id.to_le_bytes());
    out.extend_from_slice(&(pin.kind as u32).to_le_bytes());
    out.extend_from_slice(&(count as u32).to_le_bytes());
    out.extend_from_slice(&pin.lease_ms.to_le_bytes());
    out.extend_from_slice(&pin.created_unix_seconds.to_le_bytes());
    for table in &pin.tables {
        out.extend_from_slice(&table.epoch.to_le_bytes());
        out.extend_from_slice(&table.random.to_le_bytes());
    }
    if let Some(PinnedFor { place, incarnation, database, epoch, seen_from }) = &pin.clone {
        for word in [incarnation, database, epoch, seen_from] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        put_prefixed(&mut out, place.as_bytes());
    }
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    Ok(out)
}

/// Reads a pin.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset.
pub fn decode_pin(bytes: &[u8]) -> Result<Pin> {
    let mut reader = Reader::new(bytes);
    let magic = reader.array::<8>()?;
    if magic != PIN_MAGIC {
        let expected = format!("the magic of a pin ({})", PIN_MAGIC.escape_ascii());
        return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
    }
    let (version, length) = (reader.u32()?, reader.u32()? as usize);
    if length != bytes.len() || !(PIN_HEADER_BYTES + 4..=PIN_BYTES_MAX).contains(&length) {
        return Err(FormatError::damaged(12, format!("a pin of {} bytes", bytes.len()), length.to_string()));
    }
    let (body, stored) = bytes.split_at(length - 4);
    let (computed, stored) = (crc32c(body), Reader::new(stored).u32()?);
    if computed != stored {
        return Err(FormatError::checksum(body.len(), computed, stored));
    }
    check_version(8, version, PIN_VERSION)?;
    let features = reader.u64()?;
    check_features(16, features, PIN_FEATURES_KNOWN)?;
    reader.u64()?;
    let (incarnation, id, kind, count) =
        (reader.u64()?, reader.u128()?, reader.u32()?, reader.u32()? as usize);
    let kind =
        PinKind::from_u32(kind).ok_or_else(|| FormatError::newer(56, format!("pin of kind {kind}")))?;
    let (lease_ms, created_unix_seconds) = (reader.u64()?, reader.u64()?);
    if (features & FEATURE_CLONE != 0) != (kind == PinKind::Clone) {
        return Err(FormatError::damaged(
            16,
            "the feature bit of a clone's pin, and of no other",
            format!("{features:#x}"),
        ));
    }
    let bytes_of_tables = 16 * count;
    if length < PIN_HEADER_BYTES + bytes_of_tables + 4 {
        return Err(FormatError::damaged(
            60,
            format!("tables for {length} bytes"),
            format!("{count} tables"),
        ));
    }
    let mut tables = Vec::with_capacity(count);
    for _ in 0..count {
        tables.push(TableName { epoch: reader.u64()?, random: reader.u64()? });
    }
    let clone = match kind {
        PinKind::Clone => {
            let (incarnation, database, epoch, seen_from) =
                (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
            Some(PinnedFor {
                place: reader.text(PLACE_BYTES_MAX)?.to_owned(),
                incarnation,
                database,
                epoch,
                seen_from,
            })
        }
        _ => None,
    };
    if reader.position() + 4 != length {
        return Err(FormatError::damaged(
            60,
            format!("tables for {length} bytes"),
            format!("{count} tables"),
        ));
    }
    Ok(Pin { incarnation, id, kind, lease_ms, created_unix_seconds, tables, clone })
}

#[cfg(test)]
mod tests;
