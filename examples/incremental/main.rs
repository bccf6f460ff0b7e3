//! Queries that are kept up to date: five of Nexmark's, as operators on Z-sets.
//!
//! ```console
//! $ cargo run --release -p tombolo-examples --bin nexmark
//! $ cargo run --release -p tombolo-examples --bin nexmark -- 200000
//! ```
//!
//! It starts itself once more as a worker, kills it again and again, goes on from a checkpoint in
//! another place, and compares all results with those of plain memory.
//!
//! What to copy:
//! 1. State is Z-sets: typed keyspaces with the operator `weights`. A step reads what was before
//!    it, and adds what it changes.
//! 2. All that a step changes goes into one sorted batch, with the place to go on from. Small steps
//!    go through the log, and large ones become tables at once. Each event counts once.
//! 3. Keys have the greatest first where a query wants the greatest.
//! 4. Timers say when state is needed no more, and are part of it.
//! 5. A checkpoint is a consistent cut of all queries; a database that is restored from it stands
//!    alone.

mod events;
mod plain;
mod queries;
mod zset;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use tombolo::Db;

use queries::Queries;

type Failure = Box<dyn std::error::Error>;

const SEED: u64 = 34;
const EVENTS: u64 = 4_000;
/// Events of one step.
const STEP: u64 = 100;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [uri, events] => work(uri, events.parse()?),
        [events] => show(events.parse()?),
        _ => show(EVENTS),
    }
}

/// The worker: goes on from where the state stands.
fn work(uri: &str, events: u64) -> Result<(), Failure> {
    let queries = Queries::open(uri)?;
    let mut output = std::io::stdout();
    let mut next = queries.next_event()?;
    while next < events {
        let to = (next + STEP).min(events);
        queries.step(SEED, next, to)?;
        next = to;
        writeln!(output, "{next}")?;
    }
    queries.db().close().wait()?;
    Ok(())
}

/// Runs a worker until it has reported event `until`, and kills it; or to its end.
fn run(uri: &str, events: u64, until: Option<u64>) -> Result<(), Failure> {
    let program = std::env::current_exe()?;
    let mut worker = Command::new(program).args([uri, &events.to_string()]).stdout(Stdio::piped()).spawn()?;
    let reports = BufReader::new(worker.stdout.take().ok_or("the worker has no output")?).lines();
    for report in reports {
        let reached: u64 = report?.parse()?;
        if until.is_some_and(|until| reached >= until) {
            worker.kill()?;
            worker.wait()?;
            println!("killed a worker at event {reached}");
            return Ok(());
        }
    }
    let ended = worker.wait()?;
    if ended.success() { Ok(()) } else { Err(format!("the worker failed: {ended}").into()) }
}

fn show(events: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let place = |name: &str| format!("file://{}/{name}", folder.path().display());
    let (first, second) = (place("first"), place("second"));
    run(&first, events, Some(events / 5))?;
    run(&first, events, Some(events / 3))?;

    // A savepoint, from which another database goes on.
    let db = Db::builder(&first).open().wait()?;
    db.checkpoint("halfway").wait()?;
    db.close().wait()?;
    Db::builder(&first).at_checkpoint("halfway").restore_to(Db::builder(&second)).wait()?;
    run(&second, events, Some(events * 2 / 3))?;
    run(&second, events, None)?;
    run(&first, events, None)?;

    let wanted = plain::results(SEED, events);
    for uri in [&first, &second] {
        let queries = Queries::open(uri)?;
        assert_eq!(queries.next_event()?, events, "all events were taken");
        let found = queries.results()?;
        if let Some((found, wanted)) = found.iter().zip(&wanted).find(|(found, wanted)| found != wanted) {
            return Err(format!("{uri} has {found:?} where {wanted:?} is right").into());
        }
        assert_eq!(found.len(), wanted.len(), "as many results");
        queries.db().close().wait()?;
    }
    for line in wanted.iter().filter(|line| line.starts_with("q4") || line.starts_with("q15: day 0")) {
        println!("{line}");
    }
    println!("{} results of {events} events are those of plain memory, twice", wanted.len());
    Ok(())
}
