//! A node's regions: what it checks, and in which order. A plain state machine: one call is one
//! step (rule 2), under the lock.
//!
//! ```text
//! never seen ── create ──▶ open ── seal ──▶ sealed ── free ──▶ freed
//!      │                     └───────────── free ────────────────▲
//!      └── seal ──▶ tombstone                                   │
//!      └── free ────────────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! 1. A region's bytes are whole records, each behind its predecessor, of the segment that the
//!    region was made for.
//! 2. Bytes once held never change; nothing is added after a seal; the epoch of a seal only rises.
//! 3. A name once seen in this life of the node is known until its end: a region sealed or freed is
//!    never made again.
//! 4. Memory of all regions together is at most what the node lends; a region's is taken whole when
//!    it is made.
//! 5. At most [`NAMES_MAX`] names are known: beyond, nothing is made, and a name never seen is
//!    not sealed, which is no answer.
//!
//! Cost: an append hashes and copies its bytes once. A name costs some 50 bytes for the rest of the
//! node's life, which may be begun anew whenever no region is there.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Mapping;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{Digest, Records, SEGMENT_RECORDS_BYTES_MAX, first_digest};
use tombolo_storage::Epoch;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::message::{
    Answer, Body, Extent, Holding, NodeIncarnation, NodeMedium, NodeStatus, Refusal, RegionId, Request,
};

mod held;
#[cfg(test)]
mod tests;

use held::Held;

/// A region that was made.
#[derive(Debug)]
struct Region {
    database: u64,
    segment: SegmentIdentity,
    /// Its maker; nobody else appends.
    owner: Epoch,
    bytes_max: u32,
    bytes: Held,
    digest: Digest,
    committed: u32,
    sealed_by: Option<Epoch>,
}

impl Region {
    fn extent(&self) -> Extent {
        Extent { length: self.length(), digest: self.digest, committed: self.committed }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most bytes_max, which is 32 bits wide")]
    fn length(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Its records as appends of at most some megabytes each.
    fn pieces(&self) -> impl Iterator<Item = Body> + '_ {
        let mut walk = Records::new(first_digest(self.database, &self.segment), 0, self.bytes.own());
        std::iter::from_fn(move || {
            let (offset, predecessor) = (walk.at(), walk.digest());
            while walk.at() - offset < PIECE_BYTES && matches!(walk.next(), Some(Ok(_))) {}
            let records = self.bytes.copy(offset as usize, walk.at() as usize);
            (!records.is_empty()).then_some(Body::Append { offset, predecessor, records })
        })
    }

    /// Takes records that begin at `offset` behind `predecessor`, or finds that it holds them.
    fn append(&mut self, offset: u32, predecessor: Digest, records: &[u8]) -> Result<(), Refusal> {
        let length = self.length();
        if offset > length {
            return Err(Refusal::Gap(length));
        }
        let held = &self.bytes.own()[offset as usize..];
        let overlap = held.len().min(records.len());
        if !is_enabled(Mutant::RegionIgnoresHeldBytes) && held[..overlap] != records[..overlap] {
            return Err(Refusal::Differs(offset));
        }
        let fresh = &records[overlap..];
        if fresh.is_empty() {
            return Ok(());
        }
        if held.is_empty() && predecessor != self.digest && !is_enabled(Mutant::RegionIgnoresPredecessor) {
            return Err(Refusal::Differs(0));
        }
        if fresh.len() > (self.bytes_max - length) as usize {
            return Err(Refusal::Full(u64::from(self.bytes_max - length)));
        }
        let mut walk = Records::new(self.digest, length, fresh);
        let mut committed = self.committed;
        for record in walk.by_ref() {
            match record {
                Ok(record) => committed = committed.max(record.committed),
                Err(_) if is_enabled(Mutant::RegionIgnoresPredecessor) => break,
                Err(_) => return Err(Refusal::Malformed),
            }
        }
        self.digest = walk.digest();
        self.committed = committed;
        self.bytes.extend_from_slice(fresh);
        Ok(())
    }
}

/// Most names that a node remembers in one life: some 50 MB of them, and with segments of 64 MiB
/// the log of 64 TiB.
pub const NAMES_MAX: usize = 1 << 20;

/// Bytes of records after which a copy of a region begins another append.
const PIECE_BYTES: u32 = 1 << 20;

/// Where records lie that something else has checked.
pub(crate) enum Sound<'a> {
    Copied(&'a [u8]),
    /// There, where byte 0 of the region would lie at that offset.
    In(Arc<dyn Mapping>, usize),
}

/// What a node knows of a name.
#[derive(Debug)]
enum Known {
    Made(Box<Region>),
    /// Sealed before it was seen.
    Tombstone {
        sealed_by: Epoch,
    },
    Freed,
}

/// Memory that regions take, for metrics and for the search for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Bytes that the node lends.
    pub bytes_max: u64,
    /// Bytes taken by regions, at what they may grow to.
    pub bytes_taken: u64,
    /// Regions that hold memory.
    pub regions: u64,
    /// Names that are known.
    pub names: u64,
}

/// All regions of a node's life.
#[derive(Debug)]
pub struct Regions {
    incarnation: NodeIncarnation,
    bytes_max: u64,
    bytes_taken: u64,
    /// Bytes of records in all regions.
    bytes_held: u64,
    /// Invariant: how many of `known` are made.
    made: u64,
    known: HashMap<RegionId, Known>,
    /// Second copies of regions that freeing them gives back too, and what each takes.
    second: BTreeMap<RegionId, u64>,
    is_draining: bool,
    /// Regions whose memory the node wants back.
    /// Invariant: all of them are made.
    wanted_back: BTreeSet<RegionId>,
    names_max: usize,
    frozen: Option<Frozen>,
}

/// A life that was found on a disk: nothing is made or appended in it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frozen {
    /// All of it was found.
    Whole,
    /// Something is missing: only regions sealed before that are known to be complete.
    Damaged,
}

impl Regions {
    /// No region yet; together they will take at most `bytes_max` bytes.
    pub fn new(incarnation: NodeIncarnation, bytes_max: u64) -> Regions {
        Regions {
            incarnation,
            bytes_max,
            bytes_taken: 0,
            bytes_held: 0,
            made: 0,
            known: HashMap::new(),
            second: BTreeMap::new(),
            is_draining: false,
            wanted_back: BTreeSet::new(),
            names_max: NAMES_MAX,
            frozen: None,
        }
    }

    /// A node that remembers so many names.
    #[must_use]
    pub fn with_names_max(mut self, names_max: usize) -> Regions {
        self.names_max = names_max;
        self
    }

    /// The node's life.
    pub fn incarnation(&self) -> NodeIncarnation {
        self.incarnation
    }

    /// How full it is.
    pub fn occupancy(&self) -> Occupancy {
        Occupancy {
            bytes_max: self.bytes_max,
            bytes_taken: self.bytes_taken,
            regions: self.made,
            names: self.known.len() as u64,
        }
    }

    /// Bytes of records in all regions.
    pub(crate) fn bytes_held(&self) -> u64 {
        self.bytes_held
    }

    /// What the node says of itself.
    pub fn status(&self, medium: NodeMedium, domain: &str) -> NodeStatus {
        let Occupancy { bytes_max, bytes_taken, regions, names } = self.occupancy();
        let (incarnation, is_draining, domain) = (self.incarnation, self.is_draining, domain.to_owned());
        NodeStatus {
            incarnation,
            bytes_max,
            bytes_taken,
            regions,
            names,
            medium,
            is_draining,
            domain,
            drain_millis_left: None,
            databases: 0,
            holdings: Vec::new(),
        }
    }

    /// Adds what each database has here.
    pub(crate) fn count_holdings(&self, into: &mut BTreeMap<u64, Holding>) {
        for (id, known) in &self.known {
            let Known::Made(region) = known else { continue };
            let database = region.database;
            let held = into.entry(database).or_insert(Holding { database, regions: 0, bytes: 0 });
            held.regions += 1;
            held.bytes += u64::from(region.bytes_max) + self.second.get(id).copied().unwrap_or(0);
        }
    }

    /// Whether the node wants the memory of a region back.
    pub fn is_wanted_back(&self, region: RegionId) -> bool {
        self.wanted_back.contains(&region)
    }

    /// All regions whose memory the node wants back, in order.
    pub fn wanted_back(&self) -> impl ExactSizeIterator<Item = RegionId> + '_ {
        self.wanted_back.iter().copied()
    }

    /// Lends so many bytes from here on. When regions take more, the memory of some is wanted back:
    /// the largest, until the rest is within it. Nothing is taken away: only the maker of a region
    /// knows whether it is needed.
    pub fn lend(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        self.want_back(if self.is_draining { 0 } else { bytes_max });
    }

    fn want_back(&mut self, bytes_max: u64) {
        let made = self.known.iter().filter_map(|(id, known)| match known {
            Known::Made(region) => {
                Some((u64::from(region.bytes_max) + self.second.get(id).copied().unwrap_or(0), *id))
            }
            _ => None,
        });
        let mut by_size: Vec<(u64, RegionId)> = made.collect();
        by_size.sort_unstable();
        self.wanted_back.clear();
        let mut taken = self.bytes_taken;
        while taken > bytes_max
            && let Some((bytes, id)) = by_size.pop()
        {
            taken -= bytes;
            self.wanted_back.insert(id);
        }
    }

    /// Whether names have grown so many that another life should begin, and nothing is lost by it:
    /// no region is there.
    pub fn may_begin_anew(&self) -> bool {
        self.known.len() >= self.names_max / 2 && self.bytes_taken == 0
    }

    /// Begins another life, which knows nothing.
    ///
    /// # Panics
    /// When regions are there: what they hold would be lost.
    pub fn begin_anew(&mut self, incarnation: NodeIncarnation) {
        assert!(
            self.bytes_taken == 0 && incarnation != self.incarnation,
            "a node's life ends only when nothing is lost by it"
        );
        self.known.clear();
        self.incarnation = incarnation;
    }

    /// From here on no region is made. The memory of those that are there is wanted back; they stay
    /// until they are freed.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.want_back(0);
    }

    /// What an open region holds, whose it is and how much it may; `None` when there is none.
    pub(crate) fn open_region(&self, id: RegionId) -> Option<(Extent, Epoch, u32)> {
        match self.known.get(&id) {
            Some(Known::Made(region)) if region.sealed_by.is_none() => {
                Some((region.extent(), region.owner, region.bytes_max))
            }
            _ => None,
        }
    }

    /// Bytes of a sealed region that lie where its writer stored them, if `epoch` may read them
    /// ([`Body::Read`]).
    pub(crate) fn stored(&self, id: RegionId, epoch: Epoch) -> Option<u32> {
        match self.known.get(&id) {
            Some(Known::Made(region))
                if region.sealed_by.is_some_and(|by| by <= epoch) && region.bytes.is_stored() =>
            {
                Some(region.length())
            }
            _ => None,
        }
    }

    /// Whether a region's records lie where its writer stored them.
    pub(crate) fn is_stored(&self, id: RegionId) -> bool {
        matches!(self.known.get(&id), Some(Known::Made(region)) if region.bytes.is_stored())
    }

    /// Has an open region hold records that something else has checked, as [`Regions::handle`]
    /// would, behind those that it holds: `bytes` of them, or those up to there in a mapping, when
    /// it is about to be sealed. `after` is the length held then.
    pub(crate) fn take_in(&mut self, id: RegionId, after: Extent, bytes: Sound<'_>) {
        let Some(Known::Made(region)) = self.known.get_mut(&id) else { return };
        let before = region.length();
        assert!(
            region.sealed_by.is_none() && (before..=region.bytes_max).contains(&after.length),
            "records behind those of an open region"
        );
        match bytes {
            Sound::Copied(bytes) => region.bytes.extend_from_slice(bytes),
            Sound::In(mapping, begin) => region.bytes.stay_in(mapping, begin, after.length as usize),
        }
        assert_eq!(region.length(), after.length, "all of them");
        (region.digest, region.committed) = (after.digest, after.committed);
        self.bytes_held += u64::from(after.length - before);
    }

    /// Takes bytes for a second copy of a region that has none, if there are so many;
    /// [`Regions::release`] gives them back.
    pub(crate) fn reserve(&mut self, id: RegionId, bytes: u64) -> bool {
        let is_free = self.bytes_taken.saturating_add(bytes) <= self.bytes_max;
        if is_free {
            self.bytes_taken += bytes;
            self.second.insert(id, bytes);
        }
        is_free
    }

    pub(crate) fn release(&mut self, id: RegionId) {
        self.bytes_taken -= self.second.remove(&id).unwrap_or(0);
    }

    /// What a second copy takes is never given back.
    pub(crate) fn lose(&mut self, id: RegionId) {
        self.second.remove(&id);
    }

    /// Ends the life but for what it holds: of one that was found on a disk, all of it (`is_whole`)
    /// or not.
    pub fn freeze(&mut self, is_whole: bool) {
        self.frozen = Some(if is_whole { Frozen::Whole } else { Frozen::Damaged });
        self.drain();
    }

    /// What a life that was found on a disk answers otherwise than one that goes on.
    fn answer_frozen(&self, frozen: Frozen, id: RegionId, body: &Body) -> Option<Answer> {
        let is_damaged = frozen == Frozen::Damaged && !is_enabled(Mutant::NodeTrustsDamagedDisk);
        match (body, self.known.get(&id)) {
            (Body::Create { .. } | Body::Append { .. }, _) => Some(Answer::Refused(Refusal::Draining)),
            (Body::Seal | Body::Read { .. }, Some(Known::Made(region)))
                if is_damaged && region.sealed_by.is_none() =>
            {
                Some(Answer::Refused(Refusal::Damaged { sound: region.length(), recorded: region.bytes_max }))
            }
            // What made a name that seems to have been sealed unseen may lie behind the damage:
            // cleaning notes regions behind their seals.
            (Body::Seal | Body::Read { .. }, None | Some(Known::Tombstone { .. })) if is_damaged => {
                Some(Answer::Refused(Refusal::Damaged { sound: 0, recorded: 0 }))
            }
            // Nothing is made here any more: no tombstone is needed, and no name to be remembered.
            (Body::Seal, None) => Some(Answer::Sealed(None)),
            (Body::Free, None) => Some(Answer::Freed),
            _ => None,
        }
    }

    /// Names of all that is known, in order.
    pub(crate) fn names(&self) -> Vec<RegionId> {
        let mut names: Vec<RegionId> = self.known.keys().copied().collect();
        names.sort_unstable();
        names
    }

    /// Requests that make a name what it is here, in a life that does not know it.
    pub(crate) fn rebuilt(&self, id: RegionId) -> Vec<Request> {
        let request = |epoch, body| Request { incarnation: self.incarnation, region: id, epoch, body };
        match self.known.get(&id) {
            None => Vec::new(),
            Some(Known::Freed) => vec![request(Epoch::NONE, Body::Free)],
            Some(Known::Tombstone { sealed_by }) => vec![request(*sealed_by, Body::Seal)],
            Some(Known::Made(region)) => {
                let Region { database, segment, owner, bytes_max, .. } = **region;
                let mut requests = vec![request(owner, Body::Create { database, segment, bytes_max })];
                requests.extend(region.pieces().map(|body| request(owner, body)));
                requests.extend(region.sealed_by.map(|epoch| request(epoch, Body::Seal)));
                requests
            }
        }
    }

    /// Carries out a request that a journal holds. The cleaning of a journal notes a region as it
    /// is then, perhaps behind a seal of it that was noted before: a region made again there is no
    /// more a name that was never seen.
    pub(crate) fn replay(&mut self, request: Request) {
        let is_unseen = matches!(self.known.get(&request.region), Some(Known::Tombstone { .. }));
        if is_unseen && matches!(request.body, Body::Create { .. }) {
            // Of one that was sealed unseen, making it was refused, and refusals are not noted.
            self.known.remove(&request.region);
        }
        self.handle(request);
    }

    /// Carries out one request, or refuses it: one step.
    pub fn handle(&mut self, request: Request) -> Answer {
        let Request { incarnation, region, epoch, body } = request;
        if incarnation != self.incarnation && !is_enabled(Mutant::RegionIgnoresIncarnation) {
            return Answer::Refused(Refusal::OtherIncarnation(self.incarnation));
        }
        if let Some(frozen) = self.frozen
            && let Some(answer) = self.answer_frozen(frozen, region, &body)
        {
            return answer;
        }
        // A name that cannot be kept must not be answered for.
        if self.known.len() >= self.names_max
            && !self.known.contains_key(&region)
            && !matches!(body, Body::Append { .. } | Body::Read { .. } | Body::Collect { .. })
        {
            return Answer::Refused(Refusal::Full(0));
        }
        let outcome = match body {
            Body::Create { database, segment, bytes_max } => {
                self.create(region, epoch, database, segment, bytes_max)
            }
            Body::Append { offset, predecessor, records } => {
                self.append(region, epoch, offset, predecessor, &records)
            }
            Body::Seal => self.seal(region, epoch),
            Body::Read { from, bytes_max } => self.read(region, epoch, from, bytes_max),
            Body::Free => self.free(region, epoch),
            Body::Collect { database, keep } => self.collect(epoch, database, &keep),
        };
        outcome.unwrap_or_else(Answer::Refused)
    }

    fn create(
        &mut self,
        id: RegionId,
        owner: Epoch,
        database: u64,
        segment: SegmentIdentity,
        bytes_max: u32,
    ) -> Result<Answer, Refusal> {
        let free = self.bytes_max.saturating_sub(self.bytes_taken);
        match self.known.entry(id) {
            Entry::Occupied(known) => match known.get() {
                Known::Freed => Err(Refusal::Freed),
                Known::Tombstone { sealed_by } => Err(Refusal::Sealed(*sealed_by)),
                Known::Made(region) if region.sealed_by.is_some() => {
                    Err(Refusal::Sealed(region.sealed_by.unwrap_or(owner)))
                }
                Known::Made(region)
                    if (region.owner, region.database, region.segment, region.bytes_max)
                        == (owner, database, segment, bytes_max) =>
                {
                    Ok(Answer::Held(region.extent()))
                }
                Known::Made(_) => Err(Refusal::OtherArguments),
            },
            Entry::Vacant(_) if self.is_draining => Err(Refusal::Draining),
            Entry::Vacant(_) if bytes_max > SEGMENT_RECORDS_BYTES_MAX || u64::from(bytes_max) > free => {
                Err(Refusal::Full(free))
            }
            Entry::Vacant(vacant) => {
                let digest = first_digest(database, &segment);
                // Memory is asked of the host as it is filled; the books take it whole, so that a
                // region never grows beyond the lent memory.
                let region = Region {
                    database,
                    segment,
                    owner,
                    bytes_max,
                    bytes: Held::Own(Vec::new()),
                    digest,
                    committed: 0,
                    sealed_by: None,
                };
                let extent = region.extent();
                vacant.insert(Known::Made(Box::new(region)));
                self.bytes_taken += u64::from(bytes_max);
                self.made += 1;
                Ok(Answer::Held(extent))
            }
        }
    }

    fn append(
        &mut self,
        id: RegionId,
        epoch: Epoch,
        offset: u32,
        predecessor: Digest,
        records: &[u8],
    ) -> Result<Answer, Refusal> {
        let region = match self.known.get_mut(&id) {
            None => return Err(Refusal::Unknown),
            Some(Known::Freed) => return Err(Refusal::Freed),
            Some(Known::Tombstone { sealed_by }) => return Err(Refusal::Sealed(*sealed_by)),
            Some(Known::Made(region)) => region,
        };
        if let Some(by) = region.sealed_by
            && !is_enabled(Mutant::RegionAppendsAfterSeal)
        {
            return Err(Refusal::Sealed(by));
        }
        if region.owner != epoch && !is_enabled(Mutant::RegionIgnoresEpoch) {
            return Err(Refusal::OtherEpoch(region.owner));
        }
        let before = region.length();
        region.append(offset, predecessor, records)?;
        self.bytes_held += u64::from(region.length() - before);
        Ok(Answer::Held(region.extent()))
    }

    /// Seals in the name of `epoch`, again if it was sealed in the name of an earlier one. A later
    /// epoch's seal stands, and refuses: the asker is superseded.
    fn seal(&mut self, id: RegionId, epoch: Epoch) -> Result<Answer, Refusal> {
        if is_enabled(Mutant::RegionForgetsUnknown) && !self.known.contains_key(&id) {
            return Ok(Answer::Sealed(None));
        }
        let (sealed_by, extent) = match self.known.entry(id).or_insert(Known::Tombstone { sealed_by: epoch })
        {
            Known::Freed => return Err(Refusal::Freed),
            Known::Tombstone { sealed_by } => (sealed_by, None),
            Known::Made(region) if epoch < region.owner => return Err(Refusal::OtherEpoch(region.owner)),
            Known::Made(region) => {
                let extent = region.extent();
                (region.sealed_by.get_or_insert(epoch), Some(extent))
            }
        };
        if *sealed_by > epoch && !is_enabled(Mutant::RegionSealEpochFalls) {
            return Err(Refusal::OtherEpoch(*sealed_by));
        }
        *sealed_by = epoch;
        Ok(Answer::Sealed(extent))
    }

    fn read(&self, id: RegionId, epoch: Epoch, from: u32, bytes_max: u32) -> Result<Answer, Refusal> {
        let region = match self.known.get(&id) {
            None => return Err(Refusal::Unknown),
            Some(Known::Freed) => return Err(Refusal::Freed),
            Some(Known::Tombstone { .. }) => return Ok(Answer::Bytes(Bytes::new())),
            Some(Known::Made(region)) => region,
        };
        let newest = region.sealed_by.unwrap_or(region.owner);
        // A follower reads in the name of no epoch, and fences nothing.
        if epoch < newest && epoch != Epoch::NONE {
            return Err(Refusal::OtherEpoch(newest));
        }
        Ok(Answer::Bytes(region.bytes.read(from, bytes_max)))
    }

    /// Frees in the name of `epoch`: only the maker of the region, or a later epoch that no other
    /// sealed it after.
    fn free(&mut self, id: RegionId, epoch: Epoch) -> Result<Answer, Refusal> {
        let known = self.known.entry(id).or_insert(Known::Freed);
        let newest = match known {
            Known::Freed => return Ok(Answer::Freed),
            Known::Tombstone { sealed_by } => *sealed_by,
            Known::Made(region) => region.sealed_by.unwrap_or(region.owner),
        };
        if epoch < newest && !is_enabled(Mutant::RegionFreedByStaleEpoch) {
            return Err(Refusal::OtherEpoch(newest));
        }
        if let Known::Made(region) = known {
            self.bytes_taken -= u64::from(region.bytes_max);
            self.bytes_held -= u64::from(region.length());
            self.made -= 1;
            self.wanted_back.remove(&id);
        }
        *known = Known::Freed;
        Ok(Answer::Freed)
    }

    /// Regions that older epochs of a database made, and that are not kept.
    pub(crate) fn garbage(&self, epoch: Epoch, database: u64, keep: &[RegionId]) -> Vec<RegionId> {
        let is_garbage = |(id, known): (&RegionId, &Known)| match known {
            Known::Made(region)
                if region.database == database && region.owner < epoch && !keep.contains(id) =>
            {
                Some(*id)
            }
            _ => None,
        };
        self.known.iter().filter_map(is_garbage).collect()
    }

    fn collect(&mut self, epoch: Epoch, database: u64, keep: &[RegionId]) -> Result<Answer, Refusal> {
        let garbage = self.garbage(epoch, database, keep);
        for id in garbage {
            // One that a later epoch has sealed is that one's to free.
            let _ = self.free(id, epoch);
        }
        Ok(Answer::Freed)
    }
}
