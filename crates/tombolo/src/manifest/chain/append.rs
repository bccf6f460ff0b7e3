//! Puts one record after the tip of an epoch that this process has claimed (rules 1 and 5).
//!
//! A put of unknown outcome is never given up: the same bytes go to the same slot until a read
//! shows what holds it. The own record in its slot is committed, and needs no further check.
//! Another's there means that this process is fenced; whether the own one had been there before
//! (committed, then deleted below a snapshot) cannot be known, so nothing that the record named may
//! be deleted.

use bytes::Bytes;
use tombolo_format::manifest::{Edit, RecordKind, decode_record};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, Result};

use super::tip::Proposed;
use super::{Answer, Effect, Machine, PutAnswer, Step, Tip, misfit};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Asked for the attempt id.
    Attempt(Payload),
    /// Asked to put the record.
    Put,
    /// Asked what the slot holds.
    Read,
}

/// A record's content; compared by what it will be encoded to, so that phases hash.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Payload(RecordKind);

impl std::hash::Hash for Payload {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        format!("{:?}", self.0).hash(hasher);
    }
}

/// How an append ended.
#[derive(Clone, Debug)]
pub enum Appended {
    /// The record is in its slot, and the tip ends with it.
    Committed(Tip),
    /// Another process has claimed. Whether the record took effect is unknown.
    Fenced,
    /// Nothing took effect, and nothing will: the slot is free for another record.
    Refused(Error),
    /// Only with a mutant: the writer went on without knowing.
    Unacknowledged(Tip),
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Append {
    tip: Tip,
    epoch: Epoch,
    proposed: Option<Proposed>,
    /// Whether a put of unknown outcome was made.
    unknown: bool,
    phase: Phase,
}

impl Append {
    /// Puts a record of `epoch` after `tip`.
    pub fn new(tip: Tip, epoch: Epoch, kind: RecordKind) -> Append {
        Append { tip, epoch, proposed: None, unknown: false, phase: Phase::Attempt(Payload(kind)) }
    }

    /// Hash of the record that was last put.
    #[cfg(test)]
    pub fn proposed_hash(&self) -> Option<u128> {
        self.proposed.as_ref().map(|proposed| proposed.tip.hash)
    }

    fn put(&mut self) -> Step<Result<Appended>> {
        let Some(proposed) = &self.proposed else { return Step::Done(misfit("append", &Answer::Deleted)) };
        self.phase = Phase::Put;
        Step::Do(Effect::PutRecord(self.tip.incarnation, proposed.tip.slot, proposed.bytes.clone()))
    }

    fn committed(&mut self) -> Step<Result<Appended>> {
        match self.proposed.take() {
            // What the mutant put in another's epoch tells its writer no less that it is fenced.
            Some(proposed) if is_enabled(Mutant::StaleJobInstalled) && proposed.tip.epoch() != self.epoch => {
                Step::Done(Ok(Appended::Fenced))
            }
            Some(proposed) => Step::Done(Ok(Appended::Committed(proposed.tip))),
            None => Step::Done(misfit("append", &Answer::Deleted)),
        }
    }

    fn has_put(&mut self, answer: PutAnswer) -> Step<Result<Appended>> {
        match answer {
            PutAnswer::Created => self.committed(),
            PutAnswer::Exists => {
                let slot = self.tip.slot + 1;
                self.phase = Phase::Read;
                Step::Do(Effect::ReadRecords(self.tip.incarnation, slot..=slot))
            }
            PutAnswer::Unknown if is_enabled(Mutant::PutUnknownTakenAsFailed) => {
                let error = Error::new(
                    tombolo_storage::ErrorKind::Retry,
                    "the mutant takes an unknown outcome for a failure",
                );
                Step::Done(Ok(Appended::Refused(error)))
            }
            PutAnswer::Unknown if is_enabled(Mutant::ManifestSeveralPutsOutstanding) => {
                match self.proposed.take() {
                    Some(proposed) => Step::Done(Ok(Appended::Unacknowledged(proposed.tip))),
                    None => self.committed(),
                }
            }
            PutAnswer::Unknown => {
                self.unknown = true;
                self.put()
            }
            PutAnswer::Refused(_) if self.unknown => self.put(),
            PutAnswer::Refused(error) => Step::Done(Ok(Appended::Refused(error))),
        }
    }

    fn has_read(&mut self, held: Option<Bytes>) -> Step<Result<Appended>> {
        let own = self.proposed.as_ref().map(|proposed| &proposed.bytes);
        match held {
            Some(held) if Some(&held) == own => self.committed(),
            Some(held) if is_enabled(Mutant::PutForeignRecordRetriedNext) => self.retry_next(&held),
            Some(held) if is_enabled(Mutant::StaleJobInstalled) => self.install_stale(&held),
            Some(_) => Step::Done(Ok(Appended::Fenced)),
            // Deleted between put and read. A foreign claim is never deleted, so it was the own
            // record: putting it again shows that.
            None => self.put(),
        }
    }

    fn proposed_kind(&self) -> Option<RecordKind> {
        self.proposed
            .as_ref()
            .and_then(|proposed| decode_record(&proposed.bytes).ok())
            .map(|record| record.kind)
    }

    /// A mutant: takes the foreign record for one to append after.
    fn retry_next(&mut self, held: &Bytes) -> Step<Result<Appended>> {
        match (self.tip.follow(held), self.proposed_kind()) {
            (Ok(tip), Some(kind)) => {
                self.tip = tip;
                self.phase = Phase::Attempt(Payload(kind));
                Step::Do(Effect::Random)
            }
            _ => Step::Done(Ok(Appended::Fenced)),
        }
    }

    /// A mutant: takes what a compaction of an older epoch made for good as long as its inputs are
    /// there, and names it in the newest one.
    fn install_stale(&mut self, held: &Bytes) -> Step<Result<Appended>> {
        let is_job = |edits: &[Edit]| {
            let ends_inputs = edits.iter().any(|edit| matches!(edit, Edit::TableObsolete { .. }));
            ends_inputs && edits.iter().any(|edit| matches!(edit, Edit::TableAdded(_)))
        };
        match (self.tip.follow(held), self.proposed_kind()) {
            (Ok(tip), Some(RecordKind::Edits(edits)))
                if is_job(&edits)
                    && tip.propose(tip.epoch(), 0, RecordKind::Edits(edits.clone())).is_ok() =>
            {
                self.retry_next(held)
            }
            _ => Step::Done(Ok(Appended::Fenced)),
        }
    }
}

impl Machine for Append {
    type Output = Result<Appended>;

    fn begin(&mut self) -> Step<Result<Appended>> {
        Step::Do(Effect::Random)
    }

    fn step(&mut self, answer: Answer) -> Step<Result<Appended>> {
        match (self.phase.clone(), answer) {
            (Phase::Attempt(Payload(kind)), Answer::Random(attempt)) => {
                let epoch = if is_enabled(Mutant::StaleJobInstalled) { self.tip.epoch() } else { self.epoch };
                match self.tip.propose(epoch, attempt, kind) {
                    Ok(proposed) => {
                        self.proposed = Some(proposed);
                        self.put()
                    }
                    Err(error) => Step::Done(Ok(Appended::Refused(error))),
                }
            }
            (Phase::Put, Answer::Put(answer)) => self.has_put(answer),
            (Phase::Read, Answer::Records(mut records)) => self.has_read(records.pop().flatten()),
            (_, answer) => Step::Done(misfit("append", &answer)),
        }
    }
}
