//! `tombolo migrate`: databases of RocksDB carried over, and back.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tombolo::{Env, OpenMode, TablePlace};
use tombolo_migrate::{FromRocksdb, Library, Progress, Report, ToRocksdb, from_rocksdb, to_rocksdb};
use tombolo_storage::Uri;

use crate::database::{self, DatabaseArguments, LookArguments, WriterArguments};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{interrupt, progress, text};

/// Commands of `migrate`.
#[derive(Subcommand)]
pub enum Command {
    /// Carries a RocksDB database over to a new database here, all column families as they are now.
    FromRocksdb(FromArguments),
    /// Carries a database here over to a new RocksDB database.
    ToRocksdb(ToArguments),
}

#[derive(Args)]
struct How {
    /// RocksDB's library, where the system has it under no usual name.
    #[arg(long = "library", value_name = "PATH")]
    rocksdb: Option<PathBuf>,
    /// Does not read both sides again to compare them.
    #[arg(long)]
    no_compare: bool,
    /// Bytes of a table that is made.
    #[arg(long, value_name = "SIZE", value_parser = text::size, default_value = "64MiB")]
    table_bytes: u64,
}

/// Arguments of `from-rocksdb`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo migrate from-rocksdb /var/lib/app/rocksdb file:///data/app
  tombolo migrate from-rocksdb /var/lib/app/rocksdb s3://bucket/app --bytes-per-second 50MiB
  tombolo migrate from-rocksdb /var/lib/app/rocksdb /data/app --merge-operator stringappend

The RocksDB database is read by RocksDB's own library, and not changed; the program that has it is to be stopped first.
Stopped by Ctrl-C or killed, the same command goes on where it was. In the end both sides are read, and their digests printed.")]
pub struct FromArguments {
    /// The directory of the RocksDB database.
    #[arg(value_name = "DIRECTORY")]
    from: PathBuf,
    #[command(flatten)]
    writer: WriterArguments,
    #[command(flatten)]
    how: How,
    /// The merge operator, as RocksDB's library knows it: stringappend, uint64add, max.
    #[arg(long, value_name = "NAME")]
    merge_operator: Option<String>,
    /// The TTL wrapper wrote it: how long its values live, 0 for ever.
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,
    /// No transaction of it is prepared.
    #[arg(long)]
    nothing_prepared: bool,
    /// Bytes that are read in a second, at most.
    #[arg(long, value_name = "SIZE", value_parser = text::size)]
    bytes_per_second: Option<u64>,
}

/// Arguments of `to-rocksdb`.
#[derive(Args)]
#[command(after_help = "\
Example:
  tombolo migrate to-rocksdb file:///data/app /var/lib/app/rocksdb

Everything that is durable when the command begins, one version of each key, as tables that RocksDB ingests.")]
pub struct ToArguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The directory of the RocksDB database that is made.
    #[arg(value_name = "DIRECTORY")]
    to: PathBuf,
    #[command(flatten)]
    how: How,
    /// Writes values that end as if they never did: RocksDB has none that do.
    #[arg(long)]
    forget_ends: bool,
}

/// Runs one of them.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::FromRocksdb(arguments) => from(arguments, output),
        Command::ToRocksdb(arguments) => to(arguments, output),
    }
}

fn from(arguments: &FromArguments, output: &Output) -> Result<()> {
    let interrupted = interrupt::listen()?;
    // Before all else: who meets a writer need not look for a library first.
    arguments.writer.take_over.check(&arguments.writer.database, &interrupted)?;
    let rocksdb = Library::load(arguments.how.rocksdb.as_deref())?;
    let store = arguments.writer.database.store.clone();
    let place = move |number: u64| -> tombolo::Result<TablePlace> {
        let mut uri = Uri::parse(&store)?;
        uri.rest = format!("{}/migration/{number}.table", uri.rest.trim_end_matches('/'));
        Ok(uri.to_string().into())
    };
    let asked = FromRocksdb {
        rocksdb,
        directory: arguments.from.clone(),
        merge_operator: arguments.merge_operator.clone(),
        ttl: arguments.ttl.map(Duration::from_secs),
        nothing_prepared: arguments.nothing_prepared,
        table_bytes: arguments.how.table_bytes,
        bytes_per_second: arguments.bytes_per_second,
        compare: !arguments.how.no_compare,
        env: Env::real(),
        registry: database::registry(),
        place: &place,
    };
    let db = arguments.writer.open(OpenMode::CreateOrOpen)?;
    let ran = watched(output, &interrupted, |tell| from_rocksdb(&db, &asked, tell));
    let closed = db.close().wait();
    let report = ran?;
    closed?;
    say(&report, output)
}

fn to(arguments: &ToArguments, output: &Output) -> Result<()> {
    let asked = ToRocksdb {
        rocksdb: Library::load(arguments.how.rocksdb.as_deref())?,
        directory: arguments.to.clone(),
        table_bytes: arguments.how.table_bytes,
        forget_ends: arguments.forget_ends,
        compare: !arguments.how.no_compare,
    };
    let (look, interrupted) = (LookArguments::default(), interrupt::listen()?);
    let report = arguments
        .database
        .look(&look, output, |db| watched(output, &interrupted, |tell| to_rocksdb(db, &asked, tell)))?;
    say(&report, output)
}

/// Runs it under a bar, until it ends or Ctrl-C comes.
fn watched(
    output: &Output,
    interrupted: &AtomicBool,
    run: impl FnOnce(&mut tombolo_migrate::Tell<'_>) -> tombolo::Result<Report>,
) -> Result<Report> {
    let bar = progress::bar("carried over", output);
    let ended = run(&mut |progress: &Progress| {
        bar.set_length(progress.bytes.max(bar.length().unwrap_or(0)));
        bar.set_position(progress.bytes);
        !interrupted.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    match ended {
        Err(_) if interrupted.load(Ordering::Relaxed) => Err(Failure::Interrupted),
        ended => Ok(ended?),
    }
}

fn say(report: &Report, output: &Output) -> Result<()> {
    let Progress { keyspaces, entries, bytes, tables, expired, .. } = report.progress;
    let digests = || {
        report.digests.iter().map(|(name, from, to)| {
            json!({ "keyspace": name, "entries": to.entries, "bytes": to.bytes,
                "digest_from": from.to_string(), "digest_to": to.to_string() })
        })
    };
    output.result(
        || {
            json!({ "keyspaces": keyspaces, "entries": entries, "bytes": bytes, "tables": tables,
                "expired": expired, "digests": digests().collect::<Vec<_>>() })
        },
        || {
            let mut told = format!(
                "{} of {} carried over in {}, {}",
                text::counted(entries, "entry"),
                text::counted(keyspaces, "keyspace"),
                text::counted(tables, "table"),
                text::bytes(bytes)
            );
            if expired > 0 {
                told += &format!("\n{} that had ended left out", text::counted(expired, "entry"));
            }
            for (name, from, to) in &report.digests {
                let entries = text::counted(to.entries, "entry");
                told += &format!("\n{name}: {entries}, digests {from} and {to}: the same");
            }
            told
        },
    )
}
