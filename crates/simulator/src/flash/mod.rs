//! What a workload does to flash: the engine on zones, the engine on a file system over a
//! translation layer, and the file operations of any program over the same layer.
//!
//! ```text
//! engine, in the simulated world ──▶ simulated disk ──each operation──▶ zones | file system ─▶ translation layer
//! a program, traced by strace ─────────file operations───────────────────────▶ file system ─▶ translation layer
//! ```
//!
//! Time is virtual: a device works at one thing at a time, for as long as [`Timing`] says, and the
//! process waits for it. Processors cost nothing. So the figures are those of devices, and the same
//! on each machine.
//!
//! The model is small, and stated:
//! - Flash is programmed by pages of 4 KiB and erased by blocks; a zone is a block, too.
//! - The translation layer maps pages, keeps 7 % of the flash for itself, writes what it moves to
//!   blocks of their own, and collects the block with the fewest valid pages when its free blocks
//!   run out (greedy, the best that is known for writes at random).
//! - The file system places new pages behind the last ones, all pages of a write in a row where
//!   there is room, as ext4 does with delayed allocation. Names and lengths that changed cost three
//!   pages of a journal of 1/32 of the device with the next sync. Deleted files are told to the
//!   device (discard) or not (ext4's default), as the trial says.
//! - Programs read what they wrote lately from memory: reads cost the device nothing here.

mod files;
mod ftl;
mod strace;
mod trial;
mod zones;

use std::time::Duration;

pub use files::{FileSystemOnFlash, JOURNAL_PART};
pub use ftl::Ftl;
pub use strace::replay;
pub use trial::{Outcome, Setting, Sizes, run};
pub use zones::ZonesOnFlash;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// How long a device takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// To program a page: 1 GB/s.
    pub program: Duration,
    /// To read a page that is moved: 2 GB/s.
    pub read: Duration,
    /// To erase a block.
    pub erase: Duration,
    /// To make its cache durable.
    pub sync: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            program: Duration::from_micros(4),
            read: Duration::from_micros(2),
            erase: Duration::from_millis(1),
            sync: Duration::from_micros(20),
        }
    }
}

/// What a device did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Pages that it was given.
    pub host_pages: u64,
    /// Pages that it moved for itself.
    pub moved_pages: u64,
    /// Blocks, or zones, that it erased.
    pub erased: u64,
    /// How long it worked.
    pub busy: Duration,
}

impl Wear {
    /// Pages that were programmed, for each that it was given.
    pub fn amplification(&self) -> f64 {
        (self.host_pages + self.moved_pages) as f64 / self.host_pages.max(1) as f64
    }

    /// What happened since `before`.
    #[must_use]
    pub fn since(&self, before: &Wear) -> Wear {
        Wear {
            host_pages: self.host_pages - before.host_pages,
            moved_pages: self.moved_pages - before.moved_pages,
            erased: self.erased - before.erased,
            busy: self.busy - before.busy,
        }
    }
}

#[cfg(test)]
mod tests;
