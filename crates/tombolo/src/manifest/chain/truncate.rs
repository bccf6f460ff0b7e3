//! Deletes records below a durable snapshot, in ascending order, claims never (rule 2).
//!
//! Walks down from the snapshot's slot to the first empty one, then deletes upward all that is no
//! claim. Because every truncation deletes in ascending order, one that was interrupted leaves a
//! contiguous rest, and nothing but claims lies below the first empty slot: no list of all claims
//! is needed to find where to begin.

use tombolo_format::manifest::{RecordKind, decode_record};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Incarnation, Result};

use super::{Answer, Effect, Machine, Step, misfit, undecodable};
use crate::manifest::names;

const SLOTS_PER_READ: u64 = 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Asked for the records of these slots, the last of which is the highest not yet seen.
    Walk(u64, u64),
    /// Asked to delete one.
    Delete,
}

/// See the module's documentation. Comes to the number of records deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Truncate {
    incarnation: Incarnation,
    /// Records to delete, descending: the next is the last.
    doomed: Vec<u64>,
    deleted: u64,
    phase: Phase,
}

impl Truncate {
    /// Deletes up to `through`, whose state a snapshot holds that a record in the chain names.
    pub fn new(incarnation: Incarnation, through: u64) -> Truncate {
        Truncate { incarnation, doomed: Vec::new(), deleted: 0, phase: Phase::Walk(0, through) }
    }

    fn walk(&mut self, last: u64) -> Step<Result<u64>> {
        if last == 0 {
            return self.delete();
        }
        let first = last.saturating_sub(SLOTS_PER_READ - 1).max(1);
        self.phase = Phase::Walk(first, last);
        Step::Do(Effect::ReadRecords(self.incarnation, first..=last))
    }

    fn delete(&mut self) -> Step<Result<u64>> {
        self.phase = Phase::Delete;
        let next = if is_enabled(Mutant::ManifestDeleteDescending) && !self.doomed.is_empty() {
            Some(self.doomed.remove(0))
        } else {
            self.doomed.pop()
        };
        match next {
            Some(slot) => Step::Do(Effect::DeleteRecord(self.incarnation, slot)),
            None => Step::Done(Ok(self.deleted)),
        }
    }
}

impl Machine for Truncate {
    type Output = Result<u64>;

    fn begin(&mut self) -> Step<Result<u64>> {
        match self.phase {
            Phase::Walk(_, last) => self.walk(last),
            Phase::Delete => self.delete(),
        }
    }

    fn step(&mut self, answer: Answer) -> Step<Result<u64>> {
        match (&self.phase, answer) {
            (Phase::Walk(first, last), Answer::Records(records)) => {
                let (first, last) = (*first, *last);
                for (slot, bytes) in (first..=last).rev().zip(records.into_iter().rev()) {
                    let Some(bytes) = bytes else { return self.delete() };
                    match decode_record(&bytes) {
                        Ok(record)
                            if matches!(record.kind, RecordKind::Claim(_))
                                && !is_enabled(Mutant::ManifestDeleteClaims) => {}
                        Ok(_) => self.doomed.push(slot),
                        Err(error) => {
                            return Step::Done(Err(undecodable(
                                &names::record(self.incarnation, slot),
                                error,
                            )));
                        }
                    }
                }
                self.walk(first - 1)
            }
            (Phase::Delete, Answer::Deleted) => {
                self.deleted += 1;
                self.delete()
            }
            (_, answer) => Step::Done(misfit("truncate", &answer)),
        }
    }
}
