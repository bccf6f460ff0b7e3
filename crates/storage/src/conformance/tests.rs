//! The suite notices what it is there to notice: each mistake of a store breaks a promise.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::simulated::World;
use tombolo_env::{BoxFuture, Env};

use super::object_store;
use crate::backend::memory::MemoryObjectStore;
use crate::layer::RequestKind;
use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Lateness, Rule};
use crate::{
    ErrorKind, Listed, ObjectName, ObjectStore, ObjectWriter, Placement, PutOutcome, Request, Result,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// Looks, then puts: two may find the name free.
    LooksThenPuts,
    /// Says `Created` whatever there was.
    AlwaysCreated,
    /// Lists names, then asks for each whether it is still there, as if that were one moment.
    ListsThenLooks,
    /// The same of a store that says so, and then shows nothing in place of what stands behind the
    /// name that is gone.
    WalksAndStops,
    ListsInReverse,
    ListsThroughAfter,
    ForgetsMore,
    ReadsOneByteTooFew,
    ReadsNothingWhereNothingIs,
    RangesInOrderOfOffsets,
    DeletesNothing,
    DeletingNothingFails,
    CopyReplaces,
    ShowsUnfinished,
    FinishReplaces,
}

const MISTAKES: [Mistake; 15] = [
    Mistake::LooksThenPuts,
    Mistake::AlwaysCreated,
    Mistake::ListsThenLooks,
    Mistake::WalksAndStops,
    Mistake::ListsInReverse,
    Mistake::ListsThroughAfter,
    Mistake::ForgetsMore,
    Mistake::ReadsOneByteTooFew,
    Mistake::ReadsNothingWhereNothingIs,
    Mistake::RangesInOrderOfOffsets,
    Mistake::DeletesNothing,
    Mistake::DeletingNothingFails,
    Mistake::CopyReplaces,
    Mistake::ShowsUnfinished,
    Mistake::FinishReplaces,
];

#[derive(Debug)]
struct Broken {
    env: Env,
    inner: MemoryObjectStore,
    mistake: Mistake,
}

impl Broken {
    async fn pause(&self) {
        self.env.sleep(Duration::from_micros(30)).await;
    }
}

impl ObjectStore for Broken {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        placement: Placement,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectWriter>>> {
        Box::pin(async move {
            match self.mistake {
                Mistake::ShowsUnfinished => {
                    let writer = self.inner.create(request, name, placement).await?;
                    self.inner.put_if_absent(request, name, placement, Bytes::new()).await?;
                    Ok(writer)
                }
                Mistake::FinishReplaces => {
                    // As good as replacing at the end, for two writers of one name.
                    self.inner.delete(request, name).await?;
                    self.inner.create(request, name, placement).await
                }
                _ => self.inner.create(request, name, placement).await,
            }
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
            match self.mistake {
                Mistake::LooksThenPuts if self.inner.length(request, name).await.is_err() => {
                    self.pause().await;
                    self.inner.delete(request, name).await?;
                    self.inner.put_if_absent(request, name, placement, bytes).await
                }
                Mistake::AlwaysCreated => self
                    .inner
                    .put_if_absent(request, name, placement, bytes)
                    .await
                    .map(|_| PutOutcome::Created),
                _ => self.inner.put_if_absent(request, name, placement, bytes).await,
            }
        })
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            match self.mistake {
                Mistake::ReadsOneByteTooFew => {
                    let bytes = self.inner.read(request, name, range).await?;
                    Ok(bytes.slice(..bytes.len().saturating_sub(1)))
                }
                Mistake::ReadsNothingWhereNothingIs => {
                    Ok(self.inner.read(request, name, range).await.unwrap_or_default())
                }
                _ => self.inner.read(request, name, range).await,
            }
        })
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            let mut ranges = ranges.to_vec();
            if self.mistake == Mistake::RangesInOrderOfOffsets {
                ranges.sort_by_key(|range| range.start);
            }
            self.inner.read_ranges(request, name, &ranges).await
        })
    }

    fn length<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<u64>> {
        self.inner.length(request, name)
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listed>> {
        Box::pin(async move {
            let mut page = self.inner.list(request, prefix, after, limit).await?;
            match self.mistake {
                Mistake::ListsThenLooks | Mistake::WalksAndStops => {
                    self.pause().await;
                    let mut objects = Vec::new();
                    for info in page.objects {
                        if self.inner.length(request, &info.name).await.is_ok() {
                            objects.push(info);
                        }
                    }
                    page.objects = objects;
                }
                Mistake::ListsInReverse => page.objects.reverse(),
                Mistake::ListsThroughAfter => {
                    if let Some(after) = after
                        && let Ok(length) = self.inner.length(request, after).await
                    {
                        page.objects.insert(0, crate::ObjectInfo { name: after.clone(), length });
                        page.objects.truncate(limit);
                    }
                }
                Mistake::ForgetsMore => page.more = false,
                _ => {}
            }
            Ok(page)
        })
    }

    fn delete<'a>(&'a self, request: Request, name: &'a ObjectName) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.mistake {
                Mistake::DeletesNothing => Ok(()),
                Mistake::DeletingNothingFails => {
                    self.inner.length(request, name).await?;
                    self.inner.delete(request, name).await
                }
                _ => self.inner.delete(request, name).await,
            }
        })
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a ObjectName,
        to: &'a ObjectName,
    ) -> BoxFuture<'a, Result<PutOutcome>> {
        Box::pin(async move {
            if self.mistake == Mistake::CopyReplaces && self.inner.length(request, from).await.is_ok() {
                self.inner.delete(request, to).await?;
            }
            self.inner.copy(request, from, to).await
        })
    }

    fn traits(&self) -> crate::StoreTraits {
        let lists_may_walk = self.mistake == Mistake::WalksAndStops;
        crate::StoreTraits { must_prove_put_if_absent: false, lists_may_walk }
    }

    fn survival(&self) -> crate::Survival {
        self.inner.survival()
    }

    fn describe(&self) -> String {
        format!("{:?}", self.mistake)
    }
}

#[test]
fn every_mistake_breaks_a_promise() {
    for mistake in MISTAKES {
        let world = World::new(3);
        let process = world.process("tester");
        let env = process.env();
        let store = Arc::new(Broken { env: env.clone(), inner: MemoryObjectStore::unnamed(&env), mistake });
        let verdict = process.run(async move { object_store(&env, store).await }).expect("it lives");
        assert!(verdict.is_err(), "{mistake:?} was not noticed");
    }
}

#[test]
fn every_fault_that_breaks_a_promise_is_noticed() {
    let soon = Lateness::After(Duration::from_micros(1));
    for (kind, fault) in [
        (RequestKind::Read, Fault::Short(5)),
        (RequestKind::ReadRanges, Fault::Short(5)),
        (RequestKind::Put, Fault::Duplicate(Lateness::After(Duration::from_millis(20)))),
        (RequestKind::Put, Fault::Unknown { landed: true }),
        (RequestKind::List, Fault::Error(ErrorKind::Retry)),
        (RequestKind::Finish, Fault::Late(soon)),
    ] {
        let world = World::new(4);
        let process = world.process("tester");
        let env = process.env();
        let plan = FaultPlan::scripted();
        plan.inject(Rule::of_kind(kind, fault.clone()));
        let inner = Arc::new(MemoryObjectStore::unnamed(&env));
        let store = Arc::new(FaultObjectStore::new(&env, inner, plan));
        let verdict = process.run({
            let env = env.clone();
            async move {
                let verdict = object_store(&env, Arc::clone(&store) as Arc<dyn ObjectStore>).await;
                // What comes late is looked for late.
                env.sleep(Duration::from_secs(1)).await;
                let request = Request::new(crate::Purpose::Verify, crate::Epoch::NONE);
                (verdict, store.inner().list(request, "", None, 1).await.map(|page| page.objects.is_empty()))
            }
        });
        let (verdict, tidy) = verdict.expect("it lives");
        assert!(verdict.is_err() || tidy.is_ok_and(|tidy| !tidy), "{kind} with {fault:?} was not noticed");
    }
}
