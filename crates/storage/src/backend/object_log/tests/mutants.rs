//! Every sentence of rule 10 taken out in turn: the checkers report a violation with it, and none
//! without.

use super::harness::contest;
use super::takeover::{
    confirmed_behind_a_slot_that_was_freed, ends_with_data_behind_the_seal, followed_over_what_was_trimmed,
    takeover_with_a_hole,
};
use crate::ErrorKind;
use crate::mutant::{Mutant, enable};

/// Whether a contest of some seed goes wrong with `mutant`. Without it none does: `takeover` runs
/// the same seeds.
fn assert_caught(mutant: Mutant) {
    let guard = enable(mutant);
    let caught = (0..150).find_map(|seed| contest(seed).err());
    drop(guard);
    assert!(caught.is_some(), "{mutant:?} was not caught");
}

#[test]
fn a_log_that_is_not_sealed() {
    assert_caught(Mutant::LogObjectNotSealed);
}

#[test]
fn a_slot_that_is_not_read_again_after_the_seal() {
    assert_caught(Mutant::LogObjectSealNotReadAgain);
}

#[test]
fn a_walk_past_the_first_seal() {
    let _guard = enable(Mutant::LogObjectReadsPastSeal);
    let ends = ends_with_data_behind_the_seal();
    assert!(!matches!(ends, Ok((first, second)) if first == second), "not caught: {ends:?}");
}

#[test]
fn a_seal_deleted_with_its_log() {
    assert_caught(Mutant::LogObjectSealDeleted);
}

#[test]
fn a_taken_slot_believed_unseen() {
    assert_caught(Mutant::LogObjectExistsTakenAsHeld);
}

#[test]
fn an_unknown_put_believed() {
    assert_caught(Mutant::LogObjectUnknownTakenAsHeld);
}

#[test]
fn acknowledgements_out_of_order() {
    assert_caught(Mutant::LogObjectAcknowledgesOutOfOrder);
}

#[test]
fn a_hole_taken_for_the_end() {
    let _guard = enable(Mutant::LogObjectGapIsAlwaysEnd);
    let outcome = takeover_with_a_hole(9, 3);
    assert!(
        !matches!(&outcome, Err(error) if error.kind() == ErrorKind::Corrupt),
        "the hole was noticed: {outcome:?}"
    );
}

#[test]
fn an_empty_slot_taken_for_proof_that_nobody_sealed() {
    let _guard = enable(Mutant::LogObjectConfirmStopsAtGap);
    assert_eq!(
        confirmed_behind_a_slot_that_was_freed().map_err(|error| error.kind()),
        Ok(()),
        "it was noticed"
    );
}

#[test]
fn a_slot_that_was_trimmed_taken_for_the_end() {
    let _guard = enable(Mutant::LogObjectTrimTakenForEnd);
    assert_eq!(followed_over_what_was_trimmed().map_err(|error| error.kind()), Ok(()), "it was noticed");
}
