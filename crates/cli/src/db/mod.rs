//! `tombolo db`: databases at the prompt.

mod checkpoint;
pub mod clones;
mod condition;
mod explain_get;
mod files;
mod keyspaces;
mod look;
mod salvage;
mod spread;
mod tables;
mod time;
mod transactions;
mod transfer;
mod watch;
mod write;
mod writer;

use std::ffi::OsString;
use std::ops::Bound;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tombolo::{Answered, Ask, Db, Durability, ErrorKind, Keyspace, Op, OpenMode, Versioned};

pub use self::keyspaces::keyspace_options;
use crate::as_of::AsOf;
use crate::database::{
    DatabaseArguments, Done, LookArguments, NewArguments, TakeOverArguments, WriterArguments,
};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::mirror;
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
    Put(write::Put),
    /// Merges into the value of a key, by the keyspace's operator.
    Merge(write::Merge),
    /// Prints the value of a key; exit code 3 when it has none.
    Get(Get),
    /// Does a get, and says what it asked: memtables, filters, tables and blocks, and why.
    ExplainGet(explain_get::ExplainGet),
    /// Deletes a key, there or not.
    Delete(write::Delete),
    /// Deletes all keys from one on and before another: one write, however many there are.
    DeleteRange(write::DeleteRange),
    /// Deletes all keys from one on and before another, and drops the tables that hold nothing else
    /// without reading them.
    DeleteFilesInRange(files::DeleteFilesInRange),
    /// Prints keys and values in order.
    Scan(Scan),
    /// Counts the keys of a range, exactly; tables that nothing else meets go unread.
    Count(spread::Count),
    /// Prints keys that cut a range into about equal parts, for scans side by side.
    Splits(spread::Splits),
    /// Prints different entries at random.
    Sample(spread::Sample),
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
    /// Moves a live database to another place, and says how long it took no writes.
    Move(mirror::Move),
    /// Makes a mirror a database that is written, and says what it lacks of its source.
    Promote(mirror::Promote),
    /// Lists, creates, changes and drops keyspaces.
    #[command(subcommand)]
    Keyspace(keyspaces::Command),
    /// Says what the database holds: tables, memory, log, what opening took.
    Stats(Look),
    /// Says what the database says about itself by name, as a program reads it.
    Properties(look::Properties),
    /// Says what each level of the tree holds, from the manifest alone: no writer is disturbed.
    Levels(look::Levels),
    /// Says the database's own time, by which values expire, and sets it to this host's clock.
    Time(time::Arguments),
    /// Lists transactions that are prepared and not decided, and decides them.
    #[command(subcommand)]
    Transactions(transactions::Command),
    /// Follows the writes of others, batch by batch; disturbs nobody.
    Watch(watch::Watch),
    /// Subscribes to changes, so that they are kept, and ends that.
    #[command(subcommand)]
    Subscriptions(watch::Command),
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
        match db.keyspace(&self.keyspace) {
            Ok(keyspace) => Ok((db, keyspace)),
            Err(error) => close_after(&db, Err(error.into())),
        }
    }

    /// See [`DatabaseArguments::look_dated`].
    fn look<T>(
        &self,
        look: &LookArguments,
        output: &Output,
        mut show: impl FnMut(&Keyspace) -> Result<T>,
    ) -> Result<(T, AsOf)> {
        self.database.look_dated(look, output, |db| show(&db.keyspace(&self.keyspace)?))
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

/// Arguments of `scan`.
#[derive(Args)]
pub struct Scan {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    look: LookArguments,
    #[command(flatten)]
    keys: RangeArguments,
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
        Command::Put(arguments) => write::put(arguments, output),
        Command::Merge(arguments) => write::merge(arguments, output),
        Command::Get(arguments) => get(arguments, output),
        Command::ExplainGet(arguments) => explain_get::run(arguments, output),
        Command::Delete(arguments) => write::delete(arguments, output),
        Command::DeleteRange(arguments) => write::delete_range(arguments, output),
        Command::DeleteFilesInRange(arguments) => files::run(arguments, output),
        Command::Scan(arguments) => scan(arguments, output),
        Command::Count(arguments) => spread::count(arguments, output),
        Command::Splits(arguments) => spread::splits(arguments, output),
        Command::Sample(arguments) => spread::sample(arguments, output),
        Command::Import(arguments) => transfer::import(arguments, output),
        Command::Export(arguments) => transfer::export(arguments, output),
        Command::Ingest(arguments) => tables::ingest(arguments, output),
        Command::ExportTables(arguments) => tables::export(arguments, output),
        Command::ImportTables(arguments) => tables::import(arguments, output),
        Command::Keyspace(command) => keyspaces::run(command, output),
        Command::Checkpoint(command) => checkpoint::run(command, output),
        Command::Clone(arguments) => checkpoint::clone(arguments, output),
        Command::Clones(command) => clones::run(command, output),
        Command::Move(arguments) => mirror::move_to(arguments, output),
        Command::Promote(arguments) => mirror::promote(arguments, output),
        Command::Stats(arguments) => look::stats(arguments, output),
        Command::Properties(arguments) => look::properties(arguments, output),
        Command::Time(arguments) => time::run(arguments, output),
        Command::Transactions(command) => transactions::run(command, output),
        Command::Watch(arguments) => watch::run(arguments, output),
        Command::Subscriptions(command) => watch::subscriptions(command, output),
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
    let (found, as_of) = arguments.common.look(look, output, |keyspace| {
        let Some(value) = keyspace.get_versioned(&key).wait()? else { return Ok(None) };
        Ok(Some((value, end_of(keyspace, &key)?)))
    })?;
    let Some((Versioned { value, sequence }, end)) = found else {
        let keyspace = arguments.common.keyspace.clone();
        return Err(Failure::NoValue { shown: form.show(&key), key: form.to_json(&key), keyspace });
    };
    if arguments.raw {
        output.bytes(&value)?;
        as_of.say(output)
    } else {
        let shown = || {
            let mut entry = entry_json(form, &key, &value, end);
            entry["version"] = json!(sequence);
            entry
        };
        as_of.result(output, shown, || form.show(&value))
    }
}

/// When the value of a key ends. A look sees what it saw before.
fn end_of(keyspace: &Keyspace, key: &[u8]) -> Result<Option<u64>> {
    let mut cursor = keyspace.cursor::<&[u8]>(key..=key).keys_only();
    Ok(if cursor.seek_to_first()? { cursor.expires_ms() } else { None })
}

fn scan(arguments: &Scan, output: &Output) -> Result<()> {
    let range = arguments.keys.parse(arguments.common.form())?;
    let show = |keyspace: &Keyspace| show_entries(keyspace, range.clone(), arguments, output);
    let ((), as_of) = arguments.common.look(&arguments.look, output, show)?;
    as_of.say(output)
}

fn show_entries(keyspace: &Keyspace, range: Keys, arguments: &Scan, output: &Output) -> Result<()> {
    let form = arguments.common.form();
    let mut cursor = keyspace.cursor::<Vec<u8>>(range);
    if arguments.keys_only {
        cursor = cursor.keys_only();
    }
    let mut valid = if arguments.reverse { cursor.seek_to_last()? } else { cursor.seek_to_first()? };
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    while valid && left > 0 {
        let (key, value) = (cursor.key(), cursor.value());
        left -= 1;
        if arguments.keys_only {
            output.result(|| json!({ "key": form.to_json(key) }), || form.show(key))?;
        } else {
            output.result(
                || entry_json(form, key, value, cursor.expires_ms()),
                || format!("{}\t{}", form.show(key), form.show(value)),
            )?;
        }
        valid = if arguments.reverse { cursor.prev()? } else { cursor.next()? };
    }
    Ok(())
}

/// An entry as `import` reads it and `export` writes it.
fn entry_json(form: Form, key: &[u8], value: &[u8], expires_ms: Option<u64>) -> Value {
    let mut entry = json!({ "key": form.to_json(key), "value": form.to_json(value) });
    if let Some(end) = expires_ms {
        entry["expires_ms"] = json!(end);
    }
    entry
}

/// A range of keys.
type Keys = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Which keys.
#[derive(Args)]
struct RangeArguments {
    /// Only keys that begin with this.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Keys from this one on.
    #[arg(long)]
    from: Option<OsString>,
    /// Keys before this one.
    #[arg(long)]
    to: Option<OsString>,
}

impl RangeArguments {
    fn parse(&self, form: Form) -> Result<Keys> {
        let parse = |text: &Option<OsString>| text.as_deref().map(|text| form.parse(text)).transpose();
        let (from, to) = (parse(&self.from)?, parse(&self.to)?);
        let prefix = parse(&self.prefix)?;
        let from = prefix.clone().or(from);
        let to = prefix.map_or(to, after_prefix);
        Ok((from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded)))
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

fn verify(arguments: &Look, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let verified = arguments.database.look_dated(&arguments.look, output, |db| {
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
        report
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
