//! The lanes of a device, and the batches that their bytes are written in.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_format::zoned::{
    FRAGMENT_HEADER_BYTES, UNIT_HEADER_BYTES, UNIT_PAYLOAD_BYTES_MAX, UnitIdentity, UnitKind, ZoneRecord,
    encode_batch_head, encode_fragment_header, encode_unit,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use crate::device::Device;
use crate::failed;
use crate::lanes::{Current, Lane, Piece};
use crate::volume::Core;
use crate::zones::{For, Use, ZoneFile};

/// Log zones whose oldest is rewritten rather than kept for a lane that needs little of it.
const ZONES_KEPT_MIN: usize = 4;

/// Bytes of a lane that are to be written.
struct Run {
    lane: u64,
    at: u64,
    bytes: Vec<u8>,
}

/// Whether an error of writing log leaves it open what the current zone holds.
fn leaves_doubt(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Closed | ErrorKind::OutOfSpace)
}

impl Core {
    /// Writes the bytes in the lanes' memory, and makes it durable.
    ///
    /// # Errors
    /// When no zone takes it: the lanes concerned have ended.
    pub(crate) fn write_log(self: &Arc<Core>) -> Result<()> {
        let _writing = self.log.writing.lock();
        let runs: Vec<Run> = {
            let stream = self.log.stream.lock();
            let has_some =
                stream.lanes.iter().filter(|(_, lane)| !lane.buffer.is_empty() && lane.failure.is_none());
            has_some
                .map(|(number, lane)| Run { lane: *number, at: lane.durable, bytes: lane.buffer.clone() })
                .collect()
        };
        if runs.is_empty() {
            return Ok(());
        }
        let mut written = self.write_runs(&runs);
        if let Err(error) = &written
            && leaves_doubt(error)
        {
            tracing::warn!(%error, "the log goes on in another zone");
            written = self.write_runs(&runs);
        }
        let mut stream = self.log.stream.lock();
        match written {
            Ok(pieces) => {
                for (lane, pieces) in pieces {
                    stream.settle(lane, pieces);
                }
                self.zones.lock().kept_for_log = 0;
                Ok(())
            }
            Err(error) => {
                for run in &runs {
                    if let Some(lane) = stream.lanes.get_mut(&run.lane) {
                        lane.failure = Some(error.clone());
                    }
                }
                Err(error)
            }
        }
    }

    /// Most bytes of a batch's payload.
    fn batch_bytes_max(&self) -> usize {
        let capacity = self.capacities.iter().copied().min().unwrap_or(0);
        UNIT_PAYLOAD_BYTES_MAX.min(usize::try_from(capacity / 4).unwrap_or(usize::MAX) - UNIT_HEADER_BYTES)
    }

    /// Writes runs as batches, and makes them durable; where each lane's bytes lie then. After an
    /// error that leaves it open what the current zone holds, that takes no more.
    fn write_runs(self: &Arc<Core>, runs: &[Run]) -> Result<BTreeMap<u64, Vec<Piece>>> {
        let written = self.write_batches(runs);
        if written.as_ref().is_err_and(leaves_doubt)
            && let Some(current) = &mut self.log.stream.lock().current
        {
            current.is_broken = !is_enabled(Mutant::ZonedLogGoesOnAfterFailure);
        }
        written
    }

    fn write_batches(self: &Arc<Core>, runs: &[Run]) -> Result<BTreeMap<u64, Vec<Piece>>> {
        let failed_syncs = self.failed_syncs();
        let max = self.batch_bytes_max();
        let mut pieces: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
        let mut payload: Vec<u8> = Vec::new();
        let mut in_batch: Vec<(u64, Piece)> = Vec::new();
        for run in runs {
            let mut done = 0;
            while done < run.bytes.len() {
                if payload.is_empty() {
                    payload.extend_from_slice(&encode_batch_head(0));
                }
                let room = max.saturating_sub(payload.len() + FRAGMENT_HEADER_BYTES);
                if room < 512 && !in_batch.is_empty() {
                    self.write_batch(failed_syncs, &mut payload, &mut in_batch, &mut pieces)?;
                    continue;
                }
                let now = room.min(run.bytes.len() - done);
                let at = run.at + done as u64;
                let count = u32::try_from(now).unwrap_or(u32::MAX);
                payload.extend_from_slice(&encode_fragment_header(run.lane, at, count));
                let offset = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                payload.extend_from_slice(&run.bytes[done..done + now]);
                let piece =
                    Piece { at, bytes: count, zone: 0, generation: 0, block: 0, payload_bytes: 0, offset };
                in_batch.push((run.lane, piece));
                done += now;
            }
        }
        if !in_batch.is_empty() {
            self.write_batch(failed_syncs, &mut payload, &mut in_batch, &mut pieces)?;
        }
        self.sync_log(failed_syncs)?;
        Ok(pieces)
    }

    /// Makes the batches of the current zone durable that were written since so many syncs had
    /// failed.
    fn sync_log(&self, failed_syncs: u64) -> Result<()> {
        self.sync_since(failed_syncs)?;
        if let Some(current) = &mut self.log.stream.lock().current {
            current.durable = current.at;
        }
        Ok(())
    }

    fn write_batch(
        self: &Arc<Core>,
        failed_syncs: u64,
        payload: &mut Vec<u8>,
        in_batch: &mut Vec<(u64, Piece)>,
        pieces: &mut BTreeMap<u64, Vec<Piece>>,
    ) -> Result<()> {
        let bytes = tombolo_format::zoned::unit_bytes(payload.len(), self.block()) as u64;
        let is_fit = {
            let stream = self.log.stream.lock();
            let fits = |current: &&Current| {
                !current.is_broken && current.at + bytes <= self.capacities[current.zone as usize]
            };
            stream.current.as_ref().filter(fits).is_some()
        };
        if !is_fit {
            self.next_log_zone(failed_syncs)?;
        }
        let (identity, at) = {
            let stream = self.log.stream.lock();
            let Some(current) = &stream.current else {
                return Err(Error::new(ErrorKind::Bug, "a log without a zone"));
            };
            let block = self.block() as u64;
            let durable = u32::try_from(current.durable / block).unwrap_or(u32::MAX);
            payload[..4].copy_from_slice(&encode_batch_head(durable));
            let identity = UnitIdentity {
                device: self.id,
                generation: current.generation,
                number: current.number,
                zone: current.zone,
                block: u32::try_from(current.at / block).unwrap_or(u32::MAX),
            };
            (identity, current.at)
        };
        let unit = encode_unit(identity, UnitKind::Batch, payload, self.block());
        self.device
            .write(identity.zone, at, &unit)
            .map_err(|error| failed(&self.device, error, format!("writing log to zone {}", identity.zone)))?;
        self.counters.lock().log_bytes += unit.len() as u64;
        if let Some(current) = &mut self.log.stream.lock().current {
            current.at += unit.len() as u64;
            current.number += 1;
        }
        for (lane, piece) in in_batch.drain(..) {
            let placed = Piece {
                zone: identity.zone,
                generation: identity.generation,
                block: identity.block,
                payload_bytes: u32::try_from(payload.len()).unwrap_or(u32::MAX),
                ..piece
            };
            pieces.entry(lane).or_default().push(placed);
        }
        payload.clear();
        Ok(())
    }

    /// Ends the current log zone, and begins the next: one transaction.
    fn next_log_zone(self: &Arc<Core>, failed_syncs: u64) -> Result<()> {
        let is_broken = self.log.stream.lock().current.as_ref().is_some_and(|current| current.is_broken);
        // What the zone is said to hold is durable before that is said.
        if !is_broken && !is_enabled(Mutant::ZonedLogZoneEndsUnsynced) {
            self.sync_log(failed_syncs)?;
        }
        let file = self.take_log_zone()?;
        let ended = self.log.stream.lock().current.as_ref().map(|current| {
            let through = if is_broken { current.durable } else { current.at };
            let blocks = u32::try_from(through / self.block() as u64).unwrap_or(u32::MAX);
            ZoneRecord::LogZoneEnded { zone: current.zone, generation: current.generation, blocks }
        });
        let begun = self.commit(|state| {
            let generation = state.next;
            let records = ended.into_iter().chain([ZoneRecord::LogZone { zone: file.zone, generation }]);
            Ok((records.collect(), generation))
        });
        let generation = match begun {
            Ok(generation) => generation,
            Err(error) => {
                // Of an unknown outcome the zone may be named: it stays out of use until it is
                // known.
                if error.kind() != ErrorKind::OutcomeUnknown {
                    self.zones.lock().slots[file.zone as usize].used = Use::Free;
                }
                return Err(error);
            }
        };
        let zone = file.zone;
        let next = Current { generation, zone, number: 0, at: 0, durable: 0, is_broken: false };
        let before = self.log.stream.lock().current.replace(next);
        if let Some(before) = before {
            self.finish_log_zone(&before);
        }
        Ok(())
    }

    /// A zone that takes no more log is active no more. One that cannot be finished is found so
    /// again when it is emptied.
    fn finish_log_zone(&self, zone: &Current) {
        if zone.at < self.capacities[zone.zone as usize]
            && let Err(error) = self.device.finish(zone.zone)
        {
            tracing::warn!(%error, zone = zone.zone, "a log zone could not be finished");
        }
    }

    fn take_log_zone(self: &Arc<Core>) -> Result<Arc<ZoneFile>> {
        let whom = For::Request(Purpose::Log);
        for attempt in 0..2 {
            if let Some(file) = self.zones.lock().take(whom, Use::Log) {
                return Ok(file);
            }
            if attempt == 0 && !self.make_room(whom)? {
                break;
            }
        }
        Err(self.out_of_space(whom))
    }

    /// Empties log zones that no lane needs.
    ///
    /// # Errors
    /// The metadata's.
    pub(crate) fn free_dead_log_zones(self: &Arc<Core>) -> Result<()> {
        let freed = self.commit(|state| {
            let stream = self.log.stream.lock();
            let current = stream.current.as_ref().map(|current| current.zone);
            let is_dead = |zone: u32| !stream.held.contains_key(&zone) && current != Some(zone);
            let dead =
                state.log_zones.iter().filter(|(zone, found)| is_dead(**zone) && found.blocks.is_some());
            let dead: Vec<(u32, u64)> = dead.map(|(zone, found)| (*zone, found.generation)).collect();
            let records = dead
                .iter()
                .map(|(zone, generation)| ZoneRecord::LogZoneFree { zone: *zone, generation: *generation });
            if is_enabled(Mutant::ZonedResetBeforeRecord) {
                dead.iter().for_each(|(zone, _)| drop(self.device.reset(*zone)));
            }
            Ok((records.collect(), dead))
        })?;
        for (zone, _) in freed {
            self.zones.lock().slots[zone as usize].used = Use::Full;
            self.reset_if_dead(zone, false);
        }
        Ok(())
    }

    /// Log zones that are kept before the oldest is written anew.
    pub(crate) fn log_zones_kept(&self) -> usize {
        ZONES_KEPT_MIN.max(self.zones.lock().for_data() / 8)
    }

    /// Writes again what lanes need of the oldest log zone, when there are many and it holds
    /// little: a lane that is trimmed seldom keeps no zone for long.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn rewrite_oldest_log(self: &Arc<Core>) -> Result<()> {
        let _writing = self.log.writing.lock();
        let kept = self.log_zones_kept();
        let oldest = {
            let state = self.state.read();
            let ended = || state.log_zones.iter().filter(|(_, zone)| zone.blocks.is_some());
            if ended().count() < kept {
                return Ok(());
            }
            ended().min_by_key(|(_, zone)| zone.generation).map(|(zone, _)| *zone)
        };
        let Some(oldest) = oldest else { return Ok(()) };
        let mut runs = Vec::new();
        let mut bytes = 0;
        let here: Vec<(u64, Piece)> = {
            let stream = self.log.stream.lock();
            let pieces = |(lane, of): (&u64, &Lane)| {
                let lane = *lane;
                of.pieces
                    .iter()
                    .filter(|piece| piece.zone == oldest)
                    .map(move |piece| (lane, *piece))
                    .collect::<Vec<_>>()
            };
            stream.lanes.iter().flat_map(pieces).collect()
        };
        for (lane, piece) in here {
            let unit = self.read_batch(&piece)?;
            let from = UNIT_HEADER_BYTES + piece.offset as usize;
            let held = unit[from..from + piece.bytes as usize].to_vec();
            bytes += held.len() as u64;
            runs.push(Run { lane, at: piece.at, bytes: held });
        }
        if bytes * 2 > self.capacities[oldest as usize] {
            return Ok(());
        }
        let placed = if runs.is_empty() { BTreeMap::new() } else { self.write_runs(&runs)? };
        {
            let mut stream = self.log.stream.lock();
            for (number, pieces) in placed {
                let Some(lane) = stream.lanes.get_mut(&number) else { continue };
                let before = lane.pieces.len();
                lane.pieces.retain(|piece| piece.zone != oldest);
                let (gone, trimmed) = (before - lane.pieces.len(), lane.trimmed);
                let mut all: Vec<Piece> = lane.pieces.drain(..).collect();
                let fresh: Vec<Piece> = pieces.into_iter().filter(|piece| piece.end() > trimmed).collect();
                all.extend(fresh.iter().copied());
                all.sort_by_key(|piece| piece.at);
                lane.pieces = all.into();
                (0..gone).for_each(|_| stream.release(oldest));
                fresh.iter().for_each(|piece| *stream.held.entry(piece.zone).or_default() += 1);
            }
        }
        self.counters.lock().rewritten_log_bytes += bytes;
        Ok(())
    }
}
