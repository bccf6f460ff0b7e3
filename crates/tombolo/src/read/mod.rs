//! Read path: `memtables → version → filter → cache → table → object store`.
//!
//! A read first tries memory, on the caller's thread, without a lock that others contend for and
//! without an allocation beyond the result. On a miss it goes on as a future that holds the view.
//!
//! Invariants:
//! 1. A read loads the view first and the visible sequence number after; so compaction, which makes
//!    a new view, takes nothing from it.
//! 2. It looks whether its keyspace lives after it loaded the view: a view that lacks a keyspace is
//!    shown after the keyspace is marked as dropped, so that what was dropped is never taken for
//!    empty.
//! 3. The first answer of `active, waiting (newest first), level 0 (newest first), level 1, …` is
//!    the newest. Where what was ingested lies over a keyspace's memtables, numbers say which is.

mod changed;
mod explain;
mod hides;
mod merge;
mod over;
mod range;
mod run;
mod several;
mod versioned;
mod versions;

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::SequenceNumber;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

pub(crate) use changed::{Changed, Reach, Since, Touched, changed_in_memory, first_changed};
pub(crate) use explain::explain;
pub use explain::{GetStep, GetVersion, NotAsked};
pub(crate) use hides::open_for_ranges;
use hides::{Cover, cover_of};
pub(crate) use merge::{Merge, Source};
pub(crate) use range::RangeCursor;
pub(crate) use several::{get_several_from_tables, get_several_in_memory};
pub(crate) use versioned::{
    Newer, Version, get_version_in_memory, get_versions, newer_in_memory, value_in_memtables,
};

use crate::engine::{Health, KeyspaceInfo, View};
use crate::memtable::Entry;
pub(crate) use crate::resolve::Judged;
use crate::resolve::{Judge, Says, is_put, says};
use crate::table::{Hit, Lookup, Probe};
use crate::version::{Levels, TableHandle};

/// What a read asks of: a keyspace as a moment sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) keyspace: &'a KeyspaceInfo,
    /// Anything no newer is seen.
    pub(crate) sequence: SequenceNumber,
    /// By which time it is judged what has expired.
    pub(crate) judged: Judged<'a>,
}

impl Asked<'_> {
    /// What resolving what one entry does not answer needs to know.
    fn judge(&self) -> Judge {
        Judge { judged_ms: self.judged.ms(), ..self.keyspace.judge() }
    }
}

/// What memory knows of a key.
pub(crate) enum InMemory<R> {
    /// The answer.
    Answer(Option<R>),
    /// Tables must be asked.
    Miss,
}

/// Where an entry lies that is in no table yet.
const MEMTABLE: &str = "a memtable";

/// What one entry comes to.
enum Found<R> {
    /// The answer.
    Answer(Option<R>),
    /// It alone does not say: [`versions`].
    Fold,
}

/// The answer by the newest entry of a key that is seen.
#[inline]
fn memtable_answer<R>(entry: Entry<'_>, read: impl FnOnce(&[u8]) -> Option<R>) -> Result<Found<R>> {
    match says(entry.trailer) {
        Ok(Says::Value) => Ok(Found::Answer(read(entry.value))),
        Ok(Says::Absent) => Ok(Found::Answer(None)),
        Ok(Says::Operand) => Ok(Found::Fold),
        Ok(Says::Separated) => Err(misplaced()),
        Err(unresolved) => Err(unresolved.at(MEMTABLE)),
    }
}

/// Only tables refer to values that lie apart.
#[cold]
fn misplaced() -> Error {
    Error::new(ErrorKind::Bug, "a memtable holds a reference to a value")
}

/// The same, of an entry in a table, as far as memory has it.
#[inline]
fn table_answer<R>(
    table: &TableHandle,
    key: &[u8],
    hit: Hit,
    read: impl FnOnce(Hit) -> Option<R>,
) -> Result<InMemory<Found<R>>> {
    let found = match says(hit.trailer) {
        Ok(Says::Value) => Found::Answer(read(hit)),
        Ok(Says::Absent) => Found::Answer(None),
        Ok(Says::Operand) => Found::Fold,
        Ok(Says::Separated) => return separated_in_memory(table, key, &hit, read),
        Err(unresolved) => return Err(unresolved.at(table.object())),
    };
    Ok(InMemory::Answer(Some(found)))
}

#[cold]
fn separated_in_memory<R>(
    table: &TableHandle,
    key: &[u8],
    hit: &Hit,
    read: impl FnOnce(Hit) -> Option<R>,
) -> Result<InMemory<Found<R>>> {
    Ok(match table.value_in_memory(key, hit.value())? {
        Some(value) => InMemory::Answer(Some(Found::Answer(read(Hit::of_value(hit.trailer, value))))),
        None => InMemory::Miss,
    })
}

/// The same, wherever its value lies.
async fn table_value(table: &TableHandle, key: &[u8], hit: Hit) -> Result<Found<Bytes>> {
    match says(hit.trailer) {
        Ok(Says::Value) => Ok(Found::Answer(Some(hit.into_value()))),
        Ok(Says::Absent) => Ok(Found::Answer(None)),
        Ok(Says::Operand) => Ok(Found::Fold),
        Ok(Says::Separated) => Ok(Found::Answer(Some(table.value(Purpose::Get, key, hit.value()).await?))),
        Err(unresolved) => Err(unresolved.at(table.object())),
    }
}

/// Whether a range delete of its table hides what was found there, be it a row that is kept.
#[inline]
fn hides_hit(cover: Cover, hit: &Hit) -> bool {
    cover.hides(hit.trailer) && !(hit.is_row() && is_enabled(Mutant::RowsIgnoreRangeDeletes))
}

/// The tables that may hold `key` or a range delete over it, newest first.
fn candidates<'a>(levels: &'a Levels, key: &'a [u8]) -> impl Iterator<Item = &'a Arc<TableHandle>> {
    let runs = levels.runs.iter().filter(move |table| table.covers(key));
    runs.chain(levels.sorted.iter().filter_map(move |(_, run)| run.table_for(key)))
}

/// Looks in memory. Of a found value one of the three closures makes the answer; none runs on a
/// miss.
#[inline]
fn find_in_memory<R>(
    view: &View,
    asked: Asked<'_>,
    key: &[u8],
    mut from_memtable: impl FnMut(&[u8]) -> Option<R>,
    mut from_table: impl FnMut(Hit) -> Option<R>,
    mut from_versions: impl FnMut(Bytes) -> Option<R>,
) -> Result<InMemory<R>> {
    let Asked { keyspace: &KeyspaceInfo { id: keyspace, .. }, sequence, .. } = asked;
    if view.is_over(keyspace) {
        return Ok(match over::get_in_memory(view, asked, key)? {
            InMemory::Miss => InMemory::Miss,
            InMemory::Answer(value) => InMemory::Answer(value.and_then(from_versions)),
        });
    }
    let lookup = Lookup::new(key, sequence);
    let memtables = std::iter::once(&view.active).chain(view.waiting.iter().map(|sealed| &sealed.memtable));
    for memtable in memtables {
        let cover = Cover(memtable.covering(keyspace, key, sequence));
        let answer = memtable.get(keyspace, key, lookup.hash, sequence, |entry| {
            if cover.hides(entry.trailer) {
                Ok(Found::Answer(None))
            } else {
                memtable_answer(entry, &mut from_memtable)
            }
        });
        if let Some(answer) = answer {
            return match answer? {
                Found::Answer(answer) => Ok(InMemory::Answer(answer)),
                Found::Fold => {
                    versions::get_in_memory(view, asked, &lookup, |(value, _)| from_versions(value))
                }
            };
        }
        if cover.is_there() {
            return Ok(InMemory::Answer(None));
        }
    }
    let Some(levels) = view.version.levels(keyspace) else { return Ok(InMemory::Answer(None)) };
    let mut probes = 0;
    let mut answer = Ok(InMemory::Answer(None));
    for (passed, table) in candidates(levels, key).enumerate() {
        probes += 1;
        let cover = if levels.has_ranges { cover_of(table, key, sequence) } else { Some(Cover(None)) };
        let Some(cover) = cover else {
            answer = Ok(InMemory::Miss);
            break;
        };
        answer = match table.probe(&lookup)? {
            // Most often.
            Probe::Found(hit) if !cover.is_there() && is_put(hit.trailer) => {
                Ok(InMemory::Answer(from_table(hit)))
            }
            Probe::Absent if !cover.is_there() || is_enabled(Mutant::FilterHidesRangeDelete) => continue,
            Probe::Absent => Ok(InMemory::Answer(None)),
            Probe::Miss => Ok(InMemory::Miss),
            Probe::Found(hit) if hides_hit(cover, &hit) => Ok(InMemory::Answer(None)),
            Probe::Found(hit) if matches!(says(hit.trailer), Ok(Says::Operand)) => {
                let (met, read) = (Some((passed, hit)), |(value, _)| from_versions(value));
                return versions::get_from_met(view, asked, &lookup, met, read);
            }
            Probe::Found(hit) => match table_answer(table, key, hit, &mut from_table) {
                Ok(InMemory::Answer(Some(Found::Answer(answer)))) => Ok(InMemory::Answer(answer)),
                Ok(_) => Ok(InMemory::Miss),
                Err(error) => Err(error),
            },
        };
        break;
    }
    if probes > 1 {
        levels.read_cost.looked_up(lookup.hash, probes);
    }
    answer
}

/// Looks in memory; gives the value to `read`, which is left in place on a miss. Copies nothing.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
#[inline]
pub(crate) fn get_in_memory<R>(
    view: &View,
    asked: Asked<'_>,
    key: &[u8],
    read: &mut Option<impl FnOnce(&[u8]) -> R>,
) -> Result<InMemory<R>> {
    let read = std::cell::RefCell::new(read);
    let take = |value: &[u8]| read.borrow_mut().take().map(|read| read(value));
    find_in_memory(view, asked, key, take, |hit| take(hit.value()), |value| take(&value))
}

/// As [`get_in_memory`], the value kept: large ones share their block, others are copied.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub(crate) fn get_value_in_memory(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<InMemory<Bytes>> {
    let copy = |value: &[u8]| Some(Bytes::copy_from_slice(value));
    find_in_memory(view, asked, key, copy, |hit| Some(hit.into_value()), Some)
}

/// Looks in the tables of a view, after its memtables had no answer.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Fenced`; those of the store.
pub(crate) async fn get_from_tables(
    health: &Health,
    view: &View,
    asked: Asked<'_>,
    key: &[u8],
) -> Result<Option<Bytes>> {
    match look_in_tables(view, asked, key).await {
        Err(error) => Err(health.judge_read(view, error).await),
        found => found,
    }
}

async fn look_in_tables(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<Option<Bytes>> {
    if view.is_over(asked.keyspace.id) {
        return over::get(view, asked, key).await;
    }
    let lookup = Lookup::new(key, asked.sequence);
    // What a memtable has is an operand, or it would have been the answer.
    if versions::newest_in_memtables(view, asked, &lookup).is_some() && !is_enabled(Mutant::MergeLostOnMiss) {
        return Ok(versions::get(view, asked, &lookup).await?.map(|(value, _)| value));
    }
    let Some(levels) = view.version.levels(asked.keyspace.id) else { return Ok(None) };
    open_together(candidates(levels, key)).await?;
    for table in candidates(levels, key) {
        open_for_ranges(table).await?;
        let cover = cover_of(table, key, asked.sequence).unwrap_or(Cover(None));
        match table.get(&lookup).await? {
            Some(hit) if hides_hit(cover, &hit) => return Ok(None),
            Some(hit) => {
                return match table_value(table, key, hit).await? {
                    Found::Answer(answer) => Ok(answer),
                    Found::Fold => Ok(versions::get(view, asked, &lookup).await?.map(|(value, _)| value)),
                };
            }
            None if cover.is_there() => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}

/// Opens the tables that are not, side by side where opening takes time; one alone opens itself
/// when it is asked.
///
/// # Errors
/// Those of the first that fails.
async fn open_together<'a>(tables: impl Iterator<Item = &'a Arc<TableHandle>>) -> Result<()> {
    let mut opening: Vec<_> =
        tables.filter(|table| table.is_far_and_closed()).map(|table| table.open()).collect();
    if opening.len() < 2 {
        return Ok(());
    }
    for_all(&mut opening, |()| ()).await
}

/// Drives several futures together; ends at the first error.
async fn for_all<T>(futures: &mut Vec<BoxFuture<'_, Result<T>>>, mut each: impl FnMut(T)) -> Result<()> {
    std::future::poll_fn(|context| {
        let mut failed = None;
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(Ok(value)) => {
                each(value);
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

/// Whether reads of a keyspace may go on; asked after the view is loaded.
///
/// # Errors
/// `Closed`, `NotFound` when it was dropped.
#[inline]
pub(crate) fn check(health: &Health, keyspace: &KeyspaceInfo) -> Result<()> {
    health.check_open()?;
    keyspace.check()
}

#[cfg(test)]
mod tests;
