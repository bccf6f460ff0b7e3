//! One request as a trace tells it.

use std::fmt;
use std::time::Duration;

use tombolo_env::Instant;

use super::is_answer;
use crate::layer::RequestKind;
use crate::{ErrorKind, Purpose};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Done,
    /// A put or copy found its name free.
    Created,
    /// A put or copy found its name taken.
    Exists,
    /// With an error.
    Error(ErrorKind),
    /// Its caller stopped waiting.
    Dropped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => formatter.write_str("done"),
            Outcome::Created => formatter.write_str("created"),
            Outcome::Exists => formatter.write_str("exists"),
            Outcome::Error(kind) => write!(formatter, "{kind:?}"),
            Outcome::Dropped => formatter.write_str("dropped"),
        }
    }
}

/// A request that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Counts the requests of a tracer from 1, in the order in which they ended.
    pub number: u64,
    /// When it began.
    pub began: Instant,
    /// Why it was made.
    pub purpose: Purpose,
    /// What was asked.
    pub kind: RequestKind,
    /// The object's name, a list's prefix, or a log's epoch and lane.
    pub name: String,
    /// Bytes sent or received; of a list, names.
    pub bytes: u64,
    /// From beginning to end.
    pub latency: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

impl Event {
    /// Whether it ended with an error that a healthy store does not give.
    pub fn is_trouble(&self) -> bool {
        matches!(self.outcome, Outcome::Error(kind) if !is_answer(kind))
    }

    /// One JSON object, without a line break:
    /// `{"number":1,"began_ns":…,"purpose":"get","kind":"read","name":"…","bytes":4096,"latency_ns":…,"outcome":"done"}`.
    pub fn to_json(&self) -> String {
        let mut name = String::with_capacity(self.name.len());
        for character in self.name.chars() {
            match character {
                '"' | '\\' => {
                    name.push('\\');
                    name.push(character);
                }
                control if control < ' ' => name.push_str(&format!("\\u{:04x}", u32::from(control))),
                plain => name.push(plain),
            }
        }
        format!(
            concat!(
                r#"{{"number":{},"began_ns":{},"purpose":"{}","kind":"{}","name":"{}","#,
                r#""bytes":{},"latency_ns":{},"outcome":"{}"}}"#
            ),
            self.number,
            self.began.as_nanos(),
            self.purpose,
            self.kind,
            name,
            self.bytes,
            self.latency.as_nanos(),
            self.outcome,
        )
    }
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let purpose = format!("{:?}", self.purpose).to_lowercase();
        write!(
            formatter,
            "{:>10} {:<10} {:<11} {} {} B {:?} {}",
            self.number, purpose, self.kind, self.name, self.bytes, self.latency, self.outcome
        )
    }
}
