//! Devices of zones: what a store asks of one, real or emulated.
//!
//! A zone is written from its start to its capacity, each write where the last one ended, and is
//! emptied as a whole. Calls are synchronous, as those of files are.

pub mod block;
mod counted;
pub mod emulated;

use std::fmt;
use std::io;
use std::sync::Arc;

use tombolo_env::BoxFuture;
pub use tombolo_env::{Zone, ZoneGeometry, ZoneState};

pub use counted::{Counted, Counts};

/// A range of a zone: the zone, the byte in it, and how many bytes.
pub type Place = (u32, u64, usize);

/// A device of zones.
pub trait Device: Send + Sync + fmt::Debug {
    /// What it looks like.
    fn geometry(&self) -> ZoneGeometry;

    /// All zones, in order, as the device says now.
    fn report(&self) -> io::Result<Vec<Zone>>;

    /// Writes whole blocks at a zone's write pointer, `at`. After an error any part of them may
    /// have been written.
    ///
    /// # Errors
    /// `InvalidInput` away from the write pointer or beyond the capacity; `ReadOnlyFilesystem` when
    /// the zone takes no writes any more; `ResourceBusy` beyond the limit of active zones.
    fn write(&self, zone: u32, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads a range of a zone. What was not written reads as zeros.
    fn read(&self, zone: u32, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Reads ranges as one batch, in the order given.
    fn read_many(&self, places: Vec<Place>) -> BoxFuture<'static, Vec<io::Result<Vec<u8>>>>;

    /// Empties a zone.
    fn reset(&self, zone: u32) -> io::Result<()>;

    /// Makes a zone full: it is active no more.
    fn finish(&self, zone: u32) -> io::Result<()>;

    /// Makes all that was written durable, and resets and finishes too. After an error, what was
    /// not durable may never become so.
    fn sync(&self) -> io::Result<()>;

    /// Takes the device for this process alone, until it ends or the device is dropped; `false`
    /// when another has it.
    fn try_lock(&self) -> io::Result<bool>;

    /// Looks again at what another process may have changed since.
    fn refresh(&self) -> io::Result<()>;

    /// The device, as a person would name it.
    fn describe(&self) -> String;
}

/// A device that many share.
pub type SharedDevice = Arc<dyn Device>;
