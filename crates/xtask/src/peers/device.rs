//! The device below the engines, measured by fio: how many reads it can do at most, each as large
//! as an engine's are.
//!
//! `an engine's row past the page cache → bytes of each of its reads → fio with reads of that size,
//! as many in flight → two records: the engine's reads of files, and fio's`. An engine that was not
//! asked for, or does not say how often it reads, is not held against it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::record::{Figures, Key, Record};
use super::rows::{self, DEVICE, DEVICE_READS};

/// As what fio stands in the records.
pub const ENGINE: &str = "fio";
/// Reads past the page cache are of whole sectors.
const SECTOR_BYTES: u64 = 512;

/// What `collected`, an engine's records of a scene, is to be held against. A fio that is missing
/// or fails is told, and the row left out.
///
/// The file that fio reads is as large as the database, at `path`, and removed.
pub fn records(path: &Path, collected: &[Record], seconds: u64) -> Vec<Record> {
    let past_cache = Key::new("readrandom", rows::DIRECT_IO, DEVICE_READS);
    let row = collected.iter().find(|record| record.key == past_cache && record.failure.is_none());
    let Some((row, mine)) = row.and_then(|row| Some((row, own_reads(&row.figures)?))) else {
        return Vec::new();
    };
    let each = mine.bytes_read.div_ceil(mine.operations.max(1)).next_multiple_of(SECTOR_BYTES);
    let theirs = measure(path, each, row.figures.bytes_on_disk, seconds);
    // The next run would make it anew; a rest only takes room.
    let _ = fs::remove_file(path);
    let record = |engine: &str, figures| Record {
        engine: engine.to_owned(),
        key: Key::new("reads", DEVICE, DEVICE_READS),
        figures,
        ..row.clone()
    };
    match theirs {
        Ok(theirs) => {
            eprintln!(
                "reads of {each} B, {DEVICE_READS} in flight: {:.0}/s by {}, {:.0}/s by fio",
                mine.operations_per_second, row.engine, theirs.operations_per_second
            );
            vec![record(&row.engine, mine), Record { version: String::new(), ..record(ENGINE, theirs) }]
        }
        Err(reason) => {
            eprintln!("the device is not measured: {reason}");
            Vec::new()
        }
    }
}

/// An engine's reads of files in place of its operations; `None` when it does not say, or made
/// none.
fn own_reads(figures: &Figures) -> Option<Figures> {
    let reads = figures.file_reads.filter(|reads| *reads > 0)?;
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    let rate = reads as f64 / figures.seconds;
    (rate.is_finite() && figures.bytes_read > 0).then(|| Figures {
        operations: reads,
        operations_per_second: rate,
        found: 0,
        ..figures.clone()
    })
}

fn measure(path: &Path, read_bytes: u64, file_bytes: u64, seconds: u64) -> Result<Figures, String> {
    let mut last = String::new();
    for engine in ["io_uring", "libaio"] {
        let output = Command::new("fio")
            .arg(format!("--filename={}", path.display()))
            .args([
                format!("--size={}", file_bytes.max(read_bytes)),
                format!("--bs={read_bytes}"),
                format!("--ioengine={engine}"),
            ])
            .args([format!("--iodepth={DEVICE_READS}"), format!("--runtime={seconds}")])
            .args([
                "--name=reads",
                "--rw=randread",
                "--direct=1",
                "--time_based",
                "--norandommap",
                "--invalidate=1",
                "--output-format=json",
            ])
            .output()
            .map_err(|error| format!("cannot start fio: {error}; `bench/peers/prepare` installs it"))?;
        if output.status.success() {
            return told(&String::from_utf8_lossy(&output.stdout));
        }
        last = format!("fio with {engine} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Err(last)
}

/// What fio's JSON says.
fn told(text: &str) -> Result<Figures, String> {
    let value: Value = text
        .find('{')
        .and_then(|begin| serde_json::from_str(&text[begin..]).ok())
        .ok_or("fio did not answer in JSON")?;
    let job = &value["jobs"][0];
    let number = |value: &Value, name: &str| value.as_f64().ok_or_else(|| format!("fio did not say {name}"));
    let read = &job["read"];
    let rate = number(&read["iops"], "its rate")?;
    let busy = number(&job["usr_cpu"], "its CPU time")? + number(&job["sys_cpu"], "its CPU time")?;
    let latency = |percentile: &str| {
        number(&read["clat_ns"]["percentile"][percentile], "its latencies").map(|nanos| nanos / 1e3)
    };
    Ok(Figures {
        operations: read["total_ios"].as_u64().ok_or("fio did not say how much it read")?,
        seconds: number(&read["runtime"], "its time")? / 1e3,
        operations_per_second: rate,
        micros_p50: latency("50.000000")?,
        micros_p99: latency("99.000000")?,
        cpu_micros_per_operation: busy / 100.0 * 1e6 / rate.max(1.0),
        bytes_read: read["io_bytes"].as_u64().unwrap_or(0),
        ..Figures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::verdict::{judge, tests::record};

    #[test]
    fn what_fio_says_becomes_figures() {
        let text = r#"fio: a warning
            {"jobs":[{"usr_cpu":10.0,"sys_cpu":40.0,"read":{"iops":50000.0,"total_ios":150000,"runtime":3000,"io_bytes":768000000,
            "clat_ns":{"percentile":{"50.000000":600000,"99.000000":1200000}}}}]}"#;
        let figures = told(text).unwrap();
        assert_eq!(
            (figures.operations, figures.seconds, figures.operations_per_second),
            (150_000, 3.0, 50_000.0)
        );
        assert_eq!(
            (figures.micros_p50, figures.micros_p99, figures.cpu_micros_per_operation),
            (600.0, 1200.0, 10.0)
        );
        assert!(told("fio: no such engine").is_err());
        assert!(told(r#"{"jobs":[{}]}"#).unwrap_err().contains("rate"));
    }

    #[test]
    fn an_engine_is_held_to_nine_tenths_of_the_device() {
        let key = Key::new("reads", DEVICE, DEVICE_READS);
        let verdict = |rate| {
            judge(&[record("tombolo", &key, 1, rate, 1.0), record(ENGINE, &key, 1, 100.0, 1.0)]).remove(0)
        };
        assert_eq!((verdict(91.0).is_reached(), verdict(89.0).is_reached()), (Some(true), Some(false)));
        assert_eq!(verdict(91.0).to_peer.map(|(name, _)| name), Some(ENGINE));
    }

    #[test]
    fn who_does_not_say_how_often_it_reads_is_not_held_against_it() {
        let key = Key::new("readrandom", rows::DIRECT_IO, DEVICE_READS);
        let nowhere = Path::new("/nonexistent/device");
        assert!(records(nowhere, &[record("rocksdb", &key, 1, 5.0, 1.0)], 1).is_empty());
        let mut figures =
            Figures { file_reads: Some(100), bytes_read: 450_000, seconds: 2.0, ..Figures::default() };
        assert_eq!(own_reads(&figures).unwrap().operations_per_second, 50.0);
        figures.file_reads = None;
        assert!(own_reads(&figures).is_none());
    }
}
