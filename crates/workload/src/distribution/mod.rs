//! Which key an operation touches: numbers in `0..count`, by distribution.

use rand::Rng;

use crate::Random;

/// How accesses spread over the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// 0, 1, 2, … and around.
    Sequential,
    /// Every key as likely as every other.
    Uniform,
    /// The k-th most popular key is k^−`exponent` as likely as the first; popular keys are spread
    /// over the whole range. Exponent in (0, 1) ∪ (1, 10]; YCSB uses 0.99.
    Zipfian {
        /// Skew: the larger, the more skewed.
        exponent: f64,
    },
    /// As `Zipfian`, counted back from the newest key: what feeds and queues do.
    Latest {
        /// Skew.
        exponent: f64,
    },
    /// `hot_accesses` of all accesses go to `hot_keys` of all keys (both fractions in 0..=1),
    /// uniformly within each part.
    Hotspot {
        /// Fraction of the keys that are hot.
        hot_keys: f64,
        /// Fraction of the accesses that go to them.
        hot_accesses: f64,
    },
}

/// Draws key numbers.
#[derive(Clone, Debug)]
pub struct Keys {
    distribution: Distribution,
    /// Invariant: at least 1.
    count: u64,
    next: u64,
    zipf: Option<Zipf>,
}

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidDistribution(String);

impl Keys {
    /// Key numbers in `0..count` by `distribution`.
    ///
    /// # Errors
    /// When `count` is 0, or a parameter is outside its range.
    pub fn new(distribution: Distribution, count: u64) -> Result<Keys, InvalidDistribution> {
        if count == 0 {
            return Err(InvalidDistribution("there must be at least one key".to_owned()));
        }
        let zipf = match distribution {
            Distribution::Zipfian { exponent } | Distribution::Latest { exponent } => {
                Some(Zipf::new(count, exponent)?)
            }
            Distribution::Hotspot { hot_keys, hot_accesses } => {
                let fraction = 0.0..=1.0;
                if !fraction.contains(&hot_keys) || !fraction.contains(&hot_accesses) {
                    return Err(InvalidDistribution(format!(
                        "hot_keys {hot_keys} and hot_accesses {hot_accesses} must be fractions in 0..=1"
                    )));
                }
                None
            }
            Distribution::Sequential | Distribution::Uniform => None,
        };
        Ok(Keys { distribution, count, next: 0, zipf })
    }

    /// Number of keys.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Extends the range to `0..count`: keys were added. A count that is not above the present one
    /// changes nothing. A few logarithms.
    pub fn grow(&mut self, count: u64) {
        if count <= self.count {
            return;
        }
        self.count = count;
        if let Some(zipf) = &mut self.zipf {
            zipf.grow(count);
        }
    }

    /// Lets `Sequential` begin at `number`, so that threads share a range without meeting.
    pub fn begin_at(&mut self, number: u64) {
        self.next = number % self.count;
    }

    /// The next key number.
    pub fn draw(&mut self, random: &mut Random) -> u64 {
        match (self.distribution, &self.zipf) {
            (Distribution::Sequential, _) => {
                let number = self.next;
                self.next = (number + 1) % self.count;
                number
            }
            (Distribution::Zipfian { .. }, Some(zipf)) => spread(zipf.rank(random) - 1, self.count),
            (Distribution::Latest { .. }, Some(zipf)) => self.count - zipf.rank(random),
            (Distribution::Hotspot { hot_keys, hot_accesses }, _) => {
                self.hotspot(hot_keys, hot_accesses, random)
            }
            _ => random.random_range(0..self.count),
        }
    }

    fn hotspot(&self, hot_keys: f64, hot_accesses: f64, random: &mut Random) -> u64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a fraction of a count is a count"
        )]
        let hot = (self.count as f64 * hot_keys) as u64;
        let is_hot = hot > 0 && (hot == self.count || random.random_bool(hot_accesses));
        if is_hot { random.random_range(0..hot) } else { random.random_range(hot..self.count) }
    }
}

/// Visits every number of `0..count` once, in an order that looks random: the place of `index` in
/// it. Constant time, no tables.
///
/// # Panics
/// When `index` is not below `count`.
#[must_use]
pub fn shuffled(index: u64, count: u64) -> u64 {
    assert!(index < count, "{index} is not in 0..{count}");
    spread(index, count)
}

/// Moves popular ranks away from each other: a bijection of `0..count`, so that every key keeps
/// exactly one rank.
///
/// A Feistel network over the next even number of bits, walked until the result lies in range. YCSB
/// hashes instead, which maps several ranks to one key and leaves a third of the keys without any.
fn spread(rank: u64, count: u64) -> u64 {
    let bits = 64 - (count - 1).leading_zeros().min(63);
    let half = bits.div_ceil(2);
    let mask = (1u64 << half) - 1;
    let mut number = rank;
    loop {
        let (mut left, mut right) = (number >> half, number & mask);
        for round in 0..4u64 {
            let mixed = (right ^ (round << 40))
                .wrapping_add(0x9e37_79b9_7f4a_7c15)
                .wrapping_mul(0xff51_afd7_ed55_8ccd);
            (left, right) = (right, left ^ ((mixed ^ (mixed >> 33)) & mask));
        }
        number = (left << half) | right;
        if number < count {
            return number;
        }
    }
}

/// Draws ranks in `1..=count` with probability proportional to rank^−exponent, in constant time and
/// without tables: rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate
/// variates from monotone discrete distributions", 1996).
#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    squeeze: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Result<Zipf, InvalidDistribution> {
        if !(exponent > 0.0 && exponent <= 10.0) {
            return Err(InvalidDistribution(format!(
                "the exponent {exponent} of a Zipf distribution must be above 0 and at most 10"
            )));
        }
        let mut zipf = Zipf { count: 0.0, exponent, integral_first: 0.0, integral_last: 0.0, squeeze: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf.grow(count);
        Ok(zipf)
    }

    #[allow(clippy::cast_precision_loss, reason = "beyond 2^53 keys the ranks that differ are never drawn")]
    fn grow(&mut self, count: u64) {
        self.count = count as f64;
        self.integral_last = self.integral(self.count + 0.5);
    }

    fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let drawn =
                self.integral_last + random.random::<f64>() * (self.integral_first - self.integral_last);
            let position = self.inverse(drawn);
            let rank = position.round().clamp(1.0, self.count);
            if rank - position <= self.squeeze || drawn >= self.integral(rank + 0.5) - self.density(rank) {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "clamped to 1..=count"
                )]
                return rank as u64;
            }
        }
    }

    fn density(&self, position: f64) -> f64 {
        (-self.exponent * position.ln()).exp()
    }

    /// ∫ position^−exponent, written so that it does not cancel near exponent 1.
    fn integral(&self, position: f64) -> f64 {
        let logarithm = position.ln();
        expm1_over((1.0 - self.exponent) * logarithm) * logarithm
    }

    fn inverse(&self, integral: f64) -> f64 {
        let scaled = (integral * (1.0 - self.exponent)).max(-1.0);
        (ln1p_over(scaled) * integral).exp()
    }
}

/// (e^x − 1) / x.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests;
