//! `tombolo db checkpoint`: states of a database that stay.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tombolo::{Answered, Ask, Builder, Checkpoint, Db, Env, RestorePart};

use crate::database::{DatabaseArguments, Done, WriterArguments};
use crate::failure::Result;
use crate::interrupt;
use crate::output::Output;
use crate::text::{self, FormArguments};

/// Checkpoints: states of a database that stay, under a name, until they are deleted. Making one
/// copies nothing.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  tombolo db checkpoint create file:///data/orders monday
  tombolo db checkpoint list file:///data/orders
  tombolo db get file:///data/orders --checkpoint monday 42
  tombolo db export file:///data/orders --checkpoint monday > monday.ndjson
  tombolo db checkpoint restore file:///data/orders monday file:///data/orders-of-monday
  tombolo db checkpoint restore s3://bucket/orders monday s3://bucket/orders-of-monday --share
  tombolo db checkpoint restore file:///data/orders monday file:///data/orders-to-m --to m
  tombolo db checkpoint delete file:///data/orders monday

A checkpoint holds every write that was acknowledged before, of all keyspaces, as one consistent cut. Tables that the database needs no more
stay for it and take their space. On one file system restoring links tables; to another it copies them, which makes it a backup. With --share
nothing is copied: see `tombolo db clone --help`.")]
pub enum Command {
    /// Makes one. A process that has the database open makes it itself; else it is opened here.
    Create(One),
    /// Lists them, oldest first. Disturbs no writer.
    List(DatabaseArguments),
    /// Deletes one. Disturbs no writer, which gives the space back when it next collects.
    Delete(OneOrId),
    /// Makes a database of its own of one, somewhere else. Disturbs no writer.
    Restore(Restore),
}

/// A checkpoint.
#[derive(Args)]
pub struct One {
    #[command(flatten)]
    writer: WriterArguments,
    /// The checkpoint's name.
    name: String,
}

/// A checkpoint that need not be readable.
#[derive(Args)]
pub struct OneOrId {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The checkpoint's name, or else its id: the list gives that of one which cannot be read.
    #[arg(value_name = "NAME_OR_ID")]
    name: String,
}

/// A checkpoint and where it goes.
#[derive(Args)]
pub struct Restore {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The checkpoint's name.
    name: String,
    /// The new database, as a URI.
    #[arg(value_name = "NEW_URI", value_parser = crate::place::place)]
    target: String,
    /// The log store of the new database, as a URI; its store's own log when not given.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    target_log: Option<String>,
    #[command(flatten)]
    share: Share,
    /// Only keys from this one on, of all keyspaces; tables that reach beyond are written anew.
    #[arg(long, value_name = "KEY", conflicts_with = "share")]
    from: Option<OsString>,
    /// Only keys before this one.
    #[arg(long, value_name = "KEY", conflicts_with = "share")]
    to: Option<OsString>,
    #[command(flatten)]
    form: FormArguments,
}

/// Whether tables are shared.
#[derive(Args)]
pub struct Share {
    /// Shares the tables instead of copying them: the new database names them where they lie, on
    /// the same store, and this one keeps them for it.
    #[arg(long)]
    share: bool,
}

impl Share {
    /// As the results say it.
    fn word(&self) -> &'static str {
        if self.share { ", whose tables it shares" } else { "" }
    }
}

/// Arguments of `clone`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db clone file:///data/orders file:///data/orders-for-tests
  tombolo db clone s3://bucket/orders s3://bucket/orders-for-tests --share

Without --share the new database is independent: its tables are links on one file system, and else copies that the store makes if it can. With --share
nothing is copied, and it takes the same time for any size: the new database, which must lie on the same store, names the tables where they lie. The
old one then keeps them until the new one is compacted or destroyed, and cannot be destroyed before that; `tombolo db clones` lists who shares. Move
both together, or neither.")]
pub struct Clone {
    #[command(flatten)]
    writer: WriterArguments,
    /// The new database, as a URI.
    #[arg(value_name = "NEW_URI", value_parser = crate::place::place)]
    target: String,
    /// The log store of the new database, as a URI; its store's own log when not given.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    target_log: Option<String>,
    #[command(flatten)]
    share: Share,
}

/// Runs `clone`: [`Db::clone_to`] in its steps, so that Ctrl-C leaves no checkpoint that keeps
/// tables for nobody.
pub fn clone(arguments: &Clone, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let Clone { writer, target, target_log, share } = arguments;
    let database = &writer.database;
    let env = Env::real();
    let name = format!("clone-{:016x}{:016x}", env.random_u64(), env.random_u64());
    let done = writer.ask_or_open(Ask::Checkpoint(name.clone()), &interrupted)?;
    if let Done::Here(db) = &done {
        // To its end, whatever comes: a checkpoint that is half made is its maker's to end or to
        // delete.
        db.checkpoint(&name).wait()?;
    }
    let new = with_log(Db::builder(target).registry(crate::database::registry()), target_log.as_deref());
    let restored = match database.builder() {
        Ok(source) if share.share => {
            interrupt::wait(source.at_checkpoint(&name).share_to(new), &interrupted, || ())
        }
        Ok(source) => interrupt::wait(source.at_checkpoint(&name).restore_to(new), &interrupted, || ()),
        Err(error) => Err(error),
    };
    match done {
        Done::Here(db) => {
            let deleted = db.delete_checkpoint(&name).wait();
            restored?;
            deleted?;
            db.close().wait()?;
        }
        Done::ByWriter(_) => {
            let deleted = database.builder()?.delete_checkpoint(&name).wait();
            restored?;
            deleted?;
        }
    }
    output.result(
        || json!({ "cloned": database.store, "store": target, "shared": share.share }),
        || format!("{} is now also the database {target}{}", database.store, share.word()),
    )
}

/// Runs a command.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    match command {
        Command::Create(One { writer, name }) => {
            match writer.ask_or_open(Ask::Checkpoint(name.clone()), &interrupted)? {
                Done::ByWriter(made) => output.result(|| told_json(&made), || told_text(&made)),
                Done::Here(db) => {
                    let checkpoint = interrupt::wait(db.checkpoint(name), &interrupted, || ())?;
                    db.close().wait()?;
                    output.result(|| to_json(&checkpoint), || to_text(&checkpoint))
                }
            }
        }
        Command::List(database) => {
            let checkpoints = interrupt::wait(database.builder()?.checkpoints(), &interrupted, || ())?;
            checkpoints
                .iter()
                .try_for_each(|checkpoint| output.result(|| to_json(checkpoint), || to_text(checkpoint)))
        }
        Command::Delete(OneOrId { database, name }) => {
            interrupt::wait(database.builder()?.delete_checkpoint(name), &interrupted, || ())?;
            output.result(|| json!({ "deleted": name }), || format!("checkpoint {name} is deleted"))
        }
        Command::Restore(arguments) => {
            let Restore { database, name, target, target_log, share, from, to, form } = arguments;
            let form = form.form();
            let new =
                with_log(Db::builder(target).registry(crate::database::registry()), target_log.as_deref());
            let source = database.builder()?.at_checkpoint(name);
            let made = match (from, to) {
                (None, None) if share.share => source.share_to(new),
                (None, None) => source.restore_to(new),
                (from, to) => {
                    let mut part = RestorePart::of(source);
                    if let Some(from) = from {
                        part = part.from(form.parse(from)?);
                    }
                    if let Some(to) = to {
                        part = part.before(form.parse(to)?);
                    }
                    new.restore_parts([part])
                }
            };
            interrupt::wait(made, &interrupted, || ())?;
            output.result(
                || json!({ "restored": name, "store": target, "shared": share.share }),
                || format!("checkpoint {name} is now the database {target}{}", share.word()),
            )
        }
    }
}

fn with_log(builder: Builder, log: Option<&str>) -> Builder {
    match log {
        Some(log) => builder.log(log),
        None => builder,
    }
}

/// A checkpoint as the writer tells of it that has made it.
fn told_json(made: &Answered) -> Value {
    let number = |name: &str| made.fact(name).and_then(|text| text.parse::<u64>().ok());
    json!({
        "id": made.fact("id"), "name": made.fact("name"),
        "created_unix_seconds": number("created_unix_seconds"),
        "last_sequence": number("last_sequence"), "tables": number("tables"),
        "table_bytes": number("table_bytes"),
        "entries": number("entries"), "by_writer_of_epoch": made.epoch.0,
    })
}

fn told_text(made: &Answered) -> String {
    let (name, tables) = (made.fact("name").unwrap_or_default(), made.fact("tables").unwrap_or_default());
    let tables = tables.parse().map_or_else(|_| tables.to_owned(), |tables| text::counted(tables, "table"));
    format!("{name}\t{tables}; made by the writer of epoch {}", made.epoch)
}

fn to_json(checkpoint: &Checkpoint) -> Value {
    let id = format!("{:032x}", checkpoint.id);
    if let Some(damage) = &checkpoint.damage {
        return json!({ "id": id, "damage": damage });
    }
    json!({
        "id": id, "name": checkpoint.name, "created_unix_seconds": checkpoint.created_unix_seconds,
        "last_sequence": checkpoint.last_sequence,
        "tables": checkpoint.tables, "table_bytes": checkpoint.table_bytes, "entries": checkpoint.entries,
    })
}

fn to_text(checkpoint: &Checkpoint) -> String {
    if let Some(damage) = &checkpoint.damage {
        return format!(
            "{:032x}\tcannot be read, and can only be deleted, by this id: {damage}",
            checkpoint.id
        );
    }
    let tables = text::counted(checkpoint.tables, "table");
    let entries = text::counted(checkpoint.entries, "entry");
    let (bytes, created) = (text::bytes(checkpoint.table_bytes), text::date(checkpoint.created_unix_seconds));
    format!("{}\t{created}, {tables} of {bytes}, {entries}", checkpoint.name)
}
