//! Writing to zones, and emptying them: what [`crate::zones`] decides is done here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::device::block::is_usable;
use crate::device::{Device, ZoneState};
use crate::failed;
use crate::volume::Core;
use crate::zones::{For, Use, ZoneFile};

/// Zones that a body on its way has something in: none of them is reset while this lives.
#[derive(Debug)]
pub struct Held {
    core: Arc<Core>,
    zones: Vec<u32>,
}

impl Held {
    /// None yet.
    pub fn new(core: &Arc<Core>) -> Held {
        Held { core: Arc::clone(core), zones: Vec::new() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut zones = self.core.zones.lock();
        for zone in &self.zones {
            let slot = &mut zones.slots[*zone as usize];
            slot.writers = slot.writers.saturating_sub(1);
        }
        drop(zones);
        self.core.reset_dead(&self.zones);
    }
}

impl Core {
    /// Writes whole blocks, or as many of them as a zone has room for: the zone, the byte in it,
    /// and how many bytes.
    ///
    /// # Errors
    /// `OutOfSpace` when no zone is free for `whom`; the device's.
    pub(crate) fn write_data(
        self: &Arc<Core>,
        held: &mut Held,
        class: u8,
        whom: For,
        before: Option<u32>,
        bytes: &[u8],
    ) -> Result<(u32, u64, usize)> {
        let mut failures = 0;
        loop {
            let file = self.zone_for(held, class, whom, before)?;
            let mut pointer = file.pointer.lock();
            let room = usize::try_from(file.capacity.saturating_sub(*pointer)).unwrap_or(usize::MAX);
            let now = room.min(bytes.len());
            if now == 0 {
                drop(pointer);
                self.close_zone(&file)?;
                continue;
            }
            let at = *pointer;
            match self.device.write(file.zone, at, &bytes[..now]) {
                Ok(()) => {
                    *pointer += now as u64;
                    let left = file.capacity - *pointer;
                    drop(pointer);
                    if left < self.zones.lock().finish_bytes.max(1) {
                        self.close_zone(&file)?;
                    }
                    self.counters.lock().data_bytes += now as u64;
                    return Ok((file.zone, at, now));
                }
                Err(error) => {
                    drop(pointer);
                    let error = failed(&self.device, error, format!("writing to zone {}", file.zone));
                    self.look_at_zone(&file)?;
                    failures += 1;
                    // Another zone may take it.
                    if failures > 3 || error.kind() == ErrorKind::Closed {
                        return Err(error);
                    }
                    tracing::warn!(%error, zone = file.zone, "a zone refused a write");
                }
            }
        }
    }

    fn zone_for(
        self: &Arc<Core>,
        held: &mut Held,
        class: u8,
        whom: For,
        before: Option<u32>,
    ) -> Result<Arc<ZoneFile>> {
        for attempt in 0..2 {
            {
                let mut zones = self.zones.lock();
                if let Some(file) = zones.choose(class, whom, before) {
                    if !held.zones.contains(&file.zone) {
                        zones.slots[file.zone as usize].writers += 1;
                        held.zones.push(file.zone);
                    }
                    return Ok(file);
                }
            }
            if attempt == 0 && !self.make_room(whom)? {
                break;
            }
        }
        Err(self.out_of_space(whom))
    }

    /// The error of who finds no zone.
    pub(crate) fn out_of_space(&self, whom: For) -> Error {
        let (free, kept) = {
            let zones = self.zones.lock();
            (zones.free(), zones.kept_from(whom))
        };
        Error::new(
            ErrorKind::OutOfSpace,
            format!("no zone is free: {free} are, of which {kept} are kept back"),
        )
        .object(self.device.describe())
        .advice("delete what is not needed, or move databases to another device; writes resume by themselves")
    }

    /// No more is written to a zone: it counts as open no more.
    pub(crate) fn close_zone(&self, file: &Arc<ZoneFile>) -> Result<()> {
        let was_open = {
            let mut zones = self.zones.lock();
            let slot = &mut zones.slots[file.zone as usize];
            let was_open = matches!(slot.used, Use::Open(_));
            if was_open {
                slot.used = Use::Full;
            }
            was_open
        };
        let mut pointer = file.pointer.lock();
        if was_open && *pointer < file.capacity {
            self.device
                .finish(file.zone)
                .map_err(|error| failed(&self.device, error, format!("finishing zone {}", file.zone)))?;
            *pointer = file.capacity;
        }
        Ok(())
    }

    /// After an error: what the device says of a zone counts. Nothing more is written to it.
    pub(crate) fn look_at_zone(&self, file: &Arc<ZoneFile>) -> Result<()> {
        let report = self.device.report().map_err(|error| failed(&self.device, error, "looking at zones"))?;
        let found = report[file.zone as usize];
        *file.pointer.lock() = found.pointer;
        let slot = &mut self.zones.lock().slots[file.zone as usize];
        slot.used = match slot.used {
            Use::Open(_) | Use::Full | Use::Free if !is_usable(&found) => Use::Worn(found.state),
            Use::Open(_) => Use::Full,
            other => other,
        };
        Ok(())
    }

    /// Empties those of `zones` that nobody needs any more, and that are full.
    pub(crate) fn reset_dead(&self, zones: &[u32]) {
        for &zone in zones {
            self.reset_if_dead(zone, false);
        }
    }

    /// Empties a zone that nobody needs any more; one that still has room only when that is asked.
    /// Whether it did.
    pub(crate) fn reset_if_dead(&self, zone: u32, even_open: bool) -> bool {
        let file = {
            let mut zones = self.zones.lock();
            let slot = &mut zones.slots[zone as usize];
            let may = match slot.used {
                Use::Full => true,
                Use::Open(_) => even_open,
                _ => false,
            };
            let is_in_flight = slot.writers > 0 && !is_enabled(Mutant::ZonedResetsInFlight);
            let is_kept = is_in_flight || self.is_outcome_unknown.load(Ordering::SeqCst);
            if !may || is_kept || self.state.read().live_of(zone) > 0 {
                return false;
            }
            // After the state was asked: who reads a body has said so before it was gone.
            if slot.file.readers.load(Ordering::SeqCst) > 0 && !is_enabled(Mutant::ZonedResetsRead) {
                return false;
            }
            slot.used = Use::Resetting;
            Arc::clone(&slot.file)
        };
        let mut pointer = file.pointer.lock();
        let done = self.device.reset(zone);
        if done.is_ok() {
            *pointer = 0;
        }
        drop(pointer);
        match done {
            Ok(()) => {
                self.zones.lock().slots[zone as usize].used = Use::Free;
                true
            }
            Err(error) => {
                tracing::warn!(%error, zone, "a zone could not be emptied");
                self.zones.lock().slots[zone as usize].used = Use::Worn(ZoneState::ReadOnly);
                false
            }
        }
    }

    /// Frees a zone for `whom`: by emptying dead ones, and as a last resort by moving what lives.
    ///
    /// # Errors
    /// Those of moving.
    pub(crate) fn make_room(self: &Arc<Core>, whom: For) -> Result<bool> {
        let all = u32::try_from(self.capacities.len()).unwrap_or(u32::MAX);
        let mut is_freed = false;
        for even_open in [false, true] {
            for zone in 0..all {
                is_freed |= self.reset_if_dead(zone, even_open);
            }
            if is_freed {
                break;
            }
        }
        let has_room = || {
            let zones = self.zones.lock();
            zones.free() > zones.kept_from(whom)
        };
        if has_room() || whom == For::Moving {
            return Ok(is_freed);
        }
        self.relocate(whom)?;
        Ok(has_room())
    }
}
