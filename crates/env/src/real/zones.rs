//! Zones of block devices, by the kernel's calls for them (linux/blkzoned.h).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::zones::{Zone, ZoneControl, ZoneGeometry, ZoneState};

/// Sectors of these calls, whatever the device's own are.
const SECTOR_BYTES: u64 = 512;
/// Zones of one report.
const REPORT_ZONES: usize = 512;
const REPORT_ZONES_U32: u32 = 512;
/// More zones than any device of today has: 32 TiB of the smallest SMR zones.
const ZONES_MAX: u32 = 1 << 20;
/// Writes are whole pages at least.
const BLOCK_BYTES_MIN: u32 = 4096;

const BLKREPORTZONE: u32 = 0xC010_1282;
const BLKRESETZONE: u32 = 0x4010_1283;
const BLKGETZONESZ: u32 = 0x8004_1284;
const BLKGETNRZONES: u32 = 0x8004_1285;
const BLKFINISHZONE: u32 = 0x4010_1288;
const BLKSSZGET: u32 = 0x1268;

/// `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelZone {
    start: u64,
    length: u64,
    pointer: u64,
    kind: u8,
    condition: u8,
    rest: [u8; 6],
    capacity: u64,
    reserved: [u8; 24],
}

/// `struct blk_zone_report`, with room for what it reports.
#[repr(C)]
struct KernelReport {
    sector: u64,
    zones: u32,
    flags: u32,
    found: [KernelZone; REPORT_ZONES],
}

/// `struct blk_zone_range`.
#[repr(C)]
struct KernelRange {
    sector: u64,
    sectors: u64,
}

/// The report says the capacity of zones, which it did not before Linux 5.9.
const REPORTS_CAPACITY: u32 = 1;

#[derive(Debug)]
pub(super) struct RealZones {
    device: File,
    geometry: ZoneGeometry,
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A call that fills a number.
fn number(device: &File, request: u32) -> io::Result<u32> {
    let mut answer: u32 = 0;
    // SAFETY: the descriptor is open as long as `device` is borrowed; each request that this is
    // called with writes four bytes, which `answer` has.
    done(unsafe { libc::ioctl(device.as_raw_fd(), libc::Ioctl::from(request), &raw mut answer) })?;
    Ok(answer)
}

/// A number of the device's queue; 0 where the kernel does not tell.
fn limit(device: u64, line: &str) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/{line}"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

impl RealZones {
    pub(super) fn open(path: &Path) -> io::Result<RealZones> {
        let not_zoned = || io::Error::new(io::ErrorKind::Unsupported, "this is no zoned block device");
        let metadata = std::fs::metadata(path)?;
        if !metadata.file_type().is_block_device() {
            return Err(not_zoned());
        }
        // Only looked at by some, whose resets the kernel then refuses.
        let device = match File::options().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(path)?,
            opened => opened?,
        };
        let sectors = number(&device, BLKGETZONESZ).map_err(|_| not_zoned())?;
        let zones = number(&device, BLKGETNRZONES).map_err(|_| not_zoned())?;
        if sectors == 0 || zones == 0 || zones > ZONES_MAX {
            return Err(not_zoned());
        }
        let geometry = ZoneGeometry {
            block_bytes: number(&device, BLKSSZGET)?.max(BLOCK_BYTES_MIN),
            zone_bytes: u64::from(sectors) * SECTOR_BYTES,
            zones,
            open_max: limit(metadata.rdev(), "max_open_zones"),
            active_max: limit(metadata.rdev(), "max_active_zones"),
        };
        Ok(RealZones { device, geometry })
    }

    fn act(&self, zone: u32, request: u32) -> io::Result<()> {
        if zone >= self.geometry.zones {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sectors = self.geometry.zone_bytes / SECTOR_BYTES;
        let range = KernelRange { sector: u64::from(zone) * sectors, sectors };
        // SAFETY: the descriptor is open as long as `self` lives; both requests that this is called
        // with read a `blk_zone_range`, which `range` is laid out as.
        done(unsafe { libc::ioctl(self.device.as_raw_fd(), libc::Ioctl::from(request), &raw const range) })
    }
}

impl ZoneControl for RealZones {
    fn geometry(&self) -> ZoneGeometry {
        self.geometry
    }

    fn report(&self) -> io::Result<Vec<Zone>> {
        let mut zones = Vec::new();
        while zones.len() < self.geometry.zones as usize {
            let mut report = Box::new(KernelReport {
                sector: zones.len() as u64 * (self.geometry.zone_bytes / SECTOR_BYTES),
                zones: REPORT_ZONES_U32,
                flags: 0,
                found: [KernelZone::default(); REPORT_ZONES],
            });
            // SAFETY: the descriptor is open as long as `self` lives; the request reads the head
            // and writes at most as many zones behind it as the head says, which there is room for.
            done(unsafe {
                libc::ioctl(self.device.as_raw_fd(), libc::Ioctl::from(BLKREPORTZONE), &raw mut *report)
            })?;
            let found = (report.zones as usize).min(REPORT_ZONES);
            if found == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for zone in &report.found[..found] {
                let capacity = if report.flags & REPORTS_CAPACITY == 0 { zone.length } else { zone.capacity };
                let Some(state) = ZoneState::of_condition(zone.condition) else {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("a zone in a condition of number {}", zone.condition),
                    ));
                };
                let pointer = match state {
                    ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => capacity * SECTOR_BYTES,
                    _ => zone.pointer.saturating_sub(zone.start) * SECTOR_BYTES,
                };
                zones.push(Zone { state, pointer, capacity: capacity * SECTOR_BYTES });
            }
        }
        zones.truncate(self.geometry.zones as usize);
        Ok(zones)
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        self.act(zone, BLKRESETZONE)
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        self.act(zone, BLKFINISHZONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_laid_out_as_the_kernels() {
        assert_eq!((size_of::<KernelZone>(), size_of::<KernelRange>()), (64, 16));
        assert_eq!(size_of::<KernelReport>(), 16 + 64 * REPORT_ZONES);
        assert_eq!(REPORT_ZONES_U32 as usize, REPORT_ZONES);
    }

    #[test]
    fn what_is_not_zoned_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let refused = RealZones::open(file.path()).expect_err("a plain file");
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        let absent = RealZones::open(Path::new("/dev/no-such-device")).expect_err("nothing");
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
