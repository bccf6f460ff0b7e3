//! What the files of each kind take, and what was read and written of them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kind::FileKind;

/// Of one kind of file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindUsage {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Reads since these files were opened.
    pub reads: u64,
    /// Bytes that they gave.
    pub read_bytes: u64,
    /// Bytes appended since these files were opened.
    pub written_bytes: u64,
    /// Syncs asked for since then.
    pub syncs: u64,
}

/// Of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage(pub(crate) [KindUsage; 4]);

impl Usage {
    /// Of one kind.
    pub fn of(&self, kind: FileKind) -> KindUsage {
        self.0[kind.index()]
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters([Counter; 4]);

#[derive(Debug, Default)]
struct Counter {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self, kind: FileKind, bytes: usize) {
        let counter = &self.0[kind.index()];
        counter.reads.fetch_add(1, Ordering::Relaxed);
        counter.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn written(&self, kind: FileKind, bytes: usize) {
        self.0[kind.index()].written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, kind: FileKind) {
        self.0[kind.index()].syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fill(&self, usage: &mut Usage) {
        for (usage, counter) in usage.0.iter_mut().zip(&self.0) {
            usage.reads = counter.reads.load(Ordering::Relaxed);
            usage.read_bytes = counter.read_bytes.load(Ordering::Relaxed);
            usage.written_bytes = counter.written_bytes.load(Ordering::Relaxed);
            usage.syncs = counter.syncs.load(Ordering::Relaxed);
        }
    }
}
