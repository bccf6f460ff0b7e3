//! Reads a sealed lane back, entry by entry. What was sealed must be there.

use std::path::Path;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env};
use tombolo_format::log_frame::SegmentIdentity;

use super::chain::{Piece, frame_at, link, load, no_frame, survey};
use super::fence::Kept;
use crate::{Error, LogEntry, LogOffset, LogReader, Result};

/// A reader of `from..to`. Segments of which `kept` has the bytes are not read again.
pub(super) fn open(env: &Env, directory: &Path, lane: SegmentIdentity, (from, to): (LogOffset, LogOffset), kept: Kept) -> Result<Reader> {
    let mut pieces = Vec::new();
    if from < to {
        let begun = survey(env, directory, lane)?;
        let Some(linked) = link(&begun, to.segment(), from) else {
            let found: Vec<String> = begun.iter().map(|segment| segment.identity.segment.to_string()).collect();
            return Err(Error::corrupt(
                directory.display(),
                u64::from(from.byte()),
                format!("segments from {from} to {to}"),
                format!("sound segments [{}]", found.join(", ")),
            ));
        };
        pieces = linked;
        if let Some(last) = pieces.last_mut() {
            last.bound = Some(to.byte());
        }
        pieces.reverse();
    }
    Ok(Reader { env: env.clone(), pieces, kept, segment: Bytes::new(), byte: 0 })
}

/// See [`open`].
#[derive(Debug)]
pub(super) struct Reader {
    env: Env,
    /// What is left, the next one last; that one is being read when `segment` is not empty.
    pieces: Vec<Piece>,
    /// As a fence has read them.
    kept: Kept,
    /// The bytes of the segment that is being read, up to its bound; empty between two.
    segment: Bytes,
    byte: u32,
}

impl Reader {
    fn step(&mut self) -> Result<Option<(LogEntry, LogOffset)>> {
        while let Some(piece) = self.pieces.last() {
            let bound = piece.bound.unwrap_or(piece.segment.capacity);
            if self.segment.is_empty() {
                self.segment = match self.kept.of(piece, bound) {
                    Some(bytes) => bytes,
                    None => Bytes::from_owner(load(&self.env, &piece.segment, piece.start, bound)?.1),
                };
                self.byte = piece.start;
            }
            if self.byte >= bound {
                self.segment = Bytes::new();
                self.kept.let_go(piece);
                self.pieces.pop();
                continue;
            }
            let frame = frame_at(&self.segment, self.byte, &piece.segment.identity)
                .map_err(|reason| no_frame(reason, self.byte, &piece.segment.path))?;
            let start = frame.payload_byte as usize;
            let entry = LogEntry {
                stream: frame.header.stream,
                first_sequence: frame.header.first_sequence,
                count: frame.header.count,
                payload: self.segment.slice(start..start + frame.payload.len()),
            };
            self.byte = frame.end;
            return Ok(Some((entry, LogOffset::new(piece.segment.identity.segment, frame.end))));
        }
        Ok(None)
    }
}

impl LogReader for Reader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<(LogEntry, LogOffset)>>> {
        Box::pin(async move {
            self.env.yield_now().await;
            self.step()
        })
    }
}
