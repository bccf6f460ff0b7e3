//! Background tasks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Which part of the pool a task runs on, so that a long compaction never delays a log sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskClass {
    /// It waits for the network, and never stays in a call of the kernel: one thread runs all of
    /// these and waits for their sockets itself, so that bytes that arrive are worked on without
    /// being handed from thread to thread.
    Network,
    /// Somebody waits for it right now: log syncs, manifest puts, read misses.
    Foreground,
    /// Nobody waits for it, but memory is held until it is done: flush.
    Flush,
    /// Compaction, collection, verification.
    Background,
}

/// A running task. A future of its end: `Some(())` when it finished, `None` when it panicked or was
/// cancelled.
///
/// Dropping it cancels the task at its next scheduling point.
#[must_use = "dropping a task cancels it; say `detach()` to let it go"]
pub struct Task(async_task::FallibleTask<()>);

impl Task {
    /// Wraps a task of one of the executors of this crate.
    pub(crate) fn new(task: async_task::Task<()>) -> Task {
        Task(task.fallible())
    }

    /// Lets the task run on without a handle.
    pub fn detach(self) {
        self.0.detach();
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Task").field("finished", &self.is_finished()).finish()
    }
}

impl Future for Task {
    type Output = Option<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<()>> {
        Pin::new(&mut self.0).poll(context)
    }
}
