//! Tables that a range delete covers whole go unread, at once.
//!
//! Invariants:
//! 1. The range delete is in a table, newer than all that goes, and covers it: whatever older
//!    version of a key stays is hidden as before.
//! 2. A table goes only when no snapshot sees it. One that sees the range delete sees none of it.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Job, Means, Picking, Reason, assemble};
use crate::engine::DroppedRange;
use crate::version::{Levels, TableHandle};

/// The next tables that go, of keys from one up to another: of the lowest level that has some, all
/// that may. With none, whether some wait for a job that has taken them.
pub(super) fn next(
    levels: &Levels,
    picking: &Picking<'_>,
    (from, to): (&Bytes, &Bytes),
    dropped: DroppedRange,
) -> Result<Job, bool> {
    let is_seen = |table: &TableHandle| {
        let mut snapshots = picking.snapshots.iter();
        let sees = |snapshot: &_| table.description().first_sequence <= *snapshot && *snapshot < dropped.by;
        snapshots.any(sees) && !is_enabled(Mutant::DroppedFilesForgetSnapshots)
    };
    let goes = |table: &&Arc<TableHandle>| {
        let description = table.description();
        description.last_sequence <= dropped.after
            && *from <= description.first_key
            && description.ends_before(to)
            && !is_seen(table)
    };
    let mut waits = false;
    let mut of_level = |level: u8, tables: &mut dyn Iterator<Item = &Arc<TableHandle>>| {
        let found: Vec<_> = tables.filter(goes).collect();
        // One that a job has taken goes once that has ended, or what was made of it.
        waits |= found.iter().any(|table| picking.busy.is_taken(table));
        let free = found.into_iter().filter(|table| !picking.busy.is_taken(table));
        let upper: Vec<_> = free.cloned().collect();
        if upper.is_empty() {
            return None;
        }
        let job = assemble(levels, picking, Reason::Asked, (level, upper), (level, Vec::new()), u64::MAX);
        Some(Job { means: Means::Drop, ..job })
    };
    let mut sorted = levels.sorted.iter().rev();
    let found = sorted.find_map(|(level, run)| of_level(*level, &mut run.iter()));
    let found = found.or_else(|| of_level(0, &mut levels.runs.iter()));
    found.ok_or(waits)
}
