//! What a store itself can do: measured through the interfaces, so that every store is measured
//! alike.
//!
//! [`objects`] writes, puts, reads, lists and deletes under a fresh prefix, which it empties at the
//! end, also after an error. [`log`] appends and syncs a log of a fresh incarnation. Each
//! measurement runs `depth` tasks, each with one request at a time, until its time is over. It
//! measures what the engine would get: requests of tasks on this process's pool.
//!
//! [`exclusive`] tries whether put-if-absent is what it is called.
//!
//! Reads go over `data_bytes` at random. What a cache of the host holds comes from there: to see
//! the device, probe with `io=direct`.

pub mod exclusive;
mod log;
mod measure;
mod objects;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use log::log;
pub use measure::Measured;
pub use objects::objects;

use crate::{Error, ErrorKind, Result};

/// Most requests at once.
pub const DEPTH_MAX: usize = 1024;
/// Most bytes of one request.
pub const SIZE_MAX: usize = 16 << 20;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// Bytes of one read, put or append.
    pub sizes: Vec<usize>,
    /// Requests at once.
    pub depths: Vec<usize>,
    /// Time of each measurement.
    pub duration: Duration,
    /// Bytes written, and then read at random.
    pub data_bytes: u64,
}

impl Default for ProbePlan {
    /// 512 B (a log entry), 4 KiB (a page) and 64 KiB, one, eight and 32 at once, a second each.
    fn default() -> ProbePlan {
        ProbePlan {
            sizes: vec![512, 4096, 65_536],
            depths: vec![1, 8, 32],
            duration: Duration::from_secs(1),
            data_bytes: 256 << 20,
        }
    }
}

impl ProbePlan {
    /// Refuses what makes no sense.
    fn check(&self) -> Result<()> {
        let invalid = |what: String, advice: &str| Err(Error::new(ErrorKind::Invalid, what).advice(advice));
        if let Some(size) = self.sizes.iter().find(|size| **size == 0 || **size > SIZE_MAX) {
            return invalid(
                format!("a probe with requests of {size} bytes"),
                "choose sizes from 1 byte to 16 MiB",
            );
        }
        if let Some(depth) = self.depths.iter().find(|depth| **depth == 0 || **depth > DEPTH_MAX) {
            return invalid(format!("a probe with {depth} requests at once"), "choose depths from 1 to 1024");
        }
        let largest = self.sizes.iter().max().copied().unwrap_or(1) as u64;
        if self.data_bytes < largest {
            return invalid(
                format!("a probe of {} bytes with requests of {largest}", self.data_bytes),
                "probe with more bytes",
            );
        }
        Ok(())
    }
}
