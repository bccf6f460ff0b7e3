//! Values that move: a job that passes over references to value objects which are collected reads
//! the values, and writes them as if they were put. So they go into new objects.
//!
//! Invariant: an entry keeps its number and its place among the others. One whose value cannot be
//! read keeps its reference: an older version would come back in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, all};
use tombolo_format::key::{InternalKey, Trailer};
use tombolo_format::manifest::TableName;
use tombolo_format::value_object::Reference;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use crate::resolve::{apart, as_put};
use crate::table::ValueObject;
use crate::version::TableHandle;

/// Values that are read at once: several of one object with one request.
const VALUES_AT_ONCE: usize = 64;
/// Bytes that wait at most before values are read, unless one has more.
const BYTES_AT_ONCE: u64 = 4 << 20;
/// Value objects that are read side by side.
const OBJECTS_AT_ONCE: usize = 8;

/// How an entry lies to those before it, and to the caches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Nothing of its key came before.
    pub(super) is_new: bool,
    /// Somebody else sees a newer version of its key.
    pub(super) is_older: bool,
    /// A cache had the block that it comes from.
    pub(super) is_hot: bool,
}

/// The value objects that are collected, of those to which a job's inputs refer.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// By identity.
    objects: BTreeMap<u64, Arc<ValueObject>>,
    unreadable: Mutex<BTreeMap<TableName, Error>>,
}

/// Entries that wait for values before them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    entries: Vec<Entry>,
    /// How many move, and how many bytes all have once they are read.
    values: usize,
    bytes: u64,
}

/// An entry that waits.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) trailer: Trailer,
    pub(super) value: Bytes,
    pub(super) place: Place,
    moves: bool,
}

impl Entry {
    /// What it refers to.
    fn reference(&self) -> &[u8] {
        apart(self.trailer, &self.value).map_or(&self.value, |(reference, _)| reference)
    }
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, key: InternalKey<'_>, value: &[u8], place: Place, moves: bool) {
        self.bytes += (key.user_key.len() + value.len()) as u64;
        if moves {
            self.values += 1;
            let reference = apart(key.trailer, value).map_or(value, |(reference, _)| reference);
            self.bytes +=
                Reference::decode(reference).map_or(0, |reference| u64::from(reference.record_bytes));
        }
        let (key, trailer, value) = (key.user_key.to_vec(), key.trailer, Bytes::copy_from_slice(value));
        self.entries.push(Entry { key, trailer, value, place, moves });
    }

    pub(super) fn is_full(&self) -> bool {
        self.values >= VALUES_AT_ONCE || self.bytes >= BYTES_AT_ONCE
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Moving {
    /// Of the objects that are `collected`, those to which tables refer.
    pub(super) fn new<'a>(
        collected: &BTreeSet<u64>,
        tables: impl Iterator<Item = &'a Arc<TableHandle>>,
    ) -> Moving {
        let mut objects = BTreeMap::new();
        if !collected.is_empty() {
            for object in tables.flat_map(|table| table.values()) {
                let identity = object.object().description().identity;
                if collected.contains(&identity) {
                    objects.insert(identity, Arc::clone(object.object()));
                }
            }
        }
        Moving { objects, unreadable: Mutex::default() }
    }

    /// Whether nothing moves.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether the value of an entry moves.
    pub(super) fn moves(&self, trailer: Trailer, value: &[u8]) -> bool {
        apart(trailer, value).is_some_and(|(reference, _)| self.object(reference).is_some())
    }

    fn object(&self, value: &[u8]) -> Option<(Reference, &Arc<ValueObject>)> {
        let reference = Reference::decode(value).ok()?;
        Some((reference, self.objects.get(&reference.object)?))
    }

    /// What could not be read, by object.
    pub(super) fn take_unreadable(&self) -> Vec<(TableName, Error)> {
        std::mem::take(&mut *self.unreadable.lock()).into_iter().collect()
    }

    /// Reads the values that move, those of one object together.
    pub(super) async fn read(&self, waiting: Waiting) -> Result<Vec<Entry>> {
        let mut entries = waiting.entries;
        let mut groups: BTreeMap<u64, (&Arc<ValueObject>, Vec<usize>)> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.moves) {
            if let Some((reference, object)) = self.object(entry.reference()) {
                groups.entry(reference.object).or_insert_with(|| (object, Vec::new())).1.push(at);
            }
        }
        let reads = groups.values().map(|(object, places)| {
            let wanted = places.iter().filter_map(|at| {
                let entry = &entries[*at];
                Some((Reference::decode(entry.reference()).ok()?, &entry.key[..]))
            });
            let wanted: Vec<_> = wanted.collect();
            Box::pin(async move { read_of(object, &wanted).await }) as BoxFuture<'_, Vec<Result<Bytes>>>
        });
        let read = all(reads.collect(), OBJECTS_AT_ONCE).await;
        let places: Vec<_> = groups.into_values().collect();
        let mut lost = Vec::new();
        for ((object, places), values) in places.into_iter().zip(read) {
            for (at, value) in places.into_iter().zip(values) {
                match value {
                    Ok(value) => {
                        let entry = &mut entries[at];
                        let end = apart(entry.trailer, &entry.value).and_then(|(_, end)| end);
                        (entry.trailer, entry.value) = as_put(entry.trailer, value, end);
                    }
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        lost.push(at);
                        self.unreadable.lock().entry(object.description().name).or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if is_enabled(Mutant::UnreadableValueDropped) {
            lost.sort_unstable();
            lost.into_iter().rev().for_each(|at| drop(entries.remove(at)));
        }
        Ok(entries)
    }
}

/// Values of one object: together, or where one of them cannot be read one by one.
async fn read_of(object: &Arc<ValueObject>, wanted: &[(Reference, &[u8])]) -> Vec<Result<Bytes>> {
    match object.read_once(Purpose::Compaction, wanted).await {
        Ok(values) => values.into_iter().map(Ok).collect(),
        Err(error) if error.kind() == ErrorKind::Corrupt && wanted.len() > 1 => {
            let mut values = Vec::with_capacity(wanted.len());
            for one in wanted {
                let value = object.read_once(Purpose::Compaction, std::slice::from_ref(one)).await;
                values.push(value.and_then(|mut value| value.pop().ok_or(error.clone())));
            }
            values
        }
        Err(error) => vec![Err(error); wanted.len()],
    }
}
