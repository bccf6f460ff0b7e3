//! Each rule taken out is noticed by a scenario, and how it is noticed is made small.

use tombolo_simulator::mutants::{self, Hunt};
use tombolo_simulator::scenario;
use tombolo_simulator::shrink::{self, Bounds};
use tombolo_storage::mutant::Mutant;

/// Every other rule, from the first or the second on: two tests, for two cores.
fn each_rule_taken_out_is_noticed(first: usize) {
    let hunts = mutants::ALL.iter().skip(first).step_by(2);
    let survived: Vec<_> = hunts.filter(|hunt| hunt.run().is_none()).collect();
    assert!(survived.is_empty(), "survived: {survived:?}");
}

#[test]
fn each_rule_taken_out_is_noticed_first_half() {
    each_rule_taken_out_is_noticed(0);
}

#[test]
fn each_rule_taken_out_is_noticed_second_half() {
    each_rule_taken_out_is_noticed(1);
}

/// The history that notices a mutant shrinks to so many choices of those that were found, and fails
/// in the same way when it is played from the text of its tape.
fn shrinks(mutant: Mutant, choices_max: usize, bounds: Bounds) {
    let hunt: Hunt = *mutants::ALL.iter().find(|hunt| hunt.mutant == mutant).expect("it is hunted");
    let scenario = scenario::by_name(hunt.scenario).expect("it is there");
    let (_, found) = hunt.run().expect("it is caught");
    let _out = hunt.take_out();
    let shrunk = shrink::shrink(&scenario, found.seed, bounds).expect("it fails again");
    assert!(
        shrunk.choices <= choices_max,
        "{} of {} choices are left:\n{}",
        shrunk.choices,
        shrunk.choices_found,
        shrunk.failure
    );
    assert_eq!(shrunk.failure.class(), found.class());
    let text = shrunk.failure.tape.as_ref().expect("it has a tape").to_string();
    let again =
        shrink::replay(&scenario, found.seed, &text.parse().expect("it says a tape")).expect_err("it fails");
    assert_eq!((again.what, again.steps.len()), (shrunk.failure.what, shrunk.failure.steps.len()));
    assert!(!again.steps.is_empty());
}

#[test]
fn a_history_of_the_protocol_shrinks() {
    shrinks(Mutant::SegmentTakesShortest, 30, Bounds { runs: 600, ..Bounds::default() });
}

#[test]
fn a_history_of_the_whole_engine_shrinks() {
    shrinks(Mutant::LogIgnoreRecordedSeal, 30, Bounds { runs: 150, ..Bounds::default() });
}
