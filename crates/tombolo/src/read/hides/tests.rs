use std::time::Duration;

use tombolo_env::simulated::World;
use tombolo_format::key::EntryKind;
use tombolo_storage::ObjectStore;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};
use tombolo_storage::layer::hedge::HedgeObjectStore;
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};

use super::*;
use crate::{Db, Options};

fn strictly_older_entries_are_hidden() {
    let of = |number| Trailer::new(SequenceNumber(number), EntryKind::Put);
    let cover = Cover(Some(SequenceNumber(7)));
    assert!(cover.hides(of(6)));
    assert!(!cover.hides(of(7)) && !cover.hides(of(8)));
    assert!(!Cover(None).hides(of(1)));
}

/// A database far away.
fn far(env: &tombolo_env::Env) -> Db {
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(env));
    let throttle = Throttle { latency: Latency::fixed(Duration::from_millis(20)), ..Throttle::default() };
    let slow = Arc::new(ThrottleObjectStore::new(env, objects, throttle));
    let objects = Arc::new(HedgeObjectStore::new(env, slow));
    let log = Arc::new(MemoryLogStore::unnamed(env));
    let options = Options::parse(["memory_bytes=33554432", "automatic_compaction=false"]).unwrap();
    let builder = Db::builder("mem://rows").env(env.clone()).stores(objects, log).options(options);
    builder.open().wait().unwrap()
}

/// The cache of a database is full of something else, so that it keeps rows, until this is dropped.
struct FullCache(Arc<crate::budget::MemoryBudget>, u64);

impl FullCache {
    fn of(db: &Db) -> FullCache {
        let budget = Arc::clone(db.engine().versions.tables().cache.budget());
        let others = budget.cache_bytes_max() / 10 * 9;
        budget.add_cached(others);
        FullCache(budget, others)
    }
}

impl Drop for FullCache {
    fn drop(&mut self) {
        self.0.subtract_cached(self.1);
    }
}

fn row_hits(db: &Db) -> u64 {
    db.engine().versions.tables().cache.stats().row_hits
}

/// Gets a key often enough that its row is kept, and answers; each get says the same.
fn get_of_rows(db: &Db, keys: &crate::Keyspace, key: &str) -> Option<Vec<u8>> {
    let before = row_hits(db);
    let found: Vec<_> = (0..3).map(|_| keys.get(key).wait().unwrap().map(|value| value.to_vec())).collect();
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    assert!(row_hits(db) > before, "a row of {key} was looked at");
    found[0].clone()
}

/// A snapshot has an entry kept beside the range delete in one table, far away: its row is kept.
fn a_row_that_is_kept_is_hidden_too() {
    let world = World::new(1);
    let db = far(&world.process("p").env());
    let keys = db.default_keyspace();
    keys.put("k", "v").wait().unwrap();
    let before = db.snapshot();
    keys.delete_range("a", "z").wait().unwrap();
    db.flush().wait().unwrap();
    let _full = FullCache::of(&db);
    assert_eq!(get_of_rows(&db, &keys, "k"), None);
    assert_eq!(before.get(&keys, "k").wait().unwrap().unwrap(), b"v");
}

/// Rows of operands are parts of what a key has: each table's, its base's, and what a compaction
/// made of them.
#[test]
fn rows_of_operands_never_answer_by_themselves() {
    // With a base in a table, and without one.
    for has_base in [true, false] {
        let world = World::new(1);
        let db = far(&world.process("p").env());
        let operator = Some(crate::OperatorName::parse("append_comma").unwrap());
        let options = crate::KeyspaceOptions { operator, ..crate::KeyspaceOptions::default() };
        let keys = db.create_keyspace("words", options).wait().unwrap();
        let mut words = Vec::new();
        for word in ["zero", "one", "two"] {
            match word {
                "zero" if has_base => keys.put("k", word).wait().unwrap(),
                _ => keys.merge("k", word).wait().unwrap(),
            }
            db.flush().wait().unwrap();
            words.push(word);
        }
        let text = |words: &[&str]| Some(words.join(",").into_bytes());
        let full = FullCache::of(&db);
        let before = db.snapshot();
        assert_eq!(get_of_rows(&db, &keys, "k"), text(&words));
        // Over the rows, in memory, and in a table of its own.
        keys.merge("k", "three").wait().unwrap();
        words.push("three");
        assert_eq!(get_of_rows(&db, &keys, "k"), text(&words));
        drop(full);
        db.flush().wait().unwrap();
        let full = FullCache::of(&db);
        assert_eq!(get_of_rows(&db, &keys, "k"), text(&words));
        assert_eq!(before.get(&keys, "k").wait().unwrap().map(|value| value.to_vec()), text(&words[..3]));
        drop((before, full));
        db.compact().wait().unwrap();
        let _full = FullCache::of(&db);
        assert_eq!(get_of_rows(&db, &keys, "k"), text(&words));
    }
}

/// A row is kept with its end: nobody sees it afterwards but a snapshot of before.
#[test]
fn rows_end_with_their_values() {
    let world = World::new(1);
    let db = far(&world.process("p").env());
    let keys = db.default_keyspace();
    keys.put("k", "older").wait().unwrap();
    db.flush().wait().unwrap();
    keys.put_ttl("k", "value", Duration::from_secs(600)).wait().unwrap();
    db.flush().wait().unwrap();
    let full = FullCache::of(&db);
    assert_eq!(get_of_rows(&db, &keys, "k").unwrap(), b"value");
    let before = db.snapshot();
    drop(full);
    world.run_for(Duration::from_secs(700));
    let _full = FullCache::of(&db);
    assert_eq!(get_of_rows(&db, &keys, "k"), None, "nor what lies below it");
    assert_eq!(before.get(&keys, "k").wait().unwrap().unwrap(), b"value");
}

#[test]
fn a_range_delete_hides_what_is_older_and_rows_too() {
    strictly_older_entries_are_hidden();
    a_row_that_is_kept_is_hidden_too();
}

#[cfg(feature = "mutants")]
#[test]
fn range_deletes_that_hide_too_much_or_too_little_are_noticed() {
    use tombolo_storage::mutant::notices;

    notices(Mutant::RangeDeleteCoversEqualNumber, strictly_older_entries_are_hidden);
    notices(Mutant::RowsIgnoreRangeDeletes, a_row_that_is_kept_is_hidden_too);
    notices(Mutant::MergeAnswersAlone, rows_of_operands_never_answer_by_themselves);
}
