//! The engine on a device until it is full of it, and then on.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Batch, Builder, Db, Durability, OpenMode, Options, Registry};
use tombolo_env::simulated::{Action, Fault, Operation, OperationKind, World};
use tombolo_env::{Env, TaskClass, completion};
use tombolo_format::zoned::EmulatedHeader;
use tombolo_storage::{Error, ErrorKind, Result, Uri};
use tombolo_zoned::tools::Tool;
use tombolo_zoned::{Shared, register_with};

use super::{FileSystemOnFlash, Ftl, Timing, Wear, ZonesOnFlash};
use crate::random::Random;

/// What the engine lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Zones.
    Zones,
    /// A file system over a translation layer; told of deleted files or not.
    FileSystem {
        /// Whether it is told.
        discards: bool,
    },
}

impl Setting {
    /// As people name it.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Zones => "zones",
            Setting::FileSystem { discards: true } => "file system, discard",
            Setting::FileSystem { discards: false } => "file system",
        }
    }
}

/// How large a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes that the device shows.
    pub device_bytes: u64,
    /// Bytes of a block that is erased, and of a zone.
    pub block_bytes: u64,
    /// Keys that are put first, in random order.
    pub keys: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Clients, each of which waits until its put is durable.
    pub clients: u64,
    /// Puts over keys that are there, at random.
    pub overwrites: u64,
    /// Gets at random, in the end.
    pub reads: u64,
    /// Bytes of a memtable.
    pub memtable_bytes: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the device did while keys were put first, and while they were put again.
    pub wear: [Wear; 2],
    /// How long that took, each.
    pub took: [Duration; 2],
    /// How long the puts of the second part took: all of them, in ascending order.
    pub latencies: Vec<Duration>,
    /// The most of the device that was used at once, from 0 to 1.
    pub used_most: f64,
    /// Bytes that a store moved by itself, so that zones became free.
    pub relocated_bytes: u64,
}

impl Outcome {
    /// A put of so many in ten thousand took no longer.
    pub fn latency(&self, of_ten_thousand: usize) -> Duration {
        let index = (self.latencies.len() * of_ten_thousand / 10_000).min(self.latencies.len() - 1);
        self.latencies[index]
    }
}

/// A device under the simulated disk.
#[derive(Debug)]
enum Medium {
    Zones(ZonesOnFlash),
    FileSystem(Box<FileSystemOnFlash>),
}

impl Medium {
    fn wear(&self) -> Wear {
        match self {
            Medium::Zones(zones) => zones.wear(),
            Medium::FileSystem(files) => files.wear(),
        }
    }

    /// The most of the device that was used at once.
    fn used_most(&self) -> f64 {
        match self {
            Medium::Zones(zones) => zones.used_most(),
            Medium::FileSystem(files) => files.used_most(),
        }
    }

    /// How long an operation takes.
    fn take(&mut self, operation: &Operation) -> Duration {
        let Operation { kind, path, from, offset, length, .. } = operation;
        match (self, kind) {
            (Medium::Zones(zones), OperationKind::Write) => zones.write(*offset, *length),
            (Medium::Zones(zones), OperationKind::Sync) => zones.sync(),
            (Medium::Zones(_), _) => Duration::ZERO,
            (Medium::FileSystem(files), kind) => {
                match kind {
                    OperationKind::CreateNew => files.create(path),
                    OperationKind::HardLink => files.link(from.as_ref().unwrap_or(path), path),
                    OperationKind::Rename => files.rename(from.as_ref().unwrap_or(path), path),
                    OperationKind::RemoveFile => files.remove(path),
                    OperationKind::SetLength => files.set_length(path, *length),
                    OperationKind::Write => files.write(path, *offset, *length),
                    OperationKind::WriteOut => return files.write_out(path),
                    OperationKind::Sync | OperationKind::SyncDirectory => return files.sync(path),
                    _ => {}
                }
                Duration::ZERO
            }
        }
    }
}

const DIRECTORY: &str = "file:///data/orders";

/// Plays a trial.
///
/// # Errors
/// Those of the engine; `Corrupt` when it answers what was not put.
pub fn run(setting: Setting, sizes: Sizes, seed: u64) -> Result<Outcome> {
    let world = World::new(seed);
    world.set_preemption_probability(0.0);
    world.set_write_back_probability(0.0);
    let process = world.add_host("host").process("trial");
    let zones = u32::try_from(sizes.device_bytes / sizes.block_bytes)
        .map_err(|_| Error::new(ErrorKind::Invalid, "a trial has less than 2^32 zones"))?;
    let uri = match setting {
        Setting::Zones => {
            format!("zoned+file:///zones?zone={}&zones={zones}&open=14&active=14", sizes.block_bytes)
        }
        Setting::FileSystem { .. } => DIRECTORY.to_owned(),
    };
    let medium = match setting {
        Setting::Zones => {
            let header = EmulatedHeader {
                block_bytes: 4096,
                zone_bytes: sizes.block_bytes,
                capacity_bytes: sizes.block_bytes,
                zones,
                open_max: 14,
                active_max: 14,
            };
            let first = header.zone_offset(0);
            Medium::Zones(ZonesOnFlash::new(Timing::default(), first, sizes.block_bytes, zones))
        }
        Setting::FileSystem { discards } => {
            let ftl = Ftl::new(Timing::default(), sizes.device_bytes, sizes.block_bytes);
            Medium::FileSystem(Box::new(FileSystemOnFlash::new(ftl, discards)))
        }
    };
    let medium = Arc::new(Mutex::new(medium));
    let of_operations = Arc::clone(&medium);
    let id = process.id();
    let take = Action::Take(Box::new(move |operation| of_operations.lock().take(operation)));
    world.inject(Fault::new(take, move |operation| operation.process == id).always());
    let (mut registry, devices) = (Registry::with_defaults(), Arc::new(Shared::default()));
    register_with(&mut registry, &devices);
    let options =
        Options { memory_bytes: 16 << 20, memtable_bytes: Some(sizes.memtable_bytes), ..Options::default() };
    let log = if setting == Setting::Zones { uri.clone() } else { format!("{uri}?form=written") };
    let env = process.env();
    let builder = Db::builder(uri.clone())
        .registry(registry)
        .log(log)
        .env(env.clone())
        .options(options)
        .mode(OpenMode::CreateOrOpen);
    let player = Player { env: env.clone(), medium: Arc::clone(&medium), sizes, seed };
    let ended = process.run(async move {
        let mut outcome = player.play(builder).await?;
        if setting == Setting::Zones {
            let device = Tool::with(&devices, &env, &Uri::parse(&uri)?)?.look()?;
            outcome.relocated_bytes = device.activity().0.relocated_bytes;
        }
        Ok(outcome)
    });
    ended.unwrap_or_else(|| Err(Error::new(ErrorKind::Bug, "the process of the trial ended")))
}

/// Who puts and gets.
#[derive(Clone)]
struct Player {
    env: Env,
    medium: Arc<Mutex<Medium>>,
    sizes: Sizes,
    seed: u64,
}

/// The bytes of a key: as random as those of the order in which they are put.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

/// A value that no compression makes smaller, of which the first 8 bytes say which.
fn value(number: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::fixed(number, version);
    let mut value = version.to_le_bytes().to_vec();
    while value.len() < bytes {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value.truncate(bytes.max(8));
    value
}

impl Player {
    /// # Errors
    /// Those of the engine; `Corrupt` when it answers what was not put.
    async fn play(self, builder: Builder) -> Result<Outcome> {
        let db = builder.open().await?;
        let versions =
            Arc::new(Mutex::new(vec![0_u64; usize::try_from(self.sizes.keys).unwrap_or(usize::MAX)]));
        let mut outcome = Outcome {
            wear: [Wear::default(); 2],
            took: [Duration::ZERO; 2],
            latencies: Vec::new(),
            used_most: 0.0,
            relocated_bytes: 0,
        };
        for part in 0..2 {
            let (before, begun) = (self.medium.lock().wear(), self.env.now());
            outcome.latencies = self.puts(&db, part == 1, &versions).await?;
            outcome.wear[part] = self.medium.lock().wear().since(&before);
            outcome.took[part] = self.env.now().since(begun);
        }
        outcome.latencies.sort_unstable();
        outcome.used_most = self.medium.lock().used_most();
        let (keyspace, mut random) = (db.default_keyspace(), Random::fixed(self.seed, 3));
        for _ in 0..self.sizes.reads {
            let number = random.below(self.sizes.keys);
            let version = versions.lock()[usize::try_from(number).unwrap_or(usize::MAX)];
            let found = keyspace.get(key(number)).await?;
            if found.as_deref() != Some(&value(number, version, self.sizes.value_bytes)[..]) {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("key {number} is not of version {version}"),
                ));
            }
        }
        Ok(outcome)
    }

    /// All keys once, or some of them again; how long each put took.
    async fn puts(&self, db: &Db, again: bool, versions: &Arc<Mutex<Vec<u64>>>) -> Result<Vec<Duration>> {
        let mut ends = Vec::new();
        for client in 0..self.sizes.clients {
            let (completer, end) = completion();
            let (player, db, versions) = (self.clone(), db.clone(), Arc::clone(versions));
            let work = async move { completer.complete(player.client(&db, client, again, &versions).await) };
            self.env.spawn(TaskClass::Foreground, "client", work).detach();
            ends.push(end);
        }
        let mut latencies = Vec::new();
        for end in ends {
            let ended = end.await.ok_or_else(|| Error::new(ErrorKind::Bug, "a client of the trial ended"))?;
            latencies.extend(ended?);
        }
        Ok(latencies)
    }

    /// A client's share: each key is one client's alone.
    async fn client(
        &self,
        db: &Db,
        client: u64,
        again: bool,
        versions: &Mutex<Vec<u64>>,
    ) -> Result<Vec<Duration>> {
        let Sizes { keys, clients, overwrites, value_bytes, .. } = self.sizes;
        let own = keys / clients;
        let mut random = Random::fixed(self.seed, 100 + client);
        let mut latencies = Vec::new();
        for nth in 0..if again { overwrites / clients } else { own } {
            let number = client * own + if again { random.below(own) } else { nth };
            let version = {
                let mut versions = versions.lock();
                let version = &mut versions[usize::try_from(number).unwrap_or(usize::MAX)];
                *version += 1;
                *version
            };
            let mut batch = Batch::new();
            batch.put(&db.default_keyspace(), key(number), value(number, version, value_bytes));
            let begun = self.env.now();
            db.write_with(batch, Durability::Durable).await?;
            latencies.push(self.env.now().since(begun));
        }
        Ok(latencies)
    }
}
