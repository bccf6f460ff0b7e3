//! Models that nobody has to fit: production databases as published, and YCSB's core workloads.
//!
//! Numbers of UDB, ZippyDB and UP2X are those of Cao et al., "Characterizing, Modeling, and
//! Benchmarking RocksDB Key-Value Workloads at Facebook" (FAST 2020): mixes and access counts of
//! its section 4, sizes of its table 2. Where it shows a figure without numbers (the mixes of five
//! of UDB's keyspaces), ours follow its text.
//!
//! `zippydb-1` to `-4` are the four applications of table 4 in the paper on RocksDB over Tectonic.
//! It has operations and bytes of reads and writes, and says how reads are made. A write there is a
//! batch: its bytes are taken as puts of 1 KiB where one would have more. How hot keys are, the
//! paper does not say: that is ZippyDB's.

use tombolo_workload::fit::Sizes;

use crate::model::{Access, CLASSES, FORM, KeyspaceModel, Model, RangeModel, Rate, Share, SizesModel};

/// Ranges of all keyspaces of a preset.
const RANGES: usize = 480;

/// The names of all presets.
pub const PRESETS: [&str; 14] = [
    "udb",
    "udb-assoc",
    "zippydb",
    "zippydb-1",
    "zippydb-2",
    "zippydb-3",
    "zippydb-4",
    "up2x",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-e",
    "ycsb-f",
];

/// Operations with their shares.
type Mix = &'static [(&'static str, f64)];

/// A keyspace as a preset says it.
struct Said {
    name: &'static str,
    share: f64,
    mix: Mix,
    key_bytes: Sizes,
    value_bytes: Sizes,
    scan_entries: Sizes,
    /// How fast the number of keys falls from one class of access counts to the next.
    falls: f64,
    /// How much hotter a range is than the next one by rank, as an exponent of the rank.
    ranges: f64,
    /// The share of accesses that go by recency.
    recent: f64,
}

fn around(mean: f64, deviation: f64) -> Sizes {
    // A lognormal distribution of that mean and deviation.
    let variance = (1.0 + (deviation / mean).powi(2)).ln();
    let most = 1 << 16;
    Sizes::Lognormal { location: 0.0, mean: mean.ln() - variance / 2.0, deviation: variance.sqrt(), most }
}

fn pareto(scale: f64, shape: f64, most: u64) -> Sizes {
    Sizes::Pareto { location: 0.0, scale, shape, most }
}

/// An application over ZippyDB: values around a mean, and walks over so many of them.
fn application(mix: Mix, value_bytes: u32, entries: u32) -> Said {
    let value = f64::from(value_bytes);
    Said {
        name: "objects",
        share: 1.0,
        mix,
        key_bytes: around(47.9, 3.7),
        value_bytes: around(value, value / 2.0),
        scan_entries: around(f64::from(entries), f64::from(entries) / 2.0),
        falls: 2.0,
        ranges: 1.0,
        recent: 0.1,
    }
}

/// The mixes by keyspace, and a rate where one is published.
fn said(name: &str) -> Option<(Vec<Said>, Option<Rate>)> {
    let day = Rate { a: 0.25, b: 0.010_472, c: 0.0, d: 1.0, explained: 1.0 };
    let scans = || pareto(14.236, 2.517, 10_000);
    let udb = |name: &'static str, share: f64, mix: Mix, key: Sizes, value: Sizes| Said {
        name,
        share,
        mix,
        key_bytes: key,
        value_bytes: value,
        scan_entries: scans(),
        falls: 2.6,
        ranges: 0.8,
        recent: 0.1,
    };
    let assoc = |share| {
        let mix: Mix = &[("get", 0.806), ("put", 0.159), ("scan", 0.035)];
        udb("assoc", share, mix, around(27.1, 2.6), around(126.7, 22.1))
    };
    let ycsb = |mix: Mix| {
        let fields = Sizes::Constant(1000);
        let one = udb("usertable", 1.0, mix, Sizes::Constant(23), fields);
        let lengths = Sizes::Quantiles(
            (1..=50_u32).map(|step| (u64::from(2 * step), f64::from(step) / 50.0)).collect(),
        );
        // Popular keys lie anywhere: no range is hotter than another.
        vec![Said { scan_entries: lengths, falls: 2.0, ranges: 0.0, recent: 0.0, ..one }]
    };
    Some(match name {
        "udb" => {
            let all = vec![
                udb(
                    "object",
                    0.25,
                    &[("get", 0.7), ("put", 0.2), ("delete", 0.05), ("scan", 0.05)],
                    around(24.0, 3.0),
                    pareto(300.0, 0.6, 10_240),
                ),
                udb(
                    "object_2ry",
                    0.02,
                    &[("scan", 0.9), ("put", 0.07), ("delete", 0.03)],
                    around(28.0, 3.0),
                    around(16.0, 4.0),
                ),
                assoc(0.45),
                udb(
                    "assoc_2ry",
                    0.1,
                    &[("scan", 0.5), ("put", 0.35), ("single_delete", 0.15)],
                    around(64.0, 8.0),
                    around(16.0, 4.0),
                ),
                udb(
                    "assoc_count",
                    0.1,
                    &[("get", 0.6), ("put", 0.4)],
                    Sizes::Constant(20),
                    Sizes::Constant(20),
                ),
                udb(
                    "non_sg",
                    0.08,
                    &[("get", 0.6), ("put", 0.25), ("delete", 0.05), ("scan", 0.1)],
                    around(22.0, 4.0),
                    pareto(80.0, 0.4, 10_240),
                ),
            ];
            (all, Some(day))
        }
        "udb-assoc" => (vec![assoc(1.0)], Some(day)),
        "zippydb" => {
            let mix: Mix = &[("get", 0.78), ("put", 0.13), ("delete", 0.06), ("scan", 0.03)];
            let one = udb("objstorage", 1.0, mix, around(47.9, 3.7), around(42.9, 26.1));
            (vec![Said { falls: 2.0, ranges: 1.0, ..one }], None)
        }
        "zippydb-1" => (vec![application(&[("scan", 0.0249), ("put", 0.9751)], 675, 43)], None),
        "zippydb-2" => (vec![application(&[("scan", 0.5432), ("put", 0.4568)], 1024, 9)], None),
        "zippydb-3" => {
            let mix: Mix = &[("scan", 0.0085), ("multi_get", 0.0014), ("put", 0.9901)];
            (vec![application(mix, 1024, 16)], None)
        }
        "zippydb-4" => (vec![application(&[("multi_get", 0.6383), ("put", 0.3617)], 159, 1)], None),
        "up2x" => {
            let one = udb(
                "counters",
                1.0,
                &[("merge", 0.9253), ("get", 0.0746), ("put", 0.0001)],
                around(10.45, 1.4),
                around(46.8, 11.6),
            );
            (vec![Said { falls: 1.6, ranges: 0.5, ..one }], None)
        }
        "ycsb-a" => (ycsb(&[("get", 0.5), ("put", 0.5)]), None),
        "ycsb-b" => (ycsb(&[("get", 0.95), ("put", 0.05)]), None),
        "ycsb-c" => (ycsb(&[("get", 1.0)]), None),
        "ycsb-d" => {
            // The newest keys are read.
            let all = ycsb(&[("get", 0.95), ("put", 0.05)]).into_iter();
            (all.map(|one| Said { recent: 0.6, ..one }).collect(), None)
        }
        "ycsb-e" => (ycsb(&[("scan", 0.95), ("put", 0.05)]), None),
        "ycsb-f" => (ycsb(&[("get", 0.667), ("put", 0.333)]), None),
        _ => return None,
    })
}

/// The model of a preset: of so many keys in all, and operations in a second; `None` for a name
/// that none has. Events are as many as give each key its accesses once.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of keys and events")]
pub fn preset(name: &str, keys: u64, operations_per_second: f64) -> Option<Model> {
    let (said, rate) = said(name)?;
    let ranges = (RANGES / said.len()).max(1);
    let mut events = 0.0;
    let keyspaces: Vec<KeyspaceModel> = said
        .iter()
        .map(|one| {
            let own = (keys as f64 * one.share).max(ranges as f64);
            let access = access(one, own, ranges);
            events += own * access.1;
            KeyspaceModel {
                name: one.name.to_owned(),
                share: one.share,
                keys: own as u64,
                mix: one
                    .mix
                    .iter()
                    .map(|(operation, share)| Share { operation: (*operation).to_owned(), share: *share })
                    .collect(),
                missing: 0.0,
                size_with_hotness: 0.0,
                key_bytes: SizesModel::new(&one.key_bytes, 0.0),
                value_bytes: SizesModel::new(&one.value_bytes, 0.0),
                scan_entries: SizesModel::new(&one.scan_entries, 0.0),
                access: access.0,
            }
        })
        .collect();
    let per_second = operations_per_second.max(1e-3);
    let rate = rate.map(|rate| Rate { a: rate.a * per_second, d: rate.d * per_second, ..rate });
    let origin = format!("the preset {name}");
    let seconds = events / per_second;
    Some(Model { form: FORM, origin, events: events as u64, seconds, rate, bursts: None, keyspaces })
}

/// Keys by range and class, and the mean of their accesses.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of keys")]
fn access(said: &Said, keys: f64, ranges: usize) -> (Access, f64) {
    let means: Vec<f64> = (0..CLASSES.min(12)).map(|class| 1.45 * f64::from(1 << class)).collect();
    let shares: Vec<f64> = (0..means.len()).map(|class| said.falls.powi(-(class as i32))).collect();
    let whole: f64 = shares.iter().sum();
    let per_range = keys / ranges as f64;
    let percent = |names: &[&str]| -> u64 {
        let of = said.mix.iter().filter(|(operation, _)| names.contains(operation));
        (of.map(|(_, share)| share * 100.0).sum::<f64>()).round() as u64
    };
    let mix = [
        percent(&["get", "multi_get"]),
        percent(&["put", "merge"]),
        percent(&["delete", "single_delete"]),
        percent(&["scan", "scan_back"]),
    ];
    let (mut lines, mut accesses, mut all) = (Vec::with_capacity(ranges), 0.0, 0.0);
    for range in 0..ranges {
        // Ranks are mixed over the ranges, by a step that shares no factor with their number.
        let rank = (range * 7919 + 13) % ranges + 1;
        // A hotter range has its keys in higher classes.
        let hotter = (ranges as f64 / rank as f64).powf(said.ranges).log2().floor() as usize;
        let mut counts = vec![0_u64; means.len()];
        for (class, share) in shares.iter().enumerate() {
            counts[(class + hotter.min(4)).min(means.len() - 1)] +=
                (per_range * share / whole).round() as u64;
        }
        for (count, mean) in counts.iter().zip(&means) {
            accesses += *count as f64 * mean;
            all += *count as f64;
        }
        lines.push(RangeModel { keys: counts, mix, ..RangeModel::default() }.line());
    }
    // Powers of two, as reuse distances: recently is within some hundred keys.
    let distances = (0..10).map(|power| (1 << power, f64::from(power + 1) / 10.0)).collect();
    let access = Access { ranges: lines, run: 1, class_means: means, recent: said.recent, distances };
    (access, accesses / f64::max(all, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Generator;

    #[test]
    fn every_preset_is_a_model_that_makes_its_mix() {
        for name in PRESETS {
            let model = preset(name, 20_000, 1000.0).unwrap();
            let model = Model::from_toml(&model.to_toml().unwrap()).unwrap();
            let mut generator = Generator::new(&model, 1).unwrap();
            let mut counts = std::collections::BTreeMap::<_, u32>::new();
            for _ in 0..20_000 {
                let event = generator.draw();
                *counts.entry((event.keyspace, event.asked.name())).or_default() += 1;
            }
            for (number, keyspace) in (0..).zip(&model.keyspaces) {
                for share in &keyspace.mix {
                    let made = counts.get(&(number, share.operation.as_str())).copied().unwrap_or(0);
                    let far = f64::from(made) / 20_000.0 - share.share * keyspace.share;
                    assert!(far.abs() < 0.02, "{name}, {}: {} {far}", keyspace.name, share.operation);
                }
            }
        }
        assert!(preset("nobody", 1, 1.0).is_none());
    }
}
