//! One lane of this epoch's log: entries are gathered into objects, which are put into the next
//! slots.
//!
//! Write path, steps 3 and 4, which are one here. The first entry that finds nothing on its way
//! begins a put; those that come meanwhile wait together for the next one, unless they fill an
//! object, which then goes at once. Writers who wait come again when they are told: the next put
//! waits a moment for them, so that all share an object instead of every other one.
//!
//! Invariants:
//! 1. `acknowledged <` every slot in `outstanding`, and an entry is acknowledged only when its slot
//!    and all before were seen to hold the bytes that were put (rule 10).
//! 2. A slot's bytes never change once it was taken to be put, and a put of unknown outcome is made
//!    again until a read shows what holds it.
//! 3. Once a seal, or anything foreign, was met, nothing more is put and nothing more acknowledged.
//!
//! A store that refuses ends nothing: what was taken is tried on for as long as the lane is open,
//! writers that wait for it are told after about half a minute that it is of unknown outcome, and
//! appends are refused until the store has taken an object.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{Completer, Completion, Env, OnPanic, TaskClass, completion};
use tombolo_format::log_frame::{FRAME_PAYLOAD_BYTES_MAX, FrameHeader, frame_bytes_max};
use tombolo_format::log_object::{
    LOG_OBJECT_FIRST_BYTE, LOG_OBJECT_HEADER_BYTES, LogObject, SEAL_BYTES, encode_data_header,
};

use super::PUTS_IN_FLIGHT_MAX;
use super::place::{OBJECT_BYTES_MAX, Place, contradiction};
use crate::backoff::{Backoff, is_passing, may_have_landed, with_backoff};
use crate::lanes::world_ended;
use crate::log_memory::LaneMemory;
use crate::mutant::{Mutant, is_enabled};
use crate::{
    Appended, Epoch, Error, ErrorKind, LogAppend, LogOffset, Pressure, Purpose, PutOutcome, Request, Result,
};

/// Appends get `Busy` when more bytes than this, or than the context's memory gives, would wait for
/// their acknowledgement.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Bytes not yet trimmed beyond which the log wants its oldest data flushed.
const WANTED_BYTES_MAX: u64 = 256 << 20;

/// Objects not yet trimmed beyond which it does, however small they are: a takeover reads them 64
/// at once, each a round trip.
const WANTED_OBJECTS_MAX: usize = 1024;

/// How often an error that does not pass by itself is met again before those who wait are told:
/// about half a minute. Rights and credentials are mended by people, who may take hours.
const REFUSALS_MAX: u32 = 40;

/// The next put waits at most this part of what a put takes for those who were just told, and so
/// long.
const GATHER_OF_LATENCY: u32 = 16;
const GATHER_MAX: Duration = Duration::from_millis(4);
/// Where puts take less, waiting costs as much as it brings.
const GATHER_LATENCY_MIN: Duration = Duration::from_millis(2);
/// Looks at whether they have come.
const GATHER_LOOKS: u32 = 8;

#[derive(Debug)]
enum State {
    Open,
    Closed,
    /// Fenced, or closed while the store refused.
    Ended(Error),
}

/// An object that is, or was, on its way.
#[derive(Debug)]
struct Outstanding {
    bytes: usize,
    /// It was seen to be in its slot.
    is_held: bool,
}

#[derive(Debug)]
struct Writer {
    state: State,
    /// What the store has refused an object with for half a minute, until it takes one.
    refused: Option<Error>,
    /// The slot that `open` will take.
    slot: u32,
    /// The object that is being filled; empty when it holds no entry.
    open: Vec<u8>,
    /// Full ones that wait for their turn, oldest first.
    full: VecDeque<(u32, Bytes)>,
    /// Put tasks that run. Invariant: at most [`PUTS_IN_FLIGHT_MAX`]; not 0 while anything waits to
    /// be put.
    putting: u32,
    /// Slots taken and not acknowledged. Those before the first are.
    outstanding: BTreeMap<u32, Outstanding>,
    /// This slot and all before hold what was put.
    acknowledged: u32,
    /// Where the lane ends.
    end: LogOffset,
    /// Up to where it is acknowledged.
    durable: LogOffset,
    /// Bytes appended and not acknowledged.
    waiting_bytes: usize,
    /// The books, which know of `waiting_bytes`.
    memory: LaneMemory,
    /// Ascending as they came; not by offset.
    waiters: Vec<(LogOffset, Completer<Result<()>>)>,
    /// How many were told together last.
    told: usize,
    /// About what a put takes.
    latency: Duration,
    /// Objects not trimmed, oldest first. Invariant: slots without a gap.
    live: VecDeque<(u32, usize)>,
    live_bytes: u64,
    /// Slots before this one were deleted. Invariant: `deleted <= trimmed`.
    deleted: u32,
    /// Slots before this one are not needed.
    trimmed: u32,
    /// A task deletes them: never more than one, since followers rest on the order of deletions.
    is_trimming: bool,
}

/// One lane.
#[derive(Debug)]
pub(super) struct Lane {
    place: Place,
    /// Tells this writer's objects from any other's.
    writer_id: u64,
    /// An object that holds so much goes on its way, others or not.
    object_bytes_wanted: usize,
    writer: Mutex<Writer>,
}

impl Lane {
    /// Begins a lane with its slot 0, durably.
    pub(super) async fn begin(
        place: Place,
        object_bytes_wanted: usize,
        memory: LaneMemory,
    ) -> Result<Arc<Lane>> {
        let writer_id = place.env.random_u64();
        let writer = Writer {
            state: State::Open,
            refused: None,
            slot: 1,
            open: Vec::new(),
            full: VecDeque::new(),
            putting: 0,
            outstanding: BTreeMap::new(),
            acknowledged: 0,
            end: LogOffset::ZERO,
            durable: LogOffset::ZERO,
            waiting_bytes: 0,
            memory,
            waiters: Vec::new(),
            told: 0,
            latency: Duration::ZERO,
            live: VecDeque::from([(0, 0)]),
            live_bytes: 0,
            deleted: 0,
            trimmed: 0,
            is_trimming: false,
        };
        let lane = Arc::new(Lane { place, writer_id, object_bytes_wanted, writer: Mutex::new(writer) });
        let header = encode_data_header(&lane.place.identity(0), LOG_OBJECT_FIRST_BYTE, writer_id, 0);
        lane.hold(0, Bytes::copy_from_slice(&header), Refused::GivesUp).await?;
        Ok(lane)
    }

    pub(super) fn env(&self) -> &Env {
        &self.place.env
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    fn epoch(&self) -> Epoch {
        self.place.id.epoch
    }

    fn check_open(&self, state: &State) -> Result<()> {
        match state {
            State::Open => Ok(()),
            State::Closed => Err(Error::new(ErrorKind::Closed, "the log was closed").object(&self.place)),
            State::Ended(error) => Err(error.clone()),
        }
    }

    /// Appends one entry; it is accepted when it is durable.
    pub(super) fn append(self: &Arc<Lane>, entry: &LogAppend<'_>) -> Result<Appended> {
        let payload_bytes = entry.payload_bytes();
        let bytes = frame_bytes_max(payload_bytes);
        if payload_bytes > FRAME_PAYLOAD_BYTES_MAX || LOG_OBJECT_HEADER_BYTES + bytes > OBJECT_BYTES_MAX {
            let message =
                format!("a log entry of {payload_bytes} bytes; it must fit an object of {OBJECT_BYTES_MAX}");
            return Err(Error::new(ErrorKind::Invalid, message).advice("write smaller batches"));
        }
        self.place.env.preemption_point();
        let mut writer = self.writer.lock();
        self.check_open(&writer.state)?;
        if let Some(error) = &writer.refused {
            return Err(refusal(error));
        }
        if writer.waiting_bytes > 0
            && writer.waiting_bytes + bytes > WAITING_BYTES_MAX.min(writer.memory.bytes_max())
        {
            let message = format!(
                "{} bytes of the log are on their way to the store; nothing took effect",
                writer.waiting_bytes
            );
            return Err(Error::new(ErrorKind::Busy, message)
                .object(&self.place)
                .advice("wait until what was appended is durable, then append again"));
        }
        if !writer.open.is_empty() && writer.open.len() + bytes > self.object_bytes_wanted {
            self.fill(&mut writer);
        }
        if writer.slot == u32::MAX {
            return Err(Error::new(ErrorKind::Closed, "the lane has no more slots")
                .object(&self.place)
                .advice("open the database again"));
        }
        if writer.open.is_empty() {
            writer.open.resize(LOG_OBJECT_HEADER_BYTES, 0);
        }
        let byte = offset_in(&writer.open);
        let header = FrameHeader {
            identity: self.place.identity(writer.slot),
            stream: entry.stream,
            first_sequence: entry.first_sequence,
            count: entry.count,
            durable_through: writer.durable.0,
        };
        header.append_parts_to(&mut writer.open, byte, entry.parts);
        writer.end = LogOffset::new(writer.slot, offset_in(&writer.open));
        writer.waiting_bytes += header.frame_bytes(payload_bytes);
        let waiting_bytes = writer.waiting_bytes;
        writer.memory.set(waiting_bytes);
        let (completer, accepted) = completion();
        let end = writer.end;
        writer.waiters.push((end, completer));
        drop(writer);
        self.begin_put();
        Ok(Appended { end, accepted: Some(accepted) })
    }

    /// Starts a put task when something should go on its way that nobody is at.
    fn begin_put(self: &Arc<Lane>) {
        {
            let mut writer = self.writer.lock();
            let is_full_waiting = !writer.full.is_empty() && writer.putting < PUTS_IN_FLIGHT_MAX;
            if writer.putting > 0 && !is_full_waiting {
                return;
            }
            writer.putting += 1;
        }
        let lane = Arc::clone(self);
        self.place.env.spawn(TaskClass::Foreground, "log put", async move { lane.put_on().await }).detach();
    }

    /// Ends the open object: it has its slot, and its bytes stay as they are.
    fn fill(&self, writer: &mut Writer) {
        let mut open = std::mem::take(&mut writer.open);
        let header = encode_data_header(
            &self.place.identity(writer.slot),
            offset_in(&open),
            self.writer_id,
            writer.acknowledged,
        );
        open[..LOG_OBJECT_HEADER_BYTES].copy_from_slice(&header);
        writer.live.push_back((writer.slot, open.len()));
        writer.live_bytes += open.len() as u64;
        writer.full.push_back((writer.slot, open.into()));
        writer.slot += 1;
    }

    /// What to put next: a full object, unless it is too far ahead of the acknowledged end; or the
    /// open one when nothing else is on its way. `None` ends the put task.
    fn next(&self) -> Option<(u32, Bytes)> {
        let mut writer = self.writer.lock();
        if writer.full.is_empty()
            && writer.putting == 1
            && !writer.open.is_empty()
            && !matches!(writer.state, State::Ended(_))
        {
            self.fill(&mut writer);
        }
        let slot_max = writer.acknowledged.saturating_add(PUTS_IN_FLIGHT_MAX);
        match writer.full.front() {
            Some((slot, _)) if *slot <= slot_max && !matches!(writer.state, State::Ended(_)) => {}
            _ => {
                writer.putting -= 1;
                return None;
            }
        }
        let (slot, bytes) = writer.full.pop_front()?;
        writer.outstanding.insert(slot, Outstanding { bytes: bytes.len(), is_held: false });
        Some((slot, bytes))
    }

    /// Puts one object after the other as long as there is any.
    async fn put_on(self: Arc<Lane>) {
        // A task that panics leaves a lane that has ended, and nobody who waits for it.
        let _ends = OnPanic::new(|| {
            let error = Error::new(
                ErrorKind::Bug,
                "putting the log panicked: what was in flight may or may not be found again",
            );
            self.end(error.advice("open the database again"));
        });
        while let Some((slot, bytes)) = self.next() {
            let began = self.place.env.now();
            match self.hold(slot, bytes, Refused::GoesOn).await {
                Ok(()) => {
                    self.held(slot, self.place.env.now().since(began));
                    self.begin_put();
                    self.gather().await;
                }
                Err(error) => self.end(error),
            }
        }
    }

    /// Waits a moment for those who were told just now, when there were several and nothing else is
    /// on its way.
    async fn gather(&self) {
        let env = &self.place.env;
        let (begun, wait) = {
            let writer = self.writer.lock();
            if writer.told < 2 || writer.latency < GATHER_LATENCY_MIN {
                return;
            }
            (env.now(), (writer.latency / GATHER_OF_LATENCY).min(GATHER_MAX))
        };
        for look in 1..=GATHER_LOOKS {
            {
                let writer = self.writer.lock();
                let is_alone =
                    writer.putting == 1 && writer.full.is_empty() && matches!(writer.state, State::Open);
                if !is_alone || writer.waiters.len() >= writer.told {
                    return;
                }
            }
            env.sleep_until(begun + wait * look / GATHER_LOOKS).await;
        }
    }

    /// Puts bytes into a slot until it was seen what the slot holds. Gives up only with the lane:
    /// while it begins, since nothing names it yet and what lands late is garbage; or when it has
    /// ended, or was closed.
    async fn hold(&self, slot: u32, bytes: Bytes, refused: Refused) -> Result<()> {
        let (mut backoff, mut refusals, mut is_unknown) = (Backoff::new(), 0, false);
        loop {
            let put = self.place.put(self.epoch(), slot, bytes.clone()).await;
            // What holds a taken slot may well be ours.
            is_unknown |= put.as_ref().err().is_none_or(may_have_landed);
            match put {
                Ok(PutOutcome::Created) => return Ok(()),
                Ok(PutOutcome::Exists) => match self.compare(slot, &bytes).await {
                    Ok(Found::Ours) => return Ok(()),
                    Ok(Found::Other(error)) => return Err(error),
                    // It was there, and is gone: a successor that has all of it has freed it. The
                    // next put tells.
                    Ok(Found::Nothing) => {
                        let error = contradiction(&self.place.name(slot)?);
                        if self.refused_for_long(&mut refusals, slot, &error, refused) {
                            return Err(error);
                        }
                    }
                    Err(error) if is_passing(&error) => {}
                    // A store that does not show the slot says nothing of it.
                    Err(error) => {
                        if self.refused_for_long(&mut refusals, slot, &error, refused) {
                            return Err(refused_with(error, is_unknown));
                        }
                    }
                },
                Err(error)
                    if is_enabled(Mutant::LogObjectUnknownTakenAsHeld)
                        && error.kind() == ErrorKind::OutcomeUnknown =>
                {
                    return Ok(());
                }
                Err(error) if is_passing(&error) => {}
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {}
                Err(error) => {
                    if self.refused_for_long(&mut refusals, slot, &error, refused) {
                        return Err(refused_with(error, is_unknown));
                    }
                }
            }
            backoff.pause(&self.place.env).await;
            if matches!(self.writer.lock().state, State::Ended(_)) {
                return Err(world_ended());
            }
        }
    }

    /// One refusal more, which after too many is told to those who wait. Whether nobody is there
    /// who would try on.
    fn refused_for_long(&self, refusals: &mut u32, slot: u32, error: &Error, refused: Refused) -> bool {
        tracing::warn!(%error, slot, "the store refuses the log; trying again");
        *refusals += 1;
        if *refusals < REFUSALS_MAX {
            return false;
        }
        let is_last = refused == Refused::GivesUp || matches!(self.writer.lock().state, State::Closed);
        self.refuse(error);
        is_last
    }

    /// What a taken slot holds.
    ///
    /// # Errors
    /// Those of the read, which say nothing of the slot.
    async fn compare(&self, slot: u32, bytes: &Bytes) -> Result<Found> {
        if is_enabled(Mutant::LogObjectExistsTakenAsHeld) {
            return Ok(Found::Ours);
        }
        let found = self.place.read(Purpose::Log, self.epoch(), slot, 0..bytes.len() as u64 + 1).await?;
        let Some(found) = found else { return Ok(Found::Nothing) };
        if found == bytes {
            return Ok(Found::Ours);
        }
        let name = self.place.name(slot)?;
        Ok(Found::Other(match LogObject::decode(&found, &self.place.identity(slot)) {
            Ok(LogObject::Seal { by, .. }) => self.fenced(by),
            Ok(LogObject::Data { writer, .. }) => Error::corrupt(
                name,
                64,
                format!("writer {:016x}", self.writer_id),
                format!("writer {writer:016x}"),
            )
            .context("another process writes this epoch's log"),
            Err(error) => Error::format(name, 0, error),
        }))
    }

    /// The store has refused for long: those who wait are told, and nothing more is taken until it
    /// takes an object.
    fn refuse(&self, error: &Error) {
        let waiters = {
            let mut writer = self.writer.lock();
            writer.refused = Some(error.clone());
            std::mem::take(&mut writer.waiters)
        };
        wake(waiters, &Err(late(error)));
    }

    fn fenced(&self, by: u64) -> Error {
        Error::new(
            ErrorKind::Fenced,
            format!("epoch {by} has sealed this log; what was in flight is of unknown outcome"),
        )
        .object(&self.place)
        .advice("this handle is finished: open the database again, which takes it over")
    }

    /// A slot was seen to hold what was put, which took so long: acknowledges what can be.
    fn held(&self, slot: u32, took: Duration) {
        let done = {
            let mut writer = self.writer.lock();
            if matches!(writer.state, State::Ended(_)) {
                return;
            }
            writer.refused = None;
            writer.latency = if writer.latency.is_zero() { took } else { (writer.latency * 3 + took) / 4 };
            if let Some(outstanding) = writer.outstanding.get_mut(&slot) {
                outstanding.is_held = true;
            }
            if is_enabled(Mutant::LogObjectAcknowledgesOutOfOrder)
                && let Some(held) = writer.outstanding.get(&slot)
            {
                let end = LogOffset::new(slot, u32::try_from(held.bytes).unwrap_or(u32::MAX));
                writer.durable = writer.durable.max(end);
            }
            while let Some(first) = writer.outstanding.first_entry()
                && first.get().is_held
            {
                let (slot, outstanding) = first.remove_entry();
                writer.acknowledged = slot;
                writer.durable = writer
                    .durable
                    .max(LogOffset::new(slot, u32::try_from(outstanding.bytes).unwrap_or(u32::MAX)));
                writer.waiting_bytes =
                    writer.waiting_bytes.saturating_sub(outstanding.bytes - LOG_OBJECT_HEADER_BYTES);
            }
            let waiting_bytes = writer.waiting_bytes;
            writer.memory.set(waiting_bytes);
            let durable = writer.durable;
            let (done, waiting): (Vec<_>, Vec<_>) =
                std::mem::take(&mut writer.waiters).into_iter().partition(|(end, _)| *end <= durable);
            (writer.waiters, writer.told) = (waiting, done.len());
            done
        };
        wake(done, &Ok(()));
    }

    /// Ends the lane with an error: everyone who waits gets it, and never a kind that says that
    /// nothing took effect.
    pub(super) fn end(&self, error: Error) {
        let (waiters, error) = {
            let mut writer = self.writer.lock();
            let kind = match (&writer.state, error.kind()) {
                (State::Ended(_), _) => return,
                (_, kind @ (ErrorKind::Fenced | ErrorKind::Corrupt | ErrorKind::Bug)) => kind,
                (State::Closed, _) => ErrorKind::Closed,
                (State::Open, _) => ErrorKind::OutcomeUnknown,
            };
            let error = if kind == error.kind() { error } else { self.ended(kind, error) };
            writer.state = State::Ended(error.clone());
            writer.full.clear();
            writer.open = Vec::new();
            writer.waiting_bytes = 0;
            writer.memory.set(0);
            (std::mem::take(&mut writer.waiters), error)
        };
        wake(waiters, &Err(error));
    }

    fn ended(&self, kind: ErrorKind, cause: Error) -> Error {
        Error::new(
            kind,
            format!("the log has ended; what was in flight may or may not be found again: {cause}"),
        )
        .object(&self.place)
        .source(cause)
        .advice("see to what the store says, then open the database again")
    }

    /// A ticket for `end` being durable.
    pub(super) fn durable(&self, end: LogOffset) -> Completion<Result<()>> {
        let (completer, waiting) = completion();
        let known = {
            let mut writer = self.writer.lock();
            match (&writer.state, &writer.refused) {
                _ if end <= writer.durable => Ok(()),
                (State::Ended(error), _) => Err(error.clone()),
                (_, Some(error)) => Err(late(error)),
                _ if end > writer.end => {
                    Err(Error::new(ErrorKind::Bug, format!("a sync to {end}, beyond the end {}", writer.end))
                        .object(&self.place))
                }
                _ => {
                    writer.waiters.push((end, completer));
                    return waiting;
                }
            }
        };
        completer.complete(known);
        waiting
    }

    pub(super) fn durable_through(&self) -> LogOffset {
        self.writer.lock().durable
    }

    /// Deletes what lies before the object that holds `before`, in the background. What fails is
    /// tried again with the next trim, and goes with the log at last.
    pub(super) fn trim(self: &Arc<Lane>, before: LogOffset) {
        {
            let mut writer = self.writer.lock();
            // The replay point's own slot stays: a successor begins there.
            while let Some(&(slot, bytes)) = writer.live.front()
                && slot < before.segment()
                && slot <= writer.acknowledged
            {
                writer.live.pop_front();
                writer.live_bytes -= bytes as u64;
                writer.trimmed = slot + 1;
            }
            if writer.is_trimming || writer.deleted == writer.trimmed {
                return;
            }
            writer.is_trimming = true;
        }
        let lane = Arc::clone(self);
        self.place
            .env
            .spawn(TaskClass::Background, "log trim", async move { lane.delete_trimmed().await })
            .detach();
    }

    /// Deletes slot after slot, up to one that cannot be deleted: whatever is there says that all
    /// behind it is.
    async fn delete_trimmed(self: Arc<Lane>) {
        let (place, request) = (&self.place, Request::new(Purpose::Collection, self.epoch()));
        loop {
            let slot = {
                let mut writer = self.writer.lock();
                writer.is_trimming = writer.deleted < writer.trimmed;
                if !writer.is_trimming {
                    return;
                }
                writer.deleted
            };
            let deleted = match place.name(slot) {
                Ok(name) => with_backoff(&place.env, || place.objects.delete(request, &name)).await,
                Err(error) => Err(error),
            };
            if let Err(error) = deleted {
                tracing::warn!(%error, slot, "log objects behind the replay point stay until the next trim");
                self.writer.lock().is_trimming = false;
                return;
            }
            self.writer.lock().deleted = slot + 1;
        }
    }

    pub(super) fn pressure(&self) -> Pressure {
        let writer = self.writer.lock();
        let wanted_bytes_max = if writer.live.len() > WANTED_OBJECTS_MAX { 0 } else { WANTED_BYTES_MAX };
        Pressure { live_bytes: writer.live_bytes + writer.open.len() as u64, wanted_bytes_max }
    }

    /// Whether the lane is sealed. A seal lies in the slot that was the first empty one: behind all
    /// that is acknowledged, and at most in the one that comes after all that were begun. An empty
    /// slot before that proves nothing: an object of it may have landed, have been sealed behind,
    /// and been freed by a successor who has all of it.
    pub(super) async fn confirm(&self) -> Result<()> {
        let (mut slot, last) = {
            let writer = self.writer.lock();
            if let State::Ended(error) = &writer.state {
                return Err(error.clone());
            }
            (writer.acknowledged + 1, writer.slot)
        };
        loop {
            let read = self.place.read(Purpose::Log, self.epoch(), slot, 0..SEAL_BYTES as u64).await?;
            let Some(found) = read else {
                if slot >= last || is_enabled(Mutant::LogObjectConfirmStopsAtGap) {
                    return Ok(());
                }
                slot += 1;
                continue;
            };
            let name = self.place.name(slot)?;
            match LogObject::decode(&found, &self.place.identity(slot))
                .map_err(|error| Error::format(name, 0, error))?
            {
                LogObject::Data { .. } => slot += 1,
                LogObject::Seal { by, .. } => {
                    let error = self.fenced(by);
                    self.end(error.clone());
                    return Err(error);
                }
            }
        }
    }

    /// Makes all durable, and takes nothing more. When this returns nothing is put any more, well
    /// or not.
    pub(super) async fn close(&self) -> Result<()> {
        let end = self.stop()?;
        let closed = self.durable(end).await.unwrap_or_else(|| Err(world_ended()));
        if let Err(error) = &closed {
            self.end(error.clone());
        }
        closed
    }

    /// Refuses appends from here on. The end of what was appended.
    fn stop(&self) -> Result<LogOffset> {
        let mut writer = self.writer.lock();
        if let State::Ended(error) = &writer.state {
            return Err(error.clone());
        }
        writer.state = State::Closed;
        Ok(writer.end)
    }
}

/// What a store that refuses for long does to who puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// Beginning a lane ends with the error: nothing is in the lane yet.
    GivesUp,
    /// What was taken is tried on.
    GoesOn,
}

/// What a taken slot holds.
#[derive(Debug)]
enum Found {
    /// The bytes that were put.
    Ours,
    /// Nothing any more.
    Nothing,
    /// Something else, as an error: `Fenced` for a seal; `Corrupt`, and `Unsupported` for what a
    /// newer version wrote.
    Other(Error),
}

/// Of a store that has refused until the lane was given up.
fn refused_with(error: Error, is_unknown: bool) -> Error {
    let is_there = if is_unknown { "may be" } else { "is not" };
    error.context(format_args!("the store refuses the log; what was in flight {is_there} in it"))
}

/// Of what was taken, and not in the store after half a minute.
fn late(error: &Error) -> Error {
    Error::new(
        ErrorKind::DeadlineExceeded,
        format!(
            "the store has refused the log for long, and is tried \
        on: {error}"
        ),
    )
    .source(error.clone())
    .advice(
        "mend what the store complains of: what was written goes to the log by itself then, and new \
            writes are taken again",
    )
}

/// The error of an entry that is not taken while the store refuses.
fn refusal(error: &Error) -> Error {
    const WHAT: &str = "the store refuses the log: nothing took effect, and writes are taken again as soon \
        as it takes the log";
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::OutOfSpace | ErrorKind::Invalid | ErrorKind::Unsupported => {
            error.clone().context(WHAT)
        }
        _ => Error::new(ErrorKind::Retry, format!("{WHAT}: {error}")).source(error.clone()),
    }
}

/// Bytes of an object so far. They are bounded far below.
fn offset_in(object: &[u8]) -> u32 {
    u32::try_from(object.len()).unwrap_or(u32::MAX)
}

/// Tells those whose wait is over, outside all locks.
fn wake(waiters: Vec<(LogOffset, Completer<Result<()>>)>, result: &Result<()>) {
    for (_, completer) in waiters {
        completer.complete(result.clone());
    }
}
