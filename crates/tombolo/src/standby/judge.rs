//! When a writer is given up: from what lists of its signs show, on this process's clock alone.

use std::time::Duration;

use tombolo_env::Instant;

use crate::manifest::names::Sign;

/// What to do about the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It lives, as far as can be told.
    Wait,
    /// It lives, and will hand over in a moment.
    Leaving,
    /// It is gone.
    Gone,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judge {
    /// The writer that is watched.
    epoch: u64,
    /// Its newest sign; `None` before the first.
    sign: Option<Sign>,
    /// After the list that first showed it; as long as none was heard, since when there is
    /// something to hear.
    since: Instant,
    /// It knows that somebody stands by: it has given a sign since that was told.
    is_heard: bool,
    /// This process has claimed the epoch itself, and could not open: it has no writer.
    is_own: bool,
    silence_max: Duration,
    /// How long a writer may take to give its first sign.
    unseen_max: Duration,
}

impl Judge {
    pub(super) fn new(epoch: u64, now: Instant, silence_max: Duration, unseen_max: Duration) -> Judge {
        Judge { epoch, sign: None, since: now, is_heard: false, is_own: false, silence_max, unseen_max }
    }

    /// The epoch that is watched and the number of its next sign of life; `None` when something
    /// else may come.
    pub(super) fn next_beat(&self) -> Option<(u64, u64)> {
        match self.sign {
            Some(Sign::Beat(beat)) => Some((self.epoch, beat + 1)),
            _ => None,
        }
    }

    /// Takes in the newest sign of the newest writer, from a list that began at `began` and was
    /// complete at `ended`.
    pub(super) fn observe(&mut self, began: Instant, ended: Instant, newest: Option<(u64, Sign)>) -> Verdict {
        match newest {
            Some((epoch, sign))
                if epoch > self.epoch
                    || epoch == self.epoch && self.sign.is_none_or(|known| known < sign) =>
            {
                (self.epoch, self.sign, self.since, self.is_heard) = (epoch, Some(sign), ended, true);
                self.is_own = false;
            }
            // It could not hand over, and has taken that back.
            Some((epoch, sign @ Sign::Beat(_)))
                if epoch == self.epoch && self.sign == Some(Sign::Leaving) =>
            {
                (self.sign, self.since, self.is_heard) = (Some(sign), ended, true);
            }
            _ => {}
        }
        let allowed = if self.is_heard { self.silence_max } else { self.unseen_max };
        match self.sign {
            _ if self.is_own => Verdict::Gone,
            Some(Sign::Left) => Verdict::Gone,
            // It flushes and closes, which takes what it takes; one that dies over it is missed
            // like one that was never seen.
            Some(Sign::Leaving) if began.since(self.since) < self.unseen_max => Verdict::Leaving,
            _ if began.since(self.since) >= allowed => Verdict::Gone,
            _ => Verdict::Wait,
        }
    }

    /// The store did not answer: a writer could not have been heard.
    pub(super) fn heard_nothing(&mut self, now: Instant) {
        self.since = now;
    }

    /// Who stands by was forgotten, and has told anew: a writer may have stopped giving signs long
    /// ago. `newest` is what it gave before.
    pub(super) fn told_anew(&mut self, now: Instant, newest: Option<(u64, Sign)>) {
        if let Some((epoch, sign)) =
            newest.filter(|(epoch, sign)| (*epoch, Some(*sign)) > (self.epoch, self.sign))
        {
            (self.epoch, self.sign) = (epoch, Some(sign));
        }
        (self.since, self.is_heard) = (now, false);
    }

    /// The chain says that `epoch` is the newest.
    pub(super) fn succeeded(&mut self, epoch: u64, now: Instant) {
        if epoch > self.epoch {
            (self.epoch, self.sign, self.since, self.is_heard) = (epoch, None, now, false);
            self.is_own = false;
        }
    }

    /// This process has claimed `epoch`, which is the newest, and could not open: nobody writes in
    /// it.
    pub(super) fn is_without_writer(&mut self, epoch: u64, now: Instant) {
        self.succeeded(epoch, now);
        self.is_own = epoch == self.epoch;
    }
}

#[cfg(test)]
mod tests;
