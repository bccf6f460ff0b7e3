//! Tables from outside: made without a database, taken into one, and given out of one.
//!
//! Write path beside the log:
//! `table made anywhere → copied or linked under a fresh name → checked → staged by a record → one
//! log entry → live with a flush`.
//!
//! - [`builder`]: makes one.
//! - [`ingest`]: takes several into several keyspaces, all or nothing.
//! - [`sorted`]: a batch whose tables are made in the database itself.
//!
//! Invariants:
//! 1. What the log entry shows was durable, checked (unless its giver was trusted) and staged
//!    before.
//! 2. Until that entry is durable nothing is acknowledged; staged tables without one are given up,
//!    here after an error, or by the next opening.

pub(crate) mod builder;
pub(crate) mod ingest;
mod place;
pub(crate) mod sorted;

pub use builder::{TableFile, TableFileBuilder};
pub use ingest::{Bring, IngestOptions, IngestReport};
pub use place::TablePlace;
pub use sorted::Published;
pub(crate) use sorted::Sorted;
