//! Traces that RocksDB writes: of queries, of its block cache, and of its IO.

use std::io::{Cursor, Read, Write};

use super::records::{Counted, MAGIC, RECORD_HEAD_BYTES, record};
use super::{blocks, io, queries};
use crate::trace::TraceError;

/// Reads a trace of RocksDB from `input` into a trace on `output`, which it gives back.
///
/// # Errors
/// `Foreign`; `Damaged` and `Truncated` with the place, unless it salvages, which ends at the first
/// damage: RocksDB's records have no checksums, and nothing says where the next one begins.
pub fn import_rocksdb<W: Write>(
    mut input: impl Read,
    output: W,
    salvages: bool,
) -> Result<(W, Counted), TraceError> {
    let Some((start_us, _, first)) = record(&mut input, 0)? else {
        return Err(TraceError::Foreign("nothing".to_owned()));
    };
    if first.starts_with(MAGIC) {
        return queries::import(&mut input, output, (start_us, &first), salvages);
    }
    let has_length = first
        .split_first()
        .is_some_and(|(length, rest)| usize::from(*length) == MAGIC.len() && rest.starts_with(MAGIC));
    if !has_length {
        let begins = String::from_utf8_lossy(&first[..first.len().min(16)]).into_owned();
        return Err(TraceError::Foreign(format!("{begins:?}")));
    }
    // Traces of blocks and of IO begin alike: the type of the next record tells them apart.
    let mut head = Vec::new();
    let reading = |error| TraceError::Io { doing: "read", error };
    Read::take(&mut input, RECORD_HEAD_BYTES).read_to_end(&mut head).map_err(reading)?;
    let is_of_io = head.get(8) == Some(&io::RECORD);
    let mut rest = Cursor::new(head).chain(input);
    match is_of_io {
        true => io::import(&mut rest, output, &first, salvages),
        false => blocks::import(&mut rest, output, (start_us, &first), salvages),
    }
}
