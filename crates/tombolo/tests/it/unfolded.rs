//! Operands that nobody folds: read as they are, made into tables, and taken in elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo::{
    AssociativeOperator, ErrorKind, IngestOptions, Keyspace, KeyspaceOptions, Operator, OperatorError,
    OperatorName, Registry, TableFileBuilder, TablePlace,
};

use crate::stores::{Stores, run};

const OPTIONS: &[&str] = &["memory_bytes=1048576", "memtable_bytes=4096"];

/// Keeps the longest; this library has no such operator.
struct Longest;

impl AssociativeOperator for Longest {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Result<(), OperatorError> {
        if newer.len() > older.len() {
            older.clear();
            older.extend_from_slice(newer);
        }
        Ok(())
    }
}

fn named(name: &str) -> KeyspaceOptions {
    KeyspaceOptions { operator: Some(OperatorName::parse(name).unwrap()), ..KeyspaceOptions::default() }
}

/// A key's value, and its operands.
type Kept = (Option<Vec<u8>>, Vec<Vec<u8>>);

/// What the cursor says that folds nothing, in both directions.
async fn unfolded(keyspace: &Keyspace) -> BTreeMap<String, Kept> {
    let mut all = Vec::new();
    for forward in [true, false] {
        let mut found = BTreeMap::new();
        let mut cursor = keyspace.cursor::<&[u8]>(..).unfolded();
        let mut more = if forward {
            cursor.seek_to_first_async().await.unwrap()
        } else {
            cursor.seek_to_last_async().await.unwrap()
        };
        while more {
            let kept = match cursor.operands() {
                Some(unfolded) => {
                    assert!(cursor.value().is_empty());
                    let operands = unfolded.operands.iter().map(|operand| operand.to_vec());
                    (unfolded.value.map(|value| value.to_vec()), operands.collect())
                }
                None => (Some(cursor.value().to_vec()), Vec::new()),
            };
            found.insert(String::from_utf8(cursor.key().to_vec()).unwrap(), kept);
            let moved = if forward { cursor.next_async().await } else { cursor.prev_async().await };
            more = moved.unwrap();
        }
        all.push(found);
    }
    assert_eq!(all[0], all[1], "both directions agree");
    all.remove(0)
}

fn kept(value: Option<&str>, operands: &[&str]) -> Kept {
    let bytes = |text: &str| text.as_bytes().to_vec();
    (value.map(bytes), operands.iter().map(|operand| bytes(operand)).collect())
}

#[test]
fn operands_are_read_as_they_are_without_their_operator() {
    run(OPTIONS, |stores| async move {
        let longest = OperatorName::parse("longest@1").unwrap();
        let db = stores.builder(&["automatic_compaction=false"]);
        let db = db.operator(longest, Operator::associative(Longest)).open().await.unwrap();
        let keys = db.create_keyspace("k", named("longest@1")).await.unwrap();
        keys.put("a", "plain").await.unwrap();
        keys.put("b", "x").await.unwrap();
        db.flush().await.unwrap();
        keys.merge("b", "yyy").await.unwrap();
        db.flush().await.unwrap();
        keys.merge("b", "zz").await.unwrap();
        keys.merge("c", "over nothing").await.unwrap();
        keys.put("d", "gone").await.unwrap();
        keys.delete("d").await.unwrap();
        keys.merge("d", "again").await.unwrap();
        let expected = BTreeMap::from([
            ("a".to_owned(), kept(Some("plain"), &[])),
            ("b".to_owned(), kept(Some("x"), &["yyy", "zz"])),
            ("c".to_owned(), kept(None, &["over nothing"])),
            ("d".to_owned(), kept(None, &["again"])),
        ]);
        assert_eq!(unfolded(&keys).await, expected);
        db.close().await.unwrap();
        let db = stores.open(&["automatic_compaction=false"]).await;
        let keys = db.keyspace("k").unwrap();
        let error = keys.get("b").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(unfolded(&keys).await, expected);
        db.compact().await.unwrap();
        let after = unfolded(&keys).await;
        assert_eq!((&after["a"], &after["c"]), (&expected["a"], &expected["c"]));
        assert_eq!(after["b"].1.last(), expected["b"].1.last());
        db.close().await.unwrap();
    });
}

/// Makes a table of operands, for an operator.
async fn table(stores: &Stores, name: &str, operator: &str, entries: &[(&str, &[&str])]) -> TablePlace {
    let place = TablePlace::object(Arc::clone(&stores.objects), name).unwrap();
    let registry = Registry::with_defaults();
    let made = TableFileBuilder::create_with(stores.env.clone(), registry, place.clone(), named(operator));
    let mut table = made.await.unwrap();
    for (key, operands) in entries {
        table.merge(key, operands.iter()).await.unwrap();
    }
    let none: [&str; 0] = [];
    assert_eq!(table.merge("zzz", none).await.unwrap_err().kind(), ErrorKind::Invalid);
    table.finish().await.unwrap();
    place
}

async fn values(keyspace: &Keyspace, keys: &[&str]) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for key in keys {
        let value = keyspace.get(key).await.unwrap();
        found.push(value.map(|value| String::from_utf8(value.to_vec()).unwrap()));
    }
    found
}

/// Operands of a table are merged into the values there, by the operator that the table names.
/// Another keyspace takes none of them.
#[test]
fn operands_of_a_table_are_merged_into_what_is_there() {
    run(OPTIONS, |stores| async move {
        let second = OperatorName::parse("append_comma@2").unwrap();
        let builder = stores.builder(&[]).operator(second, Operator::append(b";"));
        let db = builder.open().await.unwrap();
        let keys = db.create_keyspace("k", named("append_comma@1")).await.unwrap();
        keys.put("a", "1").await.unwrap();
        db.flush().await.unwrap();
        keys.merge("b", "1").await.unwrap();
        let entries: &[(&str, &[&str])] = &[("a", &["2", "3"]), ("b", &["2"]), ("c", &["1", "2"])];
        let one = table(&stores, "one", "append_comma@1", entries).await;
        let plain = db.default_keyspace();
        let other = db.create_keyspace("other", named("add_u64@1")).await.unwrap();
        let later = db.create_keyspace("later", named("append_comma@2")).await.unwrap();
        db.flush().await.unwrap();
        let before = stores.tables().await;
        for trusted in [false, true] {
            let options = IngestOptions { trusted, ..IngestOptions::default() };
            for (keyspace, kind) in
                [(&plain, ErrorKind::Unsupported), (&other, ErrorKind::Invalid), (&later, ErrorKind::Invalid)]
            {
                let error = keyspace.ingest_with([one.clone()], options).await.unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
            }
        }
        assert_eq!(stores.tables().await, before, "nothing of it was taken");
        keys.ingest([one]).await.unwrap();
        let expected = ["1,2,3", "1,2", "1,2"].map(|text| Some(text.to_owned()));
        assert_eq!(values(&keys, &["a", "b", "c"]).await, expected, "before the flush");
        db.flush().await.unwrap();
        assert_eq!(values(&keys, &["a", "b", "c"]).await, expected);
        keys.merge("c", "3").await.unwrap();
        db.flush().await.unwrap();
        db.compact().await.unwrap();
        assert_eq!(values(&keys, &["a", "c"]).await, ["1,2,3", "1,2,3"].map(|text| Some(text.to_owned())));
        assert!(db.verify().await.unwrap().damage.is_empty());
        db.close().await.unwrap();
    });
}

#[test]
fn a_builder_without_an_operator_takes_no_operands() {
    run(OPTIONS, |stores| async move {
        let place = TablePlace::object(Arc::clone(&stores.objects), "part").unwrap();
        let (registry, options) = (Registry::with_defaults(), KeyspaceOptions::default());
        let made = TableFileBuilder::create_with(stores.env.clone(), registry, place, options);
        let mut table = made.await.unwrap();
        assert_eq!(table.merge("a", ["1"]).await.unwrap_err().kind(), ErrorKind::Invalid);
    });
}

#[cfg(feature = "mutants")]
mod mutants {
    use tombolo_storage::mutant::{Mutant, notices};

    #[test]
    fn operands_of_another_operator_that_are_taken() {
        notices(Mutant::IngestIgnoresOperator, super::operands_of_a_table_are_merged_into_what_is_there);
    }
}
