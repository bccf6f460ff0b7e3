//! Ranges of keys that range deletes cover, each with the number of the newest that does.
//!
//! A range goes from a key to another one, which it does not hold. The delete hides entries of
//! strictly smaller numbers.
//!
//! - [`RangeSet`]: ranges that do not meet, each with one number. What lies under a newer range of
//!   the same set is not told any more.
//! - [`RangeLayers`]: several sets, newest first. Every number of a set is greater than all of the
//!   sets after it, so that the first set that covers a key for a moment has the answer. A table
//!   has one layer for each stripe of numbers that snapshots looked from when it was written: one,
//!   as a rule.
//!
//! **Block of ranges** of a table, a stored block without compression ([`crate::stored`]):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | number of layers |
//! | 4 | | layers, newest first |
//!
//! **Layer:** number of ranges (u32, at least 1), then the ranges, ascending and apart:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | sequence number |
//! | 8 | 2 | bytes of the first key |
//! | 10 | 2 | bytes of the key at which the range ends |
//! | 12 | | first key, then the end, which is greater |

use crate::codec::Reader;
use crate::error::{FormatError, Result};
use crate::key::SequenceNumber;

mod set;

pub use set::{Covered, RangeSet, Stretch};

/// Most bytes of a block of ranges.
pub const RANGES_BYTES_MAX: usize = 32 << 20;
/// Bytes of a range beside its keys.
pub const RANGE_HEADER_BYTES: usize = 12;
const COUNT_BYTES: usize = 4;

/// Sets of ranges, newest first. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeLayers {
    /// Invariant: none is empty; each number of one is greater than all numbers of the next.
    layers: Vec<RangeSet>,
}

impl RangeLayers {
    /// Of sets, oldest first, whose numbers ascend from set to set. Empty ones are left out.
    ///
    /// # Panics
    /// In debug builds, when they do not ascend.
    pub fn of_stripes(sets: Vec<RangeSet>) -> RangeLayers {
        let layers: Vec<_> = sets.into_iter().rev().filter(|set| !set.is_empty()).collect();
        debug_assert!(layers.is_sorted_by(|newer, older| newer.numbers().0 > older.numbers().1));
        RangeLayers { layers }
    }

    /// Whether nothing is covered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The layers, newest first.
    pub fn layers(&self) -> &[RangeSet] {
        &self.layers
    }

    /// Number of ranges in all layers.
    pub fn len(&self) -> usize {
        self.layers.iter().map(RangeSet::len).sum()
    }

    /// The greatest number, at most `snapshot`, of a delete that covers `key`, with the range
    /// around the key in which it is so.
    #[inline]
    pub fn covered(&self, key: &[u8], snapshot: SequenceNumber) -> Option<Covered<'_>> {
        self.layers.iter().find_map(|layer| layer.covered(key).filter(|covered| covered.number <= snapshot))
    }

    /// The answer for `key` as of `snapshot`, and the keys around it that have the same.
    pub fn stretch(&self, key: &[u8], snapshot: SequenceNumber) -> Stretch<'_> {
        let mut all = Stretch::default();
        for layer in &self.layers {
            let stretch = layer.stretch(key);
            let seen = stretch.number.filter(|number| *number <= snapshot);
            all = all.with(Stretch { number: seen, ..stretch });
            if seen.is_some() {
                break;
            }
        }
        all
    }

    /// All ranges, layer by layer.
    pub fn iter(&self) -> impl Iterator<Item = Covered<'_>> {
        self.layers.iter().flat_map(RangeSet::iter)
    }

    /// The smallest key that is covered, and the key before which all end.
    pub fn bounds(&self) -> Option<(&[u8], &[u8])> {
        let bounds = self.layers.iter().filter_map(RangeSet::bounds);
        bounds.reduce(|(from, to), (first, last)| (from.min(first), to.max(last)))
    }

    /// Smallest and greatest number.
    pub fn numbers(&self) -> Option<(SequenceNumber, SequenceNumber)> {
        Some((self.layers.last()?.numbers().0, self.layers.first()?.numbers().1))
    }

    /// What of it lies from `from` on and before `to`; `None` without bound.
    pub fn within(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> RangeLayers {
        let layers = self.layers.iter().map(|layer| layer.within(from, to)).filter(|set| !set.is_empty());
        RangeLayers { layers: layers.collect() }
    }

    /// Bytes of its block.
    pub fn encoded_bytes(&self) -> usize {
        let ranges = self.len() * RANGE_HEADER_BYTES;
        let keys: usize = self.iter().map(|range| range.from.len() + range.to.len()).sum();
        COUNT_BYTES * (1 + self.layers.len()) + ranges + keys
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> usize {
        self.layers.iter().map(RangeSet::memory_bytes).sum::<usize>() + size_of::<RangeLayers>()
    }

    /// The block's bytes.
    ///
    /// # Errors
    /// `Limit` beyond [`RANGES_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let bytes = self.encoded_bytes();
        if bytes > RANGES_BYTES_MAX {
            let message = format!("range deletes of {bytes} bytes in one table; at most {RANGES_BYTES_MAX}");
            return Err(FormatError::limit(message));
        }
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&(self.layers.len() as u32).to_le_bytes());
        for layer in &self.layers {
            out.extend_from_slice(&(layer.len() as u32).to_le_bytes());
            for Covered { from, to, number } in layer.iter() {
                out.extend_from_slice(&number.0.to_le_bytes());
                out.extend_from_slice(&(from.len() as u16).to_le_bytes());
                out.extend_from_slice(&(to.len() as u16).to_le_bytes());
                out.extend_from_slice(from);
                out.extend_from_slice(to);
            }
        }
        Ok(out)
    }

    /// Reads a block.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(bytes: &[u8]) -> Result<RangeLayers> {
        if bytes.len() > RANGES_BYTES_MAX {
            let expected = format!("at most {RANGES_BYTES_MAX} bytes of ranges");
            return Err(FormatError::damaged(0, expected, bytes.len().to_string()));
        }
        let mut reader = Reader::new(bytes);
        let count = count_of(&mut reader, COUNT_BYTES + RANGE_HEADER_BYTES)?;
        let mut layers: Vec<RangeSet> = Vec::with_capacity(count);
        for _ in 0..count {
            let at = reader.position();
            let layer = decode_layer(&mut reader)?;
            let is_older = layers.last().is_none_or(|newer| newer.numbers().0 > layer.numbers().1);
            if layer.is_empty() || !is_older {
                return Err(FormatError::damaged(at, "a layer of ranges older than the one before", "none"));
            }
            layers.push(layer);
        }
        reader.end()?;
        Ok(RangeLayers { layers })
    }
}

/// A count of things of so many bytes at least.
fn count_of(reader: &mut Reader<'_>, bytes_min: usize) -> Result<usize> {
    let at = reader.position();
    let count = reader.u32()? as usize;
    if count > reader.remaining() / bytes_min {
        return Err(FormatError::damaged(at, "a count that fits the block", count.to_string()));
    }
    Ok(count)
}

fn decode_layer(reader: &mut Reader<'_>) -> Result<RangeSet> {
    let count = count_of(reader, RANGE_HEADER_BYTES)?;
    let mut ranges: Vec<Covered<'_>> = Vec::with_capacity(count);
    for _ in 0..count {
        let at = reader.position();
        let number = SequenceNumber(reader.u64()?);
        let (from_bytes, to_bytes) = (reader.u16()? as usize, reader.u16()? as usize);
        let (from, to) = (reader.take(from_bytes)?, reader.take(to_bytes)?);
        let is_apart = ranges.last().is_none_or(|before| before.to <= from);
        let is_number = number > SequenceNumber::ZERO && number <= SequenceNumber::MAX;
        if !is_apart || from >= to || !is_number {
            return Err(FormatError::damaged(at, "a range after the one before", format!("{number:?}")));
        }
        ranges.push(Covered { from, to, number });
    }
    Ok(RangeSet::of_ascending(&ranges))
}

#[cfg(test)]
mod tests;
