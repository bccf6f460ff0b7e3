//! How much of a table lies in a range, from its index alone.

use std::ops::Bound;
use std::sync::Arc;

use tombolo_format::index::decode_block_handle;
use tombolo_format::key::{InternalKey, SequenceNumber, Trailer};
use tombolo_storage::{Request, Result};

use super::Table;

impl Table {
    /// Bytes of the table that keys within the bounds take, filter and index in proportion: right
    /// to a block at either end. No request for a table that lies within or beyond the bounds; at
    /// most two for its index else, which stays in the cache.
    ///
    /// # Errors
    /// `Corrupt`; what the store returns.
    pub async fn bytes_within(
        self: &Arc<Self>,
        request: Request,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<u64> {
        let description = &self.description;
        let (first, last) = (&description.first_key[..], &description.last_key[..]);
        let begins_within = match lower {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => key <= first,
        };
        let ends_within = match upper {
            Bound::Unbounded => true,
            Bound::Included(key) => last <= key,
            Bound::Excluded(key) => last < key,
        };
        let beyond = |bound: Bound<&[u8]>, is_lower: bool| match bound {
            Bound::Unbounded => false,
            Bound::Included(key) => {
                if is_lower {
                    last < key
                } else {
                    key < first
                }
            }
            Bound::Excluded(key) => {
                if is_lower {
                    last <= key
                } else {
                    key <= first
                }
            }
        };
        if beyond(lower, true) || beyond(upper, false) {
            return Ok(0);
        }
        if begins_within && ends_within {
            return Ok(description.length);
        }
        let data_end = self.open(request).await?.footer.data_end;
        let offset_of = async |bound: Bound<&[u8]>, otherwise: u64| match bound {
            Bound::Unbounded => Ok(otherwise),
            Bound::Included(key) | Bound::Excluded(key) => self.offset_of(request, key).await,
        };
        let start = if begins_within { 0 } else { offset_of(lower, 0).await? };
        let end = if ends_within { data_end } else { offset_of(upper, data_end).await? };
        let share = u128::from(description.length) * u128::from(end.saturating_sub(start))
            / u128::from(data_end.max(1));
        Ok(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Where the data block begins that may hold the first entry at or after a key; the data's end
    /// beyond the last.
    async fn offset_of(self: &Arc<Self>, request: Request, key: &[u8]) -> Result<u64> {
        let top = self.open(request).await?;
        let target = InternalKey::new(key, Trailer::seek(SequenceNumber::MAX));
        let Some(handle) = top.partition_for(target) else { return Ok(top.footer.data_end) };
        let pinned = match self.cache.get(&self.key(handle.offset)) {
            Some(pinned) => pinned,
            None => self.load_partition(request, handle).await?,
        };
        let partition = pinned.partition().ok_or_else(|| self.not_a("partition", handle.offset))?;
        let at = handle.index().offset;
        let found = partition.index.at_or_after(target).map_err(|error| self.damaged(error.shifted(at)))?;
        let Some(entry) = found else { return Ok(handle.offset.min(top.footer.data_end)) };
        Ok(decode_block_handle(entry.value, top.footer.data_end)
            .map_err(|error| self.damaged(error.shifted(at)))?
            .offset)
    }
}
