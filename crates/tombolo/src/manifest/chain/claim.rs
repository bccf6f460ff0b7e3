//! Begins an epoch (rule 4).
//!
//! 1. Put a claim after the tip, with a fresh attempt id. 2. Until it is known what the slot holds,
//!    put the same bytes and read.
//! 3. Once the put was seen to hold the slot, list: no higher slot makes the claim effective, a
//!    higher one makes it void.
//! 4. Void: start over with a new attempt. Another's record in the slot: read it, and claim after
//!    it.
//!
//! Until it is effective its process fences, seals, deletes and serves nothing. A process that
//! starts anew claims anew, even when the newest claim is one that an earlier process of the same
//! name made: it cannot know what that one has outstanding.

use bytes::Bytes;
use tombolo_format::manifest::{RecordKind, Writer};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use super::tip::Proposed;
use super::{Answer, Effect, Machine, PutAnswer, Step, Tip, misfit, missing};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Asked for the attempt id.
    Attempt,
    /// Asked to put the claim.
    Put(Proposed),
    /// Asked what the slot holds.
    Read(Proposed),
    /// Asked for the newest slot, after the claim was seen in its own.
    Confirm(Proposed),
}

/// How a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The epoch is the tip's slot, and this process is its writer.
    Effective(Tip),
    /// Others' records came first, and the tip now ends with them: look at the state, then claim
    /// after it.
    Behind(Tip),
    /// The tip is not the chain's, or the claim landed below the newest record: load again from the
    /// newest.
    Void,
}

/// One attempt at a claim; see the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    tip: Tip,
    /// Who claims.
    writer: Box<Writer>,
    /// Whether a put of unknown outcome was made: it is then never given up before the slot was
    /// read.
    unknown: bool,
    phase: Phase,
}

impl Claim {
    /// A claim of `writer` right after `tip`.
    pub fn new(tip: Tip, writer: Writer) -> Claim {
        Claim { tip, writer: Box::new(writer), unknown: false, phase: Phase::Attempt }
    }

    fn put(&mut self, proposed: Proposed) -> Step<Result<Claimed>> {
        let effect = Effect::PutRecord(self.tip.incarnation, proposed.tip.slot, proposed.bytes.clone());
        self.phase = Phase::Put(proposed);
        Step::Do(effect)
    }

    fn confirm(&mut self, proposed: Proposed) -> Step<Result<Claimed>> {
        if is_enabled(Mutant::ClaimWithoutConfirmingList) {
            return Step::Done(Ok(Claimed::Effective(proposed.tip)));
        }
        self.phase = Phase::Confirm(proposed);
        Step::Do(Effect::NewestRecord(self.tip.incarnation))
    }

    fn has_put(&mut self, proposed: Proposed, answer: PutAnswer) -> Step<Result<Claimed>> {
        match answer {
            PutAnswer::Created => self.confirm(proposed),
            PutAnswer::Exists => {
                let slot = proposed.tip.slot;
                self.phase = Phase::Read(proposed);
                Step::Do(Effect::ReadRecords(self.tip.incarnation, slot..=slot))
            }
            PutAnswer::Unknown => {
                self.unknown = true;
                self.put(proposed)
            }
            PutAnswer::Refused(_) if self.unknown => self.put(proposed),
            PutAnswer::Refused(error) => Step::Done(Err(error)),
        }
    }

    fn has_read(&mut self, proposed: Proposed, held: Option<Bytes>) -> Step<Result<Claimed>> {
        match held {
            Some(held) if held == proposed.bytes => self.confirm(proposed),
            Some(held) => Step::Done(match self.tip.follow(&held) {
                Ok(tip) => Ok(Claimed::Behind(tip)),
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(Claimed::Void),
                Err(error) => Err(error),
            }),
            // Something was there and is deleted: the chain has gone far beyond.
            None => Step::Done(Ok(Claimed::Void)),
        }
    }

    fn has_listed(&self, proposed: Proposed, newest: Option<u64>) -> Result<Claimed> {
        let slot = proposed.tip.slot;
        match newest {
            Some(newest) if newest > slot => Ok(Claimed::Void),
            Some(newest) if newest == slot => Ok(Claimed::Effective(proposed.tip)),
            _ => Err(missing(self.tip.incarnation, slot)),
        }
    }
}

impl Machine for Claim {
    type Output = Result<Claimed>;

    fn begin(&mut self) -> Step<Result<Claimed>> {
        if is_enabled(Mutant::ClaimContinueForeignEpoch) && self.tip.epoch() != Epoch::NONE {
            return Step::Done(Ok(Claimed::Effective(self.tip.clone())));
        }
        if self.tip.state.is_destroyed() {
            return Step::Done(Err(Error::new(ErrorKind::Bug, "a claim after the end of the incarnation")));
        }
        self.phase = Phase::Attempt;
        Step::Do(Effect::Random)
    }

    fn step(&mut self, answer: Answer) -> Step<Result<Claimed>> {
        let phase = std::mem::replace(&mut self.phase, Phase::Attempt);
        match (phase, answer) {
            (Phase::Attempt, Answer::Random(attempt)) => {
                let kind = RecordKind::Claim(Writer::clone(&self.writer));
                match self.tip.propose(Epoch(self.tip.slot + 1), attempt, kind) {
                    Ok(proposed) => self.put(proposed),
                    Err(error) => Step::Done(Err(error)),
                }
            }
            (Phase::Put(proposed), Answer::Put(answer)) => self.has_put(proposed, answer),
            (Phase::Read(proposed), Answer::Records(mut records)) => {
                self.has_read(proposed, records.pop().flatten())
            }
            (Phase::Confirm(proposed), Answer::Newest(newest)) => {
                Step::Done(self.has_listed(proposed, newest))
            }
            (_, answer) => Step::Done(misfit("claim", &answer)),
        }
    }
}
