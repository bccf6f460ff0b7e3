//! Reads a sealed lane back, entry by entry. What was sealed must be there.
//!
//! Objects are asked for ahead, many side by side, whole, and come while the entries of those
//! before are worked on: a round trip each would make a takeover's replay, and each round of a
//! follower, as long as the log is.
//!
//! Invariant: objects that are asked for and held take at most [`READ_AHEAD_BYTES_MAX`], and a
//! lane's share of the memory; one object goes in any case.

use std::collections::VecDeque;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Completion, Task, TaskClass, completion};
use tombolo_format::log_frame::decode_frame;
use tombolo_format::log_object::{LOG_OBJECT_FIRST_BYTE, LogObject};

use super::OBJECT_BYTES_WANTED;
use super::fence::{Heads, READS_MAX};
use super::place::Place;
use crate::lanes::world_ended;
use crate::log_memory::LaneMemory;
use crate::{Epoch, Error, LogEntry, LogOffset, LogReader, Purpose, Result};

/// Bytes of objects that are asked for ahead, at most: with the usual 25 ms to the first byte, as
/// much as a fast network brings meanwhile.
const READ_AHEAD_BYTES_MAX: usize = 16 << 20;

/// Bytes asked of an object whose length nobody knows, until longer ones were met: the reads that
/// run at once fill the read-ahead. Of the first ones only so many are asked for, since each that
/// is longer takes a round trip of its own.
const GUESS_BYTES: usize = READ_AHEAD_BYTES_MAX / READS_MAX as usize;
const GUESSES_MIN: usize = 4;

/// An object that was asked for.
#[derive(Debug)]
struct Ahead {
    /// What the fence has read of it.
    head: Bytes,
    /// What follows, when that is not all.
    rest: Option<Rest>,
    /// What it counts for.
    bytes: usize,
}

/// A read that goes on whether or not somebody waits for it; it ends with this.
#[derive(Debug)]
struct Rest {
    came: Completion<Result<Option<Bytes>>>,
    _task: Task,
}

/// A reader of `from..to`.
#[derive(Debug)]
pub(super) struct Reader {
    place: Place,
    epoch: Epoch,
    /// Where the next entry begins.
    next: LogOffset,
    to: LogOffset,
    /// What the fence has read, from slot `asked` on.
    heads: VecDeque<Bytes>,
    heads_bytes: usize,
    /// The next slot to be asked for.
    asked: u32,
    /// Invariant: the objects of the slots right before `asked`, oldest first, that `step` has not
    /// come to.
    ahead: VecDeque<Ahead>,
    ahead_bytes: usize,
    /// What to ask of an object whose length nobody knows.
    guess: usize,
    /// How many such objects to ask for.
    guesses: usize,
    /// The whole object that is being read, and its slot.
    object: Option<(u32, Bytes)>,
    /// The books, which know of all that is held.
    memory: LaneMemory,
}

impl Reader {
    pub(super) fn new(
        place: Place,
        epoch: Epoch,
        heads: Heads,
        from: LogOffset,
        to: LogOffset,
        memory: LaneMemory,
    ) -> Reader {
        // Slot 0 holds nothing.
        let next = from.max(LogOffset::new(1, 0));
        let passed = next.segment().saturating_sub(heads.first) as usize;
        let is_behind = heads.first > next.segment();
        let mut heads = if is_behind { VecDeque::new() } else { heads.heads };
        heads.drain(..passed.min(heads.len()));
        let heads_bytes = heads.iter().map(Bytes::len).sum();
        let asked = next.segment();
        let guess = GUESS_BYTES.min(memory.bytes_max()).max(1);
        let (ahead, ahead_bytes, object) = (VecDeque::new(), 0, None);
        let guesses = GUESSES_MIN;
        let mut reader = Reader {
            place,
            epoch,
            next,
            to,
            heads,
            heads_bytes,
            asked,
            ahead,
            ahead_bytes,
            guess,
            guesses,
            object,
            memory,
        };
        reader.pass_what_was_read();
        reader
    }

    /// A follower stands at the end of an object, as a rule: nothing of that is read again.
    fn pass_what_was_read(&mut self) {
        let length = self.heads.front().and_then(|head| self.length(head));
        if length.is_some_and(|length| self.next.byte() as usize >= length) {
            self.take_head();
            self.asked += 1;
            self.next = LogOffset::new(self.asked, 0);
        }
    }

    /// The length that the head of slot `asked` tells.
    fn length(&self, head: &Bytes) -> Option<usize> {
        match LogObject::decode(head, &self.place.identity(self.asked)) {
            Ok(LogObject::Data { bytes, .. }) => Some(bytes as usize),
            // The read that comes to it names the fault.
            _ => None,
        }
    }

    fn take_head(&mut self) -> Bytes {
        let head = self.heads.pop_front().unwrap_or_default();
        self.heads_bytes -= head.len();
        head
    }

    /// Asks for what comes next, as far as there is room.
    fn ask_ahead(&mut self) {
        while self.asked <= self.to.segment() {
            let (length, count_max) = match self.heads.front() {
                Some(head) => (self.length(head).unwrap_or(head.len()), READS_MAX as usize),
                None => (self.guess, self.guesses),
            };
            let bytes = self.ahead_bytes + length;
            let held = self.heads_bytes - self.heads.front().map_or(0, Bytes::len) + bytes;
            let is_room = bytes <= READ_AHEAD_BYTES_MAX
                && held <= self.memory.bytes_max()
                && self.ahead.len() < count_max;
            if !self.ahead.is_empty() && !is_room {
                break;
            }
            let is_known = !self.heads.is_empty();
            let head = self.take_head();
            // A byte more than there should be tells an object that is too long.
            let to = length as u64 + u64::from(is_known);
            let rest = (head.len() < length).then(|| self.ask(self.asked, head.len() as u64..to));
            self.ahead.push_back(Ahead { head, rest, bytes: length });
            self.ahead_bytes += length;
            self.asked += 1;
        }
        let object = self.object.as_ref().map_or(0, |(_, object)| object.len());
        self.memory.set(self.heads_bytes + self.ahead_bytes + object);
    }

    /// Begins a read of a part of a slot's object.
    fn ask(&self, slot: u32, range: std::ops::Range<u64>) -> Rest {
        let (place, epoch) = (self.place.clone(), self.epoch);
        let (completer, came) = completion();
        let read = async move { completer.complete(place.read(Purpose::Open, epoch, slot, range).await) };
        Rest { came, _task: self.place.env.spawn(TaskClass::Foreground, "log read", read) }
    }

    /// The whole object of a slot, which is the one after that which was loaded before.
    async fn load(&mut self, slot: u32) -> Result<Bytes> {
        self.object = None;
        self.ask_ahead();
        let Some(Ahead { head, rest, bytes: counted }) = self.ahead.pop_front() else {
            return Err(missing(&self.place, slot));
        };
        self.ahead_bytes -= counted;
        let mut object = match rest {
            Some(rest) => {
                let rest = rest.came.await.unwrap_or_else(|| Err(world_ended()))?;
                join(&head, rest.ok_or_else(|| missing(&self.place, slot))?)
            }
            None => head,
        };
        let name = self.place.name(slot)?;
        let header = LogObject::decode(&object, &self.place.identity(slot))
            .map_err(|error| Error::format(&name, 0, error))?;
        let LogObject::Data { bytes, .. } = header else {
            return Err(
                Error::corrupt(name, 56, "data", "a seal").context("a log ends before its recorded length")
            );
        };
        let bytes = bytes as usize;
        self.guess = self.guess.max(bytes.next_power_of_two()).min(OBJECT_BYTES_WANTED);
        self.guesses = (self.guesses * 2).min(READS_MAX as usize);
        if object.len() < bytes {
            let rest = self
                .place
                .read(Purpose::Open, self.epoch, slot, object.len() as u64..bytes as u64 + 1)
                .await?;
            object = join(&object, rest.ok_or_else(|| missing(&self.place, slot))?);
        }
        if object.len() != bytes {
            return Err(Error::corrupt(
                name,
                object.len() as u64,
                format!("{bytes} bytes"),
                format!("{} bytes", object.len()),
            ));
        }
        Ok(object)
    }

    async fn step(&mut self) -> Result<Option<(LogEntry, LogOffset)>> {
        loop {
            if self.next >= self.to {
                return Ok(None);
            }
            let slot = self.next.segment();
            let object = match &self.object {
                Some((held, object)) if *held == slot => object.clone(),
                _ => {
                    let object = self.load(slot).await?;
                    self.object = Some((slot, object.clone()));
                    object
                }
            };
            let byte = self.next.byte().max(LOG_OBJECT_FIRST_BYTE);
            if byte as usize >= object.len() {
                self.next = LogOffset::new(slot + 1, 0);
                self.object = None;
                continue;
            }
            let name = self.place.name(slot)?;
            let frame = decode_frame(&object, byte, &self.place.identity(slot))
                .map_err(|reason| Error::format(name, 0, reason.into_error(byte)))?;
            let start = frame.payload_byte as usize;
            let entry = LogEntry {
                stream: frame.header.stream,
                first_sequence: frame.header.first_sequence,
                count: frame.header.count,
                payload: object.slice(start..start + frame.payload.len()),
            };
            self.next = LogOffset::new(slot, frame.end);
            return Ok(Some((entry, self.next)));
        }
    }
}

fn join(head: &Bytes, rest: Bytes) -> Bytes {
    if head.is_empty() { rest } else { [&head[..], &rest[..]].concat().into() }
}

fn missing(place: &Place, slot: u32) -> Error {
    let object = place.name(slot).map_or_else(|_| place.to_string(), |name| name.to_string());
    Error::corrupt(object, 0, "a log object within the recorded length", "nothing")
}

impl LogReader for Reader {
    /// Nothing: what was acknowledged is in the store that it reads.
    fn lacks(&self) -> Option<Error> {
        None
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<(LogEntry, LogOffset)>>> {
        Box::pin(self.step())
    }
}
