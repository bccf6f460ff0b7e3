//! `tombolo db watch` and `db subscriptions`: following the writes of others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tombolo::{Before, Change, ChangeEvent, ChangeKind, Changes, Db, OpenMode, ReaderOptions};

use super::close_after;
use crate::database::{DatabaseArguments, LookArguments, WriterArguments};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::text;

/// Bytes of changes that are kept for a subscription, unless it says something else.
const KEPT: &str = "1GiB";
/// How often it is looked for news.
const LOOK: Duration = Duration::from_millis(100);

/// The keyspace that is followed, or all.
#[derive(Args)]
pub struct Followed {
    /// The keyspace.
    #[arg(long, value_name = "NAME", default_value = "default", conflicts_with = "all")]
    keyspace: String,
    /// All keyspaces.
    #[arg(long)]
    all: bool,
}

impl Followed {
    fn subscriptions(&self, db: &Db) -> tombolo::Result<Vec<(String, u64)>> {
        if self.all { db.subscriptions().wait() } else { db.keyspace(&self.keyspace)?.subscriptions().wait() }
    }

    fn changes(&self, db: &Db, after: u64) -> tombolo::Result<Changes> {
        if self.all { db.changes(after) } else { db.keyspace(&self.keyspace)?.changes(after) }
    }
}

/// Arguments of `watch`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db watch file:///data/orders
  tombolo --json db watch s3://bucket/orders --after 1200 --count 10
  tombolo db watch file:///data/orders --all --subscription mirror

It follows the writer as a reader does, and disturbs nobody, until Ctrl-C. Changes are kept while there is a subscription:
tombolo db subscriptions create URI NAME.")]
pub struct Watch {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    followed: Followed,
    /// Begins after the write of this number. Without it, after all that there is now.
    #[arg(long, value_name = "NUMBER", conflicts_with = "subscription")]
    after: Option<u64>,
    /// Begins after what this subscription has taken, whose place stays.
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Says what each key held before, of writes from now on.
    #[arg(long)]
    before: bool,
    /// Ends after so many batches.
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
}

/// What to do about subscriptions.
#[derive(Subcommand)]
pub enum Command {
    /// Lists subscriptions, with their places.
    List(List),
    /// Makes a subscription: from here on changes are kept for it.
    Create(Create),
    /// Ends a subscription.
    End(End),
}

/// Arguments of `subscriptions list`.
#[derive(Args)]
pub struct List {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    followed: Followed,
}

/// Arguments of `subscriptions create`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db subscriptions create file:///data/orders mirror
  tombolo db subscriptions create file:///data/orders archive --all --keep 10GiB

Writes to what is followed cost about twice from then on, and no unlogged ones are taken.")]
pub struct Create {
    #[command(flatten)]
    writer: WriterArguments,
    /// Its name.
    name: String,
    #[command(flatten)]
    followed: Followed,
    /// Bytes of changes that are kept for it at least, if it does not come.
    #[arg(long, value_name = "SIZE", default_value = KEPT, value_parser = text::size)]
    keep: u64,
}

/// Arguments of `subscriptions end`.
#[derive(Args)]
pub struct End {
    #[command(flatten)]
    writer: WriterArguments,
    /// Its name.
    name: String,
    #[command(flatten)]
    followed: Followed,
}

fn event_json(event: &ChangeEvent) -> Value {
    let mut said = match &event.kind {
        ChangeKind::Put { key, value, expires_ms } => {
            let (key, value) = (text::to_json(key), text::to_json(value));
            json!({ "op": "put", "key": key, "value": value, "expires_ms": expires_ms })
        }
        ChangeKind::Delete { key, .. } => json!({ "op": "delete", "key": text::to_json(key) }),
        ChangeKind::Merge { key, operand, expires_ms } => {
            let (key, operand) = (text::to_json(key), text::to_json(operand));
            json!({ "op": "merge", "key": key, "operand": operand, "expires_ms": expires_ms })
        }
        ChangeKind::DeleteRange { from, to } => {
            json!({ "op": "delete_range", "from": text::to_json(from), "to": text::to_json(to) })
        }
        ChangeKind::Ingest => json!({ "op": "ingest" }),
        ChangeKind::Exchange => json!({ "op": "exchange" }),
        ChangeKind::Create => json!({ "op": "create" }),
        ChangeKind::Drop => json!({ "op": "drop" }),
        _ => json!({ "op": "other" }),
    };
    said["keyspace"] = json!(&*event.keyspace);
    match &event.before {
        Before::Unknown => {}
        Before::Absent => said["before"] = Value::Null,
        Before::Value(value) => said["before"] = text::to_json(value),
    }
    said
}

fn event_text(event: &ChangeEvent) -> String {
    let until = |end: &Option<u64>| end.map_or_else(String::new, |end| format!(" until {end}"));
    let what = match &event.kind {
        ChangeKind::Put { key, value, expires_ms } => {
            format!("put {} = {}{}", text::shown(key), text::shown(value), until(expires_ms))
        }
        ChangeKind::Delete { key, .. } => format!("delete {}", text::shown(key)),
        ChangeKind::Merge { key, operand, expires_ms } => {
            format!("merge {} + {}{}", text::shown(key), text::shown(operand), until(expires_ms))
        }
        ChangeKind::DeleteRange { from, to } => {
            format!("delete from {} to before {}", text::shown(from), text::shown(to))
        }
        ChangeKind::Ingest => "tables from outside are part of it".to_owned(),
        ChangeKind::Exchange => "all that it held was removed".to_owned(),
        ChangeKind::Create => "is made".to_owned(),
        ChangeKind::Drop => "is dropped".to_owned(),
        _ => "another change".to_owned(),
    };
    let before = match &event.before {
        Before::Unknown => String::new(),
        Before::Absent => " (before: none)".to_owned(),
        Before::Value(value) => format!(" (before: {})", text::shown(value)),
    };
    format!("{}: {what}{before}", event.keyspace)
}

fn say(output: &Output, change: &Change) -> Result<()> {
    output.result(
        || {
            let events: Vec<_> = change.events.iter().map(event_json).collect();
            json!({ "sequence": change.sequence, "unix_ms": change.unix_ms, "changes": events })
        },
        || {
            let events: Vec<_> = change.events.iter().map(event_text).collect();
            format!("{}  {}", change.sequence, events.join("; "))
        },
    )?;
    output.finish()
}

/// Runs `watch`.
pub fn run(arguments: &Watch, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let reader = arguments.database.builder()?.open_reader(ReaderOptions::default()).wait()?;
    let (db, followed) = (reader.db(), &arguments.followed);
    let after = match (&arguments.subscription, arguments.after) {
        (Some(name), _) => {
            let all = followed.subscriptions(db)?;
            let place = all.iter().find(|(known, _)| known == name).map(|(_, place)| *place);
            place.ok_or_else(|| {
                Failure::from(tombolo::Error::new(
                    tombolo::ErrorKind::NotFound,
                    format!("there is no subscription {name:?}"),
                ))
            })?
        }
        (None, Some(after)) => after,
        (None, None) => db.snapshot().sequence(),
    };
    let mut changes = followed.changes(db, after)?;
    if arguments.before {
        changes = changes.with_before();
    }
    let mut left = arguments.count;
    while left != Some(0) && !interrupted.load(Ordering::Relaxed) {
        match changes.try_next()? {
            Some(change) => {
                say(output, &change)?;
                left = left.map(|left| left - 1);
            }
            None => {
                if let Some(error) = reader.error() {
                    output.note(&error.to_string());
                }
                std::thread::sleep(LOOK);
            }
        }
    }
    Ok(reader.close().wait()?)
}

/// Runs `subscriptions`.
pub fn subscriptions(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::List(List { database, followed }) => {
            let list = |db: &Db| Ok(followed.subscriptions(db)?);
            let (all, as_of) = database.look_dated(&LookArguments::default(), output, list)?;
            as_of.result(
                output,
                || {
                    let one = |(name, place): &(String, u64)| json!({ "name": name, "place": place });
                    json!({ "subscriptions": all.iter().map(one).collect::<Vec<_>>() })
                },
                || match &all[..] {
                    [] => "there are no subscriptions".to_owned(),
                    all => {
                        let line =
                            |(name, place): &(String, u64)| format!("{name}: has taken all up to {place}");
                        all.iter().map(line).collect::<Vec<_>>().join("\n")
                    }
                },
            )
        }
        Command::Create(Create { writer, name, followed, keep }) => {
            let db = writer.open(OpenMode::Open)?;
            let made = if followed.all {
                db.subscribe(name, *keep).wait()
            } else {
                db.keyspace(&followed.keyspace).and_then(|keyspace| keyspace.subscribe(name, *keep).wait())
            };
            let place = close_after(&db, made.map(|one| one.place()).map_err(Failure::from))?;
            output.result(
                || json!({ "name": name, "place": place }),
                || format!("changes after {place} are kept for {name}"),
            )
        }
        Command::End(End { writer, name, followed }) => {
            let db = writer.open(OpenMode::Open)?;
            let ended = if followed.all {
                db.unsubscribe(name).wait()
            } else {
                db.keyspace(&followed.keyspace).and_then(|keyspace| keyspace.unsubscribe(name).wait())
            };
            close_after(&db, ended.map_err(Failure::from))?;
            output.result(|| json!({ "name": name }), || format!("{name} is ended"))
        }
    }
}
