//! `zoned:///dev/nvme0n1/name` and `zoned+file:///path/name?zone=64MiB&zones=100`.
//!
//! The path leads to a device, or to a file of zones; what follows it is the database's name on it,
//! of as many segments as one likes. Several databases share a device by names that differ.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_format::zoned::EmulatedHeader;
use tombolo_storage::size::{SIZE_WANTED, parse_size};
use tombolo_storage::{Error, ErrorKind, LogStore, ObjectName, ObjectStore, Registry, Result, Uri};

use crate::instance::{DevicePlace, Handle, LastCore, Zoned};
use crate::log::ZonedLogStore;
use crate::objects::ZonedObjectStore;

/// Scheme of zoned block devices.
pub const BLOCK_SCHEME: &str = "zoned";
/// Scheme of zones made of a file.
pub const FILE_SCHEME: &str = "zoned+file";

/// Zones that a file is made of when only their size is said.
const ZONES_DEFAULT: u32 = 64;
/// Bytes of a block of such a file.
const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// What a file of zones is told.
const PARAMETERS: [&str; 6] = ["zone", "zones", "capacity", "block", "open", "active"];

/// Devices of a process that are open, by their place: handles share them.
#[derive(Debug, Default)]
pub struct Shared(Mutex<BTreeMap<(u64, DevicePlace), Opened>>);

/// A device that is open, or was.
type Opened = (Weak<Zoned>, LastCore);

impl Shared {
    /// Those of this process.
    pub fn of_process() -> Arc<Shared> {
        static SHARED: OnceLock<Arc<Shared>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(Arc::default))
    }

    /// The device at a place, for this process.
    pub fn device(&self, env: &Env, place: DevicePlace, make: Option<EmulatedHeader>) -> Handle {
        let key = (env.process_token(), place.clone());
        let mut devices = self.0.lock();
        let (open, last) = devices.get(&key).cloned().unwrap_or_default();
        if let Some(open) = open.upgrade() {
            return open;
        }
        let device = Zoned::after(env, place, make, Arc::clone(&last));
        devices.insert(key, (Arc::downgrade(&device), last));
        device
    }
}

/// A place of a device, the name on it, and what a file that is not there is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The device.
    pub place: DevicePlace,
    /// Empty, or ends in `/`.
    pub prefix: String,
    /// What a file that is not there is made of.
    pub make: Option<EmulatedHeader>,
}

/// Reads a URI of either scheme.
///
/// # Errors
/// `Invalid`, and says why.
pub fn target(env: &Env, uri: &Uri) -> Result<Target> {
    let is_file = uri.scheme == FILE_SCHEME;
    uri.allow_parameters(if is_file { &PARAMETERS } else { &[] })?;
    let path = uri.path()?;
    if path == Path::new("/") {
        let example = if is_file { "zoned+file:///data/zones" } else { "zoned:///dev/nvme0n1/orders" };
        return Err(Error::new(ErrorKind::Invalid, format!("{} names no device", uri.shown()))
            .advice(format!("name one, and the database on it: {example}")));
    }
    let (device, name) = split(env, &path);
    let prefix = if name.as_os_str().is_empty() { String::new() } else { format!("{}/", name.display()) };
    if !prefix.is_empty() {
        ObjectName::new(prefix.trim_end_matches('/'))?;
    }
    let place = if is_file { DevicePlace::File(device) } else { DevicePlace::Block(device) };
    Ok(Target { place, prefix, make: if is_file { shape(uri)? } else { None } })
}

/// The shortest beginning of a path that is no directory, and what follows it.
fn split(env: &Env, path: &Path) -> (PathBuf, PathBuf) {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    for ancestor in ancestors {
        if env.files().metadata(ancestor).is_ok_and(|found| !found.is_directory) {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return (ancestor.to_path_buf(), rest.to_path_buf());
        }
    }
    (path.to_path_buf(), PathBuf::new())
}

fn number(uri: &Uri, name: &str, max: u64, is_size: bool) -> Result<Option<u64>> {
    let Some(text) = uri.parameter(name) else { return Ok(None) };
    let found = if is_size { parse_size(text) } else { text.parse().ok() };
    match found.filter(|number| *number <= max) {
        Some(number) => Ok(Some(number)),
        None => {
            Err(Error::new(ErrorKind::Invalid, format!("the parameter {name}={text} of {}", uri.shown()))
                .expected(if is_size { SIZE_WANTED.into() } else { format!("a number up to {max}") })
                .found(text))
        }
    }
}

/// What a file is made of; `None` when the URI does not say.
fn shape(uri: &Uri) -> Result<Option<EmulatedHeader>> {
    let size = |name: &str| number(uri, name, 1 << 40, true);
    let count = |name: &str, max: u64| {
        Ok::<_, Error>(number(uri, name, max, false)?.and_then(|n| u32::try_from(n).ok()))
    };
    let (zone_bytes, capacity) = (size("zone")?, size("capacity")?);
    let block = number(uri, "block", 64 << 10, true)?.and_then(|bytes| u32::try_from(bytes).ok());
    let zones = count("zones", u64::from(crate::device::emulated::EMULATED_ZONES_MAX))?;
    let (open_max, active_max) =
        (count("open", 1 << 20)?.unwrap_or(0), count("active", 1 << 20)?.unwrap_or(0));
    let Some(zone_bytes) = zone_bytes else { return Ok(None) };
    let header = EmulatedHeader {
        block_bytes: block.unwrap_or(BLOCK_BYTES_DEFAULT),
        zone_bytes,
        capacity_bytes: capacity.unwrap_or(zone_bytes),
        zones: zones.unwrap_or(ZONES_DEFAULT),
        open_max,
        active_max,
    };
    // Read as it will be read later, which has limits of its own.
    match EmulatedHeader::decode(&header.encode()) {
        Ok(header) if header.block_bytes >= 512 => Ok(Some(header)),
        _ => Err(Error::new(ErrorKind::Invalid, format!("the zones of {}", uri.shown()))
            .expected(
                "blocks of a power of two, 512 bytes at least, and zones and capacities of whole blocks",
            )
            .found(format!("{header:?}"))),
    }
}

/// Registers both schemes, for objects and logs.
///
/// In the real world all registries of a process share its devices. In a simulated world, where
/// many processes share an address space, those of a process do that come of clones of one
/// registry.
pub fn register(registry: &mut Registry) {
    register_with(registry, &Arc::default());
}

/// The same, with the devices that processes of a simulated world share, so that a tool in such a
/// process sees the device of a database there.
pub fn register_with(registry: &mut Registry, own: &Arc<Shared>) {
    for scheme in [BLOCK_SCHEME, FILE_SCHEME] {
        let shared = |env: &Env, own: &Arc<Shared>| {
            if env.is_simulated() { Arc::clone(own) } else { Shared::of_process() }
        };
        let of_objects = Arc::clone(own);
        registry.register_object_store(
            scheme,
            Arc::new(move |env, uri| {
                let Target { place, prefix, make } = target(env, uri)?;
                let device = shared(env, &of_objects).device(env, place, make);
                Ok(Arc::new(ZonedObjectStore::new(env, device, prefix)) as Arc<dyn ObjectStore>)
            }),
        );
        let of_logs = Arc::clone(own);
        registry.register_log_store(
            scheme,
            Arc::new(move |env, uri, objects| {
                let Target { place, make, .. } = target(env, uri)?;
                let own = format!("zoned://{}", place.path().display());
                let described = objects.describe();
                let is_paired =
                    described.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
                let device = shared(env, &of_logs).device(env, place, make);
                Ok(Arc::new(ZonedLogStore::new(env, device, is_paired)) as Arc<dyn LogStore>)
            }),
        );
    }
}

#[cfg(test)]
mod tests;
