//! How long requests take: drawn anew for each, so that a store has the tail that a remote one has.
//!
//! A request's latency has three parts, each of which may be absent:
//! - most take what a log-normal distribution says, given by its median and its 99th percentile;
//! - a share takes a fixed long time instead;
//! - ranges of objects are spread over nodes, of which one is slow. A second request for a range
//!   that is being read goes to the next node, as a client does that has the replicas of a chunk to
//!   choose from.
//!
//! Chance comes from `Env`, so that a seed of a simulated world draws the same latencies again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::Env;

use crate::{Error, ErrorKind, ObjectName, Result};

/// The longest latency that a request may be given: a minute.
pub const LATENCY_MAX: Duration = Duration::from_secs(60);

/// Most nodes that are told apart.
pub const NODES_MAX: u32 = 1_000_000;

/// Bytes of an object that lie on one node.
const CHUNK_BYTES: u64 = 64 << 10;

/// Of a hundred draws of a normal distribution, 99 lie below so many deviations.
const DEVIATIONS_OF_P99: f64 = 2.326_347_9;

/// How long a request takes before its first byte. The default is no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Half of all requests take less.
    pub p50: Duration,
    /// Of a hundred requests, 99 take less; not above `p50`: all take the same.
    pub p99: Duration,
    /// Of a thousand requests, so many take `slow` instead.
    pub slow_permille: u32,
    /// What these take.
    pub slow: Duration,
    /// Nodes over which ranges are spread, the first of them slow; 0: none are told apart.
    pub nodes: u32,
    /// What a read of the slow node takes beyond the rest.
    pub slow_node: Duration,
    /// Bytes that one request moves in a second after its first byte; 0 for no bound.
    pub bytes_per_second: u64,
}

impl Latency {
    /// An object store of the cloud in the same region: small reads of 25 ms, one in a hundred of
    /// half a second, 90 MB/s for each request.
    pub const S3: Latency = Latency {
        p50: Duration::from_millis(25),
        p99: Duration::from_millis(70),
        slow_permille: 10,
        slow: Duration::from_millis(500),
        nodes: 0,
        slow_node: Duration::ZERO,
        bytes_per_second: 90_000_000,
    };

    /// A cluster of chunk servers in the same data centre, as in "Disaggregating RocksDB: A
    /// Production Experience", table 2: reads of 0.74 ms, 2 ms at the 99th percentile; one node of
    /// fifty takes 20 ms longer.
    pub const CLUSTER: Latency = Latency {
        p50: Duration::from_micros(740),
        p99: Duration::from_millis(2),
        slow_permille: 0,
        slow: Duration::ZERO,
        nodes: 50,
        slow_node: Duration::from_millis(20),
        bytes_per_second: 400_000_000,
    };

    /// Latencies that a name stands for.
    pub const NAMED: [(&str, Latency); 2] = [("s3", Latency::S3), ("cluster", Latency::CLUSTER)];

    /// The same for every request.
    pub const fn fixed(latency: Duration) -> Latency {
        Latency {
            p50: latency,
            p99: latency,
            slow_permille: 0,
            slow: Duration::ZERO,
            nodes: 0,
            slow_node: Duration::ZERO,
            bytes_per_second: 0,
        }
    }

    /// Reads a name, or `p50_us:740,p99_us:2000` and so on with any of the parts `slow_permille`,
    /// `slow_us`, `nodes`, `slow_node_us`, `bytes_per_second`.
    ///
    /// # Errors
    /// `Invalid`, saying what may be written.
    pub fn parse(text: &str) -> Result<Latency> {
        if let Some((_, latency)) = Latency::NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*latency);
        }
        let invalid = |what: &str| {
            let names = Latency::NAMED.map(|(name, _)| name).join(" or ");
            Error::new(ErrorKind::Invalid, format!("{what} in the latency {text:?}")).expected(format!(
                "{names}, or parts as in p50_us:740,p99_us:2000: p50_us, p99_us, slow_permille, slow_us, \
                nodes, slow_node_us, bytes_per_second; \
                 times up to {} µs",
                LATENCY_MAX.as_micros()
            ))
        };
        let mut latency = Latency::default();
        let mut seen = Vec::new();
        for part in text.split(',') {
            let (name, value) = part.split_once(':').ok_or_else(|| invalid("a part without a colon"))?;
            let value: u64 = value.parse().map_err(|_| invalid("a part that is no number"))?;
            if seen.contains(&name) {
                return Err(invalid("a part twice"));
            }
            seen.push(name);
            let time = Some(Duration::from_micros(value)).filter(|time| *time <= LATENCY_MAX);
            let count = |max: u32| u32::try_from(value).ok().filter(|count| *count <= max);
            let too_much = || invalid("too large a number");
            match name {
                "p50_us" => latency.p50 = time.ok_or_else(too_much)?,
                "p99_us" => latency.p99 = time.ok_or_else(too_much)?,
                "slow_us" => latency.slow = time.ok_or_else(too_much)?,
                "slow_node_us" => latency.slow_node = time.ok_or_else(too_much)?,
                "slow_permille" => latency.slow_permille = count(1000).ok_or_else(too_much)?,
                "nodes" => latency.nodes = count(NODES_MAX).ok_or_else(too_much)?,
                "bytes_per_second" => latency.bytes_per_second = value,
                _ => return Err(invalid("an unknown part")),
            }
        }
        if latency.p99 > Duration::ZERO && latency.p99 < latency.p50 {
            return Err(invalid("a 99th percentile below the median"));
        }
        Ok(latency)
    }

    /// One request's latency, but for what its node adds.
    pub fn draw(&self, env: &Env) -> Duration {
        if self.slow_permille > 0 && env.random_u64() % 1000 < u64::from(self.slow_permille) {
            return self.slow;
        }
        if self.p99 <= self.p50 || self.p50.is_zero() {
            return self.p50;
        }
        let deviation = (self.p99.as_secs_f64() / self.p50.as_secs_f64()).ln() / DEVIATIONS_OF_P99;
        // A draw can be hours where p99 is far from p50, once in a great many.
        let factor = (deviation * normal(env)).exp();
        Duration::try_from_secs_f64(self.p50.as_secs_f64() * factor)
            .map_or(LATENCY_MAX, |latency| latency.min(LATENCY_MAX))
    }

    /// What moving so many bytes takes after the first of them.
    pub(super) fn moves(&self, bytes: u64) -> Duration {
        match self.bytes_per_second {
            0 => Duration::ZERO,
            rate => Duration::from_nanos(
                u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX),
            ),
        }
    }
}

/// A draw of the normal distribution (Box and Muller).
fn normal(env: &Env) -> f64 {
    // Of 53 bits, which a float holds: above 0, at most 1.
    let unit = || ((env.random_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
}

/// Which ranges are being read, so that a second request for one goes to another node.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// By the hash of object and range.
    being_read: Mutex<BTreeMap<u64, u32>>,
}

/// A read on its way to a node.
#[derive(Debug)]
pub(super) struct Visit {
    nodes: Arc<Nodes>,
    range: u64,
    pub(super) is_slow: bool,
}

impl Nodes {
    /// A read of `start` in `name` begins, on one of `count` nodes.
    pub(super) fn visit(self: &Arc<Nodes>, count: u32, name: &ObjectName, start: u64) -> Option<Visit> {
        if count == 0 {
            return None;
        }
        let range = hash(&(name, start));
        let mut being_read = self.being_read.lock();
        let others = being_read.entry(range).or_default();
        let node = hash(&(name, start / CHUNK_BYTES)).wrapping_add(u64::from(*others)) % u64::from(count);
        *others += 1;
        drop(being_read);
        Some(Visit { nodes: Arc::clone(self), range, is_slow: node == 0 })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Entry::Occupied(mut others) = self.nodes.being_read.lock().entry(self.range) {
            *others.get_mut() -= 1;
            if *others.get() == 0 {
                others.remove();
            }
        }
    }
}

fn hash(what: &impl Hash) -> u64 {
    // Its keys are constants: the same range is on the same node in every run.
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
