use rand::Rng;

use super::*;
use crate::random;
use crate::{Distribution, Keys};

fn misses(policy: Policy, items_max: usize, accesses: &[u64]) -> u64 {
    let Some(mut cache) = simulated(policy, items_max) else { return belady_misses(accesses, items_max) };
    accesses.iter().filter(|item| !cache.access(**item)).count() as u64
}

fn zipf(seed: u64, keys: u64, count: usize) -> Vec<u64> {
    let mut random = random(seed, 0);
    let mut keys = Keys::new(Distribution::Zipfian { exponent: 0.99 }, keys).unwrap();
    (0..count).map(|_| keys.draw(&mut random)).collect()
}

#[test]
fn a_cache_with_room_for_all_misses_each_item_once() {
    let accesses = zipf(1, 100, 5000);
    let distinct = accesses.iter().collect::<std::collections::BTreeSet<_>>().len() as u64;
    for policy in Policy::ALL {
        let ghosted = matches!(policy, Policy::GhostLru | Policy::GhostClock);
        // A ghost turns each item away once.
        let expected = if ghosted { 2 * distinct } else { distinct };
        let missed = misses(policy, 4000, &accesses);
        assert!(missed == expected || ghosted && missed <= expected, "{policy:?}: {missed} {expected}");
    }
}

#[test]
fn nobody_does_better_than_who_knows_the_future() {
    let accesses = zipf(2, 3000, 60_000);
    for size in [10, 100, 1000] {
        let best = misses(Policy::Belady, size, &accesses);
        for policy in Policy::ALL {
            let missed = misses(policy, size, &accesses);
            assert!(missed >= best && missed < 60_000, "{policy:?} {size}: {missed} {best}");
        }
    }
}

#[test]
fn scans_push_out_an_lru_and_not_the_others() {
    // A hot set that is accessed again and again, and long scans between.
    let (mut random, mut accesses) = (random(3, 0), Vec::new());
    for round in 0..100_u64 {
        (0..300).for_each(|_| accesses.push(random.random_range(0..60_u64)));
        accesses.extend((0..200).map(|step| 1000 + round * 200 + step));
    }
    let lru = misses(Policy::Lru, 100, &accesses);
    for policy in [Policy::Arc, Policy::S3Fifo, Policy::Sieve, Policy::TinyLfu, Policy::Lfu, Policy::GhostLru]
    {
        assert!(misses(policy, 100, &accesses) < lru, "{policy:?}");
    }
}

#[test]
fn small_traces_are_as_counted_by_hand() {
    let accesses = [1, 2, 3, 1, 4, 1, 2, 5, 1, 2, 3, 4];
    assert_eq!(misses(Policy::Lru, 3, &accesses), 8);
    assert_eq!(misses(Policy::Belady, 3, &accesses), 7);
    assert_eq!(misses(Policy::Clock, 1, &[1, 1, 2, 2, 1]), 3);
    assert_eq!(misses(Policy::Sieve, 2, &[1, 2, 1, 3, 1, 2]), 4);
    assert_eq!(misses(Policy::Lfu, 2, &[1, 1, 2, 3, 1, 3]), 3);
}

#[test]
fn names_are_their_own() {
    for policy in Policy::ALL {
        assert_eq!(Policy::from_name(policy.name()), Some(policy));
    }
    assert_eq!(Policy::from_name("none"), None);
}
