//! Lines of text: our own export, public cache traces, and whatever names its columns.

use std::io::{BufRead, Read, Write};

use tombolo_format::trace::{Asked, Event, Found, Header, TracedKeys};

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
            match name.trim().to_ascii_lowercase().as_str() {
                "time_ns" => columns.time = Some((index, 1)),
                "time_us" => columns.time = Some((index, 1000)),
                "time_ms" => columns.time = Some((index, 1_000_000)),
                "time" | "timestamp" | "op_time" => columns.time = Some((index, 1_000_000_000)),
                "operation" | "op" | "verb" => columns.operation = Some(index),
                "keyspace" => columns.keyspace = Some(index),
                "key" => columns.key = index,
                "key_hex" => (columns.key, columns.is_hexadecimal) = (index, true),
                "key_size" | "key_bytes" => columns.key_bytes = Some(index),
                "size" | "value_size" | "value_bytes" => columns.value_bytes = Some(index),
                "entries" | "scan_length" => columns.entries = Some(index),
                "ttl" => columns.ttl_seconds = Some(index),
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

fn number(fields: &[&str], column: Option<usize>) -> Option<u64> {
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

/// Most bytes of a line, and of a key of it.
const LINE_BYTES_MAX: u64 = 1 << 20;
const KEY_BYTES_MAX: usize = 1 << 16;

/// Reads the next line without its end into `line`; false behind the last one. Of a line that is
/// too long, or no text, `line` is `None`.
fn next_line(input: &mut impl BufRead, line: &mut Option<String>) -> Result<bool, TraceError> {
    let reading = |error| TraceError::Io { doing: "read", error };
    let mut bytes = line.take().unwrap_or_default().into_bytes();
    bytes.clear();
    let read = Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', &mut bytes).map_err(reading)?;
    if read as u64 == LINE_BYTES_MAX && !bytes.ends_with(b"\n") {
        input.skip_until(b'\n').map_err(reading)?;
        return Ok(true);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    *line = String::from_utf8(bytes).ok();
    Ok(read > 0)
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
        let fields = line.as_deref().map(|line| line.split(',').collect::<Vec<_>>());
        match fields.and_then(|fields| event_of(columns, &fields)) {
            Some((mut event, key)) => {
                let first = *first_time.get_or_insert(event.time_ns);
                event.time_ns = event.time_ns.saturating_sub(first);
                writer.push(&Event { key: &key, ..event })?;
            }
            None if salvages => passed_over += 1,
            None => {
                let message = format!(
                    "line {} is no event of the named columns, after {} events: {:?}; \
                    --salvage goes on behind it",
                    number,
                    writer.events(),
                    line.as_deref().unwrap_or("no text, or too long").chars().take(100).collect::<String>()
                );
                return Err(TraceError::Invalid(message));
            }
        }
    }
    let events = writer.events();
    Ok((writer.finish()?, events, passed_over))
}

fn event_of(columns: &Columns, fields: &[&str]) -> Option<(Event<'static>, Vec<u8>)> {
    let text = *fields.get(columns.key)?;
    let mut key = if columns.is_hexadecimal { from_hexadecimal(text)? } else { text.as_bytes().to_vec() };
    if key.len() > KEY_BYTES_MAX {
        return None;
    }
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
    event.found = Found::Unknown;
    Some((event, key))
}
