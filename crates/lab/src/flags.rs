//! Flags of db_bench's mixgraph for a model.

use tombolo_workload::fit::{Curve, Sizes, fit_ranks};

use crate::model::{KeyspaceModel, Model, RangeModel, SizesModel};

/// Flags of db_bench's mixgraph that are nearest, and what they cannot say.
#[must_use]
pub fn mixgraph_flags(model: &Model) -> (String, Vec<String>) {
    let mut lost = Vec::new();
    let Some(keyspace) = model.keyspaces.iter().max_by(|one, other| one.share.total_cmp(&other.share)) else {
        return (String::new(), vec!["there is no keyspace".to_owned()]);
    };
    if model.keyspaces.len() > 1 {
        lost.push(format!("{} keyspaces: mixgraph has one, and this is the largest", model.keyspaces.len()));
    }
    let of = |names: &[&str]| -> f64 {
        keyspace
            .mix
            .iter()
            .filter(|share| names.contains(&share.operation.as_str()))
            .map(|share| share.share)
            .sum()
    };
    let (get, put, seek) = (of(&["get", "multi_get"]), of(&["put"]), of(&["scan", "scan_back"]));
    let rest = 1.0 - get - put - seek;
    if rest > 0.001 {
        lost.push(format!("deletes and merges, {:.1} % of operations: they are made puts", rest * 100.0));
    }
    let mut flags = format!(
        "-benchmarks=mixgraph -use_existing_db=true -num={} -reads={} -key_size={:.0} -mix_get_ratio={get:.4} \
        -mix_put_ratio={:.4} -mix_seek_ratio={seek:.4}",
        keys(keyspace),
        model.events,
        keyspace.key_bytes.sizes().map_or(16, |sizes| sizes.quantile(0.5)),
        put + rest.max(0.0),
    );
    let mut pareto = |flag: &str, what: &str, sizes: &SizesModel| match sizes.sizes() {
        Ok(Sizes::Pareto { location, scale, shape, .. }) => {
            flags.push_str(&format!(
                " -{flag}_theta={location:.4} -{flag}_k={shape:.4} -{flag}_sigma={scale:.4}"
            ));
        }
        Ok(other) => {
            lost.push(format!(
                "{what}: mixgraph has generalised Pareto only, and {} fits",
                other.family().name()
            ));
            let mean = other.quantile(0.5);
            flags.push_str(&format!(" -{flag}_theta={mean} -{flag}_k=0 -{flag}_sigma=0.001"));
        }
        Err(_) => {}
    };
    pareto("value", "sizes of values", &keyspace.value_bytes);
    pareto("iter", "lengths of scans", &keyspace.scan_entries);
    if let Some(curve) = range_curve(keyspace) {
        flags.push_str(&curve);
    } else {
        lost.push("hot ranges: no two-term exponential fits".to_owned());
    }
    if model.bursts.is_some() {
        lost.push("bursts: mixgraph has a sine".to_owned());
    }
    if keyspace.access.ranges.iter().any(|line| line.matches('|').count() == 3) {
        lost.push("hot ranges that move: mixgraph's stay".to_owned());
    }
    if keyspace.size_with_hotness != 0.0 {
        lost.push("sizes that go with hotness: mixgraph draws them apart".to_owned());
    }
    lost.push("which ranges are hot, and which keys in them: mixgraph draws both at random".to_owned());
    lost.push("how soon keys come again: mixgraph has no memory".to_owned());
    if let Some(rate) = model.rate {
        flags.push_str(&format!(
            " -sine_mix_rate=true -sine_a={:.3} -sine_b={:.9} -sine_c={:.4} -sine_d={:.3}",
            rate.a, rate.b, rate.c, rate.d
        ));
    }
    (flags, lost)
}

/// The two-term exponential of mixgraph over at most sixty ranges, as flags.
fn range_curve(keyspace: &KeyspaceModel) -> Option<String> {
    let lines: Vec<RangeModel> =
        keyspace.access.ranges.iter().map(|line| RangeModel::parse(line).ok()).collect::<Option<_>>()?;
    let weight = |range: &RangeModel| -> f64 {
        range.keys.iter().zip(&keyspace.access.class_means).map(|(keys, mean)| *keys as f64 * mean).sum()
    };
    let width = lines.len().div_ceil(60).max(1);
    let mut weights: Vec<f64> = lines.chunks(width).map(|part| part.iter().map(weight).sum()).collect();
    let whole: f64 = weights.iter().sum();
    weights.sort_by(|one, other| other.total_cmp(one));
    weights.iter_mut().for_each(|weight| *weight /= whole);
    let fitted = fit_ranks(&weights);
    let curve = fitted.iter().find(|(curve, _)| matches!(curve, Curve::TwoTermExponential(_)))?;
    let [a, b, c, d] = curve.0.parameters().try_into().ok()?;
    let power = key_power(&lines, &keyspace.access.class_means);
    // Of a range, the share `factor · rank^power`: 1 at its last key.
    let factor = (keys(keyspace) as f64 / weights.len() as f64).max(1.0).powf(-power);
    Some(format!(
        " -keyrange_num={} -keyrange_dist_a={a:.6} -keyrange_dist_b={b:.6} -keyrange_dist_c={c:.6} \
        -keyrange_dist_d={d:.6} -key_dist_a={factor:.6} -key_dist_b={power:.4}",
        weights.len()
    ))
}

/// Keys that are there, as far as the model knows.
fn keys(keyspace: &KeyspaceModel) -> u64 {
    let of = |line: &String| {
        RangeModel::parse(line).map_or(0, |range| range.keys.iter().sum::<u64>() + range.cold)
    };
    keyspace.access.ranges.iter().map(of).sum::<u64>().max(keyspace.keys)
}

/// The exponent of `share of accesses = (share of the hottest keys)^exponent`, by least squares of
/// logarithms over the classes.
fn key_power(lines: &[RangeModel], means: &[f64]) -> f64 {
    let cold: u64 = lines.iter().map(|line| line.cold).sum();
    let of = |class: usize| lines.iter().filter_map(|line| line.keys.get(class)).sum::<u64>() as f64;
    let classes: Vec<(f64, f64)> =
        means.iter().enumerate().rev().map(|(class, mean)| (of(class), of(class) * mean)).collect();
    let keys = classes.iter().map(|(keys, _)| keys).sum::<f64>() + cold as f64;
    let accesses: f64 = classes.iter().map(|(_, accesses)| accesses).sum();
    let (mut below, mut sums) = ((0.0, 0.0), (0.0, 0.0));
    for (of_class, accessed) in classes {
        below = (below.0 + of_class, below.1 + accessed);
        if below.0 > 0.0 {
            let (x, y) = ((below.0 / keys.max(1.0)).ln(), (below.1 / accesses.max(1.0)).ln());
            sums = (sums.0 + x * y, sums.1 + x * x);
        }
    }
    if sums.1 > 0.0 { (sums.0 / sums.1).clamp(0.01, 1.0) } else { 1.0 }
}
