//! Bytes as text and back, and figures with human units.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tombolo::Stats;
pub use tombolo_env::clock::date;
use tombolo_storage::duration::{DURATION_WANTED, parse_duration};
use tombolo_storage::size::{SIZE_WANTED, parse_size};

use crate::failure::{Failure, Result};

/// How keys and values are written at the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As they are: every byte of an argument is a byte of the key or value.
    Typed,
    /// With escapes, which are read.
    Escaped,
    /// Hexadecimal digits.
    Hexadecimal,
}

impl Form {
    /// Reads an argument.
    ///
    /// # Errors
    /// `Usage` for a wrong escape or digit.
    pub fn parse(self, text: &OsStr) -> Result<Vec<u8>> {
        let bytes = text.as_bytes();
        let wrong = |what: String| Failure::Usage(format!("{}: {what}", quoted(bytes)));
        match self {
            Form::Typed => Ok(bytes.to_vec()),
            Form::Escaped => {
                unescape(bytes).map_err(|what| wrong(format!("{what}; without --escape bytes are as typed")))
            }
            Form::Hexadecimal => unhex(bytes).ok_or_else(|| {
                wrong("this is not hexadecimal: write two digits 0-9 a-f for each byte".to_owned())
            }),
        }
    }

    /// Shows bytes to people.
    pub fn show(self, bytes: &[u8]) -> String {
        if self == Form::Hexadecimal { hex(bytes) } else { shown(bytes) }
    }

    /// Gives bytes to machines. With --hex all are written that way.
    pub fn to_json(self, bytes: &[u8]) -> Value {
        if self == Form::Hexadecimal { json!({ "hex": hex(bytes) }) } else { to_json(bytes) }
    }
}

/// Which form the arguments of a command have.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct FormArguments {
    /// Reads the escapes \n \r \t \0 \\ \' \xHH in keys and values. Without it every byte is as
    /// typed.
    #[arg(long, conflicts_with = "hex")]
    escape: bool,
    /// Keys and values are hexadecimal.
    #[arg(long)]
    hex: bool,
}

impl FormArguments {
    /// The form.
    pub fn form(self) -> Form {
        match (self.hex, self.escape) {
            (true, _) => Form::Hexadecimal,
            (_, true) => Form::Escaped,
            _ => Form::Typed,
        }
    }
}

/// Begins what [`shown`] has quoted.
const QUOTE: &[u8] = b"$'";

/// Bytes for people, and as `parse_shown` reads them back: printable UTF-8 as it is, all else as
/// `$'…'` with escapes, which bash and zsh read as well. What begins like that is quoted too, so
/// that no two keys look the same.
pub fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) && !bytes.starts_with(QUOTE) => text.to_owned(),
        _ => quoted(bytes),
    }
}

/// `$'…'` around bytes.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 3);
    text.push_str("$'");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\'' => text.push_str("\\'"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                _ if character.is_control() => {
                    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                        text += &format!("\\x{byte:02x}");
                    }
                }
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text.push('\'');
    text
}

/// Reads what [`shown`] wrote; text without quotes stands for itself, whatever its bytes are.
///
/// # Errors
/// Says why the quoted text cannot be read.
pub fn parse_shown(bytes: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let Some(inner) = bytes.strip_prefix(QUOTE) else { return Ok(bytes.to_vec()) };
    let inner = inner.strip_suffix(b"'").ok_or("it begins with $' and does not end with '")?;
    unescape(inner)
}

/// Reads `\n`, `\r`, `\t`, `\0`, `\\`, `\'` and `\xHH`; everything else stands for itself.
fn unescape(text: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match (first, tail) {
            (b'\\', [b'n', tail @ ..]) => (b'\n', tail),
            (b'\\', [b'r', tail @ ..]) => (b'\r', tail),
            (b'\\', [b't', tail @ ..]) => (b'\t', tail),
            (b'\\', [b'0', tail @ ..]) => (0, tail),
            (b'\\', [same @ (b'\\' | b'\''), tail @ ..]) => (*same, tail),
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let byte = unhex(&[*high, *low]).and_then(|byte| byte.first().copied());
                (byte.ok_or_else(bad_escape)?, tail)
            }
            (b'\\', _) => return Err(bad_escape()),
            (byte, tail) => (*byte, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    Ok(bytes)
}

fn bad_escape() -> String {
    "an escape that is none of \\n \\r \\t \\0 \\\\ \\' \\xHH; write a backslash itself as \\\\".to_owned()
}

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None` for bytes that are not hexadecimal.
fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.chunks(2).map(byte).collect()
}

/// The one encoding of bytes in JSON, of all commands: a string for UTF-8, else `{"hex":"00ff"}`.
pub fn to_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "hex": hex(bytes) }),
    }
}

/// Reads what [`to_json`] gave; `None` for anything else.
pub fn from_json(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.into_bytes()),
        Value::Object(fields) if fields.len() == 1 => unhex(fields.get("hex")?.as_str()?.as_bytes()),
        _ => None,
    }
}

/// `1234567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something: `1 table`, `2,000 entries`.
pub fn counted(number: u64, what: &str) -> String {
    if number == 1 {
        return format!("1 {what}");
    }
    let plural = match what.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if what.ends_with(['s', 'x']) || what.ends_with("ch") || what.ends_with("sh") => {
            format!("{what}es")
        }
        _ => format!("{what}s"),
    };
    format!("{} {plural}", count(number))
}

/// Reads an argument that is a size.
///
/// # Errors
/// What was expected.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    parse_size(text).ok_or_else(|| SIZE_WANTED.to_owned())
}

/// Bytes in binary units.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let (mut value, mut unit) = (number as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{number} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A duration with three digits.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        _ if seconds >= 1.0 => format!("{seconds:.2} s"),
        _ if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

/// Reads an argument that is a moment: seconds since 1970, or a date and a time of UTC as
/// [`date`] writes them.
///
/// # Errors
/// What was expected.
pub fn unix_seconds(text: &str) -> std::result::Result<u64, String> {
    let wanted = || "write seconds since 1970, or a date and a time of UTC: 2026-11-28 14:30:00".to_owned();
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let text = text.trim_end_matches(" UTC").trim_end_matches('Z');
    let (day, time) = text.split_once([' ', 'T']).ok_or_else(wanted)?;
    let numbers =
        |text: &str, by| -> Option<Vec<u64>> { text.split(by).map(|part| part.parse().ok()).collect() };
    let (day, time) = numbers(day, '-').zip(numbers(time, ':')).ok_or_else(wanted)?;
    let ([year, month, day], [hour, minute, rest @ ..]) = (&day[..], &time[..]) else { return Err(wanted()) };
    let second = match rest {
        [] => 0,
        [second] => *second,
        _ => return Err(wanted()),
    };
    let is_right = (1970..=9999).contains(year)
        && (1..=12).contains(month)
        && (1..=31).contains(day)
        && *hour < 24
        && *minute < 60
        && second < 60;
    if !is_right {
        return Err(wanted());
    }
    // Years that begin in March, so that a leap day is the last of one.
    let (from_march, months) = if *month > 2 { (*year, month - 3) } else { (year - 1, month + 9) };
    let years = from_march * 365 + from_march / 4 - from_march / 100 + from_march / 400;
    // From 1 March of the year 0 to 1970 there are as many days.
    let days = (years + (months * 153 + 2) / 5 + day - 1).checked_sub(719_468).ok_or_else(wanted)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    // A month has its days.
    let is_there = date(seconds).starts_with(&format!("{year:04}-{month:02}-{day:02} "));
    if is_there { Ok(seconds) } else { Err(wanted()) }
}

/// Reads an argument that is a length of time.
///
/// # Errors
/// What was expected.
pub fn length_of_time(text: &str) -> std::result::Result<Duration, String> {
    parse_duration(text).ok_or_else(|| format!("write {DURATION_WANTED}"))
}

/// What tables hold, for people.
pub fn tables(stats: &Stats) -> Vec<String> {
    let levels: Vec<_> = stats
        .tables_by_level
        .iter()
        .enumerate()
        .map(|(level, tables)| format!("L{level} {tables}"))
        .collect();
    let mut lines = vec![format!(
        "tables      {} of {} ({})",
        count(stats.tables),
        bytes(stats.table_bytes),
        levels.join(", ")
    )];
    if stats.tables_shared > 0 {
        let (tables, bytes) = (counted(stats.tables_shared, "table"), bytes(stats.table_bytes_shared));
        lines.push(format!("shared      {tables} of {bytes} under other databases"));
    }
    lines
}

/// Statistics for people.
pub fn stats(stats: &Stats) -> String {
    let mut lines = tables(stats);
    lines.extend([
        format!(
            "memtables   {}, {} waiting for their flush",
            bytes(stats.memtable_bytes),
            stats.memtables_waiting
        ),
        format!("log         {} not yet freed", bytes(stats.log_bytes)),
        format!(
            "since open  {}, {}, {}",
            counted(stats.writes, "write"),
            counted(stats.flushes, "flush"),
            counted(stats.compactions, "compaction")
        ),
        format!(
            "opening     {}, {} of log replayed",
            duration(Duration::from_nanos(stats.open_nanos)),
            bytes(stats.replayed_bytes)
        ),
    ]);
    if let Some(error) = &stats.background_error {
        lines.push(format!("background  fails and retries: {error}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
