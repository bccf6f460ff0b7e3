//! Trace files as streams: read in order, checked, and written.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use tombolo_format::FormatError;
use tombolo_format::trace::{
    BlockBuilder, End, Event, EventBlock, FrameKind, Header, IndexEntry, TRACE_FRAME_BYTES,
    TRACE_INDEX_ENTRIES_MAX, TRACE_MAGIC, TraceFrame, decode_name, encode_index, encode_name,
};

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file.
    #[error("the trace could not be {doing}: {error}")]
    Io {
        /// What was done.
        doing: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// No trace of ours, nor one that can be imported.
    #[error("this is no trace: it begins with {0}; say what it is with `tombolo workload import --from`")]
    Foreign(String),
    /// Bytes that are not what was written.
    #[error("damaged at byte {at}, after {events} events: {error}; --salvage goes on behind it")]
    Damaged {
        /// The byte of the file.
        at: u64,
        /// Events that were read until there.
        events: u64,
        /// What was found.
        error: FormatError,
    },
    /// The file ends in the midst of something.
    #[error(
        "the trace ends at byte {at}, in the midst of a frame, after {events} events; --salvage takes them"
    )]
    Truncated {
        /// The byte of the file.
        at: u64,
        /// Events that were read until there.
        events: u64,
    },
    /// Something that cannot be in a trace.
    #[error("{0}")]
    Invalid(String),
}

fn reading(error: io::Error) -> TraceError {
    TraceError::Io { doing: "read", error }
}

fn writing(error: io::Error) -> TraceError {
    TraceError::Io { doing: "written", error }
}

/// A part that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it begins in the file.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Why.
    pub why: String,
}

/// Reads a trace, block by block.
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    header: Header,
    names: BTreeMap<u32, String>,
    /// Bytes that were read and not used.
    ahead: Vec<u8>,
    at: u64,
    events: u64,
    salvages: bool,
    skipped: Vec<Skipped>,
    end: Option<End>,
    is_over: bool,
    /// The first frame of a trace whose header is lost, and where it begins.
    first: Option<(u64, TraceFrame, Vec<u8>)>,
}

/// Most names of keyspaces that are kept.
const NAMES_MAX: usize = 1 << 16;
/// Most parts that are listed when they are passed over.
const SKIPPED_MAX: usize = 1000;

impl<R: Read> TraceReader<R> {
    /// Begins to read. With `salvages` damaged parts are passed over, and listed.
    ///
    /// # Errors
    /// `Foreign`; what the file's beginning has.
    pub fn new(input: R, salvages: bool) -> Result<TraceReader<R>, TraceError> {
        let header = Header {
            start_unix_ns: 0,
            sampled_one_in: 1,
            keys: tombolo_format::trace::TracedKeys::Clear,
            has_values: false,
            is_of_blocks: false,
            origin: "a trace whose header is lost".to_owned(),
        };
        let mut reader = TraceReader {
            input,
            header,
            names: BTreeMap::new(),
            ahead: Vec::new(),
            at: 0,
            events: 0,
            salvages,
            skipped: Vec::new(),
            end: None,
            is_over: false,
            first: None,
        };
        let have = reader.fill(TRACE_FRAME_BYTES)?;
        let begins = &reader.ahead[..have.min(4)];
        if begins != TRACE_MAGIC && !salvages {
            let shown = if begins.is_empty() { "nothing".to_owned() } else { format!("{begins:02x?}") };
            return Err(TraceError::Foreign(shown));
        }
        let Some((head, payload)) = reader.frame()? else { return Ok(reader) };
        let begin = reader.at - (TRACE_FRAME_BYTES + payload.len()) as u64;
        if head.kind == FrameKind::Header {
            match Header::decode(&payload) {
                Ok(header) => reader.header = header,
                Err(error) if salvages => reader.skip(begin, reader.at - begin, error.to_string()),
                Err(error) => return Err(reader.damaged(begin, error)),
            }
        } else if salvages {
            reader.first = Some((begin, head, payload));
        } else {
            return Err(reader.damaged(begin, FormatError::damaged(4, "a header", "another frame")));
        }
        Ok(reader)
    }

    /// What the trace is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Names of keyspaces that came so far, by number.
    pub fn names(&self) -> &BTreeMap<u32, String> {
        &self.names
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Parts that were passed over.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// How it ended; `None` before the end, and where it was cut off.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Reads the next block into `block`; false at the end.
    ///
    /// # Errors
    /// Those of the file; `Damaged` and `Truncated` with the place, unless it salvages.
    pub fn next(&mut self, block: &mut EventBlock) -> Result<bool, TraceError> {
        loop {
            let (begin, head, payload) = match self.first.take() {
                Some(first) => first,
                None => {
                    let Some((head, payload)) = self.frame()? else { return Ok(false) };
                    (self.at - (TRACE_FRAME_BYTES + payload.len()) as u64, head, payload)
                }
            };
            let read = match head.kind {
                FrameKind::Events => block.decode(&head, &payload).map(|()| true),
                FrameKind::Name => decode_name(&payload).map(|(keyspace, name)| {
                    if self.names.len() < NAMES_MAX {
                        self.names.insert(keyspace, name);
                    }
                    false
                }),
                FrameKind::End => End::decode(&payload).map(|end| {
                    self.end = Some(end);
                    false
                }),
                // Files of a recording that are read one after the other have a header each.
                FrameKind::Header | FrameKind::Index => Ok(false),
            };
            match read {
                Ok(true) => {
                    self.events += block.len() as u64;
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) if self.salvages => {
                    let bytes = (TRACE_FRAME_BYTES + payload.len()) as u64;
                    self.skip(begin, bytes, error.to_string());
                }
                Err(error) => return Err(self.damaged(begin, error)),
            }
        }
    }

    /// The next frame that is sound; `None` at the end.
    fn frame(&mut self) -> Result<Option<(TraceFrame, Vec<u8>)>, TraceError> {
        loop {
            if self.is_over {
                return Ok(None);
            }
            let begin = self.at;
            let have = self.fill(TRACE_FRAME_BYTES)?;
            if have == 0 {
                self.is_over = true;
                return Ok(None);
            }
            let decoded = if have < TRACE_FRAME_BYTES {
                Err(None)
            } else {
                TraceFrame::decode(&self.ahead[..TRACE_FRAME_BYTES]).map_err(Some)
            };
            let checked = match decoded {
                Ok(head) => {
                    let whole = TRACE_FRAME_BYTES + head.payload_bytes as usize;
                    if self.fill(whole)? < whole {
                        Err(None)
                    } else {
                        let payload = self.ahead[TRACE_FRAME_BYTES..whole].to_vec();
                        head.check(&payload).map_err(Some).map(|()| (head, payload))
                    }
                }
                Err(error) => Err(error),
            };
            match checked {
                Ok((head, payload)) => {
                    self.advance(TRACE_FRAME_BYTES + payload.len());
                    return Ok(Some((head, payload)));
                }
                Err(error) if !self.salvages => {
                    return Err(match error {
                        Some(error) => self.damaged(begin, error),
                        None => TraceError::Truncated { at: begin, events: self.events },
                    });
                }
                Err(error) => {
                    let why = error.map_or_else(|| "it ends here".to_owned(), |error| error.to_string());
                    self.find_magic()?;
                    self.skip(begin, self.at - begin, why);
                }
            }
        }
    }

    /// Goes to the next magic behind this place, or to the end.
    fn find_magic(&mut self) -> Result<(), TraceError> {
        self.advance(1);
        loop {
            let is_last = self.fill(1 << 16)? < 1 << 16;
            let found = self.ahead.windows(4).position(|window| window == TRACE_MAGIC);
            match found {
                Some(at) => {
                    self.advance(at);
                    return Ok(());
                }
                None if is_last => {
                    self.advance(self.ahead.len());
                    self.is_over = true;
                    return Ok(());
                }
                // The last three bytes may begin one.
                None => self.advance(self.ahead.len() - 3),
            }
        }
    }

    fn skip(&mut self, at: u64, bytes: u64, why: String) {
        let is_long = self.skipped.len() >= SKIPPED_MAX;
        match self.skipped.last_mut() {
            Some(last) if last.at + last.bytes == at || is_long => last.bytes += bytes,
            _ => self.skipped.push(Skipped { at, bytes, why }),
        }
    }

    /// Reads until so many bytes are ahead, or the file ends; says how many there are, at most so
    /// many.
    fn fill(&mut self, bytes: usize) -> Result<usize, TraceError> {
        while self.ahead.len() < bytes {
            let have = self.ahead.len();
            // At most a megabyte at once: a length that is wrong takes no memory.
            let more = (bytes - have).clamp(1 << 16, 1 << 20);
            self.ahead.resize(have + more, 0);
            let read = self.input.read(&mut self.ahead[have..]);
            self.ahead.truncate(have + read.as_ref().map_or(0, |read| *read));
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(reading(error)),
            }
        }
        Ok(self.ahead.len().min(bytes))
    }

    fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.ahead.len());
        self.ahead.drain(..bytes);
        self.at += bytes as u64;
    }

    fn damaged(&self, at: u64, error: FormatError) -> TraceError {
        TraceError::Damaged { at, events: self.events, error }
    }
}

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter<W> {
    output: W,
    builder: BlockBuilder,
    index: Vec<IndexEntry>,
    at: u64,
    events: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// Those of the file.
    pub fn new(output: W, header: &Header) -> Result<TraceWriter<W>, TraceError> {
        let mut writer =
            TraceWriter { output, builder: BlockBuilder::default(), index: Vec::new(), at: 0, events: 0 };
        writer.put(&header.encode())?;
        Ok(writer)
    }

    /// Names a keyspace.
    ///
    /// # Errors
    /// Those of the file.
    pub fn name(&mut self, keyspace: u32, name: &str) -> Result<(), TraceError> {
        self.put(&encode_name(keyspace, name))
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Those of the file; `Invalid` for an event that no trace holds.
    pub fn push(&mut self, event: &Event<'_>) -> Result<(), TraceError> {
        self.builder.push(event).map_err(|error| TraceError::Invalid(error.to_string()))?;
        if self.builder.is_full() { self.block() } else { Ok(()) }
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events + self.builder.len() as u64
    }

    fn block(&mut self) -> Result<(), TraceError> {
        if self.builder.is_empty() {
            return Ok(());
        }
        let frame = self.builder.finish();
        let head = TraceFrame::decode(&frame).map_err(|error| TraceError::Invalid(error.to_string()))?;
        let TraceFrame { first_ns, last_ns, events, .. } = head;
        self.index.push(IndexEntry { offset: self.at, first_ns, last_ns, events });
        self.events += u64::from(events);
        self.put(&frame)
    }

    /// Ends the trace, and gives the file back.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> Result<W, TraceError> {
        self.block()?;
        let index_offset = self.at;
        for part in std::mem::take(&mut self.index).chunks(TRACE_INDEX_ENTRIES_MAX) {
            self.put(&encode_index(part))?;
        }
        self.put(&End { index_offset, events: self.events, dropped: 0 }.encode())?;
        self.output.flush().map_err(writing)?;
        Ok(self.output)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.output.write_all(bytes).map_err(writing)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
