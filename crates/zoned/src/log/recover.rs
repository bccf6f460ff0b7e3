//! What a device's log zones hold, when the device is taken over.

use tombolo_env::Zone;
use tombolo_format::zoned::{Unit, UnitIdentity, UnitKind, decode_batch};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::device::Device;
use crate::lanes::{Current, Lane, LogCore, Piece, Stream};
use crate::metadata::Window;
use crate::metadata::mount::pointer_of;
use crate::state::{LogZone, State};

/// What was read of a log zone.
struct Scanned {
    pieces: Vec<(u64, Piece)>,
    number: u64,
    at: u64,
    damage: Option<Error>,
}

impl LogCore {
    /// Reads all log zones of a device whose content is durable.
    pub(crate) fn recover(device: &dyn Device, id: u128, state: &State, report: &[Zone]) -> Result<LogCore> {
        let mut zones: Vec<(u32, LogZone)> =
            state.log_zones.iter().map(|(zone, log)| (*zone, *log)).collect();
        zones.sort_by_key(|(_, log)| log.generation);
        let mut stream = Stream::default();
        for number in state.lanes.keys() {
            stream.lanes.insert(*number, Lane { is_found: true, ..Lane::new(None) });
        }
        let mut damage = None;
        let mut pieces: Vec<(u64, Piece)> = Vec::new();
        for (zone, log) in zones {
            let scanned = scan(device, id, zone, log, &report[zone as usize])?;
            if let Some(error) = scanned.damage {
                tracing::warn!(%error, zone, "damaged log");
                damage = Some(error);
            }
            pieces.extend(scanned.pieces);
            if log.blocks.is_none() {
                let trusts_pointer = is_enabled(Mutant::ZonedPointerTrusted);
                let at = if trusts_pointer { pointer_of(&report[zone as usize]) } else { scanned.at };
                stream.current = Some(Current {
                    generation: log.generation,
                    zone,
                    number: scanned.number,
                    at,
                    durable: scanned.at,
                    // Behind it may lie what a crash tore, and batches whose pointer it took: a
                    // later pointer would bring them back, behind those that took their places.
                    is_broken: !trusts_pointer,
                });
            }
        }
        // Where a lane's bytes lie twice they are the same; the later copy's zone is kept longer.
        pieces.sort_by_key(|(lane, piece)| (*lane, piece.at, std::cmp::Reverse(piece.generation)));
        for (number, piece) in pieces {
            let Some(lane) = stream.lanes.get_mut(&number) else { continue };
            if lane.pieces.is_empty() {
                lane.durable = piece.at;
            }
            if piece.end() <= lane.durable {
                continue;
            }
            if piece.at > lane.durable && lane.damage.is_none() {
                // What lies between is missing: what comes after it can be read, what lies before
                // not.
                lane.damage.clone_from(&damage);
                if lane.damage.is_none() {
                    lane.damage = Some(missing(device, number, lane.durable, piece.at));
                }
            }
            lane.durable = piece.end();
            *stream.held.entry(piece.zone).or_default() += 1;
            lane.pieces.push_back(piece);
        }
        for (number, lane) in &mut stream.lanes {
            lane.trimmed = lane.pieces.front().map_or(0, |piece| piece.at);
            let sealed = state.lanes.get(number).and_then(|of| of.sealed);
            match sealed {
                // A lane of which all was trimmed away.
                Some(end) if lane.pieces.is_empty() => {
                    (lane.durable, lane.trimmed) = (end, end);
                }
                Some(end) if lane.durable >= end => (lane.durable, lane.is_found) = (end, false),
                Some(end) => {
                    let short = || missing(device, *number, lane.durable, end);
                    lane.damage = Some(damage.clone().unwrap_or_else(short));
                }
                // Its last bytes may be among those that are damaged.
                None if lane.damage.is_none() => lane.damage.clone_from(&damage),
                None => {}
            }
        }
        Ok(LogCore { stream: stream.into(), writing: Default::default() })
    }
}

fn missing(device: &dyn Device, lane: u64, from: u64, to: u64) -> Error {
    Error::new(ErrorKind::Corrupt, "a part of a log is missing")
        .object(format!("{} lane {lane}", device.describe()))
        .expected(format!("bytes {from} to {to}"))
        .found("none of them")
        .advice("restore the database from a copy; without one `tombolo db salvage URI` says what can be had")
}

/// Reads a log zone from its start to where it was not written, or to where it was said to end.
fn scan(device: &dyn Device, id: u128, zone: u32, log: LogZone, report: &Zone) -> Result<Scanned> {
    let block = u64::from(device.geometry().block_bytes);
    let limit = match log.blocks {
        Some(blocks) => (u64::from(blocks) * block).min(report.capacity),
        None => pointer_of(report),
    };
    let mut window = Window::new(device, zone, limit);
    let mut scanned = Scanned { pieces: Vec::new(), number: 0, at: 0, damage: None };
    let is_of_zone = |unit: &Unit<'_>| {
        let UnitIdentity { device: of, generation, zone: place, .. } = unit.identity;
        let is_generation = generation == log.generation || is_enabled(Mutant::ZonedForeignUnitAccepted);
        of == id && is_generation && place == zone && unit.kind == UnitKind::Batch
    };
    while scanned.at < limit {
        let here = u32::try_from(scanned.at / block).unwrap_or(u32::MAX);
        let found = match window.unit(scanned.at) {
            Ok(found) => found.filter(|(_, unit)| {
                is_of_zone(unit) && (unit.identity.number, unit.identity.block) == (scanned.number, here)
            }),
            Err(error) => {
                scanned.damage = Some(error);
                return Ok(scanned);
            }
        };
        let decoded = found.and_then(|(bytes, unit)| Some((bytes, unit, decode_batch(unit.payload).ok()?)));
        let Some((bytes, unit, (_, fragments))) = decoded else { break };
        for fragment in fragments {
            scanned.pieces.push((
                fragment.lane,
                Piece {
                    at: fragment.at,
                    bytes: u32::try_from(fragment.bytes.len()).unwrap_or(u32::MAX),
                    zone,
                    generation: unit.identity.generation,
                    block: here,
                    payload_bytes: u32::try_from(unit.payload.len()).unwrap_or(u32::MAX),
                    offset: u32::try_from(fragment.offset).unwrap_or(u32::MAX),
                },
            ));
        }
        scanned.at += bytes;
        scanned.number += 1;
    }
    if scanned.at >= limit && limit > 0 || limit == 0 && log.blocks.unwrap_or(0) == 0 {
        return Ok(scanned);
    }
    let bad = |what: String| {
        Error::new(ErrorKind::Corrupt, format!("damaged log: {what}"))
            .object(format!("{} zone {zone}", device.describe()))
            .offset(scanned.at)
            .advice("restore the databases whose log it held from copies")
    };
    if log.blocks.is_some() {
        scanned.damage = Some(bad(format!("no batch of number {}, which was durable", scanned.number)));
        return Ok(scanned);
    }
    if is_enabled(Mutant::ZonedBadUnitIsAlwaysTail) {
        return Ok(scanned);
    }
    // A later batch knows how far the zone was durable when it was made (rule 4).
    let mut at = scanned.at + block;
    while at < limit {
        let here = at / block;
        let found = match window.unit(at) {
            Ok(found) => found,
            Err(error) => {
                scanned.damage = Some(error);
                break;
            }
        };
        if let Some((_, unit)) = found
            && is_of_zone(&unit)
            && u64::from(unit.identity.block) == here
            && let Ok((durable, _)) = decode_batch(unit.payload)
            && u64::from(durable) * block > scanned.at
        {
            scanned.damage = Some(bad(format!("no batch of number {}, which was durable", scanned.number)));
            break;
        }
        at += block;
    }
    Ok(scanned)
}
