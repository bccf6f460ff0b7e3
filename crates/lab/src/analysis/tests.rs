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

#[test]
fn distinct_keys_are_counted_until_the_end_of_each_slot() {
    let mut analyser = Analyser::new(header(), Bounds::default());
    // A new key in each slot, 40 of them: slots are widened once. A keyspace comes in the 20th.
    for number in 0..40_u64 {
        let key = number.to_be_bytes();
        analyser.add(&Event::new(number * FIRST_SLOT_NS, Asked::Get, 1, &key));
        if number >= 20 {
            analyser.add(&Event::new(number * FIRST_SLOT_NS, Asked::Get, 2, &key));
        }
    }
    let seen = analyser.finish();
    assert_eq!(seen.slot_ns, 2 * FIRST_SLOT_NS);
    for (slot, distinct) in seen.keyspaces[0].distinct_over_time.iter().enumerate() {
        assert!((distinct - 2.0 * (slot as f64 + 1.0)).abs() < 0.5, "{slot}: {distinct}");
    }
    for (slot, distinct) in seen.keyspaces[1].distinct_over_time.iter().enumerate() {
        let expected = 2.0 * (slot as f64 + 1.0) - 20.0;
        assert!((distinct - expected.max(0.0)).abs() < 0.5, "{slot}: {distinct}");
    }
}

#[test]
fn long_keys_make_the_sample_smaller() {
    let bounds = Bounds { sampled_keys_max: 100, ..Bounds::default() };
    let mut analyser = Analyser::new(header(), bounds);
    for number in 0..200_u32 {
        let mut key = vec![0; 20_000];
        key[..4].copy_from_slice(&number.to_be_bytes());
        analyser.add(&Event::new(0, Asked::Get, 1, &key));
        assert!(analyser.sample.values().map(|(_, key)| key.key.len()).sum::<usize>() <= 100 << 10);
    }
    assert!(analyser.finish().sampled < 0.1);
}
