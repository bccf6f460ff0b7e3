//! How long an operation may take: known when it starts, to every request that it makes, and to its
//! waiter.
//!
//! `handle with a limit → verb → [`Scope`] with a deadline → requests of the store, shared flights, the wait`.
//! A scope is the thread's while the operation's work is polled, so that requests made deep below
//! carry its deadline, and what they wait for can be named when it passes. Without a limit there is
//! no scope: what memory answers never looks, and a miss looks once.
//!
//! Invariant: a scope is the thread's only within a call of [`Scope::within`], also when that ends
//! by a panic. What belongs to another operation runs [`outside`] of it.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, Instant};
use tombolo_storage::{Error, ErrorKind, Result};

thread_local! {
    static SCOPE: RefCell<Option<Arc<Scope>>> = const { RefCell::new(None) };
}

/// How long each verb of a handle may take; as a rule for ever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

impl Limit {
    /// The scope of a verb that is called now, if it is limited. `what` says it as a noun.
    pub(crate) fn scope(self, env: &Env, what: &'static str) -> Option<Arc<Scope>> {
        self.0.map(|limit| {
            Arc::new(Scope { deadline: env.now() + limit, limit, what, waits_for: Mutex::default() })
        })
    }
}

/// One operation with a deadline.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) deadline: Instant,
    limit: Duration,
    what: &'static str,
    /// What it waits for just now, in words.
    waits_for: Mutex<Option<String>>,
}

/// Puts back what was the thread's scope.
struct Restore(Option<Arc<Scope>>);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.replace(self.0.take());
    }
}

impl Scope {
    /// Notes the awaited work, where nothing that runs in this scope does.
    pub(crate) fn note(&self, waits_for: &'static str) {
        *self.waits_for.lock() = Some(waits_for.to_owned());
    }

    /// Runs `work` in this scope.
    pub(crate) fn within<R>(self: &Arc<Scope>, work: impl FnOnce() -> R) -> R {
        let _restore = Restore(SCOPE.replace(Some(Arc::clone(self))));
        work()
    }

    /// Polls `work` in this scope.
    pub(crate) fn over<'a, T: Send + 'a>(self: Arc<Scope>, mut work: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        Box::pin(std::future::poll_fn(move |context| self.within(|| work.as_mut().poll(context))))
    }

    /// As [`Scope::over`], of work that is dropped when the deadline passes.
    pub(crate) async fn until<T: Send>(
        self: Arc<Scope>,
        env: &Env,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let mut work = pin!(work);
        let mut sleep: Option<BoxFuture<'static, ()>> = None;
        std::future::poll_fn(|context| {
            if let std::task::Poll::Ready(ended) = self.within(|| work.as_mut().poll(context)) {
                return std::task::Poll::Ready(ended);
            }
            let sleep = sleep.get_or_insert_with(|| env.sleep_until(self.deadline));
            sleep.as_mut().poll(context).map(|()| Err(self.passed(None)))
        })
        .await
    }

    /// The error when the deadline has passed; `waits_for` where the operation knows better than
    /// its requests.
    pub(crate) fn passed(&self, waits_for: Option<&str>) -> Error {
        let noted = self.waits_for.lock();
        let waits_for = waits_for.or(noted.as_deref()).unwrap_or("its turn");
        let message =
            format!("the {} waited for {waits_for} when its {:?} had passed", self.what, self.limit);
        Error::new(ErrorKind::DeadlineExceeded, message)
    }
}

/// The deadline of the operation that this thread works at, if it has one.
pub(crate) fn current() -> Option<Instant> {
    SCOPE.with_borrow(|scope| scope.as_ref().map(|scope| scope.deadline))
}

/// The scope of the operation that this thread works at.
pub(crate) fn scope() -> Option<Arc<Scope>> {
    SCOPE.with_borrow(Clone::clone)
}

/// Runs `work` of another operation than the one that this thread works at: without its scope.
pub(crate) fn outside<R>(work: impl FnOnce() -> R) -> R {
    let _restore = Restore(SCOPE.replace(None));
    work()
}

/// Notes what the operation that this thread works at waits for from here on, if anybody may ask.
pub(crate) fn waits_for(what: fmt::Arguments<'_>) {
    SCOPE.with_borrow(|scope| {
        if let Some(scope) = scope {
            *scope.waits_for.lock() = Some(what.to_string());
        }
    });
}
