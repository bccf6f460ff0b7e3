//! What has expired: tables of which all entries have go unread, and those of which about half have
//! are written again.
//!
//! Invariants:
//! 1. A table goes unread only when every entry of it has expired, for all who look from a
//!    snapshot too, an hour ago and longer, and nothing older meets its range: an expired entry
//!    hides everything older, as a delete does.
//! 2. What an operand of another table or a memtable may lie over, which was written before it
//!    ended, has not expired.
//! 3. A job that is done for what has expired leaves its tables with less of it: none is done
//!    again and again.

use std::sync::Arc;

use tombolo_format::key::{ENTRY_FEATURES_ENDING, SequenceNumber};
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{
    Job, Means, Picking, Reason, Shape, Targets, assemble, job, meets, next_level, runs_that_may_go,
};
use crate::time::middle;
use crate::version::{Levels, TableHandle};

/// See the module's documentation.
pub(super) fn pick(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    if picking.expired_ms() == 0 {
        return None;
    }
    let operands = Operands::of(levels, picking);
    whole(levels, picking, &operands).or_else(|| half(levels, picking, &operands))
}

/// When the first operand that ends was written, of all tables and memtables, and of all but the
/// table that has it.
struct Operands {
    first_ms: u64,
    second_ms: u64,
}

impl Operands {
    fn of(levels: &Levels, picking: &Picking<'_>) -> Operands {
        let mut all: Vec<u64> = levels.tables().map(|table| written_ms(table)).collect();
        all.push(picking.operands_ms);
        all.push(u64::MAX);
        all.sort_unstable();
        Operands { first_ms: all[0], second_ms: all[1] }
    }

    /// What ended up to then is gone in a table for all who look.
    fn gone_ms(&self, table: &TableHandle, picking: &Picking<'_>) -> u64 {
        if is_enabled(Mutant::ExpiredForgetsOperandsAbove) {
            return picking.expired_ms();
        }
        let is_its_own = written_ms(table) == self.first_ms;
        picking.expired_ms().min(if is_its_own { self.second_ms } else { self.first_ms })
    }
}

fn written_ms(table: &TableHandle) -> u64 {
    table.description().expiry().map_or(u64::MAX, |expiry| expiry.written_ms)
}

/// Whether a table holds nothing but entries that have expired.
fn is_whole(table: &TableHandle, gone_ms: u64) -> bool {
    let description = table.description();
    // A range delete is no entry, and hides everything older too.
    description.features & !ENTRY_FEATURES_ENDING == 0
        && description
            .expiry()
            .is_some_and(|expiry| expiry.entries == description.entries && expiry.latest_ms <= gone_ms)
}

/// Tables that go unread: all of a level that may.
fn whole(levels: &Levels, picking: &Picking<'_>, operands: &Operands) -> Option<Job> {
    // Something older may come to be there, and must stay hidden.
    if picking.settings.keeps_last && !is_enabled(Mutant::ExpiredGoesOverBehind) {
        return None;
    }
    let goes = |table: &TableHandle| {
        picking.busy.is_free(table) && is_whole(table, operands.gone_ms(table, picking))
    };
    let drops = |level, upper: Vec<Arc<TableHandle>>| {
        let job = assemble(levels, picking, Reason::Expired, (level, upper), (level, Vec::new()), u64::MAX);
        Job { means: Means::Drop, ..job }
    };
    let any = is_enabled(Mutant::ExpiredTableDroppedOverOlder);
    for (at, (level, run)) in levels.sorted.iter().enumerate().rev() {
        let is_met = |table: &TableHandle| {
            let description = table.description();
            let met = |(_, deeper): &(u8, Arc<crate::version::SortedRun>)| {
                !deeper.overlapping(&description.first_key, &description.last_key).is_empty()
            };
            !any && levels.sorted[at + 1..].iter().any(met)
        };
        let upper: Vec<_> = run.iter().filter(|table| goes(table) && !is_met(table)).cloned().collect();
        if !upper.is_empty() {
            return Some(drops(*level, upper));
        }
    }
    // Of level 0 one at a time, the oldest first: the next one has nothing older then.
    for (at, table) in levels.runs.iter().enumerate().rev().filter(|(_, table)| goes(table)) {
        let description = table.description();
        let is_met = levels.runs[at + 1..].iter().any(|older| meets(older, table))
            || levels
                .sorted
                .iter()
                .any(|(_, run)| !run.overlapping(&description.first_key, &description.last_key).is_empty());
        if !is_met || any {
            return Some(drops(0, vec![Arc::clone(table)]));
        }
    }
    None
}

/// Whether writing a table again pays: about half of its entries have expired by a time.
fn is_due(table: &TableHandle, expired_ms: u64) -> bool {
    let description = table.description();
    description.expiry().is_some_and(|expiry| {
        expiry.entries.saturating_mul(2) >= description.entries && middle(expiry) <= expired_ms
    })
}

/// A job for a table of which about half has expired: down one level, or written again where it is.
fn half(levels: &Levels, picking: &Picking<'_>, operands: &Operands) -> Option<Job> {
    let targets = Targets::new(levels, &picking.settings);
    // Fifo merges nothing, and of tiers only the last may be written again by itself.
    let lowest = match picking.settings.shape {
        Shape::Leveled => 0,
        Shape::Tiered | Shape::Auto => picking.settings.bottom(),
        Shape::Fifo => return None,
    };
    let due = |table: &&Arc<TableHandle>| {
        is_due(table, operands.gone_ms(table, picking)) && picking.busy.is_free(table)
    };
    for (level, run) in levels.sorted.iter().filter(|(level, _)| *level >= lowest).rev() {
        let to = next_level(levels, &targets, *level);
        let mut tables = run.iter().filter(due);
        let found = tables.find_map(|table| {
            job(levels, picking, &targets, Reason::Expired, (*level, vec![Arc::clone(table)]), to)
        });
        if found.is_some() {
            return found;
        }
    }
    if lowest > 0 || !levels.runs.iter().any(|table| due(&table)) {
        return None;
    }
    let to = next_level(levels, &targets, 0);
    job(levels, picking, &targets, Reason::Expired, (0, runs_that_may_go(levels, picking.busy, to)), to)
}

/// The number that the oldest snapshot must reach before what has expired can go, if one keeps it.
pub(super) fn held(levels: &Levels, picking: &Picking<'_>) -> Option<SequenceNumber> {
    let is_kept = |table: &Arc<TableHandle>| {
        is_due(table, picking.settled_ms) && !is_due(table, picking.snapshots_judged_ms)
    };
    let held = picking.snapshots_judged_ms < picking.settled_ms && levels.tables().any(is_kept);
    held.then(|| SequenceNumber(picking.oldest_snapshot.0.saturating_add(1).min(SequenceNumber::MAX.0)))
}
