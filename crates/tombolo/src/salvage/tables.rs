//! Which tables are sound: each is read once, whatever states name it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_env::{BoxFuture, all};
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_storage::{Epoch, Error, Incarnation, ObjectStore, Purpose, Request, Result};

use super::history::is_damage;
use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::manifest::{State, names};
use crate::table::{Table, check_description};

/// Tables read at once: each is in memory while it is checked.
const TABLES_IN_FLIGHT_MAX: usize = 4;

/// A table, and what is wrong with it.
type Checked = (TableName, Option<Error>);

/// What is known of the tables so far.
pub(super) struct Tables {
    objects: Arc<dyn ObjectStore>,
    cache: Arc<BlockCache>,
    incarnation: Incarnation,
    /// `None` for a sound one.
    known: BTreeMap<TableName, Option<Error>>,
}

impl Tables {
    pub(super) fn new(objects: &Arc<dyn ObjectStore>, budget: &Arc<MemoryBudget>, incarnation: Incarnation) -> Tables {
        Tables { objects: Arc::clone(objects), cache: BlockCache::of(budget), incarnation, known: BTreeMap::new() }
    }

    /// The live tables of a state that are damaged or gone.
    ///
    /// # Errors
    /// Those of the store that say nothing about a table.
    pub(super) async fn damaged(&mut self, state: &State) -> Result<Vec<(Arc<TableDescription>, Error)>> {
        let live: Vec<_> = state.keyspaces().flat_map(|keyspace| keyspace.tables()).collect();
        let unknown: Vec<BoxFuture<'_, Result<Checked>>> = live
            .iter()
            .filter(|table| !self.known.contains_key(&table.name))
            .map(|table| Box::pin(self.check(table)) as BoxFuture<'_, _>)
            .collect();
        let checked: Result<Vec<_>> = all(unknown, TABLES_IN_FLIGHT_MAX).await.into_iter().collect();
        self.known.extend(checked?);
        let damaged = live.into_iter().filter_map(|table| self.known.get(&table.name)?.clone().map(|error| (Arc::clone(table), error)));
        Ok(damaged.collect())
    }

    /// Whether a table that was looked at is damaged.
    pub(super) fn is_damaged(&self, name: TableName) -> bool {
        self.known.get(&name).is_some_and(Option::is_some)
    }

    async fn check(&self, description: &Arc<TableDescription>) -> Result<Checked> {
        let object = names::table(self.incarnation, description.name);
        if let Err(error) = check_description(description, &object) {
            return Ok((description.name, Some(error)));
        }
        let table = Table::new((**description).clone(), object, Arc::clone(&self.objects), Arc::clone(&self.cache));
        match table.verify(Request::new(Purpose::Verify, Epoch::NONE)).await {
            Ok(()) => Ok((description.name, None)),
            Err(error) if is_damage(&error) => Ok((description.name, Some(error))),
            Err(error) => Err(error),
        }
    }
}
