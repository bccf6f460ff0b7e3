//! What range deletes hide from a read.
//!
//! Of a key, everything in an older source is older than a range delete over it in a newer one. So
//! a get asks each source, newest first, for an entry and for its range deletes: an entry that is
//! not hidden by those of its own source is the answer, and a range delete without such an entry
//! says that there is none. Filters and rows are about entries: they answer nothing here.
//!
//! A cursor asks all sources at once, and remembers the keys around for which the answer is the
//! same ([`Hides`]).
//!
//! Invariant: a read of a keyspace without range deletes asks one flag of each memtable and of the
//! tables, and nothing else.

use std::sync::Arc;

use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_format::ranges::Stretch;
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::engine::View;
use crate::memtable::MemtableRanges;
use crate::table::KeyRange;
use crate::version::{SortedRun, TableHandle};

/// The range delete of one source over a key, if there is one that the read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover(pub(crate) Option<SequenceNumber>);

impl Cover {
    /// Whether it hides an entry.
    #[inline]
    pub(crate) fn hides(self, trailer: Trailer) -> bool {
        self.0.is_some_and(|number| hides(number, trailer))
    }

    /// Whether there is one that a read at `seen` does not see.
    pub(crate) fn is_newer_than(self, seen: SequenceNumber) -> bool {
        self.0.is_some_and(|number| number > seen)
    }

    /// Whether there is one: then nothing older of the key is seen.
    #[inline]
    pub(crate) fn is_there(self) -> bool {
        self.0.is_some()
    }
}

/// Whether a range delete hides an entry of a key in its range: one that is older.
#[inline]
pub(crate) fn hides(number: SequenceNumber, trailer: Trailer) -> bool {
    trailer.sequence() < number
        || (trailer.sequence() == number && is_enabled(Mutant::RangeDeleteCoversEqualNumber))
}

/// That of a table. `None`: the table must be opened first.
#[inline]
pub(crate) fn cover_of(table: &TableHandle, key: &[u8], sequence: SequenceNumber) -> Option<Cover> {
    if !table.has_ranges() {
        return Some(Cover(None));
    }
    let ranges = table.ranges()?;
    Some(Cover(ranges.covered(key, sequence).map(|covered| covered.number)))
}

/// Opens a table if a read has to know its range deletes.
///
/// # Errors
/// Those of opening it.
pub(crate) async fn open_for_ranges(table: &TableHandle) -> Result<()> {
    if table.has_ranges() && table.ranges().is_none() { table.open().await } else { Ok(()) }
}

/// What the range deletes of a view hide of a keyspace, for who goes through its keys.
#[derive(Debug)]
pub(crate) struct Hides {
    memtables: Vec<Arc<MemtableRanges>>,
    runs: Vec<Arc<TableHandle>>,
    sorted: Vec<Arc<SortedRun>>,
    sequence: SequenceNumber,
    /// Where the last answer holds, and the answer; bounds without a key are none.
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    number: Option<SequenceNumber>,
    /// There is a last answer.
    is_known: bool,
}

impl Hides {
    /// Of what a view holds within `range`; `None` when there is nothing.
    #[inline]
    pub(crate) fn of_view(
        view: &View,
        keyspace: u32,
        sequence: SequenceNumber,
        range: Option<&Arc<KeyRange>>,
    ) -> Option<Box<Hides>> {
        let has_ranges = view.memtables().any(|memtable| memtable.has_ranges())
            || view.version.levels(keyspace).is_some_and(|levels| levels.has_ranges);
        if has_ranges { Hides::look_for(view, keyspace, sequence, range) } else { None }
    }

    fn look_for(
        view: &View,
        keyspace: u32,
        sequence: SequenceNumber,
        range: Option<&Arc<KeyRange>>,
    ) -> Option<Box<Hides>> {
        let memtables = view.memtables_of(keyspace).filter(|memtable| memtable.has_ranges());
        let memtables: Vec<_> = memtables.filter_map(|memtable| memtable.list(keyspace)?.ranges()).collect();
        let levels = view.version.levels(keyspace).filter(|levels| levels.has_ranges);
        if memtables.is_empty() && levels.is_none() {
            return None;
        }
        let meets = |table: &&Arc<TableHandle>| {
            table.has_ranges() && range.is_none_or(|range| super::run::meets(table, range))
        };
        let runs = levels.map_or_else(Vec::new, |levels| levels.runs.iter().filter(meets).cloned().collect());
        let with_ranges = |run: &Arc<SortedRun>| run.has_ranges() && run.iter().any(|table| meets(&table));
        let sorted = levels.map_or_else(Vec::new, |levels| {
            levels.sorted.iter().map(|(_, run)| run).filter(|run| with_ranges(run)).cloned().collect()
        });
        if memtables.is_empty() && runs.is_empty() && sorted.is_empty() {
            return None;
        }
        let (from, to, number) = (None, None, None);
        Some(Box::new(Hides { memtables, runs, sorted, sequence, from, to, number, is_known: false }))
    }

    /// The tables that must be opened before anything is asked.
    pub(crate) fn closed_tables(&self, range: Option<&Arc<KeyRange>>) -> Vec<Arc<TableHandle>> {
        let meets = |table: &&Arc<TableHandle>| range.is_none_or(|range| super::run::meets(table, range));
        let sorted = self.sorted.iter().flat_map(|run| run.iter()).filter(|table| table.has_ranges());
        let all = self.runs.iter().chain(sorted.filter(meets));
        all.filter(|table| table.ranges().is_none()).cloned().collect()
    }

    /// The greatest number of a range delete over `key`. All tables are open.
    #[inline]
    pub(crate) fn number(&mut self, key: &[u8]) -> Option<SequenceNumber> {
        let holds = self.is_known
            && self.from.as_deref().is_none_or(|from| from <= key)
            && self.to.as_deref().is_none_or(|to| key < to);
        if holds { self.number } else { self.look(key) }
    }

    /// Whether an entry is hidden.
    #[inline]
    pub(crate) fn hides(&mut self, key: &[u8], trailer: Trailer) -> bool {
        self.number(key).is_some_and(|number| hides(number, trailer))
    }

    /// Where the keys begin for which the last answer holds.
    pub(crate) fn from(&self) -> Option<&[u8]> {
        self.from.as_deref()
    }

    /// Where they end.
    pub(crate) fn to(&self) -> Option<&[u8]> {
        self.to.as_deref()
    }

    #[cold]
    fn look(&mut self, key: &[u8]) -> Option<SequenceNumber> {
        let mut all = Stretch::default();
        for ranges in &self.memtables {
            all = all.with(ranges.stretch(key, self.sequence));
        }
        for table in &self.runs {
            all = all.with(
                table.ranges().map_or_else(Stretch::default, |ranges| ranges.stretch(key, self.sequence)),
            );
        }
        for run in &self.sorted {
            all = all.with(in_run(run, key, self.sequence));
        }
        let set = |kept: &mut Option<Vec<u8>>, found: Option<&[u8]>| match found {
            Some(found) => {
                let kept = kept.get_or_insert_default();
                kept.clear();
                kept.extend_from_slice(found);
            }
            None => *kept = None,
        };
        set(&mut self.from, all.from);
        set(&mut self.to, all.to);
        (self.number, self.is_known) = (all.number, true);
        all.number
    }
}

/// What a table of a sorted run says of a key and of those around it.
fn in_run<'a>(run: &'a SortedRun, key: &[u8], sequence: SequenceNumber) -> Stretch<'a> {
    let before = run.before(key);
    let first_of = |at: usize| run.get(at).map(|table| &table.description().first_key[..]);
    match run.get(before).filter(|table| table.covers(key)) {
        Some(table) => {
            let extent = Stretch { from: first_of(before), to: first_of(before + 1), number: None };
            let ranges = table.ranges().filter(|_| table.has_ranges());
            ranges.map_or(extent, |ranges| ranges.stretch(key, sequence).with(extent))
        }
        // Between two tables. Where one ends, none of its range deletes covers.
        None => {
            let from = before.checked_sub(1).and_then(|at| run.get(at));
            Stretch {
                from: from.map(|table| &table.description().last_key[..]),
                to: first_of(before),
                number: None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
