//! The lives of a node: the one that it lives, and earlier ones whose regions its disk still holds.
//!
//! A request names the life that it is meant for. The current one takes everything; an earlier one answers for what it holds, takes nothing new, and is
//! forgotten once its last region was freed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tombolo_env::Env;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, Result};

use super::journal::Journal;
use crate::message::{Answer, Body, Extent, NodeIncarnation, NodeMedium, NodeStatus, RegionId, Request};
use crate::region::{Occupancy, Regions};
use crate::shared::SharedMemory;

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

pub(super) struct Lives {
    pub(super) current: Life,
    pub(super) earlier: Vec<Life>,
    medium: NodeMedium,
    /// Bytes that all lives together take, at most.
    bytes_max: u64,
    /// Where memory is shared from, and the regions of the current life that are.
    share: Option<(Env, PathBuf)>,
    shared: BTreeMap<RegionId, SharedMemory>,
}

impl Lives {
    pub(super) fn new(current: Life, earlier: Vec<Life>, medium: NodeMedium, bytes_max: u64) -> Lives {
        let mut lives = Lives { current, earlier, medium, bytes_max, share: None, shared: BTreeMap::new() };
        lives.lend(bytes_max);
        lives
    }

    fn all(&self) -> impl Iterator<Item = &Life> {
        std::iter::once(&self.current).chain(&self.earlier)
    }

    /// Shares memory in files of `directory` from here on.
    pub(super) fn share_in(&mut self, env: &Env, directory: PathBuf) {
        self.share = Some((env.clone(), directory));
    }

    /// Shares the memory of an open region with whoever made it. It takes as much again, for the copy that is made when it is sealed.
    pub(super) fn share(&mut self, incarnation: NodeIncarnation, id: RegionId, epoch: Epoch) -> Option<String> {
        let (env, directory) = self.share.as_ref()?;
        let regions = &mut self.current.regions;
        let (_, owner, bytes_max) = regions.open_region(id).filter(|_| regions.incarnation() == incarnation)?;
        if owner != epoch || self.shared.contains_key(&id) || !regions.reserve(bytes_max.into()) {
            return None;
        }
        match SharedMemory::create(env, directory, id, incarnation, bytes_max) {
            Ok(memory) => {
                let path = memory.path().to_str().map(str::to_owned);
                self.shared.insert(id, memory);
                path
            }
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "memory cannot be shared");
                regions.release(bytes_max.into());
                None
            }
        }
    }

    /// Before a request: takes in what writers stored to the shared regions that it is about. The storing ends first where the request ends the region.
    fn prepare_shared(&mut self, request: &Request) {
        if self.shared.is_empty() || request.incarnation != self.current.regions.incarnation() {
            return;
        }
        let regions = &mut self.current.regions;
        let ends: Vec<RegionId> = match &request.body {
            Body::Collect { database, keep } => regions.garbage(request.epoch, *database, keep),
            _ => vec![request.region],
        };
        for id in ends {
            let Some((memory, (_, owner, _))) = self.shared.get(&id).zip(regions.open_region(id)) else { continue };
            let end = || match request.body {
                Body::Seal if request.epoch >= owner => memory.seal(request.epoch),
                Body::Free | Body::Collect { .. } if request.epoch >= owner => memory.free(),
                _ => {}
            };
            if is_enabled(Mutant::SharedReadsBeforeWord) {
                take_in(regions, memory, id);
                end();
            } else {
                end();
                take_in(regions, memory, id);
            }
        }
    }

    /// After a request: regions that are not open are shared no more.
    fn unshare_ended(&mut self) {
        let regions = &mut self.current.regions;
        let ended: Vec<RegionId> = self.shared.keys().copied().filter(|id| regions.open_region(*id).is_none()).collect();
        for memory in ended.into_iter().filter_map(|id| self.shared.remove(&id)).collect::<Vec<_>>() {
            self.current.regions.release(memory.bytes_max().into());
            self.delete(&memory);
        }
    }

    fn delete(&self, memory: &SharedMemory) {
        if let Some((env, _)) = &self.share
            && let Err(error) = env.files().remove_file(memory.path())
        {
            tracing::warn!(%error, path = %memory.path().display(), "shared memory stays until the node is started again");
        }
    }

    /// The node ends: whoever stores to shared memory learns it, and the files go.
    pub(super) fn end_sharing(&mut self) {
        for (_, memory) in std::mem::take(&mut self.shared) {
            memory.free();
            self.delete(&memory);
        }
    }

    /// Carries a request out, and says what is to be waited for before it is answered.
    pub(super) fn handle(&mut self, request: Request) -> (Answer, Option<Wait>) {
        self.prepare_shared(&request);
        let may_end = matches!(request.body, Body::Seal | Body::Free | Body::Collect { .. });
        let (answer, wait) = self.handle_prepared(request);
        if may_end && !self.shared.is_empty() {
            self.unshare_ended();
        }
        (answer, wait)
    }

    fn handle_prepared(&mut self, request: Request) -> (Answer, Option<Wait>) {
        if matches!(request.body, Body::Collect { .. }) && request.incarnation == self.current.regions.incarnation() {
            // What is garbage is so in whatever life it was made; a copy of it there that comes back does no harm.
            for life in &mut self.earlier {
                life.carry_out(Request { incarnation: life.regions.incarnation(), ..request.clone() });
            }
        }
        let is_free = matches!(request.body, Body::Free | Body::Collect { .. });
        let life = self.earlier.iter_mut().find(|life| life.regions.incarnation() == request.incarnation);
        let (answer, wait) = life.unwrap_or(&mut self.current).carry_out(request);
        if is_free && !self.earlier.is_empty() {
            self.lend(self.bytes_max);
        }
        let must_wait = |wait: &Wait| self.medium == NodeMedium::Disk || wait.journal.behind_bytes() > BEHIND_BYTES_MAX;
        (answer, wait.filter(must_wait))
    }

    /// How full the node is, all lives together.
    pub(super) fn occupancy(&self) -> Occupancy {
        let mut all = Occupancy { bytes_max: self.bytes_max, bytes_taken: 0, regions: 0, names: 0 };
        for Occupancy { bytes_taken, regions, names, .. } in self.all().map(|life| life.regions.occupancy()) {
            all.bytes_taken += bytes_taken;
            all.regions += regions;
            all.names += names;
        }
        all
    }

    pub(super) fn status(&self, domain: &str) -> NodeStatus {
        let Occupancy { bytes_max, bytes_taken, regions, names } = self.occupancy();
        let status = self.current.regions.status(self.medium, domain);
        NodeStatus { bytes_max, bytes_taken, regions, names, ..status }
    }

    /// Lends so many bytes from here on, of which earlier lives have taken theirs.
    pub(super) fn lend(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        let taken: u64 = self.earlier.iter().map(|life| life.regions.occupancy().bytes_taken).sum();
        self.current.regions.lend(bytes_max.saturating_sub(taken));
    }

    pub(super) fn drain(&mut self) {
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

    /// Begins another life when names have grown many and no region is there; a node with a disk does when it is started.
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

/// Takes what a writer stored into its region, as far as it is sound.
fn take_in(regions: &mut Regions, memory: &SharedMemory, region: RegionId) {
    let Some((Extent { length, digest, .. }, owner, _)) = regions.open_region(region) else { return };
    let records = memory.records(digest, length);
    if records.is_empty() {
        return;
    }
    let body = Body::Append { offset: length, predecessor: digest, records: records.into() };
    let answer = regions.handle(Request { incarnation: regions.incarnation(), region, epoch: owner, body });
    debug_assert!(matches!(answer, Answer::Held(_)), "sound records behind what is held are taken: {answer:?}");
}
