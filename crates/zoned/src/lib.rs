//! Zoned devices: an [`ObjectStore`](tombolo_storage::ObjectStore) and a
//! [`LogStore`](tombolo_storage::LogStore) on zones, which are written in order and emptied whole.
//!
//! ```text
//! objects ─▶ chunks ─▶ zones by expected life ─▶ all in a zone is gone ─▶ reset names   ─▶
//! transactions ─▶ metadata zones: superblock, snapshot, transactions, … ─▶ roll to the next logs
//! ─▶ batches of all lanes ─▶ log zones ─▶ trimmed ─▶ reset
//! ```
//!
//! - [`device`]: what a device is asked for; a block device, or zones made of a file.
//! - `state`: what the metadata says; `metadata`: the rolling log of its changes.
//! - `zones`: which zone takes what; `allocate`: writing to them and resetting them; `relocate`,
//!   the last resort.
//! - `objects` and `log`: the two stores.
//! - [`instance`]: a device, held by one process; its handles.
//! - [`tools`]: what `tombolo zoned` shows and does.
//!
//! Rules, each with a mutant and a test that notices:
//! 1. A record is durable before anything is acknowledged, reset or reused because of it.
//! 2. The end of a generation of metadata is written only after the next one is whole and durable;
//!    a transaction goes to the next one only after that end is durable.
//! 3. A write pointer says where the next write goes, and never which bytes are sound: units have a
//!    checksum and an identity.
//! 4. A bad unit before one that was written after it was durable is damage, and never an end.
//! 5. A zone is reset when nothing of it is named, nothing in it is on its way, and nobody reads
//!    it.
//! 6. A log zone ends, with its length, in the transaction that begins the next one; log whose
//!    write or sync failed is written again elsewhere before anything of it is durable.
//!
//! **Failure model.** What was acknowledged as durable survives the process and a loss of power; it
//! is lost with the device, or with a zone of it that goes bad. One process owns a device: another
//! takes over when that has ended, and never while it is paused.

mod allocate;
pub mod device;
mod generation;
pub mod instance;
mod lanes;
mod log;
mod metadata;
mod objects;
mod relocate;
mod space;
mod state;
pub mod tools;
mod uri;
mod volume;
mod zones;

use std::fmt::Display;
use std::io;

pub use instance::{FormatOptions, Handle, Zoned};
pub use log::ZonedLogStore;
pub use objects::ZonedObjectStore;
pub use uri::{Shared, register, register_with};

use tombolo_storage::Error;

use device::Device;

/// An error of a device, with what was being done.
fn failed(device: &dyn Device, error: io::Error, doing: impl Display) -> Error {
    use tombolo_storage::ErrorKind;
    match error.kind() {
        // Not the file system's, as elsewhere: the zone's.
        io::ErrorKind::ReadOnlyFilesystem => {
            Error::new(ErrorKind::Retry, format!("{doing}: the zone takes no writes any more"))
                .object(device.describe())
                .source(error)
                .advice("other zones take its place; `tombolo zoned df` shows how many are worn")
        }
        io::ErrorKind::InvalidData => Error::new(ErrorKind::Corrupt, format!("{doing}: {error}"))
            .object(device.describe())
            .source(error)
            .advice("restore the device from a backup: `tombolo zoned restore`"),
        _ => Error::io(error, doing, device.describe()),
    }
}
