use tombolo_env::simulated::World;

use super::*;

fn name() -> Arc<str> {
    Arc::from("keys")
}

fn key(key: &str) -> Span {
    Span::key(1, &name(), Bytes::copy_from_slice(key.as_bytes()))
}

fn range(from: &str, to: &str) -> Span {
    Span::range(1, &name(), Bound::Included(from.as_bytes()), Bound::Excluded(to.as_bytes()))
}

fn is_held(locks: &Arc<Locks>, owner: u64, span: Span) -> bool {
    matches!(locks.ask(owner, span).unwrap(), Asked::Held)
}

fn waits(locks: &Arc<Locks>, owner: u64, span: Span) -> Waiter {
    match locks.ask(owner, span).unwrap() {
        Asked::Waits(waiter) => waiter,
        Asked::Held => panic!("it was free"),
    }
}

#[test]
fn keys_and_ranges_that_meet_are_not_held_by_two() {
    let locks = Arc::new(Locks::default());
    assert!(is_held(&locks, 1, key("b")) && is_held(&locks, 1, key("b")), "twice is once");
    assert!(is_held(&locks, 2, key("a")) && is_held(&locks, 2, range("c", "e")));
    let mut waiters = Vec::new();
    for (owner, span) in [(2, key("b")), (3, range("a", "b")), (4, key("d")), (5, range("d", "z"))] {
        waiters.push(waits(&locks, owner, span));
    }
    // Keyspaces are apart.
    assert!(is_held(&locks, 6, Span::key(2, &name(), Bytes::from_static(b"b"))));
    let all = Span::range(1, &name(), Bound::Excluded(b"x"), Bound::Unbounded);
    let open = waits(&locks, 7, all);
    drop((waiters, open));
    locks.release(1);
    locks.release(2);
    locks.release(6);
    // It had its turn when the one before it was given up.
    locks.release(7);
    assert!(is_held(&locks, 8, range("a", "z")), "all was given back");
    assert_eq!(locks.waiting(), 0);
}

/// A later request does not pass an earlier one that it meets, not even where it is free.
fn waiters_come_in_their_order() {
    let locks = Arc::new(Locks::default());
    assert!(is_held(&locks, 1, key("a")));
    let mut wide = waits(&locks, 2, range("a", "z"));
    let mut behind = waits(&locks, 3, key("m"));
    assert!(!behind.turn.is_ready() && !wide.turn.is_ready());
    locks.release(1);
    assert_eq!(wide.turn.try_take(), Some(()));
    assert!(!behind.turn.is_ready(), "it came later");
    locks.release(2);
    assert_eq!(behind.turn.try_take(), Some(()));
}

#[test]
fn nobody_is_passed_by() {
    waiters_come_in_their_order();
}

fn a_circle_is_refused() {
    let locks = Arc::new(Locks::default());
    for (owner, span) in [(1, key("a")), (2, key("b")), (3, range("c", "d"))] {
        assert!(is_held(&locks, owner, span));
    }
    let first = waits(&locks, 1, key("b"));
    let second = waits(&locks, 2, key("c"));
    let error = locks.ask(3, key("a")).expect_err("a deadlock");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let told = error.to_string();
    for part in [
        "transaction 3 waits for key \"a\" of keyspace \"keys\", which transaction 1 has",
        "transaction 1 waits for key \"b\" of keyspace \"keys\", which transaction 2 has",
        "transaction 2 waits for key \"c\" of keyspace \"keys\", which transaction 3 has",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // The one that was refused gives up, and the others go on.
    let (mut first, mut second) = (first, second);
    locks.release(3);
    assert_eq!(second.turn.try_take(), Some(()));
    locks.release(2);
    assert_eq!(first.turn.try_take(), Some(()));
}

#[test]
fn the_wait_that_closes_a_circle_is_refused_with_the_circle() {
    a_circle_is_refused();
}

/// Over those who wait before it: 2 waits for 1, and 1 would wait behind 3, which waits for 2.
#[test]
fn a_circle_through_a_queue_is_found() {
    let locks = Arc::new(Locks::default());
    assert!(is_held(&locks, 1, key("a")) && is_held(&locks, 2, key("x")) && is_held(&locks, 4, key("m")));
    let _third = waits(&locks, 3, range("l", "y"));
    let _second = waits(&locks, 2, key("a"));
    let error = locks.ask(1, key("n")).expect_err("3 waits before it for 2, which waits for 1");
    assert!(error.to_string().contains("deadlock"), "{error}");
}

#[test]
fn a_wait_ends_in_time_and_names_the_holder() {
    let world = World::new(1);
    let process = world.process("process");
    let env = process.env();
    let wait = async move {
        let locks = Arc::new(Locks::default());
        assert!(is_held(&locks, 7, key("a")));
        let error = waits(&locks, 8, key("a")).wait(&env, Duration::from_secs(3)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert_eq!(error.finding(), Some("locked by transaction 7"));
        assert_eq!(locks.waiting(), 0, "it waits no more");
        let waiter = waits(&locks, 9, key("a"));
        locks.release(9);
        assert_eq!(waiter.wait(&env, Duration::from_secs(3)).await.unwrap_err().kind(), ErrorKind::Closed);
    };
    process.run(wait).unwrap();
}

#[cfg(feature = "mutants")]
#[test]
fn locks_that_are_given_wrongly_are_noticed() {
    use tombolo_storage::mutant::notices;

    notices(Mutant::LockPassesWaiters, waiters_come_in_their_order);
    notices(Mutant::LockIgnoresCircles, a_circle_is_refused);
}
