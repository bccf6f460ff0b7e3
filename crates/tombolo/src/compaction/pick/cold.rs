//! What has gone cold goes into the cold store: of the shape `leveled` from the last level of hot
//! data to the last one of all; of `fifo` run by run, where they are.
//!
//! The last level holds cold data, and no other job goes there. So hot bytes wait for nothing, and
//! reads of hot data ask nothing of the cold store.
//!
//! Invariants:
//! 1. A job leaves less of what has gone cold where it was: a table is taken once about half of it
//!    has, and never for its age alone. So none is done again and again.
//! 2. Which sequence numbers have gone cold is a guess by clocks, and decides nothing but where
//!    bytes lie.

use std::sync::Arc;

use tombolo_format::key::SequenceNumber;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{
    Job, LEVEL_LAST, Picking, Reason, Shape, Targets, Tier, assemble, job, range_of, sum, with_followers,
};
use crate::version::{Levels, TableHandle};

/// Eighths of a table's entries that have gone cold when it is taken.
const EIGHTHS_DUE: u64 = 4;
/// Parts of a table, of which eighths are told.
const EIGHTHS_ALL: u64 = 8;

/// See the module's documentation.
pub(super) fn pick(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    if !picking.settings.is_cold || picking.cold_up_to == SequenceNumber::ZERO {
        return None;
    }
    match picking.settings.shape {
        Shape::Leveled => down(levels, picking).or_else(|| last_level(levels, picking)),
        Shape::Fifo => run(levels, picking),
        Shape::Tiered | Shape::Auto => None,
    }
}

/// Where what a job writes to its output level belongs.
pub(super) fn tier(
    picking: &Picking<'_>,
    reason: Reason,
    (from, upper): (u8, &[Arc<TableHandle>]),
    to: u8,
) -> Tier {
    let was_cold = || upper.iter().all(|table| table.description().cold().is_some());
    if !picking.settings.is_cold {
        return Tier::default();
    }
    if from == to {
        return Tier { is_cold: reason == Reason::Cold || was_cold(), stays_after: None };
    }
    let is_cold = to == LEVEL_LAST && picking.settings.last() < LEVEL_LAST;
    let all = is_enabled(Mutant::HotGoesCold);
    Tier { is_cold, stays_after: (is_cold && !all).then_some(picking.cold_up_to) }
}

/// How many eighths of a table's entries have gone cold.
fn cold_eighths(table: &TableHandle, cold_up_to: SequenceNumber) -> u64 {
    let description = table.description();
    if description.last_sequence <= cold_up_to {
        return EIGHTHS_ALL;
    }
    match description.eighths() {
        Some(eighths) => eighths.partition_point(|number| *number <= cold_up_to.0) as u64,
        // As if they were spread evenly.
        None => {
            let (first, last) = (description.first_sequence.0, description.last_sequence.0);
            let cold = cold_up_to.0.saturating_sub(first).min(last - first);
            cold.saturating_mul(EIGHTHS_ALL) / (last - first).max(1)
        }
    }
}

fn is_due(table: &TableHandle, picking: &Picking<'_>) -> bool {
    let least = if is_enabled(Mutant::ColdJobForAgeAlone) { 1 } else { EIGHTHS_DUE };
    picking.busy.is_free(table) && cold_eighths(table, picking.cold_up_to) >= least
}

/// Whether a job would leave less of what has gone cold where a table is. Range deletes stay, while
/// a snapshot needs them: alone they would be written again and again.
fn goes_down(table: &TableHandle, picking: &Picking<'_>) -> bool {
    let description = table.description();
    let goes = description.entries > 0 || description.last_sequence <= picking.oldest_snapshot;
    goes && is_due(table, picking)
}

/// The table of the last level of hot data that overlaps least of the cold data, for as much as
/// goes down.
fn down(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    let targets = Targets::new(levels, &picking.settings);
    let from = targets.last;
    let run = levels.level(from)?;
    let below = levels.level(LEVEL_LAST);
    let mut due: Vec<(u64, usize)> = (0..run.len())
        .filter(|at| goes_down(&run[*at], picking))
        .map(|at| {
            let table = run[at].description();
            let met = below
                .map_or(0, |below| sum(below.range(below.overlapping(&table.first_key, &table.last_key))));
            let goes = table.length * cold_eighths(&run[at], picking.cold_up_to) / EIGHTHS_ALL;
            (met.saturating_mul(1000) / goes.max(1), at)
        })
        .collect();
    due.sort_unstable();
    due.into_iter().find_map(|(_, at)| {
        let followers = with_followers(run, at, picking);
        let upper: Vec<_> = followers.into_iter().take_while(|table| goes_down(table, picking)).collect();
        job(levels, picking, &targets, Reason::Cold, (from, upper), LEVEL_LAST)
    })
}

/// A table of the last level that is not in the cold store yet: it was there before.
fn last_level(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    let run = levels.level(LEVEL_LAST)?;
    let table = run.iter().find(|table| table.description().cold().is_none() && is_due(table, picking))?;
    again(levels, picking, LEVEL_LAST, table)
}

/// The oldest run that is not in the cold store yet, if all of it has gone cold.
fn run(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    let goes = |table: &&Arc<TableHandle>| {
        let description = table.description();
        description.cold().is_none()
            && description.last_sequence <= picking.cold_up_to
            && picking.busy.is_free(table)
    };
    let table = levels.runs.iter().rev().find(goes)?;
    let job = again(levels, picking, 0, table)?;
    // One run stays one table.
    Some(Job { table_bytes: u64::MAX / super::GRANDPARENTS_MAX, ..job })
}

/// A job that writes a table again where it is, into the cold store.
fn again(levels: &Levels, picking: &Picking<'_>, level: u8, table: &Arc<TableHandle>) -> Option<Job> {
    let (first, last) = range_of(std::iter::once(table))?;
    if !picking.busy.may_write(picking.keyspace, level, &first, &last) {
        return None;
    }
    let table_bytes = picking.settings.table_bytes_at(level, Targets::new(levels, &picking.settings).base);
    let upper = (level, vec![Arc::clone(table)]);
    Some(assemble(levels, picking, Reason::Cold, upper, (level, Vec::new()), table_bytes))
}
