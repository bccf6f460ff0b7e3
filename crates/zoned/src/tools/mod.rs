//! What `tombolo zoned` shows and does.

mod backup;
mod check;
mod draw;

use std::sync::Arc;

use tombolo_env::{Env, ZoneState};
use tombolo_format::zoned::Superblock;
use tombolo_storage::{Error, ErrorKind, Result, Uri};

pub use backup::{BackedUp, backup, restore};
pub use check::{Finding, check};
pub use draw::{map, svg};

use crate::device::{Counts, Device};
use crate::instance::{FormatOptions, Handle};
pub use crate::space::Space;
use crate::space::space;
use crate::uri::{Shared, Target, target};
use crate::volume::{Core, Counters};
use crate::zones::{Slot, Use};

/// A device, as tools see it.
#[derive(Debug)]
pub struct Tool {
    device: Handle,
    prefix: String,
}

impl Tool {
    /// The device of a URI, of either scheme.
    ///
    /// # Errors
    /// `Invalid`, and says why.
    pub fn open(env: &Env, uri: &Uri) -> Result<Tool> {
        if env.is_simulated() {
            return Tool::with(&Shared::default(), env, uri);
        }
        Tool::with(&Shared::of_process(), env, uri)
    }

    /// The same, of devices that a registry opens, too: it sees what their databases have.
    ///
    /// # Errors
    /// As [`Tool::open`].
    pub fn with(devices: &Shared, env: &Env, uri: &Uri) -> Result<Tool> {
        if ![crate::uri::BLOCK_SCHEME, crate::uri::FILE_SCHEME].contains(&uri.scheme.as_str()) {
            return Err(Error::new(ErrorKind::Invalid, format!("{} is no zoned device", uri.shown()))
                .advice("write zoned:///dev/nvme0n1, or zoned+file:///path for zones made of a file"));
        }
        let Target { place, prefix, make } = target(env, uri)?;
        let device = devices.device(env, place, make);
        Ok(Tool { device, prefix })
    }

    /// Formats it.
    ///
    /// # Errors
    /// As [`crate::Zoned::format`].
    pub fn format(&self, options: &FormatOptions) -> Result<()> {
        self.device.format(options)
    }

    /// The name on the device that the URI says; empty, or ends in `/`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The device as it is, looked at.
    ///
    /// # Errors
    /// `NotFound` when there is none, or it is not formatted; those of mounting it.
    pub fn look(&self) -> Result<Arc<Core>> {
        self.device.seen()?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such file of zones yet")
                .object(self.device.place().path().display())
                .advice("make it: `tombolo zoned mkfs`")
        })
    }

    /// The device, held by this process.
    ///
    /// # Errors
    /// `InUse` when another process holds it.
    pub fn hold(&self) -> Result<Arc<Core>> {
        self.device.held()
    }
}

/// A zone, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRow {
    /// Which.
    pub zone: u32,
    /// What it is used for: `metadata`, `free`, `open`, `full`, `log`, `worn`.
    pub used: &'static str,
    /// What the device says that it is in.
    pub state: &'static str,
    /// The class of life of the bodies in it, where they are of one.
    pub class: Option<u8>,
    /// Bytes that it takes.
    pub capacity_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Bytes that bodies need.
    pub live_bytes: u64,
}

/// A name, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRow {
    /// The name.
    pub name: String,
    /// Bytes.
    pub length: u64,
    /// Pieces that they lie in: zone, byte in it, bytes.
    pub extents: Vec<(u32, u64, u64)>,
    /// What it was said to be: kind, level and life.
    pub sort: (u8, u8, u8),
}

/// A lane of log, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneRow {
    /// Its number on the device.
    pub lane: u64,
    /// The database's life.
    pub life: u64,
    /// The epoch that appends to it.
    pub epoch: u64,
    /// Its number in the epoch.
    pub number: u32,
    /// Where it ends, once it was fenced.
    pub sealed: Option<u64>,
}

impl Core {
    /// What the device was formatted with, its random number, and the generation of its metadata.
    pub fn identity(&self) -> (&Superblock, u128, u64) {
        (&self.superblock, self.id, self.metadata.lock().generation)
    }

    /// What happened since this process holds it, and operations of the device.
    pub fn activity(&self) -> (Counters, Counts) {
        (*self.counters.lock(), self.counts())
    }

    /// How full it is.
    pub fn space(&self) -> Space {
        space(self)
    }

    /// What mounting found, and takes nothing away.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// All zones, in order.
    ///
    /// # Errors
    /// The device's.
    pub fn zone_rows(&self) -> Result<Vec<ZoneRow>> {
        let report =
            self.device.report().map_err(|error| crate::failed(&self.device, error, "looking at zones"))?;
        let zones = self.zones.lock();
        let state = self.state.read();
        let row = |(slot, found): (&Slot, &crate::device::Zone)| {
            let (used, class) = match slot.used {
                Use::Metadata => ("metadata", None),
                Use::Free | Use::Resetting => ("free", None),
                Use::Open(class) => ("open", Some(class)),
                Use::Full => ("full", None),
                Use::Log => ("log", None),
                Use::Worn(_) => ("worn", None),
            };
            let is_finished = found.state == ZoneState::Full;
            ZoneRow {
                zone: slot.file.zone,
                used,
                state: found.state.name(),
                class,
                capacity_bytes: found.capacity,
                written_bytes: if is_finished { found.capacity } else { found.pointer },
                live_bytes: state.live_of(slot.file.zone),
            }
        };
        Ok(zones.slots.iter().zip(&report).map(row).collect())
    }

    /// All names that begin with `prefix`, in order.
    pub fn name_rows(&self, prefix: &str) -> Vec<NameRow> {
        let state = self.state.read();
        let block = self.block() as u64;
        let row = |(name, number): (&Arc<str>, u64)| {
            let body = state.bodies.get(&number)?;
            let place = |extent: &tombolo_format::zoned::Extent| {
                (extent.zone, u64::from(extent.block) * block, extent.bytes)
            };
            let extents = body.extents.iter().map(place).collect();
            Some(NameRow { name: name.to_string(), length: body.length, extents, sort: body.sort })
        };
        state.listed(prefix, None).filter_map(row).collect()
    }

    /// All lanes.
    pub fn lane_rows(&self) -> Vec<LaneRow> {
        let state = self.state.read();
        let row = |(&lane, of): (&u64, &crate::state::LaneOf)| LaneRow {
            lane,
            life: of.life,
            epoch: of.epoch,
            number: of.number,
            sealed: of.sealed,
        };
        state.lanes.iter().map(row).collect()
    }
}
