//! Whether anything of a key lies below the entries that a flush or a compaction writes.

use std::sync::Arc;

use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Levels, SortedRun, TableHandle};

/// A place in a sorted run that moves with ascending keys.
#[derive(Debug)]
struct Spot {
    run: Arc<SortedRun>,
    at: usize,
}

impl Spot {
    /// Whether a table's range holds `key`.
    fn may_hold(&mut self, key: &[u8]) -> bool {
        while self.run.get(self.at).is_some_and(|table| table.description().ends_before(key)) {
            self.at += 1;
        }
        self.run.get(self.at).is_some_and(|table| &table.description().first_key[..] <= key)
    }
}

/// What lies below entries that are written: is anything older of a key there?
#[derive(Debug)]
pub(crate) struct Below {
    runs: Vec<Arc<TableHandle>>,
    levels: Vec<Spot>,
    /// Something may come to lie below everything.
    is_kept: bool,
}

impl Below {
    /// These runs of level 0, and these sorted ones.
    pub(crate) fn new(runs: Vec<Arc<TableHandle>>, sorted: &[Arc<SortedRun>]) -> Below {
        let levels = sorted.iter().map(|run| Spot { run: Arc::clone(run), at: 0 }).collect();
        Below { runs, levels, is_kept: false }
    }

    /// The same, where with `is_kept` tables may be ingested behind all of it: any key may be in
    /// one.
    pub(crate) fn kept(self, is_kept: bool) -> Below {
        Below { is_kept: is_kept && !is_enabled(Mutant::BehindDeletesDropped), ..self }
    }

    /// All tables of a keyspace that are in a level; `None`: it has none.
    pub(crate) fn of_levels(levels: Option<&Levels>) -> Below {
        let Some(levels) = levels else { return Below::new(Vec::new(), &[]) };
        let sorted: Vec<_> = levels.sorted.iter().map(|(_, run)| Arc::clone(run)).collect();
        Below::new(levels.runs.clone(), &sorted)
    }

    /// Whether something of `key` may lie below. Keys must ascend from call to call.
    pub(crate) fn may_hold(&mut self, key: &[u8]) -> bool {
        self.is_kept
            || self.runs.iter().any(|table| table.covers(key))
            || self.levels.iter_mut().any(|level| level.may_hold(key))
    }
}

impl Below {
    /// Whether something of the keys from `from` up to `to` may lie below.
    pub(crate) fn may_hold_within(&self, from: &[u8], to: &[u8]) -> bool {
        let meets = |table: &Arc<TableHandle>| {
            let description = table.description();
            *description.first_key < *to && !description.ends_before(from)
        };
        self.is_kept
            || self.runs.iter().any(meets)
            || self.levels.iter().any(|level| level.run.range(level.run.overlapping(from, to)).any(meets))
    }
}
