//! The shape `fifo`: nothing is merged, and the oldest tables go once there are too many bytes.
//!
//! Invariants:
//! 1. A table goes only when everything older is gone: so a version that a newer table hid is
//!    never seen again.
//! 2. A table goes only when no snapshot sees it, and never the newest.
//! 3. Tables go while the keyspace is beyond its bytes, and not one more.
//!
//! Small runs, as many closings leave them, become one, so that reads need not look into each.

use std::sync::Arc;

use tombolo_format::key::SequenceNumber;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Job, Means, Picking, RUNS_TRIGGER, Reason, Targets, assemble, within_level_0};
use crate::version::{Levels, TableHandle};

/// Runs that are smaller than this part of a full table are merged.
const SMALL_PART: u64 = 2;

/// See the module's documentation.
pub(super) fn pick(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    oldest(levels, picking).or_else(|| {
        let targets = Targets::new(levels, &picking.settings);
        let bytes_max = picking.settings.table_bytes / SMALL_PART;
        within_level_0(levels, picking, &targets, RUNS_TRIGGER * 2, bytes_max)
    })
}

/// The level that holds the oldest data, and its tables, oldest first.
fn oldest_level(levels: &Levels) -> (u8, Vec<Arc<TableHandle>>) {
    match levels.sorted.last() {
        // Those of a sorted level hold no key in common: any order would do.
        Some((level, run)) => {
            let mut tables: Vec<_> = run.iter().cloned().collect();
            tables.sort_by_key(|table| table.description().last_sequence);
            (*level, tables)
        }
        None if is_enabled(Mutant::FifoDropsNewest) => (0, levels.runs.clone()),
        None => (0, levels.runs.iter().rev().cloned().collect()),
    }
}

/// Bytes of a table, and of its values that lie apart.
fn bytes_of(table: &TableHandle) -> u64 {
    let description = table.description();
    description.length + description.referred().iter().map(|referred| referred.bytes).sum::<u64>()
}

/// The same, of all.
fn bytes(levels: &Levels) -> u64 {
    levels.tables().map(|table| bytes_of(table)).sum()
}

/// The oldest tables, as many as are beyond the bytes that the keyspace may have.
fn oldest(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    let mut bytes = bytes(levels);
    let (level, tables) = oldest_level(levels);
    // Where level 0 holds something, the newest table is there.
    let stay = usize::from(level == 0 || levels.runs.is_empty());
    let count = tables.len().saturating_sub(stay);
    let is_seen = |table: &TableHandle| {
        picking.newest_snapshot.is_some_and(|snapshot| snapshot >= table.description().first_sequence)
            && !is_enabled(Mutant::FifoForgetsSnapshots)
    };
    let goes = |table: &&Arc<TableHandle>| {
        let beyond = bytes > picking.settings.fifo_bytes;
        bytes -= bytes_of(table);
        beyond && !picking.busy.is_taken(table) && !is_seen(table)
    };
    let mut upper: Vec<_> = tables.iter().take(count).take_while(goes).cloned().collect();
    if upper.is_empty() {
        return None;
    }
    // Of level 0 newest first, else in order, as in every job.
    if level == 0 {
        upper.reverse();
    } else {
        upper.sort_by(|one, other| one.description().first_key.cmp(&other.description().first_key));
    }
    let job = assemble(levels, picking, Reason::Oldest, (level, upper), (level, Vec::new()), u64::MAX);
    Some(Job { means: Means::Drop, ..job })
}

/// The number from which on all snapshots must look, so that a table beyond the bytes can go.
pub(super) fn held(levels: &Levels, picking: &Picking<'_>) -> Option<SequenceNumber> {
    let newest = picking.newest_snapshot.filter(|_| bytes(levels) > picking.settings.fifo_bytes)?;
    let (_, tables) = oldest_level(levels);
    (newest >= tables.first()?.description().first_sequence).then_some(SequenceNumber(newest.0 + 1))
}
