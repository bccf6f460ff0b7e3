//! Tables that a log entry has made part of the database, and no record yet: they lie over the
//! memtable that was sealed with that entry, until its flush puts them into the levels.

use std::sync::Arc;

use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::TableDescription;

use crate::manifest::KeyspaceState;

/// What one log entry has made part of the database.
#[derive(Debug)]
pub(crate) struct Ingested {
    /// Oldest first, each under the number of its operation; those of one number meet nowhere.
    pub(crate) tables: Vec<Arc<TableDescription>>,
    /// Keyspaces of which all that is older has ended.
    pub(crate) exchanged: Vec<u32>,
    /// The number of the entry's last operation.
    pub(crate) last: SequenceNumber,
}

impl Ingested {
    /// The keyspaces that it is about, each once.
    pub(crate) fn keyspaces(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.exchanged.clone();
        all.extend(self.tables.iter().map(|table| table.keyspace));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether all of a keyspace that is older has ended.
    pub(crate) fn exchanges(&self, keyspace: u32) -> bool {
        self.exchanged.contains(&keyspace)
    }

    fn is_about(&self, keyspace: u32) -> bool {
        self.exchanges(keyspace) || self.tables.iter().any(|table| table.keyspace == keyspace)
    }
}

/// What lies over the levels of a keyspace.
#[derive(Debug, Default)]
pub(super) struct Over {
    /// Newest first.
    pub(super) tables: Vec<Arc<TableDescription>>,
    /// The levels count no more.
    pub(super) is_exchanged: bool,
}

impl Over {
    /// Of a keyspace, with what was ingested, newest first; `None`: nothing. What a record has made
    /// live is in the levels.
    pub(super) fn of(keyspace: &KeyspaceState, newest_first: &[&Ingested]) -> Option<Over> {
        let mut over: Option<Over> = None;
        let waits =
            |ingested: &&&Ingested| ingested.last > keyspace.flushed && ingested.is_about(keyspace.id);
        for ingested in newest_first.iter().filter(waits) {
            let over = over.get_or_insert_default();
            let tables = ingested.tables.iter().rev().filter(|table| table.keyspace == keyspace.id);
            over.tables.extend(tables.cloned());
            if ingested.exchanges(keyspace.id) {
                over.is_exchanged = true;
                break;
            }
        }
        over
    }
}
