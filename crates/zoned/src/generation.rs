//! Generations of a device's metadata: where the newest one stands, and the next while it is made.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_format::checksum::StreamHash;
use tombolo_format::zoned::UnitKind;
use tombolo_storage::mutant::{Mutant, is_enabled};

/// Where the metadata's log stands.
#[derive(Debug)]
pub struct MetadataLog {
    /// The zone of the newest generation.
    pub zone: u32,
    /// That of the one before, while it is there.
    pub previous: Option<u32>,
    /// The newest generation.
    pub generation: u64,
    /// The next unit of it.
    pub number: u64,
    /// Where that goes, in bytes of the zone.
    pub at: u64,
    /// Where the snapshot ended.
    pub snapshot_end: u64,
    /// The next generation, while it is being made.
    pub roll: Option<Arc<Roll>>,
    /// What lies at `at` is not known, or a later generation may be whole: nothing is written to
    /// this one any more.
    pub is_doubtful: bool,
    /// Metadata zones that take no writes any more.
    pub worn: Vec<u32>,
}

/// Counters of the metadata's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataCounts {
    /// Transactions.
    pub transactions: u64,
    /// Generations begun since it was opened.
    pub rolls: u64,
    /// Of these, such as a transaction had to wait for from the first to the last write.
    pub rolls_waited_for: u64,
    /// Bytes written to metadata zones.
    pub bytes: u64,
}

/// A generation that is being made, in a zone that was reset for it.
#[derive(Debug)]
pub struct Roll {
    /// The zone.
    pub zone: u32,
    /// Its number.
    pub generation: u64,
    /// Syncs that had failed when it was begun.
    pub failed_syncs: u64,
    /// How far it is.
    pub inner: Mutex<Inner>,
    /// Transactions since the snapshot's moment.
    pub pending: Mutex<Vec<u8>>,
}

/// How far a generation is.
#[derive(Debug)]
pub struct Inner {
    /// Units still to be written.
    pub units: VecDeque<(UnitKind, Vec<u8>)>,
    /// The next unit.
    pub number: u64,
    /// Where that goes.
    pub at: u64,
    /// Of the parts' payloads, and how many records they hold.
    pub hash: StreamHash,
    /// See `hash`.
    pub records: u64,
    /// A write failed: this generation will not be whole.
    pub is_broken: bool,
}

impl Roll {
    /// Takes in a transaction that went to the generation before.
    pub fn add(&self, payload: &[u8]) {
        if !is_enabled(Mutant::ZonedRollForgetsChanges) {
            self.pending.lock().extend_from_slice(payload);
        }
    }
}

/// A metadata zone at a moment: how far it is written, and the generation in it.
pub type MetadataZone = (u64, Option<(u128, u64)>);
