//! The group alone: who leads, who is woken, and that nobody is forgotten.

use super::*;
use crate::{Error, ErrorKind};

fn offset(byte: u32) -> LogOffset {
    LogOffset::new(1, byte)
}

#[test]
fn the_first_leads_and_the_next_group_is_led_by_a_waiting_thread() {
    let mut group = Group::default();
    assert!(matches!(group.join_thread(offset(10)), Joined::Lead));
    let Joined::Wait(mut first) = group.join_thread(offset(20)) else { panic!("two leaders") };
    let (mut ticket, lead) = group.join_ticket(offset(15));
    assert!(!lead);
    let Joined::Wait(mut second) = group.join_thread(offset(30)) else { panic!("two leaders") };
    let (finished, next) = group.round_ended(offset(15), None, true);
    assert_eq!(next, Next::HandedOver);
    finished.wake();
    assert!(matches!(ticket.try_take(), Some(Ok(()))));
    let led = [first.try_take(), second.try_take()]
        .into_iter()
        .flatten()
        .filter(|wake| matches!(wake, Wake::Lead))
        .count();
    assert_eq!(led, 1, "exactly one thread goes on leading");
    assert!(!group.try_lead());
    let (finished, next) = group.round_ended(offset(30), None, true);
    finished.wake();
    assert_eq!(next, Next::Rest);
    assert!(group.try_lead(), "after the last waiter the lead is free");
}

#[test]
fn a_task_leads_on_while_tickets_wait() {
    let mut group = Group::default();
    let (mut first, lead) = group.join_ticket(offset(10));
    assert!(lead);
    let (mut second, lead) = group.join_ticket(offset(20));
    assert!(!lead);
    let (finished, next) = group.round_ended(offset(10), None, false);
    finished.wake();
    assert_eq!(next, Next::LeadOn);
    assert!(matches!(first.try_take(), Some(Ok(()))));
    assert!(second.try_take().is_none());
    let (finished, next) = group.round_ended(offset(20), None, false);
    finished.wake();
    assert_eq!(next, Next::Rest);
    assert!(matches!(second.try_take(), Some(Ok(()))));
}

#[test]
fn a_failure_answers_everybody() {
    let mut group = Group::default();
    assert!(matches!(group.join_thread(offset(10)), Joined::Lead));
    let (mut ticket, _) = group.join_ticket(offset(40));
    let Joined::Wait(mut thread) = group.join_thread(offset(50)) else { panic!("two leaders") };
    let error = Error::new(ErrorKind::OutcomeUnknown, "the disk fails");
    let (finished, next) = group.round_ended(offset(5), Some(&error), true);
    finished.wake();
    assert_eq!(next, Next::Rest);
    assert!(matches!(ticket.try_take(), Some(Err(_))));
    assert!(matches!(thread.try_take(), Some(Wake::Done(Err(_)))));
}

#[test]
fn those_that_a_round_let_go_are_looked_for_and_less_often_when_they_stay_away() {
    let mut group = Group::default();
    assert!(group.try_lead());
    assert_eq!(group.begin_gathering(0), 0, "nobody waits, and nobody has");
    let round = |group: &mut Group, byte| {
        let (finished, next) = group.round_ended(offset(byte), None, true);
        finished.wake();
        assert_eq!(next, Next::Rest);
        assert!(group.try_lead());
    };
    let joined: Vec<_> = (1..4).map(|byte| group.join_thread(offset(byte))).collect();
    round(&mut group, 10);
    assert_eq!(group.begin_gathering(1), 3);
    let joined_again: Vec<_> = (11..13).map(|byte| group.join_thread(offset(byte))).collect();
    assert_eq!(group.missing(1), 1);
    group.end_gathering(3, 1);
    round(&mut group, 20);
    assert_eq!(group.begin_gathering(1), 2, "most came, so that it is worth it again");
    group.end_gathering(2, 1);
    assert_eq!((group.begin_gathering(1), group.begin_gathering(1)), (0, 2), "nobody came");
    group.end_gathering(2, 1);
    assert_eq!([0, 1, 2].map(|_| group.begin_gathering(1)), [0, 0, 2]);
    round(&mut group, 30);
    assert_eq!(group.begin_gathering(1), 0, "one thread alone misses nobody");
    drop((joined, joined_again));
}
