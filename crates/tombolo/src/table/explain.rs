//! A look-up that says on its way what it asks, and where that lay.

use std::sync::Arc;

use tombolo_storage::{Request, Result};

use super::{Hit, Lookup, Place, Table};

/// Where bytes were that a read needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whence {
    /// In the block cache.
    Memory,
    /// In the flash cache.
    Flash,
    /// In the store, or in memory that the host keeps of its files.
    Store,
}

/// A piece of a table that a read needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// Where it begins in the table.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Where it was.
    pub whence: Whence,
}

/// What a look-up met in one table.
#[derive(Debug, Default)]
pub struct Met {
    /// Whether the table had to be opened first.
    pub opened: bool,
    /// What filter and index lay in.
    pub index: Option<Piece>,
    /// Whether the filter let the key pass; `None`: it was not asked.
    pub filter: Option<bool>,
    /// Whether a single row was kept, so that no block was needed.
    pub row: bool,
    /// The data block.
    pub block: Option<Piece>,
    /// What was found.
    pub found: Option<Hit>,
}

impl Table {
    /// As [`Table::get`], and says what it asked.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn explain(self: &Arc<Self>, request: Request, lookup: &Lookup<'_>) -> Result<Met> {
        let mut met = Met::default();
        let own = match self.number {
            Some(number) => match lookup.own(number) {
                Some(own) => own,
                None => return Ok(met),
            },
            None => *lookup,
        };
        met.opened = !self.is_open();
        let opened = self.opened(request).await?;
        let Some((at, handle)) = opened.top.place_for(own.target) else { return Ok(met) };
        let (pinned, whence) = match self.partition(opened, at, handle) {
            Some(pinned) => (pinned, Whence::Memory),
            None => {
                let whence = self.whence(handle.offset);
                (self.load_partition(request, handle).await?, whence)
            }
        };
        let range = Place::Partition(handle).range();
        met.index = Some(Piece { offset: range.start, bytes: range.end - range.start, whence });
        let passes = self.passes(&pinned, handle, &own)?;
        met.filter = Some(passes);
        if !passes {
            return Ok(met);
        }
        if let Some(hit) = self.row(&own) {
            met.row = true;
            met.found = Some(self.numbered(hit));
            return Ok(met);
        }
        let Some(block) = self.block_for(&opened.top, &pinned, handle, &own)? else { return Ok(met) };
        drop(pinned);
        let range = Place::Block(block).range();
        let whence = self.whence(block.offset);
        met.block = Some(Piece { offset: range.start, bytes: range.end - range.start, whence });
        met.found = self.get(request, lookup).await?;
        Ok(met)
    }

    fn numbered(&self, hit: Hit) -> Hit {
        match self.number {
            Some(number) => hit.at(number),
            None => hit,
        }
    }

    fn whence(&self, offset: u64) -> Whence {
        if self.cache.has(&self.key(offset)) {
            return Whence::Memory;
        }
        let is_in_flash = |flash: &Arc<crate::flash::FlashCache>| flash.has(self.flash_key(offset));
        if self.flash.as_ref().is_some_and(is_in_flash) { Whence::Flash } else { Whence::Store }
    }
}
