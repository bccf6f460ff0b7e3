//! Ranges of keys: how hot they are, for how long, and which keys lie between those that are asked
//! for.

use tombolo_workload::fit::normal_quantile;

use super::rounded;
use crate::analysis::{Analysis, KeyspaceAnalysis, SLOTS, SampledKey};
use crate::generate::class_scores;
use crate::model::{Access, CLASSES, PHASES, RUN_MAX, RangeModel};

/// Activity changes over time when its variance is so many times that of chance.
const DRIFTS_FROM: f64 = 2.0;
/// Accesses of a range that is on the mean in every phase: few accesses say little of a phase.
const PRIOR: f64 = 4.0;
/// Below it, sizes do not go with hotness.
const CORRELATED_FROM: f64 = 0.03;
/// Keys of a range that are looked at as neighbours.
const NEIGHBOURS_MAX: u64 = 1 << 22;

/// The keys of a keyspace that were there, whether anybody asked for them or not: how many, and how
/// many of them lie before each sampled key.
#[derive(Clone, Debug, Default)]
pub struct KeysThere {
    before: Vec<u64>,
    count: u64,
}

impl KeysThere {
    /// Nothing yet, of a keyspace.
    #[must_use]
    pub fn new() -> KeysThere {
        KeysThere::default()
    }

    /// Takes the next key that is there; they come in their order.
    pub fn add(&mut self, keyspace: &KeyspaceAnalysis, key: &[u8]) {
        while keyspace.keys.get(self.before.len()).is_some_and(|sampled| &*sampled.key <= key) {
            self.before.push(self.count);
        }
        self.count += 1;
    }

    /// How many lie before a sampled key. Those behind the last one are behind all.
    fn before(&self, sampled: usize) -> u64 {
        self.before.get(sampled).copied().unwrap_or(self.count)
    }
}

/// The class of a number of accesses.
fn class(accesses: u64) -> usize {
    (63 - accesses.max(1).leading_zeros() as usize).min(CLASSES - 1)
}

fn scaled(keys: usize, sampled: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of keys")]
    let scaled = (keys as f64 / sampled).round() as u64;
    scaled
}

/// How accesses spread over ranges. Ranges have equally many keys that were asked for; where the
/// keys that were there are known, half as much counts how many of those there are.
pub(super) fn access(
    keyspace: &KeyspaceAnalysis,
    seen: &Analysis,
    ranges: usize,
    there: Option<&KeysThere>,
) -> Access {
    let mut sums = [(0.0, 0.0); CLASSES];
    for key in &keyspace.keys {
        let sum = &mut sums[class(key.accesses())];
        sum.0 += key.accesses() as f64;
        sum.1 += 1.0;
    }
    let used = sums.iter().rposition(|(_, keys)| *keys > 0.0).map_or(0, |last| last + 1);
    let means = sums[..used].iter().map(|(sum, keys)| if *keys > 0.0 { rounded(sum / keys) } else { 0.0 });
    let there = there.filter(|there| there.count > 0);
    let starts = starts(keyspace.keys.len(), ranges, there);
    let drift = Drift::of(keyspace, &starts, seen);
    let mut lines = Vec::with_capacity(starts.len());
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(keyspace.keys.len());
        let mut line = range(&keyspace.keys[*start..end], used, seen.sampled);
        if let Some(there) = there {
            let from = if index == 0 { 0 } else { there.before(*start) };
            let to = if index + 1 == starts.len() { there.count } else { there.before(end) };
            line.cold = (to - from).saturating_sub(line.keys.iter().sum());
        }
        line.phases = drift.as_ref().map_or_else(Vec::new, |drift| drift.phases(index));
        lines.push(line.line());
    }
    Access {
        ranges: lines,
        run: run(keyspace, &starts, seen.sampled, there),
        class_means: means.collect(),
        recent: 0.0,
        distances: Vec::new(),
    }
}

/// Where ranges begin among the sampled keys.
fn starts(keys: usize, ranges: usize, there: Option<&KeysThere>) -> Vec<usize> {
    let measure = |key: usize| {
        let asked = key as f64 / keys.max(1) as f64;
        there.map_or(asked, |there| (asked + there.before(key) as f64 / there.count as f64) / 2.0)
    };
    let (mut starts, mut next) = (Vec::with_capacity(ranges), 0.0);
    for key in 0..keys {
        if starts.is_empty() || measure(key) >= next {
            starts.push(key);
            next = measure(key) + 1.0 / ranges.max(1) as f64;
        }
    }
    starts
}

fn range(part: &[SampledKey], classes: usize, sampled: f64) -> RangeModel {
    let (mut keys, mut sums) = (vec![0_usize; classes], [0_u64; 4]);
    for key in part {
        keys[class(key.accesses())] += 1;
        let kinds = [key.reads, key.writes, key.deletes, key.scans];
        sums.iter_mut().zip(kinds).for_each(|(sum, count)| *sum += u64::from(count));
    }
    let whole = sums.iter().sum::<u64>().max(1);
    RangeModel {
        keys: keys.into_iter().map(|keys| scaled(keys, sampled)).collect(),
        mix: sums.map(|sum| (sum * 100 + whole / 2) / whole),
        ..RangeModel::default()
    }
}

/// The activity of ranges over time.
struct Drift {
    /// Of each range, accesses in each phase.
    counts: Vec<[f64; PHASES]>,
    /// The share of all accesses in each phase.
    shares: [f64; PHASES],
}

impl Drift {
    /// `None` where it does not change more than by chance.
    fn of(keyspace: &KeyspaceAnalysis, starts: &[usize], seen: &Analysis) -> Option<Drift> {
        let phase_of = |slot: usize| {
            let middle = (slot as f64 + 0.5) * seen.slot_ns as f64 / (seen.span_ns.max(1) as f64);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of parts")]
            let phase = (middle * PHASES as f64) as usize;
            phase.min(PHASES - 1)
        };
        let phases: [usize; SLOTS] = std::array::from_fn(phase_of);
        let mut counts = vec![[0.0; PHASES]; starts.len()];
        for (index, counts) in counts.iter_mut().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(keyspace.keys.len());
            for key in &keyspace.keys[starts[index]..end] {
                for (slot, phase) in key.slots.iter().zip(phases) {
                    counts[phase] += f64::from(*slot);
                }
            }
        }
        let mut shares = [0.0; PHASES];
        counts
            .iter()
            .for_each(|range| shares.iter_mut().zip(range).for_each(|(share, count)| *share += count));
        let whole: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= whole.max(1.0));
        // Pearson's statistic, by its degrees of freedom: 1 by chance alone.
        let (mut far, mut freedom) = (0.0, 0.0);
        for range in &counts {
            let sum: f64 = range.iter().sum();
            for (count, share) in range.iter().zip(shares) {
                let expected = sum * share;
                if expected >= 1.0 {
                    (far, freedom) = (far + (count - expected).powi(2) / expected, freedom + 1.0);
                }
            }
        }
        (freedom > 0.0 && far / freedom >= DRIFTS_FROM).then_some(Drift { counts, shares })
    }

    fn phases(&self, range: usize) -> Vec<u64> {
        let counts = &self.counts[range];
        let sum: f64 = counts.iter().sum();
        let activity = counts.iter().zip(self.shares).map(|(count, share)| {
            let (count, expected) = (count + PRIOR / PHASES as f64, sum * share + PRIOR / PHASES as f64);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "percent")]
            let percent = (count / expected * 100.0).round().clamp(1.0, 1e6) as u64;
            percent
        });
        activity.collect()
    }
}

/// How many neighbours are of like hotness: twice the distance at which the likeness of direct
/// neighbours, beyond that of their range, has halved.
fn run(keyspace: &KeyspaceAnalysis, starts: &[usize], sampled: f64, there: Option<&KeysThere>) -> u64 {
    const LAGS: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    let (mut variance, mut alike) = (0.0, [(0.0, 0.0); LAGS.len()]);
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(keyspace.keys.len());
        let places: Vec<u64> = match there {
            Some(there) => (*start..end).map(|key| there.before(key)).collect(),
            None => (0..(end - start) as u64).collect(),
        };
        let (Some(first), Some(last)) = (places.first(), places.last()) else { continue };
        if last - first >= NEIGHBOURS_MAX {
            continue;
        }
        let mut hotness = vec![0.0_f32; usize::try_from(last - first + 1).unwrap_or(0)];
        for (place, key) in places.iter().zip(&keyspace.keys[*start..end]) {
            // Keys that are there no longer share a place with the next one.
            if let Some(hotness) = hotness.get_mut(usize::try_from(place - first).unwrap_or(0)) {
                #[allow(clippy::cast_possible_truncation, reason = "a logarithm")]
                let measured = (1.0 + key.accesses() as f64).log2() as f32;
                *hotness = hotness.max(measured);
            }
        }
        let mean = hotness.iter().sum::<f32>() / hotness.len() as f32;
        hotness.iter_mut().for_each(|hotness| *hotness -= mean);
        variance += hotness.iter().map(|hotness| f64::from(hotness * hotness)).sum::<f64>();
        for (lag, (sum, pairs)) in LAGS.into_iter().zip(&mut alike) {
            let products = hotness.iter().zip(hotness.iter().skip(lag)).map(|(one, other)| one * other);
            *sum += products.map(f64::from).sum::<f64>();
            *pairs += hotness.len().saturating_sub(lag) as f64;
        }
    }
    let (first, pairs) = alike[0];
    if pairs == 0.0 || variance <= 0.0 || first / variance < 0.05 {
        return 1;
    }
    let of_one = first / pairs;
    let half = LAGS.iter().zip(alike).find(|(_, (sum, pairs))| sum / f64::max(*pairs, 1.0) < of_one / 2.0);
    let half = half.map_or(LAGS[LAGS.len() - 1], |(lag, _)| *lag) as f64;
    let scale = if there.is_some() { 1.0 } else { sampled };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of keys")]
    let run = (2.0 * half / scale).round() as u64;
    run.clamp(1, RUN_MAX)
}

/// The correlation of the ranks of hotness and of the size of the value, over keys that were
/// written. Of a key only its newest size is known: weighted by writes, a few hot keys would say it
/// all.
pub(super) fn size_with_hotness(keyspace: &KeyspaceAnalysis) -> f64 {
    let written = keyspace.keys.iter().filter(|key| key.value_bytes > 0 && key.writes > 0);
    let mut sized: Vec<(u32, usize)> = written.map(|key| (key.value_bytes, class(key.accesses()))).collect();
    let mut weights = [0.0; CLASSES];
    sized.iter().for_each(|(_, class)| weights[*class] += 1.0);
    let (scores, variance) = class_scores(&weights);
    if variance < 1e-3 {
        return 0.0;
    }
    sized.sort_unstable();
    let whole = sized.len() as f64;
    let (mut below, mut product, mut squares) = (0.0, 0.0, 0.0);
    for part in sized.chunk_by(|one, other| one.0 == other.0) {
        let weight = part.len() as f64;
        let score = normal_quantile((below + weight / 2.0) / whole);
        product += part.iter().map(|(_, class)| scores[*class] * score).sum::<f64>();
        squares += weight * score * score;
        below += weight;
    }
    if squares <= 0.0 {
        return 0.0;
    }
    let correlation = product / (whole * variance * squares).sqrt();
    let by_chance = f64::max(CORRELATED_FROM, 4.0 / whole.sqrt());
    if correlation.abs() < by_chance { 0.0 } else { rounded(correlation.clamp(-1.0, 1.0)) }
}
