//! Deletion of what the database needs no more (rules 11 to 14 of the design).
//!
//! `table leaves the version (obsolete) → condemned, in the manifest → pins listed once → un-named, in the manifest → object deleted`.
//!
//! - [`machine`]: the protocol as state machines without IO.
//! - [`lease`]: when a reader's lease has expired, on the deleter's monotonic clock.
//! - [`driver`]: [`Collector`], which the writer runs, and [`Pinned`], which keeps tables.
//!
//! Invariants:
//! 1. A pin list that decides over a table begins after the record that condemned it is committed;
//!    later pinners see it condemned.
//! 2. An object is deleted only after the record that un-names its table is committed, or when it
//!    was never named by its own epoch's writer, or when a proven state of a later epoch does not
//!    name it.
//! 3. No object under another database is deleted, but for the pin there that keeps the tables of a
//!    clone; and that only after a committed record has un-named the last of them.
//! 4. A pin is effective only after a proof of the tip that began once the pin was seen in its
//!    place.

pub mod driver;
mod ended;
pub mod lease;
pub mod machine;

pub use driver::{Collector, PinOptions, Pinned, pin};
pub(crate) use driver::{delete_pin, pin_for_clone, pin_for_reader, release_before_recorded, release_source};
pub use ended::Destroyed;
pub(crate) use ended::expire_pins;

#[cfg(test)]
mod tests;
