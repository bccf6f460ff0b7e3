//! Cleanup that also runs when a panic unwinds.

use std::fmt;

/// Runs something when a panic unwinds the scope that it is in: others may wait for what will never
/// be done.
pub struct OnPanic<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnPanic<F> {
    /// `run` must not panic itself: the process would end.
    pub fn new(run: F) -> OnPanic<F> {
        OnPanic(Some(run))
    }

    /// Nobody waits any more.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> fmt::Debug for OnPanic<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OnPanic")
    }
}

impl<F: FnOnce()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if let Some(run) = self.0.take().filter(|_| std::thread::panicking()) {
            run();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn it_runs_in_a_panic_and_not_else() {
        let runs = Cell::new(0);
        let count = || runs.set(runs.get() + 1);
        drop(OnPanic::new(count));
        let panicked = |disarm: bool| {
            catch_unwind(AssertUnwindSafe(|| {
                let on_panic = OnPanic::new(count);
                if disarm {
                    on_panic.disarm();
                    panic!("on purpose, too late");
                }
                let _on_panic = on_panic;
                panic!("on purpose");
            }))
        };
        assert!(panicked(true).is_err() && runs.get() == 0);
        assert!(panicked(false).is_err() && runs.get() == 1);
    }
}
