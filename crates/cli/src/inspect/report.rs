//! What was found: parts with their places, and damage.

use serde_json::{Map, Value, json};
use tombolo::Error;
use tombolo_format::FormatError;

use crate::failure::Result;
use crate::output::Output;
use crate::text;

/// A report on one object or file.
pub struct Report {
    name: String,
    kind: &'static str,
    bytes: u64,
    parts: Vec<Part>,
    first_error: Option<Error>,
}

struct Part {
    offset: u64,
    length: Option<u64>,
    what: String,
    fields: Vec<(&'static str, Value)>,
    damaged: bool,
}

impl Report {
    /// An empty report.
    pub fn new(name: &str, bytes: u64) -> Report {
        Report { name: name.to_owned(), kind: "foreign", bytes, parts: Vec::new(), first_error: None }
    }

    /// Says what the bytes are.
    pub fn kind(&mut self, kind: &'static str) {
        self.kind = kind;
    }

    /// Adds a sound part.
    pub fn part(
        &mut self,
        offset: u64,
        length: impl Into<Option<u64>>,
        what: impl Into<String>,
        fields: Vec<(&'static str, Value)>,
    ) {
        self.parts.push(Part { offset, length: length.into(), what: what.into(), fields, damaged: false });
    }

    /// Adds damage: an error whose offset counts from `base`.
    pub fn damage(&mut self, base: u64, what: &str, error: FormatError) {
        let error = Error::format(&self.name, base, error);
        let mut fields = vec![("problem", json!(error.message()))];
        let mut field = |name, value: Option<&str>| fields.extend(value.map(|value| (name, json!(value))));
        field("expected", error.expectation());
        field("found", error.finding());
        self.parts.push(Part {
            offset: error.position().unwrap_or(base),
            length: None,
            what: what.to_owned(),
            fields,
            damaged: true,
        });
        self.first_error.get_or_insert(error);
    }

    /// Bytes that are nothing of ours.
    pub fn foreign(&mut self, bytes: &[u8]) {
        let head = &bytes[..bytes.len().min(16)];
        let expected =
            "the magic of a table, log, record, snapshot or incarnation; say --as KIND to read it as one";
        self.damage(
            0,
            "foreign file",
            FormatError::damaged(
                0,
                expected,
                format!("{} bytes beginning with {}", bytes.len(), text::shown(head)),
            ),
        );
        let advice = "name a file of a database, or one of its objects; `tombolo inspect URI` lists those \
            of a database";
        self.first_error = self.first_error.take().map(|error| error.advice(advice));
    }

    /// The first damage, as the command's error.
    pub fn into_error(self) -> Option<Error> {
        self.first_error
    }

    /// Prints the report.
    pub fn print(&self, output: &Output) -> Result<()> {
        if output.is_json() {
            return output.line(self.to_json());
        }
        self.lines().try_for_each(|line| output.line(line))
    }

    /// The report's lines.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let head = format!("{}: {}, {} bytes", self.name, self.kind, text::count(self.bytes));
        std::iter::once(head).chain(self.parts.iter().map(|part| {
            let length = part.length.map_or(String::new(), |length| format!("+{length}"));
            let fields: Vec<String> =
                part.fields.iter().map(|(name, value)| format!("{name} {}", show(value))).collect();
            let mark = if part.damaged { "DAMAGED " } else { "" };
            format!("  {:>10} {length:<9} {mark}{}  {}", part.offset, part.what, fields.join(", "))
                .trim_end()
                .to_owned()
        }))
    }

    fn to_json(&self) -> Value {
        let parts: Vec<Value> = self
            .parts
            .iter()
            .map(|part| {
                let mut object = Map::new();
                object.insert("offset".to_owned(), json!(part.offset));
                object.insert("length".to_owned(), json!(part.length));
                object.insert("what".to_owned(), json!(part.what));
                object.insert("damaged".to_owned(), json!(part.damaged));
                object.extend(part.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
                Value::Object(object)
            })
            .collect();
        json!({
            "name": self.name, "kind": self.kind, "bytes": self.bytes,
            "damaged": self.first_error.is_some(), "parts": parts
        })
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(_) | Value::Object(_) => {
            text::from_json(value.clone()).map_or_else(|| value.to_string(), |bytes| text::shown(&bytes))
        }
        other => other.to_string(),
    }
}
