//! Reads a lane back, entry by entry: what was recovered, whole; or what a living writer's regions
//! say was committed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tombolo_env::{BoxFuture, all};
use tombolo_format::near_log::{NEAR_ENTRY_HEADER_BYTES, NearPayload, NearSegment};
use tombolo_format::segment_record::{
    Digest, RECORD_HEADER_BYTES, Records, SEGMENT_RECORDS_BYTES_MAX, decode_checked, first_digest,
};
use tombolo_segment::call::{Lost, Member};
use tombolo_segment::follow::committed;
use tombolo_segment::message::{Answer, Body, READ_BYTES_MAX, Refusal, Request};
use tombolo_storage::{
    Epoch, Error, ErrorKind, LogContext, LogEntry, LogOffset, LogReader, LogRecord, LogRun, RUN_ENTRIES_MAX,
    Result, RunEntry,
};

use crate::configuration::{decode as decode_lane, members};
use crate::destage::read_object;
use crate::fence::{Kept, gone, identity, narrow, place};
use crate::flight::ask;
use crate::peers::Neighbours;

/// How long one read of a region may take.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Reads of one segment at once.
const READS_IN_FLIGHT: usize = 8;

/// How often a follower looks whether the writer tells that what it saw is committed, and the pause
/// between.
const LOOKS: u32 = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// A reader of what lies in `next..to` of some segments.
#[derive(Debug)]
pub(crate) struct Reader {
    context: LogContext,
    neighbours: Arc<Neighbours>,
    log: LogRecord,
    next: LogOffset,
    to: LogOffset,
    segments: VecDeque<NearSegment>,
    /// What a takeover has kept of them.
    kept: BTreeMap<u32, Bytes>,
    /// The segment that is being read.
    open: Option<Open>,
    /// Why there may be more.
    lacks: Option<Error>,
}

#[derive(Debug)]
struct Open {
    number: u32,
    /// Sound.
    records: Bytes,
    at: usize,
}

impl Reader {
    pub(crate) fn new(
        context: &LogContext,
        neighbours: &Arc<Neighbours>,
        log: &LogRecord,
        from: LogOffset,
        to: LogOffset,
        kept: Vec<Kept>,
    ) -> Result<Reader> {
        let lane = decode_lane(log)?;
        let is_wanted =
            |segment: &NearSegment| segment.number >= from.segment() && segment.number <= to.segment();
        let segments: VecDeque<NearSegment> = lane.segments.into_iter().filter(is_wanted).collect();
        let reader = Reader {
            context: context.clone(),
            neighbours: Arc::clone(neighbours),
            log: log.clone(),
            next: from,
            to,
            kept: kept.into_iter().map(|kept| (kept.number, kept.records)).collect(),
            segments,
            open: None,
            lacks: None,
        };
        let is_last = |segment: &NearSegment| {
            segment.number == to.segment() && segment.settled.is_none_or(|(length, _)| length >= to.byte())
        };
        if from < to && !reader.segments.back().is_some_and(is_last) {
            return Err(reader.short("no segment that reaches so far"));
        }
        let numbers = reader.segments.iter().map(|segment| segment.number);
        if from < to && !numbers.eq(from.segment()..=to.segment()) {
            // A replay point of long ago, with the configuration of now.
            return Err(reader.short("a log of which that was trimmed"));
        }
        Ok(reader)
    }

    fn short(&self, found: &str) -> Error {
        Error::new(ErrorKind::Corrupt, "a log does not hold what the manifest says")
            .object(place(&self.log))
            .expected(format!("bytes {} to {}", self.next, self.to))
            .found(found)
            .advice("restore the database from a copy")
    }

    /// All of a settled segment.
    async fn load(&self, segment: &NearSegment) -> Result<Bytes> {
        let is_all =
            |records: &&Bytes| segment.settled.is_some_and(|(length, _)| narrow(records.len()) == length);
        match self.kept.get(&segment.number).filter(is_all) {
            Some(records) => Ok(records.clone()),
            None => load(&self.context, &self.neighbours, &self.log, segment).await,
        }
    }

    /// Begins the next segment where one has ended. `false`: there is nothing more to read.
    async fn go_on(&mut self) -> Result<bool> {
        while self.next < self.to {
            match &self.open {
                Some(open) if open.at < open.records.len() => return Ok(true),
                Some(open) => {
                    self.next = self.next.max(LogOffset::new(open.number + 1, 0));
                    self.open = None;
                }
                None => {
                    let Some(segment) = self.segments.pop_front() else {
                        return Err(self.short("an earlier end"));
                    };
                    let records = self.load(&segment).await?;
                    self.open = Some(Open { number: segment.number, records, at: 0 });
                }
            }
        }
        Ok(false)
    }

    /// At most so many entries of one segment, which were all checked as it was loaded.
    async fn run(&mut self, entries_max: usize) -> Result<Option<LogRun>> {
        while self.go_on().await? {
            let Some(open) = &mut self.open else { continue };
            let mut entries = Vec::new();
            while open.at < open.records.len() && self.next < self.to && entries.len() < entries_max {
                let at = open.at;
                let entry = match open.step(&self.log) {
                    Ok(Some(entry)) if entry.end > self.to => Err(None),
                    Ok(entry) => Ok(entry),
                    Err(error) => Err(Some(error)),
                };
                match entry {
                    Ok(Some(entry)) if entry.end > self.next => {
                        self.next = entry.end;
                        entries.push(entry);
                    }
                    // Before where it is read from; or no entry.
                    Ok(_) => {}
                    Err(error) if entries.is_empty() => {
                        return Err(error.unwrap_or_else(|| self.short("an entry that goes beyond")));
                    }
                    // Once those before it are read.
                    Err(_) => {
                        open.at = at;
                        break;
                    }
                }
            }
            if !entries.is_empty() {
                return Ok(Some(LogRun { memory: open.records.clone(), entries }));
            }
        }
        Ok(None)
    }
}

impl Open {
    /// The next record, if it is an entry.
    fn step(&mut self, log: &LogRecord) -> Result<Option<RunEntry>> {
        let name = || format!("{}, segment {}", place(log), self.number);
        let record = decode_checked(narrow(self.at), &self.records[self.at..])
            .map_err(|error| Error::format(name(), 0, error))?;
        let payload = NearPayload::decode(record.payload)
            .map_err(|error| Error::format(name(), self.at as u64, error))?;
        let start = self.at + RECORD_HEADER_BYTES + NEAR_ENTRY_HEADER_BYTES;
        let end = self.at + record.bytes();
        self.at = end;
        Ok(match payload {
            NearPayload::Entry { stream, count, first_sequence, .. } => Some(RunEntry {
                stream,
                first_sequence,
                count,
                payload: start..end,
                end: LogOffset::new(self.number, narrow(end)),
            }),
            NearPayload::End | NearPayload::Committed => None,
        })
    }
}

impl LogReader for Reader {
    fn lacks(&self) -> Option<Error> {
        self.lacks.clone()
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<(LogEntry, LogOffset)>>> {
        Box::pin(async move {
            Ok(self.run(1).await?.and_then(|run| run.entries.first().map(|entry| run.entry(entry))))
        })
    }

    fn next_run(&mut self) -> BoxFuture<'_, Result<Option<LogRun>>> {
        Box::pin(self.run(RUN_ENTRIES_MAX))
    }
}

/// All of a settled segment: from whichever of its regions has it, or from its object.
///
/// # Errors
/// `Retry` when a node that may hold it does not answer; `Corrupt` when all do, and none has it.
pub(crate) async fn load(
    context: &LogContext,
    neighbours: &Neighbours,
    log: &LogRecord,
    segment: &NearSegment,
) -> Result<Bytes> {
    let Some((length, digest)) = segment.settled else {
        return Err(Error::new(ErrorKind::Bug, "a log is read that nobody has sealed").object(place(log)));
    };
    let identity = identity(context, log, segment.number);
    let is_it = |records: &Bytes| {
        let mut walk = Records::new(first_digest(context.database, &identity), 0, records);
        walk.by_ref().all(|record| record.is_ok()) && walk.digest() == digest
    };
    let mut silent = 0;
    for member in members(&segment.regions) {
        match fetch(context, neighbours, &member, length).await {
            Ok(records) if is_it(&records) => return Ok(records),
            Ok(_) | Err(Missing::Lost) => {}
            Err(Missing::Silent) => silent += 1,
        }
    }
    // A reader that knows an older configuration finds regions freed, and the object in their
    // place.
    match read_object(context, &identity, (length, digest)).await {
        Ok(records) if is_it(&records) => Ok(records),
        Ok(_) => Err(gone(log, segment.number, "sound records", "others")),
        Err(error) if error.kind() != ErrorKind::NotFound || segment.regions.is_empty() => Err(error),
        Err(_) if silent == 0 => {
            let found = format!("{0} of its {0} regions lost what they held", segment.regions.len());
            Err(gone(log, segment.number, "a region that holds it", &found))
        }
        Err(_) => Err(Error::new(
            ErrorKind::Retry,
            format!("none of the nodes that hold segment {} answers with it", segment.number),
        )
        .object(place(log))
        .advice("bring them back: `tombolo log status` names them")),
    }
}

/// So many bytes of a region.
async fn fetch(
    context: &LogContext,
    neighbours: &Neighbours,
    member: &Member,
    length: u32,
) -> std::result::Result<Bytes, Missing> {
    let starts = (0..length).step_by(READ_BYTES_MAX as usize);
    let reads = starts.map(|from| -> BoxFuture<'_, std::result::Result<Bytes, Missing>> {
        Box::pin(read_region(
            context,
            neighbours,
            member,
            context.epoch,
            from,
            READ_BYTES_MAX.min(length - from),
        ))
    });
    let parts = all(reads.collect(), READS_IN_FLIGHT).await;
    let mut records = BytesMut::with_capacity(length as usize);
    for part in parts {
        records.extend_from_slice(&part?);
    }
    if records.len() == length as usize { Ok(records.freeze()) } else { Err(Missing::Lost) }
}

/// Why bytes of a region are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// No answer; or that of a node that does not let this epoch read.
    Silent,
    /// Its node has them no more.
    Lost,
}

/// Bytes of a region: fewer at its end.
async fn read_region(
    context: &LogContext,
    neighbours: &Neighbours,
    member: &Member,
    epoch: Epoch,
    from: u32,
    bytes_max: u32,
) -> std::result::Result<Bytes, Missing> {
    let mut read = BytesMut::new();
    while narrow(read.len()) < bytes_max {
        let wanted = (bytes_max - narrow(read.len())).min(READ_BYTES_MAX);
        let body = Body::Read { from: from + narrow(read.len()), bytes_max: wanted };
        let request = Request { incarnation: member.incarnation, region: member.region, epoch, body };
        match ask(&context.env, neighbours, &member.node, request, TIME_MAX).await {
            Ok(Answer::Bytes(bytes)) if bytes.is_empty() => break,
            // Who answers with more than was asked for is not believed in that.
            Ok(Answer::Bytes(bytes)) => read.extend_from_slice(&bytes[..bytes.len().min(wanted as usize)]),
            Ok(Answer::Refused(
                Refusal::OtherIncarnation(_) | Refusal::Freed | Refusal::Unknown | Refusal::Damaged { .. },
            )) => {
                return Err(Missing::Lost);
            }
            Ok(_) | Err(Lost) => return Err(Missing::Silent),
        }
    }
    Ok(read.freeze())
}

/// Where the last record ends that is worth telling of: those that are there to tell are never told
/// of themselves.
fn worth_telling(first: Digest, records: &[u8]) -> u32 {
    let (mut at, mut end) = (0, 0);
    for record in Records::new(first, 0, records).map_while(std::result::Result::ok) {
        at += record.bytes();
        if NearPayload::decode(record.payload) != Ok(NearPayload::Committed) {
            end = at;
        }
    }
    narrow(end)
}

/// The committed part of a segment that nobody may have sealed yet, as its regions say, and how
/// much more some region has. Only a takeover can tell whether a writer acknowledged the rest and
/// died before it told anybody.
///
/// # Errors
/// `Retry` when so few regions answer that they may all have missed what `quorum` of them
/// acknowledged.
async fn follow_segment(
    context: &LogContext,
    neighbours: &Neighbours,
    log: &LogRecord,
    segment: &NearSegment,
    quorum: usize,
) -> Result<(Bytes, u32)> {
    let first = first_digest(context.database, &identity(context, log, segment.number));
    let mut wanted = None;
    let mut look = 0;
    loop {
        let members = members(&segment.regions);
        // In the name of no epoch: a follower fences nothing.
        let reads = members.iter().map(|member| -> BoxFuture<'_, std::result::Result<Bytes, Missing>> {
            Box::pin(read_region(context, neighbours, member, Epoch::NONE, 0, SEGMENT_RECORDS_BYTES_MAX))
        });
        let answers = all(reads.collect(), members.len().max(1)).await;
        let lost = answers.iter().filter(|answer| matches!(answer, Err(Missing::Lost))).count();
        let said: Vec<Bytes> = answers.into_iter().flatten().collect();
        let walked = said.iter().map(|bytes| (committed(first, 0, bytes), bytes));
        let enough = said.len() + quorum > members.len();
        let Some((best, bytes)) = walked.max_by_key(|(walk, _)| walk.end).filter(|_| enough) else {
            let nodes: Vec<_> = members.iter().map(|member| &*member.node).collect();
            let message = format!(
                "{} of the {} nodes that hold segment {} answer with it, and {lost} have lost it",
                said.len(),
                members.len(),
                segment.number
            );
            return Err(Error::new(ErrorKind::Retry, message)
                .object(place(log))
                .expected(format!("{} of {}", members.len() + 1 - quorum, nodes.join(", ")))
                .advice(
                    "bring them back: `tombolo log status` says what each has. A writer that lives makes \
                    good what they lost; if there is none, opening the database says whether it is gone. \
                    `--tables-only`, or tables_only, shows what tables hold",
                ));
        };
        // What some region has may be acknowledged already: the writer tells soon, if it lives.
        let seen = said.iter().map(|bytes| worth_telling(first, bytes)).max().unwrap_or(0);
        let wanted = *wanted.get_or_insert(seen);
        if best.end >= wanted || look == LOOKS {
            return Ok((bytes.slice(..best.end as usize), wanted.saturating_sub(best.end)));
        }
        context.env.sleep(LOOK_PAUSE).await;
        look += 1;
    }
}

/// What a follower is told when a region has records of which nobody says whether they are
/// committed.
fn undecided(log: &LogRecord, segment: u32, bytes: u32) -> Error {
    let error = Error::new(
        ErrorKind::Retry,
        format!(
            "the last {bytes} bytes of segment {segment} may be acknowledged, and the writer does not say so"
        ),
    );
    error.object(place(log)).advice(
        "wait until the writer goes on, or a standby, or whoever opens the \
        database, has taken the log over; `--tables-only`, or tables_only, shows what tables hold",
    )
}

/// A reader of committed entries from `from` on.
pub(crate) async fn tail(
    context: &LogContext,
    neighbours: &Arc<Neighbours>,
    log: &LogRecord,
    from: LogOffset,
) -> Result<Reader> {
    let lane = decode_lane(log)?;
    if lane.segments.first().is_some_and(|first| first.number > from.segment()) {
        return Err(Error::new(
            ErrorKind::NotFound,
            "the log was trimmed beyond where it is to be followed from",
        )
        .object(place(log)));
    }
    let (mut kept, mut to, mut lacks) = (Vec::new(), from, None);
    for segment in lane.segments.iter().filter(|segment| segment.number >= from.segment()) {
        let (records, more) = match segment.settled {
            // The takeover that settled it knew how long it is.
            Some(_) => (load(context, neighbours, log, segment).await?, 0),
            None => follow_segment(context, neighbours, log, segment, usize::from(lane.quorum)).await?,
        };
        let has_end = {
            let first = first_digest(context.database, &identity(context, log, segment.number));
            let walk = Records::new(first, 0, &records);
            walk.map_while(std::result::Result::ok)
                .any(|record| NearPayload::decode(record.payload) == Ok(NearPayload::End))
        };
        let seen = LogOffset::new(segment.number, narrow(records.len()) + more);
        if !records.is_empty() {
            to = to.max(LogOffset::new(segment.number, narrow(records.len())));
        }
        kept.push((segment.number, records));
        if !has_end {
            // What lies before is in tables.
            lacks = (more > 0 && seen > from).then(|| undecided(log, segment.number, more));
            break;
        }
    }
    let segments = kept.iter().map(|(number, records)| NearSegment {
        number: *number,
        settled: Some((narrow(records.len()), Digest(0))),
        regions: Vec::new(),
    });
    let segments = segments.collect();
    let kept = kept.into_iter().collect();
    Ok(Reader {
        context: context.clone(),
        neighbours: Arc::clone(neighbours),
        log: log.clone(),
        next: from,
        to,
        segments,
        kept,
        open: None,
        lacks,
    })
}
