//! One entry as one line.

use clap::ValueEnum;
use serde_json::Value;

use crate::text;

/// What lines look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lines {
    /// A JSON object with `key` and `value`, and `expires_ms` of a value that ends.
    Ndjson,
    /// Key, tab, value, each as it is or quoted as $'…'.
    Tsv,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// When the value ends, in milliseconds of the database's time.
    pub expires_ms: Option<u64>,
}

/// What a line of JSON must be.
const WANTED: &str =
    "write {\"key\":…,\"value\":…}, each a string, or {\"hex\":\"00ff\"} for bytes that are no UTF-8";

impl Lines {
    /// Reads a line.
    ///
    /// # Errors
    /// The trouble with it.
    pub fn parse(self, line: &[u8]) -> Result<Entry, String> {
        match self {
            Lines::Ndjson => parse_json(line),
            Lines::Tsv => parse_tsv(line).map(|(key, value)| Entry { key, value, expires_ms: None }),
        }
    }

    /// Whether a line of a value that ends says when.
    pub fn says_ends(self) -> bool {
        self == Lines::Ndjson
    }

    /// Appends a line, its newline included.
    pub fn show(self, key: &[u8], value: &[u8], expires_ms: Option<u64>, line: &mut Vec<u8>) {
        match self {
            Lines::Ndjson => {
                line.extend_from_slice(b"{\"key\":");
                show_json(key, line);
                line.extend_from_slice(b",\"value\":");
                show_json(value, line);
                if let Some(end) = expires_ms {
                    line.extend_from_slice(format!(",\"expires_ms\":{end}").as_bytes());
                }
                line.extend_from_slice(b"}\n");
            }
            Lines::Tsv => {
                line.extend_from_slice(text::shown(key).as_bytes());
                line.push(b'\t');
                line.extend_from_slice(text::shown(value).as_bytes());
                line.push(b'\n');
            }
        }
    }
}

fn parse_json(line: &[u8]) -> Result<Entry, String> {
    let parsed: Value =
        serde_json::from_slice(line).map_err(|error| format!("no JSON ({error}): {WANTED}"))?;
    let Value::Object(mut fields) = parsed else { return Err(format!("no JSON object: {WANTED}")) };
    let expires_ms = match fields.remove("expires_ms") {
        None => None,
        Some(end) => Some(end.as_u64().ok_or_else(|| format!("\"expires_ms\" is no number: {WANTED}"))?),
    };
    let mut take = |name: &str| {
        let value = fields.remove(name).ok_or_else(|| format!("without {name:?}: {WANTED}"))?;
        text::from_json(value)
            .ok_or_else(|| format!("{name:?} is neither a string nor {{\"hex\":…}}: {WANTED}"))
    };
    let (key, value) = (take("key")?, take("value")?);
    match fields.keys().next() {
        None => Ok(Entry { key, value, expires_ms }),
        Some(name) => Err(format!("the field {name:?} has no meaning here: {WANTED}")),
    }
}

fn show_json(bytes: &[u8], line: &mut Vec<u8>) {
    // Writing to memory cannot fail; were it to, the line would be no JSON and say so when it is
    // read.
    match std::str::from_utf8(bytes) {
        Ok(text) => drop(serde_json::to_writer(&mut *line, text)),
        Err(_) => drop(serde_json::to_writer(&mut *line, &text::to_json(bytes))),
    }
}

fn parse_tsv(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let mut fields = line.split(|byte| *byte == b'\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(key), Some(value), None) => {
            let parse =
                |name: &str, field| text::parse_shown(field).map_err(|what| format!("{name}: {what}"));
            Ok((parse("the key", key)?, parse("the value", value)?))
        }
        (_, None, _) => Err("without a tab between key and value".to_owned()),
        _ => Err("with more than one tab: write one that is part of a key or value as $'\\t'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_lines() {
        let show = |form: Lines, key: &[u8], value: &[u8]| {
            let mut line = Vec::new();
            form.show(key, value, None, &mut line);
            String::from_utf8(line).unwrap()
        };
        assert_eq!(show(Lines::Ndjson, b"1", b"a \"b\"\n"), "{\"key\":\"1\",\"value\":\"a \\\"b\\\"\\n\"}\n");
        assert_eq!(show(Lines::Ndjson, b"\0\xff", b""), "{\"key\":{\"hex\":\"00ff\"},\"value\":\"\"}\n");
        assert_eq!(show(Lines::Tsv, b"a\tb", b"\\ \xff\n"), "$'a\\tb'\t$'\\\\ \\xff\\n'\n");
    }

    #[test]
    fn wrong_lines_say_what_is_wrong() {
        for (form, line, word) in [
            (Lines::Ndjson, "{", "no JSON"),
            (Lines::Ndjson, "[]", "no JSON object"),
            (Lines::Ndjson, r#"{"key":"a"}"#, "without \"value\""),
            (Lines::Ndjson, r#"{"key":1,"value":"x"}"#, "\"key\" is neither"),
            (Lines::Ndjson, r#"{"key":{"hex":"0"},"value":"x"}"#, "\"key\" is neither"),
            (Lines::Ndjson, r#"{"key":{"hex":"00","b":1},"value":"x"}"#, "\"key\" is neither"),
            (Lines::Ndjson, r#"{"key":"a","value":null}"#, "\"value\" is neither"),
            (Lines::Ndjson, r#"{"key":"a","value":"b","ttl":5}"#, "\"ttl\""),
            (Lines::Tsv, "only a key", "without a tab"),
            (Lines::Tsv, "a\tb\tc", "more than one tab"),
            (Lines::Tsv, "a\t$'\\q'", "the value: an escape"),
            (Lines::Tsv, "$'a\tb", "the key: it begins"),
        ] {
            let error = form.parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert_eq!(
            Lines::Tsv.parse(b"C:\\new\\\xff\t\\t").unwrap(),
            Entry { key: b"C:\\new\\\xff".to_vec(), value: b"\\t".to_vec(), expires_ms: None },
            "what is not quoted stands for itself"
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(key: Vec<u8>, value: Vec<u8>, text: String, end: Option<u64>) {
            for form in [Lines::Ndjson, Lines::Tsv] {
                for value in [&value[..], text.as_bytes()] {
                    let mut line = Vec::new();
                    let expires_ms = end.filter(|_| form.says_ends());
                    form.show(&key, value, expires_ms, &mut line);
                    prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
                    line.pop();
                    let entry = Entry { key: key.clone(), value: value.to_vec(), expires_ms };
                    prop_assert_eq!(form.parse(&line), Ok(entry));
                }
            }
        }

        #[test]
        fn no_line_panics(line: Vec<u8>) {
            for form in [Lines::Ndjson, Lines::Tsv] {
                let _ = form.parse(&line);
            }
        }
    }
}
