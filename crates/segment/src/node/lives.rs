//! The lives of a node: the one that it lives, and earlier ones whose regions its disk still holds.
//!
//! A request names the life that it is meant for. The current one takes everything; an earlier one
//! answers for what it holds, takes nothing new, and is forgotten once its last region was freed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_env::Instant;
use tombolo_storage::{Error, Result};

use super::journal::Journal;
use super::lending::Lending;
use crate::message::{
    Answer, Body, HOLDINGS_MAX, Holding, NodeIncarnation, NodeMedium, NodeStatus, Refusal, RegionId, Request,
};
use crate::region::{Occupancy, Regions};

/// Bytes that may wait for the disk of a node that answers from memory; beyond, answers wait too.
const BEHIND_BYTES_MAX: u64 = 64 << 20;

/// Regions, and their copy on a disk.
pub(super) struct Life {
    pub(super) regions: Regions,
    pub(super) journal: Option<Arc<Journal>>,
}

impl Life {
    /// Carries a request out, and notes it when it changed something.
    fn carry_out(&mut self, request: Request) -> (Answer, Option<Wait>) {
        let effect = match (&self.journal, &request.body) {
            (None, _) | (_, Body::Read { .. }) => None,
            (Some(journal), _) => Some((Arc::clone(journal), request.clone())),
        };
        let answer = self.regions.handle(request);
        let wait = match (&answer, effect) {
            (Answer::Refused(_), _) | (_, None) => None,
            (_, Some((journal, effect))) => Some(Wait { noted: journal.note(effect), journal }),
        };
        (answer, wait)
    }
}

/// What must be durable before an answer goes out.
pub(super) struct Wait {
    journal: Arc<Journal>,
    noted: u64,
}

impl Wait {
    /// Waits for it.
    ///
    /// # Errors
    /// What the disk said.
    pub(super) async fn done(&self) -> Result<()> {
        self.journal.durable(self.noted).await
    }

    /// Whether `other` is done when this is.
    pub(super) fn covers(&self, other: &Wait) -> bool {
        Arc::ptr_eq(&self.journal, &other.journal) && self.noted >= other.noted
    }
}

/// What bounds the bytes that all lives together take: the least of these counts.
struct Limits {
    /// What the node was started with.
    started: u64,
    /// What it was told.
    told: u64,
    /// What its host has for it.
    spared: u64,
}

impl Limits {
    fn bytes_max(&self) -> u64 {
        self.started.min(self.told).min(self.spared)
    }
}

pub(super) struct Lives {
    pub(super) current: Life,
    pub(super) earlier: Vec<Life>,
    medium: NodeMedium,
    limits: Limits,
    lending: Lending,
    /// When a node that drains ends at the latest, if that was said.
    drains_until: Option<Instant>,
}

impl Lives {
    pub(super) fn new(
        current: Life,
        earlier: Vec<Life>,
        medium: NodeMedium,
        bytes_max: u64,
        lending: Lending,
    ) -> Lives {
        let limits = Limits { started: bytes_max, told: bytes_max, spared: bytes_max };
        let mut lives = Lives { current, earlier, medium, limits, lending, drains_until: None };
        lives.share_out();
        lives
    }

    fn all(&self) -> impl Iterator<Item = &Life> {
        std::iter::once(&self.current).chain(&self.earlier)
    }

    /// Memory that is lent to writers, and the regions that it is lent of: those of the current
    /// life.
    pub(super) fn lending(&mut self) -> (&mut Lending, &mut Regions) {
        (&mut self.lending, &mut self.current.regions)
    }

    /// Carries a request out, and says what to wait for before it is answered.
    pub(super) fn handle(&mut self, request: Request) -> (Answer, Option<Wait>) {
        if let Some(refused) = self.lending.prepare(&mut self.current.regions, &request) {
            return (refused, None);
        }
        let may_end = matches!(request.body, Body::Seal | Body::Free | Body::Collect { .. });
        let (answer, wait) = self.handle_prepared(request);
        if may_end {
            self.lending.forget_ended(&mut self.current.regions);
        }
        (answer, wait)
    }

    fn handle_prepared(&mut self, request: Request) -> (Answer, Option<Wait>) {
        if matches!(request.body, Body::Collect { .. })
            && request.incarnation == self.current.regions.incarnation()
        {
            // Garbage is garbage in whatever life it was made; a copy of it there that comes
            // back does no harm.
            for life in &mut self.earlier {
                life.carry_out(Request { incarnation: life.regions.incarnation(), ..request.clone() });
            }
        }
        let is_free = matches!(request.body, Body::Free | Body::Collect { .. });
        let life = self.earlier.iter_mut().find(|life| life.regions.incarnation() == request.incarnation);
        let (answer, wait) = life.unwrap_or(&mut self.current).carry_out(request);
        if is_free && !self.earlier.is_empty() {
            self.share_out();
        }
        let must_wait =
            |wait: &Wait| self.medium == NodeMedium::Disk || wait.journal.behind_bytes() > BEHIND_BYTES_MAX;
        (answer, wait.filter(must_wait))
    }

    /// How full the node is, all lives together.
    pub(super) fn occupancy(&self) -> Occupancy {
        let mut all = Occupancy { bytes_max: self.limits.bytes_max(), bytes_taken: 0, regions: 0, names: 0 };
        for Occupancy { bytes_taken, regions, names, .. } in self.all().map(|life| life.regions.occupancy()) {
            all.bytes_taken += bytes_taken;
            all.regions += regions;
            all.names += names;
        }
        all
    }

    pub(super) fn status(&self, domain: &str, now: Instant) -> NodeStatus {
        let Occupancy { bytes_max, bytes_taken, regions, names } = self.occupancy();
        let status = self.current.regions.status(self.medium, domain);
        let mut by_database = BTreeMap::new();
        self.all().for_each(|life| life.regions.count_holdings(&mut by_database));
        let databases = u32::try_from(by_database.len()).unwrap_or(u32::MAX);
        let mut holdings: Vec<Holding> = by_database.into_values().collect();
        holdings.sort_by_key(|held| std::cmp::Reverse(held.bytes));
        holdings.truncate(HOLDINGS_MAX);
        let millis = |until: Instant| u64::try_from(until.since(now).as_millis()).unwrap_or(u64::MAX);
        let drain_millis_left = self.drains_until.map(millis);
        NodeStatus {
            bytes_max,
            bytes_taken,
            regions,
            names,
            drain_millis_left,
            databases,
            holdings,
            ..status
        }
    }

    /// Lends so many bytes at most from here on, as the host has no more for it.
    pub(super) fn lend_spared(&mut self, bytes_max: u64) {
        self.limits.spared = bytes_max;
        self.share_out();
    }

    /// Lends so many bytes at most from here on, as it was told.
    ///
    /// # Errors
    /// `LendsAtMost` for more than it was started with: nothing changed.
    pub(super) fn lend_told(&mut self, bytes_max: u64) -> std::result::Result<(), Refusal> {
        if bytes_max > self.limits.started {
            return Err(Refusal::LendsAtMost(self.limits.started));
        }
        self.limits.told = bytes_max;
        self.share_out();
        Ok(())
    }

    /// The current life has what earlier ones have not taken.
    fn share_out(&mut self) {
        let taken: u64 = self.earlier.iter().map(|life| life.regions.occupancy().bytes_taken).sum();
        self.current.regions.lend(self.limits.bytes_max().saturating_sub(taken));
    }

    pub(super) fn drain(&mut self, until: Option<Instant>) {
        self.drains_until = until;
        self.current.regions.drain();
    }

    /// Whether some are wanted back.
    pub(super) fn wants_back(&self) -> bool {
        self.all().any(|life| life.regions.wanted_back().len() > 0)
    }

    /// All regions that are wanted back, in order.
    pub(super) fn wanted_back(&self) -> Vec<RegionId> {
        let mut wanted: Vec<RegionId> = self.all().flat_map(|life| life.regions.wanted_back()).collect();
        wanted.sort_unstable();
        wanted
    }

    /// Begins another life when names have grown many and no region is there; a node with a disk
    /// does when it is started.
    pub(super) fn begin_anew(&mut self, incarnation: NodeIncarnation) -> bool {
        let may = self.current.journal.is_none() && self.current.regions.may_begin_anew();
        if may {
            self.current.regions.begin_anew(incarnation);
        }
        may
    }

    /// Why the node has to end: a disk of one of its lives failed.
    pub(super) fn failure(&self) -> Option<Error> {
        self.all().find_map(|life| life.journal.as_ref()?.failure())
    }

    /// Earlier lives without a region, once what freed the last is durable: they are forgotten.
    pub(super) fn take_empty(&mut self) -> Vec<Life> {
        let is_written = |life: &Life| life.journal.as_ref().is_none_or(|journal| journal.is_written());
        let is_empty = |life: &Life| life.regions.occupancy().regions == 0 && is_written(life);
        let (empty, earlier) = std::mem::take(&mut self.earlier).into_iter().partition(is_empty);
        self.earlier = earlier;
        empty
    }
}
