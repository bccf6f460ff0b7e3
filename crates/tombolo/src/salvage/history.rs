//! The states that a database was in, as far as records, snapshots and checkpoints still tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, all};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::{RECORD_BYTES_MAX, RecordKind, decode_record};
use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, Result};

use crate::checkpoint::{Checkpoints, last_sequence};
use crate::manifest::chain::open::not_found;
use crate::manifest::chain::{Answer, Effect, SnapshotName, Tip, missing};
use crate::manifest::driver::io::{Io, RetryLimit};
use crate::manifest::{State, names};

/// Record reads in flight.
const READS_IN_FLIGHT_MAX: usize = 16;

/// Who tells of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whence {
    /// The chain of records.
    Manifest,
    /// The checkpoint of this name.
    Checkpoint(String),
}

/// A state that the database was in.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) state: Arc<State>,
    pub(super) whence: Whence,
}

/// All that is known.
#[derive(Debug)]
pub(super) struct History {
    pub(super) incarnation: Incarnation,
    /// The newest slot that has a record; 0 when none has.
    pub(super) newest_slot: u64,
    /// Newest first.
    pub(super) candidates: Vec<Candidate>,
    /// What could not be read, and keeps newer states from being known.
    pub(super) damage: Vec<Error>,
}

impl History {
    /// The newest state that can be read.
    pub(super) fn newest_state(&self) -> Option<&State> {
        self.candidates.first().map(|candidate| &*candidate.state)
    }

    /// Keeps the states that are of one moment: from the newest with streams on, of which each is
    /// flushed when it wants, checkpoints alone. The newest number that is known then, and how many
    /// states are newer than any with streams; `None` without streams.
    ///
    /// # Errors
    /// `Unsupported` when nothing is left.
    pub(super) fn keep_moments(&mut self) -> Result<Option<(SequenceNumber, usize)>> {
        let has_streams = |candidate: &Candidate| candidate.state.has_streams();
        let Some(newer) = self.candidates.iter().position(has_streams) else { return Ok(None) };
        let newest = self.candidates.iter().map(|candidate| last_sequence(&candidate.state)).max();
        let mut number = 0;
        self.candidates.retain(|candidate| {
            number += 1;
            number <= newer || matches!(candidate.whence, Whence::Checkpoint(_))
        });
        if self.candidates.is_empty() {
            let what = "the database has streams, and salvage of such takes a checkpoint: there is none";
            return Err(Error::new(ErrorKind::Unsupported, what)
                .advice("put the objects back from a copy, or restore a backup"));
        }
        Ok(Some((newest.unwrap_or(SequenceNumber::ZERO), newer)))
    }
}

/// Whether an error says that something is damaged or gone, and not that the store does not answer.
/// What a newer version wrote is sound: leaving it out would lose it.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) || is_bad_sector(error)
}

/// # Errors
/// `Unsupported` when a newer version wrote what could not be read.
fn check_versions(damage: &[Error]) -> Result<()> {
    match damage.iter().find(|error| error.kind() == ErrorKind::Unsupported) {
        Some(newer) => Err(newer.clone().context("what a newer version wrote is not damaged")),
        None => Ok(()),
    }
}

/// Whether a disk could not read what it was asked for.
fn is_bad_sector(error: &Error) -> bool {
    const EIO: i32 = 5;
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.raw_os_error() == Some(EIO))
}

/// Reads what there is of the newest life.
///
/// # Errors
/// `NotFound` when there is none, or it was destroyed; `Corrupt` when no state can be read;
/// `Unsupported` when a newer version wrote one; those of the store.
pub(super) async fn load(io: &Io) -> Result<History> {
    let Answer::Newest(Some(newest)) = io.perform(Effect::NewestIncarnation, RetryLimit::Bounded).await?
    else {
        return Err(not_found("there is no database here"));
    };
    let incarnation = Incarnation(newest);
    let records = records(io, incarnation).await?;
    let newest_slot = records.keys().last().copied().unwrap_or(0);
    let mut chain = Chain { io, incarnation, records, states: BTreeMap::new(), damage: BTreeMap::new() };
    chain.walk().await?;
    let Chain { states, damage, .. } = chain;
    let reached = states.keys().last().copied().unwrap_or(0);
    if states.values().next_back().is_some_and(|state| state.is_destroyed()) {
        return Err(not_found("the database was destroyed"));
    }
    let mut damage: Vec<Error> = damage.into_values().collect();
    if reached < newest_slot && damage.is_empty() {
        damage.push(missing(incarnation, reached + 1));
    }
    let from_chain = states.into_values().filter(|state| state.database().is_some());
    let mut candidates: Vec<_> =
        from_chain.map(|state| Candidate { state, whence: Whence::Manifest }).collect();
    checkpoints(io, incarnation, &mut candidates, &mut damage).await?;
    check_versions(&damage)?;
    // Of a checkpoint and the chain's own state of that slot, the chain's comes first: it knows the
    // logs.
    candidates.sort_by_key(|candidate| {
        (std::cmp::Reverse(candidate.state.slot()), candidate.whence != Whence::Manifest)
    });
    Ok(History { incarnation, newest_slot, candidates, damage })
}

/// A slot, and what it holds if it is still there.
type Slot = (u64, Option<Bytes>);

/// The bytes of the records that are there, by slot.
async fn records(io: &Io, incarnation: Incarnation) -> Result<BTreeMap<u64, Bytes>> {
    let listed = io.list_all(&names::record_prefix(incarnation)).await?;
    let reads =
        listed.iter().filter_map(|name| names::parse_record(incarnation, name).ok().map(|slot| (slot, name)));
    let reads: Vec<BoxFuture<'_, Result<Slot>>> = reads
        .map(|(slot, name)| {
            let read = async move {
                match io.read_whole(name, RECORD_BYTES_MAX as u64, RetryLimit::Bounded).await {
                    // No record: the walk stops there, and tells it.
                    Err(error) if is_damage(&error) => Ok((slot, Some(Bytes::new()))),
                    read => Ok((slot, read?)),
                }
            };
            Box::pin(read) as BoxFuture<'_, _>
        })
        .collect();
    let read: Result<Vec<_>> = all(reads, READS_IN_FLIGHT_MAX).await.into_iter().collect();
    Ok(read?.into_iter().filter_map(|(slot, bytes)| bytes.map(|bytes| (slot, bytes))).collect())
}

async fn checkpoints(
    io: &Io,
    incarnation: Incarnation,
    candidates: &mut Vec<Candidate>,
    damage: &mut Vec<Error>,
) -> Result<()> {
    let checkpoints = Checkpoints::new(&io.env, &io.store, incarnation, Epoch::NONE);
    for listed in checkpoints.list().await? {
        let header = match listed.header {
            Ok(header) => header,
            Err(error) => {
                damage.push(error);
                continue;
            }
        };
        match checkpoints.load(&header).await {
            Ok(state) => {
                candidates
                    .push(Candidate { state: Arc::new(state), whence: Whence::Checkpoint(header.name) });
            }
            Err(error) if is_damage(&error) => damage.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The chain while it is walked.
struct Chain<'a> {
    io: &'a Io,
    incarnation: Incarnation,
    records: BTreeMap<u64, Bytes>,
    states: BTreeMap<u64, Arc<State>>,
    /// What stopped a walk, by the slot at which it did. One that another walk passed is no loss.
    damage: BTreeMap<u64, Error>,
}

impl Chain<'_> {
    /// From each snapshot, newest first, and from the beginning, as far as records are sound and
    /// linked, until one reaches the newest.
    async fn walk(&mut self) -> Result<()> {
        let newest = self.records.keys().last().copied().unwrap_or(0);
        let naming: Vec<(u64, Bytes)> =
            self.records.iter().rev().map(|(slot, bytes)| (*slot, bytes.clone())).collect();
        for (slot, bytes) in naming {
            // Damage here stops a walk, and is reported then.
            let Ok(record) = decode_record(&bytes) else { continue };
            let RecordKind::Snapshot { slot: of, random, length, checksum, .. } = record.kind else {
                continue;
            };
            let name = SnapshotName { slot: of, random, length, checksum };
            let read =
                self.io.perform(Effect::ReadSnapshot(self.incarnation, name), RetryLimit::Bounded).await;
            let edits = match read {
                Ok(Answer::Snapshot(Some(edits))) => edits,
                // An older one was deleted when its successor was durable.
                Ok(_) => {
                    let gone = Error::corrupt(
                        names::snapshot(self.incarnation, of, random),
                        0,
                        "a snapshot of the manifest",
                        "nothing",
                    );
                    self.damage.insert(slot, gone);
                    continue;
                }
                Err(error) if is_damage(&error) => {
                    self.damage.insert(slot, error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match Tip::of_snapshot(self.incarnation, &record, &edits) {
                Ok(tip) => self.follow(tip),
                Err(error) => {
                    self.damage.insert(slot, error);
                }
            }
            if self.states.contains_key(&newest) {
                self.damage.clear();
                return Ok(());
            }
        }
        self.follow(Tip::empty(self.incarnation));
        // Passed by a walk that began elsewhere.
        let reached = self.states.keys().last().copied().unwrap_or(0);
        if reached == newest {
            self.damage.clear();
        }
        Ok(())
    }

    fn follow(&mut self, mut tip: Tip) {
        if tip.slot > 0 {
            self.states.insert(tip.slot, Arc::clone(&tip.state));
        }
        while let Some(bytes) = self.records.get(&(tip.slot + 1)) {
            tip = match tip.follow(bytes) {
                Ok(tip) => tip,
                Err(error) => {
                    self.damage.insert(tip.slot + 1, error);
                    return;
                }
            };
            self.states.insert(tip.slot, Arc::clone(&tip.state));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_sector_is_damage_and_a_store_that_does_not_answer_is_none() {
        let failed = |number| {
            Error::io(std::io::Error::from_raw_os_error(number), "reading", "a table")
                .context("looking at it")
        };
        assert!(is_damage(&failed(5)));
        assert!(!is_damage(&failed(110)));
    }
}
