//! Whether a key, or any key of a range, was written since a number: what decides conflicts of
//! transactions.
//!
//! The versions themselves are asked: memtables, and tables whose newest number is greater. Range
//! deletes and what was ingested are versions of all keys that they meet. Values are not read.
//!
//! REQUIRES: a snapshot at the number, or before it, is open from before the view was loaded. So no
//! compaction has dropped a newer version without which the key would look as it did.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Purpose, Result};

use super::{Cover, candidates, cover_of, open_for_ranges, run};
use crate::engine::{Health, KeyspaceInfo, View};
use crate::memtable::Memtable;
use crate::table::{KeyRange, Lookup, Probe, Step};
use crate::version::TableHandle;

/// A key, or a range of keys, that must be as it was.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    pub(crate) keyspace: Arc<KeyspaceInfo>,
    pub(crate) what: Reach,
}

/// What of a keyspace.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    Key(Bytes),
    Range(Arc<KeyRange>),
}

/// A version that is newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Its key, or the first one of a range delete.
    pub(crate) key: Bytes,
    pub(crate) number: SequenceNumber,
}

impl Changed {
    fn at(key: &[u8], number: SequenceNumber) -> Changed {
        Changed { key: Bytes::copy_from_slice(key), number }
    }
}

/// What memory knows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Nothing newer is there.
    Unchanged,
    Changed(Changed),
    /// Tables must be asked, or it would take too long.
    Unknown,
}

/// A range that holds one key.
fn only(key: &[u8]) -> KeyRange {
    KeyRange { lower: Bound::Included(key.to_vec()), upper: Bound::Included(key.to_vec()) }
}

/// Whether `touched` was written after `seen`, as far as memory knows. Of a range no more than
/// `steps` entries are looked at, of all memtables together.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub(crate) fn changed_in_memory(
    view: &View,
    touched: &Touched,
    seen: SequenceNumber,
    steps: &mut usize,
) -> Result<Since> {
    let keyspace = touched.keyspace.id;
    match &touched.what {
        Reach::Key(key) if !view.is_over(keyspace) => key_in_memory(view, keyspace, key, seen),
        Reach::Key(key) => Ok(range_in_memory(view, keyspace, &only(key), seen, steps)),
        Reach::Range(_) if is_enabled(Mutant::TransactionIgnoresRanges) => Ok(Since::Unchanged),
        Reach::Range(range) => Ok(range_in_memory(view, keyspace, range, seen, steps)),
    }
}

fn key_in_memory(view: &View, keyspace: u32, key: &[u8], seen: SequenceNumber) -> Result<Since> {
    let lookup = Lookup::new(key, SequenceNumber::MAX);
    let since = |number: SequenceNumber| match number > seen {
        true => Since::Changed(Changed::at(key, number)),
        false => Since::Unchanged,
    };
    for memtable in view.memtables() {
        let cover = memtable.covering(keyspace, key, SequenceNumber::MAX);
        if let Some(number) = cover.filter(|number| *number > seen) {
            return Ok(since(number));
        }
        let newest =
            memtable.get(keyspace, key, lookup.hash, SequenceNumber::MAX, |entry| entry.trailer.sequence());
        if let Some(newest) = newest.or(cover) {
            return Ok(since(newest));
        }
    }
    let Some(levels) = view.version.levels(keyspace) else { return Ok(Since::Unchanged) };
    for table in candidates(levels, key).filter(|table| is_newer(table, seen)) {
        let Some(cover) = cover_of(table, key, SequenceNumber::MAX) else { return Ok(Since::Unknown) };
        if let Cover(Some(number)) = cover
            && number > seen
        {
            return Ok(since(number));
        }
        match table.probe(&lookup)? {
            Probe::Absent => {}
            Probe::Miss => return Ok(Since::Unknown),
            Probe::Found(hit) if hit.trailer.sequence() > seen => return Ok(since(hit.trailer.sequence())),
            Probe::Found(_) => {}
        }
    }
    Ok(Since::Unchanged)
}

/// Whether a table holds something that is newer.
fn is_newer(table: &TableHandle, seen: SequenceNumber) -> bool {
    table.description().last_sequence > seen && !is_enabled(Mutant::TransactionIgnoresTables)
}

/// The newer tables of a keyspace that may hold keys of a range, or range deletes that meet it.
fn newer_tables(view: &View, keyspace: u32, range: &KeyRange, seen: SequenceNumber) -> Vec<Arc<TableHandle>> {
    let Some(levels) = view.version.levels(keyspace) else { return Vec::new() };
    let sorted = levels.sorted.iter().flat_map(|(_, run)| run.iter());
    let all = levels.over.iter().chain(&levels.runs).chain(sorted);
    all.filter(|table| is_newer(table, seen) && run::meets(table, range)).cloned().collect()
}

fn range_in_memory(
    view: &View,
    keyspace: u32,
    range: &KeyRange,
    seen: SequenceNumber,
    steps: &mut usize,
) -> Since {
    match range_in_memtables(view, keyspace, range, seen, steps) {
        Since::Unchanged => {}
        known => return known,
    }
    if newer_tables(view, keyspace, range, seen).is_empty() { Since::Unchanged } else { Since::Unknown }
}

fn range_in_memtables(
    view: &View,
    keyspace: u32,
    range: &KeyRange,
    seen: SequenceNumber,
    steps: &mut usize,
) -> Since {
    // Numbers up to that of a sealed memtable are in it, or in an older one.
    let is_older = |memtable: &Arc<Memtable>| {
        let sealed = view.waiting.iter().find(|sealed| Arc::ptr_eq(&sealed.memtable, memtable));
        sealed.is_some_and(|sealed| sealed.last_sequence <= seen)
    };
    for memtable in view.memtables_of(keyspace).filter(|memtable| !is_older(memtable)) {
        let Some(list) = memtable.list(keyspace) else { continue };
        if let Some(ranges) = list.ranges() {
            let newer = ranges.newest_first().take_while(|delete| delete.number > seen);
            for delete in newer {
                let is_below = range.is_below(delete.to) || is_bound(&range.lower, delete.to);
                if !is_below && !range.is_above(delete.from) {
                    return Since::Changed(Changed::at(delete.from, delete.number));
                }
            }
        }
        let mut cursor = list.cursor();
        match &range.lower {
            Bound::Unbounded => cursor.first(),
            Bound::Included(key) => cursor.seek(key, Trailer::FIRST),
            Bound::Excluded(key) => cursor.seek(key, Trailer::LAST),
        }
        while let Some(entry) = cursor.entry() {
            if range.is_above(entry.key) {
                break;
            }
            if entry.trailer.sequence() > seen && !range.is_below(entry.key) {
                return Since::Changed(Changed::at(entry.key, entry.trailer.sequence()));
            }
            let Some(left) = steps.checked_sub(1) else { return Since::Unknown };
            *steps = left;
            cursor.next();
        }
    }
    Since::Unchanged
}

/// Whether a bound is at `key`: a range delete that ends there ends before the range.
fn is_bound(bound: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    matches!(bound, Bound::Included(bound) if bound == key)
}

/// The first of `all` that was written after `seen`, from tables too.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Fenced`; those of the store.
pub(crate) async fn first_changed(
    health: &Health,
    view: &View,
    all: &[Touched],
    seen: SequenceNumber,
) -> Result<Option<(Touched, Changed)>> {
    for touched in all {
        match changed(view, touched, seen).await {
            Ok(None) => {}
            Ok(Some(changed)) => return Ok(Some((touched.clone(), changed))),
            Err(error) => return Err(health.judge_read(view, error).await),
        }
    }
    Ok(None)
}

async fn changed(view: &View, touched: &Touched, seen: SequenceNumber) -> Result<Option<Changed>> {
    let mut steps = usize::MAX;
    match changed_in_memory(view, touched, seen, &mut steps)? {
        Since::Unchanged => return Ok(None),
        Since::Changed(changed) => return Ok(Some(changed)),
        Since::Unknown => {}
    }
    let one;
    let range = match &touched.what {
        Reach::Range(range) => range,
        Reach::Key(key) => {
            one = Arc::new(only(key));
            &one
        }
    };
    for table in newer_tables(view, touched.keyspace.id, range, seen) {
        if let Some(changed) = changed_in_table(&table, range, seen).await? {
            return Ok(Some(changed));
        }
    }
    Ok(None)
}

async fn changed_in_table(
    table: &Arc<TableHandle>,
    range: &Arc<KeyRange>,
    seen: SequenceNumber,
) -> Result<Option<Changed>> {
    open_for_ranges(table).await?;
    if table.has_ranges()
        && let Some(ranges) = table.ranges()
    {
        let newer = ranges.iter().find(|delete| {
            delete.number > seen
                && !range.is_above(delete.from)
                && !(range.is_below(delete.to) || is_bound(&range.lower, delete.to))
        });
        if let Some(delete) = newer {
            return Ok(Some(Changed::at(delete.from, delete.number)));
        }
    }
    let mut cursor = table.cursor_within(Purpose::Scan, Some(Arc::clone(range)));
    let (key, trailer) = match &range.lower {
        Bound::Unbounded => (&[][..], Trailer::FIRST),
        Bound::Included(key) => (&key[..], Trailer::FIRST),
        Bound::Excluded(key) => (&key[..], Trailer::LAST),
    };
    cursor.approach(key, trailer, false)?;
    let mut step = cursor.arrive()?;
    loop {
        if step == Step::Blocked {
            cursor.load().await?;
        }
        let Some((key, trailer)) = cursor.entry() else { return Ok(None) };
        if range.is_above(key) {
            return Ok(None);
        }
        if trailer.sequence() > seen && !range.is_below(key) {
            return Ok(Some(Changed::at(key, trailer.sequence())));
        }
        step = cursor.next()?;
    }
}
