use std::collections::BTreeMap;

use super::*;
use crate::{Distribution, ValueSizes, random};

fn generator(mix: Mix, seed: u64) -> Result<Generator, InvalidGenerator> {
    let mut random = random(seed, 0);
    let values = Values::new(ValueSizes::Fixed(20), 0.5, &mut random);
    let keys = Keys::new(Distribution::Uniform, 1000).unwrap();
    Generator::new(mix, keys, KeyEncoding::Decimal { width: 16 }, values, 10, random)
}

#[test]
fn verbs_come_in_their_shares() {
    // The shares of one production database: they need not sum to 1.
    let mix = Mix { get: 78.0, put: 13.0, delete: 6.0, scan: 3.0 };
    let mut generator = generator(mix, 1).unwrap();
    let mut counts = BTreeMap::new();
    for _ in 0..100_000 {
        let operation = generator.draw();
        assert_eq!(operation.key.len(), 16);
        assert_eq!(operation.value.len(), if operation.verb == Verb::Put { 20 } else { 0 });
        assert_eq!((1..=10).contains(&operation.scan_entries), operation.verb == Verb::Scan);
        *counts.entry(operation.verb).or_insert(0u32) += 1;
    }
    for (verb, share) in [(Verb::Get, 0.78), (Verb::Put, 0.13), (Verb::Delete, 0.06), (Verb::Scan, 0.03)] {
        let found = f64::from(counts[&verb]) / 100_000.0;
        // Six deviations of a binomial share at 100,000 draws.
        assert!(
            (found - share).abs() < 6.0 * (share * (1.0 - share) / 100_000.0f64).sqrt(),
            "{verb:?}: {found}, expected {share}"
        );
    }
}

#[test]
fn a_pure_mix_is_pure() {
    for (mix, verb) in [
        (Mix { get: 1.0, ..Mix::default() }, Verb::Get),
        (Mix { put: 0.3, ..Mix::default() }, Verb::Put),
        (Mix { delete: 7.0, ..Mix::default() }, Verb::Delete),
        (Mix { scan: 1.0, ..Mix::default() }, Verb::Scan),
    ] {
        let mut generator = generator(mix, 2).unwrap();
        assert!((0..1000).all(|_| generator.draw().verb == verb), "{verb:?}");
    }
}

#[test]
fn a_seed_repeats_its_operations() {
    let history = |seed| {
        let mut generator = generator(Mix { get: 1.0, put: 1.0, delete: 1.0, scan: 1.0 }, seed).unwrap();
        (0..200).map(|_| format!("{:?}", generator.draw())).collect::<Vec<_>>()
    };
    assert_eq!(history(3), history(3));
    assert_ne!(history(3), history(4));
}

#[test]
fn what_cannot_be_is_refused() {
    assert_eq!(generator(Mix::default(), 1).unwrap_err(), InvalidGenerator::Mix);
    assert_eq!(
        generator(Mix { get: -1.0, put: 2.0, ..Mix::default() }, 1).unwrap_err(),
        InvalidGenerator::Mix
    );
    assert_eq!(generator(Mix { get: f64::NAN, ..Mix::default() }, 1).unwrap_err(), InvalidGenerator::Mix);
    let mut random = random(1, 0);
    let values = Values::new(ValueSizes::Fixed(1), 1.0, &mut random);
    let keys = Keys::new(Distribution::Uniform, 1000).unwrap();
    let narrow = KeyEncoding::BigEndian { width: 1 };
    assert!(Generator::new(Mix { get: 1.0, ..Mix::default() }, keys, narrow, values, 1, random).is_err());
}
