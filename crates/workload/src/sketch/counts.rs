//! How often each number came: exact below 4,096, right to 1.6 % above.

use std::collections::BTreeMap;

const EXACT: u64 = 4096;
/// Buckets of each doubling above: 64.
const SUB_BITS: u32 = 6;

/// Counts of numbers: sizes, lengths, counts themselves. Numbers below 4,096 are kept apart; above,
/// each bucket is a 64th of its lower end wide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    exact: Vec<u64>,
    /// By the lower ends of buckets.
    coarse: BTreeMap<u64, u64>,
    count: u64,
    sum: u128,
    squares: u128,
    least: Option<u64>,
    most: u64,
}

#[allow(clippy::cast_precision_loss, reason = "statistics")]
impl Counts {
    /// Takes a number.
    #[inline]
    pub fn add(&mut self, number: u64) {
        self.add_many(number, 1);
    }

    /// Takes a number that came `times` times.
    pub fn add_many(&mut self, number: u64, times: u64) {
        if times == 0 {
            return;
        }
        if number < EXACT {
            let index = usize::try_from(number).unwrap_or(0);
            if self.exact.len() <= index {
                self.exact.resize(index + 1, 0);
            }
            self.exact[index] += times;
        } else {
            *self.coarse.entry(bucket(number)).or_default() += times;
        }
        self.count += times;
        self.sum += u128::from(number) * u128::from(times);
        let square = (u128::from(number) * u128::from(number)).saturating_mul(times.into());
        self.squares = self.squares.saturating_add(square);
        self.least = Some(self.least.map_or(number, |least| least.min(number)));
        self.most = self.most.max(number);
    }

    /// Takes what another one took.
    pub fn merge(&mut self, other: &Counts) {
        let (sum, squares) = (self.sum + other.sum, self.squares.saturating_add(other.squares));
        for (number, times) in other.iter() {
            self.add_many(number, times);
        }
        (self.sum, self.squares) = (sum, squares);
        self.most = self.most.max(other.most);
    }

    /// Numbers taken.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Their mean; 0 of none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Their standard deviation.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.mean();
        (self.squares as f64 / self.count as f64 - mean * mean).max(0.0).sqrt()
    }

    /// The smallest.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.least.unwrap_or(0)
    }

    /// The greatest.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Numbers with how often they came, ascending; above 4,095 the lower ends of buckets.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let exact = self.exact.iter().enumerate().map(|(number, times)| (number as u64, *times));
        let coarse = self.coarse.iter().map(|(number, times)| (*number, *times));
        exact.filter(|(_, times)| *times > 0).chain(coarse)
    }

    /// The number that so many of a hundred do not exceed.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = self.count as f64 * percent / 100.0;
        let mut seen = 0;
        for (number, times) in self.iter() {
            seen += times;
            if seen as f64 >= wanted {
                return number;
            }
        }
        self.most
    }

    /// The share of numbers that do not exceed `number`.
    #[must_use]
    pub fn share_up_to(&self, number: u64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let seen: u64 = self.iter().take_while(|(at, _)| *at <= number).map(|(_, times)| times).sum();
        seen as f64 / self.count as f64
    }

    /// The greatest distance of the distribution functions of both (Kolmogorov and Smirnov).
    #[must_use]
    pub fn distance(&self, other: &Counts) -> f64 {
        if self.count == 0 || other.count == 0 {
            return f64::from(u8::from(self.count != other.count));
        }
        let (mut mine, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        let (mut seen, mut far) = ((0, 0), 0.0_f64);
        while mine.peek().is_some() || theirs.peek().is_some() {
            let at = [mine.peek(), theirs.peek()].into_iter().flatten().map(|(number, _)| *number).min();
            let Some(at) = at else { break };
            seen.0 += mine.next_if(|(number, _)| *number == at).map_or(0, |(_, times)| times);
            seen.1 += theirs.next_if(|(number, _)| *number == at).map_or(0, |(_, times)| times);
            far = far.max((seen.0 as f64 / self.count as f64 - seen.1 as f64 / other.count as f64).abs());
        }
        far
    }
}

/// The lower end of a number's bucket.
fn bucket(number: u64) -> u64 {
    let cut = 63 - number.leading_zeros() - SUB_BITS;
    number >> cut << cut
}
