//! What of a damaged table can still be had: its sound blocks, and the ranges of the keys that lay
//! in the others.
//!
//! The tail has to be sound, for nothing else says where blocks lie. A damaged partition of the
//! index takes its blocks with it; a damaged filter takes nothing.

use bytes::Bytes;
use tombolo_format::block::{Block, Cursor};
use tombolo_format::compression::Dictionary;
use tombolo_format::index::{PartitionHandle, decode_block_handle};
use tombolo_format::key::{InternalKey, Trailer};
use tombolo_format::ranges::RangeLayers;
use tombolo_format::stored::BlockHandle;
use tombolo_format::table::{Top, open_within};
use tombolo_storage::{Error, Request, Result};

use super::Table;

/// A part of a damaged table. Parts follow each other in the order of the keys.
#[derive(Clone, Debug)]
pub enum Part {
    /// A block that is sound.
    Sound {
        /// Where it lies.
        block: BlockHandle,
        /// Entries in it.
        entries: u64,
        /// The table's, with which it may be compressed.
        dictionary: Option<Dictionary>,
    },
    /// The range deletes of the table, whatever became of its blocks. Without them older tables
    /// would show what they hide.
    RangeDeletes(RangeLayers),
    /// Blocks that are not.
    Lost {
        /// No key of them comes before it.
        first: Bytes,
        /// No key of them comes after it.
        last: Bytes,
        /// Their bytes, as far as the index tells.
        bytes: u64,
        /// The error of the first of them.
        error: Error,
    },
}

/// The data of a partition is read at once up to so many bytes, which that of small values stays
/// well below.
const PARTITION_BYTES_MAX: u64 = 8 << 20;

/// The last entry of what was looked at.
type LastEntry = Option<(Vec<u8>, Trailer)>;

/// Gathers parts.
struct Parts {
    parts: Vec<Part>,
    /// The user key up to which parts have been found.
    reached: Bytes,
    /// The last entry of the sound ones.
    last: LastEntry,
}

impl Parts {
    /// Everything up to `end`, the separator's user key, is lost. Neighbours become one.
    fn lose(&mut self, end: &[u8], bytes: u64, error: Error) {
        let end = Bytes::copy_from_slice(end);
        let first = std::mem::replace(&mut self.reached, end.clone());
        match self.parts.last_mut() {
            Some(Part::Lost { last, bytes: before, .. }) => (*last, *before) = (end, *before + bytes),
            _ => self.parts.push(Part::Lost { first, last: end, bytes, error }),
        }
    }
}

impl Table {
    /// Reads the table block by block, and says which are sound. `None` when its tail is damaged:
    /// then nothing of it can be found.
    ///
    /// Cost: one request for each partition of the index, and one for each block of those that
    /// cannot be read at once.
    ///
    /// # Errors
    /// What the store returns, damage and unreadable places excepted: `is_damage` tells those.
    pub async fn parts(
        &self,
        request: Request,
        is_damage: impl Fn(&Error) -> bool,
    ) -> Result<Option<Vec<Part>>> {
        let length = self.description.length;
        let at = length.saturating_sub(u64::from(self.description.tail_bytes));
        let tail = match self.read(request, at..length).await {
            Err(error) if is_damage(&error) => return Ok(None),
            tail => tail?,
        };
        let Ok(top) = Top::decode(&tail, length, self.description.identity) else { return Ok(None) };
        let mut parts = Parts {
            parts: Vec::new(),
            reached: Bytes::copy_from_slice(&self.description.first_key),
            last: None,
        };
        let top_at = top.footer.top_index.offset;
        let mut partitions = Cursor::new();
        let mut sound = partitions.first(&top.index);
        while sound.is_ok() && partitions.valid() {
            let end = Bytes::copy_from_slice(partitions.key().user_key);
            let index = PartitionHandle::decode(partitions.value(&top.index), top_at).and_then(|handle| {
                let index = handle.index();
                let raw = open_within(&tail, at, index, top.footer.identity)?;
                Ok((Block::new(raw).map_err(|error| error.shifted(index.offset))?, index.offset))
            });
            match index {
                Ok((index, index_at)) => {
                    self.parts_of(request, &top, (&index, index_at, &end), &mut parts, &is_damage).await?;
                }
                Err(error) => parts.lose(&end, 0, self.damaged(error)),
            }
            parts.reached = end;
            sound = partitions.next(&top.index);
        }
        if let Err(error) = sound {
            parts.lose(&self.description.last_key, 0, self.damaged(error.shifted(top_at)));
        }
        // The last separator may lie beyond the last key.
        if let Some(Part::Lost { last, .. }) = parts.parts.last_mut()
            && **last > *self.description.last_key
        {
            *last = Bytes::copy_from_slice(&self.description.last_key);
        }
        if !top.ranges.is_empty() {
            parts.parts.push(Part::RangeDeletes(top.ranges));
        }
        Ok(Some(parts.parts))
    }

    /// The blocks of one partition: its index, where that lies, and the last key that it may hold.
    async fn parts_of(
        &self,
        request: Request,
        top: &Top,
        (index, index_at, last): (&Block, u64, &Bytes),
        parts: &mut Parts,
        is_damage: &impl Fn(&Error) -> bool,
    ) -> Result<()> {
        let mut handles = Vec::new();
        let mut blocks = Cursor::new();
        let mut sound = blocks.first(index);
        while sound.is_ok() && blocks.valid() {
            let handle = decode_block_handle(blocks.value(index), top.footer.data_end);
            handles.push((Bytes::copy_from_slice(blocks.key().user_key), handle));
            sound = blocks.next(index);
        }
        let known = || handles.iter().filter_map(|(_, handle)| handle.as_ref().ok());
        let range = known().map(|handle| handle.offset).min().zip(known().map(|handle| handle.end()).max());
        let whole = match range {
            // One request for a range that is not too large, unless a place in it cannot be read.
            Some((from, to)) if to - from <= PARTITION_BYTES_MAX => {
                match self.read(request, from..to).await {
                    Ok(bytes) if bytes.len() as u64 == to - from => Some((bytes, from)),
                    Err(error) if !is_damage(&error) => return Err(error),
                    _ => None,
                }
            }
            _ => None,
        };
        for (end, handle) in &handles {
            let found = match (handle, &whole) {
                (Err(error), _) => Err((0, self.damaged(error.clone().shifted(index_at)))),
                (Ok(handle), Some((bytes, from))) => self
                    .decode_block(bytes, *from, *handle, top.dictionary.as_ref())
                    .map_err(|error| (handle.length, error))
                    .map(|block| (*handle, block)),
                (Ok(handle), None) => match self.sound_block(request, *handle, top.dictionary.as_ref()).await
                {
                    Ok(block) => Ok((*handle, block)),
                    Err(error) if is_damage(&error) => Err((handle.length, error)),
                    Err(error) => return Err(error),
                },
            };
            let checked = found.and_then(|(handle, block)| {
                match self.check_block(&block, handle, parts.last.as_ref()) {
                    Ok((entries, last)) => Ok((handle, entries, last)),
                    Err(error) => Err((handle.length, error)),
                }
            });
            match checked {
                Ok((block, entries, last)) => {
                    let dictionary = top.dictionary.clone();
                    parts.parts.push(Part::Sound { block, entries, dictionary });
                    (parts.last, parts.reached) = (last, end.clone());
                }
                Err((bytes, error)) => parts.lose(end, u64::from(bytes), error),
            }
        }
        // What the index says no more of.
        if let Err(error) = sound {
            parts.lose(last, 0, self.damaged(error.shifted(index_at)));
        }
        Ok(())
    }

    /// Reads one block by itself.
    ///
    /// # Errors
    /// `Corrupt` when it is not sound; what the store returns.
    pub async fn sound_block(
        &self,
        request: Request,
        handle: BlockHandle,
        dictionary: Option<&Dictionary>,
    ) -> Result<Block> {
        let bytes = self.read(request, handle.offset..handle.end()).await?;
        self.decode_block(&bytes, handle.offset, handle, dictionary)
    }

    /// Whether a block's entries are in order, and follow `before`: how many there are, and the
    /// last one.
    fn check_block(
        &self,
        block: &Block,
        handle: BlockHandle,
        before: Option<&(Vec<u8>, Trailer)>,
    ) -> Result<(u64, LastEntry)> {
        let mut last = before.cloned();
        let mut entries = 0;
        let mut is_ordered = true;
        let walked = block.verify(|key, _| {
            let follows =
                last.as_ref().is_none_or(|(user_key, trailer)| InternalKey::new(user_key, *trailer) < key);
            is_ordered &= follows
                && *self.description.first_key <= *key.user_key
                && *key.user_key <= *self.description.last_key;
            last = Some((key.user_key.to_vec(), key.trailer));
            entries += 1;
            Ok(())
        });
        walked.map_err(|error| self.damaged(error.shifted(handle.offset)))?;
        if is_ordered {
            return Ok((entries, last));
        }
        let (expected, found) = ("entries of this table, after those of the block before", "others");
        Err(Error::corrupt(&self.object, self.description.offset + handle.offset, expected, found))
    }
}
