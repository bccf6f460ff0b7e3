//! An object store with faults.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env};

use super::plan::{Fault, FaultPlan, Hook, Lateness};
use crate::layer::RequestKind;
use crate::{
    Error, ErrorKind, Listed, ObjectInfo, ObjectName, ObjectStore, ObjectWriter, Placement, PutOutcome,
    Request, Result, StoreTraits,
};

/// Wraps a store; a [`FaultPlan`] says what goes wrong.
#[derive(Clone, Debug)]
pub struct FaultObjectStore {
    env: Env,
    inner: Arc<dyn ObjectStore>,
    plan: FaultPlan,
}

/// What a request does between its faults.
#[derive(Default)]
pub(super) struct Course {
    pub(super) short: Option<u64>,
    pub(super) torn: Option<(bool, std::time::Duration)>,
    landed: Option<bool>,
    late: Option<Lateness>,
    duplicate: Option<Lateness>,
    after: Vec<Hook>,
}

pub(super) fn injected(kind: ErrorKind, request: RequestKind, name: &str) -> Error {
    Error::new(kind, format!("injected into {request}")).object(name)
}

/// Meets the faults that come before the effect.
pub(super) async fn meet(env: &Env, faults: Vec<Fault>, kind: RequestKind, name: &str) -> Result<Course> {
    let mut course = Course::default();
    let mut failure = None;
    for fault in faults {
        match fault {
            Fault::Error(kind) => failure = Some(kind),
            Fault::Delay(delay) => env.sleep(delay).await,
            Fault::Short(bytes) => course.short = Some(bytes),
            Fault::Unknown { landed } => course.landed = Some(landed),
            Fault::Late(lateness) => course.late = Some(lateness),
            Fault::Duplicate(lateness) => course.duplicate = Some(lateness),
            Fault::TornList { earlier_first, apart } => course.torn = Some((earlier_first, apart)),
            Fault::Before(hook) => {
                hook();
                // A process that the hook killed ends here.
                env.yield_now().await;
            }
            Fault::After(hook) => course.after.push(hook),
        }
    }
    match failure {
        Some(error) => Err(injected(error, kind, name)),
        None => Ok(course),
    }
}

impl Course {
    /// Meets the hooks that come after the effect.
    pub(super) async fn end(self, env: &Env) {
        for hook in self.after {
            hook();
            env.yield_now().await;
        }
    }
}

impl FaultObjectStore {
    /// Wraps `inner`. Late effects run as tasks of `env`.
    pub fn new(env: &Env, inner: Arc<dyn ObjectStore>, plan: FaultPlan) -> FaultObjectStore {
        FaultObjectStore { env: env.clone(), inner, plan }
    }

    /// The store below.
    pub fn inner(&self) -> &Arc<dyn ObjectStore> {
        &self.inner
    }

    async fn meet(&self, kind: RequestKind, request: Request, name: &str, bytes: u64) -> Result<Course> {
        let faults = self.plan.ask(kind, request.purpose, name, bytes);
        meet(&self.env, faults, kind, name).await
    }

    /// A request that changes nothing.
    async fn ask<T>(
        &self,
        kind: RequestKind,
        request: Request,
        name: &str,
        bytes: u64,
        effect: impl AsyncFnOnce(&Course) -> Result<T>,
    ) -> Result<T> {
        let course = self.meet(kind, request, name, bytes).await?;
        let result = effect(&course).await;
        course.end(&self.env).await;
        result
    }

    /// A request that changes the store. `effect` makes one more attempt at the change each time it
    /// is called.
    async fn change<T, F>(
        &self,
        kind: RequestKind,
        request: Request,
        name: &str,
        bytes: u64,
        effect: F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Fn() -> BoxFuture<'static, Result<T>>,
    {
        let course = self.meet(kind, request, name, bytes).await?;
        let unattended = |change: BoxFuture<'static, Result<T>>| -> BoxFuture<'static, ()> {
            Box::pin(async move { drop(change.await) })
        };
        if let Some(lateness) = course.late {
            self.plan.later(&self.env, lateness, unattended(effect()));
            return Err(injected(ErrorKind::OutcomeUnknown, kind, name));
        }
        if course.landed == Some(false) {
            return Err(injected(ErrorKind::OutcomeUnknown, kind, name));
        }
        if let Some(lateness) = course.duplicate {
            self.plan.later(&self.env, lateness, unattended(effect()));
        }
        let result = effect().await;
        let landed = course.landed;
        course.end(&self.env).await;
        match landed {
            Some(true) => Err(injected(ErrorKind::OutcomeUnknown, kind, name)),
            _ => result,
        }
    }

    /// A page whose first names are from one moment and whose last ones from another.
    async fn torn_list(
        &self,
        request: Request,
        prefix: &str,
        after: Option<&ObjectName>,
        limit: usize,
        earlier_first: bool,
        apart: std::time::Duration,
    ) -> Result<Listed> {
        let earlier = self.inner.list(request, prefix, after, limit).await?;
        self.env.sleep(apart).await;
        let later = self.inner.list(request, prefix, after, limit).await?;
        let (first, last) = if earlier_first { (earlier, later) } else { (later, earlier) };
        let Some(seam) = first.objects.get(first.objects.len() / 2).map(|info| info.name.clone()) else {
            return Ok(last);
        };
        let mut objects: Vec<ObjectInfo> =
            first.objects.iter().filter(|info| info.name <= seam).cloned().collect();
        objects.extend(last.objects.into_iter().filter(|info| info.name > seam));
        let more = last.more || objects.len() > limit;
        objects.truncate(limit);
        Ok(Listed { objects, more })
    }

    /// The first name of one moment that is still there at a later one.
    async fn walked_list(
        &self,
        request: Request,
        prefix: &str,
        after: Option<&ObjectName>,
        apart: std::time::Duration,
    ) -> Result<Listed> {
        let mut listed = self.inner.list(request, prefix, after, usize::MAX).await?;
        self.env.sleep(apart).await;
        for (place, info) in listed.objects.iter().enumerate() {
            if self.inner.length(request, &info.name).await.is_ok() {
                return Ok(Listed { more: place + 1 < listed.objects.len(), objects: vec![info.clone()] });
            }
        }
        listed.objects.clear();
        Ok(listed)
    }
}

fn span(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

fn shorten(bytes: &Bytes, short: Option<u64>) -> Bytes {
    let length = short.and_then(|short| usize::try_from(short).ok()).unwrap_or(bytes.len()).min(bytes.len());
    bytes.slice(..length)
}

impl ObjectStore for FaultObjectStore {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            self.ask(RequestKind::Create, request, name.as_str(), 0, async |_: &Course| {
                let inner = self.inner.create(request, name, placement).await?;
                let writer = FaultWriter {
                    store: self.clone(),
                    request,
                    name: name.clone(),
                    inner: Some(inner),
                    length: 0,
                };
                Ok(Box::new(writer) as Box<dyn ObjectWriter>)
            })
            .await
        })
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            let length = bytes.len() as u64;
            self.change(RequestKind::Put, request, name.as_str(), length, || {
                let (inner, name, bytes) = (Arc::clone(&self.inner), name.clone(), bytes.clone());
                Box::pin(async move { inner.put_if_absent(request, &name, placement, bytes).await })
            })
            .await
        })
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.ask(RequestKind::Read, request, name.as_str(), span(&range), async |course: &Course| {
                Ok(shorten(&self.inner.read(request, name, range).await?, course.short))
            })
            .await
        })
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            let bytes = ranges.iter().map(span).fold(0, u64::saturating_add);
            self.ask(RequestKind::ReadRanges, request, name.as_str(), bytes, async |course: &Course| {
                let read = self.inner.read_ranges(request, name, ranges).await?;
                Ok(read.iter().map(|bytes| shorten(bytes, course.short)).collect())
            })
            .await
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            self.ask(RequestKind::Length, request, name.as_str(), 0, async |_: &Course| {
                self.inner.length(request, name).await
            })
            .await
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
            self.ask(RequestKind::List, request, prefix, limit as u64, async |course: &Course| {
                match course.torn {
                    Some((earlier_first, apart)) if limit > 1 => {
                        self.torn_list(request, prefix, after, limit, earlier_first, apart).await
                    }
                    Some((_, apart)) if self.plan.lists_walk() => {
                        self.walked_list(request, prefix, after, apart).await
                    }
                    _ => self.inner.list(request, prefix, after, limit).await,
                }
            })
            .await
        })
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.change(RequestKind::Delete, request, name.as_str(), 0, || {
                let (inner, name) = (Arc::clone(&self.inner), name.clone());
                Box::pin(async move { inner.delete(request, &name).await })
            })
            .await
        })
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            self.change(RequestKind::Copy, request, to.as_str(), 0, || {
                let (inner, from, to) = (Arc::clone(&self.inner), from.clone(), to.clone());
                Box::pin(async move { inner.copy(request, &from, &to).await })
            })
            .await
        })
    }

    fn adopt<'a>(
        &'a self,
        request: Request,
        place: &'a str,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Option<PutOutcome>>> {
        Box::pin(async move {
            self.change(RequestKind::Copy, request, to.as_str(), 0, || {
                let (inner, place, to) = (Arc::clone(&self.inner), place.to_owned(), to.clone());
                Box::pin(async move { inner.adopt(request, &place, &to).await })
            })
            .await
        })
    }

    fn sweep(&self, request: Request) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            self.ask(RequestKind::Sweep, request, "", 0, async |_: &Course| self.inner.sweep(request).await)
                .await
        })
    }

    leave_to_inner!(place facts performance meter location survival describe);

    fn traits(&self) -> StoreTraits {
        let inner = self.inner.traits();
        StoreTraits { lists_may_walk: self.plan.lists_walk() || inner.lists_may_walk, ..inner }
    }
}

#[derive(Debug)]
struct FaultWriter {
    store: FaultObjectStore,
    request: Request,
    name: ObjectName,
    /// `None` once a piece was lost: the rest has nowhere to go.
    inner: Option<Box<dyn ObjectWriter>>,
    length: u64,
}

impl FaultWriter {
    fn broken(&self) -> Error {
        Error::new(ErrorKind::Closed, "an earlier piece of this object was lost").object(&self.name)
    }
}

impl ObjectWriter for FaultWriter {
    fn append(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Some(mut inner) = self.inner.take() else { return Err(self.broken()) };
            // Any error on the way leaves the writer broken: what was taken of the piece is not
            // known.
            let course = self
                .store
                .meet(RequestKind::Append, self.request, self.name.as_str(), bytes.len() as u64)
                .await?;
            if let Some(short) = course.short {
                inner.append(shorten(&bytes, Some(short))).await?;
                return Err(injected(ErrorKind::Retry, RequestKind::Append, self.name.as_str()));
            }
            self.length += bytes.len() as u64;
            inner.append(bytes).await?;
            course.end(&self.store.env).await;
            self.inner = Some(inner);
            Ok(())
        })
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<ObjectInfo>> {
        Box::pin(async move {
            let Some(inner) = self.inner.take() else { return Err(self.broken()) };
            let (store, name) = (self.store.clone(), self.name.clone());
            // A writer finishes once: the second of two attempts finds nothing left to do.
            let once = Arc::new(Mutex::new(Some(inner)));
            let info = ObjectInfo { name: name.clone(), length: self.length };
            let finish = move || -> BoxFuture<'static, Result<ObjectInfo>> {
                let (once, info) = (Arc::clone(&once), info.clone());
                Box::pin(async move {
                    let inner = once.lock().take();
                    match inner {
                        Some(inner) => inner.finish().await,
                        None => Ok(info),
                    }
                })
            };
            store.change(RequestKind::Finish, self.request, name.as_str(), self.length, finish).await
        })
    }
}
