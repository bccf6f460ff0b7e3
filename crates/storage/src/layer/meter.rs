//! Counts the calls of a store that does not count its own requests.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;

use crate::layer::RequestKind;
use crate::object::location::StoreLocation;
use crate::{
    Listed, Meter, ObjectInfo, ObjectName, ObjectStore, ObjectWriter, Placement, Purpose, PutOutcome,
    Request, Result,
};

#[cfg(test)]
mod tests;

/// Wraps a store; a [`Meter`] counts each call.
#[derive(Clone, Debug)]
pub struct MeterObjectStore {
    inner: Arc<dyn ObjectStore>,
    meter: Arc<Meter>,
    location: Option<StoreLocation>,
}

impl MeterObjectStore {
    /// `inner`, counted: itself when it counts already.
    pub fn wrap(inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        if inner.meter().is_some() {
            return inner;
        }
        Arc::new(MeterObjectStore { inner, meter: Arc::new(Meter::of_calls()), location: None })
    }

    /// The same, and it knows where it lies.
    pub fn wrap_at(inner: Arc<dyn ObjectStore>, location: StoreLocation) -> Arc<dyn ObjectStore> {
        if inner.meter().is_some() {
            return Arc::new(AtHome { inner, location });
        }
        Arc::new(MeterObjectStore { inner, meter: Arc::new(Meter::of_calls()), location: Some(location) })
    }

    fn counted<'a, T: 'a>(
        &'a self,
        request: Request,
        kind: RequestKind,
        work: BoxFuture<'a, Result<T>>,
        bytes: impl Fn(&T) -> u64 + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let result = work.await;
            note(&self.meter, request.purpose, kind, &result, bytes);
            result
        })
    }
}

/// Counts how a call ended.
fn note<T>(
    meter: &Meter,
    purpose: Purpose,
    kind: RequestKind,
    result: &Result<T>,
    bytes: impl Fn(&T) -> u64,
) {
    match result {
        Ok(value) => match bytes(value) {
            0 => {}
            bytes => meter.received(purpose, kind, bytes),
        },
        Err(_) => meter.failed(purpose, kind),
    }
}

fn none<T>(_: &T) -> u64 {
    0
}

impl ObjectStore for MeterObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        self.meter.sent(request.purpose, RequestKind::Create, 0);
        Box::pin(async move {
            let result = self.inner.create(request, name, placement).await;
            note(&self.meter, request.purpose, RequestKind::Create, &result, none);
            let writer =
                MeterWriter { inner: result?, meter: Arc::clone(&self.meter), purpose: request.purpose };
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
        self.meter.sent(request.purpose, RequestKind::Put, bytes.len() as u64);
        self.counted(
            request,
            RequestKind::Put,
            self.inner.put_if_absent(request, name, placement, bytes),
            none,
        )
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        self.meter.sent(request.purpose, RequestKind::Read, 0);
        self.counted(request, RequestKind::Read, self.inner.read(request, name, range), |bytes| {
            bytes.len() as u64
        })
    }

    fn with_held(
        &self,
        request: Request,
        name: &ObjectName,
        range: Range<u64>,
        show: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let mut bytes = 0;
        let shown = self.inner.with_held(request, name, range, &mut |held| {
            bytes = held.len() as u64;
            show(held);
        });
        // What was not there is asked for by a read, which counts.
        if shown {
            self.meter.sent(request.purpose, RequestKind::Read, 0);
            self.meter.received(request.purpose, RequestKind::Read, bytes);
        }
        shown
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        self.meter.sent(request.purpose, RequestKind::ReadRanges, 0);
        let read = self.inner.read_ranges(request, name, ranges);
        self.counted(request, RequestKind::ReadRanges, read, |read| {
            read.iter().map(|bytes| bytes.len() as u64).sum()
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        self.meter.sent(request.purpose, RequestKind::Length, 0);
        self.counted(request, RequestKind::Length, self.inner.length(request, name), none)
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        self.meter.sent(request.purpose, RequestKind::List, 0);
        self.counted(request, RequestKind::List, self.inner.list(request, prefix, after, limit), none)
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        self.meter.sent(request.purpose, RequestKind::Delete, 0);
        self.counted(request, RequestKind::Delete, self.inner.delete(request, name), none)
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        self.meter.sent(request.purpose, RequestKind::Copy, 0);
        self.counted(request, RequestKind::Copy, self.inner.copy(request, from, to), none)
    }

    fn adopt<'a>(
        &'a self,
        request: Request,
        place: &'a str,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        self.meter.sent(request.purpose, RequestKind::Copy, 0);
        self.counted(request, RequestKind::Copy, self.inner.adopt(request, place, to), none)
    }

    fn sweep(&self, request: Request) -> BoxFuture<'_, Result<u64>> {
        self.meter.sent(request.purpose, RequestKind::Sweep, 0);
        self.counted(request, RequestKind::Sweep, self.inner.sweep(request), none)
    }

    fn meter(&self) -> Option<&Arc<Meter>> {
        Some(&self.meter)
    }

    fn location(&self) -> Option<&StoreLocation> {
        self.location.as_ref()
    }

    leave_to_inner!(place facts traits performance survival describe);
}

/// A store that counts its own requests, and knows where it lies.
#[derive(Debug)]
struct AtHome {
    inner: Arc<dyn ObjectStore>,
    location: StoreLocation,
}

impl ObjectStore for AtHome {
    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        self.inner.read(request, name, range)
    }

    fn location(&self) -> Option<&StoreLocation> {
        Some(&self.location)
    }

    leave_to_inner!(
        create put_if_absent with_held read_ranges length list delete copy place adopt sweep facts meter
    );
    leave_to_inner!(traits performance survival describe);
}

#[derive(Debug)]
struct MeterWriter {
    inner: Box<dyn ObjectWriter>,
    meter: Arc<Meter>,
    purpose: Purpose,
}

impl ObjectWriter for MeterWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        self.meter.sent(self.purpose, RequestKind::Append, bytes.len() as u64);
        Box::pin(async move {
            let result = self.inner.append(bytes).await;
            note(&self.meter, self.purpose, RequestKind::Append, &result, none);
            result
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        let MeterWriter { inner, meter, purpose } = *self;
        meter.sent(purpose, RequestKind::Finish, 0);
        Box::pin(async move {
            let result = inner.finish().await;
            note(&meter, purpose, RequestKind::Finish, &result, none);
            result
        })
    }
}
