//! Plans of small states: the one becomes the other.

use bytes::Bytes;
use tombolo_format::manifest::KeyspaceOptions;
use tombolo_format::manifest::mark::MarkKind;
use tombolo_format::property::PropertyList;
use tombolo_storage::Epoch;

use super::*;

fn table(epoch: u64, random: u64, level: u8) -> TableDescription {
    TableDescription {
        name: TableName { epoch, random },
        offset: 0,
        length: 100,
        identity: random,
        keyspace: 0,
        level,
        first_key: Bytes::from_static(b"a"),
        last_key: Bytes::from_static(b"b"),
        first_sequence: SequenceNumber(random),
        last_sequence: SequenceNumber(random),
        entries: 1,
        deletes: 0,
        tail_bytes: 10,
        oldest_unix_seconds: 0,
        features: 0,
        properties: PropertyList::default(),
        source: None,
    }
}

fn created(id: u64) -> Edit {
    Edit::DatabaseCreated { id, log_identity: "log".into(), created_unix_seconds: 0 }
}

fn keyspace(id: u32) -> Edit {
    let options = KeyspaceOptions::default();
    Edit::KeyspaceCreated { id, name: format!("keyspace {id}"), stream: MAIN_STREAM, options }
}

fn state(epoch: u64, edits: &[Edit]) -> State {
    State::from_snapshot(9, Epoch(epoch), edits).unwrap()
}

fn mark() -> Mark {
    Mark {
        kind: MarkKind::Mirror,
        place: "file:///source".into(),
        database: 1,
        incarnation: 1,
        epoch: 1,
        slot: 9,
        sequence: SequenceNumber(50),
        unix_ms: 7,
    }
}

/// Publishes: `lacking` are tables that have been copied, under these names.
fn publish(target: &State, source: &State, private: &[TableDescription]) -> State {
    let mut copies = copies(target, source);
    let missing = missing(source, &copies);
    for (number, table) in missing.iter().enumerate() {
        let name = TableName { epoch: 5, random: 1000 + table.name.random * 10 + number as u64 };
        copies.insert(table.name, Placed::New(copied(table, 1, name)));
    }
    let edits = edits(target, source, &copies, private, SequenceNumber(50), mark());
    let mut after = target.clone();
    after.apply_edits(&edits, crate::manifest::state::Origin::Record(Epoch(5))).unwrap();
    after
}

fn tables(state: &State) -> Vec<(u32, u8, u64)> {
    let of = |keyspace: &Arc<crate::manifest::KeyspaceState>| {
        let id = keyspace.id;
        keyspace.tables().map(move |table| (id, table.level, table.identity)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = state.keyspaces().flat_map(of).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_mirror_becomes_what_its_source_is_and_lets_go_of_its_own() {
    let source = state(
        1,
        &[
            created(1),
            keyspace(0),
            keyspace(3),
            Edit::TableAdded(table(1, 1, 0)),
            Edit::TableAdded(table(1, 2, 6)),
        ],
    );
    let own = table(5, 70, 0);
    let first = publish(&state(5, &[created(2)]), &source, std::slice::from_ref(&own));
    assert_eq!(tables(&first), [(0, 0, 1), (0, 0, 70), (0, 6, 2)]);
    assert_eq!(reached(&first), 50);
    assert!(missing(&source, &copies(&first, &source)).is_empty());
    // The source has flushed what was private, moved a table, and dropped a keyspace.
    let next = state(
        1,
        &[
            created(1),
            keyspace(0),
            Edit::TableAdded(table(1, 1, 2)),
            Edit::TableAdded(table(1, 2, 6)),
            Edit::TableAdded(table(1, 3, 0)),
            keyspace(7),
            Edit::KeyspaceDropped { id: 7 },
        ],
    );
    assert_eq!(missing(&next, &copies(&first, &next)).len(), 1);
    let second = publish(&first, &next, &[]);
    assert_eq!(tables(&second), [(0, 0, 3), (0, 2, 1), (0, 6, 2)]);
    assert_eq!(second.next_keyspace_id(), 8, "numbers of keyspaces do not come back");
    assert_eq!(second.keyspaces().count(), 1);
    assert_eq!(second.mark(), Some(&mark()));
}

fn reached(state: &State) -> u64 {
    state.streams()[&MAIN_STREAM].0
}

#[test]
fn the_other_way_round_what_both_have_is_not_missing() {
    let source = state(1, &[created(1), keyspace(0), Edit::TableAdded(table(1, 1, 6))]);
    let mirror = publish(&state(5, &[created(2)]), &source, &[]);
    assert!(missing(&mirror, &copies(&source, &mirror)).is_empty());
    // Another database has a table of that name by chance: it is none of them.
    let other = state(1, &[created(3), keyspace(0), Edit::TableAdded(table(1, 1, 6))]);
    assert_eq!(missing(&mirror, &copies(&other, &mirror)).len(), 1);
}

#[test]
fn a_private_table_that_lies_there_already_is_not_named_twice() {
    let source = state(1, &[created(1), keyspace(0)]);
    let own = table(5, 70, 0);
    let first = publish(&state(5, &[created(2)]), &source, std::slice::from_ref(&own));
    let second = publish(&first, &source, std::slice::from_ref(&own));
    assert_eq!(tables(&second), [(0, 0, 70)]);
}
