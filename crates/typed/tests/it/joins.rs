//! Look-ups of many keys, Z-sets of several cursors, changes, timers.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tombolo::{Batch, Db, ErrorKind, KeyspaceOptions, OperatorName};
use tombolo_typed::{Changes, Timers, TypedKeyspace, WeightMerge};

type Weights = TypedKeyspace<(u32, u32), i64>;

fn open(name: &str) -> Db {
    Db::builder(crate::fresh(name)).open().wait().unwrap()
}

fn weights(db: &Db, name: &str) -> Weights {
    let operator = Some(OperatorName::parse("weights").unwrap());
    let options = KeyspaceOptions { operator, ..KeyspaceOptions::default() };
    Weights::open_with(db, name, options).wait().unwrap()
}

fn entries() -> impl Strategy<Value = Vec<((u32, u32), i64)>> {
    proptest::collection::vec(((0..4_u32, 0..6_u32), -2..3_i64), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn z_sets_are_added_and_subtracted(one in entries(), other in entries(), keys in entries()) {
        let db = open("typed-weights");
        let sets = [weights(&db, "one"), weights(&db, "other")];
        let mut sum: BTreeMap<(u32, u32), i64> = BTreeMap::new();
        let mut first: BTreeMap<(u32, u32), i64> = BTreeMap::new();
        for ((set, entries), factor) in sets.iter().zip([&one, &other]).zip([1, -1]) {
            let mut batch = Batch::new();
            for (key, weight) in entries {
                set.merge_in(&mut batch, key, weight).unwrap();
                *sum.entry(*key).or_default() += factor * weight;
                if factor == 1 {
                    *first.entry(*key).or_default() += weight;
                }
            }
            db.write(batch).wait().unwrap();
        }
        sum.retain(|_, weight| *weight != 0);
        first.retain(|_, weight| *weight != 0);
        let mut merge = WeightMerge::new([(sets[0].all(), 1), (sets[1].all(), -1)]);
        let mut found = Vec::new();
        while let Some(entry) = merge.next().unwrap() {
            found.push(entry);
        }
        prop_assert_eq!(found, sum.into_iter().collect::<Vec<_>>());

        let mut keys: Vec<_> = keys.into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        let mut found = Vec::new();
        sets[0].all().look_up(&keys, |number, weight| found.push((keys[number], weight))).unwrap();
        prop_assert_eq!(found, keys.iter().map(|key| (*key, first.get(key).copied())).collect::<Vec<_>>());
    }

    #[test]
    fn changes_are_those_between_two_moments(before in entries(), after in entries()) {
        let db = open("typed-changes");
        let set = weights(&db, "set");
        let write = |entries: &[((u32, u32), i64)]| {
            for (key, weight) in entries {
                if *weight == 0 {
                    set.delete(key).wait().unwrap();
                } else {
                    set.put(key, weight).wait().unwrap();
                }
            }
        };
        write(&before);
        let moment = db.snapshot();
        write(&after);
        let all = |mut cursor: tombolo_typed::TypedCursor<(u32, u32), i64>| {
            let mut found = BTreeMap::new();
            while cursor.next().unwrap() {
                found.insert(cursor.key_bytes().to_vec(), cursor.value().unwrap());
            }
            found
        };
        let (old, new) = (all(set.at(&moment).all()), all(set.all()));
        let mut changes = Changes::between(
            moment.cursor::<&[u8]>(set.keyspace(), ..),
            set.keyspace().cursor::<&[u8]>(..),
        );
        let mut patched = old;
        while let Some(change) = changes.next().unwrap() {
            prop_assert_ne!(&change.before, &change.after);
            let weight = |value: tombolo::Value| i64::from_le_bytes(value[..].try_into().unwrap());
            let was = match change.after.map(weight) {
                Some(weight) => patched.insert(change.key.to_vec(), weight),
                None => patched.remove(&change.key[..]),
            };
            prop_assert_eq!(was, change.before.map(weight));
        }
        prop_assert_eq!(patched, new);
    }
}

#[test]
fn keys_out_of_order_are_refused() {
    let db = open("typed-disorder");
    let set = weights(&db, "set");
    let error = set.all().look_up(&[(1, 1), (0, 0)], |_, _| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn timers_fire_once_and_in_order() {
    let db = open("typed-timers");
    let timers = Timers::<u32>::open(&db, "timers").wait().unwrap();
    let mut batch = Batch::new();
    for (at, of) in [(30, 1), (10, 2), (20, 3), (10, 1), (40, 4)] {
        timers.set_in(&mut batch, at, &of).unwrap();
    }
    timers.clear_in(&mut batch, 20, &3).unwrap();
    db.write(batch).wait().unwrap();
    let mut fired = Vec::new();
    for now in [5, 30, 30, 50] {
        let mut batch = Batch::new();
        fired.push(timers.due_in(&mut batch, now, 2).unwrap());
        db.write(batch).wait().unwrap();
    }
    assert_eq!(fired, [vec![], vec![(10, 1), (10, 2)], vec![(30, 1)], vec![(40, 4)]]);
    assert_eq!(timers.earliest().unwrap(), None);
}
