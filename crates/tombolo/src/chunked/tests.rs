use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Whatever a plain ordered map answers, this one does, and clones made on the way stay as they
    /// were.
    #[test]
    fn equals_an_ordered_map(operations in prop::collection::vec((any::<bool>(), 0u16..3000), 1..4000)) {
        let mut model = BTreeMap::new();
        let mut map = ChunkedMap::default();
        let mut kept = Vec::new();
        for (step, (insert, key)) in operations.into_iter().enumerate() {
            if insert || step < 1500 {
                prop_assert_eq!(map.insert(key, step), model.insert(key, step));
            } else {
                prop_assert_eq!(map.remove(&key), model.remove(&key));
            }
            if step % 700 == 0 {
                kept.push((map.clone(), model.clone()));
            }
        }
        kept.push((map, model));
        for (map, model) in kept {
            prop_assert_eq!(map.len(), model.len());
            prop_assert!(map.iter().eq(model.iter()));
            prop_assert!(map.iter().rev().eq(model.iter().rev()));
            prop_assert!((0..3000).all(|key| map.get(&key) == model.get(&key)));
        }
    }
}

/// The price of a new version at 100,000 entries is two small arrays, not the map.
#[test]
fn a_change_shares_all_chunks_but_one() {
    let mut map = ChunkedMap::default();
    for key in 0..100_000u32 {
        map.insert(key, key);
    }
    let before = map.clone();
    map.insert(50_000, 0);
    let differing = map.chunks.iter().zip(before.chunks.iter()).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
    assert_eq!(differing, 1);
    assert!(map.chunks.len() < 500, "{} chunks", map.chunks.len());
}
