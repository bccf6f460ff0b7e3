//! Records of RocksDB's traces: of queries, of block caches and of IO.
//!
//! Each record is a time (u64), a type (u8), a length (u32) and a payload. The first has type 1 and
//! says what wrote it. Nothing has a checksum, so nothing says where the next record begins behind
//! damage.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use tombolo_format::FormatError;
use tombolo_format::trace::Event;

use crate::trace::{TraceError, TraceWriter};

/// How the payload of a first record begins, some have its length before it.
pub(super) const MAGIC: &[u8] = b"feedcafedeadbeef";
const PAYLOAD_BYTES_MAX: u32 = 256 << 20;
/// The type of a last record.
const END: u8 = 2;
/// Bytes of a record before its payload.
pub(super) const RECORD_HEAD_BYTES: u64 = 13;
/// Longest value that is taken whole; of a longer one only the size.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Kinds of things that are counted by name.
const TOLD_MAX: usize = 200;

/// What was in an imported trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events by operation.
    pub events: BTreeMap<&'static str, u64>,
    /// Records that were passed over, by why.
    pub passed_over: BTreeMap<String, u64>,
    /// Column families, by number.
    pub keyspaces: BTreeMap<u32, u64>,
    /// What else the trace says of events, and of how many: kinds of blocks, who asked for them.
    pub told: BTreeMap<String, u64>,
    /// Whether the file was cut off, and where.
    pub cut_at: Option<u64>,
}

/// A record's bytes, read one field after the other.
pub(super) struct Fields<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn fixed32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
    }

    pub(super) fn fixed64(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
    }

    pub(super) fn varint(&mut self) -> Option<u32> {
        let mut number = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).ok();
            }
        }
        None
    }

    pub(super) fn slice(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()? as usize;
        self.take(length)
    }
}

/// Where imported events go.
pub(super) struct Sink<W> {
    pub(super) writer: TraceWriter<W>,
    pub(super) counted: Counted,
    pub(super) start_us: u64,
}

impl<W: Write> Sink<W> {
    pub(super) fn push(&mut self, event: &Event<'_>) -> Result<(), TraceError> {
        let value = if event.value.len() > VALUE_BYTES_MAX { &[] } else { event.value };
        match self.writer.push(&Event { value, ..*event }) {
            Ok(()) => {}
            Err(TraceError::Invalid(_)) => {
                self.pass_over("events whose keys are longer than a trace holds");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        *self.counted.events.entry(event.asked.name()).or_default() += 1;
        *self.counted.keyspaces.entry(event.keyspace).or_default() += 1;
        Ok(())
    }

    /// Counts something that is no event of its own.
    pub(super) fn tell(&mut self, what: &str) {
        let told = &mut self.counted.told;
        if let Some(count) = told.get_mut(what) {
            *count += 1;
        } else if told.len() < TOLD_MAX {
            told.insert(what.to_owned(), 1);
        } else {
            // A damaged trace has names without end.
            self.pass_over("kinds of which there are too many");
        }
    }

    pub(super) fn pass_over(&mut self, why: &str) {
        *self.counted.passed_over.entry(why.to_owned()).or_default() += 1;
    }

    pub(super) fn time(&self, us: u64) -> u64 {
        us.saturating_sub(self.start_us).saturating_mul(1000)
    }
}

/// The next record: time, type, payload; `None` at the end of the file.
pub(super) fn record(input: &mut impl Read, at: u64) -> Result<Option<(u64, u8, Vec<u8>)>, TraceError> {
    let mut head = [0; 13];
    match fill(input, &mut head)? {
        0 => return Ok(None),
        13 => {}
        _ => return Err(TraceError::Truncated { at, events: 0 }),
    }
    let mut fields = Fields { bytes: &head };
    let (Some(us), Some(kind), Some(length)) = (fields.fixed64(), fields.byte(), fields.fixed32()) else {
        return Ok(None);
    };
    if length > PAYLOAD_BYTES_MAX {
        if at == 0 {
            return Err(TraceError::Foreign(format!("{head:02x?}")));
        }
        let expected = format!("a record of at most {PAYLOAD_BYTES_MAX} bytes");
        let error = FormatError::damaged(9, expected, length.to_string());
        return Err(TraceError::Damaged { at, events: 0, error });
    }
    let mut payload = Vec::new();
    let limited = &mut input.take(length.into());
    limited.read_to_end(&mut payload).map_err(|error| TraceError::Io { doing: "read", error })?;
    if payload.len() < length as usize {
        return Err(TraceError::Truncated { at, events: 0 });
    }
    Ok(Some((us, kind, payload)))
}

fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, TraceError> {
    let mut have = 0;
    while have < buffer.len() {
        match input.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(TraceError::Io { doing: "read", error }),
        }
    }
    Ok(have)
}

/// Gives each record from this place on to `one`, which says `None` when its fields cannot be read.
/// Ends at the last record, or at the first damage when it salvages.
pub(super) fn each<W: Write>(
    input: &mut impl Read,
    sink: &mut Sink<W>,
    mut at: u64,
    salvages: bool,
    mut one: impl FnMut(&mut Sink<W>, u64, u8, &[u8]) -> Result<Option<()>, TraceError>,
) -> Result<(), TraceError> {
    loop {
        let (time, kind, payload) = match record(input, at) {
            Ok(Some(read)) => read,
            // A writer that ended without its last record.
            Ok(None) => return Ok(()),
            Err(TraceError::Truncated { .. } | TraceError::Damaged { .. }) if salvages => {
                sink.counted.cut_at = Some(at);
                return Ok(());
            }
            Err(TraceError::Truncated { at, .. }) => {
                return Err(TraceError::Truncated { at, events: sink.writer.events() });
            }
            Err(TraceError::Damaged { at, error, .. }) => {
                return Err(TraceError::Damaged { at, events: sink.writer.events(), error });
            }
            Err(error) => return Err(error),
        };
        if kind == END {
            return Ok(());
        }
        if one(sink, time, kind, &payload)?.is_none() {
            if !salvages {
                let error = FormatError::damaged(13, "the fields of a record", "fewer bytes");
                return Err(TraceError::Damaged { at, events: sink.writer.events(), error });
            }
            sink.pass_over("records whose fields cannot be read");
        }
        at += RECORD_HEAD_BYTES + payload.len() as u64;
    }
}
