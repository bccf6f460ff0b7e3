//! Records of the metadata.

use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result};

/// Most bytes of an object's name.
pub const RECORD_NAME_BYTES_MAX: usize = 512;
/// Most extents of a body: a table of 16 GiB in pieces of 256 KiB. Their record still fits a unit
/// after neighbours are merged.
pub const EXTENTS_MAX: usize = 40_000;

const EXTENT_BYTES: usize = 24;

/// Bytes of a zone that hold a part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The zone.
    pub zone: u32,
    /// The block in it at which they begin.
    pub block: u32,
    /// How many there are; the rest of the last block is zeros.
    pub bytes: u64,
    /// Their hash.
    pub hash: u64,
}

/// A change of what a device holds. A snapshot is the changes that make its state of nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneRecord {
    /// Bytes that names may lead to.
    Body {
        /// Its number: never used again.
        body: u64,
        /// Bytes.
        length: u64,
        /// What it is, as its creator said.
        kind: u8,
        /// The level of the tree that it belongs to.
        level: u8,
        /// How long it was expected to live.
        life: u8,
        /// Age of its oldest data in seconds.
        age_seconds: u64,
        /// Bytes that the device had been given before it.
        born: u64,
        /// Where its bytes lie, in order.
        extents: Vec<Extent>,
    },
    /// A name of a body.
    Name {
        /// The name.
        name: String,
        /// The body.
        body: u64,
    },
    /// A name is free again; a body without a name is gone.
    NameGone {
        /// The name.
        name: String,
    },
    /// A body lies elsewhere now.
    Moved {
        /// The body.
        body: u64,
        /// Where its bytes lie, in order.
        extents: Vec<Extent>,
    },
    /// A zone takes log.
    LogZone {
        /// The zone.
        zone: u32,
        /// Identity of all that is written to it until it is free.
        generation: u64,
    },
    /// A zone takes no more log.
    LogZoneEnded {
        /// The zone.
        zone: u32,
        /// As in `LogZone`.
        generation: u64,
        /// Blocks that hold batches, all of them durable.
        blocks: u32,
    },
    /// Nobody needs the log of a zone any more.
    LogZoneFree {
        /// The zone.
        zone: u32,
        /// As in `LogZone`.
        generation: u64,
    },
    /// A lane of a database's log.
    Lane {
        /// Its number on the device: never used again.
        lane: u64,
        /// The database's life.
        life: u64,
        /// The epoch that appends to it.
        epoch: u64,
        /// Its number in the epoch.
        number: u32,
    },
    /// Nothing is appended to a lane any more.
    LaneSealed {
        /// The lane.
        lane: u64,
        /// Where it ends.
        end: u64,
    },
    /// Nobody needs a lane any more.
    LaneFree {
        /// The lane.
        lane: u64,
    },
    /// How long bodies of one sort lived.
    Learned {
        /// As in `Body`.
        kind: u8,
        /// As in `Body`.
        level: u8,
        /// As in `Body`.
        life: u8,
        /// Bytes given to the device meanwhile, on average.
        mean: u64,
        /// Of so many bodies.
        samples: u32,
    },
    /// Counters.
    Clock {
        /// Bytes that the device had been given.
        written: u64,
        /// The next number of a body, lane or generation of a log zone.
        next: u64,
    },
}

fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    assert!(extents.len() <= EXTENTS_MAX, "a body has too many extents");
    out.extend_from_slice(&(extents.len() as u32).to_le_bytes());
    for extent in extents {
        out.extend_from_slice(&extent.zone.to_le_bytes());
        out.extend_from_slice(&extent.block.to_le_bytes());
        out.extend_from_slice(&extent.bytes.to_le_bytes());
        out.extend_from_slice(&extent.hash.to_le_bytes());
    }
}

fn take_extents(reader: &mut Reader<'_>) -> Result<Vec<Extent>> {
    let at = reader.position();
    let count = reader.u32()? as usize;
    if count > EXTENTS_MAX || count.saturating_mul(EXTENT_BYTES) > reader.remaining() {
        return Err(FormatError::damaged(
            at,
            format!("at most {} extents", (reader.remaining() / EXTENT_BYTES).min(EXTENTS_MAX)),
            count.to_string(),
        ));
    }
    let mut extents = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = reader.position();
        let extent =
            Extent { zone: reader.u32()?, block: reader.u32()?, bytes: reader.u64()?, hash: reader.u64()? };
        if extent.bytes == 0 {
            return Err(FormatError::damaged(begin, "an extent of some bytes", "one of none"));
        }
        extents.push(extent);
    }
    Ok(extents)
}

/// Bytes that a record takes.
pub fn record_bytes(record: &ZoneRecord) -> usize {
    match record {
        ZoneRecord::Body { extents, .. } => 40 + EXTENT_BYTES * extents.len(),
        ZoneRecord::Name { name, .. } => 13 + name.len(),
        ZoneRecord::NameGone { name } => 5 + name.len(),
        ZoneRecord::Moved { extents, .. } => 13 + EXTENT_BYTES * extents.len(),
        ZoneRecord::LogZone { .. } | ZoneRecord::LogZoneFree { .. } => 13,
        ZoneRecord::LogZoneEnded { .. } | ZoneRecord::LaneSealed { .. } | ZoneRecord::Clock { .. } => 17,
        ZoneRecord::Lane { .. } => 29,
        ZoneRecord::LaneFree { .. } => 9,
        ZoneRecord::Learned { .. } => 16,
    }
}

/// Appends a record.
///
/// # Panics
/// When a name or the extents are beyond their limits: callers check.
pub fn encode_record(out: &mut Vec<u8>, record: &ZoneRecord) {
    match record {
        ZoneRecord::Body { body, length, kind, level, life, age_seconds, born, extents } => {
            out.push(1);
            out.extend_from_slice(&body.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&[*kind, *level, *life]);
            out.extend_from_slice(&age_seconds.to_le_bytes());
            out.extend_from_slice(&born.to_le_bytes());
            put_extents(out, extents);
        }
        ZoneRecord::Name { name, body } => {
            assert!(name.len() <= RECORD_NAME_BYTES_MAX, "a name is too long");
            out.push(2);
            put_prefixed(out, name.as_bytes());
            out.extend_from_slice(&body.to_le_bytes());
        }
        ZoneRecord::NameGone { name } => {
            out.push(3);
            put_prefixed(out, name.as_bytes());
        }
        ZoneRecord::Moved { body, extents } => {
            out.push(4);
            out.extend_from_slice(&body.to_le_bytes());
            put_extents(out, extents);
        }
        ZoneRecord::LogZone { zone, generation } => {
            out.push(5);
            out.extend_from_slice(&zone.to_le_bytes());
            out.extend_from_slice(&generation.to_le_bytes());
        }
        ZoneRecord::LogZoneEnded { zone, generation, blocks } => {
            out.push(6);
            out.extend_from_slice(&zone.to_le_bytes());
            out.extend_from_slice(&generation.to_le_bytes());
            out.extend_from_slice(&blocks.to_le_bytes());
        }
        ZoneRecord::LogZoneFree { zone, generation } => {
            out.push(7);
            out.extend_from_slice(&zone.to_le_bytes());
            out.extend_from_slice(&generation.to_le_bytes());
        }
        ZoneRecord::Lane { lane, life, epoch, number } => {
            out.push(8);
            out.extend_from_slice(&lane.to_le_bytes());
            out.extend_from_slice(&life.to_le_bytes());
            out.extend_from_slice(&epoch.to_le_bytes());
            out.extend_from_slice(&number.to_le_bytes());
        }
        ZoneRecord::LaneSealed { lane, end } => {
            out.push(9);
            out.extend_from_slice(&lane.to_le_bytes());
            out.extend_from_slice(&end.to_le_bytes());
        }
        ZoneRecord::LaneFree { lane } => {
            out.push(10);
            out.extend_from_slice(&lane.to_le_bytes());
        }
        ZoneRecord::Learned { kind, level, life, mean, samples } => {
            out.extend_from_slice(&[11, *kind, *level, *life]);
            out.extend_from_slice(&mean.to_le_bytes());
            out.extend_from_slice(&samples.to_le_bytes());
        }
        ZoneRecord::Clock { written, next } => {
            out.push(12);
            out.extend_from_slice(&written.to_le_bytes());
            out.extend_from_slice(&next.to_le_bytes());
        }
    }
}

fn decode_one(reader: &mut Reader<'_>) -> Result<ZoneRecord> {
    let at = reader.position();
    Ok(match reader.u8()? {
        1 => ZoneRecord::Body {
            body: reader.u64()?,
            length: reader.u64()?,
            kind: reader.u8()?,
            level: reader.u8()?,
            life: reader.u8()?,
            age_seconds: reader.u64()?,
            born: reader.u64()?,
            extents: take_extents(reader)?,
        },
        2 => {
            let name = reader.text(RECORD_NAME_BYTES_MAX)?.to_owned();
            ZoneRecord::Name { name, body: reader.u64()? }
        }
        3 => ZoneRecord::NameGone { name: reader.text(RECORD_NAME_BYTES_MAX)?.to_owned() },
        4 => ZoneRecord::Moved { body: reader.u64()?, extents: take_extents(reader)? },
        5 => ZoneRecord::LogZone { zone: reader.u32()?, generation: reader.u64()? },
        6 => {
            ZoneRecord::LogZoneEnded { zone: reader.u32()?, generation: reader.u64()?, blocks: reader.u32()? }
        }
        7 => ZoneRecord::LogZoneFree { zone: reader.u32()?, generation: reader.u64()? },
        8 => ZoneRecord::Lane {
            lane: reader.u64()?,
            life: reader.u64()?,
            epoch: reader.u64()?,
            number: reader.u32()?,
        },
        9 => ZoneRecord::LaneSealed { lane: reader.u64()?, end: reader.u64()? },
        10 => ZoneRecord::LaneFree { lane: reader.u64()? },
        11 => ZoneRecord::Learned {
            kind: reader.u8()?,
            level: reader.u8()?,
            life: reader.u8()?,
            mean: reader.u64()?,
            samples: reader.u32()?,
        },
        12 => ZoneRecord::Clock { written: reader.u64()?, next: reader.u64()? },
        kind => return Err(FormatError::newer(at, format!("a record of kind {kind}"))),
    })
}

/// The records of a payload.
///
/// # Errors
/// `Damaged`; `Newer` for a kind that this version does not know.
pub fn decode_records(payload: &[u8]) -> Result<Vec<ZoneRecord>> {
    let mut reader = Reader::new(payload);
    let mut records = Vec::new();
    while reader.remaining() != 0 {
        records.push(decode_one(&mut reader)?);
    }
    Ok(records)
}
