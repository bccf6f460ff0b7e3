use rand::Rng;

use super::*;
use crate::random;

fn hash(item: u64) -> u64 {
    let mixed = (item ^ (item >> 30)).wrapping_add(1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (mixed >> 31)
}

/// Misses of an LRU cache of `size` items.
fn lru_misses(accesses: &[u64], size: usize) -> usize {
    let (mut stack, mut misses) = (Vec::<u64>::new(), 0);
    for item in accesses {
        match stack.iter().position(|held| held == item) {
            Some(at) => {
                stack.remove(at);
            }
            None => misses += 1,
        }
        stack.insert(0, *item);
        stack.truncate(size);
    }
    misses
}

fn skewed(seed: u64, items: u64, count: usize) -> Vec<u64> {
    let mut random = random(seed, 0);
    (0..count)
        .map(|_| {
            let most = random.random_range(0..items);
            random.random_range(0..=most)
        })
        .collect()
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn an_exact_curve_is_that_of_a_cache() {
    let accesses = skewed(1, 300, 5000);
    let mut reuse = Reuse::new(1000);
    for item in &accesses {
        reuse.access(hash(*item), 1);
    }
    let curve = reuse.by_items();
    for size in [1, 2, 7, 20, 31] {
        let expected = lru_misses(&accesses, size) as f64 / accesses.len() as f64;
        assert!((miss_ratio_at(&curve, size as u64) - expected).abs() < 1e-9, "{size}");
    }
    for point in curve.iter().skip(30) {
        let expected = lru_misses(&accesses, usize::try_from(point.size).unwrap()) as f64 / 5000.0;
        assert!((point.ratio - expected).abs() < 1e-9, "{point:?} {expected}");
    }
    assert!(reuse.error() < 1e-12 && reuse.by_bytes() == curve);
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn a_sampled_curve_is_near_it() {
    let accesses = skewed(2, 40_000, 400_000);
    let (mut exact, mut sampled) = (Reuse::new(100_000), Reuse::new(4000));
    for item in &accesses {
        exact.access(hash(*item), 1);
        sampled.access(hash(*item), 1);
    }
    assert!(sampled.rate() < 0.2 && (exact.rate() - 1.0).abs() < 1e-12);
    let (exact, sampled_curve) = (exact.by_items(), sampled.by_items());
    for size in [1000, 5000, 10_000, 20_000, 35_000] {
        let far = (miss_ratio_at(&exact, size) - miss_ratio_at(&sampled_curve, size)).abs();
        assert!(far < 4.0 * sampled.error(), "{size}: {far} of {}", sampled.error());
    }
}

#[test]
fn buckets_follow_each_other_and_hold_their_distances() {
    let mut before = 0;
    for distance in 1..100_000 {
        let bucket = bucket(distance);
        assert!(bucket == before || bucket == before + 1, "{distance}");
        assert!(
            upper_end(bucket) >= distance && (bucket == 0 || upper_end(bucket - 1) < distance),
            "{distance}"
        );
        before = bucket;
    }
}

#[test]
fn slots_of_time_are_used_again() {
    let mut reuse = Reuse::new(16);
    for round in 0..1000 {
        for item in 0..10 {
            let distance = reuse.access(hash(item), 5);
            assert_eq!(distance, (round > 0).then_some(10));
        }
    }
    assert_eq!(reuse.by_bytes().last().map(|point| point.size > 48), Some(true));
    assert!((reuse.distances().iter().map(|(_, share)| share).sum::<f64>() - 0.999).abs() < 1e-9);
}
