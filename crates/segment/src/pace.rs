//! Which region answers so much later than the others that another node should hold it. Slowness is
//! relative, and lasting: when all nodes are slow the network is, and a pause is none.

use std::collections::BTreeMap;
use std::time::Duration;

use tombolo_env::Instant;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::replica::{Phase, Replica};

/// A region that answers within this is not slow, whatever others do.
const FLOOR: Duration = Duration::from_millis(20);

/// So many times later than the others it answers.
const FACTOR: u32 = 8;

/// For so long, in so many answers.
const WINDOW: Duration = Duration::from_secs(3);
const ANSWERS: u32 = 16;

/// How long a region takes to answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// A mean that forgets: each answer counts an eighth.
    latency: Duration,
    /// The shortest of all: how far its node is.
    pub(crate) least: Option<Duration>,
    answers: u32,
    /// Since when it is late, and how many answers it had given then.
    late_since: Option<(Instant, u32)>,
}

impl Pace {
    /// Of a region on a node that was found to be so far, if it was.
    pub(crate) fn of_node(distance: Option<Duration>) -> Pace {
        Pace { least: distance, ..Pace::default() }
    }

    /// It took so long to answer.
    pub(crate) fn answered(&mut self, took: Duration) {
        self.latency = if self.answers == 0 { took } else { (self.latency * 7 + took) / 8 };
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        self.answers = self.answers.saturating_add(1);
    }

    /// Whether it was late for long, next to what the others take.
    fn is_slow(&mut self, others: Duration, now: Instant) -> bool {
        if self.latency < FLOOR || self.latency < others * FACTOR {
            self.late_since = None;
            return false;
        }
        let (since, answers) = *self.late_since.get_or_insert((now, self.answers));
        now.since(since) >= WINDOW && self.answers - answers >= ANSWERS
    }
}

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
