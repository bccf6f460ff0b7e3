//! Reads of several keys at one moment: in ascending order, so that keys that lie near each other
//! share what they need.
//!
//! From the newest table on, a key leaves with the first answer. What memory cannot answer is
//! fetched in rounds: each key goes as far down as memory lets it, which is past all filters that
//! are there, and all tables at which keys have come to stand are read side by side: one vectored
//! request for a table's partitions, one for its blocks. Most keys so need one round, whatever
//! levels they lie on. Of very many keys some are looked up after the others, so that held memory
//! beside the answers is bounded.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::{Purpose, Result};

use super::{InMemory, for_all, memtable_answer, table_answer_in_memory};
use crate::engine::{Engine, View};
use crate::resolve::{Says, says};
use crate::table::{Hit, Lookup, Near, NearProbe, Probe};
use crate::version::{Levels, TableHandle};

/// Keys looked up in tables at a time: what they need of a table is held together, about a block
/// for each.
const KEYS_AT_ONCE: usize = 1024;

/// What memory knows of several keys.
pub(crate) struct Several {
    /// The values, in the order of the keys; `None` for missing ones, too.
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
pub(crate) fn get_several_in_memory<K: AsRef<[u8]>>(
    view: &View,
    keyspace: u32,
    keys: &[K],
    sequence: SequenceNumber,
) -> Result<Several> {
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

fn in_memtables(
    view: &View,
    keyspace: u32,
    lookup: &Lookup<'_>,
    sequence: SequenceNumber,
) -> Option<Result<Option<Bytes>>> {
    let copy = |value: &[u8]| Some(Bytes::copy_from_slice(value));
    let mut memtables =
        std::iter::once(&view.active).chain(view.waiting.iter().map(|sealed| &sealed.memtable));
    memtables.find_map(|memtable| {
        memtable.get(keyspace, lookup.target.user_key, lookup.hash, sequence, |entry| {
            memtable_answer(entry, copy)
        })
    })
}

fn in_tables<'a>(
    levels: &'a Levels,
    places: &mut [Place<'a>],
    lookup: &Lookup<'_>,
) -> Result<NearProbe<Option<Bytes>>> {
    let key = lookup.target.user_key;
    let mut probes = 0;
    let mut found = Ok(NearProbe::Absent);
    for (number, place) in places.iter_mut().enumerate() {
        if !place.table.is_some_and(|table| table.covers(key)) {
            let Some(table) = table_at(levels, number, key) else { continue };
            *place = Place { table: Some(table), near: Near::default() };
        }
        let Some(table) = place.table else { continue };
        let answer = |trailer: Trailer, pinned: &crate::cache::Pinned, value: &[u8]| match says(trailer) {
            Ok(Says::Value) => Ok(NearProbe::Found(Some(pinned.keep_value(value)))),
            Ok(Says::Absent) => Ok(NearProbe::Found(None)),
            Ok(Says::Separated) => Ok(match table.value_in_memory(key, value)? {
                Some(value) => NearProbe::Found(Some(value)),
                None => NearProbe::Miss,
            }),
            Err(unresolved) => Err(unresolved.at(table.object())),
        };
        probes += 1;
        found = match table.probe_near(lookup, &mut place.near, answer)? {
            NearProbe::Absent => continue,
            NearProbe::Found(answer) => answer,
            NearProbe::Miss => Ok(NearProbe::Miss),
        };
        break;
    }
    if probes > 1 {
        levels.read_cost.looked_up(lookup.hash, probes);
    }
    found
}

/// Looks several keys up in the tables of a view; `keys` ascend, each with a number that its answer
/// comes with.
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

/// A key that has no answer yet.
struct Open<'a> {
    key: &'a (usize, Bytes),
    /// The table from which on it is looked for, by [`table_at`].
    from: usize,
}

async fn look_in_tables(
    view: &View,
    keyspace: u32,
    keys: &[(usize, Bytes)],
    sequence: SequenceNumber,
) -> Result<Vec<(usize, Option<Bytes>)>> {
    let Some(levels) = view.version.levels(keyspace) else {
        return Ok(keys.iter().map(|(number, _)| (*number, None)).collect());
    };
    let mut answers = Vec::with_capacity(keys.len());
    let mut open: Vec<Open<'_>> = keys.iter().map(|key| Open { key, from: 0 }).collect();
    while !open.is_empty() {
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut waiting = Vec::with_capacity(open.len());
        for mut key in open {
            match stop_of(levels, &mut key, sequence)? {
                Stop::Answer(value) => answers.push((key.key.0, value)),
                Stop::Table(table) => {
                    group_of(&mut groups, key.from, table).2.push(key.key);
                    waiting.push(key);
                }
            }
        }
        super::open_together(groups.iter().map(|(_, table, _)| *table)).await?;
        let mut reads: Vec<_> =
            groups.iter().map(|(_, table, keys)| read_group(table, keys, sequence)).collect();
        let mut found = Vec::new();
        for_all(&mut reads, |answers: Vec<Answered>| found.extend(answers)).await?;
        let answered: HashSet<usize> = found.iter().map(|(number, _)| *number).collect();
        answers.extend(found);
        waiting.retain(|key| !answered.contains(&key.key.0));
        waiting.iter_mut().for_each(|key| key.from += 1);
        open = waiting;
    }
    Ok(answers)
}

/// Where a key comes to stand.
enum Stop<'a> {
    /// Nowhere: memory has the answer.
    Answer(Option<Bytes>),
    /// At a table of which something that it needs is not in memory.
    Table(&'a Arc<TableHandle>),
}

/// Goes down with a key as far as memory lets it.
fn stop_of<'a>(levels: &'a Levels, open: &mut Open<'_>, sequence: SequenceNumber) -> Result<Stop<'a>> {
    let lookup = Lookup::new(&open.key.1, sequence);
    while open.from < levels.runs.len() + levels.sorted.len() {
        if let Some(table) = table_at(levels, open.from, &open.key.1) {
            match table.probe(&lookup)? {
                Probe::Found(hit) => {
                    let answer =
                        table_answer_in_memory(table, &open.key.1, hit, |hit| Some(hit.into_value()))?;
                    return Ok(match answer {
                        InMemory::Answer(value) => Stop::Answer(value),
                        InMemory::Miss => Stop::Table(table),
                    });
                }
                Probe::Miss => return Ok(Stop::Table(table)),
                Probe::Absent => {}
            }
        }
        open.from += 1;
    }
    Ok(Stop::Answer(None))
}

/// The table of a run of level 0, or of a sorted run, by number, that may hold a key.
fn table_at<'a>(levels: &'a Levels, number: usize, key: &[u8]) -> Option<&'a Arc<TableHandle>> {
    match number.checked_sub(levels.runs.len()) {
        None => levels.runs.get(number).filter(|table| table.covers(key)),
        Some(sorted) => levels.sorted.get(sorted).and_then(|(_, run)| run.table_for(key)),
    }
}

/// A table with the keys that stand at it, in ascending order, and the number of its run.
type Group<'a> = (usize, &'a Arc<TableHandle>, Vec<&'a (usize, Bytes)>);

/// The number of a key, and its value if it has one.
type Answered = (usize, Option<Bytes>);

/// The group of a table; keys come in ascending order, so that the tables of a run do, too.
fn group_of<'g, 'a>(
    groups: &'g mut Vec<Group<'a>>,
    number: usize,
    table: &'a Arc<TableHandle>,
) -> &'g mut Group<'a> {
    let at = groups
        .iter()
        .rposition(|(of, known, _)| *of == number && Arc::ptr_eq(known, table))
        .unwrap_or_else(|| {
            groups.push((number, table, Vec::new()));
            groups.len() - 1
        });
    &mut groups[at]
}

fn read_group<'a>(
    table: &'a Arc<TableHandle>,
    keys: &'a [&'a (usize, Bytes)],
    sequence: SequenceNumber,
) -> BoxFuture<'a, Result<Vec<Answered>>> {
    Box::pin(async move {
        let lookups: Vec<_> = keys.iter().map(|(_, key)| Lookup::new(key, sequence)).collect();
        let hits = table.get_several(&lookups).await?;
        let mut answers = Vec::with_capacity(keys.len());
        let mut separated: Vec<(usize, &[u8], Hit)> = Vec::new();
        for ((number, key), hit) in keys.iter().zip(hits) {
            let Some(hit) = hit else { continue };
            match says(hit.trailer) {
                Ok(Says::Value) => answers.push((*number, Some(hit.into_value()))),
                Ok(Says::Absent) => answers.push((*number, None)),
                Ok(Says::Separated) => separated.push((*number, key, hit)),
                Err(unresolved) => return Err(unresolved.at(table.object())),
            }
        }
        let wanted: Vec<_> = separated.iter().map(|(_, key, hit)| (*key, hit.value())).collect();
        let values = table.values_of(Purpose::Get, &wanted).await?;
        answers.extend(separated.iter().zip(values).map(|((number, ..), value)| (*number, Some(value))));
        Ok(answers)
    })
}
