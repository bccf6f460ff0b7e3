//! Figure 14: benchmarks and a model on equal databases, by what they cost against a replay.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use tombolo::{Db, Options};
use tombolo_format::trace::Event;
use tombolo_lab::figure14::{Figure14, REPLAY};
use tombolo_lab::report::shown;

use super::replay::{PaceArguments, on_database};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress;
use crate::scratch::Scratch;

/// The compared costs: the heading, and the property of a database.
const COSTS: [(&str, &str); 4] = [
    ("block reads", "cache-misses"),
    ("cache hits", "cache-hits"),
    ("read bytes", "request-bytes-received"),
    ("write bytes", "request-bytes-sent"),
];

/// Arguments of `figure14`.
#[derive(Args)]
#[command(after_help = "\
Example, a quarter of an hour on two cores:
  tombolo workload figure14 --keys 2000000 --operations 2000000 --runs 3

All run on copies of one loaded database. A cache is the memory that the database may take, at least 1 MiB.")]
pub struct Arguments {
    /// Keys of the database.
    #[arg(long, value_name = "N", default_value_t = 1_200_000,
        value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    keys: u32,
    /// Operations of each run. The model is fitted to as many before them.
    #[arg(long, value_name = "N", default_value_t = 200_000,
        value_parser = clap::value_parser!(u64).range(1000..))]
    operations: u64,
    /// Sizes of the cache, in percent of the data.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "1,10",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    caches: Vec<u32>,
    /// Runs of each, of which the mean is told.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Of the reference workload: the same seed makes the same one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What the runs of one workload cost in the mean, and how far they are apart.
struct Row {
    name: &'static str,
    means: [f64; COSTS.len()],
    spreads: [f64; COSTS.len()],
}

/// Copies a directory that nobody writes to.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn open(scratch: &Scratch, memory_bytes: u64) -> Result<Db> {
    let options = Options { memory_bytes, ..Options::default() };
    Ok(Db::builder(scratch.uri()).options(options).open().wait()?)
}

/// The loaded database that all runs get a copy of.
fn load(figure: &Figure14) -> Result<Scratch> {
    let scratch = Scratch::new(None, "figure14")?;
    let db = open(&scratch, Options::default().memory_bytes)?;
    let names = BTreeMap::new();
    on_database(&db, &names, &PaceArguments::closed(), |each| figure.load(each))?;
    db.flush().wait()?;
    db.compact().wait()?;
    db.close().wait()?;
    Ok(scratch)
}

/// One run on a copy of the loaded database: what it cost.
fn measure(
    figure: &Figure14,
    loaded: &Scratch,
    (name, run): (&str, u64),
    memory_bytes: u64,
) -> Result<[f64; COSTS.len()]> {
    let scratch = Scratch::new(None, "figure14-run")?;
    if let (Some(from), Some(to)) = (loaded.folder(), scratch.folder()) {
        copy(from, to).map_err(|error| Failure::io(error, "copying the database".to_owned()))?;
    }
    let db = open(&scratch, memory_bytes)?;
    let mut events = figure.events(name, run).map_err(|error| Failure::Usage(error.to_string()))?;
    let names = BTreeMap::new();
    let feed = |each: &mut dyn FnMut(&Event<'_>) -> Result<()>| -> Result<()> {
        (0..figure.operations()).try_for_each(|_| each(&events.next()))?;
        Ok(())
    };
    let outcome = on_database(&db, &names, &PaceArguments::closed(), feed)?;
    db.close().wait()?;
    Ok(COSTS.map(|(_, property)| {
        outcome.requests.iter().find(|(known, _)| known == property).map_or(0.0, |(_, cost)| *cost)
    }))
}

/// `figure14`.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let bar = progress::bar("run", output);
    let figure = Figure14::new(arguments.keys, arguments.operations, arguments.seed);
    let figure = figure.map_err(|error| Failure::Usage(error.to_string()))?;
    let loaded = load(&figure)?;
    let names: Vec<&'static str> = Figure14::names().collect();
    bar.set_length(names.len() as u64 * arguments.caches.len() as u64 * arguments.runs);
    let mut all = Vec::new();
    for percent in &arguments.caches {
        let memory_bytes = (figure.data_bytes() * u64::from(*percent) / 100).max(1 << 20);
        let mut rows = Vec::new();
        for name in &names {
            let mut costs = Vec::new();
            for run in 1..=arguments.runs {
                costs.push(measure(&figure, &loaded, (name, run), memory_bytes)?);
                bar.inc(1);
            }
            let of = |index: usize| costs.iter().map(move |costs| costs[index]);
            let means = std::array::from_fn(|index| of(index).sum::<f64>() / costs.len() as f64);
            let spreads = std::array::from_fn(|index| {
                of(index).fold(0.0, f64::max) - of(index).fold(f64::INFINITY, f64::min)
            });
            rows.push(Row { name, means, spreads });
        }
        all.push((*percent, memory_bytes, rows));
    }
    bar.finish_and_clear();
    output.result(|| json(&figure, &all), || text(&figure, &all))
}

/// Costs by those of the replay.
fn ratios(rows: &[Row], row: &Row) -> [f64; COSTS.len()] {
    let replay = rows.iter().find(|row| row.name == REPLAY).map_or([1.0; COSTS.len()], |row| row.means);
    std::array::from_fn(|index| row.means[index] / replay[index].max(1.0))
}

fn text(figure: &Figure14, all: &[(u32, u64, Vec<Row>)]) -> String {
    let mut text = format!(
        "{} operations each, on {} bytes of keys and values; costs by those of the replay\n",
        figure.operations(),
        shown(figure.data_bytes() as f64)
    );
    for (percent, memory_bytes, rows) in all {
        text.push_str(&format!("\n{:18}", format!("cache of {percent} %")));
        COSTS.iter().for_each(|(heading, _)| text.push_str(&format!(" {heading:>12}")));
        for row in rows {
            text.push_str(&format!("\n{:18}", row.name));
            ratios(rows, row).iter().for_each(|ratio| text.push_str(&format!(" {ratio:>12.2}")));
        }
        if let Some(replay) = rows.iter().find(|row| row.name == REPLAY) {
            text.push_str(&format!("\n{:18}", "replay, itself"));
            replay.means.iter().for_each(|cost| text.push_str(&format!(" {:>12}", shown(*cost))));
            text.push_str(&format!("\n{:18}", "and its spread"));
            replay.spreads.iter().for_each(|cost| text.push_str(&format!(" {:>12}", shown(*cost))));
        }
        text.push_str(&format!("\n({} bytes of memory)\n", shown(*memory_bytes as f64)));
    }
    text.pop();
    text
}

fn json(figure: &Figure14, all: &[(u32, u64, Vec<Row>)]) -> Value {
    let row = |rows: &[Row], row: &Row| {
        let costs: BTreeMap<&str, Value> = COSTS
            .iter()
            .enumerate()
            .map(|(index, (heading, _))| {
                let (mean, spread) = (row.means[index], row.spreads[index]);
                (*heading, json!({ "mean": mean, "spread": spread, "by_replay": ratios(rows, row)[index] }))
            })
            .collect();
        json!({ "workload": row.name, "costs": costs })
    };
    let caches = all.iter().map(|(percent, memory_bytes, rows)| {
        let rows_json: Vec<Value> = rows.iter().map(|one| row(rows, one)).collect();
        json!({ "percent": percent, "memory_bytes": memory_bytes, "workloads": rows_json })
    });
    json!({
        "operations": figure.operations(), "data_bytes": figure.data_bytes(),
        "caches": caches.collect::<Vec<_>>(),
    })
}
