//! Where Tombolo keeps bytes: two interfaces, because a storage engine makes two kinds of writes.
//!
//! - [`ObjectStore`]: bulk, immutable, asynchronous. Tables, manifest records, snapshots.
//! - [`LogStore`]: small, synchronous, short-lived. The write-ahead log.
//!
//! Layers ([`layer`]) wrap a store and are a store. The [`Registry`] turns URIs into stores, so
//! that the engine and every command name no backend.

pub mod backend;
pub mod backoff;
pub mod conformance;
pub mod duration;
pub mod error;
pub mod facts;
pub mod fenced;
mod gate;
pub mod lanes;
pub mod layer;
pub mod log;
pub mod log_memory;
pub mod logged;
pub mod meter;
pub mod mutant;
pub mod object;
pub mod performance;
pub mod price;
pub mod probe;
pub mod registry;
pub mod request;
pub mod size;
mod spans;
pub mod uri;

pub use error::{Error, ErrorKind, Result};
pub use log::{
    Appended, ConfigurationChain, Log, LogAppend, LogContext, LogEntry, LogId, LogOffset, LogReader,
    LogRecord, LogRun, LogStore, Pressure, RUN_ENTRIES_MAX, RunEntry,
};
pub use log_memory::LogMemory;
pub use meter::{Counted, Meter};
pub use object::location;
pub use object::{Listed, ObjectInfo, ObjectName, ObjectStore, ObjectWriter, PutOutcome, StoreTraits};
pub use performance::StorePerformance;
pub use registry::Registry;
pub use request::{
    Epoch, FailureDomain, Incarnation, Life, ObjectKind, Placement, Priority, Purpose, Request, Survival,
};
pub use uri::Uri;
