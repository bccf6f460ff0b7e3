//! Medians, and ratios by rounds.
//!
//! Rounds are interleaved, each engine once in each, so that what the machine does besides meets
//! all of them alike. A ratio is therefore taken within a round, and the median of the rounds'
//! ratios is told with their least and greatest.

use rand::{Rng, SeedableRng, rngs::SmallRng};

/// A median with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; the mean of the two when there are two.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
    /// Of ratios of 5 rounds or more: where the median lies with 95 %.
    pub interval: Option<(f64, f64)>,
}

/// The median and spread of `values`; `None` when there are none.
pub fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    Some(Spread { median: median(&sorted), least, most, interval: None })
}

/// The median of values that are sorted; there is one at least.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// The spread of the ratios of those rounds that both have. `mine` and `theirs` are (round, value).
pub fn ratios(mine: &[(u32, f64)], theirs: &[(u32, f64)]) -> Option<Spread> {
    let of = |(round, value): &(u32, f64)| {
        let other = theirs.iter().find(|(other, _)| other == round)?;
        (other.1 > 0.0).then(|| value / other.1)
    };
    let ratios: Vec<f64> = mine.iter().filter_map(of).collect();
    spread_with_interval(&ratios)
}

/// The median of ratios, their spread, and where the median lies.
pub fn spread_with_interval(ratios: &[f64]) -> Option<Spread> {
    Some(Spread { interval: bootstrap(ratios), ..spread(ratios)? })
}

/// The interval in which the median of the ratios lies with 95 %, by 2,000 resamples with a fixed
/// seed; `None` below 5 rounds, where it would say nothing.
fn bootstrap(ratios: &[f64]) -> Option<(f64, f64)> {
    const RESAMPLES: usize = 2000;
    if ratios.len() < 5 {
        return None;
    }
    let mut random = SmallRng::seed_from_u64(1);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut drawn: Vec<f64> =
                ratios.iter().map(|_| ratios[random.random_range(0..ratios.len())]).collect();
            drawn.sort_by(f64::total_cmp);
            median(&drawn)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Some((medians[RESAMPLES / 40], medians[RESAMPLES - RESAMPLES / 40 - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[f64::NAN]), None);
        assert_eq!(
            spread(&[3.0, 1.0, 2.0]),
            Some(Spread { median: 2.0, least: 1.0, most: 3.0, interval: None })
        );
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was twice as slow in round 2 for both: the ratio does not move.
        let (mine, theirs) = ([(1, 400.0), (2, 200.0), (3, 500.0)], [(2, 100.0), (1, 200.0), (4, 1.0)]);
        assert_eq!(
            ratios(&mine, &theirs),
            Some(Spread { median: 2.0, least: 2.0, most: 2.0, interval: None })
        );
        assert_eq!(ratios(&mine, &[(1, 0.0)]), None);
        assert_eq!(ratios(&mine, &[(9, 1.0)]), None);
    }

    #[test]
    fn the_interval_holds_the_median_and_narrows_with_the_rounds() {
        assert_eq!(bootstrap(&[1.0; 4]), None);
        let noisy =
            |rounds: u32| (0..rounds).map(|round| 2.0 + f64::from(round * 7 % 11) / 10.0).collect::<Vec<_>>();
        let (few, many) = (noisy(11), noisy(110));
        let widths = [few, many].map(|ratios| {
            let (low, high) = bootstrap(&ratios).unwrap();
            assert!(low <= 2.5 && 2.5 <= high, "{low} {high}");
            high - low
        });
        assert!(widths[1] < widths[0], "{widths:?}");
    }
}
