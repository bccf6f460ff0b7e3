use std::cell::Cell;

use super::map::Map;
use super::*;

fn plan() -> Plan {
    Plan { num: 1000, reads: 500, threads: 3, batch_size: 7, seek_nexts: 4, ..Plan::default() }
}

fn named(name: &str) -> Benchmark {
    name.parse().unwrap()
}

/// Runs a benchmark's foreground threads one after the other, on a clock that moves by `tick` at
/// each reading.
fn run_with(map: &Map, plan: &Plan, name: &str, tick: Duration) -> Outcome {
    plan.check().unwrap();
    let (shared, now) = (Shared::new(plan.threads), Cell::new(Duration::from_secs(1)));
    let clock = || {
        now.set(now.get() + tick);
        now.get()
    };
    let mut whole = Outcome::default();
    for worker in work(plan, named(name)).into_iter().filter(|worker| !worker.is_background()) {
        whole.merge(worker.run(map, &shared, &clock));
    }
    assert!(shared.is_done());
    assert_eq!(whole.errors, 0, "{:?}", whole.first_error);
    whole
}

fn run(map: &Map, name: &str) -> Outcome {
    run_with(map, &plan(), name, Duration::from_nanos(100))
}

#[test]
fn fills_write_what_they_say() {
    for (name, keys) in [("fillseq", 1000), ("filluniquerandom", 1000), ("fillbatch", 1000)] {
        let map = Map::default();
        let outcome = run(&map, name);
        assert_eq!((outcome.operations, map.entries().len()), (1000, keys), "{name}");
        assert_eq!(outcome.bytes, 116_000, "{name}");
    }
    let map = Map::default();
    let outcome = run(&map, "fillrandom");
    // 1 − 1/e of the keys, give or take.
    assert!(
        outcome.operations == 1000 && (550..710).contains(&map.entries().len()),
        "{}",
        map.entries().len()
    );
    let more = run_with(&map, &Plan { num: 5_000_000, ..plan() }, "fillsync", Duration::from_nanos(100));
    assert_eq!(more.operations, 5000);
    assert_eq!(run(&Map::default(), "fillsync").operations, 1000);
}

#[test]
fn reads_find_what_is_there() {
    let map = Map::default();
    run(&map, "fillseq");
    for (name, found) in [
        ("readrandom", 500),
        ("readmissing", 0),
        ("multireadrandom", 500),
        ("readasync", 500),
        ("seekrandom", 500),
    ] {
        let outcome = run(&map, name);
        assert_eq!((outcome.operations, outcome.found), (500, found), "{name}");
    }
    let near =
        run_with(&map, &Plan { multiread_stride: 1, ..plan() }, "multireadrandom", Duration::from_nanos(100));
    assert_eq!(near.found, 500);
    for name in ["readseq", "readreverse"] {
        let outcome = run(&map, name);
        assert_eq!((outcome.operations, outcome.bytes), (500, 500 * 116), "{name}");
    }
    // Not more than there is.
    let all =
        run_with(&map, &Plan { reads: 10_000, threads: 2, ..plan() }, "readseq", Duration::from_nanos(100));
    assert_eq!(all.operations, 2000);
}

#[test]
fn deletes_delete_and_a_seed_repeats_a_run() {
    let (one, two, other) = (Map::default(), Map::default(), Map::default());
    for (map, seed) in [(&one, 1), (&two, 1), (&other, 2)] {
        let plan = Plan { seed, ..plan() };
        run_with(map, &plan, "fillrandom", Duration::from_nanos(1));
        run_with(map, &plan, "deleterandom", Duration::from_nanos(1));
    }
    assert_eq!(*one.entries(), *two.entries());
    assert_ne!(*one.entries(), *other.entries());
    assert!(one.entries().len() < 400, "{}", one.entries().len());
}

/// One thread or several: each key goes once.
#[test]
fn single_deletes_take_each_key_once() {
    let (map, plan) = (Map::default(), Plan { threads: 3, ..plan() });
    run_with(&map, &plan, "filluniquerandom", Duration::from_nanos(1));
    assert_eq!(map.entries().len() as u64, plan.num);
    let outcome = run_with(&map, &plan, "singledelete", Duration::from_nanos(1));
    assert_eq!((outcome.operations, map.entries().len()), (plan.num, 0));
}

/// As many as were put in first stay, of each thread those that it put last.
#[test]
fn a_queue_stays_as_long_as_it_was() {
    let (map, plan) = (Map::default(), Plan { threads: 3, reads: 700, ..plan() });
    let outcome = run_with(&map, &plan, "queue", Duration::from_nanos(1));
    assert_eq!((outcome.operations, outcome.found), (700, 700));
    assert_eq!(map.entries().len() as u64, plan.num);
    let map = Map::default();
    let outcome = run_with(&map, &Plan { threads: 1, ..plan }, "seekdeleted", Duration::from_nanos(1));
    assert_eq!((outcome.operations, outcome.found, map.entries().len()), (700, 0, 0));
}

/// Each merge adds one.
#[test]
fn merges_add_up() {
    let (map, plan) = (Map::default(), Plan { threads: 3, ..plan() });
    run_with(&map, &plan, "mergerandom", Duration::from_nanos(1));
    let sum: u64 =
        map.entries().values().map(|value| u64::from_le_bytes(value[..].try_into().unwrap())).sum();
    assert_eq!(sum, plan.num);
}

/// Numbers are read as merges made them, and a wrong sum is an error.
#[test]
fn merged_numbers_are_read_and_checked() {
    let zipfian = Some(Distribution::Zipfian { exponent: 0.9 });
    let (map, plan) = (Map::default(), Plan { threads: 3, distribution: zipfian, ..plan() });
    run_with(&map, &plan, "mergerandom", Duration::from_nanos(1));
    let keys = map.entries().len() as u64;
    let checked = run_with(&map, &plan, "checkmerged", Duration::from_nanos(1));
    assert_eq!((checked.operations, checked.found), (keys, keys));
    let read = run_with(&map, &plan, "getmerged", Duration::from_nanos(1));
    // Zipf's keys: a half of all is merged into, and three of four reads find one.
    assert!(read.operations == 500 && (320..450).contains(&read.found), "{}", read.found);
    map.entries().pop_last();
    let shared = Shared::new(plan.threads);
    let wrong = work(&plan, named("checkmerged")).remove(0).run(&map, &shared, &|| Duration::from_secs(1));
    assert!(
        wrong.errors == 1 && wrong.first_error.as_ref().unwrap().contains("1000 merges add up"),
        "{wrong:?}"
    );
}

#[test]
fn ranges_are_deleted_apart() {
    let (map, plan) = (Map::default(), Plan { ranges: 50, range_keys: 4, ..plan() });
    run_with(&map, &plan, "fillseq", Duration::from_nanos(1));
    let outcome = run_with(&map, &plan, "deleterange", Duration::from_nanos(1));
    // A range of four begins at each twentieth key.
    assert_eq!((outcome.operations, map.entries().len()), (50, 800));
    let key = |number: u64| {
        let mut key = Vec::new();
        plan.key_encoding().encode(number, &mut key);
        key
    };
    assert!(!map.entries().contains_key(&key(23)) && map.entries().contains_key(&key(24)));
    // The ranges of 5 of 500 operations, of keys that are there or not.
    let outcome = run_with(&map, &plan, "deleterangeget", Duration::from_nanos(1));
    assert!(outcome.operations == 500 && (350..450).contains(&outcome.found), "{}", outcome.found);
    assert!((780..800).contains(&map.entries().len()), "{}", map.entries().len());
}

#[test]
fn values_that_end_large_ones_and_tables_are_written() {
    let map = Map::default();
    assert_eq!(run(&map, "fillttl").operations, 1000);
    map.entries().clear();
    let outcome = run(&map, "ingest");
    assert_eq!((outcome.operations, outcome.bytes, map.entries().len()), (1000, 116_000, 1000));
    for (name, bytes) in [("fill100K", 100_000), ("fillbig", 1 << 20)] {
        map.entries().clear();
        let outcome = run_with(&map, &Plan { num: 20_000, ..plan() }, name, Duration::from_nanos(1));
        assert_eq!((outcome.operations, outcome.bytes), (20, 20 * (bytes + 16)), "{name}");
        assert!(map.entries().values().all(|value| value.len() as u64 == bytes));
    }
}

#[test]
fn a_benchmark_that_comes_twice_draws_other_keys() {
    let (first, second) = (Map::default(), Map::default());
    for (map, step) in [(&first, 0), (&second, 1)] {
        run_with(map, &Plan { step, ..plan() }, "fillrandom", Duration::from_nanos(1));
    }
    let (first, second) = (first.entries(), second.entries());
    let both = first.keys().filter(|key| second.contains_key(*key)).count();
    // 0.63 of the keys are in one, 0.63 × 0.63 in both.
    assert!((350..450).contains(&both), "{both} of {} and {}", first.len(), second.len());
}

#[test]
fn mixed_benchmarks_read_and_write_what_they_say() {
    for (name, least_found) in [
        ("ycsb-a", 100),
        ("ycsb-b", 400),
        ("ycsb-c", 500),
        ("ycsb-d", 400),
        ("ycsb-e", 400),
        ("ycsb-f", 500),
        ("mixgraph", 350),
    ] {
        let map = Map::default();
        run(&map, "filluniquerandom");
        let outcome = run(&map, name);
        assert!(
            outcome.operations == 500 && (least_found..=500).contains(&outcome.found),
            "{name}: {outcome:?}"
        );
        // D and E insert, one in twenty; the others write existing keys.
        let keys = map.entries().len();
        assert_eq!(keys > 1000, ["ycsb-d", "ycsb-e"].contains(&name), "{name}: {keys} keys");
    }
    let map = Map::default();
    run(&map, "filluniquerandom");
    run_with(&map, &Plan { reads: 5000, ..plan() }, "deletescan", Duration::from_nanos(100));
    // Deletes and writes balance at 0.3 / 0.8 of the keys.
    assert!((300..450).contains(&map.entries().len()), "{}", map.entries().len());
}

#[test]
fn a_distribution_takes_the_place_of_the_papers() {
    let map = Map::default();
    run(&map, "filluniquerandom");
    let before = map.entries().clone();
    let changed = |plan: &Plan| {
        map.entries().clone_from(&before);
        run_with(&map, &Plan { reads: 4000, ..plan.clone() }, "ycsb-a", Duration::from_nanos(100));
        map.entries().iter().filter(|(key, value)| before[*key] != **value).count()
    };
    // 2,000 updates of 1,000 keys: 1 − e^−2 of the keys when uniform, far fewer when a few are
    // popular.
    let (skewed, uniform) =
        (changed(&plan()), changed(&Plan { distribution: Some(Distribution::Uniform), ..plan() }));
    assert!(skewed < 650 && (800..930).contains(&uniform), "{skewed} {uniform}");
}

#[test]
fn fast_calls_are_sampled_and_slow_ones_all_measured() {
    let map = Map::default();
    let fast = run_with(&map, &Plan { threads: 1, ..plan() }, "fillseq", Duration::from_nanos(100));
    // The first 64, and every eighth of the rest.
    assert_eq!((fast.sampled_every, fast.latencies.count()), (8, 64 + (1000 - 64) / 8));
    let slow = run_with(&map, &Plan { threads: 1, ..plan() }, "fillseq", Duration::from_micros(100));
    assert_eq!((slow.sampled_every, slow.latencies.count()), (1, 1000));
    let said = run_with(
        &map,
        &Plan { threads: 1, sample_every: Some(100), ..plan() },
        "fillseq",
        Duration::from_micros(100),
    );
    assert_eq!((said.sampled_every, said.latencies.count()), (100, 10));
}

#[test]
fn a_stall_between_two_samples_is_the_maximum() {
    let map = Map::default();
    let (shared, readings) = (Shared::new(1), Cell::new(0u32));
    let now = Cell::new(Duration::from_secs(1));
    let clock = || {
        readings.set(readings.get() + 1);
        // The beginning of a sample in the middle comes late: a call before it, itself no sample,
        // has stalled.
        now.set(
            now.get()
                + if readings.get() == 182 { Duration::from_secs(3) } else { Duration::from_nanos(100) },
        );
        now.get()
    };
    let plan = Plan { threads: 1, ..plan() };
    let outcome = work(&plan, named("fillseq")).remove(0).run(&map, &shared, &clock);
    assert!(outcome.latencies.summary().max >= Duration::from_secs(2), "{:?}", outcome.latencies);
    assert!(outcome.latencies.summary().p99 < Duration::from_micros(1), "{:?}", outcome.latencies);
}

#[test]
fn a_duration_ends_what_counts_would_not() {
    let map = Map::default();
    run(&map, "fillseq");
    let plan = Plan { duration: Some(Duration::from_millis(1)), threads: 1, ..plan() };
    let outcome = run_with(&map, &plan, "readrandom", Duration::from_nanos(10));
    assert!(outcome.operations > 10_000, "{}", outcome.operations);
    let stopped = Shared::new(1);
    stopped.stop();
    let outcome = work(&plan, named("readrandom")).remove(0).run(&map, &stopped, &|| Duration::from_secs(1));
    assert_eq!(outcome.operations, 1);
}

#[test]
fn the_writer_beside_writes_once_at_least_and_no_faster_than_its_rate() {
    let map = Map::default();
    for (looks, rate) in [(0, None), (2_000, Some(1000))] {
        let plan = Plan { threads: 1, beside_rate: rate, sample_every: Some(1), ..plan() };
        let (shared, now) = (Shared::new(1), Cell::new(Duration::ZERO));
        // A hundredth of a millisecond passes at each reading, and the reader ends after so many.
        let clock = || {
            now.set(now.get() + Duration::from_micros(10));
            if now.get() >= Duration::from_micros(10) * looks && !shared.is_done() {
                shared.ended();
            }
            now.get()
        };
        let writer = work(&plan, named("readwhilewriting")).pop().unwrap();
        assert!(writer.is_background());
        let outcome = writer.run(&map, &shared, &clock);
        // 20 ms at one a millisecond, and what it may run ahead.
        let expected = if rate.is_some() { 18..=22 } else { 1..=1 };
        assert!(expected.contains(&outcome.operations), "{} writes", outcome.operations);
        assert!(
            outcome.latencies.summary().max < Duration::from_micros(500),
            "waiting is no latency: {:?}",
            outcome.latencies.summary()
        );
    }
}

#[test]
fn plans_that_cannot_be_are_refused() {
    for (plan, word) in [
        (Plan { num: 0, ..plan() }, "num"),
        (Plan { reads: 0, ..plan() }, "reads"),
        (Plan { threads: 0, ..plan() }, "threads"),
        (Plan { threads: 100_000, ..plan() }, "threads"),
        (Plan { batch_size: 0, ..plan() }, "batch-size"),
        (Plan { batch_size: 100_000, value_bytes: 1 << 20, ..plan() }, "64 MiB"),
        (Plan { value_bytes: 1 << 40, batch_size: 1, ..plan() }, "value-size"),
        (Plan { key_bytes: 0, ..plan() }, "key-size"),
        (Plan { key_bytes: 1, ..plan() }, "too short"),
        (Plan { compression_ratio: 1.5, ..plan() }, "compression-ratio"),
        (Plan { compression_ratio: f64::NAN, ..plan() }, "compression-ratio"),
        (Plan { distribution: Some(Distribution::Zipfian { exponent: 0.0 }), ..plan() }, "exponent"),
        (Plan { ranges: 0, ..plan() }, "ranges"),
        (Plan { range_keys: 0, ..plan() }, "range-keys"),
        (Plan { beside_rate: Some(0), ..plan() }, "beside-rate"),
        (Plan { sample_every: Some(0), ..plan() }, "sample-every"),
        (Plan { duration: Some(Duration::ZERO), ..plan() }, "duration"),
    ] {
        let error = plan.check().unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
    assert!("fillsequence".parse::<Benchmark>().unwrap_err().to_string().contains("fillseq, fillrandom"));
}

#[test]
fn an_error_ends_the_thread_and_is_told() {
    let (shared, clock) = (Shared::new(1), || Duration::from_secs(1));
    let mut meter = Meter::new(&plan(), &clock, &shared, 0);
    let error = |retryable| Err(crate::TargetError { message: "the disk is gone".to_owned(), retryable });
    let begun = meter.begin();
    assert!(meter.end(begun, 1, error(true)), "what may pass does not end the thread");
    let begun = meter.begin();
    assert!(!meter.end(begun, 1, error(false)));
    let outcome = meter.finish();
    assert_eq!(
        (outcome.operations, outcome.errors, outcome.first_error.as_deref()),
        (0, 2, Some("the disk is gone"))
    );
}
