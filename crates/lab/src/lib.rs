//! The workload lab: what was asked of a database, seen, modelled, made anew and scored.
//!
//! `trace → Analysis → report, Model → Generator → trace or database → score`. Files and threads
//! are the caller's: everything here reads from `Read`, writes to `Write`, and knows no clock.

#![allow(clippy::cast_precision_loss, reason = "what is counted is shown and compared as shares and means")]

pub mod analysis;
pub mod caches;
pub mod comparison;
pub mod export;
pub mod figure14;
pub mod figures;
pub mod fitting;
pub mod flags;
pub mod generate;
pub mod import;
pub mod model;
pub mod presets;
pub mod replay;
pub mod report;
pub mod trace;

pub use analysis::{Analyser, Analysis};
pub use generate::Generator;
pub use model::Model;
pub use trace::{TraceError, TraceReader, TraceWriter};
