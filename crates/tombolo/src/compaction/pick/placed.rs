//! Tables that were ingested find their level: those that meet nothing older move down as they are,
//! as far as they can. So a bulk load leaves no heap of runs in level 0, and is not written again.

use std::sync::Arc;

use super::{Job, Means, Picking, Reason, Targets, Tier, meets, range_of};
use crate::version::{Levels, TableHandle};

/// The lowest level to which a table may go without passing, or meeting, anything older; `None`: it
/// stays in level 0.
fn level_of(levels: &Levels, table: &TableHandle, last: u8) -> Option<u8> {
    let description = table.description();
    let met = levels
        .sorted
        .iter()
        .find(|(_, run)| !run.overlapping(&description.first_key, &description.last_key).is_empty());
    match met {
        Some((level, _)) => level.checked_sub(1).filter(|level| *level > 0),
        None => Some(last),
    }
}

/// Moves ingested tables of level 0 that meet no older run there.
pub(super) fn pick(levels: &Levels, picking: &Picking<'_>, targets: &Targets) -> Option<Job> {
    let is_ingested = |table: &TableHandle| {
        picking.busy.is_free(table) && table.description().properties.sequence_override().is_some()
    };
    let mut chosen: Option<(u8, Vec<Arc<TableHandle>>)> = None;
    for (place, table) in levels.runs.iter().enumerate().filter(|(_, table)| is_ingested(table)) {
        // Runs are newest first; tables of one number meet nowhere.
        if levels.runs[place + 1..].iter().any(|older| meets(older, table)) {
            continue;
        }
        let Some(level) = level_of(levels, table, targets.last) else { continue };
        let (to, tables) = chosen.get_or_insert((level, Vec::new()));
        if level == *to && !tables.iter().any(|other| meets(other, table)) {
            tables.push(Arc::clone(table));
        }
    }
    let (to, upper) = chosen?;
    let (first, last) = range_of(upper.iter())?;
    if !picking.busy.may_write(picking.keyspace, to, &first, &last) {
        return None;
    }
    Some(Job {
        keyspace: picking.keyspace,
        reason: Reason::Ingested,
        from: 0,
        upper,
        to,
        passed: Vec::new(),
        lower: Vec::new(),
        means: Means::Move,
        table_bytes: picking.settings.table_bytes_at(to, targets.base),
        tier: Tier::default(),
        older_runs: Vec::new(),
        deeper: Vec::new(),
        keeps_last: picking.settings.keeps_last,
    })
}
