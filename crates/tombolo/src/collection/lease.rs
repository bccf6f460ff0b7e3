//! When a reader's lease has expired (rule 13).
//!
//! The reader's side counts from the moment before it began to put a heartbeat; the deleter's side
//! from the moment after the list that first showed it. The deleter's span therefore lies within
//! what the reader has given up, whatever the two clocks say in absolute terms; the margin covers
//! how far their rates may differ.

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo_env::Instant;
use tombolo_storage::mutant::{Mutant, is_enabled};

/// What a list showed of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Which pin.
    pub id: u128,
    /// Its lease; `None` of a lasting pin.
    pub lease: Option<Duration>,
    /// Its newest heartbeat; 0 when the list shows none.
    pub beat: u64,
}

/// The deleter's memory of heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseWatch {
    /// Heartbeat, and the moment after the list that first showed it.
    beats: BTreeMap<u128, (u64, Instant)>,
}

impl LeaseWatch {
    /// Takes in a list of all pins that was begun at `began` and complete at `ended`; returns the
    /// pins whose lease has expired. Pins that the list does not show are forgotten.
    pub fn observe(&mut self, began: Instant, ended: Instant, margin: Duration, pins: &[Seen]) -> Vec<u128> {
        let mut beats = BTreeMap::new();
        let mut expired = Vec::new();
        for pin in pins {
            let known = self.beats.get(&pin.id);
            let since = match known {
                Some((beat, since)) if *beat == pin.beat => *since,
                _ if is_enabled(Mutant::LeaseCountedFromListBegin) => began,
                _ => ended,
            };
            // The next heartbeat is put before the last one goes: a list that shows an older one,
            // or none, was made while they changed. So each such list counts as a change, not only
            // the first.
            let newest = if is_enabled(Mutant::LeaseTakesMissedBeat) {
                pin.beat
            } else {
                known.map_or(pin.beat, |(beat, _)| pin.beat.max(*beat))
            };
            beats.insert(pin.id, (newest, since));
            let lease = match pin.lease {
                None if is_enabled(Mutant::LeaseExpiresLastingPins) => Some(Duration::from_secs(10)),
                lease => lease,
            };
            // A clock of the reader's host would be of no use here: the mutant takes the age of the
            // heartbeat by it.
            let stood_still = if is_enabled(Mutant::LeaseByWallClock) {
                Duration::from_nanos(began.as_nanos())
            } else {
                began.since(since)
            };
            let margin = if is_enabled(Mutant::LeaseWithoutMargin) { Duration::ZERO } else { margin };
            if lease.is_some_and(|lease| stood_still >= lease + margin) {
                expired.push(pin.id);
            }
        }
        self.beats = beats;
        expired
    }
}

/// The reader's side of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    duration: Duration,
    /// Valid before this moment of the reader's clock.
    until: Instant,
}

impl Lease {
    /// A lease whose first heartbeat was put beginning at `began`.
    pub fn new(duration: Duration, began: Instant) -> Lease {
        Lease { duration, until: began + duration }
    }

    /// A heartbeat that was begun at `began` is seen in its place at `ended`. Returns whether the
    /// lease holds: a heartbeat that landed after the lease had run out does not bring it back.
    pub fn renewed(&mut self, began: Instant, ended: Instant) -> bool {
        if ended >= self.until && !is_enabled(Mutant::LeaseRenewedLate) {
            return false;
        }
        let from = if is_enabled(Mutant::LeaseCountedFromLanding) { ended } else { began };
        self.until = from + self.duration;
        true
    }

    /// Whether the lease holds at `now`.
    pub fn is_valid(&self, now: Instant) -> bool {
        now < self.until || is_enabled(Mutant::LeaseNeverRunsOut)
    }

    /// When the next heartbeat should begin: after a third of the lease, so that two may fail.
    pub fn next_beat(&self) -> Instant {
        let wait = self.duration - self.duration / 3;
        Instant::from_nanos(
            self.until.as_nanos().saturating_sub(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests;
