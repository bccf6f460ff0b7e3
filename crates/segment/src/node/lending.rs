//! Memory of regions that writers fill themselves: those of this host by storing to it, those of
//! others through a card.
//!
//! `made → lent to its owner → the owner fills it → a request about it: sound records are taken in → sealed, freed, or the owner's connection ends: the filling ends first, then sound records are taken in, unless it is freed, then it is answered`.
//!
//! Invariants:
//! 1. A region that is lent is open, of the current life, and lent to one writer.
//! 2. Nothing is answered about a region whose writer could not be stopped: that is no answer (rule
//!    4), until it is freed.
//! 3. Lent memory counts twice towards the node's limit until it is given back;
//!    memory that cannot be given back counts for ever.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use tombolo_env::Env;
use tombolo_storage::{Epoch, Error};

use crate::lent::{End, Lent, sound_records};
use crate::message::{Answer, Body, NodeIncarnation, QueueAddress, Refusal, RegionId, Request, Window};
use crate::region::{Regions, Sound};
use crate::shared::SharedMemory;

/// Whose connection it was lent on: it ends with that.
pub(super) type LineNumber = u64;

/// The lent memory.
#[derive(Debug)]
pub(super) struct Lending {
    env: Env,
    /// Where memory of this host's writers lies; `None`: there is none.
    directory: Option<PathBuf>,
    /// The card through which other hosts' writers write.
    #[cfg(feature = "rdma")]
    device: Option<tombolo_env::real::verbs::Device>,
    lent: BTreeMap<RegionId, Loan>,
    /// Memory that sealed regions stay in: a file is there for its permitted readers, until the
    /// region is freed.
    staying: BTreeMap<RegionId, Loan>,
    /// Regions whose writer could not be stopped.
    unfenced: BTreeSet<RegionId>,
    paired: u64,
}

#[derive(Debug)]
struct Loan {
    memory: Box<dyn Lent>,
    line: Option<LineNumber>,
}

impl Lending {
    /// Nothing is lent yet; writers of this host will share files of `directory`.
    pub(super) fn new(env: &Env, directory: Option<PathBuf>) -> Lending {
        Lending {
            env: env.clone(),
            directory,
            #[cfg(feature = "rdma")]
            device: None,
            lent: BTreeMap::new(),
            staying: BTreeMap::new(),
            unfenced: BTreeSet::new(),
            paired: 0,
        }
    }

    /// Writers of other hosts will write through `device`.
    #[cfg(feature = "rdma")]
    pub(super) fn through(mut self, device: Option<tombolo_env::real::verbs::Device>) -> Lending {
        self.device = device;
        self
    }

    /// Regions that writers of other hosts were let write to, so far.
    pub(super) fn paired(&self) -> u64 {
        self.paired
    }

    /// Takes room for the memory of a region that is to be lent to `epoch`, if it is that one's and
    /// there is room. How much.
    fn reserve(
        &self,
        regions: &mut Regions,
        incarnation: NodeIncarnation,
        id: RegionId,
        epoch: Epoch,
    ) -> Option<u32> {
        let (_, owner, bytes_max) =
            regions.open_region(id).filter(|_| regions.incarnation() == incarnation)?;
        let is_free = owner == epoch && !self.lent.contains_key(&id) && !self.unfenced.contains(&id);
        (is_free && regions.reserve(id, bytes_max.into())).then_some(bytes_max)
    }

    /// Shares the memory of an open region with its maker, to be stored to. It takes as much
    /// again, for the copy that is made of it while it is open; a seal leaves one of the two. That
    /// of a sealed one it shares with its permitted readers, if its records lie there.
    pub(super) fn share(
        &mut self,
        regions: &mut Regions,
        incarnation: NodeIncarnation,
        id: RegionId,
        epoch: Epoch,
    ) -> Option<String> {
        let directory = self.directory.as_ref()?;
        if let Some(Loan { memory, .. }) =
            self.staying.get(&id).filter(|_| regions.incarnation() == incarnation)
        {
            memory.tell_length(regions.stored(id, epoch)?);
            return memory.file()?.to_str().map(str::to_owned);
        }
        // Only its maker asks for that of an open one, just after making it; one that is read in
        // its owner's name is not.
        if regions.open_region(id).is_none_or(|(held, ..)| held.length > 0) {
            return None;
        }
        let bytes_max = self.reserve(regions, incarnation, id, epoch)?;
        match SharedMemory::create(&self.env, directory, id, incarnation, bytes_max) {
            Ok(memory) => {
                let path = memory.path().to_str().map(str::to_owned);
                self.lent.insert(id, Loan { memory: Box::new(memory), line: None });
                path
            }
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "memory cannot be shared");
                regions.release(id);
                None
            }
        }
    }

    /// Lets the card of an open region's maker write to its memory through `queue`, for as
    /// long as the connection `line` is up.
    #[cfg(feature = "rdma")]
    pub(super) fn pair(
        &mut self,
        regions: &mut Regions,
        line: LineNumber,
        (incarnation, id, epoch): (NodeIncarnation, RegionId, Epoch),
        queue: &QueueAddress,
    ) -> Option<(QueueAddress, Window)> {
        let device = self.device.as_ref()?;
        let bytes_max = self.reserve(regions, incarnation, id, epoch)?;
        match crate::rdma::Target::new(&self.env, device, queue, bytes_max) {
            Ok(target) => {
                let pair = (target.address(), target.window());
                self.lent.insert(id, Loan { memory: Box::new(target), line: Some(line) });
                self.paired += 1;
                Some(pair)
            }
            Err(error) => {
                tracing::warn!(%error, device = device.name(), "memory cannot be written by others' cards");
                regions.release(id);
                None
            }
        }
    }

    /// A program without the feature `rdma` has no card.
    #[cfg(not(feature = "rdma"))]
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(super) fn pair(
        &mut self,
        _regions: &mut Regions,
        _line: LineNumber,
        _whose: (NodeIncarnation, RegionId, Epoch),
        _queue: &QueueAddress,
    ) -> Option<(QueueAddress, Window)> {
        None
    }

    /// Before a request: takes in what writers stored to the regions that it is about. The storing
    /// ends first where the request ends the region. `Some`: the answer, instead of carrying
    /// it out.
    pub(super) fn prepare(&mut self, regions: &mut Regions, request: &Request) -> Option<Answer> {
        let is_idle = self.lent.is_empty() && self.unfenced.is_empty();
        if is_idle || request.incarnation != regions.incarnation() {
            return None;
        }
        // The question whether a region is there, as writers ask of idle ones, needs nothing that
        // lies in it: it would be copied for that, and stay a copy.
        let is_question = matches!(&request.body, Body::Append { records, .. } if records.is_empty());
        let about: Vec<RegionId> = match &request.body {
            Body::Collect { database, keep } => regions.garbage(request.epoch, *database, keep),
            _ if is_question => Vec::new(),
            _ => vec![request.region],
        };
        for id in about {
            let Some((loan, (_, owner, _))) = self.lent.get_mut(&id).zip(regions.open_region(id)) else {
                continue;
            };
            let why = match request.body {
                Body::Seal if request.epoch >= owner => Some(End::Sealed(request.epoch)),
                Body::Free | Body::Collect { .. } if request.epoch >= owner => Some(End::Freed),
                _ => None,
            };
            let is_sealed = matches!(why, Some(End::Sealed(_)));
            if loan.memory.is_read_early() {
                take_in(regions, &*loan.memory, id, is_sealed);
                let _ended = why.map(|why| loan.memory.end(why));
                continue;
            }
            match why.map_or(Ok(()), |why| loan.memory.end(why)) {
                // Nobody looks at memory freed now.
                Ok(()) if matches!(why, Some(End::Freed)) => {}
                Ok(()) => take_in(regions, &*loan.memory, id, is_sealed),
                Err(error) => {
                    regions.lose(id);
                    self.give_up(id, &error);
                }
            }
        }
        let is_unfenced = self.unfenced.contains(&request.region)
            && !matches!(request.body, Body::Free | Body::Collect { .. });
        is_unfenced.then(|| {
            let (sound, recorded) = regions
                .open_region(request.region)
                .map_or((0, 0), |(extent, _, bytes_max)| (extent.length, bytes_max));
            Answer::Refused(Refusal::Damaged { sound, recorded })
        })
    }

    /// The writer of a region could not be stopped: its content is not known to be all, nor to
    /// stay. Its memory is not given back.
    fn give_up(&mut self, id: RegionId, error: &Error) {
        tracing::error!(region = %id, %error, "a writer cannot be kept from a region's memory: the region \
            is no answer any more");
        self.lent.remove(&id);
        self.unfenced.insert(id);
    }

    /// After a request: what belongs to no open region is lent no more, and goes unless a sealed
    /// one stays in it.
    pub(super) fn forget_ended(&mut self, regions: &mut Regions) {
        let ended: Vec<RegionId> =
            self.lent.keys().copied().filter(|id| regions.open_region(*id).is_none()).collect();
        for (id, loan) in ended.into_iter().filter_map(|id| self.lent.remove_entry(&id)).collect::<Vec<_>>() {
            regions.release(id);
            self.staying.insert(id, loan);
        }
        let freed: Vec<RegionId> =
            self.staying.keys().copied().filter(|id| !regions.is_stored(*id)).collect();
        for loan in freed.into_iter().filter_map(|id| self.staying.remove(&id)).collect::<Vec<_>>() {
            self.delete(&loan);
        }
    }

    /// A writer's connection has ended, or a later one was welcomed: nothing that was lent on it is
    /// filled any more. Bytes filled before are taken in.
    pub(super) fn end_line(&mut self, regions: &mut Regions, line: LineNumber) {
        let of_line: Vec<RegionId> =
            self.lent.iter().filter(|(_, loan)| loan.line == Some(line)).map(|(id, _)| *id).collect();
        for id in of_line {
            let Some(loan) = self.lent.get_mut(&id) else { continue };
            match loan.memory.end(End::Freed) {
                Ok(()) => {
                    take_in(regions, &*loan.memory, id, false);
                    regions.release(id);
                    self.lent.remove(&id);
                }
                Err(error) => {
                    regions.lose(id);
                    self.give_up(id, &error);
                }
            }
        }
    }

    /// The node ends: fillers of memory learn it, and files go.
    pub(super) fn end_all(&mut self) {
        for (id, mut loan) in std::mem::take(&mut self.lent) {
            if let Err(error) = loan.memory.end(End::Freed) {
                self.give_up(id, &error);
            }
            self.delete(&loan);
        }
        for loan in std::mem::take(&mut self.staying).into_values() {
            self.delete(&loan);
        }
    }

    fn delete(&self, loan: &Loan) {
        if let Some(file) = loan.memory.file()
            && let Err(error) = self.env.files().remove_file(file)
        {
            tracing::warn!(%error, path = %file.display(), "shared memory stays until the node is started \
                again");
        }
    }
}

/// Takes what a writer stored into its region, as far as it is sound. When its storing has ended
/// for good, so that the region is about to be sealed, it may stay where it is.
fn take_in(regions: &mut Regions, memory: &dyn Lent, region: RegionId, is_sealed: bool) {
    let Some((held, ..)) = regions.open_region(region) else { return };
    if let Some((mapping, begin)) = memory.stays().filter(|_| is_sealed) {
        let after = sound_records(memory, held, |_| {});
        return regions.take_in(region, after, Sound::In(mapping, begin));
    }
    let mut records = Vec::new();
    let after = sound_records(memory, held, |some| records.extend_from_slice(some));
    regions.take_in(region, after, Sound::Copied(&records));
}
