//! The protocol of deletion and pins: state machines as in [`crate::manifest::chain`].
//!
//! | machine | rule | does |
//! |---|---|---|
//! | [`Collect`] | 11 | obsolete → condemned → pins listed once → obsolete again, or un-named and then deleted |
//! | [`PutPin`] | 12 | puts a pin, and proves the tip before anyone counts on it |
//! | [`free_orphans`] | 14 | says which objects a proven state of a later epoch does not name |

use std::collections::BTreeSet;

use bytes::Bytes;
use tombolo_format::manifest::{Edit, TableName};
use tombolo_format::pin::{Pin, encode_pin};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Incarnation, Result};

use crate::manifest::chain::follow::{Follow, Followed};
use crate::manifest::chain::load::{Load, Proof};
use crate::manifest::chain::{self, Machine as _, PutAnswer, Tip};
use crate::manifest::state::{State, TableStatus};

/// What a machine asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Something of the chain. → [`Answer::Chain`]
    Chain(chain::Effect),
    /// Commit an edit of each of these tables. → [`Answer::Committed`]
    Commit(Vec<TableEdit>),
    /// All pins, in one list begun now; with each whether its lease has expired. → [`Answer::Pins`]
    ListPins,
    /// Put a pin, if its name is free. → [`Answer::Put`]
    PutPin(u128, Bytes),
    /// The bytes of a pin. → [`Answer::Bytes`]
    ReadPin(u128),
    /// Delete a pin. → [`Answer::Deleted`]
    DeletePin(u128),
    /// Of the model alone: the names of all tables' objects; any order, from any moments since
    /// now. → [`Answer::Tables`]
    #[cfg(test)]
    ListTables(Incarnation),
    /// Delete a table's object. → [`Answer::Deleted`]
    DeleteTable(TableName),
}

/// An edit of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableEdit {
    /// `TableCondemned`
    Condemn(TableName),
    /// `TableObsolete`
    Restore(TableName),
    /// `TableUnnamed`
    Unname(TableName),
}

impl From<TableEdit> for Edit {
    fn from(edit: TableEdit) -> Edit {
        match edit {
            TableEdit::Condemn(name) => Edit::TableCondemned { name },
            TableEdit::Restore(name) => Edit::TableObsolete { name },
            TableEdit::Unname(name) => Edit::TableUnnamed { name },
        }
    }
}

/// A pin as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListedPin {
    /// Its id.
    pub id: u128,
    /// What it keeps.
    pub tables: Vec<TableName>,
    /// Its lease has expired: it may be ignored.
    pub expired: bool,
    /// All that it keeps is named.
    pub are_all_named: bool,
}

/// How an effect ended.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Of the chain.
    Chain(chain::Answer),
    /// The edits are in the chain, or the manifest's error.
    Committed(Result<()>),
    /// All pins.
    Pins(Vec<ListedPin>),
    /// How a put ended.
    Put(PutAnswer),
    /// What a name holds.
    Bytes(Option<Bytes>),
    /// All tables' objects.
    #[cfg(test)]
    Tables(Vec<TableName>),
    /// The object is gone, or a delete may still land.
    Deleted,
}

/// What comes next.
#[derive(Clone, Debug)]
pub enum Step<T> {
    /// Perform this and step with the answer.
    Do(Effect),
    /// The machine is finished.
    Done(T),
}

/// A machine of this module.
pub trait Machine {
    /// What it comes to.
    type Output;
    /// The first step.
    fn begin(&mut self) -> Step<Self::Output>;
    /// The step after `answer` to the last effect.
    fn step(&mut self, answer: Answer) -> Step<Self::Output>;
}

pub(super) fn misfit<T>(machine: &str, answer: &Answer) -> Step<Result<T>> {
    Step::Done(Err(Error::new(ErrorKind::Bug, format!("{machine} was given {answer:?}"))))
}

/// What one pass of [`Collect`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pass {
    /// Tables that are named no more and whose objects were deleted.
    pub deleted: Vec<TableName>,
    /// Tables that pins keep: obsolete again.
    pub kept: Vec<TableName>,
    /// Pins whose lease has expired, and of which a table is named no more: they can be deleted. Of
    /// others the reader may live, whose clock stood still. It finds all its tables named, and goes
    /// on with its pin.
    pub expired: Vec<u128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CollectPhase {
    Condemn,
    ListPins,
    Decide,
    Delete,
}

/// Deletes tables of the writer's own manifest (rule 11). The caller makes sure that no reader of
/// its own process uses them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collect {
    /// Obsolete ones, to be condemned.
    obsolete: Vec<TableName>,
    /// Condemned ones: by this pass, or by one that was interrupted.
    condemned: Vec<TableName>,
    pins: Vec<ListedPin>,
    doomed: Vec<TableName>,
    pass: Pass,
    phase: CollectPhase,
}

impl Collect {
    /// One pass over tables that stand as said.
    pub fn new(obsolete: Vec<TableName>, condemned: Vec<TableName>) -> Collect {
        let (pins, doomed, pass) = (Vec::new(), Vec::new(), Pass::default());
        Collect { obsolete, condemned, pins, doomed, pass, phase: CollectPhase::Condemn }
    }

    fn condemn(&mut self) -> Step<Result<Pass>> {
        let obsolete = std::mem::take(&mut self.obsolete);
        self.condemned.extend(&obsolete);
        if obsolete.is_empty() || is_enabled(Mutant::DeleteWithoutCondemning) {
            return self.condemned_all();
        }
        self.phase = CollectPhase::Condemn;
        Step::Do(Effect::Commit(obsolete.into_iter().map(TableEdit::Condemn).collect()))
    }

    fn condemned_all(&mut self) -> Step<Result<Pass>> {
        if is_enabled(Mutant::DeleteListsPinsBeforeCondemning) {
            return self.decide();
        }
        self.list_pins()
    }

    fn list_pins(&mut self) -> Step<Result<Pass>> {
        self.phase = CollectPhase::ListPins;
        Step::Do(Effect::ListPins)
    }

    fn decide(&mut self) -> Step<Result<Pass>> {
        let (expired, valid): (Vec<_>, Vec<_>) = self.pins.drain(..).partition(|pin| pin.expired);
        let pinned: BTreeSet<TableName> = valid.into_iter().flat_map(|pin| pin.tables).collect();
        (self.pass.kept, self.doomed) = self.condemned.drain(..).partition(|name| pinned.contains(name));
        // One without tables keeps nothing whose reader could lack it.
        let is_lost = |pin: &&ListedPin| {
            let lacks = !pin.are_all_named || pin.tables.iter().any(|name| self.doomed.contains(name));
            lacks || pin.tables.is_empty() || is_enabled(Mutant::LeasePinDeletedUnlost)
        };
        self.pass.expired = expired.iter().filter(is_lost).map(|pin| pin.id).collect();
        let restored = self.pass.kept.iter().map(|name| TableEdit::Restore(*name));
        let unnamed = self.doomed.iter().map(|name| TableEdit::Unname(*name));
        let edits: Vec<TableEdit> = if is_enabled(Mutant::DeleteWithoutCondemning) {
            unnamed.collect()
        } else {
            restored.chain(unnamed).collect()
        };
        if is_enabled(Mutant::DeleteBeforeUnnamed) && !self.doomed.is_empty() {
            return self.delete();
        }
        self.phase = CollectPhase::Decide;
        if edits.is_empty() { self.delete() } else { Step::Do(Effect::Commit(edits)) }
    }

    fn delete(&mut self) -> Step<Result<Pass>> {
        self.phase = CollectPhase::Delete;
        match self.doomed.pop() {
            Some(name) => {
                self.pass.deleted.push(name);
                Step::Do(Effect::DeleteTable(name))
            }
            None => Step::Done(Ok(std::mem::take(&mut self.pass))),
        }
    }
}

impl Machine for Collect {
    type Output = Result<Pass>;

    fn begin(&mut self) -> Step<Result<Pass>> {
        if self.obsolete.is_empty() && self.condemned.is_empty() {
            return Step::Done(Ok(Pass::default()));
        }
        if is_enabled(Mutant::DeleteListsPinsBeforeCondemning) {
            return self.list_pins();
        }
        self.condemn()
    }

    fn step(&mut self, answer: Answer) -> Step<Result<Pass>> {
        match (self.phase, answer) {
            // Fenced or of unknown outcome: another epoch goes on from whatever the chain holds.
            // Nothing is deleted.
            (_, Answer::Committed(Err(error))) => Step::Done(Err(error)),
            (CollectPhase::Condemn, Answer::Committed(Ok(()))) => self.condemned_all(),
            (CollectPhase::ListPins, Answer::Pins(pins)) => {
                self.pins = pins;
                if is_enabled(Mutant::DeleteListsPinsBeforeCondemning) && !self.obsolete.is_empty() {
                    self.condemn()
                } else {
                    self.decide()
                }
            }
            (CollectPhase::Decide, Answer::Committed(Ok(()))) | (CollectPhase::Delete, Answer::Deleted) => {
                self.delete()
            }
            (_, answer) => misfit("collection", &answer),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PinPhase {
    Put,
    Read,
    Prove(Load),
    ProveOn(Follow),
    /// Asked whether the pin is there still, of a life that has ended with this tip.
    Remains(Tip),
    Withdraw,
}

/// How pinning ended.
#[derive(Clone, Debug)]
pub enum PinOutcome {
    /// The pin is effective as of this proven tip.
    Effective(Tip),
    /// A table is condemned or named no more, or the incarnation has ended: the pin is void and
    /// withdrawn. Load again, and choose anew.
    Void,
    /// The put of a fresh pin was refused: it is certain that nothing is there.
    Refused(Error),
    /// Of one that was effective before: a table is condemned, so that somebody decides about it
    /// just now. Ask again.
    Undecided,
}

/// Puts a pin and proves the tip (rule 12).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PutPin {
    pin: Pin,
    bytes: Bytes,
    /// Whether a put of unknown outcome was made: it must be seen, or the pin would keep its tables
    /// with no owner.
    unknown: bool,
    /// A proven tip from which the proof goes on, instead of loading everything again.
    known: Option<Tip>,
    /// The pin is in its place and was effective: its owner was not heard of for a while, perhaps
    /// for too long.
    is_renewed: bool,
    phase: PinPhase,
}

impl PutPin {
    /// Puts `pin`, whose id is fresh.
    ///
    /// # Errors
    /// `Invalid` when it has too many tables.
    pub fn new(pin: Pin) -> Result<PutPin> {
        let bytes = encode_pin(&pin).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        Ok(PutPin {
            pin,
            bytes: bytes.into(),
            unknown: false,
            known: None,
            is_renewed: false,
            phase: PinPhase::Put,
        })
    }

    /// Proves once more, after a heartbeat has landed, a pin that was effective: a later list of
    /// the pins finds the heartbeat, and a process that listed before, and took the lease for
    /// expired, has condemned the tables or un-named them.
    ///
    /// # Errors
    /// As [`PutPin::new`].
    pub fn renewed(pin: Pin) -> Result<PutPin> {
        Ok(PutPin { is_renewed: true, ..PutPin::new(pin)? })
    }

    /// Lets the proof go on from a tip that was proven before.
    pub fn proven_on(self, known: Tip) -> PutPin {
        PutPin { known: Some(known), ..self }
    }

    /// What the pin keeps.
    #[cfg(test)]
    pub fn tables(&self) -> &[TableName] {
        &self.pin.tables
    }

    fn put(&mut self) -> Step<Result<PinOutcome>> {
        self.phase = PinPhase::Put;
        Step::Do(Effect::PutPin(self.pin.id, self.bytes.clone()))
    }

    fn landed(&mut self) -> Step<Result<PinOutcome>> {
        if is_enabled(Mutant::PinWithoutProvingTip) {
            return Step::Done(Ok(PinOutcome::Effective(Tip::empty(Incarnation(self.pin.incarnation)))));
        }
        match self.known.take() {
            Some(tip) => {
                let mut follow = Follow::new(tip, true);
                let step = follow.begin();
                self.phase = PinPhase::ProveOn(follow);
                self.prove_on(step)
            }
            None => self.prove_anew(),
        }
    }

    fn prove_anew(&mut self) -> Step<Result<PinOutcome>> {
        let mut load = Load::new(Incarnation(self.pin.incarnation), Proof::List);
        let step = load.begin();
        self.phase = PinPhase::Prove(load);
        self.prove(step)
    }

    fn prove_on(&mut self, step: chain::Step<Result<Followed>>) -> Step<Result<PinOutcome>> {
        match step {
            chain::Step::Do(effect) => Step::Do(Effect::Chain(effect)),
            chain::Step::Done(Err(error)) => Step::Done(Err(error)),
            chain::Step::Done(Ok(Followed::Current(tip))) => self.prove(chain::Step::Done(Ok(Some(tip)))),
            chain::Step::Done(Ok(Followed::Lost | Followed::Unchanged)) => self.prove_anew(),
        }
    }

    fn prove(&mut self, step: chain::Step<Result<Option<Tip>>>) -> Step<Result<PinOutcome>> {
        match step {
            chain::Step::Do(effect) => Step::Do(Effect::Chain(effect)),
            chain::Step::Done(Err(error)) => Step::Done(Err(error)),
            chain::Step::Done(Ok(tip)) => match tip {
                Some(tip) if self.holds(&tip.state) => Step::Done(Ok(PinOutcome::Effective(tip))),
                // What a life leaves is deleted after its pins, and all together: the pin itself
                // tells.
                Some(tip) if self.is_renewed && tip.state.is_destroyed() => {
                    self.phase = PinPhase::Remains(tip);
                    Step::Do(Effect::ReadPin(self.pin.id))
                }
                Some(tip) if self.is_renewed && self.names_all(&tip.state) => {
                    Step::Done(Ok(PinOutcome::Undecided))
                }
                _ => {
                    self.phase = PinPhase::Withdraw;
                    Step::Do(Effect::DeletePin(self.pin.id))
                }
            },
        }
    }

    fn holds(&self, state: &State) -> bool {
        let usable = |name: &TableName| match state.table(*name) {
            Some(table) => table.status != TableStatus::Condemned || is_enabled(Mutant::PinAcceptsCondemned),
            None => false,
        };
        !state.is_destroyed() && self.pin.tables.iter().all(usable)
    }

    fn names_all(&self, state: &State) -> bool {
        self.pin.tables.iter().all(|name| state.table(*name).is_some())
    }
}

impl Machine for PutPin {
    type Output = Result<PinOutcome>;

    fn begin(&mut self) -> Step<Result<PinOutcome>> {
        if self.is_renewed { self.landed() } else { self.put() }
    }

    fn step(&mut self, answer: Answer) -> Step<Result<PinOutcome>> {
        match (&mut self.phase, answer) {
            (PinPhase::Put, Answer::Put(PutAnswer::Created)) => self.landed(),
            (PinPhase::Put, Answer::Put(PutAnswer::Exists)) => {
                self.phase = PinPhase::Read;
                Step::Do(Effect::ReadPin(self.pin.id))
            }
            (PinPhase::Put, Answer::Put(PutAnswer::Unknown))
                if is_enabled(Mutant::PinUnknownTakenAsLanded) =>
            {
                self.landed()
            }
            (PinPhase::Put, Answer::Put(PutAnswer::Unknown)) => {
                self.unknown = true;
                self.put()
            }
            (PinPhase::Put, Answer::Put(PutAnswer::Refused(_))) if self.unknown => self.put(),
            (PinPhase::Put, Answer::Put(PutAnswer::Refused(error))) => {
                Step::Done(Ok(PinOutcome::Refused(error)))
            }
            (PinPhase::Read, Answer::Bytes(Some(bytes))) if bytes == self.bytes => self.landed(),
            (PinPhase::Read, Answer::Bytes(_)) => Step::Done(Err(Error::new(
                ErrorKind::Conflict,
                "another pin has the same id, or took this one away",
            )
            .advice("pin again"))),
            (PinPhase::Prove(load), Answer::Chain(answer)) => {
                let step = load.step(answer);
                self.prove(step)
            }
            (PinPhase::ProveOn(follow), Answer::Chain(answer)) => {
                let step = follow.step(answer);
                self.prove_on(step)
            }
            (PinPhase::Remains(tip), Answer::Bytes(Some(bytes))) if bytes == self.bytes => {
                Step::Done(Ok(PinOutcome::Effective(tip.clone())))
            }
            (PinPhase::Remains(_), Answer::Bytes(_)) => {
                self.phase = PinPhase::Withdraw;
                Step::Do(Effect::DeletePin(self.pin.id))
            }
            (PinPhase::Withdraw, Answer::Deleted) => Step::Done(Ok(PinOutcome::Void)),
            (_, answer) => misfit("pinning", &answer),
        }
    }
}

/// Which of these objects `state`, a proven one, gives free (rule 14): those of epochs before its
/// own that it does not name.
pub fn free_orphans<'a>(
    state: &'a State,
    objects: impl IntoIterator<Item = TableName> + 'a,
) -> impl Iterator<Item = TableName> + 'a {
    let epoch = state.epoch().0;
    let older = move |name: &TableName| {
        name.epoch < epoch || name.epoch == epoch && is_enabled(Mutant::CollectCurrentEpoch)
    };
    objects.into_iter().filter(older).filter(|name| state.table(*name).is_none())
}
