//! The copy of what no sync has covered yet, kept outside the mapping: after a failed sync the
//! pages may hold anything.
//!
//! Frames are encoded here once, and stored in the segment from here, so that the copy costs no
//! copying.

use std::collections::VecDeque;

use tombolo_format::log_frame::{FrameHeader, FrameScanner, SegmentIdentity};

use crate::LogOffset;
use crate::log_memory::LaneMemory;

/// Pieces are of this size, or of one entry if that is larger.
const PIECE_BYTES: usize = 64 << 10;

/// Released buffers are kept up to so many bytes, and up to this part of those that may wait for a
/// sync: the kernel clears memory that is given back and taken again, page by page.
const SPARE_BYTES_MAX: usize = 8 << 20;
const SPARE_PART: usize = 16;

#[derive(Debug)]
struct Piece {
    segment: u32,
    byte: u32,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> LogOffset {
        LogOffset::new(
            self.segment,
            self.byte.saturating_add(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)),
        )
    }
}

/// Frames of one lane from its durable end, or somewhat before, to its accepted end.
#[derive(Debug)]
pub(super) struct Unsynced {
    /// Invariant: ascending; without a gap within a segment.
    pieces: VecDeque<Piece>,
    /// Invariant: the sum of the pieces' lengths.
    bytes: usize,
    /// Released buffers, to be filled again, of no more bytes than the last sync released.
    spares: Vec<Vec<u8>>,
    spare_bytes: usize,
    /// Invariant: the sum of the capacities, those of the spares too.
    capacity: usize,
    /// The books, which know of `capacity`.
    held: LaneMemory,
}

impl Unsynced {
    pub(super) fn new(held: LaneMemory) -> Unsynced {
        let (pieces, spares) = (VecDeque::new(), Vec::new());
        Unsynced { pieces, bytes: 0, spares, spare_bytes: 0, capacity: 0, held }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most bytes that may wait for a sync now, beside one entry.
    pub(super) fn bytes_max(&self) -> usize {
        self.held.bytes_max()
    }

    /// Encodes a frame at `byte` of its segment; returns its bytes.
    pub(super) fn encode(&mut self, header: &FrameHeader, byte: u32, parts: &[&[u8]]) -> &[u8] {
        let length = header.frame_bytes(parts.iter().map(|part| part.len()).sum());
        // A piece never grows beyond what the books know of it, an empty one neither.
        let fits = |piece: &Piece| {
            piece.segment == header.identity.segment
                && piece.end().byte() == byte
                && piece.bytes.len() + length <= piece.bytes.capacity()
        };
        if !self.pieces.back().is_some_and(fits) {
            let bytes = self.buffer(length.max(PIECE_BYTES));
            self.held.set(self.capacity);
            self.pieces.push_back(Piece { segment: header.identity.segment, byte, bytes });
        }
        self.bytes += length;
        match self.pieces.back_mut() {
            Some(piece) => {
                let start = piece.bytes.len();
                header.append_parts_to(&mut piece.bytes, byte, parts);
                &piece.bytes[start..]
            }
            None => unreachable!("a piece was pushed if there was none"),
        }
    }

    /// An empty one with room for so many bytes.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        if let Some(index) = self.spares.iter().rposition(|spare| spare.capacity() >= bytes) {
            let spare = self.spares.swap_remove(index);
            self.spare_bytes -= spare.capacity();
            return spare;
        }
        let fresh = Vec::with_capacity(bytes);
        self.capacity += fresh.capacity();
        fresh
    }

    /// Takes back the last `length` bytes, which were encoded and not accepted.
    pub(super) fn take_back(&mut self, length: usize) {
        if let Some(piece) = self.pieces.back_mut() {
            let kept = piece.bytes.len().saturating_sub(length);
            self.bytes -= piece.bytes.len() - kept;
            piece.bytes.truncate(kept);
        }
    }

    /// Forgets what lies before `durable`, in whole pieces.
    pub(super) fn release(&mut self, durable: LogOffset) {
        let mut count = self.pieces.len();
        let spare_bytes_max =
            self.bytes.min(self.held.bytes_max() / SPARE_PART).clamp(PIECE_BYTES, SPARE_BYTES_MAX);
        self.keep_spares(spare_bytes_max);
        while let Some(piece) = self.pieces.front_mut() {
            if piece.end() > durable {
                break;
            }
            self.bytes -= piece.bytes.len();
            if count == 1 && piece.bytes.capacity() <= PIECE_BYTES {
                // The lane's end: filled on from here.
                piece.byte = piece.end().byte();
                piece.bytes.clear();
                break;
            }
            let Some(mut piece) = self.pieces.pop_front() else { break };
            count -= 1;
            piece.bytes.clear();
            self.spare_bytes += piece.bytes.capacity();
            self.spares.push(piece.bytes);
            self.keep_spares(spare_bytes_max);
        }
        self.held.set(self.capacity);
    }

    /// Keeps no released buffers.
    pub(super) fn drop_spares(&mut self) {
        self.keep_spares(0);
        self.held.set(self.capacity);
    }

    /// The last ones go first.
    fn keep_spares(&mut self, bytes_max: usize) {
        while self.spare_bytes > bytes_max
            && let Some(dropped) = self.spares.pop()
        {
            self.spare_bytes -= dropped.capacity();
            self.capacity -= dropped.capacity();
        }
    }

    /// Encodes everything from `durable` on anew, for another segment, as one piece from `byte` on;
    /// it takes the place of the old copy. Returns the bytes: not more than before. All before
    /// `byte` of the new segment is durable, as its header says: its predecessor ends at `durable`.
    pub(super) fn move_to(
        &mut self,
        old: SegmentIdentity,
        durable: LogOffset,
        new: SegmentIdentity,
        byte: u32,
    ) -> &[u8] {
        let mut moved: Vec<u8> = Vec::with_capacity(self.bytes.max(PIECE_BYTES));
        for piece in &self.pieces {
            let start =
                if durable.segment() == piece.segment { piece.byte.max(durable.byte()) } else { piece.byte };
            if piece.end() <= LogOffset::new(piece.segment, start) || piece.segment < durable.segment() {
                continue;
            }
            // The scanner counts from the segment's start; the zeros before are never touched, so
            // they take no memory.
            let mut image = vec![0; piece.byte as usize + piece.bytes.len()];
            image[piece.byte as usize..].copy_from_slice(&piece.bytes);
            let identity = SegmentIdentity { segment: piece.segment, ..old };
            let mut frames = FrameScanner::new(&image, start, identity);
            for frame in frames.by_ref() {
                // Who said nothing goes on saying nothing, which takes no more bytes than before.
                let durable_through = if frame.header.durable_through == 0 { 0 } else { new.offset(byte) };
                let header = FrameHeader { identity: new, durable_through, ..frame.header };
                let at = byte + u32::try_from(moved.len()).unwrap_or(u32::MAX - byte);
                header.append_to(&mut moved, at, frame.payload);
            }
            assert_eq!(frames.byte(), piece.end().byte(), "the copy of unsynced frames does not read back");
        }
        self.bytes = moved.len();
        self.capacity = moved.capacity() + self.spare_bytes;
        self.held.set(self.capacity);
        self.pieces.clear();
        self.pieces.push_back(Piece { segment: new.segment, byte, bytes: moved });
        self.pieces.back().map_or(&[], |piece| &piece.bytes)
    }

    /// How many bytes there are from `durable` on.
    pub(super) fn bytes_from(&self, durable: LogOffset) -> usize {
        let mut total = 0;
        for piece in &self.pieces {
            total += match piece.segment.cmp(&durable.segment()) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Greater => piece.bytes.len(),
                std::cmp::Ordering::Equal => {
                    piece.bytes.len().saturating_sub(durable.byte().saturating_sub(piece.byte) as usize)
                }
            };
        }
        total
    }
}
