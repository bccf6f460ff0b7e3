use std::time::Duration;

use super::*;
use crate::Registry;

/// Only a test of many rounds meets the moment between the look and the wait: a lock makes it long.
#[test]
fn a_stop_that_comes_while_it_looks_is_not_missed() {
    let env = tombolo_env::Env::real();
    for round in 0..50 {
        let builder = Db::builder(format!("mem://stop-{round}"));
        let db = builder.env(env.clone()).registry(Registry::with_defaults()).open().wait().unwrap();
        let engine = Arc::clone(db.engine());
        let held = engine.questions.hold();
        engine.questions.wake();
        // Not for ever: it may have stood before the lock already, without having asked again.
        for _ in 0..10_000 {
            if engine.questions.is_awaited() {
                break;
            }
            std::thread::yield_now();
        }
        // It stands before the lock now, or nearly.
        (0..100).for_each(|_| std::thread::yield_now());
        engine.stop();
        drop(held);
        let ended = db.close().wait_until(env.now() + Duration::from_secs(60));
        ended.unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}
