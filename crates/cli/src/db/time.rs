//! `tombolo db time`: the time by which values expire.

use clap::Args;
use serde_json::json;
use tombolo::{Db, Env, OpenMode};

use super::close_after;
use crate::database::WriterArguments;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text;

/// Arguments of `time`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db time file:///data/orders
  tombolo db time file:///data/orders --reset

The database's time follows the clock of the host that writes, and never goes back by itself. A clock that ran ahead leaves it ahead, and values
are hidden too early. Correct the clock, then --reset: what was hidden by mistake is there again, unless it expired an hour ago or more.")]
pub struct Arguments {
    #[command(flatten)]
    writer: WriterArguments,
    /// Sets the database's time to this host's clock. Without it the command only looks.
    #[arg(long)]
    reset: bool,
}

/// The database's time, and the clock's beside it, in milliseconds since 1970.
fn times(db: &Db) -> (u64, u64) {
    let clock = u64::try_from(Env::real().unix_time().as_millis()).unwrap_or(u64::MAX);
    (db.time_ms(), clock)
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let ((before, clock), after, as_of) = if arguments.reset {
        let db = arguments.writer.open(OpenMode::Open)?;
        let before = times(&db);
        let reset = db.reset_time().wait().map(|()| db.time_ms()).map_err(Failure::from);
        (before, close_after(&db, reset)?, None)
    } else {
        let look = crate::database::LookArguments::default();
        let (found, as_of) = arguments.writer.database.look_dated(&look, output, |db| Ok(times(db)))?;
        (found, found.0, Some(as_of))
    };
    let shown = |milliseconds: u64| text::date(milliseconds / 1000);
    let ahead = |time: u64| match time.saturating_sub(clock) {
        0..=999 => "as this host's clock".to_owned(),
        ahead => format!("{} s ahead of this host's clock", ahead / 1000),
    };
    let value = || {
        json!({
            "time_ms": after, "clock_ms": clock, "ahead_ms": after.saturating_sub(clock),
            "before_ms": arguments.reset.then_some(before),
        })
    };
    let now = format!("{}, {}", shown(after), ahead(after));
    match as_of {
        Some(as_of) => as_of.result(output, value, || now),
        None => output.result(value, || format!("{now}; it was {}, {}", shown(before), ahead(before))),
    }
}
