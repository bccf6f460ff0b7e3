//! A device, and the one process that holds it.
//!
//! Who only looks reads the metadata without holding the device: the newest generation, again and
//! again while that changes. The first change takes the device for this process, until the last
//! handle is dropped or the process ends. All handles of a process share one instance.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tombolo_env::{Env, ZoneGeometry};
use tombolo_format::checksum::StreamHash;
use tombolo_format::zoned::{
    EmulatedHeader, LABEL_BYTES_MAX, Superblock, UnitIdentity, UnitKind, encode_snapshot_end, encode_unit,
};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::device::block::{BlockDevice, is_usable};
use crate::device::emulated::Emulated;
use crate::device::{Counted, Device, SharedDevice};
use crate::failed;
use crate::generation::MetadataLog;
use crate::lanes::LogCore;
use crate::metadata::mount::{Mounted, look_at_metadata, mount};
use crate::metadata::{METADATA_ZONES_DEFAULT, METADATA_ZONES_MAX, snapshot};
use crate::state::State;
use crate::volume::{Core, Syncs};
use crate::zones::{OPEN_MIN, Use, Zones};

/// Fewest zones of a device.
pub const ZONES_MIN: u32 = 16;
/// Fewest bytes that a zone takes.
pub const CAPACITY_MIN: u64 = 256 << 10;
/// Times that a look is repeated when the metadata changes under it.
const LOOKS_MAX: u32 = 100;

impl Core {
    fn new(env: &Env, device: SharedDevice, is_held: bool) -> Result<Arc<Core>> {
        let device = Counted::new(device);
        if is_held {
            // All that is read from here on is durable.
            device.sync().map_err(|error| failed(&device, error, "making what is there durable"))?;
        }
        let mut looked_at = look_at_metadata(&device)?;
        let Mounted {
            id,
            superblock,
            state,
            generation,
            zone,
            previous,
            number,
            at,
            snapshot_end,
            last_generation,
            is_torn,
            notes,
        } = mount(&device)?;
        looked_at.truncate(superblock.metadata_zones as usize);
        let geometry = device.geometry();
        let report = device.report().map_err(|error| failed(&device, error, "looking at zones"))?;
        let limits = (geometry.open_max, geometry.active_max);
        let zones = Zones::new(&report, &state, superblock.metadata_zones, limits, superblock.finish_percent);
        let metadata = MetadataLog {
            zone,
            previous,
            generation,
            number,
            at,
            snapshot_end,
            roll: None,
            is_doubtful: is_torn && !is_enabled(Mutant::ZonedPointerTrusted),
            worn: Vec::new(),
        };
        let metadata = if is_torn && !metadata.is_doubtful {
            MetadataLog { at: report[zone as usize].pointer, ..metadata }
        } else {
            metadata
        };
        let log = if is_held { LogCore::recover(&device, id, &state, &report)? } else { LogCore::default() };
        let core = Arc::new(Core {
            env: env.clone(),
            device,
            id,
            superblock,
            geometry,
            capacities: report.iter().map(|zone| zone.capacity).collect(),
            state: RwLock::new(state),
            metadata: Mutex::new(metadata),
            last_generation: Mutex::new(last_generation),
            zones: Mutex::new(zones),
            moving: Mutex::default(),
            counters: Mutex::default(),
            log,
            syncs: Syncs::default(),
            is_outcome_unknown: AtomicBool::default(),
            is_held,
            looked_at,
            notes,
        });
        if is_held {
            core.settle()?;
        }
        Ok(core)
    }

    /// After taking a device over: what a crash left is given back.
    fn settle(self: &Arc<Core>) -> Result<()> {
        for zone in 0..self.geometry.zones {
            self.reset_if_dead(zone, false);
        }
        let beyond: Vec<_> = {
            let zones = self.zones.lock();
            let open = zones.slots.iter().filter(|slot| matches!(slot.used, Use::Open(_)));
            let mut files: Vec<_> = open.map(|slot| Arc::clone(&slot.file)).collect();
            files.sort_by_key(|file| *file.pointer.lock());
            files.split_off(zones.open_max.min(files.len()))
        };
        for file in beyond {
            self.close_zone(&file)?;
            self.reset_if_dead(file.zone, false);
        }
        self.free_dead_log_zones()
    }
}

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DevicePlace {
    /// A zoned block device.
    Block(PathBuf),
    /// Zones made of a file.
    File(PathBuf),
}

impl DevicePlace {
    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            DevicePlace::Block(path) | DevicePlace::File(path) => path,
        }
    }
}

/// How a device is formatted.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Zones that metadata rolls through.
    pub metadata_zones: u32,
    /// A zone with less than so many percent left is finished.
    pub finish_percent: u8,
    /// A name for people.
    pub label: String,
    /// Its content may go.
    pub force: bool,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions {
            metadata_zones: METADATA_ZONES_DEFAULT,
            finish_percent: 5,
            label: String::new(),
            force: false,
        }
    }
}

/// A device that a process may hold, looked at by all of its handles.
#[derive(Debug)]
pub struct Zoned {
    env: Env,
    place: DevicePlace,
    /// The zones that a file which is not there is made of, at the first change.
    make: Option<EmulatedHeader>,
    core: RwLock<Option<Arc<Core>>>,
    /// Held while a device is opened.
    opening: Mutex<()>,
    /// The device as this process held it last: work in the background may hold it still, after all
    /// handles were dropped.
    last: LastCore,
}

/// The device as a process held it last.
pub(crate) type LastCore = Arc<Mutex<Weak<Core>>>;

/// A shared handle of a device.
pub type Handle = Arc<Zoned>;

impl Zoned {
    /// The device at a place; a file that is not there is made at the first change, if `make` says
    /// what of. Touches nothing.
    pub fn new(env: &Env, place: DevicePlace, make: Option<EmulatedHeader>) -> Handle {
        Zoned::after(env, place, make, LastCore::default())
    }

    /// As [`Zoned::new`], of a device that this process may have held before.
    pub(crate) fn after(
        env: &Env,
        place: DevicePlace,
        make: Option<EmulatedHeader>,
        last: LastCore,
    ) -> Handle {
        Arc::new(Zoned {
            env: env.clone(),
            place,
            make,
            core: RwLock::default(),
            opening: Mutex::default(),
            last,
        })
    }

    /// Where it is.
    pub fn place(&self) -> &DevicePlace {
        &self.place
    }

    /// The device, which nobody has locked here; `None` when there is none.
    fn device(&self) -> Result<Option<SharedDevice>> {
        let opened: std::io::Result<SharedDevice> = match &self.place {
            DevicePlace::Block(path) => {
                BlockDevice::open(&self.env, path).map(|device| Arc::new(device) as SharedDevice)
            }
            DevicePlace::File(path) => {
                Emulated::open(&self.env, path).map(|device| Arc::new(device) as SharedDevice)
            }
        };
        let path = self.place.path().display();
        match opened {
            Ok(device) => Ok(Some(device)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Err(Error::new(
                ErrorKind::Unsupported,
                format!("opening a zoned device: {error}"),
            )
            .object(path)
            .source(error)
            .advice(
                "name a zoned block device (`lsblk -o NAME,ZONED` lists them), or make zones of a file: \
                        zoned+file:///path?zone=64MiB&zones=100",
            )),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Err(Error::new(ErrorKind::Invalid, format!("{error}: no device of zones"))
                    .object(path)
                    .source(error)
                    .advice("name a file that `tombolo zoned mkfs` made, or one that is not there yet"))
            }
            Err(error) => Err(Error::io(error, "opening a zoned device", path)),
        }
    }

    /// The device, held by this process.
    ///
    /// # Errors
    /// `InUse` when another process holds it; those of mounting it.
    pub fn held(self: &Arc<Zoned>) -> Result<Arc<Core>> {
        if let Some(core) = self.core.read().as_ref().filter(|core| core.is_held) {
            return Ok(Arc::clone(core));
        }
        let _opening = self.opening.lock();
        if let Some(core) = self.core.read().as_ref().filter(|core| core.is_held) {
            return Ok(Arc::clone(core));
        }
        if let Some(core) = self.last.lock().upgrade() {
            *self.core.write() = Some(Arc::clone(&core));
            return Ok(core);
        }
        let device = match (self.device()?, &self.place, self.make) {
            (Some(device), _, _) => device,
            (None, DevicePlace::File(path), Some(header)) => {
                check_shape(&path.display().to_string(), &header)?;
                let made = Emulated::create(&self.env, path, header)
                    .map_err(|error| Error::io(error, "making a file of zones", path.display()))?;
                let made: SharedDevice = Arc::new(made);
                self.lock(&*made)?;
                format_device(&self.env, &*made, &FormatOptions::default(), None)?;
                made
            }
            (None, _, _) => return Err(self.absent()),
        };
        self.lock(&*device)?;
        let core = self.mounted_or_made(device)?;
        *self.last.lock() = Arc::downgrade(&core);
        *self.core.write() = Some(Arc::clone(&core));
        Ok(core)
    }

    /// Mounts a locked device. A file of zones that was made at first use, and whose maker ended
    /// before it was formatted, is formatted now.
    fn mounted_or_made(&self, device: SharedDevice) -> Result<Arc<Core>> {
        match Core::new(&self.env, Arc::clone(&device), true) {
            Err(error) if self.make.is_some() && is_untouched(&*device) => {
                tracing::debug!(%error, "a file of zones is formatted at first use");
                format_device(&self.env, &*device, &FormatOptions::default(), None)?;
                Core::new(&self.env, device, true)
            }
            mounted => mounted,
        }
    }

    fn lock(&self, device: &dyn Device) -> Result<()> {
        match device.try_lock() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::new(ErrorKind::InUse, "another process holds the device")
                .object(device.describe())
                .advice(
                    "one process owns a zoned device: end it, or ask it to close; a paused one holds it too",
                )),
            Err(error) => Err(failed(device, error, "locking the device")),
        }
    }

    fn absent(&self) -> Error {
        Error::new(ErrorKind::NotFound, "there is no such device").object(self.place.path().display()).advice(
            "check the path; zones are made of a file by `tombolo zoned mkfs`, or by ?zone=64MiB&zones=100",
        )
    }

    /// The device as it is now: held, or looked at. `None` when a file is not there that would be
    /// made.
    ///
    /// # Errors
    /// Those of mounting it.
    pub fn seen(self: &Arc<Zoned>) -> Result<Option<Arc<Core>>> {
        if let Some(core) = self.core.read().as_ref().filter(|core| core.is_held) {
            return Ok(Some(Arc::clone(core)));
        }
        let _opening = self.opening.lock();
        if let Some(core) = self.core.read().as_ref()
            && (core.is_held || core.is_current()?)
        {
            return Ok(Some(Arc::clone(core)));
        }
        let Some(device) = self.device()? else {
            return if self.make.is_some() { Ok(None) } else { Err(self.absent()) };
        };
        let mut looks = 0;
        let core = loop {
            looks += 1;
            match Core::new(&self.env, Arc::clone(&device), false) {
                Ok(core) if looks >= LOOKS_MAX || core.is_current()? => break core,
                // Its holder has gone on meanwhile.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt && looks < 3 => {
                    device.refresh().map_err(|error| failed(&*device, error, "looking at zones"))?;
                }
                Err(_) if self.make.is_some() && is_untouched(&*device) => return Ok(None),
                Err(error) => return Err(error),
            }
        };
        *self.core.write() = Some(Arc::clone(&core));
        Ok(Some(core))
    }

    /// Whether this process holds the device.
    pub fn is_held(&self) -> bool {
        self.core.read().as_ref().is_some_and(|core| core.is_held)
    }

    /// Formats the device. A file that is not there is made.
    ///
    /// # Errors `AlreadyExists` when something is there, unless it may go; `Unsupported` when the
    /// device is too small, or cannot hold enough zones open; `InUse`.
    pub fn format(self: &Arc<Zoned>, options: &FormatOptions) -> Result<()> {
        self.format_as(options, None)
    }

    /// As [`Zoned::format`], with the random number of another device, which it takes the place of.
    pub(crate) fn format_as(self: &Arc<Zoned>, options: &FormatOptions, id: Option<u128>) -> Result<()> {
        let _opening = self.opening.lock();
        if self.is_held() || self.last.lock().strong_count() > 0 {
            return Err(Error::new(ErrorKind::InUse, "this process has the device open")
                .object(self.place.path().display()));
        }
        let device = match (self.device()?, &self.place, self.make) {
            (Some(device), _, _) => device,
            (None, DevicePlace::File(path), Some(header)) => {
                check_shape(&path.display().to_string(), &header)?;
                Arc::new(
                    Emulated::create(&self.env, path, header)
                        .map_err(|error| Error::io(error, "making a file of zones", path.display()))?,
                )
            }
            (None, _, _) => return Err(self.absent()),
        };
        self.lock(&*device)?;
        *self.core.write() = None;
        format_device(&self.env, &*device, options, id)
    }
}

impl Core {
    /// Whether what was read is what the device says now.
    fn is_current(&self) -> Result<bool> {
        let failed = |error| failed(&self.device, error, "looking at zones");
        self.device.refresh().map_err(failed)?;
        let now = look_at_metadata(&self.device)?;
        Ok(now[..self.looked_at.len().min(now.len())] == self.looked_at)
    }
}

/// Whether nothing was ever written to a device, or no more than formatting it writes: superblock,
/// snapshot and its end, of a block each.
fn is_untouched(device: &dyn Device) -> bool {
    let formatted = 3 * u64::from(device.geometry().block_bytes);
    device.report().is_ok_and(|zones| {
        let (first, others) = zones.split_at(1.min(zones.len()));
        first.iter().all(|zone| zone.pointer <= formatted)
            && others.iter().all(|zone| zone.pointer == 0)
            && mount(device)
                .is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt))
    })
}

/// Refuses a device that is too small, or cannot hold enough zones open.
fn check_shape(place: &str, shape: &EmulatedHeader) -> Result<()> {
    let refuse = |what: String, advice: &str| {
        Err(Error::new(ErrorKind::Unsupported, what).object(place).advice(advice))
    };
    if shape.zones < ZONES_MIN {
        let what = format!("{} zones; {ZONES_MIN} are the fewest", shape.zones);
        return refuse(what, "use a larger device, or smaller zones");
    }
    if shape.capacity_bytes < CAPACITY_MIN {
        let what = format!("zones of {} bytes; {CAPACITY_MIN} are the fewest", shape.capacity_bytes);
        return refuse(what, "use larger zones");
    }
    for (name, limit) in [("open", shape.open_max), ("active", shape.active_max)] {
        if limit != 0 && limit < OPEN_MIN {
            let what = format!("{limit} zones may be {name} at once; {OPEN_MIN} are needed");
            return refuse(what, "use a device with a higher limit");
        }
    }
    Ok(())
}

/// Formats a device that this process holds.
fn format_device(env: &Env, device: &dyn Device, options: &FormatOptions, id: Option<u128>) -> Result<()> {
    let geometry = device.geometry();
    let report = device.report().map_err(|error| failed(device, error, "looking at zones"))?;
    let ZoneGeometry { block_bytes, zone_bytes, zones, open_max, active_max } = geometry;
    let usable: Vec<_> = report.iter().filter(|zone| is_usable(zone)).collect();
    let shape = EmulatedHeader {
        block_bytes,
        zone_bytes,
        capacity_bytes: usable.iter().map(|zone| zone.capacity).min().unwrap_or(0),
        zones: u32::try_from(usable.len()).unwrap_or(u32::MAX),
        open_max,
        active_max,
    };
    check_shape(&device.describe(), &shape)?;
    let refuse = |what: String| Err(Error::new(ErrorKind::Invalid, what).object(device.describe()));
    if !(METADATA_ZONES_DEFAULT..=METADATA_ZONES_MAX).contains(&options.metadata_zones) {
        return refuse(format!(
            "{} metadata zones; {METADATA_ZONES_DEFAULT} to {METADATA_ZONES_MAX} there may be",
            options.metadata_zones
        ));
    }
    if options.finish_percent > 50 {
        return refuse(format!("a finish threshold of {} percent; 50 are the most", options.finish_percent));
    }
    if options.label.len() > LABEL_BYTES_MAX {
        return refuse(format!("a label of {} bytes; {LABEL_BYTES_MAX} are the most", options.label.len()));
    }
    let written = report.iter().filter(|zone| zone.pointer > 0).count();
    let is_ours_and_whole = mount(device).is_ok();
    if !options.force && (is_ours_and_whole || written > 0 && !is_untouched(device)) {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("{written} zones hold something"))
            .object(device.describe())
            .advice(
                "if it may go, say so: `tombolo zoned mkfs --force`; `tombolo zoned list` shows what it is",
            ));
    }
    for (number, _) in (0..zones).zip(&report).filter(|(_, zone)| is_usable(zone) && zone.pointer > 0) {
        device.reset(number).map_err(|error| failed(device, error, format!("emptying zone {number}")))?;
    }
    device.sync().map_err(|error| failed(device, error, "making zones durable"))?;
    let takes_place = id.is_some();
    let id = id.unwrap_or_else(|| u128::from(env.random_u64()) << 64 | u128::from(env.random_u64()));
    let superblock = Superblock {
        block_bytes,
        zone_bytes,
        zones,
        metadata_zones: options.metadata_zones,
        finish_percent: options.finish_percent,
        formatted_ms: u64::try_from(env.unix_time().as_millis()).unwrap_or(0),
        label: options.label.clone(),
    };
    let Some(zone) = (0..options.metadata_zones).find(|zone| is_usable(&report[*zone as usize])) else {
        return refuse("no metadata zone takes writes".into());
    };
    // Of a device that takes another's place, and its random number, nothing is taken for what the
    // other left in the same zone.
    let first = if takes_place { 1 + (env.random_u64() >> 16) } else { 1 };
    let state = State { next: first, ..State::default() };
    let mut units = snapshot(&superblock, &state);
    let mut hash = StreamHash::new();
    units.iter().skip(1).for_each(|(_, part)| hash.update(part));
    units
        .push_back((UnitKind::SnapshotEnd, encode_snapshot_end(state.records().len() as u64, hash.digest())));
    let mut at = 0;
    for (number, (kind, payload)) in (0_u64..).zip(units) {
        let block = u32::try_from(at / u64::from(block_bytes)).unwrap_or(u32::MAX);
        let identity = UnitIdentity { device: id, generation: first, number, zone, block };
        let unit = encode_unit(identity, kind, &payload, block_bytes as usize);
        device.write(zone, at, &unit).map_err(|error| failed(device, error, "writing the first metadata"))?;
        at += unit.len() as u64;
    }
    device.sync().map_err(|error| failed(device, error, "making the first metadata durable"))
}
