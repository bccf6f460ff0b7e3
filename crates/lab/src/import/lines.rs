//! Lines of text, however long, and their fields.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use crate::trace::TraceError;

/// Most bytes of a line, and of a key of it.
const LINE_BYTES_MAX: u64 = 1 << 20;
pub(super) const KEY_BYTES_MAX: usize = 1 << 16;

/// Reads the next line without its end into `line`; false behind the last one. Of a line that is
/// too long, or no text, `line` is `None`.
pub(super) fn next_line(input: &mut impl BufRead, line: &mut Option<String>) -> Result<bool, TraceError> {
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

/// The fields of a line with commas between them. A field in quotes may have commas, and quotes
/// that are doubled; `None` for quotes that do not end.
pub(super) fn fields(line: &str) -> Option<Vec<Cow<'_, str>>> {
    if !line.contains('"') {
        return Some(line.split(',').map(Cow::Borrowed).collect());
    }
    let (mut all, mut rest) = (Vec::new(), line);
    loop {
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut field = String::new();
                let mut left = quoted;
                loop {
                    let (before, after) = left.split_once('"')?;
                    field.push_str(before);
                    match after.strip_prefix('"') {
                        Some(more) => {
                            field.push('"');
                            left = more;
                        }
                        None => break left = after,
                    }
                }
                let behind = if left.is_empty() { None } else { Some(left.strip_prefix(',')?) };
                (Cow::Owned(field), behind)
            }
            None => match rest.split_once(',') {
                Some((field, behind)) => (Cow::Borrowed(field), Some(behind)),
                None => (Cow::Borrowed(rest), None),
            },
        };
        all.push(field);
        match behind {
            Some(behind) => rest = behind,
            None => return Some(all),
        }
    }
}

/// The error of a line that is no event.
pub(super) fn wrong_line(number: u64, line: Option<&str>, what: &str, events: u64) -> TraceError {
    let shown: String = line.unwrap_or("no text, or too long").chars().take(100).collect();
    let text =
        format!("line {number} is no {what}, after {events} events: {shown:?}; --salvage goes on behind it");
    TraceError::Invalid(text)
}
