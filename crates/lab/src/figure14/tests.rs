use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::*;

const KEYS: u32 = 8000;
const OPERATIONS: u64 = 12_000;

fn small() -> &'static Figure14 {
    static SMALL: OnceLock<Figure14> = OnceLock::new();
    SMALL.get_or_init(|| Figure14::new(KEYS, OPERATIONS, 3).unwrap())
}

#[test]
fn the_reference_has_the_statistics_of_zippydb() {
    let figure = small();
    let keyspace = &figure.first_half().keyspaces[0];
    for (asked, share) in reference::SHARES {
        let made = keyspace.of(asked) as f64 / keyspace.events() as f64;
        assert!((made - share).abs() < 0.01, "{}: {made}", asked.name());
    }
    let (keys, values) = (keyspace.key_bytes.mean(), keyspace.value_bytes.mean());
    assert!((47.0..56.0).contains(&keys) && (38.0..50.0).contains(&values), "{keys}, {values}");
    // A few keys have half of the accesses.
    assert!(keyspace.hot_set(0.5) < 0.25, "{}", keyspace.hot_set(0.5));
}

#[test]
fn all_workloads_ask_for_keys_that_are_there_in_the_same_mix() {
    let figure = small();
    assert!(figure.model().to_toml().unwrap().len() <= crate::model::MODEL_BYTES_MAX);
    let mut loaded = std::collections::BTreeSet::new();
    figure.load(|event| loaded.insert(event.key.to_vec()).then_some(()).ok_or(())).unwrap();
    assert!(figure.data_bytes() > 60 * loaded.len() as u64);
    let names: Vec<_> = Figure14::names().collect();
    assert_eq!((names.len(), names[0], names[9]), (10, REPLAY, MODEL));
    for name in names {
        let mut events = figure.events(name, 1).unwrap();
        let (mut counts, mut there, mut distinct) = (BTreeMap::<_, f64>::new(), 0, BTreeMap::<_, u32>::new());
        for _ in 0..10_000 {
            let event = events.next();
            *counts.entry(event.asked.name()).or_default() += 1e-4;
            there += usize::from(loaded.contains(event.key));
            *distinct.entry(event.key.to_vec()).or_default() += 1;
        }
        for (asked, share) in reference::SHARES {
            assert!((counts[asked.name()] - share).abs() < 0.03, "{name}: {counts:?}");
        }
        assert!(there > 7500, "{name}: {there} are there");
        assert!(distinct.len() > 100, "{name}");
    }
    assert!(figure.events("nobody", 1).is_err() && Figure14::new(10, 10, 1).is_err());
}

#[test]
fn the_second_half_goes_on_where_the_first_ended() {
    let figure = small();
    let mut whole = Reference::new(KEYS, 3);
    for _ in 0..OPERATIONS {
        whole.next();
    }
    let mut second = figure.events(REPLAY, 5).unwrap();
    for _ in 0..1000 {
        let (one, other) = (whole.next(), second.next());
        assert_eq!((one.key, one.time_ns, one.asked), (other.key, other.time_ns, other.asked));
    }
}
