//! What may be seen, and what must be found: the expected state of a database under concurrent
//! clients, crashes and takeovers.
//!
//! A session is one handle of the database, from a successful open to its end; its epoch orders it
//! among the others. Within a session writes are ordered by their calls. Everything that the engine
//! promises is a statement about prefixes of that order:
//!
//! 1. A session shows its base with a prefix of its writes: at least those that had
//!    ended before the read began, at most those that were called before it ended. Reads at one
//!    snapshot see one prefix.
//! 2. What the next session finds is the base with a prefix of the logged writes of the one before:
//!    at least those acknowledged as durable; as accepted, unless the power went since. Of the
//!    unlogged writes a prefix of their own, at least what a flush covered.
//! 3. What a session acknowledges after its successor was opened lies in the prefix that the
//!    successor found.
//! 4. A refused write is in no prefix.
//!
//! Every opener reads everything before it writes ([`Oracle::found`]), so that at most one
//! session's end is open at a time.

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{Durability, ErrorKind};

use crate::failure::{Report, Violation};

pub use state::{Change, Content, State, show};

#[cfg(test)]
mod tests;

/// The oracle as clients of one world share it. Held only for a moment, never across a call of the
/// engine.
pub type Shared = Arc<Mutex<Oracle>>;

/// A session, by its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// A write: its session and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId {
    /// The session.
    pub session: SessionId,
    /// The place, from 0.
    pub index: usize,
}

/// How a write ended, as far as its caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Not yet, or the process ended before.
    Open,
    /// With success.
    Acknowledged,
    /// It may have taken effect or not.
    Unknown,
    /// It has no effect.
    Refused,
}

#[derive(Clone, Debug)]
struct Write {
    changes: Vec<Change>,
    durability: Durability,
    outcome: Outcome,
}

/// Prefixes as lengths: of the logged and of the unlogged writes that survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    logged: usize,
    unlogged: usize,
}

#[derive(Debug)]
struct Session {
    /// What it found when it was opened; `None` until it has read everything.
    base: Option<State>,
    writes: Vec<Write>,
    /// Logged writes below survive everything.
    durable: usize,
    /// Logged writes below survive the process.
    accepted: usize,
    /// Unlogged writes below survive everything.
    unlogged: usize,
    /// Writes below were acknowledged: reads that begin now see them.
    visible: usize,
    /// While there are only so many attempts to open, nobody can have fenced it; `None`: somebody
    /// was opening already.
    unchallenged: Option<u64>,
    /// The successor that found what survived, and the longest cut that agrees with what it found.
    sealed: Option<(SessionId, Cut)>,
}

impl Session {
    fn apply_below(&self, state: &mut State, cut: Cut) {
        for (index, write) in self.writes.iter().enumerate() {
            let limit = if write.durability == Durability::Unlogged { cut.unlogged } else { cut.logged };
            if index < limit && write.outcome != Outcome::Refused {
                write.changes.iter().for_each(|change| state.apply(change));
            }
        }
    }

    /// The longest cut at or above the bounds after which the state is `found`.
    fn find_cut(&self, base: &State, found: &State, logged_min: usize) -> Option<Cut> {
        let count = self.writes.len();
        let unlogged: Vec<usize> =
            (0..count).filter(|index| self.writes[*index].durability == Durability::Unlogged).collect();
        let mut limits: Vec<usize> =
            unlogged.iter().map(|index| index + 1).filter(|limit| *limit > self.unlogged).collect();
        limits.push(self.unlogged);
        limits.sort_unstable_by(|left, right| right.cmp(left));
        let mut best: Option<Cut> = None;
        for unlogged in limits {
            let logged = self.longest_logged(base, found, logged_min, unlogged);
            if let Some(logged) = logged
                && best.is_none_or(|best| best.logged < logged)
            {
                best = Some(Cut { logged, unlogged });
            }
        }
        best
    }

    fn longest_logged(
        &self,
        base: &State,
        found: &State,
        logged_min: usize,
        unlogged: usize,
    ) -> Option<usize> {
        // An unlogged write hides logged ones before it, whether they survived or not: then each
        // state is built anew.
        let hidden = self.writes.iter().any(|write| write.durability == Durability::Unlogged);
        let mut best = None;
        let mut state = base.clone();
        self.apply_below(&mut state, Cut { logged: logged_min, unlogged });
        for logged in logged_min..=self.writes.len() {
            if logged > logged_min {
                if hidden {
                    state = base.clone();
                    self.apply_below(&mut state, Cut { logged, unlogged });
                } else if self.writes[logged - 1].outcome != Outcome::Refused {
                    self.writes[logged - 1].changes.iter().for_each(|change| state.apply(change));
                }
            }
            if state.fingerprint() == found.fingerprint() {
                best = Some(logged);
            }
        }
        best
    }
}

/// What one moment of a session may look like; reads narrow it down.
#[derive(Clone, Debug)]
pub struct View {
    session: SessionId,
    /// Prefix lengths that agree with everything read so far.
    candidates: Vec<usize>,
}

/// Everything that clients of one database called and were answered.
#[derive(Debug, Default)]
pub struct Oracle {
    sessions: BTreeMap<SessionId, Session>,
    /// The newest session that has returned from opening.
    newest: Option<SessionId>,
    /// Attempts to open so far, and those of them that have not ended.
    attempts: u64,
    attempts_open: BTreeSet<u64>,
    /// Attempts during the whole of which no other was under way.
    attempts_alone: BTreeSet<u64>,
    /// The operations, for the report.
    pub report: Report,
}

impl Oracle {
    /// An oracle of a database that does not exist yet.
    pub fn shared() -> Shared {
        Arc::new(Mutex::new(Oracle::default()))
    }

    fn session(&mut self, id: SessionId) -> Result<&mut Session, Violation> {
        self.sessions.get_mut(&id).ok_or_else(|| Violation::new(format!("no session has the epoch {}", id.0)))
    }

    /// Opening is about to be called; returns the number of the attempt.
    pub fn attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts_alone.clear();
        if self.attempts_open.is_empty() {
            self.attempts_alone.insert(self.attempts);
        }
        self.attempts_open.insert(self.attempts);
        self.attempts
    }

    /// Opening failed. Its claim may stand.
    pub fn attempt_failed(&mut self, attempt: u64) {
        self.attempts_open.remove(&attempt);
        self.report.errors += 1;
    }

    /// All processes have ended: nobody is opening any more.
    pub fn all_ended(&mut self) {
        self.attempts_open.clear();
        self.report.crashes += 1;
    }

    /// Opening returned a handle of this epoch.
    ///
    /// # Errors
    /// When the epoch was given before.
    pub fn opened(&mut self, attempt: u64, epoch: u64) -> Result<SessionId, Violation> {
        self.attempts_open.remove(&attempt);
        let id = SessionId(epoch);
        let unchallenged = self.attempts_alone.contains(&attempt).then_some(attempt);
        let session = Session {
            base: None,
            writes: Vec::new(),
            durable: 0,
            accepted: 0,
            unlogged: 0,
            visible: 0,
            unchallenged,
            sealed: None,
        };
        if self.sessions.insert(id, session).is_some() {
            return Err(Violation::new(format!("two handles have the epoch {epoch}")));
        }
        self.newest = self.newest.max(Some(id));
        self.report.opened += 1;
        Ok(id)
    }

    /// A session has read everything before its first write: decides what survived of the sessions
    /// before it.
    ///
    /// # Errors
    /// When nothing that may have survived looks like that.
    pub fn found(&mut self, id: SessionId, found: &State) -> Result<(), Violation> {
        self.report.verified += 1;
        let later = self
            .sessions
            .range((std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded))
            .find_map(|(_, later)| later.base.as_ref());
        if let Some(base) = later {
            // A successor was faster: this session has written nothing, so both have found the
            // same.
            let (count, lines) = base.differences(found, 8);
            if count > 0 {
                return Err(Violation::new(format!(
                    "a fenced session and its successor found {count} differences: {}",
                    lines.join("; ")
                )));
            }
            self.session(id)?.base = Some(found.clone());
            return Ok(());
        }
        let before = self
            .sessions
            .range(..id)
            .rev()
            .find(|(_, session)| session.base.is_some())
            .map(|(before, _)| *before);
        let cut = match before {
            None => {
                let (count, lines) = State::default().differences(found, 8);
                if count > 0 {
                    return Err(Violation::new(format!("a new database is not empty: {}", lines.join("; "))));
                }
                None
            }
            Some(before) => Some((before, self.survived(before, found)?)),
        };
        if let Some((before, cut)) = cut {
            self.session(before)?.sealed = Some((id, cut));
        }
        self.session(id)?.base = Some(found.clone());
        Ok(())
    }

    fn survived(&self, before: SessionId, found: &State) -> Result<Cut, Violation> {
        let session = &self.sessions[&before];
        let base = session.base.clone().unwrap_or_default();
        let logged_min = session.durable.max(session.accepted);
        session.find_cut(&base, found, logged_min).ok_or_else(|| {
            let Session { durable, accepted, unlogged, writes, .. } = session;
            let count = writes.len();
            // The cut that explains most, for people.
            let nearest = (logged_min..=count)
                .flat_map(|logged| [*unlogged, count].map(|unlogged| Cut { logged, unlogged }))
                .map(|cut| {
                    let mut state = base.clone();
                    session.apply_below(&mut state, cut);
                    (state.differences(found, 8), cut)
                })
                .min_by_key(|((count, _), _)| *count);
            let nearest = nearest.map_or(String::new(), |((count, lines), cut)| {
                format!(
                    "nearest is the prefix of {} logged and {} unlogged writes, with {count} differences: {}",
                    cut.logged,
                    cut.unlogged,
                    lines.join("; ")
                )
            });
            let anyway = session.find_cut(&base, found, 0).map_or(String::new(), |cut| {
                format!(
                    "; it is the prefix \
                    of {} writes",
                    cut.logged
                )
            });
            Violation::new(format!(
                "of the {count} writes of epoch {} no prefix that may have survived was found (durable: \
                {durable}, accepted: {accepted}, \
                 flushed: {unlogged}){anyway}; {nearest}",
                before.0
            ))
        })
    }

    /// A write is about to be called.
    ///
    /// # Errors
    /// When the session has not read everything yet: a mistake of the scenario.
    pub fn begin(
        &mut self,
        id: SessionId,
        changes: Vec<Change>,
        durability: Durability,
    ) -> Result<WriteId, Violation> {
        self.report.writes += 1;
        let session = self.session(id)?;
        if session.base.is_none() {
            return Err(Violation::new("the scenario writes before it has read"));
        }
        session.writes.push(Write { changes, durability, outcome: Outcome::Open });
        Ok(WriteId { session: id, index: session.writes.len() - 1 })
    }

    /// A write has ended.
    ///
    /// # Errors
    /// When it was acknowledged although the successor did not find it, or refused although it did;
    /// when the error is a bug by its kind.
    pub fn end(&mut self, write: WriteId, result: Result<(), ErrorKind>) -> Result<(), Violation> {
        let outcome = match result {
            Ok(()) => Outcome::Acknowledged,
            Err(kind) => {
                self.report.errors += 1;
                match kind {
                    ErrorKind::Fenced
                    | ErrorKind::OutcomeUnknown
                    | ErrorKind::DeadlineExceeded
                    | ErrorKind::Closed => Outcome::Unknown,
                    ErrorKind::Bug => {
                        return Err(Violation::new(format!("write {} ended as a bug", write.index)));
                    }
                    _ => Outcome::Refused,
                }
            }
        };
        let session = self.session(write.session)?;
        let Some(entry) = session.writes.get_mut(write.index) else {
            return Err(Violation::new("the scenario ends what it never began"));
        };
        entry.outcome = outcome;
        let durability = entry.durability;
        match outcome {
            Outcome::Acknowledged => {
                let through = write.index + 1;
                session.visible = session.visible.max(through);
                if durability != Durability::Unlogged {
                    session.accepted = session.accepted.max(through);
                }
                if durability == Durability::Durable {
                    session.durable = session.durable.max(through);
                }
                let sealed = session.sealed;
                if durability == Durability::Durable {
                    self.report.durable += 1;
                }
                self.acknowledged_late(write, durability, sealed)
            }
            Outcome::Refused => self.refused_late(write),
            Outcome::Open | Outcome::Unknown => Ok(()),
        }
    }

    fn acknowledged_late(
        &self,
        write: WriteId,
        durability: Durability,
        sealed: Option<(SessionId, Cut)>,
    ) -> Result<(), Violation> {
        match sealed {
            Some((successor, cut)) if durability != Durability::Unlogged && write.index >= cut.logged => {
                Err(Violation::new(format!(
                    "epoch {} acknowledged write {} as {durability:?} after epoch {} had taken over and \
                    found only {} writes",
                    write.session.0, write.index, successor.0, cut.logged
                )))
            }
            _ => Ok(()),
        }
    }

    fn refused_late(&mut self, write: WriteId) -> Result<(), Violation> {
        let session = &self.sessions[&write.session];
        let Some((successor, _)) = session.sealed else { return Ok(()) };
        let (Some(base), Some(found)) = (session.base.clone(), self.sessions[&successor].base.clone()) else {
            return Ok(());
        };
        match session.find_cut(&base, &found, session.durable) {
            Some(cut) => {
                self.session(write.session)?.sealed = Some((successor, cut));
                Ok(())
            }
            None => Err(Violation::new(format!(
                "epoch {} refused write {}, but epoch {} found it",
                write.session.0, write.index, successor.0
            ))),
        }
    }

    /// The place of the next write: hand it to [`Oracle::flushed`] or [`Oracle::closed`] of a flush
    /// or close that is called now.
    ///
    /// # Errors
    /// Without such a session.
    pub fn mark(&mut self, id: SessionId) -> Result<usize, Violation> {
        Ok(self.session(id)?.writes.len())
    }

    /// A flush ended with success; `mark` is of before its call.
    ///
    /// # Errors
    /// When a successor did not find data flushed after it had taken over.
    pub fn flushed(&mut self, id: SessionId, mark: usize) -> Result<(), Violation> {
        let session = self.session(id)?;
        // Writes in flight at the call may not have been in memory yet.
        let through = mark.min(
            session.writes.iter().position(|write| write.outcome == Outcome::Open).unwrap_or(usize::MAX),
        );
        session.unlogged = session.unlogged.max(through);
        session.durable = session.durable.max(through);
        match session.sealed {
            Some((successor, cut)) => {
                let late = (0..through).any(|index| {
                    let write = &session.writes[index];
                    let limit =
                        if write.durability == Durability::Unlogged { cut.unlogged } else { cut.logged };
                    write.outcome == Outcome::Acknowledged && index >= limit
                });
                if late {
                    return Err(Violation::new(format!(
                        "epoch {} flushed after epoch {} had taken over without that",
                        id.0, successor.0
                    )));
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A close ended with success; `mark` is of before its call.
    ///
    /// # Errors
    /// Without such a session.
    pub fn closed(&mut self, id: SessionId, mark: usize) -> Result<(), Violation> {
        let session = self.session(id)?;
        let acknowledged = (0..mark).rev().find(|index| {
            let write = &session.writes[*index];
            write.outcome == Outcome::Acknowledged && write.durability != Durability::Unlogged
        });
        session.durable = session.durable.max(acknowledged.map_or(0, |index| index + 1));
        Ok(())
    }

    /// The power went: writes that were only accepted may be gone.
    pub fn power_lost(&mut self) {
        for session in self.sessions.values_mut() {
            session.accepted = 0;
        }
    }

    /// Whether a newer session has returned from opening.
    pub fn is_superseded(&self, id: SessionId) -> bool {
        self.newest > Some(id)
    }

    /// Whether another process has opened the database since, or tried to.
    pub fn is_challenged(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_none_or(|session| session.unchallenged != Some(self.attempts))
    }

    /// A session was told that it still owns the database by a question asked when it was
    /// `superseded_before` or not.
    ///
    /// # Errors
    /// When it had been superseded.
    pub fn confirmed(&self, id: SessionId, superseded_before: bool) -> Result<(), Violation> {
        if superseded_before {
            return Err(Violation::new(format!(
                "epoch {} was confirmed after a newer one had taken over",
                id.0
            )));
        }
        Ok(())
    }

    /// Number of writes that a read that begins now must see.
    ///
    /// # Errors
    /// Without such a session.
    pub fn read_begins(&mut self, id: SessionId) -> Result<usize, Violation> {
        Ok(self.session(id)?.visible)
    }

    /// What a read may have seen that began when [`Oracle::read_begins`] said `from`, and ends now.
    ///
    /// # Errors
    /// Without such a session.
    pub fn view(&mut self, id: SessionId, from: usize) -> Result<View, Violation> {
        let through = self.session(id)?.writes.len();
        Ok(View { session: id, candidates: (from..=through).collect() })
    }

    /// The state of a session after its first `prefix` writes.
    fn state_after(&self, id: SessionId, prefix: usize) -> State {
        let Some(session) = self.sessions.get(&id) else { return State::default() };
        let mut state = session.base.clone().unwrap_or_default();
        session.apply_below(&mut state, Cut { logged: prefix, unlogged: prefix });
        state
    }

    /// Keeps the prefixes of `view` whose state `agrees`.
    ///
    /// # Errors
    /// When none does, with the words of `what` and the state expected nearest to the end.
    pub fn narrow(
        &self,
        view: &mut View,
        what: impl Fn(&State) -> String,
        agrees: impl Fn(&State) -> bool,
    ) -> Result<(), Violation> {
        let Some(session) = self.sessions.get(&view.session) else {
            return Err(Violation::new("a view of no session"));
        };
        let (Some(first), Some(last)) = (view.candidates.first().copied(), view.candidates.last().copied())
        else {
            return Err(Violation::new("a view without candidates"));
        };
        let mut state = self.state_after(view.session, first);
        let mut kept = Vec::new();
        for prefix in first..=last {
            if prefix > first {
                let write = &session.writes[prefix - 1];
                if write.outcome != Outcome::Refused {
                    write.changes.iter().for_each(|change| state.apply(change));
                }
            }
            if view.candidates.binary_search(&prefix).is_ok() && agrees(&state) {
                kept.push(prefix);
            }
        }
        if kept.is_empty() {
            let words = what(&state);
            return Err(Violation::new(format!(
                "epoch {}: {words}; no state between its writes {first} and {last} agrees with that",
                view.session.0
            )));
        }
        view.candidates = kept;
        Ok(())
    }

    /// What the session is expected to hold when nothing is in flight: for choosing the next step.
    pub fn expected(&self, id: SessionId) -> State {
        let count = self.sessions.get(&id).map_or(0, |session| session.writes.len());
        self.state_after(id, count)
    }
}
