//! A workload as a model: a page of numbers, without a key of anybody's.
//!
//! Of each keyspace: the mix of operations, sizes, and how the accesses spread over the keys. For
//! that the keys, in their order, are cut into ranges of equally many. In each range they are
//! counted by how often they were accessed, in classes of powers of two. So hot keys lie where they
//! lay, and hot ranges are as hot, for as long as they were: a range's activity is told by eighths
//! of the time where it changes. How soon keys come again is kept as reuse distances, and which
//! share of accesses goes by them.

use serde::{Deserialize, Serialize};
use tombolo_format::trace::Asked;
use tombolo_workload::fit::Sizes;

/// The version of the form.
pub const FORM: u32 = 1;
/// Most bytes of a model.
pub const MODEL_BYTES_MAX: usize = 64 << 10;
/// Parts of the time in which the activity of a range is told apart.
pub const PHASES: usize = 8;
/// Most neighbouring keys of like hotness.
pub const RUN_MAX: u64 = 4096;
/// Classes of access counts: 1, 2 to 3, 4 to 7, and so on.
pub const CLASSES: usize = 16;

/// A model that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("this is no model of a workload: {0}")]
pub struct ModelError(pub String);

/// A workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// [`FORM`].
    pub form: u32,
    /// Where it comes from.
    pub origin: String,
    /// Events of the trace.
    pub events: u64,
    /// Seconds of the trace.
    pub seconds: f64,
    /// Operations in a second over time, where a sine fits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<Rate>,
    /// Times at which more is asked for, where there are some.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bursts: Option<Bursts>,
    /// The keyspaces.
    #[serde(rename = "keyspace")]
    pub keyspaces: Vec<KeyspaceModel>,
}

/// `a·sin(b·t + c) + d`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// How far it rises above the mean.
    pub a: f64,
    /// Radians in a second.
    pub b: f64,
    /// Radians at the start.
    pub c: f64,
    /// The mean.
    pub d: f64,
    /// The share of the variance that it explains.
    pub explained: f64,
}

/// Times at which more is asked for than the rate says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// How many times as much as between them.
    pub factor: f64,
    /// How long one takes in the mean, in seconds.
    pub seconds: f64,
    /// From the start of one to that of the next in the mean, in seconds.
    pub every: f64,
}

/// Of one keyspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyspaceModel {
    /// A name of its own: `k0`, `k1`, …
    pub name: String,
    /// Its share of all events.
    pub share: f64,
    /// Distinct keys that were accessed.
    pub keys: u64,
    /// Shares of operations, by name.
    pub mix: Vec<Share>,
    /// The share of reads that find nothing.
    pub missing: f64,
    /// Sizes of keys.
    pub key_bytes: SizesModel,
    /// Sizes of values that are written.
    pub value_bytes: SizesModel,
    /// Entries of scans.
    pub scan_entries: SizesModel,
    /// How values of hotter keys differ in size: the correlation of ranks, from -1 to 1.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub size_with_hotness: f64,
    /// How accesses spread.
    pub access: Access,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

fn one() -> u64 {
    1
}

/// The share of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its name.
    pub operation: String,
    /// Its share.
    pub share: f64,
}

/// How accesses spread over keys and time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Of each range of keys, in their order: keys of each class; shares of its accesses that read,
    /// write, delete and scan, in percent; keys that nobody asked for, where they are known; and
    /// its activity in eighths of the time, in percent of its mean, where it changes.
    pub ranges: Vec<String>,
    /// How many neighbouring keys of a range are of like hotness.
    #[serde(default = "one")]
    pub run: u64,
    /// Mean accesses of a key of each class.
    pub class_means: Vec<f64>,
    /// The share of accesses that go to a key by how recently it was accessed.
    pub recent: f64,
    /// Of those: distances in distinct keys, with the share up to there.
    pub distances: Vec<(u64, f64)>,
}

/// A distribution of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizesModel {
    /// The family.
    pub family: String,
    /// Its parameters.
    pub parameters: Vec<f64>,
    /// Of measured quantiles: numbers with the share up to there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub steps: Vec<(u64, f64)>,
    /// The greatest distance of the distribution functions.
    pub distance: f64,
}

impl SizesModel {
    /// Of a distribution.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "sizes")]
    pub fn new(sizes: &Sizes, distance: f64) -> SizesModel {
        let (parameters, steps) = match sizes {
            Sizes::Constant(only) => (vec![*only as f64], Vec::new()),
            Sizes::Pareto { location, scale, shape, most }
            | Sizes::Weibull { location, scale, shape, most } => {
                (vec![*location, *scale, *shape, *most as f64], Vec::new())
            }
            Sizes::Lognormal { location, mean, deviation, most } => {
                (vec![*location, *mean, *deviation, *most as f64], Vec::new())
            }
            Sizes::Mixture { location, share, first, second, most } => {
                let [mean, deviation] = *first;
                let [other, other_deviation] = *second;
                (vec![*location, *share, mean, deviation, other, other_deviation, *most as f64], Vec::new())
            }
            Sizes::Quantiles(steps) => (Vec::new(), steps.clone()),
        };
        SizesModel { family: sizes.family().name().to_owned(), parameters, steps, distance }
    }

    /// The distribution.
    ///
    /// # Errors
    /// For a family that is not known, and parameters that it cannot have.
    pub fn sizes(&self) -> Result<Sizes, ModelError> {
        let wrong = || ModelError(format!("sizes of the family {:?}: {:?}", self.family, self.parameters));
        if self.parameters.iter().any(|parameter| !parameter.is_finite()) {
            return Err(wrong());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes")]
        let whole = |number: f64| number.clamp(0.0, 1e15) as u64;
        Ok(match (self.family.as_str(), &self.parameters[..]) {
            ("constant", [only]) => Sizes::Constant(whole(*only)),
            ("pareto", [location, scale, shape, most]) if *scale > 0.0 => {
                Sizes::Pareto { location: *location, scale: *scale, shape: *shape, most: whole(*most) }
            }
            ("weibull", [location, scale, shape, most]) if *scale > 0.0 && *shape > 0.0 => {
                Sizes::Weibull { location: *location, scale: *scale, shape: *shape, most: whole(*most) }
            }
            ("lognormal", [location, mean, deviation, most]) if *deviation > 0.0 => Sizes::Lognormal {
                location: *location,
                mean: *mean,
                deviation: *deviation,
                most: whole(*most),
            },
            ("mixture", [location, share, mean, deviation, other, other_deviation, most])
                if *share > 0.0 && *share < 1.0 && *deviation > 0.0 && *other_deviation > 0.0 =>
            {
                Sizes::Mixture {
                    location: *location,
                    share: *share,
                    first: [*mean, *deviation],
                    second: [*other, *other_deviation],
                    most: whole(*most),
                }
            }
            ("quantiles", [])
                if !self.steps.is_empty() && self.steps.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) =>
            {
                Sizes::Quantiles(self.steps.clone())
            }
            _ => return Err(wrong()),
        })
    }
}

/// One range of keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RangeModel {
    /// Keys of each class.
    pub keys: Vec<u64>,
    /// Percent of accesses that read, write, delete and scan.
    pub mix: [u64; 4],
    /// Keys that nobody asked for.
    pub cold: u64,
    /// Its activity in each phase, in percent of its mean; empty where it does not change.
    pub phases: Vec<u64>,
}

impl RangeModel {
    /// As a line: keys of the classes, a bar, the mix, and what else is known behind more bars.
    #[must_use]
    pub fn line(&self) -> String {
        let join = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let mut line = format!("{} | {}", join(&self.keys), join(&self.mix));
        if self.cold > 0 || !self.phases.is_empty() {
            line.push_str(&format!(" | {}", self.cold));
        }
        if !self.phases.is_empty() {
            line.push_str(&format!(" | {}", join(&self.phases)));
        }
        line
    }

    /// Of a line.
    ///
    /// # Errors
    /// For a line that is none.
    pub fn parse(line: &str) -> Result<RangeModel, ModelError> {
        let wrong = || ModelError(format!("a range of keys: {line:?}"));
        let numbers = |text: &str| {
            let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
            numbers.map_err(|_| wrong())
        };
        let parts: Vec<Vec<u64>> = line.split('|').map(numbers).collect::<Result<_, _>>()?;
        let mut parts = parts.into_iter();
        let (keys, mix) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (cold, phases) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let mix = mix.try_into().map_err(|_| wrong())?;
        let is_known =
            cold.len() <= 1 && (phases.is_empty() || phases.len() == PHASES) && parts.next().is_none();
        let cold = cold.first().copied().unwrap_or(0);
        let is_large = keys.iter().chain([&cold]).any(|keys| *keys > 1 << 40);
        if keys.len() > CLASSES || is_large || !is_known || phases.iter().any(|percent| *percent > 1_000_000)
        {
            return Err(wrong());
        }
        Ok(RangeModel { keys, mix, cold, phases })
    }
}

impl Model {
    /// As a page of TOML.
    ///
    /// # Errors
    /// When it would be longer than [`MODEL_BYTES_MAX`].
    pub fn to_toml(&self) -> Result<String, ModelError> {
        let text = toml::to_string(self).map_err(|error| ModelError(error.to_string()))?;
        if text.len() > MODEL_BYTES_MAX {
            return Err(ModelError(format!("it has {} bytes, of {MODEL_BYTES_MAX} at most", text.len())));
        }
        Ok(text)
    }

    /// Of a page of TOML.
    ///
    /// # Errors
    /// For a page that is no model, with the line.
    pub fn from_toml(text: &str) -> Result<Model, ModelError> {
        if text.len() > 4 * MODEL_BYTES_MAX {
            return Err(ModelError(format!("it has {} bytes", text.len())));
        }
        let model: Model = toml::from_str(text).map_err(|error| ModelError(error.to_string()))?;
        if model.form != FORM {
            return Err(ModelError(format!("its form is {}, and this version knows {FORM}", model.form)));
        }
        if let Some(Bursts { factor, seconds, every }) = model.bursts
            && !((1.0..=1e6).contains(&factor) && seconds > 0.0 && every >= seconds && every.is_finite())
        {
            return Err(ModelError(format!("bursts of {factor}, for {seconds} s every {every} s")));
        }
        for keyspace in &model.keyspaces {
            for sizes in [&keyspace.key_bytes, &keyspace.value_bytes, &keyspace.scan_entries] {
                sizes.sizes()?;
            }
            for share in &keyspace.mix {
                Asked::from_name(&share.operation)
                    .ok_or_else(|| ModelError(format!("there is no operation {:?}", share.operation)))?;
            }
            keyspace.access.ranges.iter().try_for_each(|line| RangeModel::parse(line).map(drop))?;
            if !(1..=RUN_MAX).contains(&keyspace.access.run)
                || !(-1.0..=1.0).contains(&keyspace.size_with_hotness)
            {
                let (run, of_size) = (keyspace.access.run, keyspace.size_with_hotness);
                return Err(ModelError(format!("a run of {run} keys, and size with hotness {of_size}")));
            }
            if keyspace.access.class_means.len() > CLASSES {
                return Err(ModelError(format!("more than {CLASSES} classes of access counts")));
            }
        }
        Ok(model)
    }
}
