//! `cargo xtask near`: what a log in the memory of nodes is worth, beside accepted writes, a log in
//! the object store and a local file.
//!
//! `rounds → for each number of clients, way: nodes and a process, all fresh → records → medians, bars, JSON, page`.
//! Everything runs on this host: client and nodes share its processors, and how many of them worked
//! is told beside each figure. SlateDB's durable puts are measured beside them, on a directory that
//! is as slow as the store of our tables, by the program of `cargo xtask peers`.

pub mod measure;
mod page;
mod paper;
mod record;
mod round_trip;
mod table;
mod ways;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use self::measure::{Bench, KEY_BYTES, Loss};
use self::record::Record;
use self::round_trip::Kind;
use self::ways::Way;
use crate::peers::{self, child, machine};
use crate::programs;

const EXAMPLES: &str = "\
Examples:
  cargo xtask near --rounds 5 --json near.json --html near.html      all of it, about half an hour, on a quiet machine
  cargo xtask near --rounds 1 --seconds 1 --clients 1,16 --parts insert
  cargo xtask near --parts insert --ways objects,near-tcp,slatedb,slatedb-tuned --latency s3
  cargo xtask near --parts loss,takeover --ways near-shared,near-tcp
  cargo xtask near --latency s3 --parts insert                       a log of objects on a store as slow as a bucket
  cargo xtask near --read near.json --html near.html                 draws a run again";

/// Options of `near`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// What to measure, separated by commas.
    #[arg(
        long, value_delimiter = ',', value_parser = ["insert", "ycsb", "loss", "takeover"],
        default_value = "insert,ycsb,loss,takeover"
    )]
    parts: Vec<String>,
    /// Kinds of log, separated by commas; with `slatedb` or `slatedb-tuned` its program is built,
    /// in a few minutes, once.
    #[arg(
        long, value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(Way::ALL.map(Way::name)),
        default_values = Way::ALL.map(Way::name)
    )]
    ways: Vec<String>,
    /// Numbers of clients that insert, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    clients: Vec<usize>,
    /// Numbers of clients of YCSB's workloads, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    ycsb_clients: Vec<usize>,
    /// YCSB's workloads, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f")]
    workloads: Vec<String>,
    /// Rounds, each of which runs every way once, another one first; 5 or more for figures to
    /// publish.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Bytes of a value; a key has 16.
    #[arg(long, default_value_t = 512)]
    value_size: usize,
    /// Keys of YCSB's database.
    #[arg(
        long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000)
    )]
    num: u64,
    /// How slow the object store is, for tables of all and the log of `objects`: `cluster` (0.74
    /// ms), `s3` (25 ms), or as docs/a-new-store.md says.
    #[arg(long, default_value = "cluster")]
    latency: String,
    /// Writes all records as a list of objects to this file, after each round.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws the result into this file: one page that needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Measures nothing: judges and draws the records of this file.
    #[arg(long, value_name = "FILE")]
    read: Option<PathBuf>,
    /// Where the databases are made, on a disk; a directory of its own in it is removed at the end.
    /// The temporary directory when not given.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Is the other side of a bare round trip.
    #[arg(long, hide = true)]
    echo: bool,
}

impl Arguments {
    fn ways(&self) -> Vec<Way> {
        Way::ALL.into_iter().filter(|way| self.ways.iter().any(|name| name == way.name())).collect()
    }
}

/// The program that SlateDB is driven by, in the cache of `cargo xtask peers`.
fn build_peers(root: &Path) -> Result<PathBuf, String> {
    peers::build(root, &peers::cache()?.join("target"), &[Way::SlateDb.name().to_owned()], false)
}

/// Measures, or draws again.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    if arguments.echo {
        return round_trip::echo().map_err(|error| format!("the other side of a bare round trip: {error}"));
    }
    if let Some(path) = &arguments.read {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let records: Vec<Record> =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        return show(arguments, &[format!("{} records of an earlier run.", records.len())], &records);
    }
    let binary = programs::build(root, "release")?;
    let has_peer =
        arguments.parts.iter().any(|part| part == "insert") && arguments.ways().into_iter().any(Way::is_peer);
    let peers = has_peer.then(|| build_peers(root)).transpose()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut about = vec![
        format!("{}. Client and nodes share its processors.", machine::describe()),
        format!("cargo xtask {}", words.join(" ")),
        format!(
            "keys of {KEY_BYTES} B, values of {} B; {} rounds of {} s, interleaved, fresh nodes and an \
            empty database each; tables on a store with latency={}",
            arguments.value_size, arguments.rounds, arguments.seconds, arguments.latency
        ),
    ];
    println!("{}\nload {:.2} at the start", about.join("\n"), machine::load());
    let directory = arguments
        .directory
        .clone()
        .unwrap_or_else(std::env::temp_dir)
        .join(format!("tombolo-near-{}", std::process::id()));
    let bench = Bench {
        binary,
        peers,
        directory: directory.clone(),
        latency: arguments.latency.clone(),
        value_bytes: arguments.value_size,
        seconds: arguments.seconds,
        round: 1,
    };
    let measured = rounds(arguments, bench);
    child::remove(&directory)?;
    let records = measured?;
    let loads = records.iter().map(|record| record.load);
    let (least, most) =
        loads.fold((f64::MAX, 0.0f64), |(least, most), load| (least.min(load), most.max(load)));
    about.push(format!(
        "load average {least:.1} to {most:.1} meanwhile, of which this run's own processes are a part"
    ));
    println!();
    show(arguments, &about, &records)
}

fn rounds(arguments: &Arguments, mut bench: Bench) -> Result<Vec<Record>, String> {
    let ways = arguments.ways();
    let has = |part: &str| arguments.parts.iter().any(|wanted| wanted == part);
    let mut records = Vec::new();
    for round in 1..=arguments.rounds {
        bench.round = round;
        // Another way goes first in each round.
        let in_turn = || (0..ways.len()).map(|nth| ways[(nth + round as usize) % ways.len()]);
        let ours = || in_turn().filter(|way| !way.is_peer());
        let near = || in_turn().filter(|way| way.nodes().is_some());
        let say = |what: &str, way: Way, clients: usize| {
            eprintln!(
                "round {round} of {}: {what}, {}, {clients} clients, load {:.1}",
                arguments.rounds,
                way.name(),
                machine::load()
            );
        };
        for kind in Kind::ALL {
            records.push(bare(kind, round)?);
        }
        if has("insert") {
            for clients in &arguments.clients {
                for way in in_turn() {
                    say("insert", way, *clients);
                    records.extend(bench.insert(way, *clients, None)?);
                }
            }
        }
        if has("ycsb") {
            for clients in &arguments.ycsb_clients {
                for way in ours() {
                    say("YCSB", way, *clients);
                    records.extend(bench.ycsb(way, &arguments.workloads, *clients, arguments.num)?);
                }
            }
        }
        if has("loss") {
            for loss in Loss::ALL {
                for way in near() {
                    say(loss.workload(), way, LOSS_CLIENTS);
                    records.extend(bench.insert(way, LOSS_CLIENTS, Some(loss))?);
                }
            }
        }
        if has("takeover") {
            for way in in_turn().filter(|way| way.nodes().is_some() || *way == Way::File) {
                say("takeover", way, 1);
                records.push(bench.takeover(way)?);
            }
        }
        if let Some(path) = &arguments.json {
            let text = serde_json::to_string_pretty(&records).map_err(|error| error.to_string())?;
            fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(records)
}

/// Clients that write while a node is lost.
const LOSS_CLIENTS: usize = 16;

fn bare(kind: Kind, round: u32) -> Result<Record, String> {
    let load = machine::load();
    let micros = round_trip::measure(kind)?;
    let at = |hundredths: usize| micros[(micros.len() - 1) * hundredths / 100];
    Ok(Record {
        way: kind.name().to_owned(),
        workload: "round trip".to_owned(),
        clients: 1,
        round,
        load,
        operations: micros.len() as u64,
        micros_p50: at(50),
        micros_p99: at(99),
        micros_max: at(100),
        ..Record::default()
    })
}

fn show(arguments: &Arguments, about: &[String], records: &[Record]) -> Result<(), String> {
    println!("{}", table::text(records));
    if let Some(path) = &arguments.html {
        fs::write(path, page::page(about, records))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        println!("drawn in {}", path.display());
    }
    Ok(())
}
