//! The rolling log of a device's metadata.
//!
//! A generation of it lies in one metadata zone: superblock, snapshot, then transactions. When half
//! of the room behind the snapshot is used, the next generation is begun in a spare zone, beside
//! the transactions that go on:
//!
//! 1. the snapshot of a moment is written, part by part;
//! 2. the changes since then follow it, and the snapshot's end; all is made durable;
//! 3. the old generation is ended by a mark that names the new one, and that is made durable;
//! 4. transactions go to the new one.
//!
//! A transaction waits for steps 2 to 4 at most: three writes and two syncs, however large the
//! snapshot.
//!
//! Invariants:
//! 1. Of all that was acknowledged, everything lies in the newest generation that is whole.
//! 2. The zone of the generation before is not reset until the next roll begins.

pub mod mount;
mod roll;
mod window;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_format::zoned::{
    UNIT_PAYLOAD_BYTES_MAX, UnitIdentity, UnitKind, ZoneRecord, encode_record, encode_unit, unit_bytes,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::device::Device;
use crate::failed;
use crate::generation::MetadataLog;
use crate::state::State;
use crate::volume::Core;

pub use roll::snapshot;
pub use window::Window;

/// Zones that metadata rolls through when nothing else is said: two, and a spare.
pub const METADATA_ZONES_DEFAULT: u32 = 3;
/// Most of them.
pub const METADATA_ZONES_MAX: u32 = 8;

/// Whether a record needs room in the metadata for good.
fn adds(record: &ZoneRecord) -> bool {
    matches!(record, ZoneRecord::Body { .. } | ZoneRecord::Name { .. } | ZoneRecord::Lane { .. })
}

impl Core {
    /// Makes a change durable, and takes it in: the records that `build` makes of the state as it
    /// is, which nobody else changes meanwhile.
    ///
    /// # Errors `build`'s; `OutOfSpace` when the metadata is full; `OutcomeUnknown` when neither
    /// this generation nor the next could be written.
    pub(crate) fn commit<R>(
        self: &Arc<Core>,
        build: impl FnOnce(&State) -> Result<(Vec<ZoneRecord>, R)>,
    ) -> Result<R> {
        let mut log = self.metadata.lock();
        if log.is_doubtful {
            self.roll_now(&mut log)?;
        }
        let (records, result) = build(&self.state.read())?;
        if records.is_empty() {
            return Ok(result);
        }
        let mut payload = Vec::new();
        records.iter().for_each(|record| encode_record(&mut payload, record));
        self.check_room(&records, payload.len())?;
        if let Err(error) = self.append(&mut log, &payload) {
            tracing::warn!(%error, "the metadata goes on in another zone");
            log.is_doubtful = true;
            let unknown = |error: Error| {
                self.is_outcome_unknown.store(true, Ordering::SeqCst);
                Error::new(
                    ErrorKind::OutcomeUnknown,
                    format!("a change of the metadata: {}", error.message()),
                )
                .object(self.device.describe())
                .source(error)
            };
            // The next generation is without the change: what may lie in this one counts no more.
            self.roll_now(&mut log).map_err(unknown)?;
            self.append(&mut log, &payload).map_err(|error| {
                log.is_doubtful = true;
                unknown(error)
            })?;
        }
        if let Some(roll) = &log.roll {
            roll.add(&payload);
        }
        {
            let mut state = self.state.write();
            for record in &records {
                let applied = state.apply(record, &self.geometry, self.superblock.metadata_zones);
                assert!(applied.is_ok(), "a change that contradicts the state: {applied:?}");
            }
        }
        self.counters.lock().metadata.transactions += 1;
        self.roll_when_due(&mut log);
        Ok(result)
    }

    /// Refuses what a snapshot of would not leave a quarter of a metadata zone: else each roll
    /// would be followed by another.
    fn check_room(&self, records: &[ZoneRecord], payload_bytes: usize) -> Result<()> {
        if payload_bytes as u64 > (self.metadata_capacity() / 8).min(UNIT_PAYLOAD_BYTES_MAX as u64) {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!("a change of {payload_bytes} bytes of metadata: the object is in too many pieces"),
            )
            .object(self.device.describe())
            .advice("delete objects, so that whole zones become free, then try again"));
        }
        let max = self.metadata_capacity() / 4 * 3;
        let held = self.state.read().snapshot_bytes;
        if records.iter().any(adds) && held + payload_bytes as u64 > max {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!("the metadata is full: {held} bytes; {max} are the most"),
            )
            .object(self.device.describe())
            .advice("delete objects, or format the device with larger zones"));
        }
        Ok(())
    }

    /// Bytes that the smallest metadata zone takes.
    pub(crate) fn metadata_capacity(&self) -> u64 {
        self.capacities[..self.superblock.metadata_zones as usize].iter().copied().min().unwrap_or(0)
    }

    /// Writes a transaction at the end of the newest generation, and makes it durable.
    fn append(self: &Arc<Core>, log: &mut MetadataLog, payload: &[u8]) -> Result<()> {
        let bytes = unit_bytes(payload.len(), self.block()) as u64;
        // One block is kept for the generation's end.
        if log.at + bytes + self.block() as u64 > self.capacities[log.zone as usize] {
            self.roll_now(log)?;
        }
        let failed_syncs = self.failed_syncs();
        self.write_unit(log.zone, log.at, (log.generation, log.number), UnitKind::Transaction, payload)?;
        log.at += bytes;
        log.number += 1;
        if is_enabled(Mutant::ZonedRecordUnsynced) { Ok(()) } else { self.sync_since(failed_syncs) }
    }

    /// Writes a unit of metadata.
    pub(crate) fn write_unit(
        &self,
        zone: u32,
        at: u64,
        (generation, number): (u64, u64),
        kind: UnitKind,
        payload: &[u8],
    ) -> Result<u64> {
        let block = u32::try_from(at / self.block() as u64).unwrap_or(u32::MAX);
        let identity = UnitIdentity { device: self.id, generation, number, zone, block };
        let unit = encode_unit(identity, kind, payload, self.block());
        self.counters.lock().metadata.bytes += unit.len() as u64;
        self.device
            .write(zone, at, &unit)
            .map_err(|error| failed(&self.device, error, format!("writing metadata to zone {zone}")))?;
        Ok(unit.len() as u64)
    }
}
