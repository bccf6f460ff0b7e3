//! Lines of text: our own export, public cache traces, and whatever names its columns.

use std::borrow::Cow;
use std::io::{BufRead, Write};

use tombolo_format::trace::{Asked, Event, Found, Header, TracedKeys};

use super::lines::{KEY_BYTES_MAX, fields, next_line, wrong_line};
use crate::trace::{TraceError, TraceWriter};

/// Which column has what, from 0 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Time, and how many nanoseconds one of it is.
    pub time: Option<(usize, u64)>,
    /// Operation.
    pub operation: Option<usize>,
    /// Keyspace, as a number.
    pub keyspace: Option<usize>,
    /// Key.
    pub key: usize,
    /// Bytes of the key, where keys are anonymised to another length.
    pub key_bytes: Option<usize>,
    /// Bytes of the value.
    pub value_bytes: Option<usize>,
    /// Entries of a scan.
    pub entries: Option<usize>,
    /// Seconds that a value lives.
    pub ttl_seconds: Option<usize>,
    /// Number of the thread that asked.
    pub thread: Option<usize>,
    /// End of a range, exclusive.
    pub end: Option<usize>,
    /// Whether something was found: yes or no.
    pub found: Option<usize>,
    /// Whether the event belongs to the batch of the one before it: 1 or 0.
    pub joined: Option<usize>,
    /// Blocks that were read, and blocks that a cache had.
    pub blocks: [Option<usize>; 2],
    /// Latency, and how many nanoseconds one of it is.
    pub latency: Option<(usize, u64)>,
    /// How many equal operations a line stands for.
    pub repeats: Option<usize>,
    /// How many of them a cache had.
    pub hits: Option<usize>,
    /// Whether keys are hexadecimal.
    pub is_hexadecimal: bool,
}

impl Columns {
    /// Twitter's cache traces: timestamp, anonymised key, key size, value size, client id,
    /// operation, TTL.
    #[must_use]
    pub fn twitter() -> Columns {
        Columns {
            time: Some((0, 1_000_000_000)),
            key: 1,
            key_bytes: Some(2),
            value_bytes: Some(3),
            operation: Some(5),
            ttl_seconds: Some(6),
            ..Columns::default()
        }
    }

    /// By the names of a first line; those of Meta's cache traces, and of our own export.
    ///
    /// # Errors
    /// `Invalid` when no column is a key.
    pub fn named(first: &str) -> Result<Columns, TraceError> {
        let mut columns = Columns { key: usize::MAX, ..Columns::default() };
        for (index, name) in first.trim().split(',').enumerate() {
            match name.trim().trim_matches('"').to_ascii_lowercase().as_str() {
                "time_ns" => columns.time = Some((index, 1)),
                "time_us" => columns.time = Some((index, 1000)),
                "time_ms" => columns.time = Some((index, 1_000_000)),
                "time" | "timestamp" | "op_time" => columns.time = Some((index, 1_000_000_000)),
                "operation" | "op" | "optype" | "verb" => columns.operation = Some(index),
                "keyspace" => columns.keyspace = Some(index),
                "key" | "cachekey" => columns.key = index,
                "key_hex" => (columns.key, columns.is_hexadecimal) = (index, true),
                "key_size" | "key_bytes" => columns.key_bytes = Some(index),
                "size" | "objectsize" | "value_size" | "value_bytes" => columns.value_bytes = Some(index),
                "entries" | "scan_length" => columns.entries = Some(index),
                "ttl" => columns.ttl_seconds = Some(index),
                "thread" => columns.thread = Some(index),
                "end" | "end_hex" => columns.end = Some(index),
                "found" => columns.found = Some(index),
                "joined" => columns.joined = Some(index),
                "blocks_read" => columns.blocks[0] = Some(index),
                "blocks_hit" => columns.blocks[1] = Some(index),
                "latency_ns" => columns.latency = Some((index, 1)),
                "latency_us" => columns.latency = Some((index, 1000)),
                "op_count" => columns.repeats = Some(index),
                "cache_hits" => columns.hits = Some(index),
                _ => {}
            }
        }
        if columns.key == usize::MAX {
            let message = format!("no column of {first:?} is named key or key_hex");
            return Err(TraceError::Invalid(message));
        }
        Ok(columns)
    }
}

/// What a name of an operation means.
fn asked(name: &str) -> Option<Asked> {
    Some(match name.trim().to_ascii_lowercase().as_str() {
        "get" | "gets" | "read" | "get_lease" => Asked::Get,
        "set" | "put" | "add" | "replace" | "cas" | "update" | "insert" | "set_lease" | "write" => Asked::Put,
        "append" | "prepend" | "incr" | "decr" | "merge" => Asked::Merge,
        "delete" | "remove" => Asked::Delete,
        "scan" | "seek" | "iterator_seek" => Asked::Scan,
        other => return Asked::from_name(other),
    })
}

fn number(fields: &[Cow<'_, str>], column: Option<usize>) -> Option<u64> {
    let text = fields.get(column?)?.trim();
    text.parse::<u64>().ok().or_else(|| {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is no negative one")]
        Some(number as u64)
    })
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks_exact(2);
    if !digits.remainder().is_empty() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Reads lines into a trace; gives the file back, and how many lines had no event. Without columns,
/// the first line names them.
///
/// # Errors
/// Those of the files; `Invalid` with the number of the line, unless it salvages.
pub fn import_csv<W: Write>(
    mut input: impl BufRead,
    output: W,
    columns: Option<Columns>,
    origin: &str,
    salvages: bool,
) -> Result<(W, u64, u64), TraceError> {
    let header = Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: origin.to_owned(),
    };
    let (mut writer, mut columns) = (TraceWriter::new(output, &header)?, columns);
    let (mut first_time, mut passed_over) = (None, 0);
    let (mut line, mut number) = (None, 0_u64);
    while next_line(&mut input, &mut line)? {
        number += 1;
        let Some(columns) = &columns else {
            columns = Some(Columns::named(line.as_deref().unwrap_or("a first line that is no text"))?);
            continue;
        };
        if line.as_deref().is_some_and(|line| line.trim().is_empty()) {
            continue;
        }
        match line.as_deref().and_then(fields).and_then(|fields| line_of(columns, &fields)) {
            Some(Line { mut event, key, end, repeats, hits }) => {
                let first = *first_time.get_or_insert(event.time_ns);
                event.time_ns = event.time_ns.saturating_sub(first);
                for time in 0..repeats {
                    let mut event = Event { key: &key, end: &end, ..event };
                    if let Some(hits) = hits.filter(|_| !event.asked.is_write()) {
                        event.found = Found::from(time < hits);
                    }
                    writer.push(&event)?;
                }
            }
            None if salvages => passed_over += 1,
            None => {
                return Err(wrong_line(
                    number,
                    line.as_deref(),
                    "event of the named columns",
                    writer.events(),
                ));
            }
        }
    }
    let events = writer.events();
    Ok((writer.finish()?, events, passed_over))
}

/// Most operations of a line: a second of a very hot key.
const REPEATS_MAX: u64 = 1 << 20;

/// What a line says.
struct Line {
    event: Event<'static>,
    key: Vec<u8>,
    end: Vec<u8>,
    /// Equal operations, and how many of them found something.
    repeats: u64,
    hits: Option<u64>,
}

fn line_of(columns: &Columns, fields: &[Cow<'_, str>]) -> Option<Line> {
    let bytes = |text: &str| {
        let bytes = if columns.is_hexadecimal { from_hexadecimal(text)? } else { text.as_bytes().to_vec() };
        (bytes.len() <= KEY_BYTES_MAX).then_some(bytes)
    };
    let mut key = bytes(fields.get(columns.key)?)?;
    let end = match columns.end {
        Some(column) => bytes(fields.get(column)?)?,
        None => Vec::new(),
    };
    if let Some(bytes) = number(fields, columns.key_bytes) {
        // The key's own bytes, as many as it had: longer ones are filled up.
        key.resize(usize::try_from(bytes).ok()?.clamp(key.len(), KEY_BYTES_MAX), b'.');
    }
    let asked = match columns.operation {
        Some(column) => asked(fields.get(column)?)?,
        None => Asked::Get,
    };
    let time_ns = match columns.time {
        Some((column, scale)) => {
            let text = fields.get(column)?.trim();
            match text.parse::<u64>() {
                Ok(whole) => whole.saturating_mul(scale),
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a time with a fraction"
                )]
                Err(_) => (text.parse::<f64>().ok()? * scale as f64) as u64,
            }
        }
        None => 0,
    };
    let mut event = Event::new(time_ns, asked, 0, &[]);
    event.keyspace = number(fields, columns.keyspace).and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
    event.value_bytes =
        number(fields, columns.value_bytes).map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    event.entries =
        number(fields, columns.entries).map_or(0, |entries| u32::try_from(entries).unwrap_or(u32::MAX));
    event.ttl_ms = number(fields, columns.ttl_seconds).unwrap_or(0).saturating_mul(1000);
    let small = |column| number(fields, column).map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX));
    (event.thread, event.joined) = (small(columns.thread), small(columns.joined) != 0);
    [event.blocks_read, event.blocks_hit] = columns.blocks.map(small);
    if let Some((column, scale)) = columns.latency {
        event.latency_ns = number(fields, Some(column)).unwrap_or(0).saturating_mul(scale);
    }
    event.found = match columns.found.and_then(|column| fields.get(column)).map(|text| text.trim()) {
        Some("yes" | "1" | "true") => Found::Yes,
        Some("no" | "0" | "false") => Found::No,
        _ => Found::Unknown,
    };
    let repeats = match columns.repeats {
        Some(column) => number(fields, Some(column)).filter(|count| (1..=REPEATS_MAX).contains(count))?,
        None => 1,
    };
    Some(Line { event, key, end, repeats, hits: number(fields, columns.hits) })
}
