use std::future::Future;

use tombolo_env::TaskClass;
use tombolo_env::simulated::World;

use super::*;
use crate::backend::memory::MemoryObjectStore;
use crate::conformance;
use crate::{Epoch, Life, ObjectKind, Purpose};

/// Runs a test on a throttled store in a simulated world.
fn simulate<F: Future<Output = ()> + Send + 'static>(
    throttle: Throttle,
    test: impl FnOnce(Env, Arc<ThrottleObjectStore>) -> F,
) {
    let world = World::new(1);
    let process = world.process("p");
    let env = process.env();
    let store = ThrottleObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), throttle);
    process.run(test(env, Arc::new(store))).expect("it lives");
}

fn name(number: u64) -> ObjectName {
    ObjectName::new(format!("object/{number}")).expect("a name")
}

fn request() -> Request {
    Request::new(Purpose::Verify, Epoch::NONE)
}

/// Puts so many objects at once, of so many bytes; how long all of it took.
async fn put(env: &Env, store: &Arc<ThrottleObjectStore>, from: u64, count: u64, bytes: usize) -> Duration {
    let began = env.now();
    let tasks: Vec<_> = (from..from + count)
        .map(|number| {
            let store = Arc::clone(store);
            env.spawn(TaskClass::Foreground, "put", async move {
                let placement = Placement::new(ObjectKind::Other, Life::Short);
                let put = store
                    .put_if_absent(request(), &name(number), placement, Bytes::from(vec![7; bytes]))
                    .await;
                assert_eq!(put.expect("it puts"), PutOutcome::Created);
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    env.now().since(began)
}

#[test]
fn every_promise_is_kept_however_slow() {
    for throttle in [
        Throttle::default(),
        Throttle { latency: Latency::fixed(Duration::from_millis(30)), ..Throttle::default() },
        Throttle { latency: Latency::S3, ..Throttle::default() },
        Throttle { latency: Latency::CLUSTER, ..Throttle::default() },
        Throttle {
            bytes_per_second: 1 << 20,
            requests_per_second: 200,
            latency: Latency::fixed(Duration::from_millis(1)),
        },
    ] {
        simulate(throttle, |env, store| async move {
            conformance::object_store(&env, store).await.expect("all promises");
        });
    }
}

/// Requests at once go at the rate all together, whatever they move, and wait side by side for the
/// latency.
#[test]
fn requests_share_the_rates_and_not_the_latency() {
    let is_about = |took: Duration, wanted_ms: u64| {
        took.abs_diff(Duration::from_millis(wanted_ms)) < Duration::from_millis(wanted_ms / 50 + 1)
    };
    simulate(Throttle { bytes_per_second: 100_000, ..Throttle::default() }, move |env, store| async move {
        let took = put(&env, &store, 0, 10, 20_000).await;
        assert!(is_about(took, 2000), "written: {took:?}");
        env.sleep(Duration::from_secs(60)).await;
        let began = env.now();
        assert_eq!(store.read(request(), &name(3), 0..50_000).await.expect("it reads").len(), 20_000);
        assert_eq!(
            store.read_ranges(request(), &name(3), &[0..10_000, 5000..15_000]).await.expect("it reads").len(),
            2
        );
        let took = env.now().since(began);
        assert!(is_about(took, 400), "read, and nothing was saved up: {took:?}");
    });
    simulate(Throttle { requests_per_second: 50, ..Throttle::default() }, move |env, store| async move {
        let took = put(&env, &store, 0, 100, 1).await;
        assert!(is_about(took, 2000), "{took:?}");
        let began = env.now();
        for _ in 0..25 {
            store.length(request(), &name(1)).await.expect("it is there");
        }
        assert!(is_about(env.now().since(began), 500), "{:?}", env.now().since(began));
    });
    simulate(
        Throttle { latency: Latency::fixed(Duration::from_millis(40)), ..Throttle::default() },
        move |env, store| async move {
            let took = put(&env, &store, 0, 100, 1000).await;
            assert!(is_about(took, 40), "side by side: {took:?}");
            let began = env.now();
            let mut writer = store
                .create(request(), &name(200), Placement::new(ObjectKind::Other, Life::Short))
                .await
                .expect("begun");
            writer.append(Bytes::from_static(b"x")).await.expect("appended");
            writer.finish().await.expect("ended");
            assert!(is_about(env.now().since(began), 40), "only the end waits: {:?}", env.now().since(began));
        },
    );
}

#[test]
fn a_deadline_that_would_pass_ends_a_request_before_it_takes_effect() {
    simulate(Throttle { bytes_per_second: 1000, ..Throttle::default() }, |env, store| async move {
        let hasty = Request { deadline: Some(env.now() + Duration::from_secs(1)), ..request() };
        let placement = Placement::new(ObjectKind::Other, Life::Short);
        let error = store
            .put_if_absent(hasty, &name(1), placement, Bytes::from(vec![7; 5000]))
            .await
            .expect_err("it is late");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        env.sleep(Duration::from_secs(60)).await;
        assert_eq!(
            store.length(request(), &name(1)).await.expect_err("nothing was put").kind(),
            ErrorKind::NotFound
        );
    });
}
