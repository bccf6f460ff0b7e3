use proptest::prelude::*;
use tombolo_format::manifest::{LEVEL_VALUES, TableSource};
use tombolo_format::property::{Property, PropertyList, put_property};
use tombolo_format::value_object::{PROPERTY_VALUE_OBJECTS, Referred, encode_referred};

use crate::manifest::values::Needed;

use super::*;

/// A name that was never given is in no state, and a name in no state cannot be deleted.
#[test]
fn an_unknown_table_is_refused() {
    let name = TableName { epoch: 1, random: 1 };
    for edit in [
        Edit::TableObsolete { name },
        Edit::TableCondemned { name },
        Edit::TableUnnamed { name },
        Edit::TableMoved { name, level: 1 },
    ] {
        assert!(State::default().apply_edits(&[edit], Origin::Record(Epoch(1))).is_err());
    }
}

/// A claim says who writes, closing says that nobody does, and a snapshot keeps both.
#[test]
fn the_writer_is_that_of_the_newest_claim() {
    let record = |slot: u64, epoch: u64, kind: RecordKind| Record {
        incarnation: 1,
        slot,
        epoch,
        attempt: 0,
        predecessor_hash: 0,
        snapshot_slot: 0,
        kind,
    };
    let claim = |slot: u64, process: u32| {
        record(slot, slot, RecordKind::Claim(Writer { process, ..Writer::default() }))
    };
    let mut state = State::default();
    assert_eq!(state.writer(), None);
    state.apply_record(&claim(1, 7)).unwrap();
    state.apply_record(&record(2, 1, RecordKind::Edits(vec![Edit::WriterClosed]))).unwrap();
    let writer = state.writer().unwrap();
    assert_eq!((writer.epoch, writer.writer.process, writer.closed), (Epoch(1), 7, true));
    assert_eq!(State::from_snapshot(2, Epoch(1), &state.edits()).unwrap(), state);
    state.apply_record(&claim(3, 8)).unwrap();
    let writer = state.writer().unwrap();
    assert_eq!((writer.epoch, writer.writer.process, writer.closed), (Epoch(3), 8, false));
    assert_eq!(State::from_snapshot(3, Epoch(3), &state.edits()).unwrap(), state);
    let named = Edit::WriterNamed { epoch: 3, writer: Writer::default() };
    assert!(state.apply_edits(&[named], Origin::Record(Epoch(3))).is_err());
}

fn table(epoch: u64, random: u64, keyspace: u32, level: u8) -> TableDescription {
    let key = u8::try_from(random).unwrap();
    TableDescription {
        name: TableName { epoch, random },
        offset: 0,
        length: 100,
        identity: random,
        keyspace,
        level,
        first_key: Bytes::from(vec![key]),
        last_key: Bytes::from(vec![key, 1]),
        first_sequence: SequenceNumber(random),
        last_sequence: SequenceNumber(random + 1),
        entries: 2,
        deletes: 1,
        tail_bytes: 10,
        oldest_unix_seconds: 0,
        features: 0,
        properties: PropertyList::default(),
        source: None,
    }
}

fn source(number: u32) -> Source {
    Source { number, place: format!("../{number}"), incarnation: 1, database: 2, pin: u128::from(number) }
}

fn shared(table: TableDescription, of: u32) -> TableDescription {
    let name = TableName { epoch: 7, random: table.name.random };
    TableDescription { source: Some(TableSource { source: of, name }), ..table }
}

/// What this version does not know of a table, and may ignore, stays wherever the description is
/// written again.
#[test]
fn properties_of_a_later_version_stay() {
    let create =
        Edit::KeyspaceCreated { id: 0, name: "k".into(), stream: 0, options: KeyspaceOptions::default() };
    let mut list = Vec::new();
    put_property(&mut list, Property { id: 2, is_critical: false, value: b"newest" });
    let properties = PropertyList::decode(&list).unwrap();
    let added = TableDescription { properties: properties.clone(), ..table(1, 1, 0, 0) };
    let name = added.name;
    let mut state = State { slot: 9, epoch: 1, ..State::default() };
    let origin = Origin::Record(Epoch(1));
    state
        .apply_edits(&[create, Edit::TableAdded(added), Edit::TableMoved { name, level: 3 }], origin)
        .unwrap();
    for edit in [None, Some(Edit::TableObsolete { name }), Some(Edit::TableCondemned { name })] {
        state.apply_edits(edit.as_slice(), origin).unwrap();
        // As through a snapshot.
        state = State::from_snapshot(9, Epoch(1), &state.edits()).unwrap();
        assert_eq!(state.table(name).unwrap().description.properties, properties);
    }
}

/// A source is there before its first table and after its last, whatever became of those in
/// between.
#[test]
fn a_source_is_named_as_long_as_its_tables() {
    let create =
        Edit::KeyspaceCreated { id: 0, name: "k".into(), stream: 0, options: KeyspaceOptions::default() };
    let shared = shared(table(1, 1, 0, 1), 4);
    let name = shared.name;
    let mut state = State { slot: 9, epoch: 1, ..State::default() };
    let mut apply = |edit: Edit| state.apply_edits(&[edit], Origin::Record(Epoch(1))).map(|()| state.clone());
    apply(Edit::SourceNamed(source(4))).unwrap();
    assert!(apply(Edit::SourceNamed(source(4))).is_err());
    apply(create).unwrap();
    assert!(apply(Edit::SourceNamed(source(5))).is_err(), "after the first keyspace");
    apply(Edit::TableAdded(shared)).unwrap();
    for edit in [Edit::TableObsolete { name }, Edit::TableCondemned { name }] {
        assert!(apply(Edit::SourceUnnamed { number: 4 }).is_err());
        let state = apply(edit).unwrap();
        assert_eq!((state.shared_tables(), state.unneeded_sources().count()), ((1, 100), 0));
    }
    let state = apply(Edit::TableUnnamed { name }).unwrap();
    assert_eq!((state.shared_tables(), state.unneeded_sources().count()), ((0, 0), 1));
    assert_eq!(apply(Edit::SourceUnnamed { number: 4 }).unwrap().sources().count(), 0);
}

/// Any edit, sensible or not, over few names, so that they meet.
fn edits() -> impl Strategy<Value = Edit> {
    let name = || (1u64..3, 0u64..12).prop_map(|(epoch, random)| TableName { epoch, random });
    let (id, lane) = (|| 0u32..6, || 0u32..2);
    let role = || prop::sample::select(vec![LogRole::Main, LogRole::Application, LogRole::Stream(1)]);
    prop_oneof![
        2 => (id(), 0u32..4).prop_map(|(id, name)| {
            let options = KeyspaceOptions::of([("level".into(), name.to_string())]);
            Edit::KeyspaceCreated { id, name: format!("keyspace-{name}"), stream: 0, options }
        }),
        1 => id().prop_map(|id| Edit::KeyspaceDropped { id }),
        1 => (id(), 0u32..4).prop_map(|(id, level)| {
            Edit::KeyspaceChanged { id, options: KeyspaceOptions::of([("level".into(), level.to_string())]) }
        }),
        2 => (id(), 0u64..9).prop_map(
            |(id, sequence)| Edit::KeyspaceFlushed { id, sequence: SequenceNumber(sequence) }
        ),
        8 => (1u64..3, 0u64..12, id(), 0u8..3).prop_map(
            |(epoch, random, id, level)| Edit::TableAdded(table(epoch, random, id, level))
        ),
        4 => (1u64..3, 0u64..12, id(), 0u32..3).prop_map(
            |(epoch, random, id, of)| Edit::TableAdded(shared(table(epoch, random, id, 1), of))
        ),
        4 => (1u64..3, 0u64..12, id()).prop_map(
            |(epoch, random, id)| Edit::TableStaged(table(epoch, random, id, 0))
        ),
        4 => (name(), 0u8..3, 0u64..9).prop_map(
            |(name, level, number)| Edit::StagedTableLive { name, level, sequence: SequenceNumber(number) }
        ),
        1 => id().prop_map(|id| Edit::KeyspaceEmptied { id }),
        2 => (0u32..3).prop_map(|number| Edit::SourceNamed(source(number))),
        2 => (0u32..3).prop_map(|number| Edit::SourceUnnamed { number }),
        3 => (name(), 0u8..3).prop_map(|(name, level)| Edit::TableMoved { name, level }),
        6 => name().prop_map(|name| Edit::TableObsolete { name }),
        5 => name().prop_map(|name| Edit::TableCondemned { name }),
        3 => name().prop_map(|name| Edit::TableUnnamed { name }),
        2 => (1u64..3, lane(), role()).prop_map(
            |(epoch, lane, role)| {
                Edit::LogNamed { epoch, lane, role, configuration: Bytes::from_static(b"here") }
            }
        ),
        2 => (1u64..3, lane(), 0u64..5).prop_map(
            |(epoch, lane, length)| Edit::LogSealed { epoch, lane, length }
        ),
        2 => (1u64..3, lane(), 0u64..5).prop_map(
            |(epoch, lane, offset)| Edit::LogReplayPoint { epoch, lane, offset }
        ),
        1 => (1u64..3, lane(), 0u64..5).prop_map(
            |(epoch, lane, entries)| Edit::LogTrimmed { epoch, lane, entries }
        ),
        1 => (1u64..3, lane()).prop_map(|(epoch, lane)| Edit::LogUnnamed { epoch, lane }),
        2 => (0u32..3, 0u64..9).prop_map(
            |(stream, sequence)| Edit::StreamReached { stream, sequence: SequenceNumber(sequence) }
        ),
        1 => (1u64..3).prop_map(|epoch| Edit::WriterNamed { epoch, writer: Writer::default() }),
        1 => Just(Edit::WriterClosed),
        1 => Just(Edit::DatabaseCreated { id: 1, log_identity: "log".into(), created_unix_seconds: 1 }),
    ]
}

/// How many states are built.
fn cases() -> u32 {
    if std::env::var_os("TOMBOLO_DEEP").is_some() { 2000 } else { 200 }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// A snapshot holds all of a state; a refused edit changes nothing; tables are found where
    /// their status says.
    #[test]
    fn a_snapshot_builds_the_state(edits in prop::collection::vec(edits(), 0..120)) {
        let writer = Some(Arc::new(WriterState::new(2, &Writer::default())));
        let mut state = State { slot: 9, epoch: 2, writer, ..State::default() };
        for edit in edits {
            let before = state.clone();
            let epoch = match &edit {
                Edit::TableAdded(table) | Edit::TableStaged(table) => table.name.epoch,
                Edit::LogNamed { epoch, .. } => *epoch,
                _ => 2,
            };
            if state.apply_edits(&[edit], Origin::Record(Epoch(epoch))).is_err() {
                prop_assert_eq!(&state, &before);
            }
        }
        let again = State::from_snapshot(9, Epoch(2), &state.edits()).unwrap();
        prop_assert_eq!(&again, &state);
        prop_assert_eq!(again.next_keyspace_id(), state.next_keyspace_id());
        let in_levels = state.keyspaces().flat_map(|keyspace| keyspace.tables()).count();
        let live = state.tables().filter(|table| table.status == TableStatus::Live).count();
        prop_assert_eq!(in_levels, live);
        prop_assert_eq!(state.unneeded().count() + state.staged().count(), state.table_count() - live);
    }
}

fn state_with_table(status: &[Edit]) -> State {
    let mut state = State { slot: 1, epoch: 1, ..State::default() };
    let keyspace = Edit::KeyspaceCreated {
        id: 0,
        name: "default".into(),
        stream: 0,
        options: KeyspaceOptions::default(),
    };
    state.apply_edits(&[keyspace, Edit::TableAdded(table(1, 0, 0, 1))], Origin::Record(Epoch(1))).unwrap();
    state.apply_edits(status, Origin::Record(Epoch(1))).unwrap();
    state
}

/// Every step of a table's life that rule 11 does not name is refused.
#[test]
fn a_table_lives_by_rule_11() {
    let name = TableName { epoch: 1, random: 0 };
    let (obsolete, condemned, unnamed) =
        (Edit::TableObsolete { name }, Edit::TableCondemned { name }, Edit::TableUnnamed { name });
    let added = Edit::TableAdded(table(1, 0, 0, 1));
    let refused = |state: &State, edit: &Edit| {
        state.clone().apply_edits(std::slice::from_ref(edit), Origin::Record(Epoch(1))).is_err()
    };
    let live = state_with_table(&[]);
    assert!(
        refused(&live, &condemned)
            && refused(&live, &unnamed)
            && refused(&live, &added)
            && !refused(&live, &obsolete)
    );
    let gone = state_with_table(std::slice::from_ref(&obsolete));
    assert!(
        refused(&gone, &obsolete)
            && refused(&gone, &unnamed)
            && refused(&gone, &added)
            && !refused(&gone, &condemned)
    );
    let doomed = state_with_table(&[obsolete.clone(), condemned.clone()]);
    assert!(
        refused(&doomed, &condemned)
            && refused(&doomed, &added)
            && !refused(&doomed, &obsolete)
            && !refused(&doomed, &unnamed)
    );
    assert!(refused(&doomed, &Edit::TableMoved { name, level: 0 }));
    let unnamed = state_with_table(&[obsolete.clone(), condemned, unnamed]);
    assert!(refused(&unnamed, &obsolete) && unnamed.table(name).is_none());
}

/// A staged table is no part of the version until it is made one, under the number of its log
/// entry.
#[test]
fn a_staged_table_goes_live_under_one_number_or_is_given_up() {
    let staged = table(1, 5, 0, 0);
    let name = staged.name;
    let origin = Origin::Record(Epoch(1));
    let live = Edit::StagedTableLive { name, level: 2, sequence: SequenceNumber(40) };
    let refused =
        |state: &State, edit: &Edit| state.clone().apply_edits(std::slice::from_ref(edit), origin).is_err();
    let mut state = state_with_table(&[Edit::TableStaged(staged.clone())]);
    let shown = |state: &State| state.keyspaces().flat_map(|keyspace| keyspace.tables()).count();
    assert_eq!((shown(&state), state.staged().count(), state.unneeded().count()), (1, 1, 0));
    for edit in [
        Edit::TableStaged(staged.clone()),
        Edit::TableAdded(staged.clone()),
        Edit::TableMoved { name, level: 1 },
        Edit::TableCondemned { name },
        Edit::TableStaged(table(1, 6, 0, 0).at_sequence(SequenceNumber(1))),
        Edit::TableAdded(TableDescription {
            last_sequence: SequenceNumber(7),
            ..table(1, 6, 0, 0).at_sequence(SequenceNumber(1))
        }),
    ] {
        assert!(refused(&state, &edit), "{edit:?}");
    }
    let mut given_up = state.clone();
    given_up.apply_edits(&[Edit::TableObsolete { name }], origin).unwrap();
    assert!(refused(&given_up, &live));
    state.apply_edits(std::slice::from_ref(&live), origin).unwrap();
    let table = state.table(name).unwrap();
    assert_eq!(table.description.properties.sequence_override(), Some(SequenceNumber(40)));
    assert_eq!((table.description.first_sequence, table.description.level), (SequenceNumber(40), 2));
    assert_eq!((shown(&state), state.staged().count()), (2, 0));
    assert!(refused(&state, &live));
    state.apply_edits(&[Edit::KeyspaceEmptied { id: 0 }], origin).unwrap();
    assert_eq!((shown(&state), state.unneeded().count()), (0, 2));
    let mut dropped = given_up;
    dropped.apply_edits(&[Edit::TableStaged(super::tests::table(1, 6, 0, 0))], origin).unwrap();
    dropped.apply_edits(&[Edit::KeyspaceDropped { id: 0 }], origin).unwrap();
    assert_eq!((dropped.staged().count(), dropped.unneeded().count()), (0, 3));
}

/// The result of a job whose inputs are live no more would stand beside what took their place.
#[test]
fn what_has_ended_cannot_be_replaced_again() {
    let replaced = |random| {
        [
            Edit::TableObsolete { name: TableName { epoch: 1, random: 0 } },
            Edit::TableAdded(table(1, random, 0, 1)),
        ]
    };
    let mut state = state_with_table(&replaced(1));
    assert!(state.apply_edits(&replaced(2), Origin::Record(Epoch(1))).is_err());
}

#[cfg(feature = "mutants")]
#[test]
fn replacing_dead_inputs_is_caught() {
    let _out = tombolo_storage::mutant::enable(Mutant::DeadInputsReplaced);
    assert!(std::panic::catch_unwind(what_has_ended_cannot_be_replaced_again).is_err());
}

/// Rule 6: a job's result is installed by the epoch that ran it, or never.
#[test]
fn another_epochs_table_is_refused() {
    let mut state = state_with_table(&[]);
    assert!(state.apply_edits(&[Edit::TableAdded(table(1, 1, 0, 1))], Origin::Record(Epoch(2))).is_err());
}

/// Level 0 is newest first, the others are ordered by first key.
#[test]
fn levels_are_in_order() {
    let mut state = state_with_table(&[]);
    let add = |random, level| Edit::TableAdded(table(1, random, 0, level));
    state
        .apply_edits(&[add(3, 0), add(9, 0), add(5, 0), add(7, 1), add(4, 1)], Origin::Record(Epoch(1)))
        .unwrap();
    let keyspace = state.keyspace_by_name("default").unwrap();
    let order =
        |level: u8| keyspace.levels[&level].tables().map(|table| table.name.random).collect::<Vec<_>>();
    assert_eq!((order(0), order(1)), (vec![9, 5, 3], vec![0, 4, 7]));
}

fn values(random: u64, keyspace: u32) -> TableDescription {
    TableDescription { deletes: 0, features: 1 << 6, ..table(1, random, keyspace, LEVEL_VALUES) }
}

fn referring(random: u64, level: u8, objects: &[u64]) -> TableDescription {
    let referred: Vec<_> = objects.iter().map(|object| Referred { object: *object, bytes: 30 }).collect();
    let value = encode_referred(&referred);
    let property = Property { id: PROPERTY_VALUE_OBJECTS, is_critical: true, value: &value };
    TableDescription { properties: PropertyList::of([property]), ..table(1, random, 0, level) }
}

fn name(random: u64) -> TableName {
    TableName { epoch: 1, random }
}

/// Names two value objects and two tables, the second of which refers to both.
fn state_with_values() -> State {
    let create =
        Edit::KeyspaceCreated { id: 0, name: "k".into(), stream: 0, options: KeyspaceOptions::default() };
    let mut state = State { slot: 9, epoch: 1, ..State::default() };
    let added = [values(50, 0), values(51, 0), referring(1, 0, &[50]), referring(2, 0, &[50, 51])];
    let edits: Vec<_> = std::iter::once(create).chain(added.map(Edit::TableAdded)).collect();
    state.apply_edits(&edits, Origin::Record(Epoch(1))).unwrap();
    state
}

fn status(state: &State, random: u64) -> Option<TableStatus> {
    state.table(name(random)).map(|table| table.status)
}

/// A value object goes with the last table that refers to it, and with none before; snapshots say
/// the same at every step.
#[test]
fn a_value_object_lives_as_long_as_tables_refer_to_it() {
    let origin = Origin::Record(Epoch(1));
    let mut state = state_with_values();
    let needed = |state: &State, object| state.keyspace(0).unwrap().values.needed(object);
    assert_eq!((needed(&state, 50).tables, needed(&state, 50).bytes), (2, 60));
    let object = values(50, 0);
    assert_eq!(state.keyspace(0).unwrap().values.garbage_bytes(&object), 0);
    let steps = [
        (vec![Edit::TableMoved { name: name(1), level: 1 }], [Some(TableStatus::Live); 2]),
        (
            vec![Edit::TableAdded(referring(3, 2, &[50])), Edit::TableObsolete { name: name(2) }],
            [Some(TableStatus::Live), Some(TableStatus::Obsolete)],
        ),
        (
            vec![Edit::TableObsolete { name: name(1) }, Edit::TableCondemned { name: name(51) }],
            [Some(TableStatus::Live), Some(TableStatus::Condemned)],
        ),
        (
            vec![Edit::TableObsolete { name: name(3) }, Edit::TableUnnamed { name: name(51) }],
            [Some(TableStatus::Obsolete), None],
        ),
    ];
    for (edits, expected) in steps {
        state.apply_edits(&edits, origin).unwrap();
        assert_eq!([status(&state, 50), status(&state, 51)], expected, "after {edits:?}");
        assert_eq!(State::from_snapshot(9, Epoch(1), &state.edits()).unwrap(), state);
    }
    assert_eq!(needed(&state, 50), Needed::default());
}

#[test]
fn a_dropped_keyspace_takes_its_value_objects_along() {
    let mut state = state_with_values();
    state.apply_edits(&[Edit::KeyspaceDropped { id: 0 }], Origin::Record(Epoch(1))).unwrap();
    for random in [1, 2, 50, 51] {
        assert_eq!(status(&state, random), Some(TableStatus::Obsolete));
    }
    assert_eq!(State::from_snapshot(9, Epoch(1), &state.edits()).unwrap(), state);
}

#[test]
fn what_contradicts_the_value_objects_is_refused() {
    let refused = |edit: Edit, says: &str| {
        let error = state_with_values().apply_edits(&[edit], Origin::Record(Epoch(1))).unwrap_err();
        assert!(error.0.contains(says), "{error}");
    };
    refused(Edit::TableAdded(referring(3, 0, &[52])), "not live");
    refused(Edit::TableObsolete { name: name(50) }, "2 tables refer");
    refused(Edit::TableMoved { name: name(50), level: 1 }, "cannot move");
    refused(Edit::TableMoved { name: name(1), level: LEVEL_VALUES }, "cannot move");
    refused(
        Edit::TableAdded(TableDescription { name: name(53), ..values(50, 0) }),
        "the identity of another",
    );
    // Of a snapshot the whole is looked at.
    let whole = state_with_values().edits();
    let without = |random: u64| -> Vec<Edit> {
        let is_it = |edit: &&Edit| !matches!(edit, Edit::TableAdded(table) if table.name == name(random));
        whole.iter().filter(is_it).cloned().collect()
    };
    let error = State::from_snapshot(9, Epoch(1), &without(50)).unwrap_err();
    assert!(error.0.contains("2 tables refer"), "{error}");
}

/// Without the count, the first table that leaves takes along what another one reads.
#[cfg(feature = "mutants")]
#[test]
fn a_count_that_is_ignored_is_noticed() {
    let _out = tombolo_storage::mutant::enable(Mutant::ValuesObsoleteWhileReferred);
    let mut state = state_with_values();
    state.apply_edits(&[Edit::TableObsolete { name: name(1) }], Origin::Record(Epoch(1))).unwrap();
    assert_eq!(status(&state, 50), Some(TableStatus::Obsolete));
    assert!(State::from_snapshot(9, Epoch(1), &state.edits()).is_err());
}
