//! Collection of tables that no epoch's writer can still name (rule 14), as a machine: loads a
//! state and proves it, lists the tables, and deletes what the state gives free. Comes to the names
//! that were deleted. The engine does the same steps one after the other, see `driver`.

use tombolo_format::manifest::TableName;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Incarnation, Result};

use crate::collection::machine::{Answer, Effect, Machine, Step, free_orphans, misfit};
use crate::manifest::chain::load::{Load, Proof};
use crate::manifest::chain::{self, Machine as _, Tip};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OrphanPhase {
    Prove(Load),
    List(Tip),
    Delete,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Orphans {
    doomed: Vec<TableName>,
    deleted: Vec<TableName>,
    phase: OrphanPhase,
}

impl Orphans {
    /// A collector that has no state yet: it loads one and proves it.
    pub fn new(incarnation: Incarnation) -> Orphans {
        let proof = if is_enabled(Mutant::CollectUnprovenState) { Proof::Claim } else { Proof::List };
        Orphans {
            doomed: Vec::new(),
            deleted: Vec::new(),
            phase: OrphanPhase::Prove(Load::new(incarnation, proof)),
        }
    }

    fn prove(&mut self, step: chain::Step<Result<Option<Tip>>>) -> Step<Result<Vec<TableName>>> {
        match step {
            chain::Step::Do(effect) => Step::Do(Effect::Chain(effect)),
            chain::Step::Done(Ok(Some(tip))) if !tip.state.is_destroyed() => {
                let incarnation = tip.incarnation;
                self.phase = OrphanPhase::List(tip);
                Step::Do(Effect::ListTables(incarnation))
            }
            chain::Step::Done(Ok(_)) => Step::Done(Ok(Vec::new())),
            chain::Step::Done(Err(error)) => Step::Done(Err(error)),
        }
    }

    fn delete(&mut self) -> Step<Result<Vec<TableName>>> {
        self.phase = OrphanPhase::Delete;
        match self.doomed.pop() {
            Some(name) => {
                self.deleted.push(name);
                Step::Do(Effect::DeleteTable(name))
            }
            None => Step::Done(Ok(std::mem::take(&mut self.deleted))),
        }
    }
}

impl Machine for Orphans {
    type Output = Result<Vec<TableName>>;

    fn begin(&mut self) -> Step<Result<Vec<TableName>>> {
        let OrphanPhase::Prove(load) = &mut self.phase else { return self.delete() };
        let step = load.begin();
        self.prove(step)
    }

    fn step(&mut self, answer: Answer) -> Step<Result<Vec<TableName>>> {
        match (&mut self.phase, answer) {
            (OrphanPhase::Prove(load), Answer::Chain(answer)) => {
                let step = load.step(answer);
                self.prove(step)
            }
            (OrphanPhase::List(tip), Answer::Tables(objects)) => {
                self.doomed = free_orphans(&tip.state, objects).collect();
                self.delete()
            }
            (OrphanPhase::Delete, Answer::Deleted) => self.delete(),
            (_, answer) => misfit("orphan collection", &answer),
        }
    }
}
