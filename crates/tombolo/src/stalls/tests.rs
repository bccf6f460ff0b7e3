use super::*;

const NONE: Pressure = Pressure { filled: 0, memtables_max: 4, runs: 0 };

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

/// A job that begins and ends, alone.
fn job(stalls: &Stalls, from: u64, to: u64, runs: u64) {
    stalls.compaction_begins(at(from));
    stalls.compaction_ended(runs, runs * 100, at(to));
}

/// Flushes 30 MB in a second, to runs of 3 MB, of which compaction takes four in a second.
fn measured() -> Stalls {
    let stalls = Stalls::default();
    for round in 0..10 {
        stalls.flushed(30_000_000, 10, true, SECOND);
        job(&stalls, round, round + 1, 4);
    }
    stalls
}

/// The rate at which writers are let through.
fn rate(stalls: &Stalls, pressure: Pressure) -> u64 {
    stalls.slowed(&pressure).map_or(u64::MAX, |slowed| slowed.bytes_per_second)
}

fn by_memory(stalls: &Stalls, filled: u64) -> u64 {
    rate(stalls, Pressure { filled, ..NONE })
}

fn by_runs(stalls: &Stalls, runs: usize) -> u64 {
    rate(stalls, Pressure { runs, ..NONE })
}

fn is_about(rate: u64, wanted: u64) -> bool {
    rate.abs_diff(wanted) < wanted / 100
}

#[test]
fn writers_are_slowed_in_proportion_to_the_measured_rates() {
    let stalls = measured();
    assert_eq!(by_memory(&stalls, 2000), u64::MAX, "half full is not full");
    assert!(is_about(by_memory(&stalls, 3000), 40_000_000), "{}", by_memory(&stalls, 3000));
    assert!(is_about(by_memory(&stalls, 3333), 30_000_000), "in balance: {}", by_memory(&stalls, 3333));
    assert!(is_about(by_memory(&stalls, 4000), 20_000_000), "{}", by_memory(&stalls, 4000));
    assert_eq!(by_memory(&stalls, 4000), by_memory(&stalls, 100_000));
    assert_eq!(by_runs(&stalls, 12), u64::MAX);
    assert!(is_about(by_runs(&stalls, 28), 12_000_000), "in balance: {}", by_runs(&stalls, 28));
    assert!(is_about(by_runs(&stalls, 10_000), 8_000_000), "never to a stop: {}", by_runs(&stalls, 10_000));
    let both = stalls.slowed(&Pressure { filled: 3333, runs: 28, ..NONE }).unwrap();
    assert_eq!(both.reason, StallReason::Compaction, "the slower work decides");
    assert!(is_about(u64::try_from(both.time(12_000_000).as_nanos()).unwrap(), 1_000_000_000), "{both:?}");
}

/// More pressure never means less delay, and each step is small.
#[test]
fn the_delay_rises_smoothly() {
    let stalls = measured();
    let delay = |pressure| stalls.slowed(&pressure).map_or(Duration::ZERO, |slowed| slowed.time(1_000_000));
    for delays in [
        (0..=400).map(|filled| delay(Pressure { filled: filled * 10, ..NONE })).collect::<Vec<_>>(),
        (0..40).map(|runs| delay(Pressure { runs, ..NONE })).collect(),
    ] {
        let most = *delays.last().unwrap();
        assert!(
            delays.is_sorted() && delays.windows(2).all(|pair| pair[1] - pair[0] <= most / 20),
            "{delays:?}"
        );
    }
}

/// What compaction does for deeper levels is time in which level 0 waits; what it does not do is no
/// time, and jobs side by side share theirs.
#[test]
fn level_0_is_measured_by_busy_time() {
    let stalls = Stalls::default();
    stalls.flushed(3_000_000, 1, true, SECOND);
    for round in 0..40 {
        let begin = round * 1000;
        job(&stalls, begin, begin + 2, 0);
        job(&stalls, begin + 500, begin + 501, 4);
    }
    assert!(is_about(by_runs(&stalls, 28), 4_000_000), "{}", by_runs(&stalls, 28));
    for round in 0..40 {
        let begin = 50_000 + round * 10;
        stalls.compaction_begins(at(begin));
        stalls.compaction_begins(at(begin));
        stalls.compaction_ended(4, 400, at(begin + 4));
        stalls.compaction_ended(4, 400, at(begin + 4));
    }
    assert!((5_000_000..7_200_000).contains(&by_runs(&stalls, 28)), "{}", by_runs(&stalls, 28));
}

/// A moment in which nothing went on does not stop writers.
#[test]
fn a_bad_measurement_is_bounded_and_forgotten() {
    let stalls = measured();
    let before = by_memory(&stalls, 4000);
    stalls.flushed(30_000_000, 1, true, SECOND * 3600);
    assert!(by_memory(&stalls, 4000) > before / 2);
    for _ in 0..50 {
        stalls.flushed(1, 1, true, SECOND * 3600);
    }
    assert!(by_memory(&stalls, 4000) >= RATE_MIN / 2);
    for _ in 0..60 {
        stalls.flushed(30_000_000, 1, true, SECOND);
    }
    assert!(by_memory(&stalls, 4000) > before / 2, "{}", by_memory(&stalls, 4000));
}

#[test]
fn small_memtables_tell_nothing_of_the_rate() {
    let stalls = measured();
    let before = by_memory(&stalls, 4000);
    for _ in 0..100 {
        stalls.flushed(100, 1, false, SECOND);
    }
    assert_eq!(by_memory(&stalls, 4000), before);
}
