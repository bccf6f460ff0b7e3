//! Writes that know the write before them, over two keyspaces, and what all know of them: for
//! scenarios in which one database is written from several places.
//!
//! Every write is a batch of its own number and of one key, which it puts or deletes. So a state
//! says which write it ends with, and the chain of writes before that one says all that the state
//! must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Batch, Builder, Db, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, OpenMode, Snapshot,
};
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Process, World};

use super::Run;
use super::contest::{Stop, TROUBLES};
use crate::failure::{Report, Violation};
use crate::random::Random;

const LAST: &[u8] = b"last";
const KEYS: u64 = 24;
/// The keyspace beside `default`.
pub(super) const OTHER: &str = "other";

/// A write.
#[derive(Clone, Copy, Debug)]
struct Write {
    before: Option<u64>,
    key: u64,
    deletes: bool,
}

/// What all know.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    writes: BTreeMap<u64, Write>,
    newest: u64,
    /// Acknowledged as durable.
    pub(super) durable: BTreeSet<u64>,
    pub(super) report: Report,
}

/// What a database shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) last: Option<u64>,
    pub(super) keys: BTreeMap<u64, u64>,
}

impl Ledger {
    /// The writes up to one.
    pub(super) fn chain(&self, last: Option<u64>) -> BTreeSet<u64> {
        let mut chain = BTreeSet::new();
        let mut at = last;
        while let Some(id) = at {
            chain.insert(id);
            at = self.writes.get(&id).and_then(|write| write.before);
        }
        chain
    }

    pub(super) fn state(&self, last: Option<u64>) -> BTreeMap<u64, u64> {
        let (mut state, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let mut at = last;
        while let Some(id) = at {
            let Some(write) = self.writes.get(&id) else { break };
            if seen.insert(write.key) && !write.deletes {
                state.insert(write.key, id);
            }
            at = write.before;
        }
        state
    }

    /// What was found must be one state.
    pub(super) fn check(&self, place: &str, found: &Found) -> Result<(), Stop> {
        let expected = self.state(found.last);
        if found.keys == expected {
            return Ok(());
        }
        Err(Stop::Violation(format!(
            "{place} shows {:?} after write {:?}, which is no state: {expected:?} is",
            found.keys, found.last
        )))
    }

    /// The same, and these writes are in it.
    pub(super) fn holds(&self, place: &str, found: &Found, writes: &BTreeSet<u64>) -> Result<(), Stop> {
        self.check(place, found)?;
        let chain = self.chain(found.last);
        match writes.iter().find(|id| !chain.contains(id)) {
            None => Ok(()),
            Some(lost) => Err(Stop::Violation(format!(
                "{place} has lost write {lost}, which was acknowledged: it ends with {:?}",
                found.last
            ))),
        }
    }

    fn begin(&mut self, before: Option<u64>, key: u64, deletes: bool) -> u64 {
        self.newest += 1;
        self.writes.insert(self.newest, Write { before, key, deletes });
        self.newest
    }

    /// A write was acknowledged.
    pub(super) fn acknowledged(&mut self, id: u64, durability: Durability) {
        self.report.writes += 1;
        if durability == Durability::Durable {
            self.report.durable += 1;
            self.durable.insert(id);
        }
    }
}

/// A write that is about to be made.
pub(super) struct Next {
    pub(super) id: u64,
    pub(super) batch: Batch,
    pub(super) durability: Durability,
}

impl Next {
    /// One by chance, after the write `before`.
    pub(super) fn new(
        ledger: &Mutex<Ledger>,
        random: &mut Random,
        db: &Db,
        before: Option<u64>,
    ) -> Result<Next, Error> {
        let (key, deletes) = (random.below(KEYS), random.percent(20));
        let id = ledger.lock().begin(before, key, deletes);
        let main = db.default_keyspace();
        let of_key = if key % 2 == 0 { main.clone() } else { db.keyspace(OTHER)? };
        let batch = batch(id, &main, (&of_key, key), deletes);
        let durability = if random.percent(60) { Durability::Durable } else { Durability::Accepted };
        Ok(Next { id, batch, durability })
    }
}

/// The keyspaces of a database with streams, and the stream of each.
pub(super) const OF_STREAMS: [(&str, u32); 4] = [("default", 0), ("one", 1), ("two", 2), ("also one", 1)];

impl Next {
    /// One by chance, after the write `before`, in a keyspace of some stream, which holds the
    /// number of the last write there.
    pub(super) fn of_streams(
        ledger: &Mutex<Ledger>,
        random: &mut Random,
        db: &Db,
        before: Option<u64>,
    ) -> Result<Next, Error> {
        let (key, deletes) = (random.below(KEYS), random.percent(20));
        let nth = usize::try_from(key).unwrap_or_default() % OF_STREAMS.len();
        let of_key = db.keyspace(OF_STREAMS[nth].0)?;
        let id = ledger.lock().begin(before, key, deletes);
        let batch = batch(id, &of_key, (&of_key, key), deletes);
        Ok(Next { id, batch, durability: Durability::Durable })
    }
}

/// Notes in `last` that the write `id` was the last, and writes or deletes a key.
fn batch(id: u64, last: &Keyspace, (keyspace, key): (&Keyspace, u64), deletes: bool) -> Batch {
    let mut batch = Batch::new();
    batch.put(last, LAST, id.to_be_bytes());
    if deletes {
        batch.delete(keyspace, key.to_be_bytes());
    } else {
        let mut value = id.to_be_bytes().to_vec();
        value.resize(150, 7);
        batch.put(keyspace, key.to_be_bytes(), value);
    }
    batch
}

/// All that a database shows.
pub(super) async fn contents(db: &Db) -> Result<Found, Error> {
    contents_at(db, &db.snapshot()).await
}

/// The same, at a snapshot. Of several numbers the greatest is that of the last write: numbers of a
/// chain rise.
pub(super) async fn contents_at(db: &Db, snapshot: &Snapshot) -> Result<Found, Error> {
    let mut found = Found::default();
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    for keyspace in db.keyspaces() {
        let mut scan = snapshot.scan::<&[u8]>(&keyspace, ..);
        while let Some((key, value)) = scan.next_async().await? {
            match number(&key) {
                Some(key) => found.keys.extend(number(&value).map(|value| (key, value))),
                None => found.last = found.last.max(number(&value)),
            }
        }
    }
    Ok(found)
}

/// What the writers of one database share.
#[derive(Clone)]
pub(super) struct Writers {
    pub(super) ledger: Arc<Mutex<Ledger>>,
    violation: Arc<Mutex<Option<Violation>>>,
    over: Arc<Mutex<bool>>,
    started: Arc<Mutex<u64>>,
    /// How the database is opened.
    open: Arc<dyn Fn(&Process) -> Builder + Send + Sync>,
    /// Its keyspaces.
    options: KeyspaceOptions,
    /// How long a writer rests at most between two writes, now and then.
    rest_max: Duration,
}

impl Writers {
    pub(super) fn new(
        options: KeyspaceOptions,
        rest_max: Duration,
        open: impl Fn(&Process) -> Builder + Send + Sync + 'static,
    ) -> Writers {
        let (ledger, violation, over, started) = Default::default();
        Writers { ledger, violation, over, started, open: Arc::new(open), options, rest_max }
    }

    /// The database is made, with something in it.
    pub(super) fn make(&self, process: &Process) -> Result<(), Violation> {
        let (writers, inside) = (self.clone(), process.clone());
        let made = process.run(async move {
            let db = (writers.open)(&inside).mode(OpenMode::Create).open().await?;
            db.create_keyspace(OTHER, writers.options.clone()).await?;
            let mut writer = Writer { process: inside, writers, random: Random::new(1, 1) };
            let mut last = None;
            for _ in 0..30 {
                last = Some(writer.put(&db, last).await?);
            }
            db.close().await?;
            Ok::<_, Stop>(())
        });
        told(made, "beginning")
    }

    /// Another process begins to write.
    pub(super) fn start(&self, world: &World, random: &mut Random) -> Process {
        let number = {
            let mut started = self.started.lock();
            *started += 1;
            *started
        };
        let process = world.process(&format!("writer {number}"));
        let random = Random::new(random.next(), 5);
        let writer = Writer { process: process.clone(), writers: self.clone(), random };
        process.spawn(TaskClass::Foreground, "live", writer.live()).detach();
        process
    }

    pub(super) fn is_violated(&self) -> bool {
        self.violation.lock().is_some()
    }

    /// All end, and the last opener finds all that was acknowledged, sound.
    pub(super) fn finish(&self, run: &Run, processes: &[Process], last: &Process) -> Result<(), Violation> {
        *self.over.lock() = true;
        run.world.run_for(Duration::from_secs(20));
        if let Some(violation) = self.violation.lock().take() {
            return Err(violation);
        }
        run.crash(processes, Crash::Kill);
        let (writers, inside) = (self.clone(), last.clone());
        let outcome = last.run(async move {
            let db = (writers.open)(&inside).open().await?;
            let found = contents(&db).await?;
            {
                let ledger = writers.ledger.lock();
                ledger.holds("the database", &found, &ledger.durable)?;
            }
            close_sound(db, &found).await
        });
        told(outcome, "at the end")
    }

    /// What all did.
    pub(super) fn report(&self) -> Report {
        self.ledger.lock().report.clone()
    }
}

/// Compacts, verifies and closes a database that showed `found`, and does so after.
pub(super) async fn close_sound(db: Db, found: &Found) -> Result<(), Stop> {
    db.compact().await?;
    let report = db.verify().await?;
    if !report.damage.is_empty() {
        return Err(Stop::Violation(format!("it is damaged: {}", report.damage.join("; "))));
    }
    if contents(&db).await? != *found {
        return Err(Stop::Violation("a compaction changes what it shows".to_owned()));
    }
    db.close().await?;
    Ok(())
}

/// What a process came to that ran to its end.
pub(super) fn told(outcome: Option<Result<(), Stop>>, place: &str) -> Result<(), Violation> {
    match outcome {
        Some(Err(Stop::Violation(what))) => Err(Violation::new(what).at(place)),
        Some(Err(Stop::Error(error))) => Err(Violation::new(format!("{place}: {error}"))),
        _ => Ok(()),
    }
}

struct Writer {
    process: Process,
    writers: Writers,
    random: Random,
}

impl Writer {
    fn is_over(&self) -> bool {
        *self.writers.over.lock() || self.writers.is_violated()
    }

    async fn live(mut self) {
        while !self.is_over() {
            let violation = match self.write().await {
                _ if !self.process.is_alive() => return,
                Ok(()) => continue,
                Err(Stop::Ended) => return,
                Err(Stop::Error(error)) if TROUBLES.contains(&error.kind()) => {
                    // A store that is away stays so for a while.
                    let is_away = error.to_string().contains(AWAY);
                    let unit = if is_away { (self.writers.rest_max.as_secs() / 20).max(1) } else { 1 };
                    self.process.sleep(Duration::from_millis(unit * self.random.below(1000))).await;
                    continue;
                }
                Err(Stop::Error(error)) => error.to_string(),
                Err(Stop::Violation(what)) => what,
            };
            self.writers.violation.lock().get_or_insert(Violation::new(violation).at(self.process.name()));
            return;
        }
    }

    async fn write(&mut self) -> Result<(), Stop> {
        let before = self.writers.ledger.lock().durable.clone();
        let db = (self.writers.open)(&self.process).open().await?;
        let found = match contents(&db).await {
            // A store that is away, and says so, is no loss.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(away(&error).into()),
            found => found?,
        };
        if !self.process.is_alive() {
            return Err(Stop::Ended);
        }
        {
            let mut ledger = self.writers.ledger.lock();
            ledger.holds("the database", &found, &before)?;
            ledger.report.opened += 1;
        }
        let mut last = found.last;
        let snapshot = self.random.percent(30).then(|| db.snapshot());
        for _ in 0..1 + self.random.below(60) {
            if self.is_over() {
                break;
            }
            last = Some(self.put(&db, last).await?);
            match self.random.below(30) {
                0..=1 => db.flush().await?,
                2 => {
                    if let Err(error) = db.compact().await {
                        let is_away = error.kind() == ErrorKind::PermissionDenied;
                        return Err(if is_away { away(&error) } else { error }.into());
                    }
                }
                3 => {
                    let rest = u64::try_from(self.writers.rest_max.as_millis()).unwrap_or(u64::MAX);
                    self.process.sleep(Duration::from_millis(self.random.below(rest))).await;
                }
                _ => {}
            }
        }
        if let Some(snapshot) = snapshot {
            match contents_at(&db, &snapshot).await {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(away(&error).into()),
                Err(error) => return Err(error.into()),
                Ok(again) if again == found => {}
                Ok(_) => return Err(Stop::Violation("a snapshot shows what it did not".to_owned())),
            }
        }
        if self.random.percent(30) {
            db.close().await?;
        }
        Ok(())
    }

    async fn put(&mut self, db: &Db, before: Option<u64>) -> Result<u64, Stop> {
        let Next { id, batch, durability } = Next::new(&self.writers.ledger, &mut self.random, db, before)?;
        db.write_with(batch, durability).await?;
        if !self.process.is_alive() {
            return Err(Stop::Ended);
        }
        self.writers.ledger.lock().acknowledged(id, durability);
        Ok(id)
    }
}

const AWAY: &str = "a store is away";

fn away(error: &Error) -> Error {
    Error::new(ErrorKind::Retry, format!("{AWAY}: {error}"))
}
