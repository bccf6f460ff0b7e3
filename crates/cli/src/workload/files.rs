//! Traces in files: opened, imported, exported.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use tombolo_format::trace::{Event, EventBlock, Header};
use tombolo_lab::export::{CACHE_HEAD, CSV_HEAD, cache_line, csv_line, object, oracle_general};
use tombolo_lab::import::{Columns, Counted, import_csv, import_rocksdb, import_ycsb};
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
            output.note(&format!("events came too fast: {} left out", end.dropped));
        }
        None => output.note("the trace has no end: its recording did not stop properly"),
        Some(_) => {}
    }
    Ok(reader.header().clone())
}

/// Where a trace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// A trace of RocksDB: of queries (`DB::StartTrace`, `db_bench --trace_file`), of its block
    /// cache (`DB::StartBlockCacheTrace`, `--block_cache_trace_file`) or of its IO
    /// (`DB::StartIOTrace`).
    Rocksdb,
    /// What YCSB prints when its database `basic` is verbose: one line of each operation.
    Ycsb,
    /// Twitter's cache traces (CSV without a head).
    Twitter,
    /// Meta's cache traces (CSV with a head; a line stands for `op_count` operations).
    Meta,
    /// Lines with a head that names the columns: any of your own, and our own export.
    Csv,
}

/// Arguments of `import`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo workload import --from rocksdb db_bench.trace my.trace
  tombolo workload import --from twitter cluster52.sort my.trace
  tombolo workload import --from ycsb ycsb.out my.trace

Named columns of a CSV: key or key_hex; time_ns, time_us, time_ms, time or timestamp; operation or op;
keyspace; key_size; value_size or size; entries; ttl; end or end_hex; found; joined; thread; blocks_read;
blocks_hit; latency_ns or latency_us; op_count and cache_hits. RocksDB's query traces have column families
by number only, no lengths of scans, and no mark of sampling. YCSB's lines have no times.")]
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
        From::Rocksdb => import_rocksdb(input, made, arguments.salvage).map(|(_, counted)| counted),
        From::Ycsb => import_ycsb(input, made, arguments.salvage).map(|(_, counted)| counted),
        From::Twitter | From::Meta | From::Csv => {
            let (columns, origin) = match arguments.from {
                From::Twitter => (Some(Columns::twitter()), "twitter"),
                From::Meta => (None, "meta"),
                _ => (None, "csv"),
            };
            import_csv(input, made, columns, origin, arguments.salvage).map(|(_, events, passed_over)| {
                let mut counted = Counted::default();
                counted.events.insert("events", events);
                if passed_over > 0 {
                    counted.passed_over.insert("lines that are no events".to_owned(), passed_over);
                }
                counted
            })
        }
    };
    match imported {
        Ok(counted) => {
            if let Some(at) = counted.cut_at {
                output.note(&format!("the file is damaged at byte {at}, and nothing behind it was read"));
            }
            for (why, count) in &counted.passed_over {
                output.note(&format!("passed over: {count} {why}"));
            }
            for (what, count) in &counted.told {
                output.note(&format!("{what}: {count}"));
            }
            let line = |(name, count): (&&str, &u64)| format!("{name:14} {count}");
            output.result(
                || json!(counted.events),
                || counted.events.iter().map(line).collect::<Vec<_>>().join("\n"),
            )
        }
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
    /// Parquet, for DuckDB and pandas; of a command built with `--features parquet`.
    Parquet,
    /// libCacheSim's oracleGeneral: 24 bytes an access.
    OracleGeneral,
    /// Lines that libCacheSim reads: time, object and bytes.
    CacheCsv,
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
    #[cfg(not(feature = "parquet"))]
    if arguments.to == To::Parquet {
        let what =
            "this command was built without Parquet: build it with `--features parquet`, or export csv";
        return Err(Failure::Usage(what.to_owned()));
    }
    let mut file = arguments.out.as_deref().map(create).transpose()?;
    let done = match arguments.to {
        #[cfg(feature = "parquet")]
        To::Parquet => match file {
            Some(file) => rows(&arguments.trace, file, output),
            None => return Err(Failure::Usage("a Parquet file needs its name: --out".to_owned())),
        },
        _ => lines(arguments, &mut file, output),
    };
    if let (Err(_), Some(path)) = (&done, &arguments.out) {
        // A part is no whole file: a disk may be full of it.
        let _ = std::fs::remove_file(path);
    }
    done
}

/// Lines of text, and records of a fixed size.
fn lines(arguments: &ExportArguments, file: &mut Option<BufWriter<File>>, output: &Output) -> Result<()> {
    let writing = |error| match &arguments.out {
        Some(path) => Failure::io(error, format!("writing {}", path.display())),
        None => Failure::io(error, "writing output".to_owned()),
    };
    let mut put = |bytes: &[u8]| match file {
        Some(file) => file.write_all(bytes).map_err(writing),
        None => output.bytes(bytes),
    };
    let (trace, mut line) = (&arguments.trace, String::new());
    match arguments.to {
        To::OracleGeneral => {
            let (mut nexts, mut record) = (next_accesses(trace, output)?.into_iter(), Vec::new());
            walk(trace, output, |_, event| {
                let next = if object(event).is_some() { nexts.next().unwrap_or(-1) } else { -1 };
                record.clear();
                oracle_general(event, next, &mut record).map_err(|error| failed(&trace.trace, error))?;
                put(&record)
            })?;
        }
        To::CacheCsv => {
            put(CACHE_HEAD.as_bytes())?;
            walk(trace, output, |_, event| {
                cache_line(event, &mut line);
                put(line.as_bytes())
            })?;
        }
        _ => {
            put(CSV_HEAD.as_bytes())?;
            walk(trace, output, |_, event| {
                csv_line(event, &mut line);
                put(line.as_bytes())
            })?;
        }
    }
    file.as_mut().map_or(Ok(()), |file| file.flush().map_err(writing))
}

/// Rows of Parquet.
#[cfg(feature = "parquet")]
fn rows(trace: &TraceArguments, file: BufWriter<File>, output: &Output) -> Result<()> {
    let exporting = |error| failed(&trace.trace, error);
    let mut rows = tombolo_lab::export::ParquetExport::new(file, &header(trace)?).map_err(exporting)?;
    walk(trace, output, |reader, event| {
        let name = reader.names().get(&event.keyspace).map(String::as_str);
        rows.push(event, name).map_err(exporting)
    })?;
    let mut file = rows.finish().map_err(exporting)?;
    file.flush().map_err(|error| Failure::io(error, "writing the Parquet file".to_owned()))
}

/// What a trace is.
#[cfg(feature = "parquet")]
fn header(trace: &TraceArguments) -> Result<Header> {
    let reader = TraceReader::new(BufReader::new(open(&trace.trace)?), trace.salvage);
    Ok(reader.map_err(|error| failed(&trace.trace, error))?.header().clone())
}

/// Of each access the number of the next one of its object, from 1 on; -1 where there is none.
fn next_accesses(trace: &TraceArguments, output: &Output) -> Result<Vec<i64>> {
    let mut hashes = Vec::new();
    walk(trace, output, |_, event| {
        hashes.extend(object(event));
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
