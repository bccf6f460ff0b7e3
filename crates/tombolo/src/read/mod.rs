//! Read path: `memtables → version → filter → cache → table → object store`.
//!
//! A read first tries what is in memory, on the caller's thread, without a lock that others contend for and without an allocation beyond
//! the result. On a miss it goes on as a future that holds the view.
//!
//! Invariants:
//! 1. A read loads the view first and the visible sequence number after; so compaction, which makes a new view, takes nothing from it.
//! 2. The first answer of `active, waiting (newest first), level 0 (newest first), level 1, …` is the newest.

mod merge;
mod range;

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::{EntryKind, SequenceNumber};
use tombolo_storage::{Error, ErrorKind, Result};

pub(crate) use merge::{Merge, RunCursor, Source};
pub(crate) use range::RangeCursor;

use crate::engine::{Engine, KeyspaceInfo, View};
use crate::memtable::Entry;
use crate::version::{Levels, Lookup, TableHandle, table_for};

/// What memory knows of a key.
pub(crate) enum InMemory<R> {
    /// The answer.
    Answer(Option<R>),
    /// Tables must be asked.
    Miss,
}

/// An entry of a kind that this version does not write.
#[cold]
pub(crate) fn unknown_kind(kind: Option<EntryKind>) -> Error {
    Error::new(ErrorKind::Unsupported, format!("an entry of kind {kind:?}, which this version cannot read")).advice("use a newer Tombolo")
}

fn memtable_answer<R>(entry: Entry<'_>, read: &mut Option<impl FnOnce(&[u8]) -> R>) -> Result<Option<R>> {
    match entry.trailer.kind() {
        Some(EntryKind::Put) => Ok(read.take().map(|read| read(entry.value))),
        Some(EntryKind::Delete) => Ok(None),
        kind => Err(unknown_kind(kind)),
    }
}

/// The tables that may hold `key`, newest first.
fn candidates<'a>(levels: &'a Levels, key: &'a [u8]) -> impl Iterator<Item = &'a Arc<TableHandle>> {
    let in_range = move |table: &&Arc<TableHandle>| {
        let description = table.description();
        description.first_key[..] <= *key && *key <= description.last_key[..]
    };
    let runs = levels.runs.iter().filter(in_range);
    runs.chain(levels.sorted.iter().filter_map(move |(_, run)| table_for(run, key)))
}

/// Looks in memory; gives the value to `read`, which is left in place on a miss.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
#[inline]
pub(crate) fn get_in_memory<R>(
    view: &View,
    keyspace: u32,
    key: &[u8],
    sequence: SequenceNumber,
    read: &mut Option<impl FnOnce(&[u8]) -> R>,
) -> Result<InMemory<R>> {
    let memtables = std::iter::once(&view.active).chain(view.waiting.iter().map(|sealed| &sealed.memtable));
    for memtable in memtables {
        if let Some(answer) = memtable.get(keyspace, key, sequence, |entry| memtable_answer(entry, read)) {
            return answer.map(InMemory::Answer);
        }
    }
    let Some(levels) = view.version.levels(keyspace) else { return Ok(InMemory::Answer(None)) };
    for table in candidates(levels, key) {
        match table.get_in_memory(key, sequence) {
            None => return Ok(InMemory::Miss),
            Some(lookup) => match lookup? {
                Lookup::Absent => {}
                Lookup::Deleted => return Ok(InMemory::Answer(None)),
                Lookup::Value(value) => return Ok(InMemory::Answer(read.take().map(|read| read(&value)))),
            },
        }
    }
    Ok(InMemory::Answer(None))
}

/// As [`get_in_memory`], the value kept: blocks are shared, memtables copied from.
pub(crate) fn get_value_in_memory(view: &View, keyspace: u32, key: &[u8], sequence: SequenceNumber) -> Result<InMemory<Bytes>> {
    let memtables = std::iter::once(&view.active).chain(view.waiting.iter().map(|sealed| &sealed.memtable));
    for memtable in memtables {
        let copied = memtable.get(keyspace, key, sequence, |entry| memtable_answer(entry, &mut Some(Bytes::copy_from_slice)));
        if let Some(answer) = copied {
            return answer.map(InMemory::Answer);
        }
    }
    let Some(levels) = view.version.levels(keyspace) else { return Ok(InMemory::Answer(None)) };
    for table in candidates(levels, key) {
        match table.get_in_memory(key, sequence) {
            None => return Ok(InMemory::Miss),
            Some(lookup) => match lookup? {
                Lookup::Absent => {}
                Lookup::Deleted => return Ok(InMemory::Answer(None)),
                Lookup::Value(value) => return Ok(InMemory::Answer(Some(value))),
            },
        }
    }
    Ok(InMemory::Answer(None))
}

/// Looks in the tables of a view, after its memtables had no answer.
pub(crate) async fn get_from_tables(view: &View, keyspace: u32, key: &[u8], sequence: SequenceNumber) -> Result<Option<Bytes>> {
    let Some(levels) = view.version.levels(keyspace) else { return Ok(None) };
    for table in candidates(levels, key) {
        match table.get(key, sequence).await? {
            Lookup::Absent => {}
            Lookup::Deleted => return Ok(None),
            Lookup::Value(value) => return Ok(Some(value)),
        }
    }
    Ok(None)
}

/// Looks several keys up in the tables of a view, together; gives each answer with the number that came with its key.
pub(crate) async fn get_all_from_tables(
    view: &View,
    keyspace: u32,
    keys: &[(usize, Bytes)],
    sequence: SequenceNumber,
) -> Result<Vec<(usize, Option<Bytes>)>> {
    let one = |(index, key): &'_ (usize, Bytes)| -> (usize, BoxFuture<'_, _>) {
        let (index, key) = (*index, key.clone());
        (index, Box::pin(async move { get_from_tables(view, keyspace, &key, sequence).await }))
    };
    let mut reads: Vec<_> = keys.iter().map(one).collect();
    let mut values = Vec::with_capacity(keys.len());
    for_all(&mut reads, |index, value| values.push((index, value))).await?;
    Ok(values)
}

/// Drives several futures together; ends at the first error.
async fn for_all<T>(futures: &mut Vec<(usize, BoxFuture<'_, Result<T>>)>, mut each: impl FnMut(usize, T)) -> Result<()> {
    std::future::poll_fn(|context| {
        let mut failed = None;
        futures.retain_mut(|(index, future)| match future.as_mut().poll(context) {
            std::task::Poll::Ready(Ok(value)) => {
                each(*index, value);
                false
            }
            std::task::Poll::Ready(Err(error)) => {
                failed.get_or_insert(error);
                false
            }
            std::task::Poll::Pending => true,
        });
        match failed {
            Some(error) => std::task::Poll::Ready(Err(error)),
            None if futures.is_empty() => std::task::Poll::Ready(Ok(())),
            None => std::task::Poll::Pending,
        }
    })
    .await
}

/// Whether reads of a keyspace may go on.
///
/// # Errors
/// `Closed`, `NotFound` when it was dropped.
#[inline]
pub(crate) fn check(engine: &Engine, keyspace: &KeyspaceInfo) -> Result<()> {
    engine.check_open()?;
    keyspace.check()
}
