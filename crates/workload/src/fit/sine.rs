//! A rate that rises and falls: `a·sin(b·t + c) + d`.

use std::f64::consts::TAU;

use super::least_squares;

/// A rate over time, in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sine {
    /// How far it rises above the mean.
    pub a: f64,
    /// Radians in a second.
    pub b: f64,
    /// Radians at time 0.
    pub c: f64,
    /// The mean.
    pub d: f64,
    /// The share of the variance that it explains, up to 1.
    pub explained: f64,
}

impl Sine {
    /// The rate at a time in seconds.
    #[must_use]
    pub fn at(&self, seconds: f64) -> f64 {
        self.a * (self.b * seconds + self.c).sin() + self.d
    }
}

/// Fits a sine to (seconds, rate). Frequencies are tried one after the other, each with the best
/// amplitude and phase, and the best is made better by least squares. `None` for fewer than eight
/// points, and for rates that do not change.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "numbers of points")]
pub fn fit_sine(points: &[(f64, f64)]) -> Option<Sine> {
    if points.len() < 8 {
        return None;
    }
    let count = points.len() as f64;
    let mean = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let variance = points.iter().map(|(_, y)| (y - mean).powi(2)).sum::<f64>() / count;
    if variance <= mean.abs() * 1e-9 {
        return None;
    }
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let span = (last - first) * count / (count - 1.0);
    // From half a period in the whole to a quarter of the points a period, a quarter of a period
    // apart; each by a linear fit of sine, cosine and mean.
    let tries = (2..(points.len()).min(2000)).map(|quarter| TAU * quarter as f64 / 4.0 / span);
    let scored = tries.filter_map(|b| {
        let found = linear(points, b, mean)?;
        Some((b, found, missed(points, b, found)))
    });
    let (b, (sine, cosine, level), _) = scored.min_by(|one, other| one.2.total_cmp(&other.2))?;
    let start = [(sine * sine + cosine * cosine).sqrt(), b, cosine.atan2(sine), level];
    let found = least_squares(&start, points, |p, t| p[0] * (p[1] * t + p[2]).sin() + p[3]);
    let (mut a, mut b, mut c, d) = (found[0], found[1], found[2], found[3]);
    if b < 0.0 {
        // sin(−x) = −sin(x).
        (a, b, c) = (-a, -b, -c);
    }
    if a < 0.0 {
        (a, c) = (-a, c + TAU / 2.0);
    }
    let fitted = Sine { a, b, c: c.rem_euclid(TAU), d, explained: 0.0 };
    let missed = points.iter().map(|(t, y)| (fitted.at(*t) - y).powi(2)).sum::<f64>() / count;
    Some(Sine { explained: 1.0 - missed / variance, ..fitted })
}

/// Best factors of sine and cosine, and level, at a frequency.
fn linear(points: &[(f64, f64)], b: f64, mean: f64) -> Option<(f64, f64, f64)> {
    let (mut ss, mut cc, mut sc, mut s, mut c, mut n) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    let (mut sy, mut cy) = (0.0, 0.0);
    for (t, y) in points {
        let ((sine, cosine), y) = ((b * t).sin_cos(), y - mean);
        ss += sine * sine;
        cc += cosine * cosine;
        sc += sine * cosine;
        s += sine;
        c += cosine;
        n += 1.0;
        sy += sine * y;
        cy += cosine * y;
    }
    // With the mean taken out of both.
    let (ss, cc, sc) = (ss - s * s / n, cc - c * c / n, sc - s * c / n);
    let whole = ss * cc - sc * sc;
    if whole.abs() < 1e-9 * n {
        return None;
    }
    let (sine, cosine) = ((sy * cc - cy * sc) / whole, (cy * ss - sy * sc) / whole);
    Some((sine, cosine, mean - (sine * s + cosine * c) / n))
}

fn missed(points: &[(f64, f64)], b: f64, (sine, cosine, level): (f64, f64, f64)) -> f64 {
    points
        .iter()
        .map(|(t, y)| {
            let (s, c) = (b * t).sin_cos();
            (sine * s + cosine * c + level - y).powi(2)
        })
        .sum()
}
