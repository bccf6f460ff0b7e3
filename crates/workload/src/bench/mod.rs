//! Benchmarks with db_bench's names, on any [`Target`](crate::Target).
//!
//! `Plan → one Worker per thread → Outcome`. The caller brings the threads and the clock;
//! everything random comes from the plan's seed.
//!
//! Invariants:
//! 1. Which operations are done depends on the plan and the thread alone, unless the plan has a
//!    duration.
//! 2. Reading the clock costs as much as a fast operation does, so latencies of fast operations are
//!    sampled: see [`Meter`].

#[cfg(test)]
pub(crate) mod map;
mod meter;
mod name;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use meter::Meter;
pub use name::{Benchmark, UnknownBenchmark, Work};
pub use worker::{Worker, work};

use crate::key::KEY_WIDTH_MAX;
use crate::value::VALUE_BYTES_MAX;
use crate::{Distribution, Durability, KeyEncoding, Keys, Latencies};

/// What all benchmarks of a run have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Keys of the database; fills write so many in all, whatever the number of threads.
    pub num: u64,
    /// Reads of a reading benchmark, in all.
    pub reads: u64,
    /// Threads of a benchmark.
    pub threads: usize,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Compressed size of values by their size.
    pub compression_ratio: f64,
    /// Keys of a batch of `fillbatch` and of a read of `multireadrandom`; the latter takes at most
    /// [`Plan::MULTI_READ_MAX`].
    pub batch_size: usize,
    /// Distance of the keys of one read of `multireadrandom`; 0: each is drawn anew.
    pub multiread_stride: u64,
    /// Entries a second that the writer of `readwhilewriting` writes, at most; `None`: as fast as
    /// it can.
    pub beside_rate: Option<u64>,
    /// Entries that `seekrandom` reads after each seek.
    pub seek_nexts: usize,
    /// Ranges that `deleterange` deletes, in all.
    pub ranges: u64,
    /// Keys in a row that each range of `deleterange` and `deleterangeget` has.
    pub range_keys: u64,
    /// Durability of writes; `fillsync` is durable whatever this says. `None`: accepted.
    pub durability: Option<Durability>,
    /// Of the keys of YCSB's workloads, in the place of the paper's (Zipf, latest for D), and of
    /// merges and reads of what they made.
    pub distribution: Option<Distribution>,
    /// Ends each benchmark after this; random ones run that long whatever the counts say.
    pub duration: Option<Duration>,
    /// Of everything random.
    pub seed: u64,
    /// Which of a run's benchmarks it is: each draws other keys, also one that comes twice. Else it
    /// would find in the caches what it read itself.
    pub step: u64,
    /// Measures the latency of every so-many-th operation; `None` decides by how fast they are.
    pub sample_every: Option<u32>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            num: 1_000_000,
            reads: 1_000_000,
            threads: 1,
            key_bytes: 16,
            value_bytes: 100,
            compression_ratio: 0.5,
            batch_size: 100,
            multiread_stride: 0,
            beside_rate: None,
            seek_nexts: 10,
            ranges: 10_000,
            range_keys: 10,
            durability: None,
            distribution: None,
            duration: None,
            seed: 1,
            step: 0,
            sample_every: None,
        }
    }
}

/// A plan that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPlan(String);

impl Plan {
    /// Most threads.
    pub const THREADS_MAX: usize = 256;
    /// Most keys or reads.
    pub const NUM_MAX: u64 = 1 << 40;
    /// Most keys of a batch.
    pub const BATCH_MAX: usize = 100_000;
    /// Most keys of one read of `multireadrandom`.
    pub const MULTI_READ_MAX: usize = 1000;

    /// Checks it.
    ///
    /// # Errors
    /// The value out of range, and the range.
    pub fn check(&self) -> Result<(), InvalidPlan> {
        let invalid = |text: String| Err(InvalidPlan(text));
        for (name, value) in [("num", self.num), ("reads", self.reads)] {
            if !(1..=Plan::NUM_MAX).contains(&value) {
                return invalid(format!("{name} is {value}: it must be 1 to {}", Plan::NUM_MAX));
            }
        }
        if !(1..=Plan::THREADS_MAX).contains(&self.threads) {
            return invalid(format!("threads is {}: it must be 1 to {}", self.threads, Plan::THREADS_MAX));
        }
        for (name, value) in [("ranges", self.ranges), ("range-keys", self.range_keys)] {
            if !(1..=Plan::NUM_MAX).contains(&value) {
                return invalid(format!("{name} is {value}: it must be 1 to {}", Plan::NUM_MAX));
            }
        }
        if self.beside_rate == Some(0) {
            return invalid("beside-rate is 0: it must be at least 1 write a second".to_owned());
        }
        if !(1..=Plan::BATCH_MAX).contains(&self.batch_size) {
            return invalid(format!(
                "batch-size is {}: it must be 1 to {}",
                self.batch_size,
                Plan::BATCH_MAX
            ));
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return invalid(format!(
                "value-size is {}: it must be at most {VALUE_BYTES_MAX}",
                self.value_bytes
            ));
        }
        if self.batch_size.saturating_mul(self.key_bytes + self.value_bytes) > 64 << 20 {
            return invalid(format!(
                "a batch of {} keys of this size has more than 64 MiB: make batch-size smaller",
                self.batch_size
            ));
        }
        if !(0.0..=1.0).contains(&self.compression_ratio) {
            return invalid(format!(
                "compression-ratio is {}: it must be 0 (zero bytes) to 1 (random bytes)",
                self.compression_ratio
            ));
        }
        if !(1..KEY_WIDTH_MAX).contains(&self.key_bytes) {
            return invalid(format!("key-size is {}: it must be 1 to {}", self.key_bytes, KEY_WIDTH_MAX - 1));
        }
        if !self.key_encoding().holds(self.num) {
            return invalid(format!("keys of {} bytes are too short for {} keys", self.key_bytes, self.num));
        }
        if let Some(distribution) = self.distribution {
            Keys::new(distribution, self.num).map_err(|error| InvalidPlan(error.to_string()))?;
        }
        if self.sample_every == Some(0) {
            return invalid("sample-every is 0: it must be 1 or more".to_owned());
        }
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return invalid("duration is 0: leave it out to run by counts".to_owned());
        }
        Ok(())
    }

    /// The plan of one benchmark: some have values of their own size.
    #[must_use]
    pub fn of(&self, benchmark: Benchmark) -> Plan {
        match benchmark.value_bytes {
            None => self.clone(),
            Some(value_bytes) => {
                Plan { num: (self.num / 1000).max(self.num.min(16)), value_bytes, ..self.clone() }
            }
        }
    }

    /// Operations of a benchmark over all threads, unless it has a duration.
    pub fn operations(&self, benchmark: Benchmark) -> u64 {
        let plan = self.of(benchmark);
        match benchmark.work {
            _ if benchmark.is_durable || benchmark.work == Work::CreateKeyspaces => plan.keyspaces(),
            Work::Checkpoint => CHECKPOINTS,
            Work::DeleteRange => plan.ranges.min(plan.num),
            _ if benchmark.is_reading() || benchmark.is_mixed() => plan.reads,
            _ => plan.num,
        }
    }

    /// A thousandth of its keys, at least 1000: slow writes, and the keyspaces that are made.
    fn keyspaces(&self) -> u64 {
        (self.num / 1000).max(self.num.min(1000))
    }

    /// How key numbers become keys.
    pub fn key_encoding(&self) -> KeyEncoding {
        KeyEncoding::Padded { width: self.key_bytes }
    }
}

/// Checkpoints that the benchmark of that name makes.
const CHECKPOINTS: u64 = 10;

/// What the threads of one benchmark share with each other and with their observer.
#[derive(Debug)]
pub struct Shared {
    stop: AtomicBool,
    /// Foreground threads at work; the writer beside them ends with the last.
    at_work: AtomicU64,
    progress: Vec<Progress>,
    /// Keys that the threads inserted beyond the plan's.
    inserted: Arc<AtomicU64>,
    /// How a thread that writes at a rate waits for its turn.
    sleep: fn(Duration),
}

/// A thread's count, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Progress(AtomicU64);

impl Shared {
    /// For `threads` foreground threads.
    #[must_use]
    pub fn new(threads: usize) -> Shared {
        let progress = std::iter::repeat_with(Progress::default).take(threads + 1).collect();
        let (stop, at_work) = (AtomicBool::new(false), AtomicU64::new(threads as u64));
        Shared { stop, at_work, progress, inserted: Arc::default(), sleep: |_| std::hint::spin_loop() }
    }

    /// The same, where a thread that waits for its turn sleeps by `sleep` instead of looking at the
    /// clock all the time.
    #[must_use]
    pub fn sleeping(self, sleep: fn(Duration)) -> Shared {
        Shared { sleep, ..self }
    }

    /// Ends the benchmark soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether every foreground thread has ended.
    pub fn is_done(&self) -> bool {
        self.at_work.load(Ordering::Acquire) == 0
    }

    /// Operations of all foreground threads so far.
    pub fn operations(&self) -> u64 {
        let foreground = self.progress.len() - 1;
        self.progress[..foreground].iter().map(|progress| progress.0.load(Ordering::Relaxed)).sum()
    }

    fn ended(&self) {
        self.at_work.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What one thread did, or several together.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Operations: each key of a batch or of a multi-get is one, and each entry of a full scan.
    pub operations: u64,
    /// Bytes of keys and values written or read.
    pub bytes: u64,
    /// Reads that found something.
    pub found: u64,
    /// Operations that failed.
    pub errors: u64,
    /// The first failure.
    pub first_error: Option<String>,
    /// Latencies of the sampled calls.
    pub latencies: Latencies,
    /// Every so-many-th call was sampled.
    pub sampled_every: u32,
    /// When the first thread began, by the caller's clock.
    pub begun: Duration,
    /// When the last thread ended.
    pub ended: Duration,
    /// A part of the data read, so that no target can skip reading it.
    pub digest: u64,
}

impl Outcome {
    /// Adds what another thread did.
    pub fn merge(&mut self, other: Outcome) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.found += other.found;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latencies.merge(&other.latencies);
        self.sampled_every = self.sampled_every.max(other.sampled_every);
        self.begun = if self.ended.is_zero() { other.begun } else { self.begun.min(other.begun) };
        self.ended = self.ended.max(other.ended);
        self.digest ^= other.digest;
    }

    /// From the first thread's beginning to the last one's end.
    pub fn elapsed(&self) -> Duration {
        self.ended.saturating_sub(self.begun)
    }

    /// Operations per second.
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed().as_secs_f64().max(1e-9)
    }

    /// Bytes per second.
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed().as_secs_f64().max(1e-9)
    }
}
