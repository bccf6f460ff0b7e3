//! Reads a sealed lane back, entry by entry. What was sealed must be there.

use std::collections::VecDeque;

use bytes::Bytes;
use tombolo_env::{BoxFuture, all};
use tombolo_format::log_frame::decode_frame;
use tombolo_format::log_object::{LOG_OBJECT_FIRST_BYTE, LogObject};

use super::fence::{HEAD_BYTES, Heads, READS_MAX};
use super::place::Place;
use crate::{Epoch, Error, LogEntry, LogOffset, LogReader, Purpose, Result};

/// A reader of `from..to`.
#[derive(Debug)]
pub(super) struct Reader {
    place: Place,
    epoch: Epoch,
    /// Where the next entry begins.
    next: LogOffset,
    to: LogOffset,
    /// Starts of the objects from `ahead_from` on, read ahead.
    ahead: VecDeque<Bytes>,
    ahead_from: u32,
    /// The whole object that is being read, and its slot.
    object: Option<(u32, Bytes)>,
}

impl Reader {
    pub(super) fn new(place: Place, epoch: Epoch, heads: Heads, from: LogOffset, to: LogOffset) -> Reader {
        // Slot 0 holds nothing.
        let next = from.max(LogOffset::new(1, 0));
        let mut ahead: VecDeque<Bytes> = heads.heads.into();
        let passed = next.segment().saturating_sub(heads.first) as usize;
        if heads.first > next.segment() {
            ahead.clear();
        } else {
            ahead.drain(..passed.min(ahead.len()));
        }
        let ahead_from = next.segment();
        Reader { place, epoch, next, to, ahead, ahead_from, object: None }
    }

    /// Reads the starts of the next objects at once.
    async fn read_ahead(&mut self) -> Result<()> {
        let last = self.to.segment().min(self.ahead_from.saturating_add(READS_MAX - 1));
        let (place, epoch) = (&self.place, self.epoch);
        let reads = (self.ahead_from..=last).map(|slot| -> BoxFuture<'_, Result<Bytes>> {
            Box::pin(async move {
                match place.read(Purpose::Open, epoch, slot, 0..HEAD_BYTES).await? {
                    Some(head) => Ok(head),
                    None => Err(missing(place, slot)),
                }
            })
        });
        self.ahead = all(reads.collect(), READS_MAX as usize).await.into_iter().collect::<Result<_>>()?;
        Ok(())
    }

    /// The whole object of a slot.
    async fn load(&mut self, slot: u32) -> Result<Bytes> {
        if self.ahead.is_empty() {
            self.ahead_from = slot;
            self.read_ahead().await?;
        }
        let Some(head) = self.ahead.pop_front() else { return Err(missing(&self.place, slot)) };
        self.ahead_from += 1;
        let name = self.place.name(slot)?;
        let header = LogObject::decode(&head, &self.place.identity(slot)).map_err(|error| Error::format(&name, 0, error))?;
        let LogObject::Data { bytes, .. } = header else {
            return Err(Error::corrupt(name, 56, "data", "a seal").context("a log ends before its recorded length"));
        };
        let whole = if u64::from(bytes) <= HEAD_BYTES {
            head
        } else {
            let rest = self.place.read(Purpose::Open, self.epoch, slot, head.len() as u64..u64::from(bytes) + 1).await?;
            let rest = rest.ok_or_else(|| missing(&self.place, slot))?;
            [&head[..], &rest[..]].concat().into()
        };
        if whole.len() != bytes as usize {
            return Err(Error::corrupt(name, whole.len() as u64, format!("{bytes} bytes"), format!("{} bytes", whole.len())));
        }
        Ok(whole)
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

fn missing(place: &Place, slot: u32) -> Error {
    let object = place.name(slot).map_or_else(|_| place.to_string(), |name| name.to_string());
    Error::corrupt(object, 0, "a log object within the recorded length", "nothing")
}

impl LogReader for Reader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<(LogEntry, LogOffset)>>> {
        Box::pin(self.step())
    }
}
