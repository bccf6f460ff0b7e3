//! A successor ends an older epoch's lane: it walks the slots from the replay point on and seals
//! the first empty one (rule 10).
//!
//! Takeover, step 2. Reads run ahead in parallel; only the seal is ordered. Every step may be done
//! again, by any later epoch, at any time: the first seal counts. Entries that are read on the way
//! are kept for the replay, as far as a lane's share of the memory goes; beyond that the walk reads
//! headers, and the replay the rest.

use std::collections::VecDeque;

use bytes::Bytes;
use tombolo_env::{BoxFuture, all};
use tombolo_format::log_object::{LOG_OBJECT_HEADER_BYTES, LogObject, SEAL_BYTES, encode_seal};

use super::place::{Place, contradiction};
use super::{KEPT_BYTES_MAX, PUTS_IN_FLIGHT_MAX};
use crate::backoff::{Backoff, is_passing};
use crate::log_memory::LaneMemory;
use crate::mutant::{Mutant, is_enabled};
use crate::{Epoch, Error, ErrorKind, LogOffset, Purpose, PutOutcome, Result};

/// Most bytes read at once: of each object an equal part, which is all of most.
const ROUND_BYTES_MAX: usize = 16 << 20;

/// Most bytes read of one object at first; and the least that is worth keeping.
const HEAD_BYTES_MAX: usize = 1 << 20;
const HEAD_BYTES_MIN: usize = 4 << 10;

/// What tells what a slot holds.
const HEADER_BYTES: usize = SEAL_BYTES;

/// Slots read at once by a follower at first: the one behind where it stands, which mostly is not
/// there yet.
const FOLLOWER_READS_MIN: u32 = 1;

/// Slots read at once: in the first round what a small log has with the slots behind its end, then
/// more and more.
const READS_MIN: u32 = 16;
pub(super) const READS_MAX: u32 = 64;

/// The starts of a lane's data objects, from a slot on, one after the other.
#[derive(Debug, Default)]
pub(super) struct Heads {
    pub(super) first: u32,
    pub(super) heads: VecDeque<Bytes>,
    bytes: usize,
    /// The books, which know of `bytes`, until a reader has these in its own.
    memory: Option<LaneMemory>,
}

impl Heads {
    fn new(first: u32, memory: LaneMemory) -> Heads {
        Heads { first, heads: VecDeque::new(), bytes: 0, memory: Some(memory) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes for which there is room.
    fn room(&self) -> usize {
        let share = self.memory.as_ref().map_or(0, LaneMemory::bytes_max);
        share.min(KEPT_BYTES_MAX).saturating_sub(self.bytes)
    }

    fn count(&mut self, more: usize) {
        self.bytes += more;
        if let Some(memory) = &mut self.memory {
            memory.set(self.bytes);
        }
    }

    /// Keeps the head of the object behind the last one.
    fn push(&mut self, head: Bytes) {
        self.count(head.len());
        self.heads.push_back(head);
    }

    /// Keeps the head of the object before the first one.
    fn push_first(&mut self, slot: u32, head: Bytes) {
        self.count(head.len());
        self.heads.push_front(head);
        self.first = slot;
    }
}

/// Slots behind an empty one that are looked at.
const GAP_READS: u32 = 2 * PUTS_IN_FLIGHT_MAX;

/// A slot that was read.
#[derive(Clone, Debug)]
enum Slot {
    Empty,
    Data { head: Bytes, bytes: u32, known_through: u32 },
    Seal(LogOffset),
}

/// Fences a lane and returns its sealed length, with what was read on the way.
pub(super) async fn fence(
    place: &Place,
    by: Epoch,
    from: LogOffset,
    memory: LaneMemory,
) -> Result<(LogOffset, Heads)> {
    Walk { place, by, from, end: from, heads: Heads::new(from.segment(), memory), keeps: true }.run().await
}

/// How far a lane that nobody may have sealed yet holds data without a gap: no fence takes any of
/// it back, since a seal goes into the first empty slot.
///
/// The slot where the follower stands is looked at last, and the one before the end: trimming
/// deletes in ascending order, so that an object still there says that the slot behind was empty,
/// and not emptied.
pub(super) async fn follow(
    place: &Place,
    epoch: Epoch,
    from: LogOffset,
    memory: LaneMemory,
) -> Result<(LogOffset, Heads)> {
    let stands = from.segment();
    let mut walk =
        Walk { place, by: epoch, from, end: from, heads: Heads::new(stands + 1, memory), keeps: true };
    let (mut slot, mut reads) = (stands + 1, FOLLOWER_READS_MIN);
    loop {
        let head_bytes = walk.head_bytes(reads);
        for found in walk.read(slot, reads, head_bytes).await? {
            if !matches!(found, Slot::Data { .. }) {
                if !is_enabled(Mutant::LogObjectTrimTakenForEnd) {
                    walk.look_again(stands, slot - 1).await?;
                }
                let sealed = if matches!(found, Slot::Empty) { None } else { walk.take(slot, found)? };
                return Ok((sealed.unwrap_or(walk.end), walk.heads));
            }
            walk.take(slot, found)?;
            slot += 1;
        }
        reads = (reads * 2).min(READS_MAX);
    }
}

struct Walk<'a> {
    place: &'a Place,
    by: Epoch,
    /// The replay point. Invariant: its slot holds data as long as the log is named.
    from: LogOffset,
    /// Where the data so far ends.
    end: LogOffset,
    heads: Heads,
    /// Nothing was left out of them.
    keeps: bool,
}

impl Walk<'_> {
    async fn run(mut self) -> Result<(LogOffset, Heads)> {
        let mut reads = READS_MIN;
        let mut slot = self.from.segment();
        loop {
            let round = self.read(slot, reads, self.head_bytes(reads)).await?;
            reads = (reads * 2).min(READS_MAX);
            for (index, found) in round.iter().enumerate() {
                if matches!(found, Slot::Empty) {
                    let behind = round.get(index + 1..).unwrap_or_default();
                    self.check_gap(slot, behind).await?;
                    if is_enabled(Mutant::LogObjectNotSealed) {
                        return Ok((self.end, self.heads));
                    }
                    let found = self.seal(slot).await?;
                    if let Some(sealed) = self.take(slot, found)? {
                        return Ok((sealed, self.heads));
                    }
                    // The writer was faster: what lies behind was read before it wrote on.
                    slot += 1;
                    reads = READS_MIN;
                    break;
                }
                if is_enabled(Mutant::LogObjectReadsPastSeal) && matches!(found, Slot::Seal(_)) {
                    slot += 1;
                    continue;
                }
                if let Some(sealed) = self.take(slot, found.clone())? {
                    return Ok((sealed, self.heads));
                }
                slot += 1;
            }
        }
    }

    /// Goes on over data; a seal ends the walk with the sealed length.
    fn take(&mut self, slot: u32, found: Slot) -> Result<Option<LogOffset>> {
        match found {
            Slot::Data { head, bytes, .. } => {
                self.end = self.end_of(slot, bytes);
                self.keeps &= head.len() <= self.heads.room();
                if self.keeps {
                    self.heads.push(head);
                }
                Ok(None)
            }
            Slot::Seal(_) if slot == self.from.segment() => Err(self.gone(slot, "a seal")),
            Slot::Seal(sealed) if sealed.max(self.from) != self.end => {
                Err(Error::corrupt(self.place.name(slot)?, LOG_OBJECT_HEADER_BYTES as u64, self.end, sealed)
                    .context("a log's seal tells another length than its objects have"))
            }
            Slot::Seal(sealed) => Ok(Some(sealed.max(self.from))),
            Slot::Empty => Err(self.gone(slot, "nothing")),
        }
    }

    /// Where the object of a slot ends. The replay point may lie anywhere in its slot; slot 0 holds
    /// nothing.
    fn end_of(&self, slot: u32, bytes: u32) -> LogOffset {
        if slot == 0 { LogOffset::ZERO } else { LogOffset::new(slot, bytes).max(self.from) }
    }

    /// What to read of each of so many objects.
    fn head_bytes(&self, reads: u32) -> usize {
        let room = if self.keeps { self.heads.room().min(ROUND_BYTES_MAX) / reads as usize } else { 0 };
        if room < HEAD_BYTES_MIN { HEADER_BYTES } else { room.min(HEAD_BYTES_MAX) }
    }

    /// Sees that the slot where a follower stands is there, and the last one that it came to.
    async fn look_again(&mut self, stands: u32, last: u32) -> Result<()> {
        let slots = [stands, last];
        let slots = if stands == last { &slots[..1] } else { &slots };
        let reads = slots
            .iter()
            .map(|slot| -> BoxFuture<'_, Result<Slot>> { Box::pin(self.read_one(*slot, HEADER_BYTES)) });
        for (slot, found) in slots.iter().zip(all(reads.collect(), slots.len()).await) {
            match found? {
                Slot::Data { head, bytes, .. } if *slot == stands => {
                    self.end = self.end.max(self.end_of(stands, bytes));
                    self.heads.push_first(stands, head);
                }
                Slot::Data { .. } => {}
                Slot::Seal(_) => return Err(self.gone(*slot, "a seal")),
                Slot::Empty => return Err(self.gone(*slot, "nothing")),
            }
        }
        Ok(())
    }

    fn gone(&self, slot: u32, found: &str) -> Error {
        let object = self.place.name(slot).map_or_else(|_| self.place.to_string(), |name| name.to_string());
        Error::new(ErrorKind::Corrupt, "a log that the manifest names is gone")
            .object(object)
            .expected("the object of the replay point")
            .found(found)
            .advice("its writes since the last flush are lost; restore the database from a copy")
    }

    /// Reads the starts of some slots at once.
    async fn read(&self, first: u32, count: u32, head_bytes: usize) -> Result<Vec<Slot>> {
        let slots = first..first.saturating_add(count);
        let reads =
            slots.map(|slot| -> BoxFuture<'_, Result<Slot>> { Box::pin(self.read_one(slot, head_bytes)) });
        all(reads.collect(), READS_MAX as usize).await.into_iter().collect()
    }

    async fn read_one(&self, slot: u32, head_bytes: usize) -> Result<Slot> {
        let read = self.place.read(Purpose::Open, self.by, slot, 0..head_bytes as u64).await?;
        let Some(head) = read else { return Ok(Slot::Empty) };
        let name = self.place.name(slot)?;
        match LogObject::decode(&head, &self.place.identity(slot))
            .map_err(|error| Error::format(&name, 0, error))?
        {
            LogObject::Seal { sealed, .. } => Ok(Slot::Seal(LogOffset(sealed))),
            LogObject::Data { bytes, known_through, .. } => Ok(Slot::Data { head, bytes, known_through }),
        }
    }

    /// Tells the end from a hole: an object behind an empty slot that knew the slot to be taken
    /// means that one was lost (rule 9).
    async fn check_gap(&self, slot: u32, behind: &[Slot]) -> Result<()> {
        if slot == self.from.segment() {
            return Err(self.gone(slot, "nothing"));
        }
        let read_before = u32::try_from(behind.len()).unwrap_or(GAP_READS).min(GAP_READS);
        let more = self.read(slot + 1 + read_before, GAP_READS - read_before, HEADER_BYTES).await?;
        let knows = |(distance, found): (u32, &Slot)| match found {
            Slot::Data { known_through, .. } => *known_through >= slot || distance >= PUTS_IN_FLIGHT_MAX,
            _ => false,
        };
        let knows = (1..).zip(behind.iter().take(GAP_READS as usize).chain(&more)).any(knows);
        // A live writer may have put both meanwhile.
        if !knows
            || is_enabled(Mutant::LogObjectGapIsAlwaysEnd)
            || !matches!(self.read_one(slot, HEADER_BYTES).await?, Slot::Empty)
        {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "a log object is missing that was acknowledged")
            .object(self.place.name(slot)?)
            .expected("data, as a later object says")
            .found("nothing")
            .advice("restore the object from a copy; what came after it is not replayed without it"))
    }

    /// Puts a seal into a slot, and reads what holds it.
    async fn seal(&self, slot: u32) -> Result<Slot> {
        let bytes = Bytes::from(encode_seal(&self.place.identity(slot), self.by.0, self.end.0));
        let mut backoff = Backoff::new();
        loop {
            let outcome = self.place.put(self.by, slot, bytes.clone()).await;
            match outcome {
                Ok(PutOutcome::Exists) if is_enabled(Mutant::LogObjectSealNotReadAgain) => {
                    return Ok(Slot::Seal(self.end));
                }
                Ok(PutOutcome::Created) => return Ok(Slot::Seal(self.end)),
                Ok(PutOutcome::Exists) => match self.read_one(slot, HEADER_BYTES).await? {
                    // The log was freed meanwhile: the slots before are empty too, which the next
                    // round tells.
                    Slot::Empty if backoff.is_exhausted(&self.place.env) => {
                        return Err(contradiction(&self.place.name(slot)?).context("sealing a log"));
                    }
                    Slot::Empty => {}
                    found => return Ok(found),
                },
                Err(error)
                    if (is_passing(&error) || error.kind() == ErrorKind::OutcomeUnknown)
                        && !backoff.is_exhausted(&self.place.env) => {}
                Err(error) => return Err(error.context("sealing a log")),
            }
            backoff.pause(&self.place.env).await;
        }
    }
}
