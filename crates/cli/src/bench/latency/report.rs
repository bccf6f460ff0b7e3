//! Rows of the table, judged.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::work::Took;

/// What a ratio must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    value: f64,
    at_most: bool,
}

impl Bar {
    pub(super) fn at_most(value: f64) -> Bar {
        Bar { value, at_most: true }
    }

    pub(super) fn at_least(value: f64) -> Bar {
        Bar { value, at_most: false }
    }

    fn is_met(self, ratio: f64) -> bool {
        if self.at_most { ratio <= self.value } else { ratio >= self.value }
    }
}

/// One figure, and what it is compared with.
#[derive(Debug)]
pub(super) struct Row {
    latency: String,
    measure: &'static str,
    in_flight: usize,
    took: Option<(u64, f64, Duration, Duration)>,
    ratio: Option<f64>,
    pub(super) bar: Option<Bar>,
    paper: Option<f64>,
    note: String,
}

impl Row {
    pub(super) fn new(latency: &str, measure: &'static str, in_flight: usize) -> Row {
        Row {
            latency: latency.to_owned(),
            measure,
            in_flight,
            took: None,
            ratio: None,
            bar: None,
            paper: None,
            note: String::new(),
        }
    }

    /// With what calls took; the ratio is that of the medians.
    pub(super) fn of(mut self, took: &Took, beside: Option<&Took>) -> Row {
        self.took = Some((took.calls, took.per_second(), took.p50, took.p99));
        self.ratio = beside.map(|beside| took.p50.as_secs_f64() / beside.p50.as_secs_f64().max(1e-9));
        self
    }

    pub(super) fn ratio(mut self, ratio: f64) -> Row {
        self.ratio = Some(ratio);
        self
    }

    pub(super) fn bar(mut self, bar: Bar) -> Row {
        self.bar = Some(bar);
        self
    }

    pub(super) fn paper(mut self, ratio: f64) -> Row {
        self.paper = Some(ratio);
        self
    }

    pub(super) fn note(mut self, note: String) -> Row {
        self.note = note;
        self
    }

    /// Whether it has a bar and does not reach it.
    pub(super) fn is_missed(&self) -> bool {
        self.bar.zip(self.ratio).is_some_and(|(bar, ratio)| !bar.is_met(ratio))
    }

    pub(super) fn columns() -> String {
        format!(
            "{:<10} {:<18} {:>9} {:>8} {:>10} {:>10} {:>10} {:>7} {:>7} {:>6}  note",
            "latency",
            "measure",
            "in flight",
            "calls",
            "per second",
            "p50 µs",
            "p99 µs",
            "ratio",
            "bar",
            "paper"
        )
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{:<10.10} {:<18} {:>9}", self.latency, self.measure, self.in_flight);
        let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
        // Writing to a string does not fail.
        let _ = match self.took {
            Some((calls, rate, p50, p99)) => {
                write!(text, " {calls:>8} {rate:>10.0} {:>10.0} {:>10.0}", micros(p50), micros(p99))
            }
            None => write!(text, " {:>8} {:>10} {:>10} {:>10}", "", "", "", ""),
        };
        let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        let bar = self
            .bar
            .map_or_else(String::new, |bar| format!("{} {}", if bar.at_most { "≤" } else { "≥" }, bar.value));
        let verdict = match (self.bar.is_some(), self.is_missed()) {
            (false, _) => "",
            (true, false) => "met ",
            (true, true) => "MISSED ",
        };
        let paper = self.paper.map_or_else(String::new, |paper| format!("{paper:.2}"));
        let _ = write!(text, " {:>7} {bar:>7} {paper:>6}  {verdict}{}", ratio(self.ratio), self.note);
        text.trim_end().to_owned()
    }

    pub(super) fn to_json(&self) -> Value {
        let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
        json!({
            "latency": self.latency,
            "measure": self.measure,
            "in_flight": self.in_flight,
            "calls": self.took.map(|took| took.0),
            "per_second": self.took.map(|took| took.1),
            "micros_p50": self.took.map(|took| micros(took.2)),
            "micros_p99": self.took.map(|took| micros(took.3)),
            "ratio": self.ratio,
            "bar": self.bar.map(|bar| bar.value),
            "bar_is_at_most": self.bar.map(|bar| bar.at_most),
            "is_met": self.bar.map(|_| !self.is_missed()),
            "paper_ratio": self.paper,
            "note": self.note,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_judged_by_their_bars() {
        let row = |ratio, bar| Row::new("s3", "get miss", 1).ratio(ratio).bar(bar);
        assert!(!row(1.04, Bar::at_most(1.05)).is_missed() && row(1.06, Bar::at_most(1.05)).is_missed());
        assert!(!row(1.9, Bar::at_least(1.9)).is_missed() && row(1.8, Bar::at_least(1.9)).is_missed());
        assert!(!Row::new("s3", "raw read", 1).ratio(9.0).is_missed());
        assert!(row(1.06, Bar::at_most(1.05)).to_text().ends_with("MISSED"));
        assert_eq!(row(1.04, Bar::at_most(1.05)).to_json()["is_met"], true);
    }
}
