use std::collections::BTreeMap;

use super::*;
use crate::{ValueSizes, random};

const LOADED: u64 = 1000;
const DRAWS: u32 = 100_000;

fn source(core: Core, distribution: Option<Distribution>, thread: u64, inserted: &Arc<AtomicU64>) -> Ycsb {
    let values = Arc::new(Values::new(ValueSizes::Fixed(20), 0.5, &mut random(1, 99)));
    let encoding = KeyEncoding::BigEndian { width: 8 };
    Ycsb::new(core, distribution, LOADED, Arc::clone(inserted), encoding, values, random(7, thread)).unwrap()
}

fn number(operation: &Operation<'_>) -> u64 {
    u64::from_be_bytes(operation.key.try_into().unwrap())
}

#[test]
fn verbs_come_in_the_papers_shares() {
    let table = [
        (Core::A, vec![(Verb::Get, 0.5), (Verb::Put, 0.5)]),
        (Core::B, vec![(Verb::Get, 0.95), (Verb::Put, 0.05)]),
        (Core::C, vec![(Verb::Get, 1.0)]),
        (Core::D, vec![(Verb::Get, 0.95), (Verb::Put, 0.05)]),
        (Core::E, vec![(Verb::Scan, 0.95), (Verb::Put, 0.05)]),
        (Core::F, vec![(Verb::Get, 0.5), (Verb::Modify, 0.5)]),
    ];
    for (core, shares) in table {
        let mut source = source(core, None, 0, &Arc::default());
        let mut counts = BTreeMap::new();
        for _ in 0..DRAWS {
            let operation = source.draw();
            assert_eq!(
                operation.value.is_empty(),
                matches!(operation.verb, Verb::Get | Verb::Scan),
                "{core:?}"
            );
            assert_eq!(
                (1..=SCAN_ENTRIES_MAX).contains(&operation.scan_entries),
                operation.verb == Verb::Scan
            );
            *counts.entry(operation.verb).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), shares.len(), "{core:?}: {counts:?}");
        for (verb, share) in shares {
            let found = f64::from(counts[&verb]) / f64::from(DRAWS);
            // Six deviations of a binomial share.
            let bound = 6.0 * (share * (1.0 - share) / f64::from(DRAWS)).sqrt();
            assert!((found - share).abs() <= bound, "{core:?} {verb:?}: {found}, expected {share}");
        }
    }
}

#[test]
fn inserts_are_new_keys_whichever_thread_makes_them() {
    let inserted = Arc::default();
    let mut threads = [source(Core::D, None, 0, &inserted), source(Core::D, None, 1, &inserted)];
    let mut new = Vec::new();
    for _ in 0..5000 {
        for thread in &mut threads {
            let operation = thread.draw();
            if operation.verb == Verb::Put {
                new.push(number(&operation));
            }
        }
    }
    assert!(new.iter().copied().eq(LOADED..LOADED + inserted.load(Ordering::Relaxed)), "{new:?}");
}

#[test]
fn latest_follows_what_was_inserted() {
    let inserted = Arc::default();
    let mut source = source(Core::D, None, 0, &inserted);
    // 40 times as many keys as were loaded: who did not follow would read none of the new ones.
    inserted.store(40 * LOADED, Ordering::Relaxed);
    let mut reads = |_| {
        let operation = source.draw();
        (operation.verb == Verb::Get).then(|| number(&operation))
    };
    let drawn: Vec<u64> = (0..10_000).filter_map(&mut reads).collect();
    let new = drawn.iter().filter(|number| **number >= LOADED).count();
    assert!(new > drawn.len() * 9 / 10, "{new} of {}", drawn.len());
    assert!(drawn.iter().all(|number| *number < 41 * LOADED + 1000));
}

#[test]
fn another_distribution_can_be_asked_for() {
    // The share of the most popular key: Zipf 0.99 over 1,000 keys gives it 1 / Σ k^−0.99.
    let whole: f64 = (1..=LOADED).map(|rank| (rank as f64).powf(-EXPONENT)).sum();
    let hot = Distribution::Hotspot { hot_keys: 0.2, hot_accesses: 0.8 };
    for (distribution, expected) in
        [(None, 1.0 / whole), (Some(Distribution::Uniform), 0.001), (Some(hot), 0.8 / 200.0)]
    {
        let mut source = source(Core::C, distribution, 0, &Arc::default());
        let mut counts = BTreeMap::new();
        for _ in 0..DRAWS {
            *counts.entry(number(&source.draw())).or_insert(0u32) += 1;
        }
        let top = f64::from(*counts.values().max().unwrap()) / f64::from(DRAWS);
        // The largest of many counts lies up to four deviations above its mean.
        let deviation = (expected / f64::from(DRAWS)).sqrt();
        assert!(
            (expected - 6.0 * deviation..expected + 6.0 * deviation).contains(&top),
            "{distribution:?}: {top}, expected {expected}"
        );
    }
}

#[test]
fn nothing_to_read_is_refused() {
    let values = Arc::new(Values::new(ValueSizes::Fixed(1), 1.0, &mut random(1, 0)));
    let made = |loaded, distribution| {
        let encoding = KeyEncoding::BigEndian { width: 8 };
        Ycsb::new(Core::A, distribution, loaded, Arc::default(), encoding, Arc::clone(&values), random(1, 0))
    };
    assert!(made(0, None).is_err());
    assert!(made(1, Some(Distribution::Zipfian { exponent: -1.0 })).is_err());
}
