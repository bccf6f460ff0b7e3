//! What a database is to another one while nobody may write to it: a mirror of it, or what it was
//! before it moved. And of which table of another database a table is a copy.
//!
//! A database with a mark is read like any other. No claim passes a mark but that of the process
//! that made it, or of a person who takes it away ([`super`], edit 28).

use super::TableName;
use crate::codec::Reader;
use crate::error::Result;
use crate::key::SequenceNumber;

/// Id of the property of a description whose table is a copy: {database u64, epoch u64, random
/// u64}, of the table that was copied.
pub const PROPERTY_COPY_OF: u16 = 12;
/// Bytes of its value.
pub const COPY_OF_BYTES: usize = 24;

/// What kind of mark it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkKind {
    /// It shows what another database held.
    Mirror,
    /// It is about to become another one, which may hold all of it already.
    Moving,
    /// It has become another one.
    Moved,
}

/// A database's mark.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// What kind it is.
    pub kind: MarkKind,
    /// The URI of the other database, without secrets.
    pub place: String,
    /// The random number of the other database's life.
    pub database: u64,
    /// The number of that life.
    pub incarnation: u64,
    /// Of a mirror the epoch of the state that it shows; 0: it shows none yet.
    pub epoch: u64,
    /// Of a mirror the slot of that state; 0: it shows none yet. Of a database that is about to
    /// move, 1: the other one holds all of it; 0: that is not known.
    pub slot: u64,
    /// All writes up to here are in it, and none after.
    pub sequence: SequenceNumber,
    /// Of a mirror the time at which the other one had nothing newer, in milliseconds since the
    /// Unix epoch, by the clock of the process that mirrors.
    pub unix_ms: u64,
}

/// A table of another database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyOf {
    /// The random number of that database's life.
    pub database: u64,
    /// Its name there.
    pub name: TableName,
}

impl CopyOf {
    /// The property's value.
    pub fn encode(self) -> [u8; COPY_OF_BYTES] {
        let mut value = [0; COPY_OF_BYTES];
        value[..8].copy_from_slice(&self.database.to_le_bytes());
        value[8..16].copy_from_slice(&self.name.epoch.to_le_bytes());
        value[16..].copy_from_slice(&self.name.random.to_le_bytes());
        value
    }

    /// Reads the property's value.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(value: &[u8]) -> Result<CopyOf> {
        let mut reader = Reader::new(value);
        let (database, epoch, random) = (reader.u64()?, reader.u64()?, reader.u64()?);
        reader.end()?;
        Ok(CopyOf { database, name: TableName { epoch, random } })
    }
}
