//! Figures of the paper, made again.

use tombolo_format::trace::{Header, TracedKeys};
use tombolo_workload::fit::{Sine, fit_sine};

use crate::analysis::{Analysis, Bounds, KeyspaceAnalysis, SampledKey};
use crate::fitting::fit;
use crate::generate::Generator;
use crate::model::{Model, ModelError};
use crate::presets::preset;

/// One distance of a figure, and what it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounded {
    /// Of what.
    pub what: &'static str,
    /// The distance.
    pub distance: f64,
    /// The most that it may be.
    pub bound: f64,
}

/// Figure 15: a workload like UDB's associations, with its shares of 0.806, 0.159 and 0.035 and a
/// sine of a rate, is made, fitted, and made again of the fitted model. The sizes of values,
/// accesses of keys and lengths of scans of both are compared by the greatest distance of their
/// distribution functions, and the rates at every second by the mean rate.
///
/// # Errors
/// For numbers of which no workload can be made.
pub fn figure15(events: u64, keys: u64, seconds: u64) -> Result<Vec<Bounded>, ModelError> {
    let per_second = events as f64 / seconds.max(1) as f64;
    let truth = preset("udb-assoc", keys, per_second)
        .ok_or_else(|| ModelError("the preset udb-assoc is not there".to_owned()))?;
    let reference = made(&truth, 1, events)?;
    let again = made(&fit(&reference), 2, events)?;
    let (Some(first), Some(second)) = (reference.keyspaces.first(), again.keyspaces.first()) else {
        return Err(ModelError("no events were made".to_owned()));
    };
    let accesses = |keyspace: &KeyspaceAnalysis| keyspace.access_counts(SampledKey::accesses);
    let rates = match (sine(first), sine(second)) {
        (Some(one), Some(other)) => {
            let far = (0..seconds).map(|second| (one.at(second as f64) - other.at(second as f64)).abs());
            far.fold(0.0, f64::max) / one.d.max(1e-9)
        }
        _ => 1.0,
    };
    let bounded = |what, distance, bound| Bounded { what, distance, bound };
    Ok(vec![
        bounded("sizes of values", first.value_bytes.distance(&second.value_bytes), 0.02),
        bounded("accesses of keys", accesses(first).distance(&accesses(second)), 0.02),
        bounded("lengths of scans", first.scan_entries.distance(&second.scan_entries), 0.02),
        bounded("rate", rates, 0.02),
    ])
}

fn sine(keyspace: &KeyspaceAnalysis) -> Option<Sine> {
    fit_sine(&keyspace.reads.rates().collect::<Vec<_>>())
}

fn made(model: &Model, seed: u64, events: u64) -> Result<Analysis, ModelError> {
    Generator::new(model, seed)?;
    let header = Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: model.origin.clone(),
    };
    Ok(Generator::trial(model, seed, events, header, Bounds::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_figure_is_not_far_from_its_bounds() {
        // Of fewer events distances are wider: some times the bounds.
        for one in figure15(20_000, 10_000, 600).unwrap() {
            assert!(one.distance < 8.0 * one.bound, "{one:?}");
        }
    }
}
