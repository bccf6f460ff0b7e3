//! Watches over background tasks that others wait for.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;

/// Runs the work of a task. Its panic goes on after `on_panic`, which tells the waiters that the
/// work will never be done: a pool ends a task that panics, and nobody else.
pub(crate) async fn guarded(work: impl Future<Output = ()>, on_panic: impl FnOnce()) {
    let mut work = pin!(work);
    let mut on_panic = Some(on_panic);
    poll_fn(|context| {
        // Nothing of what the work left half done is looked at, but by destructors, which run in
        // any case.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| {
            if let Some(on_panic) = on_panic.take() {
                on_panic();
            }
            resume_unwind(panic)
        })
    })
    .await;
}
