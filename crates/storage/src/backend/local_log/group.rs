//! Who syncs, and who waits: durable commits of one lane group by themselves.
//!
//! At most one leads, and does one round of syncing after the other as long as somebody waits. A
//! round covers all that was accepted when it began; a caller that comes meanwhile belongs to the
//! next. No IO here, and no clock.
//!
//! Threads that write again as soon as a write is durable would fall into two halves, each of which
//! waits for the other's sync. So a leader looks for those that the last round let go
//! ([`Group::missing`]), for a part of the time that a sync takes; where they do not come, more and
//! more seldom.

use tombolo_env::{Completer, Completion, completion};

use crate::{LogOffset, Result};

/// How a waiting thread goes on.
#[derive(Debug)]
pub(super) enum Wake {
    /// With this result.
    Done(Result<()>),
    /// By leading the next round.
    Lead,
}

#[derive(Debug)]
enum Waiter {
    /// A handle that somebody may look at later.
    Ticket(Completer<Result<()>>),
    /// A parked thread, which can lead.
    Thread(Completer<Wake>),
}

/// What somebody who wants to be durable gets.
#[derive(Debug)]
pub(super) enum Joined<T> {
    /// Lead: nobody else does.
    Lead,
    /// Wait for this.
    Wait(T),
}

/// What becomes of the lead after a round.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nobody waits; nobody leads.
    Rest,
    /// Somebody waits: the leader leads on.
    LeadOn,
    /// A waiting thread was woken to lead.
    HandedOver,
}

/// The waiters of one lane.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Invariant: while set, exactly one thread or task is the leader, or is woken to be it.
    leading: bool,
    waiters: Vec<(LogOffset, Waiter)>,
    /// Who waited when the last round ended, its leader and those that it let go included.
    crowd: usize,
    /// Rounds before which nobody is looked for, and how many they are the next time that it is in
    /// vain.
    rounds_without: u32,
    rounds_lost: u32,
}

/// Most rounds in a row before which nobody is looked for.
const ROUNDS_WITHOUT_MAX: u32 = 64;

impl Group {
    /// How many of those that waited in the last round are not here, before a round that is worth
    /// waiting for them. `leader`: 1 if the leader is one of them.
    pub(super) fn begin_gathering(&mut self, leader: usize) -> usize {
        if self.rounds_without > 0 {
            self.rounds_without -= 1;
            return 0;
        }
        self.missing(leader)
    }

    /// How many of them are not here.
    pub(super) fn missing(&self, leader: usize) -> usize {
        // A task that nobody waits for has all the time.
        if self.waiters.len() + leader == 0 {
            0
        } else {
            self.crowd.saturating_sub(self.waiters.len() + leader)
        }
    }

    /// After it: of `missing` then some have come.
    pub(super) fn end_gathering(&mut self, missing: usize, leader: usize) {
        let is_vain = self.missing(leader) * 2 > missing;
        self.rounds_lost = if is_vain { (self.rounds_lost * 2).clamp(1, ROUNDS_WITHOUT_MAX) } else { 0 };
        self.rounds_without = self.rounds_lost;
    }

    /// A thread wants to wait for `end`.
    pub(super) fn join_thread(&mut self, end: LogOffset) -> Joined<Completion<Wake>> {
        if !self.leading {
            self.leading = true;
            return Joined::Lead;
        }
        let (completer, waiting) = completion();
        self.waiters.push((end, Waiter::Thread(completer)));
        Joined::Wait(waiting)
    }

    /// Somebody wants a ticket for `end`. The flag: whether a leader must be found.
    pub(super) fn join_ticket(&mut self, end: LogOffset) -> (Completion<Result<()>>, bool) {
        let (completer, waiting) = completion();
        self.waiters.push((end, Waiter::Ticket(completer)));
        (waiting, !std::mem::replace(&mut self.leading, true))
    }

    /// Takes the lead if it is free, waiting for nothing.
    pub(super) fn try_lead(&mut self) -> bool {
        !std::mem::replace(&mut self.leading, true)
    }

    /// After a round: everything before `durable` is durable, or the lane failed. `may_hand_over`:
    /// the leader is a thread that wants to go its way. The finished waiters are to be woken
    /// outside the lock.
    pub(super) fn round_ended(
        &mut self,
        durable: LogOffset,
        failure: Option<&crate::Error>,
        may_hand_over: bool,
    ) -> (Finished, Next) {
        debug_assert!(self.leading);
        // A leader that may hand over is a thread that waited itself.
        self.crowd = self.waiters.len() + usize::from(may_hand_over);
        let mut finished = Finished {
            waiters: Vec::new(),
            result: failure.map_or(Ok(()), |error| Err(error.clone())),
            lead: None,
        };
        let is_done = |end: LogOffset| failure.is_some() || end <= durable;
        let mut index = 0;
        while index < self.waiters.len() {
            if is_done(self.waiters[index].0) {
                finished.waiters.push(self.waiters.swap_remove(index).1);
            } else {
                index += 1;
            }
        }
        if self.waiters.is_empty() {
            self.leading = false;
            return (finished, Next::Rest);
        }
        if may_hand_over
            && let Some(index) =
                self.waiters.iter().position(|(_, waiter)| matches!(waiter, Waiter::Thread(_)))
            && let (_, Waiter::Thread(completer)) = self.waiters.swap_remove(index)
        {
            finished.lead = Some(completer);
            return (finished, Next::HandedOver);
        }
        (finished, Next::LeadOn)
    }
}

/// Waiters whose wait is over.
#[derive(Debug)]
#[must_use = "wake them outside the lock"]
pub(super) struct Finished {
    waiters: Vec<Waiter>,
    result: Result<()>,
    lead: Option<Completer<Wake>>,
}

impl Finished {
    /// Wakes them all; the next leader first.
    pub(super) fn wake(self) {
        if let Some(lead) = self.lead {
            lead.complete(Wake::Lead);
        }
        for waiter in self.waiters {
            match waiter {
                Waiter::Ticket(completer) => completer.complete(self.result.clone()),
                Waiter::Thread(completer) => completer.complete(Wake::Done(self.result.clone())),
            }
        }
    }
}

#[cfg(test)]
mod tests;
