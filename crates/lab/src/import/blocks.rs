//! Block-cache traces of RocksDB (`DB::StartBlockCacheTrace`, `db_bench --block_cache_trace_file`).
//!
//! A payload is the key of the block (with its length), its size (u64), number (u64) and name (with
//! its length) of the column family, level (u32), number of the table (u64), who asked (u8),
//! whether the cache had it (u8) and whether it was not put there (u8). What follows for gets is
//! not taken.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use tombolo_format::trace::{Asked, Event, Found, Header, TracedKeys};

use super::records::{Counted, Fields, MAGIC, RECORD_HEAD_BYTES, Sink, each};
use crate::trace::{TraceError, TraceWriter};

/// Kinds of blocks, by the type of their records from 7 on.
const KINDS: [&str; 5] = ["index", "filter", "data", "dictionary", "range-delete"];
/// Who asks for a block, from 1 on.
const CALLERS: [&str; 14] = [
    "get",
    "multi_get",
    "scan",
    "approximate size",
    "checksum",
    "sst_dump",
    "ingestion",
    "repair",
    "prefetch",
    "compaction",
    "refill by compaction",
    "flush",
    "reader of a table",
    "something else",
];

/// The version that a first record with a length says.
pub(super) fn version(first: &[u8]) -> String {
    let mut fields = Fields { bytes: first.get(1 + MAGIC.len()..).unwrap_or_default() };
    match (fields.fixed32(), fields.fixed32()) {
        (Some(major), Some(minor)) => format!("{major}.{minor}"),
        _ => "of an unknown version".to_owned(),
    }
}

/// Reads a block-cache trace whose first record has this time and payload. A block is named by the
/// number of its table and its key in the cache, so that blocks of a table lie beside each other.
pub(super) fn import<W: Write>(
    input: &mut impl Read,
    output: W,
    (start_us, first): (u64, &[u8]),
    salvages: bool,
) -> Result<(W, Counted), TraceError> {
    let header = Header {
        start_unix_ns: start_us.saturating_mul(1000),
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: true,
        origin: format!("block cache of rocksdb {}", version(first)),
    };
    let mut sink = Sink { writer: TraceWriter::new(output, &header)?, counted: Counted::default(), start_us };
    let at = RECORD_HEAD_BYTES + first.len() as u64;
    let mut names = BTreeMap::new();
    each(input, &mut sink, at, salvages, |sink, us, kind, payload| one(sink, us, kind, payload, &mut names))?;
    Ok((sink.writer.finish()?, sink.counted))
}

fn one<W: Write>(
    sink: &mut Sink<W>,
    us: u64,
    kind: u8,
    payload: &[u8],
    names: &mut BTreeMap<u32, Vec<u8>>,
) -> Result<Option<()>, TraceError> {
    let Some(kind) = kind.checked_sub(7).and_then(|index| KINDS.get(usize::from(index))) else {
        sink.pass_over(&format!("records of type {kind}"));
        return Ok(Some(()));
    };
    let mut fields = Fields { bytes: payload };
    let (Some(block), Some(bytes), Some(family)) = (fields.slice(), fields.fixed64(), fields.fixed64())
    else {
        return Ok(None);
    };
    let (Some(name), Some(level), Some(table)) = (fields.slice(), fields.fixed32(), fields.fixed64()) else {
        return Ok(None);
    };
    let (Some(caller), Some(hit), Some(kept_out)) = (fields.byte(), fields.byte(), fields.byte()) else {
        return Ok(None);
    };
    let keyspace = u32::try_from(family).unwrap_or(u32::MAX);
    if names.get(&keyspace).map(Vec::as_slice) != Some(name) && names.len() < 1 << 16 {
        sink.writer.name(keyspace, &String::from_utf8_lossy(name))?;
        names.insert(keyspace, name.to_vec());
    }
    let mut key = table.to_be_bytes().to_vec();
    key.extend_from_slice(block);
    let mut event = Event::new(sink.time(us), Asked::Block, keyspace, &key);
    event.value_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    event.found = Found::from(hit != 0);
    (event.blocks_read, event.blocks_hit) = (u32::from(hit == 0), u32::from(hit != 0));
    sink.push(&event)?;
    sink.tell(&format!("{kind} blocks"));
    if let Some(caller) = usize::from(caller).checked_sub(1).and_then(|index| CALLERS.get(index)) {
        sink.tell(&format!("asked for by {caller}"));
    }
    sink.tell(&format!("of level {level}"));
    if kept_out != 0 {
        sink.tell("not to be kept");
    }
    Ok(Some(()))
}
