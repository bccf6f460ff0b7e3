//! A workload made from a model.
//!
//! A key is drawn by its class and range, or by how recently it was accessed. Keys are numbers in
//! order, so that ranges lie beside each other as they did.

mod recent;

use rand::Rng;
use tombolo_format::checksum::mix64;
use tombolo_format::trace::{Asked, Event, Header};
use tombolo_workload::fit::Sizes;
use tombolo_workload::{Random, random};

use self::recent::Recent;
use crate::analysis::{Analyser, Analysis, Bounds};
use crate::model::{KeyspaceModel, Model, ModelError, RangeModel};

/// Keys of a keyspace that are remembered for recency.
const REMEMBERED_MAX: usize = 1 << 18;

/// Draws the events of a model.
#[derive(Debug)]
pub struct Generator {
    keyspaces: Vec<KeyspaceGenerator>,
    /// Ends of their shares; the last is 1.
    ends: Vec<f64>,
    random: Random,
    rate: Option<crate::model::Rate>,
    events_per_second: f64,
    time_ns: f64,
    key: Vec<u8>,
}

#[derive(Debug)]
struct KeyspaceGenerator {
    id: u32,
    name: String,
    ranges: Vec<Drawn>,
    /// Ends of the weights of ranges and classes: (end, range, class).
    weights: Vec<(f64, u32, u32)>,
    /// Of each, how often it was drawn from.
    drawn: Vec<u64>,
    /// Operations of each kind (reads, writes, deletes, scans) with ends of their shares.
    kinds: [Vec<(f64, Asked)>; 4],
    mix: [f64; 4],
    missing: f64,
    key_bytes: Sizes,
    value_bytes: Sizes,
    scan_entries: Sizes,
    recent_share: f64,
    distances: Vec<(u64, f64)>,
    recent: Recent,
    keys: u64,
    /// Whether keys are longer than their numbers.
    has_tails: bool,
}

/// A range of keys that is drawn from.
#[derive(Debug)]
struct Drawn {
    /// The number of its first key.
    first: u64,
    /// Keys.
    keys: u64,
    /// Keys before each class.
    before: Vec<u64>,
    /// How much more often each kind is asked for here than on the whole.
    mix: [f64; 4],
}

fn kind_of(asked: Asked) -> usize {
    match asked {
        Asked::Get | Asked::MultiGet | Asked::Block => 0,
        Asked::Put | Asked::Merge => 1,
        Asked::Delete | Asked::SingleDelete | Asked::RangeDelete => 2,
        Asked::Scan | Asked::ScanBack => 3,
    }
}

/// A number in `0..count`, every one once: where a key of a rank lies in its range.
fn scattered(rank: u64, count: u64, seed: u64) -> u64 {
    // A walk by a step that has no factor in common with the count.
    let mut step = (mix64(seed) % count.max(1)) | 1;
    while gcd(step, count) != 1 {
        step += 2;
    }
    let place = u128::from(rank) * u128::from(step) + u128::from(mix64(seed ^ 1));
    u64::try_from(place % u128::from(count.max(1))).unwrap_or(0)
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[allow(clippy::cast_precision_loss, reason = "shares and weights")]
impl KeyspaceGenerator {
    fn new(id: u32, model: &KeyspaceModel) -> Result<KeyspaceGenerator, ModelError> {
        let lines = model.access.ranges.iter().map(|line| RangeModel::parse(line));
        let lines: Vec<RangeModel> = lines.collect::<Result<_, _>>()?;
        let (mut ranges, mut weights, mut sum, mut first) = (Vec::new(), Vec::new(), 0.0, 0);
        for (index, line) in lines.iter().enumerate() {
            let mut before = Vec::with_capacity(line.keys.len());
            let mut keys = 0;
            for (class, count) in line.keys.iter().enumerate() {
                before.push(keys);
                keys += count;
                let weight = *count as f64 * model.access.class_means.get(class).copied().unwrap_or(0.0);
                if weight > 0.0 {
                    sum += weight;
                    let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
                    weights.push((sum, number(index), number(class)));
                }
            }
            ranges.push(Drawn { first, keys, before, mix: line.mix.map(|percent| percent as f64 / 100.0) });
            first += keys;
        }
        weights.iter_mut().for_each(|(end, ..)| *end /= sum);
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
        if mix.iter().sum::<f64>() <= 0.0 || weights.is_empty() {
            return Err(ModelError(format!("the keyspace {} has no operations", model.name)));
        }
        Ok(KeyspaceGenerator {
            id,
            name: model.name.clone(),
            has_tails: model.key_bytes.sizes()?.quantile(0.0) > 8,
            ranges,
            drawn: vec![0; weights.len()],
            weights,
            kinds,
            mix,
            missing: model.missing,
            key_bytes: model.key_bytes.sizes()?,
            value_bytes: model.value_bytes.sizes()?,
            scan_entries: model.scan_entries.sizes()?,
            recent_share: model.access.recent,
            distances: model.access.distances.clone(),
            recent: Recent::new(REMEMBERED_MAX),
            keys: first.max(1),
        })
    }

    /// The next key's number.
    fn number(&mut self, random: &mut Random) -> u64 {
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
        let at = self.weights.partition_point(|(end, ..)| *end < drawn).min(self.weights.len() - 1);
        let (_, range, class) = self.weights[at];
        let range_index = u64::from(range);
        let (range, class) = (&self.ranges[range as usize], class as usize);
        let after = range.before.get(class + 1).copied().unwrap_or(range.keys);
        let count = (after - range.before[class]).max(1);
        let place = match class {
            // Keys that came once or a few times come as often again, in turn: drawn at random, a
            // third of those that came once would not come at all.
            0 | 1 => self.drawn[at] % count,
            _ => random.random_range(0..count),
        };
        self.drawn[at] += 1;
        let rank = range.before[class] + place;
        let number = range.first + scattered(rank, range.keys, range_index);
        self.recent.access(number);
        number
    }

    /// The operation on a key: as its range's accesses go, within the mix of the whole.
    fn asked(&self, number: u64, random: &mut Random) -> Asked {
        let at = self.ranges.partition_point(|range| range.first <= number).saturating_sub(1);
        let local = self.ranges.get(at).map_or(self.mix, |range| range.mix);
        let local = if local.iter().sum::<f64>() > 0.0 { local } else { self.mix };
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
        let drawn: f64 = random.random();
        let kind = &self.kinds[kind];
        let at = kind.partition_point(|(end, _)| *end < drawn).min(kind.len().saturating_sub(1));
        kind.get(at).map_or(Asked::Get, |(_, asked)| *asked)
    }

    /// A key's bytes: its number, in a size that the key always has.
    fn key(&self, number: u64, key: &mut Vec<u8>) {
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

impl Generator {
    /// Of a model; the same seed draws the same events.
    ///
    /// # Errors
    /// For a model that asks for nothing.
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    pub fn new(model: &Model, seed: u64) -> Result<Generator, ModelError> {
        let (mut keyspaces, mut ends, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for (index, keyspace) in model.keyspaces.iter().enumerate() {
            keyspaces.push(KeyspaceGenerator::new(u32::try_from(index).unwrap_or(u32::MAX), keyspace)?);
            sum += keyspace.share;
            ends.push(sum);
        }
        if keyspaces.is_empty() || sum <= 0.0 {
            return Err(ModelError("it has no keyspace that is accessed".to_owned()));
        }
        ends.iter_mut().for_each(|end| *end /= sum);
        let seconds = if model.seconds > 0.0 { model.seconds } else { 1.0 };
        Ok(Generator {
            keyspaces,
            ends,
            random: random(seed, 0),
            rate: model.rate,
            events_per_second: (model.events as f64 / seconds).max(1e-9),
            time_ns: 0.0,
            key: Vec::new(),
        })
    }

    /// Number and name of the keyspaces.
    pub fn names(&self) -> impl Iterator<Item = (u32, &str)> {
        self.keyspaces.iter().map(|keyspace| (keyspace.id, keyspace.name.as_str()))
    }

    /// The next event. Its key is lent until the one after it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time, and sizes")]
    pub fn draw(&mut self) -> Event<'_> {
        let drawn: f64 = self.random.random();
        let at = self.ends.partition_point(|end| *end < drawn).min(self.keyspaces.len() - 1);
        let keyspace = &mut self.keyspaces[at];
        let number = keyspace.number(&mut self.random);
        let asked = keyspace.asked(number, &mut self.random);
        keyspace.key(number, &mut self.key);
        let is_read = matches!(asked, Asked::Get | Asked::MultiGet);
        if is_read && self.random.random::<f64>() < keyspace.missing {
            // A key between two others, which nobody writes.
            match self.key.last_mut() {
                Some(last) if keyspace.has_tails => *last ^= 0xff,
                _ => self.key.push(0),
            }
        }
        let rate = match &self.rate {
            Some(rate) => {
                let seconds = self.time_ns / 1e9;
                (rate.a * (rate.b * seconds + rate.c).sin() + rate.d).max(rate.d / 100.0)
            }
            None => self.events_per_second,
        };
        let time_ns = self.time_ns as u64;
        self.time_ns += -(1.0 - self.random.random::<f64>()).ln() * 1e9 / rate.max(1e-9);
        let size = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (value_bytes, entries) = match asked {
            Asked::Put | Asked::Merge => (size(keyspace.value_bytes.draw(&mut self.random)), 0),
            Asked::Scan | Asked::ScanBack => (0, size(keyspace.scan_entries.draw(&mut self.random))),
            _ => (0, 0),
        };
        Event { value_bytes, entries, ..Event::new(time_ns, asked, keyspace.id, &self.key) }
    }

    /// Each key of all keyspaces, in order, with the size of its value: what was there before.
    pub fn load(&self, mut each: impl FnMut(u32, &[u8], u32) -> bool) {
        let (mut key, mut random) = (Vec::new(), random(1, 1));
        for keyspace in &self.keyspaces {
            for number in 0..keyspace.keys {
                keyspace.key(number, &mut key);
                let bytes = u32::try_from(keyspace.value_bytes.draw(&mut random)).unwrap_or(u32::MAX);
                if !each(keyspace.id, &key, bytes) {
                    return;
                }
            }
        }
    }

    /// What so many events of a model look like; nothing of a model that asks for nothing.
    #[must_use]
    pub fn trial(model: &Model, seed: u64, events: u64, header: Header, bounds: Bounds) -> Analysis {
        let mut analyser = Analyser::new(header, bounds);
        if let Ok(mut generator) = Generator::new(model, seed) {
            (0..events).for_each(|_| analyser.add(&generator.draw()));
        }
        analyser.finish()
    }
}

#[cfg(test)]
mod tests;
