//! `tombolo standby`: waits beside a writer, and takes its place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tombolo::{Db, ErrorKind, StandbyOptions};

use crate::database::DatabaseArguments;
use crate::failure::Result;
use crate::interrupt;
use crate::output::Output;

/// Arguments of `standby`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo standby file:///data/orders
  tombolo standby file:///data/orders --silence-ms 500 --once

The writer, whatever program it is, gives signs of life while somebody stands by. Once it falls silent, or hands over, this process claims the
database, recovers everything acknowledged, and keeps it open, with flushes and compactions going on, until Ctrl-C; then it hands over to
another standby if there is one, else it closes. A writer that was only slow learns at its next write that it is fenced; nothing it had
acknowledged is lost.")]
pub struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// How long the writer may be silent before it is replaced, in milliseconds.
    #[arg(
        long, value_name = "MS", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(40..=3_600_000)
    )]
    silence_ms: u64,
    /// Close the database and end once it was taken over, instead of keeping it open.
    #[arg(long)]
    once: bool,
}

/// How often a command that holds a database looks whether it was interrupted, or fenced.
const LOOK: Duration = Duration::from_millis(50);

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let options = StandbyOptions { silence_max: Duration::from_millis(arguments.silence_ms) };
    let standby = interrupt::wait(arguments.database.builder()?.stand_by(options), &interrupted, || ())?;
    let (store, epoch) = (&arguments.database.store, standby.epoch());
    output.result(
        || json!({ "standing_by_for_epoch": epoch.0, "store": store }),
        || format!("standing by for epoch {epoch} of {store}"),
    )?;
    output.finish()?;
    let db = interrupt::wait(standby.take_over(), &interrupted, || ())?;
    let opened = Duration::from_nanos(db.stats().open_nanos);
    output.result(
        || json!({ "took_over_with_epoch": db.epoch().0, "open_nanos": db.stats().open_nanos }),
        || format!("took over with epoch {}; opening took {opened:.1?}", db.epoch()),
    )?;
    output.finish()?;
    if !arguments.once {
        hold(&db, &interrupted)?;
    }
    leave(&db, output)
}

/// Keeps the database open until Ctrl-C.
fn hold(db: &Db, interrupted: &AtomicBool) -> Result<()> {
    while !interrupted.load(Ordering::Relaxed) {
        if let Some(error) = db.failure() {
            return Err(error.into());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Hands over to another standby, or closes.
fn leave(db: &Db, output: &Output) -> Result<()> {
    let began = Instant::now();
    match db.hand_over().wait() {
        Ok(()) => output
            .result(|| json!({ "handed_over": true }), || format!("handed over in {:.1?}", began.elapsed())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            db.close().wait()?;
            output.result(|| json!({ "handed_over": false }), || "closed; nobody stands by".to_owned())
        }
        Err(error) => Err(error.into()),
    }
}
