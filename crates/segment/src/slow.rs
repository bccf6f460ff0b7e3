//! Which region of a segment is slow, next to the others.

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo_env::Instant;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::replica::{Phase, Replica};

/// Marks a region of a configuration that is slow: one at a time, and only if q of the others are
/// not.
pub(crate) fn judge(replicas: &mut BTreeMap<u32, Replica>, configured: &[u32], quorum: usize, now: Instant) {
    if is_enabled(Mutant::SegmentKeepsSlow)
        || configured.iter().any(|id| replicas.get(id).is_some_and(|replica| replica.is_slow))
    {
        return;
    }
    let known = |id: &u32| {
        replicas.get(id).filter(|replica| replica.phase == Phase::Live && replica.pace.answers > 0)
    };
    let paces: Vec<(u32, Duration)> =
        configured.iter().filter_map(|id| known(id).map(|replica| (*id, replica.pace.latency))).collect();
    for (id, _) in &paces {
        let mut others: Vec<Duration> =
            paces.iter().filter(|(other, _)| other != id).map(|(_, latency)| *latency).collect();
        others.sort_unstable();
        // What q of them take: without it entries would not be acknowledged sooner.
        let (Some(others), Some(replica)) = (others.get(quorum - 1).copied(), replicas.get_mut(id)) else {
            continue;
        };
        if replica.pace.is_slow(others, now) {
            replica.is_slow = true;
            return;
        }
    }
}
