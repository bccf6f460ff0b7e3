use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::{Completer, Completion, completion};
use crate::{Env, TaskClass};

/// Counts its wakes.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counter {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll<T>(completion: &mut Completion<T>, counter: &Arc<Counter>) -> Poll<Option<T>> {
    let waker = Waker::from(Arc::clone(counter));
    Pin::new(completion).poll(&mut Context::from_waker(&waker))
}

#[test]
fn only_the_last_waker_is_woken_and_only_once() {
    let (completer, mut result) = completion();
    let (first, last) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    assert!(poll(&mut result, &first).is_pending());
    assert!(poll(&mut result, &last).is_pending());
    assert!(poll(&mut result, &last).is_pending());
    assert!(!result.is_ready());
    completer.complete(1);
    assert_eq!((first.count(), last.count()), (0, 1));
    assert!(result.is_ready());
    assert_eq!(poll(&mut result, &last), Poll::Ready(Some(1)));
}

#[test]
fn whoever_has_dropped_its_side_is_known_and_not_woken() {
    let (completer, mut result) = completion::<u8>();
    let counter = Arc::new(Counter::default());
    assert!(poll(&mut result, &counter).is_pending());
    assert!(!completer.is_abandoned());
    drop(result);
    assert!(completer.is_abandoned());
    drop(completer);
    assert_eq!(counter.count(), 0);
}

#[test]
fn a_dropped_completer_wakes_with_nothing() {
    let (completer, mut result) = completion::<u8>();
    let counter = Arc::new(Counter::default());
    assert!(poll(&mut result, &counter).is_pending());
    drop(completer);
    assert_eq!(counter.count(), 1);
    assert!(result.is_ready());
    assert_eq!(result.try_take(), None);
    assert_eq!(poll(&mut result, &counter), Poll::Ready(None));
}

#[test]
fn nobody_needs_to_wait() {
    let (completer, result) = completion();
    drop(result);
    let value = Arc::new(());
    completer.complete(Arc::clone(&value));
    assert_eq!(Arc::strong_count(&value), 1, "a result that nobody takes is dropped");
}

/// A waker that holds a completer, as the last reference to a task may: dropping it completes
/// something else.
struct Chained {
    completer: Option<Completer<()>>,
    met_the_lock: Arc<AtomicBool>,
}

impl Wake for Chained {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Chained {
    fn drop(&mut self) {
        let Some(completer) = self.completer.take() else { return };
        if completer.0.is_locked() {
            // Completing would wait for ever for the lock that this thread holds.
            self.met_the_lock.store(true, Ordering::Relaxed);
            std::mem::forget(completer);
        }
    }
}

#[test]
fn wakers_are_dropped_outside_the_lock() {
    let (completer, mut result) = completion::<()>();
    let met_the_lock = Arc::new(AtomicBool::new(false));
    let waker = Waker::from(Arc::new(Chained {
        completer: Some(completer),
        met_the_lock: Arc::clone(&met_the_lock),
    }));
    assert!(Pin::new(&mut result).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    // Replacing the waker drops the completer of the same completion, which takes the lock.
    let counter = Arc::new(Counter::default());
    assert!(poll(&mut result, &counter).is_pending());
    assert!(!met_the_lock.load(Ordering::Relaxed), "a waker was dropped under the lock");
    assert_eq!(counter.count(), 1);
    assert_eq!(poll(&mut result, &counter), Poll::Ready(None));
}

proptest! {
    /// Any order of polls, looks, completion and drops agrees with a value that is there or not.
    #[test]
    fn agrees_with_a_model(steps in prop::collection::vec(0u8..5, 0..30), value in any::<u32>()) {
        let (completer, mut result) = completion();
        let mut completer = Some(completer);
        let counter = Arc::new(Counter::default());
        let (mut held, mut closed, mut waiting, mut wakes) = (None, false, false, 0);
        for step in steps {
            match step {
                0 => {
                    let expected = if closed { Poll::Ready(held.take()) } else {
                        waiting = true; Poll::Pending
                    };
                    prop_assert_eq!(poll(&mut result, &counter), expected);
                }
                1 => prop_assert_eq!(result.is_ready(), closed),
                2 => prop_assert_eq!(result.try_take(), held.take()),
                ending => if let Some(completer) = completer.take() {
                    closed = true;
                    wakes += usize::from(std::mem::take(&mut waiting));
                    if ending == 3 {
                        held = Some(value);
                        completer.complete(value);
                    }
                }
            }
            prop_assert_eq!(counter.count(), wakes);
        }
    }
}

#[test]
fn threads_hand_over_every_result() {
    let env = Env::real();
    for round in 0..2000u32 {
        let (completer, result) = completion();
        let task = env.spawn(TaskClass::Foreground, "complete", async move {
            if round % 3 != 0 {
                completer.complete(round);
            }
        });
        let mut result = pin!(result);
        assert_eq!(env.block_on(result.as_mut()), (round % 3 != 0).then_some(round));
        assert_eq!(env.block_on(task), Some(()));
    }
}
