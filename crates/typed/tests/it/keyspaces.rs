//! Typed keyspaces: verbs, batches, snapshots, and what bad input gets.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tombolo::{Batch, Db, ErrorKind, KeyspaceOptions, OperatorName};
use tombolo_typed::{Key, StartsWith, TypedKeyspace};

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[key(prefix(OfCustomer(customer)))]
struct OrderKey {
    customer: u32,
    day: i32,
    number: u32,
}

type Orders = TypedKeyspace<OrderKey, String>;

fn order(customer: u32, day: i32, number: u32) -> OrderKey {
    OrderKey { customer, day, number }
}

fn open(name: &str) -> Db {
    Db::builder(crate::fresh(name)).open().wait().unwrap()
}

#[test]
fn verbs_batches_and_snapshots() {
    let db = open("typed-verbs");
    let orders = Orders::open(&db, "orders").wait().unwrap();
    orders.put(&order(7, -3, 1), "a lamp").wait().unwrap();
    let before = db.snapshot();
    let mut batch = Batch::new();
    orders.put_in(&mut batch, &order(7, -4, 2), "a chair").unwrap();
    orders.put_in(&mut batch, &order(8, 0, 3), "a table").unwrap();
    orders.delete_in(&mut batch, &order(7, -3, 1)).unwrap();
    db.write(batch).wait().unwrap();

    assert!(orders.get(&order(7, -3, 1)).wait().unwrap().is_none());
    assert_eq!(orders.get(&order(8, 0, 3)).wait().unwrap().unwrap().view(), "a table");
    assert_eq!(orders.at(&before).get(&order(7, -3, 1)).wait().unwrap().unwrap().view(), "a lamp");
    let several = orders.multi_get(&[order(8, 0, 3), order(1, 1, 1), order(7, -4, 2)]).wait().unwrap();
    let several: Vec<_> = several.iter().map(|found| found.as_ref().map(tombolo_typed::Lent::view)).collect();
    assert_eq!(several, [Some("a table"), None, Some("a chair")]);

    let mut cursor = orders.prefix(&OfCustomer { customer: 7 });
    assert!(cursor.next().unwrap());
    assert_eq!((cursor.key().unwrap(), cursor.value().unwrap()), (order(7, -4, 2), "a chair"));
    assert!(!cursor.next().unwrap());
    let mut cursor = orders.at(&before).all();
    assert!(cursor.next().unwrap() && !cursor.next().unwrap());

    orders.delete_prefix(&OfCustomer { customer: 8 }).wait().unwrap();
    let mut cursor = orders.range(OfCustomer { customer: 7 }..);
    assert!(cursor.next().unwrap() && !cursor.next().unwrap());

    let names = TypedKeyspace::<String, u32>::open(&db, "names").wait().unwrap();
    for (number, name) in (0..).zip(["ab", "abc", "b", "a\0", "a"]) {
        names.put(&name.to_owned(), &number).wait().unwrap();
    }
    let (mut cursor, mut found) = (names.prefix(&StartsWith("ab")), Vec::new());
    while cursor.next().unwrap() {
        found.push((cursor.key().unwrap(), cursor.value().unwrap()));
    }
    assert_eq!(found, [("ab".to_owned(), 0), ("abc".to_owned(), 1)]);
}

#[test]
fn weights_are_merged() {
    let db = open("typed-merge");
    let operator = Some(OperatorName::parse("weights").unwrap());
    let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
    let weights = TypedKeyspace::<(u32, String), i64>::open_with(&db, "weights", options).wait().unwrap();
    let key = (1, "a".to_owned());
    weights.merge(&key, &3).wait().unwrap();
    let mut batch = Batch::new();
    weights.merge_in(&mut batch, &key, &-1).unwrap();
    db.write(batch).wait().unwrap();
    assert_eq!(weights.read(&key, |weight| weight).unwrap(), Some(2));
    weights.merge(&key, &-2).wait().unwrap();
    assert_eq!(weights.read(&key, |weight| weight).unwrap(), None, "a weight of zero is absent");
}

/// The types stay with the keyspace, also after it is opened again.
#[test]
fn another_type_is_refused() {
    let uri = crate::fresh("typed-other");
    let open = || Db::builder(&uri[..]).open().wait().unwrap();
    let db = open();
    Orders::open(&db, "orders").wait().unwrap();
    db.close().wait().unwrap();
    let db = open();
    Orders::open(&db, "orders").wait().unwrap();
    let error = TypedKeyspace::<OrderKey, u64>::open(&db, "orders").wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("made with other types"), "{error}");
    let error = TypedKeyspace::<(u32, u32, i32), String>::open(&db, "orders").wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);

    let plain = db.create_keyspace("plain", KeyspaceOptions::default()).wait().unwrap();
    let error = Orders::of(plain.clone()).unwrap_err();
    assert!(error.to_string().contains("adopt"), "{error}");
    let orders = Orders::adopt(plain.clone()).wait().unwrap();
    orders.put(&order(1, 2, 3), "a lamp").wait().unwrap();
    let error = TypedKeyspace::<u64, String>::adopt(plain).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("stay"), "{error}");
}

#[test]
fn bad_input_is_said() {
    let db = open("typed-bad");
    let names = TypedKeyspace::<String, String>::open(&db, "names").wait().unwrap();
    let long = "x".repeat(70_000);
    for error in [
        names.put(&long, "v").wait().unwrap_err(),
        names.get(&long).wait().unwrap_err(),
        names.put_in(&mut Batch::new(), &long, "v").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("too long"), "{error}");
    }
    // 40,000 zeros take twice their bytes.
    assert_eq!(names.put(&"\0".repeat(40_000), "v").wait().unwrap_err().kind(), ErrorKind::Invalid);

    let key = "k".to_owned();
    names.keyspace().put(key.to_key().bytes(), [0xC3]).wait().unwrap();
    let error = names.get(&key).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(names.read(&key, |_| ()).unwrap_err().kind(), ErrorKind::Corrupt);
    names.keyspace().put(b"no end", b"v").wait().unwrap();
    let mut cursor = names.all();
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.value().unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.key().unwrap_err().kind(), ErrorKind::Corrupt);
}

#[derive(Clone, Debug)]
enum Step {
    Put(OrderKey, String),
    Delete(OrderKey),
    DeleteCustomer(u32),
    Flush,
    Reopen,
}

fn a_key() -> impl Strategy<Value = OrderKey> {
    (0..4_u32, -2..2_i32, 0..3_u32).prop_map(|(customer, day, number)| order(customer, day, number))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (a_key(), "[a-c]{0,4}").prop_map(|(key, value)| Step::Put(key, value)),
        3 => a_key().prop_map(Step::Delete),
        1 => (0..4_u32).prop_map(Step::DeleteCustomer),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A typed keyspace is an ordered map of its types.
    #[test]
    fn it_is_an_ordered_map(
        steps in proptest::collection::vec(step(), 1..60), from in a_key(), to in a_key(),
    ) {
        let uri = crate::fresh("typed-map");
        let open = || Db::builder(&uri[..]).open().wait().unwrap();
        let mut db = open();
        let mut orders = Orders::open(&db, "orders").wait().unwrap();
        let mut map: BTreeMap<OrderKey, String> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    orders.put(&key, &value).wait().unwrap();
                    map.insert(key, value);
                }
                Step::Delete(key) => {
                    orders.delete(&key).wait().unwrap();
                    map.remove(&key);
                }
                Step::DeleteCustomer(customer) => {
                    orders.delete_prefix(&OfCustomer { customer }).wait().unwrap();
                    map.retain(|key, _| key.customer != customer);
                }
                Step::Flush => db.flush().wait().unwrap(),
                Step::Reopen => {
                    drop(orders);
                    db.close().wait().unwrap();
                    db = open();
                    orders = Orders::open(&db, "orders").wait().unwrap();
                }
            }
        }
        let (mut cursor, mut found) = (orders.all(), Vec::new());
        while cursor.next().unwrap() {
            found.push((cursor.key().unwrap(), cursor.value().unwrap().to_owned()));
        }
        prop_assert!(found.iter().map(|(key, value)| (key, value)).eq(&map));
        if from <= to {
            let (mut cursor, mut found) = (orders.range(from.clone()..to.clone()), Vec::new());
            while cursor.next().unwrap() {
                found.push(cursor.key().unwrap());
            }
            prop_assert!(found.iter().eq(map.range(from.clone()..to).map(|(key, _)| key)));
        }
        // Groups: the first of each customer, and all of one.
        let (mut cursor, mut groups) = (orders.all(), Vec::new());
        while cursor.next_group::<OfCustomer>().unwrap() {
            let first = cursor.key().unwrap();
            let mut count = 1;
            while cursor.next_in_group::<OfCustomer>().unwrap() {
                count += 1;
            }
            groups.push((first, count));
        }
        let mut wanted: Vec<(OrderKey, usize)> = Vec::new();
        for key in map.keys() {
            match wanted.last_mut() {
                Some((first, count)) if first.customer == key.customer => *count += 1,
                _ => wanted.push((key.clone(), 1)),
            }
        }
        prop_assert_eq!(groups, wanted);
        // The last of a customer, or of those before.
        let mut cursor = orders.all();
        let is_there = cursor.seek_for_prev(&OfCustomer { customer: from.customer }).unwrap();
        let wanted = map.keys().rfind(|key| key.customer <= from.customer);
        let found = is_there.then(|| cursor.key().unwrap());
        prop_assert_eq!(found.as_ref(), wanted);
    }
}
