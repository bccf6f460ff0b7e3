//! `tombolo db clones`: databases that share a database's tables.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tombolo::{CloneState, SharedClone};

use crate::database::DatabaseArguments;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::text;

/// Databases that share this one's tables: `tombolo db clone --share` and
/// `tombolo db checkpoint restore --share` make them.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  tombolo db clone s3://bucket/orders s3://bucket/orders-for-tests --share
  tombolo db clones list s3://bucket/orders
  tombolo db compact s3://bucket/orders-for-tests        makes the clone's tables its own; the pin goes with the last of them
  tombolo db destroy s3://bucket/orders-for-tests        gives the pin back as well
  tombolo db clones release s3://bucket/orders 00c0ffee00c0ffee00c0ffee00c0ffee

A clone's pin keeps the tables that it names, and keeps its source from being destroyed. A clone whose objects were deleted without `db destroy` leaves
its pin: `release` gives it back once the clone's place shows that nobody needs it, and so does `tombolo gc --delete`. That nothing is found there
shows nothing, as the place may be out of reach: if you know that the clone is gone for good, say --force.")]
pub enum Command {
    /// Lists them, each asked whether it needs what it shares. Disturbs nobody.
    List(DatabaseArguments),
    /// Gives back the tables kept for one that is gone.
    Release(One),
}

/// A clone.
#[derive(Args)]
pub struct One {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The number of its pin, as the list gives it.
    #[arg(value_name = "ID")]
    id: String,
    /// Also when nothing proves that it is gone. A clone that is not loses its data.
    #[arg(long)]
    force: bool,
}

/// A state in a word.
pub fn word(state: CloneState) -> &'static str {
    match state {
        CloneState::Needed => "needed",
        CloneState::Undecided => "undecided",
        CloneState::Unneeded => "unneeded",
        _ => "unknown",
    }
}

/// A clone for programs.
pub fn to_json(clone: &SharedClone) -> Value {
    json!({
        "id": format!("{:032x}", clone.id), "place": clone.place,
        "created_unix_seconds": clone.created_unix_seconds,
        "tables": clone.tables, "state": word(clone.state), "why": clone.why,
    })
}

fn to_text(clone: &SharedClone) -> String {
    let (created, tables) = (text::date(clone.created_unix_seconds), text::counted(clone.tables, "table"));
    format!(
        "{:032x}\t{}\t{created}, shares {tables}\t{}: {}",
        clone.id,
        clone.place,
        word(clone.state),
        clone.why
    )
}

/// Runs a command.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    match command {
        Command::List(database) => {
            let clones = interrupt::wait(database.builder()?.clones(), &interrupted, || ())?;
            clones.iter().try_for_each(|clone| output.result(|| to_json(clone), || to_text(clone)))
        }
        Command::Release(One { database, id, force }) => {
            let number = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32);
            let Some(number) = number else {
                return Err(Failure::Usage(format!(
                    "{id:?} is no number of a pin: `tombolo db clones list` gives them, of 32 digits"
                )));
            };
            interrupt::wait(database.builder()?.release_clone(number, *force), &interrupted, || ())?;
            output.result(|| json!({ "released": id }), || format!("nothing is kept any more for clone {id}"))
        }
    }
}
