//! A store that fails for a while and comes back: requests wait and try again.
//!
//! Which errors are tried again, and which never are:
//!
//! | ended with | then |
//! |---|---|
//! | `Retry`, `Busy`: nothing took effect | again, after a pause |
//! | `OutcomeUnknown` | never here: who put it asks what the name holds (the manifest's driver), or makes a fresh name (tables) |
//! | anything else: it is the answer | never |
//! | a piece of an object, or its end | never: the writer is used up, and the object is written again under a fresh name; buckets repeat them below |
//!
//! Pauses double from `pause_min` to `pause_max`, each shortened by chance to between a half and
//! the whole, so that many do not come back at once. All requests of one layer together make at
//! most `retries_per_second_max` attempts again: a store that comes back is not met by everyone who
//! waits. A request gives up when it has waited for `time_max`, when its deadline would pass in the
//! pause, or at once when `waiting_max` others wait already; what it returns then is the store's
//! own last error.
//!
//! Invariant: with a store that does not fail the layer adds no request, no pause and no allocation
//! but the future's.

mod objects;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, Instant};

pub use objects::RetryObjectStore;

use crate::layer::RequestKind;
use crate::{Error, ErrorKind, Request, Result};

/// How long and how often to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How long a request waits in all.
    pub time_max: Duration,
    /// The first pause.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// Attempts again in a second, of all requests together.
    pub retries_per_second_max: u32,
    /// Requests that wait at once.
    pub waiting_max: usize,
}

impl Default for RetryPolicy {
    /// Two minutes: what a restart of a storage service, or a hiccup of a network disk, takes.
    fn default() -> RetryPolicy {
        RetryPolicy {
            time_max: Duration::from_secs(120),
            pause_min: Duration::from_millis(10),
            pause_max: Duration::from_secs(5),
            retries_per_second_max: 100,
            waiting_max: 10_000,
        }
    }
}

/// What the requests of one layer share.
#[derive(Debug)]
struct Attempts {
    env: Env,
    policy: RetryPolicy,
    /// When the next attempt again may be made.
    next: Mutex<Instant>,
    /// Invariant: at most `policy.waiting_max`.
    waiting: AtomicUsize,
    retries: AtomicU64,
    given_up: AtomicU64,
}

/// A place among those that wait, given back when dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Attempts {
    fn new(env: &Env, policy: RetryPolicy) -> Arc<Attempts> {
        Arc::new(Attempts {
            env: env.clone(),
            policy,
            next: Mutex::new(Instant::from_nanos(0)),
            waiting: AtomicUsize::new(0),
            retries: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        })
    }

    fn wait_place(&self) -> Option<Waiting<'_>> {
        let max = self.policy.waiting_max;
        let taken = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            (waiting < max).then_some(waiting + 1)
        });
        taken.is_ok().then(|| Waiting(&self.waiting))
    }

    /// When attempt number `attempt` (from 1) again may be made. A turn that lies after `last` is
    /// nobody's: a request that gives up keeps none.
    fn turn(&self, now: Instant, attempt: u32, last: Instant) -> Instant {
        let RetryPolicy { pause_min, pause_max, retries_per_second_max, .. } = self.policy;
        let pause = pause_min.saturating_mul(1 << attempt.min(20)).div_f64(2.0).clamp(pause_min, pause_max);
        let half = pause / 2;
        let chance = self.env.random_u64() % (u64::try_from(half.as_nanos()).unwrap_or(u64::MAX)).max(1);
        let wanted = now + half + Duration::from_nanos(chance);
        let apart = Duration::from_secs(1) / retries_per_second_max.max(1);
        let mut next = self.next.lock();
        let turn = wanted.max(*next);
        if turn <= last {
            *next = turn + apart;
        }
        turn
    }

    /// Makes the request, and again for as long as it may.
    async fn attempt<'a, T>(
        &'a self,
        kind: RequestKind,
        request: Request,
        mut make: impl FnMut() -> BoxFuture<'a, Result<T>> + Send,
    ) -> Result<T> {
        let mut error = match make().await {
            Err(error) if passes(&error) => error,
            result => return result,
        };
        let began = self.env.now();
        let Some(_place) = self.wait_place() else {
            self.given_up.fetch_add(1, Ordering::Relaxed);
            return Err(error.context(format_args!(
                "{kind} was not tried again: {} requests wait already",
                self.policy.waiting_max
            )));
        };
        tracing::warn!(request = kind.name(), %error, "a store fails; waiting for it");
        let give_up_at = began + self.policy.time_max;
        let last = request.deadline.map_or(give_up_at, |deadline| deadline.min(give_up_at));
        for attempt in 1_u32.. {
            let turn = self.turn(self.env.now(), attempt, last);
            if request.deadline.is_some_and(|deadline| deadline <= turn) {
                self.given_up.fetch_add(1, Ordering::Relaxed);
                let message = format!(
                    "the deadline passed while a store failed; {kind} was tried {attempt} times and took no \
                    effect"
                );
                return Err(Error::new(ErrorKind::DeadlineExceeded, message).source(error));
            }
            if turn > give_up_at {
                break;
            }
            self.env.sleep_until(turn).await;
            self.retries.fetch_add(1, Ordering::Relaxed);
            error = match make().await {
                Err(error) if passes(&error) => error,
                result => {
                    tracing::info!(request = kind.name(), attempt, "a store is back");
                    return result;
                }
            };
        }
        self.given_up.fetch_add(1, Ordering::Relaxed);
        Err(error.context(format_args!("{kind} failed for {:?}", self.env.now().since(began))))
    }
}

/// Whether an error passes by itself and the request took no effect.
fn passes(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy)
}
