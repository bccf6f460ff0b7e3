//! A position in a block.

use super::{Block, Found};
use crate::error::{FormatError, Result};
use crate::key::{InternalKey, Trailer};

/// An entry of a block, without its key: all that a walk through an index needs, and no memory.
/// Pass the same block until the next `first`, `last` or `seek`. After an error it is nowhere.
#[derive(Clone, Debug, Default)]
pub struct Place {
    index: usize,
    value_at: usize,
    value_end: usize,
    valid: bool,
}

impl Place {
    /// Nowhere.
    pub fn new() -> Place {
        Place::default()
    }

    /// Whether it is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The entry's value. Only while valid, with the block that it was set in.
    #[inline]
    pub fn value<'a>(&self, block: &'a Block) -> &'a [u8] {
        debug_assert!(self.valid);
        block.bytes.get(self.value_at..self.value_end).unwrap_or_default()
    }

    /// The same entry with its key; nowhere when this is.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn to_cursor(&self, block: &Block) -> Result<Cursor> {
        let mut cursor = Cursor::new();
        if self.valid {
            cursor.enter(block, self.index)?;
        }
        Ok(cursor)
    }

    /// To the first entry; not valid in an empty block.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn first(&mut self, block: &Block) -> Result<()> {
        self.set(block, 0)
    }

    /// To the last entry; not valid in an empty block.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn last(&mut self, block: &Block) -> Result<()> {
        self.set(block, block.len().wrapping_sub(1))
    }

    /// To the first entry at or after `target`; not valid when there is none.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn seek(&mut self, block: &Block, target: InternalKey<'_>) -> Result<()> {
        let Found { index, .. } = block.find(target);
        self.set(block, index)
    }

    /// To the next entry; not valid after the last. Does nothing while not valid.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn next(&mut self, block: &Block) -> Result<()> {
        if self.valid { self.set(block, self.index + 1) } else { Ok(()) }
    }

    /// To the entry before; not valid before the first. Does nothing while not valid.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn prev(&mut self, block: &Block) -> Result<()> {
        if self.valid { self.set(block, self.index.wrapping_sub(1)) } else { Ok(()) }
    }

    #[inline]
    fn set(&mut self, block: &Block, index: usize) -> Result<()> {
        self.valid = false;
        if index >= block.len() {
            return Ok(());
        }
        let value = block.value_range(index);
        if value.end > block.bytes.len() || value.start > value.end {
            return Err(FormatError::damaged(
                value.start,
                "a value within its block",
                format!("an end at {}", value.end),
            ));
        }
        (self.index, self.value_at, self.value_end) = (index, value.start, value.end);
        self.valid = true;
        Ok(())
    }
}

/// Appends bytes that are usually few: by words, without a call.
#[inline]
fn extend_short(key: &mut Vec<u8>, mut bytes: &[u8]) {
    if bytes.len() > 32 {
        return key.extend_from_slice(bytes);
    }
    while let Some((word, rest)) = bytes.split_first_chunk::<8>() {
        key.extend_from_slice(word);
        bytes = rest;
    }
    if let Some((word, rest)) = bytes.split_first_chunk::<4>() {
        key.extend_from_slice(word);
        bytes = rest;
    }
    for byte in bytes {
        key.push(*byte);
    }
}

/// A position in a block, apart from the block, so that its key buffer outlives it: pass the same
/// block until the next `first`, `last` or `seek`. A step in either direction costs the same.
///
/// After an error the position is not valid.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// While valid: the entry's key, which begins with the block's common prefix.
    key: Vec<u8>,
    trailer: u64,
    place: Place,
}

/// The first room of a cursor's key: most keys never need more.
const KEY_ROOM_BYTES: usize = 64;

impl Cursor {
    /// A cursor that is nowhere.
    pub fn new() -> Cursor {
        Cursor::default()
    }

    /// Whether it is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.place.valid
    }

    /// The entry's key. Only while valid.
    #[inline]
    pub fn key(&self) -> InternalKey<'_> {
        debug_assert!(self.valid());
        InternalKey::new(&self.key, Trailer(self.trailer))
    }

    /// The entry's value. Only while valid, with the block that the cursor was moved in.
    #[inline]
    pub fn value<'a>(&self, block: &'a Block) -> &'a [u8] {
        self.place.value(block)
    }

    /// Where the entry's value begins in its block.
    pub fn position(&self) -> usize {
        self.place.value_at
    }

    /// The entry's place among those of its block.
    #[inline]
    pub fn index(&self) -> usize {
        self.place.index
    }

    /// Nowhere again.
    pub fn clear(&mut self) {
        self.place.valid = false;
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
        if self.valid() { self.set(block, self.place.index + 1) } else { Ok(()) }
    }

    /// To the next entry of the block if that has another user key and `wanted` says yes to its
    /// trailer; else it stays where it is, and says `false`. Does nothing while not valid.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn next_key_if(&mut self, block: &Block, wanted: impl FnOnce(Trailer) -> bool) -> Result<bool> {
        let (here, next) = (self.place.index, self.place.index + 1);
        if !self.valid()
            || next >= block.len()
            || !wanted(block.trailer(next))
            || block.is_same_key(here, next)
        {
            return Ok(false);
        }
        let mut place = self.place.clone();
        place.set(block, next)?;
        self.place = place;
        self.read_key(block, next);
        Ok(true)
    }

    /// To the entry before; not valid before the first. Does nothing while not valid.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn prev(&mut self, block: &Block) -> Result<()> {
        if self.valid() { self.set(block, self.place.index.wrapping_sub(1)) } else { Ok(()) }
    }

    /// To an entry of a block that it was not in; nowhere when there is none of this index.
    fn enter(&mut self, block: &Block, index: usize) -> Result<()> {
        self.key.clear();
        self.key.reserve(KEY_ROOM_BYTES);
        self.key.extend_from_slice(block.common());
        self.set(block, index)
    }

    #[inline]
    fn set(&mut self, block: &Block, index: usize) -> Result<()> {
        self.place.set(block, index)?;
        if self.valid() {
            self.read_key(block, index);
        }
        Ok(())
    }

    /// Takes the key of an entry of a block whose common prefix the key begins with.
    #[inline]
    fn read_key(&mut self, block: &Block, index: usize) {
        let suffix_bytes = block.suffix_bytes(index);
        let head_bytes = block.head_bytes();
        self.key.truncate(usize::from(block.common_length));
        let head = block.head(index).to_be_bytes();
        if suffix_bytes < head_bytes {
            self.key.extend_from_slice(&head[..suffix_bytes]);
        } else {
            // Of a width that is known here: copied without a call.
            match block.heads_wide {
                true => self.key.extend_from_slice(&head),
                false => self.key.extend_from_slice(&head[..4]),
            }
            extend_short(&mut self.key, block.rest(index, suffix_bytes));
        }
        self.trailer = block.trailer(index).0;
    }
}
