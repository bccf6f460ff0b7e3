//! Times at which more is asked for than the rate says.

use crate::model::{Bursts, Rate};

/// A burst has so many times the rate between bursts.
const FACTOR_MIN: f64 = 1.5;
/// And so many standard deviations of chance more.
const DEVIATIONS_MIN: f64 = 5.0;
/// Bursts that must be seen.
const SEEN_MIN: usize = 3;

/// Fits bursts to (seconds, operations in a second), one after the other at equal distances. `None`
/// where there are too few.
pub(super) fn fit_bursts(points: &[(f64, f64)], rate: Option<Rate>) -> Option<Bursts> {
    let [(first, _), (second, _), ..] = points else { return None };
    let seconds = second - first;
    let mean = points.iter().map(|(_, rate)| rate).sum::<f64>() / points.len() as f64;
    let expected = |time: f64| match rate {
        Some(Rate { a, b, c, d, .. }) => (a * (b * time + c).sin() + d).max(d / 100.0),
        None => mean,
    };
    let mut ratios: Vec<f64> = points.iter().map(|(time, rate)| rate / expected(*time).max(1e-9)).collect();
    let ordered = {
        let mut ordered = ratios.clone();
        ordered.sort_by(f64::total_cmp);
        ordered
    };
    // Between bursts, as most of the time.
    let usual = ordered[ordered.len() / 2].max(1e-9);
    ratios.iter_mut().for_each(|ratio| *ratio /= usual);
    let is_burst: Vec<bool> = ratios
        .iter()
        .zip(points)
        .map(|(ratio, (time, _))| {
            let usually = (expected(*time) * usual * seconds).max(1.0);
            *ratio >= FACTOR_MIN && (ratio - 1.0) * usually >= DEVIATIONS_MIN * usually.sqrt()
        })
        .collect();
    let seen =
        is_burst.iter().enumerate().filter(|(at, burst)| **burst && (*at == 0 || !is_burst[at - 1])).count();
    let mean_of = |wanted: bool| {
        let (mut sum, mut count) = (0.0, 0.0);
        for (ratio, burst) in ratios.iter().zip(&is_burst) {
            if *burst == wanted {
                (sum, count) = (sum + ratio, count + 1.0);
            }
        }
        (sum / f64::max(count, 1.0), count)
    };
    let ((high, bursts), (low, between)) = (mean_of(true), mean_of(false));
    if seen < SEEN_MIN || between < bursts {
        return None;
    }
    let of_each = |slots: f64| slots * seconds / seen as f64;
    let factor = (high / low.max(1e-9)).clamp(1.0, 1e6);
    Some(Bursts { factor, seconds: of_each(bursts), every: of_each(bursts + between) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_found_with_their_length_and_not_in_chance() {
        let rates = |burst: f64| -> Vec<(f64, f64)> {
            let rate = |slot: u32| {
                let chance = f64::from(slot.wrapping_mul(2_654_435_761) >> 24) / 256.0 * 40.0;
                if slot % 20 < 4 { burst * 500.0 + chance } else { 500.0 + chance }
            };
            (0..400).map(|slot| (f64::from(slot) * 0.5 + 0.25, rate(slot))).collect()
        };
        let Bursts { factor, seconds, every } = fit_bursts(&rates(4.0), None).unwrap();
        assert!((factor - 4.0).abs() < 0.2 && (seconds - 2.0).abs() < 1e-6 && (every - 10.0).abs() < 1e-6);
        assert_eq!(fit_bursts(&rates(1.0), None), None);
        assert_eq!(fit_bursts(&[], None), None);
    }
}
