use std::future::Future;

use bytes::Bytes;
use tombolo_env::simulated::World;

use super::*;
use crate::backend::memory::MemoryObjectStore;
use crate::conformance;
use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use crate::{Epoch, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome};

struct Bench {
    env: Env,
    plan: FaultPlan,
    store: RetryObjectStore,
}

fn bench(env: &Env, policy: RetryPolicy) -> Arc<Bench> {
    let plan = FaultPlan::scripted();
    let below = FaultObjectStore::new(env, Arc::new(MemoryObjectStore::unnamed(env)), plan.clone());
    Arc::new(Bench { env: env.clone(), plan, store: RetryObjectStore::new(env, Arc::new(below), policy) })
}

/// Runs a test in a simulated world.
fn simulate<F: Future<Output = ()> + Send + 'static>(
    seed: u64,
    policy: RetryPolicy,
    test: impl FnOnce(Arc<Bench>) -> F,
) {
    let world = World::new(seed);
    let process = world.process("p");
    process.run(test(bench(&process.env(), policy))).expect("it lives");
}

fn name(name: impl AsRef<str>) -> ObjectName {
    ObjectName::new(name).expect("a name")
}

fn request() -> Request {
    Request::new(Purpose::Verify, Epoch::NONE)
}

impl Bench {
    /// Makes every request fail with `error` from now on, for `duration`.
    fn fail_for(&self, error: ErrorKind, duration: Duration) {
        let (env, until) = (self.env.clone(), self.env.now() + duration);
        self.plan.inject(Rule::new(move |_| env.now() < until, Fault::Error(error)));
    }

    async fn put(&self, to: &str) -> Result<PutOutcome> {
        self.store
            .put_if_absent(
                request(),
                &name(to),
                Placement::new(ObjectKind::Other, Life::Short),
                Bytes::from_static(b"x"),
            )
            .await
    }
}

#[test]
fn every_promise_is_kept_and_nothing_is_added() {
    simulate(1, RetryPolicy::default(), |bench| async move {
        conformance::object_store(&bench.env, Arc::new(bench.store.clone())).await.expect("all promises");
        assert_eq!((bench.store.retries(), bench.store.given_up(), bench.store.waiting()), (0, 0, 0));
    });
}

#[test]
fn every_promise_is_kept_over_a_store_that_fails_every_third_time() {
    for seed in 0..5 {
        simulate(
            seed,
            RetryPolicy { retries_per_second_max: 1_000_000, ..RetryPolicy::default() },
            |bench| async move {
                // Pieces and ends are the writer's own: they are not made again.
                let again = |kind: RequestKind| !matches!(kind, RequestKind::Append | RequestKind::Finish);
                let retryable = move |asked: &crate::layer::fault::Asked<'_>| {
                    again(asked.kind) && asked.number.is_multiple_of(3)
                };
                bench.plan.inject(Rule::new(retryable, Fault::Error(ErrorKind::Retry)));
                conformance::object_store(&bench.env, Arc::new(bench.store.clone()))
                    .await
                    .expect("all promises");
                assert!(
                    bench.store.retries() > 100 && bench.store.given_up() == 0,
                    "{}",
                    bench.store.retries()
                );
            },
        );
    }
}

#[test]
fn a_store_that_fails_for_a_minute_is_waited_for() {
    for error in [ErrorKind::Retry, ErrorKind::Busy] {
        simulate(2, RetryPolicy::default(), |bench| async move {
            bench.fail_for(error, Duration::from_secs(60));
            let began = bench.env.now();
            assert_eq!(bench.put("a").await.expect("it came back"), PutOutcome::Created);
            let waited = bench.env.now().since(began);
            assert!(waited >= Duration::from_secs(60) && waited <= Duration::from_secs(66), "{waited:?}");
            assert!(bench.store.retries() < 40, "{} attempts in a minute", bench.store.retries());
        });
    }
}

#[test]
fn the_time_for_retries_ends_with_the_stores_own_error() {
    simulate(3, RetryPolicy::default(), |bench| async move {
        bench.fail_for(ErrorKind::Retry, Duration::from_secs(3600));
        let began = bench.env.now();
        let error = bench.put("a").await.expect_err("an hour is too long");
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(error.to_string().contains("put failed for"), "{error}");
        let waited = bench.env.now().since(began);
        assert!(waited <= Duration::from_secs(120) && waited > Duration::from_secs(100), "{waited:?}");
        assert_eq!((bench.store.given_up(), bench.store.waiting()), (1, 0));
    });
}

#[test]
fn a_deadline_is_not_slept_through() {
    simulate(4, RetryPolicy::default(), |bench| async move {
        bench.fail_for(ErrorKind::Retry, Duration::from_secs(60));
        let began = bench.env.now();
        let deadline = began + Duration::from_secs(7);
        let error =
            bench.store.length(request().until(Some(deadline)), &name("a")).await.expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(bench.env.now() <= deadline && bench.env.now().since(began) > Duration::from_secs(1));
    });
}

#[test]
fn what_must_not_be_made_again_is_not() {
    simulate(5, RetryPolicy::default(), |bench| async move {
        for kind in [
            ErrorKind::OutcomeUnknown,
            ErrorKind::NotFound,
            ErrorKind::AlreadyExists,
            ErrorKind::Corrupt,
            ErrorKind::OutOfSpace,
            ErrorKind::PermissionDenied,
            ErrorKind::DeadlineExceeded,
            ErrorKind::Closed,
        ] {
            bench.plan.inject(Rule::new(|_| true, Fault::Error(kind)).times(1));
            let asked = bench.plan.requests();
            assert_eq!(bench.put("a").await.expect_err("an answer").kind(), kind);
            assert_eq!(bench.plan.requests() - asked, 1, "{kind:?}");
        }
        // A put that landed although it was said to be unknown: the caller finds out, nobody puts
        // again.
        bench.plan.inject(Rule::new(|_| true, Fault::Unknown { landed: true }).times(1));
        assert_eq!(bench.put("b").await.expect_err("unknown").kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(bench.put("b").await.expect("known"), PutOutcome::Exists);
        assert_eq!(bench.store.retries(), 0);
    });
}

#[test]
fn many_do_not_come_back_at_once() {
    let policy = RetryPolicy { retries_per_second_max: 50, waiting_max: 200, ..RetryPolicy::default() };
    simulate(6, policy, |bench| async move {
        bench.fail_for(ErrorKind::Retry, Duration::from_secs(20));
        let asked = bench.plan.requests();
        let began = bench.env.now();
        let mut tasks = Vec::new();
        let outcomes = Arc::new(Mutex::new((0, 0)));
        for number in 0..300 {
            let (bench, outcomes) = (Arc::clone(&bench), Arc::clone(&outcomes));
            tasks.push(bench.env.clone().spawn(tombolo_env::TaskClass::Foreground, "put", async move {
                match bench.put(&format!("object/{number}")).await {
                    Ok(_) => outcomes.lock().0 += 1,
                    Err(_) => outcomes.lock().1 += 1,
                }
            }));
        }
        for task in tasks {
            task.await;
        }
        assert_eq!(*outcomes.lock(), (200, 100), "200 wait, the rest learns at once");
        let seconds = bench.env.now().since(began).as_secs() + 1;
        let again = bench.plan.requests() - asked - 300;
        assert!(again <= seconds * 50, "{again} attempts again in {seconds} s");
        assert_eq!(bench.store.waiting(), 0);
    });
}

#[test]
fn those_who_gave_up_during_an_outage_keep_nobody_waiting_after_it() {
    let policy = RetryPolicy { time_max: Duration::from_secs(1), ..RetryPolicy::default() };
    simulate(3, policy, |bench| async move {
        bench.fail_for(ErrorKind::Retry, Duration::from_secs(1));
        let soon = bench.env.now() + Duration::from_millis(1);
        let hasty = Request { deadline: Some(soon), ..request() };
        for _ in 0..1_000 {
            let error = bench.store.read(hasty, &name("absent"), 0..1).await.expect_err("the store fails");
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        }
        bench.env.sleep(Duration::from_secs(2)).await;
        bench.plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::Retry)).times(1));
        assert_eq!(bench.put("after").await.expect("one failure passes"), PutOutcome::Created);
    });
}
