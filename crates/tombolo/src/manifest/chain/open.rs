//! Finds or begins the incarnation, loads its chain, checks that it may be opened, and claims it
//! (rules 1 and 4).
//!
//! Incarnations are numbered put-if-absent records, never deleted. The newest is the database,
//! unless its chain ends with the record that destroyed it. Creating again begins the next one.
//! Nothing is claimed before the checks pass: a process with a wrong log store, say, does not
//! disturb the writer.

use tombolo_format::manifest::Writer;
use tombolo_format::manifest::mark::{Mark, MarkKind};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, Result};

use super::claim::{Claim, Claimed};
use super::load::{Load, Proof};
use super::{Answer, Effect, Machine, PutAnswer, Step, Tip, misfit};
use crate::manifest::state::State;

/// What opening may find and do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenMode {
    /// Create a database: `AlreadyExists` when there is one.
    Create,
    /// Open a database: `NotFound` when there is none.
    Open,
    /// Open it, or create it when there is none.
    CreateOrOpen,
    /// Open a database that nobody may write to, or any other: `NotFound` when there is none. For
    /// who made its mark, takes it away, or destroys the database.
    OpenMarked,
}

impl OpenMode {
    /// Whether there must be a database.
    fn needs_one(self) -> bool {
        matches!(self, OpenMode::Open | OpenMode::OpenMarked)
    }
}

/// What opening checks before it claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// What opening may find and do.
    pub mode: OpenMode,
    /// The log store's identity; `None` takes whatever the database uses.
    pub log_identity: Option<String>,
    /// Who claims.
    pub writer: Writer,
    /// Random numbers and epochs of the databases that this process has open, and does not fence.
    pub opened: Vec<(u64, Epoch)>,
}

impl Policy {
    /// A policy of a writer of which nothing is known, and that has nothing open.
    #[cfg(test)]
    pub fn new(mode: OpenMode, log_identity: Option<String>) -> Policy {
        Policy { mode, log_identity, writer: Writer::default(), opened: Vec::new() }
    }

    fn check(&self, state: &State) -> Result<()> {
        if let Some(mark) = state.mark()
            && self.mode != OpenMode::OpenMarked
            && !is_enabled(Mutant::MarkIgnored)
        {
            return Err(marked(mark));
        }
        match (state.database(), self.mode) {
            (Some(_), OpenMode::Create) => {
                Err(Error::new(ErrorKind::AlreadyExists, "there is a database here already")
                    .advice("open it instead, or destroy it first, or choose another place"))
            }
            (None, mode) if mode.needs_one() => {
                Err(not_found("the creation of the database was never completed"))
            }
            (Some(database), _) => {
                self.log_identity.as_ref().map_or(Ok(()), |identity| check_log(state, identity))?;
                if self.opened.contains(&(database.id, state.epoch())) {
                    return Err(opened_here());
                }
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }
}

/// Whether a database is opened with its own log.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_log(state: &State, identity: &str) -> Result<()> {
    match state.database() {
        Some(database) if identity != database.log_identity => {
            Err(Error::new(ErrorKind::Invalid, "the database uses another log")
                .expected(&database.log_identity)
                .found(identity)
                .advice("open it with the log that it was created with"))
        }
        _ => Ok(()),
    }
}

/// Nobody writes to a database with a mark.
pub(crate) fn marked(mark: &Mark) -> Error {
    let (what, advice) = match mark.kind {
        MarkKind::Mirror => (
            format!("the database is a mirror of {}", mark.place),
            "read it, or let it take the other's place: `Mirror::promote`, `tombolo db promote`",
        ),
        MarkKind::Moving => (
            format!("the database is about to move to {}", mark.place),
            "end or undo the move: `tombolo db move` again, or with `--back`",
        ),
        MarkKind::Moved => (
            format!("the database has moved to {}", mark.place),
            "open it there; what lies here is of no use any more, and may be destroyed",
        ),
    };
    Error::new(ErrorKind::Invalid, what).found(&mark.place).advice(advice)
}

/// This process has the database open.
fn opened_here() -> Error {
    Error::new(ErrorKind::InUse, "this process has the database open already").advice(
        "use the handle that is open, whose clones are cheap, or close it first; `TakeOver::Always` takes \
            the database from it",
    )
}

/// There is no database.
pub(crate) fn not_found(why: &str) -> Error {
    Error::new(ErrorKind::NotFound, why).advice("check the URI, or create a database there")
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Asked for the newest incarnation; the given one was found destroyed.
    Incarnation(Option<Incarnation>),
    /// Asked to put an incarnation record.
    Begin(Incarnation),
    Load(Load),
    Claim(Claim),
}

/// See the module's documentation. Comes to the tip that ends with the effective claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    policy: Policy,
    incarnation: Incarnation,
    /// A proven tip that is claimed at once, and the epoch that must be the newest still, in the
    /// life whose it is: epochs of each count from 1.
    known: Option<Tip>,
    succeeds: Option<(Incarnation, Epoch)>,
    phase: Phase,
}

impl Open {
    /// Opens under `policy`.
    pub fn new(policy: Policy) -> Open {
        Open {
            policy,
            incarnation: Incarnation(0),
            known: None,
            succeeds: None,
            phase: Phase::Incarnation(None),
        }
    }

    /// Claims on top of a tip that was proven before, and succeeds its epoch and no later one:
    /// whatever was added to the chain since is read, and the load is spared.
    pub fn succeeding(policy: Policy, known: Tip) -> Open {
        let succeeds = Some((known.incarnation, known.epoch()));
        Open { succeeds, incarnation: known.incarnation, known: Some(known), ..Open::new(policy) }
    }

    fn incarnation(&mut self, destroyed: Option<Incarnation>) -> Step<Result<Tip>> {
        self.phase = Phase::Incarnation(destroyed);
        Step::Do(Effect::NewestIncarnation)
    }

    fn found(&mut self, newest: Option<Incarnation>, destroyed: Option<Incarnation>) -> Step<Result<Tip>> {
        match (newest, destroyed) {
            (Some(newest), destroyed) if destroyed.is_none_or(|destroyed| destroyed < newest) => {
                self.load(newest)
            }
            _ if self.policy.mode.needs_one() => Step::Done(Err(not_found(match destroyed {
                Some(_) => "the database was destroyed",
                None => "there is no database here",
            }))),
            (_, destroyed) => {
                self.begin_incarnation(Incarnation(destroyed.map_or(0, |destroyed| destroyed.0) + 1))
            }
        }
    }

    fn begin_incarnation(&mut self, incarnation: Incarnation) -> Step<Result<Tip>> {
        self.phase = Phase::Begin(incarnation);
        Step::Do(Effect::PutIncarnation(incarnation))
    }

    fn load(&mut self, incarnation: Incarnation) -> Step<Result<Tip>> {
        self.incarnation = incarnation;
        let mut load = Load::new(incarnation, Proof::Claim);
        let step = load.begin();
        self.phase = Phase::Load(load);
        step.map(|loaded| self.loaded(loaded))
    }

    fn loaded(&mut self, loaded: Result<Option<Tip>>) -> Step<Result<Tip>> {
        match loaded {
            Ok(tip) => self.claim(tip.unwrap_or_else(|| Tip::empty(self.incarnation))),
            Err(error) => Step::Done(Err(error)),
        }
    }

    fn claim(&mut self, tip: Tip) -> Step<Result<Tip>> {
        if tip.state.is_destroyed() && is_enabled(Mutant::IncarnationReused) && !self.policy.mode.needs_one()
        {
            // What the mutant does: the life goes on behind its last record.
            let state = State::from_snapshot(tip.slot, tip.epoch(), &[]).unwrap_or_default();
            return self.claim(Tip { state: state.into(), ..tip });
        }
        if tip.state.is_destroyed() {
            return self.incarnation(Some(self.incarnation));
        }
        if let Some((life, epoch)) = self.succeeds {
            let is_of_life = tip.incarnation == life || is_enabled(Mutant::ClaimSucceedsAnotherLife);
            if !is_of_life || tip.epoch() != epoch {
                let message = format!(
                    "epoch {} of life {} has succeeded epoch {epoch} of life {life} already",
                    tip.epoch(),
                    tip.incarnation
                );
                return Step::Done(Err(Error::new(ErrorKind::Conflict, message)));
            }
        }
        if let Err(error) = self.policy.check(&tip.state) {
            return Step::Done(Err(error));
        }
        let mut claim = Claim::new(tip, self.policy.writer.clone());
        let step = claim.begin();
        self.phase = Phase::Claim(claim);
        step.map(|claimed| self.claimed(claimed))
    }

    fn claimed(&mut self, claimed: Result<Claimed>) -> Step<Result<Tip>> {
        match claimed {
            Ok(Claimed::Effective(tip)) => Step::Done(Ok(tip)),
            Ok(Claimed::Behind(tip)) => self.claim(tip),
            Ok(Claimed::Void) => self.load(self.incarnation),
            Err(error) => Step::Done(Err(error)),
        }
    }
}

impl Machine for Open {
    type Output = Result<Tip>;

    fn begin(&mut self) -> Step<Result<Tip>> {
        match self.known.take() {
            Some(tip) => self.claim(tip),
            None => self.incarnation(None),
        }
    }

    fn step(&mut self, answer: Answer) -> Step<Result<Tip>> {
        match (&mut self.phase, answer) {
            (Phase::Incarnation(destroyed), Answer::Newest(newest)) => {
                let destroyed = *destroyed;
                self.found(newest.map(Incarnation), destroyed)
            }
            (Phase::Begin(incarnation), Answer::Put(answer)) => {
                let incarnation = *incarnation;
                match answer {
                    // No matter who put it: the record says the same.
                    PutAnswer::Created | PutAnswer::Exists => self.load(incarnation),
                    PutAnswer::Unknown => self.begin_incarnation(incarnation),
                    PutAnswer::Refused(error) => Step::Done(Err(error)),
                }
            }
            (Phase::Load(load), answer) => {
                let step = load.step(answer);
                step.map(|loaded| self.loaded(loaded))
            }
            (Phase::Claim(claim), answer) => {
                let step = claim.step(answer);
                step.map(|claimed| self.claimed(claimed))
            }
            (_, answer) => Step::Done(misfit("open", &answer)),
        }
    }
}
