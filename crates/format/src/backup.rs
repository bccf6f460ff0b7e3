//! Objects of a place that keeps backups of one database, and its changes.
//!
//! | name | holds |
//! |---|---|
//! | `database` | which database it is of |
//! | `backups/{number}` | a backup: its tables, and the state that names them |
//! | `tables/{epoch}-{random}` | a table or value object, its bytes as the database had them |
//! | `changes/{after}-{last}` | changes that came after a number, up to another |
//! | `locks/{random}` | empty; somebody makes a backup, or deletes some |
//!
//! Numbers in names have 16 hexadecimal digits. Each object ends with the checksum (xxh3, 64 bits)
//! of all before it, but for tables, whose checksums are in the backups that name them.
//!
//! **Database:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLBKPL` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | 0 |
//! | 16 | 8 | the database's id, which its manifest says |
//! | 24 | 8 | checksum |
//!
//! **Backup:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLBKUP` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | number of tables |
//! | 16 | 8 | incompatible feature bits (0) |
//! | 24 | 8 | the database's id |
//! | 32 | 8 | its number |
//! | 40 | 8 | greatest sequence number in it |
//! | 48 | 8 | the state's time of creation, in milliseconds since the Unix epoch |
//! | 56 | 8 | epoch of the state |
//! | 64 | | tables: each epoch (u64), random (u64), bytes (u64), checksum (u64) |
//! | | | a manifest snapshot ([`crate::manifest::snapshot`]) |
//! | −8 | 8 | checksum |
//!
//! The snapshot's identity is {database, number, database}.
//!
//! **Changes:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLCHGS` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | number of changes, at least 1 |
//! | 16 | 8 | the database's id |
//! | 24 | 8 | number after which they come |
//! | 32 | | changes: each its number (u64), its bytes (u32), a change ([`crate::change`]) |
//! | −8 | 8 | checksum |

use crate::change::Change;
use crate::checksum::StreamHash;
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features, check_version};
use crate::manifest::TableName;
use crate::manifest::snapshot::SnapshotIdentity;

/// The version written of all three, and the newest read.
pub const BACKUP_VERSION: u32 = 1;
/// Bytes of the object that says which database it is of.
pub const BACKUP_PLACE_BYTES: usize = 32;
/// Bytes of a backup before its tables.
pub const BACKUP_HEADER_BYTES: usize = 64;
/// Bytes of changes before the first.
pub const CHANGES_HEADER_BYTES: usize = 32;
/// Most bytes of an object of changes.
pub const CHANGES_BYTES_MAX: usize = 128 << 20;
const TABLE_BYTES: usize = 32;
const CHANGE_HEAD_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 8;
const PLACE_MAGIC: [u8; 8] = *b"TMBLBKPL";
const BACKUP_MAGIC: [u8; 8] = *b"TMBLBKUP";
const CHANGES_MAGIC: [u8; 8] = *b"TMBLCHGS";

fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = StreamHash::new();
    hash.update(bytes);
    hash.digest()
}

fn seal(out: &mut Vec<u8>) {
    let sum = checksum(out);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// The bytes before the checksum, once that is right.
fn opened(bytes: &[u8], magic: [u8; 8]) -> Result<&[u8]> {
    let found = Reader::new(bytes).array::<8>()?;
    if found != magic {
        let expected = format!("the magic {}", magic.escape_ascii());
        return Err(FormatError::damaged(0, expected, found.escape_ascii().to_string()));
    }
    let at = bytes.len().saturating_sub(CHECKSUM_BYTES);
    let (body, sum) = bytes.split_at(at);
    let (expected, found) = (Reader::new(sum).u64()?, checksum(body));
    if expected != found {
        return Err(FormatError::damaged(at, format!("checksum {found:#018x}"), format!("{expected:#018x}")));
    }
    Ok(body)
}

/// The object that says of which database a place keeps backups.
pub fn encode_backup_place(database: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BACKUP_PLACE_BYTES);
    out.extend_from_slice(&PLACE_MAGIC);
    out.extend_from_slice(&BACKUP_VERSION.to_le_bytes());
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&database.to_le_bytes());
    seal(&mut out);
    out
}

/// The database of a place.
///
/// # Errors
/// `Damaged`; `Newer`.
pub fn decode_backup_place(bytes: &[u8]) -> Result<u64> {
    let mut reader = Reader::new(opened(bytes, PLACE_MAGIC)?);
    reader.take(8)?;
    check_version(8, reader.u32()?, BACKUP_VERSION)?;
    if reader.u32()? != 0 {
        return Err(FormatError::damaged(12, "0", "something else"));
    }
    let database = reader.u64()?;
    reader.end()?;
    Ok(database)
}

/// An object of the database, kept for a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackupTable {
    /// Its name in the database.
    pub name: TableName,
    /// Its bytes.
    pub length: u64,
    /// Their checksum.
    pub checksum: u64,
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupRecord {
    /// The database's id.
    pub database: u64,
    /// Its number at its place.
    pub number: u64,
    /// The greatest sequence number in it.
    pub last_sequence: u64,
    /// When its state was made, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
    /// Epoch of the state.
    pub epoch: u64,
    /// What it keeps.
    pub tables: Vec<BackupTable>,
    /// A manifest snapshot.
    pub snapshot: Vec<u8>,
}

impl BackupRecord {
    /// The identity of its snapshot.
    pub fn snapshot_identity(database: u64, number: u64) -> SnapshotIdentity {
        SnapshotIdentity { incarnation: database, slot: number, random: database }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// `Limit` for more than 2^32 - 1 tables.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let count = u32::try_from(self.tables.len())
            .map_err(|_| FormatError::limit(format!("{} tables", self.tables.len())))?;
        let bytes = BACKUP_HEADER_BYTES + self.tables.len() * TABLE_BYTES + self.snapshot.len();
        let mut out = Vec::with_capacity(bytes + CHECKSUM_BYTES);
        out.extend_from_slice(&BACKUP_MAGIC);
        out.extend_from_slice(&BACKUP_VERSION.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        for word in [0, self.database, self.number, self.last_sequence, self.created_unix_ms, self.epoch] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for BackupTable { name, length, checksum } in &self.tables {
            for word in [name.epoch, name.random, *length, *checksum] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out.extend_from_slice(&self.snapshot);
        seal(&mut out);
        Ok(out)
    }

    /// # Errors
    /// `Damaged`; `Newer`.
    pub fn decode(bytes: &[u8]) -> Result<BackupRecord> {
        let mut reader = Reader::new(opened(bytes, BACKUP_MAGIC)?);
        reader.take(8)?;
        check_version(8, reader.u32()?, BACKUP_VERSION)?;
        let count = reader.u32()? as usize;
        check_features(16, reader.u64()?, 0)?;
        let (database, number) = (reader.u64()?, reader.u64()?);
        let (last_sequence, created_unix_ms, epoch) = (reader.u64()?, reader.u64()?, reader.u64()?);
        if count > reader.remaining() / TABLE_BYTES {
            return Err(FormatError::damaged(
                12,
                "a count of tables that fits the backup",
                count.to_string(),
            ));
        }
        let mut tables = Vec::with_capacity(count);
        for _ in 0..count {
            let name = TableName { epoch: reader.u64()?, random: reader.u64()? };
            tables.push(BackupTable { name, length: reader.u64()?, checksum: reader.u64()? });
        }
        let snapshot = reader.take(reader.remaining())?.to_vec();
        Ok(BackupRecord { database, number, last_sequence, created_unix_ms, epoch, tables, snapshot })
    }
}

/// Changes that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedChanges {
    /// The database's id.
    pub database: u64,
    /// They come after this number: between it and the first there is none.
    pub after: u64,
    /// The number of each, and the change.
    pub changes: Vec<(u64, Vec<u8>)>,
}

impl ArchivedChanges {
    /// Bytes that a change adds.
    pub fn bytes_of(change: &[u8]) -> usize {
        CHANGE_HEAD_BYTES + change.len()
    }

    /// Its bytes.
    ///
    /// # Errors
    /// `Limit` when they are more than [`CHANGES_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let bytes: usize = self.changes.iter().map(|(_, change)| ArchivedChanges::bytes_of(change)).sum();
        let bytes = CHANGES_HEADER_BYTES + bytes + CHECKSUM_BYTES;
        if bytes > CHANGES_BYTES_MAX {
            return Err(FormatError::limit(format!("{bytes} bytes of changes; at most {CHANGES_BYTES_MAX}")));
        }
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&CHANGES_MAGIC);
        out.extend_from_slice(&BACKUP_VERSION.to_le_bytes());
        out.extend_from_slice(&(self.changes.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.database.to_le_bytes());
        out.extend_from_slice(&self.after.to_le_bytes());
        for (sequence, change) in &self.changes {
            out.extend_from_slice(&sequence.to_le_bytes());
            out.extend_from_slice(&(change.len() as u32).to_le_bytes());
            out.extend_from_slice(change);
        }
        seal(&mut out);
        Ok(out)
    }

    /// # Errors
    /// `Damaged`, when the changes do not ascend for one; `Newer`.
    pub fn decode(bytes: &[u8]) -> Result<ArchivedChanges> {
        let mut reader = Reader::new(opened(bytes, CHANGES_MAGIC)?);
        reader.take(8)?;
        check_version(8, reader.u32()?, BACKUP_VERSION)?;
        let count = reader.u32()? as usize;
        let (database, after) = (reader.u64()?, reader.u64()?);
        if count == 0 || count > reader.remaining() / CHANGE_HEAD_BYTES {
            return Err(FormatError::damaged(12, "a count of changes that fits", count.to_string()));
        }
        let mut changes = Vec::with_capacity(count);
        let mut last = after;
        for _ in 0..count {
            let at = reader.position();
            let sequence = reader.u64()?;
            if sequence <= last {
                return Err(FormatError::damaged(at, format!("a number above {last}"), sequence.to_string()));
            }
            last = sequence;
            let change = reader.prefixed(CHANGES_BYTES_MAX)?;
            Change::decode(change).map_err(|error| error.shifted(at as u64))?;
            changes.push((sequence, change.to_vec()));
        }
        reader.end()?;
        Ok(ArchivedChanges { database, after, changes })
    }
}

/// For fuzzing: what decodes must encode to the same bytes.
pub(crate) fn check_any(bytes: &[u8]) {
    let _place = decode_backup_place(bytes);
    if let Ok(backup) = BackupRecord::decode(bytes) {
        assert_eq!(backup.encode().as_deref(), Ok(bytes));
    }
    if let Ok(changes) = ArchivedChanges::decode(bytes) {
        assert_eq!(changes.encode().as_deref(), Ok(bytes));
    }
}

/// Examples, for tests and as seeds of fuzzing.
pub(crate) fn examples() -> [Vec<u8>; 3] {
    let backup = BackupRecord {
        database: 7,
        number: 3,
        last_sequence: 99,
        created_unix_ms: 1_764_000_000_000,
        epoch: 5,
        tables: vec![BackupTable { name: TableName { epoch: 5, random: 6 }, length: 4096, checksum: 11 }],
        snapshot: b"a snapshot".to_vec(),
    };
    let changes = ArchivedChanges {
        database: 7,
        after: 3,
        changes: vec![(4, crate::change::example()), (9, crate::change::example())],
    };
    let encoded = |bytes: Result<Vec<u8>>| bytes.unwrap_or_default();
    [encode_backup_place(7), encoded(backup.encode()), encoded(changes.encode())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_read_back_and_damage_is_seen() {
        let [place, backup, changes] = examples();
        assert_eq!(place.len(), BACKUP_PLACE_BYTES);
        assert_eq!(decode_backup_place(&place), Ok(7));
        assert_eq!(BackupRecord::decode(&backup).unwrap().tables.len(), 1);
        assert_eq!(ArchivedChanges::decode(&changes).unwrap().changes[1].0, 9);
        for bytes in [place, backup, changes] {
            check_any(&bytes);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert!(decode_backup_place(&damaged).is_err(), "{at}");
                assert!(BackupRecord::decode(&damaged).is_err(), "{at}");
                assert!(ArchivedChanges::decode(&damaged).is_err(), "{at}");
                check_any(&bytes[..at]);
            }
        }
    }

    #[test]
    fn changes_ascend_and_what_is_newer_is_refused() {
        let change = crate::change::example();
        let changes = ArchivedChanges { database: 7, after: 4, changes: vec![(4, change)] };
        let bytes = changes.encode().unwrap();
        assert!(matches!(ArchivedChanges::decode(&bytes), Err(FormatError::Damaged { .. })));
        let mut newer = examples()[1].clone();
        newer.truncate(newer.len() - CHECKSUM_BYTES);
        newer[8] = 2;
        seal(&mut newer);
        assert!(matches!(BackupRecord::decode(&newer), Err(FormatError::Newer { .. })));
    }
}
