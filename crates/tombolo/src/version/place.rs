//! Where tables and value objects are read from and written to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_format::cold::PROPERTY_COLD;
use tombolo_format::compaction::Attempt;
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_format::property::Property;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Incarnation, ObjectName, ObjectStore, Purpose, Request, Result,
};

use super::LeftBehind;
use super::silence::Silence;
use crate::cache::BlockCache;
use crate::collector::Collectors;
use crate::flash::FlashUse;
use crate::manifest::Places;
use crate::manifest::cold::ColdObjects;

/// Where tables are read from and written to.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) env: Env,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) flash: FlashUse,
    pub(crate) incarnation: Incarnation,
    pub(crate) epoch: Epoch,
    /// Where those lie that the manifest names.
    pub(crate) places: Arc<Mutex<Places>>,
    /// How long the store may stay silent to one who writes a table.
    pub(crate) silence: Arc<Silence>,
    /// What attempts made and no record names.
    pub(crate) left_behind: Arc<LeftBehind>,
    /// Who says properties of those that are written.
    pub(crate) collectors: Arc<Collectors>,
    /// How those that are written are named, and whether they say sums of their entries' hashes.
    pub(crate) naming: Naming,
    /// The cold store that `objects` is, if those that are written go there.
    pub(crate) cold: Option<u64>,
}

/// How tables are named that are written.
#[derive(Clone, Debug, Default)]
pub(crate) enum Naming {
    /// By chance.
    #[default]
    Fresh,
    /// By chance; they say sums of their entries' hashes, as other machines merge them.
    FreshWithSums,
    /// As outputs of an attempt at a job, with sums.
    Attempt(Arc<AttemptNames>),
}

impl Naming {
    /// Whether tables say sums of their entries' hashes.
    pub(crate) fn has_sums(&self) -> bool {
        !matches!(self, Naming::Fresh)
    }
}

/// The names of an attempt at a job.
#[derive(Debug)]
pub(crate) struct AttemptNames {
    attempt: Attempt,
    taken: AtomicU32,
}

impl AttemptNames {
    pub(crate) fn new(attempt: Attempt) -> AttemptNames {
        AttemptNames { attempt, taken: AtomicU32::new(0) }
    }

    /// The next one.
    pub(crate) fn next(&self) -> TableName {
        self.attempt.name(self.taken.fetch_add(1, Ordering::Relaxed))
    }

    /// How many were taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Tables {
    /// The object of a table that the manifest names, and the store that has it.
    pub(crate) fn locate(&self, table: &TableDescription) -> (Arc<dyn ObjectStore>, ObjectName) {
        let places = self.places.lock();
        places.locate(table)
    }

    /// The same place, but for tables that are written into the database's cold store.
    ///
    /// # Errors
    /// `Unsupported` when it has none.
    pub(crate) fn cold(&self) -> Result<Tables> {
        let places = self.places.lock();
        let Some(cold) = places.own_cold() else {
            return Err(Error::new(ErrorKind::Unsupported, "the database has no cold store")
                .advice("open it with Builder::cold_store"));
        };
        let id = Some(cold.named().id);
        let objects = Arc::<ColdObjects>::clone(cold);
        Ok(Tables { objects, cold: id, flash: FlashUse::None, ..self.clone() })
    }

    /// Takes note of an object that may be there, and that nothing will name.
    pub(super) fn leave_behind(&self, name: TableName) {
        match self.cold {
            Some(_) => self.left_behind.add_cold(name),
            None => self.left_behind.add(name),
        }
    }

    /// A description of what was written here.
    pub(super) fn placed(&self, table: TableDescription) -> TableDescription {
        let Some(id) = self.cold.filter(|_| !is_enabled(Mutant::ColdTableUnsaid)) else { return table };
        let property = Property { id: PROPERTY_COLD, is_critical: true, value: &id.to_le_bytes() };
        TableDescription { properties: table.properties.with(property), ..table }
    }

    pub(super) fn request(&self, purpose: Purpose) -> Request {
        Request::new(purpose, self.epoch)
    }

    /// A name for an object that no other has had (rule 6).
    pub(super) fn fresh_name(&self) -> TableName {
        match &self.naming {
            Naming::Attempt(names) => names.next(),
            _ => TableName { epoch: self.epoch.0, random: self.env.random_u64() },
        }
    }
}
