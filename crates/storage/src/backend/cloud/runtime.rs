//! The runtime that requests run on: one of the process, with few threads, ended when the last store goes.

use std::future::Future;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinHandle};

use crate::{Error, Result};

/// Threads that requests run on. They only wait for the network, sign and copy.
pub(super) const THREADS: usize = 2;

/// Threads that look up names: the resolver of the system blocks.
const LOOKUP_THREADS_MAX: usize = 4;

/// Chooses who does the cryptography of TLS, before the first client is made: without it there is none.
pub(super) fn choose_tls() {
    // Fails when another part of the program has chosen already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The runtime of all stores of the cloud in this process.
#[derive(Debug)]
pub(super) struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    /// The process's runtime, started when there is none.
    pub(super) fn shared() -> Result<Arc<Runtime>> {
        static SHARED: Mutex<Weak<Runtime>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        if let Some(runtime) = shared.upgrade() {
            return Ok(runtime);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(LOOKUP_THREADS_MAX)
            .thread_name("tombolo-cloud")
            .enable_all()
            .build()
            .map_err(|error| Error::io(error, "starting the threads of stores of the cloud", "tombolo-cloud"))?;
        let runtime = Arc::new(Runtime(Some(runtime)));
        *shared = Arc::downgrade(&runtime);
        Ok(runtime)
    }

    /// Runs `work` in the background.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<JoinHandle<()>> {
        self.0.as_ref().map(|runtime| runtime.spawn(work))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // The last store may go on one of the runtime's own threads, which cannot wait for itself.
            runtime.shutdown_background();
        }
    }
}

/// Ends a task when nobody waits for it any more.
#[derive(Debug)]
pub(super) struct AbortOnDrop(Option<AbortHandle>);

impl AbortOnDrop {
    pub(super) fn new(task: &Option<JoinHandle<()>>) -> AbortOnDrop {
        AbortOnDrop(task.as_ref().map(JoinHandle::abort_handle))
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
