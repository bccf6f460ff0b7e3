use super::*;

fn put(key: &str, value: &str) -> Vec<Change> {
    vec![Change::Put("default".into(), key.into(), value.into())]
}

/// A database with one session that has written a=1 durable, b=2 accepted, c=3 without an answer.
fn three_writes() -> Oracle {
    let mut oracle = Oracle::default();
    let attempt = oracle.attempt();
    let id = oracle.opened(attempt, 1).unwrap();
    oracle.found(id, &State::default()).unwrap();
    let first = oracle.begin(id, put("a", "1"), Durability::Durable).unwrap();
    let second = oracle.begin(id, put("b", "2"), Durability::Accepted).unwrap();
    oracle.begin(id, put("c", "3"), Durability::Accepted).unwrap();
    oracle.end(first, Ok(())).unwrap();
    oracle.end(second, Ok(())).unwrap();
    oracle
}

fn state(changes: &[Vec<Change>]) -> State {
    let mut state = State::default();
    changes.iter().flatten().for_each(|change| state.apply(change));
    state
}

fn finds(mut oracle: Oracle, found: &State) -> Result<Oracle, Violation> {
    let attempt = oracle.attempt();
    let id = oracle.opened(attempt, 2)?;
    oracle.found(id, found)?;
    Ok(oracle)
}

#[test]
fn acknowledged_writes_are_found_and_others_may_be() {
    for kept in 2..=3 {
        let all = [put("a", "1"), put("b", "2"), put("c", "3")];
        assert!(finds(three_writes(), &state(&all[..kept])).is_ok());
    }
}

#[test]
fn an_accepted_write_is_lost_with_the_power_only() {
    let only_durable = state(&[put("a", "1")]);
    assert!(finds(three_writes(), &only_durable).is_err());
    let mut oracle = three_writes();
    oracle.power_lost();
    assert!(finds(oracle, &only_durable).is_ok());
}

#[test]
fn a_lost_durable_write_a_hole_a_wrong_value_and_a_stranger_are_violations() {
    let mut oracle = three_writes();
    oracle.power_lost();
    for found in [
        state(&[]),
        state(&[put("a", "1"), put("c", "3")]),
        state(&[put("a", "2")]),
        state(&[put("a", "1"), put("d", "4")]),
        state(&[put("a", "1"), vec![Change::Create("x".into())]]),
    ] {
        assert!(oracle.survived(SessionId(1), &found).is_err());
    }
}

#[test]
fn what_an_old_epoch_acknowledges_late_must_have_been_found() {
    let all = [put("a", "1"), put("b", "2"), put("c", "3")];
    let third = WriteId { session: SessionId(1), index: 2 };
    let mut oracle = finds(three_writes(), &state(&all[..2])).unwrap();
    assert!(oracle.end(third, Ok(())).is_err());
    let mut oracle = finds(three_writes(), &state(&all)).unwrap();
    oracle.end(third, Ok(())).unwrap();
}

#[test]
fn a_refused_write_must_not_have_been_found() {
    let all = [put("a", "1"), put("b", "2"), put("c", "3")];
    let third = WriteId { session: SessionId(1), index: 2 };
    let mut oracle = finds(three_writes(), &state(&all)).unwrap();
    assert!(oracle.end(third, Err(ErrorKind::Retry)).is_err());
    let mut oracle = finds(three_writes(), &state(&all)).unwrap();
    oracle.end(third, Err(ErrorKind::Fenced)).unwrap();
    let mut oracle = three_writes();
    oracle.end(third, Err(ErrorKind::Retry)).unwrap();
    assert!(finds(oracle, &state(&all)).is_err());
}

#[test]
fn unlogged_writes_survive_by_flush_only_and_in_their_order() {
    let mut oracle = Oracle::default();
    let attempt = oracle.attempt();
    let id = oracle.opened(attempt, 1).unwrap();
    oracle.found(id, &State::default()).unwrap();
    for (key, durability) in
        [("a", Durability::Unlogged), ("b", Durability::Unlogged), ("c", Durability::Durable)]
    {
        let write = oracle.begin(id, put(key, "1"), durability).unwrap();
        oracle.end(write, Ok(())).unwrap();
    }
    assert!(oracle.survived(id, &state(&[put("c", "1")])).is_ok());
    assert!(oracle.survived(id, &state(&[put("a", "1"), put("c", "1")])).is_ok());
    assert!(oracle.survived(id, &state(&[put("b", "1"), put("c", "1")])).is_err());
    oracle.flushed(id, 2).unwrap();
    assert!(oracle.survived(id, &state(&[put("a", "1"), put("c", "1")])).is_err());
    assert!(oracle.survived(id, &state(&[put("a", "1"), put("b", "1"), put("c", "1")])).is_ok());
}

#[test]
fn reads_see_what_was_acknowledged_before_and_nothing_called_after() {
    let mut oracle = three_writes();
    let id = SessionId(1);
    let from = oracle.read_begins(id).unwrap();
    assert_eq!(from, 2);
    let mut view = oracle.view(id, from).unwrap();
    let has = |key: &'static str| move |state: &State| state.get("default", key.as_bytes()).is_some();
    assert!(oracle.narrow(&mut view.clone(), |_| String::new(), |state| !has("b")(state)).is_err());
    oracle.narrow(&mut view, |_| String::new(), has("c")).unwrap();
    // One moment: having seen c, it cannot be gone in the same snapshot.
    assert!(oracle.narrow(&mut view, |_| String::new(), |state| !has("c")(state)).is_err());
}

#[test]
fn a_fenced_session_is_not_confirmed() {
    let oracle = finds(three_writes(), &state(&[put("a", "1"), put("b", "2")])).unwrap();
    assert!(oracle.is_superseded(SessionId(1)) && oracle.is_challenged(SessionId(1)));
    assert!(!oracle.is_superseded(SessionId(2)) && !oracle.is_challenged(SessionId(2)));
    assert!(oracle.confirmed(SessionId(1), true).is_err());
}
