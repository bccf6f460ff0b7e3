//! The set of tables that a read sees.
//!
//! Read path, step 2: `memtables → version → filter → cache → table → object store`. A version is
//! made from a state of the manifest and never changes; handles of tables that stay are carried
//! over, so that what they hold in memory stays too. So are whole chunks of handles and whole
//! keyspaces: a new version costs what the edits changed.
//!
//! Invariants:
//! 1. Level 0 is newest first, and the sequence numbers of its runs do not overlap; other levels
//!    are sorted by key, without overlap.
//! 2. What was ingested and is in no level yet lies over memtables, in the order of its numbers; a
//!    read of such a keyspace goes by numbers.
//! 3. A handle lives as long as some version names it or some read uses it; only then may the
//!    table's object be deleted.

mod below;
mod handle;
mod left_behind;
mod over;
mod place;
mod read_cost;
mod run;
mod silence;
mod values;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tombolo_format::manifest::{MAIN_STREAM, TableDescription, TableName};
use tombolo_storage::Result;

use crate::manifest::{KeyspaceState, Level, State};
use crate::options::keeps_last;
use crate::signal::Signal;
use crate::table::Habit;
pub(crate) use below::Below;
pub(crate) use handle::{
    BLOCK_BYTES_BEYOND, Output, Prepared, TableCursor, TableHandle, TableWriter, Written, block_bytes,
    table_options,
};
pub(crate) use left_behind::LeftBehind;
pub(crate) use over::Ingested;
use over::Over;
pub(crate) use place::{AttemptNames, Naming, Tables};
pub(crate) use read_cost::{Owed, ReadCost};
use run::Chunk;
pub(crate) use run::SortedRun;
pub(crate) use values::{Apart, ValueHandle};

/// The last level.
pub(crate) const LEVEL_LAST: u8 = 6;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Version {
    keyspaces: BTreeMap<u32, Arc<Levels>>,
    runs_max: usize,
    /// Over some keyspace lies what was ingested.
    has_over: bool,
}

/// The tables of one keyspace.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    /// What was ingested and is in no level yet, newest first.
    pub(crate) over: Vec<Arc<TableHandle>>,
    /// There is such, or it has taken the place of the levels.
    is_over: bool,
    /// Runs that overlap, newest first.
    pub(crate) runs: Vec<Arc<TableHandle>>,
    /// Sorted runs, from level 1 down, with their level numbers; none is empty.
    pub(crate) sorted: Vec<(u8, Arc<SortedRun>)>,
    /// Whether some table holds range deletes: as a rule none does.
    pub(crate) has_ranges: bool,
    /// The last level is left to tables that are ingested behind, and deletes stay told
    /// above it.
    pub(crate) keeps_last: bool,
    /// What reads pay for there being several.
    pub(crate) read_cost: ReadCost,
    /// What it was made of. Held, so that its address tells it from others.
    source: Option<Arc<KeyspaceState>>,
}

impl Levels {
    /// All tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        let runs = self.over.iter().chain(&self.runs);
        runs.chain(self.sorted.iter().flat_map(|(_, tables)| tables.iter()))
    }

    /// Bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        let runs = self.over.iter().chain(&self.runs);
        let runs = runs.map(|table| table.description().length).sum::<u64>();
        runs + self.sorted.iter().map(|(_, run)| run.bytes()).sum::<u64>()
    }

    /// These without the last level: what there is for compaction, where that level is kept.
    pub(crate) fn without_last(&self) -> Levels {
        let above = |(level, _): &&(u8, Arc<SortedRun>)| *level < LEVEL_LAST;
        Levels {
            over: self.over.clone(),
            is_over: self.is_over,
            runs: self.runs.clone(),
            sorted: self.sorted.iter().filter(above).cloned().collect(),
            has_ranges: self.has_ranges,
            keeps_last: self.keeps_last,
            read_cost: self.read_cost.as_paid(),
            source: self.source.clone(),
        }
    }

    /// The tables that were ingested behind a keyspace that keeps its last level and that meet
    /// others there, from a key to a key.
    pub(crate) fn behind(&self, first: &[u8], last: &[u8]) -> Option<&Arc<TableHandle>> {
        let over = self.over.iter().filter(|table| table.description().level > 0);
        let met = |table: &&Arc<TableHandle>| {
            let description = table.description();
            description.first_key[..] <= *last && !description.ends_before(first)
        };
        let run = self.level(LEVEL_LAST);
        over.chain(run.into_iter().flat_map(|run| run.range(run.overlapping(first, last)))).find(met)
    }

    /// The sorted run of a level, if it is not empty.
    pub(crate) fn level(&self, number: u8) -> Option<&Arc<SortedRun>> {
        let index = self.sorted.binary_search_by_key(&number, |(level, _)| *level).ok()?;
        Some(&self.sorted[index].1)
    }
}

impl Version {
    /// The tables of a keyspace.
    #[inline]
    pub(crate) fn levels(&self, keyspace: u32) -> Option<&Arc<Levels>> {
        self.keyspaces.get(&keyspace)
    }

    /// The most runs that level 0 of a keyspace has: writers slow down for them.
    #[inline]
    pub(crate) fn runs_max(&self) -> usize {
        self.runs_max
    }

    /// Whether what was ingested lies over the memtables of a keyspace: a read goes by numbers
    /// then.
    #[inline]
    pub(crate) fn is_over(&self, keyspace: u32) -> bool {
        self.has_over && self.levels(keyspace).is_some_and(|levels| levels.is_over)
    }

    /// All keyspaces that have tables.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = (u32, &Arc<Levels>)> {
        self.keyspaces.iter().map(|(id, levels)| (*id, levels))
    }
}

/// Handles that are in use, by name. A handle takes itself out when it goes.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    by_name: Mutex<HashMap<TableName, Weak<TableHandle>>>,
    /// Of value objects.
    values: Mutex<HashMap<TableName, Weak<ValueHandle>>>,
    /// By keyspace and level: how far walks usually go in its tables.
    habits: Mutex<HashMap<(u32, u8), Weak<Habit>>>,
    #[cfg(test)]
    looked_up: std::sync::atomic::AtomicUsize,
}

impl Handles {
    /// What the tables of a level learn together, as long as there are any.
    fn habit(&self, keyspace: u32, level: u8) -> Arc<Habit> {
        let mut habits = self.habits.lock();
        if let Some(habit) = habits.get(&(keyspace, level)).and_then(Weak::upgrade) {
            return habit;
        }
        habits.retain(|_, habit| habit.strong_count() > 0);
        let habit = Arc::default();
        habits.insert((keyspace, level), Arc::downgrade(&habit));
        habit
    }

    /// Called while the last reference to a handle goes. Another handle may bear the name already.
    fn forget(&self, name: TableName) {
        let mut by_name = self.by_name.lock();
        if by_name.get(&name).is_some_and(|handle| handle.strong_count() == 0) {
            by_name.remove(&name);
        }
    }
}

impl Handles {
    /// As [`Handles::forget`], of a value object.
    fn forget_values(&self, name: TableName) {
        let mut values = self.values.lock();
        if values.get(&name).is_some_and(|handle| handle.strong_count() == 0) {
            values.remove(&name);
        }
    }
}

/// Makes versions, and knows which tables are in use.
#[derive(Debug)]
pub(crate) struct Versions {
    tables: Tables,
    handles: Arc<Handles>,
    /// Background work; raised when reads have paid for a merge.
    work: Arc<Signal>,
    /// The stream whose keyspaces they show.
    stream: u32,
}

impl Versions {
    /// Versions whose tables are read through `tables`.
    pub(crate) fn new(tables: Tables) -> Versions {
        Versions { tables, handles: Arc::default(), work: Arc::default(), stream: MAIN_STREAM }
    }

    /// Those of another stream, which know of each other's tables.
    pub(crate) fn of_stream(&self, stream: u32) -> Versions {
        let handles = Arc::clone(&self.handles);
        Versions { tables: self.tables.clone(), handles, work: Arc::default(), stream }
    }

    /// The stream whose keyspaces they show.
    #[inline]
    pub(crate) fn stream(&self) -> u32 {
        self.stream
    }

    /// What tells that there may be background work.
    pub(crate) fn work(&self) -> &Arc<Signal> {
        &self.work
    }

    /// Where tables are read from and written to.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Opens the stores of the sources of a state, which is to be built next, if they are new.
    ///
    /// # Errors
    /// Those of opening them.
    pub(crate) fn learn(&self, state: &State) -> Result<()> {
        // Stores are opened outside of the lock, under which tables are looked up. One task
        // follows, so nothing is lost in between.
        let mut places = self.tables.places.lock().clone();
        places.learn(state)?;
        *self.tables.places.lock() = places;
        Ok(())
    }

    /// Whether some version or read still uses a table or a value object.
    pub(crate) fn is_used(&self, name: TableName) -> bool {
        self.handles.by_name.lock().get(&name).is_some_and(|handle| handle.strong_count() > 0)
            || self.handles.values.lock().get(&name).is_some_and(|handle| handle.strong_count() > 0)
    }

    /// The version of `state`, which shares with `old` what did not change. Handles still in use
    /// are shared as well.
    ///
    /// `newest_first` was ingested and is in no level yet.
    pub(crate) fn build(&self, state: &State, old: &Version, newest_first: &[&Ingested]) -> Arc<Version> {
        let mut keyspaces = BTreeMap::new();
        for keyspace in state.keyspaces().filter(|keyspace| keyspace.stream == self.stream) {
            let over = if newest_first.is_empty() { None } else { Over::of(keyspace, newest_first) };
            if over.is_none() && keyspace.levels.is_empty() {
                continue;
            }
            let before = old.levels(keyspace.id);
            let is_same = |levels: &&Arc<Levels>| {
                let source = levels.source.as_ref();
                !levels.is_over && source.is_some_and(|source| Arc::ptr_eq(source, keyspace))
            };
            let levels = match (before.filter(is_same), over) {
                (Some(levels), None) => Arc::clone(levels),
                (_, None) => Arc::new(self.levels(keyspace, before.map(|levels| &**levels))),
                (_, Some(over)) => {
                    Arc::new(self.levels_under(keyspace, before.map(|levels| &**levels), &over))
                }
            };
            keyspaces.insert(keyspace.id, levels);
        }
        let runs_max = keyspaces.values().map(|levels| levels.runs.len()).max().unwrap_or(0);
        let has_over = keyspaces.values().any(|levels| levels.is_over);
        Arc::new(Version { keyspaces, runs_max, has_over })
    }

    /// The levels of a keyspace with what lies over them.
    fn levels_under(&self, keyspace: &Arc<KeyspaceState>, before: Option<&Levels>, over: &Over) -> Levels {
        let levels = if over.is_exchanged {
            let keeps_last = keeps_last(&keyspace.options);
            Levels { source: Some(Arc::clone(keyspace)), keeps_last, ..Levels::default() }
        } else {
            self.levels(keyspace, before)
        };
        // What waits to enter the last level is kept room for, whatever the settings have become.
        let waits = over.tables.iter().any(|table| table.level > 0);
        Levels {
            keeps_last: levels.keeps_last || waits,
            over: over.tables.iter().map(|table| self.handle(None, table)).collect(),
            is_over: true,
            ..levels
        }
    }

    fn levels(&self, keyspace: &Arc<KeyspaceState>, before: Option<&Levels>) -> Levels {
        let keeps_last = keeps_last(&keyspace.options);
        let mut levels = Levels { source: Some(Arc::clone(keyspace)), keeps_last, ..Levels::default() };
        for (number, level) in &keyspace.levels {
            if *number == 0 {
                levels.runs = level.tables().map(|table| self.handle(Some(keyspace), table)).collect();
            } else {
                levels.sorted.push((
                    *number,
                    self.run(keyspace, level, before.and_then(|before| before.level(*number))),
                ));
            }
        }
        levels.has_ranges = levels.runs.iter().any(|table| table.has_ranges())
            || levels.sorted.iter().any(|(_, run)| run.has_ranges());
        levels.read_cost = ReadCost::new(&levels, &self.work);
        levels
    }

    fn run(
        &self,
        keyspace: &KeyspaceState,
        level: &Level,
        before: Option<&Arc<SortedRun>>,
    ) -> Arc<SortedRun> {
        let chunks = level.chunks().iter().enumerate().map(|(at, source)| {
            let same = before.and_then(|before| before.chunk_of(source, at));
            same.map_or_else(
                || {
                    Arc::new(Chunk::new(
                        source,
                        source.iter().map(|(_, table)| self.handle(Some(keyspace), table)).collect(),
                    ))
                },
                Arc::clone,
            )
        });
        Arc::new(SortedRun::new(chunks.collect()))
    }

    /// Without its keyspace, a table refers to no value objects.
    fn handle(
        &self,
        keyspace: Option<&KeyspaceState>,
        description: &Arc<TableDescription>,
    ) -> Arc<TableHandle> {
        #[cfg(test)]
        self.handles.looked_up.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut by_name = self.handles.by_name.lock();
        if let Some(known) = by_name.get(&description.name).and_then(Weak::upgrade) {
            return known;
        }
        let handles = Arc::clone(&self.handles);
        let values = keyspace.and_then(|keyspace| self.values(keyspace, description));
        let fresh = Arc::new(TableHandle::new(&self.tables, description, handles, values));
        by_name.insert(description.name, Arc::downgrade(&fresh));
        fresh
    }

    /// Handles of the value objects to which a table refers, by identity.
    fn values(&self, keyspace: &KeyspaceState, table: &TableDescription) -> Option<Arc<[Arc<ValueHandle>]>> {
        let referred = table.referred();
        if referred.is_empty() {
            return None;
        }
        let mut by_name = self.handles.values.lock();
        let objects = referred.iter().filter_map(|referred| keyspace.values.object(referred.object));
        let handle = |object: &Arc<TableDescription>| {
            if let Some(known) = by_name.get(&object.name).and_then(Weak::upgrade) {
                return known;
            }
            let fresh = Arc::new(ValueHandle::new(&self.tables, object, Arc::clone(&self.handles)));
            by_name.insert(object.name, Arc::downgrade(&fresh));
            fresh
        };
        Some(objects.map(handle).collect())
    }
}

#[cfg(test)]
mod tests;
