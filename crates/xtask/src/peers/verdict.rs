//! What the records of all rounds say of a row: medians, ratios, and whether the bar is reached.

use std::collections::BTreeSet;

use super::bars;
use super::device;
use super::record::{Figures, Key, Record};
use super::rows::{self, Bar, LSM_PEERS, Measure};
use super::statistics::{Spread, ratios, spread};

/// One row, judged.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The row.
    pub key: Key,
    /// Its bar.
    pub bar: Option<Bar>,
    /// Each engine's rate, in the order of [`rows::ENGINES`]; `None` without figures.
    pub rates: Vec<(&'static str, Option<Spread>)>,
    /// How many times as good as RocksDB.
    pub to_rocksdb: Option<Spread>,
    /// In rows that wait for the background: bytes written and bytes on the disk, by RocksDB's.
    pub bytes_to_rocksdb: Option<[Spread; 2]>,
    /// The best LSM engine but ours, or the device where a row is about it, and how many times as
    /// good as it.
    pub to_peer: Option<(&'static str, Spread)>,
}

impl Verdict {
    /// Whether the bar against RocksDB, and that against the best peer, is reached; `None` where
    /// there is no bar or no figures.
    pub fn reached(&self) -> [Option<bool>; 2] {
        let Some(bar) = self.bar else { return [None, None] };
        let rocksdb = bar.rocksdb.and_then(|least| Some(self.to_rocksdb?.median >= least));
        [rocksdb, self.to_peer.map(|(_, ratio)| ratio.median >= bar.peer)]
    }

    /// Whether all of its bar is reached; `None` when nothing can be said.
    pub fn is_reached(&self) -> Option<bool> {
        let known: Vec<bool> = self.reached().into_iter().flatten().collect();
        (!known.is_empty()).then(|| known.into_iter().all(|reached| reached))
    }
}

/// By round, what `of` says of an engine's figures in a row.
pub fn by_round(
    records: &[Record],
    key: &Key,
    engine: &str,
    of: impl Fn(&Figures) -> f64,
) -> Vec<(u32, f64)> {
    let mine = records
        .iter()
        .filter(|record| record.engine == engine && record.key == *key && record.failure.is_none());
    mine.map(|record| (record.round, of(&record.figures))).collect()
}

/// All rows that anyone has figures of, in the order in which they were first measured.
pub fn judge(records: &[Record]) -> Vec<Verdict> {
    let mut seen = BTreeSet::new();
    let keys = records.iter().map(|record| &record.key).filter(|key| seen.insert((*key).clone()));
    keys.map(|key| verdict(records, key)).collect()
}

/// Rows in which an engine did not find what the others found: its answers are wrong, or its writes
/// were cut off. Same seeds, so the share of the reads that find something is the same up to
/// chance, which 2 % is far beyond.
pub fn disagreements(records: &[Record]) -> Vec<String> {
    const APART: f64 = 0.02;
    let reads = |record: &&Record| {
        record.key.workload.contains("read")
            || record.key.workload.contains("seek")
            || record.key.workload == "longscan"
            || record.key.workload.starts_with("getmerged")
    };
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let share = |record: &Record| record.figures.found as f64 / record.figures.operations.max(1) as f64;
    let measured: Vec<&Record> =
        records.iter().filter(|record| record.failure.is_none()).filter(reads).collect();
    let odd = |record: &&&Record| {
        let alike = measured.iter().filter(|other| other.key == record.key && other.round == record.round);
        let shares: Vec<f64> = alike.map(|other| share(other)).collect();
        spread(&shares).is_some_and(|shares| (share(record) - shares.median).abs() > APART)
    };
    let text = |record: &&Record| {
        let Key { workload, shape, threads } = &record.key;
        format!(
            "{} round {}, {workload} {shape} x{threads}: found {:.1} % of what it read",
            record.engine,
            record.round,
            100.0 * share(record)
        )
    };
    measured.iter().filter(odd).map(text).collect()
}

fn verdict(records: &[Record], key: &Key) -> Verdict {
    let bar = bars::bar(key);
    // Oriented so that more is better: then one bar fits both measures.
    let good = |figures: &Figures| match bar.map(|bar| bar.measure) {
        Some(Measure::P99) => 1.0 / figures.micros_p99.max(1e-3),
        _ => figures.operations_per_second,
    };
    let rates = rows::ENGINES.iter().map(|engine| {
        let values: Vec<f64> = by_round(records, key, engine, |figures| figures.operations_per_second)
            .into_iter()
            .map(|(_, rate)| rate)
            .collect();
        (*engine, spread(&values))
    });
    let mine = by_round(records, key, "tombolo", good);
    let against = |engine: &str| ratios(&mine, &by_round(records, key, engine, good));
    let goodness = |engine: &str| {
        let values: Vec<f64> =
            by_round(records, key, engine, good).into_iter().map(|(_, value)| value).collect();
        spread(&values).map(|spread| spread.median)
    };
    let peers = if key.shape == rows::DEVICE { &[device::ENGINE] } else { LSM_PEERS };
    let best = peers
        .iter()
        .filter_map(|engine| Some((*engine, goodness(engine)?)))
        .max_by(|one, other| one.1.total_cmp(&other.1));
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    let bytes = |of: fn(&Figures) -> u64| {
        let of = |engine: &str| by_round(records, key, engine, |figures| of(figures) as f64);
        ratios(&of("tombolo"), &of("rocksdb"))
    };
    let is_settled = key.shape == rows::SETTLED;
    let bytes_to_rocksdb =
        || Some([bytes(|figures| figures.bytes_written)?, bytes(|figures| figures.bytes_on_disk)?]);
    Verdict {
        bytes_to_rocksdb: is_settled.then(bytes_to_rocksdb).flatten(),
        key: key.clone(),
        bar,
        rates: rates.collect(),
        to_rocksdb: against("rocksdb"),
        to_peer: best.and_then(|(engine, _)| Some((engine, against(engine)?))),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A record with a rate and a p99.
    pub fn record(engine: &str, key: &Key, round: u32, rate: f64, p99: f64) -> Record {
        let figures =
            Figures { operations: 1, operations_per_second: rate, micros_p99: p99, ..Figures::default() };
        Record {
            engine: engine.to_owned(),
            version: "1.0".to_owned(),
            key: key.clone(),
            round,
            load: 0.1,
            failure: None,
            figures,
        }
    }

    #[test]
    fn the_bar_is_judged_by_medians_of_ratios() {
        let key = Key::new("readrandom", rows::NATURAL, 1);
        let mut records = Vec::new();
        for (round, speed) in [(1, 1.0), (2, 0.5), (3, 2.0)] {
            records.push(record("tombolo", &key, round, 210.0 * speed, 1.0));
            records.push(record("rocksdb", &key, round, 100.0 * speed, 1.0));
            records.push(record("fjall", &key, round, 150.0 * speed, 1.0));
            // LMDB is faster and has no say.
            records.push(record("lmdb", &key, round, 900.0 * speed, 1.0));
        }
        let verdict = judge(&records).remove(0);
        assert_eq!(verdict.to_rocksdb, Some(Spread { median: 2.1, least: 2.1, most: 2.1, interval: None }));
        assert_eq!(verdict.to_peer.map(|(engine, ratio)| (engine, ratio.median)), Some(("fjall", 1.4)));
        assert_eq!(verdict.reached(), [Some(true), Some(false)]);
        assert_eq!(verdict.is_reached(), Some(false));
        assert_eq!(verdict.rates[7].1.map(|spread| spread.median), Some(900.0));
    }

    #[test]
    fn of_latencies_less_is_better() {
        let key = Key::new("readwhilewriting", rows::NATURAL, 1);
        let records = [
            record("tombolo", &key, 1, 1.0, 5.0),
            record("rocksdb", &key, 1, 9.0, 10.0),
            record("fjall", &key, 1, 9.0, 4.0),
        ];
        let verdict = judge(&records).remove(0);
        assert_eq!(verdict.reached(), [Some(true), Some(false)]);
        assert_eq!(verdict.to_peer.map(|(engine, _)| engine), Some("fjall"));
    }

    #[test]
    fn who_finds_something_else_is_told() {
        let (reads, writes) =
            (Key::new("readrandom", rows::NATURAL, 1), Key::new("fillrandom", rows::ACCEPTED, 1));
        let found = |engine: &str, key: &Key, found| {
            let mut record = record(engine, key, 1, 1.0, 1.0);
            (record.figures.operations, record.figures.found) = (1000, found);
            record
        };
        let mut records =
            vec![found("tombolo", &reads, 865), found("rocksdb", &reads, 870), found("fjall", &reads, 630)];
        records.extend([found("tombolo", &writes, 0), found("fjall", &writes, 1000)]);
        let told = disagreements(&records);
        assert!(told.len() == 1 && told[0].contains("fjall") && told[0].contains("63.0 %"), "{told:?}");
    }

    #[test]
    fn what_failed_says_nothing() {
        let key = Key::new("readrandom", rows::NATURAL, 1);
        let mut crashed = record("rocksdb", &key, 1, 0.0, 0.0);
        crashed.failure = Some("signal: 11".to_owned());
        let verdict = judge(&[record("tombolo", &key, 1, 5.0, 1.0), crashed]).remove(0);
        assert_eq!((verdict.to_rocksdb, verdict.is_reached()), (None, None));
        assert!(verdict.rates[1].1.is_none());
    }
}
