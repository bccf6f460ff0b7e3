//! The value objects of a keyspace, and how much of each its tables refer to.
//!
//! Invariants:
//! 1. A value object is live as long as a live table refers to it, from the edits on that name
//!    both.
//! 2. What tables refer to is the sum of what the descriptions of the live ones say: nothing else
//!    is kept of it. So garbage is exact, and a crash or a takeover changes nothing of it.
//!
//! **Garbage** is collected once it is more than two fifths of all bytes of values. Of random
//! overwrites, with the oldest objects collected first, a victim then holds about a third that is
//! live (u = (v - 1) / ln v, with u = 3/5 live over all): collecting writes 0.5 bytes for each byte
//! that is put, and values take 1.7 times their size. At a third it writes 0.7, at half 0.25, and
//! they take 1.5 and 2 times. As many random puts as there are keys leave 37 % of garbage: such a
//! load writes each value once.

use std::sync::Arc;

use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_format::value_object::{Referred, VALUE_OBJECT_FOOTER_BYTES, VALUE_OBJECT_HEADER_BYTES};
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::chunked::ChunkedMap;

/// Garbage is collected beyond this part of all bytes of values; an object is collected if it has
/// at least as much.
const GARBAGE_PART: (u64, u64) = (2, 5);
/// Beyond this part, collecting comes before all else.
const URGENT_PART: (u64, u64) = (1, 2);

/// The value objects to collect: what lives in them is to be moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Oldest first, by identity and name.
    pub objects: Vec<(u64, TableName)>,
    /// Whether there is so much garbage that nothing else comes before.
    pub is_urgent: bool,
}

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
    /// Bytes of the records of all objects, and of those to which tables refer.
    record_bytes: u64,
    needed_bytes: u64,
}

/// Whether garbage is more than a part of all.
fn exceeds((part, of): (u64, u64), garbage: u64, all: u64) -> bool {
    u128::from(garbage) * u128::from(of) > u128::from(all) * u128::from(part)
}

/// Bytes of an object's records.
fn record_bytes(object: &TableDescription) -> u64 {
    object.length.saturating_sub((VALUE_OBJECT_HEADER_BYTES + VALUE_OBJECT_FOOTER_BYTES) as u64)
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
        record_bytes(object).saturating_sub(self.needed(object.identity).bytes)
    }

    /// The objects to collect, so that garbage is no more than its part: the oldest of those that
    /// have so much of it. None while it is less.
    pub fn collected(&self) -> Collected {
        let (mut garbage, mut all) = (self.record_bytes.saturating_sub(self.needed_bytes), self.record_bytes);
        let is_urgent = exceeds(URGENT_PART, garbage, all);
        if !exceeds(GARBAGE_PART, garbage, all) {
            return Collected::default();
        }
        let mut worth: Vec<_> = self
            .objects()
            .map(|object| (object, self.garbage_bytes(object)))
            .filter(|(object, garbage)| exceeds(GARBAGE_PART, *garbage, record_bytes(object)))
            .collect();
        worth.sort_unstable_by_key(|(object, _)| (object.last_sequence, object.name));
        let mut objects = Vec::new();
        for (object, freed) in worth {
            if !exceeds(GARBAGE_PART, garbage, all) {
                break;
            }
            (garbage, all) = (garbage.saturating_sub(freed), all.saturating_sub(freed));
            objects.push((object.identity, object.name));
        }
        Collected { objects, is_urgent }
    }

    /// Adds a live object; `false` when one of its identity is live already.
    pub(super) fn add(&mut self, object: &Arc<TableDescription>) -> bool {
        if self.objects.contains(&object.identity) {
            return false;
        }
        self.record_bytes = self.record_bytes.saturating_add(record_bytes(object));
        self.objects.insert(object.identity, Arc::clone(object)).is_none()
    }

    /// Takes an object out of those that are live.
    pub(super) fn remove(&mut self, identity: u64) -> Option<Arc<TableDescription>> {
        let removed = self.objects.remove(&identity);
        let bytes = removed.as_ref().map_or(0, |object| record_bytes(object));
        self.record_bytes = self.record_bytes.saturating_sub(bytes);
        removed
    }

    /// An object to which a table refers, and which is not live.
    pub(super) fn lacks(&self, table: &TableDescription) -> Option<u64> {
        table.referred().iter().map(|referred| referred.object).find(|object| !self.objects.contains(object))
    }

    /// A table has become live.
    pub(super) fn refer(&mut self, table: &TableDescription) {
        for Referred { object, bytes } in table.referred() {
            let needed = self.needed(object);
            self.needed_bytes = self.needed_bytes.saturating_add(bytes);
            let (tables, bytes) = (needed.tables + 1, needed.bytes.saturating_add(bytes));
            self.needed.insert(object, Needed { tables, bytes });
        }
    }

    /// A table is live no more; says which objects nothing refers to from here on.
    pub(super) fn release(&mut self, table: &TableDescription) -> Vec<u64> {
        let mut released = Vec::new();
        for Referred { object, bytes } in table.referred() {
            let needed = self.needed(object);
            self.needed_bytes = self.needed_bytes.saturating_sub(bytes);
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
