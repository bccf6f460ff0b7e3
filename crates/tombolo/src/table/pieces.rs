//! A table in pieces: from its index alone.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::block::Cursor;
use tombolo_format::index::decode_block_handle;
use tombolo_storage::{Request, Result};

use super::Table;

/// A piece of a table: its keys come after those of the one before, up to `last`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePiece {
    /// No key of it comes after this one; all keys of the next piece do.
    pub last: Bytes,
    /// Its bytes, about.
    pub bytes: u64,
    /// Its entries; 0 where nobody counted them.
    pub entries: u64,
}

impl Table {
    /// The partitions of the table. One request if it was not opened.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub async fn partitions(self: &Arc<Self>, request: Request) -> Result<Vec<TablePiece>> {
        let top = self.open(request).await?;
        let at = top.footer.top_index.offset;
        let counts = &top.properties.partition_entries;
        let bytes = self.description.length / (top.partitions.len().max(1) as u64);
        let mut cursor = Cursor::new();
        let mut pieces = Vec::with_capacity(top.partitions.len());
        cursor.first(&top.index).map_err(|error| self.damaged(error.shifted(at)))?;
        while cursor.valid() {
            let last = Bytes::copy_from_slice(cursor.key().user_key);
            let entries = counts.get(pieces.len()).map_or(0, |entries| u64::from(*entries));
            pieces.push(TablePiece { last, bytes, entries });
            cursor.next(&top.index).map_err(|error| self.damaged(error.shifted(at)))?;
        }
        Ok(pieces)
    }

    /// The data blocks of partition `place`, or of none where it has no such. At most two requests,
    /// and the index stays in the cache.
    ///
    /// # Errors
    /// As [`Table::bytes_within`].
    pub async fn blocks_of(self: &Arc<Self>, request: Request, place: usize) -> Result<Vec<TablePiece>> {
        let top = self.open(request).await?;
        let Some(handle) = top.partitions.get(place) else { return Ok(Vec::new()) };
        let pinned = match self.cache.get(&self.key(handle.offset)) {
            Some(pinned) => pinned,
            None => self.load_partition(request, *handle).await?,
        };
        let partition = pinned.partition().ok_or_else(|| self.not_a("partition", handle.offset))?;
        let at = handle.index().offset;
        let mut cursor = Cursor::new();
        let mut pieces = Vec::new();
        cursor.first(&partition.index).map_err(|error| self.damaged(error.shifted(at)))?;
        while cursor.valid() {
            let block = decode_block_handle(cursor.value(&partition.index), top.footer.data_end)
                .map_err(|error| self.damaged(error.shifted(at)))?;
            let last = Bytes::copy_from_slice(cursor.key().user_key);
            pieces.push(TablePiece { last, bytes: u64::from(block.length), entries: 0 });
            cursor.next(&partition.index).map_err(|error| self.damaged(error.shifted(at)))?;
        }
        // Its entries, in equal parts.
        let counted = top.properties.partition_entries.get(place).copied().unwrap_or(0);
        let each = u64::from(counted) / (pieces.len().max(1) as u64);
        pieces.iter_mut().for_each(|piece| piece.entries = each);
        Ok(pieces)
    }
}
