//! One lane of this epoch's log: its segments, the requests on the way to their regions, and the
//! configuration that names them.
//!
//! Write path, steps 3 and 4, which are one here: an append is on its way to all regions before the
//! call returns, unless so many are that it waits for the next batch. It is accepted, and durable,
//! when q regions have it and all before it: before the call returns where nodes of this host are
//! written to.
//!
//! Invariants:
//! 1. `durable` is the acknowledged end of a segment, all segments before it being acknowledged to
//!    their ends.
//! 2. One publication at a time; what it leaves out or frees is freed once it is known (rule 6).
//! 3. Locks are taken in this order: the state, the flight. Calls go out in the order in which the
//!    state decided them.

mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tombolo_env::{Completer, Completion, Env, Instant, TaskClass, completion, within};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::near_log::{
    NEAR_COMMITTED, NEAR_END, NEAR_ENTRY_HEADER_BYTES, NEAR_SEGMENTS_MAX, NearLane, NearSegment,
    encode_near_entry,
};
use tombolo_format::segment_record::{Digest, RECORD_HEADER_BYTES, RECORD_PAYLOAD_BYTES_MAX};
use tombolo_segment::call::{Member, Node, Outcome};
use tombolo_segment::message::{Answer, Body, Refusal, Request};
use tombolo_segment::writer::{Job, Writer};
use tombolo_storage::log_memory::LaneMemory;
use tombolo_storage::logged::LoggedErrors;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Appended, Error, ErrorKind, LogAppend, LogContext, LogId, LogOffset, LogRecord, Pressure, Result,
};

use crate::configuration::{encode, regions};
use crate::flight::{Flight, Landed, ask};
use crate::peers::Neighbours;
use crate::replication::Replication;

/// Appends get `Busy` when more bytes than this, or than the context's memory gives, would wait for
/// their acknowledgement.
const WAITING_BYTES_MAX: u64 = 64 << 20;

/// Bytes not yet trimmed beyond which the log wants its oldest data flushed, if memory allows so
/// many.
const WANTED_BYTES_MAX: u64 = 256 << 20;

/// Segments beyond which it does, however short they are; and beyond which nothing is appended.
const SEGMENTS_WANTED: usize = NEAR_SEGMENTS_MAX / 2;
const SEGMENTS_MAX: usize = NEAR_SEGMENTS_MAX - 4;

/// Room behind a segment's entries: for its end, and for records that tell what was committed.
const SLACK_BYTES: u32 = 4096;

/// How often time is looked at while something is on its way, or missing.
const TICK: Duration = Duration::from_millis(20);

/// How often when nothing is.
const IDLE_TICK: Duration = Duration::from_secs(5);

/// So long nothing is acknowledged before those who wait are told, if too few regions answer.
const TIME_MAX: Duration = Duration::from_secs(3);

/// How often a lane that closes looks whether regions have what it told last.
const TOLD_LOOK: Duration = Duration::from_millis(1);

/// So long a node that wants memory back waits for a region on another node, before the segment
/// becomes an object instead.
const RECLAIM_TIME_MAX: Duration = Duration::from_secs(2);

/// So long no region is made on a node that was found slow, if there are others.
const SLOW_AVOIDED: Duration = Duration::from_secs(60);

/// So long the chain takes no configuration before those who wait for one are told. Rights and
/// credentials are mended by people, who may take hours.
const REFUSED_TIME_MAX: Duration = Duration::from_secs(30);

/// After a publication that was refused, or is of unknown outcome, it is made again.
const PUBLISH_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
enum Mode {
    Open,
    Closed,
    /// Fenced, or the chain refused.
    Ended(Error),
}

/// Where a segment's bytes are.
#[derive(Debug)]
pub(crate) enum Place {
    /// In regions, and in the memory of this process.
    Regions(Box<Writer>),
    /// In an object.
    Object { length: u32, digest: Digest },
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) place: Place,
    /// Where its end record ends, once it has one.
    pub(crate) end: Option<u32>,
    /// So much of it is in an object too, which no configuration is known to name.
    pub(crate) copy: Option<(u32, Digest)>,
    /// Since when nodes want regions of it back for which no other node has room.
    wanted_back_since: Option<Instant>,
}

impl Segment {
    /// Whether it is to be written to the object store, as its nodes want its memory back and no
    /// others take it.
    pub(crate) fn is_reclaimed(&self, now: Instant) -> bool {
        self.wanted_back_since.is_some_and(|since| now.since(since) >= RECLAIM_TIME_MAX)
            && !is_enabled(Mutant::NearReclaimNotDestaged)
    }

    fn writer(&mut self) -> Option<&mut Writer> {
        match &mut self.place {
            Place::Regions(writer) => Some(writer),
            Place::Object { .. } => None,
        }
    }

    fn distances(&self) -> Option<Vec<(Arc<str>, Duration)>> {
        match &self.place {
            Place::Regions(writer) => Some(writer.distances()),
            Place::Object { .. } => None,
        }
    }

    fn acknowledged(&self) -> u32 {
        match &self.place {
            Place::Regions(writer) => writer.acknowledged(),
            Place::Object { length, .. } => *length,
        }
    }

    pub(crate) fn bytes(&self) -> u32 {
        match &self.place {
            Place::Regions(writer) => writer.end(),
            Place::Object { length, .. } => *length,
        }
    }

    /// Whether it is acknowledged to its end.
    pub(crate) fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.acknowledged() >= end)
    }
}

#[derive(Debug)]
pub(crate) struct State {
    mode: Mode,
    /// Oldest first; the last ones have no end yet. Invariant: numbers without a gap, never empty.
    pub(crate) segments: VecDeque<Segment>,
    next_number: u32,
    /// Where the lane's entries end, and up to where they are acknowledged.
    end: LogOffset,
    durable: LogOffset,
    durable_changed_at: Instant,
    /// What lies before was flushed.
    trimmed: LogOffset,
    /// A buffer for answers that come with their calls.
    answers: Vec<Landed<u32>>,
    /// Ascending as they came; not by offset.
    waiters: Vec<(LogOffset, Completer<Result<()>>)>,
    memory: LaneMemory,
    /// Bytes of all segments that are in the memory of this process, but for the few that were
    /// added to tell something since they were counted.
    held: u64,
    is_publishing: bool,
    /// Since when the chain takes no configuration, and what it said last.
    unpublished: Option<(Instant, Error)>,
    /// What was logged of that.
    logged: LoggedErrors,
    /// The published configuration is not the newest, though no writer proposes one.
    pub(crate) is_stale: bool,
    pub(crate) is_destaging: bool,
    /// The opening that waits for the first configuration.
    opened: Option<Completer<Result<()>>>,
    /// Too few regions answer, or the chain takes none: appends are refused, and who waited was
    /// told.
    below: Option<Error>,
    /// When too few regions were first found to answer, since nothing became durable.
    below_since: Option<Instant>,
    /// Nodes that were found slow, and until when no region is made there if there are others.
    slow: Vec<(Arc<str>, Instant)>,
}

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LogId,
    pub(crate) context: LogContext,
    pub(crate) neighbours: Arc<Neighbours>,
    replication: Replication,
    segment_bytes: u32,
    pub(crate) state: Mutex<State>,
    /// The state's, for callers that only ask for it. Invariant: at most that.
    durable: AtomicU64,
    /// Whether nodes answered the newest entry while it was appended.
    is_answered_at_once: AtomicBool,
    flight: Mutex<Flight<u32>>,
    /// Set while the task that looks at the time has nothing to do.
    parked: Mutex<Option<Completer<()>>>,
}

/// Completers whose wait is over, and with what.
type Done = (Vec<Completer<Result<()>>>, Result<()>);

impl Lane {
    /// A lane with its first segment, and a wait for its first configuration.
    pub(crate) fn begin(
        context: &LogContext,
        neighbours: &Arc<Neighbours>,
        replication: Replication,
        lane: u32,
    ) -> (Arc<Lane>, Completion<Result<()>>) {
        let memory = LaneMemory::new(&context.memory);
        let segment_bytes = replication.segment_bytes_for(context);
        let (completer, opened) = completion();
        let now = context.env.now();
        let state = State {
            mode: Mode::Open,
            segments: VecDeque::new(),
            next_number: 0,
            end: LogOffset::ZERO,
            durable: LogOffset::ZERO,
            durable_changed_at: now,
            trimmed: LogOffset::ZERO,
            answers: Vec::new(),
            waiters: Vec::new(),
            memory,
            held: 0,
            is_publishing: false,
            unpublished: None,
            logged: LoggedErrors::default(),
            is_stale: false,
            is_destaging: false,
            opened: Some(completer),
            below: None,
            below_since: None,
            slow: Vec::new(),
        };
        let lane = Arc::new(Lane {
            id: LogId { epoch: context.epoch, lane },
            context: context.clone(),
            neighbours: Arc::clone(neighbours),
            replication,
            segment_bytes,
            state: Mutex::new(state),
            durable: AtomicU64::new(LogOffset::ZERO.0),
            is_answered_at_once: AtomicBool::new(false),
            flight: Mutex::default(),
            parked: Mutex::new(None),
        });
        let mut state = lane.state.lock();
        lane.add_segment(&mut state, segment_bytes, now);
        lane.go_on(state);
        (lane, opened)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.context.env
    }

    pub(crate) fn name(&self) -> String {
        format!("the near-compute log of epoch {} lane {}", self.id.epoch, self.id.lane)
    }

    pub(crate) fn identity(&self, segment: u32) -> SegmentIdentity {
        SegmentIdentity {
            incarnation: self.context.incarnation.0,
            epoch: self.id.epoch.0,
            lane: self.id.lane,
            segment,
        }
    }

    fn add_segment(&self, state: &mut State, bytes: u32, now: Instant) {
        let number = state.next_number;
        state.next_number += 1;
        let random = || u128::from(self.env().random_u64());
        let job = Job {
            shape: self.replication.shape,
            database: self.context.database,
            segment: self.identity(number),
            epoch: self.id.epoch,
            bytes_max: bytes + SLACK_BYTES,
            first_region: random() << 64 | random(),
            distances: state.segments.iter().rev().find_map(Segment::distances).unwrap_or_default(),
        };
        let mut writer = Writer::new(job, &self.nodes_for(state, now));
        writer.tick(now);
        state.segments.push_back(Segment {
            number,
            place: Place::Regions(Box::new(writer)),
            end: None,
            copy: None,
            wanted_back_since: None,
        });
    }

    /// Nodes that regions are made on: without the slow ones, as long as there are enough.
    fn nodes_for(&self, state: &mut State, now: Instant) -> Vec<Node> {
        state.slow.retain(|(_, until)| *until > now);
        let all = self.neighbours.nodes();
        let is_slow = |node: &&Node| state.slow.iter().any(|(slow, _)| *slow == node.address);
        let quick: Vec<Node> = all.iter().filter(|node| !is_slow(node)).cloned().collect();
        if quick.len() >= self.replication.shape.copies { quick } else { all }
    }

    fn check_open(&self, state: &State) -> Result<()> {
        match (&state.mode, &state.below) {
            (Mode::Closed, _) => Err(Error::new(ErrorKind::Closed, "the log was closed").object(self.name())),
            (Mode::Ended(error), _) => Err(error.clone()),
            (Mode::Open, Some(below)) => Err(below.clone()),
            (Mode::Open, None) => Ok(()),
        }
    }

    /// Appends one entry; it is accepted when it is durable.
    pub(crate) fn append(self: &Arc<Lane>, entry: &LogAppend<'_>) -> Result<Appended> {
        let bytes = NEAR_ENTRY_HEADER_BYTES + entry.payload_bytes();
        if bytes > RECORD_PAYLOAD_BYTES_MAX {
            let message = format!(
                "a log entry of {} bytes; {} are the most",
                entry.payload_bytes(),
                RECORD_PAYLOAD_BYTES_MAX - NEAR_ENTRY_HEADER_BYTES
            );
            return Err(Error::new(ErrorKind::Invalid, message).advice("write smaller batches"));
        }
        self.env().preemption_point();
        let header = encode_near_entry(entry.stream, entry.count, entry.first_sequence);
        let now = self.env().now();
        let mut state = self.state.lock();
        self.check_open(&state)?;
        self.check_memory(&state, bytes)?;
        self.make_room(&mut state, bytes, now);
        let Some((number, writer)) = state.active() else {
            return Err(Error::new(ErrorKind::Bug, "a lane without a segment"));
        };
        let before = writer.end();
        let end = writer.append(&header, entry.parts, now);
        let is_half_full = end > self.segment_bytes / 2;
        if state.durable >= state.end {
            state.durable_changed_at = now;
        }
        state.end = LogOffset::new(number, end);
        state.hold(u64::from(end - before));
        if is_half_full && state.segments.back().is_some_and(|last| last.number == number) {
            self.add_segment(&mut state, self.segment_bytes, now);
        }
        let end = state.end;
        let mut done = self.advance_newest(&mut state);
        // Nodes of this host have answered.
        let accepted = (state.durable < end).then(|| {
            let (completer, accepted) = completion();
            state.waiters.push((end, completer));
            // What was sent may have ended the lane.
            let newest = state.newest();
            done.push(state.settle(self, newest));
            accepted
        });
        self.is_answered_at_once.store(accepted.is_none(), Ordering::Relaxed);
        self.rest(state, done);
        Ok(Appended { end, accepted })
    }

    /// Where entries wait for their answers batches gather them; where each is stored to nodes of
    /// this host as it comes, nothing does.
    pub(crate) fn wants_gathered(&self) -> bool {
        self.is_answered_at_once.load(Ordering::Relaxed)
    }

    fn check_memory(&self, state: &State, bytes: usize) -> Result<()> {
        let busy = |what: String| {
            let error = Error::new(ErrorKind::Busy, what).object(self.name());
            Err(error.advice("wait until what was appended is durable or flushed, then append again"))
        };
        if state.segments.len() > SEGMENTS_MAX {
            return busy(format!(
                "the log has {} segments that no flush has freed; nothing took effect",
                state.segments.len()
            ));
        }
        let waiting = state.waiting_bytes();
        if waiting > 0 && waiting + bytes as u64 > WAITING_BYTES_MAX.min(state.memory.bytes_max() as u64) {
            return busy(format!(
                "{waiting} bytes of the log are on their way to their nodes; nothing took effect"
            ));
        }
        let held = state.held + bytes as u64;
        if state.is_destaging && held > state.memory.bytes_max() as u64 {
            return busy(format!(
                "{held} bytes of the log are in memory, and are written to the object store; nothing took \
                effect"
            ));
        }
        Ok(())
    }

    /// Ends segments until the active one has room.
    fn make_room(&self, state: &mut State, bytes: usize, now: Instant) {
        loop {
            let with_record = u32::try_from(bytes + RECORD_HEADER_BYTES).unwrap_or(u32::MAX);
            let wanted = self.segment_bytes.max(with_record);
            if state.active().is_none() {
                self.add_segment(state, wanted, now);
            }
            let Some((number, writer)) = state.active() else { return };
            if writer.room() >= with_record + SLACK_BYTES {
                return;
            }
            let before = writer.end();
            let end = writer.append(&NEAR_END, &[], now);
            state.hold(u64::from(end - before));
            if let Some(segment) = state.segments.iter_mut().find(|segment| segment.number == number) {
                segment.end = Some(end);
            }
        }
    }

    /// Sends all that is due and wakes whose wait is over, until nothing more follows from it.
    pub(crate) fn go_on<'a>(self: &'a Arc<Lane>, mut state: MutexGuard<'a, State>) {
        let done = self.advance(&mut state);
        self.rest(state, done);
    }

    /// Sends all that is due, until nothing more follows from the answers that come with it.
    /// Whose wait is over is to be woken.
    fn advance(self: &Arc<Lane>, state: &mut State) -> Vec<Done> {
        let mut all = Vec::new();
        loop {
            let done = state.settle(self, 0);
            if !done.0.is_empty() {
                all.push(done);
            }
            self.begin_publication(state);
            self.begin_destaging(state);
            if !self.send(state, 0) {
                return all;
            }
        }
    }

    /// As [`Lane::advance`], when nothing has changed but that an entry was added: all that lies
    /// before the durable end is left alone, so that an append that nodes answer at once costs the
    /// same however long the log is. What else may have come up is looked at with the next answer
    /// or tick: memory that is short, when the next segment's regions are there.
    fn advance_newest(self: &Arc<Lane>, state: &mut State) -> Vec<Done> {
        let mut all = Vec::new();
        let newest = state.newest();
        loop {
            let done = state.settle(self, newest);
            if !done.0.is_empty() {
                all.push(done);
            }
            if !self.send(state, newest) {
                return all;
            }
        }
    }

    /// Sends what the segments from `first` on have to send, and hears the answers that come with
    /// it. Whether there were any.
    fn send(&self, state: &mut State, first: usize) -> bool {
        let mut flight = self.flight.lock();
        for segment in state.segments.range_mut(first..) {
            let number = segment.number;
            if let Some(writer) = segment.writer() {
                writer.drain_calls().for_each(|call| flight.send(&self.neighbours, number, call));
            }
        }
        flight.swap_at_once(&mut state.answers);
        drop(flight);
        if state.answers.is_empty() {
            return false;
        }
        let mut answers = std::mem::take(&mut state.answers);
        state.hear(answers.drain(..), self.env().now());
        state.answers = answers;
        true
    }

    /// What follows from [`Lane::advance`] without the state's lock, and from answers that have
    /// come meanwhile.
    fn rest<'a>(self: &'a Arc<Lane>, mut state: MutexGuard<'a, State>, mut done: Vec<Done>) {
        loop {
            drop(state);
            let landed = self.flight.lock().landed();
            done.drain(..).for_each(wake);
            if landed.is_empty() {
                break;
            }
            state = self.state.lock();
            state.hear(landed, self.env().now());
            done = self.advance(&mut state);
        }
        if let Some(parked) = self.parked.lock().take() {
            parked.complete(());
        }
    }

    /// Hears what comes back, as long as the lane lives.
    pub(crate) async fn listen(self: Arc<Lane>) {
        loop {
            let landed = std::future::poll_fn(|context| self.flight.lock().poll_landed(context)).await;
            let mut state = self.state.lock();
            state.hear(landed, self.env().now());
            self.go_on(state);
        }
    }

    /// Looks at the time, as long as the lane lives.
    pub(crate) async fn watch(self: Arc<Lane>) {
        loop {
            let is_busy = self.state.lock().is_busy();
            if is_busy {
                self.env().sleep(TICK).await;
            } else {
                let (completer, parked) = completion();
                *self.parked.lock() = Some(completer);
                // What became busy before it was parked is seen now.
                if !self.state.lock().is_busy() {
                    let _woken = within(self.env(), IDLE_TICK, parked).await;
                }
            }
            self.tick();
        }
    }

    fn tick(self: &Arc<Lane>) {
        let now = self.env().now();
        let mut state = self.state.lock();
        let nodes = self.nodes_for(&mut state, now);
        let is_open = matches!(state.mode, Mode::Open);
        let mut slow: Vec<Arc<str>> = Vec::new();
        for segment in &mut state.segments {
            let Some(writer) = segment.writer() else { continue };
            writer.set_nodes(&nodes);
            let wanted_back = |member: &Member| {
                self.neighbours.peer(&member.node).is_ok_and(|peer| peer.is_wanted_back(member.region))
            };
            let mut is_wanted_back = false;
            for member in writer.configured().iter().filter(|member| wanted_back(member)) {
                writer.give_back(member.region, now);
                is_wanted_back = true;
            }
            writer.tick(now);
            slow.extend(writer.slow().cloned());
            if is_open {
                tell_untold(writer, now);
            }
            segment.wanted_back_since = is_wanted_back.then(|| segment.wanted_back_since.unwrap_or(now));
        }
        state.slow.retain(|(node, _)| !slow.contains(node));
        state.slow.extend(slow.into_iter().map(|node| (node, now + SLOW_AVOIDED)));
        if is_open {
            self.leave_reclaimed(&mut state, now);
        }
        state.count();
        let told = state.look_whether_below(self, now);
        self.go_on(state);
        wake(told);
    }

    /// Goes on in a segment whose nodes want nothing back, once there is one, so that those before
    /// it can become objects.
    fn leave_reclaimed(&self, state: &mut State, now: Instant) {
        let Some(active) = state.segments.iter().position(|segment| segment.end.is_none()) else { return };
        if !state.segments[active].is_reclaimed(now) {
            return;
        }
        let is_made =
            |segment: &Segment| matches!(&segment.place, Place::Regions(writer) if writer.is_configured());
        let next = state
            .segments
            .iter()
            .skip(active)
            .position(|segment| is_made(segment) && segment.wanted_back_since.is_none());
        let is_coming = state.segments.iter().skip(active).any(|segment| !is_made(segment));
        match next {
            None if !is_coming && state.segments.len() < SEGMENTS_MAX => {
                self.add_segment(state, self.segment_bytes, now);
            }
            None => {}
            Some(next) => {
                for segment in state.segments.iter_mut().skip(active).take(next) {
                    if let Some(writer) = segment.writer().filter(|writer| writer.has_room(NEAR_END.len())) {
                        segment.end = Some(writer.append(&NEAR_END, &[], now));
                    }
                }
            }
        }
    }

    /// Publishes the configuration, if it is to change and nobody is at it.
    fn begin_publication(self: &Arc<Lane>, state: &mut State) {
        if state.is_publishing || matches!(state.mode, Mode::Ended(_)) || state.is_given_up() {
            return;
        }
        let is_wanted = |segment: &mut Segment| segment.writer().is_some_and(|writer| writer.has_proposal());
        if !state.is_stale && !state.segments.iter_mut().any(is_wanted) {
            return;
        }
        let (mut named, mut proposed, mut copied) = (Vec::new(), Vec::new(), Vec::new());
        for segment in &mut state.segments {
            let number = segment.number;
            let settled = match &mut segment.place {
                Place::Object { length, digest } => Some((*length, *digest)),
                Place::Regions(_) if segment.copy.is_some() => {
                    copied.push(number);
                    segment.copy
                }
                Place::Regions(writer) => {
                    let proposal = writer.take_proposal();
                    let members = proposal.clone().unwrap_or_else(|| writer.configured());
                    if members.is_empty() {
                        break;
                    }
                    proposed.extend(proposal.map(|_| number));
                    named.push(NearSegment { number, settled: None, regions: regions(&members) });
                    continue;
                }
            };
            named.push(NearSegment { number, settled, regions: Vec::new() });
        }
        if proposed.is_empty() && !state.is_stale {
            return;
        }
        (state.is_publishing, state.is_stale) = (true, false);
        let narrow = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
        let shape = self.replication.shape;
        let configuration =
            encode(&NearLane { copies: narrow(shape.copies), quorum: narrow(shape.quorum), segments: named });
        let (lane, begun) = (Arc::clone(self), self.env().now());
        let publication = async move {
            let outcome = match configuration {
                Ok(configuration) => {
                    lane.context.chain.publish(LogRecord { id: lane.id, configuration }).await
                }
                Err(error) => Err(error),
            };
            if outcome.as_ref().is_err_and(|error| error.kind() != ErrorKind::Fenced) {
                lane.env().sleep(PUBLISH_PAUSE).await;
            }
            let mut state = lane.state.lock();
            state.published((&proposed, &copied), outcome, begun, &lane);
            lane.go_on(state);
        };
        self.env().spawn(TaskClass::Foreground, "configuration of a log", publication).detach();
    }

    /// A ticket for `end` being durable.
    pub(crate) fn durable(&self, end: LogOffset) -> Completion<Result<()>> {
        let (completer, waiting) = completion();
        if end <= self.durable_through() {
            completer.complete(Ok(()));
            return waiting;
        }
        let known = {
            let mut state = self.state.lock();
            match (&state.mode, &state.below) {
                _ if end <= state.durable => Ok(()),
                // It is on its way, and may take effect.
                (Mode::Ended(error), _) if end <= state.end && !is_certain(error) => Err(state::ended(error)),
                (Mode::Ended(error), _) => Err(error.clone()),
                _ if end > state.end => {
                    Err(Error::new(ErrorKind::Bug, format!("a sync to {end}, beyond the end {}", state.end))
                        .object(self.name()))
                }
                (_, Some(below)) => Err(unknown(below)),
                _ => {
                    state.waiters.push((end, completer));
                    return waiting;
                }
            }
        };
        completer.complete(known);
        waiting
    }

    pub(crate) fn durable_through(&self) -> LogOffset {
        LogOffset(self.durable.load(Ordering::Acquire))
    }

    /// Frees segments that lie before `before` whole.
    pub(crate) fn trim(self: &Arc<Lane>, before: LogOffset) {
        let mut objects = Vec::new();
        let mut state = self.state.lock();
        state.trimmed = state.trimmed.max(before);
        let mut flight = self.flight.lock();
        while state
            .segments
            .front()
            .is_some_and(|first| first.number < before.segment() && first.is_complete())
            && let Some(mut first) = state.segments.pop_front()
        {
            let object = if let Place::Object { length, digest } = first.place {
                Some((length, digest))
            } else {
                first.copy
            };
            objects.extend(object.map(|settled| (first.number, settled)));
            if let Some(writer) = first.writer() {
                writer.free_all();
                writer
                    .take_calls()
                    .into_iter()
                    .for_each(|call| flight.send(&self.neighbours, first.number, call));
            }
        }
        drop(flight);
        state.count();
        self.go_on(state);
        if !objects.is_empty() {
            let lane = Arc::clone(self);
            let work = async move {
                for (number, settled) in objects {
                    lane.delete_object(number, settled).await;
                }
            };
            self.env().spawn(TaskClass::Background, "log trim", work).detach();
        }
    }

    pub(crate) fn pressure(&self) -> Pressure {
        let state = self.state.lock();
        let held: u64 = state.segments.iter().map(|segment| u64::from(segment.bytes())).sum();
        let is_cut = state.segments.front().is_some_and(|first| first.number == state.trimmed.segment());
        let live_bytes = held.saturating_sub(if is_cut { state.trimmed.byte().into() } else { 0 });
        let by_memory = (state.memory.bytes_max() as u64 / 2).max(u64::from(self.segment_bytes));
        let wanted_bytes_max =
            if state.segments.len() > SEGMENTS_WANTED { 0 } else { WANTED_BYTES_MAX.min(by_memory) };
        Pressure { live_bytes, wanted_bytes_max }
    }

    /// Asks q regions of whatever configuration may be the newest whether they are sealed: of the
    /// segment that a takeover must seal, the first that is not acknowledged to its end.
    pub(crate) async fn confirm(self: &Arc<Lane>) -> Result<()> {
        for _ in 0..20 {
            let before = self.state.lock().what_a_takeover_seals(self)?;
            let mut calls: Vec<tombolo_env::BoxFuture<'_, (Member, Outcome)>> = Vec::new();
            let first =
                tombolo_format::segment_record::first_digest(self.context.database, &self.identity(before.0));
            for member in before.1.iter().flatten() {
                let body = Body::Append { offset: 0, predecessor: first, records: bytes::Bytes::new() };
                let request = Request {
                    incarnation: member.incarnation,
                    region: member.region,
                    epoch: self.id.epoch,
                    body,
                };
                let member = member.clone();
                calls.push(Box::pin(async move {
                    let outcome = ask(self.env(), &self.neighbours, &member.node, request, TIME_MAX).await;
                    (member, outcome)
                }));
            }
            let count = calls.len().max(1);
            let said = tombolo_env::all(calls, count).await;
            for (_, outcome) in &said {
                if let Ok(Answer::Refused(Refusal::Sealed(by) | Refusal::OtherEpoch(by))) = outcome
                    && *by > self.id.epoch
                {
                    let error = self.fenced(Some(by.0));
                    self.end(&error);
                    return Err(error);
                }
            }
            let is_held = |member: &&Member| {
                said.iter().any(|(of, outcome)| of == *member && matches!(outcome, Ok(Answer::Held(_))))
            };
            let enough = before
                .1
                .iter()
                .all(|members| members.iter().filter(is_held).count() >= self.replication.shape.quorum);
            if enough && self.state.lock().what_a_takeover_seals(self)? == before {
                return Ok(());
            }
            self.env().sleep(TICK).await;
        }
        Err(Error::new(ErrorKind::Retry, "too few nodes say that nobody has taken the log over")
            .object(self.name()))
    }

    pub(crate) fn fenced(&self, by: Option<u64>) -> Error {
        let by = by.map_or_else(|| "another epoch".to_owned(), |by| format!("epoch {by}"));
        Error::new(
            ErrorKind::Fenced,
            format!("{by} has taken this log over; what was in flight is of unknown outcome"),
        )
        .object(self.name())
        .advice("this handle is finished: open the database again, which takes it over")
    }

    /// Ends the lane with an error: everyone who waits gets it.
    pub(crate) fn end(self: &Arc<Lane>, error: &Error) {
        let mut state = self.state.lock();
        if !matches!(state.mode, Mode::Ended(_)) {
            state.mode = Mode::Ended(error.clone());
        }
        self.go_on(state);
    }

    /// Refuses appends from here on. The end of what was appended.
    pub(crate) fn stop(&self) -> Result<LogOffset> {
        let mut state = self.state.lock();
        if let Mode::Ended(error) = &state.mode {
            return Err(error.clone());
        }
        state.mode = Mode::Closed;
        Ok(state.end)
    }

    /// Tells followers of what no record tells yet, as nothing more is appended that would, and
    /// waits a while until enough regions have all that is told: what a process has not sent ends
    /// with it.
    pub(crate) async fn tell_last(self: &Arc<Lane>) {
        let begun = self.env().now();
        {
            let mut state = self.state.lock();
            state
                .segments
                .iter_mut()
                .filter_map(Segment::writer)
                .for_each(|writer| tell_untold(writer, begun));
            self.go_on(state);
        }
        while self.state.lock().has_unheard() && self.env().now().since(begun) < TIME_MAX {
            self.env().sleep(TOLD_LOOK).await;
        }
    }

    /// Whether nothing works on in the background.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        !state.is_publishing && !state.is_destaging
    }
}

/// Adds a record that tells how much is acknowledged, if none does.
fn tell_untold(writer: &mut Writer, now: Instant) {
    if writer.has_untold() && writer.has_room(NEAR_COMMITTED.len()) {
        writer.tell(&NEAR_COMMITTED, &[], now);
    }
}

/// Whether an error that ended the log says enough of entries that are on their way.
fn is_certain(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Closed)
        || is_enabled(Mutant::NearInFlightTakenAsFailed)
}

/// The same trouble for those whose entries are on their way: no end of the log.
fn unknown(below: &Error) -> Error {
    let error = Error::new(
        ErrorKind::DeadlineExceeded,
        format!("the write is on its way and may take effect later: {}", below.message()),
    );
    let error = error.source(below.clone());
    match below.next_step() {
        Some(step) => error.advice(step),
        None => error,
    }
}

fn wake((waiters, result): Done) {
    for waiter in waiters {
        waiter.complete(result.clone());
    }
}
