//! How many blocks one operation asked for, where somebody records it.
//!
//! A block that is asked for is counted for the thread. An operation that is recorded has a
//! [`Count`], and takes what its thread counted while the operation's work was polled there.
//! Without one, nobody looks at what the thread counts.
//!
//! Invariant: a count is the thread's only within a call of [`Count::within`], also when that ends
//! by a panic. What belongs to another operation runs [`outside`] of it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tombolo_env::BoxFuture;

/// Blocks that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Those that were read and taken apart.
    pub(crate) read: u32,
    /// Those that the cache had.
    pub(crate) hit: u32,
}

thread_local! {
    static ASKED: Cell<Blocks> = const { Cell::new(Blocks { read: 0, hit: 0 }) };
    static COUNT: RefCell<Option<Arc<Count>>> = const { RefCell::new(None) };
}

/// The cache had a block.
#[inline]
pub(crate) fn hit() {
    let asked = ASKED.get();
    ASKED.set(Blocks { hit: asked.hit.wrapping_add(1), ..asked });
}

/// A block was read.
#[inline]
pub(crate) fn read() {
    let asked = ASKED.get();
    ASKED.set(Blocks { read: asked.read.wrapping_add(1), ..asked });
}

/// What one operation asked for until now.
#[derive(Debug, Default)]
pub(crate) struct Count {
    read: AtomicU32,
    hit: AtomicU32,
}

/// Puts back what was the thread's, and gives the count what came.
struct Restore<'a> {
    count: Option<&'a Count>,
    before: (Blocks, Option<Arc<Count>>),
}

impl Restore<'_> {
    fn begin(count: Option<&Arc<Count>>) -> Restore<'_> {
        let before = (ASKED.replace(Blocks::default()), COUNT.replace(count.cloned()));
        Restore { count: count.map(|count| &**count), before }
    }
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        let asked = ASKED.replace(self.before.0);
        COUNT.replace(self.before.1.take());
        if let Some(count) = self.count {
            count.read.fetch_add(asked.read, Ordering::Relaxed);
            count.hit.fetch_add(asked.hit, Ordering::Relaxed);
        }
    }
}

impl Count {
    /// Runs `work` of the operation.
    pub(crate) fn within<R>(self: &Arc<Count>, work: impl FnOnce() -> R) -> R {
        let _restore = Restore::begin(Some(self));
        work()
    }

    /// Polls `work` of the operation.
    pub(crate) fn over<'a, T: Send + 'a>(self: Arc<Count>, mut work: BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        Box::pin(std::future::poll_fn(move |context| self.within(|| work.as_mut().poll(context))))
    }

    pub(crate) fn get(&self) -> Blocks {
        Blocks { read: self.read.load(Ordering::Relaxed), hit: self.hit.load(Ordering::Relaxed) }
    }
}

/// The count of the operation that this thread works at, if it is recorded.
pub(crate) fn count() -> Option<Arc<Count>> {
    COUNT.with_borrow(Clone::clone)
}

/// Runs `work` of another operation than the one that this thread works at.
pub(crate) fn outside<R>(work: impl FnOnce() -> R) -> R {
    let _restore = Restore::begin(None);
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_counts_what_it_asked_for_and_nothing_of_others() {
        let (outer, inner) = (Arc::new(Count::default()), Arc::new(Count::default()));
        hit();
        outer.within(|| {
            hit();
            read();
            inner.within(|| (0..3).for_each(|_| hit()));
            outside(|| {
                assert!(count().is_none());
                read();
            });
            assert!(count().is_some_and(|count| Arc::ptr_eq(&count, &outer)));
            hit();
        });
        assert_eq!(outer.get(), Blocks { read: 1, hit: 2 });
        assert_eq!(inner.get(), Blocks { read: 0, hit: 3 });
        assert!(count().is_none());
    }
}
