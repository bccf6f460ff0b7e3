use std::time::Duration;

use super::{Judge, Verdict};
use crate::manifest::names::Sign;
use tombolo_env::Instant;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn judge() -> Judge {
    Judge::new(7, at(0), Duration::from_millis(100), Duration::from_secs(10))
}

/// A list that takes 10 ms.
fn look(judge: &mut Judge, ms: u64, newest: Option<(u64, Sign)>) -> Verdict {
    judge.observe(at(ms), at(ms + 10), newest)
}

#[test]
fn a_writer_whose_signs_go_on_lives_and_one_that_falls_silent_is_gone() {
    let mut judge = judge();
    for beat in 1..50 {
        assert_eq!(look(&mut judge, beat * 90, Some((7, Sign::Beat(beat)))), Verdict::Wait);
    }
    let last = 49 * 90 + 10;
    assert_eq!(look(&mut judge, last + 99, Some((7, Sign::Beat(49)))), Verdict::Wait);
    assert_eq!(look(&mut judge, last + 100, Some((7, Sign::Beat(49)))), Verdict::Gone);
    // Its signs may have been deleted since.
    assert_eq!(look(&mut judge, last + 101, None), Verdict::Gone);
}

#[test]
fn a_writer_that_was_never_seen_gets_the_time_to_look_for_who_stands_by() {
    let mut judge = judge();
    assert_eq!(look(&mut judge, 9_999, None), Verdict::Wait);
    assert_eq!(
        look(&mut judge, 10_000, Some((6, Sign::Beat(9)))),
        Verdict::Gone,
        "another's signs are none of its own"
    );
}

#[test]
fn a_writer_that_says_so_is_gone_at_once() {
    let mut judge = judge();
    assert_eq!(look(&mut judge, 10, Some((7, Sign::Beat(1)))), Verdict::Wait);
    assert_eq!(look(&mut judge, 20, Some((7, Sign::Leaving))), Verdict::Leaving);
    assert_eq!(look(&mut judge, 9_000, Some((7, Sign::Leaving))), Verdict::Leaving);
    assert_eq!(look(&mut judge, 9_001, Some((7, Sign::Left))), Verdict::Gone);
    let mut judge = self::judge();
    assert_eq!(look(&mut judge, 20, Some((7, Sign::Leaving))), Verdict::Leaving);
    assert_eq!(look(&mut judge, 10_030, Some((7, Sign::Leaving))), Verdict::Gone, "it died over it");
}

#[test]
fn a_writer_that_takes_back_that_it_leaves_is_watched_as_before() {
    let mut judge = judge();
    assert_eq!(look(&mut judge, 10, Some((7, Sign::Beat(1)))), Verdict::Wait);
    assert_eq!(look(&mut judge, 20, Some((7, Sign::Leaving))), Verdict::Leaving);
    assert_eq!(look(&mut judge, 90, Some((7, Sign::Beat(1)))), Verdict::Wait);
    assert_eq!(look(&mut judge, 190, Some((7, Sign::Beat(2)))), Verdict::Wait);
    assert_eq!(look(&mut judge, 300, Some((7, Sign::Beat(2)))), Verdict::Gone);
    assert_eq!(look(&mut judge, 310, Some((7, Sign::Left))), Verdict::Gone);
    assert_eq!(
        look(&mut judge, 320, Some((7, Sign::Beat(3)))),
        Verdict::Gone,
        "what has left does not come back"
    );
}

#[test]
fn a_successor_is_watched_from_the_moment_that_it_is_known() {
    let mut judge = judge();
    assert_eq!(look(&mut judge, 10, Some((7, Sign::Beat(1)))), Verdict::Wait);
    judge.succeeded(9, at(1_000));
    assert_eq!(look(&mut judge, 5_000, Some((7, Sign::Beat(2)))), Verdict::Wait);
    assert_eq!(look(&mut judge, 5_001, Some((9, Sign::Beat(1)))), Verdict::Wait);
    assert_eq!(look(&mut judge, 5_111, Some((9, Sign::Beat(1)))), Verdict::Gone);
    judge.succeeded(9, at(6_000));
    assert_eq!(
        look(&mut judge, 6_001, Some((9, Sign::Beat(1)))),
        Verdict::Gone,
        "the same epoch is no successor"
    );
}

#[test]
fn silence_of_the_store_is_not_the_writers() {
    let mut judge = judge();
    assert_eq!(look(&mut judge, 10, Some((7, Sign::Beat(1)))), Verdict::Wait);
    judge.heard_nothing(at(500));
    assert_eq!(look(&mut judge, 550, Some((7, Sign::Beat(1)))), Verdict::Wait);
    assert_eq!(look(&mut judge, 600, Some((7, Sign::Beat(1)))), Verdict::Gone);
}

#[test]
fn silence_towards_one_who_was_forgotten_is_no_silence() {
    let mut judge = judge();
    assert_eq!(look(&mut judge, 10, Some((7, Sign::Beat(1)))), Verdict::Wait);
    // It stood still; meanwhile the writer gave signs, took it for dead, and stopped.
    judge.told_anew(at(5_000), Some((7, Sign::Beat(9))));
    assert_eq!(look(&mut judge, 5_500, Some((7, Sign::Beat(9)))), Verdict::Wait);
    assert_eq!(
        look(&mut judge, 14_000, Some((7, Sign::Beat(9)))),
        Verdict::Wait,
        "it may not have looked yet"
    );
    let mut dead = judge.clone();
    assert_eq!(look(&mut dead, 15_000, Some((7, Sign::Beat(9)))), Verdict::Gone);
    assert_eq!(look(&mut judge, 14_010, Some((7, Sign::Beat(10)))), Verdict::Wait);
    assert_eq!(
        look(&mut judge, 14_121, Some((7, Sign::Beat(10)))),
        Verdict::Gone,
        "from here on its silence says something again"
    );
}
