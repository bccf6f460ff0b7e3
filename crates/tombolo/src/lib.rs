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

pub mod budget;
pub mod cache;
mod checkpoint;
pub mod chunked;
mod clones;
pub mod collection;
mod compaction;
pub mod db;
mod deadline;
mod engine;
mod event;
pub mod flash;
mod flush;
mod guard;
mod lifecycle;
mod liveness;
pub mod manifest;
mod memtable;
pub mod op;
pub mod options;
mod pace;
mod read;
mod reader;
mod recovery;
mod resolve;
mod salvage;
mod signal;
mod stalls;
mod standby;
pub mod sweep;
pub mod table;
mod value;
mod version;
mod write;

pub use budget::MemoryBudget;
pub use checkpoint::Checkpoint;
pub use clones::{CloneState, SharedClone};
pub use collection::Destroyed;
pub use db::{
    ApplicationEntry, ApplicationLog, ApplicationObject, ApplicationObjects, BackgroundError, Batch,
    Blocking, BlockingKeyspace, Builder, Cursor, Db, EarlierLogs, Finding, Keyspace, LogPosition, Property,
    PropertyValue, RangeSize, Reader, Rejected, Requests, Scan, Snapshot, Standby, Stats, Unit, VerifyReport,
};
pub use event::{Event, Listener};
pub use flash::{FlashCache, FlashCacheOptions, FlashCacheStats};
pub use liveness::asking::Answered;
pub use liveness::presence::{Presence, Seen, Writer};
pub use op::Op;
pub use options::{Compression, Durability, KeyspaceOptions, OpenMode, Options, Setting, TakeOver};
pub use pace::BackgroundRate;
pub use reader::ReaderOptions;
pub use salvage::{Loss, SalvageMode, SalvageReport};
pub use stalls::StallReason;
pub use standby::StandbyOptions;
pub use tombolo_env::{Env, Instant};
pub use tombolo_format::question::Verb as Ask;
pub use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, Registry, Result, Uri};
pub use value::Value;

/// The README's tour, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeTour;
