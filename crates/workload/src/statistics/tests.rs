use super::*;

#[test]
fn percentiles_are_right_to_three_digits() {
    let mut latencies = Latencies::new();
    for micros in 1..=10_000 {
        latencies.record(Duration::from_micros(micros));
    }
    let summary = latencies.summary();
    assert_eq!(summary.count, 10_000);
    for (found, micros) in [
        (summary.p50, 5_000.0),
        (summary.p90, 9_000.0),
        (summary.p99, 9_900.0),
        (summary.p999, 9_990.0),
        (summary.max, 10_000.0),
    ] {
        let error = found.as_secs_f64() * 1e6 / micros - 1.0;
        assert!(error.abs() < 0.002, "{found:?}, expected {micros} µs");
    }
}

#[test]
fn merging_equals_counting_together() {
    let (mut left, mut right, mut both) = (Latencies::new(), Latencies::new(), Latencies::new());
    for nanos in 0..1000u64 {
        let latency = Duration::from_nanos(nanos * nanos);
        if nanos % 3 == 0 {
            left.record(latency);
        } else {
            right.record(latency);
        }
        both.record(latency);
    }
    left.merge(&right);
    assert_eq!(left.summary(), both.summary());
}

#[test]
fn empty_and_endless_are_no_trouble() {
    assert_eq!(Latencies::new().summary(), Summary::default());
    let mut latencies = Latencies::new();
    latencies.record(Duration::ZERO);
    latencies.record(Duration::MAX);
    assert_eq!(latencies.count(), 2);
    assert!(latencies.summary().max >= Duration::from_secs(100));
}
