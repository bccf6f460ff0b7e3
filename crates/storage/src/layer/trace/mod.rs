//! The strace of every store: each request with purpose, kind, name, size, latency and outcome.
//!
//! A [`Tracer`] is shared by the stores that it watches and by its readers. It keeps the last
//! requests in a bounded ring, counts by purpose and kind, and calls a sink for each request if it
//! was given one: [`JsonLines`] writes lines to a file of the world.
//!
//! Switched off it costs one relaxed load per request; switched on, two readings of the clock and
//! two short locks.

mod event;
mod log;
mod objects;
mod sink;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Env, Instant};

use crate::layer::RequestKind;
use crate::{ErrorKind, Purpose};

pub use event::{Event, Outcome};
pub use log::TraceLogStore;
pub use objects::TraceObjectStore;
pub use sink::JsonLines;

/// Called with each request after it ended, on whatever thread it ended on.
pub type Sink = Arc<dyn Fn(&Event) + Send + Sync>;

/// Requests kept unless said otherwise.
pub const RING_EVENTS_DEFAULT: usize = 1024;

/// Sums over the requests of one purpose and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that ended.
    pub requests: u64,
    /// Bytes sent or received.
    pub bytes: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Time they took together.
    pub latency: Duration,
    /// The longest that one took.
    pub latency_max: Duration,
}

struct Shared {
    env: Env,
    on: AtomicBool,
    number: AtomicU64,
    ring_events_max: usize,
    ring: Mutex<VecDeque<Event>>,
    counters: Mutex<BTreeMap<(Purpose, RequestKind), Counters>>,
    sink: Option<Sink>,
}

/// Sees requests. Clones are handles of one tracer.
#[derive(Clone)]
pub struct Tracer(Arc<Shared>);

impl fmt::Debug for Tracer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Tracer({}, {} requests)",
            if self.is_on() { "on" } else { "off" },
            self.0.number.load(Ordering::Relaxed)
        )
    }
}

impl Tracer {
    /// A tracer that is on and keeps the last [`RING_EVENTS_DEFAULT`] requests.
    pub fn new(env: &Env) -> Tracer {
        Tracer::with_sink(env, RING_EVENTS_DEFAULT, None)
    }

    /// A tracer that is on, keeps the last `ring_events_max` requests and hands each to `sink`.
    pub fn with_sink(env: &Env, ring_events_max: usize, sink: Option<Sink>) -> Tracer {
        Tracer(Arc::new(Shared {
            env: env.clone(),
            on: AtomicBool::new(true),
            number: AtomicU64::new(0),
            ring_events_max,
            ring: Mutex::default(),
            counters: Mutex::default(),
            sink,
        }))
    }

    /// Whether requests are seen.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Sees requests from here on, or not.
    pub fn set_on(&self, on: bool) {
        self.0.on.store(on, Ordering::Relaxed);
    }

    /// The last requests, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.0.ring.lock().iter().cloned().collect()
    }

    /// Sums by purpose and kind.
    pub fn counters(&self) -> BTreeMap<(Purpose, RequestKind), Counters> {
        self.0.counters.lock().clone()
    }

    /// Sums over all purposes of one kind.
    pub fn of_kind(&self, kind: RequestKind) -> Counters {
        let mut sum = Counters::default();
        for ((_, other), counters) in &*self.0.counters.lock() {
            if *other == kind {
                sum.requests += counters.requests;
                sum.bytes += counters.bytes;
                sum.errors += counters.errors;
                sum.latency += counters.latency;
                sum.latency_max = sum.latency_max.max(counters.latency_max);
            }
        }
        sum
    }

    /// Forgets the ring and the sums.
    pub fn reset(&self) {
        self.0.ring.lock().clear();
        self.0.counters.lock().clear();
    }

    fn begin(&self) -> Instant {
        self.0.env.now()
    }

    fn end(
        &self,
        began: Instant,
        purpose: Purpose,
        kind: RequestKind,
        name: &str,
        bytes: u64,
        outcome: Outcome,
    ) {
        let shared = &*self.0;
        let latency = shared.env.now().since(began);
        {
            let mut counters = shared.counters.lock();
            let counters = counters.entry((purpose, kind)).or_default();
            counters.requests += 1;
            counters.bytes += bytes;
            counters.errors += u64::from(matches!(outcome, Outcome::Error(_)));
            counters.latency += latency;
            counters.latency_max = counters.latency_max.max(latency);
        }
        if shared.ring_events_max == 0 && shared.sink.is_none() {
            return;
        }
        let number = shared.number.fetch_add(1, Ordering::Relaxed) + 1;
        let event = Event { number, began, purpose, kind, name: name.into(), bytes, latency, outcome };
        if let Some(sink) = &shared.sink {
            sink(&event);
        }
        if shared.ring_events_max > 0 {
            let mut ring = shared.ring.lock();
            if ring.len() >= shared.ring_events_max {
                ring.pop_front();
            }
            ring.push_back(event);
        }
    }
}

/// The outcome of a result without a word of its own.
fn outcome_of<T>(result: &crate::Result<T>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(error) => Outcome::Error(error.kind()),
    }
}

/// Whether an error is one of the answers that a healthy store gives.
fn is_answer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::Fenced)
}
