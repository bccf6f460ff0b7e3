//! What a write may ask of a key before it takes effect, and what came of it:
//! [`crate::Keyspace::put_if`], [`crate::Batch::require`].

use tombolo_format::key::SequenceNumber;

use crate::value::Value;

/// What must hold of a key, or the write that names it does not take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// The key has no value.
    Absent,
    /// The key has a value, whatever it is.
    Present,
    /// The key has a value of exactly these bytes.
    Equal(Vec<u8>),
    /// The key is as a read found it: the version of this number is its newest, or it has no value
    /// still ([`crate::Keyspace::get_versioned`] gives the number). Equal bytes that were written
    /// since are another version.
    Unchanged(Option<u64>),
}

impl Condition {
    /// A condition of [`Condition::Equal`].
    pub fn equal(value: impl AsRef<[u8]>) -> Condition {
        Condition::Equal(value.as_ref().to_vec())
    }

    /// The condition that a key is as a versioned read found it.
    pub fn unchanged(found: Option<&Versioned>) -> Condition {
        Condition::Unchanged(found.map(|found| found.sequence))
    }

    /// Whether it holds of a key whose newest version is this, if it has a value.
    pub(crate) fn holds(&self, found: Option<(SequenceNumber, &[u8])>) -> bool {
        match (self, found) {
            (Condition::Absent | Condition::Unchanged(None), found) => found.is_none(),
            (Condition::Present, found) => found.is_some(),
            (Condition::Equal(wanted), Some((_, value))) => value == &wanted[..],
            (Condition::Unchanged(Some(wanted)), Some((sequence, _))) => sequence.0 == *wanted,
            (Condition::Equal(_) | Condition::Unchanged(Some(_)), None) => false,
        }
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        if let Condition::Equal(value) = self { value.len() } else { 0 }
    }
}

/// A value with the number of the write that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Value,
    /// The sequence number of its version. Every write of the key makes a greater one.
    pub sequence: u64,
}

/// What came of a write with conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a write whose conditions do not hold is no error, and writes nothing"]
pub struct Decision {
    /// The number that the write's last operation got; of a batch that writes nothing, a number up
    /// to which it looked. `None`: some condition does not hold, and nothing was written.
    pub sequence: Option<u64>,
    /// What was found before the write, for each condition in order; `None` for a key without a
    /// value.
    pub found: Vec<Option<Versioned>>,
    /// The conditions that do not hold, by their places in `found`.
    pub unmet: Vec<usize>,
}

impl Decision {
    /// Whether all conditions held, and the write took effect.
    pub fn is_met(&self) -> bool {
        self.sequence.is_some()
    }
}

#[cfg(test)]
mod tests;
