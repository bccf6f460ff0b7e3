use std::future::Future;
use std::time::Duration;

use tombolo_env::TaskClass;
use tombolo_env::simulated::World;

use super::*;
use crate::backend::memory::MemoryObjectStore;
use crate::conformance;
use crate::layer::RequestKind;
use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
use crate::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use crate::layer::trace::{Outcome, TraceObjectStore, Tracer};
use crate::{Epoch, Life, ObjectKind, Placement, Purpose};

/// What a second request costs, and what it brings, on one store.
struct Bench {
    env: Env,
    plan: FaultPlan,
    /// Sees all requests that reach the store.
    tracer: Tracer,
    store: HedgeObjectStore,
    plain: Arc<dyn ObjectStore>,
}

/// Runs a test on a hedged store of these latencies in a simulated world.
fn simulate<F: Future<Output = ()> + Send + 'static>(throttle: Throttle, test: impl FnOnce(Arc<Bench>) -> F) {
    let world = World::new(3);
    let process = world.process("p");
    let env = process.env();
    let plan = FaultPlan::scripted();
    let throttled = ThrottleObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), throttle);
    let plain = Arc::new(FaultObjectStore::new(&env, Arc::new(throttled), plan.clone()));
    let tracer = Tracer::with_sink(&env, 100_000, None);
    let traced = Arc::new(TraceObjectStore::new(Arc::clone(&plain) as Arc<dyn ObjectStore>, tracer.clone()));
    let store = HedgeObjectStore::new(&env, traced);
    process.run(test(Arc::new(Bench { env, plan, tracer, store, plain }))).expect("it lives");
}

fn of_latency(latency: Latency) -> Throttle {
    Throttle { latency, ..Throttle::default() }
}

/// Many chunks, so that some lie on a slow node.
const OBJECT_BYTES: u64 = 20 << 20;

const STEADY: Duration = Duration::from_millis(10);

fn name() -> ObjectName {
    ObjectName::new("table/1").expect("a name")
}

fn request() -> Request {
    Request::new(Purpose::Get, Epoch::NONE)
}

impl Bench {
    async fn put(&self) {
        let placement = Placement::new(ObjectKind::Table, Life::Long);
        self.store
            .put_if_absent(
                request(),
                &name(),
                placement,
                Bytes::from(vec![7; usize::try_from(OBJECT_BYTES).expect("it fits")]),
            )
            .await
            .expect("it puts");
    }

    /// So many reads of 4 KiB, some at once; what each took, in order of length.
    async fn read(self: &Arc<Self>, plain: bool, count: u64, at_once: u64) -> Vec<Duration> {
        let took = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..at_once)
            .map(|first| {
                let (bench, took) = (Arc::clone(self), Arc::clone(&took));
                self.env.spawn(TaskClass::Foreground, "reads", async move {
                    for number in (first..count).step_by(usize::try_from(at_once).expect("few")) {
                        let (began, start) = (bench.env.now(), number * 20_480 % OBJECT_BYTES);
                        let store: &dyn ObjectStore = if plain { &*bench.plain } else { &bench.store };
                        assert_eq!(
                            store
                                .read(request(), &name(), start..start + 4096)
                                .await
                                .expect("it reads")
                                .len(),
                            4096
                        );
                        took.lock().push(bench.env.now().since(began));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        let mut took = std::mem::take(&mut *took.lock());
        took.sort_unstable();
        took
    }

    fn performance(&self) -> StorePerformance {
        self.store.performance().expect("it measures")
    }

    /// Requests that reached the store and were given up.
    fn given_up(&self) -> usize {
        self.tracer.events().iter().filter(|event| event.outcome == Outcome::Dropped).count()
    }

    /// The next read meets `first`, and the second request for it `second`, each after a long time
    /// or at once.
    fn next_two(&self, first: Fault, second: Fault) {
        self.plan.inject(Rule::of_kind(RequestKind::Read, first).times(1));
        self.plan.inject(Rule::of_kind(RequestKind::Read, second).skip(1).times(1));
    }
}

#[test]
fn every_promise_is_kept() {
    for latency in [Latency::S3, Latency::CLUSTER] {
        simulate(of_latency(latency), |bench| async move {
            conformance::object_store(&bench.env, Arc::new(bench.store.clone())).await.expect("all promises");
        });
    }
}

/// The slowest of a hundred reads are as fast as the body of the distribution, for one request more
/// in twenty.
fn the_tail_is_cut() {
    for (latency, at_once) in
        [(Latency::S3, 1), (Latency::S3, 64), (Latency::CLUSTER, 1), (Latency::CLUSTER, 64)]
    {
        simulate(of_latency(latency), move |bench| async move {
            bench.put().await;
            bench.read(false, 2000, at_once).await;
            let (plain, before) = (bench.read(true, 20_000, at_once).await, bench.performance());
            bench.tracer.reset();
            let hedged = bench.read(false, 20_000, at_once).await;
            let performance = bench.performance();
            let p99 = |took: &[Duration]| took[took.len() / 100 * 99];
            let ratio = p99(&hedged).as_secs_f64() / hedged[hedged.len() / 2].as_secs_f64();
            let hedges = performance.hedges - before.hedges;
            let told = format!(
                "{at_once} at once: p99 {:?} → {:?}, {ratio:.2} of p50; {hedges} hedges, {performance:?}",
                p99(&plain),
                p99(&hedged)
            );
            assert!(ratio < 3.6, "{told}");
            assert!(
                p99(&hedged).mul_f64(1.2) < p99(&plain) && hedged[19_980].mul_f64(2.0) < plain[19_980],
                "{told}"
            );
            assert!(hedges * 20 <= 20_000 + 20 * 16 && hedges > 500, "{told}");
            assert_eq!(bench.tracer.of_kind(RequestKind::Read).requests, 20_000 + hedges, "{told}");
            assert!(hedged[10_000] <= plain[10_000].mul_f64(1.05), "the median stays: {told}");
        });
    }
}

#[test]
fn the_tail_is_cut_for_one_request_more_in_twenty() {
    the_tail_is_cut();
}

/// However many reads are late, those asked for twice are one in twenty.
fn the_share_is_bounded() {
    simulate(of_latency(Latency::fixed(STEADY)), |bench| async move {
        bench.put().await;
        bench.read(false, 1000, 10).await;
        // Every third read is slow from now on, as long as the median says that the store is well.
        let mut count = 0_u32;
        let slow = move |kind: RequestKind| {
            count += 1;
            kind == RequestKind::Read && count.is_multiple_of(3)
        };
        let mut slow = slow;
        bench.plan.inject(Rule::new(move |asked| slow(asked.kind), Fault::Delay(Duration::from_millis(300))));
        for _ in 0..20 {
            bench.read(false, 100, 10).await;
            let performance = bench.performance();
            assert!(performance.hedges * 20 <= performance.reads, "{performance:?}");
        }
        let performance = bench.performance();
        assert!(
            performance.hedges > 100 && performance.hedges_won > 50 && performance.hedges_suppressed > 200,
            "{performance:?}"
        );
    });
}

#[test]
fn however_many_reads_are_late_one_in_twenty_is_asked_for_twice() {
    the_share_is_bounded();
}

/// When all reads take three times as long, second requests would only add to it.
fn a_slow_store_is_left_alone() {
    let latency = Latency { slow_permille: 30, slow: Duration::from_millis(100), ..Latency::fixed(STEADY) };
    simulate(of_latency(latency), |bench| async move {
        bench.put().await;
        bench.read(false, 4000, 10).await;
        let well = bench.performance();
        assert!(well.hedges > 20 && !well.is_slow, "{well:?}");
        bench
            .plan
            .inject(Rule::of_kind(RequestKind::Read, Fault::Delay(Duration::from_millis(20))).times(1000));
        bench.read(false, 1000, 10).await;
        let slow = bench.performance();
        assert!(slow.hedges - well.hedges <= 20, "those that were saved up, at most: {well:?} {slow:?}");
        bench.read(false, 4000, 10).await;
        let again = bench.performance();
        assert!(
            !again.is_slow && again.hedges > slow.hedges + 20,
            "and helped again when it is well: {again:?}"
        );
    });
}

#[test]
fn a_store_that_is_slow_as_a_whole_is_left_alone() {
    a_slow_store_is_left_alone();
}

/// Reads that vary a little: a second request comes too late for all of them.
fn losing_is_given_up() {
    simulate(
        of_latency(Latency { p99: Duration::from_millis(15), ..Latency::fixed(STEADY) }),
        |bench| async move {
            bench.put().await;
            bench.read(false, 10_000, 10).await;
            let performance = bench.performance();
            assert!(
                performance.hedges * 100 <= performance.reads,
                "at most one in a hundred: {performance:?}"
            );
            assert!(
                performance.hedges > 0 && performance.hedges_won * 8 < performance.hedges,
                "but tried now and then: {performance:?}"
            );
        },
    );
}

#[test]
fn second_requests_that_do_not_win_are_not_made() {
    losing_is_given_up();
}

/// In a queue second requests stand behind the first ones: they never win, and only make it longer.
#[test]
fn an_overloaded_store_is_not_buried() {
    let overloaded = Throttle {
        requests_per_second: 1000,
        latency: Latency { p99: Duration::from_millis(3), ..Latency::fixed(Duration::from_millis(1)) },
        ..Throttle::default()
    };
    simulate(overloaded, |bench| async move {
        bench.put().await;
        bench.read(false, 12_000, 64).await;
        let performance = bench.performance();
        assert!(performance.hedges * 100 <= performance.reads, "at most one in a hundred: {performance:?}");
    });
}

#[test]
fn the_request_that_lost_is_given_up_and_so_are_both_when_nobody_waits() {
    simulate(of_latency(Latency::fixed(STEADY)), |bench| async move {
        bench.put().await;
        bench.read(false, 200, 1).await;
        bench.tracer.reset();
        bench.next_two(Fault::Delay(Duration::from_secs(60)), Fault::Delay(Duration::ZERO));
        let took = bench.read(false, 1, 1).await;
        assert!(took[0] < STEADY * 3, "{took:?}");
        assert_eq!((bench.tracer.of_kind(RequestKind::Read).requests, bench.given_up()), (2, 1));
        bench.next_two(Fault::Delay(Duration::from_secs(60)), Fault::Delay(Duration::from_secs(60)));
        let reading = Arc::clone(&bench);
        let task = bench.env.spawn(TaskClass::Foreground, "read", async move {
            reading.read(false, 1, 1).await;
        });
        bench.env.sleep(STEADY * 5).await;
        drop(task);
        bench.env.sleep(STEADY).await;
        assert_eq!(
            (bench.tracer.of_kind(RequestKind::Read).requests, bench.given_up()),
            (4, 3),
            "both of the second read"
        );
    });
}

/// First and second request each end well, with an error that passes, or with one that is the
/// answer.
fn errors_mean_what_they_do() {
    let late = Duration::from_millis(50);
    let ok = || Fault::Delay(Duration::ZERO);
    for (first, second, ends) in [
        (Fault::Delay(late), ok(), None),
        (Fault::Delay(late), Fault::Error(ErrorKind::Retry), None),
        (Fault::Delay(late), Fault::Error(ErrorKind::NotFound), None),
        (Fault::Delay(late), Fault::Error(ErrorKind::PermissionDenied), None),
        (Fault::Error(ErrorKind::NotFound), ok(), Some(ErrorKind::NotFound)),
        (Fault::Error(ErrorKind::Retry), ok(), Some(ErrorKind::Retry)),
    ] {
        simulate(of_latency(Latency::fixed(STEADY)), move |bench| async move {
            bench.put().await;
            bench.read(false, 200, 1).await;
            let told = format!("{first:?} {second:?}");
            bench.next_two(first, second);
            let read = bench.store.read(request(), &name(), 0..4096).await;
            assert_eq!(read.err().map(|error| error.kind()), ends, "{told}");
        });
    }
}

#[test]
fn an_error_of_the_second_request_leaves_the_first_one_to_answer() {
    errors_mean_what_they_do();
}

#[test]
fn a_first_request_that_fails_in_passing_waits_for_the_second() {
    simulate(of_latency(Latency::fixed(STEADY)), |bench| async move {
        let first = Box::pin(async { Err(Error::new(ErrorKind::Retry, "the first")) });
        let env = bench.env.clone();
        let second = Box::pin(async move {
            env.sleep(STEADY).await;
            Ok(Bytes::from_static(b"x"))
        });
        let (result, won) = bench.store.race(first, second).await;
        assert!(won && result.is_ok_and(|bytes| bytes == "x"));
        let fails = |text: &'static str| -> Reading<'static> {
            Box::pin(async move { Err(Error::new(ErrorKind::Busy, text)) })
        };
        let (result, won) = bench.store.race(fails("the first"), fails("the second")).await;
        assert!(!won && result.is_err_and(|error| error.message() == "the first"));
    });
}

/// After a few reads we know which time is far too long, though not where the slowest of twenty
/// begin.
#[test]
fn what_takes_many_times_the_median_is_asked_for_twice_soon() {
    simulate(of_latency(Latency::fixed(STEADY)), |bench| async move {
        bench.put().await;
        bench.read(false, 20, 1).await;
        bench.plan.inject(Rule::of_kind(RequestKind::Read, Fault::Delay(STEADY)).times(1));
        let late = bench.read(false, 1, 1).await;
        assert!(late[0] >= STEADY * 2 && bench.performance().hedges == 0, "{late:?}");
        bench.plan.inject(Rule::of_kind(RequestKind::Read, Fault::Delay(STEADY * 100)).times(1));
        let cut = bench.read(false, 1, 1).await;
        assert!(cut[0] < STEADY.mul_f64(4.5), "{cut:?}");
        assert_eq!((bench.performance().hedges, bench.performance().hedges_won), (1, 1));
    });
}

/// Reads took long under load, and it is over: what takes three times as long as they do now is
/// late, not what took long then.
#[test]
fn what_is_late_is_known_soon_after_a_load_is_over() {
    let mut judge = Judge::default();
    let size = Size::of(8192);
    for number in 0..10_000 {
        judge.took(8192, Duration::from_millis(80 + number % 80));
    }
    let under_load = judge.begin(size).expect("enough were seen");
    assert!(under_load > Duration::from_millis(150), "{under_load:?}");
    for number in 0..100 {
        judge.took(8192, Duration::from_millis(20 + number % 10));
    }
    let after = judge.begin(size).expect("enough were seen");
    assert!(after > Duration::from_millis(60) && after < Duration::from_millis(90), "{after:?}");
    // A store that gets slower is given the time that it usually takes.
    for _ in 0..100 {
        judge.took(8192, Duration::from_millis(300));
    }
    assert_eq!(judge.begin(size), Some(under_load));
}

fn put_request(purpose: Purpose) -> Request {
    Request::new(purpose, Epoch::NONE)
}

/// A put of the log that takes long is made once more; nobody else's is.
#[test]
fn puts_of_the_log_are_made_twice_when_they_take_long() {
    simulate(of_latency(Latency::S3), |bench| async move {
        let mut took = Vec::new();
        for number in 0..3000u32 {
            let (name, began) =
                (ObjectName::new(format!("log/{number:08}")).expect("a name"), bench.env.now());
            let placement = Placement::new(ObjectKind::Log, Life::Short);
            let put = bench
                .store
                .put_if_absent(put_request(Purpose::Log), &name, placement, Bytes::from_static(b"frames"))
                .await;
            // `Exists` is what the second one finds where the first has landed.
            assert!(matches!(put, Ok(PutOutcome::Created | PutOutcome::Exists)), "{put:?}");
            assert_eq!(bench.plain.read(request(), &name, 0..100).await.expect("it is there"), "frames");
            if number >= 500 {
                took.push(bench.env.now().since(began));
            }
        }
        let puts = bench.tracer.of_kind(RequestKind::Put).requests;
        assert!((3030..=3000 + 3000 / 20 + 16).contains(&puts), "{puts} puts of 3000");
        bench.tracer.reset();
        for number in 0..300u32 {
            let name = ObjectName::new(format!("manifest/{number:08}")).expect("a name");
            let placement = Placement::new(ObjectKind::Log, Life::Short);
            bench
                .store
                .put_if_absent(put_request(Purpose::Manifest), &name, placement, Bytes::new())
                .await
                .expect("it puts");
        }
        assert_eq!(bench.tracer.of_kind(RequestKind::Put).requests, 300);
    });
}

/// What two puts of the same bytes come to.
fn two_puts_come_to_what_both_may_have_done() {
    simulate(of_latency(Latency::fixed(STEADY)), |bench| async move {
        let put = |after: Duration, result: Result<PutOutcome>| -> Putting<'static> {
            let env = bench.env.clone();
            Box::pin(async move {
                env.sleep(after).await;
                result
            })
        };
        let error = |kind| Err(Error::new(kind, "one of them"));
        use ErrorKind::{DeadlineExceeded, OutcomeUnknown, Retry};
        let cases = [
            (error(Retry), Ok(PutOutcome::Created), Ok((PutOutcome::Created, true))),
            (error(OutcomeUnknown), Ok(PutOutcome::Exists), Ok((PutOutcome::Exists, true))),
            (Ok(PutOutcome::Created), error(Retry), Ok((PutOutcome::Created, false))),
            (error(Retry), error(OutcomeUnknown), Err(OutcomeUnknown)),
            (error(OutcomeUnknown), error(Retry), Err(OutcomeUnknown)),
            (error(Retry), error(DeadlineExceeded), Err(DeadlineExceeded)),
            (error(Retry), error(Retry), Err(Retry)),
        ];
        for (first, second, expected) in cases {
            for (one, other) in [(STEADY, STEADY * 2), (STEADY * 2, STEADY)] {
                let told = format!("{first:?} {second:?}");
                let (result, won) = race_puts(put(one, first.clone()), put(other, second.clone())).await;
                match (&result, &expected) {
                    (Ok(outcome), Ok((wanted, by))) => assert_eq!((*outcome, won), (*wanted, *by), "{told}"),
                    (Err(error), Err(kind)) => assert_eq!(error.kind(), *kind, "{told}"),
                    _ => panic!("{told} came to {result:?}"),
                }
            }
        }
    });
}

#[test]
fn of_two_puts_without_success_one_of_unknown_outcome_decides() {
    two_puts_come_to_what_both_may_have_done();
}

#[test]
fn only_reads_that_somebody_waits_for_are_asked_for_twice() {
    simulate(of_latency(Latency::fixed(STEADY)), |bench| async move {
        bench.put().await;
        bench.read(false, 400, 1).await;
        bench.plan.inject(Rule::new(|_| true, Fault::Delay(Duration::from_millis(400))));
        bench.store.length(request(), &name()).await.expect("it is there");
        bench.store.list(request(), "", None, 1).await.expect("it lists");
        let compaction = Request::new(Purpose::Compaction, Epoch::NONE);
        bench.store.read(compaction, &name(), 0..4096).await.expect("it reads");
        assert_eq!((bench.performance().hedges, bench.performance().hedges_suppressed), (0, 0));
        bench.store.read(request(), &name(), 0..4096).await.expect("it reads");
        assert_eq!(bench.performance().hedges, 1);
    });
}

#[test]
fn a_deadline_goes_down_with_both_requests() {
    simulate(of_latency(Latency::fixed(STEADY)), |bench| async move {
        bench.put().await;
        bench.read(false, 200, 1).await;
        let hasty = Request { deadline: Some(bench.env.now() + STEADY / 2), ..request() };
        let error = bench.store.read(hasty, &name(), 0..4096).await.expect_err("it is late");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
    });
}

/// Reads of several sizes tell what one request moves in a second.
#[test]
fn bandwidth_is_measured() {
    simulate(of_latency(Latency { slow_permille: 0, ..Latency::S3 }), |bench| async move {
        bench.put().await;
        for number in 0..1000 {
            let bytes = if number % 2 == 0 { 4096 } else { 4 << 20 };
            bench.store.read(request(), &name(), 0..bytes).await.expect("it reads");
        }
        let performance = bench.performance();
        assert!(
            (60_000_000..130_000_000).contains(&performance.bytes_per_second),
            "90 MB/s: {performance:?}"
        );
        assert!(
            (1_500_000..3_500_000).contains(&performance.bytes_of_latency()),
            "25 ms of it: {}",
            performance.bytes_of_latency()
        );
    });
}

#[cfg(feature = "mutants")]
mod mutants {
    use crate::mutant::{Mutant, notices};

    #[test]
    fn without_a_bound_of_the_share() {
        notices(Mutant::HedgeShareUnbounded, super::the_share_is_bounded);
    }

    #[test]
    fn when_the_store_is_slow() {
        notices(Mutant::HedgeSlowStore, super::a_slow_store_is_left_alone);
    }

    #[test]
    fn when_second_requests_lose() {
        notices(Mutant::HedgeLosing, super::losing_is_given_up);
    }

    #[test]
    fn when_an_error_of_the_second_ends_the_read() {
        notices(Mutant::HedgeErrorEndsRead, super::errors_mean_what_they_do);
    }

    #[test]
    fn a_put_that_may_still_land_must_not_be_forgotten() {
        notices(Mutant::HedgeForgetsUnknownPut, super::two_puts_come_to_what_both_may_have_done);
    }
}
