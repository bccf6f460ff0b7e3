//! Zones of a block device of this host: what it says of them, and what it is told.
//!
//! Bytes are read and written through [`crate::File`], past the page cache.

use std::fmt;
use std::io;

/// What a zone of a device is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneState {
    /// Nothing was written since it was reset.
    Empty,
    /// It takes writes.
    Open,
    /// It takes writes once it is open again, and counts as active.
    Closed,
    /// It takes no writes until it is reset.
    Full,
    /// It can be read, and takes neither writes nor resets any more.
    ReadOnly,
    /// It can be neither read nor written any more.
    Offline,
    /// It has no write pointer: a conventional zone.
    Conventional,
}

impl ZoneState {
    /// As the kernel numbers conditions (`blk_zone_cond`, linux/blkzoned.h).
    pub fn of_condition(number: u8) -> Option<ZoneState> {
        Some(match number {
            0 => ZoneState::Conventional,
            1 => ZoneState::Empty,
            2 | 3 => ZoneState::Open,
            4 => ZoneState::Closed,
            13 => ZoneState::ReadOnly,
            14 => ZoneState::Full,
            15 => ZoneState::Offline,
            _ => return None,
        })
    }

    /// The kernel's number.
    pub fn condition(self) -> u8 {
        match self {
            ZoneState::Conventional => 0,
            ZoneState::Empty => 1,
            ZoneState::Open => 2,
            ZoneState::Closed => 4,
            ZoneState::ReadOnly => 13,
            ZoneState::Full => 14,
            ZoneState::Offline => 15,
        }
    }

    /// Whether it counts among those that the device can hold active at once.
    pub fn is_active(self) -> bool {
        matches!(self, ZoneState::Open | ZoneState::Closed)
    }

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            ZoneState::Empty => "empty",
            ZoneState::Open => "open",
            ZoneState::Closed => "closed",
            ZoneState::Full => "full",
            ZoneState::ReadOnly => "read-only",
            ZoneState::Offline => "offline",
            ZoneState::Conventional => "conventional",
        }
    }
}

/// A zone, as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// What it is in.
    pub state: ZoneState,
    /// Where the next write goes, in bytes of the zone.
    pub pointer: u64,
    /// Bytes of it that can be written.
    pub capacity: u64,
}

/// What a device looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneGeometry {
    /// What offsets and lengths of writes are multiples of.
    pub block_bytes: u32,
    /// From the start of a zone to that of the next.
    pub zone_bytes: u64,
    /// How many there are.
    pub zones: u32,
    /// Zones that may be open at once; 0: any number.
    pub open_max: u32,
    /// Zones that may be active at once; 0: any number.
    pub active_max: u32,
}

/// A device's zones.
pub trait ZoneControl: Send + Sync + fmt::Debug {
    /// What the device looks like.
    fn geometry(&self) -> ZoneGeometry;
    /// All zones, in order.
    fn report(&self) -> io::Result<Vec<Zone>>;
    /// Empties a zone.
    fn reset(&self, zone: u32) -> io::Result<()>;
    /// Makes a zone full.
    fn finish(&self, zone: u32) -> io::Result<()>;
}
