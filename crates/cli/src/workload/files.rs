//! Traces in files: opened, imported, exported.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use tombolo_format::trace::{Event, EventBlock, Header};
use tombolo_lab::export::{CSV_HEAD, csv_line, oracle_general};
use tombolo_lab::import::{Columns, import_csv, import_rocksdb};
use tombolo_lab::{TraceError, TraceReader};

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress;

/// A trace in a file.
#[derive(Args, Clone, Debug)]
pub struct TraceArguments {
    /// The trace: a file of `Db::record`, `tombolo bench --record` or `tombolo workload import`.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Passes over damaged parts, and says where they are.
    #[arg(long)]
    pub salvage: bool,
}

/// The failure of an error of a trace.
pub fn failed(path: &Path, error: TraceError) -> Failure {
    let text = format!("{}: {error}", path.display());
    match error {
        TraceError::Io { error, doing } => Failure::io(error, format!("{}: {doing}", path.display())),
        TraceError::Foreign(_) | TraceError::Invalid(_) => Failure::Usage(text),
        TraceError::Damaged { .. } | TraceError::Truncated { .. } => {
            Failure::from(tombolo::Error::new(tombolo::ErrorKind::Corrupt, text))
        }
    }
}

/// Opens a file for reading.
pub fn open(path: &Path) -> Result<File> {
    match File::open(path) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::NotFound(format!("{} is not there", path.display())))
        }
        Err(error) => Err(Failure::io(error, format!("opening {}", path.display()))),
    }
}

/// Makes a file that is not there.
pub fn create(path: &Path) -> Result<BufWriter<File>> {
    let made = File::create_new(path);
    let failed = |error| Failure::io(error, format!("making {}", path.display()));
    Ok(BufWriter::new(made.map_err(failed)?))
}

/// Gives every event of a trace to `each`; returns what the trace is. A bar shows how far it is.
pub fn walk(
    arguments: &TraceArguments,
    output: &Output,
    mut each: impl FnMut(&TraceReader<BufReader<File>>, &Event<'_>) -> Result<()>,
) -> Result<Header> {
    let path = &arguments.trace;
    let file = open(path)?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let bar = progress::bar("read", output);
    bar.set_length(length);
    let reading = TraceReader::new(BufReader::with_capacity(1 << 20, file), arguments.salvage);
    let mut reader = reading.map_err(|error| failed(path, error))?;
    let mut block = EventBlock::default();
    while reader.next(&mut block).map_err(|error| failed(path, error))? {
        for event in block.iter() {
            each(&reader, &event)?;
        }
        bar.set_position(reader.position());
    }
    bar.finish_and_clear();
    for skipped in reader.skipped() {
        output.note(&format!("passed over {} bytes at byte {}: {}", skipped.bytes, skipped.at, skipped.why));
    }
    match reader.end() {
        Some(end) if end.dropped > 0 => {
            output.note(&format!("{} events were not recorded, since they came too fast", end.dropped));
        }
        None => output.note("the trace has no end: its recording did not stop properly"),
        Some(_) => {}
    }
    Ok(reader.header().clone())
}

/// Where a trace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// A query trace of RocksDB, version 0.1 or 0.2 (`db_bench --trace_file`, `DB::StartTrace`).
    Rocksdb,
    /// Twitter's cache traces (CSV without a head).
    Twitter,
    /// Lines with a head that names the columns: Meta's cache traces, and our own export.
    Csv,
}

/// Arguments of `import`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo workload import --from rocksdb db_bench.trace my.trace
  tombolo workload import --from twitter cluster52.sort my.trace

Named columns of a CSV: key or key_hex; time_ns, time_us, time_ms, time or timestamp; operation or op; keyspace;
key_size; value_size or size; entries; ttl. RocksDB's traces have column families by number only, no lengths of scans,
and no mark of sampling.")]
pub struct ImportArguments {
    /// What the file is.
    #[arg(long, value_enum)]
    from: From,
    /// The file.
    input: PathBuf,
    /// The trace that is made.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Takes what can be read of a damaged file.
    #[arg(long)]
    salvage: bool,
}

/// `import`.
pub fn import(arguments: &ImportArguments, output: &Output) -> Result<()> {
    let input = BufReader::with_capacity(1 << 20, open(&arguments.input)?);
    let made = create(&arguments.trace)?;
    let imported = match arguments.from {
        From::Rocksdb => import_rocksdb(input, made, arguments.salvage).map(|(_, counted)| {
            if let Some(at) = counted.cut_at {
                output.note(&format!("the file is damaged at byte {at}, and nothing behind it was read"));
            }
            for (why, count) in &counted.passed_over {
                output.note(&format!("passed over: {count} {why}"));
            }
            counted.events.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>()
        }),
        From::Twitter | From::Csv => {
            let (columns, origin) = match arguments.from {
                From::Twitter => (Some(Columns::twitter()), "twitter"),
                _ => (None, "csv"),
            };
            import_csv(input, made, columns, origin, arguments.salvage).map(|(_, events, passed_over)| {
                if passed_over > 0 {
                    output.note(&format!("passed over: {passed_over} lines that are no events"));
                }
                vec![("events".to_owned(), events)]
            })
        }
    };
    match imported {
        Ok(counts) => output.result(
            || json!(counts.iter().cloned().collect::<std::collections::BTreeMap<_, _>>()),
            || counts.iter().map(|(name, count)| format!("{name:14} {count}")).collect::<Vec<_>>().join("\n"),
        ),
        Err(error) => {
            // What was made is no whole trace.
            let _ = std::fs::remove_file(&arguments.trace);
            Err(failed(&arguments.input, error))
        }
    }
}

/// How a trace is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// Lines of text, keys as hexadecimal digits.
    Csv,
    /// libCacheSim's oracleGeneral: 24 bytes an access.
    OracleGeneral,
}

/// Arguments of `export`.
#[derive(Args)]
pub struct ExportArguments {
    #[command(flatten)]
    trace: TraceArguments,
    /// The form.
    #[arg(long, value_enum, default_value = "csv")]
    to: To,
    /// The file that is made; standard output when not given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `export`.
pub fn export(arguments: &ExportArguments, output: &Output) -> Result<()> {
    let mut file = arguments.out.as_deref().map(create).transpose()?;
    let doing = || match &arguments.out {
        Some(path) => format!("writing {}", path.display()),
        None => "writing output".to_owned(),
    };
    let mut put = |bytes: &[u8]| match &mut file {
        Some(file) => file.write_all(bytes).map_err(|error| Failure::io(error, doing())),
        None => output.bytes(bytes),
    };
    if arguments.to == To::Csv {
        put(CSV_HEAD.as_bytes())?;
    }
    let (mut line, mut record) = (String::new(), Vec::new());
    let nexts =
        if arguments.to == To::OracleGeneral { next_accesses(&arguments.trace, output)? } else { Vec::new() };
    let mut nexts = nexts.into_iter();
    walk(&arguments.trace, output, |_, event| match arguments.to {
        To::Csv => {
            csv_line(event, &mut line);
            put(line.as_bytes())
        }
        To::OracleGeneral => {
            record.clear();
            let next = nexts.next().unwrap_or(-1);
            oracle_general(event, next, &mut record)
                .map_err(|error| failed(&arguments.trace.trace, error))?;
            put(&record)
        }
    })?;
    match file {
        Some(mut file) => file.flush().map_err(|error| Failure::io(error, doing())),
        None => Ok(()),
    }
}

/// Of each event the number of the next access of its key, from 1 on; -1 where there is none.
fn next_accesses(trace: &TraceArguments, output: &Output) -> Result<Vec<i64>> {
    let mut hashes = Vec::new();
    walk(trace, output, |_, event| {
        hashes.push(tombolo_format::checksum::key_hash(event.key));
        Ok(())
    })?;
    let mut seen = tombolo_workload::sketch::HashedMap::default();
    let mut nexts = vec![-1; hashes.len()];
    for (index, hash) in hashes.iter().enumerate().rev() {
        if let Some(next) = seen.insert(*hash, index) {
            nexts[index] = i64::try_from(next + 1).unwrap_or(i64::MAX);
        }
    }
    Ok(nexts)
}
