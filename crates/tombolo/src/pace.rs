//! Background work within a bound of bytes per second: flush and compaction share it, and others
//! that move much may. A database has one of its own
//! ([`crate::Options::background_bytes_per_second_max`]), and may have one that it shares with
//! others ([`BackgroundRate`]).
//!
//! A work that has moved a piece takes its bytes here and waits until they fit the rate. The piece
//! was moved before: pieces are small, a few hundred KiB, and so the excess is. Nothing is saved up
//! while nobody takes: an idle minute does not allow a burst.
//!
//! Thread safety: shared by all background tasks; the lock is held for a few instructions. The
//! bound may change at any time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Env, Instant};

/// Who waits looks this often whether the bound has changed.
const STEP_MAX: Duration = Duration::from_millis(250);

/// See the module's documentation.
#[derive(Debug, Default)]
struct Pace {
    /// 0: no bound.
    bytes_per_second: AtomicU64,
    /// Until when what was taken so far keeps the rate.
    used_until: Mutex<Option<Instant>>,
}

impl Pace {
    /// With a bound; 0 for none.
    fn new(bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second: AtomicU64::new(bytes_per_second), used_until: Mutex::default() }
    }

    /// Changes the bound; 0 for none. Who waits by the old one soon goes on.
    fn set(&self, bytes_per_second: u64) {
        if self.bytes_per_second.swap(bytes_per_second, Ordering::Relaxed) != bytes_per_second {
            *self.used_until.lock() = None;
        }
    }

    /// Whether there is a rate.
    fn is_bounded(&self) -> bool {
        self.bytes_per_second.load(Ordering::Relaxed) > 0
    }

    /// Waits until `bytes` that were just moved fit the rate, or `is_released`. One load without a
    /// bound.
    async fn take(&self, env: &Env, bytes: u64, is_released: &AtomicBool) {
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
        // In steps: a bound that was too low by mistake must not hold a flush, or closing, for
        // hours after it was changed.
        while env.now() < until
            && self.bytes_per_second.load(Ordering::Relaxed) == rate
            && !is_released.load(Ordering::Relaxed)
        {
            env.sleep_until(until.min(env.now() + STEP_MAX)).await;
        }
    }
}

/// A bound on what the background work of several databases of the process moves, in bytes per
/// second: flushes, compactions and verification, as RocksDB's `RateLimiter` that several databases
/// are given. Each of them keeps its own bound as well. The first to come is served first, piece by
/// piece.
///
/// ```
/// # fn main() -> tombolo::Result<()> {
/// let rate = tombolo::BackgroundRate::new(50 << 20);
/// let orders = tombolo::Db::builder("mem:///orders").background_rate(&rate).open().wait()?;
/// let events = tombolo::Db::builder("mem:///events").background_rate(&rate).open().wait()?;
/// rate.set(20 << 20);
/// # drop((orders, events));
/// # Ok(())
/// # }
/// ```
pub struct BackgroundRate(Pace);

impl fmt::Debug for BackgroundRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BackgroundRate")
            .field("bytes_per_second", &self.bytes_per_second())
            .finish_non_exhaustive()
    }
}

impl BackgroundRate {
    /// A bound in bytes per second; 0: none.
    pub fn new(bytes_per_second: u64) -> Arc<BackgroundRate> {
        Arc::new(BackgroundRate(Pace::new(bytes_per_second)))
    }

    /// The bound in bytes per second; 0: none.
    pub fn bytes_per_second(&self) -> u64 {
        self.0.bytes_per_second.load(Ordering::Relaxed)
    }

    /// Changes the bound, in bytes per second; 0: none. What waits by the old one follows within a
    /// quarter of a second.
    pub fn set(&self, bytes_per_second: u64) {
        self.0.set(bytes_per_second);
    }
}

/// The bounds of one database's background work: its own, and that of all who share one.
#[derive(Debug)]
pub(crate) struct Paces {
    own: Pace,
    shared: Option<Arc<BackgroundRate>>,
    /// Set when the database closes: nothing waits any more.
    released: AtomicBool,
}

impl Paces {
    /// `bytes_per_second` of its own; 0 for none.
    pub(crate) fn new(bytes_per_second: u64, shared: Option<Arc<BackgroundRate>>) -> Paces {
        Paces { own: Pace::new(bytes_per_second), shared, released: AtomicBool::new(false) }
    }

    /// Changes the database's own bound; 0 for none.
    pub(crate) fn set(&self, bytes_per_second: u64) {
        self.own.set(bytes_per_second);
    }

    /// The database closes: those who wait go on, and nobody waits any more.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
    }

    /// Whether there is a bound.
    pub(crate) fn is_bounded(&self) -> bool {
        self.own.is_bounded() || self.shared.as_ref().is_some_and(|shared| shared.0.is_bounded())
    }

    /// Waits until `bytes` that were just moved fit both bounds. Two loads without one.
    pub(crate) async fn take(&self, env: &Env, bytes: u64) {
        if self.released.load(Ordering::Relaxed) {
            return;
        }
        self.own.take(env, bytes, &self.released).await;
        if let Some(shared) = &self.shared {
            shared.0.take(env, bytes, &self.released).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tombolo_env::TaskClass;
    use tombolo_env::simulated::World;

    use super::*;

    fn seconds_of(pace: &Arc<Paces>, env: &Env, tasks: u64, pieces: u64) -> f64 {
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

    /// However many tasks share it, bytes pass at the rate, and an idle time before allows no
    /// burst.
    #[test]
    fn tasks_share_one_rate() {
        let world = World::new(1);
        let env = world.process("process").env();
        let pace = Arc::new(Paces::new(10_000, None));
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
        let pace = Arc::new(Paces::new(0, None));
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

    /// Two databases within one bound: together they keep it, and each keeps its own.
    #[test]
    fn databases_share_one_rate() {
        let world = World::new(1);
        let env = world.process("process").env();
        let rate = BackgroundRate::new(10_000);
        let (one, two) = (
            Arc::new(Paces::new(0, Some(Arc::clone(&rate)))),
            Arc::new(Paces::new(2_000, Some(Arc::clone(&rate)))),
        );
        assert!(one.is_bounded() && two.is_bounded());
        let moves = |pace: &Arc<Paces>, pieces: u64| {
            let (pace, world) = (Arc::clone(pace), env.clone());
            env.spawn(TaskClass::Background, "moves", async move {
                for _ in 0..pieces {
                    pace.take(&world, 1000).await;
                }
            })
        };
        let began = env.now();
        let took = || env.now().since(began).as_secs_f64();
        let (one_done, two_done) = (moves(&one, 90), moves(&two, 10));
        env.block_on(two_done);
        let two_took = took();
        env.block_on(one_done);
        let one_took = took();
        assert!((9.9..10.5).contains(&one_took), "{one_took} s for 100 kB of both at 10 kB/s");
        assert!((5.0..7.0).contains(&two_took), "{two_took} s for 10 kB at its own 2 kB/s");
        // Closing waits for nothing, and leaves the others their bound.
        rate.set(100);
        let waits = moves(&one, 1000);
        env.block_on(env.sleep(Duration::from_secs(1)));
        let began = env.now();
        one.release();
        env.block_on(waits);
        assert!(env.now().since(began) < Duration::from_secs(1));
        assert_eq!(rate.bytes_per_second(), 100);
        rate.set(0);
        assert!(!one.is_bounded() && two.is_bounded());
    }
}
