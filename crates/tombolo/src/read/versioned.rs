//! Reads that say which version they found, and what memory knows of versions newer than a read.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::versions::Ending;
use super::{
    Asked, Cover, Found, InMemory, Judged, MEMTABLE, candidates, cover_of, for_all, hides_hit, misplaced,
    open_for_ranges, open_together, over, table_answer, table_value, versions,
};
use crate::engine::{Health, KeyspaceInfo, View};
use crate::resolve::{Says, says};
use crate::table::{Hit, Lookup, Probe};
use crate::version::TableHandle;

/// Keys that are looked up side by side.
const KEYS_AT_ONCE: usize = 64;

/// A value, and the number of the write that made it.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) sequence: SequenceNumber,
    pub(crate) value: Bytes,
    /// When it expires, if it does.
    pub(crate) expires_ms: Option<u64>,
}

impl Version {
    fn new(sequence: SequenceNumber, (value, expires_ms): Ending) -> Version {
        Version { sequence, value, expires_ms }
    }
}

/// The number of a key, and its version.
type Numbered = (usize, Option<Version>);

/// The version of `key` that `sequence` sees, as far as memory knows.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub(crate) fn get_version_in_memory(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<InMemory<Version>> {
    let Asked { keyspace, sequence, .. } = asked;
    if view.is_over(keyspace.id) {
        return Ok(match over::newest_in_memory(view, asked, key)? {
            InMemory::Miss => InMemory::Miss,
            InMemory::Answer(newest) => {
                InMemory::Answer(newest.and_then(|(sequence, value)| Some(Version::new(sequence, value?))))
            }
        });
    }
    let lookup = Lookup::new(key, sequence);
    let folded = |newest: Trailer| {
        versions::get_in_memory(view, asked, &lookup, |value| Some(Version::new(newest.sequence(), value)))
    };
    for memtable in view.memtables() {
        let cover = Cover(memtable.covering(keyspace.id, key, sequence));
        let found =
            memtable.get(keyspace.id, key, lookup.hash, sequence, |entry| match says(entry.trailer) {
                _ if cover.hides(entry.trailer) => Ok(InMemory::Answer(None)),
                Ok(Says::Value) => {
                    let value = (Bytes::copy_from_slice(entry.value), None);
                    Ok(InMemory::Answer(Some(Version::new(entry.trailer.sequence(), value))))
                }
                Ok(Says::Absent) => Ok(InMemory::Answer(None)),
                Ok(Says::Operand) => folded(entry.trailer),
                Ok(Says::Separated) => Err(misplaced()),
                Err(unresolved) => Err(unresolved.at(MEMTABLE)),
            });
        if let Some(found) = found {
            return found;
        }
        if cover.is_there() {
            return Ok(InMemory::Answer(None));
        }
    }
    let Some(levels) = view.version.levels(keyspace.id) else { return Ok(InMemory::Answer(None)) };
    for table in candidates(levels, key) {
        let Some(cover) = cover_of(table, key, sequence) else { return Ok(InMemory::Miss) };
        match table.probe(&lookup)? {
            Probe::Absent if !cover.is_there() => {}
            Probe::Absent => return Ok(InMemory::Answer(None)),
            Probe::Found(hit) if hides_hit(cover, &hit) => return Ok(InMemory::Answer(None)),
            Probe::Miss => return Ok(InMemory::Miss),
            Probe::Found(hit) => {
                let newest = hit.trailer;
                return match version_in_memory(table, key, hit)? {
                    InMemory::Answer(Some(Found::Answer(version))) => Ok(InMemory::Answer(version)),
                    InMemory::Answer(Some(Found::Fold)) => folded(newest),
                    _ => Ok(InMemory::Miss),
                };
            }
        }
    }
    Ok(InMemory::Answer(None))
}

fn version_in_memory(table: &TableHandle, key: &[u8], hit: Hit) -> Result<InMemory<Found<Version>>> {
    let sequence = hit.trailer.sequence();
    table_answer(table, key, hit, |hit| Some(Version::new(sequence, (hit.into_value(), None))))
}

/// The same, of several keys, from tables where memory does not know.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Fenced`; those of the store.
pub(crate) async fn get_versions(
    health: &Health,
    view: &View,
    keys: &[(&KeyspaceInfo, &[u8])],
    (sequence, judged_ms): (SequenceNumber, u64),
) -> Result<Vec<Option<Version>>> {
    let mut found = vec![None; keys.len()];
    for (chunk, answers) in keys.chunks(KEYS_AT_ONCE).zip(found.chunks_mut(KEYS_AT_ONCE)) {
        let mut reads: Vec<BoxFuture<'_, Result<Numbered>>> = Vec::with_capacity(chunk.len());
        for (number, (keyspace, key)) in chunk.iter().enumerate() {
            let asked = Asked { keyspace, sequence, judged: Judged::At(judged_ms) };
            reads.push(Box::pin(async move { Ok((number, get_version(view, asked, key).await?)) }));
        }
        if let Err(error) = for_all(&mut reads, |(number, version)| answers[number] = version).await {
            return Err(health.judge_read(view, error).await);
        }
    }
    Ok(found)
}

async fn get_version(view: &View, asked: Asked<'_>, key: &[u8]) -> Result<Option<Version>> {
    if view.is_over(asked.keyspace.id) {
        let newest = over::newest(view, asked, key).await?;
        return Ok(newest.and_then(|(sequence, value)| Some(Version::new(sequence, value?))));
    }
    if let InMemory::Answer(found) = get_version_in_memory(view, asked, key)? {
        return Ok(found);
    }
    let Some(levels) = view.version.levels(asked.keyspace.id) else { return Ok(None) };
    let lookup = Lookup::new(key, asked.sequence);
    let folded = async |newest: SequenceNumber| {
        Ok(versions::get(view, asked, &lookup).await?.map(|value| Version::new(newest, value)))
    };
    if let Some(newest) = versions::newest_in_memtables(view, asked, &lookup) {
        return folded(newest.sequence()).await;
    }
    open_together(candidates(levels, key)).await?;
    for table in candidates(levels, key) {
        open_for_ranges(table).await?;
        let cover = cover_of(table, key, asked.sequence).unwrap_or(Cover(None));
        match table.get(&lookup).await? {
            Some(hit) if hides_hit(cover, &hit) => return Ok(None),
            Some(hit) => {
                let newest = hit.trailer.sequence();
                return match table_value(table, key, hit).await? {
                    Found::Answer(value) => Ok(value.map(|value| Version::new(newest, (value, None)))),
                    Found::Fold => folded(newest).await,
                };
            }
            None if cover.is_there() => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}

/// What memory knows of versions of a key beyond those that a read has seen.
#[derive(Debug)]
pub(crate) enum Newer {
    /// There is none.
    None,
    /// The newest says that the key has no value.
    Absent,
    /// The newest is of this number and has a value, which lies in a memtable.
    InMemtable(SequenceNumber),
    /// The same, with the value out of a table, or folded.
    Owned(Version),
    /// Memory cannot tell, or not without other versions: the key is to be read again.
    Unknown,
}

/// What memory knows of versions of `key` beyond `seen`. Makes no request; `judge` is given the
/// value that it finds, in place.
///
/// # Errors
/// `Corrupt`; `Unsupported` for an entry of a kind that this version does not know.
pub(crate) fn newer_in_memory(
    view: &View,
    now: Asked<'_>,
    key: &[u8],
    seen: SequenceNumber,
    mut judge: impl FnMut(SequenceNumber, &[u8]),
) -> Result<Newer> {
    let Asked { keyspace, sequence, .. } = now;
    if view.is_over(keyspace.id) {
        return Ok(match over::newest_in_memory(view, now, key)? {
            InMemory::Miss => Newer::Unknown,
            InMemory::Answer(newest) => match newest.filter(|(sequence, _)| *sequence > seen) {
                None => Newer::None,
                Some((_, None)) => Newer::Absent,
                Some((sequence, Some(value))) => {
                    judge(sequence, &value.0);
                    Newer::Owned(Version::new(sequence, value))
                }
            },
        });
    }
    let lookup = Lookup::new(key, sequence);
    let is_newer = |trailer: Trailer| trailer.sequence() > seen;
    for memtable in view.memtables() {
        let cover = Cover(memtable.covering(keyspace.id, key, sequence));
        let deleted = || if cover.is_newer_than(seen) { Newer::Absent } else { Newer::None };
        let newer =
            memtable.get(keyspace.id, key, lookup.hash, sequence, |entry| match says(entry.trailer) {
                _ if cover.hides(entry.trailer) => Ok(deleted()),
                _ if !is_newer(entry.trailer) => Ok(Newer::None),
                Ok(Says::Value) => {
                    judge(entry.trailer.sequence(), entry.value);
                    Ok(Newer::InMemtable(entry.trailer.sequence()))
                }
                Ok(Says::Absent) => Ok(Newer::Absent),
                Ok(Says::Operand) => folded(view, now, &lookup, entry.trailer, &mut judge),
                Ok(Says::Separated) => Err(misplaced()),
                Err(unresolved) => Err(unresolved.at(MEMTABLE)),
            });
        match newer.transpose()?.or_else(|| cover.is_there().then(deleted)) {
            None => {}
            Some(Newer::None) => break,
            Some(newer) => return Ok(newer),
        }
    }
    let Some(levels) = view.version.levels(keyspace.id) else { return Ok(Newer::None) };
    // Only a flush since the read brings such tables, and what compaction made of them.
    let newer_tables = candidates(levels, key).filter(|table| table.description().last_sequence > seen);
    for table in newer_tables.filter(|_| !is_enabled(Mutant::ConditionIgnoresNewerTables)) {
        let Some(cover) = cover_of(table, key, sequence) else { return Ok(Newer::Unknown) };
        let hit = match table.probe(&lookup)? {
            Probe::Absent if cover.is_newer_than(seen) => return Ok(Newer::Absent),
            Probe::Found(hit) if hides_hit(cover, &hit) && cover.is_newer_than(seen) => {
                return Ok(Newer::Absent);
            }
            Probe::Absent => continue,
            Probe::Miss if is_enabled(Mutant::ConditionTakesMissForNothing) => continue,
            Probe::Miss => return Ok(Newer::Unknown),
            Probe::Found(hit) => hit,
        };
        if !is_newer(hit.trailer) {
            continue;
        }
        let newest = hit.trailer;
        let found = match version_in_memory(table, key, hit)? {
            InMemory::Answer(Some(found)) => found,
            _ => return Ok(Newer::Unknown),
        };
        return Ok(match found {
            Found::Answer(None) => Newer::Absent,
            Found::Answer(Some(version)) => {
                judge(version.sequence, &version.value);
                Newer::Owned(version)
            }
            Found::Fold => folded(view, now, &lookup, newest, &mut judge)?,
        });
    }
    Ok(Newer::None)
}

/// The same, of a key whose newest version alone does not say what it has.
fn folded(
    view: &View,
    now: Asked<'_>,
    lookup: &Lookup<'_>,
    newest: Trailer,
    mut judge: impl FnMut(SequenceNumber, &[u8]),
) -> Result<Newer> {
    Ok(match versions::get_in_memory(view, now, lookup, Some)? {
        InMemory::Miss => Newer::Unknown,
        InMemory::Answer(None) => Newer::Absent,
        InMemory::Answer(Some(value)) => {
            judge(newest.sequence(), &value.0);
            Newer::Owned(Version::new(newest.sequence(), value))
        }
    })
}

/// The value of a version that [`newer_in_memory`] found in a memtable of this view.
pub(crate) fn value_in_memtables(
    view: &View,
    keyspace: u32,
    key: &[u8],
    sequence: SequenceNumber,
) -> Option<Bytes> {
    let hash = Lookup::new(key, sequence).hash;
    let mut memtables = view.memtables().map(Arc::as_ref);
    memtables.find_map(|memtable| {
        memtable.get(keyspace, key, hash, sequence, |entry| Bytes::copy_from_slice(entry.value))
    })
}
