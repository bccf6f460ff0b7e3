//! A value that a read found.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use tombolo_format::aligned;

/// A value, or a key of a scan. Cheap to clone; keeps the memory alive that it lies in, so copy it
/// out if you keep it long.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(Bytes);

impl Value {
    /// The bytes, sharing the memory.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// A copy in memory of its own.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// `value`, in memory aligned as its keyspace asks: as it is when it lies right.
#[inline]
pub(crate) fn aligned(value: Bytes, alignment: usize) -> Value {
    if aligned::is_aligned(&value, alignment) {
        Value(value)
    } else {
        Value(aligned::copy(&value, alignment))
    }
}

/// Gives `value` to `read`, in memory aligned as its keyspace asks: as it is when it lies right.
#[inline]
pub(crate) fn read_aligned<R>(value: &[u8], alignment: usize, read: impl FnOnce(&[u8]) -> R) -> R {
    if aligned::is_aligned(value, alignment) { read(value) } else { read(&aligned::copy(value, alignment)) }
}

/// The value at which a cursor stands, in aligned memory where it does not lie right itself. Keeps
/// that memory from entry to entry.
#[derive(Debug)]
pub(crate) struct AlignedEntry {
    alignment: usize,
    memory: Vec<u8>,
    start: usize,
}

impl AlignedEntry {
    pub(crate) fn new(alignment: usize) -> AlignedEntry {
        AlignedEntry { alignment, memory: Vec::new(), start: 0 }
    }

    /// Whether values are aligned at all.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.alignment > 1
    }

    /// The cursor stands at `value` now.
    #[inline]
    pub(crate) fn stand_at(&mut self, value: &[u8]) {
        if !aligned::is_aligned(value, self.alignment) {
            self.start = aligned::copy_into(value, self.alignment, &mut self.memory);
        }
    }

    /// `value`, at which the cursor stands, in aligned memory.
    #[inline]
    pub(crate) fn get<'a>(&'a self, value: &'a [u8]) -> &'a [u8] {
        if aligned::is_aligned(value, self.alignment) {
            value
        } else if value.is_empty() {
            aligned::empty()
        } else {
            self.memory.get(self.start..).unwrap_or_default()
        }
    }

    /// The same, to keep.
    pub(crate) fn keep(&self, value: Bytes) -> Value {
        aligned(value, self.alignment)
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Value {
        Value(bytes)
    }
}

impl From<Value> for Bytes {
    fn from(value: Value) -> Bytes {
        value.0
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        *self.0 == **other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        *self.0 == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        *self.0 == **other
    }
}

impl PartialEq<Vec<u8>> for Value {
    fn eq(&self, other: &Vec<u8>) -> bool {
        *self.0 == **other
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
