//! Look-ups of many keys, Z-sets of several cursors, changes, timers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tombolo::{Batch, Db, ErrorKind, FullOperator, KeyspaceOptions, Operator, OperatorError, OperatorName};
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

/// Cursors that stand somewhere already are compared from the beginning.
#[test]
fn changes_are_found_by_cursors_that_were_moved() {
    let db = open("typed-moved");
    let set = weights(&db, "set");
    (0..20).for_each(|number| set.put(&(number, 0), &1).wait().unwrap());
    let moment = db.snapshot();
    set.put(&(2, 0), &7).wait().unwrap();
    set.put(&(30, 0), &7).wait().unwrap();
    let mut before = moment.cursor::<&[u8]>(set.keyspace(), ..);
    let mut after = set.keyspace().cursor::<&[u8]>(..);
    assert!(before.seek_to_last().unwrap() && after.seek_to_last().unwrap());
    let mut changes = Changes::between(before, after);
    let mut found = 0;
    while changes.next().unwrap().is_some() {
        found += 1;
    }
    assert_eq!(found, 2);
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

/// Gives what lies below the operands, and fails once when it is told to.
struct FailsOnce(Arc<AtomicBool>);

impl FullOperator for FailsOnce {
    fn fold(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        _operands: &[&[u8]],
        value: &mut Vec<u8>,
    ) -> Result<bool, OperatorError> {
        if self.0.swap(false, Ordering::Relaxed) {
            return Err("it fails once".into());
        }
        value.extend_from_slice(base.unwrap_or_default());
        Ok(base.is_some())
    }
}

/// A database with two keyspaces in which reads of merged keys fail once.
fn failing(name: &str) -> ([Weights; 2], Db, Arc<AtomicBool>) {
    let (fails, operator) = (Arc::default(), OperatorName::parse("fails_once").unwrap());
    let made = Operator::full(FailsOnce(Arc::clone(&fails)));
    let db = Db::builder(crate::fresh(name)).operator(operator.clone(), made).open().wait().unwrap();
    let open = |name: &str| {
        let options = KeyspaceOptions { operator: Some(operator.clone()), ..KeyspaceOptions::default() };
        Weights::open_with(&db, name, options).wait().unwrap()
    };
    ([open("one"), open("other")], db, fails)
}

#[test]
fn changes_after_a_read_that_failed_are_all_there_and_no_others() {
    for merged in [(0, 1), (0, 2)] {
        let ([set, _], db, fails) = failing("typed-changes-fail");
        for number in 1..4 {
            set.put(&(0, number), &1).wait().unwrap();
        }
        let moment = db.snapshot();
        set.put(&(0, 3), &2).wait().unwrap();
        if merged != (0, 1) {
            set.put(&(0, 1), &2).wait().unwrap();
        }
        set.merge(&merged, &0).wait().unwrap();
        let mut changes =
            Changes::between(moment.cursor::<&[u8]>(set.keyspace(), ..), set.keyspace().cursor::<&[u8]>(..));
        fails.store(true, Ordering::Relaxed);
        let (mut changed, mut failed) = (Vec::new(), 0);
        loop {
            match changes.next() {
                Ok(None) => break,
                Ok(Some(change)) => {
                    changed.push((change.key[7], change.before.is_some(), change.after.is_some()));
                }
                Err(_) => failed += 1,
            }
        }
        let first = (merged != (0, 1)).then_some((1, true, true));
        assert_eq!(failed, 1);
        assert_eq!(changed, first.into_iter().chain([(3, true, true)]).collect::<Vec<_>>());
    }
}

#[test]
fn weights_after_a_read_that_failed_are_whole() {
    let (sets, _db, fails) = failing("typed-weights-fail");
    for (set, weight) in sets.iter().zip([3, 5]) {
        set.put(&(1, 1), &weight).wait().unwrap();
        set.put(&(1, 2), &weight).wait().unwrap();
    }
    sets[1].merge(&(1, 1), &0).wait().unwrap();
    let mut merge = WeightMerge::new([(sets[0].all(), 1), (sets[1].all(), 1)]);
    fails.store(true, Ordering::Relaxed);
    merge.next().unwrap_err();
    assert_eq!(merge.next().unwrap(), Some(((1, 1), 8)));
    assert_eq!(merge.next().unwrap(), Some(((1, 2), 8)));
    assert_eq!(merge.next().unwrap(), None);
}
