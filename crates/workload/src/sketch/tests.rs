use rand::Rng;

use super::*;
use crate::random;

#[test]
#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn distinct_items_are_counted_within_the_error() {
    for count in [0_u64, 1, 10, 1000, 20_000, 300_000] {
        let mut random = random(1, count);
        let mut distinct = Distinct::default();
        for _ in 0..count {
            let hash = random.random();
            distinct.add(hash);
            distinct.add(hash);
        }
        let far = (distinct.estimate() - count as f64).abs();
        assert!(far <= 4.0 * Distinct::ERROR * count as f64 + 0.5, "{count}: {}", distinct.estimate());
    }
}

#[test]
fn sets_are_merged() {
    let (mut first, mut second, mut both) = (Distinct::default(), Distinct::default(), Distinct::default());
    let mut random = random(2, 0);
    for number in 0..10_000 {
        let hash = random.random();
        let part = if number % 3 > 0 { &mut first } else { &mut second };
        part.add(hash);
        both.add(hash);
    }
    first.merge(&second);
    assert!((first.estimate() - both.estimate()).abs() < 1e-6);
}

#[test]
fn frequent_items_are_found_whatever_surrounds_them() {
    let (mut frequent, mut random) = (Frequent::new(64), random(3, 0));
    for number in 0..60_000_u64 {
        let item = if number % 10 == 0 { number / 10 % 3 } else { random.random_range(100..1_000_000) };
        frequent.add(item.wrapping_mul(0x9e37_79b9_7f4a_7c15), &item.to_be_bytes());
    }
    let top = frequent.top(3);
    for heavy in &top {
        assert!(heavy.item[..7] == [0; 7] && heavy.item[7] < 3, "{heavy:?}");
        assert!(heavy.count >= 2000 && heavy.count - heavy.error <= 2000, "{heavy:?}");
    }
}

#[test]
fn few_items_are_counted_exactly() {
    let mut frequent = Frequent::new(8);
    for item in 0..5_u64 {
        (0..=item).for_each(|_| frequent.add(item, &[u8::try_from(item).unwrap()]));
    }
    let counts: Vec<_> =
        frequent.top(9).iter().map(|heavy| (heavy.item[0], heavy.count, heavy.error)).collect();
    assert_eq!(counts, [(4, 5, 0), (3, 4, 0), (2, 3, 0), (1, 2, 0), (0, 1, 0)]);
}

#[test]
fn counts_are_exact_where_numbers_are_small() {
    let mut counts = Counts::default();
    [3, 1, 4, 1, 5, 9, 2, 6].into_iter().for_each(|number| counts.add(number));
    assert_eq!((counts.count(), counts.sum(), counts.least(), counts.most()), (8, 31, 1, 9));
    assert_eq!((counts.percentile(50.0), counts.percentile(100.0), counts.percentile(0.0)), (3, 9, 1));
    assert!((counts.deviation() - 2.57).abs() < 0.01 && (counts.share_up_to(2) - 0.375).abs() < 1e-9);
    let mut large = Counts::default();
    large.add_many(1_000_000, 10);
    large.merge(&counts);
    assert_eq!((large.count(), large.most(), large.sum()), (18, 1_000_000, 10_000_031));
    let at = large.percentile(99.0);
    assert!((984_375..=1_000_000).contains(&at), "{at}");
}

#[test]
fn distributions_differ_by_their_greatest_distance() {
    let counts = |numbers: &[u64]| {
        let mut counts = Counts::default();
        numbers.iter().for_each(|number| counts.add(*number));
        counts
    };
    assert!(counts(&[1, 2, 3, 4]).distance(&counts(&[1, 1, 2, 2, 3, 3, 4, 4])) < 1e-12);
    assert!((counts(&[1, 2]).distance(&counts(&[1, 9])) - 0.5).abs() < 1e-12);
    assert!((counts(&[1]).distance(&counts(&[2])) - 1.0).abs() < 1e-12);
    assert!((counts(&[]).distance(&counts(&[2])) - 1.0).abs() < 1e-12);
}

#[test]
fn a_series_widens_and_loses_nothing() {
    let mut series = Series::new(10, 4);
    (0..1000).for_each(|time| series.add(time));
    assert_eq!((series.slot_ns(), series.slots()), (320, &[320, 320, 320, 40][..]));
    let rates: Vec<_> = series.rates().collect();
    assert!(rates.len() == 3 && rates.iter().all(|(_, rate)| (rate - 1e9).abs() < 1.0));
}

#[test]
fn correlation_is_one_of_lines_and_none_of_constants() {
    let line = (0..10).map(|number| (f64::from(number), 3.0 - 2.0 * f64::from(number)));
    assert!((correlation(line) + 1.0).abs() < 1e-9);
    assert!(correlation((0..10).map(|number| (f64::from(number), 1.0))).abs() < 1e-12);
}
