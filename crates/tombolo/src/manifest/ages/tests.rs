use super::*;

fn aged(sequence: u64, unix_seconds: u64) -> Aged {
    Aged { sequence, unix_seconds }
}

#[test]
fn only_what_is_old_enough_is_old() {
    let samples = [aged(10, 100), aged(20, 200), aged(30, 200), aged(40, 300)];
    let by = |seconds| written_by(&samples, seconds);
    assert_eq!((by(99), by(100), by(199)), (None, Some(10), Some(10)));
    assert_eq!((by(200), by(299), by(1000)), (Some(30), Some(30), Some(40)));
    assert_eq!(written_by(&[], 5), None);
}

#[test]
fn samples_stay_few_and_reach_far_back() {
    let mut samples = Vec::new();
    for at in 0..100_000 {
        add(&mut samples, aged(at, at * 10));
    }
    assert_eq!(samples.len(), SAMPLES_MAX);
    assert_eq!(samples[0], aged(0, 0));
    assert_eq!(samples[SAMPLES_MAX - 1].sequence, 99_999);
    // Half as old as the oldest, a tenth, and a hundredth: told to a fifth of its age.
    for age in [500_000, 100_000, 10_000] {
        let cut = written_by(&samples, 999_990 - age).unwrap() * 10;
        assert!(999_990 - cut <= age + age / 5 + 10, "{age}: {cut}");
    }
}
