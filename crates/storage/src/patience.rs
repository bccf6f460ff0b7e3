//! Requests that are made again while a store fails in passing.

use std::time::Duration;

use tombolo_env::{BoxFuture, Env, all};

use crate::{Error, ErrorKind, ObjectInfo, ObjectName, ObjectStore, Request, Result};

/// Objects listed at once.
const LIST_PAGE: usize = 1000;

/// Deletions in flight.
const DELETES_IN_FLIGHT_MAX: usize = 16;

const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// About ten seconds of trying, for whoever is not bound to go on for ever.
const ATTEMPTS_MAX: u32 = 18;

/// Whether the same call may succeed in a moment.
pub(crate) fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded)
}

/// Whether what was asked for may take effect all the same, later even.
pub(crate) fn may_have_landed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::DeadlineExceeded)
}

/// A growing pause.
#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { attempts: 0, next: PAUSE_MIN }
    }

    /// Waits; between a half and the whole of the pause, so that many do not come back at once.
    pub(crate) async fn pause(&mut self, env: &Env) {
        self.attempts += 1;
        let half = self.next / 2;
        self.next = (self.next * 2).min(PAUSE_MAX);
        let chance = env.random_u64() % u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        env.sleep(half + Duration::from_nanos(chance)).await;
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.attempts >= ATTEMPTS_MAX
    }
}

/// Makes a request that may be made again, for some seconds while it fails in passing.
///
/// # Errors
/// What the last attempt said.
pub async fn patiently<'a, T>(env: &Env, make: impl Fn() -> BoxFuture<'a, Result<T>>) -> Result<T> {
    let mut backoff = Backoff::new();
    loop {
        match make().await {
            Err(error) if (is_passing(&error) || error.kind() == ErrorKind::OutcomeUnknown) && !backoff.is_exhausted() => {
                backoff.pause(env).await;
            }
            result => return result,
        }
    }
}

/// Deletes the objects under `prefix` of which `which` is true: one list for each thousand, deletions many at a time, each made again for some seconds
/// while it fails in passing.
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
        let page = patiently(env, || objects.list(request, prefix, after.as_ref(), LIST_PAGE)).await?;
        let last = page.objects.last().map(|info| info.name.clone());
        let chosen = page.objects.into_iter().filter(|info| which(info));
        let deletions = chosen.map(|info| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move { patiently(env, || objects.delete(request, &info.name)).await })
        });
        let results = all(deletions.collect(), DELETES_IN_FLIGHT_MAX).await;
        results.into_iter().collect::<Result<()>>()?;
        match last {
            Some(last) if page.more => after = Some(last),
            _ => return Ok(()),
        }
    }
}
