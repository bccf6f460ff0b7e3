//! Keys, operations and sizes of one keyspace.

use rand::Rng;
use tombolo_format::checksum::mix64;
use tombolo_format::trace::Asked;
use tombolo_workload::Random;
use tombolo_workload::fit::{Sizes, normal_quantile, normal_share};

use super::placement::Placement;
use super::recent::Recent;
use crate::model::{KeyspaceModel, ModelError, PHASES, RangeModel};

/// Keys of a keyspace that are remembered for recency.
const REMEMBERED_MAX: usize = 1 << 18;

#[derive(Debug)]
pub(super) struct KeyspaceGenerator {
    pub(super) id: u32,
    pub(super) name: String,
    ranges: Vec<Drawn>,
    classes: usize,
    /// Of each phase, ends of the weights of ranges and classes: (end, range, class).
    phases: Vec<Vec<(f64, u32, u32)>>,
    /// Of each range and class, how often it was drawn from.
    drawn: Vec<u64>,
    /// Operations of each kind (reads, writes, deletes, scans) with ends of their shares.
    kinds: [Vec<(f64, Asked)>; 4],
    mix: [f64; 4],
    /// Operations of each kind so far.
    done: [f64; 4],
    missing: f64,
    key_bytes: Sizes,
    pub(super) value_bytes: Sizes,
    pub(super) scan_entries: Sizes,
    /// How sizes go with hotness; `None` where they do not.
    sized: Option<SizedByHotness>,
    recent_share: f64,
    distances: Vec<(u64, f64)>,
    recent: Recent,
    pub(super) keys: u64,
    /// Whether keys are longer than their numbers.
    pub(super) has_tails: bool,
}

/// A range of keys that is drawn from.
#[derive(Debug)]
struct Drawn {
    /// The number of its first key.
    first: u64,
    /// Keys that are asked for; those that are not lie among them, and have the last ranks.
    asked: u64,
    /// Keys before each class.
    before: Vec<u64>,
    /// How much more often each kind is asked for here than on the whole.
    mix: [f64; 4],
    placement: Placement,
}

/// Sizes drawn such that their ranks go with the hotness of keys, and their distribution stays.
#[derive(Debug)]
struct SizedByHotness {
    /// Of the normal score of a size over that of its key's class.
    slope: f64,
    /// The normal score of the middle of each class, by the share of accesses.
    scores: Vec<f64>,
    /// The deviation that is left for chance.
    rest: f64,
}

fn kind_of(asked: Asked) -> usize {
    match asked {
        Asked::Get | Asked::MultiGet | Asked::Block => 0,
        Asked::Put | Asked::Merge => 1,
        Asked::Delete | Asked::SingleDelete | Asked::RangeDelete => 2,
        Asked::Scan | Asked::ScanBack => 3,
    }
}

/// The normal score of the middle of each class, by the shares of accesses that go to them, and
/// their variance.
pub(crate) fn class_scores(weights: &[f64]) -> (Vec<f64>, f64) {
    let whole: f64 = weights.iter().sum::<f64>().max(1e-12);
    let (mut below, mut variance, mut scores) = (0.0, 0.0, Vec::with_capacity(weights.len()));
    for weight in weights {
        let share = weight / whole;
        let score = if share > 0.0 { normal_quantile(below + share / 2.0) } else { 0.0 };
        variance += share * score * score;
        scores.push(score);
        below += share;
    }
    (scores, variance)
}

#[allow(clippy::cast_precision_loss, reason = "shares and weights")]
impl KeyspaceGenerator {
    pub(super) fn new(id: u32, model: &KeyspaceModel) -> Result<KeyspaceGenerator, ModelError> {
        let lines = model.access.ranges.iter().map(|line| RangeModel::parse(line));
        let lines: Vec<RangeModel> = lines.collect::<Result<_, _>>()?;
        let means = &model.access.class_means;
        let mean = |class: usize| means.get(class).copied().unwrap_or(0.0);
        let classes = lines.iter().map(|line| line.keys.len()).max().unwrap_or(0);
        let (mut ranges, mut first, mut by_class) = (Vec::new(), 0, vec![0.0; classes]);
        for (seed, line) in (0..).zip(&lines) {
            let mut before = Vec::with_capacity(line.keys.len());
            let mut asked = 0;
            for (class, count) in line.keys.iter().enumerate() {
                before.push(asked);
                asked += count;
                by_class[class] += *count as f64 * mean(class);
            }
            let keys = asked + line.cold;
            let placement = Placement::new(keys, model.access.run, seed);
            let mix = line.mix.map(|percent| percent as f64 / 100.0);
            ranges.push(Drawn { first, asked, before, mix, placement });
            first += keys;
        }
        let drifts = lines.iter().any(|line| !line.phases.is_empty());
        let phases = (0..if drifts { PHASES } else { 1 }).map(|phase| weights(&lines, mean, phase));
        let phases: Vec<_> = phases.collect();
        let mut kinds: [Vec<(f64, Asked)>; 4] = std::array::from_fn(|_| Vec::new());
        let mut mix = [0.0; 4];
        for share in &model.mix {
            let asked = Asked::from_name(&share.operation)
                .ok_or_else(|| ModelError(format!("there is no operation {:?}", share.operation)))?;
            let kind = kind_of(asked);
            mix[kind] += share.share;
            kinds[kind].push((mix[kind], asked));
        }
        for (kind, share) in kinds.iter_mut().zip(mix) {
            kind.iter_mut().for_each(|(end, _)| *end /= share);
        }
        if mix.iter().sum::<f64>() <= 0.0 || phases.iter().any(Vec::is_empty) {
            return Err(ModelError(format!("the keyspace {} has no operations", model.name)));
        }
        let correlation = model.size_with_hotness;
        let sized = (correlation != 0.0).then(|| {
            let (scores, variance) = class_scores(&by_class);
            let slope = correlation / variance.max(1e-6).sqrt();
            SizedByHotness { slope, scores, rest: (1.0 - correlation * correlation).max(0.0).sqrt() }
        });
        Ok(KeyspaceGenerator {
            id,
            name: model.name.clone(),
            has_tails: model.key_bytes.sizes()?.quantile(0.0) > 8,
            drawn: vec![0; ranges.len() * classes],
            ranges,
            classes,
            phases,
            kinds,
            mix,
            done: [0.0; 4],
            missing: model.missing,
            key_bytes: model.key_bytes.sizes()?,
            value_bytes: model.value_bytes.sizes()?,
            scan_entries: model.scan_entries.sizes()?,
            sized,
            recent_share: model.access.recent,
            distances: model.access.distances.clone(),
            recent: Recent::new(REMEMBERED_MAX),
            keys: first.max(1),
        })
    }

    /// The next key's number, in a phase.
    pub(super) fn number(&mut self, phase: usize, random: &mut Random) -> u64 {
        if random.random::<f64>() < self.recent_share {
            let drawn: f64 = random.random();
            let at = self.distances.partition_point(|(_, share)| *share < drawn);
            let least = if at == 0 { 1 } else { self.distances[at - 1].0 + 1 };
            let most = self.distances.get(at).map_or(least, |(distance, _)| *distance).max(least);
            if let Some(number) = self.recent.at_distance(random.random_range(least..=most)) {
                self.recent.access(number);
                return number;
            }
        }
        let drawn: f64 = random.random();
        let weights = &self.phases[phase % self.phases.len()];
        let at = weights.partition_point(|(end, ..)| *end < drawn).min(weights.len() - 1);
        let (_, range, class) = weights[at];
        let counter = &mut self.drawn[range as usize * self.classes + class as usize];
        let (range, class) = (&self.ranges[range as usize], class as usize);
        let after = range.before.get(class + 1).copied().unwrap_or(range.asked);
        let count = (after - range.before[class]).max(1);
        let place = match class {
            // Keys that came once or a few times come as often again, in turn: drawn at random, a
            // third of those that came once would not come at all.
            0 | 1 => *counter % count,
            _ => random.random_range(0..count),
        };
        *counter += 1;
        let number = range.first + range.placement.place(range.before[class] + place);
        self.recent.access(number);
        number
    }

    fn range_of(&self, number: u64) -> Option<&Drawn> {
        self.ranges.get(self.ranges.partition_point(|range| range.first <= number).saturating_sub(1))
    }

    /// The operation on a key: as its range's accesses go, within the mix of the whole.
    pub(super) fn asked(&mut self, number: u64, random: &mut Random) -> Asked {
        let local = self.range_of(number).map_or(self.mix, |range| range.mix);
        let mut local = if local.iter().sum::<f64>() > 0.0 { local } else { self.mix };
        // Keys that come again soon are more often those that are read: what falls behind its share
        // of the whole is asked for more.
        let (whole, asked) = (self.mix.iter().sum::<f64>(), self.done.iter().sum::<f64>());
        for (index, share) in local.iter_mut().enumerate() {
            let due = self.mix[index] / whole * asked;
            *share *= ((due + 10.0) / (self.done[index] + 10.0)).powi(4).clamp(0.1, 10.0);
        }
        let mut drawn = random.random::<f64>() * local.iter().sum::<f64>();
        let mut kind = 0;
        for (index, share) in local.iter().enumerate() {
            if self.kinds[index].is_empty() || *share <= 0.0 {
                continue;
            }
            kind = index;
            if drawn < *share {
                break;
            }
            drawn -= share;
        }
        if self.kinds[kind].is_empty() {
            kind = self.kinds.iter().position(|kind| !kind.is_empty()).unwrap_or(0);
        }
        self.done[kind] += 1.0;
        let drawn: f64 = random.random();
        let kind = &self.kinds[kind];
        let at = kind.partition_point(|(end, _)| *end < drawn).min(kind.len().saturating_sub(1));
        kind.get(at).map_or(Asked::Get, |(_, asked)| *asked)
    }

    /// The size of a key's value.
    pub(super) fn value_bytes(&self, number: u64, random: &mut Random) -> u64 {
        let (Some(sized), Some(range)) = (&self.sized, self.range_of(number)) else {
            return self.value_bytes.draw(random);
        };
        let rank = range.placement.rank(number - range.first);
        // Keys that nobody asks for are as the coldest.
        let class = match range.before.partition_point(|before| *before <= rank) {
            class if rank < range.asked => class.saturating_sub(1),
            _ => 0,
        };
        let score = sized.scores.get(class).copied().unwrap_or(0.0);
        let chance = normal_quantile(random.random());
        self.value_bytes.quantile(normal_share(sized.slope * score + sized.rest * chance))
    }

    /// Whether reads of a key ask for one beside it, which is not there.
    pub(super) fn is_missing(&self, number: u64) -> bool {
        let share = (mix64(number ^ 0x6d69_7373) >> 11) as f64 / (1_u64 << 53) as f64;
        share < self.missing
    }

    /// A key's bytes: its number, in a size that the key always has.
    pub(super) fn key(&self, number: u64, key: &mut Vec<u8>) {
        let share = (mix64(number ^ 0x006b_6579) >> 11) as f64 / (1_u64 << 53) as f64;
        let bytes = usize::try_from(self.key_bytes.quantile(share)).unwrap_or(usize::MAX).clamp(8, 4096);
        key.clear();
        key.extend_from_slice(&number.to_be_bytes());
        while key.len() < bytes {
            let word = mix64(number.wrapping_add(key.len() as u64)).to_be_bytes();
            key.extend_from_slice(&word[..word.len().min(bytes - key.len())]);
        }
    }
}

/// Ends of the weights of ranges and classes in a phase; the last is 1.
#[allow(clippy::cast_precision_loss, reason = "weights")]
fn weights(lines: &[RangeModel], mean: impl Fn(usize) -> f64, phase: usize) -> Vec<(f64, u32, u32)> {
    let (mut weights, mut sum) = (Vec::new(), 0.0);
    for (range, line) in (0..).zip(lines) {
        let activity = line.phases.get(phase).map_or(1.0, |percent| *percent as f64 / 100.0);
        for (class, count) in (0..).zip(&line.keys) {
            let weight = *count as f64 * mean(class as usize) * activity;
            if weight > 0.0 {
                sum += weight;
                weights.push((sum, range, class));
            }
        }
    }
    weights.iter_mut().for_each(|(end, ..)| *end /= sum);
    weights
}
