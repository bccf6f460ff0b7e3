//! What stores behind a network share: the runtime that their requests run on, and how one is
//! waited for.
//!
//! Every request runs as a task of one small runtime of the process, goes through a gate that lets
//! the more urgent first, and ends with its deadline; its result comes back through a completion,
//! so that who waits needs no runtime.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinHandle};
use tombolo_env::{Env, Instant, completion};

use crate::backend::{begin, within};
use crate::gate::Gate;
#[cfg(feature = "cloud")]
use crate::registry::REMOTE_RETRY_TIME_MAX;
use crate::{Error, ErrorKind, Request, Result};

/// Threads that requests run on. They only wait for the network, sign and copy.
pub(crate) const THREADS: usize = 2;

/// Threads that look up names: the resolver of the system blocks.
const LOOKUP_THREADS_MAX: usize = 4;

/// Attempts at an unknown outcome, after the first.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_millis(40);
/// Pauses double so often.
const DOUBLINGS_MAX: u32 = 5;

/// The runtime of all remote stores of this process.
#[derive(Debug)]
pub(crate) struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    /// The process's runtime, started when there is none.
    pub(crate) fn shared() -> Result<Arc<Runtime>> {
        static SHARED: Mutex<Weak<Runtime>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        if let Some(runtime) = shared.upgrade() {
            return Ok(runtime);
        }
        let runtime = Arc::new(Runtime::start("tombolo-remote")?);
        *shared = Arc::downgrade(&runtime);
        Ok(runtime)
    }

    /// A runtime whose threads have this name.
    pub(crate) fn start(name: &str) -> Result<Runtime> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(LOOKUP_THREADS_MAX)
            .thread_name(name)
            .enable_all()
            .build()
            .map_err(|error| Error::io(error, "starting the threads of remote stores", name))?;
        Ok(Runtime(Some(runtime)))
    }

    /// Runs `work` in the background.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<JoinHandle<()>> {
        self.0.as_ref().map(|runtime| runtime.spawn(work))
    }

    /// For a client that runs tasks of its own.
    #[cfg(feature = "hdfs")]
    pub(crate) fn handle(&self) -> Option<tokio::runtime::Handle> {
        self.0.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // The last store may go on one of the runtime's own threads, which cannot wait for
            // itself.
            runtime.shutdown_background();
        }
    }
}

/// Ends a task when nobody waits for it any more.
#[derive(Debug)]
struct AbortOnDrop(Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Whether a request that is cut short may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Change,
}

/// Where a store's requests run.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub(crate) env: Env,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) gate: Arc<Gate>,
}

impl Tasks {
    /// On the process's runtime, so many at once.
    pub(crate) fn new(env: &Env, in_flight_max: usize) -> Result<Tasks> {
        Ok(Tasks { env: env.clone(), runtime: Runtime::shared()?, gate: Arc::new(Gate::new(in_flight_max)) })
    }

    /// Runs a request's work when its turn comes, up to its deadline.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        request: Request,
        doing: &str,
        effect: Effect,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let env = &self.env;
        begin(env, request, doing).await?;
        let place = within(env, request, doing, Box::pin(self.gate.enter(request.priority))).await?;
        let (completer, waiting) = completion();
        let task = self.runtime.spawn(async move {
            let result = work.await;
            drop(place);
            completer.complete(result);
        });
        // A read that nobody waits for is not made; a change goes on, and its caller does not know.
        let _cancel =
            (effect == Effect::Nothing).then(|| AbortOnDrop(task.as_ref().map(JoinHandle::abort_handle)));
        let waited = within(env, request, doing, Box::pin(waiting)).await;
        match (waited, effect) {
            (Ok(Some(result)), _) => result,
            (Ok(None), Effect::Nothing) => {
                Err(Error::new(ErrorKind::Closed, format!("the runtime ended while {doing}")))
            }
            (Ok(None), Effect::Change) => Err(unknown(doing, "the runtime ended")),
            (Err(error), Effect::Nothing) => Err(error),
            (Err(_), Effect::Change) => Err(unknown(doing, "the deadline passed")),
        }
    }
}

fn unknown(doing: &str, why: &str) -> Error {
    Error::new(ErrorKind::OutcomeUnknown, format!("{why} while {doing}; it may still take effect"))
        .advice("read the name to find out what holds it")
}

/// Attempts at one request, with growing pauses.
pub(crate) struct Attempts {
    env: Env,
    made: u32,
    /// Up to when there are more of them than a few.
    until: Option<Instant>,
}

impl Attempts {
    /// A few, for about a second: somebody above goes on.
    pub(crate) fn new(env: &Env) -> Attempts {
        Attempts { env: env.clone(), made: 0, until: None }
    }

    /// A few, and as many more as fit the time that requests to remote stores are made again for:
    /// nobody above goes on.
    #[cfg(feature = "cloud")]
    pub(crate) fn persistent(env: &Env) -> Attempts {
        Attempts { until: Some(env.now() + REMOTE_RETRY_TIME_MAX), ..Attempts::new(env) }
    }

    /// Whether nobody above goes on.
    #[cfg(feature = "cloud")]
    pub(crate) fn are_persistent(&self) -> bool {
        self.until.is_some()
    }

    /// Whether one was made again.
    pub(crate) fn any(&self) -> bool {
        self.made > 0
    }

    /// Waits before another attempt; `false` when there were enough. The pause is between a half
    /// and the whole of twice the one before.
    pub(crate) async fn again(&mut self) -> bool {
        if self.made >= ATTEMPTS_MAX && self.until.is_none_or(|until| self.env.now() >= until) {
            return false;
        }
        let half = PAUSE_MIN * (1 << self.made.min(DOUBLINGS_MAX)) / 2;
        self.made += 1;
        let chance = self.env.random_u64() % u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        tokio::time::sleep(half + Duration::from_nanos(chance)).await;
        true
    }
}
