//! Background work within a bound of bytes per second: flush and compaction share it, and whoever else moves much may.
//!
//! Whoever has moved a piece takes its bytes here and waits until they fit the rate. The piece was moved before: pieces are small, a few
//! hundred KiB, and so the excess is. Nothing is saved up while nobody takes: an idle minute does not allow a burst.
//!
//! Thread safety: shared by all background tasks; the lock is held for a few instructions. The bound may change at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Env, Instant};

/// Who waits looks this often whether the bound has changed.
const STEP_MAX: Duration = Duration::from_millis(250);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// 0: no bound.
    bytes_per_second: AtomicU64,
    /// Until when what was taken so far keeps the rate.
    used_until: Mutex<Option<Instant>>,
}

impl Pace {
    /// With a bound; 0 for none.
    pub(crate) fn new(bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second: AtomicU64::new(bytes_per_second), used_until: Mutex::default() }
    }

    /// Changes the bound; 0 for none. Who waits by the old one soon goes on.
    pub(crate) fn set(&self, bytes_per_second: u64) {
        if self.bytes_per_second.swap(bytes_per_second, Ordering::Relaxed) != bytes_per_second {
            *self.used_until.lock() = None;
        }
    }

    /// Whether there is a rate.
    pub(crate) fn is_bounded(&self) -> bool {
        self.bytes_per_second.load(Ordering::Relaxed) > 0
    }

    /// Waits until `bytes` that were just moved fit the rate. One load without a bound.
    pub(crate) async fn take(&self, env: &Env, bytes: u64) {
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        if rate == 0 || bytes == 0 {
            return;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let lasts = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let now = env.now();
        let until = {
            let mut used_until = self.used_until.lock();
            let from = used_until.map_or(now, |until| until.max(now));
            *used_until.insert(from + lasts)
        };
        // In steps: a bound that was too low by mistake must not hold a flush, or closing, for hours after it was changed.
        while env.now() < until && self.bytes_per_second.load(Ordering::Relaxed) == rate {
            env.sleep_until(until.min(env.now() + STEP_MAX)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tombolo_env::TaskClass;
    use tombolo_env::simulated::World;

    use super::*;

    fn seconds_of(pace: &Arc<Pace>, env: &Env, tasks: u64, pieces: u64) -> f64 {
        let began = env.now();
        env.block_on(async {
            let work = |_| {
                let (pace, world) = (Arc::clone(pace), env.clone());
                env.spawn(TaskClass::Background, "work", async move {
                    for _ in 0..pieces {
                        pace.take(&world, 1000).await;
                    }
                })
            };
            for task in (0..tasks).map(work).collect::<Vec<_>>() {
                task.await;
            }
        });
        env.now().since(began).as_secs_f64()
    }

    /// However many tasks share it, bytes pass at the rate, and an idle time before allows no burst.
    #[test]
    fn tasks_share_one_rate() {
        let world = World::new(1);
        let env = world.process("process").env();
        let pace = Arc::new(Pace::new(10_000));
        for tasks in [1, 2, 5] {
            let seconds = seconds_of(&pace, &env, tasks, 100 / tasks);
            assert!((9.9..10.5).contains(&seconds), "{tasks} tasks: {seconds} s for 100 kB at 10 kB/s");
            env.block_on(env.sleep(Duration::from_secs(60)));
        }
    }

    #[test]
    fn the_bound_may_change_or_be_none() {
        let world = World::new(1);
        let env = world.process("process").env();
        let pace = Arc::new(Pace::new(0));
        assert!(seconds_of(&pace, &env, 1, 100) < 0.1);
        pace.set(100_000);
        let seconds = seconds_of(&pace, &env, 1, 100);
        assert!((0.99..1.1).contains(&seconds), "{seconds}");
        let waits = env.spawn(TaskClass::Background, "waits", {
            let (pace, world) = (Arc::clone(&pace), env.clone());
            async move { pace.take(&world, u64::MAX).await }
        });
        env.block_on(env.sleep(Duration::from_secs(1)));
        let began = env.now();
        pace.set(0);
        env.block_on(waits);
        assert!(env.now().since(began) < Duration::from_secs(1), "who waits goes on");
        assert!(seconds_of(&pace, &env, 1, 100) < 0.1);
    }
}
