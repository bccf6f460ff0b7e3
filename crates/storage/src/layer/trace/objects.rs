//! An object store whose requests are told.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Instant};

use super::{Outcome, Tracer, outcome_of};
use crate::layer::RequestKind;
use crate::{
    Listed, ObjectInfo, ObjectName, ObjectStore, ObjectWriter, Placement, Purpose, PutOutcome, Request,
    Result,
};

/// Wraps a store; a [`Tracer`] sees each request.
#[derive(Clone, Debug)]
pub struct TraceObjectStore {
    inner: Arc<dyn ObjectStore>,
    tracer: Tracer,
}

/// Tells of a request when it ends, also when its caller stops waiting.
pub(super) struct Span<'a> {
    tracer: &'a Tracer,
    began: Instant,
    purpose: Purpose,
    kind: RequestKind,
    name: &'a str,
    bytes: u64,
    outcome: Outcome,
}

impl<'a> Span<'a> {
    pub(super) fn begin(
        tracer: &'a Tracer,
        purpose: Purpose,
        kind: RequestKind,
        name: &'a str,
        bytes: u64,
    ) -> Span<'a> {
        Span { tracer, began: tracer.begin(), purpose, kind, name, bytes, outcome: Outcome::Dropped }
    }

    pub(super) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    pub(super) fn end_with_bytes(mut self, outcome: Outcome, bytes: u64) {
        self.bytes = bytes;
        self.outcome = outcome;
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        self.tracer.end(self.began, self.purpose, self.kind, self.name, self.bytes, self.outcome);
    }
}

fn put_outcome(result: &Result<PutOutcome>) -> Outcome {
    match result {
        Ok(PutOutcome::Created) => Outcome::Created,
        Ok(PutOutcome::Exists) => Outcome::Exists,
        Err(error) => Outcome::Error(error.kind()),
    }
}

/// Adoption that the store below cannot do is no error: the caller copies.
fn adopt_outcome(result: &Result<Option<PutOutcome>>) -> Outcome {
    match result {
        Ok(Some(PutOutcome::Created)) => Outcome::Created,
        Ok(Some(PutOutcome::Exists)) => Outcome::Exists,
        Ok(None) => outcome_of(result),
        Err(error) => Outcome::Error(error.kind()),
    }
}

impl TraceObjectStore {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>, tracer: Tracer) -> TraceObjectStore {
        TraceObjectStore { inner, tracer }
    }

    /// Who sees the requests.
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    fn span<'a>(&'a self, request: Request, kind: RequestKind, name: &'a str, bytes: u64) -> Span<'a> {
        Span::begin(&self.tracer, request.purpose, kind, name, bytes)
    }
}

impl ObjectStore for TraceObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        if !self.tracer.is_on() {
            return self.inner.create(request, name, placement);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::Create, name.as_str(), 0);
            let result = self.inner.create(request, name, placement).await;
            span.end(outcome_of(&result));
            let writer = TraceWriter {
                inner: result?,
                tracer: self.tracer.clone(),
                purpose: request.purpose,
                name: name.clone(),
                length: 0,
            };
            Ok(Box::new(writer) as Box<dyn ObjectWriter>)
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        if !self.tracer.is_on() {
            return self.inner.put_if_absent(request, name, placement, bytes);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::Put, name.as_str(), bytes.len() as u64);
            let result = self.inner.put_if_absent(request, name, placement, bytes).await;
            span.end(put_outcome(&result));
            result
        })
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        if !self.tracer.is_on() {
            return self.inner.read(request, name, range);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::Read, name.as_str(), 0);
            let result = self.inner.read(request, name, range).await;
            span.end_with_bytes(outcome_of(&result), result.as_ref().map_or(0, |bytes| bytes.len() as u64));
            result
        })
    }

    fn with_held(
        &self,
        request: Request,
        name: &ObjectName,
        range: Range<u64>,
        show: &mut dyn FnMut(&[u8]),
    ) -> bool {
        if !self.tracer.is_on() {
            return self.inner.with_held(request, name, range, show);
        }
        let (began, mut bytes) = (self.tracer.begin(), 0);
        let shown = self.inner.with_held(request, name, range, &mut |held| {
            bytes = held.len() as u64;
            show(held);
        });
        // What was not there is asked for by a read, which counts.
        if shown {
            self.tracer.end(began, request.purpose, RequestKind::Read, name.as_str(), bytes, Outcome::Done);
        }
        shown
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        if !self.tracer.is_on() {
            return self.inner.read_ranges(request, name, ranges);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::ReadRanges, name.as_str(), 0);
            let result = self.inner.read_ranges(request, name, ranges).await;
            let bytes = result.as_ref().map_or(0, |read| read.iter().map(|bytes| bytes.len() as u64).sum());
            span.end_with_bytes(outcome_of(&result), bytes);
            result
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        if !self.tracer.is_on() {
            return self.inner.length(request, name);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::Length, name.as_str(), 0);
            let result = self.inner.length(request, name).await;
            span.end(outcome_of(&result));
            result
        })
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        if !self.tracer.is_on() {
            return self.inner.list(request, prefix, after, limit);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::List, prefix, 0);
            let result = self.inner.list(request, prefix, after, limit).await;
            span.end_with_bytes(
                outcome_of(&result),
                result.as_ref().map_or(0, |listed| listed.objects.len() as u64),
            );
            result
        })
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        if !self.tracer.is_on() {
            return self.inner.delete(request, name);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::Delete, name.as_str(), 0);
            let result = self.inner.delete(request, name).await;
            span.end(outcome_of(&result));
            result
        })
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        if !self.tracer.is_on() {
            return self.inner.copy(request, from, to);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::Copy, to.as_str(), 0);
            let result = self.inner.copy(request, from, to).await;
            span.end(put_outcome(&result));
            result
        })
    }

    fn adopt<'a>(
        &'a self,
        request: Request,
        place: &'a str,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        if !self.tracer.is_on() {
            return self.inner.adopt(request, place, to);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::Copy, to.as_str(), 0);
            let result = self.inner.adopt(request, place, to).await;
            span.end(adopt_outcome(&result));
            result
        })
    }

    fn sweep(&self, request: Request) -> BoxFuture<'_, Result<u64>> {
        if !self.tracer.is_on() {
            return self.inner.sweep(request);
        }
        Box::pin(async move {
            let span = self.span(request, RequestKind::Sweep, "", 0);
            let result = self.inner.sweep(request).await;
            span.end(outcome_of(&result));
            result
        })
    }

    leave_to_inner!(place facts performance traits meter location survival describe);
}

#[derive(Debug)]
struct TraceWriter {
    inner: Box<dyn ObjectWriter>,
    tracer: Tracer,
    purpose: Purpose,
    name: ObjectName,
    length: u64,
}

impl ObjectWriter for TraceWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        self.length += bytes.len() as u64;
        if !self.tracer.is_on() {
            return self.inner.append(bytes);
        }
        Box::pin(async move {
            let span = Span::begin(
                &self.tracer,
                self.purpose,
                RequestKind::Append,
                self.name.as_str(),
                bytes.len() as u64,
            );
            let result = self.inner.append(bytes).await;
            span.end(outcome_of(&result));
            result
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        if !self.tracer.is_on() {
            return self.inner.finish();
        }
        Box::pin(async move {
            let TraceWriter { inner, tracer, purpose, name, length } = *self;
            let span = Span::begin(&tracer, purpose, RequestKind::Finish, name.as_str(), length);
            let result = inner.finish().await;
            span.end(outcome_of(&result));
            result
        })
    }
}
