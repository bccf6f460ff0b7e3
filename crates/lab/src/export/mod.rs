//! Traces for other tools: lines of text, Parquet, and the forms that libCacheSim reads.

#[cfg(feature = "parquet")]
mod parquet;

use std::fmt::Write as _;
use std::io::Write;

use tombolo_format::checksum::{key_hash, mix64};
use tombolo_format::trace::{Asked, Event, Found};

use crate::trace::TraceError;

#[cfg(feature = "parquet")]
pub use self::parquet::ParquetExport;

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

/// The number of what an event accesses, for tools that know numbers only: a hash of the key and
/// its keyspace. `None` for events that are no access of one object.
#[must_use]
pub fn object(event: &Event<'_>) -> Option<u64> {
    (event.asked != Asked::RangeDelete).then(|| mix64(key_hash(event.key) ^ u64::from(event.keyspace)))
}

/// The bytes of what an event accesses, at least 1: tools pass over objects of none.
fn object_bytes(event: &Event<'_>) -> u32 {
    event.value_bytes.saturating_add(u32::try_from(event.key.len()).unwrap_or(u32::MAX)).max(1)
}

/// The first line of [`cache_line`]'s lines.
pub const CACHE_HEAD: &str = "time,object,bytes,operation\n";

/// An access as libCacheSim's reader of CSV takes it, with the columns time 1, object 2, size 3.
/// Empty for events that are no access of one object.
pub fn cache_line(event: &Event<'_>, line: &mut String) {
    line.clear();
    let Some(object) = object(event) else { return };
    let (seconds, bytes) = (event.time_ns / 1_000_000_000, object_bytes(event));
    // Writing to a string never fails.
    let _ = writeln!(line, "{seconds},{object},{bytes},{}", event.asked.name());
}

/// An access as libCacheSim's `oracleGeneral` has it, but for the next access, which one pass does
/// not know: -2, as for traces without it. Seconds (u32), object (u64), bytes (u32), next (i64).
///
/// # Errors
/// Those of the file.
pub fn oracle_general(event: &Event<'_>, next: i64, output: &mut impl Write) -> Result<(), TraceError> {
    let Some(object) = object(event) else { return Ok(()) };
    let mut record = [0; 24];
    let seconds = u32::try_from(event.time_ns / 1_000_000_000).unwrap_or(u32::MAX);
    record[..4].copy_from_slice(&seconds.to_le_bytes());
    record[4..12].copy_from_slice(&object.to_le_bytes());
    record[12..16].copy_from_slice(&object_bytes(event).to_le_bytes());
    record[16..].copy_from_slice(&next.to_le_bytes());
    output.write_all(&record).map_err(|error| TraceError::Io { doing: "exported", error })
}

#[cfg(test)]
mod tests;
