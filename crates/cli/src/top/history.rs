//! Samples in their order, and the rates between them.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tombolo_storage::price::S3_STANDARD;

use crate::failure::{Failure, Result};
use crate::sample::Sample;

/// Rates that are kept for the curves.
const RATES_MAX: usize = 300;

/// What was sampled.
pub struct History {
    /// What the database is called.
    pub name: String,
    before: Option<(Sample, Duration)>,
    /// The newest sample.
    pub now: Sample,
    at: Duration,
    /// Writes a second, oldest first.
    pub writes: VecDeque<u64>,
    /// Why the newest look failed, if it did.
    pub trouble: Option<String>,
}

impl History {
    /// Of nothing yet.
    pub fn new(name: String) -> History {
        let (now, at) = (Sample::default(), Duration::ZERO);
        History { name, before: None, now, at, writes: VecDeque::new(), trouble: None }
    }

    /// Takes a sample, made so long after the beginning. One that failed keeps the last one shown.
    pub fn add(&mut self, sample: Result<Sample>, at: Duration) {
        match sample {
            Err(failure) => {
                self.trouble = Some(match failure {
                    Failure::Engine(error) => error.to_string(),
                    other => format!("{other:?}"),
                });
            }
            Ok(sample) => {
                self.trouble = None;
                let earlier = std::mem::replace(&mut self.now, sample);
                let earlier_at = std::mem::replace(&mut self.at, at);
                // Another process counts from 0.
                self.before = (earlier.by == self.now.by && !earlier.values.is_empty())
                    .then_some((earlier, earlier_at));
                if self.before.is_some() {
                    self.writes.push_back(self.rate("writes"));
                }
                while self.writes.len() > RATES_MAX {
                    self.writes.pop_front();
                }
            }
        }
    }

    /// How much a number grew since the sample before.
    fn growth(&self, name: &str) -> u64 {
        self.before
            .as_ref()
            .map_or(0, |(before, _)| self.now.number(name).saturating_sub(before.number(name)))
    }

    fn seconds(&self) -> f64 {
        self.before.as_ref().map_or(0.0, |(_, at)| self.at.saturating_sub(*at).as_secs_f64())
    }

    /// By how much a number grows a second.
    pub fn rate(&self, name: &str) -> u64 {
        let seconds = self.seconds();
        if seconds <= 0.0 {
            return 0;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rate for people, above 0"
        )]
        let rate = (self.growth(name) as f64 / seconds).round() as u64;
        rate
    }

    /// Of look-ups in a cache lately, those that found it, in a hundred; `None` without any.
    pub fn hits(&self, hits: &str, misses: &str) -> Option<u64> {
        let (hits, misses) = (self.growth(hits), self.growth(misses));
        (hits + misses > 0).then(|| hits * 100 / (hits + misses))
    }

    /// What requests cost an hour as they are made now, in dollars at S3's list prices; `None` of a
    /// store on this host.
    pub fn dollars_an_hour(&self) -> Option<f64> {
        let remote = self.now.number("store-requests-max") > 0;
        let seconds = self.seconds();
        if !remote || seconds <= 0.0 {
            return None;
        }
        #[allow(clippy::cast_precision_loss, reason = "an estimate for people")]
        let thousands = |name: &str| self.growth(name) as f64 / 1000.0;
        let cost = thousands("requests-class-a") * S3_STANDARD.thousand_of_class_a
            + thousands("requests-class-b") * S3_STANDARD.thousand_of_class_b;
        Some(cost / seconds * 3600.0)
    }

    /// For a program: the newest values, and rates of what grows.
    pub fn to_json(&self) -> Value {
        let number = |text: &String| text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
        let values: serde_json::Map<_, _> =
            self.now.values.iter().map(|(name, value)| (name.clone(), number(value))).collect();
        let rates: serde_json::Map<_, _> = [
            "writes",
            "cache-hits",
            "cache-misses",
            "flushed-bytes",
            "compacted-bytes-written",
            "requests-class-a",
            "requests-class-b",
        ]
        .iter()
        .map(|name| ((*name).to_owned(), json!(self.rate(name))))
        .collect();
        json!({ "database": self.name, "by": self.now.by, "values": values, "per_second": rates,
            "dollars_an_hour": self.dollars_an_hour() })
    }
}
