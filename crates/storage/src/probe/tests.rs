use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::simulated::World;
use tombolo_env::{BoxFuture, Env};

use super::*;
use crate::layer::RequestKind;
use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use crate::{Epoch, LogStore, ObjectStore, Purpose, Registry, Request, Uri};

fn plan() -> ProbePlan {
    ProbePlan {
        sizes: vec![100, 5000],
        depths: vec![1, 4],
        duration: Duration::from_millis(20),
        data_bytes: 1 << 20,
    }
}

type Pair = (Arc<dyn ObjectStore>, Arc<dyn LogStore>);

fn open(env: &Env, uri: &str) -> Result<Pair> {
    let (registry, uri) = (Registry::default(), Uri::parse(uri)?);
    let objects = registry.open_object_store(env, &uri)?;
    let log = registry.open_log_store(env, &uri, None, &objects)?;
    Ok((objects, log))
}

/// Probes a pair; counts what it leaves behind in the end, too.
async fn probed(env: Env, uri: &'static str) -> Result<(Vec<Measured>, usize, usize)> {
    let (store, log_store) = open(&env, uri)?;
    let heard = Arc::new(Mutex::new(0));
    let told = {
        let heard = Arc::clone(&heard);
        move |_: &Measured| {
            *heard.lock() += 1;
            Ok(())
        }
    };
    let mut measured = objects(&env, &store, &plan(), &told).await?;
    measured.extend(log(&env, &log_store, &store, &plan(), &told).await?);
    let left = store.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 10).await?.objects.len();
    let heard = *heard.lock();
    Ok((measured, heard, left))
}

#[test]
fn every_operation_is_measured_by_size_and_depth_and_nothing_is_left() {
    for uri in ["mem://probe", "file:///probe", "file:///probe?form=written"] {
        let world = World::new(7);
        let process = world.process("p");
        let (measured, heard, left) =
            process.run(probed(process.env(), uri)).expect("it lives").expect("no errors");
        assert_eq!(left, 0, "{uri}: objects are left");
        assert_eq!(heard, measured.len());
        for (operation, figures) in
            [("write", 1), ("read", 4), ("put", 4), ("list", 1), ("delete", 1), ("append", 2), ("sync", 4)]
        {
            let found: Vec<_> = measured.iter().filter(|one| one.operation == operation).collect();
            assert_eq!(found.len(), figures, "{uri}: {operation}");
            for one in found {
                assert!(
                    one.operations > 0 && one.seconds > 0.0 && one.operations_per_second > 0.0,
                    "{uri}: {one:?}"
                );
                assert!(
                    one.micros_p50 <= one.micros_p99 && one.micros_p99 <= one.micros_max,
                    "{uri}: {one:?}"
                );
            }
        }
    }
}

#[test]
fn an_error_ends_the_probe_and_is_cleaned_up_after() {
    let world = World::new(8);
    let process = world.process("p");
    let env = process.env();
    process
        .run(async move {
            let (inner, _) = open(&env, "mem://probe").expect("a store");
            for kind in [RequestKind::Put, RequestKind::Read, RequestKind::Delete] {
                let faults = FaultPlan::scripted();
                faults.inject(Rule::of_kind(kind, Fault::Error(ErrorKind::Retry)).skip(2).times(1));
                let store: Arc<dyn ObjectStore> =
                    Arc::new(FaultObjectStore::new(&env, Arc::clone(&inner), faults));
                let error = objects(&env, &store, &plan(), &|_| Ok(())).await.expect_err("injected");
                assert_eq!(error.kind(), ErrorKind::Retry);
                assert!(error.to_string().contains("measuring"), "{error}");
                let left = inner
                    .list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 10)
                    .await
                    .expect("listed");
                assert!(left.objects.is_empty(), "{kind}: {:?}", left.objects);
            }
        })
        .expect("it lives");
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let env = Env::real();
    let (store, _) = open(&env, "mem://refused").expect("a store");
    for wrong in [
        ProbePlan { sizes: vec![0], ..plan() },
        ProbePlan { sizes: vec![SIZE_MAX + 1], ..plan() },
        ProbePlan { depths: vec![0], ..plan() },
        ProbePlan { depths: vec![DEPTH_MAX + 1], ..plan() },
        ProbePlan { data_bytes: 10, ..plan() },
    ] {
        let error = env.block_on(objects(&env, &store, &wrong, &|_| Ok(()))).expect_err("refused");
        assert!(error.kind() == ErrorKind::Invalid && error.next_step().is_some(), "{error}");
    }
}

#[test]
fn who_is_told_may_end_the_rest_and_nothing_is_left() {
    let world = World::new(9);
    let process = world.process("p");
    let env = process.env().clone();
    let left = process.run(async move {
        let (store, _) = open(&env, "file:///probe")?;
        let enough = |_: &Measured| Err(Error::new(ErrorKind::Closed, "enough"));
        let error = objects(&env, &store, &plan(), &enough).await.expect_err("it was told to end");
        assert_eq!(error.kind(), ErrorKind::Closed);
        Ok::<_, Error>(
            store.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 10).await?.objects.len(),
        )
    });
    assert_eq!(left.expect("it lives").expect("no errors"), 0);
}

/// A store that looks, then puts; or that overwrites without a look.
#[derive(Debug)]
struct Careless {
    env: Env,
    inner: Arc<dyn ObjectStore>,
    looks: bool,
}

/// Only puts are careless.
impl Careless {
    async fn put(
        &self,
        request: Request,
        name: &crate::ObjectName,
        placement: crate::Placement,
        bytes: bytes::Bytes,
    ) -> Result<crate::PutOutcome> {
        if self.looks && self.inner.length(request, name).await.is_ok() {
            return Ok(crate::PutOutcome::Exists);
        }
        self.env.sleep(Duration::from_millis(1)).await;
        self.inner.delete(request, name).await?;
        self.inner.put_if_absent(request, name, placement, bytes).await.map(|_| crate::PutOutcome::Created)
    }
}

impl ObjectStore for Careless {
    fn create<'a>(
        &'a self,
        request: Request,
        name: &'a crate::ObjectName,
        placement: crate::Placement,
    ) -> BoxFuture<'a, Result<Box<dyn crate::ObjectWriter>>> {
        self.inner.create(request, name, placement)
    }

    fn put_if_absent<'a>(
        &'a self,
        request: Request,
        name: &'a crate::ObjectName,
        placement: crate::Placement,
        bytes: bytes::Bytes,
    ) -> BoxFuture<'a, Result<crate::PutOutcome>> {
        Box::pin(self.put(request, name, placement, bytes))
    }

    fn read<'a>(
        &'a self,
        request: Request,
        name: &'a crate::ObjectName,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<bytes::Bytes>> {
        self.inner.read(request, name, range)
    }

    fn read_ranges<'a>(
        &'a self,
        request: Request,
        name: &'a crate::ObjectName,
        ranges: &'a [Range<u64>],
    ) -> BoxFuture<'a, Result<Vec<bytes::Bytes>>> {
        self.inner.read_ranges(request, name, ranges)
    }

    fn length<'a>(&'a self, request: Request, name: &'a crate::ObjectName) -> BoxFuture<'a, Result<u64>> {
        self.inner.length(request, name)
    }

    fn list<'a>(
        &'a self,
        request: Request,
        prefix: &'a str,
        after: Option<&'a crate::ObjectName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<crate::Listed>> {
        self.inner.list(request, prefix, after, limit)
    }

    fn delete<'a>(&'a self, request: Request, name: &'a crate::ObjectName) -> BoxFuture<'a, Result<()>> {
        self.inner.delete(request, name)
    }

    fn copy<'a>(
        &'a self,
        request: Request,
        from: &'a crate::ObjectName,
        to: &'a crate::ObjectName,
    ) -> BoxFuture<'a, Result<crate::PutOutcome>> {
        self.inner.copy(request, from, to)
    }

    fn traits(&self) -> crate::StoreTraits {
        crate::StoreTraits { must_prove_put_if_absent: true, ..self.inner.traits() }
    }

    fn survival(&self) -> crate::Survival {
        self.inner.survival()
    }

    fn describe(&self) -> String {
        "careless".into()
    }
}

async fn names(store: &Arc<dyn ObjectStore>) -> Vec<String> {
    let page = store.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 1000).await.expect("listed");
    page.objects.iter().map(|info| info.name.to_string()).collect()
}

#[test]
fn a_careless_put_if_absent_is_found_out_and_a_real_one_is_recorded() {
    let world = World::new(10);
    let process = world.process("p");
    let env = process.env();
    process
        .run(async move {
            for looks in [true, false] {
                let (inner, _) = open(&env, &format!("mem://careless-{looks}")).expect("a store");
                let store: Arc<dyn ObjectStore> = Arc::new(Careless { env: env.clone(), inner, looks });
                let error = exclusive::prove(&env, &store).await.expect_err("found out");
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(
                    error.to_string().contains("exactly one winner") && error.next_step().is_some(),
                    "{error}"
                );
                assert_eq!(
                    names(&store).await,
                    Vec::<String>::new(),
                    "nothing is recorded, and nothing left"
                );
            }
            let (real, _) = open(&env, "mem://real").expect("a store");
            exclusive::prove(&env, &real).await.expect("nothing to prove");
            assert_eq!(
                names(&real).await,
                Vec::<String>::new(),
                "a store that is sound by its making is not tried"
            );
            exclusive::put_if_absent(&env, &real).await.expect("sound");
            exclusive::record(&env, &real).await.expect("recorded");
            assert_eq!(names(&real).await, ["probe/put-if-absent"]);
            assert!(
                exclusive::recorded(&real)
                    .await
                    .expect("read")
                    .is_some_and(|text| text.contains("one of 8 won"))
            );
            // Who finds the record asks no further.
            let before: Arc<dyn ObjectStore> =
                Arc::new(Careless { env: env.clone(), inner: real, looks: false });
            exclusive::prove(&env, &before).await.expect("recorded");
        })
        .expect("it lives");
}
