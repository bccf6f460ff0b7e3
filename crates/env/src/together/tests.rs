use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::all;
use crate::BoxFuture;
use crate::simulated::World;

#[test]
fn results_come_in_order_and_no_more_than_the_limit_are_in_flight() {
    let world = World::new(1);
    let process = world.process("all");
    let env = process.env();
    for limit in [1, 3, 100] {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let futures = (0..10u64).map(|number| -> BoxFuture<'_, u64> {
            let (running, most, env) = (&running, &most, &env);
            Box::pin(async move {
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                env.sleep(Duration::from_millis(100 - 7 * number)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                number
            })
        });
        assert_eq!(world.run_until(all(futures.collect(), limit)), (0..10).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::Relaxed), limit.min(10));
    }
}
