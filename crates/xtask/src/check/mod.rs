//! All of CI, as named steps. Cheap steps first; every step runs even when an earlier one failed.

mod circles;
mod dependencies;
mod fuzz;
mod graph;
mod links;
mod lints;
mod tests_run;

pub use lints::unsafe_paths;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::source::{self, Source};

/// Options of `check`.
#[derive(Args)]
pub struct Arguments {
    /// Only this step; may be given several times. `--list` names them.
    #[arg(long = "only", value_name = "STEP")]
    only: Vec<String>,
    /// Leave this step out; may be given several times.
    #[arg(long = "skip", value_name = "STEP")]
    skip: Vec<String>,
    /// Name the steps and what each is for.
    #[arg(long)]
    list: bool,
}

/// What a passed step has to say, in a few words; or what failed and where.
type Outcome = Result<String, String>;

/// What steps work on.
struct Context<'a> {
    root: &'a Path,
    sources: &'a [Source],
}

struct Step {
    name: &'static str,
    purpose: &'static str,
    run: fn(&Context<'_>) -> Outcome,
}

const STEPS: &[Step] = &[
    Step { name: "format", purpose: "rustfmt leaves everything as it is", run: format },
    Step {
        name: "crates",
        purpose: "crates depend on lower layers of ARCHITECTURE.md only",
        run: graph::crates,
    },
    Step {
        name: "modules",
        purpose: "the engine's modules import lower ones of ARCHITECTURE.md only",
        run: graph::modules,
    },
    Step {
        name: "circles",
        purpose: "modules of no crate import each other in a circle",
        run: circles::check,
    },
    Step {
        name: "lints",
        purpose: "no ambient world, no stray unsafe, no long or unfinished files, no backend named above \
            storage",
        run: lints::check,
    },
    Step {
        name: "dependencies",
        purpose: "each dependency has its reason beside it, and is pinned in one place",
        run: dependencies::check,
    },
    Step {
        name: "fuzz-targets",
        purpose: "the lists of fuzz targets agree, and each calls its decoder",
        run: fuzz::check,
    },
    Step {
        name: "links",
        purpose: "relative links and anchors of every Markdown file lead somewhere",
        run: links::check,
    },
    Step { name: "book", purpose: "the pages become a book, whose links all lead somewhere", run: book },
    Step { name: "clippy", purpose: "clippy over all targets, warnings denied", run: clippy },
    Step {
        name: "clippy-mutants",
        purpose: "the same with the features `mutants`, `cloud` and `hdfs`",
        run: clippy_mutants,
    },
    Step { name: "tests", purpose: "unit and integration tests of every crate", run: tests_run::plain },
    Step {
        name: "mutants",
        purpose: "tests with the feature `mutants`: each rule taken out is noticed",
        run: tests_run::mutants,
    },
    Step {
        name: "servers",
        purpose: "conformance and histories of the engine on those real servers of object storage that are \
            built here already",
        run: servers,
    },
    Step {
        name: "doc-tests",
        purpose: "every example of the documentation, the README's tour included",
        run: tests_run::documentation,
    },
    Step { name: "docs", purpose: "rustdoc with warnings and broken links denied", run: docs },
];

/// Runs the steps that `arguments` select.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    if arguments.list {
        for step in STEPS {
            println!("{:<16} {}", step.name, step.purpose);
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
    let context = Context { root, sources: &sources };
    let started = Instant::now();
    let mut failed = Vec::new();
    let mut summary = Vec::new();
    for step in STEPS {
        let wanted = arguments.only.is_empty() || arguments.only.iter().any(|name| name == step.name);
        if !wanted || arguments.skip.iter().any(|name| name == step.name) {
            continue;
        }
        println!("── {} ─ {}", step.name, step.purpose);
        let begun = Instant::now();
        let outcome = (step.run)(&context);
        let took = seconds(begun.elapsed());
        match outcome {
            Ok(words) => {
                println!("   passed in {took}: {words}");
                summary.push(format!("   {:<16} passed {took:>8}  {words}", step.name));
            }
            Err(message) => {
                println!("   FAILED in {took}:\n{message}");
                summary.push(format!(
                    "   {:<16} FAILED {took:>8}  again alone: cargo xtask check --only {}",
                    step.name, step.name
                ));
                failed.push(step.name);
            }
        }
    }
    println!("── summary\n{}", summary.join("\n"));
    let took = seconds(started.elapsed());
    if failed.is_empty() {
        println!("check passed: {} steps in {took}", summary.len());
        Ok(())
    } else {
        println!(
            "check FAILED: {} of {} steps in {took}: {}",
            failed.len(),
            summary.len(),
            failed.join(", ")
        );
        Err(format!("failed: {}", failed.join(", ")))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Cargo in the workspace, its output passed through.
fn cargo(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let status = Command::new(env!("CARGO"))
        .args(&arguments)
        .envs(variables.iter().copied())
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("   cannot start cargo: {error}"))?;
    let shown: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    if status.success() {
        Ok("clean".to_owned())
    } else {
        Err(format!("   `cargo {}` ended with {status}", shown.join(" ")))
    }
}

fn format(context: &Context<'_>) -> Outcome {
    cargo(context.root, &["fmt", "--all", "--check"], &[]).map_err(|message| {
        format!("{message}\n   to do: `cargo fmt --all` (rustfmt missing: `rustup component add rustfmt`)")
    })
}

fn clippy(context: &Context<'_>) -> Outcome {
    cargo(context.root, &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

fn clippy_mutants(context: &Context<'_>) -> Outcome {
    let mut arguments = vec!["clippy", "--quiet", "--all-targets"];
    arguments.extend(tests_run::MUTANT_PACKAGES);
    // HDFS is looked at here, and tested by `cargo xtask real`: to look takes seconds, to compile
    // it for tests more than a minute.
    arguments.extend(["--features", "tombolo-storage/hdfs", "--", "-D", "warnings"]);
    cargo(context.root, &arguments, &[])
}

fn servers(context: &Context<'_>) -> Outcome {
    crate::real::bounded_where_built(context.root)
}

fn book(context: &Context<'_>) -> Outcome {
    crate::book::build(context.root).map_err(|error| format!("   {}", error.replace('\n', "\n   ")))
}

fn docs(context: &Context<'_>) -> Outcome {
    cargo(context.root, &["doc", "--quiet", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
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
