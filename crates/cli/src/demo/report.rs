//! What the demo shows at its end.

use std::time::Duration;

use comfy_table::Table;
use serde_json::{Value, json};
use tombolo_workload::Summary;

use super::oracle::{Oracle, Verdict};
use crate::text;

/// How one takeover went.
#[derive(Clone, Copy, Debug)]
pub struct Takeover {
    /// Who took over.
    pub writer: u32,
    /// What had happened to its predecessor.
    pub predecessor: &'static str,
    /// The call that opened the database: claim, fence, replay.
    pub open: Duration,
    /// From the signal to the successor's first acknowledged write: starting a process included.
    pub outage: Duration,
    /// Bytes of log replayed.
    pub replayed_bytes: u64,
}

/// All figures.
pub struct Report {
    store: String,
    source: String,
    /// On which the log lay, and of which so many were killed.
    nodes: Option<(usize, u32)>,
    files: u64,
    unreadable: u64,
    acknowledged: u64,
    refused: u64,
    writers: usize,
    latencies: Summary,
    takeovers: Vec<Takeover>,
    verdict: Verdict,
    wrote: Duration,
    read: Duration,
    whole: Duration,
}

impl Report {
    /// Collects the figures; places are the store and the tree, times are of writing, of reading
    /// back, and of the whole.
    pub fn new(
        oracle: &Oracle,
        verdict: Verdict,
        takeovers: Vec<Takeover>,
        [store, source]: [&str; 2],
        nodes: Option<(usize, u32)>,
        times: [Duration; 3],
    ) -> Report {
        let [wrote, read, whole] = times;
        Report {
            store: store.to_owned(),
            source: source.to_owned(),
            nodes,
            files: oracle.paths(),
            unreadable: oracle.unreadable,
            acknowledged: oracle.acknowledged(),
            refused: oracle.refused(),
            writers: oracle.writers.len(),
            latencies: oracle.latencies.summary(),
            takeovers,
            verdict,
            wrote,
            read,
            whole,
        }
    }

    /// Whether the claim did not hold.
    pub fn failed(&self) -> bool {
        let was_paused = self.takeovers.iter().any(|takeover| takeover.predecessor == "paused");
        self.verdict.lost.count > 0 || self.verdict.wrong.count > 0 || was_paused && self.refused == 0
    }

    /// Why it did not hold.
    pub fn verdict_words(&self) -> String {
        let mut words = format!(
            "{} lost, {} wrong, {} refused",
            self.verdict.lost.count, self.verdict.wrong.count, self.refused
        );
        for example in self.verdict.lost.examples.iter().chain(&self.verdict.wrong.examples) {
            words += &format!("\n  {example}");
        }
        words
    }

    fn per_second(&self) -> u64 {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate for people"
        )]
        let rate = (self.acknowledged as f64 / self.wrote.as_secs_f64().max(1e-3)) as u64;
        rate
    }

    /// As a table.
    pub fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("indexed", self.source.clone());
        row("into", self.store.clone());
        if let Some((count, killed)) = self.nodes {
            row(
                "log",
                format!(
                    "in the memory of three of {count} nodes over TCP, durable in two; {} killed",
                    text::counted(u64::from(killed), "node")
                ),
            );
        }
        row("files", text::count(self.files));
        if self.unreadable > 0 {
            row("unreadable, left out", text::count(self.unreadable));
        }
        row(
            "writer processes",
            if self.takeovers.iter().any(|takeover| takeover.predecessor == "paused") {
                let killed = self.writers.saturating_sub(2);
                format!("{}: 1 paused and woken, {killed} killed, 1 closed", self.writers)
            } else {
                format!("{}: {} killed, 1 closed", self.writers, self.writers.saturating_sub(1))
            },
        );
        row(
            "durable writes per second",
            format!(
                "{} over {}, takeovers included",
                text::count(self.per_second()),
                text::duration(self.wrote)
            ),
        );
        let Summary { p50, p90, p99, p999, max, .. } = self.latencies;
        let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(text::duration);
        row(
            "latency of a durable write",
            format!("p50 {p50}   p90 {p90}   p99 {p99}   p99.9 {p999}   max {max}"),
        );
        for takeover in &self.takeovers {
            let (open, outage) = (text::duration(takeover.open), text::duration(takeover.outage));
            let replayed = text::bytes(takeover.replayed_bytes);
            let name = format!("takeover by writer {}", takeover.writer);
            row(
                &name,
                format!(
                    "{open} ({replayed} of log replayed); {outage} from {} to the next write",
                    takeover.predecessor
                ),
            );
        }
        row("writes acknowledged", text::count(self.acknowledged));
        row("lost", text::count(self.verdict.lost.count));
        row("wrong", text::count(self.verdict.wrong.count));
        row("refused to the stale writer", text::count(self.refused));
        row(
            "read back in",
            format!(
                "{} ({}, {})",
                text::duration(self.read),
                text::counted(self.verdict.entries, "write"),
                text::counted(self.verdict.files, "file")
            ),
        );
        row("all in", text::duration(self.whole));
        table.to_string()
    }

    /// As JSON; times in nanoseconds.
    pub fn to_json(&self) -> Value {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let takeovers: Vec<_> = self
            .takeovers
            .iter()
            .map(|takeover| {
                json!({
                    "writer": takeover.writer, "predecessor": takeover.predecessor,
                    "open_nanos": nanos(takeover.open),
                    "outage_nanos": nanos(takeover.outage), "replayed_bytes": takeover.replayed_bytes,
                })
            })
            .collect();
        let Summary { count, mean, p50, p90, p99, p999, max } = self.latencies;
        json!({
            "source": self.source,
            "nodes": self.nodes.map_or(0, |(count, _)| count),
            "nodes_killed": self.nodes.map_or(0, |(_, killed)| killed),
            "store": self.store,
            "files": self.files,
            "unreadable": self.unreadable,
            "writers": self.writers,
            "writes_acknowledged": self.acknowledged,
            "writes_per_second": self.per_second(),
            "latency_nanos": {
                "count": count, "mean": nanos(mean), "p50": nanos(p50), "p90": nanos(p90), "p99": nanos(p99),
                "p999": nanos(p999),
                "max": nanos(max),
            },
            "takeovers": takeovers,
            "lost": self.verdict.lost.count,
            "wrong": self.verdict.wrong.count,
            "refused_to_stale_writer": self.refused,
            "examples": self.verdict.lost.examples.iter().chain(
                &self.verdict.wrong.examples
            ).collect::<Vec<_>>(),
            "entries_read_back": self.verdict.entries,
            "files_read_back": self.verdict.files,
            "write_nanos": nanos(self.wrote),
            "read_back_nanos": nanos(self.read),
            "whole_nanos": nanos(self.whole),
            "passed": !self.failed(),
        })
    }
}
