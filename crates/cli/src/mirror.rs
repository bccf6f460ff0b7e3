//! `tombolo mirror`: keeps a second database that follows a first one. `tombolo db promote` and
//! `tombolo db move`: a mirror takes its source's place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tombolo::{
    Ask, Builder, Difference, HandedOver, Mirror, MirrorOptions, MirrorState, MirrorStatus, Presence,
    TakeOver, Verified,
};

use crate::database::{self, DatabaseArguments, HowArguments, TakeOverArguments};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::{progress, text};

/// How often a command looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);
/// A move publishes before it takes the source, until so few bytes are new each time.
const NEARLY_BYTES: u64 = 64 << 20;
/// And so often at most.
const NEARLY_ROUNDS: u32 = 8;

/// The other database.
#[derive(Args)]
pub struct Target {
    /// The second database, as a URI.
    #[arg(value_name = "TO", value_parser = crate::place::place)]
    target: String,
    /// The log store of the second database, as a URI; its store's own log when not given.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    target_log: Option<String>,
    /// Most bytes a second that are read of tables, such as 20MiB. Default: no bound.
    #[arg(long, value_name = "BYTES", value_parser = text::size, default_value = "0")]
    rate: u64,
    #[command(flatten)]
    take_over: TakeOverArguments,
}

impl Target {
    fn builder(&self, take_over: TakeOver) -> Result<Builder> {
        let how = HowArguments { log: self.target_log.clone(), ..HowArguments::default() };
        Ok(database::builder(&self.target, &how)?.take_over(take_over))
    }
}

/// Arguments of `mirror`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo mirror file:///data/orders s3://bucket/orders
  tombolo mirror file:///data/orders s3://bucket/orders --period 1s --rate 50MiB --json
  tombolo mirror file:///data/orders s3://bucket/orders --once --verify-all
  tombolo db promote s3://bucket/orders --dry-run      says what the mirror lacks
  tombolo db promote s3://bucket/orders                the source is lost: the mirror takes its place
  tombolo db move file:///data/orders s3://bucket/orders   they exchange their roles, and nothing is lost

The mirror shows consistent states of its source, in memory included. Ended anywhere, the next `tombolo mirror` goes on. Nobody opens a mirror
by mistake; `tombolo db get` and the other commands that look may read it.")]
pub struct Arguments {
    #[command(flatten)]
    source: DatabaseArguments,
    #[command(flatten)]
    target: Target,
    /// How often new states are published.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = text::length_of_time)]
    period: Duration,
    /// Publishes once, and ends.
    #[arg(long)]
    once: bool,
    /// Compares no keys while it goes on.
    #[arg(long)]
    no_verify: bool,
    /// Publishes once, compares all keys of both sides, and ends: with exit code 1 when they
    /// differ.
    #[arg(long, conflicts_with = "no_verify")]
    verify_all: bool,
}

fn status_json(status: &MirrorStatus) -> Value {
    json!({
        "sequence": status.sequence, "source_sequence": status.source_sequence,
        "lag_writes": status.lag_writes(), "lag_seconds": status.lag.as_secs_f64(),
        "published": status.published, "tables_copied": status.tables_copied,
        "bytes_copied": status.bytes_copied, "tables_left": status.tables_left,
        "bytes_left": status.bytes_left, "entries_verified": status.entries_verified,
        "rounds_verified": status.rounds_verified,
        "error": status.error.as_ref().map(ToString::to_string),
    })
}

fn status_text(status: &MirrorStatus) -> String {
    let mut text = format!(
        "write {}: {} behind, as of {} ago; {} of tables copied",
        status.sequence,
        text::counted(status.lag_writes(), "write"),
        text::duration(status.lag),
        text::bytes(status.bytes_copied),
    );
    if status.bytes_left > 0 {
        text += &format!(", {} left", text::bytes(status.bytes_left));
    }
    if let Some(error) = &status.error {
        text += &format!("; tried again: {error}");
    }
    text
}

/// Publishes, with a bar where somebody watches.
fn refresh(mirror: &Mirror, interrupted: &AtomicBool, output: &Output) -> Result<()> {
    let bar = progress::bar("copied", output);
    let before = mirror.status().bytes_copied;
    let round = interrupt::wait(mirror.refresh(), interrupted, || {
        let status = mirror.status();
        let copied = status.bytes_copied - before;
        bar.set_length(copied + status.bytes_left);
        bar.set_position(copied);
    });
    bar.finish_and_clear();
    round
}

/// Runs `mirror`.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let Arguments { source, target, period, once, no_verify, verify_all } = arguments;
    let options = MirrorOptions {
        period: *period,
        bytes_per_second_max: target.rate,
        verify: !no_verify && !verify_all,
    };
    let beginning = Mirror::begin(source.builder()?, target.builder(target.take_over.mode())?, options);
    let mirror = interrupt::wait(beginning, &interrupted, || ())?;
    let ended = keep(&mirror, (*once, *verify_all, *period), &interrupted, output);
    let closed = mirror.close().wait();
    match ended {
        // Ended by whom it is for.
        Err(Failure::Interrupted) if !once && !verify_all => Ok(closed?),
        ended => ended.and(Ok(closed?)),
    }
}

fn keep(
    mirror: &Mirror,
    (once, verify_all, period): (bool, bool, Duration),
    interrupted: &AtomicBool,
    output: &Output,
) -> Result<()> {
    loop {
        let began = std::time::Instant::now();
        match refresh(mirror, interrupted, output) {
            Err(failure) if !once && !verify_all && failure.is_passing() => {
                output.note(&format!("tried again: {failure}"));
            }
            round => round?,
        }
        let status = mirror.status();
        output.result(|| status_json(&status), || status_text(&status))?;
        output.finish()?;
        if verify_all {
            return verify(mirror, interrupted, output);
        }
        if once {
            return Ok(());
        }
        while began.elapsed() < period {
            if interrupted.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            std::thread::sleep(LOOK.min(period));
        }
    }
}

fn verify(mirror: &Mirror, interrupted: &AtomicBool, output: &Output) -> Result<()> {
    let verified = interrupt::wait(mirror.verify(), interrupted, || ())?;
    output.result(|| verified_json(&verified), || verified_text(&verified))?;
    output.finish()?;
    if verified.differences.is_empty() {
        Ok(())
    } else {
        Err(Failure::Check("the mirror differs from its source: make it again".to_owned()))
    }
}

fn difference_json(difference: &Difference) -> Value {
    json!({
        "keyspace": difference.keyspace,
        "after": difference.after.as_deref().map(text::to_json),
        "last": difference.last.as_deref().map(text::to_json),
        "source_entries": difference.source_entries, "mirror_entries": difference.mirror_entries,
        "source_tables": difference.source_tables, "mirror_tables": difference.mirror_tables,
    })
}

fn verified_json(verified: &Verified) -> Value {
    json!({
        "verified": { "sequence": verified.sequence, "ranges": verified.ranges, "entries": verified.entries,
        "bytes": verified.bytes, "skipped": verified.skipped,
        "differences": verified.differences.iter().map(difference_json).collect::<Vec<_>>() },
    })
}

fn verified_text(verified: &Verified) -> String {
    let mut text = format!(
        "compared {} in {}, {}, as of write {}: ",
        text::counted(verified.entries, "entry"),
        text::counted(verified.ranges, "range"),
        text::bytes(verified.bytes),
        verified.sequence
    );
    text += if verified.differences.is_empty() { "both are equal" } else { "they differ" };
    for difference in &verified.differences {
        let shown = |key: Option<&[u8]>| key.map_or("(all)".to_owned(), text::shown);
        text += &format!(
            "\nkeyspace {:?}, after {} up to {}: {} in {}, {} in the mirror, in {}",
            difference.keyspace,
            shown(difference.after.as_deref()),
            shown(difference.last.as_deref()),
            text::counted(difference.source_entries, "entry"),
            difference.source_tables.join(", "),
            difference.mirror_entries,
            difference.mirror_tables.join(", "),
        );
    }
    for skipped in &verified.skipped {
        text += &format!("\nnot compared: {skipped}");
    }
    text
}

/// Arguments of `db promote`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db promote s3://bucket/orders --dry-run
  tombolo db promote s3://bucket/orders

What the mirror lacks is said exactly where its source answers; else by the number of the last write that it has, and the time as of which it
has all. A source that answers is not lost: `tombolo db move` exchanges the roles without losing anything; --force goes on all the same.")]
pub struct Promote {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// Says what it lacks, and changes nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also when its source answers. Write to one of both only.
    #[arg(long)]
    force: bool,
}

fn missing(of: Option<u64>, sequence: u64, unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let date = tombolo_env::clock::date(seconds);
    match of {
        Some(0) => format!("nothing is missing: it has all writes up to {sequence}, the source's newest"),
        Some(missing) => format!(
            "{} missing: {} to {} of the source",
            if missing == 1 { "1 write is".to_owned() } else { format!("{missing} writes are") },
            sequence + 1,
            sequence + missing
        ),
        None => format!(
            "what the source acknowledged after write {sequence} is missing; it has all that was \
            acknowledged before {date}"
        ),
    }
}

fn state_json(state: &MirrorState) -> Value {
    json!({
        "mirror": state.is_mirror, "moving": state.is_moving, "place": state.place,
        "sequence": state.sequence, "unix_ms": state.unix_ms, "source_sequence": state.source_sequence,
        "missing": state.missing(), "why": state.why,
    })
}

fn state_text(state: &MirrorState) -> String {
    if !state.is_mirror {
        let what = if state.is_moving { "is about to move to" } else { "has moved to" };
        return format!("it {what} {}", state.place);
    }
    let Some(sequence) = state.sequence else {
        return format!("a mirror of {} that has published nothing yet", state.place);
    };
    let mut text =
        format!("a mirror of {}; {}", state.place, missing(state.missing(), sequence, state.unix_ms));
    if let Some(why) = &state.why {
        text += &format!("\nthe source does not answer: {why}");
    }
    text
}

/// Runs `db promote`.
pub fn promote(arguments: &Promote, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let Promote { database, take_over, dry_run, force } = arguments;
    if *dry_run {
        let state = interrupt::wait(Mirror::state(database.builder()?), &interrupted, || ())?;
        return match state {
            Some(state) => output.result(|| state_json(&state), || state_text(&state)),
            None => output.result(|| json!({ "mirror": false }), || "an ordinary database".to_owned()),
        };
    }
    let builder = database.builder()?.take_over(take_over.mode());
    let promoted = interrupt::wait(Mirror::promote(builder, *force), &interrupted, || ())?;
    output.result(
        || {
            json!({
                "promoted": database.store, "sequence": promoted.sequence, "unix_ms": promoted.unix_ms,
                "missing": promoted.missing,
            })
        },
        || {
            let lacks = missing(promoted.missing, promoted.sequence, promoted.unix_ms);
            format!("{} is a database of its own now; {lacks}", database.store)
        },
    )
}

/// Arguments of `db move`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db move file:///data/orders s3://bucket/orders
  tombolo db move file:///data/orders s3://bucket/orders --take-over --rate 50MiB     from under its writer
  tombolo db move file:///data/orders s3://bucket/orders --back     undoes a move that did not end

A database that a process writes to moves with --take-over alone. It is read and written while its tables are copied. Then it is taken from
that process, which is fenced; the rest is copied, and the database may be opened at its new place. How long neither place took writes is
said. The old place stays as it is, and refuses to be opened; `tombolo db destroy` gives its space back, `tombolo mirror` the other way
round makes it a mirror. Ended anywhere, the same command goes on. --take-over also takes the target from another process that mirrors to it.")]
pub struct Move {
    #[command(flatten)]
    source: DatabaseArguments,
    #[command(flatten)]
    target: Target,
    /// Undoes a move that has not ended: the old place may be written again.
    #[arg(long)]
    back: bool,
}

/// Runs `db move`.
pub fn move_to(arguments: &Move, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let Move { source, target, back } = arguments;
    let from = || Ok::<_, Failure>(source.builder()?.take_over(TakeOver::Always));
    if *back {
        let undone = Mirror::undo_move(from()?, target.builder(TakeOver::Always)?);
        interrupt::wait(undone, &interrupted, || ())?;
        return output.result(
            || json!({ "back": source.store }),
            || format!("{} may be written again; {} is its mirror", source.store, target.target),
        );
    }
    let finished = Mirror::finish_move(from()?, target.builder(TakeOver::Always)?);
    if let Some(handed) = interrupt::wait(finished, &interrupted, || ())? {
        return moved(source, &handed, output);
    }
    let options =
        MirrorOptions { bytes_per_second_max: target.rate, verify: false, ..MirrorOptions::default() };
    target.take_over.check(source, &interrupted)?;
    let may_take = target.take_over.mode();
    let beginning = Mirror::begin(source.builder()?.take_over(may_take), target.builder(may_take)?, options);
    let mirror = interrupt::wait(beginning, &interrupted, || ())?;
    let ready = bring_near(&mirror, source, &interrupted, output);
    if let Err(failure) = ready {
        mirror.close().wait()?;
        return Err(failure);
    }
    // To its end, whatever comes.
    let handed = mirror.hand_over().wait()?;
    moved(source, &handed, output)
}

/// Publishes until little is new each time.
fn bring_near(
    mirror: &Mirror,
    source: &DatabaseArguments,
    interrupted: &AtomicBool,
    output: &Output,
) -> Result<()> {
    for _ in 0..NEARLY_ROUNDS {
        let before = mirror.status().bytes_copied;
        refresh(mirror, interrupted, output)?;
        if mirror.status().bytes_copied - before < NEARLY_BYTES {
            break;
        }
    }
    flush_first(source, output)?;
    refresh(mirror, interrupted, output)
}

/// Has the writer put what it has in memory into tables, so that the gap is short.
fn flush_first(source: &DatabaseArguments, output: &Output) -> Result<()> {
    let builder = source.builder()?;
    if let Presence::Alive(..) = builder.clone().presence(Duration::ZERO).wait()?
        && let Err(error) = builder.deadline(Duration::from_secs(70)).ask(Ask::Flush).wait()
    {
        output.note(&format!("the writer did not flush before: {error}"));
    }
    Ok(())
}

fn moved(source: &DatabaseArguments, handed: &HandedOver, output: &Output) -> Result<()> {
    output.result(
        || {
            json!({
                "moved": source.store, "to": handed.place, "sequence": handed.sequence,
                "gap_seconds": handed.gap.as_secs_f64(),
            })
        },
        || {
            format!(
                "{} has moved to {}, with all writes up to {}; neither took writes for {}",
                source.store,
                handed.place,
                handed.sequence,
                text::duration(handed.gap)
            )
        },
    )
}
