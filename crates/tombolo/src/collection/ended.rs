//! What a destroyed database leaves: deleted once nothing keeps it.
//!
//! A pinner of a table of a life that has ended finds it destroyed, and its pin is void. So pins
//! only become fewer, and once a list shows none, nothing of that life is needed by anybody. Of a
//! leased pin it is waited for what its reader does: gives it back, renews it, or stands still for
//! longer than its lease, as the pin of one who died does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tombolo_format::pin::{PIN_BYTES_MAX, decode_pin};
use tombolo_storage::{Incarnation, Result};

use super::driver::{LEASE_MARGIN, delete_pin};
use super::lease::{LeaseWatch, Seen};
use crate::manifest::chain::undecodable;
use crate::manifest::driver::io::{Io, RetryLimit};
use crate::manifest::names;

/// Between two looks at the pins that are left: a part of the shortest lease, within these bounds.
const LOOK_MIN: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Longest time to wait for leases: the default one with its margin, and as much again. What a pin
/// says of its lease was read from the store, and may be a day, or anything.
const WAIT_MAX: Duration = Duration::from_secs(140);

/// What became of the objects of a database that was destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destroyed {
    /// Readers that live and keep all tables, or that died with a lease too long to wait for.
    /// Destroy the database again once they have ended.
    pub readers: u64,
    /// The longest lease of those: so long after the last of them has died, nothing of it counts
    /// any more.
    pub lease_max: Duration,
    /// Pins of other kinds, which keep all tables until their owners delete them.
    pub lasting: u64,
}

impl Destroyed {
    /// Whether all of it was deleted.
    pub fn is_deleted(&self) -> bool {
        self.readers == 0 && self.lasting == 0
    }
}

/// A pin that is left.
struct Left {
    /// `None` of a lasting one.
    lease: Option<Duration>,
    /// Its newest heartbeat.
    beat: u64,
}

/// Deletes the pins of a life that has ended whose leases have run out; what keeps its tables
/// still, and how many were deleted.
///
/// Without pins at once; with leased ones within the longest of their leases and a margin, or
/// [`WAIT_MAX`]: as soon as one is renewed, its reader lives.
///
/// # Errors
/// Of the store.
pub(crate) async fn expire_pins(io: &Io, life: Incarnation) -> Result<(Destroyed, u64)> {
    let env = &io.env;
    let mut leases = LeaseWatch::default();
    let mut first: BTreeMap<u128, u64> = BTreeMap::new();
    let until = env.now() + WAIT_MAX;
    let mut deleted = 0;
    loop {
        let began = env.now();
        let left = pins(io, life).await?;
        if left.is_empty() {
            return Ok((Destroyed::default(), deleted));
        }
        let seen: Vec<Seen> =
            left.iter().map(|(id, pin)| Seen { id: *id, lease: pin.lease, beat: pin.beat }).collect();
        let expired = leases.observe(began, env.now(), LEASE_MARGIN, &seen);
        for id in &expired {
            delete_pin(io, life, *id).await?;
            deleted += 1;
        }
        let renewed = left.iter().any(|(id, pin)| *first.entry(*id).or_insert(pin.beat) < pin.beat);
        let lasting = left.values().filter(|pin| pin.lease.is_none()).count() as u64;
        let is_late = expired.is_empty() && env.now() >= until;
        if renewed || lasting > 0 || is_late {
            let leases =
                || left.iter().filter(|(id, _)| !expired.contains(id)).filter_map(|(_, pin)| pin.lease);
            let kept = Destroyed {
                readers: leases().count() as u64,
                lease_max: leases().max().unwrap_or_default(),
                lasting,
            };
            return Ok((kept, deleted));
        }
        if expired.is_empty() {
            let shortest = left.values().filter_map(|pin| pin.lease).min().unwrap_or_default();
            env.sleep((shortest / 8).clamp(LOOK_MIN, LOOK_MAX)).await;
        }
    }
}

/// The pins of a life.
async fn pins(io: &Io, life: Incarnation) -> Result<BTreeMap<u128, Left>> {
    let listed = io.list_all(&names::pin_prefix(life)).await?;
    let (mut beats, mut ids): (BTreeMap<u128, u64>, BTreeSet<u128>) = Default::default();
    for (id, beat) in listed.iter().filter_map(|name| names::parse_pin(life, name)) {
        match beat {
            Some(beat) => {
                let newest = beats.entry(id).or_insert(beat);
                *newest = beat.max(*newest);
            }
            None => {
                ids.insert(id);
            }
        }
    }
    let mut pins = BTreeMap::new();
    for id in ids {
        let object = names::pin(life, id);
        let Some(bytes) = io.read_whole(&object, PIN_BYTES_MAX as u64, RetryLimit::Bounded).await? else {
            continue;
        };
        let lease_ms = match decode_pin(&bytes) {
            Ok(pin) => pin.lease_ms,
            Err(error) => {
                tracing::warn!(error = %undecodable(&object, error), "a pin that cannot be read stays, and \
                    keeps all tables");
                0
            }
        };
        let lease = (lease_ms > 0).then(|| Duration::from_millis(lease_ms));
        pins.insert(id, Left { lease, beat: beats.get(&id).copied().unwrap_or(0) });
    }
    Ok(pins)
}
