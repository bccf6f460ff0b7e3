//! Tables of a clone that lie under a source on another store are written again where they are in
//! the tree, into the clone's own store, one by one, once nothing else is to be done. With the last
//! of them the clone lets go of its source.
//!
//! Invariant: a job leaves none of its tables under a source, and none of their values.

use std::sync::Arc;

use super::{Job, Picking, Reason, Targets, assemble, range_of};
use crate::version::{Levels, TableHandle};

/// See the module's documentation. From the top down: the top is merged again soonest.
pub(super) fn pick(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    if picking.far.is_empty() {
        return None;
    }
    let is_far = |table: &&Arc<TableHandle>| {
        let source = |of: &tombolo_format::manifest::TableDescription| of.source.map(|of| of.source);
        let values = table.values().iter().map(|values| source(values.object().description()));
        let mut sources = std::iter::once(source(table.description())).chain(values).flatten();
        sources.any(|source| picking.far.contains(&source)) && picking.busy.is_free(table)
    };
    let runs = levels.runs.iter().rev().map(|table| (0, table));
    let sorted = levels.sorted.iter().flat_map(|(level, run)| run.iter().map(|table| (*level, table)));
    runs.chain(sorted)
        .filter(|(_, table)| is_far(table))
        .find_map(|(level, table)| again(levels, picking, level, table))
}

fn again(levels: &Levels, picking: &Picking<'_>, level: u8, table: &Arc<TableHandle>) -> Option<Job> {
    let (first, last) = range_of(std::iter::once(table))?;
    if !picking.busy.may_write(picking.keyspace, level, &first, &last) {
        return None;
    }
    let base = Targets::new(levels, &picking.settings).base;
    // One run of level 0 stays one table.
    let table_bytes = match level {
        0 => u64::MAX / super::GRANDPARENTS_MAX,
        level => picking.settings.table_bytes_at(level, base),
    };
    let upper = (level, vec![Arc::clone(table)]);
    Some(assemble(levels, picking, Reason::Pulled, upper, (level, Vec::new()), table_bytes))
}
