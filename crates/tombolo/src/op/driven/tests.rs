use std::sync::atomic::{AtomicBool, Ordering};

use tombolo_env::{Completer, completion};

use super::super::Op;
use super::*;

/// A read that ends with what its completer is given, and whether it has begun.
fn read(env: &Env) -> (Driven<u32>, Completer<u32>, Arc<AtomicBool>) {
    let (completer, completion) = completion();
    let has_begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&has_begun);
    let work = Box::pin(async move {
        begins.store(true, Ordering::Relaxed);
        completion.await.map_or_else(ended_without_result, Ok)
    });
    (Driven::new(env, work), completer, has_begun)
}

fn begun(flags: &[&Arc<AtomicBool>]) -> Vec<bool> {
    flags.iter().map(|flag| flag.load(Ordering::Relaxed)).collect()
}

#[test]
fn a_read_begins_with_the_next_one_or_when_somebody_waits() {
    let env = Env::real();
    let (mut first, tell_first, first_begun) = read(&env);
    let (mut second, tell_second, second_begun) = read(&env);
    assert_eq!(begun(&[&first_begun, &second_begun]), [true, false]);
    let (third, tell_third, third_begun) = read(&env);
    assert_eq!(begun(&[&second_begun, &third_begun]), [true, false]);
    assert!(first.try_take().is_none() && second.try_take().is_none());
    tell_second.complete(2);
    tell_third.complete(3);
    assert_eq!(second.try_take().unwrap().unwrap(), 2);
    assert_eq!(third.wait().unwrap(), 3);
    assert!(first.try_take().is_none());
    tell_first.complete(1);
    assert_eq!(first.wait().unwrap(), 1);
}

#[test]
fn a_read_is_taken_once_and_goes_with_its_operation() {
    let env = Env::real();
    let (mut read_once, tell, _) = read(&env);
    tell.complete(7);
    assert_eq!(read_once.try_take().unwrap().unwrap(), 7);
    assert!(read_once.wait().is_err());
    // One that has ended before anybody asked, as the next one had it begin.
    let (ended, tell, _) = read(&env);
    tell.complete(8);
    let (dropped, tell_dropped, has_begun) = read(&env);
    assert_eq!(ended.wait().unwrap(), 8);
    drop(dropped);
    assert!(tell_dropped.is_abandoned());
    drop(read(&env));
    assert_eq!(begun(&[&has_begun]), [false], "nothing begins that was dropped");
}

#[test]
fn a_read_that_another_has_begin_does_not_get_its_deadline() {
    let env = Env::real();
    let read = |limit| {
        let start = || {
            let work = async { Ok(deadline::current().is_some()) };
            Op::read(&env, true, "get", work)
        };
        Op::limited(deadline::Limit(limit), &env, "get", start)
    };
    let hour = Some(std::time::Duration::from_secs(3600));
    let (unlimited, limited) = (read(None), read(hour));
    let last = read(None);
    assert!(!unlimited.wait().unwrap(), "it has the deadline of the read that had it begin");
    assert!(limited.wait().unwrap() && !last.wait().unwrap());
}
