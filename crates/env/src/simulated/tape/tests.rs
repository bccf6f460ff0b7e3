use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Entry, Name, Stream, Tape, is_playing, note, play};

/// A history of one generator: choices below 10 until one is 0, at most eight, then a value.
fn history(drawn: &[u64]) -> (Vec<u64>, u64) {
    let stream = Stream::open(5, 7);
    let choices =
        drawn.iter().map(|drawn| stream.choose(10, *drawn)).take_while(|choice| *choice > 0).collect();
    (choices, stream.value(99))
}

#[test]
fn without_a_tape_chance_chooses() {
    assert!(!is_playing());
    assert_eq!(history(&[3, 4, 0, 5]), (vec![3, 4], 99));
}

#[test]
fn what_was_chosen_is_chosen_again() {
    let first = play(None, u64::MAX, || history(&[3, 4, 5]));
    assert_eq!(first.outcome, (vec![3, 4, 5], 99));
    let again = play(Some(&first.tape), u64::MAX, || history(&[9, 9, 9]));
    assert_eq!(again.outcome, first.outcome);
    assert_eq!(again.tape, first.tape);
}

#[test]
fn beyond_the_tape_least_happens_and_values_are_fresh() {
    let mut tape = play(None, u64::MAX, || history(&[3, 4, 5])).tape;
    tape.0.values_mut().for_each(|entries| entries.truncate(1));
    let (choices, value) = play(Some(&tape), u64::MAX, || history(&[9, 9, 9])).outcome;
    assert_eq!(choices, [3]);
    assert_ne!(value, 99, "chance has drawn this one elsewhere");
}

#[test]
fn a_choice_that_is_too_large_is_taken_within_its_bound() {
    let name = Name { seed: 5, concern: 7, nth: 0 };
    let tape = Tape([(name, vec![Entry::Choice(23), Entry::Value(14)])].into());
    assert_eq!(play(Some(&tape), u64::MAX, || history(&[9, 9, 9])).outcome.0, [3, 4]);
}

#[test]
fn generators_of_one_seed_are_told_apart_by_their_order() {
    let played = play(None, u64::MAX, || {
        let (first, second) = (Stream::open(1, 1), Stream::open(1, 1));
        (second.choose(10, 2), first.choose(10, 1))
    });
    let text = played.tape.to_string();
    assert_eq!(text, "1.1.0:1;1.1.1:2");
}

#[test]
fn a_history_that_goes_on_for_too_long_is_ended() {
    let played = play(None, 2, || catch_unwind(AssertUnwindSafe(|| history(&[3, 4, 5]))).is_err());
    assert!(played.outcome && played.overran);
    assert_eq!(played.tape.entries(), 2);
    assert!(!is_playing());
}

#[test]
fn what_is_dropped_after_that_may_still_choose() {
    let played = play(None, 2, || {
        let ended = catch_unwind(AssertUnwindSafe(|| history(&[3, 4, 5])));
        (ended.is_err(), history(&[6]).0)
    });
    assert_eq!(played.outcome, (true, vec![6]));
    assert!(played.overran);
}

#[test]
fn a_panic_ends_the_recording() {
    let outcome = catch_unwind(|| play(None, 9, || panic!("of the history")));
    assert!(outcome.is_err());
    assert!(!is_playing());
}

#[test]
fn a_stream_that_outlives_its_history_is_on_no_tape() {
    let stream = play(None, 9, || Stream::open(1, 1)).outcome;
    let played = play(None, 9, || (stream.choose(10, 4), Stream::open(1, 1).choose(10, 5)));
    assert_eq!(played.outcome, (4, 5));
    assert_eq!(played.tape.to_string(), "1.1.0:5");
}

#[test]
fn notes_are_kept_while_a_history_is_played() {
    note(|| unreachable!("nobody listens"));
    assert_eq!(play(None, 9, || note(|| "here".to_owned())).notes, ["here"]);
}

#[test]
fn text_says_a_tape() {
    let entries = [
        Entry::Choice(0),
        Entry::Choice(31),
        Entry::Choice(0),
        Entry::Choice(0),
        Entry::Choice(0),
        Entry::Value(0xABC),
        Entry::Choice(0),
    ];
    let tape = Tape(
        [
            (Name { seed: 16, concern: 2, nth: 0 }, entries.to_vec()),
            (Name { seed: 17, concern: 2, nth: 1 }, Vec::new()),
        ]
        .into(),
    );
    assert_eq!(tape.to_string(), "10.2.0:0,1f,*3,=abc,0;11.2.1:");
    assert_eq!(tape.to_string().parse(), Ok(tape.clone()));
    assert_eq!(tape.trimmed().to_string(), "10.2.0:0,1f,*3,=abc");
}

#[test]
fn text_that_says_none_is_refused() {
    for text in ["x", "1.2:3", "1.2.3:x", "1.2.100000000:1", "1.2.3:*ffffffff"] {
        assert!(text.parse::<Tape>().is_err(), "{text}");
    }
}
