use rand::Rng;

use super::*;
use crate::random;
use crate::sketch::Counts;

fn drawn(sizes: &Sizes, seed: u64, count: usize) -> Counts {
    let (mut random, mut counts) = (random(seed, 0), Counts::default());
    (0..count).for_each(|_| counts.add(sizes.draw(&mut random)));
    counts
}

#[test]
fn each_family_is_found_again() {
    let most = 100_000;
    for sizes in [
        Sizes::Pareto { location: 9.0, scale: 25.45, shape: 0.2615, most },
        Sizes::Pareto { location: 0.0, scale: 14.236, shape: 0.9, most: 1 << 40 },
        Sizes::Lognormal { location: 0.0, mean: 4.0, deviation: 0.6, most },
        Sizes::Weibull { location: 4.0, scale: 300.0, shape: 2.5, most },
    ] {
        let counts = drawn(&sizes, 1, 200_000);
        let fitted = fit_sizes(&counts);
        assert_eq!(fitted.family, sizes.family(), "{fitted:?}");
        assert!(fitted.distance < FAR, "{fitted:?}");
        assert!(fitted.sizes.distance(&drawn(&sizes, 2, 200_000)) < 2.0 * FAR, "{fitted:?}");
    }
}

#[test]
fn two_kinds_of_sizes_are_told_apart() {
    let sizes =
        Sizes::Mixture { location: 3.0, share: 0.7, first: [3.0, 0.3], second: [6.0, 0.2], most: 100_000 };
    let counts = drawn(&sizes, 1, 100_000);
    let fitted = fit_sizes(&counts);
    assert_eq!(fitted.family, Family::Mixture, "{fitted:?}");
    assert!(fitted.distance < FAR && fitted.sizes.distance(&drawn(&sizes, 2, 100_000)) < 2.0 * FAR);
    // Two single sizes are two as well.
    let mut counts = Counts::default();
    counts.add_many(48, 600);
    counts.add_many(90, 400);
    let fitted = fit_sizes(&counts);
    assert!(fitted.distance < FAR, "{fitted:?}");
    assert!(drawn(&fitted.sizes, 3, 10_000).iter().all(|(size, _)| [48, 90].contains(&size)), "{fitted:?}");
}

#[test]
fn what_no_family_fits_keeps_its_quantiles() {
    let mut counts = Counts::default();
    counts.add_many(10, 500);
    counts.add_many(4000, 300);
    counts.add_many(90_000, 200);
    let fitted = fit_sizes(&counts);
    assert_eq!((fitted.family, fitted.tried.len()), (Family::Quantiles, 4));
    assert!(fitted.distance < 0.02, "{fitted:?}");
    let again = drawn(&fitted.sizes, 3, 100_000);
    assert!(again.distance(&counts) < 0.01, "{again:?}");
    // Many distinct ones are made few, and stay near.
    let (mut random, mut wide) = (random(4, 0), Counts::default());
    (0..50_000).for_each(|_| {
        let half = if random.random_bool(0.5) { 0 } else { 2000 };
        wide.add(half + random.random_range(0..1000_u64) * random.random_range(0..2));
    });
    let fitted = fit_sizes(&wide);
    assert_eq!(fitted.family, Family::Quantiles);
    assert!(fitted.distance < 0.02 && drawn(&fitted.sizes, 5, 100_000).distance(&wide) < 0.02, "{fitted:?}");
}

#[test]
fn one_size_is_constant_and_no_size_is_zero() {
    let mut counts = Counts::default();
    assert_eq!(fit_sizes(&counts).sizes, Sizes::Constant(0));
    counts.add_many(100, 7);
    let fitted = fit_sizes(&counts);
    assert_eq!((fitted.sizes.quantile(0.5), fitted.family), (100, Family::Constant));
}

#[test]
fn quantiles_undo_shares() {
    for sizes in [
        Sizes::Pareto { location: 0.0, scale: 20.0, shape: 0.3, most: 10_000 },
        Sizes::Pareto { location: 0.0, scale: 20.0, shape: -0.2, most: 10_000 },
        Sizes::Lognormal { location: 3.0, mean: 3.0, deviation: 1.0, most: 10_000 },
        Sizes::Weibull { location: 0.0, scale: 50.0, shape: 0.7, most: 10_000 },
        Sizes::Quantiles(vec![(3, 0.5), (9, 1.0)]),
    ] {
        for percent in 1..100 {
            let share = f64::from(percent) / 100.0;
            let number = sizes.quantile(share);
            assert!(sizes.share_up_to(number) >= share - 1e-6, "{sizes:?} {share}");
            assert!(number == 0 || sizes.share_up_to(number - 1) <= share + 1e-6, "{sizes:?} {share}");
        }
    }
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn ranks_are_fitted_by_their_curve() {
    for curve in
        [Curve::TwoTermExponential([14.18, -2.917, 0.0164, -0.08082]), Curve::TwoTermPower([0.5, -0.9, 0.01])]
    {
        let values: Vec<f64> = (1..=60).map(|rank| curve.at(f64::from(rank))).collect();
        let fitted = fit_ranks(&values);
        assert_eq!(fitted[0].0.name(), curve.name(), "{fitted:?}");
        assert!(fitted[0].1 < 0.01 * values[0], "{fitted:?}");
    }
    assert!(fit_ranks(&[1.0]).is_empty());
}

#[test]
fn a_sine_is_found_in_noise() {
    let (mut random, truth) = (random(6, 0), |t: f64| 300.0 * (0.0105 * t + 1.0).sin() + 1000.0);
    let points: Vec<(f64, f64)> = (0..600)
        .map(|second| {
            let t = f64::from(second) + 0.5;
            (t, truth(t) + random.random_range(-100.0..100.0))
        })
        .collect();
    let sine = fit_sine(&points).unwrap();
    assert!((sine.a - 300.0).abs() < 15.0 && (sine.b - 0.0105).abs() < 0.0005, "{sine:?}");
    assert!((sine.d - 1000.0).abs() < 15.0 && sine.explained > 0.9, "{sine:?}");
    for t in [0.0, 150.0, 400.0] {
        assert!((sine.at(t) - truth(t)).abs() < 0.03 * 1000.0, "{sine:?}");
    }
    let flat: Vec<(f64, f64)> = (0..100).map(|second| (f64::from(second), 7.0)).collect();
    assert_eq!((fit_sine(&flat), fit_sine(&points[..5])), (None, None));
}
