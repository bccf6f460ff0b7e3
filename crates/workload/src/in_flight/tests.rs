use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Ends when it is told to; counts how often it was polled.
struct Told {
    state: Arc<Mutex<(bool, Option<Waker>)>>,
    polls: Arc<AtomicU64>,
}

impl Future for Told {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

#[test]
fn each_is_polled_when_it_says_so_and_told_by_its_number() {
    let (mut flight, polls) = (InFlight::default(), Arc::new(AtomicU64::new(0)));
    let mut told = VecDeque::new();
    for number in 0..5 {
        let state = Arc::new(Mutex::new((false, None)));
        told.push_back((number, Arc::clone(&state)));
        flight.push(number, Told { state, polls: Arc::clone(&polls) });
    }
    let mut context = Context::from_waker(Waker::noop());
    assert!(flight.poll_ended(&mut context).is_pending());
    for round in 5..20 {
        // The last one that was begun ends first.
        let (number, state) = if round % 2 == 0 { told.pop_back() } else { told.pop_front() }.unwrap();
        let waker: Option<Waker> = {
            let mut state = state.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        waker.expect("it was polled").wake();
        assert_eq!(flight.poll_ended(&mut context), Poll::Ready(vec![(number, ())]));
        let state = Arc::new(Mutex::new((false, None)));
        told.push_back((round, Arc::clone(&state)));
        flight.push(round, Told { state, polls: Arc::clone(&polls) });
        assert_eq!(flight.len(), 5);
        assert!(flight.poll_ended(&mut context).is_pending());
    }
    assert_eq!(polls.load(Ordering::Relaxed), 20 + 15, "once when it begins, and once when it is told");
}

#[test]
fn without_any_nothing_is_waited_for() {
    let mut flight: InFlight<std::future::Ready<u8>> = InFlight::default();
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(flight.poll_ended(&mut context), Poll::Ready(vec![]));
    flight.push(7, std::future::ready(3));
    assert_eq!(flight.poll_ended(&mut context), Poll::Ready(vec![(7, 3)]));
    assert!(flight.is_empty());
}
