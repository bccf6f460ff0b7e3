//! Lengths of time as people write them: `10m`, `500ms`, `7d`. One reader for settings and
//! arguments.

use std::time::Duration;

/// What a length of time looks like, for messages.
pub const DURATION_WANTED: &str = "a whole number with ms, s, m, h or d behind it, such as 10m";

/// The units, longest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads a length of time; `None` when it is none, or has more milliseconds than 64 bits hold.
///
/// ```
/// use std::time::Duration;
/// use tombolo_storage::duration::parse_duration;
/// assert_eq!(parse_duration("10m"), Some(Duration::from_secs(600)));
/// assert_eq!(parse_duration("10"), None);
/// ```
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..])?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(*unit).map(Duration::from_millis)
}

/// A length of time as [`parse_duration`] reads it, in the longest unit of which it is a multiple;
/// less than a millisecond is left out.
pub fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, unit): &&(&str, u64)| millis > 0 && millis.is_multiple_of(*unit);
    let (unit, length) = UNITS.iter().find(fits).unwrap_or(&("ms", 1));
    format!("{}{unit}", millis / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_a_unit() {
        for (text, millis) in [
            ("0ms", Some(0)),
            ("1ms", Some(1)),
            ("90s", Some(90_000)),
            ("10m", Some(600_000)),
            ("36h", Some(129_600_000)),
            ("7d", Some(604_800_000)),
            ("18446744073709551615ms", Some(u64::MAX)),
            ("18446744073709551615s", None),
            ("", None),
            ("s", None),
            ("10", None),
            ("1.5h", None),
            ("10 m", None),
            ("10min", None),
            ("-1s", None),
            ("+1s", None),
        ] {
            let read = parse_duration(text);
            assert_eq!(read, millis.map(Duration::from_millis), "{text}");
            if let Some(read) = read {
                assert_eq!(parse_duration(&show_duration(read)), Some(read), "{text}");
            }
        }
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
        assert_eq!(show_duration(Duration::from_secs(86_400)), "1d");
    }
}
