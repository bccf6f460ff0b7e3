//! Fills the regions of one segment and says how much is acknowledged. No IO: it is told outcomes
//! and the time, and says which calls to make and which configuration to publish.
//!
//! ```text
//! append ─▶ batches ─▶ calls ─▶ regions ─▶ outcomes ─▶ acknowledged
//!                        ▲
//! a region is lost ─▶ a fresh one on another node ─▶ catch-up ─▶ proposal ─▶ published ─▶ counted
//! ```
//!
//! The same machine copies what a takeover recovered to fresh regions: there all bytes are there
//! before the first region is. Old regions that hold exactly that count as fresh ones that have
//! caught up, once they have said so again: what they said when they were sealed is as old as the
//! fetch.
//!
//! Invariants:
//! 1. Only regions of the newest published configuration count; while another one is proposed, of
//!    unknown outcome included, those of both do, each by itself (rule 3). `acknowledged` never
//!    falls.
//! 2. A configuration is published only when all that is acknowledged, and all that was there at
//!    first, is on q of its regions, each of which has told this writer so.
//! 3. A region leaves only by a published configuration, and is freed only after that is known
//!    (rule 6).
//! 4. A byte that was sent never changes.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Instant;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{Digest, RECORD_HEADER_BYTES, RECORD_PAYLOAD_BYTES_MAX, first_digest};
use tombolo_storage::Epoch;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::batch::{BATCH_BYTES_WANTED, Batch, Batches};
use crate::call::{Call, CallId, Lost, Member, Node, Outcome, Shape};
use crate::message::{Answer, Body, Extent, NodeIncarnation, Refusal, RegionId, Request};
use crate::replica::{Phase, Replica, SILENCE};
use crate::slow;

/// Batches on their way at once, at most, before records wait for each other, so that each then
/// takes more of them.
const BATCHES_IN_FLIGHT_MAX: usize = 4;

/// About what a batch takes of a processor on its way to three nodes and back. Where nodes are no
/// farther than that, the next one had better gather more than go beside it: with 16 writers on one
/// host 1.6 times as many records a second as with four batches in flight.
const BATCH_COST: Duration = Duration::from_micros(25);

/// How long a first configuration waits for all its regions once it could do with fewer.
const SETTLE: Duration = Duration::from_millis(150);

/// A node that refused or lost a region is asked for none for so long, if there are others.
const AVOID: Duration = Duration::from_secs(1);

/// A region that nothing was sent to is asked whether it is there.
const IDLE: Duration = Duration::from_secs(5);

/// The segment, and its writer.
#[derive(Clone, Debug)]
pub struct Job {
    /// Regions wanted and needed.
    pub shape: Shape,
    /// The random number of the database.
    pub database: u64,
    /// Whose bytes they are.
    pub segment: SegmentIdentity,
    /// In whose name regions are made: that of the process.
    pub epoch: Epoch,
    /// Most bytes of the segment.
    pub bytes_max: u32,
    /// Names of regions count from here: 128 random bits.
    pub first_region: u128,
    /// How far nodes were found to be by earlier segments ([`Writer::distances`]).
    pub distances: Vec<(Arc<str>, Duration)>,
}

/// How publishing a configuration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It holds its slot.
    Known,
    /// Another's record does.
    Foreign,
    /// It may hold it, or may yet. The proposal stays, and wants to be published again.
    Unknown,
}

/// Why a writer stopped. Records in flight are of unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A region belongs to, or was sealed in the name of, this later epoch.
    Superseded(Epoch),
    /// Another's record holds the slot of a configuration.
    Foreign,
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Regions that count and answer.
    pub healthy: usize,
    /// Regions that must.
    pub needed: usize,
}

/// A configuration that is to be published.
#[derive(Debug)]
struct Proposal {
    replicas: Vec<u32>,
    /// It was handed out: it may be published from here on.
    is_out: bool,
    /// It wants to be handed out.
    is_wanted: bool,
}

/// A node, and until when it is left alone.
#[derive(Debug)]
struct Candidate {
    node: Node,
    avoid_until: Instant,
}

/// The writer of one segment.
#[derive(Debug)]
pub struct Writer {
    job: Job,
    batches: Batches,
    /// All up to here must be on q regions of whatever is published.
    needed: u32,
    acknowledged: u32,
    /// What a record last told of `acknowledged`, and where the last record ends that told more
    /// than that.
    told: u32,
    worth_telling: u32,
    replicas: BTreeMap<u32, Replica>,
    regions_made: u32,
    /// The newest configuration that is known to be published. Empty: there is none.
    configured: Vec<u32>,
    proposed: Option<Proposal>,
    nodes: Vec<Candidate>,
    settle_at: Option<Instant>,
    /// It began with q regions that hold all: no more are made.
    is_held: bool,
    ended: Option<Ended>,
    is_freed: bool,
    calls: Vec<Call>,
}

impl Writer {
    /// Of a segment that nothing is in yet.
    pub fn new(job: Job, nodes: &[Node]) -> Writer {
        let first = first_digest(job.database, &job.segment);
        Writer::with(job, Batches::new(first), nodes)
    }

    /// Has `records`, sound from byte 0 and with that digest, in q regions: in `holders`, which are
    /// sealed and hold exactly that, and in fresh ones that they are copied to where those are
    /// fewer. Nothing is appended behind them.
    pub fn copying(
        job: Job,
        records: &Bytes,
        digest: Digest,
        holders: Vec<Member>,
        nodes: &[Node],
    ) -> Writer {
        let first = first_digest(job.database, &job.segment);
        let is_held = holders.len() >= job.shape.quorum;
        let batches =
            if is_held { Batches::whole(first, records, digest) } else { Batches::of(first, records) };
        let mut writer = Writer::with(job, batches, nodes);
        writer.is_held = is_held;
        let (end, count) = (writer.batches.end(), writer.batches.count());
        for holder in holders {
            writer.replicas.insert(writer.regions_made, Replica::holding(holder, end, count));
            writer.regions_made += 1;
        }
        writer
    }

    fn with(job: Job, batches: Batches, nodes: &[Node]) -> Writer {
        let needed = batches.end();
        let mut writer = Writer {
            job,
            needed,
            told: 0,
            worth_telling: 0,
            batches,
            acknowledged: 0,
            replicas: BTreeMap::new(),
            regions_made: 0,
            configured: Vec::new(),
            proposed: None,
            nodes: Vec::new(),
            settle_at: None,
            is_held: false,
            ended: None,
            is_freed: false,
            calls: Vec::new(),
        };
        writer.set_nodes(nodes);
        writer
    }

    /// Nodes that regions may be made on from here on.
    pub fn set_nodes(&mut self, nodes: &[Node]) {
        let before = mem::take(&mut self.nodes);
        let until = |node: &Node| {
            before
                .iter()
                .find(|known| known.node.address == node.address)
                .map_or(Instant::from_nanos(0), |known| known.avoid_until)
        };
        self.nodes =
            nodes.iter().map(|node| Candidate { avoid_until: until(node), node: node.clone() }).collect();
    }

    /// Which segment it is.
    pub fn segment(&self) -> &SegmentIdentity {
        &self.job.segment
    }

    /// The byte behind the last record.
    pub fn end(&self) -> u32 {
        self.batches.end()
    }

    /// The digest of all records.
    pub fn digest(&self) -> Digest {
        self.batches.digest()
    }

    /// All before this byte is acknowledged.
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged
    }

    /// Whether no record tells yet how much is acknowledged.
    pub fn has_untold(&self) -> bool {
        self.told < self.acknowledged.min(self.worth_telling)
    }

    /// Why it stopped, if it did.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Bytes that records may take, headers included.
    pub fn room(&self) -> u32 {
        self.job.bytes_max - self.batches.end()
    }

    /// Whether a record with so much payload has room.
    pub fn has_room(&self, payload_bytes: usize) -> bool {
        payload_bytes <= RECORD_PAYLOAD_BYTES_MAX
            && payload_bytes + RECORD_HEADER_BYTES <= self.room() as usize
    }

    /// Adds a record, whose payload is `head` and then `parts`. Returns the byte behind it.
    ///
    /// # Panics
    /// When it has no room.
    pub fn append(&mut self, head: &[u8], parts: &[&[u8]], now: Instant) -> u32 {
        let end = self.tell(head, parts, now);
        self.worth_telling = end;
        end
    }

    /// As [`Writer::append`], of a record that is there for what its header tells of: it is not
    /// worth another one.
    ///
    /// # Panics
    /// When it has no room.
    pub fn tell(&mut self, head: &[u8], parts: &[&[u8]], now: Instant) -> u32 {
        let bytes = head.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        assert!(self.has_room(bytes), "a record beyond the segment's end");
        if is_enabled(Mutant::SegmentSendsOtherBytes)
            && self.batches.open_bytes() == 0
            && self.replicas.values().any(Replica::has_failed)
        {
            self.take_back_unheard();
        }
        self.batches.append(self.acknowledged, head, parts);
        self.told = self.acknowledged;
        self.pump(now);
        self.batches.end()
    }

    /// What a writer would do who takes what no region has answered for as never sent: another
    /// record gets its place.
    #[cold]
    fn take_back_unheard(&mut self) {
        let heard = self.replicas.values().map(|replica| replica.held).max().unwrap_or(0);
        self.batches.take_back(heard.max(self.acknowledged).max(self.needed));
        let count = self.batches.count();
        self.replicas.values_mut().for_each(|replica| replica.next = replica.next.min(count));
    }

    /// All records that were sent or may be, in order.
    pub fn records(&mut self) -> Vec<Bytes> {
        self.batches.close();
        self.batches.records()
    }

    /// As [`Writer::take_calls`], one after the other.
    pub fn drain_calls(&mut self) -> impl Iterator<Item = Call> {
        self.calls.drain(..)
    }

    /// Calls to make, in this order.
    pub fn take_calls(&mut self) -> Vec<Call> {
        mem::take(&mut self.calls)
    }

    /// Whether a configuration is known to be published.
    pub fn is_configured(&self) -> bool {
        !self.configured.is_empty()
    }

    /// The regions of the newest configuration that is known to be published.
    pub fn configured(&self) -> Vec<Member> {
        self.members(&self.configured)
    }

    /// A configuration to publish. From here on it may be, until [`Writer::published`] says what
    /// came of it.
    pub fn take_proposal(&mut self) -> Option<Vec<Member>> {
        let proposal = self.proposed.as_mut().filter(|proposal| proposal.is_wanted)?;
        (proposal.is_wanted, proposal.is_out) = (false, true);
        let replicas = proposal.replicas.clone();
        if is_enabled(Mutant::SegmentFreedBeforePublished) {
            let leaving: Vec<u32> =
                self.configured.iter().copied().filter(|id| !replicas.contains(id)).collect();
            leaving.into_iter().for_each(|id| self.free(id));
        }
        Some(self.members(&replicas))
    }

    /// Asks old regions that the proposal keeps once more whether they hold all. Until they have
    /// answered there is no proposal.
    pub fn confirm_again(&mut self, now: Instant) {
        let Some(proposal) = self.proposed.as_mut().filter(|proposal| !proposal.is_out) else { return };
        proposal.is_wanted = false;
        for id in &proposal.replicas {
            self.replicas.entry(*id).and_modify(|replica| replica.confirmed_at = None);
        }
        self.look(now);
    }

    /// Since when an old region that the proposal keeps may have been lost without a word; `None`
    /// when it keeps none.
    pub fn confirmed_at(&self) -> Option<Instant> {
        let replicas = self.proposed.iter().flat_map(|proposal| &proposal.replicas);
        replicas.filter_map(|id| self.replicas.get(id)?.confirmed_at).min()
    }

    /// Whether a configuration wants to be published.
    pub fn has_proposal(&self) -> bool {
        self.proposed.as_ref().is_some_and(|proposal| proposal.is_wanted)
    }

    /// What came of publishing the proposal.
    pub fn published(&mut self, outcome: Published, now: Instant) {
        if self.ended.is_some() || self.proposed.is_none() {
            return;
        }
        match outcome {
            Published::Foreign if !is_enabled(Mutant::SegmentForeignRecordIgnored) => {
                self.ended = Some(Ended::Foreign);
            }
            Published::Unknown if is_enabled(Mutant::SegmentUnknownTakenAsFailed) => self.proposed = None,
            Published::Unknown => self.proposed.iter_mut().for_each(|proposal| proposal.is_wanted = true),
            Published::Known | Published::Foreign => {
                let replicas = self.proposed.take().map_or_else(Vec::new, |proposal| proposal.replicas);
                let before = mem::replace(&mut self.configured, replicas);
                for replica in before {
                    if !self.configured.contains(&replica) {
                        self.free(replica);
                    }
                }
            }
        }
        self.look(now);
    }

    /// What came of a call.
    pub fn answered(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        let Some(replica) = self.replicas.get_mut(&id.replica).filter(|replica| replica.is_about(id.number))
        else {
            return;
        };
        match outcome {
            Err(Lost) => {
                if replica.lost(id.number, now) {
                    replica.next = self.batches.at(replica.held).map_or(0, |(number, _)| number);
                }
            }
            Ok(answer) => {
                let was_well = replica.is_healthy(now) && !replica.has_failed();
                let end = replica.answered(id.number, now);
                self.heard(id.replica, &answer, end, now);
                if was_well && self.is_routine(id.replica) {
                    self.acknowledge();
                    return self.pump(now);
                }
            }
        }
        self.look(now);
    }

    /// Whether nothing is to be arranged after a word of this region, which was well before: it is
    /// well still, and all regions that are wanted are there and published. What time changes about
    /// the others is looked at as it passes.
    fn is_routine(&self, id: u32) -> bool {
        let is_complete =
            self.configured.len() >= self.job.shape.copies && self.replicas.len() == self.configured.len();
        let is_live = || {
            self.replicas.get(&id).is_some_and(|replica| replica.phase == Phase::Live && !replica.is_holder)
        };
        is_complete && self.proposed.is_none() && self.ended.is_none() && !self.is_freed && is_live()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        let late: Vec<u32> = self
            .replicas
            .iter_mut()
            .filter_map(|(id, replica)| replica.give_up_waiting(now).then_some(*id))
            .collect();
        for id in late {
            self.rewind(id);
        }
        // Neither one that was never made nor one that does not say again what it holds is waited
        // for.
        let never_made = |replica: &Replica| {
            (replica.phase == Phase::Creating || replica.phase == Phase::Live && replica.is_unconfirmed())
                && replica.is_silent(now)
        };
        let silent: Vec<u32> =
            self.replicas.iter().filter(|(_, replica)| never_made(replica)).map(|(id, _)| *id).collect();
        for id in silent {
            self.gone(id, now);
        }
        let idle: Vec<u32> = self
            .replicas
            .iter()
            .filter(|(_, replica)| replica.phase == Phase::Live && replica.is_idle(now, IDLE))
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.probe(id, now);
        }
        slow::judge(&mut self.replicas, &self.configured, self.job.shape.quorum, now);
        self.look(now);
    }

    /// Whether time alone may change something soon.
    pub fn is_busy(&self) -> bool {
        let is_complete = self.configured.len() >= self.job.shape.copies.min(self.nodes.len());
        let is_unhealthy = |id: &u32| {
            self.replicas.get(id).is_none_or(|replica| replica.phase != Phase::Live || replica.is_waiting())
        };
        self.ended.is_none()
            && (!is_complete || self.proposed.is_some() || self.configured.iter().any(is_unhealthy))
    }

    /// How many regions answer, and how many must.
    pub fn standing(&self, now: Instant) -> Standing {
        let replicas = if self.configured.is_empty() {
            self.replicas.keys().copied().collect()
        } else {
            self.configured.clone()
        };
        let healthy = replicas.iter().filter(|id| self.is_healthy(**id, now)).count();
        Standing { healthy, needed: self.job.shape.quorum }
    }

    /// Nodes of regions that should answer and do not.
    pub fn silent(&self, now: Instant) -> Vec<Arc<str>> {
        let is_silent =
            |(id, replica): &(&u32, &Replica)| !self.is_healthy(**id, now) && replica.is_silent(now);
        self.replicas.iter().filter(is_silent).map(|(_, replica)| Arc::clone(&replica.member.node)).collect()
    }

    /// Nodes of regions that answer much later than the others, for long: they are replaced where
    /// there are others.
    pub fn slow(&self) -> impl Iterator<Item = &Arc<str>> {
        self.replicas.values().filter(|replica| replica.is_slow).map(|replica| &replica.member.node)
    }

    /// The regions of which q must say that they are not sealed before it is known that nobody has
    /// taken over: of each configuration that may be the newest.
    pub fn may_be_newest(&self) -> Vec<Vec<Member>> {
        let proposed = self
            .proposed
            .as_ref()
            .filter(|proposal| proposal.is_out)
            .map(|proposal| self.members(&proposal.replicas));
        std::iter::once(self.members(&self.configured)).chain(proposed).collect()
    }

    /// Frees all its regions: nothing of it is needed any more, as a durable record says.
    pub fn free_all(&mut self) {
        self.is_freed = true;
        for id in self.replicas.keys().copied().collect::<Vec<_>>() {
            self.free(id);
        }
    }

    /// The node of a region wants its memory back: it is replaced as soon as another one holds all,
    /// and counts until then.
    pub fn give_back(&mut self, region: RegionId, now: Instant) {
        for replica in self.replicas.values_mut().filter(|replica| replica.member.region == region) {
            replica.is_wanted_back = true;
        }
        self.look(now);
    }

    /// Frees regions that it made and that no configuration names: nothing more is copied.
    pub fn free_unnamed(&mut self) {
        let named = |id: &u32| {
            self.configured.contains(id)
                || self.proposed.as_ref().is_some_and(|proposal| proposal.replicas.contains(id))
        };
        for id in self.replicas.keys().copied().filter(|id| !named(id)).collect::<Vec<_>>() {
            self.free(id);
        }
    }

    fn is_healthy(&self, id: u32, now: Instant) -> bool {
        self.replicas.get(&id).is_some_and(|replica| replica.is_healthy(now))
    }

    fn is_wanted_back(&self, id: u32) -> bool {
        self.replicas.get(&id).is_some_and(|replica| replica.is_wanted_back || replica.is_slow)
    }

    fn members(&self, replicas: &[u32]) -> Vec<Member> {
        replicas.iter().filter_map(|id| self.replicas.get(id)).map(|replica| replica.member.clone()).collect()
    }

    /// A node's word about a region, after it was sent records up to `end`, or none and 0.
    fn heard(&mut self, id: u32, answer: &Answer, end: u32, now: Instant) {
        match answer {
            Answer::Held(extent) => self.held(id, *extent, end, now),
            Answer::Refused(refusal) => self.refused(id, *refusal, now),
            Answer::Sealed(extent) => self.confirmed(id, *extent, now),
            // What nobody asked for says nothing.
            Answer::Bytes(_) | Answer::Freed => {}
        }
    }

    fn held(&mut self, id: u32, extent: Extent, end: u32, now: Instant) {
        let known = self.batches.at(extent.length);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        match known {
            // A node answers an append once it holds all of it: this one would never hold more.
            _ if extent.length < end => return self.gone(id, now),
            // A region that holds bytes never sent, or other bytes, is not to be believed.
            Some((_, digest)) if digest == extent.digest => {}
            // A node that looked while a batch was stored says what it found of it, until it has a
            // reason to look again, which an append is: it has said more already.
            None if extent.length < replica.held => return,
            _ => return self.gone(id, now),
        }
        replica.held = replica.held.max(extent.length);
        if replica.phase == Phase::Creating {
            replica.phase = Phase::Live;
        }
    }

    /// An old region says again what it holds.
    fn confirmed(&mut self, id: u32, extent: Option<Extent>, now: Instant) {
        let all = (self.batches.end(), self.batches.digest());
        let Some(replica) = self.replicas.get_mut(&id).filter(|replica| replica.is_holder) else { return };
        if extent.is_some_and(|extent| (extent.length, extent.digest) == all) {
            replica.confirmed_at = Some(now);
        } else {
            self.gone(id, now);
        }
    }

    fn refused(&mut self, id: u32, refusal: Refusal, now: Instant) {
        let own = self.job.epoch;
        let batch = if let Refusal::Gap(length) = refusal { self.batches.at(length) } else { None };
        let is_here = |life| {
            self.replicas.iter().any(|(other, replica)| {
                *other != id && replica.phase != Phase::Gone && replica.member.incarnation == life
            })
        };
        // Two names of one node: what it holds twice goes with it at once.
        if let Refusal::OtherIncarnation(current) = refusal
            && is_here(current)
        {
            return self.gone(id, now);
        }
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        match refusal {
            Refusal::Sealed(by) | Refusal::OtherEpoch(by) if by > own => {
                self.ended.get_or_insert(Ended::Superseded(by));
            }
            Refusal::OtherIncarnation(current) if replica.phase == Phase::Creating => {
                // Nothing of it was made: a name that was seen nowhere.
                replica.rename(
                    current,
                    RegionId(self.job.first_region.wrapping_add(u128::from(self.regions_made))),
                );
                self.regions_made += 1;
                self.create(id, now);
            }
            Refusal::Gap(length) if length >= replica.held && batch.is_some() => {
                replica.next = replica.next.min(batch.map_or(0, |(number, _)| number));
            }
            _ => self.gone(id, now),
        }
    }

    /// A region counts no more.
    fn gone(&mut self, id: u32, now: Instant) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        replica.phase = Phase::Gone;
        let (address, is_holder) = (Arc::clone(&replica.member.node), replica.is_holder);
        for candidate in self.nodes.iter_mut().filter(|candidate| candidate.node.address == address) {
            candidate.avoid_until = now + AVOID;
        }
        if !self.configured.contains(&id)
            && self.proposed.as_ref().is_none_or(|proposal| !proposal.replicas.contains(&id))
        {
            self.free(id);
        }
        let left = self
            .replicas
            .values()
            .filter(|replica| replica.is_holder && replica.phase == Phase::Live)
            .count();
        if is_holder && self.is_held && left < self.job.shape.quorum {
            self.copy_after_all();
        }
    }

    /// Too few old regions hold all: one large piece is sent in pieces that a request may carry.
    fn copy_after_all(&mut self) {
        self.is_held = false;
        let first = first_digest(self.job.database, &self.job.segment);
        let records: Vec<Bytes> = self.batches.records();
        if let [records] = &records[..] {
            self.batches = Batches::of(first, records);
        }
        let count = self.batches.count();
        self.replicas.values_mut().for_each(|replica| replica.next = count);
    }

    fn rewind(&mut self, id: u32) {
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.next = self.batches.at(replica.held).map_or(0, |(number, _)| number);
        }
    }

    /// All up to this byte is on q of these.
    fn reach(&self, replicas: &[u32]) -> u32 {
        let counted = || replicas.iter().filter_map(|id| self.replicas.get(id)).map(Replica::counted);
        let quorum = self.job.shape.quorum - usize::from(is_enabled(Mutant::SegmentAcknowledgesWithFewer));
        // They are few, and asked after each answer: no list is made of them.
        counted().filter(|held| counted().filter(|other| other >= held).count() >= quorum).max().unwrap_or(0)
    }

    /// Looks at what has changed.
    fn look(&mut self, now: Instant) {
        if self.ended.is_some() || self.is_freed {
            return;
        }
        self.acknowledge();
        self.arrange(now);
        self.pump(now);
    }

    fn acknowledge(&mut self) {
        if self.configured.is_empty() {
            return;
        }
        let mut reach = self.reach(&self.configured);
        if let Some(proposal) = &self.proposed {
            let of_new = self.reach(&proposal.replicas);
            reach = match () {
                () if is_enabled(Mutant::SegmentChangeCountsOldOnly) => reach,
                () if is_enabled(Mutant::SegmentChangeCountsNewOnly) => of_new,
                () => reach.min(of_new),
            };
        }
        self.acknowledged = self.acknowledged.max(reach);
    }

    /// Asks for regions that are missing, and proposes those that have caught up.
    fn arrange(&mut self, now: Instant) {
        if let Some(proposal) = &self.proposed {
            if !proposal.is_out {
                let is_sound = proposal
                    .replicas
                    .iter()
                    .all(|id| self.replicas.get(id).is_some_and(|replica| replica.phase == Phase::Live));
                let reach = self.reach(&proposal.replicas);
                if !is_sound {
                    // Nobody has seen it.
                    self.forget_proposal();
                } else if reach >= self.acknowledged.max(self.needed)
                    || is_enabled(Mutant::SegmentPublishedBeforeCaughtUp)
                {
                    let is_confirmed = self.ask_holders(now);
                    self.proposed.iter_mut().for_each(|proposal| proposal.is_wanted = is_confirmed);
                    return;
                }
            }
            if self.proposed.is_some() {
                return;
            }
        }
        let copies = self.job.shape.copies;
        let keep: Vec<u32> = self
            .configured
            .iter()
            .copied()
            .filter(|id| self.is_healthy(*id, now) && !self.is_wanted_back(*id))
            .collect();
        let fresh: Vec<u32> =
            self.replicas.iter().filter(|(id, _)| !self.configured.contains(id)).map(|(id, _)| *id).collect();
        let wanted = if self.is_held { 0 } else { copies };
        for _ in keep.len() + fresh.len()..wanted {
            if !self.ask(now) {
                break;
            }
        }
        let least = if is_enabled(Mutant::SegmentPublishedBeforeCaughtUp) {
            0
        } else {
            self.acknowledged.max(self.needed)
        };
        let caught_up = |id: &u32| {
            self.is_healthy(*id, now) && self.replicas.get(id).is_some_and(|replica| replica.held >= least)
        };
        let ready: Vec<u32> =
            fresh.iter().copied().filter(caught_up).take(copies - keep.len().min(copies)).collect();
        let proposed: Vec<u32> = keep.iter().chain(&ready).copied().collect();
        if ready.is_empty() || proposed.len() < self.job.shape.quorum || !self.is_settled(&proposed, now) {
            return;
        }
        // From here on acknowledged records are on q of both (rule 3); then it is looked whether
        // all before is, too.
        self.proposed = Some(Proposal { replicas: proposed, is_out: false, is_wanted: false });
        self.arrange(now);
    }

    /// Drops a proposal that was not handed out, with those of its regions that are lost.
    fn forget_proposal(&mut self) {
        let replicas = self.proposed.take().map_or_else(Vec::new, |proposal| proposal.replicas);
        let is_gone = |id: &u32| self.replicas.get(id).is_some_and(|replica| replica.phase == Phase::Gone);
        let lost: Vec<u32> =
            replicas.into_iter().filter(|id| is_gone(id) && !self.configured.contains(id)).collect();
        lost.into_iter().for_each(|id| self.free(id));
    }

    /// Asks the old regions of the proposal that have not said again that they hold all. Whether
    /// there are none.
    fn ask_holders(&mut self, now: Instant) -> bool {
        let replicas = self.proposed.iter().flat_map(|proposal| &proposal.replicas);
        let is_asked = |id: &&u32| self.replicas.get(id).is_some_and(Replica::is_unconfirmed);
        let unconfirmed: Vec<u32> = replicas.filter(is_asked).copied().collect();
        for id in &unconfirmed {
            let may_ask = |replica: &Replica| !replica.is_waiting() && replica.may_send(now);
            if self.replicas.get(id).is_some_and(may_ask) {
                self.send(*id, Body::Seal, 0, now);
            }
        }
        unconfirmed.is_empty() || is_enabled(Mutant::SegmentHoldersNotAskedAgain)
    }

    /// Whether the first configuration need not wait for more regions than these.
    fn is_settled(&mut self, regions: &[u32], now: Instant) -> bool {
        let is_hoped_for = |(id, replica): (&u32, &Replica)| {
            !regions.contains(id) && replica.phase != Phase::Gone && !replica.has_failed()
        };
        if !self.configured.is_empty()
            || regions.len() >= self.job.shape.copies
            || !self.replicas.iter().any(is_hoped_for)
        {
            return true;
        }
        now >= *self.settle_at.get_or_insert(now + SETTLE)
    }

    /// Asks a node for a fresh region: one that has none of this segment, in a domain that has
    /// none, if there is such a one.
    fn ask(&mut self, now: Instant) -> bool {
        let used = |node: &Node| {
            self.replicas
                .values()
                .any(|replica| replica.phase != Phase::Gone && replica.member.node == node.address)
        };
        // A region that is to leave leaves its domain to the one that takes its place.
        let stays = |(id, replica): (&u32, &Replica)| {
            replica.phase != Phase::Gone && !self.is_wanted_back(*id) && !replica.is_silent(now)
        };
        let staying: Vec<&Arc<str>> =
            self.replicas.iter().filter(|one| stays(*one)).map(|(_, replica)| &replica.member.node).collect();
        let may_be_shared = |domain: &Arc<str>| {
            domain.is_empty()
                || self
                    .nodes
                    .iter()
                    .any(|Candidate { node, .. }| node.domain == *domain && staying.contains(&&node.address))
        };
        let count = self.nodes.len();
        let turn = self.job.segment.segment as usize;
        let chosen = (0..count)
            .map(|step| (turn + step) % count)
            .filter(|at| !used(&self.nodes[*at].node) && self.nodes[*at].avoid_until <= now)
            .min_by_key(|at| may_be_shared(&self.nodes[*at].node.domain));
        let Some(chosen) = chosen else { return false };
        let node = Arc::clone(&self.nodes[chosen].node.address);
        let region = RegionId(self.job.first_region.wrapping_add(u128::from(self.regions_made)));
        let id = self.regions_made;
        self.regions_made += 1;
        // A life that no node has: the refusal tells the one that it has.
        let distance = self.known_distance(&node);
        let member = Member { node, incarnation: NodeIncarnation(0), region };
        self.replicas.insert(id, Replica::new(member, distance, now));
        self.create(id, now);
        true
    }

    fn create(&mut self, id: u32, now: Instant) {
        let Job { database, segment, bytes_max, .. } = self.job;
        self.send(id, Body::Create { database, segment, bytes_max }, 0, now);
    }

    fn probe(&mut self, id: u32, now: Instant) {
        self.send(
            id,
            Body::Append {
                offset: 0,
                predecessor: first_digest(self.job.database, &self.job.segment),
                records: Bytes::new(),
            },
            0,
            now,
        );
    }

    /// Makes a call, which appends records up to `end`, or none and 0.
    fn send(&mut self, id: u32, body: Body, end: u32, now: Instant) {
        let epoch = self.job.epoch;
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let number = replica.sent(end, now);
        let request =
            Request { incarnation: replica.member.incarnation, region: replica.member.region, epoch, body };
        self.calls.push(Call {
            id: CallId { replica: id, number },
            node: Arc::clone(&replica.member.node),
            request,
        });
    }

    /// Gives a region's memory back; what comes of it nobody waits for.
    fn free(&mut self, id: u32) {
        let Some(Replica { member, .. }) = self.replicas.remove(&id).filter(|replica| !replica.is_holder)
        else {
            return;
        };
        let request = Request {
            incarnation: member.incarnation,
            region: member.region,
            epoch: self.job.epoch,
            body: Body::Free,
        };
        self.calls.push(Call { id: CallId::nobodys(), node: member.node, request });
    }

    /// Sends what may be sent.
    fn pump(&mut self, now: Instant) {
        if self.ended.is_some() || self.is_freed {
            return;
        }
        if self.batches.open_bytes() > 0 {
            let in_flight =
                self.batches.count() - self.batches.at(self.acknowledged).map_or(0, |(number, _)| number);
            if in_flight == 0
                || self.batches.open_bytes() >= BATCH_BYTES_WANTED
                || in_flight < self.batches_in_flight_max()
            {
                self.batches.close();
            }
        }
        let mut from = 0;
        while let Some((&id, _)) = self.replicas.range(from..).next() {
            self.feed(id, now);
            from = id + 1;
        }
    }

    /// How many batches are worth sending before one is answered: as many as there is time for.
    fn batches_in_flight_max(&self) -> usize {
        let Some(distance) = self.distance() else { return BATCHES_IN_FLIGHT_MAX };
        let fit = distance.as_nanos() / BATCH_COST.as_nanos();
        usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, BATCHES_IN_FLIGHT_MAX)
    }

    /// How far q of the regions' nodes are. `None`: it is not known yet.
    fn distance(&self) -> Option<Duration> {
        let least = || self.configured.iter().filter_map(|id| self.replicas.get(id)?.pace.least);
        least().filter(|far| least().filter(|other| other <= far).count() >= self.job.shape.quorum).min()
    }

    /// How far each of the nodes is, of those that are known: the shortest time in which it has
    /// ever answered, for the segment that follows. Under load all answers are late, and a segment
    /// that begins then would take near nodes for far ones.
    pub fn distances(&self) -> Vec<(Arc<str>, Duration)> {
        let found = |node: &Arc<str>| {
            let here = self
                .replicas
                .values()
                .filter(|replica| replica.member.node == *node)
                .filter_map(|replica| replica.pace.least);
            here.chain(self.known_distance(node)).min()
        };
        self.nodes
            .iter()
            .filter_map(|Candidate { node, .. }| Some((Arc::clone(&node.address), found(&node.address)?)))
            .collect()
    }

    fn known_distance(&self, node: &Arc<str>) -> Option<Duration> {
        self.job.distances.iter().find(|(known, _)| known == node).map(|(_, distance)| *distance)
    }

    fn feed(&mut self, id: u32, now: Instant) {
        while let Some(replica) = self.replicas.get_mut(&id).filter(|replica| replica.may_send(now)) {
            if replica.phase == Phase::Creating {
                if !replica.is_waiting() {
                    self.create(id, now);
                }
                return;
            }
            let Some(Batch { start, predecessor, records, end, .. }) =
                self.batches.get(replica.next).cloned()
            else {
                return;
            };
            replica.next += 1;
            self.send(id, Body::Append { offset: start, predecessor, records }, end, now);
        }
    }
}

#[cfg(test)]
mod tests;

/// The time after which a region that says nothing counts as lost.
pub const SILENCE_MAX: Duration = SILENCE;
