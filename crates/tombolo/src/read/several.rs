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
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Purpose, Result};

use super::{
    Asked, Cover, Found, InMemory, cover_of, for_all, hides_hit, memtable_answer, open_for_ranges, over,
    table_answer, versions,
};
use crate::engine::{Health, View};
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
    asked: Asked<'_>,
    keys: &[K],
) -> Result<Several> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    if !keys.is_sorted_by(|left, right| left.as_ref() <= right.as_ref()) {
        order.sort_unstable_by(|left, right| keys[*left].as_ref().cmp(keys[*right].as_ref()));
    }
    if view.is_over(asked.keyspace.id) {
        return several_over(view, asked, keys, &order);
    }
    let levels = view.version.levels(asked.keyspace.id);
    let mut places: Vec<Place<'_>> = Vec::new();
    if let Some(levels) = levels {
        places.resize_with(levels.runs.len() + levels.sorted.len(), Place::default);
    }
    let mut several = Several { values: vec![None; keys.len()], missing: Vec::new() };
    for index in order {
        let key = keys[index].as_ref();
        let lookup = Lookup::new(key, asked.sequence);
        let found = match (in_memtables(view, asked, &lookup), levels) {
            (Some(found), _) => NearProbe::Found(found?),
            (None, Some(levels)) => in_tables(levels, &mut places, &lookup)?,
            (None, None) => NearProbe::Absent,
        };
        match found {
            NearProbe::Found(Found::Answer(value)) => several.values[index] = value,
            NearProbe::Found(Found::Fold) => {
                match versions::get_in_memory(view, asked, &lookup, |(value, _)| Some(value))? {
                    InMemory::Answer(value) => several.values[index] = value,
                    InMemory::Miss => several.missing.push(index),
                }
            }
            NearProbe::Absent => {}
            NearProbe::Miss => several.missing.push(index),
        }
    }
    Ok(several)
}

/// As [`get_several_in_memory`], where what was ingested lies over memtables.
fn several_over<K: AsRef<[u8]>>(
    view: &View,
    asked: Asked<'_>,
    keys: &[K],
    order: &[usize],
) -> Result<Several> {
    let mut several = Several { values: vec![None; keys.len()], missing: Vec::new() };
    for index in order {
        match over::get_in_memory(view, asked, keys[*index].as_ref())? {
            InMemory::Miss => several.missing.push(*index),
            InMemory::Answer(value) => several.values[*index] = value,
        }
    }
    Ok(several)
}

fn in_memtables(view: &View, asked: Asked<'_>, lookup: &Lookup<'_>) -> Option<Result<Found<Bytes>>> {
    let copy = |value: &[u8]| Some(Bytes::copy_from_slice(value));
    let mut memtables =
        std::iter::once(&view.active).chain(view.waiting.iter().map(|sealed| &sealed.memtable));
    memtables.find_map(|memtable| {
        let (keyspace, key) = (asked.keyspace.id, lookup.target.user_key);
        let cover = Cover(memtable.covering(keyspace, key, asked.sequence));
        let answer = memtable.get(keyspace, key, lookup.hash, asked.sequence, |entry| {
            if cover.hides(entry.trailer) { Ok(Found::Answer(None)) } else { memtable_answer(entry, copy) }
        });
        answer.or_else(|| cover.is_there().then_some(Ok(Found::Answer(None))))
    })
}

fn in_tables<'a>(
    levels: &'a Levels,
    places: &mut [Place<'a>],
    lookup: &Lookup<'_>,
) -> Result<NearProbe<Found<Bytes>>> {
    let key = lookup.target.user_key;
    let mut probes = 0;
    let mut found = Ok(NearProbe::Absent);
    for (number, place) in places.iter_mut().enumerate() {
        if !place.table.is_some_and(|table| table.covers(key)) {
            let Some(table) = table_at(levels, number, key) else { continue };
            *place = Place { table: Some(table), near: Near::default() };
        }
        let Some(table) = place.table else { continue };
        let Some(cover) = cover_of(table, key, lookup.target.trailer.sequence()) else {
            found = Ok(NearProbe::Miss);
            break;
        };
        let answer = |trailer: Trailer, pinned: &crate::cache::Pinned, value: &[u8]| match says(trailer) {
            _ if cover.hides(trailer) => Ok(NearProbe::Found(Found::Answer(None))),
            Ok(Says::Value) => Ok(NearProbe::Found(Found::Answer(Some(pinned.keep_value(value))))),
            Ok(Says::Absent) => Ok(NearProbe::Found(Found::Answer(None))),
            Ok(Says::Operand) => Ok(NearProbe::Found(Found::Fold)),
            Ok(Says::Separated) => Ok(match table.value_in_memory(key, value)? {
                Some(value) => NearProbe::Found(Found::Answer(Some(value))),
                None => NearProbe::Miss,
            }),
            Err(unresolved) => Err(unresolved.at(table.object())),
        };
        probes += 1;
        found = match table.probe_near(lookup, &mut place.near, answer)? {
            NearProbe::Absent if !cover.is_there() => continue,
            NearProbe::Absent => Ok(NearProbe::Found(Found::Answer(None))),
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
    health: &Health,
    view: &View,
    asked: Asked<'_>,
    keys: &[(usize, Bytes)],
) -> Result<Vec<(usize, Option<Bytes>)>> {
    let mut answers = Vec::with_capacity(keys.len());
    for keys in keys.chunks(KEYS_AT_ONCE) {
        match look_in_tables(view, asked, keys).await {
            Err(error) => return Err(health.judge_read(view, error).await),
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

pub(super) async fn look_in_tables(
    view: &View,
    asked: Asked<'_>,
    keys: &[(usize, Bytes)],
) -> Result<Vec<(usize, Option<Bytes>)>> {
    if view.is_over(asked.keyspace.id) {
        let mut answers = Vec::with_capacity(keys.len());
        for (number, key) in keys {
            answers.push((*number, over::get(view, asked, key).await?));
        }
        return Ok(answers);
    }
    let Some(levels) = view.version.levels(asked.keyspace.id) else {
        return Ok(keys.iter().map(|(number, _)| (*number, None)).collect());
    };
    let mut answers = Vec::with_capacity(keys.len());
    // What a memtable has is an operand, or it would have been the answer.
    let (mut folds, open): (Vec<_>, Vec<_>) = keys.iter().partition(|(_, key)| {
        versions::newest_in_memtables(view, asked, &Lookup::new(key, asked.sequence)).is_some()
            && !is_enabled(Mutant::MergeLostOnMiss)
    });
    let mut open: Vec<Open<'_>> = open.into_iter().map(|key| Open { key, from: 0 }).collect();
    while !open.is_empty() {
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut waiting = Vec::with_capacity(open.len());
        for mut key in open {
            match stop_of(levels, &mut key, asked.sequence)? {
                Stop::Answer(Found::Answer(value)) => answers.push((key.key.0, value)),
                Stop::Answer(Found::Fold) => folds.push(key.key),
                Stop::Table(table) => {
                    group_of(&mut groups, key.from, table).2.push(key.key);
                    waiting.push(key);
                }
            }
        }
        super::open_together(groups.iter().map(|(_, table, _)| *table)).await?;
        let mut reads: Vec<_> =
            groups.iter().map(|(_, table, keys)| read_group(table, keys, asked.sequence)).collect();
        let mut found = Vec::new();
        for_all(&mut reads, |answers: Vec<Answered<'_>>| found.extend(answers)).await?;
        let answered: HashSet<usize> = found.iter().map(|(key, _)| key.0).collect();
        for (key, found) in found {
            match found {
                Found::Answer(value) => answers.push((key.0, value)),
                Found::Fold => folds.push(key),
            }
        }
        waiting.retain(|key| !answered.contains(&key.key.0));
        waiting.iter_mut().for_each(|key| key.from += 1);
        open = waiting;
    }
    let mut reads: Vec<_> = folds.into_iter().map(|key| read_versions(view, asked, key)).collect();
    for_all(&mut reads, |answer| answers.push(answer)).await?;
    Ok(answers)
}

/// Reads a key of which one entry does not say all.
fn read_versions<'a>(
    view: &'a View,
    asked: Asked<'a>,
    (number, key): &'a (usize, Bytes),
) -> BoxFuture<'a, Result<(usize, Option<Bytes>)>> {
    Box::pin(async move {
        let found = versions::get(view, asked, &Lookup::new(key, asked.sequence)).await?;
        Ok((*number, found.map(|(value, _)| value)))
    })
}

/// Where a key comes to stand.
enum Stop<'a> {
    /// Nowhere: memory has the answer.
    Answer(Found<Bytes>),
    /// At a table of which something that it needs is not in memory.
    Table(&'a Arc<TableHandle>),
}

/// Goes down with a key as far as memory lets it.
fn stop_of<'a>(levels: &'a Levels, open: &mut Open<'_>, sequence: SequenceNumber) -> Result<Stop<'a>> {
    let lookup = Lookup::new(&open.key.1, sequence);
    while open.from < levels.runs.len() + levels.sorted.len() {
        if let Some(table) = table_at(levels, open.from, &open.key.1) {
            let Some(cover) = cover_of(table, &open.key.1, sequence) else { return Ok(Stop::Table(table)) };
            match table.probe(&lookup)? {
                Probe::Found(hit) if hides_hit(cover, &hit) => return Ok(Stop::Answer(Found::Answer(None))),
                Probe::Absent if cover.is_there() => return Ok(Stop::Answer(Found::Answer(None))),
                Probe::Found(hit) => {
                    let answer = table_answer(table, &open.key.1, hit, |hit| Some(hit.into_value()))?;
                    return Ok(match answer {
                        InMemory::Answer(Some(found)) => Stop::Answer(found),
                        _ => Stop::Table(table),
                    });
                }
                Probe::Miss => return Ok(Stop::Table(table)),
                Probe::Absent => {}
            }
        }
        open.from += 1;
    }
    Ok(Stop::Answer(Found::Answer(None)))
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

/// A key, and what a table says of it.
type Answered<'a> = (&'a (usize, Bytes), Found<Bytes>);

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

fn read_group<'g, 'a: 'g>(
    table: &'g Arc<TableHandle>,
    keys: &'g [&'a (usize, Bytes)],
    sequence: SequenceNumber,
) -> BoxFuture<'g, Result<Vec<Answered<'a>>>> {
    Box::pin(async move {
        let lookups: Vec<_> = keys.iter().map(|(_, key)| Lookup::new(key, sequence)).collect();
        open_for_ranges(table).await?;
        let hits = table.get_several(&lookups).await?;
        let mut answers = Vec::with_capacity(keys.len());
        let mut separated: Vec<(&'a (usize, Bytes), Hit)> = Vec::new();
        for (key, hit) in keys.iter().zip(hits) {
            let cover = cover_of(table, &key.1, sequence).unwrap_or(Cover(None));
            let Some(hit) = hit.filter(|hit| !hides_hit(cover, hit)) else {
                if cover.is_there() {
                    answers.push((*key, Found::Answer(None)));
                }
                continue;
            };
            match says(hit.trailer) {
                Ok(Says::Value) => answers.push((*key, Found::Answer(Some(hit.into_value())))),
                Ok(Says::Absent) => answers.push((*key, Found::Answer(None))),
                Ok(Says::Operand) => answers.push((*key, Found::Fold)),
                Ok(Says::Separated) => separated.push((*key, hit)),
                Err(unresolved) => return Err(unresolved.at(table.object())),
            }
        }
        let wanted: Vec<_> = separated.iter().map(|(key, hit)| (&key.1[..], hit.value())).collect();
        let values = table.values_of(Purpose::Get, &wanted).await?;
        answers
            .extend(separated.iter().zip(values).map(|((key, _), value)| (*key, Found::Answer(Some(value)))));
        Ok(answers)
    })
}
