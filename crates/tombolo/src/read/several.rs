//! Reads of several keys at one moment: in ascending order, so that keys that lie near each other share what they need.
//!
//! Level by level from the newest on, a key leaves with the first answer. What memory cannot answer is fetched table by table: one vectored
//! request for a table's partitions, one for its blocks; the tables of one level are read side by side. Of very many keys some are looked up
//! after the others, so that what is held beside the answers is bounded.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_storage::Result;

use super::{for_all, memtable_answer, table_answer, unknown_kind};
use crate::engine::{Engine, View};
use crate::table::{Hit, Lookup, Near, NearProbe};
use crate::version::{Levels, TableHandle};

/// Keys looked up in tables at a time: what they need of a table is held together, about a block for each.
const KEYS_AT_ONCE: usize = 1024;

/// What memory knows of several keys.
pub(crate) struct Several {
    /// The values, in the order of the keys; `None` for what is missing, too.
    pub(crate) values: Vec<Option<Bytes>>,
    /// Numbers of the keys that tables must be asked for, in ascending order of keys.
    pub(crate) missing: Vec<usize>,
}

/// The last table of a level that was looked into.
#[derive(Default)]
struct Place<'a> {
    table: Option<&'a Arc<TableHandle>>,
    near: Near,
}

/// Looks several keys up in memory.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub(crate) fn get_several_in_memory<K: AsRef<[u8]>>(view: &View, keyspace: u32, keys: &[K], sequence: SequenceNumber) -> Result<Several> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    if !keys.is_sorted_by(|left, right| left.as_ref() <= right.as_ref()) {
        order.sort_unstable_by(|left, right| keys[*left].as_ref().cmp(keys[*right].as_ref()));
    }
    let levels = view.version.levels(keyspace);
    let mut places: Vec<Place<'_>> = Vec::new();
    if let Some(levels) = levels {
        places.resize_with(levels.runs.len() + levels.sorted.len(), Place::default);
    }
    let mut several = Several { values: vec![None; keys.len()], missing: Vec::new() };
    for index in order {
        let key = keys[index].as_ref();
        let lookup = Lookup::new(key, sequence);
        if let Some(answer) = in_memtables(view, keyspace, &lookup, sequence) {
            several.values[index] = answer?;
            continue;
        }
        let Some(levels) = levels else { continue };
        match in_tables(levels, &mut places, &lookup)? {
            NearProbe::Found(value) => several.values[index] = value,
            NearProbe::Absent => {}
            NearProbe::Miss => several.missing.push(index),
        }
    }
    Ok(several)
}

fn in_memtables(view: &View, keyspace: u32, lookup: &Lookup<'_>, sequence: SequenceNumber) -> Option<Result<Option<Bytes>>> {
    let copy = |value: &[u8]| Some(Bytes::copy_from_slice(value));
    let mut memtables = std::iter::once(&view.active).chain(view.waiting.iter().map(|sealed| &sealed.memtable));
    memtables
        .find_map(|memtable| memtable.get(keyspace, lookup.target.user_key, lookup.hash, sequence, |entry| memtable_answer(entry, copy)))
}

fn in_tables<'a>(levels: &'a Levels, places: &mut [Place<'a>], lookup: &Lookup<'_>) -> Result<NearProbe<Option<Bytes>>> {
    let key = lookup.target.user_key;
    for (number, place) in places.iter_mut().enumerate() {
        if !place.table.is_some_and(|table| table.covers(key)) {
            let table = match number.checked_sub(levels.runs.len()) {
                None => levels.runs.get(number).filter(|table| table.covers(key)),
                Some(sorted) => levels.sorted.get(sorted).and_then(|(_, run)| run.table_for(key)),
            };
            let Some(table) = table else { continue };
            *place = Place { table: Some(table), near: Near::default() };
        }
        let Some(table) = place.table else { continue };
        let answer = |trailer: Trailer, pinned: &crate::cache::Pinned, value: &[u8]| match trailer.kind() {
            Some(EntryKind::Put) => Ok(Some(pinned.keep_value(value))),
            Some(EntryKind::Delete) => Ok(None),
            kind => Err(unknown_kind(kind)),
        };
        match table.probe_near(lookup, &mut place.near, answer)? {
            NearProbe::Found(value) => return value.map(NearProbe::Found),
            NearProbe::Absent => {}
            NearProbe::Miss => return Ok(NearProbe::Miss),
        }
    }
    Ok(NearProbe::Absent)
}

/// Looks several keys up in the tables of a view; `keys` ascend, each with a number that its answer comes with.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Fenced`; those of the store.
pub(crate) async fn get_several_from_tables(
    engine: &Engine,
    view: &View,
    keyspace: u32,
    keys: &[(usize, Bytes)],
    sequence: SequenceNumber,
) -> Result<Vec<(usize, Option<Bytes>)>> {
    let mut answers = Vec::with_capacity(keys.len());
    for keys in keys.chunks(KEYS_AT_ONCE) {
        match look_in_tables(view, keyspace, keys, sequence).await {
            Err(error) => return Err(engine.judge_read(view, error).await),
            Ok(found) => answers.extend(found),
        }
    }
    Ok(answers)
}

async fn look_in_tables(
    view: &View,
    keyspace: u32,
    keys: &[(usize, Bytes)],
    sequence: SequenceNumber,
) -> Result<Vec<(usize, Option<Bytes>)>> {
    let mut answers = Vec::with_capacity(keys.len());
    let mut open: Vec<&(usize, Bytes)> = keys.iter().collect();
    let Some(levels) = view.version.levels(keyspace) else { return Ok(keys.iter().map(|(number, _)| (*number, None)).collect()) };
    for number in 0..levels.runs.len() + levels.sorted.len() {
        if open.is_empty() {
            break;
        }
        let groups = groups(levels, number, &open);
        let mut reads: Vec<_> = groups.iter().map(|(table, keys)| read_group(table, keys, sequence)).collect();
        let mut found = Vec::new();
        for_all(&mut reads, |hits: Vec<(usize, Hit)>| found.extend(hits)).await?;
        let answered: HashSet<usize> = found.iter().map(|(number, _)| *number).collect();
        open.retain(|(number, _)| !answered.contains(number));
        for (number, hit) in found {
            answers.push((number, table_answer(hit, |hit| Some(hit.into_value()))?));
        }
    }
    answers.extend(open.into_iter().map(|(number, _)| (*number, None)));
    Ok(answers)
}

type Group<'a> = (&'a Arc<TableHandle>, Vec<&'a (usize, Bytes)>);

/// The tables of a level that may hold some of the keys, each with them.
fn groups<'a>(levels: &'a Levels, number: usize, keys: &[&'a (usize, Bytes)]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for key in keys {
        let table = match number.checked_sub(levels.runs.len()) {
            None => levels.runs.get(number).filter(|table| table.covers(&key.1)),
            Some(sorted) => levels.sorted.get(sorted).and_then(|(_, run)| run.table_for(&key.1)),
        };
        let Some(table) = table else { continue };
        match groups.last_mut() {
            Some((last, keys)) if Arc::ptr_eq(last, table) => keys.push(key),
            _ => groups.push((table, vec![key])),
        }
    }
    groups
}

fn read_group<'a>(
    table: &'a Arc<TableHandle>,
    keys: &'a [&'a (usize, Bytes)],
    sequence: SequenceNumber,
) -> BoxFuture<'a, Result<Vec<(usize, Hit)>>> {
    Box::pin(async move {
        let lookups: Vec<_> = keys.iter().map(|(_, key)| Lookup::new(key, sequence)).collect();
        let hits = table.get_several(&lookups).await?;
        Ok(keys.iter().zip(hits).filter_map(|((number, _), hit)| Some((*number, hit?))).collect())
    })
}
