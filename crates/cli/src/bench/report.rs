//! What benchmarks show: a line each for people, an object each for machines.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use tombolo_workload::Summary;
use tombolo_workload::bench::{Benchmark, Outcome, Plan, Work};

use crate::machine::{Machine, Memory};
use crate::text;

/// One benchmark's figures.
pub struct Row {
    /// Which.
    pub benchmark: Benchmark,
    /// Foreground threads.
    pub threads: usize,
    /// What they did.
    pub outcome: Outcome,
    /// What the writer beside them did.
    pub background: Option<Outcome>,
    /// CPU time of the whole process meanwhile.
    pub cpu: Duration,
    /// Bytes that the process caused to be written to disks meanwhile.
    pub written_bytes: u64,
    /// Bytes put into the object store meanwhile, by why.
    pub put_bytes: Vec<(&'static str, u64)>,
    /// Most resident memory that was seen.
    pub peak: Memory,
    /// Bytes of the tables that reads see afterwards.
    pub table_bytes: u64,
    /// Text that the benchmark is for.
    pub text: Option<String>,
}

/// What all rows have in common.
pub struct Header<'a> {
    /// The run.
    pub plan: &'a Plan,
    /// Where.
    pub machine: &'a Machine,
    /// The store.
    pub store: String,
    /// Its log, when it is named.
    pub log: Option<String>,
    /// The memory budget.
    pub budget_bytes: u64,
    /// Settings as given.
    pub settings: Vec<String>,
    /// The keyspace's settings as given.
    pub keyspace_settings: Vec<String>,
    /// Durability of writes.
    pub durability: &'static str,
    /// What one reading of the clock costs.
    pub clock: Duration,
    /// Memory of the process before the database was opened: the harness's own.
    pub before: Memory,
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e9).round() / 1e3
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people")]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

impl Header<'_> {
    /// For people.
    pub fn to_text(&self) -> String {
        let Header { plan, machine, .. } = self;
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<10} {value}");
        };
        line(
            "tombolo",
            format!(
                "{} ({})",
                env!("CARGO_PKG_VERSION"),
                if cfg!(debug_assertions) { "debug build: slow" } else { "release build" }
            ),
        );
        let memory = text::bytes(machine.memory_bytes);
        line(
            "machine",
            format!(
                "{} × {}, {memory}, {}, load {:.2}",
                machine.cores, machine.processor, machine.system, machine.load
            ),
        );
        line(
            "store",
            self.log.as_ref().map_or_else(|| self.store.clone(), |log| format!("{}, log {log}", self.store)),
        );
        let raw = plan.num.saturating_mul((plan.key_bytes + plan.value_bytes) as u64);
        line(
            "entries",
            format!(
                "{} keys of {} B, values of {} B that compress to {:.0} %: {}",
                text::count(plan.num),
                plan.key_bytes,
                plan.value_bytes,
                plan.compression_ratio * 100.0,
                text::bytes(raw)
            ),
        );
        line(
            "writes",
            format!(
                "{}, {} thread{}, seed {}",
                self.durability,
                plan.threads,
                if plan.threads == 1 { "" } else { "s" },
                plan.seed
            ),
        );
        let list = |settings: &[String]| {
            if settings.is_empty() { "all at their defaults".to_owned() } else { settings.join(" ") }
        };
        line(
            "settings",
            format!("{}; of the keyspace {}", list(&self.settings), list(&self.keyspace_settings)),
        );
        line(
            "memory",
            format!(
                "budget {}; {} before opening",
                text::bytes(self.budget_bytes),
                text::bytes(self.before.own_bytes)
            ),
        );
        line(
            "clock",
            format!(
                "{} ns a reading: fast operations are timed one in so many (column 1 in)",
                self.clock.as_nanos()
            ),
        );
        text.trim_end().to_owned()
    }
}

/// The line above the rows.
pub fn columns() -> String {
    format!(
        "{:<17} {:>11} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>4} {:>7} {:>9} {:>9}",
        "benchmark",
        "operations",
        "per second",
        "MB/s",
        "mean µs",
        "p50",
        "p99",
        "p99.9",
        "max",
        "1 in",
        "CPU µs",
        "peak MiB",
        "wrote MB"
    )
}

impl Row {
    fn cpu_micros_per_operation(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        let operations = self.outcome.operations.max(1) as f64;
        (self.cpu.as_secs_f64() * 1e9 / operations).round() / 1e3
    }

    /// Mean time of an operation on a thread, which all operations have a part in, sampled or not.
    fn micros_mean(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        let operations = self.outcome.operations.max(1) as f64;
        #[allow(clippy::cast_precision_loss, reason = "a few threads")]
        let threads = self.threads as f64;
        (self.outcome.elapsed().as_secs_f64() * 1e9 * threads / operations).round() / 1e3
    }

    /// One line for people, and more when there is more to say.
    pub fn to_text(&self, histogram: bool) -> String {
        let Summary { p50, p99, p999, max, .. } = self.outcome.latencies.summary();
        let megabytes = |bytes: f64| bytes / 1e6;
        #[allow(clippy::cast_precision_loss, reason = "megabytes for people")]
        let (wrote, peak) =
            (megabytes(self.written_bytes as f64), self.peak.own_bytes as f64 / f64::from(1 << 20));
        let mut text = format!(
            "{:<17} {:>11} {:>11} {:>9.1} {:>9.2} {:>9.2} {:>9.2} {:>9.1} {:>10.1} {:>4} {:>7.2} {:>9.1} \
            {:>9.1}",
            self.benchmark.name,
            text::count(self.outcome.operations),
            text::count(whole(self.outcome.operations_per_second())),
            megabytes(self.outcome.bytes_per_second()),
            self.micros_mean(),
            micros(p50),
            micros(p99),
            micros(p999),
            micros(max),
            self.outcome.sampled_every,
            self.cpu_micros_per_operation(),
            peak,
            wrote,
        );
        if !self.benchmark.is_threaded() {
            let what = self
                .text
                .clone()
                .unwrap_or_else(|| format!("took {}", text::duration(self.outcome.elapsed())));
            text = format!("{:<17} {}", self.benchmark.name, what.replace('\n', &format!("\n{:<17} ", "")));
        }
        if (self.benchmark.is_reading() || self.benchmark.is_mixed())
            && !matches!(self.benchmark.work, Work::ReadSequential | Work::ReadReverse)
        {
            let _ = write!(
                text,
                "\n{:<17} found {} of {}",
                "",
                text::count(self.outcome.found),
                text::count(self.outcome.operations)
            );
        }
        if let Some(writer) = &self.background {
            let rate = text::count(whole(writer.operations_per_second()));
            let p99 = text::duration(writer.latencies.summary().p99);
            let _ = write!(
                text,
                "\n{:<17} beside it {} writes, {rate} per second, p99 {p99}",
                "",
                text::count(writer.operations)
            );
        }
        if let Some(error) = self.first_error() {
            let _ = write!(text, "\n{:<17} {} failed: {error}", "", text::count(self.errors()));
        }
        if histogram && self.benchmark.is_threaded() {
            text.push_str(&self.histogram());
        }
        text
    }

    /// Every bucket that a person tells apart, from percentile to percentile.
    fn histogram(&self) -> String {
        let mut text = String::new();
        for percent in [0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0] {
            let latency = self.outcome.latencies.percentile(percent);
            let bar = "▪".repeat(bar_length(latency));
            let _ = write!(text, "\n{:<17} {percent:>6} % ≤ {:>12.2} µs {bar}", "", micros(latency));
        }
        text
    }

    /// Failed operations, the writer's included.
    pub fn errors(&self) -> u64 {
        self.outcome.errors + self.background.as_ref().map_or(0, |writer| writer.errors)
    }

    /// The first failure.
    pub fn first_error(&self) -> Option<&str> {
        let background = || self.background.as_ref().and_then(|writer| writer.first_error.as_deref());
        self.outcome.first_error.as_deref().or_else(background)
    }

    /// For machines. Sizes in bytes, latencies in microseconds.
    pub fn to_json(&self, header: &Header<'_>) -> Value {
        let Summary { count, mean, p50, p90, p99, p999, max } = self.outcome.latencies.summary();
        let plan = header.plan;
        let mut row = json!({
            "benchmark": self.benchmark.name,
            "threads": self.threads,
            "operations": self.outcome.operations,
            "seconds": self.outcome.elapsed().as_secs_f64(),
            "operations_per_second": self.outcome.operations_per_second(),
            "bytes_per_second": self.outcome.bytes_per_second(),
            "micros_mean": micros(mean),
            "micros_p50": micros(p50),
            "micros_p90": micros(p90),
            "micros_p99": micros(p99),
            "micros_p999": micros(p999),
            "micros_max": micros(max),
            "latency_samples": count,
            "latency_sampled_every": self.outcome.sampled_every,
            "errors": self.errors(),
            "first_error": self.first_error(),
            "cpu_micros_per_operation": self.cpu_micros_per_operation(),
            "peak_bytes": self.peak.own_bytes,
            "peak_mapped_bytes": self.peak.mapped_bytes,
            "budget_bytes": header.budget_bytes,
            "bytes_written": self.written_bytes,
            "object_bytes_written": self
                .put_bytes
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), json!(bytes)))
                .collect::<serde_json::Map<_, _>>(),
            "table_bytes": self.table_bytes,
            "num": plan.num,
            "key_bytes": plan.key_bytes,
            "value_bytes": plan.value_bytes,
            "durability": if self.benchmark.is_durable { "durable" } else { header.durability },
            "settings": header.settings,
            "keyspace_settings": header.keyspace_settings,
            "seed": plan.seed,
            "version": env!("CARGO_PKG_VERSION"),
            "cores": header.machine.cores,
            "memory_bytes": header.machine.memory_bytes,
            "load": header.machine.load,
        });
        let Some(fields) = row.as_object_mut() else { return row };
        if self.benchmark.is_reading() || self.benchmark.is_mixed() {
            fields.insert("found".to_owned(), json!(self.outcome.found));
        }
        if matches!(
            self.benchmark.work,
            Work::WriteBatches | Work::WriteRandomBatches | Work::MultiRead | Work::ReadInFlight
        ) {
            fields.insert("batch_size".to_owned(), json!(plan.batch_size));
        }
        if self.benchmark.work == Work::MultiRead {
            fields.insert("multiread_stride".to_owned(), json!(plan.multiread_stride));
        }
        if self.benchmark.work == Work::Seek {
            fields.insert("seek_nexts".to_owned(), json!(plan.seek_nexts));
        }
        if let Some(writer) = &self.background {
            fields.insert("writes".to_owned(), json!(writer.operations));
            fields.insert("writes_per_second".to_owned(), json!(writer.operations_per_second()));
            fields.insert("write_micros_p99".to_owned(), json!(micros(writer.latencies.summary().p99)));
        }
        if let Some(text) = &self.text {
            fields.insert("text".to_owned(), json!(text));
        }
        row
    }
}

/// Half a step for each doubling from 100 ns on.
fn bar_length(latency: Duration) -> usize {
    let tenths = u64::try_from(latency.as_nanos() / 100).unwrap_or(u64::MAX);
    (64 - tenths.leading_zeros()) as usize * 2
}
