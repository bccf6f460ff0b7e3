//! Traces for other tools: lines of text, and libCacheSim's binary formats.

use std::fmt::Write as _;
use std::io::Write;

use tombolo_format::checksum::key_hash;
use tombolo_format::trace::{Asked, Event, Found};

use crate::trace::TraceError;

/// The first line of [`csv_line`]'s lines.
pub const CSV_HEAD: &str = "time_ns,operation,keyspace,thread,key_hex,end_hex,value_bytes,entries,found,joined,\
    blocks_read,blocks_hit,latency_ns,ttl\n";

/// An event as a line.
pub fn csv_line(event: &Event<'_>, line: &mut String) {
    line.clear();
    let hexadecimal = |line: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(line, "{byte:02x}");
        }
    };
    // Writing to a string never fails.
    let _ = write!(line, "{},{},{},{},", event.time_ns, event.asked.name(), event.keyspace, event.thread);
    hexadecimal(line, event.key);
    line.push(',');
    hexadecimal(line, event.end);
    let found = match event.found {
        Found::Unknown => "",
        Found::Yes => "yes",
        Found::No => "no",
    };
    let _ = writeln!(
        line,
        ",{},{},{found},{},{},{},{},{}",
        event.value_bytes,
        event.entries,
        u8::from(event.joined),
        event.blocks_read,
        event.blocks_hit,
        event.latency_ns,
        event.ttl_ms / 1000
    );
}

/// An access as libCacheSim's `oracleGeneral` has it, but for the next access, which one pass does
/// not know: -2, as for traces without it. Seconds (u32), object (u64), bytes (u32), next (i64).
///
/// # Errors
/// Those of the file.
pub fn oracle_general(event: &Event<'_>, next: i64, output: &mut impl Write) -> Result<(), TraceError> {
    if event.asked == Asked::RangeDelete {
        return Ok(());
    }
    let mut record = [0; 24];
    let seconds = u32::try_from(event.time_ns / 1_000_000_000).unwrap_or(u32::MAX);
    record[..4].copy_from_slice(&seconds.to_le_bytes());
    record[4..12].copy_from_slice(&key_hash(event.key).to_le_bytes());
    let bytes = event.value_bytes.saturating_add(u32::try_from(event.key.len()).unwrap_or(u32::MAX)).max(1);
    record[12..16].copy_from_slice(&bytes.to_le_bytes());
    record[16..].copy_from_slice(&next.to_le_bytes());
    output.write_all(&record).map_err(|error| TraceError::Io { doing: "exported", error })
}
