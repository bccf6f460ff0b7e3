//! How often a device is asked for what.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_env::BoxFuture;

use super::{Device, Place, SharedDevice, Zone, ZoneGeometry};

/// Operations of a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Ranges read.
    pub reads: u64,
    /// Syncs.
    pub syncs: u64,
    /// Zones emptied.
    pub resets: u64,
    /// Zones made full before they were.
    pub finishes: u64,
}

impl Counts {
    /// All operations but reads.
    pub fn changes(&self) -> u64 {
        self.writes + self.syncs + self.resets + self.finishes
    }
}

/// A device whose operations are counted.
#[derive(Debug)]
pub struct Counted {
    device: SharedDevice,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    syncs: AtomicU64,
    resets: AtomicU64,
    finishes: AtomicU64,
}

impl Counted {
    /// Counts from here on.
    pub fn new(device: SharedDevice) -> Counted {
        let zero = || AtomicU64::new(0);
        Counted {
            device,
            writes: zero(),
            written_bytes: zero(),
            reads: zero(),
            syncs: zero(),
            resets: zero(),
            finishes: zero(),
        }
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            writes: of(&self.writes),
            written_bytes: of(&self.written_bytes),
            reads: of(&self.reads),
            syncs: of(&self.syncs),
            resets: of(&self.resets),
            finishes: of(&self.finishes),
        }
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Device for Counted {
    fn geometry(&self) -> ZoneGeometry {
        self.device.geometry()
    }

    fn report(&self) -> io::Result<Vec<Zone>> {
        self.device.report()
    }

    fn write(&self, zone: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        count(&self.writes, 1);
        count(&self.written_bytes, bytes.len() as u64);
        self.device.write(zone, at, bytes)
    }

    fn read(&self, zone: u32, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        count(&self.reads, 1);
        self.device.read(zone, at, buffer)
    }

    fn read_many(&self, places: Vec<Place>) -> BoxFuture<'static, Vec<io::Result<Vec<u8>>>> {
        count(&self.reads, places.len() as u64);
        self.device.read_many(places)
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        count(&self.resets, 1);
        self.device.reset(zone)
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        count(&self.finishes, 1);
        self.device.finish(zone)
    }

    fn sync(&self) -> io::Result<()> {
        count(&self.syncs, 1);
        self.device.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.device.try_lock()
    }

    fn refresh(&self) -> io::Result<()> {
        self.device.refresh()
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}
