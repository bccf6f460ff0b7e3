//! Scenarios that run the whole engine on one thread, by seed, on disks that lose unsynced data,
//! and the checkers that judge them.
//!
//! ```text
//! scenario ──steps──▶ client ──calls──▶ engine ──▶ local stores ──▶ simulated disk
//!     │                 │ every call and its end                        ▲
//!     │                 ▼                                               │
//!     └──faults──▶   oracle: what may be seen, what must be found       └── crashes, pauses, errors, bit rot
//! ```
//!
//! - [`oracle`] keeps what each client called and what it was answered, and says which states of
//!   the database agree with that.
//! - [`client`] drives one open database, and hands every answer to the oracle.
//! - [`scenario`] has the scenarios: each is a function of a seed.
//! - [`flash`] counts what the engine, and other programs, do to flash, zoned or not.
//! - [`shrink`] makes a history that fails small enough to be read, whatever scenario it is of.
//!
//! Invariants that the oracle checks are those of the design's section 5; everything that a client
//! reads is checked, in each of the ways to read it.

#![allow(clippy::result_large_err, reason = "a failure ends the run, and is made once in it")]

pub mod client;
pub mod failure;
pub mod flash;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod oracle;
pub mod random;
pub mod scenario;
pub mod shrink;

pub use failure::{Failure, Report, Violation};
