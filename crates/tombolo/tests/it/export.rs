//! A keyspace given out as tables, and taken in elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo::{
    Db, Durability, ErrorKind, Export, Keyspace, KeyspaceOptions, OperatorName, Options, Registry,
    TablePlace, TakeOver,
};
use tombolo_env::simulated::World;

const MINUTE: Duration = Duration::from_secs(60);

type Entries = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn options() -> KeyspaceOptions {
    let operator = Some(OperatorName::parse("append_comma").unwrap());
    KeyspaceOptions { operator, separate_bytes: 512, ..KeyspaceOptions::default() }
}

/// A world, and two databases in it.
struct Two {
    world: World,
    from: Db,
    to: Db,
}

impl Two {
    fn new() -> Two {
        let world = World::new(1);
        let env = world.process("both").env();
        let open = |name: &str| {
            let options = Options::parse(["memory_bytes=1048576", "memtable_bytes=16384"]).unwrap();
            let builder = Db::builder(format!("file:///{name}")).env(env.clone()).options(options);
            let builder = builder.registry(Registry::with_defaults());
            builder.take_over(TakeOver::Always).open().wait().unwrap()
        };
        let (from, to) = (open("from"), open("to"));
        Two { world, from, to }
    }
}

/// All that a keyspace holds, with ends.
fn all(keyspace: &Keyspace) -> Entries {
    let mut cursor = keyspace.cursor::<&[u8]>(..);
    let mut found = Entries::new();
    while cursor.next().unwrap() {
        found.insert(cursor.key().to_vec(), (cursor.value().to_vec(), cursor.expires_ms()));
    }
    found
}

fn text(keyspace: &Keyspace, key: &str) -> Option<String> {
    let value = keyspace.get(key).wait().unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn bytes_of(number: u32) -> Vec<u8> {
    vec![b'a' + u8::try_from(number % 26).unwrap(); if number.is_multiple_of(5) { 700 } else { 20 }]
}

/// Everything of a keyspace at one moment: values, small and apart, those that end with their ends,
/// merges folded, deletes as nothing. It takes the place of another keyspace's content.
#[test]
fn a_keyspace_moves_to_another_database_as_it_was_at_one_moment() {
    let Two { from, to, world: _world } = Two::new();
    let source = from.create_keyspace("k", options()).wait().unwrap();
    for number in 0..300_u32 {
        let (key, value) = (format!("{number:04}"), bytes_of(number));
        match number % 4 {
            0 => source.put_ttl_with(key, value, MINUTE * 60, Durability::Accepted),
            1 => source.merge_with(key, value, Durability::Accepted),
            _ => source.put_with(key, value, Durability::Accepted),
        }
        .wait()
        .unwrap();
    }
    for number in (0..300_u32).step_by(7) {
        let key = format!("{number:04}");
        if number % 2 == 0 { source.delete(key) } else { source.merge(key, "more") }.wait().unwrap();
    }
    source.delete_range("0100", "0110").wait().unwrap();
    from.flush().wait().unwrap();
    source.merge("0102", "again").wait().unwrap();
    let (snapshot, expected) = (from.snapshot(), all(&source));
    source.delete_range("0000", "0250").wait().unwrap();
    from.compact().wait().unwrap();
    let export = || Export::new(&source).at(&snapshot).table_bytes(4096);
    let place = TablePlace::from("file:///parts/k");
    let exported = from.export_tables(export(), place.clone()).wait().unwrap();
    assert!(exported.tables.len() > 5, "{exported:?}");
    assert!(!exported.ordered);
    let entries: u64 = exported.tables.iter().map(|table| table.table.entries).sum();
    assert_eq!(entries, expected.len() as u64);
    let again = from.export_tables(export(), place).wait().unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");

    let target = to.create_keyspace("other name", options()).wait().unwrap();
    target.put("old", "goes").wait().unwrap();
    to.ingest(exported.ingest_into(&target).exchange(&target)).wait().unwrap();
    assert_eq!(all(&target), expected);
    to.flush().wait().unwrap();
    to.compact().wait().unwrap();
    assert_eq!(all(&target), expected);
    assert!(to.verify().wait().unwrap().damage.is_empty());

    // A whole keyspace, by the shorter verbs; an empty one gives no table.
    let exported = target.export_tables("file:///parts/other").wait().unwrap();
    assert_eq!(exported.tables.len(), 1);
    let empty = to.create_keyspace("empty", options()).wait().unwrap();
    let none = to.blocking().keyspace("empty").unwrap().export_tables("file:///parts/none").unwrap();
    assert!(none.tables.is_empty());
    to.ingest(exported.ingest_into(&empty).exchange(&empty)).wait().unwrap();
    assert_eq!(all(&empty), expected);
    let wrong = from.export_tables(Export::new(&empty), "file:///parts/wrong").wait().unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Invalid, "{wrong}");
}

/// Operands that are kept lie over what they lay over: a value ends there when it did here.
#[test]
fn operands_are_kept_over_a_value_that_ends() {
    let Two { world, from, to } = Two::new();
    let source = from.create_keyspace("k", options()).wait().unwrap();
    source.put("stays", "1").wait().unwrap();
    source.put_ttl("ends", "1", MINUTE * 10).wait().unwrap();
    for key in ["stays", "ends", "nothing"] {
        source.merge(key, "2").wait().unwrap();
        source.merge(key, "3").wait().unwrap();
    }
    let mut cursor = source.cursor::<&[u8]>(..).unfolded();
    let mut ends = Vec::new();
    while cursor.next().unwrap() {
        let unfolded = cursor.operands().unwrap();
        ends.push((unfolded.value_expires_ms.is_some(), unfolded.operands_end));
    }
    assert_eq!(ends, [(true, false), (false, false), (false, false)]);
    let exported = from.export_tables(Export::new(&source).keep_merges(), "file:///parts").wait().unwrap();
    assert!(exported.ordered);
    let names: Vec<_> = exported.tables.iter().map(|table| &table.name[..]).collect();
    assert_eq!(names, ["part-00001.table", "merges-00001.table"]);
    let target = to.create_keyspace("k", options()).wait().unwrap();
    to.ingest(exported.ingest_into(&target)).wait().unwrap();
    let now = |keyspace| ["stays", "ends", "nothing"].map(|key| text(keyspace, key));
    let expected = |texts: [&str; 3]| texts.map(|text| Some(text.to_owned()));
    assert_eq!(now(&target), expected(["1,2,3", "1,2,3", "2,3"]));
    world.run_for(MINUTE * 15);
    assert_eq!(now(&source), expected(["1,2,3", "2,3", "2,3"]));
    assert_eq!(now(&target), now(&source), "it ends in both");
    to.flush().wait().unwrap();
    world.run_for(MINUTE * 100);
    to.compact().wait().unwrap();
    assert_eq!(now(&target), expected(["1,2,3", "2,3", "2,3"]));
}

/// Of operands that end it counts when each was written, which no table says: none is kept, and
/// what was made until then is deleted.
#[test]
fn operands_that_end_are_not_kept_and_nothing_stays() {
    let Two { from, world: _world, .. } = Two::new();
    let source = from.create_keyspace("k", options()).wait().unwrap();
    for number in 0..200_u32 {
        source.put_with(format!("{number:04}"), bytes_of(number), Durability::Accepted).wait().unwrap();
    }
    source.merge_ttl("0150", "ends", MINUTE).wait().unwrap();
    // One that stays over one that ends is no better.
    source.merge("0150", "stays").wait().unwrap();
    let kept = Export::new(&source).keep_merges().table_bytes(2000);
    let error = from.export_tables(kept, "file:///parts").wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("0150"), "{error}");
    let folded = from.export_tables(Export::new(&source), "file:///parts").wait().unwrap();
    assert_eq!(folded.tables[0].table.entries, 200, "their places are free");
}
