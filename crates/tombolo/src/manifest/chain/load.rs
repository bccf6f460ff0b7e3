//! Finds the newest state of a chain (rule 3).
//!
//! 1. List one name: the newest slot.
//! 2. Read its record.
//! 3. Read the record that names its snapshot, then the snapshot.
//! 4. Read the records between, each linked to the next by its hash.
//! 5. List again: when it shows no higher slot, the state is proven; else read on from there and
//!    list again.
//!
//! A record or snapshot that is not there, or does not link, means that the chain was truncated
//! meanwhile: the list must show a higher slot, else it is corruption.

use bytes::Bytes;
use tombolo_format::manifest::{Record, RecordKind, decode_record};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Incarnation, Result};

use super::{
    Answer, Effect, Machine, RECORDS_PER_READ_MAX, SnapshotName, Step, Tip, misfit, missing, undecodable,
};
use crate::manifest::names;

/// What a load is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// Users of the state get it proven.
    List,
    /// A claim goes on top, whose own confirming list proves what it links to.
    Claim,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Asked for the newest slot.
    Find,
    /// Asked for the newest record.
    Head,
    /// Asked for the record that names the snapshot.
    Naming,
    /// Asked for the snapshot that this record names.
    Snapshot(RecordOf),
    /// Asked for records after the tip.
    Tail(Tip),
    /// Asked for the newest slot, to prove the tip.
    Prove(Tip),
    /// Something was not there: asked for the newest slot, which must have risen.
    Recheck(u64),
}

/// A decoded record by its bytes, so that phases compare and hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RecordOf(Bytes);

/// See the module's documentation. Comes to `None` when the chain has no records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    incarnation: Incarnation,
    proof: Proof,
    /// The slot that this load goes up to.
    newest: u64,
    /// The newest slot when this load read the newest record: all below is linked to it. Invariant:
    /// `head <= newest`.
    head: u64,
    phase: Phase,
}

type Output = Result<Option<Tip>>;

impl Load {
    /// Loads the newest state of a chain.
    pub fn new(incarnation: Incarnation, proof: Proof) -> Load {
        Load { incarnation, proof, newest: 0, head: 0, phase: Phase::Find }
    }

    /// Loads the state of `slot`, which is below the newest one and in the chain. Where that was
    /// truncated it comes to the newest state instead.
    pub fn of_slot(incarnation: Incarnation, slot: u64) -> Load {
        Load { incarnation, proof: Proof::Claim, newest: slot, head: slot, phase: Phase::Head }
    }

    fn find(&mut self) -> Step<Output> {
        self.phase = Phase::Find;
        Step::Do(Effect::NewestRecord(self.incarnation))
    }

    /// Something that the newest record links to is not there.
    fn recheck(&mut self, slot: u64) -> Step<Output> {
        self.phase = Phase::Recheck(slot);
        Step::Do(Effect::NewestRecord(self.incarnation))
    }

    fn start(&mut self, newest: u64) -> Step<Output> {
        (self.newest, self.head, self.phase) = (newest, newest, Phase::Head);
        self.read(newest)
    }

    fn read(&self, slot: u64) -> Step<Output> {
        Step::Do(Effect::ReadRecords(self.incarnation, slot..=slot))
    }

    fn decode(&self, slot: u64, bytes: &Bytes) -> Result<Record> {
        let object = names::record(self.incarnation, slot);
        let record = decode_record(bytes).map_err(|error| undecodable(&object, error))?;
        if record.slot != slot
            || record.incarnation != self.incarnation.0 && !is_enabled(Mutant::ManifestIgnoreIncarnation)
        {
            let expected = format!("record {slot} of incarnation {}", self.incarnation);
            return Err(Error::corrupt(
                object,
                32,
                expected,
                format!("record {} of incarnation {}", record.slot, record.incarnation),
            ));
        }
        Ok(record)
    }

    fn head(&mut self, bytes: &Bytes) -> Result<Step<Output>> {
        let record = self.decode(self.newest, bytes)?;
        if matches!(record.kind, RecordKind::Snapshot { .. }) {
            return self.naming(record.slot, bytes);
        }
        if record.kind == RecordKind::Destroyed {
            // What came before may be deleted.
            return Ok(self.prove(Tip::destroyed(self.incarnation, &record, bytes)));
        }
        if record.snapshot_slot == 0 {
            return Ok(self.tail(Tip::empty(self.incarnation)));
        }
        if record.snapshot_slot >= self.newest {
            let object = names::record(self.incarnation, self.newest);
            return Err(Error::corrupt(
                object,
                88,
                format!("a slot below {}", self.newest),
                record.snapshot_slot,
            ));
        }
        self.phase = Phase::Naming;
        Ok(self.read(record.snapshot_slot))
    }

    fn naming(&mut self, slot: u64, bytes: &Bytes) -> Result<Step<Output>> {
        let record = self.decode(slot, bytes)?;
        let RecordKind::Snapshot { slot: state_slot, random, length, checksum, .. } = record.kind else {
            // Another history's record in a slot that was truncated.
            return Ok(self.recheck(slot));
        };
        if state_slot >= slot {
            return Err(Error::corrupt(
                names::record(self.incarnation, slot),
                104,
                format!("a slot below {slot}"),
                state_slot,
            ));
        }
        self.phase = Phase::Snapshot(RecordOf(bytes.clone()));
        let name = SnapshotName { slot: state_slot, random, length, checksum };
        Ok(Step::Do(Effect::ReadSnapshot(self.incarnation, name)))
    }

    /// Reads on from `tip` up to the newest slot.
    fn tail(&mut self, tip: Tip) -> Step<Output> {
        if tip.slot >= self.newest {
            return self.prove(tip);
        }
        let last = self.newest.min(tip.slot + RECORDS_PER_READ_MAX);
        let slots = tip.slot + 1..=last;
        self.phase = Phase::Tail(tip);
        Step::Do(Effect::ReadRecords(self.incarnation, slots))
    }

    fn prove(&mut self, tip: Tip) -> Step<Output> {
        if self.proof == Proof::Claim || is_enabled(Mutant::ManifestBelieveWithoutList) {
            return Step::Done(Ok(Some(tip)));
        }
        self.phase = Phase::Prove(tip);
        Step::Do(Effect::NewestRecord(self.incarnation))
    }

    fn extend(&mut self, mut tip: Tip, records: Vec<Option<Bytes>>) -> Result<Step<Output>> {
        for bytes in records {
            let Some(bytes) = bytes else { return Ok(self.recheck(tip.slot + 1)) };
            tip = match tip.follow(&bytes) {
                Ok(tip) => tip,
                Err(error) if error.kind() == ErrorKind::Conflict => return Ok(self.recheck(tip.slot + 1)),
                Err(error) => return Err(error),
            };
        }
        Ok(self.tail(tip))
    }

    fn advance(&mut self, answer: Answer) -> Result<Step<Output>> {
        let phase = std::mem::replace(&mut self.phase, Phase::Find);
        match (phase, answer) {
            (Phase::Find, Answer::Newest(None)) => Ok(Step::Done(Ok(None))),
            (Phase::Find, Answer::Newest(Some(newest))) => Ok(self.start(newest)),
            (Phase::Head, Answer::Records(records)) => match records.first() {
                Some(Some(bytes)) => self.head(bytes),
                _ => Ok(self.recheck(self.newest)),
            },
            (Phase::Naming, Answer::Records(records)) => match records.first() {
                Some(Some(bytes)) => {
                    let slot = decode_record(bytes).map_or(self.newest, |record| record.slot);
                    self.naming(slot, bytes)
                }
                _ => Ok(self.recheck(self.newest)),
            },
            (Phase::Snapshot(RecordOf(bytes)), Answer::Snapshot(edits)) => {
                let record = decode_record(&bytes)
                    .map_err(|error| undecodable(&names::record(self.incarnation, self.newest), error))?;
                match edits {
                    Some(edits) => {
                        let tip = Tip::of_snapshot(self.incarnation, &record, &edits)?;
                        Ok(self.tail(tip))
                    }
                    None => Ok(self.recheck(record.slot)),
                }
            }
            (Phase::Tail(tip), Answer::Records(records)) => self.extend(tip, records),
            (Phase::Prove(tip), Answer::Newest(Some(newest))) if newest > tip.slot => {
                self.newest = newest;
                Ok(self.tail(tip))
            }
            (Phase::Prove(tip), Answer::Newest(Some(newest))) if newest == tip.slot => {
                Ok(Step::Done(Ok(Some(tip))))
            }
            (Phase::Recheck(_), Answer::Newest(Some(newest))) if newest > self.head => Ok(self.start(newest)),
            (Phase::Recheck(slot), Answer::Newest(_)) => Err(missing(self.incarnation, slot)),
            // A walk that went on while the database was destroyed, whose last record the next list
            // shows.
            (Phase::Prove(tip), Answer::Newest(_)) => Ok(self.recheck(tip.slot)),
            (_, answer) => misfit("load", &answer),
        }
    }
}

impl Machine for Load {
    type Output = Output;

    fn begin(&mut self) -> Step<Output> {
        match self.phase {
            Phase::Head => self.start(self.newest),
            _ => self.find(),
        }
    }

    fn step(&mut self, answer: Answer) -> Step<Output> {
        self.advance(answer).unwrap_or_else(|error| Step::Done(Err(error)))
    }
}
