//! IO traces of RocksDB (`DB::StartIOTrace`).
//!
//! A payload is a bitmap of what follows (u64), the name of the call, its latency in nanoseconds
//! (u64), its outcome, the name of the file, and by the bits 0 to 2 the size of the file, a length
//! and an offset (u64 each). Names have their lengths before them. The first record has its time in
//! microseconds since the Unix epoch, the others theirs in nanoseconds of another clock.
//!
//! Reads become gets and appends become puts, of keys that are the name of the file and the offset.
//! Files are told apart as four keyspaces: tables, logs, manifests and others.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use tombolo_format::trace::{Asked, Event, Found, Header, TracedKeys};

use super::blocks::version;
use super::records::{Counted, Fields, RECORD_HEAD_BYTES, Sink, each};
use crate::trace::{TraceError, TraceWriter};

/// The type of its records.
pub(super) const RECORD: u8 = 12;
/// Files whose positions are followed, of calls that have no offset.
const FILES_MAX: usize = 1 << 16;
const KEYSPACES: [&str; 4] = ["tables", "logs", "manifests", "others"];

fn keyspace(file: &[u8]) -> u32 {
    let is = |end: &[u8]| file.ends_with(end);
    let holds = |part: &[u8]| file.windows(part.len()).any(|window| window == part);
    if is(b".sst") || is(b".blob") {
        0
    } else if is(b".log") {
        1
    } else if [&b"MANIFEST"[..], b"CURRENT", b"OPTIONS", b"IDENTITY"].iter().any(|part| holds(part)) {
        2
    } else {
        3
    }
}

/// Where reads and appends without an offset are, by file.
#[derive(Debug, Default)]
struct Positions {
    read: BTreeMap<Vec<u8>, u64>,
    appended: BTreeMap<Vec<u8>, u64>,
}

impl Positions {
    /// The place of so many bytes, and moves behind them.
    fn pass(places: &mut BTreeMap<Vec<u8>, u64>, file: &[u8], bytes: u64) -> u64 {
        if let Some(place) = places.get_mut(file) {
            let at = *place;
            *place = place.saturating_add(bytes);
            return at;
        }
        if places.len() >= FILES_MAX {
            places.pop_first();
        }
        places.insert(file.to_vec(), bytes);
        0
    }

    fn forget(&mut self, file: &[u8]) {
        self.read.remove(file);
        self.appended.remove(file);
    }
}

/// Reads an IO trace whose first record has this payload.
pub(super) fn import<W: Write>(
    input: &mut impl Read,
    output: W,
    first: &[u8],
    salvages: bool,
) -> Result<(W, Counted), TraceError> {
    let header = Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: format!("IO of rocksdb {}", version(first)),
    };
    let counted = Counted::default();
    let mut sink = Sink { writer: TraceWriter::new(output, &header)?, counted, start_us: 0 };
    for (id, name) in (0..).zip(KEYSPACES) {
        sink.writer.name(id, name)?;
    }
    let at = RECORD_HEAD_BYTES + first.len() as u64;
    let (mut positions, mut start_ns) = (Positions::default(), None);
    each(input, &mut sink, at, salvages, |sink, ns, kind, payload| {
        if kind != RECORD {
            sink.pass_over(&format!("records of type {kind}"));
            return Ok(Some(()));
        }
        let since = ns.saturating_sub(*start_ns.get_or_insert(ns));
        one(sink, since, payload, &mut positions)
    })?;
    Ok((sink.writer.finish()?, sink.counted))
}

fn one<W: Write>(
    sink: &mut Sink<W>,
    time_ns: u64,
    payload: &[u8],
    positions: &mut Positions,
) -> Result<Option<()>, TraceError> {
    let mut fields = Fields { bytes: payload };
    let (Some(bits), Some(call), Some(latency_ns)) = (fields.fixed64(), fields.slice(), fields.fixed64())
    else {
        return Ok(None);
    };
    let (Some(outcome), Some(file)) = (fields.slice(), fields.slice()) else { return Ok(None) };
    let mut told = [None; 3];
    for (bit, field) in told.iter_mut().enumerate() {
        if bits & (1 << bit) != 0 {
            *field = Some(fields.fixed64());
        }
    }
    let [_, length, offset] = told;
    if told.contains(&Some(None)) {
        return Ok(None);
    }
    let (bytes, offset) = (length.flatten().unwrap_or(0), offset.flatten());
    let call = String::from_utf8_lossy(&call[..call.len().min(64)]);
    let (asked, at) = match call.as_ref() {
        "Read" | "PositionedRead" | "MultiRead" | "ReadAsync" | "ReadAsyncCallback" | "Prefetch" => {
            let at = offset.unwrap_or_else(|| Positions::pass(&mut positions.read, file, bytes));
            (Asked::Get, at)
        }
        "Append" | "PositionedAppend" | "Write" => {
            let at = offset.unwrap_or_else(|| Positions::pass(&mut positions.appended, file, bytes));
            (Asked::Put, at)
        }
        "DeleteFile" => {
            positions.forget(file);
            (Asked::RangeDelete, 0)
        }
        other => {
            sink.tell(&format!("calls of {other}, which move no bytes"));
            return Ok(Some(()));
        }
    };
    let (mut key, mut end) = (file.to_vec(), Vec::new());
    key.push(0);
    if asked == Asked::RangeDelete {
        end = [file, &[1]].concat();
    } else {
        key.extend_from_slice(&at.to_be_bytes());
    }
    let mut event = Event::new(time_ns, asked, keyspace(file), &key);
    event.end = &end;
    event.value_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    event.latency_ns = latency_ns;
    if asked == Asked::Get {
        event.found = Found::from(outcome == b"OK");
    }
    sink.push(&event)?;
    sink.tell(&format!("calls of {call}"));
    Ok(Some(()))
}
