//! A successor takes an older epoch's lane over (rule 5): seals its segments, recovers what may
//! have been acknowledged, copies to fresh regions what too few hold, publishes, and only then
//! tells the length and frees segments that are named no more.
//!
//! Takeover, step 2. Segments are sealed and fetched all at once; the lane ends with the first that
//! has no end record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Instant, all};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::near_log::{NearLane, NearPayload, NearRegion, NearSegment};
use tombolo_format::segment_record::{Digest, Records, first_digest};
use tombolo_segment::call::{Call, CallId, Member, Outcome, Shape};
use tombolo_segment::message::{Body, Request};
use tombolo_segment::takeover::{Progress, Recovered, Recovery, Takeover};
use tombolo_segment::writer::{Ended, Job, Published, Writer};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogContext, LogOffset, LogRecord, Result};

use crate::configuration::{decode, encode, members, regions};
use crate::destage::read_object;
use crate::flight::{Flight, ask};
use crate::peers::Neighbours;

/// How long a takeover waits for nodes before it says that it cannot go on.
const TIME_MAX: Duration = Duration::from_secs(20);

/// What fills less than this part of a segment is copied though enough regions hold it: a region
/// takes the room of a whole one until it is freed, a copy what it holds.
const KEPT_PART: usize = 8;

/// What old regions said longer ago than this they are asked again before it is published that they
/// hold a segment.
const CONFIRMED_MAX: Duration = Duration::from_millis(200);

/// How long it waits until nodes have heard that regions are free.
const HEARD_MAX: Duration = Duration::from_millis(500);

/// How often it looks at the time.
const TICK: Duration = Duration::from_millis(10);

/// A segment, as a takeover leaves it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) number: u32,
    pub(crate) records: Bytes,
}

/// What a takeover works with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking<'a> {
    pub(crate) context: &'a LogContext,
    pub(crate) neighbours: &'a Neighbours,
    pub(crate) log: &'a LogRecord,
    /// Of this epoch's lanes, and about that of those before.
    pub(crate) segment_bytes: u32,
}

pub(crate) fn identity(context: &LogContext, log: &LogRecord, segment: u32) -> SegmentIdentity {
    SegmentIdentity { incarnation: context.incarnation.0, epoch: log.id.epoch.0, lane: log.id.lane, segment }
}

pub(crate) fn place(log: &LogRecord) -> String {
    format!("the near-compute log of epoch {} lane {}", log.id.epoch, log.id.lane)
}

/// What a segment should hold is nowhere.
pub(crate) fn gone(log: &LogRecord, segment: u32, expected: &str, found: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "a log that the manifest names is gone")
        .object(format!("{}, segment {segment}", place(log)))
        .expected(expected)
        .found(found)
        .advice("its writes since the last flush are lost; restore the database from a copy")
}

/// A segment on its way to being recovered.
#[derive(Debug)]
enum Old {
    Taking(Box<Takeover>),
    /// What it holds, and which regions hold exactly that. Its mark is the end record.
    Recovered(Recovered, Vec<Member>),
    /// In an object, with its length and digest.
    Object(u32, Digest),
}

/// Something that makes calls and hears their outcomes.
trait Machine {
    fn tick(&mut self, now: Instant);
    fn take_calls(&mut self) -> Vec<Call>;
    fn answered(&mut self, id: CallId, outcome: Outcome, now: Instant);
}

impl Machine for Old {
    fn tick(&mut self, now: Instant) {
        if let Old::Taking(takeover) = self {
            takeover.tick(now);
        }
    }

    fn take_calls(&mut self) -> Vec<Call> {
        if let Old::Taking(takeover) = self { takeover.take_calls() } else { Vec::new() }
    }

    fn answered(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        if let Old::Taking(takeover) = self {
            takeover.answered(id, outcome, now);
        }
    }
}

impl Machine for Writer {
    fn tick(&mut self, now: Instant) {
        Writer::tick(self, now);
    }

    fn take_calls(&mut self) -> Vec<Call> {
        Writer::take_calls(self)
    }

    fn answered(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        Writer::answered(self, id, outcome, now);
    }
}

impl Taking<'_> {
    /// Takes the lane over. Returns where it ends, and its entries that were kept.
    pub(crate) async fn fence(&self, from: LogOffset) -> Result<(LogOffset, Vec<Kept>)> {
        let lane = decode(self.log)?;
        let shape = Shape { copies: usize::from(lane.copies), quorum: usize::from(lane.quorum) };
        let first = lane.segments.first().map_or(from.segment(), |segment| segment.number);
        if first > from.segment() {
            return Err(self.gone(from.segment(), "the segment of the replay point", "a later one"));
        }
        let segments: Vec<&NearSegment> =
            lane.segments.iter().filter(|segment| segment.number >= from.segment()).collect();
        let recovered = self.recover(shape, &segments).await?;
        let sealed = recovered
            .last()
            .map_or(from, |last| LogOffset::new(last.kept.number, narrow(last.kept.records.len())))
            .max(from);
        if recovered.first().is_some_and(|first| {
            first.kept.number == from.segment() && narrow(first.kept.records.len()) < from.byte()
        }) {
            return Err(self.gone(from.segment(), &format!("{} bytes at least", from.byte()), "fewer"));
        }
        if is_enabled(Mutant::NearTakeoverFreesBeforePublished) {
            self.free(&lane.segments);
        }
        let published = self.copy(shape, &recovered).await?;
        let goes_on = |region: &NearRegion| published.iter().any(|segment| segment.regions.contains(region));
        let mut left = lane.segments;
        left.iter_mut().for_each(|segment| segment.regions.retain(|region| !goes_on(region)));
        self.free(&left);
        Ok((sealed, recovered.into_iter().map(|segment| segment.kept).collect()))
    }

    fn gone(&self, segment: u32, expected: &str, found: &str) -> Error {
        gone(self.log, segment, expected, found)
    }

    /// Seals and fetches, up to the first segment without an end.
    async fn recover(&self, shape: Shape, segments: &[&NearSegment]) -> Result<Vec<Ready>> {
        let begin = |segment: &&NearSegment| match segment.settled {
            Some((length, digest)) if segment.regions.is_empty() => Old::Object(length, digest),
            _ => {
                let recovery = Recovery {
                    shape,
                    database: self.context.database,
                    segment: identity(self.context, self.log, segment.number),
                    epoch: self.context.epoch,
                    settled: segment.settled,
                    is_mark: is_end,
                };
                let takeover = Takeover::new(recovery, members(&segment.regions));
                #[cfg(feature = "mutants")]
                let is_last = segments.last().is_some_and(|last| last.number == segment.number);
                #[cfg(feature = "mutants")]
                let takeover = if is_enabled(Mutant::NearSealsLastOnly) && !is_last {
                    takeover.without_seals()
                } else {
                    takeover
                };
                Old::Taking(Box::new(takeover))
            }
        };
        let mut old: Vec<Old> = segments.iter().map(begin).collect();
        let mut flight = Flight::default();
        let deadline = self.context.env.now() + TIME_MAX;
        loop {
            self.turn(&mut old, &mut flight).await;
            for segment in &mut old {
                if let Old::Taking(takeover) = segment
                    && let Progress::Recovered(recovered) = takeover.progress()
                {
                    let holders = takeover.holders();
                    *segment = Old::Recovered(recovered, holders);
                }
            }
            if let Some(ready) = self.ready(segments, &old).await? {
                return Ok(ready);
            }
            if self.context.env.now() >= deadline {
                return Err(self.blocked(segments, &old));
            }
        }
    }

    /// One round of calls and answers.
    async fn turn<M: Machine>(&self, machines: &mut [M], flight: &mut Flight<usize>) {
        let env = &self.context.env;
        let send = |machines: &mut [M], flight: &mut Flight<usize>| {
            for (at, machine) in machines.iter_mut().enumerate() {
                machine.take_calls().into_iter().for_each(|call| flight.send(self.neighbours, at, call));
            }
        };
        machines.iter_mut().for_each(|machine| machine.tick(env.now()));
        send(machines, flight);
        let landed = flight.next(env, TICK).await;
        for (at, id, outcome) in landed {
            machines[at].answered(id, outcome, env.now());
        }
        send(machines, flight);
    }

    /// The segments that make the lane, once that is known.
    async fn ready(&self, segments: &[&NearSegment], old: &[Old]) -> Result<Option<Vec<Ready>>> {
        // Objects are complete, and are read once all that the lane needs is known.
        for old in old {
            match old {
                Old::Taking(takeover) if takeover.progress() == Progress::Working => return Ok(None),
                Old::Recovered(Recovered { has_mark: true, .. }, _) | Old::Object(..) => {}
                Old::Taking(_) | Old::Recovered(..) => break,
            }
        }
        let mut ready = Vec::new();
        for (segment, old) in segments.iter().zip(old) {
            let number = segment.number;
            let (records, digest, holders, has_end) = match old {
                Old::Recovered(Recovered { records, digest, has_mark }, holders) => {
                    (records.clone(), *digest, Some(holders.clone()), *has_mark)
                }
                Old::Object(length, digest) => {
                    let identity = identity(self.context, self.log, number);
                    let records = read_object(self.context, &identity, (*length, *digest)).await?;
                    let has_end = has_end(first_digest(self.context.database, &identity), &records, *digest);
                    (
                        records,
                        *digest,
                        None,
                        has_end.ok_or_else(|| self.gone(number, "sound records", "others"))?,
                    )
                }
                Old::Taking(takeover) => match takeover.progress() {
                    Progress::Superseded(by) => return Err(self.fenced(by.0)),
                    Progress::Blocked { lost, of } => {
                        let found = format!("{lost} of its {of} regions lost what they held");
                        return Err(self.gone(
                            number,
                            "no more losses than the failure model allows",
                            &found,
                        ));
                    }
                    Progress::Working | Progress::Recovered(_) => return Ok(None),
                },
            };
            if !records.is_empty() {
                ready.push(Ready { kept: Kept { number, records }, digest, holders });
            }
            if !has_end {
                break;
            }
        }
        Ok(Some(ready))
    }

    fn fenced(&self, by: u64) -> Error {
        Error::new(ErrorKind::Fenced, format!("epoch {by} takes this log over"))
            .object(place(self.log))
            .advice("open the database again to take it back")
    }

    fn blocked(&self, segments: &[&NearSegment], old: &[Old]) -> Error {
        let waits = segments.iter().zip(old).find_map(|(segment, old)| match old {
            Old::Taking(takeover) => Some((segment.number, takeover.answers())),
            _ => None,
        });
        let (number, (answers, needed)) = waits.unwrap_or_default();
        let troubles = self.neighbours.troubles().told(&[]);
        let message = format!(
            "taking a log over waits for its nodes: {answers} of the {needed} answers that it needs \
            came{troubles}"
        );
        Error::new(ErrorKind::Retry, message)
            .object(format!("{}, segment {number}", place(self.log)))
            .advice("bring the nodes back that hold it: `tombolo log status` names them")
    }

    /// Copies what too few regions hold to fresh ones, and publishes where all is (rule 5). The
    /// regions that do.
    async fn copy(&self, shape: Shape, recovered: &[Ready]) -> Result<Vec<NearSegment>> {
        let env = &self.context.env;
        let nodes = self.neighbours.nodes();
        let random = || u128::from(env.random_u64());
        let begin = |ready: &Ready| {
            let is_worth_keeping = ready.kept.records.len() >= self.segment_bytes as usize / KEPT_PART;
            let holders = ready.holders.clone()?.into_iter().filter(|_| is_worth_keeping).collect();
            let job = Job {
                shape,
                database: self.context.database,
                segment: identity(self.context, self.log, ready.kept.number),
                epoch: self.context.epoch,
                bytes_max: narrow(ready.kept.records.len()),
                first_region: random() << 64 | random(),
                distances: Vec::new(),
            };
            let mut writer = Writer::copying(job, &ready.kept.records, ready.digest, holders, &nodes);
            writer.tick(env.now());
            Some(writer)
        };
        let mut writers: Vec<Writer> = recovered.iter().filter_map(begin).collect();
        let mut flight = Flight::default();
        let deadline = env.now() + TIME_MAX;
        loop {
            if writers.iter().all(Writer::has_proposal) {
                // Those that waited for others to be copied ask once more: what we publish rests
                // on answers given just before.
                let is_old = |writer: &Writer| {
                    writer.confirmed_at().is_some_and(|at| env.now().since(at) >= CONFIRMED_MAX)
                };
                if !writers.iter().any(is_old) {
                    break;
                }
                writers.iter_mut().for_each(|writer| writer.confirm_again(env.now()));
            }
            self.turn(&mut writers, &mut flight).await;
            if let Some(Ended::Superseded(by)) = writers.iter().find_map(Writer::ended) {
                return Err(self.fenced(by.0));
            }
            if env.now() >= deadline {
                writers.iter_mut().for_each(Writer::free_all);
                self.turn(&mut writers, &mut flight).await;
                return Err(Error::new(
                    ErrorKind::Retry,
                    format!(
                        "fewer than {} nodes take a copy of a log that is taken over{}",
                        shape.quorum,
                        self.neighbours.troubles().told(&[])
                    ),
                )
                .object(place(self.log))
                .advice("start nodes, or let the ones that run lend more memory"));
            }
        }
        let mut proposals = writers.iter_mut().map(|writer| writer.take_proposal().unwrap_or_default());
        let segments = recovered.iter().map(|ready| {
            let members = ready.holders.as_ref().and_then(|_| proposals.next()).unwrap_or_default();
            let length = narrow(ready.kept.records.len());
            NearSegment {
                number: ready.kept.number,
                settled: Some((length, ready.digest)),
                regions: regions(&members),
            }
        });
        let narrow = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
        let segments: Vec<NearSegment> = segments.collect();
        let named = segments.iter().flat_map(|segment| members(&segment.regions));
        let (kept, copied): (Vec<Member>, Vec<Member>) = named.partition(|member| {
            recovered
                .iter()
                .filter_map(|ready| ready.holders.as_ref())
                .any(|holders| holders.contains(member))
        });
        tracing::debug!(
            kept = kept.len() as u64,
            copied = copied.len() as u64,
            "regions of a log that is taken over"
        );
        let configuration = encode(&NearLane {
            copies: narrow(shape.copies),
            quorum: narrow(shape.quorum),
            segments: segments.clone(),
        })?;
        self.context.chain.publish(LogRecord { id: self.log.id, configuration }).await?;
        for writer in &mut writers {
            writer.published(Published::Known, env.now());
            writer.free_unnamed();
        }
        for (at, writer) in writers.iter_mut().enumerate() {
            writer.take_calls().into_iter().for_each(|call| flight.send(self.neighbours, at, call));
        }
        Ok(segments)
    }

    fn free(&self, segments: &[NearSegment]) {
        free(self.context, self.neighbours, segments);
    }
}

/// Frees the regions of segments; nobody waits for it.
pub(crate) fn free(context: &LogContext, neighbours: &Neighbours, segments: &[NearSegment]) {
    let mut flight = Flight::default();
    for Member { node, incarnation, region } in segments.iter().flat_map(|segment| members(&segment.regions))
    {
        let request = Request { incarnation, region, epoch: context.epoch, body: Body::Free };
        flight.send(neighbours, (), Call { id: CallId::nobodys(), node: Arc::clone(&node), request });
    }
}

/// Frees the regions of segments, and waits a moment until their nodes have heard it: a process
/// that ends right after would take what it has not sent with it.
pub(crate) async fn free_heard(context: &LogContext, neighbours: &Neighbours, segments: &[NearSegment]) {
    let regions = segments.iter().flat_map(|segment| members(&segment.regions));
    let calls = regions.map(|Member { node, incarnation, region }| -> BoxFuture<'_, ()> {
        let request = Request { incarnation, region, epoch: context.epoch, body: Body::Free };
        Box::pin(async move {
            let _heard = ask(&context.env, neighbours, &node, request, HEARD_MAX).await;
        })
    });
    let calls: Vec<_> = calls.collect();
    let count = calls.len().max(1);
    all(calls, count).await;
}

/// A recovered segment.
#[derive(Debug)]
struct Ready {
    kept: Kept,
    digest: Digest,
    /// Regions that hold exactly that; `None`: it is in an object.
    holders: Option<Vec<Member>>,
}

/// Whether a record is the end of its segment.
fn is_end(payload: &[u8]) -> bool {
    matches!(NearPayload::decode(payload), Ok(NearPayload::End))
}

/// Whether a segment has its end record; `None` when its records are not sound, or not those with
/// that digest.
fn has_end(first: Digest, records: &Bytes, digest: Digest) -> Option<bool> {
    let mut walk = Records::new(first, 0, records);
    let mut has_end = false;
    for record in walk.by_ref() {
        has_end |= matches!(NearPayload::decode(record.ok()?.payload).ok()?, NearPayload::End);
    }
    (walk.digest() == digest).then_some(has_end)
}

pub(crate) fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
