//! Reads all of a table and checks what its parts say about each other.

use bytes::Bytes;

use super::{Top, open_data_within, open_within};
use crate::block::{Block, Cursor};
use crate::checksum::key_hash;
use crate::error::{FormatError, Result};
use crate::filter::Filter;
use crate::index::{PartitionHandle, decode_block_handle};
use crate::key::{EntryKind, InternalKey, Trailer};
use crate::stored::BlockHandle;

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
    pub fn decode(
        piece: &Bytes,
        piece_offset: u64,
        handle: PartitionHandle,
        identity: u64,
    ) -> Result<Partition> {
        let filter = match handle.filter_bytes {
            0 => None,
            length => {
                let place = BlockHandle { offset: handle.offset, length };
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

/// Checks a whole table, `bytes`: every checksum, the order of keys, separators, filters, and the
/// numbers of entries and values that it says it has. Calls `each` with every entry.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset in the table, or what `each` returns.
pub fn verify(
    bytes: &Bytes,
    top: &Top,
    mut each: impl FnMut(InternalKey<'_>, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut verification = Verification::new(bytes, 0, top)?;
    while let Some(handle) = verification.next_block()? {
        verification.take(handle, bytes, 0, &mut each)?;
    }
    Ok(())
}

/// The check of a whole table block by block: only one need be in memory at a time, beside the
/// table's tail.
#[derive(Debug)]
pub struct Verification<'a> {
    tail: &'a Bytes,
    tail_offset: u64,
    top: &'a Top,
    partitions: Cursor,
    /// Where the next partition must begin.
    partition_at: u64,
    /// Partitions that were walked through, and the entries in them.
    counted: (usize, u64),
    /// The partition at the cursor, and where in it the walk is.
    open: Option<(Partition, PartitionHandle, Cursor)>,
    walk: Walk,
}

impl<'a> Verification<'a> {
    /// Of the table whose partitions lie in `tail`, its bytes from `tail_offset` on.
    ///
    /// # Errors
    /// `Damaged`, with the offset in the table.
    pub fn new(tail: &'a Bytes, tail_offset: u64, top: &'a Top) -> Result<Verification<'a>> {
        let mut partitions = Cursor::new();
        partitions.first(&top.index)?;
        let walk = Walk { entries: 0, values: 0, data_at: 0, last: None };
        Ok(Verification {
            tail,
            tail_offset,
            top,
            partitions,
            partition_at: top.footer.data_end,
            counted: (0, 0),
            open: None,
            walk,
        })
    }

    /// The block that [`Verification::take`] must be given next; `None` at the end of a sound
    /// table.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the table.
    pub fn next_block(&mut self) -> Result<Option<BlockHandle>> {
        let footer = &self.top.footer;
        loop {
            let Some((partition, place, blocks)) = &self.open else {
                if !self.partitions.valid() {
                    return self.end().map(|()| None);
                }
                self.enter()?;
                continue;
            };
            let at = place.index().offset;
            if blocks.valid() {
                let handle = decode_block_handle(blocks.value(&partition.index), footer.data_end)
                    .map_err(|error| error.shifted(at))?;
                if handle.offset != self.walk.data_at {
                    let expected = format!("a block at byte {}", self.walk.data_at);
                    return Err(FormatError::damaged(at as usize, expected, format!("{handle:?}")));
                }
                return Ok(Some(handle));
            }
            self.walk.within(self.partitions.key(), place.offset)?;
            let (number, before) = self.counted;
            let says = &self.top.properties.partition_entries;
            let entries = self.walk.entries - before;
            if !says.is_empty() && says.get(number).map(|entries| u64::from(*entries)) != Some(entries) {
                let expected = format!("{:?} entries in partition {number}", says.get(number));
                let at = footer.properties().offset as usize;
                return Err(FormatError::damaged(at, expected, entries.to_string()));
            }
            self.counted = (number + 1, self.walk.entries);
            self.open = None;
            self.partitions.next(&self.top.index)?;
        }
    }

    /// Goes into the partition at the cursor.
    fn enter(&mut self) -> Result<()> {
        let footer = &self.top.footer;
        let handle =
            PartitionHandle::decode(self.partitions.value(&self.top.index), self.top.partitions_end())
                .map_err(|error| error.shifted(footer.top_index.offset))?;
        if handle.offset != self.partition_at {
            let expected = format!("a partition at byte {}", self.partition_at);
            return Err(FormatError::damaged(handle.offset as usize, expected, format!("{handle:?}")));
        }
        self.partition_at += handle.length();
        let partition = Partition::decode(self.tail, self.tail_offset, handle, footer.identity)?;
        let mut blocks = Cursor::new();
        blocks.first(&partition.index).map_err(|error| error.shifted(handle.index().offset))?;
        self.open = Some((partition, handle, blocks));
        Ok(())
    }

    fn end(&self) -> Result<()> {
        let footer = &self.top.footer;
        if self.walk.data_at != footer.data_end || self.partition_at != self.top.partitions_end() {
            let found = format!("data to {}, partitions to {}", self.walk.data_at, self.partition_at);
            return Err(FormatError::damaged(footer.data_end as usize, format!("{footer:?}"), found));
        }
        if self.walk.entries != self.top.properties.entries {
            let at = footer.properties().offset as usize;
            return Err(FormatError::damaged(
                at,
                format!("{} entries", self.top.properties.entries),
                self.walk.entries.to_string(),
            ));
        }
        let (values, partitions) = (self.top.properties.values, self.top.properties.partition_entries.len());
        // Tables of before say neither.
        if (values > 0 && values != self.walk.values) || (partitions > 0 && partitions != self.counted.0) {
            let at = footer.properties().offset as usize;
            let expected = format!("{values} values, and {partitions} partitions where they are counted");
            let found = format!("{} values, {} partitions", self.walk.values, self.counted.0);
            return Err(FormatError::damaged(at, expected, found));
        }
        Ok(())
    }

    /// Checks the block that was asked for, which lies in `piece`, bytes of the table from
    /// `piece_offset` on. Calls `each` with every entry.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the table, or what `each` returns.
    pub fn take(
        &mut self,
        handle: BlockHandle,
        piece: &Bytes,
        piece_offset: u64,
        mut each: impl FnMut(InternalKey<'_>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Verification { top, open, walk, .. } = self;
        let Some((partition, place, blocks)) = open else { return Ok(()) };
        walk.data_at = handle.end();
        let (identity, dictionary) = (top.footer.identity, top.dictionary.as_ref());
        let raw = open_data_within(piece, piece_offset, handle, identity, dictionary)?;
        let block = Block::new(raw).map_err(|error| error.shifted(handle.offset))?;
        block
            .verify(|key, value| {
                let is_new = walk.last.as_ref().is_none_or(|(last, _)| &last[..] != key.user_key);
                walk.after(key)?;
                let is_value = matches!(key.trailer.kind(), Some(EntryKind::Put | EntryKind::SeparatedPut));
                walk.values += u64::from(is_new && is_value);
                if !partition.may_contain(key_hash(key.user_key)) {
                    return Err(FormatError::damaged(
                        0,
                        "a filter that holds the block's keys",
                        "one that does not",
                    ));
                }
                walk.entries += 1;
                each(key, value)
            })
            .map_err(|error| error.shifted(handle.offset))?;
        walk.within(blocks.key(), handle.offset)?;
        blocks.next(&partition.index).map_err(|error| error.shifted(place.index().offset))?;
        Ok(())
    }
}

#[derive(Debug)]
struct Walk {
    entries: u64,
    /// Keys whose first entry here, which is the newest, is a value that stays.
    values: u64,
    /// Where the next data block must begin.
    data_at: u64,
    /// The last entry's key.
    last: Option<(Vec<u8>, Trailer)>,
}

impl Walk {
    /// Requires that `key` comes after all before it.
    fn after(&mut self, key: InternalKey<'_>) -> Result<()> {
        if let Some((user_key, trailer)) = &mut self.last {
            if InternalKey::new(user_key, *trailer) >= key {
                return Err(FormatError::damaged(
                    0,
                    "keys after those of the block before",
                    "a key not after them",
                ));
            }
            user_key.clear();
            user_key.extend_from_slice(key.user_key);
            *trailer = key.trailer;
            return Ok(());
        }
        self.last = Some((key.user_key.to_vec(), key.trailer));
        Ok(())
    }

    /// Requires that the last key lies at or before `separator`, which takes its place: the next
    /// key must lie after it.
    fn within(&mut self, separator: InternalKey<'_>, offset: u64) -> Result<()> {
        let sound = self
            .last
            .as_ref()
            .is_some_and(|(user_key, trailer)| InternalKey::new(user_key, *trailer) <= separator);
        if !sound {
            return Err(FormatError::damaged(
                offset as usize,
                "a separator at or after the block's last key",
                "one before it",
            ));
        }
        self.last = Some((separator.user_key.to_vec(), separator.trailer));
        Ok(())
    }
}
