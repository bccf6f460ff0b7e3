//! Garbage of values that lie apart: tables that refer to value objects of which much is garbage
//! are written again where they are. What lives of those objects moves into new ones meanwhile, and
//! an object goes with the last table that refers to it.
//!
//! Invariant: a job leaves its tables without references to the objects that are collected, but
//! for values that cannot be read: so none is done again and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Job, Picking, Reason, Shape, Targets, assemble, range_of};
use crate::version::{Levels, TableHandle};

/// See the module's documentation. A table that refers to the oldest object comes first. Runs of
/// level 0 go down soon, and what they refer to moves then.
pub(super) fn pick(levels: &Levels, picking: &Picking<'_>) -> Option<Job> {
    if picking.collected.objects.is_empty() {
        return None;
    }
    let lowest = match picking.settings.shape {
        Shape::Leveled => 0,
        Shape::Tiered | Shape::Auto => picking.settings.bottom(),
        // Its tables go whole, and their objects with them.
        Shape::Fifo => return None,
    };
    let objects = picking.collected.objects.iter().enumerate();
    let objects = objects.filter(|(_, (_, name))| !picking.busy.damaged.contains_key(name));
    let places: BTreeMap<u64, usize> = objects.map(|(place, (identity, _))| (*identity, place)).collect();
    let oldest = |table: &TableHandle| {
        let referred = table.values().iter();
        referred.filter_map(|object| places.get(&object.object().description().identity)).min().copied()
    };
    let mut tables: Vec<(usize, u8, &Arc<TableHandle>)> = Vec::new();
    for (level, run) in levels.sorted.iter().filter(|(level, _)| *level >= lowest) {
        let free = run.iter().filter(|table| picking.busy.is_free(table));
        tables.extend(free.filter_map(|table| Some((oldest(table)?, *level, table))));
    }
    tables.sort_by_key(|(place, level, _)| (*place, *level));
    tables.into_iter().find_map(|(_, level, table)| again(levels, picking, level, table))
}

/// A job that writes a table again where it is.
fn again(levels: &Levels, picking: &Picking<'_>, level: u8, table: &Arc<TableHandle>) -> Option<Job> {
    let (first, last) = range_of(std::iter::once(table))?;
    if !picking.busy.may_write(picking.keyspace, level, &first, &last) {
        return None;
    }
    let table_bytes = picking.settings.table_bytes_at(level, Targets::new(levels, &picking.settings).base);
    let upper = (level, vec![Arc::clone(table)]);
    Some(assemble(levels, picking, Reason::Garbage, upper, (level, Vec::new()), table_bytes))
}
