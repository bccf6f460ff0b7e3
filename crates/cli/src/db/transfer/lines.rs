//! One entry as one line.

use clap::ValueEnum;
use serde_json::Value;
use tombolo::Unfolded;
use tombolo_format::key::check_limits;

use crate::text;

/// What lines look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lines {
    /// A JSON object with `key` and `value`, and `expires_ms` of a value that ends; others change
    /// keys in other ways.
    Ndjson,
    /// Key, tab, value, each as it is or quoted as $'…'.
    Tsv,
}

/// What a line says: of one key, or of the keys from this one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub change: Change,
}

/// What becomes of a key. JSON says each as its comment shows, in every command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `{"key":…,"value":…}`, and `"expires_ms":…` when the value ends: in milliseconds of the
    /// database's time.
    Put { value: Vec<u8>, expires_ms: Option<u64> },
    /// `{"key":…,"merge":…}`: the operand; with `"expires_ms":…` when what it comes to ends.
    Merge { operand: Vec<u8>, expires_ms: Option<u64> },
    /// `{"key":…,"delete":true}`.
    Delete,
    /// `{"key":…,"delete":"single"}`.
    SingleDelete,
    /// `{"key":…,"delete_to":…}`: all keys from `key` on and before this one.
    DeleteTo(Vec<u8>),
}

impl Entry {
    /// A put.
    pub fn put(key: &[u8], value: &[u8], expires_ms: Option<u64>) -> Entry {
        Entry { key: key.to_vec(), change: Change::Put { value: value.to_vec(), expires_ms } }
    }

    /// The bytes beside the key.
    pub fn value(&self) -> &[u8] {
        match &self.change {
            Change::Put { value: bytes, .. }
            | Change::Merge { operand: bytes, .. }
            | Change::DeleteTo(bytes) => bytes,
            Change::Delete | Change::SingleDelete => &[],
        }
    }

    /// # Errors
    /// The trouble with it.
    fn check(self) -> Result<Entry, String> {
        let limits = match &self.change {
            Change::DeleteTo(to) if *to <= self.key => {
                return Err(
                    "no key is from \"key\" on and before \"delete_to\", which is the greater".to_owned()
                );
            }
            Change::DeleteTo(to) => check_limits(&self.key, &[]).and_then(|()| check_limits(to, &[])),
            _ => check_limits(&self.key, self.value()),
        };
        limits.map(|()| self).map_err(|error| error.to_string())
    }
}

/// What a line of JSON must be.
const WANTED: &str = "write {\"key\":…,\"value\":…}, each a string, or {\"hex\":\"00ff\"} for bytes that are no \
    UTF-8; or with \"merge\", \"delete\" or \"delete_to\" in the place of \"value\"";

impl Lines {
    /// Reads a line.
    ///
    /// # Errors
    /// The trouble with it.
    pub fn parse(self, line: &[u8]) -> Result<Entry, String> {
        let entry = match self {
            Lines::Ndjson => parse_json(line)?,
            Lines::Tsv => parse_tsv(line)?,
        };
        entry.check()
    }

    /// Whether a line of a value that ends says when.
    pub fn says_ends(self) -> bool {
        self == Lines::Ndjson
    }

    /// Whether lines say what was merged into a key.
    pub fn says_merges(self) -> bool {
        self == Lines::Ndjson
    }

    /// Appends the lines of a key whose operands are not folded: its value, or that it has none,
    /// and each operand.
    pub fn show_unfolded(self, key: &[u8], unfolded: &Unfolded, line: &mut Vec<u8>) {
        match &unfolded.value {
            Some(value) => self.show(key, value, unfolded.value_expires_ms, line),
            None => {
                line.extend_from_slice(b"{\"key\":");
                show_json(key, line);
                line.extend_from_slice(b",\"delete\":true}\n");
            }
        }
        for operand in &unfolded.operands {
            line.extend_from_slice(b"{\"key\":");
            show_json(key, line);
            line.extend_from_slice(b",\"merge\":");
            show_json(operand, line);
            line.extend_from_slice(b"}\n");
        }
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
    let mut bytes = |name: &str| {
        let wrong = || format!("{name:?} is neither a string nor {{\"hex\":…}}: {WANTED}");
        fields.remove(name).map(|value| text::from_json(value).ok_or_else(wrong)).transpose()
    };
    let key = bytes("key")?.ok_or_else(|| format!("without \"key\": {WANTED}"))?;
    let (value, operand, to) = (bytes("value")?, bytes("merge")?, bytes("delete_to")?);
    let expires_ms = match fields.remove("expires_ms") {
        None => None,
        Some(end) => Some(end.as_u64().ok_or_else(|| format!("\"expires_ms\" is no number: {WANTED}"))?),
    };
    let delete = match fields.remove("delete") {
        None => None,
        Some(Value::Bool(true)) => Some(Change::Delete),
        Some(Value::String(how)) if how == "single" => Some(Change::SingleDelete),
        Some(_) => return Err(format!("\"delete\" is neither true nor \"single\": {WANTED}")),
    };
    if let Some(name) = fields.keys().next() {
        return Err(format!("the field {name:?} has no meaning here: {WANTED}"));
    }
    if value.is_none() && operand.is_none() && expires_ms.is_some() {
        return Err(format!("\"expires_ms\" without \"value\" or \"merge\": {WANTED}"));
    }
    let put = value.map(|value| Change::Put { value, expires_ms });
    let merge = operand.map(|operand| Change::Merge { operand, expires_ms });
    let said = [put, merge, to.map(Change::DeleteTo), delete];
    let mut said = said.into_iter().flatten();
    match (said.next(), said.next()) {
        (Some(change), None) => Ok(Entry { key, change }),
        (None, _) => Err(format!("without \"value\": {WANTED}")),
        (Some(_), Some(_)) => Err(format!("two changes of one key: {WANTED}")),
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

fn parse_tsv(line: &[u8]) -> Result<Entry, String> {
    let mut fields = line.split(|byte| *byte == b'\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(key), Some(value), None) => {
            let parse =
                |name: &str, field| text::parse_shown(field).map_err(|what| format!("{name}: {what}"));
            Ok(Entry::put(&parse("the key", key)?, &parse("the value", value)?, None))
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
            (Lines::Ndjson, r#"{"key":"a","value":"b","expires_ms":"soon"}"#, "no number"),
            (Lines::Ndjson, r#"{"key":"a","delete":true,"expires_ms":5}"#, "without \"value\""),
            (Lines::Ndjson, r#"{"key":"a","delete":false}"#, "neither true nor"),
            (Lines::Ndjson, r#"{"key":"a","delete":"twice"}"#, "neither true nor"),
            (Lines::Ndjson, r#"{"key":"a","value":"b","merge":"c"}"#, "two changes"),
            (Lines::Ndjson, r#"{"key":"b","delete_to":"b"}"#, "no key is from"),
            (Lines::Ndjson, r#"{"key":"a","merge":7}"#, "\"merge\" is neither"),
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
            Entry::put(b"C:\\new\\\xff", b"\\t", None),
            "what is not quoted stands for itself"
        );
    }

    #[test]
    fn lines_change_keys_in_each_way() {
        for (line, change) in [
            (r#"{"key":"a","merge":"1"}"#, Change::Merge { operand: b"1".to_vec(), expires_ms: None }),
            (r#"{"key":"a","delete":true}"#, Change::Delete),
            (r#"{"delete":"single","key":"a"}"#, Change::SingleDelete),
            (r#"{"key":"a","delete_to":{"hex":"ff"}}"#, Change::DeleteTo(vec![0xff])),
        ] {
            let entry = Entry { key: b"a".to_vec(), change };
            assert_eq!(Lines::Ndjson.parse(line.as_bytes()), Ok(entry), "{line}");
        }
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
                    let entry = form.parse(&line);
                    prop_assert_eq!(entry, Entry::put(&key, value, expires_ms).check());
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
