use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::{Distribution, KeyEncoding, Keys, Mix, ValueSizes, Values, random};

/// A plain ordered map as a target: the smallest example of an implementation.
struct Map(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Target for Map {
    type Session<'a> = &'a Map;

    fn session(&self) -> &Map {
        self
    }

    fn flush(&self) -> Result<(), TargetError> {
        Ok(())
    }

    fn describe(&self) -> String {
        "an ordered map in memory".to_owned()
    }
}

impl Session for &Map {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.batch(&[(key, Some(value))])
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let map = self.0.lock().unwrap();
        let value = map.get(key);
        if let Some(value) = value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.batch(&[(key, None)])
    }

    fn scan(&mut self, from: &[u8], entries: usize, seen: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize, TargetError> {
        let map = self.0.lock().unwrap();
        Ok(map.range(from.to_vec()..).take(entries).map(|(key, value)| seen(key, value)).count())
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError> {
        let mut map = self.0.lock().unwrap();
        for (key, value) in writes {
            match value {
                Some(value) => map.insert(key.to_vec(), value.to_vec()),
                None => map.remove(*key),
            };
        }
        Ok(())
    }
}

fn generator(mix: Mix, distribution: Distribution) -> Generator {
    let mut random = random(1, 0);
    let values = Values::new(ValueSizes::Fixed(10), 1.0, &mut random);
    Generator::new(mix, Keys::new(distribution, 100).unwrap(), KeyEncoding::BigEndian { width: 8 }, values, 5, random).unwrap()
}

#[test]
fn a_run_does_what_the_generator_says_and_counts_it() {
    let map = Map(Mutex::default());
    let ticks = Cell::new(0);
    let now = || {
        ticks.set(ticks.get() + 1);
        Duration::from_micros(ticks.get())
    };
    let mut fill = generator(Mix { put: 1.0, ..Mix::default() }, Distribution::Sequential);
    let report = run(&mut map.session(), &mut fill, 100, now).unwrap();
    assert_eq!((report.of(Verb::Put).count(), map.0.lock().unwrap().len()), (100, 100));
    // Each operation saw the clock twice, one microsecond apart.
    assert_eq!(report.of(Verb::Put).summary().p50.as_micros(), 1);

    let mut read = generator(Mix { get: 1.0, scan: 1.0, ..Mix::default() }, Distribution::Uniform);
    let mut report = run(&mut map.session(), &mut read, 1000, now).unwrap();
    assert_eq!(report.found, report.of(Verb::Get).count());
    assert_eq!(report.value_bytes_read, 10 * (report.found + report.scanned));
    assert!(report.scanned >= report.of(Verb::Scan).count());

    let other = run(&mut map.session(), &mut read, 500, now).unwrap();
    let found = report.found + other.found;
    report.merge(&other);
    assert_eq!((report.found, report.of(Verb::Get).count() + report.of(Verb::Scan).count()), (found, 1500));

    let mut empty = generator(Mix { delete: 1.0, ..Mix::default() }, Distribution::Sequential);
    run(&mut map.session(), &mut empty, 100, now).unwrap();
    assert!(map.0.lock().unwrap().is_empty());
}
