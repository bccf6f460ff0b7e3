//! Runs scenarios by seed: `cargo xtask simulate`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tombolo_env::Env;
use tombolo_simulator::scenario::metamorphic::{self, Real};
use tombolo_simulator::scenario::{self, Scenario};
use tombolo_simulator::{Failure, Report};
use tombolo_storage::Uri;

/// Runs the whole engine in a simulated world, by seed, and judges everything that it answers.
#[derive(Parser)]
#[command(
    name = "simulate",
    bin_name = "cargo xtask simulate",
    max_term_width = 110,
    after_help = "\
Everything, bounded:        cargo xtask simulate
One failure again:          cargo xtask simulate --scenario random --seed 17 --runs 1
Every byte of bit-rot:      cargo xtask simulate --scenario bit-rot --whole
Each rule taken out:        cargo xtask simulate --mutants
The scenario `metamorphic` on a real store, in real time:
    cargo run --release -p tombolo-simulator --features cloud -- --store s3://bucket/test --seconds 60"
)]
struct Arguments {
    /// Only this scenario; `--list` names them.
    #[arg(long)]
    scenario: Option<String>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds; a bounded number when not given.
    #[arg(long)]
    runs: Option<u64>,
    /// As many seeds as cover all of a scenario, where there is an all.
    #[arg(long, conflicts_with = "runs")]
    whole: bool,
    /// Takes each rule out and looks for the violation that follows.
    #[arg(long)]
    mutants: bool,
    /// With `--mutants`: only the mutant of this name.
    #[arg(long)]
    mutant: Option<String>,
    /// Runs the histories of `metamorphic` on this store, in real time, each database in a place of its own below the URI. The feature `cloud` or `hdfs`
    /// of this program has such stores.
    #[arg(long, value_name = "URI", conflicts_with_all = ["scenario", "runs", "whole", "mutants", "mutant"])]
    store: Option<String>,
    /// With `--store`: for how long.
    #[arg(long, default_value_t = 60, requires = "store")]
    seconds: u64,
    /// Names the scenarios and what each does.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for scenario in scenario::ALL {
            println!("{:<36} {}", scenario.name, scenario.purpose);
        }
        return ExitCode::SUCCESS;
    }
    if let Some(store) = &arguments.store {
        return on_store(store, &arguments);
    }
    if arguments.mutants || arguments.mutant.is_some() {
        return mutants(&arguments);
    }
    let chosen: Vec<Scenario> = match &arguments.scenario {
        None => scenario::ALL.to_vec(),
        Some(name) => match scenario::by_name(name) {
            Some(scenario) => vec![scenario],
            None => {
                eprintln!("there is no scenario {name:?}: `cargo xtask simulate --list` names them");
                return ExitCode::from(2);
            }
        },
    };
    let failed = chosen.iter().filter(|scenario| !run(scenario, &arguments)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs histories on a real store.
fn on_store(store: &str, arguments: &Arguments) -> ExitCode {
    let env = Env::real();
    let scratch = std::env::temp_dir().join(format!("tombolo-metamorphic-{}-{:x}", std::process::id(), env.random_u64()));
    let ran = Uri::parse(store).map_err(|error| error.to_string()).and_then(|store| {
        let limit = Duration::from_secs(arguments.seconds);
        let real = Real { store: &store, scratch: &scratch, seed: arguments.seed, limit };
        let replay = "to replay it: the same command with that seed as --seed; its database is kept";
        metamorphic::on_store(&env, real).map_err(|violation| format!("{violation}\n{replay}")).map(|ran| (store.scheme, ran))
    });
    // Only a set with a flash cache makes it.
    let _removed = std::fs::remove_dir_all(&scratch);
    match ran {
        Ok((scheme, ran)) => {
            println!(
                "metamorphic on {scheme}://: {} histories, {} sets of options, {} opens, {} operations answered as an ordered map does",
                ran.histories, ran.sets, ran.opened, ran.operations
            );
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the seeds of a scenario; `false` when one failed.
fn run(scenario: &Scenario, arguments: &Arguments) -> bool {
    let env = Env::real();
    let begun = env.now();
    let runs = match (arguments.runs, arguments.whole) {
        (Some(runs), _) => runs,
        (None, true) => scenario.runs_whole.unwrap_or(scenario.runs),
        (None, false) => scenario.runs,
    };
    let mut total = Report::default();
    let shown_every = 1 + runs / 1000;
    for (nth, seed) in (arguments.seed..arguments.seed.saturating_add(runs)).enumerate() {
        match (scenario.run)(seed) {
            Ok(report) => total.add(&report),
            Err(failure) => {
                fail(&failure);
                return false;
            }
        }
        // Thousands of them may pass in a second.
        if !(nth as u64 + 1).is_multiple_of(shown_every) {
            continue;
        }
        let took = env.now().since(begun).as_secs_f64();
        if std::io::stdout().is_terminal() {
            print!("\r{}: {} of {runs} seeds, {} worlds, {took:.1} s ", scenario.name, nth + 1, total.worlds);
            // A progress line that cannot be shown changes nothing.
            let _ = std::io::stdout().flush();
        }
    }
    let clear = if std::io::stdout().is_terminal() { "\r" } else { "" };
    println!("{clear}{}: {runs} seeds passed in {:.1} s: {total}", scenario.name, env.now().since(begun).as_secs_f64());
    true
}

fn fail(failure: &Failure) {
    println!();
    eprintln!("{failure}");
}

#[cfg(feature = "mutants")]
fn mutants(arguments: &Arguments) -> ExitCode {
    use tombolo_simulator::mutants;
    // Panics are how some mutants are noticed; each would print a page.
    std::panic::set_hook(Box::new(|_| {}));
    let env = Env::real();
    let mut survived = 0;
    let chosen = mutants::ALL
        .iter()
        .filter(|hunt| arguments.scenario.as_deref().is_none_or(|name| name == hunt.scenario))
        .filter(|hunt| arguments.mutant.as_deref().is_none_or(|name| name == format!("{:?}", hunt.mutant)));
    for hunt in chosen {
        let begun = env.now();
        let caught = hunt.run();
        let took = env.now().since(begun).as_secs_f64();
        match caught {
            Some((seeds, failure)) => {
                println!("{:?}: caught by {} after {seeds} seeds in {took:.1} s: {}", hunt.mutant, hunt.scenario, failure.what);
            }
            None => {
                survived += 1;
                println!("{:?}: SURVIVED {} seeds of {} in {took:.1} s", hunt.mutant, hunt.seeds, hunt.scenario);
            }
        }
    }
    if survived == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "mutants"))]
fn mutants(_arguments: &Arguments) -> ExitCode {
    eprintln!("built without mutants: use `cargo xtask simulate --mutants`, or build with `--features mutants`");
    ExitCode::from(2)
}
