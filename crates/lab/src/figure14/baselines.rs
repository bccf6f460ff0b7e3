//! The eight benchmarks of figure 14: of the same mix, the same number of keys and the same mean
//! sizes as the workload that they stand for.

use rand::Rng;
use rand::seq::SliceRandom;
use tombolo_format::checksum::mix64;
use tombolo_format::trace::{Asked, Event};
use tombolo_workload::fit::{Curve, Sizes, fit_ranks};
use tombolo_workload::{Distribution, Keys, Random, random};

use super::{Events, Live, reference};
use crate::analysis::{Analysis, KeyspaceAnalysis};
use crate::model::{Model, ModelError};

/// Ranges of the two that have hot ranges: as many as the paper's.
const RANGES: usize = 30;

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    YcsbUniform,
    YcsbZipfian,
    YcsbHotspot,
    YcsbExponential,
    AllRandom,
    AllDist,
    PrefixRandom,
    PrefixDist,
}

impl Kind {
    pub(super) const ALL: [Kind; 8] = [
        Kind::YcsbUniform,
        Kind::YcsbZipfian,
        Kind::YcsbHotspot,
        Kind::YcsbExponential,
        Kind::AllRandom,
        Kind::AllDist,
        Kind::PrefixRandom,
        Kind::PrefixDist,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::YcsbUniform => "ycsb-uniform",
            Kind::YcsbZipfian => "ycsb-zipfian",
            Kind::YcsbHotspot => "ycsb-hotspot",
            Kind::YcsbExponential => "ycsb-exponential",
            Kind::AllRandom => "all-random",
            Kind::AllDist => "all-dist",
            Kind::PrefixRandom => "prefix-random",
            Kind::PrefixDist => "prefix-dist",
        }
    }

    fn is_ycsb(self) -> bool {
        matches!(self, Kind::YcsbUniform | Kind::YcsbZipfian | Kind::YcsbHotspot | Kind::YcsbExponential)
    }
}

#[derive(Debug)]
pub(super) struct Baseline {
    kind: Kind,
    live: Live,
    random: Random,
    /// Ends of the shares of operations.
    mix: Vec<(f64, Asked)>,
    /// YCSB's distributions.
    keys: Option<Keys>,
    /// Ends of the shares of ranges.
    ranges: Vec<f64>,
    /// A key of the share `x` of the hottest ones gets the share `x^power` of accesses.
    power: f64,
    value_bytes: Sizes,
    scan_entries: Sizes,
    key: Vec<u8>,
}

impl Baseline {
    pub(super) fn new(
        kind: Kind,
        seen: &Analysis,
        model: &Model,
        live: Live,
        seed: u64,
    ) -> Result<Baseline, ModelError> {
        let (Some(keyspace), Some(fitted)) = (seen.keyspaces.first(), model.keyspaces.first()) else {
            return Err(ModelError("nothing was seen".to_owned()));
        };
        let count = live.len() as u64;
        let distribution = match kind {
            Kind::YcsbUniform => Some(Distribution::Uniform),
            Kind::YcsbZipfian => Some(Distribution::Zipfian { exponent: 0.99 }),
            Kind::YcsbHotspot => Some(Distribution::Hotspot { hot_keys: 0.2, hot_accesses: 0.8 }),
            _ => None,
        };
        let keys = distribution.map(|distribution| Keys::new(distribution, count)).transpose();
        let (value_bytes, scan_entries) = match kind.is_ycsb() {
            true => (mean(keyspace.value_bytes.mean()), up_to_twice(keyspace.scan_entries.mean())),
            false => (fitted.value_bytes.sizes()?, fitted.scan_entries.sizes()?),
        };
        let whole = keyspace.events().max(1) as f64;
        let mut end = 0.0;
        let mix = Asked::ALL.into_iter().filter(|asked| keyspace.of(*asked) > 0).map(|asked| {
            end += keyspace.of(asked) as f64 / whole;
            (end, asked)
        });
        let mut random = random(seed, 14);
        let ranges = match kind {
            Kind::PrefixRandom | Kind::PrefixDist => hot_ranges(keyspace, &mut random),
            _ => vec![1.0],
        };
        Ok(Baseline {
            kind,
            random,
            mix: mix.collect(),
            keys: keys.map_err(|error| ModelError(error.to_string()))?,
            ranges,
            power: power(keyspace, count),
            value_bytes,
            scan_entries,
            live,
            key: Vec::new(),
        })
    }

    /// The next key's number.
    fn number(&mut self) -> u64 {
        let count = self.live.len() as u64;
        if let Some(keys) = &mut self.keys {
            return keys.draw(&mut self.random);
        }
        let drawn = 1.0 - self.random.random::<f64>();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
        let of = |share: f64, keys: u64| ((share * keys as f64) as u64).min(keys.saturating_sub(1));
        if self.kind == Kind::YcsbExponential {
            // 95 % of the accesses go to six sevenths of the keys.
            let rank = -drawn.ln() / -(0.05_f64).ln() * 6.0 / 7.0;
            return mix64(of(rank, count)) % count;
        }
        let at: f64 = self.random.random();
        let range = self.ranges.partition_point(|end| *end <= at).min(self.ranges.len() - 1) as u64;
        let ranges = self.ranges.len() as u64;
        let (from, to) = (count * range / ranges, count * (range + 1) / ranges);
        let rank = of(drawn.powf(1.0 / self.power), to - from);
        match self.kind {
            Kind::AllRandom | Kind::PrefixRandom => from + mix64(rank ^ (range << 40)) % (to - from).max(1),
            _ => from + rank,
        }
    }
}

impl Events for Baseline {
    fn next(&mut self) -> Event<'_> {
        let drawn: f64 = self.random.random();
        let at = self.mix.partition_point(|(end, _)| *end <= drawn).min(self.mix.len() - 1);
        let asked = self.mix[at].1;
        let number = usize::try_from(self.number()).unwrap_or(0).min(self.live.len() - 1);
        reference::key(self.live[number].0, &mut self.key);
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let mut event = Event::new(0, asked, 0, &self.key);
        match asked {
            Asked::Put | Asked::Merge => event.value_bytes = small(self.value_bytes.draw(&mut self.random)),
            Asked::Scan | Asked::ScanBack => event.entries = small(self.scan_entries.draw(&mut self.random)),
            _ => {}
        }
        event
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
fn mean(mean: f64) -> Sizes {
    Sizes::Constant(mean.round().max(0.0) as u64)
}

/// Every length up to twice the mean is as likely.
fn up_to_twice(mean: f64) -> Sizes {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length")]
    let most = (2.0 * mean - 1.0).round().clamp(1.0, 10_000.0) as u32;
    Sizes::Quantiles(
        (1..=most).map(|length| (u64::from(length), f64::from(length) / f64::from(most))).collect(),
    )
}

/// Ends of the shares of ranges: a two-term exponential over their ranks, which are mixed.
fn hot_ranges(keyspace: &KeyspaceAnalysis, random: &mut Random) -> Vec<f64> {
    let width = keyspace.keys.len().div_ceil(RANGES).max(1);
    let of = |part: &[crate::analysis::SampledKey]| part.iter().map(|key| key.accesses() as f64).sum::<f64>();
    let mut weights: Vec<f64> = keyspace.keys.chunks(width).map(of).collect();
    weights.sort_by(|one, other| other.total_cmp(one));
    let whole: f64 = weights.iter().sum::<f64>().max(1.0);
    weights.iter_mut().for_each(|weight| *weight /= whole);
    let fitted = fit_ranks(&weights);
    if let Some((curve, _)) = fitted.iter().find(|(curve, _)| matches!(curve, Curve::TwoTermExponential(_))) {
        for (rank, weight) in (1..).zip(&mut weights) {
            *weight = curve.at(f64::from(rank)).max(1e-9);
        }
    }
    weights.shuffle(random);
    let whole: f64 = weights.iter().sum();
    let mut end = 0.0;
    let ends = weights.iter().map(|weight| {
        end += weight / whole;
        end
    });
    ends.collect()
}

/// The exponent of `share of accesses = (share of the hottest keys)^exponent`, by least squares of
/// logarithms. Keys that nobody asked for are the coldest.
fn power(keyspace: &KeyspaceAnalysis, count: u64) -> f64 {
    let accessed = keyspace.keys.len() as f64 / count.max(1) as f64;
    let points = keyspace.hotness().into_iter().filter(|(keys, share)| *keys > 0.0 && *share > 0.0);
    let logarithms = points.map(|(keys, share)| ((keys * accessed.min(1.0)).ln(), share.ln()));
    let (products, squares) =
        logarithms.fold((0.0, 0.0), |(products, squares), (x, y)| (products + x * y, squares + x * x));
    if squares > 0.0 { (products / squares).clamp(0.01, 1.0) } else { 1.0 }
}
