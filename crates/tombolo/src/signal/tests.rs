use super::*;

#[test]
fn subscriptions_that_nobody_waits_for_any_more_take_no_memory() {
    let signal = Signal::default();
    let waiting: Vec<_> = (0..3).map(|_| signal.subscribe()).collect();
    for _ in 0..10_000 {
        drop(signal.subscribe());
    }
    let held = signal.0.lock().waiting.len();
    assert!(held <= 2 * waiting.len() + KEPT_MIN, "{held} subscriptions are held");
    signal.raise();
    assert!(waiting.iter().all(Completion::is_ready), "whoever waits is woken");
}

#[test]
fn whoever_waits_is_woken_however_many_there_are() {
    let signal = Signal::default();
    let waiting: Vec<_> = (0..1000).map(|_| signal.subscribe()).collect();
    signal.raise();
    assert!(waiting.iter().all(Completion::is_ready));
    let next = signal.subscribe();
    assert!(!next.is_ready(), "it waits for the next change");
}
