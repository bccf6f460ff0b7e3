//! The handles that a program holds: thin, cheap to clone, checked at the door.
//!
//! A handle validates what it is given against the limits and calls the module that does the step. The database stops when its last
//! handle is dropped: like a crash, so that nothing acknowledged is lost; [`Db::close`] leaves less to replay.

mod batch;
mod blocking;
mod builder;
mod keyspace;
mod scan;
mod snapshot;

pub use batch::Batch;
pub use blocking::{Blocking, BlockingKeyspace};
pub use builder::Builder;
pub use keyspace::Keyspace;
pub use scan::Scan;
pub use snapshot::Snapshot;

use std::fmt;

use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, Result};

use crate::op::Op;
use crate::options::{Durability, KeyspaceOptions};

pub(crate) fn unsupported<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "this verb is not connected yet"))
}

/// An open database, and the right to write to it until another process takes it over.
#[derive(Clone)]
pub struct Db {}

impl fmt::Debug for Db {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Db").finish()
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

/// What an open database is doing and holds. Counts are since opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Memtables that wait for their flush.
    pub memtables_waiting: u64,
    /// Tables in the version.
    pub tables: u64,
    /// Their bytes.
    pub table_bytes: u64,
    /// Tables of each level, from level 0.
    pub tables_by_level: Vec<u64>,
    /// Writes begun.
    pub writes: u64,
    /// Flushes installed.
    pub flushes: u64,
    /// Compactions installed.
    pub compactions: u64,
    /// Bytes of the log not yet freed.
    pub log_bytes: u64,
    /// The newest sequence number that reads see.
    pub last_sequence: u64,
    /// Bytes that opening replayed from logs.
    pub replayed_bytes: u64,
    /// Time that opening took, in nanoseconds.
    pub open_nanos: u64,
    /// What background work last failed with and still retries, as a person would read it.
    pub background_error: Option<String>,
}

/// What [`Db::verify`] read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read in full.
    pub tables: u64,
    /// Blocks whose checksum and order were checked.
    pub blocks: u64,
    /// Entries seen.
    pub entries: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Records of the manifest read.
    pub manifest_records: u64,
    /// What is damaged, one error each; empty when all is well.
    pub damage: Vec<String>,
}

impl Db {
    /// Begins to open the database at `uri` (`file:///path`, `mem://name`, or any scheme of the registry). Touches nothing before
    /// [`Builder::open`].
    ///
    /// ```no_run
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::Db;
    ///
    /// let db = Db::builder("file:///var/lib/orders").open().wait()?;
    /// let orders = db.create_keyspace("orders", Default::default()).wait()?;
    /// orders.put(b"1", b"two books").wait()?;
    /// assert_eq!(orders.get(b"1").wait()?.unwrap(), b"two books");
    /// db.close().wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(uri: impl Into<String>) -> Builder {
        Builder::new(uri.into())
    }

    /// Creates a keyspace: one log append; durable when the operation ends.
    ///
    /// # Errors
    /// `AlreadyExists`; `Invalid` for a name that is empty, longer than 255 bytes or not printable, or an option out of range; those of a write.
    pub fn create_keyspace(&self, _name: &str, _options: KeyspaceOptions) -> Op<Keyspace> {
        Op::ready(unsupported())
    }

    /// The keyspace of that name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn keyspace(&self, _name: &str) -> Result<Keyspace> {
        unsupported()
    }

    /// The keyspace `default`, which every database has.
    pub fn default_keyspace(&self) -> Keyspace {
        Keyspace {}
    }

    /// All keyspaces, sorted by name.
    pub fn keyspaces(&self) -> Vec<Keyspace> {
        Vec::new()
    }

    /// Drops a keyspace with all in it. Writes to its handles fail with `NotFound` from here on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for `default`; those of a write.
    pub fn drop_keyspace(&self, _name: &str) -> Op<()> {
        Op::ready(unsupported())
    }

    /// Applies a batch, whole or not at all; durable when the operation ends. One log append.
    ///
    /// # Errors
    /// `Invalid` when the batch breaks a limit; `Busy` to callers that do not wait, when memory or the in-flight limit is reached;
    /// `Fenced` when another process has taken over; `OutOfSpace`, `Retry` when nothing took effect.
    pub fn write(&self, batch: Batch) -> Op<()> {
        self.write_with(batch, Durability::Durable)
    }

    /// As [`Db::write`], with the durability said.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_with(&self, _batch: Batch, _durability: Durability) -> Op<()> {
        Op::ready(unsupported())
    }

    /// As [`Db::write_with`], but hands the batch back at once when it cannot be taken.
    ///
    /// # Errors
    /// [`Rejected`] with `Busy` and the batch.
    pub fn try_write(&self, _batch: Batch, _durability: Durability) -> std::result::Result<Op<()>, Box<Rejected>> {
        Ok(Op::ready(unsupported()))
    }

    /// A consistent cut of all keyspaces, in constant time. Compaction keeps what it sees until it is dropped.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {}
    }

    /// The same verbs without `.wait()`.
    pub fn blocking(&self) -> Blocking {
        Blocking::new(self.clone())
    }

    /// Writes everything in memory to tables. What was written unlogged before the call is durable when it ends.
    ///
    /// # Errors
    /// `Fenced`, `OutOfSpace` and others of the object store.
    pub fn flush(&self) -> Op<()> {
        Op::ready(unsupported())
    }

    /// Flushes, then merges all tables of each keyspace into one sorted run.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn compact(&self) -> Op<()> {
        Op::ready(unsupported())
    }

    /// Reads every byte of the database and checks it: tables, manifest, logs. Damage is reported, not repaired.
    ///
    /// # Errors
    /// Those of the stores, damage excepted: that is in the report.
    pub fn verify(&self) -> Op<VerifyReport> {
        Op::ready(unsupported())
    }

    /// Resolves when this process is known still to own the database: reads that returned before were not stale at the call.
    ///
    /// # Errors
    /// `Fenced` when another process has taken over.
    pub fn confirm(&self) -> Op<()> {
        Op::ready(unsupported())
    }

    /// Makes all accepted writes durable and ends background work. Handles answer `Closed` from here on.
    ///
    /// # Errors
    /// Those of the log's last sync.
    pub fn close(&self) -> Op<()> {
        Op::ready(unsupported())
    }

    /// What the database is doing and holds.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// The epoch in which this handle writes.
    pub fn epoch(&self) -> Epoch {
        Epoch::NONE
    }

    /// The database's life at its URI.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(0)
    }
}
