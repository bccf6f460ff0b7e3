//! From an analysis to a model.

use tombolo_format::trace::Asked;
use tombolo_workload::fit::{fit_sine, fit_sizes};
use tombolo_workload::sketch::Counts;

use crate::analysis::{Analysis, Bounds, KeyspaceAnalysis, SampledKey};
use crate::comparison::reuse_distance;
use crate::generate::Generator;
use crate::model::{Access, CLASSES, FORM, KeyspaceModel, Model, RangeModel, Rate, Share, SizesModel};

/// Ranges of keys, of all keyspaces together.
const RANGES: usize = 640;
/// A sine must explain so much of the variance of rates to be in the model.
const EXPLAINED_MIN: f64 = 0.5;
/// Accesses by recency that are tried.
const RECENT_TRIED: [f64; 7] = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9];
/// Most events that are made to try one.
const TRIAL_EVENTS_MAX: u64 = 500_000;

/// Fits a model to what was seen.
///
/// Which share of accesses goes by recency is tried: of several models the one is taken whose
/// miss-ratio curve and access counts are nearest to the measured ones.
#[must_use]
pub fn fit(seen: &Analysis) -> Model {
    let total = seen.events.max(1) as f64;
    let ranges = (RANGES / seen.keyspaces.len().max(1)).max(8);
    let distances = cumulative(&seen.reuse.distances());
    let keyspaces: Vec<KeyspaceModel> = seen
        .keyspaces
        .iter()
        .enumerate()
        .map(|(index, keyspace)| KeyspaceModel {
            name: format!("k{index}"),
            share: keyspace.events() as f64 / total,
            access: access(keyspace, seen.sampled, ranges, &distances),
            ..sizes_and_mix(keyspace)
        })
        .collect();
    let mut model = Model {
        form: FORM,
        origin: seen.header.origin.clone(),
        events: seen.events,
        seconds: seen.seconds(),
        rate: rate(seen),
        keyspaces,
    };
    let mut best = (f64::INFINITY, 0.0);
    let events = seen.events.min(TRIAL_EVENTS_MAX);
    for recent in RECENT_TRIED {
        model.keyspaces.iter_mut().for_each(|keyspace| keyspace.access.recent = recent);
        let trial = Generator::trial(&model, 7, events, seen.header.clone(), Bounds::default());
        let far = reuse_distance(&seen.reuse, &trial.reuse) + counts_distance(seen, &trial);
        if far < best.0 {
            best = (far, recent);
        }
    }
    model.keyspaces.iter_mut().for_each(|keyspace| keyspace.access.recent = best.1);
    model
}

/// How far access counts are apart, on the mean of keyspaces by their events. Counts of a part of a
/// trace are others than those of the whole: then nothing is said.
fn counts_distance(seen: &Analysis, trial: &Analysis) -> f64 {
    if trial.events < seen.events {
        return 0.0;
    }
    let both = seen.keyspaces.iter().zip(&trial.keyspaces);
    let far = both.map(|(one, other)| {
        let of = |keyspace: &KeyspaceAnalysis| keyspace.access_counts(SampledKey::accesses);
        of(one).distance(&of(other)) * one.events() as f64 / seen.events.max(1) as f64
    });
    far.sum()
}

fn sizes_and_mix(keyspace: &KeyspaceAnalysis) -> KeyspaceModel {
    let model = |counts: &Counts| {
        let fitted = fit_sizes(counts);
        SizesModel::new(&fitted.sizes, rounded(fitted.distance))
    };
    let whole = keyspace.events().max(1) as f64;
    let mix = Asked::ALL
        .iter()
        .filter(|asked| keyspace.of(**asked) > 0)
        .map(|asked| Share { operation: asked.name().to_owned(), share: keyspace.of(*asked) as f64 / whole });
    let told = keyspace.found[0] + keyspace.found[1];
    // Values that are only read have the sizes that were read.
    let values = if keyspace.value_bytes.count() > 0 { &keyspace.value_bytes } else { &keyspace.read_bytes };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate of a number")]
    let keys = keyspace.distinct_keys.round().max(1.0) as u64;
    KeyspaceModel {
        name: String::new(),
        share: 0.0,
        keys,
        mix: mix.collect(),
        missing: keyspace.found[1] as f64 / told.max(1) as f64,
        key_bytes: model(&keyspace.key_bytes),
        value_bytes: model(values),
        scan_entries: model(&keyspace.scan_entries),
        access: Access { ranges: Vec::new(), class_means: Vec::new(), recent: 0.0, distances: Vec::new() },
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// The class of a number of accesses.
fn class(accesses: u64) -> usize {
    (63 - accesses.max(1).leading_zeros() as usize).min(CLASSES - 1)
}

fn access(keyspace: &KeyspaceAnalysis, sampled: f64, ranges: usize, distances: &[(u64, f64)]) -> Access {
    let mut sums = [(0.0, 0.0); CLASSES];
    for key in &keyspace.keys {
        let sum = &mut sums[class(key.accesses())];
        sum.0 += key.accesses() as f64;
        sum.1 += 1.0;
    }
    let used = sums.iter().rposition(|(_, keys)| *keys > 0.0).map_or(0, |last| last + 1);
    let means = sums[..used].iter().map(|(sum, keys)| if *keys > 0.0 { rounded(sum / keys) } else { 0.0 });
    let width = keyspace.keys.len().div_ceil(ranges).max(1);
    let lines = keyspace.keys.chunks(width).map(|part| range(part, used, sampled).line());
    Access {
        ranges: lines.collect(),
        class_means: means.collect(),
        recent: 0.0,
        distances: distances.to_vec(),
    }
}

fn range(part: &[SampledKey], classes: usize, sampled: f64) -> RangeModel {
    let (mut keys, mut sums) = (vec![0_u64; classes], [0_u64; 4]);
    for key in part {
        keys[class(key.accesses())] += 1;
        let kinds = [key.reads, key.writes, key.deletes, key.scans];
        sums.iter_mut().zip(kinds).for_each(|(sum, count)| *sum += u64::from(count));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of keys")]
    keys.iter_mut().for_each(|keys| *keys = (*keys as f64 / sampled).round() as u64);
    let whole = sums.iter().sum::<u64>().max(1);
    RangeModel { keys, mix: sums.map(|sum| (sum * 100 + whole / 2) / whole) }
}

/// Shares that rise to 1, of at most some sixty distances.
fn cumulative(shares: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let whole: f64 = shares.iter().map(|(_, share)| share).sum();
    if whole <= 0.0 {
        return Vec::new();
    }
    let (mut sum, mut given, mut points) = (0.0, 0.0, Vec::new());
    for (distance, share) in shares {
        sum += share / whole;
        if sum - given >= 1.0 / 64.0 || sum > 1.0 - 1e-9 {
            points.push((*distance, rounded(sum.min(1.0))));
            given = sum;
        }
    }
    points
}

fn rate(seen: &Analysis) -> Option<Rate> {
    let mut all: Vec<(f64, f64)> = Vec::new();
    for keyspace in &seen.keyspaces {
        for series in [&keyspace.reads, &keyspace.writes] {
            for (index, (time, rate)) in series.rates().enumerate() {
                match all.get_mut(index) {
                    Some((at, sum)) if (*at - time).abs() < 1e-9 => *sum += rate,
                    // Series of another width: it began or ended at another time.
                    Some(_) => {}
                    None => all.push((time, rate)),
                }
            }
        }
    }
    let sine = fit_sine(&all).filter(|sine| sine.explained >= EXPLAINED_MIN)?;
    Some(Rate { a: sine.a, b: sine.b, c: sine.c, d: sine.d, explained: rounded(sine.explained) })
}

#[cfg(test)]
mod tests;
