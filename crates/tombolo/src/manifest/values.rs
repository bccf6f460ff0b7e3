//! The value objects of a keyspace, and how much of each its tables refer to.
//!
//! Invariants:
//! 1. A value object is live as long as a live table refers to it, from the edits on that name
//!    both.
//! 2. What tables refer to is the sum of what the descriptions of the live ones say: nothing else
//!    is kept of it.

use std::sync::Arc;

use tombolo_format::manifest::TableDescription;
use tombolo_format::value_object::{Referred, VALUE_OBJECT_FOOTER_BYTES, VALUE_OBJECT_HEADER_BYTES};
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::chunked::ChunkedMap;

/// How much of a value object is referred to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Tables that refer to it.
    pub tables: u64,
    /// Bytes of its records to which they do. A record counts as often as entries refer to it.
    pub bytes: u64,
}

/// See the module's documentation. Clones share what did not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// The live ones, by identity.
    objects: ChunkedMap<u64, Arc<TableDescription>>,
    /// By identity. Invariant: none needs nothing.
    needed: ChunkedMap<u64, Needed>,
}

impl Values {
    /// The live value objects, by identity.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<TableDescription>> {
        self.objects.values()
    }

    /// Number of live value objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// A live value object by its identity.
    pub fn object(&self, identity: u64) -> Option<&Arc<TableDescription>> {
        self.objects.get(&identity)
    }

    /// How much of an object is referred to.
    pub fn needed(&self, identity: u64) -> Needed {
        self.needed.get(&identity).copied().unwrap_or_default()
    }

    /// Bytes of an object's records to which nothing refers any more.
    pub fn garbage_bytes(&self, object: &TableDescription) -> u64 {
        let around = (VALUE_OBJECT_HEADER_BYTES + VALUE_OBJECT_FOOTER_BYTES) as u64;
        object.length.saturating_sub(around).saturating_sub(self.needed(object.identity).bytes)
    }

    /// Adds a live object; `false` when one of its identity is live already.
    pub(super) fn add(&mut self, object: &Arc<TableDescription>) -> bool {
        !self.objects.contains(&object.identity)
            && self.objects.insert(object.identity, Arc::clone(object)).is_none()
    }

    /// Takes an object out of those that are live.
    pub(super) fn remove(&mut self, identity: u64) -> Option<Arc<TableDescription>> {
        self.objects.remove(&identity)
    }

    /// An object to which a table refers, and which is not live.
    pub(super) fn lacks(&self, table: &TableDescription) -> Option<u64> {
        table.referred().iter().map(|referred| referred.object).find(|object| !self.objects.contains(object))
    }

    /// A table has become live.
    pub(super) fn refer(&mut self, table: &TableDescription) {
        for Referred { object, bytes } in table.referred() {
            let needed = self.needed(object);
            let (tables, bytes) = (needed.tables + 1, needed.bytes.saturating_add(bytes));
            self.needed.insert(object, Needed { tables, bytes });
        }
    }

    /// A table is live no more; says which objects nothing refers to from here on.
    pub(super) fn release(&mut self, table: &TableDescription) -> Vec<u64> {
        let mut released = Vec::new();
        for Referred { object, bytes } in table.referred() {
            let needed = self.needed(object);
            let (tables, bytes) = (needed.tables.saturating_sub(1), needed.bytes.saturating_sub(bytes));
            if tables == 0 {
                self.needed.remove(&object);
            } else {
                self.needed.insert(object, Needed { tables, bytes });
            }
            if tables == 0 || is_enabled(Mutant::ValuesObsoleteWhileReferred) {
                released.push(object);
            }
        }
        released
    }

    /// An object to which tables refer, and which is not live: no whole state has one.
    pub(super) fn missing(&self) -> Option<(u64, Needed)> {
        let missing = self.needed.iter().find(|(object, _)| !self.objects.contains(object));
        missing.map(|(object, needed)| (*object, *needed))
    }
}
