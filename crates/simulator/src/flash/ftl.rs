//! A translation layer: logical pages on flash that is erased by blocks.

use std::time::Duration;

use super::{PAGE_BYTES, Timing, Wear};

const NOWHERE: u32 = u32::MAX;
/// Of a hundred pages of flash, those that no host can fill.
const SPARE_PERCENT: u64 = 7;
/// Blocks that are free when collection begins: one for the host, one for moved pages.
const FREE_MIN: usize = 2;

/// Flash behind a translation layer.
#[derive(Debug)]
pub struct Ftl {
    timing: Timing,
    block_pages: u32,
    /// Where each logical page lies.
    at: Vec<u32>,
    /// Which logical page lies in each page of flash.
    owner: Vec<u32>,
    /// Valid pages of each block.
    valid: Vec<u32>,
    free: Vec<u32>,
    /// Blocks that are full, or were.
    is_closed: Vec<bool>,
    /// The next page for the host, and for moved pages.
    open: [Option<u32>; 2],
    wear: Wear,
}

impl Ftl {
    /// A device that shows `bytes`, with blocks of `block_bytes`.
    pub fn new(timing: Timing, bytes: u64, block_bytes: u64) -> Ftl {
        let pages = bytes / PAGE_BYTES;
        let block_pages = block_bytes / PAGE_BYTES;
        let blocks = (pages * 100).div_ceil((100 - SPARE_PERCENT) * block_pages) + FREE_MIN as u64;
        let narrow = |number: u64| u32::try_from(number).expect("a device of less than 16 TiB");
        Ftl {
            timing,
            block_pages: narrow(block_pages),
            at: vec![NOWHERE; narrow(pages) as usize],
            owner: vec![NOWHERE; narrow(blocks * block_pages) as usize],
            valid: vec![0; narrow(blocks) as usize],
            free: (0..narrow(blocks)).rev().collect(),
            is_closed: vec![false; narrow(blocks) as usize],
            open: [None; 2],
            wear: Wear::default(),
        }
    }

    /// Logical pages.
    pub fn pages(&self) -> u32 {
        u32::try_from(self.at.len()).unwrap_or(u32::MAX)
    }

    /// What it did.
    pub fn wear(&self) -> Wear {
        self.wear
    }

    /// Writes a page; returns how long that takes.
    pub fn write(&mut self, page: u32) -> Duration {
        let mut took = self.timing.program;
        self.discard(page);
        took += self.collect();
        self.place(page, 0);
        self.wear.host_pages += 1;
        self.wear.busy += took;
        took
    }

    /// Makes all durable; returns how long that takes.
    pub fn sync(&mut self) -> Duration {
        self.wear.busy += self.timing.sync;
        self.timing.sync
    }

    /// Forgets what a page holds.
    pub fn discard(&mut self, page: u32) {
        let at = std::mem::replace(&mut self.at[page as usize], NOWHERE);
        if at != NOWHERE {
            self.owner[at as usize] = NOWHERE;
            self.valid[(at / self.block_pages) as usize] -= 1;
        }
    }

    /// Puts a page behind the last one of a stream.
    fn place(&mut self, page: u32, stream: usize) {
        let next = match self.open[stream] {
            Some(next) => next,
            None => self.free.pop().expect("collection keeps blocks free") * self.block_pages,
        };
        self.at[page as usize] = next;
        self.owner[next as usize] = page;
        let block = next / self.block_pages;
        self.valid[block as usize] += 1;
        let is_full = (next + 1).is_multiple_of(self.block_pages);
        self.is_closed[block as usize] = is_full;
        self.open[stream] = (!is_full).then_some(next + 1);
    }

    /// Makes blocks free while there are few.
    fn collect(&mut self) -> Duration {
        let mut took = Duration::ZERO;
        while self.free.len() < FREE_MIN {
            let closed = (0..self.valid.len()).filter(|block| self.is_closed[*block]);
            let Some(block) = closed.min_by_key(|block| self.valid[*block]) else { break };
            self.is_closed[block] = false;
            let first = block * self.block_pages as usize;
            for at in first..first + self.block_pages as usize {
                let page = std::mem::replace(&mut self.owner[at], NOWHERE);
                if page != NOWHERE {
                    self.valid[block] -= 1;
                    self.place(page, 1);
                    self.wear.moved_pages += 1;
                    took += self.timing.read + self.timing.program;
                }
            }
            self.free.push(u32::try_from(block).unwrap_or(u32::MAX));
            self.wear.erased += 1;
            took += self.timing.erase;
        }
        took
    }
}
