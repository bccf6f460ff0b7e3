//! A position in a block.

use super::{Block, Found};
use crate::error::{FormatError, Result};
use crate::key::{InternalKey, Trailer};

/// A position in a block, apart from the block, so that its key buffer outlives it: pass the same block until the next `first`,
/// `last` or `seek`. A step in either direction costs the same.
///
/// After an error the position is not valid.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// While valid: the entry's key, which begins with the block's common prefix.
    key: Vec<u8>,
    trailer: u64,
    index: usize,
    value_at: usize,
    value_end: usize,
    valid: bool,
}

impl Cursor {
    /// A cursor that is nowhere.
    pub fn new() -> Cursor {
        Cursor::default()
    }

    /// Whether it is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The entry's key. Only while valid.
    #[inline]
    pub fn key(&self) -> InternalKey<'_> {
        debug_assert!(self.valid);
        InternalKey::new(&self.key, Trailer(self.trailer))
    }

    /// The entry's value. Only while valid, with the block that the cursor was moved in.
    #[inline]
    pub fn value<'a>(&self, block: &'a Block) -> &'a [u8] {
        debug_assert!(self.valid);
        block.bytes.get(self.value_at..self.value_end).unwrap_or_default()
    }

    /// Where the entry's value begins in its block.
    pub fn position(&self) -> usize {
        self.value_at
    }

    /// The entry's place among those of its block.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Nowhere again.
    pub fn clear(&mut self) {
        self.valid = false;
    }

    /// To the first entry; not valid in an empty block.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn first(&mut self, block: &Block) -> Result<()> {
        self.enter(block, 0)
    }

    /// To the last entry; not valid in an empty block.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn last(&mut self, block: &Block) -> Result<()> {
        self.enter(block, block.len().wrapping_sub(1))
    }

    /// To the first entry at or after `target`; not valid when there is none.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn seek(&mut self, block: &Block, target: InternalKey<'_>) -> Result<()> {
        let Found { index, .. } = block.find(target);
        self.enter(block, index)
    }

    /// To the last entry before `target`; not valid when there is none.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn seek_before(&mut self, block: &Block, target: InternalKey<'_>) -> Result<()> {
        let Found { index, .. } = block.find(target);
        self.enter(block, index.wrapping_sub(1))
    }

    /// To the next entry; not valid after the last. Does nothing while not valid.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn next(&mut self, block: &Block) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.set(block, self.index + 1)
    }

    /// To the entry before; not valid before the first. Does nothing while not valid.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn prev(&mut self, block: &Block) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.set(block, self.index.wrapping_sub(1))
    }

    /// To an entry of a block that it was not in; nowhere when there is none of this index.
    fn enter(&mut self, block: &Block, index: usize) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(block.common());
        self.set(block, index)
    }

    #[inline]
    fn set(&mut self, block: &Block, index: usize) -> Result<()> {
        self.valid = false;
        if index >= block.len() {
            return Ok(());
        }
        let suffix_bytes = block.suffix_bytes(index);
        let head_bytes = block.head_bytes();
        self.key.truncate(usize::from(block.common_length));
        self.key.extend_from_slice(&block.head(index).to_be_bytes()[..suffix_bytes.min(head_bytes)]);
        if suffix_bytes > head_bytes {
            self.key.extend_from_slice(block.rest(index, suffix_bytes));
        }
        let value = block.value_range(index);
        if value.end > block.bytes.len() || value.start > value.end {
            return Err(FormatError::damaged(value.start, "a value within its block", format!("an end at {}", value.end)));
        }
        self.trailer = block.trailer(index).0;
        (self.index, self.value_at, self.value_end) = (index, value.start, value.end);
        self.valid = true;
        Ok(())
    }
}
