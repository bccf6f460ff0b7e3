//! Which region answers so much later than the others that another node should hold it. Slowness is
//! relative, and lasting: when all nodes are slow the network is, and a pause is none.

use std::time::Duration;

use tombolo_env::Instant;

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
    pub(crate) latency: Duration,
    /// The shortest of all: how far its node is.
    pub(crate) least: Option<Duration>,
    pub(crate) answers: u32,
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
    pub(crate) fn is_slow(&mut self, others: Duration, now: Instant) -> bool {
        if self.latency < FLOOR || self.latency < others * FACTOR {
            self.late_since = None;
            return false;
        }
        let (since, answers) = *self.late_since.get_or_insert((now, self.answers));
        now.since(since) >= WINDOW && self.answers - answers >= ANSWERS
    }
}
