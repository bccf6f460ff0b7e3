//! `tombolo bench latency`: how much of a remote store's latency reaches who reads and writes.
//!
//! `load once, in memory → for each latency: misses by reads in flight, multi-gets, seeks, writes → rows, judged`.
//! What a row is compared with is measured in the same run: the raw ranged read of the same store,
//! the same engine with all requests one after another, the same engine on files of this host.

mod far;
mod place;
mod report;
mod work;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tombolo_storage::layer::throttle::Latency;

use self::place::Place;
use self::report::{Bar, Row};
use self::work::{Took, Writing};
use super::results::Results;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::machine::Machine;
use crate::output::Output;
use crate::scratch::Scratch;
use crate::text;

/// Arguments of `bench latency`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo bench latency                                     the whole table, about ten minutes
  tombolo bench latency --latency s3 --only misses --in-flight 1,16
  tombolo bench latency --latency p50_us:2000,p99_us:9000 --seconds 3 --json latency.json

The data lies in memory, and each request waits as long as the latency says: figures are those of the engine, and of nobody's network. misses
are gets whose block is not in memory, beside raw ranged reads of 4 KiB of the same store with as many in flight; least is the smallest ratio of the 99th
percentile to the median that a second request for one read in twenty can reach on these latencies, whatever the delay. multi-get is of 10 keys
32 apart, seek of a seek and 10 steps, both beside the same engine that makes one request after another; least is what as many requests at once come to:
the slowest of them to their sum; fewer requests, and second ones, can be below. writes go to tables with the latency and
to a log on this host, beside tables on this host: as the writer sees it, and in brackets up to when all is flushed and compacted. Multi-gets and seeks
read the tree as random writes left it, misses the same tree merged.")]
pub struct Arguments {
    /// Latencies, each by its name or its parts; may be given several times.
    #[arg(long = "latency", value_name = "LATENCY", default_values = ["s3", "cluster"])]
    latencies: Vec<String>,
    /// What to measure, separated by commas.
    #[arg(
        long, value_enum, value_delimiter = ',', default_values = ["misses", "multi-get", "seek", "writes"]
    )]
    only: Vec<Part>,
    /// Gets at once, separated by commas, ascending.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    in_flight: Vec<usize>,
    /// Keys of the database.
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    num: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 400)]
    value_size: usize,
    /// Time of each measurement of reads.
    #[arg(long, value_name = "SECONDS", default_value_t = 8.0)]
    seconds: f64,
    /// Rounds of writes, of which the median counts.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Of everything random but the latencies.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the results as a list of objects to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Misses,
    MultiGet,
    Seek,
    Writes,
}

/// Most gets at once: each has a thread.
const IN_FLIGHT_MAX: usize = 512;
/// Most keys: all of them lie in memory.
const NUM_MAX: u64 = 100_000_000;

/// Above this share of all cores the machine is the bound, and no latency.
const BUSY: f64 = 0.7;

impl Arguments {
    fn check(&self) -> Result<Vec<(String, Latency)>> {
        let usage = |text: String| Err(Failure::Usage(text));
        if !(self.seconds >= 0.1 && self.seconds <= 3600.0) {
            return usage(format!("seconds is {}: it must be from 0.1 to 3600", self.seconds));
        }
        if !(1000..=NUM_MAX).contains(&self.num) || !(1..=1 << 20).contains(&self.value_size) {
            return usage(format!(
                "num must be from 1,000 to {}, value-size from 1 to 1,048,576",
                text::count(NUM_MAX)
            ));
        }
        if self.in_flight.is_empty()
            || !self.in_flight.iter().all(|at_once| (1..=IN_FLIGHT_MAX).contains(at_once))
        {
            return usage(format!("in-flight takes numbers from 1 to {IN_FLIGHT_MAX}"));
        }
        if !(1..=100).contains(&self.rounds) {
            return usage(format!("rounds is {}: it must be from 1 to 100", self.rounds));
        }
        self.latencies.iter().map(|text| Ok((text.clone(), Latency::parse(text)?))).collect()
    }

    fn wants(&self, part: Part) -> bool {
        self.only.contains(&part)
    }
}

/// A run, with its lines as they come.
struct Run<'a> {
    arguments: &'a Arguments,
    output: &'a Output,
    is_quiet: bool,
    interrupted: &'a AtomicBool,
    rows: Vec<Row>,
}

impl Run<'_> {
    fn say(&self, line: impl std::fmt::Display) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        if self.is_quiet { Ok(()) } else { self.output.line(line).and_then(|()| self.output.finish()) }
    }

    fn row(&mut self, row: Row) -> Result<()> {
        self.say(row.to_text())?;
        self.rows.push(row);
        Ok(())
    }

    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.arguments.seconds)
    }
}

/// Runs it.
pub fn run(arguments: &Arguments, json: bool, output: &Output) -> Result<()> {
    let latencies = arguments.check()?;
    let mut results = Results::open(arguments.json.as_deref(), json)?;
    let interrupted = interrupt::listen()?;
    let is_quiet = results.is_standard_output();
    let mut run = Run { arguments, output, is_quiet, interrupted: &interrupted, rows: Vec::new() };
    let machine = Machine::look();
    run.say(format!(
        "machine  {} × {}, {}, load {:.2}",
        machine.cores, machine.processor, machine.system, machine.load
    ))?;
    let reads = arguments.only.iter().any(|part| *part != Part::Writes);
    let place = if reads {
        run.say(format!(
            "loading {} keys of 20 + {} B into memory …",
            text::count(arguments.num),
            arguments.value_size
        ))?;
        let place = Place::load(arguments.num, arguments.value_size, arguments.seed)?;
        run.say(format!("loaded   {}", place.shape()))?;
        Some(place)
    } else {
        None
    };
    run.say(format!("\n{}", Row::columns()))?;
    if let Some(mut place) = place {
        for (name, latency) in &latencies {
            read_several(&mut run, &place, name, *latency)?;
        }
        if arguments.wants(Part::Misses) {
            place.merge()?;
            run.say(format!("merged   {}", place.shape()))?;
            for (name, latency) in &latencies {
                read_misses(&mut run, &place, name, *latency, machine.cores)?;
            }
        }
    }
    for (name, latency) in latencies.iter().filter(|_| arguments.wants(Part::Writes)) {
        write(&mut run, name, *latency)?;
    }
    let missed = run.rows.iter().filter(|row| row.is_missed()).count();
    run.say(format!(
        "\n{} rows with a bar, {missed} of them miss it",
        run.rows.iter().filter(|row| row.bar.is_some()).count()
    ))?;
    let objects: Vec<_> = run.rows.iter().map(Row::to_json).collect();
    results.write(output, &objects)
}

/// Below it, a read asked no store.
fn missed(latency: Latency) -> Duration {
    latency.p50 / 4
}

fn read_misses(run: &mut Run<'_>, place: &Place, name: &str, latency: Latency, cores: usize) -> Result<()> {
    let (duration, keys, seed) = (run.duration(), run.arguments.num, run.arguments.seed);
    let row = |measure, in_flight| Row::new(name, measure, in_flight);
    let far = place.open(latency)?;
    let (raw_store, objects) = place.raw(latency)?;
    // Tables are opened, and the layers learn what the store takes.
    work::misses(&far, keys, 16, missed(latency), duration.min(Duration::from_secs(5)), seed)?;
    let least = place.least_p99(latency);
    let mut before: Option<(usize, f64)> = None;
    for &at_once in &run.arguments.in_flight {
        let raw = work::raw(&place.env, &raw_store, &objects, at_once, duration, seed)?;
        let got = work::misses(&far, keys, at_once, missed(latency), duration, seed + at_once as u64)?;
        run.row(row("raw read", at_once).of(&raw, None))?;
        run.row(
            row("get miss", at_once)
                .of(&got, Some(&raw))
                .bar(Bar::at_most(1.05))
                .note(format!("{} at once are let through", far.in_flight_max()?)),
        )?;
        let tail = got.p99.as_secs_f64() / got.p50.as_secs_f64().max(1e-9);
        let least_told =
            format!("least {least:.2}, raw {:.2}", raw.p99.as_secs_f64() / raw.p50.as_secs_f64().max(1e-9));
        run.row(row("get miss p99/p50", at_once).ratio(tail).bar(Bar::at_most(1.8)).note(least_told))?;
        run.row(row("extra requests", at_once).ratio(got.extra).bar(Bar::at_most(0.05)))?;
        if let Some((_, rate)) = before.filter(|(count, _)| count * 2 == at_once) {
            let busy = got.cpu_share(cores) > BUSY;
            let doubled = row("get miss, doubled", at_once).ratio(got.per_second() / rate);
            let note = format!("{:.0} % of the machine", got.cpu_share(cores) * 100.0);
            run.row(if busy { doubled.note(note) } else { doubled.bar(Bar::at_least(1.9)).note(note) })?;
        }
        before = Some((at_once, got.per_second()));
    }
    far.close()
}

fn read_several(run: &mut Run<'_>, place: &Place, name: &str, latency: Latency) -> Result<()> {
    let (duration, keys, seed) = (run.duration(), run.arguments.num, run.arguments.seed);
    let row = |measure, in_flight| Row::new(name, measure, in_flight);
    for (part, measure, paper, bar) in
        [(Part::MultiGet, "multi-get", 0.49, 0.25), (Part::Seek, "seek + 10", 0.43, 0.35)]
    {
        if !run.arguments.wants(part) {
            continue;
        }
        // With requests of the store for each call.
        let measured = |far: &far::Far| -> Result<(Took, f64)> {
            let warm = duration.min(Duration::from_secs(5));
            work::misses(far, keys, 16, missed(latency), warm, seed)?;
            let before = far.reads();
            let took = match part {
                Part::MultiGet => work::multi_gets(far, keys, duration, seed)?,
                _ => work::seeks(far, keys, missed(latency), duration, seed)?,
            };
            let requests = (far.reads() - before) as f64 / took.calls.max(1) as f64;
            Ok((took, requests))
        };
        let one_by_one = place.open_one_by_one(latency)?;
        let (serial, requests) = measured(&one_by_one)?;
        one_by_one.close()?;
        let far = place.open(latency)?;
        let (parallel, at_once) = measured(&far)?;
        far.close()?;
        let least = place.least_at_once(latency, requests);
        run.row(
            row(measure, 1)
                .of(&serial, None)
                .note(format!("one request after another, {requests:.1} a call")),
        )?;
        let told = format!("{at_once:.1} a call; least {least:.2}");
        run.row(row(measure, 1).of(&parallel, Some(&serial)).bar(Bar::at_most(bar)).paper(paper).note(told))?;
    }
    Ok(())
}

fn write(run: &mut Run<'_>, name: &str, latency: Latency) -> Result<()> {
    for (writing, measure, paper, bar) in [
        (Writing::Sequential, "write in order", 262.4 / 264.1, 1.0),
        (Writing::Random, "write at random", 19.2 / 26.0, 0.92),
    ] {
        let mut ratios = Vec::new();
        let mut told = Vec::new();
        for round in 0..run.arguments.rounds {
            let rates = |latency: Option<(&str, Latency)>| -> Result<(f64, f64)> {
                let scratch = Scratch::new(None, "latency")?;
                let store = match latency {
                    Some((name, _)) => format!("{}?latency={name}", scratch.uri()),
                    None => scratch.uri().to_owned(),
                };
                run.say(format_args!(
                    "  round {}: {measure} to {} …",
                    round + 1,
                    latency.map_or("this host", |(name, _)| name)
                ))?;
                work::writes(&store, writing, run.arguments.num, run.arguments.value_size, run.arguments.seed)
            };
            // In turn, so that a machine that slows down slows both.
            let (far, near) = if round % 2 == 0 {
                let far = rates(Some((name, latency)))?;
                (far, rates(None)?)
            } else {
                let near = rates(None)?;
                (rates(Some((name, latency)))?, near)
            };
            ratios.push(far.0 / near.0.max(1e-9));
            let told_of =
                |(accepted, settled): (f64, f64)| format!("{:.0} ({:.0})", accepted / 1e3, settled / 1e3);
            told.push(format!("{} / {} k/s", told_of(far), told_of(near)));
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        run.row(
            Row::new(name, measure, 1)
                .ratio(median)
                .bar(Bar::at_least(bar))
                .paper(paper)
                .note(told.join(", ")),
        )?;
    }
    Ok(())
}
