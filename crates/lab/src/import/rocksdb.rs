//! Query traces of RocksDB, of the versions 0.1 and 0.2 of their format.
//!
//! Each record is a time in microseconds (u64), a type (u8), a length (u32) and a payload. The
//! first has type 1 and says the version. From version 0.2 on, a payload begins with a bitmap, and
//! has the fields whose bits are set, in the order of the bits: 1 a batch, 2 and 3 column family
//! and key of a get, 4 to 7 column family, key and bounds of an iterator, 8 to 10 number, column
//! families and keys of a multi-get.
//!
//! Such a trace says neither how far iterators went nor whether it was sampled.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use tombolo_format::trace::{Asked, Event, Header, TracedKeys};

use crate::trace::{TraceError, TraceWriter};

const MAGIC: &[u8] = b"feedcafedeadbeef";
const PAYLOAD_BYTES_MAX: u32 = 256 << 20;
/// Longest value that is taken whole; of a longer one only the size.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// What was in an imported trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events by operation.
    pub events: BTreeMap<&'static str, u64>,
    /// Records that were passed over, by why.
    pub passed_over: BTreeMap<String, u64>,
    /// Column families, by number.
    pub keyspaces: BTreeMap<u32, u64>,
    /// Whether the file was cut off, and where.
    pub cut_at: Option<u64>,
}

/// A record's bytes, read one field after the other.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn fixed32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
    }

    fn fixed64(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
    }

    fn varint(&mut self) -> Option<u32> {
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

    fn slice(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()? as usize;
        self.take(length)
    }
}

/// Where imported events go.
struct Sink<'a, W> {
    writer: &'a mut TraceWriter<W>,
    counted: Counted,
    start_us: u64,
}

impl<W: Write> Sink<'_, W> {
    fn push(&mut self, event: &Event<'_>) -> Result<(), TraceError> {
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

    fn pass_over(&mut self, why: &str) {
        *self.counted.passed_over.entry(why.to_owned()).or_default() += 1;
    }

    fn time(&self, us: u64) -> u64 {
        us.saturating_sub(self.start_us).saturating_mul(1000)
    }
}

/// Reads a query trace of RocksDB from `input` into a trace on `output`, which it gives back.
///
/// # Errors
/// `Foreign`; `Damaged` and `Truncated` with the place, unless it salvages, which ends at the first
/// damage: RocksDB's records have no checksums, and nothing says where the next one begins.
pub fn import_rocksdb<W: Write>(
    mut input: impl Read,
    output: W,
    salvages: bool,
) -> Result<(W, Counted), TraceError> {
    let mut at = 0;
    let first = match record(&mut input, at) {
        Ok(Some(first)) if first.2.starts_with(MAGIC) => first,
        Ok(Some(first)) => {
            let begins = String::from_utf8_lossy(&first.2[..first.2.len().min(16)]).into_owned();
            return Err(TraceError::Foreign(format!("{begins:?}")));
        }
        Ok(None) => return Err(TraceError::Foreign("nothing".to_owned())),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&first.2).into_owned();
    let version = |name: &str| {
        let rest = text.split(name).nth(1)?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let trace_version = version("Trace Version:").unwrap_or_default();
    let is_old = match trace_version.as_str() {
        "0.1" => true,
        "0.2" => false,
        other => {
            return Err(TraceError::Invalid(format!(
                "a trace of RocksDB in version {other:?} of its format: 0.1 and 0.2 are known"
            )));
        }
    };
    let header = Header {
        start_unix_ns: first.0.saturating_mul(1000),
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: true,
        is_of_blocks: false,
        origin: format!("rocksdb {}", version("RocksDB Version:").unwrap_or_default()),
    };
    let mut writer = TraceWriter::new(output, &header)?;
    let mut sink = Sink { writer: &mut writer, counted: Counted::default(), start_us: first.0 };
    at += 13 + first.2.len() as u64;
    loop {
        let read = record(&mut input, at);
        let (us, kind, payload) = match read {
            Ok(Some(read)) => read,
            // A writer that ended without its last record.
            Ok(None) => break,
            Err(TraceError::Truncated { .. } | TraceError::Damaged { .. }) if salvages => {
                sink.counted.cut_at = Some(at);
                break;
            }
            Err(TraceError::Truncated { at, .. }) => {
                return Err(TraceError::Truncated { at, events: sink.writer.events() });
            }
            Err(error) => return Err(error),
        };
        if kind == 2 {
            break;
        }
        let parsed = one(&mut sink, us, kind, &payload, is_old)?;
        if parsed.is_none() {
            if !salvages {
                let error = tombolo_format::FormatError::damaged(13, "the fields of a record", "fewer bytes");
                return Err(TraceError::Damaged { at, events: sink.writer.events(), error });
            }
            sink.pass_over("records whose fields cannot be read");
        }
        at += 13 + payload.len() as u64;
    }
    let counted = sink.counted;
    Ok((writer.finish()?, counted))
}

/// The next record: time, type, payload; `None` at the end of the file.
fn record(input: &mut impl Read, at: u64) -> Result<Option<(u64, u8, Vec<u8>)>, TraceError> {
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
        let error = tombolo_format::FormatError::damaged(9, expected, length.to_string());
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

/// One record; `None` when its fields cannot be read.
fn one<W: Write>(
    sink: &mut Sink<'_, W>,
    us: u64,
    kind: u8,
    payload: &[u8],
    is_old: bool,
) -> Result<Option<()>, TraceError> {
    let time = sink.time(us);
    let mut fields = Fields { bytes: payload };
    let bits = if is_old {
        match kind {
            3 => 1 << 1,
            4 => 1 << 2 | 1 << 3,
            5 | 6 => 1 << 4 | 1 << 5,
            _ => 0,
        }
    } else {
        match fields.fixed64() {
            Some(bits) => bits,
            None => return Ok(None),
        }
    };
    let has = |bit: u32| bits & (1 << bit) != 0;
    match kind {
        3 => {
            let batch = if is_old { Some(fields.bytes) } else { has(1).then(|| fields.slice()).flatten() };
            match batch {
                Some(batch) => write_batch(sink, time, batch),
                None => Ok(None),
            }
        }
        4 => {
            let (Some(keyspace), Some(key)) = (fields.fixed32(), fields.slice()) else { return Ok(None) };
            sink.push(&Event::new(time, Asked::Get, keyspace, key)).map(Some)
        }
        5 | 6 => {
            let (Some(keyspace), Some(key)) = (fields.fixed32(), fields.slice()) else { return Ok(None) };
            let (lower, upper) =
                (has(6).then(|| fields.slice()).flatten(), has(7).then(|| fields.slice()).flatten());
            let (asked, end) = if kind == 5 { (Asked::Scan, upper) } else { (Asked::ScanBack, lower) };
            let event = Event { end: end.unwrap_or_default(), ..Event::new(time, asked, keyspace, key) };
            sink.push(&event).map(Some)
        }
        13 => {
            let Some(count) = fields.fixed32() else { return Ok(None) };
            let Some(mut keyspaces) = fields.slice().map(|bytes| Fields { bytes }) else { return Ok(None) };
            let Some(mut keys) = fields.slice().map(|bytes| Fields { bytes }) else { return Ok(None) };
            for index in 0..count {
                let (Some(keyspace), Some(key)) = (keyspaces.fixed32(), keys.slice()) else {
                    return Ok(None);
                };
                let event = Event { joined: index > 0, ..Event::new(time, Asked::MultiGet, keyspace, key) };
                sink.push(&event)?;
            }
            Ok(Some(()))
        }
        7..=11 => {
            sink.pass_over("records of block caches");
            Ok(Some(()))
        }
        12 => {
            sink.pass_over("records of IO");
            Ok(Some(()))
        }
        other => {
            sink.pass_over(&format!("records of type {other}"));
            Ok(Some(()))
        }
    }
}

/// A batch as RocksDB's log has it: sequence number (u64), count (u32), then entries of a tag.
fn write_batch<W: Write>(sink: &mut Sink<'_, W>, time: u64, batch: &[u8]) -> Result<Option<()>, TraceError> {
    let mut fields = Fields { bytes: batch };
    if fields.take(12).is_none() {
        return Ok(None);
    }
    let mut joined = false;
    while let Some(tag) = fields.byte() {
        // Tags of a column family have its number first.
        let (asked, has_family, has_value) = match tag {
            0x0 => (Asked::Delete, false, false),
            0x1 => (Asked::Put, false, true),
            0x2 => (Asked::Merge, false, true),
            0x4 => (Asked::Delete, true, false),
            0x5 => (Asked::Put, true, true),
            0x6 => (Asked::Merge, true, true),
            0x7 => (Asked::SingleDelete, false, false),
            0x8 => (Asked::SingleDelete, true, false),
            0xE => (Asked::RangeDelete, true, true),
            0xF => (Asked::RangeDelete, false, true),
            0x3 => {
                // Data for the log alone.
                if fields.slice().is_none() {
                    return Ok(None);
                }
                continue;
            }
            0xD => continue,
            0x9..=0xC | 0x12 | 0x13 => {
                sink.pass_over("two-phase transactions, whose writes count when they commit");
                return Ok(Some(()));
            }
            other => {
                sink.pass_over(&format!("batches with an entry of tag {other:#x}"));
                return Ok(Some(()));
            }
        };
        let keyspace = if has_family { fields.varint() } else { Some(0) };
        let value = |fields: &mut Fields<'_>| {
            if has_value { fields.slice().map(<[u8]>::to_vec) } else { Some(Vec::new()) }
        };
        let (Some(keyspace), Some(key)) = (keyspace, fields.slice()) else { return Ok(None) };
        let Some(value) = value(&mut fields) else { return Ok(None) };
        let mut event = Event { joined, ..Event::new(time, asked, keyspace, key) };
        if asked == Asked::RangeDelete {
            event.end = &value;
        } else {
            event.value = &value;
            event.value_bytes = u32::try_from(value.len()).unwrap_or(u32::MAX);
        }
        sink.push(&event)?;
        joined = true;
    }
    Ok(Some(()))
}
