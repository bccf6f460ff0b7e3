//! Sizes as people write them: `64MiB`, `8GiB`, or a number of bytes. One reader for all settings,
//! parameters and arguments.

/// What a size looks like, for messages.
pub const SIZE_WANTED: &str =
    "a number of bytes in digits alone, or one with KiB, MiB, GiB or TiB behind it, such as 64MiB";

/// The units, and by how many bits each shifts.
const UNITS: [(&str, u32); 5] = [("", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// Reads a size; `None` when it is none, or more than 64 bits hold.
///
/// ```
/// use tombolo_storage::size::parse_size;
/// assert_eq!(parse_size("64MiB"), Some(64 << 20));
/// assert_eq!(parse_size("4096"), Some(4096));
/// assert_eq!(parse_size("64MB"), None);
/// ```
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let (_, shift) = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..])?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_have_binary_units_or_none() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("1KiB", Some(1024)),
            ("64MiB", Some(64 << 20)),
            ("8GiB", Some(8 << 30)),
            ("2TiB", Some(2 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16777216TiB", None),
            ("", None),
            ("MiB", None),
            ("1.5GiB", None),
            ("64 MiB", None),
            ("64MB", None),
            ("64mib", None),
            ("+64", None),
            ("-1", None),
            ("é", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }
}
