use std::cell::Cell;

use super::*;
use crate::bench::map::Map;
use crate::{Distribution, Generator, KeyEncoding, Keys, Mix, ValueSizes, Values, random};

fn generator(mix: Mix, distribution: Distribution) -> Generator {
    let mut random = random(1, 0);
    let values = Values::new(ValueSizes::Fixed(10), 1.0, &mut random);
    Generator::new(
        mix,
        Keys::new(distribution, 100).unwrap(),
        KeyEncoding::BigEndian { width: 8 },
        values,
        5,
        random,
    )
    .unwrap()
}

#[test]
fn a_run_does_what_the_generator_says_and_counts_it() {
    let map = Map::default();
    let ticks = Cell::new(0);
    let now = || {
        ticks.set(ticks.get() + 1);
        Duration::from_micros(ticks.get())
    };
    let mut fill = generator(Mix { put: 1.0, ..Mix::default() }, Distribution::Sequential);
    let report = run(&mut map.session(Durability::Accepted), &mut fill, 100, now).unwrap();
    assert_eq!((report.of(Verb::Put).count(), map.entries().len()), (100, 100));
    // Each operation saw the clock twice, one microsecond apart.
    assert_eq!(report.of(Verb::Put).summary().p50.as_micros(), 1);

    let mut read = generator(Mix { get: 1.0, scan: 1.0, ..Mix::default() }, Distribution::Uniform);
    let mut report = run(&mut map.session(Durability::Accepted), &mut read, 1000, now).unwrap();
    assert_eq!(report.found, report.of(Verb::Get).count());
    assert_eq!(report.value_bytes_read, 10 * (report.found + report.scanned));
    assert!(report.scanned >= report.of(Verb::Scan).count());

    let other = run(&mut map.session(Durability::Accepted), &mut read, 500, now).unwrap();
    let found = report.found + other.found;
    report.merge(&other);
    assert_eq!((report.found, report.of(Verb::Get).count() + report.of(Verb::Scan).count()), (found, 1500));

    let mut empty = generator(Mix { delete: 1.0, ..Mix::default() }, Distribution::Sequential);
    run(&mut map.session(Durability::Accepted), &mut empty, 100, now).unwrap();
    assert!(map.entries().is_empty());
}
