//! From an analysis to a model.

mod bursts;
mod ranges;

use tombolo::{Db, ErrorKind};
use tombolo_format::trace::Asked;
use tombolo_workload::fit::{fit_sine, fit_sizes};
use tombolo_workload::sketch::Counts;

use self::bursts::fit_bursts;
pub use self::ranges::KeysThere;
use crate::analysis::{Analysis, Bounds, KeyspaceAnalysis, SampledKey};
use crate::comparison::{Compared, compare, reuse_distance};
use crate::generate::Generator;
use crate::model::{Access, FORM, KeyspaceModel, MODEL_BYTES_MAX, Model, Rate, Share, SizesModel};

/// Ranges of keys, of all keyspaces together.
const RANGES: usize = 640;
/// A sine must explain so much of the variance of rates to be in the model.
const EXPLAINED_MIN: f64 = 0.5;
/// Accesses by recency that are tried.
const RECENT_TRIED: [f64; 7] = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9];
/// Room for the parts that are fitted after the ranges.
const ROOM_BYTES: usize = 64;
/// Most events that are made to try one.
const TRIAL_EVENTS_MAX: u64 = 500_000;

/// Fits a model to what was seen.
///
/// Which share of accesses goes by recency is tried: of several models the one is taken whose
/// miss-ratio curve and access counts are nearest to the measured ones.
#[must_use]
pub fn fit(seen: &Analysis) -> Model {
    fit_among(seen, &[])
}

/// Fits a model to what was seen, where the keys that were there are known: of each keyspace, in
/// the order of the analysis. So the model has the keys that nobody asked for, where they lay.
#[must_use]
pub fn fit_among(seen: &Analysis, there: &[KeysThere]) -> Model {
    let mut ranges = RANGES / seen.keyspaces.len().max(1);
    loop {
        let model = with_ranges(seen, there, ranges.max(8));
        // A page has room for so many: fewer ranges with longer lines.
        let fits = toml::to_string(&model).is_ok_and(|text| text.len() + ROOM_BYTES <= MODEL_BYTES_MAX);
        if fits || ranges <= 8 {
            return with_recency(seen, model);
        }
        ranges = ranges * 3 / 4;
    }
}

fn with_ranges(seen: &Analysis, there: &[KeysThere], ranges: usize) -> Model {
    let total = seen.events.max(1) as f64;
    let distances = cumulative(&seen.reuse.distances());
    let keyspaces = seen.keyspaces.iter().enumerate().map(|(index, keyspace)| {
        let access = Access {
            distances: distances.clone(),
            ..ranges::access(keyspace, seen, ranges, there.get(index))
        };
        KeyspaceModel {
            name: format!("k{index}"),
            share: keyspace.events() as f64 / total,
            size_with_hotness: ranges::size_with_hotness(keyspace),
            access,
            ..sizes_and_mix(keyspace)
        }
    });
    let (rate, points) = rate(seen);
    Model {
        form: FORM,
        origin: seen.header.origin.clone(),
        events: seen.events,
        seconds: seen.seconds(),
        rate,
        bursts: fit_bursts(&points, rate),
        keyspaces: keyspaces.collect(),
    }
}

fn with_recency(seen: &Analysis, mut model: Model) -> Model {
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

/// The keys that a database has now, of each keyspace of an analysis; none of a keyspace that it
/// does not have. Walks over all of them.
///
/// # Errors
/// The database's.
pub fn keys_there(db: &Db, seen: &Analysis) -> tombolo::Result<Vec<KeysThere>> {
    let of = |keyspace: &KeyspaceAnalysis| {
        let mut there = KeysThere::new();
        let found = match db.keyspace(&keyspace.name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(there),
            found => found?,
        };
        let mut cursor = found.cursor::<&[u8]>(..);
        let mut stands = cursor.seek(b"")?;
        while stands {
            there.add(keyspace, cursor.key());
            stands = cursor.next()?;
        }
        Ok(there)
    };
    seen.keyspaces.iter().map(of).collect()
}

/// A figure of the part of a trace that a model was not fitted to.
#[derive(Clone, Debug)]
pub struct HeldOut {
    /// The figure of that part and of what the model makes.
    pub model: Compared,
    /// How far the part that the model was fitted to is from it: what nobody can do much better.
    pub itself: f64,
}

/// Says how far what a model makes is from the part of a trace that it was not fitted to.
#[must_use]
pub fn held_out(fitted_to: &Analysis, rest: &Analysis, model: &Model) -> Vec<HeldOut> {
    let made = Generator::trial(model, 9, rest.events, rest.header.clone(), Bounds::default());
    let itself = compare(rest, fitted_to);
    let far = |what: &str| itself.iter().find(|one| one.what == what).map_or(1.0, |one| one.distance);
    let all = compare(rest, &made).into_iter();
    all.map(|model| HeldOut { itself: far(&model.what), model }).collect()
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
        size_with_hotness: 0.0,
        access: Access::default(),
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
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

/// The rate where a sine fits, and what it was over time.
fn rate(seen: &Analysis) -> (Option<Rate>, Vec<(f64, f64)>) {
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
    let sine = fit_sine(&all).filter(|sine| sine.explained >= EXPLAINED_MIN);
    let rate = sine.map(|sine| Rate {
        a: sine.a,
        b: sine.b,
        c: sine.c,
        d: sine.d,
        explained: rounded(sine.explained),
    });
    (rate, all)
}

#[cfg(test)]
mod tests;
