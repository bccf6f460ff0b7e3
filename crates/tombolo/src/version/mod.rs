//! The set of tables that a read sees.
//!
//! Read path, step 2: `memtables → version → filter → cache → table → object store`. A version is made from a state of the manifest and
//! never changes; handles of tables that stay are carried over, so that what they hold in memory stays too.
//!
//! Invariants:
//! 1. Level 0 is newest first, and the sequence numbers of its runs do not overlap; other levels are sorted by key, without overlap.
//! 2. A handle lives as long as some version names it or some read uses it; only then may the table's object be deleted.

mod handle;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_format::manifest::{TableDescription, TableName};

use crate::manifest::State;
pub(crate) use handle::{TableCursor, TableHandle, TableWriter, Tables};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Version {
    keyspaces: BTreeMap<u32, Arc<Levels>>,
    runs_max: usize,
}

/// The tables of one keyspace.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    /// Runs that overlap, newest first.
    pub(crate) runs: Vec<Arc<TableHandle>>,
    /// Sorted runs, from level 1 down, with their level numbers; none is empty.
    pub(crate) sorted: Vec<(u8, Arc<Vec<Arc<TableHandle>>>)>,
}

impl Levels {
    /// All tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.runs.iter().chain(self.sorted.iter().flat_map(|(_, tables)| tables.iter()))
    }
}

/// The table of a sorted run whose range may hold `key`.
#[inline]
pub(crate) fn table_for<'a>(run: &'a [Arc<TableHandle>], key: &[u8]) -> Option<&'a Arc<TableHandle>> {
    let index = run.partition_point(|table| &table.description().last_key[..] < key);
    run.get(index).filter(|table| &table.description().first_key[..] <= key)
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

    /// All keyspaces that have tables.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = (u32, &Arc<Levels>)> {
        self.keyspaces.iter().map(|(id, levels)| (*id, levels))
    }
}

/// Makes versions, and knows which tables are in use.
#[derive(Debug)]
pub(crate) struct Versions {
    tables: Tables,
    /// Handles that may still be in use, by name.
    handles: Mutex<HashMap<TableName, Weak<TableHandle>>>,
}

impl Versions {
    /// Versions whose tables are read through `tables`.
    pub(crate) fn new(tables: Tables) -> Versions {
        Versions { tables, handles: Mutex::default() }
    }

    /// Where tables are read from and written to.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Whether some version or read still uses a table.
    pub(crate) fn is_used(&self, table: TableName) -> bool {
        self.handles.lock().get(&table).is_some_and(|handle| handle.strong_count() > 0)
    }

    /// The version of `state`. Handles still in use are shared with it.
    pub(crate) fn build(&self, state: &State) -> Arc<Version> {
        let mut handles = self.handles.lock();
        let mut handle = |description: &Arc<TableDescription>| -> Arc<TableHandle> {
            if let Some(known) = handles.get(&description.name).and_then(Weak::upgrade) {
                return known;
            }
            let fresh = Arc::new(TableHandle::new(&self.tables, description));
            handles.insert(description.name, Arc::downgrade(&fresh));
            fresh
        };
        let mut keyspaces = BTreeMap::new();
        for keyspace in state.keyspaces().filter(|keyspace| !keyspace.levels.is_empty()) {
            let mut levels = Levels::default();
            for (number, level) in &keyspace.levels {
                let tables: Vec<_> = level.tables().map(&mut handle).collect();
                match number {
                    0 => levels.runs = tables,
                    _ => levels.sorted.push((*number, Arc::new(tables))),
                }
            }
            keyspaces.insert(keyspace.id, Arc::new(levels));
        }
        handles.retain(|_, handle| handle.strong_count() > 0);
        let runs_max = keyspaces.values().map(|levels: &Arc<Levels>| levels.runs.len()).max().unwrap_or(0);
        Arc::new(Version { keyspaces, runs_max })
    }
}

/// Whether a table's keys meet `first..=last`.
pub(crate) fn overlaps(table: &TableHandle, first: &Bytes, last: &Bytes) -> bool {
    table.description().first_key <= *last && *first <= table.description().last_key
}
