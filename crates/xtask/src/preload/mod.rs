//! Unmodified programs under the preload library: killed again and again, then measured against their own disk.
//!
//! `install what is missing → kill under load, restart, their own integrity checks → throughput, and restart after a kill, in rounds`.

mod programs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use programs::{Measured, Program};

/// Debian's packages of the programs.
const PACKAGES: &[(&str, &str)] = &[("sqlite3", "sqlite3"), ("redis-server", "redis-server"), ("db_bench", "rocksdb-tools")];

/// Options of `preload`.
#[derive(Args)]
pub struct Arguments {
    /// How often each program is killed and checked; 0 for not at all.
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// How often each program is measured in each way, in interleaved rounds; 0 for not at all. Medians are printed.
    #[arg(long, default_value_t = 5)]
    measure: u32,
    /// A log to kill and measure with, as a URI; may be given several times. The store's own log, and one in the memory of this host, when none is given.
    #[arg(long = "log", value_name = "URI")]
    logs: Vec<String>,
    /// Where the files lie while it measures; a temporary directory when not given. It must not be in memory.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// How a program keeps its files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// On its disk, synced with every write.
    Strong,
    /// On its disk, never synced.
    Weak,
    /// In a database with that log, synced with every write.
    Log(String),
}

/// Runs it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    install();
    if arguments.rounds > 0 {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(["test", "--quiet", "--package", "tombolo-preload", "--test", "it"])
            .env("PRELOAD_ROUNDS", arguments.rounds.to_string());
        ended(command.current_dir(root), "the tests under kills")?;
        for log in &arguments.logs {
            let mut command = Command::new(env!("CARGO"));
            command.args(["test", "--quiet", "--package", "tombolo-preload", "--test", "it", "survives_kills"]);
            command.env("PRELOAD_ROUNDS", arguments.rounds.to_string()).env("PRELOAD_LOG", log);
            ended(command.current_dir(root), &format!("the tests under kills with the log {log}"))?;
        }
    }
    if arguments.measure == 0 {
        return Ok(());
    }
    let mut command = Command::new(env!("CARGO"));
    ended(command.args(["build", "--quiet", "--release", "--package", "tombolo-preload"]).current_dir(root), "building the library")?;
    let library = root.join("target/release/libtombolo_preload.so");
    let base = arguments.directory.clone().unwrap_or_else(std::env::temp_dir).join(format!("tombolo-preload-{}", std::process::id()));
    let memory = PathBuf::from(format!("/dev/shm/tombolo-preload-{}", std::process::id()));
    let measured = measure(arguments, &library, &base, &memory);
    let _removed = (std::fs::remove_dir_all(&base), std::fs::remove_dir_all(&memory));
    print(&measured?);
    Ok(())
}

/// Installs what is missing, where it may; what is still missing afterwards is skipped, and said.
fn install() {
    let is_missing = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        !std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    let missing: Vec<&str> = PACKAGES.iter().filter(|(program, _)| is_missing(program)).map(|(_, package)| *package).collect();
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

/// Medians by program and quantity, then by way.
type Table = BTreeMap<(&'static str, &'static str), BTreeMap<Way, Vec<f64>>>;

fn measure(arguments: &Arguments, library: &Path, base: &Path, memory: &Path) -> Result<Table, String> {
    let mut logs = arguments.logs.clone();
    if logs.is_empty() {
        logs = vec![format!("file://{}", base.join("log").display()), format!("file://{}", memory.display())];
    }
    let ways: Vec<Way> = [Way::Strong, Way::Weak].into_iter().chain(logs.into_iter().map(Way::Log)).collect();
    let mut table = Table::new();
    for round in 1..=arguments.measure {
        for program in Program::ALL {
            if let Some(missing) = program.missing() {
                println!("skipped: {missing} is not installed");
                continue;
            }
            for way in &ways {
                println!("round {round}: {}, {}", program.name(), name(way));
                for directory in [base, memory] {
                    let _removed = std::fs::remove_dir_all(directory);
                    std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
                }
                for Measured { quantity, value } in program.measure(way, library, base)? {
                    table.entry((program.name(), quantity)).or_default().entry(way.clone()).or_default().push(value);
                }
            }
        }
    }
    Ok(table)
}

fn name(way: &Way) -> String {
    match way {
        Way::Strong => "disk, synced".to_owned(),
        Way::Weak => "disk, never synced".to_owned(),
        Way::Log(uri) if uri.starts_with("file:///dev/shm/") => "log in this host's memory".to_owned(),
        Way::Log(uri) if uri.starts_with("file://") => "log on the disk".to_owned(),
        Way::Log(uri) => uri.clone(),
    }
}

fn print(table: &Table) {
    let ways: Vec<&Way> = table.values().next().map(|row| row.keys().collect()).unwrap_or_default();
    println!("| | {} |", ways.iter().map(|way| name(way)).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(ways.len()));
    for ((program, quantity), row) in table {
        let cells = row.values().map(|values| {
            let mut values = values.clone();
            values.sort_by(f64::total_cmp);
            let median = values[values.len() / 2];
            if median < 100.0 { format!("{median:.2}") } else { format!("{median:.0}") }
        });
        println!("| {program}: {quantity} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}
