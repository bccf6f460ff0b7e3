//! Reading a lane.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::zoned::{ENTRY_HEADER_BYTES, UNIT_HEADER_BYTES, Unit, decode_entry, unit_bytes};
use tombolo_storage::{
    Error, ErrorKind, LogEntry, LogOffset, LogReader, LogRun, RUN_ENTRIES_MAX, Result, RunEntry,
};

use super::lane::ENTRY_PAYLOAD_BYTES_MAX;
use crate::device::Device;
use crate::lanes::Piece;
use crate::volume::Core;

/// Reads a lane from one place to another.
#[derive(Debug)]
pub struct Reader {
    core: Arc<Core>,
    place: String,
    /// Pieces still to be read from the device, in order.
    pieces: std::vec::IntoIter<Piece>,
    /// Bytes of the lane from `at` on.
    bytes: Vec<u8>,
    at: u64,
    to: u64,
    /// `to` may lie within an entry: the last whole one is the end.
    is_open: bool,
}

/// Where the last whole entry of a lane ends that was found when the device was opened; `None` when
/// it was not found then. A crash may have taken the rest of an entry, of which a part was written.
pub fn whole_end(core: &Arc<Core>, lane: u64, place: String, from: u64) -> Result<Option<u64>> {
    let is_found = core.log.stream.lock().lanes.get(&lane).is_some_and(|lane| lane.is_found);
    if !is_found {
        return Ok(None);
    }
    let Some(mut reader) = Reader::new(core, lane, place, from, None)? else { return Ok(None) };
    while reader.gather(RUN_ENTRIES_MAX)?.is_some() {}
    Ok(Some(reader.at))
}

impl Core {
    /// The unit that a piece lies in.
    pub(crate) fn read_batch(&self, piece: &Piece) -> Result<Vec<u8>> {
        let mut unit = vec![0; unit_bytes(piece.payload_bytes as usize, self.block())];
        let at = u64::from(piece.block) * self.block() as u64;
        self.device.read(piece.zone, at, &mut unit).map_err(|error| self.read_failed(error, piece.zone))?;
        let place = || format!("{} zone {}", self.device.describe(), piece.zone);
        let found = Unit::decode(&unit).map_err(|error| Error::format(place(), at, error))?;
        let identity = found.identity;
        let is_it = (identity.device, identity.generation, identity.zone, identity.block)
            == (self.id, piece.generation, piece.zone, piece.block);
        if !is_it || found.payload.len() != piece.payload_bytes as usize {
            return Err(Error::corrupt(
                place(),
                at,
                format!("a batch of generation {} at block {}", piece.generation, piece.block),
                format!("{identity:?}"),
            ));
        }
        Ok(unit)
    }
}

impl Reader {
    /// Of what a lane holds from `from` to `to`, or to where it is durable; `None` when it is gone.
    pub fn new(
        core: &Arc<Core>,
        lane: u64,
        place: String,
        from: u64,
        to: Option<u64>,
    ) -> Result<Option<Reader>> {
        let stream = core.log.stream.lock();
        let Some(found) = stream.lanes.get(&lane) else { return Ok(None) };
        let is_open = to.is_none();
        let to = to.unwrap_or(found.durable.max(from));
        let begin = found.pieces.front().map_or(found.durable, |piece| piece.at);
        if from < to {
            if let Some(damage) = &found.damage {
                return Err(damage.clone());
            }
            if to > found.durable || from < begin {
                return Err(Error::new(ErrorKind::Corrupt, "a log does not hold what the manifest says")
                    .object(place)
                    .expected(format!("bytes {} to {}", LogOffset(from), LogOffset(to)))
                    .found(format!("bytes {} to {}", LogOffset(begin), LogOffset(found.durable))));
            }
        }
        let is_within = |piece: &&Piece| piece.end() > from && piece.at < to;
        let pieces: Vec<Piece> = found.pieces.iter().filter(is_within).copied().collect();
        drop(stream);
        Ok(Some(Reader {
            core: Arc::clone(core),
            place,
            pieces: pieces.into_iter(),
            bytes: Vec::new(),
            at: from,
            to,
            is_open,
        }))
    }

    /// Reads on; `false` when there is nothing more.
    fn read_on(&mut self) -> Result<bool> {
        let Some(piece) = self.pieces.next() else { return Ok(false) };
        let next = self.at + self.bytes.len() as u64;
        if piece.at > next {
            return Err(self.ends_early(format!("bytes from {} on", LogOffset(piece.at))));
        }
        let unit = self.core.read_batch(&piece)?;
        let from = UNIT_HEADER_BYTES + piece.offset as usize;
        let skipped = usize::try_from(next - piece.at).unwrap_or(usize::MAX).min(piece.bytes as usize);
        self.bytes.extend_from_slice(&unit[from + skipped..from + piece.bytes as usize]);
        Ok(true)
    }

    fn ends_early(&self, found: String) -> Error {
        Error::new(ErrorKind::Corrupt, "a log ends before its recorded length")
            .object(&self.place)
            .offset(self.at)
            .expected(format!("entries up to {}", LogOffset(self.to)))
            .found(found)
    }

    /// Entries that are at hand, one at least; `None` at the end.
    fn gather(&mut self, most: usize) -> Result<Option<LogRun>> {
        let (mut entries, mut used) = (Vec::new(), 0);
        while entries.len() < most && self.at + (used as u64) < self.to {
            let decoded = decode_entry(&self.bytes[used..], ENTRY_PAYLOAD_BYTES_MAX)
                .map_err(|error| Error::format(&self.place, self.at + used as u64, error))?;
            let Some(entry) = decoded else {
                if !entries.is_empty() {
                    break;
                }
                if !self.read_on()? {
                    if self.is_open {
                        return Ok(None);
                    }
                    return Err(self.ends_early(format!("{} bytes", self.bytes.len())));
                }
                continue;
            };
            let begin = used + ENTRY_HEADER_BYTES;
            let payload = begin..begin + entry.payload.len();
            used += entry.bytes;
            let end = LogOffset(self.at + used as u64);
            if end.0 > self.to {
                return Err(self.ends_early(format!("an entry that ends at {end}")));
            }
            let (stream, count, first_sequence) = (entry.stream, entry.count, entry.first_sequence);
            entries.push(RunEntry { stream, first_sequence, count, payload, end });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let rest = self.bytes.split_off(used);
        let memory = Bytes::from(std::mem::replace(&mut self.bytes, rest));
        self.at += used as u64;
        Ok(Some(LogRun { memory, entries }))
    }
}

impl LogReader for Reader {
    /// Nothing: who holds the device knows all that was acknowledged.
    fn lacks(&self) -> Option<Error> {
        None
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<(LogEntry, LogOffset)>>> {
        Box::pin(async move {
            self.core.env.yield_now().await;
            Ok(self.gather(1)?.map(|run| run.entry(&run.entries[0])))
        })
    }

    fn next_run(&mut self) -> BoxFuture<'_, Result<Option<LogRun>>> {
        Box::pin(async move {
            self.core.env.yield_now().await;
            self.gather(RUN_ENTRIES_MAX)
        })
    }
}
