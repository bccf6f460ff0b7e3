use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Timer;
use crate::Env;

/// Notes who was woken, in order.
#[derive(Debug, Default)]
struct Woken {
    names: Mutex<Vec<u32>>,
    more: Condvar,
}

impl Woken {
    fn wait_for(&self, count: usize) -> Vec<u32> {
        let mut names = self.names.lock();
        while names.len() < count {
            self.more.wait(&mut names);
        }
        names.clone()
    }
}

struct Name(u32, Arc<Woken>);

impl Wake for Name {
    fn wake(self: Arc<Self>) {
        self.1.names.lock().push(self.0);
        self.1.more.notify_all();
    }
}

fn poll(sleep: &mut super::Sleep, waker: &Waker) -> Poll<()> {
    std::pin::Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

#[test]
fn sleepers_wake_in_the_order_of_their_moments() {
    let (timer, woken) = (Timer::default(), Arc::new(Woken::default()));
    let begun = Instant::now();
    // The last one asked for is the first to wake: the thread must look again. Equal moments wake
    // in the order of asking.
    let moments = [90, 60, 60, 30].map(|millis| begun + Duration::from_millis(millis));
    let mut sleeps: Vec<_> = moments.iter().map(|moment| timer.sleep_until(*moment)).collect();
    for (name, sleep) in (0..).zip(&mut sleeps) {
        let waker = Waker::from(Arc::new(Name(name, Arc::clone(&woken))));
        assert_eq!(poll(sleep, &waker), Poll::Pending);
    }
    assert_eq!(woken.wait_for(4), [3, 1, 2, 0]);
    for sleep in &mut sleeps {
        assert_eq!(poll(sleep, Waker::noop()), Poll::Ready(()), "woken before its moment");
    }
    assert_eq!(timer.sleeping(), 0);
}

#[test]
fn the_last_waker_counts_and_a_dropped_sleep_is_forgotten() {
    let (timer, woken) = (Timer::default(), Arc::new(Woken::default()));
    let waker = |name| Waker::from(Arc::new(Name(name, Arc::clone(&woken))));
    let mut moved = timer.sleep_until(Instant::now() + Duration::from_millis(20));
    let mut dropped = timer.sleep_until(Instant::now() + Duration::from_secs(3600));
    assert_eq!(poll(&mut moved, &waker(1)), Poll::Pending);
    assert_eq!(poll(&mut dropped, &waker(2)), Poll::Pending);
    assert_eq!(poll(&mut moved, &waker(3)), Poll::Pending);
    assert_eq!(timer.sleeping(), 2);
    drop(dropped);
    assert_eq!(timer.sleeping(), 1);
    assert_eq!(woken.wait_for(1), [3]);
}

#[test]
fn a_sleep_outlives_its_world() {
    let env = Env::real();
    let sleep = env.sleep(Duration::from_millis(5));
    drop(env);
    Env::real().block_on(sleep);
}
