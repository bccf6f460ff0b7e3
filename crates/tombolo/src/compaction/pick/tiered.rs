//! The shape `tiered`: sorted runs are merged once they have grown to about the same size, as in
//! RocksDB's universal compaction.
//!
//! Level 0 holds the newest runs, each sorted level one tier, the deeper the older. Once level 0
//! has several runs they go down together with every tier, from the top, that is no larger than
//! all above it. What they make becomes the tier above the first that stays. So tiers double in
//! size downwards, and a byte is written again about as often as its tier has doubled.
//!
//! - Level 0 stays by itself while it holds less than a small part of the keyspace, or there
//!   would be more tiers than levels: its runs become fewer and larger.
//! - What meets no table goes to the last level at once.
//! - All is merged when what lies above the last tier is twice as large as it: by then two thirds
//!   of the space may be in use for nothing.

use std::sync::Arc;

use super::{
    Busy, Job, LEVEL_LAST, Means, Picking, RUNS_TRIGGER, Reason, Targets, assemble, can_move, for_deletes_at,
    job, range_of, runs_that_may_go, sum, within_level_0,
};
use crate::version::{Levels, TableHandle};

/// Level 0 goes down once it holds one part in so many of the keyspace: as many as tiers that
/// double on the sorted levels hold.
const ENTERS_PART: u64 = 1 << LEVEL_LAST;
/// What lies above the last tier is at most this many times as large as it.
const ABOVE_LAST_MAX: u64 = 2;

/// See the module's documentation.
pub(super) fn pick(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    let targets = Targets::new(levels, &picking.settings);
    let free = levels.runs.iter().filter(|table| picking.busy.is_free(table)).count();
    if free >= RUNS_TRIGGER {
        let enters = sum(levels.runs.iter()) >= levels.bytes() / ENTERS_PART;
        let down = || down(levels, picking, &targets);
        let within = || within_level_0(levels, picking, &targets, RUNS_TRIGGER, u64::MAX);
        let job = if enters { down().or_else(within) } else { within().or_else(down) };
        if job.is_some() {
            return job;
        }
    }
    for_deletes_at(levels, picking, &targets, picking.settings.bottom())
}

/// Level 0 and the tiers that it has outgrown, as one tier.
fn down(levels: &Levels, picking: &Picking<'_>, targets: &Targets) -> Option<Job> {
    // What another job is about to write below is older than level 0, and must not be passed.
    if picking.busy.writes_below_level_0(picking.keyspace) || picking.busy.has_damage(picking.keyspace) {
        return None;
    }
    let upper = runs_that_may_go(levels, picking.busy, picking.settings.bottom());
    let (first, last) = range_of(upper.iter())?;
    if levels.sorted.iter().all(|(_, run)| run.overlapping(&first, &last).is_empty()) {
        return job(levels, picking, targets, Reason::Tiers, (0, upper), picking.settings.bottom());
    }
    let taken = tiers_taken(levels, sum(upper.iter()));
    let to = levels.sorted.get(taken).map_or(picking.settings.bottom(), |(level, _)| level - 1);
    let mut passed: Vec<(u8, Vec<Arc<TableHandle>>)> =
        levels.sorted[..taken].iter().map(|(level, run)| (*level, run.iter().cloned().collect())).collect();
    let lower = passed.pop_if(|(level, _)| *level == to).map_or_else(Vec::new, |(_, tables)| tables);
    let is_free = |busy: &Busy, tables: &[Arc<TableHandle>]| tables.iter().all(|table| busy.is_free(table));
    if !is_free(picking.busy, &lower) || !passed.iter().all(|(_, tables)| is_free(picking.busy, tables)) {
        return None;
    }
    let table_bytes = picking.settings.table_bytes_at(to, targets.base);
    let mut job = assemble(levels, picking, Reason::Tiers, (0, upper), (to, lower), table_bytes);
    job.passed = passed;
    if can_move(&job, picking) {
        job.means = Means::Move;
    }
    Some(job)
}

/// How many tiers, from the top, go with `bytes` of level 0.
fn tiers_taken(levels: &Levels, mut bytes: u64) -> usize {
    let last = levels.sorted.last().map_or(0, |(_, run)| run.bytes());
    if levels.bytes() - last >= last.saturating_mul(ABOVE_LAST_MAX) {
        return levels.sorted.len();
    }
    let mut taken = 0;
    for (level, run) in &levels.sorted {
        // Above level 1 there is no room for another tier.
        if run.bytes() > bytes && *level > 1 {
            break;
        }
        bytes += run.bytes();
        taken += 1;
    }
    taken
}
