//! Recovers what a writer that is gone has left of one segment (rule 5): seals, chooses a length,
//! fetches. What it yields is then copied to fresh regions by a [`crate::writer::Writer`], unless
//! enough of the old ones hold exactly that, and counts once that is published. No IO.
//!
//! ```text
//! seal all ─▶ n − q + k answers ─▶ the k-th longest that can be read ─▶ fetch and check ─▶ recovered
//!               ▲                                                        │
//!               └──────────── a holder is lost: choose again ◀───────────┘
//! ```
//!
//! Invariants:
//! 1. Only sealed regions of the named life, whole up to what they recorded, are answers (rule 4).
//! 2. The chosen length is never shorter than the (q − u)-th longest answered length, u regions
//!    giving no answer: so much may have been acknowledged.
//! 3. With fewer answers than that takes it says so, and yields nothing.
//! 4. Of a segment whose length and digest are published nobody acknowledges more: there one region
//!    that holds just that is enough, and the others are waited for only as long as an answer
//!    takes.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Instant;
use tombolo_env::memory::Buffer;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{Digest, Records, SEGMENT_RECORDS_BYTES_MAX, first_digest};
use tombolo_storage::Epoch;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::call::{Call, CallId, Lost, Member, Outcome, Shape};
use crate::message::{Answer, Body, Extent, Refusal, Request};

/// Bytes of one read: few enough that the allocators of both sides use the memory of earlier ones
/// again. What they ask the system for, from 128 KiB on, comes page by page: reads of 1 MiB took a
/// third longer, nearly all of it in page faults.
const READ_BYTES: u32 = 120 << 10;

/// Reads on their way.
const READS_IN_FLIGHT: usize = 16;

/// After so long without an answer a request is made again.
const SILENCE: Duration = Duration::from_millis(200);

/// Whose segment is recovered, in whose name.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// q, as the configuration says; k is 1.
    pub shape: Shape,
    /// The random number of the database.
    pub database: u64,
    /// Whose bytes they are.
    pub segment: SegmentIdentity,
    /// In whose name regions are sealed.
    pub epoch: Epoch,
    /// What an earlier takeover has published of it, as length and digest: whatever differs is
    /// lost, and no shorter log.
    pub settled: Option<(u32, Digest)>,
    /// Payloads that the successor looks for, as all records are walked through here once.
    pub is_mark: fn(&[u8]) -> bool,
}

/// What a region said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    None,
    /// It is sealed, and holds this.
    Sealed(Extent),
    /// As it said; but it can no longer be read.
    Unreadable(u32),
    /// It lost what it held: no answer, ever.
    Lost,
}

#[derive(Debug)]
struct Region {
    member: Member,
    word: Word,
    asked_at: Option<Instant>,
}

/// The fetch from one region.
#[derive(Debug)]
struct Fetch {
    from: usize,
    extent: Extent,
    /// Each answer lies where it belongs.
    bytes: Buffer,
    /// Parts that came behind one that did not, and where each ends.
    early: BTreeMap<u32, u32>,
    /// So far all came.
    whole: u32,
    checked: Checked,
    /// Reads without an answer: how many bytes, and when they were made.
    asked: BTreeMap<u32, (u32, Instant)>,
    /// Where the next read begins.
    next: u32,
}

/// Records that were found to be sound, from byte 0 on.
#[derive(Clone, Copy, Debug)]
struct Checked {
    end: u32,
    digest: Digest,
    has_mark: bool,
}

/// How far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Calls are on their way, or wait to be made again.
    Working,
    /// All that may have been acknowledged, whole and checked.
    Recovered(Recovered),
    /// A later epoch takes over.
    Superseded(Epoch),
    /// More regions than the failure model allows have lost what they held: nothing can be said to
    /// be all.
    Blocked {
        /// Regions that lost it.
        lost: usize,
        /// Regions named.
        of: usize,
    },
}

/// The recovered log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Whole records from byte 0.
    pub records: Bytes,
    /// Of all of them.
    pub digest: Digest,
    /// Whether one of them is a mark ([`Recovery::is_mark`]).
    pub has_mark: bool,
}

/// A takeover of one segment, up to where its bytes are known.
#[derive(Debug)]
pub struct Takeover {
    recovery: Recovery,
    regions: Vec<Region>,
    fetch: Option<Fetch>,
    recovered: Option<Recovered>,
    superseded: Option<Epoch>,
    /// So long the other regions of a settled segment are waited for.
    waits_until: Option<Instant>,
    is_out_of_time: bool,
    numbers: u32,
    calls: Vec<Call>,
    is_sealing: bool,
}

impl Takeover {
    /// Of the segment whose newest published configuration names `members`.
    pub fn new(recovery: Recovery, members: Vec<Member>) -> Takeover {
        let regions =
            members.into_iter().map(|member| Region { member, word: Word::None, asked_at: None }).collect();
        Takeover {
            recovery,
            regions,
            fetch: None,
            recovered: None,
            superseded: None,
            waits_until: None,
            is_out_of_time: false,
            numbers: 0,
            calls: Vec::new(),
            is_sealing: !is_enabled(Mutant::SegmentCountsUnsealed),
        }
    }

    /// One that takes what regions hold for their last word.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn without_seals(mut self) -> Takeover {
        self.is_sealing = false;
        self
    }

    /// What an earlier takeover has published of it.
    fn settled(&self) -> Option<(u32, Digest)> {
        self.recovery.settled.filter(|_| !is_enabled(Mutant::SegmentSettledIgnored))
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        if let Some(by) = self.superseded {
            return Progress::Superseded(by);
        }
        if let Some(recovered) = &self.recovered {
            return Progress::Recovered(recovered.clone());
        }
        let lost = self.regions.iter().filter(|region| region.word == Word::Lost).count();
        let needed = if self.settled().is_some() { 1 } else { self.answers_needed() };
        if self.regions.len() - lost < needed || self.fetch.is_none() && self.is_stuck() {
            let unreadable =
                self.regions.iter().filter(|region| matches!(region.word, Word::Unreadable(_))).count();
            return Progress::Blocked { lost: lost + unreadable, of: self.regions.len() };
        }
        Progress::Working
    }

    /// Regions that have answered, and that must.
    pub fn answers(&self) -> (usize, usize) {
        (self.lengths().len(), self.answers_needed())
    }

    /// The regions that hold exactly the recovered records, as they said when they were sealed:
    /// nothing is added there any more, and they are as good as copies of it. Others hold less, or
    /// what nobody has to recover.
    pub fn holders(&self) -> Vec<Member> {
        let Some(Recovered { records, digest, .. }) = &self.recovered else { return Vec::new() };
        let holds = |region: &&Region| match region.word {
            Word::Sealed(extent) => {
                (extent.length, extent.digest) == (narrow(records.len()), *digest)
                    || is_enabled(Mutant::SegmentKeepsOthers)
            }
            Word::None | Word::Unreadable(_) | Word::Lost => false,
        };
        self.regions.iter().filter(holds).map(|region| region.member.clone()).collect()
    }

    /// Calls to make.
    pub fn take_calls(&mut self) -> Vec<Call> {
        mem::take(&mut self.calls)
    }

    /// Time has passed, or it begins.
    pub fn tick(&mut self, now: Instant) {
        if self.recovered.is_some() || self.superseded.is_some() {
            return;
        }
        self.is_out_of_time = now >= *self.waits_until.get_or_insert(now + SILENCE);
        let is_late = |asked: Option<Instant>| asked.is_none_or(|asked| now.since(asked) >= SILENCE);
        for at in 0..self.regions.len() {
            if self.regions[at].word == Word::None && is_late(self.regions[at].asked_at) {
                self.regions[at].asked_at = Some(now);
                self.call(
                    at,
                    if self.is_sealing { Body::Seal } else { Body::Read { from: 0, bytes_max: READ_BYTES } },
                );
            }
        }
        let late =
            self.fetch.iter().flat_map(|fetch| &fetch.asked).filter(|(_, (_, asked))| is_late(Some(*asked)));
        for (from, bytes) in late.map(|(from, (bytes, _))| (*from, *bytes)).collect::<Vec<_>>() {
            self.read(from, bytes, now);
        }
        self.look(now);
    }

    /// What came of a call.
    pub fn answered(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        let at = id.replica as usize;
        if at >= self.regions.len() || self.recovered.is_some() {
            return;
        }
        match outcome {
            // Made again after a while.
            Err(Lost) => {}
            Ok(Answer::Sealed(extent)) => {
                let first = first_digest(self.recovery.database, &self.recovery.segment);
                let none = Extent { length: 0, digest: first, committed: 0 };
                self.answer(at, extent.unwrap_or(none));
            }
            Ok(Answer::Bytes(bytes)) if !self.is_sealing && self.regions[at].word == Word::None => {
                let mut walk =
                    Records::new(first_digest(self.recovery.database, &self.recovery.segment), 0, &bytes);
                while matches!(walk.next(), Some(Ok(_))) {}
                self.answer(at, Extent { length: walk.at(), digest: walk.digest(), committed: 0 });
            }
            Ok(Answer::Bytes(bytes)) => self.fetched(at, id.number, bytes, now),
            Ok(Answer::Refused(refusal)) => self.refused(at, refusal),
            // Nothing that was asked for.
            Ok(Answer::Held(_) | Answer::Freed) => {}
        }
        self.look(now);
    }

    fn answer(&mut self, at: usize, extent: Extent) {
        if self.regions[at].word == Word::None {
            // A region that holds anything but the published prefix is no answer.
            let is_lost = self.settled().is_some_and(|settled| settled != (extent.length, extent.digest));
            self.regions[at].word = if is_lost { Word::Lost } else { Word::Sealed(extent) };
        }
    }

    fn refused(&mut self, at: usize, refusal: Refusal) {
        match refusal {
            Refusal::Sealed(by) | Refusal::OtherEpoch(by) if by > self.recovery.epoch => {
                self.superseded = Some(by);
            }
            _ if is_enabled(Mutant::SegmentLossTakenForAnswer) && self.regions[at].word == Word::None => {
                let digest = first_digest(self.recovery.database, &self.recovery.segment);
                self.regions[at].word = Word::Sealed(Extent { length: 0, digest, committed: 0 });
            }
            Refusal::OtherIncarnation(_) | Refusal::Freed | Refusal::Unknown => {
                let word = match self.regions[at].word {
                    // Its answer stands: so much was on it.
                    Word::Sealed(extent) => Word::Unreadable(extent.length),
                    Word::Unreadable(length) => Word::Unreadable(length),
                    Word::None | Word::Lost => Word::Lost,
                };
                self.lose(at, word);
            }
            _ => self.lose(at, Word::Lost),
        }
    }

    /// A region cannot be read any more, or never could.
    fn lose(&mut self, at: usize, word: Word) {
        self.regions[at].word = word;
        if self.fetch.as_ref().is_some_and(|fetch| fetch.from == at) {
            self.fetch = None;
        }
    }

    /// n − q + k.
    fn answers_needed(&self) -> usize {
        if is_enabled(Mutant::SegmentNeedsAllAnswers) {
            return self.regions.len();
        }
        let fewer = usize::from(is_enabled(Mutant::SegmentSealsTooFew));
        self.regions.len().saturating_sub(self.recovery.shape.quorum) + 1 - fewer
    }

    /// All answered lengths, longest first.
    fn lengths(&self) -> Vec<u32> {
        let length = |region: &Region| match region.word {
            Word::Sealed(extent) => Some(extent.length),
            Word::Unreadable(length) => Some(length),
            Word::None | Word::Lost => None,
        };
        let mut lengths: Vec<u32> = self.regions.iter().filter_map(length).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths
    }

    /// The region to fetch from: the longest that can be read, if no more than it holds can have
    /// been acknowledged.
    fn choose(&self) -> Option<(usize, Extent)> {
        let lengths = self.lengths();
        let is_settled = self.settled().is_some();
        let may_yet_answer =
            self.regions.iter().any(|region| region.word == Word::None) && !self.is_out_of_time;
        if lengths.len() < self.answers_needed() && (!is_settled || may_yet_answer) {
            return None;
        }
        let readable = self.regions.iter().enumerate().filter_map(|(at, region)| match region.word {
            Word::Sealed(extent) => Some((at, extent)),
            _ => None,
        });
        let chosen = if is_enabled(Mutant::SegmentTakesShortest) {
            readable.min_by_key(|(_, extent)| extent.length)
        } else {
            readable.max_by_key(|(_, extent)| extent.length)
        };
        let unanswered = self.regions.len() - lengths.len();
        let held_by = self.recovery.shape.quorum.saturating_sub(unanswered).max(1);
        let least = lengths.get(held_by - 1).copied().unwrap_or(u32::MAX);
        chosen.filter(|(_, extent)| {
            let may_be_shorter =
                is_enabled(Mutant::SegmentChoosesTooShort) || is_enabled(Mutant::SegmentTakesShortest);
            is_settled || extent.length >= least || may_be_shorter
        })
    }

    /// Whether nobody can answer any more, and nothing can be chosen.
    fn is_stuck(&self) -> bool {
        self.regions.iter().all(|region| region.word != Word::None) && self.choose().is_none()
    }

    fn look(&mut self, now: Instant) {
        if self.superseded.is_some() {
            return;
        }
        if self.fetch.is_none()
            && let Some((from, extent)) = self.choose()
        {
            // Its seal has said so: no more than a segment's length.
            if extent.length > SEGMENT_RECORDS_BYTES_MAX {
                self.lose(from, Word::Lost);
            // Without memory for it, it looks again with the next tick.
            } else if let Ok(bytes) = Buffer::zeroed(extent.length as usize) {
                let digest = first_digest(self.recovery.database, &self.recovery.segment);
                let checked = Checked { end: 0, digest, has_mark: false };
                let (early, asked) = (BTreeMap::new(), BTreeMap::new());
                self.fetch = Some(Fetch { from, extent, bytes, early, whole: 0, checked, asked, next: 0 });
            }
        }
        self.fetch_on(now);
    }

    fn fetch_on(&mut self, now: Instant) {
        while let Some(fetch) = &mut self.fetch
            && fetch.asked.len() < READS_IN_FLIGHT
            && fetch.next < fetch.extent.length
        {
            let from = fetch.next;
            let bytes = READ_BYTES.min(fetch.extent.length - from);
            fetch.next = from + bytes;
            self.read(from, bytes, now);
        }
        self.check();
    }

    fn read(&mut self, from: u32, bytes_max: u32, now: Instant) {
        let Some(fetch) = &mut self.fetch else { return };
        fetch.asked.insert(from, (bytes_max, now));
        let at = fetch.from;
        let id = CallId { replica: narrow(at), number: from };
        self.push(id, at, Body::Read { from, bytes_max });
    }

    /// The answer to the read that began at `from`.
    fn fetched(&mut self, at: usize, from: u32, mut bytes: Bytes, now: Instant) {
        let Some(fetch) = self.fetch.as_mut().filter(|fetch| fetch.from == at) else { return };
        let Some((wanted, _)) = fetch.asked.remove(&from) else { return };
        if bytes.is_empty() {
            // It said that it holds more.
            return self.lose(at, Word::Lost);
        }
        bytes.truncate(wanted as usize);
        let got = narrow(bytes.len());
        fetch.bytes[from as usize..][..bytes.len()].copy_from_slice(&bytes);
        fetch.early.insert(from, from + got);
        while let Some(end) = fetch.early.remove(&fetch.whole) {
            fetch.whole = end;
        }
        fetch.check_on(self.recovery.is_mark);
        if got < wanted {
            self.read(from + got, wanted - got, now);
        }
    }

    /// Checks the fetched bytes once all are there.
    fn check(&mut self) {
        let settled = self.settled();
        let Some(fetch) = self.fetch.take_if(|fetch| fetch.whole == fetch.extent.length) else { return };
        let Checked { end, digest, has_mark } = fetch.checked;
        let is_another = settled.is_some_and(|settled| settled != (fetch.extent.length, digest));
        if end != fetch.extent.length || digest != fetch.extent.digest || is_another {
            // Shorter than it said: no answer (rule 4).
            return self.lose(fetch.from, Word::Lost);
        }
        self.recovered = Some(Recovered { records: Bytes::from_owner(fetch.bytes), digest, has_mark });
    }

    fn call(&mut self, at: usize, body: Body) {
        self.numbers = self.numbers.wrapping_add(1);
        let id = CallId { replica: narrow(at), number: self.numbers };
        self.push(id, at, body);
    }

    fn push(&mut self, id: CallId, at: usize, body: Body) {
        let Member { node, incarnation, region } = self.regions[at].member.clone();
        let request = Request { incarnation, region, epoch: self.recovery.epoch, body };
        self.calls.push(Call { id, node: Arc::clone(&node), request });
    }
}

impl Fetch {
    /// Checks the records that are there now, while others are on their way.
    fn check_on(&mut self, is_mark: fn(&[u8]) -> bool) {
        let Checked { end, digest, has_mark } = &mut self.checked;
        let mut walk = Records::new(*digest, *end, &self.bytes[*end as usize..self.whole as usize]);
        // The record that ends it may come whole with those behind.
        while let Some(Ok(record)) = walk.next() {
            *has_mark |= is_mark(record.payload);
        }
        (*end, *digest) = (walk.at(), walk.digest());
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "regions of a segment are few, and its bytes 1 GiB at most"
)]
fn narrow(number: usize) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use tombolo_format::segment_record::encode_header;

    use super::*;
    use crate::message::{NodeIncarnation, RegionId};

    /// What a region holds may have changed since its seal: then it is lost, and another one is
    /// read.
    #[test]
    fn bytes_that_are_not_those_of_the_seal_are_no_answer() {
        let segment = SegmentIdentity { incarnation: 1, epoch: 1, lane: 0, segment: 0 };
        let first = first_digest(9, &segment);
        let (header, digest) = encode_header(first, 0, 0, b"a record");
        let records = [&header[..], b"a record"].concat();
        // Sound by themselves: of another writer.
        let others = [&encode_header(first, 0, 0, b"another.").0[..], b"another."].concat();
        for changed in 0..=records.len() {
            let shape = Shape { copies: 3, quorum: 2 };
            let recovery =
                Recovery { shape, database: 9, segment, epoch: Epoch(2), settled: None, is_mark: |_| false };
            let member =
                |n| Member { node: "n".into(), incarnation: NodeIncarnation(1), region: RegionId(n) };
            let mut takeover = Takeover::new(recovery, (0..3).map(member).collect());
            let now = Instant::from_nanos(0);
            let mut bad = None;
            while takeover.progress() == Progress::Working {
                takeover.tick(now);
                let calls = takeover.take_calls();
                assert!(!calls.is_empty(), "it goes on");
                for Call { id, request, .. } in calls {
                    let answer = match request.body {
                        Body::Seal => Answer::Sealed(Some(Extent {
                            length: narrow(records.len()),
                            digest,
                            committed: 0,
                        })),
                        _ => {
                            let is_bad = *bad.get_or_insert(id.replica) == id.replica;
                            let mut bytes = if is_bad && changed == records.len() {
                                others.clone()
                            } else {
                                records.clone()
                            };
                            if is_bad && let Some(byte) = bytes.get_mut(changed) {
                                *byte ^= 1;
                            }
                            Answer::Bytes(bytes.into())
                        }
                    };
                    takeover.answered(id, Ok(answer), now);
                }
            }
            let recovered = Recovered { records: records.clone().into(), digest, has_mark: false };
            assert_eq!(takeover.progress(), Progress::Recovered(recovered), "byte {changed}");
        }
    }

    /// No memory is taken for what no segment holds, and nothing of it is asked for: another region
    /// is read.
    #[test]
    fn a_region_that_says_it_holds_more_than_a_segment_is_lost() {
        let segment = SegmentIdentity { incarnation: 1, epoch: 1, lane: 0, segment: 0 };
        let (header, digest) = encode_header(first_digest(9, &segment), 0, 0, b"a record");
        let records = [&header[..], b"a record"].concat();
        for said in [SEGMENT_RECORDS_BYTES_MAX + 1, u32::MAX] {
            let shape = Shape { copies: 3, quorum: 2 };
            let recovery =
                Recovery { shape, database: 9, segment, epoch: Epoch(2), settled: None, is_mark: |_| false };
            let member =
                |n| Member { node: "n".into(), incarnation: NodeIncarnation(1), region: RegionId(n) };
            let mut takeover = Takeover::new(recovery, (0..3).map(member).collect());
            let now = Instant::from_nanos(0);
            let liar = RegionId(1);
            while takeover.progress() == Progress::Working {
                takeover.tick(now);
                let calls = takeover.take_calls();
                assert!(!calls.is_empty(), "it goes on");
                for Call { id, request, .. } in calls {
                    let length = if request.region == liar { said } else { narrow(records.len()) };
                    let answer = match request.body {
                        Body::Seal => Answer::Sealed(Some(Extent { length, digest, committed: 0 })),
                        _ if request.region == liar => {
                            panic!("{:?} of a region of {said} bytes", request.body)
                        }
                        _ => Answer::Bytes(records.clone().into()),
                    };
                    takeover.answered(id, Ok(answer), now);
                }
            }
            let recovered = Recovered { records: records.clone().into(), digest, has_mark: false };
            assert_eq!(takeover.progress(), Progress::Recovered(recovered), "{said} bytes");
        }
    }

    /// Records that lie in several reads are recovered in whatever order these are answered, and if
    /// each is answered in parts, or twice.
    #[test]
    fn reads_may_be_answered_in_any_order_and_in_parts() {
        let segment = SegmentIdentity { incarnation: 1, epoch: 1, lane: 0, segment: 0 };
        let (mut digest, mut records) = (first_digest(9, &segment), Vec::new());
        for number in 0..40_usize {
            let payload = vec![number.to_le_bytes()[0]; number * 997 + 20_000];
            let (header, next) = encode_header(digest, narrow(records.len()), 0, &payload);
            digest = next;
            records.extend_from_slice(&header);
            records.extend_from_slice(&payload);
        }
        assert!(records.len() > 8 * READ_BYTES as usize);
        for (is_last_first, part_bytes) in
            [(false, u32::MAX), (true, u32::MAX), (true, 50_000), (false, 119_999), (true, 1 << 16)]
        {
            let recovery = Recovery {
                shape: Shape { copies: 3, quorum: 2 },
                database: 9,
                segment,
                epoch: Epoch(2),
                settled: None,
                is_mark: |_| false,
            };
            let member =
                |n| Member { node: "n".into(), incarnation: NodeIncarnation(1), region: RegionId(n) };
            let mut takeover = Takeover::new(recovery, (0..3).map(member).collect());
            let now = Instant::from_nanos(0);
            takeover.tick(now);
            let mut calls = takeover.take_calls();
            while takeover.progress() == Progress::Working {
                assert!(!calls.is_empty(), "it goes on");
                let call = if is_last_first { calls.pop() } else { Some(calls.remove(0)) };
                let Some(Call { id, request, .. }) = call else { unreachable!() };
                let answer = match request.body {
                    Body::Read { from, bytes_max } => {
                        let part = &records[from as usize..][..bytes_max.min(part_bytes) as usize];
                        takeover.answered(id, Ok(Answer::Bytes(Bytes::copy_from_slice(part))), now);
                        // An answer that nobody waits for changes nothing, whatever it says.
                        Answer::Bytes(vec![7; part.len()].into())
                    }
                    _ => Answer::Sealed(Some(Extent { length: narrow(records.len()), digest, committed: 0 })),
                };
                takeover.answered(id, Ok(answer), now);
                calls.extend(takeover.take_calls());
            }
            let recovered = Recovered { records: records.clone().into(), digest, has_mark: false };
            assert!(
                takeover.progress() == Progress::Recovered(recovered),
                "{is_last_first}, parts of {part_bytes}"
            );
        }
    }
}
