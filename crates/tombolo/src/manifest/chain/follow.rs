//! Brings a reader's tip up to date (rule 3): polls the next slot, reads on while there are
//! records, and when a confirmation is due lists once: the records read are believed when the list
//! shows no higher slot, or when they are linked to believed ones.
//!
//! Without a list nothing new is believed: the next slot may hold what a stale process put there
//! after it was truncated.

use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{ErrorKind, Result};

use super::{Answer, Effect, Machine, RECORDS_PER_READ_MAX, Step, Tip, misfit};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Asked for the next records.
    Poll,
    /// Asked for the newest slot.
    Prove,
}

/// How a poll ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// This tip is proven to have been the newest at a moment after the poll began.
    Current(Tip),
    /// The next slot was empty when it was read, and no confirmation was asked for: the proven tip
    /// stays.
    Unchanged,
    /// The chain was truncated beyond the tip: load again.
    Lost,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Follow {
    proven: Tip,
    read: Tip,
    /// Whether to list even when the next slot is empty: once per stated lag, and after any pause.
    confirm: bool,
    /// What a list showed.
    newest: u64,
    phase: Phase,
}

impl Follow {
    /// One poll from a proven tip.
    pub fn new(proven: Tip, confirm: bool) -> Follow {
        Follow { read: proven.clone(), proven, confirm, newest: 0, phase: Phase::Poll }
    }

    fn poll(&mut self) -> Step<Result<Followed>> {
        self.phase = Phase::Poll;
        let last = if self.newest > self.read.slot {
            self.newest.min(self.read.slot + RECORDS_PER_READ_MAX)
        } else {
            self.read.slot + 1
        };
        Step::Do(Effect::ReadRecords(self.read.incarnation, self.read.slot + 1..=last))
    }

    fn prove(&mut self) -> Step<Result<Followed>> {
        if is_enabled(Mutant::ManifestBelieveWithoutList) {
            return Step::Done(Ok(Followed::Current(self.read.clone())));
        }
        self.phase = Phase::Prove;
        Step::Do(Effect::NewestRecord(self.read.incarnation))
    }
}

impl Machine for Follow {
    type Output = Result<Followed>;

    fn begin(&mut self) -> Step<Result<Followed>> {
        self.poll()
    }

    fn step(&mut self, answer: Answer) -> Step<Result<Followed>> {
        match (&self.phase, answer) {
            (Phase::Poll, Answer::Records(records)) => {
                for bytes in records {
                    let Some(bytes) = bytes else {
                        if self.newest > self.read.slot {
                            return Step::Done(Ok(Followed::Lost));
                        }
                        let confirms = self.confirm && !is_enabled(Mutant::FollowNeverConfirms);
                        return if confirms || self.read != self.proven {
                            self.prove()
                        } else {
                            Step::Done(Ok(Followed::Unchanged))
                        };
                    };
                    match self.read.follow(&bytes) {
                        Ok(tip) => self.read = tip,
                        Err(error) if error.kind() == ErrorKind::Conflict => {
                            return Step::Done(Ok(Followed::Lost));
                        }
                        Err(error) => return Step::Done(Err(error)),
                    }
                }
                if self.newest > 0 && self.newest <= self.read.slot { self.prove() } else { self.poll() }
            }
            (Phase::Prove, Answer::Newest(newest)) => {
                let newest = newest.unwrap_or(0);
                if newest > self.read.slot {
                    self.newest = newest;
                    return self.poll();
                }
                if newest < self.read.slot {
                    return Step::Done(Ok(Followed::Lost));
                }
                Step::Done(Ok(Followed::Current(self.read.clone())))
            }
            (_, answer) => Step::Done(misfit("follow", &answer)),
        }
    }
}
