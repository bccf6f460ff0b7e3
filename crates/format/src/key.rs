//! Internal keys: a user key, a sequence number and a kind.

/// Position of an operation in its stream. 56 bits; 0 is before every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// Before every operation.
    pub const ZERO: SequenceNumber = SequenceNumber(0);
    /// The largest.
    pub const MAX: SequenceNumber = SequenceNumber((1 << 56) - 1);
}

/// Most bytes of a user key.
pub const KEY_BYTES_MAX: usize = 64 << 10;

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
