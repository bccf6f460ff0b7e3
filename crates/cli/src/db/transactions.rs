//! `tombolo db transactions`: those that are prepared and not decided.

use clap::{Args, Subcommand};
use serde_json::json;
use tombolo::{Db, InDoubt, OpenMode};

use super::close_after;
use crate::database::{DatabaseArguments, LookArguments, WriterArguments};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text;

/// What to do about prepared transactions.
#[derive(Subcommand)]
pub enum Command {
    /// Lists the transactions that are prepared and wait for their decision.
    List(List),
    /// Commits a prepared transaction, or rolls it back.
    Decide(Decide),
}

/// Arguments of `list`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db transactions list file:///data/orders
  tombolo --json db transactions list s3://bucket/orders

Nobody else writes the keys of a prepared transaction until it is decided. Ids that are no text are shown as \\xNN.")]
pub struct List {
    #[command(flatten)]
    database: DatabaseArguments,
}

/// Arguments of `decide`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db transactions decide file:///data/orders 'transfer 17' --commit
  tombolo db transactions decide file:///data/orders 'transfer 17' --roll-back

Decide as the program that coordinates the transaction has written it down, the same in all databases that take part. Deciding the same twice
succeeds.")]
pub struct Decide {
    #[command(flatten)]
    writer: WriterArguments,
    /// Its id.
    id: String,
    /// Makes its writes take effect.
    #[arg(long, required_unless_present = "roll_back", conflicts_with = "roll_back")]
    commit: bool,
    /// Rolls it back.
    #[arg(long)]
    roll_back: bool,
}

/// Runs a command.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::List(arguments) => list(arguments, output),
        Command::Decide(arguments) => decide(arguments, output),
    }
}

fn list(arguments: &List, output: &Output) -> Result<()> {
    let look = LookArguments::default();
    let in_doubt = |db: &Db| db.in_doubt().wait().map_err(Failure::from);
    let (all, as_of) = arguments.database.look_dated(&look, output, in_doubt)?;
    let id = |one: &InDoubt| one.id.escape_ascii().to_string();
    as_of.result(
        output,
        || {
            let one = |one: &InDoubt| {
                json!({
                    "id": id(one), "prepared_unix_ms": one.prepared_unix_ms, "writes": one.writes,
                    "bytes": one.bytes, "is_own": one.is_own,
                })
            };
            json!({ "in_doubt": all.iter().map(one).collect::<Vec<_>>() })
        },
        || {
            let line = |one: &InDoubt| {
                let since = text::date(one.prepared_unix_ms / 1000);
                let origin =
                    if one.is_own { "" } else { ", of another database: it may only be rolled back" };
                let writes = text::counted(one.writes.into(), "write");
                format!("{}: {writes} of {}, prepared {since}{origin}", id(one), text::bytes(one.bytes))
            };
            match &all[..] {
                [] => "no transaction is in doubt".to_owned(),
                all => all.iter().map(line).collect::<Vec<_>>().join("\n"),
            }
        },
    )
}

fn decide(arguments: &Decide, output: &Output) -> Result<()> {
    let db = arguments.writer.open(OpenMode::Open)?;
    let decided = db.decide(&arguments.id, arguments.commit).wait().map_err(Failure::from);
    close_after(&db, decided)?;
    let end = if arguments.commit { "committed" } else { "rolled back" };
    output.result(|| json!({ "id": arguments.id, "end": end }), || format!("{} is {end}", arguments.id))
}
