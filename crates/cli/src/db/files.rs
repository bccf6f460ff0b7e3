//! `tombolo db delete-files-in-range`.

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use tombolo::{Keyspace, OpenMode, Result as DbResult};

use super::write::parse_range;
use super::{Common, close_after};
use crate::database::TakeOverArguments;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text;

/// Arguments of `delete-files-in-range`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db delete-files-in-range file:///data/events 2025- 2026-

No key of the range has a value afterwards. Tables that hold nothing else go at once; the others
stay until compaction, as with delete-range.")]
pub struct DeleteFilesInRange {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// The first key that goes.
    from: OsString,
    /// The first key after it that stays.
    to: OsString,
}

/// What the tables of a keyspace take: how many, and their bytes.
fn tables(keyspace: &Keyspace) -> DbResult<(u64, u64)> {
    let all = keyspace.table_properties()?;
    Ok((all.len() as u64, all.iter().map(|table| table.bytes).sum()))
}

/// Runs `delete-files-in-range`.
pub fn run(arguments: &DeleteFilesInRange, output: &Output) -> Result<()> {
    let (from, to) = parse_range(arguments.common.form(), &arguments.from, &arguments.to)?;
    let (db, keyspace) = arguments.common.open(OpenMode::Open, &arguments.take_over)?;
    let work = || {
        let before = tables(&keyspace)?;
        keyspace.delete_files_in_range(&from, &to).wait()?;
        Ok((before, tables(&keyspace)?))
    };
    let epoch = db.epoch().0;
    let worked = work().map_err(|error: tombolo::Error| Failure::from(error));
    let (before, after) = close_after(&db, worked)?;
    let sizes = |(tables, bytes)| json!({ "tables": tables, "table_bytes": bytes });
    let shown = |(tables, bytes)| format!("{} of {}", text::counted(tables, "table"), text::bytes(bytes));
    let text = || format!("the keyspace had {}, and has {}", shown(before), shown(after));
    output.result(|| json!({ "epoch": epoch, "before": sizes(before), "after": sizes(after) }), text)
}
