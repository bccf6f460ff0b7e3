//! One measurement, and medians over rounds.

use serde::{Deserialize, Serialize};

use crate::peers::statistics::{Spread, spread};

/// What was measured once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The kind of log, `bare…` for round trips without anything of ours, or another engine.
    pub way: String,
    /// What was done.
    pub workload: String,
    /// By so many threads, each of which waits for its write before it makes the next.
    pub clients: usize,
    /// From 1.
    pub round: u32,
    /// Load average of the machine when it began.
    pub load: f64,
    /// What an acknowledged write survives.
    pub survives: String,
    pub operations: u64,
    pub operations_per_second: f64,
    pub micros_p50: f64,
    pub micros_p99: f64,
    pub micros_max: f64,
    /// CPU time of the writer's process for each operation.
    pub cpu_micros_client: f64,
    /// CPU time of all nodes together for each operation.
    pub cpu_micros_nodes: f64,
    /// Processors that worked on the average, for clients and nodes together.
    pub cores_busy: f64,
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Of a takeover: bytes of the log that were replayed.
    pub replayed_bytes: u64,
    /// Of a takeover: how long opening took.
    pub open_millis: f64,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// What rows are told apart by.
pub type Row = (String, usize);

/// The measurements of a way in a row that came to figures.
pub fn of<'a>(
    records: &'a [Record],
    way: &'a str,
    workload: &'a str,
    clients: usize,
) -> impl Iterator<Item = &'a Record> {
    let is_wanted =
        move |record: &&Record| record.way == way && record.workload == workload && record.clients == clients;
    records.iter().filter(is_wanted).filter(|record| record.failure.is_none())
}

/// The median over rounds of a figure.
pub fn median(
    records: &[Record],
    way: &str,
    workload: &str,
    clients: usize,
    figure: impl Fn(&Record) -> f64,
) -> Option<Spread> {
    spread(&of(records, way, workload, clients).map(figure).collect::<Vec<_>>())
}

/// The rows, in the order in which they were measured first.
pub fn rows(records: &[Record]) -> Vec<Row> {
    let mut rows = Vec::new();
    for record in records {
        let row = (record.workload.clone(), record.clients);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

/// The ways, in the order in which they were measured first.
pub fn ways(records: &[Record]) -> Vec<String> {
    let mut ways: Vec<String> = Vec::new();
    for record in records {
        if !ways.contains(&record.way) {
            ways.push(record.way.clone());
        }
    }
    ways
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn record(way: &str, workload: &str, clients: usize, round: u32, rate: f64, p50: f64) -> Record {
        Record {
            way: way.into(),
            workload: workload.into(),
            clients,
            round,
            operations_per_second: rate,
            micros_p50: p50,
            micros_p99: p50 * 2.0,
            ..Record::default()
        }
    }

    #[test]
    fn medians_are_of_what_came_to_figures_and_records_come_back() {
        let mut records: Vec<Record> =
            (1..=3).map(|round| record("file", "insert", 1, round, f64::from(round), 5.0)).collect();
        records.push(Record { failure: Some("gone".into()), ..record("file", "insert", 1, 4, 1e9, 5.0) });
        let rate = median(&records, "file", "insert", 1, |record| record.operations_per_second).unwrap();
        assert_eq!((rate.median, rate.least, rate.most), (2.0, 1.0, 3.0));
        assert!(median(&records, "file", "insert", 2, |record| record.micros_p50).is_none());
        assert_eq!(
            (rows(&records), ways(&records)),
            (vec![("insert".to_owned(), 1)], vec!["file".to_owned()])
        );
        let text = serde_json::to_string(&records).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Record>>(&text).unwrap(), records);
    }
}
