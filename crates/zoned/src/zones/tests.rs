use tombolo_storage::{Life, ObjectKind};

use super::*;
use crate::state::Learned;

const CAPACITY: u64 = 1 << 20;

fn zones(count: u32, open_max: u32) -> Zones {
    let zone = Zone { state: ZoneState::Empty, pointer: 0, capacity: CAPACITY };
    Zones::new(&vec![zone; count as usize], &State::default(), 3, (open_max, 0), 5)
}

#[test]
fn a_class_follows_what_was_learned_once_that_is_enough() {
    let sort = sort_of(Placement::new(ObjectKind::Table, Life::Short));
    let mut state = State::default();
    assert_eq!(class_of(&state, sort, CAPACITY), 1, "as its creator said");
    for (samples, mean, class) in [
        (SAMPLES_WANTED - 1, 1 << 40, 1),
        (SAMPLES_WANTED, 0, 0),
        (SAMPLES_WANTED, CAPACITY, 1),
        (SAMPLES_WANTED, 8 * CAPACITY, 2),
        (SAMPLES_WANTED, 64 * CAPACITY, 3),
        (SAMPLES_WANTED, 512 * CAPACITY, 4),
    ] {
        state.learned.insert(sort, Learned { mean, samples });
        assert_eq!(class_of(&state, sort, CAPACITY), class, "{samples} samples of {mean}");
    }
    let forever = sort_of(Placement::new(ObjectKind::Manifest, Life::Forever));
    assert_eq!(class_of(&state, forever, CAPACITY), CLASSES - 1);
}

#[test]
fn classes_have_zones_of_their_own_while_there_are_places() {
    let mut zones = zones(64, 4 + 3);
    let flush = For::Request(Purpose::Flush);
    let chosen = |zones: &mut Zones, class: u8| zones.choose(class, flush, None).expect("a zone").zone;
    let of = [chosen(&mut zones, 1), chosen(&mut zones, 3), chosen(&mut zones, 5)];
    assert_eq!(of, [3, 4, 5]);
    assert_eq!(
        [chosen(&mut zones, 1), chosen(&mut zones, 3), chosen(&mut zones, 5)],
        of,
        "nobody is at them"
    );
    // Without a place: the nearest, rather one that lives longer.
    assert_eq!([chosen(&mut zones, 0), chosen(&mut zones, 2), chosen(&mut zones, 4)], [3, 4, 5]);
    assert_eq!(zones.choose(1, flush, Some(5)).expect("a zone").zone, 5, "where it was before");
}

#[test]
fn free_zones_are_kept_for_those_who_make_room() {
    let mut zones = zones(20, 0);
    let all = zones.free();
    assert_eq!(all, 17);
    let order = [
        For::Moving,
        For::Request(Purpose::Manifest),
        For::Request(Purpose::Compaction),
        For::Request(Purpose::Flush),
    ];
    let kept: Vec<usize> = order.iter().map(|whom| zones.kept_from(*whom)).collect();
    assert!(kept.is_sorted_by(|a, b| a < b), "{kept:?}");
    while zones.take(For::Request(Purpose::Flush), Use::Full).is_some() {}
    assert_eq!(zones.free(), kept[3]);
    for whom in order.iter().rev().skip(1) {
        assert!(zones.take(*whom, Use::Full).is_some(), "{whom:?}");
        while zones.take(*whom, Use::Full).is_some() {}
    }
    assert_eq!(zones.free(), 0);
    zones.kept_for_log = 2;
    assert_eq!(
        zones.kept_from(For::Request(Purpose::Flush)),
        kept[3] + 2,
        "log that was taken in has its zones"
    );
}

#[cfg(feature = "mutants")]
#[test]
fn lives_that_are_ignored_are_noticed() {
    tombolo_storage::mutant::notices(
        Mutant::ZonedIgnoresLife,
        a_class_follows_what_was_learned_once_that_is_enough,
    );
}
