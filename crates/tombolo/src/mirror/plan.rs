//! What makes the state of a mirror that of its source. Pure: two states in, edits out.
//!
//! Invariants:
//! 1. All edits of a plan take effect together, and the mirror then shows one state of the source:
//!    no table twice, and none never.
//! 2. What the mirror wrote itself of the source's memory leaves with the same edits by which
//!    anything newer comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tombolo_format::cold::PROPERTY_COLD;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::mark::{CopyOf, Mark, PROPERTY_COPY_OF};
use tombolo_format::manifest::{Edit, MAIN_STREAM, TableDescription, TableName};
use tombolo_format::property::Property;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::engine::OWN_NAMES;
use crate::manifest::State;

/// Where the mirror has a table of the source.
#[derive(Clone, Debug)]
pub(super) enum Placed {
    /// It is part of the state that it shows.
    Live(TableName),
    /// It lies there, named and not shown.
    Staged(TableName),
    /// It lies there, and no record names it yet.
    New(TableDescription),
}

/// The tables of the source that the mirror has, by their names there.
pub(super) type Copies = BTreeMap<TableName, Placed>;

fn id_of(state: &State) -> u64 {
    state.database().map_or(0, |database| database.id)
}

/// What the mirror has of a state of the source.
pub(super) fn copies(target: &State, source: &State) -> Copies {
    let (own, database) = (id_of(target), id_of(source));
    let of_source = |table: &TableDescription| {
        table.copy_of().filter(|copy| copy.database == database).map(|copy| copy.name)
    };
    let mut copies = Copies::new();
    for table in target.staged().map(|table| &table.description) {
        copies.extend(of_source(table).map(|name| (name, Placed::Staged(table.name))));
    }
    let mut live = BTreeMap::new();
    for table in target.keyspaces().flat_map(|keyspace| keyspace.objects()) {
        copies.extend(of_source(table).map(|name| (name, Placed::Live(table.name))));
        live.insert(table.name, table);
    }
    // The other way round: the source was a mirror of this one.
    for table in source.keyspaces().flat_map(|keyspace| keyspace.objects()) {
        let original = table.copy_of().filter(|copy| copy.database == own);
        let same = original.and_then(|copy| live.get(&copy.name)).filter(|original| {
            (original.identity, original.length, original.keyspace)
                == (table.identity, table.length, table.keyspace)
        });
        copies.extend(same.map(|original| (table.name, Placed::Live(original.name))));
    }
    copies
}

/// The tables and value objects of a state of the source that the mirror lacks.
pub(super) fn missing(source: &State, copies: &Copies) -> Vec<Arc<TableDescription>> {
    let all = source.keyspaces().flat_map(|keyspace| keyspace.objects());
    all.filter(|table| !copies.contains_key(&table.name)).cloned().collect()
}

/// A copy of a table of the database with this number, under a name of the mirror's.
pub(super) fn copied(table: &TableDescription, database: u64, name: TableName) -> TableDescription {
    let value = CopyOf { database, name: table.name }.encode();
    let property = Property { id: PROPERTY_COPY_OF, is_critical: false, value: &value };
    let properties = table.properties.without(PROPERTY_COLD).with(property);
    TableDescription { name, source: None, properties, ..table.clone() }
}

/// The keyspaces that come and go. Also before the first state is shown, so that copies can be
/// named.
pub(super) fn keyspaces(target: &State, source: &State) -> Vec<Edit> {
    let mut edits = Vec::new();
    for keyspace in target.keyspaces().filter(|keyspace| source.keyspace(keyspace.id).is_none()) {
        edits.push(Edit::KeyspaceDropped { id: keyspace.id });
    }
    let mut next = target.next_keyspace_id();
    for keyspace in source.keyspaces() {
        match target.keyspace(keyspace.id) {
            Some(known) if known.options == keyspace.options => {}
            Some(_) => {
                edits.push(Edit::KeyspaceChanged { id: keyspace.id, options: (*keyspace.options).clone() });
            }
            None => {
                next = keyspace.id + 1;
                edits.push(Edit::KeyspaceCreated {
                    id: keyspace.id,
                    name: keyspace.name.to_string(),
                    stream: keyspace.stream,
                    options: (*keyspace.options).clone(),
                });
            }
        }
    }
    // One that was dropped before the mirror saw it: its number does not come back here either.
    if let Some(id) = source.next_keyspace_id().checked_sub(1).filter(|id| *id >= next) {
        let options = source.keyspaces().next().map(|any| (*any.options).clone()).unwrap_or_default();
        let name = format!("{OWN_NAMES}dropped {id}");
        edits.push(Edit::KeyspaceCreated { id, name, stream: MAIN_STREAM, options });
        edits.push(Edit::KeyspaceDropped { id });
    }
    edits
}

/// All edits by which the mirror comes to show a state of the source, and beside it `private`:
/// tables that hold what the source has in memory. Writes up to `reached` are in both together.
pub(super) fn edits(
    target: &State,
    source: &State,
    copies: &Copies,
    private: &[TableDescription],
    reached: SequenceNumber,
    mark: Mark,
) -> Vec<Edit> {
    let mut edits = keyspaces(target, source);
    let mut stay = BTreeSet::new();
    // Value objects before the tables that refer to them.
    let all = || source.keyspaces().flat_map(|keyspace| keyspace.objects());
    let in_order = all().filter(|table| table.is_values()).chain(all().filter(|table| !table.is_values()));
    for table in in_order {
        match copies.get(&table.name) {
            Some(Placed::Live(name)) => {
                stay.insert(*name);
                let level = target.table(*name).map(|known| known.description.level);
                if level != Some(table.level) {
                    edits.push(Edit::TableMoved { name: *name, level: table.level });
                }
            }
            Some(Placed::Staged(name)) => edits.push(Edit::StagedTableLive {
                name: *name,
                level: table.level,
                sequence: SequenceNumber::ZERO,
            }),
            Some(Placed::New(copy)) => {
                edits.push(Edit::TableAdded(TableDescription { level: table.level, ..copy.clone() }));
            }
            None => {}
        }
    }
    let is_live = |name: TableName| {
        let table = target.table(name);
        table.is_some_and(|table| table.status == crate::manifest::TableStatus::Live)
    };
    stay.extend(private.iter().map(|table| table.name).filter(|name| is_live(*name)));
    let fresh = || private.iter().filter(|table| !is_live(table.name));
    let values = fresh().filter(|table| table.is_values());
    edits.extend(values.chain(fresh().filter(|table| !table.is_values())).cloned().map(Edit::TableAdded));
    for keyspace in target.keyspaces().filter(|keyspace| source.keyspace(keyspace.id).is_some()) {
        let leave = keyspace.tables().filter(|table| !stay.contains(&table.name));
        let is_kept = |table: &&Arc<TableDescription>| {
            table.copy_of().is_none() && is_enabled(Mutant::MirrorPrivateKept)
        };
        let leave = leave.filter(|table| !is_kept(table));
        edits.extend(leave.map(|table| Edit::TableObsolete { name: table.name }));
    }
    for keyspace in source.keyspaces() {
        let known = target.keyspace(keyspace.id).map_or(SequenceNumber::ZERO, |known| known.flushed);
        if keyspace.flushed > known {
            edits.push(Edit::KeyspaceFlushed { id: keyspace.id, sequence: keyspace.flushed });
        }
    }
    let known = target.streams().get(&MAIN_STREAM).copied().unwrap_or(SequenceNumber::ZERO);
    if reached > known {
        edits.push(Edit::StreamReached { stream: MAIN_STREAM, sequence: reached });
    }
    let (times, known) = (source.times(), target.times());
    if times != known {
        let is_set = times.reached_ms < known.reached_ms || times.settled_ms < known.settled_ms;
        edits.push(Edit::Time { times, is_set });
    }
    let last = target.ages(MAIN_STREAM).last().copied();
    let is_later = |aged: &&tombolo_format::cold::Aged| {
        last.is_none_or(|last| aged.sequence > last.sequence && aged.unix_seconds >= last.unix_seconds)
    };
    let ages = source.ages(MAIN_STREAM).iter().filter(is_later);
    edits.extend(ages.map(|aged| Edit::Aged { stream: MAIN_STREAM, aged: *aged }));
    edits.push(Edit::Marked(Some(mark)));
    edits
}

#[cfg(test)]
mod tests;
