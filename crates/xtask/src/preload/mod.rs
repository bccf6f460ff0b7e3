//! Unmodified programs under the preload library: killed again and again, then measured against
//! their own disk.
//!
//! `install missing packages → kill under load, restart, their own integrity checks → throughput, and restart after a kill, in rounds`.
//!
//! Unless other logs are named, the log lies in the memory of three nodes, which this starts on
//! this host: for each run of the tests, and fresh for each program that is measured. Programs and
//! nodes share the host's processors.

mod programs;
mod way;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use self::programs::{Measured, Program};
use self::way::Way;
use crate::nodes::Nodes;
use crate::peers::{child, machine};
use crate::programs::build_package;

/// Debian's packages of the programs.
const PACKAGES: &[(&str, &str)] =
    &[("sqlite3", "sqlite3"), ("redis-server", "redis-server"), ("db_bench", "rocksdb-tools")];

/// Options of `preload`.
#[derive(Args)]
pub struct Arguments {
    /// How often each program is killed and checked; 0 for not at all.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// How often each program is measured in each way, in interleaved rounds; 0 for not at all.
    /// Medians are printed.
    #[arg(long, default_value_t = 5)]
    measure: u32,
    /// A log to kill and measure with, as a URI; may be given several times. When none is given,
    /// one in the memory of three nodes of this host, over shared memory and over TCP, and a local
    /// one.
    #[arg(long = "log", value_name = "URI")]
    logs: Vec<String>,
    /// Where the files lie while it measures; a temporary directory when not given. It must not be
    /// in memory.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Where the nodes' program and the library were built.
struct Built {
    tombolo: PathBuf,
    preloaded: PathBuf,
}

/// Runs it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    install();
    let directory = build_package(root, "release", "tombolo-preload")?;
    let built =
        Built { tombolo: directory.join("tombolo"), preloaded: directory.join("libtombolo_preload.so") };
    let ways = ways(&arguments.logs);
    if ways.iter().any(|way| way.nodes().is_some()) {
        build_package(root, "release", "tombolo-cli")?;
    }
    if arguments.rounds > 0 {
        kills(root, arguments.rounds, &ways, &built)?;
    }
    if arguments.measure == 0 {
        return Ok(());
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "{}. Programs and nodes share its processors.\ncargo xtask {}",
        machine::describe(),
        words.join(" ")
    );
    let base = arguments
        .directory
        .clone()
        .unwrap_or_else(std::env::temp_dir)
        .join(format!("tombolo-preload-{}", std::process::id()));
    let measured = measure(arguments.measure, &ways, &built, &base);
    // Why measuring failed says more than that something could not be removed.
    let removed = child::remove(&base);
    let (table, loads) = measured?;
    removed?;
    let (least, most) =
        loads.iter().fold((f64::MAX, 0.0f64), |(least, most), load| (least.min(*load), most.max(*load)));
    println!(
        "load average {least:.1} to {most:.1} meanwhile, of which this run's own processes are a part\n"
    );
    print(&table);
    Ok(())
}

/// The ways that are compared.
fn ways(logs: &[String]) -> Vec<Way> {
    let ours = if logs.is_empty() {
        vec![Way::NearShared, Way::NearTcp, Way::Local]
    } else {
        logs.iter().cloned().map(Way::Given).collect()
    };
    [Way::Strong, Way::Weak].into_iter().chain(ours).collect()
}

/// The tests in which programs are killed, with each log. Those of single calls run once, with a
/// local log.
fn kills(root: &Path, rounds: u64, ways: &[Way], built: &Built) -> Result<(), String> {
    let test = |name: Option<&str>, log: Option<&str>| {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(["test", "--quiet", "--package", "tombolo-preload", "--test", "it"])
            .args(name)
            .current_dir(root);
        command.env("PRELOAD_ROUNDS", rounds.to_string()).envs(log.map(|log| ("PRELOAD_LOG", log)));
        command
    };
    println!("{rounds} rounds of kills, {}, which survives {}", Way::Local.name(), Way::Local.survives());
    ended(&mut test(None, None), "the tests under kills")?;
    for way in ways.iter().filter(|way| way.is_ours() && **way != Way::Local) {
        println!("{rounds} rounds of kills, {}, which survives {}", way.name(), way.survives());
        let nodes = nodes(way, built)?;
        let log = way.log(root, nodes.as_ref().map(Nodes::uri).as_deref());
        ended(
            &mut test(Some("survives_kills"), log.as_deref()),
            &format!("the tests under kills, {},", way.name()),
        )?;
    }
    Ok(())
}

/// The three nodes of a log that lies on some of this host.
fn nodes(way: &Way, built: &Built) -> Result<Option<Nodes>, String> {
    way.nodes().map(|is_shared| Nodes::start(&built.tombolo, 3, is_shared)).transpose()
}

/// Installs missing packages, where it may; those that cannot be had are skipped, and named.
fn install() {
    let is_missing = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        !std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    let missing: Vec<&str> =
        PACKAGES.iter().filter(|(program, _)| is_missing(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    println!("$ apt-get install --yes {}", missing.join(" "));
    let installed = Command::new("apt-get").args(["install", "--yes", "--quiet"]).args(&missing).status();
    if !installed.is_ok_and(|status| status.success()) {
        println!("not installed, and skipped: {}", missing.join(" "));
    }
}

fn ended(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what} ended with {status}")) }
}

/// What was measured by program and quantity, then by way.
type Table = BTreeMap<(&'static str, &'static str), BTreeMap<Way, Vec<f64>>>;

/// Measures each program in each way, on empty directories and fresh nodes. Says how much the
/// machine had to do before each of them as well.
fn measure(rounds: u32, ways: &[Way], built: &Built, base: &Path) -> Result<(Table, Vec<f64>), String> {
    let (mut table, mut loads) = (Table::new(), Vec::new());
    for round in 1..=rounds {
        for program in Program::ALL {
            if let Some(missing) = program.missing() {
                println!("skipped: {missing} is not installed");
                continue;
            }
            for way in ways {
                let load = machine::load();
                println!("round {round} of {rounds}: {}, {}, load {load:.1}", program.name(), way.name());
                loads.push(load);
                child::remove(base)?;
                std::fs::create_dir_all(base).map_err(|error| format!("{}: {error}", base.display()))?;
                let nodes = nodes(way, built)?;
                let log = way.log(base, nodes.as_ref().map(Nodes::uri).as_deref());
                for Measured { quantity, value } in
                    program.measure(*way == Way::Weak, log, &built.preloaded, base)?
                {
                    table
                        .entry((program.name(), quantity))
                        .or_default()
                        .entry(way.clone())
                        .or_default()
                        .push(value);
                }
            }
        }
    }
    Ok((table, loads))
}

/// Medians, below what each column survives.
fn print(table: &Table) {
    let ways: Vec<&Way> = table.values().next().map(|row| row.keys().collect()).unwrap_or_default();
    let line = |head: &str, cells: Vec<String>| println!("| {head} | {} |", cells.join(" | "));
    line("", ways.iter().map(|way| way.name().to_owned()).collect());
    println!("|---|{}", "---|".repeat(ways.len()));
    line("survives", ways.iter().map(|way| way.survives().to_owned()).collect());
    for ((program, quantity), row) in table {
        let cells = row.values().map(|values| {
            let mut values = values.clone();
            values.sort_by(f64::total_cmp);
            let median = values[values.len() / 2];
            if median < 100.0 { format!("{median:.2}") } else { format!("{median:.0}") }
        });
        line(&format!("{program}: {quantity}"), cells.collect());
    }
}
