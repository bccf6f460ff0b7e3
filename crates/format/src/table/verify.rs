//! Reads all of a table and checks what its parts say about each other.

use bytes::Bytes;

use super::{Top, open_within};
use crate::block::{Block, Cursor};
use crate::checksum::key_hash;
use crate::error::{FormatError, Result};
use crate::filter::Filter;
use crate::index::{PartitionHandle, decode_block_handle};
use crate::key::{InternalKey, Trailer};

/// A partition of filter and index, decoded.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Absent when the table has none.
    pub filter: Option<Filter>,
    /// Which data block may hold a key.
    pub index: Block,
}

impl Partition {
    /// Decodes the partition at `handle` from `piece`, bytes of the table from `piece_offset` on.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the table.
    pub fn decode(piece: &Bytes, piece_offset: u64, handle: PartitionHandle, identity: u64) -> Result<Partition> {
        let filter = match handle.filter_bytes {
            0 => None,
            length => {
                let place = crate::stored::BlockHandle { offset: handle.offset, length };
                let raw = open_within(piece, piece_offset, place, identity)?;
                Some(Filter::new(raw).map_err(|error| error.shifted(handle.offset))?)
            }
        };
        let raw = open_within(piece, piece_offset, handle.index(), identity)?;
        let index = Block::new(raw).map_err(|error| error.shifted(handle.index().offset))?;
        Ok(Partition { filter, index })
    }

    /// Whether a key with this hash may be in the partition.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.filter.as_ref().map_or(0, Filter::memory_bytes)
    }
}

/// Checks a whole table, `bytes`: every checksum, the order of keys, separators, filters and the number of entries. Calls `each` with
/// every entry.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset in the table, or what `each` returns.
pub fn verify(bytes: &Bytes, top: &Top, mut each: impl FnMut(InternalKey<'_>, &[u8]) -> Result<()>) -> Result<()> {
    let footer = &top.footer;
    let mut walk = Walk { entries: 0, data_at: 0, last: None };
    let (mut partitions, mut partition_at) = (Cursor::new(), footer.data_end);
    partitions.first(&top.index)?;
    while partitions.valid() {
        let handle = PartitionHandle::decode(partitions.value(&top.index), footer.top_index.offset)
            .map_err(|error| error.shifted(footer.top_index.offset))?;
        if handle.offset != partition_at {
            return Err(FormatError::damaged(handle.offset as usize, format!("a partition at byte {partition_at}"), format!("{handle:?}")));
        }
        partition_at += handle.length();
        let partition = Partition::decode(bytes, 0, handle, footer.identity)?;
        walk.partition(bytes, top, &partition, handle.index().offset, &mut each)?;
        walk.within(partitions.key(), handle.offset)?;
        partitions.next(&top.index)?;
    }
    if walk.data_at != footer.data_end || partition_at != footer.top_index.offset {
        let found = format!("data to {}, partitions to {partition_at}", walk.data_at);
        return Err(FormatError::damaged(footer.data_end as usize, format!("{footer:?}"), found));
    }
    if walk.entries != top.properties.entries {
        let at = footer.properties().offset as usize;
        return Err(FormatError::damaged(at, format!("{} entries", top.properties.entries), walk.entries.to_string()));
    }
    Ok(())
}

struct Walk {
    entries: u64,
    /// Where the next data block must begin.
    data_at: u64,
    /// The last entry's key.
    last: Option<(Vec<u8>, Trailer)>,
}

impl Walk {
    fn partition(
        &mut self,
        bytes: &Bytes,
        top: &Top,
        partition: &Partition,
        index_offset: u64,
        each: &mut impl FnMut(InternalKey<'_>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut blocks = Cursor::new();
        blocks.first(&partition.index).map_err(|error| error.shifted(index_offset))?;
        while blocks.valid() {
            let handle = decode_block_handle(blocks.value(&partition.index), top.footer.data_end);
            let handle = handle.map_err(|error| error.shifted(index_offset))?;
            if handle.offset != self.data_at {
                let expected = format!("a block at byte {}", self.data_at);
                return Err(FormatError::damaged(index_offset as usize, expected, format!("{handle:?}")));
            }
            self.data_at = handle.end();
            let raw = open_within(bytes, 0, handle, top.footer.identity)?;
            let block = Block::new(raw).map_err(|error| error.shifted(handle.offset))?;
            let shift = |error: FormatError| error.shifted(handle.offset);
            block
                .verify(|key, value| {
                    self.after(key)?;
                    if !partition.may_contain(key_hash(key.user_key)) {
                        return Err(FormatError::damaged(0, "a filter that holds the block's keys", "one that does not"));
                    }
                    self.entries += 1;
                    each(key, value)
                })
                .map_err(shift)?;
            self.within(blocks.key(), handle.offset)?;
            blocks.next(&partition.index).map_err(|error| error.shifted(index_offset))?;
        }
        Ok(())
    }

    /// Requires that `key` comes after all before it.
    fn after(&mut self, key: InternalKey<'_>) -> Result<()> {
        if let Some((user_key, trailer)) = &mut self.last {
            if InternalKey::new(user_key, *trailer) >= key {
                return Err(FormatError::damaged(0, "keys after those of the block before", "a key not after them"));
            }
            user_key.clear();
            user_key.extend_from_slice(key.user_key);
            *trailer = key.trailer;
            return Ok(());
        }
        self.last = Some((key.user_key.to_vec(), key.trailer));
        Ok(())
    }

    /// Requires that the last key lies at or before `separator`, which takes its place: the next key must lie after it.
    fn within(&mut self, separator: InternalKey<'_>, offset: u64) -> Result<()> {
        let sound = self.last.as_ref().is_some_and(|(user_key, trailer)| InternalKey::new(user_key, *trailer) <= separator);
        if !sound {
            return Err(FormatError::damaged(offset as usize, "a separator at or after the block's last key", "one before it"));
        }
        self.last = Some((separator.user_key.to_vec(), separator.trailer));
        Ok(())
    }
}
