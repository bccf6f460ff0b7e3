//! The manifest: a chain of immutable records, one per slot, that says which tables and logs make
//! the database.
//!
//! `edits → one record at a time, put-if-absent at the next slot → state`. The page
//! docs/manifest.md has the rules and the bytes.
//!
//! - [`chain`]: the protocol as state machines without IO, clocks and randomness.
//! - [`state`]: what the edits build.
//! - [`driver`]: [`Manifest`], which runs the machines against an object store.
//! - [`names`]: names of all objects of a database.
//! - `values`: a keyspace's value objects, and how much of each its tables refer to.
//! - `places`: where a table's object lies; under another database's root, if that is a source.
//! - `cold`: the part of another store in which cold tables lie.
//! - `ages`: by when everything up to a sequence number was written.
//!
//! Invariants:
//! 1. An edit is acknowledged by a process that has seen it in its slot, in a chain whose every
//!    record is linked to the next by its hash.
//! 2. One process at most has an effective claim on the newest epoch; every record of an epoch
//!    comes from the process that claimed it.
//! 3. No claim is ever deleted, and nothing else is deleted but below a durable snapshot.

mod ages;
pub mod chain;
pub(crate) mod cold;
pub mod driver;
pub mod names;
mod places;
pub mod state;
mod values;

pub(crate) use ages::written_by;
pub(crate) use driver::fenced_error;
pub use driver::{Loaded, Manifest, ManifestOptions, OpenMode, load};
pub(crate) use places::{Place, Places};
pub use state::{KeyspaceState, Level, LevelChunk, LogState, NamedTable, State, TableStatus};
pub(crate) use values::Collected;
