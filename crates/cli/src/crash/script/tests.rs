use super::*;

#[test]
fn a_batch_is_a_function_of_its_place() {
    assert_eq!(batch(KEYS, 1, 2, 0, 3), batch(KEYS, 1, 2, 0, 3));
    for other in
        [batch(KEYS, 2, 2, 0, 3), batch(KEYS, 1, 3, 0, 3), batch(KEYS, 1, 2, 1, 3), batch(KEYS, 1, 2, 0, 4)]
    {
        assert_ne!(batch(KEYS, 1, 2, 0, 3), other);
    }
}

#[test]
fn batches_have_everything_in_them() {
    let batches: Vec<_> = (1..500).map(|number| batch(KEYS, 7, 1, 1, number)).collect();
    let writes = || batches.iter().flat_map(|batch| &batch.writes);
    assert!(writes().any(|write| write.value.is_none()));
    assert!(writes().any(|write| write.value.as_ref().is_some_and(|value| value.len() > 8192)));
    assert!(writes().any(|write| write.keyspace == 1));
    assert!(batches.iter().any(|batch| batch.durability == Durability::Accepted));
    assert!(writes().all(|write| write.key[0] == 1));
}

#[test]
fn a_difference_is_named() {
    let mut state = State::default();
    state.apply(&batch(KEYS, 1, 1, 0, 1));
    assert_eq!(state.difference(&state.clone()), None);
    let mut other = state.clone();
    other.apply(&batch(KEYS, 1, 1, 0, 2));
    assert!(state.difference(&other).is_some());
    assert!(other.difference(&state).is_some());
    // The marker alone tells two states apart.
    let mut marked = state.clone();
    marked.set(0, &marker_key(0), Some(&9u64.to_be_bytes()));
    assert_eq!((state.marker(), marked.marker()), (1, 9));
    assert!(state.difference(&marked).unwrap().1.contains("another content"));
}

#[test]
fn a_state_is_what_was_set_last() {
    let mut state = State::default();
    state.set(1, b"b", Some(b"one"));
    state.set(1, b"c", Some(b"two"));
    state.set(1, b"b", Some(b"six"));
    assert_eq!((state.get(1, b"b"), state.get(0, b"b")), (Some(Known::of(b"six")), None));
    assert_ne!(Known::of(b"six"), Known::of(b"one"));
    assert_eq!(state.range(1, b"b", b"c").collect::<Vec<_>>(), [(&b"b"[..], Known::of(b"six"))]);
    state.set(1, b"b", None);
    assert_eq!(state.get(1, b"b"), None);
}
