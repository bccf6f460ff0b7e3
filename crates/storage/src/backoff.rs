//! Requests that are made again while a store fails in passing.

use std::time::Duration;

use tombolo_env::{BoxFuture, Env, Instant, all};

use crate::{Error, ErrorKind, ObjectInfo, ObjectName, ObjectStore, Request, Result};

/// Objects listed at once.
const LIST_PAGE: usize = 1000;

/// Deletions in flight.
const DELETES_IN_FLIGHT_MAX: usize = 16;

const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// For callers that need not go on for ever. In time and not in attempts: these may be long, where
/// the store below waits by itself before it gives up.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Whether the same call may succeed in a moment.
pub fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded)
}

/// Whether what was asked for may take effect all the same, later even.
pub(crate) fn may_have_landed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::DeadlineExceeded)
}

/// A growing pause between attempts, from 2 ms to a second, for ten seconds of them or as long as
/// one likes.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    /// From when on the time counts.
    since: Option<Instant>,
}

impl Backoff {
    /// The time counts from the first pause on: after the first failure there is one attempt more,
    /// however long that took.
    #[expect(clippy::new_without_default, reason = "a backoff that was begun by nobody means nothing")]
    pub fn new() -> Backoff {
        Backoff { next: PAUSE_MIN, since: None }
    }

    /// The time counts from now on: an attempt that took all of it is the last.
    pub fn starting(env: &Env) -> Backoff {
        Backoff { since: Some(env.now()), ..Backoff::new() }
    }

    /// Waits; between a half and the whole of the pause, so that many do not come back at once.
    pub async fn pause(&mut self, env: &Env) {
        self.since.get_or_insert(env.now());
        let half = self.next / 2;
        self.next = (self.next * 2).min(PAUSE_MAX);
        let chance = env.random_u64() % u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        env.sleep(half + Duration::from_nanos(chance)).await;
    }

    /// Whether ten seconds have passed.
    pub fn is_exhausted(&self, env: &Env) -> bool {
        self.since.is_some_and(|since| env.now().since(since) >= TIME_MAX)
    }
}

/// Makes a request that may be made again, for about ten seconds while it fails in passing: none is
/// begun later than that.
///
/// # Errors
/// What the last attempt said.
pub async fn with_backoff<'a, T>(env: &Env, make: impl Fn() -> BoxFuture<'a, Result<T>>) -> Result<T> {
    let mut backoff = Backoff::starting(env);
    loop {
        match make().await {
            Err(error)
                if (is_passing(&error) || error.kind() == ErrorKind::OutcomeUnknown)
                    && !backoff.is_exhausted(env) =>
            {
                backoff.pause(env).await;
            }
            result => return result,
        }
    }
}

/// Deletes the objects under `prefix` of which `which` is true: one list for each thousand,
/// deletions many at a time, each made again for some seconds while it fails in passing.
///
/// # Errors
/// What the store says beyond that. What was deleted is.
pub async fn delete_under(
    env: &Env,
    objects: &dyn ObjectStore,
    request: Request,
    prefix: &str,
    which: impl Fn(&ObjectInfo) -> bool,
) -> Result<()> {
    let mut after: Option<ObjectName> = None;
    loop {
        let page = with_backoff(env, || objects.list(request, prefix, after.as_ref(), LIST_PAGE)).await?;
        let last = page.objects.last().map(|info| info.name.clone());
        let chosen = page.objects.into_iter().filter(|info| which(info));
        let deletions = chosen.map(|info| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move { with_backoff(env, || objects.delete(request, &info.name)).await })
        });
        let results = all(deletions.collect(), DELETES_IN_FLIGHT_MAX).await;
        results.into_iter().collect::<Result<()>>()?;
        match last {
            Some(last) if page.more => after = Some(last),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tombolo_env::simulated::World;

    use super::*;
    use crate::backend::memory::MemoryObjectStore;
    use crate::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};
    use crate::layer::retry::{RetryObjectStore, RetryPolicy};
    use crate::registry::REMOTE_RETRY_TIME_MAX;
    use crate::{Epoch, Purpose};

    /// A store that has tried for long already, as those of buckets do, is not asked a dozen times
    /// more.
    #[test]
    fn two_who_are_persistent_are_no_more_patient_than_one() {
        let world = World::new(1);
        let env = world.process("client").env();
        let plan = FaultPlan::scripted();
        plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::Retry)));
        let away: Arc<dyn ObjectStore> =
            Arc::new(FaultObjectStore::new(&env, Arc::new(MemoryObjectStore::unnamed(&env)), plan));
        let policy = RetryPolicy { time_max: REMOTE_RETRY_TIME_MAX, ..RetryPolicy::default() };
        let retrying: Arc<dyn ObjectStore> = Arc::new(RetryObjectStore::new(&env, Arc::clone(&away), policy));
        let name = ObjectName::new("a").expect("a name");
        let request = Request::new(Purpose::Open, Epoch(1));
        // In virtual time.
        for (store, least, most) in [(away, 5, 12), (retrying, 25, 45)] {
            let began = env.now();
            let error = env
                .block_on(with_backoff(&env, || store.read(request, &name, 0..1)))
                .expect_err("it is away");
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            let took = env.now().since(began);
            assert!((least..=most).contains(&took.as_secs()), "{took:?}");
        }
    }
}
