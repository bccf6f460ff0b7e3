//! Walking a segment, and telling its tail from damage.

use super::{FRAME_ALIGNMENT, FRAME_BYTES_MIN, Form, Frame, NoFrame, SegmentIdentity, decode_frame};

/// Walks the frames of a segment from a given byte on, up to the first place that holds none.
///
/// ```
/// # use tombolo_format::log_frame::*;
/// let identity = SegmentIdentity { incarnation: 1, epoch: 2, lane: 0, segment: 0 };
/// let mut segment = SegmentHeader { identity, capacity: 8192, predecessor_end: 0, boot_id: 0 }.encode(0).to_vec();
/// let header = FrameHeader { identity, stream: 0, first_sequence: 1, count: 1, durable_through: 0 };
/// header.append_to(&mut segment, 4096, b"payload");
/// segment.resize(8192, 0);
/// let mut scanner = FrameScanner::new(&segment, 4096, identity);
/// assert_eq!(scanner.next().map(|frame| frame.payload), Some(&b"payload"[..]));
/// assert!(scanner.next().is_none());
/// assert_eq!(scanner.verdict(None), Verdict::Tail { byte: 4096 + 24 });
/// ```
#[derive(Clone, Debug)]
pub struct FrameScanner<'a> {
    segment: &'a [u8],
    identity: SegmentIdentity,
    /// Invariant: every frame between the starting byte and here was valid, and the next one begins
    /// here, if there is one.
    byte: u32,
    stopped: Option<NoFrame>,
}

/// A later frame that proves that bytes before it were durable once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Where the frame begins in its segment.
    pub byte: u32,
    /// The lane's offset up to which it says that all was durable.
    pub durable_through: u64,
}

/// What the first place without a valid frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The log ends here: nothing at or after `byte` is known to have been durable.
    Tail {
        /// First byte without a valid frame.
        byte: u32,
    },
    /// Something durable was here, and is damaged.
    Damaged {
        /// First byte without a valid frame.
        byte: u32,
        /// Why there is none.
        reason: NoFrame,
        /// The offset up to which the lane was durable once.
        durable_through: u64,
        /// The frame that says so; `None` when it was said outside the frames.
        evidence: Option<Evidence>,
    },
    /// A sound frame of a newer version.
    Newer {
        /// Where it begins.
        byte: u32,
        /// Its flags.
        flags: u32,
    },
}

impl<'a> FrameScanner<'a> {
    /// A scanner at `byte`, a frame's start. `segment` holds the segment's bytes from its byte 0,
    /// or as much of them as was read.
    pub fn new(segment: &'a [u8], byte: u32, identity: SegmentIdentity) -> FrameScanner<'a> {
        FrameScanner { segment, identity, byte, stopped: None }
    }

    /// The byte after the last valid frame.
    pub fn byte(&self) -> u32 {
        self.byte
    }

    /// Why the walk stopped; `None` while it goes on.
    pub fn stopped(&self) -> Option<NoFrame> {
        self.stopped
    }

    /// Judges the place where the walk stopped. `known_durable` is the durable offset known from
    /// outside this segment's frames: the durable-through slots, later segments
    /// ([`greatest_durable_through`]), a recorded seal.
    ///
    /// Scans the rest of the segment for frames whose durable-through lies beyond the bad place
    /// (rule 9): about 1 ns per 8 bytes.
    pub fn verdict(&mut self, known_durable: Option<u64>) -> Verdict {
        while self.next().is_some() {}
        let byte = self.byte;
        let reason = self.stopped.unwrap_or(NoFrame::End);
        if let NoFrame::Flags(flags) = reason {
            return Verdict::Newer { byte, flags };
        }
        let bad = self.identity.offset(byte);
        if let Some(durable_through) = known_durable.filter(|known| *known > bad) {
            return Verdict::Damaged { byte, reason, durable_through, evidence: None };
        }
        match greatest_durable_through(self.segment, byte, &self.identity)
            .filter(|evidence| evidence.durable_through > bad)
        {
            Some(evidence) => Verdict::Damaged {
                byte,
                reason,
                durable_through: evidence.durable_through,
                evidence: Some(evidence),
            },
            None => Verdict::Tail { byte },
        }
    }
}

impl<'a> Iterator for FrameScanner<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        if self.stopped.is_some() {
            return None;
        }
        match decode_frame(self.segment, self.byte, &self.identity) {
            Ok(frame) => {
                self.byte = frame.end;
                Some(frame)
            }
            Err(reason) => {
                self.stopped = Some(reason);
                None
            }
        }
    }
}

/// The greatest durable-through among the valid frames that begin at or after `byte`, at any
/// multiple of 8, bad places in between or not.
///
/// Work is bounded by eight times the segment even when it is full of forged headers; beyond that
/// the walk gives up.
pub fn greatest_durable_through(segment: &[u8], byte: u32, identity: &SegmentIdentity) -> Option<Evidence> {
    let mut best: Option<Evidence> = None;
    let mut at = (byte as usize).next_multiple_of(FRAME_ALIGNMENT);
    let mut budget = segment.len().saturating_mul(8);
    let mark = identity.binding().mark.to_le_bytes();
    while at + FRAME_BYTES_MIN <= segment.len() && budget > 0 {
        if segment[at..at + 4] != mark {
            at += FRAME_ALIGNMENT;
            continue;
        }
        let Ok(start) = u32::try_from(at) else { break };
        match decode_frame(segment, start, identity) {
            Ok(frame) => {
                if best.is_none_or(|best| best.durable_through < frame.header.durable_through) {
                    best = Some(Evidence { byte: start, durable_through: frame.header.durable_through });
                }
                at = frame.end as usize;
            }
            Err(NoFrame::Checksum(..)) => {
                let word = u32::from_le_bytes([
                    segment[at + 8],
                    segment[at + 9],
                    segment[at + 10],
                    segment[at + 11],
                ]);
                budget = budget.saturating_sub(Form::of(word).length(word) + FRAME_BYTES_MIN);
                at += FRAME_ALIGNMENT;
            }
            Err(_) => at += FRAME_ALIGNMENT,
        }
    }
    best
}
