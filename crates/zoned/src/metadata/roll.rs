//! The next generation of metadata, while it is made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tombolo_env::TaskClass;
use tombolo_format::checksum::StreamHash;
use tombolo_format::zoned::{
    Superblock, UNIT_PAYLOAD_BYTES_MAX, UnitKind, encode_record, encode_snapshot_end,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::device::Device;
use crate::device::block::is_usable;
use crate::failed;
use crate::generation::{Inner, MetadataLog, Roll};
use crate::state::State;
use crate::volume::Core;

/// Bytes of records in a part of a snapshot, about.
const PART_BYTES: usize = 64 << 10;

impl Core {
    /// Begins the next generation when this one is half used, and makes it in the background.
    pub(super) fn roll_when_due(self: &Arc<Core>, log: &mut MetadataLog) {
        let room = self.capacities[log.zone as usize].saturating_sub(log.snapshot_end);
        if log.roll.is_some() || log.at < log.snapshot_end + room / 2 {
            return;
        }
        let roll = match self.begin_roll(log) {
            Ok(roll) => roll,
            Err(error) => {
                tracing::warn!(%error, "the next generation of the metadata could not be begun");
                return;
            }
        };
        let (core, env) = (Arc::downgrade(self), self.env.clone());
        let making = async move {
            loop {
                // The device is not held while others have their turn.
                env.yield_now().await;
                let Some(core) = core.upgrade() else { return };
                match core.step(&roll) {
                    Ok(true) => {}
                    Ok(false) => {
                        // Nobody waits later for bytes that are durable already.
                        let synced = core.sync_since(roll.failed_syncs);
                        let mut log = core.metadata.lock();
                        let is_this = log.roll.as_ref().is_some_and(|current| Arc::ptr_eq(current, &roll));
                        if is_this && let Err(error) = synced.and_then(|()| core.complete(&mut log, &roll)) {
                            core.give_up_roll(&mut log, &roll, &error);
                        }
                        return;
                    }
                    Err(error) => {
                        core.give_up_roll(&mut core.metadata.lock(), &roll, &error);
                        return;
                    }
                }
            }
        };
        self.env.spawn(TaskClass::Background, "zoned metadata", making).detach();
    }

    fn give_up_roll(&self, log: &mut MetadataLog, roll: &Arc<Roll>, error: &Error) {
        if log.roll.as_ref().is_some_and(|current| Arc::ptr_eq(current, roll)) {
            tracing::warn!(%error, zone = roll.zone, "a generation of the metadata is begun anew");
            // A sync that failed for others says nothing against the zone.
            if roll.inner.lock().is_broken {
                log.worn.push(roll.zone);
            }
            log.roll = None;
        }
    }

    /// Makes the next generation now, or the rest of it.
    ///
    /// # Errors
    /// When no metadata zone takes it.
    pub(crate) fn roll_now(self: &Arc<Core>, log: &mut MetadataLog) -> Result<()> {
        self.counters.lock().metadata.rolls_waited_for += 1;
        loop {
            let roll = match &log.roll {
                Some(roll) => Arc::clone(roll),
                None => self.begin_roll(log)?,
            };
            let made = loop {
                match self.step(&roll) {
                    Ok(true) => {}
                    Ok(false) => break self.complete(log, &roll),
                    Err(error) => break Err(error),
                }
            };
            match made {
                Ok(()) => return Ok(()),
                // Of a process that has ended, or a device that is gone, no zone takes anything.
                Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
                Err(error) => self.give_up_roll(log, &roll, &error),
            }
        }
    }

    /// A zone for the next generation: not the newest one's, and that of the one before only when
    /// there is no other.
    fn spare(&self, log: &MetadataLog) -> Result<u32> {
        if is_enabled(Mutant::ZonedRollWithoutSpare) {
            return Ok(log.zone);
        }
        let report = self.device.report().map_err(|error| failed(&self.device, error, "looking at zones"))?;
        let is_spare =
            |zone: &u32| *zone != log.zone && !log.worn.contains(zone) && is_usable(&report[*zone as usize]);
        let zones = || (0..self.superblock.metadata_zones).filter(is_spare);
        zones().find(|zone| Some(*zone) != log.previous).or_else(|| zones().next()).ok_or_else(|| {
            Error::new(ErrorKind::OutOfSpace, "no metadata zone takes writes any more, but the newest one's")
                .object(self.device.describe())
                .advice("the device is worn: move all to another, `tombolo zoned backup`")
        })
    }

    fn begin_roll(&self, log: &mut MetadataLog) -> Result<Arc<Roll>> {
        let zone = self.spare(log)?;
        if log.previous == Some(zone) {
            log.previous = None;
        }
        let units = snapshot(&self.superblock, &self.state.read());
        let (hash, records) = (StreamHash::new(), 0);
        let inner = Inner { units, number: 0, at: 0, hash, records, is_broken: false };
        // A generation that was given up is never one again: its number is not used twice.
        let generation = self.fresh_generation(log);
        let roll = Arc::new(Roll {
            zone,
            generation,
            failed_syncs: self.failed_syncs(),
            inner: Mutex::new(inner),
            pending: Mutex::default(),
        });
        log.roll = Some(Arc::clone(&roll));
        self.counters.lock().metadata.rolls += 1;
        Ok(roll)
    }

    fn fresh_generation(&self, log: &MetadataLog) -> u64 {
        let mut last = self.last_generation.lock();
        *last = (*last).max(log.generation) + 1;
        *last
    }

    /// Writes the next unit of the snapshot; `false` when there is none.
    fn step(&self, roll: &Roll) -> Result<bool> {
        let mut inner = roll.inner.lock();
        if inner.is_broken {
            return Err(Error::new(ErrorKind::Retry, "an earlier write of this generation failed"));
        }
        let Some((kind, payload)) = inner.units.pop_front() else { return Ok(false) };
        inner.is_broken = true;
        if inner.number == 0 {
            self.device
                .reset(roll.zone)
                .map_err(|error| failed(&self.device, error, format!("emptying zone {}", roll.zone)))?;
        }
        self.write_next(roll, &mut inner, kind, &payload)?;
        inner.is_broken = false;
        Ok(true)
    }

    fn write_next(&self, roll: &Roll, inner: &mut Inner, kind: UnitKind, payload: &[u8]) -> Result<()> {
        if kind == UnitKind::SnapshotPart {
            inner.hash.update(payload);
            inner.records +=
                tombolo_format::zoned::decode_records(payload).map_or(0, |found| found.len() as u64);
        }
        let identity = (roll.generation, inner.number);
        inner.at += self.write_unit(roll.zone, inner.at, identity, kind, payload)?;
        inner.number += 1;
        Ok(())
    }

    /// Has the generation take over.
    fn complete(&self, log: &mut MetadataLog, roll: &Roll) -> Result<()> {
        let mut inner = roll.inner.lock();
        if inner.is_broken {
            return Err(Error::new(ErrorKind::Retry, "an earlier write of this generation failed"));
        }
        if self.failed_syncs() != roll.failed_syncs {
            return Err(Error::new(ErrorKind::Retry, "a sync failed while this generation was made"));
        }
        inner.is_broken = true;
        let pending = std::mem::take(&mut *roll.pending.lock());
        // A snapshot is the changes that make the state: what was changed since its moment belongs
        // to it. It has no end before, so that a generation without those changes is never taken
        // for whole.
        for payload in cut(&pending) {
            self.write_next(roll, &mut inner, UnitKind::SnapshotPart, payload)?;
        }
        let end = encode_snapshot_end(inner.records, inner.hash.digest());
        // From here on the next generation may be found whole, whatever is said of its writes:
        // a change that went to the old one then would be lost.
        let takes_end = !std::mem::replace(&mut log.is_doubtful, true);
        self.write_next(roll, &mut inner, UnitKind::SnapshotEnd, &end)?;
        if is_enabled(Mutant::ZonedRollEndsOldFirst) {
            self.end_generation(log, roll, takes_end)?;
            self.sync_since(roll.failed_syncs)?;
        } else {
            self.sync_since(roll.failed_syncs)?;
            self.end_generation(log, roll, takes_end)?;
        }
        inner.is_broken = false;
        log.previous = Some(log.zone);
        (log.zone, log.generation) = (roll.zone, roll.generation);
        (log.number, log.at, log.snapshot_end) = (inner.number, inner.at, inner.at);
        (log.roll, log.is_doubtful) = (None, false);
        self.is_outcome_unknown.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Writes the mark that names the next generation, durably. Where the zone takes none, the
    /// generation stays without: the newest that is whole counts.
    fn end_generation(&self, log: &mut MetadataLog, roll: &Roll, takes_end: bool) -> Result<()> {
        if !takes_end || is_enabled(Mutant::ZonedRollWithoutSpare) {
            return Ok(());
        }
        let identity = (log.generation, log.number);
        let payload = roll.generation.to_le_bytes();
        let failed_syncs = self.failed_syncs();
        match self.write_unit(log.zone, log.at, identity, UnitKind::GenerationEnd, &payload) {
            Ok(_) => self.sync_since(failed_syncs),
            Err(error) if error.kind() == ErrorKind::Closed => Err(error),
            Err(error) => {
                tracing::warn!(%error, zone = log.zone, "a metadata zone takes no writes any more");
                log.worn.push(log.zone);
                Ok(())
            }
        }
    }
}

/// The units of a generation, up to its snapshot's last part.
pub fn snapshot(superblock: &Superblock, state: &State) -> VecDeque<(UnitKind, Vec<u8>)> {
    let mut units = VecDeque::from([(UnitKind::Superblock, superblock.encode())]);
    let mut part = Vec::new();
    for record in state.records() {
        let before = part.len();
        encode_record(&mut part, &record);
        if part.len() > UNIT_PAYLOAD_BYTES_MAX {
            let last = part.split_off(before);
            units.push_back((UnitKind::SnapshotPart, std::mem::replace(&mut part, last)));
        }
        if part.len() >= PART_BYTES {
            units.push_back((UnitKind::SnapshotPart, std::mem::take(&mut part)));
        }
    }
    if !part.is_empty() {
        units.push_back((UnitKind::SnapshotPart, part));
    }
    units
}

/// Cuts records where one ends, in pieces that a unit holds.
fn cut(records: &[u8]) -> Vec<&[u8]> {
    let (mut pieces, mut begin, mut at) = (Vec::new(), 0, 0);
    let lengths = tombolo_format::zoned::decode_records(records).unwrap_or_default();
    for length in lengths.iter().map(tombolo_format::zoned::record_bytes) {
        if at + length - begin > UNIT_PAYLOAD_BYTES_MAX {
            pieces.push(&records[begin..at]);
            begin = at;
        }
        at += length;
    }
    if begin < at {
        pieces.push(&records[begin..at]);
    }
    pieces
}
