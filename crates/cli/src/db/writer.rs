//! `tombolo db writer`: who has a database open.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tombolo::{Presence, Writer};

use crate::database::{DatabaseArguments, presence};
use crate::failure::Result;
use crate::interrupt;
use crate::output::Output;

/// Arguments of `writer`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db writer file:///data/orders
  tombolo --json db writer s3://bucket/orders --no-ask

A writer on this host, and one that has closed the database, is known at once. Any other is asked for a sign of life, which takes up to 75 s and
needs the right to write to the store; with --no-ask the answer is then 'unknown'.")]
pub struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// Asks nobody for a sign of life.
    #[arg(long)]
    no_ask: bool,
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let builder = arguments.database.builder()?;
    let presence = match arguments.no_ask {
        true => builder.presence(Duration::ZERO).wait()?,
        false => presence(&builder, &interrupted)?,
    };
    let (state, writer) = match &presence {
        Presence::Nobody => ("nobody", None),
        Presence::Closed(writer) => ("closed", Some(writer)),
        Presence::Dead(writer) => ("dead", Some(writer)),
        Presence::Alive(writer, _) => ("alive", Some(writer)),
        Presence::Unknown(writer) => ("unknown", Some(writer)),
    };
    output.result(
        || match writer {
            None => json!({ "state": state }),
            Some(Writer { epoch, host, program, process, since_unix_seconds, .. }) => json!({
                "state": state, "host": host, "program": program, "process": process,
                "since_unix_seconds": since_unix_seconds, "epoch": epoch.0,
            }),
        },
        || match writer {
            None => "nobody has opened it yet".to_owned(),
            Some(writer) => format!("{state}: {writer}"),
        },
    )
}
