//! What a device holds, by its metadata: names, the bodies that they lead to, lanes and log zones.
//!
//! The state is what records make of nothing, one after another; nothing else changes it. A record
//! that contradicts what came before is damage.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tombolo_env::ZoneGeometry;
use tombolo_format::zoned::{Extent, ZoneRecord, record_bytes};

/// What sort a body is of, as its creator said: kind, level and life.
pub type Sort = (u8, u8, u8);

/// Bytes that names lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// How many.
    pub length: u64,
    /// What sort it is of.
    pub sort: Sort,
    /// Age of its oldest data in seconds when it was made.
    pub age_seconds: u64,
    /// Bytes that the device had been given before it.
    pub born: u64,
    /// Where they lie, in order. Invariant: their bytes add up to `length`.
    pub extents: Arc<[Extent]>,
    /// Names that lead to it.
    pub names: u32,
}

/// A lane of a database's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOf {
    /// The database's life.
    pub life: u64,
    /// The epoch that appends to it.
    pub epoch: u64,
    /// Its number in the epoch.
    pub number: u32,
    /// Where it ends, once nothing is appended any more.
    pub sealed: Option<u64>,
}

/// A zone of log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogZone {
    /// Identity of all that is written to it.
    pub generation: u64,
    /// Blocks that hold batches, once it takes no more.
    pub blocks: Option<u32>,
}

/// How long bodies of a sort lived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Bytes given to the device meanwhile, on average.
    pub mean: u64,
    /// Of so many bodies.
    pub samples: u32,
}

/// Older bodies count for less from here on.
const SAMPLES_MAX: u32 = 32;

/// What a device holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Names and the bodies that they lead to.
    pub names: BTreeMap<Arc<str>, u64>,
    /// Bodies. Invariant: each has a name, between transactions.
    pub bodies: BTreeMap<u64, Body>,
    /// Lanes that somebody may need.
    pub lanes: BTreeMap<u64, LaneOf>,
    /// Zones of log.
    pub log_zones: BTreeMap<u32, LogZone>,
    /// How long bodies lived.
    pub learned: BTreeMap<Sort, Learned>,
    /// Bytes that the device was given for bodies.
    pub written: u64,
    /// The next number of a body, lane or generation of a log zone.
    pub next: u64,
    /// Whole blocks of each zone that bodies need, in bytes.
    pub live: BTreeMap<u32, u64>,
    /// Bytes that a snapshot of this takes.
    pub snapshot_bytes: u64,
}

/// Bytes that an extent takes of its zone.
pub fn block_bytes(extent: &Extent, geometry: &ZoneGeometry) -> u64 {
    extent.bytes.next_multiple_of(u64::from(geometry.block_bytes))
}

impl State {
    /// The records that make this state of nothing.
    pub fn records(&self) -> Vec<ZoneRecord> {
        let mut records = vec![ZoneRecord::Clock { written: self.written, next: self.next }];
        for (&(kind, level, life), &Learned { mean, samples }) in &self.learned {
            records.push(ZoneRecord::Learned { kind, level, life, mean, samples });
        }
        for (&zone, log) in &self.log_zones {
            records.push(ZoneRecord::LogZone { zone, generation: log.generation });
            if let Some(blocks) = log.blocks {
                records.push(ZoneRecord::LogZoneEnded { zone, generation: log.generation, blocks });
            }
        }
        for (&lane, &LaneOf { life, epoch, number, sealed }) in &self.lanes {
            records.push(ZoneRecord::Lane { lane, life, epoch, number });
            if let Some(end) = sealed {
                records.push(ZoneRecord::LaneSealed { lane, end });
            }
        }
        for (&body, found) in &self.bodies {
            let (kind, level, life) = found.sort;
            records.push(ZoneRecord::Body {
                body,
                length: found.length,
                kind,
                level,
                life,
                age_seconds: found.age_seconds,
                born: found.born,
                extents: found.extents.to_vec(),
            });
        }
        for (name, &body) in &self.names {
            records.push(ZoneRecord::Name { name: name.to_string(), body });
        }
        records
    }

    /// Whether `extents` can lie on the device, and hold `length` bytes.
    fn check_extents(
        &self,
        extents: &[Extent],
        length: u64,
        geometry: &ZoneGeometry,
        metadata_zones: u32,
    ) -> Result<(), String> {
        let mut sum = 0_u64;
        for extent in extents {
            let begin = u64::from(extent.block) * u64::from(geometry.block_bytes);
            let is_within = extent.zone >= metadata_zones
                && extent.zone < geometry.zones
                && begin.checked_add(extent.bytes).is_some_and(|end| end <= geometry.zone_bytes);
            if !is_within {
                return Err(format!("{extent:?} lies in no zone for data"));
            }
            if self.log_zones.contains_key(&extent.zone) {
                return Err(format!("{extent:?} lies in a zone of log"));
            }
            sum = sum.saturating_add(extent.bytes);
        }
        if sum == length { Ok(()) } else { Err(format!("extents of {sum} bytes for a body of {length}")) }
    }

    fn count_live(&mut self, extents: &[Extent], geometry: &ZoneGeometry, adds: bool) {
        for extent in extents {
            let bytes = block_bytes(extent, geometry);
            let live = self.live.entry(extent.zone).or_default();
            *live = if adds { *live + bytes } else { live.saturating_sub(bytes) };
            if *live == 0 {
                self.live.remove(&extent.zone);
            }
        }
    }

    /// Takes a record in. What it contradicts is said.
    pub fn apply(
        &mut self,
        record: &ZoneRecord,
        geometry: &ZoneGeometry,
        metadata_zones: u32,
    ) -> Result<(), String> {
        let more = record_bytes(record) as u64;
        match record {
            ZoneRecord::Body { body, length, kind, level, life, age_seconds, born, extents } => {
                self.check_extents(extents, *length, geometry, metadata_zones)?;
                let made = Body {
                    length: *length,
                    sort: (*kind, *level, *life),
                    age_seconds: *age_seconds,
                    born: *born,
                    extents: extents.as_slice().into(),
                    names: 0,
                };
                if self.bodies.insert(*body, made).is_some() {
                    return Err(format!("body {body} is made twice"));
                }
                self.count_live(extents, geometry, true);
                self.written = self.written.max(born.saturating_add(*length));
                self.take_number(*body);
                self.snapshot_bytes += more;
            }
            ZoneRecord::Name { name, body } => {
                let Some(found) = self.bodies.get_mut(body) else {
                    return Err(format!("{name:?} names body {body}, which is not there"));
                };
                if self.names.insert(name.as_str().into(), *body).is_some() {
                    return Err(format!("{name:?} is named twice"));
                }
                found.names += 1;
                self.snapshot_bytes += more;
            }
            ZoneRecord::NameGone { name } => self.remove_name(name, geometry)?,
            ZoneRecord::Moved { body, extents } => {
                let Some(found) = self.bodies.get(body) else {
                    return Err(format!("body {body} is moved, and is not there"));
                };
                let (length, before) = (found.length, Arc::clone(&found.extents));
                self.check_extents(extents, length, geometry, metadata_zones)?;
                self.count_live(extents, geometry, true);
                self.count_live(&before, geometry, false);
                self.snapshot_bytes += 24 * extents.len() as u64;
                self.snapshot_bytes = self.snapshot_bytes.saturating_sub(24 * before.len() as u64);
                if let Some(found) = self.bodies.get_mut(body) {
                    found.extents = extents.as_slice().into();
                }
            }
            ZoneRecord::LogZone { zone, generation } => {
                if *zone < metadata_zones || *zone >= geometry.zones || self.live.contains_key(zone) {
                    return Err(format!("zone {zone} takes log, and is none for it"));
                }
                let made = LogZone { generation: *generation, blocks: None };
                if self.log_zones.insert(*zone, made).is_some() {
                    return Err(format!("zone {zone} takes log twice"));
                }
                self.take_number(*generation);
                self.snapshot_bytes += more + 17;
            }
            ZoneRecord::LogZoneEnded { zone, generation, blocks } => match self.log_zones.get_mut(zone) {
                Some(found) if found.generation == *generation && found.blocks.is_none() => {
                    found.blocks = Some(*blocks);
                }
                found => return Err(format!("log zone {zone} ends: {record:?} of {found:?}")),
            },
            ZoneRecord::LogZoneFree { zone, generation } => match self.log_zones.remove(zone) {
                Some(found) if found.generation == *generation => {
                    self.snapshot_bytes = self.snapshot_bytes.saturating_sub(more + 17);
                }
                found => return Err(format!("log zone {zone} is free: {record:?} of {found:?}")),
            },
            ZoneRecord::Lane { lane, life, epoch, number } => {
                let made = LaneOf { life: *life, epoch: *epoch, number: *number, sealed: None };
                if self.lanes.insert(*lane, made).is_some() {
                    return Err(format!("lane {lane} is made twice"));
                }
                self.take_number(*lane);
                self.snapshot_bytes += more + 17;
            }
            ZoneRecord::LaneSealed { lane, end } => match self.lanes.get_mut(lane) {
                Some(found) if found.sealed.is_none_or(|before| before <= *end) => {
                    found.sealed = Some(*end);
                }
                found => return Err(format!("lane {lane} ends at {end}: it is {found:?}")),
            },
            ZoneRecord::LaneFree { lane } => {
                if self.lanes.remove(lane).is_none() {
                    return Err(format!("lane {lane} is free, and is not there"));
                }
                self.snapshot_bytes = self.snapshot_bytes.saturating_sub(29 + 17);
            }
            ZoneRecord::Learned { kind, level, life, mean, samples } => {
                self.learned.insert((*kind, *level, *life), Learned { mean: *mean, samples: *samples });
                self.snapshot_bytes += more;
            }
            ZoneRecord::Clock { written, next } => {
                self.written = self.written.max(*written);
                self.next = self.next.max(*next);
                self.snapshot_bytes += more;
            }
        }
        Ok(())
    }

    fn take_number(&mut self, number: u64) {
        self.next = self.next.max(number.saturating_add(1));
    }

    fn remove_name(&mut self, name: &str, geometry: &ZoneGeometry) -> Result<(), String> {
        let Some(body) = self.names.remove(name) else {
            return Err(format!("{name:?} is taken away, and names nothing"));
        };
        self.snapshot_bytes = self.snapshot_bytes.saturating_sub(13 + name.len() as u64);
        let Some(found) = self.bodies.get_mut(&body) else { return Ok(()) };
        found.names -= 1;
        if found.names > 0 {
            return Ok(());
        }
        let Some(gone) = self.bodies.remove(&body) else { return Ok(()) };
        self.count_live(&gone.extents, geometry, false);
        self.snapshot_bytes = self.snapshot_bytes.saturating_sub(40 + 24 * gone.extents.len() as u64);
        let lived = self.written.saturating_sub(gone.born);
        let before = self.learned.len();
        let learned = self.learned.entry(gone.sort).or_default();
        learned.samples = (learned.samples + 1).min(SAMPLES_MAX);
        let mean = i128::from(learned.mean)
            + (i128::from(lived) - i128::from(learned.mean)) / i128::from(learned.samples);
        learned.mean = u64::try_from(mean).unwrap_or(0);
        self.snapshot_bytes += 16 * (self.learned.len() - before) as u64;
        Ok(())
    }

    /// The body that a name leads to.
    pub fn body_of(&self, name: &str) -> Option<(u64, &Body)> {
        let body = *self.names.get(name)?;
        Some((body, self.bodies.get(&body)?))
    }

    /// Names that begin with `prefix` and are greater than `after`, with their bodies.
    pub fn listed<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, u64)> + 'a {
        let lower: Bound<&str> = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.names
            .range::<str, _>((lower, Bound::Unbounded))
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(name, body)| (name, *body))
    }

    /// What a zone's bodies need of it, in bytes.
    pub fn live_of(&self, zone: u32) -> u64 {
        self.live.get(&zone).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
