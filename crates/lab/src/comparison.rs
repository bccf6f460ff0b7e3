//! How near one workload is to another.

use serde::Serialize;
use tombolo_format::trace::Asked;
use tombolo_workload::reuse::{Reuse, miss_ratio_at};

use crate::analysis::{Analysis, SampledKey};

/// One figure of both.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What.
    pub what: String,
    /// Of the first, and of the second.
    pub first: f64,
    /// See `first`.
    pub second: f64,
    /// How far they are apart, 0 to 1: a distance of distribution functions, or by the first.
    pub distance: f64,
}

/// Mean distance of miss ratios of both, over sizes by powers of the fourth root of two.
#[must_use]
pub fn reuse_distance(one: &Reuse, other: &Reuse) -> f64 {
    let (one, other) = (one.by_items(), other.by_items());
    let most = one.iter().chain(&other).map(|point| point.size).max().unwrap_or(1).max(2);
    let (mut sum, mut count, mut size) = (0.0, 0.0, 1.0_f64);
    while size < most as f64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
        let at = size as u64;
        sum += (miss_ratio_at(&one, at) - miss_ratio_at(&other, at)).abs();
        count += 1.0;
        size *= 1.189_207;
    }
    sum / f64::max(count, 1.0)
}

fn relative(first: f64, second: f64) -> f64 {
    if first == second { 0.0 } else { (second - first).abs() / first.abs().max(second.abs()).max(1e-12) }
}

/// Compares all that two analyses say of the keyspaces that both have, by their places.
#[must_use]
pub fn compare(one: &Analysis, other: &Analysis) -> Vec<Compared> {
    let mut all = Vec::new();
    let mut put = |what: String, first: f64, second: f64, distance: f64| {
        all.push(Compared { what, first, second, distance });
    };
    for (first, second) in one.keyspaces.iter().zip(&other.keyspaces) {
        let name = &first.name;
        for asked in Asked::ALL {
            let share = |seen: &crate::analysis::KeyspaceAnalysis| {
                seen.of(asked) as f64 / seen.events().max(1) as f64
            };
            if first.of(asked) + second.of(asked) > 0 {
                let (first, second) = (share(first), share(second));
                put(format!("{name}: share of {}", asked.name()), first, second, (first - second).abs());
            }
        }
        put(
            format!("{name}: distinct keys"),
            first.distinct_keys,
            second.distinct_keys,
            relative(first.distinct_keys, second.distinct_keys),
        );
        for (what, first, second) in [
            ("bytes of keys", &first.key_bytes, &second.key_bytes),
            ("bytes of values", &first.value_bytes, &second.value_bytes),
            ("entries of scans", &first.scan_entries, &second.scan_entries),
        ] {
            if first.count() + second.count() > 0 {
                put(format!("{name}: {what}"), first.mean(), second.mean(), first.distance(second));
            }
        }
        let (of_first, of_second) =
            (first.access_counts(SampledKey::accesses), second.access_counts(SampledKey::accesses));
        put(
            format!("{name}: accesses of a key"),
            of_first.mean(),
            of_second.mean(),
            of_first.distance(&of_second),
        );
        let hot = (first.hot_set(0.5), second.hot_set(0.5));
        put(format!("{name}: keys that have half the accesses"), hot.0, hot.1, (hot.0 - hot.1).abs());
    }
    put(
        "miss ratios of an LRU cache".to_owned(),
        one.reuse.by_items().last().map_or(1.0, |point| point.ratio),
        other.reuse.by_items().last().map_or(1.0, |point| point.ratio),
        reuse_distance(&one.reuse, &other.reuse),
    );
    all
}
