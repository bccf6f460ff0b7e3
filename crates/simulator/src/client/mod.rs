//! A client of one open database: drives it step by step and hands every answer to the oracle.
//!
//! A client's code runs as a task of a simulated process, so that a crash ends it anywhere. Nothing
//! is told to the oracle once the process has ended: there is nobody left who could have been told.

mod read;
mod special;
mod step;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{
    Batch, Builder, Db, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Op, OpenMode, OperatorName,
    Options, Registry, Snapshot, TakeOver,
};
use tombolo_env::Env;
use tombolo_env::simulated::Process;
use tombolo_storage::layer::fault::{Chances, FaultObjectStore, FaultPlan};
use tombolo_storage::{ObjectStore, Uri};

use crate::failure::Violation;
use crate::oracle::{Change, SessionId, Shared, State, View, WriteId};

pub use step::{Asks, Entry, Step, Takes, key, large_write, random_step, random_steps, richer, richest};

/// When values end that do: in no history.
const END_MS: u64 = 1 << 45;

/// Why a client cannot go on.
#[derive(Debug)]
pub enum Stop {
    /// The engine did what it must never do.
    Violation(Violation),
    /// The engine answered with an error that ends the session, or one that the scenario has no
    /// reason to expect.
    Error(Error),
    /// The process has ended.
    Ended,
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Stop {
        Stop::Violation(violation)
    }
}

impl Stop {
    /// The violation, if it is one; an error is one too, where none was to be expected.
    ///
    /// # Errors
    /// The violation.
    pub fn unexpected_error(self, place: &str) -> Result<(), Violation> {
        match self {
            Stop::Violation(violation) => Err(violation.at(place)),
            Stop::Error(error) => Err(Violation::new(format!("{place}: {error}"))),
            Stop::Ended => Ok(()),
        }
    }

    /// The violation, if it is one; errors are to be expected here.
    ///
    /// # Errors
    /// The violation.
    pub fn expected_error(self, place: &str) -> Result<(), Violation> {
        match self {
            Stop::Violation(violation) => Err(violation.at(place)),
            Stop::Error(_) | Stop::Ended => Ok(()),
        }
    }
}

/// The log: the local one in one of its forms, or objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By system calls.
    Written,
    /// Through a shared mapping.
    Mapped,
    /// As objects of the database's store.
    Objects,
    /// On segments in the memory of nodes of other hosts.
    Near,
    /// The same of nodes of the writers' host, which share their memory with them.
    NearShared,
    /// On the zones of a device, as are all objects.
    Zoned,
}

impl Form {
    /// Those of the local log, which may change from one open to the next.
    pub const LOCAL: [Form; 2] = [Form::Written, Form::Mapped];

    /// Hosts of the nodes of [`Form::Near`].
    pub const NODES: [&str; 4] = ["node-0", "node-1", "node-2", "node-3"];
    /// The port that the nodes of [`Form::Near`] listen on.
    pub const NODE_PORT: u16 = 7000;
    /// Those of the nodes of [`Form::NearShared`], which are on one host.
    pub const SHARED_PORTS: [u16; 4] = [7000, 7001, 7002, 7003];

    /// As the URI names it.
    pub fn name(self) -> &'static str {
        match self {
            Form::Written => "written",
            Form::Mapped => "mapped",
            Form::Objects => "objects",
            Form::Near => "near",
            Form::NearShared => "near, shared",
            Form::Zoned => "zoned",
        }
    }

    /// Whether writes that were only accepted outlive their process.
    pub fn keeps_accepted(self) -> bool {
        self != Form::Zoned
    }

    /// The log's URI, beside the store in `directory`.
    fn uri(self, directory: &str) -> String {
        match self {
            Form::Written | Form::Mapped => format!("file://{directory}?form={}", self.name()),
            Form::Objects => "objects://".to_owned(),
            Form::Near => {
                format!("near://{}", Form::NODES.map(|host| format!("{host}:{}", Form::NODE_PORT)).join(","))
            }
            Form::NearShared => {
                format!("near://{}", Form::SHARED_PORTS.map(|port| format!("localhost:{port}")).join(","))
            }
            Form::Zoned => Setup::ZONES.to_owned(),
        }
    }
}

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The form of the log.
    pub form: Form,
    /// Bytes of a memtable: small ones flush often.
    pub memtable_bytes: u64,
    /// Whether compaction runs by itself.
    pub automatic_compaction: bool,
    /// Where the objects are; `None`: on the disk of the process's host.
    pub store: Option<SharedStore>,
    /// Logs of the application's own.
    pub application_logs: u32,
    /// From which size on values of keyspaces that are created lie apart.
    pub separate_bytes: u32,
    /// Whether those keep a level for tables that come behind.
    pub ingest_behind: bool,
}

/// A store in memory that all hosts reach, and what goes wrong on the way to it.
#[derive(Clone)]
pub struct SharedStore {
    registry: Registry,
    plan: FaultPlan,
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedStore").finish_non_exhaustive()
    }
}

impl SharedStore {
    /// An empty one.
    pub fn new(plan: FaultPlan) -> SharedStore {
        let (plain, faults) = (Registry::with_defaults(), plan.clone());
        let mut registry = plain.clone();
        let open = move |env: &Env, uri: &Uri| {
            let store = FaultObjectStore::new(env, plain.open_object_store(env, uri)?, faults.clone());
            Ok(Arc::new(store) as Arc<dyn ObjectStore>)
        };
        registry.register_object_store("mem", Arc::new(open));
        SharedStore { registry, plan }
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.plan.clear();
        self.plan.set_chances(Chances::NONE);
    }
}

impl Setup {
    /// Small memtables, so that few writes meet flush and compaction.
    pub fn small(form: Form) -> Setup {
        Setup {
            form,
            memtable_bytes: 4 << 10,
            automatic_compaction: true,
            store: None,
            application_logs: 0,
            separate_bytes: 0,
            ingest_behind: false,
        }
    }

    /// How keyspaces are created: their operator appends.
    fn created(&self) -> Result<KeyspaceOptions, Stop> {
        let operator = OperatorName::parse("append").map_err(Stop::Error)?;
        let (separate_bytes, ingest_behind) = (self.separate_bytes, self.ingest_behind);
        let operator = Some(operator);
        Ok(KeyspaceOptions { operator, separate_bytes, ingest_behind, ..KeyspaceOptions::default() })
    }

    /// Where the database lies.
    pub const DIRECTORY: &str = "/data/orders";
    /// Where it lies on zones: the smallest that there may be, so that they change often.
    pub const ZONES: &str = "zoned+file:///zones?zone=256KiB&zones=32&open=8&active=8";

    /// The stores that its URIs name.
    pub fn registry(&self) -> Registry {
        let mut registry =
            self.store.as_ref().map_or_else(Registry::with_defaults, |store| store.registry.clone());
        tombolo_near_compute_log::register(&mut registry, Ok(None));
        tombolo_zoned::register(&mut registry);
        registry
    }

    /// A builder of the database for a process.
    pub fn builder(&self, process: &Process) -> Builder {
        let options = Options {
            memory_bytes: 1 << 20,
            memtable_bytes: Some(self.memtable_bytes),
            automatic_compaction: self.automatic_compaction,
            ..Options::default()
        };
        let objects = match (&self.store, self.form) {
            (Some(_), _) => "mem://orders".to_owned(),
            (None, Form::Zoned) => Setup::ZONES.to_owned(),
            (None, _) => format!("file://{}", Setup::DIRECTORY),
        };
        Db::builder(objects)
            .registry(self.registry())
            .log(self.form.uri(Setup::DIRECTORY))
            .env(process.env())
            .options(options)
            .application_logs(self.application_logs)
            .mode(OpenMode::CreateOrOpen)
            .take_over(TakeOver::Always)
    }
}

/// A snapshot that was taken, and what it may show.
#[derive(Debug)]
struct Taken {
    snapshot: Snapshot,
    view: View,
    /// The keyspaces that were there, by name.
    keyspaces: BTreeMap<String, Keyspace>,
}

/// A client with its open database.
#[derive(Debug)]
pub struct Client {
    process: Process,
    db: Db,
    oracle: Shared,
    id: SessionId,
    keyspaces: BTreeMap<String, Keyspace>,
    snapshots: Vec<Taken>,
    /// Behind a lock because handles of operations are not shared between threads, and clients are.
    in_flight: Mutex<Vec<(WriteId, Op<()>)>>,
    /// Whether errors other than the end of the session are to be expected: a faulty or full disk.
    tolerant: bool,
    /// How keyspaces are made.
    created: KeyspaceOptions,
}

impl Client {
    /// Opens the database and reads everything before anything else.
    ///
    /// # Errors
    /// Those of opening; a violation when the found state may not be.
    pub async fn open(process: &Process, setup: &Setup, oracle: &Shared) -> Result<Client, Stop> {
        let attempt = oracle.lock().attempt();
        let opened = setup.builder(process).open().await;
        if !process.is_alive() {
            return Err(Stop::Ended);
        }
        let db = match opened {
            Ok(db) => db,
            Err(error) => {
                oracle.lock().attempt_failed(attempt);
                return Err(Stop::Error(error));
            }
        };
        let id = oracle.lock().opened(attempt, db.epoch().0)?;
        process.world().note(&format!("{} opened with epoch {}", process.name(), id.0));
        let mut client = Client {
            process: process.clone(),
            db,
            oracle: oracle.clone(),
            id,
            keyspaces: BTreeMap::new(),
            snapshots: Vec::new(),
            in_flight: Mutex::new(Vec::new()),
            tolerant: false,
            created: setup.created()?,
        };
        client.keyspaces = client
            .db
            .keyspaces()
            .into_iter()
            .map(|keyspace| (keyspace.name().to_owned(), keyspace))
            .collect();
        let found = client.read_everything().await?;
        client.alive()?;
        client.oracle.lock().found(id, &State::new(found))?;
        Ok(client)
    }

    /// Expects errors of the disk from here on, or no longer.
    pub fn set_tolerant(&mut self, tolerant: bool) {
        self.tolerant = tolerant;
    }

    /// The session.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    fn alive(&self) -> Result<(), Stop> {
        if self.process.is_alive() { Ok(()) } else { Err(Stop::Ended) }
    }

    /// Whether a session may go on after an error of this kind.
    fn judge(&self, error: Error) -> Result<(), Stop> {
        match error.kind() {
            ErrorKind::Fenced if !self.oracle.lock().is_challenged(self.id) => {
                Err(Stop::Violation(Violation::new(format!("fenced by nobody: {error}"))))
            }
            ErrorKind::Fenced | ErrorKind::Closed => Err(Stop::Error(error)),
            ErrorKind::Bug => Err(Stop::Violation(Violation::new(error.to_string()))),
            // A call that does not wait finds no room now and then.
            ErrorKind::Busy => Ok(()),
            _ if self.tolerant => Ok(()),
            _ => Err(Stop::Error(error)),
        }
    }

    /// As [`Client::judge`], of creating or dropping a keyspace: when that is of unknown outcome it
    /// may not be there though later writes are, and the oracle knows of prefixes only.
    fn judge_keyspace(&self, error: Error) -> Result<(), Stop> {
        if error.kind() == ErrorKind::OutcomeUnknown { Err(Stop::Error(error)) } else { self.judge(error) }
    }

    /// The entries whose keyspaces are there, as changes of the next write.
    fn changes(&self, entries: &[Entry]) -> Result<Vec<Change>, Stop> {
        let place = self.oracle.lock().mark(self.id)?;
        let known = entries.iter().filter(|entry| self.keyspaces.contains_key(entry.keyspace()));
        Ok(known.enumerate().map(|(nth, entry)| entry.change(self.id, place, nth)).collect())
    }

    fn batch(&self, changes: &[Change]) -> Batch {
        let mut batch = Batch::new();
        for change in changes {
            match change {
                Change::Put(keyspace, key, value) => batch.put(&self.keyspaces[keyspace], key, value),
                Change::PutUntil(keyspace, key, value) => {
                    batch.put_until(&self.keyspaces[keyspace], key, value, END_MS)
                }
                Change::Delete(keyspace, key) => batch.delete(&self.keyspaces[keyspace], key),
                Change::Merge(keyspace, key, operand) => batch.merge(&self.keyspaces[keyspace], key, operand),
                Change::SingleDelete(keyspace, key) => batch.single_delete(&self.keyspaces[keyspace], key),
                Change::DeleteRange(keyspace, from, to) => {
                    batch.delete_range(&self.keyspaces[keyspace], from, to)
                }
                Change::Create(_) | Change::Drop(_) => continue,
            };
        }
        batch
    }

    /// Calls a write without waiting for its end. One that finds no room is refused: it would take
    /// its place only when it is waited for.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub fn begin(&mut self, entries: &[Entry], durability: Durability) -> Result<(), Stop> {
        self.alive()?;
        let changes = self.changes(entries)?;
        if changes.is_empty() {
            return Ok(());
        }
        let batch = self.batch(&changes);
        let write = self.oracle.lock().begin(self.id, changes, durability)?;
        match self.db.try_write(batch, durability) {
            Ok(op) => self.in_flight.get_mut().push((write, op)),
            Err(rejected) => {
                self.alive()?;
                self.oracle.lock().end(write, Err(rejected.error.kind()))?;
                self.judge(rejected.error)?;
            }
        }
        Ok(())
    }

    /// Calls a write and waits for all that were called.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub async fn write(&mut self, entries: &[Entry], durability: Durability) -> Result<(), Stop> {
        self.alive()?;
        let changes = self.changes(entries)?;
        if changes.is_empty() {
            return self.settle().await;
        }
        let write = self.oracle.lock().begin(self.id, changes.clone(), durability)?;
        let op = match &changes[..] {
            [Change::Put(keyspace, key, value)] => self.keyspaces[keyspace].put_with(key, value, durability),
            [Change::PutUntil(keyspace, key, value)] => {
                self.keyspaces[keyspace].put_until_with(key, value, END_MS, durability)
            }
            [Change::Delete(keyspace, key)] => self.keyspaces[keyspace].delete_with(key, durability),
            [Change::Merge(keyspace, key, operand)] => {
                self.keyspaces[keyspace].merge_with(key, operand, durability)
            }
            [Change::SingleDelete(keyspace, key)] => {
                self.keyspaces[keyspace].single_delete_with(key, durability)
            }
            [Change::DeleteRange(keyspace, from, to)] => {
                self.keyspaces[keyspace].delete_range_with(from, to, durability)
            }
            changes => self.db.write_with(self.batch(changes), durability),
        };
        self.in_flight.get_mut().push((write, op));
        self.settle().await
    }

    /// Waits for the ends of all writes that were called.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub async fn settle(&mut self) -> Result<(), Stop> {
        let mut stop = Ok(());
        for (write, op) in std::mem::take(self.in_flight.get_mut()) {
            let result = op.await;
            self.alive()?;
            self.oracle.lock().end(write, result.clone().map_err(|error| error.kind()))?;
            if let Err(error) = result
                && stop.is_ok()
            {
                stop = self.judge(error);
            }
        }
        stop
    }

    /// Creates a keyspace.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub async fn create(&mut self, name: &str) -> Result<(), Stop> {
        if self.keyspaces.contains_key(name) {
            return Ok(());
        }
        self.settle().await?;
        let write =
            self.oracle.lock().begin(self.id, vec![Change::Create(name.to_owned())], Durability::Durable)?;
        let result = self.db.create_keyspace(name, self.created.clone()).await;
        self.alive()?;
        self.oracle.lock().end(write, result.as_ref().map(drop).map_err(Error::kind))?;
        match result {
            Ok(keyspace) => {
                self.keyspaces.insert(name.to_owned(), keyspace);
                Ok(())
            }
            Err(error) => self.judge_keyspace(error),
        }
    }

    /// Drops a keyspace.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub async fn drop_keyspace(&mut self, name: &str) -> Result<(), Stop> {
        if name == "default" || !self.keyspaces.contains_key(name) {
            return Ok(());
        }
        self.settle().await?;
        let write =
            self.oracle.lock().begin(self.id, vec![Change::Drop(name.to_owned())], Durability::Durable)?;
        let result = self.db.drop_keyspace(name).await;
        self.alive()?;
        self.oracle.lock().end(write, result.clone().map_err(|error| error.kind()))?;
        match result {
            Ok(()) => {
                self.keyspaces.remove(name);
                self.snapshots.iter_mut().for_each(|taken| drop(taken.keyspaces.remove(name)));
                Ok(())
            }
            Err(error) => self.judge_keyspace(error),
        }
    }

    /// Flushes.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub async fn flush(&mut self) -> Result<(), Stop> {
        let mark = self.oracle.lock().mark(self.id)?;
        let result = self.db.flush().await;
        self.after_flush(mark, result)
    }

    /// Flushes and compacts.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub async fn compact(&mut self) -> Result<(), Stop> {
        let mark = self.oracle.lock().mark(self.id)?;
        let result = self.db.compact().await;
        self.after_flush(mark, result)
    }

    fn after_flush(&mut self, mark: usize, result: Result<(), Error>) -> Result<(), Stop> {
        self.alive()?;
        match result {
            Ok(()) => Ok(self.oracle.lock().flushed(self.id, mark)?),
            Err(error) => {
                self.oracle.lock().report.errors += 1;
                self.judge(error)
            }
        }
    }

    /// Asks whether this process still owns the database.
    ///
    /// # Errors
    /// A violation, or the error that ends the session.
    pub async fn confirm(&mut self) -> Result<(), Stop> {
        let superseded = self.oracle.lock().is_superseded(self.id);
        let result = self.db.confirm().await;
        self.alive()?;
        match result {
            Ok(()) => Ok(self.oracle.lock().confirmed(self.id, superseded)?),
            Err(error) => self.judge(error),
        }
    }

    /// Closes the database.
    ///
    /// # Errors
    /// A violation, or the error of closing.
    pub async fn close(mut self) -> Result<(), Stop> {
        self.settle().await?;
        self.snapshots.clear();
        let mark = self.oracle.lock().mark(self.id)?;
        let result = self.db.close().await;
        self.alive()?;
        match result {
            Ok(()) => Ok(self.oracle.lock().closed(self.id, mark)?),
            Err(error) => self.judge(error),
        }
    }
}
