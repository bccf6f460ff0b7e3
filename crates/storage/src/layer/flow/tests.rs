use std::time::Duration;

use tombolo_env::TaskClass;
use tombolo_env::simulated::World;

use super::*;
use crate::backend::memory::MemoryObjectStore;
use crate::conformance;
use crate::layer::RequestKind;
use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use crate::layer::hedge::HedgeObjectStore;
use crate::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use crate::layer::trace::{TraceObjectStore, Tracer};
use crate::{Epoch, Life, ObjectKind, Purpose};

struct Bench {
    env: Env,
    plan: FaultPlan,
    tracer: Tracer,
    store: FlowObjectStore,
}

/// Runs a test on a store of these latencies in a simulated world.
fn simulate<F: Future<Output = ()> + Send + 'static>(latency: Latency, test: impl FnOnce(Arc<Bench>) -> F) {
    let world = World::new(4);
    let process = world.process("p");
    let env = process.env();
    let (plan, tracer) = (FaultPlan::scripted(), Tracer::new(&env));
    let throttle = Throttle { latency, ..Throttle::default() };
    let throttled =
        Arc::new(ThrottleObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), throttle));
    let traced =
        TraceObjectStore::new(Arc::new(FaultObjectStore::new(&env, throttled, plan.clone())), tracer.clone());
    let store = FlowObjectStore::new(&env, Arc::new(HedgeObjectStore::new(&env, Arc::new(traced))));
    process.run(test(Arc::new(Bench { env, plan, tracer, store }))).expect("it lives");
}

fn name() -> ObjectName {
    ObjectName::new("table/1").expect("a name")
}

fn request() -> Request {
    Request::new(Purpose::Get, Epoch::NONE)
}

impl Bench {
    async fn put(&self, bytes: usize) {
        let placement = Placement::new(ObjectKind::Table, Life::Long);
        let bytes: Vec<u8> = (0..bytes).map(|at| u8::try_from(at / 1000 % 251).expect("small")).collect();
        self.store.put_if_absent(request(), &name(), placement, Bytes::from(bytes)).await.expect("it puts");
    }

    /// So many reads by so many tasks; how long all of it took, and the most that were on their
    /// way.
    async fn read(self: &Arc<Self>, count: u64, at_once: u64) -> (Duration, u64) {
        let (began, most) = (self.env.now(), Arc::new(Mutex::new(0)));
        let tasks: Vec<_> = (0..at_once)
            .map(|first| {
                let (bench, most) = (Arc::clone(self), Arc::clone(&most));
                self.env.spawn(TaskClass::Foreground, "reads", async move {
                    for number in (first..count).step_by(usize::try_from(at_once).expect("few")) {
                        let read =
                            bench.store.read(request(), &name(), number % 100..number % 100 + 10).await;
                        assert!(read.is_ok_and(|bytes| bytes.len() == 10) || bench.plan.injected() > 0);
                        let in_flight = bench.performance().in_flight;
                        let mut most = most.lock();
                        *most = in_flight.max(*most);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        let most = *most.lock();
        (self.env.now().since(began), most)
    }

    fn performance(&self) -> StorePerformance {
        self.store.performance().expect("it measures")
    }
}

#[test]
fn every_promise_is_kept() {
    for latency in [Latency::S3, Latency::CLUSTER] {
        simulate(latency, |bench| async move {
            conformance::object_store(&bench.env, Arc::new(bench.store.clone())).await.expect("all promises");
            assert_eq!((bench.performance().in_flight, bench.performance().waiting), (0, 0));
        });
    }
}

#[test]
fn neighbours_share_a_request_and_the_rest_goes_side_by_side() {
    let latency = Latency { bytes_per_second: 90_000_000, ..Latency::fixed(Duration::from_millis(25)) };
    simulate(latency, |bench| async move {
        bench.put(8 << 20).await;
        bench.tracer.reset();
        let far: Vec<Range<u64>> =
            (0..10).rev().map(|number| number * 700_000..number * 700_000 + 4000).collect();
        let began = bench.env.now();
        let read = bench.store.read_ranges(request(), &name(), &far).await.expect("it reads");
        for (range, bytes) in far.iter().zip(&read) {
            assert!(
                bytes.len() == 4000 && u64::from(bytes[0]) == range.start / 1000 % 251,
                "each in its place"
            );
        }
        assert!(
            bench.env.now().since(began) < Duration::from_millis(28),
            "side by side: {:?}",
            bench.env.now().since(began)
        );
        assert_eq!(bench.tracer.of_kind(RequestKind::Read).requests, 10);
        bench.tracer.reset();
        let near: Vec<Range<u64>> = (0..10).map(|number| number * 10_000..number * 10_000 + 4000).collect();
        bench.store.read_ranges(request(), &name(), &near).await.expect("it reads");
        assert_eq!(bench.tracer.of_kind(RequestKind::Read).requests, 1, "what lies between is read along");
        // Measured, more is read along where the first byte takes longer.
        for number in 0..200 {
            bench
                .store
                .read(request(), &name(), 0..if number % 2 == 0 { 4 << 20 } else { 4000 })
                .await
                .expect("it reads");
        }
        assert!(
            (150_000..=256 << 10).contains(&gap_bytes_max(Some(bench.performance()))),
            "{:?}",
            bench.performance()
        );
        assert_eq!(gap_bytes_max(None), GAP_BYTES_UNKNOWN);
        let near = StorePerformance {
            latency_p50: Duration::from_micros(740),
            bytes_per_second: 400_000_000,
            ..StorePerformance::default()
        };
        assert_eq!(gap_bytes_max(Some(near)), 37_000);
    });
}

#[test]
fn one_by_one_is_one_request_after_another_and_one_for_each_range() {
    simulate(Latency::fixed(Duration::from_millis(25)), |bench| async move {
        bench.put(1 << 20).await;
        bench.tracer.reset();
        let store = FlowObjectStore::one_by_one(&bench.env, Arc::clone(&bench.store.inner));
        let began = bench.env.now();
        let ranges: Vec<Range<u64>> = (0..10).map(|number| number * 5000..number * 5000 + 4000).collect();
        assert_eq!(store.read_ranges(request(), &name(), &ranges).await.expect("it reads").len(), 10);
        assert!(bench.env.now().since(began) >= Duration::from_millis(250));
        assert_eq!(bench.tracer.of_kind(RequestKind::Read).requests, 10);
    });
}

/// As long as the store takes more at once, twice as much is done with twice as many.
#[test]
fn what_is_done_grows_with_what_is_on_its_way() {
    simulate(Latency::fixed(Duration::from_millis(20)), |bench| async move {
        bench.put(1000).await;
        let mut before = Duration::MAX;
        for at_once in [1, 2, 4, 8, 16, 32, 64] {
            let (took, most) = bench.read(640, at_once).await;
            assert!(most <= at_once && took.mul_f64(1.9) <= before, "{at_once}: {before:?} {took:?}");
            before = took;
        }
        bench.read(100_000, 200).await;
        assert_eq!(bench.performance().in_flight_max, 128, "it takes as many as it is given");
    });
}

/// A store that refuses is asked for half as much, until it takes what comes.
fn refusals_make_it_ask_for_less() {
    simulate(Latency::fixed(Duration::from_millis(20)), |bench| async move {
        bench.put(1000).await;
        // More than ten at once are refused.
        let store = bench.store.clone();
        let refuses = move |kind: RequestKind| {
            kind == RequestKind::Read
                && store.performance().is_some_and(|performance| performance.in_flight > 10)
        };
        bench.plan.inject(Rule::new(move |asked| refuses(asked.kind), Fault::Error(ErrorKind::Retry)));
        bench.read(2000, 60).await;
        let (before, requests) = (bench.plan.injected(), 4000);
        bench.read(requests, 60).await;
        let refused = bench.plan.injected() - before;
        assert!(
            bench.performance().in_flight_max <= 12 && refused * 20 < requests,
            "{refused} of {requests} refused, {:?}",
            bench.performance()
        );
    });
}

#[test]
fn a_store_that_refuses_is_asked_for_less() {
    refusals_make_it_ask_for_less();
}

#[test]
fn who_waits_for_a_place_waits_until_the_deadline_and_who_goes_gives_it_back() {
    simulate(Latency::fixed(Duration::from_secs(10)), |bench| async move {
        let all = bench.performance().in_flight_max;
        let read = |deadline| {
            let bench = Arc::clone(&bench);
            async move {
                bench
                    .store
                    .read(Request { deadline, ..request() }, &name(), 0..10)
                    .await
                    .err()
                    .map(|error| error.kind())
            }
        };
        let tasks: Vec<_> = (0..all)
            .map(|_| {
                let read = read(None);
                bench.env.spawn(TaskClass::Foreground, "read", async move {
                    let _given_up = read.await;
                })
            })
            .collect();
        bench.env.sleep(Duration::from_millis(1)).await;
        assert_eq!(bench.performance().in_flight, all);
        let began = bench.env.now();
        assert_eq!(read(Some(began + Duration::from_millis(5))).await, Some(ErrorKind::DeadlineExceeded));
        assert!(bench.env.now().since(began) < Duration::from_millis(6));
        drop(tasks);
        bench.env.sleep(Duration::from_millis(1)).await;
        assert_eq!(
            (bench.performance().in_flight, bench.performance().waiting),
            (0, 0),
            "nobody waits, nothing is asked for"
        );
    });
}

#[cfg(feature = "mutants")]
#[test]
fn without_listening_to_refusals() {
    use crate::mutant::{Mutant, notices};

    notices(Mutant::FlowIgnoresRefusals, refusals_make_it_ask_for_less);
}
