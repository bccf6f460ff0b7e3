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
    for size in [1, 2, 3, 10, 100, 1000] {
        let best = misses(Policy::Belady, size, &accesses);
        for policy in Policy::ALL {
            let missed = misses(policy, size, &accesses);
            assert!(missed >= best && missed < 60_000, "{policy:?} {size}: {missed} {best}");
        }
    }
}

/// Which of so many items to let go at a miss is tried in all ways, none of them and the new one
/// included.
fn fewest_misses(accesses: &[u64], held: &[u64], items_max: usize) -> u64 {
    let Some((item, rest)) = accesses.split_first() else { return 0 };
    if held.contains(item) {
        return fewest_misses(rest, held, items_max);
    }
    let mut fewest = fewest_misses(rest, held, items_max);
    let with = |gone: Option<usize>| {
        let kept = held.iter().enumerate().filter(|(index, _)| Some(*index) != gone);
        kept.map(|(_, item)| *item).chain([*item]).collect::<Vec<_>>()
    };
    if held.len() < items_max {
        fewest = fewest.min(fewest_misses(rest, &with(None), items_max));
    }
    for index in 0..held.len() {
        fewest = fewest.min(fewest_misses(rest, &with(Some(index)), items_max));
    }
    fewest + 1
}

#[test]
fn nothing_that_can_be_chosen_is_better_than_the_best() {
    let mut random = random(4, 0);
    for round in 0..60 {
        let accesses: Vec<u64> = (0..8).map(|_| random.random_range(0..5)).collect();
        let size = 1 + round % 3;
        let best = misses(Policy::Belady, size, &accesses);
        assert_eq!(best, fewest_misses(&accesses, &[], size), "{accesses:?} {size}");
        for policy in Policy::ALL {
            assert!(misses(policy, size, &accesses) >= best, "{policy:?} {accesses:?} {size}");
        }
    }
}

/// Policies of a queue, told plainly: the back is its end. Each item has a mark.
fn plain_misses(policy: Policy, items_max: usize, accesses: &[u64]) -> u64 {
    let (mut queue, mut seen, mut misses) = (Vec::<(u64, bool)>::new(), Vec::<u64>::new(), 0);
    let is_lru = matches!(policy, Policy::Lru | Policy::GhostLru);
    for item in accesses {
        if let Some(at) = queue.iter().position(|(held, _)| held == item) {
            match is_lru {
                true => {
                    let moved = queue.remove(at);
                    queue.insert(0, moved);
                }
                false => queue[at].1 = true,
            }
            continue;
        }
        misses += 1;
        if matches!(policy, Policy::GhostLru | Policy::GhostClock) {
            match seen.iter().position(|known| known == item) {
                Some(at) => {
                    seen.remove(at);
                }
                None => {
                    seen.insert(0, *item);
                    seen.truncate(items_max);
                    continue;
                }
            }
        }
        while queue.len() >= items_max {
            match queue.pop() {
                Some((spared, true)) => queue.insert(0, (spared, false)),
                _ => break,
            }
        }
        queue.insert(0, (*item, false));
    }
    misses
}

#[test]
fn queues_miss_what_a_plain_one_misses() {
    // Many more items than any of them holds, so that each is let go and taken in again.
    let accesses = zipf(5, 2000, 20_000);
    for size in [1, 2, 7, 60] {
        for policy in [Policy::Lru, Policy::Clock, Policy::Tombolo, Policy::GhostLru, Policy::GhostClock] {
            let expected = plain_misses(policy, size, &accesses);
            assert_eq!(misses(policy, size, &accesses), expected, "{policy:?} {size}");
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
    // 4 and 5 are turned away.
    assert_eq!(misses(Policy::Belady, 3, &accesses), 6);
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
