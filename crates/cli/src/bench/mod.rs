//! `tombolo bench`: db_bench's benchmarks on a database.
//!
//! `arguments → Plan → for each name: runner → Row → table, JSON`. The benchmarks themselves are
//! `tombolo_workload::bench`, which knows no engine; [`engine`] is Tombolo's side of them.

mod engine;
mod latency;
mod report;
mod results;
mod runner;
mod store;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use tombolo::{ErrorKind, OpenMode, Options, RecordKeys, RecordOptions, Recording};
use tombolo_workload::bench::{Benchmark, Plan};
use tombolo_workload::{Distribution, Durability, ycsb};

use self::engine::{Engine, Place};
use self::report::{Header, Row};
use self::results::Results;
use crate::database::TakeOverArguments;
use crate::db;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::machine::{self, Machine, Memory};
use crate::output::Output;
use crate::scratch::Scratch;
use crate::text;

const EXAMPLES: &str = "\
Examples:
  tombolo bench                                              the usual ones, in a temporary directory
  tombolo bench --benchmarks fillrandom,compact,readrandom --num 2000000 --value-size 400 --threads 2
  tombolo bench --store file:///data/b --benchmarks fillseq,wait,readseq --json result.json
  tombolo bench --store file:///data/b --use-existing --benchmarks readrandom --duration 10
  tombolo bench --store mem://b --benchmarks fillsync        what the engine costs without a disk

Those that fill begin with an empty database. --num and --reads are totals: with more threads each does its part, so that the database
stays the same (db_bench's are for each thread). Operations count keys: each key of a batch or a multi-get, each entry of a scan;
latencies are those of one call. The latency of fast calls is sampled, because reading the clock takes as long as they do; the maximum
also covers what passes between two samples. CPU and memory are those of the whole process, background work included.";

/// Arguments of `bench`.
#[derive(Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{}\n\n{EXAMPLES}", list()))]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArguments,
}

/// What else is measured.
#[derive(Subcommand)]
enum Command {
    /// Measures what a store itself can do: append, sync, write, put, read, list and delete, by
    /// size and depth.
    Store(store::Arguments),
    /// Measures what reads and writes take at a remote store, whose latency is made up: misses,
    /// multi-gets, seeks, writes.
    Latency(latency::Arguments),
}

/// Arguments of a run of benchmarks.
#[derive(Args)]
struct RunArguments {
    /// Where the database is made, as a URI; a temporary directory, removed afterwards, when not
    /// given.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    store: Option<String>,
    /// The log store, as a URI; the store's own log when not given.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    log: Option<String>,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// What to run, in this order, separated by commas; `tombolo bench --help` lists them all.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "fillseq,fillrandom,overwrite,wait,readrandom,readmissing,seekrandom,readseq,\
            compact,readrandom,seekrandom,readseq,stats"
    )]
    benchmarks: Vec<String>,
    /// Keys of the database.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    num: u64,
    /// Reads of each reading benchmark; --num when not given.
    #[arg(long, value_name = "N")]
    reads: Option<u64>,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Bytes of a key.
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    key_size: usize,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_size: usize,
    /// Keys of a batch of fillbatch, and of a call of multireadrandom.
    #[arg(long, value_name = "N", default_value_t = 100)]
    batch_size: usize,
    /// Compressed size of the values by their size: 1 cannot be compressed, 0 is zero bytes.
    #[arg(long, value_name = "RATIO", default_value_t = 0.5)]
    compression_ratio: f64,
    /// What writes survive before they return; fillsync is always durable.
    #[arg(long, value_enum, default_value_t)]
    durability: Survives,
    /// Ends each benchmark after so many seconds; those that draw keys at random run that long
    /// whatever the counts say.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: Option<u64>,
    /// Of everything random: the same seed draws the same keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Entries that seekrandom reads after each seek.
    #[arg(long, value_name = "N", default_value_t = 10)]
    seek_nexts: usize,
    /// Ranges that deleterange deletes.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    ranges: u64,
    /// Keys in a row that each range of deleterange and deleterangeget has.
    #[arg(long, value_name = "N", default_value_t = 10)]
    range_keys: u64,
    /// Distance of the keys of one call of multireadrandom; 0 draws each at random.
    #[arg(long, value_name = "N", default_value_t = 0)]
    multiread_stride: u64,
    /// Writes a second of the writer beside readwhilewriting; as many as it can when not given.
    /// Equal rates make runs comparable.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    beside_rate: Option<u64>,
    /// How accesses of YCSB, mergerandom and getmerged spread over the keys, in the place of each
    /// one's own (zipfian; latest for D; uniform).
    #[arg(long, value_enum)]
    distribution: Option<Spread>,
    /// A setting of the database, as name=value; may be given several times. A wrong name lists
    /// them all.
    #[arg(long = "setting", visible_alias = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// A setting of the keyspace, as name=value; may be given several times.
    #[arg(long = "keyspace-setting", value_name = "NAME=VALUE")]
    keyspace_settings: Vec<String>,
    /// Runs on the database that is there: nothing is refused because it exists, and nothing
    /// emptied.
    #[arg(long, requires = "store")]
    use_existing: bool,
    /// Records the database's operations to this file, for `tombolo workload`: from the first
    /// benchmark on behind those that fill.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Records one of so many keys.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "record",
        value_parser = clap::value_parser!(u32).range(1..))]
    record_one_in: u32,
    /// How keys are recorded.
    #[arg(long, value_enum, default_value = "clear", requires = "record")]
    record_keys: Keys,
    /// Prints the distribution of latencies of each benchmark.
    #[arg(long)]
    histogram: bool,
    /// Times every so-many-th call instead of deciding by how fast they are.
    #[arg(long, value_name = "N")]
    sample_every: Option<u32>,
    /// Writes the results as a list of objects to this file; `-` is standard output. So does
    /// `tombolo --json bench`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What writes survive.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Survives {
    /// Nothing: not in the log at all.
    Unlogged,
    /// The end of the process: in the log, not synced, as db_bench without --sync.
    #[default]
    Accepted,
    /// What the log's failure model says: synced.
    Durable,
}

impl Survives {
    fn name(self) -> &'static str {
        match self {
            Survives::Unlogged => "unlogged",
            Survives::Accepted => "accepted",
            Survives::Durable => "durable",
        }
    }
}

/// How keys are recorded.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Keys {
    /// As they are.
    Clear,
    /// As hashes, without order and prefixes.
    Hashed,
    /// Replaced; order and common prefixes stay.
    Anonymised,
}

/// How accesses spread over the keys.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Spread {
    /// Every key as likely as every other.
    Uniform,
    /// A few keys are popular, wherever they lie.
    Zipfian,
    /// The newest keys are popular.
    Latest,
    /// 80 % of the accesses go to 20 % of the keys.
    Hotspot,
}

impl Spread {
    fn distribution(self) -> Distribution {
        match self {
            Spread::Uniform => Distribution::Uniform,
            Spread::Zipfian => Distribution::Zipfian { exponent: ycsb::EXPONENT },
            Spread::Latest => Distribution::Latest { exponent: ycsb::EXPONENT },
            Spread::Hotspot => Distribution::Hotspot { hot_keys: 0.2, hot_accesses: 0.8 },
        }
    }
}

/// The keyspace of benchmarks.
const KEYSPACE: &str = "bench";

fn list() -> String {
    let mut text = "Benchmarks:".to_owned();
    for benchmark in Benchmark::ALL {
        text += &format!("\n  {:<17} {}", benchmark.name, benchmark.help);
    }
    text
}

impl RunArguments {
    fn plan(&self) -> Result<Plan> {
        let plan = Plan {
            num: self.num,
            reads: self.reads.unwrap_or(self.num),
            threads: self.threads,
            key_bytes: self.key_size,
            value_bytes: self.value_size,
            compression_ratio: self.compression_ratio,
            batch_size: self.batch_size,
            multiread_stride: self.multiread_stride,
            beside_rate: self.beside_rate,
            seek_nexts: self.seek_nexts,
            ranges: self.ranges,
            range_keys: self.range_keys,
            durability: Some(match self.durability {
                Survives::Unlogged => Durability::Unlogged,
                Survives::Accepted => Durability::Accepted,
                Survives::Durable => Durability::Durable,
            }),
            distribution: self.distribution.map(Spread::distribution),
            duration: self.duration.map(Duration::from_secs),
            seed: self.seed,
            step: 0,
            sample_every: self.sample_every,
        };
        plan.check().map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(plan)
    }

    fn record_options(&self) -> Option<RecordOptions> {
        let keys = match self.record_keys {
            Keys::Clear => RecordKeys::Clear,
            Keys::Hashed => RecordKeys::Hashed,
            Keys::Anonymised => RecordKeys::Anonymised,
        };
        let path = self.record.as_ref()?;
        Some(RecordOptions { sampled_one_in: self.record_one_in, keys, ..RecordOptions::new(path) })
    }

    fn place(&self, store: &str) -> Result<Place> {
        let keyspace_options = db::keyspace_options(&self.keyspace_settings)?;
        Ok(Place {
            store: store.to_owned(),
            take_over: self.take_over.mode(),
            log: self.log.clone(),
            options: Options::parse(self.settings.iter().map(String::as_str))?,
            keyspace: KEYSPACE.to_owned(),
            keyspace_options,
        })
    }
}

/// Runs it.
pub fn run(arguments: &Arguments, json: bool, output: &Output) -> Result<()> {
    match &arguments.command {
        Some(Command::Store(arguments)) => return store::run(arguments, json, output),
        Some(Command::Latency(arguments)) => return latency::run(arguments, json, output),
        None => {}
    }
    let arguments = &arguments.run;
    // Everything that can be wrong is found before anything is made.
    let plan = arguments.plan()?;
    let parse =
        |name: &String| name.trim().parse::<Benchmark>().map_err(|error| Failure::Usage(error.to_string()));
    let benchmarks = arguments.benchmarks.iter().map(parse).collect::<Result<Vec<_>>>()?;
    arguments.place("mem://checked-only")?;
    let mut results = Results::open(arguments.json.as_deref(), json)?;
    let scratch = Scratch::new(arguments.store.as_deref(), "bench")?;
    let interrupted = interrupt::listen()?;

    let before = Memory::look();
    let place = arguments.place(scratch.uri())?;
    let mode = if arguments.use_existing { OpenMode::CreateOrOpen } else { OpenMode::Create };
    let mut engine = Engine::open(&place, mode).map_err(|failure| say_how_to_use(failure, &place.store))?;
    let machine = Machine::look();
    let header = Header {
        plan: &plan,
        machine: &machine,
        store: format!("{}{}", place.store, if scratch.is_temporary() { " (temporary)" } else { "" }),
        log: place.log.clone(),
        budget_bytes: place.options.memory_bytes,
        settings: arguments.settings.clone(),
        keyspace_settings: arguments.keyspace_settings.clone(),
        durability: arguments.durability.name(),
        clock: clock_cost(),
        before,
    };
    let quiet = results.is_standard_output();
    let text = |line: String| if quiet { Ok(()) } else { output.line(line).and_then(|()| output.finish()) };
    text(header.to_text())?;
    text(format!("\n{}", report::columns()))?;
    let (mut rows, mut touched, mut ended) = (Vec::<Row>::new(), false, Ok(()));
    let last_fill = benchmarks.iter().rposition(|benchmark| benchmark.is_fresh);
    // What fills last is recorded itself where nothing follows.
    let recorded_from = last_fill.map_or(0, |last| (last as u64 + 1).min(benchmarks.len() as u64 - 1));
    let mut recording = None;
    for (step, benchmark) in (0..).zip(benchmarks) {
        if benchmark.is_fresh && touched && !arguments.use_existing {
            engine = engine.fresh()?;
        }
        if step == recorded_from
            && let Some(options) = arguments.record_options()
        {
            recording = Some(engine.record(options)?);
        }
        touched |= benchmark.is_threaded();
        match runner::run(
            &engine,
            &Plan { step, ..plan.clone() },
            benchmark,
            output.is_watched(),
            &interrupted,
        ) {
            Ok(row) => {
                text(row.to_text(arguments.histogram))?;
                rows.push(row);
            }
            Err(failure) => {
                ended = Err(failure);
                break;
            }
        }
    }
    if let Some(report) = recording.map(Recording::stop) {
        let (events, bytes) = (report.events, text::bytes(report.bytes));
        let dropped =
            if report.dropped > 0 { format!(", {} dropped", report.dropped) } else { String::new() };
        output.note(&format!("recorded {events} events in {bytes}{dropped}"));
        if let Some(error) = report.ended {
            output.note(&format!("the recording ended by itself: {error}"));
        }
    }
    text(summary(&rows, &engine, &header)?)?;
    let objects: Vec<Value> = rows.iter().map(|row| row.to_json(&header)).collect();
    results.write(output, &objects)?;
    ended?;
    engine.close()?;
    match rows.iter().find(|row| row.errors() > 0) {
        None => Ok(()),
        Some(row) => Err(Failure::Check(format!(
            "{} of {} failed: {}",
            row.errors(),
            row.benchmark,
            row.first_error().unwrap_or("no reason given")
        ))),
    }
}

fn say_how_to_use(failure: Failure, store: &str) -> Failure {
    match failure {
        Failure::Engine(error) if error.kind() == ErrorKind::AlreadyExists => Failure::Usage(format!(
            "{store} holds a database already, and benchmarks empty what they fill: say --use-existing to \
            run on it as it is, or name another store"
        )),
        failure => failure,
    }
}

/// The rest when all have run.
fn summary(rows: &[Row], engine: &Engine, header: &Header<'_>) -> Result<String> {
    let own = rows.iter().map(|row| row.peak.own_bytes).max().unwrap_or(0);
    let mapped = rows.iter().map(|row| row.peak.mapped_bytes).max().unwrap_or(0);
    let put = engine.put_bytes().map(|(name, bytes)| format!("{name} {}", text::bytes(bytes))).join(", ");
    let stats = engine.stats();
    Ok(format!(
        "\n{:<10} peak {} of its own, of a budget of {} (and {} of mapped files, the log among \
        them)\n{:<10} {} to disks by this process; \
         objects of the last database: {put}\n{:<10} {} of tables, {} in all objects",
        "memory",
        text::bytes(own),
        text::bytes(header.budget_bytes),
        text::bytes(mapped),
        "written",
        text::bytes(machine::written_bytes()),
        "space",
        text::bytes(stats.table_bytes),
        text::bytes(engine.object_bytes()?),
    ))
}

/// What one reading of the clock costs.
fn clock_cost() -> Duration {
    const READINGS: u32 = 10_000;
    let begun = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(begun.elapsed());
    }
    begun.elapsed() / READINGS
}
