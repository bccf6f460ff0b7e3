//! Tombolo: an embedded LSM key-value engine whose data lives on shared storage.
//!
//! A database is opened on an object store and a log store, each a URI. [`Db`] is the handle;
//! [`Keyspace`] an ordered map in it; every verb returns an [`Op`], which is awaited or waited for;
//! [`Db::blocking`] spares the `.wait()`.
//!
//! - Write:
//!   `batch → sequence → log append → memtable → accepted → durable; flush → table → object store → manifest → trim log`.
//! - Read: `memtables → version → filter → cache → table → object store`.
//! - Compaction: `pick (pure) → run (anywhere) → install (writer only)`.
//! - Open: `read manifest → claim → fence the logs → replay → serve`.

mod backup;
mod blocks;
mod budget;
mod cache;
mod checkpoint;
mod chunked;
mod clones;
mod collection;
mod collector;
mod compaction;
mod condition;
mod db;
mod deadline;
mod engine;
mod event;
mod extensions;
mod filter;
mod flash;
mod flush;
mod guard;
mod lifecycle;
mod liveness;
mod locks;
mod manifest;
mod memtable;
mod mirror;
mod op;
mod operator;
mod options;
mod outside;
mod pace;
mod read;
mod reader;
mod recording;
mod recovery;
mod resolve;
mod salvage;
mod signal;
mod slow;
mod stalls;
mod standby;
mod sweep;
mod table;
mod time;
mod timekeeper;
mod transaction;
mod value;
mod version;
mod workers;
mod write;

pub use backup::{Archived, Backup, BackupReport, Backups, Keep, Pruned, RestorePoint, Restored};
pub use budget::{Category as MemoryCategory, MemoryBudget};
pub use checkpoint::Checkpoint;
pub use clones::{CloneState, SharedClone};
pub use collection::Destroyed;
pub use collector::{Collector, TableCollector, TableEntry};
pub use compaction::{CompactionRun, CompactionWorker};
pub use condition::{Condition, Decision, Versioned};
#[cfg(feature = "metrics")]
pub use db::MetricsServer;
pub use db::{
    ApplicationEntry, ApplicationLog, ApplicationObject, ApplicationObjectWriter, ApplicationObjects,
    BackgroundError, Batch, Before, Blocking, BlockingKeyspace, BlockingTransaction, Builder, Change,
    ChangeEvent, ChangeKind, Changes, CheckpointChange, CollectedProperty, Cursor, Db, Differing,
    EarlierLogs, Export, ExportReport, Exported, ExportedTable, Finding, GetExplanation, GetPiece, GetStep,
    GetVersion, GetWhence, InDoubt, Ingest, Keyspace, LogPosition, NotAsked, PreparedHandle, Property,
    PropertyValue, RangeSize, Reader, Recording, Rejected, Requests, RestorePart, Savepoint, Scan,
    ScanStream, Snapshot, SortedBatch, Standby, Stats, Subscription, TableProperties, Transaction,
    TransactionCursor, TransactionOutcome, Unfolded, Unit, VerifyReport,
};
pub use event::{Event, Listener};
pub use filter::{
    CompactionFilter, FilterDecision, FilterEntry, FilterError, FilterJob, FilterName, JobFilter,
};
pub use flash::{FlashCache, FlashCacheOptions, FlashCacheStats};
pub use liveness::asking::Answered;
pub use liveness::presence::{Presence, Seen, Writer};
pub use mirror::{
    Difference, HandedOver, Mirror, MirrorOptions, MirrorState, MirrorStatus, Promoted, Verified,
};
pub use op::Op;
pub use operator::{
    AssociativeOperator, FullOperator, Operator, OperatorError, OperatorName, encode_set, set_elements,
};
pub use options::{
    CompactionPlace, Compression, Durability, Isolation, KeyspaceOptions, Locking, OpenMode, Options,
    Setting, Shape, TakeOver, TransactionOptions,
};
pub use outside::{Bring, IngestOptions, IngestReport, Published, TableFile, TableFileBuilder, TablePlace};
pub use pace::BackgroundRate;
pub use reader::ReaderOptions;
pub use recording::{RecordKeys, RecordOptions, RecordReport};
pub use salvage::{Loss, SalvageMode, SalvageReport};
pub use slow::SlowOperation;
pub use stalls::StallReason;
pub use standby::StandbyOptions;
pub use tombolo_env::{Env, Instant};
pub use tombolo_format::question::Verb as Ask;
pub use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, Life, Registry, Result, Uri};
pub use value::Value;
pub use workers::{CompactionOffer, CompactionWorkers, Urgency};

/// The manifest and what lies in a store, for this project's own tools: the command line, the
/// simulator, tests of the protocols. They look at a database that nobody has open, which the
/// handles above cannot. No promise is made of it, and programs do without.
#[doc(hidden)]
pub mod internals {
    pub use crate::collection::{PinOptions, Pinned, pin};
    pub use crate::flash::facts as flash_facts;
    pub use crate::manifest::names::table as table_object;
    pub use crate::manifest::{
        KeyspaceState, Level, Loaded, LogState, Manifest, ManifestOptions, NamedTable, OpenMode, State,
        TableStatus, load,
    };

    /// What nothing names any more: found, and deleted.
    pub mod sweep {
        pub use crate::sweep::{
            FOREIGN_NAMES_MAX, Garbage, GarbageKind, GarbageObject, delete, expire, survey,
        };
    }
}

/// The README's tour, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeTour;
