use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn what_is_shown_is_read_back(bytes: Vec<u8>) {
        for form in [Form::Escaped, Form::Hexadecimal] {
            let shown = form.show(&bytes);
            prop_assert!(!shown.chars().any(char::is_control), "{}", shown);
            prop_assert_eq!(form.parse(&shown).unwrap(), bytes.clone());
        }
    }
}

#[test]
fn escapes_are_those_of_the_help() {
    assert_eq!(unescape(r"a\n\r\t\0\\\xfFé").unwrap(), b"a\n\r\t\0\\\xff\xc3\xa9");
    for wrong in [r"\", r"\q", r"\x", r"\x1", r"\xg0", r"\x1é"] {
        assert!(unescape(wrong).is_err(), "{wrong}");
    }
    for wrong in ["a", "0g", "é", "+1"] {
        assert!(unhex(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn figures_have_human_units() {
    assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(
        [bytes(0), bytes(1023), bytes(1024), bytes(u64::MAX)],
        ["0 B", "1023 B", "1.0 KiB", "16384.0 PiB"]
    );
    assert_eq!(duration(Duration::from_micros(90)), "90 µs");
    assert_eq!(duration(Duration::from_micros(1500)), "1.50 ms");
    assert_eq!(duration(Duration::from_millis(1500)), "1.50 s");
}

#[test]
fn dates_are_of_the_calendar() {
    for (seconds, shown) in [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_399, "2000-02-28 23:59:59 UTC"),
        (951_782_400, "2000-02-29 00:00:00 UTC"),
        (1_709_251_200, "2024-03-01 00:00:00 UTC"),
        (1_795_325_400, "2026-11-22 05:30:00 UTC"),
        (4_107_542_400, "2100-03-01 00:00:00 UTC"),
    ] {
        assert_eq!(date(seconds), shown);
    }
}
