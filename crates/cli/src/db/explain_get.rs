//! `tombolo db explain-get`: what a get asks, and why.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tombolo::{GetExplanation, GetPiece, GetStep, GetWhence};

use super::Common;
use crate::database::LookArguments;
use crate::failure::Result;
use crate::output::Output;
use crate::text;

/// Arguments of `explain-get`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db explain-get file:///data/orders 42
  tombolo --json db explain-get s3://bucket/orders --keyspace words recent

The command opens the database for reading, so that its caches are empty: what a program that runs would have in memory is read from the store here.
A program asks itself with Keyspace::explain_get.")]
pub struct ExplainGet {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    look: LookArguments,
    /// The key.
    key: OsString,
}

fn whence(whence: GetWhence) -> &'static str {
    match whence {
        GetWhence::Memory => "memory",
        GetWhence::Flash => "flash cache",
        _ => "store",
    }
}

fn piece_json(piece: Option<GetPiece>) -> Value {
    piece.map_or(
        Value::Null,
        |piece| json!({ "offset": piece.offset, "bytes": piece.bytes, "from": whence(piece.whence) }),
    )
}

fn step_json(step: &GetStep) -> Value {
    let versions = step.versions.iter().map(|version| {
        json!({
            "sequence": version.sequence, "kind": version.kind, "value_bytes": version.value_bytes,
            "hidden": version.is_hidden,
        })
    });
    json!({
        "source": step.source, "level": step.level, "opened": step.opened, "filter": step.filter,
        "index": piece_json(step.index), "row": step.row, "block": piece_json(step.block),
        "range_delete": step.range_delete, "versions": versions.collect::<Vec<_>>(), "last": step.is_last,
    })
}

fn step_text(step: &GetStep) -> String {
    let mut said = Vec::new();
    if step.opened {
        said.push("opened".to_owned());
    }
    let piece = |what: &str, piece: GetPiece| {
        let (bytes, from) = (text::bytes(piece.bytes), whence(piece.whence));
        format!("{what} of {bytes} at {} from {from}", piece.offset)
    };
    said.extend(step.index.map(|index| piece("index", index)));
    match step.filter {
        Some(false) => said.push("its filter says no".to_owned()),
        Some(true) => said.push("its filter lets the key pass".to_owned()),
        None if step.level.is_some() => said.push("its keys end before".to_owned()),
        None => {}
    }
    if step.row {
        said.push("the row was kept".to_owned());
    }
    said.extend(step.block.map(|block| piece("block", block)));
    for version in &step.versions {
        let hidden = if version.is_hidden { ", hidden by a range delete" } else { "" };
        let bytes = text::counted(version.value_bytes, "byte");
        said.push(format!("write {}, kind {}, {bytes}{hidden}", version.sequence, version.kind));
    }
    if step.versions.is_empty() {
        said.push("the key is not in it".to_owned());
    }
    said.extend(step.range_delete.map(|number| format!("range delete by write {number}")));
    let level = step.level.map_or_else(String::new, |level| format!("level {level}, "));
    format!("{level}{}: {}", step.source, said.join("; "))
}

/// Runs the command.
pub fn run(arguments: &ExplainGet, output: &Output) -> Result<()> {
    let key = arguments.common.form().parse(&arguments.key)?;
    let (explained, as_of): (GetExplanation, _) =
        arguments
            .common
            .look(&arguments.look, output, |keyspace| Ok(keyspace.explain_get(&key).wait()?))?;
    as_of.result(
        output,
        || {
            let steps: Vec<_> = explained.steps.iter().map(step_json).collect();
            json!({
                "sequence": explained.sequence, "steps": steps,
                "tables_elsewhere": explained.not_asked.elsewhere, "tables_below": explained.not_asked.below,
                "value_bytes": explained.value_bytes, "nanos": explained.nanos,
            })
        },
        || {
            let mut lines: Vec<_> = explained.steps.iter().map(step_text).collect();
            let elsewhere = text::counted(explained.not_asked.elsewhere, "table");
            let below = text::counted(explained.not_asked.below, "table");
            lines.push(format!("not asked: {elsewhere} of other keys, {below} below the answer"));
            let took = text::duration(Duration::from_nanos(explained.nanos));
            lines.push(match explained.value_bytes {
                Some(bytes) => format!("a value of {}, in {took}", text::counted(bytes, "byte")),
                None => format!("no value, in {took}"),
            });
            lines.join("\n")
        },
    )
}
