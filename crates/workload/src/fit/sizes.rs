//! Sizes and lengths: numbers of at least 0.

use rand::Rng;

use crate::Random;
use crate::sketch::Counts;

/// A family of distributions that was fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// One number.
    Constant,
    /// Generalised Pareto.
    Pareto,
    /// Lognormal.
    Lognormal,
    /// Weibull; with shape 1, the exponential distribution.
    Weibull,
    /// Two lognormals.
    Mixture,
    /// The measured quantiles.
    Quantiles,
}

impl Family {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Constant => "constant",
            Family::Pareto => "pareto",
            Family::Lognormal => "lognormal",
            Family::Weibull => "weibull",
            Family::Mixture => "mixture",
            Family::Quantiles => "quantiles",
        }
    }
}

/// A distribution of sizes. Numbers drawn are whole: the drawn one, rounded up.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// This number.
    Constant(u64),
    /// Generalised Pareto from `location` on; never above `most`.
    Pareto {
        /// Where it begins.
        location: f64,
        /// Scale, above 0.
        scale: f64,
        /// Shape. Above 0 its tail is heavy.
        shape: f64,
        /// The greatest number.
        most: u64,
    },
    /// Lognormal; never above `most`.
    Lognormal {
        /// Where it begins.
        location: f64,
        /// Mean of the logarithm.
        mean: f64,
        /// Standard deviation of the logarithm.
        deviation: f64,
        /// The greatest number.
        most: u64,
    },
    /// Weibull; never above `most`.
    Weibull {
        /// Where it begins.
        location: f64,
        /// Scale, above 0.
        scale: f64,
        /// Shape, above 0.
        shape: f64,
        /// The greatest number.
        most: u64,
    },
    /// Two lognormals; never above `most`.
    Mixture {
        /// Where both begin.
        location: f64,
        /// The share of the first, above 0 and below 1.
        share: f64,
        /// Mean and standard deviation of the logarithm of the first.
        first: [f64; 2],
        /// Those of the second.
        second: [f64; 2],
        /// The greatest number.
        most: u64,
    },
    /// Steps: the share of numbers up to each number, ascending; the last share is 1.
    Quantiles(Vec<(u64, f64)>),
}

/// What was fitted, and how well.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The distribution.
    pub sizes: Sizes,
    /// Its family.
    pub family: Family,
    /// Greatest distance of the distribution functions, of 1.
    pub distance: f64,
    /// The distance of every family that could be fitted, nearest first.
    pub tried: Vec<(Family, f64)>,
}

/// Beyond this distance a family does not fit, and the measured quantiles are taken.
pub const FAR: f64 = 0.01;
/// Steps of measured quantiles.
const STEPS: usize = 96;

impl Sizes {
    /// Its family.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Sizes::Constant(_) => Family::Constant,
            Sizes::Pareto { .. } => Family::Pareto,
            Sizes::Lognormal { .. } => Family::Lognormal,
            Sizes::Weibull { .. } => Family::Weibull,
            Sizes::Mixture { .. } => Family::Mixture,
            Sizes::Quantiles(_) => Family::Quantiles,
        }
    }

    /// The share of numbers that do not exceed `number`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "sizes")]
    pub fn share_up_to(&self, number: u64) -> f64 {
        let at = number as f64;
        let (share, most) = match self {
            Sizes::Constant(only) => return f64::from(u8::from(number >= *only)),
            Sizes::Quantiles(steps) => {
                let passed = steps.partition_point(|(step, _)| *step <= number);
                return if passed == 0 { 0.0 } else { steps[passed - 1].1 };
            }
            Sizes::Pareto { location, scale, shape, most } => {
                (pareto_share((at - location).max(0.0), *scale, *shape), most)
            }
            Sizes::Lognormal { location, mean, deviation, most } => {
                let over = at - location;
                (if over <= 0.0 { 0.0 } else { normal_share((over.ln() - mean) / deviation) }, most)
            }
            Sizes::Weibull { location, scale, shape, most } => {
                (1.0 - (-((at - location).max(0.0) / scale).powf(*shape)).exp(), most)
            }
            Sizes::Mixture { location, share, first, second, most } => {
                (mixed_share(at - location, *share, *first, *second), most)
            }
        };
        if number >= *most { 1.0 } else { share }
    }

    /// The least number that the share `share` of all does not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let share = share.clamp(0.0, 1.0 - 1e-12);
        let (number, most) = match self {
            Sizes::Constant(only) => return *only,
            Sizes::Quantiles(steps) => {
                let passed = steps.partition_point(|(_, up_to)| *up_to <= share);
                return steps.get(passed).or(steps.last()).map_or(0, |(number, _)| *number);
            }
            Sizes::Pareto { location, scale, shape, most } => {
                let left = 1.0 - share;
                let over = if shape.abs() < 1e-9 {
                    -scale * left.ln()
                } else {
                    scale * (left.powf(-shape) - 1.0) / shape
                };
                (location + over, most)
            }
            Sizes::Lognormal { location, mean, deviation, most } => {
                (location + (mean + deviation * normal_quantile(share)).exp(), most)
            }
            Sizes::Weibull { location, scale, shape, most } => {
                (location + scale * (-(1.0 - share).ln()).powf(1.0 / shape), most)
            }
            Sizes::Mixture { location, share: of_first, first, second, most } => {
                let (mut low, mut high) = (-30.0, 45.0);
                for _ in 0..50 {
                    let middle: f64 = f64::midpoint(low, high);
                    let below = mixed_share(middle.exp(), *of_first, *first, *second) < share;
                    if below { low = middle } else { high = middle }
                }
                (location + f64::midpoint(low, high).exp(), most)
            }
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by `most`")]
        let number = number.ceil().max(0.0) as u64;
        number.min(*most)
    }

    /// Draws a number.
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Sizes::Constant(only) => *only,
            _ => self.quantile(random.random()),
        }
    }

    /// The greatest distance of its distribution function from that of `counts`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts")]
    pub fn distance(&self, counts: &Counts) -> f64 {
        let (whole, mut seen, mut far) = (counts.count().max(1) as f64, 0, 0.0_f64);
        for (number, times) in counts.iter() {
            if number > 0 {
                far = far.max((self.share_up_to(number - 1) - seen as f64 / whole).abs());
            }
            seen += times;
            // Above 4,095 a number is the lower end of a bucket, whose upper end counts.
            let upper = if number < 4096 { number } else { number + number / 65 };
            far = far.max((self.share_up_to(upper) - seen as f64 / whole).abs());
        }
        far
    }
}

/// Fits sizes: every family by maximum likelihood, and of them the nearest.
#[must_use]
pub fn fit_sizes(counts: &Counts) -> Fitted {
    if counts.count() == 0 || counts.least() == counts.most() {
        let sizes = Sizes::Constant(counts.most());
        return Fitted {
            sizes,
            family: Family::Constant,
            distance: 0.0,
            tried: vec![(Family::Constant, 0.0)],
        };
    }
    let candidates = [pareto(counts), lognormal(counts), weibull(counts)];
    let mut near: Vec<(Sizes, f64)> = candidates
        .into_iter()
        .flatten()
        .map(|sizes| {
            let distance = sizes.distance(counts);
            (sizes, distance)
        })
        .filter(|(_, distance)| distance.is_finite())
        .collect();
    // Two of a kind fit almost anything: they are taken where no one of a kind does.
    if near.iter().all(|(_, distance)| *distance > FAR) {
        // Where both begin is not seen: the least number may lie far above it.
        let origins = [1, 2, 4].map(|part| counts.least().saturating_sub(1) / part).into_iter().chain([0]);
        let mixtures = origins.filter_map(|origin| mixture(counts, origin));
        let nearest = mixtures.map(|sizes| {
            let distance = sizes.distance(counts);
            (sizes, distance)
        });
        near.extend(nearest.min_by(|first, second| first.1.total_cmp(&second.1)));
    }
    near.sort_by(|first, second| first.1.total_cmp(&second.1));
    let tried = near.iter().map(|(sizes, distance)| (sizes.family(), *distance)).collect();
    let (sizes, distance) = match near.into_iter().next() {
        Some((sizes, distance)) if distance <= FAR => (sizes, distance),
        _ => {
            let sizes = quantiles(counts);
            let distance = sizes.distance(counts);
            (sizes, distance)
        }
    };
    Fitted { family: sizes.family(), sizes, distance, tried }
}

/// Numbers above the least one, in the middle of the step that rounding up made, with weights.
fn excesses(counts: &Counts) -> (f64, Vec<(f64, f64)>) {
    excesses_over(counts, counts.least().saturating_sub(1))
}

/// The same above `origin`, which is below the least number.
#[allow(clippy::cast_precision_loss, reason = "sizes")]
fn excesses_over(counts: &Counts, origin: u64) -> (f64, Vec<(f64, f64)>) {
    let location = origin as f64;
    let middle = |(number, times): (u64, u64)| {
        let width = if number < 4096 { -0.5 } else { number as f64 / 130.0 };
        (number as f64 + width - location, times as f64)
    };
    (location, counts.iter().map(middle).collect())
}

/// Profile likelihood (Grimshaw, 1993): for each ratio of shape and scale the best shape is a mean
/// of logarithms, and one search remains.
fn pareto(counts: &Counts) -> Option<Sizes> {
    let (location, numbers) = excesses(counts);
    let whole: f64 = numbers.iter().map(|(_, weight)| weight).sum();
    let most = numbers.iter().map(|(number, _)| *number).fold(0.0, f64::max);
    let mean = numbers.iter().map(|(number, weight)| number * weight).sum::<f64>() / whole;
    let shape_of = |ratio: f64| {
        numbers.iter().map(|(number, weight)| weight * (ratio * number).ln_1p()).sum::<f64>() / whole
    };
    let likelihood = |ratio: f64| {
        if ratio.abs() < 1e-9 / mean {
            return -mean.ln() - 1.0;
        }
        let shape = shape_of(ratio);
        -(shape / ratio).ln() - shape - 1.0
    };
    // Ratios from just above −1/most to far above 1/mean, on both sides of 0.
    let negative = (0..60).map(|step| -(1.0 - 1e-6) / most * 10_f64.powf(-f64::from(step) / 12.0));
    let positive = (0..120).map(|step| 100.0 / mean * 10_f64.powf(-f64::from(step) / 12.0));
    let scored = negative.chain(positive).map(|ratio| (ratio, likelihood(ratio)));
    let (best, _) =
        scored.filter(|(_, score)| score.is_finite()).max_by(|first, second| first.1.total_cmp(&second.1))?;
    let factor = 10_f64.powf(1.0 / 12.0);
    let (low, high) = (best / factor, best * factor);
    let bound = -(1.0 - 1e-9) / most;
    let ratio = golden(low.min(high).max(bound), low.max(high), likelihood);
    let shape = shape_of(ratio);
    let (scale, most) = (shape / ratio, counts.most());
    (scale.is_finite() && scale > 0.0).then_some(Sizes::Pareto { location, scale, shape, most })
}

fn lognormal(counts: &Counts) -> Option<Sizes> {
    let (location, numbers) = excesses(counts);
    let whole: f64 = numbers.iter().map(|(_, weight)| weight).sum();
    let mean = numbers.iter().map(|(number, weight)| number.ln() * weight).sum::<f64>() / whole;
    let square = numbers.iter().map(|(number, weight)| (number.ln() - mean).powi(2) * weight).sum::<f64>();
    let (deviation, most) = ((square / whole).sqrt(), counts.most());
    (deviation > 0.0).then_some(Sizes::Lognormal { location, mean, deviation, most })
}

/// Two lognormals by expectation and maximisation, from the halves below and above the median on.
fn mixture(counts: &Counts, origin: u64) -> Option<Sizes> {
    /// The least standard deviation of a logarithm: a single size has it.
    const DEVIATION_MIN: f64 = 2e-3;
    let (location, numbers) = excesses_over(counts, origin);
    let whole: f64 = numbers.iter().map(|(_, weight)| weight).sum();
    let numbers: Vec<(f64, f64)> = numbers.iter().map(|(number, weight)| (number.ln(), *weight)).collect();
    let half = {
        let mut seen = 0.0;
        let at = numbers.iter().position(|(_, weight)| {
            seen += weight;
            seen >= whole / 2.0
        })?;
        numbers[at].0
    };
    let part = |of_first: &dyn Fn(f64) -> f64| {
        let mut sums = [[0.0; 3]; 2];
        for (number, weight) in &numbers {
            let first = of_first(*number);
            for (sum, share) in sums.iter_mut().zip([first, 1.0 - first]) {
                let weight = weight * share;
                sum[0] += weight;
                sum[1] += weight * number;
                sum[2] += weight * number * number;
            }
        }
        sums.map(|[weight, sum, square]| {
            let mean = sum / weight.max(1e-12);
            (
                weight / whole,
                mean,
                (square / weight.max(1e-12) - mean * mean).max(0.0).sqrt().max(DEVIATION_MIN),
            )
        })
    };
    let mut parts = part(&|number| f64::from(u8::from(number <= half)));
    for _ in 0..80 {
        let likely = |number: f64, (share, mean, deviation): (f64, f64, f64)| {
            share / deviation * (-0.5 * ((number - mean) / deviation).powi(2)).exp()
        };
        let [first, second] = parts;
        parts = part(&|number| {
            let (one, other) = (likely(number, first), likely(number, second));
            // Far from both, the nearer one has it.
            if one + other > 0.0 {
                one / (one + other)
            } else {
                f64::from(u8::from((number - first.1).abs() / first.2 < (number - second.1).abs() / second.2))
            }
        });
    }
    let [(share, mean, deviation), (_, other_mean, other_deviation)] = parts;
    let (first, second) = ([mean, deviation], [other_mean, other_deviation]);
    let is_two = share > 1e-3 && share < 1.0 - 1e-3 && first.iter().chain(&second).all(|one| one.is_finite());
    is_two.then_some(Sizes::Mixture { location, share, first, second, most: counts.most() })
}

/// The share of two lognormals below `over`.
fn mixed_share(over: f64, share: f64, first: [f64; 2], second: [f64; 2]) -> f64 {
    if over <= 0.0 {
        return 0.0;
    }
    let of = |[mean, deviation]: [f64; 2]| normal_share((over.ln() - mean) / deviation);
    share * of(first) + (1.0 - share) * of(second)
}

/// The shape solves one equation, which falls in it.
fn weibull(counts: &Counts) -> Option<Sizes> {
    let (location, numbers) = excesses(counts);
    let whole: f64 = numbers.iter().map(|(_, weight)| weight).sum();
    let logarithm = numbers.iter().map(|(number, weight)| number.ln() * weight).sum::<f64>() / whole;
    let most = numbers.iter().map(|(number, _)| *number).fold(0.0, f64::max);
    // By the greatest number, so that no power overflows.
    let sums = |shape: f64| {
        let mut sums = (0.0, 0.0);
        for (number, weight) in &numbers {
            let power = (number / most).powf(shape) * weight;
            sums.0 += power;
            sums.1 += power * number.ln();
        }
        sums
    };
    let over = |shape: f64| {
        let (powers, weighted) = sums(shape);
        1.0 / shape + logarithm - weighted / powers
    };
    let (mut low, mut high) = (0.02, 50.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if over(middle) > 0.0 { low = middle } else { high = middle }
    }
    let shape = f64::midpoint(low, high);
    let scale = most * (sums(shape).0 / whole).powf(1.0 / shape);
    (scale.is_finite() && scale > 0.0).then_some(Sizes::Weibull {
        location,
        scale,
        shape,
        most: counts.most(),
    })
}

/// The measured steps; where they are many, those that are needed to be right to a hundredth.
#[allow(clippy::cast_precision_loss, reason = "counts")]
fn quantiles(counts: &Counts) -> Sizes {
    let whole = counts.count() as f64;
    let all: Vec<(u64, f64)> = counts
        .iter()
        .scan(0, |seen, (number, times)| {
            *seen += times;
            Some((number, *seen as f64 / whole))
        })
        .collect();
    if all.len() <= STEPS {
        return Sizes::Quantiles(all);
    }
    let (mut steps, mut given) = (Vec::with_capacity(STEPS + 1), 0.0);
    for pair in all.windows(2) {
        // A step is kept when the next one would take the share too far.
        if pair[1].1 - given > 1.0 / (STEPS - 2) as f64 {
            steps.push(pair[0]);
            given = pair[0].1;
        }
    }
    steps.extend(all.last().copied());
    steps.dedup_by_key(|(number, _)| *number);
    Sizes::Quantiles(steps)
}

/// The place of the greatest value between two ends (golden section).
fn golden(mut low: f64, mut high: f64, value: impl Fn(f64) -> f64) -> f64 {
    const RATIO: f64 = 0.618_033_988_749_895;
    for _ in 0..60 {
        let (left, right) = (high - RATIO * (high - low), low + RATIO * (high - low));
        if value(left) < value(right) { low = left } else { high = right }
    }
    f64::midpoint(low, high)
}

fn pareto_share(over: f64, scale: f64, shape: f64) -> f64 {
    if shape.abs() < 1e-9 {
        return 1.0 - (-over / scale).exp();
    }
    let base = 1.0 + shape * over / scale;
    if base <= 0.0 { 1.0 } else { 1.0 - base.powf(-1.0 / shape) }
}

/// The normal distribution function, right to 1.2 · 10⁻⁷ (Numerical Recipes, `erfcc`).
#[must_use]
pub fn normal_share(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let series = -1.265_512_23
        + t * (1.000_023_68
            + t * (0.374_091_96
                + t * (0.096_784_18
                    + t * (-0.186_288_06
                        + t * (0.278_868_07
                            + t * (-1.135_203_98
                                + t * (1.488_515_87 + t * (-0.822_152_23 + t * 0.170_872_77))))))));
    let tail = 0.5 * t * (-x * x + series).exp();
    if z >= 0.0 { 1.0 - tail } else { tail }
}

/// The inverse of [`normal_share`], by bisection.
#[must_use]
pub fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if normal_share(middle) < share { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}
