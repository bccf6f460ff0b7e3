//! Value objects: header, records, footer.

use bytes::Bytes;
use serde_json::json;
use tombolo_format::FormatError;
use tombolo_format::value_object::{
    Next, VALUE_OBJECT_FOOTER_BYTES, VALUE_OBJECT_HEADER_BYTES, ValueObjectChecker, ValueObjectHeader,
};

use super::report::Report;

/// Reports on a value object; each record with `entries`.
pub fn inspect(bytes: &Bytes, entries: bool, report: &mut Report) {
    report.kind("value object");
    let header = match ValueObjectHeader::decode(bytes) {
        Ok(header) => header,
        Err(error) => return report.damage(0, "header", error),
    };
    let fields = vec![
        ("keyspace", json!(header.keyspace)),
        ("identity", json!(format!("{:016x}", header.identity))),
        ("checksum", json!("right")),
    ];
    report.part(0, VALUE_OBJECT_HEADER_BYTES as u64, "header", fields);
    // The identity is the header's own: whether it is the manifest's, `verify` knows.
    let checked = ValueObjectChecker::begin(bytes, header.keyspace, header.identity)
        .and_then(|checker| records(bytes, checker, entries, report));
    if let Err(error) = checked {
        report.damage(0, "record or footer", error);
    }
}

fn records(
    bytes: &Bytes,
    mut checker: ValueObjectChecker,
    entries: bool,
    report: &mut Report,
) -> Result<(), FormatError> {
    loop {
        let at = usize::try_from(checker.at()).unwrap_or(usize::MAX);
        let rest = bytes.get(at..).unwrap_or_default();
        match checker.next(rest, bytes.len() as u64)? {
            Next::Record(length) => {
                let record = bytes.slice(at..at + length as usize);
                checker.record(&record)?;
                if entries {
                    let fields = vec![("checksum", json!("right"))];
                    report.part(at as u64, u64::from(length), "record", fields);
                }
            }
            Next::Footer => {
                let footer = checker.end(rest)?;
                let fields = vec![
                    ("records", json!(footer.records)),
                    ("value_bytes", json!(footer.value_bytes)),
                    ("checksum", json!("right")),
                ];
                report.part(at as u64, VALUE_OBJECT_FOOTER_BYTES as u64, "footer", fields);
                return Ok(());
            }
        }
    }
}
