use super::*;

const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(5);

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn reader(beat: u64) -> Seen {
    Seen { id: 1, lease: Some(LEASE), beat }
}

/// A heartbeat that moves keeps a pin for ever; one that stands still for lease and margin, on the deleter's clock, does not.
#[test]
fn expires_only_after_standing_still() {
    let mut watch = LeaseWatch::default();
    assert!(watch.observe(at(1000), at(1001), MARGIN, &[reader(1)]).is_empty(), "first seen: its age is not known");
    assert!(watch.observe(at(1035), at(1036), MARGIN, &[reader(1)]).is_empty());
    assert!(watch.observe(at(1035), at(1036), MARGIN, &[reader(2)]).is_empty(), "it moved");
    assert!(watch.observe(at(1070), at(1071), MARGIN, &[reader(2)]).is_empty());
    assert_eq!(watch.observe(at(1071), at(1072), MARGIN, &[reader(2)]), [1]);
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

/// When the deleter takes a lease for expired, the reader's side has ended: over all moments of heartbeat, lists and late landing.
#[test]
fn the_deleter_expires_after_the_reader_has_given_up() {
    for put_began in 0..5u64 {
        for put_ended in put_began..8 {
            for first_list in put_ended..10 {
                for second_list in first_list..60 {
                    let lease = Lease::new(LEASE, at(put_began));
                    let mut watch = LeaseWatch::default();
                    watch.observe(at(first_list), at(first_list), Duration::ZERO, &[reader(1)]);
                    let expired = watch.observe(at(second_list), at(second_list), Duration::ZERO, &[reader(1)]);
                    assert!(expired.is_empty() || !lease.is_valid(at(second_list)));
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
    use tombolo_storage::mutant::enable;

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
