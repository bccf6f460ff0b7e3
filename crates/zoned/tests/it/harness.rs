//! A history on a small zoned device in a simulated world, what it was told, and a successor that
//! checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_env::simulated::{Process, World};
use tombolo_storage::conformance::log::{MemoryChain, entry};
use tombolo_storage::log_memory::Uncounted;
use tombolo_storage::{
    ConfigurationChain, Epoch, Error, ErrorKind, Incarnation, Life, Log, LogContext, LogOffset, LogStore,
    ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome, Registry, Request, Result, Uri,
};
use tombolo_zoned::tools::{self, Tool};

/// The smallest device that there may be: zones change often, and metadata rolls often.
pub const SMALL: &str = "zoned+file:///zones?zone=256KiB&zones=24&open=8&active=8";

pub fn registry() -> Registry {
    let mut registry = Registry::with_defaults();
    tombolo_zoned::register(&mut registry);
    registry
}

pub fn request(purpose: Purpose) -> Request {
    Request::new(purpose, Epoch::NONE)
}

pub fn name(text: impl AsRef<str>) -> ObjectName {
    ObjectName::new(text).expect("a name")
}

/// Bytes that are told by an object's number.
pub fn bytes_of(number: u64, length: usize) -> Bytes {
    entry(number, length).payload
}

/// The length of an object by its number.
fn length_of(number: u64) -> usize {
    match number % 5 {
        0 => 100_000,
        1 => 100,
        2 => 4096,
        3 => 9_000,
        _ => 0,
    }
}

fn placement_of(number: u64) -> Placement {
    match number % 3 {
        0 => Placement::new(ObjectKind::Table, Life::Medium),
        1 => Placement::new(ObjectKind::Manifest, Life::Long),
        _ => Placement { level: 2, ..Placement::new(ObjectKind::Table, Life::Long) },
    }
}

/// What a history was told, noted only while its process lives.
#[derive(Debug, Default)]
pub struct Told {
    /// Objects that must be there, by number.
    pub there: BTreeSet<u64>,
    /// Objects that must be gone.
    pub gone: BTreeSet<u64>,
    /// Entries of the log before this one are durable.
    pub durable: u64,
    /// Entries of the log before this one were trimmed, and where that is.
    pub trimmed: (u64, LogOffset),
    /// Errors that were met.
    pub errors: Vec<Error>,
}

/// One device in one world.
#[derive(Clone)]
pub struct Case {
    pub world: World,
    pub chain: Arc<MemoryChain>,
    pub told: Arc<Mutex<Told>>,
    pub uri: &'static str,
    /// Entries of the log in each step.
    pub entries: u64,
}

/// The two stores of a device, opened by one process.
pub fn open(env: &Env, uri: &str) -> (Arc<dyn ObjectStore>, Arc<dyn LogStore>) {
    let registry = registry();
    let uri = Uri::parse(uri).expect("a URI");
    let objects = registry.open_object_store(env, &uri).expect("a store");
    let log = registry.open_log_store(env, &uri, None, &objects).expect("its log");
    (objects, log)
}

pub async fn put(store: &dyn ObjectStore, number: u64) -> Result<PutOutcome> {
    let (bytes, placement) = (bytes_of(number, length_of(number)), placement_of(number));
    let name = name(format!("db/{number:04}"));
    let request = request(Purpose::Manifest);
    if bytes.len() < 50_000 {
        return store.put_if_absent(request, &name, placement, bytes).await;
    }
    let mut writer = store.create(request, &name, placement).await?;
    for piece in bytes.chunks(30_000) {
        writer.append(Bytes::copy_from_slice(piece)).await?;
    }
    writer.finish().await.map(|_| PutOutcome::Created)
}

impl Case {
    pub fn new(seed: u64) -> Case {
        Case::at(seed, SMALL)
    }

    pub fn at(seed: u64, uri: &'static str) -> Case {
        Case { world: World::new(seed), chain: Arc::default(), told: Arc::default(), uri, entries: 3 }
    }

    pub fn context(&self, env: &Env, objects: &Arc<dyn ObjectStore>, epoch: u64) -> LogContext {
        LogContext {
            env: env.clone(),
            incarnation: Incarnation(7),
            database: 7,
            epoch: Epoch(epoch),
            chain: Arc::<MemoryChain>::clone(&self.chain),
            objects: Arc::clone(objects),
            memory: Arc::new(Uncounted),
        }
    }

    fn note(&self, process: &Process, what: impl FnOnce(&mut Told)) {
        if process.is_alive() {
            what(&mut self.told.lock());
        }
    }

    /// Appends entries, and waits until they are durable.
    fn append(&self, process: &Process, log: &dyn Log, numbers: std::ops::Range<u64>) -> Result<LogOffset> {
        let mut end = LogOffset::ZERO;
        for number in numbers.clone() {
            end = log.append(0, &entry(number, 900))?.end;
        }
        log.sync(0, end)?;
        self.note(process, |told| told.durable = numbers.end);
        Ok(end)
    }

    /// Puts, logs, deletes and trims for so many steps. Its errors are noted.
    pub fn run(&self, process: &Process, steps: u64) {
        let (case, process_env) = (self.clone(), process.env());
        let inner = process.clone();
        let history = async move {
            let ended = case.history(&inner, &process_env, steps).await;
            if let Err(error) = ended {
                case.note(&inner, |told| told.errors.push(error));
            }
        };
        // Of a process that ends there is no result.
        let _ = process.run(history);
    }

    async fn history(&self, process: &Process, env: &Env, steps: u64) -> Result<()> {
        let (objects, logs) = open(env, self.uri);
        let log = logs.open(&self.context(env, &objects, 1), 1).await?;
        for step in 0..steps {
            // Neither there nor not, from the moment at which it begins.
            put(&*objects, step).await?;
            self.note(process, |told| {
                told.there.insert(step);
            });
            let end = self.append(process, &*log, self.entries * step..self.entries * (step + 1))?;
            if step % 6 == 5 {
                log.trim(0, end)?;
                self.note(process, |told| told.trimmed = (self.entries * (step + 1), end));
            }
            if let Some(old) = step.checked_sub(4) {
                self.note(process, |told| {
                    told.there.remove(&old);
                });
                objects.delete(request(Purpose::Collection), &name(format!("db/{old:04}"))).await?;
                self.note(process, |told| {
                    told.gone.insert(old);
                });
            }
            if step % 4 == 0 {
                // Work in the background has its turn.
                env.sleep(Duration::from_micros(50)).await;
            }
        }
        Ok(())
    }

    /// What a process finds after the history ended, however it did: all that was told, and a
    /// device that works. Twice, so that what the first leaves is sound too.
    ///
    /// # Panics
    /// When a promise was broken.
    pub fn check(&self) {
        for round in 0..2 {
            let process = self.world.process("successor");
            let (case, env) = (self.clone(), process.env());
            let checked = process.run(async move { case.inspect(&env, 2 + round).await });
            let seed = self.world.seed();
            checked.expect("the successor lives").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            self.scrub(&process.env());
        }
    }

    fn scrub(&self, env: &Env) {
        let tool = Tool::open(env, &Uri::parse(self.uri).expect("a URI")).expect("a tool");
        let core = tool.look().expect("a device");
        let damaged: Vec<_> =
            tools::check(&core, true).expect("a check").into_iter().filter(|found| found.is_damage).collect();
        assert!(damaged.is_empty(), "seed {}: {damaged:?}", self.world.seed());
    }

    async fn inspect(&self, env: &Env, epoch: u64) -> std::result::Result<(), String> {
        let fail = |error: Error| format!("an error after the crash: {error}");
        let (objects, logs) = open(env, self.uri);
        let context = self.context(env, &objects, epoch);
        let told = std::mem::take(&mut *self.told.lock());
        let mut found = BTreeMap::new();
        let page = objects.list(request(Purpose::Open), "db/", None, 1000).await.map_err(fail)?;
        for object in page.objects {
            let number = object.name.as_str()[3..].parse::<u64>().map_err(|error| error.to_string())?;
            let read = objects.read(request(Purpose::Get), &object.name, 0..u64::MAX).await.map_err(fail)?;
            if read != bytes_of(number, length_of(number)) {
                return Err(format!("object {number} reads wrong"));
            }
            found.insert(number, object.length);
        }
        if let Some(lost) = told.there.iter().find(|number| !found.contains_key(number)) {
            return Err(format!("object {lost} was created and is gone"));
        }
        if let Some(back) = told.gone.iter().find(|number| found.contains_key(number)) {
            return Err(format!("object {back} was deleted and is back"));
        }
        let named = self.chain.named();
        for record in &named {
            let (trimmed, from) = told.trimmed;
            let sealed = logs.fence(&context, record, from).await.map_err(fail)?;
            let mut reader = logs.read(&context, record, from, sealed).await.map_err(fail)?;
            let mut next = trimmed;
            while let Some((read, _)) = reader.next().await.map_err(fail)? {
                if read != entry(next, 900) {
                    return Err(format!("entry {next} reads wrong: {read:?}"));
                }
                next += 1;
            }
            if next < told.durable {
                return Err(format!("{} entries were durable, and {next} are there", told.durable));
            }
        }
        // And it works: a log of its own, new objects, the old ones gone.
        let log = logs.open(&context, 1).await.map_err(fail)?;
        for record in named {
            self.chain.unname(&record);
            logs.free(&context, &record).await.map_err(fail)?;
        }
        for number in found.keys() {
            objects
                .delete(request(Purpose::Collection), &name(format!("db/{number:04}")))
                .await
                .map_err(fail)?;
        }
        for number in 100 * epoch..100 * epoch + 6 {
            put(&*objects, number).await.map_err(fail)?;
            let end = log.append(0, &entry(number - 100 * epoch, 900)).map_err(fail)?.end;
            log.sync(0, end).map_err(fail)?;
            let mut told = self.told.lock();
            told.there.insert(number);
            told.durable = number + 1 - 100 * epoch;
        }
        Ok(())
    }
}

/// Whether an error says that a process or its power is gone, or what follows from that.
pub fn is_expected(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Closed | ErrorKind::OutcomeUnknown | ErrorKind::Retry | ErrorKind::OutOfSpace
    )
}

/// The file of zones, in the simulated world.
pub fn file() -> &'static Path {
    Path::new("/zones")
}
