//! Which zone takes what.
//!
//! Bodies that are expected to die at about the same time share zones: a class is a power of eight
//! of zones that are written meanwhile. How long bodies of a sort live is learned from those that
//! are gone; before eight are, their creator's word counts. A body lies in as many extents as it
//! needs, none across zones.
//!
//! **Zones that are open at once.** The device bounds them. Of the bound, two are for metadata, one
//! for log and one for what has to be moved; the rest is for bodies. Without a free place a body
//! shares the zone whose class is nearest, rather one that lives longer.
//!
//! **Free zones that are kept.** The last one is for moving what lives, so that something can be
//! reset; the next for the metadata of databases and for deleting; one more for compaction; and
//! some for flushes, before new writes are refused.
//!
//! Invariants:
//! 1. A zone is written by one thread at a time, at its pointer.
//! 2. A zone is reset only when no body needs it, nothing in it is on its way, and nobody reads it
//!    (rule 5).

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Placement, Purpose};

use crate::device::block::is_usable;
use crate::device::{Zone, ZoneState};
use crate::state::{Sort, State};

/// Classes of expected life.
pub const CLASSES: u8 = 6;
/// Bodies of a sort that are gone before what they show is believed.
const SAMPLES_WANTED: u32 = 8;
/// Zones that bodies may have open at once where the device sets no bound.
const OPEN_DEFAULT: usize = 12;
/// Zones open at once beside those of bodies: metadata and the next generation of it, log, moving.
const OPEN_KEPT: usize = 4;
/// Fewest zones that a device must be able to hold open.
pub const OPEN_MIN: u32 = 6;

/// What a zone is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Metadata rolls through it.
    Metadata,
    /// Nothing.
    Free,
    /// Bodies of a class are written to it.
    Open(u8),
    /// Bodies lie in it, and no more are written to it.
    Full,
    /// Log.
    Log,
    /// It is being emptied.
    Resetting,
    /// It takes no writes any more, as its state says.
    Worn(ZoneState),
}

/// What the writers of a zone share.
#[derive(Debug)]
pub struct ZoneFile {
    /// Which.
    pub zone: u32,
    /// Bytes that it takes.
    pub capacity: u64,
    /// Where the next write goes; its holder writes.
    pub pointer: Mutex<u64>,
    /// Reads of it on their way.
    pub readers: AtomicU32,
}

/// A zone, and who is at it.
#[derive(Debug)]
pub struct Slot {
    /// What it is used for.
    pub used: Use,
    /// What its writers share.
    pub file: Arc<ZoneFile>,
    /// Writers whose bodies, not named yet, have something in it.
    pub writers: u32,
}

/// All zones of a device.
#[derive(Debug)]
pub struct Zones {
    /// In order.
    pub slots: Vec<Slot>,
    /// Zones that bodies may have open at once.
    pub open_max: usize,
    /// A zone with less than so many bytes left is finished.
    pub finish_bytes: u64,
    /// Zones that appended log will need.
    pub kept_for_log: usize,
}

/// For whom a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A body, or log, that a request brings.
    Request(Purpose),
    /// What has to be moved.
    Moving,
}

impl Zones {
    /// What the device says, and what its metadata names of it.
    pub fn new(report: &[Zone], state: &State, metadata_zones: u32, limits: (u32, u32), finish: u8) -> Zones {
        let mut slots = Vec::with_capacity(report.len());
        for (number, zone) in (0_u32..).zip(report) {
            let live = state.live_of(number);
            let used = if number < metadata_zones {
                Use::Metadata
            } else if state.log_zones.contains_key(&number) {
                Use::Log
            } else if !is_usable(zone) {
                Use::Worn(zone.state)
            } else if zone.state == ZoneState::Full || live > 0 && zone.pointer >= zone.capacity {
                Use::Full
            } else if live > 0 {
                Use::Open(class_of_zone(state, number))
            } else if zone.pointer == 0 && zone.state == ZoneState::Empty {
                Use::Free
            } else if zone.pointer < zone.capacity {
                // Nothing names its content. It is filled further: a reset costs a zone a part of
                // its life, however little was written.
                Use::Open(1)
            } else {
                Use::Full
            };
            let file = ZoneFile {
                zone: number,
                capacity: zone.capacity,
                pointer: Mutex::new(zone.pointer),
                readers: AtomicU32::new(0),
            };
            slots.push(Slot { used, file: Arc::new(file), writers: 0 });
        }
        let bound = [limits.0, limits.1].into_iter().filter(|limit| *limit != 0).min();
        let open_max = bound.map_or(OPEN_DEFAULT, |bound| (bound as usize).saturating_sub(OPEN_KEPT)).max(1);
        let capacity = report.first().map_or(0, |zone| zone.capacity);
        let finish_bytes = capacity / 100 * u64::from(finish);
        Zones { slots, open_max, finish_bytes, kept_for_log: 0 }
    }

    /// Zones that nothing uses.
    pub fn free(&self) -> usize {
        self.slots.iter().filter(|slot| slot.used == Use::Free).count()
    }

    fn open(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot.used, Use::Open(_))).count()
    }

    /// Zones that may hold bodies or log.
    pub fn for_data(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot.used, Use::Metadata | Use::Worn(_))).count()
    }

    /// Free zones that are kept from `whom`.
    pub fn kept_from(&self, whom: For) -> usize {
        let some = (self.for_data() / 32).max(1);
        match whom {
            For::Moving => 0,
            For::Request(Purpose::Manifest | Purpose::Open | Purpose::Collection) => 1,
            For::Request(Purpose::Compaction) => 2 + self.kept_for_log,
            For::Request(Purpose::Log) => 2 + some,
            For::Request(_) => 2 + some + self.kept_for_log,
        }
    }

    /// Takes a free zone.
    pub fn take(&mut self, whom: For, to: Use) -> Option<Arc<ZoneFile>> {
        if self.free() <= self.kept_from(whom) {
            return None;
        }
        let slot = self.slots.iter_mut().find(|slot| slot.used == Use::Free)?;
        slot.used = to;
        Some(Arc::clone(&slot.file))
    }

    /// An open zone for a body of `class`, or a free one made open: see the module's text.
    pub fn choose(&mut self, class: u8, whom: For, before: Option<u32>) -> Option<Arc<ZoneFile>> {
        let is_open = |slot: &Slot| matches!(slot.used, Use::Open(_));
        if let Some(slot) = before.and_then(|zone| self.slots.get(zone as usize)).filter(|slot| is_open(slot))
        {
            return Some(Arc::clone(&slot.file));
        }
        let same =
            self.slots.iter().filter(|slot| slot.used == Use::Open(class)).min_by_key(|slot| slot.writers);
        let (best, is_busy) = match same {
            Some(slot) => (Some(Arc::clone(&slot.file)), slot.writers > 0),
            None => (None, true),
        };
        if let Some(best) = best.as_ref().filter(|_| !is_busy) {
            return Some(Arc::clone(best));
        }
        // One place stays for a class that has none open.
        let open_max = if best.is_some() { self.open_max.saturating_sub(2) } else { self.open_max };
        if self.open() < open_max
            && let Some(fresh) = self.take(whom, Use::Open(class))
        {
            return Some(fresh);
        }
        best.or_else(|| {
            let distance = |slot: &&Slot| match slot.used {
                Use::Open(other) if other >= class => 2 * u32::from(other - class),
                Use::Open(other) => 2 * u32::from(class - other) + 1,
                _ => u32::MAX,
            };
            let nearest = self.slots.iter().filter(|slot| is_open(slot)).min_by_key(distance)?;
            Some(Arc::clone(&nearest.file))
        })
    }
}

/// The class that most of a zone's bytes are of.
fn class_of_zone(state: &State, zone: u32) -> u8 {
    let mut bytes = [0_u64; CLASSES as usize];
    for body in state.bodies.values() {
        let here: u64 =
            body.extents.iter().filter(|extent| extent.zone == zone).map(|extent| extent.bytes).sum();
        bytes[usize::from(class_of(state, body.sort, u64::MAX))] += here;
    }
    (0..CLASSES).max_by_key(|class| bytes[usize::from(*class)]).unwrap_or(0)
}

/// The class of a sort, on zones of `capacity` bytes.
pub fn class_of(state: &State, sort: Sort, capacity: u64) -> u8 {
    const FOREVER: u8 = 3;
    if is_enabled(Mutant::ZonedIgnoresLife) {
        return 0;
    }
    if sort.2 == FOREVER {
        return CLASSES - 1;
    }
    let learned = state.learned.get(&sort).filter(|learned| learned.samples >= SAMPLES_WANTED);
    match learned {
        Some(learned) if capacity != u64::MAX => match learned.mean / capacity.max(1) {
            0 => 0,
            1..8 => 1,
            8..64 => 2,
            64..512 => 3,
            _ => 4,
        },
        _ => sort.2.saturating_add(1).min(CLASSES - 1),
    }
}

/// What sort a body is of.
pub fn sort_of(placement: Placement) -> Sort {
    use tombolo_storage::{Life, ObjectKind};
    let kind = match placement.kind {
        ObjectKind::Table => 0,
        ObjectKind::Manifest => 1,
        ObjectKind::Log => 2,
        ObjectKind::Pin => 3,
        _ => 4,
    };
    let life = match placement.life {
        Life::Short => 0,
        Life::Medium => 1,
        Life::Long => 2,
        Life::Forever => 3,
    };
    (kind, placement.level, life)
}

#[cfg(test)]
mod tests;
