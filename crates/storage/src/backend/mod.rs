//! Stores that keep bytes themselves. What only wraps another store is a [`crate::layer`].

#[cfg(feature = "cloud")]
pub mod cloud;
pub(crate) mod handles;
#[cfg(feature = "hdfs")]
pub mod hdfs;
pub mod local;
pub mod local_log;
pub mod memory;
pub mod object_log;
#[cfg(any(feature = "cloud", feature = "hdfs"))]
pub(crate) mod remote;

use std::sync::Arc;
use std::task::Poll;

use tombolo_env::{BoxFuture, Env};

use self::memory::MemoryStores;
use crate::{Error, ErrorKind, Registry, Request, Result};

impl Registry {
    /// Knows `file` and `mem`, and `objects`, which keeps a log as objects of the database's own
    /// store; with the cargo feature `cloud` also `s3`, `gs` and `az`, with the feature `hdfs` also
    /// `hdfs`.
    ///
    /// In the real world all such registries of a process see the same `mem://` stores; in a
    /// simulated world, where many worlds share a process, only clones of one registry do: keep it
    /// across simulated restarts if `mem://` is to outlive them.
    pub fn with_defaults() -> Registry {
        let mut registry = Registry::empty();
        let own = Arc::new(MemoryStores::default());
        let own_for_logs = Arc::clone(&own);
        let stores = |env: &Env, own: &Arc<MemoryStores>| {
            if env.is_simulated() { Arc::clone(own) } else { MemoryStores::of_process() }
        };
        registry.register_object_store(
            "mem",
            Arc::new(move |env, uri| memory::open_object_store(env, uri, &stores(env, &own))),
        );
        registry.register_log_store(
            "mem",
            Arc::new(move |env, uri, _| memory::open_log_store(env, uri, &stores(env, &own_for_logs))),
        );
        local::register(&mut registry);
        local_log::register(&mut registry);
        object_log::register(&mut registry);
        #[cfg(feature = "cloud")]
        cloud::register(&mut registry);
        #[cfg(feature = "hdfs")]
        hdfs::register(&mut registry);
        registry
    }
}

/// Waits for `work`, which changes nothing, but not beyond the request's deadline.
pub(crate) async fn within<T>(
    env: &Env,
    request: Request,
    doing: &str,
    mut work: BoxFuture<'_, T>,
) -> Result<T> {
    let Some(deadline) = request.deadline else { return Ok(work.await) };
    let mut passed: Option<BoxFuture<'static, ()>> = None;
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        // A timer is set only where the answer is not there at once.
        let passed = passed.get_or_insert_with(|| env.sleep_until(deadline));
        passed.as_mut().poll(context).map(|()| {
            Err(Error::new(ErrorKind::DeadlineExceeded, format!("the deadline passed before {doing}")))
        })
    })
    .await
}

/// Where every request begins: lets others run in a simulation, and turns back what comes too late.
pub(crate) async fn begin(env: &Env, request: Request, doing: &str) -> Result<()> {
    env.yield_now().await;
    match request.deadline {
        Some(deadline) if env.now() >= deadline => Err(Error::new(
            ErrorKind::DeadlineExceeded,
            format!("the deadline passed before {doing} began; nothing took effect"),
        )),
        _ => Ok(()),
    }
}

/// In a walk over directories: whether names that begin with `name`, a directory's, which ends in
/// `/`, can match a list's prefix and lie behind `after`; of an object's name, whether it does.
pub(crate) fn may_match(name: &str, prefix: &str, after: Option<&str>) -> bool {
    match name.strip_suffix('/') {
        None => name.starts_with(prefix) && after.is_none_or(|after| name > after),
        Some(_) => {
            (name.starts_with(prefix) || prefix.starts_with(name))
                && after.is_none_or(|after| name > after || after.starts_with(name))
        }
    }
}
