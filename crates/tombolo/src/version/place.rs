//! Where tables and value objects are read from and written to.

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_storage::{Epoch, Incarnation, ObjectName, ObjectStore, Purpose, Request};

use super::LeftBehind;
use super::silence::Silence;
use crate::cache::BlockCache;
use crate::collector::Collectors;
use crate::flash::FlashUse;
use crate::manifest::Places;

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
}

impl Tables {
    /// The object of a table that the manifest names, and the store that has it.
    pub(crate) fn locate(&self, table: &TableDescription) -> (Arc<dyn ObjectStore>, ObjectName) {
        let places = self.places.lock();
        let (store, object) = places.locate(table);
        (Arc::clone(store), object)
    }

    pub(super) fn request(&self, purpose: Purpose) -> Request {
        Request::new(purpose, self.epoch)
    }

    /// A name for an object that no other has had (rule 6).
    pub(super) fn fresh_name(&self) -> TableName {
        TableName { epoch: self.epoch.0, random: self.env.random_u64() }
    }
}
