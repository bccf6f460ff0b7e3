//! What processes do with the answers: one function per machine, and the tasks.

use std::sync::Arc;

use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{Edit, KeyspaceOptions, RecordKind, TableName};
use tombolo_format::pin::{Pin, PinKind};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Result};

use super::super::orphans::Orphans;
use super::{Activity, Checked, INCARNATION, Name, Pending, Pinning, Task, Violation, World, violated};
use crate::collection::machine::{self as collection, Collect, Machine as _, PinOutcome, PutPin};
use crate::manifest::chain::append::{Append, Appended};
use crate::manifest::chain::follow::{Follow, Followed};
use crate::manifest::chain::load::{Load, Proof};
use crate::manifest::chain::open::{Open, OpenMode, Policy};
use crate::manifest::chain::truncate::Truncate;
use crate::manifest::chain::{Machine as _, Step, Tip};
use crate::manifest::state::TableStatus;

/// A reader's pin of a process, which has one.
fn leased(process: usize, tables: &[TableName]) -> Pin {
    Pin {
        incarnation: INCARNATION.0,
        id: process as u128,
        kind: PinKind::Reader,
        lease_ms: 1,
        created_unix_seconds: 0,
        tables: tables.to_vec(),
        clone: None,
    }
}

impl World {
    pub(super) fn opening(&mut self, process: usize, open: Open, step: Step<Result<Tip>>) -> Checked {
        match step {
            Step::Do(effect) => {
                self.processes[process].activity = Activity::Open(open);
                self.want(process, effect)
            }
            Step::Done(Ok(tip)) => {
                self.believe(process, "the effective claim", &tip)?;
                self.processes[process].epoch = tip.epoch().0;
                self.processes[process].tip = Some(tip);
                self.next_task(process)
            }
            Step::Done(Err(error)) => self.failed(process, &error),
        }
    }

    pub(super) fn loading(&mut self, process: usize, load: Load, step: Step<Result<Option<Tip>>>) -> Checked {
        match step {
            Step::Do(effect) => {
                self.processes[process].activity = Activity::Load(load);
                self.want(process, effect)
            }
            Step::Done(Ok(Some(tip))) => {
                self.believe(process, "the proven state", &tip)?;
                self.processes[process].tip = Some(tip);
                self.next_task(process)
            }
            Step::Done(Ok(None)) => self.next_task(process),
            Step::Done(Err(error)) => self.failed(process, &error),
        }
    }

    pub(super) fn following(
        &mut self,
        process: usize,
        follow: Follow,
        step: Step<Result<Followed>>,
    ) -> Checked {
        match step {
            Step::Do(effect) => {
                self.processes[process].activity = Activity::Follow(follow);
                self.want(process, effect)
            }
            Step::Done(Ok(Followed::Current(tip))) => {
                self.believe(process, "the state followed", &tip)?;
                self.processes[process].tip = Some(tip);
                self.next_task(process)
            }
            Step::Done(Ok(Followed::Unchanged)) => self.next_task(process),
            Step::Done(Ok(Followed::Lost)) => self.end(process),
            Step::Done(Err(error)) => self.failed(process, &error),
        }
    }

    /// What an append came to; the tip when the process goes on.
    pub(super) fn appended(
        &mut self,
        process: usize,
        append: &Append,
        appended: Result<Appended>,
    ) -> std::result::Result<Option<Tip>, Violation> {
        match appended {
            Ok(Appended::Committed(tip)) => {
                self.believe(process, "the acknowledged edit", &tip)?;
                Ok(Some(tip))
            }
            Ok(Appended::Unacknowledged(tip)) => Ok(Some(tip)),
            Ok(Appended::Refused(error)) if error.kind() == ErrorKind::Bug => {
                self.failed(process, &error)?;
                Ok(None)
            }
            Ok(Appended::Refused(_)) => {
                let hash = append.proposed_hash();
                if hash.is_some_and(|hash| self.hashes.contains(&hash)) {
                    return violated("an edit that was reported to have failed is in the chain");
                }
                self.failed.extend(hash);
                Ok(self.processes[process].tip.clone())
            }
            Ok(Appended::Fenced) => Ok(None),
            Err(error) => {
                self.failed(process, &error)?;
                Ok(None)
            }
        }
    }

    pub(super) fn appending(
        &mut self,
        process: usize,
        append: Append,
        step: Step<Result<Appended>>,
    ) -> Checked {
        match step {
            Step::Do(effect) => {
                self.processes[process].activity = Activity::Append(append);
                self.want(process, effect)
            }
            Step::Done(result) => match self.appended(process, &append, result)? {
                Some(tip) => {
                    self.processes[process].tip = Some(tip);
                    self.next_task(process)
                }
                None => self.end(process),
            },
        }
    }

    pub(super) fn naming_snapshot(
        &mut self,
        process: usize,
        append: Append,
        slot: u64,
        step: Step<Result<Appended>>,
    ) -> Checked {
        match step {
            Step::Do(effect) => {
                self.processes[process].activity = Activity::SnapshotRecord(append, slot);
                self.want(process, effect)
            }
            Step::Done(result) => match self.appended(process, &append, result)? {
                Some(tip) => {
                    self.processes[process].tip = Some(tip);
                    let mut truncate = Truncate::new(INCARNATION, slot);
                    let step = truncate.begin();
                    self.truncating(process, truncate, step)
                }
                None => self.end(process),
            },
        }
    }

    pub(super) fn truncating(
        &mut self,
        process: usize,
        truncate: Truncate,
        step: Step<Result<u64>>,
    ) -> Checked {
        match step {
            Step::Do(effect) => {
                self.processes[process].activity = Activity::Truncate(truncate);
                self.want(process, effect)
            }
            Step::Done(Ok(_)) => self.next_task(process),
            Step::Done(Err(error)) => self.failed(process, &error),
        }
    }

    pub(super) fn collecting(
        &mut self,
        process: usize,
        collect: Collect,
        step: collection::Step<Result<collection::Pass>>,
    ) -> Checked {
        match step {
            collection::Step::Do(collection::Effect::Commit(edits)) => {
                let Some(tip) = self.processes[process].tip.clone() else { return self.end(process) };
                let epoch = Epoch(self.processes[process].epoch);
                let edits = edits.into_iter().map(Edit::from).collect();
                let mut append = Append::new(tip, epoch, RecordKind::Edits(edits));
                let step = append.begin();
                self.committing(process, collect, append, step)
            }
            collection::Step::Do(effect) => {
                self.processes[process].activity = Activity::Collect(collect);
                self.processes[process].pending = Pending::Collection(effect);
                Ok(())
            }
            collection::Step::Done(Ok(pass)) => self.delete_pins(process, pass.expired),
            collection::Step::Done(Err(error)) if error.kind() == ErrorKind::Fenced => self.end(process),
            collection::Step::Done(Err(error)) => self.failed(process, &error),
        }
    }

    pub(super) fn delete_pins(&mut self, process: usize, mut left: Vec<u128>) -> Checked {
        let Some(next) = left.pop() else { return self.next_task(process) };
        let state = &mut self.processes[process];
        state.activity = Activity::DeletePins(left);
        state.pending = Pending::Collection(collection::Effect::DeletePin(next));
        Ok(())
    }

    pub(super) fn committing(
        &mut self,
        process: usize,
        mut collect: Collect,
        append: Append,
        step: Step<Result<Appended>>,
    ) -> Checked {
        match step {
            Step::Do(effect) => {
                self.processes[process].activity = Activity::CollectCommit(collect, append);
                self.want(process, effect)
            }
            Step::Done(result) => {
                let committed = match self.appended(process, &append, result)? {
                    Some(tip) => {
                        self.processes[process].tip = Some(tip);
                        Ok(())
                    }
                    None => Err(Error::new(ErrorKind::Fenced, "fenced")),
                };
                let step = collect.step(collection::Answer::Committed(committed));
                self.collecting(process, collect, step)
            }
        }
    }

    pub(super) fn pinning(
        &mut self,
        process: usize,
        pin: PutPin,
        what: Pinning,
        step: collection::Step<Result<PinOutcome>>,
    ) -> Checked {
        match step {
            collection::Step::Do(effect) => {
                self.processes[process].activity = Activity::Pin(pin, what);
                self.processes[process].pending = Pending::Collection(effect);
                Ok(())
            }
            collection::Step::Done(Ok(PinOutcome::Effective(_))) => {
                self.processes[process].begun = None;
                match what {
                    // Its lease may run out at any moment: the reader asks before it believes what
                    // it reads.
                    Pinning::Leased => self.processes[process].leased = Some(leased(process, pin.tables())),
                    Pinning::Lasting | Pinning::Renewed => self.pinned.extend(pin.tables()),
                }
                self.next_task(process)
            }
            collection::Step::Done(Ok(PinOutcome::Void | PinOutcome::Undecided)) => self.next_task(process),
            collection::Step::Done(Ok(PinOutcome::Refused(error))) => self.failed(process, &error),
            // Its pin was taken away before it saw it land: only its own late delete can do that.
            collection::Step::Done(Err(error)) if error.kind() == ErrorKind::Conflict => self.end(process),
            collection::Step::Done(Err(error)) => self.failed(process, &error),
        }
    }

    pub(super) fn finding_orphans(
        &mut self,
        process: usize,
        orphans: Orphans,
        step: collection::Step<Result<Vec<TableName>>>,
    ) -> Checked {
        match step {
            collection::Step::Do(effect) => {
                self.processes[process].activity = Activity::Orphans(orphans);
                self.processes[process].pending = Pending::Collection(effect);
                Ok(())
            }
            collection::Step::Done(Ok(_)) => {
                self.processes[process].begun = None;
                self.next_task(process)
            }
            collection::Step::Done(Err(error)) => self.failed(process, &error),
        }
    }

    pub(super) fn append(&mut self, process: usize, edits: Vec<Edit>) -> Checked {
        let Some(tip) = self.processes[process].tip.clone() else { return self.end(process) };
        let mut append = Append::new(tip, Epoch(self.processes[process].epoch), RecordKind::Edits(edits));
        let step = append.begin();
        self.appending(process, append, step)
    }

    pub(super) fn put_table(&mut self, process: usize, name: TableName, named: bool) -> Checked {
        let state = &mut self.processes[process];
        state.activity = Activity::PutTable(name, named);
        state.pending = Pending::Put(Name::from(name));
        Ok(())
    }

    /// Begins the next task.
    pub(super) fn next_task(&mut self, process: usize) -> Checked {
        let state = &mut self.processes[process];
        state.begun = None;
        let Some(task) = state.tasks.get(state.next_task).copied() else { return self.end(process) };
        state.next_task += 1;
        match task {
            Task::Open => {
                let mut open = Open::new(Policy::new(OpenMode::CreateOrOpen, None));
                let step = open.begin();
                self.opening(process, open, step)
            }
            Task::Load => {
                let mut load = Load::new(INCARNATION, Proof::List);
                let step = load.begin();
                self.loading(process, load, step)
            }
            Task::Follow => {
                let Some(tip) = self.processes[process].tip.clone() else { return self.end(process) };
                let mut follow = Follow::new(tip, true);
                let step = follow.begin();
                self.following(process, follow, step)
            }
            Task::Edit => {
                // Higher than all before it, and no two processes write the same bytes.
                let Some(tip) = &self.processes[process].tip else { return self.end(process) };
                let reached = tip.state.streams().get(&0).map_or(0, |sequence| sequence.0);
                let sequence = SequenceNumber((reached / 64 + 1) * 64 + process as u64);
                self.append(process, vec![Edit::StreamReached { stream: 0, sequence }])
            }
            Task::Snapshot => self.snapshot(process),
            Task::Table(random) => {
                let mut edits = Vec::new();
                let Some(tip) = &self.processes[process].tip else { return self.end(process) };
                if tip.state.keyspace(0).is_none() {
                    let options = KeyspaceOptions::default();
                    edits.push(Edit::KeyspaceCreated { id: 0, name: "default".into(), stream: 0, options });
                    self.processes[process].next_task -= 1;
                    return self.append(process, edits);
                }
                let random = if is_enabled(Mutant::TableNameReused) { 0 } else { random };
                let name = TableName { epoch: self.processes[process].epoch, random };
                if self.processes[process].tip.as_ref().is_some_and(|tip| tip.state.table(name).is_some()) {
                    return self.next_task(process);
                }
                self.put_table(process, name, true)
            }
            Task::Output(random) => {
                self.put_table(process, TableName { epoch: self.processes[process].epoch, random }, false)
            }
            Task::Install(name) => {
                if !is_enabled(Mutant::StaleJobInstalled) {
                    return self.next_task(process);
                }
                self.processes[process].activity = Activity::FindOutput(name);
                self.processes[process].pending =
                    Pending::Collection(collection::Effect::ListTables(INCARNATION));
                Ok(())
            }
            Task::Obsolete(name) => self.append(process, vec![Edit::TableObsolete { name }]),
            Task::Collect => self.collect(process),
            Task::Pin(name) => {
                let pin = Pin { kind: PinKind::Checkpoint, lease_ms: 0, ..leased(process, &[name]) };
                self.pin(process, pin, Pinning::Lasting)
            }
            Task::Lease(name) => self.pin(process, leased(process, &[name]), Pinning::Leased),
            Task::Renew => {
                let state = &mut self.processes[process];
                let Some(pin) = &state.leased else { return self.end(process) };
                state.pending = Pending::Put(Name::Beat(pin.id));
                state.activity = Activity::PutBeat;
                Ok(())
            }
            Task::Orphans => {
                let mut orphans = Orphans::new(INCARNATION);
                let step = orphans.begin();
                self.finding_orphans(process, orphans, step)
            }
        }
    }

    fn pin(&mut self, process: usize, pin: Pin, what: Pinning) -> Checked {
        let mut pin = PutPin::new(pin).expect("one table is not too many");
        let step = pin.begin();
        self.pinning(process, pin, what, step)
    }

    /// Proves the leased pin once more, of which a heartbeat has landed.
    pub(super) fn renew(&mut self, process: usize) -> Checked {
        let Some(pin) = self.processes[process].leased.clone() else { return self.end(process) };
        let mut pin = PutPin::renewed(pin).expect("one table is not too many");
        let step = pin.begin();
        self.pinning(process, pin, Pinning::Renewed, step)
    }

    pub(super) fn snapshot(&mut self, process: usize) -> Checked {
        let Some(tip) = self.processes[process].tip.clone() else { return self.end(process) };
        let random = process as u64;
        self.snapshots.insert((tip.slot, random), Arc::new(tip.state.edits()));
        let kind = RecordKind::Snapshot {
            slot: tip.slot,
            epoch: tip.epoch().0,
            record_hash: tip.hash,
            random,
            length: 0,
            checksum: 0,
        };
        let slot = tip.slot;
        let mut append = Append::new(tip, Epoch(self.processes[process].epoch), kind);
        let step = append.begin();
        self.naming_snapshot(process, append, slot, step)
    }

    pub(super) fn collect(&mut self, process: usize) -> Checked {
        let Some(tip) = &self.processes[process].tip else { return self.end(process) };
        let of = |status| {
            let tables = tip.state.unneeded().filter(move |table| table.status == status);
            tables.map(|table| table.description.name).collect::<Vec<_>>()
        };
        let mut collect = Collect::new(of(TableStatus::Obsolete), of(TableStatus::Condemned));
        let step = collect.begin();
        self.collecting(process, collect, step)
    }
}
