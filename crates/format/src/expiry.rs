//! When values end: the last bytes of entries that do, and what a table's description says of them.
//!
//! **The value of an expiring put** (kind 7):
//!
//! | bytes | field |
//! |---|---|
//! | | the value, which so keeps its place and its alignment |
//! | 8 | when it ends: milliseconds of database time since the Unix epoch |
//!
//! A **separated expiring put** (kind 11) has its reference in the place of the value.
//!
//! **The value of an expiring merge** (kind 9), and of a list of such (kind 10):
//!
//! | bytes | field |
//! |---|---|
//! | | the operand, or the list |
//! | 8 | when it was written, of a list the oldest of it, in database time |
//! | 8 | when what it comes to ends, of a list by the newest of it, in database time |
//!
//! An older entry of the key is under it if that entry ended after the operand was written. Else it
//! lies over nothing, whatever the time. So it does not matter when operands are folded.
//!
//! **Expiry of a table**, property 3 of its description, critical:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | number of entries that end |
//! | 8 | when the first of them ends |
//! | 8 | when the last of them ends |
//! | 8 | when the first operand among them was written; all bits set: there is none |
//!
//! An entry below an operand that ends counts as ending no sooner than that does: it is needed as
//! long. What ended before the time in the last field is under no operand of the table.
//!
//! **Database time** is what the manifest's edit 25 bounds: [`Times`].

use crate::codec::Reader;
use crate::error::{FormatError, Result};
use crate::key::EntryKind;

/// Bytes of an expiry behind its value.
pub const EXPIRY_BYTES: usize = 8;
/// The latest moment at which a value may end: about 31,000 years on, so that sums do not overflow.
pub const EXPIRY_MS_MAX: u64 = 1_000_000_000_000_000;
/// The id of [`Expiry`] among the properties of a description.
pub const PROPERTY_EXPIRY: u16 = 3;

/// Value and end of an expiring put.
///
/// # Errors
/// `Damaged` when it is too short to hold an end, or ends beyond all time.
#[inline]
pub fn split_expiring(stored: &[u8]) -> Result<(&[u8], u64)> {
    match stored.split_last_chunk::<EXPIRY_BYTES>() {
        Some((value, end)) if u64::from_le_bytes(*end) <= EXPIRY_MS_MAX => {
            Ok((value, u64::from_le_bytes(*end)))
        }
        _ => Err(not_expiring(stored)),
    }
}

#[cold]
fn not_expiring(stored: &[u8]) -> FormatError {
    let end = stored.last_chunk::<EXPIRY_BYTES>().map(|end| u64::from_le_bytes(*end));
    let found = end.map_or(format!("{} bytes", stored.len()), |end| format!("an end at {end} ms"));
    FormatError::damaged(0, format!("a value and an end of at most {EXPIRY_MS_MAX} ms"), found)
}

/// What an expiring put stores.
pub fn join_expiring(value: &[u8], expires_ms: u64) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len() + EXPIRY_BYTES);
    stored.extend_from_slice(value);
    stored.extend_from_slice(&expires_ms.to_le_bytes());
    stored
}

/// The times of an operand that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandTimes {
    /// When it was written.
    pub written_ms: u64,
    /// When what it comes to ends.
    pub expires_ms: u64,
}

/// Bytes of the times behind an operand.
pub const OPERAND_TIMES_BYTES: usize = 16;

/// Operand, or list of operands, and times of an expiring merge.
///
/// # Errors
/// `Damaged` when it is too short to hold them, or they lie beyond all time.
#[inline]
pub fn split_operand(stored: &[u8]) -> Result<(&[u8], OperandTimes)> {
    let (rest, expires_ms) = split_expiring(stored)?;
    let (operand, written_ms) = split_expiring(rest)?;
    Ok((operand, OperandTimes { written_ms, expires_ms }))
}

/// What an expiring merge stores.
pub fn join_operand(operand: &[u8], times: OperandTimes) -> Vec<u8> {
    let mut stored = Vec::with_capacity(operand.len() + OPERAND_TIMES_BYTES);
    stored.extend_from_slice(operand);
    stored.extend_from_slice(&times.written_ms.to_le_bytes());
    stored.extend_from_slice(&times.expires_ms.to_le_bytes());
    stored
}

/// When an entry ends; `None` of one that does not.
///
/// # Errors
/// As [`split_expiring`] and [`split_operand`].
#[inline]
pub fn expiry_of(kind: EntryKind, stored: &[u8]) -> Result<Option<u64>> {
    match kind {
        EntryKind::ExpiringPut | EntryKind::SeparatedExpiringPut => {
            split_expiring(stored).map(|(_, expires_ms)| Some(expires_ms))
        }
        EntryKind::ExpiringMerge | EntryKind::ExpiringMergeList => {
            split_operand(stored).map(|(_, times)| Some(times.expires_ms))
        }
        _ => Ok(None),
    }
}

/// When entries end that are kept together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Number of entries that end.
    pub entries: u64,
    /// When the first of them ends.
    pub earliest_ms: u64,
    /// When the last of them ends.
    pub latest_ms: u64,
    /// When the first operand among them was written; `u64::MAX`: there is none.
    pub written_ms: u64,
}

impl Expiry {
    /// Of one value.
    pub fn of(expires_ms: u64) -> Expiry {
        Expiry { entries: 1, earliest_ms: expires_ms, latest_ms: expires_ms, written_ms: u64::MAX }
    }

    /// Of one entry; `None` of one that does not end.
    ///
    /// # Errors
    /// As [`expiry_of`].
    pub fn of_entry(kind: EntryKind, stored: &[u8]) -> Result<Option<Expiry>> {
        match kind {
            EntryKind::ExpiringMerge | EntryKind::ExpiringMergeList => {
                let (_, OperandTimes { written_ms, expires_ms }) = split_operand(stored)?;
                Ok(Some(Expiry { written_ms, ..Expiry::of(expires_ms) }))
            }
            _ => Ok(expiry_of(kind, stored)?.map(Expiry::of)),
        }
    }

    /// Of both.
    #[must_use]
    pub fn with(self, other: Expiry) -> Expiry {
        Expiry {
            entries: self.entries + other.entries,
            earliest_ms: self.earliest_ms.min(other.earliest_ms),
            latest_ms: self.latest_ms.max(other.latest_ms),
            written_ms: self.written_ms.min(other.written_ms),
        }
    }

    /// As a property's value.
    pub fn encode(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.entries.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.earliest_ms.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.latest_ms.to_le_bytes());
        bytes[24..].copy_from_slice(&self.written_ms.to_le_bytes());
        bytes
    }

    /// Out of a property's value.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(value: &[u8]) -> Result<Expiry> {
        let mut reader = Reader::new(value);
        let found = Expiry {
            entries: reader.u64()?,
            earliest_ms: reader.u64()?,
            latest_ms: reader.u64()?,
            written_ms: reader.u64()?,
        };
        reader.end()?;
        if found.entries == 0 || found.earliest_ms > found.latest_ms || found.latest_ms > EXPIRY_MS_MAX {
            return Err(FormatError::damaged(
                0,
                "entries that end, from a time to a later one",
                format!("{found:?}"),
            ));
        }
        Ok(found)
    }
}

/// What the manifest says of the database's time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// It had come when this was said: readers judge by it.
    pub reached_ms: u64,
    /// Nothing was or will be judged by a later time before a record says more: a successor begins
    /// here. Not below `reached_ms`.
    pub bound_ms: u64,
    /// It had come an hour before, and nobody had set the time back since: what ended before may be
    /// destroyed. Not above `reached_ms`.
    pub settled_ms: u64,
}

impl Times {
    /// Whether the times are in order.
    pub fn is_sound(&self) -> bool {
        self.settled_ms <= self.reached_ms
            && self.reached_ms <= self.bound_ms
            && self.bound_ms <= EXPIRY_MS_MAX
    }
}

#[cfg(test)]
mod tests;
