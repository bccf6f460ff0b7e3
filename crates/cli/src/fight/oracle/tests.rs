use super::*;
use crate::fight::script::batch;

const SEED: u64 = 5;

fn scripted(place: Place) -> Scripted {
    batch(SEED, 0, place)
}

fn place(epoch: u64, number: u64) -> Place {
    Place { epoch, number }
}

/// The state after these epochs, each up to its number.
fn sight(ends: &[(u64, u64)]) -> Sight {
    let mut state = State::default();
    let mut last = Place::default();
    for (epoch, end) in ends {
        for number in 1..=*end {
            last = place(*epoch, number);
            state.apply(&scripted(last));
        }
    }
    Sight { place: last, digest: state.digest() }
}

fn wrote(oracle: &mut Oracle, epoch: u64, announced: u64, acknowledged: u64) {
    (1..=announced).for_each(|number| oracle.announced(epoch, number));
    (1..=acknowledged).for_each(|number| oracle.acknowledged(epoch, number));
}

/// Epoch 3 writes 10 of which 8 are acknowledged and 9 there; 5 writes nothing; 7 writes 4; 9 finds
/// all.
fn fight() -> Oracle {
    let mut oracle = Oracle::default();
    oracle.saw(Looker::Opening(3), sight(&[])).unwrap();
    wrote(&mut oracle, 3, 10, 8);
    oracle.saw(Looker::Opening(5), sight(&[(3, 9)])).unwrap();
    oracle.saw(Looker::Opening(7), sight(&[(3, 9)])).unwrap();
    wrote(&mut oracle, 7, 4, 4);
    oracle.saw(Looker::Reader(1), sight(&[(3, 5)])).unwrap();
    oracle.saw(Looker::Reader(1), sight(&[(3, 9), (7, 2)])).unwrap();
    oracle.saw(Looker::Clone(place(7, 1)), sight(&[(3, 9), (7, 1)])).unwrap();
    oracle
}

fn end(oracle: &mut Oracle, seen: Sight) -> Result<Verdict, String> {
    oracle.saw(Looker::Opening(9), seen)?;
    oracle.judge(scripted)
}

#[test]
fn what_is_right_is_counted() {
    let verdict = end(&mut fight(), sight(&[(3, 9), (7, 4)])).unwrap();
    assert_eq!(verdict, Verdict { acknowledged: 12, surviving: 1, epochs: 2, sights: 3 });
}

#[test]
fn a_lost_acknowledgement_is_noticed() {
    let lost = end(&mut fight(), sight(&[(3, 9), (7, 3)])).unwrap_err();
    assert!(lost.contains("batch 4 of epoch 7 was acknowledged"), "{lost}");
    // Heard late, of an epoch whose end is known long since.
    let mut oracle = fight();
    assert_eq!(oracle.lost_so_far(), None);
    oracle.acknowledged(3, 10);
    assert!(oracle.lost_so_far().unwrap().contains("batch 10 of epoch 3"));
    assert!(
        end(&mut oracle, sight(&[(3, 9), (7, 4)]))
            .unwrap_err()
            .contains("batch 10 of epoch 3 was acknowledged")
    );
}

#[test]
fn a_stale_write_that_appears_is_noticed() {
    let mut oracle = fight();
    oracle.saw(Looker::Opening(8), sight(&[(3, 10)])).unwrap();
    assert!(oracle.judge(scripted).unwrap_err().contains("epoch 8 found batch 10 of epoch 3"));
    // Hidden under later writes: the digest tells.
    let seen = sight(&[(3, 10), (7, 4)]);
    assert!(end(&mut fight(), seen).unwrap_err().contains("something else"));
    // Of the epoch that wrote nothing, as far as its successor saw.
    let mut oracle = fight();
    wrote(&mut oracle, 5, 3, 0);
    assert!(
        end(&mut oracle, sight(&[(3, 9), (5, 3)])).unwrap_err().contains("epoch 9 found batch 3 of epoch 5")
    );
}

#[test]
fn what_was_never_announced_is_noticed() {
    assert!(end(&mut fight(), sight(&[(3, 9), (7, 5)])).unwrap_err().contains("the last one announced"));
}

#[test]
fn half_a_batch_is_noticed() {
    let mut seen = sight(&[(3, 9), (7, 4)]);
    seen.digest ^= 1;
    assert!(end(&mut fight(), seen).unwrap_err().contains("something else"));
}

#[test]
fn a_reader_that_goes_back_or_shows_what_never_was_is_noticed() {
    let whole = sight(&[(3, 9), (7, 4)]);
    let mut oracle = fight();
    oracle.saw(Looker::Reader(1), sight(&[(3, 9), (7, 1)])).unwrap();
    assert!(end(&mut oracle, whole).unwrap_err().contains("reader 1 showed"));
    let mut oracle = fight();
    oracle.saw(Looker::Reader(2), sight(&[(3, 10)])).unwrap();
    assert!(end(&mut oracle, whole).unwrap_err().contains("that epoch ended at 9"));
}

#[test]
fn a_checkpoint_without_what_was_acknowledged_is_noticed() {
    let mut oracle = fight();
    oracle.saw(Looker::Clone(place(7, 2)), sight(&[(3, 9), (7, 1)])).unwrap();
    assert!(end(&mut oracle, sight(&[(3, 9), (7, 4)])).unwrap_err().contains("a checkpoint holds"));
}

#[test]
fn one_epoch_is_one_process() {
    assert!(fight().saw(Looker::Opening(7), sight(&[])).is_err());
}
