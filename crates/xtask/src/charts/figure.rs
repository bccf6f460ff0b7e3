//! The figures of one question: rows, series, values, and where they come from.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::peers::statistics::spread;

/// The figures of one question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What the chart shows, for readers who cannot see it.
    pub title: String,
    /// Of all values: `thousand operations a second`.
    pub unit: String,
    /// Whether values are compared by their differences or by their ratios.
    pub scale: Scale,
    /// Runs that the values are from.
    pub measured: Vec<Measured>,
    /// Where a run's records have the values; `None` for figures that no run writes as records.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<From>,
    /// The series that are compared, in one order throughout.
    pub series: Vec<Series>,
    /// What was done.
    pub rows: Vec<Row>,
}

/// How lengths stand for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Bars from zero.
    Linear,
    /// Dots; each decade as wide as the next.
    Log,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The day, as 2026-11-27.
    pub date: String,
    /// What was measured; empty where nobody wrote it down.
    pub commit: String,
    /// On what.
    pub machine: String,
    /// How to measure it again.
    pub command: String,
    /// What else a reader must know.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub note: String,
}

/// Where a run's records have the values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct From {
    /// The name of the figure in a record.
    pub figure: String,
    /// Values are the record's, divided by this.
    pub divide: f64,
}

/// One series: a line, or the bars of one colour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// For readers.
    pub name: String,
    /// The `engine` or `way` of its records.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub key: String,
}

/// One of what was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// For readers.
    pub name: String,
    /// The `workload` of its records.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub workload: String,
    /// The `shape` of its records, where they have one.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub shape: String,
    /// The `threads` or `clients` of its records.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub threads: u64,
    /// A value for each series; `None` where it was not measured.
    pub values: Vec<Option<f64>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Figure {
    /// Whether it can be drawn.
    ///
    /// # Errors
    /// Says why it cannot.
    pub fn check(&self) -> Result<(), String> {
        if self.rows.is_empty() || self.series.is_empty() || self.measured.is_empty() {
            return Err("a figure needs rows, series and a run".to_owned());
        }
        for row in &self.rows {
            if row.values.len() != self.series.len() {
                return Err(format!("row {:?} has not one value for each series", row.name));
            }
            let least = if self.scale == Scale::Log { f64::MIN_POSITIVE } else { 0.0 };
            if row.values.iter().flatten().any(|value| !value.is_finite() || *value < least) {
                return Err(format!("row {:?} has a value that cannot be drawn", row.name));
            }
        }
        Ok(())
    }

    /// Replaces all values by the medians of a run's records, if there are any. Values that the run
    /// does not have are missing then. Returns how many there were.
    pub fn take(&mut self, records: &[Value]) -> usize {
        let Some(from) = &self.from else { return 0 };
        let median = |series: &Series, row: &Row| {
            let of_row = records.iter().filter(|record| is_of(record, series, row));
            let found: Vec<f64> = of_row.filter_map(|record| record[&from.figure].as_f64()).collect();
            spread(&found).map(|spread| spread.median / from.divide)
        };
        let values: Vec<Vec<Option<f64>>> = self
            .rows
            .iter()
            .map(|row| self.series.iter().map(|series| median(series, row)).collect())
            .collect();
        let taken = values.iter().flatten().flatten().count();
        if taken > 0 {
            self.rows.iter_mut().zip(values).for_each(|(row, values)| row.values = values);
        }
        taken
    }
}

fn is_of(record: &Value, series: &Series, row: &Row) -> bool {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    let threads = record["threads"].as_u64().or(record["clients"].as_u64()).unwrap_or_default();
    let way = if record["engine"].is_string() { text("engine") } else { text("way") };
    record["failure"].is_null()
        && !row.workload.is_empty()
        && way == series.key
        && text("workload") == row.workload
        && text("shape") == row.shape
        && threads == row.threads
}

/// A value as people read it: three digits that count, all of those before the point.
pub fn shown(value: f64) -> String {
    let digits = match value {
        _ if value >= 100.0 || value == 0.0 => 0,
        _ if value >= 10.0 => 1,
        _ if value >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if part.is_empty() { grouped } else { format!("{grouped}.{part}") }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    pub fn figure() -> Figure {
        serde_json::from_value(json!({
            "title": "Writes", "unit": "thousand a second", "scale": "linear",
            "measured": [{
                "date": "2026-11-27", "commit": "abc", "machine": "two cores", "command": "cargo xtask peers",
            }],
            "from": {"figure": "operations_per_second", "divide": 1000.0},
            "series": [{"name": "Tombolo", "key": "tombolo"}, {"name": "A & B", "key": "rocksdb"}],
            "rows": [{
                "name": "fill", "workload": "fillseq", "shape": "accepted", "threads": 1,
                "values": [2000.0, null],
            }],
        }))
        .unwrap()
    }

    #[test]
    fn values_are_shown_with_three_digits_that_count() {
        let shown: Vec<_> = [2_131_051.0, 999.6, 57.25, 7.0, 0.0125, 0.0].into_iter().map(shown).collect();
        assert_eq!(shown, ["2,131,051", "1,000", "57.2", "7", "0.013", "0"]);
    }

    #[test]
    fn a_runs_medians_replace_the_values_of_its_rows_only() {
        let record = |engine: &str, shape: &str, rate: f64| {
            json!({
                "engine": engine, "workload": "fillseq", "shape": shape, "threads": 1,
                "operations_per_second": rate,
            })
        };
        let mut taken = figure();
        taken.rows[0].values[1] = Some(7.0);
        let records = [
            record("tombolo", "accepted", 1_000.0),
            record("tombolo", "accepted", 3_000.0),
            record("tombolo", "accepted", 8_000.0),
            record("tombolo", "settled", 9_000.0),
        ];
        assert_eq!(taken.take(&records), 1);
        // The other engine was not measured in this run: what it did in another says nothing.
        assert_eq!(taken.rows[0].values, [Some(3.0), None]);
        assert_eq!(figure().take(&[json!({"way": "file", "workload": "insert", "clients": 1})]), 0);
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let mut figure = figure();
        figure.check().unwrap();
        figure.scale = Scale::Log;
        figure.rows[0].values = vec![Some(0.0), None];
        assert!(figure.check().unwrap_err().contains("fill"));
        figure.rows[0].values = vec![Some(1.0)];
        assert!(figure.check().unwrap_err().contains("one value for each series"));
    }
}
