//! Databases that share tables: cloned, cloned from clones, compacted away from each other,
//! destroyed, deleted without being destroyed, swept; by processes that are paused, resumed and
//! killed anywhere, and take databases from each other.
//!
//! Checked:
//!
//! 1. Every opener of a database finds all that was acknowledged as durable before, or was when it
//!    was cloned, and nothing that nobody wrote.
//! 2. Nothing that a database, a checkpoint or a reader names is ever missing or damaged, but where
//!    somebody deleted a database's objects by hand.
//! 3. What a reader's snapshot shows stays as it is, also after its database was destroyed.
//!
//! A sweep does not reach all places: a database that it does not find may be there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Builder, CloneState, Db, Durability, Env, Error, ErrorKind, OpenMode, Options, ReaderOptions, Registry,
    Snapshot, TakeOver,
};
use tombolo_env::simulated::{Process, World};
use tombolo_storage::{Epoch, Purpose, Request, Uri};

use super::cast::Cast;
use super::contest::{Stop, TROUBLES};
use super::{Run, guarded, mix};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "clones";
/// The first database.
const FIRST: &str = "first";
/// Databases of a world.
const DATABASES_MAX: usize = 8;
const KEYS: u64 = 24;
const PROCESSES: usize = 4;

/// Version by key.
type Contents = BTreeMap<u64, u64>;

/// The knowledge of one database.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Acknowledged as durable: at least this version of each key is there.
    durable: Contents,
    /// Its making was acknowledged, or it was found whole.
    is_sure: bool,
    /// Processes that are about to destroy it, or ended over it.
    destroyers: u32,
    /// Its objects were deleted by hand: nothing of it counts.
    is_wiped: bool,
    /// Others were cloned from it.
    has_clones: bool,
}

impl Known {
    /// Whether it has to be there.
    fn is_there(&self) -> bool {
        self.is_sure && self.destroyers == 0 && !self.is_wiped
    }
}

#[derive(Debug, Default)]
struct Ledger {
    databases: BTreeMap<String, Known>,
    /// The newest version that anybody wrote of any key.
    newest: u64,
    report: Report,
}

impl Ledger {
    fn of(&self, name: &str) -> Known {
        self.databases.get(name).cloned().unwrap_or_default()
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Known)) {
        change(self.databases.entry(name.to_owned()).or_default());
    }

    /// Takes in what an opening has found, of which `before` was known before it began.
    fn found(&mut self, name: &str, before: &Known, found: &Contents) -> Result<bool, Stop> {
        let now = self.of(name);
        if now.is_wiped {
            return Ok(false);
        }
        // The making of a clone ended before its commit: an empty database, of which nothing is
        // known.
        if found.is_empty() && !before.is_sure && !before.durable.is_empty() {
            self.change(name, |known| known.destroyers += 1);
            return Ok(false);
        }
        for (key, version) in &before.durable {
            if found.get(key).is_none_or(|found| found < version) {
                return Err(Stop::Violation(format!(
                    "{name} lost version {version} of key {key}: it holds {found:?}"
                )));
            }
        }
        if let Some((key, version)) = found.iter().find(|(_, version)| **version > self.newest) {
            return Err(Stop::Violation(format!(
                "{name} holds version {version} of key {key}, which nobody wrote"
            )));
        }
        self.change(name, |known| known.is_sure = true);
        self.report.opened += 1;
        Ok(true)
    }
}

/// What all processes of a world share.
#[derive(Clone)]
struct Bucket {
    ledger: Arc<Mutex<Ledger>>,
    violation: Arc<Mutex<Option<Violation>>>,
    over: Arc<Mutex<bool>>,
}

fn uri(name: &str) -> String {
    format!("file:///data/{name}")
}

/// Stores, of which some do not reach what they should.
fn registry(unreached: BTreeSet<String>) -> Registry {
    let mut registry = Registry::with_defaults();
    if unreached.is_empty() {
        return registry;
    }
    let whole = registry.clone();
    let factory = move |env: &Env, uri: &Uri| {
        let is_unreached = unreached.iter().any(|name| uri.rest == format!("/data/{name}"));
        let elsewhere = Uri { rest: "/unreached".into(), ..uri.clone() };
        whole.open_object_store(env, if is_unreached { &elsewhere } else { uri })
    };
    registry.register_object_store("file", Arc::new(factory));
    registry
}

fn builder(process: &Process, registry: &Registry, name: &str) -> Builder {
    let options = Options { memory_bytes: 1 << 20, memtable_bytes: Some(4 << 10), ..Options::default() };
    Db::builder(uri(name))
        .registry(registry.clone())
        .log("objects://")
        .env(process.env())
        .options(options)
        .mode(OpenMode::CreateOrOpen)
        .take_over(TakeOver::Always)
}

/// A version, in a value of some size.
fn value(version: u64) -> Vec<u8> {
    let mut value = version.to_be_bytes().to_vec();
    value.resize(200, 7);
    value
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

async fn contents(db: &Db, snapshot: &Snapshot) -> Result<Contents, Error> {
    let mut found = Contents::new();
    let mut scan = snapshot.scan::<&[u8]>(&db.default_keyspace(), ..);
    while let Some((key, value)) = scan.next_async().await? {
        found.extend(number(&key).zip(number(&value)));
    }
    Ok(found)
}

impl Bucket {
    fn is_over(&self) -> bool {
        *self.over.lock() || self.violation.lock().is_some()
    }

    /// A database, the first or a clone.
    fn any(&self, random: &mut Random) -> String {
        let ledger = self.ledger.lock();
        let names: Vec<_> = ledger
            .databases
            .iter()
            .filter(|(_, known)| !known.is_wiped)
            .map(|(name, _)| name.clone())
            .collect();
        names.get(random.index(names.len())).cloned().unwrap_or_else(|| FIRST.into())
    }

    /// Whether a process goes on after what it did to a database.
    fn goes_on(&self, process: &Process, name: &str, outcome: Result<(), Stop>) -> bool {
        let known = self.ledger.lock().of(name);
        let violation = match outcome {
            _ if !process.is_alive() => return false,
            Ok(()) => return true,
            Err(Stop::Ended) => return false,
            Err(Stop::Violation(what)) => what,
            Err(Stop::Error(_)) if known.is_wiped => return true,
            Err(Stop::Error(error)) => {
                let is_passing = TROUBLES.contains(&error.kind()) || error.kind() == ErrorKind::PinLost;
                if is_passing || (error.kind() == ErrorKind::NotFound && !known.is_there()) {
                    return true;
                }
                format!("{name}: {error}")
            }
        };
        self.violation.lock().get_or_insert(Violation::new(violation).at(process.name()));
        false
    }
}

/// One process, and its chance.
struct Actor {
    world: World,
    process: Process,
    bucket: Bucket,
    random: Random,
    registry: Registry,
}

impl Actor {
    fn new(run: &Run, process: &Process, bucket: &Bucket, random: Random) -> Actor {
        let (world, process, bucket) = (run.world.clone(), process.clone(), bucket.clone());
        Actor { world, process, bucket, random, registry: Registry::with_defaults() }
    }

    fn alive(&self) -> Result<(), Stop> {
        if self.process.is_alive() { Ok(()) } else { Err(Stop::Ended) }
    }

    /// For readers of the history.
    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.world.note(&format!("{}: {what}", self.process.name()));
    }

    fn builder(&self, name: &str) -> Builder {
        builder(&self.process, &self.registry, name)
    }

    async fn pause(&mut self, ms_max: u64) {
        self.process.sleep(Duration::from_millis(self.random.below(ms_max))).await;
    }

    /// A life: one thing after the other.
    async fn live(mut self) {
        while !self.bucket.is_over() {
            let name = self.bucket.any(&mut self.random);
            let outcome = match self.random.below(20) {
                0..=8 => self.write(&name).await,
                9..=13 => self.read(&name).await,
                14..=17 => self.sweep(&name).await,
                18 => self.destroy(&name).await,
                _ => self.wipe(&name).await,
            };
            if !self.bucket.goes_on(&self.process, &name, outcome) {
                return;
            }
            self.pause(500).await;
        }
    }

    /// Opens, looks, writes, clones.
    async fn write(&mut self, name: &str) -> Result<(), Stop> {
        let before = self.bucket.ledger.lock().of(name);
        let mode = if name == FIRST { OpenMode::CreateOrOpen } else { OpenMode::Open };
        let db = self.builder(name).mode(mode).open().await?;
        self.note(format_args!("opened {name} with epoch {}", db.epoch().0));
        let found = contents(&db, &db.snapshot()).await?;
        self.alive()?;
        if !self.bucket.ledger.lock().found(name, &before, &found)? {
            return Ok(());
        }
        for _ in 0..1 + self.random.below(30) {
            if self.bucket.is_over() {
                break;
            }
            self.put(name, &db).await?;
            match self.random.below(40) {
                0 => db.flush().await?,
                1..=2 => db.compact().await?,
                3 => drop(db.checkpoint(&format!("c{:016x}", self.random.next())).await?),
                4 => {
                    for checkpoint in db.checkpoints().await? {
                        match db.delete_checkpoint(&checkpoint.name).await {
                            // Deleted by another already.
                            Err(error) if error.kind() == ErrorKind::NotFound => {}
                            deleted => deleted?,
                        }
                    }
                }
                5..=6 => self.share(name, &db).await?,
                7..=8 => self.pause(1500).await,
                _ => {}
            }
        }
        if self.random.percent(30) {
            db.close().await?;
        }
        Ok(())
    }

    async fn put(&mut self, name: &str, db: &Db) -> Result<(), Stop> {
        let key = self.random.below(KEYS);
        let version = {
            let mut ledger = self.bucket.ledger.lock();
            ledger.newest += 1;
            ledger.newest
        };
        let durable = self.random.percent(50);
        let durability = if durable { Durability::Durable } else { Durability::Accepted };
        db.default_keyspace().put_with(key.to_be_bytes(), value(version), durability).await?;
        self.alive()?;
        let mut ledger = self.bucket.ledger.lock();
        ledger.report.writes += 1;
        if durable {
            ledger.report.durable += 1;
            // A fenced writer may be told late.
            ledger.change(name, |known| {
                let newest = known.durable.entry(key).or_default();
                *newest = version.max(*newest);
            });
        }
        Ok(())
    }

    async fn share(&mut self, name: &str, db: &Db) -> Result<(), Stop> {
        let target = {
            let mut ledger = self.bucket.ledger.lock();
            if ledger.databases.len() >= DATABASES_MAX {
                return Ok(());
            }
            let target = format!("clone-{}", ledger.databases.len());
            let durable = ledger.of(name).durable;
            ledger.change(name, |known| known.has_clones = true);
            ledger.change(&target, |known| known.durable = durable);
            target
        };
        self.note(format_args!("clones {name} to {target}"));
        let shared = db.share_to(self.builder(&target)).await;
        self.alive()?;
        self.note(format_args!(
            "cloned {name} to {target}: {:?}",
            shared.as_ref().map_err(ToString::to_string)
        ));
        match shared {
            Ok(()) => self.bucket.ledger.lock().change(&target, |known| known.is_sure = true),
            // Somebody opened the target meanwhile, and made it a database of its own; or deleted
            // the checkpoint, or the target.
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
            Err(_) if self.bucket.ledger.lock().of(&target).is_wiped => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Looks twice at one moment of a database, or of one of its checkpoints.
    async fn read(&mut self, name: &str) -> Result<(), Stop> {
        let checkpoints = self.builder(name).checkpoints().await?;
        let chosen = checkpoints
            .get(self.random.index(checkpoints.len() + 1))
            .map(|checkpoint| checkpoint.name.clone());
        if let Some(checkpoint) = chosen {
            let opened = self.builder(name).at_checkpoint(&checkpoint).open_read_only().await;
            let db = match opened {
                // Deleted meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                opened => opened?,
            };
            return self.look_twice(name, &db).await;
        }
        let options = ReaderOptions {
            lag: Duration::from_secs(1),
            lag_max: Duration::from_secs(10),
            lease: Duration::from_secs(3),
        };
        let reader = self.builder(name).open_reader(options).await?;
        self.look_twice(name, reader.db()).await?;
        if self.random.percent(50) {
            reader.close().await?;
        }
        Ok(())
    }

    async fn look_twice(&mut self, name: &str, db: &Db) -> Result<(), Stop> {
        let snapshot = db.snapshot();
        // Data read once is in memory: later it is asked of the store only if nothing was read
        // before.
        if self.random.percent(50) {
            self.pause(8000).await;
        }
        let first = contents(db, &snapshot).await?;
        for _ in 0..1 + self.random.below(3) {
            self.pause(4000).await;
            let again = contents(db, &snapshot).await?;
            self.alive()?;
            if again != first {
                return Err(Stop::Violation(format!(
                    "a snapshot of {name} showed {first:?}, and now {again:?}"
                )));
            }
        }
        self.bucket.ledger.lock().report.verified += 1;
        Ok(())
    }

    /// Sweeps, and gives back what clones kept that are no more; without reaching some of the
    /// places.
    async fn sweep(&mut self, name: &str) -> Result<(), Stop> {
        let names: Vec<_> = self.bucket.ledger.lock().databases.keys().cloned().collect();
        let unreached = names.into_iter().filter(|other| other != name && self.random.percent(20)).collect();
        let registry = registry(unreached);
        let swept = builder(&self.process, &registry, name);
        for clone in swept.clone().clones().await? {
            self.note(format_args!("{name} has the clone {clone:?}"));
            if clone.state == CloneState::Unneeded {
                self.pause(200).await;
                let released = swept.clone().release_clone(clone.id, false).await;
                self.note(format_args!(
                    "gives {} back: {:?}",
                    clone.id,
                    released.as_ref().map_err(ToString::to_string)
                ));
                // Somebody else has given it back.
                if let Err(error) = released
                    && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid)
                {
                    return Err(error.into());
                }
            }
        }
        let env = self.process.env();
        let store = registry.open_object_store(&env, &Uri::parse(&uri(name))?)?;
        let garbage = tombolo::internals::sweep::survey(&env, &store).await?;
        tombolo::internals::sweep::delete(&env, &store, &garbage).await?;
        self.note(format_args!("swept {name}"));
        Ok(())
    }

    async fn destroy(&mut self, name: &str) -> Result<(), Stop> {
        if name == FIRST {
            return Ok(());
        }
        self.bucket.ledger.lock().change(name, |known| known.destroyers += 1);
        match self.builder(name).destroy().await {
            // It has checkpoints, or clones that share its tables.
            Err(error) if error.kind() == ErrorKind::Invalid => {
                self.alive()?;
                self.bucket.ledger.lock().change(name, |known| known.destroyers -= 1);
                Ok(())
            }
            destroyed => {
                self.note(format_args!(
                    "destroyed {name}: {:?}",
                    destroyed.as_ref().map(drop).map_err(ToString::to_string)
                ));
                Ok(destroyed.map(drop)?)
            }
        }
    }

    /// Deletes a database's objects, as nobody should; perhaps another database comes to lie there.
    async fn wipe(&mut self, name: &str) -> Result<(), Stop> {
        let known = self.bucket.ledger.lock().of(name);
        if name == FIRST || known.has_clones || self.random.percent(50) {
            return Ok(());
        }
        self.note(format_args!("wipes {name}"));
        self.bucket.ledger.lock().change(name, |known| known.is_wiped = true);
        let store = self.registry.open_object_store(&self.process.env(), &Uri::parse(&uri(name))?)?;
        let request = Request::new(Purpose::Collection, Epoch::NONE);
        loop {
            let page = store.list(request, "", None, 100).await?;
            if page.objects.is_empty() {
                break;
            }
            for object in page.objects {
                store.delete(request, &object.name).await?;
            }
        }
        if self.random.percent(50) {
            let db = self.builder(name).open().await?;
            db.default_keyspace().put(0u64.to_be_bytes(), value(0)).await?;
        }
        Ok(())
    }
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let mut ledger = Ledger::default();
    ledger.change(FIRST, |known| known.is_sure = true);
    let bucket =
        Bucket { ledger: Arc::new(Mutex::new(ledger)), violation: Arc::default(), over: Arc::default() };
    let ledger = Arc::clone(&bucket.ledger);
    let mut report = guarded(NAME, seed, String::new, mix(seed, 11), |run| act(run, seed, &bucket))?;
    let seen = ledger.lock().report.clone();
    (report.writes, report.durable, report.opened, report.verified) =
        (seen.writes, seen.durable, seen.opened, seen.verified);
    Ok(report)
}

fn act(run: &Run, seed: u64, bucket: &Bucket) -> Result<(), Violation> {
    let mut random = Random::new(seed, 6);
    run.world.set_preemption_probability([0.0, 0.01, 0.05][random.index(3)]);
    begin(run, bucket)?;
    let live = |process: Process, random: Random| Actor::new(run, &process, bucket, random).live();
    let mut cast = Cast::new(run, &mut random, PROCESSES, live);
    // Longer than a lease and its margin.
    let lease = Duration::from_secs(16);
    for _ in 0..20 {
        run.world.run_for(Duration::from_millis(random.below(4_000)));
        if bucket.violation.lock().is_some() {
            break;
        }
        cast.befall(&mut random, lease, None);
    }
    cast.end(&bucket.over, &bucket.violation)?;
    finish(run, bucket)
}

/// The first database has something to clone.
fn begin(run: &Run, bucket: &Bucket) -> Result<(), Violation> {
    let process = run.world.process("first");
    let mut actor = Actor::new(run, &process, bucket, Random::new(1, 1));
    let outcome = process.run(async move {
        let db = actor.builder(FIRST).open().await?;
        for _ in 0..40 {
            actor.put(FIRST, &db).await?;
        }
        db.share_to(actor.builder("clone-1")).await?;
        let mut ledger = actor.bucket.ledger.lock();
        let durable = ledger.of(FIRST).durable;
        ledger.change(FIRST, |known| known.has_clones = true);
        ledger.change("clone-1", |known| (known.durable, known.is_sure) = (durable, true));
        Ok::<_, Stop>(())
    });
    told(outcome, "beginning")
}

fn told(outcome: Option<Result<(), Stop>>, place: &str) -> Result<(), Violation> {
    match outcome {
        Some(Err(Stop::Violation(what))) => Err(Violation::new(what).at(place)),
        Some(Err(Stop::Error(error))) => Err(Violation::new(format!("{place}: {error}"))),
        _ => Ok(()),
    }
}

/// The last opener finds everything: after the first database, of which all come, has replaced
/// its tables and collected what nothing keeps, and then after each of the others has.
fn finish(run: &Run, bucket: &Bucket) -> Result<(), Violation> {
    let names: Vec<_> = {
        let ledger = bucket.ledger.lock();
        ledger.databases.iter().filter(|(_, known)| known.is_there()).map(|(name, _)| name.clone()).collect()
    };
    for replaced in
        std::iter::once(FIRST.to_owned()).chain(names.iter().filter(|name| *name != FIRST).cloned())
    {
        let process = run.world.process("last");
        let mut actor = Actor::new(run, &process, bucket, Random::new(1, 1));
        // By then nothing of the others has changed but what this one kept for them.
        let looked_at = if replaced == FIRST { names.clone() } else { vec![replaced.clone()] };
        let outcome = process.run(async move {
            let before = actor.bucket.ledger.lock().of(&replaced);
            let db = actor.builder(&replaced).mode(OpenMode::Open).open().await?;
            let found = contents(&db, &db.snapshot()).await?;
            actor.bucket.ledger.lock().found(&replaced, &before, &found)?;
            for _ in 0..40 {
                actor.put(&replaced, &db).await?;
            }
            db.compact().await?;
            actor.process.sleep(Duration::from_secs(30)).await;
            db.close().await?;
            for name in looked_at {
                let before = actor.bucket.ledger.lock().of(&name);
                let db = actor.builder(&name).mode(OpenMode::Open).open().await?;
                let found = contents(&db, &db.snapshot()).await?;
                actor.bucket.ledger.lock().found(&name, &before, &found)?;
                let report = db.verify().await?;
                if !report.damage.is_empty() {
                    return Err(Stop::Violation(format!("{name} is damaged: {}", report.damage.join("; "))));
                }
                db.close().await?;
            }
            Ok(())
        });
        process.kill();
        told(outcome, "opening after the contest")?;
    }
    Ok(())
}
