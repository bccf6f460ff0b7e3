//! A process: claims, takes the logs of older epochs over, writes its own, until it learns that it
//! is fenced.

use tombolo_env::Instant;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::Digest;
use tombolo_segment::call::{Call, CallId, Member, Node, Outcome, Shape};
use tombolo_segment::message::{Body, Request};
use tombolo_segment::takeover::{Progress, Recovery, Takeover};
use tombolo_segment::writer::{Job, Published, Writer};
use tombolo_storage::Epoch;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::chain::{Chain, Newest, Record};
use super::checker::Checker;
use crate::failure::Violation;
use crate::random::Random;

/// Which machine of a process a call belongs to: the number of the log, and whether it is the
/// takeover's seal and fetch.
pub(super) type Tag = (u64, bool);

/// Most bytes of a segment here.
const BYTES_MAX: u32 = 64 << 10;

pub(super) const DATABASE: u64 = 77;

pub(super) fn identity(log: u64) -> SegmentIdentity {
    SegmentIdentity { incarnation: 1, epoch: log, lane: 0, segment: 0 }
}

/// An older log on its way to being served.
#[derive(Debug)]
enum Old {
    Recovering { takeover: Takeover, members: Vec<Member> },
    Copying { writer: Writer, members: Vec<Member>, length: u32, digest: Digest },
    Served,
}

/// A record that may be on its way.
#[derive(Clone, Debug)]
pub(super) struct Put {
    pub(super) slot: u64,
    pub(super) attempt: u64,
    pub(super) record: Record,
    pub(super) log: u64,
    /// So much of the log must be on q of the regions that it names.
    pub(super) needed: u32,
}

/// What a process says: calls by machine, and a record.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) calls: Vec<(Tag, Call)>,
    pub(super) put: Option<Put>,
}

/// A process's life.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) epoch: u64,
    /// The newest slot that it knows.
    tip: u64,
    old: Vec<(u64, Old)>,
    own: Option<Writer>,
    /// The log that its own writer is of: that of its epoch.
    own_log: u64,
    put: Option<Put>,
    shape: Shape,
    nodes: Vec<Node>,
    random: Random,
    /// A log of which it found that too much was lost.
    pub(super) blocked: Option<u64>,
    pub(super) has_ended: bool,
    pub(super) is_paused: bool,
}

impl Process {
    /// Claims on top of the chain.
    pub(super) fn begin(chain: &mut Chain, shape: Shape, nodes: &[Node], random: Random) -> Process {
        let before = chain.tip();
        let seals_first = is_enabled(Mutant::SegmentSealsBeforeClaim);
        let epoch = if seals_first { before + 1 } else { chain.claim() };
        // The state before the claim lacks what older epochs publish later.
        let known =
            if is_enabled(Mutant::SegmentListsBeforeClaim) { before.saturating_sub(1) } else { before };
        let old = chain.logs(known).into_iter().map(|(log, members, settled)| {
            let recovery = Recovery {
                shape,
                database: DATABASE,
                segment: identity(log),
                epoch: Epoch(epoch),
                settled,
                is_mark: |_| false,
            };
            (log, Old::Recovering { takeover: Takeover::new(recovery, members.clone()), members })
        });
        Process {
            epoch,
            tip: if seals_first { before } else { epoch },
            old: old.collect(),
            own: None,
            own_log: epoch,
            put: None,
            shape,
            nodes: nodes.to_vec(),
            random,
            blocked: None,
            has_ended: false,
            is_paused: false,
        }
    }

    /// Whether its epoch has begun: always, but with a mutant.
    fn has_claimed(&self) -> bool {
        self.tip >= self.epoch
    }

    /// What one would do who seals in the name of an epoch that has not begun: it claims when all
    /// is sealed, on top of whatever was published meanwhile.
    pub(super) fn claim_late(&mut self, chain: &mut Chain) {
        if !self.has_claimed() && !self.old.iter().any(|(_, old)| matches!(old, Old::Recovering { .. })) {
            self.epoch = chain.claim();
            (self.tip, self.own_log) = (self.epoch, self.epoch);
        }
    }

    fn job(&mut self, log: u64) -> Job {
        let fresh = u128::from(self.random.next()) << 64;
        let first_region =
            if is_enabled(Mutant::SegmentRegionNamesRepeated) { u128::from(log) << 64 } else { fresh };
        Job {
            shape: self.shape,
            database: DATABASE,
            segment: identity(log),
            epoch: Epoch(self.epoch),
            bytes_max: BYTES_MAX,
            first_region,
            distances: Vec::new(),
        }
    }

    /// Whether all older logs are served.
    pub(super) fn is_serving(&self) -> bool {
        self.old.iter().all(|(_, old)| matches!(old, Old::Served))
    }

    /// Appends a record, if it is that far.
    pub(super) fn append(&mut self, checker: &mut Checker, now: Instant) {
        let (epoch, log) = (self.epoch, self.own_log);
        let payload = [self.random.next().to_le_bytes(), epoch.to_le_bytes()].concat();
        let bytes = 1 + self.random.index(payload.len());
        if let Some(own) = self.own.as_mut().filter(|own| own.ended().is_none() && own.has_room(bytes)) {
            let end = own.append(&payload[..bytes], &[], now);
            checker.written(log, end, own.digest());
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        for (_, old) in &mut self.old {
            match old {
                Old::Recovering { takeover, .. } => takeover.tick(now),
                Old::Copying { writer, .. } => writer.tick(now),
                Old::Served => {}
            }
        }
        if let Some(own) = &mut self.own {
            own.tick(now);
        }
    }

    pub(super) fn answered(&mut self, (log, is_takeover): Tag, id: CallId, outcome: Outcome, now: Instant) {
        if log == self.own_log && !is_takeover {
            if let Some(own) = &mut self.own {
                own.answered(id, outcome, now);
            }
            return;
        }
        match self.old.iter_mut().find(|(of, _)| *of == log) {
            Some((_, Old::Recovering { takeover, .. })) if is_takeover => takeover.answered(id, outcome, now),
            Some((_, Old::Copying { writer, .. })) if !is_takeover => writer.answered(id, outcome, now),
            _ => {}
        }
    }

    /// What came of a put that this process made.
    pub(super) fn put_ended(
        &mut self,
        attempt: u64,
        outcome: Published,
        checker: &mut Checker,
        now: Instant,
    ) -> Result<(), Violation> {
        let Some(put) = self.put.clone().filter(|put| put.attempt == attempt) else { return Ok(()) };
        if outcome == Published::Known {
            self.tip = put.slot;
        }
        if outcome != Published::Unknown || is_enabled(Mutant::SegmentUnknownTakenAsFailed) {
            self.put = None;
        }
        if put.log == self.own_log {
            if let Some(own) = &mut self.own {
                own.published(outcome, now);
            }
            return Ok(());
        }
        let Some((log, old)) = self.old.iter_mut().find(|(of, _)| *of == put.log) else { return Ok(()) };
        if let Old::Copying { writer, length, digest, .. } = old {
            writer.published(outcome, now);
            if outcome == Published::Known {
                return checker.served(*log, *length, *digest);
            }
        }
        Ok(())
    }

    /// Goes on as far as it can. What it says is to be sent.
    pub(super) fn step(&mut self, checker: &mut Checker, now: Instant) -> Result<Said, Violation> {
        let mut said = Said::default();
        for at in 0..self.old.len() {
            self.step_old(at, &mut said, checker, now)?;
        }
        if self.own.is_none() && self.is_serving() && self.has_claimed() {
            let job = self.job(self.epoch);
            let mut own = Writer::new(job, &self.nodes);
            own.tick(now);
            self.own = Some(own);
        }
        let log = self.own_log;
        if let Some(own) = &mut self.own {
            checker.acknowledged(log, own.acknowledged())?;
            if own.has_proposal()
                && (self.put.is_none() || self.put.as_ref().is_some_and(|put| put.log == log))
            {
                let members = own.take_proposal().unwrap_or_default();
                let needed = own.acknowledged();
                said.put =
                    Some(propose(&mut self.put, self.tip, &mut self.random, (log, members, None), needed));
            }
            said.calls.extend(own.take_calls().into_iter().map(|call| ((log, false), call)));
            self.has_ended |= own.ended().is_some();
        }
        Ok(said)
    }

    fn step_old(
        &mut self,
        at: usize,
        said: &mut Said,
        checker: &mut Checker,
        now: Instant,
    ) -> Result<(), Violation> {
        let (log, has_claimed) = (self.old[at].0, self.has_claimed());
        if let Old::Recovering { takeover, members } = &mut self.old[at].1 {
            said.calls.extend(takeover.take_calls().into_iter().map(|call| ((log, true), call)));
            match takeover.progress() {
                Progress::Working => {}
                Progress::Superseded(_) => self.has_ended = true,
                Progress::Blocked { .. } => self.blocked = Some(log),
                Progress::Recovered(recovered) => {
                    let holders = takeover.holders();
                    // What goes on holding it is not freed.
                    let members: Vec<Member> =
                        members.iter().filter(|member| !holders.contains(member)).cloned().collect();
                    let length = u32::try_from(recovered.records.len()).unwrap_or(u32::MAX);
                    if is_enabled(Mutant::SegmentServedBeforePublished) {
                        checker.served(log, length, recovered.digest)?;
                    }
                    if is_enabled(Mutant::SegmentOldFreedBeforePublished) {
                        said.calls.extend(free(log, &members, self.epoch));
                    }
                    let job = self.job(log);
                    let mut writer =
                        Writer::copying(job, &recovered.records, recovered.digest, holders, &self.nodes);
                    writer.tick(now);
                    self.old[at].1 = Old::Copying { writer, members, length, digest: recovered.digest };
                }
            }
        }
        if let Old::Copying { writer, members, length, digest } = &mut self.old[at].1 {
            let is_own_put = self.put.as_ref().is_some_and(|put| put.log == log);
            if has_claimed && writer.has_proposal() && (self.put.is_none() || is_own_put) {
                let regions = writer.take_proposal().unwrap_or_default();
                let settled = Some((*length, *digest));
                said.put = Some(propose(
                    &mut self.put,
                    self.tip,
                    &mut self.random,
                    (log, regions, settled),
                    *length,
                ));
            }
            said.calls.extend(writer.take_calls().into_iter().map(|call| ((log, false), call)));
            self.has_ended |= writer.ended().is_some();
            if !writer.configured().is_empty() && self.put.as_ref().is_none_or(|put| put.log != log) {
                said.calls.extend(free(log, members, self.epoch));
                let served = std::mem::replace(&mut self.old[at].1, Old::Served);
                if let Old::Copying { writer, .. } = served
                    && is_enabled(Mutant::SegmentAppendsToOld)
                    && self.own.is_none()
                {
                    (self.own, self.own_log) = (Some(writer), log);
                }
            }
        }
        Ok(())
    }
}

/// The put that is on its way already, or one of a fresh attempt.
fn propose(
    put: &mut Option<Put>,
    tip: u64,
    random: &mut Random,
    (log, members, settled): Newest,
    needed: u32,
) -> Put {
    let record = Record::Configuration { log, members, settled };
    let fresh = || Put { slot: tip + 1, attempt: random.next(), record, log, needed };
    put.get_or_insert_with(fresh).clone()
}

fn free(log: u64, members: &[Member], epoch: u64) -> Vec<(Tag, Call)> {
    let one = |member: &Member| {
        let request = Request {
            incarnation: member.incarnation,
            region: member.region,
            epoch: Epoch(epoch),
            body: Body::Free,
        };
        ((log, true), Call { id: CallId::nobodys(), node: member.node.clone(), request })
    };
    members.iter().map(one).collect()
}
