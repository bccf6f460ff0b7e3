//! Moving what lives out of zones that hold mostly what does not: the last resort, when no zone is
//! free and none is dead. Bounded, and counted.
//!
//! Bytes are checked while they are moved: damaged ones stay where they are, and its zone with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_format::checksum::StreamHash;
use tombolo_format::zoned::{Extent, ZoneRecord};
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::allocate::Held;
use crate::device::Device;
use crate::state::Body;
use crate::volume::Core;
use crate::zones::{CLASSES, For, Slot, Use, class_of};

/// Zones that are emptied by moving for one request.
const ZONES_MAX: usize = 4;
/// Of a zone at least a part of so many must be dead.
const DEAD_PART: u64 = 8;

impl Core {
    /// Moves what lives out of a few zones, until `whom` finds a free one.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn relocate(self: &Arc<Core>, whom: For) -> Result<()> {
        let _one_at_a_time = self.moving.lock();
        for _ in 0..ZONES_MAX {
            {
                let zones = self.zones.lock();
                if zones.free() > zones.kept_from(whom) {
                    return Ok(());
                }
            }
            let Some(zone) = self.most_dead() else { return Ok(()) };
            if !self.move_out_of(zone)? {
                return Ok(());
            }
            self.reset_if_dead(zone, true);
        }
        Ok(())
    }

    /// The zone with the most dead bytes, if they are enough.
    fn most_dead(&self) -> Option<u32> {
        let zones = self.zones.lock();
        let state = self.state.read();
        let dead = |slot: &&Slot| {
            let pointer = slot.file.pointer.lock();
            let written = if slot.used == Use::Full { slot.file.capacity } else { *pointer };
            written.saturating_sub(state.live_of(slot.file.zone))
        };
        let is_movable = |slot: &&Slot| {
            matches!(slot.used, Use::Full | Use::Open(_))
                && slot.writers == 0
                && state.live_of(slot.file.zone) > 0
                && dead(slot) >= slot.file.capacity / DEAD_PART
        };
        zones.slots.iter().filter(is_movable).max_by_key(dead).map(|slot| slot.file.zone)
    }

    /// Moves all that lives out of a zone; `false` when something cannot be moved.
    fn move_out_of(self: &Arc<Core>, zone: u32) -> Result<bool> {
        let bodies: Vec<(u64, Body, u8)> = {
            let state = self.state.read();
            let is_here = |body: &Body| body.extents.iter().any(|extent| extent.zone == zone);
            let class = |body: &Body| class_of(&state, body.sort, self.capacities[zone as usize]);
            let here = state.bodies.iter().filter(|(_, body)| is_here(body));
            here.map(|(number, body)| (*number, body.clone(), class(body))).collect()
        };
        // Nothing is written to where it is read from.
        {
            let slot = &mut self.zones.lock().slots[zone as usize];
            if matches!(slot.used, Use::Open(_)) {
                slot.used = Use::Full;
            }
        }
        let failed_syncs = self.failed_syncs();
        let mut held = Held::new(self);
        let mut moved: BTreeMap<u64, (Arc<[Extent]>, Vec<Extent>)> = BTreeMap::new();
        let mut bytes = 0;
        for (number, body, class) in bodies {
            let mut extents = Vec::new();
            for extent in body.extents.iter() {
                if extent.zone != zone {
                    extents.push(*extent);
                    continue;
                }
                bytes += extent.bytes;
                // What lived so long lives longer than others of its sort.
                if !self.move_extent(&mut held, extent, (class + 1).min(CLASSES - 1), &mut extents)? {
                    return Ok(false);
                }
            }
            moved.insert(number, (body.extents, extents));
        }
        self.sync_since(failed_syncs)?;
        if is_enabled(Mutant::ZonedResetBeforeRecord) {
            drop(self.device.reset(zone));
        }
        self.commit(|state| {
            let is_same = |number: &u64, before: &Arc<[Extent]>| {
                state.bodies.get(number).is_some_and(|body| body.extents == *before)
            };
            let records = moved
                .into_iter()
                .filter(|(number, (before, _))| is_same(number, before))
                .map(|(body, (_, extents))| ZoneRecord::Moved { body, extents })
                .collect();
            Ok((records, ()))
        })?;
        let mut counters = self.counters.lock();
        counters.relocated_bytes += bytes;
        counters.relocated_zones += 1;
        Ok(true)
    }

    /// Copies an extent elsewhere, if it is sound.
    fn move_extent(
        self: &Arc<Core>,
        held: &mut Held,
        extent: &Extent,
        class: u8,
        into: &mut Vec<Extent>,
    ) -> Result<bool> {
        let bytes = self.read_extent(extent)?;
        let mut hash = StreamHash::new();
        hash.update(&bytes[..usize::try_from(extent.bytes).unwrap_or(bytes.len())]);
        if hash.digest() != extent.hash {
            tracing::warn!(zone = extent.zone, block = extent.block, "damaged bytes are not moved");
            return Ok(false);
        }
        let mut done = 0;
        while done < bytes.len() {
            let (zone, at, count) = self.write_data(held, class, For::Moving, None, &bytes[done..])?;
            let ends = (done + count).min(usize::try_from(extent.bytes).unwrap_or(usize::MAX));
            let mut hash = StreamHash::new();
            hash.update(&bytes[done..ends]);
            into.push(Extent {
                zone,
                block: u32::try_from(at / self.block() as u64).unwrap_or(u32::MAX),
                bytes: (ends - done) as u64,
                hash: hash.digest(),
            });
            done += count;
        }
        Ok(true)
    }

    /// An extent's whole blocks.
    fn read_extent(&self, extent: &Extent) -> Result<Vec<u8>> {
        let block = self.block();
        let length = usize::try_from(extent.bytes).unwrap_or(usize::MAX).next_multiple_of(block);
        let mut bytes = vec![0; length];
        self.device
            .read(extent.zone, u64::from(extent.block) * block as u64, &mut bytes)
            .map_err(|error| self.read_failed(error, extent.zone))?;
        Ok(bytes)
    }
}
