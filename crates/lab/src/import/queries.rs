//! Query traces of RocksDB, of the versions 0.1 and 0.2 of their format.
//!
//! From version 0.2 on, a payload begins with a bitmap, and has the fields whose bits are set, in
//! the order of the bits: 1 a batch, 2 and 3 column family and key of a get, 4 to 7 column family,
//! key and bounds of an iterator, 8 to 10 number, column families and keys of a multi-get.
//!
//! Such a trace says neither how far iterators went nor whether it was sampled.

use std::io::{Read, Write};

use tombolo_format::trace::{Asked, Event, Header, TracedKeys};

use super::records::{Counted, Fields, RECORD_HEAD_BYTES, Sink, each};
use crate::trace::{TraceError, TraceWriter};

/// Reads a query trace whose first record has this time and payload.
pub(super) fn import<W: Write>(
    input: &mut impl Read,
    output: W,
    (start_us, first): (u64, &[u8]),
    salvages: bool,
) -> Result<(W, Counted), TraceError> {
    let text = String::from_utf8_lossy(first);
    let version = |name: &str| {
        let rest = text.split(name).nth(1)?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let is_old = match version("Trace Version:").unwrap_or_default().as_str() {
        "0.1" => true,
        "0.2" => false,
        other => {
            return Err(TraceError::Invalid(format!(
                "a trace of RocksDB in version {other:?} of its format: 0.1 and 0.2 are known"
            )));
        }
    };
    let header = Header {
        start_unix_ns: start_us.saturating_mul(1000),
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: true,
        is_of_blocks: false,
        origin: format!("rocksdb {}", version("RocksDB Version:").unwrap_or_default()),
    };
    let mut sink = Sink { writer: TraceWriter::new(output, &header)?, counted: Counted::default(), start_us };
    let at = RECORD_HEAD_BYTES + first.len() as u64;
    each(input, &mut sink, at, salvages, |sink, us, kind, payload| one(sink, us, kind, payload, is_old))?;
    Ok((sink.writer.finish()?, sink.counted))
}

/// One record; `None` when its fields cannot be read.
fn one<W: Write>(
    sink: &mut Sink<W>,
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
fn write_batch<W: Write>(sink: &mut Sink<W>, time: u64, batch: &[u8]) -> Result<Option<()>, TraceError> {
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
