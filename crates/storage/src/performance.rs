//! How the reads of a store fare, as a layer that sees them all measured it.

use std::time::Duration;

/// How long reads of a store take lately, and how much they give. Read-ahead asks for it to decide
/// how much to read at once.
///
/// Numbers of requests are since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorePerformance {
    /// The median latency of small reads; zero: too few were made to know.
    pub latency_p50: Duration,
    /// Their 99th percentile; zero: too few were made to know.
    pub latency_p99: Duration,
    /// Bytes that one request moves in a second once it gives the first; 0: too few large ones were
    /// made to know.
    pub bytes_per_second: u64,
    /// The median rose to a multiple of the usual one: the store as a whole is slow.
    pub is_slow: bool,
    /// Ranged reads that a second request may help: those that somebody waits for.
    pub reads: u64,
    /// Second requests that were made for them.
    pub hedges: u64,
    /// Second requests that answered first.
    pub hedges_won: u64,
    /// Second requests that were due and not made, for one of the reasons that
    /// [`crate::layer::hedge`] lists.
    pub hedges_suppressed: u64,
    /// Requests that are on their way now.
    pub in_flight: u64,
    /// Requests that wait for a place on the way.
    pub waiting: u64,
    /// Requests that may be on their way at once, as adapted to the store; 0: nobody bounds them.
    pub in_flight_max: u64,
}

/// What one request moves in a second while nothing is known: a third of a good network link.
const BYTES_PER_SECOND_UNKNOWN: u64 = 100_000_000;

impl StorePerformance {
    /// Bytes that one request moves in the time that small reads take before the first: so much
    /// more may be read along for twice the time.
    pub fn bytes_of_latency(&self) -> u64 {
        let rate = if self.bytes_per_second == 0 { BYTES_PER_SECOND_UNKNOWN } else { self.bytes_per_second };
        let bytes = u128::from(rate) * self.latency_p50.as_nanos() / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}
