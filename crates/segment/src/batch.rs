//! The writer's own copy of a segment: records in batches, which are sent as they are, to each
//! region and however often (rule 3: an offset is never sent with other bytes).

use bytes::{Bytes, BytesMut};
use tombolo_format::segment_record::{Digest, RECORD_HEADER_BYTES, Records, encode_header};

/// Small records are made in buffers of so many bytes, which batches share.
const BUFFER_BYTES: usize = 16 << 10;

/// A batch is sent when it is so long, whatever is on its way.
pub const BATCH_BYTES_WANTED: usize = 256 << 10;

/// Whole records, one request.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) start: u32,
    pub(crate) predecessor: Digest,
    pub(crate) records: Bytes,
    pub(crate) end: u32,
    /// Of all up to `end`.
    pub(crate) digest: Digest,
}

/// All batches of a segment, and the one that is being filled.
#[derive(Debug)]
pub(crate) struct Batches {
    /// Invariant: without a gap from byte 0; never changed.
    closed: Vec<Batch>,
    /// Records behind them.
    open: BytesMut,
    /// The rest of a buffer in which a long record had no room, empty.
    rest: BytesMut,
    first: Digest,
    /// Of all, `open` included.
    digest: Digest,
}

#[expect(clippy::cast_possible_truncation, reason = "a segment is at most 1 GiB long, which append checks")]
fn narrow(length: usize) -> u32 {
    length as u32
}

impl Batches {
    pub(crate) fn new(first: Digest) -> Batches {
        Batches { closed: Vec::new(), open: BytesMut::new(), rest: BytesMut::new(), first, digest: first }
    }

    /// One batch of all records, which are known to be sound and to have that digest.
    pub(crate) fn whole(first: Digest, records: &Bytes, digest: Digest) -> Batches {
        let mut batches = Batches { digest, ..Batches::new(first) };
        if !records.is_empty() {
            batches.closed.push(Batch {
                start: 0,
                predecessor: first,
                records: records.clone(),
                end: narrow(records.len()),
                digest,
            });
        }
        batches
    }

    /// Those of records that are there already, which begin at byte 0.
    pub(crate) fn of(first: Digest, records: &Bytes) -> Batches {
        let mut batches = Batches::new(first);
        let mut walk = Records::new(first, 0, records);
        let (mut start, mut predecessor) = (0, first);
        loop {
            let more = matches!(walk.next(), Some(Ok(_)));
            let end = walk.at();
            if end > start && (!more || (end - start) as usize >= BATCH_BYTES_WANTED) {
                let digest = walk.digest();
                let records = records.slice(start as usize..end as usize);
                batches.closed.push(Batch { start, predecessor, records, end, digest });
                (start, predecessor, batches.digest) = (end, digest, digest);
            }
            if !more {
                return batches;
            }
        }
    }

    /// Where the closed ones end.
    pub(crate) fn closed_end(&self) -> u32 {
        self.closed.last().map_or(0, |batch| batch.end)
    }

    pub(crate) fn end(&self) -> u32 {
        self.closed_end() + narrow(self.open.len())
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    pub(crate) fn open_bytes(&self) -> usize {
        self.open.len()
    }

    /// Adds a record, whose payload is `head` and then `parts`, one after another.
    pub(crate) fn append(&mut self, committed: u32, head: &[u8], parts: &[&[u8]]) {
        let start = self.open.len();
        let bytes = RECORD_HEADER_BYTES + head.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        if self.open.is_empty() && self.open.capacity() < bytes {
            // A long record takes memory of its own, and leaves the buffer to those after it.
            std::mem::swap(&mut self.open, &mut self.rest);
            if self.open.capacity() > self.rest.capacity() && self.open.capacity() < bytes {
                std::mem::swap(&mut self.open, &mut self.rest);
            }
        }
        if self.open.capacity() - start < bytes {
            // The rest of a buffer stays unused as long as the segment does, and is not counted
            // as held: an eighth at most of batches of one record each; where several gather in one
            // it may be as much as they are.
            self.open.reserve(if bytes > BUFFER_BYTES / 8 { bytes } else { BUFFER_BYTES });
        }
        self.open.resize(start + RECORD_HEADER_BYTES, 0);
        for part in std::iter::once(&head).chain(parts) {
            self.open.extend_from_slice(part);
        }
        let at = self.closed_end() + narrow(start);
        let (header, digest) =
            encode_header(self.digest, at, committed, &self.open[start + RECORD_HEADER_BYTES..]);
        self.open[start..start + RECORD_HEADER_BYTES].copy_from_slice(&header);
        self.digest = digest;
    }

    /// Ends the open batch.
    pub(crate) fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let (start, end) = (self.closed_end(), self.end());
        let predecessor = self.closed.last().map_or(self.first, |batch| batch.digest);
        let records = self.open.split().freeze();
        self.closed.push(Batch { start, predecessor, records, end, digest: self.digest });
    }

    /// Gives up what lies behind `byte`, where a batch begins, as if nobody could have it; while no
    /// batch is open.
    pub(crate) fn take_back(&mut self, byte: u32) {
        while self.open.is_empty() && self.closed.last().is_some_and(|batch| batch.start >= byte) {
            self.closed.pop();
        }
        self.digest = self.closed.last().map_or(self.first, |batch| batch.digest);
    }

    /// The batch of that number.
    pub(crate) fn get(&self, number: usize) -> Option<&Batch> {
        self.closed.get(number)
    }

    pub(crate) fn count(&self) -> usize {
        self.closed.len()
    }

    /// The number of the batch that begins at `byte`, and the digest of all before it; `None` when
    /// none begins or ends there.
    pub(crate) fn at(&self, byte: u32) -> Option<(usize, Digest)> {
        if byte == 0 {
            return Some((0, self.first));
        }
        // Mostly it is one of the newest.
        let number = self.closed.iter().rposition(|batch| batch.end <= byte)?;
        (self.closed[number].end == byte).then(|| (number + 1, self.closed[number].digest))
    }

    /// All closed records, for copies elsewhere.
    pub(crate) fn records(&self) -> Vec<Bytes> {
        self.closed.iter().map(|batch| batch.records.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The held bytes are the counted bytes, except the rest of shared buffers, however long and
    /// short records follow each other.
    #[test]
    fn batches_take_little_more_memory_than_their_records() {
        let alike = [100, 2000, 9000, 22_000, 33_000, 40_000].map(|payload| [payload; 3]);
        let mixed = [
            [600, 17_000, 600],
            [600, 9000, 3000],
            [100, 100, 2100],
            [1000, 15_000, 15_000],
            [3000, 14_000, 100],
        ];
        for payloads in alike.into_iter().chain(mixed) {
            let mut batches = Batches::new(Digest(1));
            let mut held = 0;
            for number in 0..600 {
                let known =
                    [&batches.open, &batches.rest].map(|buffer| (buffer.as_ptr(), buffer.capacity() > 0));
                batches.append(0, &vec![7; payloads[number % 3]], &[]);
                if !known.contains(&(batches.open.as_ptr(), true)) {
                    held += batches.open.capacity();
                }
                batches.close();
            }
            let records = batches.end() as usize;
            assert!(
                held >= records && held <= records + records / 8 + 2 * BUFFER_BYTES,
                "{payloads:?}: {held} B for {records} B of records"
            );
        }
    }
}
