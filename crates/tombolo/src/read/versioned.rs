//! Reads that say which version they found, and what memory knows of versions newer than a read.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{
    InMemory, MEMTABLE, candidates, for_all, misplaced, open_together, table_answer_in_memory, table_value,
};
use crate::engine::{Engine, View};
use crate::resolve::{Says, says};
use crate::table::{Hit, Lookup, Probe};
use crate::version::TableHandle;

/// Keys that are looked up side by side.
const KEYS_AT_ONCE: usize = 64;

/// A value, and the number of the write that made it.
pub(crate) type Version = (SequenceNumber, Bytes);

/// The version of `key` that `sequence` sees, as far as memory knows.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub(crate) fn get_version_in_memory(
    view: &View,
    keyspace: u32,
    key: &[u8],
    sequence: SequenceNumber,
) -> Result<InMemory<Version>> {
    let lookup = Lookup::new(key, sequence);
    for memtable in view.memtables() {
        let found = memtable.get(keyspace, key, lookup.hash, sequence, |entry| match says(entry.trailer) {
            Ok(Says::Value) => Ok(Some((entry.trailer.sequence(), Bytes::copy_from_slice(entry.value)))),
            Ok(Says::Absent) => Ok(None),
            Ok(Says::Separated) => Err(misplaced()),
            Err(unresolved) => Err(unresolved.at(MEMTABLE)),
        });
        if let Some(found) = found {
            return found.map(InMemory::Answer);
        }
    }
    let Some(levels) = view.version.levels(keyspace) else { return Ok(InMemory::Answer(None)) };
    for table in candidates(levels, key) {
        match table.probe(&lookup)? {
            Probe::Absent => {}
            Probe::Miss => return Ok(InMemory::Miss),
            Probe::Found(hit) => return version_in_memory(table, key, hit),
        }
    }
    Ok(InMemory::Answer(None))
}

fn version_in_memory(table: &TableHandle, key: &[u8], hit: Hit) -> Result<InMemory<Version>> {
    let sequence = hit.trailer.sequence();
    table_answer_in_memory(table, key, hit, |hit| Some((sequence, hit.into_value())))
}

/// The same, of several keys, from tables where memory does not know.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Fenced`; those of the store.
pub(crate) async fn get_versions(
    engine: &Engine,
    view: &View,
    keys: &[(u32, &[u8])],
    sequence: SequenceNumber,
) -> Result<Vec<Option<Version>>> {
    let mut found = vec![None; keys.len()];
    for (chunk, answers) in keys.chunks(KEYS_AT_ONCE).zip(found.chunks_mut(KEYS_AT_ONCE)) {
        let mut reads: Vec<BoxFuture<'_, Result<(usize, Option<Version>)>>> = Vec::with_capacity(chunk.len());
        for (number, (keyspace, key)) in chunk.iter().enumerate() {
            reads.push(Box::pin(
                async move { Ok((number, get_version(view, *keyspace, key, sequence).await?)) },
            ));
        }
        if let Err(error) = for_all(&mut reads, |(number, version)| answers[number] = version).await {
            return Err(engine.judge_read(view, error).await);
        }
    }
    Ok(found)
}

async fn get_version(
    view: &View,
    keyspace: u32,
    key: &[u8],
    sequence: SequenceNumber,
) -> Result<Option<Version>> {
    if let InMemory::Answer(found) = get_version_in_memory(view, keyspace, key, sequence)? {
        return Ok(found);
    }
    let Some(levels) = view.version.levels(keyspace) else { return Ok(None) };
    let lookup = Lookup::new(key, sequence);
    open_together(candidates(levels, key)).await?;
    for table in candidates(levels, key) {
        if let Some(hit) = table.get(&lookup).await? {
            let sequence = hit.trailer.sequence();
            return Ok(table_value(table, key, hit).await?.map(|value| (sequence, value)));
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
    /// The same, with the value out of a table.
    InTable(Version),
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
    keyspace: u32,
    key: &[u8],
    seen: SequenceNumber,
    now: SequenceNumber,
    mut judge: impl FnMut(SequenceNumber, &[u8]),
) -> Result<Newer> {
    let lookup = Lookup::new(key, now);
    let is_newer = |trailer: Trailer| trailer.sequence() > seen;
    for memtable in view.memtables() {
        let newer = memtable.get(keyspace, key, lookup.hash, now, |entry| match says(entry.trailer) {
            _ if !is_newer(entry.trailer) => Ok(Newer::None),
            Ok(Says::Value) => {
                judge(entry.trailer.sequence(), entry.value);
                Ok(Newer::InMemtable(entry.trailer.sequence()))
            }
            Ok(Says::Absent) => Ok(Newer::Absent),
            Ok(Says::Separated) => Err(misplaced()),
            Err(unresolved) => Err(unresolved.at(MEMTABLE)),
        });
        match newer.transpose()? {
            None => {}
            Some(Newer::None) => break,
            Some(newer) => return Ok(newer),
        }
    }
    let Some(levels) = view.version.levels(keyspace) else { return Ok(Newer::None) };
    // Only a flush since the read brings such tables, and what compaction made of them.
    let newer_tables = candidates(levels, key).filter(|table| table.description().last_sequence > seen);
    for table in newer_tables.filter(|_| !is_enabled(Mutant::ConditionIgnoresNewerTables)) {
        let hit = match table.probe(&lookup)? {
            Probe::Absent => continue,
            Probe::Miss if is_enabled(Mutant::ConditionTakesMissForNothing) => continue,
            Probe::Miss => return Ok(Newer::Unknown),
            Probe::Found(hit) => hit,
        };
        if !is_newer(hit.trailer) {
            continue;
        }
        return Ok(match version_in_memory(table, key, hit)? {
            InMemory::Miss => Newer::Unknown,
            InMemory::Answer(None) => Newer::Absent,
            InMemory::Answer(Some((sequence, value))) => {
                judge(sequence, &value);
                Newer::InTable((sequence, value))
            }
        });
    }
    Ok(Newer::None)
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
