//! A file of zones, as flash sees it: each zone a block.

use std::time::Duration;

use super::{PAGE_BYTES, Timing, Wear};

/// Zones on flash.
#[derive(Debug)]
pub struct ZonesOnFlash {
    timing: Timing,
    /// Where the first zone begins in the file, and how long each is.
    first: u64,
    zone_bytes: u64,
    /// Bytes of each that were written since it was erased.
    written: Vec<u64>,
    used: u64,
    used_most: u64,
    wear: Wear,
}

impl ZonesOnFlash {
    /// `zones` zones of `zone_bytes` that begin at `first` in the file.
    pub fn new(timing: Timing, first: u64, zone_bytes: u64, zones: u32) -> ZonesOnFlash {
        ZonesOnFlash {
            timing,
            first,
            zone_bytes,
            written: vec![0; zones as usize],
            used: 0,
            used_most: 0,
            wear: Wear::default(),
        }
    }

    /// What the device did.
    pub fn wear(&self) -> Wear {
        self.wear
    }

    /// The most of the device that was written and not erased at once, from 0 to 1.
    pub fn used_most(&self) -> f64 {
        self.used_most as f64 / (self.zone_bytes * self.written.len() as u64) as f64
    }

    /// A write to the file: to a zone, or of what the file says of zones, which a device keeps for
    /// itself. A zone that is written from its start again was erased.
    ///
    /// # Panics
    /// When a page of a zone is written twice without an erase between: no such device does that.
    pub fn write(&mut self, offset: u64, length: u64) -> Duration {
        let Some(at) = offset.checked_sub(self.first) else { return Duration::ZERO };
        let (zone, within) = (at / self.zone_bytes, at % self.zone_bytes);
        let Some(written) = usize::try_from(zone).ok().and_then(|zone| self.written.get_mut(zone)) else {
            return Duration::ZERO;
        };
        let mut took = Duration::ZERO;
        if within == 0 && *written > 0 {
            self.used -= std::mem::take(written);
            self.wear.erased += 1;
            took += self.timing.erase;
        }
        assert!(within >= *written, "zone {zone} is written at {within} again");
        self.used += within + length - *written;
        self.used_most = self.used_most.max(self.used);
        *written = within + length;
        let pages = length.div_ceil(PAGE_BYTES);
        took += self.timing.program * u32::try_from(pages).unwrap_or(u32::MAX);
        self.wear.host_pages += pages;
        self.wear.busy += took;
        took
    }

    /// All is durable.
    pub fn sync(&mut self) -> Duration {
        self.wear.busy += self.timing.sync;
        self.timing.sync
    }
}
