//! A zoned block device of this host: ZNS, or a host-managed SMR disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_env::{Access, BoxFuture, Env, File, ZoneControl};

use super::{Device, Place, Zone, ZoneGeometry, ZoneState};

/// A block device.
#[derive(Debug)]
pub struct BlockDevice {
    path: PathBuf,
    file: Arc<dyn File>,
    zones: Arc<dyn ZoneControl>,
}

impl BlockDevice {
    /// The device at `path`.
    ///
    /// # Errors
    /// `Unsupported` when it is not zoned, or its blocks are not what can be written.
    pub fn open(env: &Env, path: &Path) -> io::Result<BlockDevice> {
        let zones = env.files().zones(path)?;
        let file = env.files().open(path, Access::ReadWriteDirect)?;
        let geometry = zones.geometry();
        let aligned = file.direct_alignment().unwrap_or(1);
        if !(geometry.block_bytes as usize).is_multiple_of(aligned) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("blocks of {} bytes, where writes are aligned to {aligned}", geometry.block_bytes),
            ));
        }
        Ok(BlockDevice { path: path.to_path_buf(), file, zones })
    }

    fn offset(&self, zone: u32, at: u64) -> u64 {
        u64::from(zone) * self.zones.geometry().zone_bytes + at
    }
}

impl Device for BlockDevice {
    fn geometry(&self) -> ZoneGeometry {
        self.zones.geometry()
    }

    fn report(&self) -> io::Result<Vec<Zone>> {
        self.zones.report()
    }

    fn write(&self, zone: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.offset(zone, at))
    }

    fn read(&self, zone: u32, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        tombolo_env::file::read_exact_at(&*self.file, buffer, self.offset(zone, at))
    }

    fn read_many(&self, places: Vec<Place>) -> BoxFuture<'static, Vec<io::Result<Vec<u8>>>> {
        let ranges = places.iter().map(|(zone, at, bytes)| (self.offset(*zone, *at), *bytes)).collect();
        Arc::clone(&self.file).read_many(ranges)
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        self.zones.reset(zone)
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        self.zones.finish(zone)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }

    fn refresh(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

/// Whether a zone takes writes and resets.
pub fn is_usable(zone: &Zone) -> bool {
    !matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline | ZoneState::Conventional)
}
