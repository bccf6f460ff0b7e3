use super::*;

const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(5);

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn reader(beat: u64) -> Seen {
    Seen { id: 1, lease: Some(LEASE), beat }
}

/// A heartbeat that moves keeps a pin for ever; one that stands still for lease and margin, on the
/// deleter's clock, does not.
#[test]
fn expires_only_after_standing_still() {
    let mut watch = LeaseWatch::default();
    assert!(
        watch.observe(at(1000), at(1001), MARGIN, &[reader(1)]).is_empty(),
        "first seen: its age is not known"
    );
    assert!(watch.observe(at(1035), at(1036), MARGIN, &[reader(1)]).is_empty());
    assert!(watch.observe(at(1035), at(1036), MARGIN, &[reader(2)]).is_empty(), "it moved");
    assert!(watch.observe(at(1070), at(1071), MARGIN, &[reader(2)]).is_empty());
    assert_eq!(watch.observe(at(1071), at(1072), MARGIN, &[reader(2)]), [1]);
}

/// The next heartbeat is put before the last one is deleted: a list that was put together from
/// several moments may show neither, also twice in a row, and says only that somebody is there.
#[test]
fn a_heartbeat_that_a_list_misses_is_one_that_moves() {
    let mut watch = LeaseWatch::default();
    assert!(watch.observe(at(1000), at(1001), MARGIN, &[reader(7)]).is_empty());
    assert!(watch.observe(at(1040), at(1041), MARGIN, &[reader(0)]).is_empty());
    assert!(watch.observe(at(1080), at(1081), MARGIN, &[reader(0)]).is_empty());
    assert!(
        watch.observe(at(1090), at(1091), MARGIN, &[reader(7)]).is_empty(),
        "it was missed, and is there still"
    );
    assert_eq!(watch.observe(at(1130), at(1131), MARGIN, &[reader(7)]), [1]);
}

/// A lasting pin never expires.
#[test]
fn lasting_pins_do_not_expire() {
    let mut watch = LeaseWatch::default();
    let pin = Seen { id: 2, lease: None, beat: 0 };
    for seconds in [0, 10, 1_000_000] {
        assert!(watch.observe(at(seconds), at(seconds), MARGIN, &[pin]).is_empty());
    }
}

/// When the deleter takes a lease for expired, the reader's side has ended: over all moments of a
/// heartbeat, of its landing, of the list that first shows it, and of the list after.
#[test]
fn the_deleter_expires_after_the_reader_has_given_up() {
    for put_began in 0..4u64 {
        for put_ended in put_began..7 {
            for landed in put_began..=put_ended {
                for list_ended in landed..9 {
                    for list_began in 0..=list_ended {
                        for second_list in list_ended..45 {
                            let mut lease = Lease::new(LEASE, at(0));
                            assert!(lease.renewed(at(put_began), at(put_ended)));
                            let mut watch = LeaseWatch::default();
                            watch.observe(at(list_began), at(list_ended), Duration::ZERO, &[reader(1)]);
                            let expired =
                                watch.observe(at(second_list), at(second_list), Duration::ZERO, &[reader(1)]);
                            assert!(expired.is_empty() || !lease.is_valid(at(second_list)));
                        }
                    }
                }
            }
        }
    }
}

/// A heartbeat that lands too late does not bring a lease back.
#[test]
fn a_late_heartbeat_renews_nothing() {
    let mut lease = Lease::new(LEASE, at(0));
    assert!(lease.renewed(at(10), at(20)));
    assert!(lease.is_valid(at(39)) && !lease.is_valid(at(40)));
    assert_eq!(lease.next_beat(), at(20));
    assert!(!lease.renewed(at(39), at(40)));
    assert!(!lease.is_valid(at(41)));
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use tombolo_storage::mutant::{enable, notices};

    /// Rule 13: a heartbeat counts from its beginning, a list that shows it from its end, and a
    /// margin is left for the rates of clocks.
    #[test]
    fn spans_that_are_counted_from_the_wrong_end_are_caught() {
        notices(Mutant::LeaseCountedFromLanding, the_deleter_expires_after_the_reader_has_given_up);
        notices(Mutant::LeaseTakesMissedBeat, a_heartbeat_that_a_list_misses_is_one_that_moves);
        notices(Mutant::LeaseCountedFromListBegin, the_deleter_expires_after_the_reader_has_given_up);
        notices(Mutant::LeaseWithoutMargin, expires_only_after_standing_still);
    }

    /// Rule 13 without the deleter's own clock: a pin that was just seen counts as old.
    #[test]
    fn lease_by_wall_clock_is_caught() {
        let _guard = enable(Mutant::LeaseByWallClock);
        let lease = Lease::new(LEASE, at(1000));
        let expired = LeaseWatch::default().observe(at(1001), at(1001), MARGIN, &[reader(1)]);
        assert!(!expired.is_empty() && lease.is_valid(at(1001)), "a valid lease is taken for expired");
    }

    /// Rule 13 with leases on lasting pins.
    #[test]
    fn expiring_lasting_pins_is_caught() {
        let _guard = enable(Mutant::LeaseExpiresLastingPins);
        let mut watch = LeaseWatch::default();
        let pin = Seen { id: 2, lease: None, beat: 0 };
        watch.observe(at(0), at(0), MARGIN, &[pin]);
        assert!(!watch.observe(at(1_000_000), at(1_000_000), MARGIN, &[pin]).is_empty());
    }
}
