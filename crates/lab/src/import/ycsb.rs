//! What YCSB prints when its database `basic` is verbose: one line of each operation.
//!
//! `READ table key [ fields ]`, `UPDATE` and `INSERT` with the fields and their values, `SCAN table
//! key length [ fields ]`, `DELETE table key`. The lines have no times. Other lines are YCSB's
//! properties and results.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use tombolo_format::trace::{Asked, Event, Header, TracedKeys};

use super::lines::{KEY_BYTES_MAX, next_line, wrong_line};
use super::records::Counted;
use crate::trace::{TraceError, TraceWriter};

const TABLES_MAX: usize = 1 << 12;

/// What an operation's line says behind the verb.
struct Said<'a> {
    asked: Asked,
    table: &'a str,
    key: &'a str,
    value_bytes: usize,
    entries: u32,
}

fn verb(line: &str) -> Option<(Asked, &str)> {
    let (word, rest) = line.split_once(' ')?;
    let asked = match word {
        "READ" => Asked::Get,
        "UPDATE" | "INSERT" => Asked::Put,
        "SCAN" => Asked::Scan,
        "DELETE" => Asked::Delete,
        _ => return None,
    };
    Some((asked, rest))
}

fn said(asked: Asked, rest: &str) -> Option<Said<'_>> {
    let (table, rest) = rest.split_once(' ')?;
    let (key, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let (mut value_bytes, mut entries) = (0, 0);
    // Behind a key is a list of fields, but for deletes.
    let list = match asked {
        Asked::Delete if rest.is_empty() => None,
        Asked::Delete => return None,
        Asked::Scan => {
            let (length, list) = rest.split_once(' ')?;
            entries = length.parse().ok()?;
            Some(list)
        }
        _ => Some(rest),
    };
    if let Some(list) = list {
        let inner = list.strip_prefix('[')?.strip_suffix(']')?;
        if asked == Asked::Put {
            let inner = inner.strip_prefix(' ').unwrap_or(inner);
            value_bytes = inner.strip_suffix(' ').unwrap_or(inner).len();
        }
    }
    let is_whole = !table.is_empty() && !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    is_whole.then_some(Said { asked, table, key, value_bytes, entries })
}

/// Reads the operations that YCSB printed into a trace; gives the file back. A table is a keyspace.
/// A value has the bytes of its fields as they are printed, with their names.
///
/// # Errors
/// Those of the files; `Invalid` with the number of a line that begins like an operation and is
/// none, unless it salvages, and when no line is an operation.
pub fn import_ycsb<W: Write>(
    mut input: impl BufRead,
    output: W,
    salvages: bool,
) -> Result<(W, Counted), TraceError> {
    let header = Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: "ycsb".to_owned(),
    };
    let (mut writer, mut counted) = (TraceWriter::new(output, &header)?, Counted::default());
    let mut tables: BTreeMap<String, u32> = BTreeMap::new();
    let (mut line, mut number) = (None, 0_u64);
    while next_line(&mut input, &mut line)? {
        number += 1;
        let Some((asked, rest)) = line.as_deref().and_then(verb) else {
            *counted.passed_over.entry("lines of properties and results".to_owned()).or_default() += 1;
            continue;
        };
        let parsed =
            said(asked, rest).filter(|said| tables.len() < TABLES_MAX || tables.contains_key(said.table));
        match parsed {
            Some(said) => {
                let next = u32::try_from(tables.len()).unwrap_or(u32::MAX);
                let keyspace = match tables.get(said.table) {
                    Some(keyspace) => *keyspace,
                    None => {
                        writer.name(next, said.table)?;
                        tables.insert(said.table.to_owned(), next);
                        next
                    }
                };
                let mut event = Event::new(0, said.asked, keyspace, said.key.as_bytes());
                event.value_bytes = u32::try_from(said.value_bytes).unwrap_or(u32::MAX);
                event.entries = said.entries;
                writer.push(&event)?;
                *counted.events.entry(said.asked.name()).or_default() += 1;
                *counted.keyspaces.entry(keyspace).or_default() += 1;
            }
            None if salvages => {
                *counted.passed_over.entry("lines that begin like operations".to_owned()).or_default() += 1;
            }
            None => return Err(wrong_line(number, line.as_deref(), "operation of YCSB", writer.events())),
        }
    }
    if counted.events.is_empty() {
        let text = format!(
            "none of {number} lines is an operation: let YCSB print them with `ycsb run basic -p \
            basicdb.verbose=true`"
        );
        return Err(TraceError::Invalid(text));
    }
    Ok((writer.finish()?, counted))
}
