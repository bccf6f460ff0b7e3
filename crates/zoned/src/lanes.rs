//! The lanes of a device's logs: the bytes in memory of each, and where the rest lies.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tombolo_env::Completer;
use tombolo_storage::log_memory::LaneMemory;
use tombolo_storage::{Error, ErrorKind, Result};

/// The log of a device, while this process holds it.
#[derive(Debug, Default)]
pub struct LogCore {
    /// Lanes and zones. Taken after nothing, and held for no IO.
    pub stream: Mutex<Stream>,
    /// Held by the one who writes batches.
    pub writing: Mutex<()>,
}

/// Bytes of a lane that lie together in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Their place in the lane.
    pub at: u64,
    /// How many.
    pub bytes: u32,
    /// The zone of the batch.
    pub zone: u32,
    /// Its generation.
    pub generation: u64,
    /// The batch's block in the zone.
    pub block: u32,
    /// Bytes of the batch's payload.
    pub payload_bytes: u32,
    /// Where they begin in it.
    pub offset: u32,
}

impl Piece {
    /// The place after them.
    pub fn end(&self) -> u64 {
        self.at + u64::from(self.bytes)
    }
}

/// A lane.
#[derive(Debug)]
pub struct Lane {
    /// Where its bytes lie, in order, from `trimmed` on. Invariant: up to `durable`.
    pub pieces: VecDeque<Piece>,
    /// Bytes from `durable` to the end.
    pub buffer: Vec<u8>,
    /// All before is durable.
    pub durable: u64,
    /// What lies before is not needed.
    pub trimmed: u64,
    /// A later epoch has taken over.
    pub is_fenced: bool,
    /// Its owner closed it.
    pub is_closed: bool,
    /// Its owner gave it up.
    pub is_given_up: bool,
    /// Why nothing more becomes durable.
    pub failure: Option<Error>,
    /// What it holds in memory, in the books.
    pub memory: Option<LaneMemory>,
    /// What was found of it when the device was opened is damaged.
    pub damage: Option<Error>,
    /// It was found when the device was opened, and not fenced since: it may end within an entry.
    pub is_found: bool,
}

impl Lane {
    /// An empty one.
    pub fn new(memory: Option<LaneMemory>) -> Lane {
        Lane {
            pieces: VecDeque::new(),
            buffer: Vec::new(),
            durable: 0,
            trimmed: 0,
            is_fenced: false,
            is_closed: false,
            is_given_up: false,
            failure: None,
            memory,
            damage: None,
            is_found: false,
        }
    }

    /// Where the next entry goes.
    pub fn end(&self) -> u64 {
        self.durable + self.buffer.len() as u64
    }

    /// Books what the buffer holds.
    pub fn book(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.set(self.buffer.len());
        }
    }
}

/// The zone that batches are written to.
#[derive(Debug)]
pub struct Current {
    /// Its generation.
    pub generation: u64,
    /// The zone.
    pub zone: u32,
    /// The next batch.
    pub number: u64,
    /// Where that goes.
    pub at: u64,
    /// All before is durable.
    pub durable: u64,
    /// Nothing more is written to it.
    pub is_broken: bool,
}

/// One who waits until a lane is durable through a place.
#[derive(Debug)]
pub struct Waiter {
    pub lane: u64,
    pub end: u64,
    pub completer: Completer<Result<()>>,
}

/// The lanes and zones of a device's log.
#[derive(Debug, Default)]
pub struct Stream {
    /// Lanes by their number on the device.
    pub lanes: BTreeMap<u64, Lane>,
    /// Pieces that lie in each zone, and are needed.
    pub held: BTreeMap<u32, u64>,
    /// The zone that is written to.
    pub current: Option<Current>,
    /// Bytes in the buffers of all lanes.
    pub buffered: u64,
    /// Those who wait.
    pub waiters: Vec<Waiter>,
    /// Somebody is about to wake them.
    pub is_waking: bool,
}

impl Stream {
    /// Fences a lane, if it is there.
    pub fn fence(&mut self, lane: u64) -> bool {
        match self.lanes.get_mut(&lane) {
            Some(found) => {
                found.is_fenced = true;
                true
            }
            None => false,
        }
    }

    /// A lane that was found ends here, after its last whole entry.
    pub fn end_found(&mut self, lane: u64, end: u64) {
        if let Some(found) = self.lanes.get_mut(&lane).filter(|found| found.is_found) {
            (found.durable, found.is_found) = (end.max(found.trimmed), false);
        }
    }

    /// Where a fenced lane ends.
    pub fn sealed_end(&self, lane: u64, place: &str) -> Result<u64> {
        let gone = || Error::new(ErrorKind::Corrupt, "a log was freed while it was fenced").object(place);
        let found = self.lanes.get(&lane).ok_or_else(gone)?;
        match &found.damage {
            Some(damage) => Err(damage.clone()),
            None => Ok(found.durable),
        }
    }

    /// A piece of a zone is not needed any more.
    pub fn release(&mut self, zone: u32) {
        if let Some(held) = self.held.get_mut(&zone) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&zone);
            }
        }
    }

    /// Forgets a lane.
    pub fn remove(&mut self, lane: u64) {
        if let Some(gone) = self.lanes.remove(&lane) {
            self.buffered -= gone.buffer.len() as u64;
            gone.pieces.iter().for_each(|piece| self.release(piece.zone));
        }
    }

    /// Frees what lies before a place of a lane. Whether a zone may be free now.
    pub fn trim(&mut self, lane: u64, before: u64) -> bool {
        let Some(found) = self.lanes.get_mut(&lane) else { return false };
        found.trimmed = found.trimmed.max(before.min(found.durable));
        let trimmed = found.trimmed;
        let mut released = Vec::new();
        while found.pieces.front().is_some_and(|piece| piece.end() <= trimmed) {
            released.extend(found.pieces.pop_front().map(|piece| piece.zone));
        }
        released.iter().for_each(|zone| self.release(*zone));
        released.iter().any(|zone| !self.held.contains_key(zone))
    }

    /// A lane's bytes, up to a place of its buffer, are durable in these pieces.
    pub fn settle(&mut self, lane: u64, pieces: Vec<Piece>) {
        let Some(found) = self.lanes.get_mut(&lane) else { return };
        let Some(end) = pieces.last().map(Piece::end) else { return };
        let bytes = usize::try_from(end - found.durable).unwrap_or(usize::MAX).min(found.buffer.len());
        found.buffer.drain(..bytes);
        found.durable = end;
        found.book();
        self.buffered -= bytes as u64;
        for piece in pieces {
            if piece.end() > found.trimmed {
                *self.held.entry(piece.zone).or_default() += 1;
                found.pieces.push_back(piece);
            }
        }
    }
}

/// For tools.
impl LogCore {
    /// Where a lane's bytes lie.
    pub fn pieces(&self, lane: u64) -> Result<Vec<Piece>> {
        let stream = self.stream.lock();
        let Some(found) = stream.lanes.get(&lane) else { return Ok(Vec::new()) };
        match &found.damage {
            Some(damage) => Err(damage.clone()),
            None => Ok(found.pieces.iter().copied().collect()),
        }
    }

    /// The place through which a lane is durable.
    pub fn durable(&self, lane: u64) -> u64 {
        self.stream.lock().lanes.get(&lane).map_or(0, |lane| lane.durable)
    }

    /// The damage of each lane.
    pub fn damage(&self) -> Vec<String> {
        let stream = self.stream.lock();
        let damaged = stream.lanes.iter().filter_map(|(lane, of)| Some((lane, of.damage.as_ref()?)));
        damaged.map(|(lane, damage)| format!("lane {lane}: {damage}")).collect()
    }

    /// A lane that is restored: its bytes are in memory, to be written.
    pub fn fill(&self, lane: u64, from: u64, bytes: &[u8]) {
        let mut stream = self.stream.lock();
        let mut made = Lane::new(None);
        (made.durable, made.trimmed, made.is_fenced, made.is_found) = (from, from, true, true);
        made.buffer.extend_from_slice(bytes);
        stream.buffered += bytes.len() as u64;
        stream.lanes.insert(lane, made);
    }
}
