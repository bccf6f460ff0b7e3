//! Internal keys: a user key, a sequence number and a kind.
//!
//! | bits of the trailer | content |
//! |---|---|
//! | 0–7 | kind ([`EntryKind`]) |
//! | 8–63 | sequence number |
//!
//! Order: user keys ascending as bytes (`memcmp`), then trailers descending, so that the newest
//! version of a key comes first. A seek for what a snapshot sees looks for
//! `(user key, Trailer::seek(snapshot))`: the first entry at or after it is the answer.
//!
//! Keys, values and entries that are separated or expire keep their own prefix in the value (see
//! [`EntryKind`]).

use std::cmp::Ordering;

use crate::error::{FormatError, Result};

/// Position of an operation in its stream. 56 bits; 0 is before every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// Before every operation.
    pub const ZERO: SequenceNumber = SequenceNumber(0);
    /// The largest.
    pub const MAX: SequenceNumber = SequenceNumber((1 << 56) - 1);
}

/// The first 8 bytes of a key, or of the rest of one, as a number, the first byte highest, zeros
/// for missing bytes. Of two that differ, the numbers are ordered as the keys are.
#[inline]
pub fn head_of(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None if key.is_empty() => 0,
        None => key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) << (64 - 8 * key.len()),
    }
}

/// Most bytes of a user key: what 16 bits can count.
pub const KEY_BYTES_MAX: usize = (64 << 10) - 1;

/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// What an entry of a memtable, a log payload or a table does. The byte values are the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// The key has this value.
    Put = 1,
    /// The key has no value.
    Delete = 2,
    /// As `Delete`, promised by the user to meet at most one put. Reserved.
    SingleDelete = 3,
    /// An operand for the keyspace's merge operator. Reserved.
    Merge = 4,
    /// Keys from this key to the one in the value (exclusive) have no value. Reserved.
    RangeDelete = 5,
    /// The value is a reference to a separated value. Reserved.
    SeparatedPut = 6,
    /// The value begins with its expiry (u64, milliseconds since the Unix epoch). Reserved.
    ExpiringPut = 7,
}

impl EntryKind {
    /// The greatest byte value of a kind that this version knows.
    pub const LAST: u8 = EntryKind::ExpiringPut as u8;

    /// The kind of a byte, if this version knows it.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<EntryKind> {
        Some(match byte {
            1 => EntryKind::Put,
            2 => EntryKind::Delete,
            3 => EntryKind::SingleDelete,
            4 => EntryKind::Merge,
            5 => EntryKind::RangeDelete,
            6 => EntryKind::SeparatedPut,
            7 => EntryKind::ExpiringPut,
            _ => return None,
        })
    }

    /// Whether the entry takes values away and holds none.
    pub const fn is_delete(self) -> bool {
        matches!(self, EntryKind::Delete | EntryKind::SingleDelete | EntryKind::RangeDelete)
    }
}

/// Sequence number and kind in one word; greater is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trailer(pub u64);

impl Trailer {
    /// The trailer of an entry.
    ///
    /// # Panics
    /// In debug builds, when the sequence number has more than 56 bits.
    #[inline]
    pub const fn new(sequence: SequenceNumber, kind: EntryKind) -> Trailer {
        debug_assert!(sequence.0 <= SequenceNumber::MAX.0);
        Trailer((sequence.0 << 8) | kind as u64)
    }

    /// The greatest trailer that a snapshot at `sequence` sees: a seek to it finds the newest entry
    /// visible there.
    #[inline]
    pub const fn seek(sequence: SequenceNumber) -> Trailer {
        Trailer((sequence.0 << 8) | 0xff)
    }

    /// After every entry of its user key.
    pub const LAST: Trailer = Trailer(0);

    /// Before every entry of its user key.
    pub const FIRST: Trailer = Trailer(u64::MAX);

    /// The sequence number.
    #[inline]
    pub const fn sequence(self) -> SequenceNumber {
        SequenceNumber(self.0 >> 8)
    }

    /// The kind, if this version knows it.
    #[inline]
    pub const fn kind(self) -> Option<EntryKind> {
        EntryKind::from_byte((self.0 & 0xff) as u8)
    }
}

/// A borrowed internal key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InternalKey<'a> {
    /// The user's key.
    pub user_key: &'a [u8],
    /// Sequence number and kind.
    pub trailer: Trailer,
}

impl<'a> InternalKey<'a> {
    /// An internal key.
    #[inline]
    pub const fn new(user_key: &'a [u8], trailer: Trailer) -> InternalKey<'a> {
        InternalKey { user_key, trailer }
    }
}

impl Ord for InternalKey<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.user_key.cmp(other.user_key).then_with(|| other.trailer.cmp(&self.trailer))
    }
}

impl PartialOrd for InternalKey<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Checks a key and a value against the limits.
///
/// # Errors
/// `Limit`, with the sizes.
#[inline]
pub fn check_limits(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(FormatError::limit(format!("a key of {} bytes; at most {KEY_BYTES_MAX}", key.len())));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(FormatError::limit(format!(
            "a value of {} bytes; at most {VALUE_BYTES_MAX}",
            value.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
