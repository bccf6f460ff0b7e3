//! One measurement, as it is kept and written: a row, an engine, a round, and the figures.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A row of the result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// What was done.
    pub workload: String,
    /// On what, or counted how.
    pub shape: String,
    /// By so many threads.
    pub threads: usize,
}

impl Key {
    /// A row.
    pub fn new(workload: &str, shape: &str, threads: usize) -> Key {
        Key { workload: workload.to_owned(), shape: shape.to_owned(), threads }
    }
}

/// One engine's figures of one row in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Which engine.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// The row.
    #[serde(flatten)]
    pub key: Key,
    /// From 1.
    pub round: u32,
    /// Load average of the machine when its process began.
    pub load: f64,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// The figures; zero when there are none.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Operations done.
    pub operations: u64,
    /// In so many seconds, up to the end of the background's work in rows that wait for it.
    pub seconds: f64,
    /// Rate.
    pub operations_per_second: f64,
    /// Median latency of a call.
    pub micros_p50: f64,
    /// 99 % of the calls do not exceed it.
    pub micros_p99: f64,
    /// The slowest call.
    pub micros_max: f64,
    /// CPU time of the whole process, background included, by operation.
    pub cpu_micros_per_operation: f64,
    /// Bytes that the process caused to be written to disks, the log included.
    pub bytes_written: u64,
    /// Bytes that the process caused to be read from disks.
    pub bytes_read: u64,
    /// Reads that were asked of files, where the engine says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_reads: Option<u64>,
    /// Bytes that the database takes on the disk afterwards.
    pub bytes_on_disk: u64,
    /// Most resident memory of the process's own.
    pub peak_bytes: u64,
    /// Sorted runs that reads had to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sorted_runs: Option<u64>,
    /// Of a database in a bucket: requests to the store by operation, those of the background
    /// included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_operation: Option<f64>,
    /// Bytes that went to the store, heads of requests included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<u64>,
    /// Bytes that came from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_received: Option<u64>,
    /// Reads that found something.
    pub found: u64,
    /// Operations that failed.
    pub errors: u64,
    /// The first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Writes per second of the writer beside the readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes_per_second_beside: Option<f64>,
}

impl Figures {
    /// The figures that a process told of a step; with `settled` those up to the end of the
    /// background's work.
    ///
    /// # Errors
    /// Names a field that is missing or has another type.
    pub fn told(line: &Value, settled: bool) -> Result<Figures, String> {
        let mut figures: Figures =
            serde_json::from_value(line.clone()).map_err(|error| format!("{line}: {error}"))?;
        if settled {
            let number = |name: &str| line[name].as_f64().ok_or_else(|| format!("{line}: {name} is missing"));
            figures.seconds = number("seconds_settled")?;
            figures.operations_per_second = number("operations_per_second_settled")?;
        }
        if figures.operations == 0 {
            let reason = figures.first_error.clone().unwrap_or_else(|| "no reason given".to_owned());
            return Err(format!("not one operation was done: {reason}"));
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_process_tells_becomes_a_flat_object_and_comes_back() {
        let line = json!({
            "event": "done", "operations": 10, "seconds": 2.0, "operations_per_second": 5.0,
            "micros_p50": 1.5, "micros_p99": 9.0,
            "seconds_settled": 4.0, "operations_per_second_settled": 2.5, "sorted_runs": 3,
            "first_error": null,
        });
        let figures = Figures::told(&line, false).unwrap();
        assert_eq!(
            (figures.operations_per_second, figures.sorted_runs, figures.bytes_written),
            (5.0, Some(3), 0)
        );
        assert_eq!(Figures::told(&line, true).unwrap().operations_per_second, 2.5);
        let key = Key::new("readrandom", "natural", 2);
        let record = Record {
            engine: "tombolo".into(),
            version: "1".into(),
            key,
            round: 1,
            load: 0.5,
            failure: None,
            figures,
        };
        let value = serde_json::to_value(&record).unwrap();
        for name in [
            "engine",
            "workload",
            "shape",
            "threads",
            "round",
            "operations_per_second",
            "micros_p50",
            "micros_p99",
            "cpu_micros_per_operation",
            "bytes_written",
            "bytes_on_disk",
            "peak_bytes",
        ] {
            assert!(value.get(name).is_some(), "{name} is missing in {value}");
        }
        assert_eq!(serde_json::from_value::<Record>(value).unwrap(), record);
    }

    #[test]
    fn a_step_that_did_nothing_is_no_measurement() {
        let line = json!({"operations": 0, "errors": 3, "first_error": "the disk is full"});
        assert!(Figures::told(&line, false).unwrap_err().contains("the disk is full"));
        assert!(Figures::told(&json!({"operations": 5}), true).unwrap_err().contains("seconds_settled"));
        assert!(Figures::told(&json!({"operations": "many"}), false).is_err());
    }
}
