//! `tombolo db ingest`, `export-tables` and `import-tables`: tables without a database.
//!
//! Export: `look → cursor → tables, one after the other → tables.json`, which is put last: without
//! it nothing is imported. Import: `tables.json → keyspace → ingest of all tables at once`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tombolo::{
    Bring, Db, Env, ErrorKind, Export, Exported, ExportedTable, Ingest, IngestOptions, IngestReport,
    Keyspace, KeyspaceOptions, OpenMode,
};
use tombolo_storage::object::read_whole;
use tombolo_storage::{
    Epoch, Life, ObjectKind, ObjectName, ObjectStore, Placement, Purpose, PutOutcome, Request, Uri,
};

use super::close_after;
use crate::as_of::AsOf;
use crate::database::{self, DatabaseArguments, LookArguments, WriterArguments};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{interrupt, place, progress, text};

/// The object that says which tables an export has.
const INDEX: &str = "tables.json";
/// What an index says that it is.
const FORMAT: &str = "tombolo tables 1";
/// Where a local store makes what it then names.
const TEMPORARY: &str = "tmp";
/// Most bytes of an index.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// Arguments of `ingest`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db ingest file:///data/orders parts/1.table parts/2.table
  tombolo db ingest s3://bucket/orders s3://bucket/parts/1.table --bring copy
  tombolo db ingest file:///data/orders new.table --exchange

All tables become part of the database at once, or none of them does. Each is read and checked first; its data goes through no log.
Tables are made by `db export-tables`, or by programs with TableFileBuilder.")]
pub struct IngestArguments {
    #[command(flatten)]
    writer: WriterArguments,
    /// Where the tables are: paths of files, or URIs of objects.
    #[arg(required = true, value_name = "TABLE", value_parser = place::place)]
    tables: Vec<String>,
    /// The keyspace.
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
    #[command(flatten)]
    how: HowToIngest,
    /// Tables may hold the same keys: those of a later one take the place of those of an earlier
    /// one.
    #[arg(long)]
    ordered: bool,
    /// All that the keyspace holds ends, and the tables take its place.
    #[arg(long)]
    exchange: bool,
    /// The tables come to lie behind all that the keyspace holds, which was made with
    /// ingest_behind=true: a key has what a table says only where the keyspace has nothing for it.
    #[arg(long, conflicts_with_all = ["ordered", "exchange"])]
    behind: bool,
}

#[derive(Args)]
struct HowToIngest {
    /// How tables come into the database.
    #[arg(long, value_enum, default_value_t = How::Link)]
    bring: How,
    /// Looks at the ends of each table only, and not at every byte.
    #[arg(long)]
    trusted: bool,
}

/// How tables come into a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// By reference where the store can, else byte by byte; the given object stays.
    Link,
    /// Byte by byte; the given object stays.
    Copy,
    /// As link; the given object is deleted once the database has it.
    Move,
}

impl HowToIngest {
    fn options(&self, ordered: bool) -> IngestOptions {
        let bring = match self.bring {
            How::Link => Bring::Link,
            How::Copy => Bring::Copy,
            How::Move => Bring::Move,
        };
        IngestOptions { bring, ordered, trusted: self.trusted, ..IngestOptions::default() }
    }
}

/// Arguments of `export-tables`.
#[derive(Args)]
#[command(after_help = "\
Example:
  tombolo db export-tables file:///data/orders /backup/orders-tables
  tombolo db import-tables file:///data/other /backup/orders-tables

The tables hold all keys of the keyspace as they are when the command begins: everything that is durable then, one version of each.
tables.json beside them names the keyspace, its settings, and each table with its bounds.")]
pub struct ExportTables {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    look: LookArguments,
    /// Where the tables shall be: a new directory, or a place on any store.
    #[arg(value_name = "PLACE", value_parser = place::place)]
    place: String,
    /// The keyspace.
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
    /// A table ends at about this many bytes.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = text::size)]
    table_bytes: u64,
    /// Writes operands as they are, in tables of their own, and folds none: where the keyspace's
    /// merge operator is not there. What imports them needs the same one.
    #[arg(long)]
    keep_merges: bool,
}

/// Arguments of `import-tables`.
#[derive(Args)]
pub struct ImportTables {
    #[command(flatten)]
    writer: WriterArguments,
    /// Where `db export-tables` has put them.
    #[arg(value_name = "PLACE", value_parser = place::place)]
    place: String,
    /// The keyspace, which is made with the settings of the exported one if it is not there.
    /// Default: the name of the exported one.
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    #[command(flatten)]
    how: HowToIngest,
    /// All that the keyspace holds ends, and the tables take its place. Without it the tables'
    /// entries lie over what it holds.
    #[arg(long)]
    exchange: bool,
}

/// What `tables.json` says.
#[derive(Debug, Serialize, Deserialize)]
struct Index {
    format: String,
    keyspace: String,
    settings: Vec<(String, String)>,
    /// Tables may hold the same keys: later ones lie over earlier ones.
    #[serde(default)]
    ordered: bool,
    tables: Vec<Part>,
}

/// A table of an export.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    name: String,
    bytes: u64,
    entries: u64,
    first_key: serde_json::Value,
    last_key: serde_json::Value,
}

/// An object at a place.
fn object_at(place: &str, name: &str) -> Result<String> {
    let mut uri = Uri::parse(place)?;
    uri.rest = format!("{}/{name}", uri.rest.trim_end_matches('/'));
    Ok(uri.to_string())
}

/// Draws how far an ingest has come.
fn run_ingest(db: &Db, ingest: Ingest, output: &Output) -> Result<IngestReport> {
    let interrupted = interrupt::listen()?;
    let (told, newest) = std::sync::mpsc::channel();
    let ingest = ingest.progress(move |report| {
        // Nobody listens after Ctrl-C.
        let _ = told.send(report.clone());
    });
    let bar = if output.is_watched() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let report = interrupt::wait(db.ingest(ingest), &interrupted, || {
        if let Some(report) = newest.try_iter().last() {
            let (tables, wanted) = (text::count(report.tables), text::count(report.tables_wanted));
            bar.set_message(format!("{tables} of {wanted} tables checked"));
        }
        bar.tick();
    });
    bar.finish_and_clear();
    report
}

fn say(report: &IngestReport, output: &Output) -> Result<()> {
    output.result(
        || {
            json!({
                "tables": report.tables, "bytes": report.bytes, "entries": report.entries,
                "sequence": report.sequence,
            })
        },
        || {
            let (tables, entries) =
                (text::counted(report.tables, "table"), text::counted(report.entries, "entry"));
            format!("ingested {tables}, {entries}, {}", text::bytes(report.bytes))
        },
    )
}

/// Runs `ingest`.
pub fn ingest(arguments: &IngestArguments, output: &Output) -> Result<()> {
    let db = arguments.writer.open(OpenMode::Open)?;
    let report = close_after(&db, ingest_into(&db, arguments, output))?;
    say(&report, output)
}

fn ingest_into(db: &Db, arguments: &IngestArguments, output: &Output) -> Result<IngestReport> {
    let keyspace = db.keyspace(&arguments.keyspace)?;
    let options = arguments.how.options(arguments.ordered);
    let mut ingest = Ingest::new().options(IngestOptions { behind: arguments.behind, ..options });
    if arguments.exchange {
        ingest = ingest.exchange(&keyspace);
    }
    for table in &arguments.tables {
        ingest = ingest.table(&keyspace, table.as_str());
    }
    run_ingest(db, ingest, output)
}

/// Runs `export-tables`.
pub fn export(arguments: &ExportTables, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    let uri = Uri::parse(&arguments.place)?;
    let directory = if uri.scheme == "file" { Some(uri.path()?) } else { None };
    let is_new = directory.as_ref().is_some_and(|directory| !directory.exists());
    let is_mine = directory.as_ref().is_some_and(|directory| !directory.join(TEMPORARY).exists());
    let (env, store) = store(&arguments.place)?;
    let index = ObjectName::new(INDEX)?;
    let request = Request::new(Purpose::Flush, Epoch::NONE);
    match env.block_on(store.length(request, &index)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(taken(&arguments.place)),
    }
    let exported = arguments.database.look(&arguments.look, output, |db| {
        let keyspace = db.keyspace(&arguments.keyspace)?;
        let exported = export_parts(db, &keyspace, arguments, (output, &interrupted))
            .map_err(|failure| without_operator(&keyspace, failure))?;
        let parts: Vec<Part> = exported.tables.iter().map(part).collect();
        let (tables, entries) = (parts.len() as u64, parts.iter().map(|part| part.entries).sum::<u64>());
        let bytes = parts.iter().map(|part| part.bytes).sum::<u64>();
        let settings = keyspace.options().settings();
        let said = Index {
            format: FORMAT.into(),
            keyspace: keyspace.name().into(),
            settings: settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ordered: exported.ordered,
            tables: parts,
        };
        let text = serde_json::to_vec_pretty(&said)
            .map_err(|error| Failure::Usage(format!("{INDEX} cannot be written: {error}")))?;
        let placement = Placement::new(ObjectKind::Other, Life::Long);
        let put = env.block_on(store.put_if_absent(request, &index, placement, text.into()))?;
        if put == PutOutcome::Exists {
            return Err(taken(&arguments.place));
        }
        let as_of = AsOf::of(db);
        output.result(
            || as_of.added_to(json!({ "tables": tables, "entries": entries, "bytes": bytes })),
            || {
                let (tables, entries) = (text::counted(tables, "table"), text::counted(entries, "entry"));
                format!("exported {tables}, {entries}, {}, {as_of}", text::bytes(bytes))
            },
        )
    });
    drop(store);
    if let Some(directory) = directory {
        leave(&directory, is_new, is_mine);
    }
    exported
}

/// Removes the directory in which a local store makes its objects, which nobody wants beside the
/// tables of an export, if it was not there before; and that of the tables, if it is new and
/// nothing has come.
fn leave(directory: &Path, is_new: bool, is_mine: bool) {
    // One that is not empty stays.
    if is_mine {
        let _removed = std::fs::remove_dir(directory.join(TEMPORARY));
    }
    if is_new {
        let _removed = std::fs::remove_dir(directory);
    }
}

fn taken(place: &str) -> Failure {
    Failure::Usage(format!("{place} holds exported tables already: name a new place"))
}

/// The store at a place.
fn store(place: &str) -> Result<(Env, Arc<dyn ObjectStore>)> {
    let env = Env::real();
    let store = database::registry().open_object_store(&env, &Uri::parse(place)?)?;
    Ok((env, store))
}

/// Says what to do about a keyspace whose merges nobody here can fold.
pub(super) fn without_operator(keyspace: &Keyspace, failure: Failure) -> Failure {
    let names_operator = keyspace.options().operator.is_some();
    match failure {
        Failure::Engine(error) if error.kind() == ErrorKind::Unsupported && names_operator => {
            Failure::Engine(error.advice("export operands as they are, with --keep-merges"))
        }
        failure => failure,
    }
}

/// Writes all entries of a keyspace, table after table.
fn export_parts(
    db: &Db,
    keyspace: &Keyspace,
    arguments: &ExportTables,
    (output, interrupted): (&Output, &AtomicBool),
) -> Result<Exported> {
    let bar = progress::bar("exported", output);
    let (told, newest) = std::sync::mpsc::channel();
    let export = Export::new(keyspace).table_bytes(arguments.table_bytes).progress(move |report| {
        // Nobody listens after Ctrl-C.
        let _ = told.send(report.bytes);
    });
    let export = if arguments.keep_merges { export.keep_merges() } else { export };
    let exported = interrupt::wait(db.export_tables(export, &arguments.place[..]), interrupted, || {
        if let Some(bytes) = newest.try_iter().last() {
            bar.set_position(bytes);
        }
        bar.tick();
    });
    bar.finish_and_clear();
    exported
}

/// Of merges that end it matters when each was written, which a table from outside does not say.
pub(super) fn ends(key: &[u8]) -> Failure {
    Failure::Usage(format!(
        "the merges of key {} end, and their operands cannot be kept: export without --keep-merges, by a program \
         that has the merge operator",
        text::shown(key)
    ))
}

fn part(ExportedTable { name, table, .. }: &ExportedTable) -> Part {
    Part {
        name: name.clone(),
        bytes: table.bytes,
        entries: table.entries,
        first_key: text::to_json(&table.first_key),
        last_key: text::to_json(&table.last_key),
    }
}

/// Runs `import-tables`.
pub fn import(arguments: &ImportTables, output: &Output) -> Result<()> {
    let index = read_index(&arguments.place)?;
    let db = arguments.writer.open(OpenMode::CreateOrOpen)?;
    let report = close_after(&db, import_into(&db, arguments, &index, output))?;
    say(&report, output)
}

fn import_into(db: &Db, arguments: &ImportTables, index: &Index, output: &Output) -> Result<IngestReport> {
    let name = arguments.keyspace.as_deref().unwrap_or(&index.keyspace);
    let keyspace = match db.keyspace(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut options = KeyspaceOptions::default();
            for (name, value) in &index.settings {
                options.set(name, value)?;
            }
            db.create_keyspace(name, options).wait()?
        }
        found => found?,
    };
    let mut ingest = Ingest::new().options(arguments.how.options(index.ordered));
    if arguments.exchange || index.tables.is_empty() {
        ingest = ingest.exchange(&keyspace);
    }
    for part in &index.tables {
        ingest = ingest.table(&keyspace, object_at(&arguments.place, &part.name)?);
    }
    run_ingest(db, ingest, output)
}

/// Reads and checks what an export says of itself.
fn read_index(place: &str) -> Result<Index> {
    let (env, store) = store(place)?;
    let request = Request::new(Purpose::Open, Epoch::NONE);
    let name = ObjectName::new(INDEX)?;
    let bytes = match env.block_on(read_whole(&*store, request, &name, INDEX_BYTES_MAX)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message = format!("there are no exported tables at {place}: it has no {INDEX}");
            return Err(Failure::NotFound(message));
        }
        bytes => bytes?,
    };
    let wrong =
        |what: String| Failure::Usage(format!("{INDEX} at {place} is none of `db export-tables`: {what}"));
    let index: Index = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if index.format != FORMAT {
        return Err(wrong(format!("it is of the format {:?}, not {FORMAT:?}", index.format)));
    }
    for part in &index.tables {
        let object = ObjectName::new(&part.name)?;
        let length = env.block_on(store.length(request, &object))?;
        if length != part.bytes {
            return Err(wrong(format!("{} has {length} bytes, not {}", part.name, part.bytes)));
        }
    }
    Ok(index)
}
