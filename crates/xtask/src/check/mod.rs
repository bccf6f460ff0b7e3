//! All of CI, as named steps. Every step runs even when an earlier one failed.
//!
//! `steps that read sources → build of all tests by clippy → tests and servers, beside rustdoc`.
//! The second half runs side by side: tests wait now and then, and compilers do not. What a step
//! prints goes to a log of its own, which is shown when it fails.

mod changed;
mod circles;
mod dependencies;
mod documentation;
mod fuzz;
mod graph;
mod lines;
mod links;
mod lints;
mod mutants;
mod tests_run;

pub use documentation::in_place_of_rustdoc;
pub use lints::unsafe_paths;

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;

use crate::built::{self, Built};
use crate::log::{self, Log};
use crate::source::{self, Source};
use changed::Scope;

/// Options of `check`.
#[derive(Args)]
pub struct Arguments {
    /// Only this step; may be given several times. `--list` names them.
    #[arg(long = "only", value_name = "STEP")]
    only: Vec<String>,
    /// Leave this step out; may be given several times.
    #[arg(long = "skip", value_name = "STEP")]
    skip: Vec<String>,
    /// Only steps and tests of the crates that changed since BASE, and of crates that depend on
    /// them. BASE is where this branch left main, when not given; changes that are not committed
    /// count.
    #[arg(long, value_name = "BASE", num_args = 0..=1, default_missing_value = "")]
    changed: Option<String>,
    /// Name the steps, what each protects, and how long it may take.
    #[arg(long)]
    list: bool,
}

/// What a passed step has to say, in a few words; or what failed and where.
type Outcome = Result<String, String>;

/// What steps work on.
struct Context<'a> {
    root: &'a Path,
    sources: &'a [Source],
    /// What the run is about.
    scope: Scope,
    /// What the build of the tests made, once it was asked for.
    built: OnceLock<Result<Built, String>>,
}

impl Context<'_> {
    /// The tests, compiled when they are first asked for.
    fn built(&self, log: &Log) -> Result<&Built, String> {
        self.built.get_or_init(|| built::build(self.root, log)).as_ref().map_err(Clone::clone)
    }
}

/// How a step works.
enum Work {
    /// It reads sources, which takes moments.
    Read(fn(&Context<'_>) -> Outcome),
    /// It is quick, or compiles what others run: it comes before them, and nothing runs beside it.
    First(fn(&Context<'_>, &Log) -> Outcome),
    /// It runs what was built.
    Run(fn(&Context<'_>, &Log) -> Outcome),
    /// It compiles for itself, beside those that run what was built.
    Beside(fn(&Context<'_>, &Log) -> Outcome),
}

struct Step {
    name: &'static str,
    /// What would go unnoticed without it.
    protects: &'static str,
    /// How long it may take on a quiet machine with two cores, from a clean clone.
    limit_seconds: u64,
    /// Whether a change concerns it.
    when: fn(&Scope) -> bool,
    work: Work,
}

fn always(_: &Scope) -> bool {
    true
}

const STEPS: &[Step] = &[
    Step {
        name: "format",
        protects: "rustfmt leaves everything as it is",
        limit_seconds: 10,
        when: always,
        work: Work::First(format),
    },
    Step {
        name: "crates",
        protects: "crates depend on lower layers of ARCHITECTURE.md only",
        limit_seconds: 5,
        when: always,
        work: Work::Read(graph::crates),
    },
    Step {
        name: "modules",
        protects: "the engine's modules import lower ones of ARCHITECTURE.md only",
        limit_seconds: 5,
        when: always,
        work: Work::Read(graph::modules),
    },
    Step {
        name: "circles",
        protects: "modules of no crate import each other in a circle",
        limit_seconds: 5,
        when: always,
        work: Work::Read(circles::check),
    },
    Step {
        name: "lints",
        protects: "no ambient world, no stray unsafe, no long or unfinished files, no backend named above \
            storage",
        limit_seconds: 5,
        when: always,
        work: Work::Read(lints::check),
    },
    Step {
        name: "lines",
        protects: "lines fit a screen, comments say it in usual words",
        limit_seconds: 5,
        when: always,
        work: Work::Read(lines::check),
    },
    Step {
        name: "mutants",
        protects: "each rule that can be taken out has code that asks, and tests that are meant to notice",
        limit_seconds: 5,
        when: always,
        work: Work::Read(mutants::check),
    },
    Step {
        name: "dependencies",
        protects: "each dependency has its reason beside it, is pinned in one place, and is built once",
        limit_seconds: 5,
        when: always,
        work: Work::Read(dependencies::check),
    },
    Step {
        name: "fuzz-targets",
        protects: "the lists of fuzz targets agree, and each calls its decoder",
        limit_seconds: 5,
        when: always,
        work: Work::Read(fuzz::check),
    },
    Step {
        name: "links",
        protects: "relative links and anchors of every Markdown file lead somewhere",
        limit_seconds: 5,
        when: always,
        work: Work::Read(links::check),
    },
    Step {
        name: "build",
        protects: "all crates, tests and examples compile with every feature but hdfs, etcd, parquet",
        limit_seconds: 210,
        when: Scope::has_code,
        work: Work::First(tests_run::compile),
    },
    Step {
        name: "clippy",
        protects: "no warning of compiler or clippy in any target; every feature but hdfs, etcd, parquet",
        limit_seconds: 5,
        when: Scope::has_code,
        work: Work::First(clippy),
    },
    Step {
        name: "tests",
        protects: "unit and integration tests of every crate, and that each rule taken out is noticed",
        limit_seconds: 240,
        when: Scope::has_code,
        work: Work::Run(tests_run::run),
    },
    Step {
        name: "servers",
        protects: "conformance and histories of the engine on real servers of object storage, where some \
            are built",
        limit_seconds: 90,
        when: |scope| scope.has("tombolo-storage"),
        work: Work::Run(servers),
    },
    Step {
        name: "book",
        protects: "the pages become a book, whose links all lead somewhere",
        limit_seconds: 90,
        when: Scope::has_pages,
        work: Work::Beside(book),
    },
    Step {
        name: "docs",
        protects: "no broken link in a library's rustdoc, and every example runs, the README's tour included",
        limit_seconds: 90,
        when: Scope::has_code,
        work: Work::Beside(documentation::check),
    },
];

/// How long all steps together may take, without servers; they are given for a quiet machine.
const LIMIT_SECONDS: u64 = 600;

/// A step that has run.
struct Done {
    step: &'static Step,
    passed: bool,
    took: Duration,
    words: String,
}

/// Runs the steps that `arguments` select.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    if arguments.list {
        for step in STEPS {
            println!("{:<14} {:>4} s  {}", step.name, step.limit_seconds, step.protects);
        }
        return Ok(());
    }
    for name in arguments.only.iter().chain(&arguments.skip) {
        if !STEPS.iter().any(|step| step.name == name) {
            return Err(format!("there is no step {name:?}: `cargo xtask check --list` names them"));
        }
    }
    let sources = source::all(root)
        .map_err(|error| format!("cannot read the sources below {}: {error}", root.display()))?;
    let scope = match &arguments.changed {
        None => Scope::All,
        Some(base) => changed::since(root, Some(base.as_str()).filter(|base| !base.is_empty()), &sources)?,
    };
    let context = Context { root, sources: &sources, scope, built: OnceLock::new() };
    let is_wanted = |step: &&'static Step| {
        let named = |names: &[String]| names.iter().any(|name| name == step.name);
        let chosen =
            if arguments.only.is_empty() { (step.when)(&context.scope) } else { named(&arguments.only) };
        chosen && !named(&arguments.skip)
    };
    let wanted: Vec<&'static Step> = STEPS.iter().filter(is_wanted).collect();
    let (started, cpu_before) = (Instant::now(), children_cpu());
    let done = Mutex::new(Vec::new());
    let perform_all = |which: fn(&Work) -> bool| {
        for step in wanted.iter().filter(|step| which(&step.work)) {
            let outcome = perform(step, &context);
            done.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        }
    };
    perform_all(|work| matches!(work, Work::Read(_)));
    perform_all(|work| matches!(work, Work::First(_)));
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| perform_all(|work| matches!(work, Work::Beside(_))));
        perform_all(|work| matches!(work, Work::Run(_)));
        // A panic of the other goes on here.
        beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let place = |done: &Done| STEPS.iter().position(|step| step.name == done.step.name);
    done.sort_by_key(place);
    summary(&done, started.elapsed(), children_cpu().saturating_sub(cpu_before))
}

/// Runs one step and says how it ended.
fn perform(step: &'static Step, context: &Context<'_>) -> Done {
    let begun = Instant::now();
    let (outcome, log) = match step.work {
        Work::Read(read) => (read(context), None),
        Work::First(run) | Work::Run(run) | Work::Beside(run) => {
            println!("── {} begins: {}", step.name, step.protects);
            match Log::create(context.root, step.name) {
                Ok(log) => (run(context, &log), Some(log)),
                Err(error) => (Err(error), None),
            }
        }
    };
    let took = begun.elapsed();
    match outcome {
        Ok(words) => {
            println!("── {} passed in {}: {words}", step.name, seconds(took));
            Done { step, passed: true, took, words }
        }
        Err(message) => {
            let said = log.map(|log| log.end()).unwrap_or_default();
            println!("── {} FAILED in {}\n{said}{message}", step.name, seconds(took));
            let words = format!("again alone: cargo xtask check --only {}", step.name);
            Done { step, passed: false, took, words }
        }
    }
}

/// The table at the end.
fn summary(done: &[Done], took: Duration, cpu: Duration) -> Result<(), String> {
    println!("── summary\n   {:<14} {:<7}{:>9}{:>8}  protects; found", "step", "", "took", "limit");
    for Done { step, passed, took, words } in done {
        let passed = if *passed { "passed" } else { "FAILED" };
        let over = if took.as_secs() >= step.limit_seconds { "  OVER ITS LIMIT" } else { "" };
        let limit = format!("{} s", step.limit_seconds);
        println!("   {:<14} {passed:<7}{:>9}{limit:>8}  {}{over}", step.name, seconds(*took), step.protects);
        println!("   {:<40} {words}", "");
    }
    let failed: Vec<_> = done.iter().filter(|done| !done.passed).map(|done| done.step.name).collect();
    let took_words = format!(
        "{} steps in {} ({} of processors; limit {LIMIT_SECONDS} s on two quiet cores)",
        done.len(),
        seconds(took),
        seconds(cpu)
    );
    if failed.is_empty() {
        println!("check passed: {took_words}");
        Ok(())
    } else {
        println!("check FAILED: {} of {took_words}: {}", failed.len(), failed.join(", "));
        Err(format!("failed: {}", failed.join(", ")))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Processor time of all programs that have ended, which tells a slow check from a busy machine;
/// zero where the system does not say.
fn children_cpu() -> Duration {
    /// Linux counts in these, whatever its own clock.
    const TICKS_PER_SECOND: u64 = 100;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may hold anything; the rest are numbers.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(13).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

fn format(context: &Context<'_>, log: &Log) -> Outcome {
    log::cargo(context.root, &["fmt", "--all", "--check"], &[], log).map_err(|message| {
        format!("{message}\n   to do: `cargo fmt --all` (rustfmt missing: `rustup component add rustfmt`)")
    })
}

/// What clippy said while it compiled; cargo repeats what it said of crates that were not compiled
/// again.
fn clippy(context: &Context<'_>, log: &Log) -> Outcome {
    let built = context.built(log)?;
    verdict(built.warnings.iter().map(|warning| warning.replace('\n', "\n   ")).collect(), "clean".to_owned())
}

fn book(context: &Context<'_>, _: &Log) -> Outcome {
    crate::book::build(context.root).map_err(|error| format!("   {}", error.replace('\n', "\n   ")))
}

fn servers(context: &Context<'_>, log: &Log) -> Outcome {
    crate::real::bounded_where_built(context.built(log)?, log)
}

/// Failures as one message, or `passed` when there are none.
fn verdict(mut failures: Vec<String>, passed: String) -> Outcome {
    if failures.is_empty() {
        return Ok(passed);
    }
    failures.sort();
    failures.dedup();
    Err(failures.iter().map(|failure| format!("   {failure}")).collect::<Vec<_>>().join("\n"))
}
