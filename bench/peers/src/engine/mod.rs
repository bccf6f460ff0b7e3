//! The engines. Each module turns one of them into a [`Target`], with what all have in common set
//! alike; its head says what was set and why, and [`Engine::settings`] says it in every result.

#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(feature = "lmdb")]
pub mod lmdb;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "slatedb")]
pub mod slatedb;
#[cfg(feature = "slatedb")]
mod slow;
pub mod tombolo;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use tombolo_storage::layer::throttle::Latency;
use tombolo_workload::{Target, TargetError};

/// What all engines are opened with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The database's own directory.
    pub directory: PathBuf,
    /// The database's URI in a bucket, in place of the directory. Its credentials are in the
    /// environment.
    pub bucket: Option<String>,
    /// How slow the store of the directory is, in SlateDB's case.
    pub latency: Option<Latency>,
    /// Bytes of blocks in memory.
    pub cache_bytes: u64,
    /// Bytes of one memtable; two are allowed for.
    pub memtable_bytes: u64,
    /// Past the page cache, where the engine can.
    pub direct: bool,
    /// Values of [`LARGE_BYTES`] and more lie apart, where the engine can.
    pub apart: bool,
    /// Keyspaces, column families, partitions or tables; threads take them in turn.
    pub spaces: usize,
}

impl Config {
    /// Whether its requests go to a store that is far away, or as slow as one.
    pub fn is_far(&self) -> bool {
        self.bucket.is_some() || self.latency.is_some()
    }

    /// Bytes of all memory that an engine may take.
    pub fn memory_bytes(&self) -> u64 {
        self.cache_bytes + 2 * self.memtable_bytes
    }
}

/// Bytes of a block in every LSM engine.
pub const BLOCK_BYTES: usize = 8 << 10;
/// Values from this size on are large.
pub const LARGE_BYTES: u32 = 4 << 10;
/// Filter bits of a key in every LSM engine.
pub const FILTER_BITS: u8 = 10;

/// An engine that can be opened and closed, and looked at.
pub trait Engine: Target + Sized {
    /// Opens the database, or makes it.
    fn open(config: &Config) -> Result<Self, TargetError>;

    /// Closes it: what was acknowledged must be there when it is opened again.
    fn close(self) -> Result<(), TargetError>;

    /// Sorted runs that a read may have to look at, memtables apart; `None` when the engine does
    /// not say.
    fn runs(&self) -> Option<u64>;

    /// Whether work is going on, or waits, in the background, as far as the engine says. CPU time
    /// and writes are looked at besides.
    fn is_busy(&self) -> bool;

    /// Reads that were asked of the files since it was opened; `None` when the engine does not say.
    fn file_reads(&self) -> Option<u64> {
        None
    }

    /// What was set, and what the durabilities mean here: one line.
    fn settings(config: &Config) -> String;
}

/// Where tables are made outside of the database: beside its directory, and on its file system.
#[derive(Debug)]
pub struct Outside {
    directory: PathBuf,
    number: AtomicUsize,
}

impl Outside {
    /// Of the database in this directory.
    pub fn of(database: &Path) -> Outside {
        let mut name = database.as_os_str().to_owned();
        name.push("-tables");
        Outside { directory: name.into(), number: AtomicUsize::new(0) }
    }

    /// The path of the next table.
    pub fn next(&self) -> Result<PathBuf, TargetError> {
        std::fs::create_dir_all(&self.directory).map_err(error)?;
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        Ok(self.directory.join(format!("{number}.table")))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // It is not there unless tables were made.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// An error of an engine, which trying again does not help.
pub fn error(error: impl Display) -> TargetError {
    TargetError { message: error.to_string(), retryable: false }
}

/// Hands out numbers of keyspaces in turn: each thread of a benchmark asks once, so that with two
/// keyspaces two threads have one each.
#[derive(Debug, Default)]
pub struct Turn(AtomicUsize);

impl Turn {
    /// The next, below `spaces`.
    pub fn next(&self, spaces: usize) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) % spaces.max(1)
    }
}
