//! The handles that a program holds: thin, cheap to clone, checked at the door.
//!
//! A handle validates what it is given against the limits and calls the module that does the step.
//! The database stops when its last handle is dropped: like a crash, so that nothing acknowledged
//! is lost; [`Db::close`] leaves less to replay.

pub(crate) mod answering;
mod application;
mod batch;
mod blocking;
mod builder;
mod changes;
mod conditional;
mod cursor;
mod delete_files;
mod differing;
#[cfg(feature = "metrics")]
mod endpoint;
mod explain;
mod export;
mod ingest;
mod joins;
mod keyspace;
mod metrics;
mod noting;
mod outcomes;
mod prefix;
mod property;
mod reader;
pub(crate) mod recording;
mod requests;
mod restore_parts;
mod scan;
mod snapshot;
mod sorted;
mod spread;
mod standby;
mod stats;
mod subscriptions;
mod tables;
mod transaction;
mod transaction_blocking;
mod transaction_cursor;
mod transaction_merge;
mod two_phase;

pub use application::{
    ApplicationEntry, ApplicationLog, ApplicationObject, ApplicationObjectWriter, ApplicationObjects,
    EarlierLogs, LogPosition,
};
pub use batch::Batch;
pub use blocking::{Blocking, BlockingKeyspace};
pub use builder::Builder;
pub(crate) use builder::{memory_of, objects, open_marked, stores};
pub use changes::{Before, Change, ChangeEvent, ChangeKind, Changes};
pub use cursor::{Cursor, Unfolded};
pub use differing::Differing;
#[cfg(feature = "metrics")]
pub use endpoint::MetricsServer;
pub use explain::{GetExplanation, GetPiece, GetStep, GetVersion, GetWhence, NotAsked};
pub use export::{Export, ExportReport, Exported, ExportedTable};
pub use ingest::Ingest;
pub use keyspace::Keyspace;
pub use property::{Property, PropertyValue, Unit};
pub use reader::Reader;
pub use recording::Recording;
pub use requests::Requests;
pub use restore_parts::RestorePart;
pub use scan::{Scan, ScanStream};
pub use snapshot::Snapshot;
pub use sorted::SortedBatch;
pub use standby::Standby;
pub use stats::Stats;
pub use subscriptions::Subscription;
pub use tables::{CollectedProperty, TableProperties};
pub use transaction::{Savepoint, Transaction};
pub use transaction_blocking::BlockingTransaction;
pub use transaction_cursor::TransactionCursor;
pub use two_phase::{InDoubt, PreparedHandle, TransactionOutcome};

pub use crate::engine::BackgroundError;
pub use crate::lifecycle::{CheckpointChange, Finding, RangeSize, VerifyReport};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::TaskClass;
use tombolo_format::key::SequenceNumber;
use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, Result};

use crate::checkpoint::Checkpoint;
use crate::deadline::{self, Limit};
use crate::engine::{CompactionRequest, Engine, KeyspaceInfo, MAIN_STREAM, OWN_NAMES, is_own_name, unix_ms};
use crate::op::Op;
use crate::options::{Durability, KeyspaceOptions, Options};
use crate::reader::ReaderOptions;
use crate::recovery::{self, DEFAULT_KEYSPACE};
use crate::{lifecycle, standby as standing_by, timekeeper, write};

/// Stops the background work when the last handle goes.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// Of a keyspace of another stream than the main one: that of the database.
    of: Option<Arc<Handle>>,
}

impl Handle {
    /// The database's own.
    pub(crate) fn root(self: &Arc<Handle>) -> &Arc<Handle> {
        self.of.as_ref().unwrap_or(self)
    }

    /// That of a keyspace, whose stream is served.
    fn of_keyspace(self: &Arc<Handle>, info: &KeyspaceInfo) -> Arc<Handle> {
        let root = self.root();
        match root.engine.streams.get(info.stream) {
            Some(engine) => Arc::new(Handle { engine, of: Some(Arc::clone(root)) }),
            None => Arc::clone(root),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.of.is_none() {
            self.engine.abandon_all();
        }
    }
}

/// An open database, and the right to write to it until another process takes it over.
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
    limit: Limit,
}

impl fmt::Debug for Db {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.engine().context;
        formatter
            .debug_struct("Db")
            .field("place", &self.engine().place)
            .field("incarnation", &context.incarnation)
            .field("epoch", &context.epoch)
            .finish()
    }
}

/// A batch that was not taken, and why.
#[derive(Debug)]
pub struct Rejected {
    /// `Busy`: wait for writes in flight, then try again.
    pub error: Error,
    /// The batch, unchanged.
    pub batch: Batch,
}

impl Db {
    /// Begins to open the database at `uri` (`file:///path`, `mem://name`, or any scheme of the
    /// registry). Touches nothing before [`Builder::open`].
    ///
    /// ```no_run
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::Db;
    ///
    /// let db = Db::builder("file:///var/lib/orders").open().wait()?;
    /// let orders = db.open_or_create_keyspace("orders", Default::default()).wait()?;
    /// orders.put(b"1", b"two books").wait()?;
    /// assert_eq!(orders.get(b"1").wait()?.unwrap(), b"two books");
    /// db.close().wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(uri: impl Into<String>) -> Builder {
        Builder::new(uri.into())
    }

    /// Begins to open the database in a directory of this host, whatever characters its name has:
    /// in a URI a `%`, `?` or `#` of a path means something else. A relative path is taken from the
    /// working directory.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::Db;
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("100% of #orders?");
    /// let db = Db::from_path(&path)?.open().wait()?;
    /// db.default_keyspace().put(b"1", b"two books").wait()?;
    /// db.close().wait()?;
    /// assert!(path.is_dir());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an empty path, one with `..` in it, and one that is not UTF-8, has a control
    /// character or is longer than about 4,000 bytes.
    pub fn from_path(path: impl AsRef<std::path::Path>) -> Result<Builder> {
        Builder::from_path(path)
    }

    /// Opens the database at `uri` for reading beside its writer: see [`Reader`].
    /// [`Builder::open_reader`] has all that can be said of how.
    ///
    /// # Errors
    /// As [`Builder::open_reader`].
    pub fn open_reader(uri: impl Into<String>, options: ReaderOptions) -> Op<Reader> {
        Db::builder(uri).open_reader(options)
    }

    /// Creates a keyspace: one log append; durable when the operation ends. As many as one likes
    /// may be begun before the first is waited for; [`Db::open_or_create_keyspace`] takes one that
    /// is there.
    ///
    /// # Errors
    /// `AlreadyExists`; `Invalid` for a name that is empty, longer than 255 bytes or not printable,
    /// for one of the database's own (`tombolo.…`), for an option out of range; those of a write.
    #[allow(clippy::needless_pass_by_value, reason = "callers write the options in place")]
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Op<Keyspace> {
        if let Err(error) = check_own(name) {
            return Op::ready(Err(error));
        }
        self.make_keyspace(name, &options, false)
    }

    /// The keyspace of that name, which is created unless it is there: what a program does when it
    /// starts. One that is there keeps its options; these are for the creation.
    ///
    /// Durable when the operation ends. One log append for a creation; none for one that is there,
    /// whose creation is waited for if it is not durable yet. Of several callers at once one
    /// creates it, and all get it.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// # use tombolo::Db;
    /// let db = Db::builder("mem://orders").open().wait()?;
    /// for _start in 0..2 {
    ///     let orders = db.open_or_create_keyspace("orders", Default::default()).wait()?;
    ///     orders.put(b"1", b"two books").wait()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` as of [`Db::create_keyspace`]; those of a write; `PermissionDenied` of a handle
    /// that only reads when there is none.
    #[allow(clippy::needless_pass_by_value, reason = "callers write the options in place")]
    pub fn open_or_create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Op<Keyspace> {
        if let Err(error) = check_own(name) {
            return Op::ready(Err(error));
        }
        if self.engine().is_read_only()
            && let Ok(found) = self.keyspace(name)
        {
            return Op::ready(Ok(found));
        }
        self.make_keyspace(name, &options, true)
    }

    fn make_keyspace(&self, name: &str, options: &KeyspaceOptions, opens: bool) -> Op<Keyspace> {
        if let Err(error) = check_name(name).and_then(|()| options.check()) {
            return Op::ready(Err(error));
        }
        let db = self.clone();
        let to_handle = move |info| db.handle_of(info);
        // Where the name is taken no stream is begun; the creation's turn says whether it is still.
        if options.stream != MAIN_STREAM && self.engine().catalog.by_name(name).is_none() {
            if let Some(operator) = &options.operator
                && let Err(error) = self.engine().catalog.operators().named(operator).get()
            {
                return Op::ready(Err(error));
            }
            let (engine, name) = (Arc::clone(self.engine()), name.to_owned());
            let options = options.clone();
            return self.begin("creation of a keyspace", async move {
                recovery::ensure_stream(&engine, options.stream).await?;
                write::create_keyspace(&engine, &name, &options, opens, to_handle).await
            });
        }
        self.limited("creation of a keyspace", || {
            write::create_keyspace(self.engine(), name, options, opens, to_handle)
        })
    }

    /// The keyspace of that name.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a name of the database's own.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        check_own(name)?;
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}"));
        let info = self.engine().catalog.by_name(name).ok_or_else(missing)?;
        if !self.is_created(&info) {
            let what = format!("keyspace {name:?} is being created, which is not durable yet");
            return Err(Error::new(ErrorKind::NotFound, what)
                .advice("wait for the operation that creates it, or open it with open_or_create_keyspace"));
        }
        Ok(self.handle_of(info))
    }

    /// Whether a keyspace's creation is as durable as writes to it may be: the log of another
    /// stream must hold nothing of a keyspace that the main log may lose.
    fn is_created(&self, info: &KeyspaceInfo) -> bool {
        let Some((lane, end)) = info.created() else { return true };
        let log = self.engine().main_log();
        // All of an earlier log is in tables.
        log.id.lane != lane
            || log.durable_through() >= end
            || info.id < self.engine().manifest.state().next_keyspace_id()
    }

    /// The keyspace `default`, which every database has.
    pub fn default_keyspace(&self) -> Keyspace {
        let info = self.engine().catalog.by_id(0);
        // It is created with the database and cannot be dropped; were it missing, its handle would
        // answer `NotFound`.
        self.handle_of(
            info.unwrap_or_else(|| KeyspaceInfo::new(0, DEFAULT_KEYSPACE, KeyspaceOptions::default(), 0)),
        )
    }

    /// All keyspaces, sorted by name.
    pub fn keyspaces(&self) -> Vec<Keyspace> {
        let all = self.engine().catalog.all().into_iter();
        let all = all.filter(|info| check_own(&info.name).is_ok() && self.is_created(info));
        all.map(|info| self.handle_of(info)).collect()
    }

    /// Drops a keyspace with all in it. Writes to its handles fail with `NotFound` from here on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for `default`; those of a write.
    pub fn drop_keyspace(&self, name: &str) -> Op<()> {
        if let Err(error) = check_own(name) {
            return Op::ready(Err(error));
        }
        if name == DEFAULT_KEYSPACE {
            return Op::ready(Err(Error::new(
                ErrorKind::Invalid,
                "the keyspace \"default\" cannot be dropped",
            )));
        }
        self.limited("drop of a keyspace", || write::drop_keyspace(self.engine(), name))
    }

    /// Applies a batch, whole or not at all; durable when the operation ends. One log append.
    ///
    /// # Errors
    /// `Invalid` when the batch breaks a limit; `Busy` to callers that do not wait, when memory or
    /// the in-flight limit is reached; `Fenced` when another process has taken over; `OutOfSpace`,
    /// `Retry` when nothing took effect; `Invalid` for a batch with conditions, which
    /// [`Db::write_if`] writes.
    pub fn write(&self, batch: Batch) -> Op<()> {
        self.write_with(batch, Durability::Durable)
    }

    /// As [`Db::write`], with the durability said.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_with(&self, batch: Batch, durability: Durability) -> Op<()> {
        let engine = match self.check_unconditional(&batch) {
            Ok(engine) => engine,
            Err(error) => return Op::ready(Err(error)),
        };
        let engine = engine.as_ref().unwrap_or(self.engine());
        let write = |batch: Batch| self.limited("write", || write::write(engine, batch.prepared, durability));
        if self.engine().recording.is_on() {
            return self.recorded_write(batch, write, |()| true);
        }
        write(batch)
    }

    /// As [`Db::write_with`], but hands the batch back at once when it cannot be taken.
    ///
    /// # Errors
    /// [`Rejected`] with `Busy` and the batch.
    pub fn try_write(
        &self,
        batch: Batch,
        durability: Durability,
    ) -> std::result::Result<Op<()>, Box<Rejected>> {
        let engine = match self.check_unconditional(&batch) {
            Ok(engine) => engine,
            Err(error) => return Ok(Op::ready(Err(error))),
        };
        match write::try_write(engine.as_ref().unwrap_or(self.engine()), batch.prepared, durability) {
            Ok(op) => Ok(self.limited("write", || op)),
            Err((error, prepared)) => {
                Err(Box::new(Rejected { error, batch: Batch { prepared, ..Batch::default() } }))
            }
        }
    }

    /// Makes durable all accepted writes that returned before this call, and what was taken before
    /// them. No append; one sync of the log, which others share, and none when all is durable.
    /// Unlogged writes stay what they are.
    ///
    /// ```no_run
    /// # fn f(db: &tombolo::Db, orders: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// use tombolo::Durability;
    ///
    /// for number in 0..1000_u32 {
    ///     orders.put_with(number.to_be_bytes(), b"an order", Durability::Accepted).wait()?;
    /// }
    /// db.sync().wait()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As the durable writes of [`Db::write`].
    pub fn sync(&self) -> Op<()> {
        if !self.engine().streams.is_any() {
            return self.limited("sync", || write::sync(self.engine()));
        }
        // All are begun before the first is waited for.
        let syncs: Vec<_> = self.engine().with_streams().iter().map(write::sync).collect();
        self.limited("sync", || {
            Op::start(&self.engine().env, TaskClass::Foreground, "sync of all streams", async move {
                for sync in syncs {
                    sync.await?;
                }
                Ok(())
            })
        })
    }

    /// A handle of which every verb ends within `limit` of its call, and those of keyspaces, logs
    /// and objects that it gives: see [`Keyspace::within`]. What goes on in the background goes on:
    /// flushes, compactions, and verbs that put several things into a store, of which a part would
    /// be left there (checkpoints, clones, closing, handing over); only the wait for them ends
    /// then.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Db {
        Db { limit: Limit(Some(limit)), ..self.clone() }
    }

    fn limited<T>(&self, what: &'static str, start: impl FnOnce() -> Op<T>) -> Op<T> {
        Op::limited(self.limit, &self.engine().env, what, start)
    }

    /// Starts what goes on to its end; only the wait for it is limited.
    fn begin<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Op<T> {
        Op::begin(self.limit, &self.engine().env, what, work)
    }

    /// A consistent cut of all keyspaces, in constant time. Compaction keeps what it sees until it
    /// is dropped.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.handle))
    }

    /// The application's own objects: see [`ApplicationObjects`].
    pub fn application_objects(&self) -> ApplicationObjects {
        ApplicationObjects::new(&self.handle, self.limit)
    }

    /// One of the application's own logs, counted from 0: see [`ApplicationLog`].
    ///
    /// # Errors
    /// `Invalid` when it was not opened with so many ([`Builder::application_logs`]). A handle that
    /// only reads has the log for reading.
    pub fn application_log(&self, number: u32) -> Result<ApplicationLog> {
        ApplicationLog::new(&self.handle, self.limit, number)
    }

    /// The same verbs without `.wait()`.
    pub fn blocking(&self) -> Blocking {
        Blocking::new(self.clone())
    }

    /// Writes everything in memory to tables. What was written unlogged before the call is durable
    /// when it ends.
    ///
    /// # Errors
    /// `Fenced`, `OutOfSpace` and others of the object store.
    pub fn flush(&self) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable() {
            return Op::ready(Err(error));
        }
        let sealed = sealed_all(&engine);
        let env = engine.env.clone();
        let start = || {
            Op::start(&env, TaskClass::Flush, "wait for flush", async move {
                deadline::waits_for(format_args!("tables to be written, which goes on"));
                for (engine, last) in sealed {
                    lifecycle::flushed(&engine, last).await?;
                    lifecycle::walked(&engine, last).await?;
                }
                Ok(())
            })
        };
        self.limited("flush", start)
    }

    /// Flushes, then merges the tables of each keyspace into one sorted run: all that was written
    /// before the call, however much is written meanwhile. Tables that fit the last level as they
    /// are, are moved and not rewritten, but for those that lie under other databases
    /// ([`Db::share_to`]): afterwards all are this one's own.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn compact(&self) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable() {
            return Op::ready(Err(error));
        }
        let sealed = sealed_all(&engine);
        let env = engine.env.clone();
        let start = || {
            Op::start(&env, TaskClass::Background, "wait for compaction", async move {
                deadline::waits_for(format_args!("a flush"));
                for (engine, last) in &sealed {
                    lifecycle::flushed(engine, *last).await?;
                }
                deadline::waits_for(format_args!("the compaction, which goes on"));
                for (engine, _) in sealed {
                    let all = engine.catalog.all().into_iter();
                    let keyspaces = all.filter(|keyspace| keyspace.stream == engine.stream_id());
                    let requests = keyspaces.map(|keyspace| CompactionRequest::new(keyspace.id, None, None));
                    lifecycle::compacted(&engine, requests.collect()).await?;
                }
                Ok(())
            })
        };
        self.limited("compaction", start)
    }

    /// Makes a checkpoint: a state of the database that stays, under a name, until it is deleted;
    /// it survives closing and takeovers.
    ///
    /// It holds every write, of any durability, that returned before this call, and of those that
    /// run beside it a prefix of their order: a consistent cut of all keyspaces, batches whole.
    /// Costs a flush, a pin and an object of the size of the manifest's state; no table is copied,
    /// and compaction goes on. Tables that the database needs no more stay for it, and take their
    /// space.
    ///
    /// Read it with [`Builder::at_checkpoint`] and [`Builder::open_read_only`]; make a database of
    /// it with [`Builder::restore_to`].
    ///
    /// # Errors
    /// `AlreadyExists`; `Invalid` for a name that is empty, longer than 255 bytes or not printable;
    /// as [`Db::flush`]. After `Fenced` and `OutcomeUnknown` it may be there: list them.
    pub fn checkpoint(&self, name: &str) -> Op<Checkpoint> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = check_name(name).and_then(|()| engine.check_writable()) {
            return Op::ready(Err(error));
        }
        let name = name.to_owned();
        self.begin("checkpoint", async move { lifecycle::checkpoint(&engine, &name).await })
    }

    /// Makes a checkpoint as [`Db::checkpoint`] does, and says what came since another one: every
    /// checkpoint shares with others the tables that both hold, so that a new one takes the bytes
    /// that came. What changed by keys is told by [`Cursor::differing`].
    ///
    /// # Errors
    /// As [`Db::checkpoint`]; `NotFound` when `parent` is gone: then none was made.
    pub fn checkpoint_after(&self, name: &str, parent: &str) -> Op<CheckpointChange> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = check_name(name).and_then(|()| engine.check_writable()) {
            return Op::ready(Err(error));
        }
        let (name, parent) = (name.to_owned(), parent.to_owned());
        self.begin("checkpoint", async move { lifecycle::checkpoint_after(&engine, &name, &parent).await })
    }

    /// Makes a database of its own of this one as it is now, where `target` says: another URI, with
    /// the log that it will use. A checkpoint for the moment, restored there: so tables are taken
    /// over by reference where the target's store can (hard links within one file system), else
    /// copied, and writes go on meanwhile. What ends in between leaves a checkpoint whose name
    /// begins with `clone-`, and an empty target.
    ///
    /// ```no_run
    /// # fn f(db: &tombolo::Db) -> tombolo::Result<()> {
    /// db.clone_to(tombolo::Db::builder("file:///var/lib/orders-for-tests")).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Db::checkpoint`] and [`Builder::restore_to`].
    pub fn clone_to(&self, target: Builder) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable() {
            return Op::ready(Err(error));
        }
        let name = format!("clone-{:016x}{:016x}", engine.env.random_u64(), engine.env.random_u64());
        self.begin("clone", async move {
            let (objects, log_store) = builder::stores(&target, &engine.env)?;
            lifecycle::checkpoint(&engine, &name).await?;
            let request = recovery::RestoreRequest {
                env: engine.env.clone(),
                source: Arc::clone(&engine.objects),
                checkpoint: name.clone(),
                target: objects,
                log_store,
            };
            let restored = recovery::restore(request).await;
            let deleted = lifecycle::delete_checkpoint(&engine, &name).await;
            restored.and(deleted)
        })
    }

    /// Makes a database of its own of this one as it is now, which shares its tables instead of
    /// copying them: see [`Builder::share_to`]. A checkpoint for the moment, shared; what ends in
    /// between leaves a checkpoint whose name begins with `clone-`, and an empty target.
    ///
    /// # Errors
    /// As [`Db::checkpoint`] and [`Builder::share_to`].
    pub fn share_to(&self, target: Builder) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable() {
            return Op::ready(Err(error));
        }
        let name = format!("clone-{:016x}{:016x}", engine.env.random_u64(), engine.env.random_u64());
        self.begin("clone", async move {
            let (target, log_store) = builder::stores(&target, &engine.env)?;
            lifecycle::checkpoint(&engine, &name).await?;
            let (env, source) = (engine.env.clone(), Arc::clone(&engine.objects));
            let request =
                recovery::CloneRequest { env, source, checkpoint: Some(name.clone()), target, log_store };
            let shared = recovery::share(request).await;
            let deleted = lifecycle::delete_checkpoint(&engine, &name).await;
            shared.and(deleted)
        })
    }

    /// All checkpoints, oldest first. Two lists and a read for each.
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    pub fn checkpoints(&self) -> Op<Vec<Checkpoint>> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_open() {
            return Op::ready(Err(error));
        }
        let env = engine.env.clone();
        self.limited("list of checkpoints", || {
            Op::start(&env, TaskClass::Foreground, "list checkpoints", async move {
                lifecycle::checkpoints(&engine).await
            })
        })
    }

    /// Deletes a checkpoint, which is named by its name or else by its id as 32 hexadecimal digits:
    /// one that cannot be read has only that. What only it kept is deleted by and by.
    ///
    /// # Errors
    /// `NotFound`; those of the store.
    pub fn delete_checkpoint(&self, name: &str) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable() {
            return Op::ready(Err(error));
        }
        let name = name.to_owned();
        self.begin(
            "deletion of a checkpoint",
            async move { lifecycle::delete_checkpoint(&engine, &name).await },
        )
    }

    /// Reads and checks everything: each byte of all tables, the manifest's chain and what its
    /// parts say about each other, and the logs up to where they are durable. All damage is
    /// reported, block by block, with object, offset, what was expected and what was found; nothing
    /// is repaired. What runs beside it is not disturbed. Memory for one table at a time.
    ///
    /// # Errors
    /// Those of the stores, damage excepted: that is in the report.
    pub fn verify(&self) -> Op<VerifyReport> {
        self.verify_with(|_report| ())
    }

    /// As [`Db::verify`], and tells `progress` how far it has come, after each table.
    ///
    /// # Errors
    /// As [`Db::verify`].
    pub fn verify_with(&self, progress: impl FnMut(&VerifyReport) + Send + 'static) -> Op<VerifyReport> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_open() {
            return Op::ready(Err(error));
        }
        let env = engine.env.clone();
        self.limited("verification", || {
            Op::start(&env, TaskClass::Background, "verify", async move {
                lifecycle::verify(&engine, progress).await
            })
        })
    }

    /// Resolves when this process is known still to own the database: reads that returned before
    /// were not stale at the call.
    ///
    /// # Errors
    /// `Fenced` when another process has taken over.
    pub fn confirm(&self) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable() {
            return Op::ready(Err(error));
        }
        let env = engine.env.clone();
        let start = || {
            Op::start_read(&env, "confirm", async move {
                deadline::waits_for(format_args!("the log to say that nobody has fenced it"));
                lifecycle::confirm(&engine).await
            })
        };
        self.limited("confirmation", start)
    }

    /// Makes all accepted writes durable and ends background work. Handles answer `Closed` from
    /// here on.
    ///
    /// Where the log is lost sooner than the store (the memory of nodes, or a disk of this host
    /// beside a store that is a service; see [`FailureDomain`](tombolo_storage::FailureDomain)),
    /// everything is written to the store first: one flush of the memtables. The database then
    /// needs nothing of that log, and its nodes may be ended. Logs of the application's own stay
    /// named, as always, until it releases them.
    ///
    /// # Errors
    /// Those of the log's last sync. What the store says, when not everything could be written
    /// there: the log is as needed then as it was before, and the error names it.
    pub fn close(&self) -> Op<()> {
        let engine = Arc::clone(self.engine());
        self.begin("closing", async move { lifecycle::close(&engine).await })
    }

    /// Hands over to a standby: flushes while writes go on, closes, and tells it to take over. The
    /// database is without a writer for about as long as it takes to open. Handles answer `Closed`
    /// once that has begun. It ends when another has claimed the database. Some ten requests beside
    /// those of a flush and of closing.
    ///
    /// # Errors
    /// `NotFound` when nobody stands by, or nobody who lives: this process is the writer still. So
    /// it is after an error of [`Db::flush`]. `DeadlineExceeded` when it has left and nobody took
    /// over within ten seconds: the database has no writer then. Those of [`Db::close`].
    pub fn hand_over(&self) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable() {
            return Op::ready(Err(error));
        }
        self.begin("hand-over", async move { standing_by::hand_over(&engine).await })
    }

    /// The memory budget that the database is charged to, with what each category takes.
    pub fn memory(&self) -> &std::sync::Arc<crate::MemoryBudget> {
        self.engine().budget()
    }

    /// What background work fails with and tries again, the flush first: it heals by itself once
    /// the cause is gone, writes resume then, and nothing needs to be opened again. Empty when all
    /// goes well.
    pub fn background_errors(&self) -> Vec<BackgroundError> {
        self.engine().background_errors()
    }

    /// The settings as they are now.
    pub fn options(&self) -> Options {
        Options::clone(&self.engine().options.load())
    }

    /// Changes settings while the database runs: all of them, or none when one is wrong. They count
    /// from here on, and until the database is opened again. See [`Options::SETTINGS`] for their
    /// names.
    ///
    /// ```no_run
    /// # fn f(db: &tombolo::Db) -> tombolo::Result<()> {
    /// db.set_options([("memory_bytes", "1073741824"), ("automatic_compaction", "true")])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an unknown name, a value out of range, or settings that contradict each other:
    /// nothing has changed then. `Closed`.
    pub fn set_options<'a>(&self, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<()> {
        lifecycle::set_options(self.engine(), settings)
    }

    /// The database's own time, by which values expire, in milliseconds since the Unix epoch. It is
    /// the host's clock, unless that was ahead before: time never goes back by itself. Of a reader
    /// the time of the state that it shows.
    pub fn time_ms(&self) -> u64 {
        let engine = self.engine();
        if engine.is_read_only() { engine.judged_ms() } else { engine.time.now(unix_ms(&engine.env)) }
    }

    /// Sets [`Db::time_ms`] to the host's clock: for a time that is far ahead, since some host's
    /// clock was. What had expired by the wrong time is there again, if that was less than an hour
    /// ago; of what was longer ago bytes may be gone. One manifest record.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn reset_time(&self) -> Op<()> {
        let engine = Arc::clone(self.engine());
        if let Err(error) = engine.check_writable() {
            return Op::ready(Err(error));
        }
        let env = engine.env.clone();
        Op::start(&env, TaskClass::Foreground, "reset of the time", async move {
            timekeeper::reset(&engine).await
        })
    }

    /// The epoch in which this handle writes; of one that only reads, the epoch of the writer that
    /// made the newest of what it shows.
    pub fn epoch(&self) -> Epoch {
        let engine = self.engine();
        if engine.is_read_only() { engine.manifest.state().epoch() } else { engine.context.epoch }
    }

    /// How old the shown state may be: everything that was acknowledged as durable so long ago is
    /// visible. Of a look ([`Builder::open_read_only`]) the time since it was opened, of a reader
    /// [`Reader::lag`]. `None` of the writer, which shows all there is, and of a checkpoint, which
    /// stays.
    pub fn age(&self) -> Option<Duration> {
        let engine = self.engine();
        engine.following().map(|following| following.lag(engine.env.now()))
    }

    /// The database's life at its URI.
    pub fn incarnation(&self) -> Incarnation {
        self.engine().context.incarnation
    }

    /// Why this handle is finished for writing, if it is: `Fenced` once another process is known to
    /// have taken over.
    pub fn failure(&self) -> Option<Error> {
        self.engine().failure()
    }

    /// The handle of a writer, which answers questions.
    pub(crate) fn of_writer(engine: Arc<Engine>) -> Db {
        let db = Db::new(engine);
        answering::serve(&db);
        db
    }

    pub(crate) fn new(engine: Arc<Engine>) -> Db {
        Db { handle: Arc::new(Handle { engine, of: None }), limit: Limit::default() }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// The database of a keyspace's handle.
    pub(crate) fn of_keyspace(keyspace: &Keyspace) -> Db {
        Db { handle: Arc::clone(keyspace.handle().root()), limit: keyspace.limit() }
    }

    fn handle_of(&self, info: Arc<KeyspaceInfo>) -> Keyspace {
        Keyspace::new(self.handle.of_keyspace(&info), info, self.limit)
    }

    /// # Errors
    /// As [`Db::check_batch`]; `Invalid` for conditions, whose answer would have no place.
    fn check_unconditional(&self, batch: &Batch) -> Result<Option<Arc<Engine>>> {
        if !batch.requirements.is_empty() {
            let error = Error::new(ErrorKind::Invalid, "a batch with conditions");
            return Err(error.advice("write it with Db::write_if, which says what was found"));
        }
        self.check_batch(batch)
    }

    /// The stream that a batch is of; `None`: the main one.
    ///
    /// # Errors
    /// `NotFound` for a dropped keyspace, `Invalid` for one of another database, and for keyspaces
    /// of several streams.
    fn check_batch(&self, batch: &Batch) -> Result<Option<Arc<Engine>>> {
        let required = batch.requirements.all.iter().map(|required| &required.keyspace);
        let mut stream = None;
        let mut of_stream = None;
        for keyspace in batch.prepared.keyspaces.iter().chain(required) {
            keyspace.check()?;
            if *stream.get_or_insert(keyspace.stream) != keyspace.stream {
                return Err(several_streams("batch", keyspace, stream.unwrap_or_default()));
            }
            let knows = match keyspace.stream {
                MAIN_STREAM => self.engine().catalog.knows(keyspace),
                stream => {
                    of_stream = of_stream.or_else(|| self.engine().streams.get(stream));
                    of_stream.as_ref().is_some_and(|of| of.catalog.knows(keyspace))
                }
            };
            if !knows {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("keyspace {:?} belongs to another open database", keyspace.name),
                ));
            }
        }
        Ok(of_stream)
    }
}

/// What spans two streams: a keyspace beside others, which are of `stream`.
#[cold]
pub(crate) fn several_streams(what: &str, keyspace: &KeyspaceInfo, stream: u32) -> Error {
    let (name, own) = (&keyspace.name, keyspace.stream);
    let message =
        format!("a {what} over two streams: keyspace {name:?} is of stream {own}, others of stream {stream}");
    Error::new(ErrorKind::Invalid, message)
        .advice("make one for each stream: each takes effect whole or not at all, and they are not in order")
}

/// The engine that a keyspace is of, which this database must have, and which must be that of the
/// others if `of` says one.
///
/// # Errors
/// `Invalid` for a keyspace of another database, and of another stream than the others.
pub(crate) fn engine_of(
    main: &Arc<Engine>,
    keyspace: &Keyspace,
    of: Option<&Arc<Engine>>,
) -> Result<Arc<Engine>> {
    let engine = &keyspace.handle().engine;
    if !Arc::ptr_eq(&engine.main_engine(), main) {
        let message = format!("keyspace {:?} is of another database", keyspace.name());
        return Err(
            Error::new(ErrorKind::Invalid, message).advice("take the keyspace of the database's own handle")
        );
    }
    match of.filter(|of| !Arc::ptr_eq(of, engine)) {
        Some(of) => Err(several_streams("batch", keyspace.info(), of.stream_id())),
        None => Ok(Arc::clone(engine)),
    }
}

/// # Errors
/// `Unsupported` for a keyspace of another stream than the main one, of what does not know streams.
pub(crate) fn check_stream(keyspace: &KeyspaceInfo, what: &str) -> Result<()> {
    if keyspace.stream == MAIN_STREAM {
        return Ok(());
    }
    let message =
        format!("keyspace {:?} is of stream {}, and {what} are not", keyspace.name, keyspace.stream);
    Err(Error::new(ErrorKind::Unsupported, message)
        .expected("a keyspace of the database's own stream")
        .advice("use a keyspace that was made without a stream"))
}

/// Seals the memtables of all streams: up to where each must be flushed.
fn sealed_all(engine: &Arc<Engine>) -> Vec<(Arc<Engine>, SequenceNumber)> {
    let seal = |engine: Arc<Engine>| {
        let last = write::seal(&engine);
        (engine, last)
    };
    engine.with_streams().into_iter().map(seal).collect()
}

/// # Errors
/// `Invalid` for the name of a keyspace of the database's own.
fn check_own(name: &str) -> Result<()> {
    if is_own_name(name) {
        let error = Error::new(ErrorKind::Invalid, format!("the keyspace {name:?} is the database's own"));
        return Err(error.advice(format!("use a name that does not begin with {OWN_NAMES:?}")));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{name:?} is no name of a keyspace or checkpoint"),
        )
        .expected("1 to 255 bytes of printable text")
        .found(format!("{} bytes", name.len())));
    }
    Ok(())
}
