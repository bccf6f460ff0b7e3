//! Indexes: which block may hold a key. Two steps, both in the format of [`crate::block`]:
//!
//! | block | key of an entry | value |
//! |---|---|---|
//! | index partition | separator: at or after all keys of the data block, before all of the next | [`BlockHandle`] of the data block (12 bytes) |
//! | top index | the last separator of the partition | offset u64, filter bytes u32, index bytes u32 (16 bytes) |
//!
//! A partition's filter block and index block lie side by side, filter first, so that one request
//! fetches both; 0 filter bytes say that there is no filter. Separators are shortened where user
//! keys allow: `(shortest key that is ≥ the last and < the next, sequence 0)`.

use crate::codec::Reader;
use crate::error::{FormatError, Result};
use crate::key::{InternalKey, Trailer};
use crate::stored::BlockHandle;

/// Bytes of an encoded [`PartitionHandle`].
pub const PARTITION_HANDLE_BYTES: usize = 16;

/// Where a partition of filter and index lies in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionHandle {
    /// In bytes from the table's start.
    pub offset: u64,
    /// Length of the stored filter block; 0 when there is none.
    pub filter_bytes: u32,
    /// Length of the stored index block.
    pub index_bytes: u32,
}

impl PartitionHandle {
    /// The handle's bytes.
    pub fn encode(self) -> [u8; PARTITION_HANDLE_BYTES] {
        let mut out = [0; PARTITION_HANDLE_BYTES];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.filter_bytes.to_le_bytes());
        out[12..].copy_from_slice(&self.index_bytes.to_le_bytes());
        out
    }

    /// Reads a top index entry's value. The partition must end at or before `end`.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(value: &[u8], end: u64) -> Result<PartitionHandle> {
        let mut reader = Reader::new(value);
        let handle = PartitionHandle {
            offset: reader.u64()?,
            filter_bytes: reader.u32()?,
            index_bytes: reader.u32()?,
        };
        reader.end()?;
        if handle.end().is_none_or(|found| found > end) {
            return Err(FormatError::damaged(
                0,
                format!("a partition that ends by byte {end}"),
                format!("{handle:?}"),
            ));
        }
        Ok(handle)
    }

    fn end(self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.filter_bytes))?.checked_add(u64::from(self.index_bytes))
    }

    /// Length of both blocks.
    pub fn length(self) -> u64 {
        u64::from(self.filter_bytes) + u64::from(self.index_bytes)
    }

    /// Where the index block lies.
    pub fn index(self) -> BlockHandle {
        BlockHandle { offset: self.offset + u64::from(self.filter_bytes), length: self.index_bytes }
    }
}

/// Reads an index entry's value. The block must end at or before `end`, where the data ends.
///
/// # Errors
/// `Damaged`.
#[inline]
pub fn decode_block_handle(value: &[u8], end: u64) -> Result<BlockHandle> {
    let mut reader = Reader::new(value);
    let handle = BlockHandle { offset: reader.u64()?, length: reader.u32()? };
    reader.end()?;
    if handle.end() > end {
        return Err(FormatError::damaged(
            0,
            format!("a block that ends by byte {end}"),
            format!("{handle:?}"),
        ));
    }
    Ok(handle)
}

/// Puts into `out` the user key of a short separator between two neighbours and returns its
/// trailer.
///
/// # Panics
/// In debug builds, when `last` is not before `next`.
pub fn separator(last: InternalKey<'_>, next: InternalKey<'_>, out: &mut Vec<u8>) -> Trailer {
    debug_assert!(last < next);
    out.clear();
    let (left, right) = (last.user_key, next.user_key);
    if left == right {
        out.extend_from_slice(left);
        return last.trailer;
    }
    let same = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    // `right` without its last byte, cut after the first difference, is the shortest key that may
    // lie between.
    match (left.get(same), right.get(same)) {
        (Some(low), Some(high)) if high - low > 1 => {
            out.extend_from_slice(&left[..same]);
            out.push(low + 1);
        }
        (Some(_), Some(_)) if right.len() > same + 1 => out.extend_from_slice(&right[..=same]),
        (Some(low), _) => {
            // Beyond the difference, the first byte that can be raised: the key stays below
            // `right`.
            let tail = left[same + 1..].iter().position(|byte| *byte != 0xff);
            match tail {
                Some(at) if same + 1 + at + 1 < left.len() => {
                    out.extend_from_slice(&left[..same]);
                    out.push(*low);
                    out.extend_from_slice(&left[same + 1..same + 1 + at]);
                    out.push(left[same + 1 + at] + 1);
                }
                _ => out.extend_from_slice(left),
            }
        }
        // `left` is a prefix of `right`.
        (None, _) => out.extend_from_slice(left),
    }
    Trailer::LAST
}

#[cfg(test)]
mod tests;
