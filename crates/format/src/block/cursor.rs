//! A position in a block.

use super::{Block, EntryHeader, Found};
use crate::error::{FormatError, Result};
use crate::key::{InternalKey, Trailer};

/// A position in a block, apart from the block, so that its key buffer outlives it: pass the same block until the next `first`,
/// `last` or `seek`.
///
/// After an error the position is not valid.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    key: Vec<u8>,
    trailer: u64,
    /// Where the entry begins; unspecified while not valid.
    at: usize,
    value_at: usize,
    /// Where the next entry begins.
    end: usize,
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
        block.entries().get(self.value_at..self.end).unwrap_or_default()
    }

    /// Where the entry begins in its block.
    pub fn position(&self) -> usize {
        self.at
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
        self.key.clear();
        self.end = 0;
        self.valid = true;
        self.next(block)
    }

    /// To the last entry; not valid in an empty block.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn last(&mut self, block: &Block) -> Result<()> {
        self.valid = false;
        if block.restarts == 0 {
            return Ok(());
        }
        self.walk_to_end(block, block.restarts - 1, block.entries_end as usize)
    }

    /// To the first entry at or after `target`; not valid when there is none.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn seek(&mut self, block: &Block, target: InternalKey<'_>) -> Result<()> {
        self.valid = false;
        let Some(Found { at, header }) = block.find(target)? else { return Ok(()) };
        self.key.clear();
        // What a found entry shares with the one before it, it shares with the target.
        self.key.extend_from_slice(&target.user_key[..header.shared]);
        self.set(block, at, header);
        Ok(())
    }

    /// To the last entry before `target`; not valid when there is none.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn seek_before(&mut self, block: &Block, target: InternalKey<'_>) -> Result<()> {
        self.seek(block, target)?;
        match self.valid {
            true => self.prev(block),
            false => self.last(block),
        }
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
        self.valid = false;
        let at = self.end;
        if at >= block.entries_end as usize {
            return Ok(());
        }
        let header = block.header(at)?;
        if header.shared > self.key.len() {
            let expected = format!("at most {} shared bytes", self.key.len());
            return Err(FormatError::damaged(at, expected, header.shared.to_string()));
        }
        self.key.truncate(header.shared);
        self.set(block, at, header);
        Ok(())
    }

    /// To the entry before; not valid before the first. Does nothing while not valid. Walks from the last restart: at most one interval.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn prev(&mut self, block: &Block) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.valid = false;
        let target = self.at;
        if target == 0 {
            return Ok(());
        }
        let (mut low, mut high) = (0, block.restarts);
        // Invariant: restarts below `low` begin before the target, those from `high` on do not.
        while low < high {
            let middle = low + (high - low) / 2;
            if (block.offset(middle) as usize) < target {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.walk_to_end(block, low.saturating_sub(1), target)
    }

    /// From a restart to the entry that ends at `end`.
    fn walk_to_end(&mut self, block: &Block, restart: u32, end: usize) -> Result<()> {
        self.key.clear();
        self.end = block.offset(restart) as usize;
        self.valid = true;
        loop {
            self.next(block)?;
            if !self.valid || self.end > end {
                self.valid = false;
                return Err(FormatError::damaged(self.at, format!("an entry that ends at byte {end}"), self.end.to_string()));
            }
            if self.end == end {
                return Ok(());
            }
        }
    }

    #[inline]
    fn set(&mut self, block: &Block, at: usize, header: EntryHeader) {
        self.key.extend_from_slice(&block.entries()[header.key_at..header.value_at]);
        self.trailer = header.trailer.0;
        self.at = at;
        self.value_at = header.value_at;
        self.end = header.end;
        self.valid = true;
    }
}
