//! One lane of this epoch's log: append, roll, sync, and what to do when a sync fails.
//!
//! Write path, steps 3 (accepted) and 4 (durable). An append holds the writer's lock, never the
//! group's while it waits for anything; a leader of syncs holds neither while it syncs.
//!
//! Invariants:
//! 1. `durable <= accepted`; both only rise; only the leader raises `durable`.
//! 2. Once a raised fence word was seen, nothing more is stored.
//! 3. Everything accepted and not durable is in `unsynced`.
//! 4. After a sync that failed, and whose bytes were not moved, no sync says anything: the next one
//!    may succeed over pages that were given up.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Completion, Env, OnPanic, TaskClass, completion};
use tombolo_format::log_frame::{
    DURABLE_SLOT_OFFSET, FRAME_PAYLOAD_BYTES_MAX, FrameHeader, SegmentHeader, SegmentIdentity,
    encode_durable_slot, frame_bytes_max,
};

use super::LocalLogOptions;
use super::control::{Control, Word};
use super::group::{Group, Joined, Next, Wake};
use super::segment::{Blocks, FIRST_BYTE, Making, Segment, Store};
use super::supply::Supply;
use super::unsynced::Unsynced;
use crate::lanes::given_up;
use crate::log_memory::LaneMemory;
use crate::mutant::{Mutant, is_enabled};
use crate::{Appended, Error, ErrorKind, LogAppend, LogOffset, Pressure, Result};

/// Where a segment's durable-through slot lies.
const SLOT_BYTE: u32 = 512;
const _: () = assert!(SLOT_BYTE as usize == DURABLE_SLOT_OFFSET);

/// Segments that unsynced bytes are moved to, one after the other, before the lane gives up.
const MOVES_MAX: u32 = 3;
/// What they are moved to.
const MOVED: Making = Making { blocks: Blocks::Reserved, is_populated: false };
/// Frames from this size on are not stored through the mapping.
const WRITTEN_BYTES_MIN: usize = 2 << 10;
/// The next segment's pages are brought into its mapping where at least this part of the bytes of
/// the one in use was stored there.
const MAPPED_PART: u64 = 4;
/// After so many bytes of frames it is looked again whether the next segment is to be made.
const PAGE_BYTES: u32 = 16 << 10;

/// A full segment that is not trimmed yet.
#[derive(Debug)]
pub(super) struct Full {
    pub(super) segment: Arc<Segment>,
    /// Where the lane leaves it.
    end: u32,
    /// A sync that began after its last frame was stored has succeeded.
    synced: bool,
    /// A sync of it failed, or its bytes count no more: never used again.
    poisoned: bool,
}

#[derive(Debug)]
pub(super) enum State {
    Open,
    Closed,
    /// Fenced, or the disk failed for good.
    Ended(Error),
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) state: State,
    /// A sync failed and its bytes were not moved, or the lane was given up: nothing more becomes
    /// durable. Set by the leader, who alone leads, or by who gives up.
    pub(super) lost: Option<Error>,
    pub(super) segment: Arc<Segment>,
    /// The next frame's byte. Invariant: a multiple of 8, at most the segment's capacity.
    pub(super) position: u32,
    /// A store failed: what lies behind `position` is unknown, so the segment ends here.
    pub(super) broken: bool,
    /// Oldest first. Invariant: numbers ascend, and are less than the current one's.
    pub(super) full: VecDeque<Full>,
    /// Bytes of the full segments that count.
    pub(super) full_bytes: u64,
    pub(super) unsynced: Unsynced,
    said: Said,
    /// How far the lane was given back. Invariant: at most the replay point that the manifest holds
    /// durably.
    pub(super) trimmed: LogOffset,
    /// Somebody watches whether the lane rests.
    pub(super) watched: bool,
    /// Bytes of the segment in use that were stored through its mapping.
    mapped_bytes: u64,
    /// In which page of the segment it was last looked whether the next one is to be made; 0 before
    /// the first look.
    looked: u32,
}

/// The last frame that said how much is durable.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Where it begins.
    at: LogOffset,
    durable: LogOffset,
}

impl Said {
    /// Whether the frame at `at` has to say that all before `durable` is durable: when it is the
    /// first that begins in its page, and when more is durable than was said. So whatever a damaged
    /// page takes, every page behind it that a frame begins in says what was durable (rule 9). The
    /// others save bytes.
    #[inline]
    fn says(&self, at: LogOffset, durable: LogOffset) -> bool {
        const PAGE_BYTES: u64 = 4096;
        self.durable != durable || self.at.0 / PAGE_BYTES != at.0 / PAGE_BYTES
    }
}

impl Writer {
    fn live_bytes(&self) -> u64 {
        self.full_bytes + u64::from(self.position - FIRST_BYTE)
    }

    /// Takes the oldest full segment out.
    pub(super) fn take_oldest(&mut self) -> Option<Full> {
        let full = self.full.pop_front()?;
        self.full_bytes -= u64::from(full.end - FIRST_BYTE);
        Some(full)
    }
}

/// One lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) env: Env,
    options: LocalLogOptions,
    /// Of the lane; the segment is filled in.
    identity: SegmentIdentity,
    /// For messages.
    place: String,
    pub(super) control: Control,
    pub(super) supply: Arc<Supply>,
    pub(super) writer: Mutex<Writer>,
    group: Mutex<Group>,
    accepted: AtomicU64,
    durable: AtomicU64,
    /// How often somebody waited for a sync since the segment in use was begun.
    syncs_wanted: AtomicU64,
    /// Nanoseconds that the last round of syncs took.
    round_nanos: AtomicU64,
    /// Whether it covered so little that most stores are the first to their page after its sync.
    rounds_are_small: AtomicBool,
}

/// The part of a sync's time for which a leader waits for the writers that the last round let go,
/// and the longest.
const GATHER_PART: u64 = 2;
const GATHER_NANOS_MAX: u64 = 200_000;
/// A round of syncs that covers fewer bytes is small.
const SMALL_ROUND_BYTES: u64 = 16 << 10;

impl Lane {
    /// Begins a lane in its fresh directory, durably.
    pub(super) fn create(
        env: &Env,
        options: &LocalLogOptions,
        directory: PathBuf,
        identity: SegmentIdentity,
        control: Control,
        held: LaneMemory,
    ) -> Result<Lane> {
        let place = directory.display().to_string();
        let supply = Arc::new(Supply::new(env, directory, options));
        let segment =
            supply.take(u64::from(FIRST_BYTE), u64::from(options.segment_bytes_min), Making::SMALL)?;
        let start = LogOffset::new(segment.number, FIRST_BYTE);
        let lane = Lane {
            env: env.clone(),
            options: options.clone(),
            identity,
            place,
            control,
            supply,
            writer: Mutex::new(Writer {
                state: State::Open,
                lost: None,
                segment: Arc::clone(&segment),
                position: FIRST_BYTE,
                broken: false,
                full: VecDeque::new(),
                full_bytes: 0,
                unsynced: Unsynced::new(held),
                said: Said::default(),
                trimmed: LogOffset::ZERO,
                watched: false,
                mapped_bytes: 0,
                looked: 0,
            }),
            group: Mutex::default(),
            accepted: AtomicU64::new(start.0),
            durable: AtomicU64::new(start.0),
            syncs_wanted: AtomicU64::new(0),
            round_nanos: AtomicU64::new(0),
            rounds_are_small: AtomicBool::new(false),
        };
        lane.begin_segment(&segment, LogOffset::ZERO)
            .and_then(|()| segment.sync())
            .map_err(|error| Error::io(error, "beginning a log", segment.path.display()))?;
        lane.control.set(Word::Durable, start);
        lane.control.set(Word::Accepted, start);
        Ok(lane)
    }

    pub(super) fn accepted(&self) -> LogOffset {
        LogOffset(self.accepted.load(Ordering::Acquire))
    }

    pub(super) fn durable_through(&self) -> LogOffset {
        LogOffset(self.durable.load(Ordering::Acquire))
    }

    fn identity_of(&self, segment: &Segment) -> SegmentIdentity {
        SegmentIdentity { segment: segment.number, ..self.identity }
    }

    /// Stores the header that puts `segment` on the chain behind `predecessor`.
    fn begin_segment(&self, segment: &Segment, predecessor: LogOffset) -> io::Result<()> {
        let header = SegmentHeader {
            identity: self.identity_of(segment),
            capacity: u64::from(segment.capacity),
            predecessor_end: predecessor.0,
            boot_id: self.env.boot_id(),
        };
        self.env.preemption_point();
        segment.store(0, &header.encode(self.durable_through().0), Store::Mapped)
    }

    /// Appends one entry: encode, store, fence, look at the word, accept (rule 8).
    pub(super) fn append(self: &Arc<Lane>, entry: &LogAppend<'_>) -> Result<Appended> {
        let payload_bytes = entry.payload_bytes();
        if payload_bytes > FRAME_PAYLOAD_BYTES_MAX {
            let message =
                format!("a log entry of {payload_bytes} bytes; {FRAME_PAYLOAD_BYTES_MAX} are the most");
            return Err(Error::new(ErrorKind::Invalid, message).advice("write smaller batches"));
        }
        let bytes = frame_bytes_max(payload_bytes);
        let mut writer = self.writer.lock();
        self.check_open(&writer.state)?;
        let unsynced = writer.unsynced.bytes();
        if unsynced > 0 && unsynced + bytes > self.options.unsynced_bytes_max.min(writer.unsynced.bytes_max())
        {
            self.begin_sync();
            return Err(Error::new(
                ErrorKind::Busy,
                format!("{unsynced} bytes of the log wait for their sync; nothing took effect"),
            )
            .object(&self.place)
            .advice("wait until what was appended is durable, then append again"));
        }
        let mut attempt = 0;
        let end = loop {
            let room = u64::from(writer.segment.capacity - writer.position);
            if writer.broken || room < bytes as u64 {
                match self.roll(&mut writer, bytes as u64) {
                    Err(error) if attempt > 0 => return Err(self.unknown(error)),
                    rolled => rolled?,
                }
            }
            match self.store_frame(&mut writer, entry) {
                Ok(end) => break end?,
                Err(error) => {
                    // Part or all of the frame may be there. The next segment's predecessor ends
                    // before it.
                    writer.broken = true;
                    attempt += 1;
                    if attempt > 1 || tombolo_env::simulated::is_crash(&error) {
                        return Err(self.unknown(Error::io(
                            error,
                            "appending to the log",
                            writer.segment.path.display(),
                        )));
                    }
                }
            }
        };
        self.after_append(&mut writer);
        Ok(Appended { end, accepted: None })
    }

    /// The outer error: of the store. The inner one: fenced.
    fn store_frame(&self, writer: &mut Writer, entry: &LogAppend<'_>) -> io::Result<Result<LogOffset>> {
        let (at, durable) = (LogOffset::new(writer.segment.number, writer.position), self.durable_through());
        let says = writer.said.says(at, durable);
        let header = FrameHeader {
            identity: self.identity_of(&writer.segment),
            stream: entry.stream,
            first_sequence: entry.first_sequence,
            count: entry.count,
            durable_through: if says { durable.0 } else { 0 },
        };
        let segment = Arc::clone(&writer.segment);
        let checked_before =
            is_enabled(Mutant::LogFenceWordCheckedBeforeStore).then(|| self.control.raised_by(&self.env));
        let frame = writer.unsynced.encode(&header, writer.position, entry.parts);
        let bytes = frame.len();
        self.env.preemption_point();
        let is_written = bytes >= WRITTEN_BYTES_MIN || self.rounds_are_small.load(Ordering::Relaxed);
        let how = if is_written { Store::Written } else { Store::Mapped };
        if let Err(error) = segment.store(writer.position, frame, how) {
            writer.unsynced.take_back(bytes);
            return Err(error);
        }
        self.env.preemption_point();
        let raised = checked_before.unwrap_or_else(|| self.control.raised_by(&self.env));
        if let Some(by) = raised.filter(|_| !is_enabled(Mutant::LogFenceWordUnchecked)) {
            let error = self.control.fenced(by);
            writer.unsynced.take_back(bytes);
            writer.state = State::Ended(error.clone());
            return Ok(Err(error));
        }
        self.env.preemption_point();
        if says {
            writer.said = Said { at, durable };
        }
        writer.position += u32::try_from(bytes).unwrap_or(0);
        writer.mapped_bytes += if how == Store::Mapped { bytes as u64 } else { 0 };
        let end = LogOffset::new(segment.number, writer.position);
        self.accepted.store(end.0, Ordering::Release);
        self.control.set(Word::Accepted, end);
        Ok(Ok(end))
    }

    fn check_open(&self, state: &State) -> Result<()> {
        match state {
            State::Open => Ok(()),
            State::Closed => Err(Error::new(ErrorKind::Closed, "the log was closed").object(&self.place)),
            State::Ended(error) => Err(error.clone()),
        }
    }

    fn unknown(&self, cause: Error) -> Error {
        Error::new(ErrorKind::OutcomeUnknown, "an append may or may not be found again: storing it failed")
            .object(&self.place)
            .source(cause)
            .advice("check the disk; open the database again to find out")
    }

    /// Goes over into the next segment, with room for `bytes`. On an error nothing took effect.
    pub(super) fn roll(&self, writer: &mut Writer, bytes: u64) -> Result<()> {
        let taken = self.supply.take(
            u64::from(FIRST_BYTE) + bytes,
            writer.live_bytes().next_power_of_two(),
            self.making(writer),
        );
        let next = taken.map_err(|error| self.or_fenced(error))?;
        let predecessor = LogOffset::new(writer.segment.number, writer.position);
        if let Err(error) = self.begin_segment(&next, predecessor) {
            let error = Error::io(error, "beginning a log segment; nothing took effect", next.path.display());
            // The header may be there, and stay: it says that this segment ends here.
            writer.broken = true;
            self.supply.retire(next, false);
            return Err(self.or_fenced(error));
        }
        let segment = std::mem::replace(&mut writer.segment, next);
        writer.full_bytes += u64::from(writer.position - FIRST_BYTE);
        writer.full.push_back(Full { segment, end: writer.position, synced: false, poisoned: false });
        (writer.position, writer.looked, writer.mapped_bytes) = (FIRST_BYTE, 0, 0);
        writer.broken = false;
        self.syncs_wanted.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// How the next segment is to be made, as the one in use is used.
    fn making(&self, writer: &Writer) -> Making {
        let syncs = self.syncs_wanted.load(Ordering::Relaxed);
        let pays = syncs > 0
            && syncs.saturating_mul(self.options.zeroed_sync_bytes)
                >= u64::from(writer.position - FIRST_BYTE);
        let blocks = if pays { Blocks::Zeroed } else { Blocks::Reserved };
        let stored_bytes = u64::from(writer.position - FIRST_BYTE);
        Making { blocks, is_populated: writer.mapped_bytes * MAPPED_PART >= stored_bytes }
    }

    /// What a failure means: a successor frees the log of whom it has fenced, and with it the
    /// directory.
    fn or_fenced(&self, error: Error) -> Error {
        match self.control.raised_by(&self.env) {
            Some(by) => self.control.fenced(by).source(error),
            None => error,
        }
    }

    /// Starts the helpers that an append may call for.
    #[inline]
    fn after_append(self: &Arc<Lane>, writer: &mut Writer) {
        if writer.unsynced.bytes() >= self.options.unsynced_sync_bytes.min(writer.unsynced.bytes_max() / 4) {
            self.begin_sync();
        }
        if writer.position - FIRST_BYTE <= (writer.segment.capacity - FIRST_BYTE) / 4 {
            return;
        }
        // Small frames do not look each.
        let page = 1 + writer.position / PAGE_BYTES;
        if std::mem::replace(&mut writer.looked, page) == page {
            return;
        }
        let room = u64::from(writer.segment.capacity - writer.position);
        let wanted = writer.live_bytes().next_power_of_two();
        if let Some(preparation) = self.supply.wants_preparing(room, wanted, || self.making(writer)) {
            self.env.spawn(TaskClass::Foreground, "log segment", async move { preparation.run() }).detach();
        }
    }

    /// Has a sync begin, if none is running.
    fn begin_sync(self: &Arc<Lane>) {
        if self.group.lock().try_lead() {
            self.spawn_leader();
        }
    }

    fn spawn_leader(self: &Arc<Lane>) {
        let lane = Arc::clone(self);
        self.env
            .spawn(TaskClass::Foreground, "log sync", async move {
                while lane.lead_round(false).0 == Next::LeadOn {
                    lane.env.yield_now().await;
                }
            })
            .detach();
    }

    /// A ticket for `end` being durable.
    pub(super) fn durable(self: &Arc<Lane>, end: LogOffset) -> Completion<Result<()>> {
        if let Some(result) = self.known(end) {
            let (completer, waiting) = completion();
            completer.complete(result);
            return waiting;
        }
        self.syncs_wanted.fetch_add(1, Ordering::Relaxed);
        let (waiting, lead) = self.group.lock().join_ticket(end);
        if lead {
            self.spawn_leader();
        }
        waiting
    }

    /// Makes `end` durable on the calling thread, or waits for the thread that is at it.
    pub(super) fn sync(self: &Arc<Lane>, end: LogOffset) -> Result<()> {
        let mut is_first = true;
        loop {
            if let Some(result) = self.known(end) {
                return result;
            }
            if std::mem::take(&mut is_first) {
                self.syncs_wanted.fetch_add(1, Ordering::Relaxed);
            }
            let joined = self.group.lock().join_thread(end);
            match joined {
                Joined::Lead => {}
                Joined::Wait(waiting) => match self.env.block_on(waiting) {
                    Some(Wake::Done(result)) => return result,
                    Some(Wake::Lead) => {}
                    None => {
                        return Err(Error::new(
                            ErrorKind::Closed,
                            "the world ended before a sync of the log did",
                        )
                        .object(&self.place));
                    }
                },
            }
            let (next, failure) = self.lead_round(true);
            if next == Next::LeadOn {
                self.spawn_leader();
            }
            if let Some(error) = failure {
                return Err(error);
            }
        }
    }

    /// The answer about `end` that needs no sync, if there is one.
    fn known(&self, end: LogOffset) -> Option<Result<()>> {
        if end <= self.durable_through() {
            return Some(Ok(()));
        }
        if end > self.accepted() {
            // A fenced or failed lane never gets there.
            if let State::Ended(error) = &self.writer.lock().state {
                return Some(Err(error.clone()));
            }
            let message = format!("a sync to {end}, beyond the log's end {}", self.accepted());
            return Some(Err(Error::new(ErrorKind::Bug, message).object(&self.place)));
        }
        let writer = self.writer.lock();
        match &writer.state {
            State::Ended(error) if error.kind() != ErrorKind::Fenced => Some(Err(error.clone())),
            _ => writer.lost.clone().map(Err),
        }
    }

    /// One round as the leader; the error is that of all who waited.
    fn lead_round(&self, may_hand_over: bool) -> (Next, Option<Error>) {
        let ends_on_panic = OnPanic::new(|| self.leader_panicked());
        self.gather(usize::from(may_hand_over));
        let began = self.env.now();
        let mut moves = 0;
        let failure = loop {
            // A thread that asked before it was set may lead after.
            if let Some(error) = self.writer.lock().lost.clone() {
                break Some(error);
            }
            match self.round() {
                Ok(()) => break None,
                Err(error) if is_enabled(Mutant::LogSyncErrorIgnored) => {
                    drop(error);
                    self.set_durable(self.accepted());
                    break None;
                }
                Err(error) if moves == MOVES_MAX || tombolo_env::simulated::is_crash(&error) => {
                    break Some(self.fail(error));
                }
                Err(error) => {
                    moves += 1;
                    if let Err(error) = self.move_unsynced(&error) {
                        break Some(error);
                    }
                }
            }
        };
        self.round_nanos
            .store(self.env.now().since(began).as_nanos().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        let (finished, next) =
            self.group.lock().round_ended(self.durable_through(), failure.as_ref(), may_hand_over);
        // It leads no more.
        ends_on_panic.disarm();
        finished.wake();
        (next, failure)
    }

    /// Lets those run that the last round let go: what they write now shares the sync that is about
    /// to begin.
    fn gather(&self, leader: usize) {
        let missing = self.group.lock().begin_gathering(leader);
        if missing == 0 || self.env.is_simulated() {
            return;
        }
        let time_max = (self.round_nanos.load(Ordering::Relaxed) / GATHER_PART).min(GATHER_NANOS_MAX);
        let deadline = self.env.now() + Duration::from_nanos(time_max);
        while self.env.now() < deadline && self.group.lock().missing(leader) > 0 {
            self.env.let_others_run();
        }
        self.group.lock().end_gathering(missing, leader);
    }

    /// A leader that panics leaves a lane that has ended, and nobody who waits for it.
    fn leader_panicked(&self) {
        let error = self.fail(io::Error::other("it panicked"));
        let (finished, _) = self.group.lock().round_ended(self.durable_through(), Some(&error), false);
        finished.wake();
    }

    /// Syncs everything accepted by now: earlier segments first.
    fn round(&self) -> io::Result<()> {
        let (target, segments) = {
            let writer = self.writer.lock();
            let unsynced = writer.full.iter().filter(|full| !full.synced && !full.poisoned);
            let mut segments: Vec<_> = unsynced.map(|full| (Arc::clone(&full.segment), full.end)).collect();
            if is_enabled(Mutant::LogRollsWithoutSync) {
                segments.clear();
            }
            segments.push((Arc::clone(&writer.segment), writer.position));
            (self.accepted(), segments)
        };
        if target > self.durable_through() {
            for (segment, end) in &segments {
                self.env.preemption_point();
                if !is_enabled(Mutant::LogDurableWithoutSync) {
                    segment.sync_to(*end)?;
                }
            }
            self.env.preemption_point();
            self.set_durable(target);
        }
        Ok(())
    }

    fn set_durable(&self, target: LogOffset) {
        // Told before anybody is acknowledged: a follower that looks afterwards must see it.
        self.control.set(Word::Durable, target);
        self.rounds_are_small
            .store(target.0.saturating_sub(self.durable_through().0) < SMALL_ROUND_BYTES, Ordering::Relaxed);
        self.durable.store(target.0, Ordering::Release);
        let mut writer = self.writer.lock();
        writer.unsynced.release(target);
        for full in &mut writer.full {
            full.synced |= full.segment.number < target.segment() && !full.poisoned;
        }
    }

    /// After a failed sync: the unsynced copy goes to a new segment, frames first and header last,
    /// and the lane goes on there.
    fn move_unsynced(&self, cause: &io::Error) -> Result<()> {
        let mut writer = self.writer.lock();
        let moved = self.move_unsynced_of(&mut writer, cause);
        if let Err(error) = &moved {
            writer.lost = Some(error.clone());
        }
        moved
    }

    fn move_unsynced_of(&self, writer: &mut Writer, cause: &io::Error) -> Result<()> {
        if let State::Ended(error) = &writer.state {
            return Err(error.clone());
        }
        tracing::warn!(error = %cause, log = %self.place, "a sync of the log failed; its unsynced bytes go \
            to a new segment");
        let durable = self.durable_through();
        let bytes = u64::from(FIRST_BYTE) + writer.unsynced.bytes_from(durable) as u64;
        let next = match self.supply.take(bytes, writer.live_bytes().next_power_of_two(), MOVED) {
            Ok(next) => next,
            Err(error) => return Err(self.end(writer, error)),
        };
        let moved = writer.unsynced.move_to(
            self.identity_of(&writer.segment),
            durable,
            self.identity_of(&next),
            FIRST_BYTE,
        );
        let moved_bytes = u32::try_from(moved.len()).unwrap_or(0);
        let stored = next.store(FIRST_BYTE, moved, Store::Written).and_then(|()| {
            // Who sees the header sees the frames.
            std::sync::atomic::fence(Ordering::Release);
            self.begin_segment(&next, durable)
        });
        if let Err(error) = stored {
            let error = Error::io(error, "moving unsynced bytes of the log", next.path.display());
            return Err(self.end(writer, error));
        }
        self.env.preemption_point();
        if let Some(by) = self.control.raised_by(&self.env) {
            let error = self.control.fenced(by);
            writer.state = State::Ended(error.clone());
            return Err(error);
        }
        let old = std::mem::replace(&mut writer.segment, next);
        writer.full.push_back(Full { segment: old, end: writer.position, synced: false, poisoned: false });
        writer.full_bytes += u64::from(writer.position - FIRST_BYTE);
        let mut void_bytes = 0;
        for full in &mut writer.full {
            // A fencer may have sealed the lane in the poisoned segment: it stays until it is
            // trimmed.
            let counts_to = match full.segment.number.cmp(&durable.segment()) {
                std::cmp::Ordering::Less => full.end,
                std::cmp::Ordering::Equal => durable.byte(),
                std::cmp::Ordering::Greater => FIRST_BYTE,
            };
            full.poisoned |= counts_to != full.end || !full.synced;
            void_bytes += u64::from(full.end - counts_to);
            full.end = counts_to;
        }
        writer.full_bytes -= void_bytes;
        (writer.position, writer.looked, writer.mapped_bytes) = (FIRST_BYTE + moved_bytes, 0, 0);
        writer.broken = false;
        let end = LogOffset::new(writer.segment.number, writer.position);
        self.accepted.store(end.0, Ordering::Release);
        self.control.set(Word::Accepted, end);
        Ok(())
    }

    /// The disk failed for good.
    fn fail(&self, cause: io::Error) -> Error {
        let mut writer = self.writer.lock();
        let path = writer.segment.path.display().to_string();
        let error = self.end(&mut writer, Error::io(cause, "syncing the log", path));
        writer.lost = Some(error.clone());
        error
    }

    fn end(&self, writer: &mut Writer, cause: Error) -> Error {
        // Never a kind that says that nothing took effect: accepted entries may be found again, or
        // not.
        let kind =
            if cause.kind() == ErrorKind::Closed { ErrorKind::Closed } else { ErrorKind::OutcomeUnknown };
        let error = Error::new(
            kind,
            format!("the log's disk fails; what was not durable may or may not be found again: {cause}"),
        )
        .object(&self.place)
        .source(cause)
        .advice("see to the disk, then open the database again");
        writer.state = State::Ended(error.clone());
        error
    }

    /// Gives back what lies before `before`.
    pub(super) fn trim(self: &Arc<Lane>, before: LogOffset) {
        let mut retired = Vec::new();
        {
            let mut writer = self.writer.lock();
            writer.trimmed = writer.trimmed.max(before);
            while writer
                .full
                .front()
                .is_some_and(|full| full.segment.number < before.segment().min(writer.segment.number))
            {
                retired.extend(writer.take_oldest());
            }
        }
        for full in retired {
            self.supply.retire(full.segment, full.synced && !full.poisoned);
        }
        self.watch_for_rest();
    }

    pub(super) fn pressure(&self) -> Pressure {
        Pressure {
            live_bytes: self.writer.lock().live_bytes(),
            wanted_bytes_max: self.options.wanted_bytes_max,
        }
    }

    /// Verifies that no later epoch has raised the fence word.
    pub(super) fn confirm(&self) -> Result<()> {
        match self.control.raised_by(&self.env) {
            Some(by) => Err(self.control.fenced(by)),
            None => Ok(()),
        }
    }

    /// Ends the lane, if it has not ended, and lets go of what only a later sync would need.
    pub(super) fn give_up(&self) {
        let mut writer = self.writer.lock();
        let error = match &writer.state {
            State::Ended(error) => error.clone(),
            _ => given_up(&self.place),
        };
        // A leader that is at its syncs moves nothing any more; those who wait for it are told what
        // it found.
        writer.lost.get_or_insert_with(|| error.clone());
        writer.state = State::Ended(error);
        let accepted = self.accepted();
        writer.unsynced.release(accepted);
    }

    /// Refuses appends from here on; returns the end to be made durable.
    pub(super) fn stop(&self) -> Result<LogOffset> {
        let mut writer = self.writer.lock();
        if let State::Ended(error) = &writer.state {
            return Err(error.clone());
        }
        writer.state = State::Closed;
        Ok(self.accepted())
    }

    /// Ready when no segment is being made ahead, and none will be.
    pub(super) fn supply_closed(&self) -> Completion<()> {
        self.supply.close()
    }

    /// Writes down outside the frames how far the lane is durable.
    pub(super) fn note_durable(&self) -> Result<()> {
        if is_enabled(Mutant::LogCloseTellsNothing) {
            return Ok(());
        }
        let durable = self.durable_through();
        let segment = Arc::clone(&self.writer.lock().segment);
        let slot = encode_durable_slot(&self.identity_of(&segment), durable.0);
        segment
            .store(SLOT_BYTE, &slot, Store::Mapped)
            .and_then(|()| segment.sync())
            .map_err(|error| Error::io(error, "closing a log segment", segment.path.display()))?;
        self.control.sync()
    }
}
