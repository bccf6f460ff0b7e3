//! `tombolo backup`: backups of a database in another store, and restoring them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tombolo::{Archived, Ask, Backup, Backups, Db, Env, Keep, ReaderOptions, RestorePoint, Restored};

use crate::database::{DatabaseArguments, Done, WriterArguments};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::text;

/// How often it is looked whether somebody wants it to end.
const LOOK: Duration = Duration::from_millis(100);

/// Backups of a database in a store of any kind: incremental, verified, restored to any later
/// point with the changes that are archived beside them.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  tombolo backup create file:///data/orders s3://backups/orders
  tombolo backup list s3://backups/orders
  tombolo backup verify s3://backups/orders
  tombolo backup restore s3://backups/orders file:///data/orders-again
  tombolo backup restore s3://backups/orders file:///data/orders-again --to-time '2026-11-28 14:30:00'
  tombolo backup prune s3://backups/orders --keep 7 --keep-for 30d
  tombolo backup archive file:///data/orders s3://backups/orders --follow

A place keeps backups of one database. Points between backups need its changes: subscribe once (tombolo db subscriptions create URI archive --all),
and let `tombolo backup archive --follow` run.")]
pub enum Command {
    /// Makes a backup. A process that has the database open makes the checkpoint for it; what
    /// earlier backups have is not copied again.
    Create(Create),
    /// Lists backups, oldest first.
    List(Place),
    /// Reads every byte and compares checksums; exit code 1 when something is damaged.
    Verify(Place),
    /// Makes a database of a backup, and of the changes after it.
    Restore(Restore),
    /// Deletes old backups, and what only they needed.
    Prune(Prune),
    /// Brings changes of a database beside its backups. Disturbs no writer.
    Archive(Archive),
    /// Deletes the lock of a process that died while it made or deleted backups.
    Unlock(Unlock),
}

/// Where the backups are.
#[derive(Args)]
pub struct Place {
    /// The place of the backups, as a URI.
    #[arg(value_name = "BACKUPS", value_parser = crate::place::place)]
    place: String,
}

impl Place {
    fn open(&self) -> Result<Backups> {
        Ok(Backups::at(&self.place, &crate::database::registry())?)
    }
}

/// Arguments of `create`.
#[derive(Args)]
pub struct Create {
    #[command(flatten)]
    writer: WriterArguments,
    #[command(flatten)]
    place: Place,
    /// Copies every byte, also where the store could link tables of the same file system.
    #[arg(long)]
    copy: bool,
}

/// Arguments of `restore`.
#[derive(Args)]
pub struct Restore {
    #[command(flatten)]
    place: Place,
    /// The new database.
    #[command(flatten)]
    target: DatabaseArguments,
    /// A backup as it is, by its number. Without it, and without the others, the newest backup
    /// and all archived changes after it.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["to_sequence", "to_time"])]
    backup: Option<u64>,
    /// All writes up to this number.
    #[arg(long, value_name = "NUMBER", conflicts_with = "to_time")]
    to_sequence: Option<u64>,
    /// All writes up to this time: a date and a time of UTC, or seconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = text::unix_seconds)]
    to_time: Option<u64>,
}

/// Arguments of `prune`.
#[derive(Args)]
pub struct Prune {
    #[command(flatten)]
    place: Place,
    /// Keeps so many of the newest.
    #[arg(long, value_name = "NUMBER", default_value_t = 7)]
    keep: usize,
    /// Keeps all that are younger, such as 36h or 30d.
    #[arg(long, value_name = "DURATION", value_parser = text::length_of_time)]
    keep_for: Option<Duration>,
}

/// Arguments of `archive`.
#[derive(Args)]
pub struct Archive {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    place: Place,
    /// Goes on until Ctrl-C, also after trouble that passes.
    #[arg(long)]
    follow: bool,
    /// With --follow, how long it waits before it looks again.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = text::length_of_time)]
    every: Duration,
}

/// Arguments of `unlock`.
#[derive(Args)]
pub struct Unlock {
    #[command(flatten)]
    place: Place,
    /// Says that no process makes or deletes backups there.
    #[arg(long)]
    yes: bool,
}

/// Runs a command.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::Create(arguments) => create(arguments, output),
        Command::List(place) => {
            let backups = place.open()?.list().wait()?;
            backups.iter().try_for_each(|backup| output.result(|| to_json(backup), || to_text(backup)))
        }
        Command::Verify(place) => verify(place, output),
        Command::Restore(arguments) => restore(arguments, output),
        Command::Prune(arguments) => prune(arguments, output),
        Command::Archive(arguments) => archive(arguments, output),
        Command::Unlock(Unlock { place, yes }) => {
            if !yes {
                return Err(Failure::Usage(
                    "give --yes when no process makes or deletes backups there".to_owned(),
                ));
            }
            let locks = place.open()?.break_locks().wait()?;
            output
                .result(|| json!({ "locks": locks }), || format!("{} deleted", text::counted(locks, "lock")))
        }
    }
}

/// As a clone: a checkpoint for the moment, and whatever comes of the copies, it is deleted.
fn create(arguments: &Create, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let Create { writer, place, copy } = arguments;
    let mut backups = place.open()?;
    if *copy {
        backups = backups.copying();
    }
    let env = Env::real();
    let name = format!("backup-{:016x}{:016x}", env.random_u64(), env.random_u64());
    let done = writer.ask_or_open(Ask::Checkpoint(name.clone()), &interrupted)?;
    if let Done::Here(db) = &done {
        db.checkpoint(&name).wait()?;
    }
    let source = writer.database.builder();
    let made = source
        .and_then(|source| interrupt::wait(backups.create(source.at_checkpoint(&name)), &interrupted, || ()));
    let backup = match done {
        Done::Here(db) => {
            let deleted = db.delete_checkpoint(&name).wait();
            let backup = made?;
            deleted?;
            db.close().wait()?;
            backup
        }
        Done::ByWriter(_) => {
            let deleted = writer.database.builder()?.delete_checkpoint(&name).wait();
            let backup = made?;
            deleted?;
            backup
        }
    };
    output.result(|| to_json(&backup), || to_text(&backup))
}

fn to_json(backup: &Backup) -> Value {
    if let Some(damage) = &backup.damage {
        return json!({ "backup": backup.number, "damage": damage });
    }
    json!({
        "backup": backup.number, "created_unix_ms": backup.created_unix_ms,
        "last_sequence": backup.last_sequence, "tables": backup.tables, "bytes": backup.bytes,
        "copied_bytes": backup.copied_bytes,
    })
}

fn to_text(backup: &Backup) -> String {
    if let Some(damage) = &backup.damage {
        return format!("{}\tcannot be read: {damage}", backup.number);
    }
    let created = text::date(backup.created_unix_ms / 1000);
    let (tables, bytes) = (text::counted(backup.tables, "table"), text::bytes(backup.bytes));
    let copied = backup.copied_bytes.map(|bytes| format!(", {} copied", text::bytes(bytes)));
    let number = backup.number;
    format!(
        "{number}\t{created}, {tables} of {bytes}{}; all writes up to {}",
        copied.unwrap_or_default(),
        backup.last_sequence
    )
}

fn verify(place: &Place, output: &Output) -> Result<()> {
    let report = place.open()?.verify().wait()?;
    output.result(
        || {
            json!({
                "backups": report.backups, "tables": report.tables, "bytes": report.bytes,
                "changes": report.changes, "damage": report.damage, "gaps": report.gaps,
            })
        },
        || {
            let mut lines = report.damage.clone();
            for (from, to) in &report.gaps {
                lines.push(format!("changes between writes {from} and {to} are not in the archive"));
            }
            let (backups, tables) =
                (text::counted(report.backups, "backup"), text::counted(report.tables, "table"));
            let (bytes, changes) = (text::bytes(report.bytes), text::counted(report.changes, "change"));
            let end = if report.damage.is_empty() { "all sound" } else { "not all sound" };
            lines.push(format!("{backups}, {tables} of {bytes}, {changes}: {end}"));
            lines.join("\n")
        },
    )?;
    if report.damage.is_empty() {
        Ok(())
    } else {
        Err(Failure::Check("something is damaged: see the list".to_owned()))
    }
}

fn restore(arguments: &Restore, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let Restore { place, target, backup, to_sequence, to_time } = arguments;
    let point = match (backup, to_sequence, to_time) {
        (Some(number), ..) => RestorePoint::Backup(*number),
        (_, Some(sequence), _) => RestorePoint::Sequence(*sequence),
        // To the end of that second.
        (.., Some(seconds)) => RestorePoint::UnixMs(seconds.saturating_mul(1000).saturating_add(999)),
        _ => RestorePoint::Newest,
    };
    let restored = interrupt::wait(place.open()?.restore(point, target.builder()?), &interrupted, || ())?;
    let Restored { backup, last_sequence, changes, last_change_unix_ms, is_complete, .. } = restored;
    if !is_complete {
        output.note(
            "the archive has nothing from after that time: what was written before it and is not archived \
            yet is not there",
        );
    }
    output.result(
        || {
            json!({
                "backup": backup, "last_sequence": last_sequence, "changes": changes, "store": target.store,
                "last_change_unix_ms": last_change_unix_ms, "is_complete": is_complete,
            })
        },
        || {
            let changes = text::counted(changes, "change");
            format!(
                "backup {backup} and {changes} are now the database {}, up to write {last_sequence}",
                target.store
            )
        },
    )
}

fn prune(arguments: &Prune, output: &Output) -> Result<()> {
    let Prune { place, keep, keep_for } = arguments;
    let pruned = place.open()?.prune(Keep { newest: *keep, younger_than: *keep_for }).wait()?;
    output.result(
        || json!({ "backups": pruned.backups, "tables": pruned.tables, "changes": pruned.changes }),
        || {
            let backups = text::counted(pruned.backups.len() as u64, "backup");
            let (tables, changes) =
                (text::counted(pruned.tables, "table"), text::counted(pruned.changes, "object"));
            format!("deleted {backups}, {tables}, and {changes} of changes")
        },
    )
}

fn archive(arguments: &Archive, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let Archive { database, place, follow, every } = arguments;
    let backups = place.open()?;
    let reader = database.builder()?.open_reader(ReaderOptions::default()).wait()?;
    let look = |db: &Db| -> Result<Archived> { Ok(backups.archive(db).wait()?) };
    loop {
        let archived = match look(reader.db()) {
            Err(failure) if *follow && failure.is_passing() => {
                output.note(&format!("tried again: {failure}"));
                Archived::default()
            }
            archived => archived?,
        };
        if let Some((from, to)) = archived.gap {
            output.note(&format!(
                "changes between writes {from} and {to} were gone before they were archived: make a backup, \
                and keep more"
            ));
        }
        if archived.changes > 0 || !follow {
            output.result(
                || {
                    json!({
                        "changes": archived.changes, "bytes": archived.bytes, "last": archived.last,
                        "gap": archived.gap,
                    })
                },
                || {
                    let (changes, bytes) =
                        (text::counted(archived.changes, "change"), text::bytes(archived.bytes));
                    format!("{changes} of {bytes}, up to write {}", archived.last)
                },
            )?;
            output.finish()?;
        }
        let look_again = Instant::now() + *every;
        while *follow && Instant::now() < look_again && !interrupted.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        if !follow || interrupted.load(Ordering::Relaxed) {
            return Ok(reader.close().wait()?);
        }
    }
}
