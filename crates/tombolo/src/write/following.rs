//! Subjects that are followed: what a batch changes of them is written beside it, in the same
//! batch, so that a follower sees every batch that was committed, and no other.
//!
//! Invariants:
//! 1. The records come first, so that the batch's own operations take the last of its numbers.
//! 2. Nothing that is followed is written unlogged: a crash would take back what was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tombolo_format::batch::{BatchBuilder, Operation};
use tombolo_format::change::{ALL_KEYSPACES, Change, change_key, trimmed_key};
use tombolo_format::key::EntryKind;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::commit_checked;
use super::content::{Content, Prepared, beyond_limit};
use crate::engine::{Commit, Committed, Engine, FeedState, is_own_name, unix_ms};
use crate::options::Durability;

/// What a batch does to one that is followed.
#[derive(Debug, Default)]
struct Changed {
    operations: BatchBuilder,
    names: BTreeMap<u32, Arc<str>>,
    /// The place of its last operation in the batch.
    last: u64,
}

impl Changed {
    fn push(&mut self, at: u64, name: &Arc<str>, operation: &Operation<'_>) -> Result<()> {
        self.last = at;
        let batch = &mut self.operations;
        let keyspace = match operation {
            Operation::Entry { kind, keyspace, key, value } => {
                batch.push(*kind, *keyspace, key, value).map(|()| *keyspace)
            }
            Operation::CreateKeyspace { keyspace, name, stream, options } => {
                batch.push_create_keyspace(*keyspace, name, *stream, options).map(|()| *keyspace)
            }
            Operation::DropKeyspace { keyspace } => batch.push_drop_keyspace(*keyspace).map(|()| *keyspace),
            Operation::Exchange { keyspace } => batch.push_exchange(*keyspace).map(|()| *keyspace),
            Operation::Cut { .. } => return Ok(()),
            Operation::Ingest { tables } => {
                let keyspace = tables.first().map_or(ALL_KEYSPACES, |(_, keyspace)| *keyspace);
                batch.push_ingest(tables).map(|()| keyspace)
            }
        };
        let keyspace = keyspace.map_err(|error| beyond_limit(&error))?;
        self.names.entry(keyspace).or_insert_with(|| Arc::clone(name));
        Ok(())
    }
}

/// What a batch does to all that is followed.
struct Changes<'a> {
    engine: &'a Engine,
    followed: &'a [u32],
    all: BTreeMap<u32, Changed>,
    /// The keyspace that was named last, and its name.
    named: Option<(u32, Arc<str>)>,
}

impl Changes<'_> {
    fn name_of(&mut self, keyspace: u32) -> Arc<str> {
        if let Some((_, name)) = self.named.as_ref().filter(|(known, _)| *known == keyspace) {
            return Arc::clone(name);
        }
        let name =
            self.engine.catalog.by_id(keyspace).map_or_else(|| Arc::from(""), |info| Arc::clone(&info.name));
        self.named = Some((keyspace, Arc::clone(&name)));
        name
    }

    fn push(&mut self, at: u64, keyspace: u32, operation: &Operation<'_>) -> Result<()> {
        let name = match operation {
            Operation::CreateKeyspace { name, .. } => Arc::from(*name),
            _ => self.name_of(keyspace),
        };
        for &what in self.followed {
            if what == keyspace || (what == ALL_KEYSPACES && !is_own_name(&name)) {
                self.all.entry(what).or_default().push(at, &name, operation)?;
            }
        }
        Ok(())
    }
}

fn changes_of(engine: &Engine, feed: &FeedState, content: Content<'_>) -> Result<BTreeMap<u32, Changed>> {
    let followed: Vec<u32> = feed.followed.keys().copied().collect();
    let mut changes = Changes { engine, followed: &followed, all: BTreeMap::new(), named: None };
    content.for_each(|at, operation| match &operation {
        Operation::Entry { keyspace, .. }
        | Operation::CreateKeyspace { keyspace, .. }
        | Operation::DropKeyspace { keyspace }
        | Operation::Exchange { keyspace } => changes.push(at, *keyspace, &operation),
        Operation::Cut { .. } => Ok(()),
        Operation::Ingest { tables } => {
            let mut by_keyspace: BTreeMap<u32, Vec<_>> = BTreeMap::new();
            for (table, keyspace) in tables {
                by_keyspace.entry(*keyspace).or_default().push((*table, *keyspace));
            }
            by_keyspace
                .into_iter()
                .try_for_each(|(keyspace, tables)| changes.push(at, keyspace, &Operation::Ingest { tables }))
        }
    })?;
    Ok(changes.all)
}

/// A record that a batch writes of one that is followed.
struct Record {
    what: u32,
    bytes: u64,
    sequence: u64,
    gone: Option<u64>,
}

/// The content with what it changes of subjects; `None` when that is nothing.
///
/// # Errors
/// `Invalid` for an unlogged write, and for a batch that is too large with its record.
fn with_changes(
    engine: &Engine,
    last: u64,
    content: Content<'_>,
    durability: Durability,
) -> Result<Option<(Prepared, Vec<Record>)>> {
    engine.feed.change(|feed| {
        let changed = changes_of(engine, feed, content)?;
        let Some(kept_in) = feed.kept_in.clone().filter(|_| !changed.is_empty()) else { return Ok(None) };
        if durability == Durability::Unlogged && !is_enabled(Mutant::ChangesOfUnloggedWrites) {
            let error = Error::new(ErrorKind::Invalid, "an unlogged write to a keyspace that is followed");
            return Err(
                error.advice("write it accepted or durable, or end the subscriptions of the keyspace")
            );
        }
        let now = unix_ms(&engine.env);
        let mut changes = Vec::with_capacity(changed.len());
        let mut count = 0;
        for (what, Changed { operations, names, last }) in &changed {
            let Some(followed) = feed.followed.get(what) else { continue };
            let names = names.iter().map(|(keyspace, name)| (*keyspace, &**name)).collect();
            let mut change = Change {
                total_bytes: followed.total_bytes,
                unix_ms: now,
                names,
                payload: operations.payload(),
            };
            let bytes = (change_key(0, 0).len() + change.encoded_bytes()) as u64;
            change.total_bytes += bytes;
            let gone = followed.goes_with(bytes);
            count += if gone.is_some() { 3 } else { 1 };
            changes.push((change, Record { what: *what, bytes, sequence: *last, gone }));
        }
        let first = last + count + 1;
        let (mut prepared, mut records) = (Prepared::default(), Vec::with_capacity(changes.len()));
        for (change, Record { what, bytes, sequence, gone }) in changes {
            let sequence = first + sequence;
            prepared.push(&kept_in, EntryKind::Put, &change_key(what, sequence), &change.encode());
            if let Some(gone) = gone {
                let (from, to) = (change_key(what, 0), change_key(what, gone + 1));
                prepared.push(&kept_in, EntryKind::RangeDelete, &from, &to);
                let told = if is_enabled(Mutant::ChangesGoUntold) { 0 } else { gone };
                prepared.push(&kept_in, EntryKind::Put, &trimmed_key(what), &told.to_le_bytes());
            }
            records.push(Record { what, bytes, sequence, gone });
        }
        content.join(&mut prepared)?;
        match prepared.invalid.take() {
            Some(error) => Err(error.context("with what is kept of its changes")),
            None => Ok(Some((prepared, records))),
        }
    })
}

/// As [`commit_checked`], with what the content changes of subjects.
#[cold]
pub(super) fn commit(
    engine: &Engine,
    commit: &mut Commit,
    content: Content<'_>,
    durability: Durability,
) -> Result<Committed> {
    let Some((prepared, records)) = with_changes(engine, commit.last, content, durability)? else {
        return commit_checked(engine, commit, content, durability);
    };
    let committed = commit_checked(engine, commit, Content::Batch(&prepared), durability)?;
    let writes = engine.stream.writes.load(Ordering::Relaxed);
    // The batch was counted as one.
    engine.stream.writes.store(writes - 1 + content.writes(), Ordering::Relaxed);
    let mut dropped = Vec::new();
    content.for_each(|_, operation| {
        if let Operation::DropKeyspace { keyspace } = operation {
            dropped.push(keyspace);
        }
        Ok(())
    })?;
    engine.feed.change(|feed| {
        for Record { what, bytes, sequence, gone } in records {
            if let Some(followed) = feed.followed.get_mut(&what) {
                followed.took(bytes, sequence, gone);
            }
        }
        // Its last change is kept, and no other comes.
        dropped.iter().for_each(|keyspace| drop(feed.followed.remove(keyspace)));
    });
    Ok(committed)
}
