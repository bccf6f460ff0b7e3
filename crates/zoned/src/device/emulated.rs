//! A device of zones that is a file, with the limits and the faults of a real one.
//!
//! A write goes to the page cache, and so does the state of its zone after it: both survive the
//! process, and become durable with a sync. A loss of power leaves any part of what was not synced:
//! a write pointer without the bytes before it, a reset that never was, half a write. What lies
//! beyond a write pointer stays in the file and is never shown: it may come back with a pointer
//! that did.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::file::read_exact_at;
use tombolo_env::{Access, BoxFuture, Env, File};
use tombolo_format::zoned::{EMULATED_HEADER_BYTES, EmulatedHeader, ZONE_SLOT_BYTES, ZoneSlot};

use super::{Device, Place, Zone, ZoneGeometry, ZoneState};

/// Most zones of an emulated device: their states fill 64 MiB.
pub const EMULATED_ZONES_MAX: u32 = 1 << 20;

/// A file of zones.
#[derive(Debug)]
pub struct Emulated {
    path: PathBuf,
    file: Arc<dyn File>,
    header: EmulatedHeader,
    /// Invariant: what the file's states say, once this process has the device.
    zones: Mutex<Vec<Zone>>,
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{error}"))
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.into())
}

impl Emulated {
    /// Makes the file of a device whose zones are all empty, and opens it. Its name is durable, and
    /// so is what it holds.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken; what the file system says otherwise.
    pub fn create(env: &Env, path: &Path, header: EmulatedHeader) -> io::Result<Emulated> {
        // Under another name until it is whole: a crash leaves no half of a device.
        let mut making = path.as_os_str().to_owned();
        making.push(".new");
        let making = PathBuf::from(making);
        let files = env.files();
        let file = match files.create_new(&making) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                files.remove_file(&making)?;
                files.create_new(&making)?
            }
            made => made?,
        };
        file.set_length(header.zone_offset(header.zones))?;
        for zone in 0..header.zones {
            let slot = ZoneSlot { zone, state: ZoneState::Empty.condition(), pointer: 0 };
            file.write_all_at(&slot.encode(), header.slot_offset(zone))?;
        }
        file.write_all_at(&header.encode(), 0)?;
        file.sync_data()?;
        drop(file);
        files.hard_link(&making, path)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        files.sync_directory(directory)?;
        files.remove_file(&making)?;
        Emulated::open(env, path)
    }

    /// Opens a file of zones.
    ///
    /// # Errors
    /// `InvalidData` when it is none.
    pub fn open(env: &Env, path: &Path) -> io::Result<Emulated> {
        let file = match env.files().open(path, Access::ReadWrite) {
            // Only looked at, then.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                env.files().open(path, Access::Read)?
            }
            opened => opened?,
        };
        let mut bytes = [0; EMULATED_HEADER_BYTES];
        read_exact_at(&*file, &mut bytes, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("the file is too short for a device of zones"),
            _ => error,
        })?;
        let header = EmulatedHeader::decode(&bytes).map_err(damaged)?;
        if header.zones > EMULATED_ZONES_MAX {
            return Err(damaged(format!("{} zones; {EMULATED_ZONES_MAX} are the most", header.zones)));
        }
        let device = Emulated { path: path.to_path_buf(), file, header, zones: Mutex::default() };
        device.refresh()?;
        Ok(device)
    }

    fn read_states(&self) -> io::Result<Vec<Zone>> {
        let mut bytes = vec![0; self.header.zones as usize * ZONE_SLOT_BYTES];
        read_exact_at(&*self.file, &mut bytes, self.header.slot_offset(0))?;
        let mut zones = Vec::with_capacity(self.header.zones as usize);
        for (number, slot) in (0..self.header.zones).zip(bytes.chunks(ZONE_SLOT_BYTES)) {
            let slot = ZoneSlot::decode(slot).map_err(damaged)?;
            let state = ZoneState::of_condition(slot.state).filter(|_| slot.zone == number);
            let state = state.ok_or_else(|| damaged(format!("the state of zone {number}: {slot:?}")))?;
            if slot.pointer > self.header.capacity_bytes {
                return Err(damaged(format!("the write pointer of zone {number}: {slot:?}")));
            }
            // The process that opened it is gone.
            let state = if state == ZoneState::Open { ZoneState::Closed } else { state };
            zones.push(Zone { state, pointer: slot.pointer, capacity: self.header.capacity_bytes });
        }
        Ok(zones)
    }

    fn store(&self, zone: u32, state: Zone) -> io::Result<()> {
        let slot = ZoneSlot { zone, state: state.state.condition(), pointer: state.pointer };
        self.file.write_all_at(&slot.encode(), self.header.slot_offset(zone))
    }

    fn zone(&self, zone: u32) -> io::Result<Zone> {
        let zones = self.zones.lock();
        zones.get(zone as usize).copied().ok_or_else(|| invalid(format!("there is no zone {zone}")))
    }

    /// Changes a zone, in the file first.
    fn change(&self, zone: u32, to: Zone) -> io::Result<()> {
        self.store(zone, to)?;
        self.zones.lock()[zone as usize] = to;
        Ok(())
    }

    /// A worn zone, as a tester or a failing device makes one: `ReadOnly` or `Offline`.
    ///
    /// # Errors
    /// What the file says.
    pub fn wear_out(&self, zone: u32, state: ZoneState) -> io::Result<()> {
        let before = self.zone(zone)?;
        self.change(zone, Zone { state, ..before })
    }

    /// Where a zone's bytes begin in the file.
    pub fn zone_offset(&self, zone: u32) -> u64 {
        self.header.zone_offset(zone)
    }

    /// What a range's reading begins with: `None` for one that is offline.
    fn check_readable(&self, zone: u32) -> io::Result<Zone> {
        let found = self.zone(zone)?;
        if found.state == ZoneState::Offline {
            return Err(io::Error::other(format!("zone {zone} is offline")));
        }
        Ok(found)
    }
}

impl Device for Emulated {
    fn geometry(&self) -> ZoneGeometry {
        let EmulatedHeader { block_bytes, zone_bytes, zones, open_max, active_max, .. } = self.header;
        ZoneGeometry { block_bytes, zone_bytes, zones, open_max, active_max }
    }

    fn report(&self) -> io::Result<Vec<Zone>> {
        Ok(self.zones.lock().clone())
    }

    fn write(&self, zone: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        let before = self.zone(zone)?;
        let block = u64::from(self.header.block_bytes);
        let end = at + bytes.len() as u64;
        if !at.is_multiple_of(block) || !end.is_multiple_of(block) || bytes.is_empty() {
            return Err(invalid(format!("{} bytes at {at} of zone {zone}: not whole blocks", bytes.len())));
        }
        let opens = match before.state {
            ZoneState::Open => false,
            ZoneState::Empty | ZoneState::Closed => true,
            ZoneState::ReadOnly | ZoneState::Offline => return Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            ZoneState::Full | ZoneState::Conventional => {
                return Err(invalid(format!("zone {zone} is {}", before.state.name())));
            }
        };
        if at != before.pointer || end > before.capacity {
            return Err(invalid(format!(
                "a write of {} bytes at {at} of zone {zone}, whose write pointer is {} and capacity {}",
                bytes.len(),
                before.pointer,
                before.capacity
            )));
        }
        if opens {
            let (open, active) = {
                let zones = self.zones.lock();
                let count = |is: fn(&Zone) -> bool| zones.iter().filter(|zone| is(zone)).count();
                (count(|zone| zone.state == ZoneState::Open), count(|zone| zone.state.is_active()))
            };
            let active = active - usize::from(before.state == ZoneState::Closed);
            let is_beyond = |count: usize, max: u32| max != 0 && count >= max as usize;
            if is_beyond(open, self.header.open_max) || is_beyond(active, self.header.active_max) {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    format!("zone {zone} would be one too many: {open} are open and {active} active"),
                ));
            }
        }
        self.file.write_all_at(bytes, self.header.zone_offset(zone) + at)?;
        let state = if end == before.capacity { ZoneState::Full } else { ZoneState::Open };
        self.change(zone, Zone { state, pointer: end, ..before })
    }

    fn read(&self, zone: u32, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let found = self.check_readable(zone)?;
        let written = usize::try_from(found.pointer.saturating_sub(at)).unwrap_or(usize::MAX);
        let (written, rest) = buffer.split_at_mut(written.min(buffer.len()));
        rest.fill(0);
        if written.is_empty() {
            return Ok(());
        }
        read_exact_at(&*self.file, written, self.header.zone_offset(zone) + at)
    }

    fn read_many(&self, places: Vec<Place>) -> BoxFuture<'static, Vec<io::Result<Vec<u8>>>> {
        let mut refused = Vec::new();
        let mut ranges = Vec::new();
        for (zone, at, bytes) in &places {
            let written = self.check_readable(*zone).map(|found| found.pointer.saturating_sub(*at));
            let written = written.map(|written| (*bytes).min(usize::try_from(written).unwrap_or(usize::MAX)));
            if let Ok(written) = &written {
                ranges.push((self.header.zone_offset(*zone) + at, *written));
            }
            refused.push(written.err());
        }
        let reading = Arc::clone(&self.file).read_many(ranges);
        Box::pin(async move {
            let mut found = reading.await.into_iter();
            let mut results = Vec::with_capacity(places.len());
            for ((_, _, bytes), refused) in places.into_iter().zip(refused) {
                results.push(match refused {
                    Some(error) => Err(error),
                    None => found.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into())).map(
                        |mut read| {
                            read.resize(bytes, 0);
                            read
                        },
                    ),
                });
            }
            results
        })
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        let before = self.zone(zone)?;
        if matches!(before.state, ZoneState::ReadOnly | ZoneState::Offline) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.change(zone, Zone { state: ZoneState::Empty, pointer: 0, ..before })
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        let before = self.zone(zone)?;
        if matches!(before.state, ZoneState::ReadOnly | ZoneState::Offline) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.change(zone, Zone { state: ZoneState::Full, ..before })
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        if !self.file.try_lock()? {
            return Ok(false);
        }
        self.refresh()?;
        Ok(true)
    }

    fn refresh(&self) -> io::Result<()> {
        let zones = self.read_states()?;
        *self.zones.lock() = zones;
        Ok(())
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}
