//! How full a device is.

use tombolo_storage::Purpose;
use tombolo_storage::facts::Fact;

use crate::volume::Core;
use crate::zones::{For, Use};

/// What a device offers, judged.
pub(crate) fn facts(core: &Core) -> Vec<Fact> {
    let space = space(core);
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let zones = format!("{} of {} bytes", core.geometry.zones, core.geometry.zone_bytes);
    let mut facts = vec![Fact::fine("zones", zones)];
    facts.push(if space.free_bytes * 20 < space.capacity_bytes {
        Fact::warning(
            "free",
            mib(space.free_bytes),
            "delete what is not needed: below 5 % data has to be moved",
        )
    } else {
        Fact::fine("free", mib(space.free_bytes))
    });
    if space.worn > 0 {
        facts.push(Fact::warning("worn zones", space.worn.to_string(), "replace the device before more go"));
    }
    for note in &core.notes {
        facts.push(Fact::warning("metadata", note.clone(), "`tombolo zoned fsck` says more"));
    }
    facts
}

/// The space of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes that zones for data take.
    pub capacity_bytes: u64,
    /// Of these, bytes that bodies need, in whole blocks.
    pub live_bytes: u64,
    /// Bytes in log zones.
    pub log_bytes: u64,
    /// Bytes that were written, and that nobody needs: freed when the rest of their zones goes.
    pub dead_bytes: u64,
    /// Bytes that a flush may still write before it is refused.
    pub free_bytes: u64,
    /// Zones by their use: free, open, full, log, worn.
    pub free: usize,
    /// See `free`.
    pub open: usize,
    /// See `free`.
    pub full: usize,
    /// See `free`.
    pub log: usize,
    /// See `free`.
    pub worn: usize,
}

/// How full a device is.
pub(crate) fn space(core: &Core) -> Space {
    let zones = core.zones.lock();
    let state = core.state.read();
    let mut space = Space::default();
    let kept = zones.kept_from(For::Request(Purpose::Flush));
    let mut open_room = 0;
    for slot in &zones.slots {
        let capacity = slot.file.capacity;
        let live = state.live_of(slot.file.zone);
        match slot.used {
            Use::Metadata => continue,
            Use::Worn(_) => {
                space.worn += 1;
                continue;
            }
            Use::Free | Use::Resetting => space.free += 1,
            Use::Log => {
                space.log += 1;
                space.log_bytes += capacity;
            }
            Use::Open(_) => {
                space.open += 1;
                let pointer = *slot.file.pointer.lock();
                open_room += capacity.saturating_sub(pointer);
                space.dead_bytes += pointer.saturating_sub(live);
            }
            Use::Full => {
                space.full += 1;
                space.dead_bytes += capacity.saturating_sub(live);
            }
        }
        space.capacity_bytes += capacity;
        space.live_bytes += live;
    }
    let zone = core.metadata_capacity();
    space.free_bytes = space.free.saturating_sub(kept) as u64 * zone + open_room;
    space
}
