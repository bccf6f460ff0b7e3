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

/// A snapshot has an entry kept beside the range delete in one table, far away: its row is kept.
fn a_row_that_is_kept_is_hidden_too() {
    let world = World::new(1);
    let env = world.process("p").env();
    let objects: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
    let throttle = Throttle { latency: Latency::fixed(Duration::from_millis(20)), ..Throttle::default() };
    let slow = Arc::new(ThrottleObjectStore::new(&env, objects, throttle));
    let objects = Arc::new(HedgeObjectStore::new(&env, slow));
    let log = Arc::new(MemoryLogStore::unnamed(&env));
    let options = Options::parse(["memory_bytes=33554432", "automatic_compaction=false"]).unwrap();
    let builder = Db::builder("mem://rows").env(env.clone()).stores(objects, log).options(options);
    let db = builder.open().wait().unwrap();
    let keys = db.default_keyspace();
    keys.put("k", "v").wait().unwrap();
    let before = db.snapshot();
    keys.delete_range("a", "z").wait().unwrap();
    db.flush().wait().unwrap();
    // The cache is full of something else: rows are kept.
    let budget = Arc::clone(db.engine().versions.tables().cache.budget());
    let others = budget.cache_bytes_max() / 10 * 9;
    budget.add_cached(others);
    for _ in 0..3 {
        assert_eq!(keys.get("k").wait().unwrap(), None);
    }
    assert!(db.engine().versions.tables().cache.stats().row_hits > 0, "a row was looked at");
    assert_eq!(before.get(&keys, "k").wait().unwrap().unwrap(), b"v");
    budget.subtract_cached(others);
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
}
