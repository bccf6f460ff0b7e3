//! Latencies with bounded error, mergeable over threads and processes.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency that is told apart, in nanoseconds: 100 seconds. Longer ones count as this.
const NANOS_MAX: u64 = 100_000_000_000;

/// A histogram of latencies: three significant digits from 1 ns to 100 s, about 200 KiB.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

impl fmt::Debug for Latencies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary().fmt(formatter)
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    /// An empty histogram.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts.
    #[must_use]
    pub fn new() -> Latencies {
        match Histogram::new_with_bounds(1, NANOS_MAX, 3) {
            Ok(histogram) => Latencies(histogram),
            Err(error) => unreachable!("constant bounds: {error}"),
        }
    }

    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos.clamp(1, NANOS_MAX));
    }

    /// Adds what another thread or process counted.
    pub fn merge(&mut self, other: &Latencies) {
        // Equal bounds: adding cannot fail.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok());
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` of all do not exceed; zero when nothing was counted.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        if self.0.is_empty() {
            Duration::ZERO
        } else {
            Duration::from_nanos(self.0.value_at_percentile(percent))
        }
    }

    /// The figures that reports show.
    #[must_use]
    pub fn summary(&self) -> Summary {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of values below 10^11"
        )]
        let mean = Duration::from_nanos(self.0.mean() as u64);
        Summary {
            count: self.count(),
            mean,
            p50: self.percentile(50.0),
            p90: self.percentile(90.0),
            p99: self.percentile(99.0),
            p999: self.percentile(99.9),
            max: if self.0.is_empty() { Duration::ZERO } else { Duration::from_nanos(self.0.max()) },
        }
    }
}

/// The figures that reports show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many were counted.
    pub count: u64,
    /// Mean.
    pub mean: Duration,
    /// Median.
    pub p50: Duration,
    /// 90 % do not exceed it.
    pub p90: Duration,
    /// 99 % do not exceed it.
    pub p99: Duration,
    /// 99.9 % do not exceed it.
    pub p999: Duration,
    /// The longest.
    pub max: Duration,
}

#[cfg(test)]
mod tests;
