use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_env::simulated::World;

use super::*;
use crate::layer::RequestKind;
use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use crate::{Epoch, LogStore, ObjectStore, Purpose, Registry, Request, Uri};

fn plan() -> ProbePlan {
    ProbePlan { sizes: vec![100, 5000], depths: vec![1, 4], duration: Duration::from_millis(20), data_bytes: 1 << 20 }
}

type Pair = (Arc<dyn ObjectStore>, Arc<dyn LogStore>);

fn open(env: &Env, uri: &str) -> Result<Pair> {
    let (registry, uri) = (Registry::default(), Uri::parse(uri)?);
    let objects = registry.open_object_store(env, &uri)?;
    let log = registry.open_log_store(env, &uri, None, &objects)?;
    Ok((objects, log))
}

/// Probes a pair; what is left of it in the end is told too.
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
        let (measured, heard, left) = process.run(probed(process.env(), uri)).expect("it lives").expect("no errors");
        assert_eq!(left, 0, "{uri}: objects are left");
        assert_eq!(heard, measured.len());
        for (operation, figures) in [("write", 1), ("read", 4), ("put", 4), ("list", 1), ("delete", 1), ("append", 2), ("sync", 4)] {
            let found: Vec<_> = measured.iter().filter(|one| one.operation == operation).collect();
            assert_eq!(found.len(), figures, "{uri}: {operation}");
            for one in found {
                assert!(one.operations > 0 && one.seconds > 0.0 && one.operations_per_second > 0.0, "{uri}: {one:?}");
                assert!(one.micros_p50 <= one.micros_p99 && one.micros_p99 <= one.micros_max, "{uri}: {one:?}");
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
                let store: Arc<dyn ObjectStore> = Arc::new(FaultObjectStore::new(&env, Arc::clone(&inner), faults));
                let error = objects(&env, &store, &plan(), &|_| Ok(())).await.expect_err("injected");
                assert_eq!(error.kind(), ErrorKind::Retry);
                assert!(error.to_string().contains("measuring"), "{error}");
                let left = inner.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 10).await.expect("listed");
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
        Ok::<_, Error>(store.list(Request::new(Purpose::Verify, Epoch::NONE), "", None, 10).await?.objects.len())
    });
    assert_eq!(left.expect("it lives").expect("no errors"), 0);
}
