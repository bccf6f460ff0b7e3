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
//! **Kinds**, the low byte of a trailer:
//!
//! | kind | name | says |
//! |---|---|---|
//! | 1 | put | the key has this value |
//! | 2 | delete | the key has no value |
//! | 3 | single delete | as delete, and its writer says that one put lies below it at most |
//! | 4 | merge | the value is an operand for the keyspace's merge operator |
//! | 5 | range delete | the keys from this one up to the one in the value, without that one, have no value |
//! | 6 | separated put | the key has a value, and the entry's value says where that lies ([`crate::value_object`]); in tables only |
//! | 7 | expiring put | the key has this value until a time, which the value's last bytes say ([`crate::expiry`]) |
//! | 8 | merge list | several operands, oldest first: see [`crate::operands`] |
//! | 9 | expiring merge | as merge; what it makes has a time at which it ends, and the operand one at which it was written ([`crate::expiry`]) |
//! | 10 | expiring merge list | as merge list, with the same times |
//! | 11 | separated expiring put | as separated put, and it ends as an expiring put does; in tables only |
//!
//! A range delete is an operation of logs and batches. In tables it is no entry among the others:
//! see [`crate::ranges`].
//!
//! This version knows the kinds of [`EntryKind`] and refuses an entry of any other, in a log as in
//! a table. A kind from 3 on has a feature bit of its own, with the number of the kind: in the
//! footer and the description of each table that holds such entries, and, before the first of them
//! is written, in the settings of its keyspace ([`EntryKind::feature`]).

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
///
/// A kind is here once every path resolves it; the others are numbers that are kept free, and are
/// refused like any number that nobody has given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// The key has this value.
    Put = 1,
    /// The key has no value.
    Delete = 2,
    /// The key has no value, and its writer says that one put lies below at most: both go together.
    SingleDelete = 3,
    /// The value is an operand for the keyspace's merge operator.
    Merge = 4,
    /// The keys from this one up to the one that is the value, without that one, have no value. In
    /// logs and batches only.
    RangeDelete = 5,
    /// The key has a value until a time, and none from then on.
    ExpiringPut = 7,
    /// The value holds several operands: see [`crate::operands`].
    MergeList = 8,
    /// The key has a value, which lies in a value object: the entry's value is a reference
    /// ([`crate::value_object`]). In tables only: logs and memtables hold the value itself.
    SeparatedPut = 6,
    /// An operand, when it was written, and when what it comes to ends.
    ExpiringMerge = 9,
    /// Several operands, when the oldest was written, and when what they come to ends.
    ExpiringMergeList = 10,
    /// The key has a value in a value object until a time. In tables only.
    SeparatedExpiringPut = 11,
}

impl EntryKind {
    /// All kinds.
    pub const ALL: [EntryKind; 11] = [
        EntryKind::Put,
        EntryKind::Delete,
        EntryKind::SingleDelete,
        EntryKind::Merge,
        EntryKind::RangeDelete,
        EntryKind::SeparatedPut,
        EntryKind::ExpiringPut,
        EntryKind::MergeList,
        EntryKind::ExpiringMerge,
        EntryKind::ExpiringMergeList,
        EntryKind::SeparatedExpiringPut,
    ];

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
            8 => EntryKind::MergeList,
            9 => EntryKind::ExpiringMerge,
            10 => EntryKind::ExpiringMergeList,
            11 => EntryKind::SeparatedExpiringPut,
            _ => return None,
        })
    }

    /// Whether the entry takes values away and holds none.
    pub const fn is_delete(self) -> bool {
        match self {
            EntryKind::Put
            | EntryKind::Merge
            | EntryKind::SeparatedPut
            | EntryKind::ExpiringPut
            | EntryKind::MergeList
            | EntryKind::ExpiringMerge
            | EntryKind::ExpiringMergeList
            | EntryKind::SeparatedExpiringPut => false,
            EntryKind::Delete | EntryKind::SingleDelete | EntryKind::RangeDelete => true,
        }
    }

    /// Whether batches and logs may hold such entries.
    #[inline]
    pub const fn is_logged(self) -> bool {
        match self {
            EntryKind::Put
            | EntryKind::Delete
            | EntryKind::SingleDelete
            | EntryKind::Merge
            | EntryKind::RangeDelete
            | EntryKind::ExpiringPut
            | EntryKind::MergeList
            | EntryKind::ExpiringMerge
            | EntryKind::ExpiringMergeList => true,
            EntryKind::SeparatedPut | EntryKind::SeparatedExpiringPut => false,
        }
    }

    /// The incompatible feature bits of what holds such entries: none of the kinds that every
    /// version reads, and of others the bit with the kind's number.
    #[inline]
    pub const fn feature(self) -> u64 {
        match self {
            EntryKind::Put | EntryKind::Delete => 0,
            EntryKind::SingleDelete
            | EntryKind::Merge
            | EntryKind::RangeDelete
            | EntryKind::SeparatedPut
            | EntryKind::ExpiringPut
            | EntryKind::MergeList
            | EntryKind::ExpiringMerge
            | EntryKind::ExpiringMergeList
            | EntryKind::SeparatedExpiringPut => 1 << self as u8,
        }
    }
}

/// A kind by its byte, for people.
pub fn kind_name(byte: u8) -> String {
    let name = match byte {
        1 => "put",
        2 => "delete",
        3 => "single delete",
        4 => "merge",
        5 => "range delete",
        6 => "separated put",
        7 => "expiring put",
        8 => "merge list",
        9 => "expiring merge",
        10 => "expiring merge list",
        11 => "separated expiring put",
        _ => return format!("{byte}"),
    };
    format!("{byte} ({name})")
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

    /// The same kind under another number.
    #[inline]
    #[must_use]
    pub const fn at(self, sequence: SequenceNumber) -> Trailer {
        Trailer(sequence.0 << 8 | self.0 & 0xff)
    }

    /// The kind, if this version knows it.
    #[inline]
    pub const fn kind(self) -> Option<EntryKind> {
        EntryKind::from_byte(self.kind_byte())
    }

    /// The kind's byte, whether this version knows it or not.
    #[inline]
    pub const fn kind_byte(self) -> u8 {
        (self.0 & 0xff) as u8
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

/// Feature bits of the kinds that this version knows.
pub const ENTRY_FEATURES_KNOWN: u64 = EntryKind::SingleDelete.feature()
    | EntryKind::Merge.feature()
    | EntryKind::RangeDelete.feature()
    | EntryKind::SeparatedPut.feature()
    | EntryKind::ExpiringPut.feature()
    | EntryKind::MergeList.feature()
    | EntryKind::ExpiringMerge.feature()
    | EntryKind::ExpiringMergeList.feature()
    | EntryKind::SeparatedExpiringPut.feature();

/// The feature bits of entries whose values lie in value objects.
pub const ENTRY_FEATURES_APART: u64 =
    EntryKind::SeparatedPut.feature() | EntryKind::SeparatedExpiringPut.feature();

/// The feature bits of operands.
pub const ENTRY_FEATURES_OPERANDS: u64 = EntryKind::Merge.feature()
    | EntryKind::MergeList.feature()
    | EntryKind::ExpiringMerge.feature()
    | EntryKind::ExpiringMergeList.feature();

/// The feature bits of entries that end.
pub const ENTRY_FEATURES_ENDING: u64 = EntryKind::ExpiringPut.feature()
    | EntryKind::ExpiringMerge.feature()
    | EntryKind::ExpiringMergeList.feature()
    | EntryKind::SeparatedExpiringPut.feature();

/// Feature bits of the kinds that every keyspace may hold which this version makes: no write then
/// needs a change of its settings first.
pub const ENTRY_FEATURES_OF_KEYSPACES: u64 =
    EntryKind::SingleDelete.feature() | EntryKind::RangeDelete.feature() | EntryKind::ExpiringPut.feature();

/// Bits below this one are those of kinds.
const KIND_FEATURES_END: u8 = 16;

/// Refuses the feature bits of what holds entries that this version does not know.
///
/// # Errors
/// `Newer`, which names the kinds.
pub(crate) fn check_entry_features(offset: usize, bits: u64) -> Result<()> {
    let unknown = bits & !ENTRY_FEATURES_KNOWN;
    if unknown == 0 {
        return Ok(());
    }
    let kinds: Vec<_> =
        (3..KIND_FEATURES_END).filter(|kind| unknown & (1 << kind) != 0).map(kind_name).collect();
    let says = match &kinds[..] {
        [] => String::new(),
        kinds => format!(", which say: entries of kind {}", kinds.join(", ")),
    };
    Err(FormatError::newer(offset, format!("unknown incompatible feature bits {unknown:#x}{says}")))
}

/// Checks what an operation of this kind says.
///
/// # Errors
/// As [`check_limits`] and [`check_range`].
#[inline]
pub fn check_entry(kind: EntryKind, key: &[u8], value: &[u8]) -> Result<()> {
    check_limits(key, value)?;
    if kind == EntryKind::RangeDelete { check_range(key, value) } else { Ok(()) }
}

/// Checks a range of keys: from `from` on, without `to`.
///
/// # Errors
/// `Limit` when `to` is beyond the limit of keys, or holds no key.
#[cold]
pub fn check_range(from: &[u8], to: &[u8]) -> Result<()> {
    check_limits(to, &[])?;
    if from < to {
        return Ok(());
    }
    let (from, to) = (from.escape_ascii(), to.escape_ascii());
    Err(FormatError::limit(format!("a range from \"{from}\" to \"{to}\", which holds no key")))
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
