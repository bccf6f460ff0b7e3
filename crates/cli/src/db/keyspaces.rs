//! `tombolo db keyspace`: keyspaces and their settings.

use clap::{Args, Subcommand};
use serde_json::json;
use tombolo::{KeyspaceOptions, OpenMode};

use super::{Look, close_after, finish_write};
use crate::database::{NewArguments, WriterArguments};
use crate::failure::{Failure, Result};
use crate::note::note;
use crate::output::Output;

/// Keyspaces.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  tombolo db keyspace list file:///data/orders
  tombolo db keyspace create file:///data/orders archive --keyspace-setting compression=zstd
  tombolo db keyspace create file:///data/orders sessions --ttl 30m
  tombolo db keyspace create file:///data/orders images --separate-from 16KiB
  tombolo db keyspace create file:///data/orders state-3 --stream 3
  tombolo db keyspace set file:///data/orders archive filter_bits=0
  tombolo db keyspace drop file:///data/orders archive")]
pub enum Command {
    /// Lists the keyspaces with their settings.
    List(Look),
    /// Creates a keyspace; the database too, if it does not exist.
    Create(CreateKeyspace),
    /// Changes settings of a keyspace.
    Set(SetKeyspace),
    /// Drops a keyspace with all in it.
    Drop(DropKeyspace),
}

/// Settings that have a name of their own at the prompt.
#[derive(Args)]
#[group(id = "short", multiple = true)]
struct Short {
    /// How long values live that are put from now on, such as 10m, or none: the setting ttl.
    #[arg(long, value_name = "TIME")]
    ttl: Option<String>,
    /// The merge operator: add_u64, add_i64, add_f64, max, min, append, append_comma, append_line,
    /// bit_or, set_union or weights; it stays once it is set.
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
    /// The compaction filter, by its name and version such as tenants_left@1, or none: programs
    /// that open the database bring it.
    #[arg(long, value_name = "NAME@VERSION")]
    filter: Option<String>,
    /// Values from this size on lie in objects of their own, such as 16KiB, or 0 for none: the
    /// setting separate_bytes.
    #[arg(long, value_name = "SIZE")]
    separate_from: Option<String>,
    /// How tables are kept: leveled, tiered, auto or fifo.
    #[arg(long, value_name = "NAME")]
    shape: Option<String>,
}

impl Short {
    fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = [
            ("ttl", &self.ttl),
            ("operator", &self.operator),
            ("compaction_filter", &self.filter),
            ("separate_bytes", &self.separate_from),
            ("shape", &self.shape),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

/// Arguments of `keyspace create`.
#[derive(Args)]
pub struct CreateKeyspace {
    #[command(flatten)]
    writer: WriterArguments,
    /// Its name.
    name: String,
    /// A setting of the keyspace, as name=value; may be given several times. A wrong name lists
    /// them all.
    #[arg(long = "keyspace-setting", value_name = "NAME=VALUE")]
    keyspace_settings: Vec<String>,
    /// The stream that orders its writes, 1 to 255, with a log and memtables of its own: for
    /// threads that write side by side. It stays.
    #[arg(long, value_name = "NUMBER")]
    stream: Option<u32>,
    #[command(flatten)]
    short: Short,
    #[command(flatten)]
    new: NewArguments,
}

/// Arguments of `keyspace set`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db keyspace set file:///data/orders archive compression=zstd filter_bits=0
  tombolo db keyspace set file:///data/orders default block_bytes=64KiB
  tombolo db keyspace set file:///data/orders sessions --ttl 10m

All of them change, or none when one is wrong. Tables that are made from here on follow them; those that exist stay as they are until compaction
writes them anew, which `tombolo db compact` does at once.")]
pub struct SetKeyspace {
    #[command(flatten)]
    writer: WriterArguments,
    /// Its name.
    name: String,
    /// What changes. A wrong name lists all settings.
    #[arg(value_name = "NAME=VALUE", required_unless_present = "short")]
    changes: Vec<String>,
    #[command(flatten)]
    short: Short,
}

/// Arguments of `keyspace drop`.
#[derive(Args)]
pub struct DropKeyspace {
    #[command(flatten)]
    writer: WriterArguments,
    /// Its name.
    name: String,
}

/// Runs a command.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::List(arguments) => keyspaces(arguments, output),
        Command::Create(arguments) => create_keyspace(arguments, output),
        Command::Set(arguments) => set_keyspace(arguments, output),
        Command::Drop(arguments) => drop_keyspace(arguments, output),
    }
}

fn create_keyspace(arguments: &CreateKeyspace, output: &Output) -> Result<()> {
    let mut options = keyspace_options(&arguments.keyspace_settings)?;
    for (name, value) in arguments.short.settings() {
        options.set(name, value)?;
    }
    if let Some(stream) = arguments.stream {
        options.set("stream", &stream.to_string())?;
    }
    let WriterArguments { database, take_over } = &arguments.writer;
    let (db, created) = database.open_or_create(take_over, &arguments.new)?;
    let keyspace =
        close_after(&db, db.create_keyspace(&arguments.name, options).wait().map_err(Failure::from))?;
    let (name, id, store) = (keyspace.name().to_owned(), keyspace.id(), &arguments.writer.database.store);
    let missing = missing_filter(&keyspace.options());
    output.result(
        || {
            with_missing(
                json!({ "store": store, "keyspace": name, "id": id, "created": created }),
                missing.as_deref(),
            )
        },
        || format!("keyspace {name} of {store} is there"),
    )?;
    note_missing(missing.as_deref());
    Ok(())
}

/// The compaction filter that a keyspace names: this command has none.
fn missing_filter(options: &KeyspaceOptions) -> Option<String> {
    options.compaction_filter.as_ref().map(ToString::to_string)
}

fn with_missing(mut json: serde_json::Value, missing: Option<&str>) -> serde_json::Value {
    if let Some(filter) = missing {
        json["missing_filter"] = json!(filter);
    }
    json
}

/// Says that a name is only a name, as nobody can look here whether it is written right.
fn note_missing(missing: Option<&str>) {
    if let Some(filter) = missing {
        note(format_args!(
            "compaction filter {filter} is not there: this command has none, and nothing is filtered until \
             a program opens the database with one of that name and version (Builder::compaction_filter)"
        ));
    }
}

/// Names and values of `name=value` texts.
fn pairs(settings: &[String]) -> Result<Vec<(&str, &str)>> {
    let pair =
        |setting: &String| Failure::Usage(format!("{setting:?} is no setting: write settings as name=value"));
    settings
        .iter()
        .map(|setting| {
            let (name, value) = setting.split_once('=').ok_or_else(|| pair(setting))?;
            Ok((name.trim(), value.trim()))
        })
        .collect()
}

/// A keyspace's settings from `name=value` texts.
pub fn keyspace_options(settings: &[String]) -> Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::default();
    for (name, value) in pairs(settings)? {
        options.set(name, value)?;
    }
    Ok(options)
}

fn settings_json(options: &KeyspaceOptions) -> serde_json::Value {
    options.settings().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

fn settings_text(options: &KeyspaceOptions) -> String {
    let settings = options.settings().into_iter().map(|(name, value)| format!("{name} {value}"));
    settings.collect::<Vec<_>>().join(", ")
}

fn set_keyspace(arguments: &SetKeyspace, output: &Output) -> Result<()> {
    let mut changes = pairs(&arguments.changes)?;
    changes.extend(arguments.short.settings());
    let names_filter = changes.iter().any(|(name, _)| *name == "compaction_filter");
    let db = arguments.writer.open(OpenMode::Open)?;
    let changed = db.keyspace(&arguments.name).and_then(|keyspace| {
        keyspace.set_options(changes).wait()?;
        Ok((keyspace.name().to_owned(), keyspace.options()))
    });
    let (name, options) = close_after(&db, changed.map_err(Failure::from))?;
    // Only of who names it: it is no news to who sets something else.
    let missing = missing_filter(&options).filter(|_| names_filter);
    output.result(
        || with_missing(json!({ "keyspace": name, "settings": settings_json(&options) }), missing.as_deref()),
        || format!("keyspace {name}: {}", settings_text(&options)),
    )?;
    note_missing(missing.as_deref());
    Ok(())
}

fn keyspaces(arguments: &Look, output: &Output) -> Result<()> {
    let ((), as_of) = arguments.database.look_dated(&arguments.look, output, |db| {
        for keyspace in db.keyspaces() {
            let options = keyspace.options();
            let settings = || settings_json(&options);
            output.result(
                || json!({ "name": keyspace.name(), "id": keyspace.id(), "settings": settings() }),
                || format!("{}\tid {}, {}", keyspace.name(), keyspace.id(), settings_text(&options)),
            )?;
        }
        Ok(())
    })?;
    as_of.say(output)
}

fn drop_keyspace(arguments: &DropKeyspace, output: &Output) -> Result<()> {
    let db = arguments.writer.open(OpenMode::Open)?;
    let dropped = db.drop_keyspace(&arguments.name).wait();
    finish_write(&db, output, None, dropped.map(|()| None).map_err(Failure::from))
}
