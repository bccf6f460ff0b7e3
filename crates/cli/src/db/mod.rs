//! `tombolo db`: databases at the prompt.

mod checkpoint;
pub mod clones;
mod condition;
mod look;
mod salvage;
mod tables;
mod transfer;
mod writer;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use tombolo::{Answered, Ask, Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Op, OpenMode, Versioned};
use tombolo_format::key::VALUE_BYTES_MAX;

use self::condition::ConditionArguments;
use crate::database::{
    DatabaseArguments, Done, LookArguments, NewArguments, TakeOverArguments, WriterArguments,
};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::progress;
use crate::text::{self, Form, FormArguments};

/// Databases at the prompt. Keys and values are the bytes that were typed; --escape reads escapes
/// such as \n and \xHH, --hex hexadecimal digits.
///
/// Printable text is shown as it is, and all else as $'…' with escapes, which bash and zsh read.
/// With --json bytes are a string where they are UTF-8, else {"hex":"00ff"}, in every command.
///
/// Commands that only look (get, scan, export, stats, properties, levels, verify, and all that
/// list) disturb no writer, need no right to write, and show everything that is durable when they
/// begin, what only the log holds included.
///
/// Commands that change something open the database as its writer. If another process has it open
/// they change nothing, name that process and end with exit code 9; --take-over takes the database
/// from it.
#[derive(Subcommand)]
pub enum Command {
    /// Creates a database.
    Create(Create),
    /// Writes a key.
    Put(Put),
    /// Merges into the value of a key, by the keyspace's operator.
    Merge(Merge),
    /// Prints the value of a key; exit code 3 when it has none.
    Get(Get),
    /// Deletes a key, there or not.
    Delete(Delete),
    /// Prints keys and values in order.
    Scan(Scan),
    /// Reads entries from lines of JSON or with tabs, from a pipe or a file.
    Import(transfer::Import),
    /// Writes entries as lines of JSON or with tabs, to a pipe or a file.
    Export(transfer::Export),
    /// Makes tables from outside part of the database: all at once, past the log.
    Ingest(tables::IngestArguments),
    /// Writes a keyspace as tables, which import-tables and ingest take into other databases.
    ExportTables(tables::ExportTables),
    /// Takes exported tables into a database: all at once, past the log.
    ImportTables(tables::ImportTables),
    /// Makes, lists, deletes and restores checkpoints.
    #[command(subcommand)]
    Checkpoint(checkpoint::Command),
    /// Makes a database of its own of this one as it is now, somewhere else; tables are linked
    /// where the store can, or shared. A process that has it open makes the checkpoint for that.
    Clone(checkpoint::Clone),
    /// Lists databases that share this one's tables, and gives back tables kept for those that are
    /// no more.
    #[command(subcommand)]
    Clones(clones::Command),
    /// Lists, creates, changes and drops keyspaces.
    #[command(subcommand)]
    Keyspace(KeyspaceCommand),
    /// Says what the database holds: tables, memory, log, what opening took.
    Stats(Look),
    /// Says what the database says about itself by name, as a program reads it.
    Properties(look::Properties),
    /// Says what each level of the tree holds, from the manifest alone: no writer is disturbed.
    Levels(look::Levels),
    /// Says who has the database open, and since when; disturbs nobody.
    Writer(writer::Arguments),
    /// Reads every byte and checks it; exit code 1 when something is damaged.
    Verify(Look),
    /// Makes a database of what can be had of one of which objects are gone or damaged; says what
    /// is lost, with exit code 1.
    Salvage(salvage::Salvage),
    /// Merges all tables of each keyspace into one run. A process that has the database open does
    /// it itself.
    Compact(WriterArguments),
    /// Moves memtables, and so the log, to tables. A process that has the database open does
    /// it itself.
    Flush(WriterArguments),
    /// Destroys a database: its objects are deleted, its numbered life ends for ever.
    Destroy(Destroy),
}

/// Where and in which form.
#[derive(Args)]
pub struct Common {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The keyspace.
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
    #[command(flatten)]
    form: FormArguments,
}

impl Common {
    fn form(&self) -> Form {
        self.form.form()
    }

    fn open(&self, mode: OpenMode, take_over: &TakeOverArguments) -> Result<(Db, Keyspace)> {
        let db = self.database.open(mode, take_over)?;
        let keyspace = db.keyspace(&self.keyspace)?;
        Ok((db, keyspace))
    }

    /// See [`DatabaseArguments::look`].
    fn look<T>(
        &self,
        look: &LookArguments,
        output: &Output,
        mut show: impl FnMut(&Keyspace) -> Result<T>,
    ) -> Result<T> {
        self.database.look(look, output, |db| show(&db.keyspace(&self.keyspace)?))
    }
}

/// Arguments of a command that looks at a whole database.
#[derive(Args)]
pub struct Look {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    look: LookArguments,
}

/// What a write must survive before the command ends.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Survives {
    /// In memory until the database is closed, which this command does.
    Unlogged,
    /// In the log, not synced.
    Accepted,
    /// Whatever the log's failure model says.
    #[default]
    Durable,
}

impl From<Survives> for Durability {
    fn from(survives: Survives) -> Durability {
        match survives {
            Survives::Unlogged => Durability::Unlogged,
            Survives::Accepted => Durability::Accepted,
            Survives::Durable => Durability::Durable,
        }
    }
}

/// Arguments of `create`.
#[derive(Args)]
pub struct Create {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    new: NewArguments,
}

/// Arguments of `put`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db put file:///data/orders 1 'two books'
  tombolo db put file:///data/orders path 'C:\\new\\table'               the bytes as they are typed
  tombolo db put file:///data/orders --escape lines 'one\\ntwo'        a newline in between
  tombolo db put file:///data/orders --hex 00ff 0102
  tombolo db put file:///data/orders photo --value-file photo.jpg
  tombolo db put file:///data/orders listing --value-file - < listing
  tombolo db put file:///data/orders lock mine --if-absent             exit code 10 when somebody has it")]
pub struct Put {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// The key.
    key: OsString,
    /// The value.
    #[arg(required_unless_present = "value_file")]
    value: Option<OsString>,
    /// Takes the value's bytes from this file, or from standard input for `-`; at most 64 MiB.
    /// --escape and --hex are then for the key alone.
    #[arg(long, value_name = "PATH", conflicts_with = "value")]
    value_file: Option<PathBuf>,
    #[command(flatten)]
    condition: ConditionArguments,
    #[command(flatten)]
    new: NewArguments,
    /// What the write must survive; `tombolo explain URI` says what each means there.
    #[arg(long, value_enum, default_value_t)]
    durability: Survives,
}

/// Arguments of `merge`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db keyspace create file:///data/counts words --operator append_comma
  tombolo db merge file:///data/counts --keyspace words colours red
  tombolo db merge file:///data/counts --keyspace sums --hex 00 0100000000000000")]
pub struct Merge {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// The key.
    key: OsString,
    /// The operand.
    operand: OsString,
    /// What the merge must survive.
    #[arg(long, value_enum, default_value_t)]
    durability: Survives,
}

/// Arguments of `get`.
#[derive(Args)]
pub struct Get {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    look: LookArguments,
    /// The key.
    key: OsString,
    /// Writes the value's bytes as they are, never quoted and without a newline.
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    raw: bool,
}

/// Arguments of `delete`.
#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// The key.
    key: OsString,
    /// Says that the key was put once since it was last deleted: put and delete then go together.
    /// Reads are the same where that is wrong.
    #[arg(long, conflicts_with = "condition")]
    single: bool,
    #[command(flatten)]
    condition: ConditionArguments,
    /// What the delete must survive.
    #[arg(long, value_enum, default_value_t)]
    durability: Survives,
}

/// Arguments of `scan`.
#[derive(Args)]
pub struct Scan {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    look: LookArguments,
    /// Only keys that begin with this.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Keys from this one on.
    #[arg(long)]
    from: Option<OsString>,
    /// Keys before this one.
    #[arg(long)]
    to: Option<OsString>,
    /// At most so many.
    #[arg(long)]
    limit: Option<u64>,
    /// In descending order.
    #[arg(long)]
    reverse: bool,
    /// Only keys.
    #[arg(long)]
    keys_only: bool,
}

/// Keyspaces.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  tombolo db keyspace list file:///data/orders
  tombolo db keyspace create file:///data/orders archive --keyspace-setting compression=zstd
  tombolo db keyspace set file:///data/orders archive filter_bits=0
  tombolo db keyspace drop file:///data/orders archive")]
pub enum KeyspaceCommand {
    /// Lists the keyspaces with their settings.
    List(Look),
    /// Creates a keyspace; the database too, if it does not exist.
    Create(CreateKeyspace),
    /// Changes settings of a keyspace.
    Set(SetKeyspace),
    /// Drops a keyspace with all in it.
    Drop(DropKeyspace),
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
    /// The merge operator: add_u64, add_i64, add_f64, max, min, append, append_comma, append_line,
    /// bit_or, set_union or weights.
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
    #[command(flatten)]
    new: NewArguments,
}

/// Arguments of `keyspace set`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db keyspace set file:///data/orders archive compression=zstd filter_bits=0
  tombolo db keyspace set file:///data/orders default block_bytes=64KiB

All of them change, or none when one is wrong. Tables that are made from here on follow them; those that exist stay as they are until compaction
writes them anew, which `tombolo db compact` does at once.")]
pub struct SetKeyspace {
    #[command(flatten)]
    writer: WriterArguments,
    /// Its name.
    name: String,
    /// What changes. A wrong name lists all settings.
    #[arg(value_name = "NAME=VALUE", required = true)]
    changes: Vec<String>,
}

/// Arguments of `keyspace drop`.
#[derive(Args)]
pub struct DropKeyspace {
    #[command(flatten)]
    writer: WriterArguments,
    /// Its name.
    name: String,
}

/// Arguments of `destroy`.
#[derive(Args)]
#[command(after_help = "\
Nothing opens the database any more, and its objects are deleted. Readers that live keep all tables: the answer says so, and destroying it again,
after they have ended, deletes the rest. What readers that died have left is waited for, about as long as their lease: a minute as a rule.")]
pub struct Destroy {
    #[command(flatten)]
    writer: WriterArguments,
    /// Says that you mean it.
    #[arg(long)]
    yes: bool,
}

/// Runs a command.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::Create(arguments) => create(arguments, output),
        Command::Put(arguments) => put(arguments, output),
        Command::Merge(arguments) => merge(arguments, output),
        Command::Get(arguments) => get(arguments, output),
        Command::Delete(arguments) => delete(arguments, output),
        Command::Scan(arguments) => scan(arguments, output),
        Command::Import(arguments) => transfer::import(arguments, output),
        Command::Export(arguments) => transfer::export(arguments, output),
        Command::Ingest(arguments) => tables::ingest(arguments, output),
        Command::ExportTables(arguments) => tables::export(arguments, output),
        Command::ImportTables(arguments) => tables::import(arguments, output),
        Command::Keyspace(KeyspaceCommand::List(arguments)) => keyspaces(arguments, output),
        Command::Keyspace(KeyspaceCommand::Create(arguments)) => create_keyspace(arguments, output),
        Command::Keyspace(KeyspaceCommand::Set(arguments)) => set_keyspace(arguments, output),
        Command::Keyspace(KeyspaceCommand::Drop(arguments)) => drop_keyspace(arguments, output),
        Command::Checkpoint(command) => checkpoint::run(command, output),
        Command::Clone(arguments) => checkpoint::clone(arguments, output),
        Command::Clones(command) => clones::run(command, output),
        Command::Stats(arguments) => look::stats(arguments, output),
        Command::Properties(arguments) => look::properties(arguments, output),
        Command::Writer(arguments) => writer::run(arguments, output),
        Command::Levels(arguments) => look::levels(arguments, output),
        Command::Verify(arguments) => verify(arguments, output),
        Command::Salvage(arguments) => salvage::run(arguments, output),
        Command::Compact(arguments) => rewrite(arguments, output, Ask::Compact, Db::compact, LOOKS_MAX),
        Command::Flush(arguments) => rewrite(arguments, output, Ask::Flush, Db::flush, 0),
        Command::Destroy(arguments) => destroy(arguments, output),
    }
}

fn create(arguments: &Create, output: &Output) -> Result<()> {
    // Nobody is disturbed by names that exist already.
    let db = arguments.database.create(&TakeOverArguments::default(), &arguments.new)?;
    let (incarnation, epoch, store) = (db.incarnation().0, db.epoch().0, &arguments.database.store);
    db.close().wait()?;
    output.result(
        || json!({ "store": store, "incarnation": incarnation, "epoch": epoch }),
        || format!("{store} is there; write to it: tombolo db put {store} KEY VALUE"),
    )
}

fn create_keyspace(arguments: &CreateKeyspace, output: &Output) -> Result<()> {
    let mut options = keyspace_options(&arguments.keyspace_settings)?;
    if let Some(operator) = &arguments.operator {
        options.set("operator", operator)?;
    }
    let WriterArguments { database, take_over } = &arguments.writer;
    let (db, created) = database.open_or_create(take_over, &arguments.new)?;
    let keyspace = db.create_keyspace(&arguments.name, options).wait()?;
    let (name, id, store) = (keyspace.name().to_owned(), keyspace.id(), &arguments.writer.database.store);
    db.close().wait()?;
    output.result(
        || json!({ "store": store, "keyspace": name, "id": id, "created": created }),
        || format!("keyspace {name} of {store} is there"),
    )
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
    let changes = pairs(&arguments.changes)?;
    let db = arguments.writer.open(OpenMode::Open)?;
    let keyspace = db.keyspace(&arguments.name)?;
    keyspace.set_options(changes).wait()?;
    let (name, options) = (keyspace.name().to_owned(), keyspace.options());
    db.close().wait()?;
    output.result(
        || json!({ "keyspace": name, "settings": settings_json(&options) }),
        || format!("keyspace {name}: {}", settings_text(&options)),
    )
}

fn put(arguments: &Put, output: &Output) -> Result<()> {
    let form = arguments.common.form();
    let key = form.parse(&arguments.key)?;
    let value = match (&arguments.value, &arguments.value_file) {
        (Some(value), _) => form.parse(value)?,
        (None, Some(path)) => value_from(path)?,
        (None, None) => Vec::new(),
    };
    let condition = arguments.condition.condition(form)?;
    // A first put makes the database: the prompt is where people begin.
    let (db, created) = arguments.common.database.open_or_create(&arguments.take_over, &arguments.new)?;
    let keyspace = db.keyspace(&arguments.common.keyspace)?;
    let durability = arguments.durability.into();
    let written = match condition {
        None => keyspace.put_with(&key, &value, durability).wait().map(|()| None).map_err(Failure::from),
        Some(condition) => {
            let decided = keyspace.put_if_with(&key, &value, condition, durability).wait();
            condition::met(decided, &key, &keyspace, &arguments.common).map(Some)
        }
    };
    finish_write(&db, output, Some(created), written)
}

fn merge(arguments: &Merge, output: &Output) -> Result<()> {
    let form = arguments.common.form();
    let (key, operand) = (form.parse(&arguments.key)?, form.parse(&arguments.operand)?);
    let (db, keyspace) = arguments.common.open(OpenMode::Open, &arguments.take_over)?;
    let written = keyspace.merge_with(&key, &operand, arguments.durability.into()).wait();
    finish_write(&db, output, None, written.map(|()| None).map_err(Failure::from))
}

/// The bytes of a file, or of standard input; never more than a value can have.
fn value_from(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    let (name, input): (String, Box<dyn Read>) = if path.as_os_str() == "-" {
        ("standard input".to_owned(), Box::new(std::io::stdin()))
    } else {
        let file = File::open(path).map_err(|error| Failure::io(error, format!("opening {shown}")))?;
        (shown.to_string(), Box::new(file))
    };
    let mut value = Vec::new();
    let read = input.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value);
    read.map_err(|error| Failure::io(error, format!("reading {name}")))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Failure::Usage(format!(
            "{name} has more bytes than a value can have: {VALUE_BYTES_MAX} are the most; spread it over \
            several keys"
        )));
    }
    Ok(value)
}

fn delete(arguments: &Delete, output: &Output) -> Result<()> {
    let key = arguments.common.form().parse(&arguments.key)?;
    let condition = arguments.condition.condition(arguments.common.form())?;
    let (db, keyspace) = arguments.common.open(OpenMode::Open, &arguments.take_over)?;
    let durability = arguments.durability.into();
    let plain = |written: tombolo::Result<()>| written.map(|()| None).map_err(Failure::from);
    let written = match condition {
        None if arguments.single => plain(keyspace.single_delete_with(&key, durability).wait()),
        None => plain(keyspace.delete_with(&key, durability).wait()),
        Some(condition) => {
            let decided = keyspace.delete_if_with(&key, condition, durability).wait();
            condition::met(decided, &key, &keyspace, &arguments.common).map(Some)
        }
    };
    finish_write(&db, output, None, written)
}

/// Closes, whatever came of the work: the next writer, on any host, then need not ask for a sign of
/// life.
fn close_after<T>(db: &Db, worked: Result<T>) -> Result<T> {
    let closed = db.close().wait();
    let worked = worked?;
    closed?;
    Ok(worked)
}

/// Closes after a write. Machines are told the epoch, whether it made the database, and the number
/// of a write with a condition.
fn finish_write(db: &Db, output: &Output, created: Option<bool>, written: Result<Option<u64>>) -> Result<()> {
    let mut said = json!({ "epoch": db.epoch().0 });
    let version = close_after(db, written)?;
    if !output.is_json() {
        return Ok(());
    }
    if let Some(created) = created {
        said["created"] = json!(created);
    }
    if let Some(version) = version {
        said["version"] = json!(version);
    }
    output.line(said)
}

fn get(arguments: &Get, output: &Output) -> Result<()> {
    let form = arguments.common.form();
    let key = form.parse(&arguments.key)?;
    let look = &arguments.look;
    let value = arguments.common.look(look, output, |keyspace| Ok(keyspace.get_versioned(&key).wait()?))?;
    let Some(Versioned { value, sequence }) = value else {
        let keyspace = arguments.common.keyspace.clone();
        return Err(Failure::NoValue { shown: form.show(&key), key: form.to_json(&key), keyspace });
    };
    if arguments.raw {
        output.bytes(&value)
    } else {
        output.result(
            || json!({ "key": form.to_json(&key), "value": form.to_json(&value), "version": sequence }),
            || form.show(&value),
        )
    }
}

fn scan(arguments: &Scan, output: &Output) -> Result<()> {
    let form = arguments.common.form();
    let parse = |text: &Option<OsString>| text.as_deref().map(|text| form.parse(text)).transpose();
    let range = range(parse(&arguments.prefix)?, parse(&arguments.from)?, parse(&arguments.to)?);
    arguments
        .common
        .look(&arguments.look, output, |keyspace| show_entries(keyspace, range.clone(), arguments, output))
}

fn show_entries(
    keyspace: &Keyspace,
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    arguments: &Scan,
    output: &Output,
) -> Result<()> {
    let form = arguments.common.form();
    let mut entries = keyspace.scan::<Vec<u8>>(range);
    if arguments.reverse {
        entries.seek_to_last();
    }
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(entry) = (if arguments.reverse { entries.prev() } else { entries.next() }) else { break };
        let (key, value) = entry?;
        left -= 1;
        if arguments.keys_only {
            output.result(|| json!({ "key": form.to_json(&key) }), || form.show(&key))?;
        } else {
            output.result(
                || json!({ "key": form.to_json(&key), "value": form.to_json(&value) }),
                || format!("{}\t{}", form.show(&key), form.show(&value)),
            )?;
        }
    }
    Ok(())
}

/// The keys that begin with `prefix`, or those from `from` on and before `to`.
fn range(
    prefix: Option<Vec<u8>>,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    match prefix {
        Some(prefix) => {
            (Bound::Included(prefix.clone()), after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded))
        }
        None => {
            (from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded))
        }
    }
}

/// The smallest key after all that begin with `prefix`; `None` when there is none.
fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while prefix.last() == Some(&u8::MAX) {
        prefix.pop();
    }
    let last = prefix.last_mut()?;
    *last += 1;
    Some(prefix)
}

fn keyspaces(arguments: &Look, output: &Output) -> Result<()> {
    arguments.database.look(&arguments.look, output, |db| {
        for keyspace in db.keyspaces() {
            let options = keyspace.options();
            let settings = || settings_json(&options);
            output.result(
                || json!({ "name": keyspace.name(), "id": keyspace.id(), "settings": settings() }),
                || format!("{}\tid {}, {}", keyspace.name(), keyspace.id(), settings_text(&options)),
            )?;
        }
        Ok(())
    })
}

fn verify(arguments: &Look, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let verified = arguments.database.look(&arguments.look, output, |db| {
        let (told, newest) = std::sync::mpsc::channel();
        let verifying = db.verify_with(move |report| {
            // Nobody listens after Ctrl-C.
            let _ = told.send((report.bytes, report.bytes_all));
        });
        let bar = progress::bar("verified", output);
        let report = interrupt::wait(verifying, &interrupted, || {
            if let Some((bytes, bytes_all)) = newest.try_iter().last() {
                bar.set_length(bytes_all);
                bar.set_position(bytes);
            }
            bar.tick();
        });
        bar.finish_and_clear();
        Ok((report?, look::AsOf::of(db)))
    });
    let (report, as_of) = verified.map_err(|failure| match failure {
        // What cannot be opened cannot be verified: the usual next step would be this command.
        Failure::Engine(error) if error.kind() == ErrorKind::Corrupt => {
            let advice = format!(
                "restore it from a copy; without one `tombolo db salvage {store}` says what can be had. \
                `tombolo inspect {store} manifest` shows what is left, damage and all",
                store = arguments.database.store
            );
            Failure::Engine(error.advice(advice))
        }
        failure => failure,
    })?;
    output.result(
        || {
            let found = json!({
                "tables": report.tables, "entries": report.entries, "bytes": report.bytes,
                "log_entries": report.log_entries, "log_bytes": report.log_bytes,
                "manifest_records": report.manifest_records, "damage": report.damage,
            });
            as_of.added_to(found)
        },
        || {
            let tables = text::counted(report.tables, "table");
            let entries = text::counted(report.entries, "entry");
            let records = text::counted(report.manifest_records, "record");
            let bytes = text::bytes(report.bytes);
            let log_entries = text::counted(report.log_entries, "entry");
            let log_bytes = text::bytes(report.log_bytes);
            let mut text = format!(
                "read {tables} ({entries}, {bytes}), {log_entries} of the log ({log_bytes}) and {records} of \
                the manifest\n{as_of}"
            );
            for damage in &report.damage {
                text += &format!("\ndamage: {damage}");
            }
            text
        },
    )?;
    match report.damage.len() {
        0 => Ok(()),
        count => Err(Failure::Check(format!(
            "{}: restore these objects from a copy; without one `tombolo db salvage {}` says what can be \
            had. `tombolo inspect` shows the bytes",
            text::counted(count as u64, "damaged place"),
            arguments.database.store
        ))),
    }
}

/// How often it is looked whether what was shared is given back, and after which time again.
const LOOKS_MAX: u32 = 100;
const LOOK: Duration = Duration::from_millis(20);

/// What tables there are.
#[derive(Clone, Copy, Default)]
struct Sizes {
    tables: u64,
    bytes: u64,
    shared: u64,
}

impl Sizes {
    fn of(db: &Db) -> Sizes {
        let stats = db.stats();
        Sizes { tables: stats.tables, bytes: stats.table_bytes, shared: stats.tables_shared }
    }

    /// As a writer tells them.
    fn told(answered: &Answered, when: &str) -> Sizes {
        let number = |name: &str| {
            answered.fact(&format!("{name}{when}")).and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        Sizes { tables: number("tables"), bytes: number("bytes"), shared: number("tables_shared") }
    }
}

/// Does what rewrites tables, here or by the process that has the database open, and says what
/// there was before and is now.
fn rewrite(
    arguments: &WriterArguments,
    output: &Output,
    ask: Ask,
    work: impl FnOnce(&Db) -> Op<()>,
    looks_max: u32,
) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let (before, after, by_writer, opening) = match arguments.ask_or_open(ask, &interrupted)? {
        Done::ByWriter(answered) => {
            (Sizes::told(&answered, "_before"), Sizes::told(&answered, ""), Some(answered.epoch.0), None)
        }
        Done::Here(db) => {
            let (before, opened) = (Sizes::of(&db), db.stats());
            let bar = progress::bar("rewritten", output);
            bar.set_length(before.bytes);
            let written = || db.property("compacted-bytes-read").ok().and_then(|read| read.value.number());
            let begun = written().unwrap_or(0);
            let worked = interrupt::wait(work(&db), &interrupted, || {
                bar.set_position(written().unwrap_or(0).saturating_sub(begun).min(before.bytes));
                bar.tick();
            });
            bar.finish_and_clear();
            worked?;
            // What was shared, and is not needed any more, is given back by the collection that
            // follows, of which nobody could wait for the end but by looking.
            for _ in 0..looks_max {
                if db.stats().tables_shared == 0 {
                    break;
                }
                std::thread::sleep(LOOK);
            }
            let after = Sizes::of(&db);
            db.close().wait()?;
            (before, after, None, Some((opened.open_nanos, opened.replayed_bytes)))
        }
    };
    output.result(
        || {
            json!({
                "tables_before": before.tables, "bytes_before": before.bytes, "tables": after.tables,
                "bytes": after.bytes,
                "tables_shared": after.shared, "by_writer_of_epoch": by_writer,
                "open_nanos": opening.map(|opening| opening.0),
                "replayed_bytes": opening.map(|opening| opening.1),
            })
        },
        || {
            let (from, to) = (text::bytes(before.bytes), text::bytes(after.bytes));
            let shared = match after.shared {
                0 => String::new(),
                tables => format!(
                    "; {} of other databases still needed: see its checkpoints and \
                    readers",
                    text::counted(tables, "table")
                ),
            };
            let by =
                by_writer.map_or_else(String::new, |epoch| format!("; done by the writer of epoch {epoch}"));
            let (from_tables, to_tables) =
                (text::counted(before.tables, "table"), text::counted(after.tables, "table"));
            format!("{from_tables} of {from} before, {to_tables} of {to} now{shared}{by}")
        },
    )
}

fn drop_keyspace(arguments: &DropKeyspace, output: &Output) -> Result<()> {
    let db = arguments.writer.open(OpenMode::Open)?;
    let dropped = db.drop_keyspace(&arguments.name).wait();
    finish_write(&db, output, None, dropped.map(|()| None).map_err(Failure::from))
}

fn destroy(arguments: &Destroy, output: &Output) -> Result<()> {
    let WriterArguments { database, take_over } = &arguments.writer;
    let store = &database.store;
    if !arguments.yes {
        return Err(Failure::Usage(format!(
            "destroying {store} deletes all that is in it: say --yes if that is meant"
        )));
    }
    let left = database.to_change(take_over)?.destroy().wait()?;
    let deleted = left.is_deleted();
    output.result(
        || {
            let (readers, lasting, lease_seconds) =
                (left.readers, left.lasting, left.lease_max.as_secs_f64());
            json!({
                "store": store, "destroyed": true, "deleted": deleted, "readers": readers,
                "lease_seconds": lease_seconds, "lasting": lasting
            })
        },
        || {
            if deleted {
                return format!("{store} is destroyed");
            }
            let mut kept = Vec::new();
            if left.readers > 0 {
                let readers = text::counted(left.readers, "reader");
                kept.push(format!(
                    "{readers} that may live, until closed or {:?} after death",
                    left.lease_max
                ));
            }
            if left.lasting > 0 {
                let pins = text::counted(left.lasting, "other pin");
                kept.push(format!("{pins}, until deleted by those who made them"));
            }
            format!(
                "{store} is destroyed and opens no more, but all its tables stay, kept by {}; destroy \
                it again after that",
                kept.join(" and ")
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::after_prefix;

    #[test]
    fn the_end_of_a_prefix_is_the_next_one() {
        assert_eq!(after_prefix(b"ab".to_vec()), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff".to_vec()), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff".to_vec()), None);
        assert_eq!(after_prefix(Vec::new()), None);
    }
}
