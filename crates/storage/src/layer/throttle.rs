//! A store that is slower than it could be: at most so many bytes and requests a second, and so
//! much latency.
//!
//! For a store that is shared or paid for by the request, and to see how a program does on a slower
//! one. All requests of a layer share its rates, in the order of their calls; latency is each one's
//! own, drawn from a distribution ([`Latency`]), so that requests at once wait side by side. A
//! write waits before it goes on, a read waits after its bytes came, when their size is known.
//! Nothing is saved up: an idle minute allows no burst. Pieces of an object have no latency, their
//! end has: remote stores take pieces while the next are made.
//!
//! Invariant: a request that its deadline keeps from waiting ends before it takes effect.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, Instant};

use crate::{
    Error, ErrorKind, Listed, ObjectInfo, ObjectName, ObjectStore, ObjectWriter, Placement, PutOutcome,
    Request, Result,
};

mod latency;

pub use latency::{LATENCY_MAX, Latency};

use latency::Nodes;

#[cfg(test)]
mod tests;

/// How slow. The default is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// Bytes read and written in a second; 0 for no bound.
    pub bytes_per_second: u64,
    /// Requests in a second; 0 for no bound.
    pub requests_per_second: u64,
    /// Added to each request.
    pub latency: Latency,
}

/// A rate that requests share.
#[derive(Debug, Default)]
struct Rate {
    /// 0 for no bound.
    per_second: u64,
    used_until: Mutex<Option<Instant>>,
}

impl Rate {
    fn new(per_second: u64) -> Rate {
        Rate { per_second, used_until: Mutex::default() }
    }

    /// Takes `amount`; when it fits the rate.
    fn take(&self, now: Instant, amount: u64) -> Instant {
        if self.per_second == 0 || amount == 0 {
            return now;
        }
        let nanos = u128::from(amount) * 1_000_000_000 / u128::from(self.per_second);
        let lasts = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut used_until = self.used_until.lock();
        let from = used_until.map_or(now, |until| until.max(now));
        *used_until.insert(from + lasts)
    }
}

/// What the requests of one layer share.
#[derive(Debug)]
struct Gate {
    env: Env,
    bytes: Rate,
    requests: Rate,
    latency: Latency,
    nodes: Arc<Nodes>,
}

impl Gate {
    /// Waits for a request's turn, which writes `bytes`.
    async fn enter(&self, request: Request, bytes: u64) -> Result<()> {
        self.enter_for(request, bytes, self.latency.draw(&self.env)).await
    }

    /// Waits for the turn of a read of an object from `start` on, and for its latency.
    async fn enter_read(&self, request: Request, name: &ObjectName, start: u64) -> Result<()> {
        let visit = self.nodes.visit(self.latency.nodes, name, start);
        let node = if visit.as_ref().is_some_and(|visit| visit.is_slow) {
            self.latency.slow_node
        } else {
            Duration::ZERO
        };
        self.enter_for(request, 0, self.latency.draw(&self.env) + node).await
    }

    /// Waits for a request's turn and its latency.
    async fn enter_for(&self, request: Request, bytes: u64, latency: Duration) -> Result<()> {
        let now = self.env.now();
        let turn = self.requests.take(now, 1).max(self.bytes.take(now, bytes)) + latency;
        if request.deadline.is_some_and(|deadline| deadline < turn) {
            return Err(Error::new(
                ErrorKind::DeadlineExceeded,
                "the deadline would pass in a throttled store; nothing was asked of it",
            ));
        }
        self.wait(turn).await;
        Ok(())
    }

    /// Waits for the turn of `bytes` that were read, and for their way.
    async fn read(&self, bytes: u64) {
        let now = self.env.now();
        let turn = self.bytes.take(now, bytes).max(now + self.latency.moves(bytes));
        self.wait(turn).await;
    }

    async fn wait(&self, turn: Instant) {
        if turn > self.env.now() {
            self.env.sleep_until(turn).await;
        }
    }
}

/// Wraps a store; see the module's documentation.
#[derive(Clone, Debug)]
pub struct ThrottleObjectStore {
    inner: Arc<dyn ObjectStore>,
    gate: Arc<Gate>,
}

impl ThrottleObjectStore {
    /// Wraps `inner`.
    pub fn new(env: &Env, inner: Arc<dyn ObjectStore>, throttle: Throttle) -> ThrottleObjectStore {
        let Throttle { bytes_per_second, requests_per_second, latency } = throttle;
        let gate = Gate {
            env: env.clone(),
            bytes: Rate::new(bytes_per_second),
            requests: Rate::new(requests_per_second),
            latency,
            nodes: Arc::default(),
        };
        ThrottleObjectStore { inner, gate: Arc::new(gate) }
    }

    /// A request that writes `bytes` and reads none.
    fn one<'a, T: Send + 'a>(
        &'a self,
        request: Request,
        bytes: usize,
        made: BoxFuture<'a, Result<T>>,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            self.gate.enter(request, bytes as u64).await?;
            made.await
        })
    }
}

impl ObjectStore for ThrottleObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            self.gate.enter_for(request, 0, Duration::ZERO).await?;
            let inner = self.inner.create(request, name, placement).await?;
            Ok(Box::new(ThrottleWriter { inner, gate: Arc::clone(&self.gate), request })
                as Box<dyn ObjectWriter>)
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        let length = bytes.len();
        self.one(request, length, self.inner.put_if_absent(request, name, placement, bytes))
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.gate.enter_read(request, name, range.start).await?;
            let bytes = self.inner.read(request, name, range).await?;
            self.gate.read(bytes.len() as u64).await;
            Ok(bytes)
        })
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            self.gate.enter_read(request, name, ranges.first().map_or(0, |range| range.start)).await?;
            let read = self.inner.read_ranges(request, name, ranges).await?;
            self.gate.read(read.iter().map(|bytes| bytes.len() as u64).sum()).await;
            Ok(read)
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        self.one(request, 0, self.inner.length(request, name))
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        self.one(request, 0, self.inner.list(request, prefix, after, limit))
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        self.one(request, 0, self.inner.delete(request, name))
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        self.one(request, 0, self.inner.copy(request, from, to))
    }

    fn adopt<'a>(
        &'a self,
        request: Request,
        place: &'a str,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        self.one(request, 0, self.inner.adopt(request, place, to))
    }

    fn sweep(&self, request: Request) -> BoxFuture<'_, Result<u64>> {
        self.one(request, 0, self.inner.sweep(request))
    }

    leave_to_inner!(place facts performance traits meter location survival describe);
}

#[derive(Debug)]
struct ThrottleWriter {
    inner: Box<dyn ObjectWriter>,
    gate: Arc<Gate>,
    request: Request,
}

impl ObjectWriter for ThrottleWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.gate.enter_for(self.request, bytes.len() as u64, Duration::ZERO).await?;
            self.inner.append(bytes).await
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        Box::pin(async move {
            let ThrottleWriter { inner, gate, request } = *self;
            gate.enter(request, 0).await?;
            inner.finish().await
        })
    }
}
