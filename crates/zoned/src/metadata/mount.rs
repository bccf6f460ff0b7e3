//! Finding the newest generation of metadata, and what it says.

use tombolo_env::{Zone, ZoneGeometry};
use tombolo_format::checksum::StreamHash;
use tombolo_format::zoned::{Superblock, Unit, UnitIdentity, UnitKind, decode_records, decode_snapshot_end};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::{METADATA_ZONES_DEFAULT, METADATA_ZONES_MAX, Window};
use crate::device::{Device, ZoneState};
use crate::failed;
use crate::generation::MetadataZone;
use crate::state::State;

/// What a device's metadata says.
#[derive(Debug)]
pub struct Mounted {
    /// The device's random number.
    pub id: u128,
    /// What it was formatted with.
    pub superblock: Superblock,
    /// What it holds.
    pub state: State,
    /// The newest generation.
    pub generation: u64,
    /// Its zone.
    pub zone: u32,
    /// That of the one before, where that is whole.
    pub previous: Option<u32>,
    /// Its next unit.
    pub number: u64,
    /// Where that goes.
    pub at: u64,
    /// Where the snapshot ended.
    pub snapshot_end: u64,
    /// The greatest generation that was ever begun, as far as is known.
    pub last_generation: u64,
    /// Something that is no unit lies at `at`: a write that a crash tore.
    pub is_torn: bool,
    /// Flaws that take nothing away: for `fsck`.
    pub notes: Vec<String>,
}

/// A generation, as its zone holds it.
#[derive(Debug)]
struct Generation {
    zone: u32,
    id: u128,
    generation: u64,
    superblock: Superblock,
    /// After its snapshot was read whole.
    state: Option<State>,
    number: u64,
    at: u64,
    snapshot_end: u64,
    /// The generation that its end names.
    ended_by: Option<u64>,
    /// No unit, where one was written.
    is_torn: bool,
    /// A unit is bad, and a later one is there.
    damage: Option<Error>,
}

/// The geometry that a superblock must have been made for.
fn check_geometry(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let ZoneGeometry { block_bytes, zone_bytes, zones, .. } = device.geometry();
    let found = (superblock.block_bytes, superblock.zone_bytes, superblock.zones);
    if found == (block_bytes, zone_bytes, zones) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, "the device was formatted with another geometry")
        .object(device.describe())
        .expected(format!("{zones} zones of {zone_bytes} bytes, in blocks of {block_bytes}"))
        .found(format!("{} zones of {} bytes, in blocks of {}", found.2, found.1, found.0))
        .advice("attach the device as it was when it was formatted, its block size first of all"))
}

/// Whether a unit is the one that belongs at a place.
fn is_expected(unit: &Unit<'_>, expected: UnitIdentity) -> bool {
    let mut found = unit.identity;
    if is_enabled(Mutant::ZonedForeignUnitAccepted) {
        found.generation = expected.generation;
    }
    found == expected
}

fn corrupt(device: &dyn Device, zone: u32, at: u64, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("damaged metadata: {what}"))
        .object(format!("{} zone {zone}", device.describe()))
        .offset(at)
        .advice("restore the device from a backup: `tombolo zoned restore`")
}

impl Generation {
    /// Reads the generation that begins a zone, if one does.
    fn read(device: &dyn Device, zone: u32, pointer: u64) -> Result<Option<Generation>> {
        let geometry = device.geometry();
        let block = u64::from(geometry.block_bytes);
        let mut window = Window::new(device, zone, pointer);
        let is_begun = window.may_begin(0)?;
        let (bytes, id, number, superblock) = match window.unit(0)? {
            Some((bytes, unit)) if unit.kind == UnitKind::Superblock && unit.identity.zone == zone => {
                let superblock = Superblock::decode(unit.payload).map_err(|error| {
                    Error::format(format!("{} zone {zone}", device.describe()), 64, error)
                })?;
                (bytes, unit.identity.device, unit.identity.generation, superblock)
            }
            _ if is_begun => return Err(corrupt(device, zone, 0, "a superblock that is not whole")),
            _ => return Ok(None),
        };
        check_geometry(device, &superblock)?;
        let mut found = Generation {
            zone,
            id,
            generation: number,
            superblock,
            state: None,
            number: 1,
            at: bytes,
            snapshot_end: bytes,
            ended_by: None,
            is_torn: false,
            damage: None,
        };
        let (mut hash, mut records, mut state) = (StreamHash::new(), 0, State::default());
        let place = format!("{} zone {zone}", device.describe());
        loop {
            let expected = UnitIdentity {
                device: id,
                generation: number,
                number: found.number,
                zone,
                block: u32::try_from(found.at / block).unwrap_or(u32::MAX),
            };
            let unit = match window.unit(found.at)? {
                Some((bytes, unit)) if is_expected(&unit, expected) => (bytes, unit),
                _ => break,
            };
            let (bytes, unit) = unit;
            let decode_error = |error| Error::format(&place, found.at + 64, error);
            match unit.kind {
                UnitKind::SnapshotPart | UnitKind::Transaction => {
                    if (unit.kind == UnitKind::SnapshotPart) != found.state.is_none() {
                        found.damage =
                            Some(corrupt(device, zone, found.at, "a part of a snapshot out of place"));
                        return Ok(Some(found));
                    }
                    hash.update(unit.payload);
                    let into = found.state.as_mut().unwrap_or(&mut state);
                    for record in decode_records(unit.payload).map_err(decode_error)? {
                        records += 1;
                        if let Err(what) = into.apply(&record, &geometry, found.superblock.metadata_zones) {
                            found.damage = Some(corrupt(device, zone, found.at, what));
                            return Ok(Some(found));
                        }
                    }
                }
                UnitKind::SnapshotEnd => {
                    let said = decode_snapshot_end(unit.payload).map_err(decode_error)?;
                    if said != (records, hash.digest()) || found.state.is_some() {
                        found.damage =
                            Some(corrupt(device, zone, found.at, "a snapshot that is not what its end says"));
                        return Ok(Some(found));
                    }
                    found.state = Some(std::mem::take(&mut state));
                    found.snapshot_end = found.at + bytes;
                }
                UnitKind::GenerationEnd => {
                    found.ended_by = unit.payload.try_into().ok().map(u64::from_le_bytes);
                }
                UnitKind::Superblock | UnitKind::Batch => {
                    found.damage = Some(corrupt(device, zone, found.at, "a unit that does not belong here"));
                    return Ok(Some(found));
                }
            }
            found.at += bytes;
            found.number += 1;
            if found.ended_by.is_some() {
                return Ok(Some(found));
            }
        }
        if found.at < pointer {
            found.is_torn = true;
            found.look_behind(device, &mut window, pointer)?;
        }
        Ok(Some(found))
    }

    /// Of a bad unit: a later one of this generation was written after it was durable, so that it
    /// was not torn.
    fn look_behind(&mut self, device: &dyn Device, window: &mut Window<'_>, pointer: u64) -> Result<()> {
        if is_enabled(Mutant::ZonedBadUnitIsAlwaysTail) {
            return Ok(());
        }
        let block = u64::from(device.geometry().block_bytes);
        let mut at = self.at + block;
        while at < pointer {
            if let Some((_, unit)) = window.unit(at)? {
                let UnitIdentity { device: of, generation, zone, block: place, number } = unit.identity;
                let is_here = of == self.id && zone == self.zone && u64::from(place) == at / block;
                if is_here && generation == self.generation && number > self.number {
                    let what = format!("no unit of number {}, though {number} is there", self.number);
                    self.damage = Some(corrupt(device, self.zone, self.at, what));
                    return Ok(());
                }
            }
            at += block;
        }
        Ok(())
    }
}

/// How the zones that may hold metadata are now. Whatever changes the metadata changes this.
///
/// # Errors
/// The device's.
pub fn look_at_metadata(device: &dyn Device) -> Result<Vec<MetadataZone>> {
    let zones = device.report().map_err(|error| failed(device, error, "looking at zones"))?;
    let mut found = Vec::new();
    for (number, zone) in (0..METADATA_ZONES_MAX).zip(&zones) {
        // Damage is told where the metadata is read; that of a zone for data, where that is read.
        let first = Window::new(device, number, pointer_of(zone))
            .unit(0)
            .map(|unit| unit.map(|(_, unit)| (unit.identity.device, unit.identity.generation)));
        found.push((zone.pointer, first.unwrap_or_default()));
    }
    Ok(found)
}

/// Reads the metadata of a device.
///
/// # Errors
/// `NotFound` when it is not formatted; `Unsupported` when a newer version did that; `Corrupt` when
/// what was acknowledged is not all there.
pub fn mount(device: &dyn Device) -> Result<Mounted> {
    let zones = device.report().map_err(|error| failed(device, error, "looking at zones"))?;
    let (mut flaws, mut generations) = (Vec::new(), Vec::new());
    for (zone, found) in (0..METADATA_ZONES_MAX).zip(&zones) {
        if found.state == ZoneState::Offline {
            flaws.push((zone, format!("zone {zone} is offline"), None));
            continue;
        }
        match Generation::read(device, zone, pointer_of(found)) {
            Ok(generation) => generations.extend(generation),
            // Of a zone that may be one for data it counts only where a superblock says otherwise.
            Err(error) if error.kind() == ErrorKind::Corrupt || zone >= METADATA_ZONES_DEFAULT => {
                flaws.push((zone, error.to_string(), Some(error)));
            }
            Err(error) => return Err(error),
        }
    }
    generations.retain(|found| found.zone < found.superblock.metadata_zones);
    let said = generations.iter().map(|found| found.superblock.metadata_zones).max();
    flaws.retain(|(zone, ..)| *zone < said.unwrap_or(METADATA_ZONES_DEFAULT));
    let mut notes: Vec<String> = flaws.iter().map(|(_, note, _)| note.clone()).collect();
    let unreadable = flaws.into_iter().filter_map(|(.., error)| error).next_back();
    let Some(last_generation) = generations.iter().map(|found| found.generation).max() else {
        return Err(unreadable.unwrap_or_else(|| not_formatted(device, &zones)));
    };
    // Zones are in the order of their generations from here on, the newest last.
    generations.sort_by_key(|found| found.generation);
    if let Some(other) = generations.iter().find(|found| found.id != generations[0].id) {
        return Err(corrupt(device, other.zone, 0, "metadata of two devices"));
    }
    let newest = generations.iter().rposition(|found| found.state.is_some());
    let Some(newest) = newest else {
        let first = generations.into_iter().next();
        let (zone, at, damage) = first.map_or((0, 0, None), |found| (found.zone, found.at, found.damage));
        return Err(damage.unwrap_or_else(|| {
            corrupt(device, zone, at, "no generation is whole")
                .advice("if it was being formatted, do that again: `tombolo zoned mkfs --force`")
        }));
    };
    for other in &generations[..newest] {
        if let Some(damage) = &other.damage {
            notes.push(format!("an older generation: {damage}"));
        }
    }
    let previous = newest
        .checked_sub(1)
        .and_then(|before| generations.get(before))
        .filter(|before| before.state.is_some())
        .map(|before| before.zone);
    let chosen = generations.swap_remove(newest);
    if let Some(damage) = chosen.damage {
        return Err(damage);
    }
    // Both generations are checked: the older one knows whether a newer one was begun to count.
    let missing = generations
        .iter()
        .filter_map(|other| other.ended_by)
        .chain(chosen.ended_by)
        .find(|next| *next > chosen.generation);
    if let Some(missing) = missing {
        let what = format!("generation {missing} took over, and is not whole; {} is", chosen.generation);
        return Err(unreadable.unwrap_or_else(|| corrupt(device, chosen.zone, chosen.at, what)));
    }
    let Some(state) = chosen.state else {
        return Err(Error::new(ErrorKind::Bug, "a generation that was whole is none"));
    };
    Ok(Mounted {
        id: chosen.id,
        superblock: chosen.superblock,
        state,
        generation: chosen.generation,
        zone: chosen.zone,
        previous,
        number: chosen.number,
        at: chosen.at,
        snapshot_end: chosen.snapshot_end,
        last_generation,
        is_torn: chosen.is_torn,
        notes,
    })
}

/// How far a zone can hold something.
pub fn pointer_of(zone: &Zone) -> u64 {
    zone.pointer.min(zone.capacity)
}

fn not_formatted(device: &dyn Device, zones: &[Zone]) -> Error {
    let written = zones.iter().filter(|zone| zone.pointer > 0).count();
    let error = Error::new(ErrorKind::NotFound, "the device is not formatted").object(device.describe());
    if written == 0 {
        return error.advice("format it: `tombolo zoned mkfs`");
    }
    error.found(format!("{written} zones that hold something")).advice(
        "if what it holds may go, format it: `tombolo zoned mkfs --force`; it was written by something else, or \
        its metadata is destroyed",
    )
}
