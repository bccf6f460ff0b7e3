//! Bytes as text and back, and figures with human units.

use std::time::Duration;

use tombolo::Stats;

use crate::failure::{Failure, Result};

/// How keys and values are written at the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text with escapes.
    Escaped,
    /// Hexadecimal digits.
    Hexadecimal,
}

impl Form {
    /// Reads an argument.
    pub fn parse(self, text: &str) -> Result<Vec<u8>> {
        match self {
            Form::Escaped => unescape(text),
            Form::Hexadecimal => unhex(text),
        }
    }

    /// Shows bytes so that `parse` reads them back.
    pub fn show(self, bytes: &[u8]) -> String {
        match self {
            Form::Escaped => escape(bytes),
            Form::Hexadecimal => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

/// Reads `\n`, `\r`, `\t`, `\0`, `\\` and `\xHH`; everything else stands for itself.
fn unescape(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        bytes.push(match rest.next() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                unhex(&digits).ok().and_then(|byte| byte.first().copied()).ok_or_else(|| bad_escape(text))?
            }
            _ => return Err(bad_escape(text)),
        });
    }
    Ok(bytes)
}

fn bad_escape(text: &str) -> Failure {
    Failure::Usage(format!(
        "{text:?} has an escape that is none of \\n \\r \\t \\0 \\\\ \\xHH; write a backslash as \\\\, or \
        use --hex"
    ))
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let bad =
        || Failure::Usage(format!("{text:?} is not hexadecimal: write two digits 0-9 a-f for each byte"));
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| bad()))
        .collect()
}

/// Printable UTF-8 as it is; everything else, and backslashes, escaped.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\0' => text.push_str("\\0"),
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
    text
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

/// Seconds since the Unix epoch as a date and time of day in UTC: `2026-11-22 05:30:00 UTC`.
pub fn date(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Days are counted from 1 March of the year 0, so that a leap day is a year's last: eras of 400
    // years have 146,097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Statistics for people.
pub fn stats(stats: &Stats) -> String {
    let levels: Vec<_> = stats
        .tables_by_level
        .iter()
        .enumerate()
        .map(|(level, tables)| format!("L{level} {tables}"))
        .collect();
    let mut lines = vec![
        format!("tables      {} of {} ({})", stats.tables, bytes(stats.table_bytes), levels.join(", ")),
        format!(
            "memtables   {}, {} waiting for their flush",
            bytes(stats.memtable_bytes),
            stats.memtables_waiting
        ),
        format!("log         {} not yet freed", bytes(stats.log_bytes)),
        format!(
            "since open  {} writes, {} flushes, {} compactions",
            count(stats.writes),
            count(stats.flushes),
            count(stats.compactions)
        ),
        format!(
            "opening     {}, {} of log replayed",
            duration(Duration::from_nanos(stats.open_nanos)),
            bytes(stats.replayed_bytes)
        ),
    ];
    if stats.tables_shared > 0 {
        lines.insert(
            1,
            format!(
                "shared      {} tables of {} lie under other databases",
                stats.tables_shared,
                bytes(stats.table_bytes_shared)
            ),
        );
    }
    if let Some(error) = &stats.background_error {
        lines.push(format!("background  fails and retries: {error}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
