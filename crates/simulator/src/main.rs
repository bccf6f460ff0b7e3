//! Runs scenarios by seed: `cargo xtask simulate`.

#![allow(clippy::result_large_err, reason = "a failure ends the run, and is made once in it")]

mod on_flash;
mod pool;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tombolo_env::simulated::tape::Tape;
use tombolo_env::{Access, Env, Instant};
use tombolo_simulator::scenario::metamorphic::{self, Real};
use tombolo_simulator::scenario::{self, Scenario};
use tombolo_simulator::shrink::{self, Bounds};
use tombolo_simulator::{Failure, Report};
use tombolo_storage::Uri;

/// Runs the whole engine in a simulated world, by seed, on all cores, and judges everything that it
/// answers.
#[derive(Parser)]
#[command(
    name = "simulate",
    bin_name = "cargo xtask simulate",
    max_term_width = 110,
    after_help = "\
Everything, bounded:        cargo xtask simulate
The protocol of segments:   cargo xtask simulate --scenario segments --runs 1000000
The whole engine:           cargo xtask simulate --histories 20000
One failure again:          cargo xtask simulate --scenario random --seed 17 --runs 1
Every byte of bit-rot:      cargo xtask simulate --scenario bit-rot --whole
Rules taken out:            cargo xtask simulate --mutants
Wear of flash:              cargo xtask zoned --measure
All others, by tests:       cargo xtask check --only tests
How one is noticed:         cargo xtask simulate --mutant SegmentTakesShortest --shrink
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
    /// So many histories of the whole engine: seeds of each of its scenarios until all have had
    /// their share.
    #[arg(long, conflicts_with_all = ["runs", "whole", "scenario"])]
    histories: Option<u64>,
    /// As many seeds as cover all of a scenario, where there is an all.
    #[arg(long, conflicts_with = "runs")]
    whole: bool,
    /// Plays one history from its tape, as a failure that was shrunk names it, or from the file
    /// that holds it.
    #[arg(long, conflicts_with_all = ["runs", "histories", "whole"], requires = "scenario")]
    tape: Option<String>,
    /// Takes out the rules whose mutants scenarios hunt, one at a time, and looks for the violation
    /// that follows. Most mutants are noticed by tests of the crates that have the rule:
    /// `cargo xtask check --only tests` runs those.
    #[arg(long, conflicts_with_all = ["mutant", "histories", "whole", "tape"])]
    mutants: bool,
    /// Takes out the rule of the mutant of this name. Without `--runs`, for as many seeds as it
    /// takes at most.
    #[arg(long, conflicts_with_all = ["histories", "whole"])]
    mutant: Option<String>,
    /// With mutants: makes each history that notices small, and shows it. What fails without a
    /// mutant is always made small.
    #[arg(long)]
    shrink: bool,
    /// Runs the histories of `metamorphic` on this store, in real time, each database in a place of
    /// its own below the URI. The feature `cloud` or `hdfs` of this program has such stores.
    #[arg(
        long,
        value_name = "URI",
        conflicts_with_all = ["scenario", "runs", "whole", "mutants", "mutant", "shrink"]
    )]
    store: Option<String>,
    /// With `--store`: for how long.
    #[arg(long, default_value_t = 60, requires = "store")]
    seconds: u64,
    /// Counts what the engine does to flash: on zones, and on a file system over a translation
    /// layer, in virtual time. A minute or two.
    #[arg(long, conflicts_with_all = ["scenario", "runs", "whole", "mutants", "mutant", "shrink", "store"])]
    flash: bool,
    /// With `--flash`: also of a program that was traced with
    /// `strace -ff -ttt -y -s 0 -o DIR/t PROGRAM`.
    #[arg(long, value_name = "DIR", requires_all = ["flash", "below"])]
    traced: Option<PathBuf>,
    /// With `--traced`: the directory that the program wrote to.
    #[arg(long, value_name = "DIR")]
    below: Option<PathBuf>,
    /// Names the scenarios and what each does.
    #[arg(long)]
    list: bool,
}

/// Where mutants are noticed that no scenario hunts.
#[cfg(feature = "mutants")]
const TESTS_HUNT: &str =
    "tests of the crates notice those that no scenario hunts: cargo xtask check --only tests";

impl Arguments {
    /// What in them cannot be meant.
    fn nonsense(&self) -> Option<String> {
        match self.runs {
            Some(0) => return Some("--runs 0 runs nothing".to_owned()),
            Some(runs) if self.seed.checked_add(runs - 1).is_none() => {
                return Some(format!(
                    "there are no {runs} seeds from {} on: the last one is {}",
                    self.seed,
                    u64::MAX
                ));
            }
            _ => {}
        }
        let has_mutants = self.mutants || self.mutant.is_some();
        (self.shrink && !has_mutants).then(|| {
            "--shrink goes with --mutants or --mutant: any other failure is always made small".to_owned()
        })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    scenario::quiet_panics();
    if arguments.list {
        for scenario in scenario::ALL {
            println!("{:<36} {}", scenario.name, scenario.purpose);
        }
        return ExitCode::SUCCESS;
    }
    if let Some(nonsense) = arguments.nonsense() {
        eprintln!("{nonsense}");
        return ExitCode::from(2);
    }
    if let Some(store) = &arguments.store {
        return on_store(store, &arguments);
    }
    if arguments.flash {
        return on_flash::show(arguments.seed, arguments.traced.as_deref().zip(arguments.below.as_deref()));
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
    if arguments.mutants || arguments.mutant.is_some() {
        return mutants(&chosen, &arguments);
    }
    if let Some(tape) = &arguments.tape {
        return play(&chosen[0], arguments.seed, tape);
    }
    let all_passed = match arguments.histories {
        Some(histories) => share(histories, &arguments),
        None => {
            chosen
                .iter()
                .filter(|scenario| run(scenario, Goal::of(scenario, &arguments), &arguments).is_err())
                .count()
                == 0
        }
    };
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs histories on a real store.
fn on_store(store: &str, arguments: &Arguments) -> ExitCode {
    let env = Env::real();
    let scratch = std::env::temp_dir().join(format!(
        "tombolo-metamorphic-{}-{:x}",
        std::process::id(),
        env.random_u64()
    ));
    let ran = Uri::parse(store).map_err(|error| error.to_string()).and_then(|store| {
        let limit = Duration::from_secs(arguments.seconds);
        let real = Real { store: &store, scratch: &scratch, seed: arguments.seed, limit };
        let replay = "to replay it: the same command with that seed as --seed; its database is kept";
        metamorphic::on_store(&env, real)
            .map_err(|violation| format!("{violation}\n{replay}"))
            .map(|ran| (store.scheme, ran))
    });
    // Only a set with a flash cache makes it.
    let _removed = std::fs::remove_dir_all(&scratch);
    match ran {
        Ok((scheme, ran)) => {
            println!(
                "metamorphic on {scheme}://: {} histories, {} sets of options, {} opens, {} operations \
                answered as an ordered map does",
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

/// When a scenario has run for long enough.
#[derive(Clone, Copy)]
enum Goal {
    Seeds(u64),
    /// Histories: a seed of a scenario has one or many.
    Worlds(u64),
}

impl Goal {
    fn of(scenario: &Scenario, arguments: &Arguments) -> Goal {
        Goal::Seeds(match (arguments.runs, arguments.whole) {
            (Some(runs), _) => runs,
            (None, true) => scenario.runs_whole.unwrap_or(scenario.runs),
            (None, false) => scenario.runs,
        })
    }

    fn is_reached(self, seeds: u64, total: &Report) -> bool {
        match self {
            Goal::Seeds(count) => seeds >= count,
            Goal::Worlds(count) => total.worlds >= count,
        }
    }

    fn words(self) -> String {
        match self {
            Goal::Seeds(count) => format!("of {count} seeds"),
            Goal::Worlds(count) => format!("seeds, until {count} histories"),
        }
    }
}

/// Runs the seeds of a scenario on all cores.
///
/// # Errors
/// The failure of the lowest seed that has one, when it was shown.
fn run(scenario: &Scenario, goal: Goal, arguments: &Arguments) -> Result<Report, Box<Failure>> {
    let env = Env::real();
    let begun = env.now();
    let mut total = Report::default();
    let mut progress = Progress::new(env.clone());
    let mut failure = None;
    let (act, first) = (scenario.run, arguments.seed);
    let most = if let Goal::Seeds(count) = goal { count } else { u64::MAX };
    let mut seeds = 0;
    pool::run(
        &env,
        most,
        move |nth| act(first.saturating_add(nth)),
        |outcome| {
            seeds += 1;
            match outcome {
                Ok(report) => total.add(&report),
                Err(failed) => failure = Some(Box::new(failed)),
            }
            progress.show(|took| {
                let rate = total.worlds as f64 / took;
                format!(
                    "{}: {seeds} {}, {} histories, {rate:.0} a second, {took:.1} s",
                    scenario.name,
                    goal.words(),
                    total.worlds
                )
            });
            failure.is_none() && !goal.is_reached(seeds, &total)
        },
    );
    progress.clear();
    match failure {
        Some(failure) => {
            eprintln!("{failure}");
            make_small(scenario, &failure);
            Err(failure)
        }
        None => {
            println!(
                "{}: {seeds} seeds passed in {:.1} s: {total}",
                scenario.name,
                env.now().since(begun).as_secs_f64()
            );
            Ok(total)
        }
    }
}

/// Runs so many histories of the whole engine.
fn share(histories: u64, arguments: &Arguments) -> bool {
    let engine: Vec<Scenario> = scenario::ALL.into_iter().filter(Scenario::is_whole_engine).collect();
    let each = histories.div_ceil(engine.len() as u64);
    let mut total = Report::default();
    for scenario in engine {
        match run(&scenario, Goal::Worlds(each), arguments) {
            Ok(report) => total.add(&report),
            Err(_) => return false,
        }
    }
    println!("the whole engine: {total}");
    true
}

/// Shows a smaller history that fails in the same way.
fn make_small(scenario: &Scenario, failure: &Failure) {
    eprintln!("\nlooking for a smaller history that fails in the same way ...");
    match shrink::shrink(scenario, failure.seed, Bounds::default()) {
        None => eprintln!(
            "it does not fail when it is run again: something in it follows from more than the seed"
        ),
        Some(shrunk) => {
            let failure = Failure { mutant: failure.mutant.clone(), ..shrunk.failure };
            eprintln!(
                "after {} runs {} choices of {} are left:",
                shrunk.runs, shrunk.choices, shrunk.choices_found
            );
            eprintln!("{failure}");
        }
    }
}

/// Most bytes of a file that is read as a whole.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What a file holds.
fn read_file(env: &Env, path: &Path) -> std::io::Result<String> {
    let file = env.files().open(path, Access::Read)?;
    let mut bytes = vec![0; usize::try_from(file.length()?.min(FILE_BYTES_MAX)).unwrap_or(0)];
    tombolo_env::file::read_exact_at(file.as_ref(), &mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a file of that name holds; without one, the words themselves.
fn text_of(words: &str) -> String {
    read_file(&Env::real(), Path::new(words)).unwrap_or_else(|_| words.to_owned())
}

/// Plays a history from its tape.
fn play(scenario: &Scenario, seed: u64, tape: &str) -> ExitCode {
    match text_of(tape).parse::<Tape>().map(|tape| shrink::replay(scenario, seed, &tape)) {
        Err(what) => {
            eprintln!("--tape takes a tape as a failure names it, or a file that holds one: {what}");
            ExitCode::from(2)
        }
        Ok(Err(failure)) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
        Ok(Ok(report)) => {
            println!("{}: the history of this tape passes: {report}", scenario.name);
            ExitCode::SUCCESS
        }
    }
}

/// A line that is written again and again, on a terminal; a line now and then, elsewhere.
struct Progress {
    env: Env,
    begun: Instant,
    shown: Instant,
    is_terminal: bool,
}

impl Progress {
    fn new(env: Env) -> Progress {
        let now = env.now();
        Progress { env, begun: now, shown: now, is_terminal: std::io::stdout().is_terminal() }
    }

    fn show(&mut self, words: impl FnOnce(f64) -> String) {
        let now = self.env.now();
        let pause = if self.is_terminal { Duration::from_millis(200) } else { Duration::from_secs(60) };
        if now.since(self.shown) < pause {
            return;
        }
        self.shown = now;
        let words = words(now.since(self.begun).as_secs_f64());
        if self.is_terminal {
            print!("\r\x1b[K{words}");
        } else {
            println!("{words}");
        }
        // A progress line that cannot be shown changes nothing.
        let _ = std::io::stdout().flush();
    }

    fn clear(&self) {
        if self.is_terminal {
            print!("\r\x1b[K");
        }
    }
}

#[cfg(feature = "mutants")]
fn mutants(chosen: &[Scenario], arguments: &Arguments) -> ExitCode {
    use tombolo_simulator::mutants::{self, Hunt};
    let is_named =
        |hunt: &Hunt| arguments.mutant.as_deref().is_none_or(|name| name == format!("{:?}", hunt.mutant));
    let is_chosen =
        |hunt: &&Hunt| chosen.iter().any(|scenario| scenario.name == hunt.scenario) && is_named(hunt);
    let all = || mutants::ALL.iter().chain(mutants::SEMANTIC);
    let hunts: Vec<Hunt> = all().filter(is_chosen).copied().collect();
    if hunts.is_empty() {
        let hunters: Vec<&str> = all().filter(|hunt| is_named(hunt)).map(|hunt| hunt.scenario).collect();
        match (&arguments.mutant, arguments.scenario.as_deref()) {
            (Some(name), Some(scenario)) if !hunters.is_empty() => {
                eprintln!("the scenario {scenario} does not hunt {name:?}: {} does", hunters.join(", "));
            }
            (Some(name), _) => {
                eprintln!("no scenario hunts {name:?}: --mutants names those that are hunted; {TESTS_HUNT}");
            }
            (None, scenario) => {
                eprintln!("the scenario {} hunts no mutants; {TESTS_HUNT}", scenario.unwrap_or_default());
            }
        }
        return ExitCode::from(2);
    }
    if let Some(tape) = &arguments.tape {
        let _out = hunts[0].take_out();
        return play(&chosen[0], arguments.seed, tape);
    }
    let env = Env::real();
    let mut survived = 0;
    let mut caught = Vec::new();
    let work = hunts.clone();
    let (timer, first, runs) = (env.clone(), arguments.seed, arguments.runs);
    let hunted = move |nth: u64| {
        let hunt = usize::try_from(nth).ok().and_then(|nth| work.get(nth)).copied();
        let begun = timer.now();
        (
            hunt,
            hunt.and_then(|hunt| hunt.run_from(first, runs.unwrap_or(hunt.seeds))),
            timer.now().since(begun).as_secs_f64(),
        )
    };
    pool::run(&env, hunts.len() as u64, hunted, |(hunt, found, took)| {
        let Some(hunt) = hunt else { return true };
        match found {
            Some((seeds, failure)) => {
                println!(
                    "{:?}: caught by {} after {seeds} seeds in {took:.1} s: {}",
                    hunt.mutant, hunt.scenario, failure.what
                );
                caught.push((hunt, failure));
            }
            None => {
                survived += 1;
                let seeds = runs.unwrap_or(hunt.seeds);
                println!(
                    "{:?}: SURVIVED {seeds} seeds from {first} on of {} in {took:.1} s",
                    hunt.mutant, hunt.scenario
                );
            }
        }
        true
    });
    println!("{} mutants caught, {survived} survived; {TESTS_HUNT}", caught.len());
    for (hunt, failure) in caught.iter().filter(|_| arguments.shrink) {
        if let Some(scenario) = scenario::by_name(hunt.scenario) {
            let _out = hunt.take_out();
            make_small(&scenario, failure);
        }
    }
    if survived == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "mutants"))]
fn mutants(_chosen: &[Scenario], _arguments: &Arguments) -> ExitCode {
    eprintln!(
        "built without mutants: use `cargo xtask simulate --mutants`, or build with `--features mutants`"
    );
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonsense(line: &str) -> Option<String> {
        let parsed = Arguments::try_parse_from(line.split(' '));
        match parsed {
            Ok(arguments) => arguments.nonsense(),
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        for line in [
            "simulate --mutants --seed 7 --runs 100",
            "simulate --scenario segments --mutant SegmentTakesShortest --seed 3 --runs 1 --shrink",
            "simulate --scenario segments --seed 18446744073709551615 --runs 1",
        ] {
            assert_eq!(nonsense(line), None, "{line}");
        }
        for (line, said) in [
            ("simulate --mutants --runs 0", "--runs 0 runs nothing"),
            ("simulate --runs 2 --seed 18446744073709551615", "there are no 2 seeds"),
            ("simulate --shrink", "--shrink goes with"),
            ("simulate --mutants --histories 7", "cannot be used with"),
            ("simulate --mutant LogObjectNotSealed --whole", "cannot be used with"),
        ] {
            assert!(nonsense(line).is_some_and(|words| words.contains(said)), "{line}");
        }
    }
}
