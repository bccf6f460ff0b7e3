use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn what_is_shown_is_read_back(bytes: Vec<u8>, text: String) {
        for bytes in [&bytes[..], text.as_bytes()] {
            let text = shown(bytes);
            prop_assert!(!text.chars().any(char::is_control), "{}", text);
            prop_assert_eq!(parse_shown(text.as_bytes()).unwrap(), bytes);
            prop_assert_eq!(from_json(to_json(bytes)).unwrap(), bytes);
            prop_assert_eq!(from_json(Form::Hexadecimal.to_json(bytes)).unwrap(), bytes);
            let digits = Form::Hexadecimal.show(bytes);
            prop_assert_eq!(Form::Hexadecimal.parse(OsStr::new(&digits)).unwrap(), bytes);
            prop_assert_eq!(Form::Typed.parse(OsStr::from_bytes(bytes)).unwrap(), bytes);
        }
    }

    #[test]
    fn what_is_no_shown_text_is_refused_or_stands_for_itself(bytes: Vec<u8>) {
        if let Ok(read) = parse_shown(&bytes) {
            prop_assert!(read == bytes || bytes.starts_with(QUOTE));
        }
        let _ = Form::Escaped.parse(OsStr::from_bytes(&bytes));
    }
}

#[test]
fn printable_text_is_shown_as_it_is_and_all_else_quoted() {
    for (bytes, text) in [
        (&b""[..], ""),
        (br"C:\new\table", r"C:\new\table"),
        (b"it's", "it's"),
        ("straße".as_bytes(), "straße"),
        (b"a\tb", r"$'a\tb'"),
        (b"it's\n\\", r"$'it\'s\n\\'"),
        (b"\0\xff", r"$'\x00\xff'"),
        (b"$'x'", r"$'$\'x\''"),
        (b"$x", "$x"),
    ] {
        assert_eq!(shown(bytes), text);
    }
    for (wrong, word) in [("$'", "does not end"), ("$'a", "does not end"), (r"$'a\", "does not end")] {
        assert!(parse_shown(wrong.as_bytes()).unwrap_err().contains(word), "{wrong}");
    }
    assert!(parse_shown(br"$'\q'").unwrap_err().contains("escape"));
}

#[test]
fn escapes_are_those_of_the_help() {
    assert_eq!(unescape(r"a\n\r\t\0\\\'\xfFé".as_bytes()).unwrap(), b"a\n\r\t\0\\'\xff\xc3\xa9");
    for wrong in [r"\", r"\q", r"\x", r"\x1", r"\xg0", r"\x1é"] {
        assert!(unescape(wrong.as_bytes()).is_err(), "{wrong}");
    }
    for wrong in ["a", "0g", "é", "+1"] {
        assert!(unhex(wrong.as_bytes()).is_none(), "{wrong}");
    }
}

#[test]
fn bytes_have_one_encoding_in_json() {
    assert_eq!(to_json(b"a\n"), json!("a\n"));
    assert_eq!(to_json(b"\0\xff"), json!({ "hex": "00ff" }));
    assert_eq!(from_json(json!({ "hex": "0061" })), Some(b"\0a".to_vec()));
    for wrong in [json!(1), json!({ "hex": "0" }), json!({ "hex": "00", "b": 1 }), json!(["61"]), json!(null)]
    {
        assert_eq!(from_json(wrong), None);
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
fn one_is_no_plural() {
    for (number, what, text) in [
        (1, "table", "1 table"),
        (0, "table", "0 tables"),
        (2000, "entry", "2,000 entries"),
        (1, "entry", "1 entry"),
        (2, "flush", "2 flushes"),
        (3, "batch", "3 batches"),
        (2, "key", "2 keys"),
    ] {
        assert_eq!(counted(number, what), text);
    }
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
        assert_eq!(unix_seconds(shown), Ok(seconds));
    }
    assert_eq!(unix_seconds("1970-01-02T00:01Z"), Ok(86_460));
    assert_eq!(unix_seconds("17"), Ok(17));
    for wrong in [
        "",
        "today",
        "2026-02-30 00:00",
        "2026-11-28",
        "2026-11-28 24:00",
        "1960-01-01 00:00",
        "1-1-1 1:1:1:1",
    ] {
        assert!(unix_seconds(wrong).is_err(), "{wrong}");
    }
}
