//! How much of a remote store is asked for at once: neighbours share a request, others go side by
//! side, in a number that follows the store.
//!
//! - Requests have places on the way, as many as the store takes well (`limit`): the more urgent
//!   first. Who waits for a place waits until its deadline.
//! - Several ranges of one call become requests of their own, side by side. Those that lie near
//!   each other share one: what lies between is read along where that takes a fraction of the
//!   latency of a request, as measured (see [`StorePerformance::bytes_of_latency`]).
//!
//! A request that nobody waits for any more gives its place back at once. Pieces of objects have no
//! places, their ends have: a writer holds none while the next piece is made.

mod limit;

#[cfg(test)]
mod tests;

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, all};

use self::limit::{Ended, LIMIT_FIRST, Limit};
use crate::gate::{Gate, Place};
use crate::spans::{cut, each_alone, plan};
use crate::{
    Error, ErrorKind, Listed, ObjectInfo, ObjectName, ObjectStore, ObjectWriter, Placement, PutOutcome,
    Request, Result, StorePerformance,
};

/// Gaps that are read along with one request, in bytes: where nothing is measured yet, at least,
/// and at most.
const GAP_BYTES_UNKNOWN: u64 = 64 << 10;
const GAP_BYTES_MIN: u64 = 4 << 10;
const GAP_BYTES_MAX: u64 = 256 << 10;

/// Gaps take at most this part of a request's latency.
const GAP_OF_LATENCY: u64 = 8;

/// Requests of one call that want places at once.
const SPANS_AT_ONCE_MAX: usize = 32;

/// Wraps a store; see the module's documentation.
#[derive(Clone, Debug)]
pub struct FlowObjectStore {
    env: Env,
    inner: Arc<dyn ObjectStore>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    gate: Arc<Gate>,
    /// `None`: one request after another, and each range by its own.
    limit: Option<Mutex<Limit>>,
}

impl FlowObjectStore {
    /// Wraps `inner`, whose [`ObjectStore::performance`] is asked for the measurements.
    pub fn new(env: &Env, inner: Arc<dyn ObjectStore>) -> FlowObjectStore {
        let shared = Shared { gate: Arc::new(Gate::new(LIMIT_FIRST)), limit: Some(Mutex::default()) };
        FlowObjectStore { env: env.clone(), inner, shared: Arc::new(shared) }
    }

    /// Makes all requests one after another, and one for each range: what this layer is for, taken
    /// away, to compare with.
    pub fn one_by_one(env: &Env, inner: Arc<dyn ObjectStore>) -> FlowObjectStore {
        let shared = Shared { gate: Arc::new(Gate::new(1)), limit: None };
        FlowObjectStore { env: env.clone(), inner, shared: Arc::new(shared) }
    }

    async fn take_place(&self, request: Request) -> Result<Place> {
        let mut entering = Box::pin(self.shared.gate.enter(request.priority));
        let Some(deadline) = request.deadline else { return Ok(entering.await) };
        let late = || {
            Error::new(
                ErrorKind::DeadlineExceeded,
                "the deadline passed while other requests were on their way; nothing was asked of the store",
            )
        };
        let mut timer = None;
        poll_fn(|context| {
            if let Poll::Ready(place) = entering.as_mut().poll(context) {
                return Poll::Ready(Ok(place));
            }
            let timer = timer.get_or_insert_with(|| self.env.sleep_until(deadline));
            timer.as_mut().poll(context).map(|()| Err(late()))
        })
        .await
    }

    /// Makes a request when it has a place.
    async fn one<T>(&self, request: Request, made: BoxFuture<'_, Result<T>>) -> Result<T> {
        let _place = self.take_place(request).await?;
        self.shared.watch(&self.env, &*self.inner, made).await
    }
}

impl Shared {
    /// Waits for a request that has a place, and learns from it.
    async fn watch<T>(
        &self,
        env: &Env,
        store: &dyn ObjectStore,
        made: BoxFuture<'_, Result<T>>,
    ) -> Result<T> {
        let began = env.now();
        let result = made.await;
        let Some(limit) = &self.limit else { return result };
        let (in_flight, waiting) = self.gate.load();
        let mut limit = limit.lock();
        let ended = Ended {
            began,
            now: env.now(),
            failed: result.as_ref().err().map(Error::kind),
            was_full: waiting > 0 || in_flight >= limit.places(),
            is_slow: store.performance().is_some_and(|performance| performance.is_slow),
        };
        let changed = limit.step(ended);
        drop(limit);
        if let Some(places) = changed {
            self.gate.set_limit(places);
        }
        result
    }
}

/// Gaps that are read along at a store.
fn gap_bytes_max(performance: Option<StorePerformance>) -> u64 {
    match performance.map(|performance| performance.bytes_of_latency()) {
        None | Some(0) => GAP_BYTES_UNKNOWN,
        Some(bytes) => (bytes / GAP_OF_LATENCY).clamp(GAP_BYTES_MIN, GAP_BYTES_MAX),
    }
}

impl ObjectStore for FlowObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            let inner = self.one(request, self.inner.create(request, name, placement)).await?;
            Ok(Box::new(FlowWriter { inner, store: self.clone(), request }) as Box<dyn ObjectWriter>)
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(self.one(request, self.inner.put_if_absent(request, name, placement, bytes)))
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(self.one(request, self.inner.read(request, name, range)))
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            let spans = match self.shared.limit {
                Some(_) => plan(ranges, gap_bytes_max(self.inner.performance())),
                None => each_alone(ranges),
            };
            if spans.is_empty() {
                return self.one(request, self.inner.read_ranges(request, name, ranges)).await;
            }
            let reads = spans.iter().map(|span| self.read(request, name, span.range.clone()));
            let read = all(reads.collect(), SPANS_AT_ONCE_MAX).await;
            let mut found = vec![Bytes::new(); ranges.len()];
            for (span, bytes) in spans.iter().zip(read) {
                let bytes = bytes?;
                for &index in &span.serves {
                    found[index] = cut(&bytes, span.range.start, &ranges[index]);
                }
            }
            Ok(found)
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.one(request, self.inner.length(request, name)))
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        Box::pin(self.one(request, self.inner.list(request, prefix, after, limit)))
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.one(request, self.inner.delete(request, name)))
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(self.one(request, self.inner.copy(request, from, to)))
    }

    fn adopt<'a>(
        &'a self,
        request: Request,
        place: &'a str,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        Box::pin(self.one(request, self.inner.adopt(request, place, to)))
    }

    fn performance(&self) -> Option<StorePerformance> {
        let (in_flight, waiting) = self.shared.gate.load();
        let in_flight_max = self.shared.limit.as_ref()?.lock().places() as u64;
        let performance = self.inner.performance().unwrap_or_default();
        Some(StorePerformance {
            in_flight: in_flight as u64,
            waiting: waiting as u64,
            in_flight_max,
            ..performance
        })
    }

    leave_to_inner!(with_held place sweep facts meter location traits survival describe);
}

#[derive(Debug)]
struct FlowWriter {
    inner: Box<dyn ObjectWriter>,
    store: FlowObjectStore,
    request: Request,
}

impl ObjectWriter for FlowWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        self.inner.append(bytes)
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        Box::pin(async move {
            let FlowWriter { inner, store, request } = *self;
            store.one(request, inner.finish()).await
        })
    }
}
