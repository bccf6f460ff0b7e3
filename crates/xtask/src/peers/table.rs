//! The result at the prompt.

use std::fmt::Write;

use super::record::Record;
use super::rows::{ENGINES, Measure};
use super::statistics::Spread;
use super::verdict::{Verdict, by_round};

/// `1234567` as `1.23M`.
pub fn short(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{:.2}G", value / 1e9),
        _ if value >= 1e6 => format!("{:.2}M", value / 1e6),
        _ if value >= 1e4 => format!("{:.0}k", value / 1e3),
        _ if value >= 1e3 => format!("{:.1}k", value / 1e3),
        _ if value >= 10.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// Rates, ratios and bars.
pub fn rates(verdicts: &[Verdict], engines: &[String]) -> String {
    let drawn: Vec<usize> =
        (0..ENGINES.len()).filter(|index| engines.iter().any(|engine| engine == ENGINES[*index])).collect();
    let mut text = format!("{:<32}", "operations per second");
    for index in &drawn {
        let _ = write!(text, " {:>13}", ENGINES[*index]);
    }
    let _ = writeln!(text, "  {:<34} {:<34}", "to rocksdb", "to the best LSM peer");
    for verdict in verdicts {
        let key = &verdict.key;
        let _ = write!(text, "{:<32}", format!("{} {} x{}", key.workload, key.shape, key.threads));
        for index in &drawn {
            let rate = verdict.rates[*index].1.map_or_else(|| "-".to_owned(), |rate| short(rate.median));
            let _ = write!(text, " {rate:>13}");
        }
        let [rocksdb, peer] = verdict.reached();
        let unit = if verdict.bar.is_some_and(|bar| bar.measure == Measure::P99) { " of p99" } else { "" };
        let first = ratio(verdict.to_rocksdb, verdict.bar.and_then(|bar| bar.rocksdb), rocksdb);
        let second = ratio(verdict.to_peer.map(|(_, ratio)| ratio), verdict.bar.map(|bar| bar.peer), peer);
        let name = verdict.to_peer.map_or("", |(engine, _)| engine);
        let _ = writeln!(text, "  {first:<34} {second:<34} {name}{unit}");
    }
    let judged = verdicts.iter().filter_map(Verdict::is_reached);
    let (reached, all) = judged.fold((0, 0), |(reached, all), is| (reached + u32::from(is), all + 1));
    let _ = writeln!(
        text,
        "\nbars reached: {reached} of {all} rows. Ratios are medians of the rounds' ratios, with the least \
        and the greatest,\nfrom 5 rounds on also the interval in which the median lies with 95 %; + \
        reached, ! not."
    );
    text
}

fn ratio(ratio: Option<Spread>, bar: Option<f64>, reached: Option<bool>) -> String {
    let Some(Spread { median, least, most, interval }) = ratio else { return "-".to_owned() };
    let mark = match reached {
        Some(true) => "+",
        Some(false) => "!",
        None => " ",
    };
    let bar = bar.map(|bar| format!("/{bar}")).unwrap_or_default();
    let interval = interval.map(|(low, high)| format!(" {low:.2}~{high:.2}")).unwrap_or_default();
    format!("{mark}{median:.2}{bar} [{least:.2}-{most:.2}]{interval}")
}

/// Bytes written and kept, which are to be no more than RocksDB's.
pub fn space(verdicts: &[Verdict]) -> String {
    let mut text = format!(
        "{:<32} {:<24} {:<24}\n",
        "bytes by rocksdb's", "written (1 or less)", "on the disk (1 or less)"
    );
    for verdict in verdicts {
        let Some([written, kept]) = verdict.bytes_to_rocksdb else { continue };
        let show = |spread: Spread| ratio(Some(spread), None, Some(spread.median <= 1.0));
        let key = &verdict.key;
        let _ = writeln!(
            text,
            "{:<32} {:<24} {:<24}",
            format!("{} {} x{}", key.workload, key.shape, key.threads),
            show(written),
            show(kept)
        );
    }
    text
}

/// What it cost: CPU, bytes, memory, and by operation the requests to a store that is far away.
pub fn costs(verdicts: &[Verdict], records: &[Record], engines: &[String]) -> String {
    let mut text = format!(
        "{:<32} {:<14} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>5} {:>9}\n",
        "costs (medians)",
        "",
        "p50 us",
        "p99 us",
        "CPU us",
        "MB wrote",
        "MB disk",
        "MB peak",
        "runs",
        "requests"
    );
    for verdict in verdicts {
        for engine in ENGINES.iter().filter(|engine| engines.iter().any(|name| name == *engine)) {
            let median = |of: &dyn Fn(&super::record::Figures) -> f64| {
                let values: Vec<f64> =
                    by_round(records, &verdict.key, engine, of).into_iter().map(|(_, value)| value).collect();
                super::statistics::spread(&values).map(|spread| spread.median)
            };
            let Some(p50) = median(&|figures| figures.micros_p50) else { continue };
            let mega = |of: fn(&super::record::Figures) -> u64| {
                #[allow(clippy::cast_precision_loss, reason = "megabytes for people")]
                let value = median(&|figures| of(figures) as f64 / 1e6);
                value.unwrap_or(0.0)
            };
            #[allow(clippy::cast_precision_loss, reason = "a few runs")]
            let runs = median(&|figures| figures.sorted_runs.map_or(f64::NAN, |runs| runs as f64));
            let requests = median(&|figures| figures.requests_per_operation.unwrap_or(f64::NAN));
            let key = &verdict.key;
            let _ = writeln!(
                text,
                "{:<32} {engine:<14} {p50:>9.2} {:>9.2} {:>8.2} {:>9.1} {:>9.1} {:>9.1} {:>5} {:>9}",
                format!("{} {} x{}", key.workload, key.shape, key.threads),
                median(&|figures| figures.micros_p99).unwrap_or(0.0),
                median(&|figures| figures.cpu_micros_per_operation).unwrap_or(0.0),
                mega(|figures| figures.bytes_written),
                mega(|figures| figures.bytes_on_disk),
                mega(|figures| figures.peak_bytes),
                runs.map_or_else(|| "-".to_owned(), |runs| format!("{runs:.0}")),
                requests.map_or_else(|| "-".to_owned(), |requests| format!("{requests:.3}")),
            );
        }
    }
    text
}

/// What went wrong, each once.
pub fn failures(records: &[Record]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for record in records {
        let reason = record.failure.clone().or_else(|| record.figures.first_error.clone());
        if let Some(reason) = reason {
            lines.push(format!(
                "{} round {}, {} {}: {reason}",
                record.engine, record.round, record.key.workload, record.key.shape
            ));
        }
    }
    lines.dedup();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::record::Key;
    use crate::peers::rows;
    use crate::peers::verdict::judge;
    use crate::peers::verdict::tests::record;

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> =
            [0.5, 12.3, 1234.0, 45_678.0, 1_234_567.0, 5e9].into_iter().map(short).collect();
        assert_eq!(shown, ["0.50", "12", "1.2k", "46k", "1.23M", "5.00G"]);
    }

    #[test]
    fn bytes_are_to_be_no_more() {
        let key = Key::new("overwrite", rows::SETTLED, 1);
        let with = |engine: &str, written, kept| {
            let mut record = record(engine, &key, 1, 1.0, 1.0);
            (record.figures.bytes_written, record.figures.bytes_on_disk) = (written, kept);
            record
        };
        let text = space(&judge(&[with("tombolo", 50, 110), with("rocksdb", 100, 100)]));
        assert!(text.contains("+0.50") && text.contains("!1.10"), "{text}");
    }

    #[test]
    fn a_row_says_rates_ratios_and_bars() {
        let key = Key::new("readrandom", rows::COMPACTED, 2);
        let mut records =
            vec![record("tombolo", &key, 1, 500_000.0, 3.0), record("rocksdb", &key, 1, 200_000.0, 4.0)];
        let mut failed = record("fjall", &key, 1, 0.0, 0.0);
        failed.failure = Some("signal: 6".to_owned());
        records.push(failed);
        let engines: Vec<String> = ["tombolo", "rocksdb", "fjall"].map(str::to_owned).into();
        let text = rates(&judge(&records), &engines);
        assert!(
            text.contains("readrandom compacted x2") && text.contains("500k") && text.contains("200k"),
            "{text}"
        );
        assert!(
            text.contains("+2.50/2 [2.50-2.50]")
                && text.contains("+2.50/1.5")
                && text.contains("bars reached: 1 of 1"),
            "{text}"
        );
        assert!(!text.contains("lmdb"), "{text}");
        let costs = costs(&judge(&records), &records, &engines);
        assert!(costs.contains("rocksdb") && !costs.contains("fjall"), "{costs}");
        assert_eq!(space(&judge(&records)).lines().count(), 1, "no row here waits for the background");
        assert_eq!(failures(&records), "fjall round 1, readrandom compacted: signal: 6");
    }
}
