//! Objects in memory: an ordered map under a lock.
//!
//! Invariant: every request takes effect in one step under the lock, between two scheduling points,
//! so that a simulation meets it both before and after others' requests.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env};

use crate::backend::begin;
use crate::object::check_put;
use crate::{
    Error, ErrorKind, FailureDomain, Listed, ObjectInfo, ObjectName, ObjectStore, ObjectWriter, Placement,
    PutOutcome, Request, Result, StoreTraits, Survival,
};

/// Most names of one page.
const LIST_PAGE_MAX: usize = 1000;

/// What all handles of one name share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    objects: Mutex<BTreeMap<ObjectName, Bytes>>,
}

impl Shared {
    fn insert(&self, name: &ObjectName, bytes: Bytes) -> PutOutcome {
        let mut objects = self.objects.lock();
        if objects.contains_key(name) {
            return PutOutcome::Exists;
        }
        objects.insert(name.clone(), bytes);
        PutOutcome::Created
    }
}

/// A handle of a store in memory. Clones and other handles of the same name see the same objects.
#[derive(Clone, Debug)]
pub struct MemoryObjectStore {
    env: Env,
    name: String,
    shared: Arc<Shared>,
}

impl MemoryObjectStore {
    pub(super) fn new(env: Env, name: String, shared: Arc<Shared>) -> MemoryObjectStore {
        MemoryObjectStore { env, name, shared }
    }

    /// A store of its own, shared with nobody but its clones.
    pub fn unnamed(env: &Env) -> MemoryObjectStore {
        MemoryObjectStore::new(env.clone(), "unnamed".into(), Arc::default())
    }

    fn find(&self, name: &ObjectName) -> Result<Bytes> {
        match self.shared.objects.lock().get(name) {
            Some(bytes) => Ok(bytes.clone()),
            None => Err(Error::new(ErrorKind::NotFound, "no such object")
                .object(format!("{}/{name}", self.describe()))),
        }
    }
}

/// Cuts `range` to an object of `length` bytes.
fn cut(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    let clamp = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
    let (start, end) = (clamp(range.start), clamp(range.end));
    if start < end { bytes.slice(start..end) } else { Bytes::new() }
}

impl ObjectStore for MemoryObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        _placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            begin(&self.env, request, "creating an object").await?;
            Ok(Box::new(MemoryWriter {
                store: self.clone(),
                request,
                name: name.clone(),
                bytes: BytesMut::new(),
            }) as Box<dyn ObjectWriter>)
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        _placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            begin(&self.env, request, "putting an object").await?;
            check_put(name, bytes.len())?;
            // A copy: the caller's slice may keep a far larger buffer alive.
            let outcome = self.shared.insert(name, Bytes::copy_from_slice(&bytes));
            self.env.yield_now().await;
            Ok(outcome)
        })
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            begin(&self.env, request, "reading an object").await?;
            let bytes = cut(&self.find(name)?, &range);
            self.env.yield_now().await;
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
            begin(&self.env, request, "reading an object").await?;
            let bytes = self.find(name)?;
            self.env.yield_now().await;
            Ok(ranges.iter().map(|range| cut(&bytes, range)).collect())
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            begin(&self.env, request, "asking for an object's length").await?;
            let length = self.find(name)?.len() as u64;
            self.env.yield_now().await;
            Ok(length)
        })
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        Box::pin(async move {
            begin(&self.env, request, "listing objects").await?;
            let listed = {
                let objects = self.shared.objects.lock();
                let limit = limit.min(LIST_PAGE_MAX);
                // Names that begin with the prefix are contiguous; `after` may lie before, within
                // or behind them.
                let lower: Bound<&str> = match after {
                    Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
                    _ => Bound::Included(prefix),
                };
                let mut matching = objects
                    .range::<str, _>((lower, Bound::Unbounded))
                    .take_while(|(name, _)| name.as_str().starts_with(prefix))
                    .map(|(name, bytes)| ObjectInfo { name: name.clone(), length: bytes.len() as u64 });
                let page: Vec<ObjectInfo> = matching.by_ref().take(limit).collect();
                Listed { objects: page, more: matching.next().is_some() }
            };
            self.env.yield_now().await;
            Ok(listed)
        })
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            begin(&self.env, request, "deleting an object").await?;
            self.shared.objects.lock().remove(name);
            self.env.yield_now().await;
            Ok(())
        })
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            begin(&self.env, request, "copying an object").await?;
            let outcome = self.find(from).map(|bytes| self.shared.insert(to, bytes));
            self.env.yield_now().await;
            outcome
        })
    }

    // Both happen under the lock of the map.
    fn traits(&self) -> StoreTraits {
        StoreTraits { must_prove_put_if_absent: false, lists_may_walk: false }
    }

    fn survival(&self) -> Survival {
        let durable =
            "survives as long as this process lives; the end of the process, however it comes, loses it";
        Survival {
            store: self.describe(),
            domain: FailureDomain::Process,
            accepted: durable.into(),
            durable: durable.into(),
            notes: vec!["For tests and for data that may be lost.".into()],
        }
    }

    fn describe(&self) -> String {
        format!("mem://{}", self.name)
    }
}

#[derive(Debug)]
struct MemoryWriter {
    store: MemoryObjectStore,
    request: Request,
    name: ObjectName,
    bytes: BytesMut,
}

impl ObjectWriter for MemoryWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            begin(&self.store.env, self.request, "appending to an object").await?;
            self.bytes.extend_from_slice(&bytes);
            Ok(())
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        Box::pin(async move {
            begin(&self.store.env, self.request, "finishing an object").await?;
            let length = self.bytes.len() as u64;
            match self.store.shared.insert(&self.name, self.bytes.freeze()) {
                PutOutcome::Created => {
                    self.store.env.yield_now().await;
                    Ok(ObjectInfo { name: self.name, length })
                }
                PutOutcome::Exists => {
                    Err(Error::new(ErrorKind::AlreadyExists, "the object exists").object(&self.name))
                }
            }
        })
    }
}
