//! A successor ends an older epoch's lane: it walks the slots from the replay point on and seals the first empty one (rule 10).
//!
//! Takeover, step 2. Reads run ahead in parallel; only the seal is ordered. Every step may be done again, by any later epoch, at any time:
//! the first seal counts.

use bytes::Bytes;
use tombolo_env::{BoxFuture, all};
use tombolo_format::log_object::{LOG_OBJECT_HEADER_BYTES, LogObject, encode_seal};

use super::PUTS_IN_FLIGHT_MAX;
use super::place::{Place, contradiction};
use crate::mutant::{Mutant, is_enabled};
use crate::patience::{Backoff, is_passing};
use crate::{Epoch, Error, ErrorKind, LogOffset, Purpose, PutOutcome, Result};

/// What is read of an object at first: all of a small one.
pub(super) const HEAD_BYTES: u64 = 64 << 10;

/// Slots read at once by a follower at first: the one it stands in, and the next, which mostly is not there yet.
const FOLLOWER_READS_MIN: u32 = 2;

/// Slots read at once: in the first round what a small log has with the slots behind its end, then more and more.
const READS_MIN: u32 = 16;
pub(super) const READS_MAX: u32 = 64;

/// The starts of a lane's data objects, from a slot on.
#[derive(Debug, Default)]
pub(super) struct Heads {
    pub(super) first: u32,
    pub(super) heads: Vec<Bytes>,
}

impl Heads {
    pub(super) fn bytes(&self) -> usize {
        self.heads.iter().map(Bytes::len).sum()
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
pub(super) async fn fence(place: &Place, by: Epoch, from: LogOffset) -> Result<(LogOffset, Heads)> {
    Walk { place, by, from, end: from, heads: Heads { first: from.segment(), heads: Vec::new() } }.run().await
}

/// How far a lane that nobody may have sealed yet holds data without a gap: no fence takes any of it back, since a seal goes into the first empty slot.
pub(super) async fn follow(place: &Place, epoch: Epoch, from: LogOffset) -> Result<(LogOffset, Heads)> {
    let mut walk = Walk { place, by: epoch, from, end: from, heads: Heads { first: from.segment(), heads: Vec::new() } };
    let (mut slot, mut reads) = (from.segment(), FOLLOWER_READS_MIN);
    loop {
        for found in walk.read(slot, reads).await? {
            if matches!(found, Slot::Empty) && slot > from.segment() {
                return Ok((walk.end, walk.heads));
            }
            if let Some(sealed) = walk.take(slot, found)? {
                return Ok((sealed, walk.heads));
            }
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
}

impl Walk<'_> {
    async fn run(mut self) -> Result<(LogOffset, Heads)> {
        let mut reads = READS_MIN;
        let mut slot = self.from.segment();
        loop {
            let round = self.read(slot, reads).await?;
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
                // The replay point may lie anywhere in its slot; slot 0 holds nothing.
                self.end = if slot == 0 { LogOffset::ZERO } else { LogOffset::new(slot, bytes).max(self.from) };
                self.heads.heads.push(head);
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

    fn gone(&self, slot: u32, found: &str) -> Error {
        let object = self.place.name(slot).map_or_else(|_| self.place.to_string(), |name| name.to_string());
        Error::new(ErrorKind::Corrupt, "a log that the manifest names is gone")
            .object(object)
            .expected("the object of the replay point")
            .found(found)
            .advice("its writes since the last flush are lost; restore the database from a copy")
    }

    /// Reads some slots at once.
    async fn read(&self, first: u32, count: u32) -> Result<Vec<Slot>> {
        let slots = first..first.saturating_add(count);
        let reads = slots.map(|slot| -> BoxFuture<'_, Result<Slot>> { Box::pin(self.read_one(slot)) });
        all(reads.collect(), READS_MAX as usize).await.into_iter().collect()
    }

    async fn read_one(&self, slot: u32) -> Result<Slot> {
        let Some(head) = self.place.read(Purpose::Open, self.by, slot, 0..HEAD_BYTES).await? else { return Ok(Slot::Empty) };
        let name = self.place.name(slot)?;
        match LogObject::decode(&head, &self.place.identity(slot)).map_err(|error| Error::format(&name, 0, error))? {
            LogObject::Seal { sealed, .. } => Ok(Slot::Seal(LogOffset(sealed))),
            LogObject::Data { bytes, known_through, .. } => Ok(Slot::Data { head, bytes, known_through }),
        }
    }

    /// Tells the end from a hole: an object behind an empty slot that knew the slot to be taken means that one was lost (rule 9).
    async fn check_gap(&self, slot: u32, behind: &[Slot]) -> Result<()> {
        if slot == self.from.segment() {
            return Err(self.gone(slot, "nothing"));
        }
        let read_before = u32::try_from(behind.len()).unwrap_or(GAP_READS).min(GAP_READS);
        let more = self.read(slot + 1 + read_before, GAP_READS - read_before).await?;
        let knows = |(distance, found): (u32, &Slot)| match found {
            Slot::Data { known_through, .. } => *known_through >= slot || distance >= PUTS_IN_FLIGHT_MAX,
            _ => false,
        };
        let knows = (1..).zip(behind.iter().take(GAP_READS as usize).chain(&more)).any(knows);
        // A live writer may have put both meanwhile.
        if !knows || is_enabled(Mutant::LogObjectGapIsAlwaysEnd) || !matches!(self.read_one(slot).await?, Slot::Empty) {
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
                Ok(PutOutcome::Exists) if is_enabled(Mutant::LogObjectSealNotReadAgain) => return Ok(Slot::Seal(self.end)),
                Ok(PutOutcome::Created) => return Ok(Slot::Seal(self.end)),
                Ok(PutOutcome::Exists) => match self.read_one(slot).await? {
                    // The log was freed meanwhile: the slots before are empty too, which the next round tells.
                    Slot::Empty if backoff.is_exhausted() => return Err(contradiction(&self.place.name(slot)?).context("sealing a log")),
                    Slot::Empty => {}
                    found => return Ok(found),
                },
                Err(error) if (is_passing(&error) || error.kind() == ErrorKind::OutcomeUnknown) && !backoff.is_exhausted() => {}
                Err(error) => return Err(error.context("sealing a log")),
            }
            backoff.pause(&self.place.env).await;
        }
    }
}
