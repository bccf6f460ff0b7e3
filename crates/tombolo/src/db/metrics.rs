//! What an open database says about itself, as Prometheus reads it: text of its exposition format.
//!
//! The lines follow [`Db::properties`]: a property of the name `write-delay` in nanoseconds is the
//! metric `tombolo_write_delay_seconds_total`. Reading costs what [`Db::properties`] costs.

use std::fmt::Write as _;

use crate::db::property::{Property, PropertyValue, Unit};
use crate::db::{Db, Requests};

/// Properties that only grow while a database is open, and so have a rate.
const TOTALS: &[&str] = &[
    "cache-hits",
    "cache-misses",
    "cache-insertions",
    "cache-evictions",
    "cache-row-hits",
    "flash-hits",
    "flash-misses",
    "flash-insertions",
    "flash-written-bytes",
    "flash-dropped-by-rate",
    "flash-dropped-by-room",
    "flash-damaged",
    "flash-errors",
    "writes",
    "flushes",
    "compactions",
    "write-delay",
    "flushed-bytes",
    "compacted-bytes-read",
    "compacted-bytes-written",
    "level-bytes-read",
    "level-bytes-written",
    "store-reads",
    "store-hedges",
    "store-hedges-won",
    "store-hedges-suppressed",
    "request-bytes-sent",
    "request-bytes-received",
];

/// A text that says how many requests were made, by purpose and kind: a metric of its own.
const BY_PURPOSE: &str = "requests-by-purpose-and-kind";

impl Property {
    /// Whether it only grows while the database is open: a counter, of which a rate says something.
    pub fn is_total(&self) -> bool {
        TOTALS.contains(&self.name) || (self.name.starts_with("requests-") && self.unit == Unit::Count)
    }

    /// Its name as a metric of Prometheus, with its unit: `tombolo_write_delay_seconds_total`.
    pub fn metric_name(&self) -> String {
        let mut name = format!("tombolo_{}", self.name.replace('-', "_"));
        let unit = match self.unit {
            Unit::Bytes if name.ends_with("_bytes_per_second") => "",
            Unit::Bytes if !name.contains("bytes") => "_bytes",
            Unit::Nanoseconds => "_seconds",
            Unit::Thousandths => "_ratio",
            Unit::Text => "_present",
            Unit::Bytes | Unit::Count => "",
        };
        name.push_str(unit);
        if self.is_total() {
            name.push_str("_total");
        }
        name
    }
}

impl Db {
    /// All that [`Db::properties`] says in the text format of Prometheus, each line with the label
    /// `database`. A text becomes 1 while it says something, and else 0. An HTTP server of the
    /// program's gives it out as it is, with the content type `text/plain; version=0.0.4`;
    /// `tombolo metrics` does so for a program that has none.
    ///
    /// ```
    /// # fn main() -> tombolo::Result<()> {
    /// let db = tombolo::Db::builder("mem://metrics").open().wait()?;
    /// db.default_keyspace().put("order 7", "two books").wait()?;
    /// let text = db.metrics_text("orders");
    /// assert!(text.lines().any(|line| line.starts_with("tombolo_writes_total{database=\"orders\"} ")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics_text(&self, database: &str) -> String {
        text(&self.properties(), &self.requests(), database)
    }
}

fn text(properties: &[Property], requests: &Requests, database: &str) -> String {
    let mut out = String::with_capacity(16 << 10);
    let label = format!("database=\"{}\"", escaped(database));
    for property in properties.iter().filter(|property| property.name != BY_PURPOSE) {
        let name = property.metric_name();
        head(&mut out, &name, property.help, property.is_total());
        match &property.value {
            PropertyValue::Number(value) => line(&mut out, &name, &label, scaled(*value, property.unit)),
            PropertyValue::Levels(levels) => {
                for (level, value) in levels.iter().enumerate() {
                    let labels = format!("{label},level=\"{level}\"");
                    line(&mut out, &name, &labels, scaled(*value, property.unit));
                }
            }
            PropertyValue::Text(text) => {
                line(&mut out, &name, &label, u8::from(!text.is_empty()).to_string());
            }
        }
    }
    type Of = fn(&tombolo_storage::Counted) -> u64;
    let by: [(&str, &str, Of); 4] = [
        ("tombolo_object_requests_total", "requests for objects, by purpose and kind", |one| one.requests),
        ("tombolo_object_requests_failed_total", "of those, failed or refused", |one| one.failed),
        ("tombolo_object_bytes_sent_total", "bytes that they sent", |one| one.bytes_sent),
        ("tombolo_object_bytes_received_total", "bytes that they received", |one| one.bytes_received),
    ];
    for (name, help, of) in by {
        head(&mut out, name, help, true);
        for one in &requests.counted {
            let labels = format!("{label},purpose=\"{}\",kind=\"{}\"", one.purpose, one.kind);
            line(&mut out, name, &labels, of(one).to_string());
        }
    }
    out
}

fn head(out: &mut String, name: &str, help: &str, is_total: bool) {
    let kind = if is_total { "counter" } else { "gauge" };
    let help = help.replace('\\', "\\\\").replace('\n', " ");
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: impl AsRef<str>) {
    let _ = writeln!(out, "{name}{{{labels}}} {}", value.as_ref());
}

/// A label's value as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number in the unit that Prometheus wants: seconds, and ratios of one. Without a loss.
fn scaled(value: u64, unit: Unit) -> String {
    let (one, digits) = match unit {
        Unit::Nanoseconds => (1_000_000_000, 9),
        Unit::Thousandths => (1000, 3),
        Unit::Bytes | Unit::Count | Unit::Text => return value.to_string(),
    };
    format!("{}.{:0digits$}", value / one, value % one)
}

#[cfg(test)]
mod tests;
