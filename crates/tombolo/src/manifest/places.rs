//! Where tables lie: under the database's own root, under that of a source, or in a cold store.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_format::manifest::{Source, TableDescription};
use tombolo_storage::location::location_of;
use tombolo_storage::{Incarnation, ObjectName, ObjectStore, Result};

use super::cold::ColdObjects;
use super::{State, names};

/// The stores in which the tables of one database lie. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    own: Arc<dyn ObjectStore>,
    incarnation: Incarnation,
    sources: Arc<BTreeMap<u32, Place>>,
    cold: Arc<BTreeMap<u64, Arc<ColdObjects>>>,
}

/// A source, and its store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) source: Source,
    pub(crate) store: Arc<dyn ObjectStore>,
}

impl Place {
    /// Opens the store of a source of the database in `own`.
    ///
    /// # Errors
    /// `Unsupported` when it is not known where `own` lies; those of opening the store.
    pub(crate) fn of(own: &Arc<dyn ObjectStore>, source: &Source) -> Result<Place> {
        let store = location_of(&**own)?.neighbour(&source.place);
        let store = store
            .map_err(|error| error.context(format!("opening {}, of which tables are named", source.place)))?;
        Ok(Place { source: source.clone(), store })
    }
}

impl Places {
    /// Of a database without sources.
    pub(crate) fn own(own: &Arc<dyn ObjectStore>, incarnation: Incarnation) -> Places {
        Places { own: Arc::clone(own), incarnation, sources: Arc::default(), cold: Arc::default() }
    }

    /// Of a database in a state.
    ///
    /// # Errors
    /// As [`Place::of`].
    pub(crate) fn of(own: &Arc<dyn ObjectStore>, incarnation: Incarnation, state: &State) -> Result<Places> {
        let mut places = Places::own(own, incarnation);
        places.learn(state)?;
        Ok(places)
    }

    /// Opens the stores of sources that were not known yet. Cold stores are opened when they are
    /// used.
    ///
    /// # Errors
    /// As [`Place::of`].
    pub(crate) fn learn(&mut self, state: &State) -> Result<()> {
        let unknown: Vec<_> =
            state.sources().filter(|source| !self.sources.contains_key(&source.number)).cloned().collect();
        if !unknown.is_empty() {
            let opened = unknown
                .iter()
                .map(|source| Ok((source.number, Place::of(&self.own, source)?)))
                .collect::<Result<Vec<_>>>()?;
            Arc::make_mut(&mut self.sources).extend(opened);
        }
        for cold in state.cold_stores() {
            if self.cold.get(&cold.id).is_none_or(|known| known.named() != cold) {
                let store = Arc::new(ColdObjects::new(&self.own, cold));
                Arc::make_mut(&mut self.cold).insert(cold.id, store);
            }
        }
        Ok(())
    }

    /// The sources, by number.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Place> {
        self.sources.values()
    }

    /// The cold stores.
    pub(crate) fn cold(&self) -> impl Iterator<Item = &Arc<ColdObjects>> {
        self.cold.values()
    }

    /// The cold store into which this database writes, if it has one.
    pub(crate) fn own_cold(&self) -> Option<&Arc<ColdObjects>> {
        self.cold.values().find(|cold| cold.named().is_own)
    }

    /// The object of a table of a state that was learnt, and the store that has it.
    pub(crate) fn locate(&self, table: &TableDescription) -> (Arc<dyn ObjectStore>, ObjectName) {
        let place = table.source.and_then(|of| Some((self.sources.get(&of.source)?, of.name)));
        let (store, object) = match place {
            Some((place, name)) => (&place.store, names::table(Incarnation(place.source.incarnation), name)),
            None => (&self.own, names::table(self.incarnation, table.name)),
        };
        match table.cold().and_then(|id| self.cold.get(&id)) {
            Some(cold) => (Arc::<ColdObjects>::clone(cold), object),
            None => (Arc::clone(store), object),
        }
    }
}
