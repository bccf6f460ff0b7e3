//! The result at the prompt: a line for each way in each row, and whether the bars are reached.

use std::fmt::Write;

use super::measure::Loss;
use super::record::{Record, median, of, rows, ways};
use super::round_trip::Kind;
use super::ways::Way;
use crate::peers::statistics::{Spread, ratios};
use crate::peers::table::short;

/// Something that is to be reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub what: String,
    /// Over the rounds.
    pub found: Spread,
    pub limit: f64,
    /// Whether less is better.
    pub is_most: bool,
}

impl Bar {
    pub fn is_reached(&self) -> bool {
        if self.is_most { self.found.median <= self.limit } else { self.found.median >= self.limit }
    }

    pub fn text(&self) -> String {
        let Spread { median, least, most, .. } = self.found;
        let than = if self.is_most { "at most" } else { "at least" };
        format!(
            "{}: {} ({} to {}), {than} {}",
            self.what,
            short(median),
            short(least),
            short(most),
            short(self.limit)
        )
    }
}

/// A figure of a way in each round.
fn by_round(
    records: &[Record],
    way: &str,
    workload: &str,
    clients: usize,
    figure: fn(&Record) -> f64,
) -> Vec<(u32, f64)> {
    of(records, way, workload, clients).map(|record| (record.round, figure(record))).collect()
}

/// The bars of what was measured.
pub fn bars(records: &[Record]) -> Vec<Bar> {
    let p50 = |record: &Record| record.micros_p50;
    let rate = |record: &Record| record.operations_per_second;
    let p99_millis = |record: &Record| record.micros_p99 / 1e3;
    let mut bars = Vec::new();
    let mut bar = |what: String, found: Option<Spread>, limit: f64, is_most: bool| {
        bars.extend(found.map(|found| Bar { what, found, limit, is_most }));
    };
    let insert = |way, clients, figure| by_round(records, way, "insert", clients, figure);
    for (kind, to) in [(Kind::Process, "another process"), (Kind::Thread, "another thread of the process")] {
        bar(
            format!("near-tcp, 1 client: p50 to that of a bare round trip to {to}"),
            ratios(&insert("near-tcp", 1, p50), &by_round(records, kind.name(), "round trip", 1, p50)),
            4.0,
            true,
        );
    }
    bar(
        "near-tcp, 1 client: p99, ms".into(),
        median(records, "near-tcp", "insert", 1, p99_millis),
        1.0,
        true,
    );
    bar(
        "near-shared, 1 client: p50, µs".into(),
        median(records, "near-shared", "insert", 1, p50),
        10.0,
        true,
    );
    for way in ["near-shared", "near-tcp"] {
        for clients in [1, 16] {
            bar(
                format!("{way}, {clients} clients: rate to that of a local fdatasync"),
                ratios(&insert(way, clients, rate), &insert("file", clients, rate)),
                1.0,
                false,
            );
        }
    }
    bar(
        "near-shared, 64 clients: rate to that of accepted writes".into(),
        ratios(&insert("near-shared", 64, rate), &insert("accepted", 64, rate)),
        0.97,
        false,
    );
    for way in ["objects", "near-shared", "near-tcp"] {
        for peer in [Way::SlateDb, Way::SlateDbTuned].map(Way::name) {
            for clients in [1, 16, 64] {
                bar(
                    format!("{way}, {clients} clients: rate to that of {peer}"),
                    ratios(&insert(way, clients, rate), &insert(peer, clients, rate)),
                    1.0,
                    false,
                );
            }
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a count")]
    let errors = |record: &Record| record.errors as f64;
    for way in ["near-shared", "near-tcp"] {
        for loss in Loss::ALL {
            for (workload, clients) in
                rows(records).iter().filter(|(workload, _)| workload == loss.workload())
            {
                bar(
                    format!("{way}, {clients} clients, {workload}: failed writes"),
                    median(records, way, workload, *clients, errors),
                    0.0,
                    true,
                );
                bar(
                    format!("{way}, {clients} clients, {workload}: p99, ms"),
                    median(records, way, workload, *clients, p99_millis),
                    50.0,
                    true,
                );
            }
        }
        bar(
            format!("{way}: opening after a kill, log of 60 MB, ms"),
            median(records, way, "takeover", 1, |record| record.open_millis),
            200.0,
            true,
        );
    }
    bars
}

/// All of it.
pub fn text(records: &[Record]) -> String {
    let mut text = format!(
        "{:<28} {:>3} {:<18} {:>9} {:>9} {:>10} {:>11} {:>9} {:>9} {:>6} {:>7}\n",
        "medians of rounds",
        "x",
        "log",
        "ops/s",
        "p50 µs",
        "p99 µs",
        "max µs",
        "CPU µs",
        "nodes µs",
        "busy",
        "errors"
    );
    for (workload, clients) in rows(records).iter().filter(|(workload, _)| workload != "takeover") {
        for way in ways(records) {
            let of = |figure: fn(&Record) -> f64| {
                median(records, &way, workload, *clients, figure).map(|spread| spread.median)
            };
            let Some(rate) = of(|record| record.operations_per_second) else { continue };
            let figure = |figure: fn(&Record) -> f64| of(figure).unwrap_or(0.0);
            #[allow(clippy::cast_precision_loss, reason = "a count")]
            let _ = writeln!(
                text,
                "{workload:<28} {clients:>3} {way:<18} {:>9} {:>9.1} {:>10.1} {:>11.0} {:>9.1} {:>9.1} \
                {:>6.2} {:>7}",
                if rate > 0.0 { short(rate) } else { "-".to_owned() },
                figure(|record| record.micros_p50),
                figure(|record| record.micros_p99),
                figure(|record| record.micros_max),
                figure(|record| record.cpu_micros_client),
                figure(|record| record.cpu_micros_nodes),
                figure(|record| record.cores_busy),
                figure(|record| record.errors as f64),
            );
        }
    }
    for way in ways(records) {
        let Some(open) = median(records, &way, "takeover", 1, |record| record.open_millis) else { continue };
        #[allow(clippy::cast_precision_loss, reason = "megabytes for people")]
        let bytes = median(records, &way, "takeover", 1, |record| record.replayed_bytes as f64 / 1e6)
            .map_or(0.0, |spread| spread.median);
        let _ = writeln!(
            text,
            "takeover, {way}: {:.0} ms ({:.0} to {:.0}) to open, {bytes:.1} MB replayed",
            open.median, open.least, open.most
        );
    }
    text.push_str("\nwhat an acknowledged write survives:\n");
    for way in ways(records) {
        let survives =
            records.iter().find(|record| record.way == way).map_or("", |record| record.survives.as_str());
        if !survives.is_empty() {
            let _ = writeln!(text, "  {way}: {survives}");
        }
    }
    text.push('\n');
    for bar in bars(records) {
        let _ = writeln!(text, "{} {}", if bar.is_reached() { "reached" } else { "MISSED " }, bar.text());
    }
    for record in records {
        if let Some(reason) = record.failure.as_ref().or(record.first_error.as_ref()) {
            let _ = writeln!(
                text,
                "round {}, {}, {} x{}: {reason}",
                record.round, record.way, record.workload, record.clients
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::near::record::tests::record;

    #[test]
    fn bars_are_judged_within_rounds() {
        let records = [
            record("bare-process", "round trip", 1, 1, 0.0, 10.0),
            record("bare-process", "round trip", 1, 2, 0.0, 100.0),
            record("near-tcp", "insert", 1, 1, 5000.0, 30.0),
            record("near-tcp", "insert", 1, 2, 500.0, 500.0),
            record("file", "insert", 1, 1, 2500.0, 300.0),
        ];
        let bars = bars(&records);
        assert_eq!(bars[0].found.median, 4.0);
        assert!(bars[0].is_reached() && bars[1].is_reached(), "{bars:?}");
        assert!(bars.iter().any(|bar| bar.what.contains("fdatasync") && bar.found.median == 2.0), "{bars:?}");
        assert!(!bars.iter().any(|bar| bar.what.contains("takeover")));
    }

    #[test]
    fn another_engine_is_beside_ours_by_its_rate() {
        let records = [
            record("objects", "insert", 16, 1, 300.0, 10.0),
            record("near-tcp", "insert", 16, 1, 4000.0, 10.0),
            record("slatedb-tuned", "insert", 16, 1, 400.0, 10.0),
        ];
        let bars: Vec<_> =
            bars(&records).into_iter().filter(|bar| bar.what.ends_with("slatedb-tuned")).collect();
        assert_eq!(
            bars.iter().map(|bar| (bar.found.median, bar.is_reached())).collect::<Vec<_>>(),
            [(0.75, false), (10.0, true)]
        );
        let text = text(&records);
        assert!(text.contains("MISSED  objects, 16 clients: rate to that of slatedb-tuned"), "{text}");
    }

    #[test]
    fn the_text_says_what_failed() {
        let mut lost = record("near-tcp", "insert, a node killed", 16, 1, 100.0, 60_000.0);
        (lost.errors, lost.first_error) = (3, Some("gone".into()));
        let text = text(&[lost]);
        assert!(
            text.contains("MISSED") && text.contains("gone") && text.contains("failed writes: 3.00"),
            "{text}"
        );
    }
}
