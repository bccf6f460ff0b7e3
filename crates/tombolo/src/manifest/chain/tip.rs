//! The end of a chain as a process knows it: where the next record goes, and the state that all
//! records so far build.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::manifest::{Edit, Record, RecordKind, decode_record, encode_record, record_hash};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, Result};

use super::undecodable;
use crate::manifest::names;
use crate::manifest::state::State;

/// A snapshot as a record names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotName {
    /// It holds the state of this slot.
    pub slot: u64,
    /// Fresh randomness in its name.
    pub random: u64,
    /// Length of the object in bytes.
    pub length: u64,
    /// Checksum of the object.
    pub checksum: u64,
}

/// What a process knows of a chain up to one slot. Two tips of one slot with one hash are equal:
/// the hash stands for the whole history.
#[derive(Clone, Debug)]
pub struct Tip {
    /// The database's life.
    pub incarnation: Incarnation,
    /// The last record's slot; 0 before the first.
    pub slot: u64,
    /// Hash of the last record's bytes; 0 before the first.
    pub hash: u128,
    /// Slot of the newest record that names a snapshot, at or before `slot`; 0 when there is none.
    pub snapshot_slot: u64,
    /// That snapshot.
    pub snapshot: Option<SnapshotName>,
    /// Records after the snapshot's state.
    pub tail_records: u64,
    /// Their bytes.
    pub tail_bytes: u64,
    /// What the records build.
    pub state: Arc<State>,
}

impl PartialEq for Tip {
    fn eq(&self, other: &Tip) -> bool {
        (self.incarnation, self.slot, self.hash) == (other.incarnation, other.slot, other.hash)
    }
}

impl Eq for Tip {}

impl Hash for Tip {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.incarnation, self.slot, self.hash).hash(hasher);
    }
}

/// A record that is to follow a tip.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposed {
    /// Its bytes.
    pub bytes: Bytes,
    /// The tip once it is in its slot.
    pub tip: Tip,
}

impl Tip {
    /// The tip of a chain without records.
    pub fn empty(incarnation: Incarnation) -> Tip {
        Tip {
            incarnation,
            slot: 0,
            hash: 0,
            snapshot_slot: 0,
            snapshot: None,
            tail_records: 0,
            tail_bytes: 0,
            state: Arc::default(),
        }
    }

    /// The tip of an incarnation that has ended.
    pub fn destroyed(incarnation: Incarnation, last: &Record, bytes: &Bytes) -> Tip {
        let state = Arc::new(State::destroyed(last.slot, Epoch(last.epoch)));
        Tip { slot: last.slot, hash: record_hash(bytes), state, ..Tip::empty(incarnation) }
    }

    /// The tip that a snapshot stands for, as of the record that names it.
    ///
    /// # Errors
    /// `Corrupt` when the edits do not fit each other.
    pub fn of_snapshot(incarnation: Incarnation, naming: &Record, edits: &[Edit]) -> Result<Tip> {
        let RecordKind::Snapshot { slot, epoch, record_hash, random, length, checksum } = naming.kind else {
            return Err(Error::new(ErrorKind::Bug, "the record names no snapshot"));
        };
        let object = names::snapshot(incarnation, slot, random);
        let state = State::from_snapshot(slot, Epoch(epoch), edits)
            .map_err(|error| Error::corrupt(object, 0, "edits that fit each other", error))?;
        let snapshot = SnapshotName { slot, random, length, checksum };
        Ok(Tip {
            incarnation,
            slot,
            hash: record_hash,
            snapshot_slot: naming.slot,
            snapshot: Some(snapshot),
            tail_records: 0,
            tail_bytes: 0,
            state: Arc::new(state),
        })
    }

    /// The epoch of the last record.
    pub fn epoch(&self) -> Epoch {
        self.state.epoch()
    }

    /// The record that would follow, and the tip after it.
    ///
    /// # Errors
    /// `Bug` when it does not fit the state, `Invalid` when it is too large.
    pub fn propose(&self, epoch: Epoch, attempt: u128, kind: RecordKind) -> Result<Proposed> {
        let record = Record {
            incarnation: self.incarnation.0,
            slot: self.slot + 1,
            epoch: epoch.0,
            attempt,
            predecessor_hash: self.hash,
            snapshot_slot: if self.snapshot_slot <= self.slot { self.snapshot_slot } else { 0 },
            kind,
        };
        let bytes =
            encode_record(&record).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        let tip = self.extended(&record, &bytes).map_err(|why| {
            Error::new(ErrorKind::Bug, format!("an edit of the manifest does not fit: {why}"))
        })?;
        Ok(Proposed { bytes, tip })
    }

    /// The tip after the record whose bytes were read from the next slot. The record is checked
    /// against its name and linked by its hash.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged or does not fit; `Unsupported` when a newer version wrote it;
    /// `Conflict` when it is sound but does not link: it belongs to another history of this slot.
    pub fn follow(&self, bytes: &Bytes) -> Result<Tip> {
        let object = names::record(self.incarnation, self.slot + 1);
        let record = decode_record(bytes).map_err(|error| undecodable(&object, error))?;
        let belongs = record.slot == self.slot + 1 && record.incarnation == self.incarnation.0;
        if !belongs && !is_enabled(Mutant::ManifestIgnoreIncarnation) {
            let expected = format!("record {} of incarnation {}", self.slot + 1, self.incarnation);
            return Err(Error::corrupt(
                object,
                32,
                expected,
                format!("record {} of incarnation {}", record.slot, record.incarnation),
            ));
        }
        if record.predecessor_hash != self.hash && !is_enabled(Mutant::ManifestIgnoreHash) {
            return Err(Error::new(ErrorKind::Conflict, "a record of another history").object(object));
        }
        self.extended(&record, bytes)
            .map_err(|why| Error::corrupt(object, 0, "edits that fit the state", why))
    }

    fn extended(
        &self,
        record: &Record,
        bytes: &Bytes,
    ) -> std::result::Result<Tip, super::super::state::EditError> {
        let mut tip = self.clone();
        Arc::make_mut(&mut tip.state).apply_record(record)?;
        tip.slot = record.slot;
        tip.hash = record_hash(bytes);
        tip.tail_records += 1;
        tip.tail_bytes += bytes.len() as u64;
        if let RecordKind::Snapshot { slot, random, length, checksum, .. } = record.kind {
            // While folding up from a snapshot, the record that names it comes by: it is the newest
            // one still.
            if tip.snapshot.is_none_or(|known| known.slot < slot) {
                tip.tail_records = record.slot - slot;
            }
            tip.snapshot_slot = record.slot;
            tip.snapshot = Some(SnapshotName { slot, random, length, checksum });
        }
        Ok(tip)
    }

    /// Whether a snapshot is due: when reading the tail costs as much as reading a snapshot. A
    /// record counts for at least 4 KiB, which is about what a request costs beside its bytes.
    pub fn wants_snapshot(&self) -> bool {
        if self.state.has_begun() {
            return false;
        }
        const RECORD_COST_BYTES: u64 = 4 << 10;
        const TAIL_COST_BYTES_MIN: u64 = 256 << 10;
        let cost = self.tail_bytes.saturating_add(self.tail_records.saturating_mul(RECORD_COST_BYTES));
        cost >= self.snapshot.map_or(0, |snapshot| snapshot.length).max(TAIL_COST_BYTES_MIN)
    }
}
