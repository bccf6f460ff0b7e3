use tombolo_format::trace::TracedKeys;

use super::*;

fn header() -> Header {
    Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: String::new(),
    }
}

/// 1,000 keys; key n is read n / 100 + 1 times, and written once.
fn small(bounds: Bounds) -> Analysis {
    let mut analyser = Analyser::new(header(), bounds);
    analyser.name(&BTreeMap::from([(1, "orders".to_owned())]));
    let mut time = 0;
    for number in 0..1000_u32 {
        let key = number.to_be_bytes();
        time += 1_000_000;
        let put = Event { value_bytes: 100 + number % 7, ..Event::new(time, Asked::Put, 1, &key) };
        analyser.add(&put);
        for _ in 0..=number / 100 {
            let found = if number == 5 { Found::No } else { Found::Yes };
            analyser.add(&Event { found, latency_ns: 500, ..Event::new(time, Asked::Get, 1, &key) });
        }
    }
    analyser.add(&Event { entries: 40, ..Event::new(time - 1, Asked::Scan, 2, b"x") });
    analyser.finish()
}

#[test]
fn few_keys_are_counted_exactly() {
    let seen = small(Bounds::default());
    assert_eq!((seen.events, seen.backwards, seen.keyspaces.len()), (6501, 1, 2));
    let orders = &seen.keyspaces[0];
    assert_eq!((orders.name.as_str(), orders.of(Asked::Get), orders.of(Asked::Put)), ("orders", 5500, 1000));
    assert_eq!((orders.found, orders.keys.len(), orders.key_bytes.most()), ([5499, 1], 1000, 4));
    assert!((orders.distinct_keys - 1000.0).abs() < 1e-9 && (seen.sampled - 1.0).abs() < 1e-12);
    let counts = orders.access_counts(|key| key.reads.into());
    assert_eq!(counts.iter().collect::<Vec<_>>(), (1..=10).map(|reads| (reads, 100)).collect::<Vec<_>>());
    assert_eq!((orders.value_bytes.least(), orders.value_bytes.most()), (100, 106));
    assert_eq!(orders.latencies[0].1.count(), 5500);
    assert_eq!(seen.keyspaces[1].scan_entries.most(), 40);
    // The keys of the last hundred have 11 of 65 accesses each hundred.
    assert!((orders.hot_set(11.0 / 65.0) - 0.1).abs() < 0.01, "{}", orders.hot_set(11.0 / 65.0));
    assert_eq!(orders.follows[Asked::Put as usize - 1][Asked::Get as usize - 1], 1000);
}

#[test]
fn time_and_ranges_are_told_apart() {
    let seen = small(Bounds::default());
    let map = seen.keyspaces[0].heat_map(10);
    assert_eq!((map.ranges.len(), map.accesses.iter().flatten().sum::<u64>()), (10, 6500));
    // Keys come in their order: early ranges lie in early slots.
    let middle = |row: &[u64; SLOTS]| {
        row.iter().enumerate().map(|(slot, count)| slot as u64 * count).sum::<u64>() / row.iter().sum::<u64>()
    };
    assert!(map.accesses.iter().map(middle).collect::<Vec<_>>().is_sorted());
    let over_time = &seen.keyspaces[0].distinct_over_time;
    assert!(over_time.is_sorted() && over_time.len() >= SLOTS / 2 - 1, "{over_time:?}");
    let prefixes = seen.keyspaces[0].prefixes(3);
    assert_eq!((prefixes.distinct, prefixes.top[0].0.as_slice()), (4, &[0, 0, 3][..]));
}

#[test]
fn a_sample_is_near_the_whole() {
    let bounds = Bounds { sampled_keys_max: 300, ..Bounds::default() };
    let seen = small(bounds);
    let orders = &seen.keyspaces[0];
    assert!(seen.sampled < 0.5 && orders.keys.len() <= 300 && orders.keys.len() > 80);
    assert!((orders.distinct_keys - 1000.0).abs() < 40.0, "{}", orders.distinct_keys);
    let mean = orders.access_counts(|key| key.reads.into()).mean();
    assert!((mean - 5.5).abs() < 1.0, "{mean}");
}
