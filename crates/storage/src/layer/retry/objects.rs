//! An object store that waits for the one below.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env};

use super::{Attempts, RetryPolicy};
use crate::layer::RequestKind;
use crate::{Listed, ObjectName, ObjectStore, ObjectWriter, Placement, PutOutcome, Request, Result};

/// Wraps a store; requests that fail in passing are made again.
#[derive(Clone, Debug)]
pub struct RetryObjectStore {
    inner: Arc<dyn ObjectStore>,
    attempts: Arc<Attempts>,
}

impl RetryObjectStore {
    /// Wraps `inner`.
    pub fn new(env: &Env, inner: Arc<dyn ObjectStore>, policy: RetryPolicy) -> RetryObjectStore {
        RetryObjectStore { inner, attempts: Attempts::new(env, policy) }
    }

    /// The store below.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    /// Attempts that were made again so far.
    pub fn retries(&self) -> u64 {
        self.attempts.retries.load(Ordering::Relaxed)
    }

    /// Requests that were given up so far.
    pub fn given_up(&self) -> u64 {
        self.attempts.given_up.load(Ordering::Relaxed)
    }

    /// Requests that wait now.
    pub fn waiting(&self) -> usize {
        self.attempts.waiting.load(Ordering::Relaxed)
    }
}

impl ObjectStore for RetryObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(
            self.attempts
                .attempt(RequestKind::Create, request, move || self.inner.create(request, name, placement)),
        )
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(self.attempts.attempt(RequestKind::Put, request, move || {
            self.inner.put_if_absent(request, name, placement, bytes.clone())
        }))
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(
            self.attempts
                .attempt(RequestKind::Read, request, move || self.inner.read(request, name, range.clone())),
        )
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(
            self.attempts.attempt(RequestKind::ReadRanges, request, move || {
                self.inner.read_ranges(request, name, ranges)
            }),
        )
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        Box::pin(
            self.attempts.attempt(RequestKind::Length, request, move || self.inner.length(request, name)),
        )
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        Box::pin(
            self.attempts
                .attempt(RequestKind::List, request, move || self.inner.list(request, prefix, after, limit)),
        )
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(
            self.attempts.attempt(RequestKind::Delete, request, move || self.inner.delete(request, name)),
        )
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(
            self.attempts.attempt(RequestKind::Copy, request, move || self.inner.copy(request, from, to)),
        )
    }

    fn adopt<'a>(
        &'a self,
        request: Request,
        place: &'a str,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        Box::pin(
            self.attempts.attempt(RequestKind::Copy, request, move || self.inner.adopt(request, place, to)),
        )
    }

    fn sweep(&self, request: Request) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.attempts.attempt(RequestKind::Sweep, request, move || self.inner.sweep(request)))
    }

    leave_to_inner!(with_held place facts performance traits meter location survival describe);
}
