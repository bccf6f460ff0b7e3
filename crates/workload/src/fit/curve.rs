//! Curves over ranks, fitted by least squares, with the one chosen that is nearest.

/// A curve over ranks 1, 2, 3, …
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curve {
    /// `a·x^b`.
    Power([f64; 2]),
    /// `a·x^b + c`.
    TwoTermPower([f64; 3]),
    /// `a·e^(b·x)`.
    Exponential([f64; 2]),
    /// `a·e^(b·x) + c·e^(d·x)`.
    TwoTermExponential([f64; 4]),
}

impl Curve {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Curve::Power(_) => "power",
            Curve::TwoTermPower(_) => "two-term power",
            Curve::Exponential(_) => "exponential",
            Curve::TwoTermExponential(_) => "two-term exponential",
        }
    }

    /// Its parameters, `a` first.
    #[must_use]
    pub fn parameters(&self) -> Vec<f64> {
        match self {
            Curve::Power(all) | Curve::Exponential(all) => all.to_vec(),
            Curve::TwoTermPower(all) => all.to_vec(),
            Curve::TwoTermExponential(all) => all.to_vec(),
        }
    }

    /// Its value at a rank.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        match *self {
            Curve::Power([a, b]) => a * x.powf(b),
            Curve::TwoTermPower([a, b, c]) => a * x.powf(b) + c,
            Curve::Exponential([a, b]) => a * (b * x).exp(),
            Curve::TwoTermExponential([a, b, c, d]) => a * (b * x).exp() + c * (d * x).exp(),
        }
    }

    /// Root of the mean square of what it misses.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "numbers of points")]
    pub fn error(&self, points: &[(f64, f64)]) -> f64 {
        let squares: f64 = points.iter().map(|(x, y)| (self.at(*x) - y).powi(2)).sum();
        (squares / points.len().max(1) as f64).sqrt()
    }
}

/// Fits each curve to values by falling rank; the nearest first, with its error. Empty for fewer
/// than two values.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "ranks")]
pub fn fit_ranks(values: &[f64]) -> Vec<(Curve, f64)> {
    if values.len() < 2 {
        return Vec::new();
    }
    let points: Vec<(f64, f64)> =
        values.iter().enumerate().map(|(rank, value)| ((rank + 1) as f64, *value)).collect();
    let first = values[0].max(1e-12);
    let last = values[values.len() - 1].max(first * 1e-9);
    let power = (last / first).ln() / (values.len() as f64).ln();
    let decay = (last / first).ln() / (values.len() - 1) as f64;
    let fit = |start: &[f64], make: &dyn Fn(&[f64]) -> Curve| {
        let found = least_squares(start, &points, |parameters, x| make(parameters).at(x));
        let curve = make(&found);
        (curve, curve.error(&points))
    };
    let two = |p: &[f64]| Curve::Power([p[0], p[1]]);
    let three = |p: &[f64]| Curve::TwoTermPower([p[0], p[1], p[2]]);
    let exponential = |p: &[f64]| Curve::Exponential([p[0], p[1]]);
    let four = |p: &[f64]| Curve::TwoTermExponential([p[0], p[1], p[2], p[3]]);
    let mut all = vec![
        fit(&[first, power], &two),
        fit(&[first, power, 0.0], &three),
        fit(&[first, decay], &exponential),
        fit(&[first, decay * 4.0, first / 4.0, decay / 2.0], &four),
        fit(&[first * 2.0, -1.0, first / 10.0, decay / 2.0], &four),
    ];
    all.retain(|(_, error)| error.is_finite());
    all.sort_by(|one, other| one.1.total_cmp(&other.1));
    all
}

/// Parameters at which a function misses points least, by Levenberg and Marquardt's method from
/// `start` on.
#[must_use]
pub fn least_squares(start: &[f64], points: &[(f64, f64)], at: impl Fn(&[f64], f64) -> f64) -> Vec<f64> {
    let count = start.len();
    let miss =
        |parameters: &[f64]| -> f64 { points.iter().map(|(x, y)| (at(parameters, *x) - y).powi(2)).sum() };
    let mut best = start.to_vec();
    let (mut missed, mut damping) = (miss(&best), 1e-3);
    for _ in 0..200 {
        let mut normal = vec![vec![0.0; count]; count];
        let mut right = vec![0.0; count];
        for (x, y) in points {
            let here = at(&best, *x);
            let slopes: Vec<f64> = (0..count)
                .map(|index| {
                    let step = best[index].abs().max(1e-6) * 1e-6;
                    let mut moved = best.clone();
                    moved[index] += step;
                    (at(&moved, *x) - here) / step
                })
                .collect();
            for (row, slope) in slopes.iter().enumerate() {
                right[row] += slope * (y - here);
                for (column, other) in slopes.iter().enumerate() {
                    normal[row][column] += slope * other;
                }
            }
        }
        let mut is_better = false;
        while damping < 1e12 {
            let mut damped = normal.clone();
            for (index, row) in damped.iter_mut().enumerate() {
                row[index] += damping * row[index].max(1e-12);
            }
            let moved = solve(damped, right.clone()).map(|step| {
                best.iter().zip(&step).map(|(parameter, step)| parameter + step).collect::<Vec<f64>>()
            });
            let now = moved.as_ref().map_or(f64::INFINITY, |moved| miss(moved));
            if let Some(moved) = moved.filter(|_| now < missed) {
                is_better = missed - now > missed * 1e-10;
                (best, missed) = (moved, now);
                damping = (damping / 10.0).max(1e-12);
                break;
            }
            damping *= 10.0;
        }
        if !is_better {
            break;
        }
    }
    best
}

/// Solves linear equations by elimination with pivots; `None` where they have no one answer.
fn solve(mut rows: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let count = right.len();
    for column in 0..count {
        let pivot = (column..count)
            .max_by(|one, other| rows[*one][column].abs().total_cmp(&rows[*other][column].abs()))?;
        let value = rows[pivot][column];
        if !value.is_finite() || value.abs() < 1e-300 {
            return None;
        }
        rows.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..count {
            let factor = rows[row][column] / rows[column][column];
            let pivots = rows[column].clone();
            for (value, pivot) in rows[row][column..].iter_mut().zip(&pivots[column..]) {
                *value -= factor * pivot;
            }
            right[row] -= factor * right[column];
        }
    }
    for row in (0..count).rev() {
        for column in row + 1..count {
            right[row] -= rows[row][column] * right[column];
        }
        right[row] /= rows[row][row];
    }
    Some(right)
}
