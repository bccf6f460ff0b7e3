//! Lines of a pipe or a file, read by a thread of its own: a command that waits for input still
//! sees Ctrl-C.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::failure::{Failure, Result};

/// Bytes of a chunk, and chunks that are read ahead.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNKS_AHEAD: usize = 4;
/// Most bytes of a line: a value of 64 MiB whose every byte is an escape of six characters does not
/// fit, and of four does.
const LINE_BYTES_MAX: usize = 320 << 20;
/// How often a waiting command looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// Lines, numbered from 1.
pub struct Source {
    name: String,
    chunks: Receiver<io::Result<Vec<u8>>>,
    /// What was read and not yet given: from `at` on.
    held: Vec<u8>,
    at: usize,
    /// Up to where `held` was searched for the end of the line.
    searched: usize,
    ended: bool,
    number: u64,
}

impl Source {
    /// Reads `input`, which messages call `name`.
    pub fn new(mut input: Box<dyn Read + Send>, name: String) -> Source {
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        // Ends with the input, with the receiver, or with the process.
        std::thread::spawn(move || {
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let read = match input.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read,
                };
                let is_last = !matches!(read, Ok(1..));
                let sent = sender.send(read.map(|length| {
                    chunk.truncate(length);
                    chunk
                }));
                if is_last || sent.is_err() {
                    return;
                }
            }
        });
        Source { name, chunks, held: Vec::new(), at: 0, searched: 0, ended: false, number: 0 }
    }

    /// The next line, without its end (`\n` or `\r\n`); `None` after the last. `entries`: those of
    /// the lines before it.
    ///
    /// # Errors
    /// `Interrupted`; what reading failed with; a line that is too long.
    pub fn next(&mut self, entries: u64, interrupted: &AtomicBool) -> Result<Option<&[u8]>> {
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        loop {
            let found = self.held[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(found) = found {
                let end = self.searched + found;
                return Ok(Some(self.give(end, end + 1)));
            }
            self.searched = self.held.len();
            if self.ended {
                let end = self.held.len();
                return Ok(if self.at < end { Some(self.give(end, end)) } else { None });
            }
            if self.held.len() - self.at > LINE_BYTES_MAX {
                self.number += 1;
                return Err(self.wrong(&format!("a line of more than {LINE_BYTES_MAX} bytes"), entries));
            }
            self.more(interrupted)?;
        }
    }

    fn give(&mut self, end: usize, next: usize) -> &[u8] {
        let line = &self.held[self.at..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.number += 1;
        (self.at, self.searched) = (next, next);
        line
    }

    /// Takes a chunk, and lets go of what was given.
    fn more(&mut self, interrupted: &AtomicBool) -> Result<()> {
        self.held.drain(..self.at);
        self.searched -= self.at;
        self.at = 0;
        let chunk = loop {
            match self.chunks.recv_timeout(LOOK) {
                Ok(chunk) => {
                    break chunk.map_err(|error| Failure::io(error, format!("reading {}", self.name)))?;
                }
                Err(RecvTimeoutError::Timeout) if interrupted.load(Ordering::Relaxed) => {
                    return Err(Failure::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Vec::new(),
            }
        };
        self.ended |= chunk.is_empty();
        self.held.extend_from_slice(&chunk);
        Ok(())
    }

    /// The trouble with the last line given, after so many entries.
    pub fn wrong(&self, what: &str, entries: u64) -> Failure {
        let written = match entries {
            0 => "nothing was written".to_owned(),
            1 => "the entry before it is written".to_owned(),
            _ => format!("the {entries} entries before it are written"),
        };
        Failure::Usage(format!("line {} of {}: {what}; {written}", self.number, self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &'static [u8]) -> Vec<Vec<u8>> {
        let mut source = Source::new(Box::new(input), "test".to_owned());
        let mut lines = Vec::new();
        while let Some(line) = source.next(0, &AtomicBool::new(false)).unwrap() {
            lines.push(line.to_vec());
        }
        lines
    }

    #[test]
    fn lines_end_with_newlines_or_the_input() {
        assert_eq!(lines(b""), Vec::<Vec<u8>>::new());
        assert_eq!(lines(b"a"), [b"a"]);
        assert_eq!(lines(b"a\n"), [b"a"]);
        assert_eq!(lines(b"a\r\n\n b \nc"), [&b"a"[..], b"", b" b ", b"c"]);
    }

    #[test]
    fn lines_cross_chunks() {
        let long = "x".repeat(CHUNK_BYTES - 1);
        let text = format!("{long}\n{long}yz\n{}\n", "w".repeat(3 * CHUNK_BYTES));
        let mut source = Source::new(Box::new(io::Cursor::new(text.clone().into_bytes())), "test".to_owned());
        for line in text.lines() {
            assert!(source.next(0, &AtomicBool::new(false)).unwrap() == Some(line.as_bytes()));
        }
        assert!(source.next(0, &AtomicBool::new(false)).unwrap().is_none());
        assert!(matches!(source.next(0, &AtomicBool::new(true)), Err(Failure::Interrupted)));
    }
}
