//! Checkpoints: what a database was at one moment. An object of a header, and after it a manifest
//! snapshot of the state.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOCKP` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes of the header |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 16 | id: of the pin that keeps its tables, and in its name |
//! | 56 | 8 | epoch of the state |
//! | 64 | 8 | slot of the state |
//! | 72 | 8 | greatest sequence number in it |
//! | 80 | 8 | created, seconds since the Unix epoch |
//! | 88 | 8 | number of tables |
//! | 96 | 8 | bytes of the tables |
//! | 104 | 8 | entries of the tables |
//! | 112 | 8 | bytes of the snapshot that follows |
//! | 120 | 8 | its checksum (xxh3, 64 bits) |
//! | 128 | 4 | bytes of the name |
//! | 132 | | name |
//! | −4 | 4 | CRC-32C of the header before it |
//!
//! The snapshot ([`crate::manifest::snapshot`]) has the identity {incarnation, slot, lower half of
//! the id}.

use crate::batch::KEYSPACE_NAME_BYTES_MAX;
use crate::checksum::crc32c;
use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result, check_features, check_version};
use crate::key::SequenceNumber;
use crate::manifest::snapshot::SnapshotIdentity;

/// First bytes of a checkpoint.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"TMBLOCKP";
/// The version written, and the newest read.
pub const CHECKPOINT_VERSION: u32 = 1;
/// Incompatible feature bits that this program knows.
pub const CHECKPOINT_FEATURES_KNOWN: u64 = 0;
/// Bytes of a header without its name.
pub const CHECKPOINT_HEADER_BYTES_MIN: usize = 132 + 4;
/// Most bytes of a name: those of a keyspace's.
pub const CHECKPOINT_NAME_BYTES_MAX: usize = KEYSPACE_NAME_BYTES_MAX;
/// Most bytes of a header.
pub const CHECKPOINT_HEADER_BYTES_MAX: usize = CHECKPOINT_HEADER_BYTES_MIN + CHECKPOINT_NAME_BYTES_MAX;

/// The header of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointHeader {
    /// The database's life.
    pub incarnation: u64,
    /// Id of the pin that keeps its tables.
    pub id: u128,
    /// Epoch of the state.
    pub epoch: u64,
    /// Slot of the state.
    pub slot: u64,
    /// Greatest sequence number in it.
    pub last_sequence: SequenceNumber,
    /// Seconds since the Unix epoch.
    pub created_unix_seconds: u64,
    /// Number of tables.
    pub tables: u64,
    /// Their bytes.
    pub table_bytes: u64,
    /// Their entries.
    pub entries: u64,
    /// Bytes of the snapshot after the header.
    pub snapshot_bytes: u64,
    /// Checksum of the snapshot.
    pub snapshot_checksum: u64,
    /// What the user calls it.
    pub name: String,
}

impl CheckpointHeader {
    /// The identity of the snapshot after the header.
    pub fn snapshot_identity(&self) -> SnapshotIdentity {
        snapshot_identity(self.incarnation, self.slot, self.id)
    }

    /// Its bytes.
    ///
    /// # Errors
    /// `Limit` when the name is longer than [`CHECKPOINT_NAME_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        if self.name.len() > CHECKPOINT_NAME_BYTES_MAX {
            return Err(FormatError::limit(format!(
                "a name of {} bytes; at most {CHECKPOINT_NAME_BYTES_MAX}",
                self.name.len()
            )));
        }
        let length = CHECKPOINT_HEADER_BYTES_MIN + self.name.len();
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(&CHECKPOINT_MAGIC);
        out.extend_from_slice(&CHECKPOINT_VERSION.to_le_bytes());
        out.extend_from_slice(&(length as u32).to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        for word in [
            self.epoch,
            self.slot,
            self.last_sequence.0,
            self.created_unix_seconds,
            self.tables,
            self.table_bytes,
            self.entries,
            self.snapshot_bytes,
            self.snapshot_checksum,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        put_prefixed(&mut out, self.name.as_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        Ok(out)
    }

    /// Reads the header that `bytes`, the beginning of a checkpoint, start with; also returns its
    /// length.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset.
    pub fn decode(bytes: &[u8]) -> Result<(CheckpointHeader, usize)> {
        let mut reader = Reader::new(bytes);
        let magic = reader.array::<8>()?;
        if magic != CHECKPOINT_MAGIC {
            let expected = format!("the magic of a checkpoint ({})", CHECKPOINT_MAGIC.escape_ascii());
            return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
        }
        let (version, length) = (reader.u32()?, reader.u32()? as usize);
        let bounds = CHECKPOINT_HEADER_BYTES_MIN..=CHECKPOINT_HEADER_BYTES_MAX.min(bytes.len());
        if !bounds.contains(&length) {
            return Err(FormatError::damaged(
                12,
                format!("a header of {bounds:?} bytes"),
                length.to_string(),
            ));
        }
        let (body, stored) = bytes[..length].split_at(length - 4);
        let (computed, stored) = (crc32c(body), Reader::new(stored).u32()?);
        if computed != stored {
            return Err(FormatError::checksum(body.len(), computed, stored));
        }
        check_version(8, version, CHECKPOINT_VERSION)?;
        check_features(16, reader.u64()?, CHECKPOINT_FEATURES_KNOWN)?;
        reader.u64()?;
        let (incarnation, id, epoch, slot) = (reader.u64()?, reader.u128()?, reader.u64()?, reader.u64()?);
        let last_sequence = reader.u64()?;
        if last_sequence > SequenceNumber::MAX.0 {
            return Err(FormatError::damaged(72, "a sequence number of 56 bits", last_sequence.to_string()));
        }
        let header = CheckpointHeader {
            incarnation,
            id,
            epoch,
            slot,
            last_sequence: SequenceNumber(last_sequence),
            created_unix_seconds: reader.u64()?,
            tables: reader.u64()?,
            table_bytes: reader.u64()?,
            entries: reader.u64()?,
            snapshot_bytes: reader.u64()?,
            snapshot_checksum: reader.u64()?,
            name: reader.text(CHECKPOINT_NAME_BYTES_MAX)?.to_owned(),
        };
        if reader.position() + 4 != length {
            return Err(FormatError::damaged(
                128,
                format!("a name that fills {length} bytes"),
                format!("{} bytes", header.name.len()),
            ));
        }
        Ok((header, length))
    }
}

/// The identity of the snapshot in a checkpoint.
pub fn snapshot_identity(incarnation: u64, slot: u64, id: u128) -> SnapshotIdentity {
    SnapshotIdentity { incarnation, slot, random: id as u64 }
}

#[cfg(test)]
mod tests;
