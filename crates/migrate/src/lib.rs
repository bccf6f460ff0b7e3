//! Databases of RocksDB carried over to Tombolo, and back.
//!
//! RocksDB is read and written by its own C library, which is loaded when it is needed
//! ([`Library`]): this crate links nothing of it. `survey → tables, one after the other, each
//! ingested at once → both sides read and compared`.
//!
//! Invariants:
//! 1. Whatever would be carried over wrongly is refused by name before the first byte: comparators
//!    that are not bytewise, timestamps in keys, merge operands and the TTL wrapper without their
//!    names, transactions that may be prepared.
//! 2. Keys go in their order, and a table counts whole: what a stopped run left ends at the last
//!    key that is there, and the next run goes on behind it.
//! 3. A target that holds something else is never written to.

mod back;
mod digest;
mod library;
mod over;
mod survey;

pub use back::{ToRocksdb, to_rocksdb};
pub use digest::Digest;
pub use library::Library;
pub use over::{FromRocksdb, from_rocksdb};

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Keyspaces that are done.
    pub keyspaces: u64,
    /// Entries carried over by this run.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Tables made of them.
    pub tables: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Bytes compared on both sides, once everything is there.
    pub compared_bytes: u64,
}

/// What it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// What this run did.
    pub progress: Progress,
    /// Keyspaces with the digests of both sides; none of them where nothing was compared.
    pub digests: Vec<(String, Digest, Digest)>,
}

/// Is told how far it is; what it answers may end it, to be gone on with later.
pub type Tell<'a> = dyn FnMut(&Progress) -> bool + 'a;

/// The error of a run that was told to end.
pub(crate) fn stopped() -> tombolo::Error {
    tombolo::Error::new(tombolo::ErrorKind::Closed, "the migration was stopped")
        .advice("run it again: it goes on where it was")
}

#[cfg(test)]
mod tests;
