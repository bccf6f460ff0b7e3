use super::*;
use crate::random;

const PUBLISHED: ValueSizes =
    ValueSizes::Pareto { location: 0.0, shape: 0.2615, scale: 25.45, least: 10, most: 1024 };

#[test]
fn fixed_is_fixed() {
    let mut random = random(1, 0);
    assert!((0..10).all(|_| ValueSizes::Fixed(100).draw(&mut random) == 100));
}

#[test]
fn pareto_has_its_quantiles() {
    let sizes =
        ValueSizes::Pareto { location: 0.0, shape: 0.2615, scale: 2545.0, least: 0, most: VALUE_BYTES_MAX };
    let mut random = random(2, 0);
    let mut drawn: Vec<usize> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
    drawn.sort_unstable();
    for percent in [10u32, 50, 90, 99] {
        let expected = 2545.0 * ((1.0 - f64::from(percent) / 100.0).powf(-0.2615) - 1.0) / 0.2615;
        let found = drawn[1000 * percent as usize] as f64;
        assert!((found / expected - 1.0).abs() < 0.05, "{percent} %: {found}, expected {expected:.0}");
    }
}

#[test]
fn shape_zero_is_exponential() {
    let sizes =
        ValueSizes::Pareto { location: 0.0, shape: 0.0, scale: 10_000.0, least: 0, most: VALUE_BYTES_MAX };
    let mut random = random(3, 0);
    let mean = (0..100_000).map(|_| sizes.draw(&mut random) as f64).sum::<f64>() / 100_000.0;
    assert!((mean / 10_000.0 - 1.0).abs() < 0.03, "{mean}");
}

#[test]
fn lengths_keep_their_bounds_and_the_bound_is_no_mode() {
    let mut random = random(4, 0);
    let drawn: Vec<usize> = (0..100_000).map(|_| PUBLISHED.draw(&mut random)).collect();
    assert!(drawn.iter().all(|bytes| (10..=1024).contains(bytes)));
    assert!(drawn.iter().filter(|bytes| **bytes == 1024).count() < 50);
    // Parameters that never fit still end.
    let hopeless = ValueSizes::Pareto { location: 1e9, shape: 0.0, scale: 1.0, least: 0, most: 100 };
    assert_eq!(hopeless.draw(&mut random), 100);
    let odd =
        ValueSizes::Pareto { location: f64::NAN, shape: f64::NAN, scale: f64::NAN, least: 0, most: 100 };
    assert!(odd.draw(&mut random) <= 100);
}

#[test]
fn values_have_their_share_of_random_bytes() {
    for ratio in [0.0, 0.25, 0.5, 1.0] {
        let mut random = random(5, 0);
        let values = Values::new(ValueSizes::Fixed(4096), ratio, &mut random);
        let (mut zeros, mut bytes) = (0usize, 0usize);
        for _ in 0..1000 {
            let value = values.draw(&mut random);
            assert_eq!(value.len(), 4096);
            zeros += value.iter().filter(|byte| **byte == 0).count();
            bytes += value.len();
        }
        // A random byte is zero once in 256.
        let random_share = (1.0 - zeros as f64 / bytes as f64) * 256.0 / 255.0;
        assert!((random_share - ratio).abs() < 0.01, "{ratio}: {random_share}");
    }
}

#[test]
fn a_seed_repeats_its_values() {
    let make = || {
        let mut random = random(6, 0);
        let values = Values::new(PUBLISHED, 0.5, &mut random);
        (0..100).map(|_| values.draw(&mut random).to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(make(), make());
}
