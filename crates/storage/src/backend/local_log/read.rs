//! Reads a sealed lane back, entry by entry. What was sealed must be there.

use std::path::Path;

use bytes::Bytes;
use tombolo_env::{Access, BoxFuture, Env};
use tombolo_format::log_frame::SegmentIdentity;

use super::chain::{Piece, frame_at, link, load, no_frame, survey};
use super::fence::Kept;
use crate::{Error, LogEntry, LogOffset, LogReader, LogRun, RUN_ENTRIES_MAX, Result, RunEntry};

/// A reader of `from..to`. Segments of which `kept` has the bytes are not read again.
pub(super) fn open(
    env: &Env,
    directory: &Path,
    lane: SegmentIdentity,
    (from, to): (LogOffset, LogOffset),
    kept: Kept,
) -> Result<Reader> {
    let mut pieces = Vec::new();
    if from < to {
        let begun = survey(env, directory, lane)?;
        let Some(linked) = link(&begun, to.segment(), from) else {
            let found: Vec<String> =
                begun.iter().map(|segment| segment.identity.segment.to_string()).collect();
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
    /// The pieces left, the next one last; that one is being read when `segment` is not empty.
    pieces: Vec<Piece>,
    /// As a fence has read them.
    kept: Kept,
    /// The bytes of the segment that is being read, up to its bound; empty between two.
    segment: Bytes,
    byte: u32,
}

impl Reader {
    /// At most so many entries of one segment.
    fn run(&mut self, entries_max: usize) -> Result<Option<LogRun>> {
        while let Some(piece) = self.pieces.last() {
            let bound = piece.bound.unwrap_or(piece.segment.capacity);
            if self.segment.is_empty() {
                self.segment = match self.kept.of(piece, bound) {
                    Some(bytes) => bytes,
                    None => Bytes::from_owner(
                        load(&self.env, &piece.segment, (piece.start, bound), Access::Read)?.1,
                    ),
                };
                self.byte = piece.start;
            }
            let mut entries = Vec::new();
            while self.byte < bound && entries.len() < entries_max {
                let frame = match frame_at(&self.segment, self.byte, &piece.segment.identity) {
                    Ok(frame) => frame,
                    Err(reason) if entries.is_empty() => {
                        return Err(no_frame(reason, self.byte, &piece.segment.path));
                    }
                    // Once those before it are read.
                    Err(_) => break,
                };
                let start = frame.payload_byte as usize;
                entries.push(RunEntry {
                    stream: frame.header.stream,
                    first_sequence: frame.header.first_sequence,
                    count: frame.header.count,
                    payload: start..start + frame.payload.len(),
                    end: LogOffset::new(piece.segment.identity.segment, frame.end),
                });
                self.byte = frame.end;
            }
            if !entries.is_empty() {
                return Ok(Some(LogRun { memory: self.segment.clone(), entries }));
            }
            self.segment = Bytes::new();
            self.kept.let_go(piece);
            self.pieces.pop();
        }
        Ok(None)
    }
}

impl LogReader for Reader {
    /// Nothing: what was acknowledged is in the store that it reads.
    fn lacks(&self) -> Option<Error> {
        None
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<(LogEntry, LogOffset)>>> {
        Box::pin(async move {
            self.env.yield_now().await;
            Ok(self.run(1)?.and_then(|run| run.entries.first().map(|entry| run.entry(entry))))
        })
    }

    fn next_run(&mut self) -> BoxFuture<'_, Result<Option<LogRun>>> {
        Box::pin(async move {
            self.env.yield_now().await;
            self.run(RUN_ENTRIES_MAX)
        })
    }
}
