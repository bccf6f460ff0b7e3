//! A lane of an open log.

use std::sync::Arc;

use tombolo_env::{BoxFuture, Completion, TaskClass, completion};
use tombolo_format::zoned::{ENTRY_HEADER_BYTES, encode_entry_header};
use tombolo_storage::lanes::{LogLane, given_up};
use tombolo_storage::log_memory::LaneMemory;
use tombolo_storage::{Appended, Error, ErrorKind, LogAppend, LogOffset, Pressure, Purpose, Result};

use crate::lanes::{Lane, Stream, Waiter};
use crate::volume::Core;
use crate::zones::For;

/// Most bytes of an entry's payload: the largest batch of operations, and its surroundings.
pub const ENTRY_PAYLOAD_BYTES_MAX: usize = (128 << 20) + (1 << 20);
/// Bytes in a lane's memory after which they are written, even if nobody waits for them.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// Beyond this a lane asks for a flush; less on a small device.
const WANTED_BYTES_MAX: u64 = 256 << 20;

/// A lane that this epoch appends to.
#[derive(Debug)]
pub struct ZonedLane {
    core: Arc<Core>,
    lane: u64,
    place: String,
}

impl ZonedLane {
    /// A lane that was made.
    pub fn new(core: &Arc<Core>, lane: u64, place: String) -> ZonedLane {
        ZonedLane { core: Arc::clone(core), lane, place }
    }

    fn fenced(&self) -> Error {
        Error::new(
            ErrorKind::Fenced,
            "a successor has fenced this log; what was in flight is of unknown outcome",
        )
        .object(&self.place)
        .advice("this handle is finished: open the database again, which takes it over")
    }

    /// Why nothing is appended.
    fn check_open(&self, lane: Option<&Lane>) -> Result<()> {
        let Some(lane) = lane else { return Err(self.fenced()) };
        if lane.is_given_up {
            return Err(given_up(&self.place));
        }
        if lane.is_fenced {
            return Err(self.fenced());
        }
        if lane.is_closed {
            return Err(Error::new(ErrorKind::Closed, "the log was closed").object(&self.place));
        }
        match &lane.failure {
            Some(error) => Err(ended(error, &self.place)),
            None => Ok(()),
        }
    }

    /// Whether there is room for `more` bytes of log beside the buffered ones. Zones for it are
    /// kept.
    fn has_room(&self, stream: &Stream, more: u64) -> bool {
        let core = &self.core;
        let capacity = core.capacities.iter().copied().min().unwrap_or(1);
        // Fragments and batches have headers, and batches are whole blocks.
        let needed = (stream.buffered + more) / 8 * 9 + 4 * core.block() as u64;
        let current = stream.current.as_ref().filter(|current| !current.is_broken);
        let left =
            current.map_or(0, |current| core.capacities[current.zone as usize].saturating_sub(current.at));
        let beyond = needed.saturating_sub(left).div_ceil(capacity / 8 * 7);
        let beyond = usize::try_from(beyond).unwrap_or(usize::MAX);
        let mut zones = core.zones.lock();
        let has =
            beyond == 0 || zones.free().saturating_sub(zones.kept_from(For::Request(Purpose::Log))) >= beyond;
        if has {
            zones.kept_for_log = beyond;
        }
        has
    }

    fn no_room(&self) -> Error {
        self.core.out_of_space(For::Request(Purpose::Log)).context("no room for log")
    }

    /// How a sync through `end` ended, if it did.
    fn settled(&self, stream: &Stream, end: u64) -> Option<Result<()>> {
        settled(stream, self.lane, end, || self.fenced(), &self.place)
    }
}

fn ended(error: &Error, place: &str) -> Error {
    Error::new(ErrorKind::OutcomeUnknown, format!("the log has ended: {}", error.message()))
        .object(place)
        .source(error.clone())
}

fn settled(
    stream: &Stream,
    lane: u64,
    end: u64,
    fenced: impl Fn() -> Error,
    place: &str,
) -> Option<Result<()>> {
    let Some(found) = stream.lanes.get(&lane) else { return Some(Err(fenced())) };
    if end <= found.durable {
        return Some(Ok(()));
    }
    if found.is_given_up {
        return Some(Err(given_up(place)));
    }
    if let Some(error) = &found.failure {
        return Some(Err(ended(error, place)));
    }
    if end <= found.end() {
        return None;
    }
    if found.is_fenced {
        return Some(Err(fenced()));
    }
    let message = format!("a sync to {}, beyond the end {}", LogOffset(end), LogOffset(found.end()));
    Some(Err(Error::new(ErrorKind::Bug, message).object(place)))
}

impl LogLane for ZonedLane {
    fn append(&self, entry: &LogAppend<'_>) -> Result<Appended> {
        let payload_bytes = entry.payload_bytes();
        if payload_bytes > ENTRY_PAYLOAD_BYTES_MAX {
            let message =
                format!("a log entry of {payload_bytes} bytes; {ENTRY_PAYLOAD_BYTES_MAX} are the most");
            return Err(Error::new(ErrorKind::Invalid, message).advice("write smaller batches"));
        }
        self.core.env.preemption_point();
        let header = encode_entry_header(entry.stream, entry.count, entry.first_sequence, entry.parts);
        let bytes = (ENTRY_HEADER_BYTES + payload_bytes).next_multiple_of(8);
        for attempt in 0..2 {
            let mut stream = self.core.log.stream.lock();
            self.check_open(stream.lanes.get(&self.lane))?;
            if !self.has_room(&stream, bytes as u64) {
                drop(stream);
                if attempt == 0 && self.core.make_room(For::Request(Purpose::Log))? {
                    continue;
                }
                return Err(self.no_room());
            }
            let Some(lane) = stream.lanes.get_mut(&self.lane) else { return Err(self.fenced()) };
            lane.buffer.extend_from_slice(&header);
            entry.parts.iter().for_each(|part| lane.buffer.extend_from_slice(part));
            let padded = lane.buffer.len() + bytes - ENTRY_HEADER_BYTES - payload_bytes;
            lane.buffer.resize(padded, 0);
            lane.book();
            let end = LogOffset(lane.end());
            let max = lane.memory.as_ref().map_or(usize::MAX, LaneMemory::bytes_max).min(BUFFER_BYTES_MAX);
            let is_much = lane.buffer.len() > max;
            stream.buffered += bytes as u64;
            drop(stream);
            if is_much && let Err(error) = self.core.write_log() {
                // The lane has ended, which the next call says; the entry is accepted.
                tracing::warn!(%error, place = %self.place, "log could not be written");
            }
            return Ok(Appended { end, accepted: None });
        }
        Err(self.no_room())
    }

    fn durable(&self, end: LogOffset) -> Completion<Result<()>> {
        let (completer, waiting) = completion();
        let mut stream = self.core.log.stream.lock();
        if let Some(result) = self.settled(&stream, end.0) {
            drop(stream);
            completer.complete(result);
            return waiting;
        }
        stream.waiters.push(Waiter { lane: self.lane, end: end.0, completer });
        let is_first = !std::mem::replace(&mut stream.is_waking, true);
        drop(stream);
        if is_first {
            let (core, place) = (Arc::clone(&self.core), self.place.clone());
            let waking = async move {
                loop {
                    core.env.yield_now().await;
                    // Each waiter learns how it ended from its lane.
                    let written = core.write_log();
                    let (ready, is_done) = {
                        let mut stream = core.log.stream.lock();
                        let (mut ready, mut left) = (Vec::new(), Vec::new());
                        for waiter in std::mem::take(&mut stream.waiters) {
                            let fenced = || Error::new(ErrorKind::Fenced, "a successor has fenced this log");
                            match settled(&stream, waiter.lane, waiter.end, fenced, &place) {
                                Some(result) => ready.push((waiter, result)),
                                None => match &written {
                                    Err(error) => ready.push((waiter, Err(error.clone()))),
                                    Ok(()) => left.push(waiter),
                                },
                            }
                        }
                        stream.waiters = left;
                        stream.is_waking = !stream.waiters.is_empty();
                        (ready, !stream.is_waking)
                    };
                    ready.into_iter().for_each(|(waiter, result)| waiter.completer.complete(result));
                    if is_done {
                        return;
                    }
                }
            };
            self.core.env.spawn(TaskClass::Foreground, "zoned log", waking).detach();
        }
        waiting
    }

    fn sync(&self, end: LogOffset) -> Result<()> {
        if let Some(result) = self.settled(&self.core.log.stream.lock(), end.0) {
            return result;
        }
        let written = self.core.write_log();
        let settled = self.settled(&self.core.log.stream.lock(), end.0);
        settled.unwrap_or_else(|| {
            written.and(Err(
                Error::new(ErrorKind::Bug, "log that was written is not durable").object(&self.place)
            ))
        })
    }

    fn durable_through(&self) -> LogOffset {
        let stream = self.core.log.stream.lock();
        LogOffset(stream.lanes.get(&self.lane).map_or(0, |lane| lane.durable))
    }

    fn trim(&self, before: LogOffset) {
        if !self.core.log.stream.lock().trim(self.lane, before.0) {
            return;
        }
        let (core, env) = (Arc::downgrade(&self.core), self.core.env.clone());
        let freeing = async move {
            env.yield_now().await;
            let Some(core) = core.upgrade() else { return };
            let freed = core.rewrite_oldest_log().and_then(|()| core.free_dead_log_zones());
            if let Err(error) = freed {
                // They are found again at the next trim, or when the device is opened.
                tracing::warn!(%error, "log zones that nobody needs could not be freed");
            }
        };
        self.core.env.spawn(TaskClass::Background, "zoned log zones", freeing).detach();
    }

    fn pressure(&self) -> Pressure {
        let stream = self.core.log.stream.lock();
        let live_bytes = stream.lanes.get(&self.lane).map_or(0, |lane| lane.end() - lane.trimmed);
        let device: u64 = self.core.capacities.iter().sum();
        Pressure { live_bytes, wanted_bytes_max: WANTED_BYTES_MAX.min(device / 8) }
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.core.env.yield_now().await;
            let stream = self.core.log.stream.lock();
            match stream.lanes.get(&self.lane) {
                Some(lane) if !lane.is_fenced => Ok(()),
                _ => Err(self.fenced()),
            }
        })
    }

    fn give_up(&self) {
        let mut stream = self.core.log.stream.lock();
        let Some(lane) = stream.lanes.get_mut(&self.lane) else { return };
        lane.is_given_up = true;
        let bytes = std::mem::take(&mut lane.buffer).len() as u64;
        lane.memory = None;
        stream.buffered -= bytes;
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.core.env.yield_now().await;
            let end = {
                let mut stream = self.core.log.stream.lock();
                let Some(lane) = stream.lanes.get_mut(&self.lane) else { return Err(self.fenced()) };
                let was_closed = std::mem::replace(&mut lane.is_closed, true);
                if was_closed && lane.buffer.is_empty() {
                    return Ok(());
                }
                LogOffset(lane.end())
            };
            self.sync(end)
        })
    }
}
